//! An owner with a directory is killed and started again while a transaction of another node is at
//! any of its steps: cases (c), (d) and (e).

use std::{cell::RefCell, panic::catch_unwind, rc::Rc, time::Duration};

use drtm_htm::NoHtm;
use drtm_rdma::{Executor, LocalConfig, LocalFabric, NodeId};
use drtm_testing::rounds;
use drtm_txn::{
    Error, Mutation, Options, Transaction as _,
    cluster::{Protocol, Worker},
    durability::storage::Image,
};

use super::Memory;
use crate::{
    bed::{Rings, Setup, Tables, Tested, backed_up, disks},
    drops::polled,
    restarts::Owner,
};

type Local = LocalFabric<NoHtm>;

const OWNERS: u16 = 2;

/// The owner that is killed. The other one's clock is the cluster's.
const KILLED: u16 = 1;

/// Rows of both owners. The last two are not there at first.
const ROWS: u64 = 6;
const THERE: u64 = 4;

/// A row of the owner that is killed, which another transaction writes.
const BETWEEN: u64 = 3;

/// What the transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It writes rows that it has declared, and inserts others.
    Declared,
    /// It is optimistic.
    Optimistic,
    /// It locks rows, and then gives them up: case (d).
    Aborted,
}

fn bytes(number: u64) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

/// What the transaction writes to a row in which it has found this.
fn next(found: Option<Vec<u8>>) -> Vec<u8> {
    let number = found.map_or(1, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
    bytes(number + 1)
}

impl Kind {
    async fn run(self, worker: &Worker<'_, Local, Tested>, tables: Tables) -> Result<(), Error> {
        let words = tables.words;
        if self == Self::Optimistic {
            return worker
                .transact(async |tx| {
                    for row in 0..ROWS {
                        let found = tx.get(words, row).await?;
                        tx.put(words, row, next(found)).await?;
                    }
                    Ok(())
                })
                .await;
        }
        worker
            .transact_on(
                |sets| (0..THERE).try_for_each(|row| sets.write(words, row)),
                async |rows| {
                    for row in 0..ROWS {
                        // What is not declared is inserted.
                        let found = if row < THERE { rows.get(words, row).await? } else { None };
                        rows.put(words, row, next(found)).await?;
                    }
                    if self == Self::Aborted { Err(Error::aborted("on purpose")) } else { Ok(()) }
                },
            )
            .await
    }
}

/// Kills the owner after this many polls of the transaction, and starts it again. Returns whether
/// the transaction had ended before.
fn after_restart(protocol: Protocol, kind: Kind, polls: u32) -> bool {
    let memory = Memory::new();
    let fabric = Local::new(OWNERS + 1, LocalConfig::perfect());
    let disks = disks(OWNERS);
    let rings = |disks: Vec<Image>| Rings { disks: disks.leak(), ..memory.rings() };
    let start = |number, disks| Owner::one_of(&fabric, (number, OWNERS), protocol, rings(disks));
    let [other, killed] = [0, KILLED].map(|number| start(number, disks.to_vec()));
    let (client, tables) = backed_up(&fabric, OWNERS, OWNERS, protocol, memory.rings());
    let endpoint = client.endpoint().expect("room");
    let worker = client.worker(&endpoint).expect("few");
    let mut executor = Executor::new(&endpoint).patience(Duration::from_secs(20));
    worker.serve(&executor.spawner());
    let result = Rc::new(RefCell::new(None));
    let told = Rc::clone(&result);
    let start = &start;
    let again = fabric.clone();
    executor.spawn(async move {
        let filled = worker.transact(async |tx| {
            for row in 0..THERE {
                tx.put(tables.words, row, bytes(1)).await?;
            }
            Ok(())
        });
        filled.await.expect("both owners are here");
        worker.settle().await;
        let mut going_on = Box::pin(kind.run(&worker, tables));
        let ended = polled(going_on.as_mut(), polls).await;
        let has_ended = ended.is_some();
        killed.end();
        again.kill(NodeId(KILLED)).expect("it is here");
        // What was not synced is lost.
        let images = disks.iter().map(|disk| disk.after_crash(&mut |_| 0)).collect();
        again.revive(NodeId(KILLED)).expect("it is gone");
        let killed = start(KILLED, images);
        let case = format!("{}, {kind:?}, {polls} polls", protocol.name);
        let look = async || {
            let soon = Options::new().within(Duration::from_secs(5));
            let seen = worker.transact_with(soon, async |tx| tx.get_many(tables.words, 0..ROWS).await);
            seen.await.unwrap_or_else(|error| panic!("{case}: a row is not free: {error:?}"))
        };
        // It writes a row of the owner, before the first one goes on.
        let soon = Options::new().within(Duration::from_secs(5));
        let between = worker.transact_with(soon, async |tx| {
            let seen = tx.get(tables.words, BETWEEN).await?;
            tx.put(tables.words, BETWEEN, bytes(9)).await?;
            Ok(seen)
        });
        let seen = between.await.unwrap_or_else(|error| panic!("{case}: a row is not free: {error:?}"));
        let outcome = match ended {
            Some(outcome) => outcome,
            None => going_on.await,
        };
        let is_done = match (kind, &outcome) {
            (Kind::Aborted, Err(Error::Aborted { .. })) => false,
            (Kind::Declared | Kind::Optimistic, Ok(())) => true,
            _ => panic!("{case}: {outcome:?}"),
        };
        let mut expected: Vec<_> = match is_done {
            true => vec![Some(bytes(2)); ROWS as usize],
            false => (0..ROWS).map(|row| (row < THERE).then(|| bytes(1))).collect(),
        };
        // The one in between came after what it saw, and before the other one otherwise.
        let is_after = seen == expected[BETWEEN as usize];
        assert!(is_after || !has_ended, "{case}: what was acknowledged is lost: {seen:?}");
        expected[BETWEEN as usize] = Some(if is_after { bytes(9) } else { next(Some(bytes(9))) });
        assert_eq!(look().await, expected, "{case}, {seen:?}");
        worker.settle().await;
        // All rows are free, and what is removed now does not come back.
        let later = worker.transact(async |tx| {
            for row in 0..ROWS {
                tx.remove(tables.words, row).await?;
            }
            Ok(())
        });
        later.await.unwrap_or_else(|error| panic!("{case}: and then {error:?}"));
        worker.settle().await;
        assert_eq!(look().await, vec![None; ROWS as usize], "{case}");
        killed.end();
        other.end();
        told.replace(Some(has_ended));
    });
    executor.run();
    result.take().expect("it has ended")
}

/// Restarts the owner after each step of a transaction.
fn check(protocol: Protocol, kind: Kind) {
    assert!((1..300).any(|polls| after_restart(protocol, kind, polls)), "it never ends");
}

#[test]
fn a_transaction_goes_on_whenever_an_owner_is_started_again() {
    for protocol in [Protocol::DRTM, Protocol::FASST] {
        for kind in [Kind::Declared, Kind::Optimistic, Kind::Aborted] {
            check(protocol, kind);
        }
    }
}

/// Whether a fault is found. Threads run at the same time, so that a transaction is not in each run
/// at each of its steps when the owner dies.
fn is_found(fault: Mutation) -> bool {
    let run = || Setup::faulty(fault).run(|| check(Protocol::DRTM, Kind::Declared));
    (0..rounds(20)).any(|_| catch_unwind(run).is_err())
}

#[test]
fn an_owner_that_restores_nothing_is_found() {
    assert!(is_found(Mutation::RestoreLeftOut));
}
