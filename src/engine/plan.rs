//! What is new: a sighting of an item against its record.
//!
//! The rules of R6.4 and R7 live here. Which events exist follows from
//! upstream's facts, the source's policy and the time it was first watched,
//! not from when the poller happened to look.

use super::access::{Backlog, Policy};
use super::delivery::{EventKind, Key};
use super::entry::Entry;
use super::item::{Author, Item, ItemRef, Sighting, State};
use super::payload::{Subject, payload};
use super::record::{Disposition, Event, Known, Queue, Record, Seen, Standing, Stored};
use super::time::Time;
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
    /// Who may act, which items count.
    pub policy: Policy,
    /// The text that marks our own comments.
    pub self_marker: String,
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
    /// From when on comments on `item` are events: labelled and watched. A
    /// label time nobody knows is the item's creation, before which it cannot
    /// have been commented on.
    fn since(&self, item: &Item, watch_from: Time) -> Time {
        let watch_from = self.policy.watch_from.unwrap_or(watch_from);
        match (&self.policy.label, item.labelled_at) {
            (Some(_), Some(labelled_at)) => watch_from.max(labelled_at),
            _ => watch_from,
        }
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
            since: self.since(item, watch_from).max(rec.since),
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
            since: rec.since,
            watch_from: Time::ZERO,
            now,
            out: Judged::default(),
            rec,
        };
        if judging.rec.standing == Standing::Active {
            judging.end(Standing::Gone, now);
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
        let mut known = Known::default();
        known.add(Key("opened".into()), Disposition::Queued);
        Record {
            item,
            source: source.to_string(),
            seen: Seen::default(),
            since: modified,
            openings: 1,
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
    since: Time,
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
        let last_said = sighting.comments.iter().map(|c| c.created_at).max();
        let ended_at = item.closed_at.or(last_said).unwrap_or(self.now);
        match (self.rec.standing, wanted && open) {
            (Standing::Active, true) => {
                self.refused_opening_anew(item);
                self.comments(sighting);
            }
            (Standing::Active, false) => {
                self.comments(sighting);
                // An end older than a damaged record was delivered before the damage.
                if !open && item.closed_at.is_some_and(|at| at < self.rec.since) {
                    self.rec.standing = ended;
                } else {
                    self.end(if open { Standing::Gone } else { ended }, ended_at);
                }
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
                self.comments(sighting);
                self.end(ended, ended_at);
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
            Some(closed_at) => closed_at >= self.since,
            None => item.created_at.is_some_and(|at| at >= self.since),
        }
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
        let kind = if self.rec.openings == 1 {
            EventKind::Opened
        } else {
            EventKind::Reopened
        };
        let started = match self.rules.policy.label {
            Some(_) => item.labelled_at.or(item.created_at),
            None => item.created_at,
        };
        let is_backlog =
            kind == EventKind::Opened && started.is_some_and(|at| at < self.watch_from);
        if is_backlog && self.rules.policy.backlog == Backlog::Skip {
            self.rec.known.add(key, Disposition::Baseline);
        } else if !self.may_act(&item.author, &key) {
            self.rec.known.add(key, Disposition::Refused);
        } else {
            // A reopening stands right behind the closing it undoes, an opening before everything.
            let at = self.rec.ended_at.unwrap_or(Time::ZERO);
            self.queue(key, kind, at, &Subject::Item(item));
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

    fn end(&mut self, standing: Standing, at: Time) {
        self.rec.standing = standing;
        // An end stands behind everything queued before it was noticed.
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
        let told = self
            .rec
            .known
            .entries()
            .iter()
            .any(|(_, d)| *d == Disposition::Queued);
        if told {
            let key = numbered("closed", self.rec.openings.max(1));
            self.queue(key, EventKind::Closed, at, &Subject::End(reason));
        }
    }

    fn comments(&mut self, sighting: &Sighting) {
        for comment in &sighting.comments {
            let key = comment.key();
            let known = self.rec.known.get(&key);
            if matches!(known, Some(Disposition::Queued | Disposition::Refused)) {
                continue;
            }
            if comment.created_at < self.since {
                self.rec.known.add(key, Disposition::Baseline);
            } else if comment.body.contains(&self.rules.self_marker)
                || !self.may_act(&comment.author, &key)
            {
                self.rec.known.add(key, Disposition::Refused);
            } else {
                self.queue(
                    key,
                    comment.channel.event(),
                    comment.created_at,
                    &Subject::Comment(comment),
                );
            }
        }
    }

    /// Comments made while the item does not carry the label are baseline, also
    /// when it carries it again later.
    fn out_of_scope(&mut self, sighting: &Sighting) {
        for comment in &sighting.comments {
            if self.rec.known.get(&comment.key()).is_none() {
                self.rec.known.add(comment.key(), Disposition::Baseline);
                let next = comment.created_at.plus(std::time::Duration::from_millis(1));
                self.rec.since = self.rec.since.max(next);
            }
        }
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

    fn queue(&mut self, key: Key, kind: EventKind, at: Time, subject: &Subject) {
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
            },
        );
        for sink in &self.rules.sinks {
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
