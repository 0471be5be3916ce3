//! Cycles that are cut short, by a stop, a kill or a failure, conclude nothing: the
//! real program, over a directory and over a tracker.

use crate::world::forge::{Forge, Reply};
use crate::world::github::Repo;
use crate::world::program::{Place, scaled, seed};
use crate::world::sim::Dice;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Keeps what it was given, in one write: others do so at the same time.
const KEEP: &str = r#"said=$(cat); printf '%s\n' "$said" >> payloads.log"#;

/// The ids of everything that was delivered about an end.
fn ends(place: &Place) -> Vec<String> {
    let payloads = place.payloads();
    let ends = payloads.iter().filter(|p| p["event"] == "closed");
    ends.map(|p| p["delivery_id"].as_str().unwrap_or_default().to_string())
        .collect()
}

/// Nothing was concluded: nothing delivered, nothing in the log, and in no record.
fn assert_nothing_ended(place: &Place, items: usize, after: &str) {
    assert_eq!(ends(place), Vec::<String>::new(), "after {after}");
    let detected = place.entries("poll.closure_detected");
    assert!(detected.is_empty(), "after {after}: {detected:?}");
    let said = place.run(&["items", "--json"]).expect(0).stdout;
    let said: Vec<Value> = serde_json::from_str(&said).expect("JSON");
    let open = said.iter().filter(|item| item["state"] == "open").count();
    assert_eq!((said.len(), open), (items, items), "after {after}");
}

/// What is known of each feed, its cursor included.
fn feeds(place: &Place) -> BTreeMap<PathBuf, Vec<u8>> {
    let dir = fs::read_dir(place.path("state/sources")).expect("a poller ran");
    let paths = dir.flatten().map(|e| e.path()).filter(|p| p.is_file());
    paths
        .map(|p| (p.clone(), fs::read(p).unwrap_or_default()))
        .collect()
}

/// Given a directory from which an item has vanished, when its cycles are stopped, killed in
/// mid-listing or find no such directory, however often, then nothing is concluded and no cursor moves;
/// and two complete listings then conclude that the vanished one is gone, and no other (R3.4, R4.2, R4.3).
#[test]
fn r4_2_cut_short_over_a_directory_nothing_ends() {
    let place = Place::new(KEEP);
    let mut config = place.config(KEEP);
    config["max_concurrent_deliveries"] = 8.into();
    place.configure(&config);
    let items = 60;
    for number in 1..=items {
        place.item(number as u64, 0);
    }
    place.once().expect(0);
    assert_eq!(place.payloads().len(), items);
    let vanished = place.path("inbox/7.json");
    let kept = fs::read(&vanished).expect("it is there");
    fs::remove_file(&vanished).expect("it is there");

    let before = feeds(&place);
    let away = place.path("away");
    fs::rename(place.path("inbox"), &away).expect("a rename");
    for instead in ["nothing", "an empty directory", "a file"] {
        match instead {
            "an empty directory" => fs::create_dir(place.path("inbox")).expect("room"),
            "a file" => place.write("inbox", "not a directory"),
            _ => {}
        }
        for _ in 0..scaled(3) {
            place.once().expect(1);
        }
        assert_nothing_ended(&place, items, instead);
        assert_eq!(feeds(&place), before, "{instead}");
        let _ =
            fs::remove_dir(place.path("inbox")).or_else(|_| fs::remove_file(place.path("inbox")));
    }
    fs::rename(&away, place.path("inbox")).expect("a rename");

    let seed = seed();
    let (mut dice, mut cut, mut comments, mut within) = (Dice(seed | 1), 0, 0, 100_000);
    while cut < scaled(12) {
        // Something to read and to record in every file.
        comments += 1;
        for number in (1..=items as u64).filter(|n| *n != 7) {
            place.item(number, comments);
        }
        let before = feeds(&place);
        let mut poller = place.start_unseen();
        std::thread::sleep(Duration::from_micros(dice.roll(within)));
        if dice.roll(2) == 0 {
            poller.kill();
        } else {
            place.run(&["stop", "--if-running"]).expect(0);
            // It may not have been so far that `stop` could find it.
            poller.signal("TERM");
            poller.ended();
        }
        assert_nothing_ended(&place, items, &format!("seed {seed}, {cut} cut short"));
        if feeds(&place) == before {
            (cut, within) = (cut + 1, within + within / 4);
            continue;
        }
        within = (within / 2).max(1_000);
        // It was complete, and missed the item once: it must not be missed twice in a row.
        fs::write(&vanished, &kept).expect("room");
        place.once();
        fs::remove_file(&vanished).expect("just written");
    }

    place.once();
    assert_nothing_ended(&place, items, "one complete listing");
    place.once();
    place.until("all is delivered", || {
        place.once();
        place.pending() == 0
    });
    assert_eq!(ends(&place), ["dir:inbox#7/closed"], "seed {seed}");
    assert_eq!(
        place.payloads().len(),
        items + (items - 1) * comments as usize + 1
    );
}

/// How the tracker answers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mood {
    Well,
    /// The page of items with this number is answered like this.
    Broken(&'static str, Fault),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    ServerError,
    NotFound,
    Page,
    Object,
    Cut,
    Nothing,
    NeverEnds,
}

/// Given a tracker, when its listings fail on any page in any way, or are stopped or killed while they
/// wait for the second one, however often, then nothing is concluded and no cursor moves; and once
/// it answers again, nothing has ended but what is closed there (R3.4, R4.2, R4.3).
#[test]
fn r4_2_cut_short_over_a_tracker_nothing_ends() {
    let repo = Arc::new(Mutex::new(Repo::new()));
    let mood = Arc::new(Mutex::new(Mood::Well));
    let asked_for_second = Arc::new(Mutex::new(0));
    // More than a page of 100.
    let items = 120;
    for _ in 0..items {
        repo.lock().expect("unpoisoned").open();
    }
    let forge = Forge::start({
        let (repo, mood, seen) = (repo.clone(), mood.clone(), asked_for_second.clone());
        move |asked| {
            let page = asked.query("page").unwrap_or("1");
            let is_items = asked.path() == "/repos/octo/widgets/issues";
            if is_items && page == "2" {
                *seen.lock().expect("unpoisoned") += 1;
            }
            let well = repo.lock().expect("unpoisoned").answer(asked);
            match *mood.lock().expect("unpoisoned") {
                Mood::Broken(at, fault) if is_items && at == page => match fault {
                    Fault::ServerError => Reply::json("{}").status(500),
                    Fault::NotFound => Reply::json(r#"{"message":"Not Found"}"#).status(404),
                    Fault::Page => Reply::json("<html>Please log in.</html>")
                        .header("Content-Type", "text/html"),
                    Fault::Object => Reply::json("{}"),
                    Fault::Cut => well.cut(100),
                    Fault::Nothing => well.cut(0),
                    Fault::NeverEnds => well.dribble_all(Duration::from_secs(5)),
                },
                _ => well,
            }
        }
    });
    let place = Place::new(KEEP);
    let mut config = place.config(KEEP);
    config["max_concurrent_deliveries"] = 8.into();
    config["authorized_users"] = json!(["sam-rivera"]);
    config["sources"] = json!([{ "name": "forge", "provider": "github", "repos": ["octo/widgets"],
        "base_url": forge.url(), "sinks": ["log"], "watch_from": "2020-01-01T00:00:00Z" }]);
    place.configure(&config);
    let set = |m: Mood| *mood.lock().expect("unpoisoned") = m;
    // Everything changes upstream, so that the next listing has two pages again.
    let change = || {
        let mut repo = repo.lock().expect("unpoisoned");
        repo.now += 600;
        for number in 1..=items {
            repo.set(number, "title", format!("Now {number}").into());
        }
    };
    let all = items as usize;
    place.once().expect(0);
    assert_eq!(place.payloads().len(), all);
    place.once().expect(0);
    let before = feeds(&place);
    change();
    for page in ["1", "2"] {
        for fault in [
            Fault::ServerError,
            Fault::NotFound,
            Fault::Page,
            Fault::Object,
            Fault::Cut,
            Fault::Nothing,
        ] {
            set(Mood::Broken(page, fault));
            for _ in 0..scaled(3) {
                place.once().expect(1);
            }
            assert_nothing_ended(&place, all, &format!("{fault:?} on page {page}"));
            assert_eq!(feeds(&place), before, "{fault:?} on page {page}");
        }
    }
    set(Mood::Broken("2", Fault::NeverEnds));
    for round in 0..scaled(6) {
        *asked_for_second.lock().expect("unpoisoned") = 0;
        let mut poller = place.start();
        place.until("it waits for the second page", || {
            *asked_for_second.lock().expect("unpoisoned") > 0
        });
        if round % 2 == 0 {
            place.run(&["stop"]).expect(0);
            assert!(poller.ended().success());
            let cycles = place.entries("poll.cycle");
            assert_eq!(
                cycles.last().map(|c| &c["interrupted"]),
                Some(&Value::Bool(true))
            );
        } else {
            poller.kill();
        }
        assert_nothing_ended(&place, all, &format!("{round} interrupted"));
        assert_eq!(feeds(&place), before, "{round} interrupted");
    }

    set(Mood::Well);
    place.once().expect(0);
    for _ in 0..5 {
        // Only one changes, and so nothing is said about any other: that is no end.
        let mut repo = repo.lock().expect("unpoisoned");
        repo.now += 600;
        repo.set(1, "title", "Again".into());
        repo.now += 600;
        drop(repo);
        place.once().expect(0);
    }
    assert_nothing_ended(&place, all, "all was well again");
    repo.lock().expect("unpoisoned").close(7);
    // An end is told when a minute has passed over it.
    repo.lock().expect("unpoisoned").now += 60;
    place.once().expect(0);
    let closed = ends(&place);
    assert_eq!(closed.len(), 1);
    assert!(closed[0].ends_with("octo/widgets#7/closed"), "{closed:?}");
    assert_eq!(place.payloads().len(), all + 1);
}
