//! The signals that ask for an end.
//!
//! The first of `SIGTERM`, `SIGINT` and `SIGHUP` asks for a graceful stop, the
//! second ends the process, wherever it hangs. What runs here when one comes
//! does nothing but raise a flag: anything more (a log line, say) could fail
//! or wait, and then the signal would be lost.
//!
//! `SIGPIPE` stays ignored, as Rust's start-up leaves it, so that a closed
//! stdout is an error to handle; children get the default back from `std`.

use super::clock::Mono;
use crate::error::Error;
use crate::exit::Exit;
use crate::os::signals::{self, Signal};
use crate::os::wait;
use crate::os::wake::Wake;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long the process may take to end by itself after the second signal.
const GRACE: Duration = Duration::from_secs(1);

/// What was asked for so far.
#[derive(Debug, Clone)]
pub struct StopAsk {
    /// Raised by the first signal: finish what is in hand, begin nothing.
    pub stop: Arc<Wake>,
    /// Raised by the second: end at once with [`Exit::Interrupted`]. The
    /// process is ended a second later if it has not done so.
    pub now: Arc<Wake>,
}

impl StopAsk {
    /// Flags that no signal is tied to, not yet raised.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<StopAsk> {
        Ok(StopAsk {
            stop: Arc::new(Wake::new()?),
            now: Arc::new(Wake::new()?),
        })
    }
}

/// Has the signals raise flags from now on. A `SIGHUP` that is ignored (the
/// parent was `nohup`) stays so. Once per process, before the lock is taken,
/// so that no signal can end a poller that has begun.
///
/// # Errors
/// When it was done before, or when the system refuses.
pub fn install() -> Result<StopAsk, Error> {
    let failed = |e: &dyn std::fmt::Display| Error::new("cannot handle signals", e);
    let ask = StopAsk::new().map_err(|e| failed(&e))?;
    let handler = on_signal(ask.clone());
    if !signals::is_ignored(Signal::Hup).map_err(|e| failed(&e))? {
        ctrlc::set_handler(handler).map_err(|e| failed(&e))?;
        return Ok(ask);
    }
    // `ctrlc` takes SIGHUP whatever was done with it before. It is held back
    // until it is ignored again, so that not even one that comes just now counts.
    signals::held_back(Signal::Hup, || {
        ctrlc::set_handler(handler).map_err(|e| failed(&e))?;
        signals::ignore(Signal::Hup).map_err(|e| failed(&e))
    })
    .map_err(|e| failed(&e))??;
    Ok(ask)
}

/// What `ctrlc`'s thread does for each signal.
fn on_signal(ask: StopAsk) -> impl FnMut() + Send + 'static {
    move || {
        if !ask.stop.raised() {
            ask.stop.raise();
            return;
        }
        ask.now.raise();
        let end = Mono::now().plus(GRACE);
        while !end.passed() {
            wait::pause(end.left());
        }
        end_process();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the second signal ends the process wherever its other threads hang"
)]
fn end_process() -> ! {
    std::process::exit(i32::from(Exit::Interrupted.code()))
}
