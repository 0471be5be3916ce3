//! A place with a `tmux` sink, its server (ended with it), and what reached the panes.

use crate::world::program::Place;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Whether tmux and python3 are there; says so if not.
pub fn able() -> bool {
    let there = |program: &str, flag: &str| {
        let run = Command::new(program)
            .arg(flag)
            .stdout(Stdio::null())
            .status();
        run.is_ok_and(|status| status.success())
    };
    let able = there("tmux", "-V") && there("python3", "-V");
    if !able {
        eprintln!("skipped: tmux and python3 are needed");
    }
    able
}

/// The tmux server of a test; it ends with the test.
pub struct Server(PathBuf);

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let format = "#{session_name} #{pane_id} #{pane_pid} #{pane_dead}|#{pane_dead_status}|#{pane_dead_signal} \
                #{@idempoll-agent} #{@idempoll-ready} #{pane_current_command}";
            eprintln!("{}", self.say(&["list-panes", "-a", "-F", format]));
        }
        let _ = self.run(&["kill-server"]);
    }
}

impl Server {
    pub fn at(socket: PathBuf) -> Server {
        Server(socket)
    }

    pub fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.args(["-u", "-f", "/dev/null", "-S"]).arg(&self.0);
        command.args(words).env_remove("TMUX").stdin(Stdio::null());
        command.output().expect("tmux starts")
    }

    /// What a call says; nothing if there is no server.
    pub fn say(&self, words: &[&str]) -> String {
        String::from_utf8_lossy(&self.run(words).stdout)
            .trim()
            .to_string()
    }

    /// The agents: record, pane, first process, whether it is dead.
    pub fn agents(&self) -> Vec<(String, String, u32, bool)> {
        let format = "#{@idempoll-agent} #{pane_id} #{pane_pid} #{pane_dead}";
        let said = self.say(&["list-panes", "-a", "-F", format]);
        let mut agents: Vec<_> = said
            .lines()
            .filter(|line| !line.starts_with(' '))
            .filter_map(|line| {
                let mut words = line.split(' ');
                Some((
                    words.next()?.to_string(),
                    words.next()?.to_string(),
                    words.next()?.parse().ok()?,
                    words.next()? == "1",
                ))
            })
            .collect();
        agents.sort();
        agents
    }

    /// The agent of an item of the inbox.
    pub fn agent(&self, number: u64) -> Option<(String, u32, bool)> {
        let slug = format!("inbox~{number}");
        let found = self.agents().into_iter().find(|agent| agent.0 == slug);
        found.map(|(_, pane, pid, dead)| (pane, pid, dead))
    }

    pub fn pid(&self) -> Option<u32> {
        self.say(&["display-message", "-p", "#{pid}"]).parse().ok()
    }
}

/// A place with a server. The fields are dropped in this order.
pub struct World {
    pub server: Server,
    pub place: Place,
}

impl World {
    /// With these settings of the sink; `DIR` in a word of the command is the place's directory.
    pub fn new(settings: Value) -> World {
        let place = Place::new("true");
        let world = World {
            server: Server::at(place.state().join("tmux/agent.sock")),
            place,
        };
        world.configure(settings);
        world
    }

    /// An agent that keeps every byte it is given in `DIR/keys/REF`.
    pub fn logging() -> World {
        World::new(logger())
    }

    /// The fake agent, with its log in `DIR/said/REF`.
    pub fn fake(options: &str, settings: &Value) -> World {
        World::new(fake(options, settings))
    }

    pub fn configure(&self, settings: Value) {
        let mut sink = settings;
        sink["type"] = "tmux".into();
        let dir = self.place.dir.to_str().expect("ASCII");
        let sink: Value =
            serde_json::from_str(&sink.to_string().replace("DIR", dir)).expect("JSON");
        let mut config = self.place.config("true");
        config["sources"][0]["sinks"] = json!(["agent"]);
        config["sinks"] = json!({ "agent": sink });
        self.place.configure(&config);
        for dir in ["keys", "said"] {
            let _ = fs::create_dir(self.place.path(dir));
        }
    }

    /// Changes the config that is there.
    pub fn edit(&self, change: impl FnOnce(&mut Value)) {
        let text = fs::read_to_string(self.place.path("idempoll.json")).expect("a config");
        let mut config: Value = serde_json::from_str(&text).expect("JSON");
        change(&mut config);
        self.place.configure(&config);
    }

    /// Adds a source whose token is in `MY_TOKEN`; a tracker that is not there does no harm.
    pub fn know_a_token(&self) {
        self.edit(|config| {
            let sources = config["sources"].as_array_mut().expect("a list");
            sources.push(
                json!({ "name": "hub", "provider": "github", "repos": ["octo/api"],
                "base_url": "http://127.0.0.1:9", "token_env": "MY_TOKEN", "sinks": ["agent"] }),
            );
        });
    }

    /// What an item's logging agent was given.
    pub fn keys(&self, number: u64) -> Vec<u8> {
        fs::read(self.place.path(&format!("keys/dir:inbox#{number}"))).unwrap_or_default()
    }

    /// The texts pasted into an item's logging agent; panics if anything else but an Enter
    /// after each reached it.
    pub fn pasted(&self, number: u64) -> Vec<String> {
        pastes(&self.keys(number)).unwrap_or_else(|why| panic!("{why}"))
    }

    /// What an item's fake agent says.
    pub fn said(&self, number: u64) -> Vec<Value> {
        let lines = self.place.lines(&format!("said/dir:inbox#{number}"));
        lines
            .iter()
            .filter_map(|l| serde_json::from_str(l).ok())
            .collect()
    }

    pub fn submitted(&self, number: u64) -> Vec<String> {
        let said = self.said(number);
        said.iter()
            .filter_map(|s| s["submitted"].as_str().map(str::to_string))
            .collect()
    }

    /// Cycles until nothing is pending; what was put off is due a moment later.
    pub fn once(&self) {
        self.place.until("nothing is pending", || {
            self.place.once().expect(0);
            self.place.pending() == 0
        });
    }

    /// An item with comments of these texts.
    pub fn item(&self, number: u64, comments: &[&str]) {
        let comments: Vec<Value> = comments
            .iter()
            .enumerate()
            .map(|(n, body)| {
                json!({ "id": (n + 1).to_string(), "author": "octocat", "body": body,
                    "created_at": format!("2026-08-05T10:{:02}:{:02}Z", n / 60, n % 60) })
            })
            .collect();
        let item = json!({ "number": number, "title": format!("Item {number}"), "body": "Please.",
            "author": "octocat", "state": "open", "created_at": "2026-08-05T09:00:00Z", "comments": comments });
        self.place.item_file(number, &item);
    }

    pub fn close(&self, number: u64) {
        let item = json!({ "number": number, "title": format!("Item {number}"), "author": "octocat",
            "state": "closed", "created_at": "2026-08-05T09:00:00Z", "comments": [] });
        self.place.item_file(number, &item);
    }

    /// Why the last try of anything was put off or failed.
    pub fn last_reason(&self) -> String {
        let mut all = self.place.entries("dispatch.deferred");
        all.extend(self.place.entries("dispatch.failed"));
        all.sort_by_key(|e| e["ts"].as_str().unwrap_or_default().to_string());
        all.pop()
            .map(|e| e["reason"].to_string())
            .unwrap_or_default()
    }
}

pub fn logger() -> Value {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/tmux_sink/pane_log.py"
    );
    let run = format!("exec python3 {script} \"DIR/keys/$IDEMPOLL_REF\"");
    json!({ "command": ["sh", "-c", run], "ready_text": "ready>", "enter_seconds": 0.02 })
}

pub fn fake(options: &str, settings: &Value) -> Value {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/fixtures/cases/C064-fake-agent.py"
    );
    let run = format!("exec python3 {script} \"DIR/said/$IDEMPOLL_REF\" {options}");
    let mut sink = json!({ "command": ["sh", "-c", run], "ready_text": ">" });
    for (key, value) in settings.as_object().into_iter().flatten() {
        sink[key] = value.clone();
    }
    sink
}

/// Takes what a terminal program got apart: pastes, each followed by one Enter, and nothing else.
pub fn pastes(mut keys: &[u8]) -> Result<Vec<String>, String> {
    let find = |text: &[u8], what: &[u8]| text.windows(what.len()).position(|w| w == what);
    let mut texts = Vec::new();
    while !keys.is_empty() {
        let shown = || String::from_utf8_lossy(&keys[..keys.len().min(60)]).into_owned();
        let inside = keys
            .strip_prefix(b"\x1b[200~")
            .ok_or_else(|| format!("outside of a paste: {:?}", shown()))?;
        let end = find(inside, b"\x1b[201~").ok_or_else(|| format!("no end: {:?}", shown()))?;
        let text = String::from_utf8(inside[..end].to_vec()).map_err(|e| e.to_string())?;
        texts.push(text.replace('\r', "\n"));
        keys = inside[end + 6..]
            .strip_prefix(b"\r")
            .ok_or_else(|| format!("no Enter after {:?}", shown()))?;
    }
    Ok(texts)
}

/// The delivery a pasted text says it is.
pub fn delivery_of(text: &str) -> String {
    let line = text.lines().find_map(|l| l.strip_prefix("delivery: "));
    line.unwrap_or_else(|| panic!("not a prompt of ours: {text:?}"))
        .to_string()
}

/// A file of `fixtures/cases`.
pub fn case(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/cases")
        .join(name);
    fs::read_to_string(path).expect("a case's input")
}

/// The body of the comment in a file of `fixtures/cases`.
pub fn case_body(name: &str) -> String {
    let json: Value = serde_json::from_str(&case(name)).expect("JSON");
    json["body"].as_str().expect("a body").to_string()
}
