//! The sweep: a listing in full, to notice what no list of changes shows.
//!
//! It reads the open items (those with the label, where there is one). Items
//! being worked on that are not among them are asked for by themselves: closed or without the
//! label, they are told so; moved to another repository, deleted or hidden, they are
//! reported missing, and asked for again some minutes later, before anybody concludes
//! that they are gone. When all are missing at once that is said, and nothing is concluded.
//!
//! It also reads once more what changed since the last sweep, without any
//! validator, and tells it again: news among it was missed by the listings
//! in between, which is counted.

use super::Look;
use super::cursor::{Cursor, OVERLAP, Window, before};
use super::labels::in_path;
use super::strays::NoItem;
use super::talk::Asks;
use super::walk::{Ascending, Page};
use crate::engine::feed::Runs;
use crate::engine::listing::{Cut, Heard};
use crate::engine::time::Time;
use crate::mutant;
use crate::providers::tell;
use std::time::Duration;

/// How long after a first "not there" an item is asked for again.
const APART: Duration = Duration::from_secs(120);

/// How many items a listing asks for by themselves.
const ASKS: usize = 30;

/// How many, when none of all is there.
const SAMPLE: usize = 3;

impl Look<'_> {
    /// Sweeps if it is time; otherwise asks again for what was missing. Says who is.
    pub(super) fn sweep_if_due(
        &mut self,
        known: &Cursor,
        next: &mut Cursor,
    ) -> Result<Vec<u64>, Cut> {
        let now = self.clock();
        let every = self.provider.config.sweep;
        // A sweep still to come was noted by a server whose clock ran ahead.
        let swept_at = known.swept_at.filter(|at| *at <= now.plus(OVERLAP));
        if swept_at.is_some_and(|at| now < at.plus(every)) {
            if mutant::is("silence-is-an-end") {
                return Ok(self.absent(&Runs::default()));
            }
            let open = known.missing.keys();
            let open = open.filter(|number| self.ask.open.contains(**number));
            let mut due: Vec<u64> = open.copied().take(ASKS).collect();
            let unread = self.talk.unread.due(now).into_iter();
            due.extend(unread.filter(|number| !self.tried.contains(number)));
            return self.ask_for(&due, next);
        }
        tell(self.out, Heard::Again)?;
        // What this listing left for the next one is no news that was missed.
        self.left.extend(self.held_items.iter().copied());
        self.left.extend(self.talk.waiting().keys().copied());
        self.limit = Some(before(now, OVERLAP));
        let swept = Window::from(swept_at.unwrap_or(known.issues.since));
        let from = Cursor {
            issues: swept.clone(),
            comments: swept.clone(),
            review_comments: swept.clone(),
            pulls: swept,
            ..Cursor::default()
        };
        let asks = Asks {
            comments: true,
            reviews: self.provider.config.pull_requests,
        };
        if !mutant::is("sweep-reads-nothing-again") {
            // What it cannot read whole is noted; the windows are those of the listings.
            self.increment(&from, asks, &mut Cursor::default())?;
        }
        let listed = self.open_items(false)?;
        next.swept_at = Some(now);
        self.look_for_absent(listed, next)
    }

    /// After the first listing of all items, under whatever rules: who is not among them?
    pub(super) fn look_for_absent(
        &mut self,
        mut listed: Runs,
        next: &mut Cursor,
    ) -> Result<Vec<u64>, Cut> {
        let mut absent = self.absent(&listed);
        if absent.len() > ASKS && self.is_filtered() {
            // Did all of them lose their label? That is cheaper to read than to ask.
            listed = self.open_items(true)?;
            absent = self.absent(&listed);
        }
        let all = self.ask.open.len();
        let none_left = absent.len() == all && all > 1 && !mutant::is("all-may-be-lost");
        let asks = if none_left { SAMPLE } else { ASKS };
        let rest = absent.split_off(absent.len().min(asks));
        // Moved and deleted items say so; what is only not there may be hidden from us.
        next.none_left = none_left.then(|| {
            format!(
                "none of the {all} items being worked on is there any more; nothing is concluded \
                 from that. Check what may be read with {}",
                self.session.access
            )
        });
        let missing = self.ask_for(&absent, next)?;
        if next.none_left.is_some() {
            return Ok(missing);
        }
        // The others at the next listings.
        next.missing
            .extend(rest.into_iter().map(|number| (number, Time::ZERO)));
        Ok(missing)
    }

    /// Asks for items by themselves and tells them; says who is missing.
    fn ask_for(&mut self, numbers: &[u64], next: &mut Cursor) -> Result<Vec<u64>, Cut> {
        let (now, ask) = (self.clock(), self.ask);
        next.missing.retain(|number, _| ask.open.contains(*number));
        let apart = match mutant::is("asked-again-at-once") {
            true => Duration::ZERO,
            false => APART,
        };
        let mut missing = Vec::new();
        for &number in numbers {
            // Asked twice within minutes it counts as once.
            let asked_at = next.missing.get(&number).filter(|at| **at <= now);
            if asked_at.is_some_and(|at| now < at.plus(apart)) {
                continue;
            }
            match self.item(number)? {
                Ok(row) => {
                    next.none_left = None;
                    next.missing.remove(&number);
                    self.cover(row.updated_at)?;
                    self.tell(&row)?;
                }
                Err(NoItem::Failed(reason)) => self.leave_failed(number, reason),
                Err(no_item) => {
                    // Another repository of that name does not have it either.
                    self.identify()?;
                    if self.talk.unread.contains(number) {
                        self.leave_absent(number, no_item.reason());
                    }
                    if !ask.open.contains(number) {
                        continue;
                    }
                    if matches!(no_item, NoItem::Gone(_)) {
                        next.none_left = None;
                    }
                    if next.none_left.is_some() {
                        // As long as nothing of ours is seen, that proves nothing.
                        next.missing.remove(&number);
                        continue;
                    }
                    missing.push(number);
                    missing.extend(mutant::is("one-ask-is-enough").then_some(number));
                    next.missing.insert(number, now);
                }
            }
        }
        Ok(missing)
    }

    /// Leaves an unread item that is not there: until the next try says so too, it may come back.
    fn leave_absent(&mut self, number: u64, reason: &str) {
        let before = self.talk.unread.before(number);
        let twice = before.is_some_and(|unread| unread.reason == reason);
        if (twice || mutant::is("unread-forgotten-at-once")) && !self.ask.open.contains(number) {
            self.talk.unread.remove(number);
        } else {
            self.leave_unread(number, reason.to_string());
        }
    }

    /// Tells the open items, those being worked on only if `all`; says which there are.
    pub(super) fn open_items(&mut self, all: bool) -> Result<Runs, Cut> {
        let label = self.provider.policy.label.as_ref();
        let filter = match label.filter(|_| self.is_filtered() && !all) {
            Some(label) => format!("&labels={}", in_path(label)),
            None => String::new(),
        };
        let list = format!("/issues?state=open{filter}");
        let mut walk = Ascending::new(&list, None, "number");
        let mut listed = Runs::default();
        while let Page::Rows(rows) = walk.next(&mut self.session, None)? {
            self.cover(rows.iter().filter_map(|row| row.updated_at).max())?;
            for row in rows {
                let Some(number) = row.key else { continue };
                listed.insert(number);
                if all || self.limit.is_none() || !self.ask.open.contains(number) {
                    self.tell(&row)?;
                }
            }
        }
        Ok(listed)
    }

    /// Whether the server can pick the items with the label; to it a comma parts two.
    fn is_filtered(&self) -> bool {
        let label = self.provider.policy.label.as_ref();
        label.is_some_and(|label| !label.contains(','))
    }

    /// The items being worked on that neither a list nor a change showed.
    fn absent(&self, listed: &Runs) -> Vec<u64> {
        let shown = |number: &u64| {
            listed.contains(*number)
                || self.told.contains_key(number)
                || self.held_items.contains(number)
                || self.left_out.contains(number)
        };
        self.ask
            .open
            .iter()
            .filter(|number| !shown(number))
            .collect()
    }

    /// The server's clock, as far as it has one.
    fn clock(&self) -> Time {
        self.session.first_date.unwrap_or(self.ask.now)
    }
}
