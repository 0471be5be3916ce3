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

/// Whether the fault `name` is wanted: never.
#[cfg(not(feature = "mutants"))]
#[must_use]
#[inline(always)]
pub const fn is(_name: &str) -> bool {
    false
}

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!(
    "deliberate faults do not belong into an optimized build: leave out the feature `mutants`"
);
