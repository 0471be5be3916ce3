//! `idempoll start`: polls and delivers until it is stopped, and says on
//! standard error what it does.

use super::args::{Global, LogFormat, Start, Verbosity};
use super::events;
use super::out::{self, Out, Running};
use super::when::count;
use crate::config::{self, Env, Overrides, Watched};
use crate::daemon::lifecycle::{Report, start};
use crate::daemon::poll::Voice;
use crate::engine::entry::{Entry, Level};
use crate::error::Error;
use crate::exit::Exit;

/// Runs the poller. With `--once`, the answer is a line that sums up the cycle.
pub(super) fn run(global: &Global, args: &Start, out: &mut Out) -> Result<Exit, Error> {
    let overrides = Overrides {
        interval: args.interval,
        max_retries: args.max_retries,
        ..super::overrides(global)
    };
    let env = Env::of_process()?;
    let file = config::find(global.config.as_deref(), &env)?;
    let watched = Watched::open(file, overrides, env)?;
    let mut narrator = Narrator::new(global);
    let report = start(watched, args.once, &mut narrator)?;
    if args.once {
        out.line(summary(&report));
        for complaint in &report.complaints {
            narrator.stderr.say(complaint);
        }
    }
    Ok(report.exit)
}

/// `cycle: 3 items, 2 opened, 1 comment, 0 closed, 0 failed`.
fn summary(report: &Report) -> String {
    format!(
        "cycle: {}, {} opened, {}, {} closed, {} failed",
        count(report.items as u64, "item"),
        report.totals.opened,
        count(report.totals.comments, "comment"),
        report.totals.closed,
        report.totals.failed
    )
}

/// Tells on standard error what the poller does.
pub(super) struct Narrator {
    stderr: Running,
    format: LogFormat,
    /// Entries below this level are not told.
    from: Level,
}

impl Narrator {
    /// As the flags want it.
    pub(super) fn new(global: &Global) -> Narrator {
        let stderr = Running::stderr();
        let by_itself = if stderr.is_terminal() {
            LogFormat::Text
        } else {
            LogFormat::Json
        };
        Narrator {
            stderr,
            format: global.log_format.unwrap_or(by_itself),
            from: match global.verbosity {
                Verbosity::Quiet => Level::Warn,
                Verbosity::Normal => Level::Info,
                Verbosity::Verbose => Level::Debug,
            },
        }
    }
}

impl Voice for Narrator {
    fn entry(&mut self, entry: &Entry) {
        if entry.level < self.from {
            return;
        }
        if let Some(lost) = out::lost() {
            let reason = format!(
                "standard error did not take {lost} of the entries before this one; the event log has them"
            );
            self.tell(&Entry::new(entry.ts, "poller.warning").with("reason", reason));
        }
        self.tell(entry);
    }

    fn progress(&mut self, text: &str) {
        if self.format == LogFormat::Text && self.from < Level::Warn {
            self.stderr.set(text);
        }
    }

    fn complain(&mut self, error: &Error) {
        self.stderr.say(format_args!("idempoll start: {error}"));
    }
}

impl Narrator {
    fn tell(&mut self, entry: &Entry) {
        match self.format {
            LogFormat::Text => self.stderr.say(events::line(entry)),
            LogFormat::Json => {
                if let Ok(json) = serde_json::to_string(entry) {
                    self.stderr.say_json(&json);
                }
            }
        }
    }
}
