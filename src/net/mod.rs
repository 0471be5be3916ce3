//! HTTP requests: the only room that names `ureq` and `rustls`.
//!
//! Every request has a deadline for each of its parts and one for the whole of
//! it, TLS and body included, so that a server that dribbles cannot hold us.
//! Status codes are values. A redirect is followed only within the origin that
//! was asked, because the token goes along. A connection is used again within
//! moments or never, so none outlives an outage, and the host's name is looked
//! up anew. What is secret is a [`Secret`], which prints nowhere.
#![forbid(unsafe_code)]

mod certificate;
mod failure;
mod jwt;
mod lookup;
mod proxy;
mod reach;
mod secret;
mod signature;
mod tls;
mod url;

pub use failure::Failure;
pub use jwt::SigningKey;
pub use secret::Secret;
pub use signature::{Hmac, base64, sign, uuid_of_url};
pub use url::{host, is_loopback, path, place, resolve, same_origin};

use lookup::Lookup;
use proxy::Proxies;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use ureq::http::{HeaderMap, Request, Response};
use ureq::unversioned::transport::{ConnectProxyConnector, Connector, TcpConnector};
use ureq::{Agent, AsSendBody, Body};

/// How long and how large a request may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// To look up the name, and as long again to connect.
    pub connect: Duration,
    /// For one request from its start to the last byte of its body.
    pub whole: Duration,
    /// Bytes of a body, after decompression.
    pub body: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connect: Duration::from_secs(10),
            whole: Duration::from_secs(60),
            body: 32 << 20,
        }
    }
}

/// What to do when the server answers "elsewhere".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirects {
    /// Go there if it is the same scheme, host and port; otherwise the
    /// redirect itself is the answer. A target without a query keeps ours.
    SameOrigin,
    /// The redirect itself is the answer.
    Never,
}

/// How many redirects in a row are followed.
const MAX_REDIRECTS: usize = 5;

/// How long a connection may rest and still be used: less than any two cycles
/// are apart. An older one may lead to where nothing answers any more.
const IDLE: Duration = Duration::from_millis(500);

/// Makes requests; cheap to clone, clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
    limits: Limits,
}

#[derive(Debug)]
struct Shared {
    ca_file: Option<PathBuf>,
    proxies: Proxies,
    /// Whether a connection is ever used for a second request.
    reuses: bool,
    /// There once it could be set up, with the certificates of that moment.
    agent: OnceLock<Agent>,
}

impl Default for Client {
    fn default() -> Client {
        Client::new(Limits::default())
    }
}

impl Client {
    /// A client with these limits that trusts the roots built in and those that
    /// `SSL_CERT_FILE` names. Proxies are taken from the environment now.
    #[must_use]
    pub fn new(limits: Limits) -> Client {
        Client::trusting(limits, None)
    }

    /// A client that also trusts the certificates in the PEM file `ca_file`. They
    /// are read with the first request; as long as they cannot be, each fails.
    #[must_use]
    pub fn trusting(limits: Limits, ca_file: Option<PathBuf>) -> Client {
        Client::made(limits, ca_file, true)
    }

    /// A client for requests that have an effect: each has a connection of its own. On one that is
    /// used again a request can be lost with nobody knowing whether it arrived.
    #[must_use]
    pub fn for_effects(limits: Limits, ca_file: Option<PathBuf>) -> Client {
        Client::made(limits, ca_file, false)
    }

    fn made(limits: Limits, ca_file: Option<PathBuf>, reuses: bool) -> Client {
        let shared = Shared {
            ca_file,
            proxies: Proxies::read(|name| std::env::var(name).ok()),
            reuses,
            agent: OnceLock::new(),
        };
        Client {
            shared: Arc::new(shared),
            limits,
        }
    }

    /// Whether its certificates, and the proxy to `url` if there is one, can be used.
    ///
    /// # Errors
    /// What cannot.
    pub fn check(&self, url: &str) -> Result<(), Failure> {
        self.agent()?;
        let led = self.shared.proxies.lead_to(url);
        led.map(|_| ()).map_err(Failure::because)
    }

    /// Connects to `url`, TLS and proxy included, and asks nothing.
    ///
    /// # Errors
    /// Why it cannot be reached.
    pub fn reach(&self, url: &str) -> Result<(), Failure> {
        let proxy = self.shared.proxies.lead_to(url);
        let proxy = proxy.map_err(Failure::because)?.cloned();
        let via = proxy.as_ref().map(|p| format!("{}:{}", p.host(), p.port()));
        let connector = self.connector()?.chain(reach::Probe {
            url: url.to_string(),
        });
        let agent = Agent::with_parts(self.config(), connector, Lookup);
        let request = Request::head(url).body(());
        let failed = |e| Failure::new(e, &self.limits, via.clone());
        let request = request.map_err(|e| failed(e.into()))?;
        let request = agent.configure_request(request).proxy(proxy).build();
        match agent.run(request) {
            Err(e) if reach::is_reached(&e) => Ok(()),
            Err(e) => Err(failed(e)),
            Ok(_) => Ok(()),
        }
    }

    fn agent(&self) -> Result<&Agent, Failure> {
        let shared = &*self.shared;
        if let Some(agent) = shared.agent.get() {
            return Ok(agent);
        }
        let connector = self.connector()?;
        let agent = Agent::with_parts(self.config(), connector, Lookup);
        Ok(shared.agent.get_or_init(|| agent))
    }

    /// What connects, and whom it trusts.
    fn connector(&self) -> Result<impl Connector + use<>, Failure> {
        let ca_file = self.shared.ca_file.as_deref();
        let trust =
            tls::config(ca_file, tls::system_file().as_deref()).map_err(Failure::because)?;
        Ok(
            ().chain(ConnectProxyConnector::default())
                .chain(TcpConnector::default())
                .chain(trust),
        )
    }

    fn config(&self) -> ureq::config::Config {
        let limits = self.limits;
        let idle = match crate::mutant::is("connections-kept") {
            true => Duration::from_secs(3600),
            false if crate::mutant::is("connection-per-request") => Duration::ZERO,
            false => IDLE,
        };
        let whole = (!crate::mutant::is("no-whole-deadline")).then_some(limits.whole);
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_age(idle)
            .proxy(None)
            .user_agent(concat!("idempoll/", env!("CARGO_PKG_VERSION")))
            .timeout_global(whole)
            .timeout_resolve(Some(limits.connect))
            .timeout_connect(Some(limits.connect))
            .timeout_send_request(Some(limits.whole))
            .timeout_recv_response(whole)
            .timeout_recv_body(whole);
        match self.shared.reuses {
            true => config.build(),
            false => config.max_idle_connections(0).build(),
        }
    }

    /// Gets `url`, with `token` as the bearer if there is one.
    ///
    /// # Errors
    /// [`Failure`] when there is no whole answer: no connection, a deadline, a
    /// body that is too large or was cut off. Any status is an [`Answer`].
    pub fn get(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        token: Option<&Secret>,
        redirects: Redirects,
    ) -> Result<Answer, Failure> {
        let once = |url: &str| self.send(Request::get(url).body(()), url, headers, token);
        let mut answer = once(url)?;
        if redirects == Redirects::SameOrigin {
            for _ in 0..MAX_REDIRECTS {
                let Some(target) = answer.redirect_within_origin() else {
                    break;
                };
                answer = once(&target)?;
            }
        }
        Ok(answer)
    }

    /// Posts the JSON text `body` to `url`; no redirect is followed.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn post(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        token: Option<&Secret>,
        body: &str,
    ) -> Result<Answer, Failure> {
        let request = Request::post(url)
            .header("Content-Type", "application/json")
            .body(body.as_bytes());
        self.send(request, url, headers, token)
    }

    /// Posts `body` to `url` for its effect; no redirect is followed. The status is the answer: what
    /// can be had of its body within the limits is taken, and more of it is no matter.
    ///
    /// # Errors
    /// [`Failure`] when no status came. The request may have had its effect all the same.
    pub fn effect(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer, Failure> {
        let (mut response, _) = self.run(Request::post(url).body(body), url, headers, None)?;
        let mut said = Vec::new();
        // It was answered, whatever becomes of the rest.
        let _ = response
            .body_mut()
            .as_reader()
            .take(self.limits.body)
            .read_to_end(&mut said);
        Ok(Answer::of(url, response, said, None))
    }

    fn send<B: AsSendBody>(
        &self,
        request: Result<Request<B>, ureq::http::Error>,
        url: &str,
        headers: &[(&str, &str)],
        token: Option<&Secret>,
    ) -> Result<Answer, Failure> {
        let (mut response, via) = self.run(request, url, headers, token)?;
        let body = response
            .body_mut()
            .with_config()
            .limit(self.limits.body)
            .read_to_vec()
            .map_err(|e| Failure::new(e, &self.limits, via))?;
        Ok(Answer::of(url, response, body, token))
    }

    /// Sends a request; gives the answer up to its body, and the proxy it came through.
    fn run<B: AsSendBody>(
        &self,
        request: Result<Request<B>, ureq::http::Error>,
        url: &str,
        headers: &[(&str, &str)],
        token: Option<&Secret>,
    ) -> Result<(Response<Body>, Option<String>), Failure> {
        let agent = self.agent()?;
        let proxy = self.shared.proxies.lead_to(url);
        let proxy = proxy.map_err(Failure::because)?.cloned();
        let via = proxy.as_ref().map(|p| format!("{}:{}", p.host(), p.port()));
        let failed = |e| Failure::new(e, &self.limits, via.clone());
        let mut request = request.map_err(|e| failed(e.into()))?;
        let bearer = token.map(|token| format!("Bearer {}", token.expose()));
        let bearer = bearer.as_deref().map(|value| ("Authorization", value));
        for (name, value) in headers.iter().copied().chain(bearer) {
            use ureq::http::{HeaderName, HeaderValue};
            let name =
                HeaderName::try_from(name).map_err(|e| failed(ureq::Error::Http(e.into())))?;
            let value =
                HeaderValue::try_from(value).map_err(|e| failed(ureq::Error::Http(e.into())))?;
            request.headers_mut().insert(name, value);
        }
        let request = agent.configure_request(request).proxy(proxy).build();
        let response = agent.run(request).map_err(failed)?;
        Ok((response, via))
    }
}

/// A date as HTTP writes it.
fn date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text.trim()).ok()
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// What was asked in the end, after redirects.
    pub url: String,
    /// The status code.
    pub status: u16,
    headers: HeaderMap,
    /// The body, decompressed.
    pub body: Vec<u8>,
    /// What it was asked with.
    token: Option<Secret>,
}

impl Answer {
    fn of(url: &str, response: Response<Body>, body: Vec<u8>, token: Option<&Secret>) -> Answer {
        let (head, _) = response.into_parts();
        Answer {
            url: url.to_string(),
            status: head.status.as_u16(),
            headers: head.headers,
            body,
            token: token.cloned(),
        }
    }

    /// A text out of this answer as it may be shown: a server, or a proxy before
    /// it, that repeats the request repeats the token.
    #[must_use]
    pub fn without_token(&self, text: &str) -> String {
        match &self.token {
            Some(token) => text.replace(token.expose(), "[secret]"),
            None => text.to_string(),
        }
    }

    /// A header's first value; `None` if it is not there or not plain ASCII.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Every value of a header that may be repeated.
    pub fn headers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers
            .get_all(name)
            .iter()
            .filter_map(|v| v.to_str().ok())
    }

    /// The server's clock when it answered.
    #[must_use]
    pub fn date(&self) -> Option<SystemTime> {
        date(self.header("date")?)
    }

    /// How long `Retry-After` asks to wait: seconds, or until a date by the server's own clock, which
    /// is taken to be `now` if it does not tell it. Nothing if that date is past.
    #[must_use]
    pub fn retry_after(&self, now: SystemTime) -> Option<Duration> {
        let value = self.header("retry-after")?.trim();
        if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
            // More seconds than can be counted are still seconds.
            return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
        }
        let until = date(value)?.duration_since(self.date().unwrap_or(now));
        Some(until.unwrap_or_default())
    }

    /// Whether this says "elsewhere".
    #[must_use]
    pub fn is_redirect(&self) -> bool {
        matches!(self.status, 301 | 302 | 303 | 307 | 308)
    }

    /// Where a redirect leads, if that is the origin that was asked.
    fn redirect_within_origin(&self) -> Option<String> {
        let location = self.header("location").filter(|_| self.is_redirect())?;
        let mut target = resolve(&self.url, location)?;
        if !same_origin(&self.url, &target) {
            return None;
        }
        // A target that drops the query would answer another question: the
        // first page of the open items instead of what changed.
        if let (None, Some((_, query))) = (target.find('?'), self.url.split_once('?')) {
            target.push('?');
            target.push_str(query);
        }
        Some(target)
    }
}
