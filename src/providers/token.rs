//! Reading a token from where the config says it is.

use crate::config::checked::TokenFrom;
use crate::error::Error;
use crate::net::Secret;
use crate::os::file::open_regular_or_link;
use std::fmt;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// More than any token; what is longer is something else.
const MAX_TOKEN: u64 = 64 << 10;

/// How long a token command may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// How often a token command is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Reads the token, without blanks, line ends and a byte-order mark around it.
///
/// # Errors
/// What is wrong with which place, in a sentence that never shows the token.
pub fn read(from: &TokenFrom) -> Result<Secret, String> {
    let place = Place(from);
    let bytes = match from {
        TokenFrom::Env(name) => std::env::var_os(name)
            .ok_or_else(|| format!("{place} is not set"))?
            .into_encoded_bytes(),
        TokenFrom::File(path) => {
            file(path).map_err(|e| Error::new(format!("cannot read {place}"), e).to_string())?
        }
        TokenFrom::Command(words) => {
            command(words, DEADLINE).map_err(|e| format!("{place} {e}"))?
        }
    };
    let text = String::from_utf8(bytes)
        .map_err(|_| format!("{place} gives something that is not UTF-8"))?;
    let token = text.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    if token.is_empty() {
        return Err(format!("{place} gives an empty token"));
    }
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(format!(
            "{place} gives a token with blanks, line ends or other odd characters inside"
        ));
    }
    Ok(Secret::new(token))
}

/// Where a token comes from, as the user calls it.
pub struct Place<'a>(pub &'a TokenFrom);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            TokenFrom::Env(name) => write!(f, "the environment variable {name}"),
            TokenFrom::File(path) => write!(f, "the token file {}", path.display()),
            // Its arguments may be as secret as what it prints.
            TokenFrom::Command(words) => {
                let program = words.first().map_or("", String::as_str);
                write!(f, "the token command {program}")
            }
        }
    }
}

fn file(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular_or_link(path)?
        .take(MAX_TOKEN)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Runs a command to its end and takes its standard output.
///
/// A thread reads the output, since the command may leave a child behind that
/// keeps the pipe open for ever; such a thread is left behind with it.
#[expect(
    clippy::disallowed_methods,
    reason = "a token command has no effect and no receipt, so it is none of sinks/child.rs's; \
              its thread ends with the pipe and is never joined"
)]
fn command(words: &[String], deadline: Duration) -> Result<Vec<u8>, String> {
    let (program, arguments) = words.split_first().ok_or("is empty")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| Error::new("cannot be run", e).to_string())?;
    let (send, output) = channel();
    if let Some(stdout) = child.stdout.take() {
        let reader = std::thread::Builder::new().name("token".to_string());
        let read = move || {
            let mut bytes = Vec::new();
            let end = stdout.take(MAX_TOKEN).read_to_end(&mut bytes);
            // Nobody waits for it when the deadline has passed.
            let _ = send.send(end.map(|_| bytes));
        };
        if let Err(e) = reader.spawn(read) {
            end(&mut child);
            return Err(format!("cannot be run: {e}"));
        }
    }
    let mut bytes = None;
    for _ in 0..deadline.as_millis().div_ceil(LOOK.as_millis()) {
        match output.recv_timeout(LOOK) {
            Ok(Ok(read)) => bytes = Some(read),
            Ok(Err(e)) => {
                end(&mut child);
                return Err(format!("cannot be read: {e}"));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::park_timeout(LOOK),
        }
        let status = child
            .try_wait()
            .map_err(|e| format!("cannot be waited for: {e}"))?;
        match (status, bytes.take()) {
            (Some(status), Some(bytes)) if status.success() => return Ok(bytes),
            (Some(status), _) if !status.success() => return Err(format!("failed: {status}")),
            (_, read) => bytes = read,
        }
    }
    end(&mut child);
    Err(format!("did not end within {} s", deadline.as_secs_f64()))
}

/// Ends a command that took too long; it has nothing to lose.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A directory of this test's own, removed when it ends.
    struct Temp(PathBuf);

    impl Temp {
        fn new(name: &str) -> Temp {
            let dir = std::env::temp_dir().join(format!("idempoll-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&dir).expect("a writable temp dir");
            Temp(dir)
        }
    }

    impl Drop for Temp {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_string).to_vec()
    }

    /// Given token files as editors leave them (C133), when they are read, then
    /// what is around the token goes, and what is no token is an error that
    /// names the file and does not show what is in it (R7.4).
    #[test]
    fn c133_token_files_are_trimmed_and_checked() {
        let temp = Temp::new("token");
        let path = temp.0.join("token");
        let from = TokenFrom::File(path.clone());
        for good in [
            "t0ken-example\n",
            "t0ken-example\r\n",
            "\u{feff}t0ken-example\n",
            "  t0ken-example  \n",
            "t0ken-example",
        ] {
            std::fs::write(&path, good).expect("written");
            assert_eq!(read(&from), Ok(Secret::new("t0ken-example")), "{good:?}");
        }
        for bad in [
            &b""[..],
            b" \n",
            b"\xef\xbb\xbf",
            b"t0ken\nexample\n",
            b"t0ken\xff",
            b"t0k\xc3\xa9n",
        ] {
            std::fs::write(&path, bad).expect("written");
            let error = read(&from).expect_err("not a token");
            assert!(error.contains(&path.display().to_string()), "{error}");
            assert!(!error.contains("t0k"), "{error}");
        }
        std::fs::remove_file(&path).expect("there");
        let error = read(&from).expect_err("no file");
        assert!(error.starts_with("cannot read the token file /"), "{error}");
        let error = read(&TokenFrom::File(temp.0.clone())).expect_err("a directory");
        assert!(error.ends_with("not a regular file"), "{error}");
    }

    #[test]
    fn a_token_command_gives_its_standard_output() {
        let read = |script| read(&TokenFrom::Command(shell(script)));
        assert_eq!(read("echo noise >&2; echo t0ken"), Ok(Secret::new("t0ken")));
        // Its end is waited for, even after that of its output.
        assert_eq!(
            read("echo t0ken; exec >&-; sleep 0.05"),
            Ok(Secret::new("t0ken"))
        );
        let failed = read("echo t0ken; exit 3").expect_err("exit 3");
        assert_eq!(failed, "the token command sh failed: exit status: 3");
        let empty = read("true").expect_err("no output");
        assert_eq!(empty, "the token command sh gives an empty token");
        let long = read("head -c 100000 /dev/zero").expect_err("no token");
        assert!(!long.contains('\0'));
        let missing = super::read(&TokenFrom::Command(vec!["/no/such/program".into()]));
        let missing = missing.expect_err("no program");
        assert!(
            missing.ends_with("/no/such/program cannot be run: no such file or directory"),
            "{missing}"
        );
    }

    #[test]
    fn a_token_command_has_a_deadline() {
        let soon = Duration::from_millis(100);
        for script in ["exec sleep 60", "exec >&-; exec sleep 60"] {
            let error = command(&shell(script), soon).expect_err("too slow");
            assert_eq!(error, "did not end within 0.1 s");
        }
    }
}
