//! Values of the config file with their places, and the reading of them.

use super::keys::{PLACES, Place};
use super::nearest::did_you_mean;
use super::raw::{Found, line_and_column};
use jsonc_parser::ast::{Object, Value};
use jsonc_parser::common::Ranged;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// `a number`, `a text`, …
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::StringLit(_) => "a text",
        Value::NumberLit(_) => "a number",
        Value::BooleanLit(b) if b.value => "true",
        Value::BooleanLit(_) => "false",
        Value::Object(_) => "an object",
        Value::Array(_) => "a list",
        Value::NullKeyword(_) => "null",
    }
}

/// A value with its place: where in the text, and the path of its key.
///
/// The methods that read it say what is wrong by themselves and then give
/// `None`, so that the caller can go on to the next value.
#[derive(Clone)]
pub(super) struct Spot<'a> {
    /// The byte it begins at.
    pub(super) at: usize,
    /// `sources[0].repos`; empty for the whole file.
    pub(super) path: String,
    value: &'a Value<'a>,
    text: &'a str,
    found: &'a Found,
}

impl<'a> Spot<'a> {
    /// The whole file: `value` is the tree of `text`.
    pub(super) fn root(value: &'a Value<'a>, text: &'a str, found: &'a Found) -> Spot<'a> {
        Spot {
            at: value.start(),
            path: String::new(),
            value,
            text,
            found,
        }
    }

    /// Says what is wrong with it.
    pub(super) fn wrong(&self, what: impl Display) {
        self.found.add(self.at, &self.path, what);
    }

    fn is_outside<T>(&self, number: &str, range: &RangeInclusive<impl Display>) -> Option<T> {
        self.wrong(format!(
            "{} is not between {} and {}",
            short(number),
            range.start(),
            range.end()
        ));
        None
    }

    fn must_be<T>(&self, what: &str) -> Option<T> {
        let kind = kind_of(self.value);
        match self.value {
            Value::NullKeyword(_) => {
                self.wrong(format!(
                    "must be {what}, not null; leave the key out instead"
                ));
            }
            _ => self.wrong(format!("must be {what}, not {kind}")),
        }
        None
    }

    /// A text that is not empty.
    pub(super) fn text(&self) -> Option<String> {
        let text = self.word()?;
        if text.trim().is_empty() {
            self.wrong("must not be empty");
            return None;
        }
        Some(text)
    }

    /// A text that may be empty, like an argument of a command.
    pub(super) fn word(&self) -> Option<String> {
        let Value::StringLit(s) = self.value else {
            return self.must_be("a text");
        };
        // The parser lets line breaks stand in a text; they are nearly always a forgotten quote.
        if self.text[s.range.start..s.range.end].contains(|c: char| u32::from(c) < 0x20) {
            self.wrong("has a line break or another control character in it");
            return None;
        }
        if s.value.contains('\0') {
            self.wrong("must not contain a NUL character");
            return None;
        }
        Some(s.value.to_string())
    }

    /// True or false.
    pub(super) fn truth(&self) -> Option<bool> {
        match self.value {
            Value::BooleanLit(b) => Some(b.value),
            _ => self.must_be("true or false"),
        }
    }

    /// A number within `range`; a fraction is allowed.
    pub(super) fn number(&self, range: RangeInclusive<f64>) -> Option<f64> {
        let Value::NumberLit(n) = self.value else {
            return self.must_be("a number");
        };
        match n.value.parse::<f64>() {
            Ok(n) if range.contains(&n) => Some(n),
            _ => self.is_outside(n.value, &range),
        }
    }

    /// A whole number within `range`.
    pub(super) fn whole(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let Value::NumberLit(n) = self.value else {
            return self.must_be("a whole number");
        };
        match n.value.parse::<u64>() {
            Ok(n) if range.contains(&n) => Some(n),
            Err(_) if n.value.contains(['.', 'e', 'E']) => {
                self.wrong(format!("{} is not a whole number", short(n.value)));
                None
            }
            _ => self.is_outside(n.value, &range),
        }
    }

    /// The elements of a list.
    pub(super) fn list(&self, of: &str) -> Option<Vec<Spot<'a>>> {
        let Value::Array(list) = self.value else {
            return self.must_be(&format!("a list of {of}"));
        };
        let spots = list.elements.iter().enumerate().map(|(n, value)| Spot {
            at: value.start(),
            path: format!("{}[{n}]", self.path),
            value,
            text: self.text,
            found: self.found,
        });
        Some(spots.collect())
    }

    /// The texts of a list, each with its place; bad elements are reported and left out.
    pub(super) fn texts(&self) -> Option<Vec<(Spot<'a>, String)>> {
        let list = self.list("texts")?.into_iter();
        Some(list.filter_map(|s| s.text().map(|t| (s, t))).collect())
    }

    /// Whether it is a text, of whatever content.
    pub(super) fn is_text(&self) -> bool {
        matches!(self.value, Value::StringLit(_))
    }

    /// The line it stands in, from 1.
    pub(super) fn line(&self) -> usize {
        line_and_column(self.text, self.at).0
    }

    /// The keys of an object. A key that stands there twice is reported.
    pub(super) fn section(&self) -> Option<Section<'a>> {
        let Value::Object(object) = self.value else {
            return self.must_be("an object");
        };
        let section = Section {
            spot: self.clone(),
            object,
        };
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        for (key, spot) in section.keys() {
            if let Some(first) = first.insert(key, spot.at) {
                let (line, _) = line_and_column(self.text, first);
                spot.wrong(format!("this key was there already, in line {line}"));
            }
        }
        Some(section)
    }
}

/// A number as written, cut so that it cannot flood a message.
fn short(number: &str) -> &str {
    &number[..number.len().min(24)]
}

/// An object of the config file and its place.
pub(super) struct Section<'a> {
    /// The object itself.
    pub(super) spot: Spot<'a>,
    object: &'a Object<'a>,
}

impl<'a> Section<'a> {
    /// All keys in the order of the file, each with the place of the key itself.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&'a str, Spot<'a>)> {
        self.object.properties.iter().map(|p| {
            let mut spot = self.at_key(p.name.as_str(), &p.value);
            spot.at = p.name.start();
            (p.name.as_str(), spot)
        })
    }

    /// All keys in the order of the file, each with its value.
    pub(super) fn values(&self) -> impl Iterator<Item = (&'a str, Spot<'a>)> {
        self.object
            .properties
            .iter()
            .map(|p| (p.name.as_str(), self.at_key(p.name.as_str(), &p.value)))
    }

    /// The value of a key, if it is there.
    pub(super) fn get(&self, key: &str) -> Option<Spot<'a>> {
        self.values().find(|(k, _)| *k == key).map(|(_, s)| s)
    }

    /// The value of a key that must be there.
    pub(super) fn need(&self, key: &str) -> Option<Spot<'a>> {
        let spot = self.get(key);
        if spot.is_none() {
            let path = self.path_of(key);
            self.spot.found.add(self.spot.at, &path, "is missing");
        }
        spot
    }

    /// Reports every key that belongs to none of `places`.
    ///
    /// One that belongs elsewhere is told so, one nobody knows gets the nearest
    /// known one. The last of `places` is what this object is called.
    pub(super) fn only(&self, places: &[Place]) {
        for (key, spot) in self.keys() {
            if places.iter().any(|p| p.has(key)) {
                continue;
            }
            let shown = key.escape_debug();
            if is_secret(key) {
                let takes = |key: &str| places.iter().flat_map(|p| p.keys).any(|k| k.name == key);
                let names = match takes("secret_file") {
                    true => "secret_file or secret_env",
                    false => "token_env, token_file or token_command",
                };
                spot.wrong(format!(
                    "a secret must not stand in the config; name where it is with {names}"
                ));
            } else if let Some(home) = PLACES.iter().find(|p| p.has(key)) {
                let here = places.last().map_or("this", |p| p.what);
                spot.wrong(format!("'{shown}' belongs to {}, not to {here}", home.what));
            } else {
                let known = places.iter().flat_map(|p| p.keys).map(|k| k.name);
                spot.wrong(format!("unknown key '{shown}'{}", did_you_mean(key, known)));
            }
        }
    }

    fn at_key(&self, key: &str, value: &'a Value<'a>) -> Spot<'a> {
        Spot {
            at: value.start(),
            path: self.path_of(key),
            value,
            text: self.spot.text,
            found: self.spot.found,
        }
    }

    fn path_of(&self, key: &str) -> String {
        let key = if crate::engine::item::is_name(key) || key == "$schema" {
            key.to_string()
        } else {
            format!("\"{}\"", key.escape_debug())
        };
        match self.spot.path.as_str() {
            "" => key,
            path => format!("{path}.{key}"),
        }
    }
}

/// What to say about a key under which people paste a secret.
fn is_secret(key: &str) -> bool {
    matches!(
        key.to_ascii_lowercase().as_str(),
        "token"
            | "password"
            | "secret"
            | "api_key"
            | "apikey"
            | "access_token"
            | "auth_token"
            | "github_token"
    )
}
