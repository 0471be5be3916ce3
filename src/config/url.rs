//! The base address of a tracker's API.

use crate::engine::item::is_plain_name;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Checks a base URL and gives it in one form: host in lower case, no slash at the end.
///
/// # Errors
/// What is wrong, without repeating the URL: it may hold a password.
pub(super) fn base_url(url: &str) -> Result<String, String> {
    let (scheme, rest) = url.split_once("://").ok_or("must begin with https://")?;
    let scheme = scheme.to_ascii_lowercase();
    if scheme != "https" && scheme != "http" {
        return Err("must begin with https://".into());
    }
    if !rest.bytes().all(|b| b.is_ascii_graphic()) || rest.contains(['\\', '"', '<', '>', '^', '`'])
    {
        return Err("has characters in it that a URL cannot have".into());
    }
    if rest.contains(['?', '#']) {
        return Err("must end before any ? or #".into());
    }
    let (authority, path) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => (rest, ""),
    };
    if authority.contains('@') {
        return Err(
            "must not hold a name or password; name where the token is with token_env, token_file or token_command"
                .into(),
        );
    }
    let (host, port) = split_port(authority)?;
    let host = host.to_ascii_lowercase();
    if scheme == "http" && !is_loopback(&host) {
        return Err("must be https: over http the token could be read on the way".into());
    }
    let path = path.trim_end_matches('/');
    if path.split('/').any(|part| part == "." || part == "..") || path.contains("//") {
        return Err("must not have '//', '.' or '..' in its path".into());
    }
    if matches!(host.as_str(), "github.com" | "www.github.com") {
        return Err("is GitHub's web site; its API is https://api.github.com".into());
    }
    if host == "api.github.com" && !path.is_empty() {
        return Err("must be https://api.github.com without a path".into());
    }
    if let Some(tenant) = host.strip_suffix(".ghe.com")
        && !tenant.contains('.')
    {
        return Err(format!(
            "is a web site; its API is https://api.{tenant}.ghe.com"
        ));
    }
    Ok(format!("{scheme}://{host}{port}{path}"))
}

/// Checks the URL of a sink and gives it with scheme and host in lower case.
///
/// # Errors
/// What is wrong, without repeating the URL: it may hold a password.
pub(super) fn sink_url(url: &str) -> Result<String, String> {
    const SCHEMES: &str = "must begin with http:// or https://";
    let (scheme, rest) = url.split_once("://").ok_or(SCHEMES)?;
    let scheme = scheme.to_ascii_lowercase();
    if scheme != "https" && scheme != "http" {
        return Err(SCHEMES.into());
    }
    if !rest.bytes().all(|b| b.is_ascii_graphic()) || rest.contains(['\\', '"', '<', '>', '^', '`'])
    {
        return Err("has characters in it that a URL cannot have".into());
    }
    if rest.contains('#') {
        return Err("must end before any #".into());
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains('@') {
        return Err("must not hold a name or password; put the value of Authorization into a file and name that under header_files".into());
    }
    let authority = authority.to_ascii_lowercase();
    match authority
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        Some((address, port)) if address.parse::<Ipv6Addr>().is_ok() => {
            is_port(port)?;
        }
        _ => {
            split_port(&authority)?;
        }
    }
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok(format!("{scheme}://{authority}{slash}{path}"))
}

/// Whether `port` is `:port`, or nothing.
fn is_port(port: &str) -> Result<(), String> {
    match port.strip_prefix(':') {
        None if port.is_empty() => Ok(()),
        Some(digits)
            if digits.bytes().all(|b| b.is_ascii_digit())
                && digits.parse::<u16>().is_ok_and(|p| p > 0) =>
        {
            Ok(())
        }
        _ => Err("has a port that is not a number from 1 to 65535".into()),
    }
}

/// Why a checked base URL is most likely not meant, if so.
pub(super) fn doubt(base_url: &str) -> Option<String> {
    let host = host(base_url);
    let bare = base_url.matches('/').count() == 2;
    let api = host.starts_with("api.") || is_loopback(host);
    (bare && !api).then(|| format!("the API of an Enterprise Server is {base_url}/api/v3"))
}

/// The host of a checked base URL, without its port: what tells two trackers apart.
pub(super) fn host(base_url: &str) -> &str {
    let rest = base_url.split_once("://").map_or(base_url, |(_, r)| r);
    let authority = rest.split('/').next().unwrap_or(rest);
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => host,
        _ => authority,
    }
}

/// Host and `:port` (or nothing) of `host:port`.
fn split_port(authority: &str) -> Result<(&str, &str), String> {
    let (host, port) = if authority.starts_with('[') {
        let end = authority
            .find(']')
            .ok_or("has a '[' that is never closed")?
            + 1;
        let (host, port) = authority.split_at(end);
        // A ref names its host, and has no room for the colons of such an address.
        if host[1..end - 1].parse() != Ok(Ipv6Addr::LOCALHOST) {
            return Err("must name the host; of IPv6 addresses only [::1] is allowed".into());
        }
        (host, port)
    } else {
        let at = authority.find(':').unwrap_or(authority.len());
        let (host, port) = authority.split_at(at);
        if !is_plain_name(host) {
            return Err("must name a host after ://".into());
        }
        (host, port)
    };
    is_port(port).map(|()| (host, port))
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host == "[::1]"
        || host.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_come_in_one_form() {
        for (given, form) in [
            ("https://api.github.com", "https://api.github.com"),
            ("https://api.github.com/", "https://api.github.com"),
            (
                "HTTPS://GHE.Example.org/api/v3//",
                "https://ghe.example.org/api/v3",
            ),
            (
                "https://ghe.example.org:8443/api/v3",
                "https://ghe.example.org:8443/api/v3",
            ),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://127.9.9.9", "http://127.9.9.9"),
            ("http://localhost:1/x", "http://localhost:1/x"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
        ] {
            assert_eq!(base_url(given).as_deref(), Ok(form), "{given}");
        }
        assert_eq!(
            host("https://ghe.example.org:8443/api/v3"),
            "ghe.example.org"
        );
        assert_eq!(host("https://api.github.com"), "api.github.com");
        assert_eq!(host("http://[::1]:8080"), "[::1]");
        assert_eq!(host("http://[::1]"), "[::1]");
    }

    #[test]
    fn a_host_without_a_path_is_doubted_unless_it_looks_like_an_api() {
        for url in [
            "https://api.github.com",
            "https://api.octo.ghe.com",
            "https://api.example.org:8443",
            "https://ghe.example.org/api/v3",
            "https://gateway.example.org/github",
            "http://127.0.0.1:8080",
        ] {
            let checked = base_url(url).expect(url);
            assert_eq!(doubt(&checked), None, "{url}");
        }
        let checked = base_url("https://GHE.example.org:8443/").expect("right");
        assert_eq!(
            doubt(&checked).as_deref(),
            Some("the API of an Enterprise Server is https://ghe.example.org:8443/api/v3")
        );
    }

    #[test]
    fn other_urls_are_refused_without_being_repeated() {
        for (given, why) in [
            ("api.github.com", "must begin with https://"),
            ("ftp://api.github.com", "must begin with https://"),
            ("", "must begin with https://"),
            ("https://", "must name a host"),
            ("https:///api", "must name a host"),
            ("https://-x", "must name a host"),
            ("https://sam:hunter2@ghe.example.org", "name or password"),
            ("https://hunter2@ghe.example.org", "name or password"),
            ("https://ghe.example.org?x=hunter2", "before any ? or #"),
            ("https://ghe.example.org/#x", "before any ? or #"),
            ("https://ghe.example.org/a b", "characters"),
            ("https://ghe.example.org\\x", "characters"),
            ("https://ghe.exämple.org", "characters"),
            ("https://ghe.example.org:0", "port"),
            ("https://ghe.example.org:", "port"),
            ("https://ghe.example.org:+8", "port"),
            ("https://ghe.example.org:99999", "port"),
            ("https://[::1", "never closed"),
            ("https://[2001:db8::1]/", "only [::1]"),
            ("https://[::1]x", "port"),
            ("https://ghe.example.org/../x", "'..'"),
            ("https://ghe.example.org/a//b", "'//'"),
            ("http://ghe.example.org", "must be https"),
            ("http://127.0.0.1.example.org", "must be https"),
            ("http://localhost.example.org", "must be https"),
            ("http://10.0.0.1", "must be https"),
            ("http://0x7f.1", "must be https"),
            ("https://github.com", "https://api.github.com"),
            ("https://github.com/api/v3", "https://api.github.com"),
            ("https://api.github.com/api/v3", "without a path"),
            ("https://Octo.ghe.com", "https://api.octo.ghe.com"),
        ] {
            let e = base_url(given).expect_err(given);
            assert!(e.contains(why), "{given}: {e}");
            assert!(!e.contains("hunter2"), "{e}");
        }
    }
}
