//! One try at one delivery: look where it stands, do the next thing, look again.

use super::client::Called;
use super::pane::{self, Ended, Pane, Seen, Typed};
use super::submit::{self, Taken};
use super::{LOOK_AGAIN, Tmux, agent_of, locked, prompt, rest, shell, template};
use crate::config::checked::{OnClose, Submit};
use crate::engine::delivery::{Delivery, EventKind, Outcome};
use crate::mutant;
use crate::os::wait;
use crate::os::wake::Wake;
use crate::sinks::child::Countdown;
use std::time::Duration;

/// How often one try looks anew at a pane that is not as it was a moment ago.
const LOOKS: u32 = 12;

/// How often Enter is pressed for an agent that does not take what it was given.
const ENTERS: u32 = 5;

/// How long it is asked, after each Enter, whether it did.
const TO_TAKE: Duration = Duration::from_secs(2);

/// One try at one delivery.
pub(super) struct Course<'t> {
    pub(super) tmux: &'t Tmux,
    pub(super) delivery: &'t Delivery,
    stop: &'t Wake,
    /// The option that is the receipt.
    pub(super) mark: String,
    /// Whether this try made the session.
    pub(super) made: bool,
    /// How often an agent was seen ended without anybody knowing how.
    pub(super) unsettled: u32,
    /// Whether the note about the session was looked at.
    pub(super) remembered: bool,
    /// Whether this try pasted, so that Enter is owed whatever happens.
    pasted: bool,
    /// What is to be pasted.
    text: Option<String>,
}

/// What a step came to.
pub(super) enum Next {
    /// The try is over.
    Is(Outcome),
    /// Something was done, or something changed: look again.
    Look,
}

impl<'t> Course<'t> {
    /// A try of `tmux` at `delivery`.
    pub(super) fn new(tmux: &'t Tmux, delivery: &'t Delivery, stop: &'t Wake) -> Course<'t> {
        Course {
            tmux,
            delivery,
            stop,
            mark: pane::mark_of(delivery),
            made: false,
            unsettled: 0,
            remembered: false,
            pasted: false,
            text: None,
        }
    }

    /// Goes all the way.
    pub(super) fn run(mut self) -> Outcome {
        for _ in 0..LOOKS {
            if let Next::Is(outcome) = self.step() {
                return outcome;
            }
        }
        Outcome::not_now("the pane keeps changing")
    }

    /// Looks where the delivery stands, and does the next thing.
    fn step(&mut self) -> Next {
        if self.stop.raised() && !self.pasted {
            return Next::Is(Outcome::Released);
        }
        if let Err(why) = self.tmux.client.is_ours() {
            return Next::Is(Outcome::not_now(why));
        }
        let panes = match pane::look(&self.tmux.client, &self.mark) {
            Seen::Panes(panes) => panes,
            Seen::NoServer => Vec::new(),
            Seen::Silent => return Next::Is(Outcome::not_now("the tmux server does not answer")),
            Seen::Trouble(why) => return Next::Is(Outcome::not_now(why)),
        };
        let closing = self.delivery.event == EventKind::Closed;
        if self.tmux.has_landed(self.delivery, &panes) {
            return match closing && agent_of(&panes, &self.delivery.slug).is_none() {
                true => self.closed(),
                false => Next::Is(Outcome::Delivered),
            };
        }
        let Some(pane) = agent_of(&panes, &self.delivery.slug) else {
            return match closing {
                true => self.closed(),
                false => self.make(),
            };
        };
        self.remember(pane);
        if closing {
            match self.tmux.settings.on_close {
                OnClose::Keep => return Next::Is(Outcome::Delivered),
                OnClose::End => return self.end(pane),
                OnClose::Tell => {}
            }
        }
        match self.doubt(pane) {
            None => self.go_on(pane),
            Some(Doubt::Ended(_)) | Some(Doubt::NotOurs) if closing => self.closed(),
            Some(Doubt::Ended(how)) => self.replace(pane, &how),
            Some(Doubt::NotOurs) => self.leave(pane),
        }
    }

    /// Why the pane is not to be typed into, if it is not.
    fn doubt(&self, pane: &Pane) -> Option<Doubt> {
        if let Some(how) = &pane.ended {
            return Some(Doubt::Ended(how.clone()));
        }
        if !pane.is_original {
            return Some(Doubt::NotOurs);
        }
        let shell = shell::in_front(pane.pid).unwrap_or(false);
        let meant = shell::is_bare(&self.tmux.settings.command);
        (shell && !meant && !mutant::is("tmux-types-into-shells")).then_some(Doubt::NotOurs)
    }

    /// The agent is there, alive, and it is ours: the next stage of the delivery.
    fn go_on(&mut self, pane: &Pane) -> Next {
        if pane.input_off {
            return Next::Is(Outcome::not_now("the input of its pane is switched off"));
        }
        if !pane.ready || pane.mark == "started" {
            return self.get_ready(pane);
        }
        match pane.mark.as_str() {
            "pasted" => self.submit(pane),
            "sent" => self.see_it_taken(pane),
            // Nothing was pasted although it was begun: only a buffer that was taken away does that.
            "begun" => self.typed(pane.unset(&self.tmux.client, &self.mark)),
            _ => self.paste(pane),
        }
    }

    fn paste(&mut self, pane: &Pane) -> Next {
        if let Some(why) = self.somebody_types(pane) {
            return Next::Is(Outcome::not_now(why));
        }
        let text = match self.text() {
            Ok(text) => text,
            Err(why) => return Next::Is(Outcome::not_now(why)),
        };
        let client = &self.tmux.client;
        let key = self.mark.trim_start_matches('@');
        let buffer = format!("{key}-{}", self.delivery.slug);
        let staged = match mutant::is("tmux-text-on-the-command-line") {
            true => client.call(&["set-buffer", "-b", &buffer, &text], &[]),
            false => client.call(&["load-buffer", "-b", &buffer, "-"], text.as_bytes()),
        };
        match staged {
            Called::Done(_) => {}
            Called::Silent => return Next::Is(Outcome::not_now("the tmux server does not answer")),
            Called::NoServer => return Next::Look,
            Called::Refused(_, why) | Called::NotRun(why) => {
                return Next::Is(Outcome::not_now(why));
            }
        }
        let settings = &self.tmux.settings;
        let at_once = settings.submit == Submit::None
            || settings.enter.is_zero()
            || mutant::is("tmux-enter-at-once");
        let slug = &self.delivery.slug;
        let stale = locked(&self.tmux.stale).get(slug).cloned();
        let stale = stale.unwrap_or_default();
        let typed = pane.paste(client, &self.mark, &buffer, at_once, &stale);
        match typed {
            Typed::Done => {
                self.pasted = true;
                locked(&self.tmux.stale).remove(slug);
                match at_once {
                    true => self.submitted(),
                    false => self.submit(pane),
                }
            }
            Typed::Refused(_) => {
                let _ = client.call(&["delete-buffer", "-b", &buffer], &[]);
                Next::Look
            }
            Typed::Silent => self.typed(typed),
        }
    }

    /// Presses Enter for what was pasted. A stop does not come in between: text that waits
    /// for its Enter would be in everybody's way.
    fn submit(&self, pane: &Pane) -> Next {
        // An agent may be deaf for a moment after a paste.
        wait::pause(self.tmux.settings.enter);
        match pane.enter(&self.tmux.client, &self.mark, "pasted") {
            Typed::Done => self.submitted(),
            typed => self.typed(typed),
        }
    }

    fn submitted(&self) -> Next {
        match self.tmux.settings.submit {
            Submit::Command(_) => Next::Look,
            Submit::None | Submit::Receipt => Next::Is(Outcome::Delivered),
        }
    }

    /// A server that went silent may still do it: wait for what it says, and go on from there.
    pub(super) fn typed(&self, typed: Typed) -> Next {
        if typed != Typed::Silent {
            return Next::Look;
        }
        match self.tmux.until_it_answers(self.stop) {
            None => Next::Look,
            Some(stopped) => Next::Is(stopped),
        }
    }

    /// Waits until the agent is ready to be given something.
    fn get_ready(&self, pane: &Pane) -> Next {
        let settings = &self.tmux.settings;
        let client = &self.tmux.client;
        let mut left = Countdown::of(settings.ready);
        loop {
            let panes = match pane::look(client, &self.mark) {
                Seen::Panes(panes) => panes,
                _ => return Next::Look,
            };
            let now = panes.iter().find(|p| p.id == pane.id && p.pid == pane.pid);
            if now.is_none_or(|now| now.ended.is_some()) {
                return Next::Look;
            }
            let seen = settings.ready_text.as_ref().is_some_and(|text| {
                pane.screen(client)
                    .is_some_and(|(screen, _)| screen.contains(text))
            });
            let over = left.is_over();
            if seen || (over && settings.ready_text.is_none()) {
                break;
            }
            if over {
                return Next::Is(Outcome::not_now(format!(
                    "the agent was not ready within {} s: its screen does not show ready_text",
                    settings.ready.as_secs_f64()
                )));
            }
            if rest(self.stop, LOOK_AGAIN.min(left.slice())) {
                return Next::Is(Outcome::Released);
            }
        }
        let typed = match pane.set(client, "@idempoll-ready", "1") {
            Typed::Done if pane.mark == "started" => pane.set(client, &self.mark, "taken"),
            typed => typed,
        };
        self.typed(typed)
    }

    /// Whether a person is at the agent's input, so that text would get mixed up.
    fn somebody_types(&self, pane: &Pane) -> Option<String> {
        let settings = &self.tmux.settings;
        if mutant::is("tmux-types-over-drafts") {
            return None;
        }
        if !settings.quiet.is_zero() && pane.attached > 0 {
            let words = [
                "display-message",
                "-p",
                "%s",
                ";",
                "list-clients",
                "-F",
                "#{client_readonly} #{client_activity} #{session_id}",
            ];
            if let Called::Done(said) = self.tmux.client.call(&words, &[]) {
                let mut lines = said.lines();
                let now: u64 = lines.next()?.trim().parse().ok()?;
                let last = lines
                    .filter_map(|line| line.strip_prefix("0 ")?.split_once(' '))
                    .filter(|(_, session)| pane.sessions.iter().any(|s| s.id == *session))
                    .filter_map(|(at, _)| at.parse::<u64>().ok())
                    .max();
                if last
                    .is_some_and(|last| now.saturating_sub(last) < settings.quiet.as_secs().max(1))
                {
                    return Some("somebody is typing in its session".to_string());
                }
            }
        }
        if let Some(idle) = &settings.idle_text {
            let (_, line) = pane.screen(&self.tmux.client)?;
            if !line.trim_end().ends_with(idle.trim_end()) {
                return Some(
                    "something stands on the agent's input line: idle_text is not before the cursor"
                        .to_string(),
                );
            }
        }
        None
    }

    /// Asks the operator's command whether the agent took it, and presses Enter again if not.
    fn see_it_taken(&self, pane: &Pane) -> Next {
        let Submit::Command(words) = &self.tmux.settings.submit else {
            return Next::Is(Outcome::Delivered);
        };
        let client = &self.tmux.client;
        let whose = (client.socket.as_path(), pane.id.as_str());
        for _ in 0..ENTERS {
            let mut left = Countdown::of(TO_TAKE);
            while !left.is_over() {
                match submit::ask(words, self.delivery, whose, &client.secret_vars, self.stop) {
                    Taken::Yes => return self.typed(pane.set(client, &self.mark, "taken")),
                    Taken::No => {}
                    Taken::Stopped => return Next::Is(Outcome::Released),
                    Taken::NotRun(why) => {
                        return Next::Is(Outcome::not_now(format!("submit_check: {why}")));
                    }
                }
                if rest(self.stop, LOOK_AGAIN) {
                    return Next::Is(Outcome::Released);
                }
            }
            match pane.enter(client, &self.mark, "sent") {
                Typed::Done => {}
                typed => return self.typed(typed),
            }
        }
        Next::Is(Outcome::Failed {
            reason: "the agent does not take it: submit_check says no after every Enter".into(),
        })
    }

    pub(super) fn text(&mut self) -> Result<String, String> {
        if let Some(text) = &self.text {
            return Ok(text.clone());
        }
        let template = template(self.tmux.settings.template_file.as_deref())?;
        let text = prompt::render(&template, &self.delivery.payload)?;
        self.text = Some(text.clone());
        Ok(text)
    }
}

/// Why a pane is not typed into.
enum Doubt {
    /// Its process has ended.
    Ended(Ended),
    /// Another process is in it, or a shell the agent left behind.
    NotOurs,
}
