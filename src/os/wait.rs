//! Waiting for descriptors, always with a bound or for something that must come.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// What is waited for on a descriptor. Its other end going away ends either wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// Something to read, or the end of it.
    Reading,
    /// Room to write.
    Writing,
}

/// Waits until one of the descriptors is ready or `timeout` has passed (`None`:
/// for ever) and says which are ready; `None` entries never are.
///
/// A signal may end the wait early with nothing ready, so callers loop. What
/// else `poll` can answer cannot happen with open descriptors this few.
#[must_use]
pub fn ready<const N: usize>(
    on: [Option<(BorrowedFd<'_>, For)>; N],
    timeout: Option<Duration>,
) -> [bool; N] {
    let mut fds = on.map(|entry| libc::pollfd {
        // poll skips negative descriptors.
        fd: entry.as_ref().map_or(-1, |(fd, _)| fd.as_raw_fd()),
        events: match entry {
            Some((_, For::Writing)) => libc::POLLOUT,
            _ => libc::POLLIN,
        },
        revents: 0,
    });
    match poll(&mut fds, timeout) {
        Ok(n) => fds.map(|fd| n > 0 && fd.revents != 0),
        Err(e) => {
            debug_assert!(false, "poll: {e}");
            [false; N]
        }
    }
}

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
    poll(std::slice::from_mut(&mut one), Some(timeout)).map(|ready| ready > 0)
}

/// Waits `duration`, or less if a signal comes. For the pauses between two
/// looks at something that cannot be waited for, such as a lock.
pub fn pause(duration: Duration) {
    // Waiting for nothing can only be interrupted, and then it is over early.
    let _ = poll(&mut [], Some(duration));
}

/// How many are ready within `timeout`; none when a signal comes first.
fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<libc::c_int> {
    let ms = timeout.map_or(-1, |t| {
        // Rounded up, or the last millisecond would be spent spinning.
        i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
    });
    let count = fds.len() as libc::nfds_t;
    // SAFETY: `fds` is a slice of `count` initialised pollfds that outlives the call.
    match check(unsafe { libc::poll(fds.as_mut_ptr(), count, ms) }) {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
        done => done,
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;
    use crate::os::wake::Wake;
    use std::io::Write;
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

    #[test]
    fn each_descriptor_is_told_apart_and_a_closed_end_is_ready() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let soon = Some(Duration::from_millis(1));
        let ask = |r: &io::PipeReader, w: &io::PipeWriter| {
            ready(
                [
                    Some((r.as_fd(), For::Reading)),
                    None,
                    Some((w.as_fd(), For::Writing)),
                ],
                soon,
            )
        };
        assert_eq!(ask(&reader, &writer), [false, false, true]);
        writer.write_all(b"x").expect("room for a byte");
        assert_eq!(ask(&reader, &writer), [true, false, true]);
        drop(writer);
        assert_eq!(ready([Some((reader.as_fd(), For::Reading))], None), [true]);
    }
}
