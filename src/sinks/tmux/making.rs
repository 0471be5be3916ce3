//! The part of a try that makes sessions, replaces them, lets them alone and ends them.

use super::client::Called;
use super::course::{Course, Next};
use super::pane::{self, Ended, Pane, Seen, Session, Typed};
use super::session::{self, New, Note};
use super::{PROMPT_FILE, agent_of, expand, locked};
use crate::engine::delivery::Outcome;
use crate::engine::item::is_plain_name;
use crate::error::Error;
use crate::mutant;
use crate::os::wait;
use crate::terminal::cut;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// One at a time looks whether there is room for a session and makes it.
static MAKING: Mutex<()> = Mutex::new(());

/// How often it is asked how an agent ended before that counts as unknown.
const UNSETTLED: u32 = 8;

/// From one such question to the next.
const SOON: Duration = Duration::from_millis(100);

impl Course<'_> {
    /// Makes the session, if there is room for it.
    pub(super) fn make(&mut self) -> Next {
        if self.made {
            return Next::Is(Outcome::Failed {
                reason: "its session is gone as soon as it is made".into(),
            });
        }
        let settings = &self.tmux.settings;
        let workdir = match self.workdir() {
            Ok(dir) => dir,
            Err(why) => return Next::Is(Outcome::not_now(why)),
        };
        if let Err(why) = self.tmux.client.prepare() {
            return Next::Is(Outcome::not_now(why));
        }
        let by_file = settings.command.iter().any(|w| w.contains(PROMPT_FILE));
        let mut command = settings.command.clone();
        if by_file {
            let text = match self.text() {
                Ok(text) => text,
                Err(why) => return Next::Is(Outcome::not_now(why)),
            };
            let (slug, sink) = (&self.delivery.slug, &self.delivery.sink);
            let written =
                session::write_prompt(&self.tmux.runs_dir, slug, sink, self.delivery.seq, &text);
            let path = match written.map(|p| p.to_str().map(str::to_string)) {
                Ok(Some(path)) => path,
                Ok(None) => {
                    return Next::Is(Outcome::not_now("the path of the prompt file is not UTF-8"));
                }
                Err(e) => {
                    return Next::Is(Outcome::not_now(
                        Error::new("cannot write the prompt file", e).to_string(),
                    ));
                }
            };
            for word in &mut command {
                *word = word.replace(PROMPT_FILE, &path);
            }
        }
        let making = locked(&MAKING);
        let panes = match pane::look(&self.tmux.client, &self.mark) {
            Seen::Panes(panes) => panes,
            Seen::NoServer => Vec::new(),
            _ => return Next::Look,
        };
        if agent_of(&panes, &self.delivery.slug).is_some() {
            return Next::Look;
        }
        let working = panes
            .iter()
            .filter(|p| !p.agent.is_empty() && p.ended.is_none());
        if working.count() >= settings.max_sessions {
            return Next::Is(Outcome::not_now(format!(
                "there are {} sessions already (max_sessions)",
                settings.max_sessions
            )));
        }
        let name = session::name(&self.delivery.slug);
        let mut sessions = panes.iter().flat_map(|p| &p.sessions);
        if let Some(other) = sessions.find(|s| s.name == name) {
            self.rename(other);
        }
        let new = New {
            slug: &self.delivery.slug,
            item: self.delivery.item.to_string(),
            workdir: &workdir,
            command: &command,
            started: by_file.then_some(self.mark.as_str()),
        };
        let made = session::make(&self.tmux.client, &new, &self.delivery.id);
        drop(making);
        match made {
            Ok(note) => {
                self.made = true;
                if mutant::is("tmux-ends-with-the-poller") {
                    let (us, socket) = (std::process::id(), self.tmux.client.socket.display());
                    let watch = format!(
                        "while kill -0 {us}; do sleep 0.05; done; tmux -S '{socket}' kill-server"
                    );
                    let _ = self.tmux.client.call(&["run-shell", "-b", &watch], &[]);
                }
                self.note(&note);
                Next::Look
            }
            Err(Called::Silent) => self.typed(Typed::Silent),
            Err(Called::Refused(_, why) | Called::NotRun(why)) => {
                Next::Is(Outcome::not_now(format!("cannot make its session: {why}")))
            }
            Err(Called::NoServer | Called::Done(_)) => {
                Next::Is(Outcome::not_now("the tmux server did not start"))
            }
        }
    }

    /// Remembers the session, and says what became of the one before.
    fn note(&self, note: &Note) {
        let (slug, sink) = (&self.delivery.slug, &self.delivery.sink);
        let before = session::read_note(&self.tmux.runs_dir, slug, sink);
        if let Some(before) = before {
            let item = &self.delivery.item;
            if before.server_pid == note.server_pid && before.socket == note.socket {
                self.tmux.tell(format!(
                    "the session of {item} in '{sink}' had ended; it was made again"
                ));
            } else if locked(&self.tmux.mourned).insert(before.server_pid) {
                self.tmux.tell(format!(
                    "the tmux server of '{sink}' was lost, with all its sessions; each is made again at the next event of its item ({item} now)"
                ));
            }
        }
        if let Err(e) = session::write_note(&self.tmux.runs_dir, slug, sink, note) {
            self.tmux.tell(format!(
                "cannot note the session of {}: {e}",
                self.delivery.item
            ));
        }
    }

    /// Notes a session that is there and not noted, or noted otherwise: a poller may have been killed before it
    /// could, and people rename and move things.
    pub(super) fn remember(&mut self, pane: &Pane) {
        if self.remembered || mutant::is("tmux-notes-what-it-made-alone") {
            return;
        }
        self.remembered = true;
        let (slug, sink) = (&self.delivery.slug, &self.delivery.sink);
        let before = session::read_note(&self.tmux.runs_dir, slug, sink);
        let same = before.filter(|n| n.pane == pane.id && n.pid == pane.pid);
        let named = |note: &Note| pane.sessions.iter().any(|s| s.name == note.session);
        if same.as_ref().is_some_and(named) {
            return;
        }
        let made_for = same.map_or(self.delivery.id.clone(), |note| note.delivery_id);
        if let Some(note) = session::note_of(&self.tmux.client, pane, &made_for) {
            // It is for people to look at; the next event brings another opportunity.
            let _ = session::write_note(&self.tmux.runs_dir, slug, sink, &note);
        }
    }

    /// The directory the command runs in, made if that is wanted.
    fn workdir(&self) -> Result<String, String> {
        let settings = &self.tmux.settings;
        let payload: serde_json::Value =
            serde_json::from_str(&self.delivery.payload).unwrap_or_default();
        // The config's own word; anything else is not for a path.
        let source = payload["source"].as_str().filter(|s| is_plain_name(s));
        let dir = expand(
            &settings.workdir,
            source.unwrap_or("_"),
            &self.delivery.item,
        )?;
        let path = Path::new(&dir);
        if settings.create_workdir {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(path)
                .map_err(|e| Error::new(format!("cannot make {dir}"), e).to_string())?;
        }
        match path.metadata() {
            Ok(meta) if meta.is_dir() => Ok(dir),
            Ok(_) => Err(format!("{dir} is not a directory")),
            Err(e) => Err(format!(
                "{} (\"create_workdir\": true makes it)",
                Error::new(format!("workdir: {dir}"), e)
            )),
        }
    }

    /// The agent has ended: its pane goes, and what comes next gets a new one.
    pub(super) fn replace(&mut self, pane: &Pane, how: &Ended) -> Next {
        if *how == Ended::Signal(String::new()) && self.unsettled < UNSETTLED {
            // tmux saw the terminal closed and has not collected the process. It may even have
            // missed its end; the end of another child, which this makes, has it collect all.
            self.unsettled += 1;
            let _ = self.tmux.client.call(&["run-shell", "-b", "true"], &[]);
            wait::pause(SOON);
            return Next::Look;
        }
        if pane.mark == "started" && *how == Ended::Exit(0) {
            // It got its prompt with its command line, and was done with it.
            return self.typed_mark_of_the_dead(pane);
        }
        if self.made || pane.mark == "started" {
            let last = pane.last_line(&self.tmux.client);
            let last = last.map(|line| format!(": {}", cut(&line, 200)));
            let reason = format!(
                "the agent ended before it was ready ({how}){}",
                last.unwrap_or_default()
            );
            if pane.mark == "started" {
                // Or the next try would find the same.
                let _ = pane.end(&self.tmux.client);
            }
            return Next::Is(Outcome::Failed { reason });
        }
        let typed = pane.end(&self.tmux.client);
        if typed == Typed::Done {
            // Nobody lost it, and the server may have gone with its last session.
            session::forget_note(
                &self.tmux.runs_dir,
                &self.delivery.slug,
                &self.delivery.sink,
            );
            if *how != Ended::Exit(0) {
                self.tmux.tell(format!(
                    "the agent of {} in '{}' had ended ({how}); its session is made again",
                    self.delivery.item, self.delivery.sink
                ));
            }
        }
        self.typed(typed)
    }

    fn typed_mark_of_the_dead(&self, pane: &Pane) -> Next {
        match pane.set(&self.tmux.client, &self.mark, "taken") {
            Typed::Done => Next::Is(Outcome::Delivered),
            typed => self.typed(typed),
        }
    }

    /// Something else runs in the pane: whoever uses it keeps it, under another name.
    pub(super) fn leave(&self, pane: &Pane) -> Next {
        let typed = pane.let_go(&self.tmux.client);
        if typed == Typed::Done {
            self.tmux.tell(format!(
                "the agent of {} in '{}' has ended and left something else in its pane {}, which is let alone",
                self.delivery.item, self.delivery.sink, pane.id
            ));
        }
        self.typed(typed)
    }

    /// Frees the name of the item's session.
    fn rename(&self, session: &Session) {
        let free = format!("{}+{}", session.name, session.id.trim_start_matches('$'));
        let words = ["rename-session", "-t", &session.id, &free];
        let _ = self.tmux.client.call(&words, &[]);
    }

    pub(super) fn end(&self, pane: &Pane) -> Next {
        match pane.end(&self.tmux.client) {
            Typed::Done => self.closed(),
            typed => self.typed(typed),
        }
    }

    /// There is nobody left to be told.
    pub(super) fn closed(&self) -> Next {
        let (slug, sink) = (&self.delivery.slug, &self.delivery.sink);
        session::forget_note(&self.tmux.runs_dir, slug, sink);
        Next::Is(Outcome::Delivered)
    }
}
