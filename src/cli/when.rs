//! Times as people say them.

use crate::engine::time::Time;
use std::time::Duration;

/// `12 s`, `5 min`, `3 h`, `2 days`: one unit, rounded down.
#[must_use]
pub(super) fn span(d: Duration) -> String {
    match d.as_secs() {
        s if s < 100 => format!("{s} s"),
        s if s < 100 * 60 => format!("{} min", s / 60),
        s if s < 48 * 3600 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
    }
}

/// `12 s ago`; a time still to come (a clock was set) is `just now`.
#[must_use]
pub(super) fn ago(then: Time, now: Time) -> String {
    match now.since(then) {
        d if d.as_secs() == 0 => "just now".to_string(),
        d => format!("{} ago", span(d)),
    }
}

/// `in 12 s`; a time already past is `now`.
#[must_use]
pub(super) fn ahead(then: Time, now: Time) -> String {
    match then.since(now) {
        Duration::ZERO => "now".to_string(),
        d => format!("in {}", span(d + Duration::from_millis(999))),
    }
}

/// `2026-08-05T10:00:00Z`: whole seconds.
#[must_use]
pub(super) fn stamp(t: Time) -> String {
    let text = t.to_string();
    match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => text,
    }
}

/// `1 item`, `3 items`.
#[must_use]
pub(super) fn count(n: u64, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        _ if what.ends_with("delivery") => {
            format!("{n} {}ies", what.trim_end_matches('y'))
        }
        _ => format!("{n} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_people_say_them() {
        let at = |s: u64| Time(s * 1000);
        for (seconds, words) in [
            (1, "1 s ago"),
            (99, "99 s ago"),
            (100, "1 min ago"),
            (5999, "99 min ago"),
            (6000, "1 h ago"),
            (172_800, "2 days ago"),
        ] {
            assert_eq!(ago(at(0), at(seconds)), words);
        }
        assert_eq!(ago(at(9), at(3)), "just now");
        assert_eq!(ahead(at(9), at(3)), "in 6 s");
        assert_eq!(ahead(Time(3500), at(3)), "in 1 s");
        assert_eq!(ahead(at(3), at(9)), "now");
        assert_eq!(stamp(Time(1_234)), "1970-01-01T00:00:01Z");
        assert_eq!(count(1, "delivery"), "1 delivery");
        assert_eq!(count(2, "delivery"), "2 deliveries");
        assert_eq!(count(0, "item"), "0 items");
    }
}
