//! Every path under the state directory, and its mode.
//!
//! ```text
//! STATE/                         0700
//!   poll.pid                     the lock (unless --pidfile says otherwise)
//!   poll.claim.N                 who holds it where there is no lock
//!   run.json                     who runs; nothing depends on it
//!   items/<slug>.json            one record per item: the head
//!   items/<slug>.d/              what of the record never changes again: its blocks
//!   items/aside/                 damaged records, kept
//!   items/.tmp/                  files being written
//!   pending/<slug>               an empty file per unfinished record
//!   pending/.items               which items/ the markers were made for
//!   sources/<slug>.json          one per feed: cursor, open items
//!   sources/<slug>.watch         when the feed was first watched, once more
//!   sources/aside/               damaged ones, kept
//!   hosts/<slug>.json            one per host and token that had to wait
//!   hosts/aside/                 damaged ones, kept
//!   runs/<slug>/<sink>/          receipts of one sink for one record
//!   requests/                    what the ledger verbs asked for
//!   log/events.jsonl             the event log; events.1.jsonl is the one before
//! ```
//!
//! Directories are made with mode 0700, files with 0600.

use crate::engine::delivery::Slug;
use std::path::{Path, PathBuf};

/// The mode of every directory made here.
pub const DIR_MODE: u32 = 0o700;

/// Where everything is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The state directory.
    pub state_dir: PathBuf,
}

impl Layout {
    /// The layout below `state_dir`.
    #[must_use]
    pub fn new(state_dir: impl Into<PathBuf>) -> Layout {
        Layout {
            state_dir: state_dir.into(),
        }
    }

    /// `STATE/run.json`.
    #[must_use]
    pub fn run_info(&self) -> PathBuf {
        self.state_dir.join("run.json")
    }

    /// `STATE/items/`.
    #[must_use]
    pub fn items(&self) -> PathBuf {
        self.state_dir.join("items")
    }

    /// `STATE/items/<slug>.json`: a record's head.
    #[must_use]
    pub fn item(&self, slug: &Slug) -> PathBuf {
        self.items().join(format!("{slug}.json"))
    }

    /// `STATE/items/<slug>.d/`: a record's blocks.
    #[must_use]
    pub fn item_blocks(&self, slug: &Slug) -> PathBuf {
        self.items().join(format!("{slug}.d"))
    }

    /// `STATE/items/.tmp/`: where the files of `items/` are written before
    /// they are renamed into place. A directory of its own beside its targets:
    /// on their file system, and cheap to sweep however many records there are.
    #[must_use]
    pub fn item_temps(&self) -> PathBuf {
        self.items().join(".tmp")
    }

    /// `STATE/items/aside/`: damaged records.
    #[must_use]
    pub fn items_aside(&self) -> PathBuf {
        self.items().join("aside")
    }

    /// `STATE/pending/`.
    #[must_use]
    pub fn pending(&self) -> PathBuf {
        self.state_dir.join("pending")
    }

    /// `STATE/pending/<slug>`: marks an unfinished record.
    #[must_use]
    pub fn marker(&self, slug: &Slug) -> PathBuf {
        self.pending().join(slug.as_str())
    }

    /// `STATE/pending/.items`: which `items/` the markers were made for.
    #[must_use]
    pub fn pending_seal(&self) -> PathBuf {
        self.pending().join(".items")
    }

    /// `STATE/sources/`.
    #[must_use]
    pub fn sources(&self) -> PathBuf {
        self.state_dir.join("sources")
    }

    /// `STATE/sources/<slug>.json`: a feed.
    #[must_use]
    pub fn source(&self, slug: &Slug) -> PathBuf {
        self.sources().join(format!("{slug}.json"))
    }

    /// `STATE/sources/<slug>.watch`: when the feed was first watched.
    #[must_use]
    pub fn watch(&self, slug: &Slug) -> PathBuf {
        self.sources().join(format!("{slug}.watch"))
    }

    /// `STATE/sources/aside/`: damaged feed files.
    #[must_use]
    pub fn sources_aside(&self) -> PathBuf {
        self.sources().join("aside")
    }

    /// `STATE/hosts/`.
    #[must_use]
    pub fn hosts(&self) -> PathBuf {
        self.state_dir.join("hosts")
    }

    /// `STATE/hosts/<slug>.json`: what a host lets a token ask.
    #[must_use]
    pub fn host(&self, slug: &Slug) -> PathBuf {
        self.hosts().join(format!("{slug}.json"))
    }

    /// `STATE/hosts/aside/`: damaged files of hosts.
    #[must_use]
    pub fn hosts_aside(&self) -> PathBuf {
        self.hosts().join("aside")
    }

    /// `STATE/runs/`.
    #[must_use]
    pub fn runs(&self) -> PathBuf {
        self.state_dir.join("runs")
    }

    /// `STATE/requests/`.
    #[must_use]
    pub fn requests(&self) -> PathBuf {
        self.state_dir.join("requests")
    }

    /// `STATE/log/`.
    #[must_use]
    pub fn log_dir(&self) -> PathBuf {
        self.state_dir.join("log")
    }

    /// The event log as it was `n` rotations ago: `events.jsonl`, `events.1.jsonl`, …
    #[must_use]
    pub fn log(&self, n: u32) -> PathBuf {
        self.log_dir().join(match n {
            0 => "events.jsonl".to_string(),
            n => format!("events.{n}.jsonl"),
        })
    }
}

/// The directory a path of ours is in.
pub(super) fn parent(path: &Path) -> &Path {
    // A bare file name is in the current directory.
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::item::ItemRef;

    #[test]
    fn every_path_is_below_the_state_directory() {
        let layout = Layout::new("/s");
        let item: ItemRef = "github:Octo/API#7".parse().expect("a ref");
        let slug = Slug::new("api", &item);
        let paths = [
            (layout.run_info(), "/s/run.json"),
            (layout.item(&slug), "/s/items/api~octo~api~7.json"),
            (layout.item_blocks(&slug), "/s/items/api~octo~api~7.d"),
            (layout.item_temps(), "/s/items/.tmp"),
            (layout.marker(&slug), "/s/pending/api~octo~api~7"),
            (layout.watch(&slug), "/s/sources/api~octo~api~7.watch"),
            (layout.runs(), "/s/runs"),
            (layout.hosts(), "/s/hosts"),
            (layout.log(0), "/s/log/events.jsonl"),
            (layout.log(2), "/s/log/events.2.jsonl"),
        ];
        for (path, want) in paths {
            assert_eq!(path, Path::new(want));
        }
    }
}
