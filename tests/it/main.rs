//! The integration suite: one binary.

mod engine_worlds;
mod rooms;
mod exec_sink;
mod exec_world;
mod world;
