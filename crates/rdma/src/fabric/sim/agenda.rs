//! The future events, in order, and the trace of past ones.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{clock::Picos, session::Pair};
use crate::{Incarnation, NodeId};

/// Identifies an operation of a queue of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpId {
    pub(super) endpoint: u32,
    pub(super) queue: u16,
    /// The number of earlier operations of the queue, wrapping.
    pub(super) number: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The requesting NIC takes an operation.
    Issue(OpId),
    /// The operation arrives at the responding NIC.
    Arrive(OpId),
    /// The next part of it is moved.
    Step(OpId),
    /// The response is sent again.
    Answer(OpId),
    /// The response arrives.
    Complete(OpId),
    /// A NIC takes a reply or a datagram.
    ParcelOut(u32),
    ParcelIn(u32),
    /// A worker's turn, unless another one was planned since.
    Turn {
        endpoint: u32,
        generation: u32,
    },
    /// The other nodes learn that an incarnation is gone.
    Announce {
        node: NodeId,
        incarnation: Incarnation,
    },
    /// An endpoint looks for losses of a session.
    Keep {
        pair: Pair,
        session: u32,
    },
    /// A planned fault.
    Fault(u32),
}

impl Event {
    /// Returns its distinguishing parts, as one number.
    fn digest(self) -> u64 {
        let op = |kind: u64, op: OpId| {
            kind << 56 | u64::from(op.queue) << 32 ^ u64::from(op.endpoint) << 40 ^ u64::from(op.number)
        };
        match self {
            Self::Issue(id) => op(1, id),
            Self::Arrive(id) => op(2, id),
            Self::Step(id) => op(3, id),
            Self::Answer(id) => op(4, id),
            Self::Complete(id) => op(5, id),
            Self::ParcelOut(slot) => 6 << 56 | u64::from(slot),
            Self::ParcelIn(slot) => 7 << 56 | u64::from(slot),
            Self::Turn { endpoint, .. } => 8 << 56 | u64::from(endpoint),
            Self::Announce { node, incarnation } => 9 << 56 | u64::from(node.0) << 32 | u64::from(incarnation.0),
            Self::Keep { pair: (endpoint, node), .. } => 10 << 56 | u64::from(endpoint) << 16 | u64::from(node.0),
            Self::Fault(index) => 11 << 56 | u64::from(index),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    at: Picos,
    /// The order of planning, which orders events of one moment.
    number: u64,
    event: Event,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The future events.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<Entry>>,
    planned: u64,
}

impl Agenda {
    pub(super) fn plan(&mut self, at: Picos, event: Event) {
        self.planned += 1;
        self.heap.push(Reverse(Entry { at, number: self.planned, event }));
    }

    /// Returns when the next event happens.
    pub(super) fn next(&self) -> Option<Picos> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// Takes the next event, if it is not after `limit`.
    pub(super) fn take(&mut self, limit: Picos) -> Option<(Picos, Event)> {
        if self.next()? > limit {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}

/// A summary of a simulated cluster's events: two runs with the same trace were the same.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{NicProfile, NodeId, Phase, Sim, SimConfig};
///
/// let traced = |seed| {
///     let sim = Sim::<NoHtm>::new(2, SimConfig::new(&NicProfile::CONNECTX_4).seed(seed));
///     sim.spawn(NodeId(0), |worker| {
///         let verbs = worker.endpoint().during(Phase::Other);
///         worker.spawn(async move { verbs.send(NodeId(1), b"hello").await.expect("it is there") }).expect("it runs");
///     })
///     .expect("a node");
///     sim.run();
///     sim.trace()
/// };
/// assert_eq!(traced(1), traced(1));
/// assert_ne!(traced(1), traced(2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Trace {
    /// The hash of every event, its time, and the results of operations.
    pub hash: u64,
    /// The number of events.
    pub events: u64,
}

impl Default for Trace {
    fn default() -> Self {
        Self { hash: 0xCBF2_9CE4_8422_2325, events: 0 }
    }
}

impl Trace {
    pub(super) fn event(&mut self, at: Picos, event: Event) {
        self.events += 1;
        self.mix(at);
        self.mix(event.digest());
    }

    /// Adds an observed value.
    #[inline]
    pub(super) fn mix(&mut self, value: u64) {
        self.hash = (self.hash.rotate_left(23) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    pub(super) fn mix_words(&mut self, words: &[u64]) {
        for word in words {
            self.mix(*word);
        }
    }

    pub(super) fn mix_bytes(&mut self, bytes: &[u8]) {
        self.mix(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_as_they_were_planned() {
        let mut agenda = Agenda::default();
        for (at, slot) in [(5, 0), (3, 1), (5, 2), (3, 3), (1, 4)] {
            agenda.plan(at, Event::ParcelOut(slot));
        }
        assert_eq!(agenda.next(), Some(1));
        let mut order = Vec::new();
        while let Some((_, Event::ParcelOut(slot))) = agenda.take(4) {
            order.push(slot);
        }
        assert_eq!(order, [4, 1, 3], "not beyond the limit");
        assert_eq!(agenda.take(5), Some((5, Event::ParcelOut(0))));
        assert_eq!(agenda.take(5), Some((5, Event::ParcelOut(2))));
        assert_eq!(agenda.take(u64::MAX), None);
    }

    #[test]
    fn a_trace_tells_orders_apart() {
        let traced = |events: [u32; 2]| {
            let mut trace = Trace::default();
            for slot in events {
                trace.event(1, Event::ParcelIn(slot));
            }
            trace
        };
        assert_ne!(traced([1, 2]), traced([2, 1]));
    }
}
