//! Where things are when nobody says: the config file, the state directory.

use crate::error::Error;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// What of the process's surroundings decides about places.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Env {
    /// The working directory.
    pub cwd: PathBuf,
    /// The environment variables.
    pub vars: BTreeMap<OsString, OsString>,
}

impl Env {
    /// The process's own.
    ///
    /// # Errors
    /// When the working directory is gone.
    pub fn of_process() -> Result<Env, Error> {
        Ok(Env {
            cwd: std::env::current_dir()
                .map_err(|e| Error::new("cannot tell the working directory", e))?,
            vars: std::env::vars_os().collect(),
        })
    }

    /// A variable that is set and not empty.
    fn var(&self, name: &str) -> Option<&OsString> {
        self.vars
            .get(&OsString::from(name))
            .filter(|v| !v.is_empty())
    }

    /// A variable that names an absolute path; the XDG rules say to ignore others.
    fn dir(&self, name: &str) -> Option<PathBuf> {
        self.var(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    }

    /// Where state is kept when neither flag nor config says so.
    pub(super) fn state_dir(&self) -> Option<PathBuf> {
        // systemd sets it, and writes several directories with colons between.
        let given = self.var("STATE_DIRECTORY").and_then(|list| {
            std::env::split_paths(list)
                .next()
                .filter(|p| p.is_absolute())
        });
        given
            .or_else(|| Some(self.dir("XDG_STATE_HOME")?.join("idempoll")))
            .or_else(|| Some(self.dir("HOME")?.join(".local/state/idempoll")))
    }
}

/// `path` as seen from `base`, without `.` and doubled slashes. What `..` leads to is looked up
/// now: it must not lead elsewhere, or nowhere, when a directory on the way is removed later.
#[must_use]
pub fn absolute(base: &Path, path: &Path) -> PathBuf {
    let joined: PathBuf = base
        .join(path)
        .components()
        .filter(|c| *c != Component::CurDir)
        .collect();
    let parts: Vec<Component<'_>> = joined.components().collect();
    let Some(up) = parts.iter().rposition(|c| *c == Component::ParentDir) else {
        return joined;
    };
    let (to, rest) = parts.split_at(up + 1);
    let to: PathBuf = to.iter().collect();
    match to.canonicalize() {
        Ok(to) => rest.iter().fold(to, |path, part| path.join(part)),
        // Whoever uses it says what is missing.
        Err(_) => joined,
    }
}

/// The config file to read: `flag` if given, else the first that exists of the
/// places `docs/config.md` lists.
///
/// # Errors
/// A usage error that lists where it looked.
pub fn find(flag: Option<&Path>, env: &Env) -> Result<PathBuf, Error> {
    if let Some(file) = flag {
        return Ok(absolute(&env.cwd, file));
    }
    if let Some(file) = env.var("IDEMPOLL_CONFIG") {
        return Ok(absolute(&env.cwd, Path::new(file)));
    }
    let home = env
        .dir("XDG_CONFIG_HOME")
        .or_else(|| Some(env.dir("HOME")?.join(".config")));
    let looked: Vec<PathBuf> = [
        Some(env.cwd.join("idempoll.json")),
        home.map(|h| h.join("idempoll/config.json")),
        Some(PathBuf::from("/etc/idempoll/config.json")),
    ]
    .into_iter()
    .flatten()
    .collect();
    // A file that is there but may not be looked at is the one meant: reading it says why.
    let there = |p: &PathBuf| match std::fs::symlink_metadata(p) {
        Ok(_) => true,
        Err(e) => e.kind() == std::io::ErrorKind::PermissionDenied,
    };
    if let Some(file) = looked.iter().find(|p| there(p)) {
        return Ok(file.clone());
    }
    let places: Vec<String> = looked.iter().map(|p| p.display().to_string()).collect();
    Err(Error::usage(
        "found no config file",
        format!("looked for {}", places.join(", ")),
    )
    .hint("'idempoll init' writes one to start from; --config names one elsewhere"))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn env(cwd: &Path, vars: &[(&str, &str)]) -> Env {
        Env {
            cwd: cwd.to_path_buf(),
            vars: vars
                .iter()
                .map(|(k, v)| (OsString::from(k), OsString::from(v)))
                .collect(),
        }
    }

    #[test]
    fn the_state_directory_comes_from_the_first_variable_that_names_one() {
        let at = |vars: &[(&str, &str)]| env(Path::new("/w"), vars).state_dir();
        let some = |s: &str| Some(PathBuf::from(s));
        let home = ("HOME", "/home/o");
        assert_eq!(at(&[home]), some("/home/o/.local/state/idempoll"));
        assert_eq!(at(&[home, ("XDG_STATE_HOME", "/s")]), some("/s/idempoll"));
        assert_eq!(
            at(&[home, ("XDG_STATE_HOME", "relative")]),
            some("/home/o/.local/state/idempoll")
        );
        let list = ("STATE_DIRECTORY", "/var/lib/a:/var/lib/b");
        assert_eq!(at(&[home, list]), some("/var/lib/a"));
        assert_eq!(at(&[home, ("STATE_DIRECTORY", "")]), at(&[home]));
        assert_eq!(at(&[]), None);
        assert_eq!(at(&[("HOME", "")]), None);
    }

    #[test]
    fn the_config_file_is_the_first_that_exists_or_the_error_lists_them() {
        let dir = Scratch::new();
        let home = dir.join("home");
        std::fs::create_dir_all(home.join(".config/idempoll")).expect("a temporary directory");
        let home_text = home.display().to_string();
        let vars = [("HOME", home_text.as_str())];
        let at =
            |flag: Option<&str>, vars: &[(&str, &str)]| find(flag.map(Path::new), &env(&dir, vars));

        let e = at(None, &vars).expect_err("none there yet");
        let text = e.to_string();
        for place in [
            dir.join("idempoll.json"),
            home.join(".config/idempoll/config.json"),
            PathBuf::from("/etc/idempoll/config.json"),
        ] {
            assert!(text.contains(&place.display().to_string()), "{text}");
        }
        assert!(e.hint.expect("a hint").contains("idempoll init"));

        let in_home = home.join(".config/idempoll/config.json");
        std::fs::write(&in_home, "{}").expect("a file");
        assert_eq!(at(None, &vars), Ok(in_home));
        std::fs::write(dir.join("idempoll.json"), "{}").expect("a file");
        assert_eq!(at(None, &vars), Ok(dir.join("idempoll.json")));
        let named = [vars[0], ("IDEMPOLL_CONFIG", "sub/c.json")];
        assert_eq!(at(None, &named), Ok(dir.join("sub/c.json")));
        assert_eq!(at(Some("./x.json"), &named), Ok(dir.join("x.json")));
    }

    /// Given a path that goes up from a directory, when that directory is removed later, then
    /// the path still leads where it led: it was looked up at once.
    #[test]
    fn what_goes_up_is_looked_up_at_once() {
        let dir = Scratch::new();
        let base = dir.join("release");
        std::fs::create_dir(&base).expect("it can be made");
        let real = dir.canonicalize().expect("it is there");
        assert_eq!(
            absolute(&base, Path::new("../state/x")),
            real.join("state/x")
        );
        assert_eq!(absolute(&base, Path::new("./state")), base.join("state"));
        let nowhere = absolute(&base, Path::new("gone/../state"));
        assert_eq!(nowhere, base.join("gone/../state"));
    }
}
