//! Moments that hardly ever come, and errors that hardly any kernel gives: brought about by `strace`.

use crate::world::program::{Answer, Place, Running, can_trace, exists};
use std::process::Command;

/// Long enough for a test to come in between.
const PAUSE: &str = "delay_enter=5000000";

/// `EIO` in the words of glibc and of musl.
const IO_ERROR: [&str; 2] = ["input/output error", "I/O error"];

/// The program where one kind of call is made to do something else: those that have to do with `path`, if
/// there is one.
fn told(place: &Place, call: &str, inject: &str, path: Option<&str>, args: &[&str]) -> Command {
    let trace = format!("trace={call}");
    let inject = format!("inject={call}:{inject}");
    let mut options = vec![
        "-f",
        "-qq",
        "-e",
        &trace,
        "-e",
        &inject,
        "-e",
        "signal=none",
    ];
    let path = path.map(|path| place.path(path).display().to_string());
    options.extend(path.iter().flat_map(|path| ["-P", path]));
    place.traced(&options, args)
}

fn told_to_end(place: &Place, call: &str, inject: &str, args: &[&str]) -> Answer {
    let mut command = told(place, call, inject, None, args);
    Answer::of(command.output().expect("strace starts"))
}

fn begin(place: &Place, mut command: Command) -> Running {
    place.spawn(command.stderr(place.log()))
}

/// Waits until `strace` holds back the call in question: it has written down its beginning.
fn until_held_back(place: &Place, call: &str) {
    place.until("it is held back", || {
        place.lines("trace.log").iter().any(|l| l.contains(call))
    });
}

/// Given two that make one directory, when the other one is first, between the look and the call, then the start goes
/// on (R1.3).
#[test]
fn r1_3_a_directory_that_another_start_makes_just_now_is_used() {
    if !can_trace("r1_3") {
        return;
    }
    let place = Place::new("cat > /dev/null");
    place.item(1, 0);
    let command = told(&place, "mkdir", PAUSE, Some("state"), &["start", "--once"]);
    let mut poller = begin(&place, command);
    until_held_back(&place, "mkdir(");
    std::fs::create_dir(place.state()).expect("we are first");
    let ended = poller.ended();
    assert!(ended.success(), "{}", place.story());
    assert!(place.lines("trace.log").join("\n").contains("EEXIST"));
}

/// Given a poller that ends, when somebody removes its pidfile between its look and its call, then it ended well (R1.3).
#[test]
fn r1_3_a_pidfile_that_another_removes_just_now_is_removed() {
    if !can_trace("r1_3") {
        return;
    }
    let place = Place::new("cat > /dev/null");
    let command = told(&place, "unlink", PAUSE, Some("state/poll.pid"), &["start"]);
    let mut poller = begin(&place, command);
    place.until_up(&poller);
    place.at_rest();
    poller.signal("TERM");
    until_held_back(&place, "unlink(");
    std::fs::remove_file(place.path("state/poll.pid")).expect("it is there still");
    assert!(poller.ended().success(), "{}", place.story());
    let trace = place.lines("trace.log").join("\n");
    assert!(trace.contains("ENOENT"), "{trace}");
    assert_eq!(
        place
            .lines("stderr.log")
            .join("\n")
            .matches("cannot")
            .count(),
        0
    );
}

/// Given a lock that fails for a reason nobody knows, when one looks at it, then that is said, and nothing is concluded
/// (R1.6, R1.8).
#[test]
fn r1_6_a_lock_that_fails_for_an_unknown_reason_is_an_error() {
    if !can_trace("r1_6") {
        return;
    }
    let place = Place::new("cat > /dev/null");
    place.start().kill();
    let unlocked = "error=EIO";
    for args in [&["status"][..], &["stop"], &["start", "--once"]] {
        let said = told_to_end(&place, "flock", unlocked, args)
            .expect(1)
            .stderr;
        assert!(
            said.contains("cannot lock") && IO_ERROR.iter().any(|e| said.contains(e)),
            "{args:?}: {said}"
        );
    }
    // The first look, which finds that nobody is there, succeeds; the one before the removal does not.
    let said = told_to_end(&place, "flock", "error=EIO:when=3+", &["stop"])
        .expect(1)
        .stderr;
    assert!(said.contains("is stale but stays: cannot lock"), "{said}");
    assert!(exists(&place.path("state/poll.pid")));
    let said = place.run(&["stop"]).expect(1).stderr;
    assert!(said.contains("was stale and is removed"), "{said}");
}

/// Given a poller that ends between the proof and the signal, when `stop` has found nobody to signal, then the poller is
/// gone and all is well; when the signal fails for another reason, then that is said (R2.1, R2.2).
#[test]
fn r2_2_one_that_ends_before_the_signal_is_gone() {
    if !can_trace("r2_2") {
        return;
    }
    let place = Place::new("cat > /dev/null");
    let mut poller = place.start();
    let said = told_to_end(&place, "pidfd_send_signal", "error=EINVAL", &["stop"]);
    let said = said.expect(1).stderr;
    let wanted = format!("cannot stop pid {}: ", poller.pid());
    assert!(said.contains(&wanted), "{said}");
    let gone = "error=ESRCH:delay_exit=5000000";
    std::fs::remove_file(place.path("trace.log")).expect("the last one's");
    let command = told(&place, "pidfd_send_signal", gone, None, &["stop"]);
    let mut stop = begin(&place, command);
    until_held_back(&place, "ESRCH");
    poller.signal("TERM");
    assert!(poller.ended().success());
    assert!(stop.ended().success(), "{}", place.story());
}

/// Given a disk of which the poller is told that it took only part of a line of the event log, when it goes on, then that is
/// said once, and all is delivered.
#[test]
fn a_line_of_the_log_that_is_cut_off_is_said() {
    if !can_trace("log") {
        return;
    }
    let place = Place::new("cat > /dev/null");
    place.item(1, 0);
    let log = "state/log/events.jsonl";
    let command = told(
        &place,
        "write",
        "retval=10:when=2",
        Some(log),
        &["start", "--once"],
    );
    let mut poller = begin(&place, command);
    assert!(poller.ended().success(), "{}", place.story());
    let said = place.lines("stderr.log").join("\n");
    assert_eq!(said.matches("cannot write").count(), 1, "{said}");
    assert!(said.contains("events.jsonl: no storage space"), "{said}");
    assert!(!place.entries("dispatch.succeeded").is_empty());
}
