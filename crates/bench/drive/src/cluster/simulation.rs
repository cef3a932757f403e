//! Nodes of a simulated cluster, in virtual time.

use std::{sync::Arc, time::Duration};

use drtm_htm::NoHtm;
use drtm_rdma::{
    NodeId, Overhead, RunEnd, Sim, SimConfig,
    machine::{Counts, MachineProfile},
};
use drtm_txn::{Config, cluster::Detection};

use super::{plan::Plan, stages::Stages, tally::Gathered, threads::started, workers::Part, workload::ClusterWorkload};
use crate::Error;

/// The processor time of overheads of software, by [`Overhead::ALL`].
pub type Overheads = [Duration; Overhead::ALL.len()];

/// What the machines of all nodes have counted, of a whole run.
#[derive(Clone, Copy, Debug)]
pub struct OfMachines {
    /// The processor time of overheads of software.
    pub overheads: Overheads,
    /// Accesses, conflicts and squashes. Zero where software finds conflicts.
    pub counts: Counts,
}

/// Runs all workers in virtual time, on a cluster with room for their messages.
pub fn simulate<S: Config<Engine = NoHtm>, W: ClusterWorkload>(
    workload: &W,
    plan: &Plan,
    config: SimConfig,
) -> Result<Gathered<W::Count>, Error> {
    run::<S, W>(workload, plan, config, None).map(|(gathered, _)| gathered)
}

/// Like [`simulate`], but on nodes that are simulated machines: their NICs serve the requests of
/// protocols that find conflicts by lines. Returns what these have counted, too.
pub fn simulate_machines<S: Config<Engine = NoHtm>, W: ClusterWorkload>(
    workload: &W,
    plan: &Plan,
    config: SimConfig,
    machine: &MachineProfile,
) -> Result<(Gathered<W::Count>, OfMachines), Error> {
    run::<S, W>(workload, plan, config.machine(machine.clone()), Some(machine))
}

fn run<S: Config<Engine = NoHtm>, W: ClusterWorkload>(
    workload: &W,
    plan: &Plan,
    config: SimConfig,
    machine: Option<&MachineProfile>,
) -> Result<(Gathered<W::Count>, OfMachines), Error> {
    let by_nics = machine.is_some() && plan.protocol.protocol.detection != Detection::Versions;
    let config = config.seed(plan.seed).mailbox(plan.messages()).queue_depth(plan.messages());
    let sim = Sim::<NoHtm>::new(plan.nodes, config);
    let stages = Arc::new(Stages::new(plan.workers(), plan.nodes.into(), false));
    let mut nodes = Vec::new();
    for number in 0..plan.nodes {
        let (node, tables) = started::<_, S, W>(workload, plan, sim.fabric(), number, machine)?;
        nodes.push(node.clone());
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
            let mut counts = Counts::default();
            nodes.iter().filter_map(|node| node.machine_counts()).for_each(|of_node| counts += of_node);
            Ok((gathered, OfMachines { overheads: sim.overheads(), counts }))
        }
        end => Err(stages.outcome().err().unwrap_or(Error::Simulation(end))),
    }
}
