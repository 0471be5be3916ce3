//! `idempoll --version`: which program this is, in one line.

use crate::engine::time::Time;

/// The version, as in `Cargo.toml`.
pub(super) const NUMBER: &str = env!("CARGO_PKG_VERSION");

/// `idempoll 0.1.0 (1a2b3c4d5e 2026-11-30, x86_64-unknown-linux-musl)`: the commit and its day
/// (or the one a packager named), as far as they are known, and the target; then `debug` if it
/// was built so, and the features that are not there by default.
#[must_use]
pub(super) fn line() -> String {
    let commit = env!("IDEMPOLL_BUILT_FROM");
    let from = [commit.to_string(), day().unwrap_or_default()];
    let from: Vec<String> = from.into_iter().filter(|part| !part.is_empty()).collect();
    let mut parts = vec![
        from.join(" "),
        env!("IDEMPOLL_BUILT_FOR").to_string(),
        env!("IDEMPOLL_BUILT_AS").to_string(),
    ];
    parts.extend(features().map(|name| format!("with {name}")));
    parts.retain(|part| !part.is_empty());
    format!("idempoll {NUMBER} ({})", parts.join(", "))
}

/// The day of the build's commit, or of `SOURCE_DATE_EPOCH`, in UTC: `2026-11-30`.
pub(super) fn day() -> Option<String> {
    let seconds: u64 = env!("IDEMPOLL_BUILT_OF").parse().ok()?;
    let time = Time(seconds.saturating_mul(1000)).to_string();
    time.split_once('T').map(|(day, _)| day.to_string())
}

/// The features this was built with that are not there by default.
fn features() -> impl Iterator<Item = &'static str> {
    [
        (cfg!(feature = "mutants"), "mutants"),
        (cfg!(feature = "shuttle"), "shuttle"),
    ]
    .into_iter()
    .filter_map(|(with, name)| with.then_some(name))
}
