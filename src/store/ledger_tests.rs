//! What the ledger promises, proved.
#![allow(clippy::disallowed_methods, reason = "tests")]

use super::super::disk::Step;
use super::super::disk::trace::{self, Break};
use super::super::testing::{
    Dir, add_baseline, add_pending, bare, begin_first, files, new_record, payload, resolve_first,
    temps,
};
use super::*;
use crate::engine::delivery::{EventKind, Key};
use crate::engine::record::{Disposition, Event, GaveUp, Queue, Resolved, Tries};
use crate::engine::time::Time;
use proptest::prelude::*;
use serde_json::json;

fn open(dir: &Dir) -> Ledger {
    Ledger::open(dir.layout()).expect("the ledger opens")
}

/// Loads through a ledger just opened, as the next start does.
fn reload(dir: &Dir, slug: &Slug) -> Record {
    open(dir)
        .load(slug)
        .expect("it loads")
        .expect("it is there")
}

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

/// Given a record of a newer version, then it is refused and never rewritten.
#[test]
fn a_newer_record_is_left_alone() {
    let dir = Dir::new();
    let mut ledger = open(&dir);
    let (slug, mut record) = new_record(7);
    ledger.save(&slug, &mut record).expect("saved");
    let path = dir.layout().item(&slug);
    let text = r#"{"version": 2, "shape": ["not", "ours"]}"#;
    std::fs::write(&path, text).expect("a newer record");
    assert_eq!(ledger.load(&slug), Err(LoadError::Newer { version: 2 }));
    assert!(ledger.save(&slug, &mut record).is_err());
    assert!(ledger.save_later(&slug, &record).is_err());
    ledger.flush().expect("nothing to flush");
    assert_eq!(std::fs::read_to_string(&path).expect("there"), text);
}

/// Given a record cut at any byte (in the middle of a character, one byte
/// before its end), empty, full of zero bytes, not UTF-8 or with wrong types,
/// then it is damaged, with the time of its last write; it can only be set
/// aside, is kept, is reported once, and never "first seen" (C111, C113, R3.6).
#[test]
fn c113_a_damaged_record_is_set_aside() {
    let dir = Dir::new();
    let (slug, mut record) = new_record(7);
    add_pending(&mut record, 1, &payload(1, 3));
    add_pending(&mut record, 2, "\"é\n");
    open(&dir).save(&slug, &mut record).expect("saved");
    let path = dir.layout().item(&slug);
    let whole = std::fs::read(&path).expect("there");
    assert!(
        whole.iter().any(|b| *b >= 0xc2),
        "a multi-byte character is in it"
    );

    let mut damaged: Vec<Vec<u8>> = (0..whole.len()).map(|n| whole[..n].to_vec()).collect();
    damaged.push(vec![0; whole.len()]);
    damaged.extend((1..whole.len()).step_by(7).map(|n| {
        let mut half = whole.clone();
        half[n..].fill(0);
        half
    }));
    damaged.push([&whole[..], b"}"].concat());
    damaged.push(
        whole
            .iter()
            .map(|b| if *b >= 0xc2 { 0xff } else { *b })
            .collect(),
    );
    let text = String::from_utf8(whole.clone()).expect("UTF-8");
    for (right, wrong) in [
        ("\"version\": 1", "\"version\": \"1\""),
        ("\"version\": 1", "\"version\": 0"),
        ("\"version\": 1", "\"v\": 1"),
        ("\"openings\": 1", "\"openings\": -1"),
        ("\"next_seq\": 2", "\"next_seq\": 1"),
        ("[[0,1]]", "[[0,2]]"),
        ("[[0,1]]", "[[0,18446744073709551615]]"),
        ("[[0,1]]", "[[1,0]]"),
        ("\"standing\": \"active\"", "\"standing\": 7"),
        ("octo/api#7", "octo/api#8"),
        ("\"source\": \"api\"", "\"source\": \"web\""),
        ("\"history\": []", "\"history\": {}"),
    ] {
        let changed = text.replace(right, wrong);
        assert_ne!(changed, text, "{right}");
        damaged.push(changed.into_bytes());
    }
    let mut ledger = open(&dir);
    for bytes in &damaged {
        std::fs::write(&path, bytes).expect("damaged");
        let modified = Time::from(
            std::fs::metadata(&path)
                .and_then(|m| m.modified())
                .expect("a time"),
        );
        match ledger.load(&slug) {
            Err(LoadError::Damaged { modified: m, .. }) => assert_eq!(m, modified),
            other => panic!("{other:?} for {:?}", String::from_utf8_lossy(bytes)),
        }
        assert!(ledger.save(&slug, &mut record).is_err(), "it is kept");
        assert_eq!(&std::fs::read(&path).expect("there"), bytes);
    }

    let last = damaged.last().expect("some").clone();
    let aside = ledger.set_aside(&slug).expect("set aside");
    assert_eq!(std::fs::read(&aside).expect("kept"), last);
    assert!(!path.exists());
    for _ in 0..2 {
        let mut next = open(&dir);
        assert_eq!(next.pending(), Ok(vec![]), "nothing reads it again");
        assert!(
            matches!(next.load(&slug), Err(LoadError::SetAside { modified }) if modified > Time::ZERO)
        );
    }
    let (_, mut fresh) = new_record(7);
    ledger
        .save(&slug, &mut fresh)
        .expect("a new one takes its place");
    assert_eq!(reload(&dir, &slug), fresh);

    // Damaged again: both are kept.
    std::fs::write(&path, b"").expect("damaged");
    assert!(ledger.load(&slug).is_err());
    let second = ledger.set_aside(&slug).expect("set aside");
    assert_ne!(second, aside);
    assert_eq!(std::fs::read(&aside).expect("kept"), last);
}

/// Given a record that cannot be read (a read error, or something else in its
/// place), then it is neither empty nor damaged, is never saved over, does not
/// make anyone wait, and goes on where it was once it can be read (C114).
#[test]
fn c114_a_record_that_cannot_be_read_is_left_alone() {
    let dir = Dir::new();
    let mut ledger = open(&dir);
    let (slug, mut record) = new_record(7);
    add_pending(&mut record, 1, "{}");
    ledger.save(&slug, &mut record).expect("saved");
    let path = dir.layout().item(&slug);
    let whole = std::fs::read(&path).expect("there");
    for errno in [13, 5, 24] {
        trace::start(Break::FailsAt(0, errno));
        let loaded = ledger.load(&slug);
        trace::stop();
        assert!(
            matches!(loaded, Err(LoadError::Unreadable { .. })),
            "{loaded:?}"
        );
        assert!(ledger.save(&slug, &mut record.clone()).is_err());
        assert_eq!(std::fs::read(&path).expect("there"), whole);
        assert_eq!(
            ledger.load(&slug),
            Ok(Some(record.clone())),
            "it is readable again"
        );
    }
    let elsewhere = dir.path().join("elsewhere");
    std::fs::rename(&path, &elsewhere).expect("moved");
    let fifo = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(fifo.expect("mkfifo runs").success());
    let mut stand_ins = vec!["a FIFO"];
    loop {
        match ledger.load(&slug) {
            Err(LoadError::Unreadable { reason }) => {
                assert!(reason.contains(stand_ins[stand_ins.len() - 1]), "{reason}");
            }
            other => panic!("{other:?}"),
        }
        assert!(ledger.save(&slug, &mut record.clone()).is_err());
        match stand_ins.len() {
            1 => {
                std::fs::remove_file(&path).expect("removed");
                std::os::unix::fs::symlink(&elsewhere, &path).expect("a link");
                stand_ins.push("a symbolic link");
            }
            2 => {
                std::fs::remove_file(&path).expect("removed");
                std::fs::create_dir(&path).expect("a directory");
                stand_ins.push("a directory");
            }
            _ => break,
        }
    }
    std::fs::remove_dir(&path).expect("removed");
    std::fs::rename(&elsewhere, &path).expect("back");
    assert_eq!(ledger.load(&slug), Ok(Some(record)));
    assert_eq!(temps(dir.path()), Vec::<PathBuf>::new());
}

/// Given a record about to be unfinished, when the process is killed before
/// any step of its save, then the next start finds the old state, or the new
/// one and its marker (R3.1, R3.6, R3.7).
#[test]
fn r3_6_a_kill_at_any_step_of_a_save_loses_no_marker() {
    for payload_size in [10, 200_000] {
        for kill in 0.. {
            let dir = Dir::new();
            let mut ledger = open(&dir);
            let (slug, mut record) = new_record(7);
            ledger.save(&slug, &mut record).expect("saved");
            let old = bare(&record);
            add_pending(&mut record, 1, &payload(1, payload_size));
            add_pending(&mut record, 2, &payload(2, payload_size));
            trace::start(Break::KilledAt(kill));
            let done = ledger.save(&slug, &mut record);
            trace::stop();
            drop(ledger);

            let mut next = open(&dir);
            let marked = next.pending().expect("the index").contains(&slug);
            let found = next.load(&slug).expect("it loads").expect("it is there");
            if bare(&found) == old {
                assert!(done.is_err());
                assert_eq!(
                    next.pending(),
                    Ok(vec![]),
                    "a marker without need is removed"
                );
            } else {
                assert_eq!(bare(&found), bare(&record));
                assert!(marked, "killed at {kill}");
            }
            assert_eq!(temps(dir.path()), Vec::<PathBuf>::new());
            // Orphan blocks are overwritten without harm.
            let mut again = record.clone();
            again.stored = found.stored.clone();
            next.save(&slug, &mut again).expect("saved");
            assert_eq!(bare(&reload(&dir, &slug)), bare(&record));
            if done.is_ok() {
                break;
            }
        }
    }
}

/// Given an unfinished record, when the process is killed before any step of
/// the save that finishes it, then its marker is there as long as it is unfinished.
#[test]
fn a_marker_goes_only_after_the_record_is_finished() {
    for kill in 0.. {
        let dir = Dir::new();
        let mut ledger = open(&dir);
        let (slug, mut record) = new_record(7);
        add_pending(&mut record, 1, "{}");
        ledger.save(&slug, &mut record).expect("saved");
        resolve_first(&mut record);
        trace::start(Break::KilledAt(kill));
        let done = ledger.save(&slug, &mut record);
        trace::stop();
        let mut next = open(&dir);
        let marked = next.pending().expect("the index").contains(&slug);
        let found = next.load(&slug).expect("it loads").expect("it is there");
        assert!(marked || !found.is_unfinished());
        if !found.is_unfinished() {
            assert_eq!(next.pending(), Ok(vec![]));
        }
        if done.is_ok() && !dir.layout().marker(&slug).exists() && kill > 5 {
            break;
        }
    }
}

/// The order a power cut relies on, step by step.
#[test]
fn the_marker_and_the_blocks_are_durable_before_the_head_is_visible() {
    let dir = Dir::new();
    let mut ledger = open(&dir);
    let (slug, mut record) = new_record(7);
    for id in 0..600 {
        add_pending(&mut record, id, "{}");
    }
    trace::start(Break::Never);
    ledger.save(&slug, &mut record).expect("saved");
    let taken = trace::stop();
    let at = |step, end: &str| trace::find(&taken, step, end).expect(end);
    let head = at(Step::Rename, "api~octo~api~7.json");
    assert!(at(Step::Create, "pending/api~octo~api~7") < at(Step::SyncDir, "/pending"));
    assert!(at(Step::SyncDir, "/pending") < head);
    assert!(at(Step::MakeDir, "~7.d") < at(Step::SyncDir, "/items"));
    assert!(at(Step::SyncDir, "/items") < head);
    let last_block = taken
        .iter()
        .rposition(|t| t.path.to_string_lossy().contains("~7.d/"));
    let blocks_durable = at(Step::SyncDir, "~7.d");
    assert!(last_block.expect("blocks") < blocks_durable && blocks_durable < head);
    let durable = taken
        .iter()
        .rposition(|t| t.step == Step::SyncDir && t.path.ends_with("items"));
    assert!(head < durable.expect("the directory is flushed"));

    while !record.events.is_empty() {
        resolve_first(&mut record);
    }
    trace::start(Break::Never);
    ledger.save(&slug, &mut record).expect("saved");
    let taken = trace::stop();
    let durable = trace::find(&taken, Step::SyncDir, "/items").expect("the directory is flushed");
    let first_removed = taken
        .iter()
        .position(|t| t.step == Step::Remove)
        .expect("removals");
    assert!(durable < first_removed);
    assert!(trace::find(&taken, Step::Remove, "pending/api~octo~api~7").is_some());
}

/// Given a save that fails at any step, then trying again works and nothing is lost.
#[test]
fn r3_5_a_save_that_failed_can_be_made_again() {
    for at in 0.. {
        let dir = Dir::new();
        let mut ledger = open(&dir);
        let (slug, mut record) = new_record(7);
        for id in 0..600 {
            add_pending(&mut record, id, &payload(id, 2000));
        }
        trace::start(Break::FailsAt(at, 28));
        let done = ledger.save(&slug, &mut record);
        trace::stop();
        if done.is_ok() && at > 40 {
            break;
        }
        assert_eq!(temps(dir.path()), Vec::<PathBuf>::new());
        // Meanwhile the world went on.
        resolve_first(&mut record);
        add_pending(&mut record, 600, "{}");
        ledger
            .save(&slug, &mut record)
            .expect("there is room again");
        assert_eq!(reload(&dir, &slug), record);
    }
}

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

/// Given a block that is missing, cut or not the right one, then the record is
/// damaged, and set aside together with its blocks.
#[test]
fn a_damaged_block_damages_the_record() {
    let dir = Dir::new();
    let mut ledger = open(&dir);
    let (slug, mut record) = new_record(7);
    for id in 0..600 {
        add_pending(&mut record, id, "{}");
    }
    ledger.save(&slug, &mut record).expect("saved");
    let blocks = dir.layout().item_blocks(&slug);
    for name in ["known-000000", "events-0", "events-64"] {
        let path = blocks.join(name);
        let whole = std::fs::read(&path).expect(name);
        let other = std::fs::read(blocks.join("events-128")).expect("another");
        let half = whole[..whole.len() / 2].to_vec();
        for bytes in [Some(vec![]), Some(half), Some(other), None] {
            match &bytes {
                Some(bytes) => std::fs::write(&path, bytes).expect("damaged"),
                None => std::fs::remove_file(&path).expect("removed"),
            }
            match ledger.load(&slug) {
                Err(LoadError::Damaged { reason, modified }) => {
                    assert!(reason.contains(name), "{reason}");
                    assert!(modified > Time::ZERO);
                }
                other => panic!("{other:?}"),
            }
        }
        std::fs::write(&path, &whole).expect("mended");
        assert_eq!(ledger.load(&slug), Ok(Some(record.clone())));
    }
    std::fs::write(blocks.join("events-64"), "").expect("damaged");
    assert!(ledger.load(&slug).is_err());
    // Killed between the two renames: the next try puts the head beside its blocks.
    let kept = files(&blocks).len();
    trace::start(Break::KilledAt(3));
    let cut = ledger.set_aside(&slug);
    trace::stop();
    assert!(cut.is_err() && !blocks.exists());
    assert!(matches!(
        open(&dir).load(&slug),
        Err(LoadError::Damaged { .. })
    ));
    let aside = open(&dir).set_aside(&slug).expect("set aside");
    assert_eq!(aside, aside_path(&dir.layout().items_aside(), &slug, 1));
    assert_eq!(files(&aside.with_extension("d")).len(), kept);
}

/// Given records saved for later, then each is durable after a flush, a load
/// sees the newest state, and a flush that failed loses nothing.
#[test]
fn records_saved_for_later_are_written_together() {
    let dir = Dir::new();
    let mut ledger = open(&dir);
    let path = |slug: &Slug| dir.layout().item(slug);
    for n in 0..LATER as u64 {
        let (slug, record) = new_record(n);
        assert!(!path(&slug).exists());
        ledger.save_later(&slug, &record).expect("kept");
    }
    assert!(path(&new_record(0).0).exists(), "a full buffer is flushed");
    assert!(ledger.later.is_empty());

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

    for fail in 0.. {
        for n in 0..5 {
            let (slug, mut record) = new_record(n);
            record.openings = 100 + fail as u32;
            ledger.save_later(&slug, &record).expect("kept");
        }
        trace::start(Break::FailsAt(fail, 5));
        let done = ledger.flush();
        trace::stop();
        assert_eq!(temps(dir.path()), Vec::<PathBuf>::new());
        if done.is_ok() && fail > 20 {
            break;
        }
        ledger.flush().expect("written anew");
        for n in 0..5 {
            assert_eq!(reload(&dir, &new_record(n).0).openings, 100 + fail as u32);
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
    let reader = ledger.reader();
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
    let slugs = ledger.reader().slugs().expect("all");
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

fn keys() -> impl Strategy<Value = Key> {
    prop_oneof![
        (0u64..5000).prop_map(|n| Key(format!("comment/{n}").into())),
        (0u64..9).prop_map(|n| Key(format!("opened/{n}").into())),
        Just(Key("closed".into())),
    ]
}

fn times() -> impl Strategy<Value = Time> {
    (0u64..4_000_000_000_000).prop_map(Time)
}

prop_compose! {
    fn tries()(begun in 0u32..9, attempts in 0u32..9, interruptions in 0u32..9, deferrals in 0u32..9,
               in_flight: bool, next_attempt_at in proptest::option::of(times()),
               last_error in proptest::option::of(".{0,20}")) -> Tries {
        Tries { begun, attempts, interruptions, deferrals, in_flight, next_attempt_at, last_error }
    }
}

prop_compose! {
    fn given_up()(at in times(), reason in ".{0,20}", attempts in 0u32..9, begun in 0u32..9) -> GaveUp {
        GaveUp { at, reason, version: "0.1.0".into(), attempts, interruptions: 0, begun }
    }
}

prop_compose! {
    fn records()(
        known in proptest::collection::vec((keys(), prop_oneof![
            Just(Disposition::Queued), Just(Disposition::Baseline), Just(Disposition::Refused)]), 0..900),
        payloads in proptest::collection::vec(prop_oneof![
            4 => "\\{\"t\": ?\"[a-z é]{0,30}\"\\}", 2 => ".{0,40}", 1 => (1usize..60_000).prop_map(|n| "x".repeat(n))], 0..150),
        title in ".{0,40}", labels in proptest::collection::vec(".{0,9}", 0..3),
        gaps in proptest::collection::vec(1u64..4, 150),
        waits in proptest::collection::vec(0u8..8, 300),
        tries in proptest::collection::btree_map(0u64..400, tries(), 0..3),
        gave_up in proptest::collection::btree_map(0u64..400, given_up(), 0..3),
        delivered: u64, last in proptest::option::of(times()), since in times(), openings: u32,
        history in proptest::collection::vec((keys(), times()), 0..4),
        extra in proptest::collection::btree_map("x[a-z]{1,5}", any::<i64>(), 0..3),
    ) -> Record {
        let (_, mut record) = new_record(7);
        record.seen.title = title;
        record.seen.labels = labels;
        record.since = since;
        record.openings = openings;
        for (key, disposition) in known {
            record.known.add(key, disposition);
        }
        let queue = |extra: serde_json::Map<String, serde_json::Value>| Queue {
            tries: tries.clone(), gave_up: gave_up.clone(), delivered, last_delivery_at: last,
            extra, ..Queue::default()
        };
        let extra: serde_json::Map<_, _> = extra.into_iter().map(|(k, v)| (k, v.into())).collect();
        record.sinks = [("a".into(), queue(extra.clone())), ("b".into(), queue(Default::default()))].into();
        for (n, payload) in payloads.into_iter().enumerate() {
            record.next_seq += gaps[n];
            let event = Event {
                key: Key(format!("review/{n}").into()), kind: EventKind::Review,
                at: since, payload: payload.into(),
            };
            record.events.insert(record.next_seq, event);
            for (sink, queue) in record.sinks.values_mut().enumerate() {
                if waits[2 * n + sink] > 0 {
                    queue.pending.insert(record.next_seq);
                }
            }
        }
        record.next_seq += 1;
        record.history = history.into_iter().map(|(key, at)| Resolved {
            key, sink: "a".into(), seq: 1, at, begun: 1, attempts: 0, interruptions: 0,
        }).collect();
        record.extra = extra;
        record
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any record comes back as it was, and so does what becomes of it.
    #[test]
    fn any_record_comes_back(record in records(), resolved in 0usize..150) {
        let dir = Dir::new();
        let mut ledger = open(&dir);
        let (slug, _) = new_record(7);
        let mut record = record;
        ledger.save(&slug, &mut record).expect("saved");
        let mut found = ledger.load(&slug).expect("it loads").expect("there");
        prop_assert_eq!(&found, &record);
        for _ in 0..resolved {
            resolve_first(&mut found);
        }
        add_pending(&mut found, 9_999_999, "{}");
        ledger.save(&slug, &mut found).expect("saved");
        let again = ledger.load(&slug).expect("it loads").expect("there");
        prop_assert_eq!(again, found);
    }
}
