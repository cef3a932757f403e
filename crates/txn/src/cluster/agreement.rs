//! What the nodes of a cluster agree on its view by, as a cluster's builder is told.

use std::sync::Arc;

use drtm_membership::Membership;
use drtm_rdma::Fabric;

/// By what nodes agree on the view.
#[derive(Clone, Debug, Default)]
pub(super) enum Agreement {
    /// By Raft, where there are enough owners and the fabric carries their messages.
    #[default]
    Usual,
    /// They do not: the view stays as it is.
    Fixed,
    /// By a register that each node has a handle of.
    Given(Arc<dyn Membership>),
}

/// Owners from which on some can be lost, and a majority is left.
const ENOUGH: u16 = 3;

impl Agreement {
    /// Returns whether so many owners on a fabric agree by Raft.
    pub(super) fn is_raft(&self, fabric: &impl Fabric, owners: u16) -> bool {
        let is_usual = matches!(self, Self::Usual) && cfg!(feature = "raft");
        is_usual && owners >= ENOUGH && fabric.capabilities().letters
    }

    /// Returns the register that nodes were given.
    pub(super) fn given(&self) -> Option<Arc<dyn Membership>> {
        match self {
            Self::Given(membership) => Some(Arc::clone(membership)),
            Self::Usual | Self::Fixed => None,
        }
    }
}
