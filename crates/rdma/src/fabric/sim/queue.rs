//! The pending operations of one endpoint to one node, in the order of posting.

use std::collections::VecDeque;

use super::{NicProfile, agenda::OpId, clock::Picos, profiles::Service, session::Session};
use crate::{
    Incarnation, VerbError,
    endpoint::port::{Ticket, Verb},
};

pub(super) type Outcome = Result<u64, VerbError>;

#[derive(Debug)]
pub(super) enum Stage {
    /// It is at its own NIC, or about to be.
    Staged,
    /// It is on its way. A message by datagram is until the node has acknowledged it, if its
    /// operation waits for that.
    Flying,
    /// It has arrived, and not begun.
    Waiting,
    /// These lines or words are left.
    Moving(Vec<u32>),
    /// An atomic that has read and not yet written. It holds the target's atomic unit.
    Between { old: u64 },
    /// The answer is on its way.
    Answered(Outcome),
    /// It is complete, and visible from then on.
    Done { outcome: Outcome, visible: Picos },
}

#[derive(Debug)]
pub(super) struct Op {
    pub(super) ticket: Option<Ticket>,
    pub(super) verb: Verb,
    pub(super) stage: Stage,
    /// When the responder has finished it.
    pub(super) ready: Picos,
    /// The number of losses of its packets.
    pub(super) losses: u32,
    /// The queue pair to the node that carries it.
    pub(super) connection: u16,
}

impl Op {
    pub(super) fn may_pass_reads(&self) -> bool {
        matches!(self.verb, Verb::Write { .. }) || self.verb.is_message()
    }

    /// Returns its costs at the two NICs.
    pub(super) fn service(&self, profile: &NicProfile) -> Service {
        match &self.verb {
            Verb::Read { .. } => profile.read,
            Verb::Write { .. } => profile.write,
            Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => profile.atomic,
            Verb::Send { .. } | Verb::Call { .. } => profile.message,
        }
    }

    /// Returns whether its payload travels within the request.
    pub(super) fn is_inline(&self, profile: &NicProfile) -> bool {
        matches!(&self.verb, Verb::Write { from, .. } if size_of_val::<[u64]>(from) <= profile.inline_bytes)
    }

    /// Returns the bytes of payload in the request, and in the response.
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
    /// The incarnation that the queue belongs to, since its first use or the last reconnection.
    pub(super) life: Option<Incarnation>,
    /// Whether it is broken: the incarnation is gone, or unreachable.
    pub(super) cut: bool,
    pub(super) ops: VecDeque<Op>,
    /// The number of the first of them.
    first: u32,
    /// The failure of an unsignaled operation, until it is reported.
    pub(super) broken: Option<VerbError>,
    /// Whether its next message waits for room at the target.
    pub(super) blocked: bool,
    pub(super) next_connection: u16,
    /// The session that carries its messages, if datagrams do, from the first one on.
    pub(super) session: Option<Box<Session>>,
}

impl Queue {
    /// Adds an operation, and returns its identifier.
    pub(super) fn push(&mut self, op: Op, endpoint: u32, queue: u16) -> OpId {
        let number = self.first.wrapping_add(self.ops.len() as u32);
        self.ops.push_back(op);
        OpId { endpoint, queue, number }
    }

    /// Returns the position of an operation that is not reported yet.
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

    /// Takes the first operation, if it is complete.
    pub(super) fn pop_done(&mut self) -> Option<(Op, Outcome, Picos)> {
        let Stage::Done { outcome, visible } = self.ops.front()?.stage else { return None };
        let op = self.ops.pop_front()?;
        self.first = self.first.wrapping_add(1);
        Some((op, outcome, visible))
    }

    /// Stores a failure that is not reported, or clears it when one is.
    pub(super) fn note(&mut self, signaled: bool, outcome: &Outcome) {
        if let Err(error) = outcome {
            self.broken = (!signaled).then_some(*error);
        }
    }
}
