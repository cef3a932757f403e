//! A snapshot of one node sees what was there, whatever other nodes write meanwhile.

use drtm_htm::NoHtm;
use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, block_on};
use drtm_txn::{
    Builder, Mutation, Raw, TableDef,
    cluster::{Node, Partition, Protocol},
};

use crate::bed::{Setup, Tested};

const ROWS: TableDef<u64, Raw> = TableDef::hash("rows");

/// What a snapshot sees of a row that another node overwrites after it was opened.
fn seen(protocol: Protocol) -> Vec<u8> {
    let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
    let start = |number| {
        let builder = Builder::new().memory(16 << 20);
        let node = Node::<_, Tested>::builder_for(NoHtm, &fabric, NodeId(number), builder, protocol);
        let mut node = node.and_then(|node| node.owners([NodeId(0)])).expect("the node is here");
        let rows = node.table(ROWS, Partition::hash()).expect("memory");
        (node.start().expect("owners"), rows)
    };
    let ((owner, rows), (client, _)) = (start(0), start(1));
    let local = owner.local().table(ROWS).expect("it is there");
    let served = owner.clone();
    let done = &std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(Setup::inherited(move || {
            let endpoint = served.endpoint().expect("room");
            let mut executor = drtm_rdma::Executor::new(&endpoint);
            served.worker(&endpoint).expect("few").serve(&executor.spawner());
            executor.spawn(endpoint.until(|| done.load(std::sync::atomic::Ordering::SeqCst)));
            executor.run();
        }));
        let endpoint = fabric.endpoint(NodeId(1)).expect("room");
        let worker = client.worker(&endpoint).expect("few");
        let write = |value: &'static [u8]| {
            let written = worker.transact(async |tx| {
                tx.get(rows, 7).await?;
                tx.put(rows, 7, value).await
            });
            let fetched = worker.transact_on(|sets| sets.write(rows, 7), |all| all.put(rows, 7, value));
            let written = async { if protocol.leases { fetched.await } else { written.await } };
            block_on(&endpoint, written).expect("both are here");
        };
        write(b"before");
        let snapshot = owner.local().snapshot().expect("no closure runs here");
        write(b"later!");
        write(b"later?");
        let seen = snapshot.get(local, 7).expect("it was kept");
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        seen.expect("it was there")
    })
}

#[test]
fn a_snapshot_sees_what_was_there() {
    for protocol in Protocol::ALL.into_iter().chain([Protocol::DRTM]) {
        assert_eq!(seen(protocol), b"before", "{}", protocol.name);
    }
}

#[test]
fn a_row_that_is_overwritten_under_a_snapshot_is_found() {
    for protocol in [Protocol::DRTM_OCC, Protocol::DRTM] {
        let seen = std::panic::catch_unwind(|| Setup::faulty(Mutation::SnapshotsOverwritten).run(|| seen(protocol)));
        assert!(seen.map_or(true, |seen| seen != b"before"));
    }
}
