//! Faults of a simulated cluster.

use std::time::Duration;

use crate::NodeId;

/// The probabilities of faults of each packet, from 0 to 1.
///
/// A lost packet of a connection is sent again, and later ones wait for it. Only datagrams are
/// duplicated, or overtaken by later ones.
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
    /// The probability that it is delayed.
    pub delay: f64,
    /// The longest delay.
    pub at_most: Duration,
    /// The probability that it is lost.
    pub loss: f64,
    /// The probability that a datagram arrives twice.
    pub duplicate: f64,
}

impl Chances {
    /// No faults.
    pub const NONE: Self = Self { delay: 0.0, at_most: Duration::ZERO, loss: 0.0, duplicate: 0.0 };
}

/// The memory of a node that restarts.
///
/// # Example
///
/// See [`Sim::restart`](crate::Sim::restart).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// Its regions as they were, registered under the same numbers: persistent memory.
    Memory,
    /// No memory.
    Nothing,
}

/// A fault of a cluster, now or [as planned](crate::Sim::plan).
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
    /// Sets the chances of faults of packets.
    Chances(Chances),
    /// The nodes of the list reach each other, and no others. Connections between the two sides
    /// break after enough retries; the nodes of both sides are still here.
    Partition(Vec<NodeId>),
    /// Every node reaches every other again. Broken connections must be
    /// [reconnected](crate::Endpoint::reconnect).
    Heal,
    /// A node dies with its workers.
    Crash {
        /// The node.
        node: NodeId,
    },
    /// A node leaves in good order. Its workers can finish their work.
    Leave {
        /// The node.
        node: NodeId,
    },
    /// A node that has died or left comes back, as another incarnation and without workers.
    Restart {
        /// The node.
        node: NodeId,
        /// The memory that it finds.
        remains: Remains,
    },
    /// All workers of a node stall: the node is alive, and its memory can be accessed.
    Stall {
        /// The node.
        node: NodeId,
        /// The duration.
        lasts: Duration,
    },
    /// Sets a node's clock: ahead by `skew` nanoseconds, and fast by `drift` parts per billion. It
    /// never goes back, but stands still until it has been caught up.
    Clock {
        /// The node.
        node: NodeId,
        /// Nanoseconds ahead.
        skew: i64,
        /// The parts per billion that it is fast.
        drift: i64,
    },
}
