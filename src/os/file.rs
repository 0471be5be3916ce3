//! Opening files so that nothing is followed, nothing hangs and no child
//! inherits them, and the facts `stat` gives about them.

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// What kind of thing a path or a descriptor names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A device.
    Device,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::File => "a regular file",
            Kind::Directory => "a directory",
            Kind::Symlink => "a symbolic link",
            Kind::Fifo => "a FIFO",
            Kind::Socket => "a socket",
            Kind::Device => "a device",
        })
    }
}

/// What `stat` says about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The device it is on.
    pub dev: u64,
    /// Its inode there.
    pub ino: u64,
    /// How many names it has.
    pub links: u64,
    /// The user it belongs to.
    pub owner: u32,
    /// Its permission bits.
    pub mode: u32,
    /// Its length in bytes.
    pub size: u64,
    /// What it is.
    pub kind: Kind,
}

impl Facts {
    /// The facts of an open file.
    ///
    /// # Errors
    /// What `fstat` reports.
    pub fn of(file: &File) -> io::Result<Facts> {
        file.metadata().map(|m| Facts::from(&m))
    }

    /// The facts of what `path` names; a link itself, not what it points to.
    ///
    /// # Errors
    /// What `lstat` reports.
    pub fn at(path: &Path) -> io::Result<Facts> {
        fs::symlink_metadata(path).map(|m| Facts::from(&m))
    }

    /// Whether both are about the same inode.
    #[must_use]
    pub fn same_inode(&self, other: &Facts) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }

    /// Whether the group or everybody may write it.
    #[must_use]
    pub fn others_can_write(&self) -> bool {
        self.mode & 0o022 != 0
    }
}

impl From<&Metadata> for Facts {
    fn from(m: &Metadata) -> Facts {
        let t = m.file_type();
        Facts {
            dev: m.dev(),
            ino: m.ino(),
            links: m.nlink(),
            owner: m.uid(),
            mode: m.mode() & 0o7777,
            size: m.len(),
            kind: if t.is_file() {
                Kind::File
            } else if t.is_dir() {
                Kind::Directory
            } else if t.is_symlink() {
                Kind::Symlink
            } else if t.is_fifo() {
                Kind::Fifo
            } else if t.is_socket() {
                Kind::Socket
            } else {
                Kind::Device
            },
        }
    }
}

// std adds O_CLOEXEC itself. O_NONBLOCK is for a FIFO: opening one would wait
// for its other end. On a regular file it changes nothing.
const CAREFULLY: libc::c_int = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// Opens `path` for reading and writing, created 0600 if it is not there.
/// Nothing is truncated, no link is followed, nothing is waited for.
///
/// # Errors
/// What `open` reports; `ELOOP` for a link.
#[expect(
    clippy::disallowed_methods,
    reason = "the pidfile is opened here: it is a lock, not state"
)]
pub fn open_or_create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(CAREFULLY)
        .open(path)
}

/// Opens `path` for reading and writing, if it is there; otherwise as [`open_or_create`].
///
/// # Errors
/// What `open` reports; `ELOOP` for a link.
#[expect(
    clippy::disallowed_methods,
    reason = "the pidfile is opened here: it is a lock, not state"
)]
pub fn open_existing(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(CAREFULLY)
        .open(path)
}

/// Opens `path` for reading. No link is followed, nothing is waited for.
///
/// # Errors
/// What `open` reports; `ELOOP` for a link.
#[expect(
    clippy::disallowed_methods,
    reason = "reading only; the flags are this room's"
)]
pub fn open_to_read(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(CAREFULLY)
        .open(path)
}

/// Opens a directory itself, to lock it or to sync it.
///
/// # Errors
/// What `open` reports; `ENOTDIR` for anything but a directory, a link to one included.
#[expect(
    clippy::disallowed_methods,
    reason = "reading only; the flags are this room's"
)]
pub fn open_directory(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(CAREFULLY | libc::O_DIRECTORY)
        .open(path)
}

/// Whether files can be made and removed in a directory by this process, as
/// far as permissions and a read-only mount tell.
///
/// # Errors
/// `EACCES` or `EROFS` when not, or what else `faccessat` reports.
pub fn is_writable_directory(directory: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: `directory` is open while borrowed; the path is a C string that lives for ever.
    let answer = unsafe {
        libc::faccessat(
            directory.as_raw_fd(),
            c".".as_ptr(),
            libc::W_OK | libc::X_OK,
            libc::AT_EACCESS,
        )
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
