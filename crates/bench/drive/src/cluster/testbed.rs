//! A cluster on each fabric.

use drtm_htm::NoHtm;
use drtm_txn::Config;

use super::{plan::Plan, process, tally::Gathered, workload::ClusterWorkload};
use crate::{Error, FabricName};

/// Loads, runs and checks a workload on a cluster.
///
/// Nodes are threads on [`FabricName::Local`], processes on [`FabricName::Shm`] and
/// [`FabricName::Tcp`], and simulated in virtual time on [`FabricName::Sim`]. A
/// configuration with a deliberate fault works only for a cluster in this process. Both kinds of
/// clusters in this process are for studies and tests, and refused in a program without them.
pub fn run<S: Config<Engine = NoHtm>, W: ClusterWorkload>(
    workload: &W,
    fabric: FabricName,
    plan: &Plan,
) -> Result<Gathered<W::Count>, Error> {
    match fabric {
        FabricName::Local | FabricName::Sim(_) => in_this_process::<S, W>(workload, fabric, plan),
        FabricName::Shm => process::on_shm(workload, plan),
        FabricName::Tcp => process::on_tcp(workload, plan, true),
        FabricName::TcpClear => process::on_tcp(workload, plan, false),
        #[cfg(feature = "verbs")]
        FabricName::Verbs => Err(Error::Options {
            option: "--fabric verbs",
            with: "workloads",
            instead: "`drtm-bench fabric` measures NICs, and `scripts/rxe/test` runs transactions over one",
        }),
    }
}

#[cfg(feature = "studies")]
fn in_this_process<S: Config<Engine = NoHtm>, W: ClusterWorkload>(
    workload: &W,
    fabric: FabricName,
    plan: &Plan,
) -> Result<Gathered<W::Count>, Error> {
    use std::sync::Arc;

    use drtm_rdma::{LocalConfig, LocalFabric, SimConfig};

    use super::{simulate, stages::Stages, threads::on_threads};

    if let FabricName::Sim(profile) = fabric {
        return simulate::<S, W>(workload, plan, SimConfig::new(profile));
    }
    let config = LocalConfig::perfect().mailbox(plan.messages()).queue_depth(plan.messages());
    let fabric = LocalFabric::<NoHtm>::new(plan.nodes, config.endpoints(usize::from(plan.threads) + 8));
    let stages = Stages::new(plan.workers(), plan.nodes.into(), false);
    let nodes = (0..plan.nodes).map(|node| (node, fabric.clone())).collect();
    on_threads::<_, S, W>(workload, plan, nodes, Arc::new(stages))
}

#[cfg(not(feature = "studies"))]
#[expect(clippy::extra_unused_type_parameters, reason = "the same call as with studies")]
fn in_this_process<S: Config<Engine = NoHtm>, W: ClusterWorkload>(
    _workload: &W,
    fabric: FabricName,
    _plan: &Plan,
) -> Result<Gathered<W::Count>, Error> {
    let option = if fabric.is_simulated() { "--fabric sim" } else { "--fabric local" };
    Err(Error::Study { option, instead: "say --fabric shm or tcp; " })
}
