//! Stopping, killing and starting the real program under load: it has no effect.

use crate::world::program::{Place, scaled, seed};
use crate::world::sim::Dice;
use std::time::{Duration, Instant};

/// Takes a while, and logs its id when the effect is made.
const SLOW: &str = r#"cat > /dev/null; sleep 0.$((IDEMPOLL_ATTEMPT % 3 + 1))5; echo "$IDEMPOLL_DELIVERY_ID" >> ids.log"#;

fn wait_for(place: &Place, deliveries: u64) {
    place.until("all is delivered", || {
        place.lines("ids.log").len() as u64 >= deliveries
    });
    place.until("all is recorded", || place.pending() == 0);
}

/// Given 50 items with news and a slow command, when the poller is killed at
/// random moments 100 times and started again each time, then the command's own
/// log has each delivery exactly once, in order, and no budget is spent
/// (R1.4, R3.1, R5.4, R6.1, R6.2, R6.3).
#[test]
fn r6_2_a_hundred_kills_lose_nothing_and_repeat_nothing() {
    let place = Place::new(SLOW);
    let (items, comments, kills) = (50, 3, scaled(100));
    for number in 1..=items {
        place.item(number, comments);
    }
    let seed = seed();
    let mut dice = Dice(seed | 1);
    let mut struck = 0;
    for n in 0..kills {
        let poller = place.start_unseen();
        std::thread::sleep(Duration::from_micros(dice.roll(150_000)));
        struck += u64::from((place.lines("ids.log").len() as u64) < items * (comments + 1));
        poller.kill();
        // Fresh news, so that there is always something in hand.
        if n % 10 == 9 {
            place.item(1 + n / 10 % items, comments);
        }
    }
    let _last = place.start();
    wait_for(&place, items * (comments + 1));
    println!("seed {seed}: {kills} kills, {struck} of them with work in hand");
    place.each_came_once(items, comments);
    assert!(
        place.entries("dispatch.failed").is_empty(),
        "{}",
        place.story()
    );
    assert!(place.entries("poll.gave_up").is_empty());
}

/// Given news at every round and a slow command in flight, when the poller is stopped and started 200
/// times, then every stop returns with the poller gone, every start succeeds, the
/// command's log has each delivery exactly once, and no budget is spent (R2.2, R2.4, R2.7, R5.3, C103, C107).
#[test]
fn r2_4_two_hundred_stops_and_starts_have_no_effect() {
    let place = Place::new(SLOW);
    let (comments, rounds) = (2, scaled(200));
    let items = 10 + rounds;
    for number in 1..=10 {
        place.item(number, comments);
    }
    let mut dice = Dice(seed() | 1);
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        place.item(11 + round, comments);
        let mut poller = place.start();
        std::thread::sleep(Duration::from_micros(dice.roll(40_000)));
        let asked = Instant::now();
        place.run(&["stop"]).expect(0);
        longest = longest.max(asked.elapsed());
        // R2.2: true when it returns.
        assert_eq!(place.run(&["status"]).code, Some(3), "round {round}");
        assert!(poller.ended().success(), "round {round}: {}", place.story());
    }
    let mut last = place.start();
    wait_for(&place, items * (comments + 1));
    place.run(&["stop"]).expect(0);
    assert!(last.ended().success());
    println!("{rounds} stops, the longest took {longest:?}");
    place.each_came_once(items, comments);
    for spent in [
        "dispatch.failed",
        "poll.interrupted_delivery",
        "poll.gave_up",
        "poller.blocked",
    ] {
        assert!(
            place.entries(spent).is_empty(),
            "{spent}: {}",
            place.story()
        );
    }
    let stops = place.entries("poller.stopped");
    let running = stops.iter().filter(|e| e["left_running"] != 0).count();
    println!("{running} times a command was still in flight");
    // Nearly each time, but on a machine that is so busy that commands end meanwhile.
    assert!(running as u64 >= rounds / 10);
}

/// Given a cycle that did its work, when it runs again, then nothing is
/// delivered and no file of the ledger changes (invariant 9).
#[test]
fn the_same_run_again_does_nothing() {
    let place = Place::new(SLOW);
    for number in 1..=5 {
        place.item(number, 2);
    }
    let first = place.run(&["start", "--once"]).expect(0);
    assert_eq!(
        first.stdout,
        "cycle: 5 items, 5 opened, 10 comments, 0 closed, 0 failed\n"
    );
    // Files written just now are read once more, in case they changed within the clock's tick.
    std::thread::sleep(Duration::from_secs(3));
    place.once().expect(0);
    let before = place.snapshot();
    let again = place.run(&["start", "--once"]).expect(0);
    assert_eq!(
        again.stdout,
        "cycle: 5 items, 0 opened, 0 comments, 0 closed, 0 failed\n"
    );
    assert_eq!(place.snapshot(), before);
    assert_eq!(place.lines("ids.log").len(), 15);
}

/// Given a running command, when the poller is stopped, then the stop is quick,
/// the command lives on undisturbed, and the next poller takes it up (R2.5, R2.7, R6.3).
#[test]
fn r6_3_a_running_command_outlives_its_poller_and_is_taken_up_again() {
    let place = Place::new(
        r#"echo begun >> begun.log; while [ ! -e go -a -e idempoll.json ]; do sleep 0.01; done; echo "$IDEMPOLL_DELIVERY_ID" >> ids.log"#,
    );
    place.item(1, 0);
    let mut poller = place.start();
    place.until("the command runs", || place.lines("begun.log").len() == 1);
    let asked = Instant::now();
    place.run(&["stop"]).expect(0);
    let took = asked.elapsed();
    assert!(poller.ended().success());
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(place.lines("ids.log").is_empty());
    let _again = place.start();
    place.until("it is adopted", || {
        place.entries("dispatch.adopted").len() == 1
    });
    place.write("go", "");
    wait_for(&place, 1);
    assert_eq!(
        (place.lines("begun.log").len(), place.lines("ids.log").len()),
        (1, 1),
        "{}",
        place.story()
    );
}

/// Given a stop while deliveries wait, when the poller starts again, then those
/// never begun still have their whole budget (R5.1, R5.2, R5.3, C107).
#[test]
fn r5_3_three_stops_cost_no_budget() {
    let place = Place::new(
        r#"while [ ! -e go -a -e idempoll.json ]; do sleep 0.01; done; echo "$IDEMPOLL_DELIVERY_ID $IDEMPOLL_ATTEMPT" >> ids.log"#,
    );
    place.item(1, 2);
    for _ in 0..3 {
        let mut poller = place.start();
        place.run(&["stop"]).expect(0);
        assert!(poller.ended().success());
    }
    place.write("go", "");
    place.once().expect(0);
    assert_eq!(
        place.lines("ids.log"),
        [
            "dir:inbox#1/opened 1",
            "dir:inbox#1/comment/1 1",
            "dir:inbox#1/comment/2 1"
        ],
        "{}",
        place.story()
    );
}

/// Given a stop in the middle of a long cycle, when it comes, then the cycle says
/// that it was interrupted and nothing is concluded from it (R4.1, R4.2, R4.3, C116).
#[test]
fn r4_1_a_stop_is_honoured_inside_a_cycle() {
    let place = Place::new("cat > /dev/null");
    for number in 1..=3000 {
        place.item(number, 0);
    }
    let mut poller = place.start_unseen();
    place.until("some items are recorded", || {
        std::fs::read_dir(place.path("state/items")).is_ok_and(|d| d.count() > 30)
    });
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    let cycles = place.entries("poll.cycle");
    assert_eq!(cycles.len(), 1, "{}", place.story());
    assert_eq!(cycles[0]["interrupted"], true);
    assert!(place.entries("poll.closure_detected").is_empty());
    let recorded = std::fs::read_dir(place.path("state/items")).map_or(0, Iterator::count);
    assert!(
        (30..2900).contains(&recorded),
        "{recorded} items were recorded"
    );
    assert_eq!(place.run(&["status", "--json"]).code, Some(3));
}

/// Given a vanished item file, when two complete listings in a row miss it, then
/// the item is `gone`; one listing is not enough (R4.2).
#[test]
fn r4_2_one_listing_alone_never_ends_an_item() {
    let place = Place::new(r#"cat >> payloads.log; echo >> payloads.log"#);
    place.item(1, 0);
    place.item(2, 0);
    place.once().expect(0);
    std::fs::remove_file(place.path("inbox/1.json")).expect("it is there");
    place.once().expect(0);
    assert_eq!(place.lines("payloads.log").len(), 2);
    place.once().expect(0);
    let payloads = place.lines("payloads.log");
    assert_eq!(payloads.len(), 3);
    assert!(
        payloads[2].contains(r#""delivery_id":"dir:inbox#1/closed""#)
            && payloads[2].contains(r#""reason":"gone""#),
        "{}",
        payloads[2]
    );
    place.once().expect(0);
    assert_eq!(place.lines("payloads.log").len(), 3);
}
