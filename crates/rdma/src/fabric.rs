//! Fabrics: what joins nodes. And what verbs promise, and do not promise.
//!
//! # What is promised
//!
//! - A *word* is read and written whole.
//! - What is posted from one endpoint to one node takes effect in the order of posting, with the
//!   exception below, and completes in that order. So a message or a flag written after a value is
//!   seen after the value.
//! - Nothing is lost or done twice, where messages are delivered [once](crate::Delivery::Once). An
//!   operation ends exactly once: with its completion, or with an
//!   error that [says](crate::VerbError::may_have_taken_effect) whether it can have taken effect.
//! - A queue belongs to one [incarnation](crate::Incarnation) of a node. When that leaves or dies,
//!   what is under way ends with [`VerbError::Disconnected`](crate::VerbError::Disconnected), and
//!   what is posted from then on with [`VerbError::Gone`](crate::VerbError::Gone), until the
//!   endpoint [reconnects](crate::Endpoint::reconnect). Nothing waits for a node that is gone.
//! - Between machines a node that is silent for too long is *suspected*, and what is under way to
//!   it ends with [`VerbError::Suspected`](crate::VerbError::Suspected). It may come back as the
//!   same incarnation, to which the endpoint reconnects, too.
//! - Once posted, an operation goes on, whether or not anyone still waits for it. Dropping its
//!   future changes nothing at the other end, and is safe at any time: the buffer belongs to the
//!   operation until that is over.
//! - An unsignaled operation that fails takes the place of the next signaled one to the same node:
//!   that is not carried out, and completes with the failure. Unsignaled ones in between are not
//!   carried out either. So a failure is never unheard, unless nothing follows.
//!
//! # What is not
//!
//! - *Reads are torn.* One READ may see some of a writer's words new and others old, whatever the
//!   writer's order, since it fetches cache lines in any order. Only within a block of
//!   [`Capabilities::atomic_read_bytes`](crate::Capabilities::atomic_read_bytes) is what it sees
//!   from one moment.
//! - *Writes arrive in any order.* The words of one WRITE become visible in any order. To publish,
//!   write the value first, and then what announces it, by a second operation.
//! - *Reads may be passed* by writes and messages posted after them to the same node. Await the
//!   read first.
//! - Operations to *different nodes*, or from different endpoints, are not ordered at all.
//! - *Atomics* are atomic only with what [`Atomicity`](crate::Atomicity) says.
//! - Replies are not ordered with one-sided operations, and which endpoint of a node receives a
//!   message is not determined.
//!
//! The in-process fabric shows all of these when it is [told to](crate::LocalConfig::harsh), so
//! that code which relies on more fails in tests.

use std::{fmt, sync::Arc};

use drtm_htm::Engine;

use crate::{Capabilities, Endpoint, FabricError, NodeId, Region, RegionError, RegionId, Salvage, port::Backend};

/// Something that joins nodes: they register memory with it, and their workers get endpoints from
/// it.
///
/// Handles are cheap to clone and the same for all threads. Code that works on any fabric is
/// generic over this, or over the [`Port`] of its endpoints.
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

    /// What carries the operations of an endpoint.
    type Port: Port;

    /// What this fabric can do.
    fn capabilities(&self) -> Capabilities;

    /// Memory of a kind that nodes of this fabric can register: of this process, unless peers are
    /// processes that map it.
    ///
    /// # Errors
    ///
    /// When the memory cannot be had.
    fn region(&self, engine: Self::Engine, capacity: u64) -> Result<Region<Self::Engine>, RegionError> {
        Region::anonymous(engine, capacity)
    }

    /// Lets the peers of `node` access a region of its memory, under the identifier returned.
    /// Regions are numbered from zero in the order of registration, and stay registered.
    ///
    /// # Errors
    ///
    /// When the node is unknown, or has as many regions as it can have.
    fn register(&self, node: NodeId, region: Arc<Region<Self::Engine>>) -> Result<RegionId, FabricError>;

    /// A way into the fabric for one worker thread of `node`.
    ///
    /// # Errors
    ///
    /// When the node is unknown or has left, or has as many endpoints as it can have.
    fn endpoint(&self, node: NodeId) -> Result<Endpoint<Self::Port>, FabricError>;

    /// What is left of a region of the last incarnation of a node that has died, to be read.
    ///
    /// # Errors
    ///
    /// When the node is unknown, or there is nothing left.
    fn salvage(&self, node: NodeId, region: RegionId) -> Result<Salvage<Self::Engine>, FabricError>;
}

/// What carries an endpoint's operations: implemented by the backends of this crate, named by
/// generic code.
///
/// # Example
///
/// ```
/// use drtm_rdma::{Port, Remote, VerbError, Verbs};
///
/// /// Follows a link: two round trips.
/// async fn follow<P: Port>(verbs: Verbs<'_, P>, link: Remote) -> Result<u64, VerbError> {
///     let offset = drtm_rdma::Offset::new(verbs.read_word(link).await?);
///     verbs.read_word(Remote { offset, ..link }).await
/// }
/// ```
pub trait Port: Backend {}
