//! Being pid 1, as in a container whose only program this is.
//!
//! The kernel treats the first process of a pid namespace unlike any other, in
//! two ways that do not suit a poller. Whatever loses its parent becomes its
//! child, so all that commands leave behind stays a zombie unless pid 1
//! collects it, and a poller that collected any child would take the exit codes
//! of its own away from itself. And a signal whose meaning is still the default
//! is not delivered to it but dropped, so one that comes early would be lost.
//!
//! So it divides itself, as small inits do, before it has any thread. The
//! child is the poller. Pid 1 does nothing but wait for signals, all of which
//! it holds back: those held back are kept for it, dropped are only the others.
//! It passes on what asks for an end, collects every child, and when the poller
//! has ended, it ends with the poller's exit code. The child has a session of
//! its own: Ctrl-C on a container's terminal reaches pid 1, which passes it on,
//! and would otherwise reach the poller twice, which means "at once".
//!
//! The end of pid 1 is the end of its namespace: the kernel kills all that is
//! left there, running commands included. Nothing can be done about that here;
//! `docs/supervision.md` tells how to live with it.

use super::pid::Pid;
use super::proc::Stat;
use super::{check, signals, wait};
use crate::mutant;
use std::io;
use std::time::Duration;

/// How long pid 1 outlives the poller for whoever came in from outside, in looks of [`LOOK`].
const LINGER: u32 = 100;

/// Between two such looks.
const LOOK: Duration = Duration::from_millis(10);

/// Divides this process if it is pid 1: the one that returns is the poller, and
/// pid 1 stays in here until that has ended. The poller holds back every signal
/// as well, until it has said what each means to it and calls
/// [`signals::hold_back_none`]. Does nothing in any other process. To be called
/// while there is only one thread.
///
/// # Errors
/// When there can be no second process. Then this one goes on as it is.
pub fn divide() -> io::Result<()> {
    if Pid::own().get() != 1 {
        return Ok(());
    }
    // Ignored, it would have the kernel collect our children, exit codes and all.
    signals::to_default(libc::SIGCHLD);
    // Before there is a child: what comes from here on is kept, and passed on later.
    let before = signals::hold_back_all()?;
    // SAFETY: there is one thread, so the child is whole; fork takes nothing.
    match check(unsafe { libc::fork() }) {
        Err(e) => {
            signals::hold_back_only(&before);
            Err(e)
        }
        Ok(0) => {
            if !mutant::is("pid1-shares-its-terminal") {
                // SAFETY: setsid takes nothing; a child just forked leads no group, so it can.
                unsafe { libc::setsid() };
            }
            Ok(())
        }
        Ok(poller) => see_through(poller),
    }
}

/// What pid 1 does for the rest of its life.
fn see_through(poller: libc::pid_t) -> ! {
    let code = loop {
        if let Some(code) = collect(poller) {
            break code;
        }
        let signal = signals::next();
        // The rest asks for nothing that a poller knows.
        if signals::ASKS_TO_END.contains(&signal) {
            // SAFETY: kill takes two numbers; the child is ours and not collected, so the number is its own.
            unsafe { libc::kill(poller, signal) };
        }
    };
    // An `idempoll stop` from outside must live to say that it worked.
    for _ in 0..LINGER {
        if !is_visited() {
            break;
        }
        wait::pause(LOOK);
        collect(poller);
    }
    // SAFETY: _exit takes a number. Nothing was printed here that were still to be flushed.
    unsafe { libc::_exit(code) }
}

/// Collects every child that has ended; the exit code once the poller is among them.
fn collect(poller: libc::pid_t) -> Option<libc::c_int> {
    let whom = match mutant::is("pid1-does-not-reap") {
        true => poller,
        false => -1,
    };
    let mut ended = None;
    loop {
        let mut status = 0;
        // SAFETY: `status` is an int that outlives the call.
        let pid = unsafe { libc::waitpid(whom, &raw mut status, libc::WNOHANG) };
        match pid {
            // None has ended, or there is none: the one we began with has been seen then.
            0 | -1 => return ended,
            pid if pid == poller => ended = Some(code_of(status)),
            _ => {}
        }
    }
}

/// As shells have it: the exit status, or 128 and the signal.
fn code_of(status: libc::c_int) -> libc::c_int {
    match libc::WIFSIGNALED(status) {
        true => 128 + libc::WTERMSIG(status),
        false => libc::WEXITSTATUS(status),
    }
}

/// Whether a process is here that was not begun here: its parent, outside, cannot be seen and reads 0.
fn is_visited() -> bool {
    Stat::all().any(|s| s.parent == 0 && s.pid != Pid::own() && !s.zombie)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pid_1_divides() {
        let before = Pid::own();
        assert!(divide().is_ok());
        assert_eq!(Pid::own(), before);
    }

    #[test]
    fn an_exit_code_is_as_shells_have_it() {
        // The kernel's encoding: the exit status in the second byte, the signal in the first.
        assert_eq!(code_of(3 << 8), 3);
        assert_eq!(code_of(9), 137);
        assert_eq!(code_of(0), 0);
    }
}
