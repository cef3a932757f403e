//! Where packets leave, and where datagrams go.

use std::sync::Arc;

use rdma_sys::{ibv_ah, ibv_ah_attr, ibv_create_ah, ibv_destroy_ah, ibv_gid};

use crate::fabric::ibv::VerbsError;

use super::{device::Device, system};

/// Where a connection leaves.
#[derive(Clone, Copy, Debug)]
pub(in crate::fabric::ibv) struct Exit {
    pub(in crate::fabric::ibv) port: u8,
    pub(in crate::fabric::ibv) gid_index: u8,
    /// Whether packets carry addresses, as on Ethernet.
    pub(in crate::fabric::ibv) global: bool,
}

impl Exit {
    /// Describes the way to a peer.
    pub(super) fn lead(self, way: &mut ibv_ah_attr, gid: [u8; 16], lid: u16) {
        /// Routers on the way, at the most.
        const HOPS: u8 = 64;
        way.port_num = self.port;
        way.dlid = lid;
        way.is_global = u8::from(self.global);
        if self.global {
            way.grh.dgid = ibv_gid { raw: gid };
            way.grh.sgid_index = self.gid_index;
            way.grh.hop_limit = HOPS;
        }
    }
}

/// Where datagrams go: a peer's port.
pub(in crate::fabric::ibv) struct Address {
    pub(super) raw: *mut ibv_ah,
    _device: Arc<Device>,
}

// SAFETY: see the third invariant of `sys`.
unsafe impl Send for Address {}

impl Address {
    pub(in crate::fabric::ibv) fn new(
        device: &Arc<Device>,
        exit: Exit,
        gid: [u8; 16],
        lid: u16,
    ) -> Result<Self, VerbsError> {
        /// The system asks the network for the peer's port, and question and answer can be lost.
        const TRIES: u32 = 3;
        // SAFETY: numbers, for which zeros are values.
        let mut wanted: ibv_ah_attr = unsafe { std::mem::zeroed() };
        exit.lead(&mut wanted, gid, lid);
        let mut tries = 0;
        loop {
            // SAFETY: the domain is the device's, and the attributes are complete.
            let raw = unsafe { ibv_create_ah(device.domain, &mut wanted) };
            if !raw.is_null() {
                return Ok(Self { raw, _device: Arc::clone(device) });
            }
            let error = system("make an address for datagrams");
            tries += 1;
            if tries == TRIES {
                return Err(error);
            }
        }
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        // SAFETY: made by the constructor, and freed once.
        let code = unsafe { ibv_destroy_ah(self.raw) };
        debug_assert_eq!(code, 0, "an address is freed once");
    }
}
