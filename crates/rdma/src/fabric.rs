//! Fabrics connect nodes. This page says what verbs guarantee, and what they do not.
//!
//! # Guarantees
//!
//! - A *word* is read and written atomically.
//! - Operations from one endpoint to one node take effect in the order of posting, with the
//!   exception below, and complete in that order. So a message or a flag that is written after a
//!   value is seen after the value.
//! - Nothing is lost or done twice, messages included. An operation ends exactly once: with its
//!   completion, or with an error that [says](crate::VerbError::may_have_taken_effect) whether it
//!   can have taken effect.
//! - A queue belongs to one [incarnation](crate::Incarnation) of a node. When that leaves or dies,
//!   pending operations end with [`VerbError::Disconnected`](crate::VerbError::Disconnected). Later
//!   ones fail with [`VerbError::Gone`](crate::VerbError::Gone), until the endpoint
//!   [reconnects](crate::Endpoint::reconnect). No operation waits for a node that is gone.
//! - Between machines, a node that is silent for too long is *suspected*, and operations pending to
//!   it end with [`VerbError::Suspected`](crate::VerbError::Suspected). It may come back as the
//!   same incarnation, to which the endpoint reconnects too.
//! - A posted operation continues, whether or not it is waited for. Dropping its future changes
//!   nothing at the target, and is safe at any time: the buffer belongs to the operation until that
//!   completes.
//! - An unsignaled operation that fails replaces the next signaled one to the same node: that one
//!   is not carried out, and completes with the failure. Unsignaled ones in between are not carried
//!   out either. So a failure is always reported, unless no operation follows.
//!
//! # No guarantees
//!
//! - *Reads are torn.* One READ may see some of a writer's words new and others old, in any order,
//!   since it fetches cache lines in any order. Only within a block of
//!   [`Capabilities::atomic_read_bytes`](crate::Capabilities::atomic_read_bytes) is it atomic.
//! - *Writes arrive in any order.* The words of one WRITE become visible in any order. To publish a
//!   value, write it first, and then its announcement by a second operation.
//! - *Reads may be passed* by writes and messages that are posted after them to the same node.
//!   Await the read first.
//! - Operations to *different nodes*, or from different endpoints, are not ordered at all.
//! - On a simulated cluster *messages by datagrams* are ordered with each other, and not with
//!   one-sided operations: see [`Order::MessagesApart`](crate::Order::MessagesApart).
//! - *Atomics* are atomic only with what [`Atomicity`](crate::Atomicity) says.
//! - Replies are not ordered with one-sided operations, and any endpoint of a node may receive a
//!   message.
//!
//! The in-process fabric shows all of these when [configured](crate::LocalConfig::harsh) so, such
//! that code which relies on more fails in tests.

pub(crate) mod capabilities;
#[cfg_attr(any(not(feature = "verbs"), feature = "model"), allow(dead_code, reason = "bytes are for real networks"))]
pub(crate) mod datagrams;
#[doc(hidden)]
pub mod die;
pub(crate) mod header;
#[cfg(all(feature = "verbs", not(feature = "model")))]
pub(crate) mod ibv;
pub(crate) mod letters;
pub(crate) mod lifetime;
pub(crate) mod local;
pub(crate) mod mailbox;
pub(crate) mod membership;
pub(crate) mod places;
#[cfg(not(feature = "model"))]
pub(crate) mod shm;
pub(crate) mod sim;
#[cfg(all(feature = "tcp", not(feature = "model")))]
pub(crate) mod tcp;
#[cfg(all(feature = "tcp", not(feature = "model")))]
#[doc(hidden)]
pub mod untrusted;

use std::{fmt, net::SocketAddr, sync::Arc};

use drtm_htm::Engine;

use crate::{
    Capabilities, Endpoint, FabricError, Incarnation, Letters, Loopback, NodeId, Port, Region, RegionError, RegionId,
    TakeLetter,
};

/// A network of nodes: nodes register memory with it, and their workers get endpoints from it.
///
/// Handles are cheap to clone and can be shared by all threads. Code for any fabric is generic over
/// this, or over the [`Port`] of its endpoints.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use drtm_htm::{Engine, NoHtm};
/// use drtm_rdma::{Fabric, FabricError, LocalConfig, LocalFabric, NodeId, Offset, Phase, Region, Remote, block_on};
///
/// /// A word of a node, as one of its peers sees it.
/// fn peek<F: Fabric>(fabric: &F, peer: NodeId, word: Remote) -> Result<u64, Box<dyn std::error::Error>> {
///     let endpoint = fabric.endpoint(peer)?;
///     Ok(block_on(&endpoint, endpoint.during(Phase::Other).read_word(word))?)
/// }
///
/// let fabric = LocalFabric::new(2, LocalConfig::perfect());
/// let memory = Arc::new(Region::anonymous(NoHtm, 1 << 20)?);
/// let offset = memory.extend(8, 8)?;
/// NoHtm.store(&memory.words(offset, 1)?[0], 42);
/// let region = fabric.register(NodeId(0), Arc::clone(&memory))?;
/// assert_eq!(peek(&fabric, NodeId(1), Remote { node: NodeId(0), region, offset })?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Fabric: Clone + Send + Sync + fmt::Debug + 'static {
    /// The engine through which registered memory is accessed.
    type Engine: Engine;

    /// The backend of an endpoint.
    type Port: Port;

    /// Returns what this fabric can do.
    fn capabilities(&self) -> Capabilities;

    /// Creates memory of a kind that nodes of this fabric can register: private to the process,
    /// unless peers are processes that map it.
    ///
    /// # Errors
    ///
    /// When the memory cannot be allocated.
    fn region(&self, engine: Self::Engine, capacity: u64) -> Result<Region<Self::Engine>, RegionError> {
        Region::anonymous(engine, capacity)
    }

    /// Registers a region of a node, so that its peers can access it, and returns its identifier.
    /// Regions are numbered from zero in the order of registration, and stay registered.
    ///
    /// # Errors
    ///
    /// When the node is unknown, or has the most regions that it can have.
    fn register(&self, node: NodeId, region: Arc<Region<Self::Engine>>) -> Result<RegionId, FabricError>;

    /// Creates an endpoint for one worker thread of a node.
    ///
    /// # Errors
    ///
    /// When the node is unknown or has left, or has the most endpoints that it can have.
    fn endpoint(&self, node: NodeId) -> Result<Endpoint<Self::Port>, FabricError>;

    /// Returns the NIC of a node, for swaps by its own processors. `None` where they need none, or
    /// where the fabric cannot carry them out.
    ///
    /// # Example
    ///
    /// See [`Region::swap_by`].
    fn loopback(&self, _node: NodeId) -> Option<Arc<dyn Loopback<Self::Engine>>> {
        None
    }

    /// Returns the address at which a node is reached, if nodes have addresses.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Fabric, NodeId, TcpConfig, TcpFabric};
    ///
    /// let there = "127.0.0.1:7001".parse()?;
    /// let config = TcpConfig::new(NodeId(0), "127.0.0.1:0".parse()?, [42; 32]).peer(NodeId(1), there);
    /// let fabric = TcpFabric::join(NoHtm, config)?;
    /// assert_eq!(fabric.address_of(NodeId(1)), Some(there));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn address_of(&self, _node: NodeId) -> Option<SocketAddr> {
        None
    }

    /// Reaches another node at an address from now on, and takes nothing of it that is somewhere
    /// else: it was replaced. An incarnation of it that was met elsewhere is ended, as by
    /// [`revoke`](Self::revoke). Fabrics whose nodes have no addresses do nothing.
    ///
    /// # Errors
    ///
    /// When a node is unknown.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Fabric, NodeId, TcpConfig, TcpFabric};
    ///
    /// let [before, after] = ["127.0.0.1:7001".parse()?, "127.0.0.1:7002".parse()?];
    /// let config = TcpConfig::new(NodeId(0), "127.0.0.1:0".parse()?, [42; 32]).peer(NodeId(1), before);
    /// let fabric = TcpFabric::join(NoHtm, config)?;
    /// fabric.relocate(NodeId(0), NodeId(1), after)?;
    /// assert_eq!(fabric.address_of(NodeId(1)), Some(after));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn relocate(&self, _node: NodeId, _other: NodeId, _address: SocketAddr) -> Result<(), FabricError> {
        Ok(())
    }

    /// Opens the letters of a node: those that come are given to `take`, and what is returned sends
    /// others. A node has them once at a time: until what is returned is dropped.
    ///
    /// # Errors
    ///
    /// [`FabricError::NoLetters`], where [`Capabilities::letters`] says so. When the node is
    /// unknown or has left, or has its letters already; or when the system has no thread or
    /// descriptor.
    ///
    /// # Example
    ///
    /// See [`Letters`].
    fn letters(&self, node: NodeId, _take: TakeLetter) -> Result<Arc<dyn Letters>, FabricError> {
        Err(FabricError::NoLetters { node })
    }

    /// Makes a node leave in good order: its peers are told, and operations to it, and calls that
    /// it has not answered, fail. It does nothing if the node has left before.
    ///
    /// # Errors
    ///
    /// When the node is unknown, or is not here.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Fabric, Incarnation, LocalConfig, LocalFabric, NodeId, Presence};
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
    /// let endpoint = fabric.endpoint(NodeId(0))?;
    /// fabric.leave(NodeId(1))?;
    /// assert_eq!(endpoint.presence(NodeId(1)), Presence::Left(Incarnation(1)));
    /// # Ok::<(), drtm_rdma::FabricError>(())
    /// ```
    fn leave(&self, node: NodeId) -> Result<(), FabricError>;

    /// Ends another node's incarnation for `node`: nothing that it has posted takes effect at
    /// `node` any more, nor is it met there again, and it is [`Died`](crate::Presence::Died).
    /// Whether it is alive does not matter. Nodes whose processes share memory end it for all: the
    /// process is killed.
    ///
    /// Returns whether that is so by now. Otherwise it is under way, and is to be asked for again.
    ///
    /// # Errors
    ///
    /// When a node is unknown; or when the fabric can't end it:
    /// [`FabricError::NotRevocable`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Fabric, Incarnation, LocalConfig, LocalFabric, NodeId, Presence};
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
    /// assert!(fabric.revoke(NodeId(0), NodeId(1), Incarnation(1))?);
    /// let endpoint = fabric.endpoint(NodeId(0))?;
    /// assert_eq!(endpoint.presence(NodeId(1)), Presence::Died(Incarnation(1)));
    /// # Ok::<(), drtm_rdma::FabricError>(())
    /// ```
    fn revoke(&self, node: NodeId, other: NodeId, incarnation: Incarnation) -> Result<bool, FabricError>;
}
