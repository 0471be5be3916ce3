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
//! This file holds the machine and its records; `step.rs` its vocabulary,
//! `walk.rs` what concerns listings, `flight.rs` tries, `saving.rs` saves.

use super::budget::{Attempt, Budget};
use super::delivery::{Delivery, Outcome, Slug};
use super::entry::Entry;
use super::feed::Feed;
use super::host::{Host, Hosts};
use super::item::ItemRef;
use super::parked::Parked;
use super::record::Record;
use super::saving::Saving;
use super::step::{Fact, FeedSetup, Found, Health, Setup, Step, Summary, Totals};
use super::time::Time;
use super::walk::Walk;
use crate::mutant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The engine.
#[derive(Debug)]
pub struct Engine {
    pub(super) setup: Setup,
    pub(super) feeds: Vec<FeedState>,
    /// What the trackers' hosts let us ask.
    pub(super) hosts: Hosts,
    pub(super) records: BTreeMap<Slug, Held>,
    pub(super) flights: BTreeMap<(Slug, String), Attempt>,
    /// Free slots by sink; below zero when an earlier poller left more runs than there are slots.
    pub(super) free: BTreeMap<String, i64>,

    pub(super) waiting: BTreeMap<String, BTreeSet<(Time, Slug)>>,
    pub(super) due: BTreeMap<(Slug, String), Time>,
    pub(super) saving: Saving,
    pub(super) parked: Parked,
    pub(super) steps: VecDeque<Step>,
    pub(super) walk: Option<Walk>,
    /// Records that could not be read, and why; tried again at each cycle.
    pub(super) unreadable: BTreeMap<Slug, String>,
    pub(super) cycle: Option<Cycle>,
    /// The feed the next cycle begins with, so that a limit which never lasts for all of them is
    /// never used up by the same ones, and a poller that never ends a cycle comes to all.
    pub(super) first_feed: usize,
    pub(super) totals: Totals,
    pub(super) noted: Totals,
    /// The latest time heard of, to notice a clock that was set back.
    pub(super) latest: Time,
    /// By how much it was, since before the records still on disk were written.
    pub(super) set_back: Duration,
    pub(super) stopping: bool,
}

#[derive(Debug)]
pub(super) struct FeedState {
    /// As it is on disk.
    pub saved: Option<Feed>,
    pub health: Health,
    /// The host and the token it was last listed with.
    pub asked_with: Option<(String, String)>,
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
    /// The feed it begins with; the others follow in order, those before it last.
    pub first_feed: usize,
    /// How many feeds it has come to.
    pub next_feed: usize,
    /// The first feed that a limit or a stop kept it from.
    pub kept_from: Option<usize>,
    pub summary: Summary,
}

/// Clocks are corrected by less than this all the time.
pub(super) const SET_BACK: Duration = Duration::from_secs(2);

impl Engine {
    /// An engine over feeds as they were stored; `pending` names the records that may have something to do.
    #[must_use]
    pub fn new(setup: Setup, feeds: Vec<Option<Feed>>, pending: Vec<Slug>) -> Engine {
        let feeds = feeds
            .into_iter()
            .map(|saved| FeedState {
                saved,
                health: Health::default(),
                asked_with: None,
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
            hosts: Hosts::default(),
            records: BTreeMap::new(),
            flights: BTreeMap::new(),
            waiting: BTreeMap::new(),
            due: BTreeMap::new(),
            saving: Saving::default(),
            parked: Parked::default(),
            steps: pending.into_iter().map(Step::Load).collect(),
            walk: None,
            unreadable: BTreeMap::new(),
            cycle: None,
            first_feed: 0,
            totals: Totals::default(),
            noted: Totals::default(),
            latest: Time::ZERO,
            set_back: Duration::ZERO,
            stopping: false,
        }
    }

    /// The next thing to do, or `None` until something happens or [`Engine::wakes_at`].
    pub fn next(&mut self, now: Time) -> Option<Step> {
        self.notice(now);
        if let Some(step) = self.steps.pop_front() {
            return Some(step);
        }
        self.fill_slots(now);
        self.next_save(now)
            .or_else(|| self.walk_step(now))
            .or_else(|| self.cycle_step(now))
            .or_else(|| self.last_flush(now))
    }

    /// Takes a fact.
    pub fn on(&mut self, now: Time, fact: Fact) {
        match fact {
            Fact::Loaded { slug, found } => self.loaded(now, slug, found),
            Fact::Saved { slug } => self.saved(now, &slug),
            Fact::SaveFailed { what, reason } => self.save_failed(now, &what, reason),
            Fact::Flushed => self.flushed(now),
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

    /// The latest time the poller, this one or an earlier, is known to have lived at, by this
    /// clock: if that is still to come, the clock was set back since.
    pub fn lived_until(&mut self, latest: Time) {
        self.latest = latest;
    }

    /// A clock that was set back must not push what is due out of reach (C023).
    fn notice(&mut self, now: Time) {
        let by = self.latest.since(now);
        self.latest = now;
        if by < SET_BACK || mutant::is("set-back-ignored") {
            return;
        }
        let reason = format!("the clock was set back by {} s", by.as_secs());
        self.log(Entry::new(now, "poller.warning").with("reason", reason));
        self.saving.set_back(by);
        self.set_parked_back(by);
        self.hosts.set_back(by);
        let slugs: Vec<Slug> = self.records.keys().cloned().collect();
        for slug in slugs {
            if let Some(held) = self.records.get_mut(&slug) {
                held.record.set_back(by);
            }
            // On disk as well: another life of the poller does not know of this.
            self.touch(&slug, []);
            self.schedule(&slug);
        }
        self.set_back += by;
    }

    /// Whether the engine is ready for another [`Fact::Heard`].
    #[must_use]
    pub fn listens(&self) -> bool {
        self.walk.as_ref().is_some_and(Walk::listens)
    }

    /// When there may be something to do again without anything happening.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Time> {
        let retry_at = self.saving.retry_at();
        if self.stopping || self.saving.is_down(self.latest) {
            return retry_at;
        }
        let free = |sink: &String| self.free.get(sink).copied().unwrap_or(0) > 0;
        let due = self.waiting.iter().filter(|(sink, _)| free(sink));
        due.filter_map(|(_, queue)| queue.first().map(|(at, _)| *at))
            .chain(retry_at)
            .min()
    }

    /// Whether nothing is in flight, unsaved or under way.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.flights.is_empty()
            && self.saving.dirty.is_empty()
            && self.steps.is_empty()
            && self.walk.is_none()
            && self.cycle.is_none()
            && !self.saving.unflushed
    }

    /// Whether a cycle is under way.
    #[must_use]
    pub fn is_cycling(&self) -> bool {
        self.cycle.is_some()
    }

    /// Whether a delivery is due now that no worker has taken yet.
    #[must_use]
    pub fn has_due(&self, now: Time) -> bool {
        self.waiting
            .values()
            .any(|queue| queue.first().is_some_and(|(at, _)| *at <= now))
    }

    /// What is in flight: each delivery's id, and its sink.
    pub fn flying_now(&self) -> impl Iterator<Item = (String, &str)> {
        self.flights.iter().filter_map(|((slug, sink), attempt)| {
            let record = &self.records.get(slug)?.record;
            let event = record.events.get(&attempt.seq())?;
            let id = super::delivery::delivery_id(&record.item, &event.key);
            Some((id, sink.as_str()))
        })
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

    /// Takes over how a source was doing when the last poller ended.
    pub fn recall(
        &mut self,
        source: &str,
        failing_since: Option<Time>,
        last_listing_at: Option<Time>,
    ) {
        for (setup, feed) in self.setup.feeds.iter().zip(&mut self.feeds) {
            if setup.rules.source == source {
                feed.health.failing_since = failing_since;
                feed.health.last_listing_at = last_listing_at;
            }
        }
    }

    /// Takes over what is stored of the trackers' hosts, and what was shown of them last.
    pub fn remember_hosts(&mut self, stored: Vec<Host>, shown: &[Host]) {
        stored
            .into_iter()
            .for_each(|host| self.hosts.remember(host));
        shown.iter().for_each(|host| self.hosts.recall(host));
    }

    /// The feed the next cycle begins with, if that is not the first one: of the cycle under way, which
    /// may end now, or of the last one.
    #[must_use]
    pub fn goes_on_with(&self) -> Option<&Slug> {
        let at = match self.cycle {
            Some(_) => self.kept_from().unwrap_or(0),
            None => self.first_feed,
        };
        let feed = self.setup.feeds.get(at).filter(|_| at > 0);
        feed.map(|feed| &feed.slug)
    }

    /// Begins the first cycle with the feed that the last one of an earlier poller was kept from.
    pub fn go_on_with(&mut self, feed: &str) {
        let mut feeds = self.setup.feeds.iter();
        let at = feeds.position(|setup| setup.slug.as_str() == feed);
        self.first_feed = at
            .filter(|_| !mutant::is("begins-with-the-first"))
            .unwrap_or(0);
    }

    /// What is known of the trackers' hosts.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.hosts.iter()
    }

    /// Goes on counting and reporting where `before` left off, an engine of the same poller with
    /// another config: what was said is not said again, what was counted is not forgotten.
    pub fn follow(&mut self, before: &Engine) {
        self.noted = before.noted.clone();
        self.totals = Totals {
            left_running: 0,
            ..before.totals.clone()
        };
        self.unreadable = before.unreadable.clone();
        self.hosts = before.hosts.clone();
        for (setup, feed) in self.setup.feeds.iter().zip(&mut self.feeds) {
            let mut old = before.setup.feeds.iter().zip(&before.feeds);
            if let Some((_, old)) = old.find(|(old, _)| old.slug == setup.slug) {
                feed.health = old.health.clone();
            }
        }
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

    /// Deliveries waiting and given up, over all records.
    #[must_use]
    pub fn backlog(&self) -> (usize, usize) {
        let held = self.records.values();
        held.fold((self.parked.pending(), 0), |(p, g), h| {
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

    fn loaded(&mut self, now: Time, slug: Slug, found: Found) {
        let mut aside = None;
        let damaged = matches!(found, Found::Damaged { .. } | Found::SetAside { .. })
            && !mutant::is("damaged-is-first-sight");
        let record = match found {
            Found::Record(record) => Some(*record),
            Found::Nothing => None,
            Found::Damaged { reason, modified } => {
                aside = Some(
                    Entry::new(now, "record.set_aside")
                        .with("record", slug.to_string())
                        .with("reason", reason),
                );
                let stand_in = self.instead_of_damaged(now, &slug, modified);
                stand_in.filter(|_| !mutant::is("damaged-is-first-sight"))
            }
            Found::SetAside { modified } => self.instead_of_damaged(now, &slug, modified),
            Found::Unreadable { reason } => {
                self.skip(&slug);
                self.give_up_place(&slug);
                // Said once, and looked at again at each cycle: then it goes on where it was.
                if self
                    .unreadable
                    .insert(slug.clone(), reason.clone())
                    .as_ref()
                    == Some(&reason)
                {
                    return;
                }
                let entry = Entry::new(now, "poll.item_error")
                    .with("record", slug.to_string())
                    .with("reason", reason);
                self.log(entry);
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
            let set_back = self.unpark(&slug);
            self.hold(&slug, feed, record);
            if damaged {
                self.touch(&slug, []);
            }
            self.resume(now, &slug, feed, set_back);
        } else {
            self.give_up_place(&slug);
        }
        self.let_go(&slug);
    }

    fn instead_of_damaged(&self, now: Time, slug: &Slug, modified: Time) -> Option<Record> {
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
            // By a file from the future all that is said until then would count as seen.
            modified.min(now),
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
        self.saving.hurry(now);
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
            let outcome = match mutant::is("abandoned-is-resolved") {
                true => Outcome::Delivered,
                false => Outcome::Released,
            };
            self.settled(now, &delivery.slug, &delivery.sink, outcome);
        }
        let kept_from = self.kept_from();
        let left = match mutant::is("stop-waits-for-network") || mutant::is("stopped-is-complete") {
            true => None,
            false => self.walk.take(),
        };
        if mutant::is("stopped-is-complete") {
            self.listed(super::listing::Listing::nothing_there());
        }
        if left.is_some() {
            self.steps.push_back(Step::Abandon);
            if let Some(cycle) = &mut self.cycle {
                cycle.summary.interrupted = true;
            }
        }
        let feeds = self.setup.feeds.len();
        if let Some(cycle) = &mut self.cycle {
            cycle.kept_from = kept_from;
            cycle.summary.interrupted |= self.setup.once || cycle.next_feed < feeds;
            cycle.next_feed = feeds;
            cycle.summary.interrupted &= !mutant::is("interruption-not-said");
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
