//! The state machine: facts in, steps out.
//!
//! The driver in `daemon/` asks [`Engine::next`] for a step, carries it out,
//! and reports what became of it through [`Engine::on`]; when there is no step
//! it waits for something to happen. The engine holds the records that have
//! something pending and no others.
//!
//! The order of the steps is the promise:
//!
//! * a record with a try taken is saved before the try is delivered (R3.7);
//! * an outcome is saved before anything that depends on it;
//! * an item is durable before the next one is looked at (R3.1);
//! * a feed's cursor is saved last, after every record its listing touched (R3.4);
//! * only a complete listing concludes that something is gone (R4.2);
//! * after [`Fact::StopAsked`] nothing new begins (R2.5).
//!
//! This file holds the machine and its records; `walk.rs` what concerns
//! listings, `flight.rs` what concerns tries.

use super::budget::{Attempt, Budget};
use super::delivery::{Delivery, Outcome, Receipt, Slug};
use super::entry::Entry;
use super::feed::Feed;
use super::item::ItemRef;
use super::listing::{Heard, Listing};
use super::plan::Rules;
use super::record::Record;
use super::time::Time;
use super::walk::Walk;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// What the engine is told once, at the start.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// The feeds, in the order they are listed.
    pub feeds: Vec<FeedSetup>,
    /// How many deliveries each sink takes at once.
    pub slots: BTreeMap<String, usize>,
    /// The pause after a first failed try.
    pub retry_pause: Duration,
    /// The version of idempoll.
    pub version: String,
    /// A cycle ends only when everything due in it is resolved (`--once`);
    /// otherwise deliveries go on while the next one begins.
    pub once: bool,
}

/// One feed: what is listed on its own and has a cursor of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedSetup {
    /// Its file name.
    pub slug: Slug,
    /// The ref its items have, but for the number.
    pub template: ItemRef,
    /// What its items are judged by.
    pub rules: Rules,
}

/// Something that happened.
#[derive(Debug)]
pub enum Fact {
    /// A [`Step::Load`] was answered.
    Loaded {
        /// Which record.
        slug: Slug,
        /// What was found.
        found: Found,
    },
    /// A [`Step::Save`] is durable.
    Saved {
        /// Which record.
        slug: Slug,
    },
    /// A save, of whatever kind, failed; nothing of it can be relied on.
    SaveFailed {
        /// Why.
        reason: String,
    },
    /// A [`Step::Flush`] is done: every [`Step::SaveLater`] before it is durable.
    Flushed,
    /// A [`Step::SaveFeed`] is durable.
    FeedSaved,
    /// A cycle is due.
    CycleDue,
    /// The listing said something. At most one at a time, see [`Engine::listens`].
    Heard(Heard),
    /// The listing ended.
    Listed(Listing),
    /// A try came back.
    Settled {
        /// The record.
        slug: Slug,
        /// The sink.
        sink: String,
        /// How it ended.
        outcome: Outcome,
    },
    /// A [`Step::Settle`] was answered.
    Receipt {
        /// The record.
        slug: Slug,
        /// The sink.
        sink: String,
        /// What the sink still knows.
        receipt: Receipt,
    },
    /// The user asked for deliveries that were given up to be tried again.
    Retry {
        /// Of this item, or of all.
        item: Option<ItemRef>,
        /// This delivery (its id or its key), or all of the item's.
        delivery: Option<String>,
    },
    /// A stop was asked for.
    StopAsked,
}

/// What loading a record found.
#[derive(Debug)]
pub enum Found {
    /// The record.
    Record(Box<Record>),
    /// There is none.
    Nothing,
    /// It is damaged; the file was last written at `modified`.
    Damaged {
        /// What is wrong with it.
        reason: String,
        /// When it was last written.
        modified: Time,
    },
    /// It was damaged and set aside before, and nothing took its place yet.
    SetAside {
        /// When it was last written.
        modified: Time,
    },
    /// It cannot be read now, or a newer version wrote it: leave it alone.
    Unreadable {
        /// Why.
        reason: String,
    },
}

/// Something to do.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Read a record; answer [`Fact::Loaded`].
    Load(Slug),
    /// Keep a copy of a damaged record's file aside.
    SetAside(Slug),
    /// Make a record durable, as [`Engine::record`] gives it; answer
    /// [`Fact::Saved`] or [`Fact::SaveFailed`].
    Save(Slug),
    /// Write a record on which nothing depends before the next [`Step::Flush`];
    /// answer [`Fact::Saved`] or [`Fact::SaveFailed`].
    SaveLater(Slug),
    /// Make what was saved later durable; answer [`Fact::Flushed`] or [`Fact::SaveFailed`].
    Flush,
    /// Make a feed durable, as [`Engine::feed_to_save`] gives it; answer
    /// [`Fact::FeedSaved`] or [`Fact::SaveFailed`].
    SaveFeed(usize),
    /// Begin to list a feed.
    List {
        /// Which, by its place in [`Setup::feeds`].
        feed: usize,
        /// Where the last listing left off.
        cursor: Option<Value>,
        /// Since when it is watched.
        watch_from: Option<Time>,
    },
    /// Leave the listing behind.
    Abandon,
    /// Hand a delivery to a worker; answered by [`Fact::Settled`] some time.
    Deliver(Delivery),
    /// Ask for the receipt of a try; answer [`Fact::Receipt`].
    Settle(Delivery),
    /// Wait for a running try of an earlier poller; answered by [`Fact::Settled`] some time.
    Adopt(Delivery),
    /// Let go of a receipt nobody needs any more.
    Forget(Delivery),
    /// Write an entry into the event log.
    Log(Entry),
    /// A cycle ended.
    CycleEnded(Summary),
}

/// What a cycle came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// When it began.
    pub started_at: Time,
    /// Items being worked on in all feeds.
    pub items: usize,
    /// Feeds whose listing failed or was cut.
    pub failed_feeds: usize,
    /// Items that could not be read.
    pub item_errors: usize,
    /// Deliveries since the end of the cycle before.
    pub delivered: u64,
    /// Failed tries since the end of the cycle before.
    pub failed: u64,
    /// A stop cut it short.
    pub interrupted: bool,
    /// Something changed, was delivered or failed: worth an entry in the log.
    pub eventful: bool,
}

/// Deliveries counted since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// `opened` and `reopened` delivered.
    pub opened: u64,
    /// Comments, reviews and review comments delivered.
    pub comments: u64,
    /// `closed` delivered.
    pub closed: u64,
    /// Failed tries.
    pub failed: u64,
    /// "Not now"s.
    pub deferred: u64,
    /// Interruptions found.
    pub interrupted: u64,
    /// Tries whose effect goes on after a stop; the next start takes them up again.
    pub left_running: u64,
    /// What failed or was put off, for the user: delivery id, sink, reason.
    pub complaints: Vec<String>,
}

impl Totals {
    /// All deliveries.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.opened + self.comments + self.closed
    }
}

/// How a feed is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// Why its last listing failed, if it did.
    pub error: Option<String>,
    /// Since when it fails.
    pub failing_since: Option<Time>,
    /// When it was last listed in full length.
    pub last_listing_at: Option<Time>,
    /// Items that could not be read in the last listing, and why.
    pub item_errors: BTreeMap<String, String>,
}

/// The engine.
#[derive(Debug)]
pub struct Engine {
    pub(super) setup: Setup,
    pub(super) feeds: Vec<FeedState>,
    pub(super) records: BTreeMap<Slug, Held>,
    pub(super) flights: BTreeMap<(Slug, String), Attempt>,
    /// Free slots by sink; below zero when an earlier poller left more runs than there are slots.
    pub(super) free: BTreeMap<String, i64>,

    pub(super) waiting: BTreeMap<String, BTreeSet<(Time, Slug)>>,
    pub(super) due: BTreeMap<(Slug, String), Time>,
    pub(super) dirty: BTreeSet<Slug>,
    pub(super) steps: VecDeque<Step>,
    pub(super) walk: Option<Walk>,
    pub(super) unflushed: bool,
    pub(super) cycle: Option<Cycle>,
    pub(super) totals: Totals,
    pub(super) noted: Totals,
    pub(super) store_trouble: Option<Trouble>,
    pub(super) stopping: bool,
}

#[derive(Debug)]
pub(super) struct FeedState {
    /// As it is on disk.
    pub saved: Option<Feed>,
    pub health: Health,
}

/// A record in memory.
#[derive(Debug)]
pub(super) struct Held {
    pub record: Record,
    pub feed: usize,
    /// Tries taken, to be handed out once the record is durable.
    pub taken: Vec<Delivery>,
    /// To be logged once the record is durable.
    pub after_save: Vec<Step>,
}

#[derive(Debug)]
pub(super) struct Cycle {
    pub next_feed: usize,
    pub summary: Summary,
}

/// Records cannot be written at present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Why.
    pub reason: String,
    /// When it is tried again.
    pub retry_at: Time,
}

/// How long after a failed save it is tried again.
const STORE_PAUSE: Duration = Duration::from_secs(5);

impl Engine {
    /// An engine over feeds as they were stored; `pending` names the records that may have something to do.
    #[must_use]
    pub fn new(setup: Setup, feeds: Vec<Option<Feed>>, pending: Vec<Slug>) -> Engine {
        let feeds = feeds
            .into_iter()
            .map(|saved| FeedState {
                saved,
                health: Health::default(),
            })
            .collect();
        Engine {
            free: setup
                .slots
                .iter()
                .map(|(s, n)| (s.clone(), i64::try_from(*n).unwrap_or(i64::MAX)))
                .collect(),
            setup,
            feeds,
            records: BTreeMap::new(),
            flights: BTreeMap::new(),
            waiting: BTreeMap::new(),
            due: BTreeMap::new(),
            dirty: BTreeSet::new(),
            steps: pending.into_iter().map(Step::Load).collect(),
            walk: None,
            unflushed: false,
            cycle: None,
            totals: Totals::default(),
            noted: Totals::default(),
            store_trouble: None,
            stopping: false,
        }
    }

    /// The next thing to do, or `None` until something happens or [`Engine::wakes_at`].
    pub fn next(&mut self, now: Time) -> Option<Step> {
        if let Some(step) = self.steps.pop_front() {
            return Some(step);
        }
        self.fill_slots(now);
        self.save_step(now)
            .or_else(|| self.walk_step(now))
            .or_else(|| self.cycle_step(now))
            .or_else(|| self.last_flush())
    }

    /// Takes a fact.
    pub fn on(&mut self, now: Time, fact: Fact) {
        match fact {
            Fact::Loaded { slug, found } => self.loaded(now, slug, found),
            Fact::Saved { slug } => self.saved(now, &slug),
            Fact::SaveFailed { reason } => self.save_failed(now, reason),
            Fact::Flushed => self.unflushed = false,
            Fact::FeedSaved => self.feed_saved(now),
            Fact::CycleDue => self.begin_cycle(now),
            Fact::Heard(heard) => self.heard(now, heard),
            Fact::Listed(listing) => self.listed(listing),
            Fact::Settled {
                slug,
                sink,
                outcome,
            } => self.settled(now, &slug, &sink, outcome),
            Fact::Receipt {
                slug,
                sink,
                receipt,
            } => self.receipt(now, &slug, &sink, receipt),
            Fact::Retry { item, delivery } => self.retry(now, item.as_ref(), delivery.as_deref()),
            Fact::StopAsked => self.stop(now),
        }
    }

    /// Whether the engine is ready for another [`Fact::Heard`].
    #[must_use]
    pub fn listens(&self) -> bool {
        self.walk.as_ref().is_some_and(Walk::listens)
    }

    /// When there may be something to do again without anything happening.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Time> {
        if let Some(trouble) = &self.store_trouble {
            return Some(trouble.retry_at);
        }
        if self.stopping {
            return None;
        }
        let free = |sink: &String| self.free.get(sink).copied().unwrap_or(0) > 0;
        self.waiting
            .iter()
            .filter(|(sink, _)| free(sink))
            .filter_map(|(_, queue)| queue.first().map(|(at, _)| *at))
            .min()
    }

    /// Whether nothing is in flight, unsaved or under way.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.flights.is_empty()
            && self.dirty.is_empty()
            && self.steps.is_empty()
            && self.walk.is_none()
            && self.cycle.is_none()
            && !self.unflushed
    }

    /// Whether a delivery is due now that no worker has taken yet.
    #[must_use]
    pub fn has_due(&self, now: Time) -> bool {
        self.waiting
            .values()
            .any(|queue| queue.first().is_some_and(|(at, _)| *at <= now))
    }

    /// How many tries are in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// A record to be saved.
    pub fn record(&mut self, slug: &Slug) -> Option<&mut Record> {
        self.records.get_mut(slug).map(|h| &mut h.record)
    }

    /// The file name of a feed, by its place.
    #[must_use]
    pub fn feed_slug(&self, feed: usize) -> &Slug {
        &self.setup.feeds[feed].slug
    }

    /// What was counted since the start.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// How each feed is doing: its place, its health, its items.
    pub fn health(&self) -> impl Iterator<Item = (&FeedSetup, &Health, usize)> {
        let state = self
            .feeds
            .iter()
            .map(|f| (&f.health, f.saved.as_ref().map_or(0, |s| s.open.len())));
        self.setup
            .feeds
            .iter()
            .zip(state)
            .map(|(setup, (health, items))| (setup, health, items))
    }

    /// Why nothing can be recorded at present, if so.
    #[must_use]
    pub fn store_trouble(&self) -> Option<&Trouble> {
        self.store_trouble.as_ref()
    }

    /// Deliveries waiting and given up, over all records.
    #[must_use]
    pub fn backlog(&self) -> (usize, usize) {
        let held = self.records.values();
        held.fold((0, 0), |(p, g), h| {
            (p + h.record.pending(), g + h.record.gave_up())
        })
    }

    /// Ends the engine: tries still in flight are left for the next start to settle.
    pub fn leave(self) {
        for attempt in self.flights.into_values() {
            attempt.leave();
        }
    }

    pub(super) fn log(&mut self, entry: Entry) {
        self.steps.push_back(Step::Log(entry));
    }

    /// The feed a record belongs to: by its file name, since the config may
    /// write a repository's name in other letters than it did before.
    pub(super) fn feed_of(&self, slug: &Slug) -> Option<usize> {
        let (feed, _) = slug.as_str().rsplit_once('~')?;
        self.setup
            .feeds
            .iter()
            .position(|f| f.slug.as_str() == feed)
    }

    /// Takes a record into memory, or back after a change.
    pub(super) fn hold(&mut self, slug: &Slug, feed: usize, record: Record) {
        match self.records.get_mut(slug) {
            Some(held) => held.record = record,
            None => {
                let held = Held {
                    record,
                    feed,
                    taken: Vec::new(),
                    after_save: Vec::new(),
                };
                self.records.insert(slug.clone(), held);
            }
        }
        self.schedule(slug);
    }

    /// Marks a record as changed; `after` is done once it is durable.
    pub(super) fn touch(&mut self, slug: &Slug, after: impl IntoIterator<Item = Step>) {
        if let Some(held) = self.records.get_mut(slug) {
            held.after_save.extend(after);
            self.dirty.insert(slug.clone());
        }
    }

    fn save_step(&mut self, now: Time) -> Option<Step> {
        if self
            .store_trouble
            .as_ref()
            .is_some_and(|t| now < t.retry_at)
        {
            return None;
        }
        let slug = self.dirty.first()?.clone();
        let held = self.records.get(&slug)?;
        // Nothing depends on a record without work but the cursor, which is saved after a flush.
        if held.record.is_unfinished() || held.record.stored.marked {
            Some(Step::Save(slug))
        } else {
            self.unflushed = true;
            Some(Step::SaveLater(slug))
        }
    }

    /// What was saved later is made durable once its listing is over, however it
    /// ended; while one goes on, its end does it, before the cursor moves.
    fn last_flush(&mut self) -> Option<Step> {
        let listing = self.walk.is_some();
        (self.unflushed && !listing && self.store_trouble.is_none()).then_some(Step::Flush)
    }

    fn saved(&mut self, now: Time, slug: &Slug) {
        self.store_trouble = None;
        self.dirty.remove(slug);
        let Some(held) = self.records.get_mut(slug) else {
            return;
        };
        self.steps.extend(held.after_save.drain(..));
        let taken = std::mem::take(&mut held.taken);
        for delivery in taken {
            let entry = super::flight::delivery_entry(now, "dispatch.queued", &delivery);
            self.steps.push_back(Step::Log(entry));
            self.steps.push_back(Step::Deliver(delivery));
        }
        self.let_go(slug);
    }

    /// A record with nothing to do, and that nobody is about to judge by, needs no memory.
    pub(super) fn let_go(&mut self, slug: &Slug) {
        if self.walk.as_ref().is_some_and(|w| w.needs(slug)) {
            return;
        }
        let in_flight = self.flights.keys().any(|(s, _)| s == slug);
        let idle = |h: &Held| !h.record.is_unfinished() && h.after_save.is_empty();
        if !in_flight && !self.dirty.contains(slug) && self.records.get(slug).is_some_and(idle) {
            self.records.remove(slug);
        }
    }

    fn save_failed(&mut self, now: Time, reason: String) {
        if self.store_trouble.is_none() {
            self.log(Entry::new(now, "poll.store_error").with("reason", reason.clone()));
        }
        self.store_trouble = Some(Trouble {
            reason: reason.clone(),
            retry_at: now.plus(STORE_PAUSE),
        });
        // What is not recorded is not delivered: tries taken go back.
        let taken: Vec<Delivery> = self
            .records
            .values_mut()
            .flat_map(|h| h.taken.drain(..))
            .collect();
        for delivery in taken {
            self.give_back(now, &delivery);
        }
        // Records saved for later are listed again, since the cursor stays where it is.
        self.unflushed = false;
        self.drop_walk(now, &format!("its items cannot be recorded: {reason}"));
    }

    fn loaded(&mut self, now: Time, slug: Slug, found: Found) {
        let mut aside = None;
        let damaged = matches!(found, Found::Damaged { .. } | Found::SetAside { .. });
        let record = match found {
            Found::Record(record) => Some(*record),
            Found::Nothing => None,
            Found::Damaged { reason, modified } => {
                aside = Some(
                    Entry::new(now, "record.set_aside")
                        .with("record", slug.to_string())
                        .with("reason", reason),
                );
                self.instead_of_damaged(&slug, modified)
            }
            Found::SetAside { modified } => self.instead_of_damaged(&slug, modified),
            Found::Unreadable { reason } => {
                let entry = Entry::new(now, "poll.item_error")
                    .with("record", slug.to_string())
                    .with("reason", reason);
                self.log(entry);
                self.skip(&slug);
                return;
            }
        };
        if let Some(entry) = aside {
            self.steps.push_back(Step::SetAside(slug.clone()));
            self.log(entry);
        }
        if let Some(record) = record
            && let Some(feed) = self.feed_of(&slug)
        {
            self.hold(&slug, feed, record);
            if damaged {
                self.touch(&slug, []);
            }
            self.resume(now, &slug, feed);
        }
        self.let_go(&slug);
    }

    fn instead_of_damaged(&self, slug: &Slug, modified: Time) -> Option<Record> {
        let (feed, number) = slug.as_str().rsplit_once('~')?;
        let number: u64 = number.parse().ok()?;
        let at = self
            .setup
            .feeds
            .iter()
            .position(|f| f.slug.as_str() == feed)?;
        let setup = &self.setup.feeds[at];
        // Before a feed's first complete listing its roster says nothing yet.
        let was_active = match &self.feeds[at].saved {
            Some(saved) => saved.cursor.is_none() || saved.open.contains(number),
            None => true,
        };
        let item = ItemRef {
            number,
            ..setup.template.clone()
        };
        Some(Record::instead_of_damaged(
            &setup.rules.source,
            item,
            was_active,
            modified,
        ))
    }

    fn retry(&mut self, now: Time, item: Option<&ItemRef>, delivery: Option<&str>) {
        let slugs: Vec<Slug> = self.records.keys().cloned().collect();
        let mut any = false;
        for slug in slugs {
            let Some(held) = self.records.get_mut(&slug) else {
                continue;
            };
            let its = held.record.item.clone();
            if item.is_some_and(|i| *i != its) {
                continue;
            }
            let rearmed = held.record.rearm(|key, _| {
                delivery
                    .is_none_or(|d| d == &*key.0 || d == super::delivery::delivery_id(&its, key))
            });
            any |= !rearmed.is_empty();
            let entries = rearmed.iter().map(|(sink, key)| {
                Step::Log(super::plan::rearmed_entry(
                    now,
                    &its,
                    sink,
                    key,
                    "asked for",
                ))
            });
            let entries: Vec<Step> = entries.collect();
            if !entries.is_empty() {
                self.touch(&slug, entries);
                self.schedule(&slug);
            }
        }
        if !any {
            let what = item.map_or("any item".to_string(), ToString::to_string);
            let reason = format!("nothing of {what} was given up, so there is nothing to retry");
            self.log(Entry::new(now, "poller.warning").with("reason", reason));
        }
    }

    fn stop(&mut self, now: Time) {
        if self.stopping {
            return;
        }
        self.stopping = true;
        // Nothing new begins: tries taken but not handed out go back.
        let mut back: Vec<Delivery> = self
            .records
            .values_mut()
            .flat_map(|h| h.taken.drain(..))
            .collect();
        let steps = std::mem::take(&mut self.steps);
        for step in steps {
            match step {
                Step::Deliver(delivery) => back.push(delivery),
                // Records not yet looked at stay as they are on disk.
                Step::Load(_) => {}
                other => self.steps.push_back(other),
            }
        }
        for delivery in back {
            self.abandoned(now, &delivery);
        }
        if self.walk.take().is_some() {
            self.steps.push_back(Step::Abandon);
            if let Some(cycle) = &mut self.cycle {
                cycle.summary.interrupted = true;
            }
        }
        if let Some(cycle) = &mut self.cycle {
            cycle.summary.interrupted |=
                self.setup.once || cycle.next_feed < self.setup.feeds.len();
            cycle.next_feed = self.setup.feeds.len();
        }
    }
}

/// What tries of a feed's items cost.
pub(super) fn budget(setup: &Setup, feed: usize) -> Budget {
    Budget {
        max_retries: setup.feeds[feed].rules.policy.max_retries,
        pause: setup.retry_pause,
        version: setup.version.clone(),
    }
}
