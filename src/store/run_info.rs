//! `STATE/run.json`: who runs, or ran last, and how it is going.
//!
//! ```json
//! { "version": 1, "pid": 4711, "start_time": 123456, "boot_id": "6f…", "pid_ns": 4026531836,
//!   "program": "0.1.0", "config": "/etc/idempoll/config.json", "pidfile": "/var/lib/idempoll/poll.pid",
//!   "started_at": "2026-08-05T10:00:00.000Z", "stop_asked_at": null, "stopped_at": null,
//!   "last_cycle": { "at": "…", "duration_ms": 120, "items": 3, "delivered": 1, "failed": 0, "interrupted": false },
//!   "next_cycle_at": "…", "goes_on_with": null, "pending": 0, "gave_up": 0, "store_error": null, "config_error": null,
//!   "sources": [ { "name": "api", "ok": true, "error": null, "failing_since": null, "items": 3, "last_listing_at": "…" } ],
//!   "hosts": [ { "host": "api.github.com", "token": "3fa9c1d20b7e4455", "limit": 5000, "remaining": 4890, … } ] }
//! ```
//!
//! Written by the poller alone, while it holds the lock: first as soon as it
//! has it, then after every cycle, in a long one every few seconds, when its config changes and when it is asked
//! to stop, last before it gives it back. It is for
//! `status` and `stop`. Nothing that must survive depends on it: whoever
//! believes the first line checks it against the process itself, and a reader
//! that finds the file damaged takes it as missing.

use super::{Layout, atomic};
use crate::engine::host::Host;
use crate::engine::time::Time;
use crate::error::Error;
use crate::os::file::{self, Facts};
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    /// The feed the next cycle begins with, by its file name; `None` if the last one came to all.
    #[serde(default)]
    pub goes_on_with: Option<String>,
    /// Deliveries not resolved yet.
    #[serde(default)]
    pub pending: u64,
    /// Deliveries given up.
    #[serde(default)]
    pub gave_up: u64,
    /// The sources, in the order of the config.
    #[serde(default)]
    pub sources: Vec<SourceInfo>,
    /// What the trackers' hosts allow, each by token.
    #[serde(default)]
    pub hosts: Vec<Host>,
    /// Why nothing can be recorded at present, and so nothing is delivered.
    #[serde(default)]
    pub store_error: Option<String>,
    /// Why the config as it is now is not used, but the one before it.
    #[serde(default)]
    pub config_error: Option<String>,
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
        Layout::new(state_dir).run_info()
    }

    /// Reads it. `None` when it is missing, unreadable or damaged.
    #[must_use]
    pub fn read(state_dir: &Path) -> Option<RunInfo> {
        let file = file::open_regular(&RunInfo::path(state_dir)).ok()?;
        let facts = Facts::of(&file).ok().filter(|f| f.size <= LARGEST)?;
        let mut text = Vec::new();
        file.take(LARGEST).read_to_end(&mut text).ok()?;
        let mut info: RunInfo = serde_json::from_slice(&text).ok()?;
        info.owner = Some(facts.owner);
        Some(info)
    }

    /// The latest time it names that had passed when it was written.
    #[must_use]
    pub fn latest(&self) -> Time {
        let cycle = self.last_cycle.as_ref();
        let ended = cycle.map(|c| c.at.plus(Duration::from_millis(c.duration_ms)));
        let times = [self.stop_asked_at, self.stopped_at, ended];
        let times = times.into_iter().flatten();
        times.fold(self.started_at, Time::max)
    }

    /// Writes it, whole or not at all, but not durably: after a power cut
    /// nobody needs it. Works as soon as there is a state directory, before the
    /// ledger is opened; what a kill leaves half-written, the ledger removes.
    ///
    /// # Errors
    /// Which file could not be written, and why; then the old one is there.
    pub fn write(&self, state_dir: &Path) -> Result<(), Error> {
        let path = RunInfo::path(state_dir);
        let text = serde_json::to_vec(self)
            .map_err(|e| Error::new(format!("cannot write {}", path.display()), e))?;
        atomic::write_unsynced(&path, &text).or_else(|e| overwrite(&path, &text).map_err(|_| e))
    }
}

/// On a full disk there is no room for a second file, and just then `status` has
/// something to tell: the text goes into the blocks the file has already. A
/// reader may see half of it for an instant; it looks again.
fn overwrite(path: &Path, text: &[u8]) -> io::Result<()> {
    let file = file::open_existing(path)?;
    let facts = file.metadata()?;
    if !facts.is_file() || facts.blocks() * 512 < text.len() as u64 {
        return Err(io::ErrorKind::StorageFull.into());
    }
    file.write_all_at(text, 0)?;
    file.set_len(text.len() as u64)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::super::disk::trace::{self, Break};
    use super::super::ledger::Ledger;
    use super::super::testing::{Dir, temps};
    use super::*;
    use std::fs;

    #[test]
    fn what_is_written_is_read_back_and_nothing_else_is_left() {
        let dir = Dir::new();
        let dir = dir.path();
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
        info.write(dir).expect("it can be written");
        info.write(dir).expect("it can be replaced");
        let mut back = RunInfo::read(dir).expect("it is whole");
        assert!(back.owner.take().is_some());
        assert_eq!(back, info);
        let facts = Facts::at(&RunInfo::path(dir)).expect("it is there");
        assert_eq!(facts.mode, 0o600);
        assert_eq!(fs::read_dir(dir).expect("it is there").count(), 1);
    }

    #[test]
    fn the_latest_time_is_the_last_sign_of_life() {
        let mut run = RunInfo {
            started_at: Time(5000),
            ..RunInfo::default()
        };
        assert_eq!(run.latest(), Time(5000));
        run.last_cycle = Some(LastCycle {
            at: Time(7000),
            duration_ms: 30,
            ..LastCycle::default()
        });
        run.next_cycle_at = Some(Time(67_000));
        assert_eq!(
            run.latest(),
            Time(7030),
            "what is to come is no sign of life"
        );
        run.stopped_at = Some(Time(8000));
        assert_eq!(run.latest(), Time(8000));
    }

    #[test]
    fn a_missing_damaged_or_hostile_file_is_as_good_as_none() {
        let dir = Dir::new();
        let dir = dir.path();
        let path = RunInfo::path(dir);
        assert_eq!(RunInfo::read(dir), None);
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
            assert_eq!(RunInfo::read(dir), None, "{}", damaged.escape_ascii());
        }
        fs::remove_file(&path).expect("it is there");
        std::os::unix::fs::symlink("/etc/passwd", &path).expect("links can be made");
        assert_eq!(RunInfo::read(dir), None);
        fs::remove_file(&path).expect("it is there");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo is there").success());
        assert_eq!(RunInfo::read(dir), None, "and it must not hang");
    }

    #[test]
    fn a_file_with_less_or_more_than_we_know_still_says_who_runs() {
        let dir = Dir::new();
        let dir = dir.path();
        let text = r#"{"version":2,"pid":4711,"start_time":7,"brand_new":{"a":1}}"#;
        fs::write(RunInfo::path(dir), text).expect("it can be written");
        let info = RunInfo::read(dir).expect("it says who runs");
        assert_eq!(
            (info.version, info.pid, info.start_time),
            (2, 4711, Some(7))
        );
    }

    /// Given a disk with no room for a second file, when it is written, then it
    /// is written where it is (R3.5); and whatever a kill leaves half-written,
    /// opening the ledger removes.
    #[test]
    fn r3_5_without_room_for_a_second_file_it_is_written_in_place() {
        let dir = Dir::new();
        let dir = dir.path();
        let run = |pid| RunInfo {
            pid,
            ..RunInfo::default()
        };
        // Before there is a ledger.
        run(1).write(dir).expect("it can be written");
        for (at, pid) in (0..3).zip(2..) {
            trace::start(Break::FailsAt(at, 28));
            run(pid).write(dir).expect("it has room of its own");
            trace::stop();
            assert_eq!(RunInfo::read(dir).map(|i| i.pid), Some(pid));
            assert_eq!(temps(dir).len(), 0);
        }
        // More than the room it has: the old text stays.
        let long = RunInfo {
            store_error: Some("x".repeat(100_000)),
            ..run(9)
        };
        trace::start(Break::FailsAt(0, 28));
        let e = long.write(dir).expect_err("there is no room");
        trace::stop();
        assert!(e.to_string().contains("run.json: "), "{e}");
        assert_eq!(RunInfo::read(dir).map(|i| i.pid), Some(4));
        trace::start(Break::KilledAt(1));
        let _ = run(9).write(dir);
        trace::stop();
        Ledger::open(Layout::new(dir)).expect("it opens");
        assert_eq!(temps(dir).len(), 0);
    }

    /// The room a file has is that of its blocks, all of it.
    #[test]
    fn a_file_is_written_in_place_up_to_the_end_of_its_blocks() {
        let dir = Dir::new();
        let path = dir.path().join("run.json");
        fs::write(&path, [b' '; 5000]).expect("written");
        fs::File::open(&path)
            .and_then(|f| f.sync_all())
            .expect("its blocks are there");
        let room = fs::metadata(&path).expect("there").blocks() as usize * 512;
        assert!(room >= 5000);
        overwrite(&path, &vec![b'x'; room]).expect("it fits");
        assert_eq!(fs::read(&path).expect("there"), vec![b'x'; room]);
        assert!(overwrite(&path, &vec![b'y'; room + 1]).is_err());
        assert_eq!(fs::read(&path).expect("there")[0], b'x');
    }
}
