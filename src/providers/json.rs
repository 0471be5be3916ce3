//! JSON as trackers write it, not only as the standard asks.
//!
//! Some writers send half of a surrogate pair, bytes that are no UTF-8, or a
//! byte-order mark. One such byte must not cost a page of comments, so each is
//! mended to what a careful reader would show, and what comes out is valid.

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// Mends `bytes` into JSON text that a strict reader takes, if it is JSON at
/// all: a byte-order mark is dropped; what is not UTF-8, and the escape of
/// half a surrogate pair, become U+FFFD.
#[must_use]
pub fn mend(bytes: &[u8]) -> Cow<'_, str> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = String::from_utf8_lossy(bytes);
    match mend_surrogates(&text) {
        Some(mended) => Cow::Owned(mended),
        None => text,
    }
}

/// Reads a value of type `T` from mended `text` (see [`mend`]).
///
/// # Errors
/// When it is not whole JSON, or JSON of another shape.
pub fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, serde_json::Error> {
    serde_json::from_str(text)
}

/// Splits a mended list into the texts of its elements, so that one element
/// nobody can read costs that one only.
///
/// # Errors
/// When it is not a whole JSON list.
pub fn elements(text: &str) -> Result<Vec<&RawValue>, serde_json::Error> {
    serde_json::from_str(text)
}

/// The fields of a JSON object in their order, each value as it was written.
#[derive(Debug, Clone)]
pub struct Fields(pub Vec<(String, Box<RawValue>)>);

impl Fields {
    /// Reads an object; `None` if `text` is none.
    #[must_use]
    pub fn read(text: &str) -> Option<Fields> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Fields, M::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        let mut reader = serde_json::Deserializer::from_str(text);
        let fields = reader.deserialize_map(InOrder).ok()?;
        reader.end().ok()?;
        Some(fields)
    }

    /// Puts what `change` makes of a field's value in its place; `None` leaves it.
    pub fn change(&mut self, key: &str, change: impl Fn(&str) -> Option<String>) {
        for (_, value) in self.0.iter_mut().filter(|(name, _)| name == key) {
            if let Some(new) = change(value.get())
                && let Ok(new) = RawValue::from_string(new)
            {
                *value = new;
            }
        }
    }

    /// The object, written without blanks between its fields.
    #[must_use]
    pub fn text(&self) -> String {
        let fields = self.0.iter();
        let fields = fields.map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), value));
        format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
    }
}

/// Replaces the `\uXXXX` of half surrogate pairs; `None` if there are none.
fn mend_surrogates(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out: Option<String> = None;
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|&b| b == b'\\') {
        at += found;
        match surrogate(bytes, at) {
            // A backslash takes the next byte along, so that `\\ud83d` is left alone.
            None => at = (at + 2).min(bytes.len()),
            Some(Half::High) if surrogate(bytes, at + 6) == Some(Half::Low) => at += 12,
            Some(_) => {
                let out = out.get_or_insert_default();
                out.push_str(&text[copied..at]);
                out.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
        }
    }
    out.map(|mut out| {
        out.push_str(&text[copied..]);
        out
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    High,
    Low,
}

/// Which half of a pair the escape at `at` is, if there is one.
fn surrogate(bytes: &[u8], at: usize) -> Option<Half> {
    let escape = bytes.get(at..at + 6)?;
    let digits = escape.strip_prefix(b"\\u")?;
    let unit = digits.iter().try_fold(0u32, |unit, &b| {
        Some(unit << 4 | char::from(b).to_digit(16)?)
    })?;
    match unit {
        0xD800..=0xDBFF => Some(Half::High),
        0xDC00..=0xDFFF => Some(Half::Low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Value {
        parse(&mend(bytes)).expect("mended text is JSON")
    }

    /// Given text with half a surrogate pair (C008), when it is read, then the
    /// bad unit becomes U+FFFD and everything around it stays.
    #[test]
    fn c008_half_a_pair_becomes_the_replacement_character() {
        for (given, want) in [
            (
                r#""half a fish: \ud83d and on""#,
                "half a fish: \u{fffd} and on",
            ),
            (r#""\ud83d\ud83d\udc1f""#, "\u{fffd}\u{1f41f}"),
            (r#""\udc1f\ud83d""#, "\u{fffd}\u{fffd}"),
            (r#""\uD83Dx\uDC1F""#, "\u{fffd}x\u{fffd}"),
            (r#""\ud83d""#, "\u{fffd}"),
            (r#""\ud83d\n""#, "\u{fffd}\n"),
            (r#""\ud83d\\""#, "\u{fffd}\\"),
        ] {
            assert_eq!(read(given.as_bytes()), Value::from(want), "{given}");
        }
    }

    #[test]
    fn whole_pairs_and_escaped_backslashes_are_left_alone() {
        for same in [
            r#""\ud83d\udc1f \uD83D\uDC1F""#,
            r#""\\ud83d \\\\ud83d""#,
            r#""C:\\ud800\u00e9""#,
            r#""plain""#,
        ] {
            assert!(
                matches!(mend(same.as_bytes()), Cow::Borrowed(s) if s == same),
                "{same}"
            );
        }
        assert_eq!(read(br#""\\\ud83d""#), Value::from("\\\u{fffd}"));
    }

    #[test]
    fn a_mark_and_bytes_that_are_no_utf_8_are_mended() {
        assert_eq!(read(b"\xef\xbb\xbf[1]"), serde_json::json!([1]));
        assert_eq!(read(b"\"a\xffb\""), Value::from("a\u{fffd}b"));
        assert_eq!(
            read(b"\"\xed\xa0\xbd\""),
            Value::from("\u{fffd}\u{fffd}\u{fffd}")
        );
    }

    #[test]
    fn what_is_not_whole_json_is_an_error_not_a_panic() {
        for cut in [
            &b""[..],
            b"\\",
            b"\"\\",
            b"\"\\u",
            b"\"\\ud83",
            b"\"\\ud83d",
            b"{\"a\":",
            b"[1,",
            b"\"\\ud83d\\",
            b"\xff",
            b"[1] x",
        ] {
            assert!(parse::<Value>(&mend(cut)).is_err(), "{cut:?}");
        }
    }

    #[test]
    fn one_odd_element_costs_only_itself() {
        let text = r#"[{"n":1}, {"n":1e999}, {"n":3}]"#;
        assert!(parse::<Value>(text).is_err());
        let rows = elements(text).expect("a list");
        let read: Vec<bool> = rows
            .iter()
            .map(|row| parse::<Value>(row.get()).is_ok())
            .collect();
        assert_eq!(read, [true, false, true]);
        assert!(elements(r#"{"message":"no list"}"#).is_err());
        assert!(elements(r#"[{"n":1},"#).is_err());
    }

    proptest! {
        #[test]
        fn c054_any_bytes_are_mended_without_a_panic(bytes: Vec<u8>) {
            let _ = parse::<Value>(&mend(&bytes));
        }

        #[test]
        fn any_mix_of_units_in_a_string_is_read(units in proptest::collection::vec(any::<u16>(), 0..20)) {
            let escaped: String = units.iter().map(|u| format!("\\u{u:04x}")).collect();
            let want = String::from_utf16_lossy(&units);
            prop_assert_eq!(read(format!("\"{escaped}\"").as_bytes()), Value::from(want));
        }
    }
}
