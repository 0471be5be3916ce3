//! The `http` sink: a POST per event.
//!
//! There is no receipt. Whether an endpoint took a request is known from its answer alone, so a
//! request that was begun is finished, also when a stop is asked for; and one that the poller did not
//! live to see the end of is made again, with the same delivery id and the same bytes, by
//! which the endpoint can tell it from news (R6.2).
//!
//! A redirect is an answer like any other that is not 2xx: to follow it would turn the POST into a GET
//! of some page, and the page's 200 into a success (C077).

use super::Sink;
use crate::config::checked::{self, Format, SecretFrom};
use crate::config::secret;
use crate::engine::delivery::{Delivery, Outcome, Receipt};
use crate::engine::time::Time;
use crate::mutant;
use crate::net::{self, Answer, Client, Hmac, Limits, Secret};
use crate::os::wake::Wake;
use crate::terminal;
use std::time::{Duration, SystemTime};

/// How much of an answer's body is read.
const SAID: u64 = 64 * 1024;

/// How much of it is shown.
const SHOWN: usize = 200;

/// To look up the name, and as long again to connect: a stop waits for that too.
const CONNECT: Duration = Duration::from_secs(5);

/// What receivers of webhooks look for.
const HOOKSHOT: &str = concat!("GitHub-Hookshot/idempoll-", env!("CARGO_PKG_VERSION"));

/// Posts events to an endpoint.
#[derive(Debug)]
pub struct Http {
    settings: checked::Http,
    client: Client,
}

impl Http {
    /// The endpoint that `settings` describe. Proxies are taken from the environment now.
    #[must_use]
    pub fn new(settings: checked::Http) -> Http {
        let limits = Limits {
            connect: CONNECT.min(settings.timeout),
            whole: settings.timeout,
            body: SAID,
        };
        Http {
            client: Client::for_effects(limits, settings.ca_file.clone()),
            settings,
        }
    }

    /// Whether the endpoint can be reached and the secrets read; nothing is delivered.
    ///
    /// # Errors
    /// All that would not work.
    pub fn check(&self) -> Result<(), Vec<String>> {
        let mut wrong: Vec<String> = self.secret().err().into_iter().collect();
        wrong.extend(self.header_files().err());
        if let Err(e) = self.client.reach(&self.settings.url) {
            wrong.push(format!("cannot reach {}: {e}", self.place()));
        }
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(wrong),
        }
    }

    /// The endpoint as it may be shown: without the query.
    #[must_use]
    pub fn place(&self) -> String {
        let url = &self.settings.url;
        url.split('?').next().unwrap_or(url).to_string()
    }

    /// Whether what is sent can be read on the way.
    #[must_use]
    pub fn is_in_clear(&self) -> bool {
        let url = &self.settings.url;
        url.starts_with("http://") && !net::is_loopback(url)
    }

    fn secret(&self) -> Result<Option<secret::Secret>, String> {
        let Some(from) = &self.settings.secret else {
            return Ok(None);
        };
        let secret = match from {
            SecretFrom::Env(name) => secret::Secret::line_of_env(name),
            SecretFrom::File(file) => secret::Secret::line_of_file(file, &from.to_string()),
        };
        secret.map(Some).map_err(|e| e.to_string())
    }

    /// The header fields that stand in files, read anew each time: a new value needs no restart.
    fn header_files(&self) -> Result<Vec<(&str, secret::Secret)>, String> {
        let mut fields = Vec::new();
        for (name, file) in &self.settings.header_files {
            let origin = format!("the file {} of the header {name}", file.display());
            let value = secret::Secret::line_of_file(file, &origin).map_err(|e| e.to_string())?;
            if !value.expose().is_ascii() {
                return Err(format!(
                    "cannot use {origin}: it has characters in it that a header field cannot have"
                ));
            }
            fields.push((name.as_str(), value));
        }
        Ok(fields)
    }

    fn post(&self, delivery: &Delivery) -> Result<Outcome, String> {
        let webhook = match (self.settings.format, &delivery.webhook) {
            (Format::Idempoll, _) => None,
            (Format::GitHub, Some(webhook)) => Some(webhook),
            (Format::GitHub, None) => return Ok(refused(NO_BODY)),
        };
        let body = webhook.map_or(&delivery.payload, |webhook| &webhook.body);
        let body = body.as_bytes();
        let secret = self.secret()?;
        let files = self.header_files()?;
        let attempt = delivery.attempt.to_string();
        let mut fields = vec![
            ("Content-Type", "application/json".to_string()),
            ("X-Idempoll-Delivery", delivery.id.clone()),
            ("X-Idempoll-Event", delivery.event.word().to_string()),
            ("X-Idempoll-Attempt", attempt),
        ];
        if let Some(webhook) = webhook {
            fields.push(("User-Agent", HOOKSHOT.to_string()));
            fields.push(("X-GitHub-Event", webhook.event.to_string()));
            fields.push(("X-GitHub-Delivery", guid(delivery)));
        }
        if let Some(secret) = &secret {
            let signed = match mutant::is("another-rendering-signed") {
                true => rendered_anew(body),
                false => body.to_vec(),
            };
            let secret = Secret::new(secret.expose());
            let sign = |kind| net::sign(kind, &secret, &signed);
            fields.push(("X-Hub-Signature-256", sign(Hmac::Sha256)));
            fields.push(("X-Hub-Signature", sign(Hmac::Sha1)));
        }
        let mut headers: Vec<(&str, &str)> = fields.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let given = self.settings.headers.iter();
        headers.extend(given.map(|(n, v)| (n.as_str(), v.as_str())));
        headers.extend(files.iter().map(|(n, v)| (*n, v.expose())));
        let place = net::place(&self.settings.url).unwrap_or_default();
        let what = format!("POST {} at {place}", net::path(&self.settings.url));
        match self.client.effect(&self.settings.url, &headers, body) {
            Ok(answer) => {
                let values = files.iter().map(|(_, v)| v.expose());
                let hidden = hidden(values.chain(secret.iter().map(|s| s.expose())));
                Ok(outcome(&what, &answer, &hidden, wall()))
            }
            Err(e) if e.is_ours() => Err(format!("{what}: {e}")),
            Err(e) => Ok(Outcome::Failed {
                reason: format!("{what}: {e}"),
            }),
        }
    }
}

impl Sink for Http {
    fn deliver(&self, delivery: &Delivery, stop: &Wake) -> Outcome {
        if stop.raised() {
            return Outcome::Released;
        }
        match self.post(delivery) {
            Ok(_) if stop.raised() && mutant::is("a-stop-forgets-the-answer") => Outcome::Unknown,
            Ok(outcome) => outcome,
            // Trouble of ours, before anything was tried: it costs the delivery nothing but time.
            Err(reason) => Outcome::not_now(reason),
        }
    }

    fn settle(&self, _: &Delivery) -> Receipt {
        match mutant::is("http-unknown-is-delivered") {
            true => Receipt::Settled(Outcome::Delivered),
            false => Receipt::Missing,
        }
    }

    fn wait(&self, _: &Delivery, _: &Wake) -> Outcome {
        Outcome::Unknown
    }

    fn forget(&self, _: &Delivery) {}
}

/// The delivery id in the form of GitHub's, the same at every try: it is told apart by the sink too, as GitHub tells
/// its hooks apart.
fn guid(delivery: &Delivery) -> String {
    let name = format!("idempoll:{}/{}", delivery.sink, delivery.id);
    match mutant::is("an-id-for-each-try") {
        true => net::uuid_of_url(&format!("{name}/{}", delivery.attempt)),
        false => net::uuid_of_url(&name),
    }
}

/// Why an event read before a sink took webhooks cannot be posted as one.
const NO_BODY: &str = "there is no webhook of it: what GitHub would have sent was not to be had, \
                       or not asked for yet, when it was read";

fn refused(reason: &str) -> Outcome {
    Outcome::Refused {
        reason: reason.to_string(),
    }
}

/// The same JSON, written by another hand: for a deliberate fault.
fn rendered_anew(body: &[u8]) -> Vec<u8> {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    value.to_string().into_bytes()
}

/// What an answer means; `hidden` must not be shown, should the endpoint repeat it.
fn outcome(what: &str, answer: &Answer, hidden: &[&str], now: Time) -> Outcome {
    let mut reason = format!("{what} answered {}", answer.status);
    if answer.is_redirect() && !mutant::is("redirect-is-success") {
        let to = answer.header("location").unwrap_or("nowhere");
        let to = net::resolve(&answer.url, to).unwrap_or_else(|| to.to_string());
        let to = to.split(['?', '#']).next().unwrap_or_default();
        reason.push_str(&format!(
            ", which leads to {}; redirects are not followed: should that be the url?",
            shown(to, hidden)
        ));
    } else {
        let said = String::from_utf8_lossy(&answer.body);
        let line = said.lines().map(str::trim).find(|line| !line.is_empty());
        if let Some(line) = line {
            reason.push_str(&format!(": {}", shown(line, hidden)));
        }
    }
    let wait = answer.retry_after(now.into()).map(|wait| now.plus(wait));
    match answer.status {
        200..=299 => Outcome::Delivered,
        301..=303 if mutant::is("redirect-is-success") => Outcome::Delivered,
        429 | 503 if wait.is_some() && !mutant::is("retry-after-fails") => Outcome::Deferred {
            reason,
            not_before: wait,
        },
        410 if !mutant::is("gone-for-good-is-tried-again") => Outcome::Refused { reason },
        _ => Outcome::Failed { reason },
    }
}

/// What must not be shown of `secrets`, the longest first: each as a whole and, since an endpoint may repeat only the
/// token out of `Bearer TOKEN` or `key=TOKEN`, each of its parts.
fn hidden<'s>(secrets: impl Iterator<Item = &'s str>) -> Vec<&'s str> {
    let mut hidden = Vec::new();
    for secret in secrets {
        hidden.push(secret);
        if mutant::is("parts-of-secrets-are-shown") {
            continue;
        }
        let parts = secret.split(|c: char| !c.is_alphanumeric() && !"-._~+/".contains(c));
        let is_scheme = |part: &&str| {
            let known = ["bearer", "basic", "token", "digest"];
            known.iter().any(|scheme| part.eq_ignore_ascii_case(scheme))
        };
        // Shorter ones are in every text.
        hidden.extend(parts.filter(|part| part.len() >= 4 && !is_scheme(part)));
    }
    hidden.sort_by_key(|text| std::cmp::Reverse(text.len()));
    hidden
}

/// A text of the endpoint's as it may be shown: one line, harmless, without our secrets.
fn shown(text: &str, hidden: &[&str]) -> String {
    let mut text = text.to_string();
    for secret in hidden.iter().filter(|_| !mutant::is("secrets-are-shown")) {
        text = text.replace(secret, "[secret]");
    }
    terminal::cut(&text, SHOWN)
}

#[expect(
    clippy::disallowed_methods,
    reason = "an endpoint says how long to wait, and a worker has nobody to tell it the time"
)]
fn wall() -> Time {
    Time::from(SystemTime::now())
}
