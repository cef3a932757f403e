//! Which node, where it and its peers are, and how much of everything there may be.

use std::{fmt, net::SocketAddr, time::Duration};

use crate::{Atomicity, Buffers, Capabilities, Incarnation, NodeId, Order};

use super::{TcpError, noise::Key};

/// Bounds on what peers, and connections without the key, can take of a node.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use drtm_rdma::TcpLimits;
///
/// let limits = TcpLimits { handshakes_per_second: 50, ..TcpLimits::default() };
/// assert!(limits.handshake_time < Duration::from_secs(60));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpLimits {
    /// Connections whose peer has not proved yet that it has the key. The oldest makes room for a
    /// new one.
    pub pending_handshakes: usize,
    /// How long a handshake may take.
    pub handshake_time: Duration,
    /// Handshakes of holders of the key that are answered in a second. Each takes two
    /// multiplications on the curve.
    pub handshakes_per_second: u32,
    /// Connections of peers.
    pub connections: usize,
    /// Bytes that wait for a peer to read them. While there are more, nothing further is carried
    /// out for its connection.
    pub held_bytes: usize,
}

impl Default for TcpLimits {
    fn default() -> Self {
        Self {
            pending_handshakes: 64,
            handshake_time: Duration::from_secs(5),
            handshakes_per_second: 1000,
            connections: 1024,
            held_bytes: 1 << 20,
        }
    }
}

/// How a process becomes a node of a cluster over TCP.
///
/// # Example
///
/// ```
/// use drtm_rdma::{Atomicity, NodeId, TcpConfig};
///
/// // In earnest the key comes from a file that only the cluster's user can read.
/// let config = TcpConfig::new(NodeId(0), "127.0.0.1:7000".parse()?, [7; 32])
///     .peer(NodeId(1), "127.0.0.1:7001".parse()?);
/// assert_eq!(config.capabilities().atomicity, Atomicity::Global);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct TcpConfig {
    pub(super) node: NodeId,
    pub(super) incarnation: Option<Incarnation>,
    /// What the incarnation exceeds that the clock gives.
    pub(super) later_than: Option<Incarnation>,
    pub(super) listen: SocketAddr,
    pub(super) peers: Vec<(NodeId, SocketAddr)>,
    /// Where a directory of the whole cluster has this node.
    pub(super) own: Option<SocketAddr>,
    pub(super) advertised: Option<SocketAddr>,
    pub(super) key: Key,
    pub(super) sealed: bool,
    pub(super) patience: Duration,
    pub(super) deadline: Duration,
    pub(super) queue_depth: usize,
    pub(super) calls: usize,
    pub(super) mailbox: usize,
    pub(super) buffers: Buffers,
    pub(super) limits: TcpLimits,
}

impl TcpConfig {
    /// Configures the node `node`, below 1024, which listens at an address, of the cluster that has
    /// this key. The key must be 32 bytes of a random generator, the same on all nodes.
    pub fn new(node: NodeId, listen: SocketAddr, key: [u8; 32]) -> Self {
        Self {
            node,
            incarnation: None,
            later_than: None,
            listen,
            peers: Vec::new(),
            own: None,
            advertised: None,
            key,
            sealed: true,
            patience: Duration::from_secs(10),
            deadline: Duration::from_secs(5),
            queue_depth: 256,
            calls: 256,
            mailbox: 256,
            buffers: Buffers::default(),
            limits: TcpLimits::default(),
        }
    }

    /// Adds another node of the directory, and where it listens. A directory of the whole cluster
    /// may name this node, too, with the address at which it listens.
    pub fn peer(mut self, node: NodeId, address: SocketAddr) -> Self {
        self.peers.retain(|(known, _)| *known != node);
        if node == self.node {
            self.own = Some(address);
        } else {
            self.peers.push((node, address));
        }
        self
    }

    /// Sets the address at which peers reach this node, as their directories have it. By default it
    /// is the one at which the node listens; behind a container's mapped port it is another.
    ///
    /// A node refuses peers that say that they are elsewhere than in its directory, since two
    /// processes may have been given one number.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, TcpConfig};
    ///
    /// let inside = "172.17.0.2:7000".parse()?;
    /// let config = TcpConfig::new(NodeId(0), inside, [7; 32]).advertise("10.0.0.1:17000".parse()?);
    /// # let _ = config;
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn advertise(self, address: SocketAddr) -> Self {
        Self { advertised: Some(address), ..self }
    }

    /// Returns the address that the node names in its hellos, if it listens at this one.
    ///
    /// # Errors
    ///
    /// [`TcpError::OwnAddress`].
    pub(super) fn says_it_is_at(&self, listens: SocketAddr) -> Result<SocketAddr, TcpError> {
        match (self.advertised, self.own) {
            (Some(advertised), _) => Ok(advertised),
            (None, None) => Ok(listens),
            (None, Some(directory)) => {
                let is_there =
                    listens.ip().is_unspecified() || listens.ip().to_canonical() == directory.ip().to_canonical();
                match is_there && listens.port() == directory.port() {
                    true => Ok(directory),
                    false => Err(TcpError::OwnAddress { node: self.node, listens, directory }),
                }
            }
        }
    }

    /// Sets the number of this incarnation, which must exceed all earlier ones of the node. By
    /// default it is the seconds since 1970, so a node that fails must not come back within the
    /// same second.
    pub fn incarnation(self, incarnation: Incarnation) -> Self {
        Self { incarnation: Some(incarnation), ..self }
    }

    /// Makes this incarnation a later one than another: for a process that joins again, perhaps
    /// within the same second, or after its clock was set back.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{NodeId, TcpConfig, TcpFabric};
    ///
    /// let config = TcpConfig::new(NodeId(0), "127.0.0.1:0".parse()?, [42; 32]);
    /// let before = TcpFabric::join(NoHtm, config.clone())?;
    /// before.leave();
    /// let after = TcpFabric::join(NoHtm, config.later_than(before.incarnation()))?;
    /// assert!(after.incarnation() > before.incarnation());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn later_than(self, last: Incarnation) -> Self {
        Self { later_than: Some(last), ..self }
    }

    /// Sets whether what follows the handshake is encrypted and authenticated. Unsealed connections
    /// are for measurements of what that costs. All nodes must agree.
    #[doc(hidden)]
    pub fn sealed(self, sealed: bool) -> Self {
        Self { sealed, ..self }
    }

    /// Sets how long a join waits for the answers of nodes that are there.
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Sets after how much silence a peer is suspected to have failed. A node sends something four
    /// times as often.
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline: deadline.max(Duration::from_millis(20)), ..self }
    }

    /// Sets the most operations that may be pending from one endpoint to one node: at least 1.
    pub fn queue_depth(self, queue_depth: usize) -> Self {
        Self { queue_depth: queue_depth.max(1), ..self }
    }

    /// Calls that an endpoint may have unanswered. At least 1.
    pub fn calls(self, calls: usize) -> Self {
        Self { calls: calls.max(1), ..self }
    }

    /// Sets the most messages that wait to be received, or to be replied to, at this node: at least
    /// 1.
    pub fn mailbox(self, messages: usize) -> Self {
        Self { mailbox: messages.max(1), ..self }
    }

    /// Sets the buffers of each endpoint.
    pub fn buffers(self, buffers: Buffers) -> Self {
        Self { buffers, ..self }
    }

    /// Sets what peers, and connections without the key, can take of this node.
    pub fn limits(self, limits: TcpLimits) -> Self {
        Self { limits, ..self }
    }

    /// Returns the number of messages that the mailbox has room for.
    #[cfg(feature = "verbs")]
    pub(crate) fn mailbox_size(&self) -> usize {
        self.mailbox
    }

    /// Returns after how much silence a peer is suspected.
    #[cfg(feature = "verbs")]
    pub(crate) fn silence(&self) -> Duration {
        self.deadline
    }

    /// Returns one more than the largest number of a node.
    pub(crate) fn nodes(&self) -> usize {
        let named = self.peers.iter().map(|(node, _)| node.0);
        usize::from(named.fold(self.node.0, u16::max)) + 1
    }

    /// Returns what a fabric with this configuration can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            // The owner's processor carries atomics out, through the region's own engine.
            atomicity: Atomicity::Global,
            ordering: Order::Posted,
            atomic_read_bytes: 64,
            inline_bytes: 0,
            max_read_bytes: Buffers::LARGE,
            max_write_bytes: Buffers::LARGE,
            max_message_bytes: Buffers::LARGE,
            queue_depth: self.queue_depth,
            max_calls: self.calls,
            smart_nic: false,
            certain_deaths: false,
            letters: true,
        }
    }
}

/// Without the key.
impl fmt::Debug for TcpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpConfig")
            .field("node", &self.node)
            .field("listen", &self.listen)
            .field("peers", &self.peers)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
