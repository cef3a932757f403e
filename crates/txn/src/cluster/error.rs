//! What can go wrong between nodes.

use drtm_kv::{PeerError, RemoteError};
use drtm_rdma::{FabricError, NodeId, RegionError, rpc::RpcError};

use super::wire::Refusal;

/// What a cluster refuses, or cannot carry out.
///
/// # Example
///
/// ```
/// use drtm_rdma::{NodeId, VerbError};
/// use drtm_txn::cluster::ClusterError;
///
/// let error = ClusterError::Unreachable { node: NodeId(3), source: VerbError::UnknownNode { node: NodeId(3) }.into() };
/// assert!(error.to_string().contains("node 3"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// An owner could not be asked. Nothing of the transaction has happened.
    #[error("{node} could not be asked, and the transaction has not happened: {source}")]
    Unreachable {
        /// The owner.
        node: NodeId,
        /// Why.
        source: RpcError,
    },
    /// A verb on an owner's memory failed. Nothing of the transaction has happened.
    #[error("{node} could not be reached, and the transaction has not happened: {source}")]
    OneSided {
        /// The owner.
        node: NodeId,
        /// Why.
        source: RemoteError,
    },
    /// A row could not be looked up in an owner's memory. Nothing of the transaction has happened.
    #[error("{node} could not be searched, and the transaction has not happened: {source}")]
    Lookup {
        /// The owner.
        node: NodeId,
        /// Why.
        source: PeerError,
    },
    /// An owner failed when the transaction had been decided. It has happened everywhere else.
    #[error(
        "the transaction has committed, but whether {node} has carried it out is not known, since {source}; recover \
         that node, or restart the cluster"
    )]
    OutcomeUnknown {
        /// The owner.
        node: NodeId,
        /// Why.
        source: RpcError,
    },
    /// An owner refuses. Nothing of the transaction has happened.
    #[error("{node} refuses, and the transaction has not happened: {reason}")]
    Refused {
        /// The owner.
        node: NodeId,
        /// Why.
        reason: Refusal,
    },
    /// An owner has answered what it was not asked.
    #[error("{node} has answered what makes no sense: {what}; does it run the same version?")]
    Nonsense {
        /// The owner.
        node: NodeId,
        /// What it has answered.
        what: &'static str,
    },
    /// A row with its key is longer than a message.
    #[error("a row of `{table}` fits no message, which has {most} bytes at most: divide it, or choose longer messages")]
    RowTooLong {
        /// The table.
        table: &'static str,
        /// The longest message.
        most: usize,
    },
    /// The node's number, or its incarnation, is more than a lock has room for.
    #[error(transparent)]
    Store(#[from] drtm_kv::KvError),
    /// The fabric refuses.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The memory of a node cannot be had.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A thread cannot be had.
    #[error("no thread for the node: {0}")]
    Thread(std::io::Error),
    /// The node is not here.
    #[error("{node} is not a node that is here on this fabric: join it first")]
    NotHere {
        /// The node.
        node: NodeId,
    },
    /// No node owns rows.
    #[error("no node owns rows: name those that do with `NodeBuilder::owners`")]
    NoOwners,
    /// The partition of a table, or of an index, names no owner for a key.
    #[error("no node owns the row of this key in `{table}`: its partition must name one of the owners")]
    NoOwner {
        /// The table, or the index.
        table: &'static str,
    },
    /// An index is defined of a table that has rows already.
    #[error("`{table}` has rows, which would lack their entries: define its indexes first, then fill it")]
    NotEmpty {
        /// The table.
        table: &'static str,
    },
    /// A node that does not own rows is named as an owner, or one twice.
    #[error("{node} is named twice among the owners of rows")]
    OwnerTwice {
        /// The node.
        node: NodeId,
    },
}
