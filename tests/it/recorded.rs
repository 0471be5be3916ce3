//! What GitHub and its Enterprise Server sent, and others recorded, where `tests/judge` installed it.

use crate::world::judge;
use idempoll::engine::item::{Author, Channel, Comment, Kind, State};
use idempoll::engine::time::Time;
use idempoll::providers::github::rows::{self, Place, Row};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What stands in the recorded bodies that we read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Recorded {
    Issue,
    PullRequest,
    Comment,
    Review,
    ReviewComment,
}

impl Recorded {
    const ALL: [Recorded; 5] = [
        Recorded::Issue,
        Recorded::PullRequest,
        Recorded::Comment,
        Recorded::Review,
        Recorded::ReviewComment,
    ];

    /// What an object is, by its shape.
    fn of(object: &Map<String, Value>) -> Option<Recorded> {
        let has = |keys: &[&str]| keys.iter().all(|key| object.contains_key(*key));
        if has(&["number", "title", "head"]) {
            Some(Recorded::PullRequest)
        } else if has(&["number", "labels_url", "comments_url"]) {
            Some(Recorded::Issue)
        } else if has(&["id", "issue_url", "body"]) {
            Some(Recorded::Comment)
        } else if has(&["id", "submitted_at", "pull_request_url"]) {
            Some(Recorded::Review)
        } else if has(&["id", "pull_request_review_id"]) {
            Some(Recorded::ReviewComment)
        } else {
            None
        }
    }
}

/// Visits every object in a body, and the key it stands under.
fn visit<'a>(value: &'a Value, key: &'a str, see: &mut dyn FnMut(&'a Map<String, Value>, &'a str)) {
    match value {
        Value::Object(object) => {
            see(object, key);
            for (key, value) in object {
                visit(value, key, see);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| visit(value, key, see)),
        _ => {}
    }
}

/// The JSON files of a name below a directory.
fn bodies(dir: &Path, name: &str) -> Vec<(PathBuf, Value)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a package").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(bodies(&path, name));
        } else if path.ends_with(name) {
            let text = fs::read(&path).expect("a file of a package");
            found.push((path, serde_json::from_slice(&text).expect("it is JSON")));
        }
    }
    found
}

fn text(value: &Value, key: &str) -> Option<String> {
    value[key].as_str().map(str::to_string)
}

fn time(value: &Value, key: &str) -> Option<Time> {
    value[key].as_str().map(|time| {
        let read = time.parse();
        read.unwrap_or_else(|e| panic!("{key} {time:?}: {e}"))
    })
}

fn last_number(url: &Value) -> u64 {
    let number = url.as_str().and_then(|url| url.rsplit('/').next());
    number.and_then(|n| n.parse().ok()).expect("a number")
}

fn assert_author(author: &Author, object: &Value) {
    let login = text(&object["user"], "login");
    let bot = object["user"]["type"] == "Bot"
        || login.as_ref().is_some_and(|login| login.ends_with("[bot]"));
    assert_eq!(author.bot, bot);
    assert_eq!(author.login, login);
    assert_eq!(author.association, text(object, "author_association"));
}

fn assert_said(comment: &Comment, channel: Channel, object: &Value, made_at: &str) {
    assert_eq!(comment.channel, channel);
    assert_eq!(comment.id, object["id"].to_string());
    assert_eq!(comment.body, text(object, "body").unwrap_or_default());
    assert_eq!(Some(comment.created_at), time(object, made_at));
    assert_eq!(comment.url, text(object, "html_url"));
    assert_author(&comment.author, object);
}

/// Reads an object with the provider's readers, and checks what comes out: `false` if that
/// is nothing, for it says not whether it is open.
fn read(kind: Recorded, object: &Value) -> bool {
    let raw = RawValue::from_string(object.to_string()).expect("it was JSON before");
    match kind {
        Recorded::Issue | Recorded::PullRequest => {
            let place = Place {
                host: None,
                path: "octo/widgets".into(),
            };
            let item = rows::item(&Row::new(&raw, "number"), &place);
            if object["state"].is_null() {
                assert!(item.is_err_and(|e| e.contains("no state")));
                return false;
            }
            let item = item.expect("an item");
            let pull_request = match kind {
                Recorded::PullRequest => object,
                _ => &object["pull_request"],
            };
            assert_eq!(Some(item.item_ref.number), object["number"].as_u64());
            assert_eq!(
                item.kind,
                match pull_request {
                    Value::Null => Kind::Issue,
                    _ => Kind::PullRequest,
                }
            );
            assert_eq!(
                item.state,
                match (object["state"].as_str(), &pull_request["merged_at"]) {
                    (Some("open"), _) => State::Open,
                    (Some("closed"), Value::Null) => State::Closed,
                    (Some("closed"), _) => State::Merged,
                    (other, _) => panic!("the state {other:?}"),
                }
            );
            assert_eq!(Some(item.title), text(object, "title"));
            assert_eq!(item.body, text(object, "body").unwrap_or_default());
            assert_eq!(item.url, text(object, "html_url"));
            assert_eq!(item.created_at, time(object, "created_at"));
            assert_eq!(item.closed_at, time(object, "closed_at"));
            assert!(item.created_at.is_some());
            let labels = object["labels"].as_array().into_iter().flatten();
            let labels: Vec<_> = labels.map(|l| text(l, "name").expect("a name")).collect();
            assert_eq!(item.labels, labels);
            assert_author(&item.author, object);
            assert_eq!(
                Row::new(&raw, "number").updated_at,
                time(object, "updated_at")
            );
        }
        Recorded::Comment => {
            let (number, comment) = rows::comment(&Row::new(&raw, "id")).expect("a comment");
            assert_eq!(number, last_number(&object["issue_url"]));
            assert_said(&comment, Channel::Comment, object, "created_at");
        }
        Recorded::ReviewComment => {
            let (number, comment) = rows::review_comment(&Row::new(&raw, "id")).expect("a comment");
            assert_eq!(number, last_number(&object["pull_request_url"]));
            assert_said(&comment, Channel::ReviewComment, object, "created_at");
            let details = &comment.details;
            assert_eq!(
                details.pull_request_review_id,
                object["pull_request_review_id"].as_u64()
            );
            assert_eq!(details.in_reply_to_id, object["in_reply_to_id"].as_u64());
            assert_eq!(details.path, text(object, "path"));
            assert_eq!(details.diff_hunk, text(object, "diff_hunk"));
        }
        Recorded::Review => {
            let review = rows::review(&Row::new(&raw, "id")).expect("a review");
            let review = review.expect("a submitted review");
            assert_said(&review, Channel::Review, object, "submitted_at");
            assert_eq!(review.details.state, text(object, "state"));
        }
    }
    true
}

/// Given every issue, pull request, comment, review and review comment in the bodies that
/// GitHub and its Enterprise Server sent and others recorded, when the
/// provider's readers read them, then each comes out as it is (C001, C002, C005).
#[test]
fn c001_c002_c005_what_github_sent_is_read() {
    let Some(packages) = judge::packages("c001_c002_c005_what_github_sent_is_read") else {
        return;
    };
    for (package, name, kinds) in [
        ("webhooks-examples", "index.json", &Recorded::ALL[..]),
        ("fixtures", "normalized-fixture.json", &[Recorded::Issue]),
    ] {
        let mut counts: BTreeMap<Recorded, u64> = BTreeMap::new();
        let mut stateless = 0;
        let bodies = bodies(&packages.join("node_modules/@octokit").join(package), name);
        for (path, body) in &bodies {
            visit(body, "", &mut |object, key| {
                let value = Value::Object(object.clone());
                if let Some(kind) = Recorded::of(object) {
                    match std::panic::catch_unwind(|| read(kind, &value)) {
                        Ok(true) => *counts.entry(kind).or_default() += 1,
                        Ok(false) => stateless += 1,
                        Err(_) => panic!("{kind:?} in {}: {value}", path.display()),
                    }
                } else if ["issue", "review", "pull_request"].contains(&key) {
                    let what = format!("{key} in {}: {value}", path.display());
                    assert!(!object.contains_key("id"), "not recognized: {what}");
                }
            });
        }
        for kind in kinds {
            assert!(counts.contains_key(kind), "no {kind:?} in {package}");
        }
        let files = bodies.len();
        println!(
            "\njudged: {counts:?} read in {files} files of {package}; {stateless} without a state left alone"
        );
    }
}
