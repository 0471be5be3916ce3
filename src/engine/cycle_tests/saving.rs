//! What is saved together, what is tried again, and what is let go.

use super::*;

/// An engine in its first listing, whose sink takes four at once, with four deliveries in flight.
fn four_in_flight() -> (Store, Engine) {
    let mut setup = setup("1.0.0");
    setup.slots = [("sink".to_string(), 4)].into();
    let (mut store, mut engine) = listing_by(setup);
    for number in 1..=4 {
        store.tell(&mut engine, NOW, sighting_fact(number));
    }
    assert_eq!(engine.in_flight(), 4);
    (store, engine)
}

fn refused(number: u64) -> Fact {
    Fact::SaveFailed {
        what: Unsaved::Record(slug(number)),
        reason: "no space left on device".into(),
    }
}

/// Given several records to be saved, when some are taken together, then it is the one asked for and as many others as
/// wanted that have work in them, without any that failed before.
#[test]
fn r3_2_what_is_saved_together_has_work_and_has_not_failed() {
    let (_, mut engine) = four_in_flight();
    for number in 1..=3 {
        engine.on(NOW, settled(number, failed()));
    }
    // Nothing is left to do with this one, so it can wait for the end of the listing.
    engine.on(NOW, settled(4, Outcome::Delivered));
    let mut chosen = |number: u64, most: usize| {
        let chosen = engine.to_save(&slug(number), most);
        chosen.into_iter().map(|(slug, _)| slug).collect::<Vec<_>>()
    };
    assert_eq!(chosen(2, 1), [slug(2)]);
    assert_eq!(chosen(2, 2), [slug(1), slug(2)]);
    assert_eq!(chosen(2, 9), [slug(1), slug(2), slug(3)]);
    assert_eq!(chosen(4, 9), [slug(1), slug(2), slug(3), slug(4)]);
    engine.on(NOW, refused(1));
    let chosen = engine.to_save(&slug(2), 9).into_iter();
    assert_eq!(
        chosen.map(|(slug, _)| slug).collect::<Vec<_>>(),
        [slug(2), slug(3)]
    );
    engine.leave();
}

/// Given several records saved together, of which three failed and one did not, then there is room again, and
/// the three are tried at once (R3.5).
#[test]
fn r3_5_once_there_is_room_what_failed_is_tried_at_once() {
    let (mut store, mut engine) = four_in_flight();
    for number in 1..=4 {
        engine.on(NOW, settled(number, failed()));
    }
    for number in 1..=3 {
        engine.on(NOW, refused(number));
    }
    let done = store.tell(&mut engine, NOW, Fact::Saved { slug: slug(4) });
    for number in 1..=3 {
        assert!(done.contains(&format!("save in~{number}")), "{done:?}");
    }
    assert!(engine.store_trouble().is_none());
    engine.leave();
}

/// Given a cursor that cannot be saved, then that is the trouble, and without one nothing is stuck (R3.5).
#[test]
fn r3_5_a_cursor_that_cannot_be_saved_is_trouble_too() {
    let (mut store, mut engine) = listing();
    assert!(!fresh().1.is_stuck() && engine.store_trouble().is_none());
    store.failing = true;
    store.tell(&mut engine, NOW, complete(7));
    assert_eq!(
        engine.store_trouble().expect("trouble").reason,
        "no space left on device"
    );
    engine.leave();
}

/// Given a listing under way, when all is done with an item, then it takes no memory any more, and is made durable once, with
/// the others, when the listing is over; what waits for its turn is kept (R3.7).
#[test]
fn what_is_done_with_is_let_go_and_flushed_once() {
    let (mut store, mut engine) = listing();
    for number in 1..=2 {
        store.tell(&mut engine, NOW, sighting_fact(number));
    }
    store.tell(&mut engine, NOW, settled(1, Outcome::Delivered));
    assert!(engine.record(&slug(1)).is_none(), "nothing is left to do");
    assert!(engine.record(&slug(2)).is_some());
    store.tell(&mut engine, NOW, settled(2, Outcome::Delivered));
    assert!(engine.record(&slug(2)).is_none());
    assert_eq!(store.flushes, 0, "its end does it");
    store.tell(&mut engine, NOW, complete(7));
    assert_eq!(store.flushes, 1);
    assert!(engine.is_quiet());
    engine.leave();
}

/// Given records that were to be made durable with the cursor, when that fails, then the cursor stays, and the next
/// listing makes up for it (R3.4).
#[test]
fn r3_4_a_flush_that_fails_holds_the_cursor_back() {
    let (mut store, mut engine) = listing();
    store.tell(&mut engine, NOW, sighting_fact(1));
    store.tell(&mut engine, NOW, settled(1, Outcome::Delivered));
    store.flush_fails = true;
    store.tell(&mut engine, NOW, complete(7));
    let cursor = |store: &Store| store.feed.as_ref().and_then(|f| f.cursor.clone());
    assert!(!engine.is_cycling() && cursor(&store).is_none());
    store.flush_fails = false;
    store.tell(&mut engine, NOW, Fact::CycleDue);
    store.tell(&mut engine, NOW, sighting_fact(1));
    store.tell(&mut engine, NOW, complete(7));
    assert_eq!(cursor(&store), Some(json!(7)));
    engine.leave();
}
