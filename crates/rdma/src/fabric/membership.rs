//! Membership: incarnations of nodes, and events of their presence.

use std::fmt;

use crate::NodeId;

/// The incarnation of a node: it increases each time the node comes back, and is never reused.
///
/// An endpoint's queue to a node belongs to one incarnation. When that is gone, operations fail
/// until [`Endpoint::reconnect`](crate::Endpoint::reconnect) accepts the next one: addresses in the
/// old one's memory are invalid in the new one's.
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

/// The presence of a node.
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
    /// It was never here.
    #[default]
    Never,
    /// It is here.
    Here(Incarnation),
    /// It has left in good order.
    Left(Incarnation),
    /// It has died, or was disconnected.
    Died(Incarnation),
    /// It was silent beyond the fabric's deadline, and may have died or be disconnected. It can
    /// come back as the same incarnation.
    Suspected(Incarnation),
}

impl Presence {
    /// Returns the incarnation that is here, if one is.
    #[must_use]
    pub fn here(self) -> Option<Incarnation> {
        match self {
            Self::Here(incarnation) => Some(incarnation),
            Self::Never | Self::Left(_) | Self::Died(_) | Self::Suspected(_) => None,
        }
    }

    /// Returns the last incarnation that was seen, here or not.
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

/// A change of a node's presence, as seen by one endpoint: returned by
/// [`Endpoint::next_event`](crate::Endpoint::next_event).
///
/// Several changes between two checks are reported once: a node that has died and come back is
/// reported as the new incarnation being here, which implies that the old one is gone.
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
    /// Its present state.
    pub presence: Presence,
}

/// The presence of nodes that an endpoint has reported, to find what is new.
#[derive(Debug, Default)]
pub(crate) struct Told(Vec<Presence>);

impl Told {
    /// Begins with the present state, none of which is new.
    pub(crate) fn of(now: impl IntoIterator<Item = Presence>) -> Self {
        Self(now.into_iter().collect())
    }

    /// Returns the next change, which then counts as reported.
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
