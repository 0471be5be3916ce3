//! What the ledger promises, proved: one file per kind of trouble.
#![allow(clippy::disallowed_methods, clippy::print_stderr, reason = "tests")]

mod any_record;
mod bounds;
mod crashes;
mod damage;
mod files;
mod growth;
mod records;

use super::disk::Step;
use super::disk::trace::{self, Break};
use super::testing::{
    Dir, add_baseline, add_pending, bare, begin_first, files, new_record, payload, resolve_first,
    temps,
};
use super::{Ledger, LoadError, Reader};
use crate::engine::delivery::{EventKind, Key, Slug};
use crate::engine::record::{Disposition, Event, GaveUp, Queue, Record, Resolved, Tries};
use crate::engine::time::Time;
use proptest::prelude::*;
use serde_json::json;
use std::path::{Path, PathBuf};

fn open(dir: &Dir) -> Ledger {
    Ledger::open(dir.layout()).expect("the ledger opens")
}

/// Records as [`Ledger::save_all`] takes them.
fn all(records: &mut [(Slug, Record)]) -> Vec<(Slug, &mut Record)> {
    records.iter_mut().map(|(s, r)| (s.clone(), r)).collect()
}

/// Loads through a ledger just opened, as the next start does.
fn reload(dir: &Dir, slug: &Slug) -> Record {
    open(dir)
        .load(slug)
        .expect("it loads")
        .expect("it is there")
}
