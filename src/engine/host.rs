//! What a tracker's host lets one token ask: its budget, and how long to stay away.
//!
//! Limits belong to a token, not to a feed: whatever one feed is told holds for all
//! that use the same token with the same host. A *cool-down* (the host said "not
//! before") is durable as soon as it begins, since asking within it prolongs it.
//! The rest is advice, and may be lost.

use super::delivery::Slug;
use super::time::Time;
use crate::mutant;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a host said during one listing of what one token may still ask.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Budget {
    /// The host: `api.github.com`.
    pub host: String,
    /// Which token, by a name that does not tell it.
    pub token: String,
    /// The time at the last answer, as the provider knows it; its times below count from here.
    pub at: Time,
    /// How many requests this listing made.
    pub requests: u64,
    /// How many of those count against the limit.
    pub counted: u64,
    /// Requests allowed in each period, if the host limits them.
    pub limit: Option<u64>,
    /// Requests left in this period.
    pub remaining: Option<u64>,
    /// When the next period begins.
    pub reset_at: Option<Time>,
    /// Nothing may be asked with this token before.
    pub not_before: Option<Time>,
    /// How often in a row the host found that we ask too fast; a complete listing ends the row.
    pub throttled: u32,
}

/// What a listing is reminded of about one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wait {
    /// Nothing may be asked with it before.
    pub until: Option<Time>,
    /// As in [`Budget`].
    pub throttled: u32,
}

/// What is known of one token at one host, by our clock: `STATE/hosts/<slug>.json`, and
/// an entry of `hosts` in `run.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// The host: `api.github.com`.
    pub host: String,
    /// Which token, by a name that does not tell it.
    pub token: String,
    /// Requests allowed in each period, if the host limits them.
    pub limit: Option<u64>,
    /// Requests left in this period.
    pub remaining: Option<u64>,
    /// When the next period begins.
    pub reset_at: Option<Time>,
    /// Nothing may be asked before.
    pub not_before: Option<Time>,
    /// When the host said so: if that is still to come, the clock was set back since.
    pub asked_to_wait_at: Option<Time>,
    /// As in [`Budget`].
    pub throttled: u32,
    /// How many requests the last cycle made in which there were any.
    pub requests_last_cycle: u64,
    /// How many of those count against the limit.
    pub counted_last_cycle: u64,
    /// Its feeds are not listed before, so that what is left lasts until `reset_at`.
    pub next_listing_at: Option<Time>,
}

/// The longest wait a tracker is believed to ask for; a longer one was stored by a clock that ran ahead.
pub const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// Of each period's requests one in so many is left to others: to people, to `check`.
const RESERVE: u64 = 20;

impl Host {
    /// Its file name: `<host>~<token>`.
    #[must_use]
    pub fn slug(&self) -> Slug {
        let plain =
            |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "_");
        Slug::feed(&plain(&self.host), None, Some(&plain(&self.token)))
    }

    /// Until when nothing may be asked, if so. A wait stored by a clock that ran ahead
    /// would be too long by as much (C023): it is not kept, and the tracker says again
    /// what it wants.
    #[must_use]
    pub fn waits_until(&self, now: Time) -> Option<Time> {
        let asked_at = self.asked_to_wait_at;
        let ran_ahead = asked_at.map_or(Duration::ZERO, |t| t.since(now));
        let kept = ran_ahead < super::cycle::SET_BACK || mutant::is("not-before-unclamped");
        let within = |t: &Time| *t > now && t.since(now) <= LONGEST_WAIT;
        self.not_before.filter(within).filter(|_| kept)
    }

    /// Whether nothing in it is of use any more.
    #[must_use]
    pub fn is_over(&self, now: Time) -> bool {
        self.not_before.is_none_or(|t| t.plus(LONGEST_WAIT) < now)
    }

    fn cool_down(&self) -> CoolDown {
        (self.not_before, self.asked_to_wait_at, self.throttled)
    }

    fn stands(&self, now: Time) -> bool {
        let times = [self.reset_at, self.not_before, self.next_listing_at];
        times.into_iter().flatten().any(|t| t > now)
    }

    /// When the next cycle may come after one that began at `begun`, if each costs
    /// `cost` counted requests and what is left is to last until the next period:
    /// slower, never stopped, while something is left. `None`: at any time.
    fn pace(&self, begun: Time, now: Time, cost: u64) -> Option<Time> {
        let (limit, remaining) = (self.limit?, self.remaining?);
        let reset_at = self.reset_at.filter(|t| *t > now && cost > 0)?;
        // The reserve is touched with care, by halves, when others have used up the rest.
        let left = remaining.saturating_sub(limit / RESERVE).max(remaining / 2);
        let cycles = u32::try_from(left / cost).unwrap_or(u32::MAX).max(1);
        let pace = reset_at.since(begun) / cycles;
        Some(begun.plus(pace).min(reset_at))
    }
}

/// What of a host is durable: `not_before`, `asked_to_wait_at`, `throttled`.
type CoolDown = (Option<Time>, Option<Time>, u32);

/// All hosts, by host and token.
#[derive(Debug, Clone, Default)]
pub(super) struct Hosts(BTreeMap<(String, String), Known>);

#[derive(Debug, Clone, Default)]
struct Known {
    host: Host,
    /// The cool-down as it was last read or written.
    saved: CoolDown,
    /// That could not be written: tried again at the next cycle, and said once.
    failed: Option<CoolDown>,
    again: bool,
    /// In this cycle: whether there was a word of it, and what it was asked.
    told: bool,
    requests: u64,
    counted: u64,
}

impl Hosts {
    fn at(&mut self, host: &str, token: &str) -> &mut Known {
        let key = (host.to_string(), token.to_string());
        self.0.entry(key).or_insert_with(|| Known {
            host: Host {
                host: host.to_string(),
                token: token.to_string(),
                ..Host::default()
            },
            ..Known::default()
        })
    }

    /// Takes over what is on disk.
    pub fn remember(&mut self, host: Host) {
        if mutant::is("cool-down-lost-at-restart") {
            return;
        }
        let known = self.at(&host.host, &host.token);
        known.saved = host.cool_down();
        known.host = host;
    }

    /// Takes over what was shown of the last poller: figures, but no cool-down.
    pub fn recall(&mut self, shown: &Host) {
        let host = &mut self.at(&shown.host, &shown.token).host;
        let (not_before, asked_to_wait_at, throttled) = host.cool_down();
        *host = Host {
            not_before,
            asked_to_wait_at,
            throttled,
            ..shown.clone()
        };
    }

    /// What a listing at `host` is to be reminded of, by token.
    pub fn waits(&self, host: Option<&String>, now: Time) -> BTreeMap<String, Wait> {
        let its = self.0.iter().filter(|((h, _), _)| Some(h) == host);
        let waits = its.map(|((_, token), known)| {
            let (until, throttled) = (known.host.waits_until(now), known.host.throttled);
            (token.clone(), Wait { until, throttled })
        });
        waits.filter(|(_, w)| *w != Wait::default()).collect()
    }

    /// Whether a host and token are spared for now, so that what is left lasts.
    pub fn spares(&self, asked_with: &(String, String), now: Time) -> bool {
        let known = self.0.get(asked_with);
        known.is_some_and(|k| k.host.next_listing_at.is_some_and(|t| t > now))
    }

    /// Takes what a listing says, at the time it is heard: the provider reads no clock, so
    /// its own idea of the time may lie behind. Gives what is to be saved at once.
    pub fn told(&mut self, now: Time, budget: &Budget) -> Option<Host> {
        let known = self.at(&budget.host, &budget.token);
        known.told = true;
        if budget.requests == 0 {
            return None;
        }
        known.requests += budget.requests;
        known.counted += budget.counted;
        let ours = |t: Time| now.plus(t.since(budget.at));
        let host = &mut known.host;
        if budget.remaining.is_some() {
            host.limit = budget.limit;
            host.remaining = budget.remaining;
            host.reset_at = budget.reset_at.map(ours);
        }
        host.throttled = budget.throttled;
        if let Some(not_before) = budget.not_before {
            host.not_before = Some(ours(not_before));
            host.asked_to_wait_at = Some(now);
        } else if budget.throttled == 0 {
            host.not_before = None;
            host.asked_to_wait_at = None;
        }
        let before = std::mem::replace(&mut known.saved, known.host.cool_down());
        known.again &= known.saved == before;
        (known.saved != before).then(|| known.host.clone())
    }

    /// A save failed; says whether that is news.
    pub fn not_saved(&mut self, slug: &Slug) -> bool {
        let mut all = self.0.values_mut();
        let Some(known) = all.find(|k| k.host.slug() == *slug) else {
            return false;
        };
        known.again = true;
        let cool_down = Some(known.host.cool_down());
        std::mem::replace(&mut known.failed, cool_down) != cool_down
    }

    /// What could not be saved, to be tried again.
    pub fn take_failed(&mut self) -> Vec<Host> {
        let again = |k: &mut Known| std::mem::take(&mut k.again).then(|| k.host.clone());
        self.0.values_mut().filter_map(again).collect()
    }

    /// A cycle that began at `begun` went through all feeds.
    pub fn cycle_over(&mut self, begun: Time, now: Time) {
        self.0.retain(|_, k| k.told || k.host.stands(now));
        for known in self.0.values_mut() {
            known.told = false;
            let requests = std::mem::take(&mut known.requests);
            let counted = std::mem::take(&mut known.counted);
            if requests > 0 {
                let host = &mut known.host;
                host.requests_last_cycle = requests;
                let before = std::mem::replace(&mut host.counted_last_cycle, counted);
                // What one cycle alone cost (the first, a sweep) the next one will not.
                host.next_listing_at = host.pace(begun, now, counted.min(before));
            }
        }
    }

    /// Moves what is due later along with a clock that was set back.
    pub fn set_back(&mut self, by: Duration) {
        for Known { host, .. } in self.0.values_mut() {
            host.reset_at = host.reset_at.map(|t| t.minus(by));
            host.next_listing_at = host.next_listing_at.map(|t| t.minus(by));
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Host> {
        self.0.values().map(|known| &known.host)
    }
}

#[cfg(test)]
mod tests;
