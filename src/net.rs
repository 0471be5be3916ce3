//! HTTP requests: the only file that names `ureq`.
//!
//! Every request has a deadline for each of its parts and one for the whole of
//! it, the body included, so that a server that dribbles cannot hold us.
//! Status codes are values. A redirect is followed only within the origin that
//! was asked, because the token goes along. What is secret is a [`Secret`],
//! which prints nowhere.
#![forbid(unsafe_code)]

use std::fmt;
use std::time::Duration;
use ureq::Agent;
use ureq::http::{HeaderMap, Uri};

/// A text that must not be seen: it has no `Display`, and `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a text into custody.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// A name for it that does not tell it: 16 hexadecimal digits of its SHA-256.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, self.0.as_bytes());
        digest.as_ref()[..8]
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect()
    }

    /// The text itself; for the one place that sends it.
    fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

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

/// Makes requests; cheap to clone, clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    agent: Agent,
    limits: Limits,
}

impl Default for Client {
    fn default() -> Client {
        Client::new(Limits::default())
    }
}

impl Client {
    /// A client with these limits. Proxies are taken from the environment
    /// (`HTTPS_PROXY`, `NO_PROXY`, …), but never used for a loopback host.
    #[must_use]
    pub fn new(limits: Limits) -> Client {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("idempoll/", env!("CARGO_PKG_VERSION")))
            .timeout_global(Some(limits.whole))
            .timeout_resolve(Some(limits.connect))
            .timeout_connect(Some(limits.connect))
            .timeout_send_request(Some(limits.whole))
            .timeout_recv_response(Some(limits.whole))
            .timeout_recv_body(Some(limits.whole))
            .build()
            .new_agent();
        Client { agent, limits }
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
        let mut answer = self.get_once(url, headers, token)?;
        if redirects == Redirects::SameOrigin {
            for _ in 0..MAX_REDIRECTS {
                let Some(target) = answer.redirect_within_origin() else {
                    break;
                };
                answer = self.get_once(&target, headers, token)?;
            }
        }
        Ok(answer)
    }

    fn get_once(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        token: Option<&Secret>,
    ) -> Result<Answer, Failure> {
        let mut request = self.agent.get(url);
        if is_loopback(url) {
            request = request.config().proxy(None).build();
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = token {
            request = request.header("Authorization", format!("Bearer {}", token.expose()));
        }
        let failed = |e| Failure::new(e, &self.limits);
        let mut response = request.call().map_err(failed)?;
        let body = response
            .body_mut()
            .with_config()
            .limit(self.limits.body)
            .read_to_vec()
            .map_err(failed)?;
        let (head, _) = response.into_parts();
        Ok(Answer {
            url: url.to_string(),
            status: head.status.as_u16(),
            headers: head.headers,
            body,
            token: token.cloned(),
        })
    }
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

/// Why there is no whole answer. Carries neither headers nor the URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    reason: String,
    too_large: bool,
}

impl Failure {
    /// Whether the answer was larger than [`Limits::body`].
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.too_large
    }

    fn new(error: ureq::Error, limits: &Limits) -> Failure {
        use ureq::{Error, Timeout};
        let too_large = matches!(error, Error::BodyExceedsLimit(_));
        let reason = match error {
            Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
                format!("no connection within {}", seconds(limits.connect))
            }
            Error::Timeout(_) => format!("no whole answer within {}", seconds(limits.whole)),
            Error::HostNotFound => "the host's name is not known".to_string(),
            Error::BodyExceedsLimit(n) => format!("the answer is larger than {n} bytes"),
            Error::Io(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                "the connection ended in the middle of the answer".to_string()
            }
            Error::Io(e) => e.to_string(),
            // What a proxy or an odd URL said may repeat what it was given.
            Error::BadUri(_) => "the URL is not valid".to_string(),
            Error::Http(_) => "the request cannot be written as HTTP".to_string(),
            Error::ConnectProxyFailed(_) => "the proxy refused the connection".to_string(),
            Error::InvalidProxyUrl => "the proxy's URL is not valid".to_string(),
            other => other.to_string(),
        };
        Failure { reason, too_large }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Failure {}

/// `60 s`, `1.5 s`.
fn seconds(d: Duration) -> String {
    format!("{} s", d.as_secs_f64())
}

/// Where `reference` leads when it stands in an answer from `base`: an
/// absolute URL, or a path from the root. Other forms are not used by any
/// tracker and give `None`.
#[must_use]
pub fn resolve(base: &str, reference: &str) -> Option<String> {
    let reference = reference.trim();
    let scheme_end = base.find("://")?;
    if reference.starts_with("http://") || reference.starts_with("https://") {
        return Some(reference.to_string());
    }
    if reference.starts_with("//") {
        return Some(format!("{}:{reference}", &base[..scheme_end]));
    }
    if reference.starts_with('/') {
        let authority = scheme_end + 3;
        let end = base[authority..]
            .find(['/', '?', '#'])
            .map_or(base.len(), |at| authority + at);
        return Some(format!("{}{reference}", &base[..end]));
    }
    None
}

/// Whether both URLs have the same scheme, host and port.
#[must_use]
pub fn same_origin(a: &str, b: &str) -> bool {
    matches!((origin(a), origin(b)), (Some(a), Some(b)) if a == b)
}

fn origin(url: &str) -> Option<(String, String, u16)> {
    let uri: Uri = url.parse().ok()?;
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let port = uri.port_u16().or(match scheme.as_str() {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    })?;
    Some((scheme, uri.host()?.to_ascii_lowercase(), port))
}

/// The host of a URL, without its port, in lower case.
#[must_use]
pub fn host(url: &str) -> Option<String> {
    origin(url).map(|(_, host, _)| host)
}

/// The path of a URL, without its query: what may be shown to the user.
#[must_use]
pub fn path(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    let rest = &url[start..];
    let rest = rest.find('/').map_or("/", |at| &rest[at..]);
    rest.split(['?', '#']).next().unwrap_or(rest)
}

/// Whether a URL's host is this machine by name or number.
fn is_loopback(url: &str) -> bool {
    host(url).is_some_and(|host| {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        bare == "localhost"
            || bare
                .parse::<std::net::IpAddr>()
                .is_ok_and(|ip| ip.is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r7_4_a_secret_prints_nowhere() {
        let secret = Secret::new("t0ken-example");
        assert!(!format!("{secret:?} {:#?}", Some(&secret)).contains("t0ken"));
    }

    #[test]
    fn c026_an_origin_is_scheme_host_and_port() {
        assert!(same_origin("https://a.test/x?y", "https://A.test:443/z"));
        assert!(same_origin("http://127.0.0.1:80/", "http://127.0.0.1"));
        for other in [
            "http://a.test/x",
            "https://b.test/x",
            "https://a.test:444/x",
            "https://a.test@evil.test/x",
            "https://a.test.evil.test/x",
            "/x",
            "",
        ] {
            assert!(!same_origin("https://a.test/x", other), "{other}");
        }
        assert!(same_origin("https://a.test/", "https://someone@a.test/"));
    }

    #[test]
    fn references_resolve_against_what_was_asked() {
        let base = "https://a.test:8443/repos/o/r/issues?page=1";
        let to = |r| resolve(base, r);
        assert_eq!(
            to("/repositories/1").as_deref(),
            Some("https://a.test:8443/repositories/1")
        );
        assert_eq!(to("https://b.test/x").as_deref(), Some("https://b.test/x"));
        assert_eq!(to("//b.test/x").as_deref(), Some("https://b.test/x"));
        assert_eq!(to("issues?page=2"), None);
        assert_eq!(to("ftp://b.test/x"), None);
        assert_eq!(
            resolve("http://a.test?x", "/y").as_deref(),
            Some("http://a.test/y")
        );
    }

    #[test]
    fn what_is_shown_of_a_url_has_no_query() {
        assert_eq!(path("https://u:p@a.test/x/y?token=z"), "/x/y");
        assert_eq!(path("https://a.test"), "/");
        assert_eq!(host("https://A.test:1/x").as_deref(), Some("a.test"));
    }

    #[test]
    fn c083_loopback_is_told_by_name_and_number() {
        for url in [
            "http://localhost:1/",
            "http://127.9.9.9/",
            "http://[::1]:80/",
        ] {
            assert!(is_loopback(url), "{url}");
        }
        for url in [
            "http://localhost.test/",
            "http://128.0.0.1/",
            "http://[::2]/",
        ] {
            assert!(!is_loopback(url), "{url}");
        }
    }
}
