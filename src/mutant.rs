//! Deliberate faults, so that the tests can be seen to go red.
//!
//! Built with the feature `mutants`, the program breaks one promise on purpose:
//! the one whose name the environment variable `IDEMPOLL_MUTANT` holds. Without
//! the feature, and so in every release, [`is`] is a constant `false` and the
//! faults are not in the program at all; an optimized build with the feature
//! does not compile. `tests/mutants.txt` lists them, `tests/mutants` runs them.

/// Whether the fault `name` is wanted.
#[cfg(feature = "mutants")]
#[must_use]
pub fn is(name: &str) -> bool {
    use std::sync::OnceLock;
    static WANTED: OnceLock<Option<String>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| std::env::var("IDEMPOLL_MUTANT").ok());
    wanted.as_deref() == Some(name)
}

/// Whether the fault `name` is wanted: by a test of schedules, which plants it itself.
#[cfg(all(test, feature = "shuttle", not(feature = "mutants")))]
#[must_use]
pub fn is(name: &str) -> bool {
    PLANTED.get() == Some(name)
}

#[cfg(all(test, feature = "shuttle", not(feature = "mutants")))]
thread_local! {
    /// The fault that is wanted in all schedules this thread goes through.
    pub static PLANTED: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// Whether the fault `name` is wanted: never.
#[cfg(not(any(feature = "mutants", all(test, feature = "shuttle"))))]
#[must_use]
#[inline(always)]
pub const fn is(_name: &str) -> bool {
    false
}

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!(
    "deliberate faults do not belong into an optimized build: leave out the feature `mutants`"
);

#[cfg(all(feature = "shuttle", not(debug_assertions)))]
compile_error!(
    "scheduled threads do not belong into an optimized build: leave out the feature `shuttle`"
);
