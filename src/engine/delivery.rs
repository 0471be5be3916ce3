//! Deliveries: one event of one item for one sink, and what became of trying it.

use super::item::ItemRef;
use super::time::Time;
use super::webhook::Webhook;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// What happened to an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The item is there to be worked on.
    Opened,
    /// It is open again.
    Reopened,
    /// Someone commented.
    Comment,
    /// Someone submitted a review.
    Review,
    /// Someone commented on a line of the diff.
    ReviewComment,
    /// The item ended: closed, merged or gone.
    Closed,
}

impl EventKind {
    /// The word used in payloads, keys and the log.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            EventKind::Opened => "opened",
            EventKind::Reopened => "reopened",
            EventKind::Comment => "comment",
            EventKind::Review => "review",
            EventKind::ReviewComment => "review_comment",
            EventKind::Closed => "closed",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The name of an event within its item, from upstream facts alone:
/// `opened`, `opened/2` (the second opening), `comment/1234`, `closed`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(pub Arc<str>);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The delivery id: the item's ref and the event's key, `github:octo/api#7/comment/1234`.
#[must_use]
pub fn delivery_id(item: &ItemRef, key: &Key) -> String {
    format!("{item}/{key}")
}

/// One try at one delivery, as a worker gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The delivery id.
    pub id: String,
    /// What happened.
    pub event: EventKind,
    /// To which item.
    pub item: ItemRef,
    /// The record it belongs to (a file name of ours).
    pub slug: Slug,
    /// The sink it goes to.
    pub sink: String,
    /// Its place in the record's numbering, unique in there for ever.
    pub seq: u64,
    /// Which try this is: 1 for the first.
    pub attempt: u32,
    /// The bytes to deliver, the same at every try.
    pub payload: Arc<str>,
    /// What GitHub's webhook would have sent; likewise.
    pub webhook: Option<Webhook>,
}

/// What became of one try, named by what the caller does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It took effect: resolve it.
    Delivered,
    /// It was tried and failed: one attempt is spent.
    Failed {
        /// Why, for the user.
        reason: String,
    },
    /// It will never take effect: give it up, whatever is left of its budget.
    Refused {
        /// Why, for the user.
        reason: String,
    },
    /// The sink says "not now": try again later, nothing spent.
    Deferred {
        /// Why, for the user.
        reason: String,
        /// Not before this, if the sink said so.
        not_before: Option<Time>,
    },
    /// It was accepted and never begun: give the attempt back.
    Released,
    /// It was begun and goes on without us: the next start asks for its receipt.
    LeftRunning,
    /// It was begun and nobody knows how it ended: an interruption.
    Unknown,
}

impl Outcome {
    /// "Not now", with nothing known about when.
    #[must_use]
    pub fn not_now(reason: impl Into<String>) -> Outcome {
        Outcome::Deferred {
            reason: reason.into(),
            not_before: None,
        }
    }
}

/// What a sink can say later about a try whose outcome nobody recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Receipt {
    /// It ended, and this is how.
    Settled(Outcome),
    /// It is still running.
    Running,
    /// There is no sign that it ever ended.
    Missing,
}

/// The file name of a record: `SOURCE~OWNER~REPO~NUMBER`, `SOURCE~NUMBER`.
///
/// Made from the names in the config and a number alone, in lower case, with
/// `~` between, which no name may contain: two items never share one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slug(Arc<str>);

impl Slug {
    /// The record of `item` in the source named `source`.
    #[must_use]
    pub fn new(source: &str, item: &ItemRef) -> Slug {
        let mut s = Slug::feed(
            source,
            item.host.as_deref(),
            (item.provider != "dir").then_some(item.path.as_str()),
        )
        .to_string();
        s.push('~');
        s.push_str(&item.number.to_string());
        Slug(s.into())
    }

    /// The feed `path` (`owner/repo`) of the source named `source`; a source that is one feed has no path.
    #[must_use]
    pub fn feed(source: &str, host: Option<&str>, path: Option<&str>) -> Slug {
        let mut s = source.to_ascii_lowercase();
        for part in host.into_iter().chain(path) {
            s.push('~');
            s.push_str(&part.to_ascii_lowercase().replace('/', "~"));
        }
        Slug(s.into())
    }

    /// Takes a file name back, if it is one we could have made.
    #[must_use]
    pub fn from_file_name(name: &str) -> Option<Slug> {
        let ok = name.len() <= 245
            && !name.starts_with('.')
            && name.bytes().all(|b| {
                b.is_ascii_digit()
                    || b.is_ascii_lowercase()
                    || matches!(b, b'.' | b'_' | b'-' | b'~')
            });
        (ok && !name.is_empty()).then(|| Slug(name.into()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
