//! The kernel's words: the only room that names `libc`, and the only one with `unsafe`.
//!
//! Each function here is safe, takes and returns types that cannot be wrong
//! (`Pid`, `BorrowedFd`), and holds one call.

pub mod file;
pub mod flock;
pub mod fs;
pub mod pid;
pub mod poll;
pub mod proc;
pub mod process;
pub mod regular;
pub mod signals;
pub mod wait;
pub mod wake;
