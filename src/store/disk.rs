//! Every access of the store to the disk, one function each.
//!
//! Nothing here decides anything. It is apart so that tests can list the steps
//! of an operation, count its syncs and bytes, and make any step fail or be
//! the last thing the process did; see `trace`.

use super::layout::DIR_MODE;
use crate::os::{file, uninterrupted};
use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::time::SystemTime;

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Creates a file that was not there.
    Create,
    /// Writes its content.
    Write,
    /// Flushes one file.
    Sync,
    /// Flushes a whole file system.
    SyncAll,
    /// Renames.
    Rename,
    /// Gives a file a second name.
    Link,
    /// Flushes the names in a directory.
    SyncDir,
    /// Makes a directory.
    MakeDir,
    /// Removes a file.
    Remove,
    /// Reads a whole file.
    Read,
    /// Lists a directory.
    List,
}

#[cfg(not(test))]
#[expect(clippy::unnecessary_wraps, reason = "under test a step can fail")]
fn step(_: Step, _: &Path, _: usize) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
use trace::step;

/// Creates a file that was not there, mode 0600, owned by whoever owns its
/// directory (when we are root and they are not, they must be able to read it).
pub(super) fn create(path: &Path) -> io::Result<File> {
    step(Step::Create, path, 0)?;
    let file = file::create_new(path)?;
    let dir = std::fs::metadata(super::layout::parent(path));
    if let (Ok(dir), Ok(meta)) = (dir, file.metadata())
        && dir.uid() != meta.uid()
    {
        // Only root can; for anyone else the file is theirs, as it was asked for.
        let _ = std::os::unix::fs::fchown(&file, Some(dir.uid()), Some(dir.gid()));
    }
    Ok(file)
}

/// Writes all of `bytes` to the file just created at `path`.
pub(super) fn write(file: &mut File, path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Err(e) = step(Step::Write, path, bytes.len()) {
        // What a full disk or a kill in the middle leaves behind.
        file.write_all(&bytes[..bytes.len() / 2])?;
        return Err(e);
    }
    file.write_all(bytes)
}

/// Flushes one file.
pub(super) fn sync(file: &File, path: &Path) -> io::Result<()> {
    step(Step::Sync, path, 0)?;
    file.sync_all()
}

/// Flushes the file system that the directory `dir`, at `path`, is on.
pub(super) fn sync_all(dir: &File, path: &Path) -> io::Result<()> {
    step(Step::SyncAll, path, 0)?;
    file::sync_file_system(dir)
}

/// Renames, replacing what was there.
#[expect(clippy::disallowed_methods, reason = "the one place that renames")]
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    step(Step::Rename, to, 0)?;
    uninterrupted(|| std::fs::rename(from, to))
}

/// Gives the file `from` the name `to` as well; fails if anything has that name.
pub(super) fn link(from: &Path, to: &Path) -> io::Result<()> {
    step(Step::Link, to, 0)?;
    uninterrupted(|| std::fs::hard_link(from, to))
}

/// Makes the names in `dir` durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    step(Step::SyncDir, dir, 0)?;
    file::sync_directory(&File::open(dir)?)
}

/// Makes one directory, mode 0700; says whether it was not there before.
pub(super) fn make_dir(dir: &Path) -> io::Result<bool> {
    match std::fs::metadata(dir) {
        Ok(meta) if meta.is_dir() => return Ok(false),
        Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    step(Step::MakeDir, dir, 0)?;
    match DirBuilder::new().mode(DIR_MODE).create(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        done => done.map(|()| true),
    }
}

/// Removes a file; one that is not there is fine.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    step(Step::Remove, path, 0)?;
    match uninterrupted(|| std::fs::remove_file(path)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Reads a whole file and says when it was last written. Only a regular file
/// is read; see [`file::open_regular`].
pub(super) fn read(path: &Path) -> io::Result<(Vec<u8>, SystemTime)> {
    step(Step::Read, path, 0)?;
    let mut file = file::open_regular(path)?;
    let modified = file.metadata()?.modified()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok((bytes, modified))
}

/// The names in a directory, in no order.
pub(super) fn list(dir: &Path) -> io::Result<Vec<OsString>> {
    step(Step::List, dir, 0)?;
    std::fs::read_dir(dir)?
        .map(|entry| Ok(entry?.file_name()))
        .collect()
}

/// Lists the steps of the current thread, and cuts or breaks them on demand.
#[cfg(test)]
pub(super) mod trace {
    use super::Step;
    use std::cell::RefCell;
    use std::io;
    use std::path::{Path, PathBuf};

    /// One step as it was taken.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(in crate::store) struct Taken {
        pub(in crate::store) step: Step,
        pub(in crate::store) path: PathBuf,
        pub(in crate::store) bytes: usize,
    }

    /// What to do to the steps of this thread.
    #[derive(Debug, Clone, Copy, Default)]
    pub(in crate::store) enum Break {
        /// Nothing.
        #[default]
        Never,
        /// The process was killed before the step with this number: nothing happens from there on.
        KilledAt(usize),
        /// The step with this number fails with this errno; the rest works.
        FailsAt(usize, i32),
    }

    #[derive(Default)]
    struct Trace {
        taken: Vec<Taken>,
        seen: usize,
        breaks: Break,
    }

    thread_local! {
        static TRACE: RefCell<Trace> = RefCell::default();
    }

    /// Starts a new list with this break.
    pub(in crate::store) fn start(breaks: Break) {
        TRACE.with_borrow_mut(|t| {
            *t = Trace {
                breaks,
                ..Trace::default()
            };
        });
    }

    /// Ends it and gives the steps that were taken.
    pub(in crate::store) fn stop() -> Vec<Taken> {
        TRACE.with_borrow_mut(std::mem::take).taken
    }

    /// How many syncs of any kind are in a list.
    pub(in crate::store) fn syncs(taken: &[Taken]) -> usize {
        taken
            .iter()
            .filter(|t| matches!(t.step, Step::Sync | Step::SyncAll | Step::SyncDir))
            .count()
    }

    /// How many bytes were written.
    pub(in crate::store) fn bytes(taken: &[Taken]) -> usize {
        taken.iter().map(|t| t.bytes).sum()
    }

    /// Where in a list the first step of a kind is whose path ends so.
    pub(in crate::store) fn find(taken: &[Taken], step: Step, end: &str) -> Option<usize> {
        taken
            .iter()
            .position(|t| t.step == step && t.path.to_string_lossy().ends_with(end))
    }

    pub(super) fn step(step: Step, path: &Path, bytes: usize) -> io::Result<()> {
        TRACE.with_borrow_mut(|t| {
            let n = t.seen;
            t.seen += 1;
            match t.breaks {
                Break::KilledAt(k) if n >= k => return Err(io::Error::other("killed")),
                Break::FailsAt(k, errno) if n == k => {
                    return Err(io::Error::from_raw_os_error(errno));
                }
                _ => {}
            }
            t.taken.push(Taken {
                step,
                path: path.to_path_buf(),
                bytes,
            });
            Ok(())
        })
    }
}
