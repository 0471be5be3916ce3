//! How a system call can fail that is not the program's own fault.

use super::traced::{Act, Call};
use nix::errno::Errno;

/// The ways in which this one can; a write also by being short.
pub fn failures(call: &Call) -> Vec<Act> {
    // A pair of sockets within the machine, as the standard library has for a new process, is not reset.
    let errors: &[Errno] = match call.name {
        "sendto" | "recvfrom" if !call.is_network() => &[],
        // It is on no disk that could be full or broken.
        "write" if call.is_on("anon_inode:[eventfd]") => {
            return vec![Act::Fail(Errno::EINTR as i32)];
        }
        name => errors(name),
    };
    let errors = errors.iter().map(|errno| Act::Fail(*errno as i32));
    let short = (call.name == "write").then_some(Act::Shorten);
    errors.chain(short).collect()
}

fn errors(name: &str) -> &'static [Errno] {
    match name {
        "openat" | "open" => &[
            Errno::EMFILE,
            Errno::EIO,
            Errno::ENOSPC,
            Errno::EROFS,
            Errno::EINTR,
        ],
        "write" | "pwrite64" => &[Errno::ENOSPC, Errno::EIO, Errno::EDQUOT, Errno::EINTR],
        "fsync" | "syncfs" | "fdatasync" => &[Errno::EIO, Errno::ENOSPC, Errno::EDQUOT],
        "rename" | "mkdir" | "link" | "ftruncate" => &[Errno::EIO, Errno::ENOSPC, Errno::EROFS],
        "unlink" | "rmdir" => &[Errno::EIO, Errno::EROFS],
        "read" | "getdents64" | "pread64" => &[Errno::EIO, Errno::EINTR],
        "flock" => &[Errno::EINTR, Errno::ENOLCK],
        "statx" | "fstat" | "newfstatat" | "stat" | "lstat" | "fstatfs" | "statfs" => &[Errno::EIO],
        "socket" | "pipe2" | "eventfd2" | "fcntl" | "dup" => &[Errno::EMFILE],
        "clone3" | "clone" => &[Errno::EAGAIN],
        "connect" => &[Errno::ECONNREFUSED, Errno::EINTR],
        "sendto" | "recvfrom" => &[Errno::ECONNRESET, Errno::EINTR],
        "poll" | "ppoll" | "wait4" | "waitid" => &[Errno::EINTR],
        "pidfd_open" => &[Errno::EMFILE, Errno::ENOSYS],
        _ => &[],
    }
}
