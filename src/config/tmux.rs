//! The rules for a `tmux` sink.

use super::checked::{OnClose, Submit, Tmux};
use super::keys;
use super::rules::Rules;
use super::spot::{Section, Spot};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What `workdir` may hold in braces.
const IN_WORKDIR: [&str; 4] = ["source", "owner", "repo", "number"];

impl Rules<'_> {
    pub(super) fn tmux(
        &self,
        section: &Section,
        name: &str,
        state_dir: Option<&Path>,
        sockets: &mut BTreeMap<PathBuf, String>,
    ) -> Option<Tmux> {
        let command = section.need("command").and_then(|s| self.command(&s));
        let workdir = match section.get("workdir") {
            Some(spot) => self.workdir(&spot),
            None => self.base.to_str().map(str::to_string),
        };
        let create_workdir = match section.get("create_workdir") {
            Some(spot) => spot.truth(),
            None => Some(false),
        };
        let socket = self.socket(section, name, state_dir, sockets);
        let text = |key| match section.get(key) {
            Some(spot) => spot.text().map(Some),
            None => Some(None),
        };
        let (ready_text, idle_text) = (text("ready_text"), text("idle_text"));
        let seconds = |key, range, default| match section.get(key) {
            Some(spot) => spot.number(range),
            None => Some(default),
        };
        let ready = match section.get("ready_text") {
            Some(_) => 60.0,
            None => 3.0,
        };
        let ready = seconds("ready_seconds", keys::READY, ready);
        let template_file = match section.get("template_file") {
            Some(spot) => self.path(&spot).map(Some),
            None => Some(None),
        };
        let enter = seconds("enter_seconds", keys::ENTER, 1.0);
        let submit = match section.get("submit_check") {
            Some(spot) if spot.is_text() => match spot.text()?.as_str() {
                "receipt" => Some(Submit::Receipt),
                "none" => Some(Submit::None),
                _ => {
                    spot.wrong("must be \"receipt\", \"none\" or a command as a list of texts");
                    None
                }
            },
            Some(spot) => self.command(&spot).map(Submit::Command),
            None => Some(Submit::Receipt),
        };
        let on_close = match section.get("on_close") {
            Some(spot) => match spot.text()?.as_str() {
                "end" => Some(OnClose::End),
                "keep" => Some(OnClose::Keep),
                "tell" => Some(OnClose::Tell),
                other => {
                    spot.wrong(format!(
                        "must be \"end\", \"keep\" or \"tell\", not '{}'",
                        other.escape_debug()
                    ));
                    None
                }
            },
            None => Some(OnClose::End),
        };
        let max_sessions = match section.get("max_sessions") {
            Some(spot) => spot.whole(keys::SESSIONS),
            None => Some(8),
        };
        let quiet = seconds("quiet_seconds", keys::QUIET, 0.0);
        Some(Tmux {
            command: command?,
            workdir: workdir?,
            create_workdir: create_workdir?,
            socket: socket?,
            ready_text: ready_text?,
            ready: Duration::from_secs_f64(ready?),
            idle_text: idle_text?,
            template_file: template_file?,
            enter: Duration::from_secs_f64(enter?),
            submit: submit?,
            on_close: on_close?,
            max_sessions: usize::try_from(max_sessions?).ok()?,
            quiet: Duration::from_secs_f64(quiet?),
        })
    }

    /// A path with names in braces, of which we know where each comes from.
    fn workdir(&self, spot: &Spot) -> Option<String> {
        let text = spot.text()?;
        let words = text.split('{').skip(1).map(|w| w.split('}').next());
        for word in words.flatten() {
            if !IN_WORKDIR.contains(&word) {
                spot.wrong(format!(
                    "unknown {{{}}}; known: {{{}}}",
                    word.escape_debug(),
                    IN_WORKDIR.join("}, {")
                ));
                return None;
            }
        }
        self.at_base(spot, &text)?.to_str().map(str::to_string)
    }

    fn socket(
        &self,
        section: &Section,
        name: &str,
        state_dir: Option<&Path>,
        sockets: &mut BTreeMap<PathBuf, String>,
    ) -> Option<PathBuf> {
        let spot = section.get("socket");
        let socket = match &spot {
            Some(spot) => self.path(spot)?,
            None => state_dir?.join("tmux").join(format!("{name}.sock")),
        };
        let at = spot.as_ref().unwrap_or(&section.spot);
        let length = socket.as_os_str().len();
        if length > keys::SOCKET_LENGTH {
            let hint = match spot.is_some() {
                true => "",
                false => "; name a shorter one as 'socket'",
            };
            at.wrong(format!(
                "the socket {} has a path of {length} bytes, and {} are the most{hint}",
                socket.display(),
                keys::SOCKET_LENGTH
            ));
            return None;
        }
        if let Some(other) = sockets.insert(socket.clone(), name.to_string()) {
            at.wrong(format!(
                "the sink '{other}' has the same socket; each needs a server of its own"
            ));
            return None;
        }
        Some(socket)
    }
}
