//! The fabric of processes on one machine, which share memory.
//!
//! # Groups
//!
//! Nodes are processes. They meet in a *group*, which is a directory of mode 0700. It has a lock
//! file and a socket for each node, and a file that names format, version and engine. A process
//! that [joins](ShmFabric::join) takes its node's lock, which the system releases when the process
//! ends, however it ends. It connects to every node that is there, and exchanges memory with it:
//! files without a name, sealed against truncation, passed over the sockets. One process joins at a
//! time.
//!
//! # Verbs and messages
//!
//! One-sided verbs are the poster's own loads, stores and swaps on the peer's memory, so atomics
//! are atomic with everything. Messages go through rings (`ring`): one for requests and one for
//! replies, from each endpoint to each endpoint that it has sent to. The producer creates a ring in
//! its own memory, and announces it in the consumer's. An endpoint sleeps on one word (`alarm`),
//! which its peers ring.
//!
//! # Death
//!
//! A node has died when its socket hangs up: that is, when the system says so. There are no
//! timeouts; a stopped process is alive. One thread per process watches the sockets and notifies
//! the process's endpoints. A peer that dies, at any instruction, leaves its memory readable, and
//! holds no lock that others need.
//!
//! # What is trusted
//!
//! The processes of a group belong to one user and trust each other with their memory's contents.
//! Contents never lead outside of a region or a ring, but they may be wrong. A process of the same
//! user that truncates a *named* region file while others map it can kill them; files that
//! [`Region::shared`](crate::Region::shared) makes cannot be truncated. A process that forks must
//! not use the fabric in the child, nor keep it there: the node's death would not be seen.

mod config;
mod control;
mod error;
mod group;
mod inbox;
mod links;
mod member;
mod node;
mod outbox;
mod port;
mod queue;
mod rings;
mod watcher;
mod wire;

pub use config::ShmConfig;
pub use error::JoinError;
pub use port::ShmPort;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{
            AtomicU32, AtomicUsize,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
};

use drtm_htm::{Engine, NoHtm};
use parking_lot::{Mutex, RwLock};

use crate::{
    Capabilities, Endpoint, Fabric, FabricError, Incarnation, NodeId, Presence, Region, RegionError, RegionId,
    VerbError,
    fabric::{
        die,
        lifetime::{End, Life as _},
    },
};
use control::Control;
use inbox::Inbox;
use links::Links;
use member::Member;
use node::Peer;

/// The most nodes of a group.
const NODES: usize = 64;

/// The most endpoints of a node at a time.
const ENDPOINTS: usize = 32;

/// The most regions that a node can register: few enough that sending all of them to a peer never
/// blocks.
const REGIONS: usize = 64;

/// A process's membership of a group, as a node. Clones are the same node.
///
/// The node leaves when the last clone and the last endpoint are dropped, or with
/// [`leave`](Self::leave).
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use drtm_htm::{Engine, NoHtm};
/// use drtm_rdma::{Fabric, NodeId, Phase, Region, Remote, ShmConfig, ShmFabric, block_on};
///
/// // Two nodes, which would be processes; here they are two members of one group in one process.
/// let directory = std::env::temp_dir().join(format!("drtm-example-{}", std::process::id()));
/// let config = |node| ShmConfig::new("example", NodeId(node)).directory(&directory);
/// let [one, two] = [ShmFabric::join(NoHtm, config(0))?, ShmFabric::join(NoHtm, config(1))?];
///
/// let memory = Arc::new(Region::shared(NoHtm, 1 << 20)?);
/// let offset = memory.extend(8, 8)?;
/// let there = Remote { node: NodeId(1), region: two.register(NodeId(1), Arc::clone(&memory))?, offset };
///
/// let endpoint = one.endpoint(NodeId(0))?;
/// block_on(&endpoint, endpoint.during(Phase::Execute).fetch_add(there, 7))?;
/// assert_eq!(NoHtm.load(&memory.words(offset, 1)?[0]), 7);
/// # drop((endpoint, one, two));
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ShmFabric<E: Engine> {
    member: Arc<Member<E>>,
}

impl<E: Engine> Clone for ShmFabric<E> {
    fn clone(&self) -> Self {
        Self { member: Arc::clone(&self.member) }
    }
}

/// The incarnation of a node that is here, or was last.
type LastLife<E> = RwLock<Option<Arc<Peer<E>>>>;

/// The state that all handles, ports and threads of a node share.
#[derive(Debug)]
struct Shared<E: Engine> {
    node: NodeId,
    engine: E,
    config: ShmConfig,
    /// The node itself, as one of the nodes.
    home: Arc<Peer<E>>,
    lives: Box<[LastLife<E>]>,
    /// The number of changes of nodes and of known regions, so that a port detects one by a single
    /// load.
    changes: AtomicU32,
    /// For each endpoint, the state that outlives it.
    places: Box<[Place]>,
    /// The number of places ever used.
    used: AtomicUsize,
    vacant: Mutex<Vec<u16>>,
    links: Mutex<Links>,
}

/// The state of an endpoint that the next one in its place takes over, and that the endpoints of a
/// node share.
#[derive(Debug, Default)]
struct Place {
    /// Increases whenever an endpoint leaves.
    life: AtomicU32,
    inbox: Mutex<Inbox>,
    /// The rings that were created for endpoints in this place.
    outbox: Mutex<outbox::Outbox>,
}

impl<E: Engine> Shared<E> {
    fn control(&self) -> &Control {
        &self.home.control
    }

    /// Returns the incarnation of a node that is here, or was last.
    fn life(&self, node: NodeId) -> Option<Arc<Peer<E>>> {
        self.lives.get(usize::from(node.0))?.read().clone()
    }

    /// Returns the incarnation of a node that is here, or was last. [`VerbError::NotJoined`] if
    /// none was: any process may join as any node of a group. [`VerbError::UnknownNode`] if a group
    /// has no such node.
    fn last_life(&self, node: NodeId) -> Result<Arc<Peer<E>>, VerbError> {
        match usize::from(node.0) < NODES {
            true => self.life(node).ok_or(VerbError::NotJoined { node }),
            false => Err(VerbError::UnknownNode { node }),
        }
    }

    /// Returns this incarnation of a node, if it is still known.
    fn life_of(&self, node: NodeId, incarnation: Incarnation) -> Option<Arc<Peer<E>>> {
        self.life(node).filter(|life| life.incarnation() == incarnation)
    }

    fn presence(&self, node: usize) -> Presence {
        self.lives.get(node).and_then(|lives| Some(lives.read().as_ref()?.presence())).unwrap_or_default()
    }

    fn presences(&self) -> impl Iterator<Item = Presence> {
        (0..NODES).map(|node| self.presence(node))
    }

    /// Notifies all endpoints of this process of a change.
    fn tell(&self) {
        self.changes.fetch_add(1, Release);
        for endpoint in 0..self.used.load(Acquire) {
            self.control().alarm(endpoint as u16).ring();
        }
    }

    /// Adds a node that has joined, in place of its previous incarnation.
    fn welcome(&self, life: Arc<Peer<E>>) {
        let node = usize::from(life.node().0);
        if let Some(before) = self.lives[node].write().replace(life) {
            // It cannot be here any more, whether or not its socket has said so yet.
            before.end(End::Died);
        }
        self.tell();
    }

    /// Handles a node that is gone.
    fn part(&self, life: &Peer<E>, in_good_order: bool) {
        if in_good_order {
            life.end(End::Left);
        } else {
            life.end(End::Died);
        }
        self.tell();
    }

    /// Reserves a place for an endpoint.
    fn move_in(&self) -> Result<u16, FabricError> {
        if self.home.is_over() {
            return Err(FabricError::Closed { node: self.node });
        }
        let mut vacant = self.vacant.lock();
        if let Some(endpoint) = vacant.pop() {
            return Ok(endpoint);
        }
        let endpoint = self.used.load(Acquire);
        if endpoint == ENDPOINTS {
            return Err(FabricError::TooManyEndpoints { node: self.node, most: ENDPOINTS });
        }
        self.used.fetch_add(1, AcqRel);
        Ok(endpoint as u16)
    }

    fn move_out(&self, endpoint: u16) {
        self.places[usize::from(endpoint)].life.fetch_add(1, Release);
        self.vacant.lock().push(endpoint);
    }
}

impl<E: Engine> ShmFabric<E> {
    /// Joins a group as a node, and connects to all nodes that are there. Returns when this node
    /// has memory from each.
    ///
    /// # Errors
    ///
    /// When the group belongs to another user, or has another format, version or engine. When the
    /// node is there already. When a node that is there does not answer in
    /// [time](ShmConfig::patience). Or when the system fails.
    ///
    /// # Example
    ///
    /// See [`ShmFabric`].
    pub fn join(engine: E, config: ShmConfig) -> Result<Self, JoinError> {
        Ok(Self { member: Arc::new(Member::join(engine, config)?) })
    }

    /// Returns the node of this process.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.member.shared.node
    }

    /// Returns the incarnation of this node.
    ///
    /// # Example
    ///
    /// See [`leave`](Self::leave).
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.member.shared.home.incarnation()
    }

    /// Leaves the group in good order: peers learn that this node has left, and for its own
    /// endpoints all nodes are gone.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Fabric, NodeId, Presence, ShmConfig, ShmFabric};
    ///
    /// let directory = std::env::temp_dir().join(format!("drtm-leave-{}", std::process::id()));
    /// let config = |node| ShmConfig::new("example", NodeId(node)).directory(&directory);
    /// let [one, two] = [ShmFabric::join(NoHtm, config(0))?, ShmFabric::join(NoHtm, config(1))?];
    /// let endpoint = one.endpoint(NodeId(0))?;
    /// two.leave();
    /// while endpoint.presence(NodeId(1)) != Presence::Left(two.incarnation()) {
    ///     std::thread::yield_now();
    /// }
    /// # drop((endpoint, one, two));
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn leave(&self) {
        self.member.leave();
    }

    /// Removes the files of groups without a living node from a directory. Returns the number of
    /// such groups. Joining does so too.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub fn clean_up(directory: &Path) -> Result<usize, JoinError> {
        group::clean_up(directory)
    }

    /// Returns a peer's region as it is mapped here, if it is known: to compare the cost of verbs
    /// with plain loads.
    #[doc(hidden)]
    #[must_use]
    pub fn peer_region(&self, node: NodeId, region: RegionId) -> Option<Arc<Region<E>>> {
        let life = self.member.shared.life(node)?;
        life.regions.get(usize::from(region.0))?.get().cloned()
    }

    fn own(&self, node: NodeId) -> Result<&Shared<E>, FabricError> {
        let shared = &self.member.shared;
        if node == shared.node { Ok(shared) } else { Err(FabricError::Foreign { node }) }
    }
}

impl<E: Engine> Fabric for ShmFabric<E> {
    type Engine = E;
    type Port = ShmPort<E>;

    fn capabilities(&self) -> Capabilities {
        self.member.shared.config.capabilities()
    }

    /// The region must be [shared](Region::shared), or in a file.
    fn region(&self, engine: E, capacity: u64) -> Result<Region<E>, RegionError> {
        Region::shared(engine, capacity)
    }

    fn register(&self, node: NodeId, region: Arc<Region<E>>) -> Result<RegionId, FabricError> {
        let shared = self.own(node)?;
        if region.file().is_none() {
            return Err(FabricError::NotShared { node });
        }
        let links = shared.links.lock();
        if shared.home.is_over() {
            return Err(FabricError::Closed { node });
        }
        let full = FabricError::TooManyRegions { node, most: REGIONS };
        let index = shared.home.regions.iter().position(|place| place.get().is_none()).ok_or(full)?;
        let id = RegionId(index as u16);
        shared.home.regions[index].set(Arc::clone(&region)).map_err(|_| full)?;
        // The number comes first, so that a peer that learns of the region early waits until it has
        // the file.
        shared.control().set_regions(index + 1);
        die::site("register.known");
        links.tell_region(shared, id, &region);
        die::site("register.told");
        Ok(id)
    }

    fn endpoint(&self, node: NodeId) -> Result<Endpoint<ShmPort<E>>, FabricError> {
        self.own(node)?;
        ShmPort::new(&self.member).map(Endpoint::new)
    }

    fn leave(&self, node: NodeId) -> Result<(), FabricError> {
        self.own(node)?;
        self.member.leave();
        Ok(())
    }

    /// Its process is killed.
    fn revoke(&self, node: NodeId, other: NodeId, incarnation: Incarnation) -> Result<bool, FabricError> {
        let shared = self.own(node)?;
        let Some(life) = shared.life(other) else { return Err(FabricError::UnknownNode { node: other }) };
        if life.incarnation() > incarnation || life.incarnation() == incarnation && life.is_over() {
            return Ok(true);
        }
        let link = shared.links.lock().of(other, incarnation);
        link.map_or(Ok(()), |link| link.kill())?;
        Ok(false)
    }
}

/// Memory in which a node publishes its state to peers. It has no emulated htm: it belongs to the
/// fabric, and is never in a region.
type ControlRegion = Region<NoHtm>;
