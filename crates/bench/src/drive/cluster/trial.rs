//! Small clusters, for tests of workloads.

use drtm_htm::NoHtm;
use drtm_rdma::NicProfile;
use drtm_txn::{Setting, cluster::Protocol};

use super::{ClusterWorkload, Gathered, Length, Plan, ProtocolOf, run};
use crate::fabric::FabricName;

/// Fabrics within a test's process.
pub(crate) const FABRICS: [FabricName; 2] = [FabricName::Local, FabricName::Sim(&NicProfile::CONNECTX_4)];

/// Nodes of a trial.
pub(crate) const NODES: u16 = 3;

/// Coroutines of each node.
pub(crate) const COROUTINES: u16 = 8;

/// What the workers of a small cluster have done, in so many transactions each.
pub(crate) fn run_on<S: Setting<Engine = NoHtm>, W: ClusterWorkload>(
    workload: &W,
    fabric: FabricName,
    transactions: u64,
    seed: u64,
    protocol: Protocol,
) -> Gathered<W::Count> {
    let length = Length::Transactions(transactions);
    let plan = Plan {
        nodes: NODES,
        threads: 1,
        coroutines: COROUTINES,
        protocol: ProtocolOf(protocol),
        length,
        seed,
        memory: 128 << 20,
    };
    run::<S, W>(workload, fabric, &plan).expect("all nodes are here")
}
