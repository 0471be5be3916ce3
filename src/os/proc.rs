//! What `/proc` tells about processes and locks. All of it may be missing
//! (another user's process under `hidepid`, a sandbox without `/proc`), so
//! everything is an `Option`, and `None` must never be read as "the same".

use super::file::Facts;
use super::pid::{Pid, User};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// What `/proc/PID/stat` says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Its pid.
    pub pid: Pid,
    /// Whether it has ended and only waits to be reaped.
    pub zombie: bool,
    /// Its parent; 0 when that is outside of this pid namespace.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// Its session.
    pub session: u32,
    /// When it started, in clock ticks after the machine did: with the pid it
    /// names a process within one [`PidSpace`].
    pub start_time: u64,
}

impl Stat {
    /// Of a process; `None` when there is none to be seen.
    #[must_use]
    pub fn of(pid: Pid) -> Option<Stat> {
        Stat::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Of this process.
    #[must_use]
    pub fn of_self() -> Option<Stat> {
        Stat::of(Pid::own())
    }

    /// Of every process that can be seen.
    pub fn all() -> impl Iterator<Item = Stat> {
        fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| Stat::of(entry.ok()?.file_name().to_str()?.parse().ok()?))
    }

    /// From the line. Allocates nothing: it is used between fork and exec too.
    pub(super) fn parse(line: &[u8]) -> Option<Stat> {
        // The second field is the program's name in parentheses, and it may hold
        // blanks, parentheses and any other bytes: the last `)` ends it.
        let pid = line.split(|b| *b == b' ').next()?;
        let rest = line.rsplit(|b| *b == b')').next()?;
        let mut fields = str::from_utf8(rest).ok()?.split_ascii_whitespace();
        let state = fields.next()?;
        Some(Stat {
            pid: str::from_utf8(pid).ok()?.parse().ok()?,
            zombie: matches!(state, "Z" | "X" | "x"),
            // Fields are counted from 1, with the state as the third.
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            session: fields.next()?.parse().ok()?,
            start_time: fields.nth(15)?.parse().ok()?,
        })
    }
}

/// The command line of the process that leads the group in front in the terminal of `pid`.
/// What is not UTF-8 in it is replaced.
#[must_use]
pub fn foreground(pid: Pid) -> Option<Vec<String>> {
    let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let rest = line.rsplit(|b| *b == b')').next()?;
    // After the name: state, parent, group, session, terminal, the group in front.
    let mut fields = str::from_utf8(rest).ok()?.split_ascii_whitespace().skip(5);
    let leader: u32 = fields.next()?.parse().ok()?;
    let words = fs::read(format!("/proc/{leader}/cmdline")).ok()?;
    let words = words.strip_suffix(b"\0").unwrap_or(&words);
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let words: Vec<String> = words.split(|b| *b == 0).map(text).collect();
    (words != [""]).then_some(words)
}

/// Whether `/proc` is mounted and tells this process about itself.
#[must_use]
pub fn is_mounted() -> bool {
    Stat::of_self().is_some()
}

/// Whether the process that had this pid and this start time is there and has
/// not ended. Another one with its pid is not it, and zombies are not alive.
#[must_use]
pub fn lives(pid: Pid, start_time: u64) -> bool {
    Stat::of(pid).is_some_and(|s| s.start_time == start_time && !s.zombie)
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

/// The name this machine, or this container, goes by.
#[must_use]
pub fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_string()).filter(|name| !name.is_empty())
}

/// What tells one run of the system, and one container on it, from another: a
/// pid means something only within one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PidSpace {
    /// As [`boot_id`].
    pub boot_id: String,
    /// As [`pid_namespace`].
    pub pid_ns: u64,
}

impl PidSpace {
    /// Where this process runs.
    #[must_use]
    pub fn here() -> Option<PidSpace> {
        Some(PidSpace {
            boot_id: boot_id()?,
            pid_ns: pid_namespace()?,
        })
    }
}

/// Who took the exclusive `flock` on an inode, as `/proc/locks` has it. Only a
/// hint for people: it names who took the lock, who may have handed it on, and
/// it does not list locks taken in another pid namespace, unless that is below ours.
#[must_use]
pub fn lock_taker(inode: &Facts) -> Option<Pid> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    parse_locks(&locks, inode)
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
    fn the_fields_are_found_behind_any_program_name() {
        let tail = b"S 1 76 75 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        let names: [&[u8]; 6] = [
            b"sh",
            b"a b",
            b") S 1 (",
            b"((",
            "\u{e9}".as_bytes(),
            b"\xff",
        ];
        for name in names {
            let line = [b"77 (", name, b") ", &tail[..]].concat();
            let stat = Stat {
                pid: Pid::new(77).expect("not 0"),
                zombie: false,
                parent: 1,
                group: 76,
                session: 75,
                start_time: 4242,
            };
            let name = name.escape_ascii();
            assert_eq!(Stat::parse(&line), Some(stat), "{name}");
        }
        for short in [&b"77 (sh) S 1 2"[..], b"77 (sh", b""] {
            assert_eq!(Stat::parse(short), None);
        }
    }

    #[test]
    fn this_process_can_be_described() {
        let me = Stat::of_self().expect("/proc is there");
        assert!(me.pid == Pid::own() && me.start_time > 0);
        assert!(Stat::all().any(|s| s.pid == me.pid));
        assert!(lives(me.pid, me.start_time));
        assert!(!lives(me.pid, me.start_time + 1), "another with its pid");
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
        let stat = Stat::of(pid).expect("it is not reaped yet");
        assert!(stat.zombie);
        assert!(!lives(pid, stat.start_time));
        child.wait().expect("it has ended");
        assert_eq!(Stat::of(pid), None);
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
