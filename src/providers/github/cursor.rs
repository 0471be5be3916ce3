//! What a repository's feed remembers between two listings.
//!
//! ```json
//! { "repo": { "id": 4242, "name": "octo/new-name" },
//!   "issues":          { "since": "…", "newest": "…" },
//!   "comments":        { "since": "…", "unchanged": { "url": "…", "etag": "…", "token": "…" } },
//!   "review_comments": { … }, "pulls": { … },
//!   "told": { "comment/81": "…" }, "labels": { "7": "…" }, "swept_at": "…", "missing": { "7": "…" },
//!   "none_left": "none of …", "unread": { "9": { "since": "…", "noted_at": "…", "again_at": "…", "reason": "…" } } }
//! ```
//!
//! All times are the tracker's.

use super::unread::Unread;
use crate::engine::time::Time;
use crate::mutant;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// How far behind what was seen a listing starts, for a replica may show a
/// change late: twice what was ever seen of GitHub, and more.
pub const OVERLAP: Duration = Duration::from_secs(120);

/// A row from further ahead of the server's own clock moves no window: it would
/// hide everything that comes before that day.
const AHEAD: Duration = Duration::from_secs(24 * 3600);

/// The whole of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Cursor {
    /// Which repository it is, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<Identity>,
    /// Issues and pull requests, by update.
    pub issues: Window,
    /// The comments on them.
    pub comments: Window,
    /// Comments on lines of diffs.
    #[serde(default)]
    pub review_comments: Window,
    /// Pull requests, by update: that their reviews may have changed.
    #[serde(default)]
    pub pulls: Window,
    /// What was said within the windows and told when all replicas knew of it, as of when:
    /// it need not be told again, nor its item be asked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub told: BTreeMap<String, Time>,
    /// Ended items within the window that were asked for when they got their label, as of when.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<u64, Time>,
    /// When all items were listed the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swept_at: Option<Time>,
    /// Items that were asked for by themselves and not there, and when.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<u64, Time>,
    /// What the last sweep said when it found none of the items being worked on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub none_left: Option<String>,
    /// Items that could not be read whole.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unread: BTreeMap<u64, Unread>,
    /// Keys a newer minor release may have added.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A repository: names change hands, its number does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its number.
    pub id: u64,
    /// What it is called now, if that is not what the config says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// How much of one list is known, and from where it is read on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// The list is asked for from here on.
    pub since: Time,
    /// The newest change seen in it, as long as an older one may still show up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<Time>,
    /// What the server called the list when there was nothing in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unchanged: Option<Tag>,
}

impl Default for Window {
    fn default() -> Window {
        Window::from(Time::ZERO)
    }
}

/// An `ETag`, and what it is bound to. (`Accept` is the same for all requests,
/// and a server that binds it to more answers anew.)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    /// Of this list.
    pub url: String,
    /// As the server wrote it.
    pub etag: String,
    /// Asked with the token of this fingerprint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// What one reading of a list found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// The newest change in it.
    pub newest: Option<Time>,
    /// The server's clock when the reading began.
    pub date: Option<Time>,
    /// The same, or ours where a server does not tell its own.
    pub clock: Option<Time>,
    /// There was nothing in it, and the server called that so.
    pub empty: Option<Tag>,
}

impl Reading {
    /// Takes note of a row that changed at `at`.
    pub fn saw(&mut self, at: Option<Time>) {
        // Nor past the clock: what changes before that day would be hidden.
        let believed = at
            .filter(|&at| is_sane(at, self.clock))
            .map(|at| self.clock.map_or(at, |clock| at.min(clock)));
        self.newest = self.newest.max(believed);
    }
}

/// Whether a row's time can be true by the clock.
pub fn is_sane(at: Time, clock: Option<Time>) -> bool {
    clock.is_none_or(|clock| at <= clock.plus(AHEAD))
}

impl Window {
    /// All changes since `time`, those a replica showed late included.
    pub fn from(time: Time) -> Window {
        Window {
            since: whole(before(time, OVERLAP)),
            newest: None,
            unchanged: None,
        }
    }

    /// Whether all up to its start is known, and nothing after it was seen.
    pub fn is_settled(&self) -> bool {
        self.newest.is_none()
    }

    /// The window after a reading of all of it.
    ///
    /// While the newest change is young, older ones may still come to light, and
    /// the window stays [`OVERLAP`] behind it. A reading made later than that has
    /// shown them all: the window moves past the newest, and is empty then. Only
    /// an empty list's `ETag` is kept, so "not modified" never hides a row behind
    /// a full page, and what a reading left for the next one is there again.
    pub fn after(&self, reading: &Reading) -> Window {
        let newest = self.newest.max(reading.newest);
        let Some(seen) = newest else {
            return Window {
                unchanged: reading.empty.clone(),
                ..self.clone()
            };
        };
        let overlap = match mutant::is("window-without-overlap") {
            true => Duration::ZERO,
            false => OVERLAP,
        };
        let settled = reading.date.is_some_and(|date| {
            let waited = date >= seen.plus(OVERLAP) || mutant::is("settled-at-once");
            waited && reading.newest.is_none_or(|n| n <= seen)
        });
        let (since, newest) = if settled {
            (whole(seen.plus(Duration::from_secs(1))), None)
        } else {
            (whole(before(seen, overlap)), newest)
        };
        Window {
            since: since.max(self.since),
            newest,
            unchanged: match mutant::is("full-page-trusted") {
                true => reading.empty.clone(),
                false => None,
            },
        }
    }

    /// The window, reaching back to what changed at `at` and was left for the next reading.
    pub fn reaching(self, at: Option<Time>) -> Window {
        match at {
            None => self,
            Some(at) => Window {
                // A second more, should `since` leave its own second out.
                since: self.since.min(whole(before(at, Duration::from_secs(1)))),
                newest: self.newest.max(Some(at)),
                unchanged: None,
            },
        }
    }
}

/// `time` so much earlier.
pub fn before(time: Time, by: Duration) -> Time {
    Time(
        time.0
            .saturating_sub(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)),
    )
}

/// Rounded down to whole seconds, in which GitHub counts.
fn whole(time: Time) -> Time {
    Time(time.0 / 1000 * 1000)
}

/// A time as GitHub writes it.
pub fn stamp(time: Time) -> String {
    format!("{}Z", &time.to_string()[..19])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Time {
        Time(s * 1000)
    }

    fn read(newest: Option<u64>, date: u64) -> Reading {
        Reading {
            newest: newest.map(at),
            date: Some(at(date)),
            clock: Some(at(date)),
            empty: None,
        }
    }

    /// Given a change, when the list is read again and again, then the window stays behind the
    /// change until no older one can come to light, moves past it, and is settled.
    #[test]
    fn a_window_settles_behind_what_was_seen() {
        let window = Window::from(at(1000));
        assert_eq!(window.since, at(880));
        let quiet = window.after(&read(None, 5000));
        assert_eq!(
            quiet, window,
            "nothing seen, nothing moved: the URL stays the same"
        );
        let young = window.after(&read(Some(5000), 5010));
        assert_eq!((young.since, young.newest), (at(4880), Some(at(5000))));
        let still = young.after(&read(Some(5000), 5119));
        assert_eq!(still, young);
        let settled = young.after(&read(Some(5000), 5120));
        assert_eq!((settled.since, settled.newest), (at(5001), None));
        // A replica that shows nothing of it moves nothing back.
        assert_eq!(young.after(&read(None, 5130)).since, at(5001));
        assert_eq!(settled.after(&read(None, 5200)), settled);
    }

    #[test]
    fn a_window_reaches_back_to_what_was_left() {
        let settled = Window::from(at(9000)).after(&read(Some(9000), 9500));
        let back = settled.clone().reaching(Some(at(4000)));
        assert_eq!((back.since, back.newest), (at(3999), Some(at(4000))));
        assert_eq!(settled.clone().reaching(None), settled);
    }

    #[test]
    fn a_row_from_the_far_future_moves_nothing() {
        let mut reading = read(None, 1000);
        reading.saw(Some(at(1000 + 25 * 3600)));
        assert_eq!(reading.newest, None);
        reading.saw(Some(at(1000 + 3600)));
        assert_eq!(reading.newest, Some(at(1000)), "the server's own clock");
    }

    #[test]
    fn a_stamp_is_in_whole_seconds() {
        assert_eq!(stamp(Time(1_785_924_000_999)), "2026-08-05T10:00:00Z");
    }
}
