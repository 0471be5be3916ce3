//! `flock`: a lock that belongs to an open file and dies with it.
//!
//! The lock belongs to the *open file description*, which every duplicate of
//! the descriptor shares, the copy a child has between fork and exec included.
//! So closing is not enough to give a lock back: [`Locked`] unlocks first.
//!
//! On a file system where the call may hang nobody gets as far as making it:
//! there the answer is that it cannot lock.

use super::file_system::FileSystem;
use super::{check, uninterrupted};
use crate::mutant;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// What a try to lock gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Try {
    /// The lock is ours.
    Taken,
    /// Somebody else holds one that excludes ours.
    Busy,
}

/// Takes the exclusive lock, waiting for whoever holds it. For a lock that is
/// handed on; one that is kept is a [`Locked`].
///
/// # Errors
/// What `flock` reports, but for an interruption; see [`is_unsupported`].
pub fn exclusive(fd: BorrowedFd<'_>) -> io::Result<()> {
    must_not_hang(fd)?;
    flock(fd, libc::LOCK_EX)
}

/// Tries to take the exclusive lock, without waiting.
///
/// # Errors
/// What `flock` reports, but for an interruption (tried again) and a busy lock
/// (a value); see [`is_unsupported`].
pub fn try_exclusive(fd: BorrowedFd<'_>) -> io::Result<Try> {
    try_lock(fd, libc::LOCK_EX)
}

/// Tries to take a shared lock, without waiting.
///
/// # Errors
/// As [`try_exclusive`].
pub fn try_shared(fd: BorrowedFd<'_>) -> io::Result<Try> {
    try_lock(fd, libc::LOCK_SH)
}

/// Gives the lock back, in every duplicate of the descriptor at once.
///
/// # Errors
/// What `flock` reports, but for an interruption.
pub fn unlock(fd: BorrowedFd<'_>) -> io::Result<()> {
    flock(fd, libc::LOCK_UN)
}

/// Whether somebody else holds the exclusive lock. Two who ask at once do not
/// disturb each other.
///
/// # Errors
/// As [`try_exclusive`].
pub fn is_held(fd: BorrowedFd<'_>) -> io::Result<bool> {
    match try_shared(fd)? {
        Try::Taken => {
            // Not left to the close: a process forked meanwhile would keep it a moment longer.
            unlock(fd)?;
            Ok(false)
        }
        Try::Busy => Ok(true),
    }
}

/// Whether an error of `flock` means that the file system cannot lock.
///
/// `EBADF` is among them: NFS answers so when a lock needs a file open for
/// writing, which a directory never is.
#[must_use]
pub fn is_unsupported(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::ENOSYS | libc::ENOLCK | libc::EOPNOTSUPP | libc::EINVAL | libc::EBADF)
    )
}

/// An open file whose lock is ours; unlocked explicitly before it is closed.
#[derive(Debug)]
pub struct Locked(File);

impl Locked {
    /// Tries to lock `file` exclusively; hands it back when it is busy.
    ///
    /// # Errors
    /// As [`try_exclusive`].
    pub fn exclusive(file: File) -> io::Result<Result<Locked, File>> {
        Ok(match try_exclusive(file.as_fd())? {
            Try::Taken => Ok(Locked(file)),
            Try::Busy => Err(file),
        })
    }

    /// Tries to lock `file` for sharing; hands it back when it is busy.
    ///
    /// # Errors
    /// As [`try_exclusive`].
    pub fn shared(file: File) -> io::Result<Result<Locked, File>> {
        Ok(match try_shared(file.as_fd())? {
            Try::Taken => Ok(Locked(file)),
            Try::Busy => Err(file),
        })
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.0
    }
}

/// An open file that is ours: locked, or just open where its file system cannot lock.
#[derive(Debug)]
pub enum Kept {
    /// By its lock.
    Locked(Locked),
    /// Not by this; and the error that says why not.
    Open(File, io::Error),
}

impl Kept {
    /// Tries to lock `file` exclusively, if it can be locked; hands it back when it is busy.
    ///
    /// # Errors
    /// As [`try_exclusive`], but for those that mean that the file system cannot lock.
    pub fn exclusive(file: File) -> io::Result<Result<Kept, File>> {
        Ok(match try_exclusive(file.as_fd()) {
            Ok(Try::Taken) => Ok(Kept::Locked(Locked(file))),
            Ok(Try::Busy) => Err(file),
            Err(e) if is_unsupported(&e) => Ok(Kept::Open(file, e)),
            Err(e) => return Err(e),
        })
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &File {
        match self {
            Kept::Locked(locked) => locked.file(),
            Kept::Open(file, _) => file,
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Unlocking a lock we hold cannot fail; closing would give it back
        // too, only later, when no child has a copy any more.
        if mutant::is("lock-inherited") {
            return;
        }
        let _ = unlock(self.0.as_fd());
    }
}

fn try_lock(fd: BorrowedFd<'_>, operation: libc::c_int) -> io::Result<Try> {
    must_not_hang(fd)?;
    match flock(fd, operation | libc::LOCK_NB) {
        Ok(()) => Ok(Try::Taken),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(Try::Busy),
        Err(e) => Err(e),
    }
}

/// The error of a file system without locks, where the call itself may hang.
fn must_not_hang(fd: BorrowedFd<'_>) -> io::Result<()> {
    match FileSystem::of(fd)?.flock_may_hang() && !mutant::is("network-flock-first") {
        true => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        false => Ok(()),
    }
}

fn flock(fd: BorrowedFd<'_>, operation: libc::c_int) -> io::Result<()> {
    // SAFETY: `fd` is open for as long as it is borrowed; flock takes no pointers.
    uninterrupted(|| check(unsafe { libc::flock(fd.as_raw_fd(), operation) }).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    /// A directory of the test's own, to be locked.
    fn open(scratch: &Scratch) -> File {
        File::open(&**scratch).expect("it can be read")
    }

    #[test]
    fn a_lock_excludes_another_description_and_not_itself() {
        let scratch = Scratch::new();
        let (a, b) = (open(&scratch), open(&scratch));
        assert_eq!(try_exclusive(a.as_fd()).expect("flock works"), Try::Taken);
        assert_eq!(try_exclusive(a.as_fd()).expect("flock works"), Try::Taken);
        assert_eq!(try_exclusive(b.as_fd()).expect("flock works"), Try::Busy);
        assert_eq!(try_shared(b.as_fd()).expect("flock works"), Try::Busy);
        unlock(a.as_fd()).expect("flock works");
        assert_eq!(try_shared(b.as_fd()).expect("flock works"), Try::Taken);
    }

    #[test]
    fn a_lock_is_seen_from_another_descriptor_and_from_no_probe() {
        let scratch = Scratch::new();
        let [a, b, probe] = [(); 3].map(|()| open(&scratch));
        let held = || is_held(probe.as_fd()).expect("flock works");
        assert_eq!(try_shared(a.as_fd()).expect("flock works"), Try::Taken);
        assert!(!held(), "shared is no lock");
        unlock(a.as_fd()).expect("flock works");
        // Tried first: a probe that kept its lock would have us wait for ever.
        assert_eq!(try_exclusive(b.as_fd()).expect("flock works"), Try::Taken);
        exclusive(b.as_fd()).expect("it is ours already");
        assert!(held());
        drop(b);
        assert!(!held());
    }

    /// R1.5. Given a duplicate of a locked descriptor (as a child has between
    /// fork and exec), when the guard is dropped, then the lock is free.
    #[test]
    fn dropping_the_guard_frees_the_lock_although_a_duplicate_lives() {
        let dir = std::env::temp_dir();
        let open = || File::open(&dir).expect("it can be read");
        let Ok(guard) = Locked::shared(open()).expect("flock works") else {
            panic!("nobody locks the temp dir exclusively");
        };
        let duplicate = guard.file().try_clone().expect("a descriptor is free");
        drop(guard);
        assert_eq!(
            try_exclusive(open().as_fd()).expect("flock works"),
            Try::Taken
        );
        drop(duplicate);
    }
}
