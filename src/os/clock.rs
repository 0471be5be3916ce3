//! The clock that goes on while the machine sleeps, and being told that the wall clock was set.

use super::check;
use crate::mutant;
use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::ptr;
use std::time::Duration;

/// How long ago the machine was started, sleep included. The wall clock may be
/// set and `std`'s monotonic one stands still during a suspend; this one does
/// neither. Only differences mean something.
#[must_use]
pub fn since_boot() -> Duration {
    let clock = if mutant::is("cycles-on-monotonic") {
        libc::CLOCK_MONOTONIC
    } else {
        libc::CLOCK_BOOTTIME
    };
    // A kernel or a sandbox without it has at least the other.
    read(clock)
        .or_else(|| read(libc::CLOCK_MONOTONIC))
        .unwrap_or_default()
}

fn read(clock: libc::clockid_t) -> Option<Duration> {
    let mut now = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `now` has room for a timespec and outlives the call.
    if unsafe { libc::clock_gettime(clock, now.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so the kernel filled it in.
    let now = unsafe { now.assume_init() };
    let seconds = Duration::from_secs(u64::try_from(now.tv_sec).ok()?);
    Some(seconds + Duration::from_nanos(u64::try_from(now.tv_nsec).ok()?))
}

/// Readable once the wall clock was set, or the machine woke from sleep: a timer that never
/// comes and that the kernel calls off when the clocks no longer go together.
#[derive(Debug)]
pub struct WhenSet(File);

impl WhenSet {
    /// Tells of it from now on.
    ///
    /// # Errors
    /// `ENOSYS` in some sandboxes; `EMFILE` when the process is out of descriptors.
    pub fn new() -> io::Result<WhenSet> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: timerfd_create takes no pointers; the result is checked before it is owned.
        let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_REALTIME, flags) })?;
        // SAFETY: `fd` is a descriptor just made, owned by nobody else.
        let timer = unsafe { File::from_raw_fd(fd) };
        // SAFETY: a timer of zeros is a valid one.
        let mut never: libc::itimerspec = unsafe { std::mem::zeroed() };
        never.it_value.tv_sec = libc::time_t::MAX;
        let flags = libc::TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET;
        let (fd, never) = (timer.as_raw_fd(), &raw const never);
        // SAFETY: the descriptor is open, `never` outlives the call, the old timer is not asked for.
        check(unsafe { libc::timerfd_settime(fd, flags, never, ptr::null_mut()) })?;
        Ok(WhenSet(timer))
    }

    /// Takes note of it. Waits for nothing.
    pub fn clear(&self) {
        // It fails with ECANCELED, which is the news, and goes on telling.
        let _ = (&self.0).read(&mut [0; 8]);
    }
}

impl AsFd for WhenSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::wait::readable;
    use super::*;

    #[test]
    fn a_clock_that_nobody_sets_is_not_told_about() {
        let set = WhenSet::new().expect("a descriptor");
        set.clear();
        assert!(!readable(set.as_fd(), Duration::ZERO).expect("poll works"));
    }

    #[test]
    fn it_goes_forward_and_counts_sleep() {
        let before = since_boot();
        assert!(before > Duration::ZERO && since_boot() >= before);
        let awake = read(libc::CLOCK_MONOTONIC).expect("every kernel has it");
        assert!(since_boot() >= awake);
        assert_eq!(read(9999), None);
    }
}
