//! The real program, killed or stopped before any of its system calls, or with one of them failing.

use super::scene::{ALL, Scene, memory};
use super::sweep::{May, Sweep, Tries, run, strike, wrong};
use super::traced::Act;
use crate::world::program::scaled;
use crate::world::sim::Dice;
use nix::errno::Errno;
use nix::sys::signal::Signal;

/// Given a run of each scenario, when the poller is killed before any one of its system calls, then the
/// pollers after it come to what an undisturbed one does: each event once, in order, at no cost, nothing
/// damaged, and once more nothing is done (R1.4, R3.1, R3.4, R3.6, R3.7, R5.4, R6.1, R6.2, R6.3).
#[test]
fn r3_killed_before_any_call_it_goes_on_as_if_it_had_not_been() {
    Sweep::new("killed once", scaled(200), ALL.into_iter()).go(|wanted, at, what| {
        let scene = Scene::set(wanted.scenario, &memory());
        strike(&scene, at[0], what, |_| Act::Kill);
        wrong(&scene, wanted, May::post_again(1))
    });
}

/// The same, and the poller that follows is killed at any call of its own (R3.1, R5.4, R6.2).
#[test]
fn r3_killed_twice_in_a_row_it_goes_on_as_if_it_had_not_been() {
    let mut sweep = Sweep::new("killed twice", scaled(20), ALL.into_iter());
    for (n, at) in sweep.points.iter_mut().filter(|(_, at)| at.len() == 1) {
        at.push(1 + sweep.dice.roll(sweep.wanted[*n].calls.len() as u64));
    }
    sweep.go(|wanted, at, what| {
        let scene = Scene::set(wanted.scenario, &memory());
        for number in at {
            strike(&scene, *number, what, |_| Act::Kill);
        }
        wrong(&scene, wanted, May::post_again(2))
    });
}

/// Given a run of each scenario, when SIGTERM comes before any one of its system calls, then it ends by itself, and the
/// next ones come to what an undisturbed one does; nothing is repeated at all, and no try counts as
/// interrupted (R2.5, R4.1, R5.1, R5.2, R5.3, R6.1, R6.2).
#[test]
fn r5_stopped_before_any_call_it_goes_on_as_if_it_had_not_been() {
    Sweep::new("stopped", scaled(100), ALL.into_iter()).go(|wanted, at, what| {
        let scene = Scene::set(wanted.scenario, &memory());
        let ended = strike(&scene, at[0], what, |_| Act::Signal(Signal::SIGTERM));
        // By the signal only as long as nobody listens for it.
        let early =
            scene.place.entries("poller.started").len() == usize::from(wanted.scenario.later);
        if !(matches!(ended.code, Some(0 | 1)) || (ended.code.is_none() && early)) {
            return Some(format!(
                "it ended with {:?}: {}",
                ended.code,
                scene.place.story()
            ));
        }
        for kind in ["poll.interrupted_delivery", "dispatch.failed"] {
            if !wanted.scenario.failing && !scene.place.entries(kind).is_empty() {
                return Some(format!("{kind}: {}", scene.place.story()));
            }
        }
        wrong(&scene, wanted, May::post_again(0))
    });
}

/// How a call can fail that is not the program's own fault.
fn errors(name: &str) -> &'static [Errno] {
    match name {
        "openat" | "open" => &[
            Errno::EMFILE,
            Errno::EIO,
            Errno::ENOSPC,
            Errno::EROFS,
            Errno::EINTR,
        ],
        "write" | "pwrite64" => &[Errno::ENOSPC, Errno::EIO, Errno::EDQUOT, Errno::EINTR],
        "fsync" | "syncfs" | "fdatasync" => &[Errno::EIO, Errno::ENOSPC, Errno::EDQUOT],
        "rename" | "mkdir" | "link" | "ftruncate" => &[Errno::EIO, Errno::ENOSPC, Errno::EROFS],
        "unlink" | "rmdir" => &[Errno::EIO, Errno::EROFS],
        "read" | "getdents64" | "pread64" => &[Errno::EIO, Errno::EINTR],
        "flock" => &[Errno::EINTR, Errno::ENOLCK],
        "statx" | "fstat" | "newfstatat" | "stat" | "lstat" | "fstatfs" | "statfs" => &[Errno::EIO],
        "socket" | "pipe2" | "eventfd2" | "fcntl" | "dup" => &[Errno::EMFILE],
        "clone3" | "clone" => &[Errno::EAGAIN],
        "connect" => &[Errno::ECONNREFUSED, Errno::EINTR],
        "sendto" | "recvfrom" => &[Errno::ECONNRESET, Errno::EINTR],
        "poll" | "ppoll" | "wait4" | "waitid" => &[Errno::EINTR],
        "pidfd_open" => &[Errno::EMFILE, Errno::ENOSYS],
        _ => &[],
    }
}

/// Given a run of each scenario, when any one of its system calls fails, as calls do on a full, broken or
/// busy machine, then it does not panic, leaves nothing damaged, and the next ones come to what an
/// undisturbed one does (R3.2, R3.5, R3.6, R6.1, R6.2).
#[test]
fn r3_5_failing_at_any_call_it_loses_and_repeats_nothing() {
    Sweep::new("failing", scaled(50), ALL.into_iter()).go(|wanted, at, what| {
        let scene = Scene::set(wanted.scenario, &memory());
        let mut dice = Dice(at[0].wrapping_mul(0x9e37_79b9) | 1);
        let which = dice.roll(6);
        let failed = std::cell::Cell::new(None);
        let mut wait = at[0];
        // The first call from there on that can fail.
        let ended = run(&scene, |call| {
            let errors = errors(call.name);
            // A pair of sockets within the machine, as the standard library has for a new process, is not reset.
            let errors = match call.name {
                "recvfrom" | "sendto" if !call.is_network() => &[],
                _ => errors,
            };
            if call.number < wait || errors.is_empty() || failed.get().is_some() {
                return Act::Go;
            }
            wait = call.number;
            let shorten = call.name == "write" && which == 5;
            let act = match shorten {
                true => Act::Shorten,
                false => Act::Fail(errors[which as usize % errors.len()] as i32),
            };
            failed.set(Some(act));
            what.push(format!("{} {act:?}", call.what()));
            act
        });
        if ended.hung {
            return Some("it does not end".to_string());
        }
        // Who ends early says why.
        if !matches!(ended.code, Some(0)) && scene.place.lines("stderr.log").is_empty() {
            return Some(format!("it ended with {:?} and said nothing", ended.code));
        }
        let request = ["connect", "sendto", "recvfrom"];
        let request = what
            .iter()
            .any(|w| request.iter().any(|r| w.starts_with(r)));
        let tries = if request { Tries::Any } else { Tries::Fewer };
        let may = May {
            tries,
            ..May::post_again(1)
        };
        wrong(&scene, wanted, may)
    });
}
