//! Money moves between accounts of all nodes, and none is lost or made.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_testing::rounds;
use drtm_txn::{
    Error, Mutation, Transaction as _,
    cluster::{Protocol, Worker},
};
use fastrand::Rng;

use crate::{
    bed::{Bed, Script, Setup, Size, Tables, Tested},
    hades::BY_LINES,
    history::BY_SWAPS,
};

/// What each account has at the beginning.
const START: i64 = 1_000;

fn money(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

#[derive(Clone)]
struct Transfers {
    accounts: u64,
    /// Of each coroutine.
    transfers: u64,
    seed: u64,
    /// Whether half of the coroutines take accounts in the opposite order.
    crosses: bool,
    /// Coroutines that are not done.
    left: Arc<AtomicU64>,
    begun: Arc<AtomicU64>,
}

impl Script for Transfers {
    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        if number == 0 {
            let opened = worker.transact(async |tx| {
                for account in 0..self.accounts {
                    tx.insert(tables.words, account, &START.to_le_bytes()[..]).await?;
                }
                Ok(())
            });
            opened.await.expect("room");
            self.begun.store(1, Relaxed);
        }
        worker.endpoint().until(|| self.begun.load(Relaxed) == 1).await;
        let mut random = Rng::with_seed(self.seed << 16 | number);
        for _ in 0..self.transfers {
            let (mut from, mut to) = (random.u64(0..self.accounts), random.u64(0..self.accounts));
            if self.crosses {
                (from, to) = if number.is_multiple_of(2) { (0, 1) } else { (1, 0) };
            }
            let amount = random.i64(1..10);
            let moved = worker.transact(async |tx| {
                let left = tx.get(tables.words, from).await?.map_or(0, |bytes| money(&bytes)) - amount;
                tx.put(tables.words, from, &left.to_le_bytes()[..]).await?;
                let has = tx.get(tables.words, to).await?.map_or(0, |bytes| money(&bytes)) + amount;
                tx.put(tables.words, to, &has.to_le_bytes()[..]).await
            });
            moved.await.expect("all nodes are here");
            if random.u8(0..8) == 0 {
                self.look(&worker, tables).await.expect("all nodes are here");
            }
        }
        if self.left.fetch_sub(1, Relaxed) == 1 {
            self.look(&worker, tables).await.expect("all nodes are here");
        }
    }
}

impl Transfers {
    /// Looks at all accounts at one moment.
    async fn look<F: Fabric<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, Tested>,
        tables: Tables,
    ) -> Result<(), Error> {
        let all = worker.transact(async |tx| tx.get_many(tables.words, 0..self.accounts).await).await?;
        let sum: i64 = all.iter().map(|bytes| money(bytes.as_deref().expect("it was opened"))).sum();
        assert_eq!(sum, START * self.accounts as i64);
        Ok(())
    }
}

fn check(bed: &Bed, size: Size, accounts: u64, crosses: bool, seed: u64) {
    for protocol in Protocol::ALL.into_iter().chain(BY_LINES).filter(|protocol| bed.has(*protocol)) {
        check_protocol(protocol, bed, size, accounts, crosses, seed);
    }
}

fn check_protocol(protocol: Protocol, bed: &Bed, size: Size, accounts: u64, crosses: bool, seed: u64) {
    let transfers = rounds(if accounts > 2 { 12 } else { 4 });
    let left = Arc::new(AtomicU64::new(size.coroutines * u64::from(size.nodes)));
    let script = Transfers { accounts, transfers, seed, crosses, left, begun: Arc::default() };
    bed.run(Size { protocol, ..size }, &script);
}

/// Two nodes that own accounts, and one that owns none.
const SIZE: Size = Size { nodes: 3, owners: 2, coroutines: 5, protocol: Protocol::FASST };

/// Coroutines of one thread, and another node that owns half.
const CROWD: Size = Size { nodes: 2, owners: 2, coroutines: 16, protocol: Protocol::FASST };

#[test]
fn no_money_is_lost_in_one_process() {
    for (bed, seed) in [Bed::perfect(), Bed::Shm, Bed::Tcp, Bed::harsh(1), Bed::harsh(2)].iter().zip(1..) {
        check(bed, SIZE, 12, false, seed);
    }
}

#[test]
fn no_money_is_lost_in_simulation() {
    for seed in 0..rounds(2) {
        let bed = if seed.is_multiple_of(2) { Bed::simulated(seed) } else { Bed::rough(seed) };
        check(&bed, SIZE, 12, false, seed);
    }
}

#[test]
fn a_hot_row_is_served_to_all() {
    for bed in [Bed::perfect(), Bed::Shm, Bed::Tcp, Bed::harsh(4), Bed::atomic(4), Bed::rough(5)] {
        check(&bed, CROWD, 1, false, 7);
    }
}

#[test]
fn two_hot_rows_are_taken_in_opposite_orders() {
    for bed in [Bed::perfect(), Bed::Shm, Bed::Tcp, Bed::harsh(5), Bed::atomic(5), Bed::rough(6)] {
        check(&bed, CROWD, 2, true, 8);
    }
}

#[test]
fn no_money_is_lost_by_loopback() {
    let check = |protocol, seed| {
        for bed in [Bed::harsh(seed), Bed::swapped_by_nics(seed)] {
            check_protocol(protocol, &bed, SIZE, 12, false, seed);
            check_protocol(protocol, &bed, CROWD, 2, true, seed);
        }
    };
    for (protocol, seed) in BY_SWAPS.into_iter().flat_map(|protocol| (0..rounds(2)).map(move |seed| (protocol, seed))) {
        Setup::SOUND.by_loopback().run(|| check(protocol, seed));
    }
}

/// A processor's swap beside a NIC's, on one word: one of them is lost.
#[test]
fn owners_that_do_not_lock_by_loopback_are_found() {
    let found = (0..rounds(100)).any(|seed| {
        let bed = Bed::swapped_by_nics(seed);
        let run = || check_protocol(Protocol::DRTM_OCC, &bed, SIZE, 4, false, seed);
        std::panic::catch_unwind(|| Setup::faulty(Mutation::LoopbackLeftOut).by_loopback().run(run)).is_err()
    });
    assert!(found);
}
