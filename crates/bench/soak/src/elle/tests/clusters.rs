//! Random transactions on small clusters.

use drtm_drive::{
    FabricName, Plain,
    cluster::{
        ProtocolOf,
        trial::{COROUTINES, FABRICS, NODES, run_on},
    },
    faulty::{Faulty, with_fault},
};
use drtm_history::Epoch;
use drtm_txn::cluster::Protocol;

use super::*;
use crate::elle::cluster::Histories;

const CLIENTS: usize = NODES as usize * COROUTINES as usize;

fn record<S: Config<Engine = NoHtm>>(
    workload: Workload,
    fabric: FabricName,
    seed: u64,
    protocol: impl Into<ProtocolOf>,
) -> Vec<Observed> {
    let histories = Histories { workload, seed, clients: CLIENTS, epoch: Epoch::now() };
    // Transactions that scan make each other fail most of the time. How many are given up depends
    // on how threads are scheduled.
    let transactions = if workload == Workload::Predicate { 60 } else { 150 };
    run_on::<S, _>(&histories, fabric, transactions, seed, protocol).count.0
}

#[test]
fn transactions_on_several_nodes_are_strictly_serializable() {
    for fabric in FABRICS {
        let workloads = [Workload::ListAppend, Workload::Register, Workload::Predicate];
        for (workload, protocol) in ProtocolOf::with_names().flat_map(|protocol| workloads.map(|of| (of, protocol))) {
            let record = record::<Plain>(workload, fabric, 5, protocol);
            let told = judge::anomalies(&record);
            assert!(told.is_empty(), "{workload:?} on {fabric} by {protocol:?}:\n{}", told.join("\n"));
            let committed = record.iter().filter(|observed| observed.outcome == Outcome::Committed);
            // Some of those that scan are given up.
            let least = if workload == Workload::Predicate { 30 } else { 250 };
            assert!(committed.count() > least, "{workload:?} on {fabric} by {protocol:?}");
            assert!(record.iter().any(|observed| observed.process == CLIENTS), "the last reads");
            if workload == Workload::Predicate {
                let has_scans = |observed: &Observed| {
                    observed.operations.iter().any(|of| matches!(of, Operation::Scan { seen, .. } if !seen.is_empty()))
                };
                assert!(record.iter().any(has_scans), "{fabric} by {protocol:?}: rows in ranges");
                continue;
            }
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
    let is_found = |fault, workload| {
        let record = |seed| record::<Faulty>(workload, FABRICS[1], seed, Protocol::FASST);
        with_fault(fault, || (0..20).any(|seed| !judge::anomalies(&record(seed)).is_empty()))
    };
    for workload in [Workload::ListAppend, Workload::Register] {
        assert!(is_found(Mutation::CommitWithoutValidation, workload), "nothing in any history of {workload:?}");
    }
    assert!(is_found(Mutation::CommitDespitePhantoms, Workload::Predicate), "no phantom in any history");
}
