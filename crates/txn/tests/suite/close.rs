//! Closing a database: running transactions may finish, no new ones begin, and nothing commits
//! afterwards.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use drtm_htm::{Emulated, Engine, NoHtm};
use drtm_testing::rounds;
use drtm_txn::{Builder, Commit, Db, Error, IndexDef, Pod, Sink, SinkError, TableDef};

use crate::On;

/// Counts the changes that it receives.
#[derive(Debug, Default)]
struct Told(AtomicU64);

impl Sink for Told {
    fn commit(&self, commit: &Commit<'_>) -> Result<(), SinkError> {
        self.0.fetch_add(commit.rows().count() as u64, Relaxed);
        Ok(())
    }
}

const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");

fn database<E: Engine>(engine: E) -> (Db<On<E>>, Arc<Told>) {
    let told = Arc::new(Told::default());
    (Builder::new().memory(16 << 20).sink(told.clone()).build_with(engine).expect("a database"), told)
}

#[test]
fn whatever_is_asked_of_a_closed_database_is_answered_so() -> Result<(), Error> {
    const BY_COUNT: IndexDef<u64, Pod<u64>, u64> = IndexDef::unique("counters by count", |_, count| Some(count));
    let db = Db::new()?;
    let (counters, clone) = (db.table(COUNTERS)?, db.clone());
    let by_count = db.index(counters, BY_COUNT)?;
    db.transact(|tx| tx.put(counters, 1, &7))?;
    assert!(!clone.is_closed());
    clone.close()?;
    assert!(db.is_closed());
    let answers = [
        db.transact(|tx| tx.put(counters, 1, &8)),
        db.try_transact(|tx| tx.put(counters, 1, &8)),
        db.read(|tx| tx.get(by_count, 7).map(drop)),
        db.try_read(|tx| tx.get(counters, 1).map(drop)),
        db.begin().map(drop),
        db.snapshot().map(drop),
        db.table(COUNTERS).map(drop),
        db.index(counters, BY_COUNT).map(drop),
        clone.transact(|_| Ok(())),
    ];
    for answer in answers {
        assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
    }
    // Statistics remain available.
    assert_eq!((db.stats().commits, db.stats().given_up), (1, 0));
    assert_eq!(db.tables()?, [("counters", 1), ("counters by count", 1)]);
    assert_eq!(db.older_versions(), 0);
    db.close()
}

#[test]
fn nobody_closes_a_database_from_within() -> Result<(), Error> {
    let db = Db::new()?;
    let counters = db.table(COUNTERS)?;
    db.transact(|tx| {
        assert!(matches!(db.close(), Err(Error::InTransaction)));
        tx.put(counters, 1, &1)
    })?;
    db.read(|_| {
        assert!(matches!(db.close(), Err(Error::InTransaction)));
        Ok(())
    })?;
    let (tx, snapshot) = (db.begin()?, db.snapshot()?);
    assert!(matches!(db.close(), Err(Error::InTransaction)));
    drop(tx);
    assert!(matches!(db.close_within(Some(Duration::MAX)), Err(Error::InTransaction)));
    drop(snapshot);
    assert!(!db.is_closed(), "it was not closed by that");
    // A panic ends a transaction, too.
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        db.transact(|_| -> Result<(), Error> { panic!("out") })
    }));
    assert!(panicked.is_err());
    db.transact(|tx| tx.put(counters, 1, &2))?;
    db.close()
}

/// A closure that runs when the database is closed finishes, even if it has to be retried; so do an
/// explicit transaction and a snapshot.
#[test]
fn who_is_inside_may_finish() -> Result<(), Error> {
    let db = Db::new()?;
    let counters = db.table(COUNTERS)?;
    db.transact(|tx| tx.put(counters, 1, &10))?;
    let (is_in, others) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            let mut tries = 0;
            db.transact(|tx| {
                let count = tx.get(counters, 1)?.unwrap_or(0);
                tries += 1;
                if tries == 1 {
                    is_in.wait();
                    others.wait();
                }
                tx.put(counters, 1, &(count + 1))?;
                Ok(tries)
            })
        });
        is_in.wait();
        db.transact(|tx| tx.put(counters, 1, &20))?;
        let (begun, snapshot) = thread::scope(|scope| {
            let begin = || Ok::<_, Error>((db.begin()?, db.snapshot()?));
            scope.spawn(begin).join().expect("it does not panic")
        })?;
        let closed = db.close_within(Some(Duration::from_millis(20)));
        assert!(matches!(closed, Err(Error::StillRunning { transactions: 3 })), "{closed:?}");
        assert!(db.is_closed() && matches!(db.begin().map(drop), Err(Error::Closed)));
        others.wait();
        assert_eq!(running.join().expect("it does not panic")?, 2, "it has been run again meanwhile");
        let closed = db.close_within(Some(Duration::ZERO));
        assert!(matches!(closed, Err(Error::StillRunning { transactions: 2 })), "{closed:?}");
        assert_eq!(snapshot.get(counters, 1)?, Some(20));
        drop(snapshot);
        let mut begun = begun;
        begun.put(counters, 2, &5)?;
        begun.commit()?;
        db.close()
    })?;
    assert_eq!(db.stats().commits, 4);
    Ok(())
}

/// Threads write in all ways while another closes. Every acknowledged write has been reported to
/// the sink, and none is reported afterwards.
fn nothing_commits_afterwards<E: Engine>(engine: &E, rounds: u64) {
    for round in 0..rounds {
        let (db, counted) = database(engine.clone());
        let counters = db.table(COUNTERS).expect("memory");
        db.transact(|tx| (0..4).try_for_each(|key| tx.put(counters, key, &0))).expect("memory");
        let (acknowledged, is_over, start) = (AtomicU64::new(4), AtomicBool::new(false), Barrier::new(3));
        let told = thread::scope(|scope| {
            for writer in 0..2_u64 {
                let (db, acknowledged, is_over, start) = (&db, &acknowledged, &is_over, &start);
                scope.spawn(move || {
                    start.wait();
                    for turn in 0.. {
                        let key = (writer + turn) % 4;
                        let was_over = is_over.load(Relaxed);
                        let done = match turn % 3 {
                            0 => db.transact(|tx| tx.update(counters, key, |count| *count += 1)).map(drop),
                            1 => db.begin().and_then(|mut tx| {
                                tx.put(counters, key, &turn)?;
                                tx.commit()
                            }),
                            _ => db.snapshot().and_then(|tx| tx.get(counters, key)).and(Err(Error::aborted("read"))),
                        };
                        match done {
                            Ok(()) => {
                                assert!(!was_over, "it came in when all was over");
                                acknowledged.fetch_add(1, Relaxed);
                            }
                            Err(Error::Closed) => break,
                            Err(Error::Conflict(_) | Error::Aborted { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            start.wait();
            for _ in 0..round % 40 * 50 {
                std::hint::spin_loop();
            }
            db.close().expect("this thread has no transaction");
            let told = counted.0.load(Relaxed);
            is_over.store(true, Relaxed);
            told
        });
        assert_eq!(counted.0.load(Relaxed), told, "something has committed afterwards");
        assert_eq!(acknowledged.load(Relaxed), told, "what was told is what was acknowledged");
    }
}

#[test]
fn nothing_commits_after_the_end() {
    nothing_commits_afterwards(&NoHtm, rounds(400));
}

#[test]
fn nothing_commits_after_the_end_in_regions() {
    nothing_commits_afterwards(&Emulated::default(), rounds(100));
}

/// Several threads close at once, and all return when the close is complete.
#[test]
fn several_close_at_once() {
    for _ in 0..rounds(50) {
        let (db, counted) = database(NoHtm);
        let counters = db.table(COUNTERS).expect("memory");
        thread::scope(|scope| {
            scope.spawn(|| while db.transact(|tx| tx.put(counters, 1, &1)).is_ok() {});
            for _ in 0..2 {
                scope.spawn(|| {
                    db.close().expect("this thread has no transaction");
                    let told = counted.0.load(Relaxed);
                    thread::yield_now();
                    assert_eq!(counted.0.load(Relaxed), told);
                });
            }
        });
    }
}
