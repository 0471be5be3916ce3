//! What a process is given on its way from fork to exec, and does to itself.

use super::proc::Stat;
use super::{check, signals};
use crate::mutant;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has the process started by `command` lead a session of its own from before
/// its first instruction, so that no terminal's signal ever reaches it, with
/// every signal at its default meaning and none held back: what we ignore, or
/// were born ignoring, is no business of what we start.
pub fn lead_a_session(command: &mut Command) {
    let anew = !mutant::is("children-inherit-signals");
    let begin = move || {
        // The session first: what reaches our group until then meets our own
        // handlers, which in a copy of us do nothing, and not a default meaning.
        // SAFETY: setsid takes nothing and is async-signal-safe.
        check(unsafe { libc::setsid() })?;
        if anew {
            signals::begin_anew();
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes async-signal-safe calls alone and does not allocate.
    unsafe { command.pre_exec(begin) };
}

/// Has the process started by `command` lead a process group of its own, with every signal
/// at its default meaning and none held back.
pub fn lead_a_group(command: &mut Command) {
    command.process_group(0);
    let begin = || {
        signals::begin_anew();
        Ok(())
    };
    // SAFETY: between fork and exec it makes async-signal-safe calls alone and does not allocate.
    unsafe { command.pre_exec(begin) };
}

/// What a service manager told the poller about itself and is nobody else's business.
const OF_THE_POLLER: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// Has the process started by `command` know nothing of the service manager that started us, so
/// that it does not speak to it in our name.
pub fn is_no_service(command: &mut Command) {
    for var in OF_THE_POLLER {
        if !mutant::is("notify-socket-inherited") {
            command.env_remove(var);
        }
    }
}

/// Has the process started by `command` killed when the thread that starts it
/// ends, with its process at the latest. For what is of no use without us.
pub fn end_with_us(command: &mut Command) {
    let bind = || {
        let signal = libc::c_ulong::from(libc::SIGKILL.unsigned_abs());
        // SAFETY: this operation takes a number, and is async-signal-safe.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) }).map(drop)
    };
    // SAFETY: between fork and exec it makes one async-signal-safe call and does not allocate.
    unsafe { command.pre_exec(bind) };
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
        let me = Stat::parse(&stat[..n]).ok_or(io::ErrorKind::InvalidData)?;
        line.clear();
        line.extend_from_slice(&before);
        write!(line, r#"{{"pid":{},"start":{}}}"#, me.pid, me.start_time)?;
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
    check(unsafe { libc::dup2(fd.as_raw_fd(), 1) }).map(drop)
}

/// Marks every descriptor from 3 on as close-on-exec, those we were born with
/// too, so that nothing we start has any of them.
pub fn close_on_exec_from_3() {
    // SAFETY: with this flag close_range closes nothing; it takes no pointers.
    let marked = check(unsafe {
        libc::syscall(
            libc::SYS_close_range,
            libc::c_ulong::from(3u32),
            libc::c_ulong::from(u32::MAX),
            libc::c_ulong::from(libc::CLOSE_RANGE_CLOEXEC),
        )
    });
    if marked.is_err() {
        // A kernel before 5.11, or a sandbox that does not know the call.
        close_each_on_exec();
    }
}

fn close_each_on_exec() {
    let listed = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let open = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for fd in open.filter(|fd: &libc::c_int| *fd > 2) {
        // SAFETY: it takes numbers. The one descriptor we made for this is close-on-exec
        // already; one that is closed meanwhile is refused.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}
