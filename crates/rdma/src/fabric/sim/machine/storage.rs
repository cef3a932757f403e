//! The memory that the hardware needs, as the paper's section VI sums it up.

use super::profile::MachineProfile;

/// The storage of a node.
///
/// # Example
///
/// ```
/// use drtm_rdma::machine::{MachineProfile, Storage};
///
/// let storage = Storage::of(&MachineProfile::HADES);
/// assert_eq!((storage.core_pairs, storage.nic_pairs, storage.entries, storage.tag_bits), (10, 40, 10, 4));
/// assert_eq!((storage.core_bits, storage.nic_bits), (5632, 2048));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Pairs of filters of the cores.
    pub core_pairs: usize,
    /// Bits of such a pair.
    pub core_bits: u64,
    /// Pairs of filters of the NIC.
    pub nic_pairs: usize,
    /// Bits of such a pair.
    pub nic_bits: u64,
    /// Entries of the NIC for local transactions.
    pub entries: usize,
    /// Bits of a tag of the directory.
    pub tag_bits: u32,
}

impl Storage {
    /// Returns what a node needs.
    ///
    /// # Example
    ///
    /// See [`Storage`].
    #[must_use]
    pub fn of(profile: &MachineProfile) -> Self {
        let entries = profile.transactions();
        let (hashed, indexed) = profile.write_bits;
        Self {
            core_pairs: entries,
            core_bits: u64::from(profile.read_bits) + u64::from(hashed) + u64::from(indexed),
            nic_pairs: profile.nic_pairs,
            nic_bits: 2 * u64::from(profile.nic_bits),
            entries,
            tag_bits: entries.next_power_of_two().trailing_zeros(),
        }
    }
}
