//! The protocol of the lock, searched exhaustively.
//!
//! Three processes start, stop or probe, each twice in a row, in every order their
//! steps can come in. Meanwhile anybody may remove the pidfile or put another in its
//! place, every process may be killed at every step, and the pid of a dead one may be
//! given to another process or to a stranger. The search goes through all the
//! states there are and looks at each:
//!
//! * two never hold the lock at once, not even when they share nothing but the pidfile;
//! * a signal reaches nobody but the very process that held the lock when that was proved;
//! * no start is refused because of a probe;
//! * from every state all can still come to their end by themselves.
//!
//! And it must find what is wrong with protocols that are known to be: a search that
//! finds nothing anywhere proves nothing.
//!
//! What is one step here is one call to the kernel there. [`At`] names the next step of
//! a process in the order of the code: `Dir…` and `Pidfile…` are `lock` and `take` in
//! `src/daemon/runlock.rs`, `Release…` its `remove_pidfile` and the order its
//! fields are dropped in, a `start` that comes back to `PidfileOpen` its
//! `put_pidfile_right`; `Probe…` and `Look…` are `probe` in `src/daemon/holder.rs`
//! and `is_locked` in `places.rs`; `Stop…` is `stop_with` and `end` in `src/daemon/stop.rs`,
//! `Turn…` its `turn.rs`, `Remove…` its `remove_stale`. Patience is not modelled: a start that finds
//! a lock held may look again or give up, at any time; but it outlasts a `stop` that
//! only holds the pidfile to remove it.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// How many there are, and how often each is started at most.
const PROCESSES: usize = 3;
const ROUNDS: u8 = 2;

/// What a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    Start,
    Stop,
    Probe,
}

/// What a process holds on an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
enum Lock {
    #[default]
    None,
    Shared,
    Exclusive,
}

/// What a process does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum At {
    /// It is not there: not yet, or not any more.
    Nowhere,

    /// `start`: locks the state directory, without waiting.
    DirLock,
    /// It was busy: would a shared lock be given?
    DirDoubt,
    /// It was, so that was a probe: give it back and try again.
    DirUndoubt,
    /// Opens the pidfile, makes it if it is missing.
    PidfileOpen,
    PidfileLock,
    PidfileDoubt,
    PidfileUndoubt,
    /// Does the path still name what is locked?
    PidfileCheck,
    /// Writes `run.json`.
    SayWho,
    /// Polls; looks after its pidfile; ends by itself or because it was asked.
    Poll,
    /// Writes that it was asked.
    SayAsked,
    /// Writes that it is done.
    SayEnding,
    /// Does the path still name what is locked?
    ReleaseCheck,
    ReleaseUnlink,
    ReleasePidfile,
    ReleaseDir,

    /// `stop`: reads `run.json`, and opens a handle on the process it names.
    StopName,
    /// Is the state directory locked? Also what `status` does.
    Probe,
    /// It was free: give the shared lock back.
    ProbeFree,
    /// Opens the pidfile, if there is one.
    LookOpen,
    /// Is it locked?
    LookLock,
    LookFree,
    /// Reads `run.json` again: is the process it names there, and the one that wrote it?
    StopJudge,
    /// Only if the handle does not come before the proof.
    StopHandle,
    /// Locks `requests/`.
    TurnTake,
    /// Reads `run.json`: was the poller asked meanwhile?
    TurnLook,
    StopSignal,
    /// Keeps its turn until the poller has said that it was asked, or has ended.
    TurnEnd,
    /// Waits for the end of the process.
    StopWait,
    /// And for the lock.
    StopProbe,
    /// Removes a stale pidfile: has nobody start meanwhile,
    RemoveDir,
    RemoveOpen,
    /// has it be nobody else's,
    RemoveLock,
    /// and the one that was looked at.
    RemoveCheck,
    RemoveUnlink,
    /// Gives both back.
    RemoveEnd,
}

/// A file, by a number that means nothing but itself; 0 is none.
type Inode = u8;

/// One life of a process; no two are the same, and 0 is none. The start time stands for it.
type Life = u8;

const STRANGER: Life = 14;
const LONG_DEAD: Life = 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    role: Role,
    at: At,
    round: u8,
    pid: u8,
    dir: Lock,
    /// The pidfile as it is open here, and the lock on it.
    file: Inode,
    lock: Lock,
    /// The one it holds while it puts a new one right.
    old: Inode,
    /// It got a signal.
    asked: bool,
    /// What `run.json` said to a `stop`: pid and start time.
    named: (u8, Life),
    /// The process the handle of a `stop` means.
    handle: Life,
    /// Who held the lock when a `stop` looked. No process knows that: it is for the check.
    holder: Life,
    turn: bool,
}

impl Process {
    fn nowhere(round: u8) -> Process {
        Process {
            role: Role::Probe,
            at: At::Nowhere,
            round,
            pid: 0,
            dir: Lock::None,
            file: 0,
            lock: Lock::None,
            old: 0,
            asked: false,
            named: (0, 0),
            handle: 0,
            holder: 0,
            turn: false,
        }
    }

    /// Whether it works as the poller.
    fn polls(&self) -> bool {
        match self.at {
            At::SayWho | At::Poll | At::SayAsked | At::SayEnding => true,
            At::ReleaseCheck | At::ReleaseUnlink => self.lock == Lock::Exclusive,
            _ => self.old != 0,
        }
    }
}

/// `run.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Run {
    pid: u8,
    life: Life,
    asked: bool,
    ending: bool,
}

/// A state of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct World {
    processes: [Process; PROCESSES],
    /// What the pidfile's path names.
    path: Inode,
    run: Option<Run>,
    /// The pid a stranger was given.
    stranger: u8,
}

/// The protocol, right or wrong.
#[derive(Debug, Clone, Copy)]
struct Rules {
    /// The state directory is locked, before the pidfile.
    dir_lock: bool,
    /// What was locked must be what the path names.
    check: bool,
    /// The pidfile is unlinked while it is held.
    unlink_held: bool,
    /// A start tells a probe's lock from a poller's.
    tell_probes: bool,
    /// The handle on a process comes before the proof.
    handle_first: bool,
    /// The start time is compared.
    identity: bool,
    /// One of several stops signals.
    turns: bool,
}

const REAL: Rules = Rules {
    dir_lock: true,
    check: true,
    unlink_held: true,
    tell_probes: true,
    handle_first: true,
    identity: true,
    turns: true,
};

/// Who takes part, and what may happen to them.
#[derive(Debug, Clone, Copy)]
struct Cast {
    roles: [&'static [Role]; PROCESSES],
    /// How often each is started.
    rounds: [u8; PROCESSES],
    /// Each has a state directory of its own, and they share the pidfile by mistake.
    apart: bool,
    /// The pidfile may be removed or replaced at any time.
    meddling: bool,
    kills: bool,
}

const START: &[Role] = &[Role::Start];
const STOP: &[Role] = &[Role::Stop];
const PROBE: &[Role] = &[Role::Probe];
const START_OR_STOP: &[Role] = &[Role::Start, Role::Stop];

impl Cast {
    fn of(roles: [&'static [Role]; PROCESSES]) -> Cast {
        Cast {
            roles,
            rounds: [ROUNDS; PROCESSES],
            apart: false,
            meddling: false,
            kills: true,
        }
    }

    /// Whether two processes can do the same.
    fn alike(&self, i: usize, j: usize) -> bool {
        (self.roles[i], self.rounds[i]) == (self.roles[j], self.rounds[j])
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    TwoPollers,
    Signalled,
    SignalledTwice,
    Refused,
    Stuck,
}

/// What happened between two states.
#[derive(Debug, Clone, Copy)]
#[expect(dead_code, reason = "for the story of what went wrong")]
enum Move {
    Begins(usize, Role),
    Steps(usize, At),
    GivesUp(usize, At),
    Killed(usize),
    PidfileRemoved,
    PidfileReplaced,
    PidReused,
}

type Next = (Move, Result<World, Wrong>);

struct Model {
    rules: Rules,
    cast: Cast,
}

/// Short, since it is done for millions; equal worlds have equal hashes, no more is needed.
impl Hash for World {
    fn hash<H: Hasher>(&self, into: &mut H) {
        for p in &self.processes {
            let at = [
                p.at as u8,
                p.round | p.pid << 4,
                p.dir as u8 | (p.lock as u8) << 4,
                p.file | p.old << 4,
            ];
            let stop = [
                p.named.1 | p.named.0 << 4,
                p.handle | p.holder << 4,
                p.asked as u8 | (p.turn as u8) << 4,
                p.role as u8,
            ];
            into.write_u64(u64::from_le_bytes([
                at[0], at[1], at[2], at[3], stop[0], stop[1], stop[2], stop[3],
            ]));
        }
        let run = self.run.map_or(0, |r| {
            1 | u32::from(r.pid) << 4
                | u32::from(r.life) << 8
                | u32::from(r.asked) << 12
                | u32::from(r.ending) << 16
        });
        into.write_u32(run | u32::from(self.path) << 20 | u32::from(self.stranger) << 24);
    }
}

impl World {
    /// Two beginnings: nothing is there, or what a poller left that was killed long ago.
    fn first() -> [World; 2] {
        let nothing = World {
            processes: [Process::nowhere(0); PROCESSES],
            path: 0,
            run: None,
            stranger: 0,
        };
        let run = Run {
            pid: 1,
            life: LONG_DEAD,
            asked: false,
            ending: false,
        };
        let crashed = World {
            path: 1,
            run: Some(run),
            ..nothing
        };
        [nothing, crashed]
    }

    fn life(&self, i: usize) -> Life {
        (i as Life) * ROUNDS + self.processes[i].round + 1
    }

    fn lives(&self, life: Life) -> bool {
        match life {
            0 | LONG_DEAD => false,
            STRANGER => self.stranger != 0,
            _ => {
                (0..PROCESSES).any(|i| self.processes[i].at != At::Nowhere && self.life(i) == life)
            }
        }
    }

    /// Who has a pid now.
    fn has(&self, pid: u8) -> Life {
        if self.stranger == pid {
            return STRANGER;
        }
        let found = (0..PROCESSES)
            .find(|&i| self.processes[i].at != At::Nowhere && self.processes[i].pid == pid);
        found.map_or(0, |i| self.life(i))
    }

    /// An inode nobody knows yet.
    fn unused(&self) -> Inode {
        let known =
            |n: Inode| n == self.path || self.processes.iter().any(|p| p.file == n || p.old == n);
        (1..).find(|&n| !known(n)).expect("there are few")
    }

    /// The same world as one that stands for all that differ only in names: processes that
    /// can do the same are sorted, inodes are numbered in the order they are met.
    fn plain(mut self, cast: &Cast) -> World {
        for (i, j) in [(0, 1), (1, 2), (0, 1)] {
            let key = |p: &Process| {
                (
                    p.at,
                    p.round,
                    p.pid,
                    p.dir,
                    p.lock,
                    p.asked,
                    p.turn,
                    p.old != 0,
                )
            };
            if cast.alike(i, j) && key(&self.processes[i]) > key(&self.processes[j]) {
                self.swap(i, j);
            }
        }
        let mut names = [0; 3 * PROCESSES];
        let mut met = 0;
        let mut number = |n: &mut Inode| {
            if *n == 0 {
                return;
            }
            let at = names[..met].iter().position(|k| k == n).unwrap_or_else(|| {
                names[met] = *n;
                met += 1;
                met - 1
            });
            *n = at as Inode + 1;
        };
        number(&mut self.path);
        for p in &mut self.processes {
            number(&mut p.file);
            number(&mut p.old);
        }
        self
    }

    /// Has two processes change places, in everything that is known of them.
    fn swap(&mut self, i: usize, j: usize) {
        self.processes.swap(i, j);
        let renamed = |life: &mut Life| {
            let (slot, round) = (
                (life.wrapping_sub(1) / ROUNDS) as usize,
                life.wrapping_sub(1) % ROUNDS,
            );
            if slot == i {
                *life = j as Life * ROUNDS + round + 1;
            } else if slot == j {
                *life = i as Life * ROUNDS + round + 1;
            }
        };
        for p in &mut self.processes {
            renamed(&mut p.named.1);
            renamed(&mut p.handle);
            renamed(&mut p.holder);
        }
        if let Some(run) = &mut self.run {
            renamed(&mut run.life);
        }
    }

    fn ended(mut self, i: usize) -> World {
        self.processes[i] = Process::nowhere(self.processes[i].round + 1);
        self
    }

    fn is_over(&self, cast: &Cast) -> bool {
        let ends = self.processes.iter().zip(cast.rounds);
        ends.into_iter()
            .all(|(p, rounds)| p.at == At::Nowhere && p.round == rounds)
    }
}

impl Model {
    /// Whether others let process `i` have this lock on the state directory.
    fn dir_gives(&self, w: &World, i: usize, lock: Lock) -> bool {
        let in_the_way = |p: &Process| {
            p.dir == Lock::Exclusive || lock == Lock::Exclusive && p.dir == Lock::Shared
        };
        self.cast.apart || !(0..PROCESSES).any(|j| j != i && in_the_way(&w.processes[j]))
    }

    /// Who else has the file of process `i` locked against this.
    fn file_denied(w: &World, i: usize, lock: Lock) -> Option<&Process> {
        let file = w.processes[i].file;
        w.processes.iter().enumerate().find_map(|(j, p)| {
            let opened = p.file == file
                && (p.lock == Lock::Exclusive || lock == Lock::Exclusive && p.lock == Lock::Shared);
            (j != i && (opened || p.old == file)).then_some(p)
        })
    }

    /// Everything that may happen next.
    fn next(&self, w: &World, out: &mut Vec<Next>) {
        for i in 0..PROCESSES {
            if w.processes[i].at == At::Nowhere {
                self.begin(w, i, out);
            } else {
                self.step(w, i, out);
                if self.cast.kills {
                    out.push((Move::Killed(i), Ok(w.ended(i))));
                }
            }
        }
        if self.cast.meddling && w.path != 0 {
            out.push((Move::PidfileRemoved, Ok(World { path: 0, ..*w })));
        }
        if self.cast.meddling {
            out.push((
                Move::PidfileReplaced,
                Ok(World {
                    path: w.unused(),
                    ..*w
                }),
            ));
        }
        // Only a pid that stands somewhere can be mistaken for another's.
        if let Some(run) = w.run
            && w.stranger == 0
            && w.has(run.pid) == 0
        {
            out.push((
                Move::PidReused,
                Ok(World {
                    stranger: run.pid,
                    ..*w
                }),
            ));
        }
    }

    fn begin(&self, w: &World, i: usize, out: &mut Vec<Next>) {
        let round = w.processes[i].round;
        if round == self.cast.rounds[i] {
            return;
        }
        let free = (1..).find(|&pid| w.has(pid) == 0).expect("there are few");
        let named = w
            .run
            .map(|run| run.pid)
            .filter(|&pid| pid != free && w.has(pid) == 0);
        for &role in self.cast.roles[i] {
            for pid in [Some(free), named].into_iter().flatten() {
                let mut w = *w;
                w.processes[i] = Process {
                    role,
                    pid,
                    at: match role {
                        Role::Start if self.rules.dir_lock => At::DirLock,
                        Role::Start => At::PidfileOpen,
                        Role::Stop => At::StopName,
                        Role::Probe => At::Probe,
                    },
                    ..Process::nowhere(round)
                };
                out.push((Move::Begins(i, role), Ok(w)));
            }
        }
    }

    fn step(&self, w: &World, i: usize, out: &mut Vec<Next>) {
        let me = w.processes[i];
        let moved = Move::Steps(i, me.at);
        let mut go = |change: &dyn Fn(&mut World, &mut Process)| {
            let (mut w, mut p) = (*w, me);
            change(&mut w, &mut p);
            w.processes[i] = p;
            out.push((moved, Ok(w)));
        };
        match me.at {
            At::Nowhere => {}

            At::DirLock if self.dir_gives(w, i, Lock::Exclusive) => go(&|_, p| {
                p.dir = Lock::Exclusive;
                p.at = At::PidfileOpen;
            }),
            At::DirLock if self.rules.tell_probes => go(&|_, p| p.at = At::DirDoubt),
            At::DirLock => {
                let by_poller = !self.dir_gives(w, i, Lock::Shared);
                let refused = if by_poller {
                    Ok(w.ended(i))
                } else {
                    Err(Wrong::Refused)
                };
                out.push((Move::GivesUp(i, me.at), refused));
            }
            At::DirDoubt if self.dir_gives(w, i, Lock::Shared) => go(&|_, p| {
                p.dir = Lock::Shared;
                p.at = At::DirUndoubt;
            }),
            At::DirDoubt => {
                go(&|_, p| p.at = At::DirLock);
                out.push((Move::GivesUp(i, me.at), Ok(w.ended(i))));
            }
            At::DirUndoubt => go(&|_, p| {
                p.dir = Lock::None;
                p.at = At::DirLock;
            }),

            At::PidfileOpen => go(&|w, p| {
                if w.path == 0 {
                    w.path = w.unused();
                }
                p.file = w.path;
                p.at = At::PidfileLock;
            }),
            At::PidfileLock if Self::file_denied(w, i, Lock::Exclusive).is_none() => go(&|_, p| {
                p.lock = Lock::Exclusive;
                p.at = At::PidfileCheck;
            }),
            At::PidfileLock => go(&|_, p| p.at = At::PidfileDoubt),
            At::PidfileDoubt => match Self::file_denied(w, i, Lock::Shared) {
                None => go(&|_, p| {
                    p.lock = Lock::Shared;
                    p.at = At::PidfileUndoubt;
                }),
                Some(holder) => {
                    go(&|_, p| p.at = At::PidfileLock);
                    let by_start = holder.role == Role::Start;
                    if me.old != 0 {
                        // It cannot be put right now; what was held before still is.
                        go(&|_, p| {
                            p.file = p.old;
                            p.lock = Lock::Exclusive;
                            p.old = 0;
                            p.at = At::Poll;
                        });
                    } else if by_start && (self.cast.apart || !self.rules.dir_lock) {
                        out.push((Move::GivesUp(i, me.at), Ok(w.ended(i))));
                    } else if by_start {
                        // Who has the state directory cannot find its pidfile held by another poller.
                        out.push((Move::GivesUp(i, me.at), Err(Wrong::Refused)));
                    }
                }
            },
            At::PidfileUndoubt => go(&|_, p| {
                p.lock = Lock::None;
                p.at = At::PidfileLock;
            }),
            At::PidfileCheck if w.path == me.file || !self.rules.check => go(&|_, p| {
                p.at = if p.old == 0 { At::SayWho } else { At::Poll };
                p.old = 0;
            }),
            At::PidfileCheck => go(&|_, p| {
                p.file = 0;
                p.lock = Lock::None;
                p.at = At::PidfileOpen;
            }),

            At::SayWho => go(&|w, p| {
                if !self.cast.apart {
                    let life = w.life(i);
                    w.run = Some(Run {
                        pid: p.pid,
                        life,
                        asked: false,
                        ending: false,
                    });
                }
                p.at = At::Poll;
            }),
            At::Poll => {
                go(&|_, p| p.at = if p.asked { At::SayAsked } else { At::SayEnding });
                if w.path != me.file {
                    go(&|_, p| {
                        p.old = p.file;
                        p.file = 0;
                        p.lock = Lock::None;
                        p.at = At::PidfileOpen;
                    });
                }
            }
            At::SayAsked => go(&|w, p| {
                w.run = w.run.map(|run| Run { asked: true, ..run });
                p.at = At::SayEnding;
            }),
            At::SayEnding => go(&|w, p| {
                w.run = w.run.map(|run| Run {
                    ending: true,
                    ..run
                });
                p.at = match self.rules.unlink_held {
                    true => At::ReleaseCheck,
                    false => At::ReleasePidfile,
                };
            }),
            At::ReleaseCheck if w.path == me.file => go(&|_, p| p.at = At::ReleaseUnlink),
            At::ReleaseCheck if self.rules.unlink_held => go(&|_, p| p.at = At::ReleasePidfile),
            At::ReleaseCheck => out.push((moved, Ok(w.ended(i)))),
            At::ReleaseUnlink if self.rules.unlink_held => go(&|w, p| {
                w.path = 0;
                p.at = At::ReleasePidfile;
            }),
            At::ReleaseUnlink => out.push((moved, Ok(World { path: 0, ..*w }.ended(i)))),
            At::ReleasePidfile => go(&|_, p| {
                p.lock = Lock::None;
                p.at = At::ReleaseDir;
            }),
            At::ReleaseDir if self.rules.unlink_held => out.push((moved, Ok(w.ended(i)))),
            At::ReleaseDir => go(&|_, p| {
                p.dir = Lock::None;
                p.at = At::ReleaseCheck;
            }),

            At::StopName => go(&|w, p| {
                let named = w.run.map_or((0, 0), |run| (run.pid, run.life));
                p.named = named;
                p.handle = if self.rules.handle_first && named.0 != 0 {
                    w.has(named.0)
                } else {
                    0
                };
                p.at = At::Probe;
            }),
            At::Probe if self.dir_gives(w, i, Lock::Shared) => go(&|_, p| {
                p.dir = Lock::Shared;
                p.named = (0, 0);
                p.handle = 0;
                p.at = At::ProbeFree;
            }),
            At::Probe if me.role == Role::Probe => out.push((moved, Ok(w.ended(i)))),
            At::Probe => go(&|w, p| {
                let holder = (0..PROCESSES).find(|&j| w.processes[j].dir == Lock::Exclusive);
                p.holder = holder.map_or(0, |j| w.life(j));
                p.at = At::StopJudge;
            }),
            At::ProbeFree => go(&|_, p| {
                p.dir = Lock::None;
                p.at = At::LookOpen;
            }),
            At::LookOpen if w.path == 0 => out.push((moved, Ok(w.ended(i)))),
            At::LookOpen => go(&|w, p| {
                p.file = w.path;
                p.at = At::LookLock;
            }),
            At::LookLock if Self::file_denied(w, i, Lock::Shared).is_some() => {
                out.push((moved, Ok(w.ended(i))))
            }
            At::LookLock => go(&|_, p| {
                p.lock = Lock::Shared;
                p.at = At::LookFree;
            }),
            At::LookFree if me.role == Role::Probe => out.push((moved, Ok(w.ended(i)))),
            At::LookFree => go(&|_, p| {
                p.lock = Lock::None;
                p.file = 0;
                p.at = At::RemoveDir;
            }),

            At::StopJudge => {
                let proved = w.run.is_some_and(|run| {
                    let same = !self.rules.identity || w.has(run.pid) == run.life;
                    let handled = !self.rules.handle_first || w.lives(me.handle);
                    w.has(run.pid) != 0
                        && same
                        && handled
                        && me.named == (run.pid, run.life)
                        && !run.ending
                });
                go(&|_, p| {
                    p.at = match (proved, self.rules.handle_first) {
                        (false, _) => At::StopName,
                        (true, false) => At::StopHandle,
                        (true, true) => At::TurnTake,
                    };
                    if !proved {
                        (p.named, p.handle, p.holder) = ((0, 0), 0, 0);
                    }
                });
                if !proved {
                    out.push((Move::GivesUp(i, me.at), Ok(w.ended(i))));
                }
            }
            At::StopHandle => go(&|w, p| {
                p.handle = w.has(p.named.0);
                p.at = At::TurnTake;
            }),
            At::TurnTake => {
                let taken = w.processes.iter().any(|p| p.turn);
                go(&|_, p| {
                    p.turn = self.rules.turns && !taken;
                    p.at = if self.rules.turns {
                        At::TurnLook
                    } else {
                        At::StopSignal
                    };
                });
            }
            At::TurnLook => go(&|w, p| {
                p.at = match (needs_no_signal(w, p), p.turn) {
                    (true, _) => At::TurnEnd,
                    (false, true) => At::StopSignal,
                    (false, false) => At::TurnTake,
                };
            }),
            At::StopSignal => {
                let mut w = *w;
                let hit = (0..PROCESSES).find(|&j| w.life(j) == me.handle && w.lives(me.handle));
                let mut wrong = None;
                if w.lives(me.handle) && me.handle != me.holder {
                    wrong = Some(Wrong::Signalled);
                } else if let Some(j) = hit {
                    // Who is killed in its turn leaves a signal nobody else knows of.
                    if w.processes[j].asked && !self.cast.kills {
                        wrong = Some(Wrong::SignalledTwice);
                    }
                    w.processes[j].asked = true;
                }
                w.processes[i].holder = 0;
                w.processes[i].at = At::TurnEnd;
                out.push((moved, wrong.map_or(Ok(w), Err)));
            }
            At::TurnEnd => {
                if !me.turn || needs_no_signal(w, &me) {
                    go(&|_, p| {
                        p.turn = false;
                        (p.named, p.holder) = ((0, 0), 0);
                        p.at = At::StopWait;
                    });
                }
            }
            At::StopWait => {
                if !w.lives(me.handle) {
                    go(&|_, p| {
                        p.handle = 0;
                        p.at = At::StopProbe;
                    });
                }
            }
            // Held: by another one, since the kernel gives back what the dead held.
            At::StopProbe if !self.dir_gives(w, i, Lock::Shared) => {
                out.push((moved, Ok(w.ended(i))))
            }
            At::StopProbe => go(&|_, p| {
                p.dir = Lock::Shared;
                p.at = At::ProbeFree;
            }),

            At::RemoveDir if self.dir_gives(w, i, Lock::Shared) => go(&|_, p| {
                p.dir = Lock::Shared;
                p.at = At::RemoveOpen;
            }),
            // A poller has started meanwhile.
            At::RemoveDir => go(&|_, p| p.at = At::StopName),
            At::RemoveOpen if w.path == 0 => go(&|_, p| p.at = At::RemoveEnd),
            At::RemoveOpen => go(&|w, p| {
                p.file = w.path;
                p.at = At::RemoveLock;
            }),
            At::RemoveLock if Self::file_denied(w, i, Lock::Exclusive).is_some() => go(&|_, p| {
                p.file = 0;
                p.at = At::RemoveEnd;
            }),
            At::RemoveLock => go(&|_, p| {
                p.lock = Lock::Exclusive;
                p.at = At::RemoveCheck;
            }),
            At::RemoveCheck => {
                let same = w.path == me.file;
                go(&|_, p| {
                    p.at = if same {
                        At::RemoveUnlink
                    } else {
                        At::RemoveEnd
                    }
                });
            }
            At::RemoveUnlink => go(&|w, p| {
                w.path = 0;
                p.at = At::RemoveEnd;
            }),
            At::RemoveEnd => out.push((moved, Ok(w.ended(i)))),
        }
    }
}

/// Whether the process a `stop` is after was asked, is ending or has ended.
fn needs_no_signal(w: &World, p: &Process) -> bool {
    let done = |run: Run| (run.pid, run.life) != p.named || run.asked || run.ending;
    w.run.is_none_or(done) || !w.lives(p.handle)
}

/// What a search came to: how many states there are, and what is wrong with them.
struct Found {
    states: usize,
    wrong: Option<Wrong>,
    story: String,
}

/// Goes through all states there are, nearest first, until something is wrong.
fn search(rules: Rules, cast: Cast) -> Found {
    let model = Model { rules, cast };
    let mut known: HashMap<World, u32> = HashMap::new();
    let mut worlds: Vec<World> = Vec::new();
    let mut came: Vec<(u32, Option<Move>)> = Vec::new();
    // Who leads here by itself: not by a kill, nor by meddling.
    let mut before: Vec<(u32, u32)> = Vec::new();
    for first in World::first() {
        known.insert(first, worlds.len() as u32);
        worlds.push(first);
        came.push((0, None));
    }
    let story = |came: &[(u32, Option<Move>)], at: u32, last: Option<Move>| {
        let mut moves: Vec<Move> = last.into_iter().collect();
        let mut at = at;
        while let (before, Some(step)) = came[at as usize] {
            moves.push(step);
            at = before;
        }
        moves
            .iter()
            .rev()
            .map(|m| format!("\n  {m:?}"))
            .collect::<String>()
    };
    let mut next = Vec::new();
    let mut at = 0;
    while at < worlds.len() {
        let world = worlds[at];
        let here = at as u32;
        at += 1;
        if world.processes.iter().filter(|p| p.polls()).count() > 1 {
            return Found {
                states: worlds.len(),
                wrong: Some(Wrong::TwoPollers),
                story: story(&came, here, None),
            };
        }
        model.next(&world, &mut next);
        for (step, then) in next.drain(..) {
            let then = match then {
                Ok(then) => then.plain(&cast),
                Err(wrong) => {
                    return Found {
                        states: worlds.len(),
                        wrong: Some(wrong),
                        story: story(&came, here, Some(step)),
                    };
                }
            };
            let to = *known.entry(then).or_insert_with(|| {
                worlds.push(then);
                came.push((here, Some(step)));
                worlds.len() as u32 - 1
            });
            if matches!(step, Move::Begins(..) | Move::Steps(..))
                || matches!(step, Move::GivesUp(_, at) if at != At::StopJudge)
            {
                before.push((to, here));
            }
        }
    }
    drop(known);
    let stuck = stuck(&worlds, &cast, before);
    Found {
        states: worlds.len(),
        wrong: stuck.map(|_| Wrong::Stuck),
        story: stuck.map_or(String::new(), |at| story(&came, at, None)),
    }
}

/// A state from which the end cannot be reached any more; `before` are all the steps, backwards.
fn stuck(worlds: &[World], cast: &Cast, mut before: Vec<(u32, u32)>) -> Option<u32> {
    before.sort_unstable();
    let mut ends = vec![false; worlds.len()];
    let mut todo: Vec<u32> = Vec::new();
    for (at, world) in worlds.iter().enumerate() {
        if world.is_over(cast) {
            ends[at] = true;
            todo.push(at as u32);
        }
    }
    while let Some(at) = todo.pop() {
        let from = before.partition_point(|(to, _)| *to < at);
        for (_, earlier) in before[from..].iter().take_while(|(to, _)| *to == at) {
            if !std::mem::replace(&mut ends[*earlier as usize], true) {
                todo.push(*earlier);
            }
        }
    }
    ends.iter().position(|ends| !ends).map(|at| at as u32)
}

/// Searches, prints what that came to, and says what is wrong.
fn searched(what: &str, rules: Rules, cast: Cast) -> Option<Wrong> {
    let found = search(rules, cast);
    println!(
        "{what}: {} states, {:?}{}",
        found.states, found.wrong, found.story
    );
    assert!(
        found.wrong.is_some() || found.states > 10_000,
        "the search sees too little"
    );
    found.wrong
}

/// A long run also looks at what is least likely to matter: the pidfile, to a `stop`.
fn is_long() -> bool {
    crate::world::program::scaled(100) >= 300
}

/// R1.1, R1.3, R1.6, C094. Given three that start, while anybody removes or replaces the pidfile and
/// each may be killed, then never do two poll at once, and with the state directory's lock alone gone they do.
#[test]
fn r1_3_of_all_who_start_one_polls_whatever_happens_to_the_pidfile() {
    let cast = Cast {
        meddling: true,
        ..Cast::of([START; 3])
    };
    assert_eq!(searched("three starts", REAL, cast), None);
    let pidfile_alone = Rules {
        dir_lock: false,
        ..REAL
    };
    assert_eq!(
        searched("the pidfile alone, and deleted", pidfile_alone, cast),
        Some(Wrong::TwoPollers)
    );
}

/// R1.6, R1.7. Given three that share a pidfile by mistake and nothing else, and stops that take it for
/// stale, then never do two poll at once; without the look at the path after the lock, or with
/// the pidfile removed once it is unlocked, they do.
#[test]
fn r1_6_the_pidfile_excludes_by_itself() {
    let cast = Cast {
        apart: true,
        ..Cast::of([START_OR_STOP; 3])
    };
    assert_eq!(searched("a shared pidfile", REAL, cast), None);
    let unchecked = Rules {
        check: false,
        ..REAL
    };
    assert_eq!(
        searched("no look at the path", unchecked, cast),
        Some(Wrong::TwoPollers)
    );
    let late = Rules {
        unlink_held: false,
        ..REAL
    };
    assert_eq!(
        searched("removed after the release", late, cast),
        Some(Wrong::TwoPollers)
    );
}

/// R1.7. Given two that start and one that probes, then none is refused but by a poller; if a
/// start takes whatever it finds locked for a poller's, one is.
#[test]
fn r1_7_no_start_is_refused_because_of_a_probe() {
    let cast = Cast {
        meddling: true,
        ..Cast::of([START, START, PROBE])
    };
    assert_eq!(searched("two starts and a probe", REAL, cast), None);
    let blunt = Rules {
        tell_probes: false,
        ..REAL
    };
    assert_eq!(
        searched("a probe taken for a poller", blunt, cast),
        Some(Wrong::Refused)
    );
}

/// R2.1, R2.4. Given pollers that are stopped or killed, and whose pids are given away, then a `stop` signals nobody
/// but the process that held the lock when that was proved; with the handle opened after the proof, or
/// without a look at the start time, it hits a stranger.
#[test]
fn r2_1_a_signal_reaches_the_proved_holder_and_nobody_else() {
    let cast = Cast {
        meddling: is_long(),
        ..Cast::of([START, START, STOP])
    };
    assert_eq!(searched("two starts and a stop", REAL, cast), None);
    let late = Rules {
        handle_first: false,
        ..REAL
    };
    assert_eq!(
        searched("the handle after the proof", late, cast),
        Some(Wrong::Signalled)
    );
    let trusting = Rules {
        identity: false,
        ..REAL
    };
    assert_eq!(
        searched("no start time", trusting, cast),
        Some(Wrong::Signalled)
    );
}

/// R2.1, R2.6. Given two stops at once, then the poller gets one signal; if they take no turns, it gets two.
#[test]
fn r2_6_two_stops_at_once_signal_once() {
    let cast = Cast {
        rounds: if is_long() {
            [ROUNDS; PROCESSES]
        } else {
            [ROUNDS, 1, 1]
        },
        kills: false,
        ..Cast::of([START, STOP, STOP])
    };
    assert_eq!(searched("two stops", REAL, cast), None);
    let kills = Cast {
        kills: true,
        ..cast
    };
    assert_eq!(searched("two stops, and kills", REAL, kills), None);
    let rash = Rules {
        turns: false,
        ..REAL
    };
    assert_eq!(
        searched("no turns", rash, cast),
        Some(Wrong::SignalledTwice)
    );
}
