//! Who keeps watch while the poller rests: between two cycles, with nothing in
//! flight, the main thread sleeps until there is something to do.
//!
//! A thread waits for what would otherwise be looked for at every tick: a request, a
//! state directory that is moved (or what it is in), a clock that is set. It
//! only wakes the main thread, which then looks for itself. Where the kernel cannot tell all of it (on a
//! network file system, below a link, out of watches), there is no rest, and the tick goes on.

use super::channels::{Receiver, bounded};
use super::clock;
use super::poll::Poller;
use super::threads::{self, Thread};
use crate::engine::entry::{Entry, Level};
use crate::error::Error;
use crate::mutant;
use crate::os::clock::WhenSet;
use crate::os::inotify::Inotify;
use crate::os::wait::{self, For};
use crate::os::wake::Wake;
use crate::sinks::child;
use crate::store::{Layout, requests};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Keeps watch until it is dropped.
pub struct Sentry {
    layout: Layout,
    inotify: Arc<Inotify>,
    woken: Receiver<()>,
    end: Arc<Wake>,
    thread: Option<Thread>,
    /// That it cannot watch was told.
    told: bool,
}

impl Sentry {
    /// Tells of the clock from now on, and of a state directory from its first [`Sentry::post`] on.
    ///
    /// # Errors
    /// When the kernel does not know how, or the system has no room for it.
    pub fn start(layout: Layout) -> io::Result<Sentry> {
        let inotify = Arc::new(Inotify::new()?);
        let set = WhenSet::new()?;
        let end = Arc::new(Wake::new()?);
        let (wakes, woken) = bounded(1);
        let (heard, ended) = (inotify.clone(), end.clone());
        let thread = threads::spawn("sentry", move || {
            while !ended.raised() {
                let on = [ended.as_fd(), heard.as_fd(), set.as_fd()];
                let [_, changed, was_set] =
                    wait::ready(on.map(|fd| Some((fd, For::Reading))), None);
                if changed {
                    heard.clear();
                }
                if was_set {
                    set.clear();
                }
                if (changed || was_set) && !mutant::is("sentry-asleep") {
                    // If there is no room, it was not heard yet and stands for this as well.
                    let _ = wakes.try_send(());
                }
            }
        })?;
        Ok(Sentry {
            layout,
            inotify,
            woken,
            end,
            thread: Some(thread),
            told: false,
        })
    }

    /// Gets a message when something may have happened.
    #[must_use]
    pub fn woken(&self) -> &Receiver<()> {
        &self.woken
    }

    /// Watches the requests, the state directory and all that it is in. Whoever rests does
    /// this each time: what was watched may have been replaced meanwhile.
    fn post(&self) -> io::Result<()> {
        self.inotify.watch_names(&self.layout.requests())?;
        let mut places = self.layout.state_dir.ancestors();
        if mutant::is("sentry-sees-no-parents") {
            return self.inotify.watch_place(&self.layout.state_dir);
        }
        places.try_for_each(|place| self.inotify.watch_place(place))
    }
}

impl Drop for Sentry {
    fn drop(&mut self) {
        self.end.raise();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Poller<'_> {
    /// Somebody to keep watch, where that is of use.
    pub(super) fn sentry(&mut self) -> Option<Sentry> {
        let useful = self.lock.is_local() || mutant::is("rest-wherever-it-is");
        if self.once || !useful {
            return None;
        }
        let started = Sentry::start(self.layout.clone());
        started.map_err(|e| self.no_rest(&e)).ok()
    }

    /// Whether there is nothing to do and nothing to look for, until a time comes or the sentry wakes us.
    ///
    /// # Errors
    /// When the state directory is no longer ours.
    pub(super) fn may_rest(&mut self, sentry: Option<&mut Sentry>) -> Result<bool, Error> {
        let Some(sentry) = sentry else {
            return Ok(mutant::is("no-sentry-no-tick") && !self.once);
        };
        let idle = self.life.engine.is_quiet() && self.coming.is_none();
        let idle = idle && !mutant::is("never-rests");
        if !idle || self.notify.owes() || child::collect() > 0 {
            return Ok(false);
        }
        let too_early = mutant::is("looks-and-then-watches").then(|| requests::none(&self.layout));
        // Watched first, looked at then: of what happens just now one of the two hears.
        if let Err(e) = sentry.post() {
            if !std::mem::replace(&mut sentry.told, true) {
                self.no_rest(&e);
            }
            return Ok(mutant::is("no-sentry-no-tick"));
        }
        let nothing = too_early.unwrap_or_else(|| requests::none(&self.layout));
        Ok(self.still_ours()? && nothing)
    }

    /// It costs no more than a few wake-ups, so only those hear of it who want to know everything.
    fn no_rest(&mut self, e: &io::Error) {
        let reason = format!("cannot sleep from one cycle to the next: {e}");
        let entry = Entry::new(clock::now(), "poller.warning").with("reason", reason);
        let level = Level::Debug;
        self.log(&Entry { level, ..entry });
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::fs;
    use std::time::Duration;

    fn wakes(sentry: &Sentry) -> bool {
        sentry.woken().recv_timeout(Duration::from_secs(60)).is_ok()
    }

    /// Given a sentry over a state directory, when something is asked for, when it is moved and
    /// when it is dropped, then it wakes, wakes, and is gone with its thread and its descriptors (R1.3).
    #[test]
    fn r1_3_a_sentry_wakes_and_leaves_nothing_behind() {
        let scratch = Scratch::new();
        let layout = Layout::new(scratch.join("above/state"));
        fs::create_dir_all(layout.requests()).expect("directories");
        let sentry = Sentry::start(layout.clone()).expect("there is room");
        sentry.post().expect("it is there");
        fs::write(layout.requests().join("one"), "").expect("a file");
        assert!(wakes(&sentry));
        fs::remove_dir_all(layout.requests()).expect("it is there");
        assert!(wakes(&sentry));
        assert!(sentry.post().is_err());
        fs::create_dir(layout.requests()).expect("a directory");
        sentry.post().expect("it is there again");
        fs::write(layout.requests().join("two"), "").expect("a file");
        assert!(wakes(&sentry));
        fs::rename(scratch.join("above"), scratch.join("moved")).expect("a rename");
        assert!(wakes(&sentry));
        let (inotify, woken) = (Arc::downgrade(&sentry.inotify), sentry.woken.clone());
        drop(sentry);
        // The thread had the only other end, and one of the two handles.
        while woken.try_recv().is_ok() {}
        assert!(woken.recv().is_err() && inotify.upgrade().is_none());
    }
}
