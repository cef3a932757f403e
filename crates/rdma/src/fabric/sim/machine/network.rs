//! The network of HADES' cluster, as a profile of the simulated fabric.

use crate::NicProfile;

/// The source of what Table III and section VII do not give: a NIC of today.
const LIKE: NicProfile = NicProfile::CONNECTX_4;

impl NicProfile {
    /// The NIC of HADES' Table III, with 5 nodes of 5 cores. What the paper does not give is a
    /// [ConnectX-4](Self::CONNECTX_4)'s: assumed.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::NicProfile;
    ///
    /// assert_eq!(NicProfile::HADES.round_trip().as_nanos(), 2_000 + 15, "and a NIC's work at both ends");
    /// ```
    pub const HADES: Self = Self {
        name: "HADES",
        cluster: (5, 5, 1),
        symmetric: true,
        inputs: &[],
        // Table III: 2 us from NIC to NIC and back. What memory takes is the machine's.
        wire: 1_000_000,
        pcie_read: 0,
        // Table III: 200 Gbit/s.
        link_byte: 40,
        // Assumed: PCIe is as fast as the link.
        byte: 40,
        // Section VII. 5 nodes of 5 cores with 2 transactions need less.
        cached_queue_pairs: 400,
        ..LIKE
    };
}
