//! Memory that rows of one size have left serves rows of others.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use drtm_txn::{Builder, Db, Error, Hash, Kind, Ordered, Raw, Table, TableDef};
use proptest::prelude::*;

const HASHED: TableDef<u64, Raw> = TableDef::hash("hashed");
const SORTED: TableDef<u64, Raw, Ordered> = TableDef::ordered("sorted");

const MEMORY: u64 = 64 << 20;

fn database(memory: u64) -> Result<Db, Error> {
    Builder::new().memory(memory).build()
}

/// Inserts rows of so many bytes from this key on, until there is no memory. Returns how many there
/// are then.
fn fill<O: Kind>(db: &Db, table: Table<u64, Raw, O>, bytes: usize, first: u64) -> u64 {
    let value = vec![0; bytes];
    let full = (first..).find_map(|key| Some((key, db.transact(|tx| tx.insert(table, key, &value)).err()?)));
    let (key, error) = full.expect("memory has an end");
    assert!(matches!(error, Error::Full { .. }), "{error}");
    key - first
}

fn remove<O: Kind>(db: &Db, table: Table<u64, Raw, O>, keys: std::ops::Range<u64>) -> Result<(), Error> {
    for key in keys {
        assert!(db.transact(|tx| tx.remove(table, key))?.is_some());
    }
    Ok(())
}

/// The first key of the `round`th fill.
fn first(round: usize) -> u64 {
    round as u64 * 1_000_000
}

fn all_sizes_fit_again<O: Kind>(def: TableDef<u64, Raw, O>, allowed: f64) -> Result<(), Error> {
    let sizes = [1_000, 500, 2_000, 60_000, 700, 1_000];
    let fresh: Vec<u64> = sizes
        .iter()
        .map(|bytes| {
            let db = database(MEMORY)?;
            Ok(fill(&db, db.table(def)?, *bytes, 0))
        })
        .collect::<Result<_, Error>>()?;
    let db = database(MEMORY)?;
    let table = db.table(def)?;
    for (round, bytes) in sizes.into_iter().enumerate() {
        // The same keys, as a table's directory is not given back.
        let rows = fill(&db, table, bytes, 0);
        assert!(
            rows as f64 >= allowed * fresh[round] as f64,
            "round {round}: {rows} rows of {bytes} bytes fit, and {} in an empty database",
            fresh[round]
        );
        remove(&db, table, 0..rows)?;
    }
    assert_eq!(db.tables()?[0].1, 0);
    Ok(())
}

#[test]
fn rows_of_every_size_fit_where_others_were_in_a_hash_table() -> Result<(), Error> {
    all_sizes_fit_again::<Hash>(HASHED, 0.9)
}

#[test]
fn rows_of_every_size_fit_where_others_were_in_a_tree() -> Result<(), Error> {
    all_sizes_fit_again::<Ordered>(SORTED, 0.9)
}

#[test]
fn rows_can_grow_together_until_they_fill_the_memory() -> Result<(), Error> {
    let db = database(MEMORY)?;
    let rows = db.table(SORTED)?;
    let mut bytes = 100;
    let refused = loop {
        let value = vec![7; bytes];
        if let Some(refused) = (0..1_000_u64).find_map(|key| db.transact(|tx| tx.put(rows, key, &value)).err()) {
            break refused;
        }
        bytes += bytes / 8;
    };
    assert!(matches!(refused, Error::Full { .. } | Error::TooLong { .. }), "{refused}");
    assert!(1_000 * bytes as u64 > MEMORY * 3 / 4, "full at {bytes} bytes a row");
    Ok(())
}

/// While a transaction is open that may know a row's place, the memory is not cut anew.
#[test]
fn memory_is_not_cut_anew_while_a_transaction_may_know_it() -> Result<(), Error> {
    let db = database(8 << 20)?;
    let table = db.table(HASHED)?;
    let rows = fill(&db, table, 1_000, 0);
    let mut late = db.begin()?;
    late.put(table, 0, &[7; 1_000])?;
    let snapshot = db.snapshot()?;
    remove(&db, table, 0..rows)?;
    assert!(fill(&db, table, 4_000, first(1)) < rows / 40, "the snapshot needs what was there");
    drop(snapshot);
    // Commits take back what the snapshot needed.
    while db.memory().garbage > 0 {
        db.read(|tx| tx.contains(table, 0))?;
    }
    assert!(fill(&db, table, 4_000, first(2)) < rows / 40, "a transaction is open");
    assert!(matches!(late.commit(), Err(Error::Conflict(_))));
    assert!(fill(&db, table, 4_000, first(3)) > rows / 6);
    Ok(())
}

/// A row of another size that is refused takes no memory away, even while a snapshot keeps it from
/// being divided anew; and the error says what would free it.
#[test]
fn what_fitted_still_fits_after_a_row_of_another_size_was_refused() -> Result<(), Error> {
    let db = database(8 << 20)?;
    let table = db.table(HASHED)?;
    let rows = fill(&db, table, 100, 0);
    remove(&db, table, 0..rows)?;
    let snapshot = db.snapshot()?;
    for round in 1..4 {
        let refused = db.transact(|tx| tx.put(table, first(9), &[1; 4_000]));
        let Err(Error::Full(shortage)) = refused else { panic!("{refused:?}") };
        assert!(shortage.waiting > 6 << 20 && shortage.snapshots == 1, "{shortage:?}");
        let said = Error::Full(shortage).to_string();
        assert!(said.contains("1 snapshot is open, the oldest for ") && said.contains("Builder::memory"), "{said}");
        let again = fill(&db, table, 100, 0);
        assert!(again >= rows - 64, "round {round}: {again} rows of {rows} fit");
        remove(&db, table, 0..again)?;
    }
    drop(snapshot);
    db.transact(|tx| tx.put(table, first(9), &[1; 4_000]))
}

#[test]
fn an_error_says_which_sizes_memory_serves() -> Result<(), Error> {
    let db = database(8 << 20)?;
    let table = db.table(HASHED)?;
    let rows = fill(&db, table, 1_000, 0);
    // One row of each span is left.
    (0..rows).filter(|row| row % 5 > 0).try_for_each(|row| remove(&db, table, row..row + 1))?;
    let refused = db.transact(|tx| tx.put(table, first(9), &[1; 4_000]));
    let Err(Error::Full(shortage)) = refused else { panic!("{refused:?}") };
    assert!(shortage.other_sizes > 4 << 20 && (1_032..1_200).contains(&shortage.other_size), "{shortage:?}");
    assert!(shortage.to_string().ends_with("compact the memory"), "{shortage}");
    db.compact()?;
    db.transact(|tx| tx.put(table, first(9), &[1; 4_000]))
}

/// A closure that fails for a reason of its own is not run again because of an earlier transaction.
#[test]
fn a_lack_of_memory_ends_with_its_transaction() -> Result<(), Error> {
    let db = database(8 << 20)?;
    let table = db.table(HASHED)?;
    let rows = fill(&db, table, 1_000, 0);
    let late = db.begin()?;
    remove(&db, table, 0..rows)?;
    let mut explicit = db.begin()?;
    let lacked = (first(1)..).find_map(|key| explicit.insert(table, key, &[7; 4_000]).err());
    assert!(matches!(lacked, Some(Error::Full { .. })), "memory waits for the open transaction");
    drop((late, explicit));
    let mut runs = 0;
    let failed: Result<(), Error> = db.transact(|_| {
        runs += 1;
        Err(Error::aborted("for a reason of its own"))
    });
    assert!(matches!(failed, Err(Error::Aborted { .. })));
    assert_eq!(runs, 1);
    Ok(())
}

#[test]
fn memory_in_free_spans_is_told() -> Result<(), Error> {
    let db = database(8 << 20)?;
    let table = db.table(HASHED)?;
    let rows = fill(&db, table, 1_000, 0);
    remove(&db, table, 0..rows)?;
    let before = db.memory();
    db.transact(|tx| tx.insert(table, first(1), &[0; 30_000]))?;
    let after = db.memory();
    assert!(before.free == 0 && after.free > 6 << 20, "{before:?}, {after:?}");
    assert!(after.tables < before.tables - (6 << 20));
    Ok(())
}

/// What a random program does with a row.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Puts rows of so many bytes, under so many keys from one on.
    Put { first: u16, rows: u16, bytes: u16 },
    /// Removes every so many-th of them.
    Remove { first: u16, rows: u16, every: u16 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![0..64_u16, 64..1_024_u16, 1_024..5_000_u16];
    let put = (0..4_000_u16, 100..1_500_u16, bytes).prop_map(|(first, rows, bytes)| Step::Put { first, rows, bytes });
    let remove =
        (0..4_000_u16, 100..3_000_u16, 1..6_u16).prop_map(|(first, rows, every)| Step::Remove { first, rows, every });
    proptest::collection::vec(prop_oneof![put, remove], 4..16)
}

fn run<O: Kind>(def: TableDef<u64, Raw, O>, steps: &[Step], bytes: usize) -> Result<(), Error> {
    let memory = 16 << 20;
    let db = database(memory)?;
    let table = db.table(def)?;
    let mut model = BTreeMap::new();
    for step in steps {
        match *step {
            Step::Put { first, rows, bytes } => {
                for key in first..first + rows {
                    let value = vec![key as u8; bytes.into()];
                    match db.transact(|tx| tx.put(table, u64::from(key), &value)) {
                        Ok(()) => drop(model.insert(u64::from(key), value)),
                        Err(Error::Full { .. }) => break,
                        Err(error) => return Err(error),
                    }
                }
            }
            Step::Remove { first, rows, every } => {
                for key in (first..first + rows).step_by(every.into()) {
                    let removed = db.transact(|tx| tx.remove(table, u64::from(key)))?;
                    assert_eq!(removed.is_some(), model.remove(&u64::from(key)).is_some());
                }
            }
        }
    }
    let compacted = db.compact()?;
    assert_eq!(compacted.waiting, 0);
    for (key, value) in &model {
        assert_eq!(db.read(|tx| tx.get(table, key))?.as_ref(), Some(value), "{key}");
    }
    assert_eq!(db.read(|tx| tx.len(table))?, model.len() as u64);

    // An empty database with these rows, whose directory is as large.
    let other = database(memory)?;
    let rows = other.table(def)?;
    for key in 0..5_500_u64 {
        other.transact(|tx| tx.put(rows, key, b""))?;
    }
    other.transact(|tx| tx.clear(rows).map(drop))?;
    other.compact()?;
    for (key, value) in &model {
        other.transact(|tx| tx.put(rows, key, value))?;
    }
    let (here, there) = (fill(&db, table, bytes, first(1)), fill(&other, rows, bytes, first(1)));
    // What fits in all, the rows that are there included.
    let live: usize = model.values().map(|value| value.len() + 48).sum();
    let all = |rows: u64| live as f64 + (rows as usize * (bytes + 48)) as f64;
    assert!(all(here) >= 0.9 * all(there), "{here} rows of {bytes} bytes fit, and {there} in an empty database");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn after_a_compaction_as_much_fits_as_in_an_empty_database(
        steps in steps(), bytes in prop_oneof![Just(60_usize), Just(500), Just(2_000)], is_ordered: bool
    ) {
        let ran = if is_ordered { run::<Ordered>(SORTED, &steps, bytes) } else { run::<Hash>(HASHED, &steps, bytes) };
        ran.expect("sound");
    }
}

/// Rows are moved while others write them, and lose nothing.
#[test]
fn writers_go_on_while_rows_are_moved() -> Result<(), Error> {
    const COUNTERS: u64 = 2_000;
    let db = database(16 << 20)?;
    let table = db.table(SORTED)?;
    let rounds = drtm_testing::rounds(5);
    (0..8_000_u64).try_for_each(|key| db.transact(|tx| tx.insert(table, key, &[0; 300])))?;
    let is_over = AtomicBool::new(false);
    let written = thread::scope(|scope| {
        let writers = [1, 2].map(|writer| {
            let (db, is_over) = (&db, &is_over);
            scope.spawn(move || {
                let (mut random, mut written) = (fastrand::Rng::with_seed(writer), 0_u64);
                while !is_over.load(Relaxed) {
                    // Every fourth row stays, and counts.
                    let key = 4 * random.u64(..COUNTERS);
                    let update = db.transact(|tx| {
                        tx.update(table, key, |value| {
                            let count = u64::from_le_bytes(value[..8].try_into().expect("eight")) + 1;
                            value[..8].copy_from_slice(&count.to_le_bytes());
                        })
                    });
                    assert!(update.expect("room").is_some(), "{key} is lost");
                    written += 1;
                }
                written
            })
        });
        for _ in 0..rounds {
            let others = (0..8_000_u64).filter(|key| key % 4 > 0);
            others.clone().try_for_each(|key| db.transact(|tx| tx.remove(table, key)).map(drop))?;
            db.compact()?;
            others.clone().try_for_each(|key| db.transact(|tx| tx.put(table, key, &[0; 300])))?;
        }
        is_over.store(true, Relaxed);
        Ok::<u64, Error>(writers.into_iter().map(|writer| writer.join().expect("no panic")).sum())
    })?;
    let counted: u64 = db.read(|tx| {
        let rows = (0..COUNTERS).map(|row| Ok(tx.get(table, 4 * row)?.expect("it is there")));
        rows.map(|row: Result<Vec<u8>, Error>| Ok(u64::from_le_bytes(row?[..8].try_into().expect("eight")))).sum()
    })?;
    assert_eq!(counted, written);
    Ok(())
}

/// Threads fill the memory with rows of sizes of their own, and empty it, at the same time. Another
/// one writes late: its transactions know rows that are gone by the time that they commit.
#[test]
fn rows_of_all_sizes_come_and_go_beside_late_writers() -> Result<(), Error> {
    const KEYS: u64 = 1 << 20;
    let db = database(8 << 20)?;
    let (hashed, sorted) = (db.table(HASHED)?, db.table(SORTED)?);
    let rounds = drtm_testing::rounds(6);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers = [1, 2, 3].map(|thread| {
            let db = &db;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                for round in 0..rounds {
                    let value = vec![0; random.usize(16..4_000)];
                    let first = thread * KEYS;
                    let most = first + 4_000_000 / value.len() as u64;
                    let put = |key| {
                        db.transact(|tx| {
                            if key % 2 == 0 { tx.put(hashed, key, &value) } else { tx.put(sorted, key, &value) }
                        })
                    };
                    let end = (first..most).find(|key| put(*key).is_err()).unwrap_or(most);
                    for key in first..end {
                        let taken = db
                            .transact(|tx| if key % 2 == 0 { tx.remove(hashed, key) } else { tx.remove(sorted, key) });
                        let taken = taken.expect("sound").expect("it is there");
                        // Nothing but zeros, unless the late writer has had it, which writes all of
                        // it.
                        let is_whole = taken.len() == value.len() && taken.iter().all(|byte| *byte == taken[0]);
                        assert!(is_whole, "{key} in round {round} is {taken:?}");
                    }
                }
            })
        });
        scope.spawn(|| {
            let (mut random, mut late, mut landed) = (fastrand::Rng::with_seed(9), 0, 0);
            while !is_over.load(Relaxed) {
                let mut tx = db.begin().expect("it is open");
                for _ in 0..20 {
                    let key = random.u64(1..4) * KEYS + 2 * random.u64(..500);
                    match tx.update(hashed, key, |value| value.fill(7)) {
                        Ok(_) => {}
                        Err(Error::Conflict(_) | Error::Full { .. }) => break,
                        Err(error) => panic!("{error}"),
                    }
                    if random.bool() {
                        thread::yield_now();
                    }
                }
                match tx.commit() {
                    Ok(()) => landed += 1,
                    Err(Error::Conflict(_) | Error::Full { .. }) => late += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(late + landed > 0);
        });
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        is_over.store(true, Relaxed);
        ended.into_iter().for_each(|ended| ended.expect("no panic"));
    });
    assert!(db.tables()?.iter().all(|(_, rows)| *rows == 0), "{:?}", db.tables());
    db.compact()?;
    let rows = fill(&db, hashed, 2_000, 0);
    assert!(rows > 2_500, "{rows} rows of 2,000 bytes fit in the end");
    Ok(())
}
