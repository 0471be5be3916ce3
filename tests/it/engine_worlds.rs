//! The engine in random worlds: uninterrupted, and cut off at every step.

use crate::world::sim::{Blow, Dice, Effects, Script, World};

fn scale(default: u64) -> u64 {
    std::env::var("IDEMPOLL_WORLDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(default)
}

/// What a world comes to when nobody disturbs it.
fn undisturbed(script: &Script) -> World {
    let mut world = World::new(script.clone());
    world.live(|_| None);
    world
}

fn check(script: &Script, cut: &str, wanted: &World, got: &World) {
    let same = wanted.effects == got.effects && wanted.ledger() == got.ledger();
    assert!(
        same && got.began_after_stop == 0,
        "world {} cut {cut}:\n{script:#?}\nwanted {:#?}\ngot    {:#?}\nledger wanted {:?}\nledger got    {:?}",
        script.seed,
        wanted.effects,
        got.effects,
        wanted.ledger(),
        got.ledger()
    );
}

/// Strikes once, in every world at every step in turn.
fn at_every_step(blow: Blow, struck: &str) {
    let (mut worlds, mut cuts) = (0, 0);
    for seed in 0..scale(60) {
        let script = Script::random(seed);
        let wanted = undisturbed(&script);
        worlds += 1;
        for at in 1..=wanted.steps {
            let mut world = World::new(script.clone());
            world.live(|step| (step == at).then_some(blow));
            check(&script, &format!("{struck} at {at}"), &wanted, &world);
            cuts += 1;
        }
    }
    println!("{struck} once: {worlds} worlds, {cuts} cuts");
}

/// Given a random world, when the poller is killed once before or after any one
/// of its steps, then it ends as if it had never been killed.
/// (R3.1, R3.2, R3.3, R3.4, R3.7, R4.2, R5.4, R6.1, R6.2, R6.4, R6.6, R6.7)
#[test]
fn r3_a_kill_at_any_step_changes_nothing() {
    at_every_step(Blow::Kill, "killed");
}

/// Given a random world, when the poller is stopped before any one of its
/// steps, then nothing begins after the stop and it ends as if never stopped.
/// (R2.5, R4.1, R5.1, R5.2, R5.3)
#[test]
fn r5_a_stop_at_any_step_changes_nothing() {
    at_every_step(Blow::Stop, "stopped");
}

/// The same with kills and stops at random, again and again.
#[test]
fn r3_r5_many_kills_and_stops_change_nothing() {
    let mut blows = 0u64;
    for seed in 0..scale(60) * 20 {
        let script = Script::random(seed);
        let wanted = undisturbed(&script);
        let mut world = World::new(script.clone());
        let mut dice = Dice(seed | 1);
        let mut left = 4 + dice.roll(20);
        world.live(|_| {
            if left == 0 || !dice.chance(8) {
                return None;
            }
            left -= 1;
            blows += 1;
            Some(if dice.chance(50) {
                Blow::Kill
            } else {
                Blow::Stop
            })
        });
        check(&script, "again and again", &wanted, &world);
    }
    println!("kills and stops: {blows}");
}

/// Given a random world, when saves fail at random, so that records are written later
/// than they would have been, then it ends as if each had been written at once (R3.2, R3.3).
#[test]
fn r3_3_when_records_are_written_changes_nothing() {
    let mut refused = 0;
    for seed in 0..scale(60) * 20 {
        let script = Script::random(seed);
        let wanted = undisturbed(&script);
        let mut world = World::new(script.clone());
        world.refusals = 10 + seed % 40;
        world.live(|_| None);
        check(&script, "by failing saves", &wanted, &world);
        refused += world.refused;
    }
    println!("failing saves: {refused}");
    assert!(refused > 1000, "too few saves failed: {refused}");
}

/// Given a world at rest, when it is polled again, then nothing is delivered
/// and nothing written (invariant 9); the worlds' own end says so: they rest
/// only after three cycles with no save and no delivery.
#[test]
fn a_world_at_rest_stays_at_rest() {
    let mut delivered = 0usize;
    for seed in 0..scale(60) {
        let world = undisturbed(&Script::random(seed));
        delivered += world
            .effects
            .delivered
            .values()
            .map(Vec::len)
            .sum::<usize>();
        // R6.2: exactly once.
        for ((sink, item), ids) in &world.effects.delivered {
            let mut unique = ids.clone();
            unique.sort();
            unique.dedup();
            assert_eq!(
                unique.len(),
                ids.len(),
                "world {seed}: {item} to {sink}: {ids:?}"
            );
        }
    }
    assert!(
        delivered > 100,
        "the worlds do too little: {delivered} deliveries"
    );
    assert_ne!(Effects::default(), undisturbed(&Script::random(1)).effects);
}
