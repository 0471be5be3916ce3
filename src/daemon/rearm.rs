//! Re-arming without a poller: what `retry` does when none runs.

use super::clock;
use super::life::open_feeds;
use super::lifecycle::VERSION;
use super::runlock::{PATIENCE, Refused, RunLock};
use crate::config::checked::Config;
use crate::engine::cycle::Engine;
use crate::engine::step::{Fact, Found, Setup, Step};
use crate::error::Error;
use crate::store::journal::Journal;
use crate::store::requests::{self, Verb};
use crate::store::{Layout, Ledger};
use std::collections::BTreeMap;

/// Applies what `retry` asked for when no poller runs to do it: takes the lock
/// as a poller would, and delivers nothing.
///
/// # Errors
/// [`Refused::Busy`] when a poller runs after all, which will see to it.
pub fn apply_requests(config: &Config) -> Result<(), Refused> {
    let layout = Layout::new(&config.state_dir);
    let lock = RunLock::acquire(&config.state_dir, &config.pidfile, PATIENCE)?;
    let rearmed = rearm(config, &layout);
    lock.release()?;
    Ok(rearmed?)
}

fn rearm(config: &Config, layout: &Layout) -> Result<(), Error> {
    let mut ledger = Ledger::open(layout.clone())?;
    let mut journal = Journal::open(layout.clone());
    let (feeds, _) = open_feeds(config);
    let states = vec![None; feeds.len()];
    let setup = Setup {
        feeds,
        // Without slots nothing is tried.
        slots: BTreeMap::new(),
        retry_pause: config.retry_pause,
        most_held: usize::MAX,
        version: VERSION.to_string(),
        once: true,
    };
    let mut engine = Engine::new(setup, states, ledger.pending()?);
    let mut carry_out = |engine: &mut Engine| -> Result<(), Error> {
        while let Some(step) = engine.next(clock::now()) {
            match step {
                Step::Load(slug) => {
                    let found = match ledger.load(&slug) {
                        Ok(Some(record)) => Found::Record(Box::new(record)),
                        Ok(None) => Found::Nothing,
                        // The poller that runs next deals with it.
                        Err(e) => Found::Unreadable {
                            reason: e.to_string(),
                        },
                    };
                    engine.on(clock::now(), Fact::Loaded { slug, found });
                }
                Step::Save(slug) => {
                    if let Some(record) = engine.record(&slug) {
                        ledger.save(&slug, record)?;
                    }
                    engine.on(clock::now(), Fact::Saved { slug });
                }
                Step::Log(entry) => journal.append(&entry)?,
                // What an earlier poller left in flight stays so until a poller asks for its receipt.
                _ => {}
            }
        }
        Ok(())
    };
    carry_out(&mut engine)?;
    for (path, request) in requests::take(layout) {
        let verb = request
            .map(|r| r.verb)
            .map_err(|e| Error::new(format!("cannot read {}", path.display()), e))?;
        let (item, delivery) = match verb {
            Verb::Retry { item, delivery } => (Some(item), delivery),
            Verb::RetryAll => (None, None),
        };
        engine.on(clock::now(), Fact::Retry { item, delivery });
        carry_out(&mut engine)?;
        requests::done(&path)?;
    }
    engine.leave();
    Ok(())
}
