//! The fabric of machines with RDMA NICs, by libibverbs.
//!
//! # Nodes and connections
//!
//! A node is one of the [fabric over TCP](crate::TcpFabric), by which nodes know of each other,
//! come, go, and are suspected. What an endpoint posts goes by NIC: it has a reliable connection's
//! queue pair to each node that it uses, made at the first use. The numbers of both ends are told
//! by TCP, under the cluster's key (`setup`, `control`, `adapter`).
//!
//! # One-sided verbs
//!
//! A doorbell posts one list of requests for each node, of which the last is signaled: all before
//! it are over when it is (`queue`). Small writes and messages are inline. The NIC reads and writes
//! a slab of the endpoint's, registered once (`slots`), from and to which buffers are copied: so
//! that it never has memory of the application's, and an endpoint can be dropped at any time.
//!
//! A NIC accesses memory that is registered, and breaks a connection that asks for more. So bounds
//! are checked here, by what the owner has told of its regions; and where an operation is
//! beyond that, the owner is asked again, since it may have grown (`exports`).
//!
//! # Messages
//!
//! They are sent by the same queue pair, into memory that a node has for all of its peers'
//! messages; an endpoint that receives moves them into the mailbox. Where that is full, NICs try
//! again until it is not. A reply goes back by the connection that its call came by (`responder`),
//! into memory that the caller has for each of its calls.
//!
//! By [configuration](VerbsConfig::messages) they are datagrams instead, which each endpoint sends
//! by one queue pair to all nodes (`datagram_pair`). What is lost is sent again
//! (`fabric/datagrams`): each endpoint has a session with each node that it uses, of which the node
//! has a side, too (`server_session`). A node has to acknowledge what arrives even while no
//! endpoint of it polls, so its thread does.
//!
//! # Failures
//!
//! A connection that fails is reset, and reported once: what was under way ends with
//! [`VerbError::Disconnected`](crate::VerbError::Disconnected), and what is posted from then on
//! with [`VerbError::Gone`](crate::VerbError::Gone), until the endpoint reconnects.
//! [`VerbsFabric::take_failure`] says why.

mod adapter;
mod config;
mod control;
mod datagram_pair;
mod error;
mod exports;
mod floor;
mod intake;
mod nic;
mod number;
mod own;
mod port;
mod queue;
mod responder;
mod server_session;
mod setup;
mod slots;
mod sys;

pub use config::VerbsConfig;
pub use error::VerbsError;
pub use floor::{FloorVerb, VerbsFloor};
pub use port::VerbsPort;

use std::{
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
    net::SocketAddr,
    sync::Arc,
};

use drtm_htm::{Engine, Sharing};

use crate::{
    Atomicity, Capabilities, Endpoint, Fabric, FabricError, Incarnation, Letters, Loopback, NodeId, Region, RegionId,
    TakeLetter, TcpFabric,
    fabric::{lifetime::Life as _, tcp::CallHandler},
};
use adapter::Adapter;
use own::OwnNic;

/// Numbers that a peer cannot guess: each hasher of the standard library has keys of the system's
/// random generator.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// What a node's NIC was given, by all of the node's endpoints.
///
/// # Example
///
/// ```
/// let posted = drtm_rdma::Posted::default();
/// assert_eq!(posted.doorbells, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Posted {
    /// Lists of requests, each by one doorbell.
    pub doorbells: u64,
    /// Requests in them.
    pub requests: u64,
    /// Requests with a completion.
    pub signaled: u64,
    /// Requests that carry their bytes.
    pub inlined: u64,
    /// Memory given for the replies to calls.
    pub receives: u64,
}

impl std::ops::AddAssign for Posted {
    fn add_assign(&mut self, more: Self) {
        self.doorbells += more.doorbells;
        self.requests += more.requests;
        self.signaled += more.signaled;
        self.inlined += more.inlined;
        self.receives += more.receives;
    }
}

impl std::ops::Sub for Posted {
    type Output = Self;

    /// Returns what came since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            doorbells: self.doorbells - earlier.doorbells,
            requests: self.requests - earlier.requests,
            signaled: self.signaled - earlier.signaled,
            inlined: self.inlined - earlier.inlined,
            receives: self.receives - earlier.receives,
        }
    }
}

/// One process's part in a cluster of machines with RDMA NICs: a node. Clones are the same node.
///
/// The node leaves when the last clone and the last endpoint are dropped, or with
/// [`leave`](Self::leave).
///
/// # Example
///
/// ```no_run
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fabric, NodeId, Phase, RegionId, Offset, Remote, TcpConfig, VerbsConfig, VerbsFabric, block_on};
///
/// let key = [42; 32]; // of a random generator, in earnest
/// let tcp = TcpConfig::new(NodeId(0), "10.0.0.1:7000".parse()?, key).peer(NodeId(1), "10.0.0.2:7000".parse()?);
/// let fabric = VerbsFabric::join(NoHtm, VerbsConfig::new(tcp).device("mlx5_0"))?;
/// let endpoint = fabric.endpoint(NodeId(0))?;
/// let there = Remote { node: NodeId(1), region: RegionId(0), offset: Offset::new(4096) };
/// block_on(&endpoint, endpoint.during(Phase::Execute).fetch_add(there, 7))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct VerbsFabric<E: Engine> {
    member: Arc<Member<E>>,
}

impl<E: Engine> Clone for VerbsFabric<E> {
    fn clone(&self) -> Self {
        Self { member: Arc::clone(&self.member) }
    }
}

/// A process's part, from joining to leaving.
struct Member<E: Engine> {
    tcp: TcpFabric<E>,
    adapter: Arc<Adapter<E>>,
}

impl<E: Engine> fmt::Debug for Member<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("tcp", &self.tcp).finish_non_exhaustive()
    }
}

impl<E: Engine> VerbsFabric<E> {
    /// Opens the NIC, becomes a node of a cluster, and connects to all nodes that are there.
    /// Returns when each of them knows of this one.
    ///
    /// # Errors
    ///
    /// When there is no such device, no permission, or too little memory that can be locked; when
    /// the engine keeps books of accesses to memory, in which a NIC's would be missing; or when the
    /// cluster [cannot be joined](TcpFabric::join).
    pub fn join(engine: E, config: VerbsConfig) -> Result<Self, VerbsError> {
        engine.admits(Sharing::Processes).map_err(VerbsError::Engine)?;
        let adapter = Arc::new(Adapter::new(&config)?);
        let handler: Arc<dyn CallHandler> = Arc::clone(&adapter) as _;
        let tcp = TcpFabric::join_with(engine, config.tcp, handler)?;
        Ok(Self { member: Arc::new(Member { tcp, adapter }) })
    }

    /// Returns the node that this process is.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.member.tcp.node()
    }

    /// Returns which of the node's incarnations this is.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.member.tcp.incarnation()
    }

    /// Returns where this node listens for connections to be set up.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.member.tcp.address()
    }

    /// Leaves the cluster in good order: peers are told that this node has left, and to its own
    /// endpoints all nodes are gone.
    pub fn leave(&self) {
        self.member.tcp.leave();
    }

    /// Returns what this node's NIC was given so far.
    #[must_use]
    pub fn posted(&self) -> Posted {
        self.member.adapter.posted()
    }

    /// Takes what went wrong last with a connection or with the NIC, if that was not taken yet.
    #[must_use]
    pub fn take_failure(&self) -> Option<VerbsError> {
        self.member.adapter.take_failure()
    }

    /// Breaks all connections of peers' endpoints to this node, as a network might. For tests.
    #[doc(hidden)]
    pub fn break_connections(&self) {
        self.member.adapter.break_connections();
    }

    fn own(&self, node: NodeId) -> Result<&Member<E>, FabricError> {
        if node == self.node() { Ok(&self.member) } else { Err(FabricError::Foreign { node }) }
    }
}

impl<E: Engine> Fabric for VerbsFabric<E> {
    type Engine = E;
    type Port = VerbsPort<E>;

    fn capabilities(&self) -> Capabilities {
        self.member.adapter.capabilities
    }

    fn register(&self, node: NodeId, region: Arc<Region<E>>) -> Result<RegionId, FabricError> {
        let Member { tcp, adapter } = self.own(node)?;
        if tcp.shared().home.is_over() {
            return Err(FabricError::Closed { node });
        }
        match adapter.exports.register(&adapter.device, node, region) {
            Ok(outcome) => outcome,
            Err(VerbsError::LockedMemory { bytes, limit }) => Err(FabricError::LockedMemory { node, bytes, limit }),
            Err(error) => {
                adapter.fail(error);
                Err(FabricError::Device { node })
            }
        }
    }

    fn endpoint(&self, node: NodeId) -> Result<Endpoint<VerbsPort<E>>, FabricError> {
        self.own(node)?;
        VerbsPort::new(&self.member).map(Endpoint::new)
    }

    /// What this needs of the NIC can be refused: then [`take_failure`](Self::take_failure) says
    /// why.
    fn loopback(&self, node: NodeId) -> Option<Arc<dyn Loopback<E>>> {
        let Member { adapter, .. } = self.own(node).ok()?;
        if adapter.capabilities.atomicity == Atomicity::None {
            return None;
        }
        match OwnNic::new(adapter) {
            Ok(nic) => Some(Arc::new(nic)),
            Err(error) => {
                adapter.fail(error);
                None
            }
        }
    }

    fn leave(&self, node: NodeId) -> Result<(), FabricError> {
        self.own(node)?;
        self.member.tcp.leave();
        Ok(())
    }

    /// They go by TCP.
    fn letters(&self, node: NodeId, take: TakeLetter) -> Result<Arc<dyn Letters>, FabricError> {
        self.own(node)?.tcp.letters(node, take)
    }

    fn relocate(&self, node: NodeId, other: NodeId, address: SocketAddr) -> Result<(), FabricError> {
        self.own(node)?.tcp.relocate(node, other, address)
    }

    /// The queue pairs to it are destroyed.
    fn revoke(&self, node: NodeId, other: NodeId, incarnation: Incarnation) -> Result<bool, FabricError> {
        self.own(node)?.tcp.revoke(node, other, incarnation)
    }
}
