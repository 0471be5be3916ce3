//! What single files and directories are, on the way to a record.

use super::super::reader::{cannot_read, read_file, slugs_in};
use super::super::{disk, hosts, layout};
use super::*;
use crate::engine::host::Host;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Given several who make one directory at the same moment, then each finds it made, and one made it.
#[test]
fn a_directory_is_made_once() {
    let dir = Dir::new();
    for round in 0..50 {
        let path = dir.path().join(format!("d{round}"));
        let start = std::sync::Barrier::new(4);
        let made = std::thread::scope(|scope| {
            let each = [(); 4].map(|()| {
                scope.spawn(|| {
                    start.wait();
                    disk::make_dir(&path)
                })
            });
            each.map(|thread| thread.join().expect("no panic").expect("it is there"))
        });
        assert_eq!(made.iter().filter(|made| **made).count(), 1, "{made:?}");
    }
    // What is not there when it is looked for, and is when it is to be made.
    let path = dir.path().join("late");
    std::os::unix::fs::symlink("nowhere", &path).expect("linked");
    assert!(!disk::make_dir(&path).expect("somebody else was first"));
}

#[test]
fn what_is_no_directory_is_not_taken_for_one() {
    let dir = Dir::new();
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("written");
    let kind = |path: &Path| disk::make_dir(path).map_err(|e| e.kind());
    assert_eq!(kind(&file), Err(io::ErrorKind::NotADirectory));
    let below = dir.path().join("missing/below");
    assert_eq!(kind(&below), Err(io::ErrorKind::NotFound));
    // What lies in the directory is not none of it, because it cannot be listed.
    assert!(slugs_in(&file, "").is_err());
    assert_eq!(slugs_in(&below, ""), Ok(vec![]));
    assert_eq!(layout::parent(Path::new("name")), Path::new("."));
    assert_eq!(layout::parent(Path::new("a/name")), Path::new("a"));
}

/// Given a directory of another user's, when root makes a file in it, then it is that user's (they must be able to read it).
#[test]
fn a_file_belongs_to_whoever_owns_its_directory() {
    let dir = Dir::new();
    let theirs = dir.path().join("theirs");
    std::fs::create_dir(&theirs).expect("a directory");
    if std::os::unix::fs::chown(&theirs, Some(4711), Some(4712)).is_err() {
        eprintln!("not tried: only root can give a directory away");
        return;
    }
    let file = theirs.join("file");
    disk::create(&file).expect("created");
    let facts = std::fs::metadata(&file).expect("there");
    assert_eq!((facts.uid(), facts.gid()), (4711, 4712));
}

/// Whose a file is that may not be read is said, and of no other trouble (C114).
#[test]
fn c114_whose_a_file_is_is_said_when_that_is_the_trouble() {
    let dir = Dir::new();
    let path = dir.path().join("file");
    let hint = |kind: io::ErrorKind| cannot_read(&path, &kind.into()).hint;
    let denied = hint(io::ErrorKind::PermissionDenied).expect("a hint");
    assert!(denied.starts_with("it belongs to "), "{denied}");
    assert_eq!(hint(io::ErrorKind::Other), None);
    let directory = format!("{:?}", read_file(dir.path()).expect_err("a directory"));
    assert!(!directory.contains("belongs"), "{directory}");
}

/// A small head has no keys for what it does not need.
#[test]
fn a_head_says_nothing_of_what_there_is_none_of() {
    let dir = Dir::new();
    let (slug, mut record) = new_record(7);
    open(&dir).save(&slug, &mut record).expect("saved");
    let head = std::fs::read_to_string(dir.layout().item(&slug)).expect("there");
    for key in [
        "tries",
        "gave_up",
        "known_blocks",
        "event_blocks",
        "unresolved",
    ] {
        assert!(!head.contains(&format!(r#""{key}""#)), "{key} in {head}");
    }
}

/// What is finished needs no marker, and the record knows (so that nobody waits for it to be durable).
#[test]
fn a_finished_record_knows_that_it_is_not_marked() {
    let dir = Dir::new();
    let mut ledger = open(&dir);
    let (slug, mut record) = new_record(7);
    add_pending(&mut record, 1, "{}");
    ledger.save(&slug, &mut record).expect("saved");
    assert!(record.stored.marked);
    resolve_first(&mut record);
    ledger.save(&slug, &mut record).expect("saved");
    assert!(!record.stored.marked);
}

/// C010: `check` is shown what the poller knows of a host.
#[test]
fn c010_what_is_known_of_a_host_can_be_looked_at() {
    let dir = Dir::new();
    let host = Host {
        host: "forge".into(),
        token: "a".into(),
        throttled: 1,
        ..Host::default()
    };
    open(&dir).save_host(&host).expect("saved");
    assert_eq!(hosts::look(&dir.layout()), [host]);
}
