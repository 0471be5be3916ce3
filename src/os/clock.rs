//! The clock that goes on while the machine sleeps.

use crate::mutant;
use std::mem::MaybeUninit;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_forward_and_counts_sleep() {
        let before = since_boot();
        assert!(before > Duration::ZERO && since_boot() >= before);
        let awake = read(libc::CLOCK_MONOTONIC).expect("every kernel has it");
        assert!(since_boot() >= awake);
        assert_eq!(read(9999), None);
    }
}
