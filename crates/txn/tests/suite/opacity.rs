//! The reads of running transactions: one moment, for explicit transactions and for opaque
//! closures.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use drtm_htm::NoHtm;
use drtm_testing::rounds;
use drtm_txn::{Builder, Config, Db, Error, Mutation, Options, Ordered, Pod, Range, Table, TableDef, Tx};

use crate::{On, inherit, waits::ends, with_fault};

const PARTS: TableDef<u64, Pod<i64>> = TableDef::hash("parts");
const SORTED: TableDef<u64, Pod<i64>, Ordered> = TableDef::ordered("sorted parts");

/// Summed rows of each table. More than there are workers, so that few reads validate all.
const ROWS: u64 = 12;
const SUM: i64 = 100 * ROWS as i64;

#[derive(Clone, Copy)]
struct Tables(Table<u64, Pod<i64>>, Table<u64, Pod<i64>, Ordered>);

impl Tables {
    /// Sums all rows, some of which come and go. Returns `None` on a conflict.
    fn sum<S: Config>(self, tx: &mut Tx<'_, S>, turn: u64) -> Option<i64> {
        let Self(parts, sorted) = self;
        let mut sum = 0;
        for key in 0..ROWS {
            // In several orders.
            sum += tx.get(parts, (key * 5 + turn) % ROWS).ok()?.unwrap_or(0);
        }
        let mut rows =
            if turn.is_multiple_of(2) { tx.range(sorted, ..) } else { tx.range(sorted, ..).map(Range::rev) }.ok()?;
        while let Some((_, part)) = rows.next().ok()? {
            sum += part;
        }
        Some(sum)
    }

    /// Moves a part of one row to another, or all of it.
    fn shift<S: Config>(self, tx: &mut Tx<'_, S>, random: &mut fastrand::Rng) -> Result<(), Error> {
        let Self(parts, sorted) = self;
        let (one, two) = (random.u64(..ROWS), random.u64(..ROWS));
        match random.u8(..3) {
            0 => {
                tx.update(parts, one, |part| *part -= 7)?;
                let left = tx.get(sorted, two)?.unwrap_or(0);
                if tx.contains(parts, one)? { tx.put(sorted, two, &(left + 7)) } else { Ok(()) }
            }
            1 => {
                let moved = tx.remove(parts, one)?.unwrap_or(0);
                let left = tx.get(parts, two)?.unwrap_or(0);
                tx.put(parts, two, &(left + moved))
            }
            _ => {
                let moved = tx.remove(sorted, one)?.unwrap_or(0);
                let left = tx.get(parts, two)?.unwrap_or(0);
                tx.put(parts, two, &(left + moved))
            }
        }
    }
}

/// Returns how often running transactions have read an impossible sum, in this many runs.
fn impossible_sums(runs: u64, is_enough: impl Fn(u64) -> bool + Send + Sync + 'static) -> u64 {
    ends(move || {
        let db: Db<On<NoHtm>> = Builder::new().memory(32 << 20).build_with(NoHtm).expect("memory");
        let tables = Tables(db.table(PARTS).expect("memory"), db.table(SORTED).expect("memory"));
        db.transact(|tx| (0..ROWS).try_for_each(|key| tx.put(tables.0, key, &100))).expect("memory");
        let (is_over, impossible, whole) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let (db, is_over) = (&db, &is_over);
            for number in 0..2 {
                scope.spawn(inherit(move || {
                    let mut random = fastrand::Rng::with_seed(number);
                    while !is_over.load(Relaxed) {
                        db.transact(|tx| tables.shift(tx, &mut random)).expect("memory");
                    }
                }));
            }
            let note = |sum: Option<i64>| {
                if let Some(sum) = sum {
                    whole.fetch_add(1, Relaxed);
                    impossible.fetch_add(u64::from(sum != SUM), Relaxed);
                }
            };
            for turn in 0..runs {
                note(tables.sum(&mut db.begin().expect("memory"), turn));
                let seen = db.transact_with(Options::new().opaque().attempts(5), |tx| {
                    note(tables.sum(tx, turn));
                    Ok(())
                });
                assert!(matches!(seen, Ok(()) | Err(Error::Contended { .. })), "{seen:?}");
                if is_enough(impossible.load(Relaxed)) {
                    break;
                }
            }
            is_over.store(true, Relaxed);
        });
        assert!(whole.load(Relaxed) > 0, "none has come to its end");
        impossible.load(Relaxed)
    })
}

#[test]
fn a_running_transaction_sees_one_moment() {
    assert_eq!(impossible_sums(rounds(3_000), |_| false), 0);
}

/// Usually the first runs notice. On a busy machine writers may not run for a second.
#[test]
fn commits_that_are_not_counted_are_noticed() {
    let run = || impossible_sums(rounds(2_000_000), |impossible| impossible > 0);
    assert!(with_fault(Mutation::CommitsNotCounted, run) > 0);
}

/// A long transaction that also writes is opaque and commits: its own writes cause no conflict.
#[test]
fn a_long_explicit_transaction_commits() {
    let db = Db::new().expect("memory");
    let tables = Tables(db.table(PARTS).expect("memory"), db.table(SORTED).expect("memory"));
    let mut tx = db.begin().expect("memory");
    for key in 0..20_000 {
        assert_eq!(tx.get(tables.0, key).expect("nothing is in the way"), None);
        tx.insert(tables.0, key, &1).expect("memory");
        if key % 3 == 0 {
            tx.put(tables.1, key, &2).expect("memory");
            tx.update(tables.0, key / 2, |part| *part += 1).expect("nothing is in the way");
        }
    }
    assert_eq!(tx.range(tables.1, ..).and_then(Range::count).expect("nothing is in the way"), 6_667);
    // Another transaction that causes no conflict.
    let others = db.table(TableDef::<u64, Pod<u64>>::hash("others")).expect("memory");
    db.transact(|tx| tx.put(others, 1, &1)).expect("memory");
    assert_eq!(tx.get(tables.0, 1).expect("nothing is in the way"), Some(2));
    tx.commit().expect("nothing is in the way");
    let tx = db.begin().expect("memory");
    for key in 0..1_000 {
        tx.get(tables.0, key).expect("nothing is in the way");
    }
    db.transact(|tx| tx.put(tables.0, 500, &1)).expect("memory");
    assert!(matches!(tx.get(tables.0, 1_000), Err(Error::Conflict(_))), "a row has changed that it has read");
    assert!(matches!(tx.commit(), Err(Error::Conflict(_))));
}

/// A transaction is about to write a record that another created and then removes by a rollback.
/// The transaction cannot commit, and gets a conflict when it looks up its own row.
#[test]
fn a_write_whose_record_is_taken_out_is_not_overlooked() -> Result<(), Error> {
    let db = Builder::new().memory(16 << 20).build()?;
    let parts = db.table(PARTS)?;
    db.transact(|tx| (0..ROWS).try_for_each(|key| tx.insert(parts, key, &100)))?;
    let mut other = db.begin()?;
    other.insert(parts, ROWS, &1)?;
    let mut tx = db.begin()?;
    for key in 0..ROWS {
        tx.get(parts, key)?;
    }
    tx.put(parts, ROWS, &2)?;
    drop(other);
    assert!(matches!(tx.get(parts, ROWS), Err(Error::Conflict(_))));
    assert!(matches!(tx.commit(), Err(Error::Conflict(_))));
    Ok(())
}
