//! Hosts on disk: `hosts/<host>~<token>.json`, which is [`Host`] as JSON with `version`.
//!
//! Written when a cool-down begins and once after it is over; what else the
//! file says of limits is as old as that. Nothing is lost with it but a
//! cool-down, which the host then asks for again.

use super::atomic;
use super::disk;
use super::head::{Keys, VERSION, Wrong};
use super::ledger::Ledger;
use super::reader::{LoadError, read_file, slugs_in};
use crate::engine::delivery::Slug;
use crate::engine::host::Host;
use crate::engine::time::Time;
use crate::error::Error;
use serde::Serialize;
use std::path::PathBuf;

/// The file.
#[derive(Serialize)]
struct File<'a> {
    version: u64,
    #[serde(flatten)]
    host: &'a Host,
}

impl Ledger {
    /// The names of the hosts on disk.
    ///
    /// # Errors
    /// Names the directory.
    pub fn hosts(&self) -> Result<Vec<Slug>, Error> {
        slugs_in(&self.layout.hosts(), ".json")
    }

    /// The host named `slug`. One that is over for long is removed: tokens come and go.
    ///
    /// # Errors
    /// See [`LoadError`]. After `Damaged`, set it aside.
    pub fn load_host(&mut self, slug: &Slug, now: Time) -> Result<Option<Host>, LoadError> {
        let path = self.layout.host(slug);
        let Some((bytes, modified)) = read_file(&path)? else {
            return Ok(None);
        };
        match parse(&bytes, slug) {
            Ok(host) if host.is_over(now) => {
                // One too many does no harm.
                let _ = disk::remove(&path);
                Ok(None)
            }
            Ok(host) => Ok(Some(host)),
            Err(Wrong::Newer(version)) => Err(LoadError::Newer { version }),
            Err(Wrong::Damaged(reason)) => Err(LoadError::Damaged { reason, modified }),
        }
    }

    /// Saves a host durably. 2 syncs.
    ///
    /// # Errors
    /// Names the file.
    pub fn save_host(&self, host: &Host) -> Result<(), Error> {
        let path = self.layout.host(&host.slug());
        let version = VERSION;
        let bytes = serde_json::to_vec(&File { version, host })
            .map_err(|e| Error::new(format!("cannot write {}", path.display()), e))?;
        atomic::write(&path, &bytes)
    }

    /// Puts a damaged file out of the way and says where it is now:
    /// `hosts/aside/<slug>.<n>.json`.
    ///
    /// # Errors
    /// Names the file, which is where it was.
    pub fn set_host_aside(&mut self, slug: &Slug) -> Result<PathBuf, Error> {
        let aside = self.layout.hosts_aside();
        self.put_aside(&aside, slug, &self.layout.host(slug), None)
    }
}

fn parse(bytes: &[u8], slug: &Slug) -> Result<Host, Wrong> {
    Keys::parse(bytes)?;
    let host: Host = serde_json::from_slice(bytes)?;
    if host.slug() != *slug {
        let what = format!("it is the file of {}", host.slug());
        return Err(Wrong::Damaged(what));
    }
    Ok(host)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::super::disk::trace::{self, Break};
    use super::super::testing::{Dir, temps};
    use super::*;

    const NOW: Time = Time(1_785_924_000_000);

    fn host() -> Host {
        Host {
            host: "[::1]".into(),
            token: "3fa9c1d20b7e4455".into(),
            limit: Some(5000),
            remaining: Some(4890),
            reset_at: Some(Time(NOW.0 + 2_400_000)),
            not_before: Some(Time(NOW.0 + 60_000)),
            asked_to_wait_at: Some(NOW),
            throttled: 1,
            requests_last_cycle: 3,
            counted_last_cycle: 1,
            next_listing_at: None,
        }
    }

    /// Given a cool-down that was saved, when the ledger is opened again, then it is there as
    /// it was (C010); cut at any step, it is there whole or not at all.
    #[test]
    fn c010_a_cool_down_is_durable() {
        for fail in 0.. {
            let dir = Dir::new();
            let ledger = Ledger::open(dir.layout()).expect("open");
            trace::start(Break::KilledAt(fail));
            let done = ledger.save_host(&host());
            let syncs = trace::syncs(&trace::stop());
            let mut ledger = Ledger::open(dir.layout()).expect("open");
            let found = ledger.hosts().expect("a directory");
            if done.is_ok() {
                assert_eq!(syncs, 2);
                assert_eq!(found[0].as_str(), "___1_~3fa9c1d20b7e4455");
            }
            for slug in found {
                assert_eq!(ledger.load_host(&slug, NOW), Ok(Some(host())));
            }
            assert_eq!(temps(dir.path()), Vec::<PathBuf>::new());
            if done.is_ok() {
                break;
            }
        }
    }

    /// Given what was asked for more than a day ago, when it is loaded, then it is forgotten.
    #[test]
    fn a_token_that_is_not_used_any_more_leaves_nothing() {
        let dir = Dir::new();
        let mut ledger = Ledger::open(dir.layout()).expect("open");
        ledger.save_host(&host()).expect("saved");
        let later = Time(NOW.0 + 25 * 3_600_000);
        assert_eq!(ledger.load_host(&host().slug(), later), Ok(None));
        assert_eq!(ledger.hosts(), Ok(vec![]));
    }

    /// Given a file damaged at any byte, of another host, or of a newer version, when it
    /// is loaded, then it is told apart, and a damaged one can be set aside (C113).
    #[test]
    fn c113_a_damaged_host_is_set_aside_and_a_newer_one_left_alone() {
        let dir = Dir::new();
        let mut ledger = Ledger::open(dir.layout()).expect("open");
        ledger.save_host(&host()).expect("saved");
        let slug = host().slug();
        let path = dir.layout().host(&slug);
        let whole = std::fs::read(&path).expect("there");
        let other = r#"{"version": 1, "host": "other", "token": "x"}"#;
        let damaged = (0..whole.len()).map(|cut| whole[..cut].to_vec());
        for bytes in damaged.chain([other.into()]) {
            std::fs::write(&path, &bytes).expect("damaged");
            let loaded = ledger.load_host(&slug, NOW);
            assert!(
                matches!(loaded, Err(LoadError::Damaged { .. })),
                "{}",
                bytes.escape_ascii()
            );
        }
        let aside = ledger.set_host_aside(&slug).expect("set aside");
        assert!(aside.ends_with("hosts/aside/___1_~3fa9c1d20b7e4455.1.json"));
        assert_eq!(ledger.load_host(&slug, NOW), Ok(None));
        std::fs::write(&path, r#"{"version": 3}"#).expect("newer");
        let newer = LoadError::Newer { version: 3 };
        assert_eq!(ledger.load_host(&slug, NOW), Err(newer));
        assert!(path.exists());
    }
}
