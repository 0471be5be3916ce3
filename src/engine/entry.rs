//! The words of the event log: one line of `STATE/log/events.jsonl` each.

use super::time::Time;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How much an entry matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Only with `-v`.
    Debug,
    /// Worth knowing.
    Info,
    /// Something to look at.
    Warn,
    /// Something is wrong.
    Error,
}

/// One entry of the event log: `ts`, `level`, `type`, then its own fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When.
    pub ts: Time,
    /// How much it matters.
    pub level: Level,
    /// What: `poll.cycle`, `dispatch.failed`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// The rest: `ref`, `delivery_id`, `sink`, `reason`, …
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// Every type an entry can have, with its level. `docs/events.md` explains each.
pub const TYPES: &[(&str, Level)] = &[
    ("poller.started", Level::Info),
    ("poller.stopped", Level::Info),
    ("poller.blocked", Level::Error),
    ("poller.warning", Level::Warn),
    ("poll.cycle", Level::Info),
    ("poll.source_error", Level::Error),
    ("poll.item_error", Level::Error),
    ("poll.rate_limited", Level::Warn),
    ("poll.missed", Level::Error),
    ("poll.unauthorized", Level::Info),
    ("poll.closure_detected", Level::Info),
    ("poll.gave_up", Level::Error),
    ("poll.rearmed", Level::Info),
    ("poll.attempts_released", Level::Info),
    ("poll.interrupted_delivery", Level::Warn),
    ("poll.store_error", Level::Error),
    ("dispatch.queued", Level::Info),
    ("dispatch.succeeded", Level::Info),
    ("dispatch.failed", Level::Warn),
    ("dispatch.deferred", Level::Info),
    ("dispatch.abandoned", Level::Info),
    ("dispatch.adopted", Level::Info),
    ("record.set_aside", Level::Error),
    ("config.reloaded", Level::Info),
    ("config.rejected", Level::Error),
];

impl Entry {
    /// An entry of a type listed in [`TYPES`], at its level.
    #[must_use]
    pub fn new(ts: Time, kind: &'static str) -> Entry {
        let level = TYPES.iter().find(|(k, _)| *k == kind).map(|(_, l)| *l);
        debug_assert!(level.is_some(), "{kind} is not in entry::TYPES");
        Entry {
            ts,
            level: level.unwrap_or(Level::Info),
            kind: kind.to_string(),
            fields: Map::new(),
        }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Entry {
        self.fields.insert(key.to_string(), value.into());
        self
    }
}
