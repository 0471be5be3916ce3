//! `stop`: ends the poller of a state directory, and is true when it returns.
//!
//! The order matters. First a handle on the process that `run.json` names (a
//! pidfd: it goes on meaning that process even when the number is given to
//! another), then the proof that a poller holds the lock (or has the claim, where
//! there is none), then the proof that it is that process, then the signal
//! through the handle. What ends or is replaced in between, at worst, gets no signal.
//!
//! Where the kernel has no pidfds (before 5.3, some sandboxes) the identity is
//! proved a second time right before `kill(2)`. A pid given away in the
//! microseconds between those two would be hit; nothing nearer can be had there.
//!
//! Of several `stop`s at the same moment one signals, and all wait: see [`turn`].
//!
//! Then it waits until the process has ended *and* the lock is free or another
//! poller's. The end alone is not enough: a child between fork and exec can
//! keep the lock an instant longer. Nothing but the poller gets a signal: the
//! work it began lives on.

use super::claims::{self, Taken};
use super::clock::Mono;
use super::holder::{self, Held, Holder, LOOK_AGAIN, SETTLE, Who};
use super::places::{self, Claim, LONGEST_PIDFILE, cannot_lock, names, plain, reason};
use crate::error::Error;
use crate::mutant;
use crate::os::file::{self, Facts, Kind};
use crate::os::flock::{self, Kept, Locked};
use crate::os::pid::{self, Pid, PidFd, User};
use crate::os::proc;
use crate::os::signals::Signal;
use crate::os::wait;
use crate::store::run_info::RunInfo;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;
use turn::Turn;

mod turn;

/// What `stop` did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stopped {
    /// A poller ran and is gone.
    Gone {
        /// Its pid; unknown if it ended by itself before that could be told.
        pid: Option<Pid>,
    },
    /// None ran, and that was allowed (`--if-running`).
    NothingRan {
        /// What was found instead, as a sentence for the user.
        found: String,
    },
}

/// Asks the poller of `state_dir` to end and waits until it has, at most
/// `timeout`. `pidfile` is where its pidfile would be left after a crash.
///
/// # Errors
/// Everything but a poller that ran and is gone, with exit 1: nothing ran (but
/// for `if_running`), which poller it is cannot be proved, it is another
/// user's, or it is still there after the timeout.
pub fn stop(
    state_dir: &Path,
    pidfile: &Path,
    timeout: Duration,
    if_running: bool,
) -> Result<Stopped, Error> {
    stop_with(state_dir, pidfile, timeout, if_running, PidFd::open)
}

fn stop_with(
    state_dir: &Path,
    pidfile: &Path,
    timeout: Duration,
    if_running: bool,
    open: fn(Pid) -> io::Result<PidFd>,
) -> Result<Stopped, Error> {
    let (state_dir, pidfile) = (plain(state_dir), plain(pidfile));
    if mutant::is("stop-believes-the-pidfile")
        && let Some(Claim::Pid(pid)) = places::claim(&pidfile)
        && pid.get() > 1
        && pid != Pid::own()
    {
        let _ = pid::kill(pid, Signal::Term);
    }
    let begun = Mono::now();
    let deadline = begun.plus(timeout);
    let settled = begun.plus(SETTLE.min(timeout));
    let mut seen: Option<Box<Held>> = None;
    loop {
        // The handle comes before the proof.
        let target = Target::named_by(&state_dir, open)?;
        let held = match holder::probe(&state_dir, &pidfile)? {
            Holder::Held(held) => held,
            free => match found_nobody(&state_dir, &pidfile, &free) {
                // It was there and has ended by itself meanwhile.
                Some(_) if seen.is_some() => {
                    return Ok(Stopped::Gone {
                        pid: seen.and_then(|held| held.pid()),
                    });
                }
                Some(found) if if_running => return Ok(Stopped::NothingRan { found }),
                Some(found) => return Err(Error::new(found, "")),
                None => {
                    wait::pause(LOOK_AGAIN);
                    continue;
                }
            },
        };
        match (&held.who, target) {
            (Who::Proved(pid), Some(target))
                if target.is(*pid, &held)
                    && !is_ending(&held)
                    && (agrees(&held) || settled.passed()) =>
            {
                return end(&target, &state_dir, &pidfile, timeout, deadline);
            }
            (Who::OtherNamespace | Who::OtherBoot | Who::OtherUser(_), _) if settled.passed() => {
                return Err(out_of_reach(&state_dir, &held));
            }
            _ if mutant::is("unproved-at-once") => return Err(unproved(&state_dir, &held)),
            _ if deadline.passed() || (settled.passed() && !proc::is_mounted()) => {
                return Err(unproved(&state_dir, &held));
            }
            _ => {}
        }
        seen = Some(held);
        wait::pause(LOOK_AGAIN);
    }
}

/// A process to be ended: the one `run.json` named when this was made.
struct Target {
    pid: Pid,
    start_time: Option<u64>,
    handle: Option<PidFd>,
}

impl Target {
    /// `None` when `run.json` names no living process.
    fn named_by(
        state_dir: &Path,
        open: fn(Pid) -> io::Result<PidFd>,
    ) -> Result<Option<Target>, Error> {
        let Some(run) = RunInfo::read(state_dir) else {
            return Ok(None);
        };
        let Some(pid) = Pid::new(run.pid) else {
            return Ok(None);
        };
        let handle = match open(pid) {
            Ok(handle) => Some(handle),
            Err(e) if pid::is_unsupported(&e) => None,
            Err(e) if pid::is_gone(&e) => return Ok(None),
            Err(e) => return Err(Error::new(format!("cannot reach pid {pid}"), e)),
        };
        Ok(Some(Target {
            pid,
            start_time: run.start_time,
            handle,
        }))
    }

    /// Whether this is the process that was proved to hold the lock. It has not
    /// ended since the handle was opened, so what `/proc` said was about it.
    fn is(&self, proved: Pid, held: &Held) -> bool {
        self.pid == proved
            && held.run.as_ref().is_some_and(|run| self.wrote(run))
            && self.is_alive()
    }

    /// Whether `run` is what this process said of itself.
    fn wrote(&self, run: &RunInfo) -> bool {
        Pid::new(run.pid) == Some(self.pid)
            && self.start_time.is_some()
            && self.start_time == run.start_time
    }

    fn is_alive(&self) -> bool {
        match &self.handle {
            Some(handle) => matches!(handle.ended(Duration::ZERO), Ok(false)),
            None => self
                .start_time
                .is_some_and(|start_time| proc::lives(self.pid, start_time)),
        }
    }

    fn signal(&self) -> io::Result<()> {
        match &self.handle {
            Some(handle) => handle.send(Signal::Term),
            None if self.is_alive() => pid::kill(self.pid, Signal::Term),
            None => Ok(()),
        }
    }

    /// Waits for the end, at most `timeout`, perhaps less; says whether it came.
    fn ended(&self, timeout: Duration) -> io::Result<bool> {
        match &self.handle {
            Some(handle) => handle.ended(timeout),
            None if !self.is_alive() => Ok(true),
            None => {
                wait::pause(timeout.min(LOOK_AGAIN));
                Ok(!self.is_alive())
            }
        }
    }
}

/// Signals the target and waits for its end and for the lock. One that was
/// asked already gets no signal: it would take a second one as "at once".
fn end(
    target: &Target,
    state_dir: &Path,
    pidfile: &Path,
    timeout: Duration,
    deadline: Mono,
) -> Result<Stopped, Error> {
    let pid = target.pid;
    let failed = |e: &io::Error| Error::new(format!("cannot stop pid {pid}"), e);
    let turn = Turn::take(target, state_dir, deadline);
    let signalled = match turn {
        Turn::Ours(_) => target.signal(),
        Turn::Theirs => Ok(()),
    };
    match signalled {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            let user =
                proc::user(pid).map_or_else(|| "another user".to_string(), |u| u.to_string());
            let error = Error::new(
                format!("cannot stop the poller of {}", state_dir.display()),
                format!("it is pid {pid} of user {user}"),
            );
            return Err(error.hint(format!("run this as {user} or as root")));
        }
        Err(e) if !pid::is_gone(&e) => return Err(failed(&e)),
        _ => {}
    }
    if mutant::is("stop-returns-after-the-signal") {
        return Ok(Stopped::Gone { pid: Some(pid) });
    }
    turn.end_when_heard(target, state_dir, deadline);
    loop {
        let ended = mutant::is("stop-waits-for-the-lock-alone")
            || target.ended(deadline.left()).map_err(|e| failed(&e))?;
        let found = holder::probe(state_dir, pidfile)?;
        let held = is_held_by(target, &found) && !mutant::is("stop-waits-for-the-process-alone");
        if ended && !held {
            // One that was killed meanwhile leaves its pidfile behind.
            if let Holder::Stale(_) = found {
                remove_stale(state_dir, pidfile);
            }
            return Ok(Stopped::Gone { pid: Some(pid) });
        }
        if deadline.passed() {
            if mutant::is("timeout-is-success") {
                return Ok(Stopped::Gone { pid: Some(pid) });
            }
            return Err(still_there(pid, ended, &found, state_dir, timeout));
        }
        if ended {
            wait::pause(LOOK_AGAIN);
        }
    }
}

/// Whether the lock is held and nobody but the target is known to hold it.
fn is_held_by(target: &Target, found: &Holder) -> bool {
    match found {
        Holder::Held(held) => held.run.as_ref().is_none_or(|run| target.wrote(run)),
        _ => false,
    }
}

/// Whether the poller has written that it is done: a signal would only disturb its last step.
fn is_ending(held: &Held) -> bool {
    held.run
        .as_ref()
        .is_some_and(|run| run.stopped_at.is_some())
}

/// Whether the pidfile does not name another process than `run.json`.
fn agrees(held: &Held) -> bool {
    match (&held.who, &held.claim) {
        (Who::Proved(pid), Some(Claim::Pid(claimed))) => pid == claimed,
        _ => true,
    }
}

/// Says that no poller runs, and removes the pidfile a crash left. `None` when
/// a poller has started meanwhile.
fn found_nobody(state_dir: &Path, pidfile: &Path, free: &Holder) -> Option<String> {
    let dir = state_dir.display();
    Some(match free {
        Holder::NoStateDir => {
            format!("no poller is running: there is no state directory {dir}")
        }
        Holder::Stale(claim) => {
            let fate = match remove_stale(state_dir, pidfile) {
                Removal::Removed => "was stale and is removed".to_string(),
                Removal::Kept(why) => format!("is stale but stays: {why}"),
                Removal::Held => return None,
            };
            let pidfile = pidfile.display();
            format!(
                "no poller is running with state directory {dir}; pidfile {pidfile} ({claim}) {fate}"
            )
        }
        Holder::Nobody | Holder::Held(_) => {
            format!("no poller is running with state directory {dir}")
        }
    })
}

/// What became of a stale pidfile.
enum Removal {
    Removed,
    /// It stays, and why.
    Kept(String),
    /// It is not stale: a poller runs.
    Held,
}

/// Removes a pidfile while it is certain that nobody holds it: the shared lock
/// on the state directory keeps every `start` waiting, the exclusive one on the
/// pidfile shows that it is no other poller's, and the path must still name it.
/// Where there are no locks the directory is claimed meanwhile, and only the pidfile
/// that is in it is known to be nobody else's.
fn remove_stale(state_dir: &Path, pidfile: &Path) -> Removal {
    let kept = |e: &io::Error| Removal::Kept(reason(e));
    let _nobody_starts = match keep_out(state_dir) {
        Ok(guard) => guard,
        Err(removal) => return removal,
    };
    let opened = match Facts::at(pidfile) {
        Ok(f) if f.kind != Kind::File => return Removal::Kept(format!("it is {}", f.kind)),
        Ok(_) => file::open_existing(pidfile),
        Err(e) => Err(e),
    };
    let opened = match opened.and_then(|file| Ok((Facts::of(&file)?, file))) {
        Ok((facts, _)) if facts.links > 1 => {
            return Removal::Kept("it is a hard link".to_string());
        }
        Ok((facts, _)) if facts.size > LONGEST_PIDFILE => {
            return Removal::Kept(format!("it is {} bytes long, not a pidfile", facts.size));
        }
        Ok((_, file)) => match places::is_something_else(&file, pidfile, state_dir) {
            Ok(false) => file,
            Ok(true) => return Removal::Kept(places::NO_PIDFILE.to_string()),
            Err(e) => return kept(&e),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Removal::Removed,
        Err(e) => return kept(&e),
    };
    let locked = match Kept::exclusive(opened) {
        Ok(Ok(Kept::Open(..))) if pidfile.parent() != Some(state_dir) => {
            let why = "its file system cannot lock, so it may be another poller's";
            return Removal::Kept(why.to_string());
        }
        Ok(Ok(kept)) => kept,
        Ok(Err(_)) => {
            return Removal::Kept("a poller with another state directory holds it".to_string());
        }
        Err(e) => return kept(&e),
    };
    match names(pidfile, locked.file()) {
        Ok(true) => match fs::remove_file(pidfile) {
            Ok(()) => Removal::Removed,
            Err(e) => kept(&e),
        },
        Ok(false) => Removal::Removed,
        Err(e) => kept(&e),
    }
}

/// While this is kept, nobody starts.
enum NobodyStarts {
    ByLock(#[expect(dead_code, reason = "kept, not looked at")] Locked),
    ByClaim(#[expect(dead_code, reason = "kept, not looked at")] claims::Ours),
}

fn keep_out(state_dir: &Path) -> Result<NobodyStarts, Removal> {
    let kept = |e: &Error| Removal::Kept(e.to_string());
    let directory = match places::open_state_dir(state_dir) {
        Ok(Some((directory, _))) => directory,
        Ok(None) => {
            return Err(Removal::Kept(
                "the state directory was removed just now".to_string(),
            ));
        }
        Err(e) => return Err(kept(&e)),
    };
    match Locked::shared(directory) {
        Ok(Ok(locked)) => Ok(NobodyStarts::ByLock(locked)),
        Ok(Err(_)) => Err(Removal::Held),
        Err(e) if flock::is_unsupported(&e) => match claims::take(state_dir) {
            Ok(Taken::Ours(ours)) => Ok(NobodyStarts::ByClaim(ours)),
            Ok(Taken::Held(_) | Taken::Beaten) => Err(Removal::Held),
            Err(e) => Err(kept(&e)),
        },
        Err(e) => Err(kept(&cannot_lock(state_dir, &e))),
    }
}

fn out_of_reach(state_dir: &Path, held: &Held) -> Error {
    let error = Error::new(
        format!("cannot stop the poller of {}", state_dir.display()),
        format!("it is {}", held.in_words()),
    );
    let hint = match held.who {
        Who::OtherUser(User::ROOT) => "run this as root".to_string(),
        Who::OtherUser(user) => format!("run this as {user} or as root"),
        Who::OtherBoot => "run this on the machine it runs on".to_string(),
        _ => "run this where it runs: inside its container, or outside of this one".to_string(),
    };
    match held.holding.as_ref().and_then(|claim| claim.remedy()) {
        Some(remedy) => error.hint(format!("{hint}; {remedy}")),
        None => error.hint(hint),
    }
}

fn unproved(state_dir: &Path, held: &Held) -> Error {
    let why = match &held.who {
        Who::Unproved(why) => why.clone(),
        Who::Proved(pid) if is_ending(held) => format!("pid {pid} is about to end by itself"),
        _ => format!("it is {}", held.in_words()),
    };
    let taker = held.taker.map_or(String::new(), |pid| {
        format!("; the lock was taken by pid {pid}")
    });
    Error::new(
        format!("cannot stop the poller of {}", state_dir.display()),
        format!("its lock is held, but which process that is cannot be proved: {why}"),
    )
    .hint(format!("nothing was signalled{taker}"))
}

fn still_there(
    pid: Pid,
    ended: bool,
    found: &Holder,
    state_dir: &Path,
    timeout: Duration,
) -> Error {
    let held = matches!(found, Holder::Held(_));
    let dir = state_dir.display();
    let state = match (ended, held) {
        (false, true) => format!("it still runs and holds the lock of {dir}"),
        (false, false) => format!("it has given back the lock of {dir}, but has not ended"),
        (true, _) => format!("it has ended, but the lock of {dir} is still held"),
    };
    let seconds = timeout.as_secs_f64();
    Error::new(format!("pid {pid} did not end within {seconds} s"), state).hint(
        "it finishes what is in hand first: give it longer with --timeout; \
         killing it is safe too, the next start carries on",
    )
}

#[cfg(test)]
mod tests;
