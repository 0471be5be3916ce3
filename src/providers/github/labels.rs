//! When an item got its label, and whether the label still exists.
//!
//! An item's events are asked for only where they decide something: when the item
//! enters the label's scope after the watch began, and changed after it was
//! made. What did not change since the watch began had its label before, and
//! what did not change since it was made had it from the beginning. So on a first
//! listing next to no item is asked for, and later one request is spent on an
//! item that got its label late.

use super::Look;
use super::cursor::{OVERLAP, before};
use super::rows::{self, Row};
use super::talk::is_young;
use super::unread::PATIENCE;
use super::walk::rows_of_item;
use crate::engine::item::{Item, State};
use crate::engine::listing::Cut;
use crate::engine::time::Time;
use crate::mutant;
use crate::net::Redirects;
use crate::providers::json;
use std::time::Duration;

/// An item changed by no more than its own making.
const MADE: Duration = Duration::from_secs(2);

impl Look<'_> {
    /// Fills in when `item` got the label, if that matters. Says whether it is
    /// known as well as it can be; if not, the item is unread, and a later listing knows better.
    pub(super) fn label_times(&mut self, row: &Row, item: &mut Item) -> Result<bool, Cut> {
        let Some(label) = &self.provider.policy.label else {
            return Ok(true);
        };
        let changed = row.updated_at.unwrap_or(self.ask.now);
        // One that is closed again by then may have been so before it got the label.
        let as_made =
            item.closed_at.is_none() && item.created_at.is_some_and(|at| changed <= at.plus(MADE));
        // A second less, since the tracker counts in whole ones.
        if mutant::is("label-times-not-asked")
            || as_made
            || changed < before(self.watched(), Duration::from_secs(1))
        {
            return Ok(true);
        }
        let number = item.item_ref.number;
        let Some(changes) = self.label_changes(number, label)? else {
            // What was said before the watch began need not be read, whatever is the label's time.
            self.talk.unread.reach(number, self.watched());
            // Failing that, the moment it was first seen with it (R6.4), less what replicas are late.
            let seen_at = self.unread_for_long(number);
            item.labelled_at = seen_at.map(|at| before(at, OVERLAP));
            return Ok(item.labelled_at.is_some());
        };
        let (labelled_at, gaps) = history(&changes);
        item.labelled_at = labelled_at;
        item.without_label = gaps;
        // A replica that knows the label need not know the event, and a label
        // that was renamed has none.
        let known = labelled_at.is_some()
            || row
                .updated_at
                .is_none_or(|at| !is_young(at, self.session.last_date))
            || self.waited_for(number);
        if !known {
            self.leave_unread(number, String::new());
            self.talk.unread.reach(number, self.watched());
        }
        if known && item.state != State::Open {
            self.labels.extend(row.key.zip(row.updated_at));
        }
        Ok(known)
    }

    /// When an item lost the label, as well as that can be known; `None` if a later listing
    /// knows better, and the item is unread.
    pub(super) fn unlabelled_at(&mut self, number: u64) -> Result<Option<Time>, Cut> {
        let Some(label) = &self.provider.policy.label else {
            return Ok(None);
        };
        let Some(changes) = self.label_changes(number, label)? else {
            // Failing that, the moment it was first seen without it.
            return Ok(self.unread_for_long(number));
        };
        let lost = changes.last().filter(|(_, on)| !on).map(|(at, _)| *at);
        if lost.is_none() {
            if self.waited_for(number) {
                let before = self.talk.unread.before(number);
                return Ok(before.map(|unread| unread.noted_at));
            }
            self.leave_unread(number, String::new());
        }
        Ok(lost)
    }

    /// Since when an item is unread, if that is longer than it is waited for.
    fn unread_for_long(&self, number: u64) -> Option<Time> {
        let before = self.talk.unread.before(number)?;
        let now = self.session.clock();
        (now >= before.noted_at.plus(PATIENCE)).then_some(before.noted_at)
    }

    /// Whether an item was unread long enough for all replicas to know what one of them knew.
    fn waited_for(&self, number: u64) -> bool {
        let before = self.talk.unread.before(number);
        before.is_some_and(|unread| !is_young(unread.noted_at, self.session.last_date))
    }

    /// When the label was put on an item (`true`) and taken off, in order; `None` if that is not
    /// to be had, and the item is unread.
    fn label_changes(
        &mut self,
        number: u64,
        label: &str,
    ) -> Result<Option<Vec<(Time, bool)>>, Cut> {
        match rows_of_item(&mut self.session, &format!("/issues/{number}/events"))? {
            Ok(events) => {
                let changes = events.iter();
                let changes = changes.filter_map(|row| rows::label_change(row, label));
                let mut changes: Vec<(Time, bool)> = changes.collect();
                changes.sort_by_key(|(at, _)| *at);
                Ok(Some(changes))
            }
            Err(reason) => {
                self.leave_failed(number, reason);
                Ok(None)
            }
        }
    }

    /// Whether the label of an ended item was asked for by the listing before, and it is as it was.
    pub(super) fn is_labelled_as_before(&self, row: &Row) -> bool {
        let labels = self.known.as_ref().map(|known| &known.labels);
        let before = row.key.and_then(|number| labels?.get(&number).copied());
        before.is_some() && before == row.updated_at && self.limit.is_none()
    }

    /// Ends the listing if the label no longer exists: then it is not the items that lost it.
    pub(super) fn label_must_stand(&mut self) -> Result<(), Cut> {
        let Some(label) = self.provider.policy.label.clone() else {
            return Ok(());
        };
        if self.label_stands || mutant::is("label-need-not-exist") {
            return Ok(());
        }
        let url = format!("{}/labels/{}", self.session.repo, in_path(&label));
        let answer = self.session.get(&url, None, Redirects::SameOrigin)?;
        match answer.status {
            200 => {
                self.label_stands = true;
                if self.session.keeps {
                    let text = json::mend(&answer.body);
                    self.lost_label = json::Fields::read(&text).map(|label| label.text().into());
                }
                Ok(())
            }
            404 => Err(Cut::because(format!(
                "the label '{}' does not exist in {} any more: was it renamed? Nothing is \
                 concluded from its absence. Put its new name into the config, or create it again",
                label.escape_debug(),
                self.provider.place.path
            ))),
            _ => Err(self.session.refusal(&answer)),
        }
    }
}

/// When the label was first put on, and from when to when it was off since.
fn history(changes: &[(Time, bool)]) -> (Option<Time>, Vec<(Time, Time)>) {
    let mut first = None;
    let mut off_since: Option<Time> = None;
    let mut gaps = Vec::new();
    for &(at, on) in changes {
        match (on, first, off_since) {
            (true, None, _) => first = Some(at),
            (true, Some(_), Some(off)) => {
                gaps.push((off, at));
                off_since = None;
            }
            (false, Some(_), None) => off_since = Some(at),
            _ => {}
        }
    }
    (first, gaps)
}

/// A text as one part of a URL's path, or as a value in its query.
pub(super) fn in_path(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~');
    text.bytes()
        .map(|b| match plain(b) {
            true => char::from(b).to_string(),
            false => format!("%{b:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_4_a_history_is_a_first_time_and_gaps() {
        let t = Time;
        assert_eq!(history(&[]), (None, vec![]));
        let changes = [
            (t(1), true),
            (t(2), false),
            (t(3), true),
            (t(4), true),
            (t(5), false),
            (t(6), true),
        ];
        assert_eq!(
            history(&changes),
            (Some(t(1)), vec![(t(2), t(3)), (t(5), t(6))])
        );
        assert_eq!(
            history(&[(t(1), false), (t(2), true)]),
            (Some(t(2)), vec![])
        );
    }

    #[test]
    fn a_label_is_one_part_of_a_path() {
        assert_eq!(
            in_path("good first issue/é?"),
            "good%20first%20issue%2F%C3%A9%3F"
        );
    }
}
