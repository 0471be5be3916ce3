//! Who holds a state directory: looked at without getting in the way.
//!
//! The truth is the kernel's lock on the state directory's own descriptor, or
//! where it cannot be had the claim that decides (see [`super::claims`]): if
//! it is held, a poller runs. Which process that is, `STATE/run.json` says, and
//! it is believed only when the process it names is alive and is the very one
//! that wrote it (same start time, same boot, same pid namespace, same user).
//! The number in the pidfile is a hint for people and nothing more.

use super::claims::{self, Holding, Life, Standing};
use super::clock::{self, Mono};
use super::places::{Claim, cannot_lock, claim, is_locked, open_state_dir, plain, reason};
use crate::error::Error;
use crate::mutant;
use crate::os::file::Facts;
use crate::os::flock::{self, Locked};
use crate::os::pid::{Pid, User};
use crate::os::proc::{self, Stat};
use crate::os::wait;
use crate::store::run_info::{self, RunInfo};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// How long what contradicts itself may settle.
pub const SETTLE: Duration = Duration::from_secs(1);

/// Between two looks at something that cannot be waited for.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(10);

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
    /// Who took the lock according to the kernel's list, often unknown; or who made the claim.
    pub taker: Option<Pid>,
    /// The claim, where there is no lock.
    pub holding: Option<Holding>,
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
        if let Some(claim) = self.holding.as_ref().filter(|c| c.remedy().is_some()) {
            return claim.in_words();
        }
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
/// When the directory may not be looked into (naming whose it is) or is not a
/// directory, or when its claims cannot be understood.
pub fn probe(state_dir: &Path, pidfile: &Path) -> Result<Holder, Error> {
    let state_dir = plain(state_dir);
    let Some((directory, facts)) = open_state_dir(&state_dir)? else {
        return Ok(Holder::NoStateDir);
    };
    let listed = || proc::lock_taker(&facts);
    let locked = match Locked::shared(directory) {
        Ok(shared) => shared.is_err(),
        Err(e) if flock::is_unsupported(&e) => listed().is_some(),
        Err(e) => return Err(cannot_lock(&state_dir, &e)),
    };
    // Looked at although the lock is free, too: whoever made it may have had none.
    let holding = match locked {
        true => None,
        false => match claims::look(&state_dir)? {
            Standing::Held(holding) => Some(holding),
            Standing::Free(_) => None,
        },
    };
    if locked || holding.is_some() {
        let run = RunInfo::read(&state_dir);
        let taker = match &holding {
            Some(holding) => holding.pid(),
            None => listed(),
        };
        let who = match holding.as_ref().map(|h| h.life) {
            Some(Life::OtherNamespace) => Who::OtherNamespace,
            Some(Life::OtherMachine) => Who::OtherBoot,
            _ => as_locked(judge(&state_dir, run.as_ref()), taker),
        };
        // The holder's pidfile is the one it says it has.
        let claim = match &run {
            Some(run) if run.pidfile.is_absolute() => claim(&run.pidfile),
            _ => claim(pidfile),
        };
        return Ok(Holder::Held(Box::new(Held {
            who,
            run,
            claim,
            taker,
            holding,
        })));
    }
    Ok(match claim(pidfile) {
        // A pidfile outside may be that of a poller with another state directory.
        Some(claim) if !is_locked(pidfile) => Holder::Stale(claim),
        _ => Holder::Nobody,
    })
}

/// As [`probe`], but does not believe at once what contradicts itself: for a moment a poller that
/// has just started has not said who it is yet, and a child that a dead one was about to
/// start still has a copy of its lock. Waits for that at most [`SETTLE`].
///
/// # Errors
/// As [`probe`].
pub fn settled(state_dir: &Path, pidfile: &Path) -> Result<Holder, Error> {
    let end = Mono::now().plus(SETTLE);
    loop {
        let found = probe(state_dir, pidfile)?;
        let unsure = matches!(&found, Holder::Held(held) if matches!(held.who, Who::Unproved(_)));
        if !unsure || end.passed() {
            return Ok(found);
        }
        wait::pause(LOOK_AGAIN);
    }
}

/// Whether the kernel lists the lock of a state directory that we cannot lock: somebody could.
pub(super) fn is_listed(state_dir: &File) -> bool {
    Facts::of(state_dir).is_ok_and(|facts| proc::lock_taker(&facts).is_some())
}

/// This process as `run.json` describes it, at the moment it starts.
#[must_use]
pub fn this_process(config: &Path, pidfile: &Path) -> RunInfo {
    RunInfo {
        version: run_info::VERSION,
        pid: Pid::own().get(),
        start_time: Stat::of_self().map(|s| s.start_time),
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

/// The kernel's own list, or the claim, has the last word, where it tells who took the lock.
fn as_locked(who: Who, taker: Option<Pid>) -> Who {
    match (&who, taker) {
        (Who::Proved(pid), Some(taker)) if *pid != taker && !mutant::is("taker-not-compared") => {
            Who::Unproved(format!(
                "run.json names pid {pid}, and pid {taker} took the lock"
            ))
        }
        _ => who,
    }
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
            process: &|pid| Some((Stat::of(pid)?, proc::user(pid)?)),
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
        (_, None) => return Who::Unproved("/proc is not mounted here".to_string()),
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
        Some((stat, _))
            if run.start_time != Some(stat.start_time)
                && !mutant::is("start-time-not-compared") =>
        {
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

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::super::runlock::{PATIENCE, RunLock};
    use super::super::stand_in::{NOBODY, Scratch, StandIn, as_nobody};
    use super::*;
    use crate::os::pid::kill;
    use crate::os::signals::Signal;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

    fn look(scratch: &Scratch) -> Holder {
        probe(&scratch.state(), &scratch.pidfile()).expect("it can be looked at")
    }

    fn judged(change: impl FnOnce(&mut RunInfo), process: Option<(Stat, User)>) -> Who {
        let mut run = RunInfo {
            pid: 4711,
            start_time: Some(7),
            boot_id: Some("boot".to_string()),
            pid_ns: Some(3),
            owner: Some(1000),
            ..RunInfo::default()
        };
        change(&mut run);
        let here = Here {
            us: User::ROOT,
            boot_id: Some("boot".to_string()),
            pid_ns: Some(3),
            process: &|pid| process.filter(|_| pid.get() == run.pid),
        };
        judge_from(&run, &here)
    }

    fn process(start_time: u64, zombie: bool, user: u32) -> Option<(Stat, User)> {
        let stat = Stat {
            pid: Pid::new(4711).expect("not 0"),
            zombie,
            parent: 1,
            group: 4711,
            session: 4711,
            start_time,
        };
        Some((stat, User(user)))
    }

    /// R2.1. Given everything `run.json` says about its process, when any of it
    /// is different or unknown, then that process is not the holder.
    #[test]
    fn a_process_is_the_holder_only_if_all_of_its_identity_is_the_same() {
        let alive = || process(7, false, 1000);
        let same = |_: &mut RunInfo| {};
        assert_eq!(
            judged(same, alive()),
            Who::Proved(Pid::new(4711).expect("not 0"))
        );
        let unproved = |who: Who| assert!(matches!(who, Who::Unproved(_)), "{who:?}");
        unproved(judged(same, None));
        unproved(judged(same, process(7, true, 1000)));
        unproved(judged(same, process(8, false, 1000)));
        unproved(judged(same, process(7, false, 0)));
        unproved(judged(|r| r.pid = 0, alive()));
        unproved(judged(|r| r.pid = u32::MAX, alive()));
        unproved(judged(|r| r.start_time = None, alive()));
        unproved(judged(|r| r.boot_id = None, alive()));
        unproved(judged(|r| r.pid_ns = None, alive()));
        unproved(judged(|r| r.owner = None, alive()));
        assert_eq!(
            judged(|r| r.boot_id = Some("x".to_string()), alive()),
            Who::OtherBoot
        );
        assert_eq!(judged(|r| r.pid_ns = Some(4), alive()), Who::OtherNamespace);
    }

    /// Given a `/proc` that hides the processes of others, or none, then that is what is said.
    #[test]
    fn who_cannot_be_seen_may_be_another_users() {
        let run = RunInfo {
            pid: 4711,
            boot_id: Some("boot".to_string()),
            pid_ns: Some(3),
            owner: Some(1000),
            ..RunInfo::default()
        };
        let judged = |us: u32, boot_id: Option<&str>| {
            let here = Here {
                us: User(us),
                boot_id: boot_id.map(str::to_string),
                pid_ns: Some(3),
                process: &|_| None,
            };
            judge_from(&run, &here)
        };
        let gone = Who::Unproved("pid 4711 in run.json is gone".to_string());
        assert_eq!(judged(1001, Some("boot")), Who::OtherUser(User(1000)));
        assert_eq!(judged(1000, Some("boot")), gone);
        assert_eq!(judged(0, Some("boot")), gone, "root sees all");
        let no_proc = Who::Unproved("/proc is not mounted here".to_string());
        assert_eq!(judged(1001, None), no_proc);
    }

    /// Given a `run.json` that cannot be made out, then whoever may read it is told that it is damaged.
    #[test]
    fn a_damaged_run_json_is_damaged() {
        let scratch = Scratch::new().with_state();
        let path = RunInfo::path(&scratch.state());
        fs::write(&path, "{").expect("it can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
        let damaged = Who::Unproved(format!("{} is damaged", path.display()));
        assert_eq!(judge(&scratch.state(), None), damaged);
        // Root may read anything.
        if chown(&path, Some(NOBODY), None).is_ok() {
            assert_eq!(judge(&scratch.state(), None), damaged);
        }
    }

    /// A pid that is only claimed is good enough to be named.
    #[test]
    fn what_the_pidfile_says_is_named_where_nothing_better_is_known() {
        let held = |who: Who| Held {
            who,
            run: None,
            claim: Some(Claim::Pid(Pid::new(4711).expect("not 0"))),
            taker: None,
            holding: None,
        };
        let unproved = held(Who::Unproved("its run.json is damaged".to_string()));
        assert_eq!(unproved.in_words(), "pid 4711");
        assert_eq!(
            held(Who::OtherUser(User(7))).in_words(),
            format!("pid 4711 of user {}", User(7))
        );
        assert_eq!(held(Who::OtherBoot).pid(), None);
    }

    /// R1.7. A pidfile elsewhere that a poller with another state directory holds is not stale.
    #[test]
    fn a_pidfile_that_is_locked_is_not_stale() {
        let (one, two) = (Scratch::new(), Scratch::new().with_state());
        let _poller = StandIn::ready("poll", &one);
        assert_eq!(probe(&two.state(), &one.pidfile()), Ok(Holder::Nobody));
    }

    /// R2.1. Pid 1 is the poller in many a container: it is judged like any other.
    #[test]
    fn pid_1_is_the_holder_only_if_it_really_is() {
        let one = Who::Proved(Pid::new(1).expect("not 0"));
        assert_eq!(judged(|r| r.pid = 1, process(7, false, 1000)), one);
        assert_ne!(judged(|r| r.pid = 1, process(0, false, 1000)), one);
    }

    /// R1.7. A probe makes nothing, and leaves no lock behind.
    #[test]
    fn a_probe_makes_nothing() {
        let scratch = Scratch::new();
        assert_eq!(look(&scratch), Holder::NoStateDir);
        assert!(!scratch.state().exists());
        let scratch = scratch.with_state();
        assert_eq!(look(&scratch), Holder::Nobody);
        assert_eq!(
            fs::read_dir(scratch.state()).expect("it is there").count(),
            0
        );
    }

    /// R1.4, C098. A pidfile nobody locks is stale, whatever it says.
    #[test]
    fn an_unlocked_pidfile_is_stale_whatever_it_says() {
        let scratch = Scratch::new().with_state();
        for (text, shown) in [
            ("1\n", "pid 1"),
            ("", "empty"),
            ("0", "not a pid: '0'"),
            ("-1", "not a pid: '-1'"),
            ("12345678901234567890", "not a pid: '12345678901234567890'"),
            ("4711 extra", "not a pid: '4711 extra'"),
            ("\u{1b}[2J", "not a pid: '\\u{1b}[2J'"),
        ] {
            fs::write(scratch.pidfile(), text).expect("it can be written");
            match look(&scratch) {
                Holder::Stale(claim) => assert_eq!(claim.to_string(), shown),
                other => panic!("{text:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_running_poller_is_proved_by_its_run_json() {
        let scratch = Scratch::new();
        let poller = StandIn::ready("poll", &scratch);
        let Holder::Held(held) = look(&scratch) else {
            panic!("it holds the lock");
        };
        assert_eq!(held.who, Who::Proved(poller.pid()));
        assert_eq!(held.claim, Some(Claim::Pid(poller.pid())));
        assert_eq!(held.in_words(), format!("pid {}", poller.pid()));
    }

    /// R1.5. Given a poller that was killed, when it is looked for, then the lock is free at once.
    #[test]
    fn a_killed_poller_holds_nothing() {
        let scratch = Scratch::new();
        let mut poller = StandIn::ready("poll", &scratch);
        let pid = poller.pid();
        poller.child.kill().expect("it is our child");
        poller.child.wait().expect("it is our child");
        assert_eq!(look(&scratch), Holder::Stale(Claim::Pid(pid)));
    }

    /// R1.5. Given a poller that ended while a child it had just forked has a copy of its lock, when
    /// it is looked for, then it is not called running: the child is waited for.
    #[test]
    fn what_a_dead_poller_was_about_to_start_is_no_poller() {
        let scratch = Scratch::new();
        let poller = StandIn::ready("leaky", &scratch);
        kill(poller.pid(), Signal::Term).expect("it is our child");
        assert_eq!(poller.end().0, Some(0));
        let found = settled(&scratch.state(), &scratch.pidfile());
        assert_eq!(found.expect("it can be looked at"), Holder::Nobody);
    }

    #[test]
    fn a_poller_that_has_not_said_who_it_is_is_known_by_its_pidfile() {
        let scratch = Scratch::new();
        let lock = RunLock::acquire(&scratch.state(), &scratch.pidfile(), PATIENCE);
        let _lock = lock.expect("nobody else runs");
        let Holder::Held(held) = look(&scratch) else {
            panic!("it is held");
        };
        assert!(matches!(held.who, Who::Unproved(_)), "{:?}", held.who);
        assert_eq!(held.pid(), Some(Pid::own()));
    }

    /// R1.9. What is no directory is never locked, and a FIFO does not hang.
    #[test]
    fn a_state_directory_that_is_none_is_refused() {
        let scratch = Scratch::new();
        let real = scratch.path().join("real");
        fs::create_dir(&real).expect("it can be made");
        std::os::unix::fs::symlink(&real, scratch.state()).expect("links can be made");
        for state in [
            scratch.state(),
            scratch.state().join(""),
            scratch.state().join("."),
        ] {
            let e = probe(&state, &scratch.pidfile()).expect_err("it is a link");
            assert!(e.to_string().ends_with("it is a symbolic link"), "{e}");
        }
        fs::remove_file(scratch.state()).expect("it is there");
        fs::write(scratch.state(), "").expect("it can be written");
        let e = probe(&scratch.state(), &scratch.pidfile()).expect_err("it is a file");
        assert!(
            e.to_string()
                .ends_with("it is a regular file, not a directory"),
            "{e}"
        );
    }

    /// C122, R2.1. Given another user's state directory, when an ordinary user
    /// runs `stop`, then the owner is named and "not running" is not claimed.
    #[test]
    fn a_directory_of_another_user_names_its_owner() {
        let scratch = Scratch::new().with_state();
        let closed = fs::Permissions::from_mode(0o700);
        fs::set_permissions(scratch.state(), closed).expect("it is ours");
        let Some(said) = as_nobody("stop", &scratch) else {
            return;
        };
        assert!(said.contains("state: permission denied"), "{said}");
        let hint = "hint: it belongs to root: run this as root";
        assert!(said.lines().any(|line| line == hint), "{said}");
        if chown(scratch.state(), Some(4711), None).is_ok() {
            let said = as_nobody("stop", &scratch).expect("we are root");
            let theirs = User(4711);
            let hint = format!("hint: it belongs to {theirs}: run this as {theirs} or as root");
            assert!(said.lines().any(|line| line == hint), "{said}");
        }
    }

    /// R2.1. Given a `run.json` that names a process of another user than its
    /// own, when it is judged, then that process is not believed to be the holder.
    #[test]
    fn a_user_cannot_pass_off_another_users_process_as_the_poller() {
        let scratch = Scratch::new();
        let _poller = StandIn::ready("poll", &scratch);
        let path = RunInfo::path(&scratch.state());
        if chown(&path, Some(NOBODY), None).is_err() {
            return;
        }
        let Holder::Held(held) = look(&scratch) else {
            panic!("it is held");
        };
        assert!(
            matches!(&held.who, Who::Unproved(why) if why.contains("owner")),
            "{:?}",
            held.who
        );
    }
}
