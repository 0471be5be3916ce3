//! Asking GitHub: one request, and a list page by page.

use super::answer;
use super::rows::Row;
use super::session::Session;
use crate::engine::listing::Cut;
use crate::engine::time::Time;
use crate::mutant;
use crate::net::{self, Answer, Redirects};
use crate::providers::json;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// A list longer than this is a mistake, ours or the server's.
const MAX_PAGES: usize = 1000;

/// A row from further ahead of the server's own clock moves no cursor: it would
/// hide everything that comes before that day.
const AHEAD: Duration = Duration::from_secs(24 * 3600);

/// A list walked page by page, in ascending order of change or creation.
///
/// Pages drift: when a row leaves its place while we walk, those behind it move
/// up, and one of them slips over the boundary between the page we have and the
/// one we ask for. It is older than nothing on the first page, so a walk that
/// saw signs of drift vouches only for the time up to there ([`Pages::reach`]).
#[derive(Debug)]
pub struct Pages {
    next: Option<String>,
    key: &'static str,
    asked: HashSet<String>,
    start: Option<Time>,
    first_newest: Option<Time>,
    newest: Option<Time>,
    seen: HashMap<u64, Option<Time>>,
    drifted: bool,
}

impl Pages {
    /// The list that begins at `url`, whose rows are told apart by `key`.
    pub fn new(url: String, key: &'static str) -> Pages {
        Pages {
            next: Some(url),
            key,
            asked: HashSet::new(),
            start: None,
            first_newest: None,
            newest: None,
            seen: HashMap::new(),
            drifted: false,
        }
    }

    /// The next page's rows, without those already handed out; `None` at the end.
    ///
    /// # Errors
    /// When the page is not to be had or not to be understood, or leads away.
    pub fn next(&mut self, session: &mut Session<'_>) -> Result<Option<Vec<Row>>, Cut> {
        let Some(url) = self.next.take() else {
            return Ok(None);
        };
        let answer = session.get(&url, Redirects::SameOrigin)?;
        if answer.status != 200 {
            if mutant::is("broken-page-is-the-last") {
                return Ok(None);
            }
            return Err(session.refusal(&answer));
        }
        let text = json::mend(&answer.body);
        let elements =
            json::elements(&text).map_err(|e| answer::unreadable(&answer, "a list", &e))?;
        self.next = answer::next_page(&answer)
            .map(|next| self.check(&answer, &next))
            .transpose()?;
        if self.asked.is_empty() {
            self.start = answer::date(&answer);
        }
        let first = self.asked.is_empty();
        self.asked.insert(url);
        if self.next.is_some() && self.asked.len() == MAX_PAGES {
            return Err(Cut::because(format!(
                "GET {} goes on after {MAX_PAGES} pages",
                net::path(&answer.url)
            )));
        }
        let mut rows = Vec::with_capacity(elements.len());
        for element in elements {
            let row = Row::new(element, self.key);
            if self.is_new(&row) {
                rows.push(row);
            }
        }
        if first {
            self.first_newest = self.newest;
        }
        Ok(Some(rows))
    }

    /// The time up to which no change is missing from the pages handed out;
    /// `None` if they say nothing about that.
    pub fn reach(&self) -> Option<Time> {
        if self.has_drifted() {
            self.first_newest
        } else {
            self.newest
        }
    }

    /// Whether a row may have slipped between two pages.
    pub fn has_drifted(&self) -> bool {
        self.drifted && self.pages() > 1
    }

    /// How many pages there were.
    pub fn pages(&self) -> usize {
        self.asked.len()
    }

    /// Takes note of a row; says whether it is new or changed since its last sight.
    fn is_new(&mut self, row: &Row) -> bool {
        if let Some(at) = row.updated_at {
            self.drifted |= self.start.is_some_and(|start| at >= start);
            if self.start.is_none_or(|start| at <= start.plus(AHEAD)) {
                self.newest = self.newest.max(Some(at));
            }
        }
        let Some(key) = row.key else {
            return true;
        };
        match self.seen.insert(key, row.updated_at) {
            Some(before) => {
                self.drifted = true;
                before != row.updated_at
            }
            None => true,
        }
    }

    /// A next page is asked for only where the token may go, and only once.
    fn check(&self, answer: &Answer, next: &str) -> Result<String, Cut> {
        let what = format!("GET {}", net::path(&answer.url));
        let next = net::resolve(&answer.url, next)
            .filter(|next| net::same_origin(&answer.url, next))
            .ok_or_else(|| {
                Cut::because(format!(
                    "{what} names a next page outside the configured host; it is not followed"
                ))
            })?;
        if self.asked.contains(&next) || next == answer.url {
            return Err(Cut::because(format!(
                "{what} names a next page that was read already"
            )));
        }
        Ok(next)
    }
}
