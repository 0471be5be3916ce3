//! What goes into the state machine and what comes out: facts and steps.

use super::delivery::{Delivery, Outcome, Receipt, Slug};
use super::entry::Entry;
use super::host::Host;
use super::item::ItemRef;
use super::listing::{Ask, Heard, Listing};
use super::plan::Rules;
use super::record::Record;
use super::saving::Unsaved;
use super::time::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// What the engine is told once, at the start.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// The feeds, in the order they are listed.
    pub feeds: Vec<FeedSetup>,
    /// How many deliveries each sink takes at once.
    pub slots: BTreeMap<String, usize>,
    /// The pause after a first failed try.
    pub retry_pause: Duration,
    /// How many records with something to deliver are held in memory, before those
    /// that can wait for their turn are read again when it comes.
    pub most_held: usize,
    /// The version of idempoll.
    pub version: String,
    /// A cycle ends only when everything due in it is resolved (`--once`);
    /// otherwise deliveries go on while the next one begins.
    pub once: bool,
}

/// One feed: what is listed on its own and has a cursor of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedSetup {
    /// Its file name.
    pub slug: Slug,
    /// The ref its items have, but for the number.
    pub template: ItemRef,
    /// The host whose limits it shares with other feeds; `None` without a network.
    pub host: Option<String>,
    /// What its items are judged by.
    pub rules: Rules,
}

/// Something that happened.
#[derive(Debug)]
pub enum Fact {
    /// A [`Step::Load`] was answered.
    Loaded {
        /// Which record.
        slug: Slug,
        /// What was found.
        found: Found,
    },
    /// A [`Step::Save`] is durable.
    Saved {
        /// Which record.
        slug: Slug,
    },
    /// A save failed; nothing of it can be relied on.
    SaveFailed {
        /// Of what.
        what: Unsaved,
        /// Why.
        reason: String,
    },
    /// A [`Step::Flush`] is done: every [`Step::SaveLater`] before it is durable.
    Flushed,
    /// A [`Step::SaveFeed`] is durable.
    FeedSaved,
    /// A cycle is due.
    CycleDue,
    /// The listing said something. At most one at a time, see [`super::cycle::Engine::listens`].
    Heard(Heard),
    /// The listing ended.
    Listed(Listing),
    /// A try came back.
    Settled {
        /// The record.
        slug: Slug,
        /// The sink.
        sink: String,
        /// How it ended.
        outcome: Outcome,
    },
    /// A [`Step::Settle`] was answered.
    Receipt {
        /// The record.
        slug: Slug,
        /// The sink.
        sink: String,
        /// What the sink still knows.
        receipt: Receipt,
    },
    /// The user asked for deliveries that were given up to be tried again.
    Retry {
        /// Of this item, or of all.
        item: Option<ItemRef>,
        /// This delivery (its id or its key), or all of the item's.
        delivery: Option<String>,
    },
    /// A stop was asked for.
    StopAsked,
}

/// What loading a record found.
#[derive(Debug)]
pub enum Found {
    /// The record.
    Record(Box<Record>),
    /// There is none.
    Nothing,
    /// It is damaged; the file was last written at `modified`.
    Damaged {
        /// What is wrong with it.
        reason: String,
        /// When it was last written.
        modified: Time,
    },
    /// It was damaged and set aside before, and nothing took its place yet.
    SetAside {
        /// When it was last written.
        modified: Time,
    },
    /// It cannot be read now, or a newer version wrote it: leave it alone.
    Unreadable {
        /// Why.
        reason: String,
    },
}

/// Something to do.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Read a record; answer [`Fact::Loaded`].
    Load(Slug),
    /// Keep a copy of a damaged record's file aside.
    SetAside(Slug),
    /// Make a record durable, as [`super::cycle::Engine::record`] gives it; answer
    /// [`Fact::Saved`] or [`Fact::SaveFailed`].
    Save(Slug),
    /// Write a record on which nothing depends before the next [`Step::Flush`];
    /// answer [`Fact::Saved`] or [`Fact::SaveFailed`].
    SaveLater(Slug),
    /// Make what was saved later durable; answer [`Fact::Flushed`] or [`Fact::SaveFailed`].
    Flush,
    /// Make a feed durable, as [`super::cycle::Engine::feed_to_save`] gives it; answer
    /// [`Fact::FeedSaved`] or [`Fact::SaveFailed`].
    SaveFeed(usize),
    /// Make what is known of a host durable; only a failure is answered, by
    /// [`Fact::SaveFailed`].
    SaveHost(Box<Host>),
    /// Begin to list a feed.
    List {
        /// Which, by its place in [`Setup::feeds`].
        feed: usize,
        /// What from.
        ask: Box<Ask>,
    },
    /// Leave the listing behind.
    Abandon,
    /// Hand a delivery to a worker; answered by [`Fact::Settled`] some time.
    Deliver(Delivery),
    /// Ask for the receipt of a try; answer [`Fact::Receipt`].
    Settle(Delivery),
    /// Wait for a running try of an earlier poller; answered by [`Fact::Settled`] some time.
    Adopt(Delivery),
    /// Let go of a receipt nobody needs any more.
    Forget(Delivery),
    /// Write an entry into the event log.
    Log(Entry),
    /// A cycle ended.
    CycleEnded(Summary),
}

/// What a cycle came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// When it began.
    pub started_at: Time,
    /// Items being worked on in all feeds.
    pub items: usize,
    /// Feeds whose listing failed or was cut.
    pub failed_feeds: usize,
    /// Items that could not be read.
    pub item_errors: usize,
    /// Deliveries since the end of the cycle before.
    pub delivered: u64,
    /// Failed tries since the end of the cycle before.
    pub failed: u64,
    /// A stop cut it short.
    pub interrupted: bool,
    /// Something changed, was delivered or failed: worth an entry in the log.
    pub eventful: bool,
}

/// Deliveries counted since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// `opened` and `reopened` delivered.
    pub opened: u64,
    /// Comments, reviews and review comments delivered.
    pub comments: u64,
    /// `closed` delivered.
    pub closed: u64,
    /// Failed tries.
    pub failed: u64,
    /// "Not now"s.
    pub deferred: u64,
    /// Interruptions found.
    pub interrupted: u64,
    /// Events that only a sweep found; the listings before it should have told them.
    pub missed: u64,
    /// Tries whose effect goes on after a stop; the next start takes them up again.
    pub left_running: u64,
    /// Deliveries that were tried and are not delivered: by id and sink, why.
    pub undelivered: BTreeMap<(String, String), String>,
}

impl Totals {
    /// All deliveries.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.opened + self.comments + self.closed
    }
}

/// How a feed is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// Why its last listing failed, if it did.
    pub error: Option<String>,
    /// Since when it fails.
    pub failing_since: Option<Time>,
    /// When it was last listed in full length.
    pub last_listing_at: Option<Time>,
    /// Items that could not be read in the last listing, and why.
    pub item_errors: BTreeMap<String, String>,
}
