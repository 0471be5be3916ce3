//! What each source covers, so that nothing reaches one sink by two routes.

use super::spot::Spot;
use std::collections::BTreeMap;
use std::path::Path;

/// What was claimed so far: which place goes to which sink, and where the config says so.
#[derive(Default)]
pub(super) struct Claims(BTreeMap<(String, String), String>);

impl Claims {
    /// The repository `repo` (`owner/repo`) of `host` goes to `sinks`.
    pub(super) fn repo(&mut self, spot: &Spot, host: &str, repo: &str, sinks: &[String]) {
        let place = format!("github {host}/{}", repo.to_ascii_lowercase());
        self.claim(spot, place, &format!("the repository '{repo}'"), sinks);
    }

    /// The directory `path` goes to `sinks`.
    pub(super) fn dir(&mut self, spot: &Spot, path: &Path, sinks: &[String]) {
        // Two spellings of one directory are one; a directory not there yet has only its spelling.
        let real = std::fs::canonicalize(path);
        let place = format!("dir {}", real.as_deref().unwrap_or(path).display());
        let what = format!(
            "the directory '{}'",
            path.display().to_string().escape_debug()
        );
        self.claim(spot, place, &what, sinks);
    }

    fn claim(&mut self, spot: &Spot, place: String, what: &str, sinks: &[String]) {
        let at = format!("{} (line {})", spot.path, spot.line());
        let mut taken: Option<(&str, String)> = None;
        for sink in sinks {
            let first = self
                .0
                .entry((place.clone(), sink.clone()))
                .or_insert_with(|| at.clone());
            if *first != at && taken.is_none() {
                taken = Some((sink, first.clone()));
            }
        }
        if let Some((sink, first)) = taken {
            spot.wrong(format!(
                "{what} goes to the sink '{sink}' already, from {first}"
            ));
        }
    }
}
