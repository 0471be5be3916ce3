//! Which events are new, sighting by sighting.

use super::*;
use crate::engine::budget::Budget;
use crate::engine::delivery::Outcome;
use crate::engine::item::{Channel, Comment, Details, Kind};
use std::time::Duration;

mod edges;

const WATCHED: Time = Time(1_000_000);
const NOW: Time = Time(9_000_000);

fn rules() -> Rules {
    Rules {
        source: "in".into(),
        sinks: vec!["a".into(), "b".into()],
        policy: Policy {
            authorized_users: vec!["octocat".into()],
            max_retries: 3,
            ..Policy::default()
        },
        self_marker: "<!-- idempoll -->".into(),
        scope: String::new(),
        webhook_sinks: Vec::new(),
    }
}

fn by(login: &str) -> Author {
    Author {
        login: Some(login.into()),
        association: None,
        bot: false,
    }
}

fn item() -> Item {
    Item {
        item_ref: "github:octo/api#7".parse().expect("a ref"),
        kind: Kind::Issue,
        title: "Do it".into(),
        body: "Please".into(),
        author: by("octocat"),
        state: State::Open,
        labels: vec!["auto".into()],
        created_at: Some(Time(500_000)),
        labelled_at: None,
        without_label: Vec::new(),
        unlabelled_at: None,
        labels_dated: false,
        upstream: None,
        closed_at: None,
        url: None,
    }
}

fn says(id: u64, login: &str, at: u64) -> Comment {
    Comment {
        channel: Channel::Comment,
        id: id.to_string(),
        author: by(login),
        body: "go".into(),
        created_at: Time(at),
        url: None,
        details: Details::default(),
        upstream: None,
    }
}

/// Judges one sighting after another; gives what was queued by each, in order.
fn story(rules: &Rules, sightings: &[(Item, Vec<Comment>)]) -> (Option<Record>, Vec<Vec<String>>) {
    let mut record = None;
    let mut told = Vec::new();
    for (item, comments) in sightings {
        let before: Vec<u64> = record
            .iter()
            .flat_map(|r: &Record| r.events.keys().copied())
            .collect();
        rules.judge(
            &mut record,
            &Sighting {
                item: item.clone(),
                comments: comments.clone(),
            },
            WATCHED,
            NOW,
        );
        let mut new: Vec<&Event> = record
            .iter()
            .flat_map(|r| &r.events)
            .filter(|(seq, _)| !before.contains(seq))
            .map(|(_, e)| e)
            .collect();
        new.sort_by(|a, b| a.place().cmp(&b.place()));
        told.push(new.iter().map(|e| e.key.to_string()).collect());
    }
    (record, told)
}

fn keys(rules: &Rules, sightings: &[(Item, Vec<Comment>)]) -> Vec<Vec<String>> {
    story(rules, sightings).1
}

fn closed_at(at: u64) -> Item {
    Item {
        state: State::Closed,
        closed_at: Some(Time(at)),
        ..item()
    }
}

/// Given an item older than the watch, when it is first seen open, then it is
/// opened once, comments made before the watch are baseline, later ones events (R6.4).
#[test]
fn r6_4_old_comments_are_baseline_and_an_open_item_is_opened_once() {
    let seen = (
        item(),
        vec![says(2, "octocat", 2_000_000), says(1, "octocat", 999_999)],
    );
    let (record, told) = story(&rules(), &[seen.clone(), seen]);
    assert_eq!(told, [vec!["opened", "comment/2"], vec![]]);
    let record = record.expect("a record");
    assert_eq!(
        record.known.get(&Key("comment/1".into())),
        Some(Disposition::Baseline)
    );
    // R6.6: each sink has its own queue of both.
    assert!(record.sinks.values().all(|q| q.pending.len() == 2) && record.sinks.len() == 2);
}

/// Given a label time, when the item is first seen, then comments made before
/// the label are baseline; a label nobody asks for does not matter (R6.4).
#[test]
fn r6_4_comments_before_the_label_are_baseline() {
    let mut labelled = rules();
    labelled.policy.label = Some("AUTO".into());
    let seen = (
        Item {
            labelled_at: Some(Time(3_000_000)),
            ..item()
        },
        vec![says(1, "octocat", 2_000_000), says(2, "octocat", 3_000_000)],
    );
    assert_eq!(
        keys(&labelled, std::slice::from_ref(&seen)),
        [["opened", "comment/2"]]
    );
    assert_eq!(
        keys(&rules(), &[seen]),
        [["opened", "comment/1", "comment/2"]]
    );
    // An item without the label is none of ours.
    let other = (
        Item {
            labels: vec!["bug".into()],
            ..item()
        },
        vec![says(1, "octocat", 2_000_000)],
    );
    assert!(story(&labelled, &[other]).0.is_none());
}

/// Given an item opened, discussed and closed between two looks, when it is seen
/// closed, then the events are those of a poller that was there (R6.4).
#[test]
fn r6_4_what_was_missed_is_made_up_for() {
    let comments = vec![says(1, "octocat", 2_000_000), says(2, "octocat", 6_000_000)];
    assert_eq!(
        keys(&rules(), &[(closed_at(5_000_000), comments)]),
        [["opened", "comment/1", "closed", "comment/2"]]
    );
    // Closed before it was watched: only what was said since.
    assert_eq!(
        keys(
            &rules(),
            &[(closed_at(900_000), vec![says(2, "octocat", 6_000_000)])]
        ),
        [["comment/2"]]
    );
    assert!(
        story(&rules(), &[(closed_at(900_000), vec![])]).0.is_none(),
        "history is not copied"
    );
}

#[test]
fn r6_4_the_backlog_can_be_skipped_and_its_news_still_arrive() {
    let mut skip = rules();
    skip.policy.backlog = Backlog::Skip;
    let before = (item(), vec![]);
    let after = (item(), vec![says(1, "octocat", 2_000_000)]);
    assert_eq!(keys(&skip, &[before, after]), [vec![], vec!["comment/1"]]);
    let new = (
        Item {
            created_at: Some(Time(2_000_000)),
            ..item()
        },
        vec![],
    );
    assert_eq!(keys(&skip, &[new]), [["opened"]]);
}

/// R6.4: a time in the config overrides the remembered one.
#[test]
fn r6_4_watch_from_in_the_config_wins() {
    let mut early = rules();
    early.policy.watch_from = Some(Time(0));
    assert_eq!(
        keys(&early, &[(item(), vec![says(1, "octocat", 600_000)])]),
        [["opened", "comment/1"]]
    );
}

#[test]
fn closing_and_reopening_are_events_with_numbers_of_their_own() {
    let closed = closed_at(3_000_000);
    let told = keys(
        &rules(),
        &[
            (item(), vec![]),
            (closed.clone(), vec![]),
            (item(), vec![]),
            (closed, vec![]),
            (item(), vec![]),
        ],
    );
    assert_eq!(
        told,
        [
            ["opened"],
            ["closed"],
            ["opened/2"],
            ["closed/2"],
            ["opened/3"]
        ]
    );
    let (record, _) = story(
        &rules(),
        &[(
            Item {
                state: State::Merged,
                closed_at: Some(Time(4)),
                ..item()
            },
            vec![],
        )],
    );
    assert!(record.is_none());
}

#[test]
fn losing_the_label_ends_the_item_and_what_is_said_without_it_is_baseline() {
    let mut labelled = rules();
    labelled.policy.label = Some("auto".into());
    let bare = Item {
        labels: vec![],
        ..item()
    };
    let comments = |n: u64| {
        (1..=n)
            .map(|id| says(id, "octocat", 1_000_000 + id * 1000))
            .collect::<Vec<_>>()
    };
    let told = keys(
        &labelled,
        &[
            (item(), comments(1)),
            (bare.clone(), comments(2)),
            (bare, comments(3)),
            (item(), comments(4)),
        ],
    );
    assert_eq!(
        told,
        [
            vec!["opened", "comment/1"],
            vec!["comment/2", "closed"],
            vec![],
            vec!["opened/2", "comment/4"]
        ]
    );
}

/// Given comments by a stranger, by ourselves and by a deleted account, when they
/// are seen, then none is ever delivered, now or later (R7.1, R7.2, C002, C039, C047).
#[test]
fn r7_only_the_authorized_act_and_never_we_ourselves() {
    let mut ours = says(2, "octocat", 2_000_001);
    ours.body = "quoting: go <!-- idempoll -->".into();
    let mut ghost = says(3, "x", 2_000_002);
    ghost.author.login = None;
    let seen = (
        item(),
        vec![
            says(1, "stranger", 2_000_000),
            ours,
            ghost,
            says(4, "OCTOCAT", 2_000_003),
        ],
    );
    let mut record = None;
    let sighting = Sighting {
        item: seen.0.clone(),
        comments: seen.1.clone(),
    };
    let judged = rules().judge(&mut record, &sighting, WATCHED, NOW);
    assert_eq!(judged.queued, 2, "the opening and the last comment");
    let said: Vec<&str> = judged.entries.iter().map(|e| e.kind.as_str()).collect();
    assert_eq!(said, ["poll.unauthorized", "poll.unauthorized"]);
    let again = rules().judge(&mut record, &sighting, WATCHED, NOW);
    assert_eq!(again, Judged::default(), "nothing is said twice");
    // Authorized later, an old comment stays refused.
    let mut open_to_all = rules();
    open_to_all.policy.authorized_users.push("stranger".into());
    assert_eq!(
        open_to_all
            .judge(&mut record, &sighting, WATCHED, NOW)
            .queued,
        0
    );
}

/// Given an item by a stranger, when they are authorized while it is open, then it is opened.
#[test]
fn r7_1_an_open_item_is_opened_once_its_author_is_authorized() {
    let theirs = Sighting {
        item: Item {
            author: by("stranger"),
            ..item()
        },
        comments: vec![],
    };
    let mut record = None;
    assert_eq!(rules().judge(&mut record, &theirs, WATCHED, NOW).queued, 0);
    // Who was never told of it is not told of its end.
    let mut ended = record.clone();
    let end = Sighting {
        item: Item {
            author: by("stranger"),
            ..closed_at(3_000_000)
        },
        comments: vec![],
    };
    assert_eq!(rules().judge(&mut ended, &end, WATCHED, NOW).queued, 0);
    let mut later = rules();
    later.policy.authorized_users.push("stranger".into());
    assert_eq!(later.judge(&mut record, &theirs, WATCHED, NOW).queued, 1);
    assert_eq!(later.judge(&mut record, &theirs, WATCHED, NOW).queued, 0);
}

/// R6.7. Given an opening that was given up, when nothing new is seen, then it stays so;
/// when the item is commented on, then it is tried again, before the comment.
#[test]
fn r6_7_new_activity_re_arms_an_opening_that_was_given_up() {
    let budget = Budget {
        max_retries: 0,
        pause: Duration::from_secs(1),
        version: "1.0.0".into(),
    };
    let seen = |comments: Vec<Comment>| Sighting {
        item: item(),
        comments,
    };
    let mut record = None;
    rules().judge(&mut record, &seen(vec![]), WATCHED, NOW);
    let opened = record.as_mut().expect("it was opened");
    for sink in ["a", "b"] {
        let (attempt, _) = opened.begin(sink).expect("it waits");
        let reason = "exit status 1".into();
        opened.settle(attempt, Outcome::Failed { reason }, NOW, &budget);
    }
    assert_eq!((opened.gave_up(), opened.pending()), (2, 0));
    let again = rules().judge(&mut record, &seen(vec![]), WATCHED, NOW);
    assert_eq!(again, Judged::default());

    let news = seen(vec![says(1, "octocat", 2_000_000)]);
    let judged = rules().judge(&mut record, &news, WATCHED, NOW);
    let said: Vec<&str> = judged.entries.iter().map(|e| e.kind.as_str()).collect();
    assert_eq!(said, ["poll.rearmed", "poll.rearmed"]);
    let mut record = record.expect("it is known");
    assert_eq!((record.gave_up(), record.pending()), (0, 4));
    let (first, _) = record.begin("a").expect("it waits");
    assert_eq!(&*record.events[&first.seq()].key.0, "opened");
    first.leave();
}

/// R6.5, C035, C036, C037, C040: edits and deletions make no event, and what was
/// queued keeps the text it was first read with.
#[test]
fn r6_5_edits_and_deletions_deliver_nothing() {
    let first = (
        item(),
        vec![says(1, "octocat", 2_000_000), says(2, "octocat", 2_000_001)],
    );
    let mut edited = says(1, "octocat", 2_000_000);
    edited.body = "something else".into();
    let changed = Item {
        title: "Do that".into(),
        body: "Now".into(),
        labels: vec!["auto".into(), "bug".into()],
        ..item()
    };
    let (record, told) = story(&rules(), &[first, (changed, vec![edited])]);
    assert_eq!(told, [vec!["opened", "comment/1", "comment/2"], vec![]]);
    let record = record.expect("a record");
    let payload = record
        .events
        .values()
        .find(|e| &*e.key.0 == "comment/1")
        .map(|e| e.payload.to_string());
    assert!(payload.expect("it waits").contains(r#""body":"go""#));
    assert!(record.known.get(&Key("comment/2".into())).is_some());
}

/// C043: equal numbers from different conversations do not hide each other.
#[test]
fn c043_equal_ids_of_different_conversations_are_different_events() {
    let mut review = says(77, "octocat", 2_000_000);
    review.channel = Channel::Review;
    let mut line = says(77, "octocat", 2_000_000);
    line.channel = Channel::ReviewComment;
    let told = keys(
        &rules(),
        &[(item(), vec![says(77, "octocat", 2_000_000), review, line])],
    );
    assert_eq!(
        told,
        [["opened", "comment/77", "review/77", "review_comment/77"]]
    );
}

/// R3.6, C111: what stands in for a damaged record neither repeats nor swallows.
#[test]
fn c111_a_damaged_record_is_not_a_first_sight() {
    let mut record = Some(Record::instead_of_damaged(
        "in",
        item().item_ref,
        true,
        Time(5_000_000),
    ));
    let comments = vec![says(1, "octocat", 4_000_000), says(2, "octocat", 6_000_000)];
    let judged = rules().judge(
        &mut record,
        &Sighting {
            item: item(),
            comments,
        },
        WATCHED,
        NOW,
    );
    assert_eq!(judged.queued, 1);
    let record = record.expect("a record");
    assert_eq!(
        record
            .events
            .values()
            .map(|e| e.key.to_string())
            .collect::<Vec<_>>(),
        ["comment/2"]
    );
    // It ended before the damage: that was told then.
    let mut ended = Some(Record::instead_of_damaged(
        "in",
        item().item_ref,
        true,
        Time(5_000_000),
    ));
    assert_eq!(
        rules()
            .judge(
                &mut ended,
                &Sighting {
                    item: closed_at(4_000_000),
                    comments: vec![]
                },
                WATCHED,
                NOW
            )
            .queued,
        0
    );
}

/// The payload has the keys it always had, to the letter.
#[test]
fn a_payload_says_what_the_contract_says() {
    let (record, _) = story(
        &rules(),
        &[(item(), vec![says(1234, "octocat", 2_000_000)])],
    );
    let record = record.expect("a record");
    let payloads: Vec<&str> = record.events.values().map(|e| &*e.payload).collect();
    assert_eq!(
        payloads,
        [
            r#"{"idempoll":1,"delivery_id":"github:octo/api#7/opened","event":"opened","source":"in","item":{"ref":"github:octo/api#7","provider":"github","host":"github.com","owner":"octo","repo":"api","number":7,"kind":"issue","title":"Do it","url":null,"author":"octocat","labels":["auto"],"state":"open","body":"Please"}}"#,
            r#"{"idempoll":1,"delivery_id":"github:octo/api#7/comment/1234","event":"comment","source":"in","item":{"ref":"github:octo/api#7","provider":"github","host":"github.com","owner":"octo","repo":"api","number":7,"kind":"issue","title":"Do it","url":null,"author":"octocat","labels":["auto"],"state":"open"},"comment":{"id":"1234","author":"octocat","body":"go","created_at":"1970-01-01T00:33:20Z","url":null}}"#,
        ]
    );
}

/// R6.1: without times of their own, closings and reopenings still come in their order.
#[test]
fn r6_1_closings_without_a_time_keep_their_order() {
    let closed = Item {
        state: State::Closed,
        ..item()
    };
    let comments = vec![says(1, "octocat", 2_000_000)];
    let looks = [
        (item(), comments.clone()),
        (closed.clone(), comments.clone()),
        (item(), comments.clone()),
        (closed, comments),
    ];
    let (record, _) = story(&rules(), &looks);
    let record = record.expect("a record");
    let mut events: Vec<&Event> = record.events.values().collect();
    events.sort_by(|a, b| a.place().cmp(&b.place()));
    let order: Vec<&str> = events.iter().map(|e| &*e.key.0).collect();
    assert_eq!(
        order,
        ["opened", "comment/1", "closed", "opened/2", "closed/2"]
    );
}

/// R6.1: what is said after an item came back stands behind its coming back,
/// whatever our own clock was when it was missed.
#[test]
fn r6_1_a_comment_follows_the_reopening_it_was_made_after() {
    let (record, _) = story(&rules(), &[(item(), vec![])]);
    let mut record = record.expect("a record");
    rules().gone(&mut record, NOW);
    let mut record = Some(record);
    let back = Sighting {
        item: item(),
        comments: vec![says(5, "octocat", 3_000_000)],
    };
    rules().judge(&mut record, &back, WATCHED, NOW);
    let record = record.expect("a record");
    let mut events: Vec<&Event> = record.events.values().collect();
    events.sort_by(|a, b| a.place().cmp(&b.place()));
    let order: Vec<&str> = events.iter().map(|e| &*e.key.0).collect();
    assert_eq!(order, ["opened", "closed", "opened/2", "comment/5"]);
}

/// R6.4: a label taken off and put back between two looks hides no comment.
#[test]
fn r6_4_a_label_put_back_between_two_looks_hides_nothing() {
    let mut labelled = rules();
    labelled.policy.label = Some("auto".into());
    let first = Item {
        labelled_at: Some(Time(1_500_000)),
        ..item()
    };
    let again = Item {
        labelled_at: Some(Time(3_000_000)),
        ..item()
    };
    let comment = says(1, "octocat", 2_000_000);
    let told = keys(&labelled, &[(first, vec![]), (again, vec![comment])]);
    assert_eq!(told, [["opened"], ["comment/1"]]);
}

/// To whoever was never told of an item, its reopening is an opening.
#[test]
fn a_skipped_item_that_is_reopened_is_opened() {
    let mut skip = rules();
    skip.policy.backlog = Backlog::Skip;
    let looks = [
        (item(), vec![]),
        (closed_at(3_000_000), vec![]),
        (item(), vec![]),
    ];
    let (record, told) = story(&skip, &looks);
    assert_eq!(told, [vec![], vec![], vec!["opened/2"]]);
    let record = record.expect("a record");
    assert!(record.events.values().all(|e| e.kind == EventKind::Opened));
}

/// C111: after the damage no delivery id is used a second time.
#[test]
fn c111_numbers_after_a_damaged_record_are_new() {
    let damaged = Record::instead_of_damaged("in", item().item_ref, true, Time(5_000_000));
    let mut record = Some(damaged);
    for look in [closed_at(6_000_000), item()] {
        let sighting = Sighting {
            item: look,
            comments: vec![],
        };
        rules().judge(&mut record, &sighting, WATCHED, NOW);
    }
    let record = record.expect("a record");
    let keys: Vec<String> = record.events.values().map(|e| e.key.to_string()).collect();
    assert_eq!(keys, ["closed/5000", "opened/5001"]);
}
