//! The integration suite: one binary.

mod engine_worlds;
mod world;
