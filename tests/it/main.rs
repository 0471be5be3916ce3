//! The integration suite: one binary.

mod exec_sink;
mod exec_world;
