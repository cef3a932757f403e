//! The errors of verbs, and of setting up a fabric.

use crate::{Incarnation, NodeId, RegionId, Remote};

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
// Its tag is a word, so that results with an error in them are moved by words.
#[repr(u64)]
pub enum VerbError {
    /// The fabric has no such node.
    #[error("{node} is not part of this fabric; check the cluster's configuration")]
    UnknownNode {
        /// The node.
        node: NodeId,
    },
    /// The node is part of the fabric, and was never here.
    #[error("{node} has not joined the fabric yet; start it, or wait until it has joined")]
    NotJoined {
        /// The node.
        node: NodeId,
    },
    /// The node has registered no such region.
    #[error("{node} has registered no {region}; register it before its address is handed out")]
    UnknownRegion {
        /// The node.
        node: NodeId,
        /// The region.
        region: RegionId,
    },
    /// The words are not all allocated in the region.
    #[error("{words} words at {at} are not in the region; the link that led there is stale or corrupt")]
    OutOfBounds {
        /// The first address of the access.
        at: Remote,
        /// The number of words.
        words: usize,
    },
    /// The offset is not aligned to a word.
    #[error("{at} is not a multiple of 8 bytes; verbs access whole words")]
    Misaligned {
        /// The first address of the access.
        at: Remote,
    },
    /// One operation cannot carry this many bytes.
    #[error("{bytes} bytes are too many for one operation, which carries {most}; split it")]
    TooLarge {
        /// The requested bytes.
        bytes: usize,
        /// The most bytes of one operation.
        most: usize,
    },
    /// The queue to the node is full of pending operations.
    #[error(
        "{depth} operations to {node} are under way, which fill its queue; await some, or make fewer operations a batch"
    )]
    QueueFull {
        /// The target node.
        node: NodeId,
        /// The capacity of the queue.
        depth: usize,
    },
    /// The endpoint has as many unanswered calls as it may have.
    #[error("{most} calls are unanswered, as many as an endpoint may have; await some")]
    TooManyCalls {
        /// The most calls.
        most: usize,
    },
    /// The endpoint's buffers of this size are all in use.
    #[error(
        "no free buffer for {bytes} bytes; drop the values of completed reads earlier, or give endpoints more buffers"
    )]
    BuffersExhausted {
        /// The size needed.
        bytes: usize,
    },
    /// The node's incarnation left or died while the operation was pending. It is unknown whether
    /// the operation took effect.
    #[error("{node}, {incarnation}, is disconnected; whether the operation took effect is not known")]
    Disconnected {
        /// The node.
        node: NodeId,
        /// The incarnation that the operation was for.
        incarnation: Incarnation,
    },
    /// The node was silent beyond the fabric's deadline while the operation was pending, and is
    /// suspected to have failed. It is unknown whether the operation took effect.
    #[error(
        "{node}, {incarnation}, is silent and suspected to have failed; whether the operation took effect is not known"
    )]
    Suspected {
        /// The node.
        node: NodeId,
        /// The incarnation that the operation was for.
        incarnation: Incarnation,
    },
    /// The node's incarnation was gone before the operation began. It had no effect.
    #[error("{node}, {incarnation}, is gone, and the operation had no effect; reconnect when the node is back")]
    Gone {
        /// The node.
        node: NodeId,
        /// The incarnation that the operation was for.
        incarnation: Incarnation,
    },
    /// This fabric has no remote atomics.
    #[error("this fabric has no remote atomics; take locks by message")]
    AtomicsUnsupported,
    /// The operation's batch was dropped, or is not rung yet.
    #[error("the operation was never posted; ring its batch before awaiting it")]
    NotRung,
    /// The receiver of the call dropped it without a reply.
    #[error("{node} dropped the call without replying; see its handler's errors")]
    Unanswered {
        /// The called node.
        node: NodeId,
    },
}

impl VerbError {
    /// Returns whether an operation that failed in this way may have taken effect. If not, it
    /// certainly had no effect.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{Incarnation, NodeId, VerbError};
    ///
    /// let (node, incarnation) = (NodeId(1), Incarnation(1));
    /// assert!(VerbError::Disconnected { node, incarnation }.may_have_taken_effect());
    /// assert!(!VerbError::Gone { node, incarnation }.may_have_taken_effect());
    /// ```
    #[must_use]
    pub fn may_have_taken_effect(&self) -> bool {
        // The handler of an unanswered call may have run.
        matches!(self, Self::Disconnected { .. } | Self::Suspected { .. } | Self::Unanswered { .. })
    }

    /// Returns whether the node, or the incarnation that the operation was for, is gone.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{Incarnation, NodeId, VerbError};
    ///
    /// let (node, incarnation) = (NodeId(1), Incarnation(1));
    /// assert!(VerbError::Gone { node, incarnation }.is_departure());
    /// assert!(!VerbError::UnknownNode { node }.is_departure());
    /// ```
    #[must_use]
    pub fn is_departure(&self) -> bool {
        matches!(self, Self::Disconnected { .. } | Self::Suspected { .. } | Self::Gone { .. })
    }
}

/// A fabric that cannot be set up as requested.
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
        /// The most regions.
        most: usize,
    },
    /// The node has as many endpoints as it can have.
    #[error("{node} has {most} endpoints, as many as the fabric was configured for; drop some or configure more")]
    TooManyEndpoints {
        /// The node.
        node: NodeId,
        /// The most endpoints.
        most: usize,
    },
    /// The node has left or died.
    #[error("{node} has left the fabric; it may come back as another incarnation")]
    Closed {
        /// The node.
        node: NodeId,
    },
    /// The node is here. It cannot come back before it has left or died.
    #[error("{node} is here already")]
    Present {
        /// The node.
        node: NodeId,
    },
    /// The node belongs to another process.
    #[error("{node} is not of this process; only its own process can do that")]
    Foreign {
        /// The node.
        node: NodeId,
    },
    /// The region belongs to one process alone.
    #[error("{node} cannot register a region that other processes cannot map; make it with `Region::shared`")]
    NotShared {
        /// The node.
        node: NodeId,
    },
    /// The system has no file descriptor for another endpoint.
    #[error("the system has no descriptor for another endpoint of {node}; raise the limit on open files")]
    NoDescriptors {
        /// The node.
        node: NodeId,
    },
    /// The fabric carries no letters.
    #[error("the fabric of {node} carries no letters; use one over TCP")]
    NoLetters {
        /// The node.
        node: NodeId,
    },
    /// The node's letters are taken already.
    #[error("the letters of {node} are taken already; drop what was returned before")]
    LettersTaken {
        /// The node.
        node: NodeId,
    },
    /// The system has no thread for the node's letters.
    #[error("the system has no thread for the letters of {node}; raise the limit on processes")]
    NoThread {
        /// The node.
        node: NodeId,
    },
    /// The NIC needs locked memory, and this process may not lock more.
    #[error("the NIC of {node} cannot have {bytes} bytes of memory locked; the limit is {limit}: raise `ulimit -l`")]
    LockedMemory {
        /// The node.
        node: NodeId,
        /// The bytes to lock.
        bytes: u64,
        /// The bytes that the process may lock in total.
        limit: u64,
    },
    /// Access can't be taken from a node of this process alone.
    #[error("{node} is of this very process, which would have to be killed; end the process")]
    NotRevocable {
        /// The node.
        node: NodeId,
    },
    /// The NIC or its library reported an error.
    #[error("the NIC of {node} refused it; the fabric's `take_failure` says why")]
    Device {
        /// The node.
        node: NodeId,
    },
}
