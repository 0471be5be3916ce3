//! A poller in memory: the real engine over the real provider of GitHub, one repository, and a
//! store that is always durable. What it delivers is effective at once.

use idempoll::config::checked::{GitHub, TokenFrom};
use idempoll::engine::access::Policy;
use idempoll::engine::cycle::Engine;
use idempoll::engine::delivery::{Outcome, Receipt, Slug};
use idempoll::engine::entry::Entry;
use idempoll::engine::feed::Feed;
use idempoll::engine::item::ItemRef;
use idempoll::engine::listing::{Heard, Listing};
use idempoll::engine::plan::Rules;
use idempoll::engine::record::Record;
use idempoll::engine::step::{Fact, FeedSetup, Found, Setup, Step};
use idempoll::engine::time::Time;
use idempoll::net::Client;
use idempoll::providers::github::GitHubProvider;
use idempoll::providers::{Gone, Out, Provider};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The poller, between two cycles.
pub struct Polled {
    provider: GitHubProvider,
    policy: Policy,
    engine: Option<Engine>,
    feed: Option<Feed>,
    records: BTreeMap<Slug, Record>,
    /// What was delivered, in order: the payloads.
    pub delivered: Vec<Value>,
    /// The event log.
    pub log: Vec<Entry>,
    /// How often records and feeds were saved.
    pub saves: u64,
    /// What only sweeps found.
    pub missed: u64,
    /// Whether the last listing was complete.
    pub complete: bool,
    /// The most that one listing said.
    pub heard: usize,
}

/// Keeps what it is told.
struct Ear(VecDeque<Heard>);

impl Out for Ear {
    fn tell(&mut self, heard: Heard) -> Result<(), Gone> {
        self.0.push_back(heard);
        Ok(())
    }
}

impl Polled {
    /// A poller that was never started, of `octo/widgets` at `url`.
    pub fn new(url: &str, policy: Policy) -> Polled {
        Polled::of(config(url), policy)
    }

    /// The same with another config.
    pub fn of(config: GitHub, policy: Policy) -> Polled {
        let (owner, repo) = config.repos[0].clone();
        Polled {
            provider: GitHubProvider::new(Client::default(), config, policy.clone(), &owner, &repo),
            policy,
            engine: None,
            feed: None,
            records: BTreeMap::new(),
            delivered: Vec::new(),
            log: Vec::new(),
            saves: 0,
            missed: 0,
            complete: false,
            heard: 0,
        }
    }

    /// Ends it, however: what was saved stays.
    pub fn restart(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.leave();
        }
    }

    /// Ends it, and starts it with another config over the same records.
    pub fn reconfigure(&mut self, config: GitHub, policy: Policy) {
        self.restart();
        let (owner, repo) = config.repos[0].clone();
        let client = Client::default();
        self.provider = GitHubProvider::new(client, config, policy.clone(), &owner, &repo);
        self.policy = policy;
    }

    /// The names of what was delivered, in order.
    pub fn ids(&self) -> Vec<String> {
        let ids = self.delivered.iter().map(|p| &p["delivery_id"]);
        ids.map(|id| id.as_str().expect("a name").to_string())
            .collect()
    }

    /// Where the listing left off.
    pub fn cursor(&self) -> Value {
        let cursor = self.feed.as_ref().and_then(|feed| feed.cursor.clone());
        cursor.unwrap_or_default()
    }

    /// When it was first watched, in seconds.
    pub fn watched(&self) -> u64 {
        let feed = self.feed.as_ref().expect("a feed that was watched");
        feed.watch_from.0 / 1000
    }

    /// The reasons of the log's entries of a type.
    pub fn said(&self, kind: &str) -> Vec<String> {
        let entries = self.log.iter().filter(|entry| entry.kind == kind);
        let reasons = entries.map(|e| e.fields.get("reason").or(e.fields.get("ref")));
        reasons
            .map(|r| r.and_then(Value::as_str).unwrap_or_default().to_string())
            .collect()
    }

    fn setup(&self) -> Setup {
        Setup {
            feeds: vec![FeedSetup {
                slug: Slug::feed("src", Some("127.0.0.1"), Some("octo/widgets")),
                template: ItemRef {
                    provider: "github".into(),
                    host: Some("127.0.0.1".into()),
                    path: "octo/widgets".into(),
                    number: 0,
                },
                rules: Rules {
                    source: "src".into(),
                    sinks: vec!["sink".into()],
                    policy: self.policy.clone(),
                    self_marker: "<!-- idempoll -->".into(),
                    scope: String::new(),
                    webhook_sinks: Vec::new(),
                },
                host: None,
            }],
            slots: BTreeMap::from([("sink".to_string(), 64)]),
            retry_pause: Duration::from_secs(1),
            most_held: 4,
            version: "0".into(),
            once: false,
        }
    }

    /// One cycle at the local time `now`.
    pub fn cycle(&mut self, now: Time) {
        let mut engine = self.engine.take().unwrap_or_else(|| {
            let unfinished = self.records.iter().filter(|(_, r)| r.is_unfinished());
            let pending = unfinished.map(|(slug, _)| slug.clone()).collect();
            Engine::new(self.setup(), vec![self.feed.clone()], pending)
        });
        let before = engine.totals().missed;
        let mut listing = Ear(VecDeque::new());
        let mut end = None;
        engine.on(now, Fact::CycleDue);
        for _ in 0..1_000_000 {
            let Some(step) = engine.next(now) else {
                if engine.listens() {
                    if let Some(heard) = listing.0.pop_front() {
                        engine.on(now, Fact::Heard(heard));
                        continue;
                    }
                    if let Some(end) = end.take() {
                        engine.on(now, Fact::Listed(end));
                        continue;
                    }
                }
                assert!(engine.is_quiet(), "stuck: {engine:?}");
                self.missed += engine.totals().missed - before;
                self.engine = Some(engine);
                return;
            };
            let fact = match step {
                Step::Load(slug) => {
                    let record = self.records.get(&slug);
                    let found =
                        record.map_or(Found::Nothing, |r| Found::Record(Box::new(r.clone())));
                    Some(Fact::Loaded { slug, found })
                }
                Step::Save(slug) | Step::SaveLater(slug) => {
                    let record = engine.record(&slug).expect("a record to save").clone();
                    self.saves += 1;
                    self.records.insert(slug.clone(), record);
                    Some(Fact::Saved { slug })
                }
                Step::Flush => Some(Fact::Flushed),
                Step::SaveFeed(_) => {
                    self.saves += 1;
                    self.feed = engine.feed_to_save().cloned();
                    Some(Fact::FeedSaved)
                }
                Step::List { mut ask, .. } => {
                    ask.now = now;
                    let ended = self.provider.list(&ask, &mut listing);
                    self.complete = matches!(ended, Listing::Complete(_));
                    self.heard = self.heard.max(listing.0.len());
                    end = Some(ended);
                    None
                }
                Step::Deliver(d) => {
                    let payload = serde_json::from_str(&d.payload).expect("JSON");
                    self.delivered.push(payload);
                    Some(Fact::Settled {
                        slug: d.slug,
                        sink: d.sink,
                        outcome: Outcome::Delivered,
                    })
                }
                Step::Settle(d) => Some(Fact::Receipt {
                    slug: d.slug,
                    sink: d.sink,
                    receipt: Receipt::Missing,
                }),
                Step::Log(entry) => {
                    self.log.push(entry);
                    None
                }
                Step::Abandon
                | Step::Adopt(_)
                | Step::SetAside(_)
                | Step::SaveHost(_)
                | Step::Forget(_)
                | Step::CycleEnded(_) => None,
            };
            if let Some(fact) = fact {
                engine.on(now, fact);
            }
        }
        panic!("the cycle runs away");
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        self.restart();
    }
}

/// Everything of `octo/widgets` at `url`, with some token.
pub fn config(url: &str) -> GitHub {
    GitHub {
        repos: vec![("octo".into(), "widgets".into())],
        base_url: url.to_string(),
        issues: true,
        pull_requests: true,
        token: Some(TokenFrom::File(
            concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/http/token").into(),
        )),
        ca_file: None,
        sweep: Duration::from_secs(3600),
    }
}
