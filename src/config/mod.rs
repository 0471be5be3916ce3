//! What the user wrote: read, checked, and handed on as plain values.
//!
//! [`load`] reads a file and gives the [`checked::Config`] every other room
//! works with, or one error that lists everything wrong with it. [`find`]
//! says which file that is. Every key stands in [`keys`], which the pages
//! `docs/config.md` and `docs/config.schema.json` are tested against.
//!
//! The config holds no secrets, only where they are: [`secret`] reads them.
#![forbid(unsafe_code)]

pub mod checked;
pub mod keys;
#[cfg(test)]
mod mistakes;
pub mod nearest;
mod place;
mod raw;
mod rules;
mod scope;
pub mod secret;
mod source;
mod spot;
mod url;
mod values;

pub use place::{Env, absolute, find};

use crate::error::Error;
use checked::Config;
use std::path::{Path, PathBuf};

/// What the command line says instead of the config file. Paths may be relative to the working directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    /// `--state-dir`.
    pub state_dir: Option<PathBuf>,
    /// `--pidfile`.
    pub pidfile: Option<PathBuf>,
    /// `--interval`, in seconds, within [`keys::INTERVAL`].
    pub interval: Option<u64>,
    /// `--max-retries`, within [`keys::RETRIES`]; wins in every source too.
    pub max_retries: Option<u32>,
}

/// Reads and checks the config in `file`, with the process's own environment.
///
/// Beside the config come warnings: things that are allowed and most likely
/// not meant.
///
/// # Errors
/// A usage error (exit 2). If the file can be read but is wrong, it names all
/// that is wrong, a line each, as `FILE:LINE:COLUMN: KEY: WHAT`.
pub fn load(file: &Path, overrides: &Overrides) -> Result<(Config, Vec<String>), Error> {
    load_in(file, overrides, &Env::of_process()?)
}

/// Reads and checks the config in `file` in a given environment.
///
/// # Errors
/// As [`load`].
pub fn load_in(
    file: &Path,
    overrides: &Overrides,
    env: &Env,
) -> Result<(Config, Vec<String>), Error> {
    let file = absolute(&env.cwd, file);
    let text = raw::read(&file)?;
    rules::check(&file, &text, overrides, env)
}
