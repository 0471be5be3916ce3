//! What reaches a command, how often, in which order, and what never does.

use crate::world::forge::{Forge, Reply};
use crate::world::github::Repo;
use crate::world::program::{Answer, LOG, Place, exists};
use idempoll::engine::time::Time;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

/// Appends what it was given, a line each.
const PAYLOADS: &str = "{ flock 1; cat; echo; } >> payloads.log";

fn ids(payloads: &[Value]) -> Vec<&str> {
    let ids = payloads.iter().map(|p| p["delivery_id"].as_str());
    ids.map(|id| id.expect("every payload has one")).collect()
}

fn comment(id: u64, author: &str, body: &str, at: &str) -> Value {
    json!({ "id": id.to_string(), "author": author, "body": body, "created_at": at })
}

/// The file `name` in `/proc/PID` format or as `env -0` prints it, as one text.
fn text(place: &Place, name: &str) -> String {
    let bytes = fs::read(place.path(name)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Given an author who is not authorized, or nobody, when items and comments of theirs come,
/// then they have no effect, now and later, and the log says why; letter case does not count,
/// and a comment with the self marker is never delivered (R7.1, R7.2, C001, C047).
#[test]
fn r7_1_only_the_authorized_act() {
    let place = Place::new(PAYLOADS);
    let at = |s: u64| format!("2026-08-05T10:00:{s:02}Z");
    let mut own = json!({ "number": 1, "author": "OctoCat", "state": "open", "title": "Own", "created_at": at(0), "comments": [
        comment(1, "stranger", "do as I say", &at(1)),
        comment(2, "OCTOCAT", "do as I say", &at(2)),
        { "id": "3", "author": null, "body": "nobody says", "created_at": at(3) },
        comment(4, "octocat", "done <!-- idempoll --> by me", &at(4)),
        comment(5, "octocat2", "nearly", &at(5)),
        comment(6, "octocat", "last", &at(6)),
    ]});
    place.item_file(1, &own);
    for (number, author) in [(2, json!("stranger")), (3, Value::Null), (4, json!(""))] {
        let item = json!({ "number": number, "author": author, "state": "open", "comments": [
            comment(1, "stranger", "mine", &at(1)) ]});
        place.item_file(number, &item);
    }
    for _ in 0..2 {
        place.once().expect(0);
    }
    let wanted = [
        "dir:inbox#1/opened",
        "dir:inbox#1/comment/2",
        "dir:inbox#1/comment/6",
    ];
    assert_eq!(ids(&place.payloads()), wanted, "{}", place.story());
    let refused = place.entries("poll.unauthorized");
    let who = |key: &str| {
        refused
            .iter()
            .any(|e| e["ref"] == "dir:inbox#1" && e["key"] == key)
    };
    for key in ["comment/1", "comment/3", "comment/5"] {
        assert!(who(key), "{key}: {refused:?}");
    }
    // Nobody is authorized: nothing more happens, and the start warns.
    let mut config = place.config(PAYLOADS);
    config["authorized_users"] = json!([]);
    place.configure(&config);
    own["comments"]
        .as_array_mut()
        .expect("a list")
        .push(comment(7, "octocat", "in vain", &at(7)));
    place.item_file(1, &own);
    let said = place.once().expect(0);
    assert!(said.stderr.contains("authorized"), "{}", said.stderr);
    assert_eq!(place.payloads().len(), 3);
}

/// Given a title, body and comment full of what shells, terminals and file systems take for
/// commands, when they are delivered, then they reach the command on its standard
/// input as they are, no file appears, and neither its environment nor its arguments
/// hold any of it (R7.3, C049, C051, C052, C056).
#[test]
fn r7_3_hostile_text_is_only_text() {
    let script = r#"n=$(ls in.* 2> /dev/null | wc -l); cat > "in.$n"; env -0 > "env.$n"; cat /proc/$$/cmdline /proc/$PPID/cmdline > "argv.$n""#;
    let place = Place::new(script);
    let hostile = "HOSTILE $(touch pwned) `touch pwned` ; touch pwned\n\r\t'\"\\ \u{1b}[201~touch pwned\r\u{1b}]52;c;cHduZWQ=\u{7}\u{9b}201~\u{3}\u{4}\u{0}\u{7f}\u{202e}\u{1F600} %s %n {ref} {prompt_file} ../../pwned\n\n";
    let big = format!("{hostile}{}", "long ".repeat(60_000));
    place.item_file(1, &json!({ "number": 1, "title": hostile, "body": hostile, "author": "octocat", "state": "open",
        "labels": [hostile], "url": hostile, "created_at": "2026-08-05T10:00:00Z",
        "comments": [comment(1, "octocat", hostile, "2026-08-05T10:00:01Z"), comment(2, "octocat", &big, "2026-08-05T10:00:02Z"),
                     comment(3, hostile, hostile, "2026-08-05T10:00:03Z")] }));
    let said = place.run(&["start", "--once", "-v"]).expect(0);
    for n in 0..3 {
        let bytes = fs::read(place.path(&format!("in.{n}"))).expect("a delivery");
        let payload: Value = serde_json::from_slice(&bytes).expect("whole JSON");
        assert_eq!(payload["item"]["title"], hostile);
        match n {
            0 => assert_eq!(payload["item"]["body"], hostile),
            1 => assert_eq!(payload["comment"]["body"], hostile),
            _ => assert_eq!(payload["comment"]["body"], big.as_str()),
        }
        // As raw bytes, too, there is nothing in it that could move a cursor.
        assert!(!bytes.contains(&0x1b) && !bytes.contains(&b'\n'));
        let env = text(&place, &format!("env.{n}"));
        assert!(env.contains("IDEMPOLL_REF=dir:inbox#1"), "{env}");
        for (name, seen) in [("env", env), ("argv", text(&place, &format!("argv.{n}")))] {
            for part in ["HOSTILE", "touch", "pwned\n", "\u{1b}"] {
                assert!(!seen.contains(part), "{name} {n}: {seen:?}");
            }
        }
    }
    assert!(!exists(&place.path("in.3")));
    let mut todo = vec![place.dir.clone()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).expect("ours").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            assert!(
                !name.contains("pwned") && !name.contains("HOSTILE"),
                "{name}"
            );
            if entry.path().is_dir() {
                todo.push(entry.path());
            }
        }
    }
    // What people read has no control characters, and each entry stays one line.
    let shown = [
        said.stderr,
        place.run(&["show", "dir:inbox#1"]).expect(0).stdout,
        place.run(&["items"]).expect(0).stdout,
        place.run(&["events"]).expect(0).stdout,
        place
            .run(&["status"])
            .code
            .map(|_| String::new())
            .unwrap_or_default(),
    ];
    for text in shown {
        let odd = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(odd), "{text:?}");
    }
    for line in place.lines("state/log/events.jsonl") {
        let entry: Result<Value, _> = serde_json::from_str(&line);
        assert!(entry.is_ok(), "{line}");
    }
}

/// Given a token in an environment variable, when it is used, also in vain, then the tracker gets
/// it and nobody else: not the command's environment, not any file, not what is
/// printed, not the process list (R7.4, C131).
#[test]
fn r7_4_the_token_goes_to_the_tracker_and_nowhere_else() {
    const TOKEN: &str = "tok_5f3c9ab1e7d24680";
    let script = "{ flock 1; cat; echo; } >> payloads.log; env -0 >> env.log; cat /proc/$PPID/environ >> env.log; while [ ! -e go -a -e idempoll.json ]; do sleep 0.01; done";
    let place = Place::new(script);
    let mut repo = Repo::new();
    let number = repo.open();
    repo.now += 5;
    repo.comment(number);
    let mut listings = 0;
    let forge = Forge::start(move |asked| {
        let right = asked.header("authorization") == Some(&format!("Bearer {TOKEN}"));
        // All of the first listing is answered, and the next one begins like this.
        listings +=
            u32::from(asked.query("state") == Some("all") && asked.path().ends_with("/issues"));
        let seen = listings <= 1;
        match (right, seen) {
            (true, true) => repo.answer(asked),
            // An echo of the request, as some proxies give it.
            (true, false) => {
                Reply::json(json!({ "message": format!("no: Bearer {TOKEN}") })).status(401)
            }
            (false, _) => Reply::json("{}").status(418),
        }
    });
    let mut config = place.config(script);
    config["authorized_users"] = json!(["sam-rivera"]);
    config["sources"] = json!([{ "name": "forge", "provider": "github", "repos": ["octo/widgets"], "base_url": forge.url(),
        "watch_from": "2020-01-01T00:00:00Z", "token_env": "FORGE_TOKEN", "sinks": ["log"] }]);
    place.configure(&config);
    let mut command = place.command(&["start", "-v"]);
    let log = fs::File::create(place.path("stderr.log")).expect("a log");
    command.env("FORGE_TOKEN", TOKEN).env("KEPT", "as it was");
    let mut poller = place.spawn(command.stdout(Stdio::null()).stderr(log));
    place.until_up(&poller);
    place.until("the command runs", || exists(&place.path("env.log")));
    place.until("it was refused once", || {
        !place.entries("poll.source_error").is_empty()
    });
    let mut shown = String::new();
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["events", "--json"],
        &["items", "--json"],
        &["show", "github:octo/widgets#1", "--json"],
        &["check"],
    ] {
        let mut command = place.command(args);
        command.env("FORGE_TOKEN", TOKEN);
        let said = Answer::of(command.output().expect("it starts"));
        shown.push_str(&said.stdout);
        shown.push_str(&said.stderr);
    }
    assert!(shown.contains("401"), "{shown}");
    assert!(!shown.contains(TOKEN), "{shown}");
    let argv = fs::read(format!("/proc/{}/cmdline", poller.pid())).expect("it lives");
    assert!(!String::from_utf8_lossy(&argv).contains(TOKEN));
    place.write("go", "");
    place.until("all is delivered", || place.payloads().len() == 2);
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    assert!(
        forge
            .asked()
            .iter()
            .all(|a| a.header("authorization").is_some())
    );
    let env = text(&place, "env.log");
    assert!(
        env.contains("KEPT=as it was") && !env.contains("FORGE_TOKEN"),
        "{env}"
    );
    let mut todo = vec![place.dir.clone()];
    let mut files = 0;
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).expect("ours").flatten() {
            if entry.path().is_dir() {
                todo.push(entry.path());
            } else {
                let bytes = fs::read(entry.path()).expect("ours");
                let found = bytes.windows(TOKEN.len()).any(|w| w == TOKEN.as_bytes());
                assert!(!found, "{}", entry.path().display());
                files += 1;
            }
        }
    }
    assert!(files > 8);
}

/// Given two sinks, one of which always fails, when items with comments come, then the other gets
/// everything, each once, in order and without waiting; the failing one's queue is tried
/// in order by itself, and its budget is its own (R6.1, R6.6, C080, C110).
#[test]
fn r6_6_a_failing_sink_holds_up_neither_the_other_nor_other_items() {
    let place = Place::new("");
    let mut config = place.config(LOG);
    config["max_retries"] = 2.into();
    config["sources"][0]["sinks"] = json!(["log", "broken"]);
    config["sinks"]["broken"] = json!({ "type": "exec", "command": ["sh", "-c",
        r#"echo "$IDEMPOLL_DELIVERY_ID $IDEMPOLL_ATTEMPT" >> broken.log; case $IDEMPOLL_REF in *3) exit 0;; esac
            while [ $IDEMPOLL_ATTEMPT = 3 ] && [ ! -e go ]; do sleep 0.01; done; exit 7"#] });
    place.configure(&config);
    for number in 1..=3 {
        place.item(number, 3);
    }
    let _poller = place.start();
    place.until("the good sink has it all", || {
        place.lines("ids.log").len() == 12
    });
    // All the while the broken one tries, fails, and does not get past its first.
    assert!(place.entries("poll.gave_up").is_empty());
    place.write("go", "");
    place.until("the broken one has given up", || {
        place.entries("poll.gave_up").len() == 8
    });
    let wanted = |number: u64| -> Vec<String> {
        let keys = ["opened", "comment/1", "comment/2", "comment/3"];
        keys.iter()
            .map(|k| format!("dir:inbox#{number}/{k}"))
            .collect()
    };
    let of = |lines: &[String], number: u64| -> Vec<String> {
        let start = format!("dir:inbox#{number}/");
        lines
            .iter()
            .filter(|l| l.starts_with(&start))
            .cloned()
            .collect()
    };
    let (good, broken) = (place.lines("ids.log"), place.lines("broken.log"));
    for number in 1..=3 {
        assert_eq!(of(&good, number), wanted(number));
        let tries = if number == 3 { 1 } else { 3 };
        let each = wanted(number)
            .into_iter()
            .flat_map(|id| (1..=tries).map(move |t| format!("{id} {t}")));
        assert_eq!(of(&broken, number), each.collect::<Vec<_>>());
    }
    assert_eq!(place.lines("ids.log").len(), 12);
    for entry in place.entries("poll.gave_up") {
        assert_eq!(
            (&entry["sink"], &entry["attempts"]),
            (&json!("broken"), &json!(3))
        );
        assert!(
            entry["reason"].as_str().is_some_and(|r| r.contains('7')),
            "{entry}"
        );
    }
}

/// Given a command that says "not now" more often than there are retries, when it
/// is asked again, then nothing was spent, the bytes are the same each time, and it is
/// delivered in the end; a failure of the same command is counted (R6.7, C078).
#[test]
fn r6_7_not_now_spends_nothing_and_the_bytes_stay_the_same() {
    let script = r#"cat > "try.$IDEMPOLL_ATTEMPT"; if [ -e now ]; then exit 0; fi; exit 75"#;
    let place = Place::new(script);
    let mut config = place.config(script);
    config["max_retries"] = 1.into();
    place.configure(&config);
    place.item(1, 0);
    let once = |code| {
        let said = place.run(&["start", "--once"]).expect(code);
        (said.stdout, said.stderr)
    };
    let (said, complaint) = once(1);
    assert_eq!(
        said,
        "cycle: 1 item, 0 opened, 0 comments, 0 closed, 0 failed\n"
    );
    assert!(
        complaint.contains("dir:inbox#1/opened") && complaint.contains("not now"),
        "{complaint}"
    );
    for _ in 0..5 {
        // The title changes, what is delivered does not: it is the text as first read.
        place.item_file(1, &json!({ "number": 1, "title": "Edited", "author": "octocat", "state": "open", "created_at": "2026-08-05T09:00:00Z" }));
        let queued = place.entries("dispatch.queued").len();
        let poller = place.start();
        place.until("it is tried again", || {
            place.entries("dispatch.deferred").len() > queued
        });
        drop(poller);
    }
    assert!(place.entries("dispatch.failed").is_empty());
    assert!(place.entries("poll.gave_up").is_empty());
    place.write("now", "");
    let _poller = place.start();
    place.until("it is delivered", || {
        place.entries("dispatch.succeeded").len() == 1
    });
    let first = fs::read(place.path("try.1")).expect("the first try");
    assert!(!first.is_empty());
    // Not all that was queued was begun: some pollers were killed meanwhile.
    let queued = place.entries("dispatch.queued").len();
    let mut tries = 0;
    for n in 1..=queued {
        if let Ok(again) = fs::read(place.path(&format!("try.{n}"))) {
            assert_eq!(again, first, "try {n}");
            tries += 1;
        }
    }
    assert!(tries >= 7, "{tries} of {queued}");
}

/// Given deliveries that fail, when `--once` ends, then it exits 1 and lists them on stderr, its summary
/// counts them, and each start costs one try until the budget is spent; then the
/// next event goes ahead (R6.1, R6.7, C110).
#[test]
fn r6_7_once_tells_what_failed_and_the_budget_is_kept() {
    let script = r#"cat > /dev/null; echo "$IDEMPOLL_DELIVERY_ID" >> ids.log; [ "$IDEMPOLL_EVENT" = comment ]"#;
    let place = Place::new(script);
    let mut config = place.config(script);
    config["max_retries"] = 2.into();
    config["retry_seconds"] = json!(0.3);
    place.configure(&config);
    place.item(1, 1);
    place.item(2, 0);
    let said = place.run(&["start", "--once"]).expect(1);
    assert_eq!(
        said.stdout,
        "cycle: 2 items, 0 opened, 0 comments, 0 closed, 2 failed\n"
    );
    for id in ["dir:inbox#1/opened", "dir:inbox#2/opened"] {
        assert!(
            said.stderr.contains(&format!("{id} to log:")),
            "{}",
            said.stderr
        );
    }
    assert_eq!(place.lines("ids.log").len(), 2);
    // What is not due yet is left for a later one.
    place.until("both are given up", || {
        let failed = place.entries("dispatch.failed").len();
        let said = place.once();
        let due = place.entries("dispatch.failed").len() > failed;
        assert_eq!(said.code, Some(i32::from(due)), "{}", said.stderr);
        place.entries("poll.gave_up").len() == 2
    });
    place.once().expect(0);
    assert_eq!(place.entries("poll.gave_up").len(), 2, "{}", place.story());
    let tries = place.lines("ids.log");
    let count = |id: &str| tries.iter().filter(|t| *t == id).count();
    assert_eq!(
        (
            count("dir:inbox#1/opened"),
            count("dir:inbox#2/opened"),
            count("dir:inbox#1/comment/1")
        ),
        (3, 3, 1)
    );
    let position = |id: &str| tries.iter().rposition(|t| t == id);
    assert!(position("dir:inbox#1/opened") < position("dir:inbox#1/comment/1"));
    let said = place.run(&["start", "--once"]).expect(0);
    assert_eq!(
        said.stdout,
        "cycle: 2 items, 0 opened, 0 comments, 0 closed, 0 failed\n"
    );
}

/// Given comments that stand in the file in another order than they were made in, when they are
/// delivered, then it is in upstream's order (R6.1); edited or deleted
/// ones deliver nothing more (R6.5, C018, C035, C036, C037).
#[test]
fn r6_1_comments_arrive_in_upstream_order_and_edits_are_no_news() {
    let place = Place::new(PAYLOADS);
    let at = |s: u64| format!("2026-08-05T10:00:{s:02}Z");
    // 9 and 10 in the same second: numbers by value.
    let order = [(10, 4), (9, 4), (7, 9), (30, 1), (2, 6)];
    let file = |list: &[(u64, u64)], body: &str| {
        let comments: Vec<Value> = list
            .iter()
            .map(|(id, s)| comment(*id, "octocat", body, &at(*s)))
            .collect();
        json!({ "number": 1, "title": body, "author": "octocat", "state": "open", "created_at": at(0), "comments": comments })
    };
    place.item_file(1, &file(&order, "first"));
    place.once().expect(0);
    place.item_file(1, &file(&order, "edited"));
    place.once().expect(0);
    place.item_file(1, &file(&order[1..3], "first"));
    place.once().expect(0);
    place.item_file(1, &file(&order, "back"));
    place.once().expect(0);
    let payloads = place.payloads();
    let wanted = [
        "opened",
        "comment/30",
        "comment/9",
        "comment/10",
        "comment/2",
        "comment/7",
    ];
    assert_eq!(ids(&payloads), wanted.map(|k| format!("dir:inbox#1/{k}")));
    assert!(
        payloads[1..]
            .iter()
            .all(|p| p["comment"]["body"] == "first")
    );
}

/// Given items that close, reopen and close again, when they are delivered, then each
/// turn has an id of its own and comes once (R6.1).
#[test]
fn each_opening_of_an_item_has_its_own_ids() {
    let place = Place::new(PAYLOADS);
    let turn = |state: &str, closed: Value| {
        place.item_file(
            1,
            &json!({ "number": 1, "title": "t", "author": "octocat", "state": state,
            "created_at": "2026-08-05T09:00:00Z", "closed_at": closed }),
        );
        place.once().expect(0);
        place.once().expect(0);
    };
    turn("open", Value::Null);
    turn("closed", json!("2026-08-05T10:00:00Z"));
    turn("open", Value::Null);
    turn("merged", json!("2026-08-05T11:00:00Z"));
    let payloads = place.payloads();
    let events: Vec<&str> = payloads
        .iter()
        .filter_map(|p| p["event"].as_str())
        .collect();
    assert_eq!(events, ["opened", "closed", "reopened", "closed"]);
    let mut ids = ids(&payloads);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4);
    assert_eq!(
        (&payloads[1]["reason"], &payloads[3]["reason"]),
        (&json!("closed"), &json!("merged"))
    );
}

/// Given one item and more new comments than some memories are long, when `--once` cycles
/// run, then each is delivered once, and an idle cycle delivers nothing (R6.2, predecessor's D7).
#[test]
fn d7_sixty_new_comments_come_once_each() {
    let place = Place::new(LOG);
    for comments in [0, 20, 40, 60, 60, 60, 60] {
        place.item(1, comments);
        place.once().expect(0);
    }
    let wanted: Vec<String> = std::iter::once("dir:inbox#1/opened".to_string())
        .chain((1..=60).map(|c| format!("dir:inbox#1/comment/{c}")))
        .collect();
    assert_eq!(place.lines("ids.log"), wanted);
}

/// Given a thread of 520 comments that were there before it was watched, when new ones
/// come, cycle after cycle, then only those are delivered, each once (R6.4, C121, predecessor's D8).
#[test]
fn d8_a_long_thread_is_never_poured_out_again() {
    let place = Place::new(LOG);
    let mut config = place.config(LOG);
    config["sources"][0]
        .as_object_mut()
        .expect("a source")
        .remove("watch_from");
    place.configure(&config);
    let old: Vec<Value> = (1..=520)
        .map(|id| {
            comment(
                id,
                "octocat",
                "old",
                &format!("2026-08-05T{:02}:{:02}:00Z", id / 60, id % 60),
            )
        })
        .collect();
    let now = SystemTime::now();
    for news in [0, 1, 1, 2, 3, 3, 3, 4] {
        let mut comments = old.clone();
        for id in 1..=news {
            let at = Time::from(now + Duration::from_secs(60 + id)).to_string();
            comments.push(comment(1000 + id, "octocat", "new", &at));
        }
        place.item_file(1, &json!({ "number": 1, "author": "octocat", "state": "open", "created_at": "2026-08-05T00:00:00Z", "comments": comments }));
        place.once().expect(0);
    }
    let mut wanted = vec!["dir:inbox#1/opened".to_string()];
    wanted.extend((1001..=1004).map(|id| format!("dir:inbox#1/comment/{id}")));
    assert_eq!(place.lines("ids.log"), wanted, "{}", place.story());
}

/// Given 250 items, when they come, and then a comment on each of the oldest and newest, then
/// all are seen, each once (C013, C141, predecessor's D11).
#[test]
fn d11_two_hundred_and_fifty_items_are_all_seen() {
    let place = Place::new(LOG);
    let mut config = place.config(LOG);
    config["max_concurrent_deliveries"] = 16.into();
    place.configure(&config);
    for number in 1..=250 {
        place.item(number, 0);
    }
    let said = place.run(&["start", "--once"]).expect(0);
    assert_eq!(
        said.stdout,
        "cycle: 250 items, 250 opened, 0 comments, 0 closed, 0 failed\n"
    );
    for number in [1, 125, 250] {
        place.item(number, 1);
    }
    let said = place.run(&["start", "--once"]).expect(0);
    assert_eq!(
        said.stdout,
        "cycle: 250 items, 0 opened, 3 comments, 0 closed, 0 failed\n"
    );
    let mut ids = place.lines("ids.log");
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), place.lines("ids.log").len()), (253, 253));
}

/// Given items 1 and 10 to 19, when comments come on all of them and one ends, then each
/// delivery carries its own item's text, and only the one ends (C059, predecessor's D2).
#[test]
fn d2_item_1_is_not_item_10() {
    let script = r#"printf '%s ' "$IDEMPOLL_REF" >> payloads.$IDEMPOLL_REF; cat >> "payloads.$IDEMPOLL_REF"; echo >> "payloads.$IDEMPOLL_REF""#;
    let place = Place::new(script);
    let numbers: Vec<u64> = std::iter::once(1).chain(10..=19).collect();
    // The newest first, as trackers list them.
    for &number in numbers.iter().rev() {
        place.item(number, 1);
    }
    place.once().expect(0);
    for &number in &numbers {
        place.item(number, 2);
    }
    place.item_file(1, &json!({ "number": 1, "title": "Item 1", "author": "octocat", "state": "closed", "comments": [] }));
    place.once().expect(0);
    place.once().expect(0);
    let mut found: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for &number in &numbers {
        for line in place.lines(&format!("payloads.dir:inbox#{number}")) {
            let (item, payload) = line.split_once(' ').expect("written so");
            let payload: Value = serde_json::from_str(payload).expect("JSON");
            assert_eq!(item, format!("dir:inbox#{number}"));
            assert_eq!(payload["item"]["number"], number);
            assert_eq!(payload["item"]["title"], format!("Item {number}"));
            if let Some(body) = payload["comment"]["body"].as_str() {
                assert!(body.ends_with(&format!("on {number}")), "{body}");
            }
            let event = payload["event"].as_str().expect("an event").to_string();
            found.entry(number).or_default().push(event);
        }
    }
    for number in numbers {
        let last = if number == 1 { "closed" } else { "comment" };
        assert_eq!(found[&number], ["opened", "comment", last], "item {number}");
    }
}
