//! Items asked for by themselves: those of which something was said, and that no page showed.

use super::rows::Row;
use super::talk::is_young;
use super::{Look, answer};
use crate::engine::item::Channel;
use crate::engine::listing::{Cut, Heard};
use crate::engine::time::Time;
use crate::providers::{json, tell};
use serde_json::value::RawValue;

/// Comments whose item no page showed.
struct Stray {
    number: u64,
    /// When the last of them changed.
    at: Option<Time>,
    /// When the last of those was made that change their item.
    said_at: Option<Time>,
}

/// Why an item is not to be had, for the user.
pub(super) enum NoItem {
    /// It was moved or deleted.
    Gone(String),
    /// It is not there, or we may not see it.
    Hidden(String),
    /// The server failed at it.
    Failed(String),
}

impl NoItem {
    pub(super) fn reason(&self) -> &str {
        match self {
            NoItem::Gone(reason) | NoItem::Hidden(reason) | NoItem::Failed(reason) => reason,
        }
    }
}

impl Look<'_> {
    /// Tells what was said of items no page showed.
    ///
    /// What comes in while this goes on waits for the next listing, whose
    /// pages will show its items; a busy repository would never let us end.
    pub(super) fn strays(&mut self) -> Result<(), Cut> {
        self.drop_nobodys();
        let now = self.session.last_date;
        let waiting = self.talk.waiting().iter();
        let strays: Vec<Stray> = waiting
            .filter(|(number, _)| !self.held_items.contains(number) && self.waits(**number))
            .map(|(&number, waiting)| {
                let comments = waiting
                    .iter()
                    .filter(|w| w.comment.channel == Channel::Comment);
                Stray {
                    number,
                    at: waiting.iter().map(|w| w.updated_at).max(),
                    said_at: comments.map(|w| w.comment.created_at).max(),
                }
            })
            .collect();
        for Stray {
            number,
            at,
            said_at,
        } in strays
        {
            if self.talk.unread.contains(number) {
                // It is read by itself.
                continue;
            }
            // A pull request's own list does not show it as the issue that a webhook shows.
            let row = match self.talk.pull(number).filter(|_| !self.session.keeps) {
                Some(row) => Ok(row.clone()),
                None => self.item(number)?,
            };
            let young = at.is_some_and(|at| is_young(at, now));
            match row {
                // A replica that does not know of the comment may not know of the label either.
                Ok(row) if row.updated_at < said_at && young => {}
                Ok(row) => {
                    self.cover(row.updated_at)?;
                    self.tell(&row)?;
                }
                Err(NoItem::Failed(reason)) => self.leave_failed(number, reason),
                Err(_) if young => {}
                Err(NoItem::Gone(reason) | NoItem::Hidden(reason)) => {
                    self.left_out.insert(number);
                    self.talk.take(number, now);
                    let what = format!("{}#{number}", self.provider.place.path);
                    tell(self.out, Heard::Unreadable { what, reason })?;
                }
            }
        }
        self.drop_nobodys();
        Ok(())
    }

    /// Drops what no listing has to tell: of items left out, or said before the
    /// repository was watched.
    fn drop_nobodys(&mut self) {
        let watched = self.watched();
        let left_out = &self.left_out;
        self.talk.retain(|number, waiting| {
            waiting.iter().any(|w| w.may_be_due(watched)) && !left_out.contains(&number)
        });
    }

    /// Asks for one item; the inner error is why there is none.
    pub(super) fn item(&mut self, number: u64) -> Result<Result<Row, NoItem>, Cut> {
        let url = format!("{}/issues/{number}", self.session.repo);
        let answer = match self.session.get_of_item(&url)? {
            Ok(answer) => answer,
            Err(reason) => return Ok(Err(NoItem::Failed(reason))),
        };
        let gone = |why: &str| Ok(Err(NoItem::Gone(why.to_string())));
        let hidden = |why: &str| Ok(Err(NoItem::Hidden(why.to_string())));
        match answer.status {
            200 => {}
            301 if self.is_ours(answer.header("location")) => {
                let renamed = "the repository was renamed while it was read";
                return Ok(Err(NoItem::Failed(renamed.to_string())));
            }
            301 => return gone("it was moved to another repository"),
            410 if answer::message(&answer).contains("disabled") => {
                return hidden("issues are disabled in the repository");
            }
            410 => return gone("it was deleted"),
            _ => return hidden("it is not there, or may not be read"),
        }
        let text = json::mend(&answer.body);
        let raw: &RawValue = match json::parse(&text) {
            Ok(raw) => raw,
            Err(e) => {
                let reason = answer::unreadable(&answer, "an item", &e).reason;
                return Ok(Err(NoItem::Failed(reason)));
            }
        };
        let row = Row::kept(raw, "number", self.session.keeps);
        match row.key == Some(number) {
            true => Ok(Ok(row)),
            false => hidden("another item was answered for it"),
        }
    }
}
