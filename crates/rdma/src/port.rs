//! What a backend does for an endpoint: takes requests, and says what became of them.
//!
//! Everything that is the same whatever carries the operations (buffers, futures, counters,
//! batches, the executor) is on the endpoint's side of this interface. A backend owns queue pairs,
//! a completion queue and the receiving of messages.

use std::fmt;

use crate::{
    Buffers, Capabilities, Cost, Incarnation, NodeEvent, NodeId, Presence, Remote, Time, VerbError, alarm::Ringer,
    buffers::Buffer,
};

/// Names an operation that somebody wants to hear of. Never the same for two operations of an
/// endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// One operation, with the buffers that it owns while it is under way.
#[derive(Debug)]
pub enum Verb {
    /// Fetches as many words as `into` has.
    Read { from: Remote, into: Buffer<u64> },
    /// Stores the words of `from`.
    Write { to: Remote, from: Buffer<u64> },
    /// Stores `new` where `expected` is found, and gives what was found.
    CompareSwap { at: Remote, expected: u64, new: u64 },
    /// Adds, wrapping, and gives what was found.
    FetchAdd { at: Remote, add: u64 },
    /// Delivers a message that wants no reply.
    Send { to: NodeId, bytes: Buffer<u8> },
    /// Delivers a message that wants one. Completes, for the endpoint, with the reply, unless it
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
}

/// A request: an operation, and whether its completion is signaled.
#[derive(Debug)]
pub struct Work {
    /// Absent: unsignaled. Calls always have one.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) verb: Verb,
}

/// A received message's memory, which belongs to the backend and goes back to it.
pub(crate) type Frame = Vec<u8>;

/// Whom a reply goes to: one endpoint of an incarnation, in one of its lives, and one of its calls.
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
    /// Present in a call.
    pub(crate) reply_to: Option<ReplyTo>,
}

/// What a poll finds out.
pub trait Events {
    /// An operation is over. Its buffers come back with it, signaled or not. The result is what an
    /// atomic found, or anything.
    fn completed(&mut self, ticket: Option<Ticket>, verb: Verb, result: Result<u64, VerbError>);

    /// A call was answered; without a frame, it was dropped unanswered.
    fn replied(&mut self, ticket: Ticket, from: NodeId, frame: Option<Frame>);

    /// The incarnation of a node that the queue to it belongs to is gone, or cut off. Calls that it
    /// has taken will not be answered, and end with this error.
    fn departed(&mut self, node: NodeId, error: VerbError);

    /// Nodes have come or gone.
    fn changed(&mut self);
}

/// How a port stands after a poll, from the best news to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// Nothing is under way.
    Idle,
    /// All that is under way waits for a peer: to take messages, or to make its memory known.
    Blocked,
    /// Something is under way elsewhere, and its completion ends a [`Backend::wait`]. The endpoint
    /// may sleep.
    Remote,
    /// Something is under way and needs only to be polled.
    Busy,
}

/// A backend's part of an endpoint.
pub trait Backend: fmt::Debug + Send {
    /// Whether time is virtual: a wait takes none of the thread's, so that nothing spins, and what
    /// the processor does takes time only where that is [charged](Self::charge).
    const VIRTUAL: bool = false;

    /// Whether spinning gives the processor away between looks. Not where completions come from the
    /// system: on a busy machine it is given away for milliseconds, and a sleeper is woken much
    /// sooner.
    const YIELDS: bool = true;

    /// The node that this port belongs to.
    fn node(&self) -> NodeId;

    /// What the fabric can do.
    fn capabilities(&self) -> Capabilities;

    /// What buffers the endpoint is to have.
    fn buffers(&self) -> Buffers;

    /// Sets a place in the queue to a node aside. It is free again when the operation completes or
    /// is released.
    fn reserve(&mut self, to: NodeId) -> Result<(), VerbError>;

    /// Gives up a place that was reserved, and not used.
    fn release(&mut self, to: NodeId);

    /// Queues a request for which a place is reserved.
    fn post(&mut self, work: Work);

    /// Lets everything queued begin: one doorbell for each node with something queued.
    fn ring(&mut self);

    /// Moves what is under way along and reports what is over. Completions to one node come in the
    /// order of posting.
    fn poll(&mut self, events: &mut impl Events) -> Activity;

    /// Whether there may be a message to receive.
    fn has_mail(&mut self) -> bool;

    /// Takes the next message sent to this node.
    fn receive(&mut self) -> Option<Received>;

    /// Answers a call, with the frame that it came in; without one, says that there will be no
    /// answer. Needs no place in a queue, so that a request that waits for room can never hold up
    /// the reply that makes room.
    fn reply(&mut self, to: ReplyTo, reply: Reply);

    /// Takes back the frame of a received message.
    fn recycle_message(&mut self, frame: Frame);

    /// Takes back the frame of a reply.
    fn recycle_reply(&mut self, frame: Frame);

    /// The time on the fabric's clock.
    fn now(&self) -> Time;

    /// What other threads ring to end a [`wait`](Self::wait), after publishing what they ring for.
    fn ringer(&self) -> Ringer;

    /// Sleeps until there may be something to poll for, or to receive where the endpoint is
    /// `receiving`; until the alarm is rung; or until a moment. Does not sleep where there is
    /// something already, nor where `quiet` says so, which is asked when whatever comes later would
    /// end the sleep. May return earlier. Called while the last poll found that something is
    /// [`Activity::Busy`] only where time is virtual.
    fn wait(&mut self, until: Option<Time>, receiving: bool, quiet: impl FnOnce() -> bool);

    /// Says that no coroutine at this endpoint receives any more: another endpoint of the node may
    /// have to.
    fn retire(&mut self);

    /// How a node stands.
    fn presence(&self, node: NodeId) -> Presence;

    /// What is new of the nodes.
    fn next_event(&mut self) -> Option<NodeEvent>;

    /// The endpoint's processor has done something that protocol code names. Of use to a simulation
    /// only.
    #[inline(always)]
    fn charge(&mut self, cost: Cost) {
        let _ = cost;
    }

    /// Makes the queue to a node belong to the incarnation that is here now, and gives that. What
    /// is still in the queue fails. Gives nothing while the end of the one before is not reported
    /// yet: poll first.
    fn reconnect(&mut self, node: NodeId) -> Result<Option<Incarnation>, VerbError>;
}

/// An answer, in the frame of the message that it answers, which goes back to the backend either
/// way.
#[derive(Debug)]
pub struct Reply {
    pub(crate) frame: Frame,
    pub(crate) refused: bool,
}
