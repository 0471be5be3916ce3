//! Who is answered, with which validator, and what goes wrong.

use super::{COMMENTS, ISSUES, KNOWN, REPO, ask, get, get_if, with_issues};
use crate::world::forge::Reply;
use crate::world::hub::{Etags, Hub, New, START, faults, replies};
use crate::world::program::{Answer, Place};
use std::time::{Duration, Instant};

#[test]
fn a_validator_stands_for_the_body_and_for_who_asks() {
    let hub = with_issues(1);
    let first = get(&hub, ISSUES);
    let tag = first.header("etag").expect("a tag").to_string();
    let left = first.remaining();
    let again = get_if(&hub, ISSUES, &tag);
    assert_eq!((again.status, again.body.len()), (304, 0));
    assert_eq!(
        (again.header("etag"), again.remaining()),
        (Some(&*tag), left)
    );
    assert!(again.header("date").is_some());
    let other = KNOWN.replace("t1", "t2") + &format!("If-None-Match: {tag}\r\n");
    let other = ask(&hub, "GET", ISSUES, &other).expect("an answer");
    assert_eq!(other.status, 200, "another token");
    hub.lock().etags = Etags::Weak;
    let weak = get(&hub, ISSUES);
    assert_eq!(weak.header("etag"), Some(&*format!("W/{tag}")));
    let again = get_if(&hub, ISSUES, &format!("W/{tag}"));
    assert_eq!((again.status, again.header("etag")), (304, Some(&*tag)));
    hub.lock().repo(REPO).comment(1, "sam", "news");
    assert_eq!(get_if(&hub, ISSUES, &tag).status, 200);
    hub.lock().always_304 = true;
    assert_eq!(get_if(&hub, ISSUES, &tag).status, 304);
    hub.lock().etags = Etags::None;
    assert_eq!(get_if(&hub, ISSUES, &tag).header("etag"), None);
}

#[test]
fn the_hours_requests_are_counted_by_token() {
    let hub = with_issues(1);
    hub.lock().budget("t1").limit = 3;
    let first = get(&hub, ISSUES);
    assert_eq!(first.remaining(), 2);
    assert_eq!(first.header("x-ratelimit-used"), Some("1"));
    assert_eq!(first.header("x-ratelimit-resource"), Some("core"));
    let tag = first.header("etag").expect("a tag");
    assert_eq!(get_if(&hub, ISSUES, tag).remaining(), 2, "a 304 is free");
    let nobody = format!("User-Agent: test\r\nIf-None-Match: {tag}\r\n");
    let nobody = || ask(&hub, "GET", ISSUES, &nobody).expect("an answer");
    assert_eq!((nobody().remaining(), nobody().remaining()), (59, 58));
    get(&hub, ISSUES);
    get(&hub, ISSUES);
    let over = get(&hub, ISSUES);
    assert_eq!((over.status, over.remaining()), (403, 0));
    let rate = get(&hub, "/rate_limit");
    assert_eq!(
        (rate.status, &rate.json()["rate"]["remaining"]),
        (200, &0.into())
    );
    hub.lock().over_with_429();
    assert_eq!(get_if(&hub, ISSUES, tag).status, 429);
    hub.lock().advance(3600);
    assert_eq!(get(&hub, ISSUES).status, 200);
    hub.lock().limits_off();
    assert_eq!(get(&hub, ISSUES).header("x-ratelimit-limit"), None);
    assert_eq!(get(&hub, "/rate_limit").status, 404);
}

#[test]
fn who_asks_in_the_wrong_way_is_told() {
    let hub = with_issues(1);
    hub.lock().only_tokens(["t1"]);
    assert_eq!(get(&hub, ISSUES).status, 200);
    assert_eq!(get(&hub, "/user").json()["login"], "octocat");
    for (headers, status) in [
        ("", 403),
        ("User-Agent: test\r\n", 200),
        ("User-Agent: test\r\nAuthorization: Bearer t2\r\n", 401),
        ("User-Agent: test\r\nAuthorization: token t1\r\n", 200),
        (
            "User-Agent: test\r\nX-GitHub-Api-Version: 2022-11-28\r\n",
            200,
        ),
        (
            "User-Agent: test\r\nX-GitHub-Api-Version: 1999-12-31\r\n",
            400,
        ),
    ] {
        let got = ask(&hub, "GET", ISSUES, headers).expect("an answer");
        assert_eq!(got.status, status, "{headers}");
    }
    let got = ask(&hub, "GET", "/user", "User-Agent: test\r\n").expect("an answer");
    assert_eq!(got.status, 401);
}

#[test]
fn an_app_gets_tokens_for_an_hour() {
    let hub = with_issues(1);
    hub.lock().only_tokens([]);
    let post = |token: &str| {
        let more = format!("User-Agent: test\r\nAuthorization: Bearer {token}\r\n");
        ask(&hub, "POST", "/app/installations/12/access_tokens", &more).expect("an answer")
    };
    assert_eq!(post("not-a-jwt").status, 401);
    let got = post("aaa.bbb.ccc");
    assert_eq!(got.status, 201);
    assert_eq!(got.json()["expires_at"], "2026-08-05T11:01:00Z");
    let token = got.json()["token"].as_str().unwrap_or_default().to_string();
    let with = format!("User-Agent: test\r\nAuthorization: Bearer {token}\r\n");
    let status = || ask(&hub, "GET", ISSUES, &with).expect("an answer").status;
    assert_eq!(status(), 200);
    hub.lock().advance(3600);
    assert_eq!(status(), 401);
    hub.lock()
        .judge_app(|asked| match asked.header("authorization") {
            Some("Bearer x.y.z") => Ok(()),
            _ => Err(replies::bad_credentials()),
        });
    assert_eq!(
        (post("aaa.bbb.ccc").status, post("x.y.z").status),
        (401, 201)
    );
}

#[test]
fn faults_are_met_on_request() {
    let hub = with_issues(3);
    let mut world = hub.lock();
    world.fault(1, faults::on("/issues"), replies::server_error(502));
    world.fault(
        1,
        faults::on("/issues"),
        replies::secondary_limit(403, None),
    );
    world.fault(1, faults::on("/issues"), Reply::reset());
    world.spoil(1, faults::on("/issues"), |reply| reply.cut(20));
    world.spoil(1, faults::on("/issues"), |reply| {
        reply.delay(Duration::from_millis(30))
    });
    world.fault(
        1,
        |asked| asked.query("per_page") == Some("100"),
        replies::html(200),
    );
    drop(world);
    assert_eq!(get(&hub, COMMENTS).status, 200);
    assert_eq!(get(&hub, ISSUES).status, 502);
    let limited = get(&hub, ISSUES);
    assert_eq!((limited.status, limited.header("retry-after")), (403, None));
    assert!(limited.remaining() > 4000 && limited.header("date").is_some());
    let reset = ask(&hub, "GET", ISSUES, KNOWN).err().map(|e| e.kind());
    assert_eq!(reset, Some(std::io::ErrorKind::ConnectionReset));
    assert_eq!(get(&hub, ISSUES).body.len(), 20);
    let start = Instant::now();
    assert_eq!(get(&hub, ISSUES).numbers().len(), 3);
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert!(
        get(&hub, &format!("{ISSUES}?per_page=100"))
            .body
            .starts_with(b"<!DOCTYPE")
    );
    assert_eq!(
        get(&hub, &format!("{ISSUES}?per_page=100")).numbers().len(),
        3
    );
    hub.lock().fault(usize::MAX, |_| true, replies::gone());
    assert_eq!(get(&hub, ISSUES).status, 410);
    hub.lock().heal();
    assert_eq!(get(&hub, ISSUES).status, 200);
}

#[test]
fn the_log_says_what_was_asked_and_what_it_cost() {
    let hub = Hub::at("/api/v3");
    assert!(hub.url().ends_with("/api/v3"));
    let sent: Vec<u64> = ["/api/v3/repos/octo/widgets/issues", ISSUES]
        .iter()
        .map(|path| {
            let got = get(&hub, path);
            (got.head.len() + 4 + got.body.len()) as u64
        })
        .collect();
    let log = hub.log();
    let logged: Vec<u64> = log.iter().map(|l| l.sent).collect();
    assert_eq!(logged, sent);
    assert_eq!((log[0].status, log[1].status), (200, 404));
    assert_eq!(log[1].asked.target, ISSUES);
    assert_eq!(log[0].asked.header("authorization"), Some("Bearer t1"));
    assert!(hub.log().is_empty());
}

#[test]
fn the_program_itself_can_be_pointed_at_it() {
    let hub = Hub::new();
    hub.lock().tick_with_real_time(START);
    let place = Place::new("cat >> payloads.log; echo >> payloads.log");
    let mut config = place.config("cat >> payloads.log; echo >> payloads.log");
    config["sources"] = serde_json::json!([{
        "name": "hub", "provider": "github", "repos": [REPO], "label": "auto", "sinks": ["log"],
        "base_url": hub.url(), "token_env": "HUB_TOKEN", "watch_from": "2026-08-05T10:00:00Z",
    }]);
    place.configure(&config);
    let n = hub.lock().repo(REPO).open(New::issue().label("auto"));
    hub.lock()
        .repo(REPO)
        .comment(n, "octocat", "and one more thing");
    let mut command = place.command(&["start", "--once", "-q"]);
    let output = command.env("HUB_TOKEN", "t1").output().expect("it starts");
    Answer::of(output).expect(0);
    let events = place.payloads();
    let events: Vec<&str> = events.iter().filter_map(|p| p["event"].as_str()).collect();
    assert_eq!(events, ["opened", "comment"]);
    assert!(
        hub.log()
            .iter()
            .all(|l| l.asked.header("authorization") == Some("Bearer t1"))
    );
}
