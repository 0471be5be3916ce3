//! The format `github`: what GitHub's webhook would have sent, over the fake forge.

use super::{http, reasons, set_sinks};
use crate::world::forge::{Asked, Forge, Reply};
use crate::world::hub::faults::on;
use crate::world::hub::{Hub, New, Trace, Verdict};
use crate::world::program::Place;
use crate::world::receiver::{Inbox, Receiver};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

pub const REPO: &str = "octo/widgets";

/// A place that polls the hub's repository and posts what GitHub would have to `url`, signed with `s3cret`.
pub fn hooked(hub: &Hub, url: &str) -> Place {
    hooked_at(hub.url(), url)
}

fn hooked_at(base_url: &str, url: &str) -> Place {
    let place = Place::new("true");
    let mut config = place.config("true");
    config["authorized_users"] = json!(["sam", "kim", "sam-rivera"]);
    config["sources"] = json!([{ "name": "forge", "provider": "github", "repos": [REPO], "base_url": base_url,
        "token_file": "token" }]);
    let hook = http(url, &json!({ "format": "github", "secret_file": "secret" }));
    set_sinks(&mut config, &[("hook", hook)]);
    place.write("secret", "s3cret\n");
    place.write("token", "t0ken-example\n");
    place.configure(&config);
    place
}

pub fn repo<T>(hub: &Hub, happen: impl FnOnce(&mut crate::world::hub::Edit<'_>) -> T) -> T {
    happen(&mut hub.lock().repo(REPO))
}

pub fn later(hub: &Hub, seconds: u64) {
    hub.lock().advance(seconds);
}

/// What an endpoint got: `issues opened`, and the body.
fn hooks(inbox: &Inbox) -> Vec<(String, Value)> {
    let hook = |asked: &Asked| {
        let body: Value = serde_json::from_slice(&asked.body).expect("JSON");
        let event = asked.header("x-github-event").expect("an event");
        (
            format!("{event} {}", body["action"].as_str().expect("an action")),
            body,
        )
    };
    inbox.got().iter().map(hook).collect()
}

fn names(inbox: &Inbox) -> Vec<String> {
    hooks(inbox).into_iter().map(|(name, _)| name).collect()
}

/// How often each path was asked for since the last look, that begins so.
fn asked(hub: &Hub, begin: &str) -> Vec<String> {
    let log = hub.log().into_iter().map(|logged| logged.asked);
    let paths = log.map(|asked| asked.path().to_string());
    paths.filter(|path| path.starts_with(begin)).collect()
}

/// Given an issue and a pull request with all that may be said of them, when they are polled, then each event is posted under
/// GitHub's name, with the objects as the forge shows them, the repository without what it says of us (R7.4), and the one who did
/// it; and a pull request is asked for once when it is opened, and once when it ends.
#[test]
fn each_event_is_posted_as_github_would_have_sent_it() {
    let hub = Hub::new();
    let inbox = Inbox::friendly();
    let place = hooked(&hub, &inbox.url());
    repo(&hub, |repo| {
        repo.open(New::issue().by("sam").label("bug"));
        repo.open(New::pull_request().by("kim"));
    });
    later(&hub, 200);
    place.once().expect(0);
    let pulls = format!("/repos/{REPO}/pulls/2");
    let pages = |hub: &Hub| {
        let asked = asked(hub, &pulls);
        asked.into_iter().filter(|path| *path == pulls).count()
    };
    assert_eq!(pages(&hub), 1);
    repo(&hub, |repo| {
        repo.comment(1, "kim", "on the issue");
        repo.comment(2, "sam", "on the pull request");
        repo.review(2, "sam", Verdict::ChangesRequested, "Please change this.");
        repo.line_comment(2, "sam", "here");
    });
    later(&hub, 200);
    place.once().expect(0);
    assert_eq!(pages(&hub), 0, "its list shows enough for a review");
    repo(&hub, |repo| {
        repo.close(1);
        repo.merge(2);
    });
    for _ in 0..3 {
        later(&hub, 100);
        place.once().expect(0);
    }
    assert_eq!(
        pages(&hub),
        1,
        "an end is asked for once, however often its list shows it"
    );
    repo(&hub, |repo| repo.reopen(1));
    later(&hub, 200);
    place.once().expect(0);

    let hooks = hooks(&inbox);
    let of = |name: &str| {
        let named = hooks.iter().filter(|(n, _)| n == name);
        let found: Vec<&Value> = named.map(|(_, body)| body).collect();
        assert!(!found.is_empty(), "no {name} among {:?}", names(&inbox));
        found
    };
    assert_eq!(hooks.len(), 9, "{:?}", names(&inbox));
    for (name, sender) in [
        ("issues opened", "sam"),
        ("pull_request opened", "kim"),
        ("pull_request_review submitted", "sam"),
        ("pull_request_review_comment created", "sam"),
        ("issues closed", "octocat"),
        ("pull_request closed", "octocat"),
        ("issues reopened", "sam"),
    ] {
        let body = of(name)[0];
        assert_eq!(body["sender"]["login"], sender, "{name}");
        let repository = &body["repository"];
        assert_eq!(
            (&repository["full_name"], &repository["id"]),
            (&REPO.into(), &4242.into())
        );
        assert!(repository["permissions"].is_null());
    }
    let comments = of("issue_comment created");
    let on = |number: u64| {
        comments
            .iter()
            .find(|body| body["issue"]["number"] == number)
            .expect("it was posted")
    };
    assert_eq!(
        (&on(1)["comment"]["body"], &on(1)["sender"]["login"]),
        (&"on the issue".into(), &"kim".into())
    );
    assert!(on(1)["issue"]["pull_request"].is_null() && on(2)["issue"]["pull_request"].is_object());
    let opened = of("pull_request opened")[0];
    assert_eq!(
        (&opened["number"], &opened["pull_request"]["mergeable"]),
        (&2.into(), &true.into())
    );
    assert_eq!(of("pull_request closed")[0]["pull_request"]["merged"], true);
    let review = of("pull_request_review submitted")[0];
    assert_eq!(
        (
            &review["review"]["state"],
            &review["pull_request"]["number"]
        ),
        (&"changes_requested".into(), &2.into())
    );
    assert_eq!(
        of("pull_request_review_comment created")[0]["comment"]["path"],
        "src/main.rs"
    );
    for asked in inbox.got() {
        assert!(
            asked
                .header("user-agent")
                .is_some_and(|agent| agent.starts_with("GitHub-Hookshot/"))
        );
        assert!(
            asked
                .header("x-hub-signature")
                .is_some_and(|sum| sum.starts_with("sha1="))
        );
        assert!(
            !String::from_utf8_lossy(&asked.body).contains(crate::world::hub::CLONE_TOKEN),
            "{asked:?}"
        );
    }
}

/// Given a comment with an emoji, an escape character, slashes, a number above 2^53 and keys in an order of their own (C076),
/// when it is posted, then the receiver finds the signature over the very bytes right, and they are as the tracker wrote them.
#[test]
fn c076_the_very_bytes_are_signed_and_are_those_of_the_tracker() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/cases/C076-comment.json");
    let comment = fs::read_to_string(file).expect("a fixture");
    let comment = comment.trim().to_string();
    let said = comment.clone();
    let forge = Forge::start(move |asked| {
        let reply = match asked.path().trim_start_matches("/repos/octo/widgets") {
            "" => {
                Reply::json(r#"{"zeta":1.0,"id":4242,"full_name":"octo/widgets","alpha":"\u00e9"}"#)
            }
            "/issues" => Reply::json(
                r#"[{"number":7,"title":"T","state":"open","user":{"login":"sam-rivera","id":42},"labels":[],"created_at":"2026-03-01T09:00:00Z","updated_at":"2026-03-01T10:00:00Z"}]"#,
            ),
            "/issues/comments" => Reply::json(format!("[{said}]")),
            _ => Reply::json("[]"),
        };
        reply.header("Date", httpdate::fmt_http_date(SystemTime::now()))
    });
    let receiver = Receiver::start("s3cret", "200");
    let place = hooked_at(forge.url(), &receiver.url());
    super::edit(&place, |config| {
        config["sources"][0]["watch_from"] = "2026-01-01T00:00:00Z".into()
    });
    place.once().expect(0);
    assert_eq!(
        receiver.field("signature_ok"),
        [true; 2],
        "{:?}",
        receiver.lines()
    );
    assert_eq!(receiver.field("event"), ["issues", "issue_comment"]);
    let inbox = Inbox::friendly();
    let place = hooked_at(forge.url(), &inbox.url());
    super::edit(&place, |config| {
        config["sources"][0]["watch_from"] = "2026-01-01T00:00:00Z".into()
    });
    place.once().expect(0);
    let body = String::from_utf8(inbox.got()[1].body.clone()).expect("text");
    assert!(body.contains(&format!("\"comment\":{comment},")), "{body}");
    assert!(
        body.contains(
            r#""repository":{"zeta":1.0,"id":4242,"full_name":"octo/widgets","alpha":"\u00e9"},"#
        ),
        "{body}"
    );
}

/// Given items that lose their label or are deleted, and a command beside the endpoint, when they end, then the first is posted
/// as `unlabeled` with the label, and of the second, of which there is nothing to show, only the command hears.
#[test]
fn what_lost_its_label_is_told_so_and_what_is_gone_is_told_to_others() {
    let hub = Hub::new();
    let inbox = Inbox::friendly();
    let place = hooked(&hub, &inbox.url());
    super::edit(&place, |config| {
        config["sources"][0]["label"] = "agent".into();
        config["sources"][0]["sweep_minutes"] = 5.into();
        config["sources"][0]["sinks"] = json!(["hook", "command"]);
        config["sinks"]["command"] = json!({ "type": "exec", "command": ["sh", "-c", r#"echo "$IDEMPOLL_DELIVERY_ID" >> ran.log"#] });
    });
    repo(&hub, |repo| {
        for new in [
            New::issue(),
            New::pull_request(),
            New::issue(),
            New::issue(),
        ] {
            repo.open(new.by("sam").label("agent"));
        }
    });
    later(&hub, 200);
    place.once().expect(0);
    repo(&hub, |repo| {
        repo.unlabel(1, "agent");
        repo.unlabel(2, "agent");
        repo.delete(3, Trace::Gone);
    });
    for _ in 0..6 {
        later(&hub, 301);
        place.once().expect(0);
    }
    let ended: Vec<(String, Value)> = hooks(&inbox).split_off(4);
    let mut told: Vec<String> = ended.iter().map(|(name, _)| name.clone()).collect();
    told.sort();
    assert_eq!(told, ["issues unlabeled", "pull_request unlabeled"]);
    assert!(
        ended
            .iter()
            .all(|(_, body)| body["label"]["name"] == "agent"),
        "{ended:?}"
    );
    let ran = place.lines("ran.log");
    assert!(
        ran.contains(&format!("github:127.0.0.1/{REPO}#3/closed")),
        "{ran:?}"
    );
    assert_eq!(ran.len(), 7, "{ran:?}");
    assert!(place.entries("poll.gave_up").is_empty());
    assert_eq!(place.pending(), 0);
}

/// Given a pull request whose page the server fails at, when it is opened, then the others go on, it is named, and it is told
/// with its page as soon as that is to be had.
#[test]
fn a_pull_request_that_cannot_be_read_waits_for_its_page() {
    let hub = Hub::new();
    let inbox = Inbox::friendly();
    let place = hooked(&hub, &inbox.url());
    repo(&hub, |repo| {
        repo.open(New::pull_request().by("kim"));
        repo.open(New::issue().by("sam"));
    });
    hub.lock()
        .fault(2, on("/pulls/1"), Reply::json("").status(500));
    later(&hub, 60);
    place.once();
    assert_eq!(names(&inbox), ["issues opened"]);
    assert!(
        reasons(&place, "poll.item_error")[0].contains("/pulls/1 answered 500"),
        "{}",
        place.story()
    );
    for _ in 0..3 {
        later(&hub, 61);
        place.once();
    }
    assert_eq!(names(&inbox), ["issues opened", "pull_request opened"]);
}

/// Given a source that is a directory, or a sink whose format is changed while something waits, when that is to be posted as
/// GitHub's webhook, then the first is refused in the config, and the second given up with the reason, since nobody has what
/// GitHub would have sent.
#[test]
fn what_github_never_said_is_not_made_up() {
    let inbox = Inbox::start(|_| Reply::json("").status(500));
    let dir = super::place(&[("hook", http(&inbox.url(), &json!({ "format": "github" })))]);
    let said = dir.once().expect(2).stderr;
    assert!(
        said.contains(
            "sources[0]: the sink 'hook' has the format 'github', and only a 'github' source"
        ),
        "{said}"
    );
    let hub = Hub::new();
    repo(&hub, |repo| repo.open(New::issue().by("sam")));
    later(&hub, 60);
    let place = hooked(&hub, &inbox.url());
    super::edit(&place, |config| {
        config["sinks"]["hook"]["format"] = "idempoll".into()
    });
    place.once().expect(1);
    super::edit(&place, |config| {
        config["sinks"]["hook"]["format"] = "github".into()
    });
    place.until("its time has come", || {
        place.once();
        !place.entries("poll.gave_up").is_empty()
    });
    assert!(reasons(&place, "poll.gave_up")[0].contains("there is no webhook of it"));
}
