//! Where the records of a transaction go.
//!
//! Rows of a shard are recorded at its *copies*: as many nodes as the shard is to have backups,
//! none of which is the coordinator. Those are its backups; where the coordinator is one of them,
//! or where there are fewer since nodes have died, its primary, too. A transaction is decided when
//! all copies of all shards that it writes have its records. So if as many nodes are lost as shards
//! have backups, the coordinator among them, a copy of each shard is left.
//!
//! A coordinator that is a backup gets the rows by its own ring besides, which decides nothing.
//! Nodes that are going to be backups get the record, too. If such a node is left, it has a vote:
//! what it never got is not completed, since it would be a replica without it.
//!
//! See `docs/decisions/0103`.

use drtm_rdma::NodeId;

use crate::cluster::{shard::ShardId, view::View};

/// Who writes records, and how many copies of them there are to be.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct Copies {
    pub(in crate::cluster) coordinator: NodeId,
    pub(in crate::cluster) count: usize,
}

impl Copies {
    /// Returns the copies of a shard: the nodes whose records decide.
    pub(in crate::cluster) fn of(self, view: &View, shard: ShardId) -> impl Iterator<Item = NodeId> {
        let placed = view.placements().get(shard.index());
        let nodes = placed.into_iter().flat_map(|at| at.backups.iter().chain([&at.primary]).copied());
        nodes.filter(move |node| *node != self.coordinator).take(self.count)
    }

    /// Returns the nodes that get a record with rows of a shard.
    pub(super) fn recorded_at(self, view: &View, shard: ShardId) -> impl Iterator<Item = NodeId> {
        let own = view.backups(shard).contains(&self.coordinator).then_some(self.coordinator);
        self.of(view, shard).chain(own).chain(view.learners(shard).iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copies(view: &View, coordinator: u16, count: usize) -> (Vec<u16>, Vec<u16>) {
        let copies = Copies { coordinator: NodeId(coordinator), count };
        let numbers = |nodes: Vec<NodeId>| nodes.into_iter().map(|node| node.0).collect();
        (numbers(copies.of(view, ShardId(0)).collect()), numbers(copies.recorded_at(view, ShardId(0)).collect()))
    }

    #[test]
    fn there_are_as_many_copies_as_backups_whoever_coordinates() {
        let view = View::fixed(&[0, 1, 2, 3].map(NodeId), 4, 2).expect("a view");
        assert_eq!(copies(&view, 0, 2), (vec![1, 2], vec![1, 2]), "the primary");
        assert_eq!(copies(&view, 3, 2), (vec![1, 2], vec![1, 2]), "another owner");
        assert_eq!(copies(&view, 9, 2), (vec![1, 2], vec![1, 2]), "a client");
        assert_eq!(copies(&view, 2, 2), (vec![1, 0], vec![1, 0, 2]), "a backup");
    }

    #[test]
    fn a_primary_is_a_copy_where_backups_have_died() {
        let view = View::fixed(&[0, 1].map(NodeId), 2, 0).expect("a view");
        assert_eq!(copies(&view, 9, 1), (vec![0], vec![0]));
        assert_eq!(copies(&view, 0, 1), (vec![], vec![]), "no other node has the shard");
    }
}
