//! Transactions end, however often counters wrap around meanwhile.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use crate::world::World;

/// Ends a test's threads, also when the test fails.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A transaction that takes longer than a bucket's wraparound is retried until it has the ticket;
/// then others make way.
#[test]
fn a_long_transaction_ends_beside_a_bucket_that_never_rests() {
    let world = World::new();
    let (is_over, changes) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _stop = Stop(&is_over);
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                world.insert(world.a, 1, 0);
                world.remove(world.a, 1);
                changes.fetch_add(2, Relaxed);
            }
        });
        for round in 0..3 {
            let mut runs = 0;
            world
                .db
                .transact(|tx| {
                    runs += 1;
                    let absent = tx.get(world.b, 100 + round)?;
                    assert_eq!(absent, None);
                    // Until the bucket has wrapped around, or has been unchanged for a while.
                    let (before, since) = (changes.load(Relaxed), Instant::now());
                    while changes.load(Relaxed) < before + 16 && since.elapsed() < Duration::from_millis(20) {
                        thread::yield_now();
                    }
                    tx.put(world.b, round, &round)
                })
                .expect("it ends");
            assert!(runs > 1, "its first run was not disturbed");
        }
    });
    assert!((0..3).all(|round| world.get(world.b, round) == Some(round)));
}

/// Money moves between rows that come and go, and none is lost, while all counters wrap around
/// continuously.
#[test]
fn money_is_neither_made_nor_lost() {
    const ACCOUNTS: u64 = 24;
    const MONEY: u64 = 10 * ACCOUNTS;
    let world = World::new();
    (0..ACCOUNTS).for_each(|key| world.insert(world.a, key, 10));
    let rounds = drtm_testing::rounds(3_000);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let movers: Vec<_> = (0..2)
            .map(|seed| {
                let world = &world;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    for _ in 0..rounds {
                        let (from, to) = (random.u64(0..ACCOUNTS), random.u64(0..ACCOUNTS));
                        world.db.transact(|tx| move_some(tx, world, from, to)).expect("sound");
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let _stop = Stop(&is_over);
            while !is_over.load(Relaxed) {
                let sum = world
                    .db
                    .read(|tx| (0..ACCOUNTS).try_fold(0, |sum, key| Ok(sum + tx.get(world.a, key)?.unwrap_or(0))));
                assert_eq!(sum.expect("sound"), MONEY);
                let snapshot = world.db.snapshot().expect("a snapshot");
                let kept = |key| snapshot.get(world.a, key).expect("it is kept").unwrap_or(0);
                assert_eq!((0..ACCOUNTS).map(kept).sum::<u64>(), MONEY);
            }
        });
        let moved: Vec<_> = movers.into_iter().map(|mover| mover.join()).collect();
        is_over.store(true, Relaxed);
        reader.join().expect("the reader");
        moved.into_iter().for_each(|mover| mover.expect("a mover"));
    });
}

/// Moves all money of an account, which is removed, to another, which may have to be created.
fn move_some(tx: &mut drtm_txn::Tx<'_>, world: &World, from: u64, to: u64) -> Result<(), drtm_txn::Error> {
    if from == to {
        return Ok(());
    }
    let Some(money) = tx.remove(world.a, from)? else { return Ok(()) };
    let there = tx.get(world.a, to)?.unwrap_or(0);
    // The excess of one account is divided.
    if there + money > 40 {
        tx.put(world.a, to, &40)?;
        return tx.put(world.a, from, &(there + money - 40));
    }
    tx.put(world.a, to, &(there + money))
}
