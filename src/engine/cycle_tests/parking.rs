//! How many records are held in memory, and what becomes of those that are not.

use super::*;

/// A listing under way, of an engine that holds two records with something to deliver.
fn holding_two() -> (Store, Engine) {
    let mut setup = setup("1.0.0");
    setup.most_held = 2;
    listing_by(setup)
}

fn held(engine: &mut Engine) -> Vec<u64> {
    (1..=9)
        .filter(|n| engine.record(&slug(*n)).is_some())
        .collect()
}

/// The number of the item of which something is in flight, if there is one.
fn flying(engine: &Engine) -> Option<u64> {
    let (id, _) = engine.flying_now().next()?;
    let number = id.strip_prefix("dir:in#")?.split('/').next()?;
    number.parse().ok()
}

/// An item with an opening and a comment to deliver.
fn two_events(number: u64) -> Fact {
    let mut heard = sighting(number);
    if let Heard::Sighting(sighting) = &mut heard {
        sighting.comments.push(comment(NOW));
    }
    Fact::Heard(heard)
}

/// Given more items with something to deliver than are held, then the others wait on disk, are counted, are read when it is
/// their turn, and go there again when they have to wait once more (C141).
#[test]
fn c141_more_than_are_held_wait_on_disk() {
    let (mut store, mut engine) = holding_two();
    for number in 1..=5 {
        store.tell(&mut engine, NOW, two_events(number));
        let first: Vec<u64> = (1..=number.min(2)).collect();
        assert_eq!(held(&mut engine), first);
        assert_eq!(engine.backlog(), (2 * number as usize, 0));
    }
    store.tell(&mut engine, NOW, complete(7));
    // Each is put off once, and goes back to where it was.
    let later = NOW.plus(Duration::from_secs(60));
    let put_off = || Outcome::Deferred {
        reason: "not now".into(),
        not_before: Some(later),
    };
    while let Some(number) = flying(&engine) {
        store.tell(&mut engine, NOW, settled(number, put_off()));
        assert!(held(&mut engine).len() <= 3, "{:?}", held(&mut engine));
        assert_eq!(engine.backlog(), (10, 0));
    }
    store.drive(&mut engine, later);
    let mut delivered = 0;
    while let Some(number) = flying(&engine) {
        store.tell(&mut engine, later, settled(number, Outcome::Delivered));
        delivered += 1;
        assert!(held(&mut engine).len() <= 3, "{:?}", held(&mut engine));
        assert_eq!(engine.backlog(), (10 - delivered, 0));
    }
    assert_eq!((delivered, engine.is_quiet()), (10, true));
    engine.leave();
}

/// Given deliveries that were given up, then their records are held and counted, however many.
#[test]
fn what_was_given_up_is_held() {
    let (mut store, mut engine) = holding_two();
    for number in 1..=4 {
        store.tell(&mut engine, NOW, two_events(number));
    }
    let mut tried = 0;
    while let Some(number) = flying(&engine) {
        store.tell(&mut engine, NOW, settled(number, failed()));
        tried += 1;
        assert_eq!(engine.backlog(), (8 - tried, tried));
    }
    assert_eq!((tried, held(&mut engine)), (8, vec![1, 2, 3, 4]));
    engine.leave();
}

/// Given a record on disk that cannot be read when its turn comes, then it has none, and the others have theirs (C114).
#[test]
fn c114_what_cannot_be_read_gives_up_its_place() {
    let (mut store, mut engine) = holding_two();
    for number in 1..=4 {
        store.tell(&mut engine, NOW, sighting_fact(number));
    }
    store.tell(&mut engine, NOW, complete(7));
    store.unreadable = Some(slug(3));
    for number in [1, 2, 4] {
        assert_eq!(engine.in_flight(), 1);
        store.tell(&mut engine, NOW, settled(number, Outcome::Delivered));
    }
    assert!(engine.is_quiet() && !engine.has_due(NOW));
    assert_eq!(engine.backlog(), (0, 0));
    // Once it can be read it is delivered.
    store.unreadable = None;
    store.tell(&mut engine, NOW, Fact::CycleDue);
    assert_eq!(engine.in_flight(), 1);
    store.tell(&mut engine, NOW, settled(3, Outcome::Delivered));
    store.tell(&mut engine, NOW, complete(8));
    assert!(engine.is_quiet());
    engine.leave();
}
