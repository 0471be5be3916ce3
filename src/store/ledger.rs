//! The ledger: what the one writer does with records.
//!
//! | operation | syncs |
//! |---|---|
//! | [`Ledger::open`] | 3, plus 1 if directories were made, plus 3 if the pending index is made anew |
//! | [`Ledger::load`] | 0 |
//! | [`Ledger::save`], finished or already marked | 2 (the head, its directory) |
//! | [`Ledger::save`], unfinished and not marked | 3 (before those: the marker's directory) |
//! | [`Ledger::save_all`] of `n` such records | `n` heads, and the directories once |
//! | … with `n` new blocks | plus `n` (1 if more than 3) and 1, and 1 more for the record's first block |
//! | [`Ledger::flush`] | 1 to 3 for up to three records, else 1; and 1 for the directory |
//! | [`Ledger::set_aside`] | 2, plus 1 the first time ever |
//!
//! A start costs what is unfinished, not what is known: opening lists
//! `pending/` and never `items/`, and only marked records are read afterwards.

use super::atomic::{self, Batch, cannot_write};
use super::blocks::{EVENTS_PREFIX, Plan, events_name};
use super::layout::Layout;
use super::pending::Index;
use super::reader::{self, LoadError, aside_path, cannot_read, read_file};
use super::{disk, head};
use crate::engine::delivery::Slug;
use crate::engine::record::Record;
use crate::error::Error;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// How many records wait for a flush at most.
const LATER: usize = 64;

/// The ledger, for the one process that may write it.
#[derive(Debug)]
pub struct Ledger {
    pub(super) layout: Layout,
    index: Index,
    /// Records saved with `save_later` and not flushed.
    later: BTreeMap<Slug, Files>,
    /// Files that could not be loaded and so must not be replaced, and why.
    held: HashMap<PathBuf, String>,
    /// Records whose last save failed: what is visible may not be durable.
    unsure: HashSet<Slug>,
    /// Feeds whose watch file is known to be right.
    pub(super) watched: HashSet<Slug>,
}

/// The files of a record, ready to be written.
#[derive(Debug)]
struct Files {
    head: Vec<u8>,
    blocks: Vec<(String, Vec<u8>)>,
}

impl Ledger {
    /// Opens the ledger: makes its directories, removes what killed
    /// predecessors left half-written, makes what they renamed durable, and
    /// sees to the pending index. Fails at once where nothing can be written.
    /// The caller holds the lock of the state directory.
    ///
    /// # Errors
    /// Names the file or directory.
    pub fn open(layout: Layout) -> Result<Ledger, Error> {
        make_directories(&layout)?;
        for dir in [&layout.state_dir, &layout.sources(), &layout.requests()] {
            atomic::sweep(dir)?;
        }
        for dir in [layout.hosts(), layout.item_temps(), layout.pending()] {
            atomic::sweep(&dir)?;
        }
        atomic::check_writable(&layout.item_temps())?;
        // What a predecessor renamed and did not get to sync is visible and not
        // yet durable. This run draws conclusions from it (removes a marker,
        // moves a cursor), which must not outlive it in a power cut.
        for dir in [layout.items(), layout.pending(), layout.sources()] {
            atomic::sync_dir(&dir)?;
        }
        Ok(Ledger {
            index: Index::open(&layout)?,
            layout,
            later: BTreeMap::new(),
            held: HashMap::new(),
            unsure: HashSet::new(),
            watched: HashSet::new(),
        })
    }

    /// The record named `slug`, if there is one.
    ///
    /// Whatever could not be loaded is also protected: it cannot be saved over
    /// until it loads, or was set aside. A marker without need is removed.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load(&mut self, slug: &Slug) -> Result<Option<Record>, LoadError> {
        if self.later.contains_key(slug) {
            self.flush().map_err(|e| LoadError::Unreadable {
                reason: e.to_string(),
            })?;
        }
        self.make_sure(slug)?;
        let loaded = reader::load(&self.layout, slug);
        self.hold(self.layout.item(slug), &loaded);
        match loaded {
            Ok(Some(mut record)) => {
                if record.is_unfinished() {
                    // Only missing if somebody removed it; one too many does no harm.
                    let _ = self.index.mark(std::iter::once(slug));
                } else {
                    self.index.unmark(slug);
                }
                record.stored.marked = self.index.has(slug);
                Ok(Some(record))
            }
            Ok(None) | Err(LoadError::SetAside { .. }) => {
                self.index.unmark(slug);
                loaded
            }
            Err(_) => loaded,
        }
    }

    /// Saves a record: durable when this returns `Ok`. Fills in `record.stored`.
    ///
    /// # Errors
    /// Names the file. The old record is whole, or the new one is there and not
    /// known to be durable; save again before anything depends on it.
    pub fn save(&mut self, slug: &Slug, record: &mut Record) -> Result<(), Error> {
        self.save_all(&mut [(slug.clone(), record)])
    }

    /// Saves several records as [`Ledger::save`] does one, all durable when this returns `Ok`.
    ///
    /// # Errors
    /// Names the first file that made trouble. That holds for none of the records then:
    /// each is as after a failed [`Ledger::save`], and to be saved again, best alone.
    pub fn save_all(&mut self, records: &mut [(Slug, &mut Record)]) -> Result<(), Error> {
        for (slug, record) in records.iter() {
            self.may_save(slug, record)?;
        }
        // What waits for a flush is older than what is saved now.
        for (slug, _) in records.iter() {
            self.later.remove(slug);
        }
        let unfinished = records.iter().filter(|(_, record)| record.is_unfinished());
        self.index.mark(unfinished.map(|(slug, _)| slug))?;
        let mut heads = Vec::with_capacity(records.len());
        let mut plans = Vec::with_capacity(records.len());
        for (slug, record) in records.iter() {
            let plan = self.plan(slug, record)?;
            heads.push(self.head(slug, record, &plan)?);
            plans.push(plan);
        }
        let new = records.iter().zip(&plans);
        self.write_blocks(new.map(|((slug, _), plan)| (slug, &plan.new)))?;
        let mut moved = Vec::with_capacity(records.len());
        for ((_, record), plan) in records.iter_mut().zip(plans) {
            // From here on the new blocks are on disk and never written again,
            // whether or not the head makes it: one that seems to have failed may be there.
            moved.push(plan.events_moved);
            record.stored.known_blocks = plan.known_blocks;
            record.stored.event_blocks = plan.event_blocks;
        }
        let mut batch = Batch::new(&self.layout.item_temps()).each_alone();
        for ((slug, _), head) in records.iter().zip(&heads) {
            batch.push(self.layout.item(slug), head);
            self.unsure.insert(slug.clone());
        }
        batch.commit()?;
        for ((slug, record), moved) in records.iter_mut().zip(moved) {
            self.unsure.remove(slug);
            if moved {
                self.remove_unlisted_blocks(slug, record);
            }
            if !record.is_unfinished() {
                self.index.unmark(slug);
            }
            record.stored.marked = self.index.has(slug);
        }
        Ok(())
    }

    /// Saves a record some time before the next [`Ledger::flush`] returns `Ok`;
    /// for records nothing depends on yet. An unfinished one is saved at once.
    /// `record.stored` is left as it is: load the record again before it is
    /// changed again, or blocks are written twice.
    ///
    /// # Errors
    /// As [`Ledger::save`]; what waits goes on waiting.
    pub fn save_later(&mut self, slug: &Slug, record: &Record) -> Result<(), Error> {
        if record.is_unfinished() || !record.events.is_empty() {
            return self.save(slug, &mut record.clone());
        }
        self.may_save(slug, record)?;
        let plan = self.plan(slug, record)?;
        let head = self.head(slug, record, &plan)?;
        let blocks = plan.new;
        self.later.insert(slug.clone(), Files { head, blocks });
        if self.later.len() >= LATER {
            self.flush()?;
        }
        Ok(())
    }

    /// Makes everything given to [`Ledger::save_later`] durable.
    ///
    /// # Errors
    /// Names the file. All of it goes on waiting and is written anew next time.
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.later.is_empty() {
            return Ok(());
        }
        self.write_blocks(self.later.iter().map(|(slug, files)| (slug, &files.blocks)))?;
        let mut batch = Batch::new(&self.layout.item_temps());
        for (slug, files) in &self.later {
            batch.push(self.layout.item(slug), &files.head);
        }
        batch.commit()?;
        for slug in std::mem::take(&mut self.later).keys() {
            self.index.unmark(slug);
        }
        Ok(())
    }

    /// Puts a damaged record out of the way, with its blocks, and says where it
    /// is now: `items/aside/<slug>.<n>.json` and `<slug>.<n>.d`. Nothing is
    /// deleted. From now on it loads as [`LoadError::SetAside`] until a record is
    /// saved in its place, so that it is reported once and never "first seen".
    ///
    /// # Errors
    /// Names the file, which is where it was.
    pub fn set_aside(&mut self, slug: &Slug) -> Result<PathBuf, Error> {
        let aside = self.layout.items_aside();
        let blocks = self.layout.item_blocks(slug);
        let to = self.put_aside(&aside, slug, &self.layout.item(slug), Some(&blocks))?;
        self.index.unmark(slug);
        Ok(to)
    }

    /// The records marked as unfinished, sorted. Those that turn out to be
    /// finished lose their marker when they are loaded.
    ///
    /// # Errors
    /// None at present; reading the index may need the disk one day.
    pub fn pending(&self) -> Result<Vec<Slug>, Error> {
        Ok(self.index.all())
    }

    /// After a save that failed in its last step the new record may be what is
    /// loaded, and the old one what a power cut brings back. Writes what is
    /// there anew, so that what is loaded is durable.
    fn make_sure(&mut self, slug: &Slug) -> Result<(), LoadError> {
        if !self.unsure.contains(slug) {
            return Ok(());
        }
        let path = self.layout.item(slug);
        if let Some((bytes, _)) = read_file(&path)? {
            let mut batch = Batch::new(&self.layout.item_temps());
            batch.push(path, &bytes);
            batch.commit().map_err(|e| LoadError::Unreadable {
                reason: e.to_string(),
            })?;
        }
        self.unsure.remove(slug);
        Ok(())
    }

    /// Remembers whether the file at `path` may be replaced, now that it was loaded or not.
    pub(super) fn hold<T>(&mut self, path: PathBuf, loaded: &Result<T, LoadError>) {
        match loaded {
            Ok(_) | Err(LoadError::SetAside { .. }) => self.held.remove(&path),
            Err(e) => self.held.insert(path, e.to_string()),
        };
    }

    /// Refuses to replace a file that could not be loaded.
    pub(super) fn may_replace(&self, path: &Path) -> Result<(), Error> {
        match self.held.get(path) {
            None => Ok(()),
            Some(why) => Err(refused(path, &format!("the one there must be kept: {why}"))),
        }
    }

    /// Puts a file out of the way; from then on it may be replaced.
    pub(super) fn put_aside(
        &mut self,
        aside: &Path,
        slug: &Slug,
        file: &Path,
        blocks: Option<&Path>,
    ) -> Result<PathBuf, Error> {
        let to = put_aside(aside, slug, file, blocks)?;
        self.held.remove(file);
        Ok(to)
    }

    fn may_save(&self, slug: &Slug, record: &Record) -> Result<(), Error> {
        let path = self.layout.item(slug);
        if Slug::new(&record.source, &record.item) != *slug {
            return Err(refused(
                &path,
                &format!("it is not the file of {}", record.item),
            ));
        }
        self.may_replace(&path)
    }

    fn plan(&self, slug: &Slug, record: &Record) -> Result<Plan, Error> {
        Plan::of(record).map_err(|e| cannot_write(&self.layout.item(slug), &e.into()))
    }

    fn head(&self, slug: &Slug, record: &Record, plan: &Plan) -> Result<Vec<u8>, Error> {
        head::text(record, plan).map_err(|e| cannot_write(&self.layout.item(slug), &e.into()))
    }

    /// Writes new blocks durably, with the directories they are in.
    fn write_blocks<'a>(
        &self,
        all: impl IntoIterator<Item = (&'a Slug, &'a Vec<(String, Vec<u8>)>)>,
    ) -> Result<(), Error> {
        let mut batch = Batch::new(&self.layout.item_temps());
        let mut made = false;
        for (slug, blocks) in all {
            let dir = self.layout.item_blocks(slug);
            if !blocks.is_empty() {
                made |= disk::make_dir(&dir).map_err(|e| cannot_write(&dir, &e))?;
            }
            for (name, bytes) in blocks {
                batch.push(dir.join(name), bytes);
            }
        }
        if made {
            atomic::sync_dir(&self.layout.items())?;
        }
        batch.commit()
    }

    /// Removes the blocks of events that the head just saved does not list.
    fn remove_unlisted_blocks(&self, slug: &Slug, record: &Record) {
        let dir = self.layout.item_blocks(slug);
        let listed: HashSet<String> = record
            .stored
            .event_blocks
            .keys()
            .map(|&first| events_name(first))
            .collect();
        // What cannot be listed or removed now is removed another time.
        for name in disk::list(&dir).unwrap_or_default() {
            let unlisted = name
                .to_str()
                .is_some_and(|n| n.starts_with(EVENTS_PREFIX) && !listed.contains(n));
            if unlisted {
                let _ = disk::remove(&dir.join(name));
            }
        }
    }
}

fn make_directories(layout: &Layout) -> Result<(), Error> {
    let state = &layout.state_dir;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(super::layout::DIR_MODE)
        .create(state)
        .map_err(|e| cannot_write(state, &e))?;
    let mut made = false;
    for dir in [
        layout.items(),
        layout.item_temps(),
        layout.pending(),
        layout.sources(),
        layout.hosts(),
        layout.runs(),
        layout.requests(),
        layout.log_dir(),
    ] {
        made |= disk::make_dir(&dir).map_err(|e| cannot_write(&dir, &e))?;
    }
    if made {
        atomic::sync_dir(state)?;
    }
    Ok(())
}

/// Renames a damaged file (and the directory that belongs to it) into `aside`
/// under the first free number, durably.
fn put_aside(aside: &Path, slug: &Slug, file: &Path, dir: Option<&Path>) -> Result<PathBuf, Error> {
    let cannot = |e: std::io::Error| Error::new(format!("cannot set aside {}", file.display()), e);
    let home = super::layout::parent(file);
    std::fs::symlink_metadata(file).map_err(|e| cannot_read(file, &e))?;
    if disk::make_dir(aside).map_err(cannot)? {
        atomic::sync_dir(home)?;
    }
    let dir = dir.filter(|d| d.exists());
    let mut n = 1;
    let (to, dir_to) = loop {
        let to = aside_path(aside, slug, n);
        let dir_to = to.with_extension("d");
        // Blocks alone are those of this very record: the last try was cut between the two.
        if !there(&to) && (dir.is_none() || !there(&dir_to)) {
            break (to, dir_to);
        }
        n += 1;
    };
    if let Some(dir) = dir {
        disk::rename(dir, &dir_to).map_err(cannot)?;
    }
    disk::rename(file, &to).map_err(cannot)?;
    atomic::sync_dir(aside)?;
    atomic::sync_dir(home)?;
    Ok(to)
}

fn refused(path: &Path, why: &str) -> Error {
    Error::new(format!("cannot write {}", path.display()), why)
}

fn there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}
