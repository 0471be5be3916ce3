//! Finding records of the ledger for the commands that read it.

use super::out::complain;
use crate::engine::delivery::Slug;
use crate::engine::item::ItemRef;
use crate::engine::record::{Record, Standing};
use crate::error::Error;
use crate::store::{LoadError, Reader};

/// The records named by `slugs`; one that cannot be loaded is complained about
/// and left out. The number of those comes with them.
pub(super) fn load(reader: &Reader, slugs: Vec<Slug>) -> (Vec<(Slug, Record)>, usize) {
    let mut records = Vec::new();
    let mut lost = 0;
    for slug in slugs {
        match reader.load(&slug) {
            Ok(Some(record)) => records.push((slug, record)),
            // Removed since it was listed, or set aside, which was reported then.
            Ok(None) | Err(LoadError::SetAside { .. }) => {}
            Err(e) => {
                lost += 1;
                complain(format_args!(
                    "cannot show the record {}: {e}",
                    reader.layout().item(&slug).display()
                ));
            }
        }
    }
    (records, lost)
}

/// How many deliveries wait and how many were given up, over all records that can be read.
pub(super) fn unfinished(reader: &Reader) -> Result<(usize, usize), Error> {
    let mut sum = (0, 0);
    for slug in reader.pending()? {
        if let Ok(Some(record)) = reader.load(&slug) {
            sum.0 += record.pending();
            sum.1 += record.gave_up();
        }
    }
    Ok(sum)
}

/// The records of `item`: one for each source that has it, in the order of the
/// sources' names. Letter case does not count, as trackers have it.
///
/// # Errors
/// When there is none, or one is there and cannot be loaded.
pub(super) fn find(reader: &Reader, item: &ItemRef) -> Result<Vec<(Slug, Record)>, Error> {
    // A record's name is its source's and then this.
    let tail = Slug::new("", item).to_string();
    let name = item.to_string();
    let mut found = Vec::new();
    for slug in reader.slugs()? {
        if !slug.as_str().ends_with(&tail) {
            continue;
        }
        match reader.load(&slug) {
            Ok(Some(record)) => {
                if record.item.to_string().eq_ignore_ascii_case(&name) {
                    found.push((slug, record));
                }
            }
            Ok(None) => {}
            Err(e) => {
                let path = reader.layout().item(&slug);
                return Err(Error::new(format!("cannot show {}", path.display()), e));
            }
        }
    }
    if found.is_empty() {
        return Err(Error::new(format!("{item} is not known"), "")
            .hint("'idempoll items' lists the items known"));
    }
    Ok(found)
}

/// Whether the item is being worked on, in one word.
pub(super) fn standing(record: &Record) -> &'static str {
    match record.standing {
        Standing::Active => "open",
        Standing::Closed => "closed",
        Standing::Merged => "merged",
        Standing::Gone => "gone",
    }
}
