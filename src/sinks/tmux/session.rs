//! An item's session: its name, how it is made, and the note about it.
//!
//! # Disk format
//!
//! `RUNS/<record slug>/<sink>/session.json`, mode 0600, for `idempoll show` and
//! to notice that a session was lost:
//!
//! ```text
//! {"version":1,"socket":"/…/tmux/agent.sock","session":"inbox~7","pane":"%3","pid":812,
//!  "server_pid":700,"created":1786000000,"delivery_id":"dir:inbox#7/opened"}
//! ```
//!
//! Nothing is decided by it, so it is not synced: what holds is in the server.
//! Beside it, `<seq>.prompt.txt` has the text that a command was given as `{prompt_file}`.

use super::client::{self, Called, Client};
use super::pane::Pane;
use crate::engine::delivery::Slug;
use crate::mutant;
use crate::os::file;
use crate::sinks::receipt;
use serde::{Deserialize, Serialize};
use std::fs::DirBuilder;
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// What is known of an item's session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The format, 1.
    pub version: u32,
    /// The server's socket.
    pub socket: PathBuf,
    /// The session's name.
    pub session: String,
    /// The agent's pane.
    pub pane: String,
    /// The agent's first process.
    pub pid: u32,
    /// The server's process.
    pub server_pid: u32,
    /// When the session was made, in seconds since 1970.
    pub created: u64,
    /// The delivery it was made for.
    pub delivery_id: String,
}

/// Neither a colon nor a dot may stand in a session's name; a dot becomes a
/// plus, which no record's name has. So two records never share a session.
#[must_use]
pub fn name(slug: &Slug) -> String {
    slug.as_str().replace('.', "+")
}

/// What makes a session.
#[derive(Debug, Clone)]
pub struct New<'a> {
    /// The record it is for.
    pub slug: &'a Slug,
    /// The item's ref, for the agent's environment.
    pub item: String,
    /// Where the command runs.
    pub workdir: &'a str,
    /// The command.
    pub command: &'a [String],
    /// The mark to set at once, for a delivery that travels with the command.
    pub started: Option<&'a str>,
}

/// Makes a session with the agent in it; says what is to be noted of it.
///
/// # Errors
/// The call's own answer when it did not succeed.
pub fn make(client: &Client, new: &New, delivery_id: &str) -> Result<Note, Called> {
    let name = name(new.slug);
    // Not what has the focus: a hook of somebody's may have opened another pane by then.
    let target = match mutant::is("tmux-marks-where-the-focus-is") {
        true => format!("={name}:"),
        false => format!("={name}:^.{{top-left}}"),
    };
    let item = format!("IDEMPOLL_REF={}", new.item);
    // Only where what people open beside it starts, for tmux may read a '#' in it as a format.
    let beside = client::word(&new.workdir.replace('#', "##"));
    let workdir = client::word(new.workdir);
    // tmux itself would go elsewhere without a word where it cannot go.
    let run = "cd \"$1\" && shift && exec \"$@\"";
    let mut words: Vec<String> = [
        "new-session",
        "-d",
        "-P",
        "-F",
        NOTED,
        "-s",
        &name,
        "-x",
        "200",
        "-y",
        "50",
        "-c",
        &beside,
        "-e",
        &item,
        "--",
        // Several words are run as they are; a single one would be read by the user's shell.
        "sh",
        "-c",
        run,
        "sh",
        &workdir,
    ]
    .map(str::to_string)
    .to_vec();
    words.extend(new.command.iter().map(|word| client::word(word)));
    let mut set = |flags: &str, option: &str, value: &str| {
        let set = [";", "set-option", flags, "-t", &target, option, value];
        words.extend(set.map(str::to_string));
    };
    // An agent that ended leaves its pane, and so is seen; in no other pane.
    set("-p", "remain-on-exit", "on");
    set("-pF", "@idempoll-pid", "#{pane_pid}");
    if let Some(mark) = new.started {
        set("-p", mark, "started");
    }
    set("-p", "@idempoll-agent", new.slug.as_str());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match client.call(&words, &[]) {
        Called::Done(said) => note(client, &said, delivery_id)
            .ok_or_else(|| Called::Refused(said, "an answer nobody understands".into())),
        called => Err(called),
    }
}

/// What is to be noted of a session that has been there for a while.
#[must_use]
pub fn note_of(client: &Client, pane: &Pane, delivery_id: &str) -> Option<Note> {
    let words = ["display-message", "-p", "-t", &pane.id, NOTED];
    match client.call(&words, &[]) {
        Called::Done(said) => note(client, &said, delivery_id),
        _ => None,
    }
}

/// What tmux is asked of a session to be noted.
const NOTED: &str = "#{pane_id} #{pane_pid} #{pid} #{session_created} #{session_name}";

fn note(client: &Client, said: &str, delivery_id: &str) -> Option<Note> {
    // The name may hold anything but a line break.
    let mut fields = said.trim_end_matches('\n').splitn(5, ' ');
    Some(Note {
        version: 1,
        socket: client.socket.clone(),
        pane: fields.next()?.to_string(),
        pid: fields.next()?.parse().ok()?,
        server_pid: fields.next()?.parse().ok()?,
        created: fields.next()?.parse().ok()?,
        session: fields.next()?.to_string(),
        delivery_id: delivery_id.to_string(),
    })
}

/// The command that shows an item's session to a person.
#[must_use]
pub fn attach(note: &Note) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,@%:".contains(c);
    let socket = note.socket.display().to_string();
    let socket = match socket.chars().all(plain) {
        true => socket,
        false => format!("'{}'", socket.replace('\'', r"'\''")),
    };
    let session = note.session.replace('\'', r"'\''");
    format!("tmux -S {socket} attach -t '={session}'")
}

/// The note about an item's session, if there is one.
#[must_use]
pub fn read_note(runs_dir: &Path, slug: &Slug, sink: &str) -> Option<Note> {
    let path = receipt::dir(runs_dir, slug, sink).join(NOTE);
    let mut text = String::new();
    file::open_regular(&path)
        .ok()?
        .take(64 * 1024)
        .read_to_string(&mut text)
        .ok()?;
    serde_json::from_str(&text)
        .ok()
        .filter(|n: &Note| n.version == 1)
}

/// Writes the note down.
///
/// # Errors
/// When it cannot be written.
pub fn write_note(runs_dir: &Path, slug: &Slug, sink: &str, note: &Note) -> io::Result<()> {
    let mut text = serde_json::to_string(note)?;
    text.push('\n');
    write_anew(runs_dir, slug, sink, NOTE, &text).map(drop)
}

/// Writes a text for the command to read; gives the file.
///
/// # Errors
/// When it cannot be written.
pub fn write_prompt(
    runs_dir: &Path,
    slug: &Slug,
    sink: &str,
    seq: u64,
    text: &str,
) -> io::Result<PathBuf> {
    write_anew(runs_dir, slug, sink, &format!("{seq}.prompt.txt"), text)
}

/// Forgets the text of a delivery.
pub fn forget_prompt(runs_dir: &Path, slug: &Slug, sink: &str, seq: u64) {
    let dir = receipt::dir(runs_dir, slug, sink);
    let _ = std::fs::remove_file(dir.join(format!("{seq}.prompt.txt")));
}

/// Forgets the session: the item has ended.
pub fn forget_note(runs_dir: &Path, slug: &Slug, sink: &str) {
    let _ = std::fs::remove_file(receipt::dir(runs_dir, slug, sink).join(NOTE));
}

const NOTE: &str = "session.json";

fn write_anew(
    runs_dir: &Path,
    slug: &Slug,
    sink: &str,
    name: &str,
    text: &str,
) -> io::Result<PathBuf> {
    let dir = receipt::dir(runs_dir, slug, sink);
    DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    let path = dir.join(name);
    // Never over what is there, be it a link: nobody but us has anything here.
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    file::create_new(&path)?.write_all(text.as_bytes())?;
    Ok(path)
}
