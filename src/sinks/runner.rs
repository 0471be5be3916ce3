//! The process around one command: `idempoll __run DELIVERY-ID`.
//!
//! The poller starts itself again as a runner, which outlives it (R6.3). The
//! runner is given the receipt, created and locked, as its standard output,
//! the receipt's directory as its working directory, and on its standard
//! input one line of JSON (the order) and then the payload. It starts the
//! command only once it has all of that: an input that ends early means that
//! the poller died, and then nothing was begun. It writes down what became
//! of the command, and ends; with it goes the lock.
//!
//! A runner does not end when it is asked to (a shutdown, or somebody who signals everything
//! called idempoll): it sees its command through. A command that fails after its runner was
//! asked to end as well did not fail by itself; the machine went down under it. Nothing is
//! written then, and it counts as interrupted.
//!
//! The command inherits neither the receipt nor any other descriptor: a daemon
//! it leaves behind must not look like a run that never ends.

use super::child::{self, Countdown, Feed, Output, Process};
use super::receipt::{self, Accepted, Ended, Line, Word};
use crate::engine::time::Time;
use crate::mutant;
use crate::os::pid::Group;
use crate::os::proc::{PidSpace, Stat};
use crate::os::process;
use crate::os::signals::{self, Signal};
use crate::os::wait::{self, For};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

/// The word on the command line that makes a runner of this program.
pub const VERB: &str = "__run";

/// The exit code of a runner that did not start its command; `EX_TEMPFAIL`.
pub(super) const NOT_BEGUN: u8 = 75;

/// The exit code of a command that asks to be tried again later; `EX_TEMPFAIL`.
const NOT_NOW: i32 = 75;

/// From asking a command that timed out to end until it is ended.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// How often the group of a command that timed out is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The most an order may be long; a command line is far shorter.
const LONGEST_ORDER: u64 = 4 << 20;

/// What to run. Poller and runner are the same program, so this has no version.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// The delivery id.
    pub delivery_id: String,
    /// Which try this is.
    pub attempt: u32,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The directory it runs in.
    pub workdir: OsString,
    /// How long it may run, in milliseconds.
    pub timeout_ms: u64,
    /// How many bytes of payload follow.
    pub payload_bytes: u64,
}

/// Runs the runner; `main` calls it before it looks at the command line for
/// anything else.
#[must_use]
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // There is nobody to tell: stderr is closed, and the receipt could not be written.
        Err(End::NotBegun) => ExitCode::from(NOT_BEGUN),
        Err(End::Unrecorded) => ExitCode::FAILURE,
    }
}

/// How a runner ends other than well.
enum End {
    /// The command was not started.
    NotBegun,
    /// It ended, and the receipt could not be written.
    Unrecorded,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::NotBegun
    }
}

fn run() -> Result<(), End> {
    if !mutant::is("runner-ends-when-asked") {
        signals::hold_back_requests_to_end()?;
    }
    signals::ignore(Signal::FileSize)?;
    process::close_on_exec_from_3();
    let receipt = take_stdout()?;
    let dir = File::open(".")?;
    let mut input = BufReader::new(io::stdin().lock());
    let order = read_order(&mut input)?;
    let payload = read_payload(&mut input, order.payload_bytes)?;

    // Where the receipt could not be locked, this process wrote so before it was a runner.
    if !receipt::is_accepted(&receipt) {
        accept(&order, &receipt)?;
    }

    let ended = match enter_and_start(&order, &receipt)? {
        Ok(begun) => begun.see_through(&payload, Duration::from_millis(order.timeout_ms)),
        Err(reason) => Ended::failed(reason),
    };
    if ended.outcome == Word::Failed
        && signals::was_asked_to_end()
        && !mutant::is("shutdown-is-failure")
    {
        return Err(End::Unrecorded);
    }
    record(&receipt, &dir, ended).map_err(|_| End::Unrecorded)
}

/// Writes the receipt's first line.
fn accept(order: &Order, receipt: &File) -> Result<(), End> {
    let me = Stat::of_self().ok_or(End::NotBegun)?;
    let here = PidSpace::here().ok_or(End::NotBegun)?;
    let accepted = Accepted {
        version: 1,
        delivery_id: order.delivery_id.clone(),
        attempt: order.attempt,
        runner: receipt::Process {
            pid: me.pid.get(),
            start: me.start_time,
        },
        boot_id: here.boot_id,
        pid_ns: here.pid_ns,
    };
    Ok(Line::Accepted(accepted).append_to(receipt)?)
}

/// Takes the receipt away from where the command would inherit it.
#[expect(clippy::disallowed_methods, reason = "nothing is kept in /dev/null")]
fn take_stdout() -> io::Result<File> {
    let receipt = io::stdout().as_fd().try_clone_to_owned()?;
    let null = File::options().write(true).open("/dev/null")?;
    process::become_stdout(null.as_fd())?;
    Ok(File::from(receipt))
}

fn read_order(input: &mut impl BufRead) -> Result<Order, End> {
    let mut line = Vec::new();
    input.take(LONGEST_ORDER).read_until(b'\n', &mut line)?;
    let order: Order = serde_json::from_slice(&line).map_err(|_| End::NotBegun)?;
    if !line.ends_with(b"\n") || order.command.is_empty() {
        return Err(End::NotBegun);
    }
    Ok(order)
}

fn read_payload(input: &mut impl Read, bytes: u64) -> Result<Vec<u8>, End> {
    let mut payload = Vec::new();
    input.take(bytes).read_to_end(&mut payload)?;
    if payload.len() as u64 == bytes {
        Ok(payload)
    } else {
        Err(End::NotBegun)
    }
}

/// A command that was started.
struct Begun {
    process: Process,
    stdin: Option<std::process::ChildStdin>,
    output: PipeReader,
    timed_out: bool,
}

/// Starts the command. `Ok(Err(_))` is why it cannot be: a failed try.
fn enter_and_start(order: &Order, receipt: &File) -> Result<Result<Begun, String>, End> {
    let failed = |doing: String, e| Ok(Err(crate::error::Error::new(doing, e).to_string()));
    // Not left to the child: its errors would read as the command's.
    if let Err(e) = std::env::set_current_dir(&order.workdir) {
        return failed(
            format!("cannot enter {}", Path::new(&order.workdir).display()),
            e,
        );
    }
    let (output, to_output) = io::pipe()?;
    let program = &order.command[0];
    let mut command = child::command(program);
    command
        .args(&order.command[1..])
        .stdin(Stdio::piped())
        // One pipe for both, so that their order is kept.
        .stdout(to_output.try_clone()?)
        .stderr(to_output);
    process::lead_a_group(&mut command);
    let (before, after) = started_line();
    process::announce(
        &mut command,
        OwnedFd::from(receipt.try_clone()?),
        &before,
        &after,
    );
    match Process::start(&mut command) {
        Ok((process, stdin)) => Ok(Ok(Begun {
            process,
            stdin,
            output,
            timed_out: false,
        })),
        // Announced, so all but the command itself was fine.
        Err(e) if receipt::is_started(receipt) => failed(format!("cannot start {program}"), e),
        Err(_) => Err(End::NotBegun),
    }
}

/// The receipt's second line, around the command's own pid and start.
fn started_line() -> (String, String) {
    let before = format!(
        r#"{{"state":"started","started_at":"{}","command":"#,
        wall()
    );
    (before, "}".to_string())
}

impl Begun {
    /// Feeds the command and listens to it until it has ended, or has been ended.
    ///
    /// Its end counts, not the end of its output: a process it leaves behind may
    /// hold that open for ever (C073).
    fn see_through(mut self, payload: &[u8], timeout: Duration) -> Ended {
        let mut feed = Feed::new(self.stdin.take(), payload);
        let mut output = Output::default();
        let mut listening = true;
        let mut allowed = Countdown::of(timeout);
        let status = loop {
            if let Some(status) = self.process.ended() {
                break status;
            }
            if allowed.is_over() {
                self.timed_out = true;
                break self.end(&mut output);
            }
            let (end, look_again) = self.process.ending();
            let said = listening.then(|| (self.output.as_fd(), For::Reading));
            let wait = look_again.map_or(allowed.slice(), |again| again.min(allowed.slice()));
            let [_, hears, feeds] = wait::ready([end, said, feed.ready()], Some(wait));
            if hears {
                listening = output.take_from(&mut self.output);
            }
            if feeds {
                feed.push();
            }
        };
        self.drain(&mut output);
        self.sum_up(status, output, timeout)
    }

    /// Ends a command that timed out, with all of its process group: they are
    /// asked first, and after [`GRACE`] they are not asked any more.
    fn end(&mut self, output: &mut Output) -> Option<ExitStatus> {
        let group = Group::led_by(self.process.pid())?;
        group.ask_to_end();
        let mut grace = Countdown::of(GRACE);
        let mut status = None;
        let mut listening = true;
        loop {
            status = status.or_else(|| self.process.ended());
            // While anyone is in the group, its number is not given away.
            if status.is_some() && !group.exists() {
                break;
            }
            if grace.is_over() {
                group.end();
                if status.is_some() {
                    break;
                }
            }
            let said = listening.then(|| (self.output.as_fd(), For::Reading));
            if let [true] = wait::ready([said], Some(LOOK_AGAIN.min(grace.slice()))) {
                listening = output.take_from(&mut self.output);
            }
        }
        status.flatten()
    }

    /// Takes what the command has said and nobody has read yet. Bounded, since
    /// what it leaves behind may go on talking.
    fn drain(&mut self, output: &mut Output) {
        const PIPE_AT_MOST: usize = 1 << 20;
        const READ_AT_LEAST: usize = 4096;
        for _ in 0..PIPE_AT_MOST / READ_AT_LEAST {
            let [more] = wait::ready(
                [Some((self.output.as_fd(), For::Reading))],
                Some(Duration::ZERO),
            );
            if !more || !output.take_from(&mut self.output) {
                break;
            }
        }
    }

    fn sum_up(self, status: Option<ExitStatus>, output: Output, timeout: Duration) -> Ended {
        let exit = status.and_then(|s| s.code());
        let signal = status.and_then(|s| s.signal());
        let (outcome, reason) = match (exit, signal) {
            _ if self.timed_out => (
                Word::Failed,
                format!("timed out after {} s", timeout.as_secs_f64()),
            ),
            (Some(0), _) => (Word::Delivered, String::new()),
            (Some(NOT_NOW), _) => (
                Word::Deferred,
                "the command says not now (exit status 75)".to_string(),
            ),
            (Some(code), _) => (Word::Failed, format!("exit status {code}")),
            (None, Some(signal)) => (Word::Failed, format!("killed by signal {signal}")),
            (None, None) => (Word::Failed, "its exit status is unknown".to_string()),
        };
        let (output, output_left_out) = output.text();
        Ended {
            exit,
            signal,
            output,
            output_left_out,
            ..Ended::new(outcome, reason)
        }
    }
}

impl Ended {
    fn new(outcome: Word, reason: String) -> Ended {
        Ended {
            ended_at: wall(),
            outcome,
            reason,
            exit: None,
            signal: None,
            output: String::new(),
            output_left_out: 0,
        }
    }

    fn failed(reason: String) -> Ended {
        Ended::new(Word::Failed, reason)
    }
}

/// Writes the last line and makes it durable: one sync for the file, one for
/// its name in the directory. If there is no room (or the disk failed), it is
/// written anew without the output, which mostly fits into the block that the
/// lines before it have already.
fn record(receipt: &File, dir: &File, mut ended: Ended) -> io::Result<()> {
    let before = receipt.metadata()?.len();
    let write = |ended: &Ended| {
        Line::Ended(ended.clone()).append_to(receipt)?;
        receipt.sync_all()?;
        dir.sync_all()
    };
    write(&ended).or_else(|_| {
        receipt.set_len(before)?;
        ended.output_left_out += ended.output.len() as u64;
        ended.output.clear();
        write(&ended)
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "a runner is its own process, with no poller to tell it the time"
)]
fn wall() -> Time {
    Time::from(SystemTime::now())
}
