//! A program whose every system call is seen before it is made, over all of its threads and in one
//! order, and can be its last, or fail.
//!
//! Only the threads of the program itself are seen. What it forks is not, and lives on when it is killed.

use crate::world::program::patience;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;

/// A system call that is about to be made.
pub struct Call {
    /// Which one of the program's it is, from 1.
    pub number: u64,
    pub name: &'static str,
    /// The program's pid.
    pub pid: Pid,
    thread: Pid,
    args: [u64; 3],
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Act {
    /// It is made.
    Go,
    /// It is not: the program is killed before.
    Kill,
    /// It is made after the program was sent this signal.
    Signal(Signal),
    /// It is not made, and fails with this errno.
    Fail(i32),
    /// It is made with a length of one byte.
    Shorten,
}

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ended {
    /// Its exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// How many calls were seen.
    pub calls: u64,
    /// It was killed at last, since it did not end.
    pub hung: bool,
}

/// The calls that can matter to anybody else: those on files, processes and sockets, and
/// what waits for them.
macro_rules! names {
    ($($name:ident $call:ident)*) => {
        fn name(nr: i64) -> Option<&'static str> {
            $(if nr == nix::libc::$call { return Some(stringify!($name)); })*
            None
        }
    };
}

names! {
    read SYS_read write SYS_write open SYS_open close SYS_close stat SYS_stat fstat SYS_fstat lstat SYS_lstat
    poll SYS_poll lseek SYS_lseek ioctl SYS_ioctl pread64 SYS_pread64 pwrite64 SYS_pwrite64 readv SYS_readv writev SYS_writev
    access SYS_access pipe SYS_pipe dup SYS_dup dup2 SYS_dup2 socket SYS_socket connect SYS_connect accept SYS_accept
    sendto SYS_sendto recvfrom SYS_recvfrom sendmsg SYS_sendmsg recvmsg SYS_recvmsg shutdown SYS_shutdown bind SYS_bind
    listen SYS_listen getsockname SYS_getsockname getpeername SYS_getpeername socketpair SYS_socketpair
    setsockopt SYS_setsockopt getsockopt SYS_getsockopt clone SYS_clone fork SYS_fork vfork SYS_vfork execve SYS_execve
    exit SYS_exit wait4 SYS_wait4 kill SYS_kill fcntl SYS_fcntl flock SYS_flock fsync SYS_fsync fdatasync SYS_fdatasync
    truncate SYS_truncate ftruncate SYS_ftruncate getdents SYS_getdents getcwd SYS_getcwd chdir SYS_chdir rename SYS_rename
    mkdir SYS_mkdir rmdir SYS_rmdir creat SYS_creat link SYS_link unlink SYS_unlink symlink SYS_symlink
    readlink SYS_readlink chmod SYS_chmod fchmod SYS_fchmod chown SYS_chown fchown SYS_fchown umask SYS_umask
    statfs SYS_statfs fstatfs SYS_fstatfs prctl SYS_prctl setrlimit SYS_setrlimit sync SYS_sync tkill SYS_tkill
    getdents64 SYS_getdents64 exit_group SYS_exit_group waitid SYS_waitid openat SYS_openat mkdirat SYS_mkdirat
    newfstatat SYS_newfstatat unlinkat SYS_unlinkat renameat SYS_renameat linkat SYS_linkat fchmodat SYS_fchmodat
    faccessat SYS_faccessat pselect6 SYS_pselect6 ppoll SYS_ppoll fallocate SYS_fallocate accept4 SYS_accept4
    eventfd2 SYS_eventfd2 dup3 SYS_dup3 pipe2 SYS_pipe2 syncfs SYS_syncfs renameat2 SYS_renameat2 statx SYS_statx
    pidfd_send_signal SYS_pidfd_send_signal pidfd_open SYS_pidfd_open clone3 SYS_clone3 close_range SYS_close_range
    openat2 SYS_openat2 faccessat2 SYS_faccessat2 copy_file_range SYS_copy_file_range utimensat SYS_utimensat
    epoll_wait SYS_epoll_wait setsid SYS_setsid setpgid SYS_setpgid
}

impl Call {
    /// The call and what it is about, as far as that can be told: `rename(state/items/…)`.
    pub fn what(&self) -> String {
        let about = match self.name {
            "openat" | "newfstatat" | "statx" | "unlinkat" | "mkdirat" | "linkat" | "renameat"
            | "renameat2" => self.text(self.args[1]),
            "open" | "stat" | "lstat" | "mkdir" | "rmdir" | "unlink" | "readlink" | "chmod"
            | "access" | "statfs" | "execve" => self.text(self.args[0]),
            "rename" | "link" | "symlink" => self.text(self.args[1]),
            "read" | "write" | "close" | "fsync" | "fdatasync" | "flock" | "fcntl"
            | "getdents64" | "ftruncate" | "fstat" | "fstatfs" | "syncfs" | "connect"
            | "sendto" | "recvfrom" => self.descriptor(),
            _ => String::new(),
        };
        format!("{}({about})", self.name)
    }

    /// Whether its descriptor is of what the kernel calls so.
    pub fn is_on(&self, name: &str) -> bool {
        self.descriptor() == name
    }

    /// What its first argument is open on, or its number.
    pub fn descriptor(&self) -> String {
        let fd = fs::read_link(format!("/proc/{}/fd/{}", self.thread, self.args[0]));
        fd.map_or_else(|_| self.args[0].to_string(), |to| to.display().to_string())
    }

    /// Whether it is about a connection over TCP.
    pub fn is_network(&self) -> bool {
        let to = self.descriptor();
        let inode = to
            .strip_prefix("socket:[")
            .and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| {
            ["tcp", "tcp6"].iter().any(|table| {
                let table = fs::read_to_string(format!("/proc/{}/net/{table}", self.thread));
                let table = table.unwrap_or_default();
                table
                    .lines()
                    .any(|line| line.split_whitespace().nth(9) == Some(inode))
            })
        })
    }

    /// A text in the memory of the program.
    fn text(&self, at: u64) -> String {
        let mut bytes = vec![0; 400];
        let read = File::open(format!("/proc/{}/mem", self.thread))
            .and_then(|memory| memory.read_at(&mut bytes, at))
            .unwrap_or(0);
        bytes.truncate(read);
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(read);
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

/// Runs `command` to its end, or as long as a test waits, and asks `act` before each of its calls.
#[allow(clippy::zombie_processes, reason = "whoever traces it sees its end")]
pub fn run(command: &Command, mut act: impl FnMut(&Call) -> Act) -> Ended {
    // It waits, stopped, until it is seen.
    let mut held = Command::new("sh");
    held.args(["-c", r#"kill -STOP $$; exec "$@""#, "sh"])
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    if let Some(dir) = command.get_current_dir() {
        held.current_dir(dir);
        let log = File::options()
            .create(true)
            .append(true)
            .open(dir.join("stderr.log"));
        held.stderr(log.expect("a log"));
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => held.env(name, value),
            None => held.env_remove(name),
        };
    }
    let child = held.spawn().expect("sh");
    let main = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    let stopped = waitpid(main, Some(WaitPidFlag::WUNTRACED));
    assert!(
        matches!(stopped, Ok(WaitStatus::Stopped(..))),
        "{stopped:?}"
    );
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(main, options).expect("ptrace");
    kill(main, Signal::SIGCONT).expect("our child");

    // It may hang, and then all of this would.
    let (over, wait) = mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        let hung = wait.recv_timeout(patience()) == Err(mpsc::RecvTimeoutError::Timeout);
        if hung {
            println!("{main} hangs: {}", standing(main));
            let _ = kill(main, Signal::SIGKILL);
        }
        hung
    });
    let ended = watch(main, &mut act);
    drop(over);
    Ended {
        hung: guard.join().expect("it only waits"),
        ..ended
    }
}

/// What each thread of a process is at: its name, its state, its call.
fn standing(pid: Pid) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let each = tasks.into_iter().flatten().flatten().map(|task| {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let status = read("status");
        let state = status.lines().find(|line| line.starts_with("State"));
        let (name, call) = (read("comm"), read("syscall"));
        format!(
            "{} {} {}; ",
            name.trim(),
            state.unwrap_or_default(),
            call.trim()
        )
    });
    each.collect()
}

fn watch(main: Pid, act: &mut impl FnMut(&Call) -> Act) -> Ended {
    let mut calls = 0;
    let mut code = None;
    let mut begun = false;
    let mut failing: BTreeMap<Pid, i32> = BTreeMap::new();
    loop {
        // Of this thread's alone: other tests have children too.
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        let status = match waitpid(None::<Pid>, Some(flags)) {
            Ok(status) => status,
            Err(nix::errno::Errno::ECHILD) => {
                return Ended {
                    code,
                    calls,
                    hung: false,
                };
            }
            Err(nix::errno::Errno::EINTR) => continue,
            Err(e) => panic!("waitpid: {e}"),
        };
        // A thread that was killed meanwhile cannot be asked or told anything: whatever fails
        // here fails for that, and its end is reported next.
        match status {
            WaitStatus::Exited(pid, ended) if pid == main => code = Some(ended),
            WaitStatus::PtraceEvent(pid, _, event) => {
                begun |= event == nix::libc::PTRACE_EVENT_EXEC;
                let _ = ptrace::syscall(pid, None);
            }
            WaitStatus::Stopped(pid, signal) => {
                let _ = ptrace::syscall(pid, signal);
            }
            WaitStatus::PtraceSyscall(pid) => {
                let entry = ptrace::syscall_info(pid)
                    .is_ok_and(|info| info.op == nix::libc::PTRACE_SYSCALL_INFO_ENTRY);
                if let Some(errno) = failing.remove(&pid) {
                    set(pid, |regs| regs.rax = (-i64::from(errno)).cast_unsigned());
                } else if entry
                    && begun
                    && let Ok(regs) = ptrace::getregs(pid)
                    && let Some(name) = name(regs.orig_rax.cast_signed())
                {
                    calls += 1;
                    let call = Call {
                        number: calls,
                        name,
                        pid: main,
                        thread: pid,
                        args: [regs.rdi, regs.rsi, regs.rdx],
                    };
                    match act(&call) {
                        Act::Go => {}
                        Act::Kill => {
                            let _ = kill(main, Signal::SIGKILL);
                        }
                        Act::Signal(signal) => {
                            let _ = kill(main, signal);
                        }
                        Act::Shorten => set(pid, |regs| regs.rdx = regs.rdx.min(1)),
                        Act::Fail(errno) => {
                            set(pid, |regs| regs.orig_rax = u64::MAX);
                            failing.insert(pid, errno);
                        }
                    }
                }
                let _ = ptrace::syscall(pid, None);
            }
            _ => {}
        }
    }
}

fn set(pid: Pid, change: impl FnOnce(&mut nix::libc::user_regs_struct)) {
    if let Ok(mut regs) = ptrace::getregs(pid) {
        change(&mut regs);
        let _ = ptrace::setregs(pid, regs);
    }
}
