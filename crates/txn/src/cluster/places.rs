//! Which shard has a row. A handle names a table by its number, which is the same at every node;
//! how the table is divided is known here.

use drtm_rdma::Fabric;

use super::{
    ClusterError,
    coordinator::Coordinator,
    participant::Served,
    partition::Home,
    shard::{Reach, ShardId},
};
use crate::{Config, Error, memory::storage::KeyRef};

impl<F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'_, F, S> {
    /// Returns the table of this number.
    ///
    /// # Errors
    ///
    /// [`Error::OtherDatabase`] if this cluster has no such table.
    pub(super) fn served(&self, table: u16) -> Result<&Served<S::Engine>, Error> {
        match self.node.home.tables.get(usize::from(table)) {
            Some(served) => Ok(served),
            None => Err(Error::OtherDatabase),
        }
    }

    /// Returns the shard that has the row of a key. The rows of an index are found by the index's
    /// keys.
    ///
    /// # Errors
    ///
    /// [`ClusterError::NoShard`]; [`Error::Key`] if the bytes are not a key of the table.
    pub(super) fn shard_of(&self, table: u16, key: KeyRef<'_>) -> Result<ShardId, Error> {
        match self.served(table)?.partition.home(key, self.node.shards) {
            Home::Shard(shard) => Ok(shard),
            Home::NoValue => Err(ClusterError::NoShard { table: self.table_name(table) }.into()),
            Home::NotAKey => Err(Error::Key { table: self.table_name(table) }),
        }
    }

    /// Returns the shards that have rows of a range: the one that has its `only` key, if it has no
    /// other.
    pub(super) fn reach_of(&self, table: u16, only: Option<KeyRef<'_>>) -> Result<Reach, Error> {
        Ok(match only {
            Some(key) => Reach::One(self.shard_of(table, key)?),
            None if self.served(table)?.is_replicated => Reach::One(ShardId::HERE),
            None => Reach::All,
        })
    }
}
