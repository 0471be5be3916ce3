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
    /// `SIGXFSZ`: a file may not grow further. Ignored, the write fails instead.
    FileSize,
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
            Signal::FileSize => libc::SIGXFSZ,
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

/// Gives every signal its default meaning and holds none back. Allocates
/// nothing: it is used between fork and exec.
pub(super) fn begin_anew() {
    for signal in 1..=64 {
        if !matches!(signal, libc::SIGKILL | libc::SIGSTOP) {
            to_default(signal);
        }
    }
    hold_back_none();
}

/// Gives a signal its default meaning. A number that names none changes nothing.
pub(super) fn to_default(signal: libc::c_int) {
    // SAFETY: SIG_DFL installs no handler of ours; a refused number changes nothing.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Has the kernel keep the exit codes of our children for us. A careless parent
/// may have had us ignore `SIGCHLD`, and then it throws them away.
pub fn expect_children() {
    to_default(libc::SIGCHLD);
}

/// Holds no signal back from this thread and those it starts from now on. Who
/// started us may have held back some; one that came meanwhile is seen now.
pub fn hold_back_none() {
    hold_back_only(&Mask::with(&[]));
}

/// Which signals are held back.
pub(super) struct Mask(libc::sigset_t);

impl Mask {
    /// `fill` fills the set in, and cannot fail.
    fn of(fill: impl FnOnce(*mut libc::sigset_t) -> libc::c_int) -> Mask {
        // SAFETY: a set of zeros is a valid one; `fill` says which set it is.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        fill(&raw mut set);
        Mask(set)
    }

    /// These signals, each of them a valid one.
    fn with(signals: &[libc::c_int]) -> Mask {
        // SAFETY: sigemptyset fills the set in.
        let mut mask = Mask::of(|set| unsafe { libc::sigemptyset(set) });
        for &signal in signals {
            // SAFETY: the set is whole.
            unsafe { libc::sigaddset(&raw mut mask.0, signal) };
        }
        mask
    }

    fn all() -> Mask {
        // SAFETY: sigfillset fills the set in.
        Mask::of(|set| unsafe { libc::sigfillset(set) })
    }
}

/// Holds every signal back from this thread, but for what cannot be; says which were before.
///
/// # Errors
/// What `pthread_sigmask` reports.
pub(super) fn hold_back_all() -> io::Result<Mask> {
    change(libc::SIG_BLOCK, &Mask::all())
}

/// Holds back these signals and no others.
pub(super) fn hold_back_only(mask: &Mask) {
    // It fails only for an unknown operation.
    let _ = change(libc::SIG_SETMASK, mask);
}

fn change(how: libc::c_int, mask: &Mask) -> io::Result<Mask> {
    let mut before = Mask::of(|_| 0);
    // SAFETY: both sets are whole and outlive the call.
    match unsafe { libc::pthread_sigmask(how, &raw const mask.0, &raw mut before.0) } {
        0 => Ok(before),
        e => Err(io::Error::from_raw_os_error(e)),
    }
}

/// Waits for a signal that is held back, however long, and takes it.
pub(super) fn next() -> libc::c_int {
    let all = Mask::all();
    // SAFETY: the set is whole and outlives the call; what else is known of the signal is not asked for.
    unsafe { libc::sigwaitinfo(&raw const all.0, ptr::null_mut()) }
}

/// What asks a process to end, and what a terminal or a shutdown sends to all.
pub(super) const ASKS_TO_END: [libc::c_int; 4] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// Holds back from this thread, and those it starts, whatever asks for its end.
///
/// # Errors
/// What `pthread_sigmask` reports.
pub fn hold_back_requests_to_end() -> io::Result<()> {
    change(libc::SIG_BLOCK, &Mask::with(&ASKS_TO_END)).map(drop)
}

/// Whether this process was asked to end while that was held back.
#[must_use]
pub fn was_asked_to_end() -> bool {
    let waiting = Mask::of(|set| {
        // SAFETY: sigpending fills the set in.
        unsafe { libc::sigpending(set) }
    });
    // SAFETY: the set is whole; the numbers are valid signals.
    ASKS_TO_END
        .iter()
        .any(|&n| unsafe { libc::sigismember(&raw const waiting.0, n) } == 1)
}

/// Runs `f` while the signal is held back from this thread. One that comes
/// meanwhile is seen afterwards, unless it is ignored by then.
///
/// # Errors
/// What `pthread_sigmask` reports; then `f` did not run.
pub fn held_back<T>(signal: Signal, f: impl FnOnce() -> T) -> io::Result<T> {
    let before = change(libc::SIG_BLOCK, &Mask::with(&[signal.number()]))?;
    let result = f();
    hold_back_only(&before);
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
