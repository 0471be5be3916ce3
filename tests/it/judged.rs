//! GitHub's own description of its API has nothing against what we ask, nor against what
//! the forge of these tests answers, where `tests/judge` installed it and a judge.

use crate::world::forge::{Asked, Forge, Reply};
use crate::world::hub::{Hub, New, Trace, Verdict, replies};
use crate::world::judge::{Exchange, Judge};
use crate::world::program::{Answer, Place};
use crate::world::receiver::Inbox;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

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
        judge.ask("GET", list)
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
        refuses(judge.ask("GET", target), status, reason);
    }
    println!("\njudged: the judge refused {refused} of {refused} that do not fit");
}

/// Given a forge of ours in which things are hidden, gone, refused and out of reach, when it is
/// asked for them, then what it says instead fits the description too.
#[test]
fn what_our_forge_answers_when_it_has_nothing_fits_githubs_description() {
    const NAME: &str = "octo/widgets";
    let Some(judge) =
        Judge::of("what_our_forge_answers_when_it_has_nothing_fits_githubs_description")
    else {
        return;
    };
    let hub = Hub::new();
    let (id, gone, hidden) = {
        let mut world = hub.lock();
        let mut repo = world.repo(NAME);
        let gone = repo.open(New::issue());
        let hidden = repo.open(New::issue());
        repo.delete(gone, Trace::Gone);
        repo.delete(hidden, Trace::Nothing);
        let id = repo.repo.id;
        world.create("octo/secrets");
        world.revoke("octo/secrets");
        (id, gone, hidden)
    };
    judge.judges(hub.url(), id, NAME);
    let (gone, hidden) = (format!("issues/{gone}"), format!("issues/{hidden}"));
    let mut asked = 0;
    for (status, repo, what) in [
        (410, NAME, gone.as_str()),
        (404, NAME, &hidden),
        (404, NAME, "labels/unheard-of"),
        (422, NAME, "issues?state=all&per_page=100&page=100"),
        (422, NAME, "issues/comments?per_page=100&page=500"),
        (404, "octo/secrets", "issues"),
        (404, "octo/secrets", "issues/comments"),
        (404, "octo/nothing", "issues/1"),
    ] {
        let exchange = judge.ask("GET", &format!("/repos/{repo}/{what}"));
        assert_eq!(
            (exchange.status, &exchange.objections[..]),
            (status, &[][..]),
            "{repo} {what}"
        );
        asked += 1;
    }
    hub.lock().only_tokens(["another"]);
    for target in ["/rate_limit", "/user"] {
        let exchange = judge.ask("GET", target);
        assert!(objections(&exchange).is_empty(), "{exchange:#?}");
        asked += 1;
    }
    println!(
        "\njudged: {asked} answers of a forge that has nothing to give fit GitHub's description"
    );
}

/// What the program asks for, as the description calls it.
const ENDPOINTS: [&str; 13] = [
    "/app/installations/{installation_id}/access_tokens",
    "/repos/{owner}/{repo}",
    "/repos/{owner}/{repo}/issues",
    "/repos/{owner}/{repo}/issues/comments",
    "/repos/{owner}/{repo}/issues/{issue_number}",
    "/repos/{owner}/{repo}/issues/{issue_number}/comments",
    "/repos/{owner}/{repo}/issues/{issue_number}/events",
    "/repos/{owner}/{repo}/labels/{name}",
    "/repos/{owner}/{repo}/pulls",
    "/repos/{owner}/{repo}/pulls/comments",
    "/repos/{owner}/{repo}/pulls/{pull_number}",
    "/repos/{owner}/{repo}/pulls/{pull_number}/comments",
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
/// increments, more than a page of one second, idle cycles, a sweep with items closed, deleted and without their label, and once as an App), then every request
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
    let place = Place::new(script);
    let mut config = place.config(script);
    config["label"] = "agent".into();
    config["sources"] = json!([{ "name": "forge", "provider": "github", "repos": [NAME],
        "base_url": judge.url(), "token_env": "FORGE_TOKEN", "sinks": ["log", "hook"] }]);
    // For which pull requests are asked for by themselves.
    let inbox = Inbox::friendly();
    config["sinks"]["hook"] = json!({ "type": "http", "url": inbox.url(), "format": "github" });
    place.configure(&config);
    let mut exchanges: Vec<Exchange> = Vec::new();
    let mut cycle = |what: &str| {
        let mut command = place.command(&["start", "--once", "-q"]);
        command.env("FORGE_TOKEN", "tok_5f3c9ab1e7d24680");
        let said = Answer::of(command.output().expect("it starts"));
        let new = judge.exchanges();
        // Planted below; the description knows no failure of this list.
        let planted = |e: &Exchange| e.status == 404 && e.asked.path().ends_with("/reviews");
        for exchange in &new {
            let against = objections(exchange);
            let Exchange { asked, status, .. } = exchange;
            assert!(
                against.is_empty() || planted(exchange),
                "{what}: {} {}: {status}: {against:#?}",
                asked.method,
                asked.target
            );
        }
        said.expect(i32::from(new.iter().any(planted)));
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

    let reviews = |asked: &Asked| asked.path().ends_with("/reviews");
    hub.lock().fault(1, reviews, replies::not_found());
    hub.lock()
        .repo(NAME)
        .review(pull, "octocat", Verdict::Commented, "another review");
    hub.lock().advance(90);
    cycle("a pull request that cannot be read whole");
    hub.lock().advance(90);
    cycle("and is read by itself");

    hub.lock().delete_account("sam-rivera");
    hub.lock().repo(NAME).delete(gone, Trace::Gone);
    hub.lock().repo(NAME).unlabel(late, "agent");
    hub.lock().repo(NAME).merge(pull);
    hub.lock().advance(4000);
    cycle("a sweep");
    hub.lock().advance(180);
    cycle("and asking once more");

    config["sources"][0]["app"] = json!({ "id": "Iv1.a", "installation_id": 42,
        "private_key_file": concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/tls/app-pkcs8.key") });
    let source = config["sources"][0].as_object_mut();
    source.expect("set above").remove("token_env");
    place.configure(&config);
    cycle("as an app");

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
        let is_it = |e: &&Exchange| {
            e.endpoint.as_deref() == Some(endpoint) && [200, 201].contains(&e.status)
        };
        let Exchange { asked, status, .. } = exchanges.iter().find(is_it).expect("it was asked");
        for nothing in ["{}", "[{}]"] {
            let reply = Reply::json(nothing).status(*status);
            let forge = Forge::start(move |_| reply.clone());
            judge.judges(forge.url(), id, NAME);
            let exchange = judge.ask(&asked.method, &asked.target);
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
