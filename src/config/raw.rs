//! The config file as text and as a tree, with the place of everything in it.
//!
//! JSON with `//` and `/* */` comments and trailing commas, and nothing looser.
//! What is wrong is collected in [`Found`], so that one run reports all of it.

use super::spot::kind_of;
use crate::error::Error;
use crate::exit::Exit;
use crate::os::file::open_regular_or_link;
use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use std::cell::RefCell;
use std::fmt::Display;
use std::io::Read;
use std::path::Path;

/// The largest config file read, in bytes.
const LIMIT: u64 = 4 * 1024 * 1024;

/// Reads `file` as text, without a byte-order mark.
pub(super) fn read(file: &Path) -> Result<String, Error> {
    let wrong = |cause: &dyn Display| {
        Error::usage(format!("cannot read the config {}", file.display()), cause)
    };
    let opened = open_regular_or_link(file).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => wrong(&e).hint("'idempoll init' writes one to start from"),
        _ => wrong(&e),
    })?;
    let mut bytes = Vec::new();
    opened
        .take(LIMIT + 1)
        .read_to_end(&mut bytes)
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
    let end = (0..=at.min(text.len()))
        .rev()
        .find(|&i| text.is_char_boundary(i));
    let before = &text[..end.unwrap_or(0)];
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

/// The keys of the top level whose values differ between two texts, in the
/// order of `after`, those that are gone last. None of a text that is no object.
pub(super) fn changed_keys(before: &str, after: &str) -> Vec<String> {
    let found = Found::default();
    let (Some(Value::Object(before)), Some(Value::Object(after))) =
        (parse(before, &found), parse(after, &found))
    else {
        return Vec::new();
    };
    let here = after.properties.iter().filter(|new| {
        let old = before.get(new.name.as_str());
        !old.is_some_and(|old| same(&old.value, &new.value))
    });
    let gone = before
        .properties
        .iter()
        .filter(|old| after.get(old.name.as_str()).is_none());
    here.chain(gone)
        .map(|property| property.name.as_str().to_string())
        .collect()
}

/// Whether two values mean the same, wherever they stand and however they are laid out.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::StringLit(a), Value::StringLit(b)) => a.value == b.value,
        (Value::NumberLit(a), Value::NumberLit(b)) => a.value == b.value,
        (Value::BooleanLit(a), Value::BooleanLit(b)) => a.value == b.value,
        (Value::Array(a), Value::Array(b)) => {
            let both = a.elements.iter().zip(&b.elements);
            a.elements.len() == b.elements.len() && both.into_iter().all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let its = |name: &str| b.properties.iter().find(|p| p.name.as_str() == name);
            a.properties.len() == b.properties.len()
                && a.properties
                    .iter()
                    .all(|p| its(p.name.as_str()).is_some_and(|other| same(&p.value, &other.value)))
        }
        (Value::NullKeyword(_), Value::NullKeyword(_)) => true,
        _ => false,
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

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_file_that_cannot_be_the_config_is_refused_by_name() {
        let dir = Scratch::new();
        let file = dir.join("c.json");
        let about = file.display().to_string();

        let e = read(&file).expect_err("it is not there");
        assert!(e.to_string().contains("no such file"), "{e}");
        assert!(e.hint.expect("a hint").contains("idempoll init"));
        for (content, why) in [
            (
                &b"{ \"l\xc3\xa9\": \"\xff\" }"[..],
                "not UTF-8 text (line 1, column 10)",
            ),
            (b"{\n\n \xff", "not UTF-8 text (line 3, column 2)"),
            (b"\xff\xfe{\0}\0", "not UTF-8 text (line 1, column 1)"),
            (&vec![b' '; 4 * 1024 * 1024 + 1], "larger than 4 MiB"),
        ] {
            std::fs::write(&file, content).expect("a temporary file");
            let e = read(&file).expect_err(why).to_string();
            assert!(e.contains(why) && e.contains(&about), "{e}");
        }
        let e = read(&dir).expect_err("a directory").to_string();
        assert!(e.contains("it is a directory"), "{e}");
        let e = read(Path::new("/dev/null"))
            .expect_err("a device")
            .to_string();
        assert!(e.contains("not a regular file"), "{e}");

        std::fs::write(&file, "\u{feff}{\r\n}").expect("a temporary file");
        assert_eq!(read(&file).as_deref(), Ok("{\r\n}"), "no byte-order mark");
        std::fs::write(&file, "").expect("a temporary file");
        assert_eq!(read(&file).as_deref(), Ok(""));
    }

    #[test]
    fn changed_keys_are_those_that_mean_something_else() {
        let before = r#"{ "a": 1, "b": [1, { "x": true, "y": "z" }], "c": null, "d": 1 }"#;
        let after = "{ // moved and laid out anew\n \"c\": null, \"b\": [1,\n{ \"y\": \"\\u007a\", \"x\": true }],
            \"a\": 2, \"e\": {}, }";
        assert_eq!(changed_keys(before, after), ["a", "e", "d"]);
        assert!(changed_keys(before, before).is_empty());
        assert_eq!(changed_keys("{\"a\": [1]}", "{\"a\": [1, 1]}"), ["a"]);
        assert!(changed_keys("[", after).is_empty());
    }

    #[test]
    fn lines_and_columns_count_from_one_and_in_characters() {
        let text = "a\r\né€x\n";
        for (at, place) in [
            (0, (1, 1)),
            (1, (1, 2)),
            (3, (2, 1)),
            (4, (2, 1)),
            (5, (2, 2)),
            (8, (2, 3)),
            (10, (3, 1)),
            (99, (3, 1)),
        ] {
            assert_eq!(line_and_column(text, at), place, "byte {at}");
        }
    }
}
