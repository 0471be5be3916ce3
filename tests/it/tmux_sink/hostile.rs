//! What people write is only text, however it is written and however long it is.

use super::world::{World, able, case, case_body, pastes};
use crate::world::program::{scaled, seed};
use serde_json::Value;

fn nothing_but_text(text: &str) {
    let bad = text
        .chars()
        .find(|c| c.is_control() && !matches!(c, '\n' | '\t'));
    assert_eq!(bad, None, "{text:?}");
}

/// C049, C051, C063, R7.3: Given comments with the end of a paste and control codes of every kind in
/// them; when they are delivered; then each arrives as one text, nothing is typed beside it, and
/// the agent is neither interrupted nor sent an end of file.
#[test]
fn c049_c051_hostile_comments_arrive_as_text() {
    if !able() {
        return;
    }
    let bodies: Vec<String> = [
        "C049-comment.json",
        "C051-comment.json",
        "C063-comment.json",
    ]
    .map(case_body)
    .to_vec();
    let all: Vec<&str> = bodies.iter().map(String::as_str).collect();
    let fast = serde_json::json!({ "enter_seconds": 0.05 });
    let world = World::fake("", &fast);
    world.item(7, &all);
    world.once();
    let place = &world.place;
    place.until("all were submitted", || world.submitted(7).len() == 4);
    let said = world.said(7);
    assert!(said.iter().all(|s| s["submitted"].is_string()), "{said:?}");
    let texts = world.submitted(7);
    for text in &texts {
        nothing_but_text(&text.replace('\r', "\n"));
    }
    assert!(texts[1].contains("Please look at this:[201~touch pwned and thanks"));
    assert!(
        texts[2].contains(
            "one201~touch pwned twothreefourfivesixseveneightnine\r\ttab and newline stay"
        )
    );
    assert!(texts[3].contains("\rtouch pwned\r\r`touch pwned-too` ; touch pwned-three\r"));
    assert!(!place.path("pwned").exists());
    let succeeded = place.entries("dispatch.succeeded");
    assert_eq!(succeeded.len(), 4, "each counts once: {succeeded:?}");
}

/// C055: Given a comment of the greatest length a tracker takes, and one of 200 KB in UTF-8; when
/// they are delivered under a locale that knows no UTF-8; then both arrive whole, to the last
/// line, and Enter comes after them.
#[test]
fn c055_long_comments_arrive_whole() {
    if !able() {
        return;
    }
    let made = std::process::Command::new("python3")
        .args([
            concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/fixtures/cases/C055-big-comments.py"
            ),
            "one",
        ])
        .output()
        .expect("python3 starts");
    let made: Value = serde_json::from_slice(&made.stdout).expect("JSON");
    let one = made[0]["body"].as_str().expect("a body");
    assert_eq!(one.len(), 65_536);
    let two = format!("{}\nLAST LINE", "é漢🐟\n".repeat(20_000));
    assert!(two.len() > 200_000);
    let world = World::logging();
    world.item(7, &[one, &two]);
    let place = &world.place;
    let mut start = place.command(&["start", "--once", "-q"]);
    let done = start.env("LC_ALL", "C").env_remove("LANG").output();
    assert!(done.expect("the program starts").status.success());
    place.until("all arrived", || {
        pastes(&world.keys(7)).is_ok_and(|p| p.len() == 3)
    });
    let texts = world.pasted(7);
    for (text, body) in [(&texts[1], one), (&texts[2], two.as_str())] {
        assert!(
            text.contains(&format!("\n\n{body}\n----- ")),
            "{} bytes",
            text.len()
        );
    }
}

/// C054: Given titles whose multi-byte characters stand at every offset; when prompts are made of
/// them; then nothing panics and each title is in its prompt.
#[test]
fn c054_titles_of_every_kind_fit_into_a_prompt() {
    let issues: Value = serde_json::from_str(&case("C054-issues.json")).expect("JSON");
    let issues = issues.as_array().expect("a list");
    assert!(issues.len() >= 64);
    for issue in issues {
        let payload = serde_json::json!({ "event": "opened", "item": issue });
        let template = idempoll::sinks::tmux::prompt::BUILT_IN;
        let text = idempoll::sinks::tmux::prompt::render(template, &payload.to_string());
        let text = text.expect("a prompt");
        nothing_but_text(&text);
        // What has no width is shown, not lost.
        let title: String = issue["title"]
            .as_str()
            .expect("a title")
            .split('\u{200d}')
            .next()
            .unwrap_or_default()
            .into();
        assert!(text.contains(&title), "{title}");
    }
}

/// Text made of everything that could get out of a paste.
fn hostile(state: &mut u64) -> String {
    let mut random = move || {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) as usize
    };
    const PIECES: [&str; 24] = [
        "\u{1b}[201~",
        "\u{1b}[200~",
        "\u{9b}201~",
        "\r",
        "\n",
        "\r\n",
        "\0",
        "\u{3}",
        "\u{4}",
        "\u{1a}",
        "\u{7f}",
        "touch pwned",
        "\u{1b}",
        "[201~",
        ";",
        "\\;",
        "'",
        "\"",
        "#{pane_id}",
        "$(touch pwned)",
        "`touch pwned`",
        "\u{1b}]52;c;cHduZWQ=\u{7}",
        "\u{202e}",
        "\u{e0041}",
    ];
    let mut text = String::new();
    for _ in 0..random() % 60 {
        match random() % 4 {
            0 => text.push(char::from_u32((random() % 0x3_0000) as u32).unwrap_or('x')),
            1 => text.push(char::from_u32((random() % 0xa0) as u32).unwrap_or('x')),
            _ => text.push_str(PIECES[random() % PIECES.len()]),
        }
    }
    // What a `;` at the very end does to tmux is well known.
    text + [";", "\\;", "\u{1b}[201~", "", "\r"][random() % 5]
}

/// R7.3: Given random text of control codes, escape sequences, ends of pastes, NULs, tmux formats and
/// trailing semicolons, and a line of 1 MB; when all of it is delivered; then each text stays
/// inside of its own paste, nothing else is typed, and nothing is executed.
#[test]
fn r7_3_no_text_gets_out_of_its_paste() {
    if !able() {
        return;
    }
    let first = seed();
    eprintln!("IDEMPOLL_SEED={first}");
    let mut state = first;
    let mut bodies: Vec<String> = (0..scaled(40)).map(|_| hostile(&mut state)).collect();
    bodies.push(format!("{}END", "x\u{1b}[201~".repeat(125_000)));
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    let world = World::new({
        let mut settings = super::world::logger();
        settings["submit_check"] = "none".into();
        settings
    });
    world.item(7, &bodies);
    world.once();
    let due = bodies.len() + 1;
    let place = &world.place;
    place.until("all arrived", || {
        pastes(&world.keys(7)).is_ok_and(|p| p.len() >= due)
    });
    let texts = world.pasted(7);
    assert_eq!(texts.len(), due);
    for (n, text) in texts.iter().enumerate() {
        nothing_but_text(text);
        let key = if n == 0 {
            "opened".into()
        } else {
            format!("comment/{n}")
        };
        assert_eq!(
            super::world::delivery_of(text),
            format!("dir:inbox#7/{key}")
        );
        let mark = text
            .split("the mark ")
            .nth(1)
            .and_then(|t| t.split_whitespace().next());
        let ends = format!("----- {} untrusted text ends", mark.expect("a mark"));
        assert!(text.ends_with(&ends), "{n}");
        assert_eq!(text.matches(&ends).count(), 1, "{n}");
    }
    assert!(texts[due - 1].contains("x[201~x[201~"));
    assert!(
        texts[due - 1].contains("END\n-----"),
        "the long line is whole"
    );
    for name in ["pwned", "state/pwned", "inbox/pwned"] {
        assert!(!place.path(name).exists());
    }
    let panes = world.server.say(&["list-panes", "-a"]);
    assert_eq!(panes.lines().count(), 1, "{panes}");
    assert_eq!(
        world.server.say(&["list-buffers", "-F", "#{buffer_name}"]),
        "idempoll-enter"
    );
}
