//! What a run of a command leaves behind: its receipt.
//!
//! # Disk format
//!
//! `RUNS/<record slug>/<sink>/<seq>.<attempt>.json`, mode 0600: up to three
//! lines, each a JSON object, each appended by one write.
//!
//! ```text
//! {"state":"accepted","version":1,"delivery_id":"dir:inbox#7/opened","attempt":1,
//!  "runner":{"pid":812,"start":4711},"boot_id":"…","pid_ns":4026531836}
//! {"state":"started","started_at":"2026-08-05T10:00:00.000Z","command":{"pid":813,"start":4712}}
//! {"state":"ended","ended_at":"…","outcome":"failed","reason":"exit status 3","exit":3,"output":"…"}
//! ```
//!
//! The file is created empty and `flock`ed by the poller, and handed to the
//! runner as its standard output: the lock belongs to the open file, so it is
//! held without a gap from before there is a runner until the runner is gone.
//! Locked is running; free and ended is settled; free and not ended is
//! *missing*, unless somebody killed the runner alone and its command lives on.
//! A line without its newline does not count, so a torn write reads as none.
//! `start` is in clock ticks since boot, as `/proc/PID/stat` has it.
//!
//! Where the file system has no `flock` (or it may hang there), the runner is known
//! by its process alone: alive and not ended is running. So that it is known from
//! the start, the first line is not left to the runner: its process writes it between
//! fork and exec, before the poller can have handed over a byte of the order. A poller
//! killed earlier than that leaves a runner that finds its input cut short and begins
//! nothing. What is not seen there is a runner in another pid namespace (a container's).
//! The same look is taken at a receipt that is not locked where it could be: whoever
//! made it may have been unable to.
//!
//! Only the last line is synced, with the directory: a power cut before it
//! ends the command as well, and then nothing is lost by losing the rest.

use crate::engine::delivery::{Delivery, Outcome, Slug};
use crate::engine::time::Time;
use crate::mutant;
use crate::os::file;
use crate::os::flock;
use crate::os::pid::{Group, Pid};
use crate::os::proc::{self, PidSpace, Stat};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The receipt of one try, as far as it got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// What was accepted, and by whom.
    pub accepted: Accepted,
    /// The command, if it was started.
    pub started: Option<Started>,
    /// How it ended, if it did and could say so.
    pub ended: Option<Ended>,
}

/// The first line: a runner has the delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The format, 1.
    pub version: u32,
    /// The delivery id.
    pub delivery_id: String,
    /// Which try this is.
    pub attempt: u32,
    /// The runner, which leads a session of its own.
    pub runner: Process,
    /// The boot the pids belong to.
    pub boot_id: String,
    /// The pid namespace they belong to.
    pub pid_ns: u64,
}

/// The second line, written by the command's own process before it becomes the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// When.
    pub started_at: Time,
    /// The command, which leads a process group of its own.
    pub command: Process,
}

/// The last line: how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// When.
    pub ended_at: Time,
    /// What that means.
    pub outcome: Word,
    /// Why it was not delivered, for the user.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The exit status, if it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// The signal that killed it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// What it printed on stdout and stderr, in that order of time; the middle
    /// of a long output is left out and marked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// How many bytes of the output were left out.
    #[serde(default)]
    pub output_left_out: u64,
}

/// A process: its pid, and when it started so that a recycled pid is not taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The pid.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start: u64,
}

/// What an exit means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// Exit 0.
    Delivered,
    /// Another exit, a signal, the timeout, or it could not be started.
    Failed,
    /// Exit 75.
    Deferred,
}

impl Ended {
    /// What the poller is told.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self.outcome {
            Word::Delivered => Outcome::Delivered,
            Word::Failed => Outcome::Failed {
                reason: self.reason.clone(),
            },
            Word::Deferred => Outcome::not_now(&self.reason),
        }
    }
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(super) enum Line {
    Accepted(Accepted),
    Started(Started),
    Ended(Ended),
}

impl Line {
    /// Appends the line with one write.
    ///
    /// # Errors
    /// When it could not be written whole.
    pub(super) fn append_to(&self, mut file: &File) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        file.write_all(&line)
    }
}

/// More than any receipt of ours can hold (64 KiB of output, six bytes for each at worst).
const LONGEST: u64 = 1 << 20;

/// The directory of a record's receipts for one sink.
#[must_use]
pub fn dir(runs_dir: &Path, slug: &Slug, sink: &str) -> PathBuf {
    runs_dir.join(slug.as_str()).join(sink)
}

/// The tries of delivery `seq` that left a receipt in `dir`, by attempt.
///
/// # Errors
/// When the directory is there and cannot be read.
pub fn tries(dir: &Path, seq: u64) -> io::Result<Vec<(u32, PathBuf)>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut tries = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let attempt = name
            .to_str()
            .and_then(|name| name.strip_suffix(".json")?.split_once('.'))
            .filter(|(number, _)| *number == seq.to_string())
            .and_then(|(_, attempt)| attempt.parse().ok());
        if let Some(attempt) = attempt {
            tries.push((attempt, entry.path()));
        }
    }
    tries.sort_unstable();
    Ok(tries)
}

/// Reads a receipt; `None` when there is none, or not a whole line of it, or
/// when a newer idempoll wrote it. Takes no lock.
#[must_use]
pub fn read(path: &Path) -> Option<Run> {
    let file = file::open_regular(path).ok()?;
    parse(&read_text(&file).ok()?).ok().flatten()
}

/// What the receipts say about a delivery.
#[derive(Debug)]
pub(super) enum State {
    /// Nothing that counts.
    Missing,
    /// Its runner lives, and has this pid if it could be told.
    Running(PathBuf, Option<u32>),
    /// Its runner was killed, and the command goes on without it.
    Orphaned(Group),
    /// It ended.
    Settled(Ended),
}

/// What the receipts in `dir` say about a delivery. Another try than the one
/// asked about counts if it still runs, or was delivered: a ledger put back from
/// an older copy counts tries anew, and the effect is there all the same.
///
/// # Errors
/// When a receipt is there and cannot be read, or a newer idempoll wrote it.
pub(super) fn look(dir: &Path, delivery: &Delivery) -> io::Result<State> {
    let mut own = State::Missing;
    for (attempt, path) in tries(dir, delivery.seq)? {
        match look_at(path, &delivery.id, attempt)? {
            State::Settled(ended) if ended.outcome == Word::Delivered => {
                return Ok(State::Settled(ended));
            }
            State::Settled(ended) if attempt == delivery.attempt => own = State::Settled(ended),
            State::Settled(_) | State::Missing => {}
            running => return Ok(running),
        }
    }
    Ok(own)
}

/// Whether a receipt's runner lives.
pub(super) fn is_running(path: &Path) -> bool {
    let look = |file: File| -> io::Result<bool> {
        Ok(is_locked(&file)? || lives(read_from_start(&file)?.as_ref()))
    };
    file::open_regular(path).and_then(look).unwrap_or(false)
}

/// Whether a receipt is locked; what cannot be, is not.
fn is_locked(file: &File) -> io::Result<bool> {
    match flock::is_held(file.as_fd()) {
        Err(e) if flock::is_unsupported(&e) => Ok(false),
        held => held,
    }
}

/// Whether the runner of what has not ended is a process here that lives.
fn lives(run: Option<&Run>) -> bool {
    ours(run).is_some_and(|run| run.ended.is_none() && run.accepted.runner.lives())
        && !mutant::is("receipt-lock-alone")
}

/// A run whose pids mean something here.
fn ours(run: Option<&Run>) -> Option<&Run> {
    let here = PidSpace::here()?;
    run.filter(|run| (&here.boot_id, here.pid_ns) == (&run.accepted.boot_id, run.accepted.pid_ns))
}

fn look_at(path: PathBuf, delivery_id: &str, attempt: u32) -> io::Result<State> {
    let file = match file::open_regular(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(State::Missing),
        Err(e) => return Err(e),
    };
    // Before the text is read: a runner seen gone has written all it ever will.
    let locked = is_locked(&file)?;
    let mut run = read_from_start(&file)?;
    if let Some(run) = &run
        && (run.accepted.delivery_id != delivery_id || run.accepted.attempt != attempt)
    {
        return Ok(State::Missing);
    }
    loop {
        if locked || lives(run.as_ref()) {
            let pid = ours(run.as_ref()).map(|run| run.accepted.runner.pid);
            return Ok(State::Running(path, pid));
        }
        // One without a lock may have written its end after the text was read and
        // before it was seen gone.
        let again = read_from_start(&file)?;
        if again == run {
            break;
        }
        run = again;
    }
    let orphan = ours(run.as_ref())
        .filter(|run| run.ended.is_none())
        .and_then(orphan);
    Ok(match (orphan, run.and_then(|run| run.ended)) {
        (Some(group), _) => State::Orphaned(group),
        (None, Some(ended)) => State::Settled(ended),
        (None, None) => State::Missing,
    })
}

impl Process {
    fn lives(self) -> bool {
        Pid::new(self.pid).is_some_and(|pid| proc::lives(pid, self.start))
    }
}

/// The process group of a command whose runner is gone, if any of it lives.
fn orphan(run: &Run) -> Option<Group> {
    let leader = run.started.as_ref()?.command;
    let session = run.accepted.runner;
    // While anybody is left in a group or a session, its number is given to no process: one that
    // has it and started at another time shows that the group is not the command's any more.
    let recycled = |p: Process| {
        let now = Pid::new(p.pid).and_then(Stat::of);
        now.is_some_and(|now| now.start_time != p.start) && !mutant::is("group-by-number-alone")
    };
    let member = |s: Stat| s.group == leader.pid && s.session == session.pid && !s.zombie;
    let lives = leader.lives()
        || (!recycled(leader)
            && !recycled(session)
            && Stat::all().any(|s| member(s) && s.start_time >= leader.start));
    Group::led_by(leader.pid).filter(|_| lives)
}

fn read_text(file: &File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text)?;
    Ok(text)
}

/// Takes the whole lines up to the first that is none of ours.
fn parse(text: &[u8]) -> io::Result<Option<Run>> {
    /// What every version's first line has.
    #[derive(Deserialize)]
    struct Format {
        version: u32,
    }
    let mut lines = text
        .split_inclusive(|b| *b == b'\n')
        .filter(|line| line.ends_with(b"\n"));
    let first = lines.next().unwrap_or_default();
    if serde_json::from_slice(first).is_ok_and(|format: Format| format.version > 1) {
        return Err(io::Error::other("a newer idempoll wrote it"));
    }
    let mut run = match serde_json::from_slice(first) {
        Ok(Line::Accepted(accepted)) => Run {
            accepted,
            started: None,
            ended: None,
        },
        _ => return Ok(None),
    };
    let lines = lines.map_while(|line| serde_json::from_slice(line).ok());
    for line in lines {
        match line {
            Line::Accepted(_) => break,
            Line::Started(started) => run.started = Some(started),
            Line::Ended(ended) => run.ended = Some(ended),
        }
    }
    Ok(Some(run))
}

/// Reads it all, wherever the descriptor stands.
fn read_from_start(mut receipt: &File) -> io::Result<Option<Run>> {
    receipt.rewind()?;
    parse(&read_text(receipt)?)
}

/// Whether the first line is there already, through the runner's own descriptor.
pub(super) fn is_accepted(receipt: &File) -> bool {
    matches!(read_from_start(receipt), Ok(Some(_)))
}

/// Whether the command's process has written its line, through the runner's own descriptor.
pub(super) fn is_started(receipt: &File) -> bool {
    matches!(read_from_start(receipt), Ok(Some(run)) if run.started.is_some())
}

/// The first line around the runner's own pid and start, for a process to write about itself.
///
/// # Errors
/// When `/proc` does not tell where this process runs.
pub(super) fn accepted_line(delivery: &Delivery) -> io::Result<(String, String)> {
    let nowhere = || io::Error::other("/proc does not tell where this process runs");
    let here = PidSpace::here().ok_or_else(nowhere)?;
    let before = format!(
        r#"{{"state":"accepted","version":1,"delivery_id":{},"attempt":{},"runner":"#,
        serde_json::to_string(&delivery.id)?,
        delivery.attempt
    );
    let boot_id = serde_json::to_string(&here.boot_id)?;
    let after = format!(r#","boot_id":{boot_id},"pid_ns":{}}}"#, here.pid_ns);
    Ok((before, after))
}

/// A receipt just made.
#[derive(Debug)]
pub struct Fresh {
    /// Where it is.
    pub path: PathBuf,
    /// It, empty.
    pub file: File,
    /// Whether it is locked. If not, its runner has to be announced in it.
    pub locked: bool,
}

/// Creates the receipt of a try, empty and, if that can be, locked, with the
/// directories above it.
///
/// # Errors
/// When it is there already, or cannot be made durable later on.
pub fn create(runs_dir: &Path, delivery: &Delivery) -> io::Result<Fresh> {
    let of_record = runs_dir.join(delivery.slug.as_str());
    let dir = of_record.join(&delivery.sink);
    for dir in [runs_dir, &of_record, &dir] {
        make_dir(dir)?;
    }
    let path = dir.join(format!("{}.{}.json", delivery.seq, delivery.attempt));
    let file = file::create_new(&path)?;
    let locked = match flock::exclusive(file.as_fd()) {
        Ok(()) => true,
        Err(e) if flock::is_unsupported(&e) => false,
        Err(e) => {
            remove(&path)?;
            return Err(e);
        }
    };
    Ok(Fresh { path, file, locked })
}

/// A directory that is new is synced into the one above; the runner then syncs
/// no more than the receipt and the directory it is in.
fn make_dir(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => file::sync_directory(&File::open(dir.parent().unwrap_or(dir))?),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
    }
}

/// Removes a receipt, if it is there.
///
/// # Errors
/// When it cannot be removed.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::process::lead_a_session;
    use crate::sinks::child;
    use std::process::Stdio;

    /// R2.7. Given a receipt whose runner and command are gone, and another process that leads a
    /// session and a group of the same numbers by now; when it is looked for what is left of the
    /// command; then nothing is: the stranger is not taken for it, and so never ended.
    #[test]
    fn a_group_whose_number_was_given_away_is_not_the_commands() {
        let mut stranger = child::command("sleep");
        stranger.arg("600").stdin(Stdio::null());
        lead_a_session(&mut stranger);
        let mut stranger = stranger.spawn().expect("sleep is there");
        let now = Pid::new(stranger.id()).and_then(Stat::of);
        let now = now.expect("it lives");
        let run = |start| {
            let process = Process {
                pid: now.pid.get(),
                start,
            };
            let here = PidSpace::here().expect("/proc is there");
            Run {
                accepted: Accepted {
                    version: 1,
                    delivery_id: String::new(),
                    attempt: 1,
                    runner: process,
                    boot_id: here.boot_id,
                    pid_ns: here.pid_ns,
                },
                started: Some(Started {
                    started_at: Time::ZERO,
                    command: process,
                }),
                ended: None,
            }
        };
        assert!(orphan(&run(now.start_time)).is_some(), "its own is found");
        assert!(orphan(&run(now.start_time - 1)).is_none());
        stranger.kill().expect("our child");
        stranger.wait().expect("our child");
    }
}
