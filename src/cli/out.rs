//! The only place that writes to standard output and standard error.
//!
//! The answer goes to standard output, complaints to standard error. A line
//! for people is escaped on its way out ([`crate::terminal`]), so nothing that
//! came from a tracker can forge one. A reader that went away (`| head -1`) is
//! no error; a full disk is.

use crate::daemon::clock::Mono;
use crate::error::Error;
use crate::mutant;
use crate::os::wait::{self, For};
use crate::terminal::{cut, shown, shown_json};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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
        STDERR.tell(&io::stderr(), &format!("{}\n", shown_json(json)));
    }

    /// Says how far it is, in place of what was said before; nothing if `text` is empty.
    pub fn set(&mut self, text: &str) {
        if self.terminal && self.shown != text {
            let line = format!("\r\x1b[K{}", cut(text, 78));
            STDERR.tell(&io::stderr(), &line);
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
    STDERR.tell(&io::stderr(), &format!("{}\n", lines.join("\n  ")));
}

/// How much was lost since the last call, if there is room to say so: standard error
/// did not take it for a time.
pub fn lost() -> Option<u64> {
    STDERR.lost(&io::stderr())
}

static STDERR: Patient = Patient(Mutex::new(Told {
    lost: 0,
    cut: false,
}));

/// How long standard error may have no room.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a pipe that has room takes at once (`PIPE_BUF`).
const AT_ONCE: usize = 4096;

/// Writes without waiting for ever. A pipe whose reader hangs, or a terminal that was told
/// to stop (Ctrl-S), must not keep a poller from its work: what they do not take within
/// [`PATIENCE`] is lost, and from then on nothing is waited for until there is room again.
/// All of it is in the event log.
struct Patient(Mutex<Told>);

#[derive(Default)]
struct Told {
    /// Pieces that were lost.
    lost: u64,
    /// A line stands there half-written.
    cut: bool,
}

impl Patient {
    /// One piece, of one or more lines; to nobody if there is an error.
    fn tell<W>(&self, to: &W, text: &str)
    where
        W: AsFd,
        for<'a> &'a W: Write,
    {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let patience = if told.lost > 0 {
            Duration::ZERO
        } else {
            PATIENCE
        };
        let mut writer = to;
        if told.cut && has_room(to.as_fd(), Duration::ZERO) {
            told.cut = writer.write_all(b"\n").is_err();
        }
        for (at, part) in text.as_bytes().chunks(AT_ONCE).enumerate() {
            if !mutant::is("stderr-waited-for") && !has_room(to.as_fd(), patience) {
                told.lost += 1;
                told.cut |= at > 0;
                return;
            }
            if writer.write_all(part).is_err() {
                return;
            }
        }
    }

    fn lost(&self, to: &impl AsFd) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let any = told.lost > 0 && has_room(to.as_fd(), Duration::ZERO);
        any.then(|| std::mem::take(&mut told.lost))
    }
}

/// Whether something can be written without waiting, within `patience`. An error is
/// room as well: it is met at once.
fn has_room(fd: BorrowedFd<'_>, patience: Duration) -> bool {
    let end = Mono::now().plus(patience);
    loop {
        let [room] = wait::ready([Some((fd, For::Writing))], Some(end.left()));
        if room || end.passed() {
            return room;
        }
    }
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
    use std::io::Read;
    use std::rc::Rc;

    /// R2.6. Given a pipe nobody reads, when there is more to tell than it holds, then nobody
    /// waits for ever, what it cannot take is counted, and once it is read lines are whole again.
    #[test]
    fn r2_6_what_nobody_reads_is_not_waited_for() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let stderr = Patient(Mutex::default());
        let line = format!("{}\n", "x".repeat(10_000));
        for _ in 0..20 {
            stderr.tell(&writer, &line);
        }
        assert_eq!(stderr.lost(&writer), None, "there is no room to say so");
        let mut text = Vec::new();
        let mut piece = [0; AT_ONCE];
        while let [true] = wait::ready([Some((reader.as_fd(), For::Reading))], Some(Duration::ZERO))
        {
            let n = reader.read(&mut piece).expect("it was written");
            text.extend_from_slice(&piece[..n]);
        }
        let lost = stderr
            .lost(&writer)
            .expect("there is room, and something to say");
        stderr.tell(&writer, "the end\n");
        drop(writer);
        reader.read_to_end(&mut text).expect("it was written");
        let text = String::from_utf8(text).expect("it is text");
        let whole = text.lines().filter(|l| l.len() == 10_000).count() as u64;
        assert!(whole > 0 && whole + lost == 20, "{whole} told, {lost} lost");
        assert_eq!(text.lines().last(), Some("the end"));
    }

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
