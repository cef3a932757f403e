//! No transaction starves: on contended rows, with a large read set beside writers, or with a read
//! set that differs at every attempt.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use drtm_testing::rounds;
use drtm_txn::{Db, Error, Ordered, Pod, TableDef};

const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
const QUEUE: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("queue");

#[test]
fn one_key_that_all_want() {
    let db = Db::new().expect("a database");
    let counters = db.table(COUNTERS).expect("a table");
    db.transact(|tx| tx.put(counters, 0, &0)).expect("room");
    let each = rounds(3_000);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..each {
                    db.transact(|tx| tx.update(counters, 0, |count| *count += 1)).expect("room");
                }
            });
        }
    });
    assert_eq!(db.read(|tx| tx.get(counters, 0)).expect("it can be read"), Some(4 * each));
}

/// A transaction reads everything slowly and writes something, while others write, insert and
/// remove continuously. Without the ticket it would never commit.
#[test]
fn one_who_reads_everything_while_others_write() {
    const ROWS: u64 = 100;
    let db = Db::new().expect("a database");
    let (counters, queue) = (db.table(COUNTERS).expect("a table"), db.table(QUEUE).expect("a table"));
    db.transact(|tx| (0..ROWS).try_for_each(|key| tx.put(counters, key, &0).and_then(|()| tx.put(queue, key, &0))))
        .expect("room");
    let (is_over, tries) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (db, is_over) = (&db, &is_over);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                while !is_over.load(Relaxed) {
                    let (one, two) = (random.u64(0..ROWS), random.u64(0..2 * ROWS));
                    let done = db.transact(|tx| {
                        tx.update(counters, one, |count| *count += 1)?;
                        match tx.remove(queue, two)? {
                            Some(_) => Ok(()),
                            None => tx.insert(queue, two, &1),
                        }
                    });
                    done.expect("room");
                }
            });
        }
        for round in 0..rounds(3) {
            let summed = db.transact(|tx| {
                tries.fetch_add(1, Relaxed);
                let mut sum = 0;
                for key in 0..ROWS {
                    sum += tx.get(counters, key)?.unwrap_or(0);
                    // Lets the others run at every step.
                    std::thread::yield_now();
                }
                let mut rows = tx.range(queue, ..)?;
                while let Some((_, value)) = rows.next()? {
                    sum += value;
                    std::thread::yield_now();
                }
                tx.put(counters, ROWS + round, &sum)
            });
            summed.expect("it commits some time");
        }
        is_over.store(true, Relaxed);
    });
    assert!(tries.load(Relaxed) >= 3);
}

/// Each attempt follows a chain of rows that others redirect meanwhile, so that its read set
/// differs every time.
#[test]
fn one_whose_rows_are_others_at_every_try() {
    const ROWS: u64 = 32;
    let db = Db::new().expect("a database");
    let counters = db.table(COUNTERS).expect("a table");
    db.transact(|tx| (0..ROWS).try_for_each(|key| tx.put(counters, key, &((key + 1) % ROWS)))).expect("room");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let redirect = || {
            let mut random = fastrand::Rng::with_seed(9);
            while !is_over.load(Relaxed) {
                let (from, to) = (random.u64(0..ROWS), random.u64(0..ROWS));
                db.transact(|tx| tx.put(counters, from, &to)).expect("room");
            }
        };
        scope.spawn(redirect);
        for _ in 0..rounds(5) {
            let followed = db.transact(|tx| {
                let mut at = 0;
                for _ in 0..40 {
                    at = tx.get(counters, at)?.ok_or(Error::Missing { table: "counters" })?;
                    std::thread::yield_now();
                }
                tx.put(counters, ROWS, &at)
            });
            followed.expect("it commits some time");
        }
        is_over.store(true, Relaxed);
    });
}

#[test]
fn a_transaction_within_another_is_refused() {
    let db = Db::new().expect("a database");
    let refused = db.transact(|_| {
        assert!(matches!(db.transact(|_| Ok(())), Err(Error::Nested)));
        assert!(matches!(db.begin().map(drop), Err(Error::Nested)));
        assert!(matches!(db.snapshot().map(drop), Err(Error::Nested)));
        db.read(|_| Ok(()))
    });
    assert!(matches!(refused, Err(Error::Nested)));
    db.transact(|_| Ok(())).expect("it is over");
}

/// A table grows while a transaction looks up absent rows and then inserts them. The growth causes
/// that transaction no conflict.
#[test]
fn one_whose_own_insertions_make_the_table_grow() {
    let db = Db::new().expect("a database");
    let counters = db.table(COUNTERS).expect("a table");
    let mut tx = db.begin().expect("a transaction");
    for key in 0..1_000 {
        assert_eq!(tx.get(counters, key).expect("no other thread runs"), None);
        tx.insert(counters, key, &key).expect("no other thread runs");
        assert_eq!(tx.get(counters, key + 1_000_000).expect("no other thread runs"), None);
    }
    tx.commit().expect("no other thread runs");
    assert_eq!(db.read(|tx| tx.get(counters, 999)).expect("it can be read"), Some(999));
}
