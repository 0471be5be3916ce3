//! Being told what happens to directories: `inotify`.
//!
//! What exactly happened is not read, only that something did: whoever is told
//! looks anew. So events that run together or that the kernel drops (it says so
//! with one of its own) hide nothing.

use super::check;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Directories that are watched. Readable as soon as something happened to one of them.
#[derive(Debug)]
pub struct Inotify(File);

impl Inotify {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// `ENOSYS` in some sandboxes; `EMFILE` when the process, or its user, has too many.
    pub fn new() -> io::Result<Inotify> {
        // SAFETY: inotify_init1 takes no pointers; the result is checked before it is owned.
        let fd = check(unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) })?;
        // SAFETY: `fd` is a descriptor just made, owned by nobody else.
        Ok(Inotify(unsafe { File::from_raw_fd(fd) }))
    }

    /// Tells from now on when a name is new in the directory, and when the directory
    /// itself is moved or removed. No link is followed. To watch it again changes nothing.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`; `EACCES` where it cannot be read; `ENOSPC` when the user has too many.
    pub fn watch_names(&self, directory: &Path) -> io::Result<()> {
        self.watch(directory, libc::IN_CREATE | libc::IN_MOVED_TO)
    }

    /// Tells from now on when the directory itself is moved or removed. Otherwise
    /// as [`Inotify::watch_names`].
    ///
    /// # Errors
    /// As [`Inotify::watch_names`].
    pub fn watch_place(&self, directory: &Path) -> io::Result<()> {
        self.watch(directory, 0)
    }

    fn watch(&self, directory: &Path, also: u32) -> io::Result<()> {
        let path = CString::new(directory.as_os_str().as_bytes())?;
        let itself = libc::IN_MOVE_SELF | libc::IN_DELETE_SELF;
        let what = itself | also | libc::IN_ONLYDIR | libc::IN_DONT_FOLLOW;
        // SAFETY: the descriptor is open, and `path` is a C string that outlives the call.
        check(unsafe { libc::inotify_add_watch(self.0.as_raw_fd(), path.as_ptr(), what) }).map(drop)
    }

    /// Takes note of what happened, or of the first part of it. Waits for nothing.
    pub fn clear(&self) {
        // What did not fit is still to be read, so whoever waits is told again.
        let _ = (&self.0).read(&mut [0; 4096]);
    }
}

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::super::wait::readable;
    use super::*;
    use crate::scratch::Scratch;
    use std::fs;
    use std::time::Duration;

    fn told(inotify: &Inotify) -> bool {
        let told = readable(inotify.as_fd(), Duration::ZERO).expect("poll works");
        inotify.clear();
        told
    }

    #[test]
    fn a_new_name_and_a_directory_that_goes_are_told_and_nothing_else_is() {
        let scratch = Scratch::new();
        let (parent, inner) = (scratch.join("parent"), scratch.join("parent/inner"));
        fs::create_dir_all(&inner).expect("directories");
        fs::write(inner.join("old"), "").expect("a file");
        let inotify = Inotify::new().expect("a descriptor");
        for _ in 0..2 {
            inotify.watch_place(&parent).expect("it is there");
            inotify.watch_names(&inner).expect("it is there");
        }
        assert!(!told(&inotify));
        fs::write(inner.join("old"), "written to").expect("a file");
        fs::write(parent.join("beside"), "").expect("a file");
        fs::remove_file(inner.join("old")).expect("it is there");
        assert!(!told(&inotify));
        fs::write(inner.join("new"), "").expect("a file");
        assert!(told(&inotify) && !told(&inotify));
        fs::rename(parent.join("beside"), inner.join("moved in")).expect("a rename");
        assert!(told(&inotify));
        fs::rename(&parent, scratch.join("moved")).expect("a rename");
        assert!(told(&inotify) && !told(&inotify));
        fs::remove_dir_all(scratch.join("moved/inner")).expect("it is there");
        assert!(told(&inotify));
        assert!(inotify.watch_names(&inner).is_err());
    }

    #[test]
    fn a_link_or_a_file_is_not_watched() {
        let scratch = Scratch::new();
        std::os::unix::fs::symlink("/", scratch.join("link")).expect("a link");
        fs::write(scratch.join("file"), "").expect("a file");
        let inotify = Inotify::new().expect("a descriptor");
        for name in ["link", "file"] {
            let e = inotify.watch_names(&scratch.join(name)).expect_err(name);
            assert_eq!(e.kind(), io::ErrorKind::NotADirectory, "{name}");
        }
    }
}
