//! Sessions: found again, never mistaken, outliving the poller, made again when they are lost.

use super::world::{Server, World, able, delivery_of, fake, logger, pastes};
use crate::world::program::{binary, children, lives};
use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Stdio};

fn arrived(world: &World, number: u64, count: usize) -> bool {
    pastes(&world.keys(number)).is_ok_and(|p| p.len() >= count)
}

fn until_arrived(world: &World, number: u64, count: usize) {
    world
        .place
        .until(&format!("{count} arrived at {number}"), || {
            arrived(world, number, count)
        });
}

/// C059: Given sessions for items 1 and 12, of which that of item 1 has died; when a comment on item 1
/// arrives; then nothing is typed into the session of item 12, and item 1 gets a session again.
#[test]
fn c059_a_session_is_not_found_by_the_beginning_of_its_name() {
    if !able() {
        return;
    }
    let world = World::logging();
    world.item(1, &[]);
    world.item(12, &[]);
    world.once();
    until_arrived(&world, 1, 1);
    until_arrived(&world, 12, 1);
    world.server.run(&["kill-session", "-t", "=inbox~1:"]);
    assert!(world.server.agent(1).is_none());
    world.item(1, &["for one"]);
    world.once();
    until_arrived(&world, 1, 2);
    assert_eq!(world.pasted(12).len(), 1);
    assert!(world.pasted(1)[1].contains("for one"));
    let warned = world.place.entries("poller.warning");
    let told = |e: &&Value| {
        e["reason"]
            .as_str()
            .is_some_and(|r| r.contains("dir:inbox#1 in 'agent' had ended"))
    };
    assert_eq!(warned.iter().filter(told).count(), 1, "{warned:?}");
}

/// C062: Given an item's session that a person split, with the focus in a pane of theirs; when a
/// comment arrives; then it goes to the agent's pane alone; and when the agent's pane is gone,
/// theirs is let alone and the agent gets a new session.
#[test]
fn c062_the_pane_with_the_focus_is_not_the_agents() {
    if !able() {
        return;
    }
    let world = World::logging();
    world.item(7, &[]);
    world.once();
    until_arrived(&world, 7, 1);
    let theirs = world.place.path("theirs");
    let typed = format!("cat > '{}'", theirs.display());
    let pane = world.server.say(&[
        "split-window",
        "-t",
        "=inbox~7:",
        "-P",
        "-F",
        "#{pane_id}",
        "sh",
        "-c",
        &typed,
    ]);
    assert_eq!(
        world
            .server
            .say(&["display-message", "-p", "-t", "=inbox~7:", "#{pane_id}"]),
        pane
    );
    world
        .place
        .until("their editor is there", || theirs.exists());
    world.item(7, &["one"]);
    world.once();
    until_arrived(&world, 7, 2);
    let (agent, ..) = world.server.agent(7).expect("the agent");
    world.server.run(&["kill-pane", "-t", &agent]);
    world.item(7, &["one", "two"]);
    world.once();
    until_arrived(&world, 7, 3);
    assert_eq!(
        fs::read(&theirs).expect("their file"),
        b"",
        "nothing was typed there"
    );
    let sessions = world
        .server
        .say(&["list-panes", "-a", "-F", "#{pane_id} #{session_name}"]);
    assert!(
        sessions.contains(&format!("{pane} inbox~7+0")),
        "{sessions}"
    );
    assert_eq!(world.pasted(7).len(), 3);
}

/// C063, R6.2: Given an agent that has ended and left a shell in its pane; when a comment that looks
/// like commands arrives; then it is not typed into the shell, no file appears, and it is
/// delivered to an agent started anew.
#[test]
fn c063_a_shell_left_behind_is_not_typed_into() {
    if !able() {
        return;
    }
    let mut settings = logger();
    let run = settings["command"][2]
        .as_str()
        .expect("a script")
        .replace("exec python3", "python3");
    settings["command"][2] = format!("{run}; cd DIR; exec sh -i").into();
    let world = World::new(settings);
    world.item(7, &[]);
    world.once();
    until_arrived(&world, 7, 1);
    let (pane, pid, _) = world.server.agent(7).expect("the agent");
    let [(agent, _)] = children(pid)[..] else {
        panic!("one child: {:?}", children(pid))
    };
    let ended = Command::new("kill").arg(agent.to_string()).status();
    assert!(ended.expect("kill").success());
    let words = || fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    world
        .place
        .until("a shell is left", || words() == "sh\0-i\0");
    world.item(7, &[&super::world::case_body("C063-comment.json")]);
    world.once();
    until_arrived(&world, 7, 2);
    assert!(lives(pid), "the shell is let alone");
    let screen = world.server.say(&["capture-pane", "-p", "-t", &pane]);
    assert!(!screen.contains("touch pwned"), "{screen}");
    for name in ["pwned", "pwned-too", "pwned-three"] {
        assert!(!world.place.path(name).exists());
    }
    let (anew, ..) = world.server.agent(7).expect("an agent");
    assert_ne!(anew, pane);
    assert_eq!(world.pasted(7).len(), 2);
}

/// C063: Given an agent that has ended, and one whose program does not exist; when something is
/// delivered; then nothing is pasted into a dead pane (which would end the server), the first is
/// started anew, and of the second the reason is told and the text not used up.
#[test]
fn c063_an_agent_that_ended_is_started_anew() {
    if !able() {
        return;
    }
    let world = World::logging();
    world.item(7, &[]);
    world.item(8, &[]);
    world.once();
    until_arrived(&world, 7, 1);
    until_arrived(&world, 8, 1);
    let server = world.server.pid();
    let (_, pid, _) = world.server.agent(7).expect("the agent");
    assert!(
        Command::new("kill")
            .args(["-s", "KILL", &pid.to_string()])
            .status()
            .expect("kill")
            .success()
    );
    world
        .place
        .until("it is dead", || world.server.agent(7).is_some_and(|a| a.2));
    world.item(7, &["one"]);
    world.once();
    until_arrived(&world, 7, 2);
    assert_eq!(world.server.pid(), server, "the server lives on");
    assert!(world.server.agent(8).is_some_and(|a| !a.2));

    world.configure(json!({ "command": ["no-such-agent"], "ready_seconds": 5 }));
    world.item(9, &[]);
    world.place.once().expect(1);
    let reason = world.last_reason();
    assert!(
        reason.contains("exit status 127") && reason.contains("no-such-agent"),
        "{reason}"
    );
    world.configure(logger());
    world.place.run(&["retry", "--all"]).expect(0);
    world.once();
    until_arrived(&world, 9, 1);
    assert_eq!(world.pasted(9).len(), 1);
}

/// C069, R2.7: Given two sessions, on a server the poller started; when the poller is stopped, is
/// interrupted by a Ctrl-C for its whole group, and is killed, and started again each time; then
/// server and agents live on, and what comes next goes to the same panes.
#[test]
fn c069_no_end_of_the_poller_ends_a_session() {
    if !able() {
        return;
    }
    let world = World::logging();
    let place = &world.place;
    world.item(1, &[]);
    world.item(2, &[]);
    let first = place.start();
    until_arrived(&world, 1, 1);
    until_arrived(&world, 2, 1);
    place.until("both are recorded", || place.pending() == 0);
    let agents = world.server.agents();
    let server = world.server.pid().expect("a server");
    // It has nothing of the poller: not its descriptors, not its session.
    let stat = fs::read_to_string(format!("/proc/{server}/stat")).expect("it lives");
    let session: Vec<&str> = stat[stat.rfind(')').expect("a name") + 2..]
        .split(' ')
        .collect();
    assert_eq!(
        session[3],
        server.to_string(),
        "it leads a session of its own"
    );
    for (_, to) in crate::world::program::descriptors(server) {
        let to = to.display().to_string();
        assert!(!to.contains(&place.dir.display().to_string()), "{to}");
    }
    place.run(&["stop"]).expect(0);
    drop(first);
    assert_eq!(world.server.agents(), agents);

    let mut by_group = place.shell("exec setsid \"$@\"", &["start"]);
    let mut second = place.spawn(by_group.stdout(Stdio::null()).stderr(Stdio::null()));
    place.until_up(&second);
    world.item(1, &["one"]);
    until_arrived(&world, 1, 2);
    let group = format!("-{}", second.pid());
    let sent = Command::new("kill")
        .args(["-s", "INT", "--", &group])
        .status();
    assert!(sent.expect("kill").success());
    second.ended();
    assert_eq!(world.server.agents(), agents);

    let third = place.start();
    world.item(2, &["two"]);
    until_arrived(&world, 2, 2);
    third.kill();
    let _fourth = place.start();
    world.item(1, &["one", "three"]);
    until_arrived(&world, 1, 3);
    place.until("all is recorded", || place.pending() == 0);
    assert_eq!(world.server.agents(), agents);
    assert_eq!(world.server.pid(), Some(server));
    assert_eq!((world.pasted(1).len(), world.pasted(2).len()), (3, 2));
}

/// C071: Given a poller with a temporary directory of its own; when `show` is asked elsewhere; then
/// the socket's path and a command are told that lead to the same session.
#[test]
fn c071_the_socket_does_not_depend_on_where_one_looks_from() {
    if !able() {
        return;
    }
    let world = World::logging();
    let place = &world.place;
    world.item(7, &[]);
    fs::create_dir(place.path("tmp")).expect("a directory");
    // Where a server would be that goes by the environment; it must end with the test too.
    let _stray = Server::at(place.path("tmp/agent.sock"));
    let mut start = place.command(&["start", "--once", "-q"]);
    start
        .env("TMPDIR", place.path("tmp"))
        .env("TMUX_TMPDIR", place.path("tmp"));
    start.env("TMUX", "/nowhere/default,1,0");
    assert!(start.output().expect("the program starts").status.success());
    until_arrived(&world, 7, 1);
    let shown = place.run(&["show", "dir:inbox#7"]).expect(0).stdout;
    let attach = shown
        .lines()
        .find_map(|l| l.strip_prefix("session in agent: "))
        .expect("the command");
    let shown: Value = serde_json::from_str(
        &place
            .run(&["show", "dir:inbox#7", "--json"])
            .expect(0)
            .stdout,
    )
    .expect("JSON");
    let session = &shown["sessions"][0];
    assert_eq!(
        session["socket"],
        place
            .state()
            .join("tmux/agent.sock")
            .to_str()
            .expect("ASCII")
    );
    assert_eq!(session["attach"], attach);
    let (pane, pid, _) = world.server.agent(7).expect("the agent");
    assert_eq!(
        (session["pane"].as_str(), session["pid"].as_u64()),
        (Some(&*pane), Some(u64::from(pid)))
    );
    // Without a terminal it can be had by `has-session` in the place of `attach`.
    let has = attach.replace(" attach ", " has-session ");
    let found = Command::new("sh")
        .args(["-c", &has])
        .env("TMUX_TMPDIR", "/var/empty")
        .status();
    assert!(found.expect("sh").success(), "{has}");
    assert!(attach.ends_with(" attach -t '=inbox~7'"), "{attach}");
}

/// C071: Given a poller that was killed after it had made a session and before it noted that; when the item's
/// next event comes; then the same session gets it, and `show` knows the way to it again.
#[test]
fn c071_a_session_that_was_not_noted_is_noted_with_the_next_event() {
    if !able() {
        return;
    }
    let world = World::logging();
    let place = &world.place;
    let note = place.path("state/runs/inbox~7/agent/session.json");
    for (n, cut) in [None, Some("")].into_iter().enumerate() {
        world.item(7, &["one", "two"][..n]);
        world.once();
        until_arrived(&world, 7, n + 1);
        match cut {
            None => fs::remove_file(&note).expect("a note"),
            Some(text) => fs::write(&note, text).expect("a note"),
        }
    }
    world.item(7, &["one", "two"]);
    world.once();
    until_arrived(&world, 7, 3);
    let shown = place.run(&["show", "dir:inbox#7"]).expect(0).stdout;
    assert!(shown.contains("attach -t '=inbox~7'"), "{shown}");
    assert_eq!(world.server.agents().len(), 1);
}

/// C131, R7.4: Given a token in an environment variable; when a session is made by the poller that has
/// it; then neither the server nor the agent has it, nor what tmux hands to later sessions.
#[test]
fn c131_a_session_does_not_get_the_token() {
    if !able() {
        return;
    }
    let world = World::logging();
    let place = &world.place;
    world.know_a_token();
    world.item(7, &[]);
    let mut start = place.command(&["start", "--once", "-q"]);
    start.env("MY_TOKEN", "s3cr3t-t0ken").env("PLAIN", "kept");
    assert!(start.output().is_ok());
    until_arrived(&world, 7, 1);
    let (_, agent, _) = world.server.agent(7).expect("the agent");
    let server = world.server.pid().expect("a server");
    for pid in [agent, server] {
        let environment = fs::read(format!("/proc/{pid}/environ")).expect("ours");
        let environment = String::from_utf8_lossy(&environment).into_owned();
        assert!(environment.contains("PLAIN=kept"), "{environment}");
        assert!(!environment.contains("s3cr3t"), "{environment}");
        let words = fs::read(format!("/proc/{pid}/cmdline")).expect("ours");
        assert!(!String::from_utf8_lossy(&words).contains("s3cr3t"));
    }
    assert!(
        !world
            .server
            .say(&["show-environment", "-g"])
            .contains("s3cr3t")
    );
    let environment = fs::read(format!("/proc/{agent}/environ")).expect("ours");
    assert!(String::from_utf8_lossy(&environment).contains("IDEMPOLL_REF=dir:inbox#7"));
}

/// Given a server that is lost with all its sessions; when events for two items come; then each gets
/// a session again, and the loss is said once.
#[test]
fn a_lost_server_is_said_once_and_its_sessions_are_made_again() {
    if !able() {
        return;
    }
    let world = World::logging();
    let place = &world.place;
    world.item(1, &[]);
    world.item(2, &[]);
    let _poller = place.start();
    until_arrived(&world, 1, 1);
    until_arrived(&world, 2, 1);
    place.until("both are recorded", || place.pending() == 0);
    world.server.run(&["kill-server"]);
    world.item(1, &["one"]);
    world.item(2, &["two"]);
    until_arrived(&world, 1, 2);
    until_arrived(&world, 2, 2);
    place.until("both are recorded", || place.pending() == 0);
    let warned = place.entries("poller.warning");
    let lost = |e: &&Value| {
        e["reason"]
            .as_str()
            .is_some_and(|r| r.contains("the tmux server of 'agent' was lost"))
    };
    assert_eq!(warned.iter().filter(lost).count(), 1, "{warned:?}");
    let text = &world.pasted(1)[1];
    assert_eq!(delivery_of(text), "dir:inbox#1/comment/1");
}

/// Given room for two sessions and three items; when they are delivered; then the third waits, which
/// costs it nothing, until one ends.
#[test]
fn what_is_over_max_sessions_waits() {
    if !able() {
        return;
    }
    let mut settings = logger();
    settings["max_sessions"] = 2.into();
    let world = World::new(settings);
    let place = &world.place;
    for number in 1..=3 {
        world.item(number, &[]);
    }
    let _poller = place.start();
    place.until("two have theirs and one waits", || {
        (1..=3).filter(|n| arrived(&world, *n, 1)).count() == 2
            && world.last_reason().contains("max_sessions")
    });
    assert_eq!(world.server.agents().len(), 2);
    let first = (1..=3)
        .find(|n| arrived(&world, *n, 1))
        .expect("one of them");
    world.close(first);
    place.until("all had theirs", || (1..=3).all(|n| arrived(&world, n, 1)));
    place.until("all is recorded", || place.pending() == 0);
    assert_eq!(world.server.agents().len(), 2);
    assert!(world.server.agent(first).is_none());
    assert!(place.entries("dispatch.failed").is_empty());
}

/// Given items that end; when `on_close` is `end`, `keep` or `tell`; then their agents are ended, left
/// alone, or told.
#[test]
fn the_end_of_an_item_is_what_the_config_says() {
    if !able() {
        return;
    }
    let mut settings = logger();
    for (number, on_close) in [(1, "end"), (2, "keep"), (3, "tell")] {
        settings["on_close"] = on_close.into();
        let world = World::new(settings.clone());
        world.item(number, &[]);
        world.once();
        until_arrived(&world, number, 1);
        world.close(number);
        world.once();
        let told = usize::from(on_close == "tell");
        until_arrived(&world, number, 1 + told);
        assert_eq!(world.pasted(number).len(), 1 + told, "{on_close}");
        assert_eq!(world.server.agent(number).is_some(), on_close != "end");
        if told == 1 {
            assert!(
                world.pasted(number)[1].contains(&format!("dir:inbox#{number} has ended: closed."))
            );
        }
        let shown = world
            .place
            .run(&["show", &format!("dir:inbox#{number}")])
            .expect(0)
            .stdout;
        assert_eq!(shown.contains("session in agent"), on_close != "end");
        // Nothing is left to do.
        world.once();
        assert_eq!(world.place.entries("dispatch.succeeded").len(), 2);
    }
}

/// Given a `workdir` of names from the config; when it is not there; then the delivery waits and says
/// so, and with `create_workdir` it is made, and the command runs in it.
#[test]
fn a_workdir_is_made_of_checked_names() {
    if !able() {
        return;
    }
    let mut settings = logger();
    settings["workdir"] = "DIR/work/{source}/{number}".into();
    let world = World::new(settings.clone());
    world.item(7, &[]);
    world.place.once().expect(1);
    let reason = world.last_reason();
    assert!(
        reason.contains("work/inbox/7: no such file or directory")
            && reason.contains("create_workdir"),
        "{reason}"
    );
    settings["create_workdir"] = true.into();
    world.configure(settings);
    world.once();
    until_arrived(&world, 7, 1);
    let (_, pid, _) = world.server.agent(7).expect("the agent");
    let cwd = fs::read_link(format!("/proc/{pid}/cwd")).expect("ours");
    assert_eq!(
        cwd,
        fs::canonicalize(world.place.path("work/inbox/7")).expect("it is there")
    );
}

/// Given a config with `tmux` sinks that would not work; when it is checked; then each reason is told,
/// and nothing is started or made.
#[test]
fn check_says_what_would_not_work() {
    if !able() {
        return;
    }
    let world = World::new(fake("", &json!({})));
    let place = &world.place;
    let fine = place.run(&["check"]);
    assert_eq!(fine.code, Some(0), "{}{}", fine.stdout, fine.stderr);
    assert!(
        fine.stdout.contains("sink     agent: tmux ") && fine.stdout.contains("/tmux/agent.sock"),
        "{}",
        fine.stdout
    );
    fs::create_dir(place.path("open")).expect("a directory");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(place.path("open"), mode).expect("its mode");
    place.write("t.txt", "{ref} {body}");
    world.configure(
        json!({ "command": ["no-such-agent"], "socket": "open/s", "template_file": "t.txt",
        "workdir": "DIR/{repo}", "submit_check": ["no-such-check"] }),
    );
    let said = place.run(&["check"]).expect(1).stdout;
    for wanted in [
        "sink 'agent', command: no-such-agent: no such program in PATH",
        "sink 'agent', submit_check: no-such-check: no such program in PATH",
        "sink 'agent', socket: others can write to ",
        "sink 'agent', template_file: unknown {body}",
        "sink 'agent': workdir: dir:inbox#0 has neither {owner} nor {repo}",
    ] {
        assert!(said.contains(wanted), "{wanted}\nin {said}");
    }
    let mut check = Command::new(binary());
    check
        .args(["check", "--config", "idempoll.json"])
        .current_dir(&place.dir)
        .env("PATH", "/nowhere");
    let said = String::from_utf8_lossy(&check.output().expect("it starts").stdout).into_owned();
    assert!(
        said.contains("sink 'agent': tmux: no such program in PATH"),
        "{said}"
    );
    // What check found wrong is not used either.
    world.item(7, &[]);
    place.once().expect(1);
    assert!(
        world.last_reason().contains("others can write to"),
        "{}",
        world.last_reason()
    );
    drop(Server::at(place.path("open/s")));
    assert!(!place.path("open/s").exists());
}
