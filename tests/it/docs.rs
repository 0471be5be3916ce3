//! The documents, checked against the program: commands, files, exit codes, event types, links.

use crate::world::program::{Place, binary, patience};
use idempoll::engine::entry::TYPES;
use idempoll::engine::host::Host;
use idempoll::engine::time::Time;
use idempoll::store::requests::{Request, Verb};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn help(word: &str) -> String {
    let output = Command::new(binary())
        .args(["help", word])
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "there is no command {word}");
    String::from_utf8(output.stdout).expect("help is text")
}

/// The `--flags` in a text.
fn flags(text: &str) -> BTreeSet<String> {
    let plain = |c: char| c.is_ascii_lowercase() || c == '-';
    text.split(|c: char| !plain(c))
        .filter(|w| w.starts_with("--") && !w[2..].starts_with('-') && w.len() > 2)
        .map(str::to_string)
        .collect()
}

/// The first cells of a page's table rows, out of their backticks.
fn first_cells(page: &str) -> Vec<String> {
    page.lines()
        .filter_map(|l| l.strip_prefix("| ")?.split(" |").next())
        .map(|cell| cell.trim().trim_matches('`').to_string())
        .collect()
}

/// The fenced blocks of a page that begin with this word.
pub fn blocks<'p>(page: &'p str, word: &str) -> Vec<&'p str> {
    page.split(&format!("\n```{word}\n"))
        .skip(1)
        .map(|rest| rest.split("\n```").next().unwrap_or_default())
        .collect()
}

/// Given the help, when `docs/commands.md` is read, then it has a section for each
/// command, with its usage and each of its flags, and no other command or flag.
#[test]
fn the_commands_page_is_what_the_help_says() {
    let page = page("docs/commands.md");
    let overview = help("help");
    let global = overview_flags(&overview);
    let (every, _) = page.split_once("\n## `").expect("a section per command");
    for flag in &global {
        assert!(
            every.contains(&format!("`{flag}`")) || every.contains(&format!("{flag} ")),
            "{flag} is not at the top"
        );
    }
    assert_eq!(
        flags(every),
        global,
        "at the top are the flags of every command"
    );
    let all = Command::new(binary()).arg("help").output().expect("help");
    let all = String::from_utf8(all.stdout).expect("help is text");
    let listed = all.split("\ncommands:\n").nth(1).expect("a list");
    let listed: BTreeSet<&str> = listed
        .lines()
        .take_while(|l| l.starts_with("  "))
        .filter_map(|l| l.split_whitespace().next())
        .collect();
    let mut described = BTreeSet::new();
    for section in page.split("\n## `idempoll ").skip(1) {
        let word = section.split('`').next().unwrap_or_default();
        described.insert(word);
        let help = help(word);
        let usage = help.lines().find_map(|l| l.strip_prefix("usage: "));
        let usage = usage.expect("a usage line");
        assert!(section.contains(usage), "{word}: its usage is: {usage}");
        let own = help.split("\nflags of every command:\n").next().map(flags);
        let known: BTreeSet<String> = own.iter().flatten().chain(&global).cloned().collect();
        for flag in own.iter().flatten() {
            assert!(
                section.contains(&format!("| `{flag}")),
                "{word}: {flag} is missing"
            );
        }
        // What an example says may name other commands' flags.
        let ours: String = section.split("\n```").step_by(2).collect();
        for flag in flags(&ours) {
            assert!(known.contains(&flag), "{word} has no {flag}");
        }
    }
    assert_eq!(described, listed);
}

/// The flags every command takes.
fn overview_flags(help: &str) -> BTreeSet<String> {
    let list = help
        .split("\nflags of every command:\n")
        .nth(1)
        .expect("a list");
    list.lines()
        .take_while(|l| l.starts_with("  "))
        .flat_map(|l| flags(l.split("   ").next().unwrap_or_default()))
        .collect()
}

/// What differs from run to run is made equal: numbers, columns, the directory.
pub fn alike(text: &str, dir: &Path) -> String {
    let text = text
        .replace(&dir.display().to_string(), "/srv/work")
        .replace("just now", "0 s ago");
    let mut out = String::new();
    for line in text.lines() {
        let words: Vec<String> = line.split_whitespace().map(digits_as_one).collect();
        out.push_str(&words.join(" "));
        out.push('\n');
    }
    out.trim().to_string()
}

/// Each run of digits as `0`.
fn digits_as_one(word: &str) -> String {
    let mut out = String::new();
    for c in word.chars() {
        if !c.is_ascii_digit() {
            out.push(c);
        } else if !out.ends_with('0') {
            out.push('0');
        }
    }
    out
}

/// Given the files `docs/commands.md` begins with, when its commands are typed one
/// after another, then each says what the page says it does.
#[test]
fn the_examples_of_the_commands_page_are_real() {
    let page = page("docs/commands.md");
    let place = Place::new("");
    place.write("idempoll.json", blocks(&page, "jsonc")[0]);
    place.script("on-event", &format!("{}\n", blocks(&page, "sh")[0]));
    for (number, text) in (7..).zip(blocks(&page, "json").iter().take(2)) {
        place.write(&format!("inbox/{number}.json"), text);
    }
    let mut poller = None;
    let mut said_something = 0;
    for block in blocks(&page, "console") {
        for example in format!("\n{block}").split("\n$ ").skip(1) {
            let (line, wanted) = example.split_once('\n').unwrap_or((example, ""));
            if line == "idempoll start &" {
                poller = Some(place.start_unseen());
                place.until("the first cycle is over", || {
                    !place.status()["next_cycle_at"].is_null()
                });
                continue;
            }
            // On a terminal, progress is told as text.
            let text = if line.starts_with("idempoll start") {
                " --log-format text"
            } else {
                ""
            };
            let script = format!("idempoll() {{ \"$PROGRAM\" \"$@\"; }}; exec 2>&1; {line}{text}");
            let output = Command::new("sh")
                .args(["-c", &script])
                .current_dir(&place.dir)
                .env("PROGRAM", binary())
                .env_remove("IDEMPOLL_CONFIG")
                .env_remove("STATE_DIRECTORY")
                .stdin(Stdio::null())
                .output()
                .expect("a shell");
            let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
            let mut wanted = wanted.to_string();
            if line == "idempoll --version" {
                // What is in the parentheses is about the build; tests/it/shipping.rs looks at it.
                for text in [&mut said, &mut wanted] {
                    text.truncate(text.find(" (").expect("what it is built from"));
                }
            }
            assert_eq!(
                alike(&said, &place.dir),
                alike(&wanted, &place.dir),
                "{line}\n{said}"
            );
            said_something += usize::from(!said.is_empty());
            // What was asked of a running poller is seen to before the next example.
            if poller.is_some() && line.starts_with("idempoll retry") {
                place.until("it was tried again", || {
                    place.entries("poll.gave_up").len() > 1
                });
            }
        }
    }
    assert!(said_something > 15, "only {said_something} examples");
}

/// The keys of a JSON value and of all in it. Names that users give, numbers and
/// what a provider keeps for itself are no keys of ours.
fn keys(value: &Value, under: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(list) => list.iter().for_each(|v| keys(v, under, found)),
        Value::Object(map) => {
            for (key, inner) in map {
                let named = matches!(under, "sinks" | "tries" | "gave_up" | "absent");
                if !named {
                    found.insert(key.clone());
                }
                if !matches!(key.as_str(), "payload" | "cursor") {
                    let sources = under.is_empty() && key == "sources";
                    let inside = if named || sources { "-" } else { key };
                    keys(inner, inside, found);
                }
            }
        }
        _ => {}
    }
}

/// Given a state directory that has seen much, when its files are read, then every
/// key in them is explained in `docs/state.md`, and so is every name in the directory.
#[test]
fn the_state_page_explains_every_key() {
    let page = page("docs/state.md");
    let script = "case $IDEMPOLL_REF in *1) exit 75;; *3) kill -9 $$;; *4) echo no; exit 3;; esac";
    let place = Place::new(script);
    let mut config = place.config(script);
    config["max_retries"] = 0.into();
    place.configure(&config);
    // Item 1 waits with 800 comments, 2 ends, 3 and 4 are given up, 5 vanishes.
    place.item(1, 800);
    let item = |number: u64, state: &str| {
        json!({ "number": number, "title": "t", "author": "octocat", "state": state, "labels": ["l"],
            "url": "https://tracker.example/2", "created_at": "2026-08-05T09:00:00Z" })
    };
    for number in 2..=5 {
        place.item_file(number, &item(number, "open"));
    }
    place.once().expect(1);
    place.item_file(2, &item(2, "closed"));
    fs::remove_file(place.path("inbox/5.json")).expect("it is there");
    let _ = place.once();

    let mut found = BTreeSet::new();
    let mut files = 0;
    for (path, bytes) in place.snapshot() {
        let name = path.strip_prefix(place.state()).expect("in there");
        let name = name.display().to_string();
        let room = name.split('/').next().unwrap_or_default();
        assert!(
            page.contains(&format!("`{room}")),
            "{name} is not explained"
        );
        if bytes.is_empty() || name.ends_with(".items") {
            continue;
        }
        // One object, or one a line.
        for value in serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>() {
            keys(&value.expect("JSON"), "", &mut found);
        }
        files += 1;
    }
    let run = fs::read(place.path("state/run.json")).expect("it ran");
    keys(&serde_json::from_slice(&run).expect("JSON"), "", &mut found);
    for seldom in [
        "event_blocks",
        "unresolved",
        "known_blocks",
        "ended_at",
        "gave_up",
        "tries",
        "absent",
        "signal",
        "url",
    ] {
        assert!(
            found.contains(seldom),
            "no file has {seldom}: the test sees too little"
        );
    }
    assert!(files > 10);
    // What is there for a moment only, or with a tracker that asks to wait.
    let item = "dir:inbox#1".parse().expect("a ref");
    let verb = Verb::Retry {
        item,
        delivery: Some("opened".into()),
    };
    let request = serde_json::to_value(Request::new(Time(1), verb)).expect("JSON");
    let host = serde_json::to_value(Host::default()).expect("JSON");
    keys(&host, "", &mut found);
    keys(&request, "", &mut found);
    let missing: Vec<&String> = found
        .iter()
        .filter(|k| !page.contains(&format!("`{k}`")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/state.md does not explain {missing:?}"
    );
}

/// Given `src/exit.rs`, when `docs/exit-codes.md` is read, then it has the same codes.
#[test]
fn the_exit_codes_page_lists_every_code() {
    let source = page("src/exit.rs");
    let codes: BTreeSet<String> = source
        .lines()
        .filter_map(|l| l.trim().strip_prefix("Exit::")?.split_once(" => "))
        .map(|(_, code)| code.trim_end_matches(',').to_string())
        .collect();
    assert!(codes.contains("130"), "{codes:?}");
    let listed = first_cells(&page("docs/exit-codes.md"));
    let listed: BTreeSet<String> = listed.into_iter().filter(|c| c != "exit").collect();
    assert_eq!(listed, codes);
}

/// Given the event log's types, when `docs/events.md` is read, then it has each of
/// them once, with its level, and no other.
#[test]
fn the_events_page_lists_every_type() {
    let page = page("docs/events.md");
    let mut listed: Vec<String> = first_cells(&page)
        .into_iter()
        .filter(|c| c != "type")
        .collect();
    for (kind, level) in TYPES {
        let level = serde_json::to_value(level).expect("a word");
        let row = format!("| `{kind}` | {} | ", level.as_str().unwrap_or_default());
        assert!(page.contains(&row), "there is no row {row}");
    }
    let mut types: Vec<&str> = TYPES.iter().map(|(kind, _)| *kind).collect();
    types.sort_unstable();
    listed.sort();
    assert_eq!(listed, types);
}

/// Given the documents, when one names another, then that one exists; and the
/// README names all there are.
#[test]
fn documents_name_documents_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_dir(root.join("docs")).expect("docs").flatten();
    let mut pages: Vec<String> = docs
        .map(|e| format!("docs/{}", e.file_name().to_string_lossy()))
        .filter(|name| name.ends_with(".md"))
        .collect();
    let readme = page("README.md");
    for name in &pages {
        assert!(
            readme.contains(&format!("`{name}`")),
            "README.md does not name {name}"
        );
    }
    pages.push("README.md".into());
    let path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_');
    for from in &pages {
        let text = page(from);
        for word in text.split(|c| !path(c)).filter(|w| w.starts_with("docs/")) {
            let word = word.trim_end_matches('.');
            assert!(root.join(word).exists(), "{from} names {word}");
        }
    }
}

/// What `docs/tutorial.md` has running in the background; ended with the test.
struct Background(Vec<Child>);

impl Background {
    /// Waits until what was killed is gone.
    fn settle(&mut self) {
        for mut child in self.0.drain(..) {
            let _ = child.wait();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The tmux server of the tutorial, if there is one; ended with the test.
struct TmuxServer(PathBuf);

impl Drop for TmuxServer {
    fn drop(&mut self) {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.0).arg("kill-server");
        let _ = command.stderr(Stdio::null()).status();
    }
}

/// Types a part of the tutorial into a shell in a directory of its own: scripts as they are,
/// and each line behind a `$`, with what it says.
fn typed(title: &str, tool: &str) {
    let found = Command::new("sh")
        .args(["-c", "command -v \"$0\" > /dev/null", tool])
        .status();
    if !found.expect("sh").success() {
        eprintln!("docs/tutorial.md, {title}: NOT TESTED HERE: there is no {tool}");
        return;
    }
    let page = page("docs/tutorial.md");
    let part = page.split("\n## ").find(|part| part.starts_with(title));
    let part = part.unwrap_or_else(|| panic!("no part {title}"));
    let place = Place::new("");
    for name in ["inbox", "idempoll.json"] {
        let old = place.path(name);
        let _ = fs::remove_file(&old);
        let _ = fs::remove_dir(&old);
    }
    let bin = place.dir.with_extension("bin");
    let _ = fs::remove_dir_all(&bin);
    fs::create_dir(&bin).expect("a directory");
    std::os::unix::fs::symlink(binary(), bin.join("idempoll")).expect("a link");
    let path = std::env::var("PATH").unwrap_or_default();
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command
            .args(["-e", "-c", script])
            .current_dir(&place.dir)
            .env("PATH", format!("{}:{path}", bin.display()))
            .stdin(Stdio::null());
        for name in ["IDEMPOLL_CONFIG", "STATE_DIRECTORY", "TMUX"] {
            command.env_remove(name);
        }
        command
    };
    let _server = TmuxServer(place.path("state/tmux/agent.sock"));
    let mut background = Background(Vec::new());
    let mut compared = 0;
    for block in part.split("\n```").skip(1).step_by(2) {
        let (kind, text) = block.split_once('\n').expect("a block");
        match kind {
            "sh" => {
                let output = shell(text).output().expect("a shell");
                assert!(output.status.success(), "{title}: {text}: {output:?}");
            }
            "console" => {
                for example in format!("\n{text}").split("\n$ ").skip(1) {
                    let (line, wanted) = example.split_once('\n').unwrap_or((example, ""));
                    if let Some(line) = line.strip_suffix(" &") {
                        let mut command = shell(&format!("exec {line}"));
                        command.stdout(Stdio::null()).stderr(Stdio::null());
                        let child = command.spawn().expect("a shell");
                        background.0.push(child);
                        if line.starts_with("idempoll start") {
                            place.until("the first cycle is over", || {
                                !place.status()["next_cycle_at"].is_null()
                            });
                        }
                        continue;
                    }
                    let mut said = String::new();
                    let as_written = |said: &mut String| {
                        let output = shell(&format!("exec 2>&1; {line}")).output();
                        *said = String::from_utf8_lossy(&output.expect("a shell").stdout).into();
                        alike(said, &place.dir) == alike(wanted, &place.dir)
                    };
                    let looks = ["cat", "head", "grep", "idempoll s", "tmux"];
                    let once = line.starts_with("idempoll start")
                        || !looks.iter().any(|word| line.starts_with(word));
                    if !as_written(&mut said) && !once {
                        // What a reader sees a moment later, too.
                        let deadline = Instant::now() + patience();
                        while Instant::now() < deadline && !as_written(&mut said) {
                            std::thread::sleep(Duration::from_millis(50));
                        }
                    }
                    assert_eq!(
                        alike(&said, &place.dir),
                        alike(wanted, &place.dir),
                        "{title}: {line}\n{said}"
                    );
                    if line.starts_with("kill ") {
                        background.settle();
                    }
                    compared += usize::from(!wanted.is_empty());
                }
            }
            other => panic!("docs/tutorial.md has a block of the kind {other:?}"),
        }
    }
    assert!(compared >= 3, "{title}: only {compared} compared");
    let _ = fs::remove_dir_all(&bin);
}

/// Given an empty directory, when the first part of `docs/tutorial.md` is typed, then each
/// command says what the page says it does.
#[test]
fn the_tutorial_of_a_shell_command_is_real() {
    typed("A shell command", "sh");
}

/// The same for the agent in tmux.
#[test]
fn the_tutorial_of_an_agent_in_tmux_is_real() {
    typed("A coding agent in tmux", "tmux");
}

/// The same for the receiver of webhooks.
#[test]
fn the_tutorial_of_a_receiver_of_webhooks_is_real() {
    typed("A receiver of webhooks", "python3");
}

/// The program's sources without their tests, with the texts that go over several lines in one.
fn sources() -> String {
    let mut all = String::new();
    let mut todo = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(path) = todo.pop() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name != "tests" {
            let entries = fs::read_dir(&path).expect("a room").flatten();
            todo.extend(entries.map(|e| e.path()));
        } else if name.ends_with(".rs") && name != "tests.rs" && name != "mistakes.rs" {
            let text = fs::read_to_string(&path).expect("text");
            let code = text.split("#[cfg(test)]\nmod tests {").next();
            for line in code.unwrap_or_default().lines() {
                let line = line.trim_start();
                match line.strip_suffix('\\') {
                    Some(part) => all.push_str(part),
                    None if line.starts_with("//") => {}
                    None => {
                        all.push_str(line);
                        all.push('\n');
                    }
                }
            }
        }
    }
    all
}

/// Given `docs/troubleshooting.md`, when each message it explains is looked for, then the
/// program has the words to say it.
#[test]
fn the_troubleshooting_page_quotes_what_the_program_says() {
    let sources = sources();
    let page = page("docs/troubleshooting.md");
    let messages: Vec<&str> = page
        .lines()
        .filter_map(|l| l.strip_prefix("| `")?.split_once("` | "))
        .map(|(message, _)| message)
        .collect();
    assert!(messages.len() > 40, "only {}", messages.len());
    for message in messages {
        // What differs from case to case stands between, and a cause behind a colon.
        for part in message.split('…') {
            let part = part.trim_matches([' ', ':', '\'', '(', ')', ',', ';']);
            assert!(
                part.len() < 3 || sources.contains(part),
                "nothing says {part:?}, of {message:?}"
            );
        }
    }
}
