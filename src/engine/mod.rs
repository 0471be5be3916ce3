//! What should happen: plain values and a state machine over them.
//!
//! Facts go in, steps come out. Nothing here reads a clock, starts a thread,
//! opens a file or a socket; the driver in `daemon/` does, and reports back.
//! So every place a poller can die is a place between two steps, which tests
//! can visit by the thousand.
#![forbid(unsafe_code)]

pub mod access;
pub mod budget;
pub mod cycle;
#[cfg(test)]
mod cycle_tests;
pub mod delivery;
pub mod entry;
pub mod feed;
mod flight;
pub mod host;
pub mod item;
pub mod listing;
pub mod order;
mod parked;
pub mod payload;
pub mod plan;
pub mod record;
pub mod saving;
pub mod step;
pub mod time;
mod walk;
pub mod webhook;
