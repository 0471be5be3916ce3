//! What a repository holds.

use super::tables::Table;
use idempoll::engine::item::Kind;
use idempoll::engine::time::Time;
use std::collections::BTreeMap;

/// An issue or a pull request. Times are whole seconds since 1970.
#[derive(Debug, Clone)]
pub struct Item {
    pub id: u64,
    pub kind: Kind,
    pub by: String,
    pub title: String,
    pub body: Option<String>,
    pub open: bool,
    pub reason: Option<String>,
    /// By their ids.
    pub labels: Vec<u64>,
    pub comments: u64,
    pub locked: bool,
    pub created: u64,
    /// As `/issues` has it.
    pub updated: u64,
    /// As `/pulls` has it: line comments and reviews move it too.
    pub pull_updated: u64,
    pub closed: Option<u64>,
    pub closed_by: Option<String>,
    pub merged: Option<u64>,
}

/// A comment on the conversation.
#[derive(Debug, Clone)]
pub struct Comment {
    pub item: u64,
    pub by: String,
    pub body: String,
    pub created: u64,
    pub updated: u64,
}

/// A comment on a line of a diff.
#[derive(Debug, Clone)]
pub struct LineComment {
    pub item: u64,
    pub review: u64,
    pub reply_to: Option<u64>,
    pub by: String,
    pub body: String,
    pub created: u64,
    pub updated: u64,
    /// Part of a review that was not submitted: its author's alone.
    pub draft: bool,
}

/// What a review says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Pending,
    Commented,
    Approved,
    ChangesRequested,
    Dismissed,
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Pending => "PENDING",
            Verdict::Commented => "COMMENTED",
            Verdict::Approved => "APPROVED",
            Verdict::ChangesRequested => "CHANGES_REQUESTED",
            Verdict::Dismissed => "DISMISSED",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Review {
    pub item: u64,
    pub by: String,
    pub verdict: Verdict,
    pub body: String,
    pub submitted: Option<u64>,
}

/// Something in an item's history.
#[derive(Debug, Clone)]
pub struct Event {
    pub item: u64,
    /// `labeled`, `closed`, …
    pub what: &'static str,
    pub by: String,
    pub at: u64,
    /// The label's number, and what it was called.
    pub label: Option<(u64, String)>,
    /// A title: from, to.
    pub renamed: Option<(String, String)>,
    pub reason: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Label {
    pub name: String,
    pub color: String,
}

impl Label {
    /// Names of labels are the same in every letter case.
    pub fn is_called(&self, name: &str) -> bool {
        self.name.to_lowercase() == name.to_lowercase()
    }
}

/// What is answered for an item that is no longer there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    Moved {
        repo: u64,
        number: u64,
    },
    /// 410.
    Gone,
    /// 404, as for one who could not read it.
    Nothing,
}

/// A repository.
#[derive(Debug)]
pub struct Repo {
    pub id: u64,
    pub owner: String,
    pub name: String,
    pub created: u64,
    /// 404 for those without a token.
    pub private: bool,
    pub(super) revoked: bool,
    pub(super) next_number: u64,
    /// By number.
    pub items: Table<Item>,
    /// Items that are no longer there: since when, and what is said of them.
    pub(super) gone: BTreeMap<u64, (Time, Trace)>,
    pub comments: Table<Comment>,
    pub line_comments: Table<LineComment>,
    pub reviews: Table<Review>,
    pub events: Table<Event>,
    pub labels: Table<Label>,
}

impl Repo {
    pub(super) fn new(id: u64, name: &str, now: Time) -> Repo {
        let mut repo = Repo {
            id,
            owner: String::new(),
            name: String::new(),
            created: seconds(now),
            private: false,
            revoked: false,
            next_number: 0,
            items: Table::default(),
            gone: BTreeMap::new(),
            comments: Table::default(),
            line_comments: Table::default(),
            reviews: Table::default(),
            events: Table::default(),
            labels: Table::default(),
        };
        repo.set_name(name);
        repo
    }

    pub(super) fn set_name(&mut self, full: &str) {
        let (owner, name) = full.split_once('/').expect("owner/name");
        (self.owner, self.name) = (owner.to_string(), name.to_string());
    }

    pub fn full_name(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }
}

/// A time as stamps have it.
pub fn seconds(time: Time) -> u64 {
    time.0 / 1000
}
