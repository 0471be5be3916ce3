//! The commands and their flags: one table that the parser reads and the help is made from.

use crate::config::keys;
use std::fmt::Write;

/// One flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flag {
    /// Its long name, without the dashes.
    pub long: &'static str,
    /// Its short name, if it has one.
    pub short: Option<char>,
    /// What its value is called in the help; `None` if it takes none.
    pub value: Option<&'static str>,
    /// What it does, in one line.
    pub about: &'static str,
}

/// One command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verb {
    /// The word for it.
    pub word: &'static str,
    /// Its operands as the help shows them.
    pub operands: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// What else there is to know, as lines.
    pub more: &'static str,
    /// Its own flags.
    pub flags: &'static [Flag],
    /// A command line to start from, and what it does.
    pub example: (&'static str, &'static str),
}

const fn flag(long: &'static str, value: Option<&'static str>, about: &'static str) -> Flag {
    Flag {
        long,
        short: None,
        value,
        about,
    }
}

const JSON: Flag = flag("json", None, "print JSON, for programs");

/// The flags every command takes, before or after its word.
pub const GLOBAL: &[Flag] = &[
    flag("config", Some("FILE"), "the config file"),
    flag("state-dir", Some("DIR"), "where everything is remembered"),
    flag(
        "pidfile",
        Some("FILE"),
        "default: poll.pid in the state directory",
    ),
    Flag {
        long: "quiet",
        short: Some('q'),
        value: None,
        about: "say only what went wrong",
    },
    Flag {
        long: "verbose",
        short: Some('v'),
        value: None,
        about: "say more",
    },
    flag(
        "log-format",
        Some("text|json"),
        "how progress is told (text on a terminal, else json)",
    ),
    Flag {
        long: "help",
        short: Some('h'),
        value: None,
        about: "show this help",
    },
    Flag {
        long: "version",
        short: Some('V'),
        value: None,
        about: "show the version",
    },
];

/// All commands, in the order the help shows them.
pub const VERBS: &[Verb] = &[
    Verb {
        word: "start",
        operands: "",
        about: "poll and deliver, in the foreground, until stopped",
        more: "Only one poller runs in a state directory. SIGTERM, SIGINT and SIGHUP stop it after\n\
               the item in hand; a second one ends it at once. Starting again carries on where it\n\
               left off, however it ended.",
        flags: &[
            flag("once", None, "one cycle, deliver what it found, exit"),
            flag(
                "interval",
                Some("SECS"),
                "from one cycle to the next (1 to 86400)",
            ),
            flag(
                "max-retries",
                Some("N"),
                "tries after the first that failed (0 to 100)",
            ),
        ],
        example: ("idempoll start --once", "one cycle, to see what it does"),
    },
    Verb {
        word: "stop",
        operands: "",
        about: "stop the poller and wait until it is gone",
        more: "Commands the poller started go on; the next start takes them up again.\n\
               Exit 1: nothing ran, or it is still there after the timeout.",
        flags: &[
            flag("timeout", Some("SECS"), "how long to wait (default 30)"),
            flag("if-running", None, "exit 0 if nothing runs"),
        ],
        example: (
            "idempoll stop && idempoll start",
            "restart, without losing or repeating anything",
        ),
    },
    Verb {
        word: "status",
        operands: "",
        about: "say whether a poller runs and how it fares",
        more: "Exit 0: running. Exit 3: not running. Exit 1: dead, and it left its pidfile.",
        flags: &[JSON],
        example: ("idempoll status --json", "for a health check"),
    },
    Verb {
        word: "items",
        operands: "",
        about: "list the items known",
        more: "With both --pending and --gave-up: items with either.",
        flags: &[
            flag("pending", None, "only items with deliveries that wait"),
            flag(
                "gave-up",
                None,
                "only items with deliveries that were given up",
            ),
            JSON,
        ],
        example: ("idempoll items --gave-up", "what needs a look"),
    },
    Verb {
        word: "show",
        operands: "REF",
        about: "show one item and each of its deliveries",
        more: "REF is the item's name as 'idempoll items' lists it.",
        flags: &[JSON],
        example: (
            "idempoll show github:octo/api#7",
            "what was delivered, and what waits for what",
        ),
    },
    Verb {
        word: "events",
        operands: "",
        about: "show the event log",
        more: "TIME is a time (2026-08-05T10:00:00Z) or how long ago (10m, 2h, 3d).\n\
               In GLOB, * stands for any text and ? for any one character.",
        flags: &[
            flag("follow", None, "go on showing new ones, until Ctrl-C"),
            flag("since", Some("TIME"), "only those from then on"),
            flag("item", Some("REF"), "only those about this item"),
            flag("type", Some("GLOB"), "only these types, as in 'dispatch.*'"),
            JSON,
        ],
        example: (
            "idempoll events --since 1h --type 'dispatch.*'",
            "what was delivered in the last hour",
        ),
    },
    Verb {
        word: "retry",
        operands: "REF [DELIVERY] | --all",
        about: "try again what was given up",
        more: "REF alone means everything given up for the item; DELIVERY is one of them, as\n\
               'idempoll show' lists it. A running poller takes it up within a second.",
        flags: &[flag("all", None, "everything given up, for all items")],
        example: (
            "idempoll retry github:octo/api#7 comment/1234",
            "one delivery",
        ),
    },
    Verb {
        word: "check",
        operands: "",
        about: "check the config and what it names on this machine",
        more: "Nothing is changed, and no tracker is contacted but with --online.\n\
               Exit 1: something would not work. Exit 2: the config itself is wrong.",
        flags: &[flag(
            "online",
            None,
            "ask the trackers too: what the tokens can see, what polling costs",
        )],
        example: (
            "idempoll check --config new.json",
            "before putting it in place",
        ),
    },
    Verb {
        word: "init",
        operands: "[PATH]",
        about: "write a config to start from",
        more: "PATH is the file to write, ./idempoll.json without it. A file that is there\n\
               already is left alone.",
        flags: &[
            flag("provider", Some("NAME"), "dir (the default) or github"),
            flag("sink", Some("NAME"), "exec (the default), http or tmux"),
        ],
        example: (
            "idempoll init --provider github",
            "watch repositories on GitHub",
        ),
    },
    Verb {
        word: "help",
        operands: "[COMMAND]",
        about: "show this help, or that of a command",
        more: "",
        flags: &[
            flag("man", None, "as a manual page, for man"),
            flag(
                "completions",
                Some("bash|zsh|fish"),
                "what has that shell complete command lines",
            ),
        ],
        example: ("idempoll help start", "what start does, and its flags"),
    },
];

/// The exit codes, as in `exit.rs`, and what each means.
pub const EXITS: &[(u8, &str)] = &[
    (0, "done; stop: it ran and is gone; status: a poller runs"),
    (1, "it could not be done; stderr says why and what to do"),
    (2, "the command line or the config is wrong"),
    (3, "status: not running"),
    (130, "ended by a second signal before it had drained"),
];

/// What the program is for, as lines.
pub const PROGRAM: &str = "\
    idempoll polls issue trackers and delivers new work to a local command,\n\
    an agent in a tmux session or an HTTP endpoint.\n\
    Stopping and starting it has no effect: nothing is lost, nothing is done twice.\n";

/// What may be the value of a flag, if that is one of a few words.
#[must_use]
pub fn choices(flag: &Flag) -> Vec<&'static str> {
    match (flag.long, flag.value) {
        ("provider", _) => keys::PROVIDERS.iter().map(|p| p.0).collect(),
        ("sink", _) => keys::SINK_TYPES.iter().map(|s| s.0).collect(),
        (_, Some(value)) if value.contains('|') => value.split('|').collect(),
        _ => Vec::new(),
    }
}

/// The command of that name.
#[must_use]
pub fn verb(word: &str) -> Option<&'static Verb> {
    VERBS.iter().find(|v| v.word == word)
}

/// The help of the program.
#[must_use]
pub fn overview() -> String {
    let mut page = format!("{PROGRAM}\nusage: idempoll COMMAND [FLAGS]\n\ncommands:\n");
    for verb in VERBS {
        let _ = writeln!(page, "  {:<8}{}", verb.word, verb.about);
    }
    page.push_str("\nflags of every command:\n");
    flags(&mut page, GLOBAL);
    page.push_str(
        "\nto begin:\n  idempoll init            write ./idempoll.json, with comments\n  \
         idempoll check           see whether it would work\n  \
         idempoll start           go\n\n'idempoll help COMMAND' says more about each.\n",
    );
    page
}

/// The help of one command.
#[must_use]
pub fn of(verb: &Verb) -> String {
    let mut page = format!("idempoll {}: {}\n\nusage: ", verb.word, verb.about);
    page.push_str(&usage(verb));
    page.push('\n');
    if !verb.more.is_empty() {
        let _ = write!(page, "\n{}\n", verb.more);
    }
    if !verb.flags.is_empty() {
        page.push_str("\nflags:\n");
        flags(&mut page, verb.flags);
    }
    page.push_str("\nflags of every command:\n");
    flags(&mut page, GLOBAL);
    let (line, what) = verb.example;
    let _ = writeln!(page, "\nexample:\n  {line}    # {what}");
    page
}

/// `idempoll stop [--timeout SECS] [--if-running]`.
#[must_use]
pub fn usage(verb: &Verb) -> String {
    let mut line = format!("idempoll {}", verb.word);
    if !verb.operands.is_empty() {
        let _ = write!(line, " {}", verb.operands);
    }
    for flag in verb.flags {
        // A flag that stands for an operand is shown with the operands.
        if verb.operands.contains(&format!("--{}", flag.long)) {
            continue;
        }
        let _ = match flag.value {
            Some(value) => write!(line, " [--{} {value}]", flag.long),
            None => write!(line, " [--{}]", flag.long),
        };
    }
    line
}

/// A flag as pages name it: `-q, --quiet`, `--config FILE`.
#[must_use]
pub fn name(flag: &Flag) -> String {
    let mut name = match flag.short {
        Some(short) => format!("-{short}, --{}", flag.long),
        None => format!("--{}", flag.long),
    };
    if let Some(value) = flag.value {
        name.push(' ');
        name.push_str(value);
    }
    name
}

fn flags(page: &mut String, flags: &[Flag]) {
    for flag in flags {
        let name = name(flag);
        let _ = writeln!(page, "  {name:<23} {}", flag.about);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_every_command_and_every_flag() {
        let page = overview();
        for flag in GLOBAL {
            assert!(page.contains(&format!("--{}", flag.long)), "{}", flag.long);
        }
        for verb in VERBS {
            assert!(
                page.contains(&format!("\n  {} ", verb.word)),
                "{}",
                verb.word
            );
            let page = of(verb);
            for flag in verb.flags.iter().chain(GLOBAL) {
                let line = format!("--{}", flag.long);
                let line = page
                    .lines()
                    .find(|l| {
                        l.trim_start().starts_with(&line) || l.contains(&format!(", {line} "))
                    })
                    .unwrap_or_else(|| panic!("{} lacks --{}", verb.word, flag.long));
                assert!(line.ends_with(flag.about), "{line}");
                assert!(
                    flag.value.is_none_or(|v| line.contains(v)),
                    "{line} lacks its value"
                );
            }
            assert!(page.contains("\nexample:\n  idempoll "), "{page}");
        }
    }

    #[test]
    fn the_help_fits_a_terminal() {
        for page in VERBS.iter().map(of).chain([overview()]) {
            for line in page.lines() {
                assert!(line.chars().count() <= 100, "{line}");
            }
            assert!(page.ends_with('\n') && !page.contains("\n\n\n"), "{page}");
        }
    }

    #[test]
    fn usage_lines_read_as_in_the_manual() {
        let usages: Vec<String> = VERBS.iter().map(usage).collect();
        assert_eq!(
            usages,
            [
                "idempoll start [--once] [--interval SECS] [--max-retries N]",
                "idempoll stop [--timeout SECS] [--if-running]",
                "idempoll status [--json]",
                "idempoll items [--pending] [--gave-up] [--json]",
                "idempoll show REF [--json]",
                "idempoll events [--follow] [--since TIME] [--item REF] [--type GLOB] [--json]",
                "idempoll retry REF [DELIVERY] | --all",
                "idempoll check [--online]",
                "idempoll init [PATH] [--provider NAME] [--sink NAME]",
                "idempoll help [COMMAND] [--man] [--completions bash|zsh|fish]",
            ]
        );
    }

    #[test]
    fn the_exit_codes_are_those_there_are() {
        use crate::exit::Exit;
        let all = [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::NotRunning,
            Exit::Interrupted,
        ];
        let codes: Vec<u8> = EXITS.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes, all.map(Exit::code));
    }

    #[test]
    fn no_flag_has_two_meanings() {
        for verb in VERBS {
            let mut names: Vec<&str> = verb.flags.iter().chain(GLOBAL).map(|f| f.long).collect();
            names.sort_unstable();
            let all = names.len();
            names.dedup();
            assert_eq!(names.len(), all, "{}", verb.word);
        }
    }
}
