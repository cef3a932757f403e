//! The throughput of a simulated cluster.

use drtm_rdma::{Atomicity, NicProfile, SimConfig};

use crate::{
    Error,
    drive::{
        Plain,
        cluster::{ClusterWorkload, Length, Plan, simulate},
    },
};

/// Runs a workload on a simulated cluster whose NICs are like this one, and returns how many
/// transactions it commits in a second. All conditions of the workload must hold.
///
/// NICs' atomics are atomic with processors', so that locks can be taken by them, as in the papers.
pub(super) fn throughput<W: ClusterWorkload>(
    workload: &W,
    plan: &Plan,
    profile: &'static NicProfile,
) -> Result<f64, Error> {
    let config = SimConfig::new(profile).atomicity(Atomicity::Global);
    let gathered = simulate::<Plain, W>(workload, plan, config)?;
    if let [first, ..] = gathered.violations.as_slice() {
        return Err(Error::Inconsistent { violations: gathered.violations.len(), first: first.clone() });
    }
    let seconds = match plan.length {
        Length::Window { counted, .. } => counted.as_secs_f64(),
        Length::Transactions(_) => gathered.tally.nanos as f64 / 1e9,
    };
    Ok(gathered.tally.committed as f64 / seconds)
}
