//! What a cluster refuses, by an error that says why.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};

use drtm_htm::NoHtm;
use drtm_rdma::{Executor, LocalConfig, LocalFabric, NodeId, block_on};
use drtm_txn::{
    Builder, Commit, Error, Raw, Sink, SinkError, Table, TableDef, Transaction as _,
    cluster::{ClusterError, Node, Partition, Protocol, Refusal, Sets, Worker},
};

use crate::{bed::Tested, drops::polled};

type Local = LocalFabric<NoHtm>;

fn builder(fabric: &Local, node: u16) -> drtm_txn::cluster::NodeBuilder<Local, Tested> {
    Node::builder(NoHtm, fabric, NodeId(node), Builder::new().memory(16 << 20)).expect("the node is here")
}

const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");

#[test]
fn nodes_that_differ_do_not_meet() {
    let fabric = Local::new(2, LocalConfig::perfect());
    let start = |node, partition: Partition<u64>| {
        let mut builder = builder(&fabric, node).owners([NodeId(0), NodeId(1)]).expect("two");
        let notes = builder.table(NOTES, partition).expect("memory");
        (builder.start().expect("owners"), notes)
    };
    let (here, notes) = start(0, Partition::by("one", |_| 1));
    let (there, _) = start(1, Partition::hash());
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(move || {
            let endpoint = there.endpoint().expect("room");
            let mut executor = Executor::new(&endpoint);
            there.worker(&endpoint).expect("few").serve(&executor.spawner());
            executor.spawn(endpoint.until(|| done.load(SeqCst)));
            executor.run();
        });
        let endpoint = here.endpoint().expect("room");
        let worker = here.worker(&endpoint).expect("few");
        let refused = block_on(&endpoint, worker.transact(async |tx| tx.get(notes, 1).await));
        done.store(true, SeqCst);
        let Err(Error::Cluster(ClusterError::Refused { node: NodeId(1), reason: Refusal::Other })) = refused else {
            panic!("{refused:?}");
        };
    });
}

#[test]
fn a_node_that_is_gone_cannot_be_asked() {
    let fabric = Local::new(2, LocalConfig::perfect());
    let mut builder = builder(&fabric, 0).owners([NodeId(1)]).expect("one");
    let notes = builder.table(NOTES, Partition::hash()).expect("memory");
    let node = builder.start().expect("owners");
    fabric.kill(NodeId(1)).expect("it is here");
    let endpoint = node.endpoint().expect("room");
    let worker = node.worker(&endpoint).expect("few");
    let refused = block_on(&endpoint, worker.transact(async |tx| tx.get(notes, 1).await));
    let Err(Error::Cluster(ClusterError::Unreachable { node: NodeId(1), .. })) = refused else {
        panic!("{refused:?}");
    };
}

#[derive(Debug)]
struct Silent;

impl Sink for Silent {
    fn commit(&self, _commit: &Commit<'_>) -> Result<(), SinkError> {
        Ok(())
    }
}

#[test]
fn no_node_is_started_without_owners_or_with_a_sink() {
    let fabric = Local::new(1, LocalConfig::perfect());
    let none = builder(&fabric, 0).start();
    assert!(matches!(none, Err(Error::Cluster(ClusterError::NoOwners))), "{none:?}");
    let twice = builder(&fabric, 0).owners([NodeId(0), NodeId(0)]);
    assert!(matches!(twice, Err(Error::Cluster(ClusterError::OwnerTwice { node: NodeId(0) }))), "{twice:?}");
    let told = Builder::new().sink(Arc::new(Silent));
    let told = Node::<Local, Tested>::builder(NoHtm, &fabric, NodeId(0), told);
    assert!(matches!(told, Err(Error::Config { what: "the database of a node", .. })), "{told:?}");
    let unknown = Node::<Local, Tested>::builder(NoHtm, &fabric, NodeId(7), Builder::new().memory(16 << 20));
    assert!(matches!(unknown, Err(Error::Cluster(ClusterError::Fabric(_)))), "{unknown:?}");
}

/// What meets a row that a dead node has locked.
#[derive(Clone, Copy, Debug)]
enum Meets {
    Put,
    Update,
    Reads,
    Fetches,
    Writes,
}

impl Meets {
    const ALL: [Self; 5] = [Self::Put, Self::Update, Self::Reads, Self::Fetches, Self::Writes];

    async fn run(self, worker: &Worker<'_, Local, Tested>, notes: Table<u64, Raw>) -> Result<(), Error> {
        type Declared<'s, 't> = Sets<'s, 't, Local, Tested>;
        let rows = [0, 1, 2];
        match self {
            Self::Put => worker.transact(async |tx| tx.put(notes, 1, vec![2; 8]).await).await,
            Self::Update => {
                let update = worker.transact(async |tx| {
                    tx.get(notes, 1).await?;
                    tx.put(notes, 1, vec![2; 8]).await
                });
                update.await
            }
            Self::Reads => worker.transact(async |tx| tx.get_many(notes, rows).await.map(drop)).await,
            Self::Fetches => {
                let declare = |sets: &mut Declared<'_, '_>| rows.into_iter().try_for_each(|row| sets.read(notes, row));
                worker.transact_on(declare, async |tx| tx.get_many(notes, rows).await.map(drop)).await
            }
            Self::Writes => {
                let declare = |sets: &mut Declared<'_, '_>| rows.into_iter().try_for_each(|row| sets.write(notes, row));
                worker.transact_on(declare, async |tx| tx.put(notes, 1, vec![2; 8]).await).await
            }
        }
    }
}

/// What another client gets of a row whose writer has died when its transaction was polled so
/// often. Whether that transaction had come to its end, what the other one gets, and how often it
/// has run in vain.
fn after_death(protocol: Protocol, meets: Meets, polls: u32) -> (bool, Result<(), Error>, u64) {
    let fabric = Local::new(3, LocalConfig::perfect());
    let start = |node| {
        let memory = Builder::new().memory(16 << 20);
        let builder = Node::<_, Tested>::builder_for(NoHtm, &fabric, NodeId(node), memory, protocol);
        let mut builder = builder.and_then(|builder| builder.owners([NodeId(0)])).expect("one");
        let notes = builder.table(NOTES, Partition::hash()).expect("memory");
        (builder.start().expect("owners"), notes)
    };
    let ((owner, notes), (dying, _), (other, _)) = (start(0), start(1), start(2));
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(move || {
            let endpoint = owner.endpoint().expect("room");
            let mut executor = Executor::new(&endpoint);
            owner.worker(&endpoint).expect("few").serve(&executor.spawner());
            executor.spawn(endpoint.until(|| done.load(SeqCst)));
            executor.run();
        });
        let has_ended = {
            let endpoint = dying.endpoint().expect("room");
            let worker = dying.worker(&endpoint).expect("few");
            // Once it is there, verbs lock it.
            let made = worker.transact(async |tx| tx.put(notes, 1, vec![0; 8]).await);
            block_on(&endpoint, made).expect("room");
            let write = worker.transact(async |tx| {
                tx.get(notes, 1).await?;
                tx.put(notes, 1, vec![1; 8]).await
            });
            block_on(&endpoint, polled(write, polls)).is_some()
        };
        fabric.kill(NodeId(1)).expect("it is here");
        let endpoint = other.endpoint().expect("room");
        let worker = other.worker(&endpoint).expect("few");
        let met = block_on(&endpoint, meets.run(&worker, notes));
        done.store(true, SeqCst);
        (has_ended, met, worker.stats().retries())
    })
}

/// It is told at once, whether messages find the lock or verbs.
#[test]
fn a_row_that_a_dead_node_has_locked_is_told_of() {
    for (protocol, meets) in Protocol::with_names().flat_map(|protocol| Meets::ALL.map(|meets| (protocol, meets))) {
        let mut told = 0;
        for polls in 1.. {
            let (has_ended, met, in_vain) = after_death(protocol, meets, polls);
            let case = format!("{}, {meets:?}, after {polls} polls", protocol.name);
            match met {
                Ok(()) => {}
                Err(Error::Cluster(ClusterError::Refused { node: NodeId(0), reason: Refusal::HolderDead })) => {
                    told += 1;
                    assert_eq!(in_vain, 0, "{case}");
                }
                Err(error) => panic!("{case}: {error}"),
            }
            if has_ended {
                break;
            }
        }
        // Where the last phase is not waited for, it may end before it is polled with a lock.
        let waits = [Protocol::FASST, Protocol::FARM, Protocol::DRTM_OCC].contains(&protocol);
        assert!(told > 0 || !waits, "{}, {meets:?}: a transaction locks before it ends", protocol.name);
    }
}

/// Whether a row of an owner can be written, after another owner of a transaction has died when
/// that was polled so often. And whether the transaction had come to its end by then.
fn is_free_after_death(polls: u32) -> (bool, bool) {
    let fabric = Local::new(3, LocalConfig::perfect());
    let start = |node| {
        let mut builder = builder(&fabric, node).owners([NodeId(0), NodeId(1)]).expect("two");
        let notes = builder.table(NOTES, Partition::by("itself", |key| *key)).expect("memory");
        (builder.start().expect("owners"), notes)
    };
    let (owners, (client, notes)) = ([start(0).0, start(1).0], start(2));
    let (done, dead) = (&AtomicBool::new(false), &AtomicBool::new(false));
    thread::scope(|scope| {
        for (owner, ends) in owners.into_iter().zip([dead, done]) {
            // Before it can die.
            let endpoint = owner.endpoint().expect("room");
            scope.spawn(move || {
                let mut executor = Executor::new(&endpoint);
                owner.worker(&endpoint).expect("few").serve(&executor.spawner());
                executor.spawn(endpoint.until(|| ends.load(SeqCst)));
                executor.run();
            });
        }
        let endpoint = client.endpoint().expect("room");
        let worker = client.worker(&endpoint).expect("few");
        let mut executor = Executor::new(&endpoint);
        worker.serve(&executor.spawner());
        let (fabric, outcome) = (&fabric, &std::cell::Cell::new((false, false)));
        executor.spawn(async move {
            let write = worker.transact(async |tx| {
                // The owner that dies is the first that is asked.
                tx.put(notes, 0, vec![1; 8]).await?;
                tx.put(notes, 1, vec![1; 8]).await
            });
            let has_ended = polled(write, polls).await.is_some();
            fabric.kill(NodeId(0)).expect("it is here");
            dead.store(true, SeqCst);
            worker.settle().await;
            let mut tx = worker.begin().await;
            let written = match tx.put(notes, 1, vec![2; 8]).await {
                Ok(()) => tx.commit().await,
                Err(error) => Err(error),
            };
            outcome.set((has_ended, written.is_ok()));
        });
        executor.run();
        done.store(true, SeqCst);
        outcome.get()
    })
}

#[test]
fn an_owner_that_dies_leaves_no_locks_at_others() {
    for polls in 1.. {
        let (has_ended, is_free) = is_free_after_death(polls);
        assert!(is_free, "after {polls} polls");
        if has_ended {
            break;
        }
    }
}
