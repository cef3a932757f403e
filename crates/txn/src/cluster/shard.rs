//! Shards: the numbers that keys map to.
//!
//! A cluster has as many shards from its first start to its end, whatever nodes come and go. A
//! [`Partition`](super::Partition) maps each key to one. The [view](super::View) says which node
//! serves a shard. Shards of one node share its store, its log and its workers, so that a shard
//! costs nothing as long as it stays where it is.

use std::fmt;

/// Shards for each owner, where a cluster does not choose.
pub(super) const SHARDS_PER_OWNER: usize = 8;

/// The most shards that a cluster can have. The last number is [`ShardId::HERE`].
pub(super) const MOST_SHARDS: usize = u16::MAX as usize;

/// The number of a shard.
///
/// # Example
///
/// ```
/// use drtm_txn::cluster::ShardId;
///
/// assert!(ShardId(2) < ShardId(3));
/// assert_eq!(ShardId(2).to_string(), "shard 2");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl ShardId {
    /// Where rows of replicated tables are: at the node that asks, whichever that is. No view has a
    /// shard of this number.
    pub(super) const HERE: Self = Self(u16::MAX);

    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {}", self.0)
    }
}

/// The shards that have the rows of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// One shard has all of them.
    One(ShardId),
    /// Any shard can have some.
    All,
}
