//! Records that are damaged, unreadable or from the future.

use super::*;

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
    assert_eq!(
        aside,
        dir.layout().items_aside().join("api~octo~api~7.1.json")
    );
    assert_eq!(files(&aside.with_extension("d")).len(), kept);
}

/// Given a state directory that is read-only or somebody else's, then opening
/// it fails and says so; a full disk is no reason not to start (C124, C119).
#[test]
fn c124_a_ledger_that_cannot_be_written_does_not_open() {
    let dir = Dir::new();
    drop(open(&dir));
    trace::start(Break::Never);
    drop(open(&dir));
    let create = trace::stop().iter().position(|t| t.step == Step::Create);
    for (errno, opens) in [(30, false), (13, false), (28, true)] {
        trace::start(Break::FailsAt(create.expect("a step"), errno));
        let opened = Ledger::open(dir.layout());
        trace::stop();
        assert_eq!(opened.is_ok(), opens, "{opened:?}");
        assert!(opened.map_or_else(|e| e.hint.is_some(), |_| opens));
        assert_eq!(temps(dir.path()), Vec::<PathBuf>::new());
    }
}
