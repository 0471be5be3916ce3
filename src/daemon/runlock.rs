//! One poller per state directory: the lock a poller holds while it lives.
//!
//! Two locks are taken, in this order and both with `flock`: one on the state
//! directory's own descriptor, one on the pidfile. The first is what excludes,
//! whatever `--pidfile` says and whoever deletes the pidfile; the second is
//! what others look at, and what excludes pollers that share a pidfile by
//! mistake. The kernel gives both back when the process ends, however it ends.
//!
//! Three rules keep that true:
//! * After a file is locked, its inode is compared with the one the path names:
//!   it may have been unlinked and made again between open and lock.
//! * The pidfile is written and unlinked only while it is locked, and unlinked
//!   only if the path still names the locked inode.
//! * A lock is given back by unlocking, not by closing: a child that another
//!   thread started may hold a copy of the descriptor until it calls exec.
//!
//! Both files are opened close-on-exec, so no child keeps the lock.
//!
//! Whoever can open the directory or the pidfile can hold a lock on it, so both
//! are made for their owner alone (0700, 0600).

use super::clock::Mono;
use super::holder::{self, Holder};
use super::places::{self, Claim, cannot_lock, names, open_own_pidfile, open_own_state_dir, plain};
use crate::error::Error;
use crate::mutant;
use crate::os::file::Facts;
use crate::os::flock::{self, Locked, Try};
use crate::os::pid::Pid;
use crate::os::proc;
use crate::os::wait;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long `start` waits for a held lock before it believes that a poller runs.
pub const PATIENCE: Duration = Duration::from_millis(500);

/// How much longer it waits while it only sees probes: they hold their shared
/// lock for an instant and never mean that a poller runs.
const PROBE_PATIENCE: Duration = Duration::from_secs(3);

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(2);

/// How often a file may be replaced under our hands before we give up.
const TRIES: u32 = 1_000;

/// The lock of a running poller. Dropping it gives it back.
#[derive(Debug)]
pub struct RunLock {
    // Fields are dropped in this order: the state directory's lock goes last.
    pidfile: Locked,
    state_dir: Locked,
    pidfile_path: PathBuf,
    state_dir_path: PathBuf,
    pidfile_removed: bool,
}

/// Why the lock was not given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// Another poller holds it.
    Busy {
        /// Its pid, as far as it can be told.
        pid: Option<Pid>,
        /// What the user reads.
        error: Error,
    },
    /// Something else is wrong.
    Failed(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Failed(error)
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        match refused {
            Refused::Busy { error, .. } | Refused::Failed(error) => error,
        }
    }
}

/// What became of the pidfile when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutRight {
    /// It was as it should be.
    AsItWas,
    /// It was gone, replaced or overwritten, and is right again.
    Restored,
    /// It is wrong and cannot be put right at present. The lock is held all the same.
    Failed(Error),
}

impl RunLock {
    /// Makes the state directory if it is missing, takes both locks, and writes
    /// our pid into the pidfile. `patience` is how long a held lock is looked at
    /// before it is believed; [`PATIENCE`] is what `start` wants.
    ///
    /// # Errors
    /// [`Refused::Busy`] when another poller runs; nothing was touched then.
    /// [`Refused::Failed`] when the directory or the pidfile cannot be used or
    /// is not safe to use, with the path and the reason.
    pub fn acquire(
        state_dir: &Path,
        pidfile: &Path,
        patience: Duration,
    ) -> Result<RunLock, Refused> {
        let state_dir_path = plain(state_dir);
        let pidfile_path = plain(pidfile);
        places::create_state_dir(&state_dir_path)?;
        let state_dir = match lock(&state_dir_path, &open_own_state_dir, patience)? {
            Ok(locked) => locked,
            Err(Busy) => return Err(busy(&state_dir_path, &pidfile_path)?),
        };
        let pidfile = match lock(&pidfile_path, &open_own_pidfile, patience)? {
            Ok(locked) => locked,
            Err(Busy) => return Err(busy_elsewhere(&pidfile_path)),
        };
        let lock = RunLock {
            pidfile,
            state_dir,
            pidfile_path,
            state_dir_path,
            pidfile_removed: false,
        };
        write_pid(lock.pidfile.file()).map_err(|e| lock.cannot_write(&e))?;
        Ok(lock)
    }

    /// Looks whether the pidfile is still there and still ours, and puts it
    /// right if not. For every cycle.
    ///
    /// # Errors
    /// When the state directory itself was moved, removed or replaced: what its
    /// path names now is not what is locked, so nothing may be written there
    /// any more and the poller must end.
    pub fn put_right(&mut self) -> Result<PutRight, Error> {
        match names(&self.state_dir_path, self.state_dir.file()) {
            Ok(true) => {}
            Ok(false) => {
                let path = self.state_dir_path.display();
                return Err(Error::new(
                    format!("cannot go on with state directory {path}"),
                    "it was moved, removed or replaced while the poller ran",
                )
                .hint("put it back, then start again"));
            }
            Err(e) => return Ok(PutRight::Failed(self.cannot_see(&self.state_dir_path, &e))),
        }
        Ok(self.put_pidfile_right().unwrap_or_else(PutRight::Failed))
    }

    /// Removes the pidfile and gives both locks back, the state directory's last.
    ///
    /// # Errors
    /// When the pidfile could not be removed. The locks are given back all the same.
    pub fn release(mut self) -> Result<(), Error> {
        self.remove_pidfile()
    }

    fn put_pidfile_right(&mut self) -> Result<PutRight, Error> {
        let path = &self.pidfile_path;
        let see = |e: &io::Error| self.cannot_see(path, e);
        if names(path, self.pidfile.file()).map_err(|e| see(&e))? {
            if says_our_pid(self.pidfile.file()).map_err(|e| see(&e))? {
                return Ok(PutRight::AsItWas);
            }
        } else {
            match lock(path, &open_own_pidfile, PAUSE)? {
                // The old one is unlocked as it is dropped; nobody can find it any more.
                Ok(locked) => self.pidfile = locked,
                Err(Busy) => return Err(busy_elsewhere(path).into()),
            }
        }
        write_pid(self.pidfile.file()).map_err(|e| self.cannot_write(&e))?;
        Ok(PutRight::Restored)
    }

    fn remove_pidfile(&mut self) -> Result<(), Error> {
        if self.pidfile_removed {
            return Ok(());
        }
        self.pidfile_removed = true;
        let removed = match names(&self.pidfile_path, self.pidfile.file()) {
            Ok(true) => fs::remove_file(&self.pidfile_path),
            Ok(false) => Ok(()),
            Err(e) => Err(e),
        };
        // Whoever deleted it this very moment did what was wanted.
        let removed = removed.or_else(|e| match e.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(e),
        });
        removed.map_err(|e| {
            let doing = format!("cannot remove {}", self.pidfile_path.display());
            Error::new(doing, e)
        })
    }

    fn cannot_write(&self, e: &io::Error) -> Error {
        Error::new(format!("cannot write {}", self.pidfile_path.display()), e)
    }

    fn cannot_see(&self, path: &Path, e: &io::Error) -> Error {
        Error::new(format!("cannot look at {}", path.display()), e)
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // Whoever wants to know whether this worked calls `release`.
        let _ = self.remove_pidfile();
    }
}

/// Somebody else holds the lock.
struct Busy;

/// Opens what `path` names, locks it, and makes sure that it is still what the
/// path names.
fn lock(
    path: &Path,
    open: &dyn Fn(&Path) -> Result<File, Error>,
    patience: Duration,
) -> Result<Result<Locked, Busy>, Error> {
    let deadline = Mono::now().plus(patience);
    for _ in 0..TRIES {
        let locked = match take(open(path)?, deadline).map_err(|e| cannot_lock(path, &e))? {
            Taken::Ours(locked) => locked,
            Taken::Busy => return Ok(Err(Busy)),
            Taken::Probed => {
                return Err(Error::new(
                    format!("cannot lock {}", path.display()),
                    "something other than a poller keeps a shared lock on it",
                ));
            }
        };
        if names(path, locked.file()).map_err(|e| cannot_lock(path, &e))?
            || mutant::is("lock-without-recheck")
        {
            return Ok(Ok(locked));
        }
    }
    Err(Error::new(
        format!("cannot lock {}", path.display()),
        "it is removed or replaced again and again",
    ))
}

enum Taken {
    Ours(Locked),
    Busy,
    Probed,
}

/// Takes the lock, or watches it until `deadline` and is sure that it is held.
/// A lock that can be shared is not held by a poller but by a probe.
fn take(mut file: File, deadline: Mono) -> io::Result<Taken> {
    let end = deadline.plus(PROBE_PATIENCE);
    loop {
        file = match Locked::exclusive(file)? {
            Ok(locked) => return Ok(Taken::Ours(locked)),
            Err(file) => file,
        };
        match flock::try_shared(file.as_fd())? {
            Try::Taken => {
                flock::unlock(file.as_fd())?;
                if end.passed() {
                    return Ok(Taken::Probed);
                }
            }
            Try::Busy if deadline.passed() => return Ok(Taken::Busy),
            Try::Busy => {}
        }
        wait::pause(PAUSE);
    }
}

/// Another poller holds the state directory. An error instead if it cannot even be looked at.
fn busy(state_dir: &Path, pidfile: &Path) -> Result<Refused, Error> {
    let held = match holder::probe(state_dir, pidfile)? {
        Holder::Held(held) => Some(held),
        _ => None,
    };
    let (pid, words) = match &held {
        Some(held) => (held.pid(), held.in_words()),
        None => (None, "it has ended just now".to_string()),
    };
    // The pidfile to name is the one it holds, wherever ours would be.
    let theirs = held.and_then(|h| h.run.map(|run| run.pidfile));
    let pidfile = theirs
        .filter(|p| p.is_absolute())
        .unwrap_or(pidfile.to_path_buf());
    let (state_dir, pidfile) = (state_dir.display(), pidfile.display());
    let error = Error::new(
        format!("cannot lock {pidfile}"),
        format!("another poller runs with state directory {state_dir}: {words}"),
    );
    Ok(Refused::Busy {
        pid,
        error: error.hint(format!(
            "end it with `idempoll stop --state-dir {state_dir}`"
        )),
    })
}

/// The state directory is free, but another poller holds the pidfile.
fn busy_elsewhere(pidfile: &Path) -> Refused {
    let pid = match places::claim(pidfile) {
        Some(Claim::Pid(pid)) => Some(pid),
        _ => Facts::at(pidfile).ok().and_then(|f| proc::lock_taker(&f)),
    };
    let words = pid.map_or_else(
        || "its pid is not known".to_string(),
        |p| format!("pid {p}"),
    );
    let error = Error::new(
        format!("cannot lock {}", pidfile.display()),
        format!("a poller with another state directory holds it: {words}"),
    );
    Refused::Busy {
        pid,
        error: error.hint(
            "give each its own --pidfile, or end that one with `idempoll stop` and its --state-dir",
        ),
    }
}

fn pid_line() -> String {
    format!("{}\n", Pid::own())
}

fn write_pid(pidfile: &File) -> io::Result<()> {
    pidfile.set_len(0)?;
    pidfile.write_all_at(pid_line().as_bytes(), 0)
}

fn says_our_pid(pidfile: &File) -> io::Result<bool> {
    let line = pid_line();
    let mut text = vec![0; line.len() + 1];
    let length = pidfile.read_at(&mut text, 0)?;
    Ok(&text[..length] == line.as_bytes())
}

#[cfg(test)]
mod tests;
