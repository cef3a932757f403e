//! A snapshot of one node sees what was there, whatever other nodes write meanwhile.

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{Executor, Fabric, LocalConfig, LocalFabric, NodeId, block_on};
use drtm_testing::rounds;
use drtm_txn::{
    Builder, Mutation, Raw, TableDef, Transaction as _,
    cluster::{Node, Partition, Protocol},
};

use crate::bed::{SetAtEnd, Setup, Tested, WORDS, node};
use crate::hades::BY_LINES;

const ROWS: TableDef<u64, Raw> = TableDef::hash("rows");

/// Writes two rows to one value, over and over, by verbs that take one lock late: the row has been
/// leased. Whether a snapshot of their owner has seen two values.
fn sees_halves(writes: u64) -> bool {
    // So long that a snapshot can be opened between two locks of a round.
    let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect().latency(Duration::from_micros(200)));
    let (owner, tables) = node(&fabric, 0, 1, Protocol::DRTM);
    let (client, _) = node(&fabric, 1, 1, Protocol::DRTM);
    let (served, done, halves) = (owner.clone(), &AtomicBool::new(false), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(Setup::inherited(move || {
            let endpoint = served.endpoint().expect("room");
            let mut executor = Executor::new(&endpoint);
            served.worker(&endpoint).expect("few").serve(&executor.spawner());
            executor.spawn(endpoint.until(|| done.load(SeqCst)));
            executor.run();
        }));
        scope.spawn(Setup::inherited(|| {
            let (db, words) = (owner.local(), owner.local().table(WORDS).expect("it is there"));
            while !done.load(SeqCst) {
                let seen = db.read(|tx| Ok((tx.get(words, 1)?, tx.get(words, 2)?))).expect("sound");
                halves.fetch_or(seen.0 != seen.1, SeqCst);
            }
        }));
        let _ends = SetAtEnd(done);
        let endpoint = client.endpoint().expect("room");
        let worker = client.worker(&endpoint).expect("few");
        let mut executor = Executor::new(&endpoint);
        worker.serve(&executor.spawner());
        executor.spawn(async move {
            for turn in 0..writes {
                let value = turn.to_le_bytes();
                let written = worker.transact(async |tx| {
                    tx.get_many(tables.words, [1, 2]).await?;
                    tx.put(tables.words, 1, &value[..]).await?;
                    tx.put(tables.words, 2, &value[..]).await
                });
                written.await.expect("both are here");
                if halves.load(SeqCst) {
                    break;
                }
                let leased =
                    worker.transact_on(|sets| sets.read(tables.words, 1), async |rows| rows.get(tables.words, 1).await);
                leased.await.expect("both are here");
                // Until the lease is over, whatever is known of the time.
                worker.endpoint().sleep(Duration::from_millis(4)).await;
            }
            done.store(true, SeqCst);
        });
        executor.run();
    });
    halves.load(SeqCst)
}

#[test]
fn a_snapshot_sees_all_of_a_transaction_whose_locks_are_late() {
    assert!(!sees_halves(rounds(40)));
    let found = Setup::faulty(Mutation::LateLinesNotRead).run(|| (0..rounds(20)).any(|_| sees_halves(100)));
    assert!(found, "no snapshot comes in between");
}

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
            let fetched = worker.transact_on(|sets| sets.write(rows, 7), async |all| all.put(rows, 7, value).await);
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
    for protocol in Protocol::ALL.into_iter().chain([Protocol::DRTM]).chain(BY_LINES) {
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
