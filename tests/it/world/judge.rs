//! An independent judge between the program and a forge of ours.
//!
//! ```text
//! program -> recorder -> Prism, with GitHub's description -> relay -> the forge of a test
//! ```
//!
//! Prism (`prism proxy --errors`) lets a request through only if it fits the
//! description, and an answer only if that does. It gives its reasons to whoever
//! asked, so the recorder asks it in the program's place, and keeps what it said.
//! What Prism does not look at, the names of a request's parameters, we look up ourselves.
//!
//! Prism cannot use a part of a description where `nullable` stands without a
//! `type`, and then checks nothing, silently: GitHub's issues are such a part. By
//! OpenAPI's rules `nullable` has no effect there, so it gets a copy without it. That each
//! kind of answer really is looked at, a test must try: [`Judge::ask`].
//!
//! It is there where `tests/judge` installed it. One is started for all tests of
//! a process, since it takes some seconds, and the forge behind it is changed from
//! test to test. A shell ends it, by its pid, as soon as the pipe from this
//! process closes: so it is ended however this process ends.

use super::description::Description;
use super::forge::{Asked, Forge, Reply};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Runs a command until it ends, or until the input of this does.
const LEASH: &str = r#"exec 3<&0
"$@" < /dev/null 3<&- &
judge=$!
(read -r _ <&3; kill $judge) > /dev/null 2>&1 &
leash=$!
{ wait $judge; kill $leash; } 2> /dev/null"#;

/// Where `tests/judge` put its packages; `None`, said aloud, if it was not run.
pub fn packages(test: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("IDEMPOLL_JUDGE");
    if dir.is_none() {
        println!("{test}: skipped, since nobody is there to judge; tests/judge has somebody");
    }
    Some(PathBuf::from(dir?))
}

/// What was asked, and what came of it.
#[derive(Debug, Clone)]
pub struct Exchange {
    pub asked: Asked,
    /// As the program saw it.
    pub status: u16,
    /// What the description calls what was asked for; nothing if it does not have it.
    pub endpoint: Option<String>,
    /// What the judge said against it, in full.
    pub objections: Vec<String>,
}

/// The judge, with its recorder before it and a forge behind it.
pub struct Judge {
    recorder: Forge,
    _relay: Forge,
    exchanges: Arc<Mutex<Vec<Exchange>>>,
    forge: Arc<Mutex<Judged>>,
    /// Where Prism listens.
    address: String,
    description: Arc<Description>,
    /// Its input is the leash.
    _prism: Child,
}

/// The forge of the test that has the judge.
#[derive(Default)]
struct Judged {
    /// Its URL.
    forge: String,
    /// The repository in it: `/repositories/ID/` and `/repos/OWNER/NAME/`.
    repository: (String, String),
}

impl Judge {
    /// The judge, to be used by one test at a time; `None`, said aloud, where there is none.
    pub fn of(test: &str) -> Option<MutexGuard<'static, Judge>> {
        static JUDGE: OnceLock<Mutex<Judge>> = OnceLock::new();
        let packages = packages(test)?;
        let judge = JUDGE.get_or_init(|| Mutex::new(Judge::start(&packages)));
        let judge = judge.lock().unwrap_or_else(PoisonError::into_inner);
        judge.exchanges();
        Some(judge)
    }

    fn start(packages: &Path) -> Judge {
        let forge = Arc::new(Mutex::new(Judged::default()));
        // Prism is told once what is behind it.
        let relay = Forge::start({
            let forge = forge.clone();
            move |asked| {
                let url = lock(&forge).forge.clone();
                pass_on(asked, &url).0
            }
        });
        let published = "node_modules/@octokit/openapi/generated/api.github.com.json";
        let mut description = Description::read(&packages.join(published));
        description.drop_idle_nullable();
        description.write(&packages.join("api.github.com.json"));
        let description = Arc::new(description);
        let (prism, address) = prism(packages, relay.url());
        let exchanges = Arc::new(Mutex::new(Vec::new()));
        let recorder = Forge::start({
            let (exchanges, forge) = (exchanges.clone(), forge.clone());
            let (address, description) = (address.clone(), description.clone());
            move |asked| {
                let (exchange, reply) = judged(asked, &address, &description);
                lock(&exchanges).push(exchange);
                rebase(reply, &lock(&forge))
            }
        });
        Judge {
            recorder,
            _relay: relay,
            exchanges,
            forge,
            address,
            description,
            _prism: prism,
        }
    }

    /// Sets the forge that is judged, and the repository in it that links lead to.
    pub fn judges(&self, forge: &str, id: u64, path: &str) {
        *lock(&self.forge) = Judged {
            forge: forge.to_string(),
            repository: (format!("/repositories/{id}/"), format!("/repos/{path}/")),
        };
        self.exchanges();
    }

    /// The base URL for the program.
    pub fn url(&self) -> &str {
        self.recorder.url()
    }

    /// Asks for something without the program.
    pub fn ask(&self, method: &str, target: &str) -> Exchange {
        let asked = Asked {
            method: method.into(),
            target: target.into(),
            headers: vec![
                ("accept".into(), "application/json".into()),
                ("user-agent".into(), "a test".into()),
            ],
            body: Vec::new(),
        };
        judged(&asked, &self.address, &self.description).0
    }

    /// What was asked and answered since the last call of this.
    pub fn exchanges(&self) -> Vec<Exchange> {
        std::mem::take(&mut *lock(&self.exchanges))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes on a request; says what came of it, and what is answered.
fn judged(asked: &Asked, address: &str, description: &Description) -> (Exchange, Reply) {
    let (reply, mut objections) = pass_on(asked, address);
    let method = asked.method.to_lowercase();
    let endpoint = description.endpoint(&method, asked.path());
    let known = endpoint.map_or_else(Vec::new, |e| description.parameters(&method, e));
    let (_, query) = asked.target.split_once('?').unwrap_or_default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let name = pair.split('=').next().unwrap_or_default();
        if !known.contains(&name) {
            objections.push(format!("there is no parameter {name}"));
        }
    }
    let exchange = Exchange {
        asked: asked.clone(),
        status: reply.status,
        endpoint: endpoint.map(str::to_string),
        objections,
    };
    (exchange, reply)
}

/// Starts Prism in front of `forge`; says where it listens, once it does.
#[expect(clippy::zombie_processes, reason = "it ends when this process does")]
fn prism(packages: &Path, forge: &str) -> (Child, String) {
    let node = std::env::var_os("IDEMPOLL_JUDGE_NODE").unwrap_or_else(|| "node".into());
    let mut prism = Command::new("sh")
        .args(["-c", LEASH, "sh"])
        .arg(node)
        .arg(packages.join("node_modules/.bin/prism"))
        .args(["proxy", "--errors", "-h", "127.0.0.1", "-p", "0"])
        .arg(packages.join("api.github.com.json"))
        .arg(forge)
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let output = BufReader::new(prism.stdout.take().expect("it is piped"));
    let (told, lines) = mpsc::channel();
    // Its output is read to the end, for it would stop at a full pipe.
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let _ = told.send(line);
        }
    });
    let deadline = Instant::now() + Duration::from_secs(180);
    let mut seen = Vec::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if let Some((_, url)) = line.split_once("listening on ") {
                    return (prism, url.trim().to_string());
                }
                seen.push(line);
            }
            Err(RecvTimeoutError::Timeout) => panic!("Prism does not start: {seen:?}"),
            Err(RecvTimeoutError::Disconnected) => panic!("Prism has ended: {seen:?}"),
        }
    }
}

/// Asks at `url` what somebody asked; gives the answer, and what the judge has against it.
fn pass_on(asked: &Asked, url: &str) -> (Reply, Vec<String>) {
    let address = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let mut request = format!("{} {} HTTP/1.1\r\n", asked.method, asked.target);
    let own = ["host", "connection"];
    for (name, value) in asked.headers.iter().filter(|(n, _)| !own.contains(&&**n)) {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("host: {address}\r\nconnection: close\r\n\r\n"));
    let request = [request.as_bytes(), &asked.body].concat();
    stream.write_all(&request).expect("it listens");
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while reader.read_line(&mut head).expect("it answers") > 2 {}
    let mut body = Vec::new();
    reader.read_to_end(&mut body).expect("it answers");
    let mut head = head.lines();
    let status = head
        .next()
        .and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let mut reply = Reply {
        status: status.expect("an answer with a status"),
        headers: Vec::new(),
        body,
        ..Reply::json("")
    };
    let mut objections = Vec::new();
    for (name, value) in head.filter_map(|line| line.split_once(": ")) {
        match &*name.to_ascii_lowercase() {
            "sl-violations" => objections.push(value.to_string()),
            "content-length" | "connection" | "keep-alive" => {}
            _ => reply.headers.push((name.to_string(), value.to_string())),
        }
    }
    // What did not pass, it answers itself.
    let told = |(n, v): &(String, String)| {
        n.eq_ignore_ascii_case("content-type") && v.contains("problem+json")
    };
    if reply.headers.iter().any(told) {
        let reasons: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        objections.push(format!("refused: {reasons}"));
    }
    (reply, objections)
}

/// An answer as the program would have it from the forge itself.
///
/// GitHub's links lead to `/repositories/ID`, which its description does not
/// have: they are made to lead to the repository's name, so what is behind them is judged too.
fn rebase(mut reply: Reply, judged: &Judged) -> Reply {
    let (id, name) = &judged.repository;
    let rebased = |text: &str| {
        let text = text.replace(&judged.forge, "{base}");
        text.replace(&format!("{{base}}{id}"), &format!("{{base}}{name}"))
    };
    for (_, value) in &mut reply.headers {
        *value = rebased(value);
    }
    if let Ok(text) = std::str::from_utf8(&reply.body) {
        reply.body = text.replace(&judged.forge, "{base}").into_bytes();
    }
    reply
}
