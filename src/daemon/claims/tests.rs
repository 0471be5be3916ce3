//! The protocol, by itself and between processes that are killed.
#![allow(clippy::disallowed_methods, reason = "tests")]

use super::super::clock::Mono;
use super::super::stand_in::{Scratch, StandIn, command};
use super::*;
use crate::os::flock::Locked;
use crate::os::wait;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::thread;

fn scratch() -> Scratch {
    let scratch = Scratch::new().with_state();
    let private = fs::Permissions::from_mode(0o700);
    fs::set_permissions(scratch.state(), private).expect("it is ours");
    scratch
}

fn taken(state: &Path) -> Ours {
    match take(state).expect("it can be taken") {
        Taken::Ours(ours) => ours,
        other => panic!("nobody else has it: {other:?}"),
    }
}

fn held(state: &Path) -> Holding {
    match look(state).expect("it can be looked at") {
        Standing::Held(holding) => holding,
        free => panic!("it is held: {free:?}"),
    }
}

fn us() -> Claimant {
    Claimant::this_process().expect("/proc is there")
}

/// Puts a claim there as somebody else would have made it.
fn put(state: &Path, number: u64, by: &Claimant) -> PathBuf {
    let path = path_of(state, number);
    let line = serde_json::to_string(by).expect("JSON");
    fs::write(&path, format!("{line}\n")).expect("it can be written");
    path
}

/// A process that lives until it is dropped.
struct Other(std::process::Child);

impl Other {
    fn new() -> Other {
        let sleep = Command::new("sleep").arg("600").spawn();
        Other(sleep.expect("sleep is there"))
    }

    /// What it would claim.
    fn claimant(&self) -> Claimant {
        let stat = Pid::new(self.0.id()).and_then(Stat::of);
        Claimant {
            pid: self.0.id(),
            start_time: stat.expect("it lives").start_time,
            ..us()
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// R1.8. Given a directory, when it is claimed, then the claim is whole and says whose it is,
/// nobody else gets it, and once it is ended the next number is taken and the old one removed.
#[test]
fn a_claim_excludes_until_it_is_ended() {
    let scratch = scratch();
    let state = scratch.state();
    assert_eq!(look(&state), Ok(Standing::Free(0)));
    let first = taken(&state);
    assert!(first.stands().expect("it can be seen"));
    assert_eq!(first.path(), state.join("poll.claim.1"));
    let holding = held(&state);
    assert_eq!((holding.by, holding.life), (us(), Life::Lives));
    assert!(matches!(take(&state), Ok(Taken::Held(_))));
    let facts = Facts::at(first.path()).expect("it is there");
    assert_eq!((facts.mode, facts.links), (0o600, 1));
    drop(first);
    assert_eq!(look(&state), Ok(Standing::Free(1)));
    let second = taken(&state);
    let left: Vec<_> = fs::read_dir(&state).expect("it is there").collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(second.path(), state.join("poll.claim.2"));
}

/// R1.8. Given the claim of a process, when that process is another now, gone, a
/// zombie or of an earlier start of this machine, then it is over; and not before.
#[test]
fn a_claim_is_over_when_its_very_process_is_gone() {
    let scratch = scratch();
    let state = scratch.state();
    let mut other = Other::new();
    let theirs = other.claimant();
    put(&state, 7, &theirs);
    assert_eq!(held(&state).life, Life::Lives);
    assert_eq!(held(&state).pid(), Pid::new(theirs.pid));
    let over = [
        Claimant {
            start_time: theirs.start_time - 1,
            ..theirs.clone()
        },
        Claimant {
            boot_id: "an earlier one".to_string(),
            ..theirs.clone()
        },
        Claimant {
            boot_id: "an earlier one".to_string(),
            pid_ns: 1,
            ..theirs.clone()
        },
        Claimant {
            pid: i32::MAX.unsigned_abs(),
            ..theirs.clone()
        },
    ];
    for by in over {
        put(&state, 7, &by);
        assert_eq!(look(&state), Ok(Standing::Free(7)), "{by:?}");
        assert_eq!(taken(&state).path(), state.join("poll.claim.8"));
        fs::remove_file(state.join("poll.claim.8")).expect("it is there");
    }
    put(&state, 7, &theirs);
    other.0.kill().expect("it is our child");
    let handle = PidFd::open(Pid::new(theirs.pid).expect("not 0")).expect("not collected");
    assert!(handle.ended(Duration::from_secs(60)).expect("poll works"));
    assert!(Stat::of(Pid::new(theirs.pid).expect("not 0")).is_some_and(|s| s.zombie));
    assert_eq!(look(&state), Ok(Standing::Free(7)), "a zombie");
    other.0.wait().expect("it is our child");
    assert_eq!(look(&state), Ok(Standing::Free(7)));
}

/// R1.8. Given a claim of a process that `/proc` does not show, then it lives if the kernel knows its pid.
#[test]
fn a_process_that_is_hidden_is_not_taken_for_gone() {
    let hide = |_| None;
    assert_eq!(judge(&us(), &us(), hide), Some(Life::Hidden));
    let gone = Claimant {
        pid: i32::MAX.unsigned_abs(),
        ..us()
    };
    assert_eq!(judge(&gone, &us(), hide), None);
}

/// R1.8. Given a claim of a process whose main thread has ended, then it is over only when the others have, too.
#[test]
fn a_process_lives_as_long_as_any_of_its_threads() {
    let main_thread_gone = |pid| {
        let stat = Stat::of(pid)?;
        Some(Stat {
            zombie: true,
            ..stat
        })
    };
    assert_eq!(judge(&us(), &us(), main_thread_gone), Some(Life::Lives));
    assert_eq!(judge(&us(), &us(), Stat::of), Some(Life::Lives));
}

#[test]
fn a_machine_id_is_known_or_not() {
    assert_eq!(known("4af1\n").as_deref(), Some("4af1"));
    assert_eq!(known("uninitialized\n"), None);
    assert_eq!(known("\n"), None);
}

/// R1.8. Given a claim that was removed meanwhile, then there is none; one that cannot be read is an error.
#[test]
fn a_claim_that_cannot_be_read_is_not_none() {
    let scratch = scratch();
    let path = scratch.path().join("claim");
    assert_eq!(read(&path), Ok(None));
    fs::create_dir(&path).expect("a directory");
    assert!(read(&path).is_err());
}

/// R1.8. Given a claim of another machine or another pid namespace, then it is not taken
/// over, and the file and the remedy are named; when it is marked as ended, then it is.
#[test]
fn a_claim_that_cannot_be_judged_is_not_taken_over() {
    let scratch = scratch();
    let state = scratch.state();
    let elsewhere = Claimant {
        boot_id: "another".to_string(),
        ..us()
    };
    let cases = [
        (
            Life::OtherMachine,
            Claimant {
                host: Some("box".to_string()),
                ..elsewhere.clone()
            },
        ),
        (
            Life::OtherMachine,
            Claimant {
                machine_id: Some("of a clone".to_string()),
                ..elsewhere.clone()
            },
        ),
        (
            Life::OtherMachine,
            Claimant {
                host: None,
                ..elsewhere
            },
        ),
        (Life::OtherNamespace, Claimant { pid_ns: 1, ..us() }),
    ];
    for (life, by) in cases {
        let path = put(&state, 3, &by);
        let Ok(Taken::Held(holding)) = take(&state) else {
            panic!("{by:?}");
        };
        assert_eq!((holding.life, holding.pid()), (life, None));
        for said in [holding.in_words(), holding.remedy().expect("there is one")] {
            assert!(said.contains(&path.display().to_string()), "{said}");
        }
        let left = fs::read_dir(&state).expect("it is there").count();
        assert_eq!(left, 1, "nothing was written");
        // Half of the mark is none.
        let mut file = fs::File::options().append(true).open(&path).expect("ours");
        file.write_all(b"end").expect("there is room");
        assert_eq!(held(&state).life, life);
        file.write_all(b"ed\n").expect("there is room");
        assert_eq!(look(&state), Ok(Standing::Free(3)));
    }
}

/// R1.8. Given something that is no claim of ours under the highest number, when it is
/// looked at, then that is an error that names it and nothing is taken; other names do not count.
#[test]
fn what_is_no_claim_is_an_error_and_never_free() {
    let scratch = scratch();
    let state = scratch.state();
    for odd in [
        "poll.claim.",
        "poll.claim.x",
        "poll.claim.007",
        "poll.claim.+9",
        "poll.claim.-1",
    ] {
        fs::write(state.join(odd), "").expect("it can be written");
    }
    assert_eq!(look(&state), Ok(Standing::Free(0)));
    let path = path_of(&state, 7);
    let whole = serde_json::to_string(&us()).expect("JSON");
    let newer = whole.replace(r#""version":1"#, r#""version":2"#);
    let texts = [
        String::new(),
        "\n".to_string(),
        "\0".repeat(100),
        "garbage\n".to_string(),
        whole.clone(),
        whole[..whole.len() / 2].to_string(),
        whole.replace(&format!(r#""pid":{}"#, us().pid), r#""pid":0"#) + "\n",
        format!("{newer}\n"),
        format!("{newer}\nended\n"),
        "{\"version\":2}\n".to_string(),
        "x".repeat(100_000),
    ];
    for text in texts {
        fs::write(&path, &text).expect("it can be written");
        let e = take(&state).expect_err(&text);
        assert!(e.doing.contains("poll.claim.7"), "{e}");
        assert!(e.hint.is_some_and(|h| h.contains("remove that file")));
    }
    fs::remove_file(&path).expect("it is there");
    symlink("/etc/passwd", &path).expect("links can be made");
    assert!(take(&state).is_err(), "a link");
    fs::remove_file(&path).expect("it is there");
    let made = Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo is there").success());
    assert!(take(&state).is_err(), "a FIFO, and it must not hang");
    fs::remove_file(&path).expect("it is there");
    // Below the highest nothing is read.
    fs::write(path_of(&state, 1), "garbage").expect("it can be written");
    put(
        &state,
        2,
        &Claimant {
            start_time: 0,
            ..us()
        },
    );
    assert_eq!(taken(&state).path(), path_of(&state, 3));
}

/// R1.8. Given two who saw the same claim to be over, when both make the next one, then one gets it.
#[test]
fn a_number_is_taken_once() {
    let scratch = scratch();
    let state = scratch.state();
    let drafts = [(); 2].map(|()| draft(&state).expect("it can be written"));
    let [first, second] = drafts.map(|d| claim(&state, d, 4).expect("it can be tried"));
    let Taken::Ours(first) = first else {
        panic!("nobody was there: {first:?}");
    };
    assert!(matches!(second, Taken::Beaten), "{second:?}");
    assert!(first.stands().expect("it can be seen"));
}

/// R1.8. Given a contender that was not seen while others went on and removed what it had
/// looked at, when it makes its claim, then it finds the higher one and holds nothing.
#[test]
fn a_claim_below_the_highest_holds_nothing() {
    let scratch = scratch();
    let state = scratch.state();
    let draft = draft(&state).expect("it can be written");
    let other = Other::new();
    put(&state, 9, &other.claimant());
    let late = claim(&state, draft, 4).expect("it can be tried");
    assert!(matches!(late, Taken::Beaten), "{late:?}");
    assert_eq!(held(&state).path, path_of(&state, 9));
}

/// R1.8. Given a contender with its temp in the directory, when another takes it, then no
/// claim is removed that the contender may need to see; once it is gone, or dead, they are.
#[test]
fn no_claim_is_removed_under_a_contender() {
    let scratch = scratch();
    let state = scratch.state();
    drop(taken(&state));
    let contender = draft(&state).expect("it can be written");
    drop(taken(&state));
    let seen = |expected: &[u64]| {
        let mut numbers = numbers(&state).expect("it is there");
        numbers.sort_unstable();
        assert_eq!(numbers, expected);
    };
    seen(&[1, 2]);
    let late = claim(&state, contender, 1).expect("it can be tried");
    assert!(matches!(late, Taken::Beaten), "{late:?}");
    let dead = state.join(format!(".tmp.{}.1", i32::MAX));
    fs::write(dead, "").expect("it can be written");
    drop(taken(&state));
    seen(&[3]);
}

/// R1.8. Given a claim that is removed by hand, or has a higher one above it, then it does not stand.
#[test]
fn a_claim_that_was_taken_away_does_not_stand() {
    let scratch = scratch();
    let state = scratch.state();
    let ours = taken(&state);
    let other = Other::new();
    put(&state, 2, &other.claimant());
    assert!(!ours.stands().expect("it can be seen"));
    fs::remove_file(path_of(&state, 2)).expect("it is there");
    assert!(ours.stands().expect("it can be seen"));
    fs::remove_file(ours.path()).expect("it is there");
    assert!(!ours.stands().expect("it can be seen"));
    put(&state, 1, &other.claimant());
    assert!(!ours.stands().expect("it can be seen"));
    // And its end is not that of who came after it.
    drop(ours);
    assert_eq!(held(&state).by, other.claimant());
}

/// Claims and lets go again and again. Whoever holds the claim locks the referee's file, which
/// must be free: the kernel gives that back when its holder is killed. A byte is kept for each turn.
pub(in crate::daemon) fn contend(state: &Path, until: Mono) {
    let note = |name: &str| {
        let path = state.with_file_name(name);
        let mut file = fs::File::options().append(true).create(true).open(path);
        let file = file.as_mut().expect("it can be written");
        file.write_all(b".").expect("there is room");
    };
    while !until.passed() {
        match take(state).expect("it can be tried") {
            Taken::Ours(ours) => {
                let referee = fs::File::open(state).expect("it is there");
                match Locked::exclusive(referee).expect("flock works") {
                    Ok(locked) => {
                        note("turns");
                        // Long enough for a kill, or for another to look.
                        wait::pause(Duration::from_micros(u64::from(ours.number as u8) * 8));
                        drop(locked);
                    }
                    Err(_) => note("overlaps"),
                }
            }
            Taken::Held(_) | Taken::Beaten => {}
        }
    }
}

/// R1.8. Given five contenders, of which three are processes that are killed now and then
/// and begin anew, then two never hold the directory at once, and no claims pile up.
#[test]
fn contenders_for_a_claim_never_overlap_although_they_are_killed() {
    let scratch = scratch();
    let state = scratch.state();
    let end = Mono::now().plus(Duration::from_secs(3));
    let start = || StandIn::ready_from(command("claims", &scratch, &[]));
    let mut processes = [(); 3].map(|()| start());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| contend(&state, end));
        }
        let mut next = 0;
        while !end.passed() {
            wait::pause(Duration::from_millis(40 + next as u64 * 13));
            processes[next] = start();
            next = (next + 1) % processes.len();
        }
    });
    drop(processes);
    let noted = |name| fs::metadata(scratch.path().join(name)).map_or(0, |m| m.len());
    let (turns, overlaps) = (noted("turns"), noted("overlaps"));
    assert_eq!(overlaps, 0, "of {turns}");
    assert!(turns > 10, "{turns}");
    let ours = taken(&state);
    // A temp left by the killed is in the way only if its pid is another's by now.
    if !atomic::is_written_to(&state).expect("it is there") {
        assert_eq!(numbers(&state).expect("it is there"), [ours.number]);
    }
}
