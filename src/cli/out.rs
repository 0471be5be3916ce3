//! The only place that writes to standard output and standard error.
//!
//! The answer goes to standard output, complaints to standard error. A line
//! for people is escaped on its way out ([`crate::terminal`]), so nothing that
//! came from a tracker can forge one. A reader that went away (`| head -1`) is
//! no error; a full disk is.

use crate::error::Error;
use crate::terminal::{cut, shown, shown_json};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};

/// Standard output. Writing never fails at the place: what went wrong is kept,
/// the rest is dropped, and [`Out::finish`] tells.
pub struct Out {
    to: BufWriter<Box<dyn Write>>,
    trouble: Option<io::Error>,
}

impl Out {
    /// The process's own.
    #[must_use]
    pub fn stdout() -> Out {
        Out::to(io::stdout())
    }

    /// Somewhere else, for tests.
    pub fn to(writer: impl Write + 'static) -> Out {
        Out {
            to: BufWriter::new(Box::new(writer)),
            trouble: None,
        }
    }

    /// One line for people. Whatever is in `text`, it stays one line.
    pub fn line(&mut self, text: impl Display) {
        self.write(&format!(
            "{}\n",
            shown(text.to_string().trim_end_matches(' '))
        ));
    }

    /// Rows with their columns aligned, the first of them the headings.
    pub fn table<const N: usize>(&mut self, rows: &[[String; N]]) {
        let rows: Vec<[String; N]> = rows
            .iter()
            .map(|row| row.each_ref().map(|cell| shown(cell)))
            .collect();
        let width = |at: usize| {
            rows.iter()
                .map(|r| r[at].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..N).map(width).collect();
        for row in &rows {
            let cells = row.iter().zip(&widths);
            let line: Vec<String> = cells.map(|(cell, w)| format!("{cell:<w$}")).collect();
            self.line(line.join("  "));
        }
    }

    /// Text of our own, with its own line breaks: the help.
    pub fn page(&mut self, text: &str) {
        self.write(text);
    }

    /// One value on one line, for programs.
    pub fn json_line(&mut self, value: &impl Serialize) {
        self.json_text(serde_json::to_string(value));
    }

    /// One value over several lines, for programs and for people who look.
    pub fn json(&mut self, value: &impl Serialize) {
        self.json_text(serde_json::to_string_pretty(value));
    }

    fn json_text(&mut self, text: serde_json::Result<String>) {
        match text {
            Ok(text) => self.write(&format!("{}\n", shown_json(&text))),
            Err(e) => self.trouble = Some(e.into()),
        }
    }

    fn write(&mut self, text: &str) {
        if self.trouble.is_none()
            && let Err(e) = self.to.write_all(text.as_bytes())
        {
            self.trouble = Some(e);
        }
    }

    /// Hands on what is buffered, for a reader that waits.
    pub fn flush(&mut self) {
        if self.trouble.is_none()
            && let Err(e) = self.to.flush()
        {
            self.trouble = Some(e);
        }
    }

    /// Whether anybody still takes what is written.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.trouble.is_none()
    }

    /// Writes out the rest and says whether all of it arrived.
    ///
    /// # Errors
    /// When standard output could not take it; not when its reader left.
    pub fn finish(mut self) -> Result<(), Error> {
        self.flush();
        let result = match self.trouble.take() {
            Some(e) if e.kind() != ErrorKind::BrokenPipe => {
                Err(Error::new("cannot write to standard output", e))
            }
            _ => Ok(()),
        };
        // Dropping the buffer would try what failed once more.
        let (_, _) = self.to.into_parts();
        result
    }
}

/// Standard error of a command that runs for long: lines that stay and, on a
/// terminal, one below them that says how far it is.
#[derive(Debug)]
pub struct Running {
    terminal: bool,
    /// The line that says how far it is, as it stands there now.
    shown: String,
}

impl Running {
    /// The process's own standard error.
    #[must_use]
    pub fn stderr() -> Running {
        Running {
            terminal: io::stderr().is_terminal(),
            shown: String::new(),
        }
    }

    /// Whether a person reads it.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// A line that stays.
    pub fn say(&mut self, text: impl Display) {
        self.set("");
        complain(text);
    }

    /// A JSON text that stays, on a line of its own.
    pub fn say_json(&mut self, json: &str) {
        self.set("");
        let _ = io::stderr().write_all(format!("{}\n", shown_json(json)).as_bytes());
    }

    /// Says how far it is, in place of what was said before; nothing if `text` is empty.
    pub fn set(&mut self, text: &str) {
        if self.terminal && self.shown != text {
            let line = format!("\r\x1b[K{}", cut(text, 78));
            let _ = io::stderr().write_all(line.as_bytes());
            self.shown = text.to_string();
        }
    }
}

/// A complaint on standard error. Line breaks in it are ours only where the
/// text has several things to say; such lines are set in, so that none can be
/// taken for a message of its own. If standard error cannot take it, nobody can.
pub fn complain(text: impl Display) {
    let text = text.to_string();
    let lines: Vec<String> = text.split('\n').map(shown).collect();
    let _ = io::stderr().write_all(format!("{}\n", lines.join("\n  ")).as_bytes());
}

/// An error as the user sees it: `idempoll VERB: …`, then `hint: …`.
pub fn complain_of(verb: &str, error: &Error) {
    let name = if verb.is_empty() {
        "idempoll".to_string()
    } else {
        format!("idempoll {verb}")
    };
    complain(format_args!("{name}: {error}"));
    if let Some(hint) = &error.hint {
        complain(format_args!("hint: {hint}"));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// An [`Out`] into memory, and what arrived there.
    pub(in crate::cli) fn captured() -> (Out, Rc<RefCell<Vec<u8>>>) {
        struct Shared(Rc<RefCell<Vec<u8>>>);
        impl Write for Shared {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.borrow_mut().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let bytes = Rc::new(RefCell::new(Vec::new()));
        (Out::to(Shared(Rc::clone(&bytes))), bytes)
    }

    /// What a captured output holds, as text.
    pub(in crate::cli) fn text(bytes: &RefCell<Vec<u8>>) -> String {
        String::from_utf8(bytes.borrow().clone()).expect("we write UTF-8")
    }

    struct Failing(ErrorKind);
    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    /// Given a reader that went away, when much is printed, then nothing panics
    /// and it is no error; given a full device, then it is one (C127).
    #[test]
    fn c127_a_closed_pipe_is_quiet_and_a_full_device_is_an_error() {
        for (kind, error) in [
            (ErrorKind::BrokenPipe, None),
            (
                ErrorKind::StorageFull,
                Some("cannot write to standard output: no storage space"),
            ),
        ] {
            for lines in [1, 10_000] {
                let mut out = Out::to(Failing(kind));
                for _ in 0..lines {
                    out.line("some text that fills the buffer in the end");
                }
                out.flush();
                assert!(!out.is_open());
                let said = out.finish().err().map(|e| e.to_string());
                assert_eq!(said.as_deref(), error);
            }
        }
    }

    #[test]
    fn columns_are_aligned_by_characters_and_the_last_one_is_not_padded() {
        let (mut out, bytes) = captured();
        out.table(&[
            ["A".into(), "B".into()],
            ["äöü".into(), "x\n".into()],
            ["a".into(), String::new()],
        ]);
        out.finish().expect("memory takes it");
        assert_eq!(text(&bytes), "A    B\näöü  x\\n\na\n");
    }

    /// Given text with line breaks and escapes, when it is printed as a line,
    /// then it is one line (C052).
    #[test]
    fn c052_a_line_stays_one_line() {
        let (mut out, bytes) = captured();
        out.line("a\nidempoll: all is well\u{1b}[2J");
        out.json_line(&serde_json::json!({ "title": "\u{9b}2J\n" }));
        out.finish().expect("memory takes it");
        assert_eq!(
            text(&bytes),
            "a\\nidempoll: all is well\\x1b[2J\n{\"title\":\"\\u009b2J\\n\"}\n"
        );
    }
}
