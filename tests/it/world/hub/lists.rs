//! Which rows a list answers with, and where it goes on.

use super::replies;
use super::tables::Place;
use crate::world::forge::{Asked, Reply};
use idempoll::engine::time::Time;

/// A parameter of a request, decoded.
pub fn parameter(asked: &Asked, key: &str) -> Option<String> {
    decoded(&asked.query(key)?.replace('+', " "))
}

/// A part of a URL, decoded.
pub fn decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::new();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let hex = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

/// One of the words a parameter may be, the first if it is not given.
pub fn one_of(asked: &Asked, key: &str, words: &[&'static str]) -> Result<&'static str, Reply> {
    let Some(value) = parameter(asked, key) else {
        return Ok(words[0]);
    };
    let found = words.iter().find(|word| **word == value);
    found.copied().ok_or_else(|| replies::invalid(key))
}

/// `since`, as a filter of stamps.
pub fn since(asked: &Asked, exclusive: bool) -> Result<impl Fn(u64) -> bool, Reply> {
    let time = match parameter(asked, "since") {
        Some(text) => Some(
            text.parse::<Time>()
                .map_err(|_| replies::invalid("since"))?,
        ),
        None => None,
    };
    Ok(move |stamp: u64| match time {
        Some(time) if exclusive => stamp * 1000 > time.0,
        Some(time) => stamp * 1000 >= time.0,
        None => true,
    })
}

/// How deep page numbers lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// `/issues`: not to the 10,000th row; its cursors lead on.
    Cursors { always: bool },
    /// Lists of a repository's comments: to the 40,000th.
    Shallow,
    /// As far as one likes.
    Deep,
}

/// The rows of one page, and the queries that lead to others.
pub struct Page {
    pub ids: Vec<u64>,
    pub links: Vec<(&'static str, String)>,
}

/// Cuts a page of at most `largest` out of `places`, which are in the order they are listed in.
pub fn page(
    asked: &Asked,
    largest: usize,
    places: &[Place],
    descending: bool,
    depth: Depth,
) -> Result<Page, Reply> {
    let number = |key| {
        let value = parameter(asked, key).and_then(|n| n.parse::<usize>().ok());
        value.filter(|&n| n > 0)
    };
    let per_page = number("per_page").unwrap_or(30).min(largest);
    let page = number("page").unwrap_or(1);
    let cursor = |key| match depth {
        Depth::Cursors { .. } => parameter(asked, key)
            .map(|text| parse_cursor(&text).ok_or_else(|| replies::invalid(key))),
        _ => None,
    };
    let (after, before) = (cursor("after").transpose()?, cursor("before").transpose()?);
    let ahead_of = |cursor: Place, with: bool| {
        places.partition_point(|&place| {
            place == cursor && with || place != cursor && (place < cursor) != descending
        })
    };
    let start = match (after, before) {
        (Some(cursor), _) => ahead_of(cursor, true),
        (None, Some(cursor)) => ahead_of(cursor, false).saturating_sub(per_page),
        (None, None) => match depth {
            Depth::Cursors { .. } if page * per_page >= 10_000 => {
                return Err(replies::too_deep_for_pages());
            }
            Depth::Shallow if page * per_page > 40_000 => return Err(replies::too_deep()),
            _ => ((page - 1) * per_page).min(places.len()),
        },
    };
    let end = (start + per_page).min(places.len());
    let shown = &places[start..end];
    let by_cursor = after.is_some()
        || before.is_some()
        || match depth {
            Depth::Cursors { always } => always || (page + 1) * per_page >= 10_000,
            _ => false,
        };
    let to = |rel: &'static str, ends: &[(&str, String)]| {
        let kept = asked.target.split_once('?').map_or("", |(_, query)| query);
        let ends = ends.iter().map(|(key, value)| format!("{key}={value}"));
        let query: Vec<String> = kept
            .split('&')
            .filter(|pair| {
                let key = pair.split('=').next().unwrap_or_default();
                !["", "page", "after", "before"].contains(&key)
            })
            .map(str::to_string)
            .chain(ends)
            .collect();
        (rel, query.join("&"))
    };
    let mut links = Vec::new();
    if by_cursor {
        if let (true, Some(last)) = (end < places.len(), shown.last()) {
            let page = (page + 1).to_string();
            links.push(to("next", &[("after", cursor_text(*last)), ("page", page)]));
        }
        if let (true, Some(first)) = (start > 0, shown.first()) {
            let page = page.saturating_sub(1).max(1).to_string();
            links.push(to(
                "prev",
                &[("before", cursor_text(*first)), ("page", page)],
            ));
        }
    } else {
        let last = places.len().div_ceil(per_page).max(1);
        let numbered = |rel, page: usize| to(rel, &[("page", page.to_string())]);
        if start > 0 {
            links.push(numbered("prev", (page - 1).min(last)));
        }
        if end < places.len() {
            links.push(numbered("next", page + 1));
            links.push(numbered("last", last));
        }
        if start > 0 {
            links.push(numbered("first", 1));
        }
    }
    Ok(Page {
        ids: shown.iter().map(|&(_, _, id)| id).collect(),
        links,
    })
}

fn cursor_text((stamp, tie, id): Place) -> String {
    format!("hub{stamp:x}.{tie:x}.{id:x}")
}

fn parse_cursor(text: &str) -> Option<Place> {
    let mut parts = text.strip_prefix("hub")?.split('.');
    let mut part = || u64::from_str_radix(parts.next()?, 16).ok();
    Some((part()?, part()?, part()?))
}
