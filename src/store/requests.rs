//! What other processes ask the poller to do with the ledger: `requests/`.
//!
//! One file per request, `<milliseconds>-<pid>-<n>.json`, so that names sort by
//! time: `{"version":1,"at":"…","verb":"retry","ref":"…","delivery":"…"}` or
//! `{"version":1,"at":"…","verb":"retry_all"}`. Whoever holds the lock takes
//! them, saves the records they change, and then removes them. A request is
//! done again if that is cut off in between, so each must do no harm twice.

use super::atomic::{self, cannot_write};
use super::disk;
use super::layout::Layout;
use super::reader::{LoadError, read_file};
use crate::engine::item::ItemRef;
use crate::engine::time::Time;
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The version of requests written here, and the newest that is understood.
const VERSION: u64 = 1;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The format, 1.
    pub version: u64,
    /// When it was made.
    pub at: Time,
    /// What is asked.
    #[serde(flatten)]
    pub verb: Verb,
}

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Verb {
    /// Re-arm what was given up of one item.
    Retry {
        /// The item.
        #[serde(rename = "ref")]
        item: ItemRef,
        /// Only this delivery; all of them if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delivery: Option<String>,
    },
    /// Re-arm everything that was given up.
    RetryAll,
}

impl Request {
    /// A request made at `at`.
    #[must_use]
    pub fn new(at: Time, verb: Verb) -> Request {
        Request {
            version: VERSION,
            at,
            verb,
        }
    }
}

/// Leaves a request, durably; any process may. Says which file it is. 2 syncs.
///
/// # Errors
/// Names the file. There is no request then.
pub fn submit(layout: &Layout, request: &Request) -> Result<PathBuf, Error> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let dir = layout.requests();
    disk::make_dir(&dir).map_err(|e| cannot_write(&dir, &e))?;
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{:015}-{}-{n:06}.json", request.at.0, std::process::id());
    let path = dir.join(name);
    let bytes = serde_json::to_vec(request).map_err(|e| cannot_write(&path, &e.into()))?;
    atomic::write(&path, &bytes)?;
    Ok(path)
}

/// Whether there is any request. Lists the directory, which is nearly always empty.
#[must_use]
pub fn any(layout: &Layout) -> bool {
    !waiting(layout).is_empty()
}

/// Whether there is surely none: the directory is there and could be listed.
#[must_use]
pub fn none(layout: &Layout) -> bool {
    list(layout).is_ok_and(|names| names.is_empty())
}

/// All requests, oldest first, each with its file, or with the reason why it
/// cannot be understood. They stay where they are until [`done`].
#[must_use]
pub fn take(layout: &Layout) -> Vec<(PathBuf, Result<Request, String>)> {
    waiting(layout)
        .into_iter()
        .filter_map(|path| {
            let request = match read_file(&path) {
                // Another process that holds the lock now and then was faster.
                Ok(None) => return None,
                Ok(Some((bytes, _))) => parse(&bytes),
                Err(LoadError::Unreadable { reason }) => Err(reason),
                Err(e) => Err(e.to_string()),
            };
            Some((path, request))
        })
        .collect()
}

/// Removes a request that was carried out, or reported as not understood.
///
/// # Errors
/// Names the file. If it could not be removed it was at least renamed out of
/// sight where that is possible, and then this is `Ok`.
pub fn done(path: &Path) -> Result<(), Error> {
    let Err(e) = disk::remove(path) else {
        return Ok(());
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let hidden = path.with_file_name(format!(".done.{name}"));
    disk::rename(path, &hidden)
        .map_err(|_| Error::new(format!("cannot remove {}", path.display()), e))
}

/// The files of all requests, oldest first.
fn waiting(layout: &Layout) -> Vec<PathBuf> {
    let dir = layout.requests();
    let mut names = list(layout).unwrap_or_default();
    names.sort();
    names.into_iter().map(|name| dir.join(name)).collect()
}

/// The names of the files of all requests.
fn list(layout: &Layout) -> io::Result<Vec<OsString>> {
    let mut names = disk::list(&layout.requests())?;
    names.retain(|name| {
        let name = name.to_str();
        name.is_some_and(|n| !n.starts_with('.') && n.ends_with(".json"))
    });
    Ok(names)
}

fn parse(bytes: &[u8]) -> Result<Request, String> {
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(VERSION) => serde_json::from_value(value).map_err(|e| e.to_string()),
        Some(version) => Err(format!("version {version} is not one this idempoll knows")),
        None => Err("it has no version".to_string()),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::super::disk::trace::{self, Break};
    use super::super::testing::Dir;
    use super::*;

    fn retry(at: u64) -> Request {
        let item = "github:octo/api#7".parse().expect("a ref");
        let delivery = Some("github:octo/api#7/comment/1".to_string());
        Request::new(Time(at), Verb::Retry { item, delivery })
    }

    /// Given requests of several moments, then they are taken oldest first,
    /// stay until they are done, and are noticed cheaply.
    #[test]
    fn requests_are_taken_oldest_first() {
        let dir = Dir::new();
        let layout = dir.layout();
        assert!(!any(&layout) && take(&layout).is_empty());
        assert!(!none(&layout), "nobody could look");
        std::fs::create_dir(&layout.state_dir).expect("a directory");
        let all = Request::new(Time(900), Verb::RetryAll);
        for request in [&retry(10_000), &all, &retry(1_000), &retry(1_000)] {
            submit(&layout, request).expect("left");
        }
        std::fs::write(layout.requests().join(".tmp.1.1"), "{").expect("a temp");
        assert!(any(&layout) && !none(&layout));
        for _ in 0..2 {
            let taken: Vec<_> = take(&layout).into_iter().map(|(_, r)| r).collect();
            let want = [all.clone(), retry(1_000), retry(1_000), retry(10_000)].map(Ok);
            assert_eq!(taken, want);
        }
        for (path, _) in take(&layout) {
            done(&path).expect("done");
            done(&path).expect("done twice");
        }
        assert!(!any(&layout) && none(&layout));
    }

    /// The format others may write.
    #[test]
    fn a_request_reads_as_documented() {
        let text = serde_json::to_string(&retry(1_785_924_000_000)).expect("JSON");
        assert_eq!(
            text,
            r#"{"version":1,"at":"2026-08-05T10:00:00.000Z","verb":"retry","ref":"github:octo/api#7","delivery":"github:octo/api#7/comment/1"}"#
        );
        let all = r#"{"version":1,"at":"2026-08-05T10:00:00Z","verb":"retry_all","more":1}"#;
        assert_eq!(parse(all.as_bytes()).map(|r| r.verb), Ok(Verb::RetryAll));
    }

    /// Given requests nobody understands, then each is reported with the reason and can be put away.
    #[test]
    fn what_is_not_a_request_is_reported() {
        let dir = Dir::new();
        let layout = dir.layout();
        std::fs::create_dir_all(layout.requests()).expect("a directory");
        let wrong = [
            "",
            "{",
            "[]",
            r#"{"version":1}"#,
            r#"{"version":1,"at":"2026-08-05T10:00:00Z","verb":"explode"}"#,
            r#"{"version":2,"at":"2026-08-05T10:00:00Z","verb":"retry_all"}"#,
            r#"{"version":1,"at":"2026-08-05T10:00:00Z","verb":"retry","ref":"../../x#1"}"#,
        ];
        for (n, text) in wrong.iter().enumerate() {
            std::fs::write(layout.requests().join(format!("{n}.json")), text).expect("a file");
        }
        std::fs::create_dir(layout.requests().join("9.json")).expect("a directory");
        let taken = take(&layout);
        assert_eq!(taken.len(), wrong.len() + 1);
        for (path, request) in taken {
            assert!(request.is_err(), "{}", path.display());
            done(&path).expect("put away");
        }
        assert!(!any(&layout));
    }

    /// Given a kill at any step, then there is the whole request or none.
    #[test]
    fn a_request_is_there_or_it_is_not() {
        for kill in 0.. {
            let dir = Dir::new();
            let layout = dir.layout();
            std::fs::create_dir(&layout.state_dir).expect("a directory");
            trace::start(Break::KilledAt(kill));
            let left = submit(&layout, &retry(1));
            trace::stop();
            let taken: Vec<_> = take(&layout).into_iter().map(|(_, r)| r).collect();
            assert!(taken.is_empty() && left.is_err() || taken == [Ok(retry(1))]);
            if left.is_ok() {
                break;
            }
        }
    }
}
