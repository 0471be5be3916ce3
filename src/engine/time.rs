//! Points in time as plain values. The engine is told the time; it never asks.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time: milliseconds since 1970-01-01T00:00:00Z, never negative.
///
/// On disk and in the event log it is RFC 3339 in UTC with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// The beginning of time; before everything a tracker can report.
    pub const ZERO: Time = Time(0);

    /// This time and `d` more.
    #[must_use]
    pub fn plus(self, d: Duration) -> Time {
        Time(
            self.0
                .saturating_add(u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
        )
    }

    /// This time less `d`.
    #[must_use]
    pub fn minus(self, d: Duration) -> Time {
        Time(
            self.0
                .saturating_sub(u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
        )
    }

    /// How long after `earlier` this is; zero when it is not.
    #[must_use]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl From<Time> for SystemTime {
    fn from(t: Time) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(t.0)
    }
}

impl From<SystemTime> for Time {
    fn from(t: SystemTime) -> Time {
        let ms = t.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        Time(u64::try_from(ms).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Year 9999 is the last one RFC 3339 can write.
        let t = UNIX_EPOCH + Duration::from_millis(self.0.min(253_402_300_799_999));
        write!(f, "{}", humantime::format_rfc3339_millis(t))
    }
}

/// Why a text is not a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotATime(pub String);

impl fmt::Display for NotATime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is not a time as in 2026-08-05T10:00:00Z",
            self.0.escape_debug()
        )
    }
}

impl std::error::Error for NotATime {}

impl FromStr for Time {
    type Err = NotATime;

    /// Reads RFC 3339: `2026-08-05T10:00:00Z`, with or without a fraction,
    /// with `Z` or an offset as in `+02:00`.
    fn from_str(s: &str) -> Result<Time, NotATime> {
        let wrong = || NotATime(s.chars().take(40).collect());
        if !s.is_ascii() || s.len() < 20 {
            return Err(wrong());
        }
        let (base, offset_minutes) = match s.as_bytes()[s.len() - 1] {
            b'Z' | b'z' => (&s[..s.len() - 1], 0i64),
            _ => {
                let (base, zone) = s.split_at(s.len() - 6);
                let sign = match zone.as_bytes()[0] {
                    b'+' => 1,
                    b'-' => -1,
                    _ => return Err(wrong()),
                };
                let (h, m) = zone[1..].split_once(':').ok_or_else(wrong)?;
                let h: u8 = h.parse().map_err(|_| wrong())?;
                let m: u8 = m.parse().map_err(|_| wrong())?;
                if h > 23 || m > 59 {
                    return Err(wrong());
                }
                (base, sign * (i64::from(h) * 60 + i64::from(m)))
            }
        };
        let t = humantime::parse_rfc3339(&format!("{}Z", base.replace('t', "T")))
            .map_err(|_| wrong())?;
        let ms = t
            .duration_since(UNIX_EPOCH)
            .map_err(|_| wrong())?
            .as_millis();
        let ms = i64::try_from(ms).map_err(|_| wrong())? - offset_minutes * 60_000;
        u64::try_from(ms).map(Time).map_err(|_| wrong())
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Time, D::Error> {
        let s = std::borrow::Cow::<'de, str>::deserialize(d)?;
        s.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Any time comes back as it was printed, prints sort as their times do, and an offset is taken off.
        #[test]
        fn any_time_comes_back(ms in 90_000_000u64..=253_402_300_799_999, other in 0u64..=253_402_300_799_999, minutes in 0u64..24 * 60) {
            let (time, text) = (Time(ms), Time(ms).to_string());
            prop_assert_eq!(text.parse(), Ok(time));
            prop_assert_eq!(text.cmp(&Time(other).to_string()), ms.cmp(&other));
            let local = text.replace('Z', &format!("+{:02}:{:02}", minutes / 60, minutes % 60));
            prop_assert_eq!(local.parse(), Ok(Time(ms - minutes * 60_000)));
        }

        /// Any text is a time or is refused, and nothing panics.
        #[test]
        fn any_text_is_a_time_or_refused(text in "[0-9TtZz:+.é-]{0,32}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.0-9]{0,9}[Zz+-][0-9:]{0,5}") {
            let _ = text.parse::<Time>();
        }
    }

    #[test]
    fn times_read_and_print_rfc_3339() {
        let t: Time = "2026-08-05T10:00:00Z".parse().expect("a plain time");
        assert_eq!(t.to_string(), "2026-08-05T10:00:00.000Z");
        assert_eq!("2026-08-05T12:00:00+02:00".parse(), Ok(t));
        assert_eq!("2026-08-05T04:30:00.000-05:30".parse(), Ok(t));
        for wrong in [
            "",
            "yesterday",
            "2026-08-05",
            "2026-13-05T10:00:00Z",
            "2026-08-05T10:00:00",
            "2026-08-05T10:00:00+2:00",
            "2026-08-05T10:00:00+24:00",
            "2026-08-05T10:00:00+23:60",
            "1969-12-31T23:00:00Z",
            "2026-08-05T10:00:00é",
        ] {
            assert!(wrong.parse::<Time>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_system_has_the_same_time() {
        let second = UNIX_EPOCH + Duration::from_secs(1);
        assert_eq!(SystemTime::from(Time(1000)), second);
        assert_eq!(Time::from(second), Time(1000));
    }

    #[test]
    fn the_far_future_still_prints() {
        assert!(Time(u64::MAX).to_string().starts_with("9999-12-31"));
    }
}
