//! What an interrupted world may differ in from the same world uninterrupted: in nothing but
//! tries of which a blow destroyed the evidence, and what was given up for five of those.

use crate::world::sim::World;
use crate::world::sim::sinks::Name;
use std::collections::{BTreeMap, BTreeSet};

/// One delivery, as the ledger has it in the end.
#[derive(Debug, PartialEq, Eq)]
struct Account {
    status: &'static str,
    attempts: u32,
    interruptions: u32,
    begun: u32,
}

fn accounts(world: &World) -> BTreeMap<Name, Account> {
    let mut all = BTreeMap::new();
    for record in world.disk.records.values().filter_map(|f| f.visible()) {
        let mut add = |sink: &str, key: Option<&str>, account: Account| {
            let id = format!("{}/{}", record.item, key.unwrap_or("?"));
            all.insert((sink.to_string(), id), account);
        };
        for done in &record.history {
            let account = Account {
                status: "delivered",
                attempts: done.attempts,
                interruptions: done.interruptions,
                begun: done.begun,
            };
            add(&done.sink, Some(&done.key.0), account);
        }
        for (sink, queue) in &record.sinks {
            let key = |seq| record.events.get(seq).map(|e| &*e.key.0);
            for (seq, g) in &queue.gave_up {
                let account = Account {
                    status: "given up",
                    attempts: g.attempts,
                    interruptions: g.interruptions,
                    begun: g.begun,
                };
                add(sink, key(seq), account);
            }
            for seq in &queue.pending {
                let account = Account {
                    status: "pending",
                    attempts: 0,
                    interruptions: 0,
                    begun: 0,
                };
                add(sink, key(seq), account);
            }
        }
    }
    all
}

/// What is known of each item, and of the feed.
fn knowledge(world: &World) -> (BTreeMap<String, String>, String) {
    let mut items = BTreeMap::new();
    for record in world.disk.records.values().filter_map(|f| f.visible()) {
        let known: BTreeSet<String> = record
            .known
            .entries()
            .iter()
            .map(|(key, what)| format!("{key} {what:?}"))
            .collect();
        let (standing, openings) = (record.standing, record.openings);
        let text = format!("{standing:?}, {openings} openings, {known:?}");
        items.insert(record.item.to_string(), text);
    }
    let feed = world.disk.feed();
    let feed = feed.map(|f| format!("{:?} {:?}", f.cursor, f.open));
    (items, feed.unwrap_or_default())
}

/// Says what is wrong, if anything is.
pub fn compare(wanted: &World, got: &World) -> Result<(), String> {
    for (who, world) in [("undisturbed", wanted), ("disturbed", got)] {
        if let Some(fault) = &world.fault {
            return Err(format!("{who}: {fault}"));
        }
    }
    let (want, have) = (&wanted.sinks.effects, &got.sinks.effects);
    let out = &got.interrupted_out;
    let lost = |sink: &str, id: &str, n: usize| {
        let name = (sink.to_string(), id.to_string());
        have.lost.get(&(name, n)).copied().unwrap_or(0)
    };
    // Every event takes effect in its place, and again at once for each time it may.
    let pairs = want.made.keys().chain(have.made.keys());
    let none = Vec::new();
    for pair in pairs.collect::<BTreeSet<_>>() {
        let (sink, item) = pair;
        let counts = |id: &String| !out.contains(&(sink.clone(), id.clone()));
        let mut right = Vec::new();
        for (id, n) in want.made.get(pair).unwrap_or(&none) {
            if counts(id) {
                right.extend(std::iter::repeat_n((id, n), 1 + lost(sink, id, *n)));
            }
        }
        let made = have.made.get(pair).unwrap_or(&none);
        let made = made.iter().map(|(id, n)| (id, n));
        let made: Vec<_> = made.filter(|(id, _)| counts(id)).collect();
        if right != made {
            return Err(format!(
                "{sink} was to see of {item}\n  {right:?}\nand saw\n  {made:?}"
            ));
        }
    }
    let (want_accounts, have_accounts) = (accounts(wanted), accounts(got));
    let missing = |name: &Name| have.missing.get(name).map_or(0, BTreeSet::len) as u32;
    for name @ (sink, id) in out {
        let counts_anew = id.contains("/opened");
        given_up(name, counts_anew, have, &lost).map_err(|e| format!("{id} to {sink}: {e}"))?;
    }
    for (name, tries) in &have.missing {
        // What was given up and is tried again since its item changed counts anew.
        if tries.len() >= 5 && !out.contains(name) && !wanted.given_up.contains(name) {
            return Err(format!(
                "{name:?} is not given up after {} interruptions",
                tries.len()
            ));
        }
    }
    for (name, have) in &have_accounts {
        if out.contains(name) {
            continue;
        }
        let interruptions = match wanted.given_up.contains(name) {
            true => have.interruptions.min(missing(name)),
            false => missing(name),
        };
        let Some(want) = want_accounts.get(name) else {
            // Only the last few are remembered in detail, by all sinks together.
            continue;
        };
        let right = Account {
            interruptions,
            begun: want.begun + missing(name),
            ..*want
        };
        if right != *have {
            return Err(format!(
                "the ledger was to have {name:?} as\n  {right:?}\nand has\n  {have:?}"
            ));
        }
    }
    let (want, have) = (knowledge(wanted), knowledge(got));
    if want != have {
        return Err(format!("known was to be\n  {want:#?}\nand is\n  {have:#?}"));
    }
    let delivered = |world: &World| -> u64 {
        let records = world.disk.records.values().filter_map(|f| f.visible());
        records.map(|r| r.delivered()).sum()
    };
    let (want, have) = (delivered(wanted), delivered(got));
    if out.is_empty() && want != have {
        return Err(format!("{want} were to be delivered, and {have} were"));
    }
    Ok(())
}

/// R5.5: what was given up for its interruptions had five of them, and was made no oftener than it may.
fn given_up(
    name: &Name,
    counts_anew: bool,
    have: &crate::world::sim::sinks::Effects,
    lost: &impl Fn(&str, &str, usize) -> usize,
) -> Result<(), String> {
    let (sink, id) = name;
    let missing = have.missing.get(name).map_or(0, BTreeSet::len);
    if missing < 5 || (missing > 5 && !counts_anew) {
        return Err(format!("given up after {missing} interruptions"));
    }
    let all = have.made.iter().filter(|((s, _), _)| s == sink);
    let tries: Vec<usize> = all
        .flat_map(|(_, made)| made.iter().filter(|(i, _)| i == id).map(|(_, n)| *n))
        .collect();
    let Some(last) = tries.last() else {
        return Ok(());
    };
    for n in 0..=*last {
        let made = tries.iter().filter(|t| **t == n).count();
        let may = lost(sink, id, n);
        if made != may + 1 && (made != may || n != *last) || !tries.is_sorted() {
            return Err(format!(
                "made {made} times as try {n}, of which {may} were lost"
            ));
        }
    }
    Ok(())
}
