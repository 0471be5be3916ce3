//! What is remembered of one item: its ledger record.
//!
//! A record is a plain value and every change to it is a method here or in
//! [`super::plan`]. The store writes it; `docs/state.md` has the disk format.

use super::delivery::{EventKind, Key};
use super::item::{ItemRef, Kind, State};
use super::time::Time;
use super::webhook::Webhook;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The ledger record of one item in one source.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The item.
    pub item: ItemRef,
    /// The name of the source it came from.
    pub source: String,
    /// The item as last seen, for people and for payloads of later events.
    pub seen: Seen,
    /// A floor under the time from which comments are events: when the item got
    /// its label, if it needs one, when it was last said something while without
    /// it, or when its record was damaged.
    pub since: Time,
    /// When the newest comment ever seen was made: where what has no time of its own stands.
    pub latest: Time,
    /// How many openings were seen: 1 after the first, 0 when it never was open and watched.
    pub openings: u32,
    /// Whether the item is being worked on, and if not, why it ended.
    pub standing: Standing,
    /// When it ended the last time, if it ever did; the place of that `closed` in the order.
    pub ended_at: Option<Time>,
    /// Every event ever seen, in the order it was first seen; only grows.
    pub known: Known,
    /// The events some sink has not resolved yet, by `seq`.
    pub events: BTreeMap<u64, Event>,
    /// The next event's `seq`.
    pub next_seq: u64,
    /// Each sink's queue, by the sink's name.
    pub sinks: BTreeMap<String, Queue>,
    /// The last resolved deliveries, oldest first, at most [`HISTORY`].
    pub history: Vec<Resolved>,
    /// Keys a newer minor release may have added; kept as they are.
    pub extra: Map<String, Value>,
    /// What the store knows about the files of this record; empty for a new one.
    pub stored: Stored,
}

/// How many resolved deliveries a record remembers in detail.
pub const HISTORY: usize = 32;

/// The item as last seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Seen {
    /// Issue or pull request.
    pub kind: Kind,
    /// Its title.
    pub title: String,
    /// Its page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Who opened it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Its state upstream.
    pub state: State,
}

/// Whether an item is being worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Open, and carrying the label if the source asks for one.
    Active,
    /// Closed upstream.
    Closed,
    /// Merged upstream.
    Merged,
    /// No longer there, or no longer carrying the label.
    Gone,
}

/// What became of an event when it was first seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// It was queued for the source's sinks.
    Queued,
    /// It was made before the item was labelled and watched: never delivered.
    Baseline,
    /// Its author may not act, or it carries the self marker: never delivered.
    Refused,
}

/// Every event ever seen of an item. Only grows, in memory and on disk: the
/// store writes all but the newest entries once, into blocks that never change.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Known {
    entries: Vec<(Key, Disposition)>,
    index: HashMap<Key, usize>,
}

impl Known {
    /// Takes the entries as they were stored.
    #[must_use]
    pub fn from_entries(entries: Vec<(Key, Disposition)>) -> Known {
        let mut known = Known::default();
        for (key, disposition) in entries {
            known.add(key, disposition);
        }
        known
    }

    /// All entries, in the order they were added.
    #[must_use]
    pub fn entries(&self) -> &[(Key, Disposition)] {
        &self.entries
    }

    /// What became of an event, if it was seen before.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Disposition> {
        self.index.get(key).map(|&at| self.entries[at].1)
    }

    /// Adds an event, or a new word on a known one. Nothing is overwritten:
    /// the new word is one more entry, and the last entry on an event stands.
    pub fn add(&mut self, key: Key, disposition: Disposition) {
        if self.get(&key) != Some(disposition) {
            self.index.insert(key.clone(), self.entries.len());
            self.entries.push((key, disposition));
        }
    }
}

/// An event not yet resolved by every sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its name within the item.
    pub key: Key,
    /// What happened.
    pub kind: EventKind,
    /// Its place in upstream's order; ties go by `order`.
    pub at: Time,
    /// The bytes to deliver, fixed when the event was first seen.
    pub payload: Arc<str>,
    /// What GitHub's webhook would have sent, if a sink takes that.
    pub webhook: Option<Webhook>,
}

impl Event {
    /// How many bytes it holds to deliver.
    #[must_use]
    pub fn size(&self) -> usize {
        let webhook = self
            .webhook
            .as_ref()
            .map_or(0, |webhook| webhook.body.len());
        self.payload.len() + webhook
    }
}

/// One sink's view of an item: which events wait for it, strictly in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Queue {
    /// The `seq` of every event not yet resolved by this sink.
    pub pending: BTreeSet<u64>,
    /// What was spent on those of them that were tried at all.
    pub tries: BTreeMap<u64, Tries>,
    /// Those given up, kept whole so that they can be re-armed.
    pub gave_up: BTreeMap<u64, GaveUp>,
    /// How many were delivered, ever.
    pub delivered: u64,
    /// When the last one was.
    pub last_delivery_at: Option<Time>,
    /// Keys a newer minor release may have added.
    pub extra: Map<String, Value>,
}

/// What one delivery has cost so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tries {
    /// How many tries were begun, of any outcome.
    pub begun: u32,
    /// How many failed: this is the budget spent.
    pub attempts: u32,
    /// How many ended with the poller and without a receipt.
    #[serde(default)]
    pub interruptions: u32,
    /// How many times in a row the sink said "not now".
    #[serde(default)]
    pub deferrals: u32,
    /// A try was handed out and has not come back: its outcome is unknown until settled.
    #[serde(default)]
    pub in_flight: bool,
    /// Not tried again before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Time>,
    /// Why the last try did not resolve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// A delivery that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GaveUp {
    /// When.
    pub at: Time,
    /// Why the last try failed.
    pub reason: String,
    /// The version of idempoll that gave up.
    pub version: String,
    /// Failed tries spent on it.
    pub attempts: u32,
    /// Interruptions it saw.
    #[serde(default)]
    pub interruptions: u32,
    /// Tries begun, so that a re-armed delivery goes on counting.
    #[serde(default)]
    pub begun: u32,
}

/// A resolved delivery, as `show` lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// The event's key.
    pub key: Key,
    /// The sink.
    pub sink: String,
    /// The event's `seq`, which names its receipt.
    pub seq: u64,
    /// When it was delivered.
    pub at: Time,
    /// The tries it took.
    pub begun: u32,
    /// The failed ones among them.
    pub attempts: u32,
    /// The interrupted ones among them.
    #[serde(default)]
    pub interruptions: u32,
}

/// What the store remembers about a record's files between load and save;
/// the engine carries it along and never looks inside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stored {
    /// How many blocks of [`Known`] entries are on disk.
    pub known_blocks: u64,
    /// The blocks of events on disk: first `seq` to last.
    pub event_blocks: BTreeMap<u64, u64>,
    /// Whether the record is marked in the pending index.
    pub marked: bool,
}

impl Record {
    /// Whether any sink has something waiting or given up: such a record must be
    /// in the pending index.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.sinks
            .values()
            .any(|q| !q.pending.is_empty() || !q.gave_up.is_empty())
    }

    /// How many deliveries wait, over all sinks.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.sinks.values().map(|q| q.pending.len()).sum()
    }

    /// How many deliveries were given up, over all sinks.
    #[must_use]
    pub fn gave_up(&self) -> usize {
        self.sinks.values().map(|q| q.gave_up.len()).sum()
    }

    /// How many deliveries were made, over all sinks.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.sinks.values().map(|q| q.delivered).sum()
    }

    /// When the last delivery was made, to whichever sink.
    #[must_use]
    pub fn last_delivery_at(&self) -> Option<Time> {
        self.sinks.values().filter_map(|q| q.last_delivery_at).max()
    }
}
