//! Tables of a cluster, as transactions name them.

use std::marker::PhantomData;

use drtm_rdma::NodeId;

use super::Partition;
use crate::{Error, Hash, Key, copied::copied, storage::KeyRef};

/// A table of a cluster: a name to be copied.
///
/// # Example
///
/// See [`Node`](super::Node).
pub struct ClusterTable<K, C, O = Hash> {
    pub(super) number: u16,
    pub(super) name: &'static str,
    pub(super) partition: Partition<K>,
    types: PhantomData<fn() -> (C, O)>,
}

copied! {
    <K, C, O> ClusterTable<K, C, O> as "ClusterTable" { number, name };
}

impl<K, C, O> ClusterTable<K, C, O> {
    pub(super) const fn new(number: u16, name: &'static str, partition: Partition<K>) -> Self {
        Self { number, name, partition, types: PhantomData }
    }
}

impl<K: Key, C, O> ClusterTable<K, C, O> {
    /// Which of the owners has the row of a key.
    pub(super) fn owner(&self, key: KeyRef<'_>, owners: &[NodeId]) -> Result<NodeId, Error> {
        let owner = self.partition.owner(key, owners.len()).and_then(|owner| owners.get(owner));
        owner.copied().ok_or(Error::Key { table: self.name })
    }
}
