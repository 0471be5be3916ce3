//! What is wrong around the program: its directories, its config, its files, the disk.

use crate::world::forge::Forge;
use crate::world::forge::Reply;
use crate::world::program::{Answer, LOG, Place, Running, can_mount, exists, is_root};
use idempoll::engine::time::Time;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// An open item with comments of these ids and times.
fn item(number: u64, comments: &[(u64, String)]) -> Value {
    let comments: Vec<Value> = comments
        .iter()
        .map(|(id, at)| json!({ "id": id, "author": "octocat", "body": format!("comment {id}"), "created_at": at }))
        .collect();
    json!({ "number": number, "title": format!("Ärger ☃ mit 𝄞 {number}"), "author": "octocat", "state": "open",
        "created_at": "2026-08-05T09:00:00Z", "comments": comments })
}

fn in_seconds(seconds: u64) -> String {
    Time::from(SystemTime::now() + Duration::from_secs(seconds)).to_string()
}

fn record(place: &Place, number: u64) -> PathBuf {
    place.path(&format!("state/items/inbox~{number}.json"))
}

/// Given a state directory or a pidfile that is something else, a link, or others'
/// to write to, when the program is started, then it says which and why, exits 1, hangs
/// nowhere, and nothing is changed (R1.9).
#[test]
fn r1_9_a_place_that_is_not_ours_is_refused() {
    let place = Place::new(LOG);
    place.item(1, 0);
    place.write("file", "precious");
    fs::create_dir(place.path("real")).expect("new");
    symlink("real", place.path("link")).expect("new");
    symlink("nowhere", place.path("dangling")).expect("new");
    fs::create_dir(place.path("open")).expect("new");
    fs::set_permissions(place.path("open"), fs::Permissions::from_mode(0o777)).expect("ours");
    let fifo = |name: &str| {
        let made = Command::new("mkfifo").arg(place.path(name)).status();
        assert!(made.expect("mkfifo").success());
    };
    fifo("fifo");
    fs::create_dir(place.path("pids")).expect("new");
    place.write("pids/precious", "precious");
    symlink("precious", place.path("pids/link")).expect("new");
    symlink("made", place.path("pids/dangling")).expect("new");
    fs::hard_link(place.path("pids/precious"), place.path("pids/hard")).expect("new");
    fs::create_dir(place.path("pids/dir")).expect("new");
    fifo("pids/fifo");
    place.write("pids/open", "1");
    fs::set_permissions(place.path("pids/open"), fs::Permissions::from_mode(0o666)).expect("ours");
    let mut cases = vec![
        ("--state-dir", "file", "a regular file"),
        ("--state-dir", "file/below", "file/below"),
        ("--state-dir", "link", "symbolic link"),
        ("--state-dir", "link/", "symbolic link"),
        ("--state-dir", "dangling", "symbolic link"),
        ("--state-dir", "fifo", "a FIFO"),
        ("--state-dir", "open", "others can write"),
        ("--pidfile", "pids/link", "symbolic link"),
        ("--pidfile", "pids/dangling", "symbolic link"),
        ("--pidfile", "pids/hard", "hard link"),
        ("--pidfile", "pids/dir", "a directory"),
        ("--pidfile", "pids/fifo", "a FIFO"),
        ("--pidfile", "pids/open", "others can write"),
        ("--pidfile", "missing/poll.pid", "missing/poll.pid"),
    ];
    if is_root() {
        fs::create_dir(place.path("theirs")).expect("new");
        chown(place.path("theirs"), Some(65534), Some(65534)).expect("root may");
        place.write("pids/theirs", "1");
        chown(place.path("pids/theirs"), Some(65534), Some(65534)).expect("root may");
        cases.push(("--state-dir", "theirs", "belongs to"));
        cases.push(("--pidfile", "pids/theirs", "belongs to"));
    } else {
        println!("r1_9: somebody else's directory is skipped, since this is not root");
    }
    for (flag, what, why) in cases {
        let said = place.run(&["start", "--once", flag, what]).expect(1);
        let path = place.path(what.trim_end_matches('/')).display().to_string();
        for part in [&path, why] {
            assert!(
                said.stderr.contains(part),
                "{what}: {part}: {}",
                said.stderr
            );
        }
        assert_eq!(said.stdout, "", "{what}");
    }
    assert!(place.lines("ids.log").is_empty());
    assert_eq!(place.lines("file"), ["precious"]);
    assert_eq!(place.lines("pids/precious"), ["precious"]);
    assert!(!exists(&place.path("pids/made")) && !exists(&place.path("nowhere")));
    for dir in ["real", "open"] {
        let inside = fs::read_dir(place.path(dir)).expect("it is there").count();
        assert_eq!(inside, 0, "{dir}");
    }
    // What a start makes is for us alone.
    place.once().expect(0);
    let mut todo = vec![place.state()];
    while let Some(path) = todo.pop() {
        let mode = path.metadata().expect("it is there").permissions().mode() & 0o777;
        let wanted = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, wanted, "{}", path.display());
        if path.is_dir() {
            todo.extend(
                fs::read_dir(path)
                    .expect("ours")
                    .flatten()
                    .map(|e| e.path()),
            );
        }
    }
}

/// Given a `--pidfile` that names some other file, when `start` or `stop` is called, then it
/// stays as it is and the message says so (R1.9).
#[test]
fn r1_9_a_file_that_is_no_pidfile_stays_as_it_is() {
    let place = Place::new(LOG);
    place.once().expect(0);
    let config = fs::read_to_string(place.path("idempoll.json")).expect("it is there");
    for verb in [&["start", "--once"][..], &["stop"]] {
        let mut words = verb.to_vec();
        words.extend(["--pidfile", "idempoll.json"]);
        let said = place.run(&words).expect(1);
        assert!(said.stderr.contains("not a pidfile"), "{}", said.stderr);
    }
    let after = fs::read_to_string(place.path("idempoll.json"));
    assert_eq!(after.expect("it is there"), config);
}

/// Given a state directory that others can open, when a poller starts, then it says once that they
/// could keep it from starting, and works (R1.9).
#[test]
fn r1_9_a_state_directory_open_to_others_is_warned_about() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new(LOG);
    place.item(1, 0);
    fs::create_dir(place.state()).expect("it can be made");
    for (mode, warnings) in [(0o755, 1), (0o700, 1)] {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(place.state(), mode).expect("it is ours");
        place.once().expect(0);
        let warned = place.entries("poller.warning");
        assert_eq!(warned.len(), warnings, "{}", place.story());
        let reason = warned[0]["reason"].as_str().unwrap_or_default();
        assert!(
            reason.contains("(mode 0755)") && reason.contains("chmod 700"),
            "{reason}"
        );
    }
    assert_eq!(place.lines("ids.log").len(), 1);
}

/// Given a state directory nothing can be written to, when the program is started, then it
/// is refused before the first request (R1.9, C124).
#[test]
fn c124_a_read_only_state_directory_is_refused_before_any_request() {
    let forge = Forge::start(|_| Reply::json("[]"));
    let place = Place::new(LOG);
    let mut config = place.config(LOG);
    config["sources"] = json!([{ "name": "forge", "provider": "github", "repos": ["octo/widgets"],
        "base_url": forge.url(), "sinks": ["log"] }]);
    place.configure(&config);
    place.once().expect(0);
    assert!(!forge.asked().is_empty());
    let before = place.snapshot();
    let said = if is_root() {
        if !can_mount("c124") {
            return;
        }
        // Modes do not bind root, a read-only mount does.
        let script = r#"mount --bind state state && mount -o remount,bind,ro state && exec "$@""#;
        Answer::of(
            in_namespace(&place, script, &["start", "--once"])
                .output()
                .expect("it starts"),
        )
    } else {
        fs::set_permissions(place.state(), fs::Permissions::from_mode(0o500)).expect("ours");
        let said = place.run(&["start", "--once"]);
        fs::set_permissions(place.state(), fs::Permissions::from_mode(0o700)).expect("ours");
        said
    };
    let said = said.expect(1);
    let state = place.state().display().to_string();
    assert!(said.stderr.contains(&state), "{}", said.stderr);
    assert!(
        said.stderr.contains("read-only") || said.stderr.contains("permission denied"),
        "{}",
        said.stderr
    );
    assert!(forge.asked().is_empty());
    assert_eq!(place.snapshot(), before);
}

type Mistake = (&'static str, fn(&mut Value), &'static str);

/// Given a config with one mistake, when `start` and `check` read it, then both exit 2 and name
/// the place of the mistake, and nothing is made (R7.4, C135, C137).
#[test]
fn c135_a_mistake_in_the_config_is_named() {
    let mistakes: [Mistake; 19] = [
        (
            "misspelt",
            |c| c["intervall_seconds"] = 5.into(),
            "'interval_seconds'",
        ),
        (
            "in a source",
            |c| c["sources"][0]["lable"] = "x".into(),
            "sources[0].lable",
        ),
        (
            "in a sink",
            |c| c["sinks"]["log"]["comand"] = json!(["x"]),
            "sinks.log.comand",
        ),
        (
            "too small",
            |c| c["interval_seconds"] = 0.into(),
            "interval_seconds",
        ),
        (
            "negative",
            |c| c["max_retries"] = (-1).into(),
            "max_retries",
        ),
        (
            "no list",
            |c| c["authorized_users"] = "octocat".into(),
            "authorized_users",
        ),
        ("null", |c| c["label"] = Value::Null, "label"),
        (
            "provider",
            |c| c["sources"][0]["provider"] = "dirr".into(),
            "sources[0].provider",
        ),
        (
            "sink type",
            |c| c["sinks"]["log"]["type"] = "exe".into(),
            "sinks.log.type",
        ),
        (
            "no sink",
            |c| c["sources"][0]["sinks"] = json!(["lgo"]),
            "sources[0].sinks[0]",
        ),
        (
            "sink twice",
            |c| c["sources"][0]["sinks"] = json!(["log", "log"]),
            "sources[0].sinks[1]",
        ),
        (
            "no command",
            |c| c["sinks"]["log"]["command"] = json!([]),
            "sinks.log.command",
        ),
        ("no sources", |c| c["sources"] = json!([]), "sources"),
        (
            "a time",
            |c| c["sources"][0]["watch_from"] = "yesterday".into(),
            "sources[0].watch_from",
        ),
        (
            "a name",
            |c| c["sources"][0]["name"] = "../x".into(),
            "sources[0].name",
        ),
        (
            "other provider's key",
            |c| c["sources"][0]["repos"] = json!(["a/b"]),
            "sources[0].repos",
        ),
        (
            "a token in the file",
            |c| c["sources"][0]["token"] = "hunter2hunter2".into(),
            "sources[0].token",
        ),
        (
            "twice",
            |c| {
                let again = c["sources"][0].clone();
                c["sources"].as_array_mut().expect("a list").push(again);
            },
            "sources[1]",
        ),
        (
            "timeout",
            |c| c["sinks"]["log"]["timeout_seconds"] = "5".into(),
            "sinks.log.timeout_seconds",
        ),
    ];
    let place = Place::new(LOG);
    place.item(1, 0);
    let refused = |name: &str, named: &str| {
        for args in [&["start", "--once"][..], &["check"]] {
            let said = place.run(args).expect(2);
            for part in [named, "idempoll.json:"] {
                assert!(
                    said.stderr.contains(part),
                    "{name}: {part}: {}",
                    said.stderr
                );
            }
            assert!(!said.stderr.contains("hunter2"), "{}", said.stderr);
        }
    };
    for (name, change, named) in mistakes {
        let mut config = place.config(LOG);
        change(&mut config);
        place.configure(&config);
        refused(name, named);
    }
    let whole = place.config(LOG).to_string();
    place.write(
        "idempoll.json",
        &whole.replacen('{', r#"{"state_dir": "x","#, 1),
    );
    refused("a key twice", "state_dir");
    place.write("idempoll.json", &whole[..whole.len() / 2]);
    refused("cut in half", "idempoll.json:1:");
    place.write("idempoll.json", "");
    refused("empty", "idempoll.json:");
    fs::remove_file(place.path("idempoll.json")).expect("it is there");
    let said = place.run(&["start", "--once"]).expect(2);
    assert!(said.stderr.contains("idempoll.json"), "{}", said.stderr);
    assert!(!exists(&place.state()));
    assert!(place.lines("ids.log").is_empty());
}

/// Given an item file of which only a part has been written, when it is read, then it is reported,
/// the former version stays, nothing is closed, and once it is whole what is new
/// in it is delivered once (C138).
#[test]
fn c138_a_file_cut_in_half_changes_nothing() {
    let place = Place::new(LOG);
    place.item(1, 1);
    place.item(2, 0);
    place.once().expect(0);
    place.item(1, 2);
    let whole = fs::read_to_string(place.path("inbox/1.json")).expect("just written");
    for cut in [whole.len() / 2, whole.len() - 1, 1, 0] {
        place.write("inbox/1.json", &whole[..cut]);
        let said = place.once().expect(1);
        assert!(said.stderr.contains("1.json"), "{}", said.stderr);
        // A new file that is not whole is no item either.
        place.write("inbox/3.json", &whole[..cut]);
        place.once().expect(1);
        fs::remove_file(place.path("inbox/3.json")).expect("it is there");
    }
    assert_eq!(place.lines("ids.log").len(), 3, "{}", place.story());
    assert!(place.entries("poll.closure_detected").is_empty());
    place.write("inbox/1.json", &whole);
    place.once().expect(0);
    place.once().expect(0);
    let ids = place.lines("ids.log");
    assert_eq!(ids.len(), 4, "{}", place.story());
    assert_eq!(ids[3], "dir:inbox#1/comment/2");
}

/// Given files that hold no item, and two with one number, when they are listed, then each is
/// reported by name, the others are delivered, and nothing panics or is closed.
#[test]
fn garbage_in_the_inbox_holds_up_nothing() {
    let place = Place::new(LOG);
    place.item(1, 0);
    place.item(5, 0);
    place.once().expect(0);
    let garbage: [(&str, &[u8]); 9] = [
        ("empty", b""),
        ("list", b"[]"),
        ("words", b"hello"),
        ("binary", b"\x00\xff\xfe\x80"),
        ("no-number", br#"{"author":"octocat","state":"open"}"#),
        ("zero", br#"{"number":0,"author":"octocat","state":"open"}"#),
        ("no-author", br#"{"number":91,"state":"open"}"#),
        (
            "state",
            br#"{"number":92,"author":"octocat","state":"archived"}"#,
        ),
        (
            "title",
            br#"{"number":93,"author":"octocat","state":"open","title":7}"#,
        ),
    ];
    for (name, bytes) in garbage {
        fs::write(place.path(&format!("inbox/{name}.json")), bytes).expect("a new file");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    place.write("inbox/deep.json", &deep);
    // Not items at all, and not worth a word.
    fs::create_dir(place.path("inbox/dir.json")).expect("new");
    place.write("inbox/.hidden.json", "{");
    place.write("inbox/5.json~", "{");
    fs::copy(place.path("inbox/1.json"), place.path("inbox/copy.json")).expect("a copy");
    place.item(2, 1);
    for _ in 0..3 {
        let said = place.once().expect(1);
        for (name, _) in garbage {
            assert!(
                said.stderr.contains(&format!("{name}.json")),
                "{name}: {}",
                said.stderr
            );
        }
        for part in ["deep.json", "1.json and copy.json"] {
            assert!(said.stderr.contains(part), "{part}: {}", said.stderr);
        }
        for part in ["dir.json", "hidden", "json~", "panicked"] {
            assert!(!said.stderr.contains(part), "{part}: {}", said.stderr);
        }
    }
    assert!(place.entries("poll.closure_detected").is_empty());
    fs::remove_file(place.path("inbox/copy.json")).expect("it is there");
    place.once().expect(1);
    let mut ids = place.lines("ids.log");
    ids.sort();
    let wanted = [
        "dir:inbox#1/opened",
        "dir:inbox#2/comment/1",
        "dir:inbox#2/opened",
        "dir:inbox#5/opened",
    ];
    assert_eq!(ids, wanted, "{}", place.story());
}

/// Given a sink whose command is not there, when it is tried, then each try fails with the
/// command's name, the budget is spent and it is given up; once the command is
/// there, `retry` has it delivered, with a running poller within two seconds, and without (R6.7, C056).
#[test]
fn r6_7_a_command_that_does_not_exist_is_given_up_and_can_be_retried() {
    for with_poller in [true, false] {
        let place = Place::new("");
        let handler = place.path("handler");
        let mut config = place.config("");
        config["max_retries"] = 1.into();
        config["sinks"]["log"]["command"] = json!([handler]);
        place.configure(&config);
        place.item(1, 1);
        let mut poller = place.start();
        place.until("all is given up", || {
            place.entries("poll.gave_up").len() == 2
        });
        let failed = place.entries("dispatch.failed");
        assert_eq!(failed.len(), 4);
        for entry in &failed {
            let reason = entry["reason"].as_str().unwrap_or_default();
            assert!(reason.contains(&handler.display().to_string()), "{entry}");
        }
        place.run(&["start", "--once"]).expect(1);
        let said = place.run(&["items", "--gave-up"]).expect(0);
        assert!(said.stdout.contains("dir:inbox#1"), "{}", said.stdout);
        if !with_poller {
            place.run(&["stop"]).expect(0);
            assert!(poller.ended().success());
        }
        place.script("handler", &format!("#!/bin/sh\n{LOG}\n"));
        let asked = Instant::now();
        place.run(&["retry", "dir:inbox#1", "opened"]).expect(0);
        place.run(&["retry", "--all"]).expect(0);
        if with_poller {
            place.until("it is delivered", || place.lines("ids.log").len() == 2);
            let took = asked.elapsed();
            assert!(took < Duration::from_secs(20), "{took:?} for two requests");
        } else {
            assert!(place.lines("ids.log").is_empty());
            place.once().expect(0);
        }
        assert_eq!(
            place.lines("ids.log"),
            ["dir:inbox#1/opened", "dir:inbox#1/comment/1"],
            "{}",
            place.story()
        );
        assert_eq!(place.entries("poll.rearmed").len(), 2);
        let said = place.run(&["retry", "dir:inbox#1"]).expect(1);
        assert!(said.stderr.contains("nothing"), "{}", said.stderr);
    }
}

/// Given records that are empty, cut or garbage, when a comment comes on their items, then
/// each is kept aside and reported once, what was said before is not delivered
/// again, and what is new is, once (R3.6, C111, C113).
#[test]
fn c113_a_damaged_record_is_kept_aside_and_nothing_comes_twice() {
    let place = Place::new(LOG);
    let old = |id| (id, format!("2026-08-05T10:00:0{id}Z"));
    for number in 1..=8 {
        place.item_file(number, &item(number, &[old(1), old(2)]));
    }
    place.once().expect(0);
    assert_eq!(place.lines("ids.log").len(), 24);
    let damage = |number: u64, how: fn(&[u8]) -> Vec<u8>| {
        let path = record(&place, number);
        let whole = fs::read(&path).expect("a record");
        fs::write(&path, how(&whole)).expect("ours");
    };
    damage(1, |_| Vec::new());
    damage(2, |r| r[..17].to_vec());
    damage(3, |r| {
        let last = r.iter().rposition(|b| *b >= 0xc2).expect("a snowman");
        r[..=last].to_vec()
    });
    damage(4, |r| r[..r.len() - 1].to_vec());
    damage(5, |_| b"null".to_vec());
    damage(6, |r| vec![0; r.len()]);
    damage(7, |r| [r, &b"}"[..]].concat());
    place.once().expect(0);
    assert_eq!(place.lines("ids.log").len(), 24);
    let new = (3, in_seconds(5));
    for number in 1..=8 {
        place.item_file(number, &item(number, &[old(1), old(2), new.clone()]));
    }
    for _ in 0..3 {
        place.once().expect(0);
    }
    let mut fresh = place.lines("ids.log").split_off(24);
    fresh.sort();
    let wanted: Vec<String> = (1..=8)
        .map(|n| format!("dir:inbox#{n}/comment/3"))
        .collect();
    assert_eq!(fresh, wanted, "{}", place.story());
    let aside = place.entries("record.set_aside");
    assert_eq!(aside.len(), 7, "{}", place.story());
    let kept = fs::read_dir(place.path("state/items/aside")).expect("it is there");
    assert_eq!(kept.count(), 7);
    assert!(place.entries("poll.closure_detected").is_empty());
}

/// Given a record that cannot be read, or that a newer version wrote, when a comment comes on
/// its item, then the record is left as it is, the item is skipped and
/// reported, the others go on; once it can be read, it goes on where it was (R3.6, C114).
#[test]
fn c114_a_record_that_cannot_be_read_is_left_alone() {
    let place = Place::new(LOG);
    for number in 1..=3 {
        place.item(number, 1);
    }
    place.once().expect(0);
    fs::rename(record(&place, 1), place.path("kept.json")).expect("a rename");
    // Root may read whatever its mode; nobody can read a link to itself.
    symlink("inbox~1.json", record(&place, 1)).expect("its place is free");
    let newer = whole_of(&place, 2).replacen(r#""version": 1"#, r#""version": 99"#, 1);
    fs::write(record(&place, 2), &newer).expect("ours");
    for number in 1..=3 {
        place.item(number, 2);
    }
    for round in 0..2 {
        let said = place.once().expect(1);
        for part in ["inbox~1", "inbox~2", "newer"] {
            assert!(said.stderr.contains(part), "{part}: {}", said.stderr);
        }
        assert_eq!(
            place.lines("ids.log").len(),
            7,
            "round {round}: {}",
            place.story()
        );
    }
    assert!(fs::read_link(record(&place, 1)).is_ok());
    assert_eq!(whole_of(&place, 2), newer);
    let reported = place.entries("poll.item_error");
    assert!(reported.len() >= 2, "{reported:?}");
    assert!(place.entries("record.set_aside").is_empty());
    fs::rename(place.path("kept.json"), record(&place, 1)).expect("a rename");
    let older = newer.replacen(r#""version": 99"#, r#""version": 1"#, 1);
    fs::write(record(&place, 2), older).expect("ours");
    place.once().expect(0);
    place.once().expect(0);
    let mut fresh = place.lines("ids.log").split_off(6);
    fresh.sort();
    let wanted: Vec<String> = (1..=3)
        .map(|n| format!("dir:inbox#{n}/comment/2"))
        .collect();
    assert_eq!(fresh, wanted, "{}", place.story());
}

fn whole_of(place: &Place, number: u64) -> String {
    fs::read_to_string(record(place, number)).expect("a record")
}

/// Given a state directory that a newer version wrote, when the program is started, then it
/// refuses and writes nothing over it.
#[test]
fn a_newer_state_directory_is_refused_and_left_as_it_is() {
    let place = Place::new(LOG);
    place.item(1, 0);
    place.once().expect(0);
    let run = fs::read_to_string(place.path("state/run.json")).expect("it ran");
    let newer = run.replacen(r#""version":1"#, r#""version":2"#, 1);
    assert_ne!(run, newer);
    place.write("state/run.json", &newer);
    place.item(2, 0);
    let before = place.snapshot();
    let said = place.run(&["start", "--once"]).expect(1);
    assert!(said.stderr.contains("newer"), "{}", said.stderr);
    assert_eq!(
        fs::read_to_string(place.path("state/run.json")).ok(),
        Some(newer)
    );
    assert_eq!(place.snapshot(), before);
    assert_eq!(place.lines("ids.log").len(), 1);
    assert_eq!(place.run(&["status"]).code, Some(3));
}

/// The program in a mount namespace of its own, through a `script` that finds it as `"$@"`.
pub fn in_namespace(place: &Place, script: &str, args: &[&str]) -> Command {
    let shell = place.shell(script, args);
    let mut command = Command::new("unshare");
    command.args(["-m", "sh"]).args(shell.get_args());
    command.current_dir(&place.dir).stdin(Stdio::null());
    command
}

/// A poller in a mount namespace of its own, and looks into it.
pub struct Apart<'a> {
    place: &'a Place,
    pub poller: Running,
}

impl<'a> Apart<'a> {
    pub fn start(place: &'a Place, script: &str) -> Apart<'a> {
        let mut command = in_namespace(place, script, &["start"]);
        let log = fs::File::create(place.path("stderr.log")).expect("a log");
        let poller = place.spawn(command.stdout(Stdio::null()).stderr(log));
        let apart = Apart { place, poller };
        place.until("it runs", || apart.status()["running"] == true);
        apart
    }

    /// A shell script where the poller is, which finds the program as `"$@"`.
    pub fn run(&self, script: &str, args: &[&str]) -> Answer {
        let script = format!("cd '{}' && {script}", self.place.dir.display());
        let shell = self.place.shell(&script, args);
        let mut command = Command::new("nsenter");
        command
            .args(["-m", "-r", "-t", &self.poller.pid().to_string(), "sh"])
            .args(shell.get_args());
        Answer::of(command.output().expect("nsenter"))
    }

    pub fn status(&self) -> Value {
        let said = self.run(r#"exec "$@""#, &["status", "--json"]);
        serde_json::from_str(&said.stdout).unwrap_or_default()
    }

    /// Every record as the poller has it.
    fn records(&self) -> Vec<Value> {
        let items = format!(
            "/proc/{}/root{}/items",
            self.poller.pid(),
            self.place.state().display()
        );
        let entries = fs::read_dir(items).expect("its records").flatten();
        let records = entries.filter(|e| e.path().extension().is_some_and(|e| e == "json"));
        records
            .map(|e| {
                let text = fs::read(e.path()).expect("it can be read");
                serde_json::from_slice(&text).expect("a record is whole")
            })
            .collect()
    }
}

/// Given a disk that fills up, when there is no room for a record, then nothing is
/// delivered that is not recorded, every record is whole, `status` says so, and
/// once there is room it goes on by itself, each delivery once (R3.5, C119).
#[test]
fn c119_on_a_full_disk_nothing_is_delivered_that_is_not_recorded() {
    if !can_mount("c119") {
        return;
    }
    let place = Place::new(LOG);
    fs::create_dir(place.state()).expect("new");
    let items = 40;
    for number in 1..=items {
        let mut item = item(number, &[(1, "2026-08-05T10:00:00Z".into())]);
        item["body"] = "x".repeat(9000).into();
        place.item_file(number, &item);
    }
    let script = r#"mount -t tmpfs -o size=256k,mode=700 tmpfs state && exec "$@""#;
    let apart = Apart::start(&place, script);
    let mut status = Value::Null;
    place.until("the disk is full, and it says so", || {
        status = apart.status();
        status["store_error"].is_string()
    });
    let error = status["store_error"].as_str().unwrap_or_default();
    assert!(error.contains("no s"), "{error}");
    // Until it tried again, and failed again.
    let full = place.lines("ids.log").len();
    let since = Instant::now();
    place.until("it has tried again", || {
        since.elapsed() > Duration::from_secs(6)
    });
    let delivered = place.lines("ids.log");
    assert!(delivered.len() < 80, "the disk was not full");
    assert!(
        delivered.len() <= full + 8,
        "{full} and then {}",
        delivered.len()
    );
    let known: Vec<String> = apart
        .records()
        .iter()
        .map(|r| r["ref"].as_str().expect("a ref").to_string())
        .collect();
    for id in &delivered {
        let item = id.split('/').next().expect("an id").to_string();
        assert!(known.contains(&item), "{id} was delivered without a record");
    }
    apart.run("mount -o remount,size=16m state", &[]).expect(0);
    place.until("all is delivered", || place.lines("ids.log").len() >= 80);
    place.until("all is recorded", || {
        status = apart.status();
        status["pending"] == 0 && status["store_error"].is_null()
    });
    let mut ids = place.lines("ids.log");
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), place.lines("ids.log").len()), (80, 80));
    let mut apart = apart;
    apart.run(r#"exec "$@""#, &["stop"]).expect(0);
    assert!(apart.poller.ended().success());
    println!("c119: {} of 80 fitted on the disk", delivered.len());
}

/// Given a full disk, when `--once` is run, then it does not wait for room but ends, says why and
/// exits 1; run again with room, it carries on, and each delivery comes once (R3.5, C119).
#[test]
fn c119_one_cycle_on_a_full_disk_ends() {
    if !can_mount("c119") {
        return;
    }
    let place = Place::new(LOG);
    fs::create_dir(place.state()).expect("new");
    for number in 1..=40 {
        let mut item = item(number, &[]);
        item["body"] = "x".repeat(9000).into();
        place.item_file(number, &item);
    }
    let script = r#"mount -t tmpfs -o size=128k,mode=700 tmpfs state && { timeout 30 "$@"; echo $? > code; wc -l < ids.log > fitted
        mount -o remount,size=16m state && exec "$@"; }"#;
    let mut command = in_namespace(&place, script, &["start", "--once", "-q"]);
    let said = Answer::of(command.output().expect("it starts")).expect(0);
    assert_eq!(place.lines("code"), ["1"], "{}", said.stderr);
    assert!(said.stderr.contains("no space left"), "{}", said.stderr);
    assert_ne!(place.lines("fitted"), ["40"], "the disk was not full");
    let mut ids = place.lines("ids.log");
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), place.lines("ids.log").len()), (40, 40));
}

/// Given records, or all of the state directory, that become read-only while the poller runs, when
/// news comes, then it is not delivered, `status` says why, and it is once they can be
/// written again (R3.5, C124).
#[test]
fn c124_a_ledger_that_becomes_read_only_stops_deliveries_until_it_is_not() {
    if !can_mount("c124") {
        return;
    }
    for what in ["state/items", "state"] {
        let place = Place::new(LOG);
        place.item(1, 0);
        let mut apart = Apart::start(&place, r#"exec "$@""#);
        place.until("it works", || place.lines("ids.log").len() == 1);
        place.until("that is recorded", || apart.status()["pending"] == 0);
        let read_only = format!("mount --bind {what} {what} && mount -o remount,bind,ro {what}");
        apart.run(&read_only, &[]).expect(0);
        place.item(2, 0);
        place.item(1, 1);
        place.until("it says so", || {
            let error = apart.status()["store_error"].clone();
            error.as_str().is_some_and(|e| e.contains("read-only"))
        });
        // Two cycles and more, and still nothing.
        let since = Instant::now();
        place.until("it has tried again", || {
            since.elapsed() > Duration::from_secs(3)
        });
        assert_eq!(place.lines("ids.log").len(), 1, "{what}");
        apart.run(&format!("umount {what}"), &[]).expect(0);
        place.until("it goes on", || place.lines("ids.log").len() >= 3);
        place.until("all is well", || {
            let status = apart.status();
            status["store_error"].is_null() && status["pending"] == 0
        });
        apart.run(r#"exec "$@""#, &["stop"]).expect(0);
        assert!(apart.poller.ended().success());
        place.once().expect(0);
        assert_eq!(place.lines("ids.log").len(), 3, "{what}: {}", place.story());
    }
}
