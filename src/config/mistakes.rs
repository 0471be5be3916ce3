//! Tests: what a good config gives, and what each mistake in one is answered.

use super::checked::{App, Config, OnClose, Provider, Sink, Submit, TokenFrom};
use super::keys::{self, APP, HTTP, PLACES};
use super::{Env, Overrides, rules};
use crate::engine::access::Backlog;
use crate::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

mod http;

const GOOD: &str = r#"{
  // comments are allowed
  "authorized_users": ["octocat"],
  "sources": [
    { "name": "api", "provider": "github", "repos": ["octo/api"], "token_env": "T", "sinks": ["agent"] },
    { "name": "inbox", "provider": "dir", "path": "inbox", "sinks": ["agent"] }
  ],
  "sinks": {
    "agent": { "type": "exec", "command": ["./on-event", "x"] }
  }
}
"#;

/// Every key there is, on a line of its own.
const FULL: &str = r#"{
  "$schema": "https://example.org/schema.json",
  "state_dir": "state",
  "interval_seconds": 30,
  "max_retries": 5,
  "max_concurrent_deliveries": 2,
  "retry_seconds": 0.5,
  "drain_seconds": 2.5,
  "authorized_users": ["OctoCat", "helper[bot]"],
  "authorized_associations": ["member"],
  "self_marker": "<!-- us -->",
  "label": "auto",
  "backlog": "skip",
  "sources": [
    {
      "name": "api",
      "provider": "github",
      "repos": ["octo/api", "Octo/Web"],
      "base_url": "https://GHE.example.org/api/v3/",
      "issues": true,
      "pull_requests": false,
      "token_file": "./token",
      "ca_file": "./ca.pem",
      "sweep_minutes": 5,
      "sinks": ["agent"],
      "authorized_users": ["sam"],
      "authorized_associations": [],
      "max_retries": 0,
      "label": "bug",
      "backlog": "open",
      "watch_from": "2026-08-05T10:00:00Z",
    },
    { "name": "inbox", "provider": "dir", "path": "./inbox", "sinks": ["agent"] },
  ],
  "sinks": {
    "agent": {
      "type": "exec",
      "command": ["./on-event", "", "a\nb"],
      "workdir": "/srv",
      "timeout_seconds": 2.5,
    },
  },
}
"#;

fn check_with(text: &str, overrides: &Overrides) -> Result<(Config, Vec<String>), Error> {
    let env = Env {
        cwd: PathBuf::from("/w"),
        vars: [("HOME".into(), "/home/o".into())].into(),
    };
    rules::check(Path::new("/etc/i/c.json"), text, overrides, &env)
}

fn check(text: &str) -> Result<(Config, Vec<String>), Error> {
    check_with(text, &Overrides::default())
}

fn message(text: &str) -> String {
    match check(text) {
        Err(e) => {
            assert_eq!(e.exit, crate::exit::Exit::Usage);
            e.to_string()
        }
        Ok(_) => panic!("it was accepted:\n{text}"),
    }
}

/// Changes one piece of a config, which must occur in it exactly once.
fn edit(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from}");
    text.replacen(from, to, 1)
}

#[test]
fn a_small_config_gets_the_documented_defaults() {
    let (config, warnings) = check(GOOD).expect("it is right");
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(config.file, Path::new("/etc/i/c.json"));
    assert_eq!(config.state_dir, Path::new("/home/o/.local/state/idempoll"));
    assert_eq!(config.pidfile, config.state_dir.join("poll.pid"));
    assert_eq!(config.interval, Duration::from_secs(60));
    assert_eq!(config.max_concurrent, 4);
    assert_eq!(config.retry_pause, Duration::from_secs(10));
    assert_eq!(config.drain, Duration::from_secs(10));
    assert_eq!(config.self_marker, "<!-- idempoll -->");
    let policy = &config.sources[0].policy;
    assert_eq!(policy.authorized_users, ["octocat"]);
    assert_eq!((policy.max_retries, policy.backlog), (3, Backlog::Open));
    assert_eq!((&policy.label, policy.watch_from), (&None, None));
    let Provider::GitHub(github) = &config.sources[0].provider else {
        panic!("it is a github source");
    };
    assert_eq!(github.base_url, "https://api.github.com");
    assert!(github.issues && github.pull_requests);
    assert_eq!(github.token, Some(TokenFrom::Env("T".into())));
    assert_eq!(
        (&github.ca_file, github.sweep),
        (&None, Duration::from_secs(3600))
    );
    let Provider::Dir(dir) = &config.sources[1].provider else {
        panic!("it is a dir source");
    };
    assert_eq!(dir.path, Path::new("/etc/i/inbox"));
    let Sink::Exec(exec) = &config.sinks["agent"] else {
        panic!("it is an exec sink");
    };
    assert_eq!(exec.command, ["/etc/i/on-event", "x"]);
    assert_eq!(exec.workdir, Path::new("/etc/i"));
    assert_eq!(exec.timeout, Duration::from_secs(1800));
}

#[test]
fn every_key_is_read_and_a_source_wins_over_the_top_level() {
    let (config, warnings) = check(FULL).expect("it is right");
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(config.state_dir, Path::new("/etc/i/state"));
    assert_eq!(config.interval, Duration::from_secs(30));
    assert_eq!(config.max_concurrent, 2);
    assert_eq!(config.retry_pause, Duration::from_millis(500));
    assert_eq!(config.drain, Duration::from_millis(2500));
    assert_eq!(config.self_marker, "<!-- us -->");
    let [api, inbox] = config.sources.as_slice() else {
        panic!("there are two sources");
    };
    assert_eq!(api.policy.authorized_users, ["sam"]);
    assert!(api.policy.authorized_associations.is_empty());
    assert_eq!(api.policy.max_retries, 0);
    assert_eq!(api.policy.label.as_deref(), Some("bug"));
    assert_eq!(api.policy.backlog, Backlog::Open);
    assert_eq!(
        api.policy.watch_from.map(|t| t.to_string()).as_deref(),
        Some("2026-08-05T10:00:00.000Z")
    );
    assert_eq!(
        inbox.policy.authorized_users,
        ["octocat", "helper[bot]"],
        "logins are kept in lower case"
    );
    assert_eq!(inbox.policy.authorized_associations, ["MEMBER"]);
    assert_eq!(inbox.policy.max_retries, 5);
    assert_eq!(inbox.policy.label.as_deref(), Some("auto"));
    assert_eq!(inbox.policy.backlog, Backlog::Skip);
    let Provider::GitHub(github) = &api.provider else {
        panic!("it is a github source");
    };
    assert_eq!(github.base_url, "https://ghe.example.org/api/v3");
    assert_eq!(
        github.repos,
        [("octo".into(), "api".into()), ("Octo".into(), "Web".into())]
    );
    assert_eq!((github.issues, github.pull_requests), (true, false));
    assert_eq!(
        github.token,
        Some(TokenFrom::File(PathBuf::from("/etc/i/token")))
    );
    assert_eq!(github.ca_file.as_deref(), Some(Path::new("/etc/i/ca.pem")));
    assert_eq!(github.sweep, Duration::from_secs(300));
    let Sink::Exec(exec) = &config.sinks["agent"] else {
        panic!("it is an exec sink");
    };
    assert_eq!(exec.command, ["/etc/i/on-event", "", "a\nb"]);
    assert_eq!(exec.workdir, Path::new("/srv"));
    assert_eq!(exec.timeout, Duration::from_millis(2500));
    for place in PLACES {
        for key in place.keys {
            // The other ways to a token; `an_app_stands_in_for_a_token` has the App's, `http` that sink's,
            // and `a_tmux_sink_gets_what_its_keys_say` those of that one.
            let also = ["path", "token_env", "token_command", "app"].contains(&key.name)
                || APP.has(key.name)
                || place == &HTTP
                || keys::TMUX.has(key.name);
            assert!(
                also || FULL.contains(&format!("\n  \"{}\":", key.name))
                    || FULL.contains(&format!("  \"{}\":", key.name)),
                "{} is not tried here",
                key.name
            );
        }
    }
}

#[test]
fn an_app_stands_in_for_a_token() {
    let app = r#""app": { "id": "Iv1.0a", "installation_id": 42, "private_key_file": "k.pem" }"#;
    let (config, warnings) = check(&edit(GOOD, "\"token_env\": \"T\"", app)).expect("it is right");
    assert_eq!(warnings, Vec::<String>::new());
    let Provider::GitHub(github) = &config.sources[0].provider else {
        panic!("it is a github source");
    };
    let app = App {
        id: "Iv1.0a".into(),
        installation_id: 42,
        private_key_file: "/etc/i/k.pem".into(),
    };
    let from = TokenFrom::App(app);
    assert_eq!(
        from.to_string(),
        "the installation 42 of the GitHub App Iv1.0a"
    );
    assert_eq!(github.token, Some(from));
}

#[test]
fn flags_win_over_the_file() {
    let overrides = Overrides {
        state_dir: Some(PathBuf::from("s")),
        pidfile: Some(PathBuf::from("./p/poll.pid")),
        interval: Some(7),
        max_retries: Some(9),
    };
    let (config, _) = check_with(FULL, &overrides).expect("it is right");
    assert_eq!(config.state_dir, Path::new("/w/s"));
    assert_eq!(config.pidfile, Path::new("/w/p/poll.pid"));
    assert_eq!(config.interval, Duration::from_secs(7));
    assert!(config.sources.iter().all(|s| s.policy.max_retries == 9));
}

/// Given each key of a working config misspelt by a letter, or doubled, when it
/// is checked, then it is refused and the full path of the key is named (C135).
#[test]
fn c135_a_misspelt_or_doubled_key_is_refused_with_its_full_path() {
    let path_of = |key: &str, line: &str| match line.len() - line.trim_start().len() {
        2 => key.to_string(),
        6 if FULL.find(line) < FULL.find("\n  \"sinks\"") => format!("sources[0].{key}"),
        _ => format!("sinks.agent.{key}"),
    };
    let mut tried = 0;
    for (n, line) in FULL.lines().enumerate() {
        let Some((key, _)) = line
            .trim_start()
            .strip_prefix('"')
            .and_then(|l| l.split_once("\":"))
        else {
            continue;
        };
        if matches!(key, "agent" | "$schema") {
            continue;
        }
        tried += 1;
        let replace = |with: String| {
            let lines: Vec<String> = FULL
                .lines()
                .enumerate()
                .map(|(m, l)| if m == n { with.clone() } else { l.to_string() })
                .collect();
            message(&lines.join("\n"))
        };
        let mut wrong = key.to_string();
        wrong.remove(wrong.len() - 2);
        let text = replace(line.replacen(key, &wrong, 1));
        let place = format!("/etc/i/c.json:{}:", n + 1);
        let path = path_of(&wrong, line);
        assert!(
            text.lines().any(|l| l.starts_with(&place)
                && l.contains(&format!(
                    ": {path}: unknown key '{wrong}'; did you mean '{key}'?"
                ))),
            "{path}: {text}"
        );
        // A list or object opened in this line stays open; doubling only the key is enough.
        let text = replace(format!(
            "{}\"{key}\": 1, {}",
            " ".repeat(40),
            line.trim_start()
        ));
        let path = path_of(key, line);
        assert!(
            text.contains(&format!(
                ": {path}: this key was there already, in line {}",
                n + 1
            )),
            "{path}: {text}"
        );
    }
    assert_eq!(tried, 33);
}

/// Given one repository or sink reached by two routes, when the config is
/// checked, then it is refused and both places are named (C137).
#[test]
fn c137_the_same_repository_twice_for_one_sink_is_refused() {
    let with = |more: &str| {
        edit(
            GOOD,
            "\"path\": \"inbox\", \"sinks\": [\"agent\"] }",
            &format!("\"path\": \"inbox\", \"sinks\": [\"agent\"] }},\n    {more}"),
        )
    };
    let github = |repos: &str, rest: &str| {
        with(&format!(
            "{{ \"name\": \"b\", \"provider\": \"github\", \"repos\": {repos}, \"token_env\": \"T\", \"sinks\": [\"agent\"]{rest} }}"
        ))
    };
    for text in [
        github("[\"OCTO/Api\"]", ""),
        github("[\"octo/api\"]", ", \"label\": \"other\""),
        github(
            "[\"octo/api\"]",
            ", \"base_url\": \"https://API.github.com/\"",
        ),
        github("[\"octo/web\", \"octo/api\"]", ""),
    ] {
        let e = message(&text);
        assert!(
            e.starts_with("/etc/i/c.json:7:") && e.contains(": sources[2].repos["),
            "{e}"
        );
        assert!(
            e.ends_with("goes to the sink 'agent' already, from sources[0].repos[0] (line 5)"),
            "{e}"
        );
    }
    let e = message(&github("[\"octo/web\", \"octo/web\"]", ""));
    assert!(
        e.contains("sources[2].repos[1]: the repository 'octo/web' goes to the sink 'agent' already, from sources[2].repos[0]"),
        "{e}"
    );
    let e = message(&with(
        r#"{ "name": "b", "provider": "dir", "path": "./inbox/.", "sinks": ["agent"] }"#,
    ));
    assert!(
        e.contains("sources[2].path: the directory '/etc/i/inbox' goes to the sink 'agent' already, from sources[1].path (line 6)"),
        "{e}"
    );
    // Another tracker, or another sink, is another route and is right.
    check(&github(
        "[\"octo/api\"]",
        ", \"base_url\": \"https://ghe.example.org\"",
    ))
    .expect("right");
    let two = edit(
        &github("[\"octo/api\"]", "").replace(
            "\"sinks\": [\"agent\"] }\n  ]",
            "\"sinks\": [\"two\"] }\n  ]",
        ),
        "\"agent\": {",
        "\"two\": { \"type\": \"exec\", \"command\": [\"true\"] },\n    \"agent\": {",
    );
    check(&two).expect("right");
    let e = message(&edit(
        GOOD,
        "\"path\": \"inbox\", \"sinks\": [\"agent\"]",
        "\"path\": \"inbox\", \"sinks\": [\"agent\", \"agent\"]",
    ));
    assert!(
        e.contains("sources[1].sinks[1]: the sink 'agent' is listed twice"),
        "{e}"
    );
}

#[rustfmt::skip]
const NO_CONFIG: &[(&str, &str)] = &[
    ("", "1:1: the config is empty"),
    ("  \n// only a comment\n", "1:1: the config is empty"),
    ("[]", "1:1: the config must be an object, not a list"),
    ("\n 5", "2:2: the config must be an object, not a number"),
    ("null", "1:1: the config must be an object, not null"),
    ("{", "1:1: this { is never closed"),
    ("{ \"sources\": [", "1:14: this [ is never closed"),
    ("{} x", "1:4: nothing may follow the end of the config"),
    ("{ label: \"x\" }", "1:3: a key in double quotes is expected here"),
    ("{ 'label': \"x\" }", "1:3: text stands in double quotes"),
    ("{ \"label\": 'x' }", "1:12: text stands in double quotes"),
    ("{ \"label\" \"x\" }", "1:11: a colon is expected between a key and its value"),
    ("{ \"label\": \"x\" \"backlog\": 1 }", "1:15: a comma is missing here"),
    ("{ \"sources\": [1 2] }", "1:16: a comma is missing here"),
    ("{ \"label\": x }", "1:12: a value is expected here; text stands in double quotes"),
    ("{ \"label\": True }", "1:12: a value is expected here; text stands in double quotes"),
    ("{ \"label\": }", "1:12: unexpected close brace"),
    ("{ , }", "1:3: a key in double quotes is expected here"),
    ("{ \"a\": 1,, }", "1:10: a key in double quotes is expected here"),
    ("{ \"label\": \"x }", "1:12: unterminated string literal"),
    ("{ \"label\": \"\\x41\" }", "1:13: invalid escape"),
    ("{ \"interval_seconds\": 0x10 }", "1:23: hexadecimal numbers are not allowed"),
    ("{ \"interval_seconds\": +5 }", "1:23: unary plus on numbers is not allowed"),
    ("{ \"interval_seconds\": .5 }", "1:23: leading or trailing decimal points on numbers are not allowed"),
    ("{ \"interval_seconds\": 5. }", "1:23: leading or trailing decimal points on numbers are not allowed"),
    ("{ \"interval_seconds\": NaN }", "1:23: a value is expected here; text stands in double quotes"),
    ("{ \"é\": 1, \"ü\" 2 }", "1:15: a colon is expected between a key and its value"),
    ("{ /* never closed", "1:3: unterminated comment block"),
];

/// What is not even a config: the whole text, and the whole answer.
#[test]
fn text_that_is_no_config_is_answered_with_line_and_column() {
    for (text, answer) in NO_CONFIG {
        assert_eq!(message(text), format!("/etc/i/c.json:{answer}"), "{text}");
    }
    let deep = "[".repeat(100_000);
    assert!(
        message(&deep).contains("nesting depth"),
        "no overflow either"
    );
}

#[rustfmt::skip]
const MISTAKES: &[(&str, &str, &str)] = &[
    // the top level
    ("{\n  //", "{ \"interval_seconds\": 0,\n  //", "1:23: interval_seconds: 0 is not between 1 and 86400"),
    ("{\n  //", "{ \"interval_seconds\": 86401,\n  //", "1:23: interval_seconds: 86401 is not between 1 and 86400"),
    ("{\n  //", "{ \"interval_seconds\": -1,\n  //", "1:23: interval_seconds: -1 is not between 1 and 86400"),
    ("{\n  //", "{ \"interval_seconds\": 1.5,\n  //", "1:23: interval_seconds: 1.5 is not a whole number"),
    ("{\n  //", "{ \"interval_seconds\": 99999999999999999999999999999,\n  //", "1:23: interval_seconds: 999999999999999999999999 is not between 1 and 86400"),
    ("{\n  //", "{ \"interval_seconds\": \"60\",\n  //", "1:23: interval_seconds: must be a whole number, not a text"),
    ("{\n  //", "{ \"interval_seconds\": null,\n  //", "1:23: interval_seconds: must be a whole number, not null; leave the key out instead"),
    ("{\n  //", "{ \"interval_seconds\": [60],\n  //", "1:23: interval_seconds: must be a whole number, not a list"),
    ("{\n  //", "{ \"max_retries\": 101,\n  //", "1:18: max_retries: 101 is not between 0 and 100"),
    ("{\n  //", "{ \"max_retries\": true,\n  //", "1:18: max_retries: must be a whole number, not true"),
    ("{\n  //", "{ \"max_concurrent_deliveries\": 0,\n  //", "1:32: max_concurrent_deliveries: 0 is not between 1 and 64"),
    ("{\n  //", "{ \"max_concurrent_deliveries\": 65,\n  //", "1:32: max_concurrent_deliveries: 65 is not between 1 and 64"),
    ("{\n  //", "{ \"retry_seconds\": -0.1,\n  //", "1:20: retry_seconds: -0.1 is not between 0 and 3600"),
    ("{\n  //", "{ \"drain_seconds\": 3601,\n  //", "1:20: drain_seconds: 3601 is not between 1 and 3600"),
    ("{\n  //", "{ \"drain_seconds\": 0.9,\n  //", "1:20: drain_seconds: 0.9 is not between 1 and 3600"),
    ("{\n  //", "{ \"drain_seconds\": \"10\",\n  //", "1:20: drain_seconds: must be a number, not a text"),
    ("{\n  //", "{ \"retry_seconds\": 1e999,\n  //", "1:20: retry_seconds: 1e999 is not between 0 and 3600"),
    ("{\n  //", "{ \"retry_seconds\": {},\n  //", "1:20: retry_seconds: must be a number, not an object"),
    ("{\n  //", "{ \"self_marker\": \"\",\n  //", "1:18: self_marker: must not be empty"),
    ("{\n  //", "{ \"self_marker\": 1,\n  //", "1:18: self_marker: must be a text, not a number"),
    ("{\n  //", "{ \"label\": null,\n  //", "1:12: label: must be a text, not null; leave the key out instead"),
    ("{\n  //", "{ \"label\": \"  \",\n  //", "1:12: label: must not be empty"),
    ("{\n  //", "{ \"label\": \"a\nb\",\n  //", "1:12: label: has a line break or another control character in it"),
    ("{\n  //", "{ \"label\": \"a\tb\",\n  //", "1:12: label: has a line break or another control character in it"),
    ("{\n  //", "{ \"backlog\": \"all\",\n  //", "1:14: backlog: must be \"open\" or \"skip\", not 'all'"),
    ("{\n  //", "{ \"state_dir\": \"\",\n  //", "1:16: state_dir: must not be empty"),
    ("{\n  //", "{ \"state_dir\": \"~/x\",\n  //", "1:16: state_dir: '~' is not expanded here; write the directory out"),
    ("{\n  //", "{ \"state_dir\": \"a\\u0000b\",\n  //", "1:16: state_dir: must not contain a NUL character"),
    ("{\n  //", "{ \"interval\": 5,\n  //", "1:3: interval: unknown key 'interval'; did you mean 'interval_seconds'?"),
    ("{\n  //", "{ \"webhook\": 5,\n  //", "1:3: webhook: unknown key 'webhook'"),
    ("{\n  //", "{ \"a b\\u001b\": 5,\n  //", "1:3: \"a b\\u{1b}\": unknown key 'a b\\u{1b}'"),
    ("{\n  //", "{ \"repos\": [],\n  //", "1:3: repos: 'repos' belongs to a 'github' source, not to the top level"),
    ("{\n  //", "{ \"token\": \"hunter2\",\n  //", "1:3: token: a secret must not stand in the config; name where it is with token_env, token_file or token_command"),
    ("[\"octocat\"]", "\"octocat\"", "3:23: authorized_users: must be a list of texts, not a text"),
    ("[\"octocat\"]", "[\"octocat\", 5]", "3:35: authorized_users[1]: must be a text, not a number"),
    ("[\"octocat\"]", "[\"@octocat\"]", "3:24: authorized_users[0]: write the login without the @: \"octocat\""),
    ("[\"octocat\"]", "[\"*\"]", "3:24: authorized_users[0]: '*' is not a login, and there are no patterns; to authorize by role use authorized_associations"),
    ("[\"octocat\"]", "[\"octocat \"]", "3:24: authorized_users[0]: 'octocat ' has blanks around it or control characters in it"),
    ("[\"octocat\"]", "[\"\"]", "3:24: authorized_users[0]: must not be empty"),
    ("[\"octocat\"]", "[], \"authorized_associations\": [\"FRIEND\"]", "3:55: authorized_associations[0]: unknown association 'FRIEND'; known: OWNER, MEMBER, COLLABORATOR, CONTRIBUTOR, FIRST_TIME_CONTRIBUTOR, FIRST_TIMER, MANNEQUIN, NONE"),
    // a source
    ("\"name\": \"inbox\", ", "", "6:5: sources[1].name: is missing"),
    ("\"name\": \"inbox\"", "\"name\": \"API\"", "6:15: sources[1].name: the name 'API' is taken by sources[0].name (line 5); names that differ only in letter case are the same"),
    ("\"name\": \"inbox\"", "\"name\": \"../x\"", "6:15: sources[1].name: '../x' is not a name: 1 to 40 letters, digits, '.', '_' or '-', not beginning with '.' or '-'"),
    ("\"name\": \"inbox\"", "\"name\": \"a234567890b234567890c234567890d2345678901\"", "6:15: sources[1].name: 'a234567890b234567890c234567890d2345678901' is not a name: 1 to 40 letters, digits, '.', '_' or '-', not beginning with '.' or '-'"),
    ("\"provider\": \"dir\", ", "", "6:5: sources[1].provider: is missing"),
    ("\"provider\": \"dir\"", "\"provider\": \"gitea\"", "6:36: sources[1].provider: unknown provider 'gitea'; known: dir, github"),
    ("\"provider\": \"dir\"", "\"provider\": null", "6:36: sources[1].provider: must be a text, not null; leave the key out instead"),
    ("\"provider\": \"dir\"", "\"provider\": \"dir\", \"lable\": 1", "6:43: sources[1].lable: unknown key 'lable'; did you mean 'label'?"),
    ("\"provider\": \"dir\"", "\"provider\": \"dir\", \"token_env\": \"T\"", "6:43: sources[1].token_env: 'token_env' belongs to a 'github' source, not to a 'dir' source"),
    ("\"provider\": \"dir\"", "\"provider\": \"dir\", \"interval_seconds\": 5", "6:43: sources[1].interval_seconds: 'interval_seconds' belongs to the top level, not to a 'dir' source"),
    ("\"provider\": \"dir\"", "\"provider\": \"dir\", \"Password\": \"hunter2\"", "6:43: sources[1].Password: a secret must not stand in the config; name where it is with token_env, token_file or token_command"),
    ("\"provider\": \"dir\"", "\"provider\": \"dir\", \"max_retries\": -1", "6:58: sources[1].max_retries: -1 is not between 0 and 100"),
    ("\"provider\": \"dir\"", "\"provider\": \"dir\", \"watch_from\": \"yesterday\"", "6:57: sources[1].watch_from: 'yesterday' is not a time as in 2026-08-05T10:00:00Z"),
    ("\"provider\": \"dir\"", "\"provider\": \"dir\", \"watch_from\": 5", "6:57: sources[1].watch_from: must be a text, not a number"),
    ("\"path\": \"inbox\", ", "", "6:5: sources[1].path: is missing"),
    ("\"path\": \"inbox\", \"sinks\": [\"agent\"]", "\"path\": \"inbox\"", "6:5: sources[1].sinks: is missing"),
    ("\"path\": \"inbox\", \"sinks\": [\"agent\"]", "\"path\": \"inbox\", \"sinks\": []", "6:69: sources[1].sinks: at least one sink is needed"),
    ("\"path\": \"inbox\", \"sinks\": [\"agent\"]", "\"path\": \"inbox\", \"sinks\": \"agent\"", "6:69: sources[1].sinks: must be a list of texts, not a text"),
    ("\"path\": \"inbox\", \"sinks\": [\"agent\"]", "\"path\": \"inbox\", \"sinks\": [\"Agent\"]", "6:70: sources[1].sinks[0]: the sink 'Agent' is not defined under 'sinks'; did you mean 'agent'?"),
    ("{ \"name\": \"inbox\", \"provider\": \"dir\", \"path\": \"inbox\", \"sinks\": [\"agent\"] }", "\"inbox\"", "6:5: sources[1]: must be an object, not a text"),
    // a github source
    ("[\"octo/api\"]", "[]", "5:53: sources[0].repos: at least one repository is needed"),
    ("[\"octo/api\"]", "\"octo/api\"", "5:53: sources[0].repos: must be a list of texts, not a text"),
    ("[\"octo/api\"]", "[\"octo\"]", "5:54: sources[0].repos[0]: 'octo' is not of the form owner/repo"),
    ("[\"octo/api\"]", "[\"octo/api/x\"]", "5:54: sources[0].repos[0]: 'octo/api/x' is not of the form owner/repo"),
    ("[\"octo/api\"]", "[\"https://github.com/octo/api\"]", "5:54: sources[0].repos[0]: 'https://github.com/octo/api' is not of the form owner/repo"),
    ("[\"octo/api\"]", "[\"octo/..\"]", "5:54: sources[0].repos[0]: 'octo/..' is not of the form owner/repo"),
    ("[\"octo/api\"]", "[\"octo/api\"], \"base_url\": \"http://ghe.example.org\"", "5:79: sources[0].base_url: must be https: over http the token could be read on the way"),
    ("[\"octo/api\"]", "[\"octo/api\"], \"base_url\": \"https://sam:hunter2@ghe.example.org\"", "5:79: sources[0].base_url: must not hold a name or password; name where the token is with token_env, token_file or token_command"),
    ("[\"octo/api\"]", "[\"octo/api\"], \"issues\": 1", "5:77: sources[0].issues: must be true or false, not a number"),
    ("[\"octo/api\"]", "[\"octo/api\"], \"issues\": false, \"pull_requests\": false", "5:101: sources[0].pull_requests: with issues and pull_requests both false there is nothing to watch"),
    ("[\"octo/api\"]", "[\"octo/api\"], \"path\": \"x\"", "5:67: sources[0].path: 'path' belongs to a 'dir' source, not to a 'github' source"),
    ("\"token_env\": \"T\"", "\"token_env\": \"T\", \"token_file\": \"t\"", "5:99: sources[0].token_file: only one of token_env, token_file, token_command and app may be given"),
    ("\"token_env\": \"T\"", "\"token_env\": \"ghp_hunter2\"", "5:80: sources[0].token_env: this looks like a token itself; put the token into an environment variable and name the variable here"),
    ("\"token_env\": \"T\"", "\"token_env\": \"$hunter2\"", "5:80: sources[0].token_env: is not the name of an environment variable (letters, digits and '_')"),
    ("\"token_env\": \"T\"", "\"token_command\": []", "5:84: sources[0].token_command: must name a program"),
    ("\"token_env\": \"T\"", "\"token_command\": \"gh auth token\"", "5:84: sources[0].token_command: must be a list of texts, not a text; no shell reads it, so write [\"program\", \"argument\"]"),
    ("\"token_env\": \"T\"", "\"token\": \"hunter2\"", "5:67: sources[0].token: a secret must not stand in the config; name where it is with token_env, token_file or token_command"),
    ("\"token_env\": \"T\"", "\"sweep_minutes\": 4", "5:84: sources[0].sweep_minutes: 4 is not between 5 and 10080"),
    ("\"token_env\": \"T\"", "\"sweep_minutes\": 7.5", "5:84: sources[0].sweep_minutes: 7.5 is not a whole number"),
    ("\"token_env\": \"T\"", "\"ca_file\": [\"ca.pem\"]", "5:78: sources[0].ca_file: must be a text, not a list"),
    ("\"token_env\": \"T\"", "\"ca_file\": \"~/ca.pem\"", "5:78: sources[0].ca_file: '~' is not expanded here; write the directory out"),
    ("\"token_env\": \"T\"", "\"app\": \"Iv1.x\"", "5:74: sources[0].app: must be an object, not a text"),
    ("\"token_env\": \"T\"", "\"app\": { \"id\": \"1\", \"installation_id\": 2 }", "5:74: sources[0].app.private_key_file: is missing"),
    ("\"token_env\": \"T\"", "\"app\": { \"id\": 1, \"installation_id\": 2, \"private_key_file\": \"k\" }", "5:82: sources[0].app.id: must be a text, not a number"),
    ("\"token_env\": \"T\"", "\"app\": { \"id\": \"a b\", \"installation_id\": 2, \"private_key_file\": \"k\" }", "5:82: sources[0].app.id: is neither an App's client id (Iv…) nor its number"),
    ("\"token_env\": \"T\"", "\"app\": { \"id\": \"1\", \"installation_id\": 0, \"private_key_file\": \"k\" }", "5:106: sources[0].app.installation_id: 0 is not between 1 and 9007199254740991"),
    ("\"token_env\": \"T\"", "\"app\": { \"id\": \"1\", \"installation_id\": 2, \"private_key\": \"hunter2\", \"private_key_file\": \"k\" }", "5:109: sources[0].app.private_key: unknown key 'private_key'; did you mean 'private_key_file'?"),
    ("\"token_env\": \"T\"", "\"token_env\": \"T\", \"app\": { \"id\": \"1\", \"installation_id\": 2, \"private_key_file\": \"k\" }", "5:92: sources[0].app: only one of token_env, token_file, token_command and app may be given"),
    ("\"token_env\": \"T\"", "\"installation_id\": 2", "5:67: sources[0].installation_id: 'installation_id' belongs to an app, not to a 'github' source"),
    // a sink
    ("\"type\": \"exec\", ", "", "9:14: sinks.agent.type: is missing"),
    ("\"type\": \"exec\"", "\"type\": \"smtp\"", "9:24: sinks.agent.type: unknown type 'smtp'; known: exec, http, tmux"),
    ("\"type\": \"exec\"", "\"type\": \"exec\", \"url\": \"x\"", "9:32: sinks.agent.url: 'url' belongs to an 'http' sink, not to an 'exec' sink"),
    ("\"type\": \"exec\"", "\"type\": \"exec\", \"timeout\": 5", "9:32: sinks.agent.timeout: unknown key 'timeout'; did you mean 'timeout_seconds'?"),
    ("\"type\": \"exec\"", "\"type\": \"exec\", \"timeout_seconds\": 0", "9:51: sinks.agent.timeout_seconds: 0 is not between 0.1 and 604800"),
    ("\"type\": \"exec\"", "\"type\": \"exec\", \"workdir\": 5", "9:43: sinks.agent.workdir: must be a text, not a number"),
    ("\"type\": \"exec\"", "\"type\": \"exec\", \"provider\": \"dir\"", "9:32: sinks.agent.provider: 'provider' belongs to a source, not to an 'exec' sink"),
    ("\"type\": \"exec\"", "\"type\": \"exec\", \"type\": \"exec\"", "9:32: sinks.agent.type: this key was there already, in line 9"),
    (", \"command\": [\"./on-event\", \"x\"]", "", "9:14: sinks.agent.command: is missing"),
    ("[\"./on-event\", \"x\"]", "[]", "9:43: sinks.agent.command: must name a program"),
    ("[\"./on-event\", \"x\"]", "[\"\"]", "9:44: sinks.agent.command[0]: must not be empty"),
    ("[\"./on-event\", \"x\"]", "[\"~/on-event\"]", "9:44: sinks.agent.command[0]: '~' is not expanded here; write the directory out"),
    ("[\"./on-event\", \"x\"]", "[\"x\", 5]", "9:49: sinks.agent.command[1]: must be a text, not a number"),
    ("[\"./on-event\", \"x\"]", "\"./on-event x\"", "9:43: sinks.agent.command: must be a list of texts, not a text; no shell reads it, so write [\"program\", \"argument\"]"),
    ("\"agent\": {", "\"AGENT\": { \"type\": \"exec\", \"command\": [\"x\"] },\n    \"agent\": {", "10:5: sinks.agent: the name 'agent' is taken by sinks.AGENT (line 9); names that differ only in letter case are the same"),
    ("\"agent\": {", "\"a b\": { \"type\": \"exec\", \"command\": [\"x\"] },\n    \"agent\": {", "9:5: sinks.\"a b\": 'a b' is not a name: 1 to 40 letters, digits, '.', '_' or '-', not beginning with '.' or '-'"),
];

/// One edit of a right config, and the whole answer.
#[test]
fn each_mistake_is_answered_by_name() {
    for (from, to, answer) in MISTAKES {
        let e = message(&edit(GOOD, from, to));
        assert_eq!(e, format!("/etc/i/c.json:{answer}"), "{to}");
        assert!(!e.contains("hunter2"), "a secret was repeated: {e}");
    }
}

#[test]
fn a_missing_part_of_the_config_is_named() {
    assert_eq!(
        message("{}"),
        "2 things are wrong in the config\n\
         /etc/i/c.json:1:1: sinks: is missing\n\
         /etc/i/c.json:1:1: sources: is missing"
    );
    assert_eq!(
        message("{ \"sources\": [], \"sinks\": {} }"),
        "/etc/i/c.json:1:14: sources: at least one source is needed"
    );
    let e = rules::check(
        Path::new("/c.json"),
        GOOD,
        &Overrides::default(),
        &Env::default(),
    )
    .expect_err("there is no place for state");
    assert!(e.to_string().contains("nor HOME says where"), "{e}");
}

#[test]
fn everything_wrong_is_reported_at_once_in_the_order_of_the_file() {
    let text = GOOD
        .replace("[\"octocat\"]", "[5]")
        .replace("\"octo/api\"", "\"octo\"")
        .replace("\"path\"", "\"pth\"")
        .replace("\"exec\"", "\"smtp\"");
    assert_eq!(
        message(&text),
        "5 things are wrong in the config\n\
         /etc/i/c.json:3:24: authorized_users[0]: must be a text, not a number\n\
         /etc/i/c.json:5:54: sources[0].repos[0]: 'octo' is not of the form owner/repo\n\
         /etc/i/c.json:6:5: sources[1].path: is missing\n\
         /etc/i/c.json:6:43: sources[1].pth: unknown key 'pth'; did you mean 'path'?\n\
         /etc/i/c.json:9:24: sinks.agent.type: unknown type 'smtp'; known: exec, http, tmux"
    );
}

#[rustfmt::skip]
const DOUBTFUL: &[(&str, &str, &str)] = &[
    ("[\"octocat\"]", "[]", "nobody is authorized in sources 'api', 'inbox': authorized_users and authorized_associations are empty, so nothing will be delivered"),
    ("\"provider\": \"dir\"", "\"provider\": \"dir\", \"authorized_users\": []", "nobody is authorized in source 'inbox': authorized_users and authorized_associations are empty, so nothing will be delivered"),
    ("\"provider\": \"dir\"", "\"provider\": \"dir\", \"authorized_associations\": [\"none\"]", "source 'inbox' authorizes everybody: NONE in authorized_associations stands for people without any role"),
    ("\"token_env\": \"T\", ", "", "source 'api' has no token: GitHub answers only 60 requests an hour without one"),
    ("[\"octo/api\"]", "[\"octo/api\"], \"base_url\": \"https://ghe.example.org\"", "source 'api': the API of an Enterprise Server is https://ghe.example.org/api/v3"),
    ("\"agent\": {", "\"spare\": { \"type\": \"exec\", \"command\": [\"x\"] },\n \"agent\": {", "no source uses sink 'spare'"),
];

/// Given a config that is allowed and most likely not meant, when it is
/// checked, then it passes with a warning (R7.1 for the first).
#[test]
fn r7_1_an_empty_list_of_the_authorized_is_warned_about() {
    for (from, to, warning) in DOUBTFUL {
        let (_, warnings) = check(&edit(GOOD, from, to)).expect("it is allowed");
        assert_eq!(warnings, [*warning]);
    }
}

const TMUX: &str = r#"{
  "state_dir": "/s",
  "authorized_users": ["octocat"],
  "sources": [{ "name": "inbox", "provider": "dir", "path": "inbox", "sinks": ["agent"] }],
  "sinks": { "agent": { "type": "tmux", "command": ["./agent"] } }
}
"#;

/// Given a small `tmux` sink, and one with every key; when they are read; then the defaults are the
/// documented ones, and every key has its effect.
#[test]
fn a_tmux_sink_gets_what_its_keys_say() {
    let sink = |text: &str| {
        let (config, _) = check(text).expect("it is right");
        match &config.sinks["agent"] {
            Sink::Tmux(tmux) => tmux.clone(),
            other => panic!("{other:?}"),
        }
    };
    let small = sink(TMUX);
    assert_eq!(small.command, ["/etc/i/agent"]);
    assert_eq!(
        (small.workdir.as_str(), small.create_workdir),
        ("/etc/i", false)
    );
    assert_eq!(small.socket, Path::new("/s/tmux/agent.sock"));
    assert_eq!(
        (small.ready_text, small.ready),
        (None, Duration::from_secs(3))
    );
    assert_eq!((small.idle_text, small.template_file), (None, None));
    assert_eq!(small.enter, Duration::from_secs(1));
    assert_eq!(
        (small.submit, small.on_close),
        (Submit::Receipt, OnClose::End)
    );
    assert_eq!((small.max_sessions, small.quiet), (8, Duration::ZERO));

    let full = sink(&edit(
        TMUX,
        "[\"./agent\"]",
        "[\"agent\", \"{prompt_file}\"], \"workdir\": \"w/{owner}/{repo}\", \"create_workdir\": true, \"socket\": \"s\",
          \"ready_text\": \"ok\", \"ready_seconds\": 7, \"idle_text\": \">\", \"template_file\": \"t\", \"enter_seconds\": 0,
          \"submit_check\": [\"./taken\"], \"on_close\": \"tell\", \"max_sessions\": 2, \"quiet_seconds\": 1.5",
    ));
    assert_eq!(full.command, ["agent", "{prompt_file}"]);
    assert_eq!(
        (full.workdir.as_str(), full.create_workdir),
        ("/etc/i/w/{owner}/{repo}", true)
    );
    assert_eq!(full.socket, Path::new("/etc/i/s"));
    assert_eq!(
        (full.ready_text.as_deref(), full.ready),
        (Some("ok"), Duration::from_secs(7))
    );
    assert_eq!(full.idle_text.as_deref(), Some(">"));
    assert_eq!(full.template_file.as_deref(), Some(Path::new("/etc/i/t")));
    assert_eq!(full.enter, Duration::ZERO);
    assert_eq!(full.submit, Submit::Command(vec!["/etc/i/taken".into()]));
    assert_eq!(full.on_close, OnClose::Tell);
    assert_eq!(
        (full.max_sessions, full.quiet),
        (2, Duration::from_millis(1500))
    );
}

#[test]
fn a_mistake_in_a_tmux_sink_is_named() {
    let long = "x".repeat(100);
    let same = "\"command\": [\"a\"], \"socket\": \"/s/tmux/AGENT2.sock\" }, \"AGENT2\": { \"type\": \"tmux\", \"command\": [\"a\"]";
    for (keys, wanted) in [
        (
            "\"command\": [\"a\"], \"socket\": \"LONG\"",
            "sinks.agent.socket: the socket /etc/i/LONG has a path of 107 bytes, and 100 are the most",
        ),
        (
            same,
            "sinks.AGENT2: the sink 'agent' has the same socket; each needs a server of its own",
        ),
        (
            "\"command\": [\"a\"], \"workdir\": \"/x/{title}\"",
            "sinks.agent.workdir: unknown {title}; known: {source}, {owner}, {repo}, {number}",
        ),
        (
            "\"command\": [\"a\"], \"on_close\": \"kill\"",
            "sinks.agent.on_close: must be \"end\", \"keep\" or \"tell\", not 'kill'",
        ),
        (
            "\"command\": [\"a\"], \"submit_check\": \"yes\"",
            "sinks.agent.submit_check: must be \"receipt\", \"none\" or a command as a list of texts",
        ),
        (
            "\"command\": [\"a\"], \"max_sessions\": 0",
            "sinks.agent.max_sessions: 0 is not between 1 and 1000",
        ),
        (
            "\"command\": [\"a\"], \"ready\": 1",
            "sinks.agent.ready: unknown key 'ready'",
        ),
        (
            "\"command\": [\"a\"], \"timeout_seconds\": 1",
            "sinks.agent.timeout_seconds: 'timeout_seconds' belongs to an 'exec' sink, not to a 'tmux' sink",
        ),
        ("\"workdir\": \"/x\"", "sinks.agent.command: is missing"),
    ] {
        let text = edit(
            TMUX,
            "\"command\": [\"./agent\"]",
            &keys.replace("LONG", &long),
        );
        let said = message(&text);
        assert!(
            said.contains(&wanted.replace("LONG", &long)),
            "{wanted}\nin {said}"
        );
    }
    let text = edit(TMUX, "\"/s\"", &format!("\"/{long}\""));
    let said = message(&text);
    assert!(
        said.contains("sinks.agent: the socket /xxx")
            && said.contains("name a shorter one as 'socket'"),
        "{said}"
    );
}
