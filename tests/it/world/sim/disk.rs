//! A disk that knows what is durable, and the ledger's way of writing to it.
//!
//! What is written is visible at once and durable when its directory was synced; a power
//! cut leaves of each file what was durable or any later content. The contents are
//! always whole, since they are synced before the rename, which `store/` sees to and
//! tests. Every place between two changes is a point at which the poller can die.

use super::Planted;
use super::fate::{Died, Fate};
use super::script::Dice;
use idempoll::engine::delivery::Slug;
use idempoll::engine::feed::Feed;
use idempoll::engine::record::Record;
use idempoll::engine::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A file: what is durable of it, and what was written since. `None`: it is not there.
#[derive(Clone, Debug)]
pub struct File<T> {
    durable: Option<T>,
    since: Vec<Option<T>>,
    /// A sync of it failed: none is believed any more until it is written anew.
    doubtful: bool,
}

impl<T> Default for File<T> {
    fn default() -> Self {
        File {
            durable: None,
            since: Vec::new(),
            doubtful: false,
        }
    }
}

impl<T: Clone> File<T> {
    /// What a reader sees.
    pub fn visible(&self) -> Option<&T> {
        self.since.last().unwrap_or(&self.durable).as_ref()
    }

    /// What a power cut cannot take, if it takes everything else.
    pub fn durable(&self) -> Option<&T> {
        self.durable.as_ref().filter(|_| self.since.is_empty())
    }

    pub fn write(&mut self, content: Option<T>) {
        self.since.push(content);
        self.doubtful = false;
    }

    /// Its directory was synced.
    pub fn sync(&mut self) {
        if !self.doubtful
            && let Some(last) = self.since.pop()
        {
            self.durable = last;
            self.since.clear();
        }
    }

    fn write_anew(&mut self) {
        if let Some(last) = self.since.last().cloned() {
            self.write(last);
            self.sync();
        }
    }

    fn cut(&mut self, dice: &mut Dice) {
        self.doubtful = false;
        if self.since.is_empty() {
            return;
        }
        let keep = dice.roll(self.since.len() as u64 + 1) as usize;
        if keep > 0 {
            self.durable = self.since.swap_remove(keep - 1);
        }
        self.since.clear();
    }
}

/// The state directory.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub records: BTreeMap<Slug, File<Arc<Record>>>,
    pub markers: BTreeMap<Slug, File<()>>,
    pub feed: File<Arc<Feed>>,
    pub watch: File<Time>,
    /// The latest time `run.json` tells of; never synced.
    pub lived: File<Time>,
}

impl Disk {
    /// The machine died.
    pub fn cut(&mut self, dice: &mut Dice) {
        self.records.values_mut().for_each(|f| f.cut(dice));
        self.markers.values_mut().for_each(|f| f.cut(dice));
        self.feed.cut(dice);
        self.watch.cut(dice);
        self.lived.cut(dice);
    }

    /// What the ledger does first: it syncs the directories, and reads the index.
    pub fn open(&mut self) -> Vec<Slug> {
        self.records.values_mut().for_each(|f| f.doubtful = false);
        self.feed.doubtful = false;
        self.records.values_mut().for_each(File::sync);
        self.markers.values_mut().for_each(File::sync);
        self.feed.sync();
        self.watch.sync();
        let marked = self.markers.iter();
        let marked = marked.filter(|(_, f)| f.visible().is_some());
        marked.map(|(slug, _)| slug.clone()).collect()
    }

    pub fn record(&self, slug: &Slug) -> Option<&Arc<Record>> {
        self.records.get(slug)?.visible()
    }

    /// The poller notes in `run.json` that it lives. Never synced; the kernel writes it out some time.
    pub fn lives_at(&mut self, wall: Time) {
        if self.lived.since.len() > 3 {
            self.lived.sync();
        }
        self.lived.write(Some(wall));
    }

    /// What is known of the feed: its file, or else when it was first watched.
    pub fn feed(&self) -> Option<Feed> {
        let feed = self.feed.visible().map(|feed| (**feed).clone());
        feed.or_else(|| self.watch.visible().map(|at| Feed::new(*at)))
    }
}

/// What the one writer of a disk has in memory.
#[derive(Default)]
pub struct Ledger {
    later: BTreeMap<Slug, Arc<Record>>,
    /// Records whose last save failed: what is visible may not be durable.
    unsure: BTreeSet<Slug>,
    watch_known: bool,
    pub planted: Option<Planted>,
}

/// How a save goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Save {
    Works,
    /// Nothing could be written.
    FailsAtOnce,
    /// All was written, and the last sync failed.
    FailsAtLast,
}

impl Ledger {
    pub fn load(
        &mut self,
        disk: &mut Disk,
        slug: &Slug,
        fate: &mut Fate,
    ) -> Result<Option<Record>, Died> {
        if self.later.contains_key(slug) {
            self.flush(disk, Save::Works, fate)?;
        }
        if self.unsure.remove(slug) {
            disk.records.entry(slug.clone()).or_default().write_anew();
            fate.point()?;
        }
        let Some(record) = disk.record(slug).cloned() else {
            unmark(disk, slug);
            return Ok(None);
        };
        let mut record = (*record).clone();
        if !record.is_unfinished() {
            unmark(disk, slug);
        }
        record.stored.marked = is_marked(disk, slug);
        Ok(Some(record))
    }

    /// Says whether it is durable.
    pub fn save(
        &mut self,
        disk: &mut Disk,
        slug: &Slug,
        record: &mut Record,
        how: Save,
        fate: &mut Fate,
    ) -> Result<bool, Died> {
        self.later.remove(slug);
        if record.is_unfinished() {
            mark(disk, slug, fate)?;
        } else if self.planted == Some(Planted::MarkerRemovedFirst) {
            unmark(disk, slug);
            fate.point()?;
        }
        if how == Save::FailsAtOnce {
            return Ok(false);
        }
        let file = disk.records.entry(slug.clone()).or_default();
        file.write(Some(Arc::new(record.clone())));
        fate.point()?;
        let file = disk.records.entry(slug.clone()).or_default();
        if how == Save::FailsAtLast {
            file.doubtful = true;
            self.unsure.insert(slug.clone());
            return Ok(false);
        }
        disk.records.values_mut().for_each(File::sync);
        self.unsure.remove(slug);
        fate.point()?;
        if !record.is_unfinished() {
            unmark(disk, slug);
            fate.point()?;
        }
        record.stored.marked = is_marked(disk, slug);
        Ok(true)
    }

    pub fn save_later(&mut self, slug: &Slug, record: &Record) {
        self.later.insert(slug.clone(), Arc::new(record.clone()));
    }

    /// How many records wait for a flush.
    pub fn waiting(&self) -> usize {
        self.later.len()
    }

    /// Says whether all of it is durable.
    pub fn flush(&mut self, disk: &mut Disk, how: Save, fate: &mut Fate) -> Result<bool, Died> {
        if self.later.is_empty() {
            return Ok(true);
        }
        if how == Save::FailsAtOnce {
            return Ok(false);
        }
        for (slug, record) in &self.later {
            let file = disk.records.entry(slug.clone()).or_default();
            file.write(Some(record.clone()));
            fate.point()?;
        }
        if how == Save::FailsAtLast {
            for slug in self.later.keys() {
                disk.records.entry(slug.clone()).or_default().doubtful = true;
            }
            return Ok(false);
        }
        if self.planted != Some(Planted::BatchNotSynced) {
            disk.records.values_mut().for_each(File::sync);
        }
        fate.point()?;
        for slug in std::mem::take(&mut self.later).keys() {
            unmark(disk, slug);
        }
        Ok(true)
    }

    /// Says whether it is durable.
    pub fn save_feed(
        &mut self,
        disk: &mut Disk,
        feed: &Feed,
        how: Save,
        fate: &mut Fate,
    ) -> Result<bool, Died> {
        if !self.flush(disk, how, fate)? || how == Save::FailsAtOnce {
            return Ok(false);
        }
        if !self.watch_known && disk.watch.visible() != Some(&feed.watch_from) {
            disk.watch.write(Some(feed.watch_from));
            fate.point()?;
        }
        disk.feed.write(Some(Arc::new(feed.clone())));
        fate.point()?;
        if how == Save::FailsAtLast {
            disk.feed.doubtful = true;
            return Ok(false);
        }
        disk.watch.sync();
        disk.feed.sync();
        self.watch_known = true;
        fate.point()?;
        Ok(true)
    }
}

fn is_marked(disk: &Disk, slug: &Slug) -> bool {
    let marker = disk.markers.get(slug);
    marker.is_some_and(|f| f.visible().is_some())
}

fn mark(disk: &mut Disk, slug: &Slug, fate: &mut Fate) -> Result<(), Died> {
    if !is_marked(disk, slug) {
        let marker = disk.markers.entry(slug.clone()).or_default();
        marker.write(Some(()));
        fate.point()?;
        disk.markers.values_mut().for_each(File::sync);
        fate.point()?;
    }
    Ok(())
}

/// Not synced: a marker too many does no harm.
fn unmark(disk: &mut Disk, slug: &Slug) {
    if let Some(marker) = disk.markers.get_mut(slug)
        && marker.visible().is_some()
    {
        marker.write(None);
    }
}
