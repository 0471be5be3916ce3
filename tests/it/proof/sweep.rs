//! Many points of many scenarios, and what an undisturbed world comes to, to compare with.

use super::failures::failures;
use super::scene::{Scenario, Scene, memory};
use super::traced::{self, Act, Call, Ended};
use crate::world::program::seed;
use crate::world::sim::Dice;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

/// What an undisturbed run comes to, to compare with.
pub struct Undisturbed {
    pub scenario: Scenario,
    /// The names of the calls, in their order; the first has number 1.
    pub calls: Vec<&'static str>,
    /// In how many ways each of them can fail.
    pub ways: Vec<u64>,
    pub ledger: Value,
}

/// Runs a scene's poller; one that would run on is asked to stop once all is done.
pub fn run(scene: &Scene, mut act: impl FnMut(&Call) -> Act) -> Ended {
    if !scene.scenario.daemon {
        return traced::run(&scene.command(), act);
    }
    let (pid, over) = (AtomicI32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let pid = pid.load(Ordering::SeqCst);
                if pid != 0 && scene.is_done() {
                    let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
                    return;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let ended = traced::run(&scene.command(), |call| {
            pid.store(call.pid.as_raw(), Ordering::SeqCst);
            act(call)
        });
        over.store(true, Ordering::SeqCst);
        ended
    })
}

/// How many tries a disturbed world may spend, seen from an undisturbed one.
#[derive(Clone, Copy, PartialEq)]
pub enum Tries {
    Same,
    /// Nobody may know of one that failed how it ended.
    Fewer,
    /// A request that failed has cost one.
    Any,
}

impl Tries {
    /// Whether the ledgers are the same but for that.
    fn agree(self, ledger: &Value, wanted: &Value) -> bool {
        let (mut ledger, mut wanted) = (ledger.clone(), wanted.clone());
        for (number, item) in wanted.as_object_mut().into_iter().flatten() {
            let each = item.get_mut(3).and_then(Value::as_array_mut);
            for (n, delivery) in each.into_iter().flatten().enumerate() {
                let Some(own) = ledger.pointer_mut(&format!("/{number}/3/{n}/3")) else {
                    return false;
                };
                let fewer = own.as_u64() <= delivery[3].as_u64();
                if self == Tries::Any || self == Tries::Fewer && fewer {
                    *own = Value::Null;
                    delivery[3] = Value::Null;
                }
            }
        }
        ledger == wanted
    }
}

pub fn undisturbed(scenario: Scenario) -> Undisturbed {
    let scene = Scene::set(scenario, &memory());
    let (mut calls, mut ways) = (Vec::new(), Vec::new());
    let ended = run(&scene, |call| {
        calls.push(call.name);
        ways.push(failures(call).len() as u64);
        Act::Go
    });
    // A try that failed is made again by the same run only as long as others are under way.
    let failed = scenario.failing && ended.code == Some(1);
    assert!(
        failed || ended.code == Some(0),
        "{}, undisturbed, ended with {:?}{}: {}",
        scenario.name,
        ended.code,
        if ended.hung { " after it hung" } else { "" },
        scene.place.story()
    );
    scene.recover().expect(scenario.name);
    Undisturbed {
        scenario,
        calls,
        ways,
        ledger: scene.ledger(),
    }
}

/// What a disturbance may leave behind that an undisturbed world has not.
#[derive(Clone, Copy)]
pub struct May {
    /// How often what was in flight may come again, of each item, to each of these sinks.
    pub repeat: u64,
    pub to: &'static [&'static str],
    pub tries: Tries,
}

impl May {
    /// After a kill only what was posted may come again (R6.2).
    pub const fn post_again(times: u64) -> May {
        May {
            repeat: times,
            to: &["hook"],
            tries: Tries::Same,
        }
    }
}

/// What is wrong with a scene after it was left to itself, if anything: it must have come to what
/// an undisturbed one does, and what it may leave behind.
pub fn wrong(scene: &Scene, wanted: &Undisturbed, may: May) -> Option<String> {
    let damaged = scene.damage();
    if !damaged.is_empty() {
        return Some(format!("right after it: {damaged:?}"));
    }
    if let Err(why) = scene.recover() {
        return Some(why);
    }
    let mut times: BTreeMap<(String, u64), u64> = BTreeMap::new();
    for (sink, number, key) in scene.repeats() {
        let times = times.entry((sink.clone(), number)).or_default();
        *times += 1;
        if *times > may.repeat || !may.to.contains(&sink.as_str()) {
            return Some(format!("{key} of {number} came to {sink} again"));
        }
    }
    let ledger = scene.ledger();
    if !may.tries.agree(&ledger, &wanted.ledger) {
        return Some(format!("ledger: {ledger} instead of {}", wanted.ledger));
    }
    if !scene.place.entries("poll.gave_up").is_empty() {
        return Some("something was given up".to_string());
    }
    let said = scene.place.lines("stderr.log").join("\n");
    if tells_of_a_bug(&said) {
        return Some(said);
    }
    // The same run again does nothing (invariant 9), once what is young upstream has settled.
    if wanted.scenario.github {
        for _ in 0..2 {
            scene.pass(1000);
            scene.place.once();
        }
    }
    let litter = scene.litter();
    if !litter.is_empty() {
        return Some(format!("in the end: {litter:?}"));
    }
    let again = || {
        let before = (scene.effects(), scene.repeats(), scene.place.snapshot());
        scene.asked();
        scene.place.once();
        let (asked, fresh) = scene.asked();
        let after = (scene.effects(), scene.repeats(), scene.place.snapshot());
        let of = before.2.iter().filter(|file| !after.2.contains(file));
        let changed: Vec<_> = of.map(|(path, _)| path.clone()).collect();
        let same = after == before && fresh == 0;
        (!same).then(|| format!("once more: {fresh} of {asked} requests, {changed:?} changed"))
    };
    again().and_then(|_| {
        // Item files of the last seconds are remembered as such, and that is over once.
        std::thread::sleep(Duration::from_secs(3));
        scene.place.once();
        again()
    })
}

/// Tries so many cases, some at a time, since each waits more than it works; gives what was wrong, and prints it when
/// it is found.
pub fn in_parallel(cases: usize, live: impl Fn(usize) -> Option<String> + Sync) -> Vec<String> {
    let (next, faults) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let workers = 16.min(4 * std::thread::available_parallelism().map_or(2, usize::from));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let case = next.fetch_add(1, Ordering::Relaxed);
                    if case >= cases {
                        return;
                    }
                    if let Some(why) = live(case) {
                        println!("{why}");
                        faults.lock().expect("whole").push(why);
                    }
                }
            });
        }
    });
    faults.into_inner().expect("whole")
}

/// Panics with the first faults, if there are any.
pub fn none(faults: &[String]) {
    let shown = &faults[..faults.len().min(5)];
    assert!(
        faults.is_empty(),
        "{} faults, of them {shown:#?}",
        faults.len()
    );
}

/// Whether a poller says that it panicked.
pub fn tells_of_a_bug(said: &str) -> bool {
    said.contains("panicked") || said.contains("this is a bug")
}

/// A sweep over points in scenarios, each of them some numbers of calls.
pub struct Sweep {
    pub name: &'static str,
    pub wanted: Vec<Undisturbed>,
    pub points: Vec<(usize, Vec<u64>)>,
    pub dice: Dice,
}

impl Sweep {
    /// Points of one call each, spread evenly over the calls of each scenario, and over and over again
    /// once each was tried.
    pub fn new(
        name: &'static str,
        points: u64,
        scenarios: impl Iterator<Item = Scenario>,
    ) -> Sweep {
        Sweep::over(name, points, u64::MAX, scenarios, |u| {
            (1..=u.calls.len() as u64).map(|at| vec![at]).collect()
        })
    }

    /// Points of one call and one way in which it fails, each at most once.
    pub fn of_failures(points: u64, scenarios: impl Iterator<Item = Scenario>) -> Sweep {
        Sweep::over("failing", points, 1, scenarios, |u| {
            let calls = (1..).zip(&u.ways);
            let each = calls.flat_map(|(at, ways)| (1..=*ways).map(move |way| vec![at, way]));
            each.collect()
        })
    }

    /// Spreads so many points over what `all` says can be hit, each at most so many times; scenarios with tmux
    /// get a tenth as many, since they take ten times as long.
    fn over(
        name: &'static str,
        points: u64,
        times: u64,
        scenarios: impl Iterator<Item = Scenario>,
        all: impl Fn(&Undisturbed) -> Vec<Vec<u64>>,
    ) -> Sweep {
        let first = seed();
        println!("{name}: IDEMPOLL_SEED={first}");
        // `IDEMPOLL_SCENARIO=tmux` has all points in that one.
        let only = std::env::var("IDEMPOLL_SCENARIO").ok();
        let scenarios = scenarios.filter(|s| only.as_ref().is_none_or(|only| s.name == only));
        let wanted: Vec<Undisturbed> = scenarios.map(undisturbed).collect();
        let weight = |u: &Undisturbed| if u.scenario.sinks == ["agent"] { 1 } else { 10 };
        let weights: u64 = wanted.iter().map(weight).sum();
        let mut sweep = Sweep {
            name,
            points: Vec::new(),
            dice: Dice(first | 1),
            wanted,
        };
        for (n, u) in sweep.wanted.iter().enumerate() {
            // `IDEMPOLL_POINT=tmux:222,108` tries one again that was found.
            if let Ok(point) = std::env::var("IDEMPOLL_POINT") {
                if let Some(at) = point.strip_prefix(&format!("{}:", u.scenario.name)) {
                    let at = at.split(',').map(|n| n.parse().expect("a number"));
                    sweep.points.push((n, at.collect()));
                }
                continue;
            }
            let all = all(u);
            let count = all.len() as u64;
            let share = (points * weight(u) / weights).clamp(1, count.saturating_mul(times));
            let from = sweep.dice.roll(count);
            for k in 0..share {
                let at = (from + k * count.max(share) / share) % count;
                let at = usize::try_from(at).expect("small");
                sweep.points.push((n, all[at].clone()));
            }
            if times == 1 {
                println!("{name}: {share} of {count} in {}", u.scenario.name);
            }
        }
        sweep
    }

    /// Lives through each point; `live` says what is wrong, if anything, and what was hit.
    pub fn go(
        self,
        live: impl Fn(&Undisturbed, &[u64], &mut Vec<String>) -> Option<String> + Sync,
    ) {
        let hit: Mutex<BTreeMap<String, u64>> = Mutex::default();
        let faults = in_parallel(self.points.len(), |point| {
            let (n, at) = &self.points[point];
            let wanted = &self.wanted[*n];
            let mut what = Vec::new();
            let why = live(wanted, at, &mut what);
            for call in &what {
                let name = call.split('(').next().unwrap_or_default().to_string();
                *hit.lock().expect("whole").entry(name).or_default() += 1;
            }
            let scenario = wanted.scenario.name;
            why.map(|why| format!("{scenario} at {at:?} {what:?}: {why}"))
        });
        let hit = hit.into_inner().expect("whole");
        let struck: u64 = hit.values().sum();
        println!(
            "{}: {} worlds, {struck} calls struck, of {} kinds: {hit:?}",
            self.name,
            self.points.len(),
            hit.len()
        );
        none(&faults);
        assert!(
            struck >= self.points.len() as u64 * 8 / 10,
            "too few were struck"
        );
    }
}

/// Runs a scene until the call with this number, and does `act` to that one.
pub fn strike(
    scene: &Scene,
    number: u64,
    what: &mut Vec<String>,
    act: impl Fn(&Call) -> Act,
) -> Ended {
    run(scene, |call| {
        if call.number != number {
            return Act::Go;
        }
        let act = act(call);
        what.push(call.what());
        act
    })
}
