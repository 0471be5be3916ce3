//! What the poller was born with and its children are not: descriptors, and what signals mean.

use crate::exec_world::kill;
use crate::world::program::{Place, Running, children, descriptors, lives, parent_and_session};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Says what signals mean to what it starts, who it is, and waits until the test says so.
const COMMAND: &str = r#"cat /proc/self/status > command.status; echo $$ > command.pid
    while [ ! -e go -a -e idempoll.json ]; do sleep 0.01; done; echo "$IDEMPOLL_DELIVERY_ID" >> ids.log"#;

/// The same of a token command.
const TOKEN: &str = r#"cat /proc/self/status > token.status; echo $$ > token.pid
    while [ ! -e go -a -e idempoll.json ]; do sleep 0.01; done; echo t0ken"#;

/// Becomes the program, with descriptors 3 and 9 open, SIGTERM held back and others ignored.
const CARELESS: &str = r#"
import os, signal, sys
for to, name in ((3, "born-3"), (9, "born-9")):
    fd = os.open(name, os.O_RDWR | os.O_CREAT)
    os.dup2(fd, to) if fd != to else os.set_inheritable(fd, True)
for s in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(s, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR2])
os.execvp(sys.argv[1], sys.argv[1:])
"#;

/// A place whose poller starts a command and, after that, a token command.
fn place() -> Place {
    let place = Place::new(COMMAND);
    let mut config = place.config(COMMAND);
    let forge = json!({ "name": "forge", "provider": "github", "repos": ["octo/widgets"],
        "base_url": "http://127.0.0.1:9", "token_command": ["sh", "-c", TOKEN], "sinks": ["log"] });
    config["sources"]
        .as_array_mut()
        .expect("a list")
        .push(forge);
    place.configure(&config);
    place.item(1, 0);
    place
}

fn start(place: &Place, program: &str, args: &[&str]) -> Running {
    let inner = place.command(&["start"]);
    let log = fs::File::create(place.path("stderr.log")).expect("a log");
    let mut command = Command::new(program);
    command
        .args(args)
        .args(["python3", "-c", CARELESS])
        .arg(inner.get_program())
        .args(inner.get_args())
        .current_dir(&place.dir);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    place.spawn(command.stderr(log))
}

fn pid(place: &Place, name: &str) -> u32 {
    place.until(name, || !place.lines(name).is_empty());
    place.lines(name)[0].parse().expect("a pid")
}

/// The signals of a line of `/proc/PID/status`, without the two or three that are the C library's own.
fn signals(status: &Path, line: &str) -> u64 {
    let status = fs::read_to_string(status).expect("it was written");
    let mask = status.lines().find_map(|l| l.strip_prefix(line));
    let mask = u64::from_str_radix(mask.expect("every kernel has it").trim(), 16);
    mask.expect("hexadecimal") & 0x7fff_ffff
}

const SIGHUP: u64 = 1;
const SIGTERM: u64 = 1 << 14;
const SIGCHLD: u64 = 1 << 16;

/// Given a poller whose parent left it descriptors, ignored signals and held some back, also where
/// the kernel does not know the newest call to deal with that; when it runs a command and a
/// token command; then each has 0, 1 and 2 and every signal at its default, the runner has
/// the receipt besides, and the poller can be stopped (R1.5, R2.6, R6.3, C090, C093).
#[test]
fn c093_what_the_poller_was_born_with_stays_its_own() {
    let traced = Command::new("strace").arg("-V").output().is_ok();
    let old_kernel = ["-D", "-f", "-o", "trace.log", "-e", "trace=close_range"];
    let old_kernel = [&old_kernel[..], &["-e", "inject=close_range:error=ENOSYS"]].concat();
    for (program, args) in [("env", Vec::new()), ("strace", old_kernel)] {
        if program == "strace" && !traced {
            println!("c093: an old kernel is skipped, since there is no strace here");
            continue;
        }
        let place = place();
        let mut outer = start(&place, program, &args);
        let (command, token) = (pid(&place, "command.pid"), pid(&place, "token.pid"));
        let poller = place.status()["pid"].as_u64().expect("it runs") as u32;
        for of in [command, token] {
            place.only_the_three(of);
        }
        let (runner, _) = parent_and_session(command).expect("it lives");
        assert!(children(poller).iter().any(|(pid, _)| *pid == runner));
        let open = descriptors(runner);
        let of_state: Vec<_> = open
            .iter()
            .filter(|(_, to)| to.starts_with(&place.dir))
            .collect();
        // The receipt, and the directory it is in.
        assert_eq!(of_state.len(), 2, "{program}: {open:?}");
        let runs = place.path("state/runs");
        assert!(of_state.iter().all(|(_, to)| to.starts_with(&runs)));
        for (status, of) in [("command.status", command), ("token.status", token)] {
            for line in ["SigBlk:", "SigIgn:", "SigCgt:"] {
                let found = signals(&place.path(status), line);
                assert_eq!(found, 0, "{program}: {status}: {line} {found:x} of {of}");
            }
        }
        // A session of its own each: what is typed on a terminal reaches neither.
        assert_eq!(parent_and_session(token), Some((poller, token)));
        assert_eq!(parent_and_session(runner), Some((poller, runner)));
        let own = Path::new("/proc").join(poller.to_string()).join("status");
        assert_eq!(signals(&own, "SigIgn:") & (SIGHUP | SIGCHLD), SIGHUP);
        assert_eq!(signals(&own, "SigBlk:") & SIGTERM, 0);
        kill("HUP", &poller.to_string());
        place.write("go", "");
        place.until("it is delivered", || {
            place.lines("ids.log").len() == 1 && place.pending() == 0
        });
        // The token command's exit code was not lost with an ignored SIGCHLD: it was asked.
        place.until("the listing fails for another reason", || {
            let error = place.status()["sources"][1]["error"].clone();
            error.as_str().is_some_and(|e| !e.contains("token"))
        });
        place.run(&["stop"]).expect(0);
        assert_eq!(outer.ended().code(), Some(0), "{}", place.story());
    }
}

/// Given a token command that hangs, when the poller is stopped, and when it is killed, then
/// it is gone at once and the token command with it (R2.5, R2.7).
#[test]
fn r2_5_a_token_command_ends_with_its_poller() {
    for how in ["stop", "KILL"] {
        let place = place();
        place.write("inbox/1.json", "{}");
        let mut poller = place.start_unseen();
        let token = pid(&place, "token.pid");
        assert_eq!(
            parent_and_session(token),
            Some((poller.pid(), token)),
            "{how}"
        );
        match how {
            "stop" => drop(place.run(&["stop"]).expect(0)),
            signal => poller.signal(signal),
        }
        let code = poller.ended().code();
        assert_eq!(code, (how == "stop").then_some(0), "{how}");
        place.until("the token command has ended", || !lives(token));
    }
}
