//! Scratch: sequences that may break the polling of GitHub. Each asserts what should be.

use crate::world::forge::Asked;
use crate::world::hub::{Hub, New, START, Trace, Verdict, replies};
use crate::world::polled::{Polled, config};
use idempoll::engine::access::Policy;
use idempoll::engine::time::Time;
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

fn show(p: &Polled) {
    eprintln!(
        "delivered {:?}\nmissed {} complete {} errors {:?} item {:?} cursor {}",
        p.ids(),
        p.missed,
        p.complete,
        p.said("poll.source_error"),
        p.said("poll.item_error"),
        p.cursor()
    );
}

fn has(p: &Polled, end: &str) -> usize {
    p.ids().iter().filter(|id| id.ends_with(end)).count()
}

/// One open item; the repository is deleted and another takes its name.
#[test]
fn b01_recreated_repository_with_one_open_item() {
    let (hub, mut p) = start(None);
    hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    hub.lock().recreate(R);
    many(&hub, &mut p, 70, 60);
    show(&p);
    assert_eq!(
        has(&p, "/closed"),
        0,
        "ended by another repository's silence"
    );
}

/// The same with the old repository renamed while idle, and the name taken.
#[test]
fn b02_renamed_and_name_taken_one_open_item() {
    let (hub, mut p) = start(None);
    hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    hub.lock().rename(R, "octo/gadgets");
    hub.lock().create(R);
    many(&hub, &mut p, 70, 60);
    show(&p);
    assert_eq!(has(&p, "/closed"), 0);
}

/// A new repository with the label and items of its own: two items open before, one number is there.
#[test]
fn b03_recreated_three_open_one_number_there() {
    let (hub, mut p) = start(None);
    for _ in 0..3 {
        hub.lock().repo(R).open(New::issue().by("sam"));
    }
    many(&hub, &mut p, 5, 60);
    hub.lock().recreate(R);
    hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 70, 60);
    show(&p);
    assert_eq!(has(&p, "/closed"), 0);
    assert_eq!(p.ids().len(), 3);
}

/// 40 items worked on are all moved away; 450 others are open.
#[test]
fn b04_all_moved_away_costs() {
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
    let saves = p.saves;
    many(&hub, &mut p, 5, 60);
    eprintln!(
        "costs {costs:?} closed {} saves {}",
        has(&p, "/closed"),
        p.saves - saves
    );
    assert!(
        costs.iter().max().unwrap() <= &6,
        "an idle cycle costs {costs:?}"
    );
}

/// Both items worked on are deleted for good.
#[test]
fn b05_both_items_deleted() {
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
    show(&p);
    eprintln!("costs {costs:?}");
    assert_eq!(has(&p, "/closed"), 2);
}

/// One answer with a clock of 2030.
#[test]
fn b06_date_ahead_once() {
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
    show(&p);
    assert_eq!(has(&p, "/closed"), 1, "no sweep any more");
}

/// A limit met after an answer with a clock of 2030.
#[test]
fn b07_reviews_of_one_pull_fail_for_ever() {
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
    show(&p);
    assert_eq!(
        has(&p, "comment/5001"),
        1,
        "one odd item blocks its neighbours"
    );
}

#[test]
fn b08_events_of_one_item_fail_for_ever() {
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
    show(&p);
    assert_eq!(has(&p, "comment/5001"), 1);
}

#[test]
fn b09_absent_item_fails_by_itself_for_ever() {
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
    eprintln!("cost {}", hub.log().len());
    let c = p.complete;
    hub.lock().repo(R).comment(b, "sam", "what about this");
    many(&hub, &mut p, 5, 60);
    show(&p);
    assert_eq!(has(&p, "comment/5001"), 1);
    assert!(
        c,
        "a sweep that ends with 500 for one item cuts every cycle"
    );
}

/// Reviews 404 for ten minutes, while the pull request changes once more.
#[test]
fn b10_reviews_404_for_ten_minutes() {
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
    show(&p);
    let soon = has(&p, "review/5001");
    many(&hub, &mut p, 120, 60);
    show(&p);
    assert_eq!(
        (soon, p.missed),
        (1, 0),
        "in the end {}",
        has(&p, "review/5001")
    );
}

/// The same, longer than a sweep.
#[test]
fn b11_reviews_404_over_a_sweep() {
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
    show(&p);
    assert_eq!(has(&p, "review/5001"), 1, "lost for good");
}

/// A review without text that gets one twenty minutes later.
#[test]
fn b12_review_gets_a_text_later() {
    let (hub, mut p) = start(None);
    let pr = hub.lock().repo(R).open(New::pull_request().by("sam"));
    many(&hub, &mut p, 20, 60);
    let id = hub.lock().repo(R).review(pr, "sam", Verdict::Approved, "");
    many(&hub, &mut p, 20, 60);
    hub.lock().repo(R).edit_review(id, "and now a text");
    many(&hub, &mut p, 100, 60);
    show(&p);
    assert_eq!(
        p.missed,
        0,
        "counted as missed, {} times delivered",
        has(&p, "review/5001")
    );
}

/// An issue with an older comment moves in from elsewhere.
#[test]
fn b13_transferred_in() {
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
    show(&p);
    let mut q = Polled::new(
        hub.url(),
        Policy {
            watch_from: Some(START),
            ..policy(None)
        },
    );
    many(&hub, &mut q, 5, 60);
    show(&q);
    assert_eq!(p.missed, 0, "soon {soon:?}");
    assert_eq!(
        p.ids().len(),
        q.ids().len(),
        "up {:?} down {:?}",
        p.ids(),
        q.ids()
    );
}

/// An item loses its label and stays busy for two hours.
#[test]
fn b14_unlabelled_and_busy() {
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
    show(&p);
    assert_eq!((has(&p, "comment/5001"), has(&p, "/closed")), (1, 1));
}

/// Not there twice within seconds, because the rules changed in between.
#[test]
fn b15_absent_twice_within_seconds() {
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
    hub.lock().spoil(
        1_000,
        |x: &Asked| x.path().ends_with("/issues"),
        |_| crate::world::forge::Reply::json("[]"),
    );
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
    show(&p);
    assert_eq!(has(&p, "/closed"), 0, "gone within five seconds");
}

/// A row whose time is twenty hours ahead.
#[test]
fn b16_row_ahead() {
    let (hub, mut p) = start(None);
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    hub.lock().spoil(1, |x: &Asked| x.path().ends_with("/issues"), |_| {
        crate::world::forge::Reply::json(r#"[{"number":9,"state":"open","title":"x","user":{"login":"eve"},"created_at":"2026-08-06T06:00:00Z","updated_at":"2026-08-06T06:00:00Z"}]"#)
    });
    hub.lock().repo(R).edit_title(a, "y");
    go(&hub, &mut p, 60);
    hub.lock().heal();
    let n = hub.lock().repo(R).open(New::issue().by("sam"));
    hub.lock().advance(10);
    hub.lock().repo(R).comment(n, "sam", "hello");
    many(&hub, &mut p, 10, 60);
    show(&p);
    let soon = p.ids().len();
    many(&hub, &mut p, 120, 60);
    show(&p);
    assert_eq!((soon, p.missed), (3, 0));
}

/// Rows that make no sense next to a good one, in every list.
#[test]
fn b17_poison_rows() {
    let (hub, mut p) = start(None);
    many(&hub, &mut p, 3, 60);
    let a = hub.lock().repo(R).open(New::pull_request().by("sam"));
    hub.lock().spoil(1_000_000, |_: &Asked| true, |mut r| {
        if r.body.starts_with(b"[{") {
            let poison = br#"[null,7,"x",[],{},{"number":18446744073709551615,"id":18446744073709551615,"state":"open","updated_at":"9999-12-31T23:59:59Z","created_at":"0000-01-01T00:00:00Z","labels":[null,{"name":null},7]},{"number":"7","id":"7","updated_at":7,"state":7},{"number":-1,"id":1.5,"updated_at":null},{"number":null,"id":null,"user":null,"body":null,"updated_at":null,"issue_url":null,"pull_request_url":"x/18446744073709551616","submitted_at":null,"state":null},"#;
            let mut body = poison.to_vec();
            body.extend_from_slice(&r.body[1..]);
            r.body = body.into();
        }
        r
    });
    hub.lock().repo(R).comment(a, "sam", "c");
    hub.lock().repo(R).review(a, "sam", Verdict::Commented, "r");
    hub.lock().repo(R).line_comment(a, "sam", "l");
    many(&hub, &mut p, 10, 60);
    hub.lock().repo(R).close(a);
    many(&hub, &mut p, 10, 60);
    show(&p);
    let saves = p.saves;
    hub.log();
    many(&hub, &mut p, 10, 60);
    eprintln!("saves {} requests {}", p.saves - saves, hub.log().len());
    for end in [
        "comment/5001",
        "review/5001",
        "review_comment/5001",
        "/closed",
    ] {
        assert!(has(&p, end) >= 1, "{end}");
    }
}

/// No Date at all.
#[test]
fn b18_no_date() {
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
    let saves = p.saves;
    hub.log();
    many(&hub, &mut p, 10, 60);
    let cost = hub.log().len();
    show(&p);
    eprintln!("saves {} requests {cost}", p.saves - saves);
    hub.lock().repo(R).close(a);
    many(&hub, &mut p, 100, 60);
    show(&p);
    assert_eq!(has(&p, "/closed"), 1);
    assert_eq!(p.missed, 0);
}

/// A bulk edit of 250 items and 250 comments in one second.
#[test]
fn b19_bulk() {
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
        let saves = p.saves;
        hub.log();
        many(&hub, &mut p, 5, 60);
        eprintln!(
            "events {} saves {} cost {}",
            p.ids().len(),
            p.saves - saves,
            hub.log().len()
        );
        assert_eq!(p.ids().len(), 750);
        many(&hub, &mut p, 100, 60);
        assert_eq!((p.ids().len(), p.missed), (750, 0));
    }
}

/// More people are let in between cycles: what was there already is not told twice.
#[test]
fn b20_rules_change() {
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
    show(&p);
    let ids = p.ids();
    let set: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(set.len(), ids.len());
    assert_eq!(ids.len(), 5, "{ids:?}");
    assert_eq!(p.missed, 0);
}

/// A kind is switched off while one of it is worked on.
#[test]
fn b21_kind_off() {
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
    let saves = p.saves;
    let mut costs = vec![];
    for _ in 0..20 {
        go(&hub, &mut p, 60);
        costs.push(hub.log().len());
    }
    show(&p);
    eprintln!("costs {costs:?} saves {}", p.saves - saves);
    assert_eq!(has(&p, "/closed"), 0);
}

/// A comment drafted as part of a review before the item closed and submitted after it.
#[test]
fn b22_submitted_after_the_end() {
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
    show(&p);
    assert_eq!(p.ids().len(), 4);
    assert_eq!(p.missed, 0);
}

/// The same as b12 where the pull request's window has moved in between.
#[test]
fn b23_review_gets_a_text_later_window_moved() {
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
    show(&p);
    assert_eq!(
        (soon, p.missed),
        (0, 0),
        "in the end {}",
        has(&p, "review/5001")
    );
}

/// b13 where comments elsewhere moved the window before the transfer.
#[test]
fn b24_transferred_in_window_moved() {
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
    show(&p);
    let mut q = Polled::new(
        hub.url(),
        Policy {
            watch_from: Some(START),
            ..policy(None)
        },
    );
    many(&hub, &mut q, 5, 60);
    show(&q);
    assert_eq!(
        (p.missed, p.ids().len()),
        (0, q.ids().len()),
        "soon {soon:?} up {:?} down {:?}",
        p.ids(),
        q.ids()
    );
}

/// A row twenty hours ahead, then an item closes and another opens.
#[test]
fn b25_row_ahead_hides_changes() {
    let (hub, mut p) = start(None);
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    hub.lock().spoil(1, |x: &Asked| x.path().ends_with("/issues"), |_| {
        crate::world::forge::Reply::json(r#"[{"number":9,"state":"open","title":"x","user":{"login":"eve"},"created_at":"2026-08-06T06:00:00Z","updated_at":"2026-08-06T06:00:00Z"}]"#)
    });
    hub.lock().repo(R).edit_title(a, "y");
    go(&hub, &mut p, 60);
    hub.lock().heal();
    hub.lock().repo(R).open(New::issue().by("sam"));
    hub.lock().repo(R).close(a);
    many(&hub, &mut p, 10, 60);
    let soon = p.ids().len();
    many(&hub, &mut p, 120, 60);
    show(&p);
    assert_eq!((soon, p.missed), (3, 0));
}

/// 40 of 100 items are deleted.
#[test]
fn b26_forty_of_a_hundred_deleted() {
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
    let saves = p.saves;
    many(&hub, &mut p, 5, 60);
    eprintln!(
        "cost {} saves {} closed {}",
        hub.log().len(),
        p.saves - saves,
        has(&p, "/closed")
    );
    assert_eq!(has(&p, "/closed"), 40);
}

/// The events of one item answer 404 for ever, in a repository with traffic.
#[test]
fn b27_events_404_for_ever() {
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
    show(&p);
    eprintln!("costs {costs:?}");
    assert!(costs[5] <= costs[0] + 2, "{costs:?}");
    assert!(
        has(&p, "/opened") == 1 || !p.said("poll.item_error").is_empty(),
        "neither told nor said"
    );
}

/// Reviews of one pull request answer 404 for ever.
#[test]
fn b28_reviews_404_for_ever_cost_and_word() {
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
    let saves = p.saves;
    many(&hub, &mut p, 10, 60);
    show(&p);
    eprintln!(
        "requests in 10 idle cycles {} saves {}",
        hub.log().len(),
        p.saves - saves
    );
    assert!(
        !p.said("poll.item_error").is_empty() || !p.said("poll.source_error").is_empty(),
        "nothing is said"
    );
}

/// Renamed with redirects that name no query.
#[test]
fn b29_bare_redirects() {
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
    show(&p);
    assert_eq!((p.ids().len(), p.missed), (151 + 4, 0));
}

/// b01 with two items: the feed says nothing of another repository and sweeps at every cycle.
#[test]
fn b30_recreated_two_items_says_so() {
    let (hub, mut p) = start(None);
    for _ in 0..2 {
        hub.lock().repo(R).open(New::issue().by("sam"));
    }
    many(&hub, &mut p, 5, 60);
    hub.lock().recreate(R);
    many(&hub, &mut p, 70, 60);
    hub.log();
    many(&hub, &mut p, 5, 60);
    show(&p);
    eprintln!("requests in 5 cycles: {}", hub.log().len());
    assert!(!p.complete, "another repository is taken for ours");
}

/// A repository goes private for us (404) only in its lists of pull requests.
#[test]
fn b31_pulls_404_only() {
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
    show(&p);
    assert_eq!((has(&p, "comment/5001"), p.missed), (1, 0));
}

/// Two closings and reopenings with comments each time, half a minute apart, over an hour.
#[test]
fn b32_closed_and_reopened_war() {
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
    eprintln!("told at cycle {late:?}");
    many(&hub, &mut p, 70, 60);
    show(&p);
    assert_eq!((late, p.missed), (Some(0), 0));
}
