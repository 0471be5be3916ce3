//! When a listing is heard, when a cycle begins, and what is told of one.

use super::*;

/// Given a listing, when something it said is not dealt with yet, then it is not listened to.
#[test]
fn a_listing_is_heard_one_word_at_a_time() {
    let (mut store, mut engine) = listing();
    assert!(!fresh().1.listens() && engine.listens());
    engine.on(NOW, Fact::Heard(Heard::Clock(NOW)));
    assert!(!engine.listens(), "the watch is to be saved");
    store.drive(&mut engine, NOW);
    assert!(engine.listens());
    engine.on(NOW, sighting_fact(1));
    assert!(!engine.listens(), "an item is to be judged");
    store.drive(&mut engine, NOW);
    assert!(engine.listens());
    engine.on(NOW, complete(7));
    assert!(!engine.listens(), "it is over");
    store.drive(&mut engine, NOW);
    engine.leave();
}

/// Given a cycle under way, or a stop, when a cycle is due, then none begins (R4.1, R5.1).
#[test]
fn no_cycle_begins_beside_another_or_in_a_stop() {
    let (mut store, mut engine) = listing();
    assert!(store.tell(&mut engine, NOW, Fact::CycleDue).is_empty());
    store.tell(&mut engine, NOW, complete(7));
    engine.on(NOW, Fact::StopAsked);
    assert!(store.tell(&mut engine, NOW, Fact::CycleDue).is_empty());
    assert!(engine.is_quiet());
    engine.leave();
}

/// Given `--once` and a delivery that goes on after the last listing, then the cycle has come to all feeds.
#[test]
fn r6_4_a_cycle_that_waits_for_deliveries_kept_no_feed_from_its_turn() {
    let mut once = setup("1.0.0");
    once.once = true;
    once.feeds.push(FeedSetup {
        slug: Slug::feed("other", None, None),
        ..once.feeds[0].clone()
    });
    let (mut store, mut engine) = (
        Store::default(),
        Engine::new(once, vec![None, None], vec![]),
    );
    let at = |engine: &Engine| engine.goes_on_with().map(Slug::as_str).map(str::to_string);
    engine.go_on_with("other");
    store.tell(&mut engine, NOW, Fact::CycleDue);
    assert_eq!(at(&engine).as_deref(), Some("other"), "it is under way");
    store.tell(&mut engine, NOW, complete(7));
    assert_eq!(at(&engine), None, "the next one is the first");
    store.tell(&mut engine, NOW, sighting_fact(1));
    store.tell(&mut engine, NOW, complete(7));
    assert!(engine.is_cycling() && engine.in_flight() == 1);
    assert_eq!(engine.kept_from(), None);
    engine.leave();
}

/// Given deliveries in one cycle and others in the next, then each cycle tells of its own.
#[test]
fn each_cycle_counts_its_own_deliveries() {
    let (mut store, mut engine) = listing();
    let mut all = sighting(1);
    if let Heard::Sighting(sighting) = &mut all {
        sighting.comments.push(comment(NOW));
        sighting.item.state = State::Closed;
        sighting.item.closed_at = Some(NOW);
    }
    store.tell(&mut engine, NOW, Fact::Heard(all));
    for _ in 0..3 {
        store.tell(&mut engine, NOW, settled(1, Outcome::Delivered));
    }
    store.tell(&mut engine, NOW, sighting_fact(2));
    store.tell(&mut engine, NOW, settled(2, failed()));
    assert_eq!(store.records[&slug(1)].delivered(), 3);
    store.tell(&mut engine, NOW, complete(7));
    store.tell(&mut engine, NOW, Fact::CycleDue);
    store.tell(&mut engine, NOW, sighting_fact(3));
    store.tell(&mut engine, NOW, settled(3, Outcome::Delivered));
    store.tell(&mut engine, NOW, complete(8));
    let told = store.logged.iter().filter(|e| e.kind == "poll.cycle");
    let told: Vec<[u64; 4]> = told
        .map(|e| {
            ["opened", "comments", "closed", "failed"]
                .map(|word| e.fields[word].as_u64().expect("a number"))
        })
        .collect();
    assert_eq!(told, [[1, 1, 1, 1], [1, 0, 0, 0]]);
    let ended: Vec<_> = store
        .ended
        .iter()
        .map(|s| (s.delivered, s.failed))
        .collect();
    assert_eq!(ended, [(3, 1), (1, 0)]);
    engine.leave();
}

/// Given a listing that looks for what was missed, when some of it is known already, then the log names what was not.
#[test]
fn r4_2_what_was_missed_is_named() {
    let (mut store, mut engine) = listing();
    store.tell(&mut engine, NOW, sighting_fact(1));
    store.tell(&mut engine, NOW, settled(1, Outcome::Delivered));
    store.tell(&mut engine, NOW, complete(7));
    store.tell(&mut engine, NOW, Fact::CycleDue);
    for heard in [Heard::Again, sighting(1), sighting(2)] {
        store.tell(&mut engine, NOW, Fact::Heard(heard));
    }
    store.tell(&mut engine, NOW, complete(8));
    let missed = store.logged.iter().find(|e| e.kind == "poll.missed");
    let missed = &missed.expect("it is told").fields;
    assert_eq!(missed["events"], 1);
    assert_eq!(missed["ref"], "dir:in#2");
    assert_eq!(engine.totals().missed, 1);
    store.tell(&mut engine, NOW, settled(2, Outcome::Delivered));
    engine.leave();
}

/// R4.2: the record of an item that went while something of it waits is not read again to judge its end.
#[test]
fn what_is_held_is_not_read_again() {
    let (mut store, mut engine) = listing();
    let gone = |number: u64| {
        Fact::Listed(Listing::Complete(Complete {
            cursor: json!(number),
            coverage: Coverage::Changes { missing: vec![1] },
        }))
    };
    store.tell(&mut engine, NOW, sighting_fact(1));
    let loads = store.loads;
    for cursor in 7..9 {
        store.tell(&mut engine, NOW, gone(cursor));
        store.tell(&mut engine, NOW, Fact::CycleDue);
    }
    store.tell(&mut engine, NOW, gone(9));
    assert_eq!(store.records[&slug(1)].standing, Standing::Gone);
    assert_eq!(store.loads, loads);
    engine.leave();
}

#[test]
fn all_kinds_of_deliveries_count() {
    let totals = Totals {
        opened: 2,
        comments: 3,
        closed: 5,
        ..Totals::default()
    };
    assert_eq!(totals.delivered(), 10);
}
