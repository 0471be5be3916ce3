//! What a world is: what happens upstream, how its sinks behave, and what befalls the poller.
//! All of it follows from a seed, and all of it can be stored as a file.

use serde::{Deserialize, Serialize};

/// A small generator: worlds must be the same on every machine, from their seed alone.
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let x = self.0 ^ (self.0 >> 29);
        (x.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) % sides
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}

/// Something that happens upstream, at a stage. `stranger`: by somebody who may not act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Happening {
    Open {
        number: u64,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stranger: bool,
    },
    Say {
        number: u64,
        id: u64,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stranger: bool,
    },
    Close {
        number: u64,
    },
    Reopen {
        number: u64,
    },
    Vanish {
        number: u64,
    },
    Edit {
        number: u64,
    },
}

/// What a sink still knows of a try after its poller died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keeps {
    /// Everything, and tries go on without the poller; a power cut ends those under way (`exec`).
    Receipts,
    /// The same, but a power cut takes the receipts along (`tmux`).
    ReceiptsInMemory,
    /// Nothing: a try ends with its poller (`http`).
    Nothing,
}

/// How one try of a delivery goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Try {
    Delivers,
    /// It delivers, but takes ten minutes.
    DeliversSlowly,
    Fails,
    /// It hangs until the sink's patience is over, half an hour later.
    Hangs,
    /// "Not now".
    Defers,
    /// "Not now, but in two minutes".
    DefersUntil,
    /// It will never be taken.
    Refuses,
}

/// What befalls the poller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blow {
    /// SIGKILL.
    Kill,
    /// The machine dies. What was not durable is lost or there, as the number decides.
    PowerCut(u64),
    /// A stop: the poller drains and ends by itself.
    Stop,
    /// The clock is set by so many seconds.
    Clock(i64),
}

/// A world: what happens at which stage, and how each delivery behaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// Decides what is not written here: how each delivery goes, how long it takes,
    /// which listings are cut.
    pub seed: u64,
    pub stages: Vec<Vec<Happening>>,
    /// The sinks of the one source.
    pub sinks: Vec<Keeps>,
    /// Whether listings bring only what changed (as a forge does) or everything (as a directory does).
    pub changes_only: bool,
    /// Whether a cycle waits for its deliveries.
    pub once: bool,
    /// Whether listings and tries fail at all.
    pub troubled: bool,
}

/// A world and what befalls its poller: when, counted in points at which it can die, and what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    pub script: Script,
    pub blows: Vec<(u64, Blow)>,
    /// How many of a hundred saves fail.
    #[serde(default)]
    pub refusals: u64,
}

impl Script {
    pub fn random(seed: u64) -> Script {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let items = 1 + dice.roll(4);
        let mut stages = Vec::new();
        let (mut next_id, mut there): (u64, Vec<Option<bool>>) =
            (1, vec![None; items as usize + 1]);
        let changes_only = dice.chance(50);
        for _ in 0..2 + dice.roll(4) {
            let mut happenings = Vec::new();
            for number in 1..=items {
                let here = &mut there[number as usize];
                match *here {
                    None if dice.chance(70) => {
                        let stranger = dice.chance(20);
                        happenings.push(Happening::Open { number, stranger });
                        *here = Some(true);
                    }
                    None => continue,
                    Some(open) => {
                        for _ in 0..dice.roll(4) {
                            happenings.push(Happening::Say {
                                number,
                                id: next_id,
                                stranger: dice.chance(20),
                            });
                            next_id += 1;
                        }
                        match dice.roll(6) {
                            0 if open => {
                                happenings.push(Happening::Close { number });
                                *here = Some(false);
                            }
                            0 | 1 if !open => {
                                happenings.push(Happening::Reopen { number });
                                *here = Some(true);
                            }
                            2 if !changes_only && open => {
                                happenings.push(Happening::Vanish { number });
                                *here = None;
                            }
                            3 => happenings.push(Happening::Edit { number }),
                            _ => {}
                        }
                    }
                }
            }
            stages.push(happenings);
        }
        let sinks = (0..1 + dice.roll(2)).map(|_| match dice.roll(4) {
            0 | 1 => Keeps::Receipts,
            2 => Keeps::ReceiptsInMemory,
            _ => Keeps::Nothing,
        });
        Script {
            seed,
            stages,
            sinks: sinks.collect(),
            changes_only,
            once: seed.is_multiple_of(2),
            troubled: true,
        }
    }

    /// How the n-th try of a delivery goes, of those whose end is known.
    pub fn how(&self, sink: &str, id: &str, n: usize) -> Try {
        if !self.troubled {
            return Try::Delivers;
        }
        let mut h = self.seed;
        for b in sink.bytes().chain(id.bytes()) {
            h = (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
        }
        let mut dice = Dice(h | 1);
        let deferral = match dice.roll(20) {
            0 => Some(Try::Defers),
            1 => Some(Try::DefersUntil),
            _ => None,
        };
        let n = match (deferral, n) {
            (Some(deferral), 0) => return deferral,
            (Some(_), n) => n - 1,
            (None, n) => n,
        };
        let failing = match dice.roll(24) {
            0..=15 => 0,
            16 | 17 => 1,
            18 => 2,
            19 if n == 0 => return Try::Refuses,
            20 if n == 0 => return Try::Hangs,
            19 | 20 => 0,
            21 => 3,
            _ => 9, // beyond every budget: given up
        };
        match () {
            () if n < failing => Try::Fails,
            () if dice.chance(8) => Try::DeliversSlowly,
            () => Try::Delivers,
        }
    }
}
