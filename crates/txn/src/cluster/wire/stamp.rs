//! What all requests begin with: the view that they are of, and the incarnation that they are for.

use drtm_rdma::{
    Incarnation,
    rpc::{Decode, DecodeError, Encode, Reader},
};

use super::{super::view::NO_VIEW, Refusal};

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

    /// Returns whether a node whose own stamp is `now` serves a request with this one.
    pub(in crate::cluster) fn is_served(self, binds: Binds, now: Self) -> bool {
        match binds {
            Binds::View => self == now && now.view != NO_VIEW,
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

impl Encode for Stamp {
    fn encode(&self, into: &mut Vec<u8>) {
        (self.view, self.incarnation).encode(into);
    }
}

impl Decode<'_> for Stamp {
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (view, incarnation) = Decode::decode(from)?;
        Ok(Self { view, incarnation })
    }
}
