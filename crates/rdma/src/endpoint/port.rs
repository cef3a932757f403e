//! Requests of an endpoint to its backend, and what comes back.

use crate::{Incarnation, NodeId, Remote, VerbError, endpoint::buffers::Buffer};

/// Identifies an operation that is waited for. It is never the same for two operations of an
/// endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Ticket {
    /// The ticket of no operation.
    pub(crate) const NONE: Self = Self { index: u32::MAX, generation: u32::MAX };
}

/// One operation, with the buffers that it owns while it is pending.
#[derive(Debug)]
pub enum Verb {
    /// Fetches as many words as `into` has.
    Read { from: Remote, into: Buffer<u64> },
    /// Stores the words of `from`.
    Write { to: Remote, from: Buffer<u64> },
    /// Stores `new` if the word is `expected`, and returns the old value.
    CompareSwap { at: Remote, expected: u64, new: u64 },
    /// Adds, wrapping, and returns the old value.
    FetchAdd { at: Remote, add: u64 },
    /// Delivers a message without a reply.
    Send { to: NodeId, bytes: Buffer<u8> },
    /// Delivers a message with a reply. For the endpoint it completes with the reply, unless it
    /// fails.
    Call { to: NodeId, bytes: Buffer<u8> },
}

impl Verb {
    #[inline(always)]
    pub(crate) fn node(&self) -> NodeId {
        match self {
            Self::Read { from: at, .. }
            | Self::Write { to: at, .. }
            | Self::CompareSwap { at, .. }
            | Self::FetchAdd { at, .. } => at.node,
            Self::Send { to, .. } | Self::Call { to, .. } => *to,
        }
    }

    /// Returns whether it is a message, with or without a reply.
    #[inline(always)]
    pub(crate) fn is_message(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Call { .. })
    }
}

/// What sends a call, and takes its reply. It only matters in a simulation, where it says what that
/// costs a processor.
///
/// # Example
///
/// See [`Rpc::sent_by`](crate::rpc::Rpc::sent_by).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sender {
    /// A processor, by a message whose reply is a message.
    #[default]
    Message,
    /// A processor, by a verb whose reply is a completion.
    Verb,
    /// The node's NIC itself, which its processors have told what to do before.
    Nic,
}

/// A request: an operation, and whether its completion is signaled.
#[derive(Debug)]
pub struct Work {
    /// `None` if it is unsignaled. Calls always have one.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) verb: Verb,
}

/// The memory of a received message, which belongs to the backend and is returned to it.
pub(crate) type Frame = Vec<u8>;

/// The destination of a reply: one endpoint of an incarnation, in one of its lives, and one of its
/// calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) endpoint: u16,
    pub(crate) life: u32,
    pub(crate) ticket: Ticket,
}

/// A message, as it arrives.
#[derive(Debug)]
pub struct Received {
    pub(crate) from: NodeId,
    pub(crate) frame: Frame,
    /// `Some` for a call.
    pub(crate) reply_to: Option<ReplyTo>,
}

/// The receiver of a poll's results.
pub trait Events {
    /// Reports a completed operation, signaled or not, and returns its buffers. The result is the
    /// value that an atomic found; for others it has no meaning.
    fn completed(&mut self, ticket: Option<Ticket>, verb: Verb, result: Result<u64, VerbError>);

    /// Reports the reply to a call. Without a frame, the call was dropped unanswered.
    fn replied(&mut self, ticket: Ticket, from: NodeId, frame: Option<Frame>);

    /// Reports that the incarnation which the queue to a node belongs to is gone or disconnected.
    /// Calls that it has received will not be answered, and end with this error.
    fn departed(&mut self, node: NodeId, error: VerbError);

    /// Reports that the presence of nodes has changed.
    fn changed(&mut self);
}

/// The state of a port after a poll, from the least activity to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// Nothing is pending.
    Idle,
    /// All pending operations wait for a peer: to take messages, or to publish its memory.
    Blocked,
    /// An operation is pending elsewhere, and its completion ends a
    /// [`Backend::wait`](crate::endpoint::backend::Backend::wait). The endpoint may sleep.
    Remote,
    /// An operation is pending that only needs more polls.
    Busy,
}

/// A reply, in the frame of the message that it answers. The frame returns to the backend either
/// way.
#[derive(Debug)]
pub struct Reply {
    pub(crate) frame: Frame,
    pub(crate) refused: bool,
}
