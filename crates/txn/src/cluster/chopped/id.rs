//! What the row of a transaction's progress is known by.

use drtm_rdma::NodeId;

/// What a row is known by. No two transactions have the same, also of different lives of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) struct Id {
    pub(super) shard: u16,
    /// The coordinator's node.
    pub(super) node: NodeId,
    /// Which of its lives, as other nodes know it.
    pub(super) incarnation: u32,
    /// And as it knows it itself: incarnations may be counted anew when all processes have ended.
    pub(super) life: u64,
    pub(super) count: u64,
}

/// An identity as a key.
pub(super) type Key = (u16, u16, u32, u64, u64);

impl Id {
    pub(super) fn key(self) -> Key {
        (self.shard, self.node.0, self.incarnation, self.life, self.count)
    }

    pub(super) fn of((shard, node, incarnation, life, count): Key) -> Self {
        Self { shard, node: NodeId(node), incarnation, life, count }
    }
}
