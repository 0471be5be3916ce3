//! The clocks. This is the one place that asks what time it is.
//!
//! The wall clock says when something happened and may jump either way. The
//! monotonic clock measures waits; it stands still while the machine is
//! suspended, so a deadline may come late after a suspend and never early.

use crate::engine::time::Time;
use std::time::{Duration, Instant, SystemTime};

/// The wall clock.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that asks the time"
)]
pub fn now() -> Time {
    SystemTime::now().into()
}

/// A point on the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mono(Instant);

impl Mono {
    /// This very moment.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that asks the time"
    )]
    pub fn now() -> Mono {
        Mono(Instant::now())
    }

    /// The moment `d` after this one; a `d` beyond what the clock can say is cut to ten years.
    #[must_use]
    pub fn plus(self, d: Duration) -> Mono {
        const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
        Mono(self.0.checked_add(d).unwrap_or(self.0 + TEN_YEARS))
    }

    /// How long after `earlier` this is; zero when it is not.
    #[must_use]
    pub fn since(self, earlier: Mono) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// How long it is until this moment; zero once it has passed.
    #[must_use]
    pub fn left(self) -> Duration {
        self.since(Mono::now())
    }

    /// Whether this moment has passed.
    #[must_use]
    pub fn passed(self) -> bool {
        self.left().is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_pass_once_and_endless_ones_do_not_overflow() {
        let begun = Mono::now();
        assert!(begun.passed());
        assert_eq!(begun.left(), Duration::ZERO);
        let far = begun.plus(Duration::MAX);
        assert!(!far.passed() && far > begun);
        assert_eq!(begun.since(far), Duration::ZERO);
    }

    #[test]
    fn the_wall_clock_is_past_the_day_this_was_written() {
        assert!(now() > "2026-01-01T00:00:00Z".parse().expect("a time"));
    }
}
