//! An endpoint in the simulated world: its queues, its processor's time, and its arrivals.

use std::collections::VecDeque;

use super::{
    agenda::OpId,
    clock::Picos,
    queue::{Outcome, Queue, Stage},
};
use crate::{
    Incarnation, NodeId, VerbError,
    endpoint::port::{Frame, Ticket, Verb},
};

/// A result of a poll.
#[derive(Debug)]
pub(super) enum Arrival {
    Completed { queue: u16, ticket: Option<Ticket>, verb: Verb, outcome: Outcome },
    Replied { ticket: Ticket, from: NodeId, frame: Option<Frame> },
    Departed { node: NodeId, error: VerbError },
    Changed,
}

#[derive(Debug)]
pub(super) struct EndpointState {
    pub(super) node: NodeId,
    pub(super) incarnation: Incarnation,
    /// Its number among the node's endpoints, and its NIC.
    pub(super) ordinal: usize,
    pub(super) nic: usize,
    /// The time of its processor, ahead of the world's during a turn.
    pub(super) local: Picos,
    /// It is stalled until then.
    pub(super) stalled: Picos,
    pub(super) queues: Vec<Queue>,
    /// Operations that are posted, and not rung.
    pub(super) staged: Vec<OpId>,
    pub(super) arrivals: VecDeque<(Picos, Arrival)>,
    /// Whether it waits, and mail ends its wait.
    pub(super) receiving: bool,
    /// Whether its wait has ended.
    pub(super) rung: bool,
    /// Whether it has rung the doorbell for replies since its last poll.
    pub(super) answered: bool,
    /// Whether its worker has registered what it waits for.
    pub(super) waits: bool,
    /// The time of its next turn, and the number of that turn.
    turn: Option<Picos>,
    generation: u32,
    /// The number of operations that are posted, and not reported.
    pub(super) in_flight: usize,
    /// Whether the cluster runs its coroutines.
    pub(super) crewed: bool,
    /// Whether it is the node's NIC, and what it has charged for the message that it serves.
    pub(super) is_nic: bool,
    pub(super) serving: Serving,
}

/// What serving a message takes, on a node's NIC.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Serving {
    /// Of the NIC.
    pub(super) nic: Picos,
    /// Of a processor, for what no NIC can do.
    pub(super) processor: Picos,
}

impl EndpointState {
    pub(super) fn new(node: NodeId, incarnation: Incarnation, ordinal: usize, nic: usize, nodes: usize) -> Self {
        Self {
            node,
            incarnation,
            ordinal,
            nic,
            local: 0,
            stalled: 0,
            queues: (0..nodes).map(|_| Queue::default()).collect(),
            staged: Vec::new(),
            arrivals: VecDeque::new(),
            receiving: false,
            rung: false,
            answered: false,
            waits: false,
            turn: None,
            generation: 0,
            in_flight: 0,
            crewed: false,
            is_nic: false,
            serving: Serving::default(),
        }
    }

    /// Adds an arrival that polls from `visible` on find, after all earlier arrivals. Returns when
    /// it is visible.
    pub(super) fn arrive(&mut self, visible: Picos, arrival: Arrival) -> Picos {
        let visible = self.arrivals.back().map_or(visible, |(before, _)| visible.max(*before));
        self.arrivals.push_back((visible, arrival));
        visible
    }

    /// Returns when the first arrival is visible.
    pub(super) fn news(&self) -> Option<Picos> {
        self.arrivals.front().map(|(visible, _)| *visible)
    }

    /// Plans a turn. Returns its time and number, unless an earlier turn is planned.
    pub(super) fn plan_turn(&mut self, at: Picos) -> Option<(Picos, u32)> {
        let at = at.max(self.local).max(self.stalled);
        if self.turn.is_some_and(|planned| planned <= at) {
            return None;
        }
        self.generation = self.generation.wrapping_add(1);
        self.turn = Some(at);
        Some((at, self.generation))
    }

    /// Begins a turn. Returns whether it is the one that was planned last.
    pub(super) fn begin_turn(&mut self, generation: u32) -> bool {
        let is_it = self.turn.is_some() && self.generation == generation;
        if is_it {
            self.turn = None;
        }
        is_it
    }

    /// Returns the number of operations that wait for a peer to take messages.
    pub(super) fn blocked(&self) -> usize {
        let blocked = self.queues.iter().filter(|queue| queue.blocked);
        blocked.flat_map(|queue| &queue.ops).filter(|op| matches!(op.stage, Stage::Waiting)).count()
    }
}
