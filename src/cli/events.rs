//! `idempoll events`: the event log. Takes no lock, changes nothing.

use super::args::{Events, Global, Since};
use super::out::Out;
use super::when::stamp;
use crate::daemon::clock;
use crate::engine::entry::{Entry, Level};
use crate::engine::item::ItemRef;
use crate::engine::time::Time;
use crate::error::Error;
use crate::exit::Exit;
use crate::store::Layout;
use crate::store::journal::{self, Follow};
use crossbeam_channel::never;
use serde_json::Value;
use std::fmt::Write;
use std::time::Duration;

/// Between two looks for new entries.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Prints the entries asked for.
pub(super) fn run(global: &Global, args: &Events, out: &mut Out) -> Result<Exit, Error> {
    let layout = Layout::new(super::places(global)?.state_dir);
    let since = args.since.map(|since| match since {
        Since::At(time) => time,
        Since::Ago(ago) => {
            let now = clock::now();
            Time(
                now.0
                    .saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)),
            )
        }
    });
    let wanted = Wanted {
        since,
        item: args.item.as_ref(),
        kind: args.kind.as_deref(),
        debug: args.json || global.verbosity == super::args::Verbosity::Verbose,
    };
    let tell = |entry: &Entry, out: &mut Out| {
        if wanted.takes(entry) {
            if args.json {
                out.json_line(entry);
            } else {
                out.line(line(entry));
            }
        }
    };
    if !args.follow {
        for entry in journal::read(&layout, since) {
            tell(&entry?, out);
            if !out.is_open() {
                break;
            }
        }
        return Ok(Exit::Done);
    }
    // One reader for what is there and what comes: nothing between them can be missed or told twice.
    let mut follow = Follow::from_start(layout);
    while out.is_open() {
        for entry in follow.poll() {
            tell(&entry, out);
        }
        out.flush();
        let _ = never::<()>().recv_timeout(LOOK_AGAIN);
    }
    Ok(Exit::Done)
}

/// Which entries are asked for.
struct Wanted<'a> {
    since: Option<Time>,
    item: Option<&'a ItemRef>,
    kind: Option<&'a str>,
    /// Whether those of level `debug` are.
    debug: bool,
}

impl Wanted<'_> {
    fn takes(&self, entry: &Entry) -> bool {
        self.since.is_none_or(|since| entry.ts >= since)
            && (self.debug || entry.level > Level::Debug)
            && self.kind.is_none_or(|glob| matches(glob, &entry.kind))
            && self.item.is_none_or(|item| {
                let named = entry.fields.get("ref").and_then(Value::as_str);
                named.is_some_and(|named| named.eq_ignore_ascii_case(&item.to_string()))
            })
    }
}

/// Whether `glob` matches all of `text`: `*` stands for any text, `?` for one character.
fn matches(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    let (mut g, mut t) = (0, 0);
    // Where to go on when the text after the last star does not fit.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match glob.get(g) {
            Some('*') => {
                star = Some((g, t));
                g += 1;
            }
            Some(&c) if c == '?' || c == text[t] => {
                g += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    g = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|&c| c == '*')
}

/// An entry as people read it: time, level, type, then its fields.
#[must_use]
pub(super) fn line(entry: &Entry) -> String {
    let level = match entry.level {
        Level::Debug => "debug",
        Level::Info => "info",
        Level::Warn => "warn",
        Level::Error => "error",
    };
    let mut line = format!("{} {level:<5} {:<21}", stamp(entry.ts), entry.kind);
    // The delivery id begins with the ref; one of them is enough.
    let has_id = entry.fields.contains_key("delivery_id");
    for (key, value) in &entry.fields {
        if key == "ref" && has_id {
            continue;
        }
        let _ = match value {
            Value::Null => Ok(()),
            Value::String(s) if s.is_empty() || s.contains([' ', '"', '=']) => {
                write!(line, " {key}=\"{}\"", s.replace('"', "\\\""))
            }
            Value::String(s) => write!(line, " {key}={s}"),
            other => write!(line, " {key}={other}"),
        };
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_types() {
        for (glob, text, fits) in [
            ("dispatch.*", "dispatch.failed", true),
            ("dispatch.*", "poll.cycle", false),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("*.cycle", "poll.cycle", true),
            ("poll", "poll.cycle", false),
            ("poll.c?cle", "poll.cycle", true),
            ("p?", "poll", false),
            ("*o*l*", "poll.cycle", true),
            ("*ab", "aab", true),
            ("a*b*c", "abcbc", true),
            ("a*b*c", "abcb", false),
        ] {
            assert_eq!(matches(glob, text), fits, "{glob} on {text}");
        }
        let long = "a".repeat(5000);
        assert!(
            !matches(&"a*".repeat(50).replace("a*a*", "*a*b"), &long),
            "and in good time"
        );
    }

    #[test]
    fn an_entry_reads_as_one_line() {
        let entry = Entry::new(
            "2026-08-05T10:00:00.123Z".parse().expect("a time"),
            "dispatch.failed",
        )
        .with("ref", "dir:inbox#7")
        .with("delivery_id", "dir:inbox#7/opened")
        .with("attempt", 2)
        .with("reason", "exit status 3, \"no\"")
        .with("sink", "agent");
        assert_eq!(
            line(&entry),
            "2026-08-05T10:00:00Z warn  dispatch.failed       attempt=2 delivery_id=dir:inbox#7/opened \
             reason=\"exit status 3, \\\"no\\\"\" sink=agent"
        );
    }

    #[test]
    fn entries_are_picked_by_time_type_and_item() {
        let entry = Entry::new(Time(5000), "poll.item_error").with("ref", "github:octo/api#7");
        let wanted = |since, item: Option<&str>, kind| {
            let item: Option<ItemRef> = item.map(|i| i.parse().expect("a ref"));
            Wanted {
                since,
                item: item.as_ref(),
                kind,
                debug: false,
            }
            .takes(&entry)
        };
        assert!(wanted(None, None, None));
        assert!(wanted(
            Some(Time(5000)),
            Some("github:Octo/API#7"),
            Some("poll.*")
        ));
        assert!(!wanted(Some(Time(5001)), None, None));
        assert!(!wanted(None, Some("github:octo/api#8"), None));
        assert!(!wanted(None, None, Some("dispatch.*")));
    }
}
