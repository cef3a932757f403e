//! What can go wrong, and when.

use std::time::Duration;

use crate::NodeId;

/// What may happen to each packet, as probabilities from 0 to 1.
///
/// A packet of a connection that is lost is sent again, and what follows it waits. Only datagrams
/// are doubled, or overtaken by later ones.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use drtm_rdma::{Chances, NicProfile, SimConfig};
///
/// let chances = Chances { loss: 0.05, delay: 0.1, at_most: Duration::from_micros(50), ..Chances::NONE };
/// let config = SimConfig::new(&NicProfile::CONNECTX_4).chances(chances);
/// # let _ = config;
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chances {
    /// That it is delayed.
    pub delay: f64,
    /// The longest delay.
    pub at_most: Duration,
    /// That it is lost.
    pub loss: f64,
    /// That a datagram arrives twice.
    pub duplicate: f64,
}

impl Chances {
    /// Nothing happens.
    pub const NONE: Self = Self { delay: 0.0, at_most: Duration::ZERO, loss: 0.0, duplicate: 0.0 };
}

/// What a node that restarts finds of its memory.
///
/// # Example
///
/// See [`Sim::restart`](crate::Sim::restart).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// Its regions as they were, registered under the same numbers: memory that does not forget.
    Memory,
    /// Nothing.
    Nothing,
}

/// Something that happens to a cluster, by itself or [as planned](crate::Sim::plan).
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fault, NicProfile, NodeId, Presence, Remains, Sim, SimConfig};
///
/// let sim = Sim::<NoHtm>::new(3, SimConfig::new(&NicProfile::CONNECTX_4));
/// sim.plan(Duration::from_millis(1), Fault::Crash { node: NodeId(2) });
/// sim.plan(Duration::from_millis(2), Fault::Restart { node: NodeId(2), remains: Remains::Nothing });
/// sim.run_for(Duration::from_millis(3));
/// assert!(matches!(sim.presence(NodeId(2)), Presence::Here(incarnation) if incarnation.0 == 2));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// From now on this may happen to packets.
    Chances(Chances),
    /// The nodes of the list reach each other, and no others. Connections between the two sides
    /// break when they have tried often enough; nodes on both sides are still here.
    Partition(Vec<NodeId>),
    /// Every node reaches every other again. What has broken is to be
    /// [reconnected](crate::Endpoint::reconnect).
    Heal,
    /// A node dies, and its workers with it.
    Crash {
        /// The node.
        node: NodeId,
    },
    /// A node leaves in good order. Its workers can finish what they do.
    Leave {
        /// The node.
        node: NodeId,
    },
    /// A node that has died or left comes back, as another incarnation and without workers.
    Restart {
        /// The node.
        node: NodeId,
        /// What it finds.
        remains: Remains,
    },
    /// All workers of a node do nothing for so long: it is alive, and its memory can be accessed.
    Stall {
        /// The node.
        node: NodeId,
        /// How long.
        lasts: Duration,
    },
    /// A node's clock is set: ahead by `skew` nanoseconds, and fast by `drift` parts in a billion.
    /// It never goes back, but stands still until it has been caught up.
    Clock {
        /// The node.
        node: NodeId,
        /// Nanoseconds ahead.
        skew: i64,
        /// Parts in a billion.
        drift: i64,
    },
}
