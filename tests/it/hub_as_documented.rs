//! The hub of `world/hub` behaves as GitHub is documented or was measured to.

mod answers;
mod changes;

use crate::world::hub::{Hub, New, START};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const ISSUES: &str = "/repos/octo/widgets/issues";
const COMMENTS: &str = "/repos/octo/widgets/issues/comments";
const LINES: &str = "/repos/octo/widgets/pulls/comments";
const PULLS: &str = "/repos/octo/widgets/pulls";
const REPO: &str = "octo/widgets";

/// An answer as it came.
struct Got {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Got {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|l| l.split_once(": "));
        let found = lines.find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// A field of each row.
    fn each(&self, key: &str) -> Vec<u64> {
        let rows = self.json();
        let rows = rows.as_array().into_iter().flatten();
        rows.map(|row| row[key].as_u64().expect("a number"))
            .collect()
    }

    fn numbers(&self) -> Vec<u64> {
        self.each("number")
    }

    /// The path and query of the link `rel`.
    fn link(&self, rel: &str) -> Option<String> {
        let links = self.header("link")?.split(", ");
        let mut found = links.filter(|l| l.ends_with(&format!("rel=\"{rel}\"")));
        let (url, _) = found.next()?.trim_start_matches('<').split_once('>')?;
        let (_, path) = url.split_once("//")?.1.split_once('/')?;
        Some(format!("/{path}"))
    }

    fn remaining(&self) -> u64 {
        let left = self.header("x-ratelimit-remaining");
        left.and_then(|n| n.parse().ok()).expect("a header")
    }
}

/// Asks for a path with more headers, a line each.
fn ask(hub: &Hub, method: &str, path: &str, more: &str) -> std::io::Result<Got> {
    let host = hub.url().trim_start_matches("http://");
    let host = host.split('/').next().unwrap_or_default();
    let mut stream = TcpStream::connect(host)?;
    stream
        .write_all(format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n").as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let at = bytes.windows(4).position(|w| w == b"\r\n\r\n");
    let at = at.ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let head = String::from_utf8_lossy(&bytes[..at]).into_owned();
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok());
    Ok(Got {
        status: status.expect("a status line"),
        head,
        body: bytes[at + 4..].to_vec(),
    })
}

const KNOWN: &str = "User-Agent: test\r\nAuthorization: Bearer t1\r\n";

fn get(hub: &Hub, path: &str) -> Got {
    ask(hub, "GET", path, KNOWN).expect("an answer")
}

fn get_if(hub: &Hub, path: &str, tag: &str) -> Got {
    let more = format!("{KNOWN}If-None-Match: {tag}\r\n");
    ask(hub, "GET", path, &more).expect("an answer")
}

/// A hub with so many issues, a minute apart.
fn with_issues(count: usize) -> Hub {
    let hub = Hub::new();
    let mut world = hub.lock();
    for _ in 0..count {
        world.advance(60);
        world.repo(REPO).open(New::issue());
    }
    drop(world);
    hub
}

#[test]
fn lists_are_of_open_items_from_the_newest_on_unless_told_otherwise() {
    let hub = with_issues(3);
    hub.lock().advance(60);
    let pull = hub.lock().repo(REPO).open(New::pull_request().by("sam"));
    hub.lock().repo(REPO).close(2);
    assert_eq!(get(&hub, ISSUES).numbers(), [pull, 3, 1]);
    let rows = get(
        &hub,
        &format!("{ISSUES}?state=all&sort=updated&direction=asc"),
    );
    assert_eq!(rows.numbers(), [1, 3, 2, pull]);
    let rows = rows.json();
    assert!(rows[0]["pull_request"].is_null() && rows[3]["pull_request"].is_object());
    assert_eq!(rows[2]["state_reason"], "completed");
    assert_eq!(get(&hub, PULLS).numbers(), [pull]);
    assert_eq!(get(&hub, &format!("{ISSUES}?state=closed")).numbers(), [2]);
    assert_eq!(get(&hub, &format!("{ISSUES}?state=ajar")).status, 422);
    assert_eq!(get(&hub, &format!("{ISSUES}?since=noon")).status, 422);
}

#[test]
fn since_is_inclusive_or_not_and_goes_by_updates() {
    let hub = with_issues(3);
    hub.lock().advance(60);
    hub.lock().repo(REPO).edit_body(1, None);
    let list = format!("{ISSUES}?sort=updated&direction=asc&since=2026-08-05T10:03:00Z");
    assert_eq!(get(&hub, &list).numbers(), [3, 1]);
    assert_eq!(get(&hub, &list.replace(':', "%3A")).numbers(), [3, 1]);
    hub.lock().since_exclusive = true;
    assert_eq!(get(&hub, &list).numbers(), [1]);
}

#[test]
fn the_label_filter_means_all_of_them_in_any_case() {
    let hub = Hub::new();
    let mut world = hub.lock();
    let mut repo = world.repo(REPO);
    let both = repo.open(New::issue().label("Bug").label("auto"));
    let one = repo.open(New::issue().label("bug"));
    drop(world);
    let with = |labels: &str| get(&hub, &format!("{ISSUES}?labels={labels}")).numbers();
    assert_eq!(with("BUG"), [one, both]);
    assert_eq!(with("bug,auto"), [both]);
    hub.lock().advance(60);
    let before = get(&hub, &format!("{ISSUES}/{both}")).json();
    hub.lock().repo(REPO).rename_label("auto", "by hand");
    assert_eq!(with("auto"), [0; 0]);
    assert_eq!(with("by%20hand"), [both]);
    let after = get(&hub, &format!("{ISSUES}/{both}")).json();
    assert_eq!(after["labels"][1]["name"], "by hand");
    assert_eq!(before["updated_at"], after["updated_at"]);
    assert_eq!(get(&hub, "/repos/octo/widgets/labels/BUG").status, 200);
    hub.lock().repo(REPO).delete_label("bug");
    assert_eq!(get(&hub, "/repos/octo/widgets/labels/BUG").status, 404);
    assert_eq!(with("bug"), [0; 0]);
}

#[test]
fn links_lead_through_pages_by_the_repositorys_number() {
    let hub = with_issues(7);
    let first = get(&hub, &format!("{ISSUES}?direction=asc&per_page=3"));
    assert_eq!(first.numbers(), [1, 2, 3]);
    let next = first.link("next").expect("more");
    assert_eq!(
        next,
        "/repositories/4242/issues?direction=asc&per_page=3&page=2"
    );
    assert!(
        first.link("last").is_some_and(|l| l.ends_with("page=3")) && first.link("prev").is_none()
    );
    let second = get(&hub, &next);
    assert_eq!(second.numbers(), [4, 5, 6]);
    assert!(second.link("first").is_some() && second.link("prev").is_some());
    let third = get(&hub, &second.link("next").expect("more"));
    assert_eq!((third.numbers(), third.link("next")), (vec![7], None));
    // As many as fit on a page: nothing to link to.
    assert_eq!(
        get(&hub, &format!("{ISSUES}?per_page=7")).header("link"),
        None
    );
}

/// The trap of paging by number through what changes: a row that leaves its
/// place lets another slip over the boundary.
#[test]
fn an_item_updated_in_the_middle_of_a_walk_makes_page_two_skip_another() {
    let hub = with_issues(4);
    let walk = format!("{ISSUES}?state=all&sort=updated&direction=asc&per_page=2");
    let first = get(&hub, &walk);
    assert_eq!(first.numbers(), [1, 2]);
    hub.between(|world, _| {
        if world.answered == 1 {
            world.advance(60);
            world.repo(REPO).comment(1, "sam", "once more");
        }
    });
    let second = get(&hub, &first.link("next").expect("more"));
    assert_eq!(second.numbers(), [4, 1], "3 slipped");
}

#[test]
fn cursors_lead_on_where_page_numbers_do_not() {
    let hub = with_issues(5);
    hub.lock().cursors = true;
    let walk = format!("{ISSUES}?sort=updated&direction=asc&per_page=2");
    let first = get(&hub, &walk);
    hub.lock().advance(60);
    hub.lock().repo(REPO).edit_title(1, "moved");
    let second = get(&hub, &first.link("next").expect("more"));
    assert_eq!(second.numbers(), [3, 4], "nothing slips past a cursor");
    let third = get(&hub, &second.link("next").expect("more"));
    assert_eq!((third.numbers(), third.link("next")), (vec![5, 1], None));
    let back = get(&hub, &third.link("prev").expect("less"));
    assert_eq!(back.numbers(), [3, 4]);
    for (page, status) in [(99, 200), (100, 422)] {
        let deep = format!("{ISSUES}?per_page=100&page={page}");
        assert_eq!(get(&hub, &deep).status, status);
    }
    assert_eq!(
        get(&hub, &format!("{COMMENTS}?per_page=100&page=401")).status,
        422
    );
}

#[test]
fn the_clock_is_the_hubs_own() {
    let hub = Hub::new();
    assert_eq!(
        get(&hub, ISSUES).header("date"),
        Some("Wed, 05 Aug 2026 10:00:00 GMT")
    );
    hub.lock().advance(3661);
    assert_eq!(
        get(&hub, ISSUES).header("date"),
        Some("Wed, 05 Aug 2026 11:01:01 GMT")
    );
    hub.lock().tick_with_real_time(START);
    let before = hub.lock().now();
    let deadline = Instant::now() + Duration::from_secs(20);
    while hub.lock().now() == before {
        assert!(Instant::now() < deadline, "it stands still");
    }
}

#[test]
fn a_lagging_replica_answers_as_of_a_while_ago() {
    let hub = with_issues(1);
    hub.lock().lag = Duration::from_secs(30);
    hub.lock().seed(7);
    hub.lock().repo(REPO).comment(1, "sam", "news");
    hub.lock().advance(10);
    let mut sights = [0, 0];
    for _ in 0..60 {
        sights[get(&hub, COMMENTS).each("id").len()] += 1;
    }
    assert!(sights[0] > 10 && sights[1] > 5, "{sights:?}");
    hub.lock().advance(21);
    for _ in 0..20 {
        assert_eq!(get(&hub, COMMENTS).each("id"), [5001]);
    }
}

#[test]
fn rows_of_one_second_may_come_in_any_order() {
    let hub = Hub::new();
    for _ in 0..9 {
        hub.lock().repo(REPO).open(New::issue());
    }
    let numbers = || get(&hub, &format!("{ISSUES}?sort=updated&direction=asc")).numbers();
    assert!(numbers().is_sorted());
    hub.lock().shuffled_ties = true;
    let numbers = numbers();
    assert!(!numbers.is_sorted(), "{numbers:?}");
    assert_eq!(numbers.len(), 9);
}

/// Figures and thousands of random worlds are made on it, so it must be quick.
#[test]
fn ten_thousand_items_and_thirty_thousand_comments_are_answered_quickly() {
    let hub = Hub::new();
    let mut world = hub.lock();
    for _ in 0..10_000 {
        world.advance(1);
        let mut repo = world.repo(REPO);
        let n = repo.open(New::issue().label("auto"));
        for _ in 0..3 {
            repo.comment(n, "sam", "and another thing");
        }
    }
    drop(world);
    let start = Instant::now();
    let mut asked = 0;
    for _ in 0..10 {
        hub.lock().advance(1);
        hub.lock().repo(REPO).comment(5000, "sam", "news");
        for list in [ISSUES, COMMENTS] {
            let page = get(
                &hub,
                &format!(
                    "{list}?state=all&sort=updated&direction=asc&per_page=100&since=2026-08-05T11:00:00Z"
                ),
            );
            assert_eq!(page.each("id").len(), 100);
            asked += 1;
        }
    }
    let each = start.elapsed() / asked;
    println!("a page after a change: {each:?}");
    assert!(each < Duration::from_secs(2), "{each:?}");
}
