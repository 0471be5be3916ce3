//! The tracker of a world: its items, and how they are listed.

use super::START;
use super::script::{Dice, Happening};
use idempoll::engine::item::{
    Author, Channel, Comment, Details, Item, ItemRef, Kind, Sighting, State,
};
use idempoll::engine::listing::{Complete, Coverage, Cut, Heard, Listing};
use idempoll::engine::time::Time;
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};

/// How far upstream's clock goes from one stage to the next.
pub const STAGE: u64 = 1_000_000_000;

#[derive(Clone, Default)]
pub struct Upstream {
    items: BTreeMap<u64, (Item, Vec<Comment>, u64)>,
    pub changes: u64,
}

/// What a listing says, and how it ends.
pub struct Listed {
    pub heard: VecDeque<Heard>,
    pub end: Option<Listing>,
}

impl Upstream {
    /// The happenings of stage `stage`, counted from 1. Upstream's clock goes on its own: events
    /// depend on it, not on the poller's looks.
    pub fn happen(&mut self, stage: usize, happenings: &[Happening]) {
        for happening in happenings {
            self.changes += 1;
            let at = Time(START + STAGE * stage as u64 + self.changes * 1000);
            let change = self.changes;
            match *happening {
                Happening::Open { number, stranger } => {
                    let item = (item(number, stranger, at), Vec::new(), change);
                    self.items.insert(number, item);
                }
                Happening::Say {
                    number,
                    id,
                    stranger,
                } => {
                    if let Some((_, comments, changed)) = self.items.get_mut(&number) {
                        comments.push(comment(id, stranger, at));
                        *changed = change;
                    }
                }
                Happening::Close { number } => self.change(number, |i| {
                    i.state = State::Closed;
                    i.closed_at = Some(at);
                }),
                Happening::Reopen { number } => self.change(number, |i| {
                    i.state = State::Open;
                    i.closed_at = None;
                }),
                Happening::Edit { number } => self.change(number, |i| i.body.push('!')),
                Happening::Vanish { number } => {
                    self.items.remove(&number);
                }
            }
        }
    }

    fn change(&mut self, number: u64, f: impl FnOnce(&mut Item)) {
        let change = self.changes;
        if let Some((item, _, changed)) = self.items.get_mut(&number) {
            f(item);
            *changed = change;
        }
    }

    /// A listing at upstream's time `now`; of a hundred `cut` end early.
    pub fn list(
        &self,
        cursor: Option<&serde_json::Value>,
        changes_only: bool,
        now: Time,
        dice: &mut Dice,
        cut: u64,
    ) -> Listed {
        let since = cursor.and_then(serde_json::Value::as_u64).unwrap_or(0);
        // A forge's listing overlaps and repeats what is known; a directory's says all there is.
        let since = match changes_only {
            true => since.saturating_sub(2),
            false => 0,
        };
        let changed = self.items.values().filter(|(_, _, at)| *at > since);
        let sightings = changed.map(|(item, comments, _)| {
            Heard::Sighting(Box::new(Sighting {
                item: item.clone(),
                comments: comments.clone(),
            }))
        });
        let mut heard: VecDeque<Heard> = [Heard::Clock(now)].into_iter().chain(sightings).collect();
        if dice.chance(cut) {
            heard.truncate(dice.roll(heard.len() as u64 + 1) as usize);
            let end = Some(Listing::Cut(Cut::because("the line went dead")));
            return Listed { heard, end };
        }
        let coverage = match changes_only {
            true => Coverage::Changes {
                missing: Vec::new(),
            },
            false => Coverage::Everything {
                present: self.items.keys().copied().collect(),
            },
        };
        let end = Some(Listing::Complete(Complete {
            cursor: json!(self.changes),
            coverage,
        }));
        Listed { heard, end }
    }
}

pub fn item_ref(number: u64) -> ItemRef {
    ItemRef {
        provider: "dir".into(),
        host: None,
        path: "src".into(),
        number,
    }
}

fn author(stranger: bool) -> Author {
    let login = if stranger { "stranger" } else { "octocat" };
    Author {
        login: Some(login.into()),
        association: None,
        bot: false,
    }
}

fn item(number: u64, stranger: bool, at: Time) -> Item {
    Item {
        item_ref: item_ref(number),
        kind: Kind::Issue,
        title: format!("item {number}"),
        body: "please".into(),
        author: author(stranger),
        state: State::Open,
        labels: Vec::new(),
        created_at: Some(at),
        labelled_at: None,
        without_label: Vec::new(),
        unlabelled_at: None,
        labels_dated: false,
        upstream: None,
        closed_at: None,
        url: None,
    }
}

fn comment(id: u64, stranger: bool, at: Time) -> Comment {
    Comment {
        channel: Channel::Comment,
        id: id.to_string(),
        author: author(stranger),
        body: "and?".into(),
        created_at: at,
        url: None,
        details: Details::default(),
        upstream: None,
    }
}
