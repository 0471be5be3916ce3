//! Which proxy leads to a URL, as the environment says it and `curl` reads it.
//!
//! `ureq` knows these variables too, but it takes any of them for any URL,
//! compares hosts letter by letter, and knows neither networks nor ports.

use super::url;
use crate::mutant;
use std::net::IpAddr;
use ureq::{Proxy, ProxyProtocol};

/// What the environment says about proxies.
#[derive(Debug, Default)]
pub(super) struct Proxies {
    /// The proxy for https, and the variable that names it.
    https: Option<(&'static str, Result<Proxy, &'static str>)>,
    /// What is reached without it.
    direct: Vec<Entry>,
}

/// One entry of `NO_PROXY`.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    host: Host,
    port: Option<u16>,
}

#[derive(Debug, PartialEq, Eq)]
enum Host {
    Any,
    /// This name and all below it; in lower case.
    Name(String),
    /// The addresses that share so many leading bits.
    Network(IpAddr, u32),
}

impl Proxies {
    /// Reads the variables through `var`. One that is empty says "none".
    pub(super) fn read(var: impl Fn(&str) -> Option<String>) -> Proxies {
        let first = |names: [&'static str; 4]| {
            names
                .into_iter()
                .find_map(|name| Some((name, var(name)?)))
                .filter(|(_, value)| !value.trim().is_empty())
        };
        let https = first(["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]);
        let direct = var("no_proxy").or_else(|| var("NO_PROXY"));
        Proxies {
            https: https.map(|(name, value)| (name, proxy(value.trim()))),
            direct: direct
                .unwrap_or_default()
                .split([',', ' ', '\t'])
                .filter_map(Entry::read)
                .collect(),
        }
    }

    /// The proxy for `url`; `None` to go there directly.
    ///
    /// # Errors
    /// When the variable for it holds no proxy we could use. Names it, not its value.
    pub(super) fn lead_to(&self, url: &str) -> Result<Option<&Proxy>, String> {
        let Some((variable, proxy)) = &self.https else {
            return Ok(None);
        };
        // Plain http goes directly: loopback, and sinks near by.
        if url::is_loopback(url) || !url.starts_with("https://") {
            return Ok(None);
        }
        let host = url::host(url).unwrap_or_default();
        if self
            .direct
            .iter()
            .any(|entry| entry.covers(&host, url::port(url)))
        {
            return Ok(None);
        }
        match proxy {
            Ok(proxy) => Ok(Some(proxy)),
            Err(why) => Err(format!("the proxy in {variable} cannot be used: {why}")),
        }
    }
}

fn proxy(value: &str) -> Result<Proxy, &'static str> {
    let proxy = Proxy::new(value).map_err(|_| "it is not http://[USER:PASSWORD@]HOST:PORT")?;
    match proxy.protocol() {
        ProxyProtocol::Http | ProxyProtocol::Https => Ok(proxy),
        _ => Err("SOCKS is not supported"),
    }
}

impl Entry {
    fn read(text: &str) -> Option<Entry> {
        let text = text.trim().trim_end_matches('.').to_ascii_lowercase();
        if text.is_empty() {
            return None;
        }
        if text == "*" {
            return Some(Entry::of(Host::Any));
        }
        if let Some((address, bits)) = text.split_once('/') {
            let address: IpAddr = bare(address).parse().ok()?;
            let bits = bits.parse().ok().filter(|bits| *bits <= width(address))?;
            return Some(Entry::of(Host::Network(address, bits)));
        }
        if let Ok(address) = bare(&text).parse() {
            return Some(Entry::of(Host::Network(address, width(address))));
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (text.as_str(), None),
        };
        let host = match bare(host).parse() {
            Ok(address) => Host::Network(address, width(address)),
            Err(_) => Host::Name(
                host.trim_start_matches('*')
                    .trim_start_matches('.')
                    .to_string(),
            ),
        };
        Some(Entry { host, port })
    }

    fn of(host: Host) -> Entry {
        Entry { host, port: None }
    }

    /// Whether `host`, in lower case, is reached directly by this entry.
    fn covers(&self, host: &str, port: Option<u16>) -> bool {
        if self.port.is_some() && self.port != port {
            return false;
        }
        let address: Option<IpAddr> = bare(host).parse().ok();
        match (&self.host, address) {
            (Host::Any, _) => true,
            (Host::Network(network, bits), Some(address)) => shares(*network, address, *bits),
            (Host::Name(name), None) => {
                let host = host.trim_end_matches('.');
                host == name
                    || !mutant::is("no-proxy-letter-by-letter")
                        && host
                            .strip_suffix(name.as_str())
                            .is_some_and(|below| below.ends_with('.'))
            }
            _ => false,
        }
    }
}

/// An address without the brackets that IPv6 has in a URL.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// How many bits an address has.
fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Whether two addresses of one kind have their first `bits` in common.
fn shares(a: IpAddr, b: IpAddr, bits: u32) -> bool {
    let number = |address| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    };
    let differ = number(a) ^ number(b);
    a.is_ipv4() == b.is_ipv4() && differ.leading_zeros().min(width(a)) >= bits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The proxy for a URL with these variables, as `user:password@host:port`.
    fn lead(vars: &[(&str, &str)], url: &str) -> Result<Option<String>, String> {
        let find = |name: &str| {
            let found = vars.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| value.to_string())
        };
        let proxies = Proxies::read(find);
        let shown = |p: &Proxy| {
            let (user, password) = (p.username().unwrap_or("-"), p.password().unwrap_or("-"));
            format!("{user} {password} {}:{}", p.host(), p.port())
        };
        Ok(proxies.lead_to(url)?.map(shown))
    }

    /// Given the variables for proxies in either case, when a URL is asked for, then
    /// the one is used that `curl` would use (C083).
    #[test]
    fn c083_the_proxy_is_the_one_curl_would_use() {
        let url = "https://api.github.com/x";
        let first = |vars: &[_]| {
            lead(vars, url).map(|p| p.map(|p| p.split(' ').nth(2).unwrap_or("").to_string()))
        };
        let is = |name: &str| Ok(Some(name.to_string()));
        assert_eq!(first(&[]), Ok(None));
        assert_eq!(first(&[("HTTPS_PROXY", "http://a:1")]), is("a:1"));
        assert_eq!(
            first(&[("HTTPS_PROXY", "http://a:1"), ("https_proxy", "b:2")]),
            is("b:2")
        );
        assert_eq!(first(&[("ALL_PROXY", "http://a:1")]), is("a:1"));
        assert_eq!(
            first(&[("ALL_PROXY", "http://a:1"), ("HTTPS_PROXY", "http://b:2")]),
            is("b:2")
        );
        assert_eq!(
            first(&[("ALL_PROXY", "http://a:1"), ("https_proxy", "")]),
            Ok(None)
        );
        assert_eq!(
            first(&[("HTTP_PROXY", "http://a:1"), ("http_proxy", "http://a:1")]),
            Ok(None)
        );
        assert_eq!(first(&[("HTTPS_PROXY", "https://a")]), is("a:443"));
        for local in [
            "https://localhost/",
            "https://127.0.0.9:1/",
            "https://[::1]/",
        ] {
            assert_eq!(
                lead(&[("HTTPS_PROXY", "http://a:1")], local),
                Ok(None),
                "{local}"
            );
        }
        for (odd, why) in [
            ("socks5://sam:hunter2@a:1", "SOCKS is not supported"),
            ("http://", "is not http://"),
            ("ftp://hunter2@a", "is not http://"),
        ] {
            let e = lead(&[("HTTPS_PROXY", odd)], url).expect_err(odd);
            assert!(e.contains("HTTPS_PROXY") && e.contains(why), "{e}");
            assert!(!e.contains("hunter2"), "{e}");
        }
    }

    /// Given entries of `NO_PROXY` in all their forms, when a host is asked for, then it is
    /// reached directly if one of them covers it (C083).
    #[test]
    fn c083_what_no_proxy_covers_is_reached_directly() {
        let direct = |list: &str, url: &str| {
            let vars = [("HTTPS_PROXY", "http://proxy:1"), ("NO_PROXY", list)];
            lead(&vars, url).expect("a good proxy").is_none()
        };
        for (list, url, covered) in [
            ("example.test", "https://example.test/", true),
            ("example.test", "https://Hooks.Example.TEST/x", true),
            (".example.test", "https://example.test", true),
            (".example.test", "https://a.b.example.test", true),
            ("*.example.test", "https://a.example.test", true),
            ("EXAMPLE.test.", "https://a.example.test", true),
            ("example.test", "https://badexample.test", false),
            ("example.test", "https://example.test.evil.test", false),
            ("a.example.test", "https://example.test", false),
            ("x.test,10.0.0.0/8", "https://10.1.2.3/", true),
            ("10.0.0.0/8", "https://11.1.2.3/", false),
            ("10.0.0.0/33", "https://10.1.2.3/", false),
            ("10.1.2.3", "https://10.1.2.3:8443/", true),
            ("2.3", "https://10.1.2.3/", false),
            ("0.0.0.0/0", "https://10.1.2.3/", true),
            ("0.0.0.0/0", "https://[2001:db8::1]/", false),
            ("2001:db8::/32", "https://[2001:db8:1::1]/", true),
            ("2001:db8::/32", "https://[2001:db9::1]/", false),
            ("[2001:db8::1]:8443", "https://[2001:db8::1]:8443/", true),
            ("[2001:db8::1]:8443", "https://[2001:db8::1]/", false),
            ("example.test:8443", "https://a.example.test:8443/", true),
            ("example.test:443", "https://a.example.test/", true),
            ("example.test:8443", "https://a.example.test/", false),
            ("a.test b.test", "https://b.test", true),
            ("*", "https://example.test/", true),
            ("a.test, *", "https://example.test/", true),
            ("", "https://example.test/", false),
            (", ,:,/,*:x", "https://example.test/", false),
        ] {
            assert_eq!(direct(list, url), covered, "{list} for {url}");
        }
        let both = [
            ("https_proxy", "p"),
            ("NO_PROXY", "*"),
            ("no_proxy", "b.test"),
        ];
        assert!(lead(&both, "https://a.test").expect("good").is_some());
    }

    /// Given a proxy whose user and password are percent-encoded, when it is read, then they
    /// are decoded (C084).
    #[test]
    fn c084_user_and_password_of_a_proxy_are_decoded() {
        let vars = [("HTTPS_PROXY", "http://svc%40corp:p%3A%2Fq@proxy.test:3128")];
        let lead = lead(&vars, "https://a.test");
        assert_eq!(lead, Ok(Some("svc@corp p:/q proxy.test:3128".to_string())));
    }
}
