//! What agents do with what they are given: deaf, busy, in copy mode, with a human's draft.

use super::world::{World, able, fake, logger, pastes};
use serde_json::json;
use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn ids(texts: &[String]) -> Vec<String> {
    let lines = texts.iter().flat_map(|t| t.split('\r'));
    lines
        .filter_map(|l| l.strip_prefix("delivery: ").map(str::to_string))
        .collect()
}

/// C064: Given an agent that ignores Enter for 300 ms after a paste; when texts are delivered and Enter
/// comes later than that; then each is submitted, once.
#[test]
fn c064_enter_comes_after_an_agents_deaf_moment() {
    if !able() {
        return;
    }
    let world = World::fake("--deaf 300", &json!({ "enter_seconds": 2 }));
    world.item(7, &["one", "two"]);
    world.once();
    world
        .place
        .until("all were submitted", || world.submitted(7).len() >= 3);
    let texts = world.submitted(7);
    assert_eq!(
        ids(&texts),
        [
            "dir:inbox#7/opened",
            "dir:inbox#7/comment/1",
            "dir:inbox#7/comment/2"
        ]
    );
    assert_eq!(texts.len(), 3, "and nothing else");
}

/// Says yes when the fake agent's log has this delivery's text.
fn taken() -> serde_json::Value {
    json!([
        "sh",
        "-c",
        "grep -q \"delivery: $IDEMPOLL_DELIVERY_ID[^0-9]\" \"DIR/said/$IDEMPOLL_REF\""
    ])
}

/// C064: Given an agent that ignores Enter for longer than we wait, and a command that knows whether it
/// took the text; when texts are delivered; then Enter is pressed again until it did, and none is
/// pasted or submitted twice; also when the poller is killed while it waits.
#[test]
fn c064_enter_is_pressed_again_until_the_agent_took_it() {
    if !able() {
        return;
    }
    let world = World::fake("--deaf 3000", &json!({ "submit_check": taken() }));
    let place = &world.place;
    world.item(7, &["one"]);
    let poller = place.start();
    place.until("an Enter was ignored", || {
        world.said(7).iter().any(|s| s["ignored_enter"] == true)
    });
    assert_eq!(
        place.entries("dispatch.succeeded").len(),
        0,
        "a draft is no success"
    );
    poller.kill();
    world.once();
    let texts = world.submitted(7);
    assert_eq!(ids(&texts), ["dir:inbox#7/opened", "dir:inbox#7/comment/1"]);
    assert_eq!(texts.len(), 2, "{texts:?}");
}

/// C064: Given an agent that never takes what it is given; when a text is delivered; then that is a
/// failure in the end, retried by Enter alone, and never a success.
#[test]
fn c064_an_agent_that_never_takes_it_is_a_failure() {
    if !able() {
        return;
    }
    let world = World::fake("--deaf 3000000", &json!({ "submit_check": ["false"] }));
    let text = fs::read_to_string(world.place.path("idempoll.json")).expect("a config");
    let mut config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    config["max_retries"] = 1.into();
    world.place.configure(&config);
    world.item(7, &[]);
    let _poller = world.place.start();
    let gave_up = || world.place.entries("poll.gave_up").len() == 1;
    let taken = || !world.place.entries("dispatch.succeeded").is_empty();
    // It takes its time by itself: two tries of several Enters each.
    let ended = || gave_up() || taken();
    let longest = Duration::from_secs(180);
    world.place.until_within(longest, "it is given up", ended);
    assert!(gave_up(), "a draft is no success");
    assert!(
        world.last_reason().contains("submit_check says no"),
        "{}",
        world.last_reason()
    );
    assert_eq!(world.submitted(7).len(), 0);
    let (pane, ..) = world.server.agent(7).expect("it lives");
    let screen = world.server.say(&["capture-pane", "-p", "-t", &pane]);
    assert_eq!(screen.matches("[pasted").count(), 1, "{screen}");
}

/// C131, R7.4: Given a poller that has a token, a supervisor's socket and another tmux in its environment;
/// when `submit_check` is asked; then it finds which delivery and which pane it is about, and none of these.
#[test]
fn c131_r7_4_submit_check_is_told_of_the_delivery_and_no_secret() {
    if !able() {
        return;
    }
    let check = json!({ "submit_check": ["sh", "-c", "env > DIR/seen.env"] });
    let world = World::fake("", &check);
    let place = &world.place;
    world.know_a_token();
    world.item(7, &[]);
    let mut start = place.command(&["start", "--once", "-q"]);
    let not_for_it = [
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
        "TMUX",
        "TMUX_PANE",
        "MY_TOKEN",
    ];
    start
        .envs(not_for_it.map(|name| (name, "hunter2")))
        .env("PLAIN", "kept");
    assert!(start.output().is_ok());
    let seen = place.lines("seen.env");
    let (pane, ..) = world.server.agent(7).expect("the agent");
    for line in [
        "PLAIN=kept".to_string(),
        "IDEMPOLL_DELIVERY_ID=dir:inbox#7/opened".to_string(),
        "IDEMPOLL_EVENT=opened".to_string(),
        "IDEMPOLL_REF=dir:inbox#7".to_string(),
        "IDEMPOLL_ATTEMPT=1".to_string(),
        format!("IDEMPOLL_TMUX_PANE={pane}"),
        format!(
            "IDEMPOLL_TMUX_SOCKET={}",
            place.state().join("tmux/agent.sock").display()
        ),
    ] {
        assert!(seen.contains(&line), "{line} in {seen:?}");
    }
    let not = |line: &&String| not_for_it.iter().any(|name| line.starts_with(name));
    assert_eq!(seen.iter().find(not), None);
}

/// C065: Given an agent on whose input line half a thought stands; when a comment arrives; then
/// delivery waits, and the draft stays as it is, until the line is free again.
#[test]
fn c065_delivery_waits_for_a_draft() {
    if !able() {
        return;
    }
    let world = World::fake(
        "--prefill 'half a thought'",
        &json!({ "idle_text": "> ", "enter_seconds": 0.05 }),
    );
    let place = &world.place;
    world.item(7, &[]);
    let _poller = place.start();
    place.until("it waits", || world.last_reason().contains("idle_text"));
    assert_eq!(
        world.said(7),
        Vec::<serde_json::Value>::new(),
        "the draft is untouched"
    );
    let (pane, ..) = world.server.agent(7).expect("the agent");
    world.server.run(&["send-keys", "-t", &pane, "Enter"]);
    place.until("both were submitted", || world.submitted(7).len() == 2);
    let texts = world.submitted(7);
    assert_eq!(texts[0], "half a thought");
    assert!(
        texts[1].starts_with("idempoll: dir:inbox#7 is to be worked on."),
        "{}",
        texts[1]
    );
    assert!(place.entries("dispatch.failed").is_empty());
}

/// A person who looks at a session, with a terminal of their own.
struct Person(Child);

impl Person {
    fn attached(world: &World, command: &str) -> Person {
        let socket = world.place.state().join("tmux/agent.sock");
        let attach = format!("TERM=xterm tmux -u -S '{}' {command}", socket.display());
        let mut script = Command::new("script");
        script
            .args(["-qfc", &attach, "/dev/null"])
            .env_remove("TMUX");
        let child = script
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let person = Person(child.expect("script starts"));
        world.place.until("they are attached", || {
            !world.server.say(&["list-clients"]).is_empty()
        });
        person
    }

    fn types(&mut self, text: &str) {
        let stdin = self.0.stdin.as_mut().expect("a pipe");
        stdin.write_all(text.as_bytes()).expect("they look on");
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// C065: Given a person who types in the item's session, be it through another session that shows it; when a comment arrives and `quiet_seconds` are
/// asked for; then it waits until they have been quiet for so long.
#[test]
fn c065_delivery_waits_while_somebody_types() {
    if !able() {
        return;
    }
    let there = Command::new("script")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if !there.is_ok_and(|status| status.success()) {
        eprintln!("skipped: script is needed");
        return;
    }
    let world = World::fake("", &json!({ "quiet_seconds": 3600, "enter_seconds": 0.05 }));
    let place = &world.place;
    world.item(7, &[]);
    let _poller = place.start();
    place.until("it is opened: nobody looks on", || {
        world.submitted(7).len() == 1
    });
    // Through another session with the same windows.
    let mut person = Person::attached(&world, "new-session -t inbox~7 -s view");
    person.types("half a th");
    place.until("it is on the line", || {
        let (pane, ..) = world.server.agent(7).expect("the agent");
        world
            .server
            .say(&["capture-pane", "-p", "-t", &pane])
            .contains("half a th")
    });
    world.item(7, &["one"]);
    place.until("it waits", || {
        world.last_reason().contains("somebody is typing")
    });
    person.types("ought\r");
    place.until("their thought was submitted", || {
        world.submitted(7).len() == 2
    });
    drop(person);
    place.until("the comment was submitted", || {
        world.submitted(7).len() == 3
    });
    assert_eq!(world.submitted(7)[1], "half a thought");
    let mut person = Person::attached(&world, "attach -t '=inbox~7'");
    person.types("mine\r");
    place.until("theirs was submitted", || world.submitted(7).len() == 4);
    world.item(7, &["one", "two"]);
    place.until("it waits", || place.pending() == 1);
    drop(person);
    place.until("the other comment was submitted", || {
        world.submitted(7).len() == 5
    });
    assert!(place.entries("dispatch.failed").is_empty());
}

/// C066: Given an agent's pane in copy mode; when a comment arrives; then it is submitted all the same;
/// and while the pane's input is switched off, it waits.
#[test]
fn c066_copy_mode_loses_nothing() {
    if !able() {
        return;
    }
    let world = World::fake("", &json!({ "enter_seconds": 0.05 }));
    let place = &world.place;
    world.item(7, &[]);
    world.once();
    place.until("it is opened", || world.submitted(7).len() == 1);
    let (pane, ..) = world.server.agent(7).expect("the agent");
    for (mode, n) in [("copy-mode", 2), ("clock-mode", 3)] {
        world.server.run(&[mode, "-t", &pane]);
        assert_eq!(
            world
                .server
                .say(&["display-message", "-p", "-t", &pane, "#{pane_in_mode}"]),
            "1"
        );
        let bodies = vec!["again"; n - 1];
        world.item(7, &bodies);
        world.once();
        place.until("it was submitted", || world.submitted(7).len() == n);
    }
    world.server.run(&["select-pane", "-d", "-t", &pane]);
    world.item(7, &["again", "again", "again"]);
    let _poller = place.start();
    place.until("it waits", || world.last_reason().contains("switched off"));
    world.server.run(&["select-pane", "-e", "-t", &pane]);
    place.until("it was submitted", || world.submitted(7).len() == 4);
    assert_eq!(ids(&world.submitted(7)).len(), 4);
}

/// Given a command that takes its prompt from a file; when an item is opened; then the file has the
/// text, nothing is pasted, and the next event is; and one that does its work and ends well is
/// delivered to, one that ends badly has failed.
#[test]
fn a_command_can_take_its_prompt_from_a_file() {
    if !able() {
        return;
    }
    let mut settings = logger();
    let run = settings["command"][2]
        .as_str()
        .expect("a script")
        .to_string();
    settings["command"] = json!([
        "sh",
        "-c",
        format!("cp \"$1\" DIR/prompt; {run}"),
        "sh",
        "{prompt_file}"
    ]);
    let world = World::new(settings.clone());
    let place = &world.place;
    world.item(7, &[]);
    world.once();
    let prompt = fs::read_to_string(place.path("prompt")).expect("the prompt");
    assert!(
        prompt.contains("\ndelivery: dir:inbox#7/opened\n"),
        "{prompt}"
    );
    assert_eq!(world.keys(7), b"");
    world.item(7, &["one"]);
    world.once();
    place.until("it arrived", || {
        pastes(&world.keys(7)).is_ok_and(|p| p.len() == 1)
    });
    assert_eq!(world.pasted(7).len(), 1);
    let mode = fs::metadata(place.path("state/runs/inbox~7/agent/1.prompt.txt")).expect("the file");
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777,
        0o600
    );

    let one_shot = |end: &str| json!({ "command": ["sh", "-c", format!("cat \"$1\" >> DIR/ran; {end}"), "sh", "{prompt_file}"], "ready_seconds": 30 });
    world.configure(one_shot("exit 0"));
    world.item(8, &[]);
    world.once();
    let ran = place.lines("ran").join("\n");
    assert_eq!(
        ran.matches("delivery: dir:inbox#8/opened").count(),
        1,
        "{ran}"
    );
    // Its end is no loss: neither of it nor of the server, which goes with its last session.
    let _ = world.server.run(&["kill-session", "-t", "=inbox~7"]);
    world.item(8, &["again"]);
    world.once();
    let ran = place.lines("ran").join("\n");
    assert_eq!(ran.matches("delivery: dir:inbox#8/").count(), 2, "{ran}");
    let warned = place.entries("poller.warning");
    let of_8 = warned.iter().filter(|e| e.to_string().contains("inbox#8"));
    assert_eq!(of_8.count(), 0, "{warned:?}");
    world.configure(one_shot("echo no luck; exit 3"));
    world.item(9, &[]);
    place.once().expect(1);
    assert!(
        world.last_reason().contains("(exit status 3): no luck"),
        "{}",
        world.last_reason()
    );
}

/// Given an agent that does not show `ready_text`; when something is due for it; then it waits, and
/// costs nothing, until it does.
#[test]
fn an_agent_is_given_nothing_before_it_is_ready() {
    if !able() {
        return;
    }
    let mut settings = logger();
    let run = settings["command"][2]
        .as_str()
        .expect("a script")
        .to_string();
    settings["command"][2] =
        format!("echo log in first; while [ ! -e DIR/in ]; do sleep 0.05; done; {run}").into();
    settings["ready_seconds"] = 0.3.into();
    let world = World::new(settings);
    let place = &world.place;
    world.item(7, &[]);
    let _poller = place.start();
    place.until("it waits", || {
        world.last_reason().contains("not ready within 0.3 s")
    });
    assert_eq!(world.keys(7), b"");
    place.write("in", "");
    place.until("it arrived", || {
        pastes(&world.keys(7)).is_ok_and(|p| p.len() == 1)
    });
    assert!(place.entries("dispatch.failed").is_empty());
    assert_eq!(world.server.agents().len(), 1);
}

/// Given a template of the operator's; when an event is delivered; then it is filled in, and a template
/// that is wrong by then delays the event instead of losing it.
#[test]
fn the_template_can_be_the_operators() {
    if !able() {
        return;
    }
    let world = World::fake(
        "",
        &json!({ "template_file": "t.txt", "enter_seconds": 0.05 }),
    );
    world.place.write("t.txt", "Look at {ref}: {untrusted}\n");
    world.item(7, &[]);
    world.once();
    world
        .place
        .until("it was submitted", || world.submitted(7).len() == 1);
    let text = world.submitted(7).remove(0);
    assert!(text.starts_with("Look at dir:inbox#7: ----- "), "{text}");
    assert!(text.contains("\rtitle: Item 7\r\rPlease.\r-----"), "{text}");
    world.place.write("t.txt", "nothing of it");
    world.item(7, &["one"]);
    world.place.once().expect(1);
    assert!(
        world.last_reason().contains("no {untrusted}"),
        "{}",
        world.last_reason()
    );
    world.configure(fake("", &json!({ "enter_seconds": 0.05 })));
    world.once();
    world
        .place
        .until("it was submitted", || world.submitted(7).len() == 2);
}
