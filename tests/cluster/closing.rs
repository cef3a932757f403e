//! Nodes that close under load, one after the other and at the same time: all that was begun at one
//! of them is carried out there, or nothing of it is anywhere.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_testing::rounds;
use drtm_txn::{
    Error, Mutation, Transaction,
    cluster::{ClusterError, Node, Protocol, Refusal, Worker},
};
use fastrand::Rng;

use crate::bed::{Bed, Rings, Script, Setup, Size, Tables, Tested, disks};
use crate::hades::BY_LINES;

/// What each account has at the beginning.
const START: i64 = 1_000;
const ACCOUNTS: u64 = 9;
/// Accounts that are opened by a payment have numbers from here on.
const NEW: u64 = 1 << 20;

/// Three nodes, all of which own accounts.
const SIZE: Size = Size { nodes: 3, owners: 3, coroutines: 4, protocol: Protocol::FASST };

/// How long a node waits for what was begun there.
const WITHIN: Duration = Duration::from_secs(60);

fn money(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// What the coroutines have seen.
#[derive(Debug, Default)]
struct Seen {
    committed: u64,
    refused: u64,
    unreachable: u64,
    /// What was wrong.
    wrong: Vec<String>,
}

/// Money moves between accounts of all nodes, while these close. The first coroutine of each node
/// closes it.
#[derive(Clone)]
struct Closes {
    seed: u64,
    rings: Rings,
    begun: Arc<AtomicBool>,
    /// How many have closed.
    closed: Arc<AtomicU64>,
    stops: Arc<[AtomicBool; SIZE.nodes as usize]>,
    seen: Arc<Mutex<Seen>>,
}

impl Script for Closes {
    /// What a node is not told any more that has closed, stays in its filters.
    fn leaves_nothing(&self) -> bool {
        false
    }

    fn rings(&self) -> Rings {
        self.rings
    }

    fn look<F: Fabric<Engine = NoHtm>>(&self, nodes: &[Node<F, Tested>]) {
        let rows = |node: &Node<F, Tested>| node.rows_of(node.id()).expect("a store").expect("its own");
        let sum: i64 = nodes.iter().flat_map(rows).filter(|row| row.table == 0).map(|row| money(&row.value)).sum();
        if sum != START * ACCOUNTS as i64 {
            self.seen.lock().expect("no panic").wrong.push(format!("the sum is {sum}"));
        }
    }

    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        if number == 0 {
            let opened = worker.transact(async |tx| {
                for account in 0..ACCOUNTS {
                    tx.insert(tables.words, account, &START.to_le_bytes()[..]).await?;
                }
                Ok(())
            });
            opened.await.expect("room");
            self.begun.store(true, SeqCst);
        }
        worker.endpoint().until(|| self.begun.load(SeqCst)).await;
        let mut random = Rng::with_seed(self.seed << 16 | number);
        let node = worker.id().0;
        if number.is_multiple_of(SIZE.coroutines) {
            // In turn, or at any moments.
            if self.seed.is_multiple_of(2) {
                let turn = (u64::from(node) + self.seed / 2) % u64::from(SIZE.nodes);
                worker.endpoint().until(|| self.closed.load(SeqCst) == turn).await;
            }
            worker.endpoint().sleep(Duration::from_micros(random.u64(1..2_000))).await;
            self.stops[usize::from(node)].store(true, SeqCst);
            if let Err(error) = worker.close(WITHIN).await {
                self.seen.lock().expect("no panic").wrong.push(format!("node {node} is not closed cleanly: {error}"));
            }
            self.closed.fetch_add(1, SeqCst);
            return;
        }
        for payment in 0.. {
            if self.stops[usize::from(node)].load(Relaxed) {
                break;
            }
            if self.pay(&worker, tables, number, (payment, &mut random)).await {
                worker.endpoint().yield_now().await;
            } else {
                // Others are gone, or are going.
                worker.endpoint().sleep(Duration::from_micros(20)).await;
            }
        }
    }
}

impl Closes {
    /// Pays from one account to another, or to a new one. Returns whether it has happened.
    async fn pay<F: Fabric<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, Tested>,
        tables: Tables,
        number: u64,
        (payment, random): (u64, &mut Rng),
    ) -> bool {
        async fn moves(tx: &mut impl Transaction, tables: Tables, [from, to]: [u64; 2], by: i64) -> Result<(), Error> {
            for (account, by) in [(from, -by), (to, by)] {
                let has = tx.get(tables.words, account).await?.map_or(0, |bytes| money(&bytes));
                tx.put(tables.words, account, &(has + by).to_le_bytes()[..]).await?;
            }
            Ok(())
        }
        let (from, amount) = (random.u64(0..ACCOUNTS), random.i64(1..10));
        let to = match random.u8(0..8) {
            0 => NEW + ((payment << 4) | number),
            _ => (from + random.u64(1..ACCOUNTS)) % ACCOUNTS,
        };
        let paid = match random.bool() {
            true => worker.transact(async |tx| moves(tx, tables, [from, to], amount).await).await,
            false => {
                let declare = |sets: &mut drtm_txn::cluster::Sets<'_, '_, F, Tested>| {
                    sets.write(tables.words, from)?;
                    sets.write(tables.words, to)
                };
                worker.transact_on(declare, async |tx| moves(tx, tables, [from, to], amount).await).await
            }
        };
        let mut seen = self.seen.lock().expect("no panic");
        match paid {
            Ok(()) => {
                seen.committed += 1;
                return true;
            }
            Err(Error::Cluster(ClusterError::Refused { reason: Refusal::Closed, .. })) => seen.refused += 1,
            Err(Error::Cluster(
                ClusterError::Unreachable { .. } | ClusterError::OneSided { .. } | ClusterError::Lookup { .. },
            )) => seen.unreachable += 1,
            Err(error) => seen.wrong.push(format!("a payment: {error:?}")),
        }
        false
    }
}

/// Closes all nodes, and returns what was seen.
fn closed(protocol: Protocol, bed: &Bed, seed: u64, has_disks: bool) -> Seen {
    let disks = if has_disks { disks(SIZE.owners) } else { &[] };
    let script = Closes {
        seed,
        rings: Rings { disks, ..Rings::default() },
        begun: Arc::default(),
        closed: Arc::default(),
        stops: Arc::default(),
        seen: Arc::default(),
    };
    bed.run(Size { protocol, ..SIZE }, &script);
    std::mem::take(&mut *script.seen.lock().expect("no panic"))
}

/// Nothing is wrong, on beds that a seed makes.
fn check(bed: impl Fn(u64) -> Bed, seeds: u64, has_disks: bool) {
    let mut refused = 0;
    for protocol in Protocol::with_names().chain(BY_LINES).filter(|protocol| bed(0).has(*protocol)) {
        let mut all = Seen::default();
        for seed in 0..rounds(seeds) {
            let seen = closed(protocol, &bed(seed), seed, has_disks);
            assert!(seen.wrong.is_empty(), "{}, seed {seed}: {seen:?}", protocol.name);
            all.committed += seen.committed;
            all.refused += seen.refused;
            all.unreachable += seen.unreachable;
        }
        eprintln!("{}: {all:?}", protocol.name);
        assert!(all.committed > 0, "{}: {all:?}", protocol.name);
        refused += all.refused;
    }
    // By which protocol, is chance.
    assert!(refused > 0);
}

#[test]
fn nodes_that_close_tear_nothing_in_simulation() {
    check(|seed| if seed % 4 < 2 { Bed::simulated(seed) } else { Bed::atomic(seed) }, 4, false);
    check(Bed::rough, 2, false);
}

#[test]
fn nodes_that_close_tear_nothing_on_their_disks() {
    check(|seed| if seed % 4 < 2 { Bed::atomic(seed) } else { Bed::perfect() }, 4, true);
}

#[test]
fn nodes_that_close_tear_nothing_in_one_process() {
    for bed in [Bed::perfect(), Bed::harsh(1), Bed::harsh_and_atomic(2), Bed::Shm, Bed::Tcp] {
        check(|_| bed.clone(), 2, false);
    }
}

#[test]
fn a_node_that_does_not_wait_is_found() {
    for protocol in Protocol::with_names().chain(BY_LINES) {
        let is_wrong = |seed| {
            let seen = Setup::faulty(Mutation::ClosedAtOnce).run(|| closed(protocol, &Bed::atomic(seed), seed, false));
            !seen.wrong.is_empty()
        };
        assert!((0..40).any(is_wrong), "{}", protocol.name);
    }
}
