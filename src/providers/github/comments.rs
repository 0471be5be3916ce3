//! The comments of a repository that a listing brings.

use super::pages::Pages;
use super::rows;
use super::session::Session;
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
    /// By item.
    waiting: BTreeMap<u64, Vec<Waiting>>,
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

/// A comment that was not told yet.
#[derive(Debug)]
pub struct Waiting {
    /// Its id.
    pub id: u64,
    /// When it last changed.
    updated_at: Time,
    /// The comment.
    pub comment: Comment,
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
                        self.waiting.entry(number).or_default().push(Waiting {
                            id,
                            updated_at: row.updated_at.unwrap_or(comment.created_at),
                            comment,
                        });
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
        waiting.into_iter().map(|w| w.comment).collect()
    }

    /// Drops what waits for an item and is not wanted.
    pub fn retain(&mut self, mut wanted: impl FnMut(u64, &[Waiting]) -> bool) {
        self.waiting
            .retain(|&number, waiting| wanted(number, waiting));
    }

    /// The comments that were not told yet, by item.
    pub fn waiting(&self) -> &BTreeMap<u64, Vec<Waiting>> {
        &self.waiting
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
    /// between two pages, none before `items` is missing either. What still
    /// waits was not told, so it is left to the next listing.
    pub fn reach(&self, items: Option<Time>) -> Option<Time> {
        let reach = if self.drifted {
            self.reach
        } else {
            self.reach.max(items)
        };
        let waiting = self.waiting.values().flatten().map(|w| w.updated_at);
        match waiting.min() {
            Some(waiting) => reach.min(Some(waiting)),
            None => reach,
        }
    }
}
