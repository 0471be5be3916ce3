//! GitHub Apps: how one says who it is, and what becomes of its tokens.

use crate::world::forge::{Asked, Forge, Reply};
use crate::world::program::Place;
use crate::world::tls::fixture;
use idempoll::config::checked::{App, TokenFrom};
use idempoll::engine::time::Time;
use idempoll::net::Client;
use idempoll::providers::Ask;
use idempoll::providers::token::{Token, Tokens};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

/// 2026-08-05T10:00:00Z, by the clock of the forges of this file.
const START: u64 = 1_785_924_000;

const TOKENS: &str = "/app/installations/42/access_tokens";

fn app(id: &str, key: PathBuf) -> TokenFrom {
    TokenFrom::App(App {
        id: id.into(),
        installation_id: 42,
        private_key_file: key,
    })
}

fn tokens(forge: &Forge, id: &str, key: &str) -> Tokens {
    Tokens::new(Some(app(id, fixture(key))), &Client::default(), forge.url())
}

/// Asks for the token at `now`, in seconds, which is a cycle of its own.
fn at(tokens: &Tokens, now: u64) -> Result<Token, String> {
    let ask = Ask {
        cycle: Time(now * 1000),
        now: Time(now * 1000),
        ..Ask::default()
    };
    tokens
        .read(&ask)
        .map(|token| token.expect("an App has one"))
}

fn dated(reply: Reply, now: u64) -> Reply {
    let date = UNIX_EPOCH + Duration::from_secs(now);
    reply.header("Date", httpdate::fmt_http_date(date))
}

/// The `n`th token, which expires an hour after `now`.
fn issued(n: usize, now: u64) -> Reply {
    let expires_at = Time((now + 3600) * 1000).to_string();
    let token = json!({ "token": format!("ghs_token{n}"), "expires_at": expires_at });
    dated(Reply::json(token).status(201), now)
}

/// The claims of the statement a request carries, once its signature is found good.
fn claims(asked: &Asked) -> Value {
    let statement = asked.header("authorization").expect("a statement");
    let statement = statement.strip_prefix("Bearer ").expect("a bearer");
    let (text, signature) = statement.rsplit_once('.').expect("a signature");
    let (head, claims) = text.split_once('.').expect("a head");
    let key = fs::read(fixture("app-public.der")).expect("a key");
    ring::signature::UnparsedPublicKey::new(&ring::signature::RSA_PKCS1_2048_8192_SHA256, key)
        .verify(text.as_bytes(), &base64url(signature))
        .expect("it is the App's signature");
    let head: Value = serde_json::from_slice(&base64url(head)).expect("JSON");
    assert_eq!(head, json!({ "alg": "RS256", "typ": "JWT" }));
    serde_json::from_slice(&base64url(claims)).expect("JSON")
}

fn base64url(text: &str) -> Vec<u8> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (mut bits, mut held, mut bytes) = (0usize, 0, Vec::new());
    for c in text.chars() {
        bits = bits << 6 | DIGITS.find(c).expect("a digit");
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    bytes
}

/// Given an App with a key in either form, when it needs a token, then it asks for one of its
/// installation with a statement it signed, whose times are those GitHub allows.
#[test]
fn an_app_says_who_it_is_and_gets_a_token() {
    for (id, key, issuer) in [
        ("Iv23liExample", "app-pkcs1.key", json!("Iv23liExample")),
        ("12345", "app-pkcs8.key", json!(12345)),
    ] {
        let forge = Forge::start(|_| issued(1, START));
        let token = at(&tokens(&forge, id, key), START).expect("a token");
        assert_eq!(token.name, format!("app-{id}-42"));
        assert_eq!(token.secret, idempoll::net::Secret::new("ghs_token1"));
        let asked = forge.asked();
        let [asked] = asked.as_slice() else {
            panic!("one request: {asked:?}");
        };
        assert_eq!(
            (asked.method.as_str(), asked.target.as_str()),
            ("POST", TOKENS)
        );
        assert_eq!(asked.header("content-type"), Some("application/json"));
        assert_eq!(asked.header("accept"), Some("application/vnd.github+json"));
        assert_eq!(asked.body, b"{}");
        let claims = claims(asked);
        assert_eq!(claims["iss"], issuer);
        assert_eq!(claims["iat"], START - 60);
        let left = claims["exp"].as_u64().expect("a time") - START;
        assert!((60..=600).contains(&left), "{left} s");
    }
}

/// Given a token that is valid for an hour, when cycles go on, then it is renewed five minutes
/// before it expires; its name stays. If that fails, it is used up to its end.
#[test]
fn an_apps_token_is_renewed_before_it_expires() {
    let count = Arc::new(AtomicUsize::new(0));
    let issues = count.clone();
    let forge = Forge::start(move |_| match issues.fetch_add(1, Ordering::SeqCst) + 1 {
        1 => issued(1, START),
        2 | 4 => Reply::json(r#"{"message":"Server Error"}"#).status(502),
        n => issued(n, START + 3302),
    });
    let tokens = tokens(&forge, "Iv1.a", "app-pkcs1.key");
    for (after, asked, number) in [
        (0, 1, 1),
        (3299, 1, 1),
        (3301, 2, 1), // it failed, and the old one will do
        (3302, 3, 3),
        (3310, 3, 3),
    ] {
        let token = at(&tokens, START + after).expect("a token");
        let secret = idempoll::net::Secret::new(format!("ghs_token{number}"));
        assert_eq!(
            (token.secret, token.name.as_str()),
            (secret, "app-Iv1.a-42"),
            "{after} s"
        );
        assert_eq!(count.load(Ordering::SeqCst), asked, "{after} s");
    }
    // Its end is reached, and there is no other.
    let failed = at(&tokens, START + 3302 + 3600).expect_err("502");
    assert_eq!(failed, format!("POST {TOKENS} answered 502: Server Error"));
}

/// Given a clock of ours that is wrong by hours, when GitHub refuses the statement for its
/// times, then another is made by the server's clock, and from then on that one is gone by.
#[test]
fn an_app_goes_by_the_servers_clock_when_ours_is_wrong() {
    for ours in [START - 3 * 3600, START + 3 * 3600, START - 420] {
        let later = Arc::new(Mutex::new(START));
        let clock = later.clone();
        let forge = Forge::start(move |asked| {
            let now = *clock.lock().expect("no panic");
            let claims = claims(asked);
            let time = |name: &str| claims[name].as_u64().expect("a time");
            if time("iat") <= now && (now + 1..=now + 600).contains(&time("exp")) {
                return issued(1, now);
            }
            let said = r#"{"message":"'Expiration time' claim ('exp') is too far in the future"}"#;
            dated(Reply::json(said).status(401), now)
        });
        let tokens = tokens(&forge, "Iv1.a", "app-pkcs1.key");
        at(&tokens, ours).expect("a token");
        let refused = forge.asked().len() - 1;
        assert_eq!(refused, usize::from(ours != START - 420));
        for (after, asked) in [(3299, 0), (3301, 1)] {
            *later.lock().expect("no panic") = START + after;
            at(&tokens, ours + after).expect("a token");
            assert_eq!(forge.asked().len(), asked, "{after} s later");
        }
    }
    // A refusal by a clock that agrees with ours is believed at once.
    let forge = Forge::start(|_| dated(Reply::json("{}").status(401), START + 5));
    at(&tokens(&forge, "Iv1.a", "app-pkcs1.key"), START).expect_err("refused");
    assert_eq!(forge.asked().len(), 1);
}

/// Given an App that gets no token, for whatever reason, when it asks, then the error says what is
/// wrong and what to check, and shows neither key nor statement.
#[test]
fn why_an_app_gets_no_token_is_said() {
    let dir = Place::new("true");
    let scratch = |content: &str| {
        dir.write("key", content);
        dir.path("key")
    };
    let read = |name: &str| fs::read_to_string(fixture(name)).expect("a fixture");
    let nowhere = Forge::start(|_| issued(1, START));
    let torn = read("app-pkcs1.key").replace("END", "FIN");
    for (key, why) in [
        (dir.path("none"), "cannot read the private key"),
        (dir.path("inbox"), "not a regular file"),
        (scratch(""), "there is no private key in it"),
        (fixture("ca.pem"), "there is no private key in it"),
        (fixture("server.key"), "no RSA key"),
    ] {
        let path = key.display().to_string();
        let tokens = Tokens::new(Some(app("1", key)), &Client::default(), nowhere.url());
        let e = at(&tokens, START).expect_err(why);
        assert!(e.contains(why) && e.contains(&path), "{e}");
    }
    let tokens_of = |key| Tokens::new(Some(app("1", key)), &Client::default(), nowhere.url());
    let e = at(&tokens_of(scratch(&torn)), START).expect_err("torn");
    assert!(!e.contains("MII"), "{e}");
    assert!(nowhere.asked().is_empty());

    let said = |message: &str| Reply::json(json!({ "message": message }));
    for (reply, why) in [
        (
            said("A JSON web token could not be decoded").status(401),
            "check whether the App's id is 1, and whether",
        ),
        (
            said("Not Found").status(404),
            "the App 1 has no installation 42",
        ),
        (
            said("This installation has been suspended").status(403),
            "suspended; check whether the installation 42 of the App 1",
        ),
        (
            said("Moved")
                .status(301)
                .header("Location", "{base}/elsewhere"),
            "answered 301: Moved",
        ),
        (
            Reply::json("<html>").status(201),
            "did not answer a token: not JSON",
        ),
        (
            Reply::json("{}").status(201),
            "did not answer a token: no token",
        ),
        (
            Reply::json(r#"{"token":"a b","expires_at":"2026-08-05T11:00:00Z"}"#).status(201),
            "did not answer a token: cannot use",
        ),
        (
            Reply::json(r#"{"token":"ghs_hunter2"}"#).status(201),
            "no time of its end",
        ),
    ] {
        let forge = Forge::start(move |asked| {
            let mut reply = reply.clone();
            // A server that repeats the request.
            let repeated = asked
                .header("authorization")
                .unwrap_or_default()
                .to_string();
            reply = reply.header("X-Repeated", &repeated);
            if reply.status == 403 {
                reply.body = json!({ "message": format!("suspended; {repeated}") })
                    .to_string()
                    .into_bytes();
            }
            reply
        });
        let e = at(&tokens(&forge, "1", "app-pkcs1.key"), START).expect_err(why);
        assert!(e.contains(&why.replace("suspended; check", "check")), "{e}");
        assert!(!e.contains("eyJ") && !e.contains("hunter2"), "{e}");
        assert_eq!(forge.asked().len(), 1);
    }
}

/// Given a running poller with an App for two repositories, when GitHub stops accepting its
/// token, then a next listing gets another; none of them is on disk.
#[test]
fn an_apps_token_is_shared_and_replaced_when_it_is_refused() {
    let revoked = Arc::new(AtomicUsize::new(0));
    let (gone, count) = (revoked.clone(), AtomicUsize::new(0));
    let now = || {
        let now = std::time::SystemTime::now().duration_since(UNIX_EPOCH);
        now.expect("after 1970").as_secs()
    };
    let forge = Forge::start(move |asked| {
        if asked.path() == TOKENS {
            claims(asked);
            return issued(count.fetch_add(1, Ordering::SeqCst) + 1, now());
        }
        let token = asked.header("authorization").unwrap_or_default();
        let number: usize = token
            .strip_prefix("Bearer ghs_token")
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        if number <= gone.load(Ordering::SeqCst) {
            return dated(
                Reply::json(r#"{"message":"Bad credentials"}"#).status(401),
                now(),
            );
        }
        let empty = match asked.path().split('/').count() {
            4 => Reply::json(
                json!({ "id": 1, "full_name": asked.path().trim_start_matches("/repos/") }),
            ),
            _ => Reply::json("[]"),
        };
        dated(empty, now())
    });
    let place = Place::new("true");
    let mut config = place.config("true");
    config["sources"] = json!([{ "name": "api", "provider": "github", "repos": ["octo/one", "octo/two"],
        "base_url": forge.url(), "sinks": ["log"],
        "app": { "id": "Iv1.a", "installation_id": 42, "private_key_file": fixture("app-pkcs1.key") } }]);
    place.configure(&config);
    let _running = place.start();
    let ok = || place.status()["sources"][0]["ok"] == true;
    place.until("both are listed", ok);
    let posts = |asked: &[Asked]| asked.iter().filter(|a| a.path() == TOKENS).count();
    assert_eq!(posts(&forge.asked()), 1, "one for both, and for all cycles");
    revoked.store(1, Ordering::SeqCst);
    let mut renewed = 0;
    place.until("another was asked for", || {
        renewed += posts(&forge.asked());
        renewed > 0
    });
    let cycle = || place.status()["last_cycle"]["at"].clone();
    let then = cycle();
    place.until("a cycle later all is well again", || {
        cycle() != then && ok()
    });
    assert_eq!(renewed + posts(&forge.asked()), 1);
    for (path, bytes) in place.snapshot() {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(
            !text.contains("ghs_") && !text.contains("eyJ"),
            "{}",
            path.display()
        );
    }
    let log = place.story();
    assert!(
        log.contains("check the installation 42 of the GitHub App Iv1.a"),
        "{log}"
    );
    assert!(!log.contains("ghs_") && !log.contains("eyJ"), "{log}");
}
