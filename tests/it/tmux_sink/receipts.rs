//! Each event takes effect exactly once, whatever happens to the poller and to the server.

use super::world::{World, able, delivery_of, pastes};
use crate::world::ends::{End, come_and_go, ids};
use crate::world::program::scaled;
use std::collections::BTreeMap;
use std::fs;

/// Delivers to `items` agents while pollers end again and again, and compares what each pane got.
fn each_exactly_once(end: End, events: u64) {
    if !able() {
        return;
    }
    let items = 4.min(events);
    let per_item = events.div_ceil(items);
    let world = World::logging();
    let place = &world.place;
    for number in 1..=items {
        place.item(number, per_item - 1);
    }
    let due = usize::try_from(items * per_item).expect("small");
    let got = || (1..=items).map(|n| pastes(&world.keys(n)).map_or(0, |p| p.len()));
    let lives = come_and_go(place, end, due, || got().sum(), || {});
    println!("{end:?}: {due} deliveries by {lives} pollers");
    for number in 1..=items {
        let got: Vec<String> = world
            .pasted(number)
            .iter()
            .map(|t| delivery_of(t))
            .collect();
        assert_eq!(got, ids(number, per_item - 1), "{}", place.story());
    }
    assert_eq!(
        world.server.agents().len(),
        usize::try_from(items).expect("small")
    );
}

/// R6.2, R5.4: Given events for several agents, and pollers that are killed at random moments, each
/// followed by another; when nothing is pending any more; then each pane got each of its events once,
/// in order, with one Enter each.
#[test]
fn r6_2_killed_at_any_moment_each_event_is_pasted_once() {
    each_exactly_once(End::Killed, scaled(24));
}

/// R6.2, R5.2: The same with pollers that are asked to stop.
#[test]
fn r6_2_stopped_at_any_moment_each_event_is_pasted_once() {
    each_exactly_once(End::Stopped, scaled(24));
}

/// Where a poller is killed: at the n-th call of tmux. A `tmux` in front of the real one counts.
fn killed_at_call(world: &World, call: u32, before: bool) -> bool {
    let place = &world.place;
    let bin = place.path("bin");
    fs::create_dir_all(&bin).expect("a directory");
    let real = std::env::var("PATH").unwrap_or_default();
    // It kills its parent, which is the poller, before or after its own work.
    let (early, late) = match before {
        true => ("kill -KILL $PPID; exit 1", ":"),
        false => (":", "kill -KILL $PPID"),
    };
    let script = format!(
        "#!/bin/sh\nPATH='{real}'\necho >> '{dir}/calls'\nn=$(wc -l < '{dir}/calls')\n\
         if [ $n = {call} ]; then\n{early}\nfi\ntmux \"$@\"; code=$?\n\
         if [ $n = {call} ]; then\n{late}\nfi\nexit $code\n",
        dir = place.dir.display()
    );
    fs::write(bin.join("tmux"), script).expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(bin.join("tmux"), mode).expect("its mode");
    let _ = fs::remove_file(place.path("calls"));
    let mut poller = place.command(&["start", "--once", "-q"]);
    poller.env("PATH", format!("{}:{real}", bin.display()));
    let ended = poller.output().expect("the program starts").status;
    ended.code().is_none()
}

/// R6.2, R3.7, C071: Given a poller that is killed right before, or right after, the n-th call of tmux, for
/// every n; when the next one runs; then each event is there once, from the making of the session on.
#[test]
fn r6_2_killed_around_any_call_of_tmux_nothing_comes_twice() {
    if !able() {
        return;
    }
    for before in [false, true] {
        let mut cuts = 0;
        for call in 1..40 {
            let world = World::logging();
            world.item(7, &["one"]);
            let killed = killed_at_call(&world, call, before);
            world.once();
            let keys = || pastes(&world.keys(7)).is_ok_and(|p| p.len() >= 2);
            world.place.until("both arrived", keys);
            let got: Vec<String> = world.pasted(7).iter().map(|t| delivery_of(t)).collect();
            assert_eq!(
                got,
                ["dir:inbox#7/opened", "dir:inbox#7/comment/1"],
                "call {call}"
            );
            assert_eq!(world.server.agents().len(), 1, "call {call}");
            // Whoever made the session may not have lived to note it (C071).
            let shown = world.place.run(&["show", "dir:inbox#7"]).expect(0).stdout;
            assert!(shown.contains("session in agent: tmux -S "), "call {call}");
            cuts += u32::from(killed);
            if !killed {
                break;
            }
        }
        assert!(cuts >= 8, "{cuts} calls only");
    }
}

/// R6.2: Given a server that is frozen when something is due; when it goes on later; then what was
/// asked of it meanwhile is done once, and the poller neither hangs nor asks twice.
#[test]
fn r6_2_a_frozen_server_is_waited_for_and_nothing_comes_twice() {
    if !able() {
        return;
    }
    let world = World::logging();
    let place = &world.place;
    world.item(7, &["one"]);
    world.once();
    place.until("two arrived", || {
        pastes(&world.keys(7)).is_ok_and(|p| p.len() == 2)
    });
    let server = world.server.pid().expect("a server");
    let signal = |name: &str| {
        let sent = std::process::Command::new("kill")
            .args(["-s", name, &server.to_string()])
            .status();
        assert!(sent.expect("kill").success());
    };
    signal("STOP");
    world.item(7, &["one", "two"]);
    let mut poller = place.start_unseen();
    place.until("it is put off", || {
        world.last_reason().contains("does not answer")
    });
    signal("CONT");
    place.until("it is delivered", || place.pending() == 0);
    // And a stop is not held up by one that stays frozen.
    signal("STOP");
    world.item(7, &["one", "two", "three"]);
    place.until("it is due", || place.pending() == 1);
    poller.signal("TERM");
    let ended = poller.ended();
    signal("CONT");
    assert!(ended.success(), "{}", place.story());
    world.once();
    place.until("all arrived", || {
        pastes(&world.keys(7)).is_ok_and(|p| p.len() >= 4)
    });
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for text in world.pasted(7) {
        *counts.entry(delivery_of(&text)).or_default() += 1;
    }
    assert_eq!(counts.len(), 4, "{counts:?}");
    assert!(counts.values().all(|n| *n == 1), "{counts:?}");
}

/// R6.2: Given a call that pastes, asked of a server that is frozen, so that its poller gave it up and
/// was told nothing; when the server goes on and a second call for the same delivery comes; then only
/// one of the two pastes.
#[test]
fn r6_2_of_two_calls_for_one_delivery_one_pastes() {
    use idempoll::sinks::tmux::client::{Called, Client};
    use idempoll::sinks::tmux::pane::{self, Seen, Typed};
    if !able() {
        return;
    }
    let world = World::logging();
    let place = &world.place;
    world.item(7, &[]);
    world.once();
    place.until("it arrived", || {
        pastes(&world.keys(7)).is_ok_and(|p| p.len() == 1)
    });
    let client = Client {
        socket: place.state().join("tmux/agent.sock"),
        secret_vars: Vec::new(),
    };
    let mark = "@idempoll-d-comment-2f1";
    let Seen::Panes(panes) = pane::look(&client, mark) else {
        panic!("no panes")
    };
    let staged = || client.call(&["load-buffer", "-b", "late", "-"], b"late text");
    assert!(matches!(staged(), Called::Done(_)));
    let server = world.server.pid().expect("a server").to_string();
    let signal = |name: &str| {
        let sent = std::process::Command::new("kill")
            .args(["-s", name, &server])
            .status();
        assert!(sent.expect("kill").success());
    };
    signal("STOP");
    let late = panes[0].paste(&client, mark, "late", true, &[]);
    signal("CONT");
    assert_eq!(late, Typed::Silent);
    // The one before may have taken the buffer with it.
    place.until("it is staged again", || matches!(staged(), Called::Done(_)));
    let second = panes[0].paste(&client, mark, "late", true, &[]);
    assert!(
        matches!(second, Typed::Refused(_) | Typed::Done),
        "{second:?}"
    );
    // What comes after them arrives after them.
    assert!(matches!(staged(), Called::Done(_)));
    let last = panes[0].paste(&client, "@idempoll-d-comment-2f2", "late", true, &[]);
    assert_eq!(last, Typed::Done);
    let mut texts = Vec::new();
    place.until("the last one arrived", || {
        texts = pastes(&world.keys(7)).unwrap_or_default();
        texts.len() >= 3
    });
    assert_eq!(texts.len(), 3, "{texts:?}");
}
