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
mod tests {
    use super::*;
    use crate::engine::item::{Channel, Comment, Kind};

    const WATCHED: Time = Time(1_000_000);
    const NOW: Time = Time(9_000_000);

    fn rules() -> Rules {
        Rules {
            source: "in".into(),
            sinks: vec!["a".into(), "b".into()],
            policy: Policy {
                authorized_users: vec!["octocat".into()],
                max_retries: 3,
                ..Policy::default()
            },
            self_marker: "<!-- idempoll -->".into(),
        }
    }

    fn by(login: &str) -> Author {
        Author {
            login: Some(login.into()),
            association: None,
            bot: false,
        }
    }

    fn item() -> Item {
        Item {
            item_ref: "github:octo/api#7".parse().expect("a ref"),
            kind: Kind::Issue,
            title: "Do it".into(),
            body: "Please".into(),
            author: by("octocat"),
            state: State::Open,
            labels: vec!["auto".into()],
            created_at: Some(Time(500_000)),
            labelled_at: None,
            closed_at: None,
            url: None,
        }
    }

    fn says(id: u64, login: &str, at: u64) -> Comment {
        Comment {
            channel: Channel::Comment,
            id: id.to_string(),
            author: by(login),
            body: "go".into(),
            created_at: Time(at),
            url: None,
        }
    }

    /// Judges one sighting after another; gives what was queued by each, in order.
    fn story(
        rules: &Rules,
        sightings: &[(Item, Vec<Comment>)],
    ) -> (Option<Record>, Vec<Vec<String>>) {
        let mut record = None;
        let mut told = Vec::new();
        for (item, comments) in sightings {
            let before: Vec<u64> = record
                .iter()
                .flat_map(|r: &Record| r.events.keys().copied())
                .collect();
            rules.judge(
                &mut record,
                &Sighting {
                    item: item.clone(),
                    comments: comments.clone(),
                },
                WATCHED,
                NOW,
            );
            let mut new: Vec<&Event> = record
                .iter()
                .flat_map(|r| &r.events)
                .filter(|(seq, _)| !before.contains(seq))
                .map(|(_, e)| e)
                .collect();
            new.sort_by(|a, b| a.place().cmp(&b.place()));
            told.push(new.iter().map(|e| e.key.to_string()).collect());
        }
        (record, told)
    }

    fn keys(rules: &Rules, sightings: &[(Item, Vec<Comment>)]) -> Vec<Vec<String>> {
        story(rules, sightings).1
    }

    fn closed_at(at: u64) -> Item {
        Item {
            state: State::Closed,
            closed_at: Some(Time(at)),
            ..item()
        }
    }

    /// Given an item older than the watch, when it is first seen open, then it is
    /// opened once, comments made before the watch are baseline, later ones events (R6.4).
    #[test]
    fn r6_4_old_comments_are_baseline_and_an_open_item_is_opened_once() {
        let seen = (
            item(),
            vec![says(2, "octocat", 2_000_000), says(1, "octocat", 999_999)],
        );
        let (record, told) = story(&rules(), &[seen.clone(), seen]);
        assert_eq!(told, [vec!["opened", "comment/2"], vec![]]);
        let record = record.expect("a record");
        assert_eq!(
            record.known.get(&Key("comment/1".into())),
            Some(Disposition::Baseline)
        );
        // R6.6: each sink has its own queue of both.
        assert!(record.sinks.values().all(|q| q.pending.len() == 2) && record.sinks.len() == 2);
    }

    /// Given a label time, when the item is first seen, then comments made before
    /// the label are baseline; a label nobody asks for does not matter (R6.4).
    #[test]
    fn r6_4_comments_before_the_label_are_baseline() {
        let mut labelled = rules();
        labelled.policy.label = Some("AUTO".into());
        let seen = (
            Item {
                labelled_at: Some(Time(3_000_000)),
                ..item()
            },
            vec![says(1, "octocat", 2_000_000), says(2, "octocat", 3_000_000)],
        );
        assert_eq!(
            keys(&labelled, std::slice::from_ref(&seen)),
            [["opened", "comment/2"]]
        );
        assert_eq!(
            keys(&rules(), &[seen]),
            [["opened", "comment/1", "comment/2"]]
        );
        // An item without the label is none of ours.
        let other = (
            Item {
                labels: vec!["bug".into()],
                ..item()
            },
            vec![says(1, "octocat", 2_000_000)],
        );
        assert!(story(&labelled, &[other]).0.is_none());
    }

    /// Given an item opened, discussed and closed between two looks, when it is seen
    /// closed, then the events are those of a poller that was there (R6.4).
    #[test]
    fn r6_4_what_was_missed_is_made_up_for() {
        let comments = vec![says(1, "octocat", 2_000_000), says(2, "octocat", 6_000_000)];
        assert_eq!(
            keys(&rules(), &[(closed_at(5_000_000), comments)]),
            [["opened", "comment/1", "closed", "comment/2"]]
        );
        // Closed before it was watched: only what was said since.
        assert_eq!(
            keys(
                &rules(),
                &[(closed_at(900_000), vec![says(2, "octocat", 6_000_000)])]
            ),
            [["comment/2"]]
        );
        assert!(
            story(&rules(), &[(closed_at(900_000), vec![])]).0.is_none(),
            "history is not copied"
        );
    }

    #[test]
    fn r6_4_the_backlog_can_be_skipped_and_its_news_still_arrive() {
        let mut skip = rules();
        skip.policy.backlog = Backlog::Skip;
        let before = (item(), vec![]);
        let after = (item(), vec![says(1, "octocat", 2_000_000)]);
        assert_eq!(keys(&skip, &[before, after]), [vec![], vec!["comment/1"]]);
        let new = (
            Item {
                created_at: Some(Time(2_000_000)),
                ..item()
            },
            vec![],
        );
        assert_eq!(keys(&skip, &[new]), [["opened"]]);
    }

    /// R6.4: a time in the config overrides the remembered one.
    #[test]
    fn r6_4_watch_from_in_the_config_wins() {
        let mut early = rules();
        early.policy.watch_from = Some(Time(0));
        assert_eq!(
            keys(&early, &[(item(), vec![says(1, "octocat", 600_000)])]),
            [["opened", "comment/1"]]
        );
    }

    #[test]
    fn closing_and_reopening_are_events_with_numbers_of_their_own() {
        let closed = closed_at(3_000_000);
        let told = keys(
            &rules(),
            &[
                (item(), vec![]),
                (closed.clone(), vec![]),
                (item(), vec![]),
                (closed, vec![]),
                (item(), vec![]),
            ],
        );
        assert_eq!(
            told,
            [
                ["opened"],
                ["closed"],
                ["opened/2"],
                ["closed/2"],
                ["opened/3"]
            ]
        );
        let (record, _) = story(
            &rules(),
            &[(
                Item {
                    state: State::Merged,
                    closed_at: Some(Time(4)),
                    ..item()
                },
                vec![],
            )],
        );
        assert!(record.is_none());
    }

    #[test]
    fn losing_the_label_ends_the_item_and_what_is_said_without_it_is_baseline() {
        let mut labelled = rules();
        labelled.policy.label = Some("auto".into());
        let bare = Item {
            labels: vec![],
            ..item()
        };
        let comments = |n: u64| {
            (1..=n)
                .map(|id| says(id, "octocat", 1_000_000 + id * 1000))
                .collect::<Vec<_>>()
        };
        let told = keys(
            &labelled,
            &[
                (item(), comments(1)),
                (bare.clone(), comments(2)),
                (bare, comments(3)),
                (item(), comments(4)),
            ],
        );
        assert_eq!(
            told,
            [
                vec!["opened", "comment/1"],
                vec!["comment/2", "closed"],
                vec![],
                vec!["opened/2", "comment/4"]
            ]
        );
    }

    /// Given comments by a stranger, by ourselves and by a deleted account, when they
    /// are seen, then none is ever delivered, now or later (R7.1, R7.2, C002, C039, C047).
    #[test]
    fn r7_only_the_authorized_act_and_never_we_ourselves() {
        let mut ours = says(2, "octocat", 2_000_001);
        ours.body = "quoting: go <!-- idempoll -->".into();
        let mut ghost = says(3, "x", 2_000_002);
        ghost.author.login = None;
        let seen = (
            item(),
            vec![
                says(1, "stranger", 2_000_000),
                ours,
                ghost,
                says(4, "OCTOCAT", 2_000_003),
            ],
        );
        let mut record = None;
        let sighting = Sighting {
            item: seen.0.clone(),
            comments: seen.1.clone(),
        };
        let judged = rules().judge(&mut record, &sighting, WATCHED, NOW);
        assert_eq!(judged.queued, 2, "the opening and the last comment");
        let said: Vec<&str> = judged.entries.iter().map(|e| e.kind.as_str()).collect();
        assert_eq!(said, ["poll.unauthorized", "poll.unauthorized"]);
        let again = rules().judge(&mut record, &sighting, WATCHED, NOW);
        assert_eq!(again, Judged::default(), "nothing is said twice");
        // Authorized later, an old comment stays refused.
        let mut open_to_all = rules();
        open_to_all.policy.authorized_users.push("stranger".into());
        assert_eq!(
            open_to_all
                .judge(&mut record, &sighting, WATCHED, NOW)
                .queued,
            0
        );
    }

    /// Given an item by a stranger, when they are authorized while it is open, then it is opened.
    #[test]
    fn r7_1_an_open_item_is_opened_once_its_author_is_authorized() {
        let theirs = Sighting {
            item: Item {
                author: by("stranger"),
                ..item()
            },
            comments: vec![],
        };
        let mut record = None;
        assert_eq!(rules().judge(&mut record, &theirs, WATCHED, NOW).queued, 0);
        // Who was never told of it is not told of its end.
        let mut ended = record.clone();
        let end = Sighting {
            item: Item {
                author: by("stranger"),
                ..closed_at(3_000_000)
            },
            comments: vec![],
        };
        assert_eq!(rules().judge(&mut ended, &end, WATCHED, NOW).queued, 0);
        let mut later = rules();
        later.policy.authorized_users.push("stranger".into());
        assert_eq!(later.judge(&mut record, &theirs, WATCHED, NOW).queued, 1);
        assert_eq!(later.judge(&mut record, &theirs, WATCHED, NOW).queued, 0);
    }

    /// R6.5, C035, C036, C037, C040: edits and deletions make no event, and what was
    /// queued keeps the text it was first read with.
    #[test]
    fn r6_5_edits_and_deletions_deliver_nothing() {
        let first = (
            item(),
            vec![says(1, "octocat", 2_000_000), says(2, "octocat", 2_000_001)],
        );
        let mut edited = says(1, "octocat", 2_000_000);
        edited.body = "something else".into();
        let changed = Item {
            title: "Do that".into(),
            body: "Now".into(),
            labels: vec!["auto".into(), "bug".into()],
            ..item()
        };
        let (record, told) = story(&rules(), &[first, (changed, vec![edited])]);
        assert_eq!(told, [vec!["opened", "comment/1", "comment/2"], vec![]]);
        let record = record.expect("a record");
        let payload = record
            .events
            .values()
            .find(|e| &*e.key.0 == "comment/1")
            .map(|e| e.payload.to_string());
        assert!(payload.expect("it waits").contains(r#""body":"go""#));
        assert!(record.known.get(&Key("comment/2".into())).is_some());
    }

    /// C043: equal numbers from different conversations do not hide each other.
    #[test]
    fn c043_equal_ids_of_different_conversations_are_different_events() {
        let mut review = says(77, "octocat", 2_000_000);
        review.channel = Channel::Review;
        let mut line = says(77, "octocat", 2_000_000);
        line.channel = Channel::ReviewComment;
        let told = keys(
            &rules(),
            &[(item(), vec![says(77, "octocat", 2_000_000), review, line])],
        );
        assert_eq!(
            told,
            [["opened", "comment/77", "review/77", "review_comment/77"]]
        );
    }

    /// R3.6, C111: what stands in for a damaged record neither repeats nor swallows.
    #[test]
    fn c111_a_damaged_record_is_not_a_first_sight() {
        let mut record = Some(Record::instead_of_damaged(
            "in",
            item().item_ref,
            true,
            Time(5_000_000),
        ));
        let comments = vec![says(1, "octocat", 4_000_000), says(2, "octocat", 6_000_000)];
        let judged = rules().judge(
            &mut record,
            &Sighting {
                item: item(),
                comments,
            },
            WATCHED,
            NOW,
        );
        assert_eq!(judged.queued, 1);
        let record = record.expect("a record");
        assert_eq!(
            record
                .events
                .values()
                .map(|e| e.key.to_string())
                .collect::<Vec<_>>(),
            ["comment/2"]
        );
        // It ended before the damage: that was told then.
        let mut ended = Some(Record::instead_of_damaged(
            "in",
            item().item_ref,
            true,
            Time(5_000_000),
        ));
        assert_eq!(
            rules()
                .judge(
                    &mut ended,
                    &Sighting {
                        item: closed_at(4_000_000),
                        comments: vec![]
                    },
                    WATCHED,
                    NOW
                )
                .queued,
            0
        );
    }

    /// The payload is SPEC section 5 to the letter.
    #[test]
    fn a_payload_says_what_the_contract_says() {
        let (record, _) = story(
            &rules(),
            &[(item(), vec![says(1234, "octocat", 2_000_000)])],
        );
        let record = record.expect("a record");
        let payloads: Vec<&str> = record.events.values().map(|e| &*e.payload).collect();
        assert_eq!(
            payloads,
            [
                r#"{"idempoll":1,"delivery_id":"github:octo/api#7/opened","event":"opened","source":"in","item":{"ref":"github:octo/api#7","provider":"github","host":"github.com","owner":"octo","repo":"api","number":7,"kind":"issue","title":"Do it","url":null,"author":"octocat","labels":["auto"],"state":"open","body":"Please"}}"#,
                r#"{"idempoll":1,"delivery_id":"github:octo/api#7/comment/1234","event":"comment","source":"in","item":{"ref":"github:octo/api#7","provider":"github","host":"github.com","owner":"octo","repo":"api","number":7,"kind":"issue","title":"Do it","url":null,"author":"octocat","labels":["auto"],"state":"open"},"comment":{"id":"1234","author":"octocat","body":"go","created_at":"1970-01-01T00:33:20Z","url":null}}"#,
            ]
        );
    }
}
