//! Items that could not be read whole: what is remembered of them until they can.
//!
//! One item the server fails at must not hold up its neighbours, nor may anything of it be
//! lost. So the listing goes on without it, and it is read by itself later: when it shows up
//! in a list again, or when its time has come, which is a minute first and an hour in the end.

use super::Look;
use super::rows::Row;
use crate::engine::item::{Item, Kind};
use crate::engine::listing::Cut;
use crate::engine::time::Time;
use crate::mutant;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// How soon an item is read again at the earliest.
const SOON: Duration = Duration::from_secs(60);

/// And at the latest.
const LATEST: Duration = Duration::from_secs(3600);

/// How long an item waits for what cannot be read of it, before the rest is told.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// How many are read again by one listing, besides those that show up.
pub const AT_ONCE: usize = 10;

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {
    /// What was said of it since then may not be told yet.
    pub since: Time,
    /// Since when it is so.
    pub noted_at: Time,
    /// When it is read again.
    pub again_at: Time,
    /// Why, for the user; empty if only time has to pass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// All of them, during a listing.
#[derive(Debug, Default)]
pub struct Unreads {
    /// As the listing found them.
    before: BTreeMap<u64, Unread>,
    now: BTreeMap<u64, Unread>,
}

impl Unreads {
    /// As the last listing left them.
    pub fn new(known: &BTreeMap<u64, Unread>) -> Unreads {
        Unreads {
            before: known.clone(),
            now: known.clone(),
        }
    }

    /// Notes at the server's time `now` that the item cannot be read whole; if it was not even
    /// `asked` for, that costs it nothing of its turn.
    pub fn note(&mut self, number: u64, reason: String, now: Time, asked: bool) {
        let before = self.before.get(&number);
        if !asked && !mutant::is("unasked-is-tried") {
            let unasked = Unread {
                since: now,
                noted_at: now,
                again_at: now,
                reason: String::new(),
            };
            self.now.entry(number).or_insert(unasked);
            return;
        }
        let noted_at = before.map_or(now, |unread| unread.noted_at.min(now));
        let pause = now.since(noted_at).clamp(SOON, LATEST);
        let since = before.into_iter().chain(self.now.get(&number));
        let since = since.map(|unread| unread.since).min();
        // What failed is the same though the server's words on it differ.
        let kind = |reason: &str| reason.split(": ").next().map(str::to_string);
        let said = before.filter(|unread| kind(&unread.reason) == kind(&reason));
        let unread = Unread {
            since: since.unwrap_or(now),
            noted_at,
            again_at: now.plus(pause),
            reason: said.map_or(reason, |unread| unread.reason.clone()),
        };
        self.now.insert(number, unread);
    }

    /// Something said of the item at `at` is not told.
    pub fn reach(&mut self, number: u64, at: Time) {
        if let Some(unread) = self.now.get_mut(&number) {
            unread.since = unread.since.min(at);
        }
    }

    /// All that was said of the item up to `at` is told, but for what could not be read.
    pub fn move_on(&mut self, number: u64, at: Time) {
        if let Some(unread) = self.now.get_mut(&number) {
            unread.since = unread.since.max(at);
        }
    }

    /// Whether an item could be read whole minutes ago.
    pub fn is_new(&self, number: u64, now: Time) -> bool {
        let unread = self.now.get(&number);
        unread.is_some_and(|unread| now < unread.noted_at.plus(PATIENCE))
    }

    /// How the last listing left an item.
    pub fn before(&self, number: u64) -> Option<&Unread> {
        self.before.get(&number)
    }

    /// Whether an item cannot be read whole.
    pub fn contains(&self, number: u64) -> bool {
        self.now.contains_key(&number)
    }

    /// It was read and told.
    pub fn remove(&mut self, number: u64) {
        self.now.remove(&number);
    }

    /// Those whose time has come, the longest overdue first.
    pub fn due(&self, now: Time) -> Vec<u64> {
        // A time further ahead was noted by a server whose clock ran ahead.
        let is_due = |unread: &Unread| unread.again_at <= now || unread.again_at > now.plus(LATEST);
        let due = self
            .before
            .iter()
            .filter(|(n, u)| is_due(u) && self.contains(**n));
        let mut due: Vec<(Time, u64)> = due.map(|(n, u)| (u.again_at, *n)).collect();
        due.sort_unstable();
        due.into_iter().map(|(_, n)| n).take(AT_ONCE).collect()
    }

    /// All of them.
    pub fn all(&self) -> &BTreeMap<u64, Unread> {
        &self.now
    }
}

impl Look<'_> {
    /// Reads by itself what was said of an item that could not be read whole before; says whether
    /// that was possible.
    pub(super) fn is_read_again(&mut self, number: u64, kind: Kind) -> Result<bool, Cut> {
        // What this listing itself left may be older than what the last one did.
        let is_old = self.talk.unread.before(number).is_some();
        let since = self
            .talk
            .unread
            .all()
            .get(&number)
            .map(|unread| unread.since);
        let Some(since) = since.filter(|_| is_old && self.tried.insert(number)) else {
            return Ok(false);
        };
        self.caught_up(number, since, kind)
    }

    /// Reads what was said of an open issue made before what the lists show, and new to us: it was
    /// transferred from another repository, or reopened. Says whether that was possible.
    pub(super) fn catch_up_with_stranger(&mut self, item: &Item) -> Result<bool, Cut> {
        let number = item.item_ref.number;
        let shown = self.known.as_ref().map(|known| known.issues.since);
        let ours_since = item.labelled_at.max(item.created_at);
        if item.kind == Kind::Issue
            && self.limit.is_none()
            && ours_since < shown
            && self.tried.insert(number)
            && !mutant::is("strangers-come-without-a-past")
        {
            return self.caught_up(number, self.watched(), Kind::Issue);
        }
        Ok(true)
    }

    fn caught_up(&mut self, number: u64, since: Time, kind: Kind) -> Result<bool, Cut> {
        let read = self.talk.catch_up(number, since, kind, &mut self.session)?;
        if let Err(reason) = read {
            self.leave_failed(number, reason);
            self.talk.unread.reach(number, since);
            return Ok(false);
        }
        Ok(true)
    }

    /// Leaves an item that cannot be read whole for later, and what was said of it.
    pub(super) fn leave_unread(&mut self, number: u64, reason: String) {
        self.tried.insert(number);
        let now = self.session.clock();
        self.talk.unread.note(number, reason, now, true);
    }

    /// The same for one the server failed at, if it was asked at all.
    pub(super) fn leave_failed(&mut self, number: u64, reason: String) {
        self.tried.insert(number);
        let (now, asked) = (self.session.clock(), self.session.asked_item);
        self.talk.unread.note(number, reason, now, asked);
    }

    /// Tries again with the pull requests that changed and cannot be read whole.
    pub(super) fn unread_pulls(&mut self) -> Result<(), Cut> {
        let changed = self.talk.changed_pulls();
        let again = changed
            .iter()
            .filter(|(number, _)| self.talk.unread.contains(**number));
        let again: Vec<Row> = again.map(|(_, row)| row.clone()).collect();
        for row in again {
            self.tell(&row)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Time {
        Time(s * 1000)
    }

    /// Given an item that cannot be read for a day, when it is tried whenever it is due, then
    /// it is tried after a minute, less and less often, and at least once an hour.
    #[test]
    fn an_item_is_tried_less_and_less_often() {
        let mut known = BTreeMap::new();
        let (mut now, mut tries) = (1_000_000, Vec::new());
        let start = now;
        while now < start + 86_400 {
            let mut unreads = Unreads::new(&known);
            if known.is_empty() || unreads.due(at(now)) == [7] {
                unreads.note(7, "it answers 500".into(), at(now), true);
                tries.push(now - start);
            }
            known = unreads.all().clone();
            now += 10;
        }
        assert_eq!(tries[..5], [0, 60, 120, 240, 480]);
        let longest = tries.windows(2).map(|two| two[1] - two[0]).max();
        assert!(
            (3500..=3610).contains(&longest.unwrap_or_default()),
            "{tries:?}"
        );
        assert_eq!(
            (known[&7].since, known[&7].noted_at),
            (at(start), at(start))
        );
    }

    #[test]
    fn a_clock_that_ran_ahead_delays_no_item_for_long() {
        let mut unreads = Unreads::default();
        unreads.note(7, String::new(), at(9_000_000), true);
        let unreads = Unreads::new(unreads.all());
        assert_eq!(unreads.due(at(1_000_000)), [7]);
    }
}
