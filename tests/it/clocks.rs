//! Clocks that are set, and machines that sleep, under the real program.

use crate::world::forge::{Forge, Reply};
use crate::world::program::{LOG, Place, Running};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Always fails.
const FAILING: &str = r#"echo "$IDEMPOLL_ATTEMPT" >> tries.log; exit 1"#;

const HOUR: i32 = 3600;
const DAY: i32 = 24 * HOUR;

/// The clocks of one poller, in the test's hand.
struct Clocks<'a>(&'a Place);

impl<'a> Clocks<'a> {
    /// Right at first. `None`, and said so, where the program cannot be deceived.
    fn of(place: &'a Place, test: &str) -> Option<Clocks<'a>> {
        if std::env::var_os("IDEMPOLL_BIN").is_some() {
            println!("{test}: skipped, since another binary may be a static one");
            return None;
        }
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/world/clock_shift.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([place.path("clock_shift.so").as_os_str(), source.as_ref()])
            .status();
        if !built.is_ok_and(|status| status.success()) {
            println!("{test}: skipped, since nothing can be compiled here");
            return None;
        }
        fs::write(place.path("shift"), [0; 8]).expect("a file");
        let made = Command::new("mkfifo")
            .arg(place.path("shift.told"))
            .status();
        assert!(made.expect("mkfifo is there").success());
        Some(Clocks(place))
    }

    /// From now on the wall clock is `wall` seconds ahead, and the machine has slept for `slept`.
    fn shift(&self, wall: i32, slept: i32) {
        self.pass(wall, slept);
        // For as long as this is open, there is somebody to write to.
        let mut told = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.0.path("shift.told"))
            .expect("it is there");
        told.write_all(b"set").expect("there is room");
    }

    /// The same, but as time passes: nobody is told.
    fn pass(&self, wall: i32, slept: i32) {
        let both = [wall.to_ne_bytes(), slept.to_ne_bytes()].concat();
        let file = fs::OpenOptions::new()
            .write(true)
            .open(self.0.path("shift"));
        let written = file.expect("it is there").write_at(&both, 0);
        assert_eq!(written.expect("it can be written"), 8);
    }

    /// Starts a poller that goes by these clocks.
    fn start(&self) -> Running {
        let mut command = self.0.command(&["start"]);
        command
            .env("LD_PRELOAD", self.0.path("clock_shift.so"))
            .env("CLOCK_SHIFT", self.0.path("shift"))
            .stdout(Stdio::null())
            .stderr(self.0.log());
        let poller = self.0.spawn(&mut command);
        self.0.until_up(&poller);
        poller
    }
}

/// The warnings about clocks: which way, and by how many seconds.
fn jumps(place: &Place) -> Vec<(String, i32)> {
    let warnings = place.entries("poller.warning");
    let reasons = warnings.iter().filter_map(|e| e["reason"].as_str());
    reasons
        .filter_map(|reason| {
            let rest = reason.strip_prefix("the clock was set ")?;
            let (way, by) = rest.split_once(" by ")?;
            Some((way.to_string(), by.strip_suffix(" s")?.parse().ok()?))
        })
        .collect()
}

/// Waits for a warning that says this, give or take what a busy machine needs.
fn until_jump(place: &Place, way: &str, by: i32) {
    let said = || {
        let mut jumps = jumps(place).into_iter();
        jumps.any(|(w, b)| w == way && (b - by).abs() <= 120)
    };
    place.until(&format!("set {way} by {by} s is said"), said);
}

/// Waits until the poller has been round its loop once more.
fn once_round(place: &Place) {
    place.write("state/requests/nonsense.json", "no request");
    place.until("requests are looked at", || {
        !place.path("state/requests/nonsense.json").exists()
    });
}

/// A tracker that may refuse its first answer, and notes when it was asked for a list: a cycle
/// that sweeps asks for `comments` once, any other for `issues`.
fn noting(retry_after: Option<u32>, list: &'static str) -> (Forge, Arc<Mutex<Vec<Instant>>>) {
    let asked: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = asked.clone();
    let mut refusal = retry_after;
    let forge = Forge::start(move |request| {
        if refusal.is_some() || request.path().ends_with(list) {
            noted.lock().expect("no panic").push(Instant::now());
        }
        match refusal.take() {
            Some(seconds) => Reply::json("{}").status(429).header("Retry-After", seconds),
            None => Reply::json("[]"),
        }
    });
    (forge, asked)
}

fn forge_source(forge: &Forge) -> Value {
    json!({ "name": "forge", "provider": "github", "repos": ["octo/widgets"], "pull_requests": false,
        "base_url": forge.url(), "sinks": ["log"] })
}

/// Given an interval of an hour and a command that runs, when the machine sleeps for two hours,
/// then one poll follows at once, not two and not after another hour; the command is not
/// declared timed out because of it; and nobody says that the clock was set (C024).
#[test]
fn c024_a_suspend_is_followed_by_one_poll_at_once() {
    let script = r#"echo >> begun.log; while [ ! -e go -a -e idempoll.json ]; do sleep 0.01; done; echo "$IDEMPOLL_DELIVERY_ID" >> ids.log"#;
    let place = Place::new(script);
    let Some(clocks) = Clocks::of(&place, "c024") else {
        return;
    };
    let (forge, asked) = noting(None, "/comments");
    let polls = || asked.lock().expect("no panic").len();
    let mut config = place.config(script);
    config["interval_seconds"] = HOUR.into();
    config["sinks"]["log"]["timeout_seconds"] = 600.into();
    let list = config["sources"].as_array_mut().expect("a list");
    list.push(forge_source(&forge));
    place.configure(&config);
    place.item(1, 0);
    let mut poller = clocks.start();
    place.until("the first cycle is over and the command runs", || {
        !place.status()["next_cycle_at"].is_null() && place.lines("begun.log").len() == 1
    });
    assert_eq!(polls(), 1);
    place.item(2, 0);
    once_round(&place);
    assert_eq!(polls(), 1);
    clocks.shift(2 * HOUR, 2 * HOUR);
    place.until("the new item is found", || {
        place.lines("begun.log").len() == 2
    });
    place.write("go", "");
    place.until("both are delivered", || place.pending() == 0);
    once_round(&place);
    once_round(&place);
    assert_eq!(polls(), 2, "one cycle makes up for all");
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    assert_eq!(place.lines("ids.log").len(), 2);
    assert_eq!(jumps(&place), []);
    assert!(
        place.entries("dispatch.failed").is_empty(),
        "{}",
        place.story()
    );
}

/// Given an interval of two seconds, when the poller does not get to run for several of them,
/// then one cycle makes up for all that were missed, and the next one keeps its
/// distance (C024).
#[test]
fn c024_a_poller_that_was_held_makes_up_with_one_cycle() {
    let place = Place::new(LOG);
    let (forge, asked) = noting(None, "/issues");
    let mut config = place.config(LOG);
    config["interval_seconds"] = 2.into();
    config["sources"] = json!([forge_source(&forge)]);
    place.configure(&config);
    let mut poller = place.start();
    let polls = || asked.lock().expect("no panic").clone();
    place.until("it polls", || polls().len() >= 2);
    poller.signal("STOP");
    let held = Instant::now();
    place.until("seven seconds are over", || {
        held.elapsed() > Duration::from_secs(7)
    });
    let before = polls().len();
    poller.signal("CONT");
    place.until("it polls again", || polls().len() >= before + 3);
    let all = polls();
    for pair in all[before..].windows(2) {
        let gap = pair[1] - pair[0];
        assert!(
            gap > Duration::from_millis(300),
            "two cycles within {gap:?}"
        );
    }
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    assert_eq!(jumps(&place), []);
}

/// Given a try that waits for an hour, when the clock is set forward a day and then back, then
/// both are said, the try comes at once, and the next one is due within hours and not
/// a day later (C023).
#[test]
fn c023_a_clock_set_forward_and_back_loses_and_delays_nothing() {
    let place = Place::new(FAILING);
    let Some(clocks) = Clocks::of(&place, "c023") else {
        return;
    };
    let mut config = place.config(FAILING);
    config["retry_seconds"] = HOUR.into();
    config["max_retries"] = 5.into();
    place.configure(&config);
    place.item(1, 0);
    let mut poller = clocks.start();
    let failed = |n: usize| {
        place.until("the try failed", || {
            place.entries("dispatch.failed").len() == n
        });
    };
    failed(1);
    once_round(&place);
    assert_eq!(place.lines("tries.log").len(), 1);
    clocks.shift(DAY, 0);
    until_jump(&place, "forward", DAY);
    failed(2);
    clocks.shift(0, 0);
    until_jump(&place, "back", DAY);
    once_round(&place);
    assert_eq!(place.lines("tries.log").len(), 2, "its hour is not over");
    clocks.shift(2 * HOUR, 2 * HOUR);
    failed(3);
    assert_eq!(jumps(&place).len(), 2, "{:?}", jumps(&place));
    // Cycles go on all the while.
    place.item(2, 0);
    failed(4);
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
}

/// Given a try that waits for an hour and a poller that sleeps meanwhile, when the clock is set back after
/// forty minutes, by less than that, then it is said at once, and the try comes after its
/// hour, no later; and when it is set forward, the next one comes at once (C023, C024).
#[test]
fn c023_a_clock_set_while_the_poller_sleeps_delays_nothing() {
    const MINUTE: i32 = 60;
    let place = Place::new(FAILING);
    let Some(clocks) = Clocks::of(&place, "c023") else {
        return;
    };
    let mut config = place.config(FAILING);
    config["interval_seconds"] = DAY.into();
    config["retry_seconds"] = HOUR.into();
    config["max_retries"] = 5.into();
    place.configure(&config);
    place.item(1, 0);
    let mut poller = clocks.start();
    let failed = |n: usize| {
        place.until("the try failed", || {
            place.entries("dispatch.failed").len() == n
        });
    };
    failed(1);
    poller.until_asleep(&place);
    clocks.pass(40 * MINUTE, 40 * MINUTE);
    clocks.shift(20 * MINUTE, 40 * MINUTE);
    until_jump(&place, "back", 20 * MINUTE);
    poller.until_asleep(&place);
    assert_eq!(place.lines("tries.log").len(), 1, "its hour is not over");
    clocks.shift(41 * MINUTE, 61 * MINUTE);
    failed(2);
    poller.until_asleep(&place);
    clocks.shift(DAY + 41 * MINUTE, 61 * MINUTE);
    failed(3);
    until_jump(&place, "forward", DAY);
    assert_eq!(jumps(&place).len(), 2, "{:?}", jumps(&place));
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
}

/// Given a poller that sleeps, when its state directory is moved, another poller is started in its place and
/// the clock is set, all before the first gets to run, then it ends and writes nothing into
/// what is the second one's (R1.3).
#[test]
fn r1_3_a_poller_that_wakes_where_its_state_was_replaced_writes_nothing() {
    let place = Place::new(LOG);
    let Some(clocks) = Clocks::of(&place, "r1_3") else {
        return;
    };
    let mut config = place.config(LOG);
    config["interval_seconds"] = HOUR.into();
    place.configure(&config);
    let mut first = clocks.start();
    place.at_rest();
    first.until_asleep(&place);
    first.signal("STOP");
    fs::rename(place.state(), place.path("moved")).expect("it can be moved");
    let mut second = place.start();
    place.at_rest();
    second.until_asleep(&place);
    let run = || fs::read_to_string(place.path("state/run.json")).expect("it is there");
    let before = run();
    clocks.shift(DAY, 0);
    first.signal("CONT");
    assert_eq!(first.ended().code(), Some(1));
    assert_eq!(run(), before);
    place.run(&["stop"]).expect(0);
    assert!(second.ended().success());
}

/// Given state written while the clock was a day ahead (a try that waits, a tracker that asked to
/// wait), when the poller starts by the right clock, then it polls and tries at once, and
/// says that the clock was set back (C010, C023).
#[test]
fn c023_state_from_a_clock_a_day_ahead_delays_nothing() {
    let place = Place::new(FAILING);
    let Some(clocks) = Clocks::of(&place, "c023") else {
        return;
    };
    let (forge, asked) = noting(Some(3 * HOUR as u32), "/issues");
    let mut config = place.config(FAILING);
    config["max_retries"] = 5.into();
    let list = config["sources"].as_array_mut().expect("a list");
    list.push(forge_source(&forge));
    config["retry_seconds"] = 30.into();
    place.configure(&config);
    place.item(1, 0);
    clocks.shift(DAY / 2, 0);
    let mut poller = clocks.start();
    place.until("the try failed and the tracker refused", || {
        place.entries("dispatch.failed").len() == 1 && place.entries("poll.rate_limited").len() == 1
    });
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    assert_eq!(asked.lock().expect("no panic").len(), 1);
    config["retry_seconds"] = json!(0.5);
    place.configure(&config);
    let mut poller = place.start();
    until_jump(&place, "back", DAY / 2);
    place.until("the tracker is asked again", || {
        asked.lock().expect("no panic").len() > 1
    });
    place.until("the try is made again", || {
        place.lines("tries.log").len() > 1
    });
    place.item(2, 0);
    place.until("the next item is found", || {
        place
            .entries("dispatch.queued")
            .iter()
            .any(|e| e["ref"] == "dir:inbox#2")
    });
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
}
