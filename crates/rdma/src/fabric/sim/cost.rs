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
    /// Locking or unlocking a local record.
    Lock,
    /// Comparing a local record, or an owner's line, with what was seen of it.
    Check,
    /// Writing a log record that has come by message.
    Append,
    /// Copying or checking this many bytes.
    Copy(usize),
    /// The application's work, in nanoseconds.
    Nanos(u64),
    /// A switch to a coroutine, which the executor itself charges.
    Switch,
    /// Handing a request to the NIC, which carries it out alone.
    Request,
    /// Taking the completion of such a request.
    Completion,
    /// Cycles of a processor of the simulated machine of HADES, of 2 GHz.
    Cycles(u64),
    /// Such cycles of the node's NIC. On an endpoint that [is one](crate::Sim::serve_as_nic), they
    /// delay the answer of the request that is served, and cost no processor's time.
    Nic(u64),
    /// An access of the node's own memory, by address and bytes. It costs what the caches of the
    /// simulated machine say, on a cluster that [has them](crate::SimConfig::machine).
    Access {
        /// The address, in bytes.
        at: u64,
        /// The bytes.
        bytes: u64,
        /// Whether they are written.
        writes: bool,
    },
    /// Instructions of what transactions do beside their accesses, on a cluster that [has
    /// machines](crate::SimConfig::machine). [`Sim::overheads`](crate::Sim::overheads) counts them.
    Overhead(Overhead, u64),
}

/// What transactions do beside their accesses: their bodies, and the sources of overhead of HADES'
/// Table I that take a processor's time. Its other two, reading before writing and detecting
/// conflicts, are rounds of requests, which are counted by [phase](crate::Phase).
///
/// # Example
///
/// ```
/// assert_eq!(drtm_rdma::Overhead::ALL.len(), 4);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overhead {
    /// No overhead: the body, and finding rows.
    Body,
    /// Keeping the sets of what was read and what is written.
    ManageSets,
    /// Writing the version of a record that is updated.
    UpdateVersion,
    /// Checking that a record was read whole, and copying it.
    ReadAtomicity,
}

impl Overhead {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Body, Self::ManageSets, Self::UpdateVersion, Self::ReadAtomicity];
}

/// A cycle of the simulated machine. HADES Table III: 2 GHz.
pub(super) const CYCLE: Picos = 500;

impl CpuProfile {
    pub(super) fn of(&self, cost: Cost) -> Picos {
        match cost {
            Cost::Lookup => self.lookup,
            Cost::Update => self.update,
            Cost::Insert => self.insert,
            Cost::Lock => self.lock,
            Cost::Check => self.check,
            Cost::Append => self.append,
            Cost::Copy(bytes) => self.line * bytes.div_ceil(64) as u64,
            Cost::Switch => self.switch,
            Cost::Nanos(nanos) => nanos.saturating_mul(super::clock::NANO),
            Cost::Request => self.post + self.doorbell,
            Cost::Completion => self.completion,
            Cost::Cycles(cycles) | Cost::Nic(cycles) => cycles.saturating_mul(CYCLE),
            // Only a machine knows what they cost.
            Cost::Access { .. } | Cost::Overhead(..) => 0,
        }
    }
}
