//! The config file as text and as a tree, with the place of everything in it.
//!
//! JSON with `//` and `/* */` comments and trailing commas, and nothing looser.
//! What is wrong is collected in [`Found`], so that one run reports all of it.

use super::keys::{PLACES, Place};
use super::nearest::did_you_mean;
use crate::error::Error;
use crate::exit::Exit;
use jsonc_parser::ast::{Object, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::Path;

/// The largest config file read, in bytes.
const LIMIT: u64 = 4 * 1024 * 1024;

/// Reads `file` as text, without a byte-order mark.
pub(super) fn read(file: &Path) -> Result<String, Error> {
    let wrong = |cause: &dyn Display| {
        Error::usage(format!("cannot read the config {}", file.display()), cause)
    };
    // A named pipe would block the open for as long as nobody writes.
    let meta = std::fs::metadata(file).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => wrong(&e).hint("'idempoll init' writes one to start from"),
        _ => wrong(&e),
    })?;
    if meta.is_dir() {
        return Err(wrong(&"it is a directory"));
    }
    if !meta.is_file() {
        return Err(wrong(&"it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|f| f.take(LIMIT + 1).read_to_end(&mut bytes))
        .map_err(|e| wrong(&e))?;
    if bytes.len() as u64 > LIMIT {
        return Err(wrong(&"it is larger than 4 MiB"));
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&e.as_bytes()[..at]).into_owned();
        let (line, column) = line_and_column(&before, before.len());
        wrong(&format!(
            "it is not UTF-8 text (line {line}, column {column})"
        ))
    })?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_string(),
        None => text,
    })
}

/// Everything found wrong so far: where in the text, and what.
#[derive(Debug, Default)]
pub(super) struct Found(RefCell<Vec<(usize, String)>>);

impl Found {
    /// Adds what is wrong at the byte `at`; `path` names the key.
    pub(super) fn add(&self, at: usize, path: &str, what: impl Display) {
        let text = match path {
            "" => what.to_string(),
            _ => format!("{path}: {what}"),
        };
        self.0.borrow_mut().push((at, text));
    }

    /// One error of all that was found, in the order of the file; `None` if nothing was.
    pub(super) fn into_error(self, file: &Path, text: &str) -> Option<Error> {
        let mut found = self.0.into_inner();
        found.sort_by_key(|(at, _)| *at);
        found.dedup();
        let lines: Vec<String> = found
            .iter()
            .map(|(at, what)| {
                let (line, column) = line_and_column(text, *at);
                format!("{}:{line}:{column}: {what}", file.display())
            })
            .collect();
        let doing = match lines.as_slice() {
            [] => return None,
            [one] => one.clone(),
            all => format!(
                "{} things are wrong in the config\n{}",
                all.len(),
                all.join("\n")
            ),
        };
        Some(Error {
            doing,
            cause: String::new(),
            hint: None,
            exit: Exit::Usage,
        })
    }
}

/// Line and column of a byte, both from 1; the column counts characters.
pub(super) fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(at)];
    let line_start = before.rfind('\n').map_or(0, |n| n + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

/// The tree of `text`, which must be one object. `None` when `found` says why not.
pub(super) fn parse<'a>(text: &'a str, found: &Found) -> Option<Value<'a>> {
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    match parse_to_ast(text, &CollectOptions::default(), &options) {
        Ok(parsed) => match parsed.value {
            Some(value @ Value::Object(_)) => Some(value),
            Some(other) => {
                let what = format!("the config must be an object, not {}", kind_of(&other));
                found.add(other.start(), "", what);
                None
            }
            None => {
                found.add(0, "", "the config is empty");
                None
            }
        },
        Err(e) => {
            found.add(e.range().start, "", why(e.kind()));
            None
        }
    }
}

/// What the parser minded, in the user's words.
fn why(kind: &ParseErrorKind) -> String {
    match kind {
        ParseErrorKind::ExpectedStringObjectProperty | ParseErrorKind::UnexpectedTokenInObject => {
            "a key in double quotes is expected here".into()
        }
        ParseErrorKind::UnexpectedWord => {
            "a value is expected here; text stands in double quotes".into()
        }
        ParseErrorKind::SingleQuotedStringsNotAllowed => "text stands in double quotes".into(),
        ParseErrorKind::ExpectedComma => "a comma is missing here".into(),
        ParseErrorKind::ExpectedColonAfterObjectKey => {
            "a colon is expected between a key and its value".into()
        }
        ParseErrorKind::UnterminatedObject => "this { is never closed".into(),
        ParseErrorKind::UnterminatedArray => "this [ is never closed".into(),
        ParseErrorKind::MultipleRootJsonValues => "nothing may follow the end of the config".into(),
        other => {
            let text = other.to_string();
            let mut chars = text.chars();
            chars
                .next()
                .map_or_else(String::new, |c| c.to_lowercase().chain(chars).collect())
        }
    }
}

/// `a number`, `a text`, …
fn kind_of(value: &Value) -> &'static str {
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
            _ => {
                self.wrong(format!(
                    "{} is not between {} and {}",
                    short(n.value),
                    range.start(),
                    range.end()
                ));
                None
            }
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
            _ => {
                self.wrong(format!(
                    "{} is not between {} and {}",
                    short(n.value),
                    range.start(),
                    range.end()
                ));
                None
            }
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
            if let Some(rule) = pasted_secret(key) {
                spot.wrong(rule);
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
fn pasted_secret(key: &str) -> Option<&'static str> {
    matches!(
        key.to_ascii_lowercase().as_str(),
        "token" | "password" | "secret" | "api_key" | "apikey" | "access_token" | "auth_token" | "github_token"
    )
    .then_some(
        "a secret must not stand in the config; name where it is with token_env, token_file or token_command",
    )
}
