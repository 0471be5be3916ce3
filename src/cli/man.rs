//! `idempoll help --man`: the manual pages, made from the table in [`super::help`], for
//! the macros that groff and mandoc share.

use super::help::{self, EXITS, Flag, GLOBAL, PROGRAM, VERBS, Verb};
use super::version;
use std::fmt::Write;

/// When these pages were last revised: their date in a build that knows no other.
const REVISED: &str = "2026-11-30";

/// Files the program reads and writes, and what they are.
const FILES: &[(&str, &str)] = &[
    (
        "./idempoll.json, $XDG_CONFIG_HOME/idempoll/config.json, /etc/idempoll/config.json",
        "the config, at the first of these places where there is one",
    ),
    (
        "$XDG_STATE_HOME/idempoll, ~/.local/state/idempoll",
        "the state directory, if neither a flag nor the config nor STATE_DIRECTORY says where it is",
    ),
];

/// Variables it minds. Those of proxies and certificates are in `docs/config.md`.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("IDEMPOLL_CONFIG", "the config file, if no flag names one"),
    (
        "STATE_DIRECTORY",
        "the state directory, as systemd sets it for a service that has StateDirectory=",
    ),
];

/// The page of the program, with all its commands: `idempoll(1)`.
#[must_use]
pub(super) fn program() -> String {
    let mut page = begin("idempoll", "deliver new work from issue trackers");
    page.push_str(".B idempoll\n.I COMMAND\n.RI [ FLAGS ]\n");
    section(&mut page, "DESCRIPTION");
    text(&mut page, PROGRAM);
    section(&mut page, "COMMANDS");
    for verb in VERBS {
        let _ = writeln!(page, ".SS {}", quoted(&help::usage(verb)));
        body(&mut page, verb);
    }
    end(&mut page);
    section(&mut page, "ENVIRONMENT");
    list(&mut page, ENVIRONMENT);
    section(&mut page, "FILES");
    list(&mut page, FILES);
    section(&mut page, "EXAMPLES");
    for verb in VERBS {
        let (line, what) = verb.example;
        entry(&mut page, line, what);
    }
    page
}

/// The page of one command: `idempoll-start(1)`.
#[must_use]
pub(super) fn command(verb: &Verb) -> String {
    let mut page = begin(&format!("idempoll-{}", verb.word), verb.about);
    let _ = writeln!(page, ".B {}", escaped(&help::usage(verb)));
    section(&mut page, "DESCRIPTION");
    body(&mut page, verb);
    end(&mut page);
    section(&mut page, "EXAMPLE");
    let (line, what) = verb.example;
    entry(&mut page, line, what);
    section(&mut page, "SEE ALSO");
    page.push_str(".BR idempoll (1)\n");
    page
}

fn begin(name: &str, about: &str) -> String {
    let day = version::day().unwrap_or_else(|| REVISED.to_string());
    let mut page = format!(
        // A date is read as it stands.
        ".TH {} 1 \"{day}\" {} \"User Commands\"\n",
        name.to_uppercase().replace('-', "\\-"),
        quoted(&format!("idempoll {}", version::NUMBER)),
    );
    section(&mut page, "NAME");
    let _ = writeln!(page, "{} \\- {}", escaped(name), escaped(about));
    section(&mut page, "SYNOPSIS");
    page
}

/// What a command does, and its own flags.
fn body(page: &mut String, verb: &Verb) {
    let mut about = verb.about.to_string();
    about[..1].make_ascii_uppercase();
    text(page, &format!("{about}."));
    if !verb.more.is_empty() {
        text(page, verb.more);
    }
    flags(page, verb.flags);
}

/// What is the same for every command.
fn end(page: &mut String) {
    section(page, "OPTIONS");
    text(
        page,
        "These go with every command, before or after its word.",
    );
    flags(page, GLOBAL);
    section(page, "EXIT STATUS");
    for (code, what) in EXITS {
        entry(page, &code.to_string(), what);
    }
}

fn flags(page: &mut String, flags: &[Flag]) {
    for flag in flags {
        entry(page, &help::name(flag), flag.about);
    }
}

fn list(page: &mut String, rows: &[(&str, &str)]) {
    for (name, what) in rows {
        entry(page, name, what);
    }
}

/// A name, and what it is.
fn entry(page: &mut String, name: &str, what: &str) {
    let _ = writeln!(page, ".TP\n.B {}\n{}", escaped(name), escaped(what));
}

fn section(page: &mut String, name: &str) {
    let _ = writeln!(page, ".SH {}", quoted(name));
}

/// A paragraph: lines that are filled.
fn text(page: &mut String, lines: &str) {
    // The first one below a heading has begun already.
    let last = page.lines().next_back().unwrap_or_default();
    if !last.starts_with(".S") {
        page.push_str(".PP\n");
    }
    for line in lines.lines() {
        let _ = writeln!(page, "{}", escaped(line));
    }
}

/// An argument of a macro.
fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text).replace('"', "\\(dq"))
}

/// A text in which nothing is a command to the formatter, and which can be copied from the page.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for (at, c) in text.char_indices() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '`' => out.push_str("\\(ga"),
            '~' => out.push_str("\\(ti"),
            '^' => out.push_str("\\(ha"),
            '.' if at == 0 => out.push_str("\\&."),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_a_command_to_the_formatter() {
        assert_eq!(escaped(".x"), "\\&.x");
        assert_eq!(escaped("'x"), "\\(aqx");
        assert_eq!(escaped("a-b\\.c"), "a\\-b\\e.c");
        assert_eq!(quoted("say \"x\""), "\"say \\(dqx\\(dq\"");
    }
}
