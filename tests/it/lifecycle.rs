//! One poller at a time, and how it ends: the real program, its lock and its signals.

use crate::world::forge::{Forge, Reply};
use crate::world::program::{
    Answer, GATED, LOG, Place, Running, Stranger, binary, children, descriptors, exists, lives,
    scaled,
};
use crate::world::slowness::Slowness;
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A place whose poller looks once and then rests, so that nothing changes by itself.
fn resting(script: &str) -> Place {
    let place = Place::new(script);
    let mut config = place.config(script);
    config["interval_seconds"] = 3600.into();
    place.configure(&config);
    place
}

/// Has a poller that rests hang: news come, and to record them takes a minute. Until that
/// is dropped.
pub fn hang(place: &Place, poller: u32, test: &str) -> Option<Slowness> {
    let slowness = Slowness::over(poller, "fsync", test)?;
    for number in 1..=400 {
        place.item(number, 0);
    }
    // Stopped in one call, not only at each for an instant.
    let mut since = Instant::now();
    place.until("it hangs", || {
        let stat = fs::read_to_string(format!("/proc/{poller}/stat")).unwrap_or_default();
        if !stat.contains(") t ") {
            since = Instant::now();
        }
        since.elapsed() > Duration::from_millis(500)
    });
    Some(slowness)
}

/// Waits until a process has ended but for a thread the kernel cannot end yet.
pub fn only_what_hangs_is_left(place: &Place, pid: u32) {
    let since = Instant::now();
    place.until("only what hangs is left", || {
        fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count) <= 1
    });
    assert!(
        since.elapsed() < Duration::from_secs(20),
        "{:?}",
        since.elapsed()
    );
}

/// Long enough after a first signal for another one to be a second.
pub fn a_moment_later() {
    std::thread::sleep(Duration::from_millis(300));
}

/// Whether a file is one that a writer had not finished.
fn is_temp(path: &std::path::Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(".tmp.")
}

fn delivered(place: &Place, count: usize) {
    place.until("all is delivered and recorded", || {
        place.lines("ids.log").len() >= count && place.pending() == 0
    });
}

fn pid_in(place: &Place, pidfile: &str) -> String {
    fs::read_to_string(place.path(pidfile)).unwrap_or_default()
}

/// A process of the test's own that is ended with it.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Given a running poller, when another start, or a `--once`, is tried, also
/// with another pidfile, then it names the holder, the pidfile and the remedy, leaves
/// `poller.blocked`, touches nothing of the ledger, and exits 1 (R1.1, R1.2, R1.3, C105).
#[test]
fn r1_1_a_second_start_is_refused_and_touches_nothing() {
    let place = resting(LOG);
    place.item(1, 1);
    let poller = place.start();
    delivered(&place, 2);
    // All is recorded a moment before the last marker goes.
    place.at_rest();
    // News that the intruder would find.
    place.item(2, 0);
    let pid = poller.pid().to_string();
    let pidfile = place.path("state/poll.pid").display().to_string();
    let before = place.snapshot();
    for (n, args) in [
        &["start"][..],
        &["start", "--once"],
        &["start", "--pidfile", "other.pid"],
        &["start", "--once", "--pidfile", "other.pid"],
    ]
    .into_iter()
    .enumerate()
    {
        let said = place.run(args).expect(1);
        assert_eq!(said.stdout, "", "{args:?}");
        for part in [pid.as_str(), pidfile.as_str(), "idempoll stop"] {
            assert!(
                said.stderr.contains(part),
                "{args:?}: {part}: {}",
                said.stderr
            );
        }
        let blocked = place.entries("poller.blocked");
        assert_eq!(blocked.len(), n + 1, "{args:?}");
        assert_eq!(blocked[n]["holder"], poller.pid());
        assert!(!exists(&place.path("other.pid")));
    }
    assert_eq!(place.snapshot(), before);
    assert_eq!(place.lines("ids.log").len(), 2);
    assert_eq!(place.entries("poller.started").len(), 1);
    assert_eq!(place.status()["pid"], poller.pid());
}

/// Given two `--once` at the same moment, when the first is at work, then the
/// second refuses and each delivery is made once (R1.2, C105).
#[test]
fn r1_2_of_two_runs_at_once_one_refuses() {
    let place = Place::new(GATED);
    place.item(1, 1);
    let once = || {
        let mut command = place.command(&["start", "--once"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the program starts")
    };
    let mut runs = [once(), once()];
    let mut first = None;
    place.until("one has refused", || {
        first = runs
            .iter_mut()
            .position(|run| run.try_wait().is_ok_and(|ended| ended.is_some()));
        first.is_some()
    });
    place.write("go", "");
    let [a, b] = runs.map(|run| Answer::of(run.wait_with_output().expect("it ends")));
    let (refused, worked) = if first == Some(0) { (a, b) } else { (b, a) };
    let refused = refused.expect(1);
    assert!(
        refused.stderr.contains("another poller"),
        "{}",
        refused.stderr
    );
    worked.expect(0);
    assert_eq!(place.lines("ids.log").len(), 2, "{}", place.story());
}

/// Given a running poller, when another one is started with a state directory of its
/// own, then both run; with the first one's pidfile, then it is refused (R1.3, C105).
#[test]
fn r1_3_two_state_directories_do_not_disturb_each_other() {
    let place = resting(LOG);
    place.item(1, 0);
    let first = place.start();
    delivered(&place, 1);
    place
        .run(&["start", "--once", "--state-dir", "second"])
        .expect(0);
    assert_eq!(place.lines("ids.log").len(), 2);
    let said = place
        .run(&[
            "start",
            "--once",
            "--state-dir",
            "third",
            "--pidfile",
            "state/poll.pid",
        ])
        .expect(1);
    assert!(said.stderr.contains("poll.pid"), "{}", said.stderr);
    assert_eq!(place.lines("ids.log").len(), 2);
    // Another state directory's stop does not end this one, nor take its pidfile away.
    place.run(&["stop", "--state-dir", "second"]).expect(1);
    place
        .run(&[
            "stop",
            "--state-dir",
            "second",
            "--pidfile",
            "state/poll.pid",
        ])
        .expect(1);
    assert_eq!(place.status()["pid"], first.pid());
    assert_eq!(
        pid_in(&place, "state/poll.pid"),
        format!("{}\n", first.pid())
    );
}

/// Given a running poller whose pidfile is deleted, replaced or overwritten, when the next
/// cycle begins, then the file is right again, and no second poller got in meanwhile; and
/// `stop` works at any moment (R1.3, R2.1).
#[test]
fn r1_3_a_pidfile_that_was_taken_away_is_put_right() {
    let place = Place::new(LOG);
    let mut stranger = Stranger::new();
    let mut poller = place.start();
    let right = format!("{}\n", poller.pid());
    let pidfile = place.path("state/poll.pid");
    assert_eq!(pid_in(&place, "state/poll.pid"), right);
    for (n, how) in ["deleted", "replaced", "overwritten"]
        .into_iter()
        .enumerate()
    {
        let warnings = place.entries("poller.warning").len();
        match how {
            "deleted" => fs::remove_file(&pidfile).expect("it is there"),
            "replaced" => {
                place.write("state/new", &format!("{}\n", stranger.pid()));
                fs::rename(place.path("state/new"), &pidfile).expect("a rename");
            }
            _ => place.write("state/poll.pid", &format!("{}\n", stranger.pid())),
        }
        place.run(&["start", "--once"]).expect(1);
        let since = Instant::now();
        place.until("it is put right", || {
            pid_in(&place, "state/poll.pid") == right
        });
        assert!(since.elapsed() < Duration::from_secs(20), "{how}");
        place.until("that is said", || {
            place.entries("poller.warning").len() > warnings
        });
        assert_eq!(place.entries("poller.blocked").len(), n + 1);
    }
    fs::remove_file(&pidfile).expect("it is there");
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    assert!(!exists(&pidfile));
    // A pidfile that names a stranger, under a poller that will not look for an hour.
    let place = resting(LOG);
    let mut poller = place.start();
    place.at_rest();
    place.write("state/poll.pid", &format!("{}\n", stranger.pid()));
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    assert!(stranger.lives());
}

/// Given a poller that was killed, when it is started again, then nothing needs
/// to be cleaned up: `status` says what was left, and the start works (R1.4, R1.5).
#[test]
fn r1_4_a_start_after_a_kill_needs_no_cleaning_up() {
    let place = Place::new(LOG);
    place.item(1, 0);
    for _ in 0..3 {
        let poller = place.start();
        let pid = poller.pid();
        poller.kill();
        let said = place.run(&["status"]).expect(1);
        assert!(
            said.stdout.contains("not running") && said.stdout.contains(&format!("pid {pid}")),
            "{}",
            said.stdout
        );
        assert_eq!(place.status()["running"], false);
    }
    let mut poller = place.start();
    delivered(&place, 1);
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    assert_eq!(place.lines("ids.log").len(), 1, "{}", place.story());
}

/// Given a pidfile that names a living stranger, or nothing that can be a pid, when
/// `status`, `stop` and `start` are called, then it is stale, nobody is
/// signalled, it is removed, and the start works (R1.4, R2.1, C098).
#[test]
fn r2_1_a_stale_pid_is_never_signalled() {
    let place = Place::new(LOG);
    let mut stranger = Stranger::new();
    place.once().expect(0);
    let run = fs::read_to_string(place.path("state/run.json")).expect("the last run's");
    let mut forged: Value = serde_json::from_str(&run).expect("JSON");
    let stat = fs::read_to_string(format!("/proc/{}/stat", stranger.pid())).expect("it lives");
    forged["pid"] = stranger.pid().into();
    forged["start_time"] = stat[stat.rfind(')').expect("its name") + 2..]
        .split(' ')
        .nth(19)
        .and_then(|t| t.parse::<u64>().ok())
        .into();
    forged["stopped_at"] = Value::Null;
    forged["stop_asked_at"] = Value::Null;
    let own = stranger.pid().to_string();
    let garbage = ["0", "-1", "1", "", "abc", "99999999999999999999", "12 34"];
    for run_json in [run, forged.to_string()] {
        for claim in [own.as_str()].into_iter().chain(garbage) {
            place.write("state/run.json", &run_json);
            place.write("state/poll.pid", claim);
            let said = place.run(&["status"]).expect(1);
            assert!(said.stdout.contains("not running"), "{}", said.stdout);
            let said = place.run(&["stop"]).expect(1);
            assert!(
                said.stderr.contains("stale") && said.stderr.contains("poll.pid"),
                "{claim}: {}",
                said.stderr
            );
            assert!(!exists(&place.path("state/poll.pid")), "{claim}");
            assert_eq!(place.run(&["stop"]).code, Some(1));
            assert_eq!(place.run(&["status"]).code, Some(3));
        }
    }
    place.write("state/poll.pid", &own);
    let mut poller = place.start();
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    assert!(stranger.lives());
}

/// Given a running poller and a `run.json` that names somebody else, when
/// `stop` is called, then it cannot prove who holds the lock and signals nobody (R2.1).
#[test]
fn r2_1_a_holder_that_cannot_be_proved_is_not_signalled() {
    let place = resting(LOG);
    let mut stranger = Stranger::new();
    let mut poller = place.start();
    place.at_rest();
    let right = fs::read_to_string(place.path("state/run.json")).expect("it runs");
    let mut forged: Value = serde_json::from_str(&right).expect("JSON");
    forged["pid"] = stranger.pid().into();
    place.write("state/run.json", &forged.to_string());
    let said = place.run(&["stop", "--timeout", "1"]).expect(1);
    assert!(
        said.stderr.contains("nothing was signalled"),
        "{}",
        said.stderr
    );
    assert!(stranger.lives());
    assert!(lives(poller.pid()));
    place.write("state/run.json", &right);
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
}

/// Given three contenders that start over and over while somebody deletes the
/// pidfile, when they are done, then no two ever ran at once: in the event log
/// each start is followed by the same one's stop (R1.3, R1.6, C094).
#[test]
fn r1_6_no_two_pollers_ever_run_at_once() {
    let place = Place::new(LOG);
    place.item(1, 0);
    let over = AtomicBool::new(false);
    let rounds = scaled(25);
    let worked = std::thread::scope(|scope| {
        let contend = || {
            let mut worked = 0;
            for _ in 0..rounds {
                match place.once().code {
                    Some(0) => worked += 1,
                    Some(1) => {}
                    code => panic!("{code:?}"),
                }
            }
            worked
        };
        let contenders = [(); 3].map(|()| scope.spawn(contend));
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let _ = fs::remove_file(place.path("state/poll.pid"));
                std::thread::sleep(Duration::from_micros(700));
            }
        });
        let worked = contenders.map(|c| c.join().expect("no panic"));
        over.store(true, Ordering::SeqCst);
        worked.iter().sum::<usize>()
    });
    let log = place.lines("state/log/events.jsonl");
    let turns: Vec<(String, u64)> = log
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|e| e["type"] == "poller.started" || e["type"] == "poller.stopped")
        .filter_map(|e| Some((e["type"].as_str()?.to_string(), e["pid"].as_u64()?)))
        .collect();
    assert_eq!(turns.len(), 2 * worked);
    for turn in turns.chunks(2) {
        assert_eq!(
            (turn[0].0.as_str(), turn[1].0.as_str(), turn[0].1),
            ("poller.started", "poller.stopped", turn[1].1)
        );
    }
    println!("{worked} of {} runs got the lock", 3 * rounds);
    assert!(worked > 0);
    assert_eq!(place.lines("ids.log").len(), 1);
}

/// Given a hundred probes under way, when a poller is started, then none of them
/// makes it refuse, and a `stop` among them changes nothing (R1.7).
#[test]
fn r1_7_probes_never_make_a_start_refuse() {
    let place = Place::new(LOG);
    place.once().expect(0);
    for round in 0..scaled(3) {
        let probes: Vec<Child> = (0..100)
            .map(|n| {
                let mut probe = place.command(if n % 10 == 9 { &["check"] } else { &["status"] });
                probe.stdout(Stdio::null()).stderr(Stdio::null());
                probe.spawn().expect("the program starts")
            })
            .collect();
        // As a crash leaves it, so that the probes look at the lock of both files.
        place.write("state/poll.pid", "");
        for _ in 0..5 {
            let said = place.once();
            assert_eq!(said.code, Some(0), "round {round}: {}", said.stderr);
        }
        for mut probe in probes {
            assert!(
                probe
                    .wait()
                    .expect("it ends")
                    .code()
                    .is_some_and(|c| c != 2)
            );
        }
    }
}

/// Given a poller, when `stop` returns, then it is true: the process has ended, lock
/// and pidfile are gone, and a start works at once (R2.2, R2.4, C103).
#[test]
fn r2_2_stop_is_true_when_it_returns() {
    let place = Place::new(LOG);
    for n in 1..=5 {
        place.item(n, 0);
        let mut poller = place.start();
        let said = place.run(&["stop"]).expect(0);
        assert!(!lives(poller.pid()), "round {n}");
        assert!(said.stdout.contains(&poller.pid().to_string()));
        assert!(!exists(&place.path("state/poll.pid")));
        place.run(&["start", "--once"]).expect(0);
        assert!(poller.ended().success());
    }
    // Nothing ran: a script can tell, and can say that it does not mind (C104).
    let said = place.run(&["stop"]).expect(1);
    assert!(
        said.stderr.contains("no poller is running"),
        "{}",
        said.stderr
    );
    place.run(&["stop", "--if-running"]).expect(0);
    let said = place.run(&["stop", "--state-dir", "nowhere"]).expect(1);
    assert!(said.stderr.contains("nowhere"), "{}", said.stderr);
    assert!(!exists(&place.path("nowhere")));
    assert_eq!(place.lines("ids.log").len(), 5);
}

/// Given a poller that does not end, when the timeout is over, then `stop` says that it
/// still runs and exits 1; asked again it sends no second signal, and once
/// the poller can, it ends gracefully (R2.3, C104).
#[test]
fn r2_3_a_poller_that_does_not_end_is_reported() {
    let place = resting(LOG);
    let mut poller = place.start();
    poller.signal("STOP");
    for _ in 0..2 {
        let asked = Instant::now();
        let said = place.run(&["stop", "--timeout", "1"]).expect(1);
        assert!(asked.elapsed() < Duration::from_secs(20));
        for part in [&poller.pid().to_string(), "within 1 s", "still runs"] {
            assert!(said.stderr.contains(part), "{part}: {}", said.stderr);
        }
        assert_eq!(place.run(&["status"]).code, Some(0));
    }
    poller.signal("CONT");
    assert_eq!(poller.ended().code(), Some(0), "{}", place.story());
    assert_eq!(place.entries("poller.stopped").len(), 1);
    assert_eq!(place.run(&["status"]).code, Some(3));
}

/// Given a poller that cannot answer at once (its disk hangs), when twenty `stop`s are called within seconds, then it gets one signal, ends
/// gracefully once it can, and each `stop` says so (R2.2, R2.6).
#[test]
fn r2_6_twenty_stops_at_once_are_one_stop() {
    let place = Place::new(LOG);
    let mut poller = place.start();
    let Some(slowness) = hang(&place, poller.pid(), "r2_6") else {
        return;
    };
    let stops: Vec<Child> = (0..20)
        .map(|n| {
            if n == 10 {
                // A signal of one of these would be a second one by itself.
                a_moment_later();
            }
            let mut stop = place.command(&["stop"]);
            stop.stdout(Stdio::piped()).stderr(Stdio::piped());
            stop.spawn().expect("the program starts")
        })
        .collect();
    // Time enough for each to signal, if it would: the second signal's grace is a second.
    let since = Instant::now();
    place.until("all wait, or it has ended", || {
        since.elapsed() > Duration::from_millis(1500) || !lives(poller.pid())
    });
    drop(slowness);
    assert_eq!(poller.ended().code(), Some(0), "{}", place.story());
    for stop in stops {
        let said = Answer::of(stop.wait_with_output().expect("it ends"));
        // One that the machine let wait may have found nobody any more.
        let late = said.code == Some(1) && said.stderr.contains("no poller is running");
        assert!(
            said.code == Some(0) || late,
            "{:?}: {}",
            said.code,
            said.stderr
        );
    }
    assert_eq!(place.entries("poller.stopped").len(), 1);
}

/// Given many deliveries waiting and some running, when a stop is asked for, then
/// nothing begins any more: each delivery queued was begun before or
/// is given back, and no item is taken up (R2.5, R5.1, R5.2).
#[test]
fn r2_5_nothing_begins_after_a_stop() {
    let place = Place::new(
        r#"echo "$IDEMPOLL_DELIVERY_ID" >> begun.log; sleep 0.0$((IDEMPOLL_ATTEMPT + 2)); echo "$IDEMPOLL_DELIVERY_ID" >> ids.log"#,
    );
    for number in 1..=300 {
        place.item(number, 0);
    }
    let mut poller = place.start_unseen();
    place.until("it is at work", || place.lines("begun.log").len() > 20);
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    let run = fs::read_to_string(place.path("state/run.json")).expect("it ran");
    let run: Value = serde_json::from_str(&run).expect("JSON");
    let asked = run["stop_asked_at"]
        .as_str()
        .expect("it was asked")
        .to_string();
    let ids = |kind: &str| -> Vec<String> {
        let entries = place.entries(kind);
        let ids = entries.iter().filter_map(|e| e["delivery_id"].as_str());
        ids.map(str::to_string).collect()
    };
    for entry in place.entries("dispatch.queued") {
        assert!(
            entry["ts"].as_str() <= Some(&asked),
            "{entry} after {asked}"
        );
    }
    let (mut queued, abandoned) = (ids("dispatch.queued"), ids("dispatch.abandoned"));
    assert_eq!(abandoned, ids("poll.attempts_released"));
    // One whose record was just saved is given back without ever having been queued.
    queued.retain(|id| !abandoned.contains(id));
    // What was running may still be about to say that it began.
    place.until("those left running have ended", || {
        place.lines("begun.log").len() == place.lines("ids.log").len()
            && place.lines("ids.log").len() == queued.len()
    });
    let begun = place.lines("begun.log");
    assert!(begun.len() < 300, "the stop came too late to see anything");
    assert!(abandoned.iter().all(|id| !begun.contains(id)));
    place.once().expect(0);
    assert_eq!(place.lines("ids.log").len(), 300, "{}", place.story());
}

/// Given a tracker that never finishes its answer, when a stop is asked for,
/// then the request is left behind and the stop is quick (R2.5, C085).
#[test]
fn r2_5_a_request_under_way_does_not_delay_a_stop() {
    let forge = Forge::start(|_| Reply::json("[]").dribble_all(Duration::from_secs(5)));
    let place = Place::new(LOG);
    let mut config = place.config(LOG);
    config["sources"] = json!([{ "name": "forge", "provider": "github", "repos": ["octo/widgets"],
        "base_url": forge.url(), "sinks": ["log"] }]);
    place.configure(&config);
    let mut poller = place.start();
    let mut asked = 0;
    place.until("it asks", || {
        asked += forge.asked().len();
        asked > 0
    });
    let since = Instant::now();
    place.run(&["stop"]).expect(0);
    // What it would wait for otherwise takes a minute, or `drain_seconds`, which are ten.
    assert!(
        since.elapsed() < Duration::from_secs(8),
        "{:?}",
        since.elapsed()
    );
    assert!(poller.ended().success());
    assert_eq!(place.entries("poll.cycle")[0]["interrupted"], true);
}

/// Given a poller with a command running, when it gets any of the three signals,
/// then it ends gracefully with exit 0 (R2.6, R2.7, C088, C090).
#[test]
fn r2_6_each_of_the_three_signals_is_a_graceful_stop() {
    for signal in ["TERM", "INT", "HUP"] {
        let place = Place::new(GATED);
        place.item(1, 0);
        let mut poller = place.start();
        place.until("the command runs", || place.lines("begun.log").len() == 1);
        poller.signal(signal);
        assert_eq!(poller.ended().code(), Some(0), "{signal}");
        assert!(!exists(&place.path("state/poll.pid")));
        let stopped = place.entries("poller.stopped");
        assert_eq!(stopped.len(), 1, "{signal}");
        assert_eq!(stopped[0]["left_running"], 1);
        place.write("go", "");
        place.once().expect(0);
        assert_eq!(
            (place.lines("begun.log").len(), place.lines("ids.log").len()),
            (1, 1),
            "{signal}: {}",
            place.story()
        );
    }
}

/// Given a poller that hangs (its disk does), when it is signalled twice, then all of it that can end does so at once, with 130, its records are whole, and the
/// next start makes each delivery exactly once (R2.6, C089).
#[test]
fn r2_6_a_second_signal_ends_it_at_once() {
    let place = Place::new(LOG);
    let mut poller = place.start();
    let Some(slowness) = hang(&place, poller.pid(), "r2_6") else {
        return;
    };
    poller.signal("TERM");
    assert_eq!(place.run(&["status"]).code, Some(0));
    a_moment_later();
    poller.signal("INT");
    only_what_hangs_is_left(&place, poller.pid());
    drop(slowness);
    assert_eq!(poller.ended().code(), Some(130));
    for (path, content) in place.snapshot() {
        if path.starts_with(place.path("state/items")) && !is_temp(&path) {
            let whole: Result<Value, _> = serde_json::from_slice(&content);
            assert!(whole.is_ok(), "{}", path.display());
        }
    }
    place.once().expect(0);
    let mut ids = place.lines("ids.log");
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), place.lines("ids.log").len()), (400, 400));
    assert!(place.entries("record.set_aside").is_empty());
}

/// Given a poller that cannot end at once, when several signals come at the same moment (as from
/// `timeout`, or a terminal that is closed), then they are one request and it ends
/// gracefully; so do two `stop`s that do not wait (R2.6).
#[test]
fn r2_6_signals_at_the_same_moment_are_one_request() {
    let place = Place::new(LOG);
    let mut poller = place.start();
    let Some(slowness) = hang(&place, poller.pid(), "r2_6") else {
        return;
    };
    for signal in ["TERM", "HUP", "INT"] {
        poller.signal(signal);
    }
    // It would have ended by the second signal within a second.
    std::thread::sleep(Duration::from_millis(1500));
    drop(slowness);
    assert_eq!(poller.ended().code(), Some(0), "{}", place.story());
}

/// Given a poller whose state directory is moved away, when another one is started in its
/// place, then the first ends within moments, whatever its interval, and writes
/// nothing into what is the second one's; that can be stopped (R1.3).
#[test]
fn r1_3_a_state_directory_that_was_moved_is_let_go_within_a_second() {
    let place = resting(LOG);
    let mut first = place.start();
    place.at_rest();
    fs::rename(place.state(), place.path("moved")).expect("it can be moved");
    let mut second = place.start();
    assert_eq!(first.ended().code(), Some(1));
    assert_eq!(place.status()["pid"], second.pid());
    place.run(&["stop"]).expect(0);
    assert!(second.ended().success());
}

/// Given a poller that sleeps, when a directory is moved that its state directory is in, then it
/// ends within moments, whatever its interval (R1.3).
#[test]
fn r1_3_a_state_directory_that_was_moved_with_what_it_is_in_is_let_go() {
    let place = Place::new(LOG);
    let mut config = place.config(LOG);
    config["interval_seconds"] = 3600.into();
    config["state_dir"] = "above/it/state".into();
    place.configure(&config);
    let mut poller = place.start();
    place.until("the first cycle is over", || {
        !place.status()["next_cycle_at"].is_null()
    });
    poller.until_asleep(&place);
    fs::rename(place.path("above"), place.path("moved")).expect("it can be moved");
    assert_eq!(poller.ended().code(), Some(1));
    assert!(!exists(&place.path("above")));
}

/// Given a poller started under `nohup`, when the terminal hangs up, then it goes
/// on polling; a `SIGTERM` still ends it (R2.6, C090).
#[test]
fn r2_6_a_hang_up_ignored_by_nohup_stays_ignored() {
    let place = Place::new(LOG);
    let mut command = place.shell(r#"exec nohup "$@" > nohup.log 2>&1"#, &["start"]);
    let mut poller = place.spawn(&mut command);
    place.until_up(&poller);
    poller.signal("HUP");
    place.item(1, 0);
    delivered(&place, 1);
    poller.signal("HUP");
    poller.signal("TERM");
    assert_eq!(poller.ended().code(), Some(0), "{}", place.story());
    // The command of a sink must not inherit that, or it could not be hung up on.
    assert_eq!(place.entries("poller.stopped").len(), 1);
}

/// Given outputs that are closed, full, without a reader or with one that hangs, when the poller has
/// much to tell, then it lives, delivers, does not spin, and stops (R2.6, C127).
#[test]
fn r2_6_outputs_that_fail_neither_kill_nor_spin() {
    let script = r#"echo "$IDEMPOLL_DELIVERY_ID" >> ids.log; exit 1"#;
    let ways = [
        ("closed", "exec \"$@\" >&- 2>&-"),
        ("all closed", "exec \"$@\" <&- >&- 2>&-"),
        ("full", "exec \"$@\" > /dev/full 2>&1"),
        ("no reader", ""),
        ("a reader that hangs", ""),
    ];
    let mut started: Vec<(&str, Place, Running)> = Vec::new();
    // A reader that hangs: it has the pipe, and never reads.
    let (_unread, nobody_reads) = std::io::pipe().expect("a pipe");
    for (name, way) in ways {
        let place = Place::new(script);
        for number in 1..=20 {
            place.item(number, 0);
        }
        let poller = if name == "a reader that hangs" {
            fill(&nobody_reads);
            let mut command = place.command(&["start", "-v"]);
            command.stderr(nobody_reads.try_clone().expect("a descriptor"));
            place.spawn(&mut command)
        } else if name == "no reader" {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            let mut command = place.command(&["start", "-v"]);
            command.stdout(writer.try_clone().expect("a descriptor"));
            command.stderr(writer);
            place.spawn(&mut command)
        } else {
            place.spawn(&mut place.shell(way, &["start", "-v"]))
        };
        started.push((name, place, poller));
    }
    for (name, place, poller) in &started {
        place.until_up(poller);
        place.until("it has tried and given up", || {
            place.entries("poll.gave_up").len() == 20
        });
        assert_eq!(place.lines("ids.log").len(), 80, "{name}");
    }
    // Idle from here on, but for a cycle each second.
    let before: Vec<f64> = started.iter().map(|(_, _, p)| p.cpu_seconds()).collect();
    let since = Instant::now();
    std::thread::sleep(Duration::from_millis(1500));
    for ((name, place, poller), before) in started.iter_mut().zip(before) {
        let used = poller.cpu_seconds() - before;
        let over = since.elapsed().as_secs_f64();
        assert!(
            used < 0.1 * over,
            "{name}: {used} s of processor time in {over} s"
        );
        place.run(&["stop"]).expect(0);
        assert_eq!(poller.ended().code(), Some(0), "{name}");
    }
}

/// Fills a pipe until it takes no more.
fn fill(pipe: &std::io::PipeWriter) {
    use std::io::Write;
    // The default size of a pipe, in pieces that go in whole.
    for _ in 0..16 {
        (&mut &*pipe)
            .write_all(&[b'x'; 4096])
            .expect("there is room");
    }
}

/// A tmux server of this test's own, ended with it: its name, and where its socket is.
struct Tmux(String, std::path::PathBuf);

impl Tmux {
    fn run(&self, args: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-L", &self.0, "-f", "/dev/null"])
            .env("TMUX_TMPDIR", &self.1)
            .env_remove("TMUX")
            .args(args)
            .output()
            .expect("tmux");
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

/// Given a poller in a terminal with a command running, when Ctrl-C is pressed, and
/// when the terminal is closed, then the poller stops gracefully, the command and the tmux
/// server it was the first to start go on undisturbed, and the next poller takes it up (R2.6, R2.7, R6.3, C090, C092).
#[test]
fn r2_7_ctrl_c_and_a_closed_terminal_leave_the_command_alone() {
    if Command::new("tmux").arg("-V").output().is_err() {
        println!("r2_7: skipped, since there is no tmux here");
        return;
    }
    // The command is what starts a tmux server first, which then belongs to nobody else either.
    let server = Tmux(
        format!("idempoll-by-{}", std::process::id()),
        std::env::temp_dir(),
    );
    let script = format!(
        "unset TMUX; export TMUX_TMPDIR='{}'; tmux -L {} -f /dev/null new-session -A -d -s kept 'sleep 300'; {GATED}",
        server.1.display(),
        server.0
    );
    let place = Place::new(&script);
    let name = format!("idempoll-test-{}", std::process::id());
    let tmux = Tmux(name, place.dir.clone());
    let line = format!(
        "cd '{}' && exec '{}' start --config idempoll.json",
        place.dir.display(),
        binary().display()
    );
    for round in 1..=2u64 {
        place.item(round, 0);
        tmux.run(&["new-session", "-d", "-s", "poll", "sleep 60"]);
        tmux.run(&["set-option", "-g", "remain-on-exit", "on"]);
        tmux.run(&["respawn-pane", "-k", "-t", "poll", &line]);
        place.until("the command runs", || {
            place.lines("begun.log").len() as u64 == round
        });
        let command: u32 = place.lines("begun.log")[round as usize - 1]
            .parse()
            .expect("its pid");
        if round == 1 {
            tmux.run(&["send-keys", "-t", "poll", "C-c"]);
            // Only that it ended: tmux 3.3a now and then never collects the exit code.
            let dead = ["list-panes", "-t", "poll", "-F", "#{pane_dead}"];
            place.until("it has ended", || tmux.run(&dead) == "1");
        }
        tmux.run(&["kill-session", "-t", "poll"]);
        place.until("the poller has ended", || {
            place.entries("poller.stopped").len() as u64 == 2 * round - 1
        });
        place.until("the lock is free", || {
            place.run(&["status"]).code == Some(3)
        });
        assert!(lives(command), "round {round}: the command died");
        let kept = server.run(&["list-sessions", "-F", "#{session_name}"]);
        assert_eq!(kept, "kept", "round {round}: the tmux server died");
        let mut next = place.start();
        place.until("it is adopted", || {
            place.entries("dispatch.adopted").len() as u64 == round
        });
        place.write("go", "");
        delivered(&place, round as usize);
        place.run(&["stop"]).expect(0);
        assert!(next.ended().success());
        fs::remove_file(place.path("go")).expect("it is there");
        assert_eq!(
            (place.lines("begun.log").len(), place.lines("ids.log").len()),
            (round as usize, round as usize),
            "{}",
            place.story()
        );
    }
}

/// Given a command that leaves a process behind, when it ends, then it is delivered at
/// once, and neither it nor what it left has any descriptor of the poller: not the lock,
/// not the pidfile; stop, kill and start work at once (R1.5, C073, C093).
#[test]
fn c093_what_a_command_leaves_behind_holds_nothing() {
    let script = r#"sleep 300 & echo $! > left.pid; echo $$ > command.pid
        while [ ! -e go -a -e idempoll.json ]; do sleep 0.01; done; echo "$IDEMPOLL_DELIVERY_ID" >> ids.log"#;
    let place = Place::new(script);
    place.item(1, 0);
    let mut poller = place.start();
    let pid = |name: &str| -> Option<u32> { place.lines(name).first()?.parse().ok() };
    place.until("the command runs", || pid("command.pid").is_some());
    let left = pid("left.pid").expect("written before");
    let state = place.state();
    for process in [pid("command.pid").expect("just seen"), left] {
        let open = place.only_the_three(process);
        assert!(
            open.iter().all(|(_, to)| !to.starts_with(&state)),
            "{open:?}"
        );
    }
    let runners = children(poller.pid());
    assert_eq!(runners.len(), 1);
    for (_, to) in descriptors(runners[0].0) {
        assert!(to != state && !to.ends_with("poll.pid"), "{}", to.display());
    }
    place.write("go", "");
    delivered(&place, 1);
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    assert_eq!(place.run(&["status"]).code, Some(3));
    let poller = place.start();
    poller.kill();
    assert_eq!(place.run(&["status"]).code, Some(1));
    place.once().expect(0);
    assert!(lives(left), "what the command left is its own affair");
    let _ = Command::new("kill").arg(left.to_string()).status();
    assert_eq!(place.lines("ids.log").len(), 1);
}

/// Given a hundred deliveries, some of which fail, are killed or time out, when
/// they are over, then no child of the poller is left, dead or alive (C075).
#[test]
fn c075_no_child_is_left_uncollected() {
    let script = r#"echo "$IDEMPOLL_DELIVERY_ID" >> ids.log
        case $IDEMPOLL_REF in *[369]) kill -9 $$;; *7) exit 3;; *5) sleep 300;; esac"#;
    let place = Place::new(script);
    let mut config = place.config(script);
    config["max_retries"] = 0.into();
    config["max_concurrent_deliveries"] = 16.into();
    config["sinks"]["log"]["timeout_seconds"] = json!(2);
    place.configure(&config);
    for number in 1..=100 {
        place.item(number, 0);
    }
    let poller = place.start();
    delivered(&place, 100);
    // The log follows the ledger.
    let ended = || place.entries("poll.gave_up").len() + place.entries("dispatch.succeeded").len();
    place.until("all of it is in the log", || ended() == 100);
    // On a busy machine a quick one may time out, too.
    let gave_up = place.entries("poll.gave_up").len();
    assert!((50..=100).contains(&gave_up), "{gave_up}");
    assert_eq!(children(poller.pid()), []);
}

/// Given a poller whose event log and payloads are at work, when it is killed with
/// its log cut in half a line, then the next one writes whole lines again (C125).
#[test]
fn c125_the_event_log_survives_being_cut() {
    let place = resting(LOG);
    place.item(1, 0);
    let poller = place.start();
    place.at_rest();
    assert_eq!(place.lines("ids.log").len(), 1);
    let log = place.path("state/log/events.jsonl");
    let text = fs::read(&log).expect("a log");
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&log)
        .expect("a log");
    file.set_len(text.len() as u64 - 7).expect("a cut");
    place.run(&["start", "--once"]).expect(1);
    poller.kill();
    place.once().expect(0);
    let mut said = String::new();
    let mut events = place.command(&["events", "--json"]);
    let events = events.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut events = Ends(events);
    let out = events.0.stdout.as_mut().expect("piped");
    out.read_to_string(&mut said).expect("text");
    let started = said.matches("poller.started").count();
    assert_eq!(
        (started, said.matches("poller.blocked").count()),
        (2, 1),
        "{said}"
    );
    assert!(
        said.lines()
            .all(|l| serde_json::from_str::<Value>(l).is_ok())
    );
}
