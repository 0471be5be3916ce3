//! Single facts and the steps they lead to; whole lives are in `tests/it/engine_worlds.rs`.

use super::access::Policy;
use super::cycle::Engine;
use super::delivery::{Outcome, Slug};
use super::entry::Entry;
use super::feed::Feed;
use super::item::{Author, Channel, Comment, Details, Item, ItemRef, Kind, Sighting, State};
use super::listing::{Complete, Coverage, Cut, Heard, Listing};
use super::plan::Rules;
use super::record::{Record, Standing};
use super::saving::Unsaved;
use super::step::{Fact, FeedSetup, Found, Setup, Step, Summary, Totals};
use super::time::Time;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

mod parking;
mod saving;
mod telling;

const NOW: Time = Time(1_700_000_000_000);

fn template() -> ItemRef {
    ItemRef {
        provider: "dir".into(),
        host: None,
        path: "in".into(),
        number: 0,
    }
}

fn slug(number: u64) -> Slug {
    Slug::new(
        "in",
        &ItemRef {
            number,
            ..template()
        },
    )
}

fn setup(version: &str) -> Setup {
    Setup {
        feeds: vec![FeedSetup {
            slug: Slug::feed("in", None, None),
            template: template(),
            host: None,
            rules: Rules {
                source: "in".into(),
                sinks: vec!["sink".into()],
                policy: Policy {
                    authorized_users: vec!["octocat".into()],
                    max_retries: 0,
                    ..Policy::default()
                },
                self_marker: "<!-- idempoll -->".into(),
                scope: String::new(),
                webhook_sinks: Vec::new(),
            },
        }],
        slots: [("sink".to_string(), 1)].into(),
        retry_pause: Duration::from_secs(1),
        most_held: 256,
        version: version.into(),
        once: false,
    }
}

fn octocat() -> Author {
    Author {
        login: Some("octocat".into()),
        association: None,
        bot: false,
    }
}

fn sighting(number: u64) -> Heard {
    Heard::Sighting(Box::new(Sighting {
        item: Item {
            item_ref: ItemRef {
                number,
                ..template()
            },
            kind: Kind::Issue,
            title: "t".into(),
            body: String::new(),
            author: octocat(),
            state: State::Open,
            labels: vec![],
            created_at: Some(NOW),
            labelled_at: None,
            without_label: Vec::new(),
            unlabelled_at: None,
            labels_dated: false,
            upstream: None,
            closed_at: None,
            url: None,
        },
        comments: vec![],
    }))
}

fn comment(created_at: Time) -> Comment {
    Comment {
        channel: Channel::Comment,
        id: "1".into(),
        author: octocat(),
        body: "go".into(),
        created_at,
        url: None,
        details: Details::default(),
        upstream: None,
    }
}

fn complete(cursor: u64) -> Fact {
    Fact::Listed(Listing::Complete(Complete {
        cursor: json!(cursor),
        coverage: Coverage::Changes {
            missing: Vec::new(),
        },
    }))
}

/// A store in memory that can be told to fail.
#[derive(Default)]
struct Store {
    records: BTreeMap<Slug, Record>,
    feed: Option<Feed>,
    failing: bool,
    /// A record that cannot be saved while others can.
    stubborn: Option<Slug>,
    damaged: Option<Slug>,
    unreadable: Option<Slug>,
    flushes: usize,
    flush_fails: bool,
    loads: usize,
    logged: Vec<Entry>,
    ended: Vec<Summary>,
}

/// Nothing stored, and an engine that has not begun.
fn fresh() -> (Store, Engine) {
    let engine = Engine::new(setup("1.0.0"), vec![None], vec![]);
    (Store::default(), engine)
}

/// The same, in the middle of its first listing.
fn listing() -> (Store, Engine) {
    listing_by(setup("1.0.0"))
}

fn listing_by(setup: Setup) -> (Store, Engine) {
    let mut store = Store::default();
    let mut engine = Engine::new(setup, vec![None], vec![]);
    store.tell(&mut engine, NOW, Fact::CycleDue);
    (store, engine)
}

impl Store {
    /// Tells the engine a fact, and carries out what that leads to.
    fn tell(&mut self, engine: &mut Engine, now: Time, fact: Fact) -> Vec<String> {
        engine.on(now, fact);
        self.drive(engine, now)
    }

    /// Carries out all steps there are; gives those that are about more than records, as text.
    fn drive(&mut self, engine: &mut Engine, now: Time) -> Vec<String> {
        let mut done = Vec::new();
        while let Some(step) = engine.next(now) {
            let refused = |what| Fact::SaveFailed {
                what,
                reason: "no space left on device".into(),
            };
            let fact = match step {
                Step::Load(slug) => {
                    self.loads += 1;
                    let found = match self.records.get(&slug) {
                        _ if self.damaged.as_ref() == Some(&slug) => Found::Damaged {
                            reason: "cut".into(),
                            modified: NOW,
                        },
                        _ if self.unreadable.as_ref() == Some(&slug) => Found::Unreadable {
                            reason: "permission denied".into(),
                        },
                        Some(r) => Found::Record(Box::new(r.clone())),
                        None => Found::Nothing,
                    };
                    Fact::Loaded { slug, found }
                }
                Step::Save(slug) | Step::SaveLater(slug)
                    if self.failing || self.stubborn.as_ref() == Some(&slug) =>
                {
                    done.push("refused".into());
                    refused(Unsaved::Record(slug))
                }
                Step::SaveFeed(_) if self.failing => {
                    done.push("refused".into());
                    refused(Unsaved::Feed)
                }
                Step::Flush if self.failing || self.flush_fails => {
                    done.push("refused".into());
                    refused(Unsaved::Batch)
                }
                Step::Save(slug) | Step::SaveLater(slug) => {
                    done.push(format!("save {slug}"));
                    if let Some(r) = engine.record(&slug) {
                        self.records.insert(slug.clone(), r.clone());
                    }
                    Fact::Saved { slug }
                }
                Step::Flush => {
                    self.flushes += 1;
                    Fact::Flushed
                }
                Step::SaveFeed(_) => {
                    self.feed = engine.feed_to_save().cloned();
                    done.push("save feed".into());
                    Fact::FeedSaved
                }
                Step::SetAside(slug) => {
                    done.push(format!("aside {slug}"));
                    self.damaged = None;
                    continue;
                }
                Step::Deliver(d) => {
                    done.push(format!("deliver {} try {}", d.id, d.attempt));
                    continue;
                }
                Step::Log(e) => {
                    done.push(e.kind.clone());
                    self.logged.push(e);
                    continue;
                }
                Step::List { .. } => {
                    done.push("list".into());
                    continue;
                }
                Step::Abandon => {
                    done.push("abandon".into());
                    continue;
                }
                Step::CycleEnded(s) => {
                    done.push(format!(
                        "cycle of {} failed {} interrupted {}",
                        s.items, s.failed_feeds, s.interrupted
                    ));
                    self.ended.push(s);
                    continue;
                }
                other => panic!("{other:?}"),
            };
            engine.on(now, fact);
        }
        done
    }
}

fn settled(number: u64, outcome: Outcome) -> Fact {
    Fact::Settled {
        slug: slug(number),
        sink: "sink".into(),
        outcome,
    }
}

/// Given a first listing, when an item is found, then watching, the record with
/// the try, and only then the delivery follow, and the cursor comes last (R3.4, R3.7).
#[test]
fn r3_7_the_steps_come_in_the_promised_order() {
    let (mut store, mut engine) = fresh();
    engine.on(NOW, Fact::CycleDue);
    assert_eq!(store.drive(&mut engine, NOW), ["list"]);
    engine.on(NOW, sighting_fact(1));
    assert_eq!(
        store.drive(&mut engine, NOW),
        [
            "save feed",
            "save in~1",
            "dispatch.queued",
            "deliver dir:in#1/opened try 1"
        ]
    );
    assert_eq!(
        store.feed.as_ref().and_then(|f| f.cursor.clone()),
        None,
        "the cursor moves last"
    );
    engine.on(NOW, sighting_fact(2));
    assert_eq!(
        store.drive(&mut engine, NOW),
        ["save in~2"],
        "durable, and waiting for the one slot"
    );
    engine.on(NOW, complete(7));
    assert_eq!(
        store.drive(&mut engine, NOW),
        [
            "save feed",
            "cycle of 2 failed 0 interrupted false",
            "poll.cycle"
        ]
    );
    assert!(!engine.is_quiet(), "one is under way still");
    engine.on(NOW, settled(1, Outcome::Delivered));
    assert_eq!(
        store.drive(&mut engine, NOW),
        [
            "save in~1",
            "dispatch.succeeded",
            "save in~2",
            "dispatch.queued",
            "deliver dir:in#2/opened try 1"
        ]
    );
    store.tell(&mut engine, NOW, settled(2, Outcome::Delivered));
    // The same again does nothing, once what came in between has been summed up.
    store.tell(&mut engine, NOW, Fact::CycleDue);
    engine.on(NOW, complete(7));
    assert_eq!(
        store.drive(&mut engine, NOW),
        ["cycle of 2 failed 0 interrupted false", "poll.cycle"]
    );
    store.tell(&mut engine, NOW, Fact::CycleDue);
    engine.on(NOW, complete(7));
    assert_eq!(
        store.drive(&mut engine, NOW),
        ["cycle of 2 failed 0 interrupted false"]
    );
    engine.leave();
}

fn failed() -> Outcome {
    Outcome::Failed {
        reason: "exit code 1".into(),
    }
}

fn sighting_fact(number: u64) -> Fact {
    Fact::Heard(sighting(number))
}

/// Given a full disk, when items are found, then none is delivered, the cursor
/// stays, and once there is room work resumes by itself (R3.5, C119).
#[test]
fn r3_5_what_cannot_be_recorded_is_not_delivered() {
    let mut store = Store::default();
    let mut engine = Engine::new(setup("1.0.0"), vec![None], vec![]);
    store.tell(&mut engine, NOW, Fact::CycleDue);
    store.tell(&mut engine, NOW, Fact::Heard(Heard::Clock(NOW)));
    store.failing = true;
    let mut done = Vec::new();
    for number in 1..=3 {
        engine.on(NOW, sighting_fact(number));
        done.extend(store.drive(&mut engine, NOW));
    }
    let wanted = [
        "refused",
        "poll.store_error",
        "refused",
        "refused",
        "abandon",
        "poll.source_error",
        "cycle of 0 failed 1 interrupted false",
        "poll.cycle",
    ];
    assert_eq!(done, wanted, "said once, and then the store is down");
    assert!(engine.store_trouble().is_some() && engine.is_stuck());
    // While it is down, a cycle asks nobody.
    let done = store.tell(&mut engine, NOW, Fact::CycleDue);
    assert_eq!(done, ["cycle of 0 failed 1 interrupted false"]);
    let retry_at = engine.wakes_at().expect("it is tried again");
    assert_eq!(store.drive(&mut engine, retry_at), ["refused"], "one probe");
    store.failing = false;
    let later = engine.wakes_at().expect("and again");
    let done = store.drive(&mut engine, later);
    assert!(
        done.contains(&"deliver dir:in#1/opened try 1".to_string()),
        "{done:?}"
    );
    for number in 1..=3 {
        store.tell(&mut engine, later, settled(number, Outcome::Delivered));
    }
    assert!(
        store
            .records
            .values()
            .all(|r| r.sinks["sink"].delivered == 1)
    );
    assert_eq!(store.records.len(), 3);
    assert_eq!(store.feed.as_ref().and_then(|f| f.cursor.clone()), None);
    engine.leave();
}

/// Given one record that cannot be saved, when its item and others are listed,
/// then the others are delivered, and the cursor waits for it (R3.2, R3.4).
#[test]
fn r3_2_one_record_that_cannot_be_saved_holds_up_nobody_else() {
    let mut store = Store::default();
    let mut engine = Engine::new(setup("1.0.0"), vec![None], vec![]);
    store.stubborn = Some(slug(1));
    store.tell(&mut engine, NOW, Fact::CycleDue);
    for number in 1..=3 {
        store.tell(&mut engine, NOW, sighting_fact(number));
        store.tell(&mut engine, NOW, settled(number, Outcome::Delivered));
    }
    store.tell(&mut engine, NOW, complete(7));
    // However often it fails: it is one record, not the store.
    for _ in 0..4 {
        let again = engine.wakes_at().expect("it is tried again");
        store.drive(&mut engine, again);
        let done = store.tell(&mut engine, again, Fact::CycleDue);
        assert!(done.contains(&"list".to_string()), "{done:?}");
        store.tell(&mut engine, again, complete(7));
    }
    assert_eq!(store.records.len(), 2);
    assert_eq!(store.feed.as_ref().and_then(|f| f.cursor.clone()), None);
    store.stubborn = None;
    let later = engine.wakes_at().expect("it is tried again");
    let done = store.drive(&mut engine, later);
    assert!(
        done.contains(&"deliver dir:in#1/opened try 1".to_string()),
        "{done:?}"
    );
    store.tell(&mut engine, later, settled(1, Outcome::Delivered));
    assert!(engine.is_quiet() && engine.wakes_at().is_none());
    engine.leave();
}

/// C023: given a try that waits, when the clock is set back a day, then it still
/// comes when it was due, and the log says why.
#[test]
fn c023_a_clock_set_back_delays_nothing() {
    let mut store = Store::default();
    let mut rules = setup("1.0.0");
    rules.feeds[0].rules.policy.max_retries = 3;
    let mut engine = Engine::new(rules, vec![None], vec![]);
    store.tell(&mut engine, NOW, Fact::CycleDue);
    store.tell(&mut engine, NOW, sighting_fact(1));
    let failed = Outcome::Failed {
        reason: "exit status 1".into(),
    };
    store.tell(&mut engine, NOW, settled(1, failed));
    let yesterday = NOW.minus(Duration::from_secs(86_400));
    assert_eq!(
        store.drive(&mut engine, yesterday),
        ["poller.warning", "save in~1"]
    );
    let due = engine.wakes_at().expect("it waits");
    assert!(due.since(yesterday) <= Duration::from_secs(1), "{due}");
    let done = store.drive(&mut engine, due);
    assert!(
        done.contains(&"deliver dir:in#1/opened try 2".to_string()),
        "{done:?}"
    );
    engine.leave();
}

/// C023: given a clock that steps back, then it counts as set from two seconds on.
#[test]
fn c023_a_clock_counts_as_set_back_from_two_seconds_on() {
    for (ms, steps) in [(1_999, vec![]), (2_000, vec!["poller.warning"])] {
        let (mut store, mut engine) = listing();
        let earlier = NOW.minus(Duration::from_millis(ms));
        assert_eq!(store.drive(&mut engine, earlier), steps, "{ms} ms");
        engine.leave();
    }
}

/// Given an endpoint that refuses for good, when the delivery is given up, then its one try is told (R5.5).
#[test]
fn r5_5_what_is_refused_for_good_took_one_try() {
    let (mut store, mut engine) = listing();
    store.tell(&mut engine, NOW, sighting_fact(1));
    let reason = "410 Gone".to_string();
    let done = store.tell(&mut engine, NOW, settled(1, Outcome::Refused { reason }));
    assert!(done.contains(&"poll.gave_up".to_string()), "{done:?}");
    let given_up = &store.records[&slug(1)].sinks["sink"].gave_up;
    let attempts: Vec<u32> = given_up.values().map(|g| g.attempts).collect();
    assert_eq!(attempts, [1]);
    engine.leave();
}

/// Given a try that waits, when the clock is set forward a day and then back, then it
/// comes at once and the one after it when it is due, not a day later (C023).
#[test]
fn c023_a_clock_set_forward_and_back_delays_nothing() {
    let mut store = Store::default();
    let mut rules = setup("1.0.0");
    rules.feeds[0].rules.policy.max_retries = 5;
    let mut engine = Engine::new(rules, vec![None], vec![]);
    store.tell(&mut engine, NOW, Fact::CycleDue);
    store.tell(&mut engine, NOW, sighting_fact(1));
    let fail = |engine: &mut Engine, now| {
        let reason = "exit status 1".into();
        engine.on(now, settled(1, Outcome::Failed { reason }));
    };
    fail(&mut engine, NOW);
    store.drive(&mut engine, NOW);
    let tomorrow = NOW.plus(Duration::from_secs(86_400));
    let done = store.drive(&mut engine, tomorrow);
    assert!(
        done.contains(&"deliver dir:in#1/opened try 2".to_string()),
        "{done:?}"
    );
    fail(&mut engine, tomorrow);
    store.drive(&mut engine, tomorrow);
    let back = NOW.plus(Duration::from_secs(1));
    assert_eq!(
        store.drive(&mut engine, back),
        ["poller.warning", "save in~1"]
    );
    let due = engine.wakes_at().expect("it waits");
    assert!(due.since(back) <= Duration::from_secs(4), "{due}");
    let done = store.drive(&mut engine, due);
    assert!(
        done.contains(&"deliver dir:in#1/opened try 3".to_string()),
        "{done:?}"
    );
    engine.leave();
}

/// Given a delivery and a listing that failed, when the config changes before the next cycle, then
/// that cycle counts the delivery, and the failure is not reported a second time.
#[test]
fn an_engine_that_follows_another_forgets_and_repeats_nothing() {
    let (mut store, mut engine) = listing();
    store.tell(&mut engine, NOW, sighting_fact(1));
    let fail = |engine: &mut Engine| {
        engine.on(NOW, Fact::Listed(Listing::Cut(Cut::because("no route"))));
    };
    fail(&mut engine);
    let said = store.drive(&mut engine, NOW);
    assert!(said.contains(&"poll.source_error".to_string()), "{said:?}");
    store.tell(&mut engine, NOW, settled(1, Outcome::Delivered));
    let mut next = Engine::new(setup("1.0.0"), vec![store.feed.clone()], vec![slug(1)]);
    next.follow(&engine);
    engine.leave();
    next.on(NOW, Fact::CycleDue);
    store.drive(&mut next, NOW);
    fail(&mut next);
    let said = store.drive(&mut next, NOW);
    assert!(!said.contains(&"poll.source_error".to_string()), "{said:?}");
    // Only a cycle with something to tell leaves an entry.
    assert!(said.contains(&"poll.cycle".to_string()), "{said:?}");
    next.leave();
}

/// Given a feed of which more is told from now on (pull requests as well, say), when it is listed
/// next, then all of it is: what was left out so far lies behind the cursor (R6.4).
#[test]
fn r6_4_a_feed_of_which_more_is_told_is_listed_in_full() {
    let stored = |scope: &str| {
        let mut setup = setup("1.0.0");
        setup.feeds[0].rules.scope = scope.into();
        setup
    };
    let mut store = Store::default();
    let mut engine = Engine::new(stored("issues"), vec![None], vec![]);
    store.tell(&mut engine, NOW, Fact::CycleDue);
    store.tell(&mut engine, NOW, complete(1));
    engine.leave();
    for (scope, in_full) in [("issues", false), ("", true)] {
        let mut engine = Engine::new(stored(scope), vec![store.feed.clone()], vec![]);
        engine.on(NOW, Fact::CycleDue);
        let cursor = loop {
            if let Step::List { ask, .. } = engine.next(NOW).expect("it lists") {
                let cursor = ask.cursor;
                break cursor;
            }
        };
        assert_eq!(cursor.is_none(), in_full, "{scope}");
        engine.leave();
    }
}

/// Given a sink that said "not now" to a poller whose clock ran a day ahead, when the next one
/// starts by the right clock, or the clock is set back and another life of the same one follows, then
/// it is asked again when it would have been (C023).
#[test]
fn c023_not_now_by_a_clock_that_ran_ahead_delays_nothing() {
    let ahead = NOW.plus(Duration::from_secs(86_400));
    for noticed in [false, true] {
        let mut store = Store::default();
        let mut engine = Engine::new(setup("1.0.0"), vec![None], vec![]);
        store.tell(&mut engine, ahead, Fact::CycleDue);
        store.tell(&mut engine, ahead, sighting_fact(1));
        let reason = "busy".into();
        let not_now = Outcome::Deferred {
            reason,
            not_before: None,
        };
        store.tell(&mut engine, ahead, settled(1, not_now));
        if noticed {
            store.drive(&mut engine, NOW);
        }
        engine.leave();
        let mut engine = Engine::new(setup("1.0.0"), vec![store.feed.clone()], vec![slug(1)]);
        if !noticed {
            engine.lived_until(ahead);
        }
        store.drive(&mut engine, NOW);
        let due = engine.wakes_at().expect("it waits");
        assert!(due.since(NOW) <= Duration::from_secs(1), "{due}");
        engine.leave();
    }
}

/// Given a damaged record, when its item is listed, then it is set aside, reported,
/// replaced before anything else, and the item is not opened again (R3.6, C111).
#[test]
fn r3_6_a_damaged_record_is_set_aside_and_never_a_first_sight() {
    let (mut store, mut engine) = fresh();
    store.damaged = Some(slug(1));
    store.tell(&mut engine, NOW, Fact::CycleDue);
    engine.on(NOW, sighting_fact(1));
    assert_eq!(
        store.drive(&mut engine, NOW),
        [
            "save feed",
            "aside in~1",
            "record.set_aside",
            "save in~1",
            "save in~1"
        ]
    );
    engine.leave();
}

/// Given a damaged record whose file is dated in the future, as one written while the clock ran ahead, when something
/// is said of its item, then that is delivered (C023, C111).
#[test]
fn c111_a_damaged_record_from_the_future_swallows_nothing() {
    let now = NOW.minus(Duration::from_secs(86_400));
    let (mut store, mut engine) = fresh();
    store.damaged = Some(slug(1));
    store.tell(&mut engine, now, Fact::CycleDue);
    let mut said = sighting(1);
    if let Heard::Sighting(sighting) = &mut said {
        sighting
            .comments
            .push(comment(now.plus(Duration::from_secs(60))));
    }
    let done = store.tell(&mut engine, now, Fact::Heard(said));
    let delivered = "deliver dir:in#1/comment/1 try 1".to_string();
    assert!(done.contains(&delivered), "{done:?}");
    engine.leave();
}

/// Given a record that cannot be read, when its item is listed, then the item is
/// skipped, and the cursor stays so that it is listed again (C114).
#[test]
fn c114_an_unreadable_record_holds_the_cursor_back() {
    let (mut store, mut engine) = fresh();
    store.unreadable = Some(slug(1));
    store.tell(&mut engine, NOW, Fact::CycleDue);
    engine.on(NOW, sighting_fact(1));
    assert_eq!(
        store.drive(&mut engine, NOW),
        ["save feed", "poll.item_error"]
    );
    store.tell(&mut engine, NOW, sighting_fact(2));
    store.tell(&mut engine, NOW, complete(7));
    assert_eq!(store.feed.as_ref().and_then(|f| f.cursor.clone()), None);
    assert!(
        store.records.contains_key(&slug(2)),
        "its neighbours are processed"
    );
    engine.leave();
}

/// Given a listing that fails half-way, when it ends, then nothing is concluded and
/// the cursor stays (R3.4, R4.2, C014).
#[test]
fn r4_2_a_cut_listing_moves_nothing() {
    let (mut store, mut engine) = listing();
    store.tell(&mut engine, NOW, sighting_fact(1));
    let before = store.feed.clone();
    engine.on(NOW, Fact::Listed(Listing::Cut(Cut::because("502"))));
    assert_eq!(
        store.drive(&mut engine, NOW),
        [
            "poll.source_error",
            "cycle of 0 failed 1 interrupted false",
            "poll.cycle"
        ]
    );
    assert_eq!(store.feed, before);
    engine.leave();
}

/// Given a stop in the middle of a listing, when it comes, then the listing is left
/// behind, nothing begins, and the cycle says so (R2.5, R4.1, R4.3); what was accepted
/// and not begun is given back, durably, and that is told (R5.1, R5.2).
#[test]
fn r4_3_a_cycle_cut_short_by_a_stop_says_so() {
    let (mut store, mut engine) = listing();
    store.tell(&mut engine, NOW, sighting_fact(1));
    engine.on(NOW, Fact::StopAsked);
    assert!(!engine.listens());
    assert_eq!(
        store.drive(&mut engine, NOW),
        [
            "abandon",
            "cycle of 0 failed 0 interrupted true",
            "poll.cycle"
        ]
    );
    // What the worker had not begun is given back, durably, and reported.
    engine.on(NOW, settled(1, Outcome::Released));
    assert_eq!(
        store.drive(&mut engine, NOW),
        ["save in~1", "dispatch.abandoned", "poll.attempts_released"]
    );
    assert!(engine.is_quiet());
    assert!(
        store.records[&slug(1)].sinks["sink"].tries.is_empty(),
        "R5.2: the budget is whole"
    );
    engine.leave();
}

/// R6.7: what was given up comes back when asked for, and when a newer version starts.
#[test]
fn r6_7_given_up_deliveries_come_back_when_asked_for_and_with_a_newer_version() {
    let (mut store, mut engine) = listing();
    store.tell(&mut engine, NOW, sighting_fact(1));
    engine.on(
        NOW,
        settled(
            1,
            Outcome::Failed {
                reason: "exit status 1".into(),
            },
        ),
    );
    assert_eq!(
        store.drive(&mut engine, NOW),
        ["save in~1", "dispatch.failed", "poll.gave_up"]
    );
    engine.on(
        NOW,
        Fact::Retry {
            item: Some(ItemRef {
                number: 2,
                ..template()
            }),
            delivery: None,
        },
    );
    assert_eq!(store.drive(&mut engine, NOW), ["poller.warning"]);
    engine.on(
        NOW,
        Fact::Retry {
            item: None,
            delivery: Some("dir:in#1/opened".into()),
        },
    );
    assert_eq!(
        store.drive(&mut engine, NOW),
        [
            "save in~1",
            "poll.rearmed",
            "dispatch.queued",
            "deliver dir:in#1/opened try 2"
        ]
    );
    engine.on(
        NOW,
        settled(
            1,
            Outcome::Failed {
                reason: "exit status 1".into(),
            },
        ),
    );
    store.drive(&mut engine, NOW);
    engine.leave();
    let feed = store.feed.clone();
    let mut same = Engine::new(setup("1.0.0"), vec![feed.clone()], vec![slug(1)]);
    assert!(store.drive(&mut same, NOW).is_empty());
    same.leave();
    let mut newer = Engine::new(setup("1.0.1"), vec![feed], vec![slug(1)]);
    assert_eq!(
        store.drive(&mut newer, NOW),
        [
            "save in~1",
            "poll.rearmed",
            "dispatch.queued",
            "deliver dir:in#1/opened try 3"
        ]
    );
    newer.leave();
}
