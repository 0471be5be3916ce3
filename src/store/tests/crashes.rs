//! Kills, errors and power cuts at every step of a save.

use super::*;

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

/// Given several records that are saved together, one finished, one just begun, one new, when the process is killed before
/// any step of it, or a step fails, then each is as it was or as it was to be, with a marker as long as it is
/// unfinished; and what failed can be saved alone (R3.1, R3.2, R3.6).
#[test]
fn r3_6_a_kill_at_any_step_of_saving_several_leaves_each_whole() {
    for cut in [Break::KilledAt as fn(usize) -> Break, |at| {
        Break::FailsAt(at, 28)
    }] {
        let mut reached_the_end = false;
        for at in 0.. {
            let dir = Dir::new();
            let mut ledger = open(&dir);
            let mut several: Vec<_> = (1..=3).map(new_record).collect();
            add_pending(&mut several[0].1, 1, "{}");
            add_pending(&mut several[1].1, 1, "{}");
            ledger.save_all(&mut all(&mut several[..2])).expect("saved");
            let before: Vec<Record> = several.iter().map(|(_, r)| bare(r)).collect();
            resolve_first(&mut several[0].1);
            begin_first(&mut several[1].1);
            add_pending(&mut several[2].1, 1, &payload(1, 300));
            trace::start(cut(at));
            let done = ledger.save_all(&mut all(&mut several));
            let steps = trace::stop().len();
            drop(ledger);
            let mut next = open(&dir);
            let marked = next.pending().expect("the index");
            for ((slug, record), old) in several.iter_mut().zip(&before) {
                match next.load(slug).expect("it loads") {
                    None => assert!(done.is_err() && slug.to_string().ends_with('3'), "at {at}"),
                    Some(found) => {
                        assert!(!found.is_unfinished() || marked.contains(slug), "at {at}");
                        let found = bare(&found);
                        let is_new = found == bare(record);
                        assert!(is_new || (found == *old && done.is_err()), "at {at}");
                    }
                }
                next.save(slug, record).expect("it can be saved alone");
                assert_eq!(bare(&reload(&dir, slug)), bare(record));
            }
            assert_eq!(temps(dir.path()), Vec::<PathBuf>::new());
            if at > steps {
                reached_the_end = done.is_ok();
                break;
            }
        }
        assert!(reached_the_end);
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
    let fill = |dir: &Dir| {
        let (slug, mut record) = new_record(7);
        for id in 0..520 {
            add_pending(&mut record, id, &payload(id, 300));
        }
        (open(dir), slug, record)
    };
    let dir = Dir::new();
    let (mut ledger, slug, mut record) = fill(&dir);
    trace::start(Break::Never);
    ledger.save(&slug, &mut record).expect("saved");
    let taken = trace::stop();
    // After the last sync only blocks no head lists are looked for.
    let steps = taken.iter().rposition(|t| t.step == Step::SyncDir);
    for at in 0..=steps.expect("syncs") {
        let dir = Dir::new();
        let (mut ledger, slug, mut record) = fill(&dir);
        trace::start(Break::FailsAt(at, 28));
        let done = ledger.save(&slug, &mut record);
        trace::stop();
        assert!(done.is_err(), "a step that failed is not passed over");
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

/// Given a save whose very last sync failed, when the record is loaded again,
/// then what is loaded is made durable first, and its marker stays until then.
#[test]
fn what_a_failed_save_left_visible_is_made_durable_before_it_is_believed() {
    let dir = Dir::new();
    let mut ledger = open(&dir);
    let (slug, mut record) = new_record(7);
    add_pending(&mut record, 1, "{}");
    ledger.save(&slug, &mut record).expect("saved");
    resolve_first(&mut record);
    trace::start(Break::FailsAt(4, 5));
    ledger
        .save(&slug, &mut record)
        .expect_err("the directory is not flushed");
    trace::stop();
    assert!(dir.layout().marker(&slug).exists());
    trace::start(Break::FailsAt(5, 5));
    let loaded = ledger.load(&slug);
    trace::stop();
    assert!(
        matches!(loaded, Err(LoadError::Unreadable { .. })),
        "{loaded:?}"
    );
    assert!(dir.layout().marker(&slug).exists());
    trace::start(Break::Never);
    let found = ledger.load(&slug).expect("it loads").expect("there");
    assert_eq!(trace::syncs(&trace::stop()), 2);
    assert!(!found.is_unfinished() && !dir.layout().marker(&slug).exists());
    trace::start(Break::Never);
    assert!(ledger.load(&slug).is_ok());
    assert_eq!(trace::syncs(&trace::stop()), 0);
}
