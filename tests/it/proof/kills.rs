//! The real program, killed or stopped before any of its system calls, or with one of them failing.

use super::failures::failures;
use super::scene::{ALL, Scene, memory};
use super::sweep::{May, Sweep, Tries, run, strike, undisturbed, wrong};
use super::traced::Act;
use crate::world::program::scaled;
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

/// Given a run of each scenario, when any one of its system calls fails, as calls do on a full, broken or
/// busy machine, in each way it can, then it does not panic, leaves nothing damaged, and the next ones come to what an
/// undisturbed one does (R3.2, R3.5, R3.6, R6.1, R6.2).
#[test]
fn r3_5_failing_at_any_call_it_loses_and_repeats_nothing() {
    Sweep::of_failures(scaled(50), ALL.into_iter()).go(|wanted, at, what| {
        let scene = Scene::set(wanted.scenario, &memory());
        let failed = std::cell::Cell::new(false);
        // That call, in that way; if it is another one this time, the first from there on that can fail.
        let ended = run(&scene, |call| {
            if call.number < at[0] || failed.get() {
                return Act::Go;
            }
            let ways = failures(call);
            let way = at.get(1).map_or(0, |way| *way as usize - 1);
            let Some(act) = ways.get(way).or(ways.last()) else {
                return Act::Go;
            };
            failed.set(true);
            what.push(format!("{} {act:?}", call.what()));
            *act
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

/// Given a run in which what tmux answers cannot be read, always, or every second or third time, then half an answer is not taken
/// for a whole one: the next runs come to what an undisturbed one does (R3.5, R6.1).
#[test]
fn r3_5_half_an_answer_of_tmux_is_not_taken_for_a_whole_one() {
    let scenario = ALL.into_iter().find(|s| s.name == "tmux-later");
    let wanted = undisturbed(scenario.expect("it is there"));
    for (every, first) in [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)] {
        let scene = Scene::set(wanted.scenario, &memory());
        let (mut seen, mut failed) = (0, 0);
        let ended = run(&scene, |call| {
            if call.name != "read" || !call.descriptor().starts_with("pipe:") {
                return Act::Go;
            }
            seen += 1;
            if seen % every != first {
                return Act::Go;
            }
            failed += 1;
            Act::Fail(Errno::EIO as i32)
        });
        assert!(failed > 0 && !ended.hung, "{}", scene.place.story());
        let found = wrong(&scene, &wanted, May::post_again(0));
        assert_eq!(found, None, "{first} of {every}: {}", scene.place.story());
    }
}
