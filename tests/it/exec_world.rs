//! A directory, a command that logs what it does, and a poller that may be killed.

use crate::world::program::{binary, lines, patience};
use idempoll::config::checked;
use idempoll::engine::delivery::{Delivery, EventKind, Outcome, Slug};
use idempoll::os::wait::{For, ready};
use idempoll::os::wake::Wake;
use idempoll::sinks::Sink;
use idempoll::sinks::exec::Exec;
use idempoll::sinks::receipt;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A temporary directory, removed at the end. Commands find it in `$1`.
pub struct World {
    pub dir: PathBuf,
}

impl World {
    pub fn new() -> World {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("idempoll-exec-{}-{n}", std::process::id()));
        // A test that failed may have left it, in a process that had the same number.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a temp dir");
        std::os::unix::fs::symlink(binary(), dir.join("real")).expect("a new link");
        World { dir }
    }

    /// A sink that runs `sh -c SCRIPT sh DIR`.
    pub fn sink(&self, script: &str) -> Exec {
        sink(&self.dir, script, Duration::from_secs(60))
    }

    pub fn sink_timing_out(&self, script: &str, timeout: Duration) -> Exec {
        sink(&self.dir, script, timeout)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The lines of a file in the directory; none if it is not there.
    pub fn lines(&self, name: &str) -> Vec<String> {
        lines(&self.path(name))
    }

    pub fn touch(&self, name: &str) {
        fs::write(self.path(name), "").expect("a temp file");
    }

    pub fn until_there(&self, name: &str) {
        eventually(name, || self.path(name).exists().then_some(()));
    }

    pub fn receipt_path(&self, d: &Delivery) -> PathBuf {
        receipt::dir(&self.dir.join("runs"), &d.slug, &d.sink)
            .join(format!("{}.{}.json", d.seq, d.attempt))
    }

    pub fn receipt(&self, d: &Delivery) -> Option<receipt::Run> {
        receipt::read(&self.receipt_path(d))
    }

    /// Waits for the line of the receipt that says which processes run.
    pub fn running(&self, d: &Delivery) -> receipt::Run {
        eventually("a started command", || {
            self.receipt(d).filter(|run| run.started.is_some())
        })
    }

    /// Starts another process that delivers `payload_bytes` to `script` as [`delivery`] 1.
    pub fn poller(&self, stage: &str, script: &str, payload_bytes: usize) -> Poller {
        let mut command = self.poller_command(stage, script, payload_bytes);
        Poller(command.spawn().expect("this test binary starts"))
    }

    pub fn poller_command(&self, stage: &str, script: &str, payload_bytes: usize) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("we run"));
        command
            .args(["--exact", "exec_sink::a_poller_in_a_process_of_its_own"])
            .env("IDEMPOLL_TEST_STAGE", stage)
            .env("IDEMPOLL_TEST_DIR", &self.dir)
            .env("IDEMPOLL_TEST_SCRIPT", script)
            .env("IDEMPOLL_TEST_BYTES", payload_bytes.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A runner that waits at a gate before it is one.
pub fn gated() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/gated_runner.sh")
}

fn sink(dir: &Path, script: &str, timeout: Duration) -> Exec {
    Exec {
        program: binary(),
        settings: checked::Exec {
            command: ["sh", "-c", script, "sh", dir.to_str().expect("ASCII")]
                .map(str::to_string)
                .to_vec(),
            workdir: dir.to_path_buf(),
            timeout,
        },
        runs_dir: dir.join("runs"),
        secret_vars: vec!["IDEMPOLL_TEST_TOKEN".to_string()],
    }
}

/// Delivery `seq` at its first try.
pub fn delivery(seq: u64, payload: &str) -> Delivery {
    let item = "dir:inbox#7".parse().expect("an item");
    Delivery {
        id: format!("{item}/comment/{seq}"),
        event: EventKind::Comment,
        slug: Slug::new("inbox", &item),
        item,
        sink: "hook".to_string(),
        seq,
        attempt: 1,
        payload: payload.into(),
    }
}

/// A poller in a process of its own; killed at the end if not before.
pub struct Poller(pub Child);

impl Poller {
    /// `SIGKILL`, and gone when this returns.
    pub fn kill(mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it is ours");
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What such a process does; returns at once in any other.
pub fn be_a_poller() {
    let var = |name: &str| std::env::var(format!("IDEMPOLL_TEST_{name}")).unwrap_or_default();
    let dir = PathBuf::from(var("DIR"));
    let bytes = var("BYTES").parse().unwrap_or(0);
    let mut exec = sink(&dir, &var("SCRIPT"), Duration::from_secs(60));
    let delivery = delivery(1, &"x".repeat(bytes));
    match var("STAGE").as_str() {
        "" => return,
        "gated" => exec.program = gated(),
        "before-the-runner" => {
            let created = receipt::create(&exec.runs_dir, &delivery).expect("a new receipt");
            fs::write(dir.join("ready"), "").expect("a temp file");
            loop {
                std::thread::park();
                drop(created.file.metadata());
            }
        }
        _ => {}
    }
    let outcome = exec.deliver(&delivery, &never());
    let dir_of_runs = receipt::dir(&exec.runs_dir, &delivery.slug, &delivery.sink);
    if let Some(ended) = receipt::read(&dir_of_runs.join("1.1.json")).and_then(|run| run.ended) {
        let said = format!("{} {}", ended.output.len(), ended.output_left_out);
        fs::write(dir.join("receipt"), said).expect("a temp file");
    }
    fs::write(dir.join("outcome"), format!("{outcome:?}")).expect("a temp file");
}

/// A stop that is never asked for.
pub fn never() -> Wake {
    Wake::new().expect("a descriptor")
}

/// Polls until `look` finds something; not for ever.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < patience(), "no {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs `f` and says how long it took.
pub fn timed<T>(f: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = f();
    (value, start.elapsed())
}

/// Delivers, and says how long it took; asks for a stop when that is longer than `limit`.
pub fn deliver_within(limit: Duration, exec: &Exec, delivery: &Delivery) -> (Outcome, Duration) {
    let stop = never();
    let over = never();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let [over] = ready([Some((over.as_fd(), For::Reading))], Some(limit));
            if !over {
                stop.raise();
            }
        });
        let delivered = timed(|| exec.deliver(delivery, &stop));
        over.raise();
        delivered
    })
}

/// Sends a signal, as the shell would: `kill("KILL", "-77")`.
pub fn kill(signal: &str, whom: &str) {
    let status = Command::new("kill")
        .args(["-s", signal, "--", whom])
        .status();
    assert!(status.expect("kill is there").success(), "kill {whom}");
}

/// The state letter and the parent of a process, if there is one.
pub fn state(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// What the next poller does with a try of unknown outcome until it is
/// resolved, as the engine would ask for it. Says how often it tried anew.
pub fn carry_on(exec: &Exec, mut delivery: Delivery) -> u32 {
    let mut anew = 0;
    for _ in 0..10 {
        let outcome = match exec.settle(&delivery) {
            idempoll::engine::delivery::Receipt::Settled(outcome) => outcome,
            idempoll::engine::delivery::Receipt::Running => exec.wait(&delivery, &never()),
            idempoll::engine::delivery::Receipt::Missing => Outcome::Unknown,
        };
        match outcome {
            Outcome::Delivered => return anew,
            Outcome::Unknown => {
                anew += 1;
                delivery.attempt += 1;
                if exec.deliver(&delivery, &never()) == Outcome::Delivered {
                    return anew;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("never delivered");
}
