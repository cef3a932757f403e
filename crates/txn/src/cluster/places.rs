//! Which node has a row. A handle names a table by its number, which is the same at every node; how
//! the table is divided is known here.

use drtm_rdma::{Fabric, NodeId};
use smallvec::SmallVec;

use super::{ClusterError, coordinator::Coordinator, participant::Served, partition::Home};
use crate::{Config, Error, memory::storage::KeyRef};

/// Nodes that are asked for a range.
pub(super) type Asked = SmallVec<[NodeId; 8]>;

impl<F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'_, F, S> {
    /// Returns the table of this number.
    ///
    /// # Errors
    ///
    /// [`Error::OtherDatabase`] if this cluster has no such table.
    pub(super) fn served(&self, table: u16) -> Result<&Served<S::Engine>, Error> {
        self.node.home.tables.get(usize::from(table)).ok_or(Error::OtherDatabase)
    }

    /// Returns the node that has the row of a key: one of the owners, or this node, if every node
    /// has it. The rows of an index are found by the index's keys.
    pub(super) fn owner_of(&self, table: u16, key: KeyRef<'_>) -> Result<NodeId, Error> {
        let owners = self.owners();
        match self.served(table)?.partition.home(key, owners.len()) {
            Home::Owner(owner) if owner < owners.len() => Ok(owners[owner]),
            Home::Everywhere => Ok(self.id()),
            Home::Owner(_) | Home::NoValue => Err(ClusterError::NoOwner { table: self.table_name(table) }.into()),
            Home::NotAKey => Err(Error::Key { table: self.table_name(table) }),
        }
    }

    /// Returns the nodes that have rows of a range: the one that has its `only` key, if it has no
    /// other.
    pub(super) fn nodes_of(&self, table: u16, only: Option<KeyRef<'_>>) -> Result<Asked, Error> {
        Ok(match only {
            Some(key) => Asked::from_slice(&[self.owner_of(table, key)?]),
            None if self.served(table)?.is_replicated => Asked::from_slice(&[self.id()]),
            None => Asked::from_slice(self.owners()),
        })
    }
}
