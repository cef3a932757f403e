//! What a transaction writes, divided among the nodes that carry it out.

use std::ops::Range;

use drtm_rdma::NodeId;

/// Rows that are written by one request, or by verbs.
#[derive(Clone, Debug)]
pub(in crate::cluster) struct Part {
    pub(in crate::cluster) node: NodeId,
    /// Where their numbers are.
    pub(in crate::cluster) rows: Range<usize>,
    pub(in crate::cluster) is_by_verbs: bool,
    /// Whether the node logs what it is told.
    pub(in crate::cluster) is_logged: bool,
}

/// What a transaction writes, by the nodes that carry it out.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Parts {
    /// The numbers of rows, those of a part one behind the other.
    pub(in crate::cluster) rows: Vec<u32>,
    pub(in crate::cluster) parts: Vec<Part>,
}

impl Parts {
    /// Forgets everything.
    pub(in crate::cluster) fn clear(&mut self) {
        self.rows.clear();
        self.parts.clear();
    }

    /// Returns the node that carries a part out.
    pub(in crate::cluster) fn node(&self, part: u32) -> NodeId {
        self.parts[part as usize].node
    }

    /// Returns whether a part is written by verbs.
    pub(in crate::cluster) fn is_by_verbs(&self, part: u32) -> bool {
        self.parts[part as usize].is_by_verbs
    }

    /// Returns the rows of a part.
    pub(in crate::cluster) fn rows_of(&self, part: u32) -> &[u32] {
        &self.rows[self.parts[part as usize].rows.clone()]
    }
}
