//! Which of several `stop`s signals.
//!
//! A poller takes a second signal as "at once", so two `stop`s at the same
//! moment must not both send one. Who is about to holds a `flock` on
//! `STATE/requests` (a stop is a request like others) from its last look at
//! `run.json` until the poller has said there that it was asked. Where that
//! directory is missing (a poller makes it right after it has said who it is)
//! or cannot be locked, the signal is sent without: better twice than never.

use super::{LOOK_AGAIN, Target};
use crate::daemon::clock::Mono;
use crate::mutant;
use crate::os::file;
use crate::os::flock::Locked;
use crate::os::wait;
use crate::store::Layout;
use crate::store::run_info::RunInfo;
use std::path::Path;
use std::time::Duration;

/// How long a poller may take to say that it was asked. One that takes longer
/// hangs, and then the next `stop` is its second signal, as it should be.
const HEARD: Duration = Duration::from_secs(5);

/// Whose turn it is to signal a poller.
pub(super) enum Turn {
    /// Ours. Nobody else signals while the lock, if there is one, is held.
    Ours(Option<Locked>),
    /// Somebody else's: the poller was asked, or is about to be.
    Theirs,
}

impl Turn {
    /// Waits, at most until `deadline`, until nobody else is about to signal
    /// `target`, which has been proved to hold the lock of `state_dir`.
    pub(super) fn take(target: &Target, state_dir: &Path, deadline: Mono) -> Turn {
        let requests = Layout::new(state_dir).requests();
        loop {
            let locked = file::open_directory(&requests).and_then(Locked::exclusive);
            if mutant::is("stops-take-no-turns") {
                return Turn::Ours(None);
            }
            if needs_no_signal(target, state_dir) {
                return Turn::Theirs;
            }
            match locked {
                Ok(Ok(locked)) => return Turn::Ours(Some(locked)),
                Ok(Err(_)) if deadline.passed() => return Turn::Theirs,
                Ok(Err(_)) => wait::pause(LOOK_AGAIN),
                Err(_) => return Turn::Ours(None),
            }
        }
    }

    /// Ends the turn once the poller has heard the signal, at the latest at `deadline`.
    pub(super) fn end_when_heard(self, target: &Target, state_dir: &Path, deadline: Mono) {
        let Turn::Ours(Some(_locked)) = self else {
            return;
        };
        let end = Mono::now().plus(HEARD.min(deadline.left()));
        while !end.passed() && !needs_no_signal(target, state_dir) {
            // The most frequent answer is the end itself, and it is not to be waited for twice.
            if target.ended(LOOK_AGAIN.min(end.left())).is_err() {
                return;
            }
        }
    }
}

/// Whether the target was asked, is ending or has ended.
pub(super) fn needs_no_signal(target: &Target, state_dir: &Path) -> bool {
    match RunInfo::read(state_dir) {
        Some(run) if target.wrote(&run) => {
            run.stop_asked_at.is_some() || run.stopped_at.is_some() || !target.is_alive()
        }
        // The next poller's: the target has given its lock back.
        Some(_) => true,
        None => !target.is_alive(),
    }
}
