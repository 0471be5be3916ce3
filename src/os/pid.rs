//! Processes, their groups and users by number, and signals that cannot hit the wrong process.

use super::signals::Signal;
use super::{check, wait};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::str::FromStr;
use std::time::Duration;

/// The number of one process. Never 0 and never negative: to `kill` those mean groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(libc::pid_t);

impl Pid {
    /// Takes a number, if a process can have it.
    #[must_use]
    pub fn new(number: u32) -> Option<Pid> {
        libc::pid_t::try_from(number)
            .ok()
            .filter(|&n| n > 0)
            .map(Pid)
    }

    /// This process.
    #[must_use]
    pub fn own() -> Pid {
        // SAFETY: getpid takes nothing and cannot fail.
        Pid(unsafe { libc::getpid() })
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0.unsigned_abs()
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Pid {
    type Err = ();

    /// Reads decimal digits and nothing else: no sign, no blanks.
    fn from_str(s: &str) -> Result<Pid, ()> {
        if !s.bytes().all(|b| b.is_ascii_digit()) {
            return Err(());
        }
        s.parse().ok().and_then(Pid::new).ok_or(())
    }
}

/// A handle on one process: it goes on meaning that process when the number
/// has been given to another.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// A handle on the process that has the number now.
    ///
    /// # Errors
    /// `ESRCH` when there is none. Kernels before 5.3 and some sandboxes do not
    /// know the call at all: see [`is_unsupported`].
    pub fn open(pid: Pid) -> io::Result<PidFd> {
        // SAFETY: pidfd_open takes two numbers; the result is checked before it is owned.
        let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.0, 0) });
        let fd = fd.map_err(|e| match e.raw_os_error() {
            // The number is a thread's: there is no such process.
            Some(libc::EINVAL | libc::ENOENT) => io::Error::from_raw_os_error(libc::ESRCH),
            _ => e,
        })?;
        let fd = libc::c_int::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
        // SAFETY: `fd` is a descriptor just made (close-on-exec), owned by nobody else.
        Ok(PidFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends the process a signal.
    ///
    /// # Errors
    /// `ESRCH` when it has ended, `EPERM` when it is another user's.
    pub fn send(&self, signal: Signal) -> io::Result<()> {
        // SAFETY: the descriptor is open; a null siginfo means the one `kill` would send.
        check(unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                signal.number(),
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        })
        .map(drop)
    }

    /// Waits for the process to end, at most `timeout`; says whether it has.
    /// One that nobody has reaped yet (a zombie) has ended. A signal may end
    /// the wait early.
    ///
    /// # Errors
    /// What `poll` reports.
    pub fn ended(&self, timeout: Duration) -> io::Result<bool> {
        wait::readable(self.0.as_fd(), timeout)
    }
}

impl AsFd for PidFd {
    /// Readable when the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether an error of [`PidFd::open`] means that there are no pidfds here.
/// `EPERM` is among them: the call has no such error of its own, but sandboxes
/// answer so to calls they do not know.
#[must_use]
pub fn is_unsupported(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

/// Sends a signal by number: whoever has it now gets it. Only for where there
/// is no [`PidFd`].
///
/// # Errors
/// `ESRCH` when there is no such process, `EPERM` when it is another user's.
pub fn kill(pid: Pid, signal: Signal) -> io::Result<()> {
    // SAFETY: kill takes two numbers; a `Pid` is never a group or everybody.
    check(unsafe { libc::kill(pid.0, signal.number()) }).map(drop)
}

/// Whether any process, if only a zombie or one hidden from us, has the number now.
#[must_use]
pub fn exists(pid: Pid) -> bool {
    // SAFETY: signal 0 is none: it is only looked whether it could be sent.
    match check(unsafe { libc::kill(pid.0, 0) }) {
        Ok(_) => true,
        Err(e) => e.raw_os_error() == Some(libc::EPERM),
    }
}

/// Whether a call failed because there is no such process (any more).
#[must_use]
pub fn is_gone(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::ESRCH)
}

/// A process group that can be signalled: never our own, never everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group(Pid);

impl Group {
    /// The group led by process `pid`; `None` for 0 and 1, which `kill` would
    /// take for our own group and for every process there is.
    #[must_use]
    pub fn led_by(pid: u32) -> Option<Group> {
        Pid::new(pid).filter(|leader| leader.0 > 1).map(Group)
    }

    /// Asks every process of the group to end (`SIGTERM`).
    pub fn ask_to_end(self) {
        self.signal(Signal::Term.number());
    }

    /// Ends every process of the group (`SIGKILL`).
    pub fn end(self) {
        self.signal(Signal::Kill.number());
    }

    /// Whether any process, if only a zombie, is in the group.
    #[must_use]
    pub fn exists(self) -> bool {
        self.signal(0)
    }

    fn signal(self, number: libc::c_int) -> bool {
        // SAFETY: kill takes no pointers; the group is neither our own (0) nor everybody (1).
        match check(unsafe { libc::kill(-self.0.0, number) }) {
            Ok(_) => true,
            Err(e) => e.raw_os_error() == Some(libc::EPERM),
        }
    }
}

/// A user; prints as the name, or as `uid 1000` where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User(pub u32);

impl User {
    /// The superuser.
    pub const ROOT: User = User(0);

    /// The user whose rights this process has.
    #[must_use]
    pub fn effective() -> User {
        // SAFETY: geteuid takes nothing and cannot fail.
        User(unsafe { libc::geteuid() })
    }

    /// The name, if `/etc/passwd` has one. A static binary cannot ask further.
    #[must_use]
    pub fn name(self) -> Option<String> {
        let passwd = std::fs::read("/etc/passwd").ok()?;
        name_in(&String::from_utf8_lossy(&passwd), self.0)
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(&name),
            None => write!(f, "uid {}", self.0),
        }
    }
}

fn name_in(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|n| !n.is_empty())?;
        let number = fields.nth(1)?;
        (number.parse() == Ok(uid)).then(|| name.escape_debug().to_string())
    })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_pid_is_digits_and_a_process_can_have_it() {
        assert_eq!("1".parse::<Pid>().map(Pid::get), Ok(1));
        assert_eq!(
            "2147483647".parse::<Pid>().map(Pid::get),
            Ok(i32::MAX.unsigned_abs())
        );
        for wrong in [
            "",
            "0",
            "-1",
            "+1",
            " 1",
            "1 ",
            "0x1",
            "2147483648",
            "4294967297",
            "12345678901234567890",
            "١",
        ] {
            assert!(wrong.parse::<Pid>().is_err(), "{wrong:?}");
        }
    }

    /// R2.1. Given a handle on a process that has ended and been reaped, when a
    /// signal is sent through it, then nobody gets it.
    #[test]
    fn a_handle_outlives_its_process_and_then_reaches_nobody() {
        let mut child = Command::new("sleep")
            .arg("600")
            .spawn()
            .expect("sleep is there");
        let handle =
            PidFd::open(Pid::new(child.id()).expect("a child has a pid")).expect("the child lives");
        assert!(!handle.ended(Duration::ZERO).expect("poll works"));
        handle.send(Signal::Kill).expect("it is our child");
        assert!(handle.ended(Duration::from_secs(60)).expect("poll works"));
        child.wait().expect("it has ended");
        let e = handle.send(Signal::Term).expect_err("it is gone");
        assert!(is_gone(&e), "{e}");
    }

    #[test]
    fn a_process_is_there_until_it_is_collected_whoever_it_belongs_to() {
        let mut child = Command::new("true").spawn().expect("true is there");
        let pid = Pid::new(child.id()).expect("a child has a pid");
        assert!(exists(pid), "nobody has collected it");
        child.wait().expect("it ends");
        assert!(!exists(pid));
        assert!(exists(Pid::new(1).expect("not 0")));
    }

    #[test]
    fn neither_our_own_group_nor_everybody_can_be_named() {
        assert_eq!(Group::led_by(0), None);
        assert_eq!(Group::led_by(1), None);
        assert_eq!(Group::led_by(u32::MAX), None);
    }

    #[test]
    fn users_print_by_name_where_there_is_one() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\n+::::::\nbroken\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(name_in(passwd, 1000).as_deref(), Some("ann"));
        assert_eq!(name_in(passwd, 7), None);
        assert_eq!(User(4_294_967_294).to_string(), "uid 4294967294");
    }
}
