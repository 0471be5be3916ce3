//! Every key of the config file: the one table that the reader, the hints and
//! the documentation go by.

use std::ops::RangeInclusive;

/// Allowed `interval_seconds`.
pub const INTERVAL: RangeInclusive<u64> = 1..=86_400;
/// Allowed `max_retries`.
pub const RETRIES: RangeInclusive<u64> = 0..=100;
/// Allowed `max_concurrent_deliveries`.
pub const CONCURRENT: RangeInclusive<u64> = 1..=64;
/// Allowed `retry_seconds`.
pub const RETRY_PAUSE: RangeInclusive<f64> = 0.0..=3600.0;
/// Allowed `drain_seconds`.
pub const DRAIN: RangeInclusive<f64> = 1.0..=3600.0;
/// Allowed `timeout_seconds`: up to a week.
pub const TIMEOUT: RangeInclusive<f64> = 0.1..=604_800.0;
/// Allowed `ready_seconds`.
pub const READY: RangeInclusive<f64> = 0.0..=3600.0;
/// Allowed `enter_seconds`.
pub const ENTER: RangeInclusive<f64> = 0.0..=60.0;
/// Allowed `quiet_seconds`.
pub const QUIET: RangeInclusive<f64> = 0.0..=86_400.0;
/// Allowed `max_sessions`.
pub const SESSIONS: RangeInclusive<u64> = 1..=1000;
/// The longest path of a socket, in bytes; the kernel takes 107.
pub const SOCKET_LENGTH: usize = 100;
/// Allowed `timeout_seconds` of an `http` sink: up to an hour.
pub const HTTP_TIMEOUT: RangeInclusive<f64> = 0.1..=3600.0;
/// Allowed `sweep_minutes`: up to a week.
pub const SWEEP: RangeInclusive<u64> = 5..=10_080;
/// Allowed `installation_id`: what JSON can say exactly.
pub const INSTALLATION: RangeInclusive<u64> = 1..=9_007_199_254_740_991;

/// The marker of our own comments unless the config names another.
pub const SELF_MARKER: &str = "<!-- idempoll -->";
/// GitHub's API unless the config names another.
pub const GITHUB_API: &str = "https://api.github.com";

/// The longest name of a source or a sink.
pub const NAME_LENGTH: usize = 40;

/// One key of the config file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The key.
    pub name: &'static str,
    /// What its value is, in the words of `docs/config.md`.
    pub kind: &'static str,
    /// What holds without it, in the words of `docs/config.md`; `required` when it must be there.
    pub default: &'static str,
}

/// A place in the config file with keys of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// How a message names it: "the top level", "a 'dir' source".
    pub what: &'static str,
    /// The heading of `docs/config.md` that lists it.
    pub heading: &'static str,
    /// Its keys, in the order they are documented.
    pub keys: &'static [Key],
}

const fn key(name: &'static str, kind: &'static str, default: &'static str) -> Key {
    Key {
        name,
        kind,
        default,
    }
}

/// The top level.
pub const TOP: Place = Place {
    what: "the top level",
    heading: "Top level",
    keys: &[
        key("state_dir", "path", "see below"),
        key("interval_seconds", "whole number", "60"),
        key("max_retries", "whole number", "3"),
        key("max_concurrent_deliveries", "whole number", "4"),
        key("retry_seconds", "number", "10"),
        key("drain_seconds", "number", "10"),
        key("authorized_users", "list of texts", "[]"),
        key("authorized_associations", "list of texts", "[]"),
        key("self_marker", "text", "\"<!-- idempoll -->\""),
        key("label", "text", "none"),
        key("backlog", "\"open\" or \"skip\"", "\"open\""),
        key("sources", "list of sources", "required"),
        key("sinks", "object of sinks", "required"),
        key("$schema", "text", "none"),
    ],
};

/// Every source, whatever its provider.
pub const SOURCE: Place = Place {
    what: "a source",
    heading: "A source",
    keys: &[
        key("name", "name", "required"),
        key("provider", "\"dir\" or \"github\"", "required"),
        key("sinks", "list of names", "required"),
        key("authorized_users", "list of texts", "the top level's"),
        key(
            "authorized_associations",
            "list of texts",
            "the top level's",
        ),
        key("max_retries", "whole number", "the top level's"),
        key("label", "text", "the top level's"),
        key("backlog", "\"open\" or \"skip\"", "the top level's"),
        key("watch_from", "time", "when it was first polled"),
    ],
};

/// A source with `"provider": "dir"`.
pub const DIR: Place = Place {
    what: "a 'dir' source",
    heading: "Provider `dir`",
    keys: &[key("path", "path", "required")],
};

/// A source with `"provider": "github"`.
pub const GITHUB: Place = Place {
    what: "a 'github' source",
    heading: "Provider `github`",
    keys: &[
        key("repos", "list of texts", "required"),
        key("base_url", "text", "\"https://api.github.com\""),
        key("issues", "true or false", "true"),
        key("pull_requests", "true or false", "true"),
        key("token_env", "text", "none"),
        key("token_file", "path", "none"),
        key("token_command", "list of texts", "none"),
        key("app", "object", "none"),
        key("ca_file", "path", "none"),
        key("sweep_minutes", "whole number", "60"),
    ],
};

/// The `app` of a source with `"provider": "github"`.
pub const APP: Place = Place {
    what: "an app",
    heading: "A GitHub App",
    keys: &[
        key("id", "text", "required"),
        key("installation_id", "whole number", "required"),
        key("private_key_file", "path", "required"),
    ],
};

/// Every sink, whatever its type.
pub const SINK: Place = Place {
    what: "a sink",
    heading: "A sink",
    keys: &[key("type", "\"exec\", \"http\" or \"tmux\"", "required")],
};

/// A sink with `"type": "exec"`.
pub const EXEC: Place = Place {
    what: "an 'exec' sink",
    heading: "Type `exec`",
    keys: &[
        key("command", "list of texts", "required"),
        key("workdir", "path", "the config file's directory"),
        key("timeout_seconds", "number", "1800"),
    ],
};

/// A sink with `"type": "tmux"`.
pub const TMUX: Place = Place {
    what: "a 'tmux' sink",
    heading: "Type `tmux`",
    keys: &[
        key("command", "list of texts", "required"),
        key("workdir", "path", "the config file's directory"),
        key("create_workdir", "true or false", "false"),
        key("socket", "path", "`tmux/NAME.sock` in the state directory"),
        key("ready_text", "text", "none"),
        key("ready_seconds", "number", "3, or 60 with `ready_text`"),
        key("idle_text", "text", "none"),
        key("template_file", "path", "the built-in one"),
        key("enter_seconds", "number", "1"),
        key(
            "submit_check",
            "\"receipt\", \"none\" or list of texts",
            "\"receipt\"",
        ),
        key("on_close", "\"end\", \"keep\" or \"tell\"", "\"end\""),
        key("max_sessions", "whole number", "8"),
        key("quiet_seconds", "number", "0"),
    ],
};

/// A sink with `"type": "http"`.
pub const HTTP: Place = Place {
    what: "an 'http' sink",
    heading: "Type `http`",
    keys: &[
        key("url", "text", "required"),
        key("format", "\"idempoll\" or \"github\"", "\"idempoll\""),
        key("secret_file", "path", "none"),
        key("secret_env", "text", "none"),
        key("headers", "object of texts", "none"),
        key("header_files", "object of paths", "none"),
        key("timeout_seconds", "number", "30"),
        key("ca_file", "path", "none"),
    ],
};

/// All places, in the order of `docs/config.md`.
pub const PLACES: &[Place] = &[TOP, SOURCE, DIR, GITHUB, APP, SINK, EXEC, HTTP, TMUX];

/// The providers there are, with their own keys.
pub const PROVIDERS: &[(&str, Place)] = &[("dir", DIR), ("github", GITHUB)];

/// The types of sinks there are, with their own keys.
pub const SINK_TYPES: &[(&str, Place)] = &[("exec", EXEC), ("http", HTTP), ("tmux", TMUX)];

impl Place {
    /// Whether it has a key of that name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.keys.iter().any(|k| k.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    const PAGE: &str = include_str!("../../docs/config.md");
    const SCHEMA: &str = include_str!("../../docs/config.schema.json");

    /// The rows of the table under `heading`: key, type, default.
    fn rows(heading: &str) -> Vec<(String, String, String)> {
        let (_, section) = PAGE
            .split_once(&format!("# {heading}\n"))
            .unwrap_or_else(|| panic!("docs/config.md has no heading '{heading}'"));
        let section = section.split("\n#").next().expect("at least one piece");
        section
            .lines()
            .filter(|l| l.starts_with("| `"))
            .map(|l| {
                let cells: Vec<&str> = l.trim_matches('|').split(" | ").map(str::trim).collect();
                assert!(!cells[3].is_empty(), "{l}");
                (
                    cells[0].trim_matches('`').to_string(),
                    cells[1].to_string(),
                    cells[2].to_string(),
                )
            })
            .collect()
    }

    #[test]
    fn the_page_documents_every_key_with_its_type_and_default() {
        for place in PLACES {
            let table: Vec<_> = place
                .keys
                .iter()
                .map(|k| (k.name.into(), k.kind.into(), k.default.into()))
                .collect();
            assert_eq!(rows(place.heading), table, "{}", place.heading);
        }
        let documented = PAGE.lines().filter(|l| l.starts_with("| `")).count();
        let known: usize = PLACES.iter().map(|p| p.keys.len()).sum();
        assert_eq!(documented, known, "a table stands under no known heading");
    }

    #[test]
    fn the_schema_has_every_key_with_its_default_and_its_range() {
        let schema: Value = serde_json::from_str(SCHEMA).expect("the schema is JSON");
        for (pointer, places) in [
            ("", &[TOP][..]),
            ("/$defs/dir", &[SOURCE, DIR]),
            ("/$defs/github", &[SOURCE, GITHUB]),
            ("/$defs/app", &[APP]),
            ("/$defs/exec", &[SINK, EXEC]),
            ("/$defs/tmux", &[SINK, TMUX]),
            ("/$defs/http", &[SINK, HTTP]),
        ] {
            let object = schema.pointer(pointer).expect(pointer);
            let properties = object["properties"].as_object().expect(pointer);
            assert_eq!(object["additionalProperties"], false, "{pointer}");
            let keys: BTreeSet<&str> = places.iter().flat_map(|p| p.keys).map(|k| k.name).collect();
            let documented: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
            assert_eq!(documented, keys, "{pointer}");
            let required: BTreeSet<&str> = places
                .iter()
                .flat_map(|p| p.keys)
                .filter(|k| k.default == "required")
                .map(|k| k.name)
                .collect();
            let schema_requires: BTreeSet<&str> = object["required"]
                .as_array()
                .expect(pointer)
                .iter()
                .filter_map(Value::as_str)
                .collect();
            assert_eq!(schema_requires, required, "{pointer}");
            for key in places.iter().flat_map(|p| p.keys) {
                let default = serde_json::from_str::<Value>(key.default).ok();
                assert_eq!(
                    properties[key.name].get("default"),
                    default.as_ref(),
                    "{}",
                    key.name
                );
            }
        }
        let range = |pointer: &str| {
            let property = schema.pointer(pointer).expect(pointer);
            (property["minimum"].as_f64(), property["maximum"].as_f64())
        };
        let whole = |r: &RangeInclusive<u64>| {
            #[allow(clippy::cast_precision_loss, reason = "small numbers")]
            (Some(*r.start() as f64), Some(*r.end() as f64))
        };
        let some = |r: &RangeInclusive<f64>| (Some(*r.start()), Some(*r.end()));
        assert_eq!(range("/properties/interval_seconds"), whole(&INTERVAL));
        assert_eq!(range("/properties/max_retries"), whole(&RETRIES));
        assert_eq!(
            range("/$defs/github/properties/max_retries"),
            whole(&RETRIES)
        );
        assert_eq!(
            range("/$defs/github/properties/sweep_minutes"),
            whole(&SWEEP)
        );
        assert_eq!(
            range("/$defs/app/properties/installation_id"),
            whole(&INSTALLATION)
        );
        assert_eq!(
            range("/properties/max_concurrent_deliveries"),
            whole(&CONCURRENT)
        );
        assert_eq!(range("/properties/retry_seconds"), some(&RETRY_PAUSE));
        assert_eq!(range("/properties/drain_seconds"), some(&DRAIN));
        assert_eq!(
            range("/$defs/exec/properties/timeout_seconds"),
            some(&TIMEOUT)
        );
        assert_eq!(
            range("/$defs/http/properties/timeout_seconds"),
            some(&HTTP_TIMEOUT)
        );
    }
}
