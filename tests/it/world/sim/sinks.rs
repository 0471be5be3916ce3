//! The sinks of a world: tries that go on without the poller or die with it, their receipts,
//! and what they did to the outside.

use super::script::{Keeps, Script, Try};
use idempoll::engine::delivery::{Delivery, Outcome, Receipt, Slug};
use idempoll::engine::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A delivery to one sink: the sink's name and the delivery's id.
pub type Name = (String, String);

/// What was done to the outside, and what cannot be known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// What took effect for each sink and item, in order: which delivery, and the how-manieth of its
    /// tries whose end is known. Failed tries count, for they were tried.
    pub made: BTreeMap<(String, String), Vec<(String, usize)>>,
    /// Tries that took effect and whose evidence a blow destroyed before it was recorded: each is
    /// made once more.
    pub lost: BTreeMap<(Name, usize), usize>,
    /// Tries (by number) whose receipt was asked for and missing.
    pub missing: BTreeMap<Name, BTreeSet<u32>>,
}

#[derive(Clone)]
struct Run {
    id: String,
    item: String,
    attempt: u32,
    /// The how-manieth of those whose end is known.
    n: usize,
    effect_at: Time,
    ends_at: Time,
    outcome: Outcome,
    took_effect: bool,
    /// A blow ended it, or destroyed its receipt.
    untold: bool,
}

#[derive(Clone, Default)]
pub struct Sinks {
    /// The last try of each delivery that left traces. Times here are of a clock nobody sets.
    runs: BTreeMap<(Slug, String, u64), Run>,
    /// How many tries of a delivery there were whose end is, or will be, known.
    known: BTreeMap<Name, usize>,
    pub effects: Effects,
}

/// Deliveries a sink takes at once.
pub const SLOTS: usize = 2;

const SLOW: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_secs(1800);

impl Sinks {
    /// A try begins. `wall` is the poller's clock, `takes` how long an ordinary one takes, the effect
    /// being made after `part` of a hundred of that.
    pub fn begin(
        &mut self,
        script: &Script,
        d: &Delivery,
        (now, wall): (Time, Time),
        (takes, part): (Duration, u32),
    ) -> Result<(), String> {
        let under_way = self
            .runs
            .iter()
            .filter(|(_, r)| r.ends_at > now && !r.untold);
        let of_this = under_way.filter(|((_, sink, _), _)| *sink == d.sink);
        let mut going = 0;
        for ((slug, _, _), run) in of_this {
            going += 1;
            if *slug == d.slug {
                return Err(format!("{} began while {} is under way", d.id, run.id));
            }
        }
        // A restart does not raise the limit of what runs at once.
        if going >= SLOTS {
            return Err(format!("{}: too many at once", d.id));
        }
        let known = self
            .known
            .entry((d.sink.clone(), d.id.clone()))
            .or_default();
        let n = *known;
        *known += 1;
        let how = script.how(&d.sink, &d.id, n);
        let not_now = |not_before| Outcome::Deferred {
            reason: "busy".into(),
            not_before,
        };
        let failed = |reason: &str| Outcome::Failed {
            reason: reason.into(),
        };
        let (takes, outcome) = match how {
            Try::Delivers => (takes, Outcome::Delivered),
            Try::DeliversSlowly => (SLOW, Outcome::Delivered),
            Try::Fails => (takes, failed("exit status 1")),
            Try::Hangs => (PATIENCE, failed("timed out")),
            Try::Defers => (takes, not_now(None)),
            Try::DefersUntil => (takes, not_now(Some(wall.plus(Duration::from_secs(120))))),
            Try::Refuses => (
                takes,
                Outcome::Refused {
                    reason: "410".into(),
                },
            ),
        };
        let run = Run {
            id: d.id.clone(),
            item: d.item.to_string(),
            attempt: d.attempt,
            n,
            effect_at: now.plus(takes * part / 100),
            ends_at: now.plus(takes),
            outcome,
            took_effect: false,
            untold: false,
        };
        self.runs.insert(key(d), run);
        self.advance(now);
        Ok(())
    }

    /// Time has come to `now`: what was to take effect by then did.
    pub fn advance(&mut self, now: Time) {
        for ((_, sink, _), run) in &mut self.runs {
            if !run.took_effect && !run.untold && run.effect_at <= now {
                run.took_effect = true;
                let of = (sink.clone(), run.item.clone());
                let made = self.effects.made.entry(of).or_default();
                made.push((run.id.clone(), run.n));
            }
        }
    }

    pub fn ends_at(&self, d: &Delivery) -> Option<Time> {
        let run = self.runs.get(&key(d))?;
        (run.attempt == d.attempt && !run.untold).then_some(run.ends_at)
    }

    /// How a try ended that is over.
    pub fn outcome(&self, d: &Delivery) -> Option<Outcome> {
        let run = self.runs.get(&key(d))?;
        (run.attempt == d.attempt && !run.untold).then(|| run.outcome.clone())
    }

    /// What the sink says of a try nobody recorded the end of. One that took effect and cannot be
    /// told of any more may be made again.
    pub fn receipt(&mut self, d: &Delivery, now: Time) -> Receipt {
        let name = (d.sink.clone(), d.id.clone());
        if let Some(run) = self.runs.get(&key(d)).filter(|r| r.attempt == d.attempt) {
            if !run.untold {
                return match run.ends_at > now {
                    true => Receipt::Running,
                    false => Receipt::Settled(run.outcome.clone()),
                };
            }
            *self.known.entry(name.clone()).or_default() -= 1;
            if run.took_effect {
                let lost = self.effects.lost.entry((name.clone(), run.n));
                *lost.or_default() += 1;
            }
            self.runs.remove(&key(d));
        }
        self.effects
            .missing
            .entry(name)
            .or_default()
            .insert(d.attempt);
        Receipt::Missing
    }

    /// The poller ended; `machine`: everything did.
    pub fn poller_ended(&mut self, script: &Script, now: Time, machine: bool) {
        for ((_, sink, _), run) in &mut self.runs {
            run.untold |= match keeps(script, sink) {
                Keeps::Receipts => machine && run.ends_at > now,
                Keeps::ReceiptsInMemory => machine,
                Keeps::Nothing => true,
            };
        }
    }

    /// A request is given up by a poller that stops: nobody will know what became of it.
    pub fn give_up(&mut self, d: &Delivery) {
        if let Some(run) = self.runs.get_mut(&key(d)) {
            run.untold = true;
        }
    }

    /// How many tries were begun, but for those of which nothing is known.
    pub fn begun(&self) -> usize {
        self.known.values().sum()
    }

    pub fn forget(&mut self, d: &Delivery) {
        if self.runs.get(&key(d)).is_some_and(|r| r.id == d.id) {
            self.runs.remove(&key(d));
        }
    }
}

pub fn keeps(script: &Script, sink: &str) -> Keeps {
    let at = sink.strip_prefix("sink").and_then(|n| n.parse().ok());
    let at: usize = at.expect("sinks are numbered");
    script.sinks[at]
}

fn key(d: &Delivery) -> (Slug, String, u64) {
    (d.slug.clone(), d.sink.clone(), d.seq)
}
