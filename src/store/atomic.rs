//! Writes files so that each is the old one or the new one, never half of either.
//!
//! A file is written under a name of its own (`.tmp.<pid>.<n>`) beside its
//! target or in a directory beside it, so on the same file system, and renamed
//! into place. Three strengths, by what depends on the file:
//!
//! | | steps | syncs |
//! |---|---|---|
//! | [`write_unsynced`] | temp, rename | 0 |
//! | [`write()`] | temp, fsync it, rename, fsync the directory | 2 |
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
use crate::mutant;
use crate::os::file::Facts;
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
    batch.push(target.to_path_buf(), bytes);
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
pub struct Batch<'a> {
    temps: PathBuf,
    files: Vec<(PathBuf, &'a [u8])>,
    few: usize,
}

impl<'a> Batch<'a> {
    /// An empty batch whose temps go to the directory `temps`, which must be on
    /// the file system of all targets.
    #[must_use]
    pub fn new(temps: &Path) -> Batch<'a> {
        Batch {
            temps: temps.to_path_buf(),
            files: Vec::new(),
            few: FEW,
        }
    }

    /// Syncs each file, however many: what others have written to the file system may
    /// take long to flush, and a delivery must not wait for that.
    #[must_use]
    pub fn each_alone(mut self) -> Batch<'a> {
        self.few = usize::MAX;
        self
    }

    /// Adds a file. Files are put in place in the order they were added.
    pub fn push(&mut self, target: PathBuf, bytes: &'a [u8]) {
        self.files.push((target, bytes));
    }

    /// Makes all of it durable. Syncs: none for an empty batch; one per file
    /// for up to three (or [`Batch::each_alone`]), one in all for more; and one per directory.
    ///
    /// # Errors
    /// Names the file that failed. No temp is left behind; any of the targets
    /// may be the new file already.
    pub fn commit(self) -> Result<(), Error> {
        let Some((first, _)) = self.files.first() else {
            return Ok(());
        };
        let few = self.files.len() <= self.few;
        // Opened before the first write: syncfs reports what failed since then.
        let file_system = File::open(&self.temps).map_err(|e| cannot_write(first, &e))?;
        let mut temps = Temps::default();
        let mut names = Vec::with_capacity(self.files.len());
        for (target, bytes) in &self.files {
            let written = temps.add(&self.temps, bytes).and_then(|(temp, file)| {
                if few && !mutant::is("no-sync-before-rename") {
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
            if mutant::is("no-sync-of-the-name") {
                break;
            }
            sync_dir(dir)?;
        }
        Ok(())
    }
}

/// A new file, whole and synced, that waits under the name of a temp to be
/// given its own name. The temp is removed when this is dropped.
#[derive(Debug)]
pub struct Draft {
    file: File,
    temp: PathBuf,
    _temps: Temps,
}

impl Draft {
    /// Writes it into `dir`.
    ///
    /// # Errors
    /// What creating, writing and syncing report; nothing is left behind then.
    pub fn new(dir: &Path, bytes: &[u8]) -> io::Result<Draft> {
        let mut temps = Temps::default();
        let (temp, file) = temps.add(dir, bytes)?;
        disk::sync(&file, &temp)?;
        Ok(Draft {
            file,
            temp,
            _temps: temps,
        })
    }

    /// Gives it the name `target`, in the same directory, unless anything has that
    /// name; says whether it did. Of several who try for one name, one succeeds.
    ///
    /// # Errors
    /// What `link` reports: `NotFound` when somebody swept the temp away.
    pub fn publish(&self, target: &Path) -> io::Result<bool> {
        if mutant::is("claim-not-exclusive") {
            disk::remove(target)?;
        }
        match disk::link(&self.temp, target) {
            Ok(()) => Ok(true),
            // A server asked twice, since its first answer was lost, says that the name
            // is taken when it is taken by this very file.
            Err(_) if self.has_name(target) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn has_name(&self, target: &Path) -> bool {
        matches!((Facts::at(target), Facts::of(&self.file)), (Ok(a), Ok(b)) if a.same_inode(&b))
    }

    /// The open file, to be read and appended to.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn open(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

/// Whether any living process has a temp of ours in `dir`.
///
/// # Errors
/// When the directory cannot be read.
pub fn is_written_to(dir: &Path) -> io::Result<bool> {
    let names = disk::list(dir)?;
    let mut pids = names.iter().filter_map(|name| temp_pid(name.to_str()?));
    Ok(pids.any(|pid| Path::new(&format!("/proc/{pid}")).exists()))
}

/// Makes the names in a directory durable.
///
/// # Errors
/// Names the directory.
pub fn sync_dir(dir: &Path) -> Result<(), Error> {
    disk::sync_dir(dir).map_err(|e| with_hint(format!("cannot sync {}", dir.display()), &e))
}

/// Whether files can be made in `dir`: makes one and removes it. A full disk
/// does not count, because it may have room again later.
///
/// # Errors
/// Names the directory.
pub fn check_writable(dir: &Path) -> Result<(), Error> {
    match Temps::default().add(dir, b"") {
        Err(e)
            if !matches!(
                e.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            ) =>
        {
            Err(cannot_write(dir, &e))
        }
        _ => Ok(()),
    }
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
    for name in disk::list(dir).map_err(|e| cannot(dir, &e))? {
        let Some(pid) = name.to_str().and_then(temp_pid) else {
            continue;
        };
        if pid != std::process::id() && Path::new(&format!("/proc/{pid}")).exists() {
            continue;
        }
        let temp = dir.join(&name);
        disk::remove(&temp).map_err(|e| cannot(&temp, &e))?;
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

/// The number in the next temp's name.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Temps written and not yet renamed; removed when dropped.
#[derive(Debug, Default)]
struct Temps(Vec<PathBuf>);

impl Temps {
    /// Writes a new temp in `dir`.
    fn add(&mut self, dir: &Path, bytes: &[u8]) -> io::Result<(PathBuf, File)> {
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

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::disk::Step;
    use super::disk::trace::{self, Break};
    use super::*;
    use crate::store::testing::{Dir, temps};
    use std::os::unix::fs::PermissionsExt;

    /// Old files with the content `old`, and a batch that makes each `new`.
    fn replace(dir: &Path, count: usize) -> (Vec<PathBuf>, Result<(), Error>) {
        let targets: Vec<PathBuf> = (0..count).map(|n| dir.join(format!("f{n}"))).collect();
        for target in &targets {
            std::fs::write(target, "old").expect("an old file");
        }
        let mut batch = Batch::new(dir);
        for target in &targets {
            batch.push(target.clone(), b"new and longer");
        }
        let done = batch.commit();
        (targets, done)
    }

    /// Given old files, when the process is killed before any step of replacing
    /// them, then each is the old or the new one, and the next start sweeps the rest (R3.6).
    #[test]
    fn r3_6_a_kill_at_any_step_leaves_the_old_or_the_new_file() {
        for count in [1, 3, 7] {
            for kill in 0.. {
                let dir = Dir::new();
                trace::start(Break::KilledAt(kill));
                let (targets, done) = replace(dir.path(), count);
                trace::stop();
                for target in targets {
                    let text = std::fs::read_to_string(&target).expect("it is there");
                    assert!(text == "old" || text == "new and longer", "{kill}: {text}");
                }
                let left = temps(dir.path()).len();
                assert_eq!(sweep(dir.path()).expect("swept"), left);
                assert_eq!(temps(dir.path()).len(), 0);
                if done.is_ok() {
                    break;
                }
            }
        }
    }

    /// Given a step that fails, then the write fails, names the file, leaves no
    /// litter, and is not tried again by itself; the next write works.
    #[test]
    fn r3_5_an_error_at_any_step_leaves_no_litter() {
        for count in [1, 7] {
            let dir = Dir::new();
            trace::start(Break::Never);
            replace(dir.path(), count).1.expect("written");
            let steps = trace::stop().len();
            for (errno, hint) in [(28, "free some space"), (16, "mounted on it"), (5, "")] {
                for at in 0..steps {
                    trace::start(Break::FailsAt(at, errno));
                    let (_, done) = replace(dir.path(), count);
                    trace::stop();
                    let e = done.expect_err("not believed on a second try");
                    assert_eq!(temps(dir.path()), Vec::<PathBuf>::new(), "{at}");
                    assert!(e.doing.contains(&*dir.path().to_string_lossy()), "{e}");
                    assert!(e.hint.unwrap_or_default().contains(hint));
                    let (_, again) = replace(dir.path(), count);
                    assert_eq!(again, Ok(()));
                }
            }
        }
    }

    /// Given more than a few files, then all are written, flushed once, renamed,
    /// and their directory flushed once, in that order (invariant 7).
    #[test]
    fn a_batch_flushes_before_it_renames() {
        let dir = Dir::new();
        trace::start(Break::Never);
        replace(dir.path(), 7).1.expect("written");
        let steps: Vec<Step> = trace::stop().iter().map(|t| t.step).collect();
        let mut want = [Step::Create, Step::Write].repeat(7);
        want.push(Step::SyncAll);
        want.extend([Step::Rename; 7]);
        want.push(Step::SyncDir);
        assert_eq!(steps, want);

        trace::start(Break::Never);
        replace(dir.path(), 1).1.expect("written");
        let steps: Vec<Step> = trace::stop().iter().map(|t| t.step).collect();
        use Step::{Create, Rename, Sync, SyncDir, Write};
        assert_eq!(steps, [Create, Write, Sync, Rename, SyncDir]);

        trace::start(Break::Never);
        write_unsynced(&dir.path().join("run.json"), b"{}").expect("written");
        let steps: Vec<Step> = trace::stop().iter().map(|t| t.step).collect();
        assert_eq!(steps, [Create, Write, Rename]);
    }

    /// Given a target that cannot be replaced, then the error is clear and no
    /// temp is left, beside it or anywhere else (C118).
    #[test]
    fn c118_a_target_that_cannot_be_replaced_is_named() {
        let dir = Dir::new();
        let target = dir.path().join("record.json");
        std::fs::create_dir(&target).expect("a directory in its place");
        let e = write(&target, b"x").expect_err("a directory is not replaced");
        assert_eq!(e.doing, format!("cannot write {}", target.display()));
        assert_eq!(temps(dir.path()), Vec::<PathBuf>::new());

        trace::start(Break::Never);
        write(&dir.path().join("other.json"), b"x").expect("written");
        let taken = trace::stop();
        assert_eq!(
            parent(&taken[0].path),
            dir.path(),
            "temps are beside their target"
        );
    }

    #[test]
    fn files_are_private() {
        let dir = Dir::new();
        let target = dir.path().join("f");
        write(&target, b"x").expect("written");
        let mode = std::fs::metadata(&target)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    /// Given what others put under the names of our temps, then it is neither
    /// followed nor written to.
    #[test]
    fn a_link_under_the_name_of_a_temp_is_not_followed() {
        let dir = Dir::new();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "precious").expect("a file");
        let next = NEXT.load(Ordering::Relaxed);
        for n in next..next + 500 {
            let name = format!("{PREFIX}{}.{n}", std::process::id());
            std::os::unix::fs::symlink(&victim, dir.path().join(name)).expect("a link");
        }
        write(&dir.path().join("f"), b"mine").expect("written under another name");
        assert_eq!(std::fs::read(&victim).expect("there"), b"precious");
    }

    #[test]
    fn only_our_own_leftovers_are_swept() {
        let dir = Dir::new();
        let dead = u32::MAX;
        let kept = [
            "f.json",
            ".tmp.x.1",
            ".tmp.1",
            ".tmp.1.x",
            ".tmp.1.2",
            "x.tmp.7.1",
        ];
        for name in kept {
            std::fs::write(dir.path().join(name), "").expect("a file");
        }
        for pid in [dead, std::process::id()] {
            std::fs::write(dir.path().join(format!(".tmp.{pid}.9")), "").expect("a file");
        }
        assert_eq!(sweep(dir.path()).expect("swept"), 2);
        for name in kept {
            assert!(dir.path().join(name).exists(), "{name}");
        }
    }

    /// Given a draft, when it gets a name, then it has it, asked once or twice; a name that another file has it does not get,
    /// and where there can be none that is an error.
    #[test]
    fn a_name_is_given_once() {
        let dir = Dir::new();
        let [ours, theirs] = ["1", "2"].map(|n| dir.path().join(n));
        let draft = Draft::new(dir.path(), b"x").expect("written");
        assert!(draft.publish(&ours).expect("linked"));
        assert!(draft.publish(&ours).expect("it has it already"));
        std::fs::write(&theirs, "y").expect("written");
        assert!(!draft.publish(&theirs).expect("taken"));
        assert_eq!(std::fs::read(&theirs).expect("there"), b"y");
        let nowhere = draft.publish(&dir.path().join("missing/1"));
        assert_eq!(
            nowhere.expect_err("no directory").kind(),
            io::ErrorKind::NotFound
        );
    }
}
