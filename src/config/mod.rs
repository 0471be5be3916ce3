//! What the user wrote: read, checked, and handed on as plain values.
//!
//! [`load`] reads a file and gives the [`checked::Config`] every other room
//! works with, or one error that lists everything wrong with it. [`find`]
//! says which file that is, and [`Watched`] reads it again while a poller runs. Every key stands in [`keys`], which the pages
//! `docs/config.md` and `docs/config.schema.json` are tested against.
//!
//! The config holds no secrets, only where they are: [`secret`] reads them.
#![forbid(unsafe_code)]

pub mod checked;
mod http;
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
mod tmux;
mod url;
mod values;
mod watched;

pub use place::{Env, absolute, find};
pub use watched::{Edit, Look, Watched};

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

/// What a command needs that only looks at a state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The config file, if there is one.
    pub file: Option<PathBuf>,
    /// The state directory; absolute.
    pub state_dir: PathBuf,
    /// The pidfile; absolute.
    pub pidfile: PathBuf,
}

/// Finds the state directory without asking more of the config than that, so
/// that a poller can be looked at and stopped whatever became of its config
/// meanwhile. `file` is `--config`.
///
/// # Errors
/// A usage error when the config says where state is and cannot be read, or
/// when nothing says it.
pub fn places(file: Option<&Path>, overrides: &Overrides) -> Result<Places, Error> {
    places_in(file, overrides, &Env::of_process()?)
}

/// As [`places`], in a given environment.
///
/// # Errors
/// As [`places`].
pub fn places_in(file: Option<&Path>, overrides: &Overrides, env: &Env) -> Result<Places, Error> {
    let found = find(file, env);
    let state_dir = match (&overrides.state_dir, &found) {
        (Some(dir), _) => absolute(&env.cwd, dir),
        (None, Ok(file)) => raw::read(file)
            .and_then(|text| rules::state_dir_alone(file, &text, overrides, env))
            .map_err(|error| match error.hint {
                None => error.hint("mend it, or say where the state is with --state-dir DIR"),
                Some(_) => error,
            })?,
        (None, Err(error)) => env.state_dir().ok_or_else(|| error.clone())?,
    };
    Ok(Places {
        file: found.ok(),
        pidfile: match &overrides.pidfile {
            Some(path) => absolute(&env.cwd, path),
            None => state_dir.join("poll.pid"),
        },
        state_dir,
    })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn the_state_directory_is_found_whatever_else_is_wrong_with_the_config() {
        let dir = Scratch::new();
        let env = Env {
            cwd: dir.to_path_buf(),
            vars: [("HOME".into(), dir.as_os_str().into())].into(),
        };
        let none = Overrides::default();
        let at = |o: &Overrides| places_in(None, o, &env);
        if find(None, &env).is_err() {
            let places = at(&none).expect("the default");
            assert_eq!(places.state_dir, dir.join(".local/state/idempoll"));
            assert_eq!(places.file, None);
        }
        let file = dir.join("idempoll.json");
        std::fs::write(
            &file,
            "{ \"state_dir\": \"s\", \"oops\": [], \"sources\": 5 }",
        )
        .expect("a file");
        let places = at(&none).expect("it says where");
        assert_eq!(places.state_dir, dir.join("s"));
        assert_eq!(places.pidfile, dir.join("s/poll.pid"));
        assert_eq!(places.file, Some(file.clone()));

        std::fs::write(&file, "{ \"state_dir\": 5 }").expect("a file");
        let e = at(&none).expect_err("it does not say where").to_string();
        assert!(
            e.ends_with(":1:16: state_dir: must be a text, not a number"),
            "{e}"
        );
        std::fs::write(&file, "{").expect("a file");
        assert!(at(&none).is_err());
        let flags = Overrides {
            state_dir: Some("x".into()),
            pidfile: Some("p".into()),
            ..Overrides::default()
        };
        let places = at(&flags).expect("the flags say it");
        assert_eq!(places.state_dir, dir.join("x"));
        assert_eq!(places.pidfile, dir.join("p"));
        let e = places_in(Some(Path::new("gone.json")), &none, &env).expect_err("not there");
        assert!(e.to_string().contains("gone.json: no such file"), "{e}");
    }
}
