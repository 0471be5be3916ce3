//! Changes of items, comments and labels.

use super::rows::{Comment, Event, Item, Label, Repo, Trace, seconds};
use super::tables::Seen;
use super::{Ids, next};
use idempoll::engine::item::Kind;
use idempoll::engine::time::Time;

/// Who does what nobody is named for.
pub const MAINTAINER: &str = "octocat";

/// What is opened.
#[derive(Debug, Clone)]
pub struct New {
    kind: Kind,
    by: String,
    title: String,
    body: Option<String>,
    labels: Vec<String>,
}

impl New {
    /// An issue by `octocat`, with a title and a body, without labels.
    pub fn issue() -> New {
        New {
            kind: Kind::Issue,
            by: MAINTAINER.into(),
            title: "A tidy title".into(),
            body: Some("Please look at this.".into()),
            labels: Vec::new(),
        }
    }

    pub fn pull_request() -> New {
        New {
            kind: Kind::PullRequest,
            ..New::issue()
        }
    }

    pub fn by(mut self, login: &str) -> New {
        self.by = login.into();
        self
    }

    pub fn title(mut self, title: &str) -> New {
        self.title = title.into();
        self
    }

    pub fn body(mut self, body: Option<&str>) -> New {
        self.body = body.map(str::to_string);
        self
    }

    /// And so often as wanted.
    pub fn label(mut self, name: &str) -> New {
        self.labels.push(name.into());
        self
    }
}

/// A repository at a moment, to be changed. A number that is not there is a
/// mistake of the test's and panics.
pub struct Edit<'a> {
    pub repo: &'a mut Repo,
    pub(super) now: Time,
    pub(super) ids: &'a mut Ids,
    pub(super) deletion_moves_item: bool,
}

/// What goes along with a transfer.
pub(super) struct Parcel {
    item: Item,
    labels: Vec<String>,
    comments: Vec<Comment>,
}

impl Edit<'_> {
    /// Opens an item and says its number.
    pub fn open(&mut self, new: New) -> u64 {
        let labels = new.labels.iter().map(|l| self.label_id(l)).collect();
        let at = seconds(self.now);
        let number = self.number();
        let item = Item {
            id: next(&mut self.ids.item),
            kind: new.kind,
            by: new.by.clone(),
            title: new.title,
            body: new.body,
            open: true,
            reason: None,
            labels,
            comments: 0,
            locked: false,
            created: at,
            updated: at,
            pull_updated: at,
            closed: None,
            closed_by: None,
            merged: None,
        };
        for &label in &item.labels {
            self.event(number, "labeled", |e| {
                e.label = Some((label, String::new()))
            });
        }
        self.repo.items.put(self.now, number, item);
        number
    }

    fn number(&mut self) -> u64 {
        next(&mut self.repo.next_number)
    }

    /// Changes an item, which moves it in both lists.
    fn change<T>(&mut self, number: u64, change: impl FnOnce(&mut Item) -> T) -> T {
        let mut item = self.repo.items.take("item", number);
        let result = change(&mut item);
        item.updated = seconds(self.now);
        item.pull_updated = item.updated;
        self.repo.items.put(self.now, number, item);
        result
    }

    /// Moves an item in `/pulls` alone.
    pub(super) fn move_in_pulls(&mut self, number: u64) {
        let mut item = self.repo.items.take("item", number);
        item.pull_updated = seconds(self.now);
        self.repo.items.put(self.now, number, item);
    }

    pub(super) fn event(&mut self, item: u64, what: &'static str, fill: impl FnOnce(&mut Event)) {
        let mut event = Event {
            item,
            what,
            by: MAINTAINER.into(),
            at: seconds(self.now),
            label: None,
            renamed: None,
            reason: None,
        };
        fill(&mut event);
        if let Some((id, name)) = &mut event.label {
            let label = self.repo.labels.get(*id).expect("made before it is used");
            name.clone_from(&label.name);
        }
        let id = next(&mut self.ids.event);
        self.repo.events.put(self.now, id, event);
    }

    pub fn close(&mut self, number: u64) {
        self.close_as(number, "completed");
    }

    /// Closes as `completed`, `not_planned` or `duplicate`.
    pub fn close_as(&mut self, number: u64, reason: &str) {
        let at = seconds(self.now);
        let reason = self.change(number, |item| {
            item.open = false;
            item.reason = (item.kind == Kind::Issue).then(|| reason.to_string());
            item.closed = Some(at);
            item.closed_by = Some(MAINTAINER.into());
            item.reason.clone()
        });
        self.event(number, "closed", |e| e.reason = reason);
    }

    pub fn reopen(&mut self, number: u64) {
        self.change(number, |item| {
            item.open = true;
            item.reason = (item.kind == Kind::Issue).then(|| "reopened".to_string());
            item.closed = None;
            item.closed_by = None;
        });
        self.event(number, "reopened", |_| {});
    }

    /// Merges a pull request, which closes it.
    pub fn merge(&mut self, number: u64) {
        let at = seconds(self.now);
        let kind = self.change(number, |item| {
            item.merged = Some(at);
            item.kind
        });
        assert_eq!(kind, Kind::PullRequest, "only those are merged");
        self.event(number, "merged", |_| {});
        self.close(number);
    }

    pub fn lock(&mut self, number: u64) {
        self.change(number, |item| item.locked = true);
        self.event(number, "locked", |_| {});
    }

    pub fn unlock(&mut self, number: u64) {
        self.change(number, |item| item.locked = false);
        self.event(number, "unlocked", |_| {});
    }

    pub fn edit_title(&mut self, number: u64, title: &str) {
        let from = self.change(number, |item| {
            std::mem::replace(&mut item.title, title.to_string())
        });
        let to = title.to_string();
        self.event(number, "renamed", |e| e.renamed = Some((from, to)));
    }

    pub fn edit_body(&mut self, number: u64, body: Option<&str>) {
        self.change(number, |item| item.body = body.map(str::to_string));
    }

    /// Labels an item; nothing happens if it has that label.
    pub fn label(&mut self, number: u64, name: &str) {
        let label = self.label_id(name);
        if !self.item(number).labels.contains(&label) {
            self.change(number, |item| item.labels.push(label));
            self.event(number, "labeled", |e| {
                e.label = Some((label, String::new()))
            });
        }
    }

    pub fn unlabel(&mut self, number: u64, name: &str) {
        let label = self.label_id(name);
        if self.item(number).labels.contains(&label) {
            self.change(number, |item| item.labels.retain(|&l| l != label));
            self.event(number, "unlabeled", |e| {
                e.label = Some((label, String::new()))
            });
        }
    }

    /// The label of that name, in whatever case; made if there is none.
    fn label_id(&mut self, name: &str) -> u64 {
        if let Some(id) = self.find_label(name) {
            return id;
        }
        let id = next(&mut self.ids.label);
        let label = Label {
            name: name.to_string(),
            color: "d73a4a".to_string(),
        };
        self.repo.labels.put(self.now, id, label);
        id
    }

    fn find_label(&self, name: &str) -> Option<u64> {
        let mut labels = self.repo.labels.all(Seen::Now);
        let found = labels.find(|(_, l)| l.is_called(name));
        found.map(|(id, _)| id)
    }

    /// Renames a label of the repository: each item with it shows the new name
    /// at once, and none has changed by it.
    pub fn rename_label(&mut self, from: &str, to: &str) {
        let id = self.find_label(from).expect("a label that is there");
        let mut label = self.repo.labels.take("label", id);
        label.name = to.to_string();
        self.repo.labels.put(self.now, id, label);
    }

    /// Deletes a label of the repository: each item loses it, and none has
    /// changed by it; there are no events.
    pub fn delete_label(&mut self, name: &str) {
        let id = self.find_label(name).expect("a label that is there");
        let items = self.repo.items.all(Seen::Now);
        let with: Vec<u64> = items
            .filter(|(_, item)| item.labels.contains(&id))
            .map(|(number, _)| number)
            .collect();
        for number in with {
            let mut item = self.repo.items.take("item", number);
            item.labels.retain(|&l| l != id);
            self.repo.items.put(self.now, number, item);
        }
        self.repo.labels.remove(self.now, id);
    }

    /// Comments on an item and says the comment's id.
    pub fn comment(&mut self, number: u64, by: &str, body: &str) -> u64 {
        self.change(number, |item| item.comments += 1);
        let id = next(&mut self.ids.comment);
        let at = seconds(self.now);
        let comment = Comment {
            item: number,
            by: by.into(),
            body: body.into(),
            created: at,
            updated: at,
        };
        self.repo.comments.put(self.now, id, comment);
        id
    }

    pub fn edit_comment(&mut self, id: u64, body: &str) {
        let mut comment = self.repo.comments.take("comment", id);
        comment.body = body.into();
        comment.updated = seconds(self.now);
        self.change(comment.item, |_| {});
        self.repo.comments.put(self.now, id, comment);
    }

    /// Deletes a comment, which leaves no trace but the item's count.
    pub fn delete_comment(&mut self, id: u64) {
        let number = self.repo.comments.take("comment", id).item;
        let mut item = self.repo.items.take("item", number);
        item.comments -= 1;
        self.repo.items.put(self.now, number, item);
        if self.deletion_moves_item {
            self.change(number, |_| {});
        }
        self.repo.comments.remove(self.now, id);
    }

    /// Deletes an item with all that was said on it; what is answered for it
    /// from then on is `trace`.
    pub fn delete(&mut self, number: u64, trace: Trace) {
        self.take_out(number);
        self.repo.gone.insert(number, (self.now, trace));
    }

    /// An item as it is.
    pub fn item(&self, number: u64) -> &Item {
        let item = self.repo.items.get(number);
        item.unwrap_or_else(|| panic!("there is no item {number}"))
    }

    pub(super) fn take_out(&mut self, number: u64) -> Parcel {
        let now = self.now;
        let item = self.repo.items.take("item", number);
        self.repo.items.remove(now, number);
        let comments = self.repo.comments.all(Seen::Now);
        let (ids, comments): (Vec<u64>, Vec<Comment>) = comments
            .filter(|(_, c)| c.item == number)
            .map(|(id, c)| (id, c.clone()))
            .unzip();
        for id in ids {
            self.repo.comments.remove(now, id);
        }
        self.take_out_reviews(number);
        let labels = item.labels.iter().filter_map(|&l| self.repo.labels.get(l));
        Parcel {
            labels: labels.map(|l| l.name.clone()).collect(),
            item,
            comments,
        }
    }

    /// Labels come along if there are ones of that name here.
    pub(super) fn put_in(&mut self, parcel: Parcel) -> u64 {
        let number = self.number();
        let mut item = parcel.item;
        item.id = next(&mut self.ids.item);
        let labels = parcel.labels.iter().filter_map(|l| self.find_label(l));
        item.labels = labels.collect();
        self.repo.items.put(self.now, number, item);
        self.change(number, |_| {});
        self.event(number, "transferred", |_| {});
        for mut comment in parcel.comments {
            comment.item = number;
            let id = next(&mut self.ids.comment);
            self.repo.comments.put(self.now, id, comment);
        }
        number
    }
}
