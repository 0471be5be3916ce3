//! Tries as arithmetic: what a try costs, when the next one is due, when to give up.

use super::delivery::{Key, Outcome};
use super::record::{GaveUp, HISTORY, Queue, Record, Resolved, Tries};
use super::time::Time;
use crate::mutant;
use std::time::Duration;

/// The rules tries go by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// Failed tries after the first before a delivery is given up.
    pub max_retries: u32,
    /// The pause after the first failed try; each later one is four times the one before.
    pub pause: Duration,
    /// The version of idempoll, kept with what it gives up.
    pub version: String,
}

/// The longest pause between two tries.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// The longest pause after "not now".
pub const LONGEST_DEFERRAL: Duration = Duration::from_secs(300);

/// The shortest first one, whatever the config says; each later one is twice as long.
const SHORTEST_DEFERRAL: Duration = Duration::from_millis(10);

/// What they grow to where the sink said when, which is kept to if it is later.
const SHORT_DEFERRAL: Duration = Duration::from_secs(1);

/// Interruptions of one delivery after which it is given up (R5.5).
pub const MAX_INTERRUPTIONS: u32 = 5;

/// One try, handed out: whoever holds it must say how it ended. Dropping it
/// unsettled is a fault in the program, and panics where tests would see it.
#[derive(Debug)]
#[must_use = "a try that was handed out must be settled"]
pub struct Attempt {
    sink: String,
    seq: u64,
    settled: bool,
}

impl Attempt {
    fn of(sink: &str, seq: u64) -> Attempt {
        Attempt {
            sink: sink.to_string(),
            seq,
            settled: false,
        }
    }

    /// The event's `seq`.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The poller ends while the try is in flight: the record already says so,
    /// and the next start asks for the receipt.
    pub fn leave(mut self) {
        self.settled = true;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        debug_assert!(
            self.settled || std::thread::panicking(),
            "a try of {} for {} was never settled",
            self.seq,
            self.sink
        );
    }
}

/// What a settled try means for its delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Resolved: it took effect.
    Delivered,
    /// It failed and is tried again.
    Retry {
        /// Why it failed.
        reason: String,
        /// When it is due again.
        at: Time,
        /// Failed tries so far.
        attempts: u32,
    },
    /// "Not now": tried again, nothing spent.
    Deferred {
        /// What the sink said.
        reason: String,
        /// When it is due again.
        at: Time,
    },
    /// Given back unspent.
    Released,
    /// Nobody knows how it ended; tried again at once.
    Interrupted {
        /// Interruptions so far.
        interruptions: u32,
    },
    /// Given up.
    GaveUp {
        /// Why.
        reason: String,
        /// Failed tries spent.
        attempts: u32,
    },
}

impl Record {
    /// When the next delivery to `sink` is due, if one waits and none is in flight.
    #[must_use]
    pub fn due(&self, sink: &str) -> Option<Time> {
        let queue = self.sinks.get(sink)?;
        let head = queue.head(&self.events)?;
        match queue.tries.get(&head) {
            Some(t) if t.in_flight => None,
            Some(t) => Some(t.next_attempt_at.unwrap_or(Time::ZERO)),
            None => Some(Time::ZERO),
        }
    }

    /// Begins a try of the next delivery to `sink`: the intent, which must be
    /// durable before the effect is tried (R3.7). Says which try it is.
    pub fn begin(&mut self, sink: &str) -> Option<(Attempt, u32)> {
        let queue = self.sinks.get_mut(sink)?;
        let seq = queue.head(&self.events)?;
        let tries = queue.tries.entry(seq).or_default();
        if tries.in_flight {
            return None;
        }
        tries.begun += 1;
        tries.in_flight = true;
        Some((Attempt::of(sink, seq), tries.begun))
    }

    /// Takes up again a try that was in flight when an earlier poller ended.
    pub fn resume(&mut self, sink: &str) -> Option<(Attempt, u32)> {
        let queue = self.sinks.get(sink)?;
        let (&seq, tries) = queue.tries.iter().find(|(_, t)| t.in_flight)?;
        Some((Attempt::of(sink, seq), tries.begun))
    }

    /// Settles a try. Every outcome leads to exactly one change of the budget:
    /// a failure spends an attempt, "unknown" an interruption, the rest nothing.
    pub fn settle(
        &mut self,
        mut attempt: Attempt,
        outcome: Outcome,
        now: Time,
        budget: &Budget,
    ) -> Verdict {
        attempt.settled = true;
        let (sink, seq) = (attempt.sink.clone(), attempt.seq);
        drop(attempt);
        let Some(queue) = self.sinks.get_mut(&sink) else {
            return Verdict::Released;
        };
        let tries = queue.tries.entry(seq).or_default();
        tries.in_flight = false;
        match outcome {
            Outcome::Delivered => {
                self.resolve(&sink, seq, now);
                Verdict::Delivered
            }
            Outcome::Failed { reason } => {
                tries.attempts += 1;
                tries.deferrals = 0;
                if tries.attempts > budget.max_retries {
                    return self.give_up(&sink, seq, reason, now, budget);
                }
                let at = now.plus(budget.pause_after(tries.attempts));
                tries.next_attempt_at = Some(at);
                tries.last_error = Some(reason.clone());
                let attempts = tries.attempts;
                Verdict::Retry {
                    reason,
                    at,
                    attempts,
                }
            }
            Outcome::Refused { reason } => {
                tries.attempts += 1;
                self.give_up(&sink, seq, reason, now, budget)
            }
            Outcome::Deferred { reason, not_before } => {
                // A pause of nothing, or "after 0 seconds", must not keep us busy for ever: a
                // failure that is tried again at once ends some day, this does not.
                let first = budget.pause.max(match mutant::is("not-now-is-at-once") {
                    true => Duration::ZERO,
                    false => SHORTEST_DEFERRAL,
                });
                let pause = grown(first, 2, tries.deferrals);
                tries.deferrals += 1;
                let at = match not_before {
                    Some(asked) => asked.max(now.plus(pause.min(SHORT_DEFERRAL))),
                    None => now.plus(pause.min(LONGEST_DEFERRAL)),
                };
                let at = at.min(now.plus(LONGEST_PAUSE));
                tries.next_attempt_at = Some(at);
                tries.last_error = Some(reason.clone());
                Verdict::Deferred { reason, at }
            }
            Outcome::Released | Outcome::LeftRunning => {
                tries.begun = tries.begun.saturating_sub(1);
                tries.attempts += u32::from(mutant::is("attempts-not-returned"));
                if mutant::is("attempts-returned-twice") {
                    tries.attempts = tries.attempts.saturating_sub(1);
                }
                if *tries == Tries::default() {
                    queue.tries.remove(&seq);
                }
                Verdict::Released
            }
            Outcome::Unknown => {
                tries.interruptions += 1;
                tries.attempts += u32::from(mutant::is("interruption-spends-budget"));
                tries.next_attempt_at = None;
                let interruptions = tries.interruptions;
                if interruptions >= MAX_INTERRUPTIONS && !mutant::is("poison-for-ever") {
                    let reason = format!("interrupted {interruptions} times without a receipt");
                    return self.give_up(&sink, seq, reason, now, budget);
                }
                tries.last_error = Some("interrupted: how it ended is not known".to_string());
                Verdict::Interrupted { interruptions }
            }
        }
    }

    /// Re-arms what was given up and passes `which`; says which events.
    pub fn rearm(&mut self, mut which: impl FnMut(&Key, &GaveUp) -> bool) -> Vec<(String, Key)> {
        let mut rearmed = Vec::new();
        for (name, queue) in &mut self.sinks {
            let events = &self.events;
            let back: Vec<u64> = queue
                .gave_up
                .iter()
                .filter(|(seq, g)| events.get(seq).is_some_and(|e| which(&e.key, g)))
                .map(|(&seq, _)| seq)
                .collect();
            for seq in back {
                if let (Some(gave_up), Some(event)) = (queue.gave_up.remove(&seq), events.get(&seq))
                {
                    queue.pending.insert(seq);
                    let tries = Tries {
                        begun: gave_up.begun,
                        ..Tries::default()
                    };
                    queue.tries.insert(seq, tries);
                    rearmed.push((name.clone(), event.key.clone()));
                }
            }
        }
        rearmed
    }

    fn resolve(&mut self, sink: &str, seq: u64, now: Time) {
        let Some(queue) = self.sinks.get_mut(sink) else {
            return;
        };
        queue.pending.remove(&seq);
        let tries = queue.tries.remove(&seq).unwrap_or_default();
        queue.delivered += 1;
        queue.last_delivery_at = Some(now);
        if let Some(event) = self.events.get(&seq) {
            if self.history.len() >= HISTORY {
                self.history.remove(0);
            }
            self.history.push(Resolved {
                key: event.key.clone(),
                sink: sink.to_string(),
                seq,
                at: now,
                begun: tries.begun,
                attempts: tries.attempts,
                interruptions: tries.interruptions,
            });
        }
        self.drop_resolved(seq);
    }

    fn give_up(
        &mut self,
        sink: &str,
        seq: u64,
        reason: String,
        now: Time,
        budget: &Budget,
    ) -> Verdict {
        let mut attempts = 0;
        if let Some(queue) = self.sinks.get_mut(sink) {
            queue.pending.remove(&seq);
            let tries = queue.tries.remove(&seq).unwrap_or_default();
            attempts = tries.attempts;
            queue.gave_up.insert(
                seq,
                GaveUp {
                    at: now,
                    reason: reason.clone(),
                    version: budget.version.clone(),
                    attempts,
                    interruptions: tries.interruptions,
                    begun: tries.begun,
                },
            );
        }
        Verdict::GaveUp { reason, attempts }
    }

    /// An event is kept as long as any sink may still need its payload.
    fn drop_resolved(&mut self, seq: u64) {
        let needed = |q: &Queue| q.pending.contains(&seq) || q.gave_up.contains_key(&seq);
        if !self.sinks.values().any(needed) {
            self.events.remove(&seq);
        }
    }

    /// Moves due times along with a clock that was set back.
    pub fn set_back(&mut self, by: Duration) {
        for tries in self.sinks.values_mut().flat_map(|q| q.tries.values_mut()) {
            tries.next_attempt_at = tries.next_attempt_at.map(|at| at.minus(by));
        }
    }

    /// Pulls in due times that a clock set back since has pushed out of reach
    /// (C023): none can be later than the pause that led to it allows from now on.
    pub fn clamp_times(&mut self, now: Time, budget: &Budget) {
        if mutant::is("not-before-unclamped") {
            return;
        }
        for tries in self.sinks.values_mut().flat_map(|q| q.tries.values_mut()) {
            // A sink that says "not now" may have said until when.
            let pause = match tries.deferrals {
                0 => budget.pause_after(tries.attempts),
                _ => LONGEST_PAUSE,
            };
            tries.next_attempt_at = tries.next_attempt_at.map(|at| at.min(now.plus(pause)));
        }
    }
}

impl Budget {
    /// The pause after the n-th failed try: four times longer each time, up to an hour.
    #[must_use]
    pub fn pause_after(&self, attempts: u32) -> Duration {
        grown(self.pause, 4, attempts.saturating_sub(1)).min(LONGEST_PAUSE)
    }
}

fn grown(pause: Duration, factor: u32, times: u32) -> Duration {
    pause.saturating_mul(factor.saturating_pow(times))
}

/// Whether version `a` is newer than `b`: `1.10.0` is newer than `1.9.3`.
#[must_use]
pub fn is_newer(a: &str, b: &str) -> bool {
    let parts = |v: &str| -> Vec<u64> {
        v.split(['-', '+'])
            .next()
            .unwrap_or_default()
            .split('.')
            .map(|p| p.parse().unwrap_or(0))
            .collect()
    };
    parts(a) > parts(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::delivery::EventKind;
    use crate::engine::record::{Event, Known};
    use serde_json::Map;
    use std::collections::BTreeMap;

    const NOW: Time = Time(1_000_000);

    fn budget() -> Budget {
        Budget {
            max_retries: 3,
            pause: Duration::from_secs(10),
            version: "1.2.0".into(),
        }
    }

    /// A record with comments 1 to `n` waiting for one sink.
    fn record(n: u64) -> Record {
        let event = |id: u64| Event {
            key: Key(format!("comment/{id}").into()),
            kind: EventKind::Comment,
            at: Time(id),
            payload: "{}".into(),
            webhook: None,
        };
        let queue = Queue {
            pending: (1..=n).collect(),
            ..Queue::default()
        };
        Record {
            item: "dir:in#1".parse().expect("a ref"),
            source: "in".into(),
            seen: Default::default(),
            since: Time::ZERO,
            latest: Time::ZERO,
            openings: 1,
            standing: crate::engine::record::Standing::Active,
            ended_at: None,
            known: Known::default(),
            events: (1..=n)
                .map(|id| (id, event(id)))
                .collect::<BTreeMap<_, _>>(),
            next_seq: n + 1,
            sinks: [("sink".to_string(), queue)].into(),
            history: Vec::new(),
            extra: Map::new(),
            stored: Default::default(),
        }
    }

    fn settle(record: &mut Record, outcome: Outcome) -> Verdict {
        let (attempt, _) = record.begin("sink").expect("something waits");
        record.settle(attempt, outcome, NOW, &budget())
    }

    fn failed() -> Outcome {
        Outcome::Failed {
            reason: "exit status 1".into(),
        }
    }

    /// Given a delivery that always fails, when its budget of 3 retries is spent,
    /// then it is given up and those behind it follow in order (R6.7, R6.1, C110).
    #[test]
    fn r6_7_a_delivery_that_always_fails_is_given_up_and_blocks_nobody() {
        let mut r = record(3);
        let mut pauses = Vec::new();
        for _ in 0..3 {
            let Verdict::Retry { at, .. } = settle(&mut r, failed()) else {
                panic!("too early")
            };
            pauses.push(at.since(NOW).as_secs());
            assert_eq!(r.due("sink"), Some(at), "the ones behind it wait");
        }
        assert_eq!(pauses, [10, 40, 160], "growing pauses");
        assert!(matches!(
            settle(&mut r, failed()),
            Verdict::GaveUp { attempts: 4, .. }
        ));
        for id in ["comment/2", "comment/3"] {
            let head = r.sinks["sink"].head(&r.events).expect("it waits");
            assert_eq!(&*r.events[&head].key.0, id);
            assert_eq!(settle(&mut r, Outcome::Delivered), Verdict::Delivered);
        }
        let queue = &r.sinks["sink"];
        assert_eq!(
            (queue.pending.len(), queue.delivered, queue.gave_up.len()),
            (0, 2, 1)
        );
        assert_eq!(queue.gave_up[&1].version, "1.2.0");
        assert_eq!(r.events.len(), 1, "only what was given up is kept");
    }

    /// R6.7: asked for, or by a newer version, what was given up is tried again with a full budget.
    #[test]
    fn r6_7_what_was_given_up_can_be_re_armed() {
        let mut r = record(1);
        for _ in 0..4 {
            settle(&mut r, failed());
        }
        assert_eq!(r.due("sink"), None);
        assert!(
            r.rearm(|_, g| is_newer("1.2.0", &g.version)).is_empty(),
            "the same version does not"
        );
        assert_eq!(r.rearm(|_, g| is_newer("1.10.0", &g.version)).len(), 1);
        let (attempt, begun) = r.begin("sink").expect("re-armed");
        assert_eq!(begun, 5, "tries go on counting, so receipts do not collide");
        assert!(matches!(
            r.settle(attempt, failed(), NOW, &budget()),
            Verdict::Retry { attempts: 1, .. }
        ));
    }

    /// Given three stops over one delivery, when it is tried at last, then its
    /// budget is whole (R5.2, R5.3, C107).
    #[test]
    fn r5_2_what_was_never_tried_costs_nothing() {
        let mut r = record(1);
        let before = r.clone();
        for _ in 0..3 {
            assert_eq!(settle(&mut r, Outcome::Released), Verdict::Released);
        }
        assert_eq!(r, before);
    }

    /// R5.4, R5.5: interruptions spend no attempt; the fifth gives up.
    #[test]
    fn r5_5_five_interruptions_give_up() {
        let mut r = record(1);
        for n in 1..=4 {
            assert_eq!(
                settle(&mut r, Outcome::Unknown),
                Verdict::Interrupted { interruptions: n }
            );
            assert_eq!(r.sinks["sink"].tries[&1].attempts, 0);
        }
        assert!(matches!(
            settle(&mut r, Outcome::Unknown),
            Verdict::GaveUp { attempts: 0, .. }
        ));
    }

    /// "Not now" spends nothing, however often, and asks again within five minutes.
    #[test]
    fn not_now_spends_nothing() {
        let mut r = record(1);
        for n in 0..40 {
            let outcome = Outcome::Deferred {
                reason: "busy".into(),
                not_before: None,
            };
            let Verdict::Deferred { at, .. } = settle(&mut r, outcome) else {
                panic!("not deferred")
            };
            assert!(at.since(NOW) <= LONGEST_DEFERRAL, "{n}");
        }
        assert_eq!(r.sinks["sink"].tries[&1].attempts, 0);
        assert_eq!(settle(&mut r, Outcome::Delivered), Verdict::Delivered);
    }

    /// R6.7: Given a pause of nothing, or a sink that says "after 0 seconds", or a time long past;
    /// when it says "not now" for ever; then each time is later than the one before, soon by
    /// a second at least, and what it asks for is kept to.
    #[test]
    fn r6_7_not_now_for_ever_keeps_nobody_busy() {
        let impatient = Budget {
            pause: Duration::ZERO,
            ..budget()
        };
        for not_before in [None, Some(NOW), Some(Time::ZERO)] {
            let mut r = record(1);
            for n in 0..100 {
                let outcome = Outcome::Deferred {
                    reason: "busy".into(),
                    not_before,
                };
                let (attempt, _) = r.begin("sink").expect("it waits");
                let verdict = r.settle(attempt, outcome, NOW, &impatient);
                let Verdict::Deferred { at, .. } = verdict else {
                    panic!("not deferred")
                };
                let least = if n < 8 { 10 } else { 1_000 };
                assert!(
                    at.since(NOW) >= Duration::from_millis(least),
                    "{not_before:?} {n}"
                );
            }
        }
        let asked = NOW.plus(Duration::from_secs(7));
        let mut r = record(1);
        for _ in 0..20 {
            let outcome = Outcome::Deferred {
                reason: "busy".into(),
                not_before: Some(asked),
            };
            let verdict = settle(&mut r, outcome);
            assert!(matches!(verdict, Verdict::Deferred { at, .. } if at == asked));
        }
    }

    #[test]
    fn one_try_at_a_time_and_a_try_in_flight_stays_first() {
        let mut r = record(2);
        let (attempt, _) = r.begin("sink").expect("it waits");
        assert!(r.begin("sink").is_none());
        assert_eq!(r.due("sink"), None);
        attempt.leave();
        // The next start finds it in flight and takes it up.
        let (again, begun) = r.resume("sink").expect("in flight");
        assert_eq!((again.seq(), begun), (1, 1));
        again.leave();
    }

    #[test]
    #[should_panic(expected = "never settled")]
    fn a_try_that_is_dropped_is_a_fault() {
        let _forgotten = record(1).begin("sink");
    }

    /// C023: due times stored while the clock was ahead are pulled in.
    #[test]
    fn c023_a_due_time_out_of_reach_is_pulled_in() {
        let mut r = record(1);
        settle(&mut r, failed());
        if let Some(t) = r.sinks.get_mut("sink").and_then(|q| q.tries.get_mut(&1)) {
            t.next_attempt_at = Some(Time(u64::MAX));
        }
        r.clamp_times(NOW, &budget());
        let pause = budget().pause_after(1);
        assert_eq!(r.due("sink"), Some(NOW.plus(pause)), "its own pause");
        settle(
            &mut r,
            Outcome::Deferred {
                reason: "busy".into(),
                not_before: Some(Time(u64::MAX)),
            },
        );
        let tomorrow = NOW.plus(Duration::from_secs(86_400));
        if let Some(t) = r.sinks.get_mut("sink").and_then(|q| q.tries.get_mut(&1)) {
            t.next_attempt_at = Some(tomorrow);
        }
        r.clamp_times(NOW, &budget());
        assert_eq!(r.due("sink"), Some(NOW.plus(LONGEST_PAUSE)));
        // What is due in its time stays as it is.
        let soon = NOW.plus(Duration::from_secs(1));
        if let Some(t) = r.sinks.get_mut("sink").and_then(|q| q.tries.get_mut(&1)) {
            t.next_attempt_at = Some(soon);
        }
        r.clamp_times(NOW, &budget());
        assert_eq!(r.due("sink"), Some(soon));
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(is_newer("1.10.0", "1.9.3") && is_newer("0.2.0", "0.1.9-rc.1"));
        assert!(!is_newer("1.2.0", "1.2.0") && !is_newer("1.2.0", "1.3.0") && !is_newer("x", "1"));
    }
}
