//! A flag that also wakes: raised once, seen by everyone who polls it.

use super::{check, uninterrupted};
#[cfg(all(test, feature = "shuttle"))]
use shuttle::sync::atomic::AtomicBool;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
#[cfg(not(all(test, feature = "shuttle")))]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

/// A flag that can be waited for. Once raised it stays so, and its descriptor
/// stays readable, so it can stand in any `poll` next to what is waited for.
#[derive(Debug)]
pub struct Wake {
    raised: AtomicBool,
    event: OwnedFd,
    above: Option<Above>,
}

/// The flag that raises another one along with itself.
#[derive(Debug)]
struct Above {
    wake: Arc<Wake>,
    /// Readable as soon as either of the two is.
    either: OwnedFd,
}

impl Wake {
    /// A flag not yet raised.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Wake> {
        // SAFETY: eventfd takes no pointers; the result is checked before it is owned.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: `fd` is a descriptor just made, owned by nobody else.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Wake {
            raised: AtomicBool::new(false),
            event,
            above: None,
        })
    }

    /// A flag that counts as raised, and wakes, also when `above` is: at that
    /// very moment, without any thread to pass it on. Raising it leaves `above` alone.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn under(above: &Arc<Wake>) -> io::Result<Wake> {
        let own = Wake::new()?;
        // SAFETY: epoll_create1 takes no pointers; the result is checked before it is owned.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: `fd` is a descriptor just made, owned by nobody else.
        let either = unsafe { OwnedFd::from_raw_fd(fd) };
        for wake in [own.as_fd(), above.as_fd()] {
            let mut readable = libc::epoll_event {
                events: libc::EPOLLIN.unsigned_abs(),
                u64: 0,
            };
            let (on, fd) = (either.as_raw_fd(), wake.as_raw_fd());
            // SAFETY: both descriptors are open, and `readable` outlives the call.
            check(unsafe { libc::epoll_ctl(on, libc::EPOLL_CTL_ADD, fd, &raw mut readable) })?;
        }
        let above = Some(Above {
            wake: above.clone(),
            either,
        });
        Ok(Wake { above, ..own })
    }

    /// Raises the flag; whoever waits for it wakes.
    pub fn raise(&self) {
        self.raised.store(true, Ordering::SeqCst);
        let one = 1u64.to_ne_bytes();
        // Whoever waits would sleep on for ever. A full counter (EAGAIN) is readable already.
        let _ = uninterrupted(|| {
            let (fd, at) = (self.event.as_raw_fd(), one.as_ptr().cast());
            // SAFETY: `one` is 8 readable bytes.
            check(unsafe { libc::write(fd, at, one.len()) })
        });
    }

    /// Whether it was raised.
    #[must_use]
    pub fn raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst) || self.above.as_ref().is_some_and(|a| a.wake.raised())
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.above {
            Some(above) => above.either.as_fd(),
            None => self.event.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wait::readable;
    use super::*;
    use std::time::Duration;

    fn wakes(wake: &Wake) -> bool {
        readable(wake.as_fd(), Duration::ZERO).expect("poll works")
    }

    #[test]
    fn a_flag_under_another_is_raised_by_either_and_raises_nobody() {
        let stop = Arc::new(Wake::new().expect("a descriptor"));
        let [first, second] = [0, 1].map(|_| Wake::under(&stop).expect("a descriptor"));
        assert!(!first.raised() && !wakes(&first));
        first.raise();
        assert!(first.raised() && wakes(&first));
        assert!(!second.raised() && !wakes(&second) && !stop.raised());
        stop.raise();
        assert!(second.raised() && wakes(&second));
        // It stays so, however often it is looked at.
        assert!(wakes(&second) && wakes(&second));
    }
}
