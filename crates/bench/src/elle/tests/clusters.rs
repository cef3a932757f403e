//! Random transactions on small clusters.

use drtm_txn::cluster::Protocol;

use super::*;
use crate::{
    drive::cluster::{
        Sound,
        trial::{COROUTINES, FABRICS, NODES, run_on},
    },
    elle::cluster::Histories,
    fabric::FabricName,
    history::Epoch,
};

/// Commits without a look at what was read.
#[derive(Debug)]
struct Careless;

impl Setting for Careless {
    type Engine = NoHtm;
    const FAULT: Option<Mutation> = Some(Mutation::CommitWithoutValidation);
}

const CLIENTS: usize = NODES as usize * COROUTINES as usize;

fn record<S: Setting<Engine = NoHtm>>(
    workload: Workload,
    fabric: FabricName,
    seed: u64,
    protocol: Protocol,
) -> Vec<Observed> {
    let histories = Histories { workload, seed, clients: CLIENTS, epoch: Epoch::now() };
    run_on::<S, _>(&histories, fabric, 200, seed, protocol).count.0
}

#[test]
fn transactions_on_several_nodes_are_strictly_serializable() {
    for fabric in FABRICS {
        let all = Protocol::ALL.map(|protocol| [Workload::ListAppend, Workload::Register].map(|of| (of, protocol)));
        for (workload, protocol) in all.into_iter().flatten() {
            let record = record::<Sound>(workload, fabric, 5, protocol);
            let told = judge::anomalies(&record);
            assert!(told.is_empty(), "{workload:?} on {fabric} by {protocol:?}:\n{}", told.join("\n"));
            let committed = record.iter().filter(|observed| observed.outcome == Outcome::Committed);
            assert!(committed.count() > 300, "{workload:?} on {fabric} by {protocol:?}");
            assert!(record.iter().any(|observed| observed.process == CLIENTS), "the last reads");
            assert_eq!(
                judged_by_adya(&record, true),
                (Valid::True, vec![]),
                "{workload:?} on {fabric} by {protocol:?}"
            );
        }
    }
}

#[test]
fn nodes_that_do_not_validate_are_found() {
    let fabric = FABRICS[1];
    for workload in [Workload::ListAppend, Workload::Register] {
        let found = (0..20)
            .any(|seed| !judge::anomalies(&record::<Careless>(workload, fabric, seed, Protocol::FASST)).is_empty());
        assert!(found, "nothing in any history of {workload:?}");
    }
}
