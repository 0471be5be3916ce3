//! Records with something to deliver that nobody needs in memory now.
//!
//! A sink that is down for days, or a first listing of ten thousand items, leaves as many records
//! with something pending. They are on disk; what stays in memory of those beyond `Setup::most_held` is
//! their place in the queue. When its turn comes a record is read again, as at a start.

use super::cycle::Engine;
use super::delivery::Slug;
use super::step::Step;
use super::time::Time;
use crate::mutant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What is parked, and what was asked for again.
#[derive(Debug, Default)]
pub(super) struct Parked {
    records: BTreeMap<Slug, Place>,
    /// Read again, or about to be, because a slot is free for it.
    called: BTreeSet<Slug>,
}

/// What is remembered of a parked record.
#[derive(Debug)]
struct Place {
    /// How many deliveries wait in it.
    pending: usize,
    /// How far the clock had been set back when it was written.
    set_back: Duration,
}

impl Parked {
    /// How many deliveries wait in parked records.
    pub fn pending(&self) -> usize {
        self.records.values().map(|place| place.pending).sum()
    }
}

impl Engine {
    /// Parks a record if it is durable, waits for nothing but its turn, and there are many.
    pub(super) fn park(&mut self, slug: &Slug) {
        let Some(held) = self.records.get(slug) else {
            return;
        };
        let waits =
            held.record.gave_up() == 0 && held.after_save.is_empty() && held.taken.is_empty();
        let many = self.records.len() > self.setup.most_held && !mutant::is("all-records-held");
        if !waits || !many || self.parked.called.contains(slug) || self.saving.is_failing(slug) {
            return;
        }
        let place = Place {
            pending: held.record.pending(),
            set_back: self.set_back,
        };
        self.records.remove(slug);
        self.parked.records.insert(slug.clone(), place);
    }

    /// Has a parked record read again, whose turn it is. Says whether it was one.
    pub(super) fn call(&mut self, slug: &Slug) -> bool {
        if !self.parked.records.contains_key(slug) {
            return false;
        }
        if self.parked.called.insert(slug.clone()) {
            self.steps.push_back(Step::Load(slug.clone()));
        }
        true
    }

    /// A record is in memory again; says by how much the clock was set back since it was written.
    pub(super) fn unpark(&mut self, slug: &Slug) -> Duration {
        let place = self.parked.records.remove(slug);
        self.set_back
            .saturating_sub(place.map_or(Duration::ZERO, |place| place.set_back))
    }

    /// A record that was called has had its turn, or cannot have it.
    pub(super) fn had_its_turn(&mut self, slug: &Slug) {
        self.parked.called.remove(slug);
    }

    /// A parked record that is not to be had any more has no place in the queue.
    pub(super) fn give_up_place(&mut self, slug: &Slug) {
        self.parked.called.remove(slug);
        if self.parked.records.remove(slug).is_none() {
            return;
        }
        for (sink, queue) in &mut self.waiting {
            if let Some(at) = self.due.remove(&(slug.clone(), sink.clone())) {
                queue.remove(&(at, slug.clone()));
            }
        }
    }

    /// Moves what is due in parked records along with a clock that was set back.
    pub(super) fn set_parked_back(&mut self, by: Duration) {
        for ((slug, sink), at) in &mut self.due {
            if !self.parked.records.contains_key(slug) {
                continue;
            }
            let earlier: Time = at.minus(by);
            if let Some(queue) = self.waiting.get_mut(sink) {
                queue.remove(&(*at, slug.clone()));
                queue.insert((earlier, slug.clone()));
            }
            *at = earlier;
        }
    }
}
