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
//! Where a file system has no `flock`, or it may hang there, a claim takes the
//! place of the state directory's lock (see [`super::claims`]), and the pidfile is
//! written without one. Whether there is a lock is a matter of the file system, so
//! all see the same; but it may change, and a lone call may fail so for want of memory.
//! Therefore who has the lock looks for a claim afterwards, and who has a claim
//! looks whether the kernel lists a lock: of two, the later one sees the other (but for
//! a lock taken in another container, which the kernel does not list here).
//!
//! Whoever can open the directory or the pidfile can hold a lock on it, so both
//! are made for their owner alone (0700, 0600).

use super::claims::{self, Ours, Standing};
use super::clock::Mono;
use super::holder::{self, Holder};
use super::places::{self, Claim, cannot_lock, names, open_own_pidfile, open_own_state_dir, plain};
use crate::error::Error;
use crate::mutant;
use crate::os::file::Facts;
use crate::os::file_system::FileSystem;
use crate::os::flock::{self, Kept, Locked, Try};
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
    // Fields are dropped in this order: the state directory's lock, or its claim, goes last.
    pidfile: Kept,
    state_dir: Kept,
    claim: Option<Ours>,
    notice: Option<String>,
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
        if mutant::is("old-pidfile-is-a-poller") && pidfile_path.exists() {
            return Err(busy_elsewhere(&pidfile_path));
        }
        let Ok(state_dir) = lock(&state_dir_path, &open_own_state_dir, patience)? else {
            return Err(busy(&state_dir_path, &pidfile_path)?);
        };
        if mutant::is("state-dir-not-locked") {
            let _ = flock::unlock(state_dir.file().as_fd());
        }
        let mut notice = places::shared_with_others(&state_dir_path);
        let claim = match &state_dir {
            Kept::Locked(_) => match claims::look(&state_dir_path)? {
                Standing::Held(_) if !mutant::is("lock-ignores-claims") => {
                    // Given back first, or the look at who it is would find us.
                    drop(state_dir);
                    return Err(busy(&state_dir_path, &pidfile_path)?);
                }
                _ => None,
            },
            Kept::Open(directory, why) => {
                let Some(claim) = claim(&state_dir_path, directory, patience)? else {
                    return Err(busy(&state_dir_path, &pidfile_path)?);
                };
                let which = format!("the state directory {}", state_dir_path.display());
                let file = claim.path().display();
                let unlocked = match notice {
                    Some(shared) => format!("{shared}; it"),
                    None => which,
                };
                let why = no_lock(directory, why);
                notice = Some(format!(
                    "{unlocked} cannot be locked ({why}): {file} takes the lock's place"
                ));
                Some(claim)
            }
        };
        let open = |path: &Path| open_own_pidfile(path, &state_dir_path);
        let Ok(pidfile) = lock(&pidfile_path, &open, patience)? else {
            return Err(busy_elsewhere(&pidfile_path));
        };
        if mutant::is("pidfile-not-locked") {
            let _ = flock::unlock(pidfile.file().as_fd());
        }
        if let (Kept::Open(file, why), None) = (&pidfile, &notice) {
            let (path, why) = (pidfile_path.display(), no_lock(file, why));
            notice = Some(format!(
                "the pidfile {path} cannot be locked ({why}): the state directory alone is"
            ));
        }
        let lock = RunLock {
            pidfile,
            state_dir,
            claim,
            notice,
            pidfile_path,
            state_dir_path,
            pidfile_removed: false,
        };
        write_pid(lock.pidfile.file()).map_err(|e| lock.cannot_write(&e))?;
        Ok(lock)
    }

    /// What is out of the ordinary about the file system it is on, in a sentence.
    #[must_use]
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// Whether all that happens to the state directory happens on this machine, whose kernel can
    /// then tell us: it is locked, and on no file system that other machines may have too.
    #[must_use]
    pub fn is_local(&self) -> bool {
        let directory = self.state_dir.file().as_fd();
        matches!(self.state_dir, Kept::Locked(_))
            && FileSystem::of(directory).is_ok_and(|kind| kind == FileSystem::Local)
    }

    /// Looks whether the pidfile is still there and still ours, and puts it
    /// right if not. For every cycle.
    ///
    /// # Errors
    /// As [`RunLock::stands`].
    pub fn put_right(&mut self) -> Result<PutRight, Error> {
        match self.stands()? {
            Some(e) => Ok(PutRight::Failed(e)),
            None => Ok(self.put_pidfile_right().unwrap_or_else(PutRight::Failed)),
        }
    }

    /// Looks whether the path of the state directory still names what is locked. Costs two
    /// calls, so it can be asked for each second. Says why if that cannot be seen at present.
    ///
    /// # Errors
    /// When the state directory itself was moved, removed or replaced: what its
    /// path names now is not what is locked, so nothing may be written there
    /// any more and the poller must end. The same when its claim is gone.
    pub fn stands(&self) -> Result<Option<Error>, Error> {
        let path = self.state_dir_path.display();
        let gone = |why, hint| {
            let doing = format!("cannot go on with state directory {path}");
            Err(Error::new(doing, why).hint(hint))
        };
        match names(&self.state_dir_path, self.state_dir.file()) {
            Ok(true) => {}
            Ok(false) => {
                return gone(
                    "it was moved, removed or replaced while the poller ran",
                    "put it back, then start again",
                );
            }
            Err(e) => return Ok(Some(self.cannot_see(&self.state_dir_path, &e))),
        }
        match self.claim.as_ref().map_or(Ok(true), Ours::stands) {
            Ok(true) => Ok(None),
            Ok(false) => gone(
                "the claim on it was removed, or another poller made a higher one",
                "leave STATE/poll.claim.* alone while a poller runs, and start again",
            ),
            Err(e) => Ok(Some(self.cannot_see(&self.state_dir_path, &e))),
        }
    }

    /// Removes the pidfile and gives both locks back, the state directory's last.
    ///
    /// # Errors
    /// When the pidfile could not be removed. The locks are given back all the same.
    pub fn release(mut self) -> Result<(), Error> {
        self.remove_pidfile()
    }

    fn put_pidfile_right(&mut self) -> Result<PutRight, Error> {
        if mutant::is("pidfile-not-put-right") {
            return Ok(PutRight::AsItWas);
        }
        let path = &self.pidfile_path;
        let see = |e: &io::Error| self.cannot_see(path, e);
        if names(path, self.pidfile.file()).map_err(|e| see(&e))? {
            if says_our_pid(self.pidfile.file()).map_err(|e| see(&e))? {
                return Ok(PutRight::AsItWas);
            }
        } else {
            let open = |path: &Path| open_own_pidfile(path, &self.state_dir_path);
            match lock(path, &open, PAUSE)? {
                // The old one is unlocked as it is dropped; nobody can find it any more.
                Ok(kept) => self.pidfile = kept,
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
        if mutant::is("pidfile-unlinked-after-release") {
            let _ = flock::unlock(self.pidfile.file().as_fd());
            let _ = flock::unlock(self.state_dir.file().as_fd());
        }
        let removed = match names(&self.pidfile_path, self.pidfile.file()) {
            Ok(named) if named || mutant::is("any-pidfile-unlinked") => {
                fs::remove_file(&self.pidfile_path)
            }
            Ok(_) => Ok(()),
            Err(e) => Err(e),
        };
        // Somebody else may have removed it just now.
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

/// Opens what `path` names, locks it if it can be locked, and makes sure that it
/// is still what the path names.
fn lock(
    path: &Path,
    open: &dyn Fn(&Path) -> Result<File, Error>,
    patience: Duration,
) -> Result<Result<Kept, Busy>, Error> {
    let deadline = Mono::now().plus(patience);
    for _ in 0..TRIES {
        let kept = match take(open(path)?, deadline).map_err(|e| cannot_lock(path, &e))? {
            Taken::Ours(kept) => kept,
            Taken::Busy => return Ok(Err(Busy)),
            Taken::Probed => {
                return Err(Error::new(
                    format!("cannot lock {}", path.display()),
                    "something other than a poller keeps a shared lock on it",
                ));
            }
        };
        if names(path, kept.file()).map_err(|e| cannot_lock(path, &e))?
            || mutant::is("lock-without-recheck")
        {
            return Ok(Ok(kept));
        }
    }
    Err(Error::new(
        format!("cannot lock {}", path.display()),
        "it is removed or replaced again and again",
    ))
}

enum Taken {
    Ours(Kept),
    Busy,
    Probed,
}

/// Takes the lock, or watches it until `deadline` and is sure that it is held.
/// A lock that can be shared is not held by a poller but by a probe.
fn take(mut file: File, deadline: Mono) -> io::Result<Taken> {
    let end = deadline.plus(PROBE_PATIENCE);
    let deadline = match mutant::is("start-without-patience") {
        true => Mono::now(),
        false => deadline,
    };
    loop {
        let tried = match mutant::is("lock-shared") {
            true => Locked::shared(file)?.map(Kept::Locked),
            false => Kept::exclusive(file)?,
        };
        file = match tried {
            Ok(kept) => return Ok(Taken::Ours(kept)),
            Err(file) => file,
        };
        match flock::try_shared(file.as_fd())? {
            Try::Taken => {
                flock::unlock(file.as_fd())?;
                if mutant::is("probe-taken-for-a-poller") {
                    return Ok(Taken::Busy);
                }
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

/// Claims the state directory, of which `directory` is open and cannot be locked.
/// `None` when somebody else holds it.
fn claim(path: &Path, directory: &File, patience: Duration) -> Result<Option<Ours>, Error> {
    let deadline = Mono::now().plus(patience);
    let locked = || holder::is_listed(directory) && !mutant::is("claim-ignores-lock");
    loop {
        // Before, so that whoever is refused has written nothing; and after, since of a
        // lock and a claim made at once one must see the other.
        if !locked()
            && let claims::Taken::Ours(ours) = claims::take(path)?
            && !locked()
        {
            return Ok(Some(ours));
        }
        if deadline.passed() {
            return Ok(None);
        }
        wait::pause(PAUSE);
    }
}

/// Why a file cannot be locked, as it reads in a sentence.
fn no_lock(file: &File, why: &io::Error) -> String {
    match FileSystem::of(file.as_fd()).is_ok_and(FileSystem::flock_may_hang) {
        true => "flock may hang there".to_string(),
        false => places::reason(why),
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
    let claim = held.as_ref().and_then(|held| held.holding.as_ref());
    let remedy = claim.and_then(|claim| claim.remedy());
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
        error: error.hint(match remedy {
            Some(remedy) => format!("end it where it runs; {remedy}"),
            None => format!("end it with `idempoll stop --state-dir {state_dir}`"),
        }),
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
