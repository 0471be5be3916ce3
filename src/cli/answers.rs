//! Tests: what the commands that read answer over a real state directory.

use super::answer;
use super::args::{self, Args};
use super::out::tests::{captured, text};
use crate::engine::delivery::{EventKind, Key, Slug};
use crate::engine::entry::Entry;
use crate::engine::host::Host;
use crate::engine::item::ItemRef;
use crate::engine::record::{
    Disposition, Event, GaveUp, Known, Queue, Record, Resolved, Seen, Standing, Stored, Tries,
};
use crate::engine::time::Time;
use crate::error::Error;
use crate::exit::Exit;
use crate::scratch::Scratch;
use crate::store::journal::Journal;
use crate::store::requests;
use crate::store::run_info::{LastCycle, RunInfo, SourceInfo};
use crate::store::{Layout, Ledger};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::path::Path;

const HOSTILE: &str = "Nice\u{1b}]52;c;x\u{7} \u{202e}gnp\r\nlevel=info forged";

fn at(text: &str) -> Time {
    text.parse().expect("a time")
}

/// A record with one event in every state there is.
fn rich() -> Record {
    let key = |k: &str| Key(k.into());
    let mut known = Known::default();
    for (k, disposition) in [
        ("comment/1", Disposition::Baseline),
        ("opened", Disposition::Queued),
        ("comment/2", Disposition::Refused),
        ("comment/3", Disposition::Queued),
        ("comment/4", Disposition::Queued),
        ("comment/5", Disposition::Queued),
        ("comment/6", Disposition::Queued),
    ] {
        known.add(key(k), disposition);
    }
    let event = |k: &str| Event {
        key: key(k),
        kind: EventKind::Comment,
        at: at("2026-08-05T10:00:00Z"),
        payload: "{}".into(),
        webhook: None,
    };
    let mut agent = Queue {
        delivered: 1,
        last_delivery_at: Some(at("2026-08-05T11:00:00Z")),
        ..Queue::default()
    };
    agent.pending.extend([3, 4]);
    agent.tries.insert(
        3,
        Tries {
            begun: 2,
            attempts: 1,
            interruptions: 1,
            in_flight: true,
            last_error: Some("exit status 1".into()),
            ..Tries::default()
        },
    );
    agent.gave_up.insert(
        5,
        GaveUp {
            at: at("2026-08-05T12:00:00Z"),
            reason: "exit status 3\u{1b}[2J".into(),
            version: "0.1.0".into(),
            attempts: 4,
            interruptions: 0,
            begun: 4,
        },
    );
    Record {
        item: "github:octo/API#7".parse().expect("a ref"),
        source: "api".into(),
        seen: Seen {
            title: HOSTILE.into(),
            author: Some("octocat".into()),
            labels: vec!["auto".into()],
            url: Some("https://github.com/octo/API/issues/7".into()),
            ..Seen::default()
        },
        since: at("2026-08-05T09:00:00Z"),
        latest: at("2026-08-05T09:00:00Z"),
        openings: 1,
        standing: Standing::Active,
        ended_at: None,
        known,
        events: [
            (3, event("comment/3")),
            (4, event("comment/4")),
            (5, event("comment/5")),
        ]
        .into(),
        next_seq: 7,
        sinks: [("agent".to_string(), agent)].into(),
        history: vec![Resolved {
            key: key("opened"),
            sink: "agent".into(),
            seq: 1,
            at: at("2026-08-05T11:00:00Z"),
            begun: 1,
            attempts: 0,
            interruptions: 0,
        }],
        extra: Map::new(),
        stored: Stored::default(),
    }
}

/// A record of an item that ended, with nothing left to do.
fn plain() -> Record {
    Record {
        item: "dir:inbox#1".parse().expect("a ref"),
        source: "inbox".into(),
        seen: Seen {
            title: "a".repeat(59) + "漢字 🐟",
            ..Seen::default()
        },
        standing: Standing::Merged,
        known: Known::default(),
        events: [].into(),
        sinks: [].into(),
        history: Vec::new(),
        since: Time::ZERO,
        ..rich()
    }
}

/// A state directory.
struct World(Scratch);

impl World {
    fn new(records: Vec<Record>) -> World {
        let world = World(Scratch::new());
        let mut ledger = Ledger::open(Layout::new(&*world.0)).expect("a new ledger");
        for mut record in records {
            let slug = Slug::new(&record.source, &record.item);
            ledger.save(&slug, &mut record).expect("it saves");
        }
        world
    }

    fn try_run(&self, line: &str) -> (Result<Exit, Error>, String) {
        let line = format!("{line} --state-dir {}", self.0.display());
        let args: Args = args::read(line.split(' ').map(OsString::from)).expect("a right line");
        let (mut out, bytes) = captured();
        let result = answer(&args, &mut out);
        out.finish().expect("memory takes it");
        (result, text(&bytes))
    }

    fn run(&self, line: &str, exit: Exit) -> String {
        let (result, text) = self.try_run(line);
        assert_eq!(result, Ok(exit), "{line}: {text}");
        text
    }

    fn json(&self, line: &str, exit: Exit) -> Value {
        serde_json::from_str(&self.run(line, exit)).expect("JSON")
    }

    fn refused(&self, line: &str) -> String {
        let (result, text) = self.try_run(line);
        assert_eq!(text, "", "{line}");
        result.expect_err(line).to_string()
    }
}

fn keys(value: &Value) -> Vec<&str> {
    let object = value.as_object().expect("an object");
    object.keys().map(String::as_str).collect()
}

#[test]
fn items_lists_what_is_known_and_what_is_unfinished() {
    let world = World::new(vec![rich(), plain()]);
    let all = world.json("items --json", Exit::Done);
    assert_eq!(
        all[1],
        json!({
            "ref": "github:octo/API#7", "source": "api", "title": HOSTILE, "state": "open",
            "pending": 2, "gave_up": 1, "delivered": 1,
            "last_delivery_at": "2026-08-05T11:00:00.000Z",
        })
    );
    assert_eq!(all[0]["ref"], "dir:inbox#1");
    assert_eq!(all[0]["state"], "merged");
    for line in [
        "items --json --pending",
        "items --json --gave-up",
        "items --json --pending --gave-up",
    ] {
        let some = world.json(line, Exit::Done);
        assert_eq!(some.as_array().map(Vec::len), Some(1), "{line}");
        assert_eq!(some[0]["ref"], "github:octo/API#7");
    }
}

/// Given an item with a hostile title, when it is listed and shown for people,
/// then every line is ours and harmless; long titles are cut between characters (C052, C054).
#[test]
fn c052_upstream_text_forges_no_line() {
    let world = World::new(vec![rich(), plain()]);
    let list = world.run("items", Exit::Done);
    assert_eq!(list.lines().count(), 3, "{list}");
    assert!(list.contains("\\x1b]52;c;x\\x07 \\u{202e}gnp\\r\\nlevel=info forged"));
    assert!(list.contains(&("a".repeat(59) + "…\n")), "{list}");
    let sheet = world.run("show github:octo/api#7", Exit::Done);
    for text in [list, sheet] {
        assert!(
            !text.contains(|c| c != '\n' && crate::terminal::is_unseen(c)),
            "{text:?}"
        );
        assert!(!text.lines().any(|l| l.starts_with("level=info")), "{text}");
    }
}

#[test]
fn show_tells_how_each_event_stands() {
    let world = World::new(vec![rich()]);
    let sheet = world.json("show GitHub:Octo/api#7 --json", Exit::Done);
    assert_eq!(sheet["ref"], "github:octo/API#7");
    let lines = sheet["deliveries"].as_array().expect("a list");
    let told: Vec<(&str, &str, Option<&str>)> = lines
        .iter()
        .map(|l| {
            (
                l["key"].as_str().expect("a key"),
                l["status"].as_str().expect("a status"),
                l["sink"].as_str(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("comment/1", "baseline", None),
            ("opened", "delivered", Some("agent")),
            ("comment/2", "refused", None),
            ("comment/3", "running", Some("agent")),
            ("comment/4", "pending", Some("agent")),
            ("comment/5", "gave_up", Some("agent")),
            ("comment/6", "delivered", None),
        ]
    );
    assert_eq!(lines[3]["delivery_id"], "github:octo/API#7/comment/3");
    assert_eq!(
        (&lines[3]["attempts"], &lines[3]["interruptions"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(lines[5]["last_error"], "exit status 3\u{1b}[2J");
    for key in [
        "attempts",
        "interruptions",
        "sink",
        "next_attempt_at",
        "last_error",
    ] {
        assert!(lines.iter().all(|l| l.get(key).is_some()), "{key}");
    }
    let e = world.refused("show dir:inbox#9");
    assert_eq!(e, "dir:inbox#9 is not known");
}

#[test]
fn one_item_in_two_sources_is_shown_for_both() {
    let other = Record {
        source: "other".into(),
        ..rich()
    };
    let world = World::new(vec![rich(), other]);
    let text = world.run("show github:octo/api#7", Exit::Done);
    assert!(
        text.contains("source api\n") && text.contains("source other\n"),
        "{text}"
    );
}

#[test]
fn a_record_that_cannot_be_read_hides_no_other() {
    let world = World::new(vec![rich(), plain()]);
    let file = Layout::new(&*world.0).items().join("inbox~1.json");
    std::fs::write(&file, "{").expect("our own file");
    let (result, text) = world.try_run("items");
    let e = result.expect_err("one is missing");
    assert_eq!(e.to_string(), "1 record could not be read");
    assert!(text.contains("github:octo/API#7"), "{text}");
    assert!(world.refused("show dir:inbox#1").contains("damaged"));
}

/// Given a state directory nobody holds, when it is asked for, then the answer
/// has every key there is, and the exit code tells the cases apart (R1.7).
#[test]
fn status_tells_not_running_from_dead() {
    let world = World::new(vec![rich()]);
    let run = RunInfo {
        version: 1,
        pid: 4711,
        last_cycle: Some(LastCycle {
            at: at("2026-08-05T11:00:00Z"),
            items: 3,
            delivered: 1,
            ..LastCycle::default()
        }),
        sources: vec![SourceInfo {
            name: "api".into(),
            error: Some("no answer\nforged".into()),
            failing_since: Some(at("2026-08-05T11:00:00Z")),
            ..SourceInfo::default()
        }],
        ..RunInfo::default()
    };
    run.write(&world.0).expect("it writes");
    let report = world.json("status --json", Exit::NotRunning);
    let mut names = keys(&report);
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "config",
            "config_error",
            "gave_up",
            "hosts",
            "last_cycle",
            "next_cycle_at",
            "pending",
            "pid",
            "running",
            "sources",
            "started_at",
            "state_dir",
            "store_error",
            "version",
        ]
    );
    assert_eq!(report["running"], false);
    assert_eq!(report["pid"], Value::Null);
    assert_eq!(
        (&report["pending"], &report["gave_up"]),
        (&json!(2), &json!(1))
    );
    for key in ["at", "items", "delivered", "failed", "interrupted"] {
        assert!(report["last_cycle"].get(key).is_some(), "{key}");
    }
    for key in [
        "name",
        "ok",
        "error",
        "failing_since",
        "items",
        "last_listing_at",
    ] {
        assert!(report["sources"][0].get(key).is_some(), "{key}");
    }
    let text = world.run("status", Exit::NotRunning);
    assert!(text.starts_with("not running\n"), "{text}");
    assert!(
        text.contains("failing since 2026-08-05T11:00:00Z: no answer\\nforged"),
        "{text}"
    );

    std::fs::write(world.0.join("poll.pid"), "4711\n").expect("a pidfile");
    let text = world.run("status", Exit::Failed);
    assert!(
        text.starts_with("not running: the last poller died"),
        "{text}"
    );
    assert!(world.0.join("poll.pid").exists(), "looking changes nothing");
    let gone = World(Scratch::new());
    std::fs::remove_dir_all(&*gone.0).expect("our own directory");
    assert!(world_is_untouched(&gone.0, || drop(
        gone.run("status", Exit::NotRunning)
    )));
}

fn world_is_untouched(dir: &Path, look: impl FnOnce()) -> bool {
    look();
    !dir.exists()
}

/// Given what the last poller said of hosts, when it is asked for, then it is shown with each key, a wait only
/// while it stands, a token only by its name, and tokens told apart where there are several.
#[test]
fn the_rate_limits_on_record_are_shown() {
    let world = World::new(Vec::new());
    let known = |host: &str, token: &str| Host {
        host: host.into(),
        token: token.into(),
        limit: Some(5000),
        remaining: Some(10),
        reset_at: Some(at("2026-08-05T10:40:00Z")),
        not_before: Some(at("2026-08-05T10:40:01Z")),
        requests_last_cycle: 3,
        counted_last_cycle: 1,
        ..Host::default()
    };
    let hosts = [
        ("api.github.com", "anonymous"),
        ("api.github.com", "3fa9"),
        ("forge", "3fa9"),
    ];
    let run = RunInfo {
        version: 1,
        pid: 4711,
        hosts: hosts.map(|(host, token)| known(host, token)).to_vec(),
        ..RunInfo::default()
    };
    run.write(&world.0).expect("it writes");
    let report = world.json("status --json", Exit::NotRunning);
    assert_eq!(
        report["hosts"][0],
        json!({"host": "api.github.com", "token": "anonymous", "limit": 5000, "remaining": 10,
               "reset_at": "2026-08-05T10:40:00.000Z", "not_before": null, "requests_last_cycle": 3,
               "counted_last_cycle": 1, "next_listing_at": null})
    );
    let text = world.run("status", Exit::NotRunning);
    for line in [
        "host        api.github.com (anonymous): 3 requests a cycle, 1 counted; 5000 anew since 2026-08-05T10:40:00Z\n",
        "host        api.github.com (3fa9): ",
        "host        forge: ",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn events_are_shown_as_asked() {
    let world = World::new(Vec::new());
    let mut journal = Journal::open(Layout::new(&*world.0));
    let item: ItemRef = "dir:inbox#7".parse().expect("a ref");
    for entry in [
        Entry::new(at("2026-08-05T10:00:00Z"), "poll.cycle").with("items", 3),
        Entry::new(at("2026-08-05T10:00:01Z"), "dispatch.failed")
            .with("ref", item.to_string())
            .with("reason", HOSTILE),
    ] {
        journal.append(&entry).expect("it appends");
    }
    let text = world.run("events", Exit::Done);
    assert_eq!(text.lines().count(), 2, "{text}");
    let json = world.json("events --json --type dispatch.*", Exit::Done);
    assert_eq!(json["reason"], HOSTILE);
    for (line, lines) in [
        ("events --since 2026-08-05T10:00:01Z", 1),
        ("events --since 2026-08-05T10:00:02Z", 0),
        ("events --item dir:inbox#7", 1),
        ("events --item dir:inbox#8", 0),
        ("events --type poll.*", 1),
    ] {
        assert_eq!(world.run(line, Exit::Done).lines().count(), lines, "{line}");
    }
}

#[test]
fn retry_asks_only_for_what_was_given_up() {
    let world = World::new(vec![rich(), plain()]);
    assert_eq!(
        world.refused("retry dir:inbox#1"),
        "nothing of dir:inbox#1 was given up"
    );
    assert_eq!(
        world.refused("retry github:octo/api#7 comment/4"),
        "github:octo/API#7/comment/4 was not given up"
    );
    assert_eq!(
        world.refused("retry dir:inbox#2"),
        "dir:inbox#2 is not known"
    );
    assert!(
        !requests::any(&Layout::new(&*world.0)),
        "nothing was asked for"
    );
    let idle = World::new(vec![plain()]);
    assert_eq!(
        idle.run("retry --all", Exit::Done),
        "nothing was given up\n"
    );
}

/// Given a delivery given up and no poller, when a retry is asked for, then it
/// waits again with its full budget, and the next retry finds nothing (R6.7).
#[test]
fn r6_7_retry_rearms_without_a_poller() {
    let world = World::new(vec![rich()]);
    let config = world.0.join("c.json");
    let text = r#"{ "authorized_users": ["octocat"],
        "sources": [{ "name": "api", "provider": "github", "repos": ["octo/API"], "sinks": ["agent"] }],
        "sinks": { "agent": { "type": "exec", "command": ["false"] } } }"#;
    std::fs::write(&config, text).expect("a config");
    let line = format!(
        "retry github:octo/api#7 comment/5 --config {}",
        config.display()
    );
    assert_eq!(
        world.run(&line, Exit::Done),
        "1 delivery will be tried again at the next start\n"
    );
    let items = world.json("items --json", Exit::Done);
    assert_eq!(
        (&items[0]["pending"], &items[0]["gave_up"]),
        (&json!(3), &json!(0))
    );
    let sheet = world.json("show github:octo/api#7 --json", Exit::Done);
    assert_eq!(sheet["deliveries"][5]["status"], "pending");
    assert_eq!(sheet["deliveries"][5]["attempts"], 0);
    assert_eq!(
        world.refused(&line),
        "github:octo/API#7/comment/5 was not given up"
    );
    let log = world.json("events --json --type poll.rearmed", Exit::Done);
    assert_eq!(log["delivery_id"], "github:octo/API#7/comment/5");
}
