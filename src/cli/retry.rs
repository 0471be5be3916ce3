//! `idempoll retry`: re-arms what was given up.
//!
//! It leaves a request for whoever holds the state directory's lock. A running
//! poller takes it up within a second; with none, it is carried out here, under
//! the lock. It never writes a record itself.

use super::args::{Global, Retry};
use super::out::Out;
use super::records;
use super::when::count;
use crate::config::checked::Config;
use crate::daemon::clock::{self, Mono};
use crate::daemon::holder::{Holder, settled};
use crate::daemon::rearm::apply_requests;
use crate::daemon::runlock::Refused;
use crate::engine::delivery::{Key, delivery_id};
use crate::engine::record::Record;
use crate::error::Error;
use crate::exit::Exit;
use crate::store::requests::{self, Request, Verb};
use crate::store::{Layout, Reader};
use crossbeam_channel::never;
use std::path::Path;
use std::time::Duration;

/// How long a running poller is given to take the request up; it looks every second.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two looks whether it did.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Re-arms, and waits until that is done.
pub(super) fn run(global: &Global, args: &Retry, out: &mut Out) -> Result<Exit, Error> {
    let places = super::places(global)?;
    let layout = Layout::new(&places.state_dir);
    let (verb, n) = asked(&Reader::new(layout.clone()), args)?;
    let what = count(n as u64, "delivery");
    let Some(verb) = verb else {
        out.line("nothing was given up");
        return Ok(Exit::Done);
    };
    let runs = |holder| matches!(holder, Holder::Held(_));
    if !runs(settled(&places.state_dir, &places.pidfile)?) {
        // Checked before anything is asked for, since it is needed to carry that out.
        let (config, _) = super::config(global, &super::overrides(global))?;
        requests::submit(&layout, &Request::new(clock::now(), verb))?;
        return apply_without_poller(&config, &what, out);
    }
    let request = requests::submit(&layout, &Request::new(clock::now(), verb))?;
    if taken(&request) {
        out.line(format_args!("{what} will be tried again"));
    } else {
        out.line(format_args!(
            "{what} will be tried again as soon as the poller has read the request"
        ));
    }
    Ok(Exit::Done)
}

/// What to ask for, and for how many deliveries; nothing if nothing was given up anywhere.
fn asked(reader: &Reader, args: &Retry) -> Result<(Option<Verb>, usize), Error> {
    match args {
        Retry::All => {
            let (_, gave_up) = records::unfinished(reader)?;
            Ok(((gave_up > 0).then_some(Verb::RetryAll), gave_up))
        }
        Retry::Item { item, key } => {
            let found = records::find(reader, item)?;
            // The name as the records have it: letter case counts from here on.
            let item = found[0].1.item.clone();
            let n = found
                .iter()
                .map(|(_, record)| given_up(record, key.as_deref()))
                .sum();
            if n == 0 {
                let what = match key {
                    Some(key) => {
                        let id = delivery_id(&item, &Key(key.as_str().into()));
                        format!("{id} was not given up")
                    }
                    None => format!("nothing of {item} was given up"),
                };
                return Err(Error::new(what, "")
                    .hint(format!("'idempoll show {item}' lists its deliveries")));
            }
            let verb = Verb::Retry {
                item,
                delivery: key.clone(),
            };
            Ok((Some(verb), n))
        }
    }
}

/// How many deliveries of a record were given up, all of them or those of one event.
fn given_up(record: &Record, key: Option<&str>) -> usize {
    let is = |seq: &u64| {
        let event = record.events.get(seq);
        key.is_none_or(|key| event.is_some_and(|e| &*e.key.0 == key))
    };
    record
        .sinks
        .values()
        .map(|queue| queue.gave_up.keys().filter(|seq| is(seq)).count())
        .sum()
}

/// Waits until the poller has taken the request up; says whether it did.
fn taken(request: &Path) -> bool {
    let deadline = Mono::now().plus(PATIENCE);
    while request.exists() {
        if deadline.passed() {
            return false;
        }
        let _ = never::<()>().recv_timeout(LOOK_AGAIN);
    }
    true
}

/// Carries the request out under the lock, as a poller would, when none runs.
fn apply_without_poller(config: &Config, what: &str, out: &mut Out) -> Result<Exit, Error> {
    match apply_requests(config) {
        Ok(()) => out.line(format_args!("{what} will be tried again at the next start")),
        // One was started this very moment, and reads requests first of all.
        Err(Refused::Busy { .. }) => out.line(format_args!("{what} will be tried again")),
        Err(Refused::Failed(error)) => return Err(error),
    }
    Ok(Exit::Done)
}
