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
    let target = format!("={name}:");
    let item = format!("IDEMPOLL_REF={}", new.item);
    let workdir = client::word(new.workdir);
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
        &workdir,
        "-e",
        &item,
        "--",
        // Several words are run as they are; a single one would be read by the user's shell.
        "sh",
        "-c",
        "exec \"$@\"",
        "sh",
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
        Called::Done(said) => note(client, &name, &said, delivery_id)
            .ok_or_else(|| Called::Refused(said, "an answer nobody understands".into())),
        called => Err(called),
    }
}

/// What is noted of a session that is there already; nothing if it does not answer.
#[must_use]
pub fn describe(client: &Client, pane: &Pane, delivery_id: &str) -> Option<Note> {
    match client.call(&["display-message", "-p", "-t", &pane.id, NOTED], &[]) {
        Called::Done(said) => note(client, &pane.session, &said, delivery_id),
        _ => None,
    }
}

/// The format that [`note`] reads.
const NOTED: &str = "#{pane_id} #{pane_pid} #{pid} #{session_created}";

fn note(client: &Client, session: &str, said: &str, delivery_id: &str) -> Option<Note> {
    let mut fields = said.split_whitespace();
    Some(Note {
        version: 1,
        socket: client.socket.clone(),
        session: session.to_string(),
        pane: fields.next()?.to_string(),
        pid: fields.next()?.parse().ok()?,
        server_pid: fields.next()?.parse().ok()?,
        created: fields.next()?.parse().ok()?,
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
    format!("tmux -S {socket} attach -t '={}'", note.session)
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
