//! A state directory that cannot be locked, or is on a network: the real program, with
//! what the kernel answers changed by `strace`.

use crate::exec_world::{World, carry_on, delivery, never};
use crate::world::program::{Place, Running, Stranger, exists, is_root, lives, scaled};
use idempoll::engine::delivery::{Outcome, Receipt};
use idempoll::sinks::Sink;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Logs the id of what it was given, after a while.
const SLOW: &str = r#"cat > /dev/null; sleep 0.05; echo "$IDEMPOLL_DELIVERY_ID" >> ids.log"#;

/// What `fstatfs` is made to say: NFS, Ceph.
const NFS: &str = "inject=fstatfs:poke_exit=@arg2=6969000000000000";
const CEPH: &str = "inject=fstatfs:poke_exit=@arg2=0064c30000000000";

const NO_LOCKS: &str = "inject=flock:error=ENOLCK";

/// Whether processes can be traced here; says so if not.
fn can_trace(test: &str) -> bool {
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null"]);
    command.args(["-e", "trace=flock", "-e", NFS, "true"]);
    let works = command.stderr(Stdio::null()).status();
    let works = works.is_ok_and(|s| s.success());
    if !works {
        println!("{test}: skipped, since strace cannot do what it takes here");
    }
    works
}

/// `command`, under a kernel that answers so. It keeps its pid. The calls go to `trace`.
fn told(command: &Command, trace: &Path, answers: &[&str]) -> Command {
    let mut told = Command::new("strace");
    told.args(["-D", "-f", "--seccomp-bpf", "-qq", "-e", "signal=none"]);
    told.arg("-A").arg("-o").arg(trace);
    told.args(["-e", "trace=flock,fstatfs,link,linkat"]);
    for answer in answers {
        told.args(["-e", answer]);
    }
    told.arg("--")
        .arg(command.get_program())
        .args(command.get_args());
    if let Some(dir) = command.get_current_dir() {
        told.current_dir(dir);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => told.env(name, value),
            None => told.env_remove(name),
        };
    }
    told.stdin(Stdio::null());
    told
}

/// A place whose kernel answers so.
struct Told<'a> {
    place: Place,
    answers: &'a [&'a str],
}

impl<'a> Told<'a> {
    fn new(script: &str, answers: &'a [&'a str]) -> Told<'a> {
        let place = Place::new(script);
        Told { place, answers }
    }

    fn command(&self, args: &[&str]) -> Command {
        let trace = self.place.path("trace.log");
        told(&self.place.command(args), &trace, self.answers)
    }

    fn run(&self, args: &[&str]) -> crate::world::program::Answer {
        crate::world::program::Answer::of(self.command(args).output().expect("strace starts"))
    }

    fn start(&self) -> Running {
        let poller = self.start_unseen();
        self.place.until_up(&poller);
        poller
    }

    fn start_unseen(&self) -> Running {
        let mut command = self.command(&["start"]);
        command.stdout(Stdio::null()).stderr(self.place.log());
        self.place.spawn(&mut command)
    }

    /// The calls of `flock` so far.
    fn flocks(&self) -> usize {
        let trace = fs::read(self.place.path("trace.log")).unwrap_or_default();
        String::from_utf8_lossy(&trace).matches("flock(").count()
    }

    fn claims(&self) -> Vec<PathBuf> {
        claims(&self.place)
    }
}

fn claims(place: &Place) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.state()).into_iter().flatten().flatten();
    let paths = entries.map(|e| e.path());
    paths
        .filter(|p| p.to_string_lossy().contains("poll.claim."))
        .collect()
}

fn delivered(place: &Place, count: usize) {
    place.until("all is delivered and recorded", || {
        place.lines("ids.log").len() >= count && place.pending() == 0
    });
}

/// The only claim, changed.
fn forge(place: &Place, change: impl FnOnce(&mut Value)) -> PathBuf {
    let path = claims(place).pop().expect("there is one");
    let text = fs::read_to_string(&path).expect("it can be read");
    let line = text.lines().next().expect("it is whole");
    let mut claim: Value = serde_json::from_str(line).expect("JSON");
    change(&mut claim);
    fs::write(&path, format!("{claim}\n")).expect("it can be written");
    path
}

/// Given a file system that answers every `flock` with any of the three errors, when pollers
/// are started, refused, looked at, killed and stopped there, then all of it is as with
/// a lock, one entry says why there is none, and each delivery is made once
/// (R1.8, R1.1, R1.4, R2.1, R2.2, C096).
#[test]
fn r1_8_without_flock_a_claim_does_what_the_lock_would() {
    if !can_trace("r1_8") {
        return;
    }
    for errno in ["ENOLCK", "EOPNOTSUPP", "ENOSYS"] {
        let answer = format!("inject=flock:error={errno}");
        let answers = [answer.as_str()];
        let told = Told::new(SLOW, &answers);
        let place = &told.place;
        // One look at each start, so that nothing changes by itself.
        let mut config = place.config(SLOW);
        config["interval_seconds"] = 3600.into();
        place.configure(&config);
        place.item(1, 1);
        let poller = told.start();
        delivered(place, 2);
        place.at_rest();
        let pid = poller.pid().to_string();
        let warnings = place.entries("poller.warning");
        assert_eq!(warnings.len(), 1, "{errno}");
        let reason = warnings[0]["reason"].as_str().expect("text");
        assert!(
            reason.contains("cannot be locked") && reason.contains("poll.claim.1"),
            "{reason}"
        );

        let refused = |said: crate::world::program::Answer| {
            let said = said.expect(1).stderr;
            for part in [pid.as_str(), "poll.pid", "idempoll stop"] {
                assert!(said.contains(part), "{errno}: {part}: {said}");
            }
        };
        let before = place.snapshot();
        refused(told.run(&["start"]));
        refused(told.run(&["start", "--once"]));
        // And by one that can lock, too.
        refused(place.run(&["start", "--once"]));
        assert_eq!(place.snapshot(), before, "{errno}");
        assert_eq!(place.entries("poller.blocked").len(), 3);
        for status in [told.run(&["status"]), place.run(&["status"])] {
            let status = status.expect(0).stdout;
            assert!(status.contains(&format!("running, pid {pid}")), "{status}");
        }

        poller.kill();
        let status = told.run(&["status"]).expect(1).stdout;
        assert!(status.contains("the last poller died"), "{status}");
        let said = told.run(&["stop"]).expect(1).stderr;
        assert!(said.contains("was stale and is removed"), "{said}");
        assert_eq!(told.run(&["status"]).code, Some(3));
        told.start().kill();
        let mut poller = told.start();
        let said = told.run(&["stop"]).expect(0).stdout;
        assert!(said.contains(&poller.pid().to_string()), "{said}");
        assert!(!lives(poller.pid()));
        assert!(poller.ended().success());
        assert_eq!(told.run(&["status"]).code, Some(3));
        assert_eq!(told.run(&["stop"]).code, Some(1));
        told.run(&["start", "--once"]).expect(0);
        assert_eq!(told.claims().len(), 1, "{errno}");
        assert!(!exists(&place.path("state/poll.pid")));
        place.once().expect(0);
        assert_eq!(place.lines("ids.log").len(), 2, "{}", place.story());
    }
}

/// Given a state directory on NFS, where `flock` may hang, when pollers are started,
/// refused, looked at, killed and stopped and deliver there, then `flock` is never called,
/// and one entry says which file system it is (R1.8, C096).
#[test]
fn r1_8_on_nfs_flock_is_never_called() {
    if !can_trace("r1_8") {
        return;
    }
    let told = Told::new(SLOW, &[NFS]);
    let place = &told.place;
    place.item(1, 1);
    let poller = told.start();
    delivered(place, 2);
    let warnings = place.entries("poller.warning");
    assert_eq!(warnings.len(), 1);
    let reason = warnings[0]["reason"].as_str().expect("text");
    for part in [
        "on NFS, a network file system",
        "must not share",
        "may hang",
    ] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    told.run(&["start", "--once"]).expect(1);
    told.run(&["start", "--once", "--pidfile", "other.pid"])
        .expect(1);
    told.run(&["status"]).expect(0);
    poller.kill();
    told.run(&["status"]).expect(1);
    told.run(&["stop"]).expect(1);
    let mut poller = told.start();
    place.item(2, 1);
    delivered(place, 4);
    told.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    told.run(&["start", "--once"]).expect(0);
    told.run(&["retry", "--all"]).expect(0);
    let check = told.run(&["check"]).expect(0).stdout;
    assert!(check.contains("warning: the state directory"), "{check}");
    assert_eq!(told.flocks(), 0);
    let asked = fs::read_to_string(place.path("trace.log")).expect("a trace");
    assert!(
        asked.contains("NFS_SUPER_MAGIC"),
        "the trace sees too little"
    );
    assert_eq!(place.lines("ids.log").len(), 4, "{}", place.story());
}

/// Given a network file system that can lock, when a poller runs there, then it is locked,
/// without a claim, and it is said once that no two machines may share it (R1.8).
#[test]
fn r1_8_a_network_file_system_that_can_lock_is_locked_and_said() {
    if !can_trace("r1_8") {
        return;
    }
    let told = Told::new(SLOW, &[CEPH]);
    let mut poller = told.start();
    told.place.until("it is said", || {
        !told.place.entries("poller.warning").is_empty()
    });
    let warnings = told.place.entries("poller.warning");
    assert_eq!(warnings.len(), 1);
    let reason = warnings[0]["reason"].as_str().expect("text");
    assert!(
        reason.contains("Ceph") && !reason.contains("claim"),
        "{reason}"
    );
    assert_eq!(told.claims(), [] as [PathBuf; 0]);
    told.run(&["start", "--once"]).expect(1);
    told.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    assert!(told.flocks() > 0);
}

/// Given lock calls that signals interrupt, when a poller starts, then they are made again, and
/// it has the lock (R1.8, C096).
#[test]
fn c096_an_interrupted_lock_call_is_made_again() {
    if !can_trace("c096") {
        return;
    }
    let told = Told::new(SLOW, &["inject=flock:error=EINTR:when=1..3"]);
    told.place.item(1, 0);
    told.run(&["start", "--once"]).expect(0);
    assert!(told.flocks() > 3);
    assert_eq!(told.claims(), [] as [PathBuf; 0]);
    assert_eq!(told.place.entries("poller.warning").len(), 0);
    assert_eq!(told.place.lines("ids.log").len(), 1);
}

/// Given a file system with neither `flock` nor hard links, when a poller starts, then it is
/// refused with the reason, and leaves nothing behind (R1.8, C096).
#[test]
fn r1_8_where_nothing_excludes_a_start_is_refused() {
    if !can_trace("r1_8") {
        return;
    }
    let told = Told::new(SLOW, &[NO_LOCKS, "inject=link,linkat:error=EPERM"]);
    told.place.item(1, 0);
    let said = told.run(&["start", "--once"]).expect(1).stderr;
    for part in ["neither flock nor hard links", "state", "local file system"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let left = fs::read_dir(told.place.state()).expect("it was made");
    assert_eq!(left.count(), 0);
    assert_eq!(told.place.lines("ids.log").len(), 0);
}

/// Given a claim whose maker cannot be seen from here, or that nobody can understand, when a
/// poller is started or stopped, then it is refused, the file is named, nobody is
/// signalled; and once the file is removed, the start works (R1.8, R2.1).
#[test]
fn r1_8_a_claim_that_cannot_be_judged_is_for_people_to_judge() {
    if !can_trace("r1_8") {
        return;
    }
    let told = Told::new(SLOW, &[NO_LOCKS]);
    let place = &told.place;
    let mut stranger = Stranger::new();
    place.item(1, 0);
    told.run(&["start", "--once"]).expect(0);
    type Change = fn(&mut Value);
    let cases: [(&str, Change); 2] = [
        ("another machine, far-away", |claim| {
            claim["boot_id"] = "another".into();
            claim["host"] = "far-away".into();
        }),
        ("another pid namespace", |claim| claim["pid_ns"] = 1.into()),
    ];
    for (who, change) in cases {
        let path = forge(place, |claim| {
            claim["pid"] = stranger.pid().into();
            change(claim);
        });
        let before = place.snapshot();
        let path = path.display().to_string();
        for (args, code) in [
            (&["start", "--once"][..], 1),
            (&["stop", "--timeout", "1"], 1),
            (&["status"], 0),
        ] {
            let said = told.run(args).expect(code);
            let said = said.stdout + &said.stderr;
            assert!(
                said.contains(who) && said.contains(&path),
                "{args:?}: {said}"
            );
        }
        assert_eq!(place.snapshot(), before, "{who}");
        fs::remove_file(&path).expect("it is there");
        told.run(&["start", "--once"]).expect(0);
    }
    for garbage in ["", "garbage\n"] {
        let path = told.claims().pop().expect("there is one");
        fs::write(&path, garbage).expect("it can be written");
        for args in [&["start", "--once"][..], &["stop"], &["status"]] {
            let said = told.run(args).expect(1).stderr;
            assert!(said.contains(&path.display().to_string()), "{said}");
            assert!(said.contains("remove that file"), "{said}");
        }
        fs::remove_file(&path).expect("it is there");
        told.run(&["start", "--once"]).expect(0);
    }
    // The pid of a poller that died is another's now.
    forge(place, |claim| claim["pid"] = stranger.pid().into());
    assert_eq!(told.run(&["status"]).code, Some(3));
    told.run(&["start", "--once"]).expect(0);
    assert!(stranger.lives());
    assert_eq!(place.lines("ids.log").len(), 1);
}

/// Given a poller that has the lock, when another one that cannot lock is started, then it is
/// refused as ever, and `status` and `stop` that cannot lock find the first (R1.8, R1.1).
#[test]
fn r1_8_a_lock_that_somebody_could_have_excludes_a_claim() {
    if !can_trace("r1_8") {
        return;
    }
    let told = Told::new(SLOW, &[NO_LOCKS]);
    let mut poller = told.place.start();
    let pid = poller.pid().to_string();
    let said = told.run(&["start", "--once"]).expect(1).stderr;
    assert!(said.contains(&format!("pid {pid}")), "{said}");
    assert_eq!(told.claims(), [] as [PathBuf; 0]);
    let said = told.run(&["status"]).expect(0).stdout;
    assert!(said.contains(&format!("running, pid {pid}")), "{said}");
    told.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
}

/// Given contenders that start over and over where there is no `flock`, when they are done, then no
/// two ever ran at once; and stops and starts in turn never fail (R1.8, R1.6, R2.4).
#[test]
fn r1_8_no_two_pollers_ever_run_at_once_without_flock() {
    if !can_trace("r1_8") {
        return;
    }
    let told = Told::new(SLOW, &[NO_LOCKS]);
    let place = &told.place;
    let rounds = scaled(8);
    let worked: usize = std::thread::scope(|scope| {
        let contend = || {
            let codes = (0..rounds).map(|_| told.run(&["start", "--once"]).code);
            codes.filter(|code| *code == Some(0)).count()
        };
        let contenders = [(); 3].map(|()| scope.spawn(contend));
        contenders.map(|c| c.join().expect("no panic")).iter().sum()
    });
    assert!(worked > 0);
    for _ in 0..scaled(5) {
        let mut poller = told.start();
        told.run(&["stop"]).expect(0);
        assert!(poller.ended().success());
        told.run(&["start", "--once"]).expect(0);
    }
    let turns: Vec<(String, u64)> = place
        .lines("state/log/events.jsonl")
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|e| e["type"] == "poller.started" || e["type"] == "poller.stopped")
        .filter_map(|e| Some((e["type"].as_str()?.to_string(), e["pid"].as_u64()?)))
        .collect();
    for turn in turns.chunks(2) {
        assert_eq!(
            (turn[0].0.as_str(), turn[1].0.as_str(), turn[0].1),
            ("poller.started", "poller.stopped", turn[1].1)
        );
    }
    assert_eq!(turns.len(), 2 * (worked + 2 * scaled(5) as usize));
    assert_eq!(told.claims().len(), 1);
}

/// Given a running poller whose claim is removed, then it ends within moments, whatever its
/// interval, and says why, as it cannot exclude anybody any more (R1.8, R1.3).
#[test]
fn r1_8_a_poller_without_its_claim_ends() {
    if !can_trace("r1_8") {
        return;
    }
    let told = Told::new(SLOW, &[NO_LOCKS]);
    let mut config = told.place.config(SLOW);
    config["interval_seconds"] = 3600.into();
    told.place.configure(&config);
    let mut poller = told.start();
    told.place.at_rest();
    fs::remove_file(told.claims().pop().expect("there is one")).expect("it is there");
    assert_eq!(poller.ended().code(), Some(1));
    let said = told.place.lines("stderr.log").join("\n");
    assert!(said.contains("the claim on it was removed"), "{said}");
    told.run(&["start", "--once"]).expect(0);
}

/// Given news and a slow command on a file system without `flock`, when the poller is killed
/// at many moments and started again, then each delivery is made once and in order, and
/// no budget is spent (R1.8, R6.2, R6.3, R5.4).
#[test]
fn r1_8_kills_lose_nothing_and_repeat_nothing_without_flock() {
    if !can_trace("r1_8") {
        return;
    }
    let told = Told::new(SLOW, &[NO_LOCKS]);
    let place = &told.place;
    for number in 1..=12 {
        place.item(number, 2);
    }
    for n in 0..scaled(20) {
        let poller = told.start();
        let seen = place.lines("ids.log").len();
        if n % 2 == 0 {
            place.until("something is delivered", || {
                let now = place.lines("ids.log").len();
                now > seen || now == 36
            });
        }
        poller.kill();
    }
    let mut last = told.start();
    delivered(place, 36);
    told.run(&["stop"]).expect(0);
    assert!(last.ended().success());
    let ids = place.lines("ids.log");
    assert_eq!(ids.len(), 36, "{}", place.story());
    for number in 1..=12 {
        let item = format!("dir:inbox#{number}/");
        let keys: Vec<&str> = ids.iter().filter_map(|id| id.strip_prefix(&item)).collect();
        assert_eq!(
            keys,
            ["opened", "comment/1", "comment/2"],
            "{}",
            place.story()
        );
    }
    assert!(place.entries("dispatch.failed").is_empty());
    assert_eq!(told.claims().len(), 1);
}

/// Given a poller that cannot lock its receipt and is killed when the runner has the whole delivery
/// and has not begun, or while it hands it over, when the next one settles, then
/// the runner is known, and the effect happens once (R1.8, R6.2, R5.4).
#[test]
fn r1_8_a_runner_is_known_before_it_has_its_order() {
    if !can_trace("r1_8") {
        return;
    }
    let script = r#"cat >/dev/null; echo begun >>"$1/log""#;
    for (bytes, whole) in [(2, true), (2 << 20, false)] {
        let world = World::new();
        let sink = world.sink(script);
        let d = delivery(1, &"x".repeat(bytes));
        let inner = world.poller_command("gated", script, bytes);
        let mut command = told(&inner, &world.path("trace.log"), &[NO_LOCKS]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let poller = crate::exec_world::Poller(command.spawn().expect("strace starts"));
        world.until_there("at-gate");
        let runner = world.lines("at-gate")[0].clone();
        let run = world.receipt(&d).expect("it is announced");
        assert_eq!(run.accepted.runner.pid.to_string(), runner);
        if whole {
            let pipe = fs::read_link(format!("/proc/{runner}/fd/0")).expect("its stdin");
            let mine = format!("/proc/{}/fd", poller.0.id());
            crate::exec_world::eventually("end of the handing over", || {
                let mut fds = fs::read_dir(&mine).expect("it lives").flatten();
                let open = fds.any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == pipe));
                (!open).then_some(())
            });
        }
        poller.kill();
        assert_eq!(sink.settle(&d), Receipt::Running);
        world.touch("gate");
        if whole {
            assert_eq!(carry_on(&sink, d), 0);
        } else {
            assert_eq!(sink.wait(&d, &never()), Outcome::Unknown);
            assert_eq!(world.lines("log").len(), 0);
            assert_eq!(carry_on(&sink, d), 1);
        }
        assert_eq!(world.lines("log"), ["begun"]);
    }
}

/// Given a command that runs when its poller, which could not lock, is killed, when the next one
/// starts, then it is waited for and not run again; and when its runner is killed too, then
/// until the command ends (R1.8, R6.3).
#[test]
fn r1_8_a_running_command_is_taken_up_again_without_flock() {
    if !can_trace("r1_8") {
        return;
    }
    let gated = r#"echo begun >> begun.log; while [ ! -e go -a -e idempoll.json ]; do sleep 0.01; done; echo "$IDEMPOLL_DELIVERY_ID" >> ids.log"#;
    let told = Told::new(gated, &[NO_LOCKS]);
    let place = &told.place;
    place.item(1, 0);
    let poller = told.start();
    place.until("the command runs", || place.lines("begun.log").len() == 1);
    poller.kill();
    let mut poller = told.start();
    place.until("it is adopted", || {
        place.entries("dispatch.adopted").len() == 1
    });
    told.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    // The next one can lock, and finds a receipt that is not.
    let _last = place.start();
    place.until("it is adopted", || {
        place.entries("dispatch.adopted").len() == 2
    });
    place.write("go", "");
    delivered(place, 1);
    assert_eq!(
        (place.lines("begun.log").len(), place.lines("ids.log").len()),
        (1, 1),
        "{}",
        place.story()
    );
}

/// Given a state directory of another user on a file system without `flock`, when root has
/// claimed it and is gone, then that user can start (R1.8, R1.4).
#[test]
fn r1_8_a_claim_belongs_to_whom_the_directory_belongs_to() {
    use std::os::unix::fs::{MetadataExt, chown};
    if !can_trace("r1_8") || !is_root() {
        return;
    }
    let told = Told::new(SLOW, &[NO_LOCKS]);
    fs::create_dir(told.place.state()).expect("it can be made");
    fs::set_permissions(
        told.place.state(),
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .expect("it is ours");
    chown(told.place.state(), Some(65_534), Some(65_534)).expect("we are root");
    // Root may not run a poller there, but may look, and remove what is stale.
    told.place.write("state/poll.pid", "1\n");
    chown(told.place.path("state/poll.pid"), Some(65_534), None).expect("we are root");
    told.run(&["stop"]).expect(1);
    let claim = told.claims().pop().expect("it was claimed meanwhile");
    assert_eq!(fs::metadata(claim).expect("it is there").uid(), 65_534);
}

/// Given a poller without locks that died, when its pidfile is somewhere else than its state, then `stop` leaves it: it may
/// be another poller's (R1.8, R1.9).
#[test]
fn r1_9_without_flock_a_pidfile_elsewhere_stays() {
    if !can_trace("r1_9") {
        return;
    }
    let told = Told::new(SLOW, &[NO_LOCKS]);
    let elsewhere = &["--pidfile", "elsewhere.pid"][..];
    let start = [&["start"], elsewhere].concat();
    let mut command = told.command(&start);
    let poller = told.place.spawn(command.stderr(told.place.log()));
    told.place.until_up(&poller);
    poller.kill();
    let stop = [&["stop"], elsewhere].concat();
    let said = told.run(&stop).expect(1).stderr;
    let why = "is stale but stays: its file system cannot lock, so it may be another poller's";
    assert!(said.contains(why), "{said}");
    assert!(exists(&told.place.path("elsewhere.pid")));
}
