//! Transactions of the simulation on other fabrics, with threads: the outcome is equal.

use std::{sync::Arc, time::Duration};

use drtm_drive::{loopback, tcp_config};
use drtm_htm::NoHtm;
use drtm_rdma::{Fabric, LocalConfig, LocalFabric, TcpFabric};

use super::{Case, Mixing, together};
use crate::run;

const CASE: Case = Case { nodes: 2, workers: 2, batch: 50, epochs: 4, keys: 8, inputs: 3 };

fn is_as_simulated<F: Fabric<Engine = NoHtm>>(fabrics: Vec<F>) {
    let mut plan = CASE.plan(None);
    plan.epoch = Duration::from_millis(5);
    let outcome = run(Arc::new(Mixing { nodes: CASE.nodes }), &plan, fabrics, CASE.inputs()).expect("it ends");
    assert_eq!(CASE.differs(&outcome), None);
    let simulated = CASE.run(0, None).expect("it ends");
    assert_eq!(outcome.history, simulated.history);
    assert_eq!(together(&outcome.rows), together(&simulated.rows));
}

#[test]
fn two_nodes_within_a_process_do_what_the_simulation_does() {
    let fabric = LocalFabric::<NoHtm>::new(CASE.nodes, LocalConfig::perfect());
    is_as_simulated(vec![fabric.clone(), fabric]);
}

#[test]
fn two_nodes_over_tcp_do_what_the_simulation_does() {
    let addresses = loopback(CASE.nodes).expect("free ports");
    let join = |node| TcpFabric::join(NoHtm, tcp_config(node, &addresses, [7; 32])).expect("it listens");
    is_as_simulated((0..CASE.nodes).map(join).collect());
}
