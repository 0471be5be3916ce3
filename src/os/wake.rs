//! A flag that also wakes: raised once, seen by everyone who polls it.

use super::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that can be waited for. Once raised it stays so, and its descriptor
/// stays readable, so it can stand in any `poll` next to what is waited for.
#[derive(Debug)]
pub struct Wake {
    raised: AtomicBool,
    event: OwnedFd,
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
        })
    }

    /// Raises the flag; whoever waits for it wakes.
    pub fn raise(&self) {
        self.raised.store(true, Ordering::SeqCst);
        let one = 1u64.to_ne_bytes();
        // SAFETY: `one` is 8 readable bytes; a full counter (EAGAIN) is readable already.
        unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Whether it was raised.
    #[must_use]
    pub fn raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
