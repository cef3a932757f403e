//! Transactions of a cluster, on an owner whose counters wrap around.

use std::{
    ops::Range,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
    thread,
};

use drtm_htm::NoHtm;
use drtm_rdma::{Executor, LocalConfig, LocalFabric, NodeId, block_on};
use drtm_txn::{
    Builder, Config, Error, Mutation, Transaction as _,
    cluster::{Node, Partition, Protocol},
};

use crate::world::{A, B, CHURN, ROUND, SORTED};

#[derive(Debug)]
struct Sound;

impl Config for Sound {
    type Engine = NoHtm;
}

#[derive(Debug)]
struct Faulty;

impl Config for Faulty {
    type Engine = NoHtm;

    fn fault() -> Option<Mutation> {
        Some(Mutation::TurnsNotChecked)
    }
}

/// Commits a transaction whose row was removed after it was read: its memory is another table's row
/// of the same version by then, and has the same name. The transaction is another node's, so that
/// its owner does not know that it is under way, and gives memory out again meanwhile: so many
/// times. The row is read and validated by messages, or by verbs.
fn commits<S: Config<Engine = NoHtm>>(protocol: Protocol, uses: u64) -> Result<(), Error> {
    let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
    let started = |node| {
        let builder = Node::<_, S>::builder_for(NoHtm, &fabric, node, Builder::new().memory(16 << 20), protocol);
        let mut builder = builder.and_then(|builder| builder.owners([NodeId(0)])).expect("it is here");
        let a = builder.table(A, Partition::hash()).expect("memory");
        let sorted = builder.table(SORTED, Partition::hash()).expect("memory");
        builder.table(B, Partition::hash()).expect("memory");
        builder.table(CHURN, Partition::hash()).expect("memory");
        (builder.start().expect("an owner"), a, sorted)
    };
    let ((owner, ..), (client, a, sorted)) = (started(NodeId(0)), started(NodeId(1)));
    let db = owner.local();
    let (rows, others) = (db.table(A).expect("it is there"), db.table(B).expect("it is there"));
    let churn = db.table(CHURN).expect("it is there");
    db.transact(|tx| tx.insert(rows, 1, &100)).expect("room");
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        let serving = owner.clone();
        scope.spawn(move || {
            let endpoint = serving.endpoint().expect("room");
            let mut executor = Executor::new(&endpoint);
            serving.worker(&endpoint).expect("few workers").serve(&executor.spawner());
            executor.spawn(endpoint.until(|| done.load(Acquire)));
            executor.run();
        });
        let endpoint = client.endpoint().expect("room");
        let worker = client.worker(&endpoint).expect("few workers");
        let committed = block_on(&endpoint, async {
            let mut reader = worker.begin().await;
            assert_eq!(reader.get(a, 1).await.expect("alone"), Some(100));
            reader.put(sorted, 1, &1).await.expect("room");
            db.transact(|tx| tx.remove(rows, 1)).expect("it is not locked");
            for _ in 0..uses {
                db.transact(|tx| tx.insert(churn, 1, &0)).expect("room");
                db.transact(|tx| tx.remove(churn, 1)).expect("it is not locked");
            }
            db.transact(|tx| tx.insert(others, 7, &7)).expect("room");
            reader.commit().await
        });
        done.store(true, Release);
        committed
    })
}

/// Two records take turns, since one is kept back whenever it begins a quarter. So the first has
/// its old name again after one of these numbers of uses.
const USES: Range<u64> = 0..2 * ROUND;

const PROTOCOLS: [Protocol; 2] = [Protocol::FASST, Protocol::DRTM_H];

#[test]
fn a_stale_read_does_not_commit() {
    for protocol in PROTOCOLS {
        for uses in USES {
            let committed = commits::<Sound>(protocol, uses);
            assert!(matches!(committed, Err(Error::Conflict(_))), "{}: {committed:?} after {uses}", protocol.name);
        }
    }
}

#[test]
fn a_stale_read_commits_where_turns_are_not_checked() {
    for protocol in PROTOCOLS {
        assert!(USES.map(|uses| commits::<Faulty>(protocol, uses)).any(|committed| committed.is_ok()));
    }
}
