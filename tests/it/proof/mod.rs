//! The proof: the real program, ended or failed at every point where it can be, and what came of it.
//!
//! `docs/proof.md` says what each part covers; `tests/proof` runs them.

#[cfg(target_arch = "x86_64")]
mod kills;
mod scene;
#[cfg(target_arch = "x86_64")]
mod traced;
