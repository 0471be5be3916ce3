//! Sequences a hostile tester found, or tried: odd answers that last, names that change hands, items that
//! come and go, over hours of cycles.

use crate::world::forge::{Asked, Reply};
use crate::world::hub::{Hub, New, START, Trace, Verdict, replies};
use crate::world::polled::{Polled, config};
use idempoll::engine::access::Policy;
use idempoll::engine::time::Time;
use serde_json::Value;
use std::time::Duration;

const R: &str = "octo/widgets";

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

/// Given one item being worked on, when its repository is deleted and another takes the name, then
/// the item does not end (C028).
#[test]
fn c028_another_repository_of_the_name_ends_nothing_of_one_item() {
    let (hub, mut p) = start(None);
    hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    hub.lock().recreate(R);
    many(&hub, &mut p, 70, 60);
    assert_eq!(
        has(&p, "/closed"),
        0,
        "ended by another repository's silence"
    );
}

/// Given an item of a repository that was renamed while it was idle, when another takes the old
/// name, then the item does not end (C028).
#[test]
fn c028_a_name_taken_after_a_rename_ends_nothing() {
    let (hub, mut p) = start(None);
    hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    hub.lock().rename(R, "octo/gadgets");
    hub.lock().create(R);
    many(&hub, &mut p, 70, 60);
    assert_eq!(has(&p, "/closed"), 0);
}

/// Given three items, when another repository of the name has one of their numbers, then nothing
/// ends and nothing is told of it (C028).
#[test]
fn c028_the_numbers_of_another_repository_are_not_ours() {
    let (hub, mut p) = start(None);
    for _ in 0..3 {
        hub.lock().repo(R).open(New::issue().by("sam"));
    }
    many(&hub, &mut p, 5, 60);
    hub.lock().recreate(R);
    hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 70, 60);
    assert_eq!(has(&p, "/closed"), 0);
    assert_eq!(p.ids().len(), 3);
}

/// Given forty items that were all moved away, when the sweep has found that, then later cycles are
/// as cheap as ever (C030).
#[test]
fn c030_forty_items_moved_away_cost_no_sweep_at_every_cycle() {
    let (hub, mut p) = start(Some("auto"));
    let mut ours = vec![];
    for _ in 0..40 {
        ours.push(
            hub.lock()
                .repo(R)
                .open(New::issue().by("sam").label("auto")),
        );
    }
    for i in 0..450 {
        if i % 50 == 0 {
            hub.lock().advance(1);
        }
        hub.lock().repo(R).open(New::issue().by("eve"));
    }
    many(&hub, &mut p, 5, 60);
    hub.lock().create("octo/other");
    for n in ours {
        hub.lock().transfer(R, n, "octo/other");
    }
    many(&hub, &mut p, 65, 60);
    hub.log();
    let mut costs = vec![];
    for _ in 0..10 {
        go(&hub, &mut p, 60);
        costs.push(hub.log().len());
    }
    many(&hub, &mut p, 5, 60);
    assert!(
        costs.iter().max().unwrap() <= &6,
        "an idle cycle costs {costs:?}"
    );
}

/// Given two items, when both are deleted and the server says so, then both end (C030).
#[test]
fn c030_items_deleted_for_good_end_even_if_there_are_no_others() {
    let (hub, mut p) = start(None);
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    let b = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    hub.lock().repo(R).delete(a, Trace::Gone);
    hub.lock().repo(R).delete(b, Trace::Gone);
    many(&hub, &mut p, 65, 60);
    hub.log();
    let mut costs = vec![];
    for _ in 0..5 {
        go(&hub, &mut p, 60);
        costs.push(hub.log().len());
    }
    assert_eq!(has(&p, "/closed"), 2);
}

/// Given one answer with a clock of 2030, when an item is deleted later, then a sweep finds it
/// (C023).
#[test]
fn c023_one_answer_with_a_clock_far_ahead_stops_no_sweep() {
    let (hub, mut p) = start(None);
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    hub.lock().spoil(
        1,
        |_: &Asked| true,
        |r| r.header("date", "Tue, 01 Jan 2030 00:00:00 GMT"),
    );
    go(&hub, &mut p, 60);
    hub.lock().heal();
    hub.lock().repo(R).delete(a, Trace::Gone);
    many(&hub, &mut p, 200, 60);
    assert_eq!(has(&p, "/closed"), 1, "no sweep any more");
}

/// Given a pull request whose reviews answer 500 for ever, when another item is commented on, then
/// that is told (C029).
#[test]
fn c029_reviews_that_fail_for_ever_hold_up_no_other_item() {
    let (hub, mut p) = start(None);
    let pr = hub.lock().repo(R).open(New::pull_request().by("sam"));
    let is = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    let tail = format!("/pulls/{pr}/reviews");
    hub.lock().fault(
        1_000_000,
        move |a: &Asked| a.path().ends_with(&tail),
        replies::server_error(500),
    );
    hub.lock()
        .repo(R)
        .review(pr, "sam", Verdict::Approved, "fine");
    many(&hub, &mut p, 2, 60);
    hub.lock().repo(R).comment(is, "sam", "what about this");
    many(&hub, &mut p, 100, 60);
    assert_eq!(
        has(&p, "comment/5001"),
        1,
        "one odd item blocks its neighbours"
    );
}

/// Given an item whose events answer 500 for ever, when another item is commented on, then that is
/// told (C029).
#[test]
fn c029_events_that_fail_for_ever_hold_up_no_other_item() {
    let (hub, mut p) = start(Some("auto"));
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    let b = hub
        .lock()
        .repo(R)
        .open(New::issue().by("sam").label("auto"));
    many(&hub, &mut p, 5, 60);
    let tail = format!("/issues/{a}/events");
    hub.lock().fault(
        1_000_000,
        move |x: &Asked| x.path().ends_with(&tail),
        replies::server_error(500),
    );
    hub.lock().repo(R).label(a, "auto");
    many(&hub, &mut p, 2, 60);
    hub.lock().repo(R).comment(b, "sam", "what about this");
    many(&hub, &mut p, 100, 60);
    assert_eq!(has(&p, "comment/5001"), 1);
}

/// Given a deleted item that answers 500 by itself for ever, when another item is commented on,
/// then that is told (C029).
#[test]
fn c029_an_absent_item_that_fails_by_itself_holds_up_no_other() {
    let (hub, mut p) = start(None);
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    let b = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    let tail = format!("/issues/{a}");
    hub.lock().repo(R).delete(a, Trace::Gone);
    hub.lock().fault(
        1_000_000,
        move |x: &Asked| x.path().ends_with(&tail),
        replies::server_error(500),
    );
    many(&hub, &mut p, 65, 60);
    hub.log();
    go(&hub, &mut p, 60);
    let c = p.complete;
    hub.lock().repo(R).comment(b, "sam", "what about this");
    many(&hub, &mut p, 5, 60);
    assert_eq!(has(&p, "comment/5001"), 1);
    assert!(
        c,
        "a sweep that ends with 500 for one item cuts every cycle"
    );
}

/// Given reviews that answer 404 for ten minutes, when their pull request changes meanwhile, then
/// the review is told after, and no sweep missed it (R6.2).
#[test]
fn r6_2_a_review_outlives_ten_minutes_of_404() {
    let (hub, mut p) = start(None);
    let pr = hub.lock().repo(R).open(New::pull_request().by("sam"));
    many(&hub, &mut p, 10, 60);
    hub.lock().fault(
        1_000_000,
        |a: &Asked| a.path().ends_with("/reviews"),
        replies::not_found(),
    );
    hub.lock()
        .repo(R)
        .review(pr, "sam", Verdict::Approved, "fine");
    many(&hub, &mut p, 10, 60);
    hub.lock().repo(R).edit_title(pr, "x");
    many(&hub, &mut p, 5, 60);
    hub.lock().heal();
    many(&hub, &mut p, 10, 60);
    let soon = has(&p, "review/5001");
    many(&hub, &mut p, 120, 60);
    assert_eq!(
        (soon, p.missed),
        (1, 0),
        "in the end {}",
        has(&p, "review/5001")
    );
}

/// Given reviews that answer 404 for longer than a sweep, when they are there again, then the
/// review is told (R6.2).
#[test]
fn r6_2_a_review_outlives_a_404_longer_than_a_sweep() {
    let (hub, mut p) = start(None);
    let pr = hub.lock().repo(R).open(New::pull_request().by("sam"));
    many(&hub, &mut p, 10, 60);
    hub.lock().fault(
        1_000_000,
        |a: &Asked| a.path().ends_with("/reviews"),
        replies::not_found(),
    );
    hub.lock()
        .repo(R)
        .review(pr, "sam", Verdict::Approved, "fine");
    many(&hub, &mut p, 10, 60);
    hub.lock().repo(R).edit_title(pr, "x");
    many(&hub, &mut p, 70, 60);
    hub.lock().heal();
    many(&hub, &mut p, 240, 60);
    assert_eq!(has(&p, "review/5001"), 1, "lost for good");
}

/// Given a review without a text, when it gets one twenty minutes later, then it is told, and no
/// sweep missed it (C044).
#[test]
fn c044_a_review_that_gets_its_text_late_is_told_then() {
    let (hub, mut p) = start(None);
    let pr = hub.lock().repo(R).open(New::pull_request().by("sam"));
    many(&hub, &mut p, 20, 60);
    let id = hub.lock().repo(R).review(pr, "sam", Verdict::Approved, "");
    many(&hub, &mut p, 20, 60);
    hub.lock().repo(R).edit_review(id, "and now a text");
    many(&hub, &mut p, 100, 60);
    assert_eq!(
        p.missed,
        0,
        "counted as missed, {} times delivered",
        has(&p, "review/5001")
    );
}

/// Given an issue with a comment elsewhere, when it is transferred here, then both are told, as a
/// poller that was down would have (R6.4).
#[test]
fn r6_4_a_transferred_issue_brings_what_was_said_of_it() {
    let (hub, mut p) = start(None);
    hub.lock().create("octo/other");
    many(&hub, &mut p, 10, 60);
    let n = hub.lock().repo("octo/other").open(New::issue().by("sam"));
    hub.lock().advance(60);
    hub.lock()
        .repo("octo/other")
        .comment(n, "sam", "over there");
    many(&hub, &mut p, 20, 60);
    hub.lock().transfer("octo/other", n, R);
    many(&hub, &mut p, 10, 60);
    let soon = p.ids();
    many(&hub, &mut p, 100, 60);
    let mut q = Polled::new(
        hub.url(),
        Policy {
            watch_from: Some(START),
            ..policy(None)
        },
    );
    many(&hub, &mut q, 5, 60);
    assert_eq!(p.missed, 0, "soon {soon:?}");
    assert_eq!(
        p.ids().len(),
        q.ids().len(),
        "up {:?} down {:?}",
        p.ids(),
        q.ids()
    );
}

/// Given an item that lost its label, when it is commented on every minute, then what was said
/// before is told, and its end (R6.1).
#[test]
fn r6_1_an_item_without_its_label_ends_however_busy_it_is() {
    let (hub, mut p) = start(Some("auto"));
    let n = hub
        .lock()
        .repo(R)
        .open(New::issue().by("sam").label("auto"));
    many(&hub, &mut p, 5, 60);
    hub.lock()
        .repo(R)
        .comment(n, "sam", "before the label went");
    hub.lock().advance(5);
    hub.lock().repo(R).unlabel(n, "auto");
    for _ in 0..120 {
        go(&hub, &mut p, 30);
        hub.lock().advance(30);
        hub.lock().repo(R).comment(n, "eve", "me too");
    }
    assert_eq!((has(&p, "comment/5001"), has(&p, "/closed")), (1, 1));
}

/// Given an item that was not there once, when the rules change within seconds and it is not there
/// again, then it does not end (C030).
#[test]
fn c030_other_rules_are_no_second_absence() {
    let (hub, mut p) = start(None);
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 59, 60);
    let tail = format!("/issues/{a}");
    hub.lock().fault(
        1_000,
        move |x: &Asked| x.path().ends_with(&tail),
        replies::not_found(),
    );
    // The other one is seen, or nothing would be concluded at all.
    let without = move |reply: Reply| {
        let mut rows: Vec<Value> = serde_json::from_slice(&reply.body).unwrap_or_default();
        rows.retain(|row| row["number"] != a);
        Reply {
            body: serde_json::to_vec(&rows).expect("JSON"),
            ..reply
        }
    };
    let lists = |x: &Asked| x.path().ends_with("/issues");
    hub.lock().spoil(1_000, lists, without);
    while !hub.log().iter().any(|l| l.status == 404) {
        go(&hub, &mut p, 60);
    }
    p.reconfigure(
        config(hub.url()),
        Policy {
            authorized_users: vec!["sam".into(), "kim".into()],
            ..policy(None)
        },
    );
    go(&hub, &mut p, 5);
    assert_eq!(has(&p, "/closed"), 0, "gone within five seconds");
}

/// Given a row whose time is twenty hours ahead, when things happen after it, then all are told at
/// once (C023).
#[test]
fn c023_a_row_twenty_hours_ahead_hides_no_comment() {
    let (hub, mut p) = start(None);
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    hub.lock().spoil(1, |x: &Asked| x.path().ends_with("/issues"), |_| {
        Reply::json(r#"[{"number":9,"state":"open","title":"x","user":{"login":"eve"},"created_at":"2026-08-06T06:00:00Z","updated_at":"2026-08-06T06:00:00Z"}]"#)
    });
    hub.lock().repo(R).edit_title(a, "y");
    go(&hub, &mut p, 60);
    hub.lock().heal();
    let n = hub.lock().repo(R).open(New::issue().by("sam"));
    hub.lock().advance(10);
    hub.lock().repo(R).comment(n, "sam", "hello");
    many(&hub, &mut p, 10, 60);
    let soon = p.ids().len();
    many(&hub, &mut p, 120, 60);
    assert_eq!((soon, p.missed), (3, 0));
}

/// Given rows that make no sense in every list, when good ones stand beside them, then those are
/// told (C001).
#[test]
fn c001_rows_that_make_no_sense_cost_only_themselves() {
    let (hub, mut p) = start(None);
    many(&hub, &mut p, 3, 60);
    let a = hub.lock().repo(R).open(New::pull_request().by("sam"));
    hub.lock().spoil(1_000_000, |_: &Asked| true, |mut r| {
        if r.body.starts_with(b"[{") {
            let poison = br#"[null,7,"x",[],{},{"number":18446744073709551615,"id":18446744073709551615,"state":"open","updated_at":"9999-12-31T23:59:59Z","created_at":"0000-01-01T00:00:00Z","labels":[null,{"name":null},7]},{"number":"7","id":"7","updated_at":7,"state":7},{"number":-1,"id":1.5,"updated_at":null},{"number":null,"id":null,"user":null,"body":null,"updated_at":null,"issue_url":null,"pull_request_url":"x/18446744073709551616","submitted_at":null,"state":null},"#;
            let mut body = poison.to_vec();
            body.extend_from_slice(&r.body[1..]);
            r.body = body;
        }
        r
    });
    hub.lock().repo(R).comment(a, "sam", "c");
    hub.lock().repo(R).review(a, "sam", Verdict::Commented, "r");
    hub.lock().repo(R).line_comment(a, "sam", "l");
    many(&hub, &mut p, 10, 60);
    hub.lock().repo(R).close(a);
    many(&hub, &mut p, 10, 60);
    hub.log();
    many(&hub, &mut p, 10, 60);
    for end in [
        "comment/5001",
        "review/5001",
        "review_comment/5001",
        "/closed",
    ] {
        assert!(has(&p, end) >= 1, "{end}");
    }
}

/// Given a server that tells no time, when things happen, then all are told and no sweep missed any
/// (R6.4).
#[test]
fn r6_4_a_server_without_a_clock_loses_nothing() {
    let (hub, mut p) = start(None);
    let a = hub.lock().repo(R).open(New::pull_request().by("sam"));
    hub.lock().spoil(
        1_000_000,
        |_: &Asked| true,
        |r| r.header("date", "nonsense"),
    );
    many(&hub, &mut p, 3, 60);
    hub.lock().repo(R).comment(a, "sam", "c");
    many(&hub, &mut p, 10, 60);
    hub.log();
    many(&hub, &mut p, 10, 60);
    hub.lock().repo(R).close(a);
    many(&hub, &mut p, 100, 60);
    assert_eq!(has(&p, "/closed"), 1);
    assert_eq!(p.missed, 0);
}

/// Given 250 items changed in one second, and commented on in one, when `since` takes its own
/// second in or not, then all is told once (C018).
#[test]
fn c018_a_bulk_edit_of_250_items_in_one_second_is_told_whole() {
    for exclusive in [false, true] {
        let (hub, mut p) = start(None);
        hub.lock().since_exclusive = exclusive;
        hub.lock().shuffled_ties = true;
        many(&hub, &mut p, 3, 60);
        let ns: Vec<u64> = (0..250)
            .map(|_| hub.lock().repo(R).open(New::issue().by("sam")))
            .collect();
        many(&hub, &mut p, 5, 60);
        for n in &ns {
            hub.lock().repo(R).comment(*n, "sam", "bulk");
        }
        go(&hub, &mut p, 1);
        for n in &ns {
            hub.lock().repo(R).close(*n);
        }
        go(&hub, &mut p, 1);
        many(&hub, &mut p, 5, 60);
        hub.log();
        many(&hub, &mut p, 5, 60);
        assert_eq!(p.ids().len(), 750);
        many(&hub, &mut p, 100, 60);
        assert_eq!((p.ids().len(), p.missed), (750, 0));
    }
}

/// Given a label with odd characters, when more people are let in, then what was told is not told
/// again and what they say is (R7.1).
#[test]
fn r7_1_more_people_let_in_repeat_nothing() {
    let (hub, mut p) = start(Some("a, b/Ü"));
    let a = hub
        .lock()
        .repo(R)
        .open(New::pull_request().by("sam").label("A, B/ü"));
    let b = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    hub.lock().repo(R).review(a, "sam", Verdict::Commented, "r");
    hub.lock().repo(R).line_comment(a, "kim", "l");
    hub.lock().repo(R).comment(b, "sam", "before");
    hub.lock().advance(100);
    hub.lock().repo(R).label(b, "a, b/Ü");
    many(&hub, &mut p, 5, 60);
    hub.lock().repo(R).comment(b, "sam", "after");
    p.reconfigure(
        config(hub.url()),
        Policy {
            authorized_users: vec!["sam".into(), "kim".into()],
            ..policy(Some("a, b/Ü"))
        },
    );
    hub.lock().repo(R).close(a);
    many(&hub, &mut p, 200, 60);
    let ids = p.ids();
    let set: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(set.len(), ids.len());
    assert_eq!(ids.len(), 5, "{ids:?}");
    assert_eq!(p.missed, 0);
}

/// Given pull requests being worked on, when they are watched no more, then they do not end and
/// cost little (C030).
#[test]
fn c030_a_kind_switched_off_ends_nothing() {
    let (hub, mut p) = start(None);
    for _ in 0..60 {
        hub.lock().repo(R).open(New::pull_request().by("sam"));
    }
    hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    let mut c = config(hub.url());
    c.pull_requests = false;
    c.sweep = Duration::from_secs(300);
    p.reconfigure(c, policy(None));
    many(&hub, &mut p, 10, 60);
    hub.log();
    let mut costs = vec![];
    for _ in 0..20 {
        go(&hub, &mut p, 60);
        costs.push(hub.log().len());
    }
    assert_eq!(has(&p, "/closed"), 0);
}

/// Given a draft made before a merge, when it is submitted after it and dismissed later, then all
/// of it is told once (C044).
#[test]
fn c044_a_review_submitted_after_the_end_is_told() {
    let (hub, mut p) = start(None);
    let a = hub.lock().repo(R).open(New::pull_request().by("sam"));
    many(&hub, &mut p, 5, 60);
    let r = hub.lock().repo(R).draft_review(a, "sam");
    hub.lock().repo(R).draft_line_comment(r, "x");
    hub.lock().advance(600);
    hub.lock().repo(R).merge(a);
    many(&hub, &mut p, 30, 60);
    hub.lock()
        .repo(R)
        .submit_review(r, Verdict::Approved, "done");
    many(&hub, &mut p, 5, 60);
    hub.lock().repo(R).dismiss_review(r);
    many(&hub, &mut p, 100, 60);
    assert_eq!(p.ids().len(), 4);
    assert_eq!(p.missed, 0);
}

/// Given a review without a text and other changes since, when it gets its text, then it is told at
/// once (C044).
#[test]
fn c044_a_text_that_comes_after_other_changes_is_told_at_once() {
    let (hub, mut p) = start(None);
    let pr = hub.lock().repo(R).open(New::pull_request().by("sam"));
    many(&hub, &mut p, 20, 60);
    let id = hub.lock().repo(R).review(pr, "sam", Verdict::Approved, "");
    many(&hub, &mut p, 10, 60);
    hub.lock().repo(R).edit_title(pr, "x");
    many(&hub, &mut p, 10, 60);
    hub.lock().repo(R).edit_review(id, "and now a text");
    many(&hub, &mut p, 5, 60);
    let soon = has(&p, "review/5001");
    many(&hub, &mut p, 100, 60);
    assert_eq!(
        (soon, p.missed),
        (1, 0),
        "in the end {}",
        has(&p, "review/5001")
    );
}

/// Given a repository with traffic, when an issue is transferred there, then what was said of it
/// before is told at once (R6.4).
#[test]
fn r6_4_a_transferred_issue_brings_its_past_to_a_busy_repository() {
    let (hub, mut p) = start(None);
    hub.lock().create("octo/other");
    let m = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 10, 60);
    let n = hub.lock().repo("octo/other").open(New::issue().by("sam"));
    hub.lock().advance(60);
    hub.lock()
        .repo("octo/other")
        .comment(n, "sam", "over there");
    many(&hub, &mut p, 10, 60);
    hub.lock().repo(R).comment(m, "sam", "here");
    many(&hub, &mut p, 10, 60);
    hub.lock().transfer("octo/other", n, R);
    many(&hub, &mut p, 10, 60);
    let soon = p.ids();
    many(&hub, &mut p, 100, 60);
    let mut q = Polled::new(
        hub.url(),
        Policy {
            watch_from: Some(START),
            ..policy(None)
        },
    );
    many(&hub, &mut q, 5, 60);
    assert_eq!(
        (p.missed, p.ids().len()),
        (0, q.ids().len()),
        "soon {soon:?} up {:?} down {:?}",
        p.ids(),
        q.ids()
    );
}

/// Given a row whose time is twenty hours ahead, when an item closes and another opens, then both
/// are told at once (C023).
#[test]
fn c023_a_row_twenty_hours_ahead_hides_no_end() {
    let (hub, mut p) = start(None);
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    hub.lock().spoil(1, |x: &Asked| x.path().ends_with("/issues"), |_| {
        Reply::json(r#"[{"number":9,"state":"open","title":"x","user":{"login":"eve"},"created_at":"2026-08-06T06:00:00Z","updated_at":"2026-08-06T06:00:00Z"}]"#)
    });
    hub.lock().repo(R).edit_title(a, "y");
    go(&hub, &mut p, 60);
    hub.lock().heal();
    hub.lock().repo(R).open(New::issue().by("sam"));
    hub.lock().repo(R).close(a);
    many(&hub, &mut p, 10, 60);
    let soon = p.ids().len();
    many(&hub, &mut p, 120, 60);
    assert_eq!((soon, p.missed), (3, 0));
}

/// Given a hundred items, when forty are deleted, then those forty end (C030).
#[test]
fn c030_forty_of_a_hundred_deleted_end() {
    let (hub, mut p) = start(Some("auto"));
    for _ in 0..100 {
        hub.lock()
            .repo(R)
            .open(New::issue().by("sam").label("auto"));
    }
    many(&hub, &mut p, 5, 60);
    for n in 31..=70 {
        hub.lock().repo(R).delete(n, Trace::Gone);
    }
    many(&hub, &mut p, 75, 60);
    hub.log();
    many(&hub, &mut p, 5, 60);
    assert_eq!(has(&p, "/closed"), 40);
}

/// Given an item whose events answer 404 for ever, when there is traffic for ten hours, then cycles
/// do not grow, and it is told or said (C029).
#[test]
fn c029_events_that_are_missing_for_ever_cost_little_and_are_said() {
    let (hub, mut p) = start(Some("auto"));
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    let b = hub.lock().repo(R).open(New::issue().by("eve"));
    many(&hub, &mut p, 5, 60);
    let tail = format!("/issues/{a}/events");
    hub.lock().fault(
        1_000_000,
        move |x: &Asked| x.path().ends_with(&tail),
        replies::not_found(),
    );
    hub.lock().repo(R).label(a, "auto");
    let mut costs = vec![];
    for i in 0..600 {
        for _ in 0..3 {
            hub.lock().repo(R).comment(b, "eve", "traffic");
            hub.lock().advance(1);
        }
        let n = hub.lock().repo(R).open(New::issue().by("eve"));
        let _ = n;
        hub.log();
        go(&hub, &mut p, 57);
        if i % 100 == 99 {
            costs.push(hub.log().len());
        }
    }
    assert!(costs[5] <= costs[0] + 2, "{costs:?}");
    assert!(
        has(&p, "/opened") == 1 || !p.said("poll.item_error").is_empty(),
        "neither told nor said"
    );
}

/// Given reviews that answer 404 for ever, when a pull request is reviewed, then that is said, and
/// idle cycles stay cheap (C029).
#[test]
fn c029_reviews_that_are_missing_for_ever_are_said() {
    let (hub, mut p) = start(None);
    let pr = hub.lock().repo(R).open(New::pull_request().by("sam"));
    many(&hub, &mut p, 10, 60);
    hub.lock().fault(
        1_000_000,
        |a: &Asked| a.path().ends_with("/reviews"),
        replies::not_found(),
    );
    hub.lock()
        .repo(R)
        .review(pr, "sam", Verdict::Approved, "fine");
    hub.lock().repo(R).line_comment(pr, "sam", "line");
    many(&hub, &mut p, 300, 60);
    hub.log();
    many(&hub, &mut p, 10, 60);
    assert!(
        !p.said("poll.item_error").is_empty() || !p.said("poll.source_error").is_empty(),
        "nothing is said"
    );
}

/// Given a repository renamed twice, with redirects that drop the query, when things happen, then
/// all is told once (C026).
#[test]
fn c026_redirects_without_a_query_lose_nothing() {
    let (hub, mut p) = start(Some("auto"));
    hub.lock().bare_redirects = true;
    let mut ns = vec![];
    for _ in 0..150 {
        ns.push(
            hub.lock()
                .repo(R)
                .open(New::issue().by("sam").label("auto")),
        );
        hub.lock().advance(2);
    }
    let pr = hub
        .lock()
        .repo(R)
        .open(New::pull_request().by("sam").label("auto"));
    many(&hub, &mut p, 5, 60);
    hub.lock().rename(R, "octo/gadgets");
    many(&hub, &mut p, 70, 60);
    hub.lock().repo("octo/gadgets").comment(ns[0], "sam", "c");
    hub.lock()
        .repo("octo/gadgets")
        .review(pr, "sam", Verdict::Approved, "r");
    hub.lock().create("octo/other");
    hub.lock().transfer("octo/gadgets", ns[1], "octo/other");
    many(&hub, &mut p, 10, 60);
    hub.lock().rename("octo/gadgets", "octo/gizmos");
    hub.lock().create(R);
    many(&hub, &mut p, 70, 60);
    hub.lock().repo("octo/gizmos").comment(ns[5], "sam", "d");
    many(&hub, &mut p, 70, 60);
    assert_eq!((p.ids().len(), p.missed), (151 + 4, 0));
}

/// Given two items, when their repository's name is taken by another, then the listing says so
/// (C026).
#[test]
fn c026_a_name_taken_by_another_is_said() {
    let (hub, mut p) = start(None);
    for _ in 0..2 {
        hub.lock().repo(R).open(New::issue().by("sam"));
    }
    many(&hub, &mut p, 5, 60);
    hub.lock().recreate(R);
    many(&hub, &mut p, 70, 60);
    hub.log();
    many(&hub, &mut p, 5, 60);
    assert!(!p.complete, "another repository is taken for ours");
}

/// Given lists of pull requests that answer 404 for half an hour, when an issue is commented on,
/// then that is told in the end and no sweep missed it (C029).
#[test]
fn c029_pull_requests_that_may_not_be_read_lose_no_comment() {
    let (hub, mut p) = start(None);
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    hub.lock().fault(
        1_000_000,
        |a: &Asked| a.path().ends_with("/pulls") || a.path().ends_with("/pulls/comments"),
        replies::not_found(),
    );
    hub.lock().repo(R).comment(a, "sam", "c");
    many(&hub, &mut p, 30, 60);
    hub.lock().heal();
    many(&hub, &mut p, 120, 60);
    assert_eq!((has(&p, "comment/5001"), p.missed), (1, 0));
}

/// Given an item closed and reopened every minute, when it was commented on before, then that is
/// told at the next cycle (R6.1).
#[test]
fn r6_1_closed_and_reopened_every_minute_a_comment_is_told_at_once() {
    let (hub, mut p) = start(None);
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    let c = hub.lock().repo(R).comment(a, "sam", "c");
    let mut late = None;
    for i in 0..60 {
        hub.lock().repo(R).close(a);
        go(&hub, &mut p, 55);
        if late.is_none() && has(&p, &format!("comment/{c}")) == 1 {
            late = Some(i);
        }
        hub.lock().repo(R).reopen(a);
        hub.lock().advance(5);
    }
    many(&hub, &mut p, 70, 60);
    assert_eq!((late, p.missed), (Some(0), 0));
}
