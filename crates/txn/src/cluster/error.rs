//! What can go wrong between nodes.

use std::{sync::Arc, time::Duration};

use drtm_kv::{PeerError, RemoteError};
use drtm_rdma::{FabricError, Incarnation, NodeId, RegionError, rpc::RpcError};

use super::{Refusal, shard::ShardId};

/// What a cluster refuses, or cannot carry out.
///
/// # Example
///
/// ```
/// use drtm::{cluster::ClusterError, rdma::{NodeId, VerbError}};
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
    /// The transaction's deadline has passed while it waited. What it was to do has not happened,
    /// or is being carried out.
    #[error(
        "the deadline has passed while {} was waited for, and the transaction {}",
        .waits_for.map_or("another node or transaction".to_owned(), |node| node.to_string()),
        if *.may_have_happened { "has been decided: it happens unless this node fails now" } else { "has not happened" }
    )]
    Interrupted {
        /// A node whose answer was outstanding, if one was.
        waits_for: Option<NodeId>,
        /// Whether the transaction had been decided. If not, it has not happened, and will not.
        may_have_happened: bool,
    },
    /// A node was closed, and did not wait any longer for what other nodes had begun there.
    #[error(
        "the node has left with {rows} rows that other nodes have locked, and {rings} rings with records that are not \
         applied: transactions of theirs may have an unknown outcome; see whether these nodes run"
    )]
    Unfinished {
        /// Rows that others have locked.
        rows: u64,
        /// Rings with records that are not applied.
        rings: u64,
    },
    /// The transaction's node was closed, and did not wait for it any longer.
    #[error("the node was closed before the transaction had ended: whether it has happened is not known")]
    CutOff,
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
    /// A table has indexes, whose entries are not known before a body runs.
    #[error("`{table}` has indexes, so its rows are not written by fetched sets: use `transact`")]
    Indexed {
        /// The table.
        table: &'static str,
    },
    /// The cluster's time is not known well enough for leases.
    #[error(
        "the cluster's time is uncertain by {uncertainty:?}, and may be by {most:?}: allow more with `Timing::most`, \
         or bring the nodes' workers to answer sooner"
    )]
    ClockUncertain {
        /// By how much it is uncertain.
        uncertainty: Duration,
        /// By how much it may be.
        most: Duration,
    },
    /// The node's clock, or that of the reference, is faster or slower than it may be.
    #[error(
        "this node's clock and that of {reference} differ in speed by more than {drift} parts per million, or one was \
         set: mend the clock or allow more with `Timing::drift`, and restart the node"
    )]
    ClockWrong {
        /// The node whose clock is the cluster's.
        reference: NodeId,
        /// What was allowed.
        drift: u32,
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
    /// Owners cannot have so many backups.
    #[error("an owner cannot have {backups} backups among {owners} owners: name more owners, or fewer backups")]
    TooManyBackups {
        /// How many each was to have.
        backups: usize,
        /// How many owners there are.
        owners: usize,
    },
    /// What a transaction writes is longer than a ring. Nothing of it has happened.
    #[error(
        "the transaction writes {bytes} bytes, and a ring of a backup has {most}: divide the transaction, or choose \
         larger rings with `NodeBuilder::ring_bytes`"
    )]
    LogTooLarge {
        /// What it writes.
        bytes: usize,
        /// The most that there can be.
        most: usize,
    },
    /// A backup does not free its ring. Nothing of the transaction has happened.
    #[error("{node} does not apply what is in its ring, which stays full: see whether it runs, and has memory left")]
    LogFull {
        /// The backup.
        node: NodeId,
    },
    /// Rows that have backups are written through the cluster only.
    #[error("rows that have backups are written by transactions of the cluster, and not of a node alone")]
    NotLogged,
    /// What a transaction writes does not fit the one message in which the owner carries it out
    /// whole. Nothing of it has happened.
    #[error(
        "what the transaction writes fits no message, which has {most} bytes at most, and the owner is to carry it out \
         whole: divide the transaction, choose longer messages, or do \
         without directories"
    )]
    TooLargeForOne {
        /// The longest message.
        most: usize,
    },
    /// The node is to lock by loopback, and processors cannot swap by the NICs of this fabric.
    #[error("this fabric has no loopback for swaps: do without `NodeBuilder::locks_by_loopback`")]
    NoLoopback,
    /// The protocol finds conflicts by cache lines, and no NIC of this fabric tracks them.
    #[error(
        "protocol `{protocol}` needs NICs that track cache lines: choose another protocol, or the simulated fabric or \
         the one within a process, and build with the feature `hades`"
    )]
    NoSmartNic {
        /// The protocol.
        protocol: &'static str,
    },
    /// The protocol cannot be combined with an option.
    #[error("protocol `{protocol}` has no {what}: start without, or choose another protocol")]
    NotWithProtocol {
        /// The protocol.
        protocol: &'static str,
        /// What was asked for.
        what: &'static str,
    },
    /// A node has a number that none of the nodes has.
    #[error("there are {nodes} nodes, numbered from zero: this one cannot be number {number}")]
    NodeNumber {
        /// The number.
        number: u16,
        /// How many nodes there are.
        nodes: usize,
    },
    /// A node's address cannot be used.
    #[error("{address:?} is no address of a node, such as \"10.0.0.1:7000\": {source}")]
    Address {
        /// The address.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// Two nodes have one address.
    #[error("{address} is the address of two nodes: give each its own")]
    AddressTwice {
        /// The address.
        address: std::net::SocketAddr,
    },
    /// Nodes on TCP have no key.
    #[error("nodes on TCP share a key: name its file with `ClusterBuilder::key_file`")]
    NoKey,
    /// The file of the cluster's key cannot be read.
    #[error(
        "the key file {path:?} cannot be read: {source}; `head -c 32 /dev/urandom` makes a key, which all nodes get"
    )]
    KeyFile {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file of the cluster's key has another length than a key.
    #[error("the key file {path:?} has {bytes} bytes, and a key has 32: `head -c 32 /dev/urandom` makes one")]
    KeyLength {
        /// The file.
        path: std::path::PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// The node cannot join the others over TCP.
    #[cfg(feature = "tcp")]
    #[error(transparent)]
    Tcp(drtm_rdma::TcpError),
    /// A fabric that the program joins itself: see
    /// [`ClusterBuilder::joining`](super::ClusterBuilder::joining).
    #[error("the fabric cannot be joined: {source}")]
    Joining {
        /// What the program said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A cluster cannot be asked over TCP.
    #[cfg(feature = "tcp")]
    #[error(transparent)]
    Visit(drtm_rdma::VisitError),
    /// The node that was asked is no member any more, and does not know how the cluster is.
    #[cfg(feature = "tcp")]
    #[error(
        "the node at {address} is no member of its cluster any more: ask another node, and start this one again if it \
         does not join by itself"
    )]
    VisitedOut {
        /// Its address.
        address: std::net::SocketAddr,
    },
    /// The node that was asked does not know the question.
    #[cfg(feature = "tcp")]
    #[error(
        "the node at {address} is of another version, or serves something else: use the program of the node's release"
    )]
    VisitedOther {
        /// Its address.
        address: std::net::SocketAddr,
    },
    /// The node that was asked refuses.
    #[cfg(feature = "tcp")]
    #[error("the node at {address} refuses: {reason}")]
    VisitRefused {
        /// Its address.
        address: std::net::SocketAddr,
        /// Why.
        reason: Refusal,
    },
    /// An order was taken, and not carried out in time.
    #[cfg(feature = "tcp")]
    #[error(
        "the node at {address} has taken the order, which is not carried out yet: see `drtm cluster status`, and \
         give it once more if its leader is another one by now"
    )]
    NotCarriedOut {
        /// Its address.
        address: std::net::SocketAddr,
    },
    /// The process cannot join its group.
    #[error(transparent)]
    Group(drtm_rdma::JoinError),
    /// The logs in memory that outlives the process cannot be made, read, or written.
    #[error("the node's logs in memory that outlives the process: {0}")]
    Logs(drtm_rdma::NvError),
    /// The transactional memory that was asked for is not there.
    #[error(transparent)]
    Engine(drtm_htm::EngineError),
    /// Too many transactions were given to a node, and not awaited. Nothing of this one has
    /// happened.
    #[error(
        "{most} transactions of one thread are under way, and this one has not happened: await some before you submit \
         more, or give the node more threads"
    )]
    TooManySubmitted {
        /// How many a thread takes.
        most: usize,
    },
    /// A thread cannot be had.
    #[error("no thread for the node: {0}")]
    Thread(std::io::Error),
    /// Transactions are logged in memory that outlives the process, and something else decides
    /// what becomes of them, too.
    #[error("logs in memory that outlives the process do not go with {what}: choose one of them")]
    NotWithLogs {
        /// What.
        what: &'static str,
    },
    /// A node cannot restore its rows from the logs of others: its memory is too small, or its
    /// store is corrupt.
    #[error("{node} cannot restore its rows from the logs of other nodes: give it more memory")]
    NotRestored {
        /// The node.
        node: NodeId,
    },
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
    #[error("no shard has the row of this key in `{table}`: its partition must name one of the cluster's shards")]
    NoShard {
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
    /// A view of a cluster is not one.
    #[error("the view is refused: {why}")]
    BadView {
        /// What is wrong with it.
        why: &'static str,
    },
    /// The next view is not entered by all: a node is in a newer one.
    #[error("{node} is in view {view} already: change that one")]
    ViewChanged {
        /// The node.
        node: NodeId,
        /// The number of its view.
        view: u32,
    },
    /// A node does not let go of the view before the next one.
    #[error("{node} does not answer, or does not end its transactions: change to a view without it")]
    NotReady {
        /// The node.
        node: NodeId,
    },
    /// The view is without this node, which was silent for too long, or cut off.
    #[error(
        "this node is no member any more, since it was silent for too long, and the transaction {}; run it once the \
         node has joined again, and start its process again if it does not join by itself",
        if *.may_have_happened { "may have happened" } else { "has not happened" }
    )]
    Evicted {
        /// Whether the transaction may have happened, or still happen.
        may_have_happened: bool,
    },
    /// This node was evicted, and cannot join again. Nothing of the transaction has happened.
    #[error("this node was evicted, and cannot join again: {why}")]
    StaysOut {
        /// Why it cannot.
        #[source]
        why: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// This node has no lease on the view.
    #[error("this node has had no word of {leader}, which leads the view, for too long: see whether that is reached")]
    NoLease {
        /// The node that leads the view.
        leader: NodeId,
    },
    /// All nodes are gone that had a shard's rows. Nothing of the transaction has happened.
    #[error(
        "no node is left that has the rows of {shard}, and the transaction has not happened: start the node that had \
         them last again with its directory, or give the shard up with `drtm cluster give-up`"
    )]
    ShardLost {
        /// The first shard that is lost.
        shard: ShardId,
    },
    /// A shard is to be given up that is not lost.
    #[error("{shard} is not lost, and keeps its rows: `drtm cluster status` shows which shards are")]
    NotLost {
        /// The shard.
        shard: ShardId,
    },
    /// A node is to be replaced that is here.
    #[error("{node} is here, and is not replaced: stop it first, if it is to be")]
    StillHere {
        /// The node.
        node: NodeId,
    },
    /// A node is to be replaced by one at the address of another node.
    #[error("{node} cannot be at {address}, where another node is: give it an address of its own")]
    AddressTaken {
        /// The node that is to be replaced.
        node: NodeId,
        /// The address.
        address: std::net::SocketAddr,
    },
    /// A node is to be replaced that no owner's number names.
    #[error("{node} is no owner of the cluster: `drtm cluster status` shows which there are")]
    NoSuchNode {
        /// The number.
        node: NodeId,
    },
    /// The engine of agreement has no answer.
    #[error("who is a member cannot be agreed on: {0}")]
    Membership(#[from] drtm_membership::Error),
    /// The node is no owner, so it has no vote, and makes no cluster.
    #[error("{node} owns no rows, and only owners agree by Raft: tell an owner to make the cluster")]
    NoVoter {
        /// The node.
        node: NodeId,
    },
    /// Another incarnation of a node is here than the one that the view names.
    #[error("{node} is here as {is}, which is not a member of the cluster's view: let it join again")]
    NotAMember {
        /// Which node.
        node: NodeId,
        /// What it is.
        is: Incarnation,
    },
}

impl ClusterError {
    /// Returns the node that could not be reached, if that is what is wrong.
    pub(super) fn unreached(&self) -> Option<NodeId> {
        match self {
            Self::Unreachable { node, .. }
            | Self::OneSided { node, .. }
            | Self::Lookup { node, .. }
            | Self::OutcomeUnknown { node, .. }
            | Self::NotAMember { node, .. }
            | Self::NotHere { node } => Some(*node),
            _ => None,
        }
    }
}
