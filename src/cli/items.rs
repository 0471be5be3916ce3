//! `idempoll items`: the items known. Takes no lock, changes nothing.

use super::args::{Global, Items};
use super::out::Out;
use super::records;
use crate::engine::item::ItemRef;
use crate::engine::record::Record;
use crate::engine::time::Time;
use crate::error::Error;
use crate::exit::Exit;
use crate::store::{Layout, Reader};
use crate::terminal::{cut, shown};
use serde::Serialize;

/// One item as `items --json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Row {
    /// Its name.
    #[serde(rename = "ref")]
    item: ItemRef,
    /// The source it comes from.
    source: String,
    /// Its title, as upstream wrote it.
    title: String,
    /// `open`, `closed`, `merged` or `gone`.
    state: &'static str,
    /// Deliveries that wait.
    pending: usize,
    /// Deliveries given up.
    gave_up: usize,
    /// Deliveries made, ever.
    delivered: u64,
    /// When the last one was.
    last_delivery_at: Option<Time>,
}

impl Row {
    fn of(record: &Record) -> Row {
        Row {
            item: record.item.clone(),
            source: record.source.clone(),
            title: record.seen.title.clone(),
            state: records::standing(record),
            pending: record.pending(),
            gave_up: record.gave_up(),
            delivered: record.delivered(),
            last_delivery_at: record.last_delivery_at(),
        }
    }
}

/// Prints the items.
pub(super) fn run(global: &Global, args: &Items, out: &mut Out) -> Result<Exit, Error> {
    let reader = Reader::new(Layout::new(super::places(global)?.state_dir));
    let slugs = if args.pending || args.gave_up {
        reader.pending()?
    } else {
        reader.slugs()?
    };
    let (records, lost) = records::load(&reader, slugs);
    let mut rows: Vec<Row> = records
        .iter()
        .map(|(_, record)| Row::of(record))
        .filter(|row| match (args.pending, args.gave_up) {
            (false, false) => true,
            (pending, gave_up) => (pending && row.pending > 0) || (gave_up && row.gave_up > 0),
        })
        .collect();
    rows.sort_by(|a, b| (&a.item, &a.source).cmp(&(&b.item, &b.source)));
    if args.json {
        out.json(&rows);
    } else {
        print(&rows, out);
    }
    match lost {
        0 => Ok(Exit::Done),
        n => Err(Error::new(
            format!(
                "{} could not be read",
                super::when::count(n as u64, "record")
            ),
            "",
        )),
    }
}

/// The longest title shown, in characters.
const TITLE: usize = 60;

fn print(rows: &[Row], out: &mut Out) {
    if rows.is_empty() {
        return;
    }
    let mut table = vec![
        [
            "ITEM",
            "SOURCE",
            "STATE",
            "PENDING",
            "GAVE UP",
            "DELIVERED",
            "TITLE",
        ]
        .map(String::from),
    ];
    table.extend(rows.iter().map(|row| {
        [
            row.item.to_string(),
            shown(&row.source),
            row.state.to_string(),
            row.pending.to_string(),
            row.gave_up.to_string(),
            row.delivered.to_string(),
            cut(&row.title, TITLE),
        ]
    }));
    out.table(&table);
}
