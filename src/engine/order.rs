//! The order of an item's events: upstream's, so that every process finds the same one.

use super::delivery::EventKind;
use super::record::{Event, Queue};
use super::time::Time;
use std::collections::BTreeMap;

/// A place in an item's order of events.
///
/// By time first. Within one second (trackers count in whole ones) comments
/// stand before the closing they came with, and closings and reopenings in the
/// order of their numbers. Then by conversation and id, numbers by value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place<'a> {
    at: Time,
    turn: u64,
    id_len: usize,
    id: &'a str,
    kind: EventKind,
}

impl Event {
    /// Where this event stands among those of its item.
    #[must_use]
    pub fn place(&self) -> Place<'_> {
        let id = self.key.0.split_once('/').map_or("", |(_, id)| id);
        // The first opening, comments, the first closing, the second opening, …
        let number = || id.parse().unwrap_or(1u64).saturating_mul(2);
        let turn = match self.kind {
            EventKind::Opened | EventKind::Reopened if id.is_empty() => 0,
            EventKind::Opened | EventKind::Reopened => number(),
            EventKind::Comment | EventKind::Review | EventKind::ReviewComment => 1,
            EventKind::Closed => number().saturating_add(1),
        };
        // Ids are upstream's counters where they are numbers; then a longer one is later.
        let id_len = if id.bytes().all(|b| b.is_ascii_digit()) {
            id.len()
        } else {
            usize::MAX
        };
        Place {
            at: self.at,
            turn,
            id_len,
            id,
            kind: self.kind,
        }
    }
}

impl Queue {
    /// The event this sink must resolve next: the one being tried, or the first in order.
    #[must_use]
    pub fn head(&self, events: &BTreeMap<u64, Event>) -> Option<u64> {
        if let Some((&seq, _)) = self.tries.iter().find(|(_, t)| t.in_flight) {
            return Some(seq);
        }
        self.pending
            .iter()
            .filter_map(|seq| events.get(seq).map(|e| (e.place(), *seq)))
            .min()
            .map(|(_, seq)| seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::delivery::Key;

    fn event(key: &str, kind: EventKind, at: u64) -> Event {
        Event {
            key: Key(key.into()),
            kind,
            at: Time(at),
            payload: "{}".into(),
            webhook: None,
        }
    }

    /// R6.1, C018: equal seconds are told apart by id, and ids by value.
    #[test]
    fn r6_1_events_stand_in_upstream_order() {
        let wanted = [
            event("opened", EventKind::Opened, 0),
            event("comment/1", EventKind::Comment, 0),
            event("comment/9", EventKind::Comment, 5),
            event("comment/10", EventKind::Comment, 5),
            event("comment/10a", EventKind::Comment, 5),
            event("closed", EventKind::Closed, 5),
            event("opened/2", EventKind::Reopened, 5),
            event("closed/2", EventKind::Closed, 5),
            event("opened/10", EventKind::Reopened, 5),
            event("comment/2", EventKind::Comment, 6),
        ];
        let mut shuffled = wanted.to_vec();
        shuffled.reverse();
        shuffled.sort_by(|a, b| a.place().cmp(&b.place()));
        assert_eq!(shuffled, wanted);
    }
}
