//! Processes and users by number, and signals that cannot hit the wrong process.

use super::signals::Signal;
use super::wait;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
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
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.0, 0) };
        match libc::c_int::try_from(fd) {
            // SAFETY: `fd` is a descriptor just made (close-on-exec), owned by nobody else.
            Ok(fd) if fd >= 0 => Ok(PidFd(unsafe { OwnedFd::from_raw_fd(fd) })),
            _ => Err(match io::Error::last_os_error() {
                // The number is a thread's: there is no such process.
                e if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => {
                    io::Error::from_raw_os_error(libc::ESRCH)
                }
                e => e,
            }),
        }
    }

    /// Sends the process a signal.
    ///
    /// # Errors
    /// `ESRCH` when it has ended, `EPERM` when it is another user's.
    pub fn send(&self, signal: Signal) -> io::Result<()> {
        // SAFETY: the descriptor is open; a null siginfo means the one `kill` would send.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                signal.number(),
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
        if answer == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
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
    if unsafe { libc::kill(pid.0, signal.number()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Whether a call failed because there is no such process (any more).
#[must_use]
pub fn is_gone(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::ESRCH)
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
    fn users_print_by_name_where_there_is_one() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\n+::::::\nbroken\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(name_in(passwd, 1000).as_deref(), Some("ann"));
        assert_eq!(name_in(passwd, 7), None);
        assert_eq!(User(4_294_967_294).to_string(), "uid 4294967294");
    }
}
