//! Telling a service manager how the poller is doing: the datagrams of `sd_notify`.
//!
//! When `NOTIFY_SOCKET` names a socket (a path, or `@` and an abstract name), it gets `READY=1` as the first
//! cycle begins (the lock is held, and what the last poller left is settled by then), `STATUS=` after each cycle that
//! came to something else than the one before, and `STOPPING=1` as soon as a stop is heard. With
//! `WATCHDOG_USEC` it gets `WATCHDOG=1` at half of that time: between two steps of the main
//! thread and while that waits, and so not any more when that thread hangs.
//!
//! Nothing here can end the poller or keep it waiting. What the socket has no room for
//! is sent again later; if nobody is there, that is that. `MAINPID` is not said: the
//! poller is the process that was started, or, where that was pid 1 of a container, one whose number means nothing outside.

use super::clock::Mono;
#[cfg(feature = "mutants")]
use super::threads;
use crate::mutant;
use crate::os::pid::Pid;
use crate::store::run_info::RunInfo;
use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The `STATUS` of a poller that was asked to stop.
const STOPPING: &str = "stopping";

/// Whom the poller tells, and what it owes them.
#[derive(Debug, Default)]
pub struct Notify {
    manager: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Watchdog>,
    /// What is to be sent, by its name, so that of each there is only the latest. Their order is that
    /// of the alphabet, which suits: of `READY` and `STOPPING` the last one counts.
    owed: BTreeMap<&'static str, String>,
    /// The last `STATUS`.
    status: String,
    ready: bool,
}

/// A sign of life at half of the time after which the manager takes us for hung.
#[derive(Debug)]
struct Watchdog {
    half: Duration,
    due: Mono,
}

impl Notify {
    /// As the environment wants it. `addressed` is the process the manager started: this one, or
    /// its parent if that divided itself.
    #[must_use]
    pub fn of_process(addressed: Pid) -> Notify {
        let Some(manager) = env::var_os("NOTIFY_SOCKET").and_then(|name| open(&name)) else {
            return Notify::default();
        };
        let text = |name| env::var(name).ok();
        let half = half_of(text("WATCHDOG_USEC"), text("WATCHDOG_PID"), addressed);
        let watchdog = half.map(|half| Watchdog {
            half,
            due: Mono::now().plus(half),
        });
        let mut notify = Notify {
            manager: Some(manager),
            watchdog,
            ..Notify::default()
        };
        if mutant::is("ready-too-early") {
            let _ = notify.ready();
        }
        #[cfg(feature = "mutants")]
        notify.ping_from_a_thread();
        notify
    }

    /// The first cycle begins. Says so once.
    ///
    /// # Errors
    /// When the manager cannot be told. It will wait in vain.
    pub fn ready(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.ready, true) {
            return Ok(());
        }
        self.owed.insert("READY", "1".to_string());
        self.send()
    }

    /// A cycle is over; `run` says what it came to.
    pub fn cycle_ended(&mut self, run: &RunInfo) {
        if self.status != STOPPING {
            self.status_is(in_a_line(run));
        }
    }

    /// A stop was heard.
    pub fn stopping(&mut self) {
        self.owed.insert("STOPPING", "1".to_string());
        self.status_is(STOPPING.to_string());
        let _ = self.send();
    }

    /// The main thread goes on: sends what is due, and what found no room before.
    pub fn turn(&mut self) {
        if let Some(watchdog) = &mut self.watchdog
            && watchdog.due.passed()
        {
            watchdog.due = Mono::now().plus(watchdog.half);
            self.owed.insert("WATCHDOG", "1".to_string());
        }
        let _ = self.send();
    }

    /// How long the main thread may wait before its next [`Notify::turn`].
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        self.watchdog.as_ref().map(|w| w.due.left())
    }

    /// Whether something found no room and is to be sent again.
    #[must_use]
    pub fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    fn status_is(&mut self, status: String) {
        if self.status != status {
            self.owed.insert("STATUS", status.clone());
            self.status = status;
            let _ = self.send();
        }
    }

    /// Sends all that is owed as one datagram. What finds no room stays owed.
    fn send(&mut self) -> io::Result<()> {
        if self.owed.is_empty() {
            return Ok(());
        }
        let Some((socket, to)) = &self.manager else {
            self.owed.clear();
            return Ok(());
        };
        let lines: Vec<String> = self.owed.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let sent = socket.send_to_addr(lines.join("\n").as_bytes(), to);
        if sent
            .as_ref()
            .is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
        {
            return Ok(());
        }
        self.owed.clear();
        sent.map(drop)
    }

    #[cfg(feature = "mutants")]
    fn ping_from_a_thread(&mut self) {
        if !mutant::is("watchdog-from-a-thread") {
            return;
        }
        if let (Some((socket, to)), Some(watchdog)) = (&self.manager, self.watchdog.take())
            && let Ok(socket) = socket.try_clone()
        {
            let to = to.clone();
            let _ = threads::spawn("watchdog", move || {
                loop {
                    let _ = socket.send_to_addr(b"WATCHDOG=1", &to);
                    crate::os::wait::pause(watchdog.half);
                }
            });
        }
    }
}

/// A socket to send from, and whom to; `None` where the name cannot be one.
fn open(name: &OsStr) -> Option<(UnixDatagram, SocketAddr)> {
    let to = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => return None,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some((socket, to.ok()?))
}

/// Half of the time after which the manager takes `addressed` for hung, if it does so.
fn half_of(usec: Option<String>, pid: Option<String>, addressed: Pid) -> Option<Duration> {
    let usec: u64 = usec?.parse().ok().filter(|usec| *usec > 0)?;
    let ours = pid.is_none_or(|pid| pid.parse() == Ok(addressed.get()));
    ours.then(|| Duration::from_micros(usec) / 2)
}

/// How it fares, in a line without times, so that it changes only when that does. Names of
/// sources are from the config; nothing that comes from a tracker is in it.
fn in_a_line(run: &RunInfo) -> String {
    let mut line = match &run.last_cycle {
        None => "no cycle yet".to_string(),
        Some(last) => {
            let cut = if last.interrupted {
                " (interrupted)"
            } else {
                ""
            };
            let s = if last.items == 1 { "" } else { "s" };
            format!(
                "last cycle{cut}: {} item{s}, {} delivered, {} failed",
                last.items, last.delivered, last.failed
            )
        }
    };
    for (count, what) in [(run.pending, "pending"), (run.gave_up, "given up")] {
        if count > 0 {
            line.push_str(&format!("; {count} {what}"));
        }
    }
    let failing: Vec<&str> = run
        .sources
        .iter()
        .filter(|s| !s.ok)
        .map(|s| s.name.as_str())
        .collect();
    if !failing.is_empty() {
        line.push_str(&format!("; failing: {}", failing.join(", ")));
    }
    for (trouble, what) in [
        (&run.store_error, "the state cannot be written"),
        (&run.config_error, "the changed config is not in use"),
    ] {
        if trouble.is_some() {
            line.push_str(&format!("; {what}"));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use crate::store::run_info::{LastCycle, SourceInfo};

    fn telling(manager: &UnixDatagram) -> Notify {
        let address = manager.local_addr().expect("it is bound");
        let path = address.as_pathname().expect("it is bound to a path");
        Notify {
            manager: open(path.as_os_str()),
            ..Notify::default()
        }
    }

    fn heard(manager: &UnixDatagram) -> String {
        let mut bytes = [0; 4096];
        let n = manager.recv(&mut bytes).expect("something was said");
        String::from_utf8_lossy(&bytes[..n]).into_owned()
    }

    #[test]
    fn a_watchdog_is_ours_when_it_has_a_time_and_our_number() {
        let us = Pid::own();
        let of = |usec: &str, pid: Option<String>| half_of(Some(usec.to_string()), pid, us);
        let second = Some(Duration::from_secs(1));
        assert_eq!(of("2000000", None), second);
        assert_eq!(of("2000000", Some(us.to_string())), second);
        for (usec, pid) in [
            ("2000000", Some("1".to_string())),
            ("2000000", Some(String::new())),
            ("0", None),
            ("-1", None),
            ("soon", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(of(usec, pid.clone()), None, "{usec} {pid:?}");
        }
        assert_eq!(half_of(None, None, us), None);
        assert!(of(&u64::MAX.to_string(), None).is_some());
    }

    #[test]
    fn a_name_that_can_be_no_socket_is_nobody() {
        let long = format!("/{}", "x".repeat(200));
        for name in ["", "notify", "vsock:2:1234", "/with\0null", &long] {
            assert!(open(OsStr::new(name)).is_none(), "{name:?}");
        }
        assert!(open(OsStr::new("@idempoll-test")).is_some());
    }

    /// Given a manager that does not listen, when more is said than there is room for, then nobody waits, and
    /// once there is room it hears the latest of each.
    #[test]
    fn what_finds_no_room_is_said_later_and_only_the_latest_of_it() {
        let scratch = Scratch::new();
        let manager = UnixDatagram::bind(scratch.join("notify")).expect("a socket");
        manager.set_nonblocking(true).expect("it is ours");
        let mut notify = telling(&manager);
        let mut said = 0;
        while notify.owed.is_empty() {
            notify.status_is(said.to_string());
            said += 1;
            assert!(said < 100_000, "there is always room");
        }
        assert!(notify.ready().is_ok());
        notify.status_is("latest".to_string());
        notify.stopping();
        for n in 0..said - 1 {
            assert_eq!(heard(&manager), format!("STATUS={n}"));
        }
        notify.turn();
        assert_eq!(heard(&manager), "READY=1\nSTATUS=stopping\nSTOPPING=1");
        notify.turn();
        assert!(manager.recv(&mut [0; 16]).is_err(), "said twice");
    }

    #[test]
    fn one_that_is_gone_is_named_once_and_costs_nothing() {
        let scratch = Scratch::new();
        let path = scratch.join("notify");
        let mut notify = telling(&UnixDatagram::bind(&path).expect("a socket"));
        assert!(notify.ready().is_err());
        assert!(notify.ready().is_ok());
        notify.stopping();
        assert!(notify.owed.is_empty());
        assert!(Notify::default().ready().is_ok());
    }

    #[test]
    fn how_it_fares_is_one_line_and_says_what_is_wrong() {
        let mut run = RunInfo::default();
        assert_eq!(in_a_line(&run), "no cycle yet");
        run.last_cycle = Some(LastCycle {
            at: crate::engine::time::Time(0),
            duration_ms: 1,
            items: 2,
            delivered: 1,
            failed: 0,
            interrupted: false,
        });
        assert_eq!(
            in_a_line(&run),
            "last cycle: 2 items, 1 delivered, 0 failed"
        );
        run.last_cycle.iter_mut().for_each(|c| c.interrupted = true);
        (run.pending, run.gave_up) = (3, 1);
        run.config_error = Some("1:2: \n".to_string());
        run.sources = vec![SourceInfo {
            name: "api".to_string(),
            ok: false,
            error: Some("what a tracker says\n".to_string()),
            failing_since: None,
            items: 0,
            last_listing_at: None,
        }];
        assert_eq!(
            in_a_line(&run),
            "last cycle (interrupted): 2 items, 1 delivered, 0 failed; 3 pending; 1 given up; failing: api; the changed config is not in use"
        );
    }
}
