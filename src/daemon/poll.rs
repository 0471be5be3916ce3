//! The driver: carries out the engine's steps and tells it what happened.
//!
//! This runs on the main thread, which alone writes records, cursors, the run
//! information and the event log. It waits in one place only, for whichever
//! comes first: an outcome, something a listing says, a signal, or a time.

use super::clock::{self, Mono};
use super::dispatch::Dispatch;
use super::fetch::{Fetch, Said, vanished};
use super::runlock::{PutRight, RunLock};
use crate::engine::cycle::Engine;
use crate::engine::delivery::Slug;
use crate::engine::entry::{Entry, Level};
use crate::engine::saving::Unsaved;
use crate::engine::step::{Fact, Found, Step, Summary};
use crate::engine::time::Time;
use crate::error::Error;
use crate::mutant;
use crate::providers::{Ask, Provider};
use crate::store::requests::{self, Verb};
use crate::store::run_info::{LastCycle, RunInfo, SourceInfo};
use crate::store::{Layout, Ledger, LoadError, journal::Journal};
use crossbeam_channel::{Receiver, after, never, select};
use std::time::Duration;

/// How often requests are looked for while nothing happens; `retry` promises a second.
const TICK: Duration = Duration::from_millis(900);

/// What the poller says while it runs.
pub trait Voice {
    /// An entry of the event log, as it is written.
    fn entry(&mut self, entry: &Entry);
    /// How far a long cycle is; empty when there is nothing to say.
    fn progress(&mut self, text: &str);
    /// Something the event log cannot take.
    fn complain(&mut self, error: &Error);
}

/// Makes the provider of a feed anew, by its place.
pub type Reopen<'a> = dyn Fn(usize) -> Option<Box<dyn Provider>> + 'a;

/// The driver.
pub struct Poller<'a> {
    /// What decides.
    pub engine: Engine,
    /// Records and cursors.
    pub ledger: Ledger,
    /// The event log.
    pub journal: Journal,
    /// The workers.
    pub dispatch: Dispatch,
    /// Where state is.
    pub layout: Layout,
    /// What `run.json` says.
    pub run: RunInfo,
    /// The lock, put right at each cycle.
    pub lock: &'a mut RunLock,
    /// The providers, by feed; `None` while one lists or was left behind.
    pub providers: Vec<Option<Box<dyn Provider>>>,
    /// Makes a provider anew that was left behind.
    pub reopen: &'a Reopen<'a>,
    /// Told of a stop by a closed channel.
    pub stop: Receiver<()>,
    /// Told of a second signal by a closed channel.
    pub now: Receiver<()>,
    /// From one cycle to the next.
    pub interval: Duration,
    /// One cycle only.
    pub once: bool,
    /// How long a stop may wait for what cannot be left running.
    pub drain: Duration,
    /// What is said to people.
    pub voice: &'a mut dyn Voice,
    /// The listing under way.
    pub fetch: Option<(usize, Fetch)>,
    /// Why `run.json` could not be written the last time; said once.
    pub said: Option<Error>,
}

/// How the poller's life ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Life {
    /// The last cycle, if one ended.
    pub last: Option<Summary>,
    /// A stop was asked for.
    pub stopped: bool,
    /// It was ended by a second signal.
    pub cut_short: bool,
    /// It ended with something in hand: unsaved, or longer than its patience.
    pub unfinished: bool,
    give_up_at: Option<Mono>,
}

impl Poller<'_> {
    /// Polls until a stop, or for one cycle.
    ///
    /// # Errors
    /// When the state directory is no longer ours.
    pub fn live(mut self) -> Result<(Engine, Life, Dispatch, Journal, RunInfo), Error> {
        let mut life = Life::default();
        let mut next_cycle = Some(Mono::now());
        // Looked for at once: what was asked for while nobody ran comes first.
        let mut requests_at = Mono::now();
        let mut begun = Mono::now();
        loop {
            while let Some(step) = self.next_step() {
                if let Some(summary) = self.carry_out(step) {
                    self.cycle_ended(&summary, next_cycle);
                    life.last = Some(summary);
                }
                // The flag is looked at between any two steps, so also between items and sources.
                self.look_for_stop(&mut life);
            }
            if self.look_for_stop(&mut life) {
                continue;
            }
            let resting = self.engine.is_quiet() || self.engine.is_stuck();
            if life.stopped && (resting || life.give_up_at.is_some_and(Mono::passed)) {
                life.unfinished = !self.engine.is_quiet();
                break;
            }
            let at_its_end = self.once && life.last.is_some() && resting;
            if !life.stopped && (at_its_end || requests_at.passed()) {
                requests_at = Mono::now().plus(TICK);
                if self.take_requests() {
                    continue;
                }
            }
            if at_its_end {
                life.unfinished = !self.engine.is_quiet();
                break;
            }
            // A cycle that takes longer than the interval is not begun anew beside itself.
            let cycle_at = next_cycle.filter(|_| !life.stopped && !self.engine.is_cycling());
            if cycle_at.is_some_and(Mono::passed) {
                self.put_lock_right()?;
                begun = Mono::now();
                next_cycle = (!self.once).then(|| begun.plus(self.interval));
                self.tell(Fact::CycleDue);
                continue;
            }
            self.progress(begun);
            let until = [cycle_at, life.give_up_at, Some(requests_at)];
            self.wait(until.into_iter().flatten().min(), &life);
        }
        self.voice.progress("");
        Ok((self.engine, life, self.dispatch, self.journal, self.run))
    }

    fn next_step(&mut self) -> Option<Step> {
        self.engine.next(clock::now())
    }

    fn tell(&mut self, fact: Fact) {
        self.engine.on(clock::now(), fact);
    }

    /// Says whether a stop was just asked for.
    fn look_for_stop(&mut self, life: &mut Life) -> bool {
        let asked = |channel: &Receiver<()>| {
            matches!(
                channel.try_recv(),
                Err(crossbeam_channel::TryRecvError::Disconnected)
            )
        };
        if !life.cut_short && asked(&self.now) {
            life.cut_short = true;
            life.give_up_at = Some(Mono::now());
        }
        if life.stopped || !asked(&self.stop) {
            return false;
        }
        if mutant::is("stop-between-cycles-alone") && self.engine.is_cycling() {
            return false;
        }
        life.stopped = true;
        // Another `stop` that comes now waits with the first, and does not signal a second time.
        self.run.stop_asked_at = Some(clock::now());
        self.write_run();
        let patience = Mono::now().plus(self.drain);
        life.give_up_at.get_or_insert(patience);
        self.tell(Fact::StopAsked);
        true
    }

    /// Waits for whatever comes first, at most until then.
    fn wait(&mut self, until: Option<Mono>, life: &Life) {
        let mut longest = until.map_or(TICK, Mono::left).min(TICK);
        if let Some(at) = self.engine.wakes_at() {
            longest = longest.min(at.since(clock::now()).max(Duration::from_millis(1)));
        }
        let silent = never();
        let said = match &self.fetch {
            Some((_, fetch)) if self.engine.listens() => fetch.said(),
            _ => &silent,
        };
        let deaf = never();
        let stop = if life.stopped { &deaf } else { &self.stop };
        let now = if life.cut_short { &deaf } else { &self.now };
        let timeout = after(longest);
        select! {
            recv(self.dispatch.back()) -> settled => {
                if let Ok(s) = settled {
                    self.tell(Fact::Settled { slug: s.slug, sink: s.sink, outcome: s.outcome });
                }
            }
            recv(said) -> said => {
                let said = said.unwrap_or_else(vanished);
                self.hear(said);
            }
            recv(stop) -> _ => {}
            recv(now) -> _ => {}
            recv(timeout) -> _ => {}
        }
    }

    fn hear(&mut self, said: Said) {
        match said {
            Said::Heard(heard) => self.tell(Fact::Heard(heard)),
            Said::Ended(listing, provider) => {
                if let Some((feed, _)) = self.fetch.take() {
                    self.providers[feed] = provider;
                }
                self.tell(Fact::Listed(listing));
            }
        }
    }

    fn carry_out(&mut self, step: Step) -> Option<Summary> {
        match step {
            Step::Load(slug) => {
                let found = self.load(&slug);
                self.tell(Fact::Loaded { slug, found });
            }
            Step::SetAside(slug) => {
                if let Err(e) = self.ledger.set_aside(&slug) {
                    self.voice.complain(&e);
                }
            }
            Step::Save(slug) => {
                let saved = match self.engine.record(&slug) {
                    Some(record) => self.ledger.save(&slug, record),
                    None => Ok(()),
                };
                self.answer(saved, Unsaved::Record(slug.clone()), Fact::Saved { slug });
            }
            Step::SaveLater(slug) => {
                let saved = match self.engine.record(&slug) {
                    Some(record) => self.ledger.save_later(&slug, record),
                    None => Ok(()),
                };
                self.answer(saved, Unsaved::Record(slug.clone()), Fact::Saved { slug });
            }
            Step::Flush => {
                let flushed = self.ledger.flush();
                self.answer(flushed, Unsaved::Batch, Fact::Flushed);
            }
            Step::SaveFeed(feed) => {
                let slug = self.engine.feed_slug(feed).clone();
                let saved = match self.engine.feed_to_save() {
                    Some(state) => self.ledger.save_feed(&slug, state),
                    None => Ok(()),
                };
                self.answer(saved, Unsaved::Feed, Fact::FeedSaved);
            }
            Step::List {
                feed,
                cursor,
                watch_from,
            } => {
                let provider = self.providers[feed].take().or_else(|| (self.reopen)(feed));
                let ask = Ask {
                    cursor,
                    watch_from,
                    now: clock::now(),
                };
                if let Some(provider) = provider {
                    let name = self.engine.feed_slug(feed).to_string();
                    self.fetch = Some((feed, Fetch::start(&name, provider, ask)));
                }
            }
            Step::Abandon => self.fetch = None,
            Step::Deliver(delivery) => self.dispatch.deliver(delivery),
            Step::Adopt(delivery) => self.dispatch.adopt(delivery),
            Step::Settle(delivery) => {
                let receipt = match self.dispatch.sink(&delivery.sink) {
                    Some(sink) => sink.settle(&delivery),
                    None => crate::engine::delivery::Receipt::Missing,
                };
                let (slug, sink) = (delivery.slug, delivery.sink);
                self.tell(Fact::Receipt {
                    slug,
                    sink,
                    receipt,
                });
            }
            Step::Forget(delivery) => {
                if let Some(sink) = self.dispatch.sink(&delivery.sink) {
                    sink.forget(&delivery);
                }
            }
            Step::Log(entry) => self.log(&entry),
            Step::CycleEnded(summary) => return Some(summary),
        }
        None
    }

    fn load(&mut self, slug: &Slug) -> Found {
        match self.ledger.load(slug) {
            Ok(Some(record)) => Found::Record(Box::new(record)),
            Ok(None) => Found::Nothing,
            Err(LoadError::Damaged { reason, modified }) => Found::Damaged { reason, modified },
            Err(LoadError::SetAside { modified }) => Found::SetAside { modified },
            Err(e @ (LoadError::Unreadable { .. } | LoadError::Newer { .. })) => {
                Found::Unreadable {
                    reason: e.to_string(),
                }
            }
        }
    }

    fn answer(&mut self, done: Result<(), Error>, what: Unsaved, fact: Fact) {
        match done {
            Ok(()) => self.tell(fact),
            Err(e) => self.tell(Fact::SaveFailed {
                what,
                reason: e.to_string(),
            }),
        }
    }

    fn log(&mut self, entry: &Entry) {
        self.voice.entry(entry);
        if entry.level == Level::Debug {
            return;
        }
        // A log that cannot be written is said, and stops nothing.
        if let Err(e) = self.journal.append(entry) {
            self.voice.complain(&e);
        }
    }

    fn warn(&mut self, reason: String) {
        let entry = Entry::new(clock::now(), "poller.warning").with("reason", reason);
        self.log(&entry);
    }

    fn put_lock_right(&mut self) -> Result<(), Error> {
        match self.lock.put_right()? {
            PutRight::AsItWas => {}
            PutRight::Restored => {
                let path = self.run.pidfile.display().to_string();
                self.warn(format!(
                    "the pidfile {path} was gone or changed, and was put right"
                ));
            }
            PutRight::Failed(e) => self.warn(e.to_string()),
        }
        Ok(())
    }

    /// Takes up what other processes asked for; says whether there was anything.
    fn take_requests(&mut self) -> bool {
        if !requests::any(&self.layout) {
            return false;
        }
        let requests = requests::take(&self.layout);
        for (path, request) in &requests {
            match request.clone().map(|r| r.verb) {
                Ok(Verb::Retry { item, delivery }) => self.tell(Fact::Retry {
                    item: Some(item),
                    delivery,
                }),
                Ok(Verb::RetryAll) => self.tell(Fact::Retry {
                    item: None,
                    delivery: None,
                }),
                Err(reason) => self.warn(format!(
                    "cannot read the request {}: {reason}",
                    path.display()
                )),
            }
        }
        while let Some(step) = self.engine.next_save(clock::now()) {
            self.carry_out(step);
        }
        // Done with only when what they asked for is durable; asked for again it does no harm.
        if self.engine.store_trouble().is_some() {
            return false;
        }
        for (path, _) in &requests {
            if let Err(e) = requests::done(path) {
                self.voice.complain(&e);
            }
        }
        !requests.is_empty()
    }

    fn cycle_ended(&mut self, summary: &Summary, next_cycle: Option<Mono>) {
        let now = clock::now();
        self.run.last_cycle = Some(LastCycle {
            at: summary.started_at,
            duration_ms: u64::try_from(now.since(summary.started_at).as_millis())
                .unwrap_or(u64::MAX),
            items: summary.items as u64,
            delivered: summary.delivered,
            failed: summary.failed,
            interrupted: summary.interrupted,
        });
        self.run.next_cycle_at = next_cycle.map(|at| now.plus(at.left()));
        self.write_run();
    }

    fn write_run(&mut self) {
        update(&mut self.run, &self.engine);
        match self.run.write(&self.layout.state_dir) {
            Err(e) if self.said.as_ref() != Some(&e) => {
                self.voice.complain(&e);
                self.said = Some(e);
            }
            Err(_) => {}
            Ok(()) => self.said = None,
        }
    }

    fn progress(&mut self, begun: Mono) {
        if self.fetch.is_none() && self.engine.in_flight() == 0 {
            return self.voice.progress("");
        }
        if Mono::now().since(begun) > Duration::from_secs(1) {
            let (pending, _) = self.engine.backlog();
            let doing = if self.fetch.is_some() {
                "listing"
            } else {
                "delivering"
            };
            let done = self.engine.totals().delivered();
            self.voice
                .progress(&format!("{doing}: {done} delivered, {pending} waiting"));
        }
    }
}

/// Brings the run information up to date with the engine.
pub fn update(run: &mut RunInfo, engine: &Engine) {
    let (pending, gave_up) = engine.backlog();
    run.pending = pending as u64;
    run.gave_up = gave_up as u64;
    run.store_error = engine.store_trouble().map(|t| t.reason.clone());
    let mut sources: Vec<SourceInfo> = Vec::new();
    // A source with several feeds is as well as its worst one.
    for (setup, health, items) in engine.health() {
        let unread = health.item_errors.iter().next().map(|(what, why)| {
            let count = health.item_errors.len();
            format!("cannot read {count} of its items, the first is {what}: {why}")
        });
        let error = health.error.clone().or(unread);
        let name = &setup.rules.source;
        let worst = |a: Option<Time>, b: Option<Time>| a.into_iter().chain(b).min();
        match sources.iter_mut().find(|s| s.name == *name) {
            Some(source) => {
                source.ok &= error.is_none();
                source.items += items as u64;
                source.error = source.error.take().or(error);
                source.failing_since = worst(source.failing_since, health.failing_since);
                source.last_listing_at = worst(source.last_listing_at, health.last_listing_at);
            }
            None => sources.push(SourceInfo {
                name: name.clone(),
                ok: error.is_none(),
                error,
                failing_since: health.failing_since,
                items: items as u64,
                last_listing_at: health.last_listing_at,
            }),
        }
    }
    run.sources = sources;
}
