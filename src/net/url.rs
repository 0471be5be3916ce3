//! What a URL says: its origin, its path, where another one leads from it.

use ureq::http::Uri;

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

/// The host of a URL as a person tells it from others: with its port if that is not the scheme's own.
#[must_use]
pub fn place(url: &str) -> Option<String> {
    let (scheme, host, port) = origin(url)?;
    let usual = matches!((scheme.as_str(), port), ("http", 80) | ("https", 443));
    Some(if usual {
        host
    } else {
        format!("{host}:{port}")
    })
}

/// The port of a URL, written out or not.
pub(super) fn port(url: &str) -> Option<u16> {
    origin(url).map(|(_, _, port)| port)
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
#[must_use]
pub fn is_loopback(url: &str) -> bool {
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
