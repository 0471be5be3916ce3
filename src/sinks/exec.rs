//! The `exec` sink: a command per event, in a runner that outlives the poller.
//!
//! The receipt is created and locked before there is a runner, and the lock
//! goes to the runner with it. So a poller killed at any point leaves either a
//! free lock and a command that never begins, or a runner that holds the lock;
//! there is no moment in which the next poller could take one for the other.
//! Where there are no locks, the runner's process is in the receipt before it gets
//! its order, which comes to the same.
//! And `deliver` itself looks for receipts first, whatever the ledger believes:
//! that, and not what [`Sink::settle`] said, is what keeps an effect from
//! happening twice. `receipt` has the disk format.

use super::Sink;
use super::child::{self, Countdown, Feed, Process};
use super::receipt::{self, Fresh, State, Word};
use super::runner::{self, Order};
use crate::config::checked;
use crate::engine::delivery::{Delivery, Outcome, Receipt};
use crate::error::Error;
use crate::mutant;
use crate::os::pid::{Group, Pid, PidFd};
use crate::os::process;
use crate::os::wait::{self, For};
use crate::os::wake::Wake;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

/// Runs a command per event.
#[derive(Debug, Clone)]
pub struct Exec {
    /// This program; `/proc/self/exe`, which stays the same when an upgrade replaces the file.
    pub program: PathBuf,
    /// The command, where it runs and for how long.
    pub settings: checked::Exec,
    /// Where receipts are kept.
    pub runs_dir: PathBuf,
    /// Environment variables that hold tokens.
    pub secret_vars: Vec<String>,
}

/// How often a run is looked at that cannot be waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl Sink for Exec {
    fn deliver(&self, delivery: &Delivery, stop: &Wake) -> Outcome {
        loop {
            match self.earlier(delivery) {
                Ok(State::Missing) => break,
                // It said "not now": nothing happened yet, so it is asked again.
                Ok(State::Settled(ended)) if ended.outcome == Word::Deferred => break,
                Ok(State::Settled(ended)) => return ended.outcome(),
                Ok(State::Running(..) | State::Orphaned(_)) => match self.wait(delivery, stop) {
                    // It left no result, so it may be another's turn: look again.
                    Outcome::Unknown => {}
                    outcome => return outcome,
                },
                Err(e) => return not_begun("cannot read its earlier receipt", e),
            }
        }
        if stop.raised() {
            return Outcome::Released;
        }
        let order = match self.order(delivery) {
            Ok(order) => order,
            Err(e) => return not_begun("cannot write its order", e),
        };
        let fresh = match self.fresh_receipt(delivery) {
            Ok(fresh) => fresh,
            Err(e) => return not_begun("cannot keep a receipt", e),
        };
        let path = fresh.path.clone();
        match self.start_runner(delivery, fresh) {
            Ok((runner, stdin)) => {
                self.follow(delivery, stop, runner, Feed::new(stdin, &order), &path)
            }
            Err(e) => {
                drop_receipt(&path);
                not_begun("cannot start its runner", e)
            }
        }
    }

    fn settle(&self, delivery: &Delivery) -> Receipt {
        match self.earlier(delivery) {
            Ok(State::Settled(ended)) => Receipt::Settled(ended.outcome()),
            Ok(State::Running(..) | State::Orphaned(_)) => Receipt::Running,
            // What cannot be read is no evidence; `deliver` will not run over it.
            Ok(State::Missing) | Err(_) => Receipt::Missing,
        }
    }

    fn wait(&self, delivery: &Delivery, stop: &Wake) -> Outcome {
        let mut watched = false;
        let mut warden: Option<Warden> = None;
        loop {
            let runner = match self.look(delivery) {
                Ok(State::Settled(ended)) => return ended.outcome(),
                Ok(State::Missing) | Err(_) => return Outcome::Unknown,
                Ok(State::Running(path, pid)) if !watched => pid
                    .and_then(Pid::new)
                    .and_then(|pid| PidFd::open(pid).ok())
                    // Still running after the pid was opened: it is the runner's own.
                    .filter(|_| receipt::is_running(&path)),
                Ok(State::Running(..)) => None,
                Ok(State::Orphaned(group)) => {
                    let warden = warden.get_or_insert_with(|| Warden {
                        left: Countdown::of(self.settings.timeout),
                        asked: false,
                    });
                    warden.look(group);
                    None
                }
            };
            if stop.raised() {
                return Outcome::LeftRunning;
            }
            // The runner's end is waited for once: should the lock be seen held for a
            // moment longer (by a process being forked elsewhere), this must not spin.
            watched |= runner.is_some();
            let look_again = warden
                .as_ref()
                .map_or(LOOK_AGAIN, |w| LOOK_AGAIN.min(w.left.slice()));
            let timeout = runner.is_none().then_some(look_again);
            let end = runner.as_ref().map(|fd| (fd.as_fd(), For::Reading));
            let _ = wait::ready([end, Some((stop.as_fd(), For::Reading))], timeout);
        }
    }

    fn forget(&self, delivery: &Delivery) {
        for (_, path) in receipt::tries(&self.dir(delivery), delivery.seq).unwrap_or_default() {
            drop_receipt(&path);
        }
    }
}

/// Holds a command to its time whose runner is gone: nobody else does any more.
struct Warden {
    left: Countdown,
    asked: bool,
}

impl Warden {
    /// Asks the command to end when its time is up, and ends it after the grace.
    fn look(&mut self, group: Group) {
        match (self.left.is_over(), self.asked) {
            (false, _) => {}
            (true, false) => {
                group.ask_to_end();
                self.left = Countdown::of(runner::GRACE);
                self.asked = true;
            }
            (true, true) => group.end(),
        }
    }
}

impl Exec {
    fn dir(&self, delivery: &Delivery) -> PathBuf {
        receipt::dir(&self.runs_dir, &delivery.slug, &delivery.sink)
    }

    fn look(&self, delivery: &Delivery) -> io::Result<State> {
        receipt::look(&self.dir(delivery), delivery)
    }

    /// What tries before this one left.
    fn earlier(&self, delivery: &Delivery) -> io::Result<State> {
        match mutant::is("exec-runs-whatever-ran") {
            true => Ok(State::Missing),
            false => self.look(delivery),
        }
    }

    /// Replaces the receipts of earlier tries, none of which counts any more, by a new one.
    fn fresh_receipt(&self, delivery: &Delivery) -> io::Result<Fresh> {
        for (_, path) in receipt::tries(&self.dir(delivery), delivery.seq)? {
            receipt::remove(&path)?;
        }
        receipt::create(&self.runs_dir, delivery)
    }

    /// Starts the runner and lets go of the receipt, which is the runner's from here on.
    fn start_runner(
        &self,
        delivery: &Delivery,
        receipt: Fresh,
    ) -> io::Result<(Process, Option<ChildStdin>)> {
        // The runner's environment is the command's.
        let mut command = child::foreign(&self.program, &self.secret_vars);
        child::about(&mut command, delivery);
        command
            .arg0("idempoll")
            .args([runner::VERB, &delivery.id])
            .current_dir(receipt.path.parent().unwrap_or(&self.runs_dir))
            .stdin(Stdio::piped())
            .stderr(Stdio::null());
        if !receipt.locked && !mutant::is("runner-unannounced") {
            let (before, after) = receipt::accepted_line(delivery)?;
            let to = OwnedFd::from(receipt.file.try_clone()?);
            process::announce(&mut command, to, &before, &after);
        }
        command.stdout(receipt.file);
        process::lead_a_session(&mut command);
        Process::start(&mut command)
    }

    /// Hands the delivery to the runner and waits until that has ended.
    fn follow(
        &self,
        delivery: &Delivery,
        stop: &Wake,
        mut runner: Process,
        mut feed: Feed<'_>,
        path: &Path,
    ) -> Outcome {
        let halted = Some((stop.as_fd(), For::Reading));
        let ended = loop {
            if let Some(status) = runner.ended() {
                break status;
            }
            if stop.raised() {
                if feed.is_complete() {
                    if mutant::is("stop-ends-the-work") {
                        let command = receipt::read(path).and_then(|run| run.started);
                        let group = command.and_then(|c| Group::led_by(c.command.pid));
                        group.inspect(|group| group.end());
                    }
                    return Outcome::LeftRunning;
                }
                // The runner finds its input cut short and begins nothing.
                drop_receipt(path);
                return Outcome::Released;
            }
            let (end, timeout) = runner.ending();
            let [_, _, feeds] = wait::ready([end, halted, feed.ready()], timeout);
            if feeds {
                feed.push();
            }
        };
        let fed = feed.is_complete();
        // Whoever should read it still does not wait for the rest.
        drop(feed);
        let outcome = match self.look(delivery) {
            Ok(State::Settled(ended)) => ended.outcome(),
            // Its command goes on without it; or a process that is just being forked for
            // another delivery has our copy of the lock until it is a program of its own.
            Ok(State::Running(..) | State::Orphaned(_)) => self.wait(delivery, stop),
            Ok(State::Missing) | Err(_) => Outcome::Unknown,
        };
        let declined = ended.and_then(|s| s.code()) == Some(runner::NOT_BEGUN.into());
        if outcome == Outcome::Unknown && (declined || !fed) {
            drop_receipt(path);
            return not_begun("its runner ended before it could start it", "");
        }
        outcome
    }

    /// The runner's input: the order, a newline, the payload.
    fn order(&self, delivery: &Delivery) -> io::Result<Vec<u8>> {
        let mut input = serde_json::to_vec(&Order {
            delivery_id: delivery.id.clone(),
            attempt: delivery.attempt,
            command: self.settings.command.clone(),
            workdir: self.settings.workdir.clone().into_os_string(),
            timeout_ms: u64::try_from(self.settings.timeout.as_millis()).unwrap_or(u64::MAX),
            payload_bytes: delivery.payload.len() as u64,
        })?;
        input.push(b'\n');
        input.extend_from_slice(delivery.payload.as_bytes());
        Ok(input)
    }
}

/// Trouble of ours, before anything was tried: it costs the delivery nothing but time.
fn not_begun(doing: &str, cause: impl std::fmt::Display) -> Outcome {
    Outcome::not_now(Error::new(doing, cause).to_string())
}

/// Removes a receipt that no longer matters; one that stays does no harm.
fn drop_receipt(path: &Path) {
    let _ = receipt::remove(path);
}
