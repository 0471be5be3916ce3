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
use crate::os::file::{open_append, open_regular};
use crate::os::uninterrupted;
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
        let written = uninterrupted(|| file.write(&line))?;
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
        match open_append(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                disk::make_dir(&self.layout.log_dir())?;
                open_append(&path)
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
pub fn read(
    layout: &Layout,
    since: Option<Time>,
) -> impl Iterator<Item = Result<Entry, Error>> + use<> {
    let mut files = VecDeque::new();
    let mut seen = HashSet::new();
    // Newest first, so that a rotation meanwhile can show a file twice, which
    // is noticed, but not hide one.
    for n in 0..=KEEP {
        let path = layout.log(n);
        match open_regular(&path).and_then(|f| Ok((f.metadata()?, f))) {
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
    /// Follows from the beginning of the oldest file: the first look gives all there is.
    #[must_use]
    pub fn from_start(layout: Layout) -> Follow {
        let oldest = (0..=KEEP)
            .rev()
            .find_map(|n| open_regular(&layout.log(n)).ok());
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
            return open_regular(&self.layout.log(0)).ok();
        };
        let place = (0..=KEEP).find(|&n| {
            std::fs::symlink_metadata(self.layout.log(n)).is_ok_and(|m| id(&m) == id(&current))
        });
        match place {
            Some(n) => (0..n)
                .rev()
                .find_map(|n| open_regular(&self.layout.log(n)).ok()),
            // Moved elsewhere or removed.
            None => open_regular(&self.layout.log(0)).ok(),
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

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::super::testing::Dir;
    use super::*;
    use std::path::PathBuf;

    fn entry(n: u64) -> Entry {
        Entry::new(Time(1_785_924_000_000 + n), "dispatch.failed").with("n", n)
    }

    fn journal(dir: &Dir, limit: u64) -> Journal {
        Journal::with_limit(dir.layout(), limit)
    }

    const NONE: [u64; 0] = [];

    fn start(dir: &Dir) -> (Journal, PathBuf) {
        std::fs::create_dir(dir.layout().state_dir).expect("a directory");
        (journal(dir, LIMIT), dir.layout().log(0))
    }

    fn numbers(dir: &Dir) -> Vec<u64> {
        let entries = read(&dir.layout(), None).map(|e| e.expect("readable"));
        entries.map(|e| number(&e)).collect()
    }

    fn number(entry: &Entry) -> u64 {
        entry.fields["n"].as_u64().expect("a number")
    }

    fn polled(follow: &mut Follow) -> Vec<u64> {
        follow.poll().iter().map(number).collect()
    }

    #[test]
    fn entries_read_back_from_any_time_on() {
        let dir = Dir::new();
        assert_eq!(read(&dir.layout(), None).count(), 0);
        let (mut journal, path) = start(&dir);
        for n in 0..5 {
            journal.append(&entry(n)).expect("appended");
        }
        let all: Vec<_> = read(&dir.layout(), None).collect();
        assert_eq!(all, (0..5).map(|n| Ok(entry(n))).collect::<Vec<_>>());
        let since = read(&dir.layout(), Some(entry(3).ts)).count();
        assert_eq!(since, 2);
        let first = std::fs::read_to_string(path).expect("there");
        assert!(first.starts_with(
            r#"{"ts":"2026-08-05T10:00:00.000Z","level":"warn","type":"dispatch.failed","n":0}"#
        ));
    }

    /// Given a log last written in the very moment from which on it is read, then it is read; and a file that has two
    /// names, as in the middle of a rotation, is read once.
    #[test]
    fn no_file_is_left_out_or_read_twice() {
        let dir = Dir::new();
        let (mut journal, path) = start(&dir);
        journal.append(&entry(0)).expect("appended");
        let file = File::options().write(true).open(&path).expect("open");
        file.set_modified(entry(0).ts.into()).expect("set");
        assert_eq!(read(&dir.layout(), Some(entry(0).ts)).count(), 1);
        std::fs::hard_link(&path, dir.layout().log(1)).expect("linked");
        assert_eq!(read(&dir.layout(), None).count(), 1);
        assert_eq!(read(&dir.layout(), Some(entry(0).ts)).count(), 1);
    }

    /// Given an entry longer than a log may be, then an empty one is not rotated for it.
    #[test]
    fn an_empty_log_is_not_rotated() {
        let dir = Dir::new();
        drop(start(&dir));
        journal(&dir, 10).append(&entry(0)).expect("appended");
        assert!(dir.layout().log(0).exists() && !dir.layout().log(1).exists());
    }

    /// Given a log that was truncated, renamed, removed, or ends in half a
    /// line, while the poller runs or between two runs, then entries go on
    /// behind what is there, and whole ones are read (C125).
    #[test]
    fn c125_appending_goes_on_whatever_happened_to_the_file() {
        let dir = Dir::new();
        let (mut journal, path) = start(&dir);
        for n in 0..3 {
            journal.append(&entry(n)).expect("appended");
        }
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .expect("open");
        file.set_len(0).expect("truncated in place");
        journal.append(&entry(3)).expect("appended");
        let text = std::fs::read(&path).expect("there");
        assert_eq!(text.first(), Some(&b'{'), "no run of zero bytes");
        assert_eq!(numbers(&dir), [3]);

        file.set_len(text.len() as u64 - 10).expect("cut");
        journal.append(&entry(4)).expect("appended");
        assert_eq!(numbers(&dir), [4], "the half line is passed over");

        std::fs::write(
            &path,
            [&[0; 4096][..], b"half a line", &text, b"{\"ts\":\"2026"].concat(),
        )
        .expect("what a crash leaves");
        let mut next = journal_after_restart(&dir);
        next.append(&entry(5)).expect("appended");
        assert_eq!(numbers(&dir), [5]);
        let zeros = [&[0; 4096][..], &text, &[0; 100], &text, &[0; 9]].concat();
        std::fs::write(&path, zeros).expect("runs of zero bytes");
        next.append(&entry(6)).expect("appended");
        assert_eq!(numbers(&dir), [3, 3, 6]);

        std::fs::remove_file(&path).expect("removed");
        next.append(&entry(7)).expect("appended");
        assert_eq!(numbers(&dir), [7]);
        std::fs::rename(&path, dir.path().join("elsewhere")).expect("renamed");
        next.append(&entry(8)).expect("appended");
        assert_eq!(numbers(&dir), [8]);
        std::fs::rename(&path, dir.path().join("elsewhere")).expect("renamed");
        std::fs::write(&path, "").expect("another in its place");
        next.append(&entry(10)).expect("appended");
        assert_eq!(numbers(&dir), [10]);
        std::fs::remove_dir_all(dir.layout().log_dir()).expect("removed");
        next.append(&entry(9)).expect("appended");
        assert_eq!(numbers(&dir), [9]);
    }

    fn journal_after_restart(dir: &Dir) -> Journal {
        Journal::open(dir.layout())
    }

    #[test]
    fn the_log_is_rotated_by_size_and_five_are_kept() {
        let dir = Dir::new();
        drop(start(&dir));
        let line = serde_json::to_vec(&entry(1000)).expect("JSON").len() as u64 + 1;
        let mut journal = journal(&dir, 10 * line);
        for n in 1000..1078 {
            journal.append(&entry(n)).expect("appended");
        }
        assert_eq!(numbers(&dir), (1020..1078).collect::<Vec<_>>());
        let names = std::fs::read_dir(dir.layout().log_dir())
            .expect("there")
            .count();
        assert_eq!(names, 1 + KEEP as usize);
        let mut guest = Journal::guest(dir.layout());
        for n in 1078..1100 {
            guest.append(&entry(n)).expect("appended");
        }
        assert_eq!(
            numbers(&dir),
            (1020..1100).collect::<Vec<_>>(),
            "a guest rotates nothing"
        );
        journal.append(&entry(1100)).expect("appended");
        assert_eq!(numbers(&dir), (1030..1101).collect::<Vec<_>>());
    }

    /// Given a log that cannot be written or rotated, then the error names it
    /// and the next entry is tried afresh.
    #[test]
    fn a_log_that_cannot_be_written_is_an_error_and_not_the_end() {
        let dir = Dir::new();
        let (mut journal, path) = start(&dir);
        std::fs::create_dir_all(&path).expect("a directory in its place");
        let e = journal.append(&entry(1)).expect_err("not written");
        assert!(e.to_string().contains("events.jsonl"), "{e}");
        assert!(read(&dir.layout(), None).any(|e| e.is_err()));
        std::fs::remove_dir(&path).expect("removed");
        journal.append(&entry(2)).expect("appended");
        assert_eq!(numbers(&dir), [2]);

        std::fs::create_dir(dir.layout().log(KEEP)).expect("a directory in the way");
        std::fs::write(dir.layout().log(KEEP - 1), "").expect("an old log");
        let mut journal = super::Journal::with_limit(dir.layout(), 200);
        let failed = (3..20)
            .filter(|n| journal.append(&entry(*n)).is_err())
            .count();
        assert!((1..=9).contains(&failed), "said {failed} times");
        let there = std::fs::read_to_string(&path).expect("there");
        assert_eq!(there.lines().count(), 18, "each was written all the same");
    }

    /// Given somebody who follows, then they get each entry once, across
    /// rotation, truncation and removal, and half a line only when it is whole (C125).
    #[test]
    fn c125_following_goes_on_whatever_happened_to_the_file() {
        let dir = Dir::new();
        let (mut journal, path) = start(&dir);
        let mut early = Follow::from_start(dir.layout());
        assert_eq!(polled(&mut early), NONE);
        journal.append(&entry(1)).expect("appended");
        let mut follow = Follow::from_start(dir.layout());
        let mut all = Follow::from_start(dir.layout());
        assert_eq!(polled(&mut follow), [1]);
        assert_eq!(polled(&mut early), [1]);
        journal.append(&entry(2)).expect("appended");
        assert_eq!(polled(&mut follow), [2]);

        let line = serde_json::to_vec(&entry(3)).expect("JSON");
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .expect("open");
        file.write_all(&line[..20]).expect("half a line");
        assert_eq!(polled(&mut follow), NONE);
        file.write_all(&line[20..]).expect("the rest");
        file.write_all(b"\n").expect("its end");
        assert_eq!(polled(&mut follow), [3]);

        journal.append(&entry(4)).expect("appended");
        for n in 5..8 {
            rotate(&dir.layout()).expect("rotated");
            journal.append(&entry(n)).expect("appended");
        }
        assert_eq!(
            polled(&mut follow),
            [4, 5, 6, 7],
            "three rotations between two looks"
        );
        assert_eq!(polled(&mut all), [1, 2, 3, 4, 5, 6, 7]);
        let mut from_start = Follow::from_start(dir.layout());
        assert_eq!(polled(&mut from_start), [1, 2, 3, 4, 5, 6, 7]);

        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .expect("open");
        file.set_len(0).expect("truncated");
        assert_eq!(polled(&mut follow), NONE);
        journal.append(&entry(8)).expect("appended");
        assert_eq!(polled(&mut follow), [8]);
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(polled(&mut follow), NONE);
        journal.append(&entry(9)).expect("appended");
        assert_eq!(polled(&mut follow), [9]);
        assert_eq!(polled(&mut follow), NONE);
    }

    #[test]
    fn entries_written_at_once_by_several_are_all_whole() {
        let dir = Dir::new();
        drop(start(&dir));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let dir = &dir;
                scope.spawn(move || {
                    let mut journal = Journal::open(dir.layout());
                    for n in 0..100 {
                        journal.append(&entry(thread * 100 + n)).expect("appended");
                    }
                });
            }
        });
        let mut found = numbers(&dir);
        found.sort_unstable();
        assert_eq!(found, (0..400).collect::<Vec<_>>());
    }
}
