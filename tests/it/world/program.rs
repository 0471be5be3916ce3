//! The program itself, in a directory of its own: a config, an inbox, a sink
//! that logs what reached it, and processes that are ended by their id.

use serde_json::{Value, json};
use std::collections::BTreeMap;
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

/// A command that logs the id of what it was given.
pub const LOG: &str = r#"cat > /dev/null; echo "$IDEMPOLL_DELIVERY_ID" >> ids.log"#;

/// The same, but it says that it has begun, and waits until the test says so with a file `go`.
pub const GATED: &str = r#"echo $$ >> begun.log; while [ ! -e go -a -e idempoll.json ]; do sleep 0.01; done; echo "$IDEMPOLL_DELIVERY_ID" >> ids.log"#;

/// A place to run the program in; removed at the end.
pub struct Place {
    pub dir: PathBuf,
    keep: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        // A command that waits for this file ends with its test, or when all is gone.
        let _ = fs::write(self.path("go"), "");
        // A command that was left running may be writing there still.
        let mut tries = if self.keep || std::thread::panicking() {
            0
        } else {
            100
        };
        while tries > 0 && fs::remove_dir_all(&self.dir).is_err() {
            tries -= 1;
            std::thread::sleep(Duration::from_millis(10));
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
    /// Of a command that was started in a way of its own.
    pub fn of(output: Output) -> Answer {
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
        Place::below(&std::env::temp_dir(), script)
    }

    /// The same in a directory of the test's own, such as one on another file system.
    pub fn below(parent: &Path, script: &str) -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("idempoll-it-{}-{n}", std::process::id()));
        // A test that failed may have left it, in a process that had the same number.
        let _ = fs::remove_dir_all(&dir);
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

    /// A file that can be run. Another process writes it: a descriptor of ours would for a
    /// moment be that of processes forked for other tests too, and what anybody has open to
    /// write cannot be run.
    pub fn script(&self, name: &str, text: &str) {
        let written = Command::new("sh")
            .args([
                "-c",
                r#"printf %s "$1" > "$0" && chmod 755 "$0""#,
                name,
                text,
            ])
            .current_dir(&self.dir)
            .status();
        assert!(written.expect("sh").success());
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
        self.until_up(&running);
        running
    }

    /// Waits until it is this poller that holds the lock, and says so.
    pub fn until_up(&self, running: &Running) {
        self.until("the poller runs", || {
            // Its start is told once `run.json` is its own, not only the lock.
            let status = self.status();
            status["pid"] == running.pid() && !status["started_at"].is_null()
        });
    }

    /// What `status --json` says.
    pub fn status(&self) -> Value {
        serde_json::from_str(&self.run(&["status", "--json"]).stdout).unwrap_or_default()
    }

    /// Starts a poller by a command of the test's own.
    pub fn spawn(&self, command: &mut Command) -> Running {
        Running {
            child: command.spawn().expect("the program starts"),
        }
    }

    /// The program, run through a shell `script` that finds it as `"$@"`.
    pub fn shell(&self, script: &str, args: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", script, "sh"])
            .arg(binary())
            .args(args)
            .args(["--config", "idempoll.json"])
            .current_dir(&self.dir)
            .stdin(Stdio::null());
        command
    }

    /// The program under `strace`, which stands beside it, so that it is the program that is started, signalled and
    /// waited for; the calls go to `trace.log`.
    pub fn traced(&self, options: &[&str], args: &[&str]) -> Command {
        let inner = self.command(args);
        let mut command = Command::new("strace");
        command
            .args(["-D", "-o", "trace.log"])
            .args(options)
            .arg(inner.get_program())
            .args(inner.get_args())
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    /// The program in namespaces of its own; `flags` are those of `unshare`.
    pub fn unshared(&self, flags: &[&str], args: &[&str]) -> Command {
        let inner = self.command(args);
        let mut command = Command::new("unshare");
        command
            .args(flags)
            .arg(inner.get_program())
            .args(inner.get_args())
            .current_dir(&self.dir)
            .stdin(Stdio::null());
        for (name, _) in inner.get_envs() {
            command.env_remove(name);
        }
        command
    }

    /// What reached a sink that appends its input to `payloads.log`, a line each.
    pub fn payloads(&self) -> Vec<Value> {
        let parse = |line: &String| serde_json::from_str(line).expect("a payload is JSON");
        self.lines("payloads.log").iter().map(parse).collect()
    }

    /// How many deliveries are not resolved.
    pub fn pending(&self) -> usize {
        let items = self.run(&["items", "--pending", "--json"]).stdout;
        let items: Value = serde_json::from_str(&items).unwrap_or_default();
        items.as_array().map_or(usize::MAX, Vec::len)
    }

    /// How many records are marked as having something left to do.
    pub fn marked(&self) -> usize {
        let markers = fs::read_dir(self.path("state/pending"));
        let names = markers
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.file_name());
        names.filter(|name| name != ".items").count()
    }

    /// Waits until a poller with nothing to do before its next cycle is at rest: the first one
    /// is over, all is delivered and recorded, and what follows a record is done too.
    pub fn at_rest(&self) {
        self.until("the poller is at rest", || {
            !self.status()["next_cycle_at"].is_null() && self.pending() == 0 && self.marked() == 0
        });
    }

    /// Where its pollers' standard error goes: one after the other's.
    pub fn log(&self) -> fs::File {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("stderr.log"));
        log.expect("a log")
    }

    /// Every delivery of `items` with `comments` each reached the command exactly once, in order, by its own log.
    pub fn each_came_once(&self, items: u64, comments: u64) {
        let ids = self.lines("ids.log");
        let mut per: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for id in &ids {
            let (item, key) = id.split_once('/').expect("a delivery id");
            per.entry(item).or_default().push(key);
        }
        let wanted: Vec<String> = std::iter::once("opened".to_string())
            .chain((1..=comments).map(|c| format!("comment/{c}")))
            .collect();
        assert_eq!(per.len() as u64, items, "{}", self.story());
        for (item, keys) in per {
            assert_eq!(keys, wanted, "{item}\n{}", self.story());
        }
    }

    /// Starts a poller and returns at once.
    pub fn start_unseen(&self) -> Running {
        let child = self
            .command(&["start"])
            .stdout(Stdio::null())
            .stderr(self.log())
            .spawn()
            .expect("the program starts");
        Running { child }
    }

    /// Waits for something to become true; not for ever.
    pub fn until(&self, what: &str, is: impl FnMut() -> bool) {
        self.until_within(patience(), what, is);
    }

    /// The same for what takes a busy machine long.
    pub fn until_within(&self, longest: Duration, what: &str, mut is: impl FnMut() -> bool) {
        let deadline = Instant::now() + longest;
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

    /// What 0, 1 and 2 of a process lead to, once it has no others: a shell that has just
    /// written a file has one more for a moment, which is its own.
    pub fn only_the_three(&self, pid: u32) -> Vec<(u32, PathBuf)> {
        let mut open = Vec::new();
        let what = format!("{pid} has 0, 1 and 2 alone");
        self.until_within(Duration::from_secs(10), &what, || {
            open = descriptors(pid);
            open.iter().map(|(fd, _)| *fd).eq(0..3)
        });
        open
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

    /// The seconds of processor time it has used so far.
    pub fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it lives");
        let fields: Vec<&str> = stat[stat.rfind(')').expect("its name") + 2..]
            .split(' ')
            .collect();
        let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
        (ticks(11) + ticks(12)) / 100.0
    }

    /// Waits until none of its threads wakes up for two seconds: until the kernel has not had to
    /// take the processor from any that went to sleep.
    pub fn until_asleep(&self, place: &Place) {
        let slept = || {
            let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it lives");
            let mut slept = Vec::new();
            for thread in threads.flatten() {
                let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
                let times = status.lines().find(|l| l.starts_with("voluntary_ctxt"));
                slept.push((thread.file_name(), times.map(str::to_string)));
            }
            slept.sort();
            slept
        };
        let (mut before, mut since) = (slept(), Instant::now());
        place.until("the poller sleeps", || {
            let now = slept();
            if now != before {
                (before, since) = (now, Instant::now());
            }
            since.elapsed() > Duration::from_secs(2)
        });
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.pid().to_string()])
            .status();
        assert!(sent.expect("kill").success());
    }

    /// Whether it has.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_some()
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        self.ended_or(|| {})
    }

    /// Waits for its end, and looks at something else again and again meanwhile.
    pub fn ended_or(&mut self, mut look: impl FnMut()) -> ExitStatus {
        let deadline = Instant::now() + patience();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                return status;
            }
            look();
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// How long a test waits for what must come, in seconds `IDEMPOLL_PATIENCE`: long enough for
/// a busy machine to make hundreds of deliveries, and less where it is known not to come, as
/// under a deliberate fault.
pub fn patience() -> Duration {
    let seconds = std::env::var("IDEMPOLL_PATIENCE").ok();
    Duration::from_secs(seconds.and_then(|s| s.parse().ok()).unwrap_or(180))
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

/// Whether processes can be traced here; says so if not.
pub fn can_trace(test: &str) -> bool {
    let mut probe = Command::new("strace");
    probe.args(["-D", "-f", "-qq", "-o", "/dev/null", "true"]);
    let works = probe.output().is_ok_and(|o| o.status.success());
    if !works {
        println!("{test}: skipped, since nothing can be traced here");
    }
    works
}

pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// A process that is in the way, and is ended with its test.
pub struct Stranger(Child);

impl Stranger {
    pub fn new() -> Stranger {
        Stranger(Command::new("sleep").arg("300").spawn().expect("sleep"))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn lives(&mut self) -> bool {
        self.0.try_wait().expect("a child of ours").is_none()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a process is there and has not ended.
pub fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rfind(')')
        .is_some_and(|end| !stat[end..].starts_with(") Z"))
}

/// The parent and the session of a process.
pub fn parent_and_session(pid: u32) -> Option<(u32, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat[stat.rfind(')')? + 2..].split(' ').skip(1);
    let parent = fields.next()?.parse().ok()?;
    Some((parent, fields.nth(1)?.parse().ok()?))
}

/// The children of a process: pid and state (`Z` has ended and was not waited for).
pub fn children(of: u32) -> Vec<(u32, char)> {
    let pids = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = pids.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = stat[stat.rfind(')')? + 2..].split(' ');
        let state = fields.next()?.chars().next()?;
        (fields.next()?.parse() == Ok(of)).then_some((pid, state))
    })
    .collect()
}

/// The descriptors of a process and what they lead to.
pub fn descriptors(pid: u32) -> Vec<(u32, PathBuf)> {
    let dir = fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives");
    let mut found: Vec<(u32, PathBuf)> = dir
        .flatten()
        .filter_map(|e| {
            let fd = e.file_name().to_str()?.parse().ok()?;
            Some((fd, fs::read_link(e.path()).ok()?))
        })
        .collect();
    found.sort();
    found
}

pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

/// Whether namespaces of one's own can be made here, as `unshare` is told to; says so if not.
pub fn can_unshare(test: &str, flags: &[&str]) -> bool {
    let works = is_root()
        && Command::new("unshare")
            .args(flags)
            .arg("true")
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success());
    if !works {
        println!("{test}: skipped, since no such namespace can be made here");
    }
    works
}

/// Whether mounts of one's own can be made here; says so if not.
pub fn can_mount(test: &str) -> bool {
    let works = is_root()
        && Command::new("unshare")
            .args(["-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success());
    if !works {
        println!("{test}: skipped, since no mount namespace can be made here");
    }
    works
}
