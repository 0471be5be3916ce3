//! What we post as GitHub's webhooks, before parties nobody here wrote, where `tests/judge` installed them: the schemas of
//! such bodies, the library that receives them, and an app of the kind that most receivers are.

use crate::http_sink::webhooks::{REPO, hooked, later, repo};
use crate::http_sink::{edit, reasons};
use crate::world::hub::{Hub, New, Verdict};
use crate::world::judge;
use crate::world::program::Place;
use crate::world::receiver::Inbox;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// `receivers.mjs` in a mode of its own; it ends with this, or with its input.
struct Node {
    child: Child,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Node {
    fn start(packages: &Path, args: &[&str]) -> Node {
        let script = packages.join("receivers.mjs");
        std::fs::write(&script, include_str!("world/receivers.mjs")).expect("a script");
        let node = std::env::var_os("IDEMPOLL_JUDGE_NODE").unwrap_or_else(|| "node".into());
        let mut child = Command::new(node)
            .arg(&script)
            .args(args)
            .current_dir(packages)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node");
        let lines = Arc::<Mutex<Vec<Value>>>::default();
        let (told, said) = (lines.clone(), child.stdout.take().expect("a pipe"));
        std::thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or_else(|_| json!({ "odd": line }));
                told.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(line);
            }
        });
        Node { child, lines }
    }

    fn lines(&self) -> Vec<Value> {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Where it listens.
    fn url(&self, place: &Place) -> String {
        place.until("it listens", || !self.lines().is_empty());
        let url = &self.lines()[0]["listening"];
        url.as_str().expect("where").to_string()
    }

    /// What its handlers got.
    fn handled(&self) -> Vec<Value> {
        self.lines().split_off(1)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Everything that may happen to an item, polled by the program and posted to `url`.
fn all_kinds(hub: &Hub, url: &str) -> Place {
    let place = hooked(hub, url);
    edit(&place, |config| {
        config["sources"][0]["label"] = "agent".into();
        config["max_retries"] = 0.into();
    });
    let cycles = |n| {
        for _ in 0..n {
            later(hub, 100);
            place.once();
        }
    };
    repo(hub, |repo| {
        for new in [
            New::issue(),
            New::pull_request(),
            New::issue(),
            New::pull_request(),
        ] {
            repo.open(
                new.by("sam")
                    .label("agent")
                    .body(Some("Größe: 5 \"µm\" \u{1f41f} </script>")),
            );
        }
    });
    cycles(2);
    repo(hub, |repo| {
        repo.comment(1, "kim", "on the issue \u{1f41f}");
        repo.comment(2, "sam", "on the pull request");
        repo.review(2, "sam", Verdict::ChangesRequested, "Please change this.");
        repo.line_comment(2, "sam", "here");
    });
    cycles(2);
    repo(hub, |repo| {
        repo.close(1);
        repo.merge(2);
        repo.unlabel(3, "agent");
        repo.unlabel(4, "agent");
    });
    cycles(3);
    repo(hub, |repo| {
        repo.reopen(1);
        repo.label(4, "agent");
        repo.close(4);
    });
    cycles(3);
    repo(hub, |repo| repo.reopen(4));
    cycles(2);
    place
}

/// The kinds of events there are, as handlers are named.
const KINDS: [&str; 11] = [
    "issue_comment.created",
    "issues.closed",
    "issues.opened",
    "issues.reopened",
    "issues.unlabeled",
    "pull_request.closed",
    "pull_request.opened",
    "pull_request.reopened",
    "pull_request.unlabeled",
    "pull_request_review.submitted",
    "pull_request_review_comment.created",
];

/// How the API's objects differ from those in webhooks, as the schemas know these: what, and in which objects.
/// `docs/http.md` says the same for people.
const DIFFERENCES: &[(&str, &[&str])] = &[
    // Their newer webhooks have it too.
    (
        "additionalProperties user_view_type",
        &["merged_by", "owner", "sender", "user"],
    ),
    ("additionalProperties closed_by", &["issue"]),
    // Of the repositories in a pull request; the one of the event has them.
    ("required custom_properties", &["repo"]),
];

/// Given the webhooks of all kinds of events, when they are held against the schemas of GitHub's webhooks, then they fit
/// but for what is listed, and all of that is needed; and the same with a key left out is refused.
#[test]
fn webhooks_fit_the_schemas_of_githubs() {
    let name = "webhooks_fit_the_schemas_of_githubs";
    let Some(packages) = judge::packages(name) else {
        return;
    };
    let hub = Hub::new();
    let inbox = Inbox::friendly();
    let place = all_kinds(&hub, &inbox.url());
    let mut node = Node::start(&packages, &["schemas"]);
    let mut input = node.child.stdin.take().expect("a pipe");
    let (mut sent, mut mutilated) = (BTreeSet::new(), Vec::new());
    for asked in inbox.got() {
        let event = asked
            .header("x-github-event")
            .expect("an event")
            .to_string();
        let body: Value = serde_json::from_slice(&asked.body).expect("JSON");
        sent.insert(format!(
            "{event}.{}",
            body["action"].as_str().expect("an action")
        ));
        let mut line = json!({ "event": event, "body": body });
        writeln!(input, "{line}").expect("it reads");
        let object = ["review", "comment", "pull_request", "issue"]
            .into_iter()
            .find(|key| line["body"][key].is_object());
        let object = line["body"][object.expect("an object")]
            .as_object_mut()
            .expect("an object");
        object.remove("node_id");
        mutilated.push(line);
    }
    assert_eq!(sent, KINDS.map(String::from).into(), "{}", place.story());
    for line in &mutilated {
        writeln!(input, "{line}").expect("it reads");
    }
    drop(input);
    let posted = mutilated.len();
    place.until("all are judged", || node.lines().len() == 2 * posted);
    let mut found = BTreeSet::new();
    for (n, judged) in node.lines().iter().enumerate() {
        let objections = judged["objections"].as_array().expect("a list");
        let text =
            |objection: &Value, key: &str| objection[key].as_str().unwrap_or_default().to_string();
        let missing = |o: &Value| text(o, "keyword") == "required" && text(o, "key") == "node_id";
        assert_eq!(objections.iter().any(missing), n >= posted, "{judged}");
        if n < posted {
            for o in objections {
                let place = text(o, "where");
                let place = place.rsplit('/').next().unwrap_or_default().to_string();
                found.insert((format!("{} {}", text(o, "keyword"), text(o, "key")), place));
            }
        }
    }
    let listed = DIFFERENCES.iter().flat_map(|(what, places)| {
        places
            .iter()
            .map(|place| (what.to_string(), place.to_string()))
    });
    assert_eq!(found, listed.collect::<BTreeSet<_>>());
    println!(
        "\njudged: {posted} webhooks of {} kinds fit the schemas of GitHub's",
        sent.len()
    );
}

/// Given the webhooks of all kinds of events, when they are posted to `@octokit/webhooks`, then it finds their signatures right and
/// each handler gets its own, under the delivery's id; and with another secret it refuses them.
#[test]
fn webhooks_reach_the_handlers_of_octokit() {
    let name = "webhooks_reach_the_handlers_of_octokit";
    let Some(packages) = judge::packages(name) else {
        return;
    };
    let own = Place::new("true");
    let node = Node::start(&packages, &["webhooks", "s3cret"]);
    let hub = Hub::new();
    let place = all_kinds(&hub, &node.url(&own));
    let handled = node.handled();
    let handlers: BTreeSet<String> = handled
        .iter()
        .map(|h| h["handler"].as_str().unwrap_or_default().to_string())
        .collect();
    assert_eq!(
        handlers,
        KINDS.map(String::from).into(),
        "{handled:?} {}",
        place.story()
    );
    assert_eq!(handled.len(), place.entries("dispatch.succeeded").len());
    assert!(
        place.entries("dispatch.failed").is_empty(),
        "{}",
        place.story()
    );
    for got in &handled {
        let (event, action) = (&got["name"], &got["action"]);
        assert_eq!(
            got["handler"],
            format!(
                "{}.{}",
                event.as_str().expect("a name"),
                action.as_str().expect("an action")
            )
        );
        assert_eq!(got["repository"], REPO);
        assert_eq!(got["id"].as_str().map(str::len), Some(36), "{got}");
    }
    let others = Node::start(&packages, &["webhooks", "an0ther"]);
    let hub = Hub::new();
    repo(&hub, |repo| repo.open(New::issue().by("sam")));
    later(&hub, 60);
    let place = hooked(&hub, &others.url(&own));
    edit(&place, |config| config["max_retries"] = 0.into());
    place.once().expect(1);
    assert!(others.handled().is_empty());
    let said = reasons(&place, "poll.gave_up").concat();
    assert!(
        said.contains("answered 400") && said.contains("signature does not match"),
        "{said}"
    );
    println!(
        "\njudged: {} webhooks of {} kinds reached their handlers in @octokit/webhooks; one signed otherwise was refused",
        handled.len(),
        handlers.len()
    );
}

/// Given a Probot app that cannot be reached from outside, when somebody comments, then the app's handler gets the comment;
/// and an app with another secret refuses it.
#[test]
fn a_probot_app_gets_a_comment_polled_for_it() {
    let name = "a_probot_app_gets_a_comment_polled_for_it";
    let Some(packages) = judge::packages(name) else {
        return;
    };
    let own = Place::new("true");
    for (secret, gets) in [("s3cret", true), ("an0ther", false)] {
        let probot = Node::start(&packages, &["probot", secret]);
        let hub = Hub::new();
        repo(&hub, |repo| repo.open(New::issue().by("sam")));
        later(&hub, 60);
        let place = hooked(&hub, &probot.url(&own));
        edit(&place, |config| config["max_retries"] = 0.into());
        place.once();
        repo(&hub, |repo| repo.comment(1, "kim", "/deploy \u{1f41f}"));
        later(&hub, 10);
        place.once();
        let handled = probot.handled();
        let got: Vec<(&Value, &Value)> = handled
            .iter()
            .map(|h| (&h["handler"], &h["said"]))
            .collect();
        if gets {
            let opened = (&json!("issues.opened"), &Value::Null);
            assert_eq!(
                got,
                [
                    opened,
                    (&json!("issue_comment.created"), &json!("/deploy \u{1f41f}"))
                ]
            );
            assert_eq!(
                (&handled[1]["sender"], &handled[1]["repository"]),
                (&json!("kim"), &json!(REPO))
            );
            assert_eq!(place.entries("dispatch.succeeded").len(), 2);
        } else {
            assert!(got.is_empty(), "{got:?}");
            let said = reasons(&place, "poll.gave_up").concat();
            assert!(said.contains("answered 400"), "{said}");
        }
    }
    println!(
        "\njudged: a Probot app got an issue and a comment polled for it; one with another secret refused them"
    );
}
