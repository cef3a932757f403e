//! The operations of both kinds of tables, for generic tests.

use drtm_htm::NoHtm;
use drtm_kv::{HashTable, Inline, KvError, KvTable, Tree};

use crate::visit::visit;

pub(crate) trait Table: KvTable<NoHtm, Inline> {
    /// Returns all keys with their values; ordered if the table is, and downward on request.
    fn all(&self, down: bool) -> Result<Vec<(u64, Vec<u8>)>, KvError>;

    /// Returns whether this order of keys is possible.
    fn is_right_order(keys: &[u64], down: bool) -> bool;
}

impl Table for HashTable<NoHtm> {
    fn all(&self, _down: bool) -> Result<Vec<(u64, Vec<u8>)>, KvError> {
        let mut all = Vec::new();
        visit(self, |key, value, _| all.push((key, value.to_vec())));
        Ok(all)
    }

    fn is_right_order(_keys: &[u64], _down: bool) -> bool {
        true
    }
}

impl Table for Tree<NoHtm> {
    fn all(&self, down: bool) -> Result<Vec<(u64, Vec<u8>)>, KvError> {
        let mut scan = if down { self.range_back(..) } else { self.range(..) };
        let mut all = Vec::new();
        while let Some(row) = scan.next()? {
            all.push((row.key, row.value.to_vec()));
        }
        Ok(all)
    }

    fn is_right_order(keys: &[u64], down: bool) -> bool {
        keys.is_sorted_by(|a, b| if down { a > b } else { a < b })
    }
}
