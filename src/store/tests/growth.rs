//! Threads that grow without end.

use super::*;

/// Given a thread of 50,000 comments, all pending, then a save costs a bounded
/// number of bytes, sealed blocks are never written again, nothing is
/// forgotten, and blocks go when all in them is resolved.
#[test]
fn a_long_thread_costs_a_bounded_number_of_bytes_per_save() {
    const MOST: usize = 200 * 1024;
    let dir = Dir::new();
    let mut ledger = open(&dir);
    let (slug, mut record) = new_record(7);
    for id in 0..50_000 {
        add_pending(&mut record, id, &payload(id, 600));
    }
    ledger.save(&slug, &mut record).expect("saved");
    let head = std::fs::metadata(dir.layout().item(&slug))
        .expect("there")
        .len();
    assert!(head < MOST as u64, "the head has {head} bytes");
    let blocks = files(&dir.layout().item_blocks(&slug));
    assert!(blocks.len() > 700);
    for (path, (_, bytes)) in &blocks {
        assert!(bytes.len() < 512 * 1024, "{} is large", path.display());
    }

    let mut total = 0;
    for round in 0..12 {
        begin_first(&mut record);
        trace::start(Break::Never);
        ledger.save(&slug, &mut record).expect("saved");
        total += trace::bytes(&trace::stop());
        resolve_first(&mut record);
        add_pending(&mut record, 50_000 + round, &payload(round, 600));
        trace::start(Break::Never);
        ledger.save(&slug, &mut record).expect("saved");
        let bytes = trace::bytes(&trace::stop());
        assert!(bytes < MOST, "one save wrote {bytes} bytes");
        total += bytes;
    }
    assert!(total < 24 * MOST / 2);
    let now = files(&dir.layout().item_blocks(&slug));
    for (path, before) in &blocks {
        assert_eq!(
            now.get(path),
            Some(before),
            "{} was written again",
            path.display()
        );
    }
    assert_eq!(reload(&dir, &slug), record);

    while record.events.len() > 10 {
        resolve_first(&mut record);
    }
    ledger.save(&slug, &mut record).expect("saved");
    assert_eq!(reload(&dir, &slug), record);
    while !record.events.is_empty() {
        resolve_first(&mut record);
    }
    ledger.save(&slug, &mut record).expect("saved");
    let left = files(&dir.layout().item_blocks(&slug));
    assert!(left.keys().all(|p| p.to_string_lossy().contains("/known-")));
    let found = reload(&dir, &slug);
    assert_eq!(found.known.entries().len(), 50_012);
    assert_eq!(
        found.known.get(&Key("comment/0".into())),
        Some(Disposition::Queued)
    );
    assert_eq!(found, record);
}

/// Given a record whose thread grows one comment at a time, then how many
/// blocks there are follows from its length, and each is written once.
#[test]
fn known_events_are_sealed_as_the_thread_grows() {
    let dir = Dir::new();
    let mut ledger = open(&dir);
    let (slug, mut record) = new_record(7);
    let mut seen = std::collections::BTreeMap::new();
    for id in 0..1400u64 {
        add_baseline(&mut record, id);
        if id % 3 == 0 {
            ledger.save(&slug, &mut record).expect("saved");
            let len = record.known.entries().len() as u64;
            let want = if len < 512 { 0 } else { len / 256 - 1 };
            assert_eq!(record.stored.known_blocks, want);
            if want > 0 {
                let now = files(&dir.layout().item_blocks(&slug));
                assert_eq!(now.len() as u64, want);
                for (path, before) in &seen {
                    assert_eq!(now.get(path), Some(before));
                }
                seen = now;
            }
        }
    }
    ledger.save(&slug, &mut record).expect("saved");
    assert_eq!(reload(&dir, &slug), record);
}
