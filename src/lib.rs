//! idempoll: gets work from issue trackers to a machine that no webhook can reach.
//!
//! `docs/architecture.md` is the map; in one line per room:
//!
//! * [`engine`] decides what should happen: plain values, no input or output
//! * [`config`] is what the user wrote, checked
//! * [`providers`] know where items come from
//! * [`sinks`] know where deliveries go
//! * [`net`] makes HTTP requests, the only file that names `ureq`
//! * [`store`] knows what is on disk
//! * [`daemon`] is the live process: its lock, its end, its clocks and threads
//! * [`cli`] is what the user types, and the answers
//! * [`os`] holds the kernel's words, the only `libc` and the only `unsafe`
//! * [`error`], [`exit`] and [`terminal`] are words all rooms share;
//!   [`mutant`] breaks a promise on purpose when a test asks for it,
//!   `scratch` is a directory for their tests
//!
//! Arrows go one way: `cli -> daemon, store, config, sinks (receipts)`;
//! `daemon -> engine, config, providers, sinks, store, os`; `providers, sinks
//! -> net, config values, engine types, os`; `store, config -> engine types`;
//! `engine` and `net` know nobody. `tests/it/rooms.rs` checks them.

pub mod cli;
pub mod config;
pub mod daemon;
pub mod engine;
pub mod error;
pub mod exit;
pub mod mutant;
pub mod net;
pub mod os;
pub mod providers;
#[cfg(test)]
mod scratch;
pub mod sinks;
pub mod store;
pub mod terminal;
