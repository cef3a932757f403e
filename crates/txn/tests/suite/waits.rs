//! No transaction blocks the process: it never waits for itself, and no other waits for what its
//! closure waits for.

use std::{
    sync::{
        Barrier,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use drtm_htm::NoHtm;
use drtm_txn::{Builder, Config, Conflict, Db, Error, Mutation, Options, Ordered, Pod, Table, TableDef};

use crate::{On, inherit, with_fault};

const ROWS: TableDef<u64, Pod<u64>> = TableDef::hash("rows");
const OTHERS: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("others");

type Rows = Table<u64, Pod<u64>>;

/// The number of failed runs after which a transaction requests the ticket.
const STARVED: u32 = 48;

/// Runs a test on a thread of its own, and fails if the test does not end.
pub(crate) fn ends<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    let running = thread::spawn(inherit(move || {
        let result = test();
        done.send(()).ok();
        result
    }));
    if let Err(mpsc::RecvTimeoutError::Timeout) = is_done.recv_timeout(Duration::from_secs(60)) {
        panic!("it hangs");
    }
    running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn database() -> (Db, Rows) {
    let db = Builder::new().memory(16 << 20).build().expect("memory");
    let rows = db.table(ROWS).expect("memory");
    db.transact(|tx| (1..4).try_for_each(|key| tx.put(rows, key, &0))).expect("memory");
    (db, rows)
}

/// Another thread writes the first row, and has committed when this returns.
fn disturb<S: Config>(db: &Db<S>, rows: Rows) -> Result<(), Error> {
    thread::scope(|scope| {
        let other = scope.spawn(|| db.transact(|tx| tx.update(rows, 1, |count| *count += 1).map(drop)));
        other.join().expect("no panic")
    })
}

/// Runs a closure with conflicts until it has starved.
fn starve<T>(db: &Db, rows: Rows, mut then: impl FnMut(&mut drtm_txn::Tx<'_>) -> Result<T, Error>) -> Result<T, Error> {
    let mut run = 0;
    db.transact(|tx| {
        run += 1;
        let now = tx.get(rows, 1)?.unwrap_or(0);
        if run <= STARVED {
            disturb(db, rows)?;
        }
        let result = then(tx)?;
        tx.put(rows, 2, &now)?;
        Ok(result)
    })
}

#[test]
fn a_snapshot_of_the_same_thread_reads_within_a_closure() {
    ends(|| {
        let (db, rows) = database();
        let yesterday = db.snapshot().expect("memory");
        let seen = starve(&db, rows, |tx| Ok((yesterday.get(rows, 1)?, tx.get(rows, 3)?, yesterday.get(rows, 3)?)));
        assert_eq!(seen.expect("it commits"), (Some(0), Some(0), Some(0)));
    });
}

#[test]
fn a_transaction_of_the_same_thread_reads_and_commits_within_a_closure() {
    ends(|| {
        let (db, rows) = database();
        let (other, committed) = (AtomicU32::new(0), AtomicU32::new(0));
        let mut others: Vec<_> = (0..=STARVED + 10).map(|_| db.begin().expect("memory")).collect();
        let done: Result<(), Error> = starve(&db, rows, |_| {
            let Some(mut mine) = others.pop() else { return Err(Error::aborted("it does not come through")) };
            other.fetch_add(1, Relaxed);
            // The closure reads these rows in every run, and its thread claims them once it has
            // starved.
            if mine.put(rows, 1, &7).and_then(|()| mine.commit()).is_ok() {
                committed.fetch_add(1, Relaxed);
            }
            Err(Error::aborted("on purpose"))
        });
        // It conflicts with itself, and is retried until no attempt is left.
        assert!(matches!(done, Err(Error::Aborted { reason }) if reason == "it does not come through"));
        assert!(committed.load(Relaxed) > STARVED, "{committed:?} of {other:?}");
    });
}

/// Whatever the closure of a starved transaction waits for: other transactions can read, write
/// other rows, and write the claimed ones.
#[test]
fn nobody_waits_for_what_a_starved_closure_waits_for() {
    ends(|| {
        let (db, rows) = database();
        let others = db.table(OTHERS).expect("memory");
        let (is_inside, is_done) = (Barrier::new(2), AtomicBool::new(false));
        thread::scope(|scope| {
            let (db, is_inside, is_done) = (&db, &is_inside, &is_done);
            scope.spawn(move || {
                let snapshot = db.snapshot().expect("memory");
                is_inside.wait();
                assert_eq!(snapshot.get(rows, 3).expect("kept"), Some(0));
                assert_eq!(db.read(|tx| tx.get(rows, 3)).expect("sound"), Some(0));
                db.transact(|tx| tx.insert(others, 9, &9)).expect("memory");
                db.transact(|tx| tx.put(rows, 1, &9)).expect("it is claimed for a while only");
                is_done.store(true, Release);
            });
            let (mut run, late) = (0, Instant::now() + Duration::from_secs(30));
            let mut has_waited = false;
            starve(db, rows, |tx| {
                run += 1;
                tx.get(rows, 3)?;
                tx.range(others, ..)?.count()?;
                // The first run with the ticket has no claims yet.
                if run > STARVED && !has_waited {
                    has_waited = true;
                    is_inside.wait();
                    while !is_done.load(Acquire) && Instant::now() < late {
                        thread::yield_now();
                    }
                    assert!(is_done.load(Acquire), "others wait for the closure");
                }
                Ok(())
            })
            .expect("it commits");
        });
    });
}

/// Each database is used within the closure of the other, and both closures have starved.
#[test]
fn two_databases_do_not_wait_for_each_other() {
    ends(|| {
        let databases = [database(), database()];
        let both = Barrier::new(2);
        thread::scope(|scope| {
            for own in 0..2 {
                let (databases, both) = (&databases, &both);
                scope.spawn(move || {
                    let ((db, rows), (other, theirs)) = (&databases[own], &databases[1 - own]);
                    let (mut run, mut has_met) = (0, false);
                    starve(db, *rows, |_| {
                        run += 1;
                        if run > STARVED && !std::mem::replace(&mut has_met, true) {
                            both.wait();
                        }
                        if run > STARVED {
                            other.transact(|tx| tx.update(*theirs, 1, |count| *count += 1))?;
                        }
                        Ok(())
                    })
                    .expect("it commits");
                });
            }
        });
    });
}

#[test]
fn a_bounded_transaction_says_what_it_conflicted_with() {
    ends(|| {
        let (db, rows) = database();
        for attempts in [1, 3, 2 * STARVED] {
            let mut runs = 0;
            let failed = db.transact_with(Options::new().attempts(attempts), |tx| {
                runs += 1;
                let now = tx.get(rows, 1)?.unwrap_or(0);
                disturb(&db, rows)?;
                tx.put(rows, 2, &(100 + now))
            });
            match failed {
                Err(Error::Contended { attempts: told, conflict: Conflict::Validation, table, key }) => {
                    assert_eq!((told, runs), (attempts, attempts));
                    assert_eq!((table, key), (Some("rows"), 1_u64.to_be_bytes().to_vec()));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(db.read(|tx| tx.get(rows, 2)).expect("sound"), Some(0), "nothing has happened");
        // A key was inserted into a scanned range.
        let others = db.table(OTHERS).expect("memory");
        let mut key = 0;
        let failed = db.transact_with(Options::new().attempts(2), |tx| {
            key += 1;
            tx.range(others, ..)?.count()?;
            thread::scope(|scope| scope.spawn(|| db.transact(|tx| tx.insert(others, key, &1))).join())
                .expect("no panic")?;
            tx.put(rows, 2, &1)
        });
        assert!(matches!(failed, Err(Error::Contended { conflict: Conflict::Phantom, table: None, .. })), "{failed:?}");
        // Errors of the closure are its own, and one run is always allowed.
        let options = Options::new().attempts(0).deadline(Instant::now());
        assert!(matches!(
            db.transact_with(options, |_| Err::<(), _>(Error::aborted("no"))),
            Err(Error::Aborted { .. })
        ));
        db.transact_with(options, |tx| tx.put(rows, 2, &1)).expect("it is run once");
        db.try_transact_with(options, |tx| tx.put(rows, 2, &1)).expect("it is run once");
    });
}

#[test]
fn a_deadline_ends_a_closure_that_would_be_run_for_ever() {
    ends(|| {
        let (db, rows) = database();
        let options = Options::new().deadline(Instant::now() + Duration::from_millis(300));
        let failed = db.transact_with(options, |tx| {
            let now = tx.get(rows, 1)?.unwrap_or(0);
            disturb(&db, rows)?;
            tx.put(rows, 2, &now)
        });
        assert!(matches!(failed, Err(Error::Contended { attempts: 2.., .. })), "{failed:?}");
    });
}

/// How long a run waits for others: a small part of the ticket's time, or until they have caused a
/// conflict.
const WAITED_FOR: Duration = Duration::from_millis(10);
const FOR_EVER: Duration = Duration::from_secs(30);

/// How often it may starve: the ticket's time can end before another thread has run.
const TURNS: u32 = 4;

/// Returns whether a condition holds in one of a few attempts: on a busy machine, a transaction can
/// lose its time with the ticket repeatedly.
fn at_last(is_so: impl Fn() -> bool) -> bool {
    (0..5).any(|_| is_so())
}

/// The tables of the transactions: rows 1 and 2, those of runs, and a range.
type Tables = (Rows, Table<u64, Pod<u64>, Ordered>);

/// The number of the disturbing transaction, and the row that the present run has read.
type Turn = (u64, u64);

/// Rows of which each run reads another.
const ROWS_OF_RUNS: std::ops::Range<u64> = 1_000..2_000;

/// Runs a transaction that gives others time to write its read set in every run; `disturb` causes
/// the conflicts. Each run waits at most `patience`. Returns whether it commits within a few runs
/// more than it takes to starve a few times.
fn comes_through(
    patience: Duration,
    disturb: impl Fn(&Db<On<NoHtm>>, Tables, Turn) -> Result<(), Error> + Send + Sync + 'static,
) -> bool {
    comes_through_within(TURNS * (STARVED + 20), 0, patience, disturb)
}

/// Runs such a transaction within this many runs, each of which also reads so many rows of a range.
fn comes_through_within(
    attempts: u32,
    rows_of_range: u64,
    patience: Duration,
    disturb: impl Fn(&Db<On<NoHtm>>, Tables, Turn) -> Result<(), Error> + Send + Sync + 'static,
) -> bool {
    ends(move || {
        let db: Db<On<NoHtm>> = Builder::new().memory(16 << 20).build_with(NoHtm).expect("memory");
        let (rows, others) = (db.table(ROWS).expect("memory"), db.table(OTHERS).expect("memory"));
        db.transact(|tx| tx.put(rows, 1, &0)).expect("memory");
        db.transact(|tx| ROWS_OF_RUNS.into_iter().try_for_each(|key| tx.put(rows, key, &0))).expect("memory");
        db.transact(|tx| (0..rows_of_range).try_for_each(|key| tx.put(others, key, &0))).expect("memory");
        let (commits, is_over, row) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(ROWS_OF_RUNS.start));
        thread::scope(|scope| {
            let disturbed = || {
                for turn in 0.. {
                    if is_over.load(Relaxed) {
                        break;
                    }
                    disturb(&db, (rows, others), (turn, row.load(Acquire))).expect("memory");
                    commits.fetch_add(1, Release);
                }
            };
            scope.spawn(inherit(disturbed));
            let done = db.transact_with(Options::new().attempts(attempts), |tx| {
                let of_run = row.fetch_add(1, AcqRel) + 1;
                let seen = tx.get_many(rows, [1, 2, of_run])?;
                let count = seen.into_iter().flatten().sum::<u64>() + tx.range(others, ..)?.count()?;
                let (before, patience) = (commits.load(Acquire), Instant::now() + patience);
                // A commit that had begun before this run may be the first.
                while commits.load(Acquire) < before + 2 && Instant::now() < patience {
                    thread::yield_now();
                }
                tx.put(rows, 3, &count)
            });
            is_over.store(true, Relaxed);
            match done {
                Ok(()) => true,
                Err(Error::Contended { .. }) => false,
                Err(error) => panic!("{error}"),
            }
        })
    })
}

#[test]
fn one_whose_row_is_written_again_and_again_comes_through() {
    fn write<S: Config>(db: &Db<S>, (rows, _): Tables, _: Turn) -> Result<(), Error> {
        db.transact(|tx| tx.update(rows, 1, |count| *count += 1).map(drop))
    }
    assert!(at_last(|| comes_through(WAITED_FOR, write)));
    let ignored = with_fault(Mutation::ClaimsIgnored, || comes_through(FOR_EVER, write));
    assert!(!ignored, "the fault is not noticed");
}

#[test]
fn one_whose_range_gets_keys_again_and_again_comes_through() {
    fn insert<S: Config>(db: &Db<S>, (_, others): Tables, (turn, _): Turn) -> Result<(), Error> {
        db.transact(|tx| {
            tx.remove(others, turn.saturating_sub(20))?;
            tx.insert(others, turn, &1)
        })
    }
    assert!(at_last(|| comes_through(WAITED_FOR, insert)));
    let ignored = with_fault(Mutation::ClaimsIgnored, || comes_through(FOR_EVER, insert));
    assert!(!ignored, "the fault is not noticed");
}

#[test]
fn one_whose_absent_key_comes_and_goes_comes_through() {
    fn toggle<S: Config>(db: &Db<S>, (rows, _): Tables, (turn, _): Turn) -> Result<(), Error> {
        db.transact(|tx| {
            if tx.remove(rows, 2)?.is_none() {
                tx.insert(rows, 2, &turn)?;
            }
            Ok(())
        })
    }
    assert!(at_last(|| comes_through(WAITED_FOR, toggle)));
    let ignored = with_fault(Mutation::ClaimsIgnored, || comes_through(FOR_EVER, toggle));
    assert!(!ignored, "the fault is not noticed");
}

/// No claim of a failed run is of any use for the next one.
#[test]
fn one_whose_rows_differ_at_every_run_comes_through() {
    fn follow<S: Config>(db: &Db<S>, (rows, _): Tables, (_, row): Turn) -> Result<(), Error> {
        db.transact(|tx| tx.update(rows, row, |count| *count += 1).map(drop))
    }
    assert!(at_last(|| comes_through(WAITED_FOR, follow)));
    let admitted = with_fault(Mutation::OthersAdmitted, || comes_through(FOR_EVER, follow));
    assert!(!admitted, "the fault is not noticed");
}

/// It asks for the ticket as soon as its failed runs have read much, and not after as many runs as
/// a short one.
#[test]
fn a_long_one_comes_through_in_few_runs() {
    const ROWS_OF_RANGE: u64 = 40_000;
    fn write<S: Config>(db: &Db<S>, (_, others): Tables, (turn, _): Turn) -> Result<(), Error> {
        db.transact(|tx| tx.update(others, turn % ROWS_OF_RANGE, |count| *count += 1).map(drop))
    }
    assert!(at_last(|| comes_through_within(STARVED - 8, ROWS_OF_RANGE, WAITED_FOR, write)));
}
