//! Reading the ledger: for commands that only look, and for the ledger itself.
//!
//! A reader takes no lock and writes nothing. Records are replaced by renaming,
//! so it sees the old one or the new one; when the blocks of the old one
//! vanish while it reads, it begins again with the new one.

use super::blocks;
use super::disk;
use super::head::{Head, Wrong};
use super::layout::Layout;
use crate::engine::delivery::Slug;
use crate::engine::record::Record;
use crate::engine::time::Time;
use crate::error::Error;
use crate::os::file::Facts;
use crate::os::pid::User;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// How often a record is read again because it changed meanwhile.
const TRIES: usize = 20;

/// Why a file of the state could not be loaded, by what is done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadError {
    /// Its content is not what was written: set it aside, report it, go on from `modified`.
    Damaged {
        /// What is wrong with it.
        reason: String,
        /// When the file was last written.
        modified: Time,
    },
    /// It was damaged, was set aside and reported, and nothing took its place
    /// since. As `Damaged`, but there is nothing to set aside or report any more.
    SetAside {
        /// When the file was last written.
        modified: Time,
    },
    /// It cannot be read now: leave it alone and try again later.
    Unreadable {
        /// Why.
        reason: String,
    },
    /// A newer release wrote it: leave it alone.
    Newer {
        /// The version it has.
        version: u64,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Damaged { reason, .. } => write!(f, "damaged: {reason}"),
            LoadError::SetAside { .. } => f.write_str("it was damaged and set aside"),
            LoadError::Unreadable { reason } => write!(f, "cannot be read: {reason}"),
            LoadError::Newer { version } => {
                write!(f, "version {version} is newer than this idempoll knows")
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// Reads the state of a poller that may or may not be running.
#[derive(Debug, Clone)]
pub struct Reader {
    layout: Layout,
}

impl Reader {
    /// A reader of this state directory, which need not exist.
    #[must_use]
    pub fn new(layout: Layout) -> Reader {
        Reader { layout }
    }

    /// The record named `slug`, if there is one.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load(&self, slug: &Slug) -> Result<Option<Record>, LoadError> {
        load(&self.layout, slug)
    }

    /// All records, sorted.
    ///
    /// # Errors
    /// Names the directory.
    pub fn slugs(&self) -> Result<Vec<Slug>, Error> {
        slugs_in(&self.layout.items(), ".json")
    }

    /// The records marked as unfinished, sorted. Some of them may be finished.
    ///
    /// # Errors
    /// Names the directory.
    pub fn pending(&self) -> Result<Vec<Slug>, Error> {
        slugs_in(&self.layout.pending(), "")
    }

    /// The layout it reads.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}

/// The slugs among the names in `dir` that end in `suffix`, sorted; none if there is no `dir`.
pub(super) fn slugs_in(dir: &Path, suffix: &str) -> Result<Vec<Slug>, Error> {
    let names = match disk::list(dir) {
        Ok(names) => names,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(cannot_read(dir, &e)),
    };
    let mut slugs: Vec<Slug> = names
        .iter()
        .filter_map(|name| Slug::from_file_name(name.to_str()?.strip_suffix(suffix)?))
        .collect();
    slugs.sort();
    Ok(slugs)
}

/// The error of a read.
pub(super) fn cannot_read(path: &Path, e: &io::Error) -> Error {
    let error = Error::new(format!("cannot read {}", path.display()), e);
    match e.kind() {
        io::ErrorKind::PermissionDenied => match owner(path) {
            Some(owner) => error.hint(format!("it belongs to {owner}: run this as {owner}")),
            None => error.hint("run this as the user that owns the file"),
        },
        _ => error,
    }
}

/// Whose a path is; of one that may not even be seen, whose the directory is that hides it.
fn owner(path: &Path) -> Option<User> {
    let seen = path.ancestors().find_map(|path| Facts::at(path).ok())?;
    Some(User(seen.owner))
}

/// Reads a file of ours and says when it was last written; `None` if there is none.
pub(super) fn read_file(path: &Path) -> Result<Option<(Vec<u8>, Time)>, LoadError> {
    match disk::read(path) {
        Ok((bytes, modified)) => Ok(Some((bytes, Time::from(modified)))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => {
            let denied = e.kind() == io::ErrorKind::PermissionDenied;
            let owner = owner(path).filter(|_| denied);
            let whose = owner.map_or(String::new(), |o| format!(" (it belongs to {o})"));
            let reason = Error::new(path.display().to_string(), e).to_string();
            Err(LoadError::Unreadable {
                reason: reason + &whose,
            })
        }
    }
}

/// Loads a record.
pub(super) fn load(layout: &Layout, slug: &Slug) -> Result<Option<Record>, LoadError> {
    let path = layout.item(slug);
    let mut last = None;
    for _ in 0..TRIES {
        let Some((bytes, modified)) = read_file(&path)? else {
            return match newest_aside(&layout.items_aside(), slug) {
                Some(modified) => Err(LoadError::SetAside { modified }),
                None => Ok(None),
            };
        };
        match assemble(layout, slug, &bytes) {
            // A block that is gone may only mean that a newer head is there by now.
            Err(LoadError::Damaged { reason, .. }) if last.as_ref() == Some(&bytes) => {
                return Err(LoadError::Damaged { reason, modified });
            }
            Err(LoadError::Damaged { .. }) => last = Some(bytes),
            done => return done.map(Some),
        }
    }
    Err(LoadError::Unreadable {
        reason: format!("{} changes faster than it can be read", path.display()),
    })
}

/// Puts a record together from its head and its blocks. The time in the error is not set.
fn assemble(layout: &Layout, slug: &Slug, bytes: &[u8]) -> Result<Record, LoadError> {
    let head = Head::parse(bytes).map_err(|w| wrong(w, None))?;
    if head.slug() != *slug {
        let what = format!("it is the record of {}", head.slug());
        return Err(wrong(Wrong::Damaged(what), None));
    }
    let dir = layout.item_blocks(slug);
    let block = |name: &str| -> Result<Vec<u8>, LoadError> {
        match read_file(&dir.join(name))? {
            Some((bytes, _)) => Ok(bytes),
            None => Err(wrong(Wrong::Damaged("it is missing".into()), Some(name))),
        }
    };
    let mut known = Vec::new();
    for n in 0..head.blocks().known_blocks {
        let name = blocks::known_name(n);
        let entries = blocks::parse_known(&block(&name)?);
        known.extend(entries.map_err(|w| wrong(w, Some(&name)))?);
    }
    let mut events = BTreeMap::new();
    for (&first, &last) in &head.blocks().event_blocks {
        let name = blocks::events_name(first);
        blocks::parse_events(&block(&name)?, first, last, &mut events)
            .map_err(|w| wrong(w, Some(&name)))?;
    }
    head.finish(known, events).map_err(|w| wrong(w, None))
}

/// What is wrong with a head, or with its block of that name.
fn wrong(wrong: Wrong, block: Option<&str>) -> LoadError {
    match wrong {
        Wrong::Newer(version) => LoadError::Newer { version },
        Wrong::Damaged(reason) => LoadError::Damaged {
            reason: match block {
                Some(name) => format!("its block {name}: {reason}"),
                None => reason,
            },
            modified: Time::ZERO,
        },
    }
}

/// The file that holds the `n`th damaged one of a name.
pub(super) fn aside_path(aside: &Path, slug: &Slug, n: u32) -> PathBuf {
    aside.join(format!("{slug}.{n}.json"))
}

/// When the newest damaged file of this name was last written, if there is one.
fn newest_aside(aside: &Path, slug: &Slug) -> Option<Time> {
    let mut newest = None;
    for n in 1.. {
        let Ok(meta) = std::fs::symlink_metadata(aside_path(aside, slug, n)) else {
            break;
        };
        newest = newest.max(meta.modified().ok().map(Time::from));
    }
    newest
}
