//! The threads in every order: hand-over, stop, outcome and giving back, as `shuttle` schedules them.
//!
//! Run by `cargo test --features shuttle --lib daemon::schedules -- --nocapture`, a test build in which
//! `channels`, `threads` and the flag of `os/wake` are made of what a scheduler decides
//! over. It goes through 100,000 schedules at random and 20,000 by PCT (few changes between threads, at
//! rare places), times `IDEMPOLL_SCALE` percent. One that fails is printed, and comes again with
//! `shuttle::replay`. All else of a lib test build with that feature is not for running.

use super::channels::{Came, first};
use super::dispatch::{Dispatch, Settled};
use super::fetch::{Fetch, Said};
use super::threads::{self, scarcity};
use crate::engine::cycle::Engine;
use crate::engine::delivery::{Delivery, EventKind, Key, Outcome, Receipt, Slug};
use crate::engine::item::ItemRef;
use crate::engine::listing::{Ask, Cut, Heard, Listing};
use crate::engine::plan::Rules;
use crate::engine::record::{Event, Known, Queue, Record, Seen, Standing, Stored};
use crate::engine::step::{Fact, FeedSetup, Found, Setup, Step};
use crate::engine::time::Time;
use crate::mutant::PLANTED;
use crate::os::wake::Wake;
use crate::providers::{Out, Provider};
use crate::sinks::Sink;
use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How many threads' turns PCT chooses between at most.
const DEPTH: usize = 4;

/// A schedule that takes more turns than this never ends.
const TURNS: usize = 50_000;

fn config() -> Config {
    let mut config = Config::new();
    config.max_steps = shuttle::MaxSteps::FailAfter(TURNS);
    config
}

/// Goes through so many schedules of `f`, and says so.
fn schedules(what: &str, random: usize, pct: usize, f: fn()) {
    let text = |name| std::env::var(name).ok();
    let number = |name| text(name).and_then(|n| n.parse::<u64>().ok());
    let scale = number("IDEMPOLL_SCALE").unwrap_or(100) as usize;
    let seed = number("IDEMPOLL_SEED").unwrap_or(1);
    let scaled = |n: usize| (n * scale / 100).max(1);
    let (random, pct) = (scaled(random), scaled(pct));
    Runner::new(RandomScheduler::new_from_seed(seed, random), config()).run(f);
    Runner::new(PctScheduler::new_from_seed(seed, DEPTH, pct), config()).run(f);
    println!("{what}: {random} random schedules and {pct} by PCT, seed {seed}");
}

/// What was done, in order, as the sinks saw it.
#[derive(Default)]
struct Log {
    /// How often each was begun, by its item's number and sink.
    begun: BTreeMap<(u64, String), u32>,
    /// Those that ended, whoever heard of it.
    ended: BTreeSet<(u64, String)>,
}

/// A sink that takes its time, and can leave what it began to itself.
struct Slow {
    log: Arc<Mutex<Log>>,
    leaves: bool,
}

fn name(delivery: &Delivery) -> (u64, String) {
    (delivery.item.number, delivery.sink.clone())
}

impl Slow {
    fn go_on(&self, delivery: &Delivery, stop: &Wake) -> Outcome {
        shuttle::thread::yield_now();
        // Whether or not we hear of it, it ends.
        self.log
            .lock()
            .expect("no panic")
            .ended
            .insert(name(delivery));
        match self.leaves && stop.raised() {
            true => Outcome::LeftRunning,
            false => Outcome::Delivered,
        }
    }
}

impl Sink for Slow {
    fn deliver(&self, delivery: &Delivery, stop: &Wake) -> Outcome {
        let mut log = self.log.lock().expect("no panic");
        *log.begun.entry(name(delivery)).or_default() += 1;
        drop(log);
        self.go_on(delivery, stop)
    }

    fn settle(&self, delivery: &Delivery) -> Receipt {
        match self
            .log
            .lock()
            .expect("no panic")
            .ended
            .contains(&name(delivery))
        {
            true => Receipt::Settled(Outcome::Delivered),
            false => Receipt::Running,
        }
    }

    fn wait(&self, delivery: &Delivery, stop: &Wake) -> Outcome {
        self.go_on(delivery, stop)
    }

    fn forget(&self, _: &Delivery) {}
}

fn item(number: u64) -> ItemRef {
    ItemRef {
        provider: "dir".into(),
        host: None,
        path: "in".into(),
        number,
    }
}

fn delivery(number: u64, sink: &str) -> Delivery {
    let item = item(number);
    Delivery {
        id: format!("{item}/opened"),
        event: EventKind::Opened,
        slug: Slug::new("in", &item),
        item,
        sink: sink.into(),
        seq: 1,
        attempt: 1,
        payload: "{}".into(),
        webhook: None,
    }
}

/// Workers over two sinks, one of which leaves what it began at a stop.
fn workers(each: usize, log: &Arc<Mutex<Log>>, stop: &Arc<Wake>) -> Dispatch {
    let sink = |leaves| -> Arc<dyn Sink> {
        let log = log.clone();
        Arc::new(Slow { log, leaves })
    };
    let sinks = [
        ("leaves".to_string(), sink(true)),
        ("waits".to_string(), sink(false)),
    ];
    Dispatch::start(sinks.into(), each, stop).expect("there is room")
}

/// A flag, and a thread that raises it some time: within so many turns.
fn stopped_within(turns: u32) -> (Arc<Wake>, threads::Thread) {
    let stop = Arc::new(Wake::new().expect("a descriptor"));
    let raises = stop.clone();
    let patience = shuttle::rand::thread_rng().gen_range(0..turns);
    let stopper = threads::spawn("stopper", move || {
        // Without this it would mostly come first: all others have more to do.
        (0..patience).for_each(|_| shuttle::thread::yield_now());
        raises.raise();
    });
    (stop, stopper.expect("there is room"))
}

/// One course of the main thread over the workers alone.
fn hand_over() {
    let log = Arc::new(Mutex::new(Log::default()));
    let each = shuttle::rand::thread_rng().gen_range(1..=2);
    let (stop, stopper) = stopped_within(60);
    let mut dispatch = workers(each, &log, &stop);
    scarcity::refuse(shuttle::rand::thread_rng().gen_range(0..=1));
    dispatch.adopt(delivery(9, "leaves"));
    let mut to_do: Vec<Delivery> = [
        (1, "leaves"),
        (2, "waits"),
        (3, "leaves"),
        (4, "waits"),
        (5, "waits"),
    ]
    .map(|(number, sink)| delivery(number, sink))
    .into();
    let mut out: BTreeMap<(u64, String), Option<Outcome>> =
        [((9, "leaves".to_string()), None)].into();
    let mut after_the_stop = BTreeSet::new();
    let mut heard_of_it = false;
    while out.values().any(Option::is_none) || !(heard_of_it || to_do.is_empty()) {
        // As the driver does: it looks at the flag, hands over what there is room for, and waits.
        heard_of_it |= stop.raised();
        let flying = |sink: &str| {
            let of_it = out
                .iter()
                .filter(|((n, s), end)| *n != 9 && s == sink && end.is_none());
            of_it.count()
        };
        if let Some(next) = to_do
            .last()
            .filter(|d| !heard_of_it && flying(&d.sink) < each)
        {
            let next = next.clone();
            to_do.pop();
            out.insert(name(&next), None);
            if stop.raised() {
                after_the_stop.insert(name(&next));
            }
            dispatch.deliver(next);
        }
        dispatch.adopt_again();
        if let Came::Back(settled) = hear(&dispatch) {
            let was = out.get_mut(&named(&settled)).expect("it was handed over");
            assert_eq!(*was, None, "{settled:?} came back twice");
            *was = Some(settled.outcome);
        }
    }
    // The workers end, and nobody says anything more.
    let back = dispatch.back().clone();
    drop(dispatch);
    if let Ok(settled) = back.recv() {
        panic!("{settled:?} came back twice");
    }
    stopper.join().expect("no panic");
    let begun = &log.lock().expect("no panic").begun;
    for (name, end) in &out {
        let times = begun.get(name).copied().unwrap_or(0);
        let right = match end {
            Some(Outcome::Delivered | Outcome::LeftRunning) => u32::from(name.0 != 9),
            _ => 0,
        };
        assert_eq!(times, right, "{name:?} came back as {end:?}");
        if after_the_stop.contains(name) {
            assert_eq!(
                *end,
                Some(Outcome::Released),
                "{name:?} began after the stop"
            );
        }
    }
    assert!(begun.keys().all(|name| out.contains_key(name)));
}

fn hear(dispatch: &Dispatch) -> Came<Settled, ()> {
    first(dispatch.back(), None, [None; 3], Duration::ZERO)
}

fn named(settled: &Settled) -> (u64, String) {
    let (_, number) = settled.slug.as_str().rsplit_once('~').expect("a slug");
    (number.parse().expect("a number"), settled.sink.clone())
}

/// Given deliveries and one to be adopted, when they are handed over while a stop comes at any
/// moment, then each is tried once and its end told once, or it is told once that it was never
/// begun; none begins that was handed over after the stop; and the workers end.
/// (R2.5, R5.1, R6.3)
#[test]
fn r5_1_in_every_order_each_delivery_is_tried_once_or_given_back() {
    schedules("hand-over", 50_000, 10_000, hand_over);
}

/// A record with `events` that wait for both sinks.
fn record(number: u64, events: u64) -> Record {
    let event = |id: u64| Event {
        key: Key(format!("comment/{id}").into()),
        kind: EventKind::Comment,
        at: Time(id),
        payload: "{}".into(),
        webhook: None,
    };
    let queue = Queue {
        pending: (1..=events).collect(),
        ..Queue::default()
    };
    let sinks = ["leaves", "waits"].map(|sink| (sink.to_string(), queue.clone()));
    Record {
        item: item(number),
        source: "in".into(),
        seen: Seen::default(),
        since: Time::ZERO,
        latest: Time::ZERO,
        openings: 1,
        standing: Standing::Active,
        ended_at: None,
        known: Known::default(),
        events: (1..=events).map(|id| (id, event(id))).collect(),
        next_seq: events + 1,
        sinks: sinks.into(),
        history: Vec::new(),
        extra: serde_json::Map::new(),
        stored: Stored::default(),
    }
}

fn engine(slots: usize, pending: Vec<Slug>) -> Engine {
    let sinks = ["leaves", "waits"].map(String::from);
    let setup = Setup {
        slots: sinks.iter().map(|s| (s.clone(), slots)).collect(),
        feeds: vec![FeedSetup {
            slug: Slug::feed("in", None, None),
            template: item(0),
            host: None,
            rules: Rules {
                source: "in".into(),
                sinks: sinks.into(),
                policy: crate::engine::access::Policy::default(),
                self_marker: String::new(),
                scope: String::new(),
                webhook_sinks: Vec::new(),
            },
        }],
        retry_pause: Duration::from_secs(1),
        most_held: 256,
        version: "1.0.0".into(),
        once: false,
    };
    Engine::new(setup, vec![None], pending)
}

/// One life of a poller over `records`: the engine, the workers, and a stop if `stop` is raised.
fn live(records: &mut BTreeMap<Slug, Record>, log: &Arc<Mutex<Log>>, stop: &Arc<Wake>) {
    let slots = 1;
    let now = Time(1000);
    let mut engine = engine(slots, records.keys().cloned().collect());
    let mut dispatch = workers(slots, log, stop);
    let mut stopped = false;
    loop {
        while let Some(step) = engine.next(now) {
            match step {
                Step::Load(slug) => {
                    let found = Found::Record(Box::new(records[&slug].clone()));
                    engine.on(now, Fact::Loaded { slug, found });
                }
                Step::Save(slug) | Step::SaveLater(slug) => {
                    let record = engine.record(&slug).expect("it is to be saved").clone();
                    records.insert(slug.clone(), record);
                    engine.on(now, Fact::Saved { slug });
                }
                Step::Flush => engine.on(now, Fact::Flushed),
                Step::Deliver(delivery) => dispatch.deliver(delivery),
                Step::Adopt(delivery) => dispatch.adopt(delivery),
                Step::Settle(d) => {
                    let receipt = dispatch.sink(&d.sink).expect("a sink").settle(&d);
                    let (slug, sink) = (d.slug, d.sink);
                    let fact = Fact::Receipt {
                        slug,
                        sink,
                        receipt,
                    };
                    engine.on(now, fact);
                }
                _ => {}
            }
            if !stopped && stop.raised() {
                stopped = true;
                engine.on(now, Fact::StopAsked);
                dispatch.adopt_again();
            }
        }
        if !stopped && stop.raised() {
            stopped = true;
            engine.on(now, Fact::StopAsked);
            dispatch.adopt_again();
            continue;
        }
        let done = records.values().all(|r| r.pending() == 0);
        if engine.is_quiet() && (stopped || done) {
            break;
        }
        if let Came::Back(s) = hear(&dispatch) {
            let (slug, sink, outcome) = (s.slug, s.sink, s.outcome);
            let fact = Fact::Settled {
                slug,
                sink,
                outcome,
            };
            engine.on(now, fact);
        }
    }
    engine.leave();
    let back = dispatch.back().clone();
    drop(dispatch);
    if let Ok(settled) = back.recv() {
        panic!("{settled:?} came back after the end");
    }
}

/// A life that is stopped some time, and one after it that is not.
fn stop_and_start() {
    let log = Arc::new(Mutex::new(Log::default()));
    let mut records: BTreeMap<Slug, Record> = (1..=2)
        .map(|number| (Slug::new("in", &item(number)), record(number, 1)))
        .collect();
    let (stop, stopper) = stopped_within(100);
    live(&mut records, &log, &stop);
    stopper.join().expect("no panic");
    {
        let log = log.lock().expect("no panic");
        for record in records.values() {
            for (sink, queue) in &record.sinks {
                let name = (record.item.number, sink.clone());
                let begun = log.begun.get(&name).copied().unwrap_or(0);
                let tries = queue.tries.get(&1);
                match (queue.pending.contains(&1), tries) {
                    (false, _) => assert_eq!(begun, 1, "{name:?} is delivered"),
                    (true, None) => assert_eq!(begun, 0, "{name:?} is as it was"),
                    (true, Some(t)) => {
                        assert!(t.in_flight && sink == "leaves", "{name:?}: {t:?}");
                        assert_eq!((begun, t.begun, t.attempts), (1, 1, 0), "{name:?}");
                    }
                }
            }
        }
    }
    let never = Arc::new(Wake::new().expect("a descriptor"));
    live(&mut records, &log, &never);
    for record in records.values() {
        assert_eq!(
            (record.pending(), record.gave_up(), record.delivered()),
            (0, 0, 2)
        );
        assert!(
            record
                .history
                .iter()
                .all(|r| (r.begun, r.attempts, r.interruptions) == (1, 0, 0))
        );
    }
    let begun = &log.lock().expect("no panic").begun;
    assert!(
        begun.len() == 4 && begun.values().all(|times| *times == 1),
        "{begun:?}"
    );
}

/// Given items with something to deliver, when the poller is stopped at any moment in any order of
/// its threads and started again, then each is delivered once, no attempt is spent by the stop, and
/// the record says at each end what was begun. (R2.5, R5.1, R5.2, R5.3, R6.2, R6.3)
#[test]
fn r5_2_in_every_order_a_stop_costs_nothing() {
    schedules("stop and start", 40_000, 8_000, stop_and_start);
}

/// Says a few times what its clock is, then ends.
struct Talker(Arc<Mutex<bool>>);

impl Provider for Talker {
    fn list(&mut self, _: &Ask, out: &mut dyn Out) -> Listing {
        for n in 0..12 {
            if out.tell(Heard::Clock(Time(n))).is_err() {
                break;
            }
        }
        *self.0.lock().expect("no panic") = true;
        Listing::Cut(Cut::because("that is all"))
    }
}

fn listen() {
    let ended = Arc::new(Mutex::new(false));
    let fetch = Fetch::start("feed", Box::new(Talker(ended.clone())), Ask::default());
    let patience = shuttle::rand::thread_rng().gen_range(0..16);
    for next in 0..patience {
        match fetch.said().recv() {
            Ok(Said::Heard(heard)) => assert_eq!(heard, Heard::Clock(Time(next))),
            Ok(Said::Ended(Listing::Cut(_), Some(_))) => {
                assert_eq!(next, 12);
                break;
            }
            _ => panic!("it ended without a word"),
        }
    }
    drop(fetch);
    // Its thread ends, or the schedule does not.
    let over = || *ended.lock().expect("no panic");
    while !over() {
        shuttle::thread::yield_now();
    }
}

/// Given a listing, when it is left behind at any moment, then its thread ends, and what was said
/// until then was heard in its order. (R2.5)
#[test]
fn r2_5_in_every_order_a_listing_can_be_left_behind() {
    schedules("listing", 10_000, 2_000, listen);
}

/// Given faults in the protocol, then a schedule is found in which each shows.
#[test]
fn planted_faults_show_in_some_schedule() {
    for (fault, f) in [
        ("stop-begins-new", hand_over as fn()),
        ("outcome-dropped-after-stop", hand_over),
        ("abandoned-told-twice", hand_over),
        ("adoption-forgotten", hand_over),
        ("attempts-not-returned", stop_and_start),
        ("abandoned-is-resolved", stop_and_start),
    ] {
        PLANTED.set(Some(fault));
        let random = Runner::new(RandomScheduler::new_from_seed(1, 20_000), config());
        let found = catch_unwind(AssertUnwindSafe(|| random.run(f)));
        PLANTED.set(None);
        let Err(panic) = found else {
            panic!("{fault} was not found");
        };
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        println!(
            "{fault}: found: {}",
            text.lines().next().unwrap_or_default()
        );
    }
}
