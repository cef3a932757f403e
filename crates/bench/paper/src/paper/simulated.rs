//! Simulated clusters: their size, and their throughput.

use std::time::Duration;

use drtm_drive::{
    Plain,
    cluster::{ClusterWorkload, Figures, Length, Plan, ProtocolOf, simulate},
};
use drtm_rdma::{Atomicity, NicProfile, SimConfig, Transport};
use drtm_txn::Conflict;

use super::effort::Effort;
use crate::Error;

/// A NIC, and how messages go.
pub(super) type Nic = (&'static NicProfile, Transport);

/// The size of a simulated cluster, and how long it runs.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) nodes: u16,
    /// Of each node.
    pub(super) threads: u16,
    /// Of each thread.
    pub(super) coroutines: u16,
    /// The nodes that each owner logs to.
    pub(super) backups: u16,
    /// Of each node, in bytes.
    pub(super) memory: u64,
    pub(super) warm: Duration,
    pub(super) counted: Duration,
}

impl Size {
    /// Sets how long it runs, in microseconds, unless that is given.
    pub(super) fn lasting(self, effort: &Effort, warm: u64, counted: u64) -> Self {
        let [warm, counted] = [warm, counted].map(Duration::from_micros);
        let (warm, counted) = effort.counted.map_or((warm, counted), |counted| (counted / 2, counted));
        Self { warm, counted, ..self }
    }

    /// Divides how long it runs by three, unless that is given or everything is tiny or large.
    pub(super) fn of_a_third(self, effort: &Effort) -> Self {
        if effort.is_quick || effort.is_full || effort.counted.is_some() {
            return self;
        }
        Self { warm: self.warm / 3, counted: self.counted / 3, ..self }
    }

    pub(super) fn clients(&self) -> u16 {
        self.nodes * self.threads * self.coroutines
    }

    /// Runs a workload on such a cluster, and returns how many transactions it commits in a second.
    /// All conditions of the workload must hold.
    pub(super) fn run<W: ClusterWorkload>(
        &self,
        effort: &Effort,
        protocol: impl Into<ProtocolOf>,
        workload: &W,
        nic: Nic,
    ) -> Result<f64, Error> {
        let Self { nodes, threads, coroutines, backups, memory, warm, counted } = *self;
        let (protocol, length, seed) = (protocol.into(), Length::Window { warm, counted }, effort.seed);
        let plan = Plan { nodes, threads, coroutines, protocol, backups, length, seed, memory, warms: true };
        throughput(effort, workload, &plan, nic)
    }

    /// Says where numbers come from: of clusters like this, in words, and with this workload.
    pub(super) fn source(&self, cluster: &str, profile: &NicProfile, workload: &str) -> String {
        let [warm, counted] = [self.warm, self.counted].map(|time| time.as_micros() as f64 / 1_000.0);
        let logs = match self.backups {
            0 => "no logs".to_owned(),
            backups => format!("logs to {backups} backups"),
        };
        format!(
            "SIMULATED in virtual time: {cluster}, {}; {warm} ms to warm up, {counted} ms counted; {logs}; {workload}",
            profile.name
        )
    }
}

/// The condition of TPC-C's rows, which are as in the papers.
pub(super) const NARROW: &str = "stock is partitioned vertically as in Silo's TPC-C, which the papers follow: no \
                                 transaction touches the S_DIST columns, and OL_DIST_INFO is empty";

/// Runs a plan on a simulated cluster whose NICs are like this one.
///
/// NICs' atomics are atomic with processors', so that locks can be taken by them, as in the papers.
fn throughput<W: ClusterWorkload>(
    effort: &Effort,
    workload: &W,
    plan: &Plan,
    (profile, transport): Nic,
) -> Result<f64, Error> {
    let profile = effort.profile(profile);
    let config = SimConfig::new(profile).atomicity(Atomicity::Global).transport(transport);
    let gathered = simulate::<Plain, W>(workload, plan, config)?;
    if let [first, ..] = gathered.violations.as_slice() {
        return Err(
            drtm_drive::Error::Inconsistent { violations: gathered.violations.len(), first: first.clone() }.into()
        );
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
            protocol.protocol.name,
            profile.name,
            conflicts.join(", "),
            Figures::new(plan, &gathered.tally).text()
        );
    }
    Ok(rate)
}
