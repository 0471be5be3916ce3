//! The order of a poller's start and end.
//!
//! Start: away from pid 1 and from what we were born with, signals, then the lock, then who we are (`run.json`), then the
//! ledger, then the workers, then the first cycle. Whatever is refused before
//! the lock is held has touched nothing. End: no new work, what cannot go on
//! alone is waited for, records saved, `run.json` closed, the lock given back last.

use super::channels::{Receiver, bounded};
use super::clock;
use super::holder;
use super::life;
use super::notify::Notify;
use super::places;
use super::poll::{Course, Poller, Voice};
use super::runlock::{PATIENCE, Refused, RunLock};
use super::signals::{self, StopAsk};
use super::threads;
use crate::config::Watched;
use crate::config::checked::Config;
use crate::engine::cycle::Engine;
use crate::engine::entry::Entry;
use crate::engine::step::Totals;
use crate::error::Error;
use crate::exit::Exit;
use crate::mutant;
use crate::os::pid::Pid;
use crate::os::wait::{self, For};
use crate::os::{init, proc, process};
use crate::store::journal::Journal;
use crate::store::run_info::{self, RunInfo};
use crate::store::{Layout, Ledger};
use std::fs;
use std::os::fd::AsFd;

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
pub fn start(watched: Watched, once: bool, voice: &mut dyn Voice) -> Result<Report, Error> {
    if let Some(error) = lacking() {
        return Err(error);
    }
    let started = Pid::own();
    if let Err(e) = init::divide() {
        let doing = "goes on as pid 1, and what commands leave behind stays as zombies";
        voice.complain(&Error::new(doing, format!("cannot fork: {e}")));
    }
    if !mutant::is("children-inherit-descriptors") {
        process::close_on_exec_from_3();
    }
    let ask = signals::install()?;
    let notify = Notify::of_process(started);
    let config = watched.config();
    let layout = Layout::new(&config.state_dir);
    if mutant::is("says-who-before-the-lock") {
        holder::this_process(&config.file, &config.pidfile).write(&config.state_dir)?;
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
    let sinks = |config: &Config| life::open_sinks(config, &layout);
    let lived = run(watched, once, &sinks, voice, &ask, notify, &mut lock);
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
    watched: Watched,
    once: bool,
    open_sinks: &life::OpenSinks,
    voice: &mut dyn Voice,
    ask: &StopAsk,
    notify: Notify,
    lock: &mut RunLock,
) -> Result<Report, Error> {
    let config = watched.config();
    let layout = Layout::new(&config.state_dir);
    let last = last_run(config)?;
    let run = RunInfo {
        last_cycle: last.last_cycle.clone(),
        sources: last.sources.clone(),
        hosts: last.hosts.clone(),
        goes_on_with: last.goes_on_with.clone(),
        ..holder::this_process(&config.file, &config.pidfile)
    };
    run.write(&config.state_dir)?;
    let mut ledger = Ledger::open(layout.clone())?;
    let mut journal = Journal::open(layout.clone());
    let mut say = |entry: &Entry| {
        voice.entry(entry);
        if let Err(e) = journal.append(entry) {
            voice.complain(&e);
        }
    };
    let started = Entry::new(clock::now(), "poller.started")
        .with("pid", run.pid)
        .with("version", VERSION)
        .with("config", config.file.display().to_string())
        .with("state_dir", config.state_dir.display().to_string());
    say(&started);
    for warning in watched
        .warnings()
        .iter()
        .map(String::as_str)
        .chain(lock.notice())
        .chain(places::open_to_others(&config.state_dir).as_deref())
    {
        say(&Entry::new(clock::now(), "poller.warning").with("reason", warning));
    }
    let (mut life, aside) = life::begin(config, once, open_sinks, &mut ledger, &run, &ask.stop)?;
    aside.iter().for_each(&mut say);
    life.engine.lived_until(last.latest());
    let (stop, now) = watch(ask)?;
    let mut poller = Poller {
        watched,
        life,
        ledger,
        journal,
        layout,
        run,
        lock,
        notify,
        open_sinks,
        asked: ask.stop.clone(),
        stop,
        now,
        once,
        faults: 0,
        voice,
        fetch: None,
        coming: None,
        looked: clock::Look::now(),
        said: None,
        noted_at: clock::Mono::now(),
    };
    let lived = poller.live().and_then(|course| {
        // Who runs is not ours to say in a directory that is not ours any more.
        poller.lock.stands()?;
        let report = report(&poller.life.engine, &course, once, poller.faults());
        poller.stopped();
        Ok(report)
    });
    poller.life.engine.leave();
    lived
}

/// What a poller's run came to.
pub(super) fn report(engine: &Engine, course: &Course, once: bool, faults: usize) -> Report {
    let totals = engine.totals().clone();
    let undelivered = totals.undelivered.iter();
    let mut complaints: Vec<String> = undelivered
        .map(|((id, sink), why)| format!("{id} to {sink}: {why}"))
        .collect();
    let mut incomplete = course.stopped || course.last.is_none() || course.unfinished;
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
    if let Some(last) = &course.last {
        incomplete |= last.interrupted || last.failed_feeds > 0 || last.item_errors > 0;
    }
    if let Some(trouble) = engine.store_trouble() {
        complaints.push(trouble.reason.clone());
        incomplete = true;
    }
    let unresolved = !totals.undelivered.is_empty();
    let faults = match mutant::is("panic-unreported") {
        true => 0,
        false => faults,
    };
    let exit = match (course.cut_short, faults, once) {
        (true, _, _) => Exit::Interrupted,
        (false, 1.., _) => Exit::Failed,
        (false, 0, false) if course.unfinished => Exit::Failed,
        (false, 0, true) if incomplete || unresolved => Exit::Failed,
        (false, 0, _) => Exit::Done,
    };
    Report {
        exit,
        items: course.last.as_ref().map_or(0, |s| s.items),
        totals,
        complaints,
        stopped: course.stopped,
    }
}

/// What the last poller came to, until this one has something to say.
fn last_run(config: &Config) -> Result<RunInfo, Error> {
    let last = RunInfo::read(&config.state_dir).unwrap_or_default();
    if last.version <= run_info::VERSION {
        return Ok(last);
    }
    let state = config.state_dir.display();
    Err(Error::new(
        format!("cannot use state directory {state}"),
        format!("a newer idempoll ({}) wrote it", last.program),
    )
    .hint("start that version, or use another state directory"))
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
                let _ = wait::ready([Some((flag.as_fd(), For::Reading))], None);
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

#[cfg(test)]
mod tests;
