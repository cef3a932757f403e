//! Clusters whose owners have disks: what an acknowledged transaction has written is whole on each
//! of them after a crash.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{Executor, LocalConfig, LocalFabric};
use drtm_testing::rounds;
use drtm_txn::{
    Error, Mutation, Transaction as _,
    cluster::{ClusterError, Node, Protocol, Refusal},
    durability::storage::{Fault as DiskFault, Image},
};
use fastrand::Rng;

use crate::{
    bed::{Bed, Rings, Setup, Size, Tables, Tested, WORDS, backed_up, disks},
    directory::{Directory, Person, price},
    history::{SIZES, logged_anomalies},
};

type Local = LocalFabric<NoHtm>;

/// Protocols that write by message, and by verbs, with and without waiting for that.
const PROTOCOLS: [Protocol; 4] = [Protocol::FASST, Protocol::FARM, Protocol::DRTM_OCC, Protocol::DRTM_H];

/// Random histories are serializable, and each owner has its rows when it is opened again: see
/// [`Bed::run`].
fn check(bed: impl Fn(u64) -> Bed, seeds: u64, backups: usize) {
    for protocol in PROTOCOLS {
        for seed in 0..rounds(seeds) {
            let (size, keys) = (Size { protocol, ..SIZES[0] }, [2, 6, 40][seed as usize % 3]);
            let rings = Rings { backups, disks: disks(size.owners), ..Rings::default() };
            let anomalies = logged_anomalies(&bed(seed), size, (keys, 10), seed, rings);
            let told: Vec<String> = anomalies.iter().map(ToString::to_string).collect();
            assert!(told.is_empty(), "seed {seed}, {size:?}:\n{}", told.join("\n"));
        }
    }
}

#[test]
fn histories_of_durable_clusters() {
    check(|seed| [Bed::perfect(), Bed::harsh(seed), Bed::harsh_and_atomic(seed)][seed as usize % 3].clone(), 3, 0);
}

#[test]
fn histories_of_durable_clusters_with_backups() {
    check(|seed| [Bed::harsh(seed), Bed::harsh_and_atomic(seed)][seed as usize % 2].clone(), 2, 1);
}

#[test]
fn histories_of_durable_shared_memory() {
    check(|_| Bed::Shm, 1, 0);
}

/// Two owners, and a client.
const SIZE: Size = Size { nodes: 3, owners: 2, coroutines: 3, protocol: Protocol::FASST };

/// Rows that a transaction writes of each owner.
const EACH: u64 = 3;

/// Runs coroutines of a client that write rows of both owners, as the `script` says.
fn with_client(
    protocol: Protocol,
    disks: &'static [Image],
    script: impl AsyncFn(&drtm_txn::cluster::Worker<'_, Local, Tested>, Tables, u64) + Clone,
) {
    let fabric = Local::new(SIZE.nodes, LocalConfig::perfect());
    let rings = Rings { disks, ..Rings::default() };
    let nodes: Vec<(Node<Local, Tested>, Tables)> =
        (0..SIZE.nodes).map(|number| backed_up(&fabric, number, SIZE.owners, protocol, rings)).collect();
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        for (node, _) in &nodes[..usize::from(SIZE.owners)] {
            scope.spawn(Setup::inherited(move || {
                let endpoint = node.endpoint().expect("room");
                let mut executor = Executor::new(&endpoint);
                node.worker(&endpoint).expect("few").serve(&executor.spawner());
                executor.spawn(endpoint.until(|| done.load(SeqCst)));
                executor.run();
            }));
        }
        let (client, tables) = &nodes[usize::from(SIZE.owners)];
        let endpoint = client.endpoint().expect("room");
        let worker = client.worker(&endpoint).expect("few");
        let mut executor = Executor::new(&endpoint);
        worker.serve(&executor.spawner());
        for number in 0..SIZE.coroutines {
            let (worker, script, tables) = (worker.clone(), script.clone(), *tables);
            executor.spawn(async move { script(&worker, tables, number).await });
        }
        executor.run();
        done.store(true, SeqCst);
    });
}

/// The rows of a transaction.
fn rows_of(transaction: u64) -> impl Iterator<Item = u64> {
    let all = u64::from(SIZE.owners) * EACH;
    (0..all).map(move |row| transaction * all + row)
}

/// What is wrong with a disk of an owner after a crash, when these transactions had been
/// acknowledged of so many.
fn damage(owner: u16, disk: Image, acknowledged: &BTreeSet<u64>, transactions: u64) -> Option<String> {
    let fabric = Local::new(SIZE.nodes, LocalConfig::perfect());
    let disks = Vec::leak(vec![disk; usize::from(SIZE.owners)]);
    let rings = Rings { disks, ..Rings::default() };
    let (node, _) = backed_up(&fabric, owner, SIZE.owners, SIZE.protocol, rings);
    let db = node.local();
    let words = db.table(WORDS).expect("it is there");
    let count = |transaction: u64| {
        let mut its = rows_of(transaction).filter(|row| row % u64::from(SIZE.owners) == u64::from(owner));
        let expected = transaction.to_le_bytes();
        its.try_fold(0, |count, row| {
            let row = db.read(|tx| tx.get(words, row)).expect("a store");
            match row {
                Some(value) if value[..] == expected => Ok(count + 1),
                Some(value) => Err(format!("{value:?} in a row of {transaction}")),
                None => Ok(count),
            }
        })
    };
    (0..transactions).find_map(|transaction| match count(transaction) {
        Err(what) => Some(what),
        Ok(EACH) => None,
        Ok(0) if !acknowledged.contains(&transaction) => None,
        Ok(rows) => {
            let is = if acknowledged.contains(&transaction) { "acknowledged" } else { "not acknowledged" };
            Some(format!("owner {owner} has {rows} rows of {transaction}, which was {is}"))
        }
    })
}

/// Runs transactions, and crashes owners in between. Gives what was wrong, if anything was.
fn crashes(protocol: Protocol, seed: u64, transactions: u64) -> Option<String> {
    let disks = disks(SIZE.owners);
    let (acknowledged, found) = (Rc::new(RefCell::new(BTreeSet::new())), Rc::new(Cell::new(None)));
    let random = Rc::new(RefCell::new(Rng::with_seed(seed)));
    let (all, told) = (Rc::clone(&acknowledged), Rc::clone(&found));
    with_client(protocol, disks, async move |worker, tables, number| {
        for transaction in (number..transactions).step_by(SIZE.coroutines as usize) {
            // Rows are put before there are any, and then again: inserted, and overwritten.
            for is_again in [false, true] {
                let written = worker.transact(async |tx| {
                    if is_again {
                        tx.prefetch(tables.words, rows_of(transaction)).await?;
                    }
                    for row in rows_of(transaction) {
                        tx.put(tables.words, row, &transaction.to_le_bytes()[..]).await?;
                    }
                    Ok(())
                });
                written.await.expect("owners are here");
                all.borrow_mut().insert(transaction);
                if random.borrow_mut().u8(0..4) == 0 {
                    // So that it is not always an end of a transaction.
                    let pause = Duration::from_micros(random.borrow_mut().u64(0..3_000));
                    worker.endpoint().sleep(pause).await;
                    let before = all.borrow().clone();
                    for (disk, owner) in disks.iter().zip(0..) {
                        let mut random = random.borrow_mut();
                        let crashed = disk.after_crash(&mut |choices| random.u64(0..choices));
                        if let Some(what) = damage(owner, crashed, &before, transactions) {
                            told.set(Some(format!("seed {seed}, {}: {what}", protocol.name)));
                        }
                    }
                }
            }
        }
    });
    found.take()
}

#[test]
fn what_was_acknowledged_is_whole_on_each_owner_after_a_crash() {
    for protocol in PROTOCOLS {
        for seed in 0..rounds(2) {
            assert_eq!(crashes(protocol, seed, 24), None);
        }
    }
}

fn is_found(fault: Mutation, protocol: Protocol) {
    let is_found = |seed| Setup::faulty(fault).run(|| crashes(protocol, seed, 24)).is_some();
    assert!((0..rounds(20)).any(is_found), "{fault:?} is not found");
}

#[test]
fn a_commit_that_is_not_awaited_is_found() {
    is_found(Mutation::OwnersNotAwaited, Protocol::FASST);
}

#[test]
fn rows_that_are_logged_one_by_one_are_found() {
    is_found(Mutation::RowsLoggedApart, Protocol::FASST);
}

/// Disks are not equal to their nodes in the end.
fn is_missed(fault: Mutation, backups: usize) {
    let size = Size { protocol: Protocol::DRTM_OCC, ..SIZES[0] };
    let found = (0..rounds(20)).any(|seed| {
        let rings = Rings { backups, disks: disks(size.owners), ..Rings::default() };
        let run = || logged_anomalies(&Bed::harsh_and_atomic(seed), size, (6, 10), seed, rings);
        catch_unwind(AssertUnwindSafe(|| Setup::faulty(fault).run(run))).is_err()
    });
    assert!(found, "{fault:?} is not found");
}

/// Rows that verbs overwrite are in no record.
#[test]
fn a_write_by_verbs_past_a_log_is_found() {
    is_missed(Mutation::LogsBypassed, 0);
}

#[test]
fn a_backup_that_does_not_log_is_found() {
    is_missed(Mutation::ReplicasNotLogged, 1);
}

/// Rows, their entries at other nodes, and what every node has are there when all nodes are started
/// again, and are written on.
#[test]
fn a_cluster_goes_on_from_its_disks() {
    let disks = disks(SIZE.owners);
    let person = |number: u64| Person { nick: 100 + number, group: number % 2, stamp: number, balance: 5 };
    for again in 0..3 {
        with_client(Protocol::DRTM_H, disks, async move |worker, tables, coroutine| {
            if coroutine > 0 {
                return;
            }
            let Directory { people, by_nick, by_group, prices, .. } = tables.directory;
            let done = worker.transact(async |tx| {
                for number in 0..again {
                    assert_eq!(tx.get(by_nick, 100 + number).await?, Some((number, person(number))));
                }
                let group = tx.range(by_group, 0..1).await?;
                assert_eq!(group.len() as u64, again.div_ceil(2));
                assert_eq!(tx.get(prices, 7).await?, Some(price(7)));
                tx.insert(people, again, &person(again)).await
            });
            done.await.expect("owners are here");
        });
    }
}

/// A disk that fails poisons its owner's log: transactions that have been decided are told that
/// their outcome is unknown, and later ones are refused before they lock anything.
#[test]
fn a_disk_that_fails_is_told_of() {
    let disks = disks(SIZE.owners);
    with_client(Protocol::FASST, disks, async move |worker, tables, number| {
        if number > 0 {
            return;
        }
        let write = async |value: u8| {
            let written = worker.transact(async |tx| {
                tx.put(tables.words, 0, vec![value; 8]).await?;
                tx.put(tables.words, 1, vec![value; 8]).await
            });
            written.await
        };
        write(1).await.expect("disks have room");
        disks[1].fail_at(disks[1].calls(), DiskFault::Device);
        let unknown = write(2).await;
        assert!(matches!(unknown, Err(Error::Cluster(ClusterError::OutcomeUnknown { .. }))), "{unknown:?}");
        let refused = write(3).await;
        let Err(Error::Cluster(ClusterError::Refused { reason: Refusal::LogFailed, .. })) = refused else {
            panic!("{refused:?}");
        };
        // The rows are free, and the other owner's log goes on.
        let other = worker.transact(async |tx| tx.put(tables.words, 0, vec![4; 8]).await);
        other.await.expect("its disk has room");
    });
}

#[test]
fn a_transaction_larger_than_a_message_is_refused_before_it_locks() {
    with_client(Protocol::FASST, disks(SIZE.owners), async move |worker, tables, number| {
        if number > 0 {
            return;
        }
        let most = worker.endpoint().capabilities().max_message_bytes;
        let write = async |rows: u64| {
            let written = worker.transact(async |tx| {
                for row in 0..rows {
                    tx.put(tables.words, 2 * row, vec![7; most / 8]).await?;
                }
                Ok(())
            });
            written.await
        };
        let refused = write(10).await;
        assert!(matches!(refused, Err(Error::Cluster(ClusterError::TooLargeForOne { .. }))), "{refused:?}");
        write(4).await.expect("it fits");
    });
}
