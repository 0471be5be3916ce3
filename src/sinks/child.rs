//! One process: started, fed, listened to, waited for. The only file that starts any.

use crate::engine::delivery::Delivery;
use crate::mutant;
use crate::os::pid::{Pid, PidFd};
use crate::os::process;
use crate::os::wait::For;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStdin, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a process is looked at where the kernel cannot say that it ended.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A command line that is only its program so far.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the room that starts processes")]
pub fn command(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}

/// A program of somebody else's, or one that starts such: it has the poller's environment
/// without what is the poller's alone, and without `secret_vars`, which hold tokens (R7.4).
#[must_use]
pub fn foreign(program: impl AsRef<OsStr>, secret_vars: &[String]) -> Command {
    let mut command = command(program);
    process::is_no_service(&mut command);
    for var in secret_vars {
        if !mutant::is("children-keep-secrets") {
            command.env_remove(var);
        }
    }
    command
}

/// Tells a command of the operator's which delivery it is about. The payload is not in
/// its environment (C056).
pub fn about(command: &mut Command, delivery: &Delivery) {
    command
        .env("IDEMPOLL_DELIVERY_ID", &delivery.id)
        .env("IDEMPOLL_EVENT", delivery.event.word())
        .env("IDEMPOLL_REF", delivery.item.to_string())
        .env("IDEMPOLL_ATTEMPT", delivery.attempt.to_string());
}

/// A span of time that passes only while it is watched passing.
///
/// Whoever times a process may be stopped together with it: a freezer, a
/// `SIGSTOP` to the group, a virtual machine that is paused. Then the process
/// was not slow, nobody ran (C024). So time is counted in slices: who uses this
/// waits no longer than [`Countdown::slice`] at once, and of a wait that took
/// far longer two slices are counted and no more.
#[derive(Debug)]
pub struct Countdown {
    left: Duration,
    slice: Duration,
    seen: Instant,
}

/// The longest slice: how often whoever times a long command wakes up for it.
const LONGEST_SLICE: Duration = Duration::from_secs(2);

/// The shortest: the kernel has other things to do as well.
const SHORTEST_SLICE: Duration = Duration::from_millis(10);

/// A span is cut into about this many, at least.
const SLICES: u32 = 32;

impl Countdown {
    /// Begins now.
    #[must_use]
    pub fn of(span: Duration) -> Countdown {
        Countdown {
            left: span,
            slice: (span / SLICES).clamp(SHORTEST_SLICE, LONGEST_SLICE),
            seen: now(),
        }
    }

    /// Counts what has passed since the last call; says whether nothing is left.
    pub fn is_over(&mut self) -> bool {
        self.count(now());
        self.left.is_zero()
    }

    /// The longest that may be waited until the next call. Never nothing, also when it is over.
    #[must_use]
    pub fn slice(&self) -> Duration {
        match self.left {
            Duration::ZERO => self.slice,
            left => self.slice.min(left),
        }
    }

    fn count(&mut self, at: Instant) {
        let passed = at.saturating_duration_since(self.seen);
        let counted = match mutant::is("gap-counts") {
            true => passed,
            // Twice, since a busy machine wakes us late.
            false => passed.min(self.slice * 2),
        };
        self.left = self.left.saturating_sub(counted);
        self.seen = at;
    }
}

/// Now, on the clock that only goes forward and stops while the machine sleeps.
#[expect(
    clippy::disallowed_methods,
    reason = "a process is timed where it is waited for"
)]
fn now() -> Instant {
    Instant::now()
}

/// A process we started. Dropping it leaves it alone; [`collect`] sees to its end.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    /// There until it is dropped.
    child: Option<Child>,
    end: Option<PidFd>,
}

/// Processes that were left running, to be collected when they have ended: a
/// poller that lives on must not pile up dead children.
static LEFT: Mutex<Vec<Child>> = Mutex::new(Vec::new());

fn left() -> MutexGuard<'static, Vec<Child>> {
    // Nothing that happens under it can leave the list half-changed.
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Collects those that were left running and have ended since; says how many still run.
pub fn collect() -> usize {
    let mut left = left();
    left.retain_mut(|child| status(child).is_none());
    left.len()
}

/// Collects a child if it has ended. `Some(None)`: it has, and nobody knows how. To be
/// interrupted says nothing of it.
fn status(child: &mut Child) -> Option<Option<ExitStatus>> {
    match child.try_wait() {
        Ok(status) => status.map(Some),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => None,
        Err(_) => Some(None),
    }
}

impl Process {
    /// Starts it; its standard input comes back separately if it is a pipe.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> io::Result<(Process, Option<ChildStdin>)> {
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        // Nobody but us collects it, so the pid is still its own.
        let end = Pid::new(child.id()).and_then(|pid| PidFd::open(pid).ok());
        let process = Process {
            pid: child.id(),
            child: Some(child),
            end,
        };
        Ok((process, stdin))
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What to wait for to see it end, and how long at most.
    #[must_use]
    pub fn ending(&self) -> (Option<(BorrowedFd<'_>, For)>, Option<Duration>) {
        match &self.end {
            Some(end) => (Some((end.as_fd(), For::Reading)), None),
            None => (None, Some(LOOK_AGAIN)),
        }
    }

    /// Collects it if it has ended. `Some(None)`: it has, and nobody knows how.
    pub fn ended(&mut self) -> Option<Option<ExitStatus>> {
        status(self.child.as_mut()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take()
            && status(&mut child).is_none()
        {
            left().push(child);
        }
    }
}

/// Bytes on their way into a pipe.
#[derive(Debug)]
pub struct Feed<'a> {
    pipe: Option<ChildStdin>,
    rest: &'a [u8],
}

impl<'a> Feed<'a> {
    /// Will feed `bytes` into `pipe` and then close it.
    #[must_use]
    pub fn new(pipe: Option<ChildStdin>, bytes: &'a [u8]) -> Feed<'a> {
        let pipe = pipe.filter(|_| !bytes.is_empty());
        Feed { pipe, rest: bytes }
    }

    /// What to wait for before the next [`Feed::push`]; `None` when it is over.
    #[must_use]
    pub fn ready(&self) -> Option<(BorrowedFd<'_>, For)> {
        self.pipe.as_ref().map(|p| (p.as_fd(), For::Writing))
    }

    /// Writes as much as a pipe with room takes without waiting. A reader that
    /// went away ends it: not everyone reads what they are given (C072).
    pub fn push(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        // A pipe that polls as writable has room for a page.
        match pipe.write(&self.rest[..self.rest.len().min(4096)]) {
            Ok(n) => self.rest = &self.rest[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.pipe = None,
        }
        if self.rest.is_empty() {
            self.pipe = None;
        }
    }

    /// Whether all of it was written.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.rest.is_empty()
    }
}

/// What is kept of an output: its beginning and its end, in bounded memory.
#[derive(Debug, Default)]
pub struct Output {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: u64,
}

/// How much is kept of the beginning, and of the end.
const KEPT: usize = 32 * 1024;

impl Output {
    /// Reads once from a pipe that has something. Says whether there can be more.
    pub fn take_from(&mut self, pipe: &mut impl Read) -> bool {
        let mut buffer = [0; 16 * 1024];
        match pipe.read(&mut buffer) {
            Ok(0) => false,
            Ok(n) => {
                self.add(&buffer[..n]);
                true
            }
            Err(e) => e.kind() == io::ErrorKind::Interrupted,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        let (head, tail) = bytes.split_at(bytes.len().min(KEPT - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(tail);
        let excess = self.tail.len().saturating_sub(KEPT);
        self.tail.drain(..excess);
        self.left_out += excess as u64;
    }

    /// The text, and how many bytes of it were left out in the middle. What is not UTF-8 is replaced.
    #[must_use]
    pub fn text(mut self) -> (String, u64) {
        let tail = self.tail.make_contiguous();
        if self.left_out == 0 {
            self.head.extend_from_slice(tail);
            return (String::from_utf8_lossy(&self.head).into_owned(), 0);
        }
        let text = format!(
            "{}\n[{} bytes left out]\n{}",
            String::from_utf8_lossy(&self.head),
            self.left_out,
            String::from_utf8_lossy(tail)
        );
        (text, self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C024. Given a countdown whose owner is not run for an hour, when it looks again, then two
    /// slices of that count; and time that is watched counts whole, to the last.
    #[test]
    fn c024_a_gap_counts_for_two_slices() {
        let mut hour = Countdown::of(Duration::from_secs(3_600));
        let mut at = hour.seen;
        let mut after = |countdown: &mut Countdown, ms| {
            at += Duration::from_millis(ms);
            countdown.count(at);
            countdown.left
        };
        assert_eq!(hour.slice(), Duration::from_secs(2));
        assert_eq!(after(&mut hour, 1_500), Duration::from_millis(3_598_500));
        assert_eq!(
            after(&mut hour, 3_600_000),
            Duration::from_millis(3_594_500)
        );
        for _ in 0..1_797 {
            after(&mut hour, 2_000);
        }
        assert_eq!(hour.slice(), Duration::from_millis(500));
        assert_eq!(after(&mut hour, 500), Duration::ZERO);
        // However short or long, there is something to wait for and an end.
        assert_eq!(hour.slice(), Duration::from_secs(2));
        let short = Countdown::of(Duration::from_millis(5));
        assert_eq!(short.slice(), Duration::from_millis(5));
        assert!(Countdown::of(Duration::ZERO).is_over());
        assert_eq!(Countdown::of(Duration::MAX).slice(), LONGEST_SLICE);
    }

    #[test]
    fn an_output_keeps_its_beginning_and_its_end() {
        let mut short = Output::default();
        short.add(b"one\n");
        short.add("zwei \u{e9}".as_bytes());
        assert_eq!(short.text(), ("one\nzwei \u{e9}".to_string(), 0));

        let mut long = Output::default();
        long.add(b"first");
        for _ in 0..100 {
            long.add(&[b'x'; 1000]);
        }
        long.add(b"last");
        let (text, left_out) = long.text();
        assert_eq!(left_out, 100_009 - 2 * KEPT as u64);
        assert!(text.starts_with("firstx") && text.ends_with("xlast"));
        assert!(text.contains(&format!("x\n[{left_out} bytes left out]\nx")));

        // C054: a cut within a character is no panic.
        let mut cut = Output::default();
        cut.add("\u{1f600}".repeat(30_000).as_bytes());
        assert!(cut.text().0.contains("bytes left out"));
    }

    #[test]
    fn an_output_of_exactly_what_is_kept_is_whole() {
        let mut all = Output::default();
        all.add(&[b'y'; 2 * KEPT]);
        assert_eq!(all.text(), ("y".repeat(2 * KEPT), 0));
    }
}
