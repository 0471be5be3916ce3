//! What is around the program: who started it, as whom, in which namespaces, on which disk,
//! with which network, and what happens to it while it starts.

use crate::bad_input::Apart;
use crate::exec_world::kill;
use crate::world::program::{
    Answer, GATED, LOG, Place, Running, binary, can_mount, can_unshare, children, exists, is_root,
    lives, scaled,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Generous: what is meant is that nothing is waited out.
const PROMPT: Duration = Duration::from_secs(5);

fn wait(how_long: Duration) {
    std::thread::sleep(how_long);
}

/// Stops the poller, and says how long that took.
fn stop(place: &Place, poller: &mut Running, during: &str) -> Duration {
    let since = Instant::now();
    place.run(&["stop"]).expect(0);
    let took = since.elapsed();
    println!("stop during {during}: {took:?}");
    assert_eq!(poller.ended().code(), Some(0), "{during}");
    took
}

/// Given a system without `/proc`, as a bare chroot is, when a poller is to start, then none does, and what to do is said.
#[test]
fn without_proc_no_poller_starts() {
    if !can_unshare("without /proc", &["--mount"]) {
        return;
    }
    let place = Place::new(LOG);
    place.item(1, 0);
    let script = r#"exec unshare --mount sh -c 'umount -l /proc && exec "$@"' sh "$@""#;
    let mut command = place.shell(script, &["start", "--once"]);
    let answer = Answer::of(command.output().expect("sh is there")).expect(1);
    let said = answer.stderr;
    assert!(said.contains("cannot work without /proc"), "{said}");
    assert!(said.contains("hint: mount it"), "{said}");
    assert!(place.lines("ids.log").is_empty());
    place.once().expect(0);
}

/// Given a `run.json` that cannot be written, then work goes on, and that is said once, and once more after it could
/// be meanwhile (R3.5).
#[test]
fn r3_5_a_run_json_that_cannot_be_written_is_said_once() {
    let place = Place::new(LOG);
    place.once().expect(0);
    let path = place.path("state/run.json");
    let in_the_way = || {
        fs::remove_file(&path).expect("it is there");
        fs::create_dir(&path).expect("a directory");
        fs::write(path.join("file"), "").expect("a file");
    };
    let said = || {
        let lines = place.lines("stderr.log");
        lines.iter().filter(|l| l.contains("run.json")).count()
    };
    let mut poller = place.start();
    let cycles = |items: std::ops::RangeInclusive<u64>| {
        for number in items {
            place.item(number, 0);
            place.until("it is told of", || {
                place.entries("dispatch.succeeded").len() as u64 == number
            });
        }
    };
    in_the_way();
    cycles(1..=3);
    assert_eq!(said(), 1, "{}", place.story());
    fs::remove_dir_all(&path).expect("it is there");
    cycles(4..=4);
    place.until("it is written", || path.is_file());
    in_the_way();
    cycles(5..=6);
    assert_eq!(said(), 2, "{}", place.story());
    poller.signal("TERM");
    assert_eq!(poller.ended().code(), Some(0));
}

/// Given a hundred pollers started under `nohup`, when the terminal hangs up, then none takes
/// notice, and each stops cleanly at a SIGTERM (R2.6, C090).
#[test]
fn c090_a_hundred_starts_under_nohup_all_stop_cleanly() {
    let place = Place::new(LOG);
    place.once().expect(0);
    for round in 1..=scaled(100) {
        let started = place.entries("poller.started").len();
        let mut command = place.shell(r#"exec nohup "$@" > nohup.log 2>&1"#, &["start"]);
        let mut poller = place.spawn(&mut command);
        // From its first moments on: it is about to look for its first items.
        place.until("it runs", || {
            place.entries("poller.started").len() > started
        });
        poller.signal("HUP");
        // One that took notice would end by itself, soon.
        if round <= 3 {
            std::thread::sleep(Duration::from_millis(300));
        }
        assert!(lives(poller.pid()), "round {round}");
        poller.signal("TERM");
        assert_eq!(poller.ended().code(), Some(0), "round {round}");
        assert!(!exists(&place.path("state/poll.pid")), "round {round}");
        let stopped = place.entries("poller.stopped").len();
        assert_eq!(stopped, place.entries("poller.started").len());
    }
    assert_eq!(place.run(&["status"]).code, Some(3));
}

/// Given a poller in a hundred places of its start-up, when SIGTERM comes just there, then it
/// ends with 0, or by the signal before it can know better, and leaves nothing behind: no
/// pidfile, no lock, and the next start works (R2.6, R2.4).
#[test]
fn r2_6_a_signal_at_any_moment_of_the_start_leaves_nothing_behind() {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("r2_6: skipped, since there is no strace here");
        return;
    }
    let place = Place::new(LOG);
    let traced = |options: &[&str], args: &[&str]| {
        let mut command = place.traced(options, args);
        command.stderr(Stdio::null());
        command
    };
    // What the main thread asks of the kernel in one whole run, the first of all: each call by
    // its name, and the how many-th of that name it is.
    let whole = traced(&[], &["start", "--once"]).status();
    assert!(whole.expect("strace").success());
    place.until("all of it is written down", || {
        let last = place.lines("trace.log").pop();
        last.is_some_and(|line| line.starts_with("+++"))
    });
    let mut counts = BTreeMap::new();
    let mut calls = Vec::new();
    for line in place.lines("trace.log") {
        let Some((name, _)) = line.split_once('(') else {
            continue;
        };
        let count = counts.entry(name.to_string()).or_insert(0);
        *count += 1;
        calls.push(format!("{name}:signal=TERM:when={count}"));
    }
    let rounds = scaled(100).min(calls.len() as u64) as usize;
    let (mut by_signal, mut missed) = (0, 0);
    for round in 0..rounds {
        let at = &calls[round * calls.len() / rounds];
        place.item(1 + round as u64, 0);
        let since = Instant::now();
        let inject = format!("inject={at}");
        let mut poller = place.spawn(&mut traced(&["-e", &inject], &["start"]));
        let ended = poller.ended_or(|| {
            // Another run than the first does without that call.
            if since.elapsed() > Duration::from_secs(3) && !exists(&place.path("missed")) {
                missed += 1;
                place.write("missed", "");
                place.run(&["stop"]);
            }
        });
        let _ = fs::remove_file(place.path("missed"));
        by_signal += usize::from(ended.signal() == Some(15));
        assert!(
            ended.code() == Some(0) || ended.signal() == Some(15),
            "at {at}: {ended}\n{}",
            place.lines("trace.log").join("\n")
        );
        assert!(!exists(&place.path("state/poll.pid")), "at {at}");
        assert_eq!(place.run(&["status"]).code, Some(3), "at {at}");
    }
    println!(
        "{rounds} of {} moments; at {by_signal} it could not know better, {missed} never came",
        calls.len()
    );
    assert!(by_signal + missed < rounds);
    // Those that were begun are about to end.
    place.until("nothing is left to do", || {
        place.once().code == Some(0) && place.pending() == 0
    });
    let mut ids = place.lines("ids.log");
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), rounds);
    assert_eq!(ids.len(), place.lines("ids.log").len(), "{}", place.story());
}

/// Given a runner and its command that are stopped together for longer than the command may run,
/// when they go on, then the command has the time it had, and is delivered (R6.3, C024).
#[test]
fn c024_a_run_that_was_stopped_has_not_timed_out() {
    let place = timing_out(4);
    let poller = place.start();
    place.until("the command runs", || place.lines("begun.log").len() == 1);
    let command = place.lines("begun.log")[0].clone();
    let runner = children(poller.pid())[0].0;
    let both = [runner.to_string(), format!("-{command}")];
    stopped_for_long(&place, &both, &command);
    place.until("it is delivered", || {
        place.lines("ids.log").len() == 1 && place.pending() == 0
    });
    assert!(place.entries("dispatch.failed").is_empty());
    assert_eq!(place.lines("begun.log").len(), 1);
}

/// Given a command whose runner was killed, and a poller that is stopped together with it for
/// longer than the command may run, when they go on, then the command has the time it had (C024).
#[test]
fn c024_a_command_without_its_runner_has_not_timed_out_either() {
    let place = timing_out(4);
    let poller = place.start();
    place.until("the command runs", || place.lines("begun.log").len() == 1);
    let command = place.lines("begun.log")[0].clone();
    let runner = children(poller.pid())[0].0;
    kill("KILL", &runner.to_string());
    place.until("its runner is gone", || children(poller.pid()).is_empty());
    let both = [poller.pid().to_string(), format!("-{command}")];
    stopped_for_long(&place, &both, &command);
    // Nobody was there to say how it ended, so it is run a second time.
    place.until("both have ended", || {
        place.lines("ids.log").len() == 2 && place.pending() == 0
    });
    assert_eq!(place.lines("begun.log").len(), 2);
}

fn timing_out(seconds: u64) -> Place {
    let place = Place::new(GATED);
    let mut config = place.config(GATED);
    config["sinks"]["log"]["timeout_seconds"] = json!(seconds);
    place.configure(&config);
    place.item(1, 0);
    place
}

/// Stops processes for longer than the command may run; it must still run a while after.
fn stopped_for_long(place: &Place, whom: &[String], command: &str) {
    for whom in whom {
        kill("STOP", whom);
    }
    wait(Duration::from_secs(5));
    for whom in whom {
        kill("CONT", whom);
    }
    wait(Duration::from_secs(1));
    let command: u32 = command.parse().expect("a pid");
    assert!(lives(command), "{}", place.story());
    place.write("go", "");
}

/// Given a command that has half an hour to go, when `stop` is called, then it does not wait for
/// it, and the command goes on (R2.2, R2.7).
#[test]
fn r2_7_a_stop_does_not_wait_for_a_long_command() {
    let place = Place::new(r#"echo $$ > command.pid; exec sleep 1800"#);
    place.item(1, 0);
    let mut poller = place.start();
    place.until("the command runs", || {
        !place.lines("command.pid").is_empty()
    });
    let command: u32 = place.lines("command.pid")[0].parse().expect("a pid");
    let took = stop(&place, &mut poller, "a command of half an hour");
    assert!(took < PROMPT, "{took:?}");
    assert!(lives(command));
    kill("KILL", &command.to_string());
}

/// A name server that hears and never answers, in a network of its own.
const SILENT: &str = r#"
import fcntl, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 0x41))
s.bind(("127.0.0.1", 53))
open("silent", "w").close()
s.recvfrom(4096)
open("asked", "w").close()
while True: s.recvfrom(4096)
"#;

/// Given a tracker whose name is being looked up at a name server that does not answer, when
/// `stop` is called, then it does not wait for it (R2.2, R2.5).
#[test]
fn r2_5_a_stop_does_not_wait_for_a_name_server() {
    const APART: [&str; 2] = ["-n", "-m"];
    if !can_unshare("r2_5", &APART) || !exists(Path::new("/etc/resolv.conf")) {
        return;
    }
    let place = Place::new(LOG);
    let mut config = place.config(LOG);
    config["sources"] = json!([{ "name": "forge", "provider": "github", "repos": ["octo/widgets"],
        "base_url": "https://forge.example.org", "sinks": ["log"] }]);
    place.configure(&config);
    place.write("resolv.conf", "nameserver 127.0.0.1\noptions timeout:30\n");
    place.write("silent.py", SILENT);
    let script = r#"mount --bind resolv.conf /etc/resolv.conf && { timeout 120 python3 silent.py & }
        while [ ! -e silent ]; do sleep 0.02; done; exec "$@""#;
    let shell = place.shell(script, &["start"]);
    let mut command = Command::new("unshare");
    command.args(APART).arg("sh").args(shell.get_args());
    command.current_dir(&place.dir).stdin(Stdio::null());
    let log = fs::File::create(place.path("stderr.log")).expect("a log");
    let mut poller = place.spawn(command.stdout(Stdio::null()).stderr(log));
    place.until("the name is being looked up", || {
        exists(&place.path("asked"))
    });
    let server = children(poller.pid());
    let took = stop(&place, &mut poller, "a look-up that hangs");
    for (server, _) in server {
        kill("TERM", &server.to_string());
    }
    assert!(took < PROMPT, "{took:?}");
    assert!(!exists(&place.path("state/poll.pid")));
}

/// The one who is nobody.
const NOBODY: u32 = 65534;

/// A place that belongs to nobody, with a program nobody may run.
fn nobodys(script: &str) -> Place {
    let place = Place::new(script);
    let program = place.path("idempoll");
    // In the place, since the way to the original may be closed to others.
    if fs::hard_link(binary(), &program).is_err() {
        // By another process, as in `Place::script`.
        let copied = Command::new("cp").arg(binary()).arg(&program).status();
        assert!(copied.expect("cp").success());
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("ours");
    for name in ["", "inbox", "idempoll.json"] {
        let path = place.path(name);
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
        chown(&path, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
    place
}

fn as_nobody(place: &Place, args: &[&str]) -> Answer {
    let inner = place.command(args);
    let mut command = Command::new(place.path("idempoll"));
    command
        .args(inner.get_args())
        .current_dir(&place.dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .uid(NOBODY)
        .gid(NOBODY);
    Answer::of(command.output().expect("it starts"))
}

/// Given an ordinary user, when the program is run with a state of its own, then all of it works; and
/// a stale pidfile that names a process of root's is stale: nobody is signalled, nothing
/// is claimed, and the start works (R2.1, C101).
#[test]
fn c101_an_ordinary_user_is_served_and_never_mistakes_roots_process() {
    if !is_root() {
        println!("c101: skipped, since this is not root");
        return;
    }
    let place = nobodys(LOG);
    place.item(1, 1);
    as_nobody(&place, &["start", "--once", "-q"]).expect(0);
    assert_eq!(place.lines("ids.log").len(), 2, "{}", place.story());
    for root in [std::process::id(), 1] {
        place.write("state/poll.pid", &format!("{root}\n"));
        chown(place.path("state/poll.pid"), Some(NOBODY), Some(NOBODY)).expect("root may");
        let said = as_nobody(&place, &["status"]).expect(1);
        for part in ["not running", &format!("pid {root}")] {
            assert!(said.stdout.contains(part), "{part}: {}", said.stdout);
        }
        as_nobody(&place, &["start", "--once", "-q"]).expect(0);
        place.write("state/poll.pid", &format!("{root}\n"));
        chown(place.path("state/poll.pid"), Some(NOBODY), Some(NOBODY)).expect("root may");
        let said = as_nobody(&place, &["stop"]).expect(1);
        assert_eq!(said.stdout, "");
        assert!(said.stderr.contains("stale"), "{}", said.stderr);
        assert!(!exists(&place.path("state/poll.pid")));
    }
    assert_eq!(place.lines("ids.log").len(), 2);
}

/// Given a pidfile, a record, or all of the state that belongs to root alone, when an ordinary user
/// runs the program, then it names the file and the owner and claims nothing, and
/// `status` and `items` read what they can (R1.9, C122).
#[test]
fn c122_what_belongs_to_root_is_named_and_the_rest_is_read() {
    if !is_root() {
        println!("c122: skipped, since this is not root");
        return;
    }
    let place = nobodys(LOG);
    place.item(1, 0);
    place.item(2, 0);
    as_nobody(&place, &["start", "--once", "-q"]).expect(0);
    let closed = |name: &str, owner: u32, mode: u32| {
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).expect("root may");
        chown(place.path(name), Some(owner), Some(owner)).expect("root may");
    };
    let names = |said: &Answer, file: &str| {
        let path = place.path(file).display().to_string();
        for part in [path.as_str(), "root"] {
            assert!(said.stderr.contains(part), "{part}: {}", said.stderr);
        }
        for part in ["another poller", "panicked"] {
            assert!(!said.stderr.contains(part), "{}", said.stderr);
        }
        assert_eq!(said.stdout, "");
    };
    // The pidfile.
    place.write("state/poll.pid", "1\n");
    closed("state/poll.pid", 0, 0o600);
    names(
        &as_nobody(&place, &["start", "--once"]).expect(1),
        "state/poll.pid",
    );
    let said = as_nobody(&place, &["status"]).expect(1);
    assert!(said.stdout.contains("not running"), "{}", said.stdout);
    let said = as_nobody(&place, &["stop"]).expect(1);
    assert!(said.stderr.contains("poll.pid") && said.stdout.is_empty());
    let _ = fs::remove_file(place.path("state/poll.pid"));
    // A record: its item waits, the other one goes on.
    closed("state/items/inbox~1.json", 0, 0o600);
    place.item(1, 1);
    place.item(2, 1);
    let said = as_nobody(&place, &["start", "--once", "-q"]).expect(1);
    for part in ["inbox~1.json", "root"] {
        assert!(said.stderr.contains(part), "{part}: {}", said.stderr);
    }
    assert_eq!(place.lines("ids.log").len(), 3, "{}", place.story());
    as_nobody(&place, &["status"]).expect(3);
    let said = as_nobody(&place, &["items"]);
    assert!(said.stdout.contains("dir:inbox#2"), "{}", said.stdout);
    closed("state/items/inbox~1.json", NOBODY, 0o600);
    as_nobody(&place, &["start", "--once", "-q"]).expect(0);
    assert_eq!(place.lines("ids.log").len(), 4, "{}", place.story());
    // All of it.
    closed("state", 0, 0o700);
    for args in [
        &["start", "--once"][..],
        &["status"],
        &["stop"],
        &["items"],
        &["retry", "--all"],
    ] {
        let said = as_nobody(&place, args).expect(1);
        names(&said, "state");
    }
}

/// Given a poller, when the program is run in another pid namespace with the same state directory,
/// then it is refused there, and so is `stop`; once the poller is killed, it
/// takes over there (R1.1, R2.1).
#[test]
fn r2_1_a_poller_outside_of_a_container_is_not_ended_from_within() {
    const INSIDE: [&str; 4] = ["-p", "-f", "--mount-proc", "--kill-child"];
    if !can_unshare("r2_1", &INSIDE) {
        return;
    }
    let place = Place::new(LOG);
    place.item(1, 0);
    let poller = place.start();
    place.until("it works", || place.lines("ids.log").len() == 1);
    place.until("it is recorded", || place.pending() == 0);
    let inside = |args: &[&str]| {
        let output = place.unshared(&INSIDE, args).output();
        Answer::of(output.expect("unshare"))
    };
    let said = inside(&["start", "--once"]).expect(1);
    for part in ["another poller", "pid namespace"] {
        assert!(said.stderr.contains(part), "{part}: {}", said.stderr);
    }
    let said = inside(&["stop", "--timeout", "2"]).expect(1);
    for part in ["pid namespace", "outside of this one"] {
        assert!(said.stderr.contains(part), "{part}: {}", said.stderr);
    }
    let said = inside(&["status"]).expect(0);
    assert!(said.stdout.contains("running"), "{}", said.stdout);
    assert!(lives(poller.pid()));
    poller.kill();
    place.item(2, 0);
    inside(&["start", "--once", "-q"]).expect(0);
    assert_eq!(place.lines("ids.log").len(), 2, "{}", place.story());
}

/// Given a small disk that something else fills while the poller works, when room is made, then it
/// goes on by itself; nothing was delivered that was not recorded, and each once (R3.5, C119).
#[test]
fn c119_a_disk_that_others_fill_is_waited_for() {
    if !can_mount("c119") {
        return;
    }
    let place = Place::new(LOG);
    fs::create_dir(place.state()).expect("new");
    place.item(1, 0);
    let script = r#"mount -t tmpfs -o size=128k,mode=700 tmpfs state && exec "$@""#;
    let mut apart = Apart::start(&place, script);
    place.until("it works", || place.lines("ids.log").len() == 1);
    place.until("it is recorded", || apart.status()["pending"] == 0);
    apart.run("cat /dev/zero > state/filler 2> /dev/null; true", &[]);
    for number in 2..=5 {
        place.item(number, 0);
    }
    place.until("it says so", || apart.status()["store_error"].is_string());
    assert_eq!(place.lines("ids.log").len(), 1);
    apart.run("rm state/filler", &[]).expect(0);
    place.until("it goes on", || {
        let status = apart.status();
        status["store_error"].is_null() && status["pending"] == 0
    });
    apart.run(r#"exec "$@""#, &["stop"]).expect(0);
    assert!(apart.poller.ended().success());
    let mut ids = place.lines("ids.log");
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), place.lines("ids.log").len()), (5, 5));
}

/// Given a limit on how large files may grow, and commands that print more than that, when
/// they are delivered to, then each runs once and its outcome is recorded without what it
/// printed; no signal of that limit ends the poller or a runner (R3.5, R6.2).
#[test]
fn r3_5_a_limit_on_the_size_of_files_ends_nobody() {
    let place = Place::new(
        r#"head -c 60000 /dev/zero | tr '\0' x; echo "$IDEMPOLL_DELIVERY_ID" >> ids.log"#,
    );
    place.item(1, 1);
    // In blocks of 512 bytes.
    let mut command = place.shell(r#"ulimit -f 64; exec "$@""#, &["start", "--once"]);
    let said = Answer::of(command.output().expect("sh is there")).expect(0);
    assert!(said.stdout.contains("0 failed"), "{}", said.stdout);
    assert_eq!(
        place.lines("ids.log"),
        ["dir:inbox#1/opened", "dir:inbox#1/comment/1"],
        "{}",
        place.story()
    );
}

/// Given a record that is a mount point of its own, and so cannot be replaced, when its item has news,
/// then that is said with the file's name, not delivered, and nothing is left lying
/// about, while the others go on; once it can be replaced it is delivered (R3.2, R3.5, C118).
#[test]
fn c118_a_record_mounted_on_its_own_holds_up_its_item_alone() {
    if !can_mount("c118") {
        return;
    }
    let place = Place::new(LOG);
    place.item(1, 0);
    place.item(2, 0);
    place.once().expect(0);
    let record = "state/items/inbox~1.json";
    let script = format!(r#"mount --bind {record} {record} && exec "$@""#);
    let mut apart = Apart::start(&place, &script);
    place.item(1, 1);
    place.item(2, 1);
    place.until("the other one is delivered", || {
        place.lines("ids.log").len() == 3
    });
    place.until("it says so", || {
        let error = apart.status()["store_error"].clone();
        error.as_str().is_some_and(|e| e.contains("inbox~1.json"))
    });
    let cycles = |place: &Place| place.status()["last_cycle"]["at"].clone();
    let before = cycles(&place);
    place.until("it goes on", || cycles(&place) != before);
    assert_eq!(place.lines("ids.log").len(), 3, "{}", place.story());
    let litter = fs::read_dir(place.path("state/items/.tmp")).expect("it is there");
    assert_eq!(litter.count(), 0);
    apart.run(&format!("umount {record}"), &[]).expect(0);
    place.until("it is delivered", || place.lines("ids.log").len() == 4);
    place.until("all is well", || {
        let status = apart.status();
        status["store_error"].is_null() && status["pending"] == 0
    });
    apart.run(r#"exec "$@""#, &["stop"]).expect(0);
    assert!(apart.poller.ended().success());
    assert_eq!(place.lines("ids.log").len(), 4, "{}", place.story());
}

/// Given a pidfile that is a mount point of its own, and so cannot be removed, when a poller is started
/// and stopped, then it works, says in the end which file it could not remove, and the next
/// start takes it (R1.4, C118).
#[test]
fn c118_a_pidfile_mounted_on_its_own_is_used_and_left() {
    if !can_mount("c118") {
        return;
    }
    let place = Place::new(LOG);
    place.once().expect(0);
    place.write("state/poll.pid", "");
    fs::set_permissions(
        place.path("state/poll.pid"),
        fs::Permissions::from_mode(0o600),
    )
    .expect("ours");
    place.item(1, 0);
    let script = r#"mount --bind state/poll.pid state/poll.pid && "$@"; echo $? >> codes; "$@"; echo $? >> codes"#;
    let shell = place.shell(script, &["start", "--once"]);
    let mut command = Command::new("unshare");
    command.args(["-m", "sh"]).args(shell.get_args());
    command.current_dir(&place.dir).stdin(Stdio::null());
    let said = Answer::of(command.output().expect("unshare"));
    let path = place.path("state/poll.pid").display().to_string();
    let complaint = format!("cannot remove {path}");
    assert_eq!(
        said.stderr.matches(&complaint).count(),
        2,
        "{}",
        said.stderr
    );
    assert_eq!(place.lines("codes"), ["1", "1"]);
    assert_eq!(place.lines("ids.log").len(), 1, "{}", place.story());
    // Outside it is a file like any other.
    assert_eq!(place.run(&["status"]).code, Some(1));
    place.once().expect(0);
    assert!(!exists(&place.path("state/poll.pid")));
}

/// Given a state directory that is wiped, as on a disk that does not outlive the machine's start, with
/// 2,000 old comments upstream and a command still running; when the poller is started, then no old
/// comment is delivered: what is open is opened once more, and that is all (R6.4, C121).
#[test]
fn c121_a_wiped_state_directory_is_no_flood() {
    let place = Place::new(GATED);
    let mut config = place.config(GATED);
    let source = config["sources"][0].as_object_mut().expect("a source");
    source.remove("watch_from");
    place.configure(&config);
    let comment = |id: u64| {
        json!({ "id": id.to_string(), "author": "octocat", "body": "x",
            "created_at": format!("2020-08-05T10:{:02}:{:02}Z", id / 60, id % 60) })
    };
    let comments: Vec<_> = (1..=2_000).map(comment).collect();
    let item = json!({ "number": 1, "title": "Old", "author": "octocat", "state": "open",
        "created_at": "2020-08-05T09:00:00Z", "comments": comments });
    place.item_file(1, &item);
    for round in 1..=2 {
        let mut poller = place.start();
        place.until("the command runs", || {
            place.lines("begun.log").len() == round
        });
        place.until("a cycle is over", || {
            place.status()["last_cycle"].is_object()
        });
        stop(&place, &mut poller, "a command");
        if round == 1 {
            fs::remove_dir_all(place.state()).expect("ours");
        }
    }
    let poller = place.start();
    place.write("go", "");
    place.until("all is delivered", || {
        place.lines("ids.log").len() == 2 && place.pending() == 0
    });
    drop(poller);
    place.once().expect(0);
    assert_eq!(
        place.lines("ids.log"),
        ["dir:inbox#1/opened", "dir:inbox#1/opened"],
        "{}",
        place.story()
    );
}
