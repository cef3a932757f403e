//! Lists of requests.

use std::ptr::null_mut;

use rdma_sys::{atomic_t, ibv_send_flags as flags, ibv_send_wr, ibv_sge, ibv_wr_opcode, rdma_t, ud_t};

use super::{address::Address, memory::Span};

/// What a request is to do.
#[derive(Clone, Copy, Debug)]
pub(in crate::fabric::ibv) enum Action {
    Read { address: u64, key: u32 },
    Write { address: u64, key: u32 },
    CompareSwap { address: u64, key: u32, expected: u64, new: u64 },
    FetchAdd { address: u64, key: u32, add: u64 },
    Send,
}

/// Requests to be posted together.
#[derive(Default)]
pub(in crate::fabric::ibv) struct Requests {
    pub(super) requests: Vec<ibv_send_wr>,
    elements: Vec<ibv_sge>,
}

// SAFETY: the pointers in it point into it, and are set again before each use.
unsafe impl Send for Requests {}

impl Requests {
    pub(in crate::fabric::ibv) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(in crate::fabric::ibv) fn clear(&mut self) {
        self.requests.clear();
        self.elements.clear();
    }

    /// Adds one, by the number that its completion has. Inline, its bytes are read when it is
    /// posted.
    #[inline]
    pub(in crate::fabric::ibv) fn push(&mut self, id: u64, action: Action, memory: Span, inline: bool) {
        // SAFETY: numbers, null pointers, and unions of such, for which zeros are values.
        let mut request: ibv_send_wr = unsafe { std::mem::zeroed() };
        request.wr_id = id;
        request.num_sge = 1;
        request.opcode = match action {
            Action::Read { address, key } => {
                request.wr.rdma = rdma_t { remote_addr: address, rkey: key };
                ibv_wr_opcode::IBV_WR_RDMA_READ
            }
            Action::Write { address, key } => {
                request.wr.rdma = rdma_t { remote_addr: address, rkey: key };
                ibv_wr_opcode::IBV_WR_RDMA_WRITE
            }
            Action::CompareSwap { address, key, expected, new } => {
                request.wr.atomic = atomic_t { remote_addr: address, compare_add: expected, swap: new, rkey: key };
                ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP
            }
            Action::FetchAdd { address, key, add } => {
                request.wr.atomic = atomic_t { remote_addr: address, compare_add: add, swap: 0, rkey: key };
                ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD
            }
            Action::Send => ibv_wr_opcode::IBV_WR_SEND,
        };
        if inline {
            request.send_flags = flags::IBV_SEND_INLINE.0;
        }
        self.requests.push(request);
        self.elements.push(memory.element());
    }

    /// Makes the last a datagram, to a queue pair at an address, by its key. The address must be
    /// kept until the request is over.
    #[inline]
    pub(in crate::fabric::ibv) fn direct_last(&mut self, to: &Address, pair: u32, key: u32) {
        if let Some(last) = self.requests.last_mut() {
            last.wr.ud = ud_t { ah: to.raw, remote_qpn: pair, remote_qkey: key };
        }
    }

    /// Requests a completion of the last one.
    pub(in crate::fabric::ibv) fn signal_last(&mut self) {
        if let Some(last) = self.requests.last_mut() {
            last.send_flags |= flags::IBV_SEND_SIGNALED.0;
        }
    }

    /// Returns how many carry their bytes.
    pub(in crate::fabric::ibv) fn inlined(&self) -> u64 {
        self.requests.iter().filter(|request| request.send_flags & flags::IBV_SEND_INLINE.0 != 0).count() as u64
    }

    /// Makes it one list.
    pub(super) fn link(&mut self) {
        for (request, element) in self.requests.iter_mut().zip(&mut self.elements) {
            request.sg_list = element;
        }
        let mut next = null_mut();
        for request in self.requests.iter_mut().rev() {
            request.next = next;
            next = request;
        }
    }
}
