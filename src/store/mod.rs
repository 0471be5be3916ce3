//! What is on disk: every file under the state directory and how it is written.
//!
//! [`layout`] names the paths, [`atomic`] is the one way to write a file. The
//! one writer holds a [`Ledger`]; everyone else uses a [`Reader`], which takes
//! no lock and writes nothing. Feeds are the ledger's too, because a cursor may
//! only be saved after the records its listing touched; so are [`hosts`]. [`journal`] is the
//! event log, [`requests`] what other processes ask the poller to do,
//! [`run_info`] who runs.
#![forbid(unsafe_code)]

pub mod atomic;
mod blocks;
mod disk;
pub mod feeds;
mod head;
pub mod hosts;
pub mod journal;
pub mod layout;
pub mod ledger;
mod pending;
pub mod reader;
pub mod requests;
pub mod run_info;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use layout::Layout;
pub use ledger::Ledger;
pub use reader::{LoadError, Reader};
