//! The kernel's words: the only room that names `libc`, and the only one with `unsafe`.
//!
//! Each function here is safe, takes and returns types that cannot be wrong
//! (`Pid`, `BorrowedFd`), and holds one call.

pub mod clock;
pub mod file;
pub mod file_system;
pub mod flock;
pub mod init;
pub mod inotify;
pub mod pid;
pub mod proc;
pub mod process;
pub mod signals;
pub mod wait;
pub mod wake;

use std::io;

/// Makes a call again for as long as signals interrupt it.
///
/// # Errors
/// What the call reports, but for an interruption.
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// What a call answered; -1 stands for an error, whose number is in `errno`.
fn check<N: PartialOrd + From<i8>>(answer: N) -> io::Result<N> {
    if answer < N::from(0) {
        Err(io::Error::last_os_error())
    } else {
        Ok(answer)
    }
}
