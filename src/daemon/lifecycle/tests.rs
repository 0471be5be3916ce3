//! Whole runs in a thread of this process, with sinks that do what no real one can be made to do.
#![allow(clippy::disallowed_methods, reason = "tests")]

use super::super::stand_in::{Scratch, eventually};
use super::*;
use crate::config::{Env, Overrides};
use crate::engine::delivery::{Delivery, Outcome, Receipt};
use crate::os::wake::Wake;
use crate::sinks::Sink;
use crossbeam_channel::{Receiver, Sender};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A poller's surroundings: an inbox, a config, a state directory.
struct Place {
    scratch: Scratch,
    ask: StopAsk,
}

/// Asks for a stop when it is dropped.
struct Ends<'a>(&'a StopAsk);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.stop.raise();
    }
}

/// Hears what is said to people.
struct Ear(Sender<String>);

impl Voice for Ear {
    fn entry(&mut self, _: &Entry) {}
    fn progress(&mut self, _: &str) {}
    fn complain(&mut self, error: &Error) {
        let _ = self.0.send(error.to_string());
    }
}

impl Place {
    fn new() -> Place {
        let place = Place {
            scratch: Scratch::new(),
            ask: StopAsk::new().expect("descriptors"),
        };
        fs::create_dir(place.scratch.path().join("inbox")).expect("a directory");
        place.configure(&place.config());
        place
    }

    fn config(&self) -> Value {
        json!({ "state_dir": "state", "interval_seconds": 1, "retry_seconds": 0.0, "drain_seconds": 60.0,
            "authorized_users": ["octocat"],
            "sources": [{ "name": "inbox", "provider": "dir", "path": "inbox", "sinks": ["log"] }],
            "sinks": { "log": { "type": "exec", "command": ["true"] } } })
    }

    /// Changes one key of the config.
    fn edit(&self, key: &str, value: u64) {
        let mut config = self.config();
        config[key] = value.into();
        self.configure(&config);
    }

    /// In one rename, as a careful editor does it.
    fn configure(&self, config: &Value) {
        self.write("c.json", &config.to_string());
    }

    fn item(&self, number: u64) {
        let item = json!({ "number": number, "author": "octocat", "state": "open" });
        self.write(&format!("inbox/{number}.json"), &item.to_string());
    }

    fn write(&self, name: &str, text: &str) {
        let new = self.scratch.path().join(".new");
        fs::write(&new, text).expect("a file");
        fs::rename(new, self.scratch.path().join(name)).expect("a rename");
    }

    /// Runs a poller with this sink until it ends. Gives its report and what it complained of.
    fn run(&self, sink: Arc<dyn Sink>) -> (Result<Report, Error>, Vec<String>) {
        let env = Env {
            cwd: self.scratch.path().to_path_buf(),
            ..Env::default()
        };
        let file = self.scratch.path().join("c.json");
        let watched = Watched::open(file, Overrides::default(), env).expect("it is right");
        let (state, pidfile) = (self.scratch.state(), self.scratch.pidfile());
        let sinks = |_: &Config| [("log".to_string(), sink.clone())].into();
        let (said, heard) = crossbeam_channel::unbounded();
        let mut lock = RunLock::acquire(&state, &pidfile, PATIENCE).expect("nobody else runs");
        let lived = run(
            watched,
            false,
            &sinks,
            &mut Ear(said),
            &self.ask,
            Notify::default(),
            &mut lock,
        );
        lock.release().expect("it is held");
        (lived, heard.try_iter().collect())
    }

    /// Runs a poller with this sink beside `meanwhile`, and stops it after that.
    fn run_beside(
        &self,
        sink: Arc<dyn Sink>,
        meanwhile: impl FnOnce(),
    ) -> (Result<Report, Error>, Vec<String>) {
        std::thread::scope(|scope| {
            let poller = scope.spawn(|| self.run(sink));
            // A test that fails must not leave its poller running.
            let ends = Ends(&self.ask);
            meanwhile();
            drop(ends);
            poller.join().expect("the poller does not panic")
        })
    }

    fn entries(&self, kind: &str) -> Vec<Value> {
        let log = self.scratch.state().join("log/events.jsonl");
        let log = fs::read_to_string(log).unwrap_or_default();
        let entries = log.lines().filter_map(|l| serde_json::from_str(l).ok());
        entries.filter(|e: &Value| e["type"] == kind).collect()
    }

    fn run_info(&self) -> RunInfo {
        RunInfo::read(&self.scratch.state()).unwrap_or_default()
    }

    /// Waits for the end of a cycle that begins from now on.
    fn another_cycle(&self) {
        let from = clock::now();
        eventually("another cycle", || {
            self.run_info().last_cycle.is_some_and(|c| c.at >= from)
        });
    }
}

/// A sink that keeps no receipts, and delivers what `deliver` lets it.
struct Told<F>(F);

impl<F: Fn(&Delivery, &Wake) -> Outcome + Send + Sync> Sink for Told<F> {
    fn deliver(&self, delivery: &Delivery, stop: &Wake) -> Outcome {
        (self.0)(delivery, stop)
    }
    fn settle(&self, _: &Delivery) -> Receipt {
        Receipt::Missing
    }
    fn wait(&self, _: &Delivery, _: &Wake) -> Outcome {
        Outcome::Unknown
    }
    fn forget(&self, _: &Delivery) {}
}

/// A sink that holds its first delivery until `let_go` is raised, whatever it is told,
/// and says when it began and when it was told to end.
fn stubborn(let_go: &Arc<Wake>) -> (Arc<dyn Sink>, Receiver<&'static str>) {
    let (tell, told) = crossbeam_channel::unbounded();
    let (let_go, count) = (let_go.clone(), AtomicUsize::new(0));
    let deliver = move |_: &Delivery, stop: &Wake| {
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            for (wake, word) in [(stop, "told to end"), (&let_go, "let go")] {
                let _ = tell.send("held");
                while !wake.raised() {
                    let _ = wait::readable(wake.as_fd(), Duration::from_secs(60));
                }
                let _ = tell.send(word);
            }
        }
        Outcome::Delivered
    };
    (Arc::new(Told(deliver)), told)
}

fn until(told: &Receiver<&'static str>, word: &str) {
    while told.recv_timeout(Duration::from_secs(60)).expect(word) != word {}
}

/// Given a worker that panics over a delivery, when cycles follow and then a stop, then
/// neither panics in turn, everything is delivered, records are whole, and the exit code
/// tells of the fault (C129, C130).
#[test]
fn c130_after_a_panic_cycles_and_the_stop_go_on_and_the_exit_code_tells() {
    let place = Place::new();
    place.item(1);
    place.item(2);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let sink = Told(move |_: &Delivery, _: &Wake| {
        let n = counted.fetch_add(1, Ordering::SeqCst);
        assert_ne!(n, 0, "on purpose");
        Outcome::Delivered
    });
    let (report, _) = place.run_beside(Arc::new(sink), || {
        eventually("both are delivered", || {
            place.entries("dispatch.succeeded").len() == 2
        });
        place.another_cycle();
        place.item(3);
        eventually("and a third", || {
            place.entries("dispatch.succeeded").len() == 3
        });
    });
    let report = report.expect("it ends by itself");
    assert_eq!(report.exit, Exit::Failed);
    assert!(report.stopped);
    let failed = place.entries("dispatch.failed");
    assert_eq!(failed.len(), 1);
    let why = failed[0]["reason"].as_str().unwrap_or_default();
    assert!(
        why.contains("panicked") && why.contains("on purpose"),
        "{why}"
    );
    assert_eq!(calls.load(Ordering::SeqCst), 4);
    let mut ledger = Ledger::open(Layout::new(place.scratch.state())).expect("it is whole");
    assert_eq!(ledger.pending(), Ok(vec![]));
    for number in 1..=3 {
        let item = format!("dir:inbox#{number}").parse().expect("a ref");
        let slug = crate::engine::delivery::Slug::new("inbox", &item);
        let record = ledger.load(&slug).expect("it is whole");
        assert_eq!(record.expect("it is there").history.len(), 1);
    }
}

/// Given a worker that panicked, when the config changes after that, then the exit code
/// still tells of the fault (C130).
#[test]
fn c130_a_panic_is_remembered_when_the_config_changes() {
    let place = Place::new();
    place.item(1);
    let panics = |_: &Delivery, _: &Wake| -> Outcome { panic!("on purpose") };
    let (report, _) = place.run_beside(Arc::new(Told(panics)), || {
        eventually("it failed", || !place.entries("dispatch.failed").is_empty());
        place.edit("max_retries", 5);
        eventually("it is in use", || {
            !place.entries("config.reloaded").is_empty()
        });
    });
    assert_eq!(report.expect("it ends by itself").exit, Exit::Failed);
}

/// Given a delivery that cannot be left running, when the config changes, then its end is
/// waited for and recorded before the new config is in use, and nothing is repeated
/// (R6.2, R2.5); a stop meanwhile is honoured.
#[test]
fn r6_2_a_change_of_the_config_waits_for_what_cannot_be_left_running() {
    let place = Place::new();
    place.item(1);
    let let_go = Arc::new(Wake::new().expect("a descriptor"));
    let (sink, told) = stubborn(&let_go);
    let (report, _) = place.run_beside(sink, || {
        until(&told, "held");
        place.edit("interval_seconds", 2);
        until(&told, "told to end");
        // News for the next life: this one begins nothing more.
        place.item(2);
        assert!(place.entries("config.reloaded").is_empty());
        let_go.raise();
        eventually("it is in use", || {
            !place.entries("config.reloaded").is_empty()
        });
        eventually("the news are delivered", || {
            place.entries("dispatch.succeeded").len() == 2
        });
    });
    assert_eq!(report.expect("it ends by itself").exit, Exit::Done);
    let ids = place.entries("dispatch.queued");
    let ids: Vec<&str> = ids
        .iter()
        .filter_map(|e| e["delivery_id"].as_str())
        .collect();
    assert_eq!(ids, ["dir:inbox#1/opened", "dir:inbox#2/opened"]);
    assert!(place.entries("poll.interrupted_delivery").is_empty());
}

/// Given a change of the config that has to wait, when a stop is asked for, then it says what
/// it waits for, and when the second signal comes, then it ends at once with exit 130, the
/// new config was never in use, and the try in flight stays recorded as such (R2.5, R2.6, C089, C109).
#[test]
fn c089_a_stop_is_honoured_while_the_config_changes() {
    let place = Place::new();
    place.item(1);
    let let_go = Arc::new(Wake::new().expect("a descriptor"));
    let (sink, told) = stubborn(&let_go);
    let (report, _) = place.run_beside(sink, || {
        until(&told, "held");
        place.edit("interval_seconds", 2);
        until(&told, "told to end");
        place.ask.stop.raise();
        eventually("it was noted", || place.run_info().stop_asked_at.is_some());
        place.ask.now.raise();
    });
    let_go.raise();
    let report = report.expect("it ends by itself");
    assert_eq!(report.exit, Exit::Interrupted);
    assert!(place.entries("config.reloaded").is_empty());
    let item = "dir:inbox#1".parse().expect("a ref");
    let slug = crate::engine::delivery::Slug::new("inbox", &item);
    let mut ledger = Ledger::open(Layout::new(place.scratch.state())).expect("it is whole");
    let record = ledger
        .load(&slug)
        .expect("it is whole")
        .expect("it is there");
    let tries = record.sinks["log"].tries.values().next().expect("one");
    assert!(
        tries.in_flight && tries.begun == 1 && tries.attempts == 0,
        "{tries:?}"
    );
}

/// Given a delivery that does not end, when a stop is asked for, then it says what it waits
/// for and how to have it end at once, and after `drain_seconds` it ends, with exit 1, and says what it left (C089).
#[test]
fn c089_a_stop_that_waits_says_for_what_and_gives_up() {
    let place = Place::new();
    let mut config = place.config();
    config["drain_seconds"] = 2.into();
    place.configure(&config);
    place.item(1);
    let let_go = Arc::new(Wake::new().expect("a descriptor"));
    let (sink, told) = stubborn(&let_go);
    let (report, complaints) = place.run_beside(sink, || {
        until(&told, "held");
    });
    let_go.raise();
    assert_eq!(report.expect("it ends by itself").exit, Exit::Failed);
    let [said, left] = complaints.as_slice() else {
        panic!("two lines: {complaints:?}");
    };
    assert!(
        left.contains("stopped, and left behind dir:inbox#1/opened to log"),
        "{left}"
    );
    for part in [
        "stopping: waiting up to ",
        " s more for dir:inbox#1/opened to log",
        "a second signal ends it at once",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

/// Given a delivery that does not end, when the config changes, then after `drain_seconds`
/// the new one is in use all the same and polling goes on; the try counts as interrupted (R5.4).
#[test]
fn r5_4_a_change_of_the_config_does_not_wait_for_ever() {
    let place = Place::new();
    let mut config = place.config();
    config["drain_seconds"] = 1.into();
    place.configure(&config);
    place.item(1);
    let let_go = Arc::new(Wake::new().expect("a descriptor"));
    let (sink, told) = stubborn(&let_go);
    let (report, _) = place.run_beside(sink, || {
        until(&told, "held");
        config["interval_seconds"] = 2.into();
        place.configure(&config);
        eventually("it was interrupted", || {
            !place.entries("poll.interrupted_delivery").is_empty()
        });
        place.another_cycle();
    });
    let_go.raise();
    report.expect("it ends by itself");
    assert_eq!(place.entries("config.reloaded").len(), 1);
}

/// Given a new config whose source has a file of a newer idempoll, when it is to be used,
/// then it is rejected with the reason and the one before goes on (SPEC section 4).
#[test]
fn a_config_that_cannot_begin_is_rejected_and_the_one_before_goes_on() {
    let place = Place::new();
    let sink = Told(|_: &Delivery, _: &Wake| Outcome::Delivered);
    let (report, _) = place.run_beside(Arc::new(sink), || {
        place.another_cycle();
        place.write("state/sources/other.json", "{\"version\": 99}");
        let mut config = place.config();
        config["sources"][0]["name"] = "other".into();
        place.configure(&config);
        eventually("it is rejected", || {
            !place.entries("config.rejected").is_empty()
        });
        place.another_cycle();
        assert_eq!(place.run_info().sources[0].name, "inbox");
        assert!(place.run_info().config_error.is_some());
    });
    assert_eq!(report.expect("it ends by itself").exit, Exit::Done);
    assert!(place.entries("config.reloaded").is_empty());
    assert_eq!(place.entries("config.rejected").len(), 1);
}
