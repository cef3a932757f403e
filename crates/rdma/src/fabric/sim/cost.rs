//! The processor time of protocol code, charged at named points.

use super::{clock::Picos, profiles::CpuProfile};

/// Work of protocol code on its processor, for [`Endpoint::charge`].
///
/// It costs nothing except on a simulated cluster, where it advances the worker's time by the
/// [profile's](crate::NicProfile) cost.
///
/// [`Endpoint::charge`]: crate::Endpoint::charge
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Cost, Fabric, NicProfile, NodeId, Sim, SimConfig};
///
/// let sim = Sim::<NoHtm>::new(1, SimConfig::new(&NicProfile::CONNECTX_4));
/// let endpoint = sim.fabric().endpoint(NodeId(0))?;
/// let before = endpoint.now();
/// endpoint.charge(Cost::Nanos(500));
/// assert_eq!(endpoint.now().since(before).as_nanos(), 500);
/// # Ok::<(), drtm_rdma::FabricError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cost {
    /// A lookup of a key in a local table.
    Lookup,
    /// Writing a row of a local table whose place is known.
    Update,
    /// Inserting or removing a row of a local table.
    Insert,
    /// Locking, checking or unlocking a local record.
    Lock,
    /// Copying or checking this many bytes.
    Copy(usize),
    /// The application's work, in nanoseconds.
    Nanos(u64),
    /// A switch to a coroutine, which the executor itself charges.
    Switch,
}

impl CpuProfile {
    pub(super) fn of(&self, cost: Cost) -> Picos {
        match cost {
            Cost::Lookup => self.lookup,
            Cost::Update => self.update,
            Cost::Insert => self.insert,
            Cost::Lock => self.lock,
            Cost::Copy(bytes) => self.line * bytes.div_ceil(64) as u64,
            Cost::Switch => self.switch,
            Cost::Nanos(nanos) => nanos.saturating_mul(super::clock::NANO),
        }
    }
}
