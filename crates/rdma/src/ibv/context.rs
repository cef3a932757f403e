//! What the queues of an endpoint share, and the numbers of their requests.

use std::sync::Arc;

use drtm_htm::Engine;

use crate::tcp::TcpPort;

use super::{
    Posted, VerbsError,
    control::Control,
    mouth::Mouth,
    slots::Slots,
    station::Station,
    sys::{CompletionQueue, Device, Requests, Slab},
};

/// What an endpoint's queues share.
pub(super) struct QueueContext<'p, E: Engine> {
    pub(super) station: &'p Station<E>,
    /// The device, as this endpoint has opened it.
    pub(super) device: &'p Arc<Device>,
    pub(super) control: &'p mut Control,
    pub(super) tcp: &'p mut TcpPort<E>,
    pub(super) queue: &'p Arc<CompletionQueue>,
    pub(super) slab: &'p mut Slab,
    pub(super) slots: &'p mut Slots,
    pub(super) requests: &'p mut Requests,
    pub(super) posted: &'p mut Posted,
    /// For messages, if they go by datagrams.
    pub(super) mouth: &'p mut Option<Mouth>,
    /// Memory for replies: a slab, its slots, and what each has.
    pub(super) replies: &'p Slab,
    pub(super) free_replies: &'p mut Vec<u32>,
    pub(super) room: &'p mut Room,
}

/// How many queue pairs there are, and for how many the completion queue has room.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) pairs: usize,
    pub(super) most: usize,
    /// Other entries: those of datagrams.
    pub(super) others: usize,
}

impl Room {
    /// Entries of a completion queue with room for so many pairs.
    pub(super) fn entries(most: usize, depth: usize, calls: usize) -> usize {
        // A pair that has failed leaves what it had, and its successor may fail, too.
        2 * (most * depth + calls)
    }

    pub(super) fn take_one<E: Engine>(
        &mut self,
        station: &Station<E>,
        queue: &CompletionQueue,
    ) -> Result<(), VerbsError> {
        if self.pairs == self.most {
            let (depth, calls) = (station.capabilities.queue_depth, station.capabilities.max_calls);
            queue.resize(Self::entries(2 * self.most, depth, calls) + self.others)?;
            self.most *= 2;
        }
        self.pairs += 1;
        Ok(())
    }
}

/// The number of a completion: which queue, in which of its connections, and which request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) queue: u16,
    pub(super) connection: u16,
    pub(super) request: u32,
}

impl Number {
    pub(super) fn encode(self) -> u64 {
        u64::from(self.queue) << 48 | u64::from(self.connection) << 32 | u64::from(self.request)
    }

    pub(super) fn decode(id: u64) -> Self {
        Self { queue: (id >> 48) as u16, connection: (id >> 32) as u16, request: id as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_what_they_were() {
        for number in [
            Number { queue: 0, connection: 0, request: 0 },
            Number { queue: 1023, connection: u16::MAX, request: 7 },
            Number { queue: 5, connection: 9, request: u32::MAX },
        ] {
            assert_eq!(Number::decode(number.encode()), number);
        }
    }
}
