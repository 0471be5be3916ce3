//! Why there is no whole answer.

use super::{Limits, tls};
use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;
use ureq::{Error, Timeout};

/// Why there is no whole answer. Carries neither headers nor the URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    reason: String,
    too_large: bool,
    ours: bool,
}

/// What Linux says when a process, or the machine, has no descriptor left.
const NO_DESCRIPTOR: [i32; 2] = [24, 23];

impl Failure {
    /// Whether it is trouble of this machine's, and nothing was sent: whom to trust cannot be read,
    /// or there is no descriptor, thread or memory left.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.ours
    }

    /// Whether the answer was larger than [`Limits::body`].
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.too_large
    }

    /// A failure before anything was asked.
    pub(super) fn because(reason: String) -> Failure {
        Failure {
            reason,
            too_large: false,
            ours: true,
        }
    }

    /// `via` is the proxy in between: `proxy.example.org:3128`.
    pub(super) fn new(error: Error, limits: &Limits, via: Option<String>) -> Failure {
        let too_large = matches!(error, Error::BodyExceedsLimit(_));
        let ours = matches!(&error, Error::Io(e) if e.kind() == ErrorKind::OutOfMemory
            || e.raw_os_error().is_some_and(|errno| NO_DESCRIPTOR.contains(&errno)));
        let mut reason = match error {
            Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
                format!("no connection within {}", seconds(limits.connect))
            }
            Error::Timeout(_) => format!("no whole answer within {}", seconds(limits.whole)),
            Error::HostNotFound => "the host's name is not known".to_string(),
            Error::BodyExceedsLimit(n) => format!("the answer is larger than {n} bytes"),
            Error::Io(e) => match tls::reason(&e) {
                Some(reason) => reason,
                None if e.kind() == ErrorKind::UnexpectedEof => {
                    "the connection ended in the middle of the answer".to_string()
                }
                None => e.to_string(),
            },
            // What a proxy or an odd URL said may repeat what it was given.
            Error::BadUri(_) => "the URL is not valid".to_string(),
            Error::Http(_) => "the request cannot be written as HTTP".to_string(),
            Error::ConnectProxyFailed(said) => refused(&said),
            Error::InvalidProxyUrl => "the proxy's URL is not valid".to_string(),
            other => other.to_string(),
        };
        if let Some(proxy) = via {
            reason = format!("through the proxy {proxy}: {reason}");
        }
        Failure {
            reason,
            too_large,
            ours,
        }
    }
}

/// A proxy's refusal, of which only the status is taken.
fn refused(said: &str) -> String {
    let status = said
        .split(|c: char| !c.is_ascii_digit())
        .find(|digits| digits.len() == 3);
    match status {
        Some("407") => "the proxy wants a user and a password, or other ones (407)".to_string(),
        Some(status) => format!("the proxy refused the connection ({status})"),
        None => "the proxy refused the connection".to_string(),
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
