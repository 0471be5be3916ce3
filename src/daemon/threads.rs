//! Threads: named, and spawned in this one place.

#[cfg(all(test, feature = "shuttle"))]
use shuttle::thread::{Builder, JoinHandle};
use std::io;
#[cfg(not(all(test, feature = "shuttle")))]
use std::thread::{Builder, JoinHandle};

/// Starts a thread. Whoever starts one joins it, or says why not.
///
/// # Errors
/// When the system has no room for another thread.
#[cfg_attr(
    not(all(test, feature = "shuttle")),
    expect(
        clippy::disallowed_methods,
        reason = "this is the one place that spawns"
    )
)]
pub fn spawn<T, F>(name: &str, f: F) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    #[cfg(test)]
    scarcity::check()?;
    Builder::new().name(name.to_string()).spawn(f)
}

/// A thread that gives nothing back.
pub type Thread = JoinHandle<()>;

/// A system that has no room for another thread, for tests: as seen by one thread alone.
#[cfg(test)]
pub mod scarcity {
    use std::cell::Cell;
    use std::io;

    thread_local! {
        static REFUSALS: Cell<u32> = const { Cell::new(0) };
    }

    /// The next `n` threads that this thread spawns are refused.
    pub fn refuse(n: u32) {
        REFUSALS.set(n);
    }

    pub(super) fn check() -> io::Result<()> {
        match REFUSALS.get() {
            0 => Ok(()),
            n => {
                REFUSALS.set(n - 1);
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_name_and_gives_back_its_result() {
        let thread = spawn("worker-7", || {
            std::thread::current().name().map(str::to_string)
        });
        let name = thread.expect("there is room").join().expect("no panic");
        assert_eq!(name.as_deref(), Some("worker-7"));
    }
}
