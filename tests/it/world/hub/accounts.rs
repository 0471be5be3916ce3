//! Accounts and repositories as GitHub writes them.

use super::edit::MAINTAINER;
use super::faces::{Face, WEB, stamp, with};
use serde_json::{Value, json};

impl Face<'_> {
    /// The repository as other rows hold it.
    pub(super) fn repository(&self) -> &Value {
        self.whole.get_or_init(|| {
            let mut row = self.full_repository();
            // Only its own page has them.
            if let Some(row) = row.as_object_mut() {
                row.remove("custom_properties");
            }
            row
        })
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
            "temp_clone_token": CLONE_TOKEN, "web_commit_signoff_required": false,
            "custom_properties": {},
            "permissions": { "admin": false, "maintain": false, "push": true, "triage": true, "pull": true },
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

/// What lets whoever may push read the repository, and is nobody else's business.
pub const CLONE_TOKEN: &str = "A1CLONETOKENEXAMPLE";

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
pub fn account(login: &str) -> Value {
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
    let row = account(MAINTAINER);
    let more = json!({
        "name": "Octocat", "company": null, "blog": "", "location": null, "email": null,
        "hireable": null, "bio": null, "public_repos": 2, "public_gists": 0, "followers": 0,
        "following": 0, "created_at": stamp(1_300_000_000), "updated_at": stamp(1_700_000_000),
        "private_gists": 0, "total_private_repos": 0, "owned_private_repos": 0, "disk_usage": 1,
        "collaborators": 0, "two_factor_authentication": true, "user_view_type": "private",
    });
    with(row, more)
}

/// A name as part of a path.
pub fn encoded(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    name.bytes()
        .map(|b| match plain(b) {
            true => char::from(b).to_string(),
            false => format!("%{b:02X}"),
        })
        .collect()
}
