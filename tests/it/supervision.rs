//! The examples in `docs/supervision/`, run as they are but for the program's path: whoever looks after a poller
//! starts it again after each `SIGKILL`, and nothing is lost by it and nothing comes twice.

use crate::exec_world;
use crate::notify::Manager;
use crate::world::program::{
    Place, Running, binary, can_unshare, children, exists, lives, scaled, seed,
};
use crate::world::sim::Dice;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Takes a while, and logs its id when the effect is made.
const SLOW: &str = r#"cat > /dev/null; sleep 0.$((IDEMPOLL_ATTEMPT % 3))5; echo "$IDEMPOLL_DELIVERY_ID" >> ids.log"#;

/// How many comments each item has.
const COMMENTS: u64 = 2;

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/supervision");
    fs::read_to_string(path.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// An example with the program under test in the place of the installed one.
fn of_ours(name: &str) -> String {
    let text = example(name);
    let installed = "/usr/local/bin/idempoll";
    assert!(text.contains(installed), "{name} does not name {installed}");
    text.replace(installed, &binary().display().to_string())
}

/// The value of a unit's setting.
fn setting<'u>(unit: &'u str, key: &str) -> &'u str {
    let value = unit
        .lines()
        .find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("there is no {key}"))
}

/// Its environment: what a supervisor would have told of the place.
fn in_place(place: &Place, command: &mut Command) {
    command
        .current_dir(&place.dir)
        .env("IDEMPOLL_CONFIG", place.path("idempoll.json"))
        .env("HOME", &place.dir)
        .env(
            "PATH",
            format!(
                "{}:{}",
                place.path("bin").display(),
                std::env::var("PATH").unwrap_or_default()
            ),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(place.log());
}

/// The pid of the poller at work, once there is one that is not `last`.
fn another_than(place: &Place, last: u64, mut look: impl FnMut()) -> u64 {
    let mut pid = last;
    place.until("another poller works", || {
        look();
        let status = place.status();
        let up = status["running"] == true && !status["started_at"].is_null();
        pid = status["pid"].as_u64().filter(|_| up).unwrap_or(last);
        pid != last
    });
    pid
}

/// Kills a process; says whether it was there.
fn kill(pid: u64) -> bool {
    let number = u32::try_from(pid).expect("a pid");
    let there = pid > 1 && lives(number);
    let mut kill = Command::new("kill");
    kill.args(["-s", "KILL", &pid.to_string()])
        .stderr(Stdio::null());
    there && kill.status().is_ok_and(|s| s.success())
}

/// News come and the poller is killed, twenty times; whoever looks after it has to start it, helped by `look`.
/// Gives how many items there are.
fn killed_again_and_again(place: &Place, mut look: impl FnMut()) -> u64 {
    let seed = seed();
    let mut dice = Dice(seed | 1);
    let (mut last, mut kills, mut under_way, mut items) = (0, 0, 0, 0);
    while kills < scaled(20) {
        items += 1;
        place.item(items, COMMENTS);
        last = another_than(place, last, &mut look);
        std::thread::sleep(Duration::from_micros(dice.roll(150_000)));
        let open = (place.lines("ids.log").len() as u64) < items * (COMMENTS + 1);
        if kill(last) {
            kills += 1;
            under_way += u64::from(open);
        }
    }
    println!("seed {seed}: {kills} kills, {under_way} of them with something undelivered");
    all_is_delivered_once(place, items, look);
    items
}

/// All of so many items reached the command once and in order, by its own log, and no try was spent.
fn all_is_delivered_once(place: &Place, items: u64, mut look: impl FnMut()) {
    place.until("all is delivered", || {
        look();
        place.lines("ids.log").len() as u64 >= items * (COMMENTS + 1) && place.pending() == 0
    });
    place.each_came_once(items, COMMENTS);
    for spent in ["dispatch.failed", "poll.gave_up"] {
        assert!(
            place.entries(spent).is_empty(),
            "{spent}: {}",
            place.story()
        );
    }
}

/// The poller is gone, and nothing of it is left.
fn it_is_gone(place: &Place) {
    assert_eq!(place.run(&["status"]).code, Some(3), "{}", place.story());
    assert!(!exists(&place.path("state/poll.pid")));
    assert_eq!(place.entries("poller.stopped").len(), 1);
}

/// A config that is refused.
const WRONG: &str = "{ \"sources\": 7 }";

/// Given the units, when systemd looks at them, then it has no objection; and what they must
/// say, and the page about them, is there (C069).
#[test]
fn c069_the_units_are_as_systemd_wants_them_and_leave_the_work_alone() {
    let units = [
        "idempoll.service",
        "idempoll-once.service",
        "idempoll-once.timer",
    ];
    for unit in &units[..2] {
        let text = example(unit);
        assert_eq!(setting(&text, "KillMode"), "process", "{unit}");
        assert_eq!(setting(&text, "StateDirectoryMode"), "0700", "{unit}");
        // systemd takes these away at a stop, and what goes on would miss them.
        for wrong in ["PrivateTmp=", "RuntimeDirectory=", "DynamicUser="] {
            assert!(
                !text.lines().any(|l| l.starts_with(wrong)),
                "{unit}: {wrong}"
            );
        }
        let name = setting(&text, "LoadCredential").split(':').next();
        let path = format!("/run/credentials/{unit}/{}", name.expect("a name"));
        assert!(text.contains(&path), "{unit} does not say {path}");
    }
    let service = example("idempoll.service");
    assert_eq!(setting(&service, "Type"), "notify");
    assert_eq!(setting(&service, "RestartPreventExitStatus"), "2 130");

    let there = Command::new("systemd-analyze").arg("--version").output();
    if !there.is_ok_and(|o| o.status.success()) {
        eprintln!("c069: THE UNITS ARE NOT VERIFIED: there is no systemd-analyze here");
        return;
    }
    let place = Place::new(SLOW);
    for unit in units {
        let text = example(unit);
        let ours = text.replace("/usr/local/bin/idempoll", &binary().display().to_string());
        place.write(unit, &ours);
    }
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).args(units);
    let said = verify
        .current_dir(&place.dir)
        .output()
        .expect("it is there");
    let stderr = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && stderr.is_empty(), "{stderr}");
}

/// Given the service, when what systemd does of it that matters is done (its `ExecStart` with a
/// notification socket, a watchdog and a state directory, started again when it is killed),
/// and the poller is killed twenty times as soon as it said that it is ready, then nothing is lost
/// and nothing comes twice; a stop ends it with a code, and a wrong config with one, after which systemd leaves
/// it at that (R1.4, R3.1, R5.4, R6.2).
#[test]
fn r6_2_a_service_survives_its_restarts() {
    let place = Place::new(SLOW);
    let mut config = place.config(SLOW);
    // It is systemd who says where.
    config
        .as_object_mut()
        .expect("an object")
        .remove("state_dir");
    place.write("service.json", &config.to_string());
    let unit = of_ours("idempoll.service");
    let manager = Manager::at(&place);
    let start = || {
        let words: Vec<&str> = setting(&unit, "ExecStart").split(' ').collect();
        let seconds: u64 = setting(&unit, "WatchdogSec").parse().expect("seconds");
        let mut command = Command::new(words[0]);
        in_place(&place, command.args(&words[1..]));
        command
            .env("NOTIFY_SOCKET", &manager.name)
            .env("WATCHDOG_USEC", (seconds * 1_000_000).to_string())
            .env("IDEMPOLL_CONFIG", place.path("service.json"))
            .env("STATE_DIRECTORY", place.state());
        place.spawn(&mut command)
    };
    let stays_down = |code: Option<i32>| {
        let codes = setting(&unit, "RestartPreventExitStatus").split(' ');
        code == Some(0) || codes.map(|c| c.parse().ok()).any(|c| c == code)
    };
    let kills = scaled(20);
    let mut dice = Dice(seed() | 1);
    for n in 1..=kills {
        place.item(n, COMMENTS);
        let running = start();
        manager.until(&place, "READY=1");
        std::thread::sleep(Duration::from_micros(dice.roll(150_000)));
        running.kill();
    }
    let mut running = start();
    manager.until(&place, "READY=1");
    all_is_delivered_once(&place, kills, || {});
    running.signal("TERM");
    manager.until(&place, "STOPPING=1");
    assert!(stays_down(running.ended().code()));
    assert_eq!(place.entries("poller.started").len() as u64, kills + 1);
    place.write("service.json", WRONG);
    assert!(stays_down(start().ended().code()));
}

/// Given the loop, when its poller is killed twenty times while news come, then it starts it again
/// and nothing is lost and nothing comes twice; a signal to the loop stops both, and so do
/// `idempoll stop` and a wrong config (R1.4, R2.6, R3.1, R5.4, R6.2).
#[test]
fn r6_2_a_loop_survives_its_restarts_and_ends_when_it_should() {
    let place = Place::new(SLOW);
    place.script("loop.sh", &of_ours("loop.sh"));
    let start = |pause: &str| {
        let mut command = Command::new(place.path("loop.sh"));
        in_place(&place, &mut command);
        place.spawn(command.env("RESTART_SECONDS", pause))
    };
    let mut running = start("0");
    killed_again_and_again(&place, || {});
    another_than(&place, 0, || {});
    running.signal("TERM");
    assert_eq!(running.ended().code(), Some(0));
    it_is_gone(&place);

    for signal in ["INT", "HUP"] {
        let mut running = start("0");
        another_than(&place, 0, || {});
        running.signal(signal);
        assert_eq!(running.ended().code(), Some(0), "{signal}");
        assert_eq!(place.run(&["status"]).code, Some(3), "{signal}");
    }
    let mut running = start("0");
    another_than(&place, 0, || {});
    place.run(&["stop"]).expect(0);
    assert_eq!(running.ended().code(), Some(0));

    // While it waits before it starts the poller again, too.
    let mut running = start("3600");
    assert!(kill(another_than(&place, 0, || {})));
    place.until("it says so", || {
        place
            .lines("stderr.log")
            .join("\n")
            .contains("again in 3600 s")
    });
    running.signal("TERM");
    assert_eq!(running.ended().code(), Some(137));

    place.write("idempoll.json", WRONG);
    assert_eq!(start("0").ended().code(), Some(2));
}

/// Given the line of the crontab, when a cron that runs it far more often than each minute does so while its
/// pollers are killed twenty times and news come, then nothing is lost and nothing comes twice,
/// and of those that find another at work none does anything (R1.2, R1.4, R3.1, R5.4, R6.2, C105).
#[test]
fn r6_2_a_cron_job_survives_its_restarts() {
    let place = Place::new(SLOW);
    let table = of_ours("crontab");
    let line = table.lines().find(|l| l.starts_with("* * * * * "));
    let line = line.expect("a line").trim_start_matches("* * * * * ");
    assert!(!line.contains('%'), "cron would end the command there");
    let begun = Mutex::new(Vec::<Running>::new());
    let each_minute = || {
        let mut begun = begun.lock().expect("nobody panicked with it");
        begun.retain_mut(|job| !job.has_ended());
        if begun.len() < 2 {
            let mut command = Command::new("sh");
            in_place(&place, command.args(["-c", line]));
            begun.push(place.spawn(&mut command));
        }
    };
    let items = killed_again_and_again(&place, each_minute);
    for mut job in begun.into_inner().expect("nobody panicked with it") {
        job.ended();
    }
    // The last one has nothing to do.
    let mut command = Command::new("sh");
    in_place(&place, command.args(["-c", line]));
    assert_eq!(place.spawn(&mut command).ended().code(), Some(0));
    assert_eq!(place.lines("ids.log").len() as u64, items * (COMMENTS + 1));
    assert_eq!(place.run(&["status"]).code, Some(3), "{}", place.story());
    println!(
        "{} found another at work",
        place.entries("poller.blocked").len()
    );
}

/// A supervisor of the family of daemontools: it runs `run`, which has to become the daemon, signals that, runs `finish`
/// with how it ended, and runs `run` again unless it was told not to.
struct Supervisor<'p> {
    place: &'p Place,
    /// What `finish` gets as the exit code of what a signal ended.
    signalled: i32,
    /// The process `run` became.
    pid: AtomicU64,
    /// Told to have it down.
    down: AtomicBool,
}

impl Supervisor<'_> {
    /// Until it is down; gives how `run` ended.
    fn supervise(&self) -> Vec<Option<i32>> {
        use std::os::unix::process::ExitStatusExt;
        let mut codes = Vec::new();
        loop {
            let mut run = Command::new(self.place.path("run"));
            in_place(self.place, &mut run);
            let mut child: Child = run.spawn().expect("run can be run");
            self.pid.store(u64::from(child.id()), Ordering::SeqCst);
            let mut told = false;
            let ended = loop {
                if let Some(ended) = child.try_wait().expect("a child of ours") {
                    break ended;
                }
                if self.down.load(Ordering::SeqCst) && !told {
                    told = true;
                    exec_world::kill("TERM", &child.id().to_string());
                }
                std::thread::sleep(Duration::from_millis(2));
            };
            codes.push(ended.code());
            let mut finish = Command::new(self.place.path("finish"));
            in_place(self.place, &mut finish);
            let code = ended.code().unwrap_or(self.signalled).to_string();
            let signal = ended.signal().unwrap_or_default().to_string();
            let finished = finish
                .args([code, signal])
                .status()
                .expect("finish can be run");
            // s6: finish says so by its code; runit: by `sv down`.
            let told = finished.code() == Some(125) || exists(&self.place.path("told-down"));
            if told || self.down.load(Ordering::SeqCst) {
                return codes;
            }
        }
    }
}

/// The scripts of a supervisor of this family, and what they call, as it is where that is installed.
fn survives_as_a_service(example: &str, signalled: i32) {
    let place = Place::new(SLOW);
    fs::create_dir(place.path("bin")).expect("a directory");
    place.script("run", &of_ours(&format!("{example}/run")));
    let finish = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/supervision");
    let finish = fs::read_to_string(finish.join(example).join("finish"));
    place.script("finish", &finish.expect("an example"));
    // Each becomes another user, which is not there, and then the program.
    place.script(
        "bin/chpst",
        "#!/bin/sh\n[ \"$1 $2\" = '-u idempoll' ] || exit 111\nshift 2\nexec \"$@\"\n",
    );
    place.script(
        "bin/s6-setuidgid",
        "#!/bin/sh\n[ \"$1\" = idempoll ] || exit 111\nshift\nexec \"$@\"\n",
    );
    place.script(
        "bin/sv",
        "#!/bin/sh\n[ \"$1 $2\" = 'down .' ] && : > told-down\n",
    );
    let supervisor = || Supervisor {
        place: &place,
        signalled,
        pid: AtomicU64::new(0),
        down: AtomicBool::new(false),
    };
    let (first, second, third) = (supervisor(), supervisor(), supervisor());
    std::thread::scope(|scope| {
        let all = scope.spawn(|| first.supervise());
        let ends = Ends(&first);
        killed_again_and_again(&place, || {});
        another_than(&place, 0, || {});
        // It is the poller itself that is signalled.
        let pid = first.pid.load(Ordering::SeqCst);
        assert_eq!(place.status()["pid"], pid);
        drop(ends);
        let codes = all.join().expect("it does not panic");
        assert_eq!(codes.last(), Some(&Some(0)));
        assert!(codes.len() as u64 > scaled(20));
        it_is_gone(&place);
    });
    let _ = fs::remove_file(place.path("told-down"));
    std::thread::scope(|scope| {
        let all = scope.spawn(|| second.supervise());
        let _ends = Ends(&second);
        another_than(&place, 0, || {});
        place.run(&["stop"]).expect(0);
        // It is not started again although its supervisor knows nothing of that stop.
        assert_eq!(all.join().expect("it does not panic"), [Some(0)]);
    });
    let _ = fs::remove_file(place.path("told-down"));
    place.write("idempoll.json", WRONG);
    assert_eq!(third.supervise(), [Some(2)]);
}

/// Has a supervisor bring its poller down, as its own tool would.
struct Ends<'s>(&'s Supervisor<'s>);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.down.store(true, Ordering::SeqCst);
    }
}

/// Given runit's scripts, when the poller is killed twenty times while news come, then nothing is lost and
/// nothing comes twice; stopped in whatever way, or with a wrong config, it stays down (R1.4, R3.1, R5.4, R6.2).
#[test]
fn r6_2_under_runit_it_survives_its_restarts() {
    survives_as_a_service("runit", -1);
}

/// Given s6's scripts, when the poller is killed twenty times while news come, then nothing is lost and
/// nothing comes twice; stopped in whatever way, or with a wrong config, it stays down (R1.4, R3.1, R5.4, R6.2).
#[test]
fn r6_2_under_s6_it_survives_its_restarts() {
    survives_as_a_service("s6", 256);
}

/// A binary that needs nothing else, if one was built: `IDEMPOLL_BIN`, or what `.ci/static` makes.
fn static_binary() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/static/idempoll");
    let needs_a_loader = |file: &Path| {
        let bytes = fs::read(file).unwrap_or_default();
        bytes.is_empty() || bytes.windows(9).any(|w| w == b"/ld-linux")
    };
    [binary(), built]
        .into_iter()
        .find(|file| !needs_a_loader(file))
}

/// The words of a line of the Containerfile.
fn instruction(file: &str, word: &str) -> Vec<String> {
    let line = file.lines().find_map(|l| l.strip_prefix(word));
    let line = line.unwrap_or_else(|| panic!("there is no {word}")).trim();
    serde_json::from_str(line)
        .unwrap_or_else(|_| line.split_whitespace().map(str::to_string).collect())
}

/// As the docs have it for commands that must not do anything twice although a container ends:
/// it remembers the ids it has dealt with.
const REMEMBERS: &str = r#"cat > /dev/null; sleep 0.1
    grep -qx "$IDEMPOLL_DELIVERY_ID" /ids.log 2> /dev/null || echo "$IDEMPOLL_DELIVERY_ID" >> /ids.log"#;

/// Given the files of the Containerfile as a root directory, and busybox for the command, when the program
/// runs there as pid 1 of a pid namespace and it or the poller below it is killed twenty times while news come, then
/// nothing is lost, nothing comes twice to a command that knows what it dealt with, and a stop ends it
/// with 0 (R1.4, R3.1, R5.4, R6.2, C088).
#[test]
fn r6_2_a_container_survives_its_restarts() {
    const FLAGS: [&str; 4] = ["-m", "-p", "-f", "--kill-child"];
    if !can_unshare("r6_2_container", &FLAGS) {
        return;
    }
    let Some(program) = static_binary() else {
        eprintln!(
            "r6_2_container: THE CONTAINER IS NOT TRIED: no static binary (.ci/static builds one)"
        );
        return;
    };
    let place = Place::new(REMEMBERS);
    let file = example("Containerfile");
    assert!(file.contains("\nFROM scratch\n"));
    let mut config = place.config(REMEMBERS);
    config["state_dir"] = json!(instruction(&file, "VOLUME")[0]);
    config["sources"][0]["path"] = json!("/inbox");
    place.write("config.json", &config.to_string());
    for copy in file.lines().filter_map(|l| l.strip_prefix("COPY ")) {
        let (from, to) = copy.split_once(' ').expect("from and to");
        let from = match from {
            "idempoll" => program.clone(),
            other => place.path(other),
        };
        let to = place.path(to.trim_start_matches('/'));
        fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
        // By another process: a descriptor of ours open to write it would keep it from being run.
        let copied = Command::new("cp").arg(from).arg(to).status();
        assert!(copied.expect("cp").success());
    }
    // What an engine mounts, and what the command needs.
    let prepare = r#"mkdir -p proc dev var/lib && mknod -m 666 dev/null c 1 3 && cp "$(command -v busybox)" bin/busybox &&
        for name in sh cat grep sleep; do ln -s busybox bin/$name; done && chroot . /bin/sh -c 'exit 0'"#;
    let prepared = Command::new("sh")
        .args(["-c", prepare])
        .current_dir(&place.dir)
        .output();
    if !prepared.is_ok_and(|o| o.status.success()) {
        eprintln!(
            "r6_2_container: THE CONTAINER IS NOT TRIED: no static busybox (busybox-static), or no mknod"
        );
        return;
    }
    // The same state, seen from outside.
    let mut outside = place.config(REMEMBERS);
    outside["state_dir"] = json!(instruction(&file, "VOLUME")[0].trim_start_matches('/'));
    place.configure(&outside);
    std::os::unix::fs::symlink("var/lib/idempoll", place.state()).expect("a link");

    let mut words = instruction(&file, "ENTRYPOINT");
    words.extend(instruction(&file, "CMD"));
    let start = |kills: u64| {
        let mut command = Command::new("unshare");
        in_place(&place, &mut command);
        command
            .env_clear()
            .envs(
                instruction(&file, "ENV")
                    .iter()
                    .map(|set| set.split_once('=').expect("a name and a value")),
            )
            .args(FLAGS)
            .args([
                "/bin/sh",
                "-c",
                r#"/bin/mount -t proc proc proc && exec /usr/sbin/chroot . "$@""#,
                "sh",
            ])
            .args(&words);
        let running = place.spawn(&mut command);
        place.until("it runs", || {
            place.entries("poller.started").len() as u64 == kills + 1
        });
        let [pid1] = below(running.pid())[..] else {
            panic!("it has no pid 1: {}", place.story());
        };
        (running, pid1)
    };
    let mut dice = Dice(seed() | 1);
    let kills = scaled(20);
    for n in 1..=kills {
        place.item(n, COMMENTS);
        let (mut running, pid1) = start(n - 1);
        // Nothing is interrupted so often that it would be given up.
        place.until("all but the latest is delivered", || {
            place.lines("ids.log").len() as u64 >= (n - 1) * (COMMENTS + 1)
        });
        std::thread::sleep(Duration::from_micros(dice.roll(300_000)));
        let poller = below(pid1).into_iter().min();
        let whom = poller.filter(|_| n % 2 == 0).unwrap_or(pid1);
        assert!(kill(u64::from(whom)));
        running.ended();
    }
    let (mut running, pid1) = start(kills);
    all_is_delivered_once(&place, kills, || {});
    let interrupted = place.entries("poll.interrupted_delivery").len();
    println!("{kills} kills, {interrupted} deliveries were interrupted");
    exec_world::kill("TERM", &pid1.to_string());
    assert_eq!(running.ended().code(), Some(0), "{}", place.story());
    it_is_gone(&place);
}

/// The children of a process that have not ended.
fn below(pid: u32) -> Vec<u32> {
    let all = children(pid).into_iter();
    all.filter(|(_, state)| *state != 'Z')
        .map(|(pid, _)| pid)
        .collect()
}
