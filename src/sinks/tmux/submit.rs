//! Asking the operator's own command whether the agent took what was submitted.

use super::client;
use crate::engine::delivery::Delivery;
use crate::os::pid::Group;
use crate::os::process;
use crate::os::wait::{self, For};
use crate::os::wake::Wake;
use crate::sinks::child::{self, Countdown, Feed, Process};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// How long the command may take.
const LONGEST: Duration = Duration::from_secs(10);

/// What it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// Exit 0.
    Yes,
    /// Any other end, or none in time.
    No,
    /// The stop came first.
    Stopped,
    /// It cannot be started.
    NotRun(String),
}

/// Runs `words` with the event on standard input.
#[must_use]
pub fn ask(
    words: &[String],
    delivery: &Delivery,
    (socket, pane): (&Path, &str),
    secret_vars: &[String],
    stop: &Wake,
) -> Taken {
    let Some((program, arguments)) = words.split_first() else {
        return Taken::NotRun("it names no program".into());
    };
    let mut command = client::foreign(program, secret_vars);
    child::about(&mut command, delivery);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env("IDEMPOLL_TMUX_SOCKET", socket)
        .env("IDEMPOLL_TMUX_PANE", pane);
    process::lead_a_session(&mut command);
    let (mut child, stdin) = match Process::start(&mut command) {
        Ok(started) => started,
        Err(e) => return Taken::NotRun(format!("cannot start {program}: {e}")),
    };
    let mut feed = Feed::new(stdin, delivery.payload.as_bytes());
    let mut left = Countdown::of(LONGEST);
    loop {
        if let Some(status) = child.ended() {
            return match status.is_some_and(|s| s.success()) {
                true => Taken::Yes,
                false => Taken::No,
            };
        }
        if stop.raised() || left.is_over() {
            Group::led_by(child.pid()).inspect(|group| group.end());
            return match stop.raised() {
                true => Taken::Stopped,
                false => Taken::No,
            };
        }
        let (end, slice) = child.ending();
        let timeout = slice.unwrap_or(LONGEST).min(left.slice());
        let halted = Some((stop.as_fd(), For::Reading));
        let [_, feeds, _] = wait::ready([end, feed.ready(), halted], Some(timeout));
        if feeds {
            feed.push();
        }
    }
}
