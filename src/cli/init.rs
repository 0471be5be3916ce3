//! `idempoll init`: writes a config to start from.

use super::args::Init;
use super::out::Out;
use crate::error::Error;
use crate::exit::Exit;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Writes the config, and the directory its source reads if that is not there.
pub(super) fn run(args: &Init, out: &mut Out) -> Result<Exit, Error> {
    let path = if args.path.is_dir() {
        args.path.join("idempoll.json")
    } else {
        args.path.clone()
    };
    write_new(&path, &starter(&args.provider, &args.sink))?;
    out.line(format_args!("wrote {}", path.display()));
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let at = if path == Path::new("idempoll.json") || path == Path::new("./idempoll.json") {
        String::new()
    } else {
        format!(" --config {}", quoted(&path))
    };
    out.line("");
    if args.provider == "dir" {
        let inbox = dir.join("inbox");
        std::fs::create_dir_all(&inbox)
            .map_err(|e| Error::new(format!("cannot make the directory {}", inbox.display()), e))?;
        out.line(format_args!("Put an item into {}, as in", inbox.display()));
        out.line(format_args!(
            r#"  echo '{{"number": 1, "author": "octocat", "state": "open", "title": "Try it"}}' > {}"#,
            quoted(&inbox.join("1.json"))
        ));
        out.line("and deliver it:");
        out.line(format_args!("  idempoll start --once{at}"));
        let delivered = match args.sink.as_str() {
            "tmux" => Some("delivered.txt"),
            "exec" => Some("delivered.jsonl"),
            _ => None,
        };
        if let Some(delivered) = delivered {
            out.line(format_args!("  cat {}", quoted(&dir.join(delivered))));
        }
    } else {
        out.line(format_args!(
            "Write your repositories and logins into it, set GITHUB_TOKEN, then:"
        ));
        out.line(format_args!("  idempoll check{at}"));
        out.line(format_args!("  idempoll start --once{at}"));
    }
    Ok(Exit::Done)
}

/// Writes a file that is not there yet.
fn write_new(path: &Path, text: &str) -> Result<(), Error> {
    let doing = format!("cannot write {}", path.display());
    let mut file = open_new(path).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => Error::new(&doing, "it is there already")
            .hint("name another file, or move this one away"),
        ErrorKind::NotFound => Error::new(&doing, e).hint("make its directory first"),
        _ => Error::new(&doing, e),
    })?;
    file.write_all(text.as_bytes()).map_err(|e| {
        // Half a config helps nobody, and would be in the way of the next try.
        let _ = std::fs::remove_file(path);
        Error::new(&doing, e)
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "a config for the user to edit, not state; never over a file that is there"
)]
fn open_new(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,@%=:".contains(c);
    if text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// The config to start from, with a source of `provider` and a sink of the type `sink`.
fn starter(provider: &str, sink: &str) -> String {
    let source = match provider {
        "github" => GITHUB_SOURCE,
        _ => DIR_SOURCE,
    };
    let sink = match sink {
        "http" => HTTP_SINK,
        "tmux" => TMUX_SINK,
        _ => EXEC_SINK,
    };
    let text = START.replace("SOURCE", source.trim_end());
    text.replace("SINK", sink.trim_end())
}

const START: &str = r#"// What every key means: docs/config.md. Is it right? idempoll check
{
  // Where everything is remembered; without it ~/.local/state/idempoll, for all configs alike.
  "state_dir": "state",

  // From the start of one cycle to the start of the next.
  "interval_seconds": 60,

  // Whose items and comments take effect: logins. Nobody else's do.
  "authorized_users": ["octocat"],

  // Only items with this label; all, if left out.
  // "label": "auto",

  "sources": [
SOURCE
  ],

  "sinks": {SINK
  }
}
"#;

const EXEC_SINK: &str = r#"
    // Runs a command for each event, with the event as JSON on its standard
    // input. This one keeps them in a file; put your own program here.
    "agent": {
      "type": "exec",
      "command": ["sh", "-c", "{ flock 1; cat && echo; } >> delivered.jsonl"],
      "timeout_seconds": 1800
    }
"#;

const TMUX_SINK: &str = r#"
    // A tmux session for each item, with this command in it. The event is pasted
    // into it as text; `idempoll show` says how to look on. Put your agent here.
    "agent": {
      "type": "tmux",
      "command": ["sh", "-c", "cat >> delivered.txt"],
      // "workdir": "/srv/{owner}/{repo}",
      "ready_seconds": 3
    }
"#;

const HTTP_SINK: &str = r#"
    // Posts each event to an HTTP endpoint: docs/http.md.
    "agent": {
      "type": "http",
      "url": "http://127.0.0.1:8080/hook",

      // What GitHub's webhook would have sent, for a receiver that knows those.
      // "format": "github",

      // What the body is signed with, as GitHub's webhooks are.
      // "secret_file": "secret",
      "timeout_seconds": 30
    }
"#;

const DIR_SOURCE: &str = r#"
    {
      "name": "inbox",
      "provider": "dir",
      // Each *.json file in here is an item.
      "path": "inbox",
      "sinks": ["agent"]
    }
"#;

const GITHUB_SOURCE: &str = r#"
    {
      "name": "github",
      "provider": "github",
      "repos": ["octo/api"],
      // "issues": true,
      // "pull_requests": true,

      // The token stands in this environment variable. Instead:
      // "token_file": "token", or "token_command": ["gh", "auth", "token"]
      "token_env": "GITHUB_TOKEN",
      "sinks": ["agent"]
    }
"#;

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;
    use crate::cli::out::tests::{captured, text};
    use crate::config::{Overrides, keys, load};
    use crate::scratch::Scratch;

    fn init(provider: &str, path: PathBuf) -> Result<String, Error> {
        init_with(provider, "exec", path)
    }

    fn init_with(provider: &str, sink: &str, path: PathBuf) -> Result<String, Error> {
        let (mut out, bytes) = captured();
        let args = Init {
            provider: provider.into(),
            sink: sink.into(),
            path,
        };
        run(&args, &mut out)?;
        out.finish()?;
        Ok(text(&bytes))
    }

    #[test]
    fn the_config_it_writes_is_right_for_every_provider_and_sink() {
        let all = keys::PROVIDERS.iter().flat_map(|(provider, _)| {
            keys::SINK_TYPES
                .iter()
                .map(move |(sink, _)| (provider, *sink))
        });
        for (provider, sink) in all {
            let dir = Scratch::new();
            let said = init_with(provider, sink, dir.join("c.json")).expect("it writes");
            assert!(said.contains(&format!("wrote {}", dir.join("c.json").display())));
            let overrides = Overrides {
                state_dir: Some(dir.join("state")),
                ..Overrides::default()
            };
            let (config, warnings) = load(&dir.join("c.json"), &overrides).expect("it is right");
            assert_eq!(warnings, Vec::<String>::new());
            assert_eq!(config.sources.len(), 1);
            let text = std::fs::read_to_string(dir.join("c.json")).expect("it was written");
            assert!(text.contains(&format!("\"type\": \"{sink}\"")), "{text}");
        }
    }

    #[test]
    fn a_file_that_is_there_is_left_alone() {
        let dir = Scratch::new();
        let file = dir.join("idempoll.json");
        std::fs::write(&file, "mine").expect("a file");
        for path in [file.clone(), dir.to_path_buf()] {
            let e = init("dir", path).expect_err("it is there");
            assert!(e.to_string().ends_with("it is there already"), "{e}");
        }
        assert_eq!(std::fs::read_to_string(&file).expect("a file"), "mine");
        assert!(!dir.join("inbox").exists(), "nothing else was made either");
        let e = init("dir", dir.join("no/c.json")).expect_err("no directory");
        assert!(e.to_string().contains("no such file or directory"), "{e}");
    }

    #[test]
    fn the_commands_it_names_can_be_pasted() {
        assert_eq!(quoted(Path::new("./inbox/1.json")), "./inbox/1.json");
        assert_eq!(quoted(Path::new("it's here")), r"'it'\''s here'");
    }
}
