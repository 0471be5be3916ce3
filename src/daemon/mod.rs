//! The live process: its lock, its end, its clocks and its threads.
#![forbid(unsafe_code)]

pub mod clock;
pub mod dispatch;
pub mod fetch;
pub mod holder;
pub mod places;
pub mod poll;
pub mod runlock;
pub mod signals;
pub mod stop;
pub mod threads;
