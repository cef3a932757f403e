//! What each message of requests says: the view that they are of, and the incarnation that they are
//! for.

use drtm_rdma::Incarnation;

use super::{
    super::view::{BETWEEN, NO_VIEW},
    Refusal,
};

/// The view of a requester, and which incarnation of a node it has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) struct Stamp {
    pub(in crate::cluster) view: u32,
    /// Zero where nodes have not met: no node has it.
    incarnation: u32,
}

/// What of a stamp must be the serving node's. Otherwise the request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) enum Binds {
    /// View and incarnation.
    View,
    /// The incarnation. What ends a transaction, or is the log's, is served in any view: a lock or
    /// a ring guards it, which names who may.
    Incarnation,
    /// Nothing: nodes meet.
    Nothing,
}

impl Stamp {
    pub(in crate::cluster) fn new(view: u32, incarnation: Option<Incarnation>) -> Self {
        Self { view, incarnation: incarnation.map_or(0, |incarnation| incarnation.0) }
    }

    /// Returns the stamp that a message's tag is.
    pub(in crate::cluster) fn of_tag(tag: u64) -> Self {
        Self { view: tag as u32, incarnation: (tag >> 32) as u32 }
    }

    /// Returns the tag of messages with this stamp.
    pub(in crate::cluster) fn tag(self) -> u64 {
        u64::from(self.incarnation) << 32 | u64::from(self.view)
    }

    /// Returns whether a node whose own stamp is `now` serves a request with this one.
    pub(in crate::cluster) fn is_served(self, binds: Binds, now: Self) -> bool {
        match binds {
            Binds::View => self == now && !matches!(now.view, NO_VIEW | BETWEEN),
            Binds::Incarnation => self.incarnation == now.incarnation,
            Binds::Nothing => true,
        }
    }

    /// Returns why a node whose own stamp is `now` refuses a request with this one.
    pub(in crate::cluster) fn refusal(self, now: Self) -> Refusal {
        match now.view == NO_VIEW && self.incarnation == now.incarnation {
            true => Refusal::Closed,
            false => Refusal::OtherView,
        }
    }
}
