//! Processes we start, groups we end, and the lock that says who still runs.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Takes the exclusive `flock`, waiting for whoever holds it.
///
/// # Errors
/// The kernel's; see [`has_no_flock`].
pub fn lock(file: &File) -> io::Result<()> {
    flock(file, libc::LOCK_EX)
}

/// Whether somebody else holds the exclusive `flock`. Two who ask at once do
/// not disturb each other.
///
/// # Errors
/// The kernel's; see [`has_no_flock`].
pub fn is_locked(file: &File) -> io::Result<bool> {
    match flock(file, libc::LOCK_SH | libc::LOCK_NB) {
        Ok(()) => {
            // Not left to the close: a process forked meanwhile would keep it a moment longer.
            flock(file, libc::LOCK_UN)?;
            Ok(false)
        }
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(e) => Err(e),
    }
}

/// Whether an error of [`lock`] or [`is_locked`] means that the file system knows no `flock`.
#[must_use]
pub fn has_no_flock(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::ENOSYS | libc::ENOLCK | libc::EOPNOTSUPP)
    )
}

fn flock(file: &File, operation: i32) -> io::Result<()> {
    loop {
        // SAFETY: flock takes no pointers, and the descriptor is open while `file` is borrowed.
        if unsafe { libc::flock(file.as_raw_fd(), operation) } == 0 {
            return Ok(());
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

/// Opens a regular file for reading; a symlink is refused and a FIFO does not hang.
///
/// # Errors
/// When it cannot be opened or is something else.
#[expect(clippy::disallowed_methods, reason = "opened for reading")]
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("not a regular file"))
    }
}

/// Has the process started by `command` lead a session of its own from before
/// its first instruction, so that no terminal's signal ever reaches it.
pub fn lead_a_session(command: &mut Command) {
    let setsid = || {
        // SAFETY: setsid takes nothing and is async-signal-safe.
        if unsafe { libc::setsid() } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes one async-signal-safe call and does not allocate.
    unsafe { command.pre_exec(setsid) };
}

/// Has the process started by `command` write a line to `file` after it was
/// forked and before it becomes the command: `before`, then
/// `{"pid":N,"start":N}` of that very process, then `after` and a newline. If
/// the line cannot be written whole, the command is not started.
pub fn announce(command: &mut Command, file: OwnedFd, before: &str, after: &str) {
    let mut file = File::from(file);
    let before = before.as_bytes().to_vec();
    let after = after.as_bytes().to_vec();
    let mut line = Vec::with_capacity(before.len() + after.len() + 64);
    let write = move || {
        let mut stat = [0; 1024];
        let n = File::open("/proc/self/stat")?.read(&mut stat)?;
        let me = std::str::from_utf8(&stat[..n]).ok().and_then(Stat::parse);
        let me = me.ok_or(io::ErrorKind::InvalidData)?;
        line.clear();
        line.extend_from_slice(&before);
        write!(line, r#"{{"pid":{},"start":{}}}"#, me.pid, me.start)?;
        line.extend_from_slice(&after);
        line.push(b'\n');
        // One call: two could be told apart by a kill.
        let written = file.write(&line)?;
        if written < line.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec it opens, reads and writes; a short path and a line
    // within its capacity (two numbers of at most 20 digits in 64 bytes) allocate nothing,
    // and errors are plain codes.
    unsafe { command.pre_exec(write) };
}

/// Makes `fd` the standard output of this process.
///
/// # Errors
/// When the process is out of descriptors.
pub fn become_stdout(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: dup2 takes no pointers; `fd` is open while borrowed, and replacing what
    // descriptor 1 stands for leaves it open for everyone who uses it.
    if unsafe { libc::dup2(fd.as_raw_fd(), 1) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Marks every descriptor from 3 on as close-on-exec, those we were born with
/// too. A kernel without the call (before 5.11) leaves the latter alone.
pub fn close_on_exec_from_3() {
    // SAFETY: with this flag close_range closes nothing; it takes no pointers.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3u32,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
}

/// Gives every signal its default meaning, but for `SIGPIPE`, which stays as it
/// is (std sets it back for what it starts). An ignored `SIGCHLD`, inherited
/// from a careless parent, would cost us the exit codes of our children.
pub fn default_signals() {
    for signal in 1..=31 {
        if !matches!(signal, libc::SIGKILL | libc::SIGSTOP | libc::SIGPIPE) {
            // SAFETY: SIG_DFL installs no handler of ours; a refused number changes nothing.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

/// A descriptor that becomes readable when process `pid` has ended.
///
/// # Errors
/// When there is no such process, or no such call (before Linux 5.3).
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: pidfd_open takes no pointers; the result is checked before it is owned.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = i32::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: `fd` is a descriptor just made (close-on-exec by itself), owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A process group that can be signalled: never our own, never everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group(i32);

impl Group {
    /// The group led by process `pid`; `None` for 0 and 1, which `kill` would
    /// take for our own group and for every process there is.
    #[must_use]
    pub fn led_by(pid: u32) -> Option<Group> {
        i32::try_from(pid).ok().filter(|pid| *pid > 1).map(Group)
    }

    /// Asks every process of the group to end (`SIGTERM`).
    pub fn ask_to_end(self) {
        self.signal(libc::SIGTERM);
    }

    /// Ends every process of the group (`SIGKILL`).
    pub fn end(self) {
        self.signal(libc::SIGKILL);
    }

    /// Whether any process, if only a zombie, is in the group.
    #[must_use]
    pub fn exists(self) -> bool {
        self.signal(0)
    }

    fn signal(self, signal: i32) -> bool {
        // SAFETY: kill takes no pointers; the group is neither our own (0) nor everybody (1).
        let done = unsafe { libc::kill(-self.0, signal) };
        done == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
    }
}

/// What tells one run of the system, and one container on it, from another: a
/// pid means something only within one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PidSpace {
    /// The kernel's boot id.
    pub boot_id: String,
    /// The inode of the pid namespace.
    pub pid_ns: u64,
}

impl PidSpace {
    /// Where this process runs; `None` without `/proc`.
    #[must_use]
    pub fn here() -> Option<PidSpace> {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let pid_ns = std::fs::metadata("/proc/self/ns/pid").ok()?.ino();
        Some(PidSpace {
            boot_id: boot_id.trim().to_string(),
            pid_ns,
        })
    }
}

/// What `/proc/PID/stat` says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Its pid.
    pub pid: u32,
    /// It has ended and nobody has collected it.
    pub dead: bool,
    /// Its process group.
    pub group: u32,
    /// Its session.
    pub session: u32,
    /// When it started, in clock ticks since boot; with the pid it names a
    /// process within one [`PidSpace`].
    pub start: u64,
}

impl Stat {
    /// Of process `pid`; `None` when there is none.
    #[must_use]
    pub fn of(pid: u32) -> Option<Stat> {
        Stat::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Of this process.
    #[must_use]
    pub fn of_self() -> Option<Stat> {
        Stat::of(std::process::id())
    }

    /// Of every process that can be seen.
    pub fn all() -> impl Iterator<Item = Stat> {
        std::fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| Stat::of(entry.ok()?.file_name().to_str()?.parse().ok()?))
    }

    fn parse(text: &str) -> Option<Stat> {
        // The second field is the program's name in parentheses, and may hold anything.
        let (pid, rest) = text.split_once(' ')?;
        let mut fields = rest.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?;
        Some(Stat {
            pid: pid.parse().ok()?,
            dead: matches!(state, "Z" | "X"),
            // Fields are counted from 1, with the state as the third.
            group: fields.nth(1)?.parse().ok()?,
            session: fields.next()?.parse().ok()?,
            start: fields.nth(15)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_cannot_forge_the_fields_behind_it() {
        let stat = Stat::parse(
            "77 (a) R 1 (b) S 70 76 75 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 12 13",
        );
        assert_eq!(
            stat,
            Some(Stat {
                pid: 77,
                dead: false,
                group: 76,
                session: 75,
                start: 4711
            })
        );
        assert_eq!(Stat::parse("77 (a"), None);
        let me = Stat::of_self().expect("/proc is there");
        assert_eq!(me.pid, std::process::id());
        assert!(Stat::all().any(|s| s == me));
    }

    #[test]
    fn neither_our_own_group_nor_everybody_can_be_named() {
        assert_eq!(Group::led_by(0), None);
        assert_eq!(Group::led_by(1), None);
        assert_eq!(Group::led_by(u32::MAX), None);
    }

    #[test]
    fn a_lock_is_seen_from_another_descriptor_and_from_no_probe() {
        let path = std::env::temp_dir().join(format!("idempoll-flock-{}", std::process::id()));
        #[allow(clippy::disallowed_methods, reason = "tests")]
        let file = File::create(&path).expect("a temp file");
        let other = open_regular(&path).expect("it is there");
        let third = open_regular(&path).expect("it is there");
        flock(&third, libc::LOCK_SH).expect("free");
        assert!(
            !is_locked(&other).expect("flock works here"),
            "shared is no lock"
        );
        flock(&third, libc::LOCK_UN).expect("held");
        lock(&file).expect("free");
        assert!(is_locked(&other).expect("flock works here"));
        drop(file);
        assert!(!is_locked(&other).expect("flock works here"));
        std::fs::remove_file(&path).expect("ours");
    }
}
