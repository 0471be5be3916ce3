//! Stopping real pollers, and what is not to be stopped.
#![allow(clippy::disallowed_methods, reason = "tests")]

use super::super::runlock::{PATIENCE, RunLock};
use super::super::stand_in::{LONG, NOBODY, Scratch, StandIn, as_nobody, command};
use super::*;
use crate::exit::Exit;
use crate::os::proc::Stat;
use crate::store::Layout;
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
    let allowed = |scratch: &Scratch| match stop(&scratch.state(), &scratch.pidfile(), LONG, true) {
        Ok(Stopped::NothingRan { found }) => found,
        other => panic!("it was allowed: {other:?}"),
    };
    assert!(said(run(&scratch, LONG)).contains("there is no state directory"));
    assert!(allowed(&scratch).contains("there is no state directory"));
    assert!(!scratch.state().exists());

    let scratch = scratch.with_state();
    assert!(said(run(&scratch, LONG)).contains("no poller is running with state directory"));
    assert!(allowed(&scratch).contains("no poller is running with state directory"));

    for stop in [&|| said(run(&scratch, LONG)), &|| allowed(&scratch)] as [&dyn Fn() -> String; 2] {
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
    assert!(Stat::of(pid).is_some_and(|s| s.zombie));
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
        assert!(Stat::of(pid).is_some_and(|s| s.zombie), "{part}");
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

/// R2.2, R2.6. Given a poller that takes a moment to say that it was asked, when many
/// `stop` it at the same moment, then it gets one signal and ends gracefully, and each
/// of them returns when it is gone.
#[test]
fn stops_at_the_same_moment_are_one_stop() {
    let scratch = Scratch::new();
    let mut poller = StandIn::ready("dazed", &scratch);
    fs::create_dir(scratch.state().join("requests")).expect("it can be made");
    let gone = Ok(Stopped::Gone {
        pid: Some(poller.pid()),
    });
    let together = std::sync::Barrier::new(10);
    std::thread::scope(|scope| {
        let stop = || {
            scope.spawn(|| {
                together.wait();
                run(&scratch, LONG)
            })
        };
        let mut stops: Vec<_> = (0..10).map(|_| stop()).collect();
        // Two signals in the same instant are one to it; these would be more.
        poller.until("asked");
        stops.extend((0..10).map(|_| stop()));
        for stop in stops {
            let stopped = stop.join().expect("no panic");
            // One that the machine let wait may have found nobody any more.
            let late = |e: &Error| e.to_string().contains("no poller is running");
            assert!(
                stopped == gone || stopped.as_ref().is_err_and(late),
                "{stopped:?}"
            );
        }
    });
    assert_eq!(poller.end().0, Some(0), "a second signal ends it with 130");
}

/// R2.6. Given a poller that hangs and never says that it was asked, when it is stopped
/// once more, then that is its second signal; and a `stop` whose time is over
/// before its turn comes gives up with the others.
#[test]
fn a_later_stop_ends_a_poller_that_hangs() {
    let scratch = Scratch::new();
    let mut poller = StandIn::ready("mute", &scratch);
    fs::create_dir(scratch.state().join("requests")).expect("it can be made");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| said(run(&scratch, 5 * SHORT)));
        poller.until("asked");
        // While the first one waits, this one never gets its turn.
        assert!(said(run(&scratch, SHORT)).contains("it still runs"));
        assert!(first.join().expect("no panic").contains("it still runs"));
    });
    assert_eq!(
        run(&scratch, LONG),
        Ok(Stopped::Gone {
            pid: Some(poller.pid())
        })
    );
    assert_eq!(poller.end().0, Some(130));
}

/// R2.4. Given a poller that has the lock and has not said yet who it is,
/// when `stop` runs, then it waits for that and ends it.
#[test]
fn a_poller_that_is_just_starting_is_stopped_too() {
    let scratch = Scratch::new().with_state();
    fs::set_permissions(scratch.state(), fs::Permissions::from_mode(0o700)).expect("it is ours");
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
        ("is another process now", |r| {
            r.start_time = r.start_time.map(|t| t + 1)
        }),
        ("the boot id is not known", |r| r.boot_id = None),
        ("of another machine", |r| {
            r.boot_id = Some("other".to_string())
        }),
        ("in its own pid namespace", |r| r.pid_ns = Some(1)),
        // Alive, of this machine and this user, and yet not who took the lock.
        ("took the lock", |_| {}),
        ("about to end by itself", |r| {
            r.pid = Pid::own().get();
            r.start_time = Stat::of(Pid::own()).map(|s| s.start_time);
            r.stopped_at = Some(r.started_at);
        }),
        ("names no process", |r| r.pid = 0),
    ];
    for (why, change) in cases {
        let mut run_info = holder::this_process(Path::new("/c"), &scratch.pidfile());
        run_info.pid = stranger.pid().get();
        run_info.start_time = Stat::of(stranger.pid()).map(|s| s.start_time);
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
    let nsenter = ["nsenter", "--pid", "--mount", "--root", "--target", &target];
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
    run_info.start_time = Stat::of(stranger.pid()).map(|s| s.start_time);
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

/// This process as one that was proved to hold a lock.
fn ourselves() -> (Target, RunInfo) {
    let run = holder::this_process(Path::new("/c"), Path::new("/p"));
    let target = Target {
        pid: Pid::own(),
        start_time: run.start_time,
        handle: None,
    };
    (target, run)
}

fn held_by(who: Who, run: Option<RunInfo>) -> Held {
    Held {
        who,
        run,
        claim: None,
        taker: None,
        holding: None,
    }
}

/// R2.1. Given a process to be ended, when what holds the lock is another one, or another of the same pid, or it has
/// ended, then it is not the same.
#[test]
fn a_target_is_the_very_process_that_was_proved() {
    let (target, run) = ourselves();
    let other = Pid::new(1).expect("not 0");
    let is = |target: &Target, proved: Pid, run: &RunInfo| {
        target.is(proved, &held_by(Who::Proved(proved), Some(run.clone())))
    };
    assert!(is(&target, target.pid, &run) && target.wrote(&run));
    assert!(!is(&target, other, &run));
    let later = RunInfo {
        start_time: run.start_time.map(|t| t + 1),
        ..run.clone()
    };
    assert!(!is(&target, target.pid, &later) && !target.wrote(&later));
    let anothers = RunInfo {
        pid: 1,
        ..run.clone()
    };
    assert!(!target.wrote(&anothers));
    let unknown = Target {
        start_time: None,
        ..ourselves().0
    };
    let nameless = RunInfo {
        start_time: None,
        ..run
    };
    assert!(!unknown.wrote(&nameless));
    let gone = Target {
        start_time: later.start_time,
        ..ourselves().0
    };
    assert!(
        gone.wrote(&later) && !is(&gone, gone.pid, &later),
        "it has ended"
    );
}

/// R2.1. Given a pid that belongs to another process by now, where there are no handles, when it is to be signalled, then
/// nothing is; its own process has ended.
#[test]
fn without_a_handle_nobody_who_has_got_the_pid_is_signalled() {
    let mut stranger = Stranger::new();
    let stat = Stat::of(stranger.pid()).expect("it lives");
    let target = |start_time: u64| Target {
        pid: stranger.pid(),
        start_time: Some(start_time),
        handle: None,
    };
    let (recycled, itself) = (target(stat.start_time + 1), target(stat.start_time));
    assert_eq!(recycled.ended(Duration::ZERO).ok(), Some(true));
    assert_eq!(itself.ended(Duration::ZERO).ok(), Some(false));
    recycled.signal().expect("there is nothing to signal");
    assert!(stranger.is_unharmed());
}

/// R2.7. Given a poller that was asked already, or another one that has taken its place, then it needs no signal.
#[test]
fn only_who_was_not_asked_needs_a_signal() {
    let scratch = Scratch::new().with_state();
    let (target, run) = ourselves();
    let needs = |run: &RunInfo| {
        run.write(&scratch.state()).expect("written");
        !turn::needs_no_signal(&target, &scratch.state())
    };
    assert!(needs(&run));
    let asked = RunInfo {
        stop_asked_at: Some(run.started_at),
        ..run.clone()
    };
    assert!(!needs(&asked));
    let next = RunInfo {
        start_time: run.start_time.map(|t| t + 1),
        ..run
    };
    assert!(!needs(&next), "the target has given its lock back");
    fs::remove_file(RunInfo::path(&scratch.state())).expect("it is there");
    assert!(
        !turn::needs_no_signal(&target, &scratch.state()),
        "it lives"
    );
}

/// Where a poller can be stopped that cannot be stopped from here.
#[test]
fn what_is_out_of_reach_says_where_it_is_not() {
    let hint = |who: Who| out_of_reach(Path::new("/s"), &held_by(who, None)).hint;
    let hint = |who: Who| hint(who).expect("a hint");
    assert_eq!(hint(Who::OtherUser(User::ROOT)), "run this as root");
    let theirs = User(4711);
    assert_eq!(
        hint(Who::OtherUser(theirs)),
        format!("run this as {theirs} or as root")
    );
    assert_eq!(hint(Who::OtherBoot), "run this on the machine it runs on");
    assert!(hint(Who::OtherNamespace).contains("inside its container"));
    let (target, run) = ourselves();
    let proved = |run: RunInfo| {
        let held = held_by(Who::Proved(target.pid), Some(run));
        unproved(Path::new("/s"), &held).to_string()
    };
    let ending = RunInfo {
        stopped_at: Some(run.started_at),
        ..run.clone()
    };
    assert!(proved(ending).ends_with("is about to end by itself"));
    assert!(proved(run).ends_with(&format!("it is pid {}", target.pid)));
}

/// R1.7. A pidfile that is gone needs no removing, and one that cannot be looked at stays.
#[test]
fn a_pidfile_that_is_gone_is_removed() {
    let scratch = Scratch::new().with_state();
    let gone = remove_stale(&scratch.state(), &scratch.pidfile());
    assert!(matches!(gone, Removal::Removed));
    fs::write(scratch.path().join("file"), "").expect("written");
    let below = remove_stale(&scratch.state(), &scratch.path().join("file/pid"));
    assert!(matches!(below, Removal::Kept(_)));
    let mut longest = vec![b' '; usize::try_from(LONGEST_PIDFILE).expect("small")];
    longest[0] = b'7';
    fs::write(scratch.pidfile(), longest).expect("written");
    let removed = remove_stale(&scratch.state(), &scratch.pidfile());
    assert!(matches!(removed, Removal::Removed));
}

/// R2.1. Given a process that cannot be reached, when it is to be stopped, then the cause is said, and only one that has
/// ended counts as gone.
#[test]
fn a_process_that_cannot_be_reached_is_not_taken_for_gone() {
    let scratch = Scratch::new();
    let poller = StandIn::ready("poll", &scratch);
    let error = Target::named_by(&scratch.state(), |_| Err(io::ErrorKind::OutOfMemory.into()));
    let error = error.err().expect("an error").to_string();
    let wanted = format!("cannot reach pid {}: ", poller.pid());
    assert!(error.starts_with(&wanted), "{error}");
    let gone = Target::named_by(&scratch.state(), |_| {
        PidFd::open(Pid::new(0x7fff_ffff).expect("more than any pid"))
    });
    assert!(matches!(gone, Ok(None)));
}

/// R2.4. Given a `stop` that has its turn and ends without using it, when another waits for its own, then that one stops the
/// poller.
#[test]
fn a_turn_that_was_not_used_is_taken_by_the_next() {
    let scratch = Scratch::new();
    let poller = StandIn::ready("poll", &scratch);
    let requests = Layout::new(scratch.state()).requests();
    fs::create_dir_all(&requests).expect("room");
    let turn = file::open_directory(&requests).and_then(Locked::exclusive);
    let turn = turn.expect("it can be locked").expect("nobody has it");
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| run(&scratch, LONG));
        wait::pause(4 * SHORT);
        assert!(!stop.is_finished(), "it is not its turn");
        drop(turn);
        let pid = Some(poller.pid());
        assert_eq!(stop.join().expect("no panic"), Ok(Stopped::Gone { pid }));
    });
}

/// C109. Given a poller whose `run.json` says nothing at first, when it does within the time `stop` was given, then it is
/// stopped; when it ends by itself, then it is gone.
#[test]
fn stop_waits_for_its_time_before_it_gives_up() {
    let scratch = Scratch::new();
    let poller = StandIn::ready("poll", &scratch);
    let path = RunInfo::path(&scratch.state());
    let whole = fs::read(&path).expect("it is there");
    let pid = Some(poller.pid());
    for ends_by_itself in [false, true] {
        let poller = match ends_by_itself {
            false => None,
            true => Some(StandIn::ready("poll", &scratch)),
        };
        let pid = poller.as_ref().map_or(pid, |poller| Some(poller.pid()));
        fs::write(&path, "{").expect("damaged");
        let stopped = std::thread::scope(|scope| {
            let stop = scope.spawn(|| run(&scratch, LONG));
            wait::pause(SETTLE + SETTLE / 2);
            assert!(!stop.is_finished(), "it has time");
            match poller {
                Some(poller) => drop(poller),
                None => fs::write(&path, &whole).expect("mended"),
            }
            stop.join().expect("no panic")
        });
        match ends_by_itself {
            false => assert_eq!(stopped, Ok(Stopped::Gone { pid })),
            true => assert!(matches!(stopped, Ok(Stopped::Gone { .. })), "{stopped:?}"),
        }
    }
}
