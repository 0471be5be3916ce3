//! The config after every rule was applied: the only shape other rooms see.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A config that passed every rule, with the flags applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The file it came from.
    pub file: PathBuf,
    /// Where state is kept; absolute.
    pub state_dir: PathBuf,
    /// The pidfile; absolute; `state_dir/poll.pid` unless told otherwise.
    pub pidfile: PathBuf,
    /// From the start of one cycle to the start of the next.
    pub interval: Duration,
    /// Workers per sink: at most this many deliveries to one sink at once.
    pub max_concurrent: usize,
    /// The first pause after a failed attempt; later ones are four times the one before, up to an hour.
    pub retry_pause: Duration,
    /// How long a stop waits for what neither goes on alone nor can be cut short.
    pub drain: Duration,
    /// The text that marks our own comments.
    pub self_marker: String,
    /// The sources, in the order of the file.
    pub sources: Vec<Source>,
    /// The sinks, by name.
    pub sinks: BTreeMap<String, Sink>,
}

/// One place to poll.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// Its name; unique without regard to case; [`crate::engine::item::is_plain_name`] and at most 40 long.
    pub name: String,
    /// Which tracker, and its own settings.
    pub provider: Provider,
    /// The names of its sinks, at least one, each once, all defined.
    pub sinks: Vec<String>,
    /// Those of them that take the bodies of GitHub's webhooks.
    pub webhook_sinks: Vec<String>,
    /// What applies to its items.
    pub policy: Policy,
}

/// What decides about the items of a source. The engine gets this.
pub use crate::engine::access::Policy;

/// A tracker and its settings.
#[derive(Debug, Clone, PartialEq)]
pub enum Provider {
    /// A directory of item files.
    Dir(Dir),
    /// GitHub, github.com or an Enterprise Server.
    GitHub(GitHub),
}

/// A directory of item files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dir {
    /// The directory; absolute (relative ones start at the config file's directory).
    pub path: PathBuf,
}

/// GitHub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHub {
    /// `(owner, repo)` pairs, each passing `is_name`.
    pub repos: Vec<(String, String)>,
    /// The API's base, `https://api.github.com`, without a slash at the end; http only for loopback.
    pub base_url: String,
    /// Whether issues are watched.
    pub issues: bool,
    /// Whether pull requests are watched.
    pub pull_requests: bool,
    /// Where the token comes from.
    pub token: Option<TokenFrom>,
    /// Certificates that are trusted beside the built-in ones: a PEM file; absolute.
    pub ca_file: Option<PathBuf>,
    /// How often everything is listed, not only what changed.
    pub sweep: Duration,
}

/// Where a token comes from; never from the config itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenFrom {
    /// An environment variable, removed from the environment of children.
    Env(String),
    /// A file.
    File(PathBuf),
    /// The standard output of a command.
    Command(Vec<String>),
    /// A GitHub App, which gets itself one for an hour at a time.
    App(App),
}

/// A GitHub App, installed somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    /// Its client id (`Iv…`), or its number: letters, digits, `.`, `_`, `-`.
    pub id: String,
    /// Which of its installations.
    pub installation_id: u64,
    /// Its private key, a PEM file; absolute.
    pub private_key_file: PathBuf,
}

impl fmt::Display for TokenFrom {
    /// As the user calls it: `the token file /etc/idempoll/token`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenFrom::Env(name) => write!(f, "the environment variable {name}"),
            TokenFrom::File(path) => write!(f, "the token file {}", path.display()),
            // Its arguments may be as secret as what it prints.
            TokenFrom::Command(words) => {
                let program = words.first().map_or("", String::as_str);
                write!(f, "the token command {program}")
            }
            TokenFrom::App(app) => write!(
                f,
                "the installation {} of the GitHub App {}",
                app.installation_id, app.id
            ),
        }
    }
}

/// A sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sink {
    /// A command run per event.
    Exec(Exec),
    /// A tmux session per item.
    Tmux(Tmux),
    /// An HTTP endpoint that gets a request per event.
    Http(Http),
}

impl Sink {
    /// Whether it takes the bodies of GitHub's webhooks.
    #[must_use]
    pub fn takes_webhooks(&self) -> bool {
        matches!(self, Sink::Http(http) if http.format == Format::GitHub)
    }
}

/// A command run per event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// The command and its arguments; at least one word. A first word with a
    /// slash that is relative starts at the config file's directory; one
    /// without is looked up in `PATH`.
    pub command: Vec<String>,
    /// The directory it runs in; the config file's directory by default.
    pub workdir: PathBuf,
    /// How long it may run.
    pub timeout: Duration,
}

/// A tmux session per item, with a command in it that is typed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tmux {
    /// The command and its arguments, as for [`Exec`]. `{prompt_file}` in an argument stands
    /// for a file with the prompt.
    pub command: Vec<String>,
    /// The directory it runs in; absolute; may hold `{source}`, `{owner}`, `{repo}`, `{number}`.
    pub workdir: String,
    /// Whether that is made when it is not there.
    pub create_workdir: bool,
    /// The server's socket; absolute; at most [`super::keys::SOCKET_LENGTH`] bytes.
    pub socket: PathBuf,
    /// A text the screen shows when the agent is ready.
    pub ready_text: Option<String>,
    /// How long a new agent takes; with `ready_text`, how long that is waited for.
    pub ready: Duration,
    /// A text before the cursor when nothing stands on the agent's input line.
    pub idle_text: Option<String>,
    /// The template of what is pasted.
    pub template_file: Option<PathBuf>,
    /// From the paste to Enter.
    pub enter: Duration,
    /// When what was pasted counts as submitted.
    pub submit: Submit,
    /// What becomes of the session when the item has ended.
    pub on_close: OnClose,
    /// The most sessions with a living agent in them.
    pub max_sessions: usize,
    /// For how long nobody must have typed in the session; zero asks for nothing.
    pub quiet: Duration,
}

/// When what was pasted counts as submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submit {
    /// When tmux took paste and Enter in one go.
    None,
    /// When tmux took the paste and, a moment later, Enter.
    Receipt,
    /// When this command says that the agent took it.
    Command(Vec<String>),
}

/// What becomes of a session when its item has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnClose {
    /// The agent is ended.
    End,
    /// Nothing.
    Keep,
    /// The agent is told.
    Tell,
}

/// An HTTP endpoint that gets a request per event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// Where to: http or https, with a path, without user, password and fragment.
    pub url: String,
    /// What it gets.
    pub format: Format,
    /// What the body is signed with.
    pub secret: Option<SecretFrom>,
    /// Header fields besides ours: name and value.
    pub headers: Vec<(String, String)>,
    /// Header fields whose values stand in files: name and absolute path.
    pub header_files: Vec<(String, PathBuf)>,
    /// How long a request may take as a whole.
    pub timeout: Duration,
    /// Certificates that are trusted beside the built-in ones: a PEM file; absolute.
    pub ca_file: Option<PathBuf>,
}

/// What an HTTP endpoint gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The payload that every sink gets.
    Idempoll,
    /// What GitHub's webhook would have sent.
    GitHub,
}

/// Where a secret comes from that is no token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretFrom {
    /// An environment variable, removed from the environment of children.
    Env(String),
    /// A file.
    File(PathBuf),
}

impl fmt::Display for SecretFrom {
    /// As the user calls it: `the secret file /etc/idempoll/secret`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretFrom::Env(name) => write!(f, "the environment variable {name}"),
            SecretFrom::File(path) => write!(f, "the secret file {}", path.display()),
        }
    }
}
