//! Rows as GitHub writes them: every field its own description requires.

use super::World;
use super::accounts::{account, encoded};
use super::rows::{Repo, Review};
use super::tables::Seen;
use idempoll::engine::item::Kind;
use idempoll::engine::time::Time;
use serde_json::{Value, json};
use std::cell::OnceCell;

pub(super) const WEB: &str = "https://forge.test";
const COMMIT: &str = "6dcb09b5b57875f334f61aebed695e2e4193db5e";

/// A stamp of whole seconds.
pub fn stamp(seconds: u64) -> String {
    let text = Time(seconds * 1000).to_string();
    format!("{}Z", &text[..19])
}

fn stamps(seconds: Option<u64>) -> Value {
    seconds.map_or(Value::Null, |s| stamp(s).into())
}

/// What a list is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Issue,
    PullRequest,
    Comment,
    LineComment,
    Review,
    Event,
}

/// A repository as seen at some moment.
pub struct Face<'a> {
    world: &'a World,
    pub(super) repo: &'a Repo,
    seen: Seen,
    pub(super) full: String,
    pub(super) api: String,
    pub(super) web: String,
    pub(super) whole: OnceCell<Value>,
}

impl<'a> Face<'a> {
    pub fn new(world: &'a World, repo: &'a Repo, seen: Seen) -> Face<'a> {
        let full = repo.full_name();
        Face {
            world,
            repo,
            seen,
            api: format!("{{base}}/repos/{full}"),
            web: format!("{WEB}/{full}"),
            full,
            whole: OnceCell::new(),
        }
    }

    pub fn row(&self, shape: Shape, id: u64) -> Value {
        match shape {
            Shape::Issue => self.issue(id),
            Shape::PullRequest => self.pull_request(id),
            Shape::Comment => self.comment(id),
            Shape::LineComment => self.line_comment(id),
            Shape::Review => self.review(id),
            Shape::Event => self.event(id),
        }
    }

    /// The account as it is written: nobody, if it was deleted.
    fn user(&self, login: &str) -> Value {
        match self.world.ghosts.contains(login) {
            true => Value::Null,
            false => account(login),
        }
    }

    fn association(&self, login: &str) -> &str {
        match self.world.ghosts.contains(login) {
            true => "NONE",
            false => self
                .world
                .associations
                .get(login)
                .map_or("MEMBER", String::as_str),
        }
    }

    pub fn label(&self, id: u64) -> Value {
        let Some(label) = self.repo.labels.seen(id, self.seen) else {
            return Value::Null;
        };
        json!({
            "id": id, "node_id": format!("LA_{id}"), "name": label.name, "color": label.color,
            "url": format!("{}/labels/{}", self.api, encoded(&label.name)),
            "description": "", "default": false,
        })
    }

    fn labels(&self, ids: &[u64]) -> Vec<Value> {
        let labels = ids.iter().map(|&id| self.label(id));
        labels.filter(|label| !label.is_null()).collect()
    }

    /// A row of `/issues`.
    pub fn issue(&self, number: u64) -> Value {
        let Some(item) = self.repo.items.seen(number, self.seen) else {
            return Value::Null;
        };
        let (api, web) = (&self.api, &self.web);
        let url = format!("{api}/issues/{number}");
        let place = match item.kind {
            Kind::Issue => "issues",
            Kind::PullRequest => "pull",
        };
        let mut row = json!({
            "id": item.id, "node_id": format!("I_{}", item.id), "number": number,
            "url": url, "repository_url": api, "html_url": format!("{web}/{place}/{number}"),
            "labels_url": format!("{url}/labels{{/name}}"), "comments_url": format!("{url}/comments"),
            "events_url": format!("{url}/events"), "timeline_url": format!("{url}/timeline"),
            "title": item.title, "body": item.body, "state": if item.open { "open" } else { "closed" },
            "state_reason": item.reason, "user": self.user(&item.by),
            "author_association": self.association(&item.by),
            "labels": self.labels(&item.labels), "assignee": null, "assignees": [],
            "milestone": null, "locked": item.locked, "active_lock_reason": null,
            "comments": item.comments, "reactions": reactions(&url),
            "created_at": stamp(item.created), "updated_at": stamp(item.updated),
            "closed_at": stamps(item.closed),
            "closed_by": item.closed_by.as_deref().map_or(Value::Null, |by| self.user(by)),
            "performed_via_github_app": null,
        });
        if item.kind == Kind::PullRequest {
            let page = format!("{web}/pull/{number}");
            row["draft"] = false.into();
            row["pull_request"] = json!({
                "url": format!("{api}/pulls/{number}"), "html_url": page,
                "diff_url": format!("{page}.diff"), "patch_url": format!("{page}.patch"),
                "merged_at": stamps(item.merged),
            });
        }
        row
    }

    /// A row of `/pulls`.
    fn pull_request(&self, number: u64) -> Value {
        let Some(item) = self.repo.items.seen(number, self.seen) else {
            return Value::Null;
        };
        let (api, page) = (&self.api, format!("{}/pull/{number}", self.web));
        let (pull, issue) = (
            format!("{api}/pulls/{number}"),
            format!("{api}/issues/{number}"),
        );
        let review_comment = format!("{api}/pulls/comments{{/number}}");
        let statuses = format!("{api}/statuses/{COMMIT}");
        let end = |branch: &str| {
            json!({
                "label": format!("{}:{branch}", self.repo.owner), "ref": branch, "sha": COMMIT,
                "user": account(&self.repo.owner), "repo": self.repository(),
            })
        };
        let link = |href: &str| json!({"href": href});
        let row = json!({
            "id": item.id + 1_000_000, "node_id": format!("PR_{}", item.id), "number": number,
            "url": pull, "html_url": page, "diff_url": format!("{page}.diff"),
            "patch_url": format!("{page}.patch"), "issue_url": issue,
            "commits_url": format!("{pull}/commits"), "review_comments_url": format!("{pull}/comments"),
            "review_comment_url": review_comment, "comments_url": format!("{issue}/comments"),
            "statuses_url": statuses,
            "state": if item.open { "open" } else { "closed" }, "locked": item.locked,
            "title": item.title, "body": item.body, "user": self.user(&item.by),
            "author_association": self.association(&item.by), "draft": false,
            "labels": self.labels(&item.labels), "milestone": null, "active_lock_reason": null,
            "assignee": null, "assignees": [], "requested_reviewers": [], "requested_teams": [],
            "created_at": stamp(item.created), "updated_at": stamp(item.pull_updated),
            "closed_at": stamps(item.closed), "merged_at": stamps(item.merged),
            "merge_commit_sha": item.merged.map(|_| COMMIT), "auto_merge": null,
            "head": end(&format!("change-{number}")), "base": end("main"),
        });
        let links = json!({
            "self": link(&pull), "html": link(&page), "issue": link(&issue),
            "comments": link(&format!("{issue}/comments")),
            "review_comments": link(&format!("{pull}/comments")),
            "review_comment": link(&review_comment),
            "commits": link(&format!("{pull}/commits")), "statuses": link(&statuses),
        });
        with(row, json!({"_links": links}))
    }

    /// A pull request by itself: its row, and what only this says.
    pub fn whole_pull_request(&self, number: u64) -> Value {
        let Some(item) = self.repo.items.seen(number, self.seen) else {
            return Value::Null;
        };
        let merged = item.merged.is_some();
        let by = item.closed_by.as_deref().filter(|_| merged);
        let more = json!({
            "merged": merged, "mergeable": (!merged).then_some(true), "rebaseable": (!merged).then_some(true),
            "mergeable_state": if merged { "unknown" } else { "clean" },
            "merged_by": by.map_or(Value::Null, |by| self.user(by)),
            "comments": item.comments, "review_comments": 0, "maintainer_can_modify": false,
            "commits": 1, "additions": 3, "deletions": 1, "changed_files": 1,
        });
        with(self.pull_request(number), more)
    }

    fn comment(&self, id: u64) -> Value {
        let Some(row) = self.repo.comments.seen(id, self.seen) else {
            return Value::Null;
        };
        let url = format!("{}/issues/comments/{id}", self.api);
        let item = self.repo.items.seen(row.item, self.seen);
        let place = match item.map(|item| item.kind) {
            Some(Kind::PullRequest) => "pull",
            _ => "issues",
        };
        json!({
            "id": id, "node_id": format!("IC_{id}"), "url": url,
            "html_url": format!("{}/{place}/{}#issuecomment-{id}", self.web, row.item),
            "issue_url": format!("{}/issues/{}", self.api, row.item),
            "user": self.user(&row.by), "author_association": self.association(&row.by),
            "body": row.body, "created_at": stamp(row.created), "updated_at": stamp(row.updated),
            "reactions": reactions(&url), "performed_via_github_app": null,
        })
    }

    fn line_comment(&self, id: u64) -> Value {
        let Some(row) = self.repo.line_comments.seen(id, self.seen) else {
            return Value::Null;
        };
        let url = format!("{}/pulls/comments/{id}", self.api);
        let page = format!("{}/pull/{}#discussion_r{id}", self.web, row.item);
        let pull = format!("{}/pulls/{}", self.api, row.item);
        let mut value = json!({
            "id": id, "node_id": format!("PRRC_{id}"), "url": url, "html_url": page,
            "pull_request_url": pull, "pull_request_review_id": row.review,
            "diff_hunk": "@@ -1,3 +1,4 @@ fn main() {", "path": "src/main.rs",
            "commit_id": COMMIT, "original_commit_id": COMMIT,
            "position": 1, "original_position": 1, "line": 2, "original_line": 2, "side": "RIGHT",
            "start_line": null, "original_start_line": null, "start_side": null,
            "subject_type": "line",
            "user": self.user(&row.by), "author_association": self.association(&row.by),
            "body": row.body, "created_at": stamp(row.created), "updated_at": stamp(row.updated),
            "reactions": reactions(&url),
            "_links": {"self": {"href": url}, "html": {"href": page}, "pull_request": {"href": pull}},
        });
        if let Some(to) = row.reply_to {
            value["in_reply_to_id"] = to.into();
        }
        value
    }

    fn review(&self, id: u64) -> Value {
        let Some(row) = self.repo.reviews.seen(id, self.seen) else {
            return Value::Null;
        };
        let Review { item, by, .. } = row;
        let page = format!("{}/pull/{item}#pullrequestreview-{id}", self.web);
        let pull = format!("{}/pulls/{item}", self.api);
        let mut value = json!({
            "id": id, "node_id": format!("PRR_{id}"), "html_url": page, "pull_request_url": pull,
            "user": self.user(by), "author_association": self.association(by),
            "body": row.body, "state": row.verdict.word(), "commit_id": COMMIT,
            "_links": {"html": {"href": page}, "pull_request": {"href": pull}},
        });
        if let Some(at) = row.submitted {
            value["submitted_at"] = stamp(at).into();
        }
        value
    }

    /// A row of `/issues/{n}/events`. Who did it is the account `ghost` if that was deleted.
    fn event(&self, id: u64) -> Value {
        let Some(row) = self.repo.events.seen(id, self.seen) else {
            return Value::Null;
        };
        let by = match self.world.ghosts.contains(&row.by) {
            true => "ghost",
            false => &row.by,
        };
        let mut value = json!({
            "id": id, "node_id": format!("EV_{id}"), "event": row.what,
            "url": format!("{}/issues/events/{id}", self.api), "actor": account(by),
            "commit_id": null, "commit_url": null, "created_at": stamp(row.at),
            "performed_via_github_app": null,
        });
        if let Some((label, then)) = &row.label {
            let now = self.repo.labels.seen(*label, self.seen);
            let name = match now.filter(|_| self.world.events_follow_label_names) {
                Some(label) => &label.name,
                None => then,
            };
            value["label"] = json!({"name": name, "color": now.map_or("d73a4a", |l| &l.color)});
        }
        if let Some((from, to)) = &row.renamed {
            value["rename"] = json!({"from": from, "to": to});
        }
        match row.what {
            "closed" => value["state_reason"] = row.reason.clone().into(),
            "locked" | "unlocked" => value["lock_reason"] = Value::Null,
            _ => {}
        }
        value
    }
}

fn reactions(url: &str) -> Value {
    json!({
        "url": format!("{url}/reactions"), "total_count": 0, "+1": 0, "-1": 0, "laugh": 0,
        "hooray": 0, "confused": 0, "heart": 0, "rocket": 0, "eyes": 0,
    })
}

/// An object with the fields of another.
pub(super) fn with(mut row: Value, more: Value) -> Value {
    if let (Value::Object(row), Value::Object(more)) = (&mut row, more) {
        row.extend(more);
    }
    row
}
