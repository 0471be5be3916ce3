//! Where a token comes from: read once a cycle, for all feeds of a source.

use super::Ask;
use super::github::app::AppTokens;
use crate::config::checked::TokenFrom;
use crate::config::secret;
use crate::engine::time::Time;
use crate::error::Error;
use crate::net::{Client, Secret};
use crate::os::pid::Group;
use crate::os::process;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a token command may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// How often a token command is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// A token, and what it is called where limits and cool-downs are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// What is sent.
    pub secret: Secret,
    /// A name that does not tell it: the same as long as it is the same to the tracker's limits.
    pub name: String,
}

/// The token of a source. Clones are one: whichever feed asks first in a cycle
/// reads it for all of them, and what went wrong then is what all are told.
#[derive(Debug, Clone)]
pub struct Tokens(Arc<Mutex<Shared>>);

#[derive(Debug)]
struct Shared {
    from: Option<Origin>,
    last: Option<Read>,
}

/// Where a token comes from.
#[derive(Debug)]
enum Origin {
    /// A place where it stands.
    Place(TokenFrom),
    /// A GitHub App, which is issued one.
    App(Box<AppTokens>),
}

/// What was read last.
#[derive(Debug)]
struct Read {
    /// In which cycle.
    cycle: Time,
    token: Result<Token, String>,
}

impl Tokens {
    /// Nothing is read yet. An App asks the tracker with this base, through `client`.
    #[must_use]
    pub fn new(from: Option<TokenFrom>, client: &Client, base_url: &str) -> Tokens {
        let from = from.map(|from| match from {
            TokenFrom::App(app) => {
                Origin::App(Box::new(AppTokens::new(app, client.clone(), base_url)))
            }
            place => Origin::Place(place),
        });
        Tokens(Arc::new(Mutex::new(Shared { from, last: None })))
    }

    /// The token for a listing; `None` if none is configured.
    ///
    /// # Errors
    /// What is wrong with which place, in a sentence that never shows the token.
    pub fn read(&self, ask: &Ask) -> Result<Option<Token>, String> {
        // A panic while reading leaves the token of an earlier cycle, which is not used.
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Shared { from, last } = &mut *shared;
        let Some(from) = from else {
            return Ok(None);
        };
        if let Some(read) = last.as_ref().filter(|read| read.cycle == ask.cycle) {
            return read.token.clone().map(Some);
        }
        let token = match from {
            Origin::Place(place) => read(place).map(|secret| Token {
                name: secret.fingerprint(),
                secret,
            }),
            Origin::App(app) => app.token(ask.now, ask.cycle),
        };
        *last = Some(Read {
            cycle: ask.cycle,
            token: token.clone(),
        });
        token.map(Some)
    }

    /// The tracker did not accept `token` in this cycle: an App is to get another
    /// one. Other places are read anew at the next cycle anyway.
    pub fn refused(&self, token: &Secret, cycle: Time) {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Origin::App(app)) = &mut shared.from
            && app.refused(token, cycle)
        {
            shared.last = None;
        }
    }
}

/// Reads the token. [`secret`] has the rule for what is one.
///
/// # Errors
/// What is wrong with which place, in a sentence that never shows the token.
pub fn read(from: &TokenFrom) -> Result<Secret, String> {
    let read = match from {
        TokenFrom::Env(name) => secret::Secret::from_env(name),
        TokenFrom::File(path) => secret::Secret::from_file(path),
        TokenFrom::Command(words) => {
            let output = command(words, DEADLINE).map_err(|e| format!("{from} {e}"))?;
            secret::Secret::from_bytes(&output, &from.to_string())
        }
        TokenFrom::App(_) => return Err(format!("{from} is issued a token, which stands nowhere")),
    };
    let token = read.map_err(|e| e.to_string())?;
    Ok(Secret::new(token.expose()))
}

/// Runs a command to its end and takes its standard output.
///
/// It has a session of its own, so that no Ctrl-C meant for us reaches it, and
/// is killed when we end before it does: nobody would read its answer.
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
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    process::is_no_service(&mut command);
    process::lead_a_session(&mut command);
    process::end_with_us(&mut command);
    let mut child = command
        .spawn()
        .map_err(|e| Error::new("cannot be run", e).to_string())?;
    let (send, output) = channel();
    if let Some(stdout) = child.stdout.take() {
        let reader = std::thread::Builder::new().name("token".to_string());
        let read = move || {
            let mut bytes = Vec::new();
            let end = stdout.take(secret::LIMIT + 1).read_to_end(&mut bytes);
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
            (Some(status), _) if !status.success() => {
                // gh's way to say that nobody has logged in.
                let is_gh = Path::new(program).file_name() == Some("gh".as_ref());
                let logged_out = is_gh && status.code() == Some(4);
                let advice = match logged_out {
                    true => {
                        "; nobody is logged in there: gh auth login, or -h HOST if not to github.com"
                    }
                    false => "",
                };
                return Err(format!("failed: {status}{advice}"));
            }
            (_, read) => bytes = read,
        }
    }
    end(&mut child);
    Err(format!("did not end within {} s", deadline.as_secs_f64()))
}

/// Ends a command that took too long, with what it has started; it has nothing to lose.
fn end(child: &mut Child) {
    if let Some(group) = Group::led_by(child.id()) {
        group.end();
    }
    let _ = child.wait();
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::fs;

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_string).to_vec()
    }

    fn ask(cycle: u64) -> Ask {
        Ask {
            cycle: Time(cycle),
            ..Ask::default()
        }
    }

    fn tokens_of(from: Option<TokenFrom>) -> Tokens {
        Tokens::new(from, &Client::default(), "http://127.0.0.1:1")
    }

    /// A token command that notes each run in `DIR/runs` and then does `rest`.
    fn noted(dir: &Path, rest: &str) -> Tokens {
        let script = format!("echo run >> '{}/runs'; {rest}", dir.display());
        tokens_of(Some(TokenFrom::Command(shell(&script))))
    }

    fn runs(dir: &Path) -> usize {
        let text = fs::read_to_string(dir.join("runs")).unwrap_or_default();
        text.lines().count()
    }

    /// Given three feeds of a source with a token command, when they ask for the token
    /// in one cycle and again in the next, then it ran once in each.
    #[test]
    fn a_token_is_read_once_a_cycle() {
        let dir = Scratch::new();
        let tokens = noted(&dir, "echo t0ken");
        let feeds = [tokens.clone(), tokens.clone(), tokens];
        for (cycle, ran) in [(1, 1), (2, 2)] {
            for feed in &feeds {
                let token = feed.read(&ask(cycle)).expect("it works").expect("a token");
                assert_eq!(token.secret, Secret::new("t0ken"));
                assert_eq!(token.name, token.secret.fingerprint());
            }
            assert_eq!(runs(&dir), ran);
        }
        assert_eq!(tokens_of(None).read(&ask(1)), Ok(None));
    }

    /// Given a token command that fails, when three feeds ask in one cycle, then it ran
    /// once and all are told the same reason; the next cycle tries again.
    #[test]
    fn a_token_command_that_fails_is_not_run_again_in_its_cycle() {
        let dir = Scratch::new();
        let tokens = noted(&dir, &format!("cat '{}/token'", dir.display()));
        for _ in 0..3 {
            let failed = tokens.clone().read(&ask(1)).expect_err("no such file");
            assert_eq!(failed, "the token command sh failed: exit status: 1");
        }
        assert_eq!(runs(&dir), 1);
        fs::write(dir.join("token"), "t0ken").expect("written");
        assert!(tokens.read(&ask(2)).is_ok());
        assert_eq!(runs(&dir), 2);
    }

    /// Given token files good and bad (C133), when they are read, then the rule
    /// of the config is theirs: what `check` accepts, a listing can use.
    #[test]
    fn c133_a_token_file_is_read_by_the_rule_of_the_config() {
        let dir = Scratch::new();
        let path = dir.join("token");
        let from = TokenFrom::File(path.clone());
        std::fs::write(&path, "\u{feff} t0ken-example\r\n").expect("written");
        assert_eq!(read(&from), Ok(Secret::new("t0ken-example")));
        std::fs::write(&path, "t0ken\nexample").expect("written");
        let error = read(&from).expect_err("not a token");
        assert!(error.contains(&from.to_string()), "{error}");
        assert!(!error.contains("t0k"), "{error}");
        std::fs::remove_file(&path).expect("there");
        let error = read(&from).expect_err("no file");
        assert!(error.starts_with("cannot read the token file /"), "{error}");
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
        assert_eq!(empty, "cannot use the token command sh: it is empty");
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
