//! Large runs: `DRTM_STRESS=100` uses ten million rows, ten thousand threads and as many tasks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use drtm_testing::rounds;
use drtm_txn::{Builder, Db, Error, Ordered, Pod, Raw, Table, TableDef};

const SORTED: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("sorted");
const COUNTS: TableDef<u64, Pod<u64>> = TableDef::hash("counts");
const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");

/// The initial value of each row. Writers move amounts between rows.
const EACH: u64 = 1 << 32;

/// Rows that a transaction inserts.
const PART: u64 = 1_000;

#[test]
fn all_rows_are_read_at_one_moment_among_writers() -> Result<(), Error> {
    let rows = rounds(100_000);
    let db = Builder::new().memory((256 << 20) + rows * 256).build()?;
    let sorted = db.table(SORTED)?;
    for part in 0..rows / PART {
        db.transact(|tx| (part * PART..(part + 1) * PART).try_for_each(|key| tx.insert(sorted, key, &EACH)))?;
    }
    let is_over = AtomicBool::new(false);
    let read = thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|seed| {
                let (db, is_over) = (&db, &is_over);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let mut moved = 0;
                    while !is_over.load(Relaxed) {
                        let (from, to) = (random.u64(0..rows), random.u64(0..rows));
                        db.transact(|tx| {
                            tx.update(sorted, from, |value| *value -= 1)?;
                            tx.update(sorted, to, |value| *value += 1)
                        })
                        .map(drop)?;
                        moved += 1;
                    }
                    Ok::<u64, Error>(moved)
                })
            })
            .collect();
        let read = (0..3).try_for_each(|_| {
            let (count, sum) = db.read(|tx| {
                let (mut count, mut sum) = (0, 0_u64);
                for row in tx.range(sorted, ..)?.rows() {
                    count += 1;
                    sum += row?.1;
                }
                Ok((count, sum))
            })?;
            assert_eq!((count, sum), (rows, rows * EACH));
            Ok::<(), Error>(())
        });
        is_over.store(true, Relaxed);
        for writer in writers {
            assert!(writer.join().expect("no panic")? > 0, "they have written meanwhile");
        }
        read
    });
    read?;
    assert_eq!(db.snapshot_count()?, 0);
    Ok(())
}

/// Increments one of several rows, and a row that all share.
fn count(db: &Db, counts: Table<u64, Pod<u64>>, number: u64) -> Result<(), Error> {
    db.transact(|tx| {
        for key in [number % 16, SHARED] {
            let count = tx.get(counts, key)?.unwrap_or(0);
            tx.put(counts, key, &(count + 1))?;
        }
        Ok(())
    })
}

const SHARED: u64 = 99;

fn counted(db: &Db, counts: Table<u64, Pod<u64>>) -> Result<(u64, u64), Error> {
    db.read(|tx| {
        let mut sum = 0;
        for key in 0..16 {
            sum += tx.get(counts, key)?.unwrap_or(0);
        }
        Ok((sum, tx.get(counts, SHARED)?.unwrap_or(0)))
    })
}

#[test]
fn threads_that_come_and_go_leave_nothing() -> Result<(), Error> {
    const AT_ONCE: u64 = 50;
    let db = Builder::new().memory(64 << 20).build()?;
    let counts = db.table(COUNTS)?;
    let threads = rounds(2 * AT_ONCE);
    let run = |numbers: std::ops::Range<u64>| {
        thread::scope(|scope| {
            let threads: Vec<_> = numbers
                .map(|number| {
                    scope.spawn({
                        let db = &db;
                        move || count(db, counts, number)
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })
    };
    run(0..AT_ONCE)?;
    let first = db.memory();
    for round in 1..threads / AT_ONCE {
        run(round * AT_ONCE..(round + 1) * AT_ONCE)?;
    }
    assert_eq!(counted(&db, counts)?, (threads, threads));
    let last = db.memory();
    assert!(last.total() <= first.total() + (64 << 10), "{first:?} {last:?}");
    Ok(())
}

#[test]
fn tasks_are_as_many_as_they_like() -> Result<(), Error> {
    let db = Arc::new(Builder::new().memory(64 << 20).build()?);
    let counts = db.table(COUNTS)?;
    let tasks = rounds(500);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().expect("threads");
    runtime.block_on(async {
        let tasks: Vec<_> = (0..tasks)
            .map(|number| {
                let db = Arc::clone(&db);
                tokio::spawn(async move {
                    // An explicit transaction moves with its task between threads.
                    loop {
                        let mut tx = db.begin()?;
                        // It sees one moment, so a read may conflict, too.
                        let seen = tx.get(counts, number % 16);
                        tokio::task::yield_now().await;
                        let put = |seen: Option<u64>| tx.put(counts, number % 16, &(seen.unwrap_or(0) + 1));
                        match seen.and_then(put).and_then(|()| tx.commit()) {
                            Err(Error::Conflict(_)) => {}
                            other => break other,
                        }
                        tokio::task::yield_now().await;
                    }?;
                    db.transact(|tx| {
                        let count = tx.get(counts, SHARED)?.unwrap_or(0);
                        tx.put(counts, SHARED, &(count + 1))
                    })
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic")?;
        }
        Ok::<(), Error>(())
    })?;
    assert_eq!(counted(&db, counts)?, (tasks, tasks));
    Ok(())
}

#[test]
fn a_value_at_the_limit_is_like_any_other() -> Result<(), Error> {
    let db = Builder::new().memory(64 << 20).build()?;
    let notes = db.table(NOTES)?;
    let value = |length: usize, seed: u8| (0..length).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect::<Vec<u8>>();
    let is_refused = |length| match db.transact(|tx| tx.put(notes, 1, &value(length, 0))) {
        Ok(()) => false,
        Err(Error::TooLong { .. }) => true,
        Err(error) => panic!("{error}"),
    };
    let (mut fits, mut is_too_long) = (1_000, 1 << 20);
    while is_too_long - fits > 1 {
        let middle = (fits + is_too_long) / 2;
        *if is_refused(middle) { &mut is_too_long } else { &mut fits } = middle;
    }
    assert!(fits > 64_000, "{fits}");
    let snapshot_of = value(fits, 1);
    db.transact(|tx| tx.put(notes, 1, &snapshot_of))?;
    let snapshot = db.snapshot()?;
    for seed in 2..20 {
        db.transact(|tx| {
            assert_eq!(tx.get(notes, 1)?.map(|bytes| bytes.len()), Some(fits));
            tx.put(notes, 1, &value(fits, seed))
        })?;
        assert_eq!(db.read(|tx| tx.get(notes, 1))?, Some(value(fits, seed)));
    }
    assert_eq!(snapshot.get(notes, 1)?, Some(snapshot_of));
    assert!(is_refused(fits + 1) && db.transact(|tx| tx.remove(notes, 1))?.is_some());
    Ok(())
}
