//! A config that changes while the real program runs (SPEC section 4): taken into use by a
//! stop and a start that nobody notices, or reported and not used.

use crate::world::program::{Place, Running, children, scaled};
use crate::world::sim::Dice;
use idempoll::engine::time::Time;
use serde_json::{Value, json};
use std::fs;
use std::process::Stdio;

/// Logs the id of what it was given, and which try it is.
const LOG: &str = r#"cat > /dev/null; echo "$IDEMPOLL_DELIVERY_ID $IDEMPOLL_ATTEMPT" >> ids.log"#;

/// Says that it has begun, and ends when the test says so.
const GATED: &str = r#"echo $$ >> begun.log; while [ ! -e go -a -e idempoll.json ]; do sleep 0.01; done; echo "$IDEMPOLL_DELIVERY_ID $IDEMPOLL_ATTEMPT" >> ids.log"#;

/// Puts a text in the place of the config in one rename, as a careful editor does.
fn write(place: &Place, text: &str) {
    place.write(".new", text);
    fs::rename(place.path(".new"), place.path("idempoll.json")).expect("a rename");
}

/// Changes the config and waits until the poller has taken that into use.
fn reload(place: &Place, config: &Value) {
    let before = place.entries("config.reloaded").len();
    write(place, &config.to_string());
    place.until("the new config is in use", || {
        place.entries("config.reloaded").len() > before
    });
}

/// Waits for a cycle that begins from now on.
fn another_cycle(place: &Place) {
    let at = |status: &Value| status["last_cycle"]["at"].as_str().map(str::to_string);
    let before = at(&place.status());
    place.until("another cycle", || at(&place.status()) > before);
    // That one may have begun before.
    let before = at(&place.status());
    place.until("another cycle", || at(&place.status()) > before);
}

fn ids(place: &Place) -> Vec<String> {
    place.lines("ids.log")
}

fn stopped(place: &Place, mut poller: Running) {
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success(), "{}", place.story());
}

/// Given a running poller, when sources, authorized users, sinks and the interval in its config
/// change, then each takes effect from the next cycle on, in the same process and under the
/// same lock, and what is known stays known (R1.1, R6.2).
#[test]
fn each_change_of_the_config_takes_effect() {
    let place = Place::new(LOG);
    place.item(1, 0);
    let poller = place.start();
    place.until("the first is delivered", || ids(&place).len() == 1);

    let mut config = place.config(LOG);
    fs::create_dir(place.path("second")).expect("a directory");
    config["sources"]
        .as_array_mut()
        .expect("a list")
        .push(json!(
        { "name": "second", "provider": "dir", "path": "second", "sinks": ["log"] }));
    let second = json!({ "number": 5, "author": "octocat", "state": "open" });
    place.write("second/5.json", &second.to_string());
    reload(&place, &config);
    place.until("the new source is polled", || ids(&place).len() == 2);
    let changed = |n: usize| place.entries("config.reloaded")[n]["changed"].clone();
    assert_eq!(changed(0), json!(["sources"]));
    let names = |status: &Value| -> Vec<Value> {
        let sources = status["sources"].as_array().expect("a list");
        sources.iter().map(|s| s["name"].clone()).collect()
    };
    another_cycle(&place);
    assert_eq!(names(&place.status()), ["inbox", "second"]);

    let by_sam = json!({ "number": 6, "author": "sam", "state": "open" });
    place.write("second/6.json", &by_sam.to_string());
    place.until("a stranger's item is refused", || {
        !place.entries("poll.unauthorized").is_empty()
    });
    config["authorized_users"] = json!(["octocat", "sam"]);
    reload(&place, &config);
    place.until("it is no stranger's any more", || ids(&place).len() == 3);

    let other = r#"echo "$IDEMPOLL_DELIVERY_ID" >> other.log"#;
    config["sinks"]["log"]["command"] = json!(["sh", "-c", other]);
    reload(&place, &config);
    place.item(2, 0);
    place.until("the new command is run", || {
        place.lines("other.log") == ["dir:inbox#2/opened"]
    });

    assert_eq!(
        place.run(&["start", "--once"]).code,
        Some(1),
        "the lock is held"
    );
    config["interval_seconds"] = 3600.into();
    reload(&place, &config);
    assert_eq!(changed(3), json!(["interval_seconds"]));
    place.until("the next cycle is an hour away", || {
        let status = place.status();
        let time = |value: &Value| value.as_str()?.parse::<Time>().ok();
        let (next, last) = (
            time(&status["next_cycle_at"]),
            time(&status["last_cycle"]["at"]),
        );
        let apart = next
            .zip(last)
            .map(|(next, last)| next.since(last).as_secs());
        apart.is_some_and(|s| (3590..3610).contains(&s))
    });
    let mut all = ids(&place);
    all.sort();
    assert_eq!(
        all,
        [
            "dir:inbox#1/opened 1",
            "dir:second#5/opened 1",
            "dir:second#6/opened 1"
        ]
    );
    assert_eq!(place.status()["pid"], poller.pid());
    stopped(&place, poller);
    assert_eq!(place.entries("poller.started").len(), 1);
    assert_eq!(place.entries("poller.stopped").len(), 1);
    assert!(place.entries("config.rejected").is_empty());
}

/// Given a running poller, when its config is broken, gone, or names another state directory,
/// then that is reported once with the reason, `status` says it, the config before is
/// kept, and putting it back is quiet (SPEC section 4).
#[test]
fn what_cannot_be_used_is_reported_once_and_the_config_before_is_kept() {
    let place = Place::new(LOG);
    let right = fs::read_to_string(place.path("idempoll.json")).expect("it is there");
    let poller = place.start();
    let moved = right.replace("\"state\"", "\"elsewhere\"");
    let wrong = right.replace("interval_seconds", "interval_second");
    // `status` reads the config too, to find the state directory.
    let status = || {
        let said = place.run(&["status", "--json", "--state-dir", "state"]);
        serde_json::from_str::<Value>(&said.stdout).unwrap_or_default()
    };
    let cycles = |n: u64| {
        for _ in 0..n {
            let before = status()["last_cycle"]["at"].clone();
            place.until("another cycle", || status()["last_cycle"]["at"] != before);
        }
    };
    let mut number = 0;
    for (n, (text, part)) in [
        (Some("{ \"sources\": [".to_string()), "is never closed"),
        (Some(wrong), "did you mean 'interval_seconds'?"),
        (None, "no such file"),
        (Some(moved), "cannot change state_dir from"),
    ]
    .into_iter()
    .enumerate()
    {
        match text {
            Some(text) => write(&place, &text),
            None => fs::remove_file(place.path("idempoll.json")).expect("it is there"),
        }
        place.until("it is reported", || {
            place.entries("config.rejected").len() > n
        });
        let rejected = place.entries("config.rejected");
        let why = rejected[n]["reason"].as_str().unwrap_or_default();
        assert!(why.contains(part), "{why}");
        assert_eq!(status()["config_error"], rejected[n]["reason"]);
        assert_eq!(status()["pid"], poller.pid());
        // The config before goes on, and nothing is said a second time.
        number += 1;
        place.item(number, 0);
        place.until("the next is delivered", || {
            ids(&place).len() as u64 == number
        });
        cycles(2);
        assert_eq!(place.entries("config.rejected").len(), n + 1);
    }
    let said = place.run(&["status", "--state-dir", "state"]).expect(0);
    assert!(
        said.stdout
            .contains("the config was changed and is not used"),
        "{}",
        said.stdout
    );
    write(&place, &right);
    place.until("it is right again", || status()["config_error"].is_null());
    assert!(place.entries("config.reloaded").is_empty());
    assert!(!place.path("elsewhere").exists());
    // The same edit once more is news again.
    write(&place, "{");
    place.until("it is reported", || {
        place.entries("config.rejected").len() == 5
    });
    write(&place, &right);
    stopped(&place, poller);
}

/// Given a poller with flags, when its config changes, then the flags still win (SPEC section 3).
#[test]
fn flags_win_over_a_changed_config() {
    let script = r#"echo "$IDEMPOLL_ATTEMPT" >> tries.log; exit 1"#;
    let place = Place::new(script);
    let mut config = place.config(script);
    config["interval_seconds"] = 3600.into();
    config["state_dir"] = "not-this-one".into();
    place.configure(&config);
    let mut command = place.command(&[
        "start",
        "--interval",
        "1",
        "--max-retries",
        "0",
        "--state-dir",
        "state",
    ]);
    let mut poller = place.spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    place.until("it runs", || !place.entries("poller.started").is_empty());
    config["interval_seconds"] = 1800.into();
    config["max_retries"] = 7.into();
    config["state_dir"] = "nor-this-one".into();
    config["drain_seconds"] = 5.into();
    reload(&place, &config);
    place.item(1, 0);
    place.until(
        "it is given up after one try, within the interval of the flag",
        || !place.entries("poll.gave_up").is_empty(),
    );
    assert_eq!(place.lines("tries.log"), ["1"]);
    poller.signal("TERM");
    assert!(poller.ended().success());
    assert!(place.entries("config.rejected").is_empty());
}

/// Given a running command, when the looks of the config change, then it is not even taken up
/// again; when its meaning changes, then it is adopted and runs on undisturbed, once,
/// and no dead child is left when it has ended (R2.7, R6.3, C075).
#[test]
fn r6_3_a_running_command_outlives_a_change_of_the_config() {
    let place = Place::new(GATED);
    place.item(1, 1);
    let poller = place.start();
    place.until("the command runs", || place.lines("begun.log").len() == 1);
    let mut config = place.config(GATED);
    write(&place, &format!("// a word\n{config}"));
    place.until("that is noted", || {
        place.entries("config.reloaded").len() == 1
    });
    assert_eq!(place.entries("config.reloaded")[0]["changed"], json!([]));
    another_cycle(&place);
    assert!(
        place.entries("dispatch.adopted").is_empty(),
        "{}",
        place.story()
    );
    for round in 1..=3u64 {
        config["max_retries"] = (3 + round).into();
        reload(&place, &config);
        place.until("it is adopted", || {
            place.entries("dispatch.adopted").len() as u64 == round
        });
    }
    // One that ends in the moment between two lives is not lost either.
    place.write("go", "");
    config["max_retries"] = 0.into();
    reload(&place, &config);
    place.until("both are delivered", || {
        ids(&place).len() == 2 && place.pending() == 0
    });
    assert_eq!(
        ids(&place),
        ["dir:inbox#1/opened 1", "dir:inbox#1/comment/1 1"]
    );
    assert_eq!(place.lines("begun.log").len(), 2);
    place.until("its runners are collected", || {
        children(poller.pid()).is_empty()
    });
    stopped(&place, poller);
    assert!(place.entries("poll.interrupted_delivery").is_empty());
}

/// Given much to deliver and a slow command, when the config changes again and again
/// meanwhile, then each delivery is made exactly once, in order, in its first try (R5.2, R5.3, R6.1, R6.2).
#[test]
fn r6_2_changes_under_load_lose_nothing_and_repeat_nothing() {
    let script = r#"sleep 0.0$((IDEMPOLL_ATTEMPT + 3)); echo "$IDEMPOLL_DELIVERY_ID $IDEMPOLL_ATTEMPT" >> ids.log"#;
    let place = Place::new(script);
    let (items, comments) = (60, 3);
    for number in 1..=items {
        place.item(number, comments);
    }
    let poller = place.start();
    let mut config = place.config(script);
    let mut dice = Dice(9);
    let rounds = scaled(5);
    for round in 0..rounds {
        config["max_retries"] = (4 + round).into();
        config["max_concurrent_deliveries"] = (1 + dice.roll(4)).into();
        reload(&place, &config);
    }
    config["max_concurrent_deliveries"] = 8.into();
    reload(&place, &config);
    let all = (items * (comments + 1)) as usize;
    place.until("all is delivered", || {
        ids(&place).len() >= all && place.pending() == 0
    });
    for number in 1..=items {
        let item = format!("dir:inbox#{number}/");
        let its: Vec<String> = ids(&place)
            .iter()
            .filter_map(|line| line.strip_prefix(&item).map(str::to_string))
            .collect();
        let wanted = ["opened 1", "comment/1 1", "comment/2 1", "comment/3 1"];
        assert_eq!(its, wanted, "{item}");
    }
    assert_eq!(ids(&place).len(), all);
    stopped(&place, poller);
    for kind in ["dispatch.failed", "poll.interrupted_delivery"] {
        assert!(place.entries(kind).is_empty(), "{kind}");
    }
}

/// Given a source with a delivery that waits, when it is removed from the config, then that
/// waits as it would after a restart, and is made once the source is back (R5.3, R6.2).
#[test]
fn r5_3_what_waits_for_a_removed_source_waits_for_its_return() {
    let script = r#"echo "$IDEMPOLL_DELIVERY_ID $IDEMPOLL_ATTEMPT" >> ids.log; test -e go"#;
    let place = Place::new(script);
    let mut config = place.config(script);
    config["retry_seconds"] = 3600.into();
    place.configure(&config);
    fs::create_dir(place.path("other")).expect("a directory");
    place.item(1, 0);
    let poller = place.start();
    place.until("it was tried", || {
        !place.entries("dispatch.failed").is_empty()
    });
    let mut without = config.clone();
    without["retry_seconds"] = 0.into();
    without["sources"][0]["name"] = "other".into();
    without["sources"][0]["path"] = "other".into();
    reload(&place, &without);
    place.write("go", "");
    another_cycle(&place);
    assert_eq!(ids(&place).len(), 1, "it waits");
    assert_eq!(place.status()["pending"], 1);
    // It would be due in an hour: a shorter pause in the config counts at once.
    config["retry_seconds"] = 0.into();
    reload(&place, &config);
    place.until("it is delivered", || place.pending() == 0);
    assert_eq!(
        ids(&place),
        ["dir:inbox#1/opened 1", "dir:inbox#1/opened 2"]
    );
    stopped(&place, poller);
}

/// Given a poller that was killed after its config changed, when it is started again, then
/// it starts with that config, and nothing comes twice (R1.4, R6.2).
#[test]
fn r1_4_a_kill_after_a_change_needs_no_cleaning_up() {
    let place = Place::new(LOG);
    place.item(1, 0);
    let poller = place.start();
    place.until("it is delivered", || {
        place.pending() == 0 && ids(&place).len() == 1
    });
    let mut config = place.config(LOG);
    config["max_retries"] = 9.into();
    reload(&place, &config);
    poller.kill();
    place.once().expect(0);
    assert_eq!(ids(&place).len(), 1);
    // And `--once` never looks twice.
    let mut command = place.command(&["start", "--once", "-q"]);
    place.item(2, 0);
    config["sinks"]["log"]["command"] = json!(["sh", "-c", GATED]);
    place.configure(&config);
    let mut once = place.spawn(command.stdout(Stdio::null()));
    place.until("it is at work", || place.lines("begun.log").len() == 1);
    write(&place, "{");
    place.write("go", "");
    assert!(once.ended().success());
    assert!(place.entries("config.rejected").is_empty());
}
