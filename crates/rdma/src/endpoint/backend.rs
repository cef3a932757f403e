//! The interface of a backend: it posts an endpoint's requests, advances its queues, and reports
//! the outcomes.
//!
//! All that is common to the backends (queues, buffers, futures, counters, batches, the executor)
//! is on the endpoint's side of this interface. A backend owns connections, completions and the
//! receiving of messages.

use std::{fmt, sync::Arc};

use crate::{
    Buffers, Capabilities, Cost, Incarnation, NodeEvent, NodeId, Presence, Time, VerbError,
    endpoint::{
        port::{Activity, Events, Frame, Received, Reply, ReplyTo, Sender, Work},
        queues::{Line, Queues},
    },
    fabric::lifetime::Life,
    sync::alarm::Ringer,
};

/// A backend's part of an endpoint.
pub trait Backend: fmt::Debug + Send {
    /// An incarnation of a node.
    type Life: Life;

    /// What it keeps for each queue.
    type Line: Line;

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

    /// Returns the queues.
    fn queues(&mut self) -> &mut Queues<Self::Life, Self::Line>;

    /// Returns the incarnation of a node that is here, or was last.
    fn life(&self, node: NodeId) -> Result<Arc<Self::Life>, VerbError>;

    /// Returns whether the queue of a node can be connected to another incarnation, which is here.
    fn may_reconnect(&mut self, node: NodeId, incarnation: Incarnation) -> Result<bool, VerbError> {
        let _ = (node, incarnation);
        Ok(true)
    }

    /// Handles that the queue of a node has been connected to an incarnation.
    fn connected(&mut self, node: NodeId) {
        let _ = node;
    }

    /// Reserves a place in the queue to a node. It is freed when the operation completes or is
    /// released.
    #[inline(always)]
    fn reserve(&mut self, to: NodeId) -> Result<(), VerbError> {
        if self.queues().reserve(to) { Ok(()) } else { self.reserve_or_refuse(to) }
    }

    /// Connects the queue to a node at its first use, and reserves a place. Otherwise there is no
    /// place.
    #[cold]
    fn reserve_or_refuse(&mut self, to: NodeId) -> Result<(), VerbError> {
        if !self.queues().is_connected(to) {
            let life = self.life(to)?;
            self.queues().connect(to, life);
            self.connected(to);
        }
        if self.queues().reserve(to) { Ok(()) } else { Err(self.queues().full(to)) }
    }

    /// Releases a reserved place that was not used.
    fn release(&mut self, to: NodeId) {
        self.queues().release(to);
    }

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

    /// Replies to a call, with the frame that it came in, or refuses it. It needs no place in a
    /// queue, so that a request that waits for room can never delay the reply that makes room.
    ///
    /// # Errors
    ///
    /// The reply, which has to wait, and what it waits for.
    fn reply(&mut self, to: &ReplyTo, reply: Reply) -> Result<(), (Reply, Activity)>;

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

    /// Returns whether a node that is here takes nothing of this incarnation any more.
    fn is_refused_by(&self, node: NodeId) -> bool {
        let _ = node;
        false
    }

    /// Returns the next change of a node's presence.
    fn next_event(&mut self) -> Option<NodeEvent>;

    /// Charges the endpoint's processor for work of protocol code. Only a simulation uses it.
    #[inline(always)]
    fn charge(&mut self, cost: Cost) {
        let _ = cost;
    }

    /// Says as what calls are posted from now on. Only a simulation uses it.
    #[inline(always)]
    fn sends_as(&mut self, sender: Sender) {
        let _ = sender;
    }

    /// Connects the queue of a node to the incarnation that is here now, and returns it. Returns
    /// `None` while the end of the previous incarnation is not reported yet: poll first.
    fn reconnect(&mut self, node: NodeId) -> Result<Option<Incarnation>, VerbError> {
        let life = self.life(node)?;
        if life.is_over() {
            return Err(life.gone());
        }
        let incarnation = life.incarnation();
        match self.queues().prepare(node, &life) {
            Some(true) => {}
            Some(false) if self.may_reconnect(node, incarnation)? => {
                self.queues().connect(node, life);
                self.connected(node);
            }
            Some(false) | None => return Ok(None),
        }
        Ok(Some(incarnation))
    }
}

/// The backend of an endpoint: implemented by this crate's fabrics, and named by generic code.
///
/// # Example
///
/// ```
/// use drtm_rdma::{Port, Remote, VerbError, Verbs};
///
/// /// Follows a link: two round trips.
/// async fn follow<P: Port>(verbs: Verbs<'_, P>, link: Remote) -> Result<u64, VerbError> {
///     let offset = drtm_rdma::Offset::new(verbs.read_word(link).await?);
///     verbs.read_word(Remote { offset, ..link }).await
/// }
/// ```
pub trait Port: Backend {}
