//! What is handed to others: the version, the manual pages, the completions of the shells.

use crate::world::program::{Place, binary};
use idempoll::cli::help::{self, Flag, GLOBAL, VERBS};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn said(args: &[&str]) -> String {
    let output = Command::new(binary())
        .args(args)
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{args:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Whether a tool is there; says so if it is not.
fn there(tool: &str, test: &str) -> bool {
    let asked = ["-c", "command -v \"$0\" > /dev/null", tool];
    let there = Command::new("sh").args(asked).status().expect("sh");
    if !there.success() {
        eprintln!("{test}: NOT TESTED HERE: there is no {tool}");
    }
    there.success()
}

/// Given the program, when it is asked for its version, then one line names it, its target and
/// what is special about it.
#[test]
fn the_version_is_one_line_and_names_the_build() {
    let line = said(&["--version"]);
    assert_eq!(line.lines().count(), 1);
    let number = env!("CARGO_PKG_VERSION");
    let rest = line.strip_prefix(&format!("idempoll {number} ("));
    let rest = rest.unwrap_or_else(|| panic!("{line}"));
    let parts: Vec<&str> = rest.trim_end().trim_end_matches(')').split(", ").collect();
    let target = |part: &&&str| part.contains("-linux-");
    assert_eq!(parts.iter().filter(target).count(), 1, "{line}");
    if std::env::var_os("IDEMPOLL_BIN").is_none() {
        assert_eq!(parts.contains(&"debug"), cfg!(debug_assertions), "{line}");
        let mutants = parts.contains(&"with mutants");
        assert_eq!(mutants, cfg!(feature = "mutants"), "{line}");
    }
}

/// A package with the build script of this one, to see what it does.
struct Package {
    place: Place,
}

impl Package {
    fn new() -> Package {
        let place = Place::new("");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        fs::create_dir_all(place.path("p/src")).expect("a directory");
        fs::copy(root.join("build.rs"), place.path("p/build.rs")).expect("the script");
        let main = r#"fn main() {
            println!("{}|{}|{}", env!("IDEMPOLL_BUILT_FROM"), env!("IDEMPOLL_BUILT_OF"), env!("IDEMPOLL_BUILT_AS"));
        }"#;
        place.write("p/src/main.rs", main);
        let manifest = "[package]\nname = \"p\"\nedition = \"2024\"\n\n[workspace]\n\n\
                        [profile.release]\nopt-level = 0\n";
        place.write("p/Cargo.toml", manifest);
        place.write("p/.gitignore", "/target\n/Cargo.lock\n");
        Package { place }
    }

    /// Builds it, and says whether anything was built, and what the program says.
    fn build(&self, args: &[&str], env: &[(&str, &str)]) -> (bool, String) {
        self.build_in("p", args, env)
    }

    fn build_in(&self, dir: &str, args: &[&str], env: &[(&str, &str)]) -> (bool, String) {
        let mut cargo = Command::new(std::env::var("CARGO").unwrap_or("cargo".into()));
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if ["CARGO_", "IDEMPOLL_", "GIT_"]
                .iter()
                .any(|p| name.starts_with(p))
                && name != "CARGO_HOME"
            {
                cargo.env_remove(name);
            }
        }
        let output = cargo
            .args(["run", "--offline"])
            .args(args)
            .current_dir(self.place.path(dir))
            .env_remove("SOURCE_DATE_EPOCH")
            .env("CARGO_TARGET_DIR", self.place.path(dir).join("target"))
            .envs(env.iter().copied())
            .output()
            .expect("cargo");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        assert!(!errors.contains("warning"), "{errors}");
        let text = String::from_utf8_lossy(&output.stdout);
        (errors.contains("Compiling p "), text.trim().to_string())
    }

    fn git(&self, args: &[&str]) -> String {
        let mut git = Command::new("git");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GIT_") {
                git.env_remove(name);
            }
        }
        let output = git
            .args(["-c", "user.name=o", "-c", "user.email=o@example.org"])
            .args(args)
            .current_dir(self.place.path("p"))
            .env("GIT_COMMITTER_DATE", "1796000000 +0000")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .output()
            .expect("git");
        assert!(output.status.success(), "git {args:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }

    /// What the program is to say of the commit that is checked out.
    fn head(&self) -> String {
        let hash = self.git(&["rev-parse", "HEAD"]);
        format!("{}|1796000000|", &hash[..10])
    }
}

/// Given a package with our build script, when it is built without git, with what a packager
/// says, in a repository, in one whose refs are packed and in a worktree, then the program
/// knows the commit as far as it can be known, and nothing is built again while that is the same.
#[test]
fn a_build_knows_its_commit_and_is_not_done_again_for_it() {
    if !there("git", "a_build_knows_its_commit") {
        return;
    }
    let package = Package::new();
    let release: &[&str] = &["--release"];
    let nothing = (true, "||".to_string());
    assert_eq!(package.build(release, &[]), nothing, "no repository");
    let again = |dir: &str, what: &str| {
        let (built, _) = package.build_in(dir, release, &[]);
        assert!(!built, "{what}: built again");
    };
    again("p", "no repository");
    let said = [
        ("IDEMPOLL_COMMIT", "v0.1.0-2"),
        ("SOURCE_DATE_EPOCH", "86400"),
    ];
    let (_, text) = package.build(release, &said);
    assert_eq!(text, "v0.1.0-2|86400|", "what a packager says");

    // A repository around the package is not its own.
    let around = Command::new("git")
        .args(["init", "-q"])
        .current_dir(&package.place.dir)
        .status();
    assert!(around.expect("git").success());
    assert_eq!(
        package.build(release, &[]).1,
        "||",
        "somebody else's repository"
    );

    package.git(&["init", "-q", "-b", "main"]);
    package.git(&["add", "."]);
    package.git(&["commit", "-q", "-m", "one"]);
    // Whoever makes a repository of what was built before has it built anew.
    package.place.write(
        "p/build.rs",
        &fs::read_to_string(package.place.path("p/build.rs")).expect("text"),
    );
    assert_eq!(package.build(release, &[]).1, package.head());
    again("p", "a repository");
    package.git(&["commit", "-q", "--allow-empty", "-m", "two"]);
    assert_eq!(
        package.build(release, &[]),
        (true, package.head()),
        "a commit"
    );
    again("p", "a commit");
    package.git(&["pack-refs", "--all"]);
    package.build(release, &[]);
    again("p", "packed");
    package.git(&["commit", "-q", "--allow-empty", "-m", "three"]);
    assert_eq!(
        package.build(release, &[]).1,
        package.head(),
        "a commit after packing"
    );
    again("p", "a commit after packing");
    package.git(&["checkout", "-q", "--detach", "HEAD~1"]);
    assert_eq!(
        package.build(release, &[]).1,
        package.head(),
        "another commit"
    );
    again("p", "no branch");
    let (_, text) = package.build(release, &[("SOURCE_DATE_EPOCH", "86400")]);
    assert_eq!(text, package.head().replace("1796000000", "86400"));

    package.git(&["worktree", "add", "-q", "-b", "side", "../w", "main"]);
    let (_, text) = package.build_in("w", release, &[]);
    let main = package.git(&["rev-parse", "main"]);
    assert_eq!(text, format!("{}|1796000000|", &main[..10]), "a worktree");
    again("w", "a worktree");

    let (_, text) = package.build(&[], &[]);
    assert_eq!(text, "||debug", "while it is worked on");
    package.git(&["checkout", "-q", "main"]);
    let (built, _) = package.build(&[], &[]);
    assert!(!built, "a commit builds nothing anew while it is worked on");
}

/// The shells, and the file each gets.
struct Shell {
    name: &'static str,
    place: Place,
    script: PathBuf,
}

impl Shell {
    /// `None`, with a word about it, where there is no such shell.
    fn new(name: &'static str) -> Option<Shell> {
        if !there(name, "completions") {
            return None;
        }
        let place = Place::new("");
        let script = place.path("idempoll.completion");
        fs::write(&script, said(&["help", "--completions", name])).expect("a file");
        let noexec = Command::new(name)
            .arg("-n")
            .arg(&script)
            .output()
            .expect("it runs");
        assert!(
            noexec.status.success() && noexec.stderr.is_empty(),
            "{noexec:?}"
        );
        fs::create_dir(place.path("files")).expect("a directory");
        place.write("files/conf.json", "");
        fs::create_dir(place.path("files/conf.d")).expect("a directory");
        Some(Shell {
            name,
            place,
            script,
        })
    }

    /// The words it offers at the end of the line, which is typed among `conf.json` and `conf.d`.
    fn offers(&self, line: &str) -> BTreeSet<String> {
        let driver = |name: &str| {
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/it/shipping")
                .join(name)
        };
        let mut command = Command::new(self.name);
        let mut input = String::new();
        match self.name {
            "bash" => {
                command.arg(driver("complete.bash")).arg(&self.script);
                input = format!("{}\n", line.replace('=', " = "));
            }
            "zsh" => {
                command.arg("-f").arg(driver("complete.zsh"));
                command
                    .arg(&self.script)
                    .arg(line)
                    .arg(self.place.path("got"));
            }
            _ => {
                let script = "source $argv[1]; complete -C $argv[2]";
                command.args(["--no-config", "-c", script]);
                command.arg(&self.script).arg(line);
            }
        }
        let mut child = command
            .current_dir(self.place.path("files"))
            .env("HOME", &self.place.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // A shell that reads nothing may be gone by now.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("it ends");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.is_empty(), "{}: {line}: {errors}", self.name);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // fish explains each behind a tab.
        let words = text
            .lines()
            .map(|l| l.split('\t').next().unwrap_or_default());
        words
            .flat_map(str::split_whitespace)
            .map(|word| word.trim_end_matches('/'))
            .map(|word| word.split_once('=').map_or(word, |(_, value)| value))
            .map(str::to_string)
            .collect()
    }

    #[track_caller]
    fn offers_just(&self, line: &str, words: &[&str]) {
        let wanted: BTreeSet<String> = words.iter().map(ToString::to_string).collect();
        assert_eq!(self.offers(line), wanted, "{}: {line}", self.name);
    }

    /// Everything the table has, and where files and words belong.
    fn completes_all(&self) {
        let words: Vec<&str> = VERBS.iter().map(|v| v.word).collect();
        self.offers_just("idempoll ", &words);
        self.offers_just(
            "idempoll --config conf.json st",
            &["start", "stop", "status"],
        );
        self.offers_just(
            "idempoll --config=conf.json st",
            &["start", "stop", "status"],
        );
        self.offers_just("idempoll --config ", &["conf.json", "conf.d"]);
        self.offers_just("idempoll stop --pidfile=conf", &["conf.json", "conf.d"]);
        self.offers_just("idempoll status --state-dir ", &["conf.d"]);
        self.offers_just("idempoll init con", &["conf.json", "conf.d"]);
        self.offers_just("idempoll help sta", &["start", "status"]);
        self.offers_just("idempoll show ", &[]);
        for verb in VERBS {
            let offered = self.offers(&format!("idempoll {} --", verb.word));
            let flags = verb.flags.iter().chain(GLOBAL);
            let wanted: BTreeSet<String> = flags.map(|f| format!("--{}", f.long)).collect();
            let long = offered.into_iter().filter(|word| word.starts_with("--"));
            let long: BTreeSet<String> = long.collect();
            assert_eq!(long, wanted, "{}: {}", self.name, verb.word);
            for flag in verb.flags.iter().filter(|f| !help::choices(f).is_empty()) {
                let choices = help::choices(flag);
                self.offers_just(
                    &format!("idempoll {} --{} ", verb.word, flag.long),
                    &choices,
                );
            }
        }
        self.offers_just("idempoll items --log-format ", &["text", "json"]);
        self.offers_just("idempoll items --log-format=te", &["text"]);
    }
}

/// Given bash with what `help --completions bash` prints, when lines are completed, then it
/// offers all the commands, flags and words there are, and files where files belong.
#[test]
fn bash_completes_what_the_table_has() {
    if let Some(shell) = Shell::new("bash") {
        shell.completes_all();
    }
}

/// The same in zsh, on a terminal.
#[test]
fn zsh_completes_what_the_table_has() {
    if let Some(shell) = Shell::new("zsh") {
        shell.completes_all();
    }
}

/// The same in fish.
#[test]
fn fish_completes_what_the_table_has() {
    if let Some(shell) = Shell::new("fish") {
        shell.completes_all();
    }
}

/// The names of the flags as a manual page writes them.
fn in_roff(flag: &Flag) -> String {
    format!("\\-\\-{}", flag.long.replace('-', "\\-"))
}

/// Given the manual pages, when they are looked at by mandoc and groff, then neither warns, and
/// every command and flag is there.
#[test]
fn the_manual_pages_are_whole_and_right() {
    let place = Place::new("");
    let mut pages = vec![(String::from("idempoll"), said(&["help", "--man"]))];
    for verb in VERBS {
        let page = said(&["help", "--man", verb.word]);
        for flag in verb.flags.iter().chain(GLOBAL) {
            assert!(
                page.contains(&in_roff(flag)),
                "{}: --{}",
                verb.word,
                flag.long
            );
            assert!(pages[0].1.contains(&in_roff(flag)), "--{}", flag.long);
        }
        pages.push((format!("idempoll-{}", verb.word), page));
    }
    for flag in VERBS.iter().flat_map(|v| v.flags) {
        for word in help::choices(flag) {
            assert!(pages[0].1.contains(word), "--{}: {word}", flag.long);
        }
    }
    let tools = [
        ("mandoc", vec!["-T", "lint", "-W", "warning"]),
        ("groff", vec!["-man", "-ww", "-z"]),
    ];
    for (tool, args) in tools {
        if !there(tool, "manual pages") {
            continue;
        }
        for (name, page) in &pages {
            let file = format!("{name}.1");
            place.write(&file, page);
            let output = Command::new(tool)
                .args(&args)
                .arg(&file)
                .current_dir(&place.dir)
                .output()
                .expect("it runs");
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            assert!(output.status.success() && said.is_empty(), "{tool}: {said}");
        }
    }
}
