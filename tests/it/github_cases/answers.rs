//! Answers that are odd, wrong, too large or none at all.

use super::{Case, with_rows};
use crate::world::forge::{Asked, Reply};
use crate::world::hub::faults::on;
use crate::world::hub::{New, Verdict, replies};
use serde_json::{Value, json};

/// For ever, as far as a test goes.
const ALWAYS: usize = usize::MAX;

/// Given three open items, one by an account that was deleted (C001), when they are listed again and again, then
/// the others are told, that one is nobody's and has no effect, which is said once, and what is said on it counts.
#[test]
fn c001_an_item_without_an_author_is_nobodys_and_holds_up_nobody() {
    let mut case = Case::new();
    for by in ["sam", "gone", "sam"] {
        case.repo(|repo| repo.open(New::issue().by(by)));
    }
    case.hub.lock().delete_account("gone");
    assert_eq!(case.cycle_after(60), ["1/opened", "3/opened"]);
    let comment = case.repo(|repo| repo.comment(2, "sam", "go on"));
    assert_eq!(case.cycle_after(60), [format!("2/comment/{comment}")]);
    let item = &case.payload("#2/comment/5001")["item"];
    assert_eq!(item["author"], Value::Null);
    assert_eq!(case.settle(), [""; 0]);
    assert_eq!(case.sweep(), [""; 0]);
    let refused = case.poller.said("poll.unauthorized");
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(case.ended(), [""; 0]);
}

/// Given three comments, the second by an account that was deleted (C002), when they are read, then the first and
/// the third are delivered in order, and the second has no effect, which is said once.
#[test]
fn c002_a_comment_without_an_author_has_no_effect_and_is_known_for_ever() {
    let mut case = Case::new();
    case.repo(|repo| repo.open(New::issue().by("sam")));
    case.cycle_after(60);
    let ids = ["sam", "gone", "sam"].map(|by| case.repo(|repo| repo.comment(1, by, "go")));
    case.hub.lock().delete_account("gone");
    let [first, _, third] = ids.map(|id| format!("1/comment/{id}"));
    assert_eq!(case.cycle_after(10), [first, third]);
    assert_eq!(case.settle(), [""; 0]);
    case.poller.restart();
    assert_eq!(case.sweep(), [""; 0]);
    let refused = case.poller.log.iter();
    let refused = refused.filter(|entry| entry.kind == "poll.unauthorized");
    let keys: Vec<&Value> = refused.map(|entry| &entry.fields["key"]).collect();
    assert_eq!(keys, ["comment/5002"]);
}

/// Given three listings that fail, each in another way (C004), and a fourth that does not, then each is one entry
/// in the log, nothing ends, and what happened meanwhile is told then.
#[test]
fn c004_three_kinds_of_errors_and_then_all_is_well() {
    let mut case = Case::new();
    case.repo(|repo| repo.open(New::issue().by("sam")));
    assert_eq!(case.cycle_after(60), ["1/opened"]);
    let before = case.poller.cursor();
    let comment = case.repo(|repo| repo.comment(1, "sam", "go"));
    let empty = Reply::json("").status(500);
    for (reply, words) in [
        (replies::server_error(502), "answered 502: Server Error"),
        (replies::html(503), "answered 503"),
        (empty, "answered 500"),
    ] {
        case.hub.lock().fault(ALWAYS, on("/issues"), reply);
        case.later(60);
        assert_eq!(case.cycle(), [""; 0]);
        case.hub.lock().heal();
        assert!(!case.poller.complete);
        assert_eq!(case.poller.cursor(), before, "{words}");
        let last = case.errors().pop().expect("it is said");
        assert!(last.contains(words), "{last}");
    }
    assert_eq!(case.errors().len(), 3, "{:?}", case.errors());
    assert_eq!(case.cycle_after(60), [format!("1/comment/{comment}")]);
    assert_eq!(case.ended(), [""; 0]);
}

/// Given items with values and fields nobody knows yet (C005), when they are listed, then they are told; one whose
/// state is unknown is left alone, neither new nor ended, which is said once, until its state is known again.
#[test]
fn c005_what_is_not_known_yet_passes_and_only_an_unknown_state_waits() {
    let mut case = Case::new();
    for _ in 0..3 {
        case.repo(|repo| repo.open(New::issue().by("sam")));
    }
    assert_eq!(case.cycle_after(60).len(), 3);
    // By themselves they are what they are in the list.
    let by_itself =
        |asked: &Asked| asked.path().ends_with("/issues/3") || asked.path().ends_with("/issues/4");
    case.hub.lock().spoil(ALWAYS, by_itself, |mut reply| {
        let text = String::from_utf8(reply.body).expect("the hub writes text");
        reply.body = text
            .replace(r#""state":"open""#, r#""state":"archived""#)
            .into_bytes();
        reply
    });
    case.hub.lock().spoil(ALWAYS, on("/issues"), |reply| {
        with_rows(reply, |rows| {
            for row in rows {
                row["brand_new"] = json!({"total": 2});
                row["type"] = json!({"name": "Bug", "brand_new": true});
                match row["number"].as_u64() {
                    Some(1) => row["state_reason"] = "duplicate".into(),
                    Some(3 | 4) => row["state"] = "archived".into(),
                    Some(5) => row["author_association"] = "MANNEQUIN".into(),
                    _ => row["user"]["type"] = "EnterpriseUserAccount".into(),
                }
            }
        })
    });
    for _ in 0..3 {
        case.repo(|repo| repo.open(New::issue().by("sam")));
    }
    for number in 1..=3 {
        case.repo(|repo| repo.edit_title(number, "Another title"));
    }
    assert_eq!(case.cycle_after(10), ["5/opened", "6/opened"]);
    assert_eq!(case.settle(), [""; 0]);
    for _ in 0..2 {
        assert_eq!(case.sweep(), [""; 0]);
        assert!(case.poller.complete);
    }
    assert_eq!(case.ended(), [""; 0]);
    // Once for each, for as long as it lasts.
    let odd: Vec<String> = case.poller.said("poll.item_error");
    assert_eq!(odd.len(), 2, "{odd:?}");
    assert!(odd.iter().all(|said| said.contains("archived")), "{odd:?}");
    case.hub.lock().heal();
    case.repo(|repo| repo.edit_title(4, "Another title"));
    assert_eq!(case.cycle_after(10), ["4/opened"]);
    case.repo(|repo| repo.close(3));
    assert_eq!(case.cycle_after(10), [""; 0]);
    assert_eq!(case.cycle_after(60), ["3/closed"]);
}

/// Given a comment with half of a surrogate pair (C008), when its page is read, then all of its comments are
/// delivered, with U+FFFD in its place, as valid JSON.
#[test]
fn c008_half_a_surrogate_pair_costs_one_character() {
    let mut case = Case::new();
    case.repo(|repo| repo.open(New::issue().by("sam")));
    case.cycle_after(60);
    for body in ["before", "half a fish: FISH and on", "after"] {
        case.repo(|repo| repo.comment(1, "sam", body));
    }
    let half = |mut reply: Reply| {
        let text = String::from_utf8(reply.body).expect("the hub writes text");
        reply.body = text.replace("FISH", r"\ud83d").into_bytes();
        reply
    };
    let mut hub = case.hub.lock();
    hub.spoil(ALWAYS, on("/issues/comments"), half);
    drop(hub);
    assert_eq!(case.cycle_after(10).len(), 3);
    let said = &case.payload("/comment/5002")["comment"]["body"];
    assert_eq!(said, "half a fish: \u{fffd} and on");
}

/// The lists of a whole repository a listing reads when something happened in all of them.
const LISTS: [&str; 4] = ["/issues", "/issues/comments", "/pulls/comments", "/pulls"];

type Spoil = fn(Reply) -> Reply;

/// What may come instead of a list, and the words that say so.
const SPOILS: [(Spoil, &str); 5] = [
    (|_| replies::html(200), "text/html"),
    (|_| replies::object_for_list(), "No server is currently"),
    (|reply| reply.cut(300), "in the middle of the answer"),
    (|reply| reply.cut(0), "in the middle of the answer"),
    (|_| Reply::json("null"), "did not answer a list"),
];

/// Given the list of one pull request's reviews, when it is no list (C034), then that is said of this one, its events
/// wait for it, and another item's do not; when it is one again, all are told in order, once.
#[test]
fn c034_what_is_no_list_of_one_item_is_said_of_that_item() {
    let mut case = Case::new();
    case.repo(|repo| {
        repo.open(New::pull_request().by("sam"));
        repo.open(New::issue().by("sam"));
    });
    case.cycle_after(60);
    for (how, words) in SPOILS {
        case.repo(|repo| {
            repo.review(1, "sam", Verdict::Commented, "one");
            repo.line_comment(1, "sam", "two");
            repo.comment(1, "sam", "three");
            repo.comment(2, "sam", "a neighbour");
        });
        let said = case.poller.said("poll.item_error").len();
        case.hub.lock().spoil(ALWAYS, on("/pulls/1/reviews"), how);
        let told = case.cycle_after(60);
        assert!(
            told.len() == 1 && told[0].starts_with("2/"),
            "{words}: {told:?}"
        );
        assert!(case.poller.complete, "{words}");
        assert_eq!(case.cycle_after(60), [""; 0], "{words}");
        let reasons = case.poller.said("poll.item_error").split_off(said);
        assert_eq!(reasons.len(), 1, "{words}: it is said once: {reasons:?}");
        assert!(
            reasons[0].contains(words) && reasons[0].contains("/pulls/1/reviews"),
            "{reasons:?}"
        );
        case.hub.lock().heal();
        let told = case.cycle_after(120);
        let mut kinds: Vec<&str> = told.iter().filter_map(|id| id.split('/').nth(1)).collect();
        kinds.sort_unstable();
        assert_eq!(kinds, ["comment", "review", "review_comment"], "{words}");
    }
}

/// Given each list a listing reads, when it is answered with a web page, with an object, with nothing or with a part
/// of itself (C034), then that is a failed poll with a clear reason, no cursor moves and nothing ends; the next one
/// tells what happened, once.
#[test]
fn c034_what_is_no_list_is_a_failed_poll_with_a_reason() {
    let mut case = Case::new();
    case.repo(|repo| repo.open(New::pull_request().by("sam")));
    case.cycle_after(60);
    for list in LISTS {
        for (how, words) in SPOILS {
            let what = format!("{list}, {words}");
            case.repo(|repo| {
                repo.comment(1, "sam", "one");
                repo.line_comment(1, "sam", "two");
                repo.review(1, "sam", Verdict::Commented, "three");
            });
            let before = case.poller.cursor();
            case.hub.lock().spoil(ALWAYS, on(list), how);
            case.later(60);
            assert_eq!(case.cycle(), [""; 0], "{what}");
            assert!(!case.poller.complete, "{what}");
            assert_eq!(case.poller.cursor(), before, "{what}");
            let reason = case.errors().pop().expect("it is said");
            assert!(
                reason.contains(words) && reason.contains(list),
                "{what}: {reason}"
            );
            case.hub.lock().heal();
            assert_eq!(case.cycle_after(60).len(), 3, "{what}");
        }
    }
    assert_eq!(case.settle(), [""; 0]);
    assert_eq!(case.ended(), [""; 0]);
}

/// Given four items on two pages, when the second page is broken (C014), then what the first page says is told, the
/// others are as they were and no cursor moves; the next listing tells the rest, and nothing twice.
#[test]
fn c014_behind_a_broken_page_everything_stays_as_it_is() {
    let mut case = Case::new();
    case.hub.lock().largest_page = 2;
    for _ in 0..4 {
        case.repo(|repo| repo.open(New::issue().by("sam")));
        case.later(10);
    }
    assert_eq!(case.cycle_after(60).len(), 4);
    case.settle();
    let before = case.poller.cursor();
    let ids: Vec<u64> = (1..=4)
        .map(|number| {
            case.later(10);
            case.repo(|repo| repo.comment(number, "sam", "go"))
        })
        .collect();
    let mut pages = 0;
    let second = move |asked: &crate::world::forge::Asked| {
        pages += u32::from(asked.path().ends_with("/issues"));
        asked.path().ends_with("/issues") && pages > 1
    };
    case.hub
        .lock()
        .fault(ALWAYS, second, replies::server_error(502));
    let key = |at: usize| format!("{}/comment/{}", at + 1, ids[at]);
    assert_eq!(case.cycle(), [key(0), key(1)]);
    assert!(!case.poller.complete);
    assert_eq!(case.poller.cursor(), before);
    case.hub.lock().heal();
    assert_eq!(case.cycle_after(60), [key(2), key(3)]);
    assert_eq!(case.settle(), [""; 0]);
    assert_eq!((case.poller.missed, case.ended()), (0, vec![]));
}

/// Given three items being worked on, when listings fail in each way there is, sweeps included, or show nothing
/// while the items are there (C030), then none of them ends; and what is really closed does when all is well.
#[test]
fn c030_no_failure_ends_anything() {
    let mut case = Case::new();
    for _ in 0..3 {
        case.repo(|repo| repo.open(New::issue().by("sam")));
    }
    case.cycle_after(60);
    case.settle();
    type Spoil = fn(Reply) -> Reply;
    let faults: [(&str, Spoil); 9] = [
        ("401", |_| replies::bad_credentials()),
        ("403", |_| replies::forbidden("issues=read")),
        ("404", |_| replies::not_found()),
        ("410", |_| {
            replies::error(410, "Issues are disabled for this repo")
        }),
        ("500", |_| Reply::json("oops").status(500)),
        ("reset", |_| Reply::reset()),
        ("cut", |reply| reply.cut(700)),
        ("a page for people", |_| replies::html(200)),
        ("an object", |_| replies::object_for_list()),
    ];
    for (name, how) in faults {
        for sweep in [false, true] {
            case.repo(|repo| repo.edit_title(2, "Another title"));
            case.hub.lock().spoil(ALWAYS, |_| true, how);
            for _ in 0..3 {
                case.later(if sweep { 3600 } else { 60 });
                assert_eq!(case.cycle(), [""; 0], "{name}");
                assert!(!case.poller.complete, "{name}");
            }
            case.hub.lock().heal();
            assert_eq!(case.cycle_after(60), [""; 0], "{name}");
            assert_eq!(case.settle(), [""; 0], "{name}");
        }
    }
    // Nothing is listed, whatever list is asked for; by themselves the items are there.
    let empty = |reply: Reply| with_rows(reply, Vec::clear);
    case.hub.lock().spoil(ALWAYS, |_| true, empty);
    for _ in 0..4 {
        assert_eq!(case.sweep(), [""; 0]);
        assert!(case.poller.complete);
        assert_eq!(case.cycle_after(150), [""; 0]);
    }
    case.hub.lock().heal();
    assert_eq!(case.ended(), [""; 0]);
    case.repo(|repo| repo.close(2));
    assert_eq!(case.cycle_after(70), ["2/closed"]);
}

/// Given three items being worked on, when none of all is listed or there any more, though the listings are
/// complete (C030), then that is reported and nothing is concluded, for however long; it may be a token that sees less.
#[test]
fn c030_losing_all_at_once_is_reported_and_not_acted_on() {
    let mut case = Case::new();
    for _ in 0..3 {
        case.repo(|repo| repo.open(New::issue().by("sam")));
    }
    case.cycle_after(60);
    case.settle();
    let mut hub = case.hub.lock();
    hub.spoil(ALWAYS, on("/issues"), |reply| with_rows(reply, Vec::clear));
    let by_itself = |asked: &crate::world::forge::Asked| {
        asked
            .path()
            .rsplit_once("/issues/")
            .is_some_and(|(_, n)| n.parse::<u64>().is_ok())
    };
    hub.fault(ALWAYS, by_itself, replies::not_found());
    drop(hub);
    for _ in 0..4 {
        assert_eq!(case.sweep(), [""; 0]);
        assert!(case.poller.complete);
        assert_eq!(case.cycle_after(150), [""; 0]);
    }
    let said = case.poller.said("poll.item_error");
    assert_eq!(said.len(), 1, "once: {said:?}");
    assert!(said[0].starts_with("none of the 3 items"), "{said:?}");
    case.hub.lock().heal();
    let comment = case.repo(|repo| repo.comment(1, "sam", "still here"));
    assert_eq!(case.cycle_after(60), [format!("1/comment/{comment}")]);
    assert_eq!(case.sweep(), [""; 0]);
    assert_eq!(case.ended(), [""; 0]);
}

/// Given listings that succeed and fail in turn (C032), when there were ten of them, then nothing was closed, opened
/// again or said again.
#[test]
fn c032_success_and_failure_in_turn_change_nothing() {
    let mut case = Case::new();
    for _ in 0..2 {
        case.repo(|repo| repo.open(New::issue().by("sam")));
    }
    case.later(60);
    let mut told = case.cycle();
    case.repo(|repo| repo.comment(1, "sam", "once"));
    for turn in 0..10 {
        let fails = turn % 2 == 1;
        if fails {
            let error = replies::server_error(502);
            case.hub.lock().fault(ALWAYS, |_| true, error);
        }
        case.later(60);
        told.extend(case.cycle());
        assert_eq!(case.poller.complete, !fails);
        case.hub.lock().heal();
    }
    assert_eq!(told, ["1/opened", "2/opened", "1/comment/5001"]);
    assert_eq!(case.ended(), [""; 0]);
}

/// How many rows were asked for, in each request for a list.
fn sizes(case: &Case, list: &str) -> Vec<u64> {
    let asked = case.asked();
    let asked = asked.iter().filter(|l| l.asked.path().ends_with(list));
    asked
        .filter_map(|l| l.asked.query("per_page")?.parse().ok())
        .collect()
}

/// Given a server that fails at pages of more than 25 rows, when a list is read, then it is asked for in smaller
/// pages, and read to its end; the next listing asks for full ones again.
#[test]
fn a_page_the_server_fails_at_is_halved() {
    let mut case = Case::new();
    case.repo(|repo| repo.open(New::issue().by("sam")));
    case.cycle_after(60);
    case.settle();
    for _ in 0..60 {
        case.later(1);
        case.repo(|repo| repo.comment(1, "sam", "go"));
    }
    let large = |asked: &crate::world::forge::Asked| {
        let size = asked.query("per_page").and_then(|n| n.parse().ok());
        asked.path().ends_with("/issues/comments") && size.is_some_and(|n: u64| n > 25)
    };
    case.hub
        .lock()
        .fault(ALWAYS, large, replies::server_error(502));
    let told = case.cycle_after(10);
    assert_eq!(told.len(), 60);
    let asked = sizes(&case, "/issues/comments");
    assert_eq!(asked[..3], [100, 50, 25]);
    assert!(asked[2..].iter().all(|size| *size == 25), "{asked:?}");
    case.hub.lock().heal();
    assert_eq!(case.cycle_after(60), [""; 0]);
    assert_eq!(sizes(&case, "/issues/comments"), [100]);
}

/// Given a page of 26 MB, when it is read, then it is read; given one that is larger than what we take, then smaller
/// ones are asked for, and nothing is lost.
#[test]
fn a_page_of_26_megabytes_is_read_and_a_larger_one_is_halved() {
    for (padding, halved) in [(260_000, false), (400_000, true)] {
        let mut case = Case::new();
        case.repo(|repo| repo.open(New::issue().by("sam")));
        case.cycle_after(60);
        case.settle();
        for _ in 0..99 {
            case.repo(|repo| repo.comment(1, "sam", "go"));
        }
        let padded = move |reply: Reply| {
            with_rows(reply, |rows| {
                for row in rows {
                    row["padding"] = "x".repeat(padding).into();
                }
            })
        };
        case.hub
            .lock()
            .spoil(ALWAYS, on("/issues/comments"), padded);
        assert_eq!(case.cycle_after(10).len(), 99);
        let asked = sizes(&case, "/issues/comments");
        assert_eq!(asked.contains(&50), halved, "{asked:?}");
    }
}
