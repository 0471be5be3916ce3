//! Work items and comments as a tracker reports them: upstream facts, nothing of ours.

use super::time::Time;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The name of a work item for ever: `github:octo/api#7`,
/// `github:ghe.example.org/octo/api#7`, `dir:inbox#7`.
///
/// The host stands in it only when it is not the provider's own
/// (`github.com`), and without its port. Owner, repository and source names
/// come from the config, whose rules allow letters, digits, `.`, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemRef {
    /// `github`, `dir`, …
    pub provider: String,
    /// The host, where it is not the provider's own.
    pub host: Option<String>,
    /// `owner/repo`, or the source's name for `dir`.
    pub path: String,
    /// The item's number in there.
    pub number: u64,
}

impl fmt::Display for ItemRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.provider)?;
        if let Some(host) = &self.host {
            write!(f, "{host}/")?;
        }
        write!(f, "{}#{}", self.path, self.number)
    }
}

/// Why a text is not an item's ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotARef(pub String);

impl fmt::Display for NotARef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is not an item as in github:octo/api#7 or dir:inbox#7",
            self.0.escape_debug()
        )
    }
}

impl std::error::Error for NotARef {}

impl FromStr for ItemRef {
    type Err = NotARef;

    fn from_str(s: &str) -> Result<ItemRef, NotARef> {
        let wrong = || NotARef(s.chars().take(120).collect());
        let (provider, rest) = s.split_once(':').ok_or_else(wrong)?;
        let (path, number) = rest.rsplit_once('#').ok_or_else(wrong)?;
        let number = number.parse().map_err(|_| wrong())?;
        let parts: Vec<&str> = path.split('/').collect();
        if provider.is_empty() || !std::iter::once(&provider).chain(&parts).all(|p| is_name(p)) {
            return Err(wrong());
        }
        let (host, path) = match parts.as_slice() {
            [host, owner, repo] => (Some((*host).to_string()), format!("{owner}/{repo}")),
            [_, _] | [_] => (None, path.to_string()),
            _ => return Err(wrong()),
        };
        Ok(ItemRef {
            provider: provider.to_string(),
            host,
            path,
            number,
        })
    }
}

/// Whether `s` is a name we let into file names, refs and delivery ids: 1 to
/// 100 letters, digits, `.`, `_`, `-`, and not `.` or `..` (`octo/.github` is a
/// repository). File names of ours begin with a [`is_plain_name`].
#[must_use]
pub fn is_name(s: &str) -> bool {
    (1..=100).contains(&s.len())
        && !matches!(s, "." | "..")
        && s.bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// Whether `s` is a name for a source or a sink: as [`is_name`], beginning with
/// a letter, a digit or `_`, so that it is neither a hidden file nor a flag.
#[must_use]
pub fn is_plain_name(s: &str) -> bool {
    is_name(s) && !s.starts_with(['.', '-'])
}

impl Serialize for ItemRef {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ItemRef {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<ItemRef, D::Error> {
        let s = std::borrow::Cow::<'de, str>::deserialize(d)?;
        s.parse().map_err(serde::de::Error::custom)
    }
}

/// Whether an item is an issue or asks for a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An issue.
    #[default]
    Issue,
    /// A pull or merge request.
    PullRequest,
}

/// An item's state upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Open.
    #[default]
    Open,
    /// Closed without a merge.
    Closed,
    /// Merged.
    Merged,
}

/// Who wrote an item or a comment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Author {
    /// The login; `None` for a deleted account, which is nobody.
    pub login: Option<String>,
    /// GitHub's `author_association` or its like, as the tracker wrote it.
    pub association: Option<String>,
    /// A bot account: needs its exact login in `authorized_users`.
    pub bot: bool,
}

/// A work item as the tracker reported it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its name.
    pub item_ref: ItemRef,
    /// Issue or pull request.
    pub kind: Kind,
    /// The title, as upstream wrote it.
    pub title: String,
    /// The text; empty when there is none.
    pub body: String,
    /// Who opened it.
    pub author: Author,
    /// Open, closed, merged.
    pub state: State,
    /// Its labels, in upstream's order.
    pub labels: Vec<String>,
    /// When it was opened, if the tracker says so.
    pub created_at: Option<Time>,
    /// When it got the label the source asks for, if the tracker says so.
    pub labelled_at: Option<Time>,
    /// When it was without that label since: from, to. Empty if the tracker does not say.
    pub without_label: Vec<(Time, Time)>,
    /// When it lost the label, if it did and the tracker tells.
    pub unlabelled_at: Option<Time>,
    /// The tracker tells whenever the label is put on or taken off.
    pub labels_dated: bool,
    /// When it was closed or merged, if it is and the tracker says so.
    pub closed_at: Option<Time>,
    /// Its page, for people.
    pub url: Option<String>,
    /// What the tracker wrote, where somebody wants that.
    pub upstream: Option<Box<Upstream>>,
}

/// An item in its tracker's own words: the JSON objects as they were sent, for who wants what its
/// webhook would have sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// The item as an issue, which a pull request is too.
    pub issue: Option<Arc<str>>,
    /// The pull request, if it is one and something may be told that needs it.
    pub pull_request: Option<Arc<str>>,
    /// The label the item lost, if that is why it ended.
    pub label: Option<Arc<str>>,
    /// Its repository.
    pub repository: Arc<str>,
    /// The App's installation that it was read by.
    pub installation: Option<Arc<str>>,
}

/// Which conversation a comment belongs to: equal ids in different ones are different comments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// The item's own conversation.
    Comment,
    /// A submitted review of a pull request.
    Review,
    /// A comment on a line of a pull request's diff.
    ReviewComment,
}

/// A comment as the tracker reported it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// Which conversation it belongs to.
    pub channel: Channel,
    /// Its id in there; passes [`is_name`], which the provider checks.
    pub id: String,
    /// Who wrote it.
    pub author: Author,
    /// The text.
    pub body: String,
    /// When it was made. A provider that cannot say uses the item's own time of change.
    pub created_at: Time,
    /// Its page, for people.
    pub url: Option<String>,
    /// What else is to be said of it in a review.
    pub details: Details,
    /// The JSON object it was sent as, where somebody wants that.
    pub upstream: Option<Arc<str>>,
}

/// What a review, or a comment on a line of a diff, says besides its text; named as GitHub names it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Details {
    /// A review's verdict: `commented`, `approved`, `changes_requested`, `dismissed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The review a line comment belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_request_review_id: Option<u64>,
    /// The line comment it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_reply_to_id: Option<u64>,
    /// The file commented on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The line of it, in the newer version of the file unless `side` says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Which version of the file the line is of: `LEFT` or `RIGHT`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side: Option<String>,
    /// The part of the diff commented on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff_hunk: Option<String>,
}

/// One item as a listing showed it, with those of its comments the listing brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// The item.
    pub item: Item,
    /// Its comments, in any order; known ones may be among them.
    pub comments: Vec<Comment>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refs_read_back_as_they_print() {
        for s in [
            "github:octo/api#7",
            "github:ghe.example.org/octo/api#7",
            "dir:inbox#7",
            "github:octo/.github#7",
        ] {
            let r: ItemRef = s.parse().expect(s);
            assert_eq!(r.to_string(), s);
        }
        for s in [
            "",
            "github:octo/api",
            "octo/api#7",
            "github:octo/api#x",
            "dir:../x#1",
            "dir:a/b/c/d#1",
            "dir:#1",
            ":a#1",
            "dir:..#1",
            "github:octo/..#1",
        ] {
            assert!(s.parse::<ItemRef>().is_err(), "{s}");
        }
    }
}
