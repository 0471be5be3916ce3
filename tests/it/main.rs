//! The integration suite: one binary.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests may spawn, print and look at the clock"
)]

mod access;
mod app;
mod bad_input;
mod check_online;
mod clocks;
mod commands;
mod cut_short;
mod delivery;
mod doc_blocks;
mod docs;
mod engine_worlds;
mod exec_sink;
mod exec_world;
mod github_cases;
mod github_cost;
mod github_provider;
mod github_worlds;
mod http_sink;
mod hub_as_documented;
mod inherited;
mod judged;
mod judged_hooks;
mod lifecycle;
mod limits;
mod lock_model;
mod moments;
mod no_flock;
mod notify;
mod pid1;
mod proof;
mod receipts;
mod recorded;
mod reload;
mod rest;
mod restarts;
mod rooms;
mod shipping;
mod stopping;
mod supervision;
mod surroundings;
mod tmux_sink;
mod world;
