//! The engine's part in saving: what is not durable yet, and what is done when it cannot be.
//!
//! A record that cannot be saved keeps its own item waiting and no other: its
//! tries go back, its feed's cursor stays, and the save is tried again. Only
//! when one save after another fails is the store itself taken to be the
//! trouble (a full disk); then nothing new is begun until one succeeds.

use super::cycle::Engine;
use super::delivery::{Delivery, Slug};
use super::entry::Entry;
use super::record::Record;
use super::step::Step;
use super::time::Time;
use crate::mutant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A save that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Why.
    pub reason: String,
    /// When it is tried again.
    pub retry_at: Time,
}

/// What a failed save was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsaved {
    /// This record.
    Record(Slug),
    /// Records saved for later: they are listed again, since the cursor stays.
    Batch,
    /// The feed being listed.
    Feed,
    /// The host with this file name. Nothing waits for it; it is tried again at the next cycle.
    Host(Slug),
}

/// What is not durable yet.
#[derive(Debug, Default)]
pub(super) struct Saving {
    /// Records that changed.
    pub dirty: BTreeSet<Slug>,
    /// Those among them that could not be saved.
    failing: BTreeMap<Slug, Trouble>,
    /// Something was saved for later.
    pub unflushed: bool,
    /// What failed since the last save that succeeded: records, and `None` for the rest.
    failed: BTreeSet<Option<Slug>>,
    last: Option<Trouble>,
}

/// How long after a failed save it is tried again.
const PAUSE: Duration = Duration::from_secs(5);

/// So many different records in a row that cannot be saved: the store itself is
/// the trouble. One alone, however often it fails, is not.
const IN_A_ROW: usize = 3;

impl Saving {
    /// Whether nothing can be recorded for now.
    pub fn is_down(&self, now: Time) -> bool {
        let in_a_row = if mutant::is("one-failing-item-stops-all") {
            1
        } else {
            IN_A_ROW
        };
        self.failed.len() >= in_a_row && self.last.as_ref().is_some_and(|t| now < t.retry_at)
    }

    /// Why something cannot be recorded, if so.
    pub fn trouble(&self) -> Option<&Trouble> {
        let last = self.last.as_ref().filter(|_| !self.failed.is_empty());
        last.or_else(|| self.failing.values().next())
    }

    pub fn is_failing(&self, slug: &Slug) -> bool {
        self.failing.contains_key(slug)
    }

    /// When a failed save is due again.
    pub fn retry_at(&self) -> Option<Time> {
        if self.dirty.is_empty() && !self.unflushed {
            return None;
        }
        let down = self.last.as_ref().filter(|_| self.failed.len() >= IN_A_ROW);
        down.map(|t| t.retry_at)
            .or_else(|| self.failing.values().map(|t| t.retry_at).min())
    }

    /// Everything that failed is tried again at once.
    pub fn hurry(&mut self, now: Time) {
        for trouble in self.failing.values_mut().chain(&mut self.last) {
            trouble.retry_at = now;
        }
    }

    /// Moves what is due later along with a clock that was set back.
    pub fn set_back(&mut self, by: Duration) {
        for trouble in self.failing.values_mut().chain(&mut self.last) {
            trouble.retry_at = trouble.retry_at.minus(by);
        }
    }

    fn due(&self, now: Time) -> Option<&Slug> {
        let due = |s: &&Slug| self.failing.get(*s).is_none_or(|t| t.retry_at <= now);
        self.dirty.iter().find(due)
    }

    /// A save succeeded, of whatever kind.
    pub fn succeeded(&mut self, now: Time) {
        if self.failed.len() >= IN_A_ROW {
            // There is room again: the others need not wait their time.
            self.hurry(now);
        }
        self.failed.clear();
        self.last = None;
    }
}

impl Engine {
    /// Why something cannot be recorded at present, if so.
    #[must_use]
    pub fn store_trouble(&self) -> Option<&Trouble> {
        self.saving.trouble()
    }

    /// Whether all that is left to do is to save what cannot be saved.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.saving.trouble().is_some()
            && self.flights.is_empty()
            && self.steps.is_empty()
            && self.walk.is_none()
            && self.cycle.is_none()
    }

    /// Marks a record as changed; `after` is done once it is durable.
    pub(super) fn touch(&mut self, slug: &Slug, after: impl IntoIterator<Item = Step>) {
        if let Some(held) = self.records.get_mut(slug) {
            held.after_save.extend(after);
            self.saving.dirty.insert(slug.clone());
        }
    }

    /// The next step towards having all changes durable, and no other.
    pub fn next_save(&mut self, now: Time) -> Option<Step> {
        if self.saving.is_down(now) {
            return None;
        }
        let slug = self.saving.due(now)?.clone();
        let held = self.records.get(&slug)?;
        // Nothing depends on a record without work but the cursor, which is saved after a flush.
        let now_or_later = held.record.is_unfinished() || held.record.stored.marked;
        if now_or_later && !mutant::is("every-record-saved-later") {
            Some(Step::Save(slug))
        } else {
            self.saving.unflushed = true;
            Some(Step::SaveLater(slug))
        }
    }

    /// The record `slug`, which is to be saved, and others that are to be saved just
    /// as well, `most` in all: together they take fewer syncs. Each is answered for itself.
    pub fn to_save(&mut self, slug: &Slug, most: usize) -> Vec<(Slug, &mut Record)> {
        let as_well = |s: &&Slug| {
            // What failed before is tried alone, or it would hold up the others.
            *s != slug
                && !self.saving.is_failing(s)
                && self
                    .records
                    .get(*s)
                    .is_some_and(|held| held.record.is_unfinished() || held.record.stored.marked)
        };
        let others = self.saving.dirty.iter().filter(as_well);
        let chosen: BTreeSet<Slug> = others.take(most - 1).chain([slug]).cloned().collect();
        let (Some(first), Some(last)) = (chosen.first(), chosen.last()) else {
            return Vec::new();
        };
        // They lie close together, and the records may be many.
        self.records
            .range_mut(first..=last)
            .filter(|(s, _)| chosen.contains(*s))
            .map(|(s, held)| (s.clone(), &mut held.record))
            .collect()
    }

    /// What was saved later is made durable once its listing is over, however it
    /// ended; while one goes on, its end does it, before the cursor moves.
    pub(super) fn last_flush(&mut self, now: Time) -> Option<Step> {
        let wait = self.walk.is_some() || self.saving.is_down(now);
        (self.saving.unflushed && !wait).then_some(Step::Flush)
    }

    pub(super) fn saved(&mut self, now: Time, slug: &Slug) {
        self.saving.succeeded(now);
        self.saving.dirty.remove(slug);
        let was_failing = self.saving.failing.remove(slug).is_some();
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
        if was_failing {
            self.schedule(slug);
        }
        self.let_go(slug);
    }

    pub(super) fn flushed(&mut self, now: Time) {
        self.saving.succeeded(now);
        self.saving.unflushed = false;
    }

    pub(super) fn save_failed(&mut self, now: Time, what: &Unsaved, reason: String) {
        let trouble = Trouble {
            reason: reason.clone(),
            retry_at: now.plus(PAUSE),
        };
        if let Unsaved::Host(slug) = what {
            if self.hosts.not_saved(slug) {
                self.log(Entry::new(now, "poll.store_error").with("reason", reason));
            }
            return;
        }
        // Said once, not for each file the same disk has no room for.
        let cause = |reason: &str| reason.rsplit(": ").next().map(str::to_string);
        let said = self.saving.trouble();
        let said = said.is_some_and(|t| cause(&t.reason) == cause(&reason));
        if !said {
            self.log(Entry::new(now, "poll.store_error").with("reason", reason.clone()));
        }
        let slug = match what {
            Unsaved::Record(slug) => Some(slug.clone()),
            Unsaved::Batch | Unsaved::Feed | Unsaved::Host(_) => None,
        };
        self.saving.failed.insert(slug);
        self.saving.last = Some(trouble.clone());
        // Whatever it was, the cursor must not move past an item it may have been about.
        self.hold_back();
        match what {
            Unsaved::Record(slug) => {
                self.saving.failing.insert(slug.clone(), trouble);
                // What is not recorded is not delivered: tries taken go back.
                let taken = self
                    .records
                    .get_mut(slug)
                    .map(|h| std::mem::take(&mut h.taken));
                if mutant::is("unrecorded-is-delivered") {
                    self.steps
                        .extend(taken.into_iter().flatten().map(Step::Deliver));
                } else {
                    self.give_back(now, taken.unwrap_or_default());
                }
                self.schedule(slug);
            }
            Unsaved::Batch => self.saving.unflushed = false,
            Unsaved::Feed => self.drop_walk(now, &format!("it cannot be recorded: {reason}")),
            Unsaved::Host(_) => {}
        }
        if self.saving.failed.len() >= IN_A_ROW {
            let taken: Vec<Delivery> = self
                .records
                .values_mut()
                .flat_map(|h| h.taken.drain(..))
                .collect();
            self.give_back(now, taken);
            self.drop_walk(now, &format!("its items cannot be recorded: {reason}"));
        }
    }

    /// A record with nothing to do, and that nobody is about to judge by, needs no memory.
    pub(super) fn let_go(&mut self, slug: &Slug) {
        if self.walk.as_ref().is_some_and(|w| w.needs(slug)) || self.saving.dirty.contains(slug) {
            return;
        }
        let in_flight = self.flights.keys().any(|(s, _)| s == slug);
        let idle = self
            .records
            .get(slug)
            .is_some_and(|h| !h.record.is_unfinished() && h.after_save.is_empty());
        if idle && !in_flight {
            self.records.remove(slug);
            self.had_its_turn(slug);
        } else if !in_flight {
            self.park(slug);
        }
    }
}
