//! Rows that remember what they were, and their order.

use idempoll::engine::time::Time;
use std::collections::BTreeMap;
use std::sync::Arc;

/// As of when something is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    Now,
    At(Time),
}

impl Seen {
    /// Whether what happened then is visible.
    pub fn sees(self, then: Time) -> bool {
        match self {
            Seen::Now => true,
            Seen::At(at) => then <= at,
        }
    }
}

/// What an order goes by, what breaks a tie, and the row.
pub type Place = (u64, u64, u64);

/// As of how many changes, and what.
type Order = (usize, Arc<Vec<Place>>);

/// Rows by their ids, with every version each ever had; `None` is its absence.
#[derive(Debug)]
pub struct Table<T> {
    rows: BTreeMap<u64, Vec<(Time, Option<T>)>>,
    /// Which row each change was of.
    changes: Vec<u64>,
    last_change: Time,
    /// Orders of the newest versions, each as of a number of changes.
    /// How ties are broken is part of an order's name.
    orders: BTreeMap<(&'static str, u64), Order>,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table {
            rows: BTreeMap::new(),
            changes: Vec::new(),
            last_change: Time::ZERO,
            orders: BTreeMap::new(),
        }
    }
}

impl<T: Clone> Table<T> {
    pub fn put(&mut self, now: Time, id: u64, row: T) {
        self.add(now, id, Some(row));
    }

    pub fn remove(&mut self, now: Time, id: u64) {
        self.add(now, id, None);
    }

    fn add(&mut self, now: Time, id: u64, version: Option<T>) {
        self.rows.entry(id).or_default().push((now, version));
        self.changes.push(id);
        self.last_change = self.last_change.max(now);
    }

    /// A row as it is.
    pub fn get(&self, id: u64) -> Option<&T> {
        self.seen(id, Seen::Now)
    }

    /// A row as of then.
    pub fn seen(&self, id: u64, seen: Seen) -> Option<&T> {
        version(self.rows.get(&id)?, seen)
    }

    /// A row as it is, to make the next version of.
    pub fn take(&self, what: &str, id: u64) -> T {
        let row = self.get(id).cloned();
        row.unwrap_or_else(|| panic!("there is no {what} {id}"))
    }

    /// Every row as of then, by id.
    pub fn all(&self, seen: Seen) -> impl Iterator<Item = (u64, &T)> {
        let rows = self.rows.iter();
        rows.filter_map(move |(&id, versions)| Some((id, version(versions, seen)?)))
    }

    /// The rows as of then in the order of `by`, which `name` stands for; those
    /// of which it says nothing are left out.
    pub fn ordered(
        &mut self,
        seen: Seen,
        name: &'static str,
        by: impl Fn(&T) -> Option<u64>,
        tie: impl Fn(u64) -> u64,
    ) -> Arc<Vec<Place>> {
        let place = |id, row: &T| Some((by(row)?, tie(id), id));
        if !seen.sees(self.last_change) {
            let places = self.all(seen).filter_map(|(id, row)| place(id, row));
            let mut order: Vec<Place> = places.collect();
            order.sort_unstable();
            return Arc::new(order);
        }
        let name = (name, tie(1));
        let order = match self.orders.remove(&name) {
            Some((changes, order)) if changes == self.changes.len() => order,
            // Few changes since: what has moved is put where it belongs now.
            Some((changes, mut order)) if self.changes.len() - changes < 8 => {
                let moved = &self.changes[changes..];
                let places = Arc::make_mut(&mut order);
                places.retain(|(_, _, id)| !moved.contains(id));
                for (at, &id) in moved.iter().enumerate() {
                    let place = self.get(id).and_then(|row| place(id, row));
                    if let (Some(place), false) = (place, moved[..at].contains(&id)) {
                        places.insert(places.partition_point(|p| *p < place), place);
                    }
                }
                order
            }
            _ => {
                let rows = self.all(Seen::Now);
                let mut order: Vec<Place> = rows.filter_map(|(id, row)| place(id, row)).collect();
                order.sort_unstable();
                Arc::new(order)
            }
        };
        let entry = (self.changes.len(), order.clone());
        self.orders.insert(name, entry);
        order
    }
}

fn version<T>(versions: &[(Time, Option<T>)], seen: Seen) -> Option<&T> {
    let found = match seen {
        Seen::Now => versions.last(),
        Seen::At(_) => versions.iter().rev().find(|(at, _)| seen.sees(*at)),
    };
    found.and_then(|(_, row)| row.as_ref())
}
