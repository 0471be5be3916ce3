//! GitHub's rows as items and comments.
//!
//! Fields are picked by hand and leniently: an unknown value in a field we do
//! not need must not cost the row, and a row nobody can use costs only itself.

use super::upstream;
use crate::engine::item::{Author, Channel, Comment, Details, Item, ItemRef, Kind, State};
use crate::engine::time::Time;
use crate::providers::json;
use serde_json::Value;
use serde_json::value::RawValue;
use std::sync::Arc;

/// One element of a list.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its number (items) or id (comments), if it has one.
    pub key: Option<u64>,
    /// When it last changed, if it says so.
    pub updated_at: Option<Time>,
    /// All of it; `null` if it cannot be read.
    pub value: Value,
    /// And as it was written, where that is kept.
    pub raw: Option<Arc<str>>,
}

impl Row {
    /// Reads an element whose identity is in the field `key`.
    pub fn new(raw: &RawValue, key: &str) -> Row {
        let value: Value = json::parse(raw.get()).unwrap_or_default();
        Row {
            key: value.get(key).and_then(Value::as_u64).filter(|&n| n >= 1),
            updated_at: time(&value, "updated_at"),
            value,
            raw: None,
        }
    }

    /// The same, kept as it was written too if `keeps`.
    pub fn kept(raw: &RawValue, key: &str, keeps: bool) -> Row {
        Row {
            raw: keeps.then(|| raw.get().into()),
            ..Row::new(raw, key)
        }
    }
}

/// The names of the repository an item belongs to.
#[derive(Debug, Clone)]
pub struct Place {
    /// The host, where it is not github.com.
    pub host: Option<String>,
    /// `owner/repo`.
    pub path: String,
}

/// An item's number and what else can be said of it without trusting the row.
///
/// # Errors
/// Why the row is left alone, for the user.
pub fn item(row: &Row, place: &Place) -> Result<Item, String> {
    let value = &row.value;
    let number = row.key.ok_or("it has no number")?;
    // The list of issues says it in an object of its own, the list of pull requests at the top.
    let pull_request = value.get("pull_request").unwrap_or(value);
    let merged = pull_request.get("merged_at").is_some_and(Value::is_string);
    let state = match text(value, "state") {
        Some("open") => State::Open,
        Some("closed") if merged => State::Merged,
        Some("closed") => State::Closed,
        Some(other) => {
            let other: String = other.chars().take(40).collect();
            return Err(format!(
                "its state is {other:?}, which is neither open nor closed; it is left alone"
            ));
        }
        None => return Err("it has no state; it is left alone".to_string()),
    };
    Ok(Item {
        item_ref: ItemRef {
            provider: "github".to_string(),
            host: place.host.clone(),
            path: place.path.clone(),
            number,
        },
        kind: kind(row),
        title: text(value, "title").unwrap_or_default().to_string(),
        body: text(value, "body").unwrap_or_default().to_string(),
        author: author(value),
        state,
        labels: value
            .get("labels")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|label| label.as_str().or_else(|| text(label, "name")))
            .map(str::to_string)
            .collect(),
        created_at: time(value, "created_at"),
        labelled_at: None,
        without_label: Vec::new(),
        unlabelled_at: None,
        labels_dated: true,
        closed_at: time(value, "closed_at"),
        url: text(value, "html_url").map(str::to_string),
        upstream: None,
    })
}

/// Pull requests are the rows with a `pull_request` object, and those of their own list,
/// which say what would be merged.
fn kind(row: &Row) -> Kind {
    let is_object = |key| row.value.get(key).is_some_and(Value::is_object);
    if is_object("pull_request") || is_object("head") {
        Kind::PullRequest
    } else {
        Kind::Issue
    }
}

/// The number of the repository a row of `/pulls` belongs to.
pub fn repository(row: &Row) -> Option<u64> {
    row.value.get("base")?.get("repo")?.get("id")?.as_u64()
}

/// A comment and the number of its item.
///
/// # Errors
/// Why the row is left alone, for the user.
pub fn comment(row: &Row) -> Result<(u64, Comment), String> {
    let number = number_in(&row.value, "issue_url").or_else(|e| shown_at(&row.value).ok_or(e))?;
    said(row, Channel::Comment, "created_at").map(|comment| (number, comment))
}

/// A comment on a line of a diff, and the number of its pull request.
///
/// # Errors
/// Why the row is left alone, for the user.
pub fn review_comment(row: &Row) -> Result<(u64, Comment), String> {
    let value = &row.value;
    let number = number_in(value, "pull_request_url").or_else(|e| shown_at(value).ok_or(e))?;
    let mut comment = said(row, Channel::ReviewComment, "created_at")?;
    let id = |key| value.get(key).and_then(Value::as_u64);
    let owned = |key| text(value, key).map(str::to_string);
    comment.details = Details {
        state: None,
        pull_request_review_id: id("pull_request_review_id"),
        in_reply_to_id: id("in_reply_to_id"),
        path: owned("path"),
        // A line the newest version of the diff has no more is the one it was made on.
        line: id("line").or_else(|| id("original_line")),
        side: owned("side"),
        diff_hunk: owned("diff_hunk"),
    };
    Ok((number, comment))
}

/// A review of a pull request; `None` for one that is not submitted yet. One
/// without text has nothing to deliver, but says when its comments were made public.
///
/// # Errors
/// Why the row is left alone, for the user.
pub fn review(row: &Row) -> Result<Option<Comment>, String> {
    let state = text(&row.value, "state").map(str::to_ascii_lowercase);
    if state.as_deref() == Some("pending") || time(&row.value, "submitted_at").is_none() {
        return Ok(None);
    }
    let mut review = said(row, Channel::Review, "submitted_at")?;
    review.details.state = state;
    let raw = review.upstream.as_deref();
    review.upstream = raw.and_then(upstream::review).map(Into::into);
    Ok(Some(review))
}

/// What a row says that somebody wrote, made at the time in `made_at`.
fn said(row: &Row, channel: Channel, made_at: &str) -> Result<Comment, String> {
    let value = &row.value;
    let id = row.key.ok_or("it has no id")?;
    let created_at = time(value, made_at)
        .or(row.updated_at)
        .ok_or_else(|| format!("it has no {made_at}"))?;
    Ok(Comment {
        channel,
        id: id.to_string(),
        author: author(value),
        body: text(value, "body").unwrap_or_default().to_string(),
        created_at,
        url: text(value, "html_url").map(str::to_string),
        details: Details::default(),
        upstream: row.raw.clone(),
    })
}

/// The item's number that the URL in `key` ends in.
fn number_in(value: &Value, key: &str) -> Result<u64, String> {
    text(value, key)
        .and_then(|url| url.rsplit('/').next()?.parse().ok())
        .ok_or_else(|| format!("its {key} does not end in an item's number"))
}

/// The item's number in the address of the page that shows a comment: `…/issues/7#issuecomment-81`.
fn shown_at(value: &Value) -> Option<u64> {
    let (page, _) = text(value, "html_url")?.split_once('#')?;
    let (above, number) = page.rsplit_once('/')?;
    let of_item = above.ends_with("/issues") || above.ends_with("/pull");
    number.parse().ok().filter(|_| of_item)
}

/// What an item's event says of the label `wanted`: when it was put on (`true`) or taken off.
pub fn label_change(row: &Row, wanted: &str) -> Option<(Time, bool)> {
    let on = match text(&row.value, "event")? {
        "labeled" => true,
        "unlabeled" => false,
        _ => return None,
    };
    let name = text(row.value.get("label")?, "name")?;
    let same = name.to_lowercase() == wanted.to_lowercase();
    Some((time(&row.value, "created_at")?, on)).filter(|_| same)
}

/// A deleted account is nobody; a bot is told by its type or by its login.
fn author(value: &Value) -> Author {
    let user = value.get("user").unwrap_or(&Value::Null);
    let login = text(user, "login").filter(|login| !login.is_empty());
    Author {
        login: login.map(str::to_string),
        association: text(value, "author_association").map(str::to_string),
        bot: text(user, "type") == Some("Bot") || login.is_some_and(|l| l.ends_with("[bot]")),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str()
}

fn time(value: &Value, key: &str) -> Option<Time> {
    text(value, key)?.parse().ok()
}
