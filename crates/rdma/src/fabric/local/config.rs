//! The configuration of the in-process fabric's imperfections.

use std::time::Duration;

use crate::{Atomicity, Buffers, Capabilities, Order};

/// How a READ of several words is torn.
///
/// # Example
///
/// ```
/// use drtm_rdma::{LocalConfig, Tearing};
///
/// let careless = LocalConfig::perfect().tearing(Tearing::Words);
/// assert_eq!(careless.capabilities().atomic_read_bytes, 8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tearing {
    /// A cache line is read atomically, as by a NIC on a processor with coherent caches.
    Lines,
    /// Only a word is read atomically.
    Words,
}

/// The configuration of the in-process fabric: a preset, and changes to it.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use drtm_rdma::{Atomicity, LocalConfig};
///
/// // Perfect, but with the round trips of a real network. (Simulated, of course.)
/// let config = LocalConfig::perfect().latency(Duration::from_micros(2));
/// assert_eq!(config.capabilities().atomicity, Atomicity::Global);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct LocalConfig {
    pub(super) seed: u64,
    pub(super) atomicity: Atomicity,
    pub(super) tearing: Tearing,
    pub(super) scattered: bool,
    pub(super) passing: bool,
    pub(super) steps: Option<u32>,
    pub(super) delay: u32,
    pub(super) latency: Duration,
    pub(super) queue_depth: usize,
    pub(super) mailbox: usize,
    pub(super) endpoints: usize,
    pub(super) buffers: Buffers,
}

impl LocalConfig {
    /// Returns the fastest configuration: every operation is carried out at the first poll, in
    /// order, and atomics are atomic with everything.
    ///
    /// # Example
    ///
    /// See [`LocalConfig`].
    pub fn perfect() -> Self {
        Self {
            seed: 0,
            atomicity: Atomicity::Global,
            tearing: Tearing::Lines,
            scattered: false,
            passing: false,
            steps: None,
            delay: 0,
            latency: Duration::ZERO,
            queue_depth: 256,
            mailbox: 256,
            endpoints: 256,
            buffers: Buffers::default(),
        }
    }

    /// Returns the most imperfect configuration that verbs allow, reproducible on one thread.
    /// Starts are delayed, and a poll moves a few lines or words in any order. Reads are passed by
    /// writes, and atomics are atomic only with each other.
    pub fn harsh(seed: u64) -> Self {
        Self {
            seed,
            atomicity: Atomicity::Hca,
            scattered: true,
            passing: true,
            steps: Some(4),
            delay: 3,
            ..Self::perfect()
        }
    }

    /// Sets the seed of all random choices. They also depend on the order in which endpoints are
    /// created.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets with which agents atomics are atomic.
    pub fn atomicity(self, atomicity: Atomicity) -> Self {
        Self { atomicity, ..self }
    }

    /// Sets how a READ is torn.
    pub fn tearing(self, tearing: Tearing) -> Self {
        Self { tearing, ..self }
    }

    /// Sets whether the lines of a READ and the words of a WRITE are accessed in any order.
    /// Otherwise they are accessed in address order.
    pub fn scattered(self, scattered: bool) -> Self {
        Self { scattered, ..self }
    }

    /// Sets whether writes and messages may overtake reads.
    pub fn passing(self, passing: bool) -> Self {
        Self { passing, ..self }
    }

    /// Sets the most lines or words that one poll moves, to or from one node: at least 1, or `None`
    /// for all.
    pub fn steps(self, steps: Option<u32>) -> Self {
        Self { steps: steps.map(|steps| steps.max(1)), ..self }
    }

    /// Sets the most polls that an operation or a message waits before it begins.
    pub fn delay(self, polls: u32) -> Self {
        Self { delay: polls, ..self }
    }

    /// Sets the least duration of an operation or a message: a simulated network.
    ///
    /// # Example
    ///
    /// See [`LocalConfig`].
    pub fn latency(self, latency: Duration) -> Self {
        Self { latency, ..self }
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

    /// Returns the capabilities of a fabric with this configuration.
    ///
    /// # Example
    ///
    /// See [`LocalConfig`].
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            atomicity: self.atomicity,
            ordering: if self.passing { Order::ReadsMayBePassed } else { Order::Posted },
            atomic_read_bytes: match self.tearing {
                Tearing::Lines => 64,
                Tearing::Words => 8,
            },
            inline_bytes: 0,
            max_read_bytes: Buffers::LARGE,
            max_write_bytes: Buffers::LARGE,
            max_message_bytes: Buffers::LARGE,
            queue_depth: self.queue_depth,
            max_calls: self.mailbox,
            // A NIC in software.
            smart_nic: true,
            certain_deaths: true,
            letters: false,
        }
    }

    /// Returns whether no operation ever waits for a later poll.
    pub(super) fn is_immediate(&self) -> bool {
        self.steps.is_none() && self.delay == 0 && self.latency.is_zero() && !self.scattered && !self.passing
    }
}
