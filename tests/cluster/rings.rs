//! Transactions whose owners have backups: what they cost, what is refused, and that replicas are
//! equal to their owners when all is quiet.

use std::{
    cell::RefCell,
    panic::catch_unwind,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{Counters, Executor, Fabric, LocalConfig, LocalFabric, NodeId, Phase, block_on};
use drtm_testing::rounds;
use drtm_txn::{
    Builder, Error, Mutation, Options, Raw, TableDef, Transaction as _,
    cluster::{ClusterError, Node, Partition, Protocol, Refusal, Worker},
};

use crate::{
    bed::{Bed, Rings, Script, Setup, Size, Tables, Tested, backed_up},
    drops::polled,
    history::logged_anomalies,
};

type Local = LocalFabric<NoHtm>;

/// Three owners with two backups each, whose rings wrap around often.
const SIZE: Size = Size { nodes: 3, owners: 3, coroutines: 4, protocol: Protocol::FASST };
const RINGS: Rings = Rings { backups: 2, bytes: 4 << 10, ..Rings::NONE };

/// Protocols that log by message, and by verbs, and that do not wait for their last phase.
const PROTOCOLS: [Protocol; 3] = [Protocol::FASST, Protocol::FARM, Protocol::DRTM_H];

fn check(bed: impl Fn(u64) -> Bed, seeds: u64) {
    for protocol in PROTOCOLS {
        for seed in 0..rounds(seeds) {
            let (size, keys) = (Size { protocol, ..SIZE }, [2, 6, 40][seed as usize % 3]);
            let anomalies = logged_anomalies(&bed(seed), size, (keys, 25), seed, RINGS);
            let told: Vec<String> = anomalies.iter().map(ToString::to_string).collect();
            assert!(told.is_empty(), "seed {seed}, {size:?}:\n{}", told.join("\n"));
        }
    }
}

#[test]
fn histories_of_one_process() {
    check(|seed| [Bed::perfect(), Bed::harsh(seed), Bed::harsh_and_atomic(seed)][seed as usize % 3].clone(), 3);
}

#[test]
fn histories_of_simulated_clusters() {
    check(|seed| [Bed::atomic(seed), Bed::rough(seed), Bed::simulated(seed)][seed as usize % 3].clone(), 3);
}

#[test]
fn histories_of_shared_memory_and_sockets() {
    check(|seed| [Bed::Shm, Bed::Tcp][seed as usize % 2].clone(), 2);
}

/// Runs transactions of a node that owns nothing, which write a row of each of so many of three
/// owners. Gives what the logging phase of the last one has done: calls, WRITEs, doorbells that are
/// waited for, and bytes sent.
fn logged(protocol: Protocol, backups: usize, owners: u64) -> [u64; 4] {
    let fabric = Local::new(4, LocalConfig::perfect());
    let rings = Rings { backups, ..Rings::default() };
    let nodes: Vec<(Node<Local, Tested>, Tables)> =
        (0..4).map(|number| backed_up(&fabric, number, 3, protocol, rings)).collect();
    let (done, measured) = (&AtomicBool::new(false), Arc::new(Mutex::new(Counters::default())));
    thread::scope(|scope| {
        for (node, _) in &nodes[..3] {
            scope.spawn(Setup::inherited(move || serve(node, done)));
        }
        let (client, tables) = &nodes[3];
        let endpoint = client.endpoint().expect("room for an endpoint");
        let worker = client.worker(&endpoint).expect("few workers");
        let mut executor = Executor::new(&endpoint);
        worker.serve(&executor.spawner());
        let (tables, seen) = (*tables, Arc::clone(&measured));
        executor.spawn(async move {
            for round in 0..3_u64 {
                worker.settle().await;
                let before = worker.endpoint().counters();
                let written = worker.transact(async |tx| {
                    for row in 0..owners {
                        tx.put(tables.words, row, &round.to_le_bytes()[..]).await?;
                    }
                    Ok(())
                });
                written.await.expect("no other client is here");
                worker.settle().await;
                *seen.lock().expect("no thread panics") = worker.endpoint().counters() - before;
            }
        });
        executor.run();
        done.store(true, SeqCst);
    });
    let of = measured.lock().expect("no thread panics")[Phase::Log];
    [of.calls, of.writes, of.round_trips, of.bytes_out]
}

/// Serves a node until that is over.
fn serve(node: &Node<Local, Tested>, done: &AtomicBool) {
    let endpoint = node.endpoint().expect("room for an endpoint");
    let mut executor = Executor::new(&endpoint);
    node.worker(&endpoint).expect("few workers").serve(&executor.spawner());
    executor.spawn(endpoint.until(|| done.load(SeqCst)));
    executor.run();
}

/// Bytes of a record with rows of eight bytes, of so many of the transaction's owners.
fn record_bytes(participants: u64, owners: u64) -> u64 {
    // Of each owner: head, four numbers of a byte each, key, value, mark.
    let redo = (24_u64 + 4 + 8 + 8).next_multiple_of(8) + 8;
    48 + (4 * participants).next_multiple_of(8) + owners * redo + 8
}

#[test]
fn a_transaction_logs_one_record_at_each_backup() {
    for (backups, owners) in [(1, 1), (2, 1), (1, 3), (2, 3)] {
        // Each node backs up as many of three owners as each has backups.
        let (records, each) = if owners == 1 { (backups as u64, 1) } else { (3, backups as u64) };
        for protocol in [Protocol::FARM, Protocol::DRTM_OCC, Protocol::DRTM_H] {
            let bytes = records * record_bytes(owners, each);
            let what = (protocol.name, backups, owners);
            assert_eq!(logged(protocol, backups, owners), [0, records, records, bytes], "{what:?}");
        }
        let [calls, writes, round_trips, _] = logged(Protocol::FASST, backups, owners);
        assert_eq!([calls, writes, round_trips], [records, 0, records], "{backups} backups, {owners} owners");
    }
    for protocol in Protocol::ALL {
        assert_eq!(logged(protocol, 0, 3), [0; 4], "without backups nothing is logged");
    }
}

/// What becomes of a transaction, and of small ones after it.
fn with_two_nodes(
    protocol: Protocol,
    bytes: u64,
    run: impl AsyncFnOnce(&Worker<'_, Local, Tested>, Tables) -> Result<(), Error>,
) -> Result<(), Error> {
    let fabric = Local::new(3, LocalConfig::perfect());
    let rings = Rings { backups: 1, bytes, ..Rings::default() };
    let [(one, _), (two, _), (client, tables)] = [0, 1, 2].map(|node| backed_up(&fabric, node, 2, protocol, rings));
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        for node in [&one, &two] {
            scope.spawn(Setup::inherited(move || serve(node, done)));
        }
        let endpoint = client.endpoint().expect("room");
        let worker = client.worker(&endpoint).expect("few");
        let outcome = Rc::new(RefCell::new(Ok(())));
        let mut executor = Executor::new(&endpoint);
        worker.serve(&executor.spawner());
        let told = Rc::clone(&outcome);
        executor.spawn(async move {
            let ended = run(&worker, tables).await;
            *told.borrow_mut() = ended;
        });
        executor.run();
        done.store(true, SeqCst);
        outcome.replace(Ok(()))
    })
}

#[test]
fn a_transaction_larger_than_a_ring_is_refused() {
    for protocol in PROTOCOLS {
        let ran = with_two_nodes(protocol, 1 << 10, async |worker, tables| {
            let write = async |bytes: usize| {
                let written = worker.transact(async |tx| {
                    tx.put(tables.words, 1, vec![7; 8]).await?;
                    tx.put(tables.words, 2, vec![7; bytes]).await
                });
                written.await
            };
            write(8).await?;
            let refused = write(2_000).await;
            let Err(Error::Cluster(ClusterError::LogTooLarge { bytes: 2_000.., most: 1_024 })) = refused else {
                panic!("{refused:?}");
            };
            // Nothing is locked, and nothing has happened.
            let seen = worker.transact(async |tx| tx.get(tables.words, 2).await).await?;
            assert_eq!(seen, Some(vec![7; 8]));
            write(100).await?;
            worker.catch_up().await
        });
        ran.expect("owners are here");
    }
}

#[test]
fn a_ring_that_stays_full_is_told_of() {
    for protocol in PROTOCOLS {
        let act = async |worker: &Worker<'_, Local, Tested>, tables: Tables| {
            let (mut written, mut value) = (0, 0_u64);
            let full = loop {
                value += 1;
                let put = worker.transact(async |tx| {
                    tx.put(tables.words, 1, &value.to_le_bytes()[..]).await?;
                    tx.put(tables.words, 2, &value.to_le_bytes()[..]).await
                });
                match put.await {
                    Ok(()) => written += 1,
                    Err(error) => break error,
                }
                assert!(written < 100, "the ring has no room for so many");
            };
            assert!(matches!(full, Error::Cluster(ClusterError::LogFull { .. })), "{full}");
            assert!(written >= 4, "the ring has room for some");
            // Nothing is locked, and nothing has happened of the last one.
            let seen = worker.transact(async |tx| tx.get_many(tables.words, [1, 2]).await).await?;
            let expected = Some((value - 1).to_le_bytes().to_vec());
            assert_eq!(seen, [expected.clone(), expected]);
            Ok(())
        };
        let ran = Setup::faulty(Mutation::LogsNotApplied).run(|| with_two_nodes(protocol, 1 << 10, act));
        ran.expect("owners are here");
    }
}

/// Kills the backup of a row's owner when a transaction that writes the row was polled so often.
/// Whether that had come to its end; what it gave if it goes on; and what a later one gets, which
/// writes the row, and one that reads it.
fn after_death_of_backup(protocol: Protocol, polls: u32) -> (bool, Result<(), Error>, Result<(), Error>) {
    let fabric = Local::new(3, LocalConfig::perfect());
    let rings = Rings { backups: 1, ..Rings::default() };
    let start = |node| backed_up(&fabric, node, 2, protocol, rings);
    let ((owner, _), (backup, _), (client, tables)) = (start(0), start(1), start(2));
    let (done, dead) = (&AtomicBool::new(false), &AtomicBool::new(false));
    thread::scope(|scope| {
        for (node, ends) in [(&owner, done), (&backup, dead)] {
            // Before it can die.
            let endpoint = node.endpoint().expect("room");
            scope.spawn(move || {
                let mut executor = Executor::new(&endpoint);
                node.worker(&endpoint).expect("few").serve(&executor.spawner());
                executor.spawn(endpoint.until(|| ends.load(SeqCst)));
                executor.run();
            });
        }
        let endpoint = client.endpoint().expect("room");
        let worker = client.worker(&endpoint).expect("few");
        let mut executor = Executor::new(&endpoint);
        worker.serve(&executor.spawner());
        let outcome = Rc::new(RefCell::new(None));
        let (told, fabric) = (Rc::clone(&outcome), fabric.clone());
        executor.spawn(async move {
            let write = async |value: u8| {
                // There is no view without the backup to wait for.
                let options = match value {
                    1 => Options::new(),
                    _ => Options::new().within(Duration::from_millis(100)),
                };
                let written = worker.transact_with(options, async |tx| {
                    tx.get(tables.words, 0).await?;
                    tx.put(tables.words, 0, vec![value; 8]).await
                });
                written.await
            };
            write(1).await.expect("all are here");
            let mut going_on = Box::pin(write(2));
            let has_ended = polled(going_on.as_mut(), polls).await.is_some();
            fabric.kill(NodeId(1)).expect("it is here");
            dead.store(true, SeqCst);
            let first = if has_ended { Ok(()) } else { going_on.await };
            worker.settle().await;
            let later = write(3).await;
            let seen = worker.transact(async |tx| tx.get(tables.words, 0).await).await.expect("its owner is here");
            let expected = if first.is_ok() { 2 } else { 1 };
            assert_eq!(seen, Some(vec![expected; 8]), "after {polls} polls");
            *told.borrow_mut() = Some((has_ended, first, later));
        });
        executor.run();
        done.store(true, SeqCst);
        outcome.take().expect("it has ended")
    })
}

#[test]
fn a_backup_that_dies_leaves_no_locks() {
    for protocol in PROTOCOLS {
        let mut refused = 0;
        for polls in 1.. {
            let (has_ended, first, later) = after_death_of_backup(protocol, polls);
            for outcome in [first, later] {
                match outcome {
                    Ok(()) => {}
                    Err(Error::Cluster(ClusterError::Interrupted { may_have_happened: false, .. })) => refused += 1,
                    Err(error) => panic!("{}, after {polls} polls: {error}", protocol.name),
                }
            }
            if has_ended {
                break;
            }
        }
        assert!(refused > 1, "{}: what is not logged is not decided", protocol.name);
    }
}

/// Transactions that are dropped after each number of polls, each of which writes rows of its own.
/// Between them, one that is not: backups look more often while there is something to apply.
#[derive(Clone)]
struct Abandons;

impl Script for Abandons {
    fn rings(&self) -> Rings {
        RINGS
    }

    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        for polls in 1.. {
            let first = number << 32 | u64::from(polls) << 8;
            let write = worker.transact(async |tx| {
                for row in first..first + 6 {
                    tx.put(tables.words, row, vec![1; 8]).await?;
                }
                Ok(())
            });
            let has_ended = polled(write, polls).await.is_some();
            worker.settle().await;
            if has_ended {
                break;
            }
            let kept = worker.transact(async |tx| tx.put(tables.words, first + 6, vec![2; 8]).await);
            kept.await.expect("rows of its own conflict with none");
        }
    }
}

#[test]
fn what_is_given_up_is_in_no_replica() {
    for protocol in PROTOCOLS {
        for seed in 0..rounds(2) {
            for bed in [Bed::harsh(seed), Bed::atomic(seed), Bed::rough(seed)] {
                bed.run(Size { protocol, ..SIZE }, &Abandons);
            }
        }
    }
}

/// Records that become void wherever they are in a ring, also around its end.
#[test]
fn what_is_given_up_anywhere_in_a_ring_is_passed() {
    for protocol in PROTOCOLS {
        let ran = with_two_nodes(protocol, 1 << 10, async |worker, tables| {
            for turn in 0..600_u32 {
                let value = vec![7; 8 * (turn as usize % 7)];
                let write = worker.transact(async |tx| tx.put(tables.words, u64::from(turn % 2), &value[..]).await);
                polled(write, 1 + turn % 12).await;
                worker.settle().await;
            }
            worker.catch_up().await
        });
        ran.expect("backups go on");
    }
}

/// By message: a WRITE is there, and void, before a backup looks, but for once in a thousand.
#[test]
fn a_backup_that_applies_what_is_undecided_is_found() {
    let is_found = (0..rounds(60)).any(|seed| {
        let bed = Bed::atomic(seed);
        catch_unwind(|| Setup::faulty(Mutation::UndecidedApplied).run(|| bed.run(SIZE, &Abandons))).is_err()
    });
    assert!(is_found);
}

#[test]
fn rows_are_loaded_before_the_first_worker() {
    let fabric = Local::new(2, LocalConfig::perfect());
    let builder = Node::<Local, Tested>::builder(NoHtm, &fabric, NodeId(0), Builder::new().memory(16 << 20));
    let builder = builder.and_then(|node| node.owners([NodeId(0), NodeId(1)])?.backups(1)).expect("the node is here");
    let mut builder = builder.loads_alone();
    builder.table(NOTES, Partition::hash()).expect("memory");
    let node = builder.start().expect("owners");
    let notes = node.local().table(NOTES).expect("it is there");
    node.local().transact(|tx| tx.put(notes, 1, b"loaded")).expect("it has no worker");
    let endpoint = node.endpoint().expect("room");
    let _worker = node.worker(&endpoint).expect("few");
    let refused = node.local().transact(|tx| tx.put(notes, 1, b"later"));
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
}

const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");

#[test]
fn what_cannot_be_is_refused_at_the_start() {
    let fabric = Local::new(2, LocalConfig::perfect());
    let builder = || {
        let builder = Builder::new().memory(16 << 20);
        let node = Node::<Local, Tested>::builder(NoHtm, &fabric, NodeId(0), builder).expect("the node is here");
        node.owners([NodeId(0), NodeId(1)]).expect("two")
    };
    let many = builder().backups(2).expect("no table yet").start();
    let Err(Error::Cluster(ClusterError::TooManyBackups { backups: 2, owners: 2 })) = many else { panic!("{many:?}") };
    let mut late = builder();
    late.table(NOTES, Partition::hash()).expect("memory");
    let late = late.backups(1);
    assert!(matches!(late, Err(Error::Config { what: "the number of backups", .. })), "{late:?}");
    let small = builder().ring_bytes(7);
    assert!(matches!(small, Err(Error::Config { what: "the size of a ring", .. })), "{small:?}");
}

#[test]
fn a_node_alone_writes_no_row_that_has_backups() {
    let fabric = Local::new(2, LocalConfig::perfect());
    let (node, _) = backed_up(&fabric, 0, 2, Protocol::FASST, Rings { backups: 1, ..Rings::default() });
    let words = node.local().table(TableDef::<u64, Raw>::hash("words")).expect("it is there");
    let refused = node.local().transact(|tx| tx.put(words, 1, b"value"));
    let Err(Error::Refused { source }) = refused else { panic!("{refused:?}") };
    assert!(source.to_string().contains("transactions of the cluster"), "{source}");
    assert_eq!(node.local().read(|tx| tx.get(words, 1)).expect("it is read"), None);
}

#[test]
fn nodes_with_other_backups_do_not_meet() {
    let fabric = Local::new(2, LocalConfig::perfect());
    let rings = Rings { backups: 1, ..Rings::default() };
    for (mine, its) in [(rings, Rings::default()), (rings, Rings { bytes: 1 << 12, ..rings })] {
        let (here, tables) = backed_up(&fabric, 0, 2, Protocol::FASST, mine);
        let (there, _) = backed_up(&fabric, 1, 2, Protocol::FASST, its);
        let done = &AtomicBool::new(false);
        thread::scope(|scope| {
            let there = &there;
            scope.spawn(move || serve(there, done));
            let endpoint = here.endpoint().expect("room");
            let worker = here.worker(&endpoint).expect("few");
            let refused = block_on(&endpoint, worker.transact(async |tx| tx.get(tables.words, 1).await));
            done.store(true, SeqCst);
            let Err(Error::Cluster(ClusterError::Refused { node: NodeId(1), reason: Refusal::Other })) = refused else {
                panic!("{refused:?}");
            };
        });
    }
}

/// Writes rows of one length at all owners, beside snapshots of the own node, which begin epochs. A
/// node that has ended begins one more, while others still write its rows.
#[derive(Clone)]
struct Epochs;

impl Script for Epochs {
    fn rings(&self) -> Rings {
        RINGS
    }

    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        for turn in 0..8 * (1 + number % 3) {
            let value = [number as u8, turn as u8, 0, 0, 0, 0, 0, 0];
            let written = worker.transact(async |tx| {
                tx.get_many(tables.words, 0..6).await?;
                for row in 0..6 {
                    tx.put(tables.words, row, &value[..]).await?;
                }
                Ok(())
            });
            written.await.expect("all nodes are here");
            if turn % 3 == number % 3 {
                // It reads nothing, and so waits for nothing.
                drop(worker.local().snapshot().expect("no closure runs here"));
            }
        }
        drop(worker.local().snapshot().expect("no closure runs here"));
    }
}

/// Rows that verbs write have versions of their owner's epoch, as those in the rings have.
#[test]
fn versions_of_the_wrong_epoch_are_found() {
    let run = |seed| Bed::atomic(seed).run(Size { protocol: Protocol::DRTM_OCC, ..SIZE }, &Epochs);
    (0..rounds(4)).for_each(run);
    let finds = |seed| catch_unwind(|| Setup::faulty(Mutation::EpochNotWritten).run(|| run(seed))).is_err();
    assert!((0..rounds(20)).any(finds));
}
