//! Rows as GitHub writes them: every field its own description requires.

use super::World;
use super::rows::{Repo, Review};
use super::tables::Seen;
use idempoll::engine::item::Kind;
use idempoll::engine::time::Time;
use serde_json::{Value, json};
use std::cell::OnceCell;

const WEB: &str = "https://forge.test";
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
    repo: &'a Repo,
    seen: Seen,
    full: String,
    api: String,
    web: String,
    whole: OnceCell<Value>,
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

    /// The repository as other rows hold it.
    fn repository(&self) -> &Value {
        self.whole.get_or_init(|| self.full_repository())
    }

    /// `GET /repos/{owner}/{name}`.
    pub fn full_repository(&self) -> Value {
        let (api, web, repo) = (&self.api, &self.web, self.repo);
        let row = json!({
            "id": repo.id, "node_id": format!("R_{}", repo.id), "name": repo.name,
            "full_name": self.full, "owner": account(&repo.owner), "private": repo.private,
            "visibility": if repo.private { "private" } else { "public" },
            "html_url": web, "url": api, "description": "Widgets.", "homepage": null,
            "fork": false, "language": null, "license": null, "mirror_url": null,
            "default_branch": "main", "topics": [], "is_template": false,
            "archived": false, "disabled": false, "has_issues": true, "has_projects": true,
            "has_wiki": true, "has_pages": false, "has_discussions": false, "has_downloads": true,
        });
        let more = json!({
            "forks": 0, "forks_count": 0, "watchers": 0, "watchers_count": 0,
            "stargazers_count": 0, "network_count": 0, "subscribers_count": 0, "size": 108,
            "open_issues": 0, "open_issues_count": 0,
            "created_at": stamp(repo.created), "updated_at": stamp(repo.created),
            "pushed_at": stamp(repo.created),
            "clone_url": format!("{web}.git"), "svn_url": web,
            "git_url": format!("git://forge.test/{}.git", self.full),
            "ssh_url": format!("git@forge.test:{}.git", self.full),
        });
        let mut row = with(row, more);
        for (key, tail) in REPOSITORY_URLS {
            row[key] = format!("{api}{tail}").into();
        }
        row
    }
}

/// What can be asked below a repository.
const REPOSITORY_URLS: [(&str, &str); 36] = [
    ("archive_url", "/{archive_format}{/ref}"),
    ("assignees_url", "/assignees{/user}"),
    ("blobs_url", "/git/blobs{/sha}"),
    ("branches_url", "/branches{/branch}"),
    ("collaborators_url", "/collaborators{/collaborator}"),
    ("comments_url", "/comments{/number}"),
    ("commits_url", "/commits{/sha}"),
    ("compare_url", "/compare/{basehead}"),
    ("contents_url", "/contents/{+path}"),
    ("contributors_url", "/contributors"),
    ("deployments_url", "/deployments"),
    ("downloads_url", "/downloads"),
    ("events_url", "/events"),
    ("forks_url", "/forks"),
    ("git_commits_url", "/git/commits{/sha}"),
    ("git_refs_url", "/git/refs{/sha}"),
    ("git_tags_url", "/git/tags{/sha}"),
    ("hooks_url", "/hooks"),
    ("issue_comment_url", "/issues/comments{/number}"),
    ("issue_events_url", "/issues/events{/number}"),
    ("issues_url", "/issues{/number}"),
    ("keys_url", "/keys{/key_id}"),
    ("labels_url", "/labels{/name}"),
    ("languages_url", "/languages"),
    ("merges_url", "/merges"),
    ("milestones_url", "/milestones{/number}"),
    (
        "notifications_url",
        "/notifications{?since,all,participating}",
    ),
    ("pulls_url", "/pulls{/number}"),
    ("releases_url", "/releases{/id}"),
    ("stargazers_url", "/stargazers"),
    ("statuses_url", "/statuses/{sha}"),
    ("subscribers_url", "/subscribers"),
    ("subscription_url", "/subscription"),
    ("tags_url", "/tags"),
    ("teams_url", "/teams"),
    ("trees_url", "/git/trees{/sha}"),
];

/// An account; a bot by its name.
fn account(login: &str) -> Value {
    let bot = login.ends_with("[bot]");
    let name = encoded(login);
    let url = format!("{{base}}/users/{name}");
    // Any number will do that is the account's own.
    let id = login
        .bytes()
        .fold(7u64, |id, b| (id * 31 + u64::from(b)) % 100_000_000);
    json!({
        "login": login, "id": id, "node_id": format!("U_{id}"), "gravatar_id": "",
        "avatar_url": format!("https://avatars.forge.test/u/{id}?v=4"), "url": url,
        "html_url": format!("{WEB}/{name}"), "type": if bot { "Bot" } else { "User" },
        "site_admin": false, "user_view_type": "public",
        "followers_url": format!("{url}/followers"),
        "following_url": format!("{url}/following{{/other_user}}"),
        "gists_url": format!("{url}/gists{{/gist_id}}"),
        "starred_url": format!("{url}/starred{{/owner}}{{/repo}}"),
        "subscriptions_url": format!("{url}/subscriptions"),
        "organizations_url": format!("{url}/orgs"), "repos_url": format!("{url}/repos"),
        "events_url": format!("{url}/events{{/privacy}}"),
        "received_events_url": format!("{url}/received_events"),
    })
}

/// `GET /user`.
pub fn myself() -> Value {
    let row = account(super::edit::MAINTAINER);
    let more = json!({
        "name": "Octocat", "company": null, "blog": "", "location": null, "email": null,
        "hireable": null, "bio": null, "public_repos": 2, "public_gists": 0, "followers": 0,
        "following": 0, "created_at": stamp(1_300_000_000), "updated_at": stamp(1_700_000_000),
        "private_gists": 0, "total_private_repos": 0, "owned_private_repos": 0, "disk_usage": 1,
        "collaborators": 0, "two_factor_authentication": true, "user_view_type": "private",
    });
    with(row, more)
}

/// An object with the fields of another.
fn with(mut row: Value, more: Value) -> Value {
    if let (Value::Object(row), Value::Object(more)) = (&mut row, more) {
        row.extend(more);
    }
    row
}

fn reactions(url: &str) -> Value {
    json!({
        "url": format!("{url}/reactions"), "total_count": 0, "+1": 0, "-1": 0, "laugh": 0,
        "hooray": 0, "confused": 0, "heart": 0, "rocket": 0, "eyes": 0,
    })
}

/// A name as part of a path.
fn encoded(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    name.bytes()
        .map(|b| match plain(b) {
            true => char::from(b).to_string(),
            false => format!("%{b:02X}"),
        })
        .collect()
}
