//! An endpoint, as the simulated world knows it: its queues, its processor's time, and what has
//! come for it.

use std::collections::VecDeque;

use super::{
    agenda::OpId,
    clock::Picos,
    queue::{Outcome, Queue, Stage},
};
use crate::{
    Incarnation, NodeId,
    port::{Frame, Ticket, Verb},
};

/// What a poll finds.
#[derive(Debug)]
pub(super) enum Arrival {
    Completed { queue: u16, ticket: Option<Ticket>, verb: Verb, outcome: Outcome },
    Replied { ticket: Ticket, from: NodeId, frame: Option<Frame> },
    Departed { node: NodeId, incarnation: Incarnation },
    Changed,
}

#[derive(Debug)]
pub(super) struct Station {
    pub(super) node: NodeId,
    pub(super) incarnation: Incarnation,
    /// Which of the node's endpoints it is, and which NIC it uses.
    pub(super) ordinal: usize,
    pub(super) nic: usize,
    /// How far its processor has come: ahead of the world's time while a turn is under way.
    pub(super) local: Picos,
    /// It does nothing before.
    pub(super) stalled: Picos,
    pub(super) queues: Vec<Queue>,
    /// Posted, and not rung.
    pub(super) staged: Vec<OpId>,
    pub(super) arrivals: VecDeque<(Picos, Arrival)>,
    /// It waits, and mail ends its wait.
    pub(super) receiving: bool,
    /// Something has ended its wait.
    pub(super) rung: bool,
    /// It has rung the doorbell for replies since its last poll.
    pub(super) answered: bool,
    /// Its worker has said what it waits for.
    pub(super) waits: bool,
    /// Its next turn, and which of the turns planned that is.
    turn: Option<Picos>,
    generation: u32,
    /// Operations posted, and not reported.
    pub(super) in_flight: usize,
    /// Whether the cluster runs its coroutines.
    pub(super) crewed: bool,
}

impl Station {
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
        }
    }

    /// Adds what its next poll from `visible` on finds: after what is there already.
    pub(super) fn arrive(&mut self, visible: Picos, arrival: Arrival) -> Picos {
        let visible = self.arrivals.back().map_or(visible, |(before, _)| visible.max(*before));
        self.arrivals.push_back((visible, arrival));
        visible
    }

    /// When it first finds something.
    pub(super) fn news(&self) -> Option<Picos> {
        self.arrivals.front().map(|(visible, _)| *visible)
    }

    /// Plans a turn. Gives its number where there was none at that time or before.
    pub(super) fn plan_turn(&mut self, at: Picos) -> Option<(Picos, u32)> {
        let at = at.max(self.local).max(self.stalled);
        if self.turn.is_some_and(|planned| planned <= at) {
            return None;
        }
        self.generation = self.generation.wrapping_add(1);
        self.turn = Some(at);
        Some((at, self.generation))
    }

    /// Its turn is here, if that is the one which was planned last.
    pub(super) fn begin_turn(&mut self, generation: u32) -> bool {
        let is_it = self.turn.is_some() && self.generation == generation;
        if is_it {
            self.turn = None;
        }
        is_it
    }

    /// Operations that wait for a peer to take messages.
    pub(super) fn blocked(&self) -> usize {
        let blocked = self.queues.iter().filter(|queue| queue.blocked);
        blocked.flat_map(|queue| &queue.ops).filter(|op| matches!(op.stage, Stage::Waiting)).count()
    }
}
