//! A GitHub App: gets itself a token, for an hour at a time.
//!
//! A token is asked for with a statement that the App's private key signed. It
//! has times in it, which GitHub compares with its own clock: if ours is wrong, the
//! server's `Date` corrects it. Tokens are kept in memory alone.

use super::answer;
use crate::config::checked::App;
use crate::config::secret;
use crate::engine::time::Time;
use crate::error::Error;
use crate::net::{self, Answer, Client, Secret, SigningKey};
use crate::os::file::open_regular_or_link;
use crate::providers::json;
use crate::providers::token::Token;
use serde_json::Value;
use std::io::Read as _;
use std::time::Duration;

/// How long before its end a token is renewed: a listing begun with it has that long.
const EARLY: Duration = Duration::from_secs(5 * 60);

/// How long before now a statement begins to hold, for clocks that differ a little.
const BEFORE: Duration = Duration::from_secs(60);

/// How long it holds; GitHub allows ten minutes.
const AFTER: Duration = Duration::from_secs(8 * 60);

/// A clock that is off by less is not why a statement was refused.
const OFF: Duration = Duration::from_secs(30);

/// An App, and its token.
#[derive(Debug)]
pub struct AppTokens {
    app: App,
    client: Client,
    /// Where a token is asked for.
    url: String,
    /// How far the server's clock is ahead of ours, in milliseconds, once it matters.
    ahead: i64,
    current: Option<Current>,
}

/// The token there is.
#[derive(Debug)]
struct Current {
    secret: Secret,
    /// By the server's clock.
    expires_at: Time,
    /// The cycle it was asked for in.
    since: Time,
    /// The server did not accept it.
    refused: bool,
}

impl AppTokens {
    /// An App at the tracker with this base, asked through `client`.
    #[must_use]
    pub fn new(app: App, client: Client, base_url: &str) -> AppTokens {
        let installation = app.installation_id;
        AppTokens {
            url: format!("{base_url}/app/installations/{installation}/access_tokens"),
            app,
            client,
            ahead: 0,
            current: None,
        }
    }

    /// A token for a listing at `now`, by our clock, in the cycle that began at `cycle`.
    ///
    /// # Errors
    /// Why there is none, for the user.
    pub fn token(&mut self, now: Time, cycle: Time) -> Result<Token, String> {
        let server_now = self.by_server(now);
        let good = |current: &Current, early: Duration| {
            !current.refused && server_now.plus(early) < current.expires_at
        };
        if !self.current.as_ref().is_some_and(|c| good(c, EARLY)) {
            match self.ask(now) {
                Ok((secret, expires_at)) => {
                    self.current = Some(Current {
                        secret,
                        expires_at,
                        since: cycle,
                        refused: false,
                    });
                }
                // What there is will do for a while.
                Err(_)
                    if self
                        .current
                        .as_ref()
                        .is_some_and(|c| good(c, Duration::ZERO)) => {}
                Err(why) => return Err(why),
            }
        }
        let secret = self.current.as_ref().map(|current| current.secret.clone());
        let name = format!("app-{}-{}", self.app.id, self.app.installation_id);
        // It was set right above.
        let secret = secret.ok_or("there is no token")?;
        Ok(Token { secret, name })
    }

    /// The server did not accept `token`: whether the next one is to be another. It
    /// is not if this one was asked for in the same cycle, or each feed would ask for one.
    pub fn refused(&mut self, token: &Secret, cycle: Time) -> bool {
        match &mut self.current {
            Some(current) if current.secret == *token && current.since != cycle => {
                current.refused = true;
                true
            }
            _ => false,
        }
    }

    /// Asks for a token, and again if the first answer shows that our clock is wrong.
    fn ask(&mut self, now: Time) -> Result<(Secret, Time), String> {
        let key = self.key()?;
        let answer = self.ask_once(&key, now)?;
        let said = self.by_server(now);
        let date = answer::date(&answer).filter(|date| {
            let off = date.since(said).max(said.since(*date));
            off >= OFF
        });
        let Some(date) = date else {
            return self.read(&answer);
        };
        let millis = |time: Time| i64::try_from(time.0).unwrap_or(i64::MAX);
        self.ahead = millis(date).saturating_sub(millis(now));
        match answer.status {
            401 => self.read(&self.ask_once(&key, now)?),
            _ => self.read(&answer),
        }
    }

    fn ask_once(&self, key: &SigningKey, now: Time) -> Result<Answer, String> {
        let at = self.by_server(now).0 / 1000;
        // Older servers want a number where it is one.
        let id = &self.app.id;
        let issuer = match id.bytes().all(|b| b.is_ascii_digit()) && !id.starts_with('0') {
            true => id.clone(),
            false => Value::from(id.as_str()).to_string(),
        };
        let statement = key.sign(&format!(
            r#"{{"iat":{},"exp":{},"iss":{issuer}}}"#,
            at.saturating_sub(BEFORE.as_secs()),
            at.saturating_add(AFTER.as_secs()),
        ))?;
        let failed = |e| Error::new(format!("POST {}", net::path(&self.url)), e).to_string();
        self.client
            .post(&self.url, super::session::HEADERS, Some(&statement), "{}")
            .map_err(failed)
    }

    /// The token in an answer, and when it expires.
    fn read(&self, answer: &Answer) -> Result<(Secret, Time), String> {
        let what = format!("POST {}", net::path(&self.url));
        let App {
            id,
            installation_id,
            private_key_file,
        } = &self.app;
        if answer.status != 201 {
            let said = answer::message(answer);
            let colon = if said.is_empty() { "" } else { ": " };
            let advice = match answer.status {
                401 => format!(
                    "; check whether the App's id is {id}, and whether {} is a key of it",
                    private_key_file.display()
                ),
                403 => format!(
                    "; check whether the installation {installation_id} of the App {id} is suspended"
                ),
                404 => format!(
                    "; the App {id} has no installation {installation_id}: check that number, and \
                     whether the App is installed still"
                ),
                _ => String::new(),
            };
            return Err(format!(
                "{what} answered {}{colon}{said}{advice}",
                answer.status
            ));
        }
        let odd = |why: &str| format!("{what} did not answer a token: {why}");
        let body: Value = json::parse(&json::mend(&answer.body)).map_err(|_| odd("not JSON"))?;
        let token = body["token"].as_str().ok_or_else(|| odd("no token"))?;
        let token = secret::Secret::from_bytes(token.as_bytes(), "the App's token")
            .map_err(|e| odd(&e.to_string()))?;
        let expires_at = body["expires_at"].as_str().and_then(|t| t.parse().ok());
        let expires_at = expires_at.ok_or_else(|| odd("no time of its end"))?;
        Ok((Secret::new(token.expose()), expires_at))
    }

    fn key(&self) -> Result<SigningKey, String> {
        let file = &self.app.private_key_file;
        let origin = format!("the private key {}", file.display());
        let mut pem = Vec::new();
        open_regular_or_link(file)
            .and_then(|f| f.take(secret::LIMIT).read_to_end(&mut pem))
            .map_err(|e| Error::new(format!("cannot read {origin}"), e).to_string())?;
        SigningKey::from_pem(&pem).map_err(|why| format!("cannot use {origin}: {why}"))
    }

    /// Whether the private key can be used; nothing is asked.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), String> {
        self.key().map(drop)
    }

    fn by_server(&self, now: Time) -> Time {
        Time(now.0.saturating_add_signed(self.ahead))
    }
}
