//! Snapshots of one node's rows, beside transactions over all nodes: each sees transactions whole,
//! as far as their rows are there, and all that had committed before.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use drtm_htm::NoHtm;
use drtm_rdma::{LocalConfig, LocalFabric};
use drtm_testing::rounds;
use drtm_txn::{
    Raw, TableDef, Transaction as _,
    cluster::{Cluster, Protocol},
};
use fastrand::Rng;

use crate::bed::{SetAtEnd, Tested, node};

type Local = Cluster<LocalFabric<NoHtm>, Tested>;

/// As in the bed. Even rows are the first node's, and odd ones the second's.
const WORDS: TableDef<u64, Raw> = TableDef::hash("words");

const ROWS: u64 = 6;
const START: i64 = 1_000;

fn number(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// Moves money between rows of each node, in one transaction, and tells how many have committed.
fn run(protocol: Protocol, config: &LocalConfig) {
    let fabric = LocalFabric::<NoHtm>::new(2, config.clone());
    let [(one, tables), (two, _)] = [0, 1].map(|number| node(&fabric, number, 2, protocol));
    let databases = [one.local().clone(), two.local().clone()];
    let clusters: [Local; 2] = [one, two].map(|node| Cluster::start(node, 1).expect("threads"));
    let opened = clusters[0].transact(async move |tx| {
        for row in 0..2 * ROWS {
            tx.put(tables.words, row, START.to_le_bytes().to_vec()).await?;
        }
        // How many transactions have committed, at both nodes.
        tx.put(tables.words, 100, 0_i64.to_le_bytes().to_vec()).await?;
        tx.put(tables.words, 101, 0_i64.to_le_bytes().to_vec()).await
    });
    opened.wait().expect("room");
    let (committed, is_over, looks) = (&AtomicU64::new(0), &AtomicBool::new(false), &AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (first, db) in databases.iter().enumerate() {
            scope.spawn(move || {
                let _ends = SetAtEnd(is_over);
                let words = db.table(WORDS).expect("it is there");
                let keys: Vec<u64> = (0..ROWS).map(|row| 2 * row + first as u64).collect();
                let mut last = 0;
                while !is_over.load(SeqCst) {
                    let before = committed.load(SeqCst) as i64;
                    let snapshot = db.snapshot().expect("no closure runs here");
                    let all = snapshot.get_many(words, &keys).expect("they are kept");
                    let sum: i64 = all.iter().map(|row| number(row.as_deref().expect("it was opened"))).sum();
                    assert_eq!(sum, START * ROWS as i64, "{}", protocol.name);
                    let count = snapshot.get(words, 100 + first as u64).expect("it is kept").expect("it was opened");
                    let count = number(&count);
                    assert!(count >= before, "{}: {count} where {before} had committed", protocol.name);
                    assert!(count >= last, "it went back");
                    last = count;
                    // In a snapshot everything stays as it is.
                    assert_eq!(snapshot.get_many(words, &keys).expect("they are kept"), all);
                    drop(snapshot);
                    let read = db.read(|tx| tx.get_many(words, &keys)).expect("they are there");
                    let sum: i64 = read.iter().map(|row| number(row.as_deref().expect("it was opened"))).sum();
                    assert_eq!(sum, START * ROWS as i64, "{}", protocol.name);
                    looks.fetch_add(1, SeqCst);
                }
            });
        }
        let _ends = SetAtEnd(is_over);
        let mut random = Rng::with_seed(7);
        for turn in 0..rounds(300) {
            let [from, to] = [random.u64(0..ROWS), random.u64(0..ROWS)];
            let amount = random.i64(1..9);
            let moved = clusters[turn as usize % 2].transact(async move |tx| {
                for node in 0..2 {
                    let add = |by: i64| move |bytes: &mut Vec<u8>| *bytes = (number(bytes) + by).to_le_bytes().to_vec();
                    tx.update(tables.words, 2 * from + node, add(-amount)).await?;
                    tx.update(tables.words, 2 * to + node, add(amount)).await?;
                    tx.update(tables.words, 100 + node, add(1)).await?;
                }
                Ok(())
            });
            moved.wait().expect("both are here");
            committed.fetch_add(1, SeqCst);
        }
        // Each has looked at least once while there was something to see.
        while looks.load(SeqCst) < 10 && !is_over.load(SeqCst) {
            std::thread::yield_now();
        }
    });
}

#[test]
fn of_a_node_see_transactions_whole() {
    for protocol in Protocol::ALL {
        run(protocol, &LocalConfig::perfect());
        run(protocol, &LocalConfig::harsh(3));
    }
}
