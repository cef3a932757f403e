//! Why a node cannot join, and why a node has refused others.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::{Incarnation, NodeId};

/// A cluster that cannot be joined.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{NodeId, TcpConfig, TcpError, TcpFabric};
///
/// let config = TcpConfig::new(NodeId(5000), "127.0.0.1:0".parse()?, [7; 32]);
/// assert!(matches!(TcpFabric::join(NoHtm, config), Err(TcpError::Node { .. })));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TcpError {
    /// A number that no node can have.
    #[error("{node} cannot be part of a cluster; nodes are numbered below {most}")]
    Node {
        /// The node.
        node: NodeId,
        /// One more than the largest number.
        most: usize,
    },
    /// The other side ends the connection without a word.
    #[error("{node} broke the handshake off; its key or format may be another: compare the configurations")]
    Refused {
        /// The node.
        node: NodeId,
    },
    /// The answer was not made with this cluster's key.
    #[error("what answers at the address of {node} does not have this cluster's key")]
    Key {
        /// The node.
        node: NodeId,
    },
    /// The other side speaks another version.
    #[error(
        "{node} speaks version {theirs} of the protocol, and this node version {ours}; use one in the whole cluster"
    )]
    Version {
        /// The node.
        node: NodeId,
        /// Its version.
        theirs: u16,
        /// The version here.
        ours: u16,
    },
    /// What listens at the address is another node.
    #[error("at the address of {node} there is another node; mend the directory of addresses")]
    Addressee {
        /// The node.
        node: NodeId,
    },
    /// The node does not know this one.
    #[error("{node} does not have this node in its directory of addresses; add it there")]
    Unknown {
        /// The node.
        node: NodeId,
    },
    /// The node has this one at another address, where another process may have its number.
    #[error(
        "{node} has this node at another address than {address}; if the other address is another process's, give this \
         one a number of its own, otherwise mend the directory of addresses, or name the address with \
         `TcpConfig::advertise`"
    )]
    Elsewhere {
        /// The node.
        node: NodeId,
        /// Where this node says that it is.
        address: SocketAddr,
    },
    /// The directory has this node elsewhere than where it listens.
    #[error(
        "{node} listens at {listens}, and is at {directory} in its directory of addresses; if another process is \
         there, give this one a number of its own, otherwise mend the directory, or name the address at which peers \
         reach it with `TcpConfig::advertise`"
    )]
    OwnAddress {
        /// This node.
        node: NodeId,
        /// Where it listens.
        listens: SocketAddr,
        /// Where it is in the directory.
        directory: SocketAddr,
    },
    /// A later incarnation of this node was there, or this one's end is known.
    #[error("{node} knows {incarnation} of this node to be over; come back with a larger number")]
    Stale {
        /// The node.
        node: NodeId,
        /// The incarnation of this node.
        incarnation: Incarnation,
    },
    /// The other side's engine is of another kind.
    #[error("{node} uses an engine of another kind; use one in the whole cluster")]
    Engine {
        /// The node.
        node: NodeId,
    },
    /// One of the two encrypts, and the other does not.
    #[error("of {node} and this node one encrypts and the other does not")]
    Sealing {
        /// The node.
        node: NodeId,
    },
    /// The other side has as many connections as it may have.
    #[error("{node} has as many connections as it may have; raise its limit")]
    Full {
        /// The node.
        node: NodeId,
    },
    /// A node accepts the connection and does not answer.
    #[error("{node} does not answer; it may be stopped: let it go on, or end it")]
    NoAnswer {
        /// The node.
        node: NodeId,
    },
    /// The system refused something.
    #[error("cannot {what}: {source}")]
    System {
        /// What was to be done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl TcpError {
    pub(super) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    pub(super) fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::System { what, source: errno.into() }
    }
}

/// Why a connection was refused or cut off.
///
/// # Example
///
/// See [`TcpFabric::refusals`](crate::TcpFabric::refusals).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// Its first bytes are not this protocol's.
    Format,
    /// It speaks another version.
    Version,
    /// Its first message was not made with the cluster's key.
    Key,
    /// Its handshake took too long.
    Slow,
    /// It ended before its handshake did.
    Truncated,
    /// More handshakes were pending than there is room for.
    Crowded,
    /// More handshakes than are answered in a second.
    Rate,
    /// It is for another node, or from one that is not known to be here.
    Unknown,
    /// It is of an incarnation that is over, or for one that is not here.
    Stale,
    /// Its engine, or whether it encrypts, is different.
    Mismatch,
    /// Its sender is connected already.
    Duplicate,
    /// There are as many connections as there may be.
    Full,
    /// A record failed to open: it was changed, repeated, moved or left out; or the handshake was a
    /// copy of an earlier one.
    Forged,
    /// A frame or message that is none, or that does not belong there.
    Malformed,
    /// An access outside of what is registered. The connection goes on; the operation fails.
    OutOfGrant,
    /// It is from another address than its node's.
    Elsewhere,
}

impl Refusal {
    /// Each of them.
    pub const ALL: [Self; 16] = [
        Self::Format,
        Self::Version,
        Self::Key,
        Self::Slow,
        Self::Truncated,
        Self::Crowded,
        Self::Rate,
        Self::Unknown,
        Self::Stale,
        Self::Mismatch,
        Self::Duplicate,
        Self::Full,
        Self::Forged,
        Self::Malformed,
        Self::OutOfGrant,
        Self::Elsewhere,
    ];
}

/// How often a node has refused something, by cause.
///
/// # Example
///
/// See [`TcpFabric::refusals`](crate::TcpFabric::refusals).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Refusals([u64; Refusal::ALL.len()]);

impl Refusals {
    /// Returns the count of one cause.
    #[must_use]
    pub fn of(&self, refusal: Refusal) -> u64 {
        self.0[refusal as usize]
    }

    /// Returns the count of all causes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// The causes that have occurred.
impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some = Refusal::ALL.iter().map(|refusal| (refusal, self.of(*refusal))).filter(|(_, count)| *count > 0);
        f.debug_map().entries(some).finish()
    }
}

/// The counters behind that.
#[derive(Debug, Default)]
pub(super) struct RefusalCounters([AtomicU64; Refusal::ALL.len()]);

impl RefusalCounters {
    pub(super) fn count(&self, refusal: Refusal) {
        self.0[refusal as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn read(&self) -> Refusals {
        Refusals(self.0.each_ref().map(|count| count.load(Relaxed)))
    }
}
