//! The comments of a repository that a listing brings.

use super::pages::{Pages, Session};
use super::rows;
use super::since;
use crate::engine::item::Comment;
use crate::engine::listing::Cut;
use crate::engine::time::Time;
use std::collections::{BTreeMap, HashSet};

/// The comments changed since the last listing, by item, until they are told.
///
/// They are read to their end after a page of items and before that page is
/// told, so that an item's end is never told before a comment made before it.
/// What is kept in memory is what was said since the last listing.
#[derive(Debug)]
pub struct Comments {
    /// Read from here on.
    from: Time,
    /// By item: id and comment.
    waiting: BTreeMap<u64, Vec<(u64, Comment)>>,
    /// The ids ever taken in by this listing.
    taken: HashSet<u64>,
    /// Rows nobody can use: which one, and why.
    odd: Vec<(String, String)>,
    /// All comments up to this server time are known; `None` before the first read.
    horizon: Option<Time>,
    read_once: bool,
    reach: Option<Time>,
    drifted: bool,
}

impl Comments {
    /// Those changed at `from` or later.
    pub fn new(from: Time) -> Comments {
        Comments {
            from,
            waiting: BTreeMap::new(),
            taken: HashSet::new(),
            odd: Vec::new(),
            horizon: None,
            read_once: false,
            reach: None,
            drifted: false,
        }
    }

    /// Makes sure that all comments made before `newest` are here, `newest`
    /// being the last change of the items about to be told.
    ///
    /// # Errors
    /// When a page is not to be had.
    pub fn cover(&mut self, newest: Option<Time>, session: &mut Session<'_>) -> Result<(), Cut> {
        if self.read_once && newest.is_none_or(|newest| self.horizon.is_some_and(|h| newest < h)) {
            return Ok(());
        }
        let mut pages = Pages::new(
            format!(
                "{}/issues/comments?sort=updated&direction=asc&per_page=100&since={}",
                session.repo,
                since(self.reach.unwrap_or(self.from))
            ),
            "id",
        );
        while let Some(rows) = pages.next(session)? {
            for row in rows {
                if row.key.is_some_and(|id| !self.taken.insert(id)) {
                    continue;
                }
                match (row.key, rows::comment(&row)) {
                    (Some(id), Ok((number, comment))) => {
                        self.waiting.entry(number).or_default().push((id, comment));
                    }
                    (id, Err(reason)) => {
                        let what = id.map_or("a comment".to_string(), |id| format!("comment {id}"));
                        self.odd.push((what, reason));
                    }
                    (None, Ok(_)) => {}
                }
            }
        }
        self.read_once = true;
        self.horizon = session.last_date;
        if !self.drifted {
            self.reach = self.reach.max(pages.reach());
            self.drifted = pages.has_drifted();
        }
        Ok(())
    }

    /// Takes the comments of the item `number` that were not told yet.
    pub fn take(&mut self, number: u64) -> Vec<Comment> {
        let waiting = self.waiting.remove(&number).unwrap_or_default();
        waiting.into_iter().map(|(_, comment)| comment).collect()
    }

    /// An item whose comments wait, with their ids and times of creation.
    pub fn first_waiting(&self) -> Option<(u64, Vec<(u64, Time)>)> {
        let (number, comments) = self.waiting.first_key_value()?;
        let told = comments.iter().map(|(id, c)| (*id, c.created_at)).collect();
        Some((*number, told))
    }

    /// Takes what could not be used.
    pub fn take_odd(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.odd)
    }

    /// Whether this listing saw the comment `id`.
    pub fn saw(&self, id: u64) -> bool {
        self.taken.contains(&id)
    }

    /// The time up to which no comment is missing, `items` being the same for
    /// the items: comments were read later than those, so where none slipped
    /// between two pages, none before `items` is missing either.
    pub fn reach(&self, items: Option<Time>) -> Option<Time> {
        if self.drifted {
            self.reach
        } else {
            self.reach.max(items)
        }
    }
}
