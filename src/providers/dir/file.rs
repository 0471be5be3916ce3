//! One item file: its fingerprint, its number, the item in it.

use crate::engine::item::{
    Author, Channel, Comment, Details, Item, ItemRef, Kind, Sighting, State, is_name,
};
use crate::engine::time::Time;
use crate::error::Error;
use crate::os::file::open_regular_or_link;
use crate::providers::json;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What changes whenever a file does: size, mtime and ctime in nanoseconds, inode.
pub type Mark = (u64, i64, i64, u64);

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 64 << 20;

/// The mark of a file.
pub fn mark(meta: &Metadata) -> Mark {
    let ns = |s: i64, ns: i64| s.saturating_mul(1_000_000_000).saturating_add(ns);
    (
        meta.size(),
        ns(meta.mtime(), meta.mtime_nsec()),
        ns(meta.ctime(), meta.ctime_nsec()),
        meta.ino(),
    )
}

/// What a file held.
pub struct Read {
    /// The item.
    pub sighting: Sighting,
    /// Comments nobody can use: which one, and why.
    pub odd_comments: Vec<(String, String)>,
    /// The file as it was when this was read.
    pub mark: Mark,
    /// When it was last changed, by the file system's clock.
    pub changed_at: Time,
}

/// The number in the item file at `path`.
///
/// # Errors
/// Why there is none, for the user.
pub fn number(path: &Path) -> Result<u64, String> {
    let (bytes, _) = bytes(path)?;
    number_in(&object(&json::mend(&bytes))?)
}

/// Reads the item `number` of the source `source` from the file at `path`,
/// which is called `name`.
///
/// # Errors
/// Why it cannot be used, for the user.
pub fn read(path: &Path, name: &str, source: &str, number: u64) -> Result<Read, String> {
    let (bytes, meta) = bytes(path)?;
    let fields = object(&json::mend(&bytes))?;
    if number_in(&fields)? != number {
        return Err("its number changed while it was read".to_string());
    }
    if !fields.contains_key("author") {
        return Err("it has no \"author\"".to_string());
    }
    let item = Item {
        item_ref: ItemRef {
            provider: "dir".to_string(),
            host: None,
            path: source.to_string(),
            number,
        },
        kind: match text(&fields, "kind")? {
            None | Some("issue") => Kind::Issue,
            Some("pull_request") => Kind::PullRequest,
            Some(other) => {
                return Err(format!(
                    "its \"kind\" is {other:?}, not \"issue\" or \"pull_request\""
                ));
            }
        },
        title: text(&fields, "title")?.unwrap_or_default().to_string(),
        body: text(&fields, "body")?.unwrap_or_default().to_string(),
        author: author(&fields)?,
        state: match text(&fields, "state")? {
            Some("open") => State::Open,
            Some("closed") => State::Closed,
            Some("merged") => State::Merged,
            Some(other) => {
                return Err(format!(
                    "its \"state\" is {other:?}, not \"open\", \"closed\" or \"merged\""
                ));
            }
            None => return Err("it has no \"state\"".to_string()),
        },
        labels: labels(&fields)?,
        created_at: time(&fields, "created_at")?,
        labelled_at: time(&fields, "labelled_at")?,
        without_label: Vec::new(),
        unlabelled_at: None,
        labels_dated: false,
        upstream: None,
        closed_at: time(&fields, "closed_at")?,
        url: text(&fields, "url")?.map(str::to_string),
    };
    let changed = |s: i64, ns: i64| {
        let ms = s.saturating_mul(1000).saturating_add(ns / 1_000_000);
        Time(u64::try_from(ms).unwrap_or(0))
    };
    let mtime = changed(meta.mtime(), meta.mtime_nsec());
    let (comments, odd_comments) = comments(&fields, name, mtime)?;
    Ok(Read {
        sighting: Sighting { item, comments },
        odd_comments,
        mark: mark(&meta),
        changed_at: changed(meta.ctime(), meta.ctime_nsec()),
    })
}

/// Why a file could not be opened or read, in a sentence.
pub fn cannot_read(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::NotFound => "it is not there any more".to_string(),
        _ => Error::new("it cannot be read", e).to_string(),
    }
}

fn bytes(path: &Path) -> Result<(Vec<u8>, Metadata), String> {
    let (file, before) = open_regular_or_link(path)
        .and_then(|f| f.metadata().map(|m| (f, m)))
        .map_err(|e| cannot_read(&e))?;
    let too_large = || format!("it is larger than {} MiB", MAX_FILE >> 20);
    if before.len() > MAX_FILE {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    (&file)
        .take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| cannot_read(&e))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(too_large());
    }
    let after = file.metadata().map_err(|e| cannot_read(&e))?;
    // Half of the old text and half of the new can be JSON too.
    if mark(&after) != mark(&before) {
        return Err("it changed while it was read".to_string());
    }
    Ok((bytes, before))
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    match json::parse(text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err("it is not a JSON object".to_string()),
        Err(e) if e.is_eof() => Err(format!("it is not whole JSON yet: {e}")),
        Err(e) => Err(format!("it is not JSON: {e}")),
    }
}

fn number_in(fields: &Map<String, Value>) -> Result<u64, String> {
    fields
        .get("number")
        .and_then(Value::as_u64)
        .filter(|&n| n >= 1)
        .ok_or_else(|| "it has no \"number\" of 1 or more".to_string())
}

fn text<'a>(fields: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, String> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(s)) => Ok(Some(s)),
        Some(_) => Err(format!("its {key:?} is not a text")),
    }
}

fn time(fields: &Map<String, Value>, key: &str) -> Result<Option<Time>, String> {
    text(fields, key)?
        .map(|s| s.parse().map_err(|e| format!("its {key:?}: {e}")))
        .transpose()
}

fn author(fields: &Map<String, Value>) -> Result<Author, String> {
    Ok(Author {
        login: text(fields, "author")?.map(str::to_string),
        association: text(fields, "author_association")?.map(str::to_string),
        bot: match fields.get("bot") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(bot)) => *bot,
            Some(_) => return Err("its \"bot\" is not true or false".to_string()),
        },
    })
}

fn labels(fields: &Map<String, Value>) -> Result<Vec<String>, String> {
    let wrong = || "its \"labels\" are not a list of texts".to_string();
    match fields.get("labels") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(labels)) => labels
            .iter()
            .map(|l| l.as_str().map(str::to_string).ok_or_else(wrong))
            .collect(),
        Some(_) => Err(wrong()),
    }
}

type Comments = (Vec<Comment>, Vec<(String, String)>);

/// The comments, and those nobody can use. One without a time gets `mtime`.
fn comments(fields: &Map<String, Value>, name: &str, mtime: Time) -> Result<Comments, String> {
    let list = match fields.get("comments") {
        None | Some(Value::Null) => return Ok(Comments::default()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err("its \"comments\" are not a list".to_string()),
    };
    let (mut good, mut odd) = Comments::default();
    let mut ids = BTreeSet::new();
    for (at, value) in list.iter().enumerate() {
        let comment = comment(value, mtime).and_then(|c| {
            if ids.insert(c.id.clone()) {
                Ok(c)
            } else {
                Err(format!("its \"id\" {:?} is that of an earlier one", c.id))
            }
        });
        match comment {
            Ok(comment) => good.push(comment),
            Err(reason) => odd.push((format!("{name} comment {}", at + 1), reason)),
        }
    }
    Ok((good, odd))
}

fn comment(value: &Value, mtime: Time) -> Result<Comment, String> {
    let Value::Object(fields) = value else {
        return Err("it is not a JSON object".to_string());
    };
    let id = match fields.get("id") {
        Some(Value::String(id)) => id.clone(),
        Some(Value::Number(id)) if id.is_u64() => id.to_string(),
        _ => return Err("it has no \"id\"".to_string()),
    };
    if !is_name(&id) {
        let shown: String = id.chars().take(40).collect();
        return Err(format!(
            "its \"id\" {shown:?} is not 1 to 100 letters, digits, '.', '_' or '-'"
        ));
    }
    Ok(Comment {
        channel: Channel::Comment,
        id,
        author: author(fields)?,
        body: text(fields, "body")?.unwrap_or_default().to_string(),
        created_at: time(fields, "created_at")?.unwrap_or(mtime),
        url: text(fields, "url")?.map(str::to_string),
        details: Details::default(),
        upstream: None,
    })
}
