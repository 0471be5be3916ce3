//! `stop`: ends the poller of a state directory, and is true when it returns.
//!
//! The order matters. First a handle on the process that `run.json` names (a
//! pidfd: it goes on meaning that process even when the number is given to
//! another), then the proof that a poller holds the lock, then the proof that
//! it is that process, then the signal through the handle. What ends or is
//! replaced in between, at worst, gets no signal.
//!
//! Where the kernel has no pidfds (before 5.3, some sandboxes) the identity is
//! proved a second time right before `kill(2)`. A pid given away in the
//! microseconds between those two would be hit; nothing nearer can be had there.
//!
//! Then it waits until the process has ended *and* the lock is free or another
//! poller's. The end alone is not enough: a child between fork and exec can
//! keep the lock an instant longer. Nothing but the poller gets a signal: the
//! work it began lives on.

use super::clock::Mono;
use super::holder::{self, Held, Holder, Who};
use super::places::{self, Claim, LONGEST_PIDFILE, cannot_lock, names, plain, reason};
use crate::error::Error;
use crate::os::file::{self, Facts, Kind};
use crate::os::flock::Locked;
use crate::os::pid::{self, Pid, PidFd, User};
use crate::os::proc;
use crate::os::signals::Signal;
use crate::os::wait;
use crate::store::run_info::RunInfo;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Between two looks at something that cannot be waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How long what contradicts itself may settle: a poller that has just started
/// has taken the lock, and its `run.json` is the last one's for an instant.
const SETTLE: Duration = Duration::from_secs(1);

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
                return end(
                    &target,
                    is_asked(&held),
                    &state_dir,
                    &pidfile,
                    timeout,
                    deadline,
                );
            }
            (Who::OtherNamespace | Who::OtherBoot | Who::OtherUser(_), _) if settled.passed() => {
                return Err(out_of_reach(&state_dir, &held));
            }
            _ if deadline.passed() => return Err(unproved(&state_dir, &held)),
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
        let start_time = held.run.as_ref().and_then(|run| run.start_time);
        self.pid == proved
            && self.start_time.is_some()
            && self.start_time == start_time
            && self.is_alive()
    }

    fn is_alive(&self) -> bool {
        match &self.handle {
            Some(handle) => matches!(handle.ended(Duration::ZERO), Ok(false)),
            None => proc::stat(self.pid)
                .is_some_and(|s| !s.zombie && Some(s.start_time) == self.start_time),
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
/// `asked` already gets no signal: it would take a second one as "at once".
fn end(
    target: &Target,
    asked: bool,
    state_dir: &Path,
    pidfile: &Path,
    timeout: Duration,
    deadline: Mono,
) -> Result<Stopped, Error> {
    let pid = target.pid;
    let failed = |e: &io::Error| Error::new(format!("cannot stop pid {pid}"), e);
    let signalled = if asked { Ok(()) } else { target.signal() };
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
    loop {
        let ended = target.ended(deadline.left()).map_err(|e| failed(&e))?;
        let found = holder::probe(state_dir, pidfile)?;
        if ended && !is_held_by(target, &found) {
            // One that was killed meanwhile leaves its pidfile behind.
            if let Holder::Stale(_) = found {
                remove_stale(state_dir, pidfile);
            }
            return Ok(Stopped::Gone { pid: Some(pid) });
        }
        if deadline.passed() {
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
        Holder::Held(held) => held.run.as_ref().is_none_or(|run| {
            Pid::new(run.pid) == Some(target.pid) && run.start_time == target.start_time
        }),
        _ => false,
    }
}

/// Whether the poller has written that it is done: a signal would only disturb its last step.
fn is_ending(held: &Held) -> bool {
    held.run
        .as_ref()
        .is_some_and(|run| run.stopped_at.is_some())
}

/// Whether the poller is on its way out because somebody asked before us.
fn is_asked(held: &Held) -> bool {
    held.run
        .as_ref()
        .is_some_and(|run| run.stop_asked_at.is_some())
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
fn remove_stale(state_dir: &Path, pidfile: &Path) -> Removal {
    let kept = |e: &io::Error| Removal::Kept(reason(e));
    let _nobody_starts = match places::open_state_dir(state_dir) {
        Ok(Some((directory, _))) => match Locked::shared(directory) {
            Ok(Ok(locked)) => locked,
            Ok(Err(_)) => return Removal::Held,
            Err(e) => return Removal::Kept(cannot_lock(state_dir, &e).to_string()),
        },
        Ok(None) => return Removal::Kept("the state directory was removed just now".to_string()),
        Err(e) => return Removal::Kept(e.to_string()),
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
        Ok((_, file)) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Removal::Removed,
        Err(e) => return kept(&e),
    };
    let locked = match Locked::exclusive(opened) {
        Ok(Ok(locked)) => locked,
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

fn out_of_reach(state_dir: &Path, held: &Held) -> Error {
    let error = Error::new(
        format!("cannot stop the poller of {}", state_dir.display()),
        format!("it is {}", held.in_words()),
    );
    match held.who {
        Who::OtherUser(User::ROOT) => error.hint("run this as root"),
        Who::OtherUser(user) => error.hint(format!("run this as {user} or as root")),
        Who::OtherBoot => error.hint("run this on the machine it runs on"),
        _ => error.hint("run this where it runs: inside its container, or outside of this one"),
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
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::super::runlock::{PATIENCE, RunLock};
    use super::super::stand_in::{LONG, NOBODY, Scratch, StandIn, as_nobody, command};
    use super::*;
    use crate::exit::Exit;
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::process::{Child, Command};

    const SHORT: Duration = Duration::from_millis(100);

    fn run(scratch: &Scratch, timeout: Duration) -> Result<Stopped, Error> {
        stop(&scratch.state(), &scratch.pidfile(), timeout, false)
    }

    fn said(result: Result<Stopped, Error>) -> String {
        let error = result.expect_err("nothing was stopped");
        assert_eq!(error.exit, Exit::Failed);
        format!("{error} | {}", error.hint.as_deref().unwrap_or_default())
    }

    /// A process that has nothing to do with anything, and must not be signalled.
    struct Stranger(Child);

    impl Stranger {
        fn new() -> Stranger {
            Stranger(
                Command::new("sleep")
                    .arg("600")
                    .spawn()
                    .expect("sleep is there"),
            )
        }

        fn pid(&self) -> Pid {
            Pid::new(self.0.id()).expect("a child has a pid")
        }

        fn is_unharmed(&mut self) -> bool {
            // Through a handle, so that a signal on its way would be seen as the end.
            let handle = PidFd::open(self.pid()).expect("it is our child");
            !handle.ended(Duration::from_millis(20)).expect("poll works")
        }
    }

    impl Drop for Stranger {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// C104. That nothing runs is said in three different ways, and is no
    /// failure for who asked with `--if-running`.
    #[test]
    fn nothing_to_stop_is_exit_1_unless_that_was_allowed() {
        let scratch = Scratch::new();
        let allowed =
            |scratch: &Scratch| match stop(&scratch.state(), &scratch.pidfile(), LONG, true) {
                Ok(Stopped::NothingRan { found }) => found,
                other => panic!("it was allowed: {other:?}"),
            };
        assert!(said(run(&scratch, LONG)).contains("there is no state directory"));
        assert!(allowed(&scratch).contains("there is no state directory"));
        assert!(!scratch.state().exists());

        let scratch = scratch.with_state();
        assert!(said(run(&scratch, LONG)).contains("no poller is running with state directory"));
        assert!(allowed(&scratch).contains("no poller is running with state directory"));

        for stop in
            [&|| said(run(&scratch, LONG)), &|| allowed(&scratch)] as [&dyn Fn() -> String; 2]
        {
            fs::write(scratch.pidfile(), "7\n").expect("it can be written");
            let said = stop();
            assert!(
                said.contains("poll.pid (pid 7) was stale and is removed"),
                "{said}"
            );
            assert!(!scratch.pidfile().exists());
        }
    }

    /// R2.1, C098. Given a stale pidfile with a living stranger's pid, our own
    /// or garbage, when `stop` runs, then nobody is signalled and the file is removed.
    #[test]
    fn what_a_stale_pidfile_says_is_never_signalled() {
        let scratch = Scratch::new().with_state();
        let mut stranger = Stranger::new();
        for text in [
            &stranger.pid().to_string(),
            &std::process::id().to_string(),
            "0",
            "1",
            "-1",
            "12345678901234567890",
            "garbage",
            "",
        ] {
            fs::write(scratch.pidfile(), text).expect("it can be written");
            assert!(
                said(run(&scratch, LONG)).contains("was stale and is removed"),
                "{text}"
            );
            assert!(!scratch.pidfile().exists(), "{text}");
        }
        assert!(stranger.is_unharmed());
    }

    /// R1.9. What is not a pidfile is not removed either.
    #[test]
    fn a_thing_that_is_no_pidfile_stays() {
        let scratch = Scratch::new().with_state();
        let pidfile = scratch.pidfile();
        let victim = scratch.path().join("victim");
        fs::write(&victim, "7").expect("it can be written");
        let things: [&dyn Fn(); 4] = [
            &|| std::os::unix::fs::symlink(&victim, &pidfile).expect("it can be made"),
            &|| fs::hard_link(&victim, &pidfile).expect("it can be made"),
            &|| fs::write(&pidfile, "x".repeat(2000)).expect("it can be written"),
            &|| {
                let made = Command::new("mkfifo").arg(&pidfile).status();
                assert!(made.expect("mkfifo is there").success());
            },
        ];
        for make in things {
            make();
            let said = said(run(&scratch, LONG));
            assert!(said.contains("is stale but stays: it is"), "{said}");
            fs::remove_file(&pidfile).expect("it stayed");
        }
        assert_eq!(fs::read_to_string(&victim).expect("it is there"), "7");
    }

    /// R2.1, R2.2. Given a running poller, when `stop` returns, then the process
    /// has ended, the lock is free, and the pidfile is gone.
    #[test]
    fn a_running_poller_is_gone_when_stop_returns() {
        let scratch = Scratch::new();
        let poller = StandIn::ready("poll", &scratch);
        let pid = poller.pid();
        assert_eq!(run(&scratch, LONG), Ok(Stopped::Gone { pid: Some(pid) }));
        assert!(!scratch.pidfile().exists());
        // Not reaped by us yet: ended, and so no reason to wait on.
        assert!(proc::stat(pid).is_some_and(|s| s.zombie));
        let lock = RunLock::acquire(&scratch.state(), &scratch.pidfile(), Duration::ZERO);
        drop(lock.expect("the lock is free"));
        assert_eq!(poller.end().0, Some(0));
    }

    /// R2.2. Given a poller that gives its lock back some time before it ends,
    /// or one whose lock a child keeps some time after, when `stop` returns,
    /// then both are over.
    #[test]
    fn stop_waits_for_the_end_of_the_process_and_of_the_lock() {
        for part in ["lingering", "leaky"] {
            let scratch = Scratch::new();
            let poller = StandIn::ready(part, &scratch);
            let pid = poller.pid();
            assert_eq!(run(&scratch, LONG), Ok(Stopped::Gone { pid: Some(pid) }));
            assert!(proc::stat(pid).is_some_and(|s| s.zombie), "{part}");
            let file = file::open_directory(&scratch.state()).expect("it is there");
            let locked = Locked::exclusive(file).expect("flock works");
            assert!(locked.is_ok(), "{part}");
        }
    }

    /// R2.1. The same where the kernel has no pidfds.
    #[test]
    fn a_poller_is_stopped_without_pidfds_too() {
        const ENOSYS: i32 = 38;
        let scratch = Scratch::new();
        let poller = StandIn::ready("poll", &scratch);
        let without = |_| Err(io::Error::from_raw_os_error(ENOSYS));
        let stopped = stop_with(&scratch.state(), &scratch.pidfile(), LONG, false, without);
        let pid = Some(poller.pid());
        assert_eq!(stopped, Ok(Stopped::Gone { pid }));
        assert_eq!(poller.end().0, Some(0));
    }

    /// R2.3, C104. Given a poller that does not end, when the time is over,
    /// then `stop` says so with exit 1 and the poller keeps its lock.
    #[test]
    fn a_poller_still_there_after_the_timeout_is_reported_and_keeps_its_lock() {
        let scratch = Scratch::new();
        let poller = StandIn::ready("deaf", &scratch);
        let said = said(run(&scratch, SHORT));
        assert!(
            said.contains(&format!("pid {} did not end within 0.1 s", poller.pid())),
            "{said}"
        );
        assert!(said.contains("it still runs and holds the lock"), "{said}");
        let second = RunLock::acquire(&scratch.state(), &scratch.pidfile(), Duration::ZERO);
        assert!(second.is_err());
    }

    /// R2.6. Given a poller that was asked to end and finishes what is in hand,
    /// when `stop` runs once more, then it waits and does not cut it short.
    #[test]
    fn a_second_stop_does_not_cut_the_first_one_short() {
        let scratch = Scratch::new();
        let mut poller = StandIn::ready("hasty", &scratch);
        said(run(&scratch, SHORT));
        poller.until("asked");
        super::super::stand_in::eventually("run.json says so", || {
            RunInfo::read(&scratch.state()).is_some_and(|run| run.stop_asked_at.is_some())
        });
        let said = said(run(&scratch, SHORT));
        assert!(said.contains("it still runs"), "{said}");
    }

    /// R2.4. Given a poller that has the lock and has not said yet who it is,
    /// when `stop` runs, then it waits for that and ends it.
    #[test]
    fn a_poller_that_is_just_starting_is_stopped_too() {
        let scratch = Scratch::new().with_state();
        fs::set_permissions(scratch.state(), fs::Permissions::from_mode(0o700))
            .expect("it is ours");
        // The one before it left this: a pid that is a stranger's now.
        let mut stranger = Stranger::new();
        let mut last = holder::this_process(Path::new("/c"), &scratch.pidfile());
        last.pid = stranger.pid().get();
        last.write(&scratch.state()).expect("it can be written");
        let poller = StandIn::ready("slow", &scratch);
        assert_eq!(
            run(&scratch, LONG),
            Ok(Stopped::Gone {
                pid: Some(poller.pid())
            })
        );
        assert_eq!(poller.end().0, Some(0));
        assert!(stranger.is_unharmed());
    }

    /// R2.1. Given a held lock and a `run.json` that does not prove its holder,
    /// when `stop` runs, then the process it names is not signalled and the message says why.
    #[test]
    fn a_process_that_is_not_proved_to_be_the_holder_is_never_signalled() {
        let scratch = Scratch::new();
        let mut stranger = Stranger::new();
        let lock = RunLock::acquire(&scratch.state(), &scratch.pidfile(), PATIENCE);
        let lock = lock.expect("nobody else runs");
        type Change = fn(&mut RunInfo);
        let cases: [(&str, Change); 7] = [
            // All of it is right but for who took the lock.
            ("took the lock", |_| {}),
            ("is another process now", |r| {
                r.start_time = r.start_time.map(|t| t + 1)
            }),
            ("the boot id is not known", |r| r.boot_id = None),
            ("of another machine", |r| {
                r.boot_id = Some("other".to_string())
            }),
            ("in its own pid namespace", |r| r.pid_ns = Some(1)),
            ("about to end by itself", |r| {
                r.pid = Pid::own().get();
                r.start_time = proc::stat(Pid::own()).map(|s| s.start_time);
                r.stopped_at = Some(r.started_at);
            }),
            ("names no process", |r| r.pid = 0),
        ];
        for (why, change) in cases {
            let mut run_info = holder::this_process(Path::new("/c"), &scratch.pidfile());
            run_info.pid = stranger.pid().get();
            run_info.start_time = proc::stat(stranger.pid()).map(|s| s.start_time);
            change(&mut run_info);
            run_info.write(&scratch.state()).expect("it can be written");
            let said = said(run(&scratch, SHORT));
            // This process took the lock, which the kernel's list shows.
            assert!(said.contains(why), "{why}: {said}");
        }
        fs::remove_file(RunInfo::path(&scratch.state())).expect("it is there");
        assert!(said(run(&scratch, SHORT)).contains("run.json: no such file"));
        assert!(stranger.is_unharmed());
        drop(lock);
    }

    /// R2.1. Given a poller that is pid 1 of a container, when `stop` runs
    /// outside, then it refuses, names the pid it has out there and signals
    /// nobody; and when `stop` runs inside, then it ends pid 1.
    #[test]
    fn a_poller_in_another_pid_namespace_is_stopped_only_from_inside() {
        let unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
        let possible = Command::new(unshare[0])
            .args(&unshare[1..])
            .arg("true")
            .output();
        if !possible.is_ok_and(|out| out.status.success()) {
            return; // Only root can make namespaces.
        }
        let scratch = Scratch::new();
        let poller = StandIn::ready_from(command("poll", &scratch, &unshare));
        let outside = match holder::probe(&scratch.state(), &scratch.pidfile()) {
            Ok(Holder::Held(held)) => held.taker.expect("the kernel lists it"),
            other => panic!("it runs: {other:?}"),
        };
        let said = said(run(&scratch, SHORT));
        let which = format!("pid {outside}, which is pid 1 in its own pid namespace");
        assert!(said.contains(&which), "{said}");

        let target = outside.to_string();
        let nsenter = ["nsenter", "--pid", "--mount", "--target", &target];
        // The end of pid 1 ends all of the namespace, this `stop` included.
        let stop = command("stop", &scratch, &nsenter).output();
        stop.expect("nsenter is there");
        assert_eq!(poller.end().0, Some(0));
    }

    /// R2.1. A process of another user than the owner of `run.json` is not signalled, not even by root.
    #[test]
    fn nobody_can_have_root_signal_a_process_that_is_not_theirs() {
        let scratch = Scratch::new();
        let mut stranger = Stranger::new();
        let lock = RunLock::acquire(&scratch.state(), &scratch.pidfile(), PATIENCE);
        let mut run_info = holder::this_process(Path::new("/c"), &scratch.pidfile());
        run_info.pid = stranger.pid().get();
        run_info.start_time = proc::stat(stranger.pid()).map(|s| s.start_time);
        run_info.write(&scratch.state()).expect("it can be written");
        if chown(RunInfo::path(&scratch.state()), Some(NOBODY), None).is_err() {
            return;
        }
        assert!(said(run(&scratch, SHORT)).contains("not a process of the owner"));
        assert!(stranger.is_unharmed());
        drop(lock);
    }

    /// R2.1, C101, C104. Given another user's poller whose files can be read,
    /// when `stop` runs, then it names the pid and the user.
    #[test]
    fn a_poller_of_another_user_is_named_with_its_user() {
        let scratch = Scratch::new();
        let poller = StandIn::ready("poll", &scratch);
        let open = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
        };
        open(&scratch.state(), 0o755);
        let Some(said) = as_nobody("stop", &scratch) else {
            return;
        };
        // run.json is closed, the kernel's list of locks is not.
        assert!(said.contains("of user root"), "{said}");
        open(&RunInfo::path(&scratch.state()), 0o644);
        let said = as_nobody("stop", &scratch).expect("we are root");
        assert!(
            said.contains(&format!("it is pid {} of user root", poller.pid())),
            "{said}"
        );
        assert!(said.contains("hint: run this as root"), "{said}");
        assert!(scratch.pidfile().exists());
        assert_eq!(
            run(&scratch, LONG),
            Ok(Stopped::Gone {
                pid: Some(poller.pid())
            })
        );
    }

    /// R1.7. Given a pidfile elsewhere that a poller with another state
    /// directory holds, when `stop` runs, then that poller keeps it.
    #[test]
    fn a_pidfile_that_another_poller_holds_is_not_stale() {
        let (one, two) = (Scratch::new(), Scratch::new().with_state());
        let poller = StandIn::ready("poll", &one);
        let result = stop(&two.state(), &one.pidfile(), LONG, false);
        let said = said(result);
        assert!(
            said.contains("no poller is running with state directory"),
            "{said}"
        );
        assert!(one.pidfile().exists());
        match remove_stale(&two.state(), &one.pidfile()) {
            Removal::Kept(why) => assert!(why.contains("another state directory"), "{why}"),
            _ => panic!("it is held"),
        }
        assert!(matches!(
            remove_stale(&one.state(), &one.pidfile()),
            Removal::Held
        ));
        assert_eq!(
            run(&one, LONG),
            Ok(Stopped::Gone {
                pid: Some(poller.pid())
            })
        );
    }

    /// R1.3, C094. A running poller whose pidfile was deleted or overwritten can still be stopped.
    #[test]
    fn a_poller_is_found_without_its_pidfile() {
        for harm in [None, Some("garbage"), Some("1\n")] {
            let scratch = Scratch::new();
            let poller = StandIn::ready("poll", &scratch);
            match harm {
                None => fs::remove_file(scratch.pidfile()).expect("it is there"),
                Some(text) => fs::write(scratch.pidfile(), text).expect("it can be written"),
            }
            let pid = Some(poller.pid());
            assert_eq!(run(&scratch, LONG), Ok(Stopped::Gone { pid }), "{harm:?}");
        }
    }

    /// R2.4, C103. Given one poller after another, when each is stopped and the
    /// next started at once, then no start is refused and no stop fails.
    #[test]
    fn stop_and_start_never_get_in_each_others_way() {
        let scratch = Scratch::new();
        for _ in 0..20 {
            let poller = StandIn::ready("poll", &scratch);
            let pid = Some(poller.pid());
            assert_eq!(run(&scratch, LONG), Ok(Stopped::Gone { pid }));
            let lock = RunLock::acquire(&scratch.state(), &scratch.pidfile(), Duration::ZERO);
            drop(lock.expect("the lock is free when stop returns"));
        }
    }
}
