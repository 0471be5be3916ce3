//! What of a record never changes again: blocks, `items/<slug>.d/`.
//!
//! A record's head is written anew with every save, so it must stay small
//! however long the item's thread is. Two things grow with the thread, and both
//! move into files that are written once:
//!
//! * `known-<n>`: 256 known events each, oldest first. The newest 256 to 511
//!   stay in the head: how many blocks there are follows from the number of
//!   known events alone ([`sealed_known`]), and their content from the record,
//!   so a block left by a crash is the block that will be written.
//! * `events-<first seq>`: unresolved events, at most 64 and 256 KiB of payload
//!   (one event larger than that has a block to itself). As long as the head
//!   holds at most 64 events and 128 KiB it keeps them; beyond, all but the
//!   newest few are sealed, in order of `seq`. The head says which of the
//!   sealed ones are still unresolved; a block with none is dropped from the
//!   head and then removed.
//!
//! Blocks are durable before the head that refers to them becomes visible, and
//! removed only after the head that no longer does is durable. A block no head
//! refers to is removed the next time the record's blocks change. So a save
//! costs one head of bounded size, and each event's payload is written at most
//! once into a block.
//!
//! A block is a JSON object: `version`, and `known` or `events` as in the head.

use super::head::{EventDoc, Keys, Wrong};
use crate::engine::delivery::Key;
use crate::engine::feed::Runs;
use crate::engine::record::{Disposition, Event, Record};
use serde::Serialize;
use std::collections::BTreeMap;

/// Known events in one block.
const KNOWN_IN_BLOCK: usize = 256;
/// Events a head holds at most before the older ones are sealed.
const INLINE_EVENTS: usize = 64;
/// Bytes of payload a head holds at most before the older events are sealed.
const INLINE_BYTES: usize = 128 * 1024;
/// Events that stay in the head when the others are sealed.
const REST_EVENTS: usize = 16;
/// Bytes of payload that stay in the head when the others are sealed.
const REST_BYTES: usize = 32 * 1024;
/// Events in one block at most.
const BLOCK_EVENTS: usize = 64;
/// Bytes of payload in one block at most, unless one event alone has more.
const BLOCK_BYTES: usize = 256 * 1024;

/// What the beginning of a block of events' name is.
pub(super) const EVENTS_PREFIX: &str = "events-";

/// How a record is spread over its head and its blocks.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// How many blocks of known events.
    pub(super) known_blocks: u64,
    /// The blocks of events: first `seq` to last.
    pub(super) event_blocks: BTreeMap<u64, u64>,
    /// The events that stay in the head.
    pub(super) inline_events: Vec<u64>,
    /// The unresolved events in blocks, as runs.
    pub(super) unresolved: Vec<(u64, u64)>,
    /// The blocks not on disk yet: name and content.
    pub(super) new: Vec<(String, Vec<u8>)>,
    /// Whether the set of blocks of events changes.
    pub(super) events_moved: bool,
}

/// How many blocks of known events there are when `len` are known.
fn sealed_known(len: usize) -> usize {
    (len / KNOWN_IN_BLOCK).saturating_sub(1)
}

/// The name of the block of known events number `n`.
pub(super) fn known_name(n: u64) -> String {
    format!("known-{n:06}")
}

/// The name of the block of events that begins with `first`.
pub(super) fn events_name(first: u64) -> String {
    format!("{EVENTS_PREFIX}{first}")
}

impl Plan {
    /// Spreads `record`, given what `record.stored` says is on disk.
    pub(super) fn of(record: &Record) -> Result<Plan, serde_json::Error> {
        let mut plan = Plan::default();
        plan.seal_known(record)?;
        plan.seal_events(record)?;
        Ok(plan)
    }

    /// The known events that stay in the head.
    pub(super) fn inline_known<'a>(&self, record: &'a Record) -> &'a [(Key, Disposition)] {
        let sealed = usize::try_from(self.known_blocks).unwrap_or(usize::MAX);
        let entries = record.known.entries();
        &entries[sealed.saturating_mul(KNOWN_IN_BLOCK).min(entries.len())..]
    }

    fn seal_known(&mut self, record: &Record) -> Result<(), serde_json::Error> {
        let entries = record.known.entries();
        let sealed = sealed_known(entries.len());
        self.known_blocks = sealed as u64;
        for n in record.stored.known_blocks..self.known_blocks {
            // `n` is below `sealed`, a usize.
            let from = n as usize * KNOWN_IN_BLOCK;
            let block = KnownBlock {
                version: super::head::VERSION,
                known: &entries[from..from + KNOWN_IN_BLOCK],
            };
            self.new.push((known_name(n), serde_json::to_vec(&block)?));
        }
        Ok(())
    }

    fn seal_events(&mut self, record: &Record) -> Result<(), serde_json::Error> {
        let events = &record.events;
        let size = |seq: u64| events.get(&seq).map_or(0, Event::size);
        for (&first, &last) in &record.stored.event_blocks {
            if first <= last && events.range(first..=last).next().is_some() {
                self.event_blocks.insert(first, last);
            }
        }
        // Between the blocks and after them: what no block holds yet.
        let mut from = Some(0);
        for (&first, &last) in &self.event_blocks {
            if let Some(from) = from.filter(|&f| f < first) {
                self.inline_events
                    .extend(events.range(from..first).map(|(seq, _)| *seq));
            }
            from = last.checked_add(1);
        }
        if let Some(from) = from {
            self.inline_events
                .extend(events.range(from..).map(|(seq, _)| *seq));
        }
        let bytes: usize = self.inline_events.iter().map(|&seq| size(seq)).sum();
        if self.inline_events.len() > INLINE_EVENTS || bytes > INLINE_BYTES {
            let rest = newest(&self.inline_events, REST_EVENTS, REST_BYTES, size);
            let kept = self
                .inline_events
                .split_off(self.inline_events.len() - rest);
            let sealed = std::mem::replace(&mut self.inline_events, kept);
            for block in self.chunks(&sealed, size) {
                self.event_blocks.insert(block[0], block[block.len() - 1]);
                let docs = block
                    .iter()
                    .filter_map(|seq| Some(EventDoc::new(*seq, events.get(seq)?)))
                    .collect();
                let doc = EventsBlock {
                    version: super::head::VERSION,
                    events: docs,
                };
                self.new
                    .push((events_name(block[0]), serde_json::to_vec(&doc)?));
            }
        }
        self.events_moved = self.event_blocks != record.stored.event_blocks;
        let mut unresolved = Runs::default();
        for (&first, &last) in &self.event_blocks {
            for (&seq, _) in events.range(first..=last) {
                unresolved.insert(seq);
            }
        }
        self.unresolved = unresolved.into();
        Ok(())
    }

    /// Cuts `sealed` into blocks; none reaches over one that is there already.
    fn chunks<'s>(&self, sealed: &'s [u64], size: impl Fn(u64) -> usize) -> Vec<&'s [u64]> {
        let mut chunks = Vec::new();
        let (mut start, mut bytes) = (0, 0);
        for (at, &seq) in sealed.iter().enumerate() {
            let full = at > start
                && (at - start == BLOCK_EVENTS
                    || bytes + size(seq) > BLOCK_BYTES
                    || self
                        .event_blocks
                        .range(sealed[at - 1]..seq)
                        .next()
                        .is_some());
            if full {
                chunks.push(&sealed[start..at]);
                (start, bytes) = (at, 0);
            }
            bytes += size(seq);
        }
        if start < sealed.len() {
            chunks.push(&sealed[start..]);
        }
        chunks
    }
}

/// How many of the last of `seqs` are within both bounds.
fn newest(seqs: &[u64], count: usize, bytes: usize, size: impl Fn(u64) -> usize) -> usize {
    let mut left = bytes;
    seqs.iter()
        .rev()
        .take(count)
        .take_while(|&&seq| {
            let fits = size(seq) <= left;
            left = left.saturating_sub(size(seq));
            fits
        })
        .count()
}

#[derive(Serialize)]
struct KnownBlock<'a> {
    version: u64,
    known: &'a [(Key, Disposition)],
}

#[derive(Serialize)]
struct EventsBlock<'a> {
    version: u64,
    events: Vec<EventDoc<'a>>,
}

/// Reads a block of known events.
pub(super) fn parse_known(bytes: &[u8]) -> Result<Vec<(Key, Disposition)>, Wrong> {
    let known: Vec<_> = Keys::parse(bytes)?.required("known")?;
    if known.len() != KNOWN_IN_BLOCK {
        return Err(Wrong::Damaged(format!("it holds {} events", known.len())));
    }
    Ok(known)
}

/// Reads the block of events from `first` to `last` into `into`.
pub(super) fn parse_events(
    bytes: &[u8],
    first: u64,
    last: u64,
    into: &mut BTreeMap<u64, Event>,
) -> Result<(), Wrong> {
    let mut keys = Keys::parse(bytes)?;
    let docs: Vec<EventDoc> = keys.required("events")?;
    let mut seqs = (None, None);
    for doc in docs {
        let (seq, event) = doc.take()?;
        seqs = (seqs.0.or(Some(seq)), Some(seq));
        into.insert(seq, event);
    }
    if seqs != (Some(first), Some(last)) {
        return Err(Wrong::Damaged(format!(
            "it is not that of {first} to {last}"
        )));
    }
    Ok(())
}
