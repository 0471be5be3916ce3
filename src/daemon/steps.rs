//! Carrying out the engine's steps, each with the fact that answers it.

use super::fetch::{Fetch, Said};
use super::life::open_feeds;
use super::poll::Poller;
use crate::engine::delivery::{Receipt, Slug};
use crate::engine::listing::Heard;
use crate::engine::saving::Unsaved;
use crate::engine::step::{Fact, Found, Step, Summary};
use crate::error::Error;
use crate::store::LoadError;

/// How many records are saved together at most: none must wait long for the others.
const TOGETHER: usize = 16;

impl Poller<'_> {
    /// Carries out one step. Says what a cycle came to, if that was its end.
    pub(super) fn carry_out(&mut self, step: Step) -> Option<Summary> {
        match step {
            Step::Load(slug) => {
                let found = self.load(&slug);
                self.tell(Fact::Loaded { slug, found });
            }
            Step::SetAside(slug) => {
                if let Err(e) = self.ledger.set_aside(&slug) {
                    self.voice.complain(&e);
                }
            }
            Step::Save(slug) => {
                self.save_with_others(&slug);
            }
            Step::SaveLater(slug) => {
                let saved = match self.life.engine.record(&slug) {
                    Some(record) => self.ledger.save_later(&slug, record),
                    None => Ok(()),
                };
                self.answer(saved, Unsaved::Record(slug.clone()), Fact::Saved { slug });
            }
            Step::Flush => {
                let flushed = self.ledger.flush();
                self.answer(flushed, Unsaved::Batch, Fact::Flushed);
            }
            Step::SaveFeed(feed) => {
                let slug = self.life.engine.feed_slug(feed).clone();
                let saved = match self.life.engine.feed_to_save() {
                    Some(state) => self.ledger.save_feed(&slug, state),
                    None => Ok(()),
                };
                self.answer(saved, Unsaved::Feed, Fact::FeedSaved);
            }
            Step::SaveHost(host) => {
                if let Err(e) = self.ledger.save_host(&host) {
                    let (what, reason) = (Unsaved::Host(host.slug()), e.to_string());
                    self.tell(Fact::SaveFailed { what, reason });
                }
            }
            Step::List { feed, ask } => {
                let config = self.watched.config();
                let anew = || open_feeds(config).1.into_iter().nth(feed).flatten();
                let provider = self.life.providers[feed].take().or_else(anew);
                if let Some(provider) = provider {
                    let name = self.life.engine.feed_slug(feed).to_string();
                    self.fetch = Some((feed, Fetch::start(&name, provider, *ask)));
                }
            }
            Step::Abandon => {
                // What it said of limits so far holds, whoever needs the rest.
                let fetch = self.fetch.take().map(|(_, fetch)| fetch);
                for said in fetch.iter().flat_map(Fetch::said_so_far) {
                    if let Said::Heard(heard @ Heard::Budget(_)) = said {
                        self.tell(Fact::Heard(heard));
                    }
                }
            }
            Step::Deliver(delivery) => self.life.dispatch.deliver(delivery),
            Step::Adopt(delivery) => self.life.dispatch.adopt(delivery),
            Step::Settle(delivery) => {
                let receipt = match self.life.dispatch.sink(&delivery.sink) {
                    Some(sink) => sink.settle(&delivery),
                    None => Receipt::Missing,
                };
                let (slug, sink) = (delivery.slug, delivery.sink);
                self.tell(Fact::Receipt {
                    slug,
                    sink,
                    receipt,
                });
            }
            Step::Forget(delivery) => {
                if let Some(sink) = self.life.dispatch.sink(&delivery.sink) {
                    sink.forget(&delivery);
                }
            }
            Step::Log(entry) => self.log(&entry),
            Step::CycleEnded(summary) => return Some(summary),
        }
        None
    }

    /// Hands on what the listing said.
    pub(super) fn hear(&mut self, said: Said) {
        match said {
            Said::Heard(heard) => self.tell(Fact::Heard(heard)),
            Said::Ended(listing, provider) => {
                if let Some((feed, _)) = self.fetch.take() {
                    self.life.providers[feed] = provider;
                }
                self.tell(Fact::Listed(listing));
            }
        }
    }

    /// Saves a record, and with it what is to be saved as well by now.
    fn save_with_others(&mut self, slug: &Slug) {
        let mut records = self.life.engine.to_save(slug, TOGETHER);
        let mut slugs: Vec<Slug> = records.iter().map(|(slug, _)| slug.clone()).collect();
        if slugs.is_empty() {
            slugs.push(slug.clone());
        }
        let together = self.ledger.save_all(&mut records);
        // One of several is the trouble, and is told from the others.
        let alone = together.is_err() && slugs.len() > 1;
        for slug in slugs {
            let saved = match self.life.engine.record(&slug) {
                Some(record) if alone => self.ledger.save(&slug, record),
                _ => together.clone(),
            };
            self.answer(saved, Unsaved::Record(slug.clone()), Fact::Saved { slug });
        }
    }

    fn load(&mut self, slug: &Slug) -> Found {
        match self.ledger.load(slug) {
            Ok(Some(record)) => Found::Record(Box::new(record)),
            Ok(None) => Found::Nothing,
            Err(LoadError::Damaged { reason, modified }) => Found::Damaged { reason, modified },
            Err(LoadError::SetAside { modified }) => Found::SetAside { modified },
            Err(e @ (LoadError::Unreadable { .. } | LoadError::Newer { .. })) => {
                Found::Unreadable {
                    reason: e.to_string(),
                }
            }
        }
    }

    fn answer(&mut self, done: Result<(), Error>, what: Unsaved, fact: Fact) {
        match done {
            Ok(()) => self.tell(fact),
            Err(e) => self.tell(Fact::SaveFailed {
                what,
                reason: e.to_string(),
            }),
        }
    }
}
