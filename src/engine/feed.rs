//! What is remembered of one feed: where its listing left off and who is there.

use super::time::Time;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The durable state of one feed, `STATE/sources/<slug>.json`. Saved only when
/// it changed, and only after every record its listing touched is durable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Feed {
    /// The format, 1.
    pub version: u32,
    /// When the feed was first watched; never changes.
    pub watch_from: Time,
    /// Where the last complete listing left off, in the provider's words.
    #[serde(default)]
    pub cursor: Option<Value>,
    /// The numbers of the items being worked on, as runs: `[[1, 200], [207, 207]]`.
    #[serde(default)]
    pub open: Runs,
    /// Items of `open` that complete listings did not show, and how many in a row.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<u64, u32>,
    /// The rules the items were last judged by; when the config's differ, the
    /// next listing starts from the beginning, so that every item is judged anew.
    #[serde(default)]
    pub judged_by: String,
    /// Keys a newer minor release may have added.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Feed {
    /// A feed of which only the beginning is known.
    #[must_use]
    pub fn new(watch_from: Time) -> Feed {
        Feed {
            version: 1,
            watch_from,
            cursor: None,
            open: Runs::default(),
            absent: BTreeMap::new(),
            judged_by: String::new(),
            extra: Map::new(),
        }
    }
}

/// A set of numbers, stored as runs of neighbours.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Runs(BTreeMap<u64, u64>);

impl Runs {
    /// Adds `n`; says whether it was new.
    pub fn insert(&mut self, n: u64) -> bool {
        let left = self.0.range(..=n).next_back().map(|(&a, &b)| (a, b));
        if left.is_some_and(|(_, b)| n <= b) {
            return false;
        }
        let start = match left {
            Some((a, b)) if b.checked_add(1) == Some(n) => a,
            _ => n,
        };
        let end = match n.checked_add(1).and_then(|next| self.0.remove(&next)) {
            Some(end) => end,
            None => n,
        };
        self.0.insert(start, end);
        true
    }

    /// Removes `n`; says whether it was there.
    pub fn remove(&mut self, n: u64) -> bool {
        let Some((a, b)) = self.0.range(..=n).next_back().map(|(&a, &b)| (a, b)) else {
            return false;
        };
        if n > b {
            return false;
        }
        self.0.remove(&a);
        if a < n {
            self.0.insert(a, n - 1);
        }
        if n < b {
            self.0.insert(n + 1, b);
        }
        true
    }

    /// Whether `n` is in it.
    #[must_use]
    pub fn contains(&self, n: u64) -> bool {
        self.0.range(..=n).next_back().is_some_and(|(_, &b)| n <= b)
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().flat_map(|(&a, &b)| a..=b)
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.0.iter().map(|(&a, &b)| b - a + 1).sum::<u64>()).unwrap_or(usize::MAX)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Vec<(u64, u64)>> for Runs {
    fn from(v: Vec<(u64, u64)>) -> Runs {
        let mut runs = Runs::default();
        for (a, b) in v {
            // A run that overlaps another can only come from a hand-edited file.
            if a <= b
                && runs
                    .0
                    .range(..=b)
                    .next_back()
                    .is_none_or(|(_, &end)| end < a)
            {
                runs.0.insert(a, b);
            }
        }
        runs
    }
}

impl From<Runs> for Vec<(u64, u64)> {
    fn from(r: Runs) -> Vec<(u64, u64)> {
        r.0.into_iter().collect()
    }
}

impl FromIterator<u64> for Runs {
    fn from_iter<I: IntoIterator<Item = u64>>(iter: I) -> Runs {
        let mut runs = Runs::default();
        for n in iter {
            runs.insert(n);
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn runs_behave_as_a_set() {
        let mut runs = Runs::default();
        let mut set = BTreeSet::new();
        let mut x = 7u64;
        for _ in 0..4000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let n = (x >> 33) % 60;
            if (x >> 20).is_multiple_of(3) {
                assert_eq!(runs.remove(n), set.remove(&n));
            } else {
                assert_eq!(runs.insert(n), set.insert(n));
            }
            assert_eq!(
                runs.iter().collect::<Vec<_>>(),
                set.iter().copied().collect::<Vec<_>>()
            );
            assert_eq!(runs.len(), set.len());
            assert_eq!(runs.contains(n), set.contains(&n));
        }
        let stored: Vec<(u64, u64)> = runs.clone().into();
        assert_eq!(Runs::from(stored), runs);
        assert_eq!([u64::MAX].into_iter().collect::<Runs>().len(), 1);
    }
}
