//! Limits: what GitHub's answers mean for a token, and that the real program keeps to it,
//! for all repositories and whatever ends it.

use crate::world::forge::{Asked, Forge, Reply};
use crate::world::github::Repo;
use crate::world::program::Place;
use idempoll::config::checked::{GitHub, TokenFrom};
use idempoll::engine::access::Policy;
use idempoll::engine::host::{Budget, Wait};
use idempoll::engine::listing::{Ask, Cut, Heard, Listing};
use idempoll::engine::time::Time;
use idempoll::net::{Client, Secret};
use idempoll::providers::github::GitHubProvider;
use idempoll::providers::{Gone, Out, Provider};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

const ISSUES: &str = "/repos/octo/widgets/issues";

/// 2026-08-05T10:00:00Z, the time of the forges here; ours is two hours ahead.
const START: u64 = 1_785_924_000;
const OURS: u64 = START + 7200;

const TOKEN: &str = "t0ken-example";

fn ours(seconds: u64) -> Time {
    Time((OURS + seconds) * 1000)
}

fn http_date(seconds: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds))
}

struct Ear(Vec<Heard>);

impl Out for Ear {
    fn tell(&mut self, heard: Heard) -> Result<(), Gone> {
        self.0.push(heard);
        Ok(())
    }
}

/// One listing, with or without a token, that is reminded of `wait`: what was told of limits,
/// and why it was cut, if so.
fn list(forge: &Forge, token: bool, wait: Wait) -> (Budget, Option<Cut>) {
    let place = Place::new("true");
    place.write("token", TOKEN);
    let config = GitHub {
        repos: vec![("octo".into(), "widgets".into())],
        base_url: forge.url().to_string(),
        issues: true,
        pull_requests: false,
        token: token.then(|| TokenFrom::File(place.path("token"))),
        ca_file: None,
        sweep: Duration::from_secs(3600),
    };
    let name = match token {
        true => Secret::new(TOKEN).fingerprint(),
        false => "anonymous".to_string(),
    };
    let ask = Ask {
        watch_from: Some(Time(START * 1000)),
        now: ours(0),
        waits: [
            (name.clone(), wait),
            (
                "another".into(),
                Wait {
                    until: Some(ours(999)),
                    throttled: 9,
                },
            ),
        ]
        .into(),
        ..Ask::default()
    };
    let mut provider = GitHubProvider::new(
        Client::default(),
        config,
        Policy::default(),
        "octo",
        "widgets",
    );
    let mut ear = Ear(Vec::new());
    let listing = provider.list(&ask, &mut ear);
    let budget = match ear.0.pop() {
        Some(Heard::Budget(budget)) => budget,
        other => panic!("its last word is {other:?}"),
    };
    let again = ear.0.iter().any(|h| matches!(h, Heard::Budget(_)));
    assert!(!again, "said once");
    assert_eq!((budget.host.as_str(), &budget.token), ("127.0.0.1", &name));
    let cut = match listing {
        Listing::Complete(_) => None,
        Listing::Cut(cut) => Some(cut),
    };
    (budget, cut)
}

fn said(status: u16, message: &str) -> Reply {
    Reply::json(json!({ "message": message }))
        .status(status)
        .header("Date", http_date(START))
}

const SECONDARY: &str = "You have exceeded a secondary rate limit. Please wait a few minutes.";

/// Given a token that has to wait, when its repository is listed, then nothing is asked, and the reason says
/// until when; another token's wait, and one that is over, are nothing to it (C010).
#[test]
fn c010_with_a_token_that_waits_nothing_is_asked() {
    for token in [true, false] {
        let forge = Forge::scripted([]);
        let until = Some(ours(60));
        let throttled = 3;
        let (budget, cut) = list(&forge, token, Wait { until, throttled });
        let Cut { reason, not_before } = cut.expect("it is cut");
        assert_eq!(not_before, until);
        assert_eq!(
            reason,
            "rate limited: 127.0.0.1 is not to be asked before 2026-08-05T12:01:00.000Z"
        );
        assert_eq!((budget.requests, budget.not_before), (0, until));
        assert_eq!(budget.throttled, 3, "as before");
        assert!(forge.asked().is_empty());
        let over = Some(ours(0));
        let (budget, cut) = list(
            &forge,
            token,
            Wait {
                until: over,
                throttled,
            },
        );
        assert_eq!(cut, None);
        assert!(budget.requests > 0);
        assert_eq!(budget.throttled, 0, "a complete listing ends the row");
    }
}

/// Given secondary limits one after another (C009, C012), then each wait is twice the one before, up to an
/// hour, whatever its header says, unless that is longer; other waits do not grow, and nonsense is no header.
#[test]
fn c009_c012_waits_grow_while_limits_repeat() {
    let after = |seconds: &str| said(403, SECONDARY).header("Retry-After", seconds);
    let slow = || said(429, "slow down");
    let past = slow().header("Retry-After", http_date(START - 5));
    let primary =
        |status| said(status, "API rate limit exceeded").header("x-ratelimit-remaining", 0);
    let reset = |reply: Reply, at: u64| reply.header("x-ratelimit-reset", at);
    for (reply, throttled, wait, then) in [
        (said(403, SECONDARY), 0, 60, 1),
        (said(403, SECONDARY), 1, 120, 2),
        (said(403, SECONDARY), 5, 1920, 6),
        (said(403, SECONDARY), 6, 3600, 7),
        (said(403, SECONDARY), u32::MAX, 3600, u32::MAX),
        (after("5"), 0, 5, 1),
        (after("5"), 2, 240, 3),
        (after("7000"), 2, 7000, 3),
        (after("0"), 0, 60, 1),
        (past, 0, 60, 1),
        (
            slow().header("Retry-After", http_date(START + 90)),
            0,
            90,
            1,
        ),
        (
            slow().header("Retry-After", http_date(START + 90)),
            1,
            120,
            2,
        ),
        (slow().header("Retry-After", "soon"), 1, 120, 2),
        (reset(primary(403), START + 900), 4, 901, 4),
        (reset(primary(429), START + 900), 0, 901, 0),
        (reset(primary(403), START - 1), 0, 60, 1),
        (reset(primary(403), u64::MAX), 0, 24 * 3600, 0),
        (primary(403), 1, 120, 2),
        (said(503, "down").header("Retry-After", 30), 4, 30, 4),
        (
            said(503, "down").header("Retry-After", http_date(START + 45)),
            0,
            45,
            0,
        ),
    ] {
        let forge = Forge::scripted([(ISSUES, vec![reply.clone()])]);
        let until = None;
        let (budget, cut) = list(&forge, true, Wait { until, throttled });
        let cut = cut.expect("it is cut");
        assert_eq!(cut.not_before, Some(ours(wait)), "{reply:?}");
        assert!(
            cut.reason.contains("rate limited, waiting until"),
            "{}",
            cut.reason
        );
        assert_eq!(budget.not_before, cut.not_before);
        assert_eq!(budget.throttled, then, "{reply:?} after {throttled}");
        let asked = forge.asked();
        let all = asked.len() as u64;
        assert_eq!((budget.requests, budget.counted), (all, all));
        let refused = asked.iter().position(|a| a.path() == ISSUES);
        assert_eq!(refused, Some(asked.len() - 1), "nothing is asked after it");
    }
    for refusal in [
        said(403, "Resource not accessible by integration").header("x-ratelimit-remaining", 9),
        said(503, "down"),
        said(503, "down").header("Retry-After", "soon"),
        said(500, "Server Error"),
    ] {
        let forge = Forge::scripted([(ISSUES, vec![refusal])]);
        let wait = Wait {
            until: None,
            throttled: 2,
        };
        let (budget, cut) = list(&forge, true, wait);
        assert_eq!(cut.expect("it is cut").not_before, None);
        assert_eq!((budget.not_before, budget.throttled), (None, 2));
    }
}

/// Given answers that say what is left, then that is told, the reset by our clock, however wrong it is; after
/// the last one allowed, nothing more is asked (C010), and a server without limits is asked at any time.
#[test]
fn c010_what_is_left_is_told_and_never_overdrawn() {
    let left = |remaining: u64, reset: u64| {
        Reply::json("[]")
            .header("Date", http_date(START))
            .header("x-ratelimit-limit", 5000)
            .header("x-ratelimit-remaining", remaining)
            .header("x-ratelimit-reset", reset)
    };
    let answering = |reply: Reply| Forge::start(move |_| reply.clone());
    let free = Wait::default();
    let (budget, cut) = list(&answering(left(4890, START + 2400)), true, free);
    assert_eq!(cut, None);
    assert_eq!((budget.limit, budget.remaining), (Some(5000), Some(4890)));
    assert_eq!(budget.reset_at, Some(ours(2400)));
    assert_eq!(budget.not_before, None);
    assert_eq!(budget.counted, budget.requests);

    let forge = answering(left(0, START + 2400));
    let (budget, cut) = list(&forge, true, free);
    assert_eq!(forge.asked().len(), 1);
    assert_eq!(cut.and_then(|c| c.not_before), Some(ours(2401)));
    assert_eq!((budget.requests, budget.throttled), (1, 0));
    assert_eq!(budget.not_before, Some(ours(2401)));

    // A reset that is past, or in a year nobody waits for, says nothing.
    for reset in [0, START, u64::MAX] {
        let (budget, _) = list(&answering(left(10, reset)), true, free);
        assert_eq!((budget.remaining, budget.reset_at), (Some(10), None));
    }
    assert_eq!(list(&answering(left(0, START)), true, free).1, None);
    // No limits, or limits of nothing.
    let none = Reply::json("[]").header("x-ratelimit-limit", 0);
    for reply in [Reply::json("[]"), none.header("x-ratelimit-remaining", 0)] {
        let (budget, cut) = list(&answering(reply), true, free);
        assert_eq!((cut, budget.limit, budget.remaining), (None, None, None));
    }
}

/// Given an answer "not modified", then it is free with a token, and counts without one.
#[test]
fn what_is_not_modified_costs_nothing() {
    let unmodified = || Reply::json("").status(304);
    for (token, counted) in [(true, 0), (false, 1)] {
        let forge = Forge::start(move |_| unmodified());
        let (budget, _) = list(&forge, token, Wait::default());
        let requests = forge.asked().len() as u64;
        assert_eq!(budget.requests, requests);
        assert_eq!(budget.counted, counted * requests);
    }
}

/// Keeps what it was given.
const KEEP: &str = r#"said=$(cat); printf '%s\n' "$said" >> payloads.log"#;

/// A place whose only source are these repositories of `forge`, with one token.
fn place(forge: &Forge, repos: &[&str]) -> Place {
    let place = Place::new(KEEP);
    let mut config = place.config(KEEP);
    config["authorized_users"] = json!(["sam-rivera"]);
    let repos: Vec<String> = repos.iter().map(|repo| format!("octo/{repo}")).collect();
    place.write("token", TOKEN);
    config["sources"] = json!([{ "name": "forge", "provider": "github", "repos": repos, "label": "agent",
        "pull_requests": false, "base_url": forge.url(), "token_file": "token", "sinks": ["log"] }]);
    place.configure(&config);
    place
}

/// What was asked for which repository, and when.
type Log = Arc<Mutex<Vec<(String, Instant)>>>;

fn note(log: &Log, asked: &Asked) {
    let repo = asked
        .path()
        .split('/')
        .nth(3)
        .unwrap_or_default()
        .to_string();
    log.lock().expect("no panic").push((repo, Instant::now()));
}

/// Waits for so many more cycles.
fn cycles(place: &Place, n: usize) {
    for _ in 0..n {
        let before = place.status()["last_cycle"]["at"].clone();
        place.until("another cycle is over", || {
            let at = place.status()["last_cycle"]["at"].clone();
            !at.is_null() && at != before
        });
    }
}

/// Given five repositories on one token, when the first request is told to come again after a while, and the
/// poller is killed, started, stopped and started meanwhile, then not one request comes before the time is
/// over, for none of the five; and then all five are listed (C010).
#[test]
fn c010_a_cool_down_holds_for_all_and_over_restarts() {
    const WAIT: u64 = 10;
    let log = Log::default();
    let noted = log.clone();
    let mut first = true;
    let forge = Forge::start(move |asked| {
        note(&noted, asked);
        match std::mem::take(&mut first) {
            true => said(403, SECONDARY).header("Retry-After", WAIT),
            false => Reply::json("[]"),
        }
    });
    let repos = ["widgets", "gears", "cogs", "pins", "nuts"];
    let place = place(&forge, &repos);
    let poller = place.start();
    place.until("it is told to wait", || {
        place.entries("poll.rate_limited").len() == 1
    });
    poller.kill();
    let mut poller = place.start();
    cycles(&place, 1);
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    let mut poller = place.start();
    place.until("all five are listed", || {
        let log = log.lock().expect("no panic");
        let listed = |repo: &&str| log.iter().skip(1).any(|(r, _)| r == repo);
        repos.iter().all(listed)
    });
    let all = log.lock().expect("no panic").clone();
    let gap = all[1].1 - all[0].1;
    // A poller that reads the time to the millisecond may be one early.
    assert!(gap > Duration::from_millis(WAIT * 1000 - 10), "{gap:?}");
    assert_eq!(place.entries("poll.rate_limited").len(), 1, "said once");
    place.until("all is well again", || {
        let status = place.status();
        status["sources"][0]["ok"] == true && status["hosts"][0]["not_before"].is_null()
    });
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    let files = std::fs::read_dir(place.path("state/hosts")).expect("a directory");
    let files: Vec<_> = files.flatten().map(|e| e.path()).collect();
    assert_eq!(files.len(), 1);
    let text = std::fs::read_to_string(&files[0]).expect("a file");
    assert!(!text.contains(TOKEN), "{text}");
}

/// Given an item with a delivery that failed, when the tracker says 403 for a secondary limit, without a
/// header, then that is no refusal: for a minute at least nothing is asked, `status` says until when, nothing is
/// closed and no budget is spent, and a stop is at once (C009).
#[test]
fn c009_a_secondary_limit_is_waited_for_and_nothing_else_happens() {
    let repo = Arc::new(Mutex::new(Repo::new()));
    repo.lock().expect("no panic").open();
    let log = Log::default();
    let (noted, answering) = (log.clone(), repo.clone());
    let limited = Arc::new(Mutex::new(false));
    let refusing = limited.clone();
    let forge = Forge::start(move |asked| {
        note(&noted, asked);
        if *refusing.lock().expect("no panic") {
            return said(403, SECONDARY)
                .header("x-ratelimit-limit", 5000)
                .header("x-ratelimit-remaining", 4890)
                .header("x-ratelimit-reset", START + 2400);
        }
        answering.lock().expect("no panic").answer(asked)
    });
    let place = place(&forge, &["widgets"]);
    let mut poller = place.start();
    place.until("it is delivered", || {
        place.payloads().len() == 1 && place.pending() == 0
    });
    let items = |place: &Place| -> Value {
        serde_json::from_str(&place.run(&["items", "--json"]).stdout).expect("JSON")
    };
    let before = items(&place);
    *limited.lock().expect("no panic") = true;
    place.until("status says it", || {
        !place.status()["hosts"][0]["not_before"].is_null()
    });
    let asked = log.lock().expect("no panic").len();
    cycles(&place, 2);
    assert_eq!(log.lock().expect("no panic").len(), asked);
    assert_eq!(items(&place), before);
    let status = place.status();
    let source = &status["sources"][0];
    assert_eq!(
        (&source["ok"], &source["items"]),
        (&json!(false), &json!(1))
    );
    let host = &status["hosts"][0];
    assert_eq!(host["host"], "127.0.0.1");
    assert_eq!(host["token"], Secret::new(TOKEN).fingerprint());
    assert_eq!(
        (&host["limit"], &host["remaining"]),
        (&json!(5000), &json!(4890))
    );
    let time =
        |value: &Value| -> Time { value.as_str().and_then(|t| t.parse().ok()).expect("a time") };
    let since = time(&place.entries("poll.rate_limited")[0]["ts"]);
    let wait = time(&host["not_before"]).since(since);
    // Counted from its entry in the log, which is written a little later.
    assert!(wait >= Duration::from_secs(40), "{wait:?}");
    assert!(wait <= Duration::from_secs(70), "{wait:?}");
    let text = place.run(&["status"]).stdout;
    assert!(text.contains("4890 of 5000 left until"), "{text}");
    assert!(text.contains("it asks to wait until 20"), "{text}");
    assert!(text.contains("rate limited"), "{text}");
    let begun = Instant::now();
    place.run(&["stop"]).expect(0);
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(poller.ended().success());
    assert!(place.entries("dispatch.failed").is_empty());
    assert!(place.entries("poll.closure_detected").is_empty());
}

/// Given cycles that cost something and little that is left for an hour, then the source is polled less often
/// though nothing failed, and `status` says why.
#[test]
fn with_little_left_polls_come_less_often() {
    let log = Log::default();
    let noted = log.clone();
    let forge = Forge::start(move |asked| {
        note(&noted, asked);
        Reply::json("[]")
            .header("Date", http_date(START))
            .header("x-ratelimit-limit", 60)
            .header("x-ratelimit-remaining", 40)
            .header("x-ratelimit-reset", START + 3600)
    });
    let place = place(&forge, &["widgets"]);
    let mut poller = place.start();
    place.until("it is spared", || {
        !place.status()["hosts"][0]["next_listing_at"].is_null()
    });
    let asked = log.lock().expect("no panic").len();
    cycles(&place, 3);
    assert_eq!(log.lock().expect("no panic").len(), asked);
    let status = place.status();
    assert_eq!(status["sources"][0]["ok"], true);
    assert!(status["hosts"][0]["counted_last_cycle"].as_u64() > Some(0));
    let text = place.run(&["status"]).stdout;
    assert!(text.contains("40 of 60 left until"), "{text}");
    assert!(
        text.contains("one at each cycle would use up what is left"),
        "{text}"
    );
    assert!(place.entries("poll.rate_limited").is_empty());
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
}
