//! Where nodes are, as a cluster's builder joins them.

use drtm_htm::Native;
use drtm_rdma::{Fabric, Incarnation, NodeId};

use super::{Cluster, ClusterError};
use crate::Error;

pub(super) mod sealed {
    pub trait Sealed {}
}

/// Where the nodes of a cluster are that this process is part of.
///
/// # Example
///
/// See [`ClusterBuilder`](super::ClusterBuilder).
pub trait Place: sealed::Sealed + Sized + Send + 'static {
    /// The fabric that connects the nodes.
    type Fabric: Fabric<Engine = Native>;
    /// What is started: a node, or all nodes in this process.
    type Started;
    /// Returns whether a node that was evicted can join again there.
    #[doc(hidden)]
    fn takes_back(&self) -> bool {
        false
    }
    /// Joins, as a later incarnation than one of this node that has ended.
    #[doc(hidden)]
    fn join(&self, engine: Native, later_than: Option<Incarnation>) -> Result<Here<Self::Fabric>, Error>;
    #[doc(hidden)]
    fn started(nodes: Vec<Cluster<Self::Fabric>>) -> Self::Started;
}

/// The nodes of this process, and how many there are in all, numbered from zero.
#[doc(hidden)]
#[derive(Debug)]
pub struct Here<F> {
    pub(super) fabric: F,
    pub(super) nodes: Vec<NodeId>,
    pub(super) of: u16,
}

/// Returns the only node that was started.
pub(super) fn only<F: Fabric<Engine = Native>>(mut nodes: Vec<Cluster<F>>) -> Cluster<F> {
    match nodes.pop() {
        Some(node) => node,
        None => unreachable!("a place that is one node's starts it, or fails"),
    }
}

/// Refuses a node's number that none of the nodes has.
pub(super) fn check_number(me: u16, nodes: usize) -> Result<(), Error> {
    if usize::from(me) < nodes { Ok(()) } else { Err(ClusterError::NodeNumber { number: me, nodes }.into()) }
}
