//! Scratch of a hostile tester: sequences in which the poller of GitHub does wrong. Each fails today; the
//! line above it says what happens, and where.

use crate::world::forge::{Asked, Reply};
use crate::world::hub::{Hub, New, START, Trace, Verdict, replies};
use crate::world::polled::{Polled, config};
use idempoll::engine::access::Policy;
use idempoll::engine::time::Time;

const R: &str = "octo/widgets";
const EVER: usize = 1_000_000;

fn policy(label: Option<&str>) -> Policy {
    Policy {
        authorized_users: vec!["sam".into()],
        label: label.map(str::to_string),
        max_retries: 3,
        ..Policy::default()
    }
}

fn go(hub: &Hub, p: &mut Polled, seconds: u64) {
    hub.lock().advance(seconds);
    let now = Time(hub.lock().now().0);
    p.cycle(now);
}

fn many(hub: &Hub, p: &mut Polled, cycles: u64, seconds: u64) {
    for _ in 0..cycles {
        go(hub, p, seconds);
    }
}

fn start(label: Option<&str>) -> (Hub, Polled) {
    let hub = Hub::new();
    let p = Polled::new(hub.url(), policy(label));
    (hub, p)
}

fn has(p: &Polled, end: &str) -> usize {
    p.ids().iter().filter(|id| id.ends_with(end)).count()
}

fn short(p: &Polled) -> Vec<String> {
    let ids = p.ids();
    ids.iter()
        .map(|id| id.split_once('#').expect("an id").1.to_string())
        .collect()
}

/// Everything about the item `n`: itself, its comments, events, reviews.
fn of(n: u64) -> impl FnMut(&Asked) -> bool + Send + 'static {
    move |a| {
        let path = format!("{}/", a.path());
        path.contains(&format!("/issues/{n}/")) || path.contains(&format!("/pulls/{n}/"))
    }
}

fn tail(end: String) -> impl FnMut(&Asked) -> bool + Send + 'static {
    move |a| a.path().ends_with(&end)
}

fn fail(hub: &Hub, when: impl FnMut(&Asked) -> bool + Send + 'static) {
    hub.lock().fault(EVER, when, replies::server_error(500));
}

// ---------------------------------------------------------------- starvation

/// The deleted #4 never ends: notes of one listing share `again_at`, ties go by number (unread.rs due), and after #1..#3 session.rs of_item refuses it unasked, for ever.
#[test]
fn a1_three_failing_absent_items_starve_a_deleted_one() {
    let (hub, mut p) = start(None);
    for _ in 0..6 {
        hub.lock().repo(R).open(New::issue().by("sam"));
    }
    many(&hub, &mut p, 5, 60);
    for n in 1..=4 {
        hub.lock().repo(R).delete(n, Trace::Gone);
    }
    for n in 1..=3 {
        fail(&hub, of(n));
    }
    many(&hub, &mut p, 600, 60);
    assert_eq!(has(&p, "#4/closed"), 1, "{:?}", p.cursor()["unread"]);
}

/// The healthy #4 is never opened, though every request for it would succeed: the same tie, behind FAILED_ITEMS in session.rs of_item.
#[test]
fn a2_three_failing_items_starve_a_healthy_one_labelled_with_them() {
    let (hub, mut p) = start(Some("auto"));
    for _ in 0..4 {
        hub.lock().repo(R).open(New::issue().by("sam"));
    }
    many(&hub, &mut p, 5, 60);
    for n in 1..=3 {
        fail(&hub, of(n));
    }
    for n in 1..=4 {
        hub.lock().repo(R).label(n, "auto");
    }
    many(&hub, &mut p, 600, 60);
    assert_eq!(has(&p, "#4/opened"), 1, "{:?}", p.cursor()["unread"]);
}

// ------------------------------------------------------- forgotten by one 404

/// One 404 of the item while it is unread: sweep.rs ask_for does `unread.remove` before the absence is certain; the item is there again, its review is never read. Lost, and missed is 0.
#[test]
fn b1_one_404_forgets_the_review_of_an_unread_pull_request() {
    let (hub, mut p) = start(None);
    let pr = hub.lock().repo(R).open(New::pull_request().by("sam"));
    hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    fail(&hub, |a| a.path().ends_with("/reviews"));
    hub.lock()
        .repo(R)
        .review(pr, "sam", Verdict::Approved, "fine");
    many(&hub, &mut p, 130, 60);
    hub.lock()
        .fault(1, tail(format!("/issues/{pr}")), replies::not_found());
    many(&hub, &mut p, 70, 60);
    hub.lock().heal();
    many(&hub, &mut p, 300, 60);
    assert_eq!(
        (has(&p, "review/5001"), p.missed),
        (1, 0),
        "{:?}",
        p.cursor()["unread"]
    );
}

/// The same for an item never told: it is dropped from `unread` and forgotten; a sweep opens it (missed 1), the comment is lost: sweeps skipped it while it was unread.
#[test]
fn b2_one_404_forgets_an_unread_item_that_was_never_told() {
    let (hub, mut p) = start(Some("auto"));
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    fail(&hub, tail(format!("/issues/{a}/events")));
    hub.lock().repo(R).label(a, "auto");
    hub.lock().advance(30);
    hub.lock().repo(R).comment(a, "sam", "do it");
    many(&hub, &mut p, 130, 60);
    hub.lock()
        .fault(1, tail(format!("/issues/{a}")), replies::not_found());
    many(&hub, &mut p, 70, 60);
    hub.lock().heal();
    many(&hub, &mut p, 300, 60);
    assert_eq!(
        (has(&p, "/opened"), has(&p, "comment/5001"), p.missed),
        (1, 1, 0)
    );
}

/// github.rs tell: rows::item fails, `left_out`, and drop_nobodys drops its comments while the windows move on. Past one sweep they are lost, and missed is 0.
#[test]
fn b3_an_item_whose_row_is_odd_for_two_hours_loses_its_comments() {
    let (hub, mut p) = start(None);
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    hub.lock().spoil(
        EVER,
        |_| true,
        |mut r| {
            let text = String::from_utf8_lossy(&r.body)
                .replace("\"state\":\"open\"", "\"state\":\"paused\"");
            r.body = text.into_bytes();
            r
        },
    );
    hub.lock().repo(R).comment(a, "sam", "hello");
    many(&hub, &mut p, 130, 60);
    hub.lock().heal();
    hub.lock().repo(R).edit_title(a, "x");
    many(&hub, &mut p, 130, 60);
    assert_eq!((has(&p, "comment/5001"), p.missed), (1, 0));
}

/// The same for ten minutes: nobody asks again, only the sweep finds it and counts it as missed.
#[test]
fn b4_an_item_whose_row_is_odd_for_a_moment_is_missed() {
    let (hub, mut p) = start(None);
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    hub.lock().spoil(
        EVER,
        |_| true,
        |mut r| {
            let text = String::from_utf8_lossy(&r.body)
                .replace("\"state\":\"open\"", "\"state\":\"paused\"");
            r.body = text.into_bytes();
            r
        },
    );
    hub.lock().repo(R).comment(a, "sam", "hello");
    many(&hub, &mut p, 10, 60);
    hub.lock().heal();
    hub.lock().repo(R).edit_title(a, "x");
    many(&hub, &mut p, 130, 60);
    assert_eq!((has(&p, "comment/5001"), p.missed), (1, 0));
}

// ----------------------------------------------------------------------- cost

/// `Unread::since` never moves on: each showing reads all comments since the first failure again (github.rs is_read_again), one request more per 100, for ever; each is told to the engine again.
#[test]
fn c1_a_busy_pull_request_whose_reviews_fail_costs_more_and_more() {
    let (hub, mut p) = start(None);
    let pr = hub.lock().repo(R).open(New::pull_request().by("sam"));
    many(&hub, &mut p, 5, 60);
    fail(&hub, |a| a.path().ends_with("/reviews"));
    let mut costs = vec![];
    for i in 0..300 {
        for _ in 0..3 {
            hub.lock().repo(R).comment(pr, "eve", "busy");
        }
        hub.log();
        go(&hub, &mut p, 60);
        if i % 50 == 49 {
            costs.push(hub.log().len());
        }
    }
    assert!(costs[5] <= costs[0] + 2, "{costs:?}");
}

// ---------------------------------------------------------------------- order

/// github.rs tell ignores what catch_up_with_stranger says: the item and its newest comment are told at once, its older comment a minute later.
#[test]
fn d1_a_stranger_whose_past_fails_once_is_told_out_of_order() {
    let (hub, mut p) = start(None);
    hub.lock().create("octo/other");
    let m = hub.lock().repo(R).open(New::issue().by("sam"));
    let n = hub.lock().repo("octo/other").open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    hub.lock()
        .repo("octo/other")
        .comment(n, "sam", "over there");
    many(&hub, &mut p, 10, 60);
    hub.lock().repo(R).comment(m, "sam", "traffic");
    many(&hub, &mut p, 10, 60);
    let n = hub.lock().transfer("octo/other", n, R);
    hub.lock().advance(5);
    let late = hub.lock().repo(R).comment(n, "sam", "over here");
    hub.lock().fault(
        3,
        tail(format!("/issues/{n}/comments")),
        replies::server_error(500),
    );
    many(&hub, &mut p, 10, 60);
    println!("d1 {:?}", short(&p));
    let ids = short(&p);
    let of_n: Vec<&String> = ids
        .iter()
        .filter(|id| id.starts_with(&format!("{n}/")))
        .collect();
    assert_eq!(of_n.len(), 3, "{ids:?}");
    assert_eq!(of_n[2], &format!("{n}/comment/{late}"), "{ids:?}");
}

/// talk.rs leave_unread drops what the list had shown; after PATIENCE new comments are told from the list, the first two only when the item's own list answers again (here: after them all).
#[test]
fn d2_a_comment_seen_while_its_item_fails_is_told_after_later_ones() {
    let (hub, mut p) = start(None);
    let pr = hub.lock().repo(R).open(New::pull_request().by("sam"));
    many(&hub, &mut p, 5, 60);
    fail(&hub, of(pr));
    for _ in 0..20 {
        hub.lock().repo(R).comment(pr, "sam", "x");
        go(&hub, &mut p, 60);
    }
    hub.lock().heal();
    many(&hub, &mut p, 130, 60);
    println!("d2 {:?} missed {}", short(&p), p.missed);
    let mut sorted = short(&p);
    sorted.retain(|id| id.contains("comment/"));
    let told = sorted.clone();
    sorted.sort();
    assert_eq!(sorted.len(), 20);
    assert_eq!(told, sorted);
}

// --------------------------------------------------------------- transfer etc

/// label_times notes the item unread with `since` = now (no label event yet), and tell asks catch_up_with_stranger only if `!unread`: what was said elsewhere is lost, and missed is 0.
#[test]
fn e1_a_transferred_labelled_issue_loses_its_past() {
    let (hub, mut p) = start(Some("auto"));
    hub.lock().create("octo/other");
    hub.lock()
        .repo(R)
        .open(New::issue().by("sam").label("auto"));
    many(&hub, &mut p, 5, 60);
    let n = hub
        .lock()
        .repo("octo/other")
        .open(New::issue().by("sam").label("auto"));
    hub.lock().advance(60);
    hub.lock()
        .repo("octo/other")
        .comment(n, "sam", "over there");
    many(&hub, &mut p, 10, 60);
    hub.lock().repo(R).comment(1, "sam", "traffic");
    many(&hub, &mut p, 120, 60);
    hub.lock().transfer("octo/other", n, R);
    many(&hub, &mut p, 30, 10);
    many(&hub, &mut p, 130, 60);
    let mut q = Polled::new(
        hub.url(),
        Policy {
            watch_from: Some(START),
            ..policy(Some("auto"))
        },
    );
    many(&hub, &mut q, 5, 60);
    assert_eq!(
        (p.ids().len(), p.missed),
        (q.ids().len(), 0),
        "up {:?} down {:?}",
        short(&p),
        short(&q)
    );
}

/// github.rs first: open_items(true) tells the item as ended before any comment is read (talk asks for nothing yet); the comment comes after the end, out of scope: lost.
#[test]
fn e2_a_comment_before_the_label_went_is_lost_when_the_rules_change() {
    let (hub, mut p) = start(Some("auto"));
    let n = hub
        .lock()
        .repo(R)
        .open(New::issue().by("sam").label("auto"));
    many(&hub, &mut p, 5, 60);
    let c = hub.lock().repo(R).comment(n, "sam", "before");
    hub.lock().advance(30);
    hub.lock().repo(R).unlabel(n, "auto");
    hub.lock().advance(600);
    p.reconfigure(
        config(hub.url()),
        Policy {
            authorized_users: vec!["sam".into(), "kim".into()],
            ..policy(Some("auto"))
        },
    );
    many(&hub, &mut p, 130, 60);
    assert_eq!(
        (has(&p, &format!("comment/{c}")), has(&p, "/closed")),
        (1, 1),
        "{:?}",
        short(&p)
    );
}

type Step = Box<dyn FnMut(&Hub, u64)>;

/// Five minutes for each step; one poller looks every `fast` seconds, another not
/// before it is all over.
fn up_and_down(
    label: Option<&str>,
    kind: New,
    fast: u64,
    steps: &mut [Step],
) -> (Vec<String>, Vec<String>) {
    let hub = Hub::new();
    let mut up = Polled::new(hub.url(), policy(label));
    let mut down = Polled::new(hub.url(), policy(label));
    let n = hub.lock().repo(R).open(kind);
    many(&hub, &mut up, 5, 60);
    go(&hub, &mut down, 1);
    for step in steps {
        step(&hub, n);
        for _ in 0..300 / fast {
            go(&hub, &mut up, fast);
        }
    }
    for _ in 0..10 {
        go(&hub, &mut up, 60);
        go(&hub, &mut down, 1);
    }
    (short(&up), short(&down))
}

/// Nobody tells the engine when the label went: tell asks unlabelled_at only while `updated_at` is young, plan.rs comments_before_the_end takes every comment of the sighting. Up: baseline; down: an event (R6.4).
#[test]
fn e3_a_comment_after_the_label_went_depends_on_when_we_looked() {
    let (up, down) = up_and_down(
        Some("auto"),
        New::issue().by("sam").label("auto"),
        10,
        &mut [
            Box::new(|hub, n| hub.lock().repo(R).unlabel(n, "auto")),
            Box::new(|hub, n| {
                hub.lock().repo(R).comment(n, "sam", "after");
            }),
        ],
    );
    assert_eq!(up, down);
}

/// The same with a close after it: `closed_at` is taken for the end though the label went before (github.rs tell, `item.closed_at.or`).
#[test]
fn e4_a_comment_between_the_label_and_the_end_depends_on_when_we_looked() {
    let (up, down) = up_and_down(
        Some("auto"),
        New::issue().by("sam").label("auto"),
        10,
        &mut [
            Box::new(|hub, n| hub.lock().repo(R).unlabel(n, "auto")),
            Box::new(|hub, n| {
                hub.lock().repo(R).comment(n, "sam", "after");
            }),
            Box::new(|hub, n| hub.lock().repo(R).close(n)),
        ],
    );
    assert_eq!(up, down);
}

// ----------------------------------------------------------------- wrong ends

/// sweep.rs look_for_absent: one 500 among the three samples makes `missing.len() == absent.len()` false, so the 404s of the others count, and four items end as gone (C030).
#[test]
fn f1_all_items_hidden_and_some_failing_end_as_gone() {
    let (hub, mut p) = start(None);
    for _ in 0..5 {
        hub.lock().repo(R).open(New::issue().by("sam"));
    }
    many(&hub, &mut p, 5, 60);
    hub.lock().spoil(
        EVER,
        |x: &Asked| x.path().ends_with("/issues"),
        |_| Reply::json("[]"),
    );
    fail(&hub, of(3));
    for n in [1, 2, 4, 5] {
        hub.lock().fault(EVER, of(n), replies::not_found());
    }
    many(&hub, &mut p, 130, 60);
    assert_eq!(has(&p, "/closed"), 0, "{:?}", short(&p));
}

/// The same if all three samples fail first: `missing` is empty, the rest is asked for by later listings, where nobody looks at none_left: all five end as gone.
#[test]
fn f2_all_items_fail_and_are_hidden_later() {
    let (hub, mut p) = start(None);
    for _ in 0..5 {
        hub.lock().repo(R).open(New::issue().by("sam"));
    }
    many(&hub, &mut p, 5, 60);
    hub.lock().spoil(
        EVER,
        |x: &Asked| x.path().ends_with("/issues"),
        |_| Reply::json("[]"),
    );
    for n in 1..=5 {
        hub.lock().fault(3, of(n), replies::server_error(500));
        hub.lock().fault(EVER, of(n), replies::not_found());
    }
    many(&hub, &mut p, 130, 60);
    assert_eq!(has(&p, "/closed"), 0, "{:?}", short(&p));
}

// ------------------------------------------------------------------ redirects

/// walk.rs rows_of_item follows a redirect (Redirects::SameOrigin) to a moved item, and rows::comment takes the number out of whatever issue_url: another repository's comments are told as those of our #1.
#[test]
fn g1_a_comment_of_another_repository_is_taken_for_ours() {
    let (hub, mut p) = start(None);
    let other = hub.lock().create("octo/other");
    hub.lock().repo(R).open(New::issue().by("sam"));
    let pr = hub.lock().repo(R).open(New::issue().by("sam"));
    let far = hub.lock().repo("octo/other").open(New::issue().by("sam"));
    many(&hub, &mut p, 10, 60);
    hub.lock().repo(R).close(pr);
    many(&hub, &mut p, 10, 60);
    for _ in 0..7 {
        hub.lock()
            .repo("octo/other")
            .comment(far, "sam", "none of your business");
    }
    // Reopened, so that its comments are read by themselves; and moved just then.
    hub.lock().fault(
        1,
        tail(format!("/issues/{pr}/comments")),
        replies::moved(&format!(
            "{{base}}/repositories/{other}/issues/{far}/comments"
        )),
    );
    hub.lock().repo(R).reopen(pr);
    many(&hub, &mut p, 10, 60);
    println!("g1 {:?}", short(&p));
    assert_eq!(
        short(&p)
            .iter()
            .filter(|id| id.contains("comment/"))
            .count(),
        0,
        "{:?}",
        short(&p)
    );
}

/// If it moved under its number, session.rs follow_repo takes that for a moved repository: the rest of the listing reads the other repository, and opens its items as ours (`identified` was set before).
#[test]
fn g2_an_item_moved_under_its_number_leads_the_listing_to_another_repository() {
    let (hub, mut p) = start(None);
    let other = hub.lock().create("octo/other");
    hub.lock().repo(R).open(New::issue().by("sam"));
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    for _ in 0..9 {
        hub.lock().repo("octo/other").open(New::issue().by("sam"));
    }
    many(&hub, &mut p, 10, 60);
    hub.lock().repo(R).close(a);
    many(&hub, &mut p, 49, 60);
    hub.lock().fault(
        1,
        tail(format!("/issues/{a}/comments")),
        replies::moved(&format!(
            "{{base}}/repositories/{other}/issues/{a}/comments"
        )),
    );
    hub.lock().repo(R).reopen(a);
    go(&hub, &mut p, 600);
    println!(
        "g2 complete {} {:?} {:?}",
        p.complete,
        p.said("poll.source_error"),
        p.cursor()
    );
    many(&hub, &mut p, 10, 60);
    println!("g2 {:?} {:?}", short(&p), p.said("poller.warning"));
    assert_eq!(p.ids().len(), 4, "{:?}", short(&p));
}

// ---------------------------------------------------------------------- delay

/// github.rs strays skips an unread item, and a line comment does not move /issues: told when it is due, which is hourly by then.
#[test]
fn h1_a_line_comment_on_an_unread_pull_request_waits_for_an_hour() {
    let (hub, mut p) = start(None);
    let pr = hub.lock().repo(R).open(New::pull_request().by("sam"));
    many(&hub, &mut p, 5, 60);
    fail(&hub, |a| a.path().ends_with("/reviews"));
    hub.lock().repo(R).review(pr, "sam", Verdict::Approved, "r");
    many(&hub, &mut p, 190, 60);
    let l = hub.lock().repo(R).line_comment(pr, "sam", "l");
    let mut late = 0;
    while has(&p, &format!("review_comment/{l}")) == 0 && late < 120 {
        go(&hub, &mut p, 60);
        late += 1;
    }
    assert!(late <= 10, "{late} minutes late");
}

/// The same after the server healed: talk.rs reviews asks for no unread pull request and strays skips it, though it moved.
#[test]
fn h2_a_review_on_a_healed_pull_request_waits_for_an_hour() {
    let (hub, mut p) = start(None);
    let pr = hub.lock().repo(R).open(New::pull_request().by("sam"));
    many(&hub, &mut p, 5, 60);
    fail(&hub, |a| a.path().ends_with("/reviews"));
    hub.lock().repo(R).review(pr, "sam", Verdict::Approved, "r");
    many(&hub, &mut p, 190, 60);
    hub.lock().heal();
    let r = hub.lock().repo(R).review(pr, "sam", Verdict::Approved, "s");
    let mut late = 0;
    while has(&p, &format!("review/{r}")) == 0 && late < 120 {
        go(&hub, &mut p, 60);
        late += 1;
    }
    assert!(late <= 10, "{late} minutes late");
}

/// label_times returns false however long the events fail: the item is never opened, against docs/github.md (`after that what can be read of it is`) and R6.4 (`failing that the moment it was first seen`).
#[test]
fn h3_an_item_whose_events_fail_is_never_opened() {
    let (hub, mut p) = start(Some("auto"));
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    fail(&hub, tail(format!("/issues/{a}/events")));
    hub.lock().repo(R).label(a, "auto");
    many(&hub, &mut p, 600, 60);
    assert_eq!(has(&p, "/opened"), 1);
}

// -------------------------------------------------------- one blocks them all

/// limits.rs Refused::Unavailable gives a not_before, so session.rs of_item ends the listing: one item's 503 with Retry-After stops the repository for ever.
#[test]
fn i1_one_item_with_503_and_retry_after_blocks_the_repository() {
    let (hub, mut p) = start(None);
    let pr = hub.lock().repo(R).open(New::pull_request().by("sam"));
    let is = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    hub.lock().fault(
        EVER,
        tail(format!("/pulls/{pr}/reviews")),
        replies::server_error(503).header("Retry-After", "5"),
    );
    hub.lock().repo(R).review(pr, "sam", Verdict::Approved, "r");
    many(&hub, &mut p, 2, 60);
    hub.lock().repo(R).comment(is, "sam", "what about this");
    many(&hub, &mut p, 100, 60);
    assert_eq!(
        has(&p, "comment/5001"),
        1,
        "{:?}",
        p.said("poll.rate_limited")
    );
}

/// engine/walk.rs heard compares reasons, and the server's words with a request id differ each time: named once per try, not once.
#[test]
fn i2_an_item_is_named_in_the_log_again_and_again() {
    let (hub, mut p) = start(None);
    let pr = hub.lock().repo(R).open(New::pull_request().by("sam"));
    many(&hub, &mut p, 5, 60);
    let mut n = 0;
    hub.lock().spoil(
        EVER,
        |a| a.path().ends_with("/reviews"),
        move |_| {
            n += 1;
            replies::error(500, &format!("Server Error (request C0DE:{n:08X})"))
        },
    );
    for _ in 0..60 {
        hub.lock().repo(R).comment(pr, "eve", "busy");
        go(&hub, &mut p, 60);
    }
    let named = p.said("poll.item_error").len();
    assert!(named <= 3, "{named} times");
}

/// talk.rs drafted asks for reviews of pull requests nobody wants, and notes them unread when that fails: in status for ever, asked for every hour.
#[test]
fn i3_a_pull_request_nobody_wants_is_named_for_ever() {
    let (hub, mut p) = start(Some("auto"));
    let pr = hub.lock().repo(R).open(New::pull_request().by("sam"));
    many(&hub, &mut p, 5, 60);
    fail(&hub, |a| a.path().ends_with("/reviews"));
    let l = hub.lock().repo(R).line_comment(pr, "sam", "l");
    hub.lock().advance(30);
    hub.lock().repo(R).edit_line_comment(l, "m");
    many(&hub, &mut p, 300, 60);
    assert_eq!(
        p.said("poll.item_error").len(),
        0,
        "{:?}",
        p.cursor()["unread"]
    );
}

/// A comment passed over without the label moves `Record::since` (plan.rs passed_over) past the review not read yet, which was said with the label: lost as baseline.
#[test]
fn k9_a_review_unread_while_the_label_went_and_came_is_lost() {
    let (hub, mut p) = start(Some("auto"));
    let pr = hub
        .lock()
        .repo(R)
        .open(New::pull_request().by("sam").label("auto"));
    many(&hub, &mut p, 5, 60);
    fail(&hub, |a| a.path().ends_with("/reviews"));
    hub.lock()
        .repo(R)
        .review(pr, "sam", Verdict::Approved, "r1");
    hub.lock().repo(R).comment(pr, "sam", "c1");
    many(&hub, &mut p, 20, 60);
    hub.lock().repo(R).close(pr);
    many(&hub, &mut p, 20, 60);
    hub.lock().repo(R).comment(pr, "sam", "c2");
    hub.lock().repo(R).reopen(pr);
    many(&hub, &mut p, 20, 60);
    hub.lock().repo(R).unlabel(pr, "auto");
    many(&hub, &mut p, 20, 60);
    hub.lock()
        .repo(R)
        .comment(pr, "sam", "c3 without the label");
    hub.lock()
        .repo(R)
        .review(pr, "sam", Verdict::Approved, "r2 without the label");
    many(&hub, &mut p, 20, 60);
    hub.lock().repo(R).label(pr, "auto");
    many(&hub, &mut p, 20, 60);
    hub.lock().repo(R).comment(pr, "sam", "c4");
    many(&hub, &mut p, 20, 60);
    hub.lock().heal();
    many(&hub, &mut p, 130, 60);
    println!("k9 unread {:?}", p.cursor()["unread"]);
    let mut ids = short(&p);
    ids.sort();
    let due = [
        "1/closed",
        "1/closed/2",
        "1/comment/5001",
        "1/comment/5002",
        "1/comment/5004",
        "1/opened",
        "1/opened/2",
        "1/opened/3",
        "1/review/5001",
    ];
    assert_eq!((ids, p.missed), (due.map(String::from).to_vec(), 0));
}

/// Without the label again: the end was told after PATIENCE, so the review said before it is out_of_scope when it is read (plan.rs): lost. With `closed` instead it would be told.
#[test]
fn m1_a_review_made_before_the_label_went_is_lost_when_it_is_read_after() {
    let (hub, mut p) = start(Some("auto"));
    let pr = hub
        .lock()
        .repo(R)
        .open(New::pull_request().by("sam").label("auto"));
    many(&hub, &mut p, 5, 60);
    fail(&hub, |a| a.path().ends_with("/reviews"));
    hub.lock().repo(R).review(pr, "sam", Verdict::Approved, "r");
    many(&hub, &mut p, 20, 60);
    hub.lock().repo(R).unlabel(pr, "auto");
    many(&hub, &mut p, 20, 60);
    hub.lock().heal();
    many(&hub, &mut p, 200, 60);
    assert_eq!(
        (has(&p, "review/5001"), p.missed),
        (1, 0),
        "{:?} {:?}",
        short(&p),
        p.cursor()["unread"]
    );
}

/// github.rs tell: unlabelled_at is None while the events fail, the item is held as long as it is busy; no end, and nothing of it is told.
#[test]
fn m2_a_busy_item_without_its_label_never_ends_while_its_events_fail() {
    let (hub, mut p) = start(Some("auto"));
    let n = hub
        .lock()
        .repo(R)
        .open(New::issue().by("sam").label("auto"));
    many(&hub, &mut p, 5, 60);
    fail(&hub, tail(format!("/issues/{n}/events")));
    hub.lock().repo(R).comment(n, "sam", "before");
    hub.lock().advance(10);
    hub.lock().repo(R).unlabel(n, "auto");
    for _ in 0..240 {
        go(&hub, &mut p, 30);
        hub.lock().advance(30);
        hub.lock().repo(R).comment(n, "eve", "me too");
    }
    assert_eq!(
        (has(&p, "comment/5001"), has(&p, "/closed")),
        (1, 1),
        "{:?}",
        short(&p)
    );
}

/// As b3, for a comment's row: talk.rs leave reports it, and the window moves on. Past one sweep it is lost, and missed is 0.
#[test]
fn m3_a_comment_whose_row_is_odd_for_two_hours_is_lost() {
    let (hub, mut p) = start(None);
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    hub.lock().spoil(
        EVER,
        |a| a.path().ends_with("/comments"),
        |mut r| {
            let text = String::from_utf8_lossy(&r.body).replace("\"issue_url\"", "\"issue_link\"");
            r.body = text.into_bytes();
            r
        },
    );
    hub.lock().repo(R).comment(a, "sam", "hello");
    many(&hub, &mut p, 130, 60);
    hub.lock().heal();
    hub.lock().repo(R).edit_title(a, "x");
    many(&hub, &mut p, 130, 60);
    assert_eq!((has(&p, "comment/5001"), p.missed), (1, 0));
}

/// As g1, for /events: another item's history says that ours had its label earlier, and what was baseline is told.
#[test]
fn m5_the_history_of_another_repositorys_item_says_when_ours_got_its_label() {
    let (hub, mut p) = start(Some("auto"));
    let other = hub.lock().create("octo/other");
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    for _ in 0..7 {
        hub.lock()
            .repo("octo/other")
            .open(New::issue().by("sam").label("auto"));
    }
    many(&hub, &mut p, 10, 60);
    hub.lock().repo(R).comment(a, "sam", "before the label");
    hub.lock().advance(300);
    hub.lock().repo(R).label(a, "auto");
    hub.lock().fault(
        1,
        tail(format!("/issues/{a}/events")),
        replies::moved(&format!("{{base}}/repositories/{other}/issues/7/events")),
    );
    many(&hub, &mut p, 10, 60);
    assert_eq!(short(&p), ["1/opened"]);
}
