//! `STATE/run.json`: who runs, or ran last, and how it is going.
//!
//! ```json
//! { "version": 1, "pid": 4711, "start_time": 123456, "boot_id": "6f…", "pid_ns": 4026531836,
//!   "program": "0.1.0", "config": "/etc/idempoll/config.json", "pidfile": "/var/lib/idempoll/poll.pid",
//!   "started_at": "2026-08-05T10:00:00.000Z", "stop_asked_at": null, "stopped_at": null,
//!   "last_cycle": { "at": "…", "duration_ms": 120, "items": 3, "delivered": 1, "failed": 0, "interrupted": false },
//!   "next_cycle_at": "…", "pending": 0, "gave_up": 0, "store_error": null,
//!   "sources": [ { "name": "api", "ok": true, "error": null, "failing_since": null, "items": 3, "last_listing_at": "…" } ] }
//! ```
//!
//! Written by the poller alone, while it holds the lock: first as soon as it
//! has it, then after every cycle and when it is asked to stop, last before it
//! gives it back. It is for
//! `status` and `stop`. Nothing that must survive depends on it: whoever
//! believes the first line checks it against the process itself, and a reader
//! that finds the file damaged takes it as missing.

use crate::engine::time::Time;
use crate::error::Error;
use crate::os::file::{self, Facts, Kind};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The format written.
pub const VERSION: u32 = 1;

/// Who runs, or ran last.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunInfo {
    /// The format, [`VERSION`].
    pub version: u32,
    /// Its pid, as it saw it itself.
    pub pid: u32,
    /// When the process started, in clock ticks after the machine did.
    #[serde(default)]
    pub start_time: Option<u64>,
    /// Which start of the machine that was.
    #[serde(default)]
    pub boot_id: Option<String>,
    /// The pid namespace in which the pid means something.
    #[serde(default)]
    pub pid_ns: Option<u64>,
    /// The version of idempoll.
    #[serde(default)]
    pub program: String,
    /// The config file it reads.
    #[serde(default)]
    pub config: PathBuf,
    /// The pidfile it holds.
    #[serde(default)]
    pub pidfile: PathBuf,
    /// When it started.
    #[serde(default)]
    pub started_at: Time,
    /// When it was asked to stop; since then it only finishes what is in hand.
    #[serde(default)]
    pub stop_asked_at: Option<Time>,
    /// When it ended gracefully; `None` while it runs and after a crash.
    #[serde(default)]
    pub stopped_at: Option<Time>,
    /// The last cycle it finished or cut short.
    #[serde(default)]
    pub last_cycle: Option<LastCycle>,
    /// When the next cycle begins.
    #[serde(default)]
    pub next_cycle_at: Option<Time>,
    /// Deliveries not resolved yet.
    #[serde(default)]
    pub pending: u64,
    /// Deliveries given up.
    #[serde(default)]
    pub gave_up: u64,
    /// The sources, in the order of the config.
    #[serde(default)]
    pub sources: Vec<SourceInfo>,
    /// Why nothing can be recorded at present, and so nothing is delivered.
    #[serde(default)]
    pub store_error: Option<String>,
    /// The user the file belongs to. Not in the file: set by [`RunInfo::read`].
    #[serde(skip)]
    pub owner: Option<u32>,
}

/// One cycle.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LastCycle {
    /// When it began.
    pub at: Time,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// How many items it saw.
    pub items: u64,
    /// How many deliveries were resolved as delivered.
    pub delivered: u64,
    /// How many attempts failed.
    pub failed: u64,
    /// Whether it was cut short by a stop.
    pub interrupted: bool,
}

/// How a source is doing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceInfo {
    /// Its name in the config.
    pub name: String,
    /// Whether its last listing was complete.
    pub ok: bool,
    /// Why not.
    pub error: Option<String>,
    /// Since when not.
    pub failing_since: Option<Time>,
    /// How many of its items are being worked on.
    pub items: u64,
    /// When it was last listed completely.
    pub last_listing_at: Option<Time>,
}

/// More than any poller writes; a larger file is not one of ours.
const LARGEST: u64 = 4 * 1024 * 1024;

impl RunInfo {
    /// Where it is kept.
    #[must_use]
    pub fn path(state_dir: &Path) -> PathBuf {
        state_dir.join("run.json")
    }

    /// Reads it. `None` when it is missing, unreadable or damaged.
    #[must_use]
    pub fn read(state_dir: &Path) -> Option<RunInfo> {
        let path = RunInfo::path(state_dir);
        let regular = |f: &Facts| f.kind == Kind::File && f.size <= LARGEST;
        // Looked at before it is opened as well: opening a device can have effects.
        Facts::at(&path).ok().filter(regular)?;
        let file = file::open_to_read(&path).ok()?;
        let facts = Facts::of(&file).ok().filter(regular)?;
        let mut text = Vec::new();
        file.take(LARGEST).read_to_end(&mut text).ok()?;
        let mut info: RunInfo = serde_json::from_slice(&text).ok()?;
        info.owner = Some(facts.owner);
        Some(info)
    }

    /// Writes it, whole or not at all, but not durably.
    ///
    /// # Errors
    /// Which file could not be written, and why.
    pub fn write(&self, state_dir: &Path) -> Result<(), Error> {
        let path = RunInfo::path(state_dir);
        let failed =
            |e: &dyn std::fmt::Display| Error::new(format!("cannot write {}", path.display()), e);
        let text = serde_json::to_vec(self).map_err(|e| failed(&e))?;
        replace(&path, &text).map_err(|e| failed(&e))
    }
}

/// Replaces a file by way of a temporary one, without any sync: readers see the
/// old text or the new one, and after a power cut nobody needs either.
#[expect(
    clippy::disallowed_methods,
    reason = "until it goes through the store's atomic write"
)]
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let temporary = path.with_extension("json.tmp");
    match fs::remove_file(&temporary) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut f| f.write_all(text))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // What is left of it is removed before the next try anyhow.
        let _ = fs::remove_file(&temporary);
    }
    match written {
        Err(e) if e.kind() == io::ErrorKind::StorageFull => overwrite(path, text).map_err(|_| e),
        written => written,
    }
}

/// On a full disk there is no room for a second file, and just then `status` has
/// something to tell: the text goes into the blocks the file has already. A
/// reader may see half of it for an instant; it looks again.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing depends on this file, so it need not be replaced atomically"
)]
fn overwrite(path: &Path, text: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    if file.metadata()?.blocks() * 512 < text.len() as u64 {
        return Err(io::ErrorKind::StorageFull.into());
    }
    file.write_all(text)?;
    file.set_len(text.len() as u64)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir =
            std::env::temp_dir().join(format!("idempoll-run-info-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("the temp dir can be written");
        dir
    }

    #[test]
    fn what_is_written_is_read_back_and_nothing_else_is_left() {
        let dir = scratch("whole");
        let info = RunInfo {
            version: VERSION,
            pid: 4711,
            start_time: Some(7),
            sources: vec![SourceInfo {
                name: "api".to_string(),
                ..SourceInfo::default()
            }],
            last_cycle: Some(LastCycle::default()),
            ..RunInfo::default()
        };
        info.write(&dir).expect("it can be written");
        info.write(&dir).expect("it can be replaced");
        let mut back = RunInfo::read(&dir).expect("it is whole");
        assert!(back.owner.take().is_some());
        assert_eq!(back, info);
        let facts = Facts::at(&RunInfo::path(&dir)).expect("it is there");
        assert_eq!(facts.mode, 0o600);
        assert_eq!(fs::read_dir(&dir).expect("it is there").count(), 1);
        fs::remove_dir_all(&dir).expect("it is ours");
    }

    #[test]
    fn a_missing_damaged_or_hostile_file_is_as_good_as_none() {
        let dir = scratch("damaged");
        let path = RunInfo::path(&dir);
        assert_eq!(RunInfo::read(&dir), None);
        for damaged in [
            &b""[..],
            b"\0\0\0\0",
            b"{",
            b"[]",
            b"{\"version\":1}",
            b"{\"version\":1,\"pid\":-4}",
            b"{\"version\":1,\"pid\":12345678901234567890}",
            b"{\"version\":1,\"pid\":1,\"started_at\":7}",
            b"{\"version\":1,\"pid\":1}\xff",
        ] {
            fs::write(&path, damaged).expect("it can be written");
            assert_eq!(RunInfo::read(&dir), None, "{}", damaged.escape_ascii());
        }
        fs::remove_file(&path).expect("it is there");
        std::os::unix::fs::symlink("/etc/passwd", &path).expect("links can be made");
        assert_eq!(RunInfo::read(&dir), None);
        fs::remove_file(&path).expect("it is there");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo is there").success());
        assert_eq!(RunInfo::read(&dir), None, "and it must not hang");
        fs::remove_dir_all(&dir).expect("it is ours");
    }

    #[test]
    fn a_file_with_less_or_more_than_we_know_still_says_who_runs() {
        let dir = scratch("other");
        let text = r#"{"version":2,"pid":4711,"start_time":7,"brand_new":{"a":1}}"#;
        fs::write(RunInfo::path(&dir), text).expect("it can be written");
        let info = RunInfo::read(&dir).expect("it says who runs");
        assert_eq!(
            (info.version, info.pid, info.start_time),
            (2, 4711, Some(7))
        );
        fs::remove_dir_all(&dir).expect("it is ours");
    }

    #[test]
    fn a_write_that_fails_says_where_and_leaves_the_old_text() {
        let dir = scratch("busy");
        let info = RunInfo {
            pid: 1,
            ..RunInfo::default()
        };
        info.write(&dir).expect("it can be written");
        fs::create_dir(dir.join("run.json.tmp")).expect("it can be made");
        let e = RunInfo::default()
            .write(&dir)
            .expect_err("the temporary name is taken");
        assert!(e.to_string().contains("run.json: "), "{e}");
        assert_eq!(RunInfo::read(&dir).map(|i| i.pid), Some(1));
        fs::remove_dir_all(&dir).expect("it is ours");
    }
}
