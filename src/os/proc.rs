//! What `/proc` tells about processes and locks. All of it may be missing
//! (another user's process under `hidepid`, a sandbox without `/proc`), so
//! everything is an `Option`, and `None` must never be read as "the same".

use super::file::Facts;
use super::pid::{Pid, User};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The part of `/proc/PID/stat` that tells one process from the next with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Whether it has ended and only waits to be reaped.
    pub zombie: bool,
    /// When it started, in clock ticks after the machine did.
    pub start_time: u64,
}

/// The state and the start of a process, from `/proc/PID/stat`.
#[must_use]
pub fn stat(pid: Pid) -> Option<Stat> {
    let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&String::from_utf8_lossy(&line))
}

/// The effective user of a process, from `/proc/PID/status`.
#[must_use]
pub fn user(pid: Pid) -> Option<User> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let uids = status.lines().find_map(|l| l.strip_prefix("Uid:"))?;
    uids.split_whitespace().nth(1)?.parse().ok().map(User)
}

/// A name for the time since this machine was started, never used again.
#[must_use]
pub fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_string()).filter(|id| !id.is_empty())
}

/// The inode that names the pid namespace of this process.
#[must_use]
pub fn pid_namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|m| m.ino())
}

/// Who took the exclusive `flock` on an inode, as `/proc/locks` has it. Only a
/// hint for people: it names who took the lock, who may have handed it on, and
/// it does not list locks taken in another pid namespace, unless that is below ours.
#[must_use]
pub fn lock_taker(inode: &Facts) -> Option<Pid> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    parse_locks(&locks, inode)
}

fn parse_stat(line: &str) -> Option<Stat> {
    // The second field is the program's name in parentheses, and it may hold
    // blanks and parentheses itself: the last `)` ends it.
    let (_, rest) = line.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    Some(Stat {
        zombie: matches!(state, "Z" | "X" | "x"),
        // The state is field 3, the start time is field 22.
        start_time: fields.nth(18)?.parse().ok()?,
    })
}

fn parse_locks(locks: &str, inode: &Facts) -> Option<Pid> {
    let (major, minor) = (libc::major(inode.dev), libc::minor(inode.dev));
    let wanted = format!("{major:02x}:{minor:02x}:{}", inode.ino);
    locks.lines().find_map(|line| {
        let f: Vec<&str> = line.split_whitespace().collect();
        match f.as_slice() {
            [_, "FLOCK", _, "WRITE", pid, what, ..] if *what == wanted => pid.parse().ok(),
            _ => None,
        }
    })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_start_time_is_found_behind_any_program_name() {
        let tail = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        for name in ["sh", "a b", ") S 1 (", "((", "é"] {
            let stat = parse_stat(&format!("77 ({name}) {tail}")).expect("a whole line");
            assert_eq!((stat.zombie, stat.start_time), (false, 4242), "{name}");
        }
        assert_eq!(parse_stat("77 (sh) S 1 2"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn this_process_can_be_described() {
        assert!(stat(Pid::own()).is_some_and(|s| !s.zombie && s.start_time > 0));
        assert_eq!(user(Pid::own()), Some(User::effective()));
        assert!(boot_id().is_some_and(|id| id.len() == 36));
        assert!(pid_namespace().is_some_and(|ino| ino > 0));
    }

    #[test]
    fn a_dead_child_nobody_reaped_is_a_zombie() {
        let mut child = Command::new("true").spawn().expect("true is there");
        let pid = Pid::new(child.id()).expect("a child has a pid");
        let handle = super::super::pid::PidFd::open(pid).expect("it is not reaped yet");
        let ended = handle.ended(std::time::Duration::from_secs(60));
        assert!(ended.expect("poll works"));
        assert!(stat(pid).is_some_and(|s| s.zombie));
        child.wait().expect("it has ended");
        assert_eq!(stat(pid), None);
    }

    #[test]
    fn the_taker_of_a_lock_is_the_writer_on_that_inode() {
        let inode = Facts {
            dev: libc::makedev(0xfe, 1),
            ino: 77,
            links: 1,
            owner: 0,
            mode: 0,
            size: 0,
            kind: super::super::file::Kind::Directory,
        };
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:01:77 0 EOF\n\
                     2: FLOCK  ADVISORY  READ 12 fe:01:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 fe:01:78 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 14 fe:01:77 0 EOF\n";
        assert_eq!(parse_locks(locks, &inode), Pid::new(14));
        assert_eq!(parse_locks("5: -> FLOCK ADVISORY WRITE", &inode), None);
    }
}
