//! What is built from a config, at the start and anew after each change of it:
//! the engine, the workers with their sinks, the providers.
//!
//! A change of the config is a graceful stop and a start inside one process: all
//! of this goes and comes, ledger and lock stay. `reload` says when.

use super::clock;
use super::dispatch::Dispatch;
use super::lifecycle::VERSION;
use crate::config::checked::{
    Config, Provider as ProviderConfig, SecretFrom, Sink as SinkConfig, TokenFrom,
};
use crate::engine::cycle::Engine;
use crate::engine::delivery::Slug;
use crate::engine::entry::Entry;
use crate::engine::feed::Feed;
use crate::engine::host::Host;
use crate::engine::plan::Rules;
use crate::engine::step::{FeedSetup, Setup};
use crate::error::Error;
use crate::os::wake::Wake;
use crate::providers;
use crate::sinks::{self, Sink};
use crate::store::run_info::RunInfo;
use crate::store::{Layout, Ledger, LoadError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// How many records with something to deliver are held in memory: a few for each worker there may be.
const MOST_HELD: usize = 256;

/// What lives as long as one config is in use.
pub struct Life {
    /// What decides.
    pub engine: Engine,
    /// The workers.
    pub dispatch: Dispatch,
    /// The providers, by feed; `None` while one lists or was left behind.
    pub providers: Providers,
    /// Raised when this life ends, and as soon as a stop is asked for: the workers
    /// begin nothing more, whatever the main thread is at.
    pub end: Arc<Wake>,
}

/// The providers, by feed.
pub type Providers = Vec<Option<Box<dyn providers::Provider>>>;

/// The sinks, by name.
pub type Sinks = BTreeMap<String, Arc<dyn Sink>>;

/// Opens the sinks of a config.
pub type OpenSinks<'a> = dyn Fn(&Config) -> Sinks + 'a;

/// Builds a life of `config` over what the ledger and the last `run.json` know.
/// Beside it comes what is to be logged about files that were damaged.
///
/// # Errors
/// When what is known of a feed cannot be read, or the system has no room for
/// the workers.
pub fn begin(
    config: &Config,
    once: bool,
    open_sinks: &OpenSinks,
    ledger: &mut Ledger,
    run: &RunInfo,
    stop: &Arc<Wake>,
) -> Result<(Life, Vec<Entry>), Error> {
    let no_room = |e| Error::new("cannot start the workers", e);
    let (feeds, providers) = open_feeds(config);
    let (mut states, mut aside) = (Vec::new(), Vec::new());
    for feed in &feeds {
        let (state, entry) = load_feed(ledger, feed)?;
        states.push(state);
        aside.extend(entry);
    }
    let setup = Setup {
        feeds,
        slots: config
            .sinks
            .keys()
            .map(|s| (s.clone(), config.max_concurrent))
            .collect(),
        retry_pause: config.retry_pause,
        most_held: MOST_HELD,
        version: VERSION.to_string(),
        once,
    };
    let end = Arc::new(Wake::under(stop).map_err(no_room)?);
    let sinks = open_sinks(config);
    let dispatch = Dispatch::start(sinks, config.max_concurrent, &end).map_err(no_room)?;
    let mut engine = Engine::new(setup, states, ledger.pending()?);
    for source in &run.sources {
        engine.recall(&source.name, source.failing_since, source.last_listing_at);
    }
    if let Some(feed) = &run.goes_on_with {
        engine.go_on_with(feed);
    }
    let stored = load_hosts(ledger, &mut aside)?;
    engine.remember_hosts(stored, &run.hosts);
    let life = Life {
        engine,
        dispatch,
        providers,
        end,
    };
    Ok((life, aside))
}

/// The feeds of all sources, in the order of the config, each with its provider.
pub fn open_feeds(config: &Config) -> (Vec<FeedSetup>, Providers) {
    let mut setups = Vec::new();
    let mut opened = Vec::new();
    for source in &config.sources {
        for feed in providers::open(source) {
            setups.push(FeedSetup {
                slug: feed.slug,
                template: feed.template,
                host: feed.host,
                rules: Rules {
                    source: source.name.clone(),
                    sinks: source.sinks.clone(),
                    webhook_sinks: source.webhook_sinks.clone(),
                    policy: source.policy.clone(),
                    self_marker: config.self_marker.clone(),
                    scope: feed.scope,
                },
            });
            opened.push(Some(feed.provider));
        }
    }
    (setups, opened)
}

/// A damaged feed file is kept aside and its feed listed from the beginning.
fn load_feed(
    ledger: &mut Ledger,
    feed: &FeedSetup,
) -> Result<(Option<Feed>, Option<Entry>), Error> {
    match ledger.load_feed(&feed.slug) {
        Ok(state) => Ok((state, None)),
        Err(LoadError::Damaged { reason, .. }) => {
            let kept = ledger.set_feed_aside(&feed.slug)?;
            let entry = set_aside(&feed.slug, reason, &kept);
            let state = ledger.load_feed(&feed.slug);
            Ok((state.map_err(|e| cannot_load(&feed.slug, &e))?, Some(entry)))
        }
        Err(e) => Err(cannot_load(&feed.slug, &e)),
    }
}

fn set_aside(slug: &Slug, reason: String, kept: &Path) -> Entry {
    Entry::new(clock::now(), "record.set_aside")
        .with("record", slug.to_string())
        .with("reason", reason)
        .with("kept", kept.display().to_string())
}

fn cannot_load(slug: &Slug, why: &LoadError) -> Error {
    Error::new(format!("cannot load what is known of {slug}"), why)
        .hint("see docs/state.md for what each file is and what may be deleted")
}

/// A damaged file of a host is kept aside; the host says again what it wants.
fn load_hosts(ledger: &mut Ledger, aside: &mut Vec<Entry>) -> Result<Vec<Host>, Error> {
    let mut hosts = Vec::new();
    for slug in ledger.hosts()? {
        match ledger.load_host(&slug, clock::now()) {
            Ok(host) => hosts.extend(host),
            Err(LoadError::Damaged { reason, .. }) => {
                let kept = ledger.set_host_aside(&slug)?;
                aside.push(set_aside(&slug, reason, &kept));
            }
            Err(e) => return Err(cannot_load(&slug, &e)),
        }
    }
    Ok(hosts)
}

/// The sinks of `config`.
#[must_use]
pub fn open_sinks(config: &Config, layout: &Layout) -> Sinks {
    let mut secrets = BTreeSet::new();
    for source in &config.sources {
        if let ProviderConfig::GitHub(github) = &source.provider
            && let Some(TokenFrom::Env(name)) = &github.token
        {
            secrets.insert(name.clone());
        }
    }
    for sink in config.sinks.values() {
        if let SinkConfig::Http(http) = sink
            && let Some(SecretFrom::Env(name)) = &http.secret
        {
            secrets.insert(name.clone());
        }
    }
    let secrets: Vec<String> = secrets.into_iter().collect();
    let open = |(name, sink): (&String, &_)| {
        (
            name.clone(),
            Arc::from(sinks::open(sink, &layout.runs(), &secrets)),
        )
    };
    config.sinks.iter().map(open).collect()
}
