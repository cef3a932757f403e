//! The configuration of a simulated cluster.

use std::time::Duration;

use super::{Chances, NicProfile, clock::NodeClock};
use crate::{Atomicity, Buffers, Capabilities, NodeId, Order, Tearing};

/// The longest time between two steps of an operation that takes several.
pub(super) const STEP: Duration = Duration::from_nanos(300);

/// The transport of messages.
///
/// # Example
///
/// ```
/// use drtm_rdma::{NicProfile, Order, SimConfig, Transport};
///
/// let config = SimConfig::new(&NicProfile::CONNECTX_4).transport(Transport::Datagrams);
/// assert_eq!(config.capabilities().ordering, Order::MessagesApart);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// On the connection to the node, in order with one-sided operations, and never lost.
    Connection,
    /// As datagrams, from one queue pair of the endpoint to all nodes: all of a batch share one
    /// doorbell. They are lost, duplicated and reordered, and sessions mend that: each message is
    /// delivered once, in order with other messages. A reply acknowledges its call.
    ///
    /// On a simulated cluster they are not ordered with one-sided operations
    /// ([`Order::MessagesApart`]), as in the systems that it models.
    Datagrams,
}

/// The configuration of a simulated cluster: a profile, and changes to it.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{NicProfile, Sim, SimConfig};
///
/// let config = SimConfig::new(&NicProfile::CONNECTX_3).seed(7);
/// let sim = Sim::<NoHtm>::new(6, config);
/// assert_eq!(sim.trace().events, 0);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct SimConfig {
    pub(super) profile: &'static NicProfile,
    pub(super) seed: u64,
    pub(super) nics: usize,
    pub(super) atomicity: Atomicity,
    pub(super) tearing: Tearing,
    pub(super) scattered: bool,
    pub(super) passing: bool,
    pub(super) steps: Option<u32>,
    pub(super) read_step: Duration,
    pub(super) transport: Transport,
    pub(super) connections: usize,
    pub(super) jitter: Duration,
    pub(super) chances: Chances,
    pub(super) retry: (Duration, u32),
    pub(super) detection: Duration,
    pub(super) probes: (Duration, Duration),
    pub(super) queue_depth: usize,
    pub(super) mailbox: usize,
    pub(super) endpoints: usize,
    pub(super) buffers: Buffers,
    pub(super) clocks: Vec<(NodeId, NodeClock)>,
    #[cfg(feature = "studies")]
    pub(super) machine: Option<super::machine::MachineProfile>,
}

impl SimConfig {
    /// Returns a cluster with this NIC, without faults. A READ sees its lines at one moment.
    ///
    /// # Example
    ///
    /// See [`SimConfig`].
    pub fn new(profile: &'static NicProfile) -> Self {
        Self {
            profile,
            seed: 0,
            nics: profile.cluster.2,
            atomicity: Atomicity::Hca,
            tearing: Tearing::Lines,
            scattered: false,
            passing: false,
            steps: None,
            read_step: STEP,
            transport: Transport::Connection,
            connections: 1,
            jitter: Duration::from_nanos(20),
            chances: Chances::NONE,
            retry: (Duration::from_micros(16), 7),
            detection: Duration::from_micros(10),
            probes: (Duration::from_millis(1), Duration::from_millis(100)),
            queue_depth: 256,
            mailbox: 256,
            endpoints: 256,
            buffers: Buffers::default(),
            clocks: Vec::new(),
            #[cfg(feature = "studies")]
            machine: None,
        }
    }

    /// Sets that nodes are simulated machines: accesses of their memory by [cost](crate::Cost) and
    /// by verbs take the time of caches and memory, and overheads of software theirs.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Cost, Fabric, NicProfile, NodeId, Sim, SimConfig, machine::MachineProfile};
    ///
    /// let config = SimConfig::new(&NicProfile::HADES).machine(MachineProfile::HADES);
    /// let sim = Sim::<NoHtm>::new(5, config);
    /// let endpoint = sim.fabric().endpoint(NodeId(0))?;
    /// let takes = |cost| {
    ///     let before = endpoint.now();
    ///     endpoint.charge(cost);
    ///     endpoint.now().since(before).as_nanos()
    /// };
    /// let read = Cost::Access { at: 4096, bytes: 8, writes: false };
    /// assert_eq!([takes(read), takes(read)], [120, 1], "from memory, and from the first-level cache");
    /// # Ok::<(), drtm_rdma::FabricError>(())
    /// ```
    #[cfg(feature = "studies")]
    pub fn machine(self, profile: super::machine::MachineProfile) -> Self {
        Self { machine: Some(profile), ..self }
    }

    /// Returns the most imperfect configuration that verbs allow. Lines and words are accessed at
    /// different moments and in any order. Reads are passed by writes, atomics are atomic only with
    /// each other, and packets are delayed and lost.
    pub fn harsh(seed: u64) -> Self {
        Self {
            seed,
            scattered: true,
            passing: true,
            steps: Some(4),
            jitter: Duration::from_micros(1),
            chances: Chances { delay: 0.02, at_most: Duration::from_micros(20), loss: 0.01, ..Chances::NONE },
            probes: (Duration::from_micros(50), Duration::from_millis(2)),
            ..Self::new(&NicProfile::CONNECTX_4)
        }
    }

    /// Sets the seed of all random choices.
    ///
    /// # Example
    ///
    /// See [`SimConfig`].
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets the NICs of each node, which endpoints use in turn: at least 1.
    pub fn nics(self, nics: usize) -> Self {
        Self { nics: nics.max(1), ..self }
    }

    /// Sets with which agents atomics are atomic.
    pub fn atomicity(self, atomicity: Atomicity) -> Self {
        Self { atomicity, ..self }
    }

    /// Sets how a READ is torn, if it takes several [steps](Self::steps).
    pub fn tearing(self, tearing: Tearing) -> Self {
        Self { tearing, ..self }
    }

    /// Sets whether the lines of a READ and the words of a WRITE are accessed in any order.
    pub fn scattered(self, scattered: bool) -> Self {
        Self { scattered, ..self }
    }

    /// Sets whether writes and messages may overtake reads.
    pub fn passing(self, passing: bool) -> Self {
        Self { passing, ..self }
    }

    /// Sets the most lines or words that are accessed at one moment: at least 1, or `None` for all
    /// of an operation.
    pub fn steps(self, steps: Option<u32>) -> Self {
        Self { steps: steps.map(|steps| steps.max(1)), ..self }
    }

    /// Sets the longest time between two of the moments of a READ that takes several: 300 ns if it
    /// is not set, as for other operations.
    pub fn read_step(self, longest: Duration) -> Self {
        Self { read_step: longest, ..self }
    }

    /// Sets the transport of messages.
    pub fn transport(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }

    /// Sets the queue pairs from each endpoint to each node, used in turn: at least 1. They only
    /// change the state that NICs must hold: operations stay in order.
    pub fn connections(self, connections: usize) -> Self {
        Self { connections: connections.max(1), ..self }
    }

    /// Sets the most random time that is added to a packet's latency.
    pub fn jitter(self, jitter: Duration) -> Self {
        Self { jitter, ..self }
    }

    /// Sets the chances of faults of packets.
    pub fn chances(self, chances: Chances) -> Self {
        Self { chances, ..self }
    }

    /// Sets how long a connection waits for an acknowledgement, and how often it retries before it
    /// breaks.
    pub fn retry(self, timeout: Duration, times: u32) -> Self {
        Self { retry: (timeout, times), ..self }
    }

    /// Sets how long it takes until others learn that a node has left or died.
    pub fn detection(self, detection: Duration) -> Self {
        Self { detection, ..self }
    }

    /// Sets how long an endpoint waits for progress of its messages by datagram before it probes
    /// for losses, and how long a node is silent before they fail. Later probes are rarer, and
    /// there are at least four.
    pub fn probes(self, first: Duration, silence: Duration) -> Self {
        Self { probes: (first, silence), ..self }
    }

    /// Sets the most operations that may be pending from one endpoint to one node: at least 1.
    pub fn queue_depth(self, queue_depth: usize) -> Self {
        Self { queue_depth: queue_depth.max(1), ..self }
    }

    /// Sets the most messages that a node holds for its endpoints, and the most unanswered calls of
    /// an endpoint: at least 1.
    pub fn mailbox(self, messages: usize) -> Self {
        Self { mailbox: messages.max(1), ..self }
    }

    /// Sets the most endpoints of one node at a time: at least 1, and at most 65536.
    pub fn endpoints(self, endpoints: usize) -> Self {
        Self { endpoints: endpoints.clamp(1, 1 << 16), ..self }
    }

    /// Sets the buffers of each endpoint.
    pub fn buffers(self, buffers: Buffers) -> Self {
        Self { buffers, ..self }
    }

    /// Sets a node's clock: ahead by `skew` nanoseconds, and fast by `drift` parts per billion.
    pub fn clock(mut self, node: NodeId, skew: i64, drift: i64) -> Self {
        self.clocks.push((node, NodeClock::new(skew, drift)));
        self
    }

    pub(super) fn by_datagrams(&self) -> bool {
        self.transport == Transport::Datagrams
    }

    /// Returns the capabilities of a cluster with this configuration.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            atomicity: self.atomicity,
            ordering: match self.transport {
                Transport::Datagrams => Order::MessagesApart,
                Transport::Connection if self.passing => Order::ReadsMayBePassed,
                Transport::Connection => Order::Posted,
            },
            atomic_read_bytes: match self.tearing {
                Tearing::Lines => 64,
                Tearing::Words => 8,
            },
            inline_bytes: self.profile.inline_bytes,
            max_read_bytes: Buffers::LARGE,
            max_write_bytes: Buffers::LARGE,
            max_message_bytes: Buffers::LARGE,
            queue_depth: self.queue_depth,
            max_calls: self.mailbox,
            smart_nic: true,
            certain_deaths: false,
            letters: false,
        }
    }
}
