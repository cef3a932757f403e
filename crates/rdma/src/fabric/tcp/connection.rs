//! The connections of a node, by role.

use std::sync::Arc;

use crate::{Incarnation, NodeId, Time, sync::time};

use super::{
    Refusal,
    bell::Interest,
    caller::Caller,
    dial::{Dial, Wire},
    hello::Hello,
    shared::Peer,
    wire::Failure,
};

/// What a connection is to this node.
pub(super) enum Role {
    /// It has not introduced itself yet.
    Accepted,
    /// Its hello was answered, and is to be confirmed.
    Answered(Hello),
    /// A link that this side begins.
    Dialing(Box<Dial>, NodeId),
    /// A link that this side has confirmed.
    Confirmed(NodeId, Incarnation),
    Link(Link),
    /// The operations of a peer's endpoint.
    Caller(Arc<Caller>, Served),
    /// A peer's letters: another thread gets it.
    Letters(Hello),
}

/// Two nodes' knowing of each other.
pub(super) struct Link {
    pub(super) peer: Arc<Peer>,
    /// When something was heard of it last.
    pub(super) heard: Time,
}

pub(super) struct Connection {
    pub(super) token: u64,
    pub(super) wire: Wire,
    pub(super) since: Time,
    pub(super) role: Role,
    pub(super) watched: Interest,
}

impl Connection {
    /// Returns whether it has not proved that it has the key.
    pub(super) fn is_unauthenticated(&self) -> bool {
        matches!(self.role, Role::Accepted | Role::Answered(_))
    }
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    /// It does; and whether something came.
    Stays(bool),
    /// It is closed, as what its role was then.
    Closed(Option<Refusal>),
    /// The thread that carries letters goes on with it.
    GivenAway,
}

/// How far a caller's operations have come.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// The failure of an unsignaled operation, which is still to be heard of.
    pub(super) broken: Option<Failure>,
    /// The next operation waits for room in the mailbox.
    pub(super) stalled: bool,
    /// The peer does not read what it is told.
    pub(super) paused: bool,
    /// There is more that has come than its turn was long.
    pub(super) unfinished: bool,
    /// That messages were delivered is told with the replies to them.
    pub(super) deferred: bool,
    /// What was done in the last turn: bytes that were moved, with so many for each operation.
    pub(super) turn: usize,
}

/// The links of a node.
pub(super) struct Links {
    /// For each node, the connection by which this one dials it.
    pub(super) dialing: Vec<Option<u64>>,
    /// For each node, the connection that is the link.
    pub(super) linked: Vec<Option<u64>>,
    /// Nodes that were told that this one dials them.
    pub(super) promised: Vec<bool>,
    pub(super) said: Time,
}

impl Links {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            dialing: vec![None; nodes],
            linked: vec![None; nodes],
            promised: vec![false; nodes],
            said: time::of_this_machine(),
        }
    }

    /// Handles the end of a dial.
    pub(super) fn dialed(&mut self, node: NodeId, token: u64) {
        if let Some(dialing) = self.dialing.get_mut(usize::from(node.0)) {
            dialing.take_if(|dialing| *dialing == token);
        }
    }
}
