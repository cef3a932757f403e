//! The size of a run.

use std::time::Duration;

use crate::mutation::Mutation;

/// How large a cluster is, and how long it runs.
///
/// # Example
///
/// ```
/// use drtm_calvin::Plan;
///
/// let plan = Plan { nodes: 6, ..Plan::DEFAULT };
/// assert_eq!((plan.workers, plan.epoch.as_millis(), plan.batch), (8, 10, 200));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Nodes of the cluster.
    pub nodes: u16,
    /// Workers of each node.
    pub workers: u16,
    /// How long a sequencer collects transactions for a batch.
    pub epoch: Duration,
    /// The most transactions of a batch.
    pub batch: u32,
    /// The most transactions that are under way at a node, beyond which it sequences no more.
    pub backlog: u64,
    /// How many batches each node sequences.
    pub epochs: u64,
    /// Epochs before those in which transactions count.
    pub warm: u64,
    /// In a simulation, how long the kernel's TCP takes a processor at each end of a message,
    /// beside the NICs and the wire.
    pub tcp: Duration,
    /// Whether the transactions are kept, to run them again.
    pub records: bool,
    #[doc(hidden)]
    pub fault: Fault,
}

/// A deliberate fault of a cluster, which only this crate's tests can choose.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fault(pub(crate) Option<Mutation>);

impl Plan {
    /// Calvin as DrTM ran it: eight workers a node (DrTM 8.1), epochs of 10 ms (Calvin 3), and at
    /// most 200 transactions of an epoch. The release of March 2015 is configured so, and says that
    /// it comes to 20,000 transactions a second of each node.
    ///
    /// The kernel's 5 us are *assumed*: no publication gives them for IPoIB on that cluster. It is
    /// the system call, TCP, IP and the driver, and at the receiver the interrupt and waking a
    /// thread. Over the loopback of a newer machine, without a driver, both ends together take 5 us
    /// of processor time for a message of 256 bytes.
    pub const DEFAULT: Self = Self {
        nodes: 1,
        workers: 8,
        epoch: Duration::from_millis(10),
        batch: 200,
        backlog: u64::MAX,
        epochs: 10,
        warm: 3,
        tcp: Duration::from_micros(5),
        records: false,
        fault: Fault(None),
    };

    /// Returns how long transactions count.
    ///
    /// # Example
    ///
    /// ```
    /// assert_eq!(drtm_calvin::Plan::DEFAULT.counted().as_millis(), 70);
    /// ```
    #[must_use]
    pub fn counted(&self) -> Duration {
        self.epoch * u32::try_from(self.epochs.saturating_sub(self.warm)).unwrap_or(u32::MAX)
    }
}
