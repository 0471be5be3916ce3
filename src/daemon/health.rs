//! What `run.json` says: how the poller and its sources are doing.

use super::clock::{self, Boot, Jump, Mono};
use super::poll::Poller;
use crate::engine::cycle::Engine;
use crate::engine::entry::Entry;
use crate::engine::step::Summary;
use crate::engine::time::Time;
use crate::mutant;
use crate::store::run_info::{LastCycle, RunInfo, SourceInfo};

impl Poller<'_> {
    /// A cycle is over, and the next one is due then.
    pub(super) fn cycle_ended(&mut self, summary: &Summary, next_cycle: Option<Boot>) {
        let now = clock::now();
        self.run.last_cycle = Some(LastCycle {
            at: summary.started_at,
            duration_ms: u64::try_from(now.since(summary.started_at).as_millis())
                .unwrap_or(u64::MAX),
            items: summary.items as u64,
            delivered: summary.delivered,
            failed: summary.failed,
            interrupted: summary.interrupted,
        });
        self.run.next_cycle_at = next_cycle.map(|at| now.plus(at.left()));
        self.write_run();
        self.notify.cycle_ended(&self.run);
    }

    /// The wall clock was set: what was said of the next cycle is put right.
    pub(super) fn clock_was_set(&mut self, jump: Jump, next_cycle: Option<Boot>) {
        // The other direction is the engine's to notice: it moves what is due.
        if let Jump::Forward(by) = jump
            && !mutant::is("forward-jump-unnoticed")
        {
            self.warn(format!("the clock was set forward by {} s", by.as_secs()));
        }
        if self.run.next_cycle_at.is_some() {
            self.run.next_cycle_at = next_cycle.map(|at| clock::now().plus(at.left()));
            self.write_run();
        }
    }

    /// The poller ended gracefully.
    pub(super) fn stopped(&mut self) {
        self.run.stopped_at = Some(clock::now());
        self.run.next_cycle_at = None;
        self.write_run();
        let stopped = Entry::new(clock::now(), "poller.stopped")
            .with("pid", self.run.pid)
            .with("left_running", self.life.engine.totals().left_running)
            .with("pending", self.run.pending);
        self.log(&stopped);
    }

    /// Writes `run.json` anew.
    pub(super) fn write_run(&mut self) {
        update(&mut self.run, &self.life.engine);
        self.noted_at = Mono::now();
        match self.run.write(&self.layout.state_dir) {
            Err(e) if self.said.as_ref() != Some(&e) => {
                self.voice.complain(&e);
                self.said = Some(e);
            }
            Err(_) => {}
            Ok(()) => self.said = None,
        }
    }
}

/// Brings the run information up to date with the engine.
pub fn update(run: &mut RunInfo, engine: &Engine) {
    let (pending, gave_up) = engine.backlog();
    run.pending = pending as u64;
    run.gave_up = gave_up as u64;
    run.store_error = engine.store_trouble().map(|t| t.reason.clone());
    let mut sources: Vec<SourceInfo> = Vec::new();
    // A source with several feeds is as well as its worst one.
    for (setup, health, items) in engine.health() {
        let unread = health.item_errors.iter().next().map(|(what, why)| {
            let count = health.item_errors.len();
            format!("cannot read {count} of its items, the first is {what}: {why}")
        });
        let error = health.error.clone().or(unread);
        let name = &setup.rules.source;
        let worst = |a: Option<Time>, b: Option<Time>| a.into_iter().chain(b).min();
        match sources.iter_mut().find(|s| s.name == *name) {
            Some(source) => {
                source.ok &= error.is_none();
                source.items += items as u64;
                source.error = source.error.take().or(error);
                source.failing_since = worst(source.failing_since, health.failing_since);
                source.last_listing_at = worst(source.last_listing_at, health.last_listing_at);
            }
            None => sources.push(SourceInfo {
                name: name.clone(),
                ok: error.is_none(),
                error,
                failing_since: health.failing_since,
                items: items as u64,
                last_listing_at: health.last_listing_at,
            }),
        }
    }
    run.sources = sources;
    run.hosts = engine.hosts().cloned().collect();
    run.goes_on_with = engine.goes_on_with().map(ToString::to_string);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::access::Policy;
    use crate::engine::delivery::Slug;
    use crate::engine::feed::Feed;
    use crate::engine::item::ItemRef;
    use crate::engine::plan::Rules;
    use crate::engine::step::{FeedSetup, Setup};
    use std::time::Duration;

    /// A source of several repositories has the items of all of them.
    #[test]
    fn a_source_is_the_sum_of_its_feeds() {
        let feed = |path: &str| FeedSetup {
            slug: Slug::feed("api", None, Some(path)),
            template: ItemRef {
                provider: "github".into(),
                host: None,
                path: path.into(),
                number: 0,
            },
            host: None,
            rules: Rules {
                source: "api".into(),
                sinks: vec![],
                policy: Policy::default(),
                self_marker: String::new(),
                scope: String::new(),
                webhook_sinks: vec![],
            },
        };
        let setup = Setup {
            feeds: ["octo/a", "octo/b"].map(feed).into(),
            slots: [].into(),
            retry_pause: Duration::ZERO,
            most_held: 1,
            version: "1.0.0".into(),
            once: false,
        };
        let open = |numbers: &[u64]| Feed {
            open: numbers.iter().copied().collect(),
            ..Feed::new(Time::ZERO)
        };
        let feeds = vec![Some(open(&[1, 2])), Some(open(&[1, 2, 3]))];
        let mut run = RunInfo::default();
        update(&mut run, &Engine::new(setup, feeds, vec![]));
        let sources: Vec<_> = run.sources.iter().map(|s| (&*s.name, s.items)).collect();
        assert_eq!(sources, [("api", 5)]);
    }
}
