//! One process: started, fed, listened to, waited for. The only file that starts any.

use crate::os::pid::{Pid, PidFd};
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

/// Now, on the clock that only goes forward (and stops while the machine
/// sleeps, so that a deadline may come late but never early).
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "a process is timed where it is waited for"
)]
pub fn now() -> Instant {
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

/// Collects those that were left running and have ended since.
pub fn collect() {
    left().retain_mut(|child| matches!(child.try_wait(), Ok(None)));
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
        let child = self.child.as_mut()?;
        child.try_wait().map_or(Some(None), |s| s.map(Some))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take()
            && matches!(child.try_wait(), Ok(None))
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
