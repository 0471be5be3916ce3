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
use super::ledger::{Ledger, put_aside};
use super::reader::{LoadError, Reader, read_file};
use crate::engine::delivery::Slug;
use crate::engine::feed::{Feed, Runs};
use crate::engine::time::Time;
use crate::error::Error;
use serde_json::{Map, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

impl Ledger {
    /// The feed named `slug`, if it was ever watched.
    ///
    /// # Errors
    /// See [`LoadError`]. After `Damaged`, set it aside and load again.
    pub fn load_feed(&self, slug: &Slug) -> Result<Option<Feed>, LoadError> {
        load(&self.layout, slug)
    }

    /// Saves a feed durably, after flushing every record saved before: a cursor
    /// is never ahead of its records. 2 syncs, 3 the first time, beside the flush.
    ///
    /// # Errors
    /// Names the file. Either nothing moved, or the new cursor is there and all
    /// records before it are durable.
    pub fn save_feed(&mut self, slug: &Slug, feed: &Feed) -> Result<(), Error> {
        self.flush()?;
        let path = self.layout.source(slug);
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
        put_aside(&aside, slug, &self.layout.source(slug), None)
    }
}

impl Reader {
    /// The feed named `slug`, if it was ever watched.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load_feed(&self, slug: &Slug) -> Result<Option<Feed>, LoadError> {
        load(self.layout(), slug)
    }
}

fn load(layout: &Layout, slug: &Slug) -> Result<Option<Feed>, LoadError> {
    let Some((bytes, modified)) = read_file(&layout.source(slug))? else {
        return Ok(watch_from(layout, slug)?.map(anew));
    };
    let parse = || -> Result<Feed, Wrong> {
        Keys::parse(&bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    };
    match parse() {
        Ok(feed) => Ok(Some(feed)),
        Err(Wrong::Newer(version)) => Err(LoadError::Newer { version }),
        Err(Wrong::Damaged(reason)) => Err(LoadError::Damaged { reason, modified }),
    }
}

/// A feed of which only the beginning is known.
fn anew(watch_from: Time) -> Feed {
    Feed {
        version: 1,
        watch_from,
        cursor: None,
        open: Runs::default(),
        absent: BTreeMap::new(),
        not_before: None,
        extra: Map::new(),
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
