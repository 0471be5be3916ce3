//! Asking GitHub: one request, and a list page by page.

use super::answer;
use super::rows::Row;
use crate::engine::listing::Cut;
use crate::engine::time::Time;
use crate::error::Error;
use crate::mutant;
use crate::net::{self, Answer, Client, Redirects, Secret};
use crate::providers::json;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// What every request says besides the token.
const HEADERS: &[(&str, &str)] = &[
    ("Accept", "application/vnd.github+json"),
    ("X-GitHub-Api-Version", "2022-11-28"),
];

/// A list longer than this is a mistake, ours or the server's.
const MAX_PAGES: usize = 1000;

/// A row from further ahead of the server's own clock moves no cursor: it would
/// hide everything that comes before that day.
const AHEAD: Duration = Duration::from_secs(24 * 3600);

/// The requests of one listing.
#[derive(Debug)]
pub struct Session<'a> {
    /// Makes them.
    pub client: &'a Client,
    /// The repository: `https://api.github.com/repos/octo/api`, or where that led to.
    pub repo: String,
    /// The token.
    pub token: Option<Secret>,
    /// What lets us in, for the user: `the token file …`.
    pub access: String,
    /// The local time at the start of the cycle.
    pub now: Time,
    /// The server's clock at the first answer.
    pub first_date: Option<Time>,
    /// The server's clock at the last one.
    pub last_date: Option<Time>,
}

impl Session<'_> {
    /// Gets `url`, whatever the status.
    ///
    /// # Errors
    /// When there is no whole answer.
    pub fn get(&mut self, url: &str, redirects: Redirects) -> Result<Answer, Cut> {
        let answer = self
            .client
            .get(url, HEADERS, self.token.as_ref(), redirects)
            .map_err(|e| {
                let host = net::host(url).unwrap_or_default();
                let what = format!("GET {} at {host}", net::path(url));
                Cut::because(Error::new(what, e).to_string())
            })?;
        if let Some(date) = answer::date(&answer) {
            self.first_date.get_or_insert(date);
            self.last_date = Some(date);
        }
        self.follow_repo(url, &answer.url);
        Ok(answer)
    }

    /// Why `answer` ends the listing.
    pub fn refusal(&self, answer: &Answer) -> Cut {
        // The time this listing has taken by the server's clock, as we read none.
        let elapsed = match (self.first_date, self.last_date) {
            (Some(first), Some(last)) => last.since(first),
            _ => Duration::ZERO,
        };
        answer::refusal(answer, self.now.plus(elapsed), &self.access)
    }

    /// A renamed repository answers from where it is now; asking there at once
    /// saves a redirect per request, and tells a moved item from a moved repository.
    fn follow_repo(&mut self, asked: &str, answered: &str) {
        let bare = |url: &str| url.split('?').next().unwrap_or_default().to_string();
        let (asked, answered) = (bare(asked), bare(answered));
        if asked != answered
            && let Some(tail) = asked.strip_prefix(&self.repo)
            && let Some(repo) = answered.strip_suffix(tail)
        {
            self.repo = repo.to_string();
        }
    }
}

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
