//! The driver: carries out the engine's steps and tells it what happened.
//!
//! This runs on the main thread, which alone writes records, cursors, the run
//! information and the event log. It waits in one place only, for whichever
//! comes first: an outcome, something a listing says, a signal, or a time.

use super::clock::{self, Mono};
use super::dispatch::Dispatch;
use super::fetch::{Fetch, Said, vanished};
use super::runlock::{PutRight, RunLock};
use crate::engine::cycle::{Engine, Fact, Found, Step, Summary};
use crate::engine::delivery::Slug;
use crate::engine::entry::{Entry, Level};
use crate::engine::time::Time;
use crate::error::Error;
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
}

/// How the poller's life ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// The last cycle, if one ended.
    pub last: Option<Summary>,
    /// A stop was asked for.
    pub stopped: bool,
    /// It was ended by a second signal, or by the end of its patience.
    pub cut_short: bool,
}

impl Poller<'_> {
    /// Polls until a stop, or for one cycle.
    ///
    /// # Errors
    /// When the state directory is no longer ours.
    pub fn live(mut self) -> Result<(Engine, Life, Dispatch, Journal, RunInfo), Error> {
        let mut life = Life {
            last: None,
            stopped: false,
            cut_short: false,
        };
        let mut next_cycle = Some(Mono::now());
        let mut give_up_at: Option<Mono> = None;
        let mut begun = Mono::now();
        loop {
            while let Some(step) = self.next_step() {
                if let Some(summary) = self.carry_out(step) {
                    self.cycle_ended(&summary, next_cycle);
                    life.last = Some(summary);
                }
                // The flag is looked at between any two steps, so also between items and sources.
                self.look_for_stop(&mut life, &mut give_up_at);
            }
            self.look_for_stop(&mut life, &mut give_up_at);
            if life.stopped && (self.engine.is_quiet() || give_up_at.is_some_and(Mono::passed)) {
                life.cut_short |= !self.engine.is_quiet();
                break;
            }
            // One cycle does not wait for room on the disk: the next one carries on.
            let stuck = self.engine.store_trouble().is_some()
                && self.engine.in_flight() == 0
                && self.fetch.is_none();
            if self.once && (life.last.is_some() && self.engine.is_quiet() || stuck) {
                break;
            }
            if !life.stopped && next_cycle.is_some_and(Mono::passed) && self.fetch.is_none() {
                self.put_lock_right()?;
                begun = Mono::now();
                next_cycle = (!self.once).then(|| begun.plus(self.interval));
                self.tell(Fact::CycleDue);
                continue;
            }
            self.progress(begun);
            self.wait(next_cycle.filter(|_| !life.stopped), give_up_at, &mut life)?;
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

    fn look_for_stop(&mut self, life: &mut Life, give_up_at: &mut Option<Mono>) {
        let asked = |channel: &Receiver<()>| {
            matches!(
                channel.try_recv(),
                Err(crossbeam_channel::TryRecvError::Disconnected)
            )
        };
        if !life.stopped && asked(&self.stop) {
            life.stopped = true;
            // Another `stop` that comes now waits with the first, and does not signal a second time.
            self.run.stop_asked_at = Some(clock::now());
            self.write_run();
            *give_up_at = Some(Mono::now().plus(self.drain));
            self.tell(Fact::StopAsked);
        }
        if !life.cut_short && asked(&self.now) {
            life.cut_short = true;
            *give_up_at = Some(Mono::now());
        }
    }

    /// Waits for whatever comes first.
    fn wait(
        &mut self,
        next_cycle: Option<Mono>,
        give_up_at: Option<Mono>,
        life: &mut Life,
    ) -> Result<(), Error> {
        let mut longest = TICK;
        if let Some(at) = next_cycle
            .into_iter()
            .chain(give_up_at)
            .map(Mono::left)
            .min()
        {
            longest = longest.min(at);
        }
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
            recv(timeout) -> _ => {
                if !life.stopped {
                    self.take_requests();
                }
            }
        }
        Ok(())
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
                self.answer(saved, Fact::Saved { slug });
            }
            Step::SaveLater(slug) => {
                let saved = match self.engine.record(&slug) {
                    Some(record) => self.ledger.save_later(&slug, record),
                    None => Ok(()),
                };
                self.answer(saved, Fact::Saved { slug });
            }
            Step::Flush => {
                let flushed = self.ledger.flush();
                self.answer(flushed, Fact::Flushed);
            }
            Step::SaveFeed(feed) => {
                let slug = self.engine.feed_slug(feed).clone();
                let saved = match self.engine.feed_to_save() {
                    Some(state) => self.ledger.save_feed(&slug, state),
                    None => Ok(()),
                };
                self.answer(saved, Fact::FeedSaved);
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

    fn answer(&mut self, done: Result<(), Error>, fact: Fact) {
        match done {
            Ok(()) => self.tell(fact),
            Err(e) => self.tell(Fact::SaveFailed {
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

    fn take_requests(&mut self) {
        if !requests::any(&self.layout) {
            return;
        }
        for (path, request) in requests::take(&self.layout) {
            match request.map(|r| r.verb) {
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
            // Done with only when what it asked for is durable.
            while let Some(step) = self.next_step() {
                self.carry_out(step);
            }
            if let Err(e) = requests::done(&path) {
                self.voice.complain(&e);
            }
        }
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
        if let Err(e) = self.run.write(&self.layout.state_dir) {
            self.voice.complain(&e);
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
        let name = &setup.rules.source;
        let worst = |a: Option<Time>, b: Option<Time>| a.into_iter().chain(b).min();
        match sources.iter_mut().find(|s| s.name == *name) {
            Some(source) => {
                source.ok &= health.error.is_none();
                source.items += items as u64;
                source.error = source.error.take().or_else(|| health.error.clone());
                source.failing_since = worst(source.failing_since, health.failing_since);
                source.last_listing_at = worst(source.last_listing_at, health.last_listing_at);
            }
            None => sources.push(SourceInfo {
                name: name.clone(),
                ok: health.error.is_none(),
                error: health.error.clone(),
                failing_since: health.failing_since,
                items: items as u64,
                last_listing_at: health.last_listing_at,
            }),
        }
    }
    run.sources = sources;
}
