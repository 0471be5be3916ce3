//! `idempoll check --online`: what a token can see, what is missing, what polling costs.

use crate::world::forge::{Asked, Forge, Reply};
use crate::world::program::{Answer, Place};
use crate::world::tls::fixture;
use serde_json::{Value, json};

/// A tracker where all is well, but for what `odd` answers.
fn forge(odd: impl Fn(&Asked) -> Option<Reply> + Send + 'static) -> Forge {
    Forge::start(move |asked| {
        if let Some(reply) = odd(asked) {
            return reply;
        }
        let core = json!({ "limit": 5000, "remaining": 4990, "reset": 1_785_927_600 });
        match asked
            .path()
            .split('/')
            .skip(1)
            .collect::<Vec<_>>()
            .as_slice()
        {
            ["rate_limit"] => Reply::json(json!({ "resources": { "core": core } })),
            ["user"] => Reply::json(r#"{"login":"octocat"}"#)
                .header("X-OAuth-Scopes", "repo, read:org")
                .header(
                    "GitHub-Authentication-Token-Expiration",
                    "2026-12-01 10:00:00 UTC",
                ),
            ["repos", owner, repo] => Reply::json(json!({ "full_name": format!("{owner}/{repo}"),
                "private": true, "archived": false, "has_issues": true, "open_issues_count": 240,
                "permissions": { "admin": false, "push": true, "pull": true } })),
            ["repos", _, _, "labels", _] => Reply::json(r#"{"name":"auto"}"#),
            ["repos", _, _, "issues" | "pulls"] => Reply::json("[]"),
            _ => message(404, "Not Found"),
        }
    })
}

fn message(status: u16, text: &str) -> Reply {
    Reply::json(json!({ "message": text })).status(status)
}

/// A place that would poll `forge`, with more keys for the source.
fn place(forge: &Forge, more: &Value) -> Place {
    let place = Place::new("true");
    let mut config = place.config("true");
    let mut source = json!({ "name": "api", "provider": "github", "repos": ["octo/api"],
        "base_url": forge.url(), "token_env": "TOKEN", "sinks": ["log"] });
    for (key, value) in more.as_object().expect("an object") {
        source[key] = value.clone();
        if value.is_null() {
            source.as_object_mut().expect("an object").remove(key);
        }
    }
    config["sources"] = json!([source]);
    config["interval_seconds"] = json!(60);
    place.configure(&config);
    place
}

fn check(place: &Place, args: &[&str]) -> Answer {
    let mut command = place.command(&[&["check"], args].concat());
    command.env("TOKEN", "t0ken-example");
    let answer = Answer::of(command.output().expect("the program starts"));
    assert!(!answer.stdout.contains("t0ken") && !answer.stderr.contains("t0ken"));
    answer
}

fn targets(forge: &Forge) -> Vec<String> {
    forge
        .asked()
        .into_iter()
        .map(|asked| asked.target)
        .collect()
}

/// The lines of `answer` about what was found online, and warnings and problems.
fn found(answer: &Answer) -> Vec<String> {
    let lines = answer.stdout.lines().map(str::trim_end);
    let about = ["online ", "warning: source", "problem: "];
    let lines = lines.filter(|line| about.iter().any(|word| line.starts_with(word)));
    lines.map(str::to_string).collect()
}

/// Given a token that may do what is needed, when the config is checked online, then all of it is
/// said, with the cost as arithmetic, and nothing is changed; otherwise no tracker is asked.
#[test]
fn what_a_token_can_see_and_what_polling_costs_is_said() {
    let forge = forge(|_| None);
    let place = place(
        &forge,
        &json!({ "repos": ["octo/api", "octo/web"], "label": "auto/é" }),
    );
    check(&place, &[]).expect(0);
    assert_eq!(targets(&forge), Vec::<String>::new());
    let answer = check(&place, &["--online"]).expect(0);
    assert_eq!(
        found(&answer),
        [
            "online   api: octocat, by a token with the scopes repo, read:org; it expires 2026-12-01 10:00:00 UTC",
            "online   api: limit: 5000 requests an hour, 4990 left until 2026-08-05T11:00:00.000Z",
            "online   api: octo/api: private, with the right to push; issues, pull requests and the label can be read; 240 open",
            "online   api: octo/web: private, with the right to push; issues, pull requests and the label can be read; 240 open",
            "online   api: an idle cycle: 2 repositories x 3 requests = 6 requests; one every 60 s makes 360 an hour, all answered \"not modified\", which counts nothing",
            "online   api: a sweep, every 60 min: 2 repositories x (4 requests + 1 for each 100 open items)",
        ]
    );
    let asked = targets(&forge);
    assert_eq!(asked.len(), 10, "{asked:?}");
    assert_eq!(asked[5], "/repos/octo/api/labels/auto%2F%C3%A9");
    assert!(!place.state().exists());
}

/// Given what a token cannot see, and repositories that are not what the config says, when it is
/// checked online, then each is named with what is missing and what to do, and the others go on.
#[test]
fn what_is_missing_is_said_with_what_to_do() {
    type Odd = fn(&Asked) -> Option<Reply>;
    let cases: [(Odd, i32, &[&str]); 9] = [
        (
            |asked| (asked.path() == "/repos/octo/api").then(|| message(404, "Not Found")),
            1,
            &[
                "octo/api: GET /repos/octo/api answered 404: Not Found; check the repository's name, and whether it can be read with the environment variable TOKEN; for a private repository it needs the scope repo",
            ],
        ),
        (
            |asked| match asked.path() {
                "/user" => Some(Reply::json(r#"{"login":"octocat"}"#)),
                "/repos/octo/api" => Some(message(404, "Not Found")),
                _ => None,
            },
            1,
            &[
                "it must be one for octo, with this repository among those selected",
                "octocat, by a fine-grained token",
            ],
        ),
        (
            |asked| {
                asked.path().ends_with("/octo/api/issues").then(|| {
                    message(403, "Resource not accessible by personal access token")
                        .header("X-Accepted-GitHub-Permissions", "issues=read")
                })
            },
            1,
            &[
                "problem: source 'api': octo/api: GET /repos/octo/api/issues answered 403: Resource not accessible by personal access token; what may be read depends on the environment variable TOKEN, and this needs issues=read",
                "; pull requests and the label can be read",
            ],
        ),
        (
            |asked| {
                (asked.path() == "/repos/octo/api").then(|| {
                    message(403, "Resource protected by organization SAML enforcement").header(
                        "X-GitHub-SSO",
                        "required; url=https://github.test/orgs/octo/sso?x=1",
                    )
                })
            },
            1,
            &["authorize the token for the organization at https://github.test/orgs/octo/sso?x=1"],
        ),
        (
            |asked| {
                (asked.path() == "/repos/octo/api").then(|| {
                    Reply::json(
                        json!({ "full_name": "octo/api2", "archived": true, "private": false }),
                    )
                })
            },
            0,
            &[
                "it is called octo/api2 now",
                "it is archived",
                "octo/api: public;",
            ],
        ),
        (
            |asked| {
                asked
                    .path()
                    .contains("/api/labels/")
                    .then(|| message(404, "Not Found"))
            },
            0,
            &[
                "warning: source 'api': octo/api: there is no label 'auto': nothing is delivered until there is",
            ],
        ),
        (
            |asked| match asked.path() {
                "/repos/octo/api" => Some(Reply::json(
                    r#"{"full_name":"octo/api","has_issues":false}"#,
                )),
                "/repos/octo/api/issues" => Some(message(410, "Issues are disabled for this repo")),
                _ => None,
            },
            1,
            &["octo/api: issues are disabled there"],
        ),
        (
            |asked| {
                asked
                    .path()
                    .ends_with("/octo/api/pulls")
                    .then(|| Reply::json("<html>login</html>"))
            },
            1,
            &["octo/api: what answers for pull requests is no list"],
        ),
        (
            |asked| match asked.path() {
                "/rate_limit" => Some(message(404, "Rate limiting is not enabled.")),
                "/user" => Some(message(403, "Resource not accessible by integration")),
                _ => None,
            },
            0,
            &["a token that belongs to no user", "limit: none"],
        ),
    ];
    for (odd, code, wanted) in cases {
        let forge = forge(odd);
        let place = place(
            &forge,
            &json!({ "repos": ["octo/api", "octo/web"], "label": "auto" }),
        );
        let answer = check(&place, &["--online"]).expect(code);
        let found = found(&answer).join("\n");
        for part in wanted {
            assert!(found.contains(part), "{part}\n{found}");
        }
        assert!(
            found.contains("octo/web: private"),
            "the other one is looked at\n{found}"
        );
    }
}

/// Given a tracker that cannot be asked at all (no connection, no such token, a limit that is
/// used up, or a cool-down that a poller was given, C010), when it is checked, then that is
/// said once, and nothing more is asked.
#[test]
fn c010_where_nothing_may_be_asked_nothing_is() {
    let refused = forge(|_| Some(message(401, "Bad credentials")));
    let answer = check(&place(&refused, &json!({})), &["--online"]).expect(1);
    assert_eq!(
        found(&answer),
        [
            "problem: source 'api': GET /rate_limit answered 401: Bad credentials; check the environment variable TOKEN"
        ]
    );
    assert_eq!(refused.asked().len(), 1);

    let limited = forge(|asked| {
        (asked.path() == "/repos/octo/api").then(|| {
            message(429, "You have exceeded a secondary rate limit").header("Retry-After", 120)
        })
    });
    let two = json!({ "repos": ["octo/api", "octo/web"] });
    let answer = check(&place(&limited, &two), &["--online"]).expect(1);
    assert!(
        found(&answer)
            .join("\n")
            .contains("rate limited, waiting until")
    );
    assert_eq!(limited.asked().len(), 3);

    let spared = forge(|_| None);
    let place_of = place(&spared, &json!({}));
    let now = std::time::SystemTime::now().into();
    let at = |seconds| {
        idempoll::engine::time::Time::plus(now, std::time::Duration::from_secs(seconds)).to_string()
    };
    let token = idempoll::net::Secret::new("t0ken-example").fingerprint();
    let host = json!({ "version": 1, "host": "127.0.0.1", "token": token, "not_before": at(600),
        "asked_to_wait_at": at(0) });
    std::fs::create_dir_all(place_of.path("state/hosts")).expect("a directory");
    place_of.write(
        &format!("state/hosts/127.0.0.1~{token}.json"),
        &host.to_string(),
    );
    let answer = check(&place_of, &["--online"]).expect(1);
    let said = found(&answer).join("\n");
    assert!(
        said.contains("rate limited: 127.0.0.1 is not to be asked before"),
        "{said}"
    );
    assert!(spared.asked().is_empty());

    drop(spared);
    std::fs::remove_dir_all(place_of.path("state/hosts")).expect("it is there");
    let answer = check(&place_of, &["--online"]).expect(1);
    assert_eq!(
        found(&answer),
        ["problem: source 'api': GET /rate_limit at 127.0.0.1: connection refused"]
    );
}

/// Given no token, and an App, when they are checked online, then who asks is said, the App
/// says who it is once, and without a token what counts is said to count.
#[test]
fn an_app_and_nobody_are_told_apart() {
    let nobody = forge(|asked| {
        let core = json!({ "limit": 60, "remaining": 60, "reset": 1_785_927_600 });
        (asked.path() == "/rate_limit")
            .then(|| Reply::json(json!({ "resources": { "core": core } })))
    });
    let keys = json!({ "token_env": null, "repos": ["octo/api", "octo/web"] });
    let said = found(&check(&place(&nobody, &keys), &["--online"]).expect(0)).join("\n");
    for part in [
        "nobody: there is no token, so only what is public is seen",
        "makes 360 an hour, each of which counts, since there is no token",
        "warning: source 'api': 360 requests an hour are more than it allows without a token",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    assert!(!targets(&nobody).contains(&"/user".to_string()));

    let app = forge(|asked| {
        asked.path().starts_with("/app/").then(|| {
            Reply::json(r#"{"token":"ghs_t0ken","expires_at":"2126-01-01T00:00:00Z"}"#).status(201)
        })
    });
    let keys = json!({ "token_env": null, "issues": true, "pull_requests": false,
        "app": { "id": "Iv1.a", "installation_id": 42, "private_key_file": fixture("app-pkcs1.key") } });
    let said = found(&check(&place(&app, &keys), &["--online"]).expect(0)).join("\n");
    for part in [
        "online   api: the installation 42 of the GitHub App Iv1.a\n",
        "octo/api: private, with the right to push; issues can be read; 240 open",
        "1 repository x 1 request = 1 request; one every 60 s makes 60 an hour",
        "1 repository x (2 requests + 1 for each 100 open items)",
        "warning: source 'api': others can read the private key",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    let asked = targets(&app);
    assert_eq!(asked[0], "/app/installations/42/access_tokens");
    assert!(
        !asked.contains(&"/user".to_string()) && asked.len() == 4,
        "{asked:?}"
    );
}
