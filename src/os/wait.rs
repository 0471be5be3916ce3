//! Waiting with a bound, without sleeping blindly.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Waits until `fd` is readable, at most `timeout` (rounded up to whole
/// milliseconds); says whether it is. A signal may end the wait early, so
/// callers with a deadline ask again until it has passed.
///
/// # Errors
/// What `poll` reports, but for an interruption.
pub fn readable(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    let mut one = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    poll(std::slice::from_mut(&mut one), timeout).map(|ready| ready > 0)
}

/// Waits `duration`, or less if a signal comes. For the pauses between two
/// looks at something that cannot be waited for, such as a lock.
pub fn pause(duration: Duration) {
    // Waiting for nothing can only be interrupted, and then it is over early.
    let _ = poll(&mut [], duration);
}

fn poll(fds: &mut [libc::pollfd], timeout: Duration) -> io::Result<usize> {
    let ms = timeout.as_nanos().div_ceil(1_000_000);
    let ms = libc::c_int::try_from(ms).unwrap_or(libc::c_int::MAX);
    let count = libc::nfds_t::try_from(fds.len()).unwrap_or(0);
    // SAFETY: `fds` is a slice of `count` initialised pollfds that outlives the call.
    let ready = unsafe { libc::poll(fds.as_mut_ptr(), count, ms) };
    match usize::try_from(ready) {
        Ok(ready) => Ok(ready),
        Err(_) => match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            e => Err(e),
        },
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;
    use crate::os::wake::Wake;
    use std::os::fd::AsFd;
    use std::time::Instant;

    #[test]
    fn a_raised_wake_is_readable_at_once_and_a_quiet_one_after_the_timeout_is_not() {
        let wake = Wake::new().expect("a descriptor is free");
        let quiet = readable(wake.as_fd(), Duration::from_millis(1)).expect("poll works");
        assert!(!quiet);
        wake.raise();
        let raised = readable(wake.as_fd(), Duration::from_secs(60)).expect("poll works");
        assert!(raised);
    }

    #[test]
    fn a_pause_is_never_shorter_than_asked() {
        let begun = Instant::now();
        pause(Duration::from_micros(4_200));
        assert!(begun.elapsed() >= Duration::from_micros(4_200));
    }
}
