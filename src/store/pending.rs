//! The pending index, `pending/`: which records a start has to read.
//!
//! One empty file, named after the record, per unfinished record. A marker is
//! there and durable before the record's unfinished state becomes visible; it
//! is removed, without a sync, only after a state that is finished is durable.
//! So whatever happens there can be too many markers, never too few, and one
//! too many costs one read at the next start.
//!
//! The index is trusted only for the `items/` it was made for:
//! `pending/.items` holds that directory's inode number and time of birth. When
//! it is missing or does not match (a fresh state directory, one from before the
//! index, a copy, a restored backup, where the two directories may be from
//! different moments) every record is read once, markers are added for those
//! that are unfinished or cannot be read, and only when they are durable is
//! `.items` written. Nothing is removed by this, and a crash in the middle
//! leaves no `.items`, so it begins again: it, too, can only err towards too many.
//! Who puts single record files back by hand removes `pending/` with them.

use super::atomic::{self, cannot_write};
use super::disk;
use super::head::Head;
use super::layout::Layout;
use super::reader::{cannot_read, read_file, slugs_in};
use crate::engine::delivery::Slug;
use crate::error::Error;
use crate::os::fs as os;
use std::collections::BTreeSet;
use std::fs::File;

/// The index of one ledger, and what is in it.
#[derive(Debug)]
pub(super) struct Index {
    layout: Layout,
    marked: BTreeSet<Slug>,
}

impl Index {
    /// Opens the index; makes it if there is none that can be trusted.
    /// `items/` and `pending/` must be there. No sync if it can be trusted.
    pub(super) fn open(layout: &Layout) -> Result<Index, Error> {
        let mut index = Index {
            layout: layout.clone(),
            marked: slugs_in(&layout.pending(), "")?.into_iter().collect(),
        };
        let seal = seal(layout)?;
        let found = read_file(&layout.pending_seal()).ok().flatten();
        if found.is_none_or(|(bytes, _)| bytes != seal.as_bytes()) {
            index.rebuild()?;
            atomic::write(&layout.pending_seal(), seal.as_bytes())?;
        }
        Ok(index)
    }

    /// Marks every record that is not certainly finished. 1 sync.
    fn rebuild(&mut self) -> Result<(), Error> {
        for slug in slugs_in(&self.layout.items(), ".json")? {
            let finished = match read_file(&self.layout.item(&slug)) {
                Ok(Some((bytes, _))) => Head::parse(&bytes).is_ok_and(|h| !h.is_unfinished()),
                Ok(None) => true,
                Err(_) => false,
            };
            if !finished {
                self.touch(&slug)?;
                self.marked.insert(slug);
            }
        }
        atomic::sync_dir(&self.layout.pending())
    }

    /// Marks a record durably, before it is saved unfinished. 1 sync if it was
    /// not marked, none if it was.
    pub(super) fn mark(&mut self, slug: &Slug) -> Result<(), Error> {
        if self.marked.contains(slug) {
            return Ok(());
        }
        self.touch(slug)?;
        if let Err(e) = atomic::sync_dir(&self.layout.pending()) {
            // Made anew next time, so that the sync that failed is not believed then.
            let _ = disk::remove(&self.layout.marker(slug));
            return Err(e);
        }
        self.marked.insert(slug.clone());
        Ok(())
    }

    /// Removes a marker, after a finished record is durable. No sync.
    pub(super) fn unmark(&mut self, slug: &Slug) {
        // One that cannot be removed is one too many, which does no harm.
        if self.marked.contains(slug) && disk::remove(&self.layout.marker(slug)).is_ok() {
            self.marked.remove(slug);
        }
    }

    /// Whether a record is marked.
    pub(super) fn has(&self, slug: &Slug) -> bool {
        self.marked.contains(slug)
    }

    /// All marked records, sorted.
    pub(super) fn all(&self) -> Vec<Slug> {
        self.marked.iter().cloned().collect()
    }

    fn touch(&self, slug: &Slug) -> Result<(), Error> {
        let marker = self.layout.marker(slug);
        match disk::create(&marker) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            done => done.map(drop).map_err(|e| cannot_write(&marker, &e)),
        }
    }
}

/// What tells this `items/` from a copy of it.
fn seal(layout: &Layout) -> Result<String, Error> {
    let items = layout.items();
    let (inode, born) = File::open(&items)
        .and_then(|dir| os::identity(&dir))
        .map_err(|e| cannot_read(&items, &e))?;
    Ok(format!("{inode} {born}"))
}
