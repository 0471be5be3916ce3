//! Claims: who holds a state directory where no lock can say so (R1.8).
//!
//! A file system without `flock`, or one where the call may hang (NFS), cannot
//! exclude a second poller, and cannot give anything back when one is killed.
//! There a poller makes a *claim*: a file `STATE/poll.claim.N`, of which the one
//! with the highest N decides.
//!
//! # Disk format
//!
//! ```text
//! {"version":1,"pid":4711,"start_time":123456,"boot_id":"6f…","pid_ns":4026531836,"machine_id":"4c…","host":"box"}
//! ended
//! ```
//!
//! The first line is there, synced, before the file has its name. The second is
//! appended by a graceful end, through the descriptor and not by name: whatever
//! was done to the name meanwhile, it says nothing about anybody else. Half of it
//! counts as none.
//!
//! # The protocol
//!
//! A claim is *over* when it is marked as ended, when its process is gone (no
//! process has the pid; or one that started at another time, so that a recycled
//! pid is seen), or when it is of an earlier start of this machine. Once over it
//! stays over. To take the directory:
//!
//! 1. Look: list the claims, judge the highest. If it is not over, somebody else
//!    holds the directory. (A `start` that is refused has written nothing.)
//! 2. Write the own line to a temp, and look once more.
//! 3. `link` the temp to the number after the highest, which fails if it is taken.
//! 4. Look once more whether it is the highest; else mark it as ended, begin anew.
//! 5. Remove the temp. Remove all lower claims, unless a living process has a temp
//!    in the directory.
//!
//! # Why there are never two
//!
//! *The highest number never falls*: only lower claims are ever removed, and only
//! in step 5 by who made a higher one.
//!
//! *What a contender must see stays while it has a temp.* Let M be the highest
//! claim when the temp was made. Whoever looked for temps before that had a claim
//! that existed, so of number M at most, and removes only lower ones; whoever looks
//! later sees the temp and removes nothing. So no claim from M on is removed until
//! the temp is, and a listing, which shows whatever was there before it began and
//! is there when it ends, shows the contender M and everything above.
//!
//! *So each number is made once, and only after the one before it was over.* The
//! contender finds a highest claim m, not below M, over. The number m + 1 did not
//! exist when it made its temp, or M would be higher; if anybody has made it since,
//! it is still there and `link` fails. Whoever holds m + 1 therefore knows that m is
//! over, the holder of m knew the same of m - 1, and so on: none below holds anything.
//!
//! Step 4 is not needed for that. It is for what the argument takes for granted: that a
//! process with a temp can be seen here (one in another container cannot), that nobody
//! removes claims by hand, that a listing is not an old one (another machine's).
//!
//! # What a claim cannot do
//!
//! A process of another machine, or of another pid namespace on this one, cannot be
//! seen, so its claim is neither known to be over nor taken over: `start` refuses and
//! names the file, for people to judge. A killed poller's claim of another machine
//! thus stays in the way, where a lock would be gone. Which machine it is, is told
//! by `/etc/machine-id` and the host name together: clones often share the former.

use super::places::{names, reason, whose};
use crate::error::Error;
use crate::mutant;
use crate::os::file::{self, Facts};
use crate::os::pid::{self, Pid, PidFd};
use crate::os::proc::{self, PidSpace, Stat};
use crate::store::atomic::{self, Draft};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the names of claims begin with; the number follows.
const PREFIX: &str = "poll.claim.";

/// The format written.
const VERSION: u32 = 1;

/// More than any claim of ours holds.
const LONGEST: u64 = 4096;

/// What a graceful end appends.
const ENDED: &[u8] = b"ended\n";

/// How often the highest claim may be gone when it is to be read before we give up.
const TRIES: u32 = 1_000;

/// Who made a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimant {
    /// The format, 1.
    pub version: u32,
    /// Its pid, as it saw it itself.
    pub pid: u32,
    /// When the process started, in clock ticks after the machine did.
    pub start_time: u64,
    /// Which start of the machine that was.
    pub boot_id: String,
    /// The pid namespace in which the pid means something.
    pub pid_ns: u64,
    /// What `/etc/machine-id` says, if there is one.
    pub machine_id: Option<String>,
    /// What the machine, or the container, is called.
    pub host: Option<String>,
}

impl Claimant {
    /// This process; `None` when `/proc` does not tell all that is needed.
    fn this_process() -> Option<Claimant> {
        let me = Stat::of_self()?;
        let here = PidSpace::here()?;
        let machine_id = fs::read_to_string("/etc/machine-id");
        Some(Claimant {
            version: VERSION,
            pid: me.pid.get(),
            start_time: me.start_time,
            boot_id: here.boot_id,
            pid_ns: here.pid_ns,
            machine_id: machine_id.ok().and_then(|id| known(&id)),
            host: proc::host_name(),
        })
    }
}

/// What `/etc/machine-id` says, unless that is not known yet.
fn known(machine_id: &str) -> Option<String> {
    let id = machine_id.trim();
    (!matches!(id, "" | "uninitialized")).then(|| id.to_string())
}

/// What the claims of a state directory come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Nobody holds it. The highest number so far; 0 if there is none.
    Free(u64),
    /// Somebody does, or may.
    Held(Holding),
}

/// A claim that is not known to be over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// Its file.
    pub path: PathBuf,
    /// Who made it.
    pub by: Claimant,
    /// Whether they are there.
    pub life: Life,
}

/// Whether the process that made a claim lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It does.
    Lives,
    /// A process has its pid, and `/proc` hides it from this user.
    Hidden,
    /// It is in another pid namespace of this machine.
    OtherNamespace,
    /// It is on another machine.
    OtherMachine,
}

impl Holding {
    /// Its pid as it is called here.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        Pid::new(self.by.pid).filter(|_| matches!(self.life, Life::Lives | Life::Hidden))
    }

    /// Who made it: `pid 12 of another machine, box`.
    #[must_use]
    pub fn in_words(&self) -> String {
        let pid = self.by.pid;
        let host = self.by.host.as_deref().unwrap_or("whose name is not known");
        let who = match self.life {
            Life::Lives | Life::Hidden => return format!("pid {pid}"),
            Life::OtherNamespace => format!("pid {pid} of another pid namespace, on {host}"),
            Life::OtherMachine => format!("pid {pid} of another machine, {host}"),
        };
        format!("{who}, as {} says", self.path.display())
    }

    /// What to do if whoever made it is gone, which cannot be told from here.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        let where_it_was = match self.life {
            Life::Lives | Life::Hidden => return None,
            Life::OtherNamespace => "in that container",
            Life::OtherMachine => "there",
        };
        let path = self.path.display();
        Some(format!(
            "if no poller runs {where_it_was} any more, remove {path}"
        ))
    }
}

/// What a try to take a state directory gave.
#[derive(Debug)]
pub enum Taken {
    /// It is ours.
    Ours(Ours),
    /// It is somebody else's.
    Held(Holding),
    /// Somebody was quicker: look again.
    Beaten,
}

/// A claim of this process. Dropping it marks it as ended.
#[derive(Debug)]
pub struct Ours {
    state_dir: PathBuf,
    path: PathBuf,
    number: u64,
    file: File,
}

impl Ours {
    /// Its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is still there, and still the highest.
    ///
    /// # Errors
    /// When the directory cannot be looked at.
    pub fn stands(&self) -> io::Result<bool> {
        Ok(highest(&self.state_dir)? == self.number && names(&self.path, &self.file)?)
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        // If it cannot be written, the end of the process says the same.
        let _ = self.file.write_all(ENDED);
    }
}

/// Looks whose a state directory is by its claims. Writes nothing.
///
/// # Errors
/// When the highest claim cannot be read or understood: then nobody can tell.
pub fn look(state_dir: &Path) -> Result<Standing, Error> {
    for _ in 0..TRIES {
        let number = highest(state_dir).map_err(|e| cannot_look(state_dir, &e))?;
        if number == 0 {
            return Ok(Standing::Free(0));
        }
        let path = path_of(state_dir, number);
        if let Some((by, ended)) = read(&path)? {
            let life = if ended { None } else { life_of(&by, &path)? };
            return Ok(match life {
                None => Standing::Free(number),
                Some(life) => Standing::Held(Holding { path, by, life }),
            });
        }
        // Removed just now, which means that there is a higher one.
    }
    let why = "its claims are removed again and again";
    Err(cannot_look(state_dir, &io::Error::other(why)))
}

/// Tries to take a state directory. It must be one where no lock can be had, or the
/// lock must be held as well.
///
/// # Errors
/// As [`look`]; and when no claim can be made: a full or read-only disk, a file
/// system without hard links, no `/proc`.
pub fn take(state_dir: &Path) -> Result<Taken, Error> {
    if let Standing::Held(holding) = look(state_dir)? {
        return Ok(Taken::Held(holding));
    }
    let draft = draft(state_dir)?;
    match look(state_dir)? {
        Standing::Held(holding) => Ok(Taken::Held(holding)),
        Standing::Free(number) => claim(state_dir, draft, number),
    }
}

/// Our line in a temp.
fn draft(state_dir: &Path) -> Result<Draft, Error> {
    let me = Claimant::this_process().ok_or_else(|| {
        let cannot = format!("cannot claim state directory {}", state_dir.display());
        Error::new(cannot, "/proc does not tell which process this is")
    })?;
    let line = serde_json::to_vec(&me).map_err(|e| cannot_claim(state_dir, &e.into()))?;
    let line = [line, b"\n".to_vec()].concat();
    Draft::new(state_dir, &line).map_err(|e| cannot_claim(state_dir, &e))
}

/// Makes the claim after `number`, which is over.
fn claim(state_dir: &Path, draft: Draft, number: u64) -> Result<Taken, Error> {
    let cannot = |e: &io::Error| cannot_claim(state_dir, e);
    let number = number
        .checked_add(1)
        .ok_or_else(|| cannot(&io::Error::other("its claims have used up all numbers")))?;
    let path = path_of(state_dir, number);
    let file = draft.open().map_err(|e| cannot(&e))?;
    match draft.publish(&path) {
        Ok(true) => {}
        Ok(false) => return Ok(Taken::Beaten),
        // The temp was swept away from a container where we cannot be seen.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Taken::Beaten),
        Err(e) if file::has_no_hard_links(&e) => {
            let why = format!(
                "its file system has neither flock nor hard links ({})",
                reason(&e)
            );
            let error = Error::new(cannot(&e).doing, why);
            return Err(error.hint("keep the state directory on a local file system"));
        }
        Err(e) => return Err(cannot(&e)),
    }
    let ours = Ours {
        state_dir: state_dir.to_path_buf(),
        path,
        number,
        file,
    };
    if !ours.stands().map_err(|e| cannot(&e))? && !mutant::is("claim-unverified") {
        return Ok(Taken::Beaten);
    }
    drop(draft);
    tidy(state_dir, number);
    Ok(Taken::Ours(ours))
}

/// Removes the claims below ours. What stays, the next one removes.
fn tidy(state_dir: &Path, ours: u64) {
    if atomic::is_written_to(state_dir).unwrap_or(true) && !mutant::is("claim-tidied-blindly") {
        return;
    }
    for number in numbers(state_dir).unwrap_or_default() {
        if number < ours {
            let _ = fs::remove_file(path_of(state_dir, number));
        }
    }
}

fn path_of(state_dir: &Path, number: u64) -> PathBuf {
    state_dir.join(format!("{PREFIX}{number}"))
}

fn numbers(state_dir: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(state_dir)? {
        let name = entry?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        // As we write them: no sign, no leading zeros.
        numbers.extend(digits.and_then(|d| d.parse().ok().filter(|n: &u64| n.to_string() == d)));
    }
    Ok(numbers)
}

/// The highest number; 0 if there is no claim.
fn highest(state_dir: &Path) -> io::Result<u64> {
    Ok(numbers(state_dir)?.into_iter().max().unwrap_or(0))
}

/// Reads a claim: who made it, and whether it is marked as ended. `None` when it is gone.
fn read(path: &Path) -> Result<Option<(Claimant, bool)>, Error> {
    /// What every version's line has.
    #[derive(Deserialize)]
    struct Format {
        version: u32,
    }
    let named = Facts::at(path);
    let text = file::open_regular(path).and_then(|file| {
        let mut text = Vec::new();
        file.take(LONGEST).read_to_end(&mut text)?;
        Ok(text)
    });
    let text = match text {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => {
            let error = Error::new(format!("cannot read {}", path.display()), e);
            return Err(named.map_or(error.clone(), |named| whose(error, &named)));
        }
    };
    let end = text.iter().position(|b| *b == b'\n').unwrap_or(text.len());
    let (line, rest) = text.split_at(end);
    let newer = serde_json::from_slice(line).is_ok_and(|f: Format| f.version > VERSION);
    match serde_json::from_slice::<Claimant>(line) {
        Ok(by) if !newer && !rest.is_empty() && Pid::new(by.pid).is_some() => {
            Ok(Some((by, &rest[1..] == ENDED)))
        }
        _ => {
            let why = if newer {
                "a newer idempoll wrote it"
            } else {
                "it is damaged"
            };
            Err(cannot_tell(path, why))
        }
    }
}

/// Whether a claim's process lives; `None` when the claim is over.
fn life_of(by: &Claimant, path: &Path) -> Result<Option<Life>, Error> {
    let me = Claimant::this_process()
        .ok_or_else(|| cannot_tell(path, "/proc does not tell where this process runs"))?;
    Ok(judge(by, &me, Stat::of))
}

/// `stat` is what `/proc` says of a process, if it shows it.
fn judge(by: &Claimant, me: &Claimant, stat: fn(Pid) -> Option<Stat>) -> Option<Life> {
    if by.boot_id != me.boot_id {
        // What is unknown is never the same as anything.
        let this_machine =
            by.host.is_some() && by.host == me.host && by.machine_id == me.machine_id;
        return (!this_machine && !mutant::is("claim-of-any-machine"))
            .then_some(Life::OtherMachine);
    }
    if by.pid_ns != me.pid_ns {
        return Some(Life::OtherNamespace);
    }
    let pid = Pid::new(by.pid)?;
    match stat(pid) {
        Some(stat) if stat.start_time == by.start_time || mutant::is("claim-recycled-pid") => {
            // Of a process being killed the main thread can be gone before the others.
            (!stat.zombie || !has_ended(pid)).then_some(Life::Lives)
        }
        Some(_) => None,
        // It may belong to another user, whose processes `/proc` can be told not to show.
        None => (pid::exists(pid) && !mutant::is("claim-hidden-is-gone")).then_some(Life::Hidden),
    }
}

/// Whether all of a process has ended whose main thread has.
fn has_ended(pid: Pid) -> bool {
    PidFd::open(pid)
        .and_then(|handle| handle.ended(Duration::ZERO))
        .unwrap_or(true)
}

fn cannot_look(state_dir: &Path, e: &io::Error) -> Error {
    let doing = format!(
        "cannot tell who holds state directory {}",
        state_dir.display()
    );
    Error::new(doing, reason(e))
}

fn cannot_tell(path: &Path, why: &str) -> Error {
    let doing = format!("cannot tell whose claim {} is", path.display());
    Error::new(doing, why)
        .hint("if no poller runs with this state directory, here or elsewhere, remove that file")
}

fn cannot_claim(state_dir: &Path, e: &io::Error) -> Error {
    let doing = format!("cannot claim state directory {}", state_dir.display());
    Error::new(doing, reason(e))
}

#[cfg(test)]
pub(super) mod tests;
