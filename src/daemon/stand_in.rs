//! Stand-ins for pollers, each in a process of its own, for the tests of this
//! room: the test binary starts itself again and plays a part.

#![allow(clippy::disallowed_methods, reason = "tests")]

use super::clock::{self, Mono};
use super::holder;
use super::runlock::{PATIENCE, Refused, RunLock};
use super::signals;
use super::stop::stop;
use crate::os::file::open_directory;
use crate::os::flock::Locked;
use crate::os::pid::Pid;
use crate::os::wait;
use crate::scratch;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Longer than anything takes on a busy machine, shorter than anybody waits.
pub const LONG: Duration = Duration::from_secs(60);

/// A user other than root that owns nothing.
pub const NOBODY: u32 = 65_534;

/// A directory for one test, with what a poller has in it.
pub struct Scratch(scratch::Scratch);

impl Scratch {
    pub fn new() -> Scratch {
        Scratch(scratch::Scratch::new())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    pub fn pidfile(&self) -> PathBuf {
        self.state().join("poll.pid")
    }

    /// The state directory, made.
    pub fn with_state(self) -> Scratch {
        fs::create_dir(self.state()).expect("it can be made");
        self
    }
}

/// Waits until `is` is so, and fails the test if that takes too long.
pub fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let end = Mono::now().plus(LONG);
    while !is() {
        assert!(!end.passed(), "still not so: {what}");
        wait::pause(Duration::from_millis(2));
    }
}

/// A process that plays a part; killed when dropped.
pub struct StandIn {
    pub child: Child,
    out: BufReader<ChildStdout>,
}

/// The command that plays `part`; `before` are words in front of it (`nohup`, …).
pub fn command(part: &str, scratch: &Scratch, before: &[&str]) -> Command {
    let exe = std::env::current_exe().expect("there is one");
    let mut words = before
        .iter()
        .map(Into::into)
        .collect::<Vec<std::ffi::OsString>>();
    words.push(exe.into());
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .args(["--exact", "daemon::stand_in::plays_its_part", "--nocapture"])
        .env("IDEMPOLL_TEST_PART", part)
        .env("IDEMPOLL_TEST_STATE", scratch.state())
        .env("IDEMPOLL_TEST_PIDFILE", scratch.pidfile())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

impl StandIn {
    /// Starts one and waits until it has said that it is ready.
    pub fn ready(part: &str, scratch: &Scratch) -> StandIn {
        StandIn::ready_from(command(part, scratch, &[]))
    }

    pub fn ready_from(mut command: Command) -> StandIn {
        let mut child = command.spawn().expect("we can be started again");
        let out = child.stdout.take().expect("it is a pipe");
        let mut stand_in = StandIn {
            child,
            out: BufReader::new(out),
        };
        stand_in.until("ready");
        stand_in
    }

    /// Waits until it has said `word`.
    pub fn until(&mut self, word: &str) {
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            let read = self.out.read_line(&mut line).expect("it is text");
            assert!(read > 0, "it ended before it said '{word}'");
        }
    }

    pub fn pid(&self) -> Pid {
        Pid::new(self.child.id()).expect("a child has a pid")
    }

    /// Waits for its end; gives its exit code (`None`: a signal) and what it said.
    pub fn end(mut self) -> (Option<i32>, String) {
        let mut status = None;
        eventually("it ended", || {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).expect("it is text");
        (status.and_then(|s| s.code()), rest)
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Has another user play a part and gives what it said. The binary is copied to
/// where that user can reach it. `None` where we are not root.
pub fn as_nobody(part: &str, scratch: &Scratch) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    if crate::os::pid::User::effective() != crate::os::pid::User::ROOT {
        return None;
    }
    let exe = scratch.path().join("exe");
    // By another process: while one forked for another test has a copy of our descriptor, to
    // write, it cannot be run.
    let original = std::env::current_exe().expect("there is one");
    let copied = Command::new("cp").arg(original).arg(&exe).status();
    assert!(copied.expect("cp is there").success());
    for path in [scratch.path(), &exe] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    let exe = exe.to_str().expect("our own name");
    let mut command = Command::new(exe);
    let model = self::command(part, scratch, &[]);
    command.args(model.get_args());
    for (key, value) in model.get_envs() {
        command.env(key, value.expect("only set"));
    }
    let out = command.uid(NOBODY).gid(NOBODY).current_dir("/").output();
    Some(String::from_utf8_lossy(&out.expect("it runs").stdout).into_owned())
}

fn say(text: &str) {
    let mut out = std::io::stdout();
    let said = out.write_all(format!("{text}\n").as_bytes());
    said.and_then(|()| out.flush()).expect("the test listens");
}

/// Not a test of its own: does nothing unless it was started to play a part.
#[test]
fn plays_its_part() {
    let Ok(part) = std::env::var("IDEMPOLL_TEST_PART") else {
        return;
    };
    let path = |name| PathBuf::from(std::env::var_os(name).expect("whoever starts us sets it"));
    let (state, pidfile) = (path("IDEMPOLL_TEST_STATE"), path("IDEMPOLL_TEST_PIDFILE"));
    let code = match part.as_str() {
        "race" => race(&state, &pidfile),
        "leaky" => leak(&state, &pidfile),
        "starter" | "turnstile" | "stopper" | "prober" | "meddler" => super::race::play(&part),
        "claims" => {
            say("ready");
            super::claims::tests::contend(&state, Mono::now().plus(LONG));
            0
        }
        "stop" => {
            match stop(&state, &pidfile, Duration::from_secs(2), false) {
                Ok(done) => say(&format!("done: {done:?}")),
                Err(e) => say(&format!(
                    "error: {e}\nhint: {}",
                    e.hint.clone().unwrap_or_default()
                )),
            }
            0
        }
        "acquire" => {
            match RunLock::acquire(&state, &pidfile, Duration::ZERO) {
                Ok(_) => say("acquired"),
                Err(Refused::Busy { error, .. }) => say(&format!("busy: {error}")),
                Err(Refused::Failed(error)) => {
                    say(&format!(
                        "error: {error}\nhint: {}",
                        error.hint.clone().unwrap_or_default()
                    ));
                }
            }
            0
        }
        part => poll(part, &state, &pidfile),
    };
    std::process::exit(code);
}

/// A poller without any work. `deaf` never heeds a stop, `slow` takes its time
/// before it says who it is, `hasty` heeds only the second signal, `lingering`
/// takes its time after it gave its lock back, `dazed` before it says that it was asked,
/// which `mute` never does.
fn poll(part: &str, state: &Path, pidfile: &Path) -> i32 {
    let ask = signals::install().expect("once per process");
    let lock = RunLock::acquire(state, pidfile, PATIENCE).expect("nobody else runs");
    if part == "slow" {
        say("ready");
        wait::pause(Duration::from_millis(300));
    }
    let mut info = holder::this_process(Path::new("/c.json"), pidfile);
    info.write(state).expect("it can be written");
    if part != "slow" {
        say("ready");
    }
    // Not for ever: whoever started us may have died.
    let end = Mono::now().plus(2 * LONG);
    let wait_for = |wake: &crate::os::wake::Wake| {
        while !wake.raised() && !end.passed() {
            wait::readable(wake.as_fd(), end.left()).expect("poll works");
        }
    };
    wait_for(&ask.stop);
    say("asked");
    if part == "dazed" || part == "mute" {
        let pause = if part == "dazed" { LONG / 120 } else { LONG };
        wait::readable(ask.now.as_fd(), pause).expect("poll works");
        if ask.now.raised() {
            return 130;
        }
    }
    info.stop_asked_at = Some(clock::now());
    info.write(state).expect("it can be written");
    if part == "hasty" {
        wait_for(&ask.now);
        drop(lock);
        return 130;
    }
    while part == "deaf" && !end.passed() {
        wait::pause(end.left());
    }
    info.stopped_at = Some(clock::now());
    info.write(state).expect("it can be written");
    lock.release().expect("the pidfile can be removed");
    if part == "lingering" {
        wait::pause(Duration::from_millis(300));
    }
    0
}

/// A poller whose lock a child has a copy of, so that it outlives the poller.
fn leak(state: &Path, pidfile: &Path) -> i32 {
    let ask = signals::install().expect("once per process");
    fs::create_dir(state).expect("it can be made");
    let directory = open_directory(state).expect("it is there");
    let locked = Locked::exclusive(directory).expect("flock works");
    let locked = locked.expect("nobody else runs");
    let copy = locked.file().try_clone().expect("a descriptor is free");
    let info = holder::this_process(Path::new("/c.json"), pidfile);
    info.write(state).expect("it can be written");
    say("ready");
    wait::readable(ask.stop.as_fd(), LONG).expect("poll works");
    let mut child = Command::new("sleep");
    child.arg("0.3").stdin(copy).stdout(Stdio::null());
    child.spawn().expect("sleep is there");
    // As SIGKILL would: nothing is unlocked.
    std::process::exit(0);
}

/// What contenders for one lock saw.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub acquired: u32,
    pub overlaps: u32,
    /// Gave up because the pidfile was gone whenever it was looked at.
    pub gone: u32,
    /// Failed for any other reason.
    pub failed: u32,
}

impl Seen {
    fn and(self, other: &Seen) -> Seen {
        Seen {
            acquired: self.acquired + other.acquired,
            overlaps: self.overlaps + other.overlaps,
            gone: self.gone + other.gone,
            failed: self.failed + other.failed,
        }
    }
}

/// Takes and releases the lock again and again for two seconds. Whoever has it
/// makes a marker, which must not be there yet: the marker knows nothing of locks.
pub fn contend(state: &Path, pidfile: &Path, marker: &Path) -> Seen {
    let end = Mono::now().plus(Duration::from_secs(2));
    let mut seen = Seen::default();
    while !end.passed() {
        match RunLock::acquire(state, pidfile, Duration::from_millis(1)) {
            Ok(lock) => {
                seen.acquired += 1;
                match fs::File::create_new(marker) {
                    Ok(_) => fs::remove_file(marker).expect("nobody else removes it"),
                    Err(_) => seen.overlaps += 1,
                }
                // Removing may fail: the test deletes the pidfile under us.
                let _ = lock.release();
            }
            Err(Refused::Busy { .. }) => {}
            Err(Refused::Failed(error)) if error.cause.contains("again and again") => {
                seen.gone += 1;
            }
            Err(Refused::Failed(error)) => {
                seen.failed += 1;
                say(&format!("failed: {error}"));
            }
        }
    }
    seen
}

fn race(state: &Path, pidfile: &Path) -> i32 {
    let marker = PathBuf::from(std::env::var_os("IDEMPOLL_TEST_MARKER").expect("it is set"));
    say("ready");
    let seen = contend(state, pidfile, &marker);
    say(&format!(
        "seen {} {} {} {}",
        seen.acquired, seen.overlaps, seen.gone, seen.failed
    ));
    0
}

/// Has two threads and two processes contend for two seconds, on one state
/// directory or on one each, all with the same pidfile.
pub fn contest(scratch: &Scratch, pidfile: &Path, one_state_dir: bool) -> Seen {
    let mut all = Seen::default();
    // On a machine that does much else few of them get their turn in one round.
    for _ in 0..30 {
        all = all.and(&a_round(scratch, pidfile, one_state_dir));
        if all.acquired > 10 {
            break;
        }
    }
    all
}

fn a_round(scratch: &Scratch, pidfile: &Path, one_state_dir: bool) -> Seen {
    let marker = scratch.path().join("marker");
    let state = |n: usize| match one_state_dir {
        true => scratch.state(),
        false => scratch.path().join(format!("state-{n}")),
    };
    let processes: Vec<StandIn> = (0..2)
        .map(|n| {
            let mut command = command("race", scratch, &[]);
            command.env("IDEMPOLL_TEST_STATE", state(n));
            command.env("IDEMPOLL_TEST_PIDFILE", pidfile);
            command.env("IDEMPOLL_TEST_MARKER", &marker);
            StandIn::ready_from(command)
        })
        .collect();
    let mut all: Vec<Seen> = std::thread::scope(|scope| {
        let threads: Vec<_> = (2..4)
            .map(|n| {
                let (state, marker) = (state(n), &marker);
                scope.spawn(move || contend(&state, pidfile, marker))
            })
            .collect();
        let joined = threads.into_iter().map(|t| t.join().expect("no panic"));
        joined.collect()
    });
    for process in processes {
        let (_, said) = process.end();
        let at = said.find("seen ").expect("it says what it saw");
        let mut numbers = said[at + 5..]
            .split_whitespace()
            .map_while(|n| n.parse().ok());
        let mut next = || numbers.next().expect("four numbers");
        all.push(Seen {
            acquired: next(),
            overlaps: next(),
            gone: next(),
            failed: next(),
        });
    }
    all.iter().fold(Seen::default(), Seen::and)
}
