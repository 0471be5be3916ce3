//! Signals by name, and what happens when one comes.

use super::check;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// The signals idempoll has to do with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// `SIGTERM`: please end.
    Term,
    /// `SIGINT`: Ctrl-C.
    Int,
    /// `SIGHUP`: the terminal is gone.
    Hup,
    /// `SIGPIPE`: nobody reads any more.
    Pipe,
    /// `SIGKILL`: end, now.
    Kill,
}

impl Signal {
    /// The kernel's number.
    pub(super) fn number(self) -> libc::c_int {
        match self {
            Signal::Term => libc::SIGTERM,
            Signal::Int => libc::SIGINT,
            Signal::Hup => libc::SIGHUP,
            Signal::Pipe => libc::SIGPIPE,
            Signal::Kill => libc::SIGKILL,
        }
    }
}

/// Whether this process ignores the signal.
///
/// # Errors
/// What `sigaction` reports.
pub fn is_ignored(signal: Signal) -> io::Result<bool> {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: no new action is given; `now` has room for the old one.
    check(unsafe { libc::sigaction(signal.number(), ptr::null(), now.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the kernel filled it in.
    let now = unsafe { now.assume_init() };
    Ok(now.sa_sigaction == libc::SIG_IGN)
}

/// Has this process ignore the signal from now on; a pending one is dropped.
///
/// # Errors
/// What `sigaction` reports.
pub fn ignore(signal: Signal) -> io::Result<()> {
    // SAFETY: a sigaction of zeros is a valid one: no handler, no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = libc::SIG_IGN;
    // SAFETY: `action` is whole and outlives the call; the old one is not asked for.
    check(unsafe { libc::sigaction(signal.number(), &raw const action, ptr::null_mut()) }).map(drop)
}

/// Gives every signal its default meaning, but for `SIGPIPE`, which stays as it
/// is (std sets it back for what it starts). An ignored `SIGCHLD`, inherited
/// from a careless parent, would cost us the exit codes of our children.
pub fn all_to_default() {
    for signal in 1..=64 {
        if !matches!(signal, libc::SIGKILL | libc::SIGSTOP | libc::SIGPIPE) {
            // SAFETY: SIG_DFL installs no handler of ours; a refused number changes nothing.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

/// Runs `f` while the signal is held back from this thread. One that comes
/// meanwhile is seen afterwards, unless it is ignored by then.
///
/// # Errors
/// What `pthread_sigmask` reports; then `f` did not run.
pub fn held_back<T>(signal: Signal, f: impl FnOnce() -> T) -> io::Result<T> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset fills `set` in before sigaddset and pthread_sigmask
    // read it; the number is a valid signal; `before` has room for the old mask.
    let answer = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal.number());
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr())
    };
    if answer != 0 {
        return Err(io::Error::from_raw_os_error(answer));
    }
    let result = f();
    // SAFETY: `before` was filled in by the successful call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R2.6. Rust's start-up ignores `SIGPIPE`, so a closed stdout is an error and not an end.
    #[test]
    fn a_broken_pipe_does_not_end_this_process_and_a_sigterm_would() {
        assert!(is_ignored(Signal::Pipe).expect("sigaction works"));
        assert!(!is_ignored(Signal::Term).expect("sigaction works"));
    }
}
