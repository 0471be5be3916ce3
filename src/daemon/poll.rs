//! The driver: when which of the engine's steps is carried out.
//!
//! This runs on the main thread, which alone writes records, cursors, the run
//! information and the event log. It waits in one place only, for whichever
//! comes first: an outcome, something a listing says, a signal, the sentry, or a time.
//! `steps` carries the steps out, `reload` sees to a changed config, `health`
//! writes `run.json`.

use super::channels::{Came, Receiver, TryRecvError, first};
use super::clock::{self, Boot, Jump, Look, Mono};
use super::fetch::{Fetch, vanished};
use super::life::{Life, OpenSinks};
use super::notify::Notify;
use super::runlock::{PutRight, RunLock};
use super::sentry::Sentry;
use crate::config::{Edit, Watched};
use crate::engine::entry::{Entry, Level};
use crate::engine::step::{Fact, Step, Summary};
use crate::error::Error;
use crate::mutant;
use crate::os::wake::Wake;
use crate::sinks::child;
use crate::store::requests::{self, Verb};
use crate::store::run_info::RunInfo;
use crate::store::{Layout, Ledger, journal::Journal};
use std::sync::Arc;
use std::time::Duration;

/// How often requests are looked for, and whether the state directory is still ours, by a
/// poller that does not rest; `retry` promises a second.
const TICK: Duration = Duration::from_millis(900);

/// How long after a rest that is done again. Whoever leaves a request by hand is to have time to write it.
const SOON: Duration = Duration::from_millis(100);

/// How often `run.json` is written while a cycle goes on, so that a kill loses none of the feeds' turns.
const NOTED: Duration = Duration::from_secs(5);

/// How long a stop may take before it is said what it waits for.
const SILENCE: Duration = Duration::from_millis(500);

/// What the poller says while it runs.
pub trait Voice {
    /// An entry of the event log, as it is written.
    fn entry(&mut self, entry: &Entry);
    /// How far a long cycle is; empty when there is nothing to say.
    fn progress(&mut self, text: &str);
    /// Something the event log cannot take.
    fn complain(&mut self, error: &Error);
}

/// The driver.
pub struct Poller<'a> {
    /// The config in use, and its file.
    pub watched: Watched,
    /// What was built from that config.
    pub life: Life,
    /// Records and cursors.
    pub ledger: Ledger,
    /// The event log.
    pub journal: Journal,
    /// Where state is.
    pub layout: Layout,
    /// What `run.json` says.
    pub run: RunInfo,
    /// The lock, put right at each cycle.
    pub lock: &'a mut RunLock,
    /// The service manager.
    pub notify: Notify,
    /// Opens the sinks of a config.
    pub open_sinks: &'a OpenSinks<'a>,
    /// Raised by the first signal.
    pub asked: Arc<Wake>,
    /// Told of a stop by a closed channel.
    pub stop: Receiver<()>,
    /// Told of a second signal by a closed channel.
    pub now: Receiver<()>,
    /// One cycle only.
    pub once: bool,
    /// How many workers panicked in the lives before this one.
    pub faults: usize,
    /// What is said to people.
    pub voice: &'a mut dyn Voice,
    /// The listing under way.
    pub fetch: Option<(usize, Fetch)>,
    /// The config the next life is built from, and when this one ends at the latest.
    pub coming: Option<(Box<Edit>, Mono)>,
    /// The clocks, when they were last looked at.
    pub looked: Look,
    /// Why `run.json` could not be written the last time; said once.
    pub said: Option<Error>,
    /// When it was written last.
    pub noted_at: Mono,
}

/// How the poller's run goes, and how it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Course {
    /// The last cycle, if one ended.
    pub last: Option<Summary>,
    /// A stop was asked for.
    pub stopped: bool,
    /// It was ended by a second signal.
    pub cut_short: bool,
    /// It ended with something in hand: unsaved, or longer than its patience.
    pub unfinished: bool,
    give_up_at: Option<Mono>,
    /// When it is said what the stop waits for.
    say_at: Option<Mono>,
}

impl Poller<'_> {
    /// Polls until a stop, or for one cycle.
    ///
    /// # Errors
    /// When the state directory is no longer ours, or after a change of the config
    /// neither that nor the one before can be used.
    pub fn live(&mut self) -> Result<Course, Error> {
        let mut course = Course::default();
        let mut next_cycle = Some(Boot::now());
        // Looked for at once: what was asked for while nobody ran comes first.
        let mut tick = Mono::now();
        let mut begun = Mono::now();
        let mut sentry = self.sentry();
        let mut asleep = false;
        loop {
            self.notify.turn();
            if std::mem::take(&mut asleep) {
                tick = Mono::now().plus(SOON);
                // Whatever woke us: nobody has looked for long.
                if !mutant::is("woken-and-not-looked") {
                    self.still_ours()?;
                }
            }
            self.look_at_clocks(next_cycle);
            while let Some(step) = self.next_step() {
                if let Some(summary) = self.carry_out(step) {
                    self.cycle_ended(&summary, next_cycle);
                    course.last = Some(summary);
                }
                // The flag is looked at between any two steps, so also between items and sources.
                self.look_for_stop(&mut course);
                self.notify.turn();
            }
            if self.look_for_stop(&mut course) {
                continue;
            }
            let quiet = self.life.engine.is_quiet();
            let resting = quiet || self.life.engine.is_stuck();
            if course.stopped && (resting || course.give_up_at.is_some_and(Mono::passed)) {
                course.unfinished = !quiet;
                self.tell_what_is_left(&course);
                break;
            }
            let over = |at: &Mono| quiet || at.passed();
            if !course.stopped && self.coming.as_ref().is_some_and(|(_, at)| over(at)) {
                self.renew()?;
                next_cycle = Some(Boot::now());
                continue;
            }
            let at_its_end = self.once && course.last.is_some() && resting;
            if at_its_end || tick.passed() {
                tick = Mono::now().plus(TICK);
                self.still_ours()?;
                self.life.dispatch.adopt_again();
                child::collect();
                if self.life.engine.is_cycling()
                    && self.noted_at.plus(NOTED).passed()
                    && !mutant::is("turns-lost-at-a-kill")
                {
                    self.write_run();
                }
                let busy = course.stopped || self.coming.is_some();
                if !busy && self.take_requests() {
                    continue;
                }
            }
            if at_its_end {
                course.unfinished = !quiet;
                break;
            }
            // A cycle that takes longer than the interval is not begun anew beside itself.
            let free = !course.stopped && self.coming.is_none() && !self.life.engine.is_cycling();
            let cycle_at = next_cycle.filter(|_| free);
            if cycle_at.is_some_and(Boot::passed) {
                self.put_lock_right()?;
                if !self.once && self.look_at_config() {
                    continue;
                }
                self.tell_ready();
                begun = Mono::now();
                next_cycle = (!self.once).then(|| Boot::now().plus(self.watched.config().interval));
                self.tell(Fact::CycleDue);
                continue;
            }
            self.progress(begun);
            self.tell_what_is_waited_for(&mut course);
            let give_up_at = course
                .give_up_at
                .or(self.coming.as_ref().map(|(_, at)| *at));
            asleep = self.may_rest(sentry.as_mut())?;
            let tick = Some(tick).filter(|_| !asleep);
            let patience = [give_up_at, course.say_at, tick];
            let until = patience.into_iter().flatten().map(Mono::left);
            let until = until.chain(cycle_at.map(Boot::left));
            let until = until.chain(self.notify.patience()).min();
            self.wait(until.unwrap_or(TICK), &course, sentry.as_ref());
        }
        self.voice.progress("");
        Ok(course)
    }

    /// How many workers panicked so far.
    #[must_use]
    pub fn faults(&self) -> usize {
        self.faults + self.life.dispatch.faults()
    }

    fn next_step(&mut self) -> Option<Step> {
        self.life.engine.next(clock::now())
    }

    /// Hands the engine a fact, with the time.
    pub(super) fn tell(&mut self, fact: Fact) {
        self.life.engine.on(clock::now(), fact);
    }

    /// Whether the state directory can be seen to be ours. What is written goes by its
    /// path, and may be another poller's by now.
    ///
    /// # Errors
    /// When it is not ours any more.
    pub(super) fn still_ours(&self) -> Result<bool, Error> {
        if mutant::is("moved-state-noticed-late") {
            return Ok(true);
        }
        Ok(self.lock.stands()?.is_none())
    }

    fn look_at_clocks(&mut self, next_cycle: Option<Boot>) {
        let look = Look::now();
        if let Some(jump) = look.jump_since(self.looked) {
            if matches!(jump, Jump::Back(_)) && !mutant::is("set-back-while-it-rests-ignored") {
                // The engine was last told the time before the rest: what has passed since is not set back.
                self.life
                    .engine
                    .lived_until(look.expected_since(self.looked));
            }
            self.clock_was_set(jump, next_cycle);
        }
        self.looked = look;
    }

    /// Says whether a stop was just asked for.
    fn look_for_stop(&mut self, course: &mut Course) -> bool {
        let asked =
            |channel: &Receiver<()>| matches!(channel.try_recv(), Err(TryRecvError::Disconnected));
        if !course.cut_short && asked(&self.now) {
            course.cut_short = true;
            course.give_up_at = Some(Mono::now());
        }
        if course.stopped || !asked(&self.stop) {
            return false;
        }
        if mutant::is("stop-between-cycles-alone") && self.life.engine.is_cycling() {
            return false;
        }
        course.stopped = true;
        self.notify.stopping();
        // Another `stop` that comes now waits with the first, and does not signal a second time.
        self.run.stop_asked_at = Some(clock::now());
        self.write_run();
        let patience = Mono::now().plus(self.watched.config().drain);
        course.give_up_at.get_or_insert(patience);
        course.say_at = Some(Mono::now().plus(SILENCE));
        self.tell(Fact::StopAsked);
        self.life.dispatch.adopt_again();
        true
    }

    /// A stop that takes a while says why, and how to have it end at once.
    fn tell_what_is_waited_for(&mut self, course: &mut Course) {
        if course.cut_short || !course.say_at.is_some_and(Mono::passed) {
            return;
        }
        course.say_at = None;
        let what = self.under_way();
        let left = course.give_up_at.map_or(Duration::ZERO, Mono::left);
        self.voice.complain(&Error::new(
            format!(
                "stopping: waiting up to {} s more for {what}",
                left.as_secs() + 1
            ),
            "a second signal ends it at once",
        ));
    }

    /// Why the exit code is 1 after a stop that did not wait any longer.
    fn tell_what_is_left(&mut self, course: &Course) {
        if course.unfinished && !course.cut_short {
            let what = self.under_way();
            self.voice.complain(&Error::new(
                format!("stopped, and left behind {what}"),
                "it did not end within drain_seconds; the next start settles it",
            ));
        }
    }

    /// What keeps a stop from being over.
    fn under_way(&self) -> String {
        let flying = self.life.engine.flying_now();
        let flying: Vec<String> = flying.map(|(id, sink)| format!("{id} to {sink}")).collect();
        match flying.as_slice() {
            [] => "what is not recorded yet".to_string(),
            [one] => one.clone(),
            [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        }
    }

    /// Waits for whatever comes first, at most so long.
    fn wait(&mut self, longest: Duration, course: &Course, sentry: Option<&Sentry>) {
        let mut longest = longest;
        if let Some(at) = self.life.engine.wakes_at() {
            longest = longest.min(at.since(clock::now()).max(Duration::from_millis(1)));
        }
        let fetch = self.fetch.as_ref().map(|(_, fetch)| fetch.said());
        let said = fetch.filter(|_| self.life.engine.listens());
        let stop = Some(&self.stop).filter(|_| !course.stopped);
        let now = Some(&self.now).filter(|_| !course.cut_short);
        let wake = [stop, now, sentry.map(Sentry::woken)];
        match first(self.life.dispatch.back(), said, wake, longest) {
            Came::Back(s) => {
                // All that came back by now, so that it is recorded together.
                let mut next = Some(s);
                while let Some(s) = next {
                    let sink = self.life.dispatch.sink(&s.sink);
                    for news in sink.map(|sink| sink.news()).unwrap_or_default() {
                        self.warn(news);
                    }
                    self.tell(Fact::Settled {
                        slug: s.slug,
                        sink: s.sink,
                        outcome: s.outcome,
                    });
                    next = self.life.dispatch.back().try_recv().ok();
                }
            }
            Came::Said(said) => self.hear(said.unwrap_or_else(vanished)),
            Came::Nothing => {}
        }
    }

    /// Tells people, and the event log.
    pub(super) fn log(&mut self, entry: &Entry) {
        self.voice.entry(entry);
        if entry.level == Level::Debug {
            return;
        }
        // A log that cannot be written is said, and stops nothing.
        if let Err(e) = self.journal.append(entry) {
            self.voice.complain(&e);
        }
    }

    pub(super) fn warn(&mut self, reason: String) {
        let entry = Entry::new(clock::now(), "poller.warning").with("reason", reason);
        self.log(&entry);
    }

    fn tell_ready(&mut self) {
        if let Err(e) = self.notify.ready() {
            self.warn(format!(
                "cannot tell the service manager at NOTIFY_SOCKET that it runs: {e}"
            ));
        }
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
        while let Some(step) = self.life.engine.next_save(clock::now()) {
            self.carry_out(step);
        }
        // Done with only when what they asked for is durable; asked for again it does no harm.
        if self.life.engine.store_trouble().is_some() {
            return false;
        }
        for (path, _) in &requests {
            if let Err(e) = requests::done(path) {
                self.voice.complain(&e);
            }
        }
        !requests.is_empty()
    }

    fn progress(&mut self, begun: Mono) {
        if self.fetch.is_none() && self.life.engine.in_flight() == 0 {
            return self.voice.progress("");
        }
        if Mono::now().since(begun) > Duration::from_secs(1) {
            let (pending, _) = self.life.engine.backlog();
            let doing = if self.fetch.is_some() {
                "listing"
            } else {
                "delivering"
            };
            let done = self.life.engine.totals().delivered();
            self.voice
                .progress(&format!("{doing}: {done} delivered, {pending} waiting"));
        }
    }
}
