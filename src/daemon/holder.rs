//! Who holds a state directory: looked at without getting in the way.
//!
//! The truth is the kernel's lock on the state directory's own descriptor: if
//! it is held, a poller runs. Which process that is, `STATE/run.json` says, and
//! it is believed only when the process it names is alive and is the very one
//! that wrote it (same start time, same boot, same pid namespace, same user).
//! The number in the pidfile is a hint for people and nothing more.

use super::clock;
use super::places::{Claim, cannot_lock, claim, is_locked, open_state_dir, plain, reason};
use crate::error::Error;
use crate::os::file::Facts;
use crate::os::flock::Locked;
use crate::os::pid::{Pid, User};
use crate::os::proc::{self, Stat};
use crate::store::run_info::{self, RunInfo};
use std::path::Path;

/// What a look at a state directory found.
#[derive(Debug, Clone, PartialEq)]
pub enum Holder {
    /// There is no such directory.
    NoStateDir,
    /// No poller runs.
    Nobody,
    /// No poller runs, but one that did not end gracefully left its pidfile.
    Stale(Claim),
    /// A poller runs.
    Held(Box<Held>),
}

/// A poller that runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// Which process it is, and how sure that is.
    pub who: Who,
    /// `run.json` as it is now: the holder's own only if `who` is [`Who::Proved`].
    pub run: Option<RunInfo>,
    /// What the pidfile says, if there is one.
    pub claim: Option<Claim>,
    /// Who took the lock according to the kernel's list; often unknown.
    pub taker: Option<Pid>,
}

/// Which process holds the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// This one: `run.json` names it and it is the process that wrote it.
    Proved(Pid),
    /// Cannot be told (yet); a poller that has just started has not written its
    /// `run.json`. Why, as the end of a sentence.
    Unproved(String),
    /// One in another pid namespace, a container's, where its pid means nothing here.
    OtherNamespace,
    /// One of another machine, or of a time before this machine was started.
    OtherBoot,
    /// One of this user, whose files may not be read.
    OtherUser(User),
}

impl Held {
    /// The holder's pid as it is called here, if that can be said at all; for messages.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        match (&self.who, &self.claim) {
            (Who::Proved(pid), _) => Some(*pid),
            (Who::Unproved(_) | Who::OtherUser(_), Some(Claim::Pid(pid))) => Some(*pid),
            _ => self.taker,
        }
    }

    /// The holder in words: `pid 4711`.
    #[must_use]
    pub fn in_words(&self) -> String {
        let own = self.run.as_ref().map_or(0, |run| run.pid);
        match (&self.who, self.pid()) {
            (Who::OtherNamespace, Some(pid)) => {
                format!("pid {pid}, which is pid {own} in its own pid namespace")
            }
            (Who::OtherNamespace, None) => format!("pid {own} of another pid namespace"),
            (Who::OtherBoot, _) => format!("pid {own} of another machine"),
            (Who::OtherUser(user), Some(pid)) => format!("pid {pid} of user {user}"),
            (Who::OtherUser(user), None) => format!("a process of user {user}"),
            (_, Some(pid)) => format!("pid {pid}"),
            (_, None) => "its pid is not known yet".to_string(),
        }
    }
}

/// Looks who holds a state directory. Makes and changes nothing; the shared
/// lock it takes for an instant is known to [`super::runlock`], which does not
/// mistake it for a poller.
///
/// # Errors
/// When the directory may not be looked into (naming whose it is), is not a
/// directory, or is on a file system that cannot lock.
pub fn probe(state_dir: &Path, pidfile: &Path) -> Result<Holder, Error> {
    let state_dir = plain(state_dir);
    let Some((directory, facts)) = open_state_dir(&state_dir)? else {
        return Ok(Holder::NoStateDir);
    };
    match Locked::shared(directory).map_err(|e| cannot_lock(&state_dir, &e))? {
        Ok(guard) => drop(guard),
        Err(_) => {
            let run = RunInfo::read(&state_dir);
            let who = judge(&state_dir, run.as_ref());
            // The holder's pidfile is the one it says it has.
            let claim = match &run {
                Some(run) if run.pidfile.is_absolute() => claim(&run.pidfile),
                _ => claim(pidfile),
            };
            let taker = proc::lock_taker(&facts);
            return Ok(Holder::Held(Box::new(Held {
                who,
                run,
                claim,
                taker,
            })));
        }
    }
    Ok(match claim(pidfile) {
        // A pidfile outside may be that of a poller with another state directory.
        Some(claim) if !is_locked(pidfile) => Holder::Stale(claim),
        _ => Holder::Nobody,
    })
}

/// This process as `run.json` describes it, at the moment it starts.
#[must_use]
pub fn this_process(config: &Path, pidfile: &Path) -> RunInfo {
    RunInfo {
        version: run_info::VERSION,
        pid: Pid::own().get(),
        start_time: proc::stat(Pid::own()).map(|s| s.start_time),
        boot_id: proc::boot_id(),
        pid_ns: proc::pid_namespace(),
        program: env!("CARGO_PKG_VERSION").to_string(),
        config: config.to_path_buf(),
        pidfile: pidfile.to_path_buf(),
        started_at: clock::now(),
        ..RunInfo::default()
    }
}

/// What this process can know about the machine and about others on it.
struct Here<'a> {
    us: User,
    boot_id: Option<String>,
    pid_ns: Option<u64>,
    process: &'a dyn Fn(Pid) -> Option<(Stat, User)>,
}

fn judge(state_dir: &Path, run: Option<&RunInfo>) -> Who {
    let path = RunInfo::path(state_dir);
    let Some(run) = run else {
        return match Facts::at(&path) {
            Ok(f) if !may_read(&f) => Who::OtherUser(User(f.owner)),
            Ok(_) => Who::Unproved(format!("{} is damaged", path.display())),
            Err(e) => Who::Unproved(format!("cannot read {}: {}", path.display(), reason(&e))),
        };
    };
    judge_from(
        run,
        &Here {
            us: User::effective(),
            boot_id: proc::boot_id(),
            pid_ns: proc::pid_namespace(),
            process: &|pid| Some((proc::stat(pid)?, proc::user(pid)?)),
        },
    )
}

fn may_read(facts: &Facts) -> bool {
    let us = User::effective();
    us == User::ROOT || us == User(facts.owner) || facts.mode & 0o044 != 0
}

fn judge_from(run: &RunInfo, here: &Here<'_>) -> Who {
    let Some(pid) = Pid::new(run.pid) else {
        return Who::Unproved("run.json names no process".to_string());
    };
    // What is unknown is never the same as anything.
    match (&run.boot_id, &here.boot_id) {
        (Some(theirs), Some(ours)) if theirs == ours => {}
        (Some(_), Some(_)) => return Who::OtherBoot,
        _ => return Who::Unproved("the boot id is not known".to_string()),
    }
    match (run.pid_ns, here.pid_ns) {
        (Some(theirs), Some(ours)) if theirs == ours => {}
        (Some(_), Some(_)) => return Who::OtherNamespace,
        _ => return Who::Unproved("the pid namespace is not known".to_string()),
    }
    match (here.process)(pid) {
        // `/proc` may hide the processes of others.
        None => match run.owner.map(User) {
            Some(owner) if owner != here.us && here.us != User::ROOT => Who::OtherUser(owner),
            _ => Who::Unproved(format!("pid {pid} in run.json is gone")),
        },
        Some((stat, _)) if stat.zombie => Who::Unproved(format!("pid {pid} in run.json has ended")),
        Some((stat, _)) if run.start_time != Some(stat.start_time) => {
            Who::Unproved(format!("pid {pid} in run.json is another process now"))
        }
        // Whoever may write the file could name any process in it; the file's
        // owner cannot be made up.
        Some((_, user)) if run.owner != Some(user.0) => Who::Unproved(format!(
            "pid {pid} is not a process of the owner of run.json"
        )),
        Some(_) => Who::Proved(pid),
    }
}
