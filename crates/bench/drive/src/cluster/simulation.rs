//! Nodes of a simulated cluster, in virtual time.

use std::{sync::Arc, time::Duration};

use drtm_htm::NoHtm;
use drtm_rdma::{NodeId, Overhead, RunEnd, Sim, SimConfig};
use drtm_txn::{Config, cluster::Detection};

use super::{plan::Plan, stages::Stages, tally::Gathered, threads::started, workers::Part, workload::ClusterWorkload};
use crate::Error;

/// The processor time of overheads of software, by [`Overhead::ALL`].
pub type Overheads = [Duration; Overhead::ALL.len()];

/// Runs all workers in virtual time, on a cluster with room for their messages.
pub fn simulate<S: Config<Engine = NoHtm>, W: ClusterWorkload>(
    workload: &W,
    plan: &Plan,
    config: SimConfig,
) -> Result<Gathered<W::Count>, Error> {
    run::<S, W>(workload, plan, config, false).map(|(gathered, _)| gathered)
}

/// Like [`simulate`], but on nodes that are simulated machines: their NICs serve the requests of
/// protocols that find conflicts by lines. Returns the overheads of software, too.
pub fn simulate_machines<S: Config<Engine = NoHtm>, W: ClusterWorkload>(
    workload: &W,
    plan: &Plan,
    config: SimConfig,
) -> Result<(Gathered<W::Count>, Overheads), Error> {
    run::<S, W>(workload, plan, config, plan.protocol.protocol.detection != Detection::Versions)
}

fn run<S: Config<Engine = NoHtm>, W: ClusterWorkload>(
    workload: &W,
    plan: &Plan,
    config: SimConfig,
    by_nics: bool,
) -> Result<(Gathered<W::Count>, Overheads), Error> {
    let config = config.seed(plan.seed).mailbox(plan.messages()).queue_depth(plan.messages());
    let sim = Sim::<NoHtm>::new(plan.nodes, config);
    let stages = Arc::new(Stages::new(plan.workers(), plan.nodes.into(), false));
    for number in 0..plan.nodes {
        let (node, tables) = started::<_, S, W>(workload, plan, sim.fabric(), number)?;
        for thread in 0..plan.threads {
            let place = plan.place(number);
            let (workload, node) = (workload.clone(), node.clone());
            let part = Part { workload, plan: *plan, stages: Arc::clone(&stages), node, tables, place, thread };
            let stages = Arc::clone(&stages);
            sim.spawn(NodeId(number), move |spawner| {
                if let Err(error) = part.begin(spawner) {
                    stages.is_missing_one(error);
                }
            })?;
        }
        if by_nics {
            let stages = Arc::clone(&stages);
            sim.serve_as_nic(NodeId(number), move |spawner| match node.worker(spawner.endpoint()) {
                Ok(worker) => worker.serve(&spawner),
                Err(error) => stages.is_missing_one(error.into()),
            })?;
        }
    }
    match sim.run() {
        RunEnd::Done => {
            let mut gathered = stages.outcome()?;
            // The processor time would be that of the simulation on this machine.
            gathered.tally.cpu_nanos = None;
            Ok((gathered, sim.overheads()))
        }
        end => Err(stages.outcome().err().unwrap_or(Error::Simulation(end))),
    }
}
