//! `idempoll show`: one item and each of its deliveries. Takes no lock, changes nothing.

use super::args::{Global, Show};
use super::out::Out;
use super::records;
use super::when::{ahead, stamp};
use crate::daemon::clock;
use crate::engine::delivery::{Key, Slug, delivery_id};
use crate::engine::item::{ItemRef, Kind};
use crate::engine::record::{Disposition, Record};
use crate::engine::time::Time;
use crate::error::Error;
use crate::exit::Exit;
use crate::sinks::receipt;
use crate::sinks::tmux::session::{Note, attach, read_note};
use crate::store::{Layout, Reader};
use serde::Serialize;

/// An item as `show --json` prints it: an object for each source that has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Sheet {
    /// Its name.
    #[serde(rename = "ref")]
    item: ItemRef,
    /// The source it comes from.
    source: String,
    /// Issue or pull request.
    kind: Kind,
    /// Its title, as upstream wrote it.
    title: String,
    /// Its page.
    url: Option<String>,
    /// Who opened it.
    author: Option<String>,
    /// Its labels.
    labels: Vec<String>,
    /// `open`, `closed`, `merged` or `gone`.
    state: &'static str,
    /// What was said before this is known and never delivered.
    since: Time,
    /// How often it was opened.
    openings: u32,
    /// Deliveries that wait.
    pending: usize,
    /// Deliveries given up.
    gave_up: usize,
    /// Deliveries made, ever.
    delivered: u64,
    /// When the last one was.
    last_delivery_at: Option<Time>,
    /// Its tmux sessions, as they were when they were last made.
    sessions: Vec<Session>,
    /// Every event ever seen, in the order it was first seen, once for each sink it is known of.
    deliveries: Vec<Line>,
}

/// A tmux session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Session {
    /// The sink it is of.
    sink: String,
    /// What is known of it.
    #[serde(flatten)]
    note: Note,
    /// The command that shows it.
    attach: String,
}

/// One event for one sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Line {
    /// The delivery id.
    delivery_id: String,
    /// The event's name within the item.
    key: Key,
    /// The sink; `null` for an event no sink got, or delivered too long ago to tell.
    sink: Option<String>,
    /// How it stands.
    status: Status,
    /// Failed tries spent on it.
    attempts: u32,
    /// Tries that ended with the poller.
    interruptions: u32,
    /// Not tried again before this.
    next_attempt_at: Option<Time>,
    /// Why the last try did not resolve it.
    last_error: Option<String>,
    /// When it was resolved, or given up.
    resolved_at: Option<Time>,
    /// What the last try printed, where the sink keeps that.
    output: Option<String>,
}

/// How an event stands with a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    Running,
    Delivered,
    GaveUp,
    Baseline,
    Refused,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Running => "running",
            Status::Delivered => "delivered",
            Status::GaveUp => "gave up",
            Status::Baseline => "baseline",
            Status::Refused => "refused",
        }
    }
}

/// Prints the item.
pub(super) fn run(global: &Global, args: &Show, out: &mut Out) -> Result<Exit, Error> {
    let layout = Layout::new(super::places(global)?.state_dir);
    let reader = Reader::new(layout.clone());
    for (n, (slug, record)) in records::find(&reader, &args.item)?.iter().enumerate() {
        let sheet = sheet(&layout, slug, record);
        if args.json {
            out.json(&sheet);
        } else {
            if n > 0 {
                out.line("");
            }
            print(&sheet, clock::now(), out);
        }
    }
    Ok(Exit::Done)
}

fn sheet(layout: &Layout, slug: &Slug, record: &Record) -> Sheet {
    Sheet {
        item: record.item.clone(),
        source: record.source.clone(),
        kind: record.seen.kind,
        title: record.seen.title.clone(),
        url: record.seen.url.clone(),
        author: record.seen.author.clone(),
        labels: record.seen.labels.clone(),
        state: records::standing(record),
        since: record.since,
        openings: record.openings,
        pending: record.pending(),
        gave_up: record.gave_up(),
        delivered: record.delivered(),
        last_delivery_at: record.last_delivery_at(),
        sessions: record
            .sinks
            .keys()
            .filter_map(|sink| {
                let note = read_note(&layout.runs(), slug, sink)?;
                Some(Session {
                    sink: sink.clone(),
                    attach: attach(&note),
                    note,
                })
            })
            .collect(),
        deliveries: record
            .known
            .entries()
            .iter()
            .flat_map(|(key, disposition)| lines(layout, slug, record, key, *disposition))
            .collect(),
    }
}

/// What is known of one event: a line for each sink that has or had it.
fn lines(
    layout: &Layout,
    slug: &Slug,
    record: &Record,
    key: &Key,
    disposition: Disposition,
) -> Vec<Line> {
    let line = |sink: Option<&str>, status| Line {
        delivery_id: delivery_id(&record.item, key),
        key: key.clone(),
        sink: sink.map(str::to_string),
        status,
        attempts: 0,
        interruptions: 0,
        next_attempt_at: None,
        last_error: None,
        resolved_at: None,
        output: None,
    };
    match disposition {
        Disposition::Baseline => return vec![line(None, Status::Baseline)],
        Disposition::Refused => return vec![line(None, Status::Refused)],
        Disposition::Queued => {}
    }
    let mut lines = Vec::new();
    for resolved in record.history.iter().filter(|r| r.key == *key) {
        lines.push(Line {
            attempts: resolved.attempts,
            interruptions: resolved.interruptions,
            resolved_at: Some(resolved.at),
            output: output(layout, slug, &resolved.sink, resolved.seq),
            ..line(Some(&resolved.sink), Status::Delivered)
        });
    }
    let seq = record
        .events
        .iter()
        .find(|(_, e)| e.key == *key)
        .map(|(seq, _)| *seq);
    for (sink, queue) in &record.sinks {
        let Some(seq) = seq else { break };
        if queue.pending.contains(&seq) {
            let tries = queue.tries.get(&seq).cloned().unwrap_or_default();
            let status = if tries.in_flight {
                Status::Running
            } else {
                Status::Pending
            };
            lines.push(Line {
                attempts: tries.attempts,
                interruptions: tries.interruptions,
                next_attempt_at: tries.next_attempt_at,
                last_error: tries.last_error,
                output: output(layout, slug, sink, seq),
                ..line(Some(sink), status)
            });
        } else if let Some(gave_up) = queue.gave_up.get(&seq) {
            lines.push(Line {
                attempts: gave_up.attempts,
                interruptions: gave_up.interruptions,
                last_error: Some(gave_up.reason.clone()),
                resolved_at: Some(gave_up.at),
                output: output(layout, slug, sink, seq),
                ..line(Some(sink), Status::GaveUp)
            });
        }
    }
    if lines.is_empty() {
        // Resolved so long ago that the record no longer tells more.
        lines.push(line(None, Status::Delivered));
    }
    lines
}

/// What the last try of a delivery printed, if its receipt is still there.
fn output(layout: &Layout, slug: &Slug, sink: &str, seq: u64) -> Option<String> {
    let dir = receipt::dir(&layout.runs(), slug, sink);
    let (_, last) = receipt::tries(&dir, seq).ok()?.pop()?;
    let output = receipt::read(&last)?.ended?.output;
    (!output.is_empty()).then_some(output)
}

/// The most lines of output shown for people.
const OUTPUT_LINES: usize = 20;

fn print(sheet: &Sheet, now: Time, out: &mut Out) {
    out.line(format_args!("{}  {}", sheet.item, sheet.title));
    let kind = match sheet.kind {
        Kind::Issue => "issue",
        Kind::PullRequest => "pull request",
    };
    let author = sheet.author.as_deref().unwrap_or("nobody");
    out.line(format_args!(
        "{kind}, {}, by {author}; source {}",
        sheet.state, sheet.source
    ));
    if let Some(url) = &sheet.url {
        out.line(url);
    }
    if !sheet.labels.is_empty() {
        out.line(format_args!("labels: {}", sheet.labels.join(", ")));
    }
    let since = match sheet.since {
        Time::ZERO => "all that is said on it counts".to_string(),
        since => format!("what is said from {} on counts", stamp(since)),
    };
    out.line(format_args!(
        "{since}; {} delivered, {} pending, {} given up",
        sheet.delivered, sheet.pending, sheet.gave_up
    ));
    for session in &sheet.sessions {
        out.line(format_args!(
            "session in {}: {}",
            session.sink, session.attach
        ));
    }
    if sheet.deliveries.is_empty() {
        return;
    }
    out.line("");
    let mut table = vec![["EVENT", "SINK", "STATUS", "WHEN", "NOTE"].map(String::from)];
    table.extend(sheet.deliveries.iter().map(|line| {
        let mut notes = Vec::new();
        if line.attempts > 0 {
            notes.push(format!("{} failed", line.attempts));
        }
        if line.interruptions > 0 {
            notes.push(format!("{} interrupted", line.interruptions));
        }
        if let Some(at) = line.next_attempt_at {
            notes.push(format!("next try {}", ahead(at, now)));
        }
        if let Some(error) = &line.last_error {
            notes.push(error.clone());
        }
        match line.status {
            Status::Baseline => notes.push("from before it counted".into()),
            Status::Refused => notes.push("its author may not act, or it is our own".into()),
            _ => {}
        }
        [
            line.key.to_string(),
            line.sink.clone().unwrap_or_else(|| "-".into()),
            line.status.word().to_string(),
            line.resolved_at.map_or_else(|| "-".into(), stamp),
            notes.join("; "),
        ]
    }));
    out.table(&table);
    for line in &sheet.deliveries {
        let Some(output) = &line.output else { continue };
        let all: Vec<&str> = output.trim_end_matches('\n').split('\n').collect();
        let first = all.len().saturating_sub(OUTPUT_LINES);
        out.line("");
        let sink = line.sink.as_deref().unwrap_or("-");
        let part = if first > 0 {
            format!(", its last {OUTPUT_LINES} lines")
        } else {
            String::new()
        };
        out.line(format_args!("output of {} in {sink}{part}:", line.key));
        for text in &all[first..] {
            out.line(format_args!("  {text}"));
        }
    }
}
