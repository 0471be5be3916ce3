//! The real program over the fake forge: what a process may do at any moment, and what it says of it.

use super::REPO;
use crate::world::forge::{Forge, Reply};
use crate::world::hub::{Hub, New};
use crate::world::program::Place;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Keeps what it was given, in one write: others do so at the same time.
const KEEP: &str = r#"said=$(cat); printf '%s\n' "$said" >> payloads.log"#;

/// A place whose sources are these, with the keys they have in common added, and one sink that runs `script`.
fn place(script: &str, sources: &[(&str, Value)]) -> Place {
    let place = Place::new(script);
    let mut config = place.config(script);
    config["authorized_users"] = json!(["sam"]);
    config["max_concurrent_deliveries"] = 8.into();
    let sources = sources.iter().map(|(url, keys)| {
        let mut source = json!({ "name": "forge", "provider": "github", "repos": [REPO], "base_url": url,
            "sinks": ["log"] });
        for (key, value) in keys.as_object().expect("keys") {
            source[key] = value.clone();
        }
        source
    });
    config["sources"] = sources.collect();
    place.configure(&config);
    place
}

/// The delivery ids of what was delivered, without where it is: `7/comment/5001`.
fn told(place: &Place) -> Vec<String> {
    let payloads = place.payloads();
    let ids = payloads
        .iter()
        .map(|p| p["delivery_id"].as_str().unwrap_or_default());
    ids.map(|id| id.split_once('#').map_or("", |(_, key)| key).to_string())
        .collect()
}

fn repo<T>(hub: &Hub, happen: impl FnOnce(&mut crate::world::hub::Edit<'_>) -> T) -> T {
    happen(&mut hub.lock().repo(REPO))
}

/// Changes the config that is there.
fn edit(place: &Place, change: impl FnOnce(&mut Value)) {
    let text = std::fs::read_to_string(place.path("idempoll.json")).expect("a config");
    let mut config = serde_json::from_str(&text).expect("JSON");
    change(&mut config);
    place.configure(&config);
}

/// Given two comments of the same second, when the poller is killed right after the first was delivered (C018), then the
/// next one delivers the second, and the first is not repeated: identity decides, not the clock.
#[test]
fn c018_a_kill_between_two_comments_of_one_second_loses_and_repeats_none() {
    let hub = Hub::new();
    repo(&hub, |repo| repo.open(New::issue().by("sam")));
    // It ends the poller before it is even known that the delivery landed.
    let script = format!(
        r#"{KEEP}; case $IDEMPOLL_DELIVERY_ID in */comment/5001) kill -9 "$(cat state/poll.pid)";; esac"#
    );
    let place = place(&script, &[(hub.url(), json!({}))]);
    hub.lock().advance(60);
    place.once().expect(0);
    repo(&hub, |repo| {
        repo.comment(1, "sam", "one");
        repo.comment(1, "sam", "two");
    });
    hub.lock().advance(10);
    let mut poller = place.start_unseen();
    assert_eq!(poller.ended().code(), None, "it was killed");
    assert_eq!(told(&place), ["1/opened", "1/comment/5001"]);
    for _ in 0..3 {
        place.once().expect(0);
        assert_eq!(
            told(&place),
            ["1/opened", "1/comment/5001", "1/comment/5002"]
        );
        hub.lock().advance(100);
    }
}

/// Given a poller that was stopped, when a comment and a labelled item come, a comment on that, and the config is
/// edited, be it the interval or who may act (C021), then the next start delivers all of it, as if it had never stopped.
#[test]
fn c021_what_happens_while_it_is_off_is_delivered_whatever_is_edited_meanwhile() {
    type Change = fn(&mut Value);
    let changes: [Change; 4] = [
        |_| {},
        |config| config["interval_seconds"] = 2.into(),
        |config| config["authorized_users"] = json!(["sam", "kim"]),
        |config| config["sources"][0]["pull_requests"] = false.into(),
    ];
    for change in changes {
        let hub = Hub::new();
        repo(&hub, |repo| {
            repo.open(New::issue().by("sam").label("agent"))
        });
        repo(&hub, |repo| repo.comment(1, "sam", "before it was watched"));
        let place = place(KEEP, &[(hub.url(), json!({ "label": "agent" }))]);
        hub.lock().advance(60);
        let mut poller = place.start();
        place.until("it is opened", || {
            told(&place) == ["1/opened"] && place.pending() == 0
        });
        place.run(&["stop"]).expect(0);
        assert!(poller.ended().success());
        for step in 0..4 {
            hub.lock().advance(3600);
            repo(&hub, |repo| match step {
                0 => drop(repo.comment(1, "sam", "while it is off")),
                1 => drop(repo.open(New::issue().by("sam"))),
                2 => repo.label(2, "agent"),
                _ => drop(repo.comment(2, "sam", "with the label on")),
            });
        }
        hub.lock().advance(60);
        edit(&place, change);
        place.once().expect(0);
        let mut all = told(&place);
        all.sort();
        assert_eq!(
            all,
            ["1/comment/5002", "1/opened", "2/comment/5003", "2/opened"]
        );
        place.once().expect(0);
        assert_eq!(told(&place).len(), 4);
    }
}

/// Given three repositories of which the second does not exist, or answers with a redirect to elsewhere (C029), when they
/// are polled, then the first and the third are in the same cycle, and `status` says of the second why and since when.
#[test]
fn c029_a_repository_that_fails_holds_up_no_other() {
    let other = Forge::scripted([]);
    for elsewhere in [false, true] {
        let hub = Hub::new();
        for name in ["octo/gears", "octo/cogs"] {
            hub.lock().create(name);
        }
        for name in [REPO, "octo/gears", "octo/cogs"] {
            hub.lock().repo(name).open(New::issue().by("sam"));
        }
        match elsewhere {
            false => hub.lock().delete("octo/gears"),
            true => {
                let moved = Reply::json("{}")
                    .status(301)
                    .header("Location", other.url());
                let gears = |asked: &crate::world::forge::Asked| asked.path().contains("gears");
                hub.lock().fault(usize::MAX, gears, moved);
            }
        }
        let repos = [REPO, "octo/gears", "octo/cogs"];
        let sources = repos.map(|repo| {
            let name = repo.trim_start_matches("octo/");
            (hub.url(), json!({ "name": name, "repos": [repo] }))
        });
        let place = place(KEEP, &sources);
        hub.lock().advance(60);
        for _ in 0..2 {
            let said = place.once().expect(1);
            assert!(said.stderr.contains("gears"), "{}", said.stderr);
        }
        assert_eq!(told(&place), ["1/opened"; 2]);
        let status = place.status();
        let sources = status["sources"].as_array().expect("a list");
        let ok: Vec<&Value> = sources.iter().map(|s| &s["ok"]).collect();
        assert_eq!(ok, [true, false, true]);
        let reason = sources[1]["error"].as_str().expect("a reason");
        let words = if elsewhere {
            "only redirects within"
        } else {
            "404"
        };
        assert!(reason.contains(words), "{reason}");
        assert!(sources[1]["failing_since"].is_string(), "{status}");
        assert!(!place.entries("poll.source_error").is_empty());
        assert!(other.asked().is_empty());
    }
}

/// Given twenty repositories on one token, three of which answer 500, 404 and a web page from some moment on (C029), when
/// there is news in all of them, then that of the others is delivered at once; each odd one is reported once, however
/// many cycles come, and is asked at most three times a cycle; what a cycle cost, and what is left, is what the tracker
/// says; and when they answer again, nothing of theirs was lost.
#[test]
fn c029_three_odd_repositories_hold_up_none_of_seventeen() {
    use crate::world::forge::Asked;
    use crate::world::hub::replies;
    const TOKEN: &str = "t0ken-example";
    // So much that what a cycle a second costs is nothing to be sparing with.
    const LIMIT: u64 = 5_000_000;
    let odd = ["octo/r3", "octo/r9", "octo/r15"];
    let words = ["answered 500", "answered 404", "not JSON"];
    let hub = Hub::new();
    hub.lock().budget(TOKEN).limit = LIMIT;
    let repos: Vec<String> = (0..20).map(|n| format!("octo/r{n}")).collect();
    for repo in &repos {
        hub.lock().create(repo);
        hub.lock().repo(repo).open(New::issue().by("sam"));
    }
    let keys = json!({ "repos": repos, "token_file": "token" });
    let place = place(KEEP, &[(hub.url(), keys)]);
    place.write("token", TOKEN);
    hub.lock().advance(60);
    place.once().expect(0);
    assert_eq!(told(&place).len(), 20);
    hub.lock().advance(300);
    place.once().expect(0);

    let replies = [
        replies::server_error(500),
        replies::not_found(),
        replies::html(200),
    ];
    for (repo, reply) in odd.into_iter().zip(replies) {
        let its = move |asked: &Asked| asked.path().starts_with(&format!("/repos/{repo}/"));
        hub.lock().fault(usize::MAX, its, reply);
    }
    hub.lock().advance(60);
    for repo in &repos {
        hub.lock().repo(repo).comment(1, "sam", "news");
    }
    hub.lock().advance(60);
    let mut last = place.status()["last_cycle"]["at"].clone();
    let mut poller = place.start();
    for _ in 0..4 {
        place.until("another cycle is over", || {
            let at = place.status()["last_cycle"]["at"].clone();
            let over = !at.is_null() && at != last;
            last = at;
            over
        });
        assert_eq!(place.entries("poll.source_error").len(), 3);
    }
    place.until("the others' news is delivered", || {
        told(&place).len() == 20 + 17
    });
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    let errors = place.entries("poll.source_error");
    let said = |entry: &Value| entry["reason"].as_str().unwrap_or_default().to_string();
    let said: Vec<String> = errors.iter().map(said).collect();
    assert_eq!(said.len(), 3, "{said:?}");
    for ((repo, words), said) in odd.iter().zip(words).zip(&said) {
        assert!(said.contains(repo) && said.contains(words), "{said}");
    }

    hub.log();
    let used = hub.lock().budget(TOKEN).used;
    place.once().expect(1);
    let log = hub.log();
    for repo in odd {
        let its = |logged: &&crate::world::forge::Logged| {
            logged.asked.path().starts_with(&format!("/repos/{repo}/"))
        };
        let times = log.iter().filter(its).count();
        assert!((1..=3).contains(&times), "{repo}: {times}");
    }
    let status = place.status();
    assert_eq!(status["sources"][0]["ok"], false);
    let error = status["sources"][0]["error"].as_str().expect("a reason");
    assert!(error.contains(odd[0]), "{error}");
    let host = &status["hosts"][0];
    let now_used = hub.lock().budget(TOKEN).used;
    assert_eq!(host["requests_last_cycle"], log.len());
    assert_eq!(host["counted_last_cycle"], now_used - used);
    assert_eq!(host["remaining"], LIMIT - now_used);
    assert!(place.entries("poll.closure_detected").is_empty());

    hub.lock().heal();
    hub.lock().advance(60);
    place.once().expect(0);
    assert_eq!(told(&place).len(), 40);
    assert_eq!(place.status()["sources"][0]["ok"], true);
}

/// Given four items on two pages of which the second breaks (C014), when the program polls, then `status` says that the
/// source's last listing failed, its exit code too, nothing has ended, and the next cycle is whole.
#[test]
fn c014_an_incomplete_cycle_says_so() {
    let hub = Hub::new();
    hub.lock().largest_page = 2;
    for _ in 0..4 {
        repo(&hub, |repo| repo.open(New::issue().by("sam")));
        hub.lock().advance(10);
    }
    let place = place(KEEP, &[(hub.url(), json!({}))]);
    hub.lock().advance(60);
    place.once().expect(0);
    assert_eq!(place.status()["sources"][0]["ok"], true);
    for number in 1..=4 {
        hub.lock().advance(10);
        repo(&hub, |repo| repo.comment(number, "sam", "go"));
    }
    let mut pages = 0;
    let second = move |asked: &crate::world::forge::Asked| {
        pages += u32::from(asked.path().ends_with("/issues"));
        asked.path().ends_with("/issues") && pages > 1
    };
    let error = crate::world::hub::replies::server_error(502);
    hub.lock().fault(usize::MAX, second, error);
    let said = place.once().expect(1);
    assert!(said.stderr.contains("502"), "{}", said.stderr);
    let source = &place.status()["sources"][0];
    assert_eq!(
        (&source["ok"], &source["items"]),
        (&json!(false), &json!(4))
    );
    hub.lock().heal();
    hub.lock().advance(60);
    place.once().expect(0);
    assert_eq!(place.status()["sources"][0]["ok"], true);
    let all: BTreeSet<String> = told(&place).into_iter().collect();
    assert_eq!((all.len(), told(&place).len()), (8, 8));
    assert!(place.entries("poll.closure_detected").is_empty());
}

/// Given a repository that answers in its own time and one whose answer comes a byte every five seconds, in its head or in
/// its body (C085), when both are polled, then the first one's items are delivered meanwhile, and `stop --timeout 10` is
/// done within its time.
#[test]
fn c085_a_dribbling_tracker_holds_up_neither_the_others_nor_a_stop() {
    for in_head in [false, true] {
        let hub = Hub::new();
        repo(&hub, |repo| repo.open(New::issue().by("sam")));
        let every = Duration::from_secs(5);
        let slow = Forge::start(move |_| match in_head {
            true => Reply::json("[]").dribble_all(every),
            false => Reply::json(json!({ "id": 4242, "full_name": REPO })).dribble(every),
        });
        let sources = [
            (hub.url(), json!({ "name": "well" })),
            (
                slow.url(),
                json!({ "name": "slow", "repos": ["octo/gears"] }),
            ),
        ];
        let place = place(KEEP, &sources);
        let mut poller = place.start();
        let mut asked = 0;
        place.until(
            "the slow one is asked and the other's item delivered",
            || {
                asked += slow.asked().len();
                asked > 0 && told(&place) == ["1/opened"]
            },
        );
        let since = Instant::now();
        place.run(&["stop", "--timeout", "10"]).expect(0);
        assert!(since.elapsed() < Duration::from_secs(10));
        assert!(poller.ended().success());
    }
}

/// Given one repository in two sources with a sink each, and the labels of both on one item (C137), when something happens
/// there, then each sink gets it once, under the same name; the same for one sink is refused at the start.
#[test]
fn c137_an_item_matched_by_two_sources_comes_once_to_each_sink() {
    let hub = Hub::new();
    let both = New::issue().by("sam").label("agent").label("ci");
    repo(&hub, |repo| repo.open(both));
    repo(&hub, |repo| repo.open(New::issue().by("sam").label("ci")));
    let sources = [
        (hub.url(), json!({ "name": "a", "label": "agent" })),
        (
            hub.url(),
            json!({ "name": "b", "label": "ci", "sinks": ["other"] }),
        ),
    ];
    let place = place(KEEP, &sources);
    edit(&place, |config| {
        let command = r#"said=$(cat); printf '%s\n' "$said" >> other.log"#;
        config["sinks"]["other"] = json!({ "type": "exec", "command": ["sh", "-c", command] });
    });
    hub.lock().advance(60);
    place.once().expect(0);
    repo(&hub, |repo| repo.comment(1, "sam", "go"));
    for _ in 0..3 {
        hub.lock().advance(60);
        place.once().expect(0);
    }
    let ids = |log: &str| -> BTreeMap<String, usize> {
        let mut ids = BTreeMap::new();
        for line in place.lines(log) {
            let payload: Value = serde_json::from_str(&line).expect("JSON");
            let id = payload["delivery_id"].as_str().expect("a name").to_string();
            *ids.entry(id).or_insert(0) += 1;
        }
        ids
    };
    let (agent, other) = (ids("payloads.log"), ids("other.log"));
    assert_eq!((agent.len(), other.len()), (2, 3));
    assert!(agent.values().chain(other.values()).all(|n| *n == 1));
    assert!(agent.keys().all(|id| other.contains_key(id)));
    edit(&place, |config| {
        config["sources"][1]["sinks"] = json!(["log"])
    });
    let said = place.once().expect(2);
    assert!(
        said.stderr.contains("goes to the sink 'log' already"),
        "{}",
        said.stderr
    );
}

/// Given a repository with 300 items and 2,000 comments that is polled for the first time (C141), when the poller is
/// stopped in the middle, killed in the middle, and started again, then each item is opened once, never more of them at a
/// time than the config allows, no old comment is ever news, and what is said afterwards is.
#[test]
fn c141_a_first_start_on_a_big_backlog_is_no_flood_whatever_interrupts_it() {
    let hub = Hub::new();
    {
        let mut hub = hub.lock();
        for _ in 0..300 {
            hub.repo(REPO).open(New::issue().by("sam").label("agent"));
            hub.advance(1);
        }
        for at in 0..2000 {
            hub.repo(REPO).comment(1 + at % 300, "sam", "old");
            hub.advance(1);
        }
        hub.advance(600);
        // Its requests take a while, so that a stop finds it listing.
        hub.delay = Duration::from_millis(20);
    }
    // Each keeps a file of its own while it runs, and notes how many there are.
    let script = format!(
        r#"mkdir -p now; : > now/$$; ls now | wc -l >> at_once.log; {KEEP}; sleep 0.02; rm now/$$"#
    );
    let place = place(&script, &[(hub.url(), json!({ "label": "agent" }))]);
    let opened = || told(&place).len();
    let mut poller = place.start();
    place.until("some are delivered", || opened() > 40);
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    hub.lock().advance(60);
    let so_far = opened();
    let poller = place.start();
    place.until("some more are delivered", || opened() > so_far + 40);
    poller.kill();
    assert!(opened() < 300, "it was the middle");
    hub.lock().advance(60);
    let comment = repo(&hub, |repo| repo.comment(7, "sam", "news"));
    hub.lock().advance(60);
    let mut poller = place.start();
    place.until("all is delivered", || {
        opened() >= 301 && place.pending() == 0
    });
    let cycle = place.status()["last_cycle"]["at"].clone();
    place.until("another cycle is over", || {
        place.status()["last_cycle"]["at"] != cycle
    });
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    let all: BTreeSet<String> = told(&place).into_iter().collect();
    let mut want: BTreeSet<String> = (1..=300).map(|n| format!("{n}/opened")).collect();
    want.insert(format!("7/comment/{comment}"));
    assert_eq!((&all, opened()), (&want, 301));
    let most = place.lines("at_once.log");
    let most = most
        .iter()
        .filter_map(|n| n.trim().parse::<u32>().ok())
        .max();
    // A killed poller's runs go on beside those of the next one for a moment.
    assert!(most.is_some_and(|n| n <= 16), "{most:?} at once");
}

/// Given a poller that was off for twelve hours, or a month, longer than any window it looks back (C143), with more than a
/// hundred comments on one item and 150 new items meanwhile, when it starts, then all of them are delivered, once and in
/// order.
#[test]
fn c143_after_a_long_time_off_everything_is_found() {
    for hours in [12, 24 * 30] {
        let hub = Hub::new();
        repo(&hub, |repo| repo.open(New::issue().by("sam")));
        let place = place(KEEP, &[(hub.url(), json!({}))]);
        hub.lock().advance(60);
        place.once().expect(0);
        for _ in 0..150 {
            let mut hub = hub.lock();
            hub.advance(hours * 3600 / 150);
            hub.repo(REPO).open(New::issue().by("sam"));
            hub.repo(REPO).comment(1, "sam", "go");
        }
        hub.lock().advance(60);
        place.once().expect(0);
        place.once().expect(0);
        let told = told(&place);
        let all: BTreeSet<&String> = told.iter().collect();
        assert_eq!((all.len(), told.len()), (301, 301));
        let said: Vec<&String> = told
            .iter()
            .filter(|id| id.starts_with("1/comment/"))
            .collect();
        let want: Vec<String> = (5001..=5150).map(|id| format!("1/comment/{id}")).collect();
        assert!(said.into_iter().eq(&want), "in order");
        assert!(place.entries("poll.missed").is_empty());
    }
}

/// Given a renamed label, a lost repository and a renamed one, when the real program polls them (C026, C030), then its log
/// and `status` say what an operator has to do, and nothing has ended.
#[test]
fn c026_c030_what_an_operator_has_to_do_is_said() {
    let hub = Hub::new();
    for name in ["octo/gears", "octo/cogs"] {
        hub.lock().create(name);
    }
    for name in [REPO, "octo/gears", "octo/cogs"] {
        for _ in 0..2 {
            hub.lock()
                .repo(name)
                .open(New::issue().by("sam").label("agent"));
        }
    }
    let keys = json!({ "repos": [REPO, "octo/gears", "octo/cogs"], "label": "agent" });
    let place = place(KEEP, &[(hub.url(), keys)]);
    hub.lock().advance(300);
    place.once().expect(0);
    place.once().expect(0);
    {
        let mut hub = hub.lock();
        hub.repo(REPO).rename_label("agent", "robot");
        hub.revoke("octo/gears");
        hub.rename("octo/cogs", "octo/sprockets");
        hub.advance(3700);
    }
    for _ in 0..3 {
        place.once().expect(1);
        hub.lock().advance(150);
    }
    let reasons: Vec<String> = ["poll.source_error", "poller.warning"]
        .into_iter()
        .flat_map(|kind| place.entries(kind))
        .map(|entry| entry["reason"].as_str().unwrap_or_default().to_string())
        .collect();
    for words in [
        "the label 'agent' does not exist",
        "check the repository's name",
        "octo/sprockets",
    ] {
        let said = reasons.iter().filter(|reason| reason.contains(words));
        assert!(said.count() > 0, "{words}: {reasons:?}");
    }
    let error = place.status()["sources"][0]["error"]
        .as_str()
        .map(str::to_string);
    assert!(error.is_some_and(|e| !e.is_empty()));
    assert!(place.entries("poll.closure_detected").is_empty());
    assert_eq!(told(&place).len(), 6);
}
