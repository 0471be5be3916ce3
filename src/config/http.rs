//! The rules for an `http` sink.

use super::checked::{Format, Http, SecretFrom};
use super::keys;
use super::rules::Rules;
use super::source::is_variable;
use super::spot::{Section, Spot};
use super::{secret, url};
use std::path::PathBuf;
use std::time::Duration;

/// Header fields that are ours, or the connection's.
const OURS: &[&str] = &[
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-hub-signature",
    "x-hub-signature-256",
];

/// And those that begin so.
const OURS_BEGIN: &[&str] = &["x-github-", "x-idempoll-", "proxy-"];

/// Header fields that let somebody in.
const SECRET: &[&str] = &["authorization", "cookie"];

impl Rules<'_> {
    pub(super) fn http(&self, section: &Section) -> Option<Http> {
        let url = section.need("url").and_then(|spot| {
            let text = spot.text()?;
            url::sink_url(&text).map_err(|why| spot.wrong(why)).ok()
        });
        let format = match section.get("format") {
            Some(spot) => match spot.text()?.as_str() {
                "idempoll" => Some(Format::Idempoll),
                "github" => Some(Format::GitHub),
                other => {
                    spot.wrong(format!(
                        "must be \"idempoll\" or \"github\", not '{}'",
                        other.escape_debug()
                    ));
                    None
                }
            },
            None => Some(Format::Idempoll),
        };
        let secret = self.secret(section);
        let timeout = match section.get("timeout_seconds") {
            Some(spot) => spot.number(keys::HTTP_TIMEOUT),
            None => Some(30.0),
        };
        let ca_file = section.get("ca_file").map(|spot| self.path(&spot));
        let mut names = Vec::new();
        let headers = self.headers(section, "headers", &mut names, |name, spot| {
            let value = spot.text()?;
            header_value(name, &value, &spot).then_some(value)
        });
        let header_files: Option<Vec<(String, PathBuf)>> =
            self.headers(section, "header_files", &mut names, |_, spot| {
                self.path(&spot)
            });
        Some(Http {
            url: url?,
            format: format?,
            secret: secret?,
            headers: headers?,
            header_files: header_files?,
            timeout: Duration::from_secs_f64(timeout?),
            ca_file: match ca_file {
                Some(path) => Some(path?),
                None => None,
            },
        })
    }

    /// Where the secret comes from, if there is one; the outer `None` is a mistake.
    fn secret(&self, section: &Section) -> Option<Option<SecretFrom>> {
        let file = section.get("secret_file");
        let env = section.get("secret_env");
        match (file, env) {
            (Some(_), Some(second)) => {
                second.wrong("only one of secret_file and secret_env may be given");
                None
            }
            (Some(spot), None) => Some(Some(SecretFrom::File(self.path(&spot)?))),
            (None, Some(spot)) => {
                let name = spot.text()?;
                is_variable(&spot, &name).then_some(Some(SecretFrom::Env(name)))
            }
            (None, None) => Some(None),
        }
    }

    /// The header fields under `key`, in the order of the file; `names` are those given so far.
    fn headers<T>(
        &self,
        section: &Section,
        key: &str,
        names: &mut Vec<String>,
        value: impl Fn(&str, Spot) -> Option<T>,
    ) -> Option<Vec<(String, T)>> {
        let Some(spot) = section.get(key) else {
            return Some(Vec::new());
        };
        let mut fields = Vec::new();
        for (name, spot) in spot.section()?.values() {
            let lower = name.to_ascii_lowercase();
            if !is_field(name) {
                spot.wrong("is not the name of a header field");
            } else if OURS.contains(&lower.as_str())
                || OURS_BEGIN.iter().any(|begin| lower.starts_with(begin))
            {
                spot.wrong("this header field is set by idempoll itself");
            } else if names.contains(&lower) {
                spot.wrong("this header field was given already; letter case does not count");
            } else {
                names.push(lower);
                fields.push(value(name, spot).map(|value| (name.to_string(), value)));
            }
        }
        fields.into_iter().collect()
    }
}

/// Whether `value` may stand in the config as the value of the field `name`; says why not.
fn header_value(name: &str, value: &str, spot: &Spot) -> bool {
    if SECRET.contains(&name.to_ascii_lowercase().as_str()) || secret::looks_like_a_token(value) {
        spot.wrong("a secret must not stand in the config; put the value into a file and name that under header_files");
        return false;
    }
    let ok = value.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
    if !ok {
        spot.wrong("has characters in it that a header field cannot have");
    }
    ok
}

/// Whether `name` can be the name of a header field (a token of RFC 9110).
fn is_field(name: &str) -> bool {
    let extra = b"!#$%&'*+-.^_`|~";
    !name.is_empty()
        && name.len() <= 100
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || extra.contains(&b))
}
