//! Where deliveries go: one file per kind of sink, and the table of them.
//!
//! A sink is asked to take one delivery at a time per item, from worker
//! threads. It never sees the ledger. To add one, write its file, add it to
//! the config's `SinkConfig` and to [`open`].
#![forbid(unsafe_code)]

pub mod child;
pub mod exec;
pub mod http;
pub mod receipt;
pub mod runner;
pub mod tmux;

use crate::config::checked;
use crate::engine::delivery::{Delivery, Outcome, Receipt};
use crate::os::wake::Wake;
use std::path::{Path, PathBuf};

/// Opens the sink that `sink` describes. `runs_dir` is where receipts are kept
/// (`STATE/runs`); `secret_vars` names the environment variables that hold
/// tokens, which no child gets to see (R7.4).
#[must_use]
pub fn open(sink: &checked::Sink, runs_dir: &Path, secret_vars: &[String]) -> Box<dyn Sink> {
    match sink {
        checked::Sink::Exec(settings) => Box::new(exec::Exec {
            program: PathBuf::from("/proc/self/exe"),
            settings: settings.clone(),
            runs_dir: runs_dir.to_path_buf(),
            secret_vars: secret_vars.to_vec(),
        }),
        checked::Sink::Tmux(settings) => {
            Box::new(tmux::Tmux::new(settings.clone(), runs_dir, secret_vars))
        }
        checked::Sink::Http(settings) => Box::new(http::Http::new(settings.clone())),
    }
}

/// Something that takes deliveries.
pub trait Sink: Send + Sync {
    /// Makes the effect and says what became of it. Blocks as long as that
    /// takes, but returns soon after `stop` is raised: with
    /// [`Outcome::LeftRunning`] where the effect goes on by itself, with
    /// [`Outcome::Unknown`] where it cannot be told.
    fn deliver(&self, delivery: &Delivery, stop: &Wake) -> Outcome;

    /// Asks for the receipt of a try whose outcome was never recorded.
    fn settle(&self, delivery: &Delivery) -> Receipt;

    /// Waits for a try found [`Receipt::Running`] to end; the same rules for `stop`.
    fn wait(&self, delivery: &Delivery, stop: &Wake) -> Outcome;

    /// Forgets what was kept of the tries of a delivery resolved long ago.
    fn forget(&self, delivery: &Delivery);

    /// What happened that people should hear about, each told once.
    fn news(&self) -> Vec<String> {
        Vec::new()
    }
}
