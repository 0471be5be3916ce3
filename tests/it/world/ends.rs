//! Pollers that end at random moments, each followed by another, until nothing is left to do.

use super::program::{Place, seed};
use super::sim::Dice;
use serde_json::Value;
use std::time::Duration;

/// How a poller is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// SIGKILL.
    Killed,
    /// SIGTERM, and every other time `idempoll stop`.
    Stopped,
}

/// Runs pollers until all `due` effects are there, which `effects` counts where they are made, and nothing is pending.
/// Each ends a random moment after something took effect; `look` looks around right after that. Says how many there were.
pub fn come_and_go(
    place: &Place,
    end: End,
    due: usize,
    effects: impl Fn() -> usize,
    mut look: impl FnMut(),
) -> usize {
    let first = seed();
    println!("IDEMPOLL_SEED={first}");
    let mut dice = Dice(first | 1);
    let mut lives = 0;
    while effects() < due || place.pending() > 0 {
        lives += 1;
        assert!(lives < 20 * due + 50, "it never ends: {}", place.story());
        let worn = worn(place);
        let mut poller = place.start_unseen();
        // An event that five lives in a row ended over would be given up (R5.5).
        for item in worn {
            place.until("it is delivered", || !is_worn(place, &item));
        }
        let before = effects();
        let more = usize::try_from(dice.roll(3)).expect("small");
        place.until("something took effect", || {
            effects() > before + more || effects() >= due
        });
        std::thread::sleep(Duration::from_micros(dice.roll(60_000)));
        match end {
            End::Killed => poller.kill(),
            End::Stopped => {
                match lives % 2 {
                    0 => poller.signal("TERM"),
                    _ => drop(place.run(&["stop"]).expect(0)),
                }
                let ended = poller.ended();
                assert!(ended.success(), "{ended:?}: {}", place.story());
            }
        }
        look();
    }
    assert!(
        place.entries("poll.gave_up").is_empty(),
        "{}",
        place.story()
    );
    lives
}

/// The items with an event that must not be interrupted much more.
fn worn(place: &Place) -> Vec<String> {
    let said = place.run(&["items", "--pending", "--json"]).stdout;
    let items: Value = serde_json::from_str(&said).unwrap_or_default();
    let items = items.as_array().into_iter().flatten();
    let items = items.filter_map(|item| item["ref"].as_str().map(str::to_string));
    items.filter(|item| is_worn(place, item)).collect()
}

fn is_worn(place: &Place, item: &str) -> bool {
    let said = place.run(&["show", item, "--json"]).stdout;
    let show: Value = serde_json::from_str(&said).unwrap_or_default();
    let mut deliveries = show["deliveries"].as_array().into_iter().flatten();
    deliveries
        .any(|line| line["interruptions"].as_u64() >= Some(3) && line["status"] != "delivered")
}

/// The delivery ids of an item of the inbox: its opening and `comments` comments.
pub fn ids(number: u64, comments: u64) -> Vec<String> {
    let comments = (1..=comments).map(|n| format!("dir:inbox#{number}/comment/{n}"));
    std::iter::once(format!("dir:inbox#{number}/opened"))
        .chain(comments)
        .collect()
}
