//! What an endpoint answers, and what becomes of the delivery.

use super::{edit, http, place, reasons};
use crate::world::forge::Reply;
use crate::world::program::{Answer, Place};
use crate::world::receiver::{Inbox, Receiver};
use crate::world::tls::{self, Proxy, fixture};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// One cycle with these variables and no others that matter here.
fn once(place: &Place, vars: &[(&str, &str)]) -> Answer {
    let mut command = place.command(&["start", "--once"]);
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    let command = command
        .env_remove("SSL_CERT_FILE")
        .envs(vars.iter().copied());
    Answer::of(command.output().expect("the program starts"))
}

/// Given an endpoint that accepts, when an item with a comment comes, then it gets what every sink gets, in order, with
/// the delivery's id, event and try beside it.
#[test]
fn what_every_sink_gets_is_posted() {
    let inbox = Inbox::friendly();
    let sink = http(
        &format!("{}?key=1", inbox.url()),
        &json!({ "headers": { "X-Team": "blue bird" } }),
    );
    let place = place(&[("hook", sink)]);
    place.item(7, 1);
    place.once().expect(0);
    let got = inbox.got();
    let ids = ["dir:inbox#7/opened", "dir:inbox#7/comment/1"];
    assert_eq!(inbox.ids(), ids);
    for (asked, event) in got.iter().zip(["opened", "comment"]) {
        let header = |name| asked.header(name).unwrap_or_default();
        assert_eq!(
            (asked.method.as_str(), asked.target.as_str()),
            ("POST", "/hook?key=1")
        );
        assert_eq!(header("content-type"), "application/json");
        assert_eq!(header("x-idempoll-event"), event);
        assert_eq!(header("x-idempoll-attempt"), "1");
        assert_eq!(header("x-team"), "blue bird");
        assert!(header("user-agent").starts_with("idempoll/"), "{asked:?}");
        for none in [
            "x-hub-signature-256",
            "x-github-event",
            "cookie",
            "authorization",
        ] {
            assert_eq!(asked.header(none), None);
        }
        let body: Value = serde_json::from_slice(&asked.body).expect("JSON");
        assert_eq!(
            (&body["idempoll"], &body["event"]),
            (&1.into(), &event.into())
        );
        assert_eq!(body["delivery_id"], header("x-idempoll-delivery"));
    }
    place.once().expect(0);
    assert_eq!(inbox.got().len(), 2, "nothing comes twice");
}

/// Given an endpoint that answers 301, 302, 303, 307 and 308 to a page that takes anything (C077), when something is
/// delivered, then no redirect is followed, none is a success, and the log names where it leads.
#[test]
fn c077_a_redirect_is_never_a_success() {
    let receiver = Receiver::start("s", "301,302,303,307,308,200");
    let place = place(&[("hook", http(&receiver.url(), &json!({})))]);
    edit(&place, |config| config["max_retries"] = 5.into());
    place.item(7, 0);
    let poller = place.start();
    place.until("it is delivered", || {
        !place.entries("dispatch.succeeded").is_empty()
    });
    drop(poller);
    let posts: Vec<Value> = vec!["POST".into(); 6];
    assert_eq!(receiver.field("method"), posts);
    let paths: Vec<Value> = vec!["/hook".into(); 6];
    assert_eq!(receiver.field("path"), paths, "nobody went to /final");
    let whole = receiver.lines()[0]["body_sha256"].clone();
    assert!(
        receiver
            .field("body_sha256")
            .iter()
            .all(|sum| *sum == whole)
    );
    let failed = reasons(&place, "dispatch.failed");
    assert_eq!(failed.len(), 5, "{failed:?}");
    let target = format!("http://127.0.0.1:{}/final", receiver.port());
    for (reason, status) in failed.iter().zip([301, 302, 303, 307, 308]) {
        let want = format!("answered {status}, which leads to {target}");
        assert!(reason.contains(&want), "{reason}");
    }
}

/// Given an endpoint that sends on to another host, with a secret in the query (C077), when something is delivered, then the
/// other host hears nothing, and the log names it without the query.
#[test]
fn c077_another_host_hears_nothing() {
    let other = Inbox::friendly();
    let to = format!("{}?token=hunter2", other.url());
    let inbox = Inbox::start(move |_| Reply::json("").status(307).header("Location", &to));
    let place = place(&[("hook", http(&inbox.url(), &json!({})))]);
    edit(&place, |config| config["max_retries"] = 0.into());
    place.item(7, 0);
    let said = place.run(&["start", "--once"]).expect(1).stderr;
    assert!(other.got().is_empty() && inbox.got().len() == 1);
    assert!(said.contains(&other.url()), "{said}");
    assert!(!place.story().contains("hunter2") && !said.contains("hunter2"));
}

/// Given an endpoint that says 410, when something is delivered, then it is given up at once and reported with what
/// was said; and `retry` tries it again (R6.7).
#[test]
fn r6_7_what_an_endpoint_refuses_for_good_is_given_up_at_once() {
    let gone = Reply::json("\n  this hook was removed\nask the team\n").status(410);
    let inbox = Inbox::planned(vec![gone, Reply::json("{}")]);
    let place = place(&[("hook", http(&inbox.url(), &json!({})))]);
    place.item(7, 1);
    place.once().expect(1);
    assert_eq!(inbox.got().len(), 2, "the next one is tried");
    let gave_up = reasons(&place, "poll.gave_up");
    assert_eq!(gave_up.len(), 1);
    assert!(
        gave_up[0].ends_with("answered 410: this hook was removed"),
        "{gave_up:?}"
    );
    place.run(&["retry", "dir:inbox#7"]).expect(0);
    place.once().expect(0);
    assert_eq!(inbox.ids()[2], "dir:inbox#7/opened");
}

/// Given an endpoint that says "not now" and until when, in seconds or as a date by a clock of its own, when something is
/// delivered, then it is tried again no earlier, and none of its tries is spent (R6.7).
#[test]
fn r6_7_retry_after_is_waited_for_and_spends_nothing() {
    // Its clock is a year off, which does not matter.
    let theirs = SystemTime::now() + Duration::from_secs(366 * 86_400);
    let date = |after| httpdate::fmt_http_date(theirs + Duration::from_secs(after));
    let inbox = Inbox::planned(vec![
        Reply::json("slow down")
            .status(429)
            .header("Retry-After", "1"),
        Reply::json("")
            .status(503)
            .header("Date", date(0))
            .header("Retry-After", date(2)),
        Reply::json("{}"),
    ]);
    let place = place(&[("hook", http(&inbox.url(), &json!({})))]);
    edit(&place, |config| config["max_retries"] = 0.into());
    place.item(7, 0);
    let _poller = place.start();
    place.until("it is delivered", || {
        !place.entries("dispatch.succeeded").is_empty()
    });
    let at = |entry: &Value, key: &str| {
        let time: idempoll::engine::time::Time = entry[key]
            .as_str()
            .expect("a time")
            .parse()
            .expect("RFC 3339");
        time.0
    };
    let deferred = place.entries("dispatch.deferred");
    assert_eq!(deferred.len(), 2);
    for (entry, wait) in deferred.iter().zip([1000, 2000]) {
        let pause = at(entry, "next_attempt_at") - at(entry, "ts");
        assert!((wait - 500..=wait).contains(&pause), "{pause} ms: {entry}");
    }
    assert!(
        at(&place.entries("dispatch.succeeded")[0], "ts") >= at(&deferred[1], "next_attempt_at")
    );
    assert!(place.entries("dispatch.failed").is_empty());
    let tries: Vec<String> = inbox
        .got()
        .iter()
        .filter_map(|a| a.header("x-idempoll-attempt").map(str::to_string))
        .collect();
    assert_eq!(tries, ["1", "2", "3"]);
}

/// Given an endpoint that says "not now" for longer than anybody can count, or until a date past counting, when something is
/// delivered, then it is put off, for an hour, and nothing is spent (R6.7).
#[test]
fn r6_7_retry_after_a_time_beyond_counting_is_an_hour() {
    for after in [
        "99999999999",
        "99999999999999999999999999",
        "Fri, 31 Dec 9999 23:59:59 GMT",
    ] {
        let reply = Reply::json("").status(429).header("Retry-After", after);
        let inbox = Inbox::planned(vec![reply]);
        let place = place(&[("hook", http(&inbox.url(), &json!({})))]);
        edit(&place, |config| config["max_retries"] = 0.into());
        place.item(7, 0);
        place.once().expect(1);
        let entries = place.entries("dispatch.deferred");
        assert_eq!(entries.len(), 1, "{after}: {}", place.story());
        let at = |key: &str| {
            let time = entries[0][key].as_str().expect("a time");
            time.parse::<idempoll::engine::time::Time>()
                .expect("RFC 3339")
                .0
        };
        let pause = at("next_attempt_at") - at("ts");
        assert!((3_590_000..=3_600_000).contains(&pause), "{pause} ms");
    }
}

/// Given an endpoint that answers 400, 500, 429 without a time, resets the connection, and never finishes, when something
/// is delivered, then each is a failed try with its reason, shown harmlessly (C052), until the tries are over (R6.7).
#[test]
fn r6_7_anything_else_is_a_failed_try() {
    let mut silent = Reply::json("");
    silent.delay = Duration::from_secs(60);
    let inbox = Inbox::planned(vec![
        Reply::json("bad \u{1b}[2Jshape\u{202e}").status(400),
        Reply::json("x".repeat(300_000)).status(500),
        Reply::json("").status(429),
        Reply::reset(),
        silent,
    ]);
    let place = place(&[("hook", http(&inbox.url(), &json!({ "timeout_seconds": 1 })))]);
    edit(&place, |config| {
        config["max_retries"] = 4.into();
        config["retry_seconds"] = 0.001.into();
    });
    place.item(7, 0);
    let _poller = place.start();
    place.until("it is given up", || {
        !place.entries("poll.gave_up").is_empty()
    });
    let failed = reasons(&place, "dispatch.failed");
    assert_eq!(failed.len(), 5, "{failed:?}");
    assert!(
        failed[0].contains(r"answered 400: bad \x1b[2Jshape\u{202e}"),
        "{failed:?}"
    );
    assert!(
        failed[1].contains("answered 500: xxx") && failed[1].len() < 400,
        "{failed:?}"
    );
    assert!(failed[2].ends_with("answered 429"), "{failed:?}");
    assert!(
        failed[3].starts_with("POST /hook at 127.0.0.1:"),
        "{failed:?}"
    );
    assert!(
        failed[4].ends_with("no whole answer within 1 s"),
        "{failed:?}"
    );
    let gave_up = place
        .run(&["items", "--gave-up", "--json"])
        .expect(0)
        .stdout;
    assert!(gave_up.contains("dir:inbox#7"), "{gave_up}");
    let bodies: Vec<Vec<u8>> = inbox.got().into_iter().map(|asked| asked.body).collect();
    assert!(
        bodies.len() == 5 && bodies.iter().all(|b| *b == bodies[0]),
        "the bytes stay the same"
    );
}

/// Given endpoints that send their answer a byte at a time without end (C085), when something is delivered, then a whole
/// deadline ends it: before the status came as a failed try, after it with what the status says.
#[test]
fn c085_an_endpoint_that_dribbles_meets_the_deadline() {
    let slow = Duration::from_millis(300);
    let head = Inbox::start(move |_| Reply::json("{}").dribble_all(slow));
    let body = Inbox::start(move |_| Reply::json("x".repeat(100_000)).dribble(slow));
    let soon = json!({ "timeout_seconds": 1.5 });
    let place = place(&[
        ("head", http(&head.url(), &soon)),
        ("body", http(&body.url(), &soon)),
    ]);
    edit(&place, |config| config["max_retries"] = 0.into());
    place.item(7, 0);
    place.once().expect(1);
    let failed = place.entries("dispatch.failed");
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["sink"], "head");
    let reason = failed[0]["reason"].as_str().expect("a reason");
    assert!(reason.ends_with("no whole answer within 1.5 s"), "{reason}");
    assert_eq!(place.entries("dispatch.succeeded")[0]["sink"], "body");
}

/// Given an endpoint with a certificate of a private authority (C081), when that is named by `ca_file` or by
/// `SSL_CERT_FILE`, then it is delivered to; when not, the reason names the issuer, nothing is sent, and it is tried again.
#[test]
fn c081_an_endpoint_of_ones_own_authority() {
    let inbox = Inbox::friendly();
    let front = tls::before(inbox.forge());
    let url = format!("https://127.0.0.1:{}/hook", front.address.port());
    let ca = fixture("ca.pem").display().to_string();
    let place = place(&[("hook", http(&url, &json!({ "ca_file": ca })))]);
    place.item(1, 0);
    once(&place, &[]).expect(0);
    edit(&place, |config| {
        drop(
            config["sinks"]["hook"]
                .as_object_mut()
                .expect("a sink")
                .remove("ca_file"),
        )
    });
    place.item(2, 0);
    once(&place, &[("SSL_CERT_FILE", &ca)]).expect(0);
    assert_eq!(inbox.ids(), ["dir:inbox#1/opened", "dir:inbox#2/opened"]);
    place.item(3, 0);
    edit(&place, |config| config["max_retries"] = 0.into());
    let said = once(&place, &[]).expect(1).stderr;
    assert!(
        said.contains("issuer 'Octo Test Authority' is not known"),
        "{said}"
    );
    assert_eq!(inbox.got().len(), 2);
    let checked = place.run(&["check"]).expect(1).stdout;
    assert!(
        checked.contains("problem: sink 'hook': cannot reach https://127.0.0.1"),
        "{checked}"
    );
}

/// Given a proxy with an encoded password, endpoints far, listed, below a listed name, and on this machine (C083, C084),
/// when something is delivered, then only the far one is reached through the proxy, which sees the password decoded;
/// and no log has it.
#[test]
fn c083_c084_endpoints_and_the_proxy() {
    let inbox = Inbox::friendly();
    let front = tls::before(inbox.forge());
    let proxy = Proxy::to(front.address);
    let ca = fixture("ca.pem").display().to_string();
    let port = front.address.port();
    let secure = json!({ "ca_file": ca, "timeout_seconds": 5 });
    let far = http("https://tracker.example.test/hook", &secure);
    let below = http(&format!("https://hooks.listed.test:{port}/hook"), &secure);
    let near = http(&format!("https://127.0.0.1:{port}/hook"), &secure);
    let plain = http(&inbox.url(), &json!({}));
    let place = place(&[
        ("far", far),
        ("below", below),
        ("near", near),
        ("plain", plain),
    ]);
    edit(&place, |config| config["max_retries"] = 0.into());
    place.item(7, 0);
    let address = format!("http://svc%40corp:p%3A%2Fq@{}", proxy.server.address);
    let said = once(
        &place,
        &[
            ("https_proxy", &address),
            ("HTTP_PROXY", &address),
            ("NO_PROXY", "listed.test,10.0.0.0/8"),
        ],
    );
    let heads = proxy.asked();
    assert_eq!(heads.len(), 1, "{heads:?}");
    assert!(
        heads[0].starts_with("CONNECT tracker.example.test:443"),
        "{heads:?}"
    );
    // svc@corp:p:/q
    assert!(heads[0].contains("Basic c3ZjQGNvcnA6cDovcQ=="), "{heads:?}");
    let sinks = |kind| {
        let mut sinks: Vec<String> = place
            .entries(kind)
            .iter()
            .map(|e| e["sink"].as_str().unwrap_or_default().to_string())
            .collect();
        sinks.sort();
        sinks
    };
    assert_eq!(sinks("dispatch.succeeded"), ["far", "near", "plain"]);
    // The name is looked up here, and there is no such name.
    assert_eq!(sinks("dispatch.failed"), ["below"]);
    assert!(!reasons(&place, "dispatch.failed")[0].contains("proxy"));
    let told = format!("{}{}{}", said.stdout, said.stderr, place.story());
    for secret in ["p:/q", "p%3A%2Fq", "cDovcQ"] {
        assert!(!told.contains(secret), "{told}");
    }
}

/// Given an endpoint that is down for a while and comes back at the same address (C087), when the poller
/// goes on, then what waited is delivered without a restart.
#[test]
fn c087_after_an_outage_of_the_endpoint_deliveries_go_on() {
    let first = Receiver::start("s", "200");
    let port = first.port();
    let place = place(&[("hook", http(&first.url(), &json!({})))]);
    edit(&place, |config| config["max_retries"] = 100.into());
    place.item(1, 0);
    let _poller = place.start();
    place.until("the first is delivered", || first.lines().len() == 1);
    drop(first);
    place.item(2, 0);
    place.until("the outage is noticed", || {
        !place.entries("dispatch.failed").is_empty()
    });
    let again = Receiver::at(port, "s", "200");
    place.until("the second is delivered", || {
        again.lines().len() == 1 && place.pending() == 0
    });
}

/// Given endpoints that can be reached and that cannot, when the config is checked, then each is connected to and asked
/// nothing, and what would not work is said.
#[test]
fn check_connects_and_asks_nothing() {
    let inbox = Inbox::friendly();
    let place = place(&[(
        "hook",
        http(
            &format!("{}?key=hunter2", inbox.url()),
            &json!({ "secret_file": "secret" }),
        ),
    )]);
    place.write("secret", "s3cret\n");
    let said = place.run(&["check"]).expect(0).stdout;
    let line = format!(
        "sink     hook: http {}, signed with the secret file",
        inbox.url()
    );
    assert!(said.contains(&line), "{said}");
    assert!(
        !said.contains("hunter2") && !said.contains("s3cret"),
        "{said}"
    );
    assert!(inbox.got().is_empty());
    place.write("secret", "\n");
    let gone = inbox.url();
    drop(inbox);
    let said = place.run(&["check"]).expect(1).stdout;
    let file = place.path("secret").display().to_string();
    for part in [
        format!("problem: sink 'hook': cannot use the secret file {file}: it is empty"),
        format!("problem: sink 'hook': cannot reach {gone}: "),
    ] {
        assert!(said.contains(&part), "{part}\n{said}");
    }
}
