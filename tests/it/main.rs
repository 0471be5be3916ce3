//! The integration suite: one binary.

mod engine_worlds;
mod rooms;
mod exec_sink;
mod exec_world;
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests may spawn, print and look at the clock"
)]

mod github_provider;
mod world;
