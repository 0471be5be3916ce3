//! What independent parties say of us, where `tests/judge` installed them: bodies that
//! GitHub sent are read, and GitHub's own description of its API has nothing
//! against what we ask, nor against what the forge of these tests answers.

use crate::world::forge::{Forge, Reply};
use crate::world::hub::{Hub, New, Trace, Verdict};
use crate::world::judge::{self, Exchange, Judge};
use crate::world::program::Place as Directory;
use idempoll::engine::item::{Author, Channel, Comment, Kind, State};
use idempoll::engine::time::Time;
use idempoll::providers::github::rows::{self, Place, Row};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
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

/// A user with all that the description demands.
fn user(login: &str) -> Value {
    let url = format!("{{base}}/users/{login}");
    let mut user = json!({"login": login, "id": 41, "node_id": "U_41", "gravatar_id": "",
        "type": "User", "site_admin": false});
    for key in [
        "avatar_url",
        "url",
        "html_url",
        "followers_url",
        "following_url",
        "gists_url",
        "starred_url",
        "subscriptions_url",
        "organizations_url",
        "repos_url",
        "events_url",
        "received_events_url",
    ] {
        user[key] = url.clone().into();
    }
    user
}

/// An issue with all that the description demands.
fn whole_issue() -> Value {
    let at = "2026-08-05T10:00:00Z";
    let mut issue = json!({"id": 900_001, "node_id": "I_1", "number": 1, "state": "open",
        "title": "Item 1", "user": user("sam-rivera"), "labels": [], "assignee": null,
        "milestone": null, "locked": false, "comments": 0, "created_at": at, "updated_at": at,
        "closed_at": null, "body": null});
    for key in [
        "url",
        "repository_url",
        "labels_url",
        "comments_url",
        "events_url",
        "html_url",
    ] {
        issue[key] = "{base}/repos/octo/widgets/issues/1".into();
    }
    issue
}

/// Given a forge that answers an issue with a field missing or of another type, and requests
/// that GitHub does not know, when the judge sees them, then it refuses each and says
/// why; and it lets the whole issue through. So it does judge.
#[test]
fn the_judge_refuses_what_does_not_fit() {
    let Some(judge) = Judge::of("the_judge_refuses_what_does_not_fit") else {
        return;
    };
    let list = "/repos/octo/widgets/issues?state=all&since=2026-08-05T10:00:00Z&per_page=100";
    let with = |change: fn(&mut Map<String, Value>)| {
        let mut issue = whole_issue();
        change(issue.as_object_mut().expect("an issue"));
        let forge = Forge::start(move |_| Reply::json(json!([issue])));
        judge.judges(forge.url(), 7, "octo/widgets");
        judge.ask(list)
    };
    let whole = with(|_| {});
    assert_eq!((whole.status, whole.objections), (200, Vec::new()));
    let mut refused = 0;
    let mut refuses = |exchange: Exchange, status: u16, reason: &str| {
        let said = exchange.objections.join("\n");
        assert_eq!(exchange.status, status, "{reason}: {said}");
        assert!(said.contains(reason), "{reason} is not in: {said}");
        refused += 1;
    };
    refuses(
        with(|issue| drop(issue.remove("html_url"))),
        500,
        "html_url",
    );
    refuses(
        with(|issue| issue["closed_at"] = "soon".into()),
        500,
        "closed_at",
    );
    refuses(with(|issue| issue["user"] = "sam".into()), 500, "user");
    let issues = json!([whole_issue()]);
    let forge = Forge::start(move |_| Reply::json(&issues));
    judge.judges(forge.url(), 7, "octo/widgets");
    for (target, status, reason) in [
        ("/repos/octo/widgets/issues?state=bogus", 422, "state"),
        ("/repos/octo/widgets/issues?since=yesterday", 422, "since"),
        ("/repos/octo/widgets/issues?per_page=many", 422, "per_page"),
        ("/repos/octo/widgets/tissues", 404, "tissues"),
        ("/repos/octo/widgets/issues?stat=all", 200, "stat"),
    ] {
        refuses(judge.ask(target), status, reason);
    }
    println!("\njudged: the judge refused {refused} of {refused} that do not fit");
}

/// What the program asks for, as the description calls it.
const ENDPOINTS: [&str; 9] = [
    "/repos/{owner}/{repo}",
    "/repos/{owner}/{repo}/issues",
    "/repos/{owner}/{repo}/issues/comments",
    "/repos/{owner}/{repo}/issues/{issue_number}",
    "/repos/{owner}/{repo}/issues/{issue_number}/events",
    "/repos/{owner}/{repo}/labels/{name}",
    "/repos/{owner}/{repo}/pulls",
    "/repos/{owner}/{repo}/pulls/comments",
    "/repos/{owner}/{repo}/pulls/{pull_number}/reviews",
];

/// What the judge has against an exchange that is to be held against us. That a conditional
/// request may be answered "not modified" is documented for all of GitHub's API, but the
/// description has it for a few lists only.
fn objections(exchange: &Exchange) -> Vec<&String> {
    let all = exchange.objections.iter();
    all.filter(|o| {
        exchange.status != 304 || !o.contains("Unable to match the returned status code")
    })
    .collect()
}

/// Given a repository with everything in it that a repository may have, when the
/// program polls it through the judge (the first listing,
/// increments, more than a page of one second, idle cycles, a sweep with items closed, deleted and without their label), then every request
/// and every answer fits GitHub's description; and there is no kind of answer that the
/// judge would let pass unseen.
///
/// Not in this world: a renamed repository and a transferred issue. The
/// judge follows redirects by itself, and where they lead, `/repositories/ID`, is not described.
#[test]
fn what_we_ask_and_what_our_forge_answers_fits_githubs_description() {
    const NAME: &str = "octo/widgets";
    let Some(judge) = Judge::of("what_we_ask_and_what_our_forge_answers_fits_githubs_description")
    else {
        return;
    };
    let hub = Hub::new();
    let id = hub.lock().repo(NAME).repo.id;
    judge.judges(hub.url(), id, NAME);
    // In one write, for several run at once.
    let script = "printf '%s\\n' \"$(cat)\" >> payloads.log";
    let place = Directory::new(script);
    let mut config = place.config(script);
    config["label"] = "agent".into();
    config["sources"] = json!([{ "name": "forge", "provider": "github", "repos": [NAME],
        "base_url": judge.url(), "token_env": "FORGE_TOKEN", "sinks": ["log"] }]);
    place.configure(&config);
    let mut exchanges: Vec<Exchange> = Vec::new();
    let mut cycle = |what: &str| {
        let mut command = place.command(&["start", "--once", "-q"]);
        command.env("FORGE_TOKEN", "tok_5f3c9ab1e7d24680");
        let said = crate::world::program::Answer::of(command.output().expect("it starts"));
        let new = judge.exchanges();
        for exchange in &new {
            let against = objections(exchange);
            let Exchange { asked, status, .. } = exchange;
            assert!(
                against.is_empty(),
                "{what}: {} {}: {status}: {against:#?}",
                asked.method,
                asked.target
            );
        }
        said.expect(0);
        exchanges.extend(new.clone());
        new
    };

    let (first, pull, late, gone, closed) = {
        let mut world = hub.lock();
        let mut repo = world.repo(NAME);
        let labelled = || New::issue().label("agent");
        let numbers = (
            repo.open(labelled().body(None)),
            repo.open(New::pull_request().label("agent")),
            repo.open(New::issue()),
            repo.open(labelled()),
            repo.open(labelled()),
        );
        world.advance(600);
        numbers
    };
    cycle("the first listing");

    hub.lock().advance(300);
    {
        let mut world = hub.lock();
        let mut repo = world.repo(NAME);
        repo.comment(first, "octocat", "a comment");
        let line = repo.line_comment(pull, "octocat", "a comment on a line");
        repo.reply(line, "octocat", "an answer on a line");
        repo.review(pull, "octocat", Verdict::ChangesRequested, "a review");
        repo.label(late, "agent");
        repo.close_as(closed, "not_planned");
    }
    for _ in 0..130 {
        hub.lock().repo(NAME).open(New::issue().by("sam-rivera"));
    }
    hub.lock().advance(90);
    let news = cycle("news");
    let mut followed = news.iter().filter(|e| e.asked.query("page").is_some());
    assert!(
        followed.next().is_some(),
        "a page of one second is followed as it is linked"
    );
    for _ in 0..3 {
        hub.lock().advance(150);
        cycle("nothing new");
    }
    let idle = cycle("idle");
    assert!(
        idle.iter().all(|e| e.status == 304),
        "an idle cycle: {idle:#?}"
    );

    // Said after the list of items was read: its item is asked for by itself.
    let mut unsaid = true;
    hub.between(move |world, asked| {
        if asked.path().ends_with("/issues/comments") && std::mem::take(&mut unsaid) {
            world.repo(NAME).comment(gone, "octocat", "just now");
        }
    });
    hub.lock()
        .repo(NAME)
        .comment(first, "octocat", "some time later");
    cycle("something said in between");

    hub.lock().delete_account("sam-rivera");
    hub.lock().repo(NAME).delete(gone, Trace::Gone);
    hub.lock().repo(NAME).unlabel(late, "agent");
    hub.lock().repo(NAME).merge(pull);
    hub.lock().advance(4000);
    cycle("a sweep");
    hub.lock().advance(180);
    cycle("and asking once more");

    let payloads = place.payloads();
    let events: Vec<&str> = payloads
        .iter()
        .filter_map(|p| p["event"].as_str())
        .collect();
    let told: BTreeSet<&str> = events.iter().copied().collect();
    assert_eq!(
        told,
        BTreeSet::from(["closed", "comment", "opened", "review", "review_comment"])
    );
    assert!(
        place.entries("poll.source_error").is_empty(),
        "{}",
        place.story()
    );

    let asked: BTreeSet<&str> = exchanges
        .iter()
        .filter_map(|e| e.endpoint.as_deref())
        .collect();
    assert_eq!(asked, BTreeSet::from(ENDPOINTS));
    // Were an answer not looked at, one without anything would pass.
    for endpoint in ENDPOINTS {
        let is_it = |e: &&Exchange| e.endpoint.as_deref() == Some(endpoint) && e.status == 200;
        let target = &exchanges
            .iter()
            .find(is_it)
            .expect("it was asked")
            .asked
            .target;
        for nothing in ["{}", "[{}]"] {
            let forge = Forge::start(move |_| Reply::json(nothing));
            judge.judges(forge.url(), id, NAME);
            let exchange = judge.ask(target);
            assert_eq!(exchange.status, 500, "{nothing} passes for {endpoint}");
        }
    }
    let count = |status| exchanges.iter().filter(|e| e.status == status).count();
    println!(
        "\njudged: {} requests and their answers fit GitHub's description ({} were 200, {} were 304), of {} endpoints",
        exchanges.len(),
        count(200),
        count(304),
        ENDPOINTS.len()
    );
}
