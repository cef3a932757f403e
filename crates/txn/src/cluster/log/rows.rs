//! All rows of an owner, for comparing it with its backups.

use drtm_htm::Engine;
use drtm_kv::{KvError, Version};

use crate::memory::storage::{KeyRef, Storage};

/// A row of an owner, as its owner or a backup has it.
///
/// # Example
///
/// See [`Node::rows_of`](crate::cluster::Node::rows_of).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnedRow {
    /// The table's number, in the order in which nodes add tables.
    pub table: u16,
    /// The key's encoding: of one that is a word, eight bytes.
    pub key: Vec<u8>,
    /// The number of its version.
    pub version: u64,
    /// The value.
    pub value: Vec<u8>,
}

/// Returns all rows of some tables, with the tables' numbers, in order.
pub(in crate::cluster) fn rows_of<'t, E: Engine>(
    tables: impl Iterator<Item = (u16, &'t Storage<E>)>,
) -> Result<Vec<OwnedRow>, KvError> {
    let mut rows = Vec::new();
    for (table, storage) in tables {
        let mut tour = storage.tour()?;
        let mut add = |key: KeyRef<'_>, value: &[u8], version: Version| {
            let mut bytes = Vec::new();
            key.write(8, &mut bytes);
            rows.push(OwnedRow { table, key: bytes, version: version.number(), value: value.to_vec() });
        };
        while storage.rows(&mut tour, &mut add)? {}
    }
    rows.sort_unstable();
    rows.dedup();
    Ok(rows)
}
