//! What can go wrong with a verb, and with setting up a fabric.

use crate::{NodeId, RegionId, Remote};

/// A verb that was refused or failed.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, VerbError, block_on};
///
/// let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
/// let endpoint = fabric.endpoint(NodeId(0))?;
/// let nobody = NodeId(9);
/// let refused = block_on(&endpoint, endpoint.during(Phase::Other).send(nobody, b"hello"));
/// assert_eq!(refused, Err(VerbError::UnknownNode { node: nobody }));
/// # Ok::<(), drtm_rdma::FabricError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerbError {
    /// No such node has joined.
    #[error("{node} is not part of this fabric; check the cluster's configuration")]
    UnknownNode {
        /// The node named.
        node: NodeId,
    },
    /// The node has registered no such region.
    #[error("{node} has registered no {region}; register it before its address is handed out")]
    UnknownRegion {
        /// The node named.
        node: NodeId,
        /// The region named.
        region: RegionId,
    },
    /// The words are not all allocated in the region.
    #[error("{words} words at {at} are not in the region; the link that led there is stale or corrupt")]
    OutOfBounds {
        /// Where the access began.
        at: Remote,
        /// How many words it was.
        words: usize,
    },
    /// The offset is not a word's.
    #[error("{at} is not a multiple of 8 bytes; verbs access whole words")]
    Misaligned {
        /// Where the access began.
        at: Remote,
    },
    /// More bytes than one operation may carry.
    #[error("{bytes} bytes are too many for one operation, which carries {most}; split it")]
    TooLarge {
        /// What was asked for.
        bytes: usize,
        /// The most there can be.
        most: usize,
    },
    /// As many operations are under way to the node as its queue holds.
    #[error(
        "{depth} operations to {node} are under way, which fill its queue; await some, or make fewer operations a batch"
    )]
    QueueFull {
        /// The target.
        node: NodeId,
        /// What the queue holds.
        depth: usize,
    },
    /// As many calls are unanswered as the endpoint may have.
    #[error("{most} calls are unanswered, as many as an endpoint may have; await some")]
    TooManyCalls {
        /// How many those are.
        most: usize,
    },
    /// The endpoint's buffers of this size are all taken.
    #[error(
        "no free buffer for {bytes} bytes; drop the values of completed reads earlier, or give endpoints more buffers"
    )]
    BuffersExhausted {
        /// The size needed.
        bytes: usize,
    },
    /// The node has left, or the connection to it is lost. Whether the operation took effect is not known.
    #[error("{node} is disconnected; whether the operation took effect is not known")]
    Disconnected {
        /// The node.
        node: NodeId,
    },
    /// This fabric has no remote atomics.
    #[error("this fabric has no remote atomics; take locks by message")]
    AtomicsUnsupported,
    /// The batch that the operation was added to was dropped, or is not rung yet.
    #[error("the operation was never posted; ring its batch before awaiting it")]
    NotRung,
    /// Whoever received the call dropped it without a reply.
    #[error("{node} dropped the call without replying; see its handler's errors")]
    Unanswered {
        /// The node called.
        node: NodeId,
    },
}

/// A fabric that cannot be set up as asked.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fabric, FabricError, LocalConfig, LocalFabric, NodeId};
///
/// let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
/// assert_eq!(fabric.endpoint(NodeId(2)).unwrap_err(), FabricError::UnknownNode { node: NodeId(2) });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// No such node has joined.
    #[error("{node} is not part of this fabric; check the cluster's configuration")]
    UnknownNode {
        /// The node named.
        node: NodeId,
    },
    /// The node has as many regions as it can have.
    #[error("{node} has registered {most} regions, as many as it can; put more into one region")]
    TooManyRegions {
        /// The node.
        node: NodeId,
        /// How many those are.
        most: usize,
    },
    /// The node has as many endpoints as it can have.
    #[error("{node} has {most} endpoints, as many as the fabric was configured for; drop some or configure more")]
    TooManyEndpoints {
        /// The node.
        node: NodeId,
        /// How many those are.
        most: usize,
    },
    /// The node has left.
    #[error("{node} has left the fabric; join again as another node")]
    Closed {
        /// The node.
        node: NodeId,
    },
}
