//! From a host's name to its addresses.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// As many addresses are tried as `ureq` has room for.
const ADDRESSES: usize = 16;

/// Asks the system, on a thread of its own that is left behind when it takes too long. Unlike the resolver that
/// comes with `ureq` it asks nobody about an address, and does not panic when there can be no thread.
#[derive(Debug, Default)]
pub(super) struct Lookup;

impl Resolver for Lookup {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let name = uri
            .scheme()
            .zip(uri.authority())
            .and_then(|(scheme, authority)| DefaultResolver::host_and_port(scheme, authority))
            .ok_or_else(|| ureq::Error::BadUri("no host".to_string()))?;
        let found = match name.parse::<SocketAddr>() {
            Ok(address) => vec![address],
            Err(_) => asked(name, timeout)?,
        };
        let mut addresses = self.empty();
        let family = config.ip_family();
        for address in family.keep_wanted(found.into_iter()).take(ADDRESSES) {
            addresses.push(address);
        }
        match addresses.is_empty() {
            true => Err(ureq::Error::HostNotFound),
            false => Ok(addresses),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "nobody can end a question to the system; it is left behind with its thread"
)]
fn asked(name: String, timeout: NextTimeout) -> Result<Vec<SocketAddr>, ureq::Error> {
    let (tell, told) = mpsc::sync_channel(1);
    let ask = move || {
        let found = name.to_socket_addrs().map(Iterator::collect);
        let _ = tell.send(found);
    };
    thread::Builder::new().spawn(ask).map_err(|e| {
        let reason = format!("cannot start a thread to look up the name: {e}");
        io::Error::new(io::ErrorKind::OutOfMemory, reason)
    })?;
    match told.recv_timeout(*timeout.after) {
        Ok(found) => Ok(found?),
        Err(RecvTimeoutError::Timeout) => Err(ureq::Error::Timeout(timeout.reason)),
        Err(RecvTimeoutError::Disconnected) => Err(ureq::Error::HostNotFound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ureq::unversioned::transport::time::Duration;

    fn look_up(url: &str) -> Result<Vec<SocketAddr>, ureq::Error> {
        let timeout = NextTimeout {
            after: Duration::from_secs(30),
            reason: ureq::Timeout::Resolve,
            per_read: None,
            per_write: None,
        };
        let found = Lookup.resolve(
            &url.parse().expect("a URL"),
            &Config::builder().build(),
            timeout,
        )?;
        Ok(found.iter().copied().collect())
    }

    /// An address is itself, with its scheme's port if none is said; a name is asked for.
    #[test]
    fn an_address_is_not_asked_for_and_a_name_is() {
        let one = |text: &str| vec![text.parse::<SocketAddr>().expect("an address")];
        assert_eq!(
            look_up("http://192.0.2.7/x").ok(),
            Some(one("192.0.2.7:80"))
        );
        assert_eq!(
            look_up("https://[2001:db8::1]:8443/").ok(),
            Some(one("[2001:db8::1]:8443"))
        );
        let local = look_up("http://localhost:81/").expect("it is known");
        assert!(local.iter().all(|a| a.ip().is_loopback() && a.port() == 81));
        let unknown = look_up("http://nobody.invalid/");
        assert!(matches!(
            unknown,
            Err(ureq::Error::Io(_) | ureq::Error::HostNotFound)
        ));
    }
}
