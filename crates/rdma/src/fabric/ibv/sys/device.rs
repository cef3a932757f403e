//! Devices, and what they can do.

use std::{
    ffi::{CStr, c_int},
    io,
};

use rdma_sys::{
    ___ibv_query_port, ibv_alloc_pd, ibv_atomic_cap, ibv_close_device, ibv_context, ibv_dealloc_pd, ibv_device_attr,
    ibv_free_device_list, ibv_get_device_list, ibv_get_device_name, ibv_gid, ibv_open_device, ibv_pd, ibv_port_attr,
    ibv_port_state, ibv_query_device, ibv_query_gid,
};

use crate::{Atomicity, fabric::ibv::VerbsError};

use super::check;

/// What the link layer of a port is called when it is Ethernet.
const ETHERNET: u8 = 2;

/// The vendor of `rdma_rxe`, which no hardware has.
const SOFTWARE: u32 = 0xff_ffff;

/// A device that is open, with a protection domain.
pub(in crate::fabric::ibv) struct Device {
    pub(super) context: *mut ibv_context,
    pub(super) domain: *mut ibv_pd,
    name: String,
}

// SAFETY: see the third invariant of `sys`.
unsafe impl Send for Device {}
// SAFETY: see the third invariant of `sys`.
unsafe impl Sync for Device {}

/// What a device can do.
#[derive(Clone, Copy, Debug)]
pub(in crate::fabric::ibv) struct Abilities {
    pub(in crate::fabric::ibv) atomicity: Atomicity,
    /// Whether the device is `rdma_rxe`, of any kernel.
    pub(in crate::fabric::ibv) is_software: bool,
    /// READs and atomics of a peer that a queue pair answers at a time, and of its own that are
    /// under way.
    pub(in crate::fabric::ibv) reads_in: u8,
    pub(in crate::fabric::ibv) reads_out: u8,
}

/// What a port is.
#[derive(Clone, Copy, Debug)]
pub(in crate::fabric::ibv) struct PortState {
    pub(in crate::fabric::ibv) active: bool,
    pub(in crate::fabric::ibv) ethernet: bool,
    pub(in crate::fabric::ibv) lid: u16,
    /// The library's code of the path's largest packets.
    pub(in crate::fabric::ibv) mtu: u8,
    gids: c_int,
}

impl Device {
    /// Opens a device, by its name or the first that there is.
    pub(in crate::fabric::ibv) fn open(name: Option<&str>) -> Result<Self, VerbsError> {
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
                    opened = Some((context, io::Error::last_os_error(), text.clone()));
                }
                found.push(text);
            }
            // SAFETY: the list was made by the library, and is freed once.
            unsafe { ibv_free_device_list(list) };
        }
        let (context, error, name) = opened.ok_or(VerbsError::NoDevice { named: name.map(Into::into), found })?;
        if context.is_null() {
            return Err(VerbsError::opening(error));
        }
        // SAFETY: the context is open.
        let domain = unsafe { ibv_alloc_pd(context) };
        let failed = io::Error::last_os_error();
        let device = Self { context, domain, name };
        if domain.is_null() { Err(VerbsError::opening(failed)) } else { Ok(device) }
    }

    /// Opens the same device once more, for another thread: what one thread posts by its own
    /// context waits for no lock of another's.
    pub(in crate::fabric::ibv) fn again(&self) -> Result<Self, VerbsError> {
        Self::open(Some(&self.name))
    }

    pub(in crate::fabric::ibv) fn abilities(&self) -> Result<Abilities, VerbsError> {
        // SAFETY: numbers, for which zeros are values.
        let mut found: ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and what is found is written.
        check("ask the device what it can do", unsafe { ibv_query_device(self.context, &mut found) })?;
        let few = |count: c_int| count.clamp(1, 128) as u8;
        Ok(Abilities {
            is_software: found.vendor_id == SOFTWARE,
            atomicity: match found.atomic_cap {
                ibv_atomic_cap::IBV_ATOMIC_HCA => Atomicity::Hca,
                ibv_atomic_cap::IBV_ATOMIC_GLOB => Atomicity::Global,
                _ => Atomicity::None,
            },
            reads_in: few(found.max_qp_rd_atom),
            reads_out: few(found.max_qp_init_rd_atom),
        })
    }

    pub(in crate::fabric::ibv) fn port(&self, port: u8) -> Result<PortState, VerbsError> {
        // SAFETY: numbers, for which zeros are values.
        let mut found: ibv_port_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and what is found is written.
        let code = unsafe { ___ibv_query_port(self.context, port, &mut found) };
        check("ask the port how it is", code)?;
        Ok(PortState {
            active: found.state == ibv_port_state::IBV_PORT_ACTIVE,
            ethernet: found.link_layer == ETHERNET,
            lid: found.lid,
            mtu: found.active_mtu as u8,
            gids: found.gid_tbl_len,
        })
    }

    /// Returns an address of a port. `None` if it is empty.
    pub(in crate::fabric::ibv) fn gid(&self, port: u8, index: u8) -> Option<[u8; 16]> {
        let mut found = ibv_gid { raw: [0; 16] };
        // SAFETY: the context is open, and what is found is written.
        let code = unsafe { ibv_query_gid(self.context, port, c_int::from(index), &mut found) };
        // SAFETY: every bit pattern is bytes.
        let raw = unsafe { found.raw };
        (code == 0 && raw != [0; 16]).then_some(raw)
    }

    /// Returns the addresses of a port, with their numbers.
    pub(in crate::fabric::ibv) fn gids(&self, port: u8, state: &PortState) -> impl Iterator<Item = (u8, [u8; 16])> {
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
