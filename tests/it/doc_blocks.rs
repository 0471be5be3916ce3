//! Every block of the documents: examples are typed, configs checked, and of each other command it is known who runs it.
//! The tutorial and the examples of `docs/commands.md` are typed in `docs.rs`.

use crate::docs::{alike, blocks, page};
use crate::world::program::{Place, binary};
use idempoll::sinks::tmux::prompt;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Commands in `sh` blocks that neither a test nor CI runs as they stand, and why that is right.
const NOT_AS_IT_STANDS: &[(&str, &str)] = &[
    (
        "cargo run --release -- start --once --config fixtures/quickstart/idempoll.json",
        "`.ci/run` has cargo run it without `--release`, and `the_quickstart_of_the_readme_is_real` types it with the program that is built",
    ),
    (
        "rustup target add x86_64-unknown-linux-musl && cargo build --release --locked --target x86_64-unknown-linux-musl",
        "where CI runs there is no std for musl to be downloaded; `.ci/static` builds the same",
    ),
    (
        ".ci/static aarch64",
        "takes as long as CI has for all the rest; it is tried by hand when something changes there",
    ),
    (
        "IDEMPOLL_COMMIT=1a2b3c4d5e SOURCE_DATE_EPOCH=1796000000 cargo build --release --locked",
        "`a_build_knows_its_commit_and_is_not_done_again_for_it` does it with a package of one line",
    ),
    (
        "CARGO_PROFILE_RELEASE_STRIP=none CARGO_PROFILE_RELEASE_DEBUG=line-tables-only cargo build --release --locked",
        "`.ci/static` builds so; what comes after it is typed by `symbols_that_were_cut_off_are_found_again`",
    ),
    (
        ".ci/split target/release/idempoll target/split",
        "`symbols_that_were_cut_off_are_found_again` types it with the program that is built",
    ),
    (
        "addr2line -C -f -e target/split/idempoll 0x41c0f0",
        "`symbols_that_were_cut_off_are_found_again` types it with an address of main",
    ),
    (
        "cargo build --release && benches/measure target/release/idempoll compare",
        "takes minutes, and its figures are no use on a machine that does other things",
    ),
    (
        "benches/measure target/release/idempoll dir",
        "takes minutes, and its figures are no use on a machine that does other things",
    ),
];

/// Who reads or types the blocks of a page that are not commands, by their kind. The one of `docs/architecture.md` is a drawing.
const OTHER_KINDS: &[(&str, &str, &str)] = &[
    ("README.md", "", "the_quickstart_of_the_readme_is_real"),
    ("README.md", "json", "the_quickstart_of_the_readme_is_real"),
    (
        "README.md",
        "jsonc",
        "every_config_in_the_documents_is_right",
    ),
    (
        "docs/config.md",
        "jsonc",
        "every_config_in_the_documents_is_right",
    ),
    (
        "docs/config.md",
        "json",
        "the_item_file_of_the_config_page_is_one",
    ),
    (
        "docs/http.md",
        "jsonc",
        "every_config_in_the_documents_is_right",
    ),
    (
        "docs/tmux.md",
        "jsonc",
        "every_config_in_the_documents_is_right",
    ),
    (
        "docs/commands.md",
        "jsonc",
        "the_examples_of_the_commands_page_are_real",
    ),
    (
        "docs/commands.md",
        "json",
        "the_examples_of_the_commands_page_are_real",
    ),
    (
        "docs/commands.md",
        "console",
        "the_examples_of_the_commands_page_are_real",
    ),
    (
        "docs/commands.md",
        "sh",
        "the_completions_go_where_the_commands_page_puts_them",
    ),
    (
        "docs/commands.md",
        "text",
        "the_words_of_a_host_are_those_of_the_commands_page",
    ),
    (
        "docs/tutorial.md",
        "sh",
        "the_tutorial_of_a_shell_command_is_real",
    ),
    (
        "docs/tutorial.md",
        "console",
        "the_tutorial_of_a_shell_command_is_real",
    ),
    (
        "docs/tmux.md",
        "",
        "the_text_of_the_tmux_page_is_what_is_pasted",
    ),
    (
        "docs/commands.md",
        "",
        "what_check_says_online_is_on_the_commands_page",
    ),
    (
        "docs/architecture.md",
        "",
        "every_block_of_the_documents_is_somebodys",
    ),
    ("docs/state.md", "", "the_state_page_explains_every_key"),
];

/// The README and all below `docs/`.
fn pages() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = vec!["README.md".to_string()];
    let mut todo = vec![PathBuf::from("docs")];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(root.join(&dir)).expect("documents").flatten() {
            let path = dir.join(entry.file_name());
            if root.join(&path).is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

/// The fenced blocks of a page, each with its kind.
fn fenced(page: &str) -> Vec<(&str, &str)> {
    let inside = page.split("\n```").skip(1).step_by(2);
    inside
        .map(|block| block.split_once('\n').expect("a block has lines"))
        .collect()
}

/// The commands of an `sh` block, without what is remarked on them.
fn commands(block: &str) -> Vec<&str> {
    let lines = block.lines().map(|l| l.split(" #").next().unwrap_or(l));
    lines.map(str::trim).filter(|l| !l.is_empty()).collect()
}

/// Whether the suite or CI runs a command, with the scale that is theirs: `.ci/run` calls the script, with parts it has; or
/// the tests that are named are there.
fn is_run(command: &str, ci: &str, sources: &str) -> bool {
    let assignment = |word: &&str| word.contains('=') && !word.starts_with('-');
    let words: Vec<&str> = command.split_whitespace().collect();
    let (set, words) = words.split_at(words.iter().take_while(|w| assignment(w)).count());
    // What is set is something that is read.
    let known = |word: &&str| {
        let name = word.split('=').next();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        sources.split(|c| !plain(c)).any(|read| Some(read) == name)
    };
    if !set.iter().all(known) {
        return false;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if words.starts_with(&["cargo", "test"]) {
        let after = |flag: &str| words.iter().skip_while(|w| **w != flag).collect::<Vec<_>>();
        let (dir, name) = match (after("--lib").get(1), after("--test").get(1..3)) {
            (Some(name), _) => ("src", **name),
            (None, Some([_, name])) => ("tests/it", **name),
            _ => return false,
        };
        let file = root.join(dir).join(name.replace("::", "/"));
        return file.with_extension("rs").is_file();
    }
    let script = words.iter().find(|w| **w != "sh").unwrap_or(&"");
    let Ok(text) = fs::read_to_string(root.join(script)) else {
        return false;
    };
    let start = words.iter().take_while(|w| *w != script).count() + 1;
    let called = |line: &str| {
        let mut line = line
            .split_whitespace()
            .skip_while(|w| assignment(w))
            .peekable();
        line.next_if_eq(&"sh");
        line.next() == Some(script)
    };
    ci.lines().any(called)
        && words[start..]
            .iter()
            .all(|part| text.contains(&format!(" {part}")))
}

/// Given the documents, when each block is looked at, then a test types or reads it, or CI runs it, or it is
/// listed here with the reason why nobody does; and nothing is listed that is not there.
#[test]
fn every_block_of_the_documents_is_somebodys() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Ok(ci) = fs::read_to_string(root.join(".ci/run")) else {
        eprintln!("every_block_of_the_documents: NOT TESTED HERE: there is no .ci/run");
        return;
    };
    let read = [
        "tests/run",
        "tests/proof",
        "tests/mutants",
        "tests/it/world/program.rs",
        "tests/it/world/sim/mod.rs",
        "tests/it/engine_worlds.rs",
        "tests/it/proof/mod.rs",
        "tests/it/proof/kills.rs",
    ];
    let read = read.map(|name| fs::read_to_string(root.join(name)).unwrap_or_default());
    let sources = read.concat();
    let mut unused: BTreeSet<&str> = NOT_AS_IT_STANDS.iter().map(|(line, _)| *line).collect();
    let mut kinds: BTreeSet<(&str, &str)> = OTHER_KINDS
        .iter()
        .map(|(page, kind, _)| (*page, *kind))
        .collect();
    let tests = [include_str!("doc_blocks.rs"), include_str!("docs.rs")].concat();
    for (page, _, test) in OTHER_KINDS {
        assert!(
            tests.contains(&format!("fn {test}()")),
            "{page}: there is no test {test}"
        );
    }
    for name in pages() {
        for (kind, block) in fenced(&page(&name)) {
            if let Some((page, kind, _)) = OTHER_KINDS
                .iter()
                .find(|(p, k, _)| *p == name && *k == kind)
            {
                kinds.remove(&(*page, *kind));
                continue;
            }
            assert_eq!(kind, "sh", "{name}: nobody reads this block:\n{block}");
            for command in commands(block) {
                if let Some((line, _)) = NOT_AS_IT_STANDS.iter().find(|(line, _)| *line == command)
                {
                    unused.remove(line);
                } else {
                    assert!(
                        is_run(command, &ci, &sources),
                        "{name}: nobody runs this: {command}"
                    );
                }
            }
        }
    }
    assert!(unused.is_empty(), "no document has {unused:?}");
    assert!(kinds.is_empty(), "no document has {kinds:?}");
    for wrong in [
        "tests/mutant",
        "tests/proof kicks",
        "IDEMPOLL_SCAL=3 tests/proof kills",
        "cargo test --lib daemon::rice -- --nocapture",
        "cargo test",
        "rm -rf /",
    ] {
        assert!(
            !is_run(wrong, &ci, &sources),
            "{wrong} is taken for one that is run"
        );
    }
}

/// A shell in the place, with the program and more in its `PATH`.
fn shell(place: &Place, script: &str) -> Command {
    let bin = place.path("bin");
    let _ = fs::create_dir(&bin);
    let _ = std::os::unix::fs::symlink(binary(), bin.join("idempoll"));
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command
        .args(["-e", "-c", script])
        .current_dir(&place.dir)
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("GITHUB_TOKEN", "github_pat_of_nobody")
        .env_remove("IDEMPOLL_CONFIG")
        .env_remove("STATE_DIRECTORY")
        .stdin(Stdio::null());
    command
}

/// The keys of an object, and of those in it, each as a path.
fn paths(value: &Value, under: &str, found: &mut BTreeSet<String>) {
    for (key, inner) in value.as_object().into_iter().flatten() {
        let path = format!("{under}/{key}");
        paths(inner, &path, found);
        found.insert(path);
    }
}

/// Given the quickstart as a clone has it, when the README's first command is typed twice, then each time it says what
/// the README says it does; and an event has the keys that the README shows.
#[test]
fn the_quickstart_of_the_readme_is_real() {
    let readme = page("README.md");
    let place = Place::new("");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/quickstart");
    fs::create_dir_all(place.path("fixtures/quickstart/inbox")).expect("a directory");
    let mut files = vec![PathBuf::from("idempoll.json"), PathBuf::from("append.sh")];
    let inbox = fs::read_dir(root.join("inbox")).expect("items").flatten();
    files.extend(inbox.map(|e| Path::new("inbox").join(e.file_name())));
    for file in files {
        let to = place.path("fixtures/quickstart").join(&file);
        fs::copy(root.join(&file), to).expect("a copy");
    }
    let line = blocks(&readme, "sh")[0].replace("cargo run --release --", "idempoll");
    assert!(line.starts_with("idempoll start --once"), "{line}");
    let outputs: Vec<&str> = fenced(&readme)
        .into_iter()
        .filter(|(kind, _)| kind.is_empty())
        .map(|(_, text)| text)
        .collect();
    assert_eq!(outputs.len(), 2, "outputs in the README");
    for wanted in outputs {
        let output = shell(&place, &line).output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.trim(), wanted.trim(), "{output:?}");
    }
    let mut known = BTreeSet::new();
    for event in place.lines("fixtures/quickstart/delivered.jsonl") {
        paths(&serde_json::from_str(&event).expect("JSON"), "", &mut known);
    }
    let mut shown = BTreeSet::new();
    paths(
        &serde_json::from_str(blocks(&readme, "json")[0]).expect("JSON"),
        "",
        &mut shown,
    );
    assert!(shown.len() > 10, "{shown:?}");
    let none: Vec<&String> = shown.difference(&known).collect();
    assert!(none.is_empty(), "no event has {none:?}");
}

/// Given a config in a document, whole or a part of one, when it is checked in a place that has what it names, then
/// `check` has nothing to say against it.
#[test]
fn every_config_in_the_documents_is_right() {
    let place = Place::new("");
    fs::create_dir_all(place.path("bin")).expect("a directory");
    for command in ["bin/claude", "handle-event", "on-event"] {
        place.script(command, "exit 0\n");
    }
    place.script("on-event", "exit 0\n");
    place.write("secret", "a long random text\n");
    let key = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/tls/app-pkcs1.key");
    fs::copy(key, place.path("app.pem")).expect("a key");
    for file in ["secret", "app.pem"] {
        let chmod = Command::new("chmod")
            .arg("600")
            .arg(place.path(file))
            .status();
        assert!(chmod.expect("chmod").success());
    }
    // One that listens is all a `check` asks for.
    let endpoint = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = endpoint.local_addr().expect("an address").port();
    let github = r#""name": "api", "provider": "github", "repos": ["octo/api"]"#;
    let mut checked = 0;
    for name in pages().iter().filter(|p| *p != "docs/commands.md") {
        for part in blocks(&page(name), "jsonc") {
            let first = part.split('"').nth(1).expect("a name");
            let sink = part.split('"').nth(3).expect("a name");
            let base = r#""state_dir": "state", "authorized_users": ["octocat"]"#;
            let token = r#""token_env": "GITHUB_TOKEN""#;
            let whole = match first {
                _ if part.starts_with('{') => part.to_string(),
                "sinks" => format!(
                    r#"{{ {base}, "sources": [ {{ {github}, {token}, "sinks": ["{sink}"] }} ], {part} }}"#
                ),
                "app" => format!(
                    r#"{{ {base}, "sources": [ {{ {github}, {part}, "sinks": ["s"] }} ], "sinks": {{ "s": {{ "type": "exec", "command": ["./on-event"] }} }} }}"#
                ),
                sink => format!(
                    r#"{{ {base}, "sources": [ {{ {github}, {token}, "sinks": ["{sink}"] }} ], "sinks": {{ {part} }} }}"#
                ),
            };
            let here = format!("\"{}/", place.dir.display());
            let mut config = whole;
            for there in ["\"/usr/local/bin/", "\"/etc/idempoll/", "\"/srv/"] {
                config = config.replace(there, &here);
            }
            config = config
                .replace("{owner}/{repo}", "work")
                .replace(":8080/", &format!(":{port}/"));
            fs::create_dir_all(place.path("work")).expect("a directory");
            place.write("idempoll.json", &config);
            let output = shell(&place, "exec 2>&1; idempoll check")
                .output()
                .expect("a shell");
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let no_tmux = said.contains("tmux") && Command::new("tmux").arg("-V").output().is_err();
            if no_tmux {
                eprintln!("{name}: NOT TESTED HERE: there is no tmux");
            } else {
                assert!(output.status.success(), "{name}:\n{config}\n{said}");
            }
            checked += 1;
        }
    }
    assert!(checked >= 6, "only {checked}");
}

/// Given the item file that `docs/config.md` shows, when it is polled, then it is an item with a comment.
#[test]
fn the_item_file_of_the_config_page_is_one() {
    let place = Place::new(crate::world::program::LOG);
    let page = page("docs/config.md");
    let [item] = blocks(&page, "json")[..] else {
        panic!("one item file");
    };
    place.write("inbox/7.json", item);
    place.once().expect(0);
    assert_eq!(
        place.lines("ids.log"),
        ["dir:inbox#7/opened", "dir:inbox#7/comment/1"]
    );
}

/// Given `docs/commands.md`, when what it says of manual pages and completions is typed, below another root, then each file is there.
#[test]
fn the_completions_go_where_the_commands_page_puts_them() {
    let place = Place::new("");
    let page = page("docs/commands.md");
    // The first one is the command of the examples, which they run.
    let [_, block] = blocks(&page, "sh")[..] else {
        panic!("two blocks");
    };
    let lines = commands(block);
    assert!(lines.len() >= 4, "{lines:?}");
    for line in lines {
        let (command, file) = line.split_once(" > /").expect("a file");
        let file = place.path("root").join(file);
        fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
        let status = shell(&place, &format!("{command} > {}", file.display())).status();
        assert!(status.expect("a shell").success(), "{line}");
        let text = fs::read_to_string(file).expect("text");
        assert!(text.contains("idempoll"), "{line}");
    }
}

/// Given what `status` says of a host in `docs/commands.md`, when the same is looked for in what the test of `status` expects,
/// then it is there but for the numbers.
#[test]
fn the_words_of_a_host_are_those_of_the_commands_page() {
    let page = page("docs/commands.md");
    let [text] = blocks(&page, "text")[..] else {
        panic!("one block");
    };
    let shown = alike(text, Path::new("/nowhere"));
    let (_, shown) = shown.split_once(": ").expect("the name of the host");
    let (start, next) = shown.split_once("; next poll in ").expect("two parts");
    let (_, why) = next.split_once(": ").expect("a reason");
    let tests = alike(
        &fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/status.rs"))
            .expect("text"),
        Path::new("/nowhere"),
    );
    assert!(tests.contains(&format!("\"{start}\"")), "{start}");
    assert!(tests.contains(&format!(": {why}\"")), "{why}");
}

/// Given the text that `docs/tmux.md` shows, when the same event is put into words, then they are the same but for what is left out.
#[test]
fn the_text_of_the_tmux_page_is_what_is_pasted() {
    let page = page("docs/tmux.md");
    let plain = fenced(&page).into_iter().find(|(kind, _)| kind.is_empty());
    let (_, shown) = plain.expect("a text");
    let payload = json!({ "idempoll": 1, "event": "comment", "delivery_id": "github:octo/api#7/comment/1234", "source": "api",
        "item": { "ref": "github:octo/api#7", "kind": "issue", "state": "open", "title": "Login fails", "labels": ["auto"], "author": "octocat" },
        "comment": { "id": "1234", "author": "octocat", "body": "the comment",
            "url": "https://github.com/octo/api/issues/7#issuecomment-1234" } });
    let text = prompt::render(prompt::BUILT_IN, &payload.to_string()).expect("a text");
    let mut rest = text.as_str();
    for part in shown.replace("5f0c…", "…").split('…') {
        let at = rest.find(part);
        let at = at.unwrap_or_else(|| panic!("{part:?} is not in the rest: {rest}"));
        rest = &rest[at + part.len()..];
    }
    assert!(rest.trim().is_empty(), "more than is shown: {rest}");
}

/// Given what `check --online` says in `docs/commands.md`, when each line is looked for in what its test expects of a real one,
/// then it is there.
#[test]
fn what_check_says_online_is_on_the_commands_page() {
    let page = page("docs/commands.md");
    let tested = include_str!("check_online.rs").replace("\\\"", "\"");
    let plain = fenced(&page).into_iter().find(|(kind, _)| kind.is_empty());
    let (_, shown) = plain.expect("what it says");
    assert!(shown.lines().count() > 4, "{shown}");
    // The test has the refusal of the repository and the token of its own.
    let shown = shown
        .replace("octo/web", "octo/api")
        .replace("GITHUB_TOKEN", "TOKEN");
    for line in shown.lines() {
        assert!(tested.contains(&format!("\"{line}\",\n")), "{line}");
    }
}

/// Given the program with its symbols, when `.ci/split` parts them as `docs/releasing.md` says, then the program does what it did, has
/// no symbols, and an address is a function and a line by the file beside it, and by that alone.
#[test]
fn symbols_that_were_cut_off_are_found_again() {
    let split = Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/split");
    for tool in ["objcopy", "addr2line", "nm"] {
        if Command::new(tool).arg("--version").output().is_err() || !split.exists() {
            eprintln!(
                "symbols_that_were_cut_off: NOT TESTED HERE: there is no {tool}, or no .ci/split"
            );
            return;
        }
    }
    let place = Place::new("");
    let page = page("docs/releasing.md");
    let block = blocks(&page, "sh")
        .into_iter()
        .find(|b| b.contains(".ci/split"));
    let lines = commands(block.expect("how it is parted"));
    let [_, split_line, look_up] = lines[..] else {
        panic!("{lines:?}");
    };
    let output = Command::new("nm")
        .arg("-C")
        .arg(binary())
        .output()
        .expect("nm");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let main = text.lines().find(|l| l.ends_with(" idempoll::main"));
    let Some(main) = main.and_then(|l| l.split(' ').next()) else {
        // As `.ci/static` builds it, and tries this itself.
        eprintln!(
            "symbols_that_were_cut_off: NOT TESTED HERE: {} has none",
            binary().display()
        );
        return;
    };
    let typed = |line: &str| {
        let here = line
            .replace(".ci/split", &split.display().to_string())
            .replace("target/release/idempoll", &binary().display().to_string())
            .replace("0x41c0f0", &format!("0x{main}"));
        let output = shell(&place, &here).output().expect("a shell");
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    typed(split_line);
    let said = typed(look_up);
    assert!(
        said.starts_with("idempoll::main\n") && said.contains("src/main.rs:"),
        "{said}"
    );
    let version = |program: &Path| {
        Command::new(program)
            .arg("--version")
            .output()
            .expect("it runs")
            .stdout
    };
    let parted = place.path("target/split/idempoll");
    assert_eq!(version(&parted), version(&binary()));
    fs::rename(
        place.path("target/split/idempoll.debug"),
        place.path("elsewhere"),
    )
    .expect("it is there");
    let said = typed(look_up);
    assert!(said.starts_with("??\n"), "{said}");
}
