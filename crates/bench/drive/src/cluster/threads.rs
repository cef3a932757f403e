//! Nodes of this process, and their workers' threads.

use std::{sync::Arc, thread};

use drtm_htm::NoHtm;
#[cfg(feature = "studies")]
use drtm_rdma::machine::MachineProfile;
use drtm_rdma::{Executor, Fabric, NodeId};
use drtm_txn::{Builder, Config, cluster::Node};

use super::{
    plan::Plan,
    stages::Stages,
    tally::Gathered,
    workers::{Guard, Part},
    workload::ClusterWorkload,
};
use crate::Error;

/// No machine is simulated.
#[cfg(not(feature = "studies"))]
pub(super) type MachineProfile = std::convert::Infallible;

/// Starts a node, whose machine is like this one, and loads it.
pub(super) fn started<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>, W: ClusterWorkload>(
    workload: &W,
    plan: &Plan,
    fabric: &F,
    node: u16,
    machine: Option<&MachineProfile>,
) -> Result<(Node<F, S>, W::Tables), Error> {
    let place = plan.place(node);
    let builder = Builder::new().memory(plan.memory);
    let builder = Node::<F, S>::builder_for(NoHtm, fabric, NodeId(node), builder, plan.protocol.protocol)?;
    let builder = builder.owners((0..plan.nodes).map(NodeId))?.backups(plan.backups.into())?;
    let mut builder = builder.loads_alone();
    #[cfg(feature = "studies")]
    if let Some(machine) = machine {
        builder = builder.machine(machine.clone());
    }
    #[cfg(not(feature = "studies"))]
    let _ = machine;
    let tables = workload.open(&mut builder)?;
    let node = builder.start()?;
    workload.load(&node, place)?;
    Ok((node, tables))
}

/// Runs the workers of these nodes, each with a handle of the fabric, on threads of this process.
pub(super) fn on_threads<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>, W: ClusterWorkload>(
    workload: &W,
    plan: &Plan,
    nodes: Vec<(u16, F)>,
    stages: Arc<Stages<W>>,
) -> Result<Gathered<W::Count>, Error> {
    let mut started_nodes = Vec::new();
    for (number, fabric) in nodes {
        let (node, tables) = started::<F, S, W>(workload, plan, &fabric, number, None)?;
        started_nodes.push((number, node, tables));
    }
    let workers = started_nodes
        .into_iter()
        .flat_map(|(number, node, tables)| (0..plan.threads).map(move |thread| (number, thread, node.clone(), tables)));
    thread::scope(|scope| {
        for (number, thread, node, tables) in workers {
            let place = plan.place(number);
            let (workload, stages) = (workload.clone(), &stages);
            let part = Part { workload, plan: *plan, stages: Arc::clone(stages), node, tables, place, thread };
            let body = move || {
                let _guard = Guard(stages);
                if let Err(error) = work(part) {
                    stages.is_missing_one(error);
                }
            };
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, body) {
                stages.is_missing_one(Error::Thread(error));
            }
        }
    });
    stages.outcome()
}

fn work<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>, W: ClusterWorkload>(
    part: Part<F, S, W>,
) -> Result<(), Error> {
    let endpoint = part.node.endpoint()?;
    let executor = Executor::new(&endpoint);
    part.begin(executor.spawner())?;
    executor.run();
    Ok(())
}
