//! What a listing of a feed says, and how it ended.
//!
//! A *feed* is the smallest thing that is listed on its own and has a cursor
//! of its own: a directory, or one repository of a source.

use super::feed::Runs;
use super::host::{Budget, Wait};
use super::item::Sighting;
use super::time::Time;
use serde_json::Value;
use std::collections::BTreeMap;

/// What a listing starts from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ask {
    /// Where the last complete listing left off, in the provider's own words.
    pub cursor: Option<Value>,
    /// When the feed was first watched; `None` before its first listing.
    pub watch_from: Option<Time>,
    /// The items being worked on.
    pub open: Runs,
    /// Which tokens may not be used with the feed's host before when, by the
    /// names [`Budget`] gives them.
    pub waits: BTreeMap<String, Wait>,
    /// When the cycle began, by the local clock: the same for all its listings.
    pub cycle: Time,
    /// The local time at the start of the listing.
    pub now: Time,
}

/// One thing a listing says, in the order it learns it.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// The tracker's own clock, said at most once and before anything else.
    /// A feed listed for the first time is watched from this time on.
    Clock(Time),
    /// An item, new or changed (a known, unchanged one does no harm).
    Sighting(Box<Sighting>),
    /// An item that could not be read; the rest of the listing goes on.
    Unreadable {
        /// Which one, as the user would look for it: a file's name, `#7`.
        what: String,
        /// Why.
        reason: String,
    },
    /// From here on only what an earlier listing should have told is told again:
    /// news among it was missed, and is counted.
    Again,
    /// Something the user should know, said once by the provider.
    Warning(String),
    /// What the host said of our budget, at most once and last.
    Budget(Budget),
}

/// How a listing ended. Only [`Listing::Complete`] may move a cursor or
/// conclude that something is gone.
#[derive(Debug, Clone, PartialEq)]
pub enum Listing {
    /// All of it was read and said.
    Complete(Complete),
    /// It ended early, for whatever reason.
    Cut(Cut),
}

impl Listing {
    /// A complete listing of a place with nothing in it: the wrong conclusion
    /// from a listing that did not end, which deliberate faults draw.
    pub(crate) fn nothing_there() -> Listing {
        Listing::Complete(Complete {
            cursor: Value::Null,
            coverage: Coverage::Everything {
                present: Vec::new(),
            },
        })
    }
}

/// The end of a listing that was read to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Complete {
    /// Where the next listing goes on, in the provider's own words. Equal to
    /// the one it was given when nothing changed.
    pub cursor: Value,
    /// What the listing covered.
    pub coverage: Coverage,
}

/// What a complete listing covered.
#[derive(Debug, Clone, PartialEq)]
pub enum Coverage {
    /// What changed since the cursor: silence about an item means nothing.
    Changes {
        /// Items that were asked for by themselves, and are not there.
        missing: Vec<u64>,
    },
    /// Everything there is: an item not among `present` was not there.
    Everything {
        /// The numbers of all items there, said as sightings or not.
        present: Vec<u64>,
    },
}

/// Why a listing ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The reason, for the user.
    pub reason: String,
    /// Ask again no earlier than this.
    pub not_before: Option<Time>,
}

impl Cut {
    /// A listing that ended early and may be tried again at the next cycle.
    pub fn because(reason: impl Into<String>) -> Cut {
        Cut {
            reason: reason.into(),
            not_before: None,
        }
    }
}
