//! Reading a list to its end.
//!
//! GitHub's pages drift: a row that changes while we walk leaves its place, those
//! behind it move up, and one of them slips over the boundary between the page
//! we have and the one we ask for. So a list in ascending order of change is not
//! walked by page numbers: the next request asks for what changed since the
//! newest row of this one, a second earlier, for it is disputed whether `since`
//! takes its own second in. Only where a page holds nothing but rows of one or two seconds
//! are the next pages followed as the server names them, and read again until they bring nothing new.

use super::answer;
use super::cursor::{Reading, Tag, before, is_sane, stamp};
use super::rows::Row;
use super::session::Session;
use crate::engine::listing::Cut;
use crate::engine::time::Time;
use crate::mutant;
use crate::net::{self, Answer};
use crate::providers::json;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// A list longer than this is a mistake, ours or the server's.
const MAX_PAGES: usize = 10_000;

/// How often at most the pages of one second are read.
const READ: u32 = 5;

/// Rows on a page, as many as GitHub allows.
const SIZE: u32 = 100;

/// A page of a list.
pub enum Page {
    /// It is what it was called before.
    NotModified,
    /// Its rows, without those handed out already.
    Rows(Vec<Row>),
    /// There is no more.
    End,
}

/// A list in ascending order of update, walked by `since`.
#[derive(Debug)]
pub struct Ascending {
    /// The list: path and query, without `since` and size.
    list: String,
    /// Where the next request starts.
    since: Option<Time>,
    /// The next page as the server names it, where that has to be followed.
    link: Option<String>,
    key: &'static str,
    /// What was handed out and may come again.
    seen: HashMap<u64, Option<Time>>,
    asked: HashSet<String>,
    run: Run,
    pages: usize,
    ended: bool,
    rows: usize,
    reading: Reading,
}

impl Ascending {
    /// `list` is below the repository, such as `/issues?state=all`; its rows are told apart by `key`.
    pub fn new(list: &str, since: Option<Time>, key: &'static str) -> Ascending {
        let and = if list.contains('?') { '&' } else { '?' };
        Ascending {
            list: format!("{list}{and}sort=updated&direction=asc"),
            since,
            link: None,
            key,
            seen: HashMap::new(),
            asked: HashSet::new(),
            run: Run::default(),
            pages: 0,
            ended: false,
            rows: 0,
            reading: Reading::default(),
        }
    }

    /// The next page. The first is not modified if it still is what `tag` says.
    ///
    /// # Errors
    /// When the page is not to be had or not to be understood, or leads away.
    pub fn next(&mut self, session: &mut Session<'_>, tag: Option<&Tag>) -> Result<Page, Cut> {
        if self.ended {
            return Ok(Page::End);
        }
        let asked = match self.link.take() {
            Some(link) => link,
            None => self.url(session),
        };
        let tag =
            tag.filter(|tag| self.pages == 0 && session.may_use(tag, &session.sized(&asked, SIZE)));
        let answer = session.get_page(&asked, SIZE, tag)?;
        if self.pages == 0 {
            self.reading.date = answer::date(&answer);
            self.reading.clock = Some(session.clock());
        }
        self.pages += 1;
        if answer.status == 304
            && let Some(tag) = tag
        {
            self.ended = true;
            self.reading.empty = Some(tag.clone());
            return Ok(Page::NotModified);
        }
        let rows = match rows(&answer, session, self.key)? {
            Some(rows) => rows,
            None => {
                self.ended = true;
                return Ok(Page::End);
            }
        };
        self.rows += rows.len();
        let mut newest = None;
        for row in &rows {
            self.reading.saw(row.updated_at);
            newest = newest.max(row.updated_at.filter(|&at| is_sane(at, self.reading.clock)));
        }
        let is_new = |row: &Row| match row.key {
            Some(key) => self.seen.insert(key, row.updated_at) != Some(row.updated_at),
            None => true,
        };
        let new: Vec<Row> = rows.into_iter().filter(is_new).collect();
        self.run.found |= !new.is_empty();
        let next = answer::next_page(&answer)
            .map(|next| on_our_host(&answer, &next))
            .transpose()?;
        if next.is_none() && self.rows == 0 || self.pages == 1 && mutant::is("full-page-trusted") {
            // Called so as it will be asked for the next time, wherever the repository is by now.
            self.reading.empty = session.tag(&session.sized(&self.url(session), SIZE), &answer);
        }
        self.go_on(&answer, next, newest)?;
        if let Some(since) = self.since {
            self.seen.retain(|_, at| at.is_none_or(|at| at >= since));
        }
        Ok(Page::Rows(new))
    }

    /// What was found, after the end.
    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    fn url(&self, session: &Session<'_>) -> String {
        let since = self.since.map(|since| format!("&since={}", stamp(since)));
        format!("{}{}{}", session.repo, self.list, since.unwrap_or_default())
    }

    fn go_on(
        &mut self,
        answer: &Answer,
        next: Option<String>,
        newest: Option<Time>,
    ) -> Result<(), Cut> {
        let since = newest.map(|newest| before(newest, Duration::from_secs(1)));
        let later = since.filter(|_| since > self.since && !mutant::is("pages-by-number"));
        match (next, later) {
            (Some(next), None) => {
                if !self.asked.insert(next.clone()) || next == answer.url {
                    return Err(Cut::because(format!(
                        "GET {} names a next page that was read already",
                        net::path(&answer.url)
                    )));
                }
                self.run.paged = true;
                self.link = Some(next);
            }
            // Its pages are read until they bring nothing new: they drift.
            _ if self.run.is_unsure() => {
                self.asked.clear();
                self.run = Run {
                    read: self.run.read + 1,
                    ..Run::default()
                };
            }
            (Some(_), later) => {
                self.asked.clear();
                self.run = Run::default();
                self.since = later;
            }
            (None, _) => self.ended = true,
        }
        endless(answer, self.pages)
    }
}

/// A reading of what begins at one `since`.
#[derive(Debug, Default)]
struct Run {
    /// It took several pages, as the server names them.
    paged: bool,
    /// It brought something new.
    found: bool,
    /// How often that was read before.
    read: u32,
}

impl Run {
    /// Whether something may have slipped between two of its pages.
    fn is_unsure(&self) -> bool {
        let unsure = self.paged && self.read == 0 || self.found && (1..READ).contains(&self.read);
        unsure && !mutant::is("pages-read-once")
    }
}

/// A list that is followed page by page, as the server names them: in descending order of
/// update, where a row that changes while we walk shows up twice and none is missed; or in the
/// order in which its rows were made.
#[derive(Debug)]
pub struct Linked {
    next: Option<String>,
    key: &'static str,
    size: u32,
    asked: HashSet<String>,
    /// What was found.
    pub reading: Reading,
}

impl Linked {
    /// The list whose first page is at `url`, with so many rows on a page.
    pub fn new(url: String, key: &'static str, size: u32) -> Linked {
        Linked {
            next: Some(url),
            key,
            size,
            asked: HashSet::new(),
            reading: Reading::default(),
        }
    }

    /// The next page.
    ///
    /// # Errors
    /// When the page is not to be had or not to be understood, or leads away.
    pub fn next(&mut self, session: &mut Session<'_>, tag: Option<&Tag>) -> Result<Page, Cut> {
        let Some(url) = self.next.take() else {
            return Ok(Page::End);
        };
        let first = self.asked.is_empty();
        let tag = tag.filter(|tag| first && session.may_use(tag, &session.sized(&url, self.size)));
        let answer = session.get_page(&url, self.size, tag)?;
        if first {
            self.reading.date = answer::date(&answer);
            self.reading.clock = Some(session.clock());
        }
        if answer.status == 304
            && let Some(tag) = tag
        {
            self.reading.empty = Some(tag.clone());
            return Ok(Page::NotModified);
        }
        let Some(rows) = rows(&answer, session, self.key)? else {
            return Ok(Page::End);
        };
        if first {
            self.reading.empty = session.tag(&session.sized(&url, self.size), &answer);
        }
        self.asked.insert(url);
        self.next = unasked(&answer, &self.asked)?;
        Ok(Page::Rows(rows))
    }

    /// Reads no further.
    pub fn stop(&mut self) {
        self.next = None;
    }
}

/// All rows of a list that belongs to one item, oldest first; the inner error is why they are
/// not to be had, which need not concern any other item.
///
/// # Errors
/// When nothing more may be asked with this token.
pub fn rows_of_item(
    session: &mut Session<'_>,
    list: &str,
) -> Result<Result<Vec<Row>, String>, Cut> {
    let mut next = Some(format!("{}{list}", session.repo));
    let (mut asked, mut all) = (HashSet::new(), Vec::new());
    while let Some(url) = next.take() {
        let answer = match session.get_page_of_item(&url, SIZE)? {
            Ok(answer) => answer,
            Err(reason) => return Ok(Err(reason)),
        };
        asked.insert(url);
        match page_of_item(session, &answer, &asked) {
            Ok((rows, link)) => {
                all.extend(rows);
                next = link;
            }
            Err(cut) => return Ok(Err(cut.reason)),
        }
    }
    Ok(Ok(all))
}

/// The rows of a page and the one after it.
fn page_of_item(
    session: &Session<'_>,
    answer: &Answer,
    asked: &HashSet<String>,
) -> Result<(Vec<Row>, Option<String>), Cut> {
    if matches!(answer.status, 301 | 404 | 410) {
        // It is the item that is not there; what is wrong with a whole repository is not said.
        let what = format!("GET {} answered {}", net::path(&answer.url), answer.status);
        return Err(Cut::because(what));
    }
    let rows = rows(answer, session, "id")?.unwrap_or_default();
    Ok((rows, unasked(answer, asked)?))
}

/// The next page `answer` names, which must not have been asked for.
fn unasked(answer: &Answer, asked: &HashSet<String>) -> Result<Option<String>, Cut> {
    let Some(next) = answer::next_page(answer) else {
        return Ok(None);
    };
    let next = on_our_host(answer, &next)?;
    if asked.contains(&next) || next == answer.url {
        return Err(Cut::because(format!(
            "GET {} names a next page that was read already",
            net::path(&answer.url)
        )));
    }
    endless(answer, asked.len())?;
    Ok(Some(next))
}

/// The rows of an answer that is a list; `None` only for a deliberate fault.
fn rows(answer: &Answer, session: &Session<'_>, key: &str) -> Result<Option<Vec<Row>>, Cut> {
    if answer.status != 200 {
        if mutant::is("broken-page-is-the-last") {
            return Ok(None);
        }
        return Err(session.refusal(answer));
    }
    let text = json::mend(&answer.body);
    let elements = json::elements(&text).map_err(|e| answer::unreadable(answer, "a list", &e))?;
    let rows = elements.into_iter();
    let rows = rows.map(|element| Row::kept(element, key, session.keeps));
    Ok(Some(rows.collect()))
}

/// A next page is asked for only where the token may go.
fn on_our_host(answer: &Answer, next: &str) -> Result<String, Cut> {
    net::resolve(&answer.url, next)
        .filter(|next| net::same_origin(&answer.url, next))
        .ok_or_else(|| {
            Cut::because(format!(
                "GET {} names a next page outside the configured host; it is not followed",
                net::path(&answer.url)
            ))
        })
}

fn endless(answer: &Answer, pages: usize) -> Result<(), Cut> {
    match pages < MAX_PAGES {
        true => Ok(()),
        false => Err(Cut::because(format!(
            "GET {} goes on after {MAX_PAGES} pages",
            net::path(&answer.url)
        ))),
    }
}
