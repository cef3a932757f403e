//! The interface of a backend: it takes an endpoint's requests, and reports their outcomes.
//!
//! All that is common to the backends (buffers, futures, counters, batches, the executor) is on the
//! endpoint's side of this interface. A backend owns queue pairs, a completion queue and the
//! receiving of messages.

use std::fmt;

use crate::{
    Buffers, Capabilities, Cost, Incarnation, NodeEvent, NodeId, Presence, Remote, Time, VerbError, alarm::Ringer,
    buffers::Buffer,
};

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
    #[cfg(all(feature = "verbs", not(feature = "model")))]
    #[inline(always)]
    pub(crate) fn is_message(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Call { .. })
    }
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
    /// An operation is pending elsewhere, and its completion ends a [`Backend::wait`]. The endpoint
    /// may sleep.
    Remote,
    /// An operation is pending that only needs more polls.
    Busy,
}

/// A backend's part of an endpoint.
pub trait Backend: fmt::Debug + Send {
    /// Whether time is virtual. Then a wait takes no real time, so that nothing spins, and the
    /// processor's work takes time only where it is [charged](Self::charge).
    const VIRTUAL: bool = false;

    /// Whether spinning yields the processor between polls. It does not if completions come from
    /// the system: on a busy machine a yield loses the processor for milliseconds, while a sleeper
    /// is woken much sooner.
    const YIELDS: bool = true;

    /// Returns the node that this port belongs to.
    fn node(&self) -> NodeId;

    /// Returns what the fabric can do.
    fn capabilities(&self) -> Capabilities;

    /// Returns the buffers that the endpoint should have.
    fn buffers(&self) -> Buffers;

    /// Reserves a place in the queue to a node. It is freed when the operation completes or is
    /// released.
    fn reserve(&mut self, to: NodeId) -> Result<(), VerbError>;

    /// Releases a reserved place that was not used.
    fn release(&mut self, to: NodeId);

    /// Queues a request for which a place is reserved.
    fn post(&mut self, work: Work);

    /// Starts all queued requests: one doorbell for each node with queued requests.
    fn ring(&mut self);

    /// Advances pending operations, and reports completed ones. Completions to one node come in the
    /// order of posting.
    fn poll(&mut self, events: &mut impl Events) -> Activity;

    /// Returns whether polls have done something for peers since the last call, so that there may
    /// be more soon.
    #[inline(always)]
    fn has_served(&mut self) -> bool {
        false
    }

    /// Returns whether there may be a message to receive.
    fn has_mail(&mut self) -> bool;

    /// Takes the next message sent to this node.
    fn receive(&mut self) -> Option<Received>;

    /// Replies to a call, with the frame that it came in, or refuses it without one. It needs no
    /// place in a queue, so that a request that waits for room can never delay the reply that makes
    /// room.
    fn reply(&mut self, to: ReplyTo, reply: Reply);

    /// Returns the frame of a received message.
    fn recycle_message(&mut self, frame: Frame);

    /// Returns the frame of a reply.
    fn recycle_reply(&mut self, frame: Frame);

    /// Returns the time on the fabric's clock.
    fn now(&self) -> Time;

    /// Returns what other threads ring to end a [`wait`](Self::wait), after they have published
    /// something.
    fn ringer(&self) -> Ringer;

    /// Sleeps until there may be something to poll for, or to receive if the endpoint is
    /// `receiving`; until the alarm is rung; or until a moment. Does not sleep if there is
    /// something already, or if `quiet` returns false. It calls `quiet` when later events would end
    /// the sleep. May return earlier. If the last poll returned [`Activity::Busy`], it is called
    /// only where time is virtual.
    fn wait(&mut self, until: Option<Time>, receiving: bool, quiet: impl FnOnce() -> bool);

    /// Declares that no coroutine at this endpoint receives any more: another endpoint of the node
    /// may have to.
    fn retire(&mut self);

    /// Returns the presence of a node.
    fn presence(&self, node: NodeId) -> Presence;

    /// Returns the next change of a node's presence.
    fn next_event(&mut self) -> Option<NodeEvent>;

    /// Charges the endpoint's processor for work of protocol code. Only a simulation uses it.
    #[inline(always)]
    fn charge(&mut self, cost: Cost) {
        let _ = cost;
    }

    /// Connects the queue of a node to the incarnation that is here now, and returns it. Requests
    /// that are still in the queue fail. Returns `None` while the end of the previous incarnation
    /// is not reported yet: poll first.
    fn reconnect(&mut self, node: NodeId) -> Result<Option<Incarnation>, VerbError>;
}

/// A reply, in the frame of the message that it answers. The frame returns to the backend either
/// way.
#[derive(Debug)]
pub struct Reply {
    pub(crate) frame: Frame,
    pub(crate) refused: bool,
}
