//! Ranges of rows that a transaction fetches before it runs.

use std::ops::{Bound, Range};

use super::shard::Reach;
use crate::{memory::arena::ArenaKey, tx::position::Way};

/// A range that is read in each run of a transaction, before its body.
#[derive(Clone, Debug)]
pub(super) struct FetchedRange {
    pub(super) table: u16,
    pub(super) bounds: [Bound<ArenaKey>; 2],
    /// From which end it is read.
    pub(super) way: Way,
    /// The shards that have its rows.
    pub(super) reach: Reach,
    /// How many rows are read, if there are as many.
    pub(super) most: usize,
    /// Whether the table is replicated: what was read of it stays so.
    pub(super) is_final: bool,
    /// Its parts in this run, by their numbers. Empty before they are read.
    pub(super) spans: Range<usize>,
    /// Whether the transaction is known to use it.
    pub(super) is_used: bool,
}

impl FetchedRange {
    /// Returns whether it is the range of a table with these ends, read in this order. The keys of
    /// both are in `keys`.
    pub(super) fn is(&self, table: u16, bounds: [Bound<ArenaKey>; 2], way: Way, keys: &[u8]) -> bool {
        let of = |bounds: [Bound<ArenaKey>; 2]| bounds.map(|bound| bound.map(|key| key.in_bytes(keys)));
        (self.table, self.way) == (table, way) && of(self.bounds) == of(bounds)
    }
}
