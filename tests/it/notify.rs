//! What a service manager hears from the real program: the datagrams of `sd_notify`.

use crate::lifecycle::hang;
use crate::world::forge::{Forge, Reply};
use crate::world::program::{Answer, GATED, LOG, Place, Running, exists, patience};
use serde_json::json;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::process::Command;
use std::time::{Duration, Instant};

/// Why nothing was heard, and may be the next time.
const NOTHING_YET: [ErrorKind; 3] = [
    ErrorKind::WouldBlock,
    ErrorKind::TimedOut,
    ErrorKind::Interrupted,
];

/// A service manager, as far as it listens.
pub struct Manager {
    socket: UnixDatagram,
    /// What goes into `NOTIFY_SOCKET`.
    pub name: String,
}

impl Manager {
    pub fn at(place: &Place) -> Manager {
        let path = place.path("notify.sock");
        let name = path.display().to_string();
        Manager::on(UnixDatagram::bind(path), name)
    }

    fn abstractly(place: &Place) -> Manager {
        let name = place.dir.display().to_string();
        let address = SocketAddr::from_abstract_name(&name).expect("a short name");
        Manager::on(UnixDatagram::bind_addr(&address), format!("@{name}"))
    }

    fn on(socket: std::io::Result<UnixDatagram>, name: String) -> Manager {
        let socket = socket.expect("a socket");
        Manager { socket, name }
    }

    /// `idempoll start`, told of this manager.
    pub fn start(&self, place: &Place) -> Command {
        let mut command = place.command(&["start"]);
        command
            .stderr(place.log())
            .env("NOTIFY_SOCKET", &self.name)
            .env_remove("WATCHDOG_USEC")
            .env_remove("WATCHDOG_PID");
        command
    }

    /// The lines of the next datagram that comes within this time.
    fn hears(&self, within: Duration) -> Option<Vec<String>> {
        let mut bytes = [0; 4096];
        let within = within.max(Duration::from_millis(1));
        self.socket
            .set_read_timeout(Some(within))
            .expect("some time");
        match self.socket.recv(&mut bytes) {
            Ok(n) => Some(
                String::from_utf8_lossy(&bytes[..n])
                    .lines()
                    .map(str::to_string)
                    .collect(),
            ),
            // A signal of another test's may come as well: callers ask again.
            Err(e) if NOTHING_YET.contains(&e.kind()) => None,
            Err(e) => panic!("{e}"),
        }
    }

    /// Waits for a line; gives what came before it.
    pub fn until(&self, place: &Place, line: &str) -> Vec<String> {
        let deadline = Instant::now() + patience();
        let mut before = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "waited in vain for {line}, heard {before:?}: {}",
                place.story()
            );
            for said in self.hears(left).into_iter().flatten() {
                if said == line {
                    return before;
                }
                before.push(said);
            }
        }
    }

    /// How many signs of life come within this time.
    fn pings(&self, within: Duration) -> usize {
        let end = Instant::now() + within;
        let mut pings = 0;
        while let left = end.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            let heard = self.hears(left).unwrap_or_default();
            pings += heard.iter().filter(|l| *l == "WATCHDOG=1").count();
        }
        pings
    }
}

fn end(mut running: Running) {
    running.signal("TERM");
    assert!(running.ended().success());
}

/// Given a command that was running when its poller was killed, when the next one is started
/// by a service manager, then it says that it is ready once it has found the command
/// again, and not only when that ends. After each cycle that came to something else it says
/// what. At a signal it says that it stops, by a path and by an abstract name alike (R5.4, R2.6).
#[test]
fn r5_4_it_is_ready_once_what_was_left_is_settled() {
    for name in [Manager::at, Manager::abstractly] {
        let place = Place::new(GATED);
        place.item(1, 0);
        let first = place.start();
        place.until("the command runs", || place.lines("begun.log").len() == 1);
        first.kill();
        let manager = name(&place);
        let mut running = place.spawn(&mut manager.start(&place));
        let before = manager.until(&place, "READY=1");
        assert_eq!(before, [""; 0]);
        // The log is written before it is said.
        assert_eq!(place.entries("dispatch.adopted").len(), 1);
        assert_eq!(place.status()["pid"], running.pid());
        assert!(place.lines("ids.log").is_empty());
        let waiting = "STATUS=last cycle: 1 item, 0 delivered, 0 failed; 1 pending";
        manager.until(&place, waiting);
        place.write("go", "");
        let rest = "STATUS=last cycle: 1 item, 0 delivered, 0 failed";
        let between = manager.until(&place, rest);
        assert!(!between.contains(&waiting.to_string()), "said twice");
        assert!(!between.contains(&"READY=1".to_string()), "said twice");
        // Quiet cycles are not told of.
        let cycles = place.status()["last_cycle"]["at"].clone();
        place.until("two cycles are over", || {
            let now = &place.status()["last_cycle"]["at"];
            now.as_str() > cycles.as_str()
        });
        running.signal("TERM");
        let before = manager.until(&place, "STOPPING=1");
        assert_eq!(before, ["STATUS=stopping"]);
        assert!(running.ended().success());
    }
}

/// Given a poller, when a service manager starts a second one, then that never says it is
/// ready; and when `idempoll stop` ends the first, that says so to its manager (R1.1, R2.6).
#[test]
fn r1_1_one_that_is_refused_is_not_ready() {
    let place = Place::new(LOG);
    let manager = Manager::at(&place);
    let mut running = place.spawn(&mut manager.start(&place));
    manager.until(&place, "READY=1");
    manager.until(&place, "STATUS=last cycle: 0 items, 0 delivered, 0 failed");
    let output = manager.start(&place).output().expect("the program starts");
    Answer::of(output).expect(1);
    place.run(&["stop"]).expect(0);
    assert!(running.ended().success());
    let heard = manager.until(&place, "STOPPING=1");
    assert_eq!(heard, ["STATUS=stopping"], "the second one was heard");
}

/// Given a service manager that wants a sign of life within two seconds, when a listing and a
/// command take far longer, then one comes each second; when the main thread hangs, then no more comes
/// (C089); and when it goes on, they do.
#[test]
fn c089_a_main_thread_that_hangs_is_noticed() {
    let forge = Forge::start(|_| Reply::json("[]").dribble_all(Duration::from_secs(30)));
    let place = Place::new(GATED);
    place.item(1, 0);
    let mut config = place.config(GATED);
    let github = json!({ "name": "forge", "provider": "github", "repos": ["octo/widgets"],
        "base_url": forge.url(), "sinks": ["log"] });
    config["sources"]
        .as_array_mut()
        .expect("a list")
        .push(github);
    place.configure(&config);
    let manager = Manager::at(&place);
    let mut command = manager.start(&place);
    command.env("WATCHDOG_USEC", "2000000");
    let running = place.spawn(&mut command);
    manager.until(&place, "READY=1");
    place.until("the command runs", || place.lines("begun.log").len() == 1);
    place.until("the listing is under way", || !forge.asked().is_empty());
    for _ in 0..3 {
        let since = Instant::now();
        manager.until(&place, "WATCHDOG=1");
        println!("a sign of life after {:?}", since.elapsed());
    }
    let (since, few) = (Instant::now(), 5);
    for _ in 0..few {
        manager.until(&place, "WATCHDOG=1");
    }
    // The first of them may have come already.
    let least = Duration::from_millis(1000) * (few - 2);
    assert!(since.elapsed() >= least, "{few} in {:?}", since.elapsed());
    end(running);
    // The command outlives its poller, and would wait for ever.
    place.write("go", "");
    place.until("the command has ended", || {
        place.lines("ids.log").len() == 1
    });

    let place = Place::new(LOG);
    let manager = Manager::at(&place);
    let mut command = manager.start(&place);
    command.env("WATCHDOG_USEC", "2000000");
    let running = place.spawn(&mut command);
    manager.until(&place, "READY=1");
    let Some(slowness) = hang(&place, running.pid(), "c089") else {
        return;
    };
    // Those from before.
    manager.pings(Duration::from_millis(100));
    assert_eq!(manager.pings(Duration::from_secs(4)), 0, "it hangs");
    drop(slowness);
    manager.until(&place, "WATCHDOG=1");
    end(running);
}

/// Given a poller with an hour to its next cycle, when nothing happens, then its watchdog hears of it all the same (C089).
#[test]
fn c089_a_poller_at_rest_gives_signs_of_life() {
    let place = Place::new(LOG);
    let mut config = place.config(LOG);
    config["interval_seconds"] = json!(3600);
    place.configure(&config);
    let manager = Manager::at(&place);
    let mut command = manager.start(&place);
    command.env("WATCHDOG_USEC", "400000");
    let running = place.spawn(&mut command);
    manager.until(&place, "READY=1");
    place.until("its cycle is over", || {
        !place.status()["last_cycle"].is_null()
    });
    for _ in 0..20 {
        manager.until(&place, "WATCHDOG=1");
    }
    end(running);
}

/// Given a service manager with a watchdog, when commands and token commands run, then
/// they know nothing of it (R7.4).
#[test]
fn r7_4_what_is_started_does_not_know_the_service_manager() {
    let forge = Forge::start(|_| Reply::json("[]"));
    let place = Place::new(LOG);
    let script = r#"env > sink.env; tr '\0' '\n' < /proc/$PPID/environ > runner.env; cat > /dev/null; echo "$IDEMPOLL_DELIVERY_ID" >> ids.log"#;
    let mut config = place.config(script);
    let env = place.path("token.env").display().to_string();
    let github = json!({ "name": "forge", "provider": "github", "repos": ["octo/widgets"], "base_url": forge.url(),
        "sinks": ["log"], "token_command": ["sh", "-c", r#"env > "$0"; echo token"#, env] });
    config["sources"]
        .as_array_mut()
        .expect("a list")
        .push(github);
    place.configure(&config);
    place.item(1, 0);
    let manager = Manager::at(&place);
    let mut command = manager.start(&place);
    // A pid that is not the poller's: it is not asked for signs of life.
    command
        .env("WATCHDOG_USEC", "1000")
        .env("WATCHDOG_PID", "1");
    let running = place.spawn(&mut command);
    place.until("both have run", || {
        !forge.asked().is_empty() && place.lines("ids.log").len() == 1
    });
    end(running);
    for name in ["sink.env", "runner.env", "token.env"] {
        let env = place.lines(name);
        assert!(env.iter().any(|l| l.starts_with("PATH=")), "{name}");
        let told = env
            .iter()
            .find(|l| l.contains("NOTIFY_") || l.contains("WATCHDOG_"));
        assert_eq!(told, None, "{name}");
    }
    let heard = manager.until(&place, "STOPPING=1");
    assert!(!heard.contains(&"WATCHDOG=1".to_string()), "{heard:?}");
}

/// Given a `NOTIFY_SOCKET` that is no socket, or one that nobody reads, when the program is
/// started with it, then it does all it would do without.
#[test]
fn a_notify_socket_of_any_kind_is_in_nobodys_way() {
    let place = Place::new(LOG);
    place.write("file", "");
    let _stream = UnixListener::bind(place.path("stream")).expect("a socket");
    let full = Manager::at(&place);
    let sender = UnixDatagram::unbound().expect("a socket");
    sender.set_nonblocking(true).expect("it is ours");
    while sender.send_to(b"STATUS=full", &full.name).is_ok() {}
    let dir = place.dir.display();
    let names = [
        String::new(),
        "notify".to_string(),
        "@".to_string(),
        "@idempoll-nobody".to_string(),
        "vsock:2:1".to_string(),
        format!("/{}", "x".repeat(300)),
        format!("{dir}/none"),
        format!("{dir}/file"),
        format!("{dir}/stream"),
        format!("{dir}"),
        full.name.clone(),
    ];
    for (n, name) in names.iter().enumerate() {
        place.item(1 + n as u64, 0);
        let mut command = place.command(&["start", "--once", "-q"]);
        command
            .env("NOTIFY_SOCKET", name)
            .env("WATCHDOG_USEC", "1000");
        let said = Answer::of(command.output().expect("the program starts")).expect(0);
        assert_eq!(place.lines("ids.log").len(), 1 + n, "{name}");
        // Whoever waits for a word that never comes can read why.
        let told = said.stderr.contains("NOTIFY_SOCKET");
        let nobody = name.starts_with(&format!("{dir}/")) && *name != full.name;
        assert!(told || !nobody, "{name}: {}", said.stderr);
    }
    assert!(!exists(&place.path("state/poll.pid")));
}
