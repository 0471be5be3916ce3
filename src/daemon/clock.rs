//! The clocks. This is the one place that asks what time it is.
//!
//! The wall clock says when something happened and may jump either way. The
//! monotonic clock, [`Mono`], measures patience: it stands still while the
//! machine is suspended, so nobody is given up because the machine slept. The
//! clock of [`Boot`] goes on meanwhile: a cycle that became due during a suspend
//! is due at its end.

use crate::engine::time::Time;
use crate::os::clock::since_boot;
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

/// A point on the clock that goes on while the machine sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Boot(Duration);

impl Boot {
    /// This very moment.
    #[must_use]
    pub fn now() -> Boot {
        Boot(since_boot())
    }

    /// The moment `d` after this one.
    #[must_use]
    pub fn plus(self, d: Duration) -> Boot {
        Boot(self.0.saturating_add(d))
    }

    /// How long it is until this moment; zero once it has passed.
    #[must_use]
    pub fn left(self) -> Duration {
        self.0.saturating_sub(since_boot())
    }

    /// Whether this moment has passed.
    #[must_use]
    pub fn passed(self) -> bool {
        self.left().is_zero()
    }
}

/// What the two clocks said at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    wall: Time,
    boot: Boot,
}

/// A wall clock that was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jump {
    /// It was set forward by so much.
    Forward(Duration),
    /// It was set back by so much.
    Back(Duration),
}

/// The two clocks are read one after the other; further apart than this they say nothing of one moment.
const AT_ONCE: Duration = Duration::from_millis(50);

/// A correction by less is no jump. A clock that is slewed, not set, is off by
/// half a thousandth of the time that passed, and at most twice that is allowed for.
const TOLERANCE: Duration = Duration::from_secs(2);

impl Look {
    /// Reads both clocks.
    #[must_use]
    pub fn now() -> Look {
        // A process that sleeps between the two would see a jump where there is none.
        let mut look = Look::once();
        for _ in 0..100 {
            if Boot::now().0.saturating_sub(look.boot.0) <= AT_ONCE {
                break;
            }
            look = Look::once();
        }
        look
    }

    fn once() -> Look {
        let boot = Boot::now();
        let wall = now();
        Look { wall, boot }
    }

    /// What the wall clock would say now, had nobody set it since an earlier look.
    #[must_use]
    pub fn expected_since(self, earlier: Look) -> Time {
        let passed = self.boot.0.saturating_sub(earlier.boot.0);
        earlier.wall.plus(passed)
    }

    /// Whether the wall clock was set between an earlier look and this one.
    #[must_use]
    pub fn jump_since(self, earlier: Look) -> Option<Jump> {
        let passed = self.boot.0.saturating_sub(earlier.boot.0);
        let expected = self.expected_since(earlier);
        let tolerance = TOLERANCE + passed / 1000;
        let beyond = |d: Duration| (d > tolerance).then_some(d);
        beyond(self.wall.since(expected))
            .map(Jump::Forward)
            .or_else(|| beyond(expected.since(self.wall)).map(Jump::Back))
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

    /// C023, C024. Given two looks at the clocks, when the time between them passed
    /// awake, asleep, or under a clock that is slewed, then there was no jump; when the
    /// wall clock was set, then it says by how much.
    #[test]
    fn c023_a_clock_that_was_set_is_told_from_time_that_passed() {
        let seconds = Duration::from_secs;
        let at = |wall: u64, boot: u64| Look {
            wall: Time(wall * 1000),
            boot: Boot(seconds(boot)),
        };
        let day = 86_400;
        let before = at(10 * day, 500);
        for quiet in [
            at(10 * day, 500),
            at(10 * day + 1, 501),
            at(10 * day + 2, 500),
            at(10 * day - 2, 500),
            // A night's sleep, and half a thousandth of slew.
            at(10 * day + 36_000, 36_500),
            at(10 * day + 36_018, 36_500),
            at(10 * day + 35_982, 36_500),
        ] {
            assert_eq!(quiet.jump_since(before), None, "{quiet:?}");
        }
        let jump = |look: Look| look.jump_since(before);
        assert_eq!(
            jump(at(11 * day + 1, 501)),
            Some(Jump::Forward(seconds(day)))
        );
        assert_eq!(jump(at(9 * day + 1, 501)), Some(Jump::Back(seconds(day))));
        // Hidden from the wall clock alone: an hour passed, and it was set back by half of it.
        assert_eq!(
            jump(at(10 * day + 1800, 4100)),
            Some(Jump::Back(seconds(1800)))
        );
        assert_eq!(Look::now().jump_since(Look::now()), None);
    }

    #[test]
    fn a_deadline_on_the_clock_that_never_sleeps_passes_once() {
        assert!(Boot::now().passed());
        let far = Boot::now().plus(Duration::MAX);
        assert!(!far.passed() && far > Boot::now());
    }

    #[test]
    fn the_wall_clock_is_past_the_day_this_was_written() {
        assert!(now() > "2026-01-01T00:00:00Z".parse().expect("a time"));
    }
}
