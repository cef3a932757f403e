//! How large a run on a cluster is.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When workers stop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Length {
    /// After a time, of which the first part is not counted: virtual time in a simulation.
    Window {
        /// Before counting.
        warm: Duration,
        /// While counting.
        counted: Duration,
    },
    /// When each worker has run so many transactions, all of which count.
    Transactions(u64),
}

/// Nodes, workers, and how long they run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) nodes: u16,
    /// Workers of each node.
    pub(crate) threads: u16,
    /// Of each worker.
    pub(crate) coroutines: u16,
    pub(crate) length: Length,
    pub(crate) seed: u64,
    /// Bytes that each node may use.
    pub(crate) memory: u64,
}

impl Plan {
    /// Workers of all nodes.
    pub(super) fn workers(&self) -> usize {
        usize::from(self.nodes) * usize::from(self.threads)
    }

    /// Messages that may be on their way to one node. A transaction has one request to a node under
    /// way, and what it gives up may be another.
    pub(super) fn messages(&self) -> usize {
        (2 * self.workers() * usize::from(self.coroutines)).next_power_of_two().max(256)
    }
}
