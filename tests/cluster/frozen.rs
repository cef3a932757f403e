//! Nodes that answer nothing for a while: what waits for them is interrupted at its deadline, and
//! its error says whether it can have happened. And queues that are full.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{Cost, Fabric};
use drtm_txn::{
    Error, Mutation, Options, Transaction as _,
    cluster::{ClusterError, Protocol, Worker},
};

use crate::{
    bed::{Bed, Script, Setup, Size, Tables, Tested},
    deadlines::clusters,
};

/// How long a node answers nothing.
const FROZEN: Duration = Duration::from_millis(150);

/// How much later than its deadline a transaction is told.
const LATE: Duration = Duration::from_millis(50);

/// What a script has seen.
#[derive(Debug, Default)]
struct Seen {
    /// Those that were interrupted, by whether they may have happened.
    interrupted: [u32; 2],
    committed: u32,
    latest: Duration,
}

/// One node freezes again and again. The other one writes rows of both, in time or not.
#[derive(Clone, Default)]
struct Freezing {
    seed: u64,
    /// Whether a transaction begins.
    begins: Arc<AtomicBool>,
    is_done: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
}

impl Freezing {
    async fn freezes<F: Fabric<Engine = NoHtm>>(&self, worker: &Worker<'_, F, Tested>) {
        let mut random = fastrand::Rng::with_seed(self.seed);
        loop {
            worker.endpoint().until(|| self.begins.swap(false, SeqCst) || self.is_done.load(SeqCst)).await;
            if self.is_done.load(SeqCst) {
                break;
            }
            // At any of its steps, or after it.
            worker.endpoint().sleep(Duration::from_nanos(random.u64(1..40_000))).await;
            worker.endpoint().charge(Cost::Nanos(FROZEN.as_nanos() as u64));
        }
    }

    async fn writes<F: Fabric<Engine = NoHtm>>(&self, worker: &Worker<'_, F, Tested>, tables: Tables) {
        let mut random = fastrand::Rng::with_seed(!self.seed);
        // What the rows can be: the last value that was acknowledged, and later ones that may have
        // happened.
        let mut possible = vec![0];
        put(worker, tables, 0, Options::new()).await.expect("room");
        for value in 1..=30 {
            worker.endpoint().sleep(Duration::from_micros(random.u64(1..200_000))).await;
            let patience = Duration::from_micros(random.u64(100..20_000));
            let began = worker.endpoint().now();
            self.begins.store(true, SeqCst);
            let ended = put(worker, tables, value, Options::new().within(patience)).await;
            let late = worker.endpoint().now().since(began).saturating_sub(patience);
            let mut seen = self.seen.lock().expect("no panic");
            seen.latest = seen.latest.max(late);
            match ended {
                Ok(()) => {
                    possible = vec![value];
                    seen.committed += 1;
                }
                Err(Error::Cluster(ClusterError::Interrupted { may_have_happened, .. })) => {
                    seen.interrupted[usize::from(may_have_happened)] += 1;
                    if may_have_happened {
                        possible.push(value);
                    }
                }
                Err(Error::Contended { .. }) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        self.is_done.store(true, SeqCst);
        worker.settle().await;
        let rows = worker.transact(async |tx| tx.get_many(tables.words, [0, 1]).await).await.expect("both are here");
        let rows: Vec<u8> = rows.into_iter().map(|row| row.expect("it was put")[0]).collect();
        assert!(rows[0] == rows[1] && possible.contains(&rows[0]), "{rows:?}, and possible: {possible:?}");
    }
}

async fn put<F: Fabric<Engine = NoHtm>>(
    worker: &Worker<'_, F, Tested>,
    tables: Tables,
    value: u8,
    options: Options,
) -> Result<(), Error> {
    let put = worker.transact_with(options, async |tx| {
        tx.get(tables.words, 0).await?;
        tx.put(tables.words, 0, vec![value; 8]).await?;
        tx.put(tables.words, 1, vec![value; 8]).await
    });
    put.await
}

impl Script for Freezing {
    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        match number {
            0 => self.writes(&worker, tables).await,
            _ => self.freezes(&worker).await,
        }
    }
}

/// Runs it, and returns what was seen.
fn frozen(protocol: Protocol, seed: u64) -> Seen {
    let script = Freezing { seed, ..Freezing::default() };
    let bed = if seed.is_multiple_of(2) { Bed::simulated(seed) } else { Bed::atomic(seed) };
    bed.run(Size { nodes: 2, owners: 2, coroutines: 1, protocol }, &script);
    std::mem::take(&mut *script.seen.lock().expect("no panic"))
}

#[test]
fn nothing_is_waited_for_beyond_a_deadline() {
    let mut decided = 0;
    for protocol in Protocol::ALL {
        let mut all = Seen::default();
        for seed in 0..drtm_testing::rounds(6) {
            let seen = frozen(protocol, seed);
            assert!(seen.latest <= LATE, "{}, seed {seed}: {seen:?}", protocol.name);
            all.interrupted[0] += seen.interrupted[0];
            all.interrupted[1] += seen.interrupted[1];
            all.committed += seen.committed;
            all.latest = all.latest.max(seen.latest);
        }
        assert!(all.committed > 0 && all.interrupted[0] > 0, "{}: {all:?}", protocol.name);
        eprintln!("{}: {all:?}", protocol.name);
        decided += all.interrupted[1];
    }
    assert!(decided > 0, "none was interrupted between its decision and its end");
}

#[test]
fn a_deadline_that_is_ignored_is_found() {
    let is_late = |seed| frozen(Protocol::FASST, seed).latest > LATE;
    assert!(Setup::faulty(Mutation::DeadlinesIgnored).run(|| (0..6).any(is_late)));
}

/// Transactions that are given to a node faster than it runs them are refused, and not kept.
#[test]
fn a_flood_is_refused_and_reads_beside_it_are_served() {
    let ([one, _two], tables) = clusters(Protocol::FASST);
    one.transact(async move |tx| tx.put(tables.words, 1, vec![0; 8]).await).wait().expect("room");
    let (mut refused, mut flood, mut read) = (0, Vec::new(), 0);
    for number in 0..drtm_testing::rounds(20_000) {
        flood.push(one.transact(async move |tx| tx.put(tables.words, number + 2, vec![1; 8]).await));
        if number % 5_000 > 0 {
            continue;
        }
        // Another one may have taken the room: so it is asked again.
        loop {
            match one.transact(async move |tx| tx.get(tables.words, 1).await).wait() {
                Ok(row) => break read += u32::from(row.is_some()),
                Err(Error::Cluster(ClusterError::TooManySubmitted { most: 4_096 })) => std::thread::yield_now(),
                Err(other) => panic!("{other:?}"),
            }
        }
    }
    for submitted in flood {
        match submitted.wait() {
            Ok(()) => {}
            Err(Error::Cluster(ClusterError::TooManySubmitted { most: 4_096 })) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(read > 0);
    eprintln!("{refused} refused, {read} read");
    one.transact(async move |tx| tx.get(tables.words, 2).await).wait().expect("there is room again");
}

/// What waits for a node that never answers is bounded, and the next one is refused at once.
#[test]
fn what_waits_for_a_frozen_node_is_bounded() {
    let ([one, two], tables) = clusters(Protocol::FASST);
    one.transact(async move |tx| tx.put(tables.words, 1, vec![0; 8]).await).wait().expect("room");
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let frozen = two.transact(async move |tx| {
        // A body that blocks its thread, and so the node.
        stopped.recv().expect_err("the other end is dropped");
        tx.get(tables.words, 1).await
    });
    let within = Options::new().within(Duration::from_secs(2));
    let waiting: Vec<_> =
        (0..4_096).map(|_| one.transact_with(within, async move |tx| tx.get(tables.words, 1).await)).collect();
    let refused = one.transact(async move |tx| tx.get(tables.words, 2).await).wait();
    let Err(error @ Error::Cluster(ClusterError::TooManySubmitted { most: 4_096 })) = refused else {
        panic!("{refused:?}")
    };
    assert!(error.to_string().contains("await some"), "{error}");
    for submitted in waiting {
        match submitted.wait() {
            Err(Error::Cluster(ClusterError::Interrupted { may_have_happened: false, .. })) => {}
            other => panic!("{other:?}"),
        }
    }
    drop(stop);
    frozen.wait().expect("it goes on");
    one.transact(async move |tx| tx.get(tables.words, 1).await).wait().expect("there is room again");
}
