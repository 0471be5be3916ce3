//! The engine's part in listings: cycles, feeds, sightings, closures, cursors.

use super::cycle::{Cycle, Engine, Held};
use super::delivery::Slug;
use super::entry::Entry;
use super::feed::{Feed, Runs};
use super::host::Budget;
use super::item::{ItemRef, Sighting};
use super::listing::{Ask, Coverage, Cut, Heard, Listing};
use super::plan::{Judged, Rules};
use super::record::Standing;
use super::step::{Step, Summary};
use super::time::Time;
use crate::mutant;
use serde_json::json;
use std::collections::BTreeMap;

/// The listing under way.
#[derive(Debug)]
pub(super) struct Walk {
    feed: usize,
    started_at: Time,
    /// The feed as it will be saved at the end.
    working: Option<Feed>,
    /// When watching began is not durable yet; nothing is judged by it before.
    save_first: bool,
    /// The item in hand.
    sighting: Option<(Slug, Box<Sighting>)>,
    /// The record asked for last.
    asked: Option<Slug>,
    ended: Option<Listing>,
    /// Items to conclude gone, once the rest is done.
    missing: Option<Vec<u64>>,
    /// The last save of the feed is under way.
    finishing: bool,
    /// A record could not be read: the cursor must not move past its item.
    held_back: bool,
    /// What is told now should have been told before: news among it was missed.
    again: bool,
    /// How many events were, and of which item the first.
    missed: u64,
    missed_first: Option<ItemRef>,
    errors: BTreeMap<String, String>,
    /// The host said before that it is not to be asked now, and it was not.
    unasked: bool,
}

impl Walk {
    pub fn listens(&self) -> bool {
        self.sighting.is_none() && self.ended.is_none() && !self.save_first
    }

    /// Whether the walk is about to judge by the record `slug`.
    pub fn needs(&self, slug: &Slug) -> bool {
        self.asked.as_ref() == Some(slug)
    }
}

/// Complete listings in a row that must miss an item before it is gone.
const ABSENCES: u32 = 2;

impl Engine {
    pub(super) fn begin_cycle(&mut self, now: Time) {
        if self.cycle.is_none() && !self.stopping {
            let again = self.unreadable.keys().cloned().map(Step::Load);
            self.steps.extend(again);
            self.hosts.cycle_begins();
            let unsaved = self.hosts.take_failed().into_iter().map(Box::new);
            self.steps.extend(unsaved.map(Step::SaveHost));
            let summary = Summary {
                started_at: now,
                ..Summary::default()
            };
            self.cycle = Some(Cycle {
                first_feed: self.first_feed,
                next_feed: 0,
                kept_from: None,
                summary,
            });
        }
    }

    /// The first feed that a cycle which ends now does not come to.
    pub(super) fn kept_from(&self) -> Option<usize> {
        let (cycle, feeds) = (self.cycle.as_ref()?, self.setup.feeds.len());
        let done = cycle.next_feed - usize::from(self.walk.is_some());
        let next = (done < feeds).then(|| (cycle.first_feed + done) % feeds);
        cycle.kept_from.or(next)
    }

    /// The feed a [`Step::SaveFeed`] is about.
    #[must_use]
    pub fn feed_to_save(&self) -> Option<&Feed> {
        self.walk.as_ref().and_then(|w| w.working.as_ref())
    }

    pub(super) fn cycle_step(&mut self, now: Time) -> Option<Step> {
        if self.walk.is_some() {
            return None;
        }
        let cycle = self.cycle.as_mut()?;
        while cycle.next_feed < self.setup.feeds.len() {
            let at = (cycle.first_feed + cycle.next_feed) % self.setup.feeds.len();
            cycle.next_feed += 1;
            let saved = self.feeds[at].saved.clone();
            if let Some(t) = self.saving.trouble().filter(|_| self.saving.is_down(now)) {
                cycle.summary.failed_feeds += 1;
                let health = &mut self.feeds[at].health;
                health.error = Some(format!("its items cannot be recorded: {}", t.reason));
                health.failing_since.get_or_insert(now);
                continue;
            }
            // Which token it will use is not known for sure: one that has to wait, the provider
            // holds back. One that is only spared, we do.
            let asked_with = self.feeds[at].asked_with.as_ref();
            if asked_with.is_some_and(|with| self.hosts.spares(with, now)) {
                continue;
            }
            let mut waits = self.hosts.waits(self.setup.feeds[at].host.as_ref(), now);
            if mutant::is("cool-down-not-shared") {
                waits.retain(|token, _| asked_with.is_some_and(|(_, its)| its == token));
            }
            let rules = &self.setup.feeds[at].rules;
            // Other rules than last time: every item is judged anew, from a listing in full.
            let judged_by = judged_by(rules);
            let cursor = saved
                .as_ref()
                .filter(|f| f.judged_by == judged_by)
                .and_then(|f| f.cursor.clone());
            let watched = saved.as_ref().map(|f| f.watch_from);
            let ask = Ask {
                cursor,
                watch_from: rules.policy.watch_from.or(watched),
                open: saved.as_ref().map(|f| f.open.clone()).unwrap_or_default(),
                waits,
                cycle: cycle.summary.started_at,
                now,
            };
            let mut working = saved;
            if let Some(feed) = working.as_mut().filter(|f| f.judged_by != judged_by)
                && !mutant::is("absences-outlive-the-rules")
            {
                // A listing that begins anew may ask at once for what the last one just missed.
                feed.absent.clear();
            }
            self.walk = Some(Walk {
                feed: at,
                started_at: now,
                working,
                save_first: false,
                sighting: None,
                asked: None,
                ended: None,
                missing: None,
                finishing: false,
                held_back: false,
                again: false,
                missed: 0,
                missed_first: None,
                unasked: false,
                errors: BTreeMap::new(),
            });
            return Some(Step::List {
                feed: at,
                ask: Box::new(ask),
            });
        }
        let can_go_on = self.has_due(now) && self.saving.trouble().is_none();
        if self.setup.once && !self.stopping && (!self.flights.is_empty() || can_go_on) {
            return None;
        }
        let cycle = self.cycle.take()?;
        self.first_feed = cycle.kept_from.unwrap_or(0);
        let mut summary = cycle.summary;
        summary.item_errors += self.unreadable.len();
        summary.items = self
            .feeds
            .iter()
            .filter_map(|f| f.saved.as_ref())
            .map(|f| f.open.len())
            .sum();
        self.end_cycle(now, summary);
        self.steps.pop_front()
    }

    fn end_cycle(&mut self, now: Time, mut summary: Summary) {
        let (t, n) = (&self.totals, &self.noted);
        let news = [
            ("opened", t.opened - n.opened),
            ("comments", t.comments - n.comments),
            ("closed", t.closed - n.closed),
            ("failed", t.failed - n.failed),
        ];
        summary.delivered = t.delivered() - n.delivered();
        summary.failed = t.failed - n.failed;
        let counted = news.iter().any(|(_, n)| *n > 0);
        // An idle cycle does nothing, not even a line in the log.
        let entry = (summary.eventful || summary.interrupted || counted).then(|| {
            let mut entry = Entry::new(now, "poll.cycle").with("items", summary.items);
            for (word, n) in news {
                entry = entry.with(word, n);
            }
            let took = u64::try_from(now.since(summary.started_at).as_millis()).unwrap_or(u64::MAX);
            entry
                .with("failed_sources", summary.failed_feeds)
                .with("interrupted", summary.interrupted)
                .with("duration_ms", took)
        });
        self.noted = self.totals.clone();
        if !summary.interrupted {
            self.hosts.cycle_over(summary.started_at, now);
        }
        // First what `status` reads, then the log: whoever reads it there may ask at once.
        self.steps.push_back(Step::CycleEnded(summary));
        if let Some(entry) = entry {
            self.log(entry);
        }
    }

    pub(super) fn heard(&mut self, now: Time, heard: Heard) {
        if let Heard::Budget(budget) = heard {
            return self.heard_budget(now, &budget);
        }
        let Some(walk) = &mut self.walk else {
            return;
        };
        let setup = &self.setup.feeds[walk.feed];
        match heard {
            Heard::Clock(clock) => walk.watch_from(clock),
            Heard::Sighting(sighting) => {
                walk.watch_from(walk.started_at);
                let slug = Slug::new(&setup.rules.source, &sighting.item.item_ref);
                walk.sighting = Some((slug, sighting));
            }
            Heard::Unreadable { what, reason } => {
                let before = &self.feeds[walk.feed].health.item_errors;
                let said = [before, &walk.errors]
                    .iter()
                    .any(|errors| errors.get(&what) == Some(&reason));
                walk.errors.insert(what.clone(), reason.clone());
                // Said once, not at every cycle.
                if !said {
                    let entry = Entry::new(now, "poll.item_error")
                        .with("source", setup.rules.source.clone())
                        .with("item", what)
                        .with("reason", reason);
                    self.log(entry);
                }
            }
            Heard::Again => walk.again = true,
            Heard::Warning(reason) => {
                let entry = Entry::new(now, "poller.warning")
                    .with("source", setup.rules.source.clone())
                    .with("feed", setup.slug.to_string())
                    .with("reason", reason);
                self.log(entry);
            }
            Heard::Budget(_) => {}
        }
    }

    /// A cool-down is durable before the next listing begins.
    fn heard_budget(&mut self, now: Time, budget: &Budget) {
        if let Some(walk) = &mut self.walk {
            walk.unasked = budget.requests == 0;
            let asked_with = (budget.host.clone(), budget.token.clone());
            self.feeds[walk.feed].asked_with = Some(asked_with);
        }
        if let Some(host) = self.hosts.told(now, budget) {
            self.steps.push_back(Step::SaveHost(Box::new(host)));
        }
    }

    pub(super) fn listed(&mut self, mut listing: Listing) {
        if mutant::is("cut-is-complete") && matches!(listing, Listing::Cut(_)) {
            listing = Listing::nothing_there();
        }
        if let Some(walk) = &mut self.walk {
            walk.ended = Some(listing);
        }
    }

    pub(super) fn walk_step(&mut self, now: Time) -> Option<Step> {
        let walk = self.walk.as_mut()?;
        if walk.save_first {
            return Some(Step::SaveFeed(walk.feed));
        }
        if let Some((slug, _)) = &walk.sighting {
            if !self.records.contains_key(slug) && walk.asked.as_ref() != Some(slug) {
                walk.asked = Some(slug.clone());
                return Some(Step::Load(slug.clone()));
            }
            self.judge_sighting(now);
            return self.next(now);
        }
        match walk.ended.take()? {
            Listing::Complete(complete) => {
                if walk.missing.is_none() {
                    walk.missing = Some(walk.absent_again(&complete.coverage));
                }
                if let Some(number) = walk.missing.as_mut().and_then(Vec::pop) {
                    walk.ended = Some(Listing::Complete(complete));
                    return self.conclude_gone(now, number);
                }
                // The cursor waits for every record of its listing.
                let at = walk.feed;
                let unsaved = |slug| self.records.get(slug).is_some_and(|h: &Held| h.feed == at);
                walk.held_back |= self.saving.dirty.iter().any(unsaved);
                let finished = walk.finished(
                    self.feeds[at].saved.as_ref(),
                    &complete.cursor,
                    &judged_by(&self.setup.feeds[walk.feed].rules),
                );
                walk.ended = Some(Listing::Complete(complete));
                self.finish(now, finished)
            }
            Listing::Cut(cut) => self.cut(now, cut),
        }
    }

    /// Judges the item in hand; its record is loaded if there is one.
    fn judge_sighting(&mut self, now: Time) {
        let Some(walk) = &mut self.walk else {
            return;
        };
        walk.asked = None;
        let (Some((slug, sighting)), Some(feed)) = (walk.sighting.take(), &walk.working) else {
            return;
        };
        let (at, watch_from) = (walk.feed, feed.watch_from);
        let number = sighting.item.item_ref.number;
        let held = self.records.remove(&slug);
        let (mut record, taken, after_save) = match held {
            Some(h) => (Some(h.record), h.taken, h.after_save),
            None => (None, Vec::new(), Vec::new()),
        };
        let judged = self.setup.feeds[at]
            .rules
            .judge(&mut record, &sighting, watch_from, now);
        let active = record
            .as_ref()
            .is_some_and(|r| r.standing == Standing::Active);
        if let Some(record) = record {
            self.records.insert(
                slug.clone(),
                Held {
                    record,
                    feed: at,
                    taken,
                    after_save,
                },
            );
        }
        if let Some(feed) = self.walk.as_mut().and_then(|w| w.working.as_mut()) {
            feed.absent.remove(&number);
            if active {
                feed.open.insert(number);
            } else {
                feed.open.remove(number);
            }
        }
        // An item that vanished is for a sweep to find, but not what a list shows.
        if let Some(walk) = self.walk.as_mut().filter(|walk| walk.again)
            && judged.queued > 0
        {
            walk.missed += judged.queued as u64;
            walk.missed_first.get_or_insert(sighting.item.item_ref);
        }
        self.judged(&slug, judged);
    }

    fn judged(&mut self, slug: &Slug, judged: Judged) {
        if judged.changed {
            if let Some(cycle) = &mut self.cycle {
                cycle.summary.eventful = true;
            }
            self.touch(slug, judged.entries.into_iter().map(Step::Log));
            self.schedule(slug);
        } else {
            self.let_go(slug);
        }
    }

    fn conclude_gone(&mut self, now: Time, number: u64) -> Option<Step> {
        let walk = self.walk.as_mut()?;
        let setup = &self.setup.feeds[walk.feed];
        let item = ItemRef {
            number,
            ..setup.template.clone()
        };
        let slug = Slug::new(&setup.rules.source, &item);
        if !self.records.contains_key(&slug) && walk.asked.as_ref() != Some(&slug) {
            walk.asked = Some(slug.clone());
            walk.missing.get_or_insert_default().push(number);
            return Some(Step::Load(slug));
        }
        walk.asked = None;
        if let Some(feed) = &mut walk.working {
            feed.open.remove(number);
            feed.absent.remove(&number);
        }
        if let Some(held) = self.records.get_mut(&slug) {
            let judged = setup.rules.gone(&mut held.record, now);
            self.judged(&slug, judged);
        }
        self.next(now)
    }

    /// All is read and every record is saved: make it durable, then the feed, then be done.
    fn finish(&mut self, now: Time, finished: Feed) -> Option<Step> {
        if self.saving.unflushed && !mutant::is("cursor-before-records") {
            return Some(Step::Flush);
        }
        let walk = self.walk.as_mut()?;
        let at = walk.feed;
        walk.working = Some(finished);
        if walk.working != self.feeds[at].saved {
            walk.finishing = true;
            return Some(Step::SaveFeed(at));
        }
        self.walk_done(now);
        self.next(now)
    }

    pub(super) fn feed_saved(&mut self, now: Time) {
        self.saving.succeeded(now);
        let Some(walk) = &mut self.walk else {
            return;
        };
        walk.save_first = false;
        self.feeds[walk.feed].saved = walk.working.clone();
        if walk.finishing {
            self.walk_done(now);
        }
    }

    fn walk_done(&mut self, now: Time) {
        let Some(walk) = self.walk.take() else {
            return;
        };
        if walk.missed > 0 {
            // A loss is a figure, not a surprise: found now, it is delivered, only late.
            self.totals.missed += walk.missed;
            let setup = &self.setup.feeds[walk.feed];
            let entry = Entry::new(now, "poll.missed")
                .with("source", setup.rules.source.clone())
                .with("feed", setup.slug.to_string())
                .with("events", walk.missed)
                .with("ref", walk.missed_first.as_ref().map(ToString::to_string));
            self.log(entry);
        }
        let health = &mut self.feeds[walk.feed].health;
        health.item_errors = walk.errors;
        if let Some(cycle) = &mut self.cycle {
            cycle.summary.item_errors += health.item_errors.len();
        }
        if matches!(walk.ended, Some(Listing::Complete(_))) {
            health.error = None;
            health.failing_since = None;
            health.last_listing_at = Some(now);
        }
    }

    /// A listing that ended early moves nothing and concludes nothing.
    fn cut(&mut self, now: Time, cut: Cut) -> Option<Step> {
        let walk = self.walk.as_ref()?;
        if let Some(cycle) = self.cycle.as_mut().filter(|_| cut.not_before.is_some()) {
            cycle.kept_from.get_or_insert(walk.feed);
        }
        if let Some(cycle) = self.cycle.as_mut()
            && mutant::is("odd-feed-ends-the-cycle")
        {
            cycle.next_feed = self.setup.feeds.len();
        }
        self.feed_failed(now, walk.feed, &cut.reason, cut.not_before, walk.unasked);
        self.walk_done(now);
        self.next(now)
    }

    /// `known`: it was to be expected, and was said when it began.
    fn feed_failed(
        &mut self,
        now: Time,
        at: usize,
        reason: &str,
        not_before: Option<Time>,
        known: bool,
    ) {
        let health = &mut self.feeds[at].health;
        let said =
            known || health.error.as_deref() == Some(reason) && !mutant::is("said-at-every-cycle");
        health.error = Some(reason.to_string());
        health.failing_since.get_or_insert(now);
        if let Some(cycle) = &mut self.cycle {
            cycle.summary.failed_feeds += 1;
        }
        let kind = if not_before.is_some() {
            "poll.rate_limited"
        } else {
            "poll.source_error"
        };
        if !said {
            if let Some(cycle) = &mut self.cycle {
                cycle.summary.eventful = true;
            }
            let setup = &self.setup.feeds[at];
            let mut entry = Entry::new(now, kind)
                .with("source", setup.rules.source.clone())
                .with("feed", setup.slug.to_string())
                .with("reason", reason);
            if let Some(t) = not_before {
                entry = entry.with("not_before", t.to_string());
            }
            self.log(entry);
        }
    }

    /// The cursor of the listing under way must not move past what it brought.
    pub(super) fn hold_back(&mut self) {
        if let Some(walk) = &mut self.walk {
            walk.held_back = true;
        }
    }

    /// Leaves the listing behind because its items cannot be recorded.
    pub(super) fn drop_walk(&mut self, now: Time, reason: &str) {
        if let Some(walk) = self.walk.take() {
            self.steps.push_back(Step::Abandon);
            self.feed_failed(now, walk.feed, reason, None, false);
        }
    }

    /// The record of the item in hand cannot be read: the item is skipped, and the cursor stays.
    pub(super) fn skip(&mut self, slug: &Slug) {
        if let Some(walk) = &mut self.walk
            && walk.needs(slug)
        {
            walk.asked = None;
            walk.held_back = true;
            if walk.sighting.as_ref().is_some_and(|(s, _)| s == slug) {
                walk.sighting = None;
            } else if let Some(missing) = &mut walk.missing {
                missing.pop();
            }
        }
    }
}

impl Walk {
    fn watch_from(&mut self, clock: Time) {
        if self.working.is_none() {
            self.working = Some(Feed::new(clock));
            self.save_first = true;
        }
    }

    /// Counts the absences of a complete listing; says who was missed often enough.
    fn absent_again(&mut self, coverage: &Coverage) -> Vec<u64> {
        let Some(feed) = &mut self.working else {
            return Vec::new();
        };
        let absent: Vec<u64> = match coverage {
            Coverage::Everything { present } => {
                let present: Runs = present.iter().copied().collect();
                feed.absent.retain(|n, _| !present.contains(*n));
                feed.open.iter().filter(|n| !present.contains(*n)).collect()
            }
            Coverage::Changes { missing } => {
                let open = missing.iter().filter(|n| feed.open.contains(**n));
                open.copied().collect()
            }
        };
        let mut gone = Vec::new();
        for number in absent {
            let times = feed.absent.entry(number).or_insert(0);
            *times += 1;
            if *times >= ABSENCES || mutant::is("gone-when-missed-once") {
                gone.push(number);
            }
        }
        gone
    }

    /// The feed to save after a complete listing, given as it was saved before.
    fn finished(&self, saved: Option<&Feed>, cursor: &serde_json::Value, judged_by: &str) -> Feed {
        let mut feed = self
            .working
            .clone()
            .unwrap_or_else(|| Feed::new(self.started_at));
        if !self.held_back || mutant::is("cursor-never-held-back") {
            feed.cursor = Some(cursor.clone());
            feed.judged_by = judged_by.to_string();
        } else if let Some(saved) = saved.filter(|_| !mutant::is("roster-not-held-back")) {
            // An end may be among what is not durable yet: it must be seen again,
            // and an item that vanished is only missed while it counts as open.
            for number in saved.open.iter().filter(|&n| feed.open.insert(n)) {
                if let Some(&times) = saved.absent.get(&number) {
                    feed.absent.insert(number, times);
                }
            }
        }
        feed
    }
}

/// What an item's judgement depends on besides upstream, as text to compare.
fn judged_by(rules: &Rules) -> String {
    let policy = &rules.policy;
    let judged_by = json!([
        policy.label,
        policy.authorized_users,
        policy.authorized_associations,
        policy.watch_from,
        policy.backlog == super::access::Backlog::Skip,
    ]);
    match mutant::is("scope-forgotten") {
        true => judged_by.to_string(),
        false => format!("{judged_by}{}", rules.scope),
    }
}
