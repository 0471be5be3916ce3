//! An `http` sink: what a good one gives, and what each mistake in one is answered.

use super::{check, edit, message};
use crate::config::checked::{Format, Http, SecretFrom, Sink};
use crate::config::keys::HTTP;
use std::path::PathBuf;
use std::time::Duration;

const GOOD: &str = r#"{
  "authorized_users": ["octocat"],
  "sources": [ { "name": "api", "provider": "github", "repos": ["octo/api"], "token_env": "T", "sinks": ["hook"] } ],
  "sinks": {
    "hook": { "type": "http", "url": "HTTPS://Hooks.Example.org:8443?key=x/y" }
  }
}
"#;

/// Every key there is.
const FULL: &str = r#"{ "type": "http", "url": "http://[2001:db8::1]/hook", "format": "github", "secret_file": "s",
      "headers": { "X-Team": "blue bird" }, "header_files": { "Authorization": "./auth" },
      "timeout_seconds": 2.5, "ca_file": "ca.pem" }"#;

const SMALL: &str = r#"{ "type": "http", "url": "HTTPS://Hooks.Example.org:8443?key=x/y" }"#;

#[test]
fn an_http_sink_is_read_with_all_its_keys_and_with_the_documented_defaults() {
    let (config, warnings) = check(GOOD).expect("it is right");
    assert_eq!(warnings, Vec::<String>::new());
    let small = Http {
        url: "https://hooks.example.org:8443/?key=x/y".into(),
        format: Format::Idempoll,
        secret: None,
        headers: vec![],
        header_files: vec![],
        timeout: Duration::from_secs(30),
        ca_file: None,
    };
    assert_eq!(config.sinks["hook"], Sink::Http(small.clone()));
    assert!(config.sources[0].webhook_sinks.is_empty());

    let (config, _) = check(&edit(GOOD, SMALL, FULL)).expect("it is right");
    let full = Http {
        url: "http://[2001:db8::1]/hook".into(),
        format: Format::GitHub,
        secret: Some(SecretFrom::File("/etc/i/s".into())),
        headers: vec![("X-Team".into(), "blue bird".into())],
        header_files: vec![("Authorization".into(), PathBuf::from("/etc/i/auth"))],
        timeout: Duration::from_millis(2500),
        ca_file: Some("/etc/i/ca.pem".into()),
    };
    assert_eq!(config.sinks["hook"], Sink::Http(full));
    assert_eq!(config.sources[0].webhook_sinks, ["hook"]);
    for key in HTTP.keys.iter().filter(|key| key.name != "secret_env") {
        assert!(FULL.contains(&format!("\"{}\":", key.name)), "{}", key.name);
    }
    let from_env = FULL.replace("\"secret_file\": \"s\"", "\"secret_env\": \"HOOK_SECRET\"");
    let (config, _) = check(&edit(GOOD, SMALL, &from_env)).expect("it is right");
    let Sink::Http(http) = &config.sinks["hook"] else {
        panic!("it is an http sink");
    };
    assert_eq!(http.secret, Some(SecretFrom::Env("HOOK_SECRET".into())));
}

#[rustfmt::skip]
const MISTAKES: &[(&str, &str, &str)] = &[
    (r#""url": "http://[2001:db8::1]/hook", "#, "", "sinks.hook.url: is missing"),
    ("http://[2001:db8::1]/hook", "hooks.example.org", "sinks.hook.url: must begin with http:// or https://"),
    ("http://[2001:db8::1]/hook", "ftp://hooks.example.org", "sinks.hook.url: must begin with http:// or https://"),
    ("http://[2001:db8::1]/hook", "http://", "sinks.hook.url: must name a host after ://"),
    ("http://[2001:db8::1]/hook", "http://me:hunter2@x.org/", "sinks.hook.url: must not hold a name or password; put the value of Authorization into a file and name that under header_files"),
    ("http://[2001:db8::1]/hook", "http://x.org/#top", "sinks.hook.url: must end before any #"),
    ("http://[2001:db8::1]/hook", "http://x.org/a b", "sinks.hook.url: has characters in it that a URL cannot have"),
    ("http://[2001:db8::1]/hook", "http://x.org:0/", "sinks.hook.url: has a port that is not a number from 1 to 65535"),
    ("http://[2001:db8::1]/hook", "http://[2001:db8::1]:99999/", "sinks.hook.url: has a port that is not a number from 1 to 65535"),
    (r#""format": "github""#, r#""format": "gitlab""#, "sinks.hook.format: must be \"idempoll\" or \"github\", not 'gitlab'"),
    (r#""secret_file": "s""#, r#""secret": "hunter2""#, "sinks.hook.secret: a secret must not stand in the config; name where it is with secret_file or secret_env"),
    (r#""secret_file": "s""#, r#""secret_file": "s", "secret_env": "S""#, "sinks.hook.secret_env: only one of secret_file and secret_env may be given"),
    (r#""secret_file": "s""#, r#""secret_env": "9x""#, "sinks.hook.secret_env: is not the name of an environment variable"),
    (r#""X-Team": "blue bird""#, r#""X-Team": "blau\u00e4""#, "sinks.hook.headers.X-Team: has characters in it that a header field cannot have"),
    (r#""X-Team": "blue bird""#, r#""X Team": "x""#, "sinks.hook.headers.\"X Team\": is not the name of a header field"),
    (r#""X-Team": "blue bird""#, r#""Authorization": "Basic aHVudGVyMg==""#, "sinks.hook.headers.Authorization: a secret must not stand in the config; put the value into a file"),
    (r#""X-Team": "blue bird""#, r#""X-Key": "ghp_hunter2""#, "sinks.hook.headers.X-Key: a secret must not stand in the config; put the value into a file"),
    (r#""X-Team": "blue bird""#, r#""authorization": "x""#, "sinks.hook.headers.authorization: a secret must not stand in the config"),
    (r#""X-Team": "blue bird""#, r#""Content-Type": "x""#, "sinks.hook.headers.Content-Type: this header field is set by idempoll itself"),
    (r#""X-Team": "blue bird""#, r#""x-github-event": "x""#, "sinks.hook.headers.x-github-event: this header field is set by idempoll itself"),
    (r#""Authorization": "./auth""#, r#""X-TEAM": "./auth""#, "sinks.hook.header_files.X-TEAM: this header field was given already"),
    (r#""Authorization": "./auth""#, r#""Authorization": 5"#, "sinks.hook.header_files.Authorization: must be a text, not a number"),
    (r#""timeout_seconds": 2.5"#, r#""timeout_seconds": 0"#, "sinks.hook.timeout_seconds: 0 is not between 0.1 and 3600"),
    (r#""ca_file": "ca.pem""#, r#""workdir": "x""#, "sinks.hook.workdir: 'workdir' belongs to an 'exec' sink, not to an 'http' sink"),
    (r#""ca_file": "ca.pem""#, r#""ur": "x""#, "sinks.hook.ur: unknown key 'ur'; did you mean 'url'?"),
];

/// Given an `http` sink with one mistake in it, when it is checked, then the mistake is named with its key, and no
/// secret is repeated (C135, R7.4).
#[test]
fn c135_a_mistake_in_an_http_sink_is_named() {
    for (from, to, why) in MISTAKES {
        let e = message(&edit(GOOD, SMALL, &edit(FULL, from, to)));
        assert!(e.contains(why), "{why}\n{e}");
        assert!(!e.contains("hunter2") && !e.contains("aHVudGVyMg"), "{e}");
    }
}

#[test]
fn webhooks_need_a_source_of_githubs() {
    let github = r#""provider": "github", "repos": ["octo/api"], "token_env": "T""#;
    let dir = edit(GOOD, github, r#""provider": "dir", "path": "in""#);
    check(&dir).expect("the payload of every sink is for all");
    let e = message(&edit(&dir, SMALL, FULL));
    assert!(
        e.contains("sources[0]: the sink 'hook' has the format 'github'"),
        "{e}"
    );
}
