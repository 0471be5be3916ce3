//! The commands as the user meets them: the real program, its output and its exit codes.

use crate::exec_world::Poller;
use crate::world::program::{binary, patience};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

const TRUE: &str = r#"["true"]"#;

/// A home of its own with a config for a directory and a command.
struct Home(PathBuf);

impl Home {
    fn new(name: &str, command: &str) -> Home {
        let dir = std::env::temp_dir().join(format!("idempoll-it-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("inbox")).expect("a temporary directory");
        let config = format!(
            r#"{{ "state_dir": "state", "interval_seconds": 1, "max_retries": 0, "authorized_users": ["octocat"],
                 "sources": [{{ "name": "inbox", "provider": "dir", "path": "inbox", "sinks": ["agent"] }}],
                 "sinks": {{ "agent": {{ "type": "exec", "command": {command} }} }} }}"#
        );
        fs::write(dir.join("idempoll.json"), config).expect("a config");
        Home(dir)
    }

    fn item(&self, number: u64) {
        let text = format!(r#"{{"number": {number}, "author": "octocat", "state": "open"}}"#);
        let file = self.0.join("inbox").join(format!("{number}.json"));
        fs::write(file, text).expect("an item");
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(binary());
        command
            .args(line.split_whitespace())
            .current_dir(&self.0)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.0)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().expect("it runs")
    }

    /// Its standard output; the exit code must be `code`.
    fn says(&self, line: &str, code: i32) -> String {
        let output = self.run(line);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{line}: {text}{complaint}"
        );
        text
    }

    /// Asks again and again until `answer` holds.
    fn wait_for(&self, line: &str, answer: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + patience();
        let mut text = String::new();
        while Instant::now() < deadline {
            text = String::from_utf8_lossy(&self.run(line).stdout).into_owned();
            if answer(&text) {
                return;
            }
        }
        panic!("{line} still says: {text}");
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = self.run("stop --if-running");
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Given a full device as standard output, when a command answers, then it
/// fails with exit 1 and says why; given a reader that left, then it is quiet (C127).
#[test]
fn c127_output_that_cannot_be_written_is_an_error_and_a_closed_pipe_is_not() {
    let home = Home::new("c127", TRUE);
    home.item(1);
    home.says("start --once", 0);
    for line in [
        "help",
        "events",
        "items",
        "status --json",
        "show dir:inbox#1",
        "check",
    ] {
        let full = File::options()
            .write(true)
            .open("/dev/full")
            .expect("a full device");
        let output = home.command(line).stdout(full).output().expect("it runs");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{line}: {complaint}");
        assert!(
            complaint.contains("cannot write to standard output: no space"),
            "{complaint}"
        );
        assert!(
            !complaint.contains("panicked") && !complaint.contains("bug"),
            "{complaint}"
        );

        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = home.command(line).stdout(writer).output().expect("it runs");
        let expected = if line.starts_with("status") { 3 } else { 0 };
        assert_eq!(output.status.code(), Some(expected), "{line}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line}");
    }
    // A standard error that is full, too, changes nothing about the exit code.
    let full = || {
        File::options()
            .write(true)
            .open("/dev/full")
            .expect("a full device")
    };
    let status = home.command("bogus").stdout(full()).stderr(full()).status();
    assert_eq!(status.expect("it runs").code(), Some(2));
}

#[test]
fn wrong_words_and_wrong_configs_end_with_exit_2_and_one_sentence() {
    let home = Home::new("wrong", TRUE);
    fs::write(home.0.join("bad.json"), "{ \"interval\": 5 }").expect("a config");
    for (line, complaint) in [
        (
            "strat",
            "idempoll: unknown command 'strat'; did you mean 'start'?\nhint: 'idempoll help' lists the commands\n",
        ),
        (
            "stop --now",
            "idempoll stop: unknown flag --now\nhint: usage: idempoll stop [--timeout SECS] [--if-running]\n",
        ),
    ] {
        let output = home.run(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), complaint);
        assert!(output.stdout.is_empty());
    }
    for line in [
        "start --config bad.json",
        "check --config bad.json",
        "check --config gone.json",
    ] {
        let output = home.run(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        let verb = line.split(' ').next().unwrap_or_default();
        assert!(
            complaint.starts_with(&format!("idempoll {verb}: ")),
            "{complaint}"
        );
    }
    assert!(!home.0.join("state").exists(), "nothing was made");
}

/// Given a poller whose delivery was given up, when it is retried, then the
/// poller tries again, and `stop` is true when it returns (R2.2, R6.7).
#[test]
fn a_poller_is_looked_at_asked_to_retry_and_stopped() {
    let home = Home::new("live", r#"["sh", "-c", "test -e mended"]"#);
    home.item(1);
    let child = home
        .command("start --quiet")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut poller = Poller(child);
    home.wait_for("status --json", |text| text.contains("\"gave_up\": 1"));
    let status = home.says("status", 0);
    assert!(
        status.starts_with(&format!("running, pid {}", poller.0.id())),
        "{status}"
    );
    assert_eq!(home.says("items --gave-up", 0).lines().count(), 2);

    // A broken config hides no running poller.
    let config = home.0.join("idempoll.json");
    let right = fs::read_to_string(&config).expect("a config");
    fs::write(&config, right.replace("\"sinks\": {", "\"snks\": {")).expect("a config");
    home.says("status", 0);
    assert_eq!(home.run("check").status.code(), Some(2));
    fs::write(&config, right).expect("a config");

    fs::write(home.0.join("mended"), "").expect("a file");
    let answer = home.says("retry dir:inbox#1 opened", 0);
    assert_eq!(answer, "1 delivery will be tried again\n");
    home.wait_for("items --json", |text| text.contains("\"delivered\": 1"));
    assert_eq!(home.says("retry --all", 0), "nothing was given up\n");

    let answer = home.says("stop", 0);
    assert_eq!(answer, format!("stopped (pid {})\n", poller.0.id()));
    let ended = poller.0.try_wait().expect("our own child");
    assert!(
        ended.is_some_and(|status| status.success()),
        "it is gone when stop returns"
    );
    home.says("status", 3);
    home.says("stop", 1);
    home.says("stop --if-running", 0);
}

/// Given a follower, when entries are written, then each is told once, those
/// from before it and those from after.
#[test]
fn events_are_followed_from_the_beginning() {
    let home = Home::new("follow", TRUE);
    home.item(1);
    home.says("start --once", 0);
    let child = home
        .command("events --follow --type dispatch.succeeded")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut follower = Poller(child);
    let out = follower.0.stdout.take().expect("it is piped");
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            let _ = tell.send(line);
        }
    });
    let next = || told.recv_timeout(patience()).expect("a line in time");
    assert!(next().contains("delivery_id=dir:inbox#1/opened"));
    home.item(2);
    home.says("start --once", 0);
    assert!(next().contains("delivery_id=dir:inbox#2/opened"));
    assert!(told.try_recv().is_err(), "and nothing twice");
}

/// Given nothing, when the words `init` prints are followed, then a delivery is made.
#[test]
fn what_init_writes_works_at_once() {
    let home = Home::new("init", TRUE);
    fs::remove_file(home.0.join("idempoll.json")).expect("our own file");
    fs::remove_dir(home.0.join("inbox")).expect("our own directory");
    let words = home.says("init", 0);
    home.says("check", 0);
    // Enough of them for two to come at the same time.
    (1..=60).for_each(|number| home.item(number));
    assert_eq!(
        home.says("start --once", 0),
        "cycle: 60 items, 60 opened, 0 comments, 0 closed, 0 failed\n"
    );
    let delivered = fs::read_to_string(home.0.join("delivered.jsonl")).expect("what the sink kept");
    let ids: BTreeSet<String> = delivered
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("an event a line"))
        .map(|event| event["delivery_id"].to_string())
        .collect();
    assert_eq!((ids.len(), delivered.lines().count()), (60, 60));
    assert!(ids.contains("\"dir:inbox#1/opened\""), "{ids:?}");
    assert!(words.contains("idempoll start --once\n"), "{words}");
    assert_eq!(
        home.run("init").status.code(),
        Some(1),
        "never over a file that is there"
    );
}
