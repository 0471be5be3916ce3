//! Opening and flushing files with the flags the standard library has no word for.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Creates a file that must not exist yet, mode 0600, for writing. Never
/// follows a symbolic link, never opens what somebody else put there.
///
/// # Errors
/// `AlreadyExists` when anything has that name; otherwise what the kernel says.
#[expect(
    clippy::disallowed_methods,
    reason = "the store creates its files through here"
)]
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

/// Opens a regular file for reading. A symbolic link, a FIFO, a directory or
/// a device in its place is an error, and none of them makes it wait.
///
/// # Errors
/// What the kernel says, or what stands there instead of a file.
#[expect(clippy::disallowed_methods, reason = "opens for reading only")]
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(name_the_link)?;
    regular(file)
}

/// Opens a regular file for appending and reading, creating it with mode 0600.
/// The same refusals as [`open_regular`].
///
/// # Errors
/// What the kernel says, or what stands there instead of a file.
#[expect(
    clippy::disallowed_methods,
    reason = "the event log is appended to through here"
)]
pub fn open_append(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(name_the_link)?;
    regular(file)
}

/// Flushes the whole file system that `file` is on, and reports every failed
/// write on it since `file` was opened (Linux 5.8 and later).
///
/// # Errors
/// What the kernel says; what was written since `file` was opened may be lost.
pub fn sync_file_system(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed from an open file; syncfs takes nothing else.
    if unsafe { libc::syncfs(file.as_fd().as_raw_fd()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// What tells a file or directory from any other and from a copy of itself:
/// its inode number and, where the file system keeps it (else 0), the time of
/// its birth in nanoseconds since 1970. The standard library does not give the
/// latter with every C library.
///
/// # Errors
/// What the kernel says.
pub fn identity(file: &File) -> io::Result<(u64, i128)> {
    let mut found = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the descriptor is open, the path is an empty C string, which
    // AT_EMPTY_PATH takes to mean the descriptor itself, and `found` is
    // writable memory of the size the kernel fills.
    let result = unsafe {
        libc::statx(
            file.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_INO | libc::STATX_BTIME,
            found.as_mut_ptr(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all of it was zeroed, and zero is valid for each of its integers.
    let found = unsafe { found.assume_init() };
    let born = match found.stx_mask & libc::STATX_BTIME {
        0 => 0,
        _ => {
            i128::from(found.stx_btime.tv_sec) * 1_000_000_000 + i128::from(found.stx_btime.tv_nsec)
        }
    };
    Ok((found.stx_ino, born))
}

/// Whether this is what `fsync` of a directory says on a file system that has
/// no such thing, and so nothing to wait for.
#[must_use]
pub fn has_no_directory_sync(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::EINVAL)
}

fn name_the_link(e: io::Error) -> io::Error {
    match e.raw_os_error() {
        Some(libc::ELOOP) => instead("a symbolic link"),
        _ => e,
    }
}

fn regular(file: File) -> io::Result<File> {
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        Ok(file)
    } else if kind.is_dir() {
        Err(instead("a directory"))
    } else if kind.is_fifo() {
        Err(instead("a FIFO"))
    } else {
        Err(instead("a device or socket"))
    }
}

fn instead(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("it is {what}, not a file"),
    )
}
