//! The fabric of machines, over TCP.
//!
//! # Nodes
//!
//! A node is a process. It listens at an address, knows where the others listen, and has the
//! cluster's key. One that [joins](TcpFabric::join) dials all others; with each that is there it
//! has a *link*, by which they know of each other (`links`). Each endpoint connects to each node
//! that it uses, at the first use (`queue`).
//!
//! # Verbs and messages
//!
//! An endpoint sends its requests as frames, all that were posted between two polls by one system
//! call (`wire`, `flow`). The node's own thread, or an endpoint that waits for messages anyway
//! (`driver`), carries them out in order, through the engine of the region, and says what became of
//! them, again all by one system call (`service`, `responder`). So atomics are atomic with what the
//! owner's processors do. Messages go into the node's mailbox, from which its endpoints receive; a
//! reply is written by the endpoint that gives it. Where the mailbox is full, the connection waits,
//! and says so.
//!
//! # Death and silence
//!
//! A connection that ends without a goodbye is a death: the system ends the connections of a
//! process that ends. A node of which nothing is heard for the [deadline](TcpConfig::deadline) is
//! *suspected*: its operations under way end with
//! [`VerbError::Suspected`](crate::VerbError::Suspected), and it may come back as the same
//! incarnation. Nothing is ever sent twice, so an atomic happens once, or its error says that it is
//! not known whether it has. What an old connection still holds does not take effect when a new one
//! is there.
//!
//! # Letters
//!
//! [Letters](crate::Letters) have connections and a thread of their own (`post`): they go on
//! whatever nodes think of each other, and take nothing from the connections of endpoints.
//!
//! # What is trusted
//!
//! Every connection begins with a handshake that proves to both sides that the other has the key,
//! and everything after it is encrypted and authenticated (`noise`, `docs/security.md`). Holders of
//! the key are trusted with the contents of registered memory, and with nothing else: any bytes of
//! theirs lead to a result or an error, and what they can take is [bounded](TcpLimits).

mod bell;
mod caller;
mod config;
mod connection;
mod dial;
mod directory;
mod driver;
mod error;
mod flow;
mod handler;
mod handshake;
pub(crate) mod hello;
mod inbox;
mod links;
mod noise;
mod port;
mod post;
mod queue;
mod responder;
mod rounds;
mod service;
mod shared;
mod shares;
mod tray;
mod visit;
pub(crate) mod wire;

pub use config::{TcpConfig, TcpLimits};
pub use error::{Refusal, Refusals, TcpError};
pub use port::TcpPort;
pub use shares::WorkUnits;
pub use visit::{TcpVisitor, VisitError};

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    sync::{Arc, atomic::Ordering::SeqCst},
    thread::JoinHandle,
    time::{Duration, SystemTime},
};

use drtm_htm::Engine;
use parking_lot::Mutex;

use crate::{
    Capabilities, Endpoint, Fabric, FabricError, Incarnation, Letters, NodeId, Region, RegionId, TakeLetter,
    fabric::lifetime::{End, Life as _},
    region::kind_of,
    sync::alarm::Ring,
};
use bell::Bell;
use directory::Directory;
use driver::Work;
pub(crate) use handler::CallHandler;
use post::PostBox;
use service::Joining;
use shared::NODES;
pub(crate) use shared::{Peer, Shared};
#[cfg(feature = "verbs")]
pub(crate) use {caller::Caller, inbox::Inbox};

/// One process's part in a cluster over TCP: a node. Clones are the same node.
///
/// The node leaves when the last clone and the last endpoint are dropped, or with
/// [`leave`](Self::leave).
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use drtm_htm::{Engine, NoHtm};
/// use drtm_rdma::{Fabric, NodeId, Phase, Region, Remote, TcpConfig, TcpFabric, block_on};
///
/// // Two nodes, which would be on two machines; here they are in one process.
/// let key = [42; 32]; // of a random generator, in earnest
/// let one = TcpConfig::new(NodeId(0), "127.0.0.1:27310".parse()?, key);
/// let two = TcpConfig::new(NodeId(1), "127.0.0.1:27311".parse()?, key);
/// let one = TcpFabric::join(NoHtm, one.peer(NodeId(1), "127.0.0.1:27311".parse()?))?;
/// let two = TcpFabric::join(NoHtm, two.peer(NodeId(0), "127.0.0.1:27310".parse()?))?;
///
/// let memory = Arc::new(Region::anonymous(NoHtm, 1 << 20)?);
/// let offset = memory.extend(8, 8)?;
/// let there = Remote { node: NodeId(1), region: two.register(NodeId(1), Arc::clone(&memory))?, offset };
///
/// let endpoint = one.endpoint(NodeId(0))?;
/// block_on(&endpoint, endpoint.during(Phase::Execute).fetch_add(there, 7))?;
/// assert_eq!(NoHtm.load(&memory.words(offset, 1)?[0]), 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TcpFabric<E: Engine> {
    member: Arc<Member<E>>,
}

impl<E: Engine> Clone for TcpFabric<E> {
    fn clone(&self) -> Self {
        Self { member: Arc::clone(&self.member) }
    }
}

/// A process's part, from joining to leaving.
struct Member<E: Engine> {
    shared: Arc<Shared<E>>,
    address: SocketAddr,
    work: Work<E>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<E: Engine> Member<E> {
    fn join(engine: &E, config: TcpConfig, handler: Option<Arc<dyn CallHandler>>) -> Result<Self, TcpError> {
        let out_of_range =
            |node: NodeId| (usize::from(node.0) >= NODES).then_some(TcpError::Node { node, most: NODES });
        let mut named = config.peers.iter().map(|(node, _)| *node).chain([config.node]);
        if let Some(error) = named.find_map(out_of_range) {
            return Err(error);
        }
        let listener = TcpListener::bind(config.listen).map_err(TcpError::io("listen"))?;
        let address = listener.local_addr().map_err(TcpError::io("listen"))?;
        let at = config.says_it_is_at(address)?;
        let own = (config.node, reachable(address));
        let directory = Directory::new(config.nodes(), config.peers.iter().copied().chain([own]));
        let patience = config.patience;
        let node = config.node;
        let home = Peer::new(node, config.incarnation.unwrap_or_else(|| incarnation_by_the_clock(config.later_than)));
        let open = config.peers.iter().map(|(node, _)| *node).collect();
        let service = Arc::new(Bell::new()?);
        let shared = Arc::new(Shared::new(config, kind_of(engine) as u8, home, (directory, at), service, handler));
        let joining = Arc::new(Joining::default());
        joining.outcome.lock().open = open;
        let (thread, work) = driver::start(Arc::clone(&shared), listener, Arc::clone(&joining))?;
        let member = Self { shared, address, work, thread: Mutex::new(Some(thread)) };
        // The service itself gives each node up after the patience; this is for the case that a
        // node has said that it dials, and does not.
        let mut outcome = joining.outcome.lock();
        let limit = std::time::Instant::now() + 2 * patience + Duration::from_secs(1);
        while outcome.error.is_none() && !outcome.open.is_empty() {
            if joining.changed.wait_until(&mut outcome, limit).timed_out() {
                outcome.error = outcome.open.first().map(|node| TcpError::NoAnswer { node: *node });
            }
        }
        match outcome.error.take() {
            Some(error) => {
                drop(outcome);
                Err(error)
            }
            None => {
                drop(outcome);
                Ok(member)
            }
        }
    }

    /// Closes all connections to an incarnation of another node, and takes none of it any more.
    fn revoke(&self, other: NodeId, incarnation: Incarnation) -> Result<bool, FabricError> {
        if other == self.shared.node || usize::from(other.0) >= self.shared.nodes() {
            return Err(FabricError::UnknownNode { node: other });
        }
        // Where this node has left, nothing is connected.
        if let Some(service) = &mut *self.work.lock() {
            service.revoke(other, incarnation);
        }
        Ok(true)
    }

    /// Reaches another node at another address from now on, and nowhere else.
    fn relocate(&self, other: NodeId, address: SocketAddr) -> Result<(), FabricError> {
        if other == self.shared.node {
            return Ok(());
        }
        let is_new = self.shared.directory.relocate(other, address);
        if is_new.ok_or(FabricError::UnknownNode { node: other })?
            && let Some(life) = self.shared.life(other)
        {
            // What was at the other address is not the node any more. Whether it has ended there
            // does not matter.
            self.revoke(other, life.incarnation)?;
        }
        Ok(())
    }

    fn leave(&self) {
        let Some(thread) = self.thread.lock().take() else { return };
        self.shared.home.end(End::Left);
        self.shared.leaving.store(true, SeqCst);
        self.shared.service.ring();
        self.shared.wake_driver();
        self.shared.lead.wake_thread();
        if let Some(post) = &*self.shared.post.lock() {
            post.close();
        }
        // One that has panicked has nothing more to say.
        let _ = thread.join();
        for node in 0..self.shared.nodes() {
            if let Some(life) = self.shared.life(NodeId(node as u16)) {
                life.end(End::Left);
            }
        }
        self.shared.tell();
    }
}

impl<E: Engine> Drop for Member<E> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<E: Engine> fmt::Debug for Member<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("node", &self.shared.node).finish_non_exhaustive()
    }
}

/// Returns where this process reaches what listens at an address: a node that listens everywhere
/// reaches itself by the loopback address.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => {}
    }
    address
}

/// Seconds since 1970, which fit until 2106; or more, if an earlier incarnation has as many.
fn incarnation_by_the_clock(earlier: Option<Incarnation>) -> Incarnation {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |since| since.as_secs());
    let least = earlier.map_or(0, |Incarnation(earlier)| earlier.saturating_add(1));
    Incarnation(u32::try_from(seconds).unwrap_or(u32::MAX).max(least))
}

impl<E: Engine> TcpFabric<E> {
    /// Becomes a node of a cluster, and connects to all nodes that are there. Returns when each of
    /// them knows of this one.
    ///
    /// # Errors
    ///
    /// When a node that is there has another key, version or engine, has this one at another
    /// address, knows a later incarnation of it, or does not answer in [time](TcpConfig::patience);
    /// or when the system refuses something.
    pub fn join(engine: E, config: TcpConfig) -> Result<Self, TcpError> {
        Ok(Self { member: Arc::new(Member::join(&engine, config, None)?) })
    }

    /// Joins like [`join`](Self::join), but calls to this node go to a handler.
    #[cfg(feature = "verbs")]
    pub(crate) fn join_with(engine: E, config: TcpConfig, handler: Arc<dyn CallHandler>) -> Result<Self, TcpError> {
        Ok(Self { member: Arc::new(Member::join(&engine, config, Some(handler))?) })
    }

    /// Returns what carries the operations of another endpoint.
    #[cfg(feature = "verbs")]
    pub(crate) fn port(&self) -> Result<TcpPort<E>, FabricError> {
        TcpPort::new(&self.member)
    }

    #[cfg(feature = "verbs")]
    pub(crate) fn shared(&self) -> &Arc<Shared<E>> {
        &self.member.shared
    }

    /// Returns the node that this process is.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.member.shared.node
    }

    /// Returns which of the node's incarnations this is.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.member.shared.home.incarnation
    }

    /// Returns where this node listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.member.address
    }

    /// Leaves the cluster in good order: peers are told that this node has left, and to its own
    /// endpoints all nodes are gone.
    pub fn leave(&self) {
        self.member.leave();
    }

    /// Ends as a process does that is killed: without a goodbye. For tests.
    #[doc(hidden)]
    pub fn break_off(&self) {
        self.member.shared.silent.store(true, SeqCst);
        self.member.leave();
    }

    /// Counts how often this node has refused something, by cause.
    ///
    /// # Example
    ///
    /// ```
    /// use std::{io::Write, net::TcpStream, thread::yield_now};
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{NodeId, Refusal, TcpConfig, TcpFabric};
    ///
    /// let node = TcpFabric::join(NoHtm, TcpConfig::new(NodeId(0), "127.0.0.1:0".parse()?, [42; 32]))?;
    /// TcpStream::connect(node.address())?.write_all(b"GET / HTTP/1.1\r\n")?;
    /// while node.refusals().of(Refusal::Format) == 0 {
    ///     yield_now();
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn refusals(&self) -> Refusals {
        self.member.shared.refusals.read()
    }

    /// Returns the bytes that wait for peers to read them: at most [`TcpLimits::held_bytes`] and
    /// one operation's for each connection.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.member.shared.held_bytes()
    }

    /// Returns what this node's thread has done, for holders of the key and for others.
    #[doc(hidden)]
    #[must_use]
    pub fn work(&self) -> WorkUnits {
        self.member.shared.totals.read()
    }

    /// Breaks all connections of peers' endpoints to this node, as a network might. For tests.
    #[doc(hidden)]
    pub fn break_connections(&self) {
        self.member.shared.break_connections();
    }

    fn own(&self, node: NodeId) -> Result<&Shared<E>, FabricError> {
        let shared = &self.member.shared;
        if node == shared.node { Ok(shared) } else { Err(FabricError::Foreign { node }) }
    }
}

impl<E: Engine> Fabric for TcpFabric<E> {
    type Engine = E;
    type Port = TcpPort<E>;

    fn capabilities(&self) -> Capabilities {
        self.member.shared.config.capabilities()
    }

    fn register(&self, node: NodeId, region: Arc<Region<E>>) -> Result<RegionId, FabricError> {
        self.own(node)?.register(region)
    }

    fn endpoint(&self, node: NodeId) -> Result<Endpoint<TcpPort<E>>, FabricError> {
        self.own(node)?;
        TcpPort::new(&self.member).map(Endpoint::new)
    }

    fn address_of(&self, node: NodeId) -> Option<SocketAddr> {
        self.member.shared.directory.address(node)
    }

    fn relocate(&self, node: NodeId, other: NodeId, address: SocketAddr) -> Result<(), FabricError> {
        self.own(node)?;
        self.member.relocate(other, address)
    }

    fn letters(&self, node: NodeId, take: TakeLetter) -> Result<Arc<dyn Letters>, FabricError> {
        self.own(node)?;
        Ok(Arc::new(PostBox::open(&self.member.shared, take)?))
    }

    fn leave(&self, node: NodeId) -> Result<(), FabricError> {
        self.own(node)?;
        self.member.leave();
        Ok(())
    }

    fn revoke(&self, node: NodeId, other: NodeId, incarnation: Incarnation) -> Result<bool, FabricError> {
        self.own(node)?;
        self.member.revoke(other, incarnation)
    }
}
