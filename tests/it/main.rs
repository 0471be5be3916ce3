//! The integration suite: one binary.

mod engine_worlds;
mod world;
mod exec_sink;
mod exec_world;
