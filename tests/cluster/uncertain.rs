//! Leases of a node that knows the time badly: they end for it no later than for others.

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use drtm_htm::NoHtm;
use drtm_rdma::{Executor, LocalConfig, LocalFabric};
use drtm_testing::rounds;
use drtm_txn::{
    Mutation, Transaction as _,
    cluster::{Protocol, Timing},
};

use crate::bed::{Setup, node};

/// The node that leases knows the time badly, as soon as its thread waits: its clock may be wrong
/// by half of what it counts.
const UNCERTAIN: Timing = Timing {
    drift: 500_000,
    lease: Duration::from_millis(40),
    read_only_lease: Duration::from_millis(40),
    ..Setup::SOUND.timing
};

/// A transaction leases a row, and writes another one. Its body waits until the owner of the first
/// has written that one, when the lease was over, and has read the second. Returns whether both
/// have committed though each has missed what the other has written.
fn is_skewed_by_a_lease() -> bool {
    const LEASED: u64 = 0;
    const WRITTEN: u64 = 1;
    let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
    let [(owner, tables), (client, _)] = [0, 1].map(|number| node(&fabric, number, 2, Protocol::DRTM));
    // Steps: the rows are there; the first one is leased; its owner has written it; both are done.
    let (step, missed) = (&AtomicU64::new(0), &AtomicU64::new(0));
    let put = |value: u8| vec![value; 8];
    thread::scope(|scope| {
        scope.spawn(Setup::inherited(move || {
            let endpoint = owner.endpoint().expect("room");
            let mut executor = Executor::new(&endpoint).patience(Duration::from_secs(20));
            let worker = owner.worker(&endpoint).expect("few");
            worker.serve(&executor.spawner());
            executor.spawn(async move {
                let filled = worker.transact(async |tx| {
                    tx.put(tables.words, LEASED, put(0)).await?;
                    tx.put(tables.words, WRITTEN, put(0)).await
                });
                filled.await.expect("room");
                step.store(1, SeqCst);
                worker.endpoint().until(|| step.load(SeqCst) == 2).await;
                let written = worker.transact(async |tx| {
                    let seen = tx.get(tables.words, WRITTEN).await?;
                    tx.put(tables.words, LEASED, put(1)).await?;
                    Ok(seen)
                });
                let seen = written.await.expect("its lease ends");
                missed.fetch_add(u64::from(seen == Some(put(0))), SeqCst);
                step.store(3, SeqCst);
                worker.endpoint().until(|| step.load(SeqCst) == 4).await;
            });
            executor.run();
        }));
        let endpoint = client.endpoint().expect("room");
        let mut executor = Executor::new(&endpoint).patience(Duration::from_secs(20));
        let worker = client.worker(&endpoint).expect("few");
        worker.serve(&executor.spawner());
        executor.spawn(async move {
            worker.endpoint().until(|| step.load(SeqCst) == 1).await;
            let written = worker.transact_on(
                |sets| {
                    sets.read(tables.words, LEASED)?;
                    sets.write(tables.words, WRITTEN)
                },
                async |rows| {
                    let seen = rows.get(tables.words, LEASED).await?;
                    if step.load(SeqCst) == 1 {
                        step.store(2, SeqCst);
                        let start = Instant::now();
                        while step.load(SeqCst) == 2 && start.elapsed() < Duration::from_secs(10) {
                            thread::sleep(Duration::from_micros(50));
                        }
                    }
                    rows.put(tables.words, WRITTEN, put(1)).await?;
                    Ok(seen)
                },
            );
            let seen = written.await.expect("both are here");
            missed.fetch_add(u64::from(seen == Some(put(0))), SeqCst);
            step.store(4, SeqCst);
        });
        executor.run();
    });
    missed.load(SeqCst) == 2
}

#[test]
fn a_lease_ends_at_the_latest_when_it_is_over_for_others() {
    assert!(!(0..rounds(4)).any(|_| Setup::SOUND.timed(UNCERTAIN).run(is_skewed_by_a_lease)));
}

#[test]
fn a_lease_that_counts_as_long_as_it_may_last_is_found() {
    let setup = Setup::faulty(Mutation::LeasesTrustedTooLong).timed(UNCERTAIN);
    assert!((0..rounds(20)).any(|_| setup.run(is_skewed_by_a_lease)));
}
