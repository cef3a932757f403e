//! The order of all transactions.

use drtm_rdma::NodeId;

/// A transaction's place in the order of all of them: by epoch, then by the node that sequenced it,
/// then by its place in that node's batch.
///
/// # Example
///
/// ```
/// use drtm_calvin::Place;
/// use drtm_rdma::NodeId;
///
/// let late = Place { epoch: 2, node: NodeId(0), number: 0 };
/// assert!(Place { epoch: 1, node: NodeId(5), number: 199 } < late);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the type says it")]
pub struct Place {
    pub epoch: u64,
    pub node: NodeId,
    pub number: u32,
}
