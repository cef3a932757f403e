//! The fabric of nodes within one process.
//!
//! Several logical nodes share an address space, and one-sided verbs are carried out by the thread
//! that posted them, on the target's memory, through the target's engine. What a processor of the
//! target does at the same time is really at the same time; an emulated region that a verb
//! conflicts with aborts, as it would in hardware.
//!
//! It is as fast as memory when [perfect](LocalConfig::perfect), and then kinder than any NIC. When
//! [harsh](LocalConfig::harsh) it simulates what verbs do not promise, which is the way to test
//! with.

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

use crate::{Capabilities, Endpoint, Fabric, FabricError, Incarnation, NodeId, Region, RegionId, Salvage};
use node::Node;

/// Nodes of one process, joined. Clones are the same fabric.
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

/// What all handles, ports and threads have in common.
#[derive(Debug)]
struct Shared<E: Engine> {
    nodes: Vec<Node<E>>,
    config: LocalConfig,
    /// How often a node has come or gone, so that a port finds out by one look.
    changes: AtomicU32,
}

impl<E: Engine> Shared<E> {
    fn node(&self, node: NodeId) -> Option<&Node<E>> {
        self.nodes.get(usize::from(node.0))
    }

    /// Tells all endpoints that a node has come or gone.
    fn tell(&self) {
        self.changes.fetch_add(1, Release);
        for node in &self.nodes {
            node.life().places.wake_all();
        }
    }
}

impl<E: Engine> LocalFabric<E> {
    /// A fabric of so many nodes, numbered from zero.
    #[must_use]
    pub fn new(nodes: u16, config: LocalConfig) -> Self {
        let nodes = (0..nodes).map(|_| Node::new(&config)).collect();
        Self { shared: Arc::new(Shared { nodes, config, changes: AtomicU32::new(0) }) }
    }

    /// The nodes, those that have left included.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<E> {
        (0..self.shared.nodes.len()).map(|node| NodeId(node as u16))
    }

    /// Makes a node leave: whatever is posted to it from now on, or unanswered by it, fails as
    /// [disconnected](crate::VerbError::Disconnected) or [gone](crate::VerbError::Gone). Its own
    /// endpoints can finish what they do.
    ///
    /// # Errors
    ///
    /// When the node is unknown.
    pub fn close(&self, node: NodeId) -> Result<(), FabricError> {
        self.known(node)?.life().leave();
        self.shared.tell();
        Ok(())
    }

    /// Makes a node die, as far as one process can simulate it: like [`close`](Self::close), but
    /// its own endpoints do nothing more, and what is left of its memory can be
    /// [salvaged](Fabric::salvage). Threads of the node go on; what they do to the memory by
    /// themselves is not prevented.
    ///
    /// # Errors
    ///
    /// When the node is unknown.
    pub fn kill(&self, node: NodeId) -> Result<(), FabricError> {
        self.known(node)?.life().die();
        self.shared.tell();
        Ok(())
    }

    /// Lets a node that has left or died come back, as another incarnation, with nothing
    /// registered.
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

    fn salvage(&self, node: NodeId, region: RegionId) -> Result<Salvage<E>, FabricError> {
        let dead = self.known(node)?.dead();
        let left = dead.and_then(|life| life.region(region).map(Arc::clone));
        left.map(Salvage::new).ok_or(FabricError::NothingLeft { node, region })
    }
}
