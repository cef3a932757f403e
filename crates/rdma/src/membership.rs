//! Nodes come and go: which incarnation of a node there is, and the news of it.

use std::fmt;

use crate::NodeId;

/// Which of the lives of a node: grows each time the node comes back, and is never used twice.
///
/// An endpoint's queue to a node belongs to one incarnation. When that is gone, what is posted
/// fails until [`Endpoint::reconnect`](crate::Endpoint::reconnect) accepts the next one: addresses
/// in the memory of the old one mean nothing in that of the new.
///
/// # Example
///
/// ```
/// use drtm_rdma::Incarnation;
///
/// assert!(Incarnation(2) > Incarnation(1));
/// assert_eq!(Incarnation(2).to_string(), "incarnation 2");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u32);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "incarnation {}", self.0)
    }
}

/// How a node stands.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fabric, Incarnation, LocalConfig, LocalFabric, NodeId, Presence};
///
/// let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
/// let endpoint = fabric.endpoint(NodeId(0))?;
/// assert_eq!(endpoint.presence(NodeId(1)), Presence::Here(Incarnation(1)));
/// fabric.kill(NodeId(1))?;
/// assert_eq!(endpoint.presence(NodeId(1)), Presence::Died(Incarnation(1)));
/// assert_eq!(endpoint.presence(NodeId(7)), Presence::Never);
/// # Ok::<(), drtm_rdma::FabricError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Presence {
    /// It has not been here.
    #[default]
    Never,
    /// It is here.
    Here(Incarnation),
    /// It has left in good order.
    Left(Incarnation),
    /// It has died, or was cut off.
    Died(Incarnation),
    /// It was silent for longer than the fabric's deadline, and may have died or be cut off. It can
    /// come back as the same incarnation.
    Suspected(Incarnation),
}

impl Presence {
    /// The incarnation that is here, if one is.
    #[must_use]
    pub fn here(self) -> Option<Incarnation> {
        match self {
            Self::Here(incarnation) => Some(incarnation),
            Self::Never | Self::Left(_) | Self::Died(_) | Self::Suspected(_) => None,
        }
    }

    /// The last incarnation that was seen, here or not.
    #[must_use]
    pub fn last(self) -> Option<Incarnation> {
        match self {
            Self::Never => None,
            Self::Here(incarnation)
            | Self::Left(incarnation)
            | Self::Died(incarnation)
            | Self::Suspected(incarnation) => Some(incarnation),
        }
    }
}

/// A change of how a node stands, as one endpoint learns of it: from
/// [`Endpoint::next_event`](crate::Endpoint::next_event).
///
/// What changed several times between two looks is told once: a node that has died and come back is
/// told as the new incarnation being here, and that the old one is gone follows.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fabric, Incarnation, LocalConfig, LocalFabric, NodeId, Presence, block_on};
///
/// let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
/// let endpoint = fabric.endpoint(NodeId(0))?;
/// fabric.kill(NodeId(1))?;
/// let event = block_on(&endpoint, endpoint.next_event());
/// assert_eq!((event.node, event.presence), (NodeId(1), Presence::Died(Incarnation(1))));
///
/// fabric.revive(NodeId(1))?;
/// let event = block_on(&endpoint, endpoint.next_event());
/// assert_eq!(event.presence, Presence::Here(Incarnation(2)));
/// assert_eq!(endpoint.reconnect(NodeId(1))?, Incarnation(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeEvent {
    /// The node.
    pub node: NodeId,
    /// How it stands now.
    pub presence: Presence,
}

/// What an endpoint has been told of the nodes, so that it is told what is new.
#[derive(Debug, Default)]
pub(crate) struct Told(Vec<Presence>);

impl Told {
    /// Nothing is news that is so already.
    pub(crate) fn of(now: impl IntoIterator<Item = Presence>) -> Self {
        Self(now.into_iter().collect())
    }

    /// The next thing that is new, which from now on is told.
    pub(crate) fn next(&mut self, now: impl IntoIterator<Item = Presence>) -> Option<NodeEvent> {
        for (node, presence) in now.into_iter().enumerate() {
            if self.0.len() <= node {
                self.0.push(Presence::Never);
            }
            if std::mem::replace(&mut self.0[node], presence) != presence {
                return Some(NodeEvent { node: NodeId(node as u16), presence });
            }
        }
        None
    }
}
