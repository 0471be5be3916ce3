//! The event log, `log/events.jsonl`: one [`Entry`] a line, as JSON.
//!
//! Lines are appended with one write each and never synced: history is worth
//! having, and nothing depends on it. Whoever reads it must expect what crashes
//! and log rotation leave behind: a line cut off, a run of zero bytes. At
//! 10 MiB the file becomes `events.1.jsonl`, and so on up to `events.5.jsonl`.

use super::disk;
use super::layout::Layout;
use super::reader::cannot_read;
use crate::engine::entry::Entry;
use crate::engine::time::Time;
use crate::error::Error;
use crate::os::fs as os;
use std::collections::{HashSet, VecDeque};
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

/// The log is rotated before it grows beyond this many bytes.
const LIMIT: u64 = 10 * 1024 * 1024;
/// How many rotated files are kept.
const KEEP: u32 = 5;

/// Appends to the event log.
#[derive(Debug)]
pub struct Journal {
    layout: Layout,
    file: Option<File>,
    /// How large a file may become.
    limit: u64,
    /// How large this one may become before it is rotated.
    rotate_at: u64,
}

impl Journal {
    /// The event log of the process that holds the lock. Nothing is opened
    /// before the first entry, so that a log that cannot be written stops nobody.
    #[must_use]
    pub fn open(layout: Layout) -> Journal {
        Journal::with_limit(layout, LIMIT)
    }

    /// The event log for a process that does not hold the lock: it appends and never rotates.
    #[must_use]
    pub fn guest(layout: Layout) -> Journal {
        Journal::with_limit(layout, u64::MAX)
    }

    fn with_limit(layout: Layout, limit: u64) -> Journal {
        Journal {
            layout,
            file: None,
            limit,
            rotate_at: limit,
        }
    }

    /// Appends one entry. Goes on at the file's end whatever somebody did to
    /// it: truncated, rotated or removed it, or left half a line.
    ///
    /// # Errors
    /// Names the file. The entry is not in it, or only its beginning is; or it
    /// is there and the log could not be rotated. The next one is tried afresh.
    pub fn append(&mut self, entry: &Entry) -> Result<(), Error> {
        self.try_append(entry).map_err(|e| {
            let path = self.layout.log(0);
            Error::new(format!("cannot write {}", path.display()), e)
        })
    }

    fn try_append(&mut self, entry: &Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let mut file = self.current()?;
        let mut size = file.metadata()?.len();
        let mut rotated = Ok(());
        if size > 0 && size.saturating_add(line.len() as u64) > self.rotate_at {
            rotated = rotate(&self.layout);
            if rotated.is_ok() {
                self.rotate_at = self.limit;
                file = self.current()?;
                size = file.metadata()?.len();
            } else {
                // Said once, and again when it has grown as much once more.
                self.rotate_at = size.saturating_add(self.limit);
            }
        }
        if size > 0 {
            let mut last = [0];
            file.read_exact_at(&mut last, size - 1)?;
            if last != *b"\n" {
                line.insert(0, b'\n');
            }
        }
        let written = loop {
            match file.write(&line) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => break done?,
            }
        };
        self.file = Some(file);
        if written < line.len() {
            // The rest would not come right behind it when others append too.
            return Err(io::ErrorKind::StorageFull.into());
        }
        rotated
    }

    /// The file the path names now.
    fn current(&mut self) -> io::Result<File> {
        let path = self.layout.log(0);
        if let Some(file) = self.file.take()
            && let Ok(named) = std::fs::symlink_metadata(&path)
            && id(&named) == id(&file.metadata()?)
        {
            return Ok(file);
        }
        match os::open_append(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                disk::make_dir(&self.layout.log_dir())?;
                os::open_append(&path)
            }
            done => done,
        }
    }
}

/// Makes every file one older; the oldest goes.
fn rotate(layout: &Layout) -> io::Result<()> {
    for n in (0..KEEP).rev() {
        match disk::rename(&layout.log(n), &layout.log(n + 1)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
    }
    Ok(())
}

/// Which file it is, by whatever name.
fn id(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// The entries in the log, oldest first, from `since` on. What is not a whole
/// entry (a line cut off, zero bytes) is passed over.
///
/// The iterator yields an error, and goes on with the next file, where one
/// cannot be opened or read.
pub fn read(layout: &Layout, since: Option<Time>) -> impl Iterator<Item = Result<Entry, Error>> {
    let mut files = VecDeque::new();
    let mut seen = HashSet::new();
    // Newest first, so that a rotation meanwhile can show a file twice, which
    // is noticed, but not hide one.
    for n in 0..=KEEP {
        let path = layout.log(n);
        match os::open_regular(&path).and_then(|f| Ok((f.metadata()?, f))) {
            Ok((meta, file)) => {
                let old = since.is_some_and(|since| {
                    meta.modified()
                        .is_ok_and(|written| Time::from(written) < since)
                });
                if seen.insert(id(&meta)) && !old {
                    files.push_front(Ok((path, BufReader::new(file))));
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => files.push_front(Err(cannot_read(&path, &e))),
        }
    }
    let mut ready: VecDeque<Entry> = VecDeque::new();
    std::iter::from_fn(move || {
        loop {
            if let Some(entry) = ready.pop_front() {
                return Some(Ok(entry));
            }
            let (path, mut file) = match files.pop_front()? {
                Ok(open) => open,
                Err(e) => return Some(Err(e)),
            };
            let mut line = Vec::new();
            match file.read_until(b'\n', &mut line) {
                Ok(0) => {}
                Ok(_) => {
                    ready.extend(entries(&line, since));
                    files.push_front(Ok((path, file)));
                }
                Err(e) => return Some(Err(cannot_read(&path, &e))),
            }
        }
    })
}

/// The entries in one line: one, or none, or those between runs of zero bytes.
fn entries(line: &[u8], since: Option<Time>) -> impl Iterator<Item = Entry> {
    line.split(|&b| b == 0 || b == b'\n')
        .filter(|part| !part.is_empty())
        .filter_map(|part| serde_json::from_slice::<Entry>(part).ok())
        .filter(move |entry| since.is_none_or(|since| entry.ts >= since))
}

/// Follows the log: what was appended since the last look, across rotation,
/// truncation and removal.
#[derive(Debug)]
pub struct Follow {
    layout: Layout,
    file: Option<File>,
    /// How far `file` was read.
    at: u64,
    /// The beginning of a line whose end is not there yet.
    half: Vec<u8>,
}

impl Follow {
    /// Follows from the end of what [`read`] would give now: only what comes later.
    #[must_use]
    pub fn from_now(layout: Layout) -> Follow {
        let file = os::open_regular(&layout.log(0)).ok();
        let end = file.as_ref().and_then(|f| f.metadata().ok());
        Follow {
            layout,
            file,
            at: end.map_or(0, |meta| meta.len()),
            half: Vec::new(),
        }
    }

    /// Follows from the beginning of the oldest file: the first look gives all there is.
    #[must_use]
    pub fn from_start(layout: Layout) -> Follow {
        let oldest = (0..=KEEP)
            .rev()
            .find_map(|n| os::open_regular(&layout.log(n)).ok());
        Follow {
            layout,
            file: oldest,
            at: 0,
            half: Vec::new(),
        }
    }

    /// What was appended since the last look. Never waits; what cannot be read
    /// now is tried again at the next look.
    pub fn poll(&mut self) -> Vec<Entry> {
        let mut found = Vec::new();
        loop {
            // Looked for before the file is read to its end: whoever rotates
            // appends elsewhere from then on.
            let next = self.next_file();
            if self.read_on(&mut found).is_err() {
                return found;
            }
            let Some(next) = next else {
                return found;
            };
            // The end of half a line will not come any more.
            found.extend(entries(&std::mem::take(&mut self.half), None));
            self.file = Some(next);
            self.at = 0;
        }
    }

    /// The file that comes after the one being read, if there is one by now.
    fn next_file(&self) -> Option<File> {
        let current = self.file.as_ref().and_then(|f| f.metadata().ok());
        let Some(current) = current else {
            return os::open_regular(&self.layout.log(0)).ok();
        };
        let place = (0..=KEEP).find(|&n| {
            std::fs::symlink_metadata(self.layout.log(n)).is_ok_and(|m| id(&m) == id(&current))
        });
        match place {
            Some(n) => (0..n)
                .rev()
                .find_map(|n| os::open_regular(&self.layout.log(n)).ok()),
            // Moved elsewhere or removed.
            None => os::open_regular(&self.layout.log(0)).ok(),
        }
    }

    fn read_on(&mut self, found: &mut Vec<Entry>) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        if file.metadata()?.len() < self.at {
            self.at = 0;
            self.half.clear();
        }
        file.seek(SeekFrom::Start(self.at))?;
        let mut bytes = Vec::new();
        let read = file.read_to_end(&mut bytes);
        self.at += bytes.len() as u64;
        self.half.append(&mut bytes);
        if let Some(end) = self.half.iter().rposition(|&b| b == b'\n') {
            let rest = self.half.split_off(end + 1);
            let lines = std::mem::replace(&mut self.half, rest);
            found.extend(entries(&lines, None));
        }
        read.map(drop)
    }
}
