//! Calling the `tmux` program: one client, one answer, never for ever.
//!
//! The server is our own, at a socket whose path is explicit; no file of the
//! user's configures it, and no `$TMUX` leads us to another. The first call
//! that makes a session starts it, and it goes its own way: `tmux` puts it into
//! a session of its own, so it outlives the poller.

use crate::error::Error;
use crate::mutant;
use crate::os::pid::Group;
use crate::os::wait::{self, For};
use crate::os::{process, uninterrupted};
use crate::sinks::child::{self, Countdown, Feed, Process};
use std::fs::{DirBuilder, Metadata};
use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long a call may take. A server that answers later may still do what it
/// was asked (it reads its clients' words when it wakes up): then nobody knows.
const LONGEST: Duration = Duration::from_secs(5);

/// The most that is read of an answer.
const LONGEST_ANSWER: usize = 4 << 20;

/// The most all the words of a call may take; tmux itself stops at 16 KiB.
const LONGEST_WORDS: usize = 15_000;

/// A tmux server, wherever it is in its life.
#[derive(Debug, Clone)]
pub struct Client {
    /// Its socket; absolute.
    pub socket: PathBuf,
    /// Environment variables it must not inherit.
    pub secret_vars: Vec<String>,
}

/// A program that has to do with our server, and not with another tmux that the poller
/// may have been started in.
pub(super) fn foreign(program: &str, secret_vars: &[String]) -> Command {
    let mut command = child::foreign(program, secret_vars);
    command.env_remove("TMUX").env_remove("TMUX_PANE");
    command
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Called {
    /// It was done; what it printed.
    Done(String),
    /// It was refused, or part of it; what it printed, and why.
    Refused(String, String),
    /// There is no server at the socket.
    NoServer,
    /// It does not answer, or not so that it could be heard. What it was asked, it may do yet.
    Silent,
    /// The client could not be run: nothing was asked.
    NotRun(String),
}

impl Client {
    /// Calls with `words`, and `input` on standard input.
    #[must_use]
    pub fn call(&self, words: &[&str], input: &[u8]) -> Called {
        if words.iter().map(|w| w.len() + 1).sum::<usize>() > LONGEST_WORDS {
            return Called::NotRun("the command is too long for tmux".into());
        }
        match self.run(words, input) {
            Ok(called) => called,
            Err(e) => Called::NotRun(Error::new("cannot run tmux", e).to_string()),
        }
    }

    fn run(&self, words: &[&str], input: &[u8]) -> io::Result<Called> {
        let mut command = foreign("tmux", &self.secret_vars);
        // Characters are UTF-8, whatever the locale says.
        command.args(["-u", "-f", "/dev/null", "-S"]).arg(
            match mutant::is("tmux-socket-by-the-environment") {
                true => PathBuf::from(std::env::var_os("TMUX_TMPDIR").unwrap_or_default())
                    .join("agent.sock"),
                false => self.socket.clone(),
            },
        );
        // The server stays in the directory it was started in.
        command.args(words).current_dir("/");
        heard(command, input)
    }

    /// Makes the socket's directory, if need be; it must belong to us alone.
    ///
    /// # Errors
    /// When it cannot be made, or somebody else could put a server of theirs there.
    pub fn prepare(&self) -> Result<(), String> {
        let dir = self.dir();
        if let Err(e) = DirBuilder::new().recursive(true).mode(0o700).create(dir) {
            return Err(Error::new(format!("cannot make {}", dir.display()), e).to_string());
        }
        self.is_ours()
    }

    /// Whether the socket's directory, if it is there, belongs to us alone.
    ///
    /// # Errors
    /// Why it does not.
    pub fn is_ours(&self) -> Result<(), String> {
        let dir = self.dir();
        let me = crate::os::pid::User::effective();
        let ours = |meta: &Metadata| meta.uid() == me.0;
        match dir.metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound && dir.symlink_metadata().is_err() => {
                return Ok(());
            }
            Err(e) => return Err(Error::new(dir.display().to_string(), e).to_string()),
            Ok(meta) if !meta.is_dir() => {
                return Err(format!("{} is not a directory", dir.display()));
            }
            Ok(meta) if !ours(&meta) || meta.mode() & 0o022 != 0 => {
                return Err(format!(
                    "others can write to {}, the directory of the tmux socket",
                    dir.display()
                ));
            }
            Ok(_) => {}
        }
        match self.socket.symlink_metadata() {
            Ok(meta) if !ours(&meta) => Err(format!(
                "{} belongs to somebody else",
                self.socket.display()
            )),
            Ok(meta) if !meta.file_type().is_socket() && !meta.is_symlink() => {
                Err(format!("{} is not a socket", self.socket.display()))
            }
            _ => Ok(()),
        }
    }

    fn dir(&self) -> &Path {
        self.socket.parent().unwrap_or(Path::new("/"))
    }
}

/// Runs a `tmux` and hears what it says, but not for ever.
fn heard(mut command: Command, input: &[u8]) -> io::Result<Called> {
    let (mut stdout, to_stdout) = io::pipe()?;
    let (mut stderr, to_stderr) = io::pipe()?;
    command
        .stdin(match input {
            [] => Stdio::null(),
            _ => Stdio::piped(),
        })
        .stdout(to_stdout)
        .stderr(to_stderr);
    process::lead_a_session(&mut command);
    let (mut client, stdin) = Process::start(&mut command)?;
    // Our copies of the pipes' writing ends, or they would never end.
    drop(command);
    let mut feed = Feed::new(stdin, input);
    let (mut out, mut err) = (Some(&mut stdout), Some(&mut stderr));
    let (mut said, mut complaint) = (Vec::new(), Vec::new());
    let (mut left, mut broken) = (Countdown::of(LONGEST), false);
    let status = loop {
        if out.is_none()
            && err.is_none()
            && let Some(status) = client.ended()
        {
            break status;
        }
        if left.is_over() || broken {
            Group::led_by(client.pid()).inspect(|group| group.end());
            return Ok(Called::Silent);
        }
        let reading = |pipe: &Option<&mut PipeReader>| pipe.is_some();
        let (reads_out, reads_err) = (reading(&out), reading(&err));
        let (end, slice) = client.ending();
        let [_, feeds, has_out, has_err] = wait::ready(
            [
                end.filter(|_| !reads_out && !reads_err),
                feed.ready(),
                out.as_ref().map(|p| (p.as_fd(), For::Reading)),
                err.as_ref().map(|p| (p.as_fd(), For::Reading)),
            ],
            Some(slice.unwrap_or(LONGEST).min(left.slice())),
        );
        if feeds {
            feed.push();
        }
        // Half an answer must not be taken for a whole one.
        broken |= has_out && take(&mut out, &mut said).is_err();
        broken |= has_err && take(&mut err, &mut complaint).is_err();
    };
    let said = String::from_utf8_lossy(&said).into_owned();
    let complaint = String::from_utf8_lossy(&complaint).trim().to_string();
    Ok(match status {
        Some(status) if status.success() && feed.is_complete() => Called::Done(said),
        _ if is_nobody(&complaint) => Called::NoServer,
        _ => Called::Refused(said, complaint),
    })
}

/// Reads once from a pipe that has something to say, and lets go of it at its end.
fn take(pipe: &mut Option<&mut PipeReader>, into: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    let Some(open) = pipe else { return Ok(()) };
    match uninterrupted(|| open.read(&mut buffer))? {
        0 => *pipe = None,
        n if into.len() < LONGEST_ANSWER => into.extend_from_slice(&buffer[..n]),
        _ => return Err(io::ErrorKind::FileTooLarge.into()),
    }
    Ok(())
}

/// Whether a complaint says that nobody listens at the socket.
fn is_nobody(complaint: &str) -> bool {
    complaint.starts_with("no server running on ")
        || complaint.starts_with("server exited")
        || complaint.starts_with("lost server")
        || (complaint.starts_with("error connecting to ")
            && (complaint.ends_with("(No such file or directory)")
                || complaint.ends_with("(Connection refused)")))
}

/// What `tmux -V` says, `tmux 3.3a`.
///
/// # Errors
/// When it cannot be run.
pub fn version() -> Result<String, String> {
    let mut command = foreign("tmux", &[]);
    command.arg("-V");
    match heard(command, &[]) {
        Ok(Called::Done(said)) => Ok(crate::terminal::cut(said.trim(), 40)),
        Ok(Called::Silent) => Err("tmux does not answer".into()),
        Ok(_) => Err("tmux does not say which version it is".into()),
        Err(e) => Err(Error::new("cannot run tmux", e).to_string()),
    }
}

/// What is known against a version of tmux.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It lacks what we need.
    TooOld(String),
    /// It does, but.
    Known(String),
}

/// What is known against the version that [`version`] told.
#[must_use]
pub fn faults(version: &str) -> Option<Fault> {
    let digits = |c: char| !c.is_ascii_digit();
    let mut numbers = version.trim_start_matches(digits).split(digits);
    let mut next = || numbers.next().and_then(|n| n.parse::<u32>().ok());
    // A build from its sources may have no number at all.
    let (major, minor) = (next()?, next().unwrap_or(0));
    match (major, minor) {
        (0..=2, _) | (3, 0..=1) => Some(Fault::TooOld(format!(
            "{version} is too old: 3.2 or later is needed"
        ))),
        (3, 2..=3) => Some(Fault::Known(format!(
            "{version} crashes, and all its sessions end, when something is pasted into a pane whose program has ended; idempoll does not do that, people and other programs may; 3.4 is better"
        ))),
        _ => None,
    }
}

/// A word as tmux takes it: one that ends in `;` would end the command there.
#[must_use]
pub fn word(word: &str) -> String {
    match word.strip_suffix(';') {
        Some(rest) => format!("{rest}\\;"),
        None => word.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_versions_are_known() {
        let old = |v: &str| matches!(faults(v), Some(Fault::TooOld(_)));
        let faulty = |v: &str| matches!(faults(v), Some(Fault::Known(_)));
        assert!(old("tmux 1.8") && old("tmux 2.9a") && old("tmux 3.1c"));
        assert!(faulty("tmux 3.2a") && faulty("tmux 3.3a"));
        for fine in [
            "tmux 3.4",
            "tmux 3.7",
            "tmux next-3.6",
            "tmux master",
            "tmux 4.0",
        ] {
            assert_eq!(faults(fine), None, "{fine}");
        }
    }

    #[test]
    fn a_word_that_would_end_the_command_does_not() {
        assert_eq!(word("a;"), "a\\;");
        assert_eq!(word(";"), "\\;");
        assert_eq!(word("a;b"), "a;b");
        assert_eq!(word("a\\;"), "a\\\\;");
    }
}
