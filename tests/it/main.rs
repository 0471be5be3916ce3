//! The integration suite: one binary.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests may spawn, print and look at the clock"
)]

mod bad_input;
mod clocks;
mod commands;
mod delivery;
mod docs;
mod engine_worlds;
mod exec_sink;
mod exec_world;
mod github_provider;
mod lifecycle;
mod reload;
mod restarts;
mod rooms;
mod stopping;
mod world;
