//! The arithmetic of limits, and what the engine makes of it.

use super::*;
use crate::engine::access::Policy;
use crate::engine::cycle::Engine;
use crate::engine::feed::Feed;
use crate::engine::item::ItemRef;
use crate::engine::listing::{Complete, Coverage, Cut, Heard, Listing};
use crate::engine::plan::Rules;
use crate::engine::saving::Unsaved;
use crate::engine::step::{Fact, FeedSetup, Setup, Step, Summary};
use serde_json::json;

const NOW: Time = Time(1_785_924_000_000);
const MINUTE: Duration = Duration::from_secs(60);

fn minutes(n: u32) -> Time {
    NOW.plus(MINUTE * n)
}

fn host() -> Host {
    Host {
        host: "forge".into(),
        token: "a".into(),
        ..Host::default()
    }
}

/// An engine over so many repositories of one host.
fn engine(feeds: u64) -> Engine {
    let feed = |n: u64| {
        let path = format!("octo/r{n}");
        FeedSetup {
            slug: Slug::feed("src", None, Some(&path)),
            template: ItemRef {
                provider: "github".into(),
                host: None,
                path,
                number: 0,
            },
            host: Some("forge".into()),
            rules: Rules {
                source: "src".into(),
                sinks: vec!["sink".into()],
                policy: Policy::default(),
                self_marker: String::new(),
                scope: String::new(),
                webhook_sinks: Vec::new(),
            },
        }
    };
    let setup = Setup {
        feeds: (0..feeds).map(feed).collect(),
        slots: [("sink".to_string(), 1)].into(),
        retry_pause: Duration::from_secs(1),
        most_held: 256,
        version: "1.0.0".into(),
        once: false,
    };
    let watched = (0..feeds).map(|_| Some(Feed::new(NOW))).collect();
    Engine::new(setup, watched, vec![])
}

/// A tracker, a disk and a driver in one.
#[derive(Default)]
struct World {
    /// What it says of each listing, in turn; then nothing.
    says: Vec<Budget>,
    /// What listings were reminded of.
    reminded: Vec<BTreeMap<String, Wait>>,
    /// Which feeds were listed.
    order: Vec<usize>,
    /// All steps but those about feeds.
    done: Vec<String>,
    disk: Option<Host>,
    full: bool,
}

impl World {
    /// One cycle; each listing is complete, unless it is told to wait.
    fn cycle(&mut self, engine: &mut Engine, now: Time) -> Summary {
        engine.on(now, Fact::CycleDue);
        let mut ended = None;
        while let Some(step) = engine.next(now) {
            match step {
                Step::List { ask, feed } => {
                    self.done.push("list".into());
                    self.order.push(feed);
                    self.reminded.push(ask.waits);
                    let mut listing = Listing::Complete(Complete {
                        cursor: json!(1),
                        coverage: Coverage::Changes { missing: vec![] },
                    });
                    if !self.says.is_empty() {
                        let says = self.says.remove(0);
                        if says.not_before.is_some() {
                            let reason = "too many".to_string();
                            let not_before = says.not_before;
                            listing = Listing::Cut(Cut { reason, not_before });
                        }
                        engine.on(now, Fact::Heard(Heard::Budget(says)));
                    }
                    engine.on(now, Fact::Listed(listing));
                }
                Step::SaveFeed(_) => engine.on(now, Fact::FeedSaved),
                Step::SaveHost(host) => {
                    self.done.push("save host".into());
                    if self.full {
                        let (what, reason) = (Unsaved::Host(host.slug()), "full".into());
                        engine.on(now, Fact::SaveFailed { what, reason });
                    } else {
                        self.disk = Some(*host);
                    }
                }
                Step::Log(entry) => self.done.push(entry.kind),
                Step::CycleEnded(summary) => ended = Some(summary),
                other => panic!("{other:?}"),
            }
        }
        ended.expect("the cycle goes on")
    }

    fn done(&mut self) -> Vec<String> {
        std::mem::take(&mut self.done)
    }
}

/// What the host says when all is well.
fn well(counted: u64, remaining: u64) -> Budget {
    Budget {
        host: "forge".into(),
        token: "a".into(),
        at: NOW,
        requests: 3,
        counted,
        limit: Some(5000),
        remaining: Some(remaining),
        reset_at: Some(minutes(60)),
        not_before: None,
        throttled: 0,
    }
}

fn too_many(seconds: u64) -> Budget {
    Budget {
        not_before: Some(NOW.plus(Duration::from_secs(seconds))),
        throttled: 1,
        ..well(1, 4890)
    }
}

/// What a provider says that did not ask because it was reminded.
fn unasked(until: Time) -> Budget {
    Budget {
        requests: 0,
        counted: 0,
        not_before: Some(until),
        ..well(0, 0)
    }
}

/// Given what is left, what a cycle costs and when the next period begins, then the next
/// cycle comes when it has to, so that what is left lasts; and at any time if it lasts anyway.
#[test]
fn what_is_left_is_spread_over_the_time_to_the_reset() {
    let pace = |remaining, cost| {
        let host = Host {
            limit: Some(5000),
            remaining: Some(remaining),
            reset_at: Some(minutes(60)),
            ..host()
        };
        host.pace(NOW, NOW, cost)
    };
    for (remaining, cost, after) in [
        // 250 are kept back: 4,750 are 475 cycles, one each 7.6 s.
        (5000, 10, Some(7_578)),
        (850, 10, Some(60_000)),
        (550, 10, Some(120_000)),
        (850, 600, Some(3_600_000)),
        // The reserve itself, by halves.
        (250, 10, Some(300_000)),
        (20, 10, Some(3_600_000)),
        (5, 10, Some(3_600_000)),
        (0, 10, Some(3_600_000)),
        // What costs nothing is never slowed.
        (0, 0, None),
        (5000, 0, None),
    ] {
        let want = after.map(|ms| Time(NOW.0 + ms));
        assert_eq!(pace(remaining, cost), want, "{remaining} left at {cost}");
    }
    // Less is left, and the pace is never quicker for it.
    let paces: Vec<_> = (0..5000).rev().map(|left| pace(left, 7)).collect();
    assert!(paces.windows(2).all(|pair| pair[0] <= pair[1]));
}

#[test]
fn without_a_limit_or_after_the_reset_nothing_is_slowed() {
    let known = Host {
        limit: Some(5000),
        remaining: Some(0),
        reset_at: Some(minutes(60)),
        ..host()
    };
    assert_eq!(known.pace(NOW, minutes(60), 10), None);
    assert_eq!(
        Host {
            limit: None,
            ..known.clone()
        }
        .pace(NOW, NOW, 10),
        None
    );
    assert_eq!(
        Host {
            remaining: None,
            ..known.clone()
        }
        .pace(NOW, NOW, 10),
        None
    );
    assert_eq!(
        Host {
            reset_at: None,
            ..known.clone()
        }
        .pace(NOW, NOW, 10),
        None
    );
    let longest = known.pace(NOW, NOW, u64::MAX);
    assert_eq!(longest, Some(minutes(60)), "never longer than to the reset");
}

/// Given five repositories on one token, when the first is told to wait, then that is durable before the
/// next listing begins, and the other four are reminded of it (C010), which is no news.
#[test]
fn c010_a_cool_down_is_durable_and_shared_before_the_next_listing() {
    let (mut world, mut engine) = (World::default(), engine(5));
    world.says = vec![too_many(120)];
    world.says.extend((0..4).map(|_| unasked(minutes(2))));
    let summary = world.cycle(&mut engine, NOW);
    assert_eq!(summary.failed_feeds, 5);
    let done = world.done();
    assert_eq!(done[..3], ["list", "save host", "poll.rate_limited"]);
    assert_eq!(done[3..], ["list", "list", "list", "list", "poll.cycle"]);
    let wait = Wait {
        until: Some(minutes(2)),
        throttled: 1,
    };
    let reminder = BTreeMap::from([("a".to_string(), wait)]);
    assert_eq!(world.reminded[0], BTreeMap::new());
    assert_eq!(world.reminded[1..], vec![reminder.clone(); 4]);
    let failing = engine
        .health()
        .filter(|(_, health, _)| health.error.is_some());
    assert_eq!(failing.count(), 5);
    // Another cycle within the time, and another life of the poller: the same reminder.
    world.says = (0..5).map(|_| unasked(minutes(2))).collect();
    world.cycle(&mut engine, minutes(1));
    assert_eq!(world.done(), ["list"; 5]);
    let mut next = super::tests::engine(5);
    next.remember_hosts(world.disk.clone().into_iter().collect(), &[]);
    world.says = (0..5).map(|_| unasked(minutes(2))).collect();
    world.cycle(&mut next, minutes(1));
    assert_eq!(world.done(), ["list"; 5]);
    assert_eq!(world.reminded[1..], vec![reminder; 14]);
    let mut changed = super::tests::engine(5);
    changed.follow(&next);
    assert_eq!(changed.hosts().next(), world.disk.as_ref());
    // When it is over, the row is remembered until a listing is answered; that is saved once.
    world.says = vec![well(0, 4889), well(0, 4889)];
    world.cycle(&mut next, minutes(3));
    let done = world.done();
    assert_eq!(
        done.iter().filter(|d| *d == "save host").count(),
        1,
        "{done:?}"
    );
    let over = Wait {
        until: None,
        throttled: 1,
    };
    assert_eq!(
        world.reminded[15],
        BTreeMap::from([("a".to_string(), over)])
    );
    assert_eq!(world.reminded[16], BTreeMap::new());
    assert_eq!(world.disk.as_ref().and_then(|h| h.not_before), None);
    world.says = vec![well(0, 4889); 5];
    world.cycle(&mut next, minutes(4));
    assert_eq!(world.done(), ["list"; 5], "an idle cycle writes nothing");
}

/// Given a limit that never lasts for all repositories, when cycles follow each other, then each begins with
/// the one that the one before was kept from: all get their turn.
#[test]
fn a_limit_too_low_for_all_starves_none() {
    let (mut world, mut engine) = (World::default(), engine(5));
    let mut order = |engine: &mut Engine, says: Vec<Budget>, minute| {
        world.says = says;
        world.cycle(engine, minutes(minute));
        std::mem::take(&mut world.order)
    };
    let enough_for_two = |until| {
        let mut says = vec![well(1, 9), well(1, 9), too_many(60)];
        says.extend(vec![unasked(until); 2]);
        says
    };
    assert_eq!(
        order(&mut engine, enough_for_two(minutes(1)), 0),
        [0, 1, 2, 3, 4]
    );
    let waiting = vec![unasked(minutes(1)); 5];
    assert_eq!(order(&mut engine, waiting, 0), [2, 3, 4, 0, 1]);
    assert_eq!(
        order(&mut engine, enough_for_two(minutes(2)), 1),
        [2, 3, 4, 0, 1]
    );
    let plenty = vec![well(0, 4000); 5];
    assert_eq!(order(&mut engine, plenty.clone(), 2), [4, 0, 1, 2, 3]);
    assert_eq!(order(&mut engine, plenty, 3), [0, 1, 2, 3, 4]);
}

/// Given a stop in the middle of a listing, when that turns out to have said "not before", then it is
/// saved all the same before the end (C010); and an interrupted cycle is no measure of what one costs.
#[test]
fn c010_a_stop_forgets_no_cool_down() {
    let (mut world, mut engine) = (World::default(), engine(2));
    world.says = vec![well(50, 4000), well(50, 4000)];
    world.cycle(&mut engine, NOW);
    engine.on(minutes(1), Fact::CycleDue);
    assert!(matches!(engine.next(minutes(1)), Some(Step::List { .. })));
    engine.on(minutes(1), Fact::StopAsked);
    assert_eq!(engine.next(minutes(1)), Some(Step::Abandon));
    engine.on(minutes(1), Fact::Heard(Heard::Budget(too_many(120))));
    assert!(!engine.is_quiet());
    assert!(matches!(engine.next(minutes(1)), Some(Step::SaveHost(_))));
    while engine.next(minutes(1)).is_some() {}
    let counted = engine.hosts().next().map(|h| h.counted_last_cycle);
    assert_eq!(counted, Some(100));
    let mut changed = super::tests::engine(2);
    changed.follow(&engine);
    world.says = vec![well(7, 4000); 2];
    world.cycle(&mut changed, minutes(4));
    let counted = changed.hosts().next().map(|h| h.counted_last_cycle);
    assert_eq!(counted, Some(14));
}

/// Given an answer that took ten seconds to come, then the wait counts from when it was heard:
/// the provider, which has no clock, could only say when it asked.
#[test]
fn c010_a_wait_counts_from_the_answer() {
    let (mut world, mut engine) = (World::default(), engine(1));
    let heard = NOW.plus(Duration::from_secs(10));
    world.says = vec![too_many(120)];
    world.cycle(&mut engine, heard);
    let until = heard.plus(Duration::from_secs(120));
    assert_eq!(world.disk.as_ref().and_then(|h| h.not_before), Some(until));
}

/// Given a host whose cool-down was stored while the clock was half a day ahead, when a poller starts
/// by the right clock, then the log says that the clock was set back, and nobody is
/// reminded of it; without such a clock, they are (C010, C023).
#[test]
fn c023_a_wait_stored_by_a_clock_that_ran_ahead_delays_nothing() {
    let poller = |asked_at: Time, wait: Duration| {
        let stored = Host {
            not_before: Some(asked_at.plus(wait)),
            asked_to_wait_at: Some(asked_at),
            ..host()
        };
        let (mut world, mut engine) = (World::default(), engine(1));
        engine.remember_hosts(vec![stored], &[]);
        engine.lived_until(asked_at);
        world.cycle(&mut engine, NOW);
        (world.done(), world.reminded.remove(0).remove("a"))
    };
    let ahead = NOW.plus(Duration::from_secs(43_200));
    let (said, reminded) = poller(ahead, MINUTE);
    assert_eq!((said[0].as_str(), reminded), ("poller.warning", None));
    let (said, reminded) = poller(NOW, MINUTE);
    let until = reminded.and_then(|wait| wait.until);
    assert_eq!((said[0].as_str(), until), ("list", Some(minutes(1))));
    // Nor is what nobody asks for.
    assert_eq!(poller(NOW, LONGEST_WAIT + MINUTE).1, None);
}

/// Given cycles that cost more than what is left allows, one after another, then the host's
/// feeds are listed less often, without being called failed; one dear cycle alone slows nothing, and
/// cycles that cost nothing are never slowed.
#[test]
fn a_host_is_listed_less_often_but_listed() {
    let (mut world, mut engine) = (World::default(), engine(2));
    let mut listed = |engine: &mut Engine, counted, remaining, minute| {
        let at = minutes(minute);
        world.says = vec![
            Budget {
                at,
                ..well(counted, remaining)
            };
            2
        ];
        let summary = world.cycle(engine, minutes(minute));
        assert_eq!(summary.failed_feeds, 0);
        let listed = world.done().iter().filter(|d| *d == "list").count();
        listed == 2
    };
    // 100 a cycle; 1,250 less the reserve are 10 cycles.
    assert!(listed(&mut engine, 50, 1350, 0));
    assert!(
        listed(&mut engine, 50, 1250, 1),
        "the first was dear, that is all"
    );
    let due = engine.hosts().next().and_then(|h| h.next_listing_at);
    assert_eq!(due, Some(Time(minutes(1).0 + 354_000)));
    let asked: Vec<u32> = (2..8)
        .filter(|&m| listed(&mut engine, 50, 1150, m))
        .collect();
    assert_eq!(asked, [7]);
    // Another config: what is known of the host stays, but not who uses which token.
    let mut changed = super::tests::engine(2);
    changed.follow(&engine);
    assert!(listed(&mut changed, 0, 1150, 8));
    for minute in 9..30 {
        assert!(listed(&mut changed, 0, 300, minute));
    }
    // Nobody asks any more: after the reset it is forgotten.
    world.cycle(&mut changed, minutes(61));
    assert_eq!(changed.hosts().count(), 0);
}

/// Given a clock that is set back while a host is spared, then it is spared no longer than before.
#[test]
fn c023_what_is_spared_moves_with_the_clock() {
    let (mut world, mut engine) = (World::default(), engine(1));
    for n in 0..2 {
        world.says = vec![well(1000, 300)];
        world.cycle(&mut engine, minutes(1000 + n));
    }
    let due = |engine: &Engine| engine.hosts().next().and_then(|h| h.next_listing_at);
    let before = due(&engine).expect("it is spared");
    world.cycle(&mut engine, minutes(1));
    let after = due(&engine).expect("it still is");
    assert_eq!(before.since(minutes(1001)), after.since(minutes(1)));
}

/// Given a disk with no room for a cool-down, then it holds all the same, is said once, tried again
/// at each cycle, and keeps nothing else from being recorded or delivered (R3.5).
#[test]
fn r3_5_a_cool_down_that_cannot_be_saved_holds_all_the_same() {
    let (mut world, mut engine) = (World::default(), engine(1));
    world.full = true;
    world.says = vec![too_many(3600)];
    world.cycle(&mut engine, NOW);
    let done = world.done();
    assert_eq!(
        done,
        [
            "list",
            "save host",
            "poll.store_error",
            "poll.rate_limited",
            "poll.cycle"
        ]
    );
    assert_eq!(engine.store_trouble(), None);
    for n in 1..3 {
        world.says = vec![unasked(minutes(60))];
        world.cycle(&mut engine, minutes(n));
        assert_eq!(world.done(), ["save host", "list"]);
    }
    world.full = false;
    world.says = vec![unasked(minutes(60))];
    world.cycle(&mut engine, minutes(3));
    assert!(world.disk.is_some());
    world.says = vec![unasked(minutes(60))];
    world.cycle(&mut engine, minutes(4));
    assert_eq!(world.done()[2..], ["list"]);
}

/// Given what `run.json` showed and what is on disk, when a poller starts, then it goes on with the
/// figures of the one and the cool-down of the other.
#[test]
fn a_start_takes_figures_from_what_was_shown_and_cool_downs_from_disk() {
    let mut engine = engine(1);
    let stored = Host {
        not_before: Some(minutes(1)),
        asked_to_wait_at: Some(NOW),
        throttled: 2,
        remaining: Some(1),
        ..host()
    };
    let shown = Host {
        remaining: Some(7),
        not_before: Some(minutes(9)),
        ..host()
    };
    engine.remember_hosts(vec![stored.clone()], &[shown]);
    let known = engine.hosts().next().expect("one");
    assert_eq!(
        *known,
        Host {
            remaining: Some(7),
            ..stored
        }
    );
}

/// To the millisecond: a time that has come holds nobody up any more.
#[test]
fn a_time_that_has_come_is_past() {
    let ms = Duration::from_millis(1);
    let known = Host {
        not_before: Some(NOW),
        next_listing_at: Some(NOW),
        ..host()
    };
    let longest = NOW.plus(LONGEST_WAIT);
    assert!(host().is_over(NOW) && !known.is_over(NOW));
    assert!(!known.is_over(longest) && known.is_over(longest.plus(ms)));
    assert!(known.stands(NOW.minus(ms)) && !known.stands(NOW) && !host().stands(Time::ZERO));
    let with = ("forge".to_string(), "a".to_string());
    let mut hosts = Hosts::default();
    assert!(!hosts.spares(&with, NOW), "of which nothing is known");
    hosts.remember(known);
    assert!(hosts.spares(&with, NOW.minus(ms)) && !hosts.spares(&with, NOW));
}

/// C010. Given a tracker that asked to wait, when it answers as ever, then the wait is over; an answer that still
/// refuses, without a time, leaves it as it is.
#[test]
fn c010_only_an_answer_ends_a_wait() {
    let mut hosts = Hosts::default();
    let not_before = |told: Option<Host>| told.expect("something to save").not_before;
    assert_eq!(
        not_before(hosts.told(NOW, &too_many(120))),
        Some(minutes(2))
    );
    let refused = Budget {
        throttled: 2,
        ..well(1, 4889)
    };
    assert_eq!(not_before(hosts.told(NOW, &refused)), Some(minutes(2)));
    assert_eq!(not_before(hosts.told(NOW, &well(1, 4888))), None);
}

/// R3.5. Given a cool-down that could not be saved, when it is told once more, then it is still to be saved; when another is,
/// then that one is.
#[test]
fn r3_5_a_cool_down_stays_to_be_saved_until_another_comes() {
    let mut hosts = Hosts::default();
    let first = hosts.told(NOW, &too_many(120)).expect("to be saved");
    assert!(hosts.not_saved(&first.slug()));
    assert_eq!(hosts.told(NOW, &too_many(120)), None, "it is the same");
    assert_eq!(hosts.take_failed(), std::slice::from_ref(&first));
    assert!(!hosts.not_saved(&first.slug()), "it is no news");
    let other = hosts.told(NOW, &too_many(60)).expect("to be saved");
    assert_ne!(other, first);
    assert_eq!(hosts.take_failed(), []);
}
