//! The agent's pane: how it is found, and the calls that type into it.
//!
//! A pane is never addressed by a session's name or by what has the focus, but
//! by its id, and every call that types is guarded by the server itself: the
//! pane must be the one that was looked at (the same first process), alive,
//! with its input on, the same program in front, and the delivery at the stage
//! it is believed to be at. What a call does, it does as a whole: tmux runs the
//! commands of one call without a break.
//!
//! # The receipt
//!
//! Options of the pane itself, which die with it:
//!
//! ```text
//! @idempoll-agent  the record whose agent runs in it
//! @idempoll-pid    its first process when we made it
//! @idempoll-ready  there once the agent was ready
//! @idempoll-d-KEY  how far the delivery KEY got: begun, pasted, sent, taken;
//!                  started, for one that travels on the command line
//! ```
//!
//! `begun` is set by a test-and-set of the server, so of two calls for one
//! delivery (one from a poller that was killed, one that was late) only one
//! ever pastes. KEY is the event's key with everything but lower-case letters
//! and digits in hexadecimal.

use super::client::{Called, Client};
use crate::engine::delivery::Delivery;
use crate::mutant;
use std::fmt::Write;

/// A pane as the server describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pane {
    /// `%7`.
    pub id: String,
    /// Its first process.
    pub pid: u32,
    /// Whether that is the one we started in it.
    pub is_original: bool,
    /// Whether the process has ended, and how.
    pub ended: Option<Ended>,
    /// Whether somebody switched its input off.
    pub input_off: bool,
    /// Whether its agent was ready once.
    pub ready: bool,
    /// How far the delivery asked about got; empty when it never began.
    pub mark: String,
    /// The record whose agent it is; empty for a pane of somebody else.
    pub agent: String,
    /// The sessions it can be seen in: one, but for what people link or group.
    pub sessions: Vec<Session>,
    /// How many people look at these.
    pub attached: u32,
    /// The name of the program in front.
    pub program: String,
}

/// A session as the server describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The server's number of it, `$3`.
    pub id: String,
    /// Its name.
    pub name: String,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// With this exit status.
    Exit(i32),
    /// Otherwise; what is known of it.
    Signal(String),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Exit(status) => write!(f, "exit status {status}"),
            Ended::Signal(signal) if signal.is_empty() => f.write_str("nobody knows how"),
            Ended::Signal(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

/// What the server says of its panes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// All of them.
    Panes(Vec<Pane>),
    /// There is no server.
    NoServer,
    /// It does not answer.
    Silent,
    /// It cannot be asked.
    Trouble(String),
}

/// How a guarded call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Typed {
    /// All of it was done.
    Done,
    /// The guard, or a command after it, said no: look again.
    Refused(String),
    /// The server does not answer; it may do it yet.
    Silent,
}

/// The option that is the receipt of a delivery.
#[must_use]
pub fn mark_of(delivery: &Delivery) -> String {
    let item = delivery.item.to_string();
    let key = delivery.id.strip_prefix(&item).unwrap_or(&delivery.id);
    let mut mark = String::from("@idempoll-d-");
    for byte in key.trim_start_matches('/').bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' => mark.push(char::from(byte)),
            _ => {
                let _ = write!(mark, "-{byte:02x}");
            }
        }
    }
    mark
}

/// Looks at all panes, and in each at the receipt `mark`.
#[must_use]
pub fn look(client: &Client, mark: &str) -> Seen {
    let fields = [
        "#{pane_id}",
        "#{pane_pid}",
        "#{@idempoll-pid}",
        "#{pane_dead}",
        "#{pane_dead_status}",
        "#{pane_dead_signal}",
        "#{pane_input_off}",
        "#{@idempoll-ready}",
        &format!("#{{{mark}}}"),
        "#{@idempoll-agent}",
        "#{session_id}",
        "#{session_attached}",
        "#{s/[|]/?/:pane_current_command}",
        // Last, since people may call it anything.
        "#{session_name}",
    ]
    .join("|");
    match client.call(&["list-panes", "-a", "-F", &fields], &[]) {
        Called::Done(said) => Seen::Panes(each_once(said.lines().filter_map(parse))),
        Called::NoServer => Seen::NoServer,
        Called::Silent => Seen::Silent,
        Called::Refused(_, why) if why.is_empty() => Seen::Trouble("tmux says no".into()),
        Called::Refused(_, why) => Seen::Trouble(format!("tmux: {why}")),
        Called::NotRun(why) => Seen::Trouble(why),
    }
}

/// tmux tells a pane once for each session it can be seen in.
fn each_once(told: impl Iterator<Item = Pane>) -> Vec<Pane> {
    let mut panes: Vec<Pane> = Vec::new();
    for pane in told {
        match panes.iter_mut().find(|known| known.id == pane.id) {
            Some(known) if !mutant::is("tmux-counts-what-is-seen") => {
                known.sessions.extend(pane.sessions);
                known.attached += pane.attached;
            }
            _ => panes.push(pane),
        }
    }
    panes
}

fn parse(line: &str) -> Option<Pane> {
    let mut fields = line.splitn(14, '|');
    let mut next = || fields.next();
    let id = next()?.to_string();
    let pid: u32 = next()?.parse().ok()?;
    let original = next()?.to_string();
    let dead = next()? == "1";
    let (status, signal) = (next()?, next()?);
    let ended = match status.parse() {
        Ok(status) => Ended::Exit(status),
        Err(_) => Ended::Signal(signal.to_string()),
    };
    let input_off = next()? == "1";
    let ready = !next()?.is_empty();
    let (mark, agent) = (next()?.to_string(), next()?.to_string());
    let session_id = next()?.to_string();
    let attached = next()?.parse().unwrap_or(0);
    let program = next()?.to_string();
    let session = Session {
        id: session_id,
        name: next()?.to_string(),
    };
    Some(Pane {
        id,
        pid,
        is_original: original == pid.to_string(),
        ended: dead.then_some(ended),
        input_off,
        ready,
        mark,
        agent,
        sessions: vec![session],
        attached,
        program,
    })
}

impl Pane {
    /// Pastes the buffer `buffer`, and with `enter` presses Enter at once. The
    /// marks go from nothing to `begun`, `pasted` and, with `enter`, `sent`. The marks
    /// `stale` go by the same call, after all that matters.
    #[must_use]
    pub fn paste(
        &self,
        client: &Client,
        mark: &str,
        buffer: &str,
        enter: bool,
        stale: &[String],
    ) -> Typed {
        let pane = match mutant::is("tmux-types-where-the-focus-is") {
            true => self.sessions[0].id.clone() + ":",
            false => self.id.clone(),
        };
        let own = &self.id;
        let leave = leave_modes(&pane);
        let once = match mutant::is("tmux-pastes-whatever-was-begun") {
            true => "",
            false => "-o",
        };
        let mut body = format!(
            "set-option -p {once} -t {own} {mark} begun ; {leave} \
             paste-buffer -p -d -b {buffer} -t {pane} ; set-option -p -t {own} {mark} pasted"
        );
        if mutant::is("tmux-marks-afterwards") {
            let body = format!("paste-buffer -p -d -b {buffer} -t {pane}");
            return match self.guarded(client, None, &body) {
                Typed::Done => self.set(client, mark, "pasted"),
                typed => typed,
            };
        }
        if enter {
            let _ = write!(
                body,
                " ; paste-buffer -b {ENTER} -t {pane} ; set-option -p -t {own} {mark} sent"
            );
        }
        for mark in stale {
            let _ = write!(body, " ; set-option -p -u -t {own} {mark}");
        }
        self.guarded(client, None, &body)
    }

    /// Presses Enter for a delivery whose mark is `from`, which then is `sent`.
    #[must_use]
    pub fn enter(&self, client: &Client, mark: &str, from: &str) -> Typed {
        let pane = &self.id;
        let leave = leave_modes(pane);
        let press = match mutant::is("tmux-enter-is-a-key") {
            true => format!("send-keys -t {pane} Enter"),
            false => format!("paste-buffer -b {ENTER} -t {pane}"),
        };
        let body = format!("{leave} {press} ; set-option -p -t {pane} {mark} sent");
        let stage = format!("#{{==:#{{{mark}}},{from}}}");
        self.guarded(client, Some(&stage), &body)
    }

    /// Sets an option of the pane, as long as it is the same pane.
    #[must_use]
    pub fn set(&self, client: &Client, option: &str, value: &str) -> Typed {
        let body = format!("set-option -p -t {} {option} {value}", self.id);
        self.in_the_same(client, &body)
    }

    /// Does away with an option of the pane.
    #[must_use]
    pub fn unset(&self, client: &Client, option: &str) -> Typed {
        let body = format!("set-option -p -u -t {} {option}", self.id);
        self.in_the_same(client, &body)
    }

    /// Ends the pane, and with it its session if it was the last one there.
    #[must_use]
    pub fn end(&self, client: &Client) -> Typed {
        self.in_the_same(client, &format!("kill-pane -t {}", self.id))
    }

    /// Leaves the pane to whoever uses it: it is no agent's any more.
    #[must_use]
    pub fn let_go(&self, client: &Client) -> Typed {
        self.unset(client, "@idempoll-agent")
    }

    /// What its screen shows, and the part of the cursor's line before the cursor.
    #[must_use]
    pub fn screen(&self, client: &Client) -> Option<(String, String)> {
        let words = [
            "display-message",
            "-p",
            "-t",
            &self.id,
            "#{cursor_x} #{cursor_y}",
            ";",
            "capture-pane",
            "-p",
            "-t",
            &self.id,
        ];
        let Called::Done(said) = client.call(&words, &[]) else {
            return None;
        };
        let (cursor, screen) = said.split_once('\n')?;
        let (x, y) = cursor.split_once(' ')?;
        let (x, y): (usize, usize) = (x.parse().ok()?, y.parse().ok()?);
        let line = screen.lines().nth(y).unwrap_or_default();
        Some((screen.to_string(), line.chars().take(x).collect()))
    }

    /// The last line its program wrote. A pane whose program has ended scrolls, and says so in
    /// a line of its own.
    #[must_use]
    pub fn last_line(&self, client: &Client) -> Option<String> {
        let words = ["capture-pane", "-p", "-S", "-200", "-t", &self.id];
        let Called::Done(said) = client.call(&words, &[]) else {
            return None;
        };
        let lines = said.lines().map(str::trim).filter(|l| !l.is_empty());
        let mut said = lines.filter(|l| !l.starts_with("Pane is dead"));
        said.next_back().map(str::to_string)
    }

    /// Runs `body` in the server if the pane can be typed into, is the one that
    /// was looked at, and `also` holds.
    fn guarded(&self, client: &Client, also: Option<&str>, body: &str) -> Typed {
        let mut conditions = vec![
            format!("#{{==:#{{pane_pid}},{}}}", self.pid),
            "#{==:#{pane_dead},0}".to_string(),
            "#{==:#{pane_input_off},0}".to_string(),
        ];
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !self.program.is_empty() && self.program.chars().all(plain) {
            conditions.push(format!(
                "#{{==:#{{pane_current_command}},{}}}",
                self.program
            ));
        }
        conditions.extend(also.map(str::to_string));
        // What Enter is, in a buffer: a paste reaches the agent whatever mode the pane is in,
        // and also where somebody who may only read looks on.
        let enter = ["set-buffer", "-b", ENTER, "\r", ";"];
        self.call_if(client, &enter, &all_of(&conditions), body)
    }

    fn in_the_same(&self, client: &Client, body: &str) -> Typed {
        let same = format!("#{{==:#{{pane_pid}},{}}}", self.pid);
        self.call_if(client, &[], &same, body)
    }

    fn call_if(&self, client: &Client, before: &[&str], condition: &str, body: &str) -> Typed {
        let body = format!("{body} ; display-message -p done");
        let mut words = before.to_vec();
        words.extend(["if-shell", "-F", "-t", &self.id, condition, &body]);
        match client.call(&words, &[]) {
            Called::Done(said) | Called::Refused(said, _) if said.trim() == "done" => Typed::Done,
            Called::Done(_) => Typed::Refused("the pane is not as it was".into()),
            Called::Refused(_, why) => Typed::Refused(format!("tmux: {why}")),
            Called::NoServer => Typed::Refused("the tmux server ended".into()),
            Called::NotRun(why) => Typed::Refused(why),
            Called::Silent => Typed::Silent,
        }
    }
}

/// The command that ends copy mode and its like, which keep keys from the agent.
fn leave_modes(pane: &str) -> String {
    match mutant::is("tmux-enter-is-a-key") {
        true => String::new(),
        false => format!("copy-mode -q -t {pane} ;"),
    }
}

/// The buffer that holds a carriage return.
const ENTER: &str = "idempoll-enter";

fn all_of(conditions: &[String]) -> String {
    match conditions {
        [] => "1".to_string(),
        [only] => only.clone(),
        [first, rest @ ..] => format!("#{{&&:{first},{}}}", all_of(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_server_is_read_field_by_field() {
        let line = "%4|71|71|1|3||0||sent|in~7|$2|1|my?odd program|in|7";
        let pane = parse(line).expect("it is whole");
        assert_eq!(
            (pane.id.as_str(), pane.pid, pane.is_original),
            ("%4", 71, true)
        );
        assert_eq!(pane.ended, Some(Ended::Exit(3)));
        assert_eq!((pane.mark.as_str(), pane.agent.as_str()), ("sent", "in~7"));
        assert_eq!(
            (pane.attached, pane.program.as_str()),
            (1, "my?odd program")
        );
        assert_eq!(pane.sessions[0].name, "in|7");
        assert_eq!(parse("%4|71"), None);
        assert_eq!(
            all_of(&["a".into(), "b".into(), "c".into()]),
            "#{&&:a,#{&&:b,c}}"
        );
    }
}
