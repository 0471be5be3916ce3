//! The program as pid 1, as in a container: the real one in a pid namespace of its own.

use crate::exec_world::kill;
use crate::lifecycle::{a_moment_later, hang, only_what_hangs_is_left};
use crate::world::forge::{Forge, Reply};
use crate::world::program::{
    Answer, GATED, LOG, Place, Running, can_unshare, children, exists, lives, parent_and_session,
};
use serde_json::json;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const UNSHARE: [&str; 5] = ["-p", "-f", "--mount-proc", "--kill-child", "--"];

/// A poller whose parent is pid 1 of a namespace; all of it ends with the test.
struct Container<'a> {
    place: &'a Place,
    outside: Running,
    /// Pid 1 and the poller, by their numbers outside.
    pid1: u32,
    poller: u32,
}

impl<'a> Container<'a> {
    fn start(place: &'a Place) -> Container<'a> {
        let log = fs::File::create(place.path("stderr.log")).expect("a log");
        Container::start_from(place, place.unshared(&UNSHARE, &["start"]).stderr(log))
    }

    fn start_from(place: &'a Place, command: &mut Command) -> Container<'a> {
        let before = place.entries("poller.started").len();
        let outside = place.spawn(command.stdout(Stdio::null()));
        place.until("it runs", || place.entries("poller.started").len() > before);
        let only = |of| match children(of).as_slice() {
            [(child, _), ..] => *child,
            [] => panic!("{of} has no child: {}", place.story()),
        };
        let pid1 = only(outside.pid());
        let poller = only(pid1);
        Container {
            place,
            outside,
            pid1,
            poller,
        }
    }

    /// Signals pid 1 and waits for the end; says with which code, and that all is tidy.
    fn ends_on(&mut self, signal: &str, why: &str) -> Option<i32> {
        let since = Instant::now();
        kill(signal, &self.pid1.to_string());
        let code = self.outside.ended().code();
        println!("{why}: {signal} took {:?}", since.elapsed());
        assert!(since.elapsed() < Duration::from_secs(10), "{why}: {signal}");
        self.is_tidy(why);
        code
    }

    fn is_tidy(&self, why: &str) {
        assert!(!exists(&self.place.path("state/poll.pid")), "{why}");
        assert_eq!(self.place.run(&["status"]).code, Some(3), "{why}");
    }

    /// The program inside, come in from outside.
    fn run(&self, args: &[&str]) -> Answer {
        let inside = format!("cd '{}' && exec \"$@\"", self.place.dir.display());
        let shell = self.place.shell(&inside, args);
        let mut command = Command::new("nsenter");
        command
            .args(["-t", &self.pid1.to_string(), "-p", "-m", "-r", "sh"])
            .args(shell.get_args());
        Answer::of(command.output().expect("nsenter"))
    }
}

/// Given a poller that is pid 1 and rests, when it gets any of the three signals, then it is
/// the clean stop it would be outside, well inside ten seconds (R2.6, C088).
#[test]
fn c088_pid_1_stops_cleanly_while_it_rests() {
    if !can_unshare("c088", &UNSHARE) {
        return;
    }
    for signal in ["TERM", "INT", "HUP"] {
        let place = Place::new(LOG);
        let mut container = Container::start(&place);
        place.until("a cycle is over", || {
            !place.entries("poll.cycle").is_empty() || place.status()["last_cycle"].is_object()
        });
        // In a session of its own, or Ctrl-C would reach it twice.
        let (parent, session) = parent_and_session(container.poller).expect("it lives");
        assert_eq!((parent, session), (container.pid1, container.poller));
        assert_eq!(container.ends_on(signal, "at rest"), Some(0));
        assert_eq!(place.entries("poller.stopped").len(), 1, "{signal}");
    }
}

/// Given a poller that is pid 1 and waits for a tracker that never finishes, when it gets any
/// of the three signals, then that is left behind and it is a clean stop (R2.5, R2.6, C088).
#[test]
fn c088_pid_1_stops_cleanly_during_a_poll() {
    if !can_unshare("c088", &UNSHARE) {
        return;
    }
    for signal in ["TERM", "INT", "HUP"] {
        let forge = Forge::start(|_| Reply::json("[]").dribble_all(Duration::from_secs(5)));
        let place = Place::new(LOG);
        let mut config = place.config(LOG);
        config["sources"] = json!([{ "name": "forge", "provider": "github", "repos": ["octo/widgets"],
            "base_url": forge.url(), "sinks": ["log"] }]);
        place.configure(&config);
        let mut container = Container::start(&place);
        let mut asked = 0;
        place.until("it asks", || {
            asked += forge.asked().len();
            asked > 0
        });
        assert_eq!(container.ends_on(signal, "during a poll"), Some(0));
    }
}

/// Given a poller that is pid 1 with a command running, when it gets any of the three signals,
/// then it is a clean stop. What the kernel does to the command then, it does to a machine
/// that is switched off as well: the next start runs it again (R2.6, R5.4, C088).
#[test]
fn c088_pid_1_stops_cleanly_during_a_delivery() {
    if !can_unshare("c088", &UNSHARE) {
        return;
    }
    for signal in ["TERM", "INT", "HUP"] {
        let place = Place::new(GATED);
        place.item(1, 0);
        let mut container = Container::start(&place);
        place.until("the command runs", || place.lines("begun.log").len() == 1);
        assert_eq!(container.ends_on(signal, "during a delivery"), Some(0));
        let stopped = place.entries("poller.stopped");
        assert_eq!(stopped[0]["left_running"], 1, "{signal}");
        place.write("go", "");
        place.once().expect(0);
        assert_eq!(
            (place.lines("begun.log").len(), place.lines("ids.log").len()),
            (2, 1),
            "{signal}: {}",
            place.story()
        );
        assert!(place.entries("dispatch.failed").is_empty());
    }
}

/// Given a command that leaves fifty processes behind, when they have ended, then pid 1 has
/// collected each: no zombie is left in its namespace (C075, C088).
#[test]
fn c075_pid_1_collects_what_commands_leave_behind() {
    if !can_unshare("c075", &UNSHARE) {
        return;
    }
    let place = Place::new(
        r#"n=0; while [ $n -lt 50 ]; do (sh -c 'while [ ! -e go -a -e idempoll.json ]; do sleep 0.05; done' & echo $! >> left.log); n=$((n + 1)); done
        echo "$IDEMPOLL_DELIVERY_ID" >> ids.log"#,
    );
    let mut container = Container::start(&place);
    let poller = container.poller;
    place.item(1, 0);
    place.until("all are its own", || children(container.pid1).len() == 51);
    place.write("go", "");
    place.until("all are collected", || {
        children(container.pid1)
            .iter()
            .all(|(pid, _)| *pid == poller)
    });
    assert!(lives(poller));
    let said = container.run(&["status"]).expect(0);
    assert!(said.stdout.contains("running"), "{}", said.stdout);
    assert_eq!(container.ends_on("TERM", "after fifty orphans"), Some(0));
}

/// Given a poller below pid 1 that hangs, when pid 1 is signalled twice, then it ends at once
/// with 130 (R2.6, C089); and when the poller is killed, then pid 1 ends with 137.
#[test]
fn c089_pid_1_passes_on_a_second_signal_and_the_exit_code() {
    if !can_unshare("c089", &UNSHARE) {
        return;
    }
    let place = Place::new(LOG);
    let mut container = Container::start(&place);
    let Some(slowness) = hang(&place, container.poller, "c089") else {
        return;
    };
    kill("TERM", &container.pid1.to_string());
    assert_eq!(place.run(&["status"]).code, Some(0));
    a_moment_later();
    kill("TERM", &container.pid1.to_string());
    only_what_hangs_is_left(&place, container.poller);
    drop(slowness);
    assert_eq!(container.outside.ended().code(), Some(130));

    let place = Place::new(LOG);
    let mut container = Container::start(&place);
    kill("KILL", &container.poller.to_string());
    assert_eq!(container.outside.ended().code(), Some(137));
    // As after any kill: the pidfile is left, and simply taken.
    assert_eq!(place.run(&["status"]).code, Some(1));
    place.once().expect(0);
}

/// Given a poller in a container, when `stop` is called outside, then it is refused with the
/// reason, and a `start` with the holder; inside it works, also although it is a
/// guest in a namespace that ends with the poller (R2.1, R2.2).
#[test]
fn r2_1_a_poller_in_a_container_is_stopped_from_inside() {
    if !can_unshare("r2_1", &UNSHARE) {
        return;
    }
    let place = Place::new(LOG);
    let mut container = Container::start(&place);
    let said = place.run(&["stop", "--timeout", "2"]).expect(1);
    for part in [
        &container.poller.to_string(),
        "in its own pid namespace",
        "inside its container",
    ] {
        assert!(said.stderr.contains(part), "{part}: {}", said.stderr);
    }
    let said = place.run(&["start", "--once"]).expect(1);
    assert!(
        said.stderr.contains(&container.poller.to_string()),
        "{}",
        said.stderr
    );
    assert!(lives(container.poller));
    let said = container.run(&["stop"]).expect(0);
    assert!(said.stdout.contains("stopped"), "{}", said.stdout);
    assert_eq!(container.outside.ended().code(), Some(0));
    container.is_tidy("stopped from inside");
}

/// Runs what it is given on a terminal, presses Ctrl-C there when the file `press` is there,
/// and ends as it does.
const ON_A_TERMINAL: &str = r#"
import os, pty, select, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
pressed = False
while True:
    if not pressed and os.path.exists("press"):
        os.write(terminal, b"\x03")
        pressed = True
    if select.select([terminal], [], [], 0.05)[0]:
        try:
            if not os.read(terminal, 4096): break
        except OSError: break
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status) % 256)
"#;

/// Given a container on a terminal, when Ctrl-C is pressed once, then it counts once: a graceful
/// stop (R2.6, C092).
#[test]
fn c092_ctrl_c_in_a_container_counts_once() {
    if !can_unshare("c092", &UNSHARE) {
        return;
    }
    let place = Place::new(GATED);
    place.item(1, 0);
    let inner = place.unshared(&UNSHARE, &["start"]);
    let mut command = Command::new("python3");
    command
        .args(["-c", ON_A_TERMINAL])
        .arg(inner.get_program())
        .args(inner.get_args())
        .current_dir(&place.dir)
        .stdin(Stdio::null());
    let mut outside = place.spawn(command.stdout(Stdio::null()));
    place.until("the command runs", || place.lines("begun.log").len() == 1);
    place.write("press", "");
    assert_eq!(outside.ended().code(), Some(0), "{}", place.story());
    assert_eq!(place.entries("poller.stopped").len(), 1);
    assert!(!exists(&place.path("state/poll.pid")));
}

/// Given pid 1 that cannot divide itself, when it is started, then it says so, works, and
/// stops cleanly as the poller it is (C088).
#[test]
fn c088_pid_1_that_cannot_fork_goes_on_by_itself() {
    if !can_unshare("c088", &UNSHARE) || Command::new("strace").arg("-V").output().is_err() {
        return;
    }
    let place = Place::new(LOG);
    place.item(1, 0);
    let made = Command::new("mkfifo").arg(place.path("gate")).status();
    assert!(made.expect("mkfifo").success());
    // It waits at a gate, so that it is traced before it is the program.
    let script = r#"echo > waiting; read -r line < gate; exec "$@""#;
    let shell = place.shell(script, &["start"]);
    let mut command = Command::new("unshare");
    command
        .args(UNSHARE)
        .arg("sh")
        .args(shell.get_args())
        .current_dir(&place.dir);
    let log = fs::File::create(place.path("stderr.log")).expect("a log");
    let mut outside = place.spawn(command.stdin(Stdio::null()).stderr(log));
    place.until("it waits", || exists(&place.path("waiting")));
    let pid1 = children(outside.pid())[0].0;
    // With musl threads are made by `clone`, and the first of them is not meant.
    let fork = match place.run(&["--version"]).stdout.contains("musl") {
        true => "fork",
        false => "clone",
    };
    let mut tracer = Command::new("strace");
    tracer
        .args(["-o", "trace.log", "-e", &format!("trace={fork}")])
        .args(["-e", &format!("inject={fork}:error=EAGAIN:when=1")])
        .args(["-p", &pid1.to_string()])
        .current_dir(&place.dir)
        .stderr(Stdio::null());
    let _tracer = place.spawn(&mut tracer);
    place.until("it is traced", || {
        let status = fs::read_to_string(format!("/proc/{pid1}/status")).unwrap_or_default();
        !status.contains("TracerPid:\t0\n")
    });
    place.write("gate", "go\n");
    place.until("it works", || place.lines("ids.log").len() == 1);
    let said = place.lines("stderr.log").join("\n");
    assert!(said.contains("goes on as pid 1"), "{said}");
    kill("TERM", &pid1.to_string());
    assert_eq!(outside.ended().code(), Some(0), "{said}");
    assert!(!exists(&place.path("state/poll.pid")));
}
