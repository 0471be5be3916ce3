//! The program itself, in a directory of its own: a config, an inbox, a sink
//! that logs what reached it, and processes that are ended by their id.

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The binary under test: the one built with the tests, or `IDEMPOLL_BIN`.
pub fn binary() -> PathBuf {
    std::env::var_os("IDEMPOLL_BIN")
        .map_or_else(|| env!("CARGO_BIN_EXE_idempoll").into(), PathBuf::from)
}

/// The lines of a file; none if it is not there.
pub fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_string).collect()
}

/// A place to run the program in; removed at the end.
pub struct Place {
    pub dir: PathBuf,
    keep: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.keep && !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// A poller that was started and is ended with its test.
pub struct Running {
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a finished command said.
pub struct Answer {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Answer {
    fn of(output: Output) -> Answer {
        Answer {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Panics unless it ended with `code`.
    pub fn expect(self, code: i32) -> Answer {
        assert_eq!(
            self.code,
            Some(code),
            "stdout: {}\nstderr: {}",
            self.stdout,
            self.stderr
        );
        self
    }
}

impl Place {
    /// A place with an empty inbox and one `exec` sink running `script`, which
    /// finds the place's directory as its working directory.
    pub fn new(script: &str) -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("idempoll-it-{}-{n}", std::process::id()));
        fs::create_dir_all(dir.join("inbox")).expect("a temporary directory");
        let place = Place { dir, keep: false };
        place.configure(&place.config(script));
        place
    }

    /// The config of [`Place::new`], to change before [`Place::configure`].
    pub fn config(&self, script: &str) -> Value {
        json!({
            "state_dir": "state",
            "interval_seconds": 1,
            "retry_seconds": 0.05,
            "authorized_users": ["octocat"],
            "sources": [{ "name": "inbox", "provider": "dir", "path": "inbox", "sinks": ["log"], "watch_from": "2020-01-01T00:00:00Z" }],
            "sinks": { "log": { "type": "exec", "command": ["sh", "-c", script] } }
        })
    }

    pub fn configure(&self, config: &Value) {
        self.write(
            "idempoll.json",
            &serde_json::to_string_pretty(config).expect("JSON"),
        );
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file in a temporary directory");
    }

    /// An open item with comments 1 to `comments`; as a whole, in one rename.
    pub fn item(&self, number: u64, comments: u64) {
        let comments: Vec<Value> = (1..=comments)
            .map(|id| {
                json!({ "id": id.to_string(), "author": "octocat", "body": format!("comment {id} on {number}"),
                    "created_at": format!("2026-08-05T10:{:02}:{:02}Z", id / 60, id % 60) })
            })
            .collect();
        self.item_file(number, &json!({ "number": number, "title": format!("Item {number}"), "body": "Please.",
            "author": "octocat", "state": "open", "created_at": "2026-08-05T09:00:00Z", "comments": comments }));
    }

    pub fn item_file(&self, number: u64, item: &Value) {
        self.write("inbox/.new", &item.to_string());
        fs::rename(
            self.path("inbox/.new"),
            self.path(&format!("inbox/{number}.json")),
        )
        .expect("a rename");
    }

    /// The lines of a file; none if it is not there.
    pub fn lines(&self, name: &str) -> Vec<String> {
        lines(&self.path(name))
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(args)
            .args(["--config", "idempoll.json"])
            .current_dir(&self.dir);
        for name in [
            "STATE_DIRECTORY",
            "XDG_STATE_HOME",
            "XDG_CONFIG_HOME",
            "IDEMPOLL_CONFIG",
        ] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Answer {
        Answer::of(self.command(args).output().expect("the program starts"))
    }

    pub fn once(&self) -> Answer {
        self.run(&["start", "--once", "-q"])
    }

    /// Starts a poller and waits until it says that it runs.
    pub fn start(&self) -> Running {
        let running = self.start_unseen();
        self.until("the poller runs", || self.run(&["status"]).code == Some(0));
        running
    }

    /// Starts a poller and returns at once.
    pub fn start_unseen(&self) -> Running {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("stderr.log"))
            .expect("a log");
        let child = self
            .command(&["start"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the program starts");
        Running { child }
    }

    /// Waits for something to become true; not for ever.
    pub fn until(&self, what: &str, mut is: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is() {
            assert!(
                Instant::now() < deadline,
                "waited in vain until {what}, in {}:\n{}",
                self.dir.display(),
                self.story()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The end of the event log, for a test that fails.
    pub fn story(&self) -> String {
        let lines = self.lines("state/log/events.jsonl");
        let from = lines.len().saturating_sub(30);
        format!(
            "{}\nstderr: {}",
            lines[from..].join("\n"),
            self.lines("stderr.log").join("\n")
        )
    }

    /// The event log's entries of a type.
    pub fn entries(&self, kind: &str) -> Vec<Value> {
        self.lines("state/log/events.jsonl")
            .iter()
            .filter_map(|l| serde_json::from_str::<Value>(l).ok())
            .filter(|e| e["type"] == kind)
            .collect()
    }

    /// All there is in the state directory but what a run may always write: path and content.
    pub fn snapshot(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        let mut todo = vec![self.state()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(&dir).expect("a state directory").flatten() {
                let path = entry.path();
                if path.is_dir() {
                    todo.push(path);
                } else if !path.ends_with("run.json") && !path.ends_with("log/events.jsonl") {
                    found.push((path.clone(), fs::read(&path).unwrap_or_default()));
                }
            }
        }
        found.sort();
        found
    }
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL: it does not even notice.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.pid().to_string()])
            .status();
        assert!(sent.expect("kill").success());
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A number below `n` that differs from run to run; printed by whoever uses it as a seed.
pub fn seed() -> u64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    std::env::var("IDEMPOLL_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(now.as_nanos() as u64)
}

/// How often a sweep is done: `default`, times what the environment says.
pub fn scaled(default: u64) -> u64 {
    let percent: u64 = std::env::var("IDEMPOLL_SCALE")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(100);
    (default * percent / 100).max(1)
}

pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
