//! Makes a failing case as small as it gets.

use super::oracle::compare;
use crate::world::sim::{Blow, Case, Happening, Keeps, Planted, World};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// What is wrong with a case, if anything is.
pub fn fault(case: &Case, planted: Option<Planted>) -> Option<String> {
    match quietly(|| undisturbed(case)) {
        Ok(wanted) => fault_beside(&wanted, case, planted),
        Err(panic) => Some(panic),
    }
}

/// The same, beside the same world undisturbed.
pub fn fault_beside(wanted: &World, case: &Case, planted: Option<Planted>) -> Option<String> {
    let disturbed = quietly(|| {
        let mut world = World::new(case);
        world.planted = planted;
        world.live()
    });
    disturbed.and_then(|world| compare(wanted, &world)).err()
}

fn undisturbed(case: &Case) -> World {
    let case = Case {
        script: case.script.clone(),
        blows: Vec::new(),
        refusals: 0,
    };
    World::new(&case).live()
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// A panic is a fault like any other, and is not printed each time.
fn quietly<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    QUIET.set(true);
    let done = catch_unwind(AssertUnwindSafe(f));
    QUIET.set(false);
    done.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let word = panic.downcast_ref::<&str>().map(ToString::to_string);
        format!("a panic: {}", text.or(word).unwrap_or_default())
    })
}

/// The smallest case found that fails, beginning with one that does and trying so many at `most`.
pub fn shrink(mut case: Case, most: u64, planted: Option<Planted>) -> Case {
    let mut left = most;
    while let Some(smaller) = simpler(&case)
        .into_iter()
        .find_map(|c| anywhere(c, &mut left, planted))
    {
        case = smaller;
    }
    case
}

/// The case with its blows where they are or, since points move when a world shrinks, elsewhere.
fn anywhere(case: Case, left: &mut u64, planted: Option<Planted>) -> Option<Case> {
    let wanted = quietly(|| undisturbed(&case)).ok()?;
    let mut fails = |case: &Case| {
        *left = left.saturating_sub(1);
        *left > 0 && fault_beside(&wanted, case, planted).is_some()
    };
    if fails(&case) {
        return Some(case);
    }
    let first = case.blows.first()?.0.min(wanted.fate.points);
    if case.blows.len() > 2 {
        return None;
    }
    (1..first).rev().find_map(|at| {
        let begun = case.blows[0].0;
        let moved = case.blows.iter().map(|(p, b)| (p - begun + at, *b));
        let moved = Case {
            blows: moved.collect(),
            ..case.clone()
        };
        fails(&moved).then_some(moved)
    })
}

/// Cases a little simpler than this one, the greatest steps first.
fn simpler(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Case)| {
        let mut other = case.clone();
        change(&mut other);
        if other != *case {
            all.push(other);
        }
    };
    let half = case.blows.len() / 2;
    if half > 0 {
        with(&|c| c.blows.truncate(half));
        with(&|c| c.blows = c.blows.split_off(half));
    }
    for at in 0..case.blows.len() {
        with(&|c| {
            c.blows.remove(at);
        });
    }
    with(&|c| c.refusals = 0);
    for stage in 0..case.script.stages.len() {
        with(&|c| drop(c.script.stages.remove(stage)));
    }
    for number in 1..=4 {
        with(&|c| {
            for stage in &mut c.script.stages {
                stage.retain(|h| self::number(h) != number);
            }
        });
    }
    for sink in 0..case.script.sinks.len() {
        with(&|c| {
            if c.script.sinks.len() > 1 {
                c.script.sinks.remove(sink);
            }
        });
        with(&|c| c.script.sinks[sink] = Keeps::Receipts);
    }
    with(&|c| c.script.troubled = false);
    with(&|c| c.script.changes_only = false);
    with(&|c| c.script.once = true);
    for stage in 0..case.script.stages.len() {
        for at in 0..case.script.stages[stage].len() {
            with(&|c| {
                c.script.stages[stage].remove(at);
            });
        }
        if stage > 0 {
            with(&|c| {
                let rest = c.script.stages.remove(stage);
                c.script.stages[stage - 1].extend(rest);
            });
        }
    }
    for at in 0..case.blows.len() {
        with(&|c| {
            if let Blow::PowerCut(salt) = &mut c.blows[at].1 {
                *salt = 0;
            }
        });
        with(&|c| {
            if let Blow::PowerCut(_) | Blow::Stop = c.blows[at].1 {
                c.blows[at].1 = Blow::Kill;
            }
        });
    }
    all
}

fn number(h: &Happening) -> u64 {
    match *h {
        Happening::Open { number, .. }
        | Happening::Say { number, .. }
        | Happening::Close { number }
        | Happening::Reopen { number }
        | Happening::Vanish { number }
        | Happening::Edit { number } => number,
    }
}
