//! Tables of a cluster, as transactions name them.

use std::marker::PhantomData;

use drtm_rdma::NodeId;
use smallvec::SmallVec;

use super::{ClusterError, Partition, partition::Home};
use crate::{Error, Hash, Key, memory::storage::KeyRef, schema::copied::copied};

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

    /// Whether every node has all of its rows.
    pub(super) const fn is_replicated(&self) -> bool {
        self.partition.is_replicated()
    }

    /// Refuses to write a table that is only read.
    pub(super) fn check_writable(&self) -> Result<(), Error> {
        if self.is_replicated() { Err(Error::Replicated { table: self.name }) } else { Ok(()) }
    }
}

/// Which node has the row of a key: one of the owners, or, if every node has it, the one that is
/// `here`.
pub(super) fn owner_of<K: Key>(
    (table, partition): (&'static str, &Partition<K>),
    key: KeyRef<'_>,
    owners: &[NodeId],
    here: NodeId,
) -> Result<NodeId, Error> {
    match partition.home(key, owners.len()) {
        Home::Owner(owner) => owners.get(owner).copied().ok_or(ClusterError::NoOwner { table }.into()),
        Home::Everywhere => Ok(here),
        Home::NoValue => Err(ClusterError::NoOwner { table }.into()),
        Home::NotAKey => Err(Error::Key { table }),
    }
}

/// The nodes that have rows of a table: the owners, or, if every node has all, the one that is
/// `here`.
pub(super) fn everywhere<K>(partition: &Partition<K>, owners: &[NodeId], here: NodeId) -> SmallVec<[NodeId; 8]> {
    if partition.is_replicated() { SmallVec::from_slice(&[here]) } else { SmallVec::from_slice(owners) }
}
