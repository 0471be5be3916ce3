//! The live process: its lock, its end, its clocks and its threads.
#![forbid(unsafe_code)]

pub mod channels;
pub mod claims;
pub mod clock;
pub mod dispatch;
pub mod fetch;
pub mod health;
pub mod holder;
pub mod life;
pub mod lifecycle;
pub mod notify;
pub mod places;
pub mod poll;
#[cfg(test)]
mod race;
pub mod rearm;
pub mod reload;
pub mod runlock;
#[cfg(all(test, feature = "shuttle"))]
#[allow(clippy::print_stdout, reason = "tests print what they went through")]
mod schedules;
pub mod sentry;
pub mod signals;
#[cfg(test)]
mod stand_in;
pub mod steps;
pub mod stop;
pub mod threads;
