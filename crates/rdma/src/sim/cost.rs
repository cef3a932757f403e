//! What protocol code takes of a processor, at the points that it names.

use super::{clock::Picos, profiles::CpuProfile};

/// Something that protocol code does with its processor, for [`Endpoint::charge`].
///
/// Costs nothing but on a simulated cluster, where the worker's time goes on by what the
/// [profile](crate::NicProfile) says.
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
    /// Finding a key in a table in memory.
    Lookup,
    /// Changing a table in memory: inserting, writing or removing a row.
    Update,
    /// Taking, checking or giving up a record's lock in memory.
    Lock,
    /// Copying or checking so many bytes.
    Copy(usize),
    /// What the application does, in nanoseconds.
    Nanos(u64),
    /// A switch to a coroutine, which the executor itself charges.
    Switch,
}

impl CpuProfile {
    pub(super) fn of(&self, cost: Cost) -> Picos {
        match cost {
            Cost::Lookup => self.lookup,
            Cost::Update => self.update,
            Cost::Lock => self.lock,
            Cost::Copy(bytes) => self.line * bytes.div_ceil(64) as u64,
            Cost::Switch => self.switch,
            Cost::Nanos(nanos) => nanos.saturating_mul(super::clock::NANO),
        }
    }
}
