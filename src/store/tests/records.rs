//! Records come back as they were saved, and at what cost.

use super::*;

fn syncs_of(run: impl FnOnce()) -> usize {
    trace::start(Break::Never);
    run();
    trace::syncs(&trace::stop())
}

#[test]
fn a_record_comes_back_as_it_was_saved() {
    let dir = Dir::new();
    let mut ledger = open(&dir);
    let (slug, mut record) = new_record(7);
    assert_eq!(ledger.load(&slug), Ok(None));
    add_pending(&mut record, 1, &payload(1, 10));
    begin_first(&mut record);
    ledger.save(&slug, &mut record).expect("saved");
    assert!(record.stored.marked);
    assert_eq!(reload(&dir, &slug), record);
    assert_eq!(
        Reader::new(dir.layout())
            .load(&slug)
            .map(|r| r.map(|r| bare(&r))),
        Ok(Some(bare(&record)))
    );
}

/// The table in the module's documentation.
#[test]
fn syncs_are_as_many_as_the_documentation_says() {
    let dir = Dir::new();
    assert_eq!(syncs_of(|| drop(open(&dir))), 3 + 1 + 3);
    assert_eq!(syncs_of(|| drop(open(&dir))), 3);
    let mut ledger = open(&dir);
    let (slug, mut record) = new_record(7);
    assert_eq!(
        syncs_of(|| ledger.save(&slug, &mut record).expect("saved")),
        2
    );
    add_pending(&mut record, 1, "{}");
    assert_eq!(
        syncs_of(|| ledger.save(&slug, &mut record).expect("saved")),
        3
    );
    begin_first(&mut record);
    assert_eq!(
        syncs_of(|| ledger.save(&slug, &mut record).expect("saved")),
        2
    );
    resolve_first(&mut record);
    assert_eq!(
        syncs_of(|| ledger.save(&slug, &mut record).expect("saved")),
        2
    );
    assert_eq!(syncs_of(|| assert!(ledger.load(&slug).is_ok())), 0);
    for id in 0..512 {
        add_baseline(&mut record, id);
    }
    assert_eq!(
        syncs_of(|| ledger.save(&slug, &mut record).expect("saved")),
        2 + 3
    );
    for id in 512..768 {
        add_baseline(&mut record, id);
    }
    assert_eq!(
        syncs_of(|| ledger.save(&slug, &mut record).expect("saved")),
        2 + 2
    );
    let mut several: Vec<_> = (100..108).map(new_record).collect();
    for (_, record) in &mut several {
        add_pending(record, 1, "{}");
    }
    assert_eq!(
        syncs_of(|| ledger.save_all(&mut all(&mut several)).expect("saved")),
        1 + 8 + 1
    );
    for (_, record) in &mut several {
        resolve_first(record);
    }
    assert_eq!(
        syncs_of(|| ledger.save_all(&mut all(&mut several)).expect("saved")),
        8 + 1
    );
    for n in 0..20 {
        let (slug, record) = new_record(n);
        assert_eq!(
            syncs_of(|| ledger.save_later(&slug, &record).expect("kept")),
            0
        );
    }
    assert_eq!(syncs_of(|| ledger.flush().expect("flushed")), 2);
    assert_eq!(syncs_of(|| ledger.flush().expect("nothing to flush")), 0);
    std::fs::write(dir.layout().item(&slug), "").expect("damaged");
    assert_eq!(
        syncs_of(|| drop(ledger.set_aside(&slug).expect("set aside"))),
        3
    );
}

/// Given a ledger of many records, when it is opened, then `items/` is not
/// listed and no record is read; the index says which ones to read (R3, invariant 8).
#[test]
fn a_start_reads_what_is_pending_not_what_is_known() {
    let dir = Dir::new();
    let mut ledger = open(&dir);
    for n in 0..300 {
        let (slug, mut record) = new_record(n);
        if n % 100 == 0 {
            add_pending(&mut record, n, "{}");
        }
        ledger.save_later(&slug, &record).expect("kept");
    }
    ledger.flush().expect("flushed");
    trace::start(Break::Never);
    let mut ledger = open(&dir);
    let pending = ledger.pending().expect("the index");
    for slug in &pending {
        assert!(ledger.load(slug).expect("it loads").is_some());
    }
    let taken = trace::stop();
    assert_eq!(pending.len(), 3);
    let items = dir.layout().items();
    let read = taken
        .iter()
        .filter(|t| t.step == Step::Read && t.path.starts_with(&items));
    assert_eq!(read.count(), 3);
    assert!(
        !taken
            .iter()
            .any(|t| t.step == Step::List && t.path == items)
    );
    assert_eq!(Reader::new(dir.layout()).slugs().expect("all").len(), 300);
}

/// Payloads that a JSON library would like to improve.
const ODD_PAYLOADS: &[&str] = &[
    r#"{"a":1}"#,
    "{\n  \"a\" : 1.0e+400 ,\r\n\t\"a\" : \"\\u00e9\\/é\\ud83d\"\n}",
    r#"{"body":"</script> & \u0000 \"quoted\" 🦀"}"#,
    "123456789012345678901234567890.10",
    "\"text\"",
    "null",
    "{\"trailing\":\"newline\"}\n",
    "  {\"leading\":1}",
    "no JSON at all \" \\ \u{0} \u{7f} 🦀",
    "",
    "{\"cut\":",
    "{} {}",
];

/// Given any payload, then its bytes are the same after any number of loads and saves.
#[test]
fn payloads_survive_byte_for_byte() {
    let dir = Dir::new();
    let (slug, mut record) = new_record(7);
    for (id, text) in ODD_PAYLOADS.iter().enumerate() {
        add_pending(&mut record, id as u64, text);
    }
    for id in 100..180 {
        add_pending(
            &mut record,
            id,
            ODD_PAYLOADS[id as usize % ODD_PAYLOADS.len()],
        );
    }
    let before = bare(&record);
    open(&dir).save(&slug, &mut record).expect("saved");
    for _ in 0..4 {
        let mut ledger = open(&dir);
        let mut again = ledger.load(&slug).expect("it loads").expect("it is there");
        assert_eq!(bare(&again), before);
        assert!(!again.stored.event_blocks.is_empty(), "some are in blocks");
        ledger.save(&slug, &mut again).expect("saved");
    }
}

/// Given a head with keys of a newer minor release, then they are still there after a save.
#[test]
fn unknown_keys_are_kept() {
    let dir = Dir::new();
    let (slug, mut record) = new_record(7);
    open(&dir).save(&slug, &mut record).expect("saved");
    let path = dir.layout().item(&slug);
    let mut value: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).expect("there")).expect("JSON");
    value["later"] = json!({"a": [1, "é", null]});
    value["sinks"]["hook"]["also"] = json!("kept");
    std::fs::write(&path, value.to_string()).expect("edited");
    let mut record = reload(&dir, &slug);
    add_pending(&mut record, 1, "{}");
    open(&dir).save(&slug, &mut record).expect("saved");
    let after: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).expect("there")).expect("JSON");
    assert_eq!(after["later"], value["later"]);
    assert_eq!(after["sinks"]["hook"]["also"], "kept");
}

/// Given records saved for later, then each is durable after a flush, a load
/// sees the newest state, and a flush that failed loses nothing.
#[test]
fn records_saved_for_later_are_written_together() {
    let dir = Dir::new();
    let mut ledger = open(&dir);
    let path = |slug: &Slug| dir.layout().item(slug);
    for n in 0..64 {
        let (slug, record) = new_record(n);
        assert!(!path(&slug).exists());
        ledger.save_later(&slug, &record).expect("kept");
    }
    assert!(path(&new_record(0).0).exists(), "a full buffer is flushed");

    let (slug, mut record) = new_record(3);
    record.openings = 2;
    for id in 0..600 {
        add_baseline(&mut record, id);
    }
    ledger.save_later(&slug, &record).expect("kept");
    let found = ledger.load(&slug).expect("it loads").expect("it is there");
    assert_eq!(bare(&found), bare(&record));
    assert_eq!(found.stored.known_blocks, 1);

    record.openings = 3;
    ledger.save_later(&slug, &record).expect("kept");
    record.openings = 4;
    ledger.save(&slug, &mut record).expect("saved");
    ledger.flush().expect("flushed");
    assert_eq!(
        reload(&dir, &slug).openings,
        4,
        "an older state is not written over it"
    );

    // Five are created and written, flushed, renamed, and their directory flushed.
    for fail in 0..5 + 5 + 1 + 5 + 1 {
        for n in 0..5 {
            let (slug, mut record) = new_record(n);
            record.openings = 100 + fail;
            ledger.save_later(&slug, &record).expect("kept");
        }
        trace::start(Break::FailsAt(fail as usize, 5));
        ledger
            .flush()
            .expect_err("a step that failed is not passed over");
        trace::stop();
        assert_eq!(temps(dir.path()), Vec::<PathBuf>::new());
        ledger.flush().expect("written anew");
        for n in 0..5 {
            assert_eq!(reload(&dir, &new_record(n).0).openings, 100 + fail);
        }
    }
}

/// Given an unfinished record saved for later, then it is durable and marked at once.
#[test]
fn an_unfinished_record_does_not_wait_for_a_flush() {
    let dir = Dir::new();
    let mut ledger = open(&dir);
    let (slug, mut record) = new_record(7);
    add_pending(&mut record, 1, "{}");
    ledger.save_later(&slug, &record).expect("saved");
    let mut next = open(&dir);
    assert_eq!(next.pending(), Ok(vec![slug.clone()]));
    assert!(next.load(&slug).is_ok_and(|r| r.is_some()));
    // The caller's copy does not know that the marker is gone by then.
    resolve_first(&mut record);
    record.stored.marked = true;
    ledger.save_later(&slug, &record).expect("kept");
    ledger.flush().expect("flushed");
    assert!(!dir.layout().marker(&slug).exists());
    add_pending(&mut record, 2, "{}");
    ledger.save(&slug, &mut record).expect("saved");
    assert!(dir.layout().marker(&slug).exists());
}

/// Given a record under the name of another, then it is not saved.
#[test]
fn a_record_is_saved_only_under_its_own_name() {
    let dir = Dir::new();
    let (_, mut record) = new_record(7);
    let (other, _) = new_record(8);
    assert!(open(&dir).save(&other, &mut record).is_err());
    assert!(!dir.layout().item(&other).exists());
}

/// Given no state directory at all, then a reader finds nothing and makes nothing.
#[test]
fn a_reader_needs_no_state_directory() {
    let dir = Dir::new();
    let reader = Reader::new(dir.layout());
    assert_eq!(reader.slugs(), Ok(vec![]));
    assert_eq!(reader.pending(), Ok(vec![]));
    assert_eq!(reader.load(&new_record(7).0), Ok(None));
    assert!(!dir.layout().state_dir.exists());
}

/// Given a writer at work, then a reader always sees a whole record.
#[test]
fn a_reader_sees_whole_records_while_they_change() {
    let dir = Dir::new();
    let mut ledger = open(&dir);
    let (slug, mut record) = new_record(7);
    for id in 0..200 {
        add_pending(&mut record, id, &payload(id, 50));
    }
    ledger.save(&slug, &mut record).expect("saved");
    let reader = Reader::new(dir.layout());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                let found = reader.load(&slug).expect("whole").expect("there");
                assert_eq!(found.known.entries().len(), found.next_seq as usize);
            }
        });
        for id in 200..500 {
            for _ in 0..2 {
                resolve_first(&mut record);
            }
            add_pending(&mut record, id, &payload(id, 50));
            ledger.save(&slug, &mut record).expect("saved");
        }
        done.store(true, std::sync::atomic::Ordering::SeqCst);
    });
}

/// Every format ever released still loads, and says what it said then.
#[test]
fn frozen_records_of_version_1_load() {
    let frozen = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/ledger/v1");
    let dir = Dir::new();
    let mut ledger = open(&dir);
    for (path, (_, bytes)) in files(&frozen) {
        let to = dir
            .layout()
            .items()
            .join(path.strip_prefix(&frozen).expect("below it"));
        std::fs::create_dir_all(to.parent().expect("a parent")).expect("a directory");
        std::fs::write(to, bytes).expect("copied");
    }
    let slugs = Reader::new(dir.layout()).slugs().expect("all");
    let names: Vec<&str> = slugs.iter().map(Slug::as_str).collect();
    assert_eq!(
        names,
        [
            "api~ghe.example.org~octo~api~9",
            "api~octo~api~7",
            "inbox~3"
        ]
    );

    let small = ledger.load(&slugs[1]).expect("it loads").expect("there");
    assert_eq!(small.seen.title, "Größe ändern \u{1f980}");
    assert_eq!(small.since.to_string(), "2026-08-05T10:00:00.000Z");
    assert_eq!(
        small.known.get(&Key("comment/2".into())),
        Some(Disposition::Refused)
    );
    let queue = &small.sinks["hook"];
    assert_eq!(queue.pending.iter().copied().collect::<Vec<_>>(), [2, 3]);
    assert!(queue.tries[&2].in_flight && queue.tries[&2].attempts == 1);
    assert_eq!(queue.gave_up[&1].version, "0.1.0");
    assert_eq!(queue.extra["paused"], json!(false));
    assert_eq!(
        &*small.events[&2].payload,
        "{\"idempoll\": 1,\n \"n\": 1.50}"
    );
    assert_eq!(&*small.events[&3].payload, "{\"ends\": \"here\"}\n");
    assert_eq!(small.history[0].seq, 0);
    assert_eq!(small.extra["later"], json!([1, 2]));

    let long = ledger.load(&slugs[0]).expect("it loads").expect("there");
    assert_eq!(long.known.entries().len(), 600);
    assert_eq!(long.events.len(), 70);
    assert_eq!(long.stored.known_blocks, 1);
    assert_eq!(long.stored.event_blocks.len(), 1);

    let dir_item = ledger.load(&slugs[2]).expect("it loads").expect("there");
    assert_eq!(dir_item.item.to_string(), "dir:inbox#3");
    assert!(!dir_item.is_unfinished());
}
