//! Writes files so that each is the old one or the new one, never half of either.
//!
//! A file is written under a name of its own (`.tmp.<pid>.<n>`) beside its
//! target or in a directory beside it, so on the same file system, and renamed
//! into place. Three strengths, by what depends on the file:
//!
//! | | steps | syncs |
//! |---|---|---|
//! | [`write_unsynced`] | temp, rename | 0 |
//! | [`write`] | temp, fsync it, rename, fsync the directory | 2 |
//! | [`Batch`] | all temps, one `syncfs`, all renames, one fsync per directory | 1 + directories |
//!
//! A batch of up to three files syncs each file instead of the file system.
//! Flushing before renaming is what counts: the other way round a power cut
//! leaves new files empty.
//!
//! A sync that failed is not believed on a second try (the kernel has already
//! called the lost pages clean): the write fails, its temps are removed, and
//! the caller writes anew when it wants to. After an error in the last step
//! the target may be the new file, which is why callers treat an error as "not
//! known to be durable" and nothing more.

use super::disk;
use super::layout::parent;
use crate::error::Error;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Up to this many files a batch syncs one by one.
const FEW: usize = 3;

/// What the names of our temps begin with; the pid and a number follow.
const PREFIX: &str = ".tmp.";

/// Replaces `target` durably: when this returns `Ok`, a power cut keeps it. 2 syncs.
///
/// # Errors
/// Names `target`. Nothing is left behind; the old file is whole unless the
/// very last sync failed, then it may be the new one.
pub fn write(target: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut batch = Batch::new(parent(target));
    batch.push(target.to_path_buf(), bytes.to_vec());
    batch.commit()
}

/// Replaces `target` with nothing synced: whole for every reader and after a
/// kill, but a power cut may lose or empty it. For what nothing depends on.
///
/// # Errors
/// Names `target`. Nothing is left behind.
pub fn write_unsynced(target: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut temps = Temps::default();
    let (temp, _) = temps
        .add(parent(target), bytes)
        .map_err(|e| cannot_write(target, &e))?;
    disk::rename(&temp, target).map_err(|e| cannot_write(target, &e))?;
    temps.forget(&temp);
    Ok(())
}

/// Files that become durable together.
#[derive(Debug)]
pub struct Batch {
    temps: PathBuf,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Batch {
    /// An empty batch whose temps go to the directory `temps`, which must be on
    /// the file system of all targets.
    #[must_use]
    pub fn new(temps: &Path) -> Batch {
        Batch {
            temps: temps.to_path_buf(),
            files: Vec::new(),
        }
    }

    /// Adds a file. Files are put in place in the order they were added.
    pub fn push(&mut self, target: PathBuf, bytes: Vec<u8>) {
        self.files.push((target, bytes));
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Makes all of it durable. Syncs: none for an empty batch; one per file
    /// for up to three, one in all for more; and one per directory.
    ///
    /// # Errors
    /// Names the file that failed. No temp is left behind; any of the targets
    /// may be the new file already.
    pub fn commit(self) -> Result<(), Error> {
        let Some((first, _)) = self.files.first() else {
            return Ok(());
        };
        let few = self.files.len() <= FEW;
        // Opened before the first write: syncfs reports what failed since then.
        let file_system = File::open(&self.temps).map_err(|e| cannot_write(first, &e))?;
        let mut temps = Temps::default();
        let mut names = Vec::with_capacity(self.files.len());
        for (target, bytes) in &self.files {
            let written = temps.add(&self.temps, bytes).and_then(|(temp, file)| {
                if few {
                    disk::sync(&file, &temp)?;
                }
                Ok(temp)
            });
            names.push(written.map_err(|e| cannot_write(target, &e))?);
        }
        if !few {
            disk::sync_all(&file_system, &self.temps).map_err(|e| cannot_write(first, &e))?;
        }
        let mut dirs: Vec<&Path> = Vec::new();
        for (temp, (target, _)) in names.iter().zip(&self.files) {
            disk::rename(temp, target).map_err(|e| cannot_write(target, &e))?;
            temps.forget(temp);
            if !dirs.contains(&parent(target)) {
                dirs.push(parent(target));
            }
        }
        for dir in dirs {
            sync_dir(dir)?;
        }
        Ok(())
    }
}

/// Makes the names in a directory durable.
///
/// # Errors
/// Names the directory.
pub fn sync_dir(dir: &Path) -> Result<(), Error> {
    disk::sync_dir(dir).map_err(|e| with_hint(format!("cannot sync {}", dir.display()), &e))
}

/// Removes the temps that processes killed in the middle of a write left in
/// `dir`: names of our own pattern, unless the process that the name tells of
/// is another one and alive. Says how many there were. Costs one listing of `dir`.
///
/// # Errors
/// Names the file or directory.
pub fn sweep(dir: &Path) -> Result<usize, Error> {
    let cannot =
        |path: &Path, e: &io::Error| Error::new(format!("cannot tidy {}", path.display()), e);
    let mut swept = 0;
    for entry in std::fs::read_dir(dir).map_err(|e| cannot(dir, &e))? {
        let entry = entry.map_err(|e| cannot(dir, &e))?;
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(temp_pid) else {
            continue;
        };
        if pid != std::process::id() && Path::new(&format!("/proc/{pid}")).exists() {
            continue;
        }
        disk::remove(&entry.path()).map_err(|e| cannot(&entry.path(), &e))?;
        swept += 1;
    }
    Ok(swept)
}

/// The pid in the name of a temp of ours.
fn temp_pid(name: &str) -> Option<u32> {
    let (pid, n) = name.strip_prefix(PREFIX)?.split_once('.')?;
    n.parse::<u64>().ok()?;
    pid.parse().ok()
}

/// Temps written and not yet renamed; removed when dropped.
#[derive(Debug, Default)]
struct Temps(Vec<PathBuf>);

impl Temps {
    /// Writes a new temp in `dir`.
    fn add(&mut self, dir: &Path, bytes: &[u8]) -> io::Result<(PathBuf, File)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let temp = dir.join(format!("{PREFIX}{}.{n}", std::process::id()));
            match disk::create(&temp) {
                Ok(mut file) => {
                    self.0.push(temp.clone());
                    disk::write(&mut file, &temp, bytes)?;
                    return Ok((temp, file));
                }
                // Left by a process that had our pid (in a container everyone is 1).
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn forget(&mut self, temp: &Path) {
        self.0.retain(|t| t != temp);
    }
}

impl Drop for Temps {
    fn drop(&mut self) {
        for temp in &self.0 {
            // What cannot be removed now is swept at the next start.
            let _ = disk::remove(temp);
        }
    }
}

/// The error of a write, with what the user can do about the usual causes.
pub(super) fn cannot_write(target: &Path, e: &io::Error) -> Error {
    with_hint(format!("cannot write {}", target.display()), e)
}

fn with_hint(doing: String, e: &io::Error) -> Error {
    let error = Error::new(doing, e);
    match e.kind() {
        io::ErrorKind::ResourceBusy => error.hint(
            "something is mounted on it; mount the state directory as a whole, not a file in it",
        ),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            error.hint("free some space; idempoll goes on by itself")
        }
        io::ErrorKind::ReadOnlyFilesystem => error.hint("the file system is mounted read-only"),
        io::ErrorKind::PermissionDenied => {
            error.hint("run idempoll as the user that owns the state directory")
        }
        _ => error,
    }
}
