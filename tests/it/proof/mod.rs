//! The proof: the real program, ended or failed at every point where it can be, and what came of it.
//!
//! `docs/proof.md` says what each part covers; `tests/proof` runs them. They trace what they run, and
//! read its registers, which is written for one kind of machine.
#![cfg(target_arch = "x86_64")]

mod failures;
mod fuzz;
mod kills;
mod parsers;
mod power;
mod scene;
mod sweep;
mod traced;
