//! The throughput of a simulated cluster.

use drtm_rdma::{Atomicity, NicProfile, SimConfig, Transport};
use drtm_txn::Conflict;

use super::effort::Effort;
use crate::{
    Error,
    drive::{
        Plain,
        cluster::{ClusterWorkload, Figures, Length, Plan, simulate},
    },
};

/// Runs a workload on a simulated cluster whose NICs are like this one, and returns how many
/// transactions it commits in a second. All conditions of the workload must hold.
///
/// NICs' atomics are atomic with processors', so that locks can be taken by them, as in the papers.
pub(super) fn throughput<W: ClusterWorkload>(
    effort: &Effort,
    workload: &W,
    plan: &Plan,
    (profile, transport): (&'static NicProfile, Transport),
) -> Result<f64, Error> {
    let profile = effort.profile(profile);
    let config = SimConfig::new(profile).atomicity(Atomicity::Global).transport(transport);
    let gathered = simulate::<Plain, W>(workload, plan, config)?;
    if let [first, ..] = gathered.violations.as_slice() {
        return Err(Error::Inconsistent { violations: gathered.violations.len(), first: first.clone() });
    }
    let seconds = match plan.length {
        Length::Window { counted, .. } => counted.as_secs_f64(),
        Length::Transactions(_) => gathered.tally.nanos as f64 / 1e9,
    };
    let rate = gathered.tally.committed as f64 / seconds;
    if effort.shows_phases {
        let Plan { nodes, coroutines, protocol, .. } = plan;
        let each = |count: &u64| *count as f64 / gathered.tally.committed.max(1) as f64;
        let conflicts = Conflict::ALL.iter().zip(gathered.tally.conflicts.iter().map(each));
        let conflicts: Vec<_> = conflicts.map(|(conflict, each)| format!("{conflict:?} {each:.3}")).collect();
        eprintln!(
            "{} by {}, {nodes} nodes, {coroutines} coroutines, {}: {rate:.0} transactions/s; conflicts: {}\n{}\n",
            W::NAME,
            protocol.0.name,
            profile.name,
            conflicts.join(", "),
            Figures::new(plan, &gathered.tally).text()
        );
    }
    Ok(rate)
}
