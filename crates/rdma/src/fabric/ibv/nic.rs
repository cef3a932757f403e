//! What the queues of an endpoint share.

use std::sync::Arc;

use drtm_htm::Engine;

use crate::fabric::tcp::TcpPort;

use super::{
    Posted, VerbsError,
    adapter::Adapter,
    control::Control,
    datagram_pair::DatagramPair,
    slots::Slots,
    sys::{CompletionQueue, Device, Requests, Slab},
};

/// An endpoint's access to its NIC, which its queues share.
pub(super) struct Nic<E: Engine> {
    /// For messages, if they go by datagrams. First, so that the pair goes before what it uses.
    pub(super) datagrams: Option<DatagramPair>,
    pub(super) tcp: TcpPort<E>,
    pub(super) control: Control,
    pub(super) adapter: Arc<Adapter<E>>,
    /// The device, as this endpoint has opened it.
    pub(super) device: Arc<Device>,
    pub(super) slab: Slab,
    pub(super) slots: Slots,
    pub(super) requests: Requests,
    pub(super) posted: Posted,
    /// Memory for replies: a slab, and its free slots.
    pub(super) replies: Slab,
    pub(super) free_replies: Vec<u32>,
    pub(super) completed: Arc<CompletionQueue>,
    pub(super) room: Room,
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
    /// Returns the entries of a completion queue with room for so many pairs.
    pub(super) fn entries(most: usize, depth: usize, calls: usize) -> usize {
        // A pair that has failed leaves what it had, and its successor may fail, too.
        2 * (most * depth + calls)
    }

    pub(super) fn take_one<E: Engine>(
        &mut self,
        adapter: &Adapter<E>,
        queue: &CompletionQueue,
    ) -> Result<(), VerbsError> {
        if self.pairs == self.most {
            let (depth, calls) = (adapter.capabilities.queue_depth, adapter.capabilities.max_calls);
            queue.resize(Self::entries(2 * self.most, depth, calls) + self.others)?;
            self.most *= 2;
        }
        self.pairs += 1;
        Ok(())
    }
}
