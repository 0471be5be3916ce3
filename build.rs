//! Tells the program which commit it is built from, when that was made, and for which target.
//!
//! The commit is what a packager says in `IDEMPOLL_COMMIT`, else git's, in a build with the
//! release profile: while it is worked on, each commit would build everything anew. The time
//! is `SOURCE_DATE_EPOCH`, else that of git's commit. What is not known is left empty, and
//! nothing else of this machine gets in.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    // Without a line of this kind, any changed file of the package would ask again.
    println!("cargo:rerun-if-env-changed=IDEMPOLL_COMMIT");
    println!("cargo:rerun-if-env-changed=SOURCE_DATE_EPOCH");
    println!("cargo:rerun-if-changed=build.rs");

    let said = |name: &str| env::var(name).ok().filter(|text| !text.is_empty());
    let packager = said("IDEMPOLL_COMMIT");
    let mut commit = packager.clone().unwrap_or_default();
    let mut time = said("SOURCE_DATE_EPOCH").unwrap_or_default();
    let release = said("PROFILE").is_some_and(|profile| profile == "release");
    if packager.is_none() && release {
        let root = PathBuf::from(said("CARGO_MANIFEST_DIR").unwrap_or_default());
        if let Some((hash, then)) = commit_of(&root) {
            commit = hash;
            if time.is_empty() {
                time = then;
            }
        }
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+' | '~');
    if !commit.chars().all(plain) {
        println!("cargo:warning=IDEMPOLL_COMMIT is not the name of a commit, and left out");
        commit.clear();
    }
    if !time.bytes().all(|b| b.is_ascii_digit()) {
        println!("cargo:warning=SOURCE_DATE_EPOCH is not a number of seconds, and left out");
        time.clear();
    }
    let commit: String = commit.chars().take(10).collect();
    println!("cargo:rustc-env=IDEMPOLL_BUILT_FROM={commit}");
    println!("cargo:rustc-env=IDEMPOLL_BUILT_OF={time}");
    let target = said("TARGET").unwrap_or_default();
    println!("cargo:rustc-env=IDEMPOLL_BUILT_FOR={target}");
    let profile = if release { "" } else { "debug" };
    println!("cargo:rustc-env=IDEMPOLL_BUILT_AS={profile}");
}

/// The commit checked out, and the seconds since 1970 at which it was made. Only of a
/// repository that is this package's own, not of one around it.
fn commit_of(root: &Path) -> Option<(String, String)> {
    if !root.join(".git").exists() {
        return None;
    }
    let line = git(root, &["rev-list", "--max-count=1", "--timestamp", "HEAD"])?;
    let (time, hash) = line.split_once(' ')?;
    let found = (hash.to_string(), time.to_string());
    watch(root);
    Some(found)
}

/// Has this script run again when another commit is checked out, and only then: a file that is
/// not there would have it run at every build.
fn watch(root: &Path) {
    let look = |name: &str| {
        let path = git(root, &["rev-parse", "--git-path", name]).map(|path| root.join(path));
        let path = path.filter(|path| path.is_file());
        if let Some(path) = &path {
            println!("cargo:rerun-if-changed={}", path.display());
        }
        path.is_some()
    };
    look("HEAD");
    look("reftable/tables.list");
    let branch = git(root, &["symbolic-ref", "--quiet", "HEAD"]);
    if branch.is_some_and(|branch| !look(&branch)) {
        // It is packed. The next commit writes it to a file of its own, and a line here.
        look("packed-refs");
        look("logs/HEAD");
    }
}

/// What git says, without its line end; nothing if there is no git, or it fails.
#[allow(clippy::disallowed_methods, reason = "not a part of the program")]
fn git(root: &Path, line: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("--git-dir")
        .arg(root.join(".git"))
        .args(line)
        // A hook that builds has these set, for a repository that may be another one.
        .env_remove("GIT_DIR")
        .env_remove("GIT_COMMON_DIR")
        .env_remove("GIT_WORK_TREE")
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_string())
}
