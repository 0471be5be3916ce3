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

/// Rows by their ids, with every version each ever had; `None` is its absence.
#[derive(Debug)]
pub struct Table<T> {
    rows: BTreeMap<u64, Vec<(Time, Option<T>)>>,
    changes: u64,
    last_change: Time,
    /// Orders of the newest versions, each as of a number of changes.
    orders: BTreeMap<&'static str, (u64, Arc<Vec<Place>>)>,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table {
            rows: BTreeMap::new(),
            changes: 0,
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
        self.changes += 1;
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

    /// Every row as of then in the order of `by`, which `name` stands for.
    pub fn ordered(
        &mut self,
        seen: Seen,
        name: &'static str,
        by: impl Fn(&T) -> u64,
        tie: impl Fn(u64) -> u64,
    ) -> Arc<Vec<Place>> {
        let newest = seen.sees(self.last_change);
        if let (true, Some((changes, order))) = (newest, self.orders.get(name))
            && *changes == self.changes
        {
            return order.clone();
        }
        let seen = if newest { Seen::Now } else { seen };
        let rows = self.all(seen).map(|(id, row)| (by(row), tie(id), id));
        let mut order: Vec<Place> = rows.collect();
        order.sort_unstable();
        let order = Arc::new(order);
        if newest {
            self.orders.insert(name, (self.changes, order.clone()));
        }
        order
    }

    /// Forgets the orders, since ties are broken in another way from now on.
    pub fn reorder(&mut self) {
        self.orders.clear();
    }
}

fn version<T>(versions: &[(Time, Option<T>)], seen: Seen) -> Option<&T> {
    let found = match seen {
        Seen::Now => versions.last(),
        Seen::At(_) => versions.iter().rev().find(|(at, _)| seen.sees(*at)),
    };
    found.and_then(|(_, row)| row.as_ref())
}
