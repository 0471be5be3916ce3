//! What GitHub lets one token ask: looked at before each request, and learnt from each answer.
//!
//! | an answer | what it means |
//! |---|---|
//! | 403 or 429 with `Retry-After`, in seconds or as a date | wait that long |
//! | 403 or 429 with `x-ratelimit-remaining: 0` | the primary limit: wait for `x-ratelimit-reset` |
//! | 429, or 403 that speaks of a limit | the secondary limit: wait a minute |
//! | 503 with `Retry-After` | wait that long |
//! | any other with `x-ratelimit-remaining: 0` | nothing may be asked before `x-ratelimit-reset` |
//!
//! What is no time (`soon`, a date that is past) counts as if it were not there. When
//! secondary limits come one after another, the wait is at least twice the last one, from a
//! minute up to an hour, whatever the header says; a complete listing ends that.
//!
//! Dates are the server's. They are turned into waits by the server's own clock
//! (`Date`), so that ours may be wrong. A server without limits (GitHub Enterprise
//! Server, by default) says nothing of all this.

use super::answer;
use crate::engine::host::{Budget, LONGEST_WAIT, Wait};
use crate::engine::listing::{Ask, Cut};
use crate::engine::time::Time;
use crate::mutant;
use crate::net::Answer;
use crate::providers::token::Token;
use std::time::Duration;

/// How long to wait when GitHub says "too many" without a usable time.
const DEFAULT_WAIT: Duration = Duration::from_secs(60);

/// How long at most if it says so again and again.
const LONGEST_DEFAULT: Duration = Duration::from_secs(3600);

/// The limits of one token during one listing.
#[derive(Debug)]
pub struct Limits {
    /// What is told at the end; its `at` is our clock, as far as answers let it be known.
    budget: Budget,
    start: Time,
    first_date: Option<Time>,
    /// Requests with a token that bring `304` are free.
    has_token: bool,
}

impl Limits {
    /// At the start of a listing that asks `host` with `token`.
    pub fn new(host: &str, token: Option<&Token>, ask: &Ask) -> Limits {
        let name = token.map_or("anonymous", |token| &token.name).to_string();
        let Wait { until, throttled } = ask.waits.get(&name).copied().unwrap_or_default();
        Limits {
            budget: Budget {
                host: host.to_string(),
                token: name,
                at: ask.now,
                not_before: until,
                throttled,
                ..Budget::default()
            },
            start: ask.now,
            first_date: None,
            has_token: token.is_some(),
        }
    }

    /// Whether another request may be sent; counts it.
    ///
    /// # Errors
    /// When nothing may be asked with this token now.
    pub fn ask(&mut self) -> Result<(), Cut> {
        let budget = &mut self.budget;
        if let Some(t) = budget.not_before.filter(|t| *t > budget.at) {
            let host = &budget.host;
            return Err(Cut {
                reason: format!("rate limited: {host} is not to be asked before {t}"),
                not_before: Some(t),
            });
        }
        budget.requests += 1;
        Ok(())
    }

    /// Learns from the answer to `url`, which is about one item alone if `of_item`.
    pub fn answered(&mut self, url: &str, answer: &Answer, of_item: bool) {
        let budget = &mut self.budget;
        let date = answer::date(answer);
        if let Some(date) = date {
            let first = *self.first_date.get_or_insert(date);
            budget.at = budget.at.max(self.start.plus(date.since(first)));
        }
        // Redirected once; a longer way is not worth to be known.
        let redirected = u64::from(answer.url != url);
        let free = answer.status == 304 && self.has_token && !mutant::is("not-modified-counts");
        budget.requests += redirected;
        budget.counted += redirected + u64::from(!free);
        let number = |name: &str| answer.header(name)?.trim().parse::<u64>().ok();
        let limit = number("x-ratelimit-limit").filter(|limit| *limit > 0);
        let remaining = number("x-ratelimit-remaining");
        let reset = number("x-ratelimit-reset").map(|s| Time(s.saturating_mul(1000)));
        let server_now = date.unwrap_or(budget.at);
        let reset_in = reset
            .filter(|t| *t > server_now)
            .map(|t| t.since(server_now));
        if limit.is_some() && remaining.is_some() {
            let soon = reset_in.filter(|d| *d <= LONGEST_WAIT);
            budget.limit = limit;
            budget.remaining = remaining;
            budget.reset_at = soon.map(|d| budget.at.plus(d));
        }
        let used_up = remaining == Some(0) && !mutant::is("overdrawn");
        let wait = match refused(answer, budget.at) {
            // A second more, since the header has whole seconds.
            None | Some(Refused::Limited(None)) if used_up && reset_in.is_some() => {
                reset_in.map(|d| d + Duration::from_secs(1))
            }
            Some(Refused::Limited(asked)) => {
                let grown = DEFAULT_WAIT * (1 << budget.throttled.min(6));
                // The first time, what the header says is enough.
                let least = match (budget.throttled, asked) {
                    (0, Some(asked)) => asked,
                    _ => grown.min(LONGEST_DEFAULT),
                };
                budget.throttled = budget.throttled.saturating_add(1);
                Some(asked.unwrap_or_default().max(least))
            }
            Some(Refused::Unavailable(_)) if of_item => None,
            Some(Refused::Unavailable(asked)) => Some(asked),
            None => None,
        };
        if let Some(wait) = wait {
            budget.not_before = Some(budget.at.plus(wait.min(LONGEST_WAIT)));
        }
    }

    /// Until when `answer` has us wait, if it is a refusal because of that.
    pub fn refuses(&self, answer: &Answer) -> Option<Time> {
        refused(answer, self.budget.at)?;
        self.budget.not_before
    }

    /// What was learnt, at the end of the listing.
    pub fn told(mut self, complete: bool) -> Budget {
        if complete {
            self.budget.throttled = 0;
        }
        self.budget
    }
}

/// Why an answer is a refusal that ends by itself.
enum Refused {
    /// Too many requests; for so long, if it says so.
    Limited(Option<Duration>),
    /// Out of order for so long.
    Unavailable(Duration),
}

/// GitHub says "too many" with 403 as well as with 429, and not always with a header.
/// `now` is our clock, for a server that does not tell its own.
fn refused(answer: &Answer, now: Time) -> Option<Refused> {
    let header = answer.header("retry-after");
    let asked = answer.retry_after(now.into());
    let asked = asked.filter(|wait| !wait.is_zero());
    match answer.status {
        429 if mutant::is("429-is-a-refusal") => None,
        429 => Some(Refused::Limited(asked)),
        403 => {
            let said = answer::message(answer).to_lowercase();
            let words = ["secondary rate limit", "rate limit exceeded", "abuse"];
            let limited = header.is_some()
                || answer.header("x-ratelimit-remaining").map(str::trim) == Some("0")
                || words.iter().any(|words| said.contains(words));
            limited.then_some(Refused::Limited(asked))
        }
        503 => asked.map(Refused::Unavailable),
        _ => None,
    }
}
