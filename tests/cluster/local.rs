//! What a node's own database may do with tables of a cluster.

use std::cell::Cell;

use drtm_htm::NoHtm;
use drtm_rdma::{Executor, LocalConfig, LocalFabric, NodeId};
use drtm_txn::{
    Builder, Error, IndexDef, Ordered, Pod, Table, TableDef, Transaction as _,
    cluster::{ClusterError, Node, NodeBuilder, Partition},
};

use crate::bed::Tested;

type Local = LocalFabric<NoHtm>;

const USERS: TableDef<u64, Pod<u64>> = TableDef::hash("users");
const BY_VALUE: IndexDef<u64, Pod<u64>, u64> = IndexDef::unique("users by value", |_, value| Some(value));
const OTHER: IndexDef<u64, Pod<u64>, u64> = IndexDef::unique("another index", |key, _| Some(*key));
const EVENTS: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("events");

fn builder() -> NodeBuilder<Local, Tested> {
    let fabric = Local::new(1, LocalConfig::perfect());
    let builder = Node::builder(NoHtm, &fabric, NodeId(0), Builder::new().memory(16 << 20));
    builder.and_then(|builder| builder.owners([NodeId(0)])).expect("the node is here")
}

fn is_of_cluster<T>(result: Result<T, Error>, name: &str) -> bool {
    matches!(result, Err(Error::OfCluster { table }) if table == name)
}

#[test]
fn rows_with_entries_elsewhere_are_only_read() {
    let mut builder = builder();
    let users = builder.table(USERS, Partition::hash()).expect("memory");
    builder.index(users, BY_VALUE, Partition::hash()).expect("memory");
    let before = builder.local().expect("memory").table(USERS).expect("it is there");
    let early = builder.local().expect("memory").transact(|tx| tx.put(before, 1, &2));
    assert!(is_of_cluster(early, "users"), "also before it is started");
    let node = builder.start().expect("owners");
    let db = node.local();
    let users: Table<u64, Pod<u64>> = db.table(USERS).expect("it is there");
    assert!(is_of_cluster(db.transact(|tx| tx.put(users, 1, &2)), "users"));
    assert!(is_of_cluster(db.transact(|tx| tx.insert(users, 1, &2)), "users"));
    assert!(is_of_cluster(db.transact(|tx| tx.insert_many(users, [(1, &2)])), "users"));
    assert!(is_of_cluster(db.transact(|tx| tx.entry(users, 1)?.or_insert(2)), "users"));
    assert_eq!(db.transact(|tx| tx.update(users, 1, |value| *value += 1)).expect("there is none"), None);
    assert_eq!(db.read(|tx| tx.get(users, 1)).expect("it is read"), None);
    assert!(is_of_cluster(db.drop_table("users"), "users"));
}

#[test]
fn rows_without_entries_are_written_as_well() {
    let mut builder = builder();
    let events = builder.table(EVENTS, Partition::hash()).expect("memory");
    let local = builder.local().expect("memory").table(EVENTS).expect("it is there");
    builder.local().expect("memory").transact(|tx| tx.put(local, 1, &2)).expect("room");
    let node = builder.start().expect("owners");
    node.local().transact(|tx| tx.put(local, 2, &3)).expect("room");
    let endpoint = node.endpoint().expect("room");
    let worker = node.worker(&endpoint).expect("few");
    let all = worker.transact(async |tx| tx.range(events, ..).await);
    assert_eq!(drtm_rdma::block_on(&endpoint, all).expect("it is here"), [(1, 2), (2, 3)]);
    assert!(is_of_cluster(node.local().drop_table("events"), "events"));
}

#[test]
fn transactions_that_wait_for_nothing_let_others_run() {
    let mut builder = builder();
    let events = builder.table(EVENTS, Partition::hash()).expect("memory");
    let node = builder.start().expect("owners");
    let endpoint = node.endpoint().expect("room");
    let worker = node.worker(&endpoint).expect("few");
    let is_heard = Cell::new(false);
    let mut executor = Executor::new(&endpoint);
    executor.spawn(async {
        for turn in 0.. {
            assert!(turn < 1_000, "nobody else has run");
            if is_heard.get() {
                break;
            }
            worker.transact(async |tx| tx.get(events, 1).await).await.expect("it is here");
        }
    });
    executor.spawn(async { is_heard.set(true) });
    executor.run();
}

#[test]
fn a_table_has_indexes_of_its_node_or_of_the_cluster() {
    let mut one = builder();
    let users = one.local().expect("memory").table(USERS).expect("memory");
    one.local().expect("memory").index(users, OTHER).expect("memory");
    assert!(is_of_cluster(one.table(USERS, Partition::hash()), "users"));

    let mut two = builder();
    two.table(USERS, Partition::hash()).expect("memory");
    let users = two.local().expect("memory").table(USERS).expect("it is there");
    assert!(is_of_cluster(two.local().expect("memory").index(users, OTHER), "users"));
}

#[test]
fn an_index_is_defined_before_there_are_rows() {
    let mut builder = builder();
    let users = builder.table(USERS, Partition::hash()).expect("memory");
    let local = builder.local().expect("memory").table(USERS).expect("it is there");
    builder.local().expect("memory").transact(|tx| tx.put(local, 1, &2)).expect("room");
    let late = builder.index(users, BY_VALUE, Partition::hash());
    assert!(matches!(late, Err(Error::Cluster(ClusterError::NotEmpty { table: "users" }))), "{late:?}");
}
