//! Waiting for descriptors, with `poll`.

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
    let ms = timeout.map_or(-1, |t| {
        // Rounded up, or the last millisecond would be spent spinning.
        i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
    });
    // SAFETY: `fds` is an array of N pollfd, alive and exclusively ours for the call.
    let n = unsafe { libc::poll(fds.as_mut_ptr(), N as libc::nfds_t, ms) };
    debug_assert!(
        n >= 0 || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted,
        "poll: {}",
        io::Error::last_os_error()
    );
    fds.map(|fd| n > 0 && fd.revents != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

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
