//! Completions, and sleeping until there are some.

use std::{ffi::c_int, mem::MaybeUninit, os::fd::BorrowedFd, ptr::null_mut, sync::Arc};

use rdma_sys::{
    ibv_ack_cq_events, ibv_comp_channel, ibv_cq, ibv_create_comp_channel, ibv_create_cq, ibv_destroy_comp_channel,
    ibv_destroy_cq, ibv_get_cq_event, ibv_poll_cq, ibv_req_notify_cq, ibv_resize_cq, ibv_wc, ibv_wc_opcode,
    ibv_wc_status,
};

use crate::fabric::ibv::VerbsError;

use super::{check, device::Device, system};

/// Completions that are taken at a time.
const TAKEN: usize = 16;

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub(in crate::fabric::ibv) struct Completion {
    pub(in crate::fabric::ibv) id: u64,
    /// The library's code, where it is no success.
    pub(in crate::fabric::ibv) failure: Option<u32>,
    /// Whether something was received, and how much.
    pub(in crate::fabric::ibv) received: Option<usize>,
    /// The queue pair's number.
    pub(in crate::fabric::ibv) pair: u32,
    /// Of what came by a datagram: the number of its sender's.
    pub(in crate::fabric::ibv) from: u32,
}

/// A completion queue, with a channel to sleep on if that is wanted.
pub(in crate::fabric::ibv) struct CompletionQueue {
    pub(super) raw: *mut ibv_cq,
    channel: *mut ibv_comp_channel,
    _device: Arc<Device>,
}

// SAFETY: see the third invariant of `sys`.
unsafe impl Send for CompletionQueue {}
// SAFETY: see the third invariant of `sys`.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    pub(in crate::fabric::ibv) fn new(device: &Arc<Device>, entries: usize, wakes: bool) -> Result<Self, VerbsError> {
        let mut channel = null_mut();
        if wakes {
            // SAFETY: the device is open.
            channel = unsafe { ibv_create_comp_channel(device.context) };
            if channel.is_null() {
                return Err(system("make a completion channel"));
            }
        }
        // SAFETY: the device is open, and the channel its, if there is one.
        let raw = unsafe { ibv_create_cq(device.context, entries as c_int, null_mut(), channel, 0) };
        let error = system("make a completion queue");
        let queue = Self { raw, channel, _device: Arc::clone(device) };
        if raw.is_null() {
            return Err(error);
        }
        if let Some(channel) = queue.channel() {
            let nonblocking = rustix::io::ioctl_fionbio(channel, true);
            nonblocking.map_err(|errno| VerbsError::System { what: "set a channel up", source: errno.into() })?;
        }
        Ok(queue)
    }

    /// Makes room for more.
    pub(in crate::fabric::ibv) fn resize(&self, entries: usize) -> Result<(), VerbsError> {
        // SAFETY: the handle is valid.
        check("make a completion queue larger", unsafe { ibv_resize_cq(self.raw, entries as c_int) })
    }

    /// Returns the descriptor that is readable after an event.
    pub(in crate::fabric::ibv) fn channel(&self) -> Option<BorrowedFd<'_>> {
        if self.channel.is_null() {
            return None;
        }
        // SAFETY: the handle is valid.
        let descriptor = unsafe { (*self.channel).fd };
        // SAFETY: the descriptor is the channel's, which lives as long as `self`.
        Some(unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// Asks for an event at the next completion.
    pub(in crate::fabric::ibv) fn arm(&self) {
        // SAFETY: the handle is valid.
        let code = unsafe { ibv_req_notify_cq(self.raw, 0) };
        debug_assert_eq!(code, 0, "a queue with a channel can be armed");
    }

    /// Takes the events that there are.
    pub(in crate::fabric::ibv) fn take_events(&self) {
        if self.channel.is_null() {
            return;
        }
        let (mut queue, mut context) = (null_mut(), null_mut());
        // SAFETY: the handle is valid, does not block, and what it gives is written.
        while unsafe { ibv_get_cq_event(self.channel, &mut queue, &mut context) } == 0 {
            // SAFETY: only this queue uses its channel, so the event is its.
            unsafe { ibv_ack_cq_events(self.raw, 1) };
        }
    }

    /// Takes completions, as many as there are at the moment up to a few. Tells whether there may
    /// be more.
    #[inline]
    pub(in crate::fabric::ibv) fn take(&self, into: &mut Vec<Completion>) -> bool {
        let mut taken = [const { MaybeUninit::<ibv_wc>::uninit() }; TAKEN];
        // SAFETY: the handle is valid, and there is room for as many.
        let count = unsafe { ibv_poll_cq(self.raw, TAKEN as c_int, taken.as_mut_ptr().cast()) };
        let count = usize::try_from(count).unwrap_or(0);
        for one in &taken[..count] {
            // SAFETY: so many were written.
            let one = unsafe { one.assume_init_ref() };
            let success = one.status == ibv_wc_status::IBV_WC_SUCCESS;
            let received = success && one.opcode & ibv_wc_opcode::IBV_WC_RECV != 0;
            into.push(Completion {
                id: one.wr_id,
                failure: (!success).then_some(one.status),
                received: received.then_some(one.byte_len as usize),
                pair: one.qp_num,
                from: one.src_qp,
            });
        }
        count == TAKEN
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: made by the constructor and freed once; queue pairs hold it.
            let code = unsafe { ibv_destroy_cq(self.raw) };
            debug_assert_eq!(code, 0, "a completion queue is freed after its queue pairs");
        }
        if !self.channel.is_null() {
            // SAFETY: made by the constructor and freed once, after its only queue.
            let code = unsafe { ibv_destroy_comp_channel(self.channel) };
            debug_assert_eq!(code, 0, "a channel is freed after its queue");
        }
    }
}
