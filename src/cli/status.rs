//! `idempoll status`: whether a poller runs, and how it fares. Takes no lock, changes nothing.

use super::args::{Global, Status};
use super::out::Out;
use super::records;
use super::when::{ago, ahead, count, stamp};
use crate::config::Places;
use crate::daemon::clock;
use crate::daemon::holder::{Holder, Who, settled};
use crate::engine::time::Time;
use crate::error::Error;
use crate::exit::Exit;
use crate::os::file;
use crate::store::run_info::{LastCycle, RunInfo, SourceInfo};
use crate::store::{Layout, Reader};
use serde::Serialize;
use serde_json::Value;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// What `status --json` prints. Keys whose value is not known are `null`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Report {
    /// Whether a poller runs.
    running: bool,
    /// Its pid, if it can be told.
    pid: Option<u32>,
    /// When it started.
    started_at: Option<Time>,
    /// Its version.
    version: Option<String>,
    /// The config file it reads, or the one a `start` would read.
    config: Option<PathBuf>,
    /// The state directory looked at.
    state_dir: PathBuf,
    /// The last cycle there was, of this poller or the one before.
    last_cycle: Option<LastCycle>,
    /// When the next one begins.
    next_cycle_at: Option<Time>,
    /// Deliveries that wait.
    pending: usize,
    /// Deliveries given up.
    gave_up: usize,
    /// Why nothing can be recorded at present, and so nothing is delivered.
    store_error: Option<String>,
    /// Why the config as it is now is not used, but the one before it.
    config_error: Option<String>,
    /// The sources, as they fared in the last cycle.
    sources: Vec<SourceInfo>,
    /// What the trackers' hosts allow.
    hosts: Vec<Value>,
    /// How it is put for people.
    #[serde(skip)]
    state: State,
}

/// Whether a poller runs, in words and as an exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// It does; who it is.
    Running(String),
    /// It does not.
    NotRunning,
    /// It does not, and the last one left its pidfile, which says this.
    Dead(String),
}

/// Prints how the poller fares.
pub(super) fn run(global: &Global, args: &Status, out: &mut Out) -> Result<Exit, Error> {
    let report = look(super::places(global)?)?;
    if args.json {
        out.json(&report);
    } else {
        print(&report, clock::now(), out);
    }
    Ok(match report.state {
        State::Running(_) => Exit::Done,
        State::NotRunning => Exit::NotRunning,
        State::Dead(_) => Exit::Failed,
    })
}

fn look(places: Places) -> Result<Report, Error> {
    let holder = settled(&places.state_dir, &places.pidfile)?;
    let layout = Layout::new(&places.state_dir);
    let (state, pid, run) = match holder {
        Holder::Held(held) => {
            let pid = held.pid().map(|pid| pid.get());
            let state = State::Running(held.in_words());
            // Only a proved holder's own words count; a container's pid means nothing here, its words do.
            let run = held
                .run
                .filter(|_| matches!(held.who, Who::Proved(_) | Who::OtherNamespace));
            (state, pid, run)
        }
        Holder::Stale(claim) => (
            State::Dead(claim.to_string()),
            None,
            RunInfo::read(&places.state_dir),
        ),
        Holder::Nobody | Holder::NoStateDir => {
            (State::NotRunning, None, RunInfo::read(&places.state_dir))
        }
    };
    let running = matches!(state, State::Running(_));
    let (pending, gave_up) = records::unfinished(&Reader::new(layout.clone()))?;
    // Of a poller that is gone, only what it came to still holds.
    let live = run.as_ref().filter(|_| running);
    let store_error = live.and_then(|r| r.store_error.clone());
    let store_error = store_error.or_else(|| live.and_then(|_| read_only(&places.state_dir)));
    Ok(Report {
        running,
        pid,
        started_at: live.map(|r| r.started_at),
        version: live.map(|r| r.program.clone()),
        config: live.map(|r| r.config.clone()).or(places.file),
        state_dir: places.state_dir,
        next_cycle_at: live.and_then(|r| r.next_cycle_at),
        store_error,
        config_error: live.and_then(|r| r.config_error.clone()),
        last_cycle: run.as_ref().and_then(|r| r.last_cycle.clone()),
        sources: run.map(|r| r.sources).unwrap_or_default(),
        pending,
        gave_up,
        hosts: hosts(&layout),
        state,
    })
}

/// That the whole state directory has become read-only: then the poller cannot even write that down.
fn read_only(state_dir: &Path) -> Option<String> {
    let directory = file::open_directory(state_dir).ok()?;
    let e = file::is_writable_directory(directory.as_fd()).err()?;
    let doing = format!("cannot write to {}", state_dir.display());
    (e.kind() == ErrorKind::ReadOnlyFilesystem).then(|| Error::new(doing, e).to_string())
}

/// The rate limits on record, each as its file has them.
fn hosts(layout: &Layout) -> Vec<Value> {
    const KEYS: [&str; 6] = [
        "host",
        "limit",
        "remaining",
        "reset_at",
        "not_before",
        "requests_last_cycle",
    ];
    let Ok(entries) = std::fs::read_dir(layout.hosts()) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    paths.sort();
    paths
        .iter()
        .filter_map(|path| {
            let value: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
            let pick = |key: &str| (key.to_string(), value.get(key).cloned().unwrap_or_default());
            Some(Value::Object(KEYS.map(pick).into_iter().collect()))
        })
        .collect()
}

fn print(report: &Report, now: Time, out: &mut Out) {
    match &report.state {
        State::Running(who) => {
            let since = report
                .started_at
                .map(|t| format!(", started {} ({})", stamp(t), ago(t, now)));
            out.line(format_args!("running, {who}{}", since.unwrap_or_default()));
        }
        State::NotRunning => out.line("not running"),
        State::Dead(claim) => {
            out.line(format_args!(
                "not running: the last poller died and left its pidfile ({claim})"
            ));
            out.line("'idempoll start' carries on where it left off");
        }
    }
    out.line(format_args!("state       {}", report.state_dir.display()));
    if let Some(config) = &report.config {
        out.line(format_args!("config      {}", config.display()));
    }
    if let Some(why) = &report.config_error {
        out.line(format_args!(
            "the config was changed and is not used, the one before is kept: {why}"
        ));
    }
    if let Some(cycle) = &report.last_cycle {
        let cut = if cycle.interrupted {
            ", interrupted"
        } else {
            ""
        };
        out.line(format_args!(
            "last cycle  {} ({}): {}, {} delivered, {} failed{cut}",
            stamp(cycle.at),
            ago(cycle.at, now),
            count(cycle.items, "item"),
            cycle.delivered,
            cycle.failed,
        ));
    }
    if let Some(at) = report.next_cycle_at {
        out.line(format_args!("next cycle  {}", ahead(at, now)));
    }
    out.line(format_args!(
        "deliveries  {} pending, {} given up",
        report.pending, report.gave_up
    ));
    if let Some(why) = &report.store_error {
        out.line(format_args!(
            "cannot record, so nothing is delivered: {why}"
        ));
    }
    for source in &report.sources {
        let items = count(source.items, "item");
        let listed = match source.last_listing_at {
            Some(at) => format!("listed {}", ago(at, now)),
            None => "never listed".to_string(),
        };
        let how = match (&source.error, source.failing_since) {
            (Some(error), Some(since)) => format!("failing since {}: {error}", stamp(since)),
            (Some(error), None) => format!("failing: {error}"),
            (None, _) if source.ok => "ok".to_string(),
            (None, _) => "not listed completely".to_string(),
        };
        out.line(format_args!(
            "source      {}: {items}, {listed}, {how}",
            source.name
        ));
    }
    for host in &report.hosts {
        let text = |key: &str| match &host[key] {
            Value::Null => "?".to_string(),
            Value::String(s) => s.clone(),
            other => other.to_string(),
        };
        out.line(format_args!(
            "host        {}: {} of {} requests left until {}",
            text("host"),
            text("remaining"),
            text("limit"),
            text("reset_at")
        ));
    }
}
