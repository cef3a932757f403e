//! Connections that break while both nodes go on, which meet again as the same incarnations.

use std::{
    net::TcpListener,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
};

use drtm_htm::NoHtm;
use drtm_rdma::{Executor, NodeId, TcpConfig, TcpFabric};
use drtm_testing::rounds;
use drtm_txn::cluster::{Node, Protocol};

use crate::bed::{Setup, Tables, Tested, node};

const ROW: u64 = 7;

type Tcp = TcpFabric<NoHtm>;

/// Two nodes, the first of which owns all rows.
fn nodes(protocol: Protocol) -> [(Tcp, Node<Tcp, Tested>, Tables); 2] {
    // Ports that are free, or were a moment ago.
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let at = listeners.each_ref().map(|listener| listener.local_addr().expect("an address"));
    drop(listeners);
    let fabrics = [0, 1].map(|number: u16| {
        let config = TcpConfig::new(NodeId(number), at[usize::from(number)], [7; 32]);
        TcpFabric::join(NoHtm, config.peer(NodeId(1 - number), at[usize::from(1 - number)])).expect("a cluster")
    });
    let mut number = 0;
    fabrics.map(|fabric| {
        let (node, tables) = node(&fabric, number, 1, protocol);
        number += 1;
        (fabric, node, tables)
    })
}

/// Reads a row of a node, to which the connection breaks each time.
fn meet(protocol: Protocol) {
    let [(fabric, owner, tables), (_client, client, _)] = nodes(protocol);
    let is_over = &AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(Setup::inherited(move || {
            let endpoint = owner.endpoint().expect("room");
            let mut executor = Executor::new(&endpoint);
            owner.worker(&endpoint).expect("few").serve(&executor.spawner());
            executor.spawn(endpoint.until(|| is_over.load(SeqCst)));
            executor.run();
        }));
        let endpoint = client.endpoint().expect("room");
        let worker = client.worker(&endpoint).expect("few");
        let mut executor = Executor::new(&endpoint);
        worker.serve(&executor.spawner());
        executor.spawn(async move {
            let put = worker.transact(async |tx| tx.put(tables.words, ROW, vec![1; 8]).await);
            put.await.expect("room");
            let read = async || worker.transact(async |tx| tx.get(tables.words, ROW).await).await;
            for _ in 0..rounds(5) {
                fabric.break_connections();
                // The first one may have found the connection broken.
                let read = match read().await {
                    Ok(read) => read,
                    Err(_) => read().await.expect("the owner is met again"),
                };
                assert_eq!(read, Some(vec![1; 8]));
            }
            is_over.store(true, SeqCst);
        });
        executor.run();
        is_over.store(true, SeqCst);
    });
}

#[test]
fn an_owner_to_which_the_connection_broke_is_met_again() {
    Protocol::with_names().for_each(meet);
}
