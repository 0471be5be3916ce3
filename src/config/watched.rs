//! The config file of a running poller, read again from time to time.

use super::checked::Config;
use super::place::Env;
use super::{Overrides, raw, rules};
use crate::error::Error;
use crate::mutant;
use std::path::PathBuf;

/// The config in use, and the file it came from. Where the file is, the flags
/// and the environment stay as they were at the start.
pub struct Watched {
    overrides: Overrides,
    env: Env,
    config: Config,
    warnings: Vec<String>,
    /// The text in use.
    text: String,
    /// What the last look found: a text, or why there was none.
    seen: Result<String, Error>,
}

/// What a look at the file found.
#[derive(Debug)]
pub enum Look {
    /// What the last look found.
    AsBefore,
    /// The text in use again, after something else.
    Back,
    /// Another text, and it is right.
    Edited(Box<Edit>),
    /// Nothing that could be used, and why.
    Wrong(Error),
}

/// A config to be used from now on: see [`Watched::use_from_now`].
#[derive(Debug)]
pub struct Edit {
    /// It, with the flags applied.
    pub config: Config,
    /// What is allowed in it and most likely not meant.
    pub warnings: Vec<String>,
    /// The keys of the top level whose values changed.
    pub changed: Vec<String>,
    text: String,
}

impl Watched {
    /// Reads and checks the config in `file`, an absolute path.
    ///
    /// # Errors
    /// As [`super::load`].
    pub fn open(file: PathBuf, overrides: Overrides, env: Env) -> Result<Watched, Error> {
        let text = raw::read(&file)?;
        let (config, warnings) = rules::check(&file, &text, &overrides, &env)?;
        Ok(Watched {
            overrides,
            env,
            config,
            warnings,
            seen: Ok(text.clone()),
            text,
        })
    }

    /// The config in use.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What is allowed in it and most likely not meant.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Looks at the file; as long as it stays the same, that costs one read.
    pub fn look(&mut self) -> Look {
        let found = raw::read(&self.config.file);
        if found == self.seen {
            return Look::AsBefore;
        }
        self.seen = found.clone();
        let text = match found {
            Ok(text) => text,
            Err(error) => return Look::Wrong(error),
        };
        if text == self.text {
            return Look::Back;
        }
        let none = Overrides::default();
        let overrides = match mutant::is("reload-forgets-flags") {
            true => &none,
            false => &self.overrides,
        };
        match rules::check(&self.config.file, &text, overrides, &self.env) {
            Ok((config, warnings)) => Look::Edited(Box::new(Edit {
                config,
                warnings,
                changed: raw::changed_keys(&self.text, &text),
                text,
            })),
            Err(error) => Look::Wrong(error),
        }
    }

    /// Takes an edit into use.
    pub fn use_from_now(&mut self, edit: Edit) {
        self.config = edit.config;
        self.warnings = edit.warnings;
        self.text = edit.text;
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::fs;
    use std::time::Duration;

    const RIGHT: &str = r#"{ "state_dir": "s", "interval_seconds": 60, "authorized_users": ["octocat"],
        "sources": [{ "name": "in", "provider": "dir", "path": "in", "sinks": ["log"] }],
        "sinks": { "log": { "type": "exec", "command": ["true"] } } }"#;

    fn open(dir: &Scratch, overrides: Overrides) -> Watched {
        let file = dir.join("c.json");
        fs::write(&file, RIGHT).expect("a file");
        let env = Env {
            cwd: dir.to_path_buf(),
            ..Env::default()
        };
        Watched::open(file, overrides, env).expect("it is right")
    }

    /// Given a config in use, when its file is edited, broken, removed and put back, then
    /// each state is told once, and only a right one can be taken into use (SPEC section 4).
    #[test]
    fn each_state_of_the_file_is_told_once() {
        let dir = Scratch::new();
        let mut watched = open(&dir, Overrides::default());
        let file = dir.join("c.json");
        let write = |text: &str| fs::write(&file, text).expect("a file");
        let same = |watched: &mut Watched| assert!(matches!(watched.look(), Look::AsBefore));
        let wrong = |watched: &mut Watched| match watched.look() {
            Look::Wrong(error) => error.to_string(),
            other => panic!("{other:?}"),
        };
        same(&mut watched);
        write("{");
        assert!(wrong(&mut watched).ends_with("1:1: this { is never closed"));
        same(&mut watched);
        fs::remove_file(&file).expect("it is there");
        assert!(wrong(&mut watched).contains("no such file"));
        same(&mut watched);
        write(RIGHT);
        assert!(matches!(watched.look(), Look::Back));
        same(&mut watched);

        let edited = RIGHT.replace("60", "30");
        write(&edited);
        let Look::Edited(edit) = watched.look() else {
            panic!("it is right and new");
        };
        assert_eq!(edit.changed, ["interval_seconds"]);
        // Not taken into use: it is not told again, and going back is.
        same(&mut watched);
        write(RIGHT);
        assert!(matches!(watched.look(), Look::Back));
        write(&edited);
        let Look::Edited(edit) = watched.look() else {
            panic!("it is new again");
        };
        watched.use_from_now(*edit);
        same(&mut watched);
        assert_eq!(watched.config().interval, Duration::from_secs(30));
        write(&format!("// a word\n{edited}"));
        let Look::Edited(edit) = watched.look() else {
            panic!("the text is another");
        };
        assert!(edit.changed.is_empty() && edit.config == *watched.config());
    }

    #[test]
    fn flags_win_over_every_edit() {
        let dir = Scratch::new();
        let flags = Overrides {
            interval: Some(7),
            ..Overrides::default()
        };
        let mut watched = open(&dir, flags);
        fs::write(dir.join("c.json"), RIGHT.replace("60", "30")).expect("a file");
        let Look::Edited(edit) = watched.look() else {
            panic!("it is right and new");
        };
        assert_eq!(edit.changed, ["interval_seconds"]);
        assert_eq!(edit.config, *watched.config());
    }
}
