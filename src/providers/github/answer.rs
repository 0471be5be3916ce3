//! What an answer of GitHub's means: rows, or the reason why there are none.

use crate::engine::listing::Cut;
use crate::engine::time::Time;
use crate::net::{self, Answer};
use crate::providers::json;
use serde_json::Value;

/// The server's clock when it answered.
pub fn date(answer: &Answer) -> Option<Time> {
    answer.date().map(Time::from)
}

/// The next page, if the answer names one.
pub fn next_page(answer: &Answer) -> Option<String> {
    answer
        .headers("link")
        .flat_map(links)
        .find(|(_, parameters)| {
            parameters.split(';').any(|p| {
                let value = p.trim().strip_prefix("rel=").unwrap_or_default();
                value.trim_matches('"').split(' ').any(|rel| rel == "next")
            })
        })
        .map(|(target, _)| target.to_string())
}

/// The `<target>; parameters` of a Link header; a target may contain commas.
fn links(header: &str) -> Vec<(&str, &str)> {
    let mut links = Vec::new();
    let mut rest = header;
    while let Some((target, after)) = rest
        .split_once('<')
        .and_then(|(_, rest)| rest.split_once('>'))
    {
        let end = after.find('<').unwrap_or(after.len());
        links.push((target, after[..end].trim_end_matches([' ', ','])));
        rest = &after[end..];
    }
    links
}

/// Why an answer other than 200 ends the listing. `not_before` is until when it has
/// us wait, and `access` says what the request was let in with: `the token file …`.
pub fn refusal(answer: &Answer, not_before: Option<Time>, access: &str) -> Cut {
    let what = format!("GET {}", net::path(&answer.url));
    let said = message(answer);
    let colon = if said.is_empty() { "" } else { ": " };
    let mut reason = format!("{what} answered {}{colon}{said}", answer.status);
    if let Some(not_before) = not_before {
        reason.push_str(&format!("; rate limited, waiting until {not_before}"));
        return Cut {
            reason,
            not_before: Some(not_before),
        };
    }
    match answer.status {
        300..=399 => {
            let to = answer.header("location").unwrap_or("nowhere");
            let to = net::resolve(&answer.url, to)
                .and_then(|url| net::host(&url))
                .unwrap_or_else(|| "an odd place".to_string());
            reason.push_str(&format!(
                " (to {}); only redirects within the configured host are followed",
                shown(answer, &to)
            ));
        }
        401 => reason.push_str(&format!("; check {access}")),
        403 => {
            reason.push_str(&format!("; what may be read depends on {access}"));
            if let Some(needed) = answer.header("x-accepted-github-permissions") {
                reason.push_str(&format!(", and this needs {}", shown(answer, needed)));
            }
        }
        404 => reason.push_str(&format!(
            "; check the repository's name, and whether it can be read with {access}"
        )),
        410 => reason.push_str("; check that issues are enabled in the repository"),
        _ => {}
    }
    Cut::because(reason)
}

/// Why an answer that should hold JSON of some shape does not.
pub fn unreadable(answer: &Answer, wanted: &str, why: &serde_json::Error) -> Cut {
    let what = format!("GET {}", net::path(&answer.url));
    let kind = answer.header("content-type").unwrap_or("no content type");
    Cut::because(if kind.contains("json") {
        let said = message(answer);
        if said.is_empty() {
            format!("{what} did not answer {wanted}: {why}")
        } else {
            format!("{what} did not answer {wanted}: {said}")
        }
    } else {
        format!(
            "{what} answered {}, not JSON: is a proxy or a login page in between?",
            shown(answer, kind)
        )
    })
}

/// GitHub's own words on an error, made fit to be shown.
pub fn message(answer: &Answer) -> String {
    json::parse::<Value>(&json::mend(&answer.body))
        .ok()
        .and_then(|body| Some(shown(answer, body.get("message")?.as_str()?)))
        .unwrap_or_default()
}

/// A text from the server as it may be shown: without our token, and harmless.
pub fn shown(answer: &Answer, text: &str) -> String {
    harmless(&answer.without_token(text))
}

/// A text, bounded, and without anything a terminal obeys.
fn harmless(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(200)
        .flat_map(|c| {
            let plain = !c.is_control() && !matches!(c, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            let escaped = (!plain).then(|| c.escape_unicode());
            plain.then_some(c).into_iter().chain(escaped.into_iter().flatten())
        })
        .collect();
    if text.chars().nth(200).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Any header is read without a panic, and a link in it is found whatever is beside it.
        #[test]
        fn a_link_is_found_among_any_others(
            before in "[ -;=-~]{0,30}", target in "[!-;=?-~]{1,40}", rel in "[ -;=?-~]{0,20}", after in "[ -~]{0,30}",
        ) {
            links(&after);
            let header = format!("{before}<{target}>; rel=\"{rel}\", <{after}");
            let parameters = format!("; rel=\"{rel}\"");
            prop_assert_eq!(links(&header)[0], (&*target, &*parameters));
        }
    }

    #[test]
    fn links_are_found_whatever_stands_around_them() {
        let one =
            links(r#"<https://a.test/x?a=1,2&page=2>; rel="next", <https://a.test/x>; rel="last""#);
        assert_eq!(
            one,
            [
                ("https://a.test/x?a=1,2&page=2", r#"; rel="next""#),
                ("https://a.test/x", r#"; rel="last""#)
            ]
        );
        for odd in ["", "<", "<>", "no link", "<https://a.test", "<a><b>"] {
            links(odd);
        }
    }

    #[test]
    fn c052_c054_what_a_server_says_is_bounded_and_harmless() {
        assert_eq!(
            harmless("a\u{1b}]52;c\u{7}\u{9b}\u{202e}é"),
            r"a\u{1b}]52;c\u{7}\u{9b}\u{202e}é"
        );
        let long: String = "é".repeat(300);
        assert_eq!(harmless(&long).chars().count(), 201);
    }
}
