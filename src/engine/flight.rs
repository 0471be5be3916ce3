//! The engine's part in deliveries: which try is due, and what its end means.

use super::budget::Verdict;
use super::cycle::Engine;
use super::delivery::{Delivery, EventKind, Outcome, Receipt, Slug, delivery_id};
use super::entry::Entry;
use super::record::{HISTORY, Record};
use super::step::Step;
use super::time::Time;
use crate::mutant;
use std::time::Duration;

impl Engine {
    /// Brings the queue of due times up to date with a record.
    pub(super) fn schedule(&mut self, slug: &Slug) {
        let Some(held) = self.records.get(slug) else {
            return;
        };
        let rules = &self.setup.feeds[held.feed].rules;
        for sink in &rules.sinks {
            let key = (slug.clone(), sink.clone());
            let queue = self.waiting.entry(sink.clone()).or_default();
            if let Some(old) = self.due.remove(&key) {
                queue.remove(&(old, slug.clone()));
            }
            if let Some(at) = held
                .record
                .due(sink)
                .filter(|_| !self.flights.contains_key(&key) && !self.saving.is_failing(slug))
            {
                queue.insert((at, slug.clone()));
                self.due.insert(key, at);
            }
        }
    }

    /// Takes tries for what is due, as far as slots are free. They are handed
    /// out when the records that say so are durable.
    pub(super) fn fill_slots(&mut self, now: Time) {
        if self.stopping || self.saving.is_down(now) {
            return;
        }
        let sinks: Vec<String> = self.waiting.keys().cloned().collect();
        for sink in sinks {
            while self.free.get(&sink).copied().unwrap_or(0) > 0 {
                let first = self.waiting.get(&sink).and_then(|q| q.first().cloned());
                let Some((_, slug)) = first.filter(|(at, _)| *at <= now) else {
                    break;
                };
                if self.call(&slug) {
                    break;
                }
                self.take(&slug, &sink);
            }
        }
    }

    fn take(&mut self, slug: &Slug, sink: &str) {
        self.had_its_turn(slug);
        let key = (slug.clone(), sink.to_string());
        if let Some(held) = self.records.get_mut(slug)
            && let Some((attempt, begun)) = held.record.begin(sink)
        {
            if let Some(delivery) = delivery(&held.record, slug, sink, attempt.seq(), begun) {
                if mutant::is("effect-before-intent") {
                    self.steps.push_back(Step::Deliver(delivery));
                } else {
                    held.taken.push(delivery);
                }
            }
            self.flights.insert(key, attempt);
            self.slots(sink, -1);
            self.saving.dirty.insert(slug.clone());
        }
        self.schedule(slug);
    }

    /// A record came into memory: tries of an earlier poller must be settled first.
    /// `set_back` is by how much the clock was since the record was written.
    pub(super) fn resume(&mut self, now: Time, slug: &Slug, feed: usize, set_back: Duration) {
        let newer = self.setup.version.clone();
        let sinks = self.setup.feeds[feed].rules.sinks.clone();
        let Some(held) = self.records.get_mut(slug) else {
            return;
        };
        if !set_back.is_zero() {
            held.record.set_back(set_back);
            self.saving.dirty.insert(slug.clone());
        }
        held.record
            .clamp_times(now, &super::cycle::budget(&self.setup, feed));
        let item = held.record.item.clone();
        let rearmed = held
            .record
            .rearm(|_, g| super::budget::is_newer(&newer, &g.version));
        for sink in sinks {
            let key = (slug.clone(), sink.clone());
            if self.flights.contains_key(&key) {
                continue;
            }
            if let Some((attempt, begun)) = held.record.resume(&sink) {
                if let Some(delivery) = delivery(&held.record, slug, &sink, attempt.seq(), begun) {
                    self.steps.push_back(Step::Settle(delivery));
                }
                self.flights.insert(key, attempt);
                // It counts as much as one of ours: a restart does not raise the limit.
                if let Some(free) = self.free.get_mut(&sink) {
                    *free -= 1;
                }
            }
        }
        if !rearmed.is_empty() {
            let entries: Vec<Step> = rearmed
                .iter()
                .map(|(sink, key)| {
                    Step::Log(super::plan::rearmed_entry(
                        now,
                        &item,
                        sink,
                        key,
                        "a newer version",
                    ))
                })
                .collect();
            self.touch(slug, entries);
        }
        self.schedule(slug);
    }

    pub(super) fn receipt(&mut self, now: Time, slug: &Slug, sink: &str, receipt: Receipt) {
        match receipt {
            Receipt::Settled(_) if mutant::is("receipt-ignored") => {
                self.settled(now, slug, sink, Outcome::Unknown)
            }
            Receipt::Running if mutant::is("running-is-missing") => {
                self.settled(now, slug, sink, Outcome::Unknown)
            }
            Receipt::Settled(outcome) => self.settled(now, slug, sink, outcome),
            Receipt::Missing => self.settled(now, slug, sink, Outcome::Unknown),
            Receipt::Running => {
                let Some(delivery) = self.flying(slug, sink) else {
                    return;
                };
                self.log(delivery_entry(now, "dispatch.adopted", &delivery));
                self.steps.push_back(Step::Adopt(delivery));
            }
        }
    }

    pub(super) fn settled(&mut self, now: Time, slug: &Slug, sink: &str, outcome: Outcome) {
        let Some(attempt) = self.flights.remove(&(slug.clone(), sink.to_string())) else {
            return;
        };
        self.slots(sink, 1);
        let Some(held) = self.records.get_mut(slug) else {
            attempt.leave();
            return;
        };
        // What goes on without us is in the record as in flight; the next start settles it.
        if matches!(outcome, Outcome::LeftRunning)
            || (self.stopping && matches!(outcome, Outcome::Unknown))
        {
            self.totals.left_running += u64::from(outcome == Outcome::LeftRunning);
            attempt.leave();
            return;
        }
        let seq = attempt.seq();
        let begun = held
            .record
            .sinks
            .get(sink)
            .and_then(|q| q.tries.get(&seq))
            .map_or(0, |t| t.begun);
        let Some(delivery) = delivery(&held.record, slug, sink, seq, begun) else {
            attempt.leave();
            return;
        };
        let oldest = held
            .record
            .history
            .first()
            .filter(|_| held.record.history.len() >= HISTORY)
            .cloned();
        let budget = super::cycle::budget(&self.setup, held.feed);
        let verdict = held.record.settle(attempt, outcome, now, &budget);
        let mut steps = vec![Step::Log(verdict_entry(now, &verdict, &delivery))];
        let name = (delivery.id.clone(), delivery.sink.clone());
        let totals = &mut self.totals;
        match &verdict {
            Verdict::Delivered => {
                totals.undelivered.remove(&name);
                match delivery.event {
                    EventKind::Opened | EventKind::Reopened => totals.opened += 1,
                    EventKind::Closed => totals.closed += 1,
                    EventKind::Comment | EventKind::Review | EventKind::ReviewComment => {
                        totals.comments += 1
                    }
                }
                // The receipts of the newest deliveries are kept for `show`, older ones are not.
                if let Some(old) = oldest {
                    steps.push(Step::Forget(Delivery {
                        id: delivery_id(&held.record.item, &old.key),
                        sink: old.sink,
                        seq: old.seq,
                        attempt: old.begun,
                        ..delivery.clone()
                    }));
                }
            }
            Verdict::Retry { reason, .. } => {
                totals.failed += 1;
                totals.undelivered.insert(name, reason.clone());
            }
            Verdict::GaveUp { reason, attempts } => {
                totals.failed += 1;
                totals
                    .undelivered
                    .insert(name, format!("given up: {reason}"));
                let entry = delivery_entry(now, "poll.gave_up", &delivery)
                    .with("reason", reason.clone())
                    .with("attempts", *attempts);
                steps.push(Step::Log(entry));
            }
            Verdict::Deferred { reason, .. } => {
                totals.deferred += 1;
                totals
                    .undelivered
                    .insert(name, format!("not now: {reason}"));
            }
            Verdict::Released if mutant::is("abandoned-not-reported") => steps.clear(),
            Verdict::Released => {
                steps = vec![
                    Step::Log(delivery_entry(now, "dispatch.abandoned", &delivery)),
                    Step::Log(delivery_entry(now, "poll.attempts_released", &delivery)),
                ];
            }
            Verdict::Interrupted { .. } => totals.interrupted += 1,
        }
        // The event log has all of them.
        while totals.undelivered.len() > MOST_COMPLAINTS {
            totals.undelivered.pop_last();
        }
        self.touch(slug, steps);
        self.schedule(slug);
    }

    /// Tries that were taken and never handed out go back, because the record
    /// that said so could not be written.
    pub(super) fn give_back(&mut self, now: Time, taken: Vec<Delivery>) {
        for delivery in taken {
            let key = (delivery.slug.clone(), delivery.sink.clone());
            if let Some(attempt) = self.flights.remove(&key) {
                self.slots(&delivery.sink, 1);
                match self.records.get_mut(&delivery.slug) {
                    Some(held) => {
                        let budget = super::cycle::budget(&self.setup, held.feed);
                        held.record.settle(attempt, Outcome::Released, now, &budget);
                    }
                    None => attempt.leave(),
                }
            }
            self.schedule(&delivery.slug);
        }
    }

    fn slots(&mut self, sink: &str, change: i64) {
        if mutant::is("sinks-share-their-slots") {
            self.free.values_mut().for_each(|free| *free += change);
            return;
        }
        if let Some(free) = self.free.get_mut(sink) {
            *free += change;
        }
    }

    fn flying(&self, slug: &Slug, sink: &str) -> Option<Delivery> {
        let attempt = self.flights.get(&(slug.clone(), sink.to_string()))?;
        let record = &self.records.get(slug)?.record;
        let seq = attempt.seq();
        let begun = record.sinks.get(sink)?.tries.get(&seq)?.begun;
        delivery(record, slug, sink, seq, begun)
    }
}

/// How many of them are kept for the user of `--once`.
const MOST_COMPLAINTS: usize = 50;

fn delivery(record: &Record, slug: &Slug, sink: &str, seq: u64, attempt: u32) -> Option<Delivery> {
    let event = record.events.get(&seq)?;
    Some(Delivery {
        id: delivery_id(&record.item, &event.key),
        event: event.kind,
        item: record.item.clone(),
        slug: slug.clone(),
        sink: sink.to_string(),
        seq,
        attempt,
        payload: event.payload.clone(),
        webhook: event.webhook.clone(),
    })
}

/// An entry about one delivery.
pub(super) fn delivery_entry(now: Time, kind: &'static str, delivery: &Delivery) -> Entry {
    Entry::new(now, kind)
        .with("ref", delivery.item.to_string())
        .with("delivery_id", delivery.id.clone())
        .with("sink", delivery.sink.clone())
        .with("attempt", delivery.attempt)
}

fn verdict_entry(now: Time, verdict: &Verdict, delivery: &Delivery) -> Entry {
    let entry = |kind| delivery_entry(now, kind, delivery);
    match verdict {
        Verdict::Delivered => entry("dispatch.succeeded"),
        Verdict::Retry {
            reason,
            at,
            attempts,
        } => entry("dispatch.failed")
            .with("reason", reason.clone())
            .with("attempts", *attempts)
            .with("next_attempt_at", at.to_string()),
        Verdict::GaveUp { reason, attempts } => entry("dispatch.failed")
            .with("reason", reason.clone())
            .with("attempts", *attempts),
        Verdict::Deferred { reason, at } => entry("dispatch.deferred")
            .with("reason", reason.clone())
            .with("next_attempt_at", at.to_string()),
        Verdict::Released => entry("dispatch.abandoned"),
        Verdict::Interrupted { interruptions } => {
            entry("poll.interrupted_delivery").with("interruptions", *interruptions)
        }
    }
}
