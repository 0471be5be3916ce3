//! What is new: a sighting of an item against its record.
//!
//! The rules of R6.4 and R7 live here. Which events exist follows from
//! upstream's facts, the source's policy and the time it was first watched,
//! not from when the poller happened to look.

use super::access::{Backlog, Policy};
use super::delivery::{EventKind, Key};
use super::entry::Entry;
use super::item::{Author, Comment, Item, ItemRef, Sighting, State};
use super::payload::{Subject, payload};
use super::record::{Disposition, Event, Known, Queue, Record, Seen, Standing, Stored};
use super::time::Time;
use super::webhook::webhook;
use serde_json::Map;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The rules a sighting is judged by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The source's name.
    pub source: String,
    /// Its sinks.
    pub sinks: Vec<String>,
    /// Those of them that take what GitHub's webhook would have sent.
    pub webhook_sinks: Vec<String>,
    /// Who may act, which items count.
    pub policy: Policy,
    /// The text that marks our own comments.
    pub self_marker: String,
    /// What of a feed its provider tells, as text to compare; empty if always all of it.
    pub scope: String,
}

/// What a sighting did to a record.
#[derive(Debug, Default, PartialEq)]
pub struct Judged {
    /// The record changed and must be saved.
    pub changed: bool,
    /// How many events were queued.
    pub queued: usize,
    /// What to write into the event log once the record is durable.
    pub entries: Vec<Entry>,
}

impl Rules {
    /// When the item got the label the source asks for; a time nobody knows is
    /// the item's creation, before which it cannot have been commented on.
    fn labelled_at(&self, item: &Item) -> Time {
        let asked_for = self.policy.label.is_some();
        item.labelled_at.filter(|_| asked_for).unwrap_or(Time::ZERO)
    }

    /// Judges a sighting. `record` is the item's record, if there is one; it is
    /// made when there is something to remember.
    pub fn judge(
        &self,
        record: &mut Option<Record>,
        sighting: &Sighting,
        watch_from: Time,
        now: Time,
    ) -> Judged {
        let item = &sighting.item;
        let wanted = self.policy.wants(&item.labels);
        let is_new = record.is_none();
        if is_new && !wanted {
            return Judged::default();
        }
        let mut rec = record
            .take()
            .unwrap_or_else(|| Record::first_seen(&self.source, item));
        let before = (rec.standing, rec.known.entries().len(), rec.since);
        let mut judging = Judging {
            rules: self,
            watch_from: self.policy.watch_from.unwrap_or(watch_from),
            now,
            out: Judged::default(),
            rec: &mut rec,
        };
        judging.out.changed = is_new;
        judging.seen(item);
        judging.item_and_comments(sighting, wanted, is_new);
        let mut out = judging.out;
        out.changed |= before != (rec.standing, rec.known.entries().len(), rec.since);
        // A closed item that never concerned us leaves no record: history is not copied.
        let is_news = |(_, d): &(Key, Disposition)| *d != Disposition::Baseline;
        let worth_keeping =
            rec.standing == Standing::Active || rec.known.entries().iter().any(is_news);
        if is_new && !worth_keeping {
            return Judged::default();
        }
        *record = Some(rec);
        out
    }

    /// Concludes that an item is no longer there.
    pub fn gone(&self, rec: &mut Record, now: Time) -> Judged {
        let mut judging = Judging {
            rules: self,
            watch_from: Time::ZERO,
            now,
            out: Judged::default(),
            rec,
        };
        if judging.rec.standing == Standing::Active {
            judging.end(Standing::Gone, None, None);
            judging.out.changed = true;
        }
        judging.out
    }
}

impl Record {
    fn first_seen(source: &str, item: &Item) -> Record {
        Record {
            item: item.item_ref.clone(),
            source: source.to_string(),
            seen: Seen::default(),
            since: Time::ZERO,
            latest: Time::ZERO,
            openings: 0,
            standing: Standing::Closed,
            ended_at: None,
            known: Known::default(),
            events: BTreeMap::new(),
            next_seq: 1,
            sinks: BTreeMap::new(),
            history: Vec::new(),
            extra: Map::new(),
            stored: Stored::default(),
        }
    }

    /// Stands in for a record that could not be read (R3.6): the item counts as
    /// known, what was said before the file was last written counts as seen, and
    /// whatever is said later is an event.
    #[must_use]
    pub fn instead_of_damaged(
        source: &str,
        item: ItemRef,
        was_active: bool,
        modified: Time,
    ) -> Record {
        // How often it was opened is lost; this number no opening of it can have had.
        let openings = u32::try_from(modified.0 / 1000)
            .unwrap_or(u32::MAX - 1)
            .max(1);
        let mut known = Known::default();
        for key in ["opened".to_string(), format!("opened/{openings}")] {
            known.add(Key(key.into()), Disposition::Queued);
        }
        Record {
            item,
            source: source.to_string(),
            seen: Seen::default(),
            since: modified,
            latest: modified,
            openings,
            standing: if was_active {
                Standing::Active
            } else {
                Standing::Closed
            },
            ended_at: None,
            known,
            events: BTreeMap::new(),
            // Receipts of the lost record must not be taken for those of new events.
            next_seq: modified.0.max(1),
            sinks: BTreeMap::new(),
            history: Vec::new(),
            extra: Map::new(),
            stored: Stored::default(),
        }
    }
}

struct Judging<'a> {
    rules: &'a Rules,
    rec: &'a mut Record,
    watch_from: Time,
    now: Time,
    out: Judged,
}

impl Judging<'_> {
    fn seen(&mut self, item: &Item) {
        let seen = Seen {
            kind: item.kind,
            title: item.title.clone(),
            url: item.url.clone(),
            author: item.author.login.clone(),
            labels: item.labels.clone(),
            state: item.state,
        };
        if seen != self.rec.seen {
            self.rec.seen = seen;
            self.out.changed = true;
        }
    }

    fn item_and_comments(&mut self, sighting: &Sighting, wanted: bool, is_new: bool) {
        let item = &sighting.item;
        let open = item.state == State::Open;
        let ended = match item.state {
            State::Merged => Standing::Merged,
            State::Open | State::Closed => Standing::Closed,
        };
        if wanted && self.rec.standing != Standing::Active {
            // Only when an item comes into scope: a label taken off and put back
            // between two looks must not turn what was said before into baseline.
            let labelled_at = self.rules.labelled_at(item);
            self.rec.since = self.rec.since.max(labelled_at);
        }
        let said = sighting.comments.iter().map(|c| c.created_at).max();
        self.rec.latest = self.rec.latest.max(said.unwrap_or(Time::ZERO));
        match (self.rec.standing, wanted && open) {
            (Standing::Active, true) => {
                self.refused_opening_anew(item);
                self.comments(sighting);
            }
            (Standing::Active, false) => {
                self.comments_before_the_end(sighting);
                // An end older than a damaged record was delivered before the damage.
                if !open && item.closed_at.is_some_and(|at| at < self.rec.since) {
                    self.rec.standing = ended;
                } else {
                    let label_went = item
                        .unlabelled_at
                        .filter(|at| item.closed_at.is_none_or(|closed_at| *at < closed_at));
                    let is_gone = open || label_went.is_some();
                    let standing = if is_gone { Standing::Gone } else { ended };
                    self.end(standing, label_went.or(item.closed_at), Some(item));
                }
                self.comments(sighting);
            }
            (_, true) => {
                self.open(item);
                self.comments(sighting);
            }
            (_, false) if !wanted => {
                self.rec.standing = Standing::Gone;
                self.out_of_scope(sighting);
            }
            // Closed at first sight: the events are those of a poller that was there all along.
            (_, false) if is_new && self.was_open_while_watched(item) => {
                self.open(item);
                self.comments_before_the_end(sighting);
                self.end(ended, item.closed_at, Some(item));
                self.comments(sighting);
            }
            (_, false) => {
                self.rec.standing = ended;
                self.comments(sighting);
            }
        }
        self.rearm_openings();
    }

    /// An item that is closed now was open at some moment both labelled and
    /// watched, as far as upstream tells.
    fn was_open_while_watched(&self, item: &Item) -> bool {
        match item.closed_at {
            Some(closed_at) => closed_at >= self.since(),
            None => item.created_at.is_some_and(|at| at >= self.since()),
        }
    }

    /// Whether anything of the item was ever queued.
    fn told(&self) -> bool {
        let entries = self.rec.known.entries();
        entries.iter().any(|(_, d)| *d == Disposition::Queued)
    }

    fn opening_key(&self) -> Key {
        numbered("opened", self.rec.openings)
    }

    fn open(&mut self, item: &Item) {
        self.rec.standing = Standing::Active;
        self.rec.openings += 1;
        self.judge_opening(item);
    }

    fn judge_opening(&mut self, item: &Item) {
        let key = self.opening_key();
        // To whoever was never told of the item, a reopening is an opening.
        let kind = if self.rec.openings == 1 || !self.told() {
            EventKind::Opened
        } else {
            EventKind::Reopened
        };
        let started = match self.rules.policy.label {
            Some(_) => item.labelled_at.or(item.created_at),
            None => item.created_at,
        };
        let is_backlog = self.rec.openings == 1 && started.is_some_and(|at| at < self.watch_from);
        if is_backlog && self.rules.policy.backlog == Backlog::Skip {
            self.rec.known.add(key, Disposition::Baseline);
        } else if !self.may_act(&item.author, &key) {
            self.rec.known.add(key, Disposition::Refused);
        } else {
            // A reopening stands right behind the closing it undoes, an opening before everything.
            let at = self.rec.ended_at.unwrap_or(Time::ZERO);
            self.queue(key, kind, at, Some(item), &Subject::Item(item));
        }
    }

    /// An open item whose author has been authorized since is opened after all.
    fn refused_opening_anew(&mut self, item: &Item) {
        let key = self.opening_key();
        if self.rec.known.get(&key) == Some(Disposition::Refused)
            && self.rules.policy.authorizes(&item.author)
        {
            self.judge_opening(item);
        }
    }

    /// `item` is there unless it is gone for good.
    fn end(&mut self, standing: Standing, closed_at: Option<Time>, item: Option<&Item>) {
        self.rec.standing = standing;
        // Without a time of its own an end stands behind the last comment: the
        // tracker's times and ours are never compared.
        let at = closed_at.unwrap_or(self.rec.latest);
        let at = at.max(self.rec.ended_at.unwrap_or(Time::ZERO));
        self.rec.ended_at = Some(at);
        let reason = match standing {
            Standing::Merged => "merged",
            Standing::Gone => "gone",
            Standing::Closed | Standing::Active => "closed",
        };
        let entry = Entry::new(self.now, "poll.closure_detected")
            .with("ref", self.rec.item.to_string())
            .with("reason", reason);
        self.out.entries.push(entry);
        // Who was never told of the item need not be told of its end.
        if self.told() {
            let key = numbered("closed", self.rec.openings.max(1));
            self.queue(key, EventKind::Closed, at, item, &Subject::End(reason));
        }
    }

    /// From when on comments are events: labelled and watched.
    fn since(&self) -> Time {
        self.watch_from.max(self.rec.since)
    }

    /// Whether there is an end to tell depends on what was said before it, whenever we look.
    fn comments_before_the_end(&mut self, sighting: &Sighting) {
        let item = &sighting.item;
        let end = item.closed_at.into_iter().chain(item.unlabelled_at).min();
        let before = |c: &&Comment| end.is_none_or(|at| c.created_at <= at);
        self.judge_comments(sighting, sighting.comments.iter().filter(before));
    }

    fn comments(&mut self, sighting: &Sighting) {
        self.judge_comments(sighting, sighting.comments.iter());
    }

    fn judge_comments<'c>(
        &mut self,
        sighting: &Sighting,
        comments: impl Iterator<Item = &'c Comment>,
    ) {
        let since = self.since();
        for comment in comments {
            let key = comment.key();
            let known = self.rec.known.get(&key);
            if known.is_some() {
                continue;
            }
            let at = comment.created_at;
            let mut gaps = sighting.item.without_label.iter();
            let label_went = sighting.item.unlabelled_at;
            if at < since {
                self.rec.known.add(key, Disposition::Baseline);
            } else if gaps.any(|&(from, to)| from < at && at < to)
                || label_went.is_some_and(|went| went < at)
            {
                self.passed_over(comment, &sighting.item);
            } else if comment.body.contains(&self.rules.self_marker)
                || !self.may_act(&comment.author, &key)
            {
                self.rec.known.add(key, Disposition::Refused);
            } else {
                self.queue(
                    key,
                    comment.channel.event(),
                    comment.created_at,
                    Some(&sighting.item),
                    &Subject::Comment(comment),
                );
            }
        }
    }

    /// Comments made while the item does not carry the label are baseline, also
    /// when it carries it again later.
    fn out_of_scope(&mut self, sighting: &Sighting) {
        let item = &sighting.item;
        // What was said before the label went, and is read only now, was said in scope.
        let went = self.rec.ended_at.filter(|_| item.labels_dated);
        let before = |c: &&Comment| went.is_some_and(|went| c.created_at <= went);
        self.judge_comments(sighting, sighting.comments.iter().filter(before));
        for comment in &sighting.comments {
            if self.rec.known.get(&comment.key()).is_none() {
                self.passed_over(comment, item);
            }
        }
    }

    /// A comment made while the item was without its label is baseline, and stays it.
    fn passed_over(&mut self, comment: &Comment, item: &Item) {
        self.rec.known.add(comment.key(), Disposition::Baseline);
        if item.labels_dated {
            // The tracker says so again when the label is back.
            return;
        }
        let next = comment.created_at.plus(std::time::Duration::from_millis(1));
        self.rec.since = self.rec.since.max(next);
    }

    fn may_act(&mut self, author: &Author, key: &Key) -> bool {
        let may = self.rules.policy.authorizes(author);
        if !may && self.rec.known.get(key).is_none() {
            let entry = Entry::new(self.now, "poll.unauthorized")
                .with("ref", self.rec.item.to_string())
                .with("key", key.to_string())
                .with("author", author.login.clone())
                .with("reason", unauthorized(author));
            self.out.entries.push(entry);
        }
        may
    }

    fn queue(
        &mut self,
        key: Key,
        kind: EventKind,
        at: Time,
        item: Option<&Item>,
        subject: &Subject,
    ) {
        if self.rec.known.get(&key) == Some(Disposition::Queued) {
            return;
        }
        let payload: Arc<str> = payload(
            &self.rec.source,
            &self.rec.item,
            &self.rec.seen,
            kind,
            &key,
            subject,
        );
        let hooks = &self.rules.webhook_sinks;
        // Of what is not there any more GitHub would show what it was, which nobody knows.
        let takes = |sink: &&String| item.is_some() || !hooks.contains(sink);
        let takers: Vec<&String> = self.rules.sinks.iter().filter(takes).collect();
        if takers.is_empty() {
            return;
        }
        let webhook = item
            .filter(|_| !hooks.is_empty())
            .and_then(|item| webhook(kind, item, subject));
        let seq = self.rec.next_seq;
        self.rec.next_seq += 1;
        self.rec.known.add(key.clone(), Disposition::Queued);
        self.rec.events.insert(
            seq,
            Event {
                key,
                kind,
                at,
                payload,
                webhook,
            },
        );
        for sink in takers {
            let queue: &mut Queue = self.rec.sinks.entry(sink.clone()).or_default();
            queue.pending.insert(seq);
        }
        self.out.queued += 1;
        self.out.changed = true;
    }

    /// New activity on an item re-arms an opening that was given up (R6.7).
    fn rearm_openings(&mut self) {
        if !self.out.changed {
            return;
        }
        let rearmed = self
            .rec
            .rearm(|key, _| key.0.split('/').next() == Some("opened"));
        for (sink, key) in rearmed {
            self.out.changed = true;
            let entry = rearmed_entry(
                self.now,
                &self.rec.item,
                &sink,
                &key,
                "new activity on the item",
            );
            self.out.entries.push(entry);
        }
    }
}

/// The entry for a delivery that may be tried again.
#[must_use]
pub fn rearmed_entry(now: Time, item: &ItemRef, sink: &str, key: &Key, reason: &str) -> Entry {
    Entry::new(now, "poll.rearmed")
        .with("ref", item.to_string())
        .with("delivery_id", super::delivery::delivery_id(item, key))
        .with("sink", sink)
        .with("reason", reason)
}

fn numbered(word: &str, n: u32) -> Key {
    if n <= 1 {
        Key(word.into())
    } else {
        Key(format!("{word}/{n}").into())
    }
}

fn unauthorized(author: &Author) -> &'static str {
    match (&author.login, author.bot) {
        (None, _) => "the author's account no longer exists",
        (Some(_), true) => "a bot needs its exact login in authorized_users",
        (Some(_), false) => "not in authorized_users or authorized_associations",
    }
}

#[cfg(test)]
mod tests;
