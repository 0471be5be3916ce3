//! A directory of item files: each `*.json` directly in it is one item.
//!
//! Names that begin with a dot or end in `~` are no items, nor is anything but
//! a regular file. A symlink counts as the file it leads to. An item file is
//! one JSON object:
//!
//! ```json
//! { "number": 7, "author": "octocat", "state": "open",
//!   "title": "…", "body": "…", "labels": ["auto"], "url": "…",
//!   "kind": "issue", "author_association": "MEMBER", "bot": false,
//!   "created_at": "2026-08-05T10:00:00Z", "labelled_at": "…", "closed_at": "…",
//!   "comments": [ { "id": "1", "author": "octocat", "body": "…",
//!                   "created_at": "2026-08-05T10:05:00Z", "url": "…" } ] }
//! ```
//!
//! `number` (1 or more), `author` (`null` is nobody) and `state` (`open`,
//! `closed`, `merged`) are required; unknown fields are ignored. A comment
//! without a time takes that of its file's last change.
//!
//! A file that cannot be used is reported, changes nothing, counts as there
//! under the number it had, and is looked at again by the next listing: not
//! whole JSON yet, a state nobody knows, larger than 64 MiB. Two files with
//! one number are both reported and neither is used, so that what was known of
//! that item stands until one of them is gone.
//!
//! # Cursor
//!
//! `{"dir": [device, inode], "files": {"7.json": [number, mark]}}`, where
//! `mark` is `[size, mtime, ctime, inode]` (times in nanoseconds) of the file
//! as it was read, and `null` when it must be read again. A listing with
//! nothing new costs one `readdir` and one `stat` per file. A file that changed
//! within the last two seconds gets no mark, because a second change in the
//! same tick of the clock would not show.

mod file;

use super::{Ask, Out, Provider, tell};
use crate::config::checked::Dir;
use crate::engine::listing::{Complete, Coverage, Cut, Heard, Listing};
use crate::error::Error;
use crate::mutant;
use file::Mark;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

/// A change younger than this may be followed by one that does not show.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Lists the item files of one directory.
#[derive(Debug)]
pub struct DirProvider {
    /// The source's name, which stands in its items' refs.
    source: String,
    dir: Dir,
}

impl DirProvider {
    /// The directory `dir` as the source named `source`.
    #[must_use]
    pub fn new(source: &str, dir: Dir) -> DirProvider {
        DirProvider {
            source: source.to_string(),
            dir,
        }
    }
}

impl Provider for DirProvider {
    fn list(&mut self, ask: &Ask, out: &mut dyn Out) -> Listing {
        match self.walk(ask, out) {
            Ok(complete) => Listing::Complete(complete),
            Err(_) if mutant::is("no-directory-is-an-empty-one") => Listing::nothing_there(),
            Err(cut) => Listing::Cut(cut),
        }
    }
}

/// What the cursor holds; see the module's text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Cursor {
    dir: (u64, u64),
    files: BTreeMap<String, (u64, Option<Mark>)>,
}

/// One name in the directory, as the first look found it.
struct Found {
    /// The item's number: as read now, or else as it was known.
    number: Option<u64>,
    state: FileState,
}

enum FileState {
    /// As it was when it was last read.
    Same(Mark),
    /// To be read and told.
    Changed,
    /// To be reported, with the reason, and looked at again next time.
    Unusable(String),
}

impl DirProvider {
    fn walk(&self, ask: &Ask, out: &mut dyn Out) -> Result<Complete, Cut> {
        let known: Cursor = ask
            .cursor
            .as_ref()
            .and_then(|c| Cursor::deserialize(c).ok())
            .unwrap_or_default();
        let path = &self.dir.path;
        let unlisted = |e: io::Error| {
            Cut::because(Error::new(format!("cannot list {}", path.display()), e).to_string())
        };
        let meta = fs::metadata(path).map_err(unlisted)?;
        let here = (meta.dev(), meta.ino());
        let names = names(path).map_err(unlisted)?;
        if here != known.dir
            && !known.files.is_empty()
            && !names
                .iter()
                .filter_map(|n| n.to_str())
                .any(|n| known.files.contains_key(n))
        {
            // Most likely a disk that is not mounted; "all gone" would end every item.
            return Err(Cut::because(format!(
                "{} is another directory than before and holds none of the {} known files; \
                 if that is meant, give the source a new name",
                path.display(),
                known.files.len()
            )));
        }

        // First the numbers, so that two files with one number are found before either is used.
        let mut files = BTreeMap::new();
        for name in names {
            let Some(text) = name.to_str() else {
                let found = Found {
                    number: None,
                    state: FileState::Unusable("its name is not UTF-8".to_string()),
                };
                files.insert(name.to_string_lossy().into_owned(), found);
                continue;
            };
            if let Some(found) = look(&path.join(&name), known.files.get(text).copied()) {
                files.insert(text.to_string(), found);
            }
        }
        set_apart_equal_numbers(&mut files);

        let mut changed: Vec<(u64, String)> = files
            .iter()
            .filter(|(_, found)| matches!(found.state, FileState::Changed))
            .filter_map(|(name, found)| Some((found.number?, name.clone())))
            .collect();
        changed.sort();
        for (number, name) in changed {
            let state = match file::read(&path.join(&name), &name, &self.source, number) {
                Ok(read) => {
                    for (what, reason) in read.odd_comments {
                        tell(out, Heard::Unreadable { what, reason })?;
                    }
                    tell(out, Heard::Sighting(Box::new(read.sighting)))?;
                    if ask.now.since(read.changed_at) >= SETTLED_AFTER {
                        FileState::Same(read.mark)
                    } else {
                        FileState::Changed
                    }
                }
                Err(reason) => FileState::Unusable(reason),
            };
            if let Some(found) = files.get_mut(&name) {
                found.state = state;
            }
        }

        let mut next = Cursor {
            dir: here,
            files: BTreeMap::new(),
        };
        let mut present = BTreeSet::new();
        let mut all_numbers_known = true;
        for (name, found) in files {
            let mark = match found.state {
                FileState::Same(mark) => Some(mark),
                FileState::Changed => None,
                FileState::Unusable(reason) => {
                    let what = name.clone();
                    tell(out, Heard::Unreadable { what, reason })?;
                    None
                }
            };
            if let Some(number) = found.number {
                present.insert(number);
                next.files.insert(name, (number, mark));
            } else {
                all_numbers_known = false;
            }
        }
        Ok(Complete {
            cursor: match &ask.cursor {
                Some(cursor) if next == known => cursor.clone(),
                _ => serde_json::to_value(&next)
                    .map_err(|e| Cut::because(format!("cannot write the cursor: {e}")))?,
            },
            coverage: if all_numbers_known {
                Coverage::Everything {
                    present: present.into_iter().collect(),
                }
            } else {
                Coverage::Changes {
                    missing: Vec::new(),
                }
            },
        })
    }
}

/// The names in `dir` that can be items, in order.
fn names(dir: &Path) -> io::Result<BTreeSet<OsString>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let bytes = name.as_encoded_bytes();
        if bytes.ends_with(b".json") && !bytes.starts_with(b".") {
            names.insert(name);
        }
    }
    Ok(names)
}

/// Finds out whether a file changed since it was `former`ly read, and its
/// number; `None` if it is not a regular file and so no item.
fn look(path: &Path, former: Option<(u64, Option<Mark>)>) -> Option<Found> {
    let unusable = |reason| Found {
        number: former.map(|(number, _)| number),
        state: FileState::Unusable(reason),
    };
    let meta = match fs::metadata(path) {
        Ok(meta) if meta.is_file() => meta,
        Ok(_) => return None,
        Err(e) => return Some(unusable(file::cannot_read(&e))),
    };
    let mark = file::mark(&meta);
    if let Some((number, Some(last))) = former
        && last == mark
    {
        return Some(Found {
            number: Some(number),
            state: FileState::Same(mark),
        });
    }
    Some(match file::number(path) {
        Ok(number) => Found {
            number: Some(number),
            state: FileState::Changed,
        },
        Err(reason) => unusable(reason),
    })
}

/// Of files with one number none is used, for nobody can say which is meant.
fn set_apart_equal_numbers(files: &mut BTreeMap<String, Found>) {
    let mut owners: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for (name, found) in files.iter() {
        if let Some(number) = found.number {
            owners.entry(number).or_default().push(name.clone());
        }
    }
    for (number, names) in owners.iter().filter(|(_, names)| names.len() > 1) {
        for name in names {
            if let Some(found) = files.get_mut(name)
                && !matches!(found.state, FileState::Unusable(_))
            {
                found.state = FileState::Unusable(format!(
                    "number {number} is that of {}; none of them is used",
                    names.join(" and ")
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests;
