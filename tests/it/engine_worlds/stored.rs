//! Cases as files: what once failed, and is tried again for ever.

use crate::world::sim::Case;
use serde::{Deserialize, Serialize};

/// `fixtures/scenarios/NN-name.json`.
#[derive(Serialize, Deserialize)]
pub struct Stored {
    /// What went wrong here.
    pub why: String,
    #[serde(flatten)]
    pub case: Case,
}

/// A case as it is stored.
pub fn text(why: &str, case: &Case) -> String {
    let stored = Stored {
        why: why.into(),
        case: case.clone(),
    };
    serde_json::to_string_pretty(&stored).expect("plain values")
}
