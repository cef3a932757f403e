//! Nodes of a simulated cluster, in virtual time.

use std::sync::Arc;

use drtm_htm::NoHtm;
use drtm_rdma::{NodeId, RunEnd, Sim, SimConfig};
use drtm_txn::Config;

use super::{plan::Plan, stages::Stages, tally::Gathered, threads::started, workers::Part, workload::ClusterWorkload};
use crate::Error;

/// Runs all workers in virtual time, on a cluster with room for their messages.
pub fn simulate<S: Config<Engine = NoHtm>, W: ClusterWorkload>(
    workload: &W,
    plan: &Plan,
    config: SimConfig,
) -> Result<Gathered<W::Count>, Error> {
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
    }
    match sim.run() {
        RunEnd::Done => {
            let mut gathered = stages.outcome()?;
            // The processor time would be that of the simulation on this machine.
            gathered.tally.cpu_nanos = None;
            Ok(gathered)
        }
        end => Err(stages.outcome().err().unwrap_or(Error::Simulation(end))),
    }
}
