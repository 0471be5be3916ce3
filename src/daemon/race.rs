//! The race for the lock: eight processes that start, stop, probe and meddle at
//! random, and a marker that knows nothing of locks.
//!
//! Half of the processes are *starters*: they take the lock as `start` does, say
//! who they are in `run.json`, hold it for a random time and give it back, over
//! and over, as so many pollers one after the other. *Stoppers* run the real
//! `stop`, with handles and a real `SIGTERM`, which ends the starter that was
//! hit. A *prober* looks, as `status` does. A *meddler* deletes the pidfile or
//! has it name something else, at random moments. The test itself kills starters with
//! `SIGKILL`, and puts a new one in the place of each that ended.
//!
//! What must not happen, and how it would be seen:
//!
//! * *Two holders.* Whoever holds the lock makes a symbolic link that names it, which fails
//!   if there is one. One whose maker is dead was left by a kill.
//! * *A wrong pid signalled.* Bystanders' pids stand in pidfiles and in the `run.json`
//!   of starters that die by their own hand, as if the pid had been given away since;
//!   each bystander must live. And a starter that gets a signal must have held the
//!   lock while a `stop` ran that says it ended that starter.
//! * *A false refusal*: "busy" while nobody could hold the lock. In the free race that
//!   cannot be told, so there is a race in which the starters go through a turnstile (a lock of its own, which
//!   each keeps from before it starts until after it has given the lock back) and have no
//!   patience at all. There, every "busy" is false. Nobody is killed there: the kernel gives
//!   back a dead one's turnstile before its lock.
//!
//! That a poller gets one signal and no more cannot be seen here: a starter plays many pollers in a
//! row, and the second signal may be meant for the next of them.
//!
//! The figures are files, a byte for each event, so that a kill loses none.
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "tests")]

use super::clock::{self, Mono};
use super::holder;
use super::runlock::{Refused, RunLock};
use super::signals;
use super::stand_in::{LONG, Scratch, command};
use super::stop::{Stopped, stop};
use crate::os::flock;
use crate::os::pid::{self, Pid};
use crate::os::proc::{self, Stat};
use crate::os::signals::Signal;
use crate::os::wait;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a race lasts, and how often the lock must have been taken by then; both
/// times `IDEMPOLL_SCALE` percent. On a slow machine the race goes on until it was.
const LASTS: Duration = Duration::from_secs(10);
const ACQUIRED: u64 = 10_000;

/// The same for the race through the turnstile, where nobody is faster than the slowest.
const IN_TURN_LASTS: Duration = Duration::from_secs(3);
const IN_TURN_ACQUIRED: u64 = 1_000;

/// The scale of long tests, in percent.
fn scale() -> u64 {
    let scale = std::env::var("IDEMPOLL_SCALE").ok();
    scale.and_then(|s| s.parse().ok()).unwrap_or(100)
}

/// R1.1, R1.3, R1.5, R1.6, R1.7, R2.1, C094. Given eight processes that start, stop, probe and
/// meddle at random, some of which are killed, then no two ever hold the lock, no start fails, no
/// `stop` fails, and nobody is signalled but a poller that held the lock.
#[test]
fn in_a_race_of_eight_processes_nobody_overlaps_and_nobody_else_is_signalled() {
    let race = Race::new("starter");
    race.run(LASTS, ACQUIRED, true);
    assert_eq!(race.figures("overlaps"), 0, "{}", race.story());
    assert_eq!(race.figures("failures"), 0, "{}", race.story());
    assert_eq!(race.wrongly_signalled(), Vec::<String>::new());
    assert!(race.figures("killed") > 0 && race.figures("signalled") > 0);
}

/// R1.7, R2.4. Given starters of which one runs at a time, among the others' stops, probes and
/// deletions, when each starts without any patience, then none is ever refused.
#[test]
fn who_starts_alone_is_never_refused() {
    let race = Race::new("turnstile");
    race.run(IN_TURN_LASTS, IN_TURN_ACQUIRED, false);
    assert_eq!(race.figures("busy"), 0, "{}", race.story());
    assert_eq!(race.figures("overlaps"), 0, "{}", race.story());
    assert_eq!(race.figures("failures"), 0, "{}", race.story());
    assert_eq!(race.wrongly_signalled(), Vec::<String>::new());
}

/// A race: its places, and whoever takes part.
struct Race {
    scratch: Scratch,
    starter: &'static str,
    bystanders: Vec<Bystander>,
    open: RefCell<BTreeMap<String, File>>,
}

/// A process that has nothing to do with anything; a signal would end it.
struct Bystander(Child);

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Race {
    fn new(starter: &'static str) -> Race {
        let scratch = Scratch::new();
        // As after the first start, so that `stop`s find where to take turns.
        let made = fs::DirBuilder::new()
            .recursive(true)
            .create(scratch.state().join("requests"));
        made.expect("they can be made");
        let bystander = |_| {
            Bystander(
                Command::new("sleep")
                    .arg("86400")
                    .spawn()
                    .expect("sleep is there"),
            )
        };
        Race {
            scratch,
            starter,
            bystanders: (0..3).map(bystander).collect(),
            open: RefCell::default(),
        }
    }

    fn spawn(&self, part: &str) -> Child {
        let pids: Vec<String> = self
            .bystanders
            .iter()
            .map(|b| b.0.id().to_string())
            .collect();
        let mut command = command(part, &self.scratch, &[]);
        command.env("IDEMPOLL_TEST_RACE", self.scratch.path());
        command.env("IDEMPOLL_TEST_BYSTANDERS", pids.join(" "));
        command
            .stdout(Stdio::null())
            .spawn()
            .expect("we can be started again")
    }

    /// Runs it to its end, and prints what happened.
    fn run(&self, lasts: Duration, acquired: u64, kills: bool) {
        let on = self.scratch.path().join("on");
        File::create(&on).expect("there is room");
        let lasts = lasts * u32::try_from(scale()).expect("a percentage") / 100;
        let wanted = acquired * scale() / 100;
        let parts = [self.starter; 4]
            .into_iter()
            .chain(["stopper", "stopper", "prober", "meddler"]);
        let mut racers: Vec<(&str, Child)> = parts.map(|part| (part, self.spawn(part))).collect();
        let (begun, mut dice) = (Mono::now(), Dice::new());
        let mut kill_at = begun;
        let (end, at_last) = (begun.plus(lasts), begun.plus(lasts * 6 + LONG));
        while !(end.passed() && self.figures("acquired") >= wanted) {
            assert!(!at_last.passed(), "too slow: {}", self.story());
            wait::pause(Duration::from_millis(3));
            for (part, child) in &mut racers {
                if let Some(status) = child.try_wait().expect("our child") {
                    // A panic (101) shows here.
                    let ended =
                        matches!(status.code(), Some(0 | 130) | None) && *part == self.starter;
                    assert!(ended, "{part}: {status}: {}", self.story());
                    *child = self.spawn(part);
                }
            }
            if kills && kill_at.passed() {
                kill_at = Mono::now().plus(Duration::from_millis(dice.below(400)));
                let (_, victim) = &mut racers[dice.below(4) as usize];
                victim.kill().expect("our child");
                self.count("killed");
            }
        }
        fs::remove_file(&on).expect("it is there");
        for (part, mut child) in racers {
            let ended = child.wait().expect("our child");
            assert!(
                matches!(ended.code(), Some(0 | 130) | None),
                "{part}: {ended}"
            );
        }
        for bystander in &self.bystanders {
            let stat = Pid::new(bystander.0.id()).and_then(Stat::of);
            assert!(stat.is_some_and(|s| !s.zombie), "a bystander was signalled");
        }
        println!("{:?}: {}", Mono::now().since(begun), self.story());
    }

    fn story(&self) -> String {
        let mut story = Vec::new();
        for name in [
            "acquired",
            "busy",
            "killed",
            "died",
            "put right",
            "probes",
            "meddled",
            "nothing ran",
        ] {
            story.push(format!("{} {name}", self.figures(name)));
        }
        story.push(format!("{} signalled", self.lines("signalled").len()));
        story.push(format!("{} stopped", self.lines("stopped").len()));
        for name in ["overlaps", "failures"] {
            story.push(format!("{name}: {:?}", self.lines(name)));
        }
        story.join(", ")
    }

    /// The signals that no `stop` had reason to send.
    fn wrongly_signalled(&self) -> Vec<String> {
        let numbers = |line: &String| -> Vec<u128> {
            line.split(' ')
                .map(|n| n.parse().expect("a number"))
                .collect()
        };
        let mut stops: BTreeMap<u128, Vec<(u128, u128)>> = BTreeMap::new();
        for line in self.lines("stopped") {
            let [pid, begun, ended] = numbers(&line)[..] else {
                panic!("{line}")
            };
            stops.entry(pid).or_default().push((begun, ended));
        }
        let mut wrong = self.lines("signalled");
        wrong.retain(|line| {
            let [pid, last_held, noticed] = numbers(line)[..] else {
                panic!("{line}")
            };
            let reason = |(begun, ended): &(u128, u128)| *begun <= last_held && noticed <= *ended;
            !stops
                .get(&pid)
                .is_some_and(|stops| stops.iter().any(reason))
        });
        wrong
    }
}

/// What a race writes down, for all who take part.
trait Book {
    fn dir(&self) -> &Path;
    fn open(&self) -> &RefCell<BTreeMap<String, File>>;

    fn note(&self, name: &str, text: &str) {
        let mut open = self.open().borrow_mut();
        let file = open.entry(name.to_string()).or_insert_with(|| {
            let path = self.dir().join(name);
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.expect("there is room")
        });
        // In one write, which no other one can come in between of.
        file.write_all(text.as_bytes()).expect("there is room");
    }

    fn count(&self, name: &str) {
        self.note(name, ".");
    }

    fn figures(&self, name: &str) -> u64 {
        fs::metadata(self.dir().join(name)).map_or(0, |m| m.len())
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.dir().join(name)).unwrap_or_default();
        text.lines().map(str::to_string).collect()
    }
}

impl Book for Race {
    fn dir(&self) -> &Path {
        self.scratch.path()
    }

    fn open(&self) -> &RefCell<BTreeMap<String, File>> {
        &self.open
    }
}

/// One of the processes, as it sees the race.
struct Racer {
    dir: PathBuf,
    state: PathBuf,
    pidfile: PathBuf,
    bystanders: Vec<u32>,
    open: RefCell<BTreeMap<String, File>>,
    dice: Dice,
    /// Not for ever: the test may have died.
    end: Mono,
}

impl Book for Racer {
    fn dir(&self) -> &Path {
        &self.dir
    }

    fn open(&self) -> &RefCell<BTreeMap<String, File>> {
        &self.open
    }
}

/// Plays a part until the race is over.
pub(super) fn play(part: &str) -> i32 {
    let var = |name| std::env::var(name).expect("the race sets it");
    let racer = Racer {
        dir: var("IDEMPOLL_TEST_RACE").into(),
        state: var("IDEMPOLL_TEST_STATE").into(),
        pidfile: var("IDEMPOLL_TEST_PIDFILE").into(),
        bystanders: var("IDEMPOLL_TEST_BYSTANDERS")
            .split(' ')
            .map(|p| p.parse().expect("a pid"))
            .collect(),
        open: RefCell::default(),
        dice: Dice::new(),
        end: Mono::now()
            .plus(LASTS * u32::try_from(scale()).expect("a percentage") / 10 + 2 * LONG),
    };
    match part {
        "stopper" => racer.stop(),
        "prober" => racer.probe(),
        "meddler" => racer.meddle(),
        part => return racer.start(part == "turnstile"),
    }
    0
}

impl Racer {
    fn goes_on(&self) -> bool {
        self.dir.join("on").exists() && !self.end.passed()
    }

    fn rest(&mut self, at_most: u64) {
        wait::pause(Duration::from_micros(self.dice.below(at_most)));
    }

    fn start(mut self, in_turn: bool) -> i32 {
        let ask = signals::install().expect("once per process");
        let mut run = holder::this_process(Path::new("/c.json"), &self.pidfile);
        let turnstile = File::create(self.dir.join("turnstile")).expect("there is room");
        let mut last_held = nanoseconds();
        while self.goes_on() && !ask.stop.raised() {
            let patience = match in_turn {
                true => Duration::ZERO,
                false => Duration::from_micros(self.dice.below(20_000)),
            };
            if in_turn {
                flock::exclusive(turnstile.as_fd()).expect("flock works");
                // So that the others find nobody now and then.
                if self.dice.below(5) == 0 {
                    self.rest(2_000);
                }
            }
            match RunLock::acquire(&self.state, &self.pidfile, patience) {
                Ok(mut lock) => {
                    self.enter();
                    self.count("acquired");
                    run.stopped_at = None;
                    run.write(&self.state).expect("there is room");
                    match self.dice.below(400) {
                        0 if !in_turn => self.die(&run),
                        1..20 => self.rest(4_000),
                        20..60 => match lock.put_right() {
                            Ok(_) => self.count("put right"),
                            Err(e) => self.note("failures", &format!("put right: {e}\n")),
                        },
                        _ => {}
                    }
                    if ask.stop.raised() {
                        run.stop_asked_at = Some(clock::now());
                    }
                    run.stopped_at = Some(clock::now());
                    run.write(&self.state).expect("there is room");
                    fs::remove_file(self.dir.join("marker"))
                        .unwrap_or_else(|_| self.overlap("it is gone"));
                    last_held = nanoseconds();
                    if let Err(e) = lock.release() {
                        self.note("failures", &format!("release: {e}\n"));
                    }
                }
                Err(Refused::Busy { .. }) => self.count("busy"),
                Err(Refused::Failed(e)) => self.note("failures", &format!("start: {e}\n")),
            }
            if in_turn {
                flock::unlock(turnstile.as_fd()).expect("flock works");
            }
            if self.dice.below(10) == 0 {
                self.rest(1_000);
            }
        }
        if ask.stop.raised() {
            self.note(
                "signalled",
                &format!("{} {last_held} {}\n", Pid::own(), nanoseconds()),
            );
        }
        0
    }

    /// Makes the marker, which must not be there yet.
    fn enter(&self) {
        let marker = self.dir.join("marker");
        let me = Stat::of_self().expect("/proc is there");
        while symlink(format!("{} {}", me.pid, me.start_time), &marker).is_err() {
            let Ok(maker) = fs::read_link(&marker) else {
                self.overlap("it is gone");
                continue;
            };
            let text = maker.to_string_lossy().into_owned();
            let (pid, start_time) = text.split_once(' ').expect("as made above");
            let (pid, start_time) = (
                pid.parse().expect("a pid"),
                start_time.parse().expect("a number"),
            );
            // The kernel gives a dying process's lock back before it calls it dead.
            let dying = Mono::now().plus(LONG);
            while proc::lives(pid, start_time)
                && fs::read_link(&marker).is_ok_and(|m| m == maker)
                && !dying.passed()
            {
                wait::pause(Duration::from_millis(1));
            }
            if proc::lives(pid, start_time) {
                self.overlap(&text);
                return;
            }
            let _ = fs::remove_file(&marker);
        }
    }

    fn overlap(&self, with: &str) {
        self.note("overlaps", &format!("{} and {with}\n", Pid::own()));
    }

    /// Dies as by `kill -9`, with `run.json` and the pidfile naming a bystander, as
    /// if that had been given the dead one's pid.
    fn die(&mut self, run: &crate::store::run_info::RunInfo) -> ! {
        let mut run = run.clone();
        run.pid = self.bystander();
        run.write(&self.state).expect("there is room");
        let _ = fs::write(&self.pidfile, format!("{}\n", run.pid));
        self.count("died");
        pid::kill(Pid::own(), Signal::Kill).expect("it is us");
        unreachable!("nobody survives that")
    }

    fn bystander(&mut self) -> u32 {
        let at = self.dice.below(self.bystanders.len() as u64);
        self.bystanders[at as usize]
    }

    fn stop(mut self) {
        while self.goes_on() {
            self.rest(300_000);
            let begun = nanoseconds();
            match stop(&self.state, &self.pidfile, LONG, true) {
                Ok(Stopped::Gone { pid: Some(pid) }) => {
                    self.note("stopped", &format!("{pid} {begun} {}\n", nanoseconds()));
                }
                Ok(_) => self.count("nothing ran"),
                Err(e) => self.note("failures", &format!("stop: {e}\n")),
            }
        }
    }

    fn probe(mut self) {
        while self.goes_on() {
            self.rest(1_000);
            if let Err(e) = holder::probe(&self.state, &self.pidfile) {
                self.note("failures", &format!("probe: {e}\n"));
            }
            self.count("probes");
        }
    }

    fn meddle(mut self) {
        while self.goes_on() {
            self.rest(8_000);
            let text = match self.dice.below(3) {
                0 => "garbage".to_string(),
                1 => "1\n".to_string(),
                _ => format!("{}\n", self.bystander()),
            };
            // Any of them may find the file gone, or its directory.
            let _ = match self.dice.below(3) {
                0 => fs::remove_file(&self.pidfile),
                1 => OpenOptions::new()
                    .write(true)
                    .truncate(true)
                    .open(&self.pidfile)
                    .and_then(|mut f| f.write_all(text.as_bytes())),
                _ => {
                    let new = self.dir.join("new");
                    fs::write(&new, text).and_then(|()| fs::rename(&new, &self.pidfile))
                }
            };
            self.count("meddled");
        }
    }
}

/// The wall clock: the monotonic one cannot be compared between processes here.
fn nanoseconds() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("it is later than 1970").as_nanos()
}

/// Random enough.
struct Dice(u64);

impl Dice {
    fn new() -> Dice {
        Dice((nanoseconds() as u64) ^ (u64::from(Pid::own().get()) << 32) | 1)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n.max(1)
    }
}
