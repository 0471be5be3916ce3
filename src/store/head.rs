//! The file of a record, `items/<slug>.json`: its head.
//!
//! One JSON object, one key to a line, with no newline at the end, so that a
//! file cut anywhere is not JSON:
//!
//! | key | value |
//! |---|---|
//! | `version` | 1 |
//! | `ref`, `source` | the item and the source; together they make the file's name |
//! | `seen` | the item as last seen: `kind`, `title`, `url`, `author`, `labels`, `state` |
//! | `since` | comments made before this are baseline |
//! | `latest` | when the newest comment ever seen was made; missing if there is none |
//! | `openings` | how many openings were seen |
//! | `standing` | `active`, `closed`, `merged`, `gone` |
//! | `ended_at` | when it ended the last time, if it ever did |
//! | `next_seq` | the number the next event gets |
//! | `sinks` | by sink: `pending` and, where there are any, `tries`, `gave_up`, `delivered`, `last_delivery_at` |
//! | `events` | unresolved events not in a block: `seq`, `key`, `kind`, `at`, `payload`; for sinks that take it `webhook`: GitHub's `event` and `body` |
//! | `event_blocks` | the blocks holding the others: `[first seq, last seq]` each |
//! | `unresolved` | which of the events in those blocks are still unresolved |
//! | `known_blocks` | how many blocks of known events there are |
//! | `known` | the known events after those: `[key, disposition]` each |
//! | `history` | the last resolved deliveries |
//!
//! `pending` and `unresolved` are runs: `[[3, 7], [9, 9]]`. A payload stands
//! there byte for byte as it is delivered; one that is not exactly one JSON
//! text is a string under `payload_text` instead. Other keys, here and in a
//! sink's object, are kept as they are.

use super::blocks::Plan;
use crate::engine::delivery::{EventKind, Key, Slug};
use crate::engine::feed::Runs;
use crate::engine::item::ItemRef;
use crate::engine::record::{
    Disposition, Event, GaveUp, Known, Queue, Record, Resolved, Seen, Standing, Stored, Tries,
};
use crate::engine::time::Time;
use crate::engine::webhook::Webhook;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The format written here, and the newest that is understood.
pub(super) const VERSION: u64 = 1;

/// Why a text is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It is damaged, and how.
    Damaged(String),
    /// It is of this newer version.
    Newer(u64),
}

impl From<serde_json::Error> for Wrong {
    fn from(e: serde_json::Error) -> Wrong {
        Wrong::Damaged(e.to_string())
    }
}

/// A head as it was read, before its blocks are.
#[derive(Debug)]
pub(super) struct Head {
    /// The record without what is in blocks and without what waits.
    record: Record,
    /// What waits, by sink, as runs. They are spelt out when the events are
    /// there to compare with: a damaged run could be as long as memory.
    waiting: BTreeMap<String, Vec<(u64, u64)>>,
    /// The known events of the head.
    known: Vec<(Key, Disposition)>,
    /// Which events in blocks are unresolved.
    unresolved: Vec<(u64, u64)>,
}

/// A sink's queue on disk.
#[derive(Serialize, Deserialize)]
struct QueueDoc<'a> {
    pending: Vec<(u64, u64)>,
    #[serde(default, skip_serializing_if = "is_empty")]
    tries: Cow<'a, BTreeMap<u64, Tries>>,
    #[serde(default, skip_serializing_if = "is_empty")]
    gave_up: Cow<'a, BTreeMap<u64, GaveUp>>,
    #[serde(default)]
    delivered: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_delivery_at: Option<Time>,
    #[serde(flatten)]
    extra: Cow<'a, Map<String, Value>>,
}

fn is_empty<T: Clone>(map: &BTreeMap<u64, T>) -> bool {
    map.is_empty()
}

/// An event on disk, in a head or in a block.
#[derive(Serialize, Deserialize)]
pub(super) struct EventDoc<'a> {
    seq: u64,
    key: Key,
    kind: EventKind,
    at: Time,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    payload_text: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    webhook: Option<WebhookDoc<'a>>,
}

/// What GitHub's webhook would have sent, on disk.
#[derive(Serialize, Deserialize)]
struct WebhookDoc<'a> {
    event: Cow<'a, str>,
    #[serde(borrow)]
    body: &'a RawValue,
}

impl<'a> EventDoc<'a> {
    /// The event numbered `seq` as it is written.
    pub(super) fn new(seq: u64, event: &'a Event) -> EventDoc<'a> {
        let payload = serde_json::from_str::<&RawValue>(&event.payload)
            .ok()
            // Parsing drops white space around the text, whose bytes count too,
            // and takes `null` for a payload that is not there.
            .filter(|raw| raw.get().len() == event.payload.len() && raw.get() != "null");
        EventDoc {
            seq,
            key: event.key.clone(),
            kind: event.kind,
            at: event.at,
            payload,
            payload_text: payload
                .is_none()
                .then_some(Cow::Borrowed(event.payload.as_ref())),
            webhook: event.webhook.as_ref().and_then(|webhook| {
                Some(WebhookDoc {
                    event: Cow::Borrowed(&webhook.event),
                    // A body is one JSON object with nothing around it.
                    body: serde_json::from_str(&webhook.body).ok()?,
                })
            }),
        }
    }

    /// The event and its number.
    pub(super) fn take(self) -> Result<(u64, Event), Wrong> {
        let payload = match (self.payload, &self.payload_text) {
            (Some(raw), None) => raw.get().into(),
            (None, Some(text)) => text.as_ref().into(),
            _ => {
                let what = format!("event {} has not exactly one payload", self.seq);
                return Err(Wrong::Damaged(what));
            }
        };
        let event = Event {
            key: self.key,
            kind: self.kind,
            at: self.at,
            payload,
            webhook: self.webhook.map(|doc| Webhook {
                event: doc.event.as_ref().into(),
                body: doc.body.get().into(),
            }),
        };
        Ok((self.seq, event))
    }
}

/// The head of `record` when its blocks are as `plan` says.
pub(super) fn text(record: &Record, plan: &Plan) -> Result<Vec<u8>, serde_json::Error> {
    let mut doc = Doc::default();
    doc.key("version", &VERSION)?;
    doc.key("ref", &record.item)?;
    doc.key("source", &record.source)?;
    doc.key("seen", &record.seen)?;
    doc.key("since", &record.since)?;
    if record.latest != Time::ZERO {
        doc.key("latest", &record.latest)?;
    }
    doc.key("openings", &record.openings)?;
    doc.key("standing", &record.standing)?;
    if let Some(ended_at) = &record.ended_at {
        doc.key("ended_at", ended_at)?;
    }
    doc.key("next_seq", &record.next_seq)?;
    let sinks: BTreeMap<&str, QueueDoc> = record
        .sinks
        .iter()
        .map(|(name, q)| (name.as_str(), queue_doc(q)))
        .collect();
    doc.key("sinks", &sinks)?;
    let inline: Vec<EventDoc> = plan
        .inline_events
        .iter()
        .filter_map(|seq| Some(EventDoc::new(*seq, record.events.get(seq)?)))
        .collect();
    doc.key("events", &inline)?;
    if !plan.event_blocks.is_empty() {
        let blocks: Vec<(&u64, &u64)> = plan.event_blocks.iter().collect();
        doc.key("event_blocks", &blocks)?;
        doc.key("unresolved", &plan.unresolved)?;
    }
    if plan.known_blocks > 0 {
        doc.key("known_blocks", &plan.known_blocks)?;
    }
    doc.key("known", &plan.inline_known(record))?;
    doc.key("history", &record.history)?;
    for (key, value) in &record.extra {
        doc.key(key, value)?;
    }
    Ok(doc.end())
}

fn queue_doc(queue: &Queue) -> QueueDoc<'_> {
    QueueDoc {
        pending: queue.pending.iter().copied().collect::<Runs>().into(),
        tries: Cow::Borrowed(&queue.tries),
        gave_up: Cow::Borrowed(&queue.gave_up),
        delivered: queue.delivered,
        last_delivery_at: queue.last_delivery_at,
        extra: Cow::Borrowed(&queue.extra),
    }
}

impl Head {
    /// Reads a head.
    pub(super) fn parse(bytes: &[u8]) -> Result<Head, Wrong> {
        let mut keys = Keys::parse(bytes)?;
        let mut events = BTreeMap::new();
        for doc in keys.required::<Vec<EventDoc>>("events")? {
            let (seq, event) = doc.take()?;
            events.insert(seq, event);
        }
        let mut sinks = BTreeMap::new();
        let mut waiting = BTreeMap::new();
        for (name, doc) in keys.required::<BTreeMap<String, QueueDoc>>("sinks")? {
            waiting.insert(name.clone(), doc.pending);
            let queue = Queue {
                pending: BTreeSet::new(),
                tries: doc.tries.into_owned(),
                gave_up: doc.gave_up.into_owned(),
                delivered: doc.delivered,
                last_delivery_at: doc.last_delivery_at,
                extra: doc.extra.into_owned(),
            };
            sinks.insert(name, queue);
        }
        let stored = Stored {
            known_blocks: keys.optional("known_blocks")?,
            event_blocks: keys
                .optional::<Vec<(u64, u64)>>("event_blocks")?
                .into_iter()
                .collect(),
            marked: false,
        };
        Ok(Head {
            waiting,
            known: keys.required("known")?,
            unresolved: keys.optional("unresolved")?,
            record: Record {
                item: keys.required::<ItemRef>("ref")?,
                source: keys.required("source")?,
                seen: keys.required::<Seen>("seen")?,
                since: keys.required("since")?,
                latest: keys.optional("latest")?,
                openings: keys.required("openings")?,
                standing: keys.required::<Standing>("standing")?,
                ended_at: keys.optional("ended_at")?,
                known: Known::default(),
                events,
                next_seq: keys.required("next_seq")?,
                sinks,
                history: keys.required::<Vec<Resolved>>("history")?,
                extra: keys.rest()?,
                stored,
            },
        })
    }

    /// The file name the head asks for.
    pub(super) fn slug(&self) -> Slug {
        Slug::new(&self.record.source, &self.record.item)
    }

    /// As [`Record::is_unfinished`]; needs no block.
    pub(super) fn is_unfinished(&self) -> bool {
        self.record.is_unfinished() || self.waiting.values().any(|runs| !runs.is_empty())
    }

    /// The blocks the head refers to.
    pub(super) fn blocks(&self) -> &Stored {
        &self.record.stored
    }

    /// The whole record, given what is in its blocks.
    pub(super) fn finish(
        self,
        mut known: Vec<(Key, Disposition)>,
        mut in_blocks: BTreeMap<u64, Event>,
    ) -> Result<Record, Wrong> {
        let damaged = |why: &str| Err(Wrong::Damaged(why.to_string()));
        let mut record = self.record;
        known.extend(self.known);
        let total = known.len();
        record.known = Known::from_entries(known);
        if record.known.entries().len() != total {
            return damaged("it knows an event twice");
        }
        let unresolved = spelt_out(&self.unresolved, &in_blocks)
            .ok_or_else(|| Wrong::Damaged("an unresolved event is in no block".into()))?;
        in_blocks.retain(|seq, _| unresolved.contains(seq));
        for (seq, event) in in_blocks {
            if record.events.insert(seq, event).is_some() {
                return damaged("an event is there twice");
            }
        }
        if record
            .events
            .last_key_value()
            .is_some_and(|(&last, _)| last >= record.next_seq)
        {
            return damaged("an event has a number that was not given out yet");
        }
        for (name, runs) in self.waiting {
            let pending = spelt_out(&runs, &record.events).ok_or_else(|| {
                Wrong::Damaged(format!("sink {name} waits for an event that is not there"))
            })?;
            record.sinks.entry(name).or_default().pending = pending;
        }
        Ok(record)
    }
}

/// The numbers in `runs`, if each is that of an event in `events`.
fn spelt_out(runs: &[(u64, u64)], events: &BTreeMap<u64, Event>) -> Option<BTreeSet<u64>> {
    let mut all = BTreeSet::new();
    for &(first, last) in runs {
        if first > last {
            return None;
        }
        let before = all.len();
        all.extend(events.range(first..=last).map(|(seq, _)| *seq));
        let found = u64::try_from(all.len() - before).ok()?;
        if found.checked_sub(1) != Some(last - first) {
            return None;
        }
    }
    Some(all)
}

/// A JSON object being written, one key to a line.
#[derive(Default)]
struct Doc(Vec<u8>);

impl Doc {
    fn key(&mut self, key: &str, value: &impl Serialize) -> Result<(), serde_json::Error> {
        self.0
            .extend_from_slice(if self.0.is_empty() { b"{\n" } else { b",\n" });
        serde_json::to_writer(&mut self.0, key)?;
        self.0.extend_from_slice(b": ");
        serde_json::to_writer(&mut self.0, value)
    }

    fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(b"\n}");
        self.0
    }
}

/// The keys of a JSON object of ours, to be taken one by one.
pub(super) struct Keys<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> Keys<'a> {
    /// Takes a whole file: UTF-8, one JSON object, a version that is understood.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Keys<'a>, Wrong> {
        if bytes.is_empty() {
            return Err(Wrong::Damaged("it is empty".into()));
        }
        if bytes.iter().all(|&b| b == 0) {
            return Err(Wrong::Damaged("it is all zero bytes".into()));
        }
        let text = std::str::from_utf8(bytes).map_err(|e| Wrong::Damaged(e.to_string()))?;
        let mut keys = Keys(serde_json::from_str(text)?);
        match keys.required::<u64>("version")? {
            VERSION => Ok(keys),
            0 => Err(Wrong::Damaged("it has version 0".into())),
            newer => Err(Wrong::Newer(newer)),
        }
    }

    /// Takes the value of a key that must be there.
    pub(super) fn required<T: Deserialize<'a>>(&mut self, key: &str) -> Result<T, Wrong> {
        let raw = self
            .0
            .remove(key)
            .ok_or_else(|| Wrong::Damaged(format!("it has no {key}")))?;
        serde_json::from_str(raw.get()).map_err(|e| Wrong::Damaged(format!("its {key}: {e}")))
    }

    /// Takes the value of a key, its default when it is not there.
    fn optional<T: Deserialize<'a> + Default>(&mut self, key: &str) -> Result<T, Wrong> {
        match self.0.contains_key(key) {
            true => self.required(key),
            false => Ok(T::default()),
        }
    }

    /// All keys not taken.
    fn rest(&mut self) -> Result<Map<String, Value>, Wrong> {
        let rest = std::mem::take(&mut self.0);
        rest.into_iter()
            .map(|(key, raw)| Ok((key, serde_json::from_str(raw.get())?)))
            .collect()
    }
}
