//! A machine on which one system call takes a minute.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// It lasts until this is dropped.
pub struct Slowness(Child);

impl Drop for Slowness {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Slowness {
    /// Comes over the calls `call` of a process and of what it starts from now on;
    /// `None`, and said so, where that cannot be done.
    pub fn over(pid: u32, call: &str, test: &str) -> Option<Slowness> {
        let strace = Command::new("strace")
            .args([
                "-f",
                "-qq",
                "-o",
                "/dev/null",
                "-e",
                &format!("trace={call}"),
            ])
            .args(["-e", &format!("inject={call}:delay_enter=60000000"), "-p"])
            .arg(pid.to_string())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut strace) = strace else {
            println!("{test}: skipped, since there is no strace here");
            return None;
        };
        // Each thread is attached to by itself.
        let traced = || {
            let threads = fs::read_dir(format!("/proc/{pid}/task"));
            let mut threads = threads.into_iter().flatten().flatten();
            threads.all(|thread| {
                let status = fs::read_to_string(thread.path().join("status"));
                !status.unwrap_or_default().contains("TracerPid:\t0")
            })
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !traced() {
            if strace.try_wait().is_ok_and(|ended| ended.is_some()) {
                let why = strace.stderr.take().map(BufReader::new);
                let why = why.and_then(|r| r.lines().next()?.ok()).unwrap_or_default();
                println!("{test}: skipped, since nothing can be traced here: {why}");
                return None;
            }
            assert!(Instant::now() < deadline, "strace does not attach");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(Slowness(strace))
    }
}
