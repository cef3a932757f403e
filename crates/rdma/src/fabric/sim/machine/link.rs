//! A NIC's link to the network.

use super::profile::MachineProfile;

/// A link sends one message after the other.
#[derive(Clone, Debug)]
pub(super) struct Link {
    free_at: u64,
}

impl Link {
    pub(super) fn new() -> Self {
        Self { free_at: 0 }
    }

    /// Returns when a message of this size arrives.
    pub(super) fn send(&mut self, now: u64, bytes: u64, profile: &MachineProfile) -> u64 {
        self.free_at = self.free_at.max(now) + profile.wire_cycles(bytes);
        self.free_at + profile.round_trip / 2
    }
}
