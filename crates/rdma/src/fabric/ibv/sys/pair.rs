//! Queue pairs, and receives that they share.

use std::{
    ffi::{c_int, c_uint},
    ptr::null_mut,
    sync::Arc,
};

use rdma_sys::{
    ibv_access_flags as access, ibv_create_qp, ibv_create_srq, ibv_destroy_qp, ibv_destroy_srq, ibv_modify_qp,
    ibv_post_recv, ibv_post_send, ibv_post_srq_recv, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask as mask, ibv_qp_init_attr,
    ibv_qp_state, ibv_qp_type, ibv_recv_wr, ibv_srq, ibv_srq_init_attr,
};

use crate::fabric::ibv::VerbsError;

use super::{
    address::Exit, check, completions::CompletionQueue, device::Device, memory::Span, requests::Requests, system,
};

/// Receives that many queue pairs share.
pub(in crate::fabric::ibv) struct SharedReceives {
    raw: *mut ibv_srq,
    _device: Arc<Device>,
}

// SAFETY: see the third invariant of `sys`.
unsafe impl Send for SharedReceives {}
// SAFETY: see the third invariant of `sys`.
unsafe impl Sync for SharedReceives {}

impl SharedReceives {
    pub(in crate::fabric::ibv) fn new(device: &Arc<Device>, most: usize) -> Result<Self, VerbsError> {
        // SAFETY: numbers and null pointers, for which zeros are values.
        let mut shape: ibv_srq_init_attr = unsafe { std::mem::zeroed() };
        (shape.attr.max_wr, shape.attr.max_sge) = (most as u32, 1);
        // SAFETY: the domain is the device's, and the shape is complete.
        let raw = unsafe { ibv_create_srq(device.domain, &mut shape) };
        if raw.is_null() {
            return Err(system("make a shared receive queue"));
        }
        Ok(Self { raw, _device: Arc::clone(device) })
    }

    /// Gives memory for one message.
    pub(in crate::fabric::ibv) fn post(&self, id: u64, into: Span) -> Result<(), VerbsError> {
        let mut element = into.element();
        let mut request = ibv_recv_wr { wr_id: id, next: null_mut(), sg_list: &mut element, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: the handle is valid, and the request is read before this returns.
        check("post a receive", unsafe { ibv_post_srq_recv(self.raw, &mut request, &mut bad) })
    }
}

impl Drop for SharedReceives {
    fn drop(&mut self) {
        // SAFETY: made by the constructor and freed once; queue pairs hold it.
        let code = unsafe { ibv_destroy_srq(self.raw) };
        debug_assert_eq!(code, 0, "a shared queue is freed after its queue pairs");
    }
}

/// How a queue pair is made.
pub(in crate::fabric::ibv) struct Shape<'a> {
    pub(in crate::fabric::ibv) sends: &'a Arc<CompletionQueue>,
    pub(in crate::fabric::ibv) receives: &'a Arc<CompletionQueue>,
    pub(in crate::fabric::ibv) shared: Option<&'a Arc<SharedReceives>>,
    pub(in crate::fabric::ibv) most_sends: usize,
    pub(in crate::fabric::ibv) most_receives: usize,
    pub(in crate::fabric::ibv) inline: usize,
    /// Whether it is for datagrams, and not for a connection.
    pub(in crate::fabric::ibv) datagrams: bool,
}

/// One end of a connection, as the other needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fabric::ibv) struct End {
    pub(in crate::fabric::ibv) pair: u32,
    pub(in crate::fabric::ibv) first_packet: u32,
    pub(in crate::fabric::ibv) gid: [u8; 16],
    pub(in crate::fabric::ibv) lid: u16,
    pub(in crate::fabric::ibv) mtu: u8,
    pub(in crate::fabric::ibv) reads_in: u8,
    pub(in crate::fabric::ibv) reads_out: u8,
}

/// A queue pair: of a reliable connection, or for datagrams.
pub(in crate::fabric::ibv) struct QueuePair {
    raw: *mut ibv_qp,
    _parts: (Arc<CompletionQueue>, Arc<CompletionQueue>, Option<Arc<SharedReceives>>),
    _device: Arc<Device>,
}

// SAFETY: see the third invariant of `sys`.
unsafe impl Send for QueuePair {}

impl QueuePair {
    pub(in crate::fabric::ibv) fn new(device: &Arc<Device>, shape: &Shape<'_>) -> Result<Self, VerbsError> {
        // SAFETY: numbers and null pointers, for which zeros are values.
        let mut wanted: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        (wanted.send_cq, wanted.recv_cq) = (shape.sends.raw, shape.receives.raw);
        wanted.srq = shape.shared.map_or(null_mut(), |shared| shared.raw);
        wanted.qp_type = if shape.datagrams { ibv_qp_type::IBV_QPT_UD } else { ibv_qp_type::IBV_QPT_RC };
        wanted.cap.max_send_wr = shape.most_sends as u32;
        wanted.cap.max_recv_wr = shape.most_receives as u32;
        (wanted.cap.max_send_sge, wanted.cap.max_recv_sge) = (1, 1);
        wanted.cap.max_inline_data = shape.inline as u32;
        // SAFETY: the domain is the device's, what the shape names is kept, and it is complete.
        let raw = unsafe { ibv_create_qp(device.domain, &mut wanted) };
        if raw.is_null() {
            return Err(system("make a queue pair"));
        }
        let parts = (Arc::clone(shape.sends), Arc::clone(shape.receives), shape.shared.cloned());
        Ok(Self { raw, _parts: parts, _device: Arc::clone(device) })
    }

    pub(in crate::fabric::ibv) fn number(&self) -> u32 {
        // SAFETY: the handle is valid, and its number never changes.
        unsafe { (*self.raw).qp_num }
    }

    /// Connects it to its peer, from reset.
    pub(in crate::fabric::ibv) fn connect(&self, exit: Exit, mine: &End, peer: &End) -> Result<(), VerbsError> {
        /// An unanswered packet is sent again after 4.096 us, doubled so often.
        const TIMEOUT: u8 = 16;
        /// So often. (One more is for ever, where software is the NIC.)
        const TRIES: u8 = 6;
        /// And where the peer has no memory for a message, for ever,
        const FOR_EVER: u8 = 7;
        /// at intervals of 0.08 ms.
        const NOT_READY: u8 = 6;
        // SAFETY: numbers, for which zeros are values.
        let mut wanted: ibv_qp_attr = unsafe { std::mem::zeroed() };
        wanted.qp_state = ibv_qp_state::IBV_QPS_INIT;
        wanted.port_num = exit.port;
        let all = access::IBV_ACCESS_REMOTE_READ | access::IBV_ACCESS_REMOTE_WRITE | access::IBV_ACCESS_REMOTE_ATOMIC;
        wanted.qp_access_flags = all.0;
        let init = mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
        self.modify("set a queue pair up", &mut wanted, init)?;

        wanted.qp_state = ibv_qp_state::IBV_QPS_RTR;
        wanted.path_mtu = c_uint::from(mine.mtu.min(peer.mtu));
        wanted.dest_qp_num = peer.pair;
        wanted.rq_psn = peer.first_packet;
        wanted.max_dest_rd_atomic = mine.reads_in.min(peer.reads_out);
        wanted.min_rnr_timer = NOT_READY;
        exit.lead(&mut wanted.ah_attr, peer.gid, peer.lid);
        let receives = mask::IBV_QP_STATE
            | mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | mask::IBV_QP_MIN_RNR_TIMER;
        self.modify("let a queue pair receive", &mut wanted, receives)?;

        wanted.qp_state = ibv_qp_state::IBV_QPS_RTS;
        (wanted.timeout, wanted.retry_cnt, wanted.rnr_retry) = (TIMEOUT, TRIES, FOR_EVER);
        wanted.sq_psn = mine.first_packet;
        wanted.max_rd_atomic = mine.reads_out.min(peer.reads_in);
        let sends = mask::IBV_QP_STATE
            | mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_SQ_PSN
            | mask::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify("let a queue pair send", &mut wanted, sends)
    }

    /// Opens one for datagrams, from reset. It takes those with this key.
    pub(in crate::fabric::ibv) fn open(&self, exit: Exit, key: u32) -> Result<(), VerbsError> {
        // SAFETY: numbers, for which zeros are values.
        let mut wanted: ibv_qp_attr = unsafe { std::mem::zeroed() };
        wanted.qp_state = ibv_qp_state::IBV_QPS_INIT;
        (wanted.port_num, wanted.qkey) = (exit.port, key);
        let init = mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_QKEY;
        self.modify("set a queue pair up", &mut wanted, init)?;
        wanted.qp_state = ibv_qp_state::IBV_QPS_RTR;
        self.modify("let a queue pair receive", &mut wanted, mask::IBV_QP_STATE)?;
        wanted.qp_state = ibv_qp_state::IBV_QPS_RTS;
        self.modify("let a queue pair send", &mut wanted, mask::IBV_QP_STATE | mask::IBV_QP_SQ_PSN)
    }

    /// Ends what is under way: memory that was given for messages comes back with an error.
    pub(in crate::fabric::ibv) fn disable(&self) {
        // SAFETY: numbers, for which zeros are values.
        let mut wanted: ibv_qp_attr = unsafe { std::mem::zeroed() };
        wanted.qp_state = ibv_qp_state::IBV_QPS_ERR;
        // It is about to be freed, which ends everything in any case.
        let _ = self.modify("end a queue pair", &mut wanted, mask::IBV_QP_STATE);
    }

    fn modify(&self, what: &'static str, wanted: &mut ibv_qp_attr, which: mask) -> Result<(), VerbsError> {
        // SAFETY: the handle is valid, and what is wanted is complete.
        check(what, unsafe { ibv_modify_qp(self.raw, wanted, which.0 as c_int) })
    }

    /// Posts a list, by one doorbell, and empties it. The last request is signaled.
    #[inline]
    pub(in crate::fabric::ibv) fn post(&mut self, list: &mut Requests) -> Result<(), VerbsError> {
        list.link();
        let Some(first) = list.requests.first_mut() else { return Ok(()) };
        let mut bad = null_mut();
        // SAFETY: the handle is valid; the list is linked within itself, ends, and is read before
        // this returns. What it names the NIC checks, except what is sent inline, which is the
        // processor's to read: spans are of slabs, whose memory the caller has.
        let code = unsafe { ibv_post_send(self.raw, first, &mut bad) };
        list.clear();
        check("post requests", code)
    }

    /// Gives memory for one message.
    pub(in crate::fabric::ibv) fn post_receive(&mut self, id: u64, into: Span) -> Result<(), VerbsError> {
        let mut element = into.element();
        let mut request = ibv_recv_wr { wr_id: id, next: null_mut(), sg_list: &mut element, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: the handle is valid, and the request is read before this returns.
        check("post a receive", unsafe { ibv_post_recv(self.raw, &mut request, &mut bad) })
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made by the constructor, and freed once.
        let code = unsafe { ibv_destroy_qp(self.raw) };
        debug_assert_eq!(code, 0, "a queue pair is freed once");
    }
}
