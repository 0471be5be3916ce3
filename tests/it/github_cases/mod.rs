//! Faults that others met with issue trackers, over the fake forge: the real engine over the real provider, a
//! cycle at a time. In `program` it is the real program.

mod answers;
mod cost;
mod identity;
mod labels;
mod lasting;
mod program;
mod said;
mod stubborn;
mod sweeps;
mod walks;

use crate::world::forge::{Asked, Logged, Reply};
use crate::world::hub::{Edit, Hub};
use crate::world::polled::{Polled, config};
use idempoll::config::checked::GitHub;
use idempoll::engine::access::Policy;
use idempoll::engine::time::Time;
use serde_json::Value;

const REPO: &str = "octo/widgets";

/// A hub with `octo/widgets`, and a poller of it.
struct Case {
    hub: Hub,
    poller: Polled,
    told: usize,
}

/// Everything by `sam` counts.
fn everything() -> Policy {
    Policy {
        authorized_users: vec!["sam".into()],
        max_retries: 3,
        ..Policy::default()
    }
}

/// What `sam` does with items that carry the label.
fn labelled(label: &str) -> Policy {
    Policy {
        label: Some(label.into()),
        ..everything()
    }
}

impl Case {
    fn new() -> Case {
        Case::of(everything(), |config| config)
    }

    fn labelled() -> Case {
        Case::of(labelled("agent"), |config| config)
    }

    fn of(policy: Policy, edit: impl FnOnce(GitHub) -> GitHub) -> Case {
        let hub = Hub::new();
        let poller = Polled::of(edit(config(hub.url())), policy);
        Case {
            hub,
            poller,
            told: 0,
        }
    }

    /// Does something to the repository.
    fn repo<T>(&self, happen: impl FnOnce(&mut Edit<'_>) -> T) -> T {
        happen(&mut self.hub.lock().repo(REPO))
    }

    fn later(&self, seconds: u64) {
        self.hub.lock().advance(seconds);
    }

    /// A cycle; says what it delivered: `1/opened`. Our own clock is two hours wrong.
    fn cycle(&mut self) -> Vec<String> {
        let now = Time(self.hub.lock().now().0 + 7_200_000);
        self.poller.cycle(now);
        let ids = self.poller.ids().split_off(self.told);
        self.told += ids.len();
        let short = ids.iter().map(|id| id.split_once('#').expect("an id").1);
        short.map(str::to_string).collect()
    }

    /// A complete cycle so much later.
    fn cycle_after(&mut self, seconds: u64) -> Vec<String> {
        self.later(seconds);
        let told = self.cycle();
        assert!(self.poller.complete, "{:?}", self.errors());
        told
    }

    /// Cycles until every window is settled; says what they delivered.
    fn settle(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        for _ in 0..4 {
            told.extend(self.cycle_after(70));
        }
        self.hub.log();
        told
    }

    /// A cycle with a sweep.
    fn sweep(&mut self) -> Vec<String> {
        self.later(3600);
        self.cycle()
    }

    /// What was asked since the last look.
    fn asked(&self) -> Vec<Logged> {
        self.hub.log()
    }

    /// Why listings failed, in order.
    fn errors(&self) -> Vec<String> {
        self.poller.said("poll.source_error")
    }

    /// Which items ended, as the log has it.
    fn ended(&self) -> Vec<String> {
        let log = self.poller.log.iter();
        let ends = log.filter(|entry| entry.kind == "poll.closure_detected");
        ends.map(|entry| entry.fields["ref"].as_str().expect("a ref").to_string())
            .collect()
    }

    /// The payload that was delivered last under this name.
    fn payload(&self, id: &str) -> &Value {
        let named = |p: &&Value| {
            p["delivery_id"]
                .as_str()
                .is_some_and(|name| name.ends_with(id))
        };
        let found = self.poller.delivered.iter().rev().find(named);
        found.unwrap_or_else(|| panic!("{id} was not delivered"))
    }
}

/// Whether a request is for one item by itself.
fn for_item(number: u64) -> impl FnMut(&Asked) -> bool + Send + 'static {
    let end = format!("/issues/{number}");
    move |asked| asked.path().ends_with(&end)
}

/// Whether a request is for the open items, as a sweep asks for them.
fn for_open_items(asked: &Asked) -> bool {
    asked.path().ends_with("/issues") && asked.query("state") == Some("open")
}

/// An answer with other rows and no validator, if it is a list.
fn with_rows(mut reply: Reply, change: impl FnOnce(&mut Vec<Value>)) -> Reply {
    if let Ok(Value::Array(mut rows)) = serde_json::from_slice(&reply.body) {
        change(&mut rows);
        reply.body = Value::from(rows).to_string().into_bytes();
        reply.headers.retain(|(name, _)| name != "ETag");
    }
    reply
}
