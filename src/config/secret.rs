//! Reading secrets: out of a variable, a file, or what a command printed.
//!
//! One trimming rule for all of them: blanks, line ends and a byte-order mark
//! at either end do not belong to the secret. What is left must be visible
//! ASCII, because it goes into a header. No message ever shows any of it.

use crate::error::Error;
use crate::mutant;
use crate::os::file::open_regular_or_link;
use std::fmt;
use std::io::Read;
use std::path::Path;

/// The longest secret, in bytes; a longer one is a wrong file. Whoever reads one
/// reads a byte more, to see that.
pub const LIMIT: u64 = 64 * 1024;

/// A secret. It prints as `[secret]`, so that no log and no panic shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret itself: not for logs, messages, files, arguments or a child's environment.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Trims `bytes` by the rule above. `origin` names where they come from, for
    /// the message: `the token command pass`.
    ///
    /// # Errors
    /// A usage error naming `origin` when nothing is left, or something that cannot be a token.
    pub fn from_bytes(bytes: &[u8], origin: &str) -> Result<Secret, Error> {
        let secret = Secret::line(bytes, origin)?;
        if !secret.0.bytes().all(|b| b.is_ascii_graphic()) {
            let cause = "it has blanks or characters in it that no token has";
            return Err(Error::usage(format!("cannot use {origin}"), cause));
        }
        Ok(secret)
    }

    /// The same for what is no token: one line of any text, such as a webhook's secret or the value of a
    /// header field, may have blanks in the middle.
    ///
    /// # Errors
    /// A usage error naming `origin` when nothing is left, or more than a line.
    pub fn line(bytes: &[u8], origin: &str) -> Result<Secret, Error> {
        let wrong = |cause: &str| Error::usage(format!("cannot use {origin}"), cause);
        if bytes.len() as u64 > LIMIT {
            return Err(wrong("it is longer than 64 KiB"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| wrong("it is not text"))?;
        if mutant::is("line-ends-are-secret") {
            return Ok(Secret(text.to_string()));
        }
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        if text.is_empty() {
            return Err(wrong("it is empty"));
        }
        if text.contains(['\n', '\r']) {
            return Err(wrong("it has more than one line"));
        }
        if text.contains(char::is_control) {
            return Err(wrong(
                "it has blanks or characters in it that no secret has",
            ));
        }
        Ok(Secret(text.to_string()))
    }

    /// Reads the secret in the environment variable `name`.
    ///
    /// # Errors
    /// A usage error naming the variable when it is not set or holds no secret.
    pub fn from_env(name: &str) -> Result<Secret, Error> {
        let origin = format!("the environment variable {name}");
        Secret::from_bytes(&bytes_of_env(name)?, &origin)
    }

    /// Reads the [`Secret::line`] in the environment variable `name`.
    ///
    /// # Errors
    /// A usage error naming the variable when it is not set or holds no secret.
    pub fn line_of_env(name: &str) -> Result<Secret, Error> {
        let origin = format!("the environment variable {name}");
        Secret::line(&bytes_of_env(name)?, &origin)
    }

    /// Reads the secret in `file`.
    ///
    /// # Errors
    /// A usage error naming the file when it cannot be read or holds no secret.
    pub fn from_file(file: &Path) -> Result<Secret, Error> {
        let origin = format!("the token file {}", file.display());
        Secret::from_bytes(&bytes_of_file(file, &origin)?, &origin)
    }

    /// Reads the [`Secret::line`] in `file`, which `origin` names.
    ///
    /// # Errors
    /// A usage error naming `origin` when the file cannot be read or holds no secret.
    pub fn line_of_file(file: &Path, origin: &str) -> Result<Secret, Error> {
        Secret::line(&bytes_of_file(file, origin)?, origin)
    }
}

fn bytes_of_env(name: &str) -> Result<Vec<u8>, Error> {
    let value = std::env::var_os(name).ok_or_else(|| {
        Error::usage(
            format!("cannot use the environment variable {name}"),
            "it is not set",
        )
    })?;
    Ok(value.into_encoded_bytes())
}

fn bytes_of_file(file: &Path, origin: &str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    open_regular_or_link(file)
        .and_then(|f| f.take(LIMIT + 1).read_to_end(&mut bytes))
        .map_err(|e| Error::usage(format!("cannot read {origin}"), e))?;
    Ok(bytes)
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// Whether a text has the shape of a token of a known tracker, so that it must
/// not be repeated in a message.
#[must_use]
pub fn looks_like_a_token(text: &str) -> bool {
    const PREFIXES: &[&str] = &[
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "glpat-",
        "Bearer ",
        "token ",
    ];
    PREFIXES.iter().any(|p| text.starts_with(p))
        || (text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    /// Given token files with a trailing newline, CR LF, a byte-order mark or blanks,
    /// when they are read, then the token is what is left (C133).
    #[test]
    fn c133_blanks_line_ends_and_a_byte_order_mark_are_trimmed() {
        for content in [
            &b"t0ken-example\n"[..],
            b"t0ken-example\r\n",
            b"\xef\xbb\xbft0ken-example\n",
            b"  t0ken-example  \n",
            b"\xef\xbb\xbf \r\n\tt0ken-example",
        ] {
            let secret = Secret::from_bytes(content, "F").expect("it holds a token");
            assert_eq!(secret.expose(), "t0ken-example");
        }
    }

    /// Given files without a usable token, when they are read, then the error
    /// names the file and shows nothing of its content (C133, R7.4).
    #[test]
    fn c133_an_unusable_secret_is_an_error_that_names_its_origin() {
        let dir = Scratch::new();
        for (content, why) in [
            (&b""[..], "it is empty"),
            (b" \n", "it is empty"),
            (b"\xef\xbb\xbf\n", "it is empty"),
            (b"t0ken\nexample\n", "more than one line"),
            (b"t0ken example", "blanks or characters"),
            (b"t0ken\x1bexample", "blanks or characters"),
            ("t0kén".as_bytes(), "blanks or characters"),
            (b"t0ken\xff", "not text"),
            (&[b'x'; 70_000], "longer than 64 KiB"),
        ] {
            let file = dir.join("token");
            std::fs::write(&file, content).expect("a temporary file");
            let e = Secret::from_file(&file).expect_err(why).to_string();
            assert!(e.contains(&file.display().to_string()), "{e}");
            assert!(e.contains(why), "{e}");
            assert!(!e.contains("t0k"), "{e}");
        }
        let e = Secret::from_file(&dir)
            .expect_err("a directory")
            .to_string();
        assert!(e.contains("not a regular file"), "{e}");
        std::fs::remove_dir_all(&*dir).expect("our own directory");
        let e = Secret::from_file(&dir)
            .expect_err("nothing there")
            .to_string();
        assert!(e.ends_with("no such file or directory"), "{e}");
        let e = Secret::from_env("IDEMPOLL_NO_SUCH_VARIABLE").expect_err("unset");
        assert!(
            e.to_string()
                .contains("IDEMPOLL_NO_SUCH_VARIABLE: it is not set")
        );
    }

    #[test]
    fn r7_4_a_secret_does_not_print() {
        let secret = Secret::from_bytes(b"t0ken-example", "F").expect("a token");
        assert_eq!(format!("{secret:?}"), "[secret]");
    }
}
