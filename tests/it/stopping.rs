//! A stop that has to wait, and what becomes of tries nobody knows the end of.

use crate::world::program::{Place, Running, children, lives};
use crate::world::slowness::Slowness;
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

/// Says who it is and which try, and ends when the test says so.
const GATED: &str = r#"echo "$$ $IDEMPOLL_DELIVERY_ID $IDEMPOLL_ATTEMPT" >> begun.log; while [ ! -e go -a -e idempoll.json ]; do sleep 0.01; done; echo "$IDEMPOLL_DELIVERY_ID" >> ids.log"#;

/// A poller with two deliveries that hang, two slots, and a third item.
fn hanging(test: &str, drain: u64) -> Option<(Place, Running, Slowness)> {
    let place = Place::new(GATED);
    let mut config = place.config(GATED);
    config["max_concurrent_deliveries"] = 2.into();
    config["drain_seconds"] = drain.into();
    place.configure(&config);
    let poller = place.start();
    // No program starts any more: deliveries hang half-begun, and nothing can cut them short.
    let slowness = Slowness::over(poller.pid(), "execve", test)?;
    for number in 1..=3 {
        place.item(number, 0);
    }
    place.until("two deliveries hang", || {
        place.entries("dispatch.queued").len() == 2 && children(poller.pid()).len() == 2
    });
    Some((place, poller, slowness))
}

fn records_are_whole(place: &Place) {
    for (path, content) in place.snapshot() {
        if path.starts_with(place.path("state/items")) && path.is_file() {
            let whole: Result<Value, _> = serde_json::from_slice(&content);
            assert!(whole.is_ok(), "{}", path.display());
        }
    }
}

/// Ends what hangs, and has the next poller deliver everything.
fn carried_on(place: &Place, hung: &[(u32, char)], slowness: Slowness) {
    for (pid, _) in hung {
        let _ = Command::new("kill")
            .args(["-s", "KILL", &pid.to_string()])
            .status();
    }
    drop(slowness);
    place.until("they are gone", || hung.iter().all(|(pid, _)| !lives(*pid)));
    place.write("go", "");
    place.once().expect(0);
    let mut ids = place.lines("ids.log");
    ids.sort();
    assert_eq!(
        ids,
        [
            "dir:inbox#1/opened",
            "dir:inbox#2/opened",
            "dir:inbox#3/opened"
        ],
        "{}",
        place.story()
    );
    // Unknown, and not handed back like what was never tried: their next try is the second.
    let tries = |id: &str| -> String {
        let begun = place.lines("begun.log");
        let line = begun.iter().find(|l| l.contains(id)).expect("it was begun");
        line.rsplit(' ').next().unwrap_or_default().to_string()
    };
    assert_eq!(place.lines("begun.log").len(), 3);
    assert_eq!(place.entries("poll.interrupted_delivery").len(), 2);
    let first_two = [tries("#1/"), tries("#2/")];
    assert_eq!(first_two, ["2", "2"]);
    assert_eq!(tries("#3/"), "1");
    assert!(
        place.entries("dispatch.failed").is_empty(),
        "no budget is spent"
    );
}

/// Given deliveries that hang, when a stop is asked for, then it says what it waits for and
/// that a second signal ends it; when that comes, then it ends at once with 130, records are
/// whole, and the tries in flight count as unknown, with no budget spent (R2.6, R5.4, C089, C109).
#[test]
fn c089_a_stop_that_waits_says_so_and_a_second_signal_ends_it() {
    let Some((place, mut poller, slowness)) = hanging("c089", 600) else {
        return;
    };
    let hung = children(poller.pid());
    poller.signal("INT");
    let said = || place.lines("stderr.log").join("\n");
    place.until("it says what it waits for", || {
        said().contains("a second signal ends it at once")
    });
    assert!(
        said().contains("dir:inbox#1/opened to log and 1 more"),
        "{}",
        said()
    );
    assert!(lives(poller.pid()));
    let since = Instant::now();
    poller.signal("INT");
    assert_eq!(poller.ended().code(), Some(130), "{}", place.story());
    assert!(
        since.elapsed() < Duration::from_secs(20),
        "{:?}",
        since.elapsed()
    );
    records_are_whole(&place);
    carried_on(&place, &hung, slowness);
}

/// Given deliveries that hang, when a stop is asked for and `drain_seconds` have passed, then
/// it ends by itself, says by its exit code that something was in hand, and nothing is lost
/// or repeated (R2.2, R5.4, C109).
#[test]
fn c109_a_stop_gives_up_after_drain_seconds_and_nothing_is_handed_back() {
    let Some((place, mut poller, slowness)) = hanging("c109", 1) else {
        return;
    };
    let hung = children(poller.pid());
    let since = Instant::now();
    place.run(&["stop", "--timeout", "60"]).expect(0);
    assert!(
        since.elapsed() < Duration::from_secs(20),
        "{:?}",
        since.elapsed()
    );
    assert_eq!(poller.ended().code(), Some(1), "{}", place.story());
    let said = place.lines("stderr.log").join("\n");
    assert!(
        said.contains("stopped, and left behind dir:inbox#"),
        "{said}"
    );
    records_are_whole(&place);
    carried_on(&place, &hung, slowness);
}

/// Given a command that runs when its poller is stopped or killed, when it dies with its runner and
/// without a word, then its try counts as unknown: no budget is spent, and it is made again under
/// the same delivery id (R5.4, C109).
#[test]
fn c109_a_try_nobody_knows_the_end_of_is_made_again_under_its_id() {
    for how in ["stop", "kill"] {
        let place = Place::new(GATED);
        place.item(1, 0);
        let mut poller = place.start();
        place.until("the command runs", || place.lines("begun.log").len() == 1);
        let runner = children(poller.pid())[0].0;
        let begun = place.lines("begun.log");
        let command: u32 = begun[0]
            .split(' ')
            .next()
            .expect("its pid")
            .parse()
            .expect("a pid");
        if how == "stop" {
            place.run(&["stop"]).expect(0);
            assert!(poller.ended().success());
        } else {
            poller.kill();
        }
        for pid in [runner, command] {
            assert!(lives(pid), "{how}");
            let _ = Command::new("kill")
                .args(["-s", "KILL", &pid.to_string()])
                .status();
            place.until("it is gone", || !lives(pid));
        }
        place.write("go", "");
        place.once().expect(0);
        let begun = place.lines("begun.log");
        let tries: Vec<&str> = begun
            .iter()
            .filter_map(|line| line.split_once(' ').map(|(_, rest)| rest))
            .collect();
        assert_eq!(
            tries,
            ["dir:inbox#1/opened 1", "dir:inbox#1/opened 2"],
            "{how}"
        );
        assert_eq!(place.lines("ids.log"), ["dir:inbox#1/opened"]);
        let interrupted = place.entries("poll.interrupted_delivery");
        assert_eq!(interrupted.len(), 1, "{how}: {}", place.story());
        assert_eq!(interrupted[0]["interruptions"], 1);
        assert!(place.entries("dispatch.failed").is_empty(), "{how}");
        assert!(place.entries("poll.attempts_released").is_empty(), "{how}");
    }
}
