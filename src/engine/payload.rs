//! The JSON a sink gets, made once when the event is first seen.

use super::delivery::{EventKind, Key, delivery_id};
use super::item::{Channel, Comment, Details, Item, ItemRef, Kind, State};
use super::record::Seen;
use super::time::Time;
use crate::mutant;
use serde::Serialize;
use std::sync::Arc;

/// What an event is about, besides its item.
pub enum Subject<'a> {
    /// The item itself, with its body.
    Item(&'a Item),
    /// A comment on it.
    Comment(&'a Comment),
    /// Its end, with the reason: `closed`, `merged`, `gone`.
    End(&'static str),
}

#[derive(Serialize)]
struct Payload<'a> {
    idempoll: u32,
    delivery_id: String,
    event: EventKind,
    source: &'a str,
    item: PayloadItem<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comment: Option<PayloadComment<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

#[derive(Serialize)]
struct PayloadItem<'a> {
    #[serde(rename = "ref")]
    item_ref: &'a ItemRef,
    provider: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repo: Option<&'a str>,
    number: u64,
    kind: Kind,
    title: &'a str,
    url: Option<&'a str>,
    author: Option<&'a str>,
    labels: &'a [String],
    state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
}

#[derive(Serialize)]
struct PayloadComment<'a> {
    id: &'a str,
    author: Option<&'a str>,
    body: &'a str,
    created_at: String,
    url: Option<&'a str>,
    #[serde(flatten)]
    details: &'a Details,
}

/// The payload of an event: one line of JSON; the README shows one.
#[must_use]
pub fn payload(
    source: &str,
    item_ref: &ItemRef,
    seen: &Seen,
    event: EventKind,
    key: &Key,
    subject: &Subject,
) -> Arc<str> {
    let (owner, repo) = item_ref
        .path
        .split_once('/')
        .map_or((None, None), |(o, r)| (Some(o), Some(r)));
    let own_host = (item_ref.provider == "github").then_some("github.com");
    let payload = Payload {
        idempoll: 1,
        delivery_id: delivery_id(item_ref, key),
        event,
        source,
        item: PayloadItem {
            item_ref,
            provider: &item_ref.provider,
            host: item_ref.host.as_deref().or(own_host),
            owner,
            repo,
            number: item_ref.number,
            kind: seen.kind,
            title: &seen.title,
            url: seen.url.as_deref(),
            author: seen.author.as_deref(),
            labels: &seen.labels,
            state: seen.state,
            body: match subject {
                Subject::Item(item) => Some(&item.body),
                _ => None,
            },
        },
        comment: match subject {
            Subject::Comment(c) => Some(PayloadComment {
                id: &c.id,
                author: c.author.login.as_deref(),
                body: &c.body,
                created_at: as_upstream_writes(c.created_at),
                url: c.url.as_deref(),
                details: &c.details,
            }),
            _ => None,
        },
        reason: match subject {
            Subject::End(reason) => Some(reason),
            _ => None,
        },
    };
    // Strings, numbers and lists of them: there is nothing serde_json could refuse.
    serde_json::to_string(&payload)
        .expect("plain values always serialize")
        .into()
}

/// Trackers write whole seconds without a fraction.
fn as_upstream_writes(t: Time) -> String {
    t.to_string().replace(".000Z", "Z")
}

impl Channel {
    /// The kind of event a comment in this conversation makes.
    #[must_use]
    pub fn event(self) -> EventKind {
        match self {
            Channel::Comment => EventKind::Comment,
            Channel::Review => EventKind::Review,
            Channel::ReviewComment => EventKind::ReviewComment,
        }
    }
}

impl Comment {
    /// Its event's key: `comment/1234`.
    #[must_use]
    pub fn key(&self) -> Key {
        let event = match mutant::is("surfaces-share-ids") {
            true => EventKind::Comment,
            false => self.channel.event(),
        };
        Key(format!("{event}/{}", self.id).into())
    }
}
