//! Any record at all.

use super::*;
use crate::engine::webhook::Webhook;

fn keys() -> impl Strategy<Value = Key> {
    prop_oneof![
        (0u64..5000).prop_map(|n| Key(format!("comment/{n}").into())),
        (0u64..9).prop_map(|n| Key(format!("opened/{n}").into())),
        Just(Key("closed".into())),
    ]
}

fn times() -> impl Strategy<Value = Time> {
    (0u64..4_000_000_000_000).prop_map(Time)
}

prop_compose! {
    fn tries()(begun in 0u32..9, attempts in 0u32..9, interruptions in 0u32..9, deferrals in 0u32..9,
               in_flight: bool, next_attempt_at in proptest::option::of(times()),
               last_error in proptest::option::of(".{0,20}")) -> Tries {
        Tries { begun, attempts, interruptions, deferrals, in_flight, next_attempt_at, last_error }
    }
}

prop_compose! {
    fn given_up()(at in times(), reason in ".{0,20}", attempts in 0u32..9, begun in 0u32..9) -> GaveUp {
        GaveUp { at, reason, version: "0.1.0".into(), attempts, interruptions: 0, begun }
    }
}

prop_compose! {
    fn records()(
        known in proptest::collection::vec((keys(), prop_oneof![
            Just(Disposition::Queued), Just(Disposition::Baseline), Just(Disposition::Refused)]), 0..900),
        payloads in proptest::collection::vec(prop_oneof![
            4 => "\\{\"t\": ?\"[a-z é]{0,30}\"\\}", 2 => ".{0,40}", 1 => (1usize..60_000).prop_map(|n| "x".repeat(n))], 0..150),
        title in ".{0,40}", labels in proptest::collection::vec(".{0,9}", 0..3),
        gaps in proptest::collection::vec(1u64..4, 150),
        waits in proptest::collection::vec(0u8..8, 300),
        tries in proptest::collection::btree_map(0u64..400, tries(), 0..3),
        gave_up in proptest::collection::btree_map(0u64..400, given_up(), 0..3),
        delivered: u64, last in proptest::option::of(times()), since in times(), openings: u32,
        history in proptest::collection::vec((keys(), times()), 0..4),
        extra in proptest::collection::btree_map("x[a-z]{1,5}", any::<i64>(), 0..3),
    ) -> Record {
        let (_, mut record) = new_record(7);
        record.seen.title = title;
        record.seen.labels = labels;
        record.since = since;
        record.openings = openings;
        for (key, disposition) in known {
            record.known.add(key, disposition);
        }
        let queue = |extra: serde_json::Map<String, serde_json::Value>| Queue {
            tries: tries.clone(), gave_up: gave_up.clone(), delivered, last_delivery_at: last,
            extra, ..Queue::default()
        };
        let extra: serde_json::Map<_, _> = extra.into_iter().map(|(k, v)| (k, v.into())).collect();
        record.sinks = [("a".into(), queue(extra.clone())), ("b".into(), queue(Default::default()))].into();
        for (n, payload) in payloads.into_iter().enumerate() {
            record.next_seq += gaps[n];
            let event = Event {
                key: Key(format!("review/{n}").into()), kind: EventKind::Review,
                at: since, payload: payload.into(),
                webhook: (n % 2 == 1).then(|| Webhook { event: "issues".into(), body: "{\"action\": 1.0}".into() }),
            };
            record.events.insert(record.next_seq, event);
            for (sink, queue) in record.sinks.values_mut().enumerate() {
                if waits[2 * n + sink] > 0 {
                    queue.pending.insert(record.next_seq);
                }
            }
        }
        record.next_seq += 1;
        record.history = history.into_iter().map(|(key, at)| Resolved {
            key, sink: "a".into(), seq: 1, at, begun: 1, attempts: 0, interruptions: 0,
        }).collect();
        record.extra = extra;
        record
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any record comes back as it was, and so does what becomes of it.
    #[test]
    fn any_record_comes_back(record in records(), resolved in 0usize..150) {
        let dir = Dir::new();
        let mut ledger = open(&dir);
        let (slug, _) = new_record(7);
        let mut record = record;
        ledger.save(&slug, &mut record).expect("saved");
        let mut found = ledger.load(&slug).expect("it loads").expect("there");
        prop_assert_eq!(&found, &record);
        for _ in 0..resolved {
            resolve_first(&mut found);
        }
        add_pending(&mut found, 9_999_999, "{}");
        ledger.save(&slug, &mut found).expect("saved");
        let again = ledger.load(&slug).expect("it loads").expect("there");
        prop_assert_eq!(again, found);
    }
}
