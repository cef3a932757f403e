//! Where each node of a cluster listens. A node that was replaced is somewhere else than before.

use std::net::SocketAddr;

use parking_lot::RwLock;

use crate::NodeId;

/// Where a node listens, and whether it was somewhere else before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(super) address: SocketAddr,
    /// Then the process that was there may still run, or be started again: it has the number and
    /// the key, and must not be taken for the node.
    pub(super) was_elsewhere: bool,
}

/// Where each node listens, this one included.
#[derive(Debug)]
pub(crate) struct Directory(Box<[RwLock<Option<Place>>]>);

impl Directory {
    /// Makes a directory for so many numbers of nodes.
    pub(super) fn new(nodes: usize, at: impl IntoIterator<Item = (NodeId, SocketAddr)>) -> Self {
        let directory = Self((0..nodes).map(|_| RwLock::default()).collect());
        for (node, address) in at {
            if let Some(place) = directory.0.get(usize::from(node.0)) {
                *place.write() = Some(Place { address, was_elsewhere: false });
            }
        }
        directory
    }

    /// Returns how many numbers of nodes there are.
    pub(super) fn nodes(&self) -> usize {
        self.0.len()
    }

    /// Returns where a node is. `None` if the directory does not have it.
    pub(super) fn place(&self, node: NodeId) -> Option<Place> {
        *self.0.get(usize::from(node.0))?.read()
    }

    /// Returns where a node listens. `None` if the directory does not have it.
    pub(crate) fn address(&self, node: NodeId) -> Option<SocketAddr> {
        Some(self.place(node)?.address)
    }

    /// Notes that a node listens somewhere else from now on. Returns whether that is new; `None` if
    /// the directory does not have the node.
    pub(super) fn relocate(&self, node: NodeId, address: SocketAddr) -> Option<bool> {
        let mut place = self.0.get(usize::from(node.0))?.write();
        let place = place.as_mut()?;
        let is_new = place.address != address;
        if is_new {
            *place = Place { address, was_elsewhere: true };
        }
        Some(is_new)
    }
}
