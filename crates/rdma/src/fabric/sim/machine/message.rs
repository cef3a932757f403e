//! What nodes send each other about transactions, and what the operations of a node return.

use super::{
    mutation::{Mutation, includes},
    profile::Line,
};
use crate::NodeId;

/// An attempt of a transaction: its node, its pair of filters there, and how often that pair was
/// used before.
///
/// # Example
///
/// ```
/// use drtm_rdma::{NodeId, machine::{MachineProfile, Node}};
///
/// let mut node = Node::new(NodeId(3), &MachineProfile::HADES);
/// let first = node.begin(0).expect("a pair of filters is free");
/// assert_eq!(first.node, NodeId(3));
/// node.abort(first);
/// assert_ne!(node.begin(0), Some(first), "a late message about the first must not reach the second");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TxId {
    /// The node that runs it.
    pub node: NodeId,
    /// Its pair of filters.
    pub slot: u16,
    /// The number of earlier transactions that had this pair, wrapping.
    pub attempt: u32,
}

impl TxId {
    /// Returns whether it is the same attempt.
    #[inline]
    pub(super) fn is(self, other: Self) -> bool {
        let same = (self.node, self.slot) == (other.node, other.slot);
        same && (self.attempt == other.attempt || includes(Mutation::AttemptsNotTold))
    }
}

/// A message between nodes about a transaction's commit.
///
/// Messages from its own node to another one must arrive in the order of sending. [`Message::Ack`]
/// and [`Message::Squash`], which go to its own node, may arrive in any order.
///
/// # Example
///
/// See the [module](super).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// Asks another node to lock what the transaction accessed there.
    Intend {
        /// The transaction.
        tx: TxId,
        /// The lines that it has written there, wholly or partly.
        lines: Vec<Line>,
    },
    /// Another node has locked it.
    Ack {
        /// The transaction.
        tx: TxId,
        /// The node that locked.
        from: NodeId,
    },
    /// Another node asks that the transaction be squashed.
    Squash {
        /// The transaction.
        tx: TxId,
        /// The reason.
        why: Stopped,
    },
    /// The transaction has committed. The values that it wrote go with this.
    Validate {
        /// The transaction.
        tx: TxId,
    },
    /// The transaction was squashed.
    Abort {
        /// The transaction.
        tx: TxId,
    },
}

impl Message {
    /// Returns the transaction that it is about.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{Message, TxId}};
    ///
    /// let tx = TxId { node: NodeId(0), slot: 1, attempt: 0 };
    /// assert_eq!(Message::Validate { tx }.tx(), tx);
    /// ```
    #[must_use]
    pub fn tx(&self) -> TxId {
        match self {
            Self::Intend { tx, .. } | Self::Ack { tx, .. } | Self::Squash { tx, .. } => *tx,
            Self::Validate { tx } | Self::Abort { tx } => *tx,
        }
    }
}

/// Why a transaction was squashed.
///
/// # Example
///
/// See [`Node::access`](super::Node::access).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stopped {
    /// It met another transaction of its own node on that node's lines.
    Local,
    /// A transaction that committed earlier conflicts with it.
    Committer,
    /// When it was about to lock a directory, a conflicting commit had locked it, or all locking
    /// buffers were taken.
    Locked,
    /// The last-level cache evicted a line that it had written.
    Evicted,
    /// Another node's NIC has no pair of filters free.
    NicFull,
}

/// Why an operation was not carried out.
///
/// # Example
///
/// See [`Node::access`](super::Node::access).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// The line is locked. Repeat it later.
    Denied,
    /// The transaction must be aborted.
    Squashed(Stopped),
}

/// The result of an access.
///
/// # Example
///
/// See [`Node::access`](super::Node::access).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an access can fail"]
pub struct Served {
    /// The cycles that it took.
    pub cycles: u64,
    /// Why it was not carried out. `None` if it was.
    pub stop: Option<Stop>,
}

impl Served {
    pub(super) fn done(cycles: u64) -> Self {
        Self { cycles, stop: None }
    }

    pub(super) fn stopped(cycles: u64, stop: Stop) -> Self {
        Self { cycles, stop: Some(stop) }
    }
}

/// How far a commit is.
///
/// # Example
///
/// See the [module](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// The next step can follow.
    Continues,
    /// It waits for acknowledgements.
    Waits,
    /// Every node has acknowledged: the transaction cannot be squashed any more. Its writes are to
    /// take effect.
    Decided,
    /// It has committed, and its filters are free.
    Committed,
    /// The step was not carried out.
    Stopped(Stop),
}

/// The result of a step of a commit.
///
/// # Example
///
/// See the [module](super).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "messages must be sent"]
pub struct Step {
    /// The cycles that it took.
    pub cycles: u64,
    /// How far the commit is.
    pub progress: Progress,
    /// The messages to send, with the nodes that get them.
    pub messages: Vec<(NodeId, Message)>,
}

impl Step {
    pub(super) fn of(cycles: u64, progress: Progress) -> Self {
        Self { cycles, progress, messages: Vec::new() }
    }

    pub(super) fn stopped(cycles: u64, stop: Stop) -> Self {
        Self::of(cycles, Progress::Stopped(stop))
    }
}
