//! Cases as files: what once failed, and is tried again for ever.

use crate::world::sim::Case;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// `fixtures/scenarios/NN-name.json`.
#[derive(Serialize, Deserialize)]
pub struct Stored {
    /// What went wrong here.
    pub why: String,
    #[serde(flatten)]
    pub case: Case,
}

/// A case as it is stored: a line for each stage and for the rest.
pub fn text(why: &str, case: &Case) -> String {
    let stored = Stored {
        why: why.into(),
        case: case.clone(),
    };
    let text = serde_json::to_string(&stored).expect("plain values");
    let text = text.replace("\"stages\":[[", "\n \"stages\":[\n  [");
    let text = text
        .replace("],[{", "],\n  [{")
        .replace("]],\"sinks", "]],\n \"sinks");
    let text = text.replace(",\"script", ",\n\"script");
    text.replace(",\"blows", ",\n\"blows") + "\n"
}

/// All that are stored, by file name.
pub fn all() -> Vec<(String, Stored)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/scenarios");
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let files = files.filter(|f| f.path().extension().is_some_and(|e| e == "json"));
    let mut all: Vec<(String, Stored)> = files
        .map(|file| {
            let name = file.file_name().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(file.path()).expect("it can be read");
            let stored = serde_json::from_str(&text);
            (
                name.clone(),
                stored.unwrap_or_else(|e| panic!("{name}: {e}")),
            )
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}
