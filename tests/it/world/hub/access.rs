//! Who may ask, and how often.

use super::rows::seconds;
use super::{World, replies};
use crate::world::forge::{Asked, Reply};
use idempoll::engine::time::Time;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What one token may ask in an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    pub limit: u64,
    pub used: u64,
    /// When the hour ends, in seconds since 1970.
    pub reset: u64,
}

type Judge = Box<dyn FnMut(&Asked) -> Result<(), Reply> + Send>;

#[derive(Default)]
pub(super) struct Access {
    /// Those let in; everybody if there is no list.
    tokens: Option<BTreeSet<String>>,
    /// Tokens of installations, and when they expire.
    minted: BTreeMap<String, Time>,
    /// By token; "" for those without one.
    budgets: BTreeMap<String, Budget>,
    judge: Option<Judge>,
    /// The limits are off, as they can be at GitHub Enterprise Server.
    limits_off: bool,
    /// 429 instead of 403 when the hour's requests are used up.
    over_with_429: bool,
}

/// The token of a request.
pub(super) fn token(asked: &Asked) -> Option<&str> {
    let (scheme, token) = asked.header("authorization")?.split_once(' ')?;
    let known = ["bearer", "token"].contains(&scheme.to_lowercase().as_str());
    known.then_some(token)
}

impl World {
    /// Lets in only these tokens, and those of installations; others are
    /// answered 401, and who has none sees what is not private.
    pub fn only_tokens<'a>(&mut self, tokens: impl IntoIterator<Item = &'a str>) {
        let tokens = tokens.into_iter().map(str::to_string);
        self.access.tokens = Some(tokens.collect());
    }

    /// What a token may ask; "" stands for those without one.
    pub fn budget(&mut self, token: &str) -> &mut Budget {
        let now = seconds(self.now());
        let limit = if token.is_empty() { 60 } else { 5000 };
        let fresh = Budget {
            limit,
            used: 0,
            reset: now + 3600,
        };
        let budgets = &mut self.access.budgets;
        let budget = budgets.entry(token.to_string()).or_insert(fresh);
        if budget.reset <= now {
            (budget.used, budget.reset) = (0, now + 3600);
        }
        budget
    }

    /// No limits, and nothing said of them.
    pub fn limits_off(&mut self) {
        self.access.limits_off = true;
    }

    /// Says 429 instead of 403 to one whose hour is used up.
    pub fn over_with_429(&mut self) {
        self.access.over_with_429 = true;
    }

    /// Who may have a token for an installation; without a judge, who sends
    /// anything like a JWT.
    pub fn judge_app(&mut self, judge: impl FnMut(&Asked) -> Result<(), Reply> + Send + 'static) {
        self.access.judge = Some(Box::new(judge));
    }

    /// Whether a request is let in; otherwise what it is answered.
    pub(super) fn admit(&mut self, asked: &Asked) -> Result<(), Reply> {
        if asked.header("user-agent").is_none_or(str::is_empty) {
            let text = "Request forbidden by administrative rules. Please make sure your request has a User-Agent header.";
            let reply = Reply::json(text).status(403);
            return Err(reply.header("Content-Type", "text/plain"));
        }
        match asked.header("x-github-api-version") {
            None | Some("2022-11-28") => {}
            Some(_) => return Err(replies::error(400, "That API version is not supported.")),
        }
        if is_of_app(asked) {
            return Ok(());
        }
        if token(asked).is_none() && asked.header("authorization").is_some() {
            return Err(replies::bad_credentials());
        }
        if let Some(token) = token(asked)
            && !self.is_valid(token)
        {
            return Err(replies::bad_credentials());
        }
        if !self.access.limits_off && !is_free(asked) {
            let budget = *self.budget(token(asked).unwrap_or_default());
            if budget.used >= budget.limit {
                let status = if self.access.over_with_429 { 429 } else { 403 };
                return Err(replies::used_up(status));
            }
        }
        Ok(())
    }

    fn is_valid(&self, token: &str) -> bool {
        match (self.access.minted.get(token), &self.access.tokens) {
            (Some(&expiry), _) => self.now() < expiry,
            (None, Some(tokens)) => tokens.contains(token),
            (None, None) => true,
        }
    }

    /// Counts a request and says in the answer what is left. A 304 is free for
    /// one who is known.
    pub(super) fn charge(&mut self, asked: &Asked, reply: Reply) -> Reply {
        if self.access.limits_off || is_of_app(asked) || reply.status == 401 {
            return reply;
        }
        let token = token(asked);
        let free = is_free(asked) || (reply.status == 304 && token.is_some());
        let budget = self.budget(token.unwrap_or_default());
        if !free && budget.used < budget.limit {
            budget.used += 1;
        }
        let mut reply = reply;
        for (name, value) in [
            ("X-RateLimit-Limit", budget.limit),
            (
                "X-RateLimit-Remaining",
                budget.limit.saturating_sub(budget.used),
            ),
            ("X-RateLimit-Used", budget.used),
            ("X-RateLimit-Reset", budget.reset),
        ] {
            if reply.header_value(name).is_none() {
                reply = reply.header(name, value);
            }
        }
        reply.header("X-RateLimit-Resource", "core")
    }

    /// `GET /rate_limit`.
    pub(super) fn rate_limit(&mut self, asked: &Asked) -> Reply {
        if self.access.limits_off {
            return replies::error(404, "Rate limiting is not enabled.");
        }
        let Budget { limit, used, reset } = *self.budget(token(asked).unwrap_or_default());
        let of = |limit, used| json!({"limit": limit, "used": used, "remaining": limit - used, "reset": reset});
        Reply::json(json!({
            "resources": {"core": of(limit, used), "search": of(30, 0)},
            "rate": of(limit, used),
        }))
    }

    /// `POST /app/installations/{id}/access_tokens`.
    pub(super) fn mint(&mut self, asked: &Asked) -> Reply {
        let admitted = match &mut self.access.judge {
            Some(judge) => judge(asked),
            None if token(asked).is_some_and(|t| t.split('.').count() == 3) => Ok(()),
            None => Err(replies::error(401, "A JSON web token could not be decoded")),
        };
        if let Err(refusal) = admitted {
            return refusal;
        }
        let count = self.access.minted.len() + 1;
        let token = format!("ghs_hub{count:04}");
        let expiry = self.now().plus(Duration::from_secs(3600));
        self.access.minted.insert(token.clone(), expiry);
        let body = json!({
            "token": token, "expires_at": super::faces::stamp(seconds(expiry)),
            "permissions": {"issues": "read", "metadata": "read", "pull_requests": "read"},
            "repository_selection": "selected",
        });
        Reply::json(body).status(201)
    }
}

fn is_free(asked: &Asked) -> bool {
    asked.path().ends_with("/rate_limit")
}

fn is_of_app(asked: &Asked) -> bool {
    asked.path().ends_with("/access_tokens")
}
