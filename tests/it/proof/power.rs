//! Power cuts: a real file system is switched off under the program, which dies with all it started, and what
//! is there when it is mounted again must be enough.

use super::scene::{ALL, Scenario, Scene};
use super::sweep::{May, Sweep, Tries, strike, wrong};
use super::traced::Act;
use crate::world::program::{is_root, scaled};
use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A file system in a file of its own; ended and removed with this.
struct Disk {
    image: PathBuf,
    at: PathBuf,
    /// Its device number while it is mounted.
    device: Cell<u64>,
}

/// Runs a tool; says what it said if it fails.
fn tool(words: &[&str]) -> Result<(), String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let run = Command::new(words[0])
        .args(&words[1..])
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{words:?}: {e}"))?;
    match run.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{words:?}: {}",
            String::from_utf8_lossy(&run.stderr)
        )),
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("ASCII")
}

impl Disk {
    /// Makes one of this kind and mounts it.
    fn make(kind: &str) -> Result<Disk, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("idempoll-power-{}-{n}", std::process::id());
        // The image is on the machine's own disk, or it would be held in memory twice.
        let disk = Disk {
            image: std::env::temp_dir().join(format!("{name}.img")),
            at: std::env::temp_dir().join(name),
            device: Cell::new(0),
        };
        fs::create_dir_all(&disk.at).expect("room");
        let file = fs::File::create(&disk.image).expect("room");
        file.set_len(320 << 20).expect("a file with holes");
        let make = format!("mkfs.{kind}");
        tool(&[&make, "-q", text(&disk.image)])?;
        disk.mount()?;
        Ok(disk)
    }

    fn mount(&self) -> Result<(), String> {
        let around = |path: &Path| fs::metadata(path).map_or(0, |m| m.dev());
        tool(&["mount", "-o", "loop", text(&self.image), text(&self.at)])?;
        self.device.set(around(&self.at));
        match self.device.get() != around(&std::env::temp_dir()) {
            true => Ok(()),
            false => Err(format!("nothing is mounted at {}", self.at.display())),
        }
    }

    /// Makes all durable that was written.
    fn sync(&self) {
        tool(&["sync", "-f", text(&self.at)]).expect("sync");
    }

    /// Switches it off: nothing more is written, not even what is in the journal.
    fn cut(&self) {
        // It must be this one that is mounted there, or it would be the machine's own.
        let cut = "import fcntl, os, struct, sys
fd = os.open(sys.argv[1], 0)
assert os.fstat(fd).st_dev == int(sys.argv[2]) != os.stat(os.path.dirname(sys.argv[1])).st_dev
fcntl.ioctl(fd, 0x8004587d, struct.pack('I', 2))";
        tool(&[
            "python3",
            "-c",
            cut,
            text(&self.at),
            &self.device.get().to_string(),
        ])
        .expect("the file system can be switched off");
    }

    /// Ends all that was at work on it, as the cut has, and mounts it again as it was left.
    fn back(&self) -> Result<(), String> {
        let mut said = String::new();
        for _ in 0..500 {
            self.users().iter().for_each(|pid| {
                let _ = tool(&["kill", "-9", pid]);
            });
            match tool(&["umount", text(&self.at)]) {
                Ok(()) => return self.mount(),
                Err(why) => said = why,
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(said)
    }

    /// The processes that are in it, have a file of it open or were told of one. Nobody has but those the poller started,
    /// and for a moment what this test starts for another disk, which comes with all that is open here.
    fn users(&self) -> Vec<String> {
        let inside = |link: PathBuf| fs::read_link(link).is_ok_and(|to| to.starts_with(&self.at));
        let own = std::process::id().to_string();
        let parent = format!("PPid:\t{own}\n");
        let all = fs::read_dir("/proc").expect("/proc").flatten();
        let pids = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
        pids.filter(|pid| pid.bytes().all(|b| b.is_ascii_digit()) && *pid != own)
            .filter(|pid| {
                let of = PathBuf::from("/proc").join(pid);
                let mut open = fs::read_dir(of.join("fd")).into_iter().flatten().flatten();
                let read = |name: &str| fs::read(of.join(name)).unwrap_or_default();
                let holds =
                    |name: &str, what: &str| String::from_utf8_lossy(&read(name)).contains(what);
                // A server's socket leads to no path, but the server was told it.
                let told = holds("cmdline", &format!("{}/", text(&self.at)));
                let at_work = told || inside(of.join("cwd")) || open.any(|fd| inside(fd.path()));
                at_work && !holds("status", &parent)
            })
            .collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = tool(&["umount", "-l", text(&self.at)]);
        let _ = fs::remove_file(&self.image);
        let _ = fs::remove_dir(&self.at);
    }
}

/// The calls that change what is on the disk, or what others do.
const CHANGING: [&str; 16] = [
    "write",
    "pwrite64",
    "fsync",
    "fdatasync",
    "syncfs",
    "rename",
    "unlink",
    "mkdir",
    "link",
    "ftruncate",
    "sendto",
    "clone",
    "clone3",
    "wait4",
    "close",
    "exit_group",
];

/// Runs a test again with mounts of its own: a namespace of another test would otherwise hold on to a file system
/// that is switched off, and it would come back as it went. Says whether this is that run.
fn with_own_mounts(kind: &str) -> bool {
    if std::env::var_os("IDEMPOLL_OWN_MOUNTS").is_some() {
        return true;
    }
    if !is_root() {
        skipped(kind, "only root can mount");
        return false;
    }
    let (_, room) = module_path!().split_once("::").expect("the crate");
    let test = format!("{room}::r3_6_a_power_cut_on_{kind}_loses_nothing");
    let ended = Command::new("unshare")
        .args(["-m", "--propagation", "private"])
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", &test, "--nocapture"])
        .env("IDEMPOLL_OWN_MOUNTS", "1")
        .status();
    assert!(ended.expect("unshare").success());
    false
}

/// Says so where it is seen although a test that passes is not heard.
fn skipped(kind: &str, why: &str) {
    let _ = writeln!(
        std::io::stderr(),
        "\npower cuts on {kind}: SKIPPED, {why}; `tests/proof power` runs them as root where loop devices can be mounted"
    );
}

/// Cuts the power before any call that matters, on a file system of this kind.
fn cut_on(kind: &'static str) {
    if !with_own_mounts(kind) {
        return;
    }
    if let Err(why) = Disk::make(kind) {
        return skipped(kind, &why);
    }
    let name = if kind == "xfs" {
        "power cut, xfs"
    } else {
        "power cut, ext4"
    };
    // A tmux server dies with the machine, and whoever would be told of an end with it.
    let fits = |scenario: &Scenario| scenario.name != "tmux-later";
    let scenarios = ALL.into_iter().filter(fits);
    let mut sweep = Sweep::new(name, scaled(20), scenarios);
    for (n, at) in &mut sweep.points {
        let calls = &sweep.wanted[*n].calls;
        let from = usize::try_from(at[0]).expect("small") - 1;
        let next = (from..calls.len())
            .chain(0..from)
            .find(|at| CHANGING.contains(&calls[*at]));
        at[0] = next.expect("a poller writes") as u64 + 1;
    }
    // Each worker has a disk of its own.
    thread_local! {
        static DISK: Cell<Option<Disk>> = const { Cell::new(None) };
    }
    sweep.go(|wanted, at, what| {
        let disk = DISK.take().map_or_else(|| Disk::make(kind), Ok);
        let disk = disk.expect("it worked before");
        let scene = Scene::set(wanted.scenario, &disk.at);
        disk.sync();
        let mut before = None;
        strike(&scene, at[0], what, |_| {
            disk.cut();
            Act::Kill
        });
        if !what.is_empty() {
            if let Err(why) = disk.back() {
                return Some(why);
            }
            scene.agents_have_died();
            before = Some(scene.effects());
        }
        let may = May {
            repeat: 1,
            to: &["log", "hook", "agent"],
            tries: Tries::Fewer,
        };
        let found = wrong(&scene, wanted, may);
        // Again comes only what was the last to come before.
        let last_of = |sink: &String, number: u64| {
            let keys = before.as_ref()?.get(&(sink.clone(), number))?;
            keys.last().cloned()
        };
        let mut repeats = scene.repeats().into_iter();
        let stray =
            repeats.find(|(sink, number, key)| last_of(sink, *number).as_ref() != Some(key));
        DISK.set(Some(disk));
        found.or_else(|| stray.map(|stray| format!("{stray:?} came again, and was not in flight")))
    });
}

/// Given a run of each scenario on ext4, when the power is cut before any one of its calls that changes anything, then what is
/// on the disk is whole, nothing is lost, and again comes only what was in flight, once (R3.1, R3.4, R3.6, R3.7, R5.4, R6.1).
#[test]
fn r3_6_a_power_cut_on_ext4_loses_nothing() {
    cut_on("ext4");
}

/// The same on XFS (R3.1, R3.4, R3.6, R3.7, R5.4, R6.1).
#[test]
fn r3_6_a_power_cut_on_xfs_loses_nothing() {
    cut_on("xfs");
}
