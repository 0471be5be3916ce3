//! Getting at a tracker: certificates, proxies, connections, tokens; on the real binary.

use crate::world::forge::{Asked, Forge, Reply};
use crate::world::program::{Answer, Place};
use crate::world::tls::{self, Proxy, Server, fixture};
use idempoll::net::{Client, Limits, Redirects};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// A forge whose repositories have one open issue each, number 7.
fn forge() -> Forge {
    Forge::start(answer)
}

fn answer(asked: &Asked) -> Reply {
    let path = asked.path().trim_start_matches("/api/v3");
    let reply = match path.split('/').skip(4).collect::<Vec<_>>().as_slice() {
        [] => Reply::json(json!({ "id": 1, "full_name": path.trim_start_matches("/repos/") })),
        ["issues"] => Reply::json(
            json!([{ "id": 1, "number": 7, "title": "Login fails", "state": "open",
            "user": { "login": "octocat", "type": "User" }, "labels": [],
            "created_at": "2024-01-01T00:00:00Z", "updated_at": "2024-01-01T00:00:00Z" }]),
        ),
        _ => Reply::json("[]"),
    };
    let now = httpdate::fmt_http_date(std::time::SystemTime::now());
    reply.header("Date", now)
}

/// A place that polls `repos` at `base_url`, with more keys for the source.
fn place(base_url: &str, more: &Value) -> Place {
    let place = Place::new("{ flock 1; cat; echo; } >> payloads.log");
    let mut config = place.config("{ flock 1; cat; echo; } >> payloads.log");
    let mut source = json!({ "name": "api", "provider": "github", "repos": ["octo/widgets"],
        "base_url": base_url, "pull_requests": false, "sinks": ["log"] });
    for (key, value) in more.as_object().expect("an object") {
        source[key] = value.clone();
    }
    config["sources"] = json!([source]);
    place.configure(&config);
    place
}

/// One cycle with these variables and no others that matter here.
fn once(place: &Place, vars: &[(&str, &str)]) -> Answer {
    run(place, &["start", "--once"], vars)
}

fn run(place: &Place, args: &[&str], vars: &[(&str, &str)]) -> Answer {
    Answer::of(
        command(place, args, vars)
            .output()
            .expect("the program starts"),
    )
}

fn command(place: &Place, args: &[&str], vars: &[(&str, &str)]) -> Command {
    let mut command = place.command(args);
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command
        .env_remove("SSL_CERT_FILE")
        .envs(vars.iter().copied());
    command
}

/// The reasons the event log has for failed listings.
fn reasons(place: &Place) -> String {
    let entries = place.entries("poll.source_error");
    let reasons = entries
        .iter()
        .map(|e| e["reason"].as_str().unwrap_or_default().to_string());
    reasons.collect::<Vec<_>>().join("\n")
}

/// Given a tracker whose certificate a private authority signed (C081), when that is named by
/// `ca_file` or by `SSL_CERT_FILE`, then it is polled; when not, the error names the
/// issuer and the remedy, and nothing is concluded from it.
#[test]
fn c081_an_authority_of_ones_own_is_named_or_missed_by_name() {
    let forge = forge();
    let front = tls::before(&forge);
    let url = format!("https://{}/api/v3", front.address);
    let ca = fixture("ca.pem").display().to_string();
    let with_key = place(&url, &json!({ "ca_file": ca }));
    once(&with_key, &[]).expect(0);
    assert_eq!(with_key.payloads().len(), 1);

    let with_variable = place(&url, &json!({}));
    once(&with_variable, &[("SSL_CERT_FILE", &ca)]).expect(0);
    let before = with_variable.snapshot();
    let other = fixture("other.pem").display().to_string();
    for vars in [&[][..], &[("SSL_CERT_FILE", other.as_str())]] {
        let said = once(&with_variable, vars).expect(1).stderr;
        for part in ["issuer 'Octo Test Authority' is not known", "in ca_file"] {
            assert!(said.contains(part), "{said}");
        }
    }
    // As often as it takes to conclude that something is gone.
    assert_eq!(with_variable.snapshot(), before);
    once(&with_variable, &[("SSL_CERT_FILE", &ca)]).expect(0);
    assert_eq!(
        with_variable.payloads().len(),
        1,
        "nothing ended, nothing came twice"
    );
}

/// Given a `ca_file` that is missing, empty, no PEM, or broken (C081), when the config is
/// checked and when it is polled, then both name it and say why; nothing is asked.
#[test]
fn c081_a_ca_file_that_cannot_be_used_is_never_ignored() {
    let forge = forge();
    let place = place(forge.url(), &json!({ "ca_file": "ca.pem" }));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let torn = "-----BEGIN CERTIFICATE-----\nAAAA\n";
    for (content, why) in [
        (None, "no such file or directory"),
        (Some(""), "there is no certificate in it"),
        (Some("text"), "there is no certificate in it"),
        (Some(torn), "it is not well-formed PEM"),
        (Some(broken), "certificate 1 in it is broken"),
    ] {
        if let Some(content) = content {
            place.write("ca.pem", content);
        }
        for said in [
            run(&place, &["check"], &[]).expect(1).stdout,
            once(&place, &[]).expect(1).stderr,
        ] {
            let file = place.path("ca.pem");
            let want = format!("cannot use the ca_file {}: {why}", file.display());
            assert!(said.contains(&want), "{want}\n{said}");
        }
    }
    let system = place.path("none.pem").display().to_string();
    place.write(
        "ca.pem",
        &fs::read_to_string(fixture("ca.pem")).expect("a fixture"),
    );
    let said = once(&place, &[("SSL_CERT_FILE", &system)]).expect(1).stderr;
    assert!(
        said.contains(&format!("cannot use SSL_CERT_FILE={system}: no such")),
        "{said}"
    );
    assert!(forge.asked().is_empty());
    once(&place, &[]).expect(0);
}

/// Given a proxy with a user and a password that are percent-encoded (C084), when a tracker is
/// polled through it, then the proxy gets them decoded, nothing else shows them, and no token goes
/// to the proxy; what `NO_PROXY` lists is reached without it (C083).
#[test]
fn c083_c084_a_proxy_is_used_and_its_password_stays_with_it() {
    let forge = forge();
    let front = tls::before(&forge);
    let proxy = Proxy::to(front.address);
    let url = format!(
        "https://tracker.example.test:{}/api/v3",
        front.address.port()
    );
    let keys = json!({ "ca_file": fixture("ca.pem"), "token_env": "TOKEN" });
    let place = place(&url, &keys);
    let named = format!("http://svc%40corp:p%3A%2Fq@{}", proxy.server.address);
    let vars = [("HTTPS_PROXY", named.as_str()), ("TOKEN", "t0ken-example")];
    let said = run(&place, &["start", "--once", "-v"], &vars)
        .expect(0)
        .stderr;
    assert_eq!(place.payloads().len(), 1);
    let asked = proxy.asked();
    assert!(!asked.is_empty());
    for head in &asked {
        assert!(head.starts_with("CONNECT tracker.example.test:"), "{head}");
        // base64 of svc@corp:p:/q
        assert!(head.contains("Basic c3ZjQGNvcnA6cDovcQ=="), "{head}");
        assert!(!head.contains("t0ken"), "{head}");
    }
    // A proxy that is not there: the error names it, not what was said to it.
    drop(proxy);
    let failed = once(&place, &vars).expect(1).stderr;
    assert!(failed.contains("through the proxy 127.0.0.1:"), "{failed}");
    let status = place.run(&["status"]).stdout + &place.run(&["status", "--json"]).stdout;
    let mut shown = vec![said, failed, status, place.story()];
    shown.extend(
        place
            .snapshot()
            .into_iter()
            .map(|(_, bytes)| String::from_utf8_lossy(&bytes).into_owned()),
    );
    for text in shown {
        for secret in ["p:/q", "p%3A%2Fq", "c3ZjQGNv", "svc%40", "svc@", "t0ken"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

/// Given a proxy for everything, when a host is this machine or stands in `NO_PROXY`, then
/// it is reached directly and the proxy hears nothing of it (C083).
#[test]
fn c083_what_is_near_or_listed_never_goes_through_the_proxy() {
    let forge = forge();
    let front = tls::before(&forge);
    let proxy = Proxy::to(front.address);
    let named = format!("http://sam:hunter2@{}", proxy.server.address);
    let keys = json!({ "ca_file": fixture("ca.pem"), "token_env": "TOKEN" });
    let port = front.address.port();
    // The address 0.0.0.0 leads to this machine and does not look like it.
    for (host, direct, through) in [
        ("127.0.0.1", "", false),
        ("localhost", "", false),
        ("0.0.0.0", "", true),
        ("0.0.0.0", "example.test,0.0.0.0/8", false),
        ("0.0.0.0", "10.0.0.0/8", true),
    ] {
        let place = place(&format!("https://{host}:{port}/api/v3"), &keys);
        for (names, list) in [
            (["HTTPS_PROXY", "NO_PROXY"], direct),
            (["all_proxy", "no_proxy"], direct),
        ] {
            let vars = [
                (names[0], named.as_str()),
                (names[1], list),
                ("TOKEN", "t0ken"),
            ];
            once(&place, &vars).expect(0);
            assert_eq!(!proxy.asked().is_empty(), through, "{host}, {list}");
        }
        assert_eq!(place.payloads().len(), 1);
    }
}

fn client(whole: Duration) -> Client {
    let limits = Limits {
        connect: whole / 2,
        whole,
        ..Limits::default()
    };
    Client::trusting(limits, Some(fixture("ca.pem")))
}

/// Given a server that takes a connection and then says nothing, or dribbles without end, in the
/// TLS handshake, in the head or in the body (C085), when it is asked, then a deadline ends the request.
#[test]
fn c085_every_part_of_a_request_has_a_deadline() {
    type Serve = Box<dyn Fn(&mut dyn Write) -> std::io::Result<()> + Send + Sync>;
    fn dribble(out: &mut dyn Write, start: &[u8], drop: &[u8]) -> std::io::Result<()> {
        out.write_all(start)?;
        // Ends when the client has left.
        loop {
            out.write_all(drop)?;
            out.flush()?;
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let part = |start: &[u8], drop: &'static [u8]| -> Serve {
        let start = start.to_vec();
        Box::new(move |out| dribble(out, &start, drop))
    };
    let chunked = [&head[..], b"Transfer-Encoding: chunked\r\n\r\n"].concat();
    let plain: [(&str, Serve); 4] = [
        (
            "silence",
            Box::new(|_| {
                std::thread::sleep(Duration::from_secs(20));
                Ok(())
            }),
        ),
        ("the head", part(head, b"X")),
        (
            "heads without end",
            part(
                b"HTTP/1.1 100 Continue\r\n\r\n",
                b"HTTP/1.1 100 Continue\r\n\r\n",
            ),
        ),
        ("the body", part(&chunked, b"1\r\n \r\n")),
    ];
    // All at once, since each only waits; and not too soon for a busy machine to shake hands.
    let soon = Duration::from_secs(4);
    let mut asked = Vec::new();
    for (what, serve) in plain {
        let serve = Arc::new(serve);
        let inner = serve.clone();
        let server = Server::at("127.0.0.1:0", move |mut stream| {
            tls::head(&mut stream)?;
            inner(&mut stream)
        });
        asked.push((what, "http", server, "answer within 4 s"));
        let config = tls::server_config();
        let server = Server::at("127.0.0.1:0", move |stream| {
            let connection =
                rustls::ServerConnection::new(config.clone()).map_err(std::io::Error::other)?;
            let mut stream = rustls::StreamOwned::new(connection, stream);
            tls::head(&mut stream)?;
            serve(&mut stream)
        });
        asked.push((what, "https", server, "answer within 4 s"));
    }
    // A handshake that never begins, and one that never ends: a record of 16 KiB, byte by byte.
    let silent = Server::at("127.0.0.1:0", |mut stream| {
        stream.read_to_end(&mut Vec::new()).map(drop)
    });
    let slow = Server::at("127.0.0.1:0", |mut stream| {
        dribble(&mut stream, &[22, 3, 3, 0x40, 0], &[0])
    });
    for server in [silent, slow] {
        let why = "no connection within 2 s";
        asked.push(("the handshake", "https", server, why));
    }
    let (send, failed) = mpsc::channel();
    for (n, (_, scheme, server, _)) in asked.iter().enumerate() {
        let (send, url) = (send.clone(), format!("{scheme}://{}/", server.address));
        std::thread::spawn(move || {
            let answer = client(soon).get(&url, &[], None, Redirects::Never);
            let _ = send.send((n, answer.map(|_| ())));
        });
    }
    for _ in &asked {
        let (n, answer) = failed
            .recv_timeout(Duration::from_secs(30))
            .expect("a deadline for each");
        let (what, scheme, _, why) = &asked[n];
        let said = answer.expect_err(what).to_string();
        assert!(
            said.contains(why) || *what == "heads without end",
            "{what} by {scheme}: {said}"
        );
    }
}

/// A tracker behind TLS at `address` that keeps its connections. While `dead` it takes what comes and
/// answers nothing; `asked` counts the requests, those of the dead apart.
fn keeping(address: &str, dead: &Arc<AtomicBool>, asked: &Arc<[AtomicUsize; 2]>) -> Server {
    let (dead, asked) = (dead.clone(), asked.clone());
    let config = tls::server_config();
    Server::at(address, move |stream| {
        let connection = rustls::ServerConnection::new(config.clone());
        let connection = connection.map_err(std::io::Error::other)?;
        let mut stream = rustls::StreamOwned::new(connection, stream);
        loop {
            let head = tls::head(&mut stream)?;
            let gone = dead.load(Ordering::SeqCst);
            asked[usize::from(gone)].fetch_add(1, Ordering::SeqCst);
            if gone {
                continue;
            }
            let target = head.split(' ').nth(1).unwrap_or_default().to_string();
            let reply = answer(&Asked {
                method: "GET".into(),
                target,
                headers: Vec::new(),
                body: Vec::new(),
            });
            let mut text = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n",
                reply.body.len()
            );
            for (name, value) in &reply.headers {
                text.push_str(&format!("{name}: {value}\r\n"));
            }
            stream.write_all(&[text.as_bytes(), b"\r\n", &reply.body].concat())?;
            stream.flush()?;
        }
    })
}

/// Given a tracker that goes away while connections to it are kept, and comes back at another
/// address (C087), when its name leads there, then it is polled again without a restart, and
/// nothing is said to the dead.
#[test]
fn c087_after_an_outage_nothing_stale_is_used() {
    let can = Command::new("unshare").args(["-m", "true"]).output();
    if !can.is_ok_and(|out| out.status.success()) {
        eprintln!("no mount namespaces here: skipped");
        return;
    }
    let counts = || Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let (first, second, dead) = (counts(), counts(), Arc::new(AtomicBool::new(false)));
    let before = keeping("127.0.0.2:0", &dead, &first);
    let port = before.address.port();
    let keys = json!({ "ca_file": fixture("ca.pem") });
    let place = place(
        &format!("https://tracker.example.test:{port}/api/v3"),
        &keys,
    );
    let lead_to =
        |address: &str| place.write("hosts", &format!("{address} tracker.example.test\n"));
    lead_to("127.0.0.2");
    let mut config: Value =
        serde_json::from_str(&fs::read_to_string(place.path("idempoll.json")).expect("a config"))
            .expect("JSON");
    config["interval_seconds"] = json!(3);
    place.configure(&config);
    let mut inner = command(&place, &["start"], &[]);
    let mut outer = Command::new("unshare");
    outer.args([
        "-m",
        "sh",
        "-c",
        "mount --bind hosts /etc/hosts && exec \"$@\"",
        "sh",
    ]);
    outer
        .arg(inner.get_program())
        .args(inner.get_args())
        .current_dir(&place.dir);
    outer
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    inner.stdin(Stdio::null());
    let _running = place.spawn(&mut outer);
    let last = || place.status()["last_cycle"]["at"].clone();
    place.until("a cycle is over", || !last().is_null());
    let over = last();
    place.until("the next one is over", || last() != over);
    // Now it rests; its connection may be kept.
    lead_to("127.0.0.4");
    dead.store(true, Ordering::SeqCst);
    place.until("a cycle fails", || {
        first[1].load(Ordering::SeqCst) > 0 || !reasons(&place).is_empty()
    });
    assert_eq!(first[1].load(Ordering::SeqCst), 0, "the dead was asked");
    assert!(first[0].load(Ordering::SeqCst) > 0);

    let _after = keeping(&format!("127.0.0.3:{port}"), &Arc::default(), &second);
    lead_to("127.0.0.3");
    place.until("it is asked where it is now", || {
        second[0].load(Ordering::SeqCst) > 0
    });
    place.until("all is well", || place.status()["sources"][0]["ok"] == true);
    assert_eq!(first[1].load(Ordering::SeqCst), 0, "the dead was asked");
    assert_eq!(place.payloads().len(), 1);
}

/// Given `gh auth token` as the token command, when it prints a token beside what it says
/// on standard error, when nobody is logged in, when it prints nothing and when it asks, then it is
/// used or its failure is said, once for each repository and with what to do; it runs once a cycle.
#[test]
fn gh_auth_token_is_a_token_command() {
    let forge = forge();
    let keys = json!({ "token_command": ["gh", "auth", "token", "-h", "ghe.example.test"],
        "repos": ["octo/widgets", "octo/api", "octo/web"] });
    let place = place(forge.url(), &keys);
    let path = format!(
        "{}:{}",
        place.dir.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let gh = |rest: &str| {
        let script = format!(
            "#!/bin/sh\necho \"$*\" >> '{}'\n{rest}\n",
            place.path("runs").display()
        );
        place.script("gh", &script);
    };
    let mut runs = 0;
    for (script, code, said) in [
        (
            "echo 'A new release of gh is available' >&2; echo gho_t0ken",
            0,
            "",
        ),
        (
            "echo 'To get started, run: gh auth login (gho_t0ken)' >&2; exit 4",
            1,
            "the token command gh failed: exit status: 4; nobody is logged in there: gh auth login, or -h HOST if not to github.com",
        ),
        (
            "echo 'no oauth token found for ghe.example.test' >&2; exit 1",
            1,
            "the token command gh failed: exit status: 1",
        ),
        ("exit 0", 1, "cannot use the token command gh: it is empty"),
        (
            "echo '? Log in: ' >&2; read answer && echo gho_t0ken",
            1,
            "the token command gh failed: exit status: 1",
        ),
        (
            "read answer < /dev/tty || exit 2; echo gho_t0ken",
            1,
            "the token command gh failed: exit status: 2",
        ),
    ] {
        gh(script);
        let before = place.entries("poll.source_error").len();
        let answer = once(&place, &[("PATH", &path)]).expect(code);
        runs += 1;
        assert_eq!(place.lines("runs").len(), runs, "once a cycle: {script}");
        assert!(
            place
                .lines("runs")
                .iter()
                .all(|run| run == "auth token -h ghe.example.test")
        );
        let failed = place.entries("poll.source_error").split_off(before);
        assert_eq!(failed.len(), if code == 0 { 0 } else { 3 }, "{script}");
        for entry in failed {
            assert_eq!(entry["reason"], said);
        }
        assert!(!answer.stderr.contains("t0ken"), "{}", answer.stderr);
    }
    for asked in forge.asked() {
        assert_eq!(asked.header("authorization"), Some("Bearer gho_t0ken"));
    }
}

/// Given a credential as systemd has it for a service, when the token is read by the setting that `docs/supervision.md` names, by the
/// command and by the file, then each asks with it; and without systemd each says what is missing.
#[test]
fn a_credential_of_systemd_is_a_token_as_documented() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/supervision.md")).expect("the page");
    for key in ["token_command", "token_file"] {
        let setting = page.split('`').find(|part| {
            let written = format!("\"{key}\": ");
            part.starts_with(&written)
        });
        let setting = setting.unwrap_or_else(|| panic!("no {key} is named"));
        let forge = forge();
        let keys: Value = serde_json::from_str(&format!("{{ {setting} }}")).expect("JSON");
        let place = place(forge.url(), &keys);
        // Where systemd puts it, in a place of the test's own.
        let there = "/run/credentials/idempoll.service";
        let here = place.path("credentials");
        let config = fs::read_to_string(place.path("idempoll.json")).expect("the config");
        place.write(
            "idempoll.json",
            &config.replace(there, &here.display().to_string()),
        );
        let failed = once(&place, &[]).expect(1);
        assert!(!failed.stderr.is_empty());
        assert!(forge.asked().is_empty(), "{key}: asked without a token");
        fs::create_dir(&here).expect("a directory");
        place.write("credentials/token", "github_pat_of_a_service\n");
        let directory = here.display().to_string();
        once(&place, &[("CREDENTIALS_DIRECTORY", &directory)]).expect(0);
        let asked = forge.asked();
        assert!(!asked.is_empty(), "{key}: nothing was asked");
        for asked in asked {
            let bearer = "Bearer github_pat_of_a_service";
            assert_eq!(asked.header("authorization"), Some(bearer), "{key}");
        }
    }
}
