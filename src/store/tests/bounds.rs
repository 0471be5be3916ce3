//! What is in the head and what in blocks, at the bounds themselves.

use super::*;

/// A record of events with so many bytes of payload each, saved.
fn saved(dir: &Dir, sizes: &[usize]) -> (Slug, Record) {
    let (slug, mut record) = new_record(7);
    for (id, &size) in sizes.iter().enumerate() {
        add_pending(&mut record, id as u64, &"x".repeat(size));
    }
    open(dir).save(&slug, &mut record).expect("saved");
    assert_eq!(reload(dir, &slug), record);
    (slug, record)
}

/// The blocks of a record as it was saved: first `seq` to last.
fn spans(record: &Record) -> Vec<(u64, u64)> {
    let blocks = record.stored.event_blocks.iter();
    blocks.map(|(first, last)| (*first, *last)).collect()
}

fn drop_event(record: &mut Record, seq: u64) {
    record.events.remove(&seq);
    for queue in record.sinks.values_mut() {
        queue.pending.remove(&seq);
    }
}

fn bring_back(record: &mut Record, seq: u64, event: Event) {
    record.events.insert(seq, event);
    for queue in record.sinks.values_mut() {
        queue.pending.insert(seq);
    }
}

/// How many events of those with these sizes are in each block.
fn blocks(sizes: &[usize]) -> Vec<u64> {
    let (_, record) = saved(&Dir::new(), sizes);
    let blocks = record.stored.event_blocks.iter();
    blocks.map(|(first, last)| last - first + 1).collect()
}

/// Given events, when they are saved, then the head keeps as many and as large ones as the format says, the newest of what is
/// more stay in it as far as they fit, and no block holds more than it may.
#[test]
fn a_head_and_a_block_hold_as_much_as_they_may() {
    const KIB: usize = 1024;
    assert_eq!(blocks(&[2; 64]), [0; 0], "as many as a head holds");
    assert_eq!(blocks(&[2; 65]), [49], "one more: all but 16 are sealed");
    assert_eq!(
        blocks(&[64 * KIB; 2]),
        [0; 0],
        "as many bytes as a head holds"
    );
    assert_eq!(blocks(&[64 * KIB, 64 * KIB + 1]), [2], "one more");
    assert_eq!(
        blocks(&[64 * KIB, 64 * KIB, 32 * KIB]),
        [2],
        "the newest stays as far as it fits"
    );
    assert_eq!(
        blocks(&[64 * KIB, 64 * KIB, 32 * KIB + 1]),
        [3],
        "it does not fit"
    );
    assert_eq!(
        blocks(&[50 * KIB, 50 * KIB, 20 * KIB, 12 * KIB]),
        [2],
        "both stay"
    );
    assert_eq!(blocks(&[2; 144]), [64, 64], "as many as a block holds");
    assert_eq!(
        blocks(&[128 * KIB; 4]),
        [2, 2],
        "as many bytes as a block holds"
    );
    assert_eq!(
        blocks(&[128 * KIB, 128 * KIB + 1, 90 * KIB]),
        [1, 2],
        "one more"
    );
    assert_eq!(
        blocks(&[300 * KIB, 300 * KIB, 2]),
        [1, 1],
        "one alone may be larger"
    );
}

/// Given blocks of events, when an event comes to stand before or between them, then it is kept.
#[test]
fn an_event_before_or_between_blocks_is_kept() {
    let dir = Dir::new();
    let (slug, mut record) = saved(&dir, &[2; 150]);
    assert_eq!(spans(&record), [(0, 63), (64, 127), (128, 133)]);
    // The first and the second are dropped one after another, and an event of each comes back.
    let mut ledger = open(&dir);
    record = ledger.load(&slug).expect("it loads").expect("there");
    let back: Vec<(u64, Event)> = [3, 70, 131]
        .map(|seq| (seq, record.events[&seq].clone()))
        .into();
    for seq in (0..64).chain(100..134) {
        drop_event(&mut record, seq);
    }
    ledger.save(&slug, &mut record).expect("saved");
    for (seq, event) in back {
        bring_back(&mut record, seq, event);
        ledger.save(&slug, &mut record).expect("saved");
        assert_eq!(bare(&reload(&dir, &slug)), bare(&record), "with {seq}");
    }
}

/// Given events on both sides of a block, when they are sealed, then no new block reaches over the old one.
#[test]
fn no_block_reaches_over_another() {
    let dir = Dir::new();
    let (slug, _) = saved(&dir, &[2; 150]);
    let mut ledger = open(&dir);
    let mut record = ledger.load(&slug).expect("it loads").expect("there");
    let back: Vec<(u64, Event)> = [61, 62, 63]
        .map(|seq| (seq, record.events[&seq].clone()))
        .into();
    for seq in 0..64 {
        drop_event(&mut record, seq);
    }
    ledger.save(&slug, &mut record).expect("saved");
    for (seq, event) in back {
        bring_back(&mut record, seq, event);
    }
    for id in 150..210 {
        add_pending(&mut record, id, "{}");
    }
    ledger.save(&slug, &mut record).expect("saved");
    assert_eq!(
        spans(&record),
        [(61, 63), (64, 127), (128, 133), (134, 193)]
    );
    assert_eq!(bare(&reload(&dir, &slug)), bare(&record));
}

/// Given events in blocks that are all resolved, when that is saved, then their files are gone.
#[test]
fn a_block_goes_with_its_events() {
    let dir = Dir::new();
    let (slug, _) = saved(&dir, &[2; 150]);
    let mut ledger = open(&dir);
    let mut record = ledger.load(&slug).expect("it loads").expect("there");
    let blocks = || {
        let files = files(&dir.layout().items()).into_keys();
        let blocks = files.filter(|path| path.to_string_lossy().contains("events-"));
        blocks.count()
    };
    assert_eq!(blocks(), 3);
    for _ in 0..64 {
        resolve_first(&mut record);
    }
    ledger.save(&slug, &mut record).expect("saved");
    assert_eq!(blocks(), 2);
    while !record.events.is_empty() {
        resolve_first(&mut record);
    }
    ledger.save(&slug, &mut record).expect("saved");
    assert_eq!(blocks(), 0);
}

/// Given several records that need blocks for the first time, when they are saved together, then their directories are durable before
/// any head that leads to them is visible.
#[test]
fn directories_of_several_records_are_durable_before_their_heads() {
    let dir = Dir::new();
    let mut records = [7, 8].map(|number| {
        let (slug, mut record) = new_record(number);
        for id in 0..100 {
            add_pending(&mut record, id, "{}");
        }
        (slug, record)
    });
    let mut ledger = open(&dir);
    trace::start(Break::Never);
    ledger.save_all(&mut all(&mut records)).expect("saved");
    let taken = trace::stop();
    let at = |step, end: &str| trace::find(&taken, step, end).expect(end);
    let made = at(Step::MakeDir, "~7.d").max(at(Step::MakeDir, "~8.d"));
    let durable = taken
        .iter()
        .skip(made)
        .position(|t| t.step == Step::SyncDir && t.path.ends_with("items"));
    let head = at(Step::Rename, "~7.json").min(at(Step::Rename, "~8.json"));
    assert!(made + durable.expect("the directory is flushed") < head);
}

/// Given a record that is damaged again and again, when each is set aside, then all are kept, numbered.
#[test]
fn what_is_set_aside_is_numbered() {
    let dir = Dir::new();
    let (slug, _) = saved(&dir, &[2]);
    let mut aside = Vec::new();
    for n in 0..4 {
        std::fs::write(dir.layout().item(&slug), format!("damaged {n}")).expect("room");
        let mut ledger = open(&dir);
        assert!(matches!(ledger.load(&slug), Err(LoadError::Damaged { .. })));
        let path = ledger.set_aside(&slug).expect("set aside");
        assert_eq!(
            std::fs::read_to_string(&path).expect("kept"),
            format!("damaged {n}")
        );
        aside.push(
            path.file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned(),
        );
    }
    let number = |name: &String| name.split('.').find_map(|part| part.parse::<u32>().ok());
    let numbers: Vec<Option<u32>> = aside.iter().map(number).collect();
    assert_eq!(numbers, [Some(1), Some(2), Some(3), Some(4)], "{aside:?}");
}
