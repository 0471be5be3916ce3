//! The GitHub provider against a forge on loopback.

use crate::world::forge::{Asked, Forge, Reply};
use crate::world::github::Repo;
use idempoll::config::checked::{GitHub, TokenFrom};
use idempoll::engine::access::Policy;
use idempoll::engine::item::{Kind, Sighting, State};
use idempoll::engine::listing::{Complete, Coverage, Cut, Heard, Listing};
use idempoll::engine::time::Time;
use idempoll::net::{Client, Limits};
use idempoll::providers::github::GitHubProvider;
use idempoll::providers::{Ask, Gone, Out, Provider};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ISSUES: &str = "/repos/octo/widgets/issues";
const COMMENTS: &str = "/repos/octo/widgets/issues/comments";

/// 2026-08-05T10:00:00Z, where the forges of this file begin.
const START: u64 = 1_785_924_000;

/// Keeps what it is told; leaves after `room` things.
struct Ear {
    heard: Vec<Heard>,
    room: usize,
}

impl Out for Ear {
    fn tell(&mut self, heard: Heard) -> Result<(), Gone> {
        if self.heard.len() == self.room {
            return Err(Gone);
        }
        self.heard.push(heard);
        Ok(())
    }
}

/// One listing: what was heard, and how it ended.
#[derive(Debug)]
struct Told {
    heard: Vec<Heard>,
    listing: Listing,
}

impl Told {
    fn complete(&self) -> &Complete {
        match &self.listing {
            Listing::Complete(complete) => complete,
            Listing::Cut(cut) => panic!("cut: {}", cut.reason),
        }
    }

    fn cut(&self) -> &Cut {
        match &self.listing {
            Listing::Cut(cut) => cut,
            Listing::Complete(_) => panic!("complete, with {:?}", self.heard),
        }
    }

    fn cursor(&self) -> Value {
        self.complete().cursor.clone()
    }

    fn sightings(&self) -> impl Iterator<Item = &Sighting> {
        self.heard.iter().filter_map(|heard| match heard {
            Heard::Sighting(sighting) => Some(&**sighting),
            _ => None,
        })
    }

    fn numbers(&self) -> Vec<u64> {
        let items = self.sightings().map(|s| s.item.item_ref.number);
        items.collect()
    }

    fn comments(&self) -> Vec<&str> {
        let comments = self.sightings().flat_map(|s| &s.comments);
        comments.map(|c| c.id.as_str()).collect()
    }

    fn unreadable(&self) -> Vec<(&str, &str)> {
        let reports = self.heard.iter().filter_map(|heard| match heard {
            Heard::Unreadable { what, reason } => Some((what.as_str(), reason.as_str())),
            _ => None,
        });
        reports.collect()
    }
}

fn config(base_url: &str) -> GitHub {
    GitHub {
        repos: vec![("octo".into(), "widgets".into())],
        base_url: base_url.to_string(),
        issues: true,
        pull_requests: true,
        // Any variable that is set for the tests and has no blanks in it.
        token: Some(TokenFrom::Env("CARGO_PKG_NAME".into())),
        ca_file: None,
        sweep: Duration::from_secs(7 * 24 * 3600),
    }
}

const TOKEN: &str = env!("CARGO_PKG_NAME");

fn list_with(config: GitHub, cursor: Option<Value>, watch_from: Option<Time>) -> Told {
    list_by(Client::default(), config, cursor, watch_from)
}

fn list_by(
    client: Client,
    config: GitHub,
    cursor: Option<Value>,
    watch_from: Option<Time>,
) -> Told {
    let mut ear = Ear {
        heard: Vec::new(),
        room: usize::MAX,
    };
    let ask = Ask {
        cursor,
        watch_from,
        // Local time is wrong by two hours, which must not matter.
        cycle: Time((START + 7200) * 1000),
        now: Time((START + 7200) * 1000),
        ..Ask::default()
    };
    let mut provider = GitHubProvider::new(client, config, Policy::default(), "octo", "widgets");
    let listing = provider.list(&ask, &mut ear);
    // What it says of limits is for tests of their own.
    ear.heard.retain(|heard| !matches!(heard, Heard::Budget(_)));
    Told {
        heard: ear.heard,
        listing,
    }
}

fn list(forge: &Forge, cursor: Option<Value>) -> Told {
    list_with(config(forge.url()), cursor, Some(Time(START * 1000)))
}

fn fixture(name: &str) -> Reply {
    let path = format!("{}/fixtures/http/github/{name}", env!("CARGO_MANIFEST_DIR"));
    Reply {
        body: std::fs::read(path).expect("a fixture"),
        ..Reply::json("")
    }
}

fn issue(number: u64, updated_at: &str) -> Value {
    json!({"number": number, "title": "A tidy title", "state": "open",
           "user": {"login": "sam-rivera", "type": "User"}, "updated_at": updated_at})
}

fn comment(id: u64, number: u64, at: &str) -> Value {
    json!({"id": id, "issue_url": format!("{{base}}{ISSUES}/{number}"), "body": "see id",
           "user": {"login": "sam-rivera", "type": "User"}, "created_at": at, "updated_at": at})
}

fn page(rows: &[Value]) -> Reply {
    Reply::json(Value::from(rows.to_vec()))
}

/// A cursor from before everything in this file.
fn old_cursor() -> Value {
    let since = json!({"since": "2026-02-01T00:00:00Z"});
    let unsettled = json!({"since": "2026-02-01T00:00:00Z", "newest": "2026-02-01T00:00:00Z"});
    json!({"issues": since, "comments": unsettled, "review_comments": since, "pulls": since,
           "swept_at": "2026-08-05T10:00:00.000Z"})
}

/// Given rows with every oddity seen so far (C001, C002, C005, C008, C018),
/// when they are listed, then each row that can be used is, and the others are
/// reported and left alone.
#[test]
fn c001_c002_c005_c008_odd_rows_never_block_their_neighbours() {
    let forge = Forge::scripted([
        (ISSUES, vec![fixture("issues.json")]),
        (COMMENTS, vec![fixture("comments.json")]),
    ]);
    let told = list(&forge, Some(old_cursor()));
    assert_eq!(
        told.complete().coverage,
        Coverage::Changes {
            missing: Vec::new()
        }
    );
    assert_eq!(told.numbers(), [1, 2, 3, 7, 8]);
    let by_number: BTreeMap<u64, &Sighting> = told
        .sightings()
        .map(|s| (s.item.item_ref.number, s))
        .collect();

    let plain = &by_number[&1].item;
    assert_eq!(
        plain.item_ref.to_string(),
        "github:127.0.0.1/octo/widgets#1"
    );
    assert_eq!(plain.title, "Plain");
    assert_eq!(plain.body, "Please look at this.");
    assert_eq!(plain.author.login.as_deref(), Some("sam-rivera"));
    assert_eq!(plain.author.association.as_deref(), Some("MEMBER"));
    assert_eq!(plain.labels, ["agent", "old-style"]);
    assert_eq!((plain.state, plain.kind), (State::Open, Kind::Issue));
    assert_eq!(plain.created_at, "2026-03-01T09:00:00Z".parse().ok());
    assert_eq!((plain.closed_at, plain.labelled_at), (None, None));

    let nobody = &by_number[&2].item;
    assert_eq!(nobody.author.login, None);
    assert_eq!(nobody.body, "");
    let new = &by_number[&3].item;
    assert_eq!(new.author.login.as_deref(), Some("corp-user"));
    assert_eq!(new.author.association.as_deref(), Some("MANNEQUIN"));
    assert_eq!((new.labels.len(), new.created_at), (1, None));
    let merged = &by_number[&7].item;
    assert_eq!(
        (merged.state, merged.kind),
        (State::Merged, Kind::PullRequest)
    );
    assert_eq!(merged.closed_at, "2026-03-01T10:00:00Z".parse().ok());
    assert!(merged.author.bot, "by its type");
    let closed = &by_number[&8].item;
    assert_eq!(
        (closed.state, closed.kind),
        (State::Closed, Kind::PullRequest)
    );
    assert!(closed.author.bot, "by its login");

    let said: Vec<(&str, &str, Option<&str>)> = by_number[&1]
        .comments
        .iter()
        .map(|c| (c.id.as_str(), c.body.as_str(), c.author.login.as_deref()))
        .collect();
    assert_eq!(
        said,
        [
            ("501", "first", Some("sam-rivera")),
            ("502", "from a closed account", None),
            ("503", "half a fish: \u{fffd} and on", Some("sam-rivera")),
        ]
    );
    let late = &by_number[&3].comments[0];
    assert_eq!((late.id.as_str(), late.body.as_str()), ("506", ""));
    assert_eq!(Ok(late.created_at), "2026-03-01T10:00:04Z".parse());

    let reports = told.unreadable();
    let mut whats: Vec<&str> = reports.iter().map(|(what, _)| *what).collect();
    whats.sort_unstable();
    assert_eq!(
        whats,
        [
            "an item of octo/widgets",
            "an item of octo/widgets",
            "octo/widgets a comment",
            "octo/widgets comment 505",
            "octo/widgets#4",
        ]
    );
    assert!(reports.iter().any(|(_, why)| why.contains("\"archived\"")));
}

#[test]
fn every_request_says_who_asks_and_what_it_expects() {
    let forge = Forge::scripted([]);
    list(&forge, None).complete();
    let asked = forge.asked();
    assert_eq!(asked.len(), 6);
    for asked in &asked {
        let header = |name| asked.header(name).unwrap_or_default().to_string();
        assert_eq!(asked.method, "GET");
        assert_eq!(header("accept"), "application/vnd.github+json");
        assert_eq!(header("x-github-api-version"), "2022-11-28");
        assert_eq!(header("authorization"), format!("Bearer {TOKEN}"));
        assert_eq!(header("accept-encoding"), "gzip");
        let agent = header("user-agent");
        assert!(agent.starts_with("idempoll/"), "{agent}");
    }
    let anonymous = GitHub {
        token: None,
        ..config(forge.url())
    };
    list_with(anonymous, None, None).complete();
    assert!(
        forge
            .asked()
            .iter()
            .all(|a| a.header("authorization").is_none())
    );
}

/// Given a repository, when it is listed for the first time, then its open
/// items are told after the tracker's clock, and what follows reads on from
/// there (R6.4).
#[test]
fn r6_4_a_first_listing_reads_what_is_open_and_remembers_the_servers_time() {
    let repo = Arc::new(Mutex::new(Repo::new()));
    {
        let mut repo = repo.lock().expect("unpoisoned");
        repo.open();
        repo.open();
        repo.now += 3600;
        repo.close(1);
        repo.comment(2);
        repo.now += 3600;
    }
    let forge = forge_of(&repo);
    let first = list_with(config(forge.url()), None, None);
    let server = Time((START + 7200) * 1000);
    assert_eq!(first.heard[0], Heard::Clock(server));
    assert_eq!(first.numbers(), [2]);
    assert!(first.comments().is_empty(), "older comments are baseline");
    let since = "sort=updated&direction=asc&since=2026-08-05T11:58:00Z&per_page=100";
    assert_eq!(
        targets(&forge),
        [
            "/repos/octo/widgets".to_string(),
            format!("{ISSUES}?state=all&{since}"),
            format!("{COMMENTS}?{since}"),
            format!("/repos/octo/widgets/pulls/comments?{since}"),
            "/repos/octo/widgets/pulls?state=all&sort=updated&direction=desc&per_page=30".into(),
            format!("{ISSUES}?state=open&sort=updated&direction=asc&per_page=100"),
        ]
    );

    let mut world = repo.lock().expect("unpoisoned");
    world.now += 60;
    world.comment(1);
    world.close(2);
    world.now += 60;
    drop(world);
    let second = list(&forge, Some(first.cursor()));
    assert_eq!(second.numbers(), [1, 2]);
    assert_eq!(second.comments(), ["5002"]);
    assert_eq!(targets(&forge)[0], format!("{ISSUES}?state=all&{since}"));
}

/// Given a first listing that was cut after it began to watch, or a time in the
/// config, when the next one has no cursor, then what was closed since is told (R6.4).
#[test]
fn r6_4_without_a_cursor_what_changed_since_the_watch_began_is_read_too() {
    let repo = Arc::new(Mutex::new(Repo::new()));
    let watched = {
        let mut repo = repo.lock().expect("unpoisoned");
        repo.open();
        repo.open();
        repo.open();
        repo.now += 3600;
        let watched = Time(repo.now * 1000);
        repo.now += 3600;
        repo.comment(1);
        repo.close(1);
        repo.close(3);
        repo.now += 3600;
        watched
    };
    let forge = forge_of(&repo);
    let told = list_with(config(forge.url()), None, Some(watched));
    assert_eq!(told.numbers(), [1, 3, 2]);
    assert_eq!(told.comments(), ["5001"]);
}

#[test]
fn c013_every_page_is_read_and_a_full_last_one_ends_the_walk() {
    for count in [100, 131, 200] {
        let repo = Arc::new(Mutex::new(Repo::new()));
        {
            let mut repo = repo.lock().expect("unpoisoned");
            repo.open();
            for _ in 0..count {
                repo.now += 1;
                repo.comment(1);
            }
            repo.now += 600;
        }
        let forge = forge_of(&repo);
        let told = list(&forge, Some(old_cursor()));
        let ids: BTreeSet<&str> = told.comments().into_iter().collect();
        assert_eq!((told.comments().len(), ids.len()), (count, count));
        let pages = targets(&forge)
            .iter()
            .filter(|t| t.starts_with(COMMENTS))
            .count();
        // A page begins a second before the end of the one before it.
        assert!((count.div_ceil(100)..=count.div_ceil(99)).contains(&pages));
    }
}

/// Given a second page that answers 502 (C014), when it is listed, then the
/// first page's items were told, and nothing is concluded.
#[test]
fn c014_a_broken_page_cuts_the_listing() {
    let next = "<{base}/repos/octo/widgets/issues?page=2>; rel=\"next\"";
    let forge = Forge::scripted([
        (
            ISSUES,
            vec![page(&[issue(1, "2026-03-01T09:00:00Z")]).header("Link", next)],
        ),
        (
            "/repos/octo/widgets/issues?page=2",
            vec![
                Reply::json(r#"{"message":"Server Error"}"#).status(502),
                Reply::json(r#"{"message":"Server Error"}"#).status(502),
                Reply::json(r#"{"message":"Server Error"}"#).status(502),
                page(&[issue(3, "2026-03-01T09:00:00Z")]),
            ],
        ),
    ]);
    let told = list(&forge, Some(old_cursor()));
    assert_eq!(told.numbers(), [1]);
    assert_eq!(
        told.cut().reason,
        "GET /repos/octo/widgets/issues answered 502: Server Error"
    );
    assert_eq!(told.cut().not_before, None);
    assert_eq!(list(&forge, Some(old_cursor())).numbers(), [1, 3]);
}

#[test]
fn c018_two_comments_of_one_second_are_both_told_and_told_again() {
    let at = "2026-03-01T10:00:00Z";
    let forge = Forge::scripted([
        (ISSUES, vec![page(&[issue(7, at)])]),
        (
            COMMENTS,
            vec![page(&[comment(701, 7, at), comment(702, 7, at)])],
        ),
    ]);
    let told = list(&forge, Some(old_cursor()));
    assert_eq!(told.comments(), ["701", "702"]);
    // The window brings both again: identity decides, not the clock.
    assert!(list(&forge, Some(told.cursor())).comments().is_empty());
    let asked = forge.asked();
    let since = asked.iter().rev().filter(|a| a.path() == COMMENTS);
    assert_eq!(
        since.map(|a| a.query("since")).next(),
        Some(Some("2026-03-01T09:58:00Z"))
    );
}

/// Given a renamed repository (C026), when it answers 301 within its host, then
/// it is followed with the token and with our query, and the items keep their names.
#[test]
fn c026_a_renamed_repository_is_followed_within_its_host() {
    let moved = Reply::json(r#"{"message":"Moved Permanently"}"#)
        .status(301)
        .header("Location", "{base}/repositories/4242/issues");
    let forge = Forge::scripted([
        (ISSUES, vec![moved]),
        (
            "/repositories/4242/issues",
            vec![page(&[issue(7, "2026-03-01T09:00:00Z")])],
        ),
        (
            "/repositories/4242/issues/comments",
            vec![page(&[comment(1, 7, "2026-03-01T09:00:00Z")])],
        ),
    ]);
    let told = list(&forge, Some(old_cursor()));
    assert_eq!(told.numbers(), [7]);
    assert_eq!(told.comments(), ["1"]);
    let item = &told.sightings().next().expect("one").item.item_ref;
    assert_eq!(item.path, "octo/widgets");
    let asked = forge.asked();
    assert_eq!(asked[1].query("state"), Some("all"));
    assert!(asked[1].query("since").is_some());
    let old = |a: &&Asked| a.path().starts_with("/repos/");
    assert_eq!(asked.iter().filter(old).count(), 1);
    assert!(asked.iter().all(|a| a.header("authorization").is_some()));
}

/// Given a redirect or a next page that leads to another host, when it is
/// answered, then nothing goes there, least of all the token (R7.4).
#[test]
fn r7_4_the_token_never_leaves_its_origin() {
    let other = Forge::scripted([]);
    let away = format!("{}{ISSUES}", other.url());
    let redirect = Reply::json("{}").status(302).header("Location", &away);
    let next = page(&[]).header("Link", format!("<{away}>; rel=\"next\""));
    for (reply, words) in [
        (redirect, "only redirects"),
        (next, "outside the configured host"),
    ] {
        let forge = Forge::scripted([(ISSUES, vec![reply])]);
        let told = list(&forge, None);
        let reason = &told.cut().reason;
        assert!(reason.contains(words), "{reason}");
        assert!(!reason.contains(TOKEN));
    }
    assert!(other.asked().is_empty());
}

#[test]
fn redirects_and_pages_in_a_circle_end() {
    let circle = Reply::json("{}").status(302).header("Location", ISSUES);
    let forge = Forge::scripted([(ISSUES, vec![circle])]);
    list(&forge, None).cut();
    assert_eq!(forge.asked().len(), 7);
    let next = page(&[]).header(
        "Link",
        "<{base}/repos/octo/widgets/issues?page=2>; rel=next",
    );
    let forge = Forge::scripted([(ISSUES, vec![next])]);
    let told = list(&forge, None);
    assert!(told.cut().reason.contains("read already"));
}

/// Given answers that are no list (C004, C034), when they come with whatever
/// status, then the listing is cut with a reason and none is an empty list.
#[test]
fn c004_c034_what_is_no_list_is_never_an_empty_one() {
    let list_of_one = page(&[issue(1, "2026-03-01T09:00:00Z")]);
    for (reply, words) in [
        (
            Reply::json("<html>Hotel Wi-Fi</html>").header("Content-Type", "text/html"),
            "text/html, not JSON",
        ),
        (
            Reply::json(r#"{"message":"Please sign in"}"#),
            "Please sign in",
        ),
        (
            Reply::json(r#"[{"number":1}"#),
            "did not answer a list: EOF",
        ),
        (Reply::json(""), "did not answer a list"),
        (Reply::json("null"), "did not answer a list"),
        (list_of_one.clone().cut(40), "in the middle of the answer"),
        (list_of_one.status(204), "answered 204"),
        (
            Reply::json(r#"{"message":"Server Error"}"#).status(502),
            "502: Server Error",
        ),
        (
            Reply::json("<html>Unicorn!</html>")
                .status(503)
                .header("Content-Type", "text/html"),
            "answered 503",
        ),
        (Reply::json("").status(500), "answered 500"),
        (
            Reply::json(r#"{"message":"Bad credentials"}"#).status(401),
            "check the environment variable CARGO_PKG_NAME",
        ),
        (
            Reply::json(r#"{"message":"Not Found"}"#).status(404),
            "check the repository's name",
        ),
        (
            Reply::json(r#"{"message":"Resource not accessible by integration"}"#)
                .status(403)
                .header("X-Accepted-GitHub-Permissions", "issues=read"),
            "needs issues=read",
        ),
        (
            Reply::json("{\"message\":\"\\u001b[2J\\u202eevil\\r\\nline\"}").status(500),
            r"\u{1b}[2J\u{202e}evil\u{d}\u{a}line",
        ),
    ] {
        for route in [ISSUES, COMMENTS] {
            let forge = Forge::scripted([(route, vec![reply.clone()])]);
            let told = list(&forge, Some(old_cursor()));
            let Cut { reason, not_before } = told.cut();
            assert!(reason.contains(words), "{words}: {reason}");
            assert!(reason.contains(route), "{words}: {reason}");
            assert!(
                !reason.contains(TOKEN) && !reason.contains('\n'),
                "{reason}"
            );
            assert_eq!(*not_before, None, "{reason}");
        }
    }
}

/// Given throttling in each of the forms seen (C009, C010, C012), when it is
/// answered, then the listing is cut until the time meant, by the server's clock.
#[test]
fn c009_c010_c012_throttling_says_until_when() {
    let said = |status: u16, message: &str| {
        Reply::json(json!({ "message": message }))
            .status(status)
            .header("Date", http_date(START))
    };
    let secondary = "You have exceeded a secondary rate limit. Please wait a few minutes.";
    for (reply, wait) in [
        (
            said(403, secondary).header("x-ratelimit-remaining", 4890),
            60,
        ),
        (
            said(403, "You have triggered an abuse detection mechanism."),
            60,
        ),
        (said(403, secondary).header("Retry-After", 120), 120),
        (
            said(429, "slow down").header("Retry-After", http_date(START + 90)),
            90,
        ),
        (said(429, "slow down").header("Retry-After", "soon"), 60),
        (said(429, "slow down").header("Retry-After", "-5"), 60),
        (said(429, "slow down"), 60),
        (
            said(429, "slow down").header("Retry-After", u64::MAX),
            24 * 3600,
        ),
        (said(503, "down").header("Retry-After", 30), 30),
        (
            said(403, "API rate limit exceeded for user")
                .header("x-ratelimit-remaining", 0)
                .header("x-ratelimit-reset", START + 900),
            901,
        ),
        (
            said(429, "API rate limit exceeded").header("x-ratelimit-remaining", 0),
            60,
        ),
    ] {
        let forge = Forge::scripted([(ISSUES, vec![reply])]);
        let told = list(&forge, Some(old_cursor()));
        let Cut { reason, not_before } = told.cut();
        // Local time, which is two hours ahead of the server's.
        let want = Time((START + 7200 + wait) * 1000);
        assert_eq!(*not_before, Some(want), "{reason}");
        assert!(reason.contains("rate limited"), "{reason}");
    }
}

/// Given a server that dribbles, in its headers or in its body (C085), when it is asked, then an overall
/// deadline ends the request.
#[test]
fn c085_a_dribbling_server_meets_the_deadline() {
    let pause = Duration::from_millis(100);
    let rows = page(&[issue(1, "2026-03-01T09:00:00Z")]);
    for slow in [rows.clone().dribble(pause), rows.dribble_all(pause)] {
        let forge = Forge::scripted([(ISSUES, vec![slow])]);
        let quick = Client::new(Limits {
            whole: Duration::from_millis(1500),
            ..Limits::default()
        });
        let told = list_by(quick, config(forge.url()), None, None);
        assert!(told.cut().reason.contains("no whole answer within 1.5 s"));
    }
}

#[test]
fn a_server_that_is_not_there_is_a_reason() {
    let url = {
        let forge = Forge::scripted([]);
        forge.url().to_string()
    };
    let told = list_with(config(&url), None, None);
    let reason = &told.cut().reason;
    assert_eq!(
        reason,
        "GET /repos/octo/widgets at 127.0.0.1: connection refused"
    );
}

/// Given a token that cannot be used (C133), when a listing starts, then it is
/// cut with a reason that names its place, and nothing is asked.
#[test]
fn c133_without_its_token_nothing_is_asked() {
    let forge = Forge::scripted([]);
    let without = GitHub {
        token: Some(TokenFrom::Env("IDEMPOLL_TEST_NO_SUCH_VARIABLE".into())),
        ..config(forge.url())
    };
    let told = list_with(without, None, None);
    assert_eq!(
        told.cut().reason,
        "cannot use the environment variable IDEMPOLL_TEST_NO_SUCH_VARIABLE: it is not set"
    );
    assert!(forge.asked().is_empty());
}

#[test]
fn only_the_kinds_watched_are_told() {
    let forge = Forge::scripted([
        (ISSUES, vec![fixture("issues.json")]),
        (
            COMMENTS,
            vec![page(&[
                comment(1, 1, "2026-03-01T10:00:00Z"),
                comment(2, 7, "2026-03-01T10:00:00Z"),
            ])],
        ),
    ]);
    for (issues, numbers, comments) in [(true, vec![1, 2, 3], ["1"]), (false, vec![7, 8], ["2"])] {
        let some = GitHub {
            issues,
            pull_requests: !issues,
            ..config(forge.url())
        };
        let told = list_with(some, Some(old_cursor()), Some(Time::ZERO));
        assert_eq!(told.numbers(), numbers);
        assert_eq!(told.comments(), comments);
        // What was said of an item new to us is read by itself, unless it is of another kind.
        let other = |n: &u64| !numbers.contains(n);
        for number in [1, 2, 3, 7, 8].iter().filter(|n| other(n)) {
            let alone = format!("{ISSUES}/{number}");
            let asked = forge.asked();
            assert!(!asked.iter().any(|a| a.path().starts_with(&alone)));
        }
    }
}

/// Given a comment whose item no page shows, when it is listed, then the item
/// is asked for by itself, once; an item that is gone is reported.
#[test]
fn a_stray_comment_brings_its_item_once() {
    let later = "2026-09-01T10:00:00Z";
    let gone = Reply::json(r#"{"message":"This issue was deleted"}"#).status(410);
    let moved = Reply::json("{}")
        .status(301)
        .header("Location", "{base}/repositories/9/issues/40");
    let forge = Forge::scripted([
        (ISSUES, vec![page(&[])]),
        (
            COMMENTS,
            vec![page(&[
                comment(81, 7, later),
                comment(82, 8, later),
                comment(83, 9, later),
                comment(84, 10, later),
                comment(85, 11, "2026-03-01T10:00:00Z"),
                comment(86, 7, later),
            ])],
        ),
        (
            "/repos/octo/widgets/issues/7",
            vec![Reply::json(issue(7, later))],
        ),
        ("/repos/octo/widgets/issues/8", vec![gone]),
        ("/repos/octo/widgets/issues/9", vec![moved]),
        (
            "/repos/octo/widgets/issues/10",
            vec![Reply::json(issue(12, later))],
        ),
    ]);
    let first = list(&forge, Some(old_cursor()));
    assert_eq!(first.numbers(), [7]);
    assert_eq!(first.comments(), ["81", "86"]);
    let reports: Vec<&str> = first.unreadable().iter().map(|(what, _)| *what).collect();
    assert_eq!(
        reports,
        ["octo/widgets#8", "octo/widgets#9", "octo/widgets#10"]
    );
    let asked = targets(&forge);
    assert!(
        !asked.contains(&format!("{ISSUES}/11")),
        "baseline: {asked:?}"
    );
    assert!(!asked.iter().any(|t| t.contains("repositories")));

    let second = list(&forge, Some(first.cursor()));
    let budget = |heard: &Heard| matches!(heard, Heard::Budget(_));
    assert!(second.heard.iter().all(budget), "told once: {second:?}");
    assert_eq!(second.cursor(), first.cursor());
    assert_eq!(targets(&forge).len(), 4);
}

#[test]
fn a_row_from_the_far_future_moves_no_cursor() {
    let row = issue(1, "2099-01-01T00:00:00Z");
    let now = http_date(START);
    let forge = Forge::scripted([(ISSUES, vec![page(&[row]).header("Date", now)])]);
    let told = list(&forge, Some(old_cursor()));
    assert_eq!(told.numbers(), [1]);
    assert_eq!(told.cursor()["issues"], old_cursor()["issues"]);
}

/// Given a poller that has left, when the provider tells it something, then the
/// listing ends at once, with no further request.
#[test]
fn a_listing_nobody_listens_to_ends() {
    let repo = Arc::new(Mutex::new(Repo::new()));
    for _ in 0..250 {
        repo.lock().expect("unpoisoned").open();
    }
    let forge = forge_of(&repo);
    let mut ear = Ear {
        heard: Vec::new(),
        room: 3,
    };
    let ask = Ask {
        cursor: None,
        watch_from: None,
        now: Time(START * 1000),
        ..Ask::default()
    };
    let mut provider = GitHubProvider::new(
        Client::default(),
        config(forge.url()),
        Policy::default(),
        "octo",
        "widgets",
    );
    assert!(matches!(provider.list(&ask, &mut ear), Listing::Cut(_)));
    // The repository, its four lists, and the first page of the open items.
    assert_eq!(forge.asked().len(), 5);
}

/// Given an item that is commented on and closed while its listing is under
/// way, when it is told as closed, then the comment was told before or with it (R6.1).
#[test]
fn r6_1_a_close_is_never_told_before_a_comment_made_before_it() {
    let repo = Arc::new(Mutex::new(Repo::new()));
    for _ in 0..150 {
        let mut repo = repo.lock().expect("unpoisoned");
        repo.open();
        repo.now += 1;
    }
    let mut requests = 0;
    let forge = Forge::start({
        let repo = repo.clone();
        move |asked: &Asked| {
            let mut repo = repo.lock().expect("unpoisoned");
            requests += 1;
            if requests == 2 {
                // Page one and the comments were read; item 150 comes on page two.
                repo.now += 10;
                repo.comment(150);
                repo.now += 10;
                repo.close(150);
                repo.now += 60;
            }
            repo.answer(asked)
        }
    });
    let told = list(&forge, Some(old_cursor()));
    let last = told.sightings().find(|s| s.item.item_ref.number == 150);
    let last = last.expect("item 150 was told");
    assert_eq!(last.item.state, State::Closed);
    assert_eq!(last.comments.len(), 1);
}

/// Given a repository where anything may happen between any two requests, when
/// it is listed again and again, then in the end everything was told: each item
/// that was ever open or changed since, each comment, and the state each item is in.
#[test]
fn r3_4_r6_4_nothing_slips_whatever_happens_between_two_requests() {
    for seed in 1..=8u64 {
        let edits = seed % 2 == 0;
        let repo = Arc::new(Mutex::new(Repo::new()));
        {
            let mut repo = repo.lock().expect("unpoisoned");
            for n in 0..230 {
                repo.open();
                repo.now += n % 3;
            }
            repo.now += 3600;
        }
        let (calm, mut random) = (Arc::new(Mutex::new(false)), seed);
        let forge = Forge::start({
            let (repo, calm) = (repo.clone(), calm.clone());
            let mut random = seed + 100;
            move |asked: &Asked| {
                let mut repo = repo.lock().expect("unpoisoned");
                if *calm.lock().expect("unpoisoned") {
                    // An end is told when a minute has passed over it.
                    repo.now += 30;
                } else {
                    for _ in 0..roll(&mut random, 12) {
                        happen(&mut repo, &mut random, edits);
                    }
                    // Now and then a request takes longer than the overlap.
                    repo.now += [1, 0, 2, 300][roll(&mut random, 4)];
                }
                repo.answer(asked)
            }
        });

        let (mut cursor, mut watch_from) = (None, None);
        let mut states: BTreeMap<u64, State> = BTreeMap::new();
        let mut comments = BTreeSet::new();
        for cycle in 0..14 {
            *calm.lock().expect("unpoisoned") = cycle >= 10;
            if cycle < 10 {
                // A long while since the last listing, so that changes fill pages.
                let mut repo = repo.lock().expect("unpoisoned");
                for _ in 0..roll(&mut random, 300) {
                    happen(&mut repo, &mut random, edits);
                    repo.now += 60;
                }
            }
            let told = list_with(config(forge.url()), cursor.clone(), watch_from);
            if let (None, Some(Heard::Clock(clock))) = (watch_from, told.heard.first()) {
                watch_from = Some(*clock);
            }
            for sighting in told.sightings() {
                states.insert(sighting.item.item_ref.number, sighting.item.state);
                comments.extend(sighting.comments.iter().map(|c| c.id.clone()));
                if let (false, Some(closed_at)) = (edits, sighting.item.closed_at)
                    && sighting.item.state == State::Closed
                {
                    let world = repo.lock().expect("unpoisoned");
                    let watched = watch_from.expect("the clock came first");
                    for (id, at) in world.comments_of(sighting.item.item_ref.number) {
                        let due = at >= watched && at < closed_at;
                        assert!(!due || comments.contains(&id), "seed {seed}: {id} is late");
                    }
                }
            }
            cursor = Some(told.cursor());
        }

        let world = repo.lock().expect("unpoisoned");
        let watched = watch_from.expect("the clock came first");
        for (&number, issue) in &world.issues {
            let open = issue["state"] == "open";
            let state = if open { State::Open } else { State::Closed };
            // What ended before the watch began need not be told.
            if open || issue["updated_at"].as_str() >= Some(watched.to_string().as_str()) {
                assert_eq!(states.get(&number), Some(&state), "seed {seed}: {number}");
            }
            for (id, at) in world.comments_of(number) {
                assert!(at < watched || comments.contains(&id), "seed {seed}: {id}");
            }
        }
        assert!(comments.len() > 100, "something happened");
    }
}

/// A number below `sides`, from a seed.
fn roll(random: &mut u64, sides: usize) -> usize {
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*random >> 33) as usize % sides
}

/// Something that can happen in a repository.
fn happen(repo: &mut Repo, random: &mut u64, edits: bool) {
    let number = roll(random, repo.issues.len()) as u64 + 1;
    match roll(random, 8) {
        0 | 1 => repo.close(number),
        2 => repo.set(number, "state", "open".into()),
        3 => drop(repo.open()),
        4 | 5 => drop(repo.comment(number)),
        6 if edits && !repo.comments.is_empty() => {
            repo.edit(5001 + roll(random, repo.comments.len()) as u64);
        }
        _ => repo.set(number, "title", "Another title".into()),
    }
    repo.now += roll(random, 2) as u64;
}

fn forge_of(repo: &Arc<Mutex<Repo>>) -> Forge {
    let repo = repo.clone();
    Forge::start(move |asked| repo.lock().expect("unpoisoned").answer(asked))
}

fn targets(forge: &Forge) -> Vec<String> {
    forge.asked().into_iter().map(|a| a.target).collect()
}

fn http_date(seconds: u64) -> String {
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + Duration::from_secs(seconds))
}
