//! Owned handles of libibverbs: everything of this fabric that is unsafe.
//!
//! Three invariants carry all of it.
//!
//! - *A handle is valid as long as its value.* Each is made by its constructor, which checks for
//!   null, and freed by `Drop` alone. What the library wants to outlive it, it holds by an `Arc`.
//! - *A NIC touches registered memory only*, whatever a request says: it checks each access against
//!   the protection domain. So a wrong span is an error completion. Memory is freed after its
//!   registration is ended, never before.
//! - *The library's objects may be used by any thread*, as its manual says.

use std::{
    any::Any,
    ffi::{CStr, c_int, c_uint},
    fmt, io,
    mem::MaybeUninit,
    os::fd::BorrowedFd,
    ptr::{null_mut, without_provenance_mut},
    sync::Arc,
};

use rdma_sys::{
    ibv_access_flags as access, ibv_ack_cq_events, ibv_alloc_pd, ibv_atomic_cap, ibv_close_device, ibv_comp_channel,
    ibv_context, ibv_cq, ibv_create_comp_channel, ibv_create_cq, ibv_create_qp, ibv_create_srq, ibv_dealloc_pd,
    ibv_dereg_mr, ibv_destroy_comp_channel, ibv_destroy_cq, ibv_destroy_qp, ibv_destroy_srq, ibv_device_attr,
    ibv_free_device_list, ibv_get_cq_event, ibv_get_device_list, ibv_get_device_name, ibv_gid, ibv_modify_qp, ibv_mr,
    ibv_open_device, ibv_pd, ibv_poll_cq, ibv_port_attr, ibv_port_state, ibv_post_recv, ibv_post_send,
    ibv_post_srq_recv, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask as mask, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type,
    ibv_query_device, ibv_query_gid, ibv_recv_wr, ibv_reg_mr, ibv_reg_mr_iova, ibv_req_notify_cq, ibv_resize_cq,
    ibv_send_flags as flags, ibv_send_wr, ibv_sge, ibv_srq, ibv_srq_init_attr, ibv_wc, ibv_wc_opcode, ibv_wc_status,
    ibv_wr_opcode, rdma_t,
};

use crate::{Atomicity, Region};

use super::VerbsError;

/// Completions that are taken at a time.
const TAKEN: usize = 16;

/// What the link layer of a port is called when it is Ethernet.
const ETHERNET: u8 = 2;

fn system(what: &'static str) -> VerbsError {
    VerbsError::System { what, source: io::Error::last_os_error() }
}

/// Calls that give an error number, or its negative.
fn check(what: &'static str, code: c_int) -> Result<(), VerbsError> {
    match code {
        0 => Ok(()),
        // Some give -1, and put the number elsewhere.
        -1 => Err(system(what)),
        code => Err(VerbsError::System { what, source: io::Error::from_raw_os_error(code.abs()) }),
    }
}

/// A device that is open, with a protection domain.
pub(super) struct Device {
    context: *mut ibv_context,
    domain: *mut ibv_pd,
}

// SAFETY: see the module's third invariant.
unsafe impl Send for Device {}
// SAFETY: see the module's third invariant.
unsafe impl Sync for Device {}

/// What a device can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abilities {
    pub(super) atomicity: Atomicity,
    /// READs and atomics of a peer that a queue pair answers at a time, and of its own that are
    /// under way.
    pub(super) reads_in: u8,
    pub(super) reads_out: u8,
}

/// What a port is.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortState {
    pub(super) active: bool,
    pub(super) ethernet: bool,
    pub(super) lid: u16,
    /// The library's code of the path's largest packets.
    pub(super) mtu: u8,
    gids: c_int,
}

impl Device {
    /// Opens a device, by its name or the first that there is.
    pub(super) fn open(name: Option<&str>) -> Result<Self, VerbsError> {
        let mut count = 0;
        // SAFETY: the count is written.
        let list = unsafe { ibv_get_device_list(&mut count) };
        let mut found = Vec::new();
        let mut opened = None;
        if !list.is_null() {
            for index in 0..count as usize {
                // SAFETY: the list has `count` entries.
                let entry = unsafe { list.add(index) };
                // SAFETY: as above, and the list is not freed yet.
                let device = unsafe { *entry };
                // SAFETY: an entry is a device until the list is freed.
                let text = unsafe { ibv_get_device_name(device) };
                // SAFETY: a device's name is a string that lives as long as it.
                let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
                if opened.is_none() && name.is_none_or(|name| name == text) {
                    // SAFETY: an entry is a device until the list is freed.
                    let context = unsafe { ibv_open_device(device) };
                    opened = Some((context, io::Error::last_os_error()));
                }
                found.push(text);
            }
            // SAFETY: the list was made by the library, and is freed once.
            unsafe { ibv_free_device_list(list) };
        }
        let (context, error) = opened.ok_or(VerbsError::NoDevice { named: name.map(Into::into), found })?;
        if context.is_null() {
            return Err(VerbsError::opening(error));
        }
        // SAFETY: the context is open.
        let domain = unsafe { ibv_alloc_pd(context) };
        let failed = io::Error::last_os_error();
        let device = Self { context, domain };
        if domain.is_null() { Err(VerbsError::opening(failed)) } else { Ok(device) }
    }

    pub(super) fn abilities(&self) -> Result<Abilities, VerbsError> {
        // SAFETY: numbers, for which zeros are values.
        let mut found: ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and what is found is written.
        check("ask the device what it can do", unsafe { ibv_query_device(self.context, &mut found) })?;
        let few = |count: c_int| count.clamp(1, 128) as u8;
        Ok(Abilities {
            atomicity: match found.atomic_cap {
                ibv_atomic_cap::IBV_ATOMIC_HCA => Atomicity::Hca,
                ibv_atomic_cap::IBV_ATOMIC_GLOB => Atomicity::Global,
                _ => Atomicity::None,
            },
            reads_in: few(found.max_qp_rd_atom),
            reads_out: few(found.max_qp_init_rd_atom),
        })
    }

    pub(super) fn port(&self, port: u8) -> Result<PortState, VerbsError> {
        // SAFETY: numbers, for which zeros are values.
        let mut found: ibv_port_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and what is found is written.
        let code = unsafe { rdma_sys::___ibv_query_port(self.context, port, &mut found) };
        check("ask the port how it is", code)?;
        Ok(PortState {
            active: found.state == ibv_port_state::IBV_PORT_ACTIVE,
            ethernet: found.link_layer == ETHERNET,
            lid: found.lid,
            mtu: found.active_mtu as u8,
            gids: found.gid_tbl_len,
        })
    }

    /// An address of a port, unless it is empty.
    pub(super) fn gid(&self, port: u8, index: u8) -> Option<[u8; 16]> {
        let mut found = ibv_gid { raw: [0; 16] };
        // SAFETY: the context is open, and what is found is written.
        let code = unsafe { ibv_query_gid(self.context, port, c_int::from(index), &mut found) };
        // SAFETY: every bit pattern is bytes.
        let raw = unsafe { found.raw };
        (code == 0 && raw != [0; 16]).then_some(raw)
    }

    /// The addresses of a port, by their numbers.
    pub(super) fn gids(&self, port: u8, state: &PortState) -> impl Iterator<Item = (u8, [u8; 16])> {
        let most = u8::try_from(state.gids).unwrap_or(u8::MAX);
        (0..most).filter_map(move |index| Some((index, self.gid(port, index)?)))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if !self.domain.is_null() {
            // SAFETY: made by the constructor and freed once; all that is in it holds the device.
            let code = unsafe { ibv_dealloc_pd(self.domain) };
            debug_assert_eq!(code, 0, "a domain is freed after what is in it");
        }
        // SAFETY: opened by the constructor, and closed once.
        let code = unsafe { ibv_close_device(self.context) };
        debug_assert_eq!(code, 0, "a device is closed after what is in it");
    }
}

/// Memory that the NIC may access.
pub(super) struct Registration {
    raw: *mut ibv_mr,
    _device: Arc<Device>,
    /// Freed after the registration has ended.
    _memory: Box<dyn Any + Send + Sync>,
}

// SAFETY: see the module's third invariant.
unsafe impl Send for Registration {}
// SAFETY: see the module's third invariant.
unsafe impl Sync for Registration {}

impl Registration {
    /// Lets peers access a part of a region, of whole pages, at the addresses that are its offsets.
    pub(super) fn of_region<E: drtm_htm::Engine>(
        device: &Arc<Device>,
        region: &Arc<Region<E>>,
        start: u64,
        bytes: u64,
    ) -> Result<Self, VerbsError> {
        debug_assert!(start + bytes <= region.capacity());
        let all = access::IBV_ACCESS_LOCAL_WRITE
            | access::IBV_ACCESS_REMOTE_READ
            | access::IBV_ACCESS_REMOTE_WRITE
            | access::IBV_ACCESS_REMOTE_ATOMIC;
        let memory = region.address(start / 8).cast_mut().cast();
        // SAFETY: the domain is the device's, and the memory is a part of the reservation, which
        // the region keeps and this value keeps the region. A NIC's access to it is that of another
        // processor, and the owner sees the memory as atomic words only.
        let raw = unsafe { ibv_reg_mr_iova(device.domain, memory, bytes as usize, start, all.0 as c_int) };
        Self::made(device, raw, bytes, Box::new(Arc::clone(region)))
    }

    fn made(
        device: &Arc<Device>,
        raw: *mut ibv_mr,
        bytes: u64,
        memory: Box<dyn Any + Send + Sync>,
    ) -> Result<Self, VerbsError> {
        if raw.is_null() {
            return Err(VerbsError::registering(io::Error::last_os_error(), bytes));
        }
        Ok(Self { raw, _device: Arc::clone(device), _memory: memory })
    }

    /// What a peer shows to access it.
    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: the handle is valid, and its keys never change.
        unsafe { (*self.raw).rkey }
    }

    fn local_key(&self) -> u32 {
        // SAFETY: the handle is valid, and its keys never change.
        unsafe { (*self.raw).lkey }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: made by the constructor, and ended once.
        let code = unsafe { ibv_dereg_mr(self.raw) };
        debug_assert_eq!(code, 0, "a registration ends once");
    }
}

/// Pages of this process, seen by nobody but the NIC and by copies in and out.
struct Pages {
    start: *mut u8,
    layout: std::alloc::Layout,
}

// SAFETY: the memory belongs to no thread.
unsafe impl Send for Pages {}
// SAFETY: it is only copied to and from, where a slab says.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { std::alloc::dealloc(self.start, self.layout) };
    }
}

/// Memory for requests and answers on their way: the NIC's side of an endpoint's buffers.
pub(super) struct Slab {
    start: *mut u8,
    bytes: usize,
    key: u32,
    _registration: Registration,
}

// SAFETY: the memory is the registration's, and belongs to no thread.
unsafe impl Send for Slab {}

impl Slab {
    pub(super) fn new(device: &Arc<Device>, bytes: usize) -> Result<Self, VerbsError> {
        /// What is registered is whole pages.
        const PAGE: usize = 4096;
        let bytes = bytes.max(1).next_multiple_of(PAGE);
        let failed = |_| VerbsError::System { what: "allocate buffers", source: io::ErrorKind::OutOfMemory.into() };
        let layout = std::alloc::Layout::from_size_align(bytes, PAGE).map_err(failed)?;
        // SAFETY: the layout has a size.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        if start.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        let pages = Pages { start, layout };
        let local = access::IBV_ACCESS_LOCAL_WRITE.0 as c_int;
        // SAFETY: the domain is the device's, and the registration keeps the pages.
        let raw = unsafe { ibv_reg_mr(device.domain, start.cast(), bytes, local) };
        let registration = Registration::made(device, raw, bytes as u64, Box::new(pages))?;
        Ok(Self { start, bytes, key: registration.local_key(), _registration: registration })
    }

    /// A part of it, as requests name it.
    pub(super) fn span(&self, at: usize, bytes: usize) -> Span {
        assert!(at + bytes <= self.bytes, "a span is in its slab");
        Span { address: self.start.wrapping_add(at) as u64, bytes: bytes as u32, key: self.key }
    }

    pub(super) fn write<T: Plain>(&mut self, at: usize, from: &[T]) {
        assert!(at + size_of_val(from) <= self.bytes, "a copy is in its slab");
        let to = self.start.wrapping_add(at);
        // SAFETY: in bounds, as just checked, of memory that only this value and the NIC access;
        // plain values are bytes.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().cast(), to, size_of_val(from)) };
    }

    pub(super) fn read<T: Plain>(&self, at: usize, into: &mut [T]) {
        assert!(at + size_of_val(into) <= self.bytes, "a copy is in its slab");
        let from = self.start.wrapping_add(at);
        // SAFETY: in bounds, as just checked, of memory that only this value and the NIC access;
        // any bytes are plain values.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr().cast(), size_of_val(into)) };
    }
}

/// Values of which any bytes are some.
///
/// # Safety
///
/// Every bit pattern is a value, and a value has no bytes that are not set.
pub(super) unsafe trait Plain: Copy {}
// SAFETY: numbers.
unsafe impl Plain for u8 {}
// SAFETY: numbers.
unsafe impl Plain for u64 {}

/// Registered memory that a request names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    address: u64,
    bytes: u32,
    key: u32,
}

impl Span {
    fn element(self) -> ibv_sge {
        ibv_sge { addr: self.address, length: self.bytes, lkey: self.key }
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) id: u64,
    /// The library's code, where it is no success.
    pub(super) failure: Option<u32>,
    /// Whether something was received, and how much.
    pub(super) received: Option<usize>,
    /// The queue pair's number.
    pub(super) pair: u32,
}

/// A completion queue, with a channel to sleep on if that is wanted.
pub(super) struct CompletionQueue {
    raw: *mut ibv_cq,
    channel: *mut ibv_comp_channel,
    _device: Arc<Device>,
}

// SAFETY: see the module's third invariant.
unsafe impl Send for CompletionQueue {}
// SAFETY: see the module's third invariant.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    pub(super) fn new(device: &Arc<Device>, entries: usize, wakes: bool) -> Result<Self, VerbsError> {
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
    pub(super) fn resize(&self, entries: usize) -> Result<(), VerbsError> {
        // SAFETY: the handle is valid.
        check("make a completion queue larger", unsafe { ibv_resize_cq(self.raw, entries as c_int) })
    }

    /// What is ready to be read when there is an event.
    pub(super) fn channel(&self) -> Option<BorrowedFd<'_>> {
        if self.channel.is_null() {
            return None;
        }
        // SAFETY: the handle is valid.
        let descriptor = unsafe { (*self.channel).fd };
        // SAFETY: the descriptor is the channel's, which lives as long as `self`.
        Some(unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// Asks for an event at the next completion.
    pub(super) fn arm(&self) {
        // SAFETY: the handle is valid.
        let code = unsafe { ibv_req_notify_cq(self.raw, 0) };
        debug_assert_eq!(code, 0, "a queue with a channel can be armed");
    }

    /// Takes the events that there are.
    pub(super) fn take_events(&self) {
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
    pub(super) fn take(&self, into: &mut Vec<Completion>) -> bool {
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

/// Receives that many queue pairs share.
pub(super) struct SharedReceives {
    raw: *mut ibv_srq,
    _device: Arc<Device>,
}

// SAFETY: see the module's third invariant.
unsafe impl Send for SharedReceives {}
// SAFETY: see the module's third invariant.
unsafe impl Sync for SharedReceives {}

impl SharedReceives {
    pub(super) fn new(device: &Arc<Device>, most: usize) -> Result<Self, VerbsError> {
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
    pub(super) fn post(&self, id: u64, into: Span) -> Result<(), VerbsError> {
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
pub(super) struct Shape<'a> {
    pub(super) sends: &'a Arc<CompletionQueue>,
    pub(super) receives: &'a Arc<CompletionQueue>,
    pub(super) shared: Option<&'a Arc<SharedReceives>>,
    pub(super) most_sends: usize,
    pub(super) most_receives: usize,
    pub(super) inline: usize,
}

/// One end of a connection, as the other needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) pair: u32,
    pub(super) first_packet: u32,
    pub(super) gid: [u8; 16],
    pub(super) lid: u16,
    pub(super) mtu: u8,
    pub(super) reads_in: u8,
    pub(super) reads_out: u8,
}

/// Where a connection leaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exit {
    pub(super) port: u8,
    pub(super) gid_index: u8,
    /// Whether packets carry addresses, as on Ethernet.
    pub(super) global: bool,
}

/// A reliable connection's queue pair.
pub(super) struct QueuePair {
    raw: *mut ibv_qp,
    _parts: (Arc<CompletionQueue>, Arc<CompletionQueue>, Option<Arc<SharedReceives>>),
    _device: Arc<Device>,
}

// SAFETY: see the module's third invariant.
unsafe impl Send for QueuePair {}

impl QueuePair {
    pub(super) fn new(device: &Arc<Device>, shape: &Shape<'_>) -> Result<Self, VerbsError> {
        // SAFETY: numbers and null pointers, for which zeros are values.
        let mut wanted: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        (wanted.send_cq, wanted.recv_cq) = (shape.sends.raw, shape.receives.raw);
        wanted.srq = shape.shared.map_or(null_mut(), |shared| shared.raw);
        wanted.qp_type = ibv_qp_type::IBV_QPT_RC;
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

    pub(super) fn number(&self) -> u32 {
        // SAFETY: the handle is valid, and its number never changes.
        unsafe { (*self.raw).qp_num }
    }

    /// Connects it to its peer, from reset.
    pub(super) fn connect(&self, exit: Exit, mine: &End, peer: &End) -> Result<(), VerbsError> {
        /// An unanswered packet is sent again after 4.096 us, doubled so often.
        const TIMEOUT: u8 = 16;
        /// So often. (One more is for ever, where software is the NIC.)
        const TRIES: u8 = 6;
        /// And where the peer has no memory for a message, for ever,
        const FOR_EVER: u8 = 7;
        /// at intervals of 0.08 ms.
        const NOT_READY: u8 = 6;
        /// Routers on the way, at the most.
        const HOPS: u8 = 64;

        // SAFETY: numbers, for which zeros are values.
        let mut wanted: ibv_qp_attr = unsafe { std::mem::zeroed() };
        wanted.qp_state = ibv_qp_state::IBV_QPS_INIT;
        wanted.port_num = exit.port;
        let all =
            access::IBV_ACCESS_REMOTE_READ | access::IBV_ACCESS_REMOTE_WRITE | access::IBV_ACCESS_REMOTE_ATOMIC;
        wanted.qp_access_flags = all.0;
        let init = mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
        self.modify("set a queue pair up", &mut wanted, init)?;

        wanted.qp_state = ibv_qp_state::IBV_QPS_RTR;
        wanted.path_mtu = c_uint::from(mine.mtu.min(peer.mtu));
        wanted.dest_qp_num = peer.pair;
        wanted.rq_psn = peer.first_packet;
        wanted.max_dest_rd_atomic = mine.reads_in.min(peer.reads_out);
        wanted.min_rnr_timer = NOT_READY;
        wanted.ah_attr.port_num = exit.port;
        wanted.ah_attr.dlid = peer.lid;
        wanted.ah_attr.is_global = u8::from(exit.global);
        if exit.global {
            wanted.ah_attr.grh.dgid = ibv_gid { raw: peer.gid };
            wanted.ah_attr.grh.sgid_index = exit.gid_index;
            wanted.ah_attr.grh.hop_limit = HOPS;
        }
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

    /// Ends what is under way: memory that was given for messages comes back with an error.
    pub(super) fn disable(&self) {
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
    pub(super) fn post(&mut self, list: &mut Requests) -> Result<(), VerbsError> {
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
    pub(super) fn post_receive(&mut self, id: u64, into: Span) -> Result<(), VerbsError> {
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

/// What a request is to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Read { address: u64, key: u32 },
    Write { address: u64, key: u32 },
    CompareSwap { address: u64, key: u32, expected: u64, new: u64 },
    FetchAdd { address: u64, key: u32, add: u64 },
    Send,
}

/// Requests to be posted together.
#[derive(Default)]
pub(super) struct Requests {
    requests: Vec<ibv_send_wr>,
    elements: Vec<ibv_sge>,
}

// SAFETY: the pointers in it point into it, and are set again before each use.
unsafe impl Send for Requests {}

impl Requests {
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.elements.clear();
    }

    /// Adds one, by the number that its completion has. Inline, its bytes are read when it is
    /// posted.
    #[inline]
    pub(super) fn push(&mut self, id: u64, action: Action, memory: Span, inline: bool) {
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
                request.wr.atomic =
                    rdma_sys::atomic_t { remote_addr: address, compare_add: expected, swap: new, rkey: key };
                ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP
            }
            Action::FetchAdd { address, key, add } => {
                request.wr.atomic = rdma_sys::atomic_t { remote_addr: address, compare_add: add, swap: 0, rkey: key };
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

    /// Wants a completion of the last.
    pub(super) fn signal_last(&mut self) {
        if let Some(last) = self.requests.last_mut() {
            last.send_flags |= flags::IBV_SEND_SIGNALED.0;
        }
    }

    /// Makes it one list.
    fn link(&mut self) {
        for (request, element) in self.requests.iter_mut().zip(&mut self.elements) {
            request.sg_list = element;
        }
        let mut next = without_provenance_mut(0);
        for request in self.requests.iter_mut().rev() {
            request.next = next;
            next = request;
        }
    }
}

macro_rules! opaque {
    ($($name:ident),+) => {
        $(impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        })+
    };
}
opaque!(Device, Registration, Slab, CompletionQueue, SharedReceives, QueuePair, Requests);
