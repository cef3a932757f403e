//! Addresses: offsets within a region, and regions of nodes.

use std::fmt;

/// An offset in a region, in bytes from its beginning. It is the same in every process, wherever
/// the region is mapped.
///
/// # Example
///
/// ```
/// use drtm_rdma::Offset;
///
/// let bucket = Offset::new(4096);
/// assert_eq!(bucket + 128, Offset::new(4224));
/// assert_eq!((bucket + 8).word(), 513);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Offset(u64);

impl Offset {
    /// Returns the offset of this many bytes.
    ///
    /// # Example
    ///
    /// See [`Offset`].
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the bytes from the region's beginning.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Returns the words from the region's beginning, rounded down.
    ///
    /// # Example
    ///
    /// See [`Offset`].
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0 / 8
    }
}

impl std::ops::Add<u64> for Offset {
    type Output = Self;

    fn add(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A node of a cluster.
///
/// # Example
///
/// ```
/// assert_eq!(drtm_rdma::NodeId(3).to_string(), "node 3");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

impl NodeId {
    /// Where the calls of [visitors](crate::rpc::Incoming::from) come from: programs that have the
    /// key of a cluster over TCP, and are no nodes. No node has this number.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, rpc::Incoming};
    ///
    /// /// Returns whether a call comes from a node of the cluster.
    /// fn is_nodes(call: &Incoming<'_>) -> bool {
    ///     call.from() != NodeId::VISITOR
    /// }
    /// ```
    pub const VISITOR: Self = Self(u16::MAX);
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// A region that a node has registered.
///
/// # Example
///
/// ```
/// assert_eq!(drtm_rdma::RegionId(0).to_string(), "region 0");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u16);

impl fmt::Display for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "region {}", self.0)
    }
}

/// An address in a node's region: the target of a one-sided verb.
///
/// # Example
///
/// ```
/// use drtm_rdma::{NodeId, Offset, RegionId, Remote};
///
/// let record = Remote { node: NodeId(2), region: RegionId(0), offset: Offset::new(0x1000) };
/// assert_eq!((record + 64).offset, Offset::new(0x1040));
/// assert_eq!(record.to_string(), "node 2, region 0, 0x1000");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// The owning node.
    pub node: NodeId,
    /// The node's region.
    pub region: RegionId,
    /// The offset in the region.
    pub offset: Offset,
}

impl std::ops::Add<u64> for Remote {
    type Output = Self;

    fn add(self, bytes: u64) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.node, self.region, self.offset)
    }
}
