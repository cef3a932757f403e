//! What happens to the nodes of a cluster, as one of them sees it.

use std::fmt;

use drtm_rdma::{Incarnation, NodeEvent, NodeId, Presence};
use parking_lot::Mutex;
use tokio::sync::broadcast::{
    self,
    error::{RecvError, TryRecvError},
};

use super::Refusal;
use crate::trace::event;

/// How many events are kept for whoever has not taken them yet.
const KEPT: usize = 1 << 10;

/// Refusals of one node for one reason, one after the other, that are an event; and then each time
/// as many as before.
const OFTEN: u32 = 16;

/// What a node of a cluster sees of the others.
///
/// # Example
///
/// See [`Events`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterEvent {
    /// A node has joined; or another incarnation of it, which knows nothing of the one before.
    Joined {
        /// The node.
        node: NodeId,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// A node has begun to close. What was begun there before is carried out, and what is not is
    /// refused.
    Closing {
        /// The node.
        node: NodeId,
    },
    /// This node is in another view.
    View {
        /// The view's number.
        number: u32,
    },
    /// Nodes are gone, and this node could not change to a view without them. It tries again.
    ViewKept {
        /// The view's number.
        number: u32,
        /// The node that is not ready. `None`: it cannot be agreed on, or no node is left that has
        /// rows of a shard.
        waits_for: Option<NodeId>,
    },
    /// A node has left in good order.
    Left {
        /// The node.
        node: NodeId,
    },
    /// A node has died, or was disconnected.
    Died {
        /// The node.
        node: NodeId,
    },
    /// A node is silent. It may come back as the same incarnation.
    Suspected {
        /// The node.
        node: NodeId,
    },
    /// A view is without this node, which was silent for too long, or cut off: it serves nothing
    /// any more. A [`Cluster`](super::Cluster) can join again by itself; otherwise it does when its
    /// process is started again.
    Evicted {
        /// The number of the view.
        number: u32,
    },
    /// This node was evicted, and has joined again by itself: a client begins transactions, and an
    /// owner is a member, and is given the rows of its shards, as one that is started again.
    Returned {
        /// Its incarnation from now on.
        incarnation: Incarnation,
    },
    /// This node was evicted and cannot join again: its place was taken by
    /// [another](super::Cluster::replace), or other nodes do not know it. What is given to it fails
    /// with [`ClusterError::StaysOut`](super::ClusterError::StaysOut), which says why.
    StaysOut,
    /// A node has refused transactions again and again.
    Refused {
        /// The node.
        node: NodeId,
        /// Why.
        reason: Refusal,
        /// How often in succession.
        times: u32,
    },
    /// There were events that were not taken in time.
    Missed {
        /// How many.
        count: u64,
    },
}

impl ClusterEvent {
    pub(super) fn of(NodeEvent { node, presence }: NodeEvent) -> Option<Self> {
        Some(match presence {
            Presence::Here(incarnation) => Self::Joined { node, incarnation },
            Presence::Left(_) => Self::Left { node },
            Presence::Died(_) => Self::Died { node },
            Presence::Suspected(_) => Self::Suspected { node },
            _ => return None,
        })
    }
}

/// The events of a [node](super::Cluster::events), from when they were asked for. What is not taken
/// in time is [missed](ClusterEvent::Missed): the last 1,024 are kept.
///
/// # Example
///
/// ```
/// use drtm::cluster::{Cluster, ClusterEvent};
///
/// let nodes = Cluster::builder().nodes(2).start()?;
/// let mut events = nodes[0].events();
/// assert_eq!(events.try_next(), None);
/// nodes[1].close();
/// assert!(matches!(events.wait(), Some(ClusterEvent::Left { .. })));
/// # Ok::<(), drtm::Error>(())
/// ```
pub struct Events(broadcast::Receiver<ClusterEvent>);

impl Events {
    /// Waits for the next event. `None`: the node is closed.
    ///
    /// # Example
    ///
    /// See [`Events`].
    pub async fn next(&mut self) -> Option<ClusterEvent> {
        received(self.0.recv().await)
    }

    /// Waits for the next event, and blocks this thread. `None`: the node is closed.
    ///
    /// # Panics
    ///
    /// Within an async runtime: see [`next`](Self::next).
    ///
    /// # Example
    ///
    /// See [`Events`].
    pub fn wait(&mut self) -> Option<ClusterEvent> {
        received(self.0.blocking_recv())
    }

    /// Takes an event, if there is one.
    ///
    /// # Example
    ///
    /// See [`Events`].
    pub fn try_next(&mut self) -> Option<ClusterEvent> {
        match self.0.try_recv() {
            Ok(event) => Some(event),
            Err(TryRecvError::Lagged(count)) => Some(ClusterEvent::Missed { count }),
            Err(_) => None,
        }
    }
}

fn received(event: Result<ClusterEvent, RecvError>) -> Option<ClusterEvent> {
    match event {
        Ok(event) => Some(event),
        Err(RecvError::Lagged(count)) => Some(ClusterEvent::Missed { count }),
        Err(RecvError::Closed) => None,
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("waiting", &self.0.len()).finish_non_exhaustive()
    }
}

/// Where a node's events go to whoever asks for them.
#[derive(Debug)]
pub(super) struct Announcer(Mutex<Option<broadcast::Sender<ClusterEvent>>>);

impl Default for Announcer {
    fn default() -> Self {
        Self(Mutex::new(Some(broadcast::Sender::new(KEPT))))
    }
}

impl Announcer {
    pub(super) fn events(&self) -> Events {
        match &*self.0.lock() {
            Some(sender) => Events(sender.subscribe()),
            // None will come.
            None => Events(broadcast::channel(1).1),
        }
    }

    /// Announces nothing more.
    pub(super) fn end(&self) {
        *self.0.lock() = None;
    }

    /// Announces an event to whoever listens.
    pub(super) fn announce(&self, event: ClusterEvent) {
        match event {
            ClusterEvent::Joined { node: _node, incarnation: _incarnation } => {
                event!(info, node = _node.0, incarnation = _incarnation.0, "a node has joined");
            }
            ClusterEvent::Closing { node: _node } => event!(info, node = _node.0, "a node closes"),
            ClusterEvent::View { number: _number } => event!(info, view = _number, "the view has changed"),
            ClusterEvent::ViewKept { number: _number, waits_for: Some(_node) } => {
                event!(warn, view = _number, node = _node.0, "the view does not change: a node is not ready");
            }
            ClusterEvent::ViewKept { number: _number, waits_for: None } => {
                event!(warn, view = _number, "the view cannot be changed");
            }
            ClusterEvent::Evicted { number: _number } => event!(error, view = _number, "the view is without this node"),
            ClusterEvent::Returned { incarnation: _incarnation } => {
                event!(info, incarnation = _incarnation.0, "this node is a member again");
            }
            ClusterEvent::StaysOut => event!(error, "this node cannot join again"),
            ClusterEvent::Left { node: _node } => event!(info, node = _node.0, "a node has left"),
            ClusterEvent::Died { node: _node } => event!(warn, node = _node.0, "a node has died"),
            ClusterEvent::Suspected { node: _node } => event!(warn, node = _node.0, "a node is silent"),
            ClusterEvent::Refused { node: _node, reason: _reason, times: _times } => {
                event!(warn, node = _node.0, reason = %_reason, times = _times, "a node refuses again and again");
            }
            ClusterEvent::Missed { .. } => {}
        }
        if let Some(sender) = &*self.0.lock() {
            // Nobody need listen.
            let _ = sender.send(event);
        }
    }
}

/// The last refusals of other nodes, in succession.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refusals {
    last: Option<(NodeId, Refusal)>,
    times: u32,
}

impl Refusals {
    /// Notes one. Returns how many there were, if that is often.
    pub(super) fn note(&mut self, node: NodeId, reason: Refusal) -> Option<u32> {
        if self.last.replace((node, reason)) != Some((node, reason)) {
            self.times = 0;
        }
        self.times = self.times.saturating_add(1);
        (self.times.is_power_of_two() && self.times >= OFTEN).then_some(self.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_in_succession_are_counted() {
        let mut refusals = Refusals::default();
        let mut note = |node, reason| refusals.note(NodeId(node), reason);
        let told: Vec<_> = (0..40).filter_map(|_| note(1, Refusal::Full)).collect();
        assert_eq!(told, [16, 32]);
        assert_eq!(note(2, Refusal::Full), None);
        assert_eq!((0..16).filter_map(|_| note(1, Refusal::Closed)).collect::<Vec<_>>(), [16]);
    }
}
