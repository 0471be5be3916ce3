//! Feeds on disk: `sources/<slug>.json` and, beside it, `sources/<slug>.watch`.
//!
//! The feed file is [`Feed`] as JSON. The watch file holds the one thing in it
//! that no listing can bring back: `{"version":1,"watch_from":"…"}`, written
//! durably once, with the first save. When the feed file is lost or damaged
//! and set aside, the feed is made anew from the watch file: no cursor, so the
//! next listing is a full one, which repeats nothing because the records know
//! what was seen; and nobody in `open`, so an item that vanished upstream in
//! the meantime, unseen by that listing, is not concluded to be gone. Without
//! a watch file it is a feed never watched. A damaged watch file counts by the
//! time it was written, within the feed's first cycle.

use super::atomic::Batch;
use super::head::{Keys, VERSION, Wrong};
use super::layout::Layout;
use super::ledger::Ledger;
use super::reader::{LoadError, read_file};
use crate::engine::delivery::Slug;
use crate::engine::feed::Feed;
use crate::engine::time::Time;
use crate::error::Error;
use serde_json::json;
use std::path::PathBuf;

impl Ledger {
    /// The feed named `slug`, if it was ever watched.
    ///
    /// # Errors
    /// See [`LoadError`]. After `Damaged`, set it aside and load again; until
    /// then, and while it is newer or unreadable, it cannot be saved over.
    pub fn load_feed(&mut self, slug: &Slug) -> Result<Option<Feed>, LoadError> {
        let loaded = load(&self.layout, slug);
        self.hold(self.layout.source(slug), &loaded);
        loaded
    }

    /// Saves a feed durably, after flushing every record saved before: a cursor
    /// is never ahead of its records. 2 syncs, 3 the first time, beside the flush.
    ///
    /// # Errors
    /// Names the file. Either nothing moved, or the new cursor is there and all
    /// records before it are durable.
    pub fn save_feed(&mut self, slug: &Slug, feed: &Feed) -> Result<(), Error> {
        let path = self.layout.source(slug);
        self.may_replace(&path)?;
        self.flush()?;
        let bytes = serde_json::to_vec(feed)
            .map_err(|e| Error::new(format!("cannot write {}", path.display()), e))?;
        let watch = json!({ "version": VERSION, "watch_from": feed.watch_from }).to_string();
        let mut batch = Batch::new(&self.layout.sources());
        if !self.watched.contains(slug) && stored_watch(&self.layout, slug) != Some(feed.watch_from)
        {
            batch.push(self.layout.watch(slug), watch.as_bytes());
        }
        batch.push(path, &bytes);
        batch.commit()?;
        self.watched.insert(slug.clone());
        Ok(())
    }

    /// Puts a damaged feed file out of the way and says where it is now:
    /// `sources/aside/<slug>.<n>.json`.
    ///
    /// # Errors
    /// Names the file, which is where it was.
    pub fn set_feed_aside(&mut self, slug: &Slug) -> Result<PathBuf, Error> {
        let aside = self.layout.sources_aside();
        self.put_aside(&aside, slug, &self.layout.source(slug), None)
    }
}

fn load(layout: &Layout, slug: &Slug) -> Result<Option<Feed>, LoadError> {
    let Some((bytes, modified)) = read_file(&layout.source(slug))? else {
        return Ok(watch_from(layout, slug)?.map(Feed::new));
    };
    let parse = || -> Result<Feed, Wrong> {
        Keys::parse(&bytes)?;
        let mut feed: Feed = serde_json::from_slice(&bytes)?;
        // Cool-downs were kept here once; the host says again what it wants.
        for key in ["not_before", "asked_to_wait_at"] {
            feed.extra.remove(key);
        }
        Ok(feed)
    };
    match parse() {
        Ok(feed) => Ok(Some(feed)),
        Err(Wrong::Newer(version)) => Err(LoadError::Newer { version }),
        Err(Wrong::Damaged(reason)) => Err(LoadError::Damaged { reason, modified }),
    }
}

/// When the feed was first watched, by its watch file.
fn watch_from(layout: &Layout, slug: &Slug) -> Result<Option<Time>, LoadError> {
    let Some((bytes, modified)) = read_file(&layout.watch(slug))? else {
        return Ok(None);
    };
    match Keys::parse(&bytes).and_then(|mut keys| keys.required("watch_from")) {
        Ok(time) => Ok(Some(time)),
        Err(Wrong::Damaged(_)) => Ok(Some(modified)),
        Err(Wrong::Newer(version)) => Err(LoadError::Newer { version }),
    }
}

/// What the watch file says, if it is whole.
fn stored_watch(layout: &Layout, slug: &Slug) -> Option<Time> {
    let (bytes, _) = read_file(&layout.watch(slug)).ok()??;
    Keys::parse(&bytes).ok()?.required("watch_from").ok()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::super::disk::Step;
    use super::super::disk::trace::{self, Break};
    use super::super::testing::{Dir, new_record, temps};
    use super::*;

    fn open(dir: &Dir) -> Ledger {
        Ledger::open(dir.layout()).expect("open")
    }

    fn feed() -> (Slug, Feed) {
        let feed = Feed {
            cursor: Some(json!({"since": "2026-08-05T10:00:00Z", "etag": "W/\"é\""})),
            open: [1, 2, 3, 9].into_iter().collect(),
            absent: [(9, 1)].into(),
            extra: json!({"later": [1]})
                .as_object()
                .cloned()
                .unwrap_or_default(),
            ..Feed::new(Time(1_785_924_000_000))
        };
        (Slug::feed("api", None, Some("octo/api")), feed)
    }

    #[test]
    fn a_feed_comes_back_as_it_was_saved() {
        let dir = Dir::new();
        let (slug, feed) = feed();
        let mut ledger = open(&dir);
        assert_eq!(ledger.load_feed(&slug), Ok(None));
        trace::start(Break::Never);
        ledger.save_feed(&slug, &feed).expect("saved");
        assert_eq!(trace::syncs(&trace::stop()), 3);
        trace::start(Break::Never);
        ledger.save_feed(&slug, &feed).expect("saved");
        assert_eq!(trace::syncs(&trace::stop()), 2);
        assert_eq!(open(&dir).load_feed(&slug), Ok(Some(feed)));
    }

    /// Given records saved for later, when a feed is saved, then they are
    /// durable before its file changes, or it does not change (R3.4).
    #[test]
    fn r3_4_a_cursor_is_never_ahead_of_its_records() {
        let (slug, mut feed) = feed();
        for fail in 0.. {
            let dir = Dir::new();
            let mut ledger = open(&dir);
            ledger.save_feed(&slug, &feed).expect("saved");
            let (item, record) = new_record(7);
            ledger.save_later(&item, &record).expect("kept");
            feed.cursor = Some(json!(fail));
            trace::start(Break::KilledAt(fail));
            let done = ledger.save_feed(&slug, &feed);
            let taken = trace::stop();
            let found = open(&dir)
                .load_feed(&slug)
                .expect("it loads")
                .expect("there");
            if found.cursor == feed.cursor {
                assert!(dir.layout().item(&item).exists());
                let durable = trace::find(&taken, Step::SyncDir, "/items");
                let moved = trace::find(&taken, Step::Rename, "sources/api~octo~api.json");
                assert!(durable.is_some() && durable < moved);
            }
            assert_eq!(temps(dir.path()), Vec::<PathBuf>::new());
            if done.is_ok() {
                break;
            }
        }
    }

    /// Given a feed file that is damaged at any byte, then it is set aside and
    /// the feed goes on from when it was first watched (C111, R6.4).
    #[test]
    fn c111_a_damaged_feed_keeps_when_it_was_first_watched() {
        let dir = Dir::new();
        let (slug, feed) = feed();
        let mut ledger = open(&dir);
        ledger.save_feed(&slug, &feed).expect("saved");
        let path = dir.layout().source(&slug);
        let whole = std::fs::read(&path).expect("there");
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).expect("damaged");
            assert!(
                matches!(ledger.load_feed(&slug), Err(LoadError::Damaged { .. })),
                "{cut}"
            );
        }
        let aside = ledger.set_feed_aside(&slug).expect("set aside");
        assert_eq!(
            std::fs::read(aside).expect("kept"),
            &whole[..whole.len() - 1]
        );
        assert_eq!(
            ledger.load_feed(&slug),
            Ok(Some(Feed::new(feed.watch_from)))
        );
        std::fs::write(dir.layout().watch(&slug), "").expect("damaged");
        let found = ledger.load_feed(&slug).expect("it loads").expect("there");
        assert!(found.watch_from > Time::ZERO, "when it was written");
        std::fs::remove_file(dir.layout().watch(&slug)).expect("removed");
        assert_eq!(ledger.load_feed(&slug), Ok(None));
    }

    /// Given a feed watched since an earlier start, when it is saved, then its watch file is left as it is.
    #[test]
    fn a_watch_file_is_written_once() {
        let dir = Dir::new();
        let (slug, feed) = feed();
        open(&dir).save_feed(&slug, &feed).expect("saved");
        let mut ledger = open(&dir);
        trace::start(Break::Never);
        ledger.save_feed(&slug, &feed).expect("saved");
        assert_eq!(trace::syncs(&trace::stop()), 2);
    }

    /// Given a watch file that is lost, then the next start's first save brings it back.
    #[test]
    fn a_lost_watch_file_is_written_again() {
        let dir = Dir::new();
        let (slug, feed) = feed();
        open(&dir).save_feed(&slug, &feed).expect("saved");
        std::fs::write(dir.layout().watch(&slug), "{").expect("damaged");
        open(&dir).save_feed(&slug, &feed).expect("saved");
        std::fs::remove_file(dir.layout().source(&slug)).expect("removed");
        assert_eq!(
            open(&dir).load_feed(&slug),
            Ok(Some(Feed::new(feed.watch_from)))
        );
    }

    #[test]
    fn a_newer_or_unreadable_feed_is_left_alone() {
        let dir = Dir::new();
        let (slug, feed) = feed();
        let mut ledger = open(&dir);
        ledger.save_feed(&slug, &feed).expect("saved");
        let path = dir.layout().source(&slug);
        std::fs::write(&path, r#"{"version": 3}"#).expect("newer");
        assert_eq!(
            ledger.load_feed(&slug),
            Err(LoadError::Newer { version: 3 })
        );
        assert!(ledger.save_feed(&slug, &feed).is_err());
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("a directory");
        assert!(matches!(
            ledger.load_feed(&slug),
            Err(LoadError::Unreadable { .. })
        ));
        assert!(ledger.save_feed(&slug, &feed).is_err());
    }
}
