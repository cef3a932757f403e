//! Transactions of a cluster, on an owner whose counters wrap around.

use std::{
    future::{Future, poll_fn},
    ops::Range,
    pin::pin,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
    task::Poll,
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{Executor, LocalConfig, LocalFabric, NodeId, block_on};
use drtm_txn::{
    Builder, Config, Db, Error, Mutation, Ordered, Pod, Table, TableDef, Transaction as _,
    cluster::{Node, Partition, Protocol},
};

use crate::world::{A, B, CHURN, ROUND, Rows, SORTED, Sorted};

type Wide = Table<u64, Pod<[u64; 4]>, Ordered>;

/// Rows that take as much memory as those of a table of words that has checksums.
const WIDE: TableDef<u64, Pod<[u64; 4]>, Ordered> = TableDef::ordered("wide");

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

#[derive(Debug)]
struct Believing;

impl Config for Believing {
    type Engine = NoHtm;

    fn fault() -> Option<Mutation> {
        Some(Mutation::OldTurnsBelieved)
    }
}

/// When a row is removed that a transaction has read.
#[derive(Clone, Copy, Debug)]
enum Removed {
    /// Before it begins to commit.
    Before,
    /// Between two rounds of its commit: once it has locked another row, and before it validates.
    Between,
}

/// The owner, and its tables.
struct Owned<S: Config> {
    db: Db<S>,
    rows: Rows,
    others: Rows,
    churn: Sorted,
    wide: Wide,
    /// Whether rows have checksums, for peers.
    is_checked: bool,
}

impl<S: Config<Engine = NoHtm>> Owned<S> {
    /// Removes the row that was read, and gives its memory out again so many times to rows that
    /// take as much, and at last to another table's row.
    fn reuse(&self, uses: u64) {
        self.db.transact(|tx| tx.remove(self.rows, 1)).expect("it is not locked");
        for _ in 0..uses {
            match self.is_checked {
                true => self.db.transact(|tx| tx.insert(self.wide, 1, &[0; 4])).expect("room"),
                false => self.db.transact(|tx| tx.insert(self.churn, 1, &0)).expect("room"),
            }
            match self.is_checked {
                true => self.db.transact(|tx| tx.remove(self.wide, 1)).map(drop).expect("it is not locked"),
                false => self.db.transact(|tx| tx.remove(self.churn, 1)).map(drop).expect("it is not locked"),
            }
        }
        self.db.transact(|tx| tx.insert(self.others, 7, &7)).expect("room");
    }
}

/// Commits a transaction whose row was removed after it was read: its memory is another table's row
/// of the same version by then, and has the same name. The transaction is another node's, so that
/// its owner does not know that it is under way, and gives memory out again meanwhile: so many
/// times. The row is read and validated by messages, or by verbs.
fn commits<S: Config<Engine = NoHtm>>(protocol: Protocol, removed: Removed, uses: u64) -> Result<(), Error> {
    let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
    let started = |node| {
        let builder = Node::<_, S>::builder_for(NoHtm, &fabric, node, Builder::new().memory(16 << 20), protocol);
        let mut builder = builder.and_then(|builder| builder.owners([NodeId(0)])).expect("it is here");
        let a = builder.table(A, Partition::hash()).expect("memory");
        let sorted = builder.table(SORTED, Partition::hash()).expect("memory");
        builder.table(B, Partition::hash()).expect("memory");
        builder.table(CHURN, Partition::hash()).expect("memory");
        builder.table(WIDE, Partition::hash()).expect("memory");
        (builder.start().expect("an owner"), a, sorted)
    };
    let ((owner, ..), (client, a, sorted)) = (started(NodeId(0)), started(NodeId(1)));
    let db = owner.local().clone();
    let (rows, others) = (db.table(A).expect("it is there"), db.table(B).expect("it is there"));
    let (churn, wide) = (db.table(CHURN).expect("it is there"), db.table(WIDE).expect("it is there"));
    db.transact(|tx| tx.insert(rows, 2, &200)).expect("room");
    db.transact(|tx| tx.insert(rows, 1, &100)).expect("room");
    let owned = Owned { db, rows, others, churn, wide, is_checked: protocol.is_one_sided() };
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
            match removed {
                Removed::Before => {
                    reader.put(sorted, 1, &1).await.expect("room");
                    owned.reuse(uses);
                    reader.commit().await
                }
                Removed::Between => {
                    assert_eq!(reader.get(a, 2).await.expect("alone"), Some(200));
                    reader.put(a, 2, &201).await.expect("room");
                    let mut commit = pin!(reader.commit());
                    // The first round of verbs is posted, and carried out meanwhile.
                    let locks = poll_fn(|context| Poll::Ready(commit.as_mut().poll(context)));
                    assert!(locks.await.is_pending(), "this tests nothing: nothing is between its rounds");
                    endpoint.sleep(Duration::from_millis(1)).await;
                    owned.reuse(uses);
                    commit.await
                }
            }
        });
        done.store(true, Release);
        committed
    })
}

/// Two records take turns, since one is kept back whenever it begins a quarter. So the first has
/// its old name again after one of these numbers of uses.
const USES: Range<u64> = 0..2 * ROUND;

const PROTOCOLS: [Protocol; 2] = [Protocol::FASST, Protocol::DRTM_H];

fn conflicts(protocol: Protocol, removed: Removed) {
    for uses in USES {
        let committed = commits::<Sound>(protocol, removed, uses);
        assert!(matches!(committed, Err(Error::Conflict(_))), "{}: {committed:?} after {uses}", protocol.name);
    }
}

fn commits_once<S: Config<Engine = NoHtm>>(protocol: Protocol, removed: Removed) -> bool {
    USES.map(|uses| commits::<S>(protocol, removed, uses)).any(|committed| committed.is_ok())
}

#[test]
fn a_stale_read_does_not_commit() {
    PROTOCOLS.into_iter().for_each(|protocol| conflicts(protocol, Removed::Before));
}

#[test]
fn a_stale_read_commits_where_turns_are_not_checked() {
    for protocol in PROTOCOLS {
        assert!(commits_once::<Faulty>(protocol, Removed::Before), "{}", protocol.name);
    }
}

#[test]
fn a_row_that_goes_stale_between_two_rounds_does_not_commit() {
    conflicts(Protocol::DRTM_H, Removed::Between);
}

#[test]
fn a_row_that_goes_stale_between_two_rounds_commits_where_old_turns_are_believed() {
    assert!(commits_once::<Believing>(Protocol::DRTM_H, Removed::Between));
}
