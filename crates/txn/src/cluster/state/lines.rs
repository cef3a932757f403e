//! What a transaction has in the NICs of nodes, where conflicts are found by cache lines.

use drtm_rdma::{NodeId, machine::TxId};

/// A transaction's part at a node that it has accessed, or at its own node.
#[derive(Debug)]
pub(in crate::cluster) struct NicPart {
    pub(in crate::cluster) node: NodeId,
    /// The numbers of the rows that it writes there.
    pub(in crate::cluster) rows: Vec<u32>,
    /// What it asks the node to lock, encoded, and how many rows that are.
    pub(in crate::cluster) intended: (Vec<u8>, usize),
    pub(in crate::cluster) has_acknowledged: bool,
    /// Whether the node logs what it is told.
    pub(in crate::cluster) is_logged: bool,
    /// Whether the node has nothing of the transaction any more, or was told to carry it out.
    pub(in crate::cluster) is_over: bool,
}

/// A transaction as NICs know it.
#[derive(Debug)]
pub(in crate::cluster) struct InNics {
    pub(in crate::cluster) tx: TxId,
    /// The first is of its own node.
    pub(in crate::cluster) parts: Vec<NicPart>,
}

impl InNics {
    pub(in crate::cluster) fn new(tx: TxId) -> Self {
        let mut this = Self { tx, parts: Vec::new() };
        this.add(tx.node);
        this
    }

    /// Returns whether the transaction has a part at a node.
    pub(in crate::cluster) fn has(&self, node: NodeId) -> bool {
        self.parts.iter().any(|part| part.node == node)
    }

    /// Adds a part at a node that has none.
    pub(in crate::cluster) fn add(&mut self, node: NodeId) {
        let (rows, intended) = (Vec::new(), (Vec::new(), 0));
        let (has_acknowledged, is_logged, is_over) = (false, false, false);
        self.parts.push(NicPart { node, rows, intended, has_acknowledged, is_logged, is_over });
    }

    /// Returns the numbers of the parts at other nodes.
    pub(in crate::cluster) fn others(&self) -> impl Iterator<Item = u32> + use<> {
        1..self.parts.len() as u32
    }
}
