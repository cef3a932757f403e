//! Memory that a NIC may access.

use std::{
    any::Any,
    ffi::{c_int, c_void},
    io,
    sync::Arc,
};

use drtm_htm::Engine;
use rdma_sys::{ibv_access_flags as access, ibv_dereg_mr, ibv_mr, ibv_reg_mr, ibv_reg_mr_iova, ibv_sge};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::{Region, fabric::ibv::VerbsError};

use super::device::Device;

/// Memory that the NIC may access.
pub(in crate::fabric::ibv) struct Registration {
    raw: *mut ibv_mr,
    _device: Arc<Device>,
    /// Freed after the registration has ended.
    _memory: Box<dyn Any + Send + Sync>,
}

// SAFETY: see the third invariant of `sys`.
unsafe impl Send for Registration {}
// SAFETY: see the third invariant of `sys`.
unsafe impl Sync for Registration {}

impl Registration {
    /// Lets peers access a part of a region, of whole pages, at the addresses that are its offsets.
    pub(in crate::fabric::ibv) fn of_region<E: Engine>(
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

    /// Returns the key with which peers access it.
    pub(in crate::fabric::ibv) fn remote_key(&self) -> u32 {
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

/// Pages of this process, seen by the NIC and by copies in and out only.
struct Pages {
    start: *mut c_void,
    bytes: usize,
}

impl Pages {
    /// Allocates zeros, in huge pages if that is wanted.
    fn new(bytes: usize, huge: bool) -> Result<Self, VerbsError> {
        const PAGE: usize = 4 << 10;
        const HUGE_PAGE: usize = 2 << 20;
        let bytes = bytes.max(1).next_multiple_of(if huge { HUGE_PAGE } else { PAGE });
        let stock = if huge { MapFlags::HUGETLB | MapFlags::HUGE_2MB } else { MapFlags::empty() };
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | stock);
        // SAFETY: a new mapping at an address of the system's choice replaces nothing.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) };
        match mapped {
            Ok(start) => Ok(Self { start, bytes }),
            Err(errno) if huge => {
                let pages = bytes / HUGE_PAGE;
                Err(VerbsError::HugePages { bytes: bytes as u64, pages, source: errno.into() })
            }
            Err(errno) => Err(VerbsError::System { what: "allocate buffers", source: errno.into() }),
        }
    }
}

// SAFETY: the memory belongs to no thread.
unsafe impl Send for Pages {}
// SAFETY: it is only copied to and from, where a slab says.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by the constructor, with so many bytes, and unmapped once.
        let unmapped = unsafe { munmap(self.start, self.bytes) };
        debug_assert!(unmapped.is_ok(), "pages are unmapped once, as they were mapped");
    }
}

/// Memory for requests and answers on their way: the NIC's side of an endpoint's buffers.
pub(in crate::fabric::ibv) struct Slab {
    start: *mut u8,
    bytes: usize,
    key: u32,
    _registration: Registration,
}

// SAFETY: the memory is the registration's, and belongs to no thread.
unsafe impl Send for Slab {}

impl Slab {
    /// Allocates and registers so many bytes, in huge pages if that is wanted.
    pub(in crate::fabric::ibv) fn new(device: &Arc<Device>, bytes: usize, huge: bool) -> Result<Self, VerbsError> {
        let pages = Pages::new(bytes, huge)?;
        let (start, bytes) = (pages.start, pages.bytes);
        let local = access::IBV_ACCESS_LOCAL_WRITE.0 as c_int;
        // SAFETY: the domain is the device's, and the registration keeps the pages.
        let raw = unsafe { ibv_reg_mr(device.domain, start, bytes, local) };
        let registration = Registration::made(device, raw, bytes as u64, Box::new(pages))?;
        Ok(Self { start: start.cast(), bytes, key: registration.local_key(), _registration: registration })
    }

    /// Returns a part of it, as requests name it.
    pub(in crate::fabric::ibv) fn span(&self, at: usize, bytes: usize) -> Span {
        assert!(at + bytes <= self.bytes, "a span is in its slab");
        Span { address: self.start.wrapping_add(at) as u64, bytes: bytes as u32, key: self.key }
    }

    pub(in crate::fabric::ibv) fn write<T: Plain>(&mut self, at: usize, from: &[T]) {
        assert!(at + size_of_val(from) <= self.bytes, "a copy is in its slab");
        let to = self.start.wrapping_add(at);
        // SAFETY: in bounds, as just checked, of memory that only this value and the NIC access;
        // plain values are bytes.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().cast(), to, size_of_val(from)) };
    }

    pub(in crate::fabric::ibv) fn read<T: Plain>(&self, at: usize, into: &mut [T]) {
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
pub(in crate::fabric::ibv) unsafe trait Plain: Copy {}
// SAFETY: numbers.
unsafe impl Plain for u8 {}
// SAFETY: numbers.
unsafe impl Plain for u64 {}

/// Registered memory that a request names.
#[derive(Clone, Copy, Debug)]
pub(in crate::fabric::ibv) struct Span {
    address: u64,
    bytes: u32,
    key: u32,
}

impl Span {
    pub(super) fn element(self) -> ibv_sge {
        ibv_sge { addr: self.address, length: self.bytes, lkey: self.key }
    }
}
