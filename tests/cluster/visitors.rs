//! Visitors of a node over TCP, which have the cluster's key and are no nodes: they are told how
//! the cluster is, and nothing else.

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{
    Executor, NodeId, TcpConfig, TcpFabric, TcpVisitor, VisitError,
    rpc::{Encode, Procedure, RpcError},
};
use drtm_txn::{Mutation, cluster::Protocol};

use crate::{
    bed::{Setup, node},
    hostile::Noise,
};

const KEY: [u8; 32] = [7; 32];
const PATIENCE: Duration = Duration::from_secs(30);

/// A refusal of what is of no node of this cluster.
const OTHER: u32 = 10;

/// A request of nodes, by its number.
enum Asked<const NUMBER: u16> {}

impl<const N: u16> Procedure for Asked<N> {
    const NUMBER: u16 = N;
    type Request<'a> = Noise;
    type Reply<'a> = Noise;
}

/// What a node that says that it closes sends: its incarnation, and whether all is done. Any node
/// may say so, in any view.
fn closes() -> Vec<u8> {
    let mut bytes = Vec::new();
    (7_u32, true).encode(&mut bytes);
    bytes
}

/// What becomes of requests that a visitor makes of a node.
fn asked() -> Vec<Result<(), VisitError>> {
    let config = TcpConfig::new(NodeId(0), "127.0.0.1:0".parse().expect("an address"), KEY);
    let fabric = TcpFabric::join(NoHtm, config).expect("a port");
    let (address, is_over) = (fabric.address(), &AtomicBool::new(false));
    let (node, _) = node(&fabric, 0, 1, Protocol::FASST);
    thread::scope(|scope| {
        scope.spawn(Setup::inherited(|| {
            let endpoint = node.endpoint().expect("room");
            let mut executor = Executor::new(&endpoint);
            node.worker(&endpoint).expect("few").serve(&executor.spawner());
            executor.spawn(endpoint.until(|| is_over.load(SeqCst)));
            executor.run();
        }));
        let mut visitor = TcpVisitor::connect(address, KEY, PATIENCE).expect("it has the key");
        macro_rules! ask {
            ($($number:literal),+) => {
                vec![$(visitor.call::<Asked<$number>, _>(&Noise(closes()), PATIENCE, drop)),+]
            };
        }
        let all = ask!(26, 5, 21, 25, 31, 33, 35);
        is_over.store(true, SeqCst);
        all
    })
}

fn is_refused(asked: &Result<(), VisitError>) -> bool {
    matches!(asked, Err(VisitError::Call { source: RpcError::Refused { reason: OTHER } | RpcError::Malformed, .. }))
}

#[test]
fn visitors_are_refused_what_nodes_ask() {
    let all = asked();
    assert!(all.iter().all(is_refused), "{all:?}");
}

#[test]
fn visitors_that_are_believed_are_found() {
    let all = Setup::faulty(Mutation::VisitorsBelieved).run(asked);
    assert!(!is_refused(&all[0]), "{all:?}");
}
