//! From the words of the command line to a checked value per command.
//!
//! Two steps: [`words`] sorts them into command, flags and operands by the
//! table in [`super::help`], refusing what no table has by name; then each
//! command's own function takes what it knows and checks it.

use super::help::{self, Flag, GLOBAL, VERBS, Verb};
use crate::config::keys;
use crate::config::nearest::did_you_mean;
use crate::engine::item::ItemRef;
use crate::engine::time::Time;
use crate::error::Error;
use lexopt::{Arg, Parser};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// A command line that passed every rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Args {
    /// What every command takes.
    pub global: Global,
    /// What is to be done.
    pub command: Command,
}

/// The flags every command takes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Global {
    /// `--config`, as typed.
    pub config: Option<PathBuf>,
    /// `--state-dir`, as typed.
    pub state_dir: Option<PathBuf>,
    /// `--pidfile`, as typed.
    pub pidfile: Option<PathBuf>,
    /// `-q`, `-v`.
    pub verbosity: Verbosity,
    /// `--log-format`; without it, text on a terminal and JSON otherwise.
    pub log_format: Option<LogFormat>,
}

/// How much is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Verbosity {
    /// Only what went wrong.
    Quiet,
    /// What is worth knowing.
    #[default]
    Normal,
    /// Everything.
    Verbose,
}

/// How progress is told on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// The entry as it stands in the event log.
    Json,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Poll and deliver.
    Start(Start),
    /// Stop the poller.
    Stop(Stop),
    /// Say how the poller fares.
    Status(Status),
    /// List the items.
    Items(Items),
    /// Show one item.
    Show(Show),
    /// Show the event log.
    Events(Events),
    /// Try again what was given up.
    Retry(Retry),
    /// Check the config.
    Check(Check),
    /// Write a config to start from.
    Init(Init),
    /// Show the help.
    Help(Help),
    /// Show the version.
    Version,
}

/// `start`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Start {
    /// One cycle, then exit.
    pub once: bool,
    /// `--interval`, in seconds, within [`keys::INTERVAL`].
    pub interval: Option<u64>,
    /// `--max-retries`, within [`keys::RETRIES`].
    pub max_retries: Option<u32>,
}

/// `stop`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// How long to wait for the poller to be gone.
    pub timeout: Duration,
    /// Whether it is right if nothing runs.
    pub if_running: bool,
}

/// `status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// For programs.
    pub json: bool,
}

/// `items`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Items {
    /// Those with deliveries that wait.
    pub pending: bool,
    /// Those with deliveries that were given up.
    pub gave_up: bool,
    /// For programs.
    pub json: bool,
}

/// `show`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Show {
    /// Which item.
    pub item: ItemRef,
    /// For programs.
    pub json: bool,
}

/// `events`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Events {
    /// Go on with new ones.
    pub follow: bool,
    /// Only those from then on.
    pub since: Option<Since>,
    /// Only those about this item.
    pub item: Option<ItemRef>,
    /// Only those whose type matches this pattern of `*` and `?`.
    pub kind: Option<String>,
    /// For programs.
    pub json: bool,
}

/// A point in time as people say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// Then.
    At(Time),
    /// So long ago.
    Ago(Duration),
}

/// `retry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retry {
    /// Everything given up, for all items.
    All,
    /// Everything given up for one item, or one delivery of it.
    Item {
        /// Which item.
        item: ItemRef,
        /// The event's key, `comment/1234`; everything without it.
        key: Option<String>,
    },
}

/// `check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Ask the trackers too.
    pub online: bool,
}

/// `init`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Init {
    /// The provider of the source in it; one of [`keys::PROVIDERS`].
    pub provider: String,
    /// The type of the sink in it; one of [`keys::SINK_TYPES`].
    pub sink: String,
    /// Where to write it, as typed.
    pub path: PathBuf,
}

/// `help`, and `--help`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Help {
    /// The command it is about; without one, the program.
    pub of: Option<&'static Verb>,
    /// What for.
    pub form: Form,
}

/// What the help is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// To be read on a terminal.
    Text,
    /// For `man`.
    Man,
    /// For a shell that is to complete command lines.
    Completions(Shell),
}

/// A shell that completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    /// bash, 4.4 or later.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
}

/// Reads a command line, without the program's name.
///
/// # Errors
/// A usage error, and the command it belongs to, if that is known already.
pub fn read(
    line: impl IntoIterator<Item = OsString>,
) -> Result<Args, (Option<&'static Verb>, Error)> {
    let (verb, words) = words(line);
    match words.and_then(|words| check(verb, words)) {
        Ok(args) => Ok(args),
        Err(error) => {
            let hint = match verb {
                Some(verb) => format!("usage: {}", help::usage(verb)),
                None => "'idempoll help' lists the commands".to_string(),
            };
            let error = match error.hint {
                None => error.hint(hint),
                Some(_) => error,
            };
            Err((verb, error))
        }
    }
}

/// The words of a command line, sorted.
#[derive(Debug, Default)]
struct Words {
    /// Each flag given, with its value if it takes one. The last one counts.
    flags: BTreeMap<&'static str, Option<OsString>>,
    /// What is neither the command nor a flag.
    operands: Vec<OsString>,
}

/// The first step: which command it is, and its words.
fn words(
    line: impl IntoIterator<Item = OsString>,
) -> (Option<&'static Verb>, Result<Words, Error>) {
    let mut parser = Parser::from_args(line);
    let mut verb = None;
    let mut words = Words::default();
    loop {
        let flag = match parser.next() {
            Ok(None) => return (verb, Ok(words)),
            Err(e) => return (verb, Err(Error::usage(quiet(&e), ""))),
            Ok(Some(Arg::Value(word))) => {
                if verb.is_some() {
                    words.operands.push(word);
                } else {
                    verb = help::verb(&word.to_string_lossy());
                    if verb.is_none() {
                        return (None, Err(unknown_command(&word.to_string_lossy())));
                    }
                }
                continue;
            }
            Ok(Some(Arg::Long(long))) => find_flag(verb, |f| f.long == long)
                .ok_or_else(|| unknown_flag(verb, &format!("--{long}"))),
            Ok(Some(Arg::Short(short))) => find_flag(verb, |f| f.short == Some(short))
                .ok_or_else(|| unknown_flag(verb, &format!("-{short}"))),
        };
        let flag = match flag {
            Ok(flag) => flag,
            Err(e) => return (verb, Err(e)),
        };
        let value = match flag.value {
            None => None,
            Some(what) => match parser.value() {
                Ok(value) => Some(value),
                Err(_) => {
                    let e = Error::usage(format!("--{} needs {what}", flag.long), "");
                    return (verb, Err(e));
                }
            },
        };
        words.flags.insert(flag.long, value);
    }
}

/// What the parser minds by itself: a value where none belongs.
fn quiet(e: &lexopt::Error) -> String {
    match e {
        lexopt::Error::UnexpectedValue { option, .. } => format!("{option} takes no value"),
        other => other.to_string(),
    }
}

fn find_flag(verb: Option<&'static Verb>, is: impl Fn(&Flag) -> bool) -> Option<&'static Flag> {
    let own = verb.map_or(&[][..], |v| v.flags);
    GLOBAL.iter().chain(own).find(|f| is(f))
}

fn unknown_command(word: &str) -> Error {
    let near = did_you_mean(word, VERBS.iter().map(|v| v.word));
    Error::usage(
        format!("unknown command '{}'{near}", word.escape_debug()),
        "",
    )
}

fn unknown_flag(verb: Option<&'static Verb>, flag: &str) -> Error {
    let long = flag.trim_start_matches('-');
    let own = verb.map_or(&[][..], |v| v.flags);
    let elsewhere: Vec<&str> = VERBS
        .iter()
        .filter(|v| v.flags.iter().any(|f| f.long == long))
        .map(|v| v.word)
        .collect();
    let shown = flag.escape_debug();
    let what = match (verb, elsewhere.as_slice()) {
        (None, [_, ..]) => format!("the flag {shown} stands after the command it belongs to"),
        (Some(verb), [_, ..]) => format!(
            "'{}' has no flag {shown}; it belongs to {}",
            verb.word,
            elsewhere.join(", ")
        ),
        _ => {
            let near = did_you_mean(long, own.iter().chain(GLOBAL).map(|f| f.long));
            let near = near.replace("mean '", "mean '--");
            format!("unknown flag {shown}{near}")
        }
    };
    Error::usage(what, "")
}

/// The second step: the checked value of the command.
fn check(verb: Option<&'static Verb>, mut words: Words) -> Result<Args, Error> {
    let help = words.given("help");
    let version = words.given("version");
    let global = Global {
        config: words.path("config")?,
        state_dir: words.path("state-dir")?,
        pidfile: words.path("pidfile")?,
        verbosity: match (words.given("quiet"), words.given("verbose")) {
            (true, true) => return Err(Error::usage("-q and -v contradict each other", "")),
            (true, false) => Verbosity::Quiet,
            (false, true) => Verbosity::Verbose,
            (false, false) => Verbosity::Normal,
        },
        log_format: match words.text("log-format")?.as_deref() {
            None => None,
            Some("text") => Some(LogFormat::Text),
            Some("json") => Some(LogFormat::Json),
            Some(other) => {
                return Err(Error::usage(
                    format!(
                        "--log-format is text or json, not '{}'",
                        other.escape_debug()
                    ),
                    "",
                ));
            }
        },
    };
    let command = if help {
        // Whatever else stands there, the question is how it should look.
        return Ok(Args {
            global,
            command: Command::Help(Help {
                of: verb.filter(|v| v.word != "help"),
                form: Form::Text,
            }),
        });
    } else if version {
        Command::Version
    } else {
        let Some(verb) = verb else {
            return Err(Error::usage("no command given", ""));
        };
        match verb.word {
            "start" => Command::Start(start(&mut words)?),
            "stop" => Command::Stop(stop(&mut words)?),
            "status" => Command::Status(Status {
                json: words.given("json"),
            }),
            "items" => Command::Items(Items {
                pending: words.given("pending"),
                gave_up: words.given("gave-up"),
                json: words.given("json"),
            }),
            "show" => Command::Show(Show {
                item: words
                    .item()?
                    .ok_or_else(|| Error::usage("which item?", ""))?,
                json: words.given("json"),
            }),
            "events" => Command::Events(events(&mut words)?),
            "retry" => Command::Retry(retry(&mut words)?),
            "check" => Command::Check(Check {
                online: words.given("online"),
            }),
            "init" => Command::Init(init(&mut words)?),
            _ => Command::Help(pages(&mut words)?),
        }
    };
    words.nothing_left()?;
    Ok(Args { global, command })
}

fn start(words: &mut Words) -> Result<Start, Error> {
    let retries = words.number("max-retries", keys::RETRIES)?;
    Ok(Start {
        once: words.given("once"),
        interval: words.number("interval", keys::INTERVAL)?,
        max_retries: retries.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
    })
}

fn stop(words: &mut Words) -> Result<Stop, Error> {
    Ok(Stop {
        timeout: Duration::from_secs(words.number("timeout", 0..=86_400)?.unwrap_or(30)),
        if_running: words.given("if-running"),
    })
}

fn events(words: &mut Words) -> Result<Events, Error> {
    Ok(Events {
        follow: words.given("follow"),
        since: words.text("since")?.map(|t| since(&t)).transpose()?,
        item: words.text("item")?.map(|t| item(&t)).transpose()?,
        kind: words.text("type")?,
        json: words.given("json"),
    })
}

fn retry(words: &mut Words) -> Result<Retry, Error> {
    let target = words.item()?;
    match (words.given("all"), target) {
        (true, None) => Ok(Retry::All),
        (true, Some(_)) => Err(Error::usage("either an item or --all, not both", "")),
        (false, None) => Err(Error::usage("which item?", "")),
        (false, Some(item)) => {
            let key = words.operand_text()?.map(|text| {
                // The whole delivery id is as good as its part after the ref.
                match text.strip_prefix(&format!("{item}/")) {
                    Some(key) => key.to_string(),
                    None => text,
                }
            });
            Ok(Retry::Item { item, key })
        }
    }
}

fn init(words: &mut Words) -> Result<Init, Error> {
    let mut one_of = |flag: &str, known: Vec<&str>| match words.text(flag)? {
        None => Ok(known[0].to_string()),
        Some(name) if known.contains(&name.as_str()) => Ok(name),
        Some(name) => Err(Error::usage(
            format!(
                "unknown {flag} '{}'; known: {}",
                name.escape_debug(),
                known.join(", ")
            ),
            "",
        )),
    };
    Ok(Init {
        provider: one_of("provider", keys::PROVIDERS.iter().map(|p| p.0).collect())?,
        sink: one_of("sink", keys::SINK_TYPES.iter().map(|s| s.0).collect())?,
        path: match words.operand() {
            Some(path) if path.is_empty() => return Err(Error::usage("PATH is empty", "")),
            Some(path) => path.into(),
            None => "idempoll.json".into(),
        },
    })
}

/// `help` itself.
fn pages(words: &mut Words) -> Result<Help, Error> {
    let form = match (words.given("man"), words.text("completions")?.as_deref()) {
        (false, None) => Form::Text,
        (true, None) => Form::Man,
        (false, Some("bash")) => Form::Completions(Shell::Bash),
        (false, Some("zsh")) => Form::Completions(Shell::Zsh),
        (false, Some("fish")) => Form::Completions(Shell::Fish),
        (false, Some(other)) => {
            return Err(Error::usage(
                format!(
                    "--completions is bash, zsh or fish, not '{}'",
                    other.escape_debug()
                ),
                "",
            ));
        }
        (true, Some(_)) => {
            return Err(Error::usage("either --man or --completions, not both", ""));
        }
    };
    // They are for all commands at once.
    let of = match form {
        Form::Completions(_) => None,
        Form::Text | Form::Man => words.verb()?,
    };
    Ok(Help { of, form })
}

impl Words {
    /// Whether a flag was given; takes it out.
    fn given(&mut self, flag: &str) -> bool {
        self.flags.remove(flag).is_some()
    }

    /// The value of a flag; takes it out.
    fn value(&mut self, flag: &str) -> Option<OsString> {
        self.flags.remove(flag).flatten()
    }

    fn path(&mut self, flag: &str) -> Result<Option<PathBuf>, Error> {
        match self.value(flag) {
            Some(value) if value.is_empty() => {
                Err(Error::usage(format!("the value of --{flag} is empty"), ""))
            }
            value => Ok(value.map(PathBuf::from)),
        }
    }

    fn text(&mut self, flag: &str) -> Result<Option<String>, Error> {
        match self.value(flag).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(text)) if !text.is_empty() => Ok(Some(text)),
            Some(Ok(_)) => Err(Error::usage(format!("the value of --{flag} is empty"), "")),
            Some(Err(_)) => Err(Error::usage(
                format!("the value of --{flag} is not UTF-8 text"),
                "",
            )),
        }
    }

    fn number(&mut self, flag: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, Error> {
        let Some(text) = self.text(flag)? else {
            return Ok(None);
        };
        // `parse` alone would take a plus sign too.
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        match text.parse::<u64>() {
            Ok(n) if digits && range.contains(&n) => Ok(Some(n)),
            _ => Err(Error::usage(
                format!(
                    "--{flag} is a whole number between {} and {}, not '{}'",
                    range.start(),
                    range.end(),
                    text.escape_debug()
                ),
                "",
            )),
        }
    }

    /// The next operand; takes it out.
    fn operand(&mut self) -> Option<OsString> {
        (!self.operands.is_empty()).then(|| self.operands.remove(0))
    }

    fn operand_text(&mut self) -> Result<Option<String>, Error> {
        self.operand()
            .map(|word| {
                word.into_string().map_err(|word| {
                    Error::usage(
                        format!(
                            "'{}' is not UTF-8 text",
                            word.to_string_lossy().escape_debug()
                        ),
                        "",
                    )
                })
            })
            .transpose()
    }

    fn item(&mut self) -> Result<Option<ItemRef>, Error> {
        self.operand_text()?.map(|t| item(&t)).transpose()
    }

    fn verb(&mut self) -> Result<Option<&'static Verb>, Error> {
        match self.operand_text()? {
            None => Ok(None),
            Some(word) => help::verb(&word)
                .map(Some)
                .ok_or_else(|| unknown_command(&word)),
        }
    }

    /// Refuses what no step took.
    fn nothing_left(&self) -> Result<(), Error> {
        match self.operands.first() {
            None => Ok(()),
            Some(word) => Err(Error::usage(
                format!(
                    "'{}' is one word too many",
                    word.to_string_lossy().escape_debug()
                ),
                "",
            )),
        }
    }
}

fn item(text: &str) -> Result<ItemRef, Error> {
    let item: Result<ItemRef, _> = text.parse();
    let lower = |item: ItemRef| ItemRef {
        provider: item.provider.to_ascii_lowercase(),
        ..item
    };
    item.map(lower).map_err(|e| {
        Error::usage(format!("{e}"), "").hint("'idempoll items' lists the items known")
    })
}

/// `2026-08-05T10:00:00Z`, `10m`, `2h`, `3d`.
fn since(text: &str) -> Result<Since, Error> {
    if let Ok(time) = text.parse::<Time>() {
        return Ok(Since::At(time));
    }
    match humantime::parse_duration(text) {
        Ok(ago) => Ok(Since::Ago(ago)),
        Err(_) => Err(Error::usage(
            format!(
                "--since is a time (2026-08-05T10:00:00Z) or how long ago (10m, 2h, 3d), not '{}'",
                text.escape_debug()
            ),
            "",
        )),
    }
}

#[cfg(test)]
mod tests;
