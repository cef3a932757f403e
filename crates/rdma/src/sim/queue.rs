//! What one endpoint has under way to one node, in the order of posting.

use std::collections::VecDeque;

use super::{NicProfile, agenda::OpId, clock::Picos, profiles::Service};
use crate::{
    Incarnation, VerbError,
    port::{Ticket, Verb},
};

pub(super) type Outcome = Result<u64, VerbError>;

#[derive(Debug)]
pub(super) enum Stage {
    /// With its own NIC, or about to be.
    Staged,
    /// On its way.
    Flying,
    /// There, and not begun.
    Waiting,
    /// These lines or words remain.
    Moving(Vec<u32>),
    /// An atomic that has read, and not yet written. It holds the target's atomic unit.
    Between { old: u64 },
    /// The answer is on its way.
    Answered(Outcome),
    /// Over, and known.
    Done { outcome: Outcome, visible: Picos },
}

#[derive(Debug)]
pub(super) struct Op {
    pub(super) ticket: Option<Ticket>,
    pub(super) verb: Verb,
    pub(super) stage: Stage,
    /// When the responder is through with it.
    pub(super) ready: Picos,
    /// How often a packet of it was lost.
    pub(super) losses: u32,
    /// Which of the queue pairs to the node carries it.
    pub(super) lane: u16,
}

impl Op {
    pub(super) fn may_pass_reads(&self) -> bool {
        matches!(self.verb, Verb::Write { .. } | Verb::Send { .. } | Verb::Call { .. })
    }

    pub(super) fn is_message(&self) -> bool {
        matches!(self.verb, Verb::Send { .. } | Verb::Call { .. })
    }

    /// What it costs the two NICs.
    pub(super) fn service(&self, profile: &NicProfile) -> Service {
        match &self.verb {
            Verb::Read { .. } => profile.read,
            Verb::Write { .. } => profile.write,
            Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => profile.atomic,
            Verb::Send { .. } | Verb::Call { .. } => profile.message,
        }
    }

    /// Whether its payload travels within the request.
    pub(super) fn is_inline(&self, profile: &NicProfile) -> bool {
        matches!(&self.verb, Verb::Write { from, .. } if size_of_val::<[u64]>(from) <= profile.inline_bytes)
    }

    /// Bytes of payload in the request, and in the response.
    pub(super) fn payload(&self) -> (u64, u64) {
        match &self.verb {
            Verb::Read { into, .. } => (0, size_of_val::<[u64]>(into) as u64),
            Verb::Write { from, .. } => (size_of_val::<[u64]>(from) as u64, 0),
            Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => (16, 8),
            Verb::Send { bytes, .. } | Verb::Call { bytes, .. } => (bytes.len() as u64, 0),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The incarnation that it belongs to: from its first use, and from a reconnection.
    pub(super) life: Option<Incarnation>,
    /// It is broken: the incarnation is gone, or could not be reached.
    pub(super) cut: bool,
    pub(super) ops: VecDeque<Op>,
    /// The number of the first of them.
    first: u32,
    /// Places taken, until what was posted is reported.
    pub(super) taken: usize,
    /// The failure of an unsignaled operation that was not heard of yet.
    pub(super) broken: Option<VerbError>,
    /// A message of it waits for room at the target.
    pub(super) blocked: bool,
    pub(super) next_lane: u16,
}

impl Queue {
    /// Adds an operation, and names it.
    pub(super) fn push(&mut self, op: Op, station: u32, queue: u16) -> OpId {
        let number = self.first.wrapping_add(self.ops.len() as u32);
        self.ops.push_back(op);
        OpId { station, queue, number }
    }

    /// The place of an operation that is not reported yet.
    pub(super) fn place(&self, number: u32) -> Option<usize> {
        let place = number.wrapping_sub(self.first) as usize;
        (place < self.ops.len()).then_some(place)
    }

    pub(super) fn op(&mut self, number: u32) -> Option<&mut Op> {
        let place = self.place(number)?;
        self.ops.get_mut(place)
    }

    pub(super) fn number(&self, place: usize) -> u32 {
        self.first.wrapping_add(place as u32)
    }

    /// Takes the first one, if it is over.
    pub(super) fn pop_done(&mut self) -> Option<(Op, Outcome, Picos)> {
        let Stage::Done { outcome, visible } = self.ops.front()?.stage else { return None };
        let op = self.ops.pop_front()?;
        self.first = self.first.wrapping_add(1);
        Some((op, outcome, visible))
    }

    /// Remembers a failure that is not heard of, or forgets it when one is.
    pub(super) fn note(&mut self, signaled: bool, outcome: &Outcome) {
        if let Err(error) = outcome {
            self.broken = (!signaled).then_some(*error);
        }
    }
}
