//! TPC-C in a simulated cluster, and over TCP.

use std::{sync::Arc, time::Duration};

use drtm_drive::{loopback, tcp_config};
use drtm_htm::NoHtm;
use drtm_rdma::{NicProfile, SimConfig, TcpFabric};
use drtm_tpcc::{Kind, Scale};

use super::*;
use crate::{NodeRows, Outcome, Plan, mutation::Mutation, plan::Fault, replay, run, simulate};

const PLAN: Plan = Plan { nodes: 3, workers: 4, batch: 60, epochs: 6, warm: 2, records: true, ..Plan::DEFAULT };

fn scale() -> Scale {
    let scale = Scale::new(6).and_then(|scale| scale.with_customers(30)).and_then(|scale| scale.with_items(100));
    scale.expect("a size")
}

fn simulated(plan: &Plan, seed: u64) -> (Arc<Tpcc>, Result<Outcome, Error>) {
    let (tpcc, stores) = Tpcc::load(scale(), seed, plan.nodes).expect("warehouses for all");
    let tpcc = Arc::new(tpcc);
    let inputs = Tpcc::inputs(&tpcc, stores).expect("terminals");
    let config = SimConfig::new(&NicProfile::CONNECTX_3).seed(seed);
    let outcome = simulate(Arc::clone(&tpcc), plan, config, inputs);
    (tpcc, outcome)
}

fn serially(outcome: &Outcome, seed: u64) -> (NodeRows, u64) {
    let (tpcc, stores) = Tpcc::load(scale(), seed, 1).expect("warehouses for all");
    replay(&tpcc, &stores[0], &outcome.history).expect("they were sent")
}

/// Returns the rows of all nodes.
fn together(outcome: &Outcome) -> NodeRows {
    outcome.rows.iter().flatten().map(|(key, row)| (*key, row.clone())).collect()
}

#[test]
fn the_conditions_hold_and_a_serial_run_has_the_outcome() {
    for seed in 0..3 {
        let (tpcc, outcome) = simulated(&PLAN, seed);
        let outcome = outcome.expect("it ends");
        assert_eq!(violations(&tpcc, &outcome.rows).expect("rows"), Vec::<String>::new());
        let (rows, committed) = serially(&outcome, seed);
        assert!(together(&outcome) == rows, "the nodes have what a serial run makes");
        assert_eq!(outcome.all_committed, committed);
        let sequenced = u64::from(PLAN.nodes) * u64::from(PLAN.batch) * PLAN.epochs;
        assert_eq!(outcome.history.len() as u64, sequenced);
        // Only orders of an item that there is not are given up: no delivery is.
        let aborts = sequenced - committed;
        assert!(aborts < sequenced / 50, "{aborts}");
        assert!(outcome.committed > 0 && outcome.per_second() > 0.0);
    }
}

#[test]
fn transactions_of_all_kinds_run_and_some_are_of_several_nodes() {
    let (tpcc, outcome) = simulated(&PLAN, 4);
    let outcome = outcome.expect("it ends");
    let inputs: Vec<Input> = outcome.history.values().map(|bytes| Input::decode(bytes).expect("sent")).collect();
    let kinds = inputs.iter().map(|input| match input {
        Input::NewOrder { .. } => Kind::NewOrder,
        Input::Payment { .. } => Kind::Payment,
        Input::OrderStatus { .. } => Kind::OrderStatus,
        Input::Delivery { orders, .. } => {
            assert!(!orders.is_empty());
            Kind::Delivery
        }
        Input::StockLevel { .. } => Kind::StockLevel,
    });
    assert_eq!(kinds.collect::<std::collections::BTreeSet<_>>().len(), Kind::ALL.len());
    let distributed = inputs.iter().filter(|input| {
        let mut sets = Sets::default();
        tpcc.declare(input, &mut sets);
        let mut nodes: Vec<_> = sets.keys().map(|(key, _)| tpcc.owner(key)).collect();
        nodes.dedup();
        nodes.iter().any(|node| *node != nodes[0])
    });
    let share = distributed.count() as f64 / inputs.len() as f64;
    assert!((0.02..0.3).contains(&share), "{share}");
}

#[test]
fn faults_break_the_conditions_or_the_order() {
    for fault in [Mutation::LastComesFirst, Mutation::AbortsWrite, Mutation::ReadsNotAwaited] {
        let found = (0..4).any(|seed| {
            let (tpcc, outcome) = simulated(&Plan { fault: Fault(Some(fault)), ..PLAN }, seed);
            // Locks that are granted in another order can also wait for each other for ever.
            let Ok(outcome) = outcome else { return true };
            let violated = violations(&tpcc, &outcome.rows).is_ok_and(|violations| !violations.is_empty());
            violated || together(&outcome) != serially(&outcome, seed).0
        });
        assert!(found, "{fault:?}");
    }
}

#[test]
fn two_nodes_over_tcp_keep_the_conditions() {
    let plan = Plan { nodes: 2, workers: 2, epoch: Duration::from_millis(5), epochs: 4, batch: 40, ..PLAN };
    let addresses = loopback(plan.nodes).expect("free ports");
    let join = |node| TcpFabric::join(NoHtm, tcp_config(node, &addresses, [9; 32])).expect("it listens");
    let fabrics: Vec<_> = (0..plan.nodes).map(join).collect();
    let (tpcc, stores) = Tpcc::load(scale(), 5, plan.nodes).expect("warehouses for all");
    let tpcc = Arc::new(tpcc);
    let inputs = Tpcc::inputs(&tpcc, stores).expect("terminals");
    let outcome = run(Arc::clone(&tpcc), &plan, fabrics, inputs).expect("it ends");
    assert_eq!(violations(&tpcc, &outcome.rows).expect("rows"), Vec::<String>::new());
    let (rows, committed) = serially(&outcome, 5);
    assert_eq!(outcome.all_committed, committed);
    assert!(together(&outcome) == rows, "a serial run has these rows");
}
