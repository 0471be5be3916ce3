//! The state directory and the pidfile as files: made, looked at, opened and
//! checked, before anything is locked or written.
//!
//! What others could tamper with is refused here: a link, a FIFO, a directory
//! in place of a file, a file with a second name, a file of another user or one
//! that others can write to. Nothing is truncated, and nothing waits.

use crate::error::Error;
use crate::mutant;
use crate::os::file::{self, Facts, Kind};
use crate::os::file_system::FileSystem;
use crate::os::flock;
use crate::os::pid::{Pid, User};
use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

/// A longer file is not a pidfile, but a mistake in the command line.
pub(super) const LONGEST_PIDFILE: u64 = 1024;

/// What a pidfile says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// A pid; whose it is now is another question.
    Pid(Pid),
    /// Something else, made printable and cut short.
    Text(String),
    /// It cannot be read, and why.
    Unreadable(String),
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Claim::Pid(pid) => write!(f, "pid {pid}"),
            Claim::Text(text) if text.is_empty() => f.write_str("empty"),
            Claim::Text(text) => write!(f, "not a pid: '{text}'"),
            Claim::Unreadable(why) => write!(f, "unreadable: {why}"),
        }
    }
}

/// Makes the state directory and its missing parents, for this user alone.
pub(super) fn create_state_dir(path: &Path) -> Result<(), Error> {
    // Something is there: what it is, is looked at when it is opened.
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    let failed = |e: io::Error| {
        Error::new(
            format!("cannot create state directory {}", path.display()),
            e,
        )
    };
    let missing: Vec<&Path> = path.ancestors().take_while(|p| !p.exists()).collect();
    for directory in missing.iter().rev() {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed(e)),
            _ => {}
        }
        // The records in it can only be as durable as its own name.
        if let Some(parent) = directory.parent().and_then(|p| File::open(p).ok()) {
            file::sync_directory(&parent).map_err(failed)?;
        }
    }
    Ok(())
}

/// Opens the state directory, if it is safe to keep state in.
pub(super) fn open_own_state_dir(path: &Path) -> Result<File, Error> {
    let failed = |e: &dyn fmt::Display| {
        Error::new(format!("cannot use state directory {}", path.display()), e)
    };
    let Some((directory, facts)) = open_state_dir(path)? else {
        return Err(failed(&"it was removed just now"));
    };
    check_owner(path, &facts).map_err(|(why, hint)| failed(&why).hint(hint))?;
    file::is_writable_directory(directory.as_fd())
        .map_err(|e| failed(&e).hint("it must be writable: every record is kept there"))?;
    Ok(directory)
}

/// Whether a state directory would serve, without making or locking anything:
/// `path` itself if it is there, else the directory it would be made in.
///
/// # Errors
/// What `start` would say.
pub fn check_state_dir(path: &Path) -> Result<(), Error> {
    if fs::symlink_metadata(path).is_ok() {
        return open_own_state_dir(&plain(path)).map(drop);
    }
    let failed = |e: io::Error| {
        Error::new(
            format!("cannot create state directory {}", path.display()),
            e,
        )
    };
    let above = path.ancestors().find(|p| p.exists());
    let above = above.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    let directory = File::open(above).map_err(failed)?;
    if !directory.metadata().map_err(failed)?.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    file::is_writable_directory(directory.as_fd()).map_err(failed)
}

/// What is to be said of the file system of a state directory that other machines
/// may have mounted too; of the directory it would be made in, if it is not there.
#[must_use]
pub fn shared_with_others(state_dir: &Path) -> Option<String> {
    let there = state_dir.ancestors().find(|p| p.exists())?;
    let kind = File::open(there).and_then(|d| FileSystem::of(d.as_fd()));
    let which = kind.ok()?.shared_in_words()?;
    Some(format!(
        "the state directory {} is on {which}: two machines must not share it",
        state_dir.display()
    ))
}

/// Opens the pidfile, made if it is missing, if it is safe to write and to remove.
pub(super) fn open_own_pidfile(path: &Path, state_dir: &Path) -> Result<File, Error> {
    let failed =
        |e: &dyn fmt::Display| Error::new(format!("cannot use pidfile {}", path.display()), e);
    // Looked at before it is opened as well: opening a device can have effects.
    let named = Facts::at(path).ok();
    if let Some(named) = named {
        check_pidfile(path, &named).map_err(|(why, hint)| failed(&why).hint(hint))?;
    }
    let file = file::open_or_create(path).map_err(|e| match named {
        Some(named) => whose(failed(&e), &named),
        None if e.kind() == io::ErrorKind::NotFound => {
            failed(&e).hint("the directory it is in must be there already")
        }
        None => failed(&e),
    })?;
    let facts = Facts::of(&file).map_err(|e| failed(&e))?;
    check_pidfile(path, &facts).map_err(|(why, hint)| failed(&why).hint(hint))?;
    if is_something_else(&file, path, state_dir).map_err(|e| failed(&e))? {
        let hint = format!("give another one, or remove it: {}", path.display());
        return Err(failed(&NO_PIDFILE).hint(hint));
    }
    Ok(file)
}

/// What is said of a file that is something else.
pub(super) const NO_PIDFILE: &str = "it holds something else than a pid, so it is not a pidfile";

/// Whether the file `path` holds what neither a poller nor a crash leaves in a pidfile: other than
/// a number, nothing, or zeros. In the state directory what has the name is ours, whatever a
/// crash made of it; elsewhere a slip of the pen may have named it (`--pidfile` for `--config`).
pub(super) fn is_something_else(file: &File, path: &Path, state_dir: &Path) -> io::Result<bool> {
    if path.parent() == Some(state_dir) {
        return Ok(false);
    }
    let mut text = [0; LONGEST_PIDFILE as usize];
    let length = file.read_at(&mut text, 0)?;
    let known =
        |b: &u8| b.is_ascii_digit() || b.is_ascii_whitespace() || matches!(b, 0 | b'-' | b'+');
    Ok(!text[..length].iter().all(known) && !mutant::is("any-file-is-a-pidfile"))
}

/// That others can open a state directory, and so lock it, which keeps a poller from starting.
pub(super) fn open_to_others(state_dir: &Path) -> Option<String> {
    let facts = Facts::at(state_dir).ok()?;
    (facts.mode & 0o077 != 0).then(|| {
        let path = state_dir.display();
        let mode = facts.mode;
        format!("others can open the state directory {path} (mode {mode:04o}), and so keep a poller from starting: chmod 700 {path}")
    })
}

/// Why a file cannot be our pidfile, and what to do.
fn check_pidfile(path: &Path, facts: &Facts) -> Result<(), (String, String)> {
    let away = || format!("look what it is and move it away: {}", path.display());
    if facts.kind != Kind::File {
        return Err((format!("it is {}, not a regular file", facts.kind), away()));
    }
    // No name at all: it was removed since it was opened, which is seen after the lock.
    if facts.links > 1 {
        return Err((
            "it is a hard link: the same file has another name".to_string(),
            away(),
        ));
    }
    if facts.size > LONGEST_PIDFILE {
        return Err((
            format!("it is {} bytes long, not a pidfile", facts.size),
            away(),
        ));
    }
    check_owner(path, facts)
}

/// Why others could tamper with a file, and what to do.
fn check_owner(path: &Path, facts: &Facts) -> Result<(), (String, String)> {
    let (owner, us) = (User(facts.owner), User::effective());
    if owner != us && owner != User::ROOT {
        return Err((
            format!("it belongs to {owner}, and this is {us}"),
            format!("run this as {owner}, or use another --state-dir"),
        ));
    }
    if facts.others_can_write() && !mutant::is("others-may-write") {
        return Err((
            format!("others can write to it (mode {:04o})", facts.mode),
            format!("chmod go-w {}", path.display()),
        ));
    }
    Ok(())
}

/// What the pidfile says; `None` when there is none.
pub(super) fn claim(pidfile: &Path) -> Option<Claim> {
    let read = || -> io::Result<String> {
        let mut text = Vec::new();
        let file = file::open_regular(pidfile)?;
        file.take(64).read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).trim_end().to_string())
    };
    match read() {
        Ok(text) => Some(match text.parse() {
            Ok(pid) => Claim::Pid(pid),
            Err(()) => Claim::Text(text.chars().take(40).flat_map(char::escape_debug).collect()),
        }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => Some(Claim::Unreadable(reason(&e))),
    }
}

/// Opens the state directory, if it is there and is one.
pub(super) fn open_state_dir(state_dir: &Path) -> Result<Option<(File, Facts)>, Error> {
    let failed = |e: &dyn fmt::Display| {
        Error::new(
            format!("cannot use state directory {}", state_dir.display()),
            e,
        )
    };
    let named = match Facts::at(state_dir) {
        Ok(named) => named,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(&e)),
    };
    match named.kind {
        Kind::Directory => {}
        Kind::Symlink => {
            return Err(failed(&"it is a symbolic link").hint("give the directory it points to"));
        }
        kind => return Err(failed(&format!("it is {kind}, not a directory"))),
    }
    let opened = file::open_directory(state_dir).and_then(|d| Facts::of(&d).map(|f| (d, f)));
    opened.map(Some).map_err(|e| whose(failed(&e), &named))
}

/// Whether `path` still names the file that is open as `file`.
pub(super) fn names(path: &Path, file: &File) -> io::Result<bool> {
    match Facts::at(path) {
        Ok(named) => Ok(named.same_inode(&Facts::of(file)?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// The path without `.`, doubled slashes or a slash at its end, which would have a link followed.
pub(super) fn plain(path: &Path) -> PathBuf {
    path.components().collect()
}

/// Adds to an error whose file it is about, if that explains it.
pub(super) fn whose(error: Error, facts: &Facts) -> Error {
    let (owner, us) = (User(facts.owner), User::effective());
    match owner == us || us == User::ROOT {
        true => error,
        false if owner == User::ROOT => error.hint("it belongs to root: run this as root"),
        false => error.hint(format!(
            "it belongs to {owner}: run this as {owner} or as root"
        )),
    }
}

/// A lock call that failed for another reason than that the lock is held or cannot be had at all.
pub(super) fn cannot_lock(path: &Path, e: &io::Error) -> Error {
    Error::new(format!("cannot lock {}", path.display()), e)
}

/// The cause of an input or output error, as it reads in a sentence.
pub(super) fn reason(e: &io::Error) -> String {
    Error::new("", e).cause
}

/// Whether somebody holds the pidfile, as far as that can be told.
pub(super) fn is_locked(pidfile: &Path) -> bool {
    file::open_regular(pidfile)
        .and_then(|file| flock::is_held(file.as_fd()))
        .unwrap_or(false)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, clippy::print_stderr, reason = "tests")]
mod tests {
    use super::super::stand_in::Scratch;
    use super::*;
    use std::os::unix::fs::chown;

    #[test]
    fn a_path_that_cannot_be_looked_at_is_an_error() {
        let scratch = Scratch::new().with_state();
        let path = scratch.state().join("file");
        fs::write(&path, "").expect("written");
        let file = File::open(&path).expect("open");
        assert!(names(&path, &file).expect("it is there"));
        assert!(!names(&scratch.state().join("other"), &file).expect("there is none"));
        assert!(names(&path.join("below"), &file).is_err());
    }

    /// What `check` says of a state directory is what `start` would.
    #[test]
    fn a_state_directory_that_cannot_be_made_or_used_is_an_error() {
        let scratch = Scratch::new().with_state();
        let file = scratch.path().join("file");
        fs::write(&file, "").expect("written");
        assert_eq!(check_state_dir(&scratch.state()), Ok(()));
        assert_eq!(check_state_dir(&scratch.state().join("a/b")), Ok(()));
        for wrong in [file.clone(), file.join("state")] {
            assert!(check_state_dir(&wrong).is_err(), "{}", wrong.display());
        }
        assert!(!scratch.state().join("a").exists(), "nothing is made");
    }

    /// To root it explains nothing whose a file is.
    #[test]
    fn root_is_not_told_whose_a_file_is() {
        let scratch = Scratch::new().with_state();
        if chown(scratch.state(), Some(4711), None).is_err() {
            eprintln!("not tried: only root can give a directory away");
            return;
        }
        let facts = Facts::at(&scratch.state()).expect("there");
        assert_eq!(whose(Error::new("x", "y"), &facts).hint, None);
    }
}
