//! Files: opened so that nothing hangs, no child inherits them and no link is
//! followed unseen; what `stat` says about them; flushing more than one.

use super::{check, uninterrupted};
use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
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
const CAREFULLY: libc::c_int = libc::O_NOFOLLOW | AT_ONCE;
const AT_ONCE: libc::c_int = libc::O_NONBLOCK | libc::O_NOCTTY;

/// Creates a file that must not exist yet, 0600, to be appended to and read.
/// What somebody else put there, be it a link, is not opened.
///
/// # Errors
/// `AlreadyExists` when anything has that name; otherwise what `open` reports.
pub fn create_new(path: &Path) -> io::Result<File> {
    let mut new = File::options();
    new.read(true).append(true).create_new(true).mode(0o600);
    open(path, &mut new, libc::O_NOFOLLOW)
}

/// Opens `path` for reading and writing, created 0600 if it is not there.
/// Nothing is truncated, no link is followed, nothing is waited for.
///
/// # Errors
/// What `open` reports; `ELOOP` for a link.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    let mut old_or_new = File::options();
    old_or_new.read(true).write(true).create(true).mode(0o600);
    open(path, old_or_new.truncate(false), CAREFULLY)
}

/// Opens `path` for reading and writing, if it is there; otherwise as [`open_or_create`].
///
/// # Errors
/// What `open` reports; `ELOOP` for a link.
pub fn open_existing(path: &Path) -> io::Result<File> {
    open(path, File::options().read(true).write(true), CAREFULLY)
}

/// Opens a regular file for reading. A link, a FIFO, a directory or a device in
/// its place is an error that says so, and none of them makes it wait.
///
/// # Errors
/// What `open` reports; `InvalidInput` for anything but a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Looked at before it is opened as well: opening a device can have effects.
    must_be_regular(Facts::at(path)?.kind)?;
    open(path, File::options().read(true), CAREFULLY).and_then(regular)
}

/// As [`open_regular`], but a link to a regular file will do: for what the user
/// names and arranges.
///
/// # Errors
/// As [`open_regular`].
pub fn open_regular_or_link(path: &Path) -> io::Result<File> {
    must_be_regular(Facts::from(&fs::metadata(path)?).kind)?;
    open(path, File::options().read(true), AT_ONCE).and_then(regular)
}

/// Opens a regular file for appending and reading, created 0600 if it is not
/// there. The same refusals as [`open_regular`].
///
/// # Errors
/// As [`open_regular`].
pub fn open_append(path: &Path) -> io::Result<File> {
    match Facts::at(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        facts => must_be_regular(facts?.kind)?,
    }
    let mut log = File::options();
    log.read(true).append(true).create(true).mode(0o600);
    open(path, &mut log, CAREFULLY).and_then(regular)
}

/// Opens a directory itself, to lock it.
///
/// # Errors
/// What `open` reports; `ENOTDIR` for anything but a directory, a link to one included.
pub fn open_directory(path: &Path) -> io::Result<File> {
    let flags = CAREFULLY | libc::O_DIRECTORY;
    open(path, File::options().read(true), flags)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that opens; store/ and daemon/ write through here"
)]
fn open(path: &Path, options: &mut OpenOptions, flags: libc::c_int) -> io::Result<File> {
    options.custom_flags(flags).open(path)
}

fn regular(file: File) -> io::Result<File> {
    must_be_regular(Facts::of(&file)?.kind)?;
    Ok(file)
}

fn must_be_regular(kind: Kind) -> io::Result<()> {
    match kind {
        Kind::File => Ok(()),
        kind => {
            let why = format!("it is {kind}, not a regular file");
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
    }
}

/// Whether an error of giving a file a second name means that its file system
/// cannot: `EPERM` is what link(2) has for that.
#[must_use]
pub fn has_no_hard_links(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EPERM | libc::EOPNOTSUPP | libc::ENOSYS)
    )
}

/// Makes the names in a directory durable; done where a file system has no
/// such call, for then there is nothing to wait for.
///
/// # Errors
/// What `fsync` reports.
pub fn sync_directory(directory: &File) -> io::Result<()> {
    match directory.sync_all() {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        done => done,
    }
}

/// Flushes the whole file system that `file` is on, and reports every failed
/// write on it since `file` was opened (Linux 5.8 and later).
///
/// # Errors
/// What the kernel says; what was written since `file` was opened may be lost.
pub fn sync_file_system(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed from an open file; syncfs takes nothing else.
    uninterrupted(|| check(unsafe { libc::syncfs(file.as_raw_fd()) }).map(drop))
}

/// What tells a file or directory from any other and from a copy of itself:
/// its inode number and, where the file system keeps it (else 0), the time of
/// its birth in nanoseconds since 1970. The standard library does not give the
/// latter with every C library.
///
/// # Errors
/// What `statx` reports.
pub fn identity(file: &File) -> io::Result<(u64, i128)> {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the descriptor is open, the path is an empty C string, which
    // AT_EMPTY_PATH takes to mean the descriptor itself, and `found` is
    // writable memory of the size the kernel fills.
    check(unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_INO | libc::STATX_BTIME,
            found.as_mut_ptr(),
        )
    })?;
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

/// Whether files can be made and removed in a directory by this process, as
/// far as permissions and a read-only mount tell.
///
/// # Errors
/// `EACCES` or `EROFS` when not, or what else `faccessat` reports.
pub fn is_writable_directory(directory: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: `directory` is open while borrowed; the path is a C string that lives for ever.
    check(unsafe {
        libc::faccessat(
            directory.as_raw_fd(),
            c".".as_ptr(),
            libc::W_OK | libc::X_OK,
            libc::AT_EACCESS,
        )
    })
    .map(drop)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn only_regular_files_are_opened_and_a_link_only_where_it_may_be_one() {
        let refused = |opened: io::Result<File>, what: &str| {
            let e = opened.expect_err(what);
            assert_eq!(e.kind(), io::ErrorKind::InvalidInput, "{e}");
            assert_eq!(e.to_string(), format!("it is {what}, not a regular file"));
        };
        for open in [open_regular, open_regular_or_link] {
            assert!(open(Path::new("Cargo.toml")).is_ok());
            refused(open(Path::new("src")), "a directory");
            refused(open(Path::new("/dev/null")), "a device");
            let e = open(Path::new("no such file")).expect_err("missing");
            assert_eq!(e.kind(), io::ErrorKind::NotFound);
        }
        let dir = Scratch::new();
        let (link, fifo) = (dir.join("link"), dir.join("fifo"));
        let target = std::env::current_dir().expect("there is one");
        std::os::unix::fs::symlink(target.join("Cargo.toml"), &link).expect("a link");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.expect("mkfifo is there").success());
        assert!(open_regular_or_link(&link).is_ok());
        refused(open_regular(&link), "a symbolic link");
        refused(open_append(&link), "a symbolic link");
        // Nobody is at the other end, and none of them waits for anybody.
        refused(open_regular(&fifo), "a FIFO");
        refused(open_regular_or_link(&fifo), "a FIFO");
        refused(open_append(&fifo), "a FIFO");
    }

    /// Given what is put there after it was looked at, then the flags refuse it too.
    #[test]
    fn opening_itself_follows_no_link_and_waits_for_no_fifo() {
        let dir = Scratch::new();
        let path = dir.join("late");
        std::os::unix::fs::symlink("/etc/passwd", &path).expect("a link");
        let e = open_existing(&path).expect_err("a link");
        assert_eq!(e.raw_os_error(), Some(libc::ELOOP));
        assert!(create_new(&path).is_err());
        fs::remove_file(&path).expect("it is ours");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo is there").success());
        let read = open(&path, File::options().read(true), CAREFULLY);
        assert!(read.and_then(regular).is_err(), "a FIFO");
    }
}
