//! A GitHub that behaves as documented, as far as we ask it: states, `since`,
//! order, pages of a hundred, `Link`, and a clock of its own.

use super::forge::{Asked, Reply};
use idempoll::engine::time::Time;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

/// A repository, `octo/widgets`.
#[derive(Debug, Clone, Default)]
pub struct Repo {
    /// The server's clock, in seconds since 1970.
    pub now: u64,
    pub issues: BTreeMap<u64, Value>,
    pub comments: BTreeMap<u64, Value>,
}

impl Repo {
    /// A repository at 2026-08-05T10:00:00Z.
    pub fn new() -> Repo {
        Repo {
            now: 1_785_924_000,
            ..Repo::default()
        }
    }

    /// The server's time in a row.
    pub fn time(&self) -> String {
        let text = Time(self.now * 1000).to_string();
        format!("{}Z", &text[..19])
    }

    /// Opens the next issue and says its number.
    pub fn open(&mut self) -> u64 {
        let number = self.issues.len() as u64 + 1;
        let row = json!({
            "id": 900_000 + number, "number": number, "title": format!("Item {number}"),
            "state": "open", "user": {"login": "sam-rivera", "type": "User"},
            "author_association": "MEMBER", "labels": [{"name": "agent"}],
            "body": "Please look at this.", "created_at": self.time(),
            "updated_at": self.time(), "closed_at": null,
            "html_url": format!("https://forge.test/octo/widgets/issues/{number}"),
        });
        self.issues.insert(number, row);
        number
    }

    /// Sets a field of an item, which changes it.
    pub fn set(&mut self, number: u64, key: &str, value: Value) {
        let time = self.time();
        let issue = self
            .issues
            .get_mut(&number)
            .expect("an issue that is there");
        issue[key] = value;
        issue["updated_at"] = time.into();
    }

    /// Closes an item.
    pub fn close(&mut self, number: u64) {
        self.set(number, "closed_at", self.time().into());
        self.set(number, "state", "closed".into());
    }

    /// Comments on an item and says the comment's id.
    pub fn comment(&mut self, number: u64) -> u64 {
        let id = self.comments.len() as u64 + 5001;
        let row = json!({
            "id": id, "user": {"login": "sam-rivera", "type": "User"},
            "author_association": "MEMBER", "body": format!("comment {id}"),
            "created_at": self.time(), "updated_at": self.time(),
            "issue_url": format!("{{base}}/repos/octo/widgets/issues/{number}"),
        });
        self.comments.insert(id, row);
        self.set(number, "comments", id.into());
        id
    }

    /// Edits a comment, which changes it and its item.
    pub fn edit(&mut self, id: u64) {
        let time = self.time();
        let comment = self.comments.get_mut(&id).expect("a comment that is there");
        comment["body"] = "edited".into();
        comment["updated_at"] = time.into();
        let url = comment["issue_url"]
            .as_str()
            .expect("set above")
            .to_string();
        let number = url.rsplit('/').next().and_then(|n| n.parse().ok());
        self.set(number.expect("ends in a number"), "edited", id.into());
    }

    /// The comments on an item: id and time of creation.
    pub fn comments_of(&self, number: u64) -> Vec<(String, Time)> {
        let end = format!("/issues/{number}");
        let of = |c: &&Value| c["issue_url"].as_str().is_some_and(|u| u.ends_with(&end));
        let told = self.comments.values().filter(of).map(|c| {
            let at = c["created_at"].as_str().and_then(|t| t.parse().ok());
            (c["id"].to_string(), at.expect("set by comment()"))
        });
        told.collect()
    }

    /// Answers a request.
    pub fn answer(&self, asked: &Asked) -> Reply {
        let reply = match asked.path().strip_prefix("/repos/octo/widgets/issues") {
            None if asked.path() == "/repos/octo/widgets" => {
                Reply::json(json!({"id": 4242, "full_name": "octo/widgets"}))
            }
            None if asked.path().starts_with("/repos/octo/widgets/pulls") => Reply::json("[]"),
            Some("") => self.list(asked, self.issues.values()),
            Some("/comments") => self.list(asked, self.comments.values()),
            Some(rest) if rest.ends_with("/comments") => {
                let of_item = |row: &&Value| {
                    let url = row["issue_url"].as_str().unwrap_or_default();
                    url.ends_with(&format!("/issues{}", rest.trim_end_matches("/comments")))
                };
                self.list(asked, self.comments.values().filter(of_item))
            }
            Some(rest) => match rest[1..]
                .parse()
                .ok()
                .and_then(|n: u64| self.issues.get(&n))
            {
                Some(issue) => Reply::json(issue),
                None => Reply::json(r#"{"message":"Not Found"}"#).status(404),
            },
            None => Reply::json(r#"{"message":"Not Found"}"#).status(404),
        };
        let date = UNIX_EPOCH + Duration::from_secs(self.now);
        reply.header("Date", httpdate::fmt_http_date(date))
    }

    fn list<'a>(&self, asked: &Asked, rows: impl Iterator<Item = &'a Value>) -> Reply {
        let state = asked.query("state").unwrap_or("open");
        let by = match asked.query("sort") {
            Some("updated") => "updated_at",
            _ => "created_at",
        };
        let mut rows: Vec<&Value> = rows
            .filter(|r| r["state"].is_null() || state == "all" || r["state"] == state)
            .filter(|r| {
                let since = asked.query("since").unwrap_or_default();
                r["updated_at"].as_str().unwrap_or_default() >= since
            })
            .collect();
        rows.sort_by_key(|r| (r[by].as_str().map(str::to_string), r["id"].as_u64()));
        let number = |key: &str| asked.query(key).and_then(|n| n.parse::<usize>().ok());
        let per_page = number("per_page").unwrap_or(30);
        let page = number("page").unwrap_or(1);
        let shown: Vec<&Value> = rows
            .iter()
            .copied()
            .skip((page - 1) * per_page)
            .take(per_page)
            .collect();
        let reply = Reply::json(serde_json::to_string(&shown).expect("rows are JSON"));
        if page * per_page >= rows.len() {
            return reply;
        }
        let bare = asked.target.split("&page=").next().unwrap_or_default();
        reply.header(
            "Link",
            format!(
                "<{{base}}{bare}&page=1>; rel=\"first\", <{{base}}{bare}&page={}>; rel=\"next\"",
                page + 1
            ),
        )
    }
}
