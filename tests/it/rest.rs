//! A poller at rest: it sleeps from one cycle to the next, and nothing is missed by that.

use crate::world::program::{GATED, LOG, Place, Running, can_trace, descriptors};
use crate::world::slowness::Slowness;
use nix::libc::SYS_inotify_add_watch;
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

/// Fails always; of item 2 it waits for the test first.
const FAILING: &str = r#"case "$IDEMPOLL_REF" in *2) echo >> begun.log; while [ ! -e go -a -e idempoll.json ]; do sleep 0.01; done ;; esac; exit 1"#;

/// A place whose poller looks once an hour, and tries once.
fn hourly(script: &str) -> Place {
    let place = Place::new(script);
    place.configure(&hourly_config(&place, script));
    place
}

fn hourly_config(place: &Place, script: &str) -> Value {
    let mut config = place.config(script);
    config["interval_seconds"] = 3600.into();
    config["max_retries"] = 0.into();
    config
}

/// `idempoll` under `strace`, which keeps its pid; the calls go to `trace.log`. `None`, and said so, without one.
fn traced(place: &Place, test: &str, options: &[&str], args: &[&str]) -> Option<Running> {
    if !can_trace(test) {
        return None;
    }
    let mut command = place.traced(&[&["-f", "-q"], options].concat(), args);
    Some(place.spawn(command.stderr(place.log())))
}

/// Waits until no thread made a call, or came back from one, for four seconds.
fn until_silent(place: &Place) {
    let size = || {
        fs::metadata(place.path("trace.log"))
            .expect("it is there")
            .len()
    };
    let (mut before, mut since) = (size(), Instant::now());
    place.until("nothing wakes up any more", || {
        let now = size();
        if now != before {
            (before, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_secs(4)
    });
}

fn until_gave_up(place: &Place, times: usize) {
    place.until("the try failed, and was the last", || {
        place.entries("poll.gave_up").len() == times
    });
}

/// Given a poller with nothing to do for an hour, when that is watched, then no thread of it wakes up at all; when a
/// `retry` is asked for, then it is done, and it sleeps again; so it is when the directory of requests
/// was removed or replaced meanwhile, and when a request is left by hand. A `start --once` has nobody
/// keep watch (R6.7).
#[test]
fn r6_7_an_idle_poller_never_wakes_up_and_a_retry_is_done_at_once() {
    let place = hourly(FAILING);
    place.item(1, 0);
    let Some(mut once) = traced(&place, "r6_7", &[], &["start", "--once"]) else {
        return;
    };
    assert_eq!(once.ended().code(), Some(1));
    place.until("all of it is written down", || {
        let last = place.lines("trace.log").pop();
        last.is_some_and(|line| line.contains("+++"))
    });
    let calls = place.lines("trace.log").join("\n");
    assert!(calls.contains("clock_gettime") || calls.contains("flock("));
    assert!(!calls.contains("inotify_") && !calls.contains("timerfd_"));
    until_gave_up(&place, 1);

    let poller = traced(&place, "r6_7", &[], &["start"]);
    let mut poller = poller.expect("it went before");
    place.until_up(&poller);
    place.until("the first cycle is over", || {
        !place.status()["next_cycle_at"].is_null()
    });
    let requests = place.path("state/requests");
    let asks = |n: usize| {
        place.run(&["retry", "--all"]).expect(0);
        until_gave_up(&place, n);
        until_silent(&place);
    };
    until_silent(&place);
    asks(2);
    fs::remove_dir_all(&requests).expect("it is there");
    asks(3);
    fs::rename(&requests, place.path("state/elsewhere")).expect("a rename");
    fs::create_dir(&requests).expect("a directory");
    asks(4);
    fs::rename(&requests, place.path("state/further")).expect("a rename");
    asks(5);
    place.write(
        "by-hand",
        r#"{"version":1,"verb":"retry_all","at":"2026-08-05T10:00:00Z"}"#,
    );
    fs::hard_link(place.path("by-hand"), requests.join("1.json")).expect("a second name");
    until_gave_up(&place, 6);
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
}

/// Given a `retry` that is asked for at the very moment a poller goes to rest, when it has looked and does
/// not hear of it yet, or hears of it and has not looked, then it is done all the same (R6.7).
#[test]
fn r6_7_a_retry_at_the_moment_of_going_to_rest_is_not_missed() {
    let place = hourly(FAILING);
    place.item(1, 0);
    place.item(2, 0);
    let mut poller = place.start();
    until_gave_up(&place, 1);
    place.until("the other runs", || place.lines("begun.log").len() == 1);
    let Some(slowness) = Slowness::over(poller.pid(), "inotify_add_watch", "r6_7") else {
        return;
    };
    place.write("go", "");
    let call = format!("{SYS_inotify_add_watch} ");
    place.until("it is about to be told of requests", || {
        let call_now = fs::read_to_string(format!("/proc/{}/syscall", poller.pid()));
        call_now.is_ok_and(|now| now.starts_with(&call))
    });
    let gave_up = place.entries("poll.gave_up").len();
    assert_eq!(gave_up, 2);
    place.run(&["retry", "--all"]).expect(0);
    drop(slowness);
    until_gave_up(&place, 4);
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
}

/// Given a kernel that has nobody tell us of changes, or of the clock, or a state directory behind a link, which may
/// lead elsewhere unseen, when a `retry` is asked for, then it is done within moments, and why there is
/// no rest is said once to whoever wants to know everything (R6.7).
#[test]
fn r6_7_where_nobody_can_keep_watch_a_retry_is_done_all_the_same() {
    for refusal in [
        "inotify_init1:error=ENOSYS",
        "inotify_add_watch:error=ENOSPC",
        "timerfd_create:error=EMFILE",
        "",
    ] {
        let place = hourly(FAILING);
        place.item(1, 0);
        let inject = format!("inject={refusal}");
        let mut options = vec!["-e", "trace=inotify_init1,inotify_add_watch,timerfd_create"];
        if refusal.is_empty() {
            fs::create_dir(place.path("elsewhere")).expect("a directory");
            std::os::unix::fs::symlink("elsewhere", place.path("link")).expect("a link");
            let mut config = hourly_config(&place, FAILING);
            config["state_dir"] = "link/state".into();
            place.configure(&config);
            std::os::unix::fs::symlink("elsewhere/state", place.path("state")).expect("a link");
        } else {
            options.extend(["-e", &inject]);
        }
        let Some(mut poller) = traced(&place, "r6_7", &options, &["start", "-v"]) else {
            return;
        };
        for n in 1..=2 {
            until_gave_up(&place, n);
            place.run(&["retry", "--all"]).expect(0);
        }
        until_gave_up(&place, 3);
        place.run(&["stop"]).expect(0);
        assert!(poller.ended().success());
        let said = place.lines("stderr.log").join("\n");
        let times = said
            .matches("cannot sleep from one cycle to the next")
            .count();
        assert_eq!(times, 1, "{refusal}: {said}");
        assert!(place.entries("poller.warning").is_empty());
    }
}

/// Given a command that was left running by a poller that was killed, when it ends under a poller that polls once
/// an hour, then that is recorded within moments, and the poller sleeps (R5.4, R6.3).
#[test]
fn r6_3_the_end_of_an_adopted_command_is_noticed_at_once() {
    let place = hourly(GATED);
    place.item(1, 0);
    let poller = place.start();
    place.until("the command runs", || place.lines("begun.log").len() == 1);
    poller.kill();
    let mut poller = place.start();
    place.until("it is adopted and the first cycle is over", || {
        place.entries("dispatch.adopted").len() == 1 && !place.status()["next_cycle_at"].is_null()
    });
    place.write("go", "");
    place.until("it is recorded", || place.pending() == 0);
    poller.until_asleep(&place);
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    place.each_came_once(1, 0);
}

/// Given a poller whose config changes again and again, when it is at rest afterwards, then it has
/// as many threads and descriptors as before (C089).
#[test]
fn c089_changes_of_the_config_leave_no_thread_and_no_descriptor() {
    let place = Place::new(LOG);
    let mut config = place.config(LOG);
    let mut poller = place.start();
    place.at_rest();
    let held = || {
        let threads = fs::read_dir(format!("/proc/{}/task", poller.pid())).expect("it lives");
        (threads.count(), descriptors(poller.pid()).len())
    };
    // It may be in the middle of something: the fewest are those at rest.
    let fewest = || {
        let since = Instant::now();
        let mut fewest = held();
        place.until("two cycles are over", || {
            let now = held();
            fewest = (fewest.0.min(now.0), fewest.1.min(now.1));
            since.elapsed() > Duration::from_secs(2)
        });
        fewest
    };
    let before = fewest();
    for n in 1..=4 {
        config["retry_seconds"] = n.into();
        place.configure(&config);
        place.until("it is taken into use", || {
            place.entries("config.reloaded").len() == n
        });
    }
    place.until("what went with the configs before is gone", || {
        held() == before
    });
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
}
