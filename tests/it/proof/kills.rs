//! The real program, killed or stopped before any of its system calls, or with one of them failing.

use super::scene::{ALL, Scenario, Scene, memory};
use super::traced::{self, Act, Call, Ended};
use crate::world::program::{scaled, seed};
use crate::world::sim::Dice;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

/// What an undisturbed run comes to, to compare with.
struct Undisturbed {
    scenario: Scenario,
    calls: u64,
    ledger: Value,
}

/// Runs a scene's poller; one that would run on is asked to stop once all is done.
fn run(scene: &Scene, mut act: impl FnMut(&Call) -> Act) -> Ended {
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
enum Tries {
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

fn undisturbed(scenario: Scenario) -> Undisturbed {
    let scene = Scene::set(scenario, &memory());
    let ended = run(&scene, |_| Act::Go);
    let failed = i32::from(scenario.failing);
    assert_eq!(ended.code, Some(failed), "{}", scene.place.story());
    scene.recover().expect(scenario.name);
    Undisturbed {
        scenario,
        calls: ended.calls,
        ledger: scene.ledger(),
    }
}

/// What is wrong with a scene after it was left to itself, if anything: it must have come to what
/// an undisturbed one does. `reposts` is how often anything may have been posted again.
fn wrong(scene: &Scene, wanted: &Undisturbed, reposts: u64) -> Option<String> {
    wrong_but(scene, wanted, reposts, Tries::Same)
}

/// The same with another number of tries.
fn wrong_but(scene: &Scene, wanted: &Undisturbed, reposts: u64, tries: Tries) -> Option<String> {
    let damaged = scene.damage();
    if !damaged.is_empty() {
        return Some(format!("right after it: {damaged:?}"));
    }
    if let Err(why) = scene.recover() {
        return Some(why);
    }
    if scene.reposted() > reposts {
        return Some(format!("posted again {} times", scene.reposted()));
    }
    let ledger = scene.ledger();
    if !tries.agree(&ledger, &wanted.ledger) {
        return Some(format!("ledger: {ledger} instead of {}", wanted.ledger));
    }
    if !scene.place.entries("poll.gave_up").is_empty() {
        return Some("something was given up".to_string());
    }
    let said = scene.place.lines("stderr.log").join("\n");
    if said.contains("panicked") {
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
    let before = (scene.effects(), scene.reposted(), scene.place.snapshot());
    scene.asked();
    scene.place.once();
    let (asked, fresh) = scene.asked();
    if (scene.effects(), scene.reposted(), scene.place.snapshot()) != before || fresh > 0 {
        return Some(format!(
            "once more did something: {fresh} of {asked} requests"
        ));
    }
    None
}

/// A sweep over points in scenarios, each of them some numbers of calls.
struct Sweep {
    name: &'static str,
    wanted: Vec<Undisturbed>,
    points: Vec<(usize, Vec<u64>)>,
    dice: Dice,
}

impl Sweep {
    /// Points of one call each, spread evenly over the calls of each scenario: of those
    /// with tmux a tenth as many, since they take ten times as long.
    fn new(name: &'static str, points: u64, scenarios: impl Iterator<Item = Scenario>) -> Sweep {
        let first = seed();
        println!("{name}: IDEMPOLL_SEED={first}");
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
            let share = (points * weight(u) / weights).max(1);
            let from = sweep.dice.roll(u.calls);
            for k in 0..share {
                // Over and over again once each was tried.
                let at = 1 + (from + k * u.calls.max(share) / share) % u.calls;
                sweep.points.push((n, vec![at]));
            }
        }
        sweep
    }

    /// Lives through each point; `live` says what is wrong, if anything, and what was hit.
    fn go(self, live: impl Fn(&Undisturbed, &[u64], &mut Vec<String>) -> Option<String> + Sync) {
        let next = AtomicUsize::new(0);
        let faults = Mutex::new(Vec::new());
        let hit: Mutex<BTreeMap<String, u64>> = Mutex::default();
        let workers = std::thread::available_parallelism().map_or(2, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while let Some((n, at)) = self.points.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let wanted = &self.wanted[*n];
                        let mut what = Vec::new();
                        let why = live(wanted, at, &mut what);
                        for call in &what {
                            let name = call.split('(').next().unwrap_or_default().to_string();
                            *hit.lock().expect("whole").entry(name).or_default() += 1;
                        }
                        if let Some(why) = why {
                            let scenario = wanted.scenario.name;
                            let fault = format!("{scenario} at {at:?} {what:?}: {why}");
                            println!("{fault}");
                            faults.lock().expect("whole").push(fault);
                        }
                    }
                });
            }
        });
        let hit = hit.into_inner().expect("whole");
        let struck: u64 = hit.values().sum();
        let faults = faults.into_inner().expect("whole");
        println!(
            "{}: {} worlds, {struck} calls struck, of {} kinds: {hit:?}",
            self.name,
            self.points.len(),
            hit.len()
        );
        assert!(
            faults.is_empty(),
            "{} faults, of them {:#?}",
            faults.len(),
            &faults[..faults.len().min(5)]
        );
        assert!(
            struck >= self.points.len() as u64 * 8 / 10,
            "too few were struck"
        );
    }
}

/// Runs a scene until the call with this number, and does `act` to that one.
fn strike(scene: &Scene, number: u64, what: &mut Vec<String>, act: impl Fn(&Call) -> Act) -> Ended {
    run(scene, |call| {
        if call.number != number {
            return Act::Go;
        }
        let act = act(call);
        what.push(call.what());
        act
    })
}

/// Given a run of each scenario, when the poller is killed before any one of its system calls, then the
/// pollers after it come to what an undisturbed one does: each event once, in order, at no cost, nothing
/// damaged, and once more nothing is done (R1.4, R3.1, R3.4, R3.6, R3.7, R5.4, R6.1, R6.2, R6.3).
#[test]
fn r3_killed_before_any_call_it_goes_on_as_if_it_had_not_been() {
    Sweep::new("killed once", scaled(2000), ALL.into_iter()).go(|wanted, at, what| {
        let scene = Scene::set(wanted.scenario, &memory());
        strike(&scene, at[0], what, |_| Act::Kill);
        wrong(&scene, wanted, 1)
    });
}

/// The same, and the poller that follows is killed at any call of its own (R3.1, R5.4, R6.2).
#[test]
fn r3_killed_twice_in_a_row_it_goes_on_as_if_it_had_not_been() {
    let mut sweep = Sweep::new("killed twice", scaled(200), ALL.into_iter());
    for (n, at) in sweep.points.iter_mut().filter(|(_, at)| at.len() == 1) {
        at.push(1 + sweep.dice.roll(sweep.wanted[*n].calls));
    }
    sweep.go(|wanted, at, what| {
        let scene = Scene::set(wanted.scenario, &memory());
        for number in at {
            strike(&scene, *number, what, |_| Act::Kill);
        }
        wrong(&scene, wanted, 2)
    });
}

/// Given a run of each scenario, when SIGTERM comes before any one of its system calls, then it ends by itself, and the
/// next ones come to what an undisturbed one does; nothing is repeated at all, and no try counts as
/// interrupted (R2.5, R4.1, R5.1, R5.2, R5.3, R6.1, R6.2).
#[test]
fn r5_stopped_before_any_call_it_goes_on_as_if_it_had_not_been() {
    Sweep::new("stopped", scaled(1000), ALL.into_iter()).go(|wanted, at, what| {
        let scene = Scene::set(wanted.scenario, &memory());
        let ended = strike(&scene, at[0], what, |_| Act::Signal(Signal::SIGTERM));
        // By the signal only as long as nobody listens for it.
        let early =
            scene.place.entries("poller.started").len() == usize::from(wanted.scenario.later);
        if !(matches!(ended.code, Some(0 | 1)) || (ended.code.is_none() && early)) {
            return Some(format!(
                "it ended with {:?}: {}",
                ended.code,
                scene.place.story()
            ));
        }
        for kind in ["poll.interrupted_delivery", "dispatch.failed"] {
            if !wanted.scenario.failing && !scene.place.entries(kind).is_empty() {
                return Some(format!("{kind}: {}", scene.place.story()));
            }
        }
        wrong(&scene, wanted, 0)
    });
}

/// How a call can fail that is not the program's own fault.
fn errors(name: &str) -> &'static [Errno] {
    match name {
        "openat" | "open" => &[
            Errno::EMFILE,
            Errno::EIO,
            Errno::ENOSPC,
            Errno::EROFS,
            Errno::EINTR,
        ],
        "write" | "pwrite64" => &[Errno::ENOSPC, Errno::EIO, Errno::EDQUOT, Errno::EINTR],
        "fsync" | "syncfs" | "fdatasync" => &[Errno::EIO, Errno::ENOSPC, Errno::EDQUOT],
        "rename" | "mkdir" | "link" | "ftruncate" => &[Errno::EIO, Errno::ENOSPC, Errno::EROFS],
        "unlink" | "rmdir" => &[Errno::EIO, Errno::EROFS],
        "read" | "getdents64" | "pread64" => &[Errno::EIO, Errno::EINTR],
        "flock" => &[Errno::EINTR, Errno::ENOLCK],
        "statx" | "fstat" | "newfstatat" | "stat" | "lstat" | "fstatfs" | "statfs" => &[Errno::EIO],
        "socket" | "pipe2" | "eventfd2" | "fcntl" | "dup" => &[Errno::EMFILE],
        "clone3" | "clone" => &[Errno::EAGAIN],
        "connect" => &[Errno::ECONNREFUSED, Errno::EINTR],
        "sendto" | "recvfrom" => &[Errno::ECONNRESET, Errno::EINTR],
        "poll" | "ppoll" | "wait4" | "waitid" => &[Errno::EINTR],
        "pidfd_open" => &[Errno::EMFILE, Errno::ENOSYS],
        _ => &[],
    }
}

/// Given a run of each scenario, when any one of its system calls fails, as calls do on a full, broken or
/// busy machine, then it does not panic, leaves nothing damaged, and the next ones come to what an
/// undisturbed one does (R3.2, R3.5, R3.6, R6.1, R6.2).
#[test]
fn r3_5_failing_at_any_call_it_loses_and_repeats_nothing() {
    let scenarios = ALL.into_iter().filter(|scenario| !scenario.daemon);
    Sweep::new("failing", scaled(500), scenarios).go(|wanted, at, what| {
        let scene = Scene::set(wanted.scenario, &memory());
        let mut dice = Dice(at[0].wrapping_mul(0x9e37_79b9) | 1);
        let which = dice.roll(6);
        let failed = std::cell::Cell::new(None);
        let mut wait = at[0];
        // The first call from there on that can fail.
        let ended = run(&scene, |call| {
            let errors = errors(call.name);
            if call.number < wait || errors.is_empty() || failed.get().is_some() {
                return Act::Go;
            }
            wait = call.number;
            let shorten = call.name == "write" && which == 5;
            let act = match shorten {
                true => Act::Shorten,
                false => Act::Fail(errors[which as usize % errors.len()] as i32),
            };
            failed.set(Some(act));
            what.push(format!("{} {act:?}", call.what()));
            act
        });
        if ended.hung {
            return Some("it does not end".to_string());
        }
        let request = ["connect", "sendto", "recvfrom"];
        let request = what
            .iter()
            .any(|w| request.iter().any(|r| w.starts_with(r)));
        let tries = if request { Tries::Any } else { Tries::Fewer };
        wrong_but(&scene, wanted, 1, tries)
    });
}
