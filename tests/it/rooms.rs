//! The shape of the project, checked: rooms, arrows, who may name what, and the docs that say so.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(dir: &str, suffix: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut todo: Vec<PathBuf> = vec![root().join(dir)];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).expect("a room").flatten() {
            let path = entry.path();
            if path.is_dir() {
                todo.push(path);
            } else if path.to_string_lossy().ends_with(suffix) {
                let name = path
                    .strip_prefix(root())
                    .expect("below the root")
                    .display()
                    .to_string();
                found.push((name, fs::read_to_string(&path).expect("source is text")));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty());
    found
}

/// The code of a file without its comments and its tests.
fn code(text: &str) -> String {
    let text = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    text.lines()
        .map(|l| l.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

fn room(file: &str) -> &str {
    let inside = file.strip_prefix("src/").unwrap_or(file);
    inside.split(['/', '.']).next().unwrap_or(inside)
}

/// The rooms `text` names: `crate::ROOM` and `use crate::{ROOM, …}`.
fn named(text: &str) -> BTreeSet<String> {
    let mut rooms = BTreeSet::new();
    for part in text.split("crate::").skip(1) {
        let group = part
            .strip_prefix('{')
            .map(|g| g.split('}').next().unwrap_or_default());
        for word in group.unwrap_or(part).split(',') {
            let word: String = word
                .trim()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            rooms.insert(word);
            if group.is_none() {
                break;
            }
        }
    }
    rooms
}

/// The words shared by all rooms; `scratch` by their tests.
const SHARED: [&str; 5] = ["error", "exit", "terminal", "mutant", "scratch"];

/// Who may name whom, beside the words all share.
fn arrows() -> BTreeMap<&'static str, Vec<&'static str>> {
    BTreeMap::from([
        ("main", vec!["idempoll"]),
        ("lib", vec![]),
        ("error", vec![]),
        ("exit", vec![]),
        ("terminal", vec![]),
        ("mutant", vec![]),
        ("scratch", vec![]),
        ("engine", vec![]),
        ("net", vec![]),
        ("os", vec![]),
        ("config", vec!["engine", "os"]),
        ("store", vec!["engine", "os"]),
        ("providers", vec!["net", "config", "engine", "os"]),
        ("sinks", vec!["net", "config", "engine", "os"]),
        (
            "daemon",
            vec!["engine", "config", "providers", "sinks", "store", "os"],
        ),
        (
            "cli",
            vec![
                "daemon",
                "store",
                "config",
                "engine",
                "providers",
                "sinks",
                "os",
            ],
        ),
    ])
}

#[test]
fn arrows_between_rooms_go_one_way() {
    let arrows = arrows();
    let mut seen = 0;
    for (file, text) in files("src", ".rs") {
        let here = room(&file);
        let allowed = arrows
            .get(here)
            .unwrap_or_else(|| panic!("{file}: the room '{here}' is not in the table"));
        for there in named(&code(&text)) {
            let shared = SHARED.contains(&there.as_str()) || there == here;
            assert!(
                shared || allowed.contains(&there.as_str()),
                "{file} names crate::{there}, which {here} may not"
            );
            seen += 1;
        }
    }
    assert!(seen > 100, "the check sees too little: {seen} arrows");
    assert_eq!(
        named("use crate::{store, cli::out};\nuse crate::net::Answer;"),
        ["cli", "net", "store"].map(String::from).into()
    );
}

#[test]
fn the_engine_does_no_input_or_output() {
    for (file, text) in files("src/engine", ".rs") {
        let code = code(&text);
        for word in [
            "std::fs",
            "std::net",
            "std::process",
            "std::thread::s",
            "std::env",
            "std::io",
            "Instant",
            "SystemTime::now",
            "crossbeam",
            "libc",
            "ureq",
        ] {
            assert!(!code.contains(word), "{file} names {word}");
        }
    }
}

#[test]
fn unsafe_and_libc_stay_in_os_and_ureq_in_net() {
    for (file, text) in files("src", ".rs") {
        let code = code(&text);
        if room(&file) != "os" {
            assert!(!code.contains("libc::"), "{file} names libc");
            let unsafe_word = code.split_whitespace().any(|w| w == "unsafe");
            assert!(!unsafe_word, "{file} says unsafe");
        }
        if room(&file) != "net" {
            for word in ["ureq::", "rustls::"] {
                assert!(!code.contains(word), "{file} names {word}");
            }
        }
    }
    for room in [
        "cli",
        "config",
        "daemon",
        "engine",
        "net",
        "providers",
        "sinks",
        "store",
    ] {
        let text = fs::read_to_string(root().join(format!("src/{room}/mod.rs")))
            .expect("a room has a mod.rs");
        assert!(
            text.contains("#![forbid(unsafe_code)]"),
            "src/{room}/mod.rs does not forbid unsafe code"
        );
    }
}

#[test]
fn the_architecture_page_names_every_module() {
    let page =
        fs::read_to_string(root().join("docs/architecture.md")).expect("docs/architecture.md");
    for (file, _) in files("src", ".rs") {
        let inside = file.strip_prefix("src/").expect("in src");
        let stem = inside.trim_end_matches(".rs").trim_end_matches("/mod");
        let name = stem.rsplit('/').next().expect("a name");
        // A room stands as a folder; a folder of a module under its parent's line.
        let known = page.contains(&format!("`{name}`"))
            || page.contains(&format!("`{name}/`"))
            || page.contains(&format!("`{inside}`"))
            || page.contains(&format!("`{name}.rs`"));
        assert!(
            known,
            "docs/architecture.md does not name `{name}` ({file})"
        );
    }
    for word in page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|w| w.ends_with(".rs"))
    {
        let exists = files("src", ".rs")
            .iter()
            .chain(&files("tests", ".rs"))
            .any(|(f, _)| f.ends_with(word));
        assert!(
            exists,
            "docs/architecture.md names {word}, which does not exist"
        );
    }
}

/// Every id in `docs/acceptance.md` is carried by the test it names, and every
/// requirement this release is about is in the table.
#[test]
fn every_requirement_has_its_test() {
    let page = fs::read_to_string(root().join("docs/acceptance.md")).expect("docs/acceptance.md");
    let sources: Vec<(String, String)> = files("src", ".rs")
        .into_iter()
        .chain(files("tests", ".rs"))
        .collect();
    let mut listed = BTreeSet::new();
    for line in page
        .lines()
        .filter(|l| l.starts_with("| R") || l.starts_with("| C"))
    {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (id, tests) = (cells[1], cells[2]);
        listed.insert(id.to_string());
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{id} names no test");
        for name in names {
            // Two files may each have a test of that name: one of them carries the id.
            let mut found = sources
                .iter()
                .filter_map(|(_, text)| Some((text, text.find(&format!("fn {name}("))?)))
                .peekable();
            assert!(found.peek().is_some(), "{id}: there is no test {name}");
            let lower = id.to_lowercase().replace('.', "_");
            let carried = found.any(|(text, at)| {
                // The id stands in the doc comment right above the test, or in its name.
                let above = text[..at].lines().rev();
                above
                    .skip_while(|l| l.trim().is_empty())
                    .take_while(|l| !l.trim().is_empty() && !l.starts_with('}'))
                    .any(|l| carries(l, id))
            });
            assert!(
                carried || name.contains(&lower),
                "{name} does not carry {id}"
            );
        }
    }
    for (series, last) in [(1, 9), (2, 5), (3, 7), (4, 3), (5, 5), (6, 7), (7, 4)] {
        for n in 1..=last {
            assert!(
                listed.contains(&format!("R{series}.{n}")),
                "R{series}.{n} has no test in docs/acceptance.md"
            );
        }
    }
}

/// Each deliberate fault is listed with the promise it breaks and the tests that catch it, and
/// each promise about the life of a poller has at least one.
#[test]
fn every_mutant_is_listed_and_every_promise_of_the_lifecycle_has_one() {
    let sources: Vec<(String, String)> = files("src", ".rs")
        .into_iter()
        .chain(files("tests", ".rs"))
        .collect();
    let page = fs::read_to_string(root().join("docs/acceptance.md")).expect("docs/acceptance.md");
    let list = fs::read_to_string(root().join("tests/mutants.txt")).expect("tests/mutants.txt");
    let mut listed = BTreeSet::new();
    let mut broken: BTreeSet<String> = BTreeSet::new();
    for line in list
        .lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, ids, tests @ ..] = words.as_slice() else {
            panic!("tests/mutants.txt: too few words: {line}");
        };
        assert!(listed.insert(name.to_string()), "{name} is listed twice");
        assert!(!tests.is_empty(), "{name}: no test catches it");
        broken.extend(ids.split(',').map(ToString::to_string));
        assert!(
            ids.split(',')
                .all(|id| page.contains(&format!("\n| {id} | "))),
            "{name}: {ids}"
        );
        for test in tests {
            let (binary, path) = test.split_once(':').unwrap_or_default();
            assert!(["lib", "it"].contains(&binary), "{name}: {test}");
            let function = path.rsplit("::").next().expect("a name");
            let exists = sources
                .iter()
                .any(|(_, text)| text.contains(&format!("fn {function}(")));
            assert!(exists, "{name}: there is no test {test}");
        }
    }
    let mut planted = BTreeSet::new();
    for (_, text) in files("src", ".rs") {
        for part in code(&text).split("mutant::is(\"").skip(1) {
            planted.insert(part.split('"').next().unwrap_or_default().to_string());
        }
    }
    assert_eq!(
        planted, listed,
        "planted in src, and listed in tests/mutants.txt"
    );
    for (series, last) in [(1, 9), (2, 7), (3, 7), (4, 3), (5, 5)] {
        for n in 1..=last {
            let id = format!("R{series}.{n}");
            assert!(broken.contains(&id), "no mutant breaks {id}");
        }
    }
}

/// Every id that a test's doc comment carries is in `docs/acceptance.md`.
#[test]
fn every_id_a_test_carries_is_listed() {
    let page = fs::read_to_string(root().join("docs/acceptance.md")).expect("docs/acceptance.md");
    for (file, text) in files("src", ".rs").into_iter().chain(files("tests", ".rs")) {
        let mut said = Vec::new();
        for line in text.lines().map(str::trim) {
            match line {
                l if l.starts_with("///") => said.push(l),
                l if l.starts_with("#[test]") => {
                    for id in said.iter().flat_map(|l| ids(l)) {
                        assert!(
                            page.contains(&format!("\n| {id} | ")),
                            "{file}: a test proves {id}, which docs/acceptance.md does not list"
                        );
                    }
                }
                l if l.starts_with("#[") => {}
                _ => said.clear(),
            }
        }
    }
}

/// The ids in a line: `R3.1`, `C113`.
fn ids(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '.')
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| {
            let number = |text: &str| text.parse::<u16>().is_ok();
            match word.split_at_checked(1) {
                Some(("C", n)) => n.len() == 3 && number(n),
                Some(("R", n)) => n
                    .split_once('.')
                    .is_some_and(|(a, b)| number(a) && number(b)),
                _ => false,
            }
        })
}

fn carries(line: &str, id: &str) -> bool {
    line.match_indices(id)
        .any(|(at, _)| !line[at + id.len()..].starts_with(|c: char| c.is_ascii_digit()))
}
