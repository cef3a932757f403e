//! The fabric of nodes within one process.
//!
//! Several logical nodes share an address space. The thread that posts a one-sided verb carries it
//! out, on the target's memory, through the target's engine. So it really runs concurrently with
//! the target's processors. An emulated htm transaction that a verb conflicts with aborts, as it
//! would in hardware.
//!
//! When [perfect](LocalConfig::perfect), it is as fast as memory, and gives more guarantees than
//! any NIC. When [harsh](LocalConfig::harsh), it simulates all that verbs do not guarantee: use it
//! for tests.

mod config;
mod life;
mod nic;
mod node;
mod port;
mod queue;

pub use config::{LocalConfig, Tearing};
pub use port::LocalPort;

use std::sync::{Arc, atomic::AtomicU32, atomic::Ordering::Release};

use drtm_htm::Engine;

use crate::{
    Capabilities, Endpoint, Fabric, FabricError, Incarnation, Loopback, NodeId, Region, RegionId,
    fabric::lifetime::{End, Life as _},
};
use life::LocalLoopback;
use node::Node;

/// The fabric that connects nodes of one process. Clones are the same fabric.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use drtm_htm::{Engine, NoHtm};
/// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, Region, Remote, block_on};
///
/// let fabric = LocalFabric::new(2, LocalConfig::harsh(1));
/// let memory = Arc::new(Region::anonymous(NoHtm, 1 << 20)?);
/// let offset = memory.extend(8, 8)?;
/// let there = Remote { node: NodeId(1), region: fabric.register(NodeId(1), Arc::clone(&memory))?, offset };
///
/// std::thread::scope(|scope| {
///     for _ in 0..2 {
///         scope.spawn(|| {
///             let endpoint = fabric.endpoint(NodeId(0)).expect("room for two");
///             let verbs = endpoint.during(Phase::Execute);
///             block_on(&endpoint, verbs.fetch_add(there, 1)).expect("the word is there");
///         });
///     }
/// });
/// assert_eq!(NoHtm.load(&memory.words(offset, 1)?[0]), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LocalFabric<E: Engine> {
    shared: Arc<Shared<E>>,
}

impl<E: Engine> Clone for LocalFabric<E> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// The state that all handles, ports and threads share.
#[derive(Debug)]
struct Shared<E: Engine> {
    nodes: Vec<Node<E>>,
    config: LocalConfig,
    /// The number of changes of nodes' presence, so that a port detects one by a single load.
    changes: AtomicU32,
}

impl<E: Engine> Shared<E> {
    fn node(&self, node: NodeId) -> Option<&Node<E>> {
        self.nodes.get(usize::from(node.0))
    }

    /// Notifies all endpoints that a node's presence has changed.
    fn tell(&self) {
        self.changes.fetch_add(1, Release);
        for node in &self.nodes {
            node.life().places.wake_all();
        }
    }
}

impl<E: Engine> LocalFabric<E> {
    /// Creates a fabric of this many nodes, numbered from zero.
    ///
    /// # Example
    ///
    /// See [`LocalFabric`].
    #[must_use]
    pub fn new(nodes: u16, config: LocalConfig) -> Self {
        let nodes = (0..nodes).map(|node| Node::new(NodeId(node), &config)).collect();
        Self { shared: Arc::new(Shared { nodes, config, changes: AtomicU32::new(0) }) }
    }

    /// Returns the nodes, including those that have left.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<E> {
        (0..self.shared.nodes.len()).map(|node| NodeId(node as u16))
    }

    /// Makes a node leave. Operations to it, and calls that it has not answered, fail as
    /// [disconnected](crate::VerbError::Disconnected) or [gone](crate::VerbError::Gone). Its own
    /// endpoints can finish their work.
    ///
    /// # Errors
    ///
    /// When the node is unknown.
    pub fn close(&self, node: NodeId) -> Result<(), FabricError> {
        self.known(node)?.life().end(End::Left);
        self.shared.tell();
        Ok(())
    }

    /// Makes a node die, as far as one process can simulate it. Like [`close`](Self::close), but
    /// its own endpoints stop too. Threads of the node continue; their direct accesses to the
    /// memory are not prevented.
    ///
    /// # Errors
    ///
    /// When the node is unknown.
    pub fn kill(&self, node: NodeId) -> Result<(), FabricError> {
        self.known(node)?.life().kill();
        self.shared.tell();
        Ok(())
    }

    /// Lets a node that has left or died come back, as another incarnation without registered
    /// memory.
    ///
    /// # Errors
    ///
    /// When the node is unknown, or is here.
    pub fn revive(&self, node: NodeId) -> Result<Incarnation, FabricError> {
        let incarnation = self.known(node)?.revive(node, &self.shared.config)?;
        self.shared.tell();
        Ok(incarnation)
    }

    fn known(&self, node: NodeId) -> Result<&Node<E>, FabricError> {
        self.shared.node(node).ok_or(FabricError::UnknownNode { node })
    }
}

impl<E: Engine> Fabric for LocalFabric<E> {
    type Engine = E;
    type Port = LocalPort<E>;

    fn capabilities(&self) -> Capabilities {
        self.shared.config.capabilities()
    }

    fn register(&self, node: NodeId, region: Arc<Region<E>>) -> Result<RegionId, FabricError> {
        self.known(node)?.life().register(node, region)
    }

    fn endpoint(&self, node: NodeId) -> Result<Endpoint<LocalPort<E>>, FabricError> {
        LocalPort::new(&self.shared, node).map(Endpoint::new)
    }

    fn loopback(&self, node: NodeId) -> Option<Arc<dyn Loopback<E>>> {
        let life = self.shared.node(node)?.life();
        Some(Arc::new(LocalLoopback { life: Arc::downgrade(&life) }))
    }

    fn leave(&self, node: NodeId) -> Result<(), FabricError> {
        self.close(node)
    }

    /// It dies for all.
    fn revoke(&self, node: NodeId, other: NodeId, incarnation: Incarnation) -> Result<bool, FabricError> {
        self.known(node)?;
        let life = self.known(other)?.life();
        if life.incarnation() == incarnation && !life.has_died() {
            life.kill();
            self.shared.tell();
        }
        Ok(true)
    }
}
