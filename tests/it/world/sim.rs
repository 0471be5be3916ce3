//! A world in memory for the engine: an upstream that follows a script, a store
//! that knows what is durable, sinks whose runs outlive the poller. The poller
//! can be cut off between any two steps and started again.

use idempoll::engine::access::Policy;
use idempoll::engine::cycle::Engine;
use idempoll::engine::delivery::{Delivery, Outcome, Receipt, Slug};
use idempoll::engine::feed::Feed;
use idempoll::engine::item::{
    Author, Channel, Comment, Details, Item, ItemRef, Kind, Sighting, State,
};
use idempoll::engine::listing::{Complete, Coverage, Cut, Heard, Listing};
use idempoll::engine::plan::Rules;
use idempoll::engine::record::Record;
use idempoll::engine::saving::Unsaved;
use idempoll::engine::step::{Fact, FeedSetup, Found, Setup, Step};
use idempoll::engine::time::Time;
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A small generator: worlds must be the same on every machine, from their seed alone.
#[derive(Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let x = self.0 ^ (self.0 >> 29);
        (x.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) % sides
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}

/// Something that happens upstream, at a stage.
#[derive(Clone, Debug)]
pub enum Happening {
    Open {
        number: u64,
        by: &'static str,
    },
    Say {
        number: u64,
        id: u64,
        by: &'static str,
    },
    Close {
        number: u64,
    },
    Reopen {
        number: u64,
    },
    Vanish {
        number: u64,
    },
    Edit {
        number: u64,
    },
}

/// A world: what happens at which stage, and how each delivery behaves.
#[derive(Clone, Debug)]
pub struct Script {
    pub seed: u64,
    pub stages: Vec<Vec<Happening>>,
    /// Sinks of the one source.
    pub sinks: Vec<String>,
    /// Whether listings bring only what changed (as a forge does) or everything (as a directory does).
    pub changes_only: bool,
}

impl Script {
    pub fn random(seed: u64) -> Script {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let items = 1 + dice.roll(4);
        let mut stages = Vec::new();
        let (mut next_id, mut there): (u64, Vec<Option<bool>>) =
            (1, vec![None; items as usize + 1]);
        let changes_only = dice.chance(50);
        for _ in 0..2 + dice.roll(4) {
            let mut happenings = Vec::new();
            for number in 1..=items {
                let here = &mut there[number as usize];
                let by = |d: &mut Dice| if d.chance(80) { "octocat" } else { "stranger" };
                match *here {
                    None if dice.chance(70) => {
                        happenings.push(Happening::Open {
                            number,
                            by: by(&mut dice),
                        });
                        *here = Some(true);
                    }
                    None => continue,
                    Some(open) => {
                        for _ in 0..dice.roll(4) {
                            happenings.push(Happening::Say {
                                number,
                                id: next_id,
                                by: by(&mut dice),
                            });
                            next_id += 1;
                        }
                        match dice.roll(6) {
                            0 if open => {
                                happenings.push(Happening::Close { number });
                                *here = Some(false);
                            }
                            0 | 1 if !open => {
                                happenings.push(Happening::Reopen { number });
                                *here = Some(true);
                            }
                            2 if !changes_only && open => {
                                happenings.push(Happening::Vanish { number });
                                *here = None;
                            }
                            3 => happenings.push(Happening::Edit { number }),
                            _ => {}
                        }
                    }
                }
            }
            stages.push(happenings);
        }
        let sinks = (0..1 + dice.roll(2)).map(|n| format!("sink{n}")).collect();
        Script {
            seed,
            stages,
            sinks,
            changes_only,
        }
    }

    /// How often a delivery fails before it works, and whether it says "not now" first.
    fn temper(&self, sink: &str, id: &str) -> (u32, bool) {
        let mut h = self.seed;
        for b in sink.bytes().chain(id.bytes()) {
            h = (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
        }
        let mut dice = Dice(h | 1);
        let fails = match dice.roll(10) {
            0..=6 => 0,
            7 => 1,
            8 => 2,
            _ => 9, // beyond every budget: given up
        };
        (fails, dice.chance(10))
    }
}

#[derive(Clone)]
struct Upstream {
    items: BTreeMap<u64, (Item, Vec<Comment>, u64)>,
    changes: u64,
}

/// What a run did to the outside: in order, per sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Delivered ids per (sink, item), in order.
    pub delivered: BTreeMap<(String, String), Vec<String>>,
    /// Failed tries per (sink, id).
    pub failed: BTreeMap<(String, String), u32>,
}

#[derive(Clone)]
enum Run {
    Going { ends_at: Time, outcome: Outcome },
    Done(Outcome),
}

/// Where and how a poller is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// SIGKILL: what the step did or did not do is decided by the dice.
    Kill,
    /// A stop: the poller drains and ends by itself.
    Stop,
}

pub struct World {
    pub script: Script,
    dice: Dice,
    now: Time,
    upstream: Upstream,
    stage: usize,
    // What survives the poller:
    records: BTreeMap<Slug, Record>,
    feed: Option<Feed>,
    runs: BTreeMap<(Slug, String, u64), (u32, String, Run)>,
    pub effects: Effects,
    /// Deliveries that began after a stop was asked for: must stay 0.
    pub began_after_stop: u32,
    pub saves: u64,
    pub steps: u64,
    /// How many of a hundred saves fail, and have to be made again later.
    pub refusals: u64,
    /// How many saves failed.
    pub refused: u64,
    /// Apart from `dice`, so that nothing else changes with it.
    refusing: Dice,
}

/// Deliveries a sink takes at once.
const SLOTS: usize = 2;

const START: u64 = 1_700_000_000_000;

impl World {
    pub fn new(script: Script) -> World {
        World {
            dice: Dice(script.seed ^ 0x5555_5555 | 1),
            script,
            now: Time(START),
            upstream: Upstream {
                items: BTreeMap::new(),
                changes: 0,
            },
            stage: 0,
            records: BTreeMap::new(),
            feed: None,
            runs: BTreeMap::new(),
            effects: Effects::default(),
            began_after_stop: 0,
            saves: 0,
            steps: 0,
            refusals: 0,
            refused: 0,
            refusing: Dice(1),
        }
    }

    fn setup(&self) -> Setup {
        let policy = Policy {
            authorized_users: vec!["octocat".into()],
            max_retries: 3,
            ..Policy::default()
        };
        Setup {
            feeds: vec![FeedSetup {
                slug: Slug::feed("src", None, None),
                template: item_ref(0),
                host: None,
                rules: Rules {
                    source: "src".into(),
                    sinks: self.script.sinks.clone(),
                    policy,
                    self_marker: "<!-- idempoll -->".into(),
                    scope: String::new(),
                    webhook_sinks: Vec::new(),
                },
            }],
            slots: self
                .script
                .sinks
                .iter()
                .map(|s| (s.clone(), SLOTS))
                .collect(),
            retry_pause: Duration::from_secs(1),
            most_held: 1,
            version: "1.0.0".into(),
            once: self.script.seed.is_multiple_of(2),
        }
    }

    /// Lives through the whole script. `blow` is asked before every step.
    pub fn live(&mut self, mut blow: impl FnMut(u64) -> Option<Blow>) {
        for stage in 0..=self.script.stages.len() {
            if stage > 0 {
                self.stage = stage;
                self.happen(stage - 1);
            }
            // Three quiet cycles in a row: two are needed to call an item gone.
            let mut quiet = 0;
            let mut lives = 0;
            while quiet < 3 {
                lives += 1;
                assert!(
                    lives < 500,
                    "world {} never comes to rest",
                    self.script.seed
                );
                if self.poll(&mut blow) {
                    quiet += 1;
                } else {
                    quiet = 0;
                }
                self.now = self.now.plus(Duration::from_secs(60));
            }
        }
    }

    fn happen(&mut self, stage: usize) {
        for h in self.script.stages[stage].clone() {
            self.upstream.changes += 1;
            // Upstream's clock goes on its own: events depend on it, not on the poller's looks.
            let at =
                Time(START + 1_000_000_000 * (stage as u64 + 1) + self.upstream.changes * 1000);
            let change = self.upstream.changes;
            match h {
                Happening::Open { number, by } => {
                    self.upstream
                        .items
                        .insert(number, (item(number, by, at), Vec::new(), change));
                }
                Happening::Say { number, id, by } => {
                    if let Some((_, comments, changed)) = self.upstream.items.get_mut(&number) {
                        comments.push(comment(id, by, at));
                        *changed = change;
                    }
                }
                Happening::Close { number } => self.change(number, change, |i| {
                    i.state = State::Closed;
                    i.closed_at = Some(at);
                }),
                Happening::Reopen { number } => self.change(number, change, |i| {
                    i.state = State::Open;
                    i.closed_at = None;
                }),
                Happening::Edit { number } => self.change(number, change, |i| i.body.push('!')),
                Happening::Vanish { number } => {
                    self.upstream.items.remove(&number);
                }
            }
        }
    }

    fn change(&mut self, number: u64, change: u64, f: impl FnOnce(&mut Item)) {
        if let Some((item, _, changed)) = self.upstream.items.get_mut(&number) {
            f(item);
            *changed = change;
        }
    }

    /// One life of a poller: start, one cycle, deliver until nothing is due, stop.
    /// Says whether it went through undisturbed and had nothing to do.
    fn poll(&mut self, blow: &mut impl FnMut(u64) -> Option<Blow>) -> bool {
        let pending: Vec<Slug> = self
            .records
            .iter()
            .filter(|(_, r)| r.is_unfinished())
            .map(|(s, _)| s.clone())
            .collect();
        let mut engine = Engine::new(self.setup(), vec![self.feed.clone()], pending);
        let before = (self.saves, self.refused, self.effects.clone());
        let mut later: Vec<(Slug, Record)> = Vec::new();
        let mut listing: VecDeque<Heard> = VecDeque::new();
        let mut listing_end: Option<Listing> = None;
        let mut flying: Vec<Delivery> = Vec::new();
        let mut stopped = false;
        let mut cycled = false;
        let mut complete = false;
        loop {
            self.steps += 1;
            assert!(
                self.steps < 2_000_000,
                "world {} runs away",
                self.script.seed
            );
            let mut killed = false;
            match blow(self.steps) {
                Some(Blow::Stop) if !stopped => {
                    stopped = true;
                    engine.on(self.now, Fact::StopAsked);
                    // Workers look at the flag before they begin; runs go on by themselves.
                    for d in std::mem::take(&mut flying) {
                        engine.on(self.now, settled(&d, Outcome::LeftRunning));
                    }
                }
                Some(Blow::Kill) => killed = true,
                _ => {}
            }
            let Some(step) = engine.next(self.now) else {
                if killed {
                    engine.leave();
                    return false;
                }
                if stopped && engine.is_quiet() {
                    break;
                }
                if engine.listens() && !stopped {
                    if let Some(heard) = listing.pop_front() {
                        engine.on(self.now, Fact::Heard(heard));
                        continue;
                    }
                    if let Some(end) = listing_end.take() {
                        engine.on(self.now, Fact::Listed(end));
                        continue;
                    }
                }
                if !cycled {
                    cycled = true;
                    engine.on(self.now, Fact::CycleDue);
                    continue;
                }
                // Time passes until a run ends or a try is due.
                let ends = flying.iter().filter_map(|d| self.ends_at(d)).min();
                let next = ends.into_iter().chain(engine.wakes_at()).min();
                match next {
                    Some(at) => self.now = self.now.max(at),
                    None if engine.is_quiet() => break,
                    None => panic!("world {} is stuck: {engine:?}", self.script.seed),
                }
                let (done, going): (Vec<_>, Vec<_>) = flying
                    .drain(..)
                    .partition(|d| self.ends_at(d).is_none_or(|at| at <= self.now));
                flying = going;
                for d in done {
                    let outcome = self.finish(&d);
                    engine.on(self.now, settled(&d, outcome));
                }
                continue;
            };
            // A kill before the step, or with the step done and its answer never heard.
            if killed && self.dice.chance(50) {
                engine.leave();
                return false;
            }
            let unsaved = match &step {
                Step::Save(slug) | Step::SaveLater(slug) => Some(Unsaved::Record(slug.clone())),
                Step::Flush => Some(Unsaved::Batch),
                Step::SaveFeed(_) => Some(Unsaved::Feed),
                _ => None,
            };
            if let Some(what) = unsaved
                && self.refusing.chance(self.refusals)
            {
                self.refused += 1;
                let reason = "no space left on device".into();
                engine.on(self.now, Fact::SaveFailed { what, reason });
                continue;
            }
            let fact = match step {
                Step::Load(slug) => {
                    if let Some(at) = later.iter().position(|(s, _)| *s == slug) {
                        let (s, r) = later.remove(at);
                        self.records.insert(s, r);
                    }
                    let found = self
                        .records
                        .get(&slug)
                        .map_or(Found::Nothing, |r| Found::Record(Box::new(r.clone())));
                    Some(Fact::Loaded { slug, found })
                }
                Step::Save(slug) => {
                    let record = engine.record(&slug).expect("a record to save").clone();
                    self.saves += 1;
                    self.records.insert(
                        slug.clone(),
                        Record {
                            stored: marked(&record),
                            ..record
                        },
                    );
                    Some(Fact::Saved { slug })
                }
                Step::SaveLater(slug) => {
                    let record = engine.record(&slug).expect("a record to save").clone();
                    later.push((slug.clone(), record));
                    Some(Fact::Saved { slug })
                }
                Step::Flush => {
                    self.saves += later.len() as u64;
                    self.records.extend(later.drain(..));
                    Some(Fact::Flushed)
                }
                Step::SaveFeed(_) => {
                    // After a flush that failed the ledger writes what waits before a feed.
                    assert!(
                        later.is_empty() || self.refused > 0,
                        "a cursor was saved before its records"
                    );
                    self.records.extend(later.drain(..));
                    self.saves += 1;
                    self.feed = engine.feed_to_save().cloned();
                    Some(Fact::FeedSaved)
                }
                Step::List { ask, .. } => {
                    let cursor = ask.cursor;
                    (listing, listing_end) = self.list(cursor.as_ref());
                    complete = matches!(listing_end, Some(Listing::Complete(_)));
                    None
                }
                Step::Abandon => {
                    listing.clear();
                    listing_end = None;
                    None
                }
                Step::Deliver(d) => {
                    self.began_after_stop += u32::from(stopped);
                    self.intent_is_durable(&d);
                    self.begin(&d);
                    flying.push(d);
                    None
                }
                Step::Settle(d) => {
                    let receipt = match self.runs.get(&key(&d)) {
                        Some((attempt, _, run)) if *attempt == d.attempt => match run {
                            Run::Going { .. } => Receipt::Running,
                            Run::Done(outcome) => Receipt::Settled(outcome.clone()),
                        },
                        _ => Receipt::Missing,
                    };
                    Some(Fact::Receipt {
                        slug: d.slug.clone(),
                        sink: d.sink.clone(),
                        receipt,
                    })
                }
                Step::Adopt(d) => {
                    if stopped {
                        Some(settled(&d, Outcome::LeftRunning))
                    } else {
                        flying.push(d);
                        None
                    }
                }
                Step::SetAside(_)
                | Step::SaveHost(_)
                | Step::Forget(_)
                | Step::Log(_)
                | Step::CycleEnded(_) => None,
            };
            if killed {
                // Records written for later may or may not have made it.
                for (slug, record) in later {
                    if self.dice.chance(50) {
                        self.records.insert(slug, record);
                    }
                }
                engine.leave();
                return false;
            }
            if let Some(fact) = fact {
                engine.on(self.now, fact);
            }
        }
        engine.leave();
        let idle = before == (self.saves, self.refused, self.effects.clone());
        let rest = self.records.values().all(|r| r.pending() == 0);
        !stopped && idle && rest && complete
    }

    /// R3.7: when an effect is tried, the record on disk already says so.
    fn intent_is_durable(&self, d: &Delivery) {
        let record = &self.records[&d.slug];
        let tries = &record.sinks[&d.sink].tries[&d.seq];
        assert!(
            tries.in_flight && tries.begun == d.attempt,
            "world {}: {} was tried before it was recorded",
            self.script.seed,
            d.id
        );
        // R6: a restart does not raise the limit of what runs at once.
        let going = |(k, (_, _, run)): &(&(Slug, String, u64), &(u32, String, Run))| {
            k.1 == d.sink && matches!(run, Run::Going { .. })
        };
        assert!(
            self.runs.iter().filter(going).count() < SLOTS,
            "world {}: too many at once",
            self.script.seed
        );
        for (slug, sink, _) in self
            .runs
            .iter()
            .filter(|(_, (_, _, r))| matches!(r, Run::Going { .. }))
            .map(|(k, _)| k)
        {
            assert!(
                !(*slug == d.slug && *sink == d.sink),
                "world {}: two at once for {}",
                self.script.seed,
                d.id
            );
        }
    }

    fn list(&mut self, cursor: Option<&serde_json::Value>) -> (VecDeque<Heard>, Option<Listing>) {
        let since = cursor.and_then(serde_json::Value::as_u64).unwrap_or(0);
        // A forge's listing overlaps and repeats what is known; a directory's does not.
        let since = if self.script.changes_only {
            since.saturating_sub(2)
        } else {
            since
        };
        let mut heard: VecDeque<Heard> = self
            .upstream
            .items
            .values()
            .filter(|(_, _, changed)| *changed > since)
            .map(|(item, comments, _)| {
                Heard::Sighting(Box::new(Sighting {
                    item: item.clone(),
                    comments: comments.clone(),
                }))
            })
            .collect();
        heard.push_front(Heard::Clock(self.now));
        if self.dice.chance(15) {
            let keep = self.dice.roll(heard.len() as u64 + 1) as usize;
            heard.truncate(keep);
            return (
                heard,
                Some(Listing::Cut(Cut::because("the line went dead"))),
            );
        }
        let coverage = if self.script.changes_only {
            Coverage::Changes {
                missing: Vec::new(),
            }
        } else {
            Coverage::Everything {
                present: self.upstream.items.keys().copied().collect(),
            }
        };
        (
            heard,
            Some(Listing::Complete(Complete {
                cursor: json!(self.upstream.changes),
                coverage,
            })),
        )
    }

    fn begin(&mut self, d: &Delivery) {
        let (fails, defers) = self.script.temper(&d.sink, &d.id);
        let failed = self
            .effects
            .failed
            .get(&(d.sink.clone(), d.id.clone()))
            .copied()
            .unwrap_or(0);
        let deferred = self
            .runs
            .get(&key(d))
            .is_some_and(|(_, _, r)| matches!(r, Run::Done(Outcome::Deferred { .. })));
        let outcome = if defers && failed == 0 && !deferred {
            Outcome::Deferred {
                reason: "busy".into(),
                not_before: None,
            }
        } else if failed < fails {
            Outcome::Failed {
                reason: "exit status 1".into(),
            }
        } else {
            Outcome::Delivered
        };
        // The effect is decided when it begins: nothing the poller does can undo it.
        match &outcome {
            Outcome::Delivered => {
                let at = (d.sink.clone(), d.item.to_string());
                self.effects
                    .delivered
                    .entry(at)
                    .or_default()
                    .push(d.id.clone());
            }
            Outcome::Failed { .. } => {
                *self
                    .effects
                    .failed
                    .entry((d.sink.clone(), d.id.clone()))
                    .or_default() += 1
            }
            _ => {}
        }
        let ends_at = self.now.plus(Duration::from_millis(self.dice.roll(5000)));
        self.runs.insert(
            key(d),
            (d.attempt, d.id.clone(), Run::Going { ends_at, outcome }),
        );
    }

    fn ends_at(&self, d: &Delivery) -> Option<Time> {
        match self.runs.get(&key(d)) {
            Some((_, _, Run::Going { ends_at, .. })) => Some(*ends_at),
            _ => None,
        }
    }

    fn finish(&mut self, d: &Delivery) -> Outcome {
        let Some((_, id, run)) = self.runs.get_mut(&key(d)) else {
            return Outcome::Unknown;
        };
        assert_eq!(*id, d.id);
        let outcome = match run {
            Run::Going { outcome, .. } | Run::Done(outcome) => outcome.clone(),
        };
        *run = Run::Done(outcome.clone());
        outcome
    }

    /// What was spent and given up, per sink and delivery, as the ledger has it.
    pub fn ledger(&self) -> BTreeMap<(String, String), (usize, u64, Vec<u32>)> {
        let mut all = BTreeMap::new();
        for (slug, record) in &self.records {
            for (sink, queue) in &record.sinks {
                let gave_up = queue.gave_up.values().map(|g| g.attempts).collect();
                all.insert(
                    (slug.to_string(), sink.clone()),
                    (queue.pending.len(), queue.delivered, gave_up),
                );
            }
        }
        all
    }
}

fn marked(record: &Record) -> idempoll::engine::record::Stored {
    let mut stored = record.stored.clone();
    stored.marked = record.is_unfinished();
    stored
}

fn settled(d: &Delivery, outcome: Outcome) -> Fact {
    Fact::Settled {
        slug: d.slug.clone(),
        sink: d.sink.clone(),
        outcome,
    }
}

fn key(d: &Delivery) -> (Slug, String, u64) {
    (d.slug.clone(), d.sink.clone(), d.seq)
}

fn item_ref(number: u64) -> ItemRef {
    ItemRef {
        provider: "dir".into(),
        host: None,
        path: "src".into(),
        number,
    }
}

fn author(login: &str) -> Author {
    Author {
        login: Some(login.into()),
        association: None,
        bot: false,
    }
}

fn item(number: u64, by: &str, at: Time) -> Item {
    Item {
        item_ref: item_ref(number),
        kind: Kind::Issue,
        title: format!("item {number}"),
        body: "please".into(),
        author: author(by),
        state: State::Open,
        labels: Vec::new(),
        created_at: Some(at),
        labelled_at: None,
        without_label: Vec::new(),
        unlabelled_at: None,
        labels_dated: false,
        upstream: None,
        closed_at: None,
        url: None,
    }
}

fn comment(id: u64, by: &str, at: Time) -> Comment {
    Comment {
        channel: Channel::Comment,
        id: id.to_string(),
        author: author(by),
        body: "and?".into(),
        created_at: at,
        url: None,
        details: Details::default(),
        upstream: None,
    }
}
