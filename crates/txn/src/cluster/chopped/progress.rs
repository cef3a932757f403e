//! How far transactions have come, as rows of a table that each program has.
//!
//! The row of a transaction lies in a shard of its coordinator's node, if that owns any: reading
//! and writing it asks no other node. A shard's number is a part of the key, so the row stays where
//! it is when views change, and comes to whichever node serves the shard then.

use drtm_rdma::{Fabric, Presence};

use super::{
    super::{ClusterBuilder, NodeBuilder, Partition, Place, Worker, shard::ShardId},
    id::{Id, Key},
};
use crate::{Config, Error, Ordered, Raw, Table, TableDef};

/// The names of the tables begin so.
const NAME: &str = "pieces of ";

/// The shard is named by the key.
const PARTITION: Partition<Key> = Partition::at("coordinator", |key| Some(key.0.into()));

/// The table in which the transactions of a program note how far they have come. All nodes add it,
/// as they add other tables.
///
/// # Example
///
/// See [`chopped`](super).
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub(super) program: &'static str,
    pub(super) rows: Table<Key, Raw, Ordered>,
}

fn definition(program: &str) -> TableDef<Key, Raw, Ordered> {
    TableDef::ordered("").named(&format!("{NAME}{program}"))
}

impl<F: Fabric, S: Config<Engine = F::Engine>> NodeBuilder<F, S> {
    /// Adds the table in which chopped transactions of a program note how far they have come. All
    /// nodes add it, in the same order among tables.
    ///
    /// # Errors
    ///
    /// As for [`table`](Self::table).
    ///
    /// # Example
    ///
    /// See [`chopped`](super).
    pub fn progress(&mut self, program: &'static str) -> Result<Progress, Error> {
        let rows = self.table(definition(program), PARTITION)?;
        Ok(Progress { program, rows })
    }
}

impl<P: Place> ClusterBuilder<P> {
    /// Adds the table in which chopped transactions of a program note how far they have come.
    ///
    /// # Example
    ///
    /// See [`chopped`](super).
    pub fn progress(&mut self, program: &'static str) -> Progress {
        Progress { program, rows: self.table(definition(program), PARTITION) }
    }
}

impl Progress {
    pub(super) fn number(self) -> u16 {
        self.rows.number
    }

    /// Returns the table, whose rows are to be looked at by tests only.
    #[doc(hidden)]
    #[must_use]
    pub fn rows(self) -> Table<(u16, u16, u32, u64, u64), Raw, Ordered> {
        self.rows
    }
}

/// Returns an identity for a transaction of a worker. Its row is in a shard that the worker's node
/// serves, or, if it serves none, in one that its number says.
pub(super) fn next_id<F: Fabric, S: Config<Engine = F::Engine>>(worker: &Worker<'_, F, S>) -> Id {
    let inner = &*worker.inner;
    let (node, view) = (&inner.node, inner.view());
    let shards = 0..node.shards as u16;
    let own = shards.clone().find(|shard| view.primary(ShardId(*shard)) == Some(node.node));
    let shard = own.unwrap_or(node.node.0 % shards.end.max(1));
    let (life, count) = inner.ids.next(&node.left);
    Id { shard, node: node.node, incarnation: node.incarnation.0, life, count }
}

/// Returns whether the coordinator of a transaction is not here any more, or is another one.
pub(super) fn is_orphaned<F: Fabric, S: Config<Engine = F::Engine>>(worker: &Worker<'_, F, S>, id: Id) -> bool {
    let node = &worker.inner.node;
    if id.node == node.node {
        return id.life != node.left.life();
    }
    match worker.endpoint().presence(id.node) {
        Presence::Here(now) | Presence::Suspected(now) => now.0 != id.incarnation,
        _ => true,
    }
}
