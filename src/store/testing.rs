//! What the tests of this room share: a directory of their own, and records.
#![allow(clippy::disallowed_methods, reason = "tests")]

use super::Layout;
use crate::engine::delivery::{EventKind, Key, Slug};
use crate::engine::item::{Kind, State};
use crate::engine::record::{
    Disposition, Event, Known, Queue, Record, Seen, Standing, Stored, Tries,
};
use crate::engine::time::Time;
use crate::scratch::Scratch;
use serde_json::Map;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory of a test's own, with a state directory in it.
pub(super) struct Dir(Scratch);

impl Dir {
    pub(super) fn new() -> Dir {
        Dir(Scratch::new())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn layout(&self) -> Layout {
        Layout::new(self.0.join("state"))
    }
}

/// A new record with nothing seen, and its name.
pub(super) fn new_record(number: u64) -> (Slug, Record) {
    let record = Record {
        item: format!("github:octo/api#{number}").parse().expect("a ref"),
        source: "api".into(),
        seen: Seen {
            kind: Kind::Issue,
            title: "Größe ändern \u{1f980}".into(),
            url: Some(format!("https://github.com/octo/api/issues/{number}")),
            author: Some("octocat".into()),
            labels: vec!["auto".into()],
            state: State::Open,
        },
        since: Time(1_785_924_000_000),
        latest: Time(1_785_924_000_000),
        openings: 1,
        standing: Standing::Active,
        ended_at: Some(Time(1_785_924_000_001)),
        known: Known::default(),
        events: BTreeMap::new(),
        next_seq: 0,
        sinks: [("hook".to_string(), Queue::default())].into(),
        history: Vec::new(),
        extra: Map::new(),
        stored: Stored::default(),
    };
    (Slug::new(&record.source, &record.item), record)
}

/// Comment `id` was seen and waits for every sink.
pub(super) fn add_pending(record: &mut Record, id: u64, payload: &str) -> u64 {
    let key = Key(format!("comment/{id}").into());
    let seq = record.next_seq;
    record.next_seq += 1;
    record.known.add(key.clone(), Disposition::Queued);
    let event = Event {
        key,
        kind: EventKind::Comment,
        at: Time(1_785_924_000_000 + id * 1000),
        payload: payload.into(),
        webhook: None,
    };
    record.events.insert(seq, event);
    for queue in record.sinks.values_mut() {
        queue.pending.insert(seq);
    }
    seq
}

/// Comment `id` was seen and is never delivered.
pub(super) fn add_baseline(record: &mut Record, id: u64) {
    let key = Key(format!("comment/{id}").into());
    record.known.add(key, Disposition::Baseline);
}

/// The oldest event was delivered.
pub(super) fn resolve_first(record: &mut Record) {
    let Some((seq, _)) = record.events.pop_first() else {
        return;
    };
    for queue in record.sinks.values_mut() {
        queue.pending.remove(&seq);
        queue.tries.remove(&seq);
        queue.delivered += 1;
    }
}

/// A try of the oldest event was begun.
pub(super) fn begin_first(record: &mut Record) {
    let Some((&seq, _)) = record.events.first_key_value() else {
        return;
    };
    for queue in record.sinks.values_mut() {
        let tries = Tries {
            begun: 1,
            in_flight: true,
            ..Tries::default()
        };
        queue.tries.insert(seq, tries);
    }
}

/// A payload as the engine makes them, about `size` bytes long.
pub(super) fn payload(id: u64, size: usize) -> String {
    format!(
        r#"{{"idempoll": 1, "comment": {{"id":"{id}","body":"{}"}}}}"#,
        "x".repeat(size)
    )
}

/// A record apart from what the store notes in it.
pub(super) fn bare(record: &Record) -> Record {
    Record {
        stored: Stored::default(),
        ..record.clone()
    }
}

/// Every file below `dir`, with its inode and content.
pub(super) fn files(dir: &Path) -> BTreeMap<PathBuf, (u64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let meta = std::fs::symlink_metadata(&path).expect("metadata");
        if meta.is_dir() {
            all.extend(files(&path));
        } else {
            all.insert(
                path.clone(),
                (meta.ino(), std::fs::read(&path).expect("a file")),
            );
        }
    }
    all
}

/// The temps of ours below `dir`.
pub(super) fn temps(dir: &Path) -> Vec<PathBuf> {
    files(dir)
        .into_keys()
        .filter(|p| p.to_string_lossy().contains("/.tmp."))
        .collect()
}
