//! `idempoll status`: whether a poller runs, and how it fares. Takes no lock, changes nothing.

use super::args::{Global, Status};
use super::out::Out;
use super::records;
use super::when::{ago, ahead, count, stamp};
use crate::config::Places;
use crate::daemon::clock;
use crate::daemon::holder::{Holder, Who, settled};
use crate::engine::host::Host;
use crate::engine::time::Time;
use crate::error::Error;
use crate::exit::Exit;
use crate::os::file;
use crate::store::run_info::{LastCycle, RunInfo, SourceInfo};
use crate::store::{Layout, Reader};
use serde::Serialize;
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
    hosts: Vec<Allowance>,
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
    let now = clock::now();
    let allowance = |known: &Host| Allowance::of(known, now);
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
        hosts: run.iter().flat_map(|r| &r.hosts).map(allowance).collect(),
        sources: run.map(|r| r.sources).unwrap_or_default(),
        pending,
        gave_up,
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

/// What a host lets a token ask, for `--json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Allowance {
    /// The host.
    host: String,
    /// The token, by a name that does not tell it.
    token: String,
    /// Requests allowed in each period, if there is such a limit.
    limit: Option<u64>,
    /// Requests left in this period.
    remaining: Option<u64>,
    /// When the next one begins.
    reset_at: Option<Time>,
    /// The host asked to wait until then.
    not_before: Option<Time>,
    /// Requests of the last cycle that made any.
    requests_last_cycle: u64,
    /// Those among them that count against the limit.
    counted_last_cycle: u64,
    /// Not listed before, so that what is left lasts.
    next_listing_at: Option<Time>,
}

impl Allowance {
    /// Of what is known, what holds now.
    fn of(known: &Host, now: Time) -> Allowance {
        Allowance {
            host: known.host.clone(),
            token: known.token.clone(),
            limit: known.limit,
            remaining: known.remaining,
            reset_at: known.reset_at,
            not_before: known.waits_until(now),
            requests_last_cycle: known.requests_last_cycle,
            counted_last_cycle: known.counted_last_cycle,
            next_listing_at: known.next_listing_at.filter(|t| *t > now),
        }
    }

    /// The same as arithmetic: what a cycle costs, what is left for how long, and so
    /// when the next poll comes. `next_cycle` is unknown while no poller runs.
    fn in_words(&self, next_cycle: Option<Time>, now: Time) -> String {
        let (requests, counted) = (self.requests_last_cycle, self.counted_last_cycle);
        let mut line = format!(
            "{} a cycle, {counted} counted; ",
            count(requests, "request")
        );
        line += &match (self.limit, self.remaining, self.reset_at) {
            (Some(limit), Some(left), Some(t)) if t > now => {
                format!(
                    "{left} of {limit} left until {} ({})",
                    stamp(t),
                    ahead(t, now)
                )
            }
            (Some(limit), Some(_), Some(t)) => format!("{limit} anew since {}", stamp(t)),
            (Some(limit), Some(left), None) => format!("{left} of {limit} left"),
            _ => "no limit told".to_string(),
        };
        match (self.not_before, self.next_listing_at, next_cycle) {
            (Some(t), _, None) => line += &format!("; asks to wait until {}", stamp(t)),
            (Some(t), _, Some(next)) => {
                let poll = ahead(next.max(t), now);
                line += &format!("; next poll {poll}: it asks to wait until {}", stamp(t));
            }
            (None, Some(t), Some(next)) if t > next => {
                let poll = ahead(t, now);
                line += &format!("; next poll {poll}: one at each cycle would use up what is left");
            }
            (None, _, Some(next)) => {
                line += &format!("; next poll {}: at the next cycle", ahead(next, now));
            }
            (None, _, None) => {}
        }
        line
    }
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
        let several = report.hosts.iter().filter(|h| h.host == host.host).count() > 1;
        let token = match several {
            true => format!(" ({})", host.token),
            false => String::new(),
        };
        let words = host.in_words(report.next_cycle_at, now);
        out.line(format_args!("host        {}{token}: {words}", host.host));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_785_924_000_000);

    fn later(seconds: u64) -> Option<Time> {
        Some(Time(NOW.0 + seconds * 1000))
    }

    /// Given what is known of a host, then its line is the arithmetic of the next poll.
    #[test]
    fn a_host_is_told_as_arithmetic() {
        let known = Host {
            limit: Some(5000),
            remaining: Some(4890),
            reset_at: later(2400),
            requests_last_cycle: 3,
            counted_last_cycle: 1,
            ..Host::default()
        };
        let words = |known: &Host, next| Allowance::of(known, NOW).in_words(next, NOW);
        let start = "3 requests a cycle, 1 counted; 4890 of 5000 left until 2026-08-05T10:40:00Z (in 40 min)";
        assert_eq!(words(&known, None), start);
        let said = words(&known, later(58));
        assert_eq!(
            said,
            format!("{start}; next poll in 58 s: at the next cycle")
        );
        let spared = Host {
            next_listing_at: later(300),
            ..known.clone()
        };
        let said = words(&spared, later(58));
        let why = "one at each cycle would use up what is left";
        assert_eq!(said, format!("{start}; next poll in 5 min: {why}"));
        let said = words(&spared, later(358));
        assert_eq!(
            said,
            format!("{start}; next poll in 5 min: at the next cycle")
        );
        let waits = Host {
            not_before: later(120),
            asked_to_wait_at: later(0),
            ..spared
        };
        let said = words(&waits, later(58));
        let why = "it asks to wait until 2026-08-05T10:02:00Z";
        assert_eq!(said, format!("{start}; next poll in 2 min: {why}"));
        let said = words(&waits, None);
        assert_eq!(
            said,
            format!("{start}; asks to wait until 2026-08-05T10:02:00Z")
        );
        let free = Host {
            requests_last_cycle: 1,
            ..Host::default()
        };
        assert_eq!(
            words(&free, None),
            "1 request a cycle, 0 counted; no limit told"
        );
    }
}
