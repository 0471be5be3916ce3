//! What a tracker's host lets one token ask: its budget, and how long to stay away.

use super::time::Time;

/// What a host said during one listing of what one token may still ask.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Budget {
    /// The host: `api.github.com`.
    pub host: String,
    /// Which token, by a name that does not tell it.
    pub token: String,
    /// How many requests this listing made.
    pub requests: u64,
    /// How many of those count against the limit.
    pub counted: u64,
    /// Requests allowed in each period, if the host limits them.
    pub limit: Option<u64>,
    /// Requests left in this period.
    pub remaining: Option<u64>,
    /// When the next period begins, by our clock.
    pub reset_at: Option<Time>,
    /// Nothing may be asked with this token before, by our clock.
    pub not_before: Option<Time>,
}
