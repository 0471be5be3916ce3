//! The directory provider on real directories.
#![allow(clippy::disallowed_methods, reason = "tests")]

use super::*;
use crate::engine::item::{Kind, Sighting, State};
use crate::engine::time::Time;
use crate::providers::Gone;
use crate::scratch::Scratch;
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::SystemTime;

/// A directory of one test, and what was heard of it last.
struct World {
    root: Scratch,
    inbox: PathBuf,
    cursor: Option<Value>,
    heard: Vec<Heard>,
}

struct Ear<'a>(&'a mut Vec<Heard>);

impl Out for Ear<'_> {
    fn tell(&mut self, heard: Heard) -> Result<(), Gone> {
        self.0.push(heard);
        Ok(())
    }
}

struct Deaf;

impl Out for Deaf {
    fn tell(&mut self, _: Heard) -> Result<(), Gone> {
        Err(Gone)
    }
}

impl World {
    fn new() -> World {
        let root = Scratch::new();
        let inbox = root.join("inbox");
        fs::create_dir(&inbox).expect("a writable temp dir");
        World {
            root,
            inbox,
            cursor: None,
            heard: Vec::new(),
        }
    }

    fn write(&self, name: &str, text: impl ToString) {
        fs::write(self.inbox.join(name), text.to_string()).expect("written");
    }

    /// Lists `later` than now, by which time every file has settled.
    fn list(&mut self) -> Listing {
        self.list_after(Duration::from_secs(60))
    }

    fn list_after(&mut self, later: Duration) -> Listing {
        self.heard.clear();
        let ask = Ask {
            cursor: self.cursor.clone(),
            watch_from: None,
            now: Time::from(SystemTime::now() + later),
            ..Ask::default()
        };
        let path = self.inbox.clone();
        let mut provider = DirProvider::new("inbox", Dir { path });
        let listing = provider.list(&ask, &mut Ear(&mut self.heard));
        if let Listing::Complete(complete) = &listing {
            self.cursor = Some(complete.cursor.clone());
        }
        listing
    }

    /// Lists, and gives the numbers there; `None` if some are not known.
    fn present(&mut self) -> Option<Vec<u64>> {
        match self.list() {
            Listing::Complete(complete) => match complete.coverage {
                Coverage::Everything { present } => Some(present),
                Coverage::Changes { .. } => None,
            },
            Listing::Cut(cut) => panic!("cut: {}", cut.reason),
        }
    }

    fn sightings(&self) -> Vec<&Sighting> {
        let told = self.heard.iter().filter_map(|heard| match heard {
            Heard::Sighting(sighting) => Some(&**sighting),
            _ => None,
        });
        told.collect()
    }

    fn numbers(&self) -> Vec<u64> {
        let told = self.sightings();
        told.iter().map(|s| s.item.item_ref.number).collect()
    }

    fn unreadable(&self) -> Vec<String> {
        let told = self.heard.iter().filter_map(|heard| match heard {
            Heard::Unreadable { what, reason } => Some(format!("{what}: {reason}")),
            _ => None,
        });
        told.collect()
    }
}

fn item(number: u64) -> Value {
    json!({"number": number, "author": "octocat", "state": "open"})
}

#[test]
fn an_item_file_says_all_there_is_to_an_item() {
    let mut world = World::new();
    world.write(
        "7.json",
        json!({
            "number": 7, "title": "T", "body": "B", "author": "octocat", "state": "merged",
            "labels": ["auto"], "url": "https://x.test/7", "kind": "pull_request", "bot": true,
            "author_association": "MEMBER", "unknown": [1], "created_at": "2026-08-05T10:00:00Z",
            "labelled_at": "2026-08-05T11:00:00Z", "closed_at": "2026-08-05T12:00:00Z",
            "comments": [
                {"id": "a.1", "author": "sam", "body": "C", "created_at": "2026-08-05T10:05:00+02:00", "url": "u"},
                {"id": 2, "author": null, "body": null},
            ],
        }),
    );
    assert_eq!(world.present(), Some(vec![7]));
    let sightings = world.sightings();
    let Sighting { item, comments } = sightings[0];
    let time = |t: &str| t.parse::<Time>().ok();
    assert_eq!(item.item_ref.to_string(), "dir:inbox#7");
    assert_eq!((item.title.as_str(), item.body.as_str()), ("T", "B"));
    assert_eq!((item.kind, item.state), (Kind::PullRequest, State::Merged));
    assert_eq!(item.author.login.as_deref(), Some("octocat"));
    assert_eq!(item.author.association.as_deref(), Some("MEMBER"));
    assert!(item.author.bot);
    assert_eq!(item.labels, ["auto"]);
    assert_eq!(item.url.as_deref(), Some("https://x.test/7"));
    assert_eq!(item.created_at, time("2026-08-05T10:00:00Z"));
    assert_eq!(item.labelled_at, time("2026-08-05T11:00:00Z"));
    assert_eq!(item.closed_at, time("2026-08-05T12:00:00Z"));
    assert_eq!(Some(comments[0].created_at), time("2026-08-05T08:05:00Z"));
    assert_eq!(
        (comments[0].id.as_str(), comments[0].body.as_str()),
        ("a.1", "C")
    );
    assert_eq!(comments[1].id, "2");
    assert_eq!(comments[1].author.login, None);
    let mtime = fs::metadata(world.inbox.join("7.json")).and_then(|m| m.modified());
    assert_eq!(
        comments[1].created_at,
        Time::from(mtime.expect("the file has a time"))
    );
}

/// Given odd files among good ones (C001, C005, C008), when they are listed,
/// then the good ones are told and each odd one is reported with its reason.
#[test]
fn c005_odd_files_never_block_their_neighbours() {
    let mut world = World::new();
    for (name, text) in [
        (
            "a",
            r#"{"number":1,"author":null,"state":"open","title":null,"labels":null}"#,
        ),
        ("b", r#"{"number":2,"author":"o","state":"archived"}"#),
        ("c", r#"{"number":3,"state":"open"}"#),
        ("d", r#"{"number":4,"author":"o"}"#),
        ("e", r#"{"number":5,"author":7,"state":"open"}"#),
        (
            "f",
            r#"{"number":6,"author":"o","state":"open","labels":"auto"}"#,
        ),
        (
            "g",
            r#"{"number":7,"author":"o","state":"open","created_at":"soon"}"#,
        ),
        (
            "h",
            r#"{"number":8,"author":"o","state":"open","kind":"epic"}"#,
        ),
        (
            "i",
            r#"{"number":9,"author":"o","state":"open","body":"\ud83d!"}"#,
        ),
        (
            "j",
            "\u{feff}{\"number\":10,\"author\":\"o\",\"state\":\"open\"}\r\n",
        ),
    ] {
        world.write(&format!("{name}.json"), text);
    }
    assert_eq!(world.present(), Some((1..=10).collect()));
    assert_eq!(world.numbers(), [1, 9, 10]);
    assert_eq!(world.sightings()[1].item.body, "\u{fffd}!");
    let reports = world.unreadable();
    let wanted = [
        "b.json: its \"state\" is \"archived\"",
        "c.json: it has no \"author\"",
        "d.json: it has no \"state\"",
        "e.json: its \"author\" is not a text",
        "f.json: its \"labels\" are not a list of texts",
        "g.json: its \"created_at\": 'soon' is not a time",
        "h.json: its \"kind\" is \"epic\"",
    ];
    assert_eq!(reports.len(), wanted.len(), "{reports:?}");
    for (report, wanted) in reports.iter().zip(wanted) {
        assert!(report.starts_with(wanted), "{report}");
    }
}

#[test]
fn a_file_without_a_number_leaves_open_what_is_there() {
    for text in [
        "{\"state\":\"open\"}",
        "{\"number\":0}",
        "{\"number\":\"7\"}",
        "{\"number\":1.5}",
        "[]",
        "x",
    ] {
        let mut world = World::new();
        world.write("1.json", item(1));
        world.write("new.json", text);
        assert_eq!(world.present(), None, "{text}");
        assert_eq!(world.numbers(), [1]);
        assert_eq!(world.unreadable().len(), 1);
    }
}

/// Given a known item whose file is written anew in two steps (C138), when it
/// is listed in between, then that is no change and no end of the item, and
/// what the file says once it is whole is told.
#[test]
fn c138_half_a_file_is_no_change() {
    let mut world = World::new();
    world.write("7.json", item(7));
    assert_eq!(world.present(), Some(vec![7]));
    for half in ["", "{\"number\": 7, \"title\": \"Start with the bo"] {
        world.write("7.json", half);
        for _ in 0..3 {
            assert_eq!(world.present(), Some(vec![7]));
            assert_eq!(world.numbers(), [0; 0]);
            let reports = world.unreadable();
            assert!(
                reports[0].starts_with("7.json: it is not whole JSON yet"),
                "{reports:?}"
            );
        }
    }
    world.write("7.json", item(7));
    assert_eq!(world.present(), Some(vec![7]));
    assert_eq!(world.numbers(), [7]);
}

/// Given nothing new, when a directory is listed again, then nothing is read
/// (what is read is told), and the cursor is equal, so that nothing is written.
#[test]
fn an_idle_listing_tells_nothing_and_moves_nothing() {
    let mut world = World::new();
    for n in 1..=20 {
        world.write(&format!("{n}.json"), item(n));
    }
    world.list();
    assert_eq!(
        world.numbers(),
        (1..=20).collect::<Vec<_>>(),
        "in order of number"
    );
    let cursor = world.cursor.clone();
    for _ in 0..2 {
        assert_eq!(world.present(), Some((1..=20).collect()));
        assert_eq!(world.heard, []);
        assert_eq!(world.cursor, cursor);
    }
    world.write("7.json", item(7));
    world.list();
    assert_eq!(world.numbers(), [7]);
    fs::remove_file(world.inbox.join("8.json")).expect("there");
    assert_eq!(world.present().map(|p| p.len()), Some(19));
    assert_eq!(world.heard, []);
}

/// Given a file changed a moment ago, when it is listed, then it is read once
/// more, because a second change in the same tick would not show.
#[test]
fn a_file_that_may_still_change_is_read_again() {
    let mut world = World::new();
    world.write("7.json", item(7));
    for _ in 0..2 {
        world.list_after(Duration::ZERO);
        assert_eq!(world.numbers(), [7]);
    }
    world.list();
    assert_eq!(world.numbers(), [7]);
    world.list();
    assert_eq!(world.heard, []);
}

/// Given two files with one number, when they are listed, then both are
/// reported and neither is used, and once one is gone the other is told.
#[test]
fn of_two_files_with_one_number_neither_is_used() {
    let mut world = World::new();
    world.write("a.json", item(7));
    world.list();
    world.write("b.json", item(7));
    world.write("c.json", item(8));
    for expected in [vec![8], vec![]] {
        assert_eq!(world.present(), Some(vec![7, 8]));
        assert_eq!(world.numbers(), expected);
        let why = "number 7 is that of a.json and b.json; none of them is used";
        assert_eq!(
            world.unreadable(),
            [format!("a.json: {why}"), format!("b.json: {why}")]
        );
    }
    fs::remove_file(world.inbox.join("a.json")).expect("there");
    assert_eq!(world.present(), Some(vec![7, 8]));
    assert_eq!(world.numbers(), [7]);
    assert_eq!(world.unreadable(), [""; 0]);
}

#[test]
fn an_odd_comment_costs_only_itself() {
    let mut world = World::new();
    let mut seven = item(7);
    seven["comments"] = json!([
        {"id": "1"},
        {"id": "../x"},
        {"id": "1"},
        {"author": "o"},
        "text",
        {"id": "2", "created_at": "soon"},
        {"id": "3", "body": 7},
        {"id": "-4"},
        {"id": 5},
    ]);
    world.write("7.json", &seven);
    assert_eq!(world.present(), Some(vec![7]));
    let ids: Vec<String> = world.sightings()[0]
        .comments
        .iter()
        .map(|c| c.id.clone())
        .collect();
    assert_eq!(ids, ["1", "-4", "5"]);
    let reports = world.unreadable();
    assert_eq!(reports.len(), 6, "{reports:?}");
    assert!(reports[0].starts_with("7.json comment 2: its \"id\" \"../x\" is not"));
    assert!(reports[1].starts_with("7.json comment 3: its \"id\" \"1\" is that of an earlier"));
    world.list();
    assert_eq!(world.heard, [], "reported once per change of the file");
    seven["comments"] = json!("none");
    world.write("7.json", &seven);
    world.list();
    assert_eq!(
        world.unreadable(),
        ["7.json: its \"comments\" are not a list"]
    );
}

/// Given a FIFO, a directory, hidden and other files, when they are listed,
/// then none is an item and nothing hangs; a symlink is what it leads to.
#[test]
fn only_regular_json_files_are_items() {
    let mut world = World::new();
    for name in [
        ".7.json",
        "7.json~",
        "7.json.tmp",
        "7.JSON",
        "json",
        ".json",
    ] {
        world.write(name, item(7));
    }
    fs::create_dir(world.inbox.join("dir.json")).expect("made");
    let fifo = world.inbox.join("fifo.json");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo runs").success());
    assert_eq!(world.present(), Some(vec![]));
    assert_eq!(world.heard, []);

    let target = world.root.join("elsewhere");
    fs::write(&target, item(8).to_string()).expect("written");
    std::os::unix::fs::symlink(&target, world.inbox.join("link.json")).expect("linked");
    assert_eq!(world.present(), Some(vec![8]));
    assert_eq!(world.numbers(), [8]);
    fs::write(
        &target,
        json!({"number": 8, "author": null, "state": "closed"}).to_string(),
    )
    .expect("written");
    world.list();
    assert_eq!(world.sightings()[0].item.state, State::Closed);
    fs::remove_file(&target).expect("there");
    assert_eq!(
        world.present(),
        Some(vec![8]),
        "it cannot be told whether it is gone"
    );
    assert_eq!(world.unreadable(), ["link.json: it is not there any more"]);

    let odd = std::ffi::OsStr::from_bytes(b"\xff.json");
    fs::write(world.inbox.join(odd), item(9).to_string()).expect("written");
    assert_eq!(world.present(), None);
    assert!(
        world
            .unreadable()
            .contains(&"\u{fffd}.json: its name is not UTF-8".to_string())
    );
}

#[test]
fn a_file_larger_than_the_limit_is_reported_and_not_read() {
    let mut world = World::new();
    let file = fs::File::create(world.inbox.join("7.json")).expect("made");
    file.set_len((64 << 20) + 1).expect("sparse");
    assert_eq!(world.present(), None);
    assert_eq!(world.unreadable(), ["7.json: it is larger than 64 MiB"]);
}

/// Given a directory that is not there, or that was replaced by an empty one (a
/// disk that is not mounted), when it is listed, then the listing is cut and
/// nothing is concluded.
#[test]
fn r4_2_a_directory_that_went_away_is_not_an_empty_one() {
    let mut world = World::new();
    world.write("7.json", item(7));
    world.list();
    let away = world.root.join("away");
    fs::rename(&world.inbox, &away).expect("renamed");
    let Listing::Cut(cut) = world.list() else {
        panic!("complete without a directory")
    };
    assert!(cut.reason.starts_with("cannot list /"), "{}", cut.reason);

    fs::create_dir(&world.inbox).expect("made");
    world.write("8.json", item(8));
    let Listing::Cut(cut) = world.list() else {
        panic!("complete in another directory")
    };
    assert!(
        cut.reason.contains("is another directory than before"),
        "{}",
        cut.reason
    );
    assert_eq!(world.heard, []);

    // A directory that holds a known file is the same one restored.
    world.write("7.json", item(7));
    assert_eq!(world.present(), Some(vec![7, 8]));
    // The same directory may be emptied.
    fs::remove_file(world.inbox.join("7.json")).expect("there");
    fs::remove_file(world.inbox.join("8.json")).expect("there");
    assert_eq!(world.present(), Some(vec![]));

    fs::remove_dir(&world.inbox).expect("empty");
    fs::write(&world.inbox, "a file").expect("written");
    assert!(matches!(world.list(), Listing::Cut(_)));
}

#[test]
fn a_listing_nobody_listens_to_is_cut() {
    let world = World::new();
    world.write("7.json", item(7));
    let ask = Ask {
        cursor: Some(json!("a cursor of another kind")),
        watch_from: None,
        now: Time::ZERO,
        ..Ask::default()
    };
    let path = world.inbox.clone();
    let listing = DirProvider::new("inbox", Dir { path }).list(&ask, &mut Deaf);
    assert!(matches!(listing, Listing::Cut(_)));
}
