//! A second hostile tester's: items that cannot be read whole, labels that come and go, and what seems to be ours.

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

/// Given three items the server fails at for ever and a fourth that was deleted, when they are
/// asked for by themselves, then the fourth ends (R6.1).
#[test]
fn r6_1_failing_items_starve_no_deleted_one() {
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

/// Given three items the server fails at for ever and a healthy one labelled with them, when they
/// are read by themselves, then the healthy one is opened (R6.1).
#[test]
fn r6_1_failing_items_starve_no_healthy_one() {
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

/// Given a pull request whose reviews fail, when it answers 404 once by itself, then its review is
/// told in the end and no sweep missed it (R6.2).
#[test]
fn r6_2_one_404_forgets_no_unread_review() {
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

/// Given an item whose events fail, when it answers 404 once by itself, then it and its comment are
/// told in the end (R6.2).
#[test]
fn r6_2_one_404_forgets_no_unread_item() {
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

/// Given an item whose events fail, when it answers 404 once by itself and all is well from then on, then
/// it is told within minutes, and not only when a sweep comes across it (R6.2).
#[test]
fn r6_2_one_404_does_not_leave_an_unread_item_to_the_sweep() {
    let (hub, mut p) = start(Some("auto"));
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    fail(&hub, tail(format!("/issues/{a}/events")));
    hub.lock().repo(R).label(a, "auto");
    many(&hub, &mut p, 3, 60);
    hub.lock().heal();
    hub.lock()
        .fault(1, tail(format!("/issues/{a}")), replies::not_found());
    many(&hub, &mut p, 15, 60);
    assert!(hub.log().iter().any(|l| l.status == 404));
    assert_eq!(has(&p, "/opened"), 1, "{:?}", p.cursor()["unread"]);
}

/// Given an item whose row is odd for two hours, when it was commented on, then that is told in the
/// end and no sweep missed it (C005).
#[test]
fn c005_an_item_that_is_odd_for_two_hours_loses_no_comment() {
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

/// Given an item whose row is odd for ten minutes, when it was commented on, then that is told and
/// no sweep missed it (C005).
#[test]
fn c005_an_item_that_is_odd_for_ten_minutes_is_not_missed() {
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

/// Given a pull request whose reviews fail for ever, when it is commented on for five hours, then a
/// cycle costs no more in the end than at first (R6.1).
#[test]
fn r6_1_a_busy_unread_pull_request_costs_no_more_and_more() {
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

/// Given a transferred issue whose comments fail once, when it has older and newer ones, then they
/// are told in their order (R6.1).
#[test]
fn r6_1_the_past_of_a_transferred_issue_comes_first() {
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
    let ids = short(&p);
    let of_n: Vec<&String> = ids
        .iter()
        .filter(|id| id.starts_with(&format!("{n}/")))
        .collect();
    assert_eq!(of_n.len(), 3, "{ids:?}");
    assert_eq!(of_n[2], &format!("{n}/comment/{late}"), "{ids:?}");
}

/// Given an item the server fails at for twenty minutes, when it is commented on each minute, then
/// the comments are told in their order (R6.1).
#[test]
fn r6_1_comments_of_an_unread_item_keep_their_order() {
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
    let mut sorted = short(&p);
    sorted.retain(|id| id.contains("comment/"));
    let told = sorted.clone();
    sorted.sort();
    assert_eq!(sorted.len(), 20);
    assert_eq!(told, sorted);
}

/// Given an issue with the label and a comment elsewhere, when it is transferred here, then both
/// are told, as a poller that was down would have (R6.4).
#[test]
fn r6_4_a_transferred_issue_with_the_label_brings_its_past() {
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

/// Given a comment and then a label taken off while the poller was down, when it starts with other
/// rules, then the comment and the end are told (R6.4).
#[test]
fn r6_4_other_rules_lose_no_comment_before_the_end() {
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

/// Given a label taken off and a comment after it, when one poller looked in between and another
/// after all, then they tell the same (R6.4).
#[test]
fn r6_4_a_comment_after_the_label_went_is_the_same_up_and_down() {
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

/// Given a label taken off, a comment and a closing, when one poller looked in between and another
/// after all, then they tell the same (R6.4).
#[test]
fn r6_4_a_comment_between_the_label_and_the_end_is_the_same_up_and_down() {
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

/// Given all items hidden and one that fails, when sweeps find none of them, then none ends (C030).
#[test]
fn c030_items_hidden_while_some_fail_end_nothing() {
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

/// Given all items failing at first and hidden later, when sweeps find none of them, then none ends
/// (C030).
#[test]
fn c030_items_that_fail_and_are_hidden_later_end_nothing() {
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

/// Given an item's comments that lead to another repository, when they are read by themselves, then
/// none of them is told (C028).
#[test]
fn c028_comments_of_another_repository_are_not_ours() {
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

/// Given an item's comments that lead to another repository under its number, when they are read,
/// then nothing of that repository is told (C028).
#[test]
fn c028_an_item_moved_under_its_number_leads_nowhere() {
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
    many(&hub, &mut p, 10, 60);
    assert_eq!(p.ids().len(), 4, "{:?}", short(&p));
}

/// Given a pull request whose reviews failed for hours, when a line is commented on, then that is
/// told within minutes (R6.1).
#[test]
fn r6_1_a_line_comment_on_an_unread_pull_request_is_told_soon() {
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

/// Given a pull request whose reviews failed for hours and do no more, when it is reviewed, then
/// that is told within minutes (R6.1).
#[test]
fn r6_1_a_review_on_a_healed_pull_request_is_told_soon() {
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

/// Given an item whose events fail for ever, when it got its label, then it is opened by when it
/// was first seen with it (R6.4).
#[test]
fn r6_4_an_item_whose_events_fail_is_opened_all_the_same() {
    let (hub, mut p) = start(Some("auto"));
    let a = hub.lock().repo(R).open(New::issue().by("sam"));
    many(&hub, &mut p, 5, 60);
    fail(&hub, tail(format!("/issues/{a}/events")));
    hub.lock().repo(R).label(a, "auto");
    many(&hub, &mut p, 600, 60);
    assert_eq!(has(&p, "/opened"), 1);
}

/// Given a pull request whose reviews answer 503 with Retry-After for ever, when another item is
/// commented on, then that is told (C029).
#[test]
fn c029_one_item_to_wait_for_holds_up_no_other() {
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

/// Given an item that fails with other words each time, when that goes on for an hour, then the log
/// names it a few times at most (C029).
#[test]
fn c029_an_item_is_named_once_whatever_the_servers_words() {
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

/// Given a pull request without the label whose reviews fail, when a line comment on it is edited,
/// then nobody hears of it (C029).
#[test]
fn c029_a_pull_request_nobody_wants_is_not_named() {
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

/// Given reviews that fail while the label goes and comes, when they can be read, then the one made
/// with the label is told and the one without is not (R6.4).
#[test]
fn r6_4_a_review_read_late_is_judged_by_the_label_at_its_time() {
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

/// Given a review that cannot be read until its item lost the label, when it can, then it is told
/// (R6.4).
#[test]
fn r6_4_a_review_made_before_the_label_went_is_told_after() {
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

/// Given a busy item that lost its label while its events fail, when hours pass, then what was said
/// before and its end are told (R6.1).
#[test]
fn r6_1_a_busy_item_without_label_and_events_ends() {
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

/// Given comments whose rows do not name the item as they should, when their page's address does,
/// then they are told (C005).
#[test]
fn c005_a_comment_without_its_items_address_is_told() {
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

/// Given an item's events that lead to another repository, when it got its label, then what was
/// said before is not told (C028).
#[test]
fn c028_the_history_of_another_repositorys_item_is_not_ours() {
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
