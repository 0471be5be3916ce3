//! What went wrong, in the words the user reads.
//!
//! Every error names what was being done, to which object, why it failed and,
//! where one is known, what to do about it. It prints as at most two lines:
//!
//! ```text
//! idempoll stop: cannot read /var/lib/idempoll/poll.pid: permission denied
//! hint: run it as the user that owns the file
//! ```

use crate::exit::Exit;
use std::fmt;

/// An error as the user sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What was tried, with its object: `cannot read DIR/poll.pid`.
    pub doing: String,
    /// Why it did not work; empty when `doing` says it all.
    pub cause: String,
    /// What the user can do about it.
    pub hint: Option<String>,
    /// The exit code this error ends the program with.
    pub exit: Exit,
}

impl Error {
    /// An error that ends the program with exit 1.
    pub fn new(doing: impl Into<String>, cause: impl fmt::Display) -> Error {
        Error {
            doing: doing.into(),
            cause: lower_first(&cause.to_string()),
            hint: None,
            exit: Exit::Failed,
        }
    }

    /// An error in the command line or the config: exit 2.
    pub fn usage(doing: impl Into<String>, cause: impl fmt::Display) -> Error {
        Error {
            exit: Exit::Usage,
            ..Error::new(doing, cause)
        }
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.doing)?;
        if !self.cause.is_empty() {
            write!(f, ": {}", self.cause)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// `Permission denied (os error 13)` reads `permission denied` in a sentence.
fn lower_first(s: &str) -> String {
    let s = match s.rfind(" (os error ") {
        Some(at) if s.ends_with(')') => &s[..at],
        _ => s,
    };
    let mut chars = s.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => s.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_as_one_sentence() {
        let e = Error::new(
            "cannot read D/poll.pid",
            std::io::Error::from_raw_os_error(13),
        );
        assert_eq!(e.to_string(), "cannot read D/poll.pid: permission denied");
        assert_eq!(Error::new("x", "EOF in y").to_string(), "x: EOF in y");
        assert_eq!(Error::new("only this", "").to_string(), "only this");
    }
}
