//! The engine in random worlds: uninterrupted, and cut off at every point.
//!
//! A world is an upstream, sinks that fail, hang and say "not now", and a disk that knows
//! what is durable (`world/sim`). Its poller is killed, stopped, cut off by the machine, or has
//! its clock set, at each point at which something can happen, once, twice, or many times; then
//! `oracle` says whether it came to the same. A case that fails is made as small
//! as it gets and printed as JSON; what failed once is kept in `fixtures/scenarios/`.
//!
//! `IDEMPOLL_SCALE` (percent) makes more or less of it, or `IDEMPOLL_WORLDS`: how many are killed at
//! every point, the rest in proportion. `IDEMPOLL_FIRST` begins with another seed than 0, and
//! `IDEMPOLL_SHRINK` is how many smaller cases are tried at most.

mod oracle;
mod shrink;
mod stored;

use crate::world::program::scaled;
use crate::world::sim::{Blow, Case, Dice, Planted, Script, World};
use oracle::compare;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many worlds are killed at every point, by default.
const KILLED: u64 = 30;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

/// Goes through so many worlds, on all processors; `cut` says what happened in one, and how often it
/// was cut. Prints both, under the name of `what` happens.
fn go_through(what: &str, worlds: u64, cut: impl Fn(u64) -> Result<u64, Case> + Sync) {
    let worlds = match number("IDEMPOLL_WORLDS") {
        Some(n) => (worlds * n / KILLED).max(1),
        None => scaled(worlds),
    };
    let first = number("IDEMPOLL_FIRST").unwrap_or(0);
    let (next, cuts) = (AtomicU64::new(first), AtomicU64::new(0));
    let failed = Mutex::new(None);
    let work = || {
        while failed.lock().is_ok_and(|f| f.is_none()) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + worlds {
                break;
            }
            match cut(seed) {
                Ok(n) => drop(cuts.fetch_add(n, Ordering::Relaxed)),
                Err(case) => *failed.lock().expect("nobody panics with it") = Some(case),
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    if let Some(case) = failed.into_inner().expect("nobody panics with it") {
        complain(what, case);
    }
    println!("{what}: {worlds} worlds, {} cuts", cuts.into_inner());
}

/// Makes a failing case small, and tells everything about it.
fn complain(what: &str, case: Case) -> ! {
    let seed = case.script.seed;
    let found = shrink::fault(&case, None).unwrap_or("only when it was found".into());
    let most = number("IDEMPOLL_SHRINK").unwrap_or(20_000);
    let small = shrink::shrink(case, most, None);
    let wrong = shrink::fault(&small, None).unwrap_or(found.clone());
    panic!(
        "{what}: world {seed}: {found}\n\nThe smallest case found, for fixtures/scenarios/:\n{}\n{wrong}",
        stored::text("", &small)
    );
}

/// A world undisturbed, and as it was before each of its lives.
fn undisturbed(script: &Script) -> (World, Vec<World>) {
    let mut world = World::new(&Case {
        script: script.clone(),
        blows: Vec::new(),
        refusals: 0,
    });
    let mut lives = vec![world.clone()];
    while world.go_on() {
        lives.push(world.clone());
    }
    (world, lives)
}

/// Strikes in every world at every point in turn: `blows` says how, given that point.
fn at_every_point(
    what: &str,
    worlds: u64,
    blows: impl Fn(&mut Dice, u64) -> Vec<(u64, Blow)> + Sync,
) {
    go_through(what, worlds, |seed| {
        let script = Script::random(seed);
        let (wanted, lives) = undisturbed(&script);
        let mut dice = Dice(seed | 1);
        for at in 1..=wanted.fate.points {
            let blows = blows(&mut dice, at);
            // What comes before the blow is as it was.
            let before = lives.partition_point(|w| w.fate.points < at) - 1;
            let mut world = lives[before].clone();
            world.fate.instead(&blows);
            let got = world.live();
            if compare(&wanted, &got).is_err() {
                return Err(Case {
                    script,
                    blows,
                    refusals: 0,
                });
            }
        }
        Ok(wanted.fate.points)
    });
}

/// Given a random world, when the poller is killed once at any point, then it ends as if it had
/// never been killed, and a request that was under way is made again.
/// (R3.1, R3.2, R3.3, R3.4, R3.7, R4.2, R5.4, R6.1, R6.2, R6.4, R6.6, R6.7)
#[test]
fn r3_a_kill_at_any_step_changes_nothing() {
    at_every_point("killed", KILLED, |_, at| vec![(at, Blow::Kill)]);
}

/// Given a random world, when the poller is stopped at any point, then nothing begins after the
/// stop and it ends as if never stopped.
/// (R2.5, R4.1, R5.1, R5.2, R5.3)
#[test]
fn r5_a_stop_at_any_step_changes_nothing() {
    at_every_point("stopped", 30, |_, at| vec![(at, Blow::Stop)]);
}

/// Given a random world, when the machine dies at any point and what was not durable is lost or
/// there as chance has it, then it ends as if it had never died, and nothing is made again but a
/// delivery that was under way. (R3.1, R3.4, R3.6, R3.7, R5.4, R6.1, R6.2)
#[test]
fn r3_a_power_cut_at_any_step_repeats_only_what_was_under_way() {
    at_every_point("the power was cut", 30, |dice, at| {
        vec![(at, Blow::PowerCut(dice.roll(1000)))]
    });
}

/// Given a random world, when the clock is set forward or back at any point, by seconds or by
/// days, then nothing is delivered in another order or number, and nothing waits longer for it. (C023)
#[test]
fn c023_a_clock_set_at_any_step_changes_and_delays_nothing() {
    at_every_point("the clock was set", 16, |dice, at| vec![(at, clock(dice))]);
}

fn clock(dice: &mut Dice) -> Blow {
    let by = [1, 3, 60, 7_200, 90_000, 800_000][dice.roll(6) as usize];
    Blow::Clock(if dice.chance(50) { by } else { -by })
}

fn any_blow(dice: &mut Dice) -> Blow {
    match dice.roll(8) {
        0..=2 => Blow::Kill,
        3 | 4 => Blow::PowerCut(dice.roll(1000)),
        5 | 6 => Blow::Stop,
        _ => clock(dice),
    }
}

/// Given a random world, when a blow strikes at any point and another one while the poller
/// recovers from it (a stop that is cut by a kill, a kill in the recovery from a kill, a power cut
/// in that from a power cut, a clock set in between), then it ends as if undisturbed.
/// (R3.1, R3.4, R3.7, R5.2, R5.4, R6.1, R6.2)
#[test]
fn r3_r5_a_blow_in_the_recovery_from_another_changes_nothing() {
    at_every_point("twice in a row", 40, |dice, at| {
        // Mostly at once or in the next life; now and then much later.
        let later = [1, 4, 40, 400][dice.roll(4) as usize];
        let then = at + dice.roll(later);
        vec![(at, any_blow(dice)), (then, any_blow(dice))]
    });
}

/// Given a random world, when blows of all kinds strike again and again, then it ends as if
/// undisturbed; but for what was interrupted five times without a receipt, which is given up.
/// (R3.1, R3.4, R3.7, R5.2, R5.4, R5.5, R6.1, R6.2)
#[test]
fn r3_r5_many_kills_and_stops_change_nothing() {
    let given_up = AtomicU64::new(0);
    go_through("again and again", 1500, |seed| {
        let mut dice = Dice(seed | 1);
        let script = Script::random(seed);
        let (wanted, _) = undisturbed(&script);
        let (mut blows, mut at) = (Vec::new(), 0);
        let pause = [3, 12, 40][dice.roll(3) as usize];
        for _ in 0..4 + dice.roll(20) {
            at += 1 + dice.roll(pause * 2);
            blows.push((at, any_blow(&mut dice)));
        }
        let case = Case {
            script,
            blows,
            refusals: 0,
        };
        let world = World::new(&case).live();
        let interrupted_out = world.interrupted_out.len() as u64;
        given_up.fetch_add(interrupted_out, Ordering::Relaxed);
        match compare(&wanted, &world) {
            Ok(()) => Ok(case.blows.len() as u64),
            Err(_) => Err(case),
        }
    });
    println!(
        "given up after five interruptions: {}",
        given_up.into_inner()
    );
}

/// Given a random world, when saves fail at random, at once or in their last sync, so that records
/// are written later than they would have been or are not known to be durable, then it ends as if
/// each had been written at once; also when the poller is killed or the power cut meanwhile (R3.2, R3.3, R3.5).
#[test]
fn r3_3_when_records_are_written_changes_nothing() {
    let refused = AtomicU64::new(0);
    go_through("failing saves", 3000, |seed| {
        let script = Script::random(seed);
        let (wanted, _) = undisturbed(&script);
        let mut dice = Dice(seed | 1);
        let blow = |_| (1 + dice.roll(600), any_blow(&mut dice));
        let case = Case {
            blows: (0..seed % 4).map(blow).collect(),
            script,
            refusals: 10 + seed % 40,
        };
        let world = World::new(&case).live();
        refused.fetch_add(world.refused, Ordering::Relaxed);
        match compare(&wanted, &world) {
            Ok(()) => Ok(1 + seed % 4),
            Err(_) => Err(case),
        }
    });
    let refused = refused.into_inner();
    println!("saves that failed: {refused}");
    assert!(refused > 100, "too few saves failed: {refused}");
}

/// Given a world at rest, when it is polled again, then nothing is delivered
/// and nothing written (invariant 9); the worlds' own end says so: they rest
/// only after three cycles with no save and no delivery. And undisturbed nothing comes twice (R6.2).
#[test]
fn a_world_at_rest_stays_at_rest() {
    let made = AtomicU64::new(0);
    go_through("undisturbed", 60, |seed| {
        let script = Script::random(seed);
        let (world, _) = undisturbed(&script);
        let effects = &world.sinks.effects;
        let all = effects.made.values().map(Vec::len).sum::<usize>();
        made.fetch_add(all as u64, Ordering::Relaxed);
        let once = |made: &Vec<(String, usize)>| {
            let unique: std::collections::BTreeSet<_> = made.iter().collect();
            unique.len() == made.len()
        };
        let sound = effects.made.values().all(once)
            && effects.lost.is_empty()
            && effects.missing.is_empty()
            && world.interrupted_out.is_empty();
        match sound && compare(&world, &world).is_ok() {
            true => Ok(0),
            false => Err(Case {
                script,
                blows: Vec::new(),
                refusals: 0,
            }),
        }
    });
    let made = made.into_inner();
    assert!(made > 100, "the worlds do too little: {made} deliveries");
}

/// Given faults planted in the worlds' store and sinks, then each is found, and the case comes out
/// small: one blow, a happening or two. So what passes here passed something.
#[test]
fn planted_faults_are_found_and_come_out_small() {
    for (planted, most_happenings, most_blows) in [
        (Planted::BatchNotSynced, 3, 1),
        (Planted::MarkerRemovedFirst, 3, 1),
        (Planted::ReceiptIgnored, 1, 1),
    ] {
        let found = (0..200).find_map(|seed| {
            let script = Script::random(seed);
            let (wanted, _) = undisturbed(&script);
            let points = wanted.fate.points;
            let mut dice = Dice(seed | 1);
            (0..100).find_map(|_| {
                let case = Case {
                    script: script.clone(),
                    blows: vec![
                        (1 + dice.roll(points), any_blow(&mut dice)),
                        (1 + dice.roll(points), any_blow(&mut dice)),
                    ],
                    refusals: 0,
                };
                shrink::fault_beside(&wanted, &case, Some(planted)).map(|_| case)
            })
        });
        let found = found.unwrap_or_else(|| panic!("{planted:?} was not found"));
        let small = shrink::shrink(found, 20_000, Some(planted));
        let text = stored::text("planted", &small);
        let happenings = small.script.stages.iter().map(Vec::len).sum::<usize>();
        assert!(
            happenings <= most_happenings && small.blows.len() <= most_blows,
            "{planted:?} came out as {text}"
        );
        println!(
            "{planted:?}: {}",
            shrink::fault(&small, Some(planted)).expect("it fails")
        );
        // The file says all of it, and it was the fault that failed.
        let again: stored::Stored = serde_json::from_str(&text).expect("it is what we wrote");
        assert_eq!(again.case, small);
        assert!(shrink::fault(&small, Some(planted)).is_some());
        assert_eq!(shrink::fault(&small, None), None, "{planted:?}");
    }
}

/// Given the cases in which something went wrong once, then nothing does any more.
/// (R3.1, R3.4, R3.6, R3.7, R5.2, R5.4, R5.5, R6.1, R6.2)
#[test]
fn what_went_wrong_once_does_not_again() {
    let all = stored::all();
    assert!(all.len() >= 6, "fixtures/scenarios is not there");
    for (file, stored) in all {
        let wrong = shrink::fault(&stored.case, None);
        assert_eq!(wrong, None, "{file}: {}", stored.why);
    }
}
