//! The signals that ask for an end.
//!
//! The first of `SIGTERM`, `SIGINT` and `SIGHUP` asks for a graceful stop, the
//! second ends the process, wherever it hangs, unless it comes at the same moment. What runs here when one comes
//! does nothing but raise a flag: anything more (a log line, say) could fail
//! or wait, and then the signal would be lost.
//!
//! `SIGPIPE` stays ignored, as Rust's start-up leaves it, so that a closed
//! stdout is an error to handle. None of this is handed on: what we start
//! begins with every signal at its default meaning (`os/process.rs`).

use super::clock::Mono;
use crate::error::Error;
use crate::exit::Exit;
use crate::mutant;
use crate::os::signals::{self, Signal};
use crate::os::wait;
use crate::os::wake::Wake;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Signals that come closer together than this are one. A closed terminal sends `SIGHUP` twice
/// (the kernel and the shell), `timeout` signals its child and then the group, systemd follows a
/// `SIGTERM` with a `SIGHUP` if it is told to: none of them means "at once".
const ONE_ASK: Duration = Duration::from_millis(200);

/// How long the process may take to end by itself after the second signal.
const GRACE: Duration = Duration::from_secs(1);

/// What was asked for so far.
#[derive(Debug, Clone)]
pub struct StopAsk {
    /// Raised by the first signal: finish what is in hand, begin nothing.
    pub stop: Arc<Wake>,
    /// Raised by the second: end at once with [`Exit::Interrupted`]. The
    /// process is ended a second later if it has not done so.
    pub now: Arc<Wake>,
}

impl StopAsk {
    /// Flags that no signal is tied to, not yet raised.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<StopAsk> {
        Ok(StopAsk {
            stop: Arc::new(Wake::new()?),
            now: Arc::new(Wake::new()?),
        })
    }
}

/// Has the signals raise flags from now on. A `SIGHUP` that is ignored (the
/// parent was `nohup`) stays so. A signal the parent held back is not any more,
/// and one that waited is seen at once: what asks a poller to end must reach
/// it, whoever started it. Once per process, before the lock is taken, so that
/// no signal can end a poller that has begun.
///
/// # Errors
/// When it was done before, or when the system refuses.
pub fn install() -> Result<StopAsk, Error> {
    let failed = |e: &dyn std::fmt::Display| Error::new("cannot handle signals", e);
    let ask = StopAsk::new().map_err(|e| failed(&e))?;
    let handler = on_signal(ask.clone());
    signals::expect_children();
    // Where files may not grow (`ulimit -f`), a write fails and is dealt with like a full disk.
    signals::ignore(Signal::FileSize).map_err(|e| failed(&e))?;
    let ignored = signals::is_ignored(Signal::Hup).map_err(|e| failed(&e))?;
    if !ignored || mutant::is("hup-not-ignored") {
        ctrlc::set_handler(handler).map_err(|e| failed(&e))?;
        signals::hold_back_none();
        return Ok(ask);
    }
    // `ctrlc` takes SIGHUP whatever was done with it before. It is held back
    // until it is ignored again, so that not even one that comes just now counts.
    signals::held_back(Signal::Hup, || {
        ctrlc::set_handler(handler).map_err(|e| failed(&e))?;
        signals::ignore(Signal::Hup).map_err(|e| failed(&e))
    })
    .map_err(|e| failed(&e))??;
    signals::hold_back_none();
    Ok(ask)
}

/// What `ctrlc`'s thread does for each signal.
fn on_signal(ask: StopAsk) -> impl FnMut() + Send + 'static {
    let mut asked: Option<Mono> = None;
    move || {
        let now = Mono::now();
        let first = *asked.get_or_insert(now);
        if !ask.stop.raised() {
            ask.stop.raise();
            return;
        }
        if now.since(first) < ONE_ASK && !mutant::is("two-signals-are-two-asks") {
            return;
        }
        if mutant::is("second-signal-ignored") {
            return;
        }
        ask.now.raise();
        let end = Mono::now().plus(GRACE);
        while !end.passed() {
            wait::pause(end.left());
        }
        end_process();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the second signal ends the process wherever its other threads hang"
)]
fn end_process() -> ! {
    std::process::exit(i32::from(Exit::Interrupted.code()))
}

#[cfg(test)]
mod tests {
    use super::super::stand_in::{Scratch, StandIn, command};
    use crate::os::pid::{Pid, kill};
    use crate::os::signals::Signal;
    use crate::os::wait;

    /// The bit of `SIGHUP` in a line of `/proc/PID/status`.
    fn hup_in(pid: Pid, line: &str) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
        let mask = status.lines().find_map(|l| l.strip_prefix(line));
        let mask = u64::from_str_radix(mask.expect("every kernel has it").trim(), 16);
        mask.expect("it is hexadecimal") & 1 != 0
    }

    /// R2.6, C088, C090. Given a poller, when it gets any of the three signals,
    /// then it ends gracefully, with the lock free and the pidfile gone.
    #[test]
    fn each_of_the_three_signals_asks_for_a_graceful_end() {
        for signal in [Signal::Term, Signal::Int, Signal::Hup] {
            let scratch = Scratch::new();
            let poller = StandIn::ready("poll", &scratch);
            kill(poller.pid(), signal).expect("it is our child");
            assert_eq!(poller.end().0, Some(0), "{signal:?}");
            assert!(!scratch.pidfile().exists(), "{signal:?}");
        }
    }

    /// R2.6, C089. Given a poller that does not end, when a second signal
    /// comes, then the process ends with 130 although no thread of it cooperates.
    #[test]
    fn a_second_signal_ends_a_poller_that_hangs() {
        let scratch = Scratch::new();
        let mut poller = StandIn::ready("deaf", &scratch);
        kill(poller.pid(), Signal::Int).expect("it is our child");
        poller.until("asked");
        wait::pause(super::ONE_ASK);
        kill(poller.pid(), Signal::Term).expect("it is our child");
        assert_eq!(poller.end().0, Some(130));
    }

    /// R2.6. Given signals that come at the same moment, when a poller gets them, then they are one
    /// request: it ends gracefully.
    #[test]
    fn signals_at_the_same_moment_are_one_request() {
        let scratch = Scratch::new();
        let poller = StandIn::ready("poll", &scratch);
        for signal in [Signal::Term, Signal::Hup, Signal::Int, Signal::Term] {
            // It may have ended by now.
            let _ = kill(poller.pid(), signal);
        }
        assert_eq!(poller.end().0, Some(0));
        assert!(!scratch.pidfile().exists());
    }

    /// R2.6. Given a poller that watches for it, when the second signal comes,
    /// then it is told at once and ends by itself.
    #[test]
    fn a_second_signal_is_told_before_it_is_enforced() {
        let scratch = Scratch::new();
        let mut poller = StandIn::ready("hasty", &scratch);
        kill(poller.pid(), Signal::Term).expect("it is our child");
        poller.until("asked");
        wait::pause(super::ONE_ASK);
        kill(poller.pid(), Signal::Hup).expect("it is our child");
        assert_eq!(poller.end().0, Some(130));
        // Ended by itself, so its lock was dropped and took the pidfile along.
        assert!(!scratch.pidfile().exists());
    }

    /// R2.6, C090. Given a parent that ignores `SIGHUP` as `nohup` does, when
    /// one comes, then nothing happens, and a `SIGTERM` still asks for the end.
    #[test]
    fn a_hang_up_the_parent_ignored_stays_ignored() {
        let scratch = Scratch::new();
        let nohup = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"];
        let poller = StandIn::ready_from(command("poll", &scratch, &nohup));
        assert!(hup_in(poller.pid(), "SigIgn:"));
        assert!(!hup_in(poller.pid(), "SigBlk:"));
        kill(poller.pid(), Signal::Hup).expect("it is our child");
        kill(poller.pid(), Signal::Term).expect("it is our child");
        assert_eq!(poller.end().0, Some(0));

        let scratch = Scratch::new();
        let poller = StandIn::ready("poll", &scratch);
        assert!(!hup_in(poller.pid(), "SigIgn:"));
        assert!(hup_in(poller.pid(), "SigCgt:"));
    }
}
