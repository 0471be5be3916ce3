//! What people do with the sessions, their panes and the server, and how they set things up.

use super::world::{World, able, logger, pastes};
use crate::world::program::children;
use serde_json::Value;
use std::fs;
use std::process::Command;

fn until_arrived(world: &World, number: u64, count: usize) {
    let name = format!("{count} arrived at {number}");
    world.place.until(&name, || {
        pastes(&world.keys(number)).is_ok_and(|p| p.len() >= count)
    });
}

/// What `show --json` says of an item's session.
fn shown(world: &World, number: u64) -> Value {
    let item = format!("dir:inbox#{number}");
    let said = world.place.run(&["show", &item, "--json"]).expect(0).stdout;
    let said: Value = serde_json::from_str(&said).expect("JSON");
    said["sessions"][0].clone()
}

/// C063: Given agents that left a shell behind which was started with options and words for them;
/// when a comment that looks like commands arrives; then it is not typed into the shell.
#[test]
fn c063_no_shell_left_behind_is_typed_into_whatever_its_options() {
    if !able() {
        return;
    }
    for left in ["bash --rcfile /dev/null", "bash -O extglob", "sh -s one"] {
        let mut settings = logger();
        let run = settings["command"][2].as_str().expect("a script");
        let run = run.replace("exec python3", "python3");
        settings["command"][2] = format!("{run}; cd DIR; exec {left}").into();
        let world = World::new(settings);
        world.item(7, &[]);
        world.once();
        until_arrived(&world, 7, 1);
        let (_, pid, _) = world.server.agent(7).expect("the agent");
        let [(agent, _)] = children(pid)[..] else {
            panic!("one child: {:?}", children(pid))
        };
        let ended = Command::new("kill").arg(agent.to_string()).status();
        assert!(ended.expect("kill").success());
        let words = || fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let shell = left.replace(' ', "\0") + "\0";
        world.place.until("a shell is left", || words() == shell);
        world.item(7, &["touch pwned\ntouch pwned"]);
        world.once();
        until_arrived(&world, 7, 2);
        let screen = world.server.say(&["capture-pane", "-p", "-t", "%0"]);
        assert!(!screen.contains("untrusted"), "{left}: {screen}");
        assert!(!world.place.path("pwned").exists(), "{left}");
    }
}

/// C062: Given a hook of somebody's that opens a pane, which gets the focus, in each new session; when
/// an item is opened; then its agent is known by its own pane, and nothing is typed into the other.
#[test]
fn c062_a_pane_that_a_hook_opens_is_not_the_agents() {
    if !able() {
        return;
    }
    let world = World::logging();
    world.item(7, &[]);
    world.once();
    let theirs = world.place.path("theirs");
    let open = format!("split-window \"cat > '{}'\"", theirs.display());
    let hook = ["set-hook", "-g", "after-new-session", &open];
    assert!(world.server.run(&hook).status.success());
    world.item(8, &["one"]);
    world.once();
    until_arrived(&world, 8, 2);
    world.place.until("theirs is there", || theirs.exists());
    assert_eq!(fs::read(&theirs).expect("their file"), b"");
    assert_eq!(world.pasted(8).len(), 2);
}

/// Given a session that somebody looks at through another of the same windows; when there is room for
/// one more agent by `max_sessions`; then it gets its session: one agent counts once.
#[test]
fn an_agent_seen_in_two_sessions_counts_once() {
    if !able() {
        return;
    }
    let mut settings = logger();
    settings["max_sessions"] = 2.into();
    let world = World::new(settings);
    world.item(7, &[]);
    world.once();
    let view = ["new-session", "-d", "-t", "inbox~7", "-s", "a|view"];
    assert!(world.server.run(&view).status.success());
    world.item(8, &[]);
    world.item(7, &["one"]);
    world.once();
    until_arrived(&world, 8, 1);
    until_arrived(&world, 7, 2);
    world.item(9, &[]);
    world.place.once();
    assert!(world.last_reason().contains("max_sessions"));
}

/// C071: Given a session that somebody renamed, and a note about it that is gone; when the next event comes;
/// then `show` tells the command that leads there.
#[test]
fn c071_show_leads_to_a_session_that_was_renamed() {
    if !able() {
        return;
    }
    let world = World::logging();
    world.item(7, &[]);
    world.once();
    let before = shown(&world, 7);
    assert_eq!(before["session"], "inbox~7");
    let name = "it's | mine now";
    world
        .server
        .run(&["rename-session", "-t", "=inbox~7:", name]);
    world.item(7, &["one"]);
    world.once();
    until_arrived(&world, 7, 2);
    let mut wanted = before.clone();
    wanted["session"] = name.into();
    wanted["attach"] = shown(&world, 7)["attach"].clone();
    assert_eq!(shown(&world, 7), wanted);
    let attach = wanted["attach"].as_str().expect("a command");
    // Without a terminal it can be had by `has-session` in the place of `attach`.
    let has = attach.replace(" attach ", " has-session ");
    let found = Command::new("sh").args(["-c", &has]).status();
    assert!(found.expect("sh").success(), "{has}");
    let note = world.place.state().join("runs/inbox~7/agent/session.json");
    fs::remove_file(&note).expect("it is there");
    world.item(7, &["one", "two"]);
    world.once();
    until_arrived(&world, 7, 3);
    assert_eq!(shown(&world, 7)["pane"], wanted["pane"]);
}

/// Given directories with names that tmux would read as formats; when agents are started there; then
/// each runs where the config says.
#[test]
fn the_command_runs_in_its_workdir_whatever_that_is_called() {
    if !able() {
        return;
    }
    for name in ["F#Sharp", "a#[b", "x#(touch pwned)", "it's $HOME; 50%d;"] {
        let mut settings = logger();
        settings["workdir"] = format!("DIR/{name}").into();
        let world = World::new(settings);
        let dir = world.place.path(name);
        fs::create_dir(&dir).expect("a directory");
        world.item(7, &[]);
        world.once();
        until_arrived(&world, 7, 1);
        let (_, pid, _) = world.server.agent(7).expect("the agent");
        let cwd = fs::read_link(format!("/proc/{pid}/cwd")).expect("ours");
        assert_eq!(cwd, fs::canonicalize(&dir).expect("it is there"));
        assert!(fs::read_dir(&dir).expect("ours").next().is_none());
    }
}

/// Given a `tmux` that does not answer, one that says no version, a socket's directory that leads
/// nowhere, and a file in the socket's place; when the config is checked; then it is said, and soon.
#[test]
fn check_does_not_hang_where_tmux_does() {
    if !able() {
        return;
    }
    let world = World::logging();
    let place = &world.place;
    fs::create_dir(place.path("bin")).expect("a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    for (script, wanted) in [
        ("exec sleep 100", "sink 'agent': tmux does not answer"),
        ("exit 3", "sink 'agent': tmux does not say which version"),
    ] {
        place.script("bin/tmux", &format!("#!/bin/sh\n{script}\n"));
        let mut check = place.command(&["check"]);
        check.env("PATH", format!("{}:{path}", place.path("bin").display()));
        let said = check.output().expect("the program starts");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains(wanted), "{said}");
    }
    std::os::unix::fs::symlink("/nowhere/at/all", place.path("link")).expect("a link");
    fs::create_dir(place.path("own")).expect("a directory");
    place.write("own/s", "");
    for (socket, wanted) in [
        ("link/s", "link: no such file or directory"),
        ("own/s", "own/s is not a socket"),
    ] {
        let mut settings = logger();
        settings["socket"] = socket.into();
        world.configure(settings);
        let said = place.run(&["check"]).expect(1).stdout;
        assert!(
            said.contains("sink 'agent', socket: ") && said.contains(wanted),
            "{said}"
        );
    }
}
