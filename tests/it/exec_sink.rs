//! The `exec` sink with real processes.

use crate::exec_world::{
    Poller, World, be_a_poller, carry_on, deliver_within, delivery, eventually, gated, kill, never,
    state, timed,
};
use idempoll::engine::delivery::{Outcome, Receipt};
use idempoll::os::flock;
use idempoll::os::pid::Pid;
use idempoll::os::proc::Stat;
use idempoll::os::process;
use idempoll::os::wake::Wake;
use idempoll::sinks::receipt::{self, Word};
use idempoll::sinks::{Sink, child};
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::time::Duration;

/// Logs that it began, waits for the gate, logs that it is done.
const GATED_COMMAND: &str = r#"cat >/dev/null; echo begun >>"$1/log"
    while [ ! -e "$1/gate" -a -d "$1" ]; do sleep 0.01; done; echo done >>"$1/log""#;

fn failed(reason: &str) -> Outcome {
    Outcome::Failed {
        reason: reason.to_string(),
    }
}

/// Not a test by itself: other tests start this binary again and kill it.
#[test]
fn a_poller_in_a_process_of_its_own() {
    be_a_poller();
}

/// Given commands that end in every way; when each is delivered to; then the
/// way it ended decides, and the receipt says how it ended and what it printed.
#[test]
fn the_exit_decides_and_the_receipt_remembers() {
    let world = World::new();
    let not_now = Outcome::Deferred {
        reason: "the command says not now (exit status 75)".to_string(),
        not_before: None,
    };
    for (seq, script, outcome, exit, signal) in [
        (
            1,
            "echo out; echo err >&2; echo out",
            Outcome::Delivered,
            Some(0),
            None,
        ),
        (2, "exit 3", failed("exit status 3"), Some(3), None),
        (3, "exit 75", not_now, Some(75), None),
        (
            4,
            "kill -KILL $$",
            failed("killed by signal 9"),
            None,
            Some(9),
        ),
    ] {
        let d = delivery(seq, "{}");
        let sink = world.sink(script);
        assert_eq!(sink.deliver(&d, &never()), outcome, "{script}");
        assert_eq!(sink.settle(&d), Receipt::Settled(outcome), "{script}");
        let run = world.receipt(&d).expect("a receipt");
        let ended = run.ended.expect("it ended");
        assert_eq!((ended.exit, ended.signal), (exit, signal), "{script}");
        let started = run.started.expect("it started").started_at;
        assert!(started <= ended.ended_at);
        if seq == 1 {
            assert_eq!(ended.output, "out\nerr\nout\n");
        }
    }
    let d = delivery(1, "{}");
    world.sink("").forget(&d);
    assert_eq!(world.sink("").settle(&d), Receipt::Missing);
    assert!(world.receipt(&d).is_none());
}

/// C056: Given a command or a directory that is not there; when it is delivered
/// to; then that is a failed try with the reason, never "delivered".
#[test]
fn c056_what_cannot_be_started_failed() {
    let world = World::new();
    let mut sink = world.sink("");
    sink.settings.command = vec!["no-such-command".to_string()];
    let d = delivery(1, "{}");
    assert_eq!(
        sink.deliver(&d, &never()),
        failed("cannot start no-such-command: no such file or directory")
    );
    sink.settings.command = vec!["/etc".to_string()];
    let d = delivery(2, "{}");
    assert_eq!(
        sink.deliver(&d, &never()),
        failed("cannot start /etc: permission denied")
    );
    sink.settings.workdir = world.path("nowhere");
    let outcome = sink.deliver(&delivery(3, "{}"), &never());
    let path = world.path("nowhere");
    let reason = format!("cannot enter {}: no such file or directory", path.display());
    assert_eq!(outcome, failed(&reason));
}

/// C056, R7.3: Given payloads of 300 KB and 2 MB; when they are delivered; then
/// they arrive whole on stdin, and neither argv nor the environment carries them.
#[test]
fn c056_a_big_payload_travels_on_stdin_alone() {
    let world = World::new();
    for (seq, bytes) in [(1, 300_000), (2, 2 << 20)] {
        let payload = format!("{}LAST", "\u{e9}".repeat(bytes / 2));
        let sink = world.sink(
            r#"cat >"$1/got"; cat /proc/$$/environ | wc -c >"$1/env"
               cat /proc/$$/cmdline /proc/$PPID/cmdline | wc -c >"$1/argv""#,
        );
        let d = delivery(seq, &payload);
        assert_eq!(sink.deliver(&d, &never()), Outcome::Delivered);
        let got = fs::read_to_string(world.path("got")).expect("it was written");
        assert!(got == payload, "{} of {} bytes", got.len(), payload.len());
        for name in ["env", "argv"] {
            let size: usize = world.lines(name)[0].trim().parse().expect("a number");
            assert!(size < 32_000, "{name}: {size}");
        }
    }
}

/// C072: Given a command that ends without reading 1 MiB of stdin; when it is
/// delivered to; then we live and its exit code decides.
#[test]
fn c072_a_command_need_not_read_its_stdin() {
    let world = World::new();
    let payload = "x".repeat(1 << 20);
    let early = |code: i32| world.sink(&format!("exec </dev/null; exit {code}"));
    let d = delivery(1, &payload);
    assert_eq!(early(3).deliver(&d, &never()), failed("exit status 3"));
    let d = delivery(2, &payload);
    assert_eq!(early(0).deliver(&d, &never()), Outcome::Delivered);
}

/// C072: Given a command that prints more than a pipe holds before it reads;
/// when it is delivered more than a pipe holds; then neither waits for the
/// other, and the receipt keeps the beginning and the end of the output.
#[test]
fn a_talkative_command_is_fed_and_heard_at_once() {
    let world = World::new();
    let sink = world.sink(
        "echo first; head -c 1000000 /dev/zero | tr '\\0' x; wc -c; head -c 300000 /dev/zero; echo last",
    );
    let d = delivery(1, &"x".repeat(1 << 20));
    assert_eq!(sink.deliver(&d, &never()), Outcome::Delivered);
    let ended = world
        .receipt(&d)
        .and_then(|run| run.ended)
        .expect("it ended");
    assert!(ended.output.starts_with("first\nxxx"));
    assert!(ended.output.ends_with("\0last\n"));
    assert!(ended.output.len() < 70_000);
    assert!(ended.output_left_out > 1_200_000);
}

/// C073, C093: Given a command that leaves a process behind which holds its
/// output and every descriptor; when it exits 0; then it is delivered at once,
/// and what is left behind looks like no run.
#[test]
fn c073_a_process_left_behind_holds_up_nothing() {
    let world = World::new();
    let sink = world.sink(r#"cat >/dev/null; echo said; sleep 600 & echo $! >"$1/pid""#);
    let d = delivery(1, "{}");
    let (outcome, _) = deliver_within(Duration::from_secs(30), &sink, &d);
    assert_eq!(outcome, Outcome::Delivered);
    let left: u32 = world.lines("pid")[0].parse().expect("a pid");
    assert!(state(left).is_some(), "it is still there");
    assert_eq!(sink.settle(&d), Receipt::Settled(Outcome::Delivered));
    let ended = world
        .receipt(&d)
        .and_then(|run| run.ended)
        .expect("it ended");
    assert_eq!(ended.output, "said\n");

    // Nor does it when it goes on talking.
    let sink = world.sink(r#"yes & echo $! >"$1/pid""#);
    let d = delivery(2, "{}");
    let (outcome, _) = deliver_within(Duration::from_secs(30), &sink, &d);
    assert_eq!(outcome, Outcome::Delivered);
    kill("KILL", &left.to_string());
}

/// C073: Given a command that hangs and has a child which hangs; when its time
/// is up; then the whole group is ended, the try failed and the worker is free.
#[test]
fn c073_a_timeout_ends_the_whole_group() {
    let world = World::new();
    let soon = Duration::from_millis(300);
    let sink = world.sink_timing_out(
        r#"cat >/dev/null; echo said; sleep 600 & echo $! >"$1/pid"; sleep 600"#,
        soon,
    );
    let d = delivery(1, "{}");
    let (outcome, took) = timed(|| sink.deliver(&d, &never()));
    assert_eq!(outcome, failed("timed out after 0.3 s"));
    assert!(took >= soon && took < Duration::from_secs(20), "{took:?}");
    let left: u32 = world.lines("pid")[0].parse().expect("a pid");
    eventually("end of the child", || {
        state(left).is_none_or(|(s, _)| s == 'Z').then_some(())
    });
    let ended = world
        .receipt(&d)
        .and_then(|run| run.ended)
        .expect("it ended");
    assert_eq!(
        (ended.outcome, ended.output.as_str()),
        (Word::Failed, "said\n")
    );
    assert_eq!(ended.signal, Some(15));
}

/// C073: Given a command and a child that ignore being asked to end, and one
/// whose child alone does; when their time is up; then they are ended after the grace.
#[test]
fn c073_who_ignores_the_request_is_ended_after_the_grace() {
    let world = World::new();
    for (seq, script) in [
        (
            1,
            r#"trap '' TERM; sleep 600 & echo $! >"$1/pid"; wait; sleep 600"#,
        ),
        (
            2,
            r#"(trap '' TERM; exec sleep 600) & echo $! >"$1/pid"; sleep 600"#,
        ),
    ] {
        let sink = world.sink_timing_out(script, Duration::from_millis(300));
        let (outcome, took) = timed(|| sink.deliver(&delivery(seq, "{}"), &never()));
        assert_eq!(outcome, failed("timed out after 0.3 s"));
        assert!(took >= Duration::from_secs(5), "{took:?}");
        assert!(took < Duration::from_secs(20), "{took:?}");
        let left: u32 = world.lines("pid")[0].parse().expect("a pid");
        eventually("end of the child", || {
            state(left).is_none_or(|(s, _)| s == 'Z').then_some(())
        });
    }
}

/// R6.3: Given a command that hangs and a poller that is killed; when the time
/// of the command is up; then it is ended without any poller.
#[test]
fn r6_3_a_timeout_needs_no_poller() {
    let world = World::new();
    let sink = world.sink_timing_out(GATED_COMMAND, Duration::from_secs(1));
    let d = delivery(1, "{}");
    let stop = never();
    std::thread::scope(|threads| {
        let delivering = threads.spawn(|| sink.deliver(&d, &stop));
        world.running(&d);
        stop.raise();
        assert_eq!(delivering.join().expect("no panic"), Outcome::LeftRunning);
    });
    let ended = eventually("an end", || world.receipt(&d)?.ended);
    assert_eq!(ended.reason, "timed out after 1 s");
    assert_eq!(sink.wait(&d, &never()), failed("timed out after 1 s"));
}

/// C075: Given 500 deliveries of which some time out and some are killed; when
/// all have ended; then no defunct child of ours is left.
#[test]
fn c075_no_defunct_children() {
    let world = World::new();
    let quick = world.sink("exit 0");
    let killed = world.sink("kill -KILL $$");
    let slow = world.sink_timing_out("exec sleep 600", Duration::from_millis(100));
    let next = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                loop {
                    let seq = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let (sink, expected) = match seq {
                        500.. => break,
                        n if n % 20 == 0 => (&slow, failed("timed out after 0.1 s")),
                        n if n % 20 == 1 => (&killed, failed("killed by signal 9")),
                        _ => (&quick, Outcome::Delivered),
                    };
                    assert_eq!(sink.deliver(&delivery(seq, "{}"), &never()), expected);
                }
            });
        }
    });
    // Other tests have children that end at this moment, and such as a poller collects later,
    // once a second: only those that stay count.
    let us = std::process::id();
    let defunct = || -> BTreeSet<u32> {
        child::collect();
        let all = Stat::all().filter(|s| s.zombie).map(|s| s.pid.get());
        all.filter(|pid| state(*pid).is_some_and(|(_, parent)| parent == us))
            .collect()
    };
    let mut staying = defunct();
    eventually("end of defunct children", || {
        let now = defunct();
        staying.retain(|pid| now.contains(pid));
        staying.is_empty().then_some(())
    });
}

/// R2.5: Given a stop that was asked for; when a delivery comes; then nothing is begun.
#[test]
fn r2_5_nothing_begins_after_a_stop() {
    let world = World::new();
    let stop = never();
    stop.raise();
    let d = delivery(1, "{}");
    let sink = world.sink(r#"echo begun >>"$1/log""#);
    assert_eq!(sink.deliver(&d, &stop), Outcome::Released);
    assert!(!world.path("runs").exists());
    assert_eq!(sink.deliver(&d, &never()), Outcome::Delivered);
    assert_eq!(world.lines("log"), ["begun"]);
}

/// R2.5, R5.1: Given a runner that has only part of its delivery; when a stop is
/// asked for; then the delivery is released at once, and was and will not be begun.
#[test]
fn r2_5_a_delivery_half_handed_over_is_released() {
    let world = World::new();
    let mut sink = world.sink(r#"echo begun >>"$1/log""#);
    sink.program = gated();
    let d = delivery(1, &"x".repeat(2 << 20));
    let stop = never();
    std::thread::scope(|threads| {
        let delivering = threads.spawn(|| sink.deliver(&d, &stop));
        world.until_there("at-gate");
        stop.raise();
        assert_eq!(delivering.join().expect("no panic"), Outcome::Released);
    });
    assert_eq!(sink.settle(&d), Receipt::Missing);
    let runner: u32 = world.lines("at-gate")[0].parse().expect("a pid");
    world.touch("gate");
    eventually("end of the runner", || {
        state(runner).is_none_or(|(s, _)| s == 'Z').then_some(())
    });
    assert_eq!(world.lines("log").len(), 0);
    // The same try is taken up again later.
    assert_eq!(sink.deliver(&d, &never()), Outcome::Delivered);
    assert_eq!(world.lines("log"), ["begun"]);
}

/// R2.7, R6.3: Given a command that runs; when a stop is asked for; then the
/// poller is let go at once, the command goes on, and the next start adopts it.
#[test]
fn r6_3_a_stop_leaves_a_running_command_alone() {
    let world = World::new();
    let sink = world.sink(GATED_COMMAND);
    let d = delivery(1, "{}");
    let leave = |wait: &(dyn Fn(&Wake) -> Outcome + Sync)| {
        let stop = never();
        std::thread::scope(|threads| {
            let delivering = threads.spawn(|| wait(&stop));
            // The file is there before the word in it is.
            eventually("begun", || (!world.lines("log").is_empty()).then_some(()));
            let ((), took) = timed(|| {
                stop.raise();
                assert_eq!(delivering.join().expect("no panic"), Outcome::LeftRunning);
            });
            assert!(took < Duration::from_secs(10), "{took:?}");
        });
    };
    leave(&|stop| sink.deliver(&d, stop));
    assert_eq!(sink.settle(&d), Receipt::Running);
    leave(&|stop| sink.wait(&d, stop));
    // A poller that believes it never began is held to the receipt.
    leave(&|stop| sink.deliver(&d, stop));
    assert_eq!(world.lines("log"), ["begun"]);
    world.touch("gate");
    assert_eq!(sink.wait(&d, &never()), Outcome::Delivered);
    assert_eq!(world.lines("log"), ["begun", "done"]);
}

/// R6.2, R5.4: Given a poller killed after it made the receipt and before it
/// started the runner; when the next one settles; then the effect happens once.
#[test]
fn r6_2_killed_before_the_runner() {
    let world = World::new();
    let sink = world.sink(r#"echo begun >>"$1/log""#);
    let poller = world.poller("before-the-runner", "", 0);
    world.until_there("ready");
    assert_eq!(sink.settle(&delivery(1, "")), Receipt::Running);
    poller.kill();
    assert_eq!(sink.settle(&delivery(1, "")), Receipt::Missing);
    assert_eq!(sink.wait(&delivery(1, ""), &never()), Outcome::Unknown);
    assert_eq!(carry_on(&sink, delivery(1, "")), 1);
    assert_eq!(world.lines("log"), ["begun"]);
}

/// R6.2, R5.4: Given a poller killed while its runner has half of the delivery;
/// when the next one settles; then that runner begins nothing and the effect happens once.
#[test]
fn r6_2_killed_while_handing_over() {
    let world = World::new();
    let script = r#"cat >/dev/null; echo begun >>"$1/log""#;
    let sink = world.sink(script);
    let d = delivery(1, &"x".repeat(2 << 20));
    let poller = world.poller("gated", script, 2 << 20);
    world.until_there("at-gate");
    poller.kill();
    assert_eq!(
        sink.settle(&d),
        Receipt::Running,
        "its runner could still begin"
    );
    world.touch("gate");
    assert_eq!(sink.wait(&d, &never()), Outcome::Unknown);
    assert_eq!(world.lines("log").len(), 0);
    assert_eq!(carry_on(&sink, d), 1);
    assert_eq!(world.lines("log"), ["begun"]);
}

/// R6.2: Given a poller killed when its runner has the whole
/// delivery and has not begun yet; when the next one settles; then it is running.
#[test]
fn r6_2_killed_before_the_command_begins() {
    let world = World::new();
    let script = r#"cat >/dev/null; echo begun >>"$1/log""#;
    let sink = world.sink(script);
    let d = delivery(1, "{}");
    let poller = world.poller("gated", script, 2);
    world.until_there("at-gate");
    let runner = world.lines("at-gate")[0].clone();
    let pipe = fs::read_link(format!("/proc/{runner}/fd/0")).expect("its stdin");
    let mine = format!("/proc/{}/fd", poller.0.id());
    eventually("end of the handing over", || {
        let mut fds = fs::read_dir(&mine).expect("it lives").flatten();
        let open = fds.any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == pipe));
        (!open).then_some(())
    });
    poller.kill();
    assert_eq!(sink.settle(&d), Receipt::Running);
    std::thread::scope(|threads| {
        let carrying_on = threads.spawn(|| carry_on(&sink, d.clone()));
        world.touch("gate");
        assert_eq!(carrying_on.join().expect("no panic"), 0);
    });
    assert_eq!(world.lines("log"), ["begun"]);
}

/// R6.2, R6.3: Given a poller killed while its command runs; when the next one
/// settles; then it adopts the run, and the effect happens once.
#[test]
fn r6_3_killed_while_the_command_runs() {
    let world = World::new();
    let sink = world.sink(GATED_COMMAND);
    let poller = world.poller("deliver", GATED_COMMAND, 2);
    world.until_there("log");
    poller.kill();
    let d = delivery(1, "");
    assert_eq!(sink.settle(&d), Receipt::Running);
    std::thread::scope(|threads| {
        let carrying_on = threads.spawn(|| carry_on(&sink, d.clone()));
        world.touch("gate");
        assert_eq!(carrying_on.join().expect("no panic"), 0);
    });
    assert_eq!(world.lines("log"), ["begun", "done"]);
}

/// R6.2: Given a poller killed at any moment at all; when the next one carries
/// on; then the effect happens exactly once.
#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "the moment of the kill is what varies"
)]
fn r6_2_killed_at_any_moment() {
    let script = r#"cat >/dev/null; echo begun >>"$1/log""#;
    for ms in 0..40 {
        let world = World::new();
        let poller = world.poller("deliver", script, 100_000);
        std::thread::sleep(Duration::from_millis(ms));
        poller.kill();
        let sink = world.sink(script);
        carry_on(&sink, delivery(1, &"x".repeat(100_000)));
        assert_eq!(world.lines("log"), ["begun"], "killed after {ms} ms");
    }
}

/// C092: Given a poller in a terminal and its command; when Ctrl-C reaches the
/// whole foreground group; then the command goes on and its outcome is recorded.
#[test]
fn c092_ctrl_c_does_not_reach_the_command() {
    let world = World::new();
    let mut command = world.poller_command("deliver", GATED_COMMAND, 2);
    // With SIGINT at its default, which it is not where the tests run in the background.
    process::lead_a_group(&mut command);
    let mut poller = Poller(command.spawn().expect("it starts"));
    world.until_there("log");
    kill("INT", &format!("-{}", poller.0.id()));
    poller.0.wait().expect("it is ours");
    let d = delivery(1, "");
    let run = world.running(&d);
    let stat = |pid| Pid::new(pid).and_then(Stat::of);
    let runner = stat(run.accepted.runner.pid).expect("it lives");
    assert_eq!(runner.session, runner.pid.get());
    let command = run.started.expect("it started").command;
    assert_eq!(stat(command.pid).map(|s| s.group), Some(command.pid));
    world.touch("gate");
    assert_eq!(world.sink("").wait(&d, &never()), Outcome::Delivered);
    assert_eq!(world.lines("log"), ["begun", "done"]);
}

/// Given a runner that is killed while its command lives; when it is settled;
/// then it is running until the last of the command's group has ended, then missing.
#[test]
fn a_command_without_its_runner_is_running_until_it_ends() {
    let world = World::new();
    let sink = world.sink(GATED_COMMAND);
    let d = delivery(1, "{}");
    std::thread::scope(|threads| {
        let delivering = threads.spawn(|| sink.deliver(&d, &never()));
        world.until_there("log");
        let run = world.running(&d);
        kill("KILL", &run.accepted.runner.pid.to_string());
        eventually("a free receipt", || {
            let file = fs::File::open(world.receipt_path(&d)).expect("it is there");
            (!flock::is_held(file.as_fd()).expect("flock works")).then_some(())
        });
        assert_eq!(sink.settle(&d), Receipt::Running);
        assert!(!delivering.is_finished());
        world.touch("gate");
        assert_eq!(delivering.join().expect("no panic"), Outcome::Unknown);
    });
    assert_eq!(sink.settle(&d), Receipt::Missing);
    assert_eq!(world.lines("log"), ["begun", "done"]);
}

/// R6.2, R6.3: Given a runner that is asked to end; when its command ends well after that; then it
/// is delivered: a runner sees its command through, whoever signals it.
#[test]
fn r6_2_a_runner_that_is_asked_to_end_sees_its_command_through() {
    let world = World::new();
    let sink = world.sink(GATED_COMMAND);
    let d = delivery(1, "{}");
    std::thread::scope(|threads| {
        let delivering = threads.spawn(|| sink.deliver(&d, &never()));
        world.until_there("log");
        let runner = world.running(&d).accepted.runner.pid.to_string();
        for signal in ["TERM", "HUP", "INT"] {
            kill(signal, &runner);
        }
        world.touch("gate");
        assert_eq!(delivering.join().expect("no panic"), Outcome::Delivered);
    });
    assert_eq!(world.lines("log"), ["begun", "done"]);
}

/// R5.4: Given a runner and its command that are asked to end, as at a shutdown; when
/// the command does; then it did not fail: how it ended is not known, and no retry is spent.
#[test]
fn r5_4_a_shutdown_is_no_failure() {
    let world = World::new();
    let sink = world.sink(GATED_COMMAND);
    let d = delivery(1, "{}");
    std::thread::scope(|threads| {
        let delivering = threads.spawn(|| sink.deliver(&d, &never()));
        world.until_there("log");
        let run = world.running(&d);
        let command = run.started.expect("it started").command.pid;
        kill("TERM", &run.accepted.runner.pid.to_string());
        kill("TERM", &format!("-{command}"));
        assert_eq!(delivering.join().expect("no panic"), Outcome::Unknown);
    });
    // A signal to the command alone is its own affair.
    let d = delivery(2, "{}");
    let sink = world.sink("kill -TERM $$");
    assert_eq!(sink.deliver(&d, &never()), failed("killed by signal 15"));
}

/// Given a runner that is killed and a command that then hangs; when the
/// command's time is up; then whoever waits for it ends it.
#[test]
fn a_command_without_its_runner_is_held_to_its_time() {
    let world = World::new();
    let sink = world.sink_timing_out(GATED_COMMAND, Duration::from_secs(1));
    let d = delivery(1, "{}");
    std::thread::scope(|threads| {
        let delivering = threads.spawn(|| sink.deliver(&d, &never()));
        world.until_there("log");
        kill("KILL", &world.running(&d).accepted.runner.pid.to_string());
        assert_eq!(delivering.join().expect("no panic"), Outcome::Unknown);
    });
    assert_eq!(world.lines("log"), ["begun"]);
}

/// C093: Given a poller that was itself started with an open
/// descriptor; when a command runs; then it has 0, 1 and 2, and nothing else.
/// R7.4: and neither it nor its runner has the variables that held secrets.
#[test]
fn c093_r7_4_a_command_inherits_no_descriptor_and_no_secret() {
    let world = World::new();
    let script = r#"env >"$1/env"; tr '\0' '\n' </proc/$PPID/environ >"$1/runner-env"
        awk '/^Sig(Ign|Blk):/ {print $2}' /proc/self/status >"$1/signals"
        exec ls -l /proc/self/fd"#;
    let inner = world.poller_command("deliver", script, 2);
    let mut command = std::process::Command::new("sh");
    command
        .args([
            "-c",
            r#"trap '' CHLD HUP INT; exec 7</dev/null 8>>"$0"; exec "$@""#,
        ])
        .arg(world.path("leak"))
        .arg(inner.get_program())
        .args(inner.get_args())
        .envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?))))
        .env("IDEMPOLL_TEST_TOKEN", "hunter2")
        .env("NOTIFY_SOCKET", "/run/notify")
        .env("WATCHDOG_USEC", "1000000");
    assert!(command.output().expect("sh is there").status.success());
    assert_eq!(world.lines("outcome"), ["Delivered"]);
    let ended = world.receipt(&delivery(1, "")).and_then(|run| run.ended);
    let listed = ended.expect("it ended").output;
    let open: Vec<&str> = listed
        .lines()
        .filter_map(|l| l.split(" -> ").nth(1))
        .collect();
    let [stdin, stdout, stderr, listing] = open.as_slice() else {
        panic!("{listed}");
    };
    assert!(
        stdin.starts_with("pipe:") && stdout.starts_with("pipe:"),
        "{listed}"
    );
    assert_eq!(stdout, stderr);
    // The directory it is just listing is ls's own.
    assert!(listing.starts_with("/proc/"), "{listed}");
    for ignored in world.lines("signals") {
        let ignored = u64::from_str_radix(&ignored, 16).expect("a mask");
        // Signal 32 and up to two more are the C library's own.
        assert_eq!(ignored & 0x7fff_ffff, 0, "{ignored:x}");
    }
    for name in ["env", "runner-env"] {
        let env = world.lines(name);
        for line in [
            "IDEMPOLL_DELIVERY_ID=dir:inbox#7/comment/1",
            "IDEMPOLL_EVENT=comment",
            "IDEMPOLL_REF=dir:inbox#7",
            "IDEMPOLL_ATTEMPT=1",
        ] {
            assert!(env.iter().any(|l| l == line), "{name}: {line}");
        }
        for secret in ["hunter2", "NOTIFY_SOCKET", "WATCHDOG"] {
            assert!(!env.iter().any(|l| l.contains(secret)), "{name}: {secret}");
        }
    }
}

/// R6.2: Given a ledger that was put back from an older copy, or whose last save
/// failed; when it asks for a try that has a receipt; then the receipt answers.
#[test]
fn r6_2_a_try_that_has_a_receipt_is_not_run_again() {
    let world = World::new();
    let log = |exit: i32| world.sink(&format!(r#"echo begun >>"$1/log"; exit {exit}"#));
    let mut d = delivery(1, "{}");
    assert_eq!(log(3).deliver(&d, &never()), failed("exit status 3"));
    assert_eq!(log(0).deliver(&d, &never()), failed("exit status 3"));
    assert_eq!(world.lines("log").len(), 1);

    d.attempt = 2;
    assert_eq!(log(75).settle(&d), Receipt::Missing);
    let deferred = log(75).deliver(&d, &never());
    assert!(matches!(deferred, Outcome::Deferred { .. }), "{deferred:?}");
    assert_eq!(world.lines("log").len(), 2);
    assert!(
        !world.receipt_path(&delivery(1, "")).exists(),
        "the earlier try is removed"
    );

    // "Not now" was no effect, so the same try may be asked for again.
    assert_eq!(log(0).deliver(&d, &never()), Outcome::Delivered);
    assert_eq!(world.lines("log").len(), 3);
    for attempt in [1, 2, 3] {
        d.attempt = attempt;
        assert_eq!(log(0).deliver(&d, &never()), Outcome::Delivered);
    }
    assert_eq!(world.lines("log").len(), 3);

    // The same place in the numbering, another delivery: no evidence.
    d.id = "dir:inbox#7/comment/other".to_string();
    d.attempt = 2;
    assert_eq!(log(0).settle(&d), Receipt::Missing);
    assert_eq!(log(0).deliver(&d, &never()), Outcome::Delivered);
    assert_eq!(world.lines("log").len(), 4);
}

/// R3.6: Given a receipt that is empty, torn, full of zeros or garbage; when it
/// is settled; then it is missing, and the delivery runs.
#[test]
fn r3_6_a_torn_receipt_is_none() {
    let world = World::new();
    let sink = world.sink(r#"echo begun >>"$1/log""#);
    let d = delivery(1, "{}");
    assert_eq!(sink.deliver(&d, &never()), Outcome::Delivered);
    let path = world.receipt_path(&d);
    let whole = fs::read(&path).expect("a receipt");
    let ends = whole.iter().rposition(|b| *b == b'\n').expect("lines");
    assert_eq!(ends + 1, whole.len());
    let mut tears: Vec<Vec<u8>> = (0..whole.len()).map(|n| whole[..n].to_vec()).collect();
    tears.extend((0..whole.len()).step_by(7).map(|n| {
        let mut zeros = whole.clone();
        zeros[n..].fill(0);
        zeros
    }));
    tears.push(b"garbage\n".to_vec());
    tears.push(vec![b'x'; 3 << 20]);
    for torn in tears {
        fs::write(&path, &torn).expect("ours");
        let text = String::from_utf8_lossy(&torn[..torn.len().min(500)]).into_owned();
        assert_eq!(sink.settle(&d), Receipt::Missing, "{text:?}");
    }
    assert_eq!(world.lines("log").len(), 1);
    assert_eq!(sink.deliver(&d, &never()), Outcome::Delivered);
    assert_eq!(world.lines("log").len(), 2);
}

/// Given a receipt of a newer version, or something that is no file of ours;
/// when the try is asked for; then it is left as it is and nothing runs.
#[test]
fn a_receipt_that_cannot_be_read_is_not_run_over() {
    let world = World::new();
    let sink = world.sink(r#"echo begun >>"$1/log""#);
    let d = delivery(1, "{}");
    assert_eq!(sink.deliver(&d, &never()), Outcome::Delivered);
    let path = world.receipt_path(&d);
    let ours = fs::read_to_string(&path).expect("a receipt");
    let newer = ours.replace(r#""version":1"#, r#""version":2"#);
    for newer in [newer.as_str(), "{\"version\":2,\"runs\":[]}\n"] {
        fs::write(&path, newer).expect("ours");
        let deferred = sink.deliver(&d, &never());
        assert!(matches!(&deferred, Outcome::Deferred { reason, .. } if reason.contains("newer")));
        assert_eq!(fs::read_to_string(&path).expect("a receipt"), newer);
    }

    fs::remove_file(&path).expect("ours");
    std::os::unix::fs::symlink("/dev/null", &path).expect("a new link");
    let deferred = sink.deliver(&d, &never());
    assert!(matches!(deferred, Outcome::Deferred { .. }), "{deferred:?}");
    assert_eq!(world.lines("log").len(), 1);
    assert!(receipt::read(&path).is_none());
}

/// R3.5: Given a receipt that cannot be made; when a delivery comes; then
/// nothing is begun or spent, and it works once there is room.
#[test]
fn r3_5_without_a_receipt_nothing_is_begun() {
    let world = World::new();
    let sink = world.sink(r#"echo begun >>"$1/log""#);
    fs::write(world.path("runs"), "in the way").expect("ours");
    let deferred = sink.deliver(&delivery(1, "{}"), &never());
    assert!(matches!(deferred, Outcome::Deferred { .. }), "{deferred:?}");
    fs::remove_file(world.path("runs")).expect("ours");
    assert_eq!(
        sink.deliver(&delivery(1, "{}"), &never()),
        Outcome::Delivered
    );
    assert_eq!(world.lines("log"), ["begun"]);
}

/// R3.5: Given a disk with room for a receipt and not for the output, and one
/// with no room at all; when a delivery comes; then the output is left out of
/// the one, and with the other nothing is begun.
#[test]
fn r3_5_a_full_disk_loses_the_output_before_the_outcome() {
    for (fill, begun, outcome, receipt) in [
        ("true", 1, "Delivered", vec!["0 60006"]),
        (
            "head -c 16384 /dev/zero >runs/filler",
            0,
            "Deferred",
            vec![],
        ),
    ] {
        let world = World::new();
        fs::create_dir(world.path("runs")).expect("a new directory");
        let script = r#"echo begun >>"$1/log"; echo begun; head -c 60000 /dev/zero"#;
        let inner = world.poller_command("deliver", script, 2);
        let mut command = std::process::Command::new("unshare");
        command
            .args(["-m", "sh", "-c"])
            .arg(r#"mount -t tmpfs -o size=16k none runs || exit 97; eval "$0"; exec "$@""#)
            .arg(fill)
            .arg(inner.get_program())
            .args(inner.get_args())
            .envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?))))
            .current_dir(&world.dir);
        if !command.output().is_ok_and(|o| o.status.success()) {
            // Mounting takes root; who has not got it skips this.
            assert!(world.lines("outcome").is_empty());
            return;
        }
        assert!(world.lines("outcome")[0].starts_with(outcome));
        assert_eq!(world.lines("receipt"), receipt);
        assert_eq!(world.lines("log").len(), begun);
    }
}

/// Given a runner that cannot be started, or ends before it begins; when a
/// delivery comes; then nothing is spent.
#[test]
fn a_runner_that_does_not_run_costs_nothing() {
    let world = World::new();
    let mut sink = world.sink("");
    for program in ["/nowhere/idempoll", "/bin/true", "/bin/false"] {
        sink.program = program.into();
        let d = delivery(1, &"x".repeat(1 << 20));
        let deferred = sink.deliver(&d, &never());
        assert!(
            matches!(deferred, Outcome::Deferred { .. }),
            "{program}: {deferred:?}"
        );
        assert!(!world.receipt_path(&d).exists());
    }
}
