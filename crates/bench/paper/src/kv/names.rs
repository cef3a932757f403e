//! The compared maps and operations, named as on the command line.

use clap::ValueEnum;

use drtm_report::name_of;
use serde::Serialize;

use super::Key;

/// A compared map, named as on the command line.
///
/// # Example
///
/// ```
/// use drtm_paper::kv::{MapName, Op};
///
/// assert!(MapName::DrtmTree.refuses(Op::Scan, 2, 8).is_none());
/// assert!(MapName::DrtmHash.refuses(Op::Scan, 1, 8).is_some(), "it has no order");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MapName {
    /// This store's hash table, three quarters full
    DrtmHash,
    /// This store's B+ tree
    DrtmTree,
    /// Hash table without synchronisation: the limit of one thread
    Hashbrown,
    /// Hash table of shards with locks
    Dashmap,
    /// Hash table with lock-free reads; values are replaced whole
    Papaya,
    /// Hash table of buckets with locks
    Scc,
    /// B-tree without synchronisation: the limit of one thread
    #[value(name = "btreemap")]
    #[serde(rename = "btreemap")]
    BTreeMap,
    /// Lock-free skip list; values are replaced whole
    CrossbeamSkiplist,
    /// Adaptive radix tree with optimistic locks; its values are numbers, which index a slab of
    /// values
    Congee,
    /// Lock-free B-link tree; a leaf is replaced whole
    ConcurrentMap,
}

impl MapName {
    /// All maps.
    pub const ALL: [Self; 10] = [
        Self::DrtmHash,
        Self::DrtmTree,
        Self::Hashbrown,
        Self::Dashmap,
        Self::Papaya,
        Self::Scc,
        Self::BTreeMap,
        Self::CrossbeamSkiplist,
        Self::Congee,
        Self::ConcurrentMap,
    ];

    /// Returns the name in options and results.
    #[must_use]
    pub fn name(self) -> String {
        name_of(&self)
    }

    fn is_ordered(self) -> bool {
        use MapName::{BTreeMap, ConcurrentMap, Congee, CrossbeamSkiplist, DrtmTree};
        matches!(self, DrtmTree | BTreeMap | CrossbeamSkiplist | Congee | ConcurrentMap)
    }

    /// Returns why this map does not support the operation; `None` if it does.
    #[must_use]
    pub fn refuses(self, op: Op, threads: usize, key_bytes: u32) -> Option<&'static str> {
        let is_built = cfg!(feature = "peers") || matches!(self, Self::DrtmHash | Self::DrtmTree | Self::BTreeMap);
        if !is_built {
            Some("is not built in: build with the feature `peers`")
        } else if key_bytes != u64::BYTES && self == Self::Congee {
            Some("does not support keys of other than 8 bytes")
        } else if op == Op::Scan && !self.is_ordered() {
            Some("does not support scans: it has no order")
        } else if threads > 1 && matches!(self, Self::Hashbrown | Self::BTreeMap) {
            Some("does not support more than one thread: nothing in it is synchronised")
        } else {
            None
        }
    }
}

/// The operation on a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Copy the value of a present key
    Get,
    /// Replace the value of a present key
    Update,
    /// Insert an absent key; it is removed again afterwards, untimed
    Insert,
    /// Copy the values of some adjacent keys, starting at a present key
    Scan,
}

/// Whether an operation may begin before the previous one has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// Each key depends on the previous operation's result, as in most transactions: an operation
    /// takes as long as its cache misses
    Dependent,
    /// Keys are known ahead, so that the processor overlaps operations
    Overlapping,
}
