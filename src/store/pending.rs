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
use crate::os::file;
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

    /// Marks records durably, before they are saved unfinished. 1 sync if any
    /// was not marked, none if all were.
    pub(super) fn mark<'a>(&mut self, slugs: impl Iterator<Item = &'a Slug>) -> Result<(), Error> {
        let new: Vec<&Slug> = slugs.filter(|slug| !self.marked.contains(*slug)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let touched = new.iter().try_for_each(|slug| self.touch(slug));
        let synced = touched.and_then(|()| atomic::sync_dir(&self.layout.pending()));
        if let Err(e) = synced {
            // Made anew next time, so that the sync that failed is not believed then.
            for slug in new {
                let _ = disk::remove(&self.layout.marker(slug));
            }
            return Err(e);
        }
        self.marked.extend(new.into_iter().cloned());
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
        .and_then(|dir| file::identity(&dir))
        .map_err(|e| cannot_read(&items, &e))?;
    Ok(format!("{inode} {born}"))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::super::disk::trace::{self, Break};
    use super::super::ledger::Ledger;
    use super::super::testing::{Dir, add_pending, new_record};
    use super::*;
    use std::path::Path;

    /// A ledger of six records: 1 and 2 are unfinished, 3 is damaged, 4 is of
    /// a newer version, 5 is a directory, 6 is finished.
    fn fill(dir: &Dir) -> Vec<Slug> {
        let layout = dir.layout();
        let mut ledger = Ledger::open(layout.clone()).expect("open");
        let mut slugs = Vec::new();
        for n in 1..=6 {
            let (slug, mut record) = new_record(n);
            if n <= 2 {
                add_pending(&mut record, n, "{}");
            }
            ledger.save(&slug, &mut record).expect("saved");
            slugs.push(slug);
        }
        std::fs::write(layout.item(&slugs[2]), "{").expect("damaged");
        std::fs::write(layout.item(&slugs[3]), r#"{"version": 2}"#).expect("newer");
        std::fs::remove_file(layout.item(&slugs[4])).expect("removed");
        std::fs::create_dir(layout.item(&slugs[4])).expect("a directory");
        slugs
    }

    fn pending(dir: &Dir) -> Vec<Slug> {
        let ledger = Ledger::open(dir.layout()).expect("open");
        ledger.pending().expect("the index")
    }

    /// Given records and no index, or one killed at any step of being made,
    /// then the next start marks all that is not certainly finished.
    #[test]
    fn an_index_that_is_missing_is_made_again() {
        for kill in 0.. {
            let dir = Dir::new();
            let slugs = fill(&dir);
            std::fs::remove_dir_all(dir.layout().pending()).expect("removed");
            trace::start(Break::KilledAt(kill));
            let cut = Ledger::open(dir.layout()).map(drop);
            trace::stop();
            assert_eq!(pending(&dir), slugs[..5], "killed at {kill}");
            if cut.is_ok() {
                break;
            }
        }
    }

    /// Given an index made for another `items/` (a backup whose two directories
    /// are from different moments), then it is not trusted, and nothing in it is lost.
    #[test]
    fn the_index_of_a_copy_is_not_trusted() {
        let dir = Dir::new();
        let slugs = fill(&dir);
        let layout = dir.layout();
        assert_eq!(pending(&dir), slugs[..2], "what the writer did not damage");
        std::fs::remove_file(layout.marker(&slugs[0])).expect("a marker is missing");
        assert_eq!(
            pending(&dir),
            slugs[1..2],
            "while it is trusted, it is believed"
        );
        let items = layout.items();
        let old = dir.path().join("old");
        std::fs::rename(&items, &old).expect("moved");
        std::fs::create_dir(&items).expect("a new directory");
        for entry in std::fs::read_dir(&old).expect("a directory") {
            let from = entry.expect("an entry").path();
            let to = items.join(from.file_name().expect("a name"));
            std::fs::rename(from, to).expect("moved");
        }
        assert_eq!(pending(&dir), slugs[..5]);
    }

    /// Given markers without need, then loading what they mark removes them,
    /// and other files in the index do no harm.
    #[test]
    fn markers_without_need_are_removed() {
        let dir = Dir::new();
        let layout = dir.layout();
        let (slug, mut record) = new_record(1);
        let (gone, _) = new_record(2);
        let mut ledger = Ledger::open(layout.clone()).expect("open");
        ledger.save(&slug, &mut record).expect("saved");
        for name in [slug.as_str(), gone.as_str(), "Not A Slug", ".hidden"] {
            std::fs::write(layout.pending().join(name), "").expect("a file");
        }
        let mut ledger = Ledger::open(layout.clone()).expect("open");
        assert_eq!(ledger.pending(), Ok(vec![slug.clone(), gone.clone()]));
        assert!(ledger.load(&slug).is_ok_and(|r| r.is_some()));
        assert_eq!(ledger.load(&gone), Ok(None));
        assert_eq!(pending(&dir), vec![]);
        assert!(Path::new(&layout.pending().join(".hidden")).exists());
    }

    /// Given a marker whose directory could not be flushed, then the record is
    /// not saved, and the next try makes the marker anew.
    #[test]
    fn a_marker_not_known_to_be_durable_is_made_anew() {
        let dir = Dir::new();
        let mut ledger = Ledger::open(dir.layout()).expect("open");
        let (slug, mut record) = new_record(1);
        add_pending(&mut record, 1, "{}");
        trace::start(Break::FailsAt(1, 5));
        assert!(ledger.save(&slug, &mut record).is_err());
        trace::stop();
        assert!(!dir.layout().item(&slug).exists() && !dir.layout().marker(&slug).exists());
        ledger.save(&slug, &mut record).expect("saved");
        assert!(dir.layout().marker(&slug).exists());
    }
}
