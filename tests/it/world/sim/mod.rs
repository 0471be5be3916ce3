//! A world in memory for the engine: an upstream that follows a script, a disk
//! that knows what is durable, sinks whose tries outlive the poller or do not. The poller
//! can be cut off at any point and started again.

pub mod disk;
pub mod fate;
pub mod script;
pub mod sinks;
pub mod upstream;

pub use script::{Blow, Case, Dice, Happening, Keeps, Script};

use disk::{Disk, Ledger, Save};
use fate::{Died, Fate};
use idempoll::engine::access::Policy;
use idempoll::engine::cycle::Engine;
use idempoll::engine::delivery::{Delivery, Outcome, Receipt, Slug};
use idempoll::engine::listing::Listing;
use idempoll::engine::plan::Rules;
use idempoll::engine::record::Record;
use idempoll::engine::saving::Unsaved;
use idempoll::engine::step::{Fact, FeedSetup, Found, Setup, Step};
use idempoll::engine::time::Time;
use sinks::{SLOTS, Sinks, keeps};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use upstream::{Listed, STAGE, Upstream, item_ref};

pub(super) const START: u64 = 1_700_000_000_000;

/// From the end of one life to the next.
const REST: Duration = Duration::from_secs(60);

/// How long a stop waits for requests under way.
const DRAIN: Duration = Duration::from_secs(10);

/// Nothing that is due waits longer: no pause between tries is longer than that.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

#[derive(Clone)]
pub struct World {
    pub script: Arc<Script>,
    dice: Dice,
    /// Apart from `dice`, so that nothing else changes with it.
    refusing: Dice,
    /// How many of a hundred saves fail.
    refusals: u64,
    /// The time as nobody can set it.
    now: Time,
    pub fate: Fate,
    upstream: Arc<Upstream>,
    stage: usize,
    quiet: u32,
    lives: u32,
    pub disk: Disk,
    pub sinks: Sinks,
    /// Deliveries a record says were given up for being interrupted, by sink and id.
    pub interrupted_out: BTreeSet<sinks::Name>,
    /// Those, and those given up for any other reason.
    pub given_up: BTreeSet<sinks::Name>,
    pub saves: u64,
    /// How many saves failed.
    pub refused: u64,
    /// What a poller did that it never may.
    pub fault: Option<String>,
    /// A fault planted in this world, to see it found.
    pub planted: Option<Planted>,
}

/// What a store or a sink could do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A flush says it is durable, and is not.
    BatchNotSynced,
    /// A marker is removed before the finished record is durable.
    MarkerRemovedFirst,
    /// The sink does not look for receipts.
    ReceiptIgnored,
}

/// What a poller has in hand.
#[derive(Default)]
struct Hands {
    ledger: Ledger,
    listing: Option<Listed>,
    complete: bool,
    /// Handed to a worker that has not begun.
    queued: VecDeque<Delivery>,
    flying: Vec<Delivery>,
    /// On their way back.
    back: VecDeque<(Delivery, Outcome)>,
    /// Came back: how they ended is to be durable before anything else begins.
    told: Vec<Delivery>,
    stopped: bool,
}

impl World {
    pub fn new(case: &Case) -> World {
        let seed = case.script.seed;
        World {
            dice: Dice(seed ^ 0x5555_5555 | 1),
            refusing: Dice(1),
            refusals: case.refusals,
            script: Arc::new(case.script.clone()),
            now: Time(START),
            fate: Fate::new(case.blows.clone()),
            upstream: Arc::default(),
            stage: 0,
            quiet: 0,
            lives: 0,
            disk: Disk::default(),
            sinks: Sinks::default(),
            interrupted_out: BTreeSet::new(),
            given_up: BTreeSet::new(),
            saves: 0,
            refused: 0,
            fault: None,
            planted: None,
        }
    }

    /// Lives through the whole script.
    pub fn live(mut self) -> World {
        while self.go_on() {}
        self
    }

    /// One life of a poller, after which time goes on. Says whether there is more to come.
    pub fn go_on(&mut self) -> bool {
        // Three quiet cycles in a row: two are needed to call an item gone.
        if self.quiet >= 3 {
            let Some(happenings) = self.script.stages.get(self.stage) else {
                return false;
            };
            self.stage += 1;
            Arc::make_mut(&mut self.upstream).happen(self.stage, happenings);
            self.pass_until(Time(START + STAGE * self.stage as u64).plus(REST * 60));
            (self.quiet, self.lives) = (0, 0);
        }
        self.lives += 1;
        if self.lives > 500 {
            self.wrong("it never comes to rest".into());
        }
        let quiet = self.poll().unwrap_or(false);
        let power_cut = self.fate.power_cut.take();
        let died = self.now;
        self.sinks
            .poller_ended(&self.script, died, power_cut.is_some());
        if let Some(salt) = power_cut {
            let seed = self.script.seed ^ self.fate.points.rotate_left(20) ^ salt.rotate_left(40);
            self.disk.cut(&mut Dice(seed | 1));
        }
        self.quiet = if quiet { self.quiet + 1 } else { 0 };
        self.pass_until(self.now.plus(REST));
        self.fault.is_none()
    }

    fn wrong(&mut self, what: String) {
        self.fault.get_or_insert(what);
    }

    /// The time as the poller's clock has it.
    fn wall(&self) -> Time {
        Time(self.now.0.saturating_add_signed(self.fate.ahead))
    }

    fn pass_until(&mut self, at: Time) {
        self.now = self.now.max(at);
        self.sinks.advance(self.now);
    }

    fn setup(&self) -> Setup {
        let sinks: Vec<String> = (0..self.script.sinks.len())
            .map(|n| format!("sink{n}"))
            .collect();
        let policy = Policy {
            authorized_users: vec!["octocat".into()],
            max_retries: 3,
            ..Policy::default()
        };
        Setup {
            slots: sinks.iter().map(|s| (s.clone(), SLOTS)).collect(),
            feeds: vec![FeedSetup {
                slug: Slug::feed("src", None, None),
                template: item_ref(0),
                host: None,
                rules: Rules {
                    source: "src".into(),
                    sinks,
                    policy,
                    self_marker: "<!-- idempoll -->".into(),
                    scope: String::new(),
                    webhook_sinks: Vec::new(),
                },
            }],
            retry_pause: Duration::from_secs(1),
            most_held: 1,
            version: "1.0.0".into(),
            once: self.script.once,
        }
    }

    /// One life of a poller: start, one cycle, deliver until nothing is due, stop.
    /// Says whether it went through undisturbed and had nothing to do.
    fn poll(&mut self) -> Result<bool, Died> {
        self.fate.point()?;
        // A stop while nobody runs stops nobody.
        self.fate.stop = false;
        let marked = self.disk.open();
        let mut engine = Engine::new(self.setup(), vec![self.disk.feed()], marked);
        engine.lived_until(self.disk.lived.visible().copied().unwrap_or(Time::ZERO));
        self.disk.lives_at(self.wall());
        let done = self.drive(&mut engine);
        engine.leave();
        done
    }

    fn drive(&mut self, engine: &mut Engine) -> Result<bool, Died> {
        let before = (self.saves, self.refused, self.sinks.begun());
        let mut hands = Hands::default();
        hands.ledger.planted = self.planted;
        let mut cycled = false;
        let until = self.fate.points + 100_000;
        while self.fault.is_none() {
            self.fate.point()?;
            if self.fate.points > until {
                self.wrong("it runs away".into());
            }
            self.workers(&mut hands);
            if self.fate.stop && !hands.stopped {
                self.stop(engine, &mut hands);
            }
            if let Some(step) = engine.next(self.wall()) {
                if let Some(fact) = self.carry_out(step, engine, &mut hands)? {
                    engine.on(self.wall(), fact);
                }
                continue;
            }
            self.outcomes_are_durable(&mut hands);
            // As in `daemon/poll.rs`: what cannot be saved is not waited for by a stop.
            if hands.stopped && (engine.is_quiet() || engine.is_stuck()) {
                break;
            }
            // Of what comes at the same time any may come first.
            let first = !engine.listens() || hands.listing.is_none() || self.dice.chance(50);
            if first && let Some((d, outcome)) = hands.back.pop_front() {
                engine.on(self.wall(), settled(&d, outcome.clone()));
                if !matches!(outcome, Outcome::LeftRunning | Outcome::Unknown) {
                    hands.told.push(d);
                }
            } else if !hands.flying.is_empty() && engine.listens() && self.dice.chance(20) {
                // A listing takes its time.
                self.wait(engine, &mut hands);
            } else if let Some(fact) = self.said(engine, &mut hands) {
                engine.on(self.wall(), fact);
            } else if !cycled && !hands.stopped {
                cycled = true;
                engine.on(self.wall(), Fact::CycleDue);
            } else if hands.back.is_empty()
                && hands.queued.is_empty()
                && !self.wait(engine, &mut hands)
            {
                break;
            }
        }
        let idle = before == (self.saves, self.refused, self.sinks.begun());
        let mut records = self.disk.records.values().filter_map(|f| f.visible());
        let rest = records.all(|r| r.pending() == 0);
        Ok(!hands.stopped && idle && rest && hands.complete)
    }

    /// What the workers do meanwhile: each looks at the stop before it begins.
    fn workers(&mut self, hands: &mut Hands) {
        while self.dice.chance(60)
            && let Some(d) = hands.queued.pop_front()
        {
            if hands.stopped || self.fate.stop {
                hands.back.push_back((d, Outcome::Released));
                continue;
            }
            let takes = Duration::from_millis(self.dice.roll(5000));
            let takes = (takes, [0, 0, 50, 100][self.dice.roll(4) as usize]);
            let times = (self.now, self.wall());
            match self.sinks.begin(&self.script, &d, times, takes) {
                Ok(()) => hands.flying.push(d),
                Err(wrong) => return self.wrong(wrong),
            }
        }
    }

    fn stop(&mut self, engine: &mut Engine, hands: &mut Hands) {
        hands.stopped = true;
        self.disk.lives_at(self.wall());
        engine.on(self.wall(), Fact::StopAsked);
        for d in std::mem::take(&mut hands.flying) {
            let ends_at = self.sinks.ends_at(&d).unwrap_or(self.now);
            match keeps(&self.script, &d.sink) {
                // Its end is waited for, though not for ever.
                Keeps::Nothing if ends_at.since(self.now) <= DRAIN => hands.flying.push(d),
                Keeps::Nothing => {
                    self.sinks.give_up(&d);
                    hands.back.push_back((d, Outcome::Unknown));
                }
                _ => hands.back.push_back((d, Outcome::LeftRunning)),
            }
        }
    }

    /// What the listing says next.
    fn said(&mut self, engine: &Engine, hands: &mut Hands) -> Option<Fact> {
        let listing = hands.listing.as_mut().filter(|_| engine.listens())?;
        let heard = listing.heard.pop_front().map(Fact::Heard);
        let ended = || listing.end.take().map(Fact::Listed);
        heard.or_else(ended)
    }

    /// Time passes until a try ends or one is due. Says whether there was anything to wait for.
    fn wait(&mut self, engine: &Engine, hands: &mut Hands) -> bool {
        let ends = hands.flying.iter().filter_map(|d| self.sinks.ends_at(d));
        let ends = ends.min();
        let wakes = engine.wakes_at().map(|at| at.since(self.wall()));
        if ends.is_none() && wakes.is_some_and(|wait| wait > LONGEST_WAIT) {
            self.wrong(format!("what is due waits for {wakes:?}"));
        }
        let wakes = wakes.map(|wait| self.now.plus(wait));
        match ends.into_iter().chain(wakes).min() {
            Some(at) => self.pass_until(at),
            None if engine.is_quiet() => return false,
            None if hands.flying.is_empty() => self.wrong("it is stuck".into()),
            None => {}
        }
        let now = self.now;
        let (done, going): (Vec<_>, Vec<_>) = hands
            .flying
            .drain(..)
            .partition(|d| self.sinks.ends_at(d).is_none_or(|at| at <= now));
        hands.flying = going;
        for d in done {
            let outcome = self.sinks.outcome(&d).unwrap_or(Outcome::Unknown);
            hands.back.push_back((d, outcome));
        }
        true
    }

    fn how_a_save_goes(&mut self) -> Save {
        if !self.refusing.chance(self.refusals) {
            return Save::Works;
        }
        self.refused += 1;
        // What is not recorded must not be missed by whoever comes next.
        if self.refusing.chance(30) {
            let blow = [Blow::Kill, Blow::Stop][self.refusing.roll(2) as usize];
            self.fate.soon(1 + self.refusing.roll(12), blow);
        }
        match self.refusing.chance(50) {
            true => Save::FailsAtOnce,
            false => Save::FailsAtLast,
        }
    }

    fn carry_out(
        &mut self,
        step: Step,
        engine: &mut Engine,
        hands: &mut Hands,
    ) -> Result<Option<Fact>, Died> {
        let ledger = &mut hands.ledger;
        Ok(match step {
            Step::Load(slug) => {
                let found = ledger.load(&mut self.disk, &slug, &mut self.fate)?;
                let found = found.map_or(Found::Nothing, |r| Found::Record(Box::new(r)));
                Some(Fact::Loaded { slug, found })
            }
            Step::Save(slug) => {
                let how = self.how_a_save_goes();
                self.saves += 1;
                let record = engine.record(&slug).expect("a record to save");
                self.note_given_up(record);
                let done = ledger.save(&mut self.disk, &slug, record, how, &mut self.fate)?;
                Some(saved(
                    done,
                    Unsaved::Record(slug.clone()),
                    Fact::Saved { slug },
                ))
            }
            Step::SaveLater(slug) => {
                let how = self.how_a_save_goes();
                let record = engine.record(&slug).expect("a record to save");
                let done = if record.is_unfinished() || !record.events.is_empty() {
                    let mut record = record.clone();
                    self.saves += 1;
                    self.note_given_up(&record);
                    ledger.save(&mut self.disk, &slug, &mut record, how, &mut self.fate)?
                } else {
                    ledger.save_later(&slug, record);
                    how == Save::Works
                };
                Some(saved(
                    done,
                    Unsaved::Record(slug.clone()),
                    Fact::Saved { slug },
                ))
            }
            Step::Flush => {
                let how = self.how_a_save_goes();
                self.saves += ledger.waiting() as u64;
                let done = ledger.flush(&mut self.disk, how, &mut self.fate)?;
                Some(saved(done, Unsaved::Batch, Fact::Flushed))
            }
            Step::SaveFeed(_) => {
                let how = self.how_a_save_goes();
                // After a flush that failed the ledger writes what waits before a feed.
                if ledger.waiting() > 0 && self.refused == 0 {
                    self.wrong("a cursor was saved before its records".into());
                }
                self.saves += 1;
                let feed = engine.feed_to_save().expect("a feed to save");
                let done = ledger.save_feed(&mut self.disk, feed, how, &mut self.fate)?;
                Some(saved(done, Unsaved::Feed, Fact::FeedSaved))
            }
            Step::List { ask, .. } => {
                let cut = if self.script.troubled { 15 } else { 0 };
                let cursor = ask.cursor.as_ref();
                let (changes_only, now) = (self.script.changes_only, self.now);
                let dice = &mut self.dice;
                let listed = self.upstream.list(cursor, changes_only, now, dice, cut);
                hands.complete = matches!(listed.end, Some(Listing::Complete(_)));
                hands.listing = Some(listed);
                None
            }
            Step::Abandon => {
                hands.listing = None;
                None
            }
            Step::Deliver(d) => {
                if hands.stopped {
                    self.wrong(format!("{} was handed out after the stop", d.id));
                }
                self.intent_is_durable(&d);
                hands.queued.push_back(d);
                None
            }
            Step::Settle(d) => {
                let receipt = match self.planted {
                    Some(Planted::ReceiptIgnored) => Receipt::Missing,
                    _ => self.sinks.receipt(&d, self.now),
                };
                let (slug, sink) = (d.slug, d.sink);
                Some(Fact::Receipt {
                    slug,
                    sink,
                    receipt,
                })
            }
            Step::Adopt(d) if hands.stopped => Some(settled(&d, Outcome::LeftRunning)),
            Step::Adopt(d) => {
                hands.flying.push(d);
                None
            }
            Step::Forget(d) => {
                self.sinks.forget(&d);
                None
            }
            Step::CycleEnded(_) => {
                self.disk.lives_at(self.wall());
                None
            }
            Step::SetAside(_) | Step::SaveHost(_) | Step::Log(_) => None,
        })
    }

    /// R3.7: when an effect is tried, the record on disk already says so, whatever happens.
    fn intent_is_durable(&mut self, d: &Delivery) {
        let record = self.disk.records.get(&d.slug).and_then(|f| f.durable());
        let tries = record.and_then(|r| r.sinks.get(&d.sink)?.tries.get(&d.seq));
        if !tries.is_some_and(|t| t.in_flight && t.begun == d.attempt) {
            self.wrong(format!("{} was tried before that was durable", d.id));
        }
    }

    /// R3.1: when the poller turns to anything else, what came back is recorded, whatever happens.
    fn outcomes_are_durable(&mut self, hands: &mut Hands) {
        for d in hands.told.drain(..) {
            let record = self.disk.records.get(&d.slug).and_then(|f| f.durable());
            let tries = record.and_then(|r| r.sinks.get(&d.sink)?.tries.get(&d.seq));
            let open = tries.is_some_and(|t| t.in_flight && t.begun == d.attempt);
            if self.refusals == 0 && (record.is_none() || open) {
                let what = format!("{} came back, and that is not durable", d.id);
                self.fault.get_or_insert(what);
            }
        }
    }

    fn note_given_up(&mut self, record: &Record) {
        for (sink, queue) in &record.sinks {
            for (seq, gave_up) in &queue.gave_up {
                let Some(event) = record.events.get(seq) else {
                    continue;
                };
                let name = (sink.clone(), format!("{}/{}", record.item, event.key));
                if gave_up.interruptions >= 5 {
                    self.interrupted_out.insert(name.clone());
                }
                self.given_up.insert(name);
            }
        }
    }
}

fn saved(done: bool, what: Unsaved, fact: Fact) -> Fact {
    match done {
        true => fact,
        false => Fact::SaveFailed {
            what,
            reason: "no space left on device".into(),
        },
    }
}

fn settled(d: &Delivery, outcome: Outcome) -> Fact {
    Fact::Settled {
        slug: d.slug.clone(),
        sink: d.sink.clone(),
        outcome,
    }
}
