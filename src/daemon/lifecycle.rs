//! The order of a poller's start and end.
//!
//! Start: away from pid 1 and from what we were born with, signals, then the lock, then who we are (`run.json`), then the
//! ledger, then the workers, then the first cycle. Whatever is refused before
//! the lock is held has touched nothing. End: no new work, what cannot go on
//! alone is waited for, records saved, `run.json` closed, the lock given back last.

use super::clock;
use super::dispatch::Dispatch;
use super::holder;
use super::poll::{self, Life, Poller, Voice};
use super::runlock::{PATIENCE, Refused, RunLock};
use super::signals::{self, StopAsk};
use super::threads;
use crate::config::checked::{Config, Provider as ProviderConfig, TokenFrom};
use crate::engine::cycle::Engine;
use crate::engine::entry::Entry;
use crate::engine::feed::Feed;
use crate::engine::plan::Rules;
use crate::engine::step::{Fact, FeedSetup, Found, Setup, Step, Totals};
use crate::error::Error;
use crate::exit::Exit;
use crate::mutant;
use crate::os::pid::Pid;
use crate::os::wait;
use crate::os::{init, proc, process};
use crate::providers;
use crate::sinks::{self, Sink};
use crate::store::journal::Journal;
use crate::store::requests::{self, Verb};
use crate::store::run_info::{self, RunInfo};
use crate::store::{Layout, Ledger, LoadError};
use crossbeam_channel::{Receiver, bounded};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// How long a stop waits for deliveries that neither go on alone nor can be cut.
pub const DRAIN: Duration = Duration::from_secs(10);

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How the program ends.
    pub exit: Exit,
    /// Items being worked on.
    pub items: usize,
    /// What was delivered and what failed.
    pub totals: Totals,
    /// What kept the cycle from being complete, a line each.
    pub complaints: Vec<String>,
    /// A stop was asked for.
    pub stopped: bool,
}

/// The version of idempoll.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Runs a poller until it is stopped, or for one cycle.
///
/// # Errors
/// When it cannot start: another one runs, the state directory cannot be used,
/// `/proc` or `/dev/null` is not there.
/// When the state directory is taken away while it runs.
pub fn start(
    config: &Config,
    warnings: &[String],
    once: bool,
    voice: &mut dyn Voice,
) -> Result<Report, Error> {
    if let Some(error) = lacking() {
        return Err(error);
    }
    if let Err(e) = init::divide() {
        let doing = "goes on as pid 1, and what commands leave behind stays as zombies";
        voice.complain(&Error::new(doing, format!("cannot fork: {e}")));
    }
    if !mutant::is("children-inherit-descriptors") {
        process::close_on_exec_from_3();
    }
    let ask = signals::install()?;
    let layout = Layout::new(&config.state_dir);
    if mutant::is("says-who-before-the-lock") {
        identity(config)?.write(&config.state_dir)?;
    }
    let (dir, pidfile) = match once && mutant::is("once-without-the-lock") {
        true => (
            &config.state_dir.join("once"),
            &config.state_dir.join("once.pid"),
        ),
        false => (&config.state_dir, &config.pidfile),
    };
    let mut lock = match RunLock::acquire(dir, pidfile, PATIENCE) {
        Ok(lock) => lock,
        Err(refused) => return Err(blocked(&layout, refused, voice)),
    };
    let notice = lock.notice().map(str::to_string);
    let warnings: Vec<String> = warnings.iter().cloned().chain(notice).collect();
    let lived = run(config, &warnings, once, voice, &ask, &layout, &mut lock);
    let released = lock.release();
    let report = lived?;
    released?;
    Ok(report)
}

/// What this system lacks, in a bare chroot for example. Without `/proc` and `/dev/null` no
/// command can be started, and without `/proc` nobody could prove who holds the lock:
/// better no poller than one that only ever waits.
#[must_use]
pub fn lacking() -> Option<Error> {
    if !proc::is_mounted() {
        let error = Error::new("cannot work without /proc", "it is not mounted here");
        return Some(error.hint("mount it: mount -t proc proc /proc"));
    }
    let e = fs::metadata("/dev/null").err()?;
    let error = Error::new("cannot work without /dev/null", e);
    Some(error.hint("make it: mknod -m 666 /dev/null c 1 3"))
}

/// Another poller runs: nothing is touched but the event log, which says so.
fn blocked(layout: &Layout, refused: Refused, voice: &mut dyn Voice) -> Error {
    if let Refused::Busy { pid, error } = &refused {
        let entry = Entry::new(clock::now(), "poller.blocked")
            .with("holder", pid.map(Pid::get))
            .with("reason", error.to_string());
        if let Err(e) = Journal::guest(layout.clone()).append(&entry) {
            voice.complain(&e);
        }
    }
    refused.into()
}

fn run(
    config: &Config,
    warnings: &[String],
    once: bool,
    voice: &mut dyn Voice,
    ask: &StopAsk,
    layout: &Layout,
    lock: &mut RunLock,
) -> Result<Report, Error> {
    let run = identity(config)?;
    run.write(&config.state_dir)?;
    let mut ledger = Ledger::open(layout.clone())?;
    let mut journal = Journal::open(layout.clone());
    let say = |entry: Entry, journal: &mut Journal, voice: &mut dyn Voice| {
        voice.entry(&entry);
        if let Err(e) = journal.append(&entry) {
            voice.complain(&e);
        }
    };
    let started = Entry::new(clock::now(), "poller.started")
        .with("pid", run.pid)
        .with("version", VERSION)
        .with("config", config.file.display().to_string())
        .with("state_dir", config.state_dir.display().to_string());
    say(started, &mut journal, voice);
    for warning in warnings {
        say(
            Entry::new(clock::now(), "poller.warning").with("reason", warning.clone()),
            &mut journal,
            voice,
        );
    }
    let (feeds, opened) = open_feeds(config);
    let mut states = Vec::new();
    for feed in &feeds {
        let (state, aside) = load_feed(&mut ledger, feed)?;
        if let Some(entry) = aside {
            say(entry, &mut journal, voice);
        }
        states.push(state);
    }
    let setup = Setup {
        feeds,
        slots: config
            .sinks
            .keys()
            .map(|s| (s.clone(), config.max_concurrent))
            .collect(),
        retry_pause: config.retry_pause,
        version: VERSION.to_string(),
        once,
    };
    let sinks = open_sinks(config, layout);
    let dispatch = Dispatch::start(sinks, config.max_concurrent, &ask.stop)
        .map_err(|e| Error::new("cannot start the workers", e))?;
    let (stop, now) = watch(ask)?;
    let pending = ledger.pending()?;
    let mut engine = Engine::new(setup, states, pending);
    for source in &run.sources {
        engine.recall(&source.name, source.failing_since, source.last_listing_at);
    }
    let poller = Poller {
        engine,
        ledger,
        journal,
        dispatch,
        layout: layout.clone(),
        run,
        lock,
        providers: opened,
        reopen: &|at| open_feeds(config).1.into_iter().nth(at).flatten(),
        stop,
        now,
        interval: config.interval,
        once,
        drain: DRAIN,
        voice: &mut *voice,
        fetch: None,
        said: None,
    };
    let (engine, life, dispatch, mut journal, mut run) = poller.live()?;
    let report = report(&engine, &life, once, dispatch.faults());
    poll::update(&mut run, &engine);
    run.stopped_at = Some(clock::now());
    run.next_cycle_at = None;
    if let Err(e) = run.write(&config.state_dir) {
        voice.complain(&e);
    }
    let stopped = Entry::new(clock::now(), "poller.stopped")
        .with("pid", run.pid)
        .with("left_running", engine.totals().left_running)
        .with("pending", run.pending);
    say(stopped, &mut journal, voice);
    engine.leave();
    Ok(report)
}

fn report(engine: &Engine, life: &Life, once: bool, faults: usize) -> Report {
    let totals = engine.totals().clone();
    let undelivered = totals.undelivered.iter();
    let mut complaints: Vec<String> = undelivered
        .map(|((id, sink), why)| format!("{id} to {sink}: {why}"))
        .collect();
    let mut incomplete = life.stopped || life.last.is_none() || life.unfinished;
    for (setup, health, _) in engine.health() {
        let source = &setup.rules.source;
        if let Some(error) = &health.error {
            complaints.push(format!("{source}: {error}"));
        }
        complaints.extend(
            health
                .item_errors
                .iter()
                .map(|(what, why)| format!("{source}: {what}: {why}")),
        );
    }
    if let Some(last) = &life.last {
        incomplete |= last.interrupted || last.failed_feeds > 0 || last.item_errors > 0;
    }
    if let Some(trouble) = engine.store_trouble() {
        complaints.push(trouble.reason.clone());
        incomplete = true;
    }
    let unresolved = !totals.undelivered.is_empty();
    let exit = match (life.cut_short, faults, once) {
        (true, _, _) => Exit::Interrupted,
        (false, 1.., _) => Exit::Failed,
        (false, 0, false) if life.unfinished => Exit::Failed,
        (false, 0, true) if incomplete || unresolved => Exit::Failed,
        (false, 0, _) => Exit::Done,
    };
    Report {
        exit,
        items: life.last.as_ref().map_or(0, |s| s.items),
        totals,
        complaints,
        stopped: life.stopped,
    }
}

/// Applies what `retry` asked for when no poller runs to do it: takes the lock
/// as a poller would, and delivers nothing. Says how many deliveries were re-armed.
///
/// # Errors
/// [`Refused::Busy`] when a poller runs after all, which will see to it.
pub fn apply_requests(config: &Config) -> Result<usize, Refused> {
    let layout = Layout::new(&config.state_dir);
    let lock = RunLock::acquire(&config.state_dir, &config.pidfile, PATIENCE)?;
    let rearmed = rearm(config, &layout);
    lock.release()?;
    Ok(rearmed?)
}

fn rearm(config: &Config, layout: &Layout) -> Result<usize, Error> {
    let mut ledger = Ledger::open(layout.clone())?;
    let mut journal = Journal::open(layout.clone());
    let (feeds, _) = open_feeds(config);
    let states = vec![None; feeds.len()];
    let setup = Setup {
        feeds,
        // Without slots nothing is tried.
        slots: BTreeMap::new(),
        retry_pause: config.retry_pause,
        version: VERSION.to_string(),
        once: true,
    };
    let mut engine = Engine::new(setup, states, ledger.pending()?);
    let mut rearmed = 0;
    let mut carry_out = |engine: &mut Engine| -> Result<(), Error> {
        while let Some(step) = engine.next(clock::now()) {
            match step {
                Step::Load(slug) => {
                    let found = match ledger.load(&slug) {
                        Ok(Some(record)) => Found::Record(Box::new(record)),
                        Ok(None) => Found::Nothing,
                        // The poller that runs next deals with it.
                        Err(e) => Found::Unreadable {
                            reason: e.to_string(),
                        },
                    };
                    engine.on(clock::now(), Fact::Loaded { slug, found });
                }
                Step::Save(slug) => {
                    if let Some(record) = engine.record(&slug) {
                        ledger.save(&slug, record)?;
                    }
                    engine.on(clock::now(), Fact::Saved { slug });
                }
                Step::Log(entry) => {
                    rearmed += usize::from(entry.kind == "poll.rearmed");
                    journal.append(&entry)?;
                }
                // What an earlier poller left in flight stays so until a poller asks for its receipt.
                _ => {}
            }
        }
        Ok(())
    };
    carry_out(&mut engine)?;
    for (path, request) in requests::take(layout) {
        let verb = request
            .map(|r| r.verb)
            .map_err(|e| Error::new(format!("cannot read {}", path.display()), e))?;
        let (item, delivery) = match verb {
            Verb::Retry { item, delivery } => (Some(item), delivery),
            Verb::RetryAll => (None, None),
        };
        engine.on(clock::now(), Fact::Retry { item, delivery });
        carry_out(&mut engine)?;
        requests::done(&path)?;
    }
    engine.leave();
    Ok(rearmed)
}

/// Who we are, with what the last poller came to, until this one has something to say.
fn identity(config: &Config) -> Result<RunInfo, Error> {
    let last = RunInfo::read(&config.state_dir).unwrap_or_default();
    if last.version > run_info::VERSION {
        let state = config.state_dir.display();
        return Err(Error::new(
            format!("cannot use state directory {state}"),
            format!("a newer idempoll ({}) wrote it", last.program),
        )
        .hint("start that version, or use another state directory"));
    }
    Ok(RunInfo {
        last_cycle: last.last_cycle,
        sources: last.sources,
        ..holder::this_process(&config.file, &config.pidfile)
    })
}

type Opened = Vec<Option<Box<dyn providers::Provider>>>;

fn open_feeds(config: &Config) -> (Vec<FeedSetup>, Opened) {
    let mut setups = Vec::new();
    let mut opened = Vec::new();
    for source in &config.sources {
        for feed in providers::open(source) {
            setups.push(FeedSetup {
                slug: feed.slug,
                template: feed.template,
                rules: Rules {
                    source: source.name.clone(),
                    sinks: source.sinks.clone(),
                    policy: source.policy.clone(),
                    self_marker: config.self_marker.clone(),
                },
            });
            opened.push(Some(feed.provider));
        }
    }
    (setups, opened)
}

/// A damaged feed file is kept aside and its feed listed from the beginning.
fn load_feed(
    ledger: &mut Ledger,
    feed: &FeedSetup,
) -> Result<(Option<Feed>, Option<Entry>), Error> {
    let cannot = |why: &LoadError| {
        Error::new(format!("cannot load what is known of {}", feed.slug), why)
            .hint("see docs/state.md for what each file is and what may be deleted")
    };
    match ledger.load_feed(&feed.slug) {
        Ok(state) => Ok((state, None)),
        Err(LoadError::Damaged { reason, .. }) => {
            let kept = ledger.set_feed_aside(&feed.slug)?;
            let entry = Entry::new(clock::now(), "record.set_aside")
                .with("record", feed.slug.to_string())
                .with("reason", reason)
                .with("kept", kept.display().to_string());
            let state = ledger.load_feed(&feed.slug).map_err(|e| cannot(&e))?;
            Ok((state, Some(entry)))
        }
        Err(e) => Err(cannot(&e)),
    }
}

fn open_sinks(config: &Config, layout: &Layout) -> BTreeMap<String, Arc<dyn Sink>> {
    let mut secrets = BTreeSet::new();
    for source in &config.sources {
        if let ProviderConfig::GitHub(github) = &source.provider
            && let Some(TokenFrom::Env(name)) = &github.token
        {
            secrets.insert(name.clone());
        }
    }
    let secrets: Vec<String> = secrets.into_iter().collect();
    let open = |(name, sink): (&String, &_)| {
        (
            name.clone(),
            Arc::from(sinks::open(sink, &layout.runs(), &secrets)),
        )
    };
    config.sinks.iter().map(open).collect()
}

/// Turns the two flags into channels that close, which a `select` can wait for.
fn watch(ask: &StopAsk) -> Result<(Receiver<()>, Receiver<()>), Error> {
    let mut channels = Vec::new();
    for (name, flag) in [("stop", &ask.stop), ("stop-now", &ask.now)] {
        let (closes, channel) = bounded::<()>(0);
        let flag = flag.clone();
        // Never joined: it sleeps until its flag is raised, or the process ends.
        threads::spawn(name, move || {
            while !flag.raised() {
                let _ = wait::readable(flag.as_fd(), Duration::from_secs(3600));
            }
            drop(closes);
        })
        .map_err(|e| Error::new("cannot start a thread", e))?;
        channels.push(channel);
    }
    let now = channels.pop();
    channels
        .pop()
        .zip(now)
        .ok_or_else(|| Error::new("cannot start a thread", "too few channels"))
}
