//! The endpoints of peers that have connected to this node.

use std::{
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Acquire},
    },
};

use parking_lot::Mutex;

use crate::{Incarnation, NodeId, endpoint::port::ReplyTo};

use super::flow::Outflow;

/// A connection from a peer's endpoint: where answers to it go.
pub(crate) struct Caller {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) endpoint: u16,
    pub(crate) life: u32,
    /// By which the service knows it.
    pub(crate) token: u64,
    pub(super) socket: Arc<TcpStream>,
    pub(super) out: Mutex<Outflow>,
    pub(super) closed: AtomicBool,
}

impl Caller {
    pub(super) fn is_for(&self, to: &ReplyTo) -> bool {
        (self.node, self.incarnation, self.endpoint, self.life) == (to.node, to.incarnation, to.endpoint, to.life)
            && !self.is_closed()
    }

    /// Returns whether it is no node's, so that calls are all that it may send.
    pub(super) fn is_visitors(&self) -> bool {
        self.node == NodeId::VISITOR
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").field("node", &self.node).field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
