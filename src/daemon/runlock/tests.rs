//! The lock between real processes, and on files that are none.
#![allow(clippy::disallowed_methods, reason = "tests")]

use super::super::stand_in::{
    LONG, NOBODY, Scratch, Seen, StandIn, as_nobody, contest, eventually,
};
use super::*;
use crate::os::file::{open_directory, open_existing};
use crate::os::flock::Locked;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

fn acquire(scratch: &Scratch) -> Result<RunLock, Refused> {
    RunLock::acquire(&scratch.state(), &scratch.pidfile(), Duration::ZERO)
}

fn failed(result: Result<RunLock, Refused>) -> Error {
    match result {
        Err(Refused::Failed(error)) => error,
        other => panic!("it must fail, and not as busy: {other:?}"),
    }
}

fn mode(path: &Path) -> u32 {
    Facts::at(path).expect("it is there").mode
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("it can be read")
}

/// R1.6, R1.9. Everything is made for its owner alone, and released without a trace.
#[test]
fn the_lock_makes_what_is_missing_and_takes_the_pidfile_along() {
    let scratch = Scratch::new();
    let state = scratch.path().join("a/b/state");
    let pidfile = state.join("poll.pid");
    let lock = RunLock::acquire(&state, &pidfile, PATIENCE).expect("nobody else runs");
    for made in [
        &scratch.path().join("a"),
        &scratch.path().join("a/b"),
        &state,
    ] {
        assert_eq!(mode(made), 0o700, "{}", made.display());
    }
    assert_eq!(mode(&pidfile), 0o600);
    assert_eq!(text(&pidfile), format!("{}\n", std::process::id()));
    lock.release().expect("the pidfile can be removed");
    assert_eq!(fs::read_dir(&state).expect("it is there").count(), 0);
}

/// R1.1, R1.3. Given a running poller, when another starts on its state
/// directory, with whatever pidfile, then it is refused, told who runs and
/// what to do, and has touched nothing.
#[test]
fn a_second_poller_on_one_state_directory_is_refused_whatever_its_pidfile() {
    let scratch = Scratch::new();
    let poller = StandIn::ready("poll", &scratch);
    let elsewhere = scratch.path().join("other.pid");
    for pidfile in [scratch.pidfile(), elsewhere.clone()] {
        let patience = Duration::from_millis(20);
        match RunLock::acquire(&scratch.state(), &pidfile, patience) {
            Err(Refused::Busy { pid, error }) => {
                assert_eq!(pid, Some(poller.pid()));
                let said = error.to_string();
                assert!(
                    said.contains(&scratch.pidfile().display().to_string()),
                    "{said}"
                );
                assert!(said.ends_with(&format!("pid {}", poller.pid())), "{said}");
                assert!(error.hint.is_some_and(|h| h.contains("idempoll stop")));
            }
            other => panic!("it must be refused: {other:?}"),
        }
    }
    assert!(!elsewhere.exists());
    assert_eq!(text(&scratch.pidfile()), format!("{}\n", poller.pid()));
}

/// R1.3. Pollers with different state directories do not exclude each other.
#[test]
fn pollers_with_different_state_directories_run_side_by_side() {
    let (one, two) = (Scratch::new(), Scratch::new());
    let _one = acquire(&one).expect("nobody else runs there");
    let _two = acquire(&two).expect("nobody else runs there");
}

/// R1.1. A pidfile shared by mistake excludes as well, and says what is wrong.
#[test]
fn a_pidfile_of_a_poller_with_another_state_directory_is_respected() {
    let (one, two) = (Scratch::new(), Scratch::new());
    let _one = acquire(&one).expect("nobody else runs there");
    let before = text(&one.pidfile());
    match RunLock::acquire(&two.state(), &one.pidfile(), Duration::ZERO) {
        Err(Refused::Busy { error, .. }) => {
            assert!(
                error.to_string().contains("another state directory"),
                "{error}"
            );
        }
        other => panic!("it must be refused: {other:?}"),
    }
    assert_eq!(text(&one.pidfile()), before);
    acquire(&two).expect("its own state directory was given back");
}

/// R1.4, R1.5. Given a poller killed with SIGKILL, when another starts, then
/// it takes the lock and the pidfile at once.
#[test]
fn what_a_killed_poller_left_is_taken_over() {
    let scratch = Scratch::new();
    let mut poller = StandIn::ready("poll", &scratch);
    poller.child.kill().expect("it is our child");
    poller.child.wait().expect("it is our child");
    assert_eq!(text(&scratch.pidfile()), format!("{}\n", poller.pid()));
    let _lock = acquire(&scratch).expect("the kernel gave the lock back");
    assert_eq!(
        text(&scratch.pidfile()),
        format!("{}\n", std::process::id())
    );
}

/// R1.4. Whatever an unlocked pidfile says, it is taken over.
#[test]
fn garbage_in_a_pidfile_does_not_matter() {
    let scratch = Scratch::new().with_state();
    for garbage in [
        "",
        "0",
        "-1",
        "12345678901234567890",
        "\0\0\0\0\0\0\0\0",
        "1\n",
    ] {
        fs::write(scratch.pidfile(), garbage).expect("it can be written");
        let lock = acquire(&scratch).expect("nobody runs");
        assert_eq!(text(&scratch.pidfile()), pid_line());
        drop(lock);
    }
}

/// R2.4. A lock that is given back meanwhile is waited for.
#[test]
fn a_start_waits_for_a_poller_that_is_just_ending() {
    let scratch = Scratch::new();
    let lock = acquire(&scratch).expect("nobody else runs");
    let begun = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            begun.store(true, Ordering::SeqCst);
            RunLock::acquire(&scratch.state(), &scratch.pidfile(), LONG)
        });
        eventually("it waits", || begun.load(Ordering::SeqCst));
        lock.release().expect("the pidfile can be removed");
        waiting.join().expect("no panic").expect("it got the lock");
    });
}

/// R1.9. Given something else in place of the pidfile, when a poller
/// starts, then it is refused at once, with the path and the reason, and
/// what is there stays as it is.
#[test]
fn a_hostile_pidfile_is_refused_and_left_alone() {
    let scratch = Scratch::new().with_state();
    let pidfile = scratch.pidfile();
    let victim = scratch.path().join("victim");
    fs::write(&victim, "precious").expect("it can be written");
    type Make<'a> = Box<dyn Fn() + 'a>;
    let cases: Vec<(&str, Make<'_>)> = vec![
        (
            "a symbolic link",
            Box::new(|| symlink(&victim, &pidfile).expect("it can be made")),
        ),
        (
            "a symbolic link",
            Box::new(|| symlink("/nowhere/x", &pidfile).expect("it can be made")),
        ),
        (
            "a symbolic link",
            Box::new(|| symlink("/dev/null", &pidfile).expect("it can be made")),
        ),
        (
            "a hard link",
            Box::new(|| fs::hard_link(&victim, &pidfile).expect("it can be made")),
        ),
        (
            "a directory",
            Box::new(|| fs::create_dir(&pidfile).expect("it can be made")),
        ),
        (
            "a socket",
            Box::new(|| drop(UnixListener::bind(&pidfile).expect("it can be made"))),
        ),
        (
            "a FIFO",
            Box::new(|| {
                let made = Command::new("mkfifo").arg(&pidfile).status();
                assert!(made.expect("mkfifo is there").success());
            }),
        ),
        (
            "others can write to it (mode 0620)",
            Box::new(|| {
                fs::write(&pidfile, "7").expect("it can be written");
                set_mode(&pidfile, 0o620);
            }),
        ),
        (
            "bytes long, not a pidfile",
            Box::new(|| {
                fs::write(&pidfile, "x".repeat(2000)).expect("it can be written");
            }),
        ),
    ];
    for (reason, make) in cases {
        make();
        let before = Facts::at(&pidfile).expect("it is there");
        let said = failed(acquire(&scratch)).to_string();
        assert!(said.contains(reason), "{reason}: {said}");
        assert!(said.contains(&pidfile.display().to_string()), "{said}");
        assert_eq!(
            Facts::at(&pidfile).expect("it is there"),
            before,
            "{reason}"
        );
        assert_eq!(text(&victim), "precious", "{reason}");
        fs::remove_file(&pidfile)
            .or_else(|_| fs::remove_dir(&pidfile))
            .expect("it is ours");
    }
    acquire(&scratch).expect("nothing is in the way any more");
}

/// R1.9, C122. A pidfile or a state directory of another user is refused by name.
#[test]
fn what_belongs_to_another_user_is_refused_by_name() {
    let scratch = Scratch::new().with_state();
    fs::write(scratch.pidfile(), "7").expect("it can be written");
    if chown(scratch.pidfile(), Some(NOBODY), None).is_err() {
        return;
    }
    let owner = crate::os::pid::User(NOBODY);
    let error = failed(acquire(&scratch));
    assert!(
        error
            .to_string()
            .contains(&format!("it belongs to {owner}")),
        "{error}"
    );
    chown(scratch.pidfile(), Some(0), None).expect("we are root");
    chown(scratch.state(), Some(NOBODY), None).expect("we are root");
    let error = failed(acquire(&scratch));
    assert!(error.to_string().contains("state directory"), "{error}");
    assert!(error.hint.is_some_and(|h| h.contains(&owner.to_string())));
    assert_eq!(text(&scratch.pidfile()), "7");
    // Root's pidfile, met by the ordinary user that owns the directory.
    set_mode(&scratch.pidfile(), 0o600);
    let said = as_nobody("acquire", &scratch).expect("we are root");
    assert!(said.contains("poll.pid: permission denied"), "{said}");
    assert!(said.contains("hint: it belongs to root"), "{said}");
    assert!(!said.contains("another poller"), "{said}");
}

/// C124, R1.9. Given a state directory that cannot be written, when a poller
/// starts, then it is refused before anything else, even with a pidfile elsewhere.
#[test]
fn a_state_directory_that_cannot_be_written_is_refused() {
    let scratch = Scratch::new().with_state();
    set_mode(&scratch.state(), 0o500);
    if chown(scratch.state(), Some(NOBODY), None).is_ok() {
        let said = as_nobody("acquire", &scratch).expect("we are root");
        assert!(said.contains("state: permission denied"), "{said}");
        assert!(said.contains("writable"), "{said}");
    } else {
        let elsewhere = scratch.path().join("x.pid");
        let result = RunLock::acquire(&scratch.state(), &elsewhere, Duration::ZERO);
        assert!(failed(result).to_string().ends_with("permission denied"));
        assert!(!elsewhere.exists());
        set_mode(&scratch.state(), 0o700);
    }
}

/// R1.9. The state directory: not a link, a file or a FIFO, and nobody else may write to it.
#[test]
fn a_hostile_state_directory_is_refused() {
    let scratch = Scratch::new().with_state();
    set_mode(&scratch.state(), 0o770);
    let error = failed(acquire(&scratch));
    assert!(
        error
            .to_string()
            .contains("others can write to it (mode 0770)"),
        "{error}"
    );
    assert!(error.hint.is_some_and(|h| h.starts_with("chmod go-w ")));
    assert_eq!(
        fs::read_dir(scratch.state()).expect("it is there").count(),
        0
    );

    let link = scratch.path().join("link");
    symlink("/nowhere/at/all", &link).expect("links can be made");
    for state in [&link, &link.join(""), &scratch.path().join("state/.")] {
        let result = RunLock::acquire(state, &scratch.path().join("p"), Duration::ZERO);
        failed(result);
    }
    let fifo = scratch.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo is there").success());
    let error = failed(RunLock::acquire(&fifo, &scratch.pidfile(), Duration::ZERO));
    assert!(
        error.to_string().contains("it is a FIFO, not a directory"),
        "{error}"
    );
    let below = scratch.path().join("fifo/state");
    let error = failed(RunLock::acquire(&below, &scratch.pidfile(), Duration::ZERO));
    assert!(
        error.to_string().contains("fifo/state: not a directory"),
        "{error}"
    );
}

#[test]
fn a_pidfile_in_a_directory_that_is_missing_is_refused_with_a_hint() {
    let scratch = Scratch::new();
    let pidfile = scratch.path().join("run/poll.pid");
    let error = failed(RunLock::acquire(&scratch.state(), &pidfile, Duration::ZERO));
    assert!(error.hint.is_some_and(|h| h.contains("must be there")));
    acquire(&scratch).expect("the state directory was given back");
}

/// R1.3, C094. Given a pidfile that was deleted, replaced or overwritten
/// under a running poller, when the next cycle begins, then it is right
/// again, and nobody could start meanwhile.
#[test]
fn a_pidfile_that_is_gone_or_replaced_is_put_right() {
    let scratch = Scratch::new();
    let pidfile = scratch.pidfile();
    let mut lock = acquire(&scratch).expect("nobody else runs");
    assert_eq!(lock.put_right(), Ok(PutRight::AsItWas));
    let harms: [&dyn Fn(); 4] = [
        &|| fs::remove_file(&pidfile).expect("it is there"),
        &|| {
            fs::write(pidfile.with_extension("new"), "1\n").expect("it can be written");
            fs::rename(pidfile.with_extension("new"), &pidfile).expect("it can be moved");
        },
        &|| fs::write(&pidfile, "").expect("it can be written"),
        &|| fs::write(&pidfile, format!("{}1", pid_line())).expect("it can be written"),
    ];
    for harm in harms {
        harm();
        assert!(matches!(acquire(&scratch), Err(Refused::Busy { .. })));
        assert_eq!(lock.put_right(), Ok(PutRight::Restored));
        assert_eq!(text(&pidfile), pid_line());
        assert_eq!(lock.put_right(), Ok(PutRight::AsItWas));
        let file = open_existing(&pidfile).expect("it is there");
        assert!(
            Locked::exclusive(file).expect("flock works").is_err(),
            "it is locked"
        );
    }
    lock.release().expect("it can be removed");
    assert!(!pidfile.exists());
}

#[test]
fn a_pidfile_that_cannot_be_put_right_is_reported_and_the_lock_stays_held() {
    let scratch = Scratch::new();
    let mut lock = acquire(&scratch).expect("nobody else runs");
    fs::remove_file(scratch.pidfile()).expect("it is there");
    fs::create_dir(scratch.pidfile()).expect("it can be made");
    match lock.put_right() {
        Ok(PutRight::Failed(error)) => assert!(error.to_string().contains("a directory")),
        other => panic!("it cannot be put right: {other:?}"),
    }
    let other = scratch.path().join("other.pid");
    let second = RunLock::acquire(&scratch.state(), &other, Duration::ZERO);
    assert!(matches!(second, Err(Refused::Busy { .. })));
    fs::remove_dir(scratch.pidfile()).expect("it is there");
    assert_eq!(lock.put_right(), Ok(PutRight::Restored));
}

/// R1.3. A state directory that is not the locked one any more must not be written to.
#[test]
fn a_state_directory_replaced_under_a_poller_ends_it() {
    let scratch = Scratch::new();
    let mut lock = acquire(&scratch).expect("nobody else runs");
    fs::rename(scratch.state(), scratch.path().join("moved")).expect("it can be moved");
    assert!(lock.put_right().is_err());
    let second = acquire(&scratch).expect("that is another directory now");
    assert!(lock.put_right().is_err());
    drop(lock);
    assert_eq!(
        text(&scratch.pidfile()),
        pid_line(),
        "the second one's stays"
    );
    second.release().expect("it can be removed");
}

/// R1.6. Given a pidfile that is gone whenever it is looked at after it was opened
/// and locked, when the tries run out, then that is an error: nobody goes on unchecked.
#[test]
fn a_pidfile_that_never_stays_is_never_believed() {
    let scratch = Scratch::new();
    let path = scratch.path().join("poll.pid");
    let opened = std::cell::Cell::new(0);
    let open = |path: &Path| {
        opened.set(opened.get() + 1);
        let file = open_own_pidfile(path, scratch.path())?;
        fs::remove_file(path).expect("just made");
        Ok(file)
    };
    let Err(error) = lock(&path, &open, Duration::ZERO) else {
        panic!("what the path does not name was taken for the lock");
    };
    assert!(error.to_string().contains("again and again"), "{error}");
    assert_eq!(opened.get(), TRIES);
}

/// R1.7. Given a pidfile replaced by somebody else's, when the lock is
/// released, then that file stays.
#[test]
fn only_the_locked_inode_is_unlinked() {
    let scratch = Scratch::new();
    let lock = acquire(&scratch).expect("nobody else runs");
    fs::remove_file(scratch.pidfile()).expect("it is there");
    fs::write(scratch.pidfile(), "theirs").expect("it can be written");
    lock.release().expect("there is nothing to remove");
    assert_eq!(text(&scratch.pidfile()), "theirs");
}

/// R1.3, C094. Given contenders for one state directory and somebody who
/// deletes the pidfile at every moment, then never do two of them run at once,
/// and a start fails only when it found the pidfile gone too often (R1.6).
#[test]
fn contenders_never_overlap_although_the_pidfile_is_deleted_under_them() {
    let seen = contest_while_deleting(Duration::ZERO);
    assert_eq!((seen.overlaps, seen.failed), (0, 0), "{seen:?}");
    assert!(seen.acquired > 10, "{seen:?}");
}

/// R1.3, C094. Given somebody who deletes the pidfile now and then, then none of the
/// contenders fails either.
#[test]
fn contenders_never_fail_although_the_pidfile_is_deleted_now_and_then() {
    let seen = contest_while_deleting(Duration::from_millis(1));
    assert_eq!(
        (seen.overlaps, seen.gone, seen.failed),
        (0, 0, 0),
        "{seen:?}"
    );
    assert!(seen.acquired > 10, "{seen:?}");
}

fn contest_while_deleting(pause: Duration) -> Seen {
    let scratch = Scratch::new().with_state();
    set_mode(&scratch.state(), 0o700);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let _ = fs::remove_file(scratch.pidfile());
                if !pause.is_zero() {
                    wait::pause(pause);
                }
            }
        });
        let seen = contest(&scratch, &scratch.pidfile(), true);
        done.store(true, Ordering::SeqCst);
        seen
    })
}

/// R1.6, R1.7. Given contenders that share nothing but a pidfile, which each
/// of them unlinks as it ends, then never do two of them run at once.
#[test]
fn the_pidfile_alone_excludes_although_it_is_unlinked_by_each() {
    let scratch = Scratch::new();
    let pidfile = scratch.path().join("shared.pid");
    let seen = contest(&scratch, &pidfile, false);
    assert_eq!((seen.overlaps, seen.failed), (0, 0), "{seen:?}");
    assert!(seen.acquired > 10, "{seen:?}");
}

/// R1.7. Given probes without pause from several threads, when pollers
/// start and end, then no start is refused, not even one without patience.
#[test]
fn probes_never_make_a_start_refuse() {
    let scratch = Scratch::new();
    let done = AtomicBool::new(false);
    let starts = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    holder::probe(&scratch.state(), &scratch.pidfile()).expect("it can be seen");
                }
            });
        }
        let end = Mono::now().plus(Duration::from_secs(2));
        let at_last = Mono::now().plus(Duration::from_secs(60));
        let mut starts = 0u32;
        let refused = loop {
            match acquire(&scratch) {
                Ok(lock) => lock.release().expect("it can be removed"),
                Err(refused) => break Some(refused),
            }
            starts += 1;
            if (end.passed() && starts > 5) || at_last.passed() {
                break None;
            }
        };
        done.store(true, Ordering::SeqCst);
        assert_eq!(refused, None, "after {starts} starts");
        starts
    });
    assert!(starts > 5, "{starts}");
}

/// R1.7. A shared lock that somebody keeps is not taken for a poller.
#[test]
fn a_shared_lock_that_stays_is_not_called_a_poller() {
    let scratch = Scratch::new().with_state();
    set_mode(&scratch.state(), 0o700);
    let shared = Locked::shared(open_directory(&scratch.state()).expect("it is there"));
    let shared = shared.expect("flock works").expect("nobody holds it");
    assert!(
        failed(acquire(&scratch))
            .to_string()
            .contains("other than a poller")
    );
    drop(shared);
}

/// R1.5. Given another thread that starts children all the time, when the
/// lock is released, then it is free at once: no child between fork and
/// exec keeps it busy.
#[test]
fn a_child_between_fork_and_exec_does_not_keep_a_released_lock() {
    let scratch = Scratch::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let ended = Command::new("true").status();
                assert!(ended.expect("true is there").success());
            }
        });
        let end = Mono::now().plus(Duration::from_secs(1));
        let mut refused = 0u32;
        while !end.passed() {
            refused += u32::from(acquire(&scratch).is_err());
        }
        done.store(true, Ordering::SeqCst);
        assert_eq!(refused, 0);
    });
}

/// R1.5. No child sees the lock's descriptors.
#[test]
fn no_child_inherits_the_lock() {
    let scratch = Scratch::new();
    let lock = acquire(&scratch).expect("nobody else runs");
    let out = Command::new("ls").args(["-l", "/proc/self/fd/"]).output();
    let seen = String::from_utf8(out.expect("ls is there").stdout).expect("it is text");
    assert!(seen.contains(" -> "), "{seen}");
    let state = scratch.state();
    assert!(
        !seen.contains(state.to_str().expect("our own name")),
        "{seen}"
    );
    drop(lock);
}
