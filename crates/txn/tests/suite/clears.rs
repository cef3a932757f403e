//! Removing all rows of a table at once, beside everything that uses the table.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use drtm_txn::{
    Builder, Codec, Db, Error, Hash, IndexDef, Key, Kind, Multi, Ordered, Pod, Raw, Sink, SinkError, Table, TableDef,
};

const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
const SORTED: TableDef<u64, Raw, Ordered> = TableDef::ordered("sorted");
const NAMES: TableDef<String, Raw> = TableDef::hash("names");
const TEXTS: TableDef<String, Raw, Ordered> = TableDef::ordered("texts");
const SCORES: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("scores");
const BY_HALF: IndexDef<u64, Pod<u64>, u64, Multi> = IndexDef::multi("scores by half", |_, score| Some(score / 2));

const ROWS: u64 = 20_000;

fn fill<K: Key, C: Codec, O: Kind>(
    db: &Db,
    table: Table<K, C, O>,
    key: impl Fn(u64) -> K,
    value: &C::Given,
) -> Result<(), Error> {
    (0..ROWS).step_by(100).try_for_each(|first| {
        db.transact(|tx| (first..first + 100).try_for_each(|row| tx.put(table, &key(row), value)))
    })
}

/// Memory is free at once, since whole spans are: removed one by one, rows leave it to their size.
fn is_cleared_by_spans<K: Key, O: Kind>(def: TableDef<K, Raw, O>, key: impl Fn(u64) -> K + Copy) -> Result<(), Error> {
    let db = Builder::new().memory(64 << 20).build()?;
    let (table, other) = (db.table(def)?, db.table(NOTES.named("others"))?);
    // Another size.
    fill(&db, other, |row| row, &[3; 600])?;
    for round in 0..4 {
        fill(&db, table, key, &[round; 200])?;
        assert_eq!(db.read(|tx| tx.len(table))?, ROWS);
        let before = db.memory().free;
        db.clear_table(table)?;
        let free = db.memory().free - before;
        assert!(free >= ROWS * 220, "round {round}: {free} bytes became free");
        assert_eq!(db.read(|tx| Ok((tx.len(table)?, tx.len(other)?)))?, (0, ROWS));
        assert_eq!(db.read(|tx| tx.get(table, &key(7)))?, None);
        // Rows of any size fit there.
        db.transact(|tx| tx.insert(table, &key(7), &[9; 3_000]))?;
        assert_eq!(db.read(|tx| tx.get(table, &key(7)))?.map(|value| value.len()), Some(3_000));
        db.transact(|tx| tx.remove(table, &key(7)).map(drop))?;
    }
    Ok(())
}

#[test]
fn a_table_is_cleared_by_spans() -> Result<(), Error> {
    is_cleared_by_spans(NOTES, |row| row)?;
    is_cleared_by_spans(SORTED, |row| row)?;
    is_cleared_by_spans(NAMES, |row| format!("name {row:08}"))?;
    is_cleared_by_spans(TEXTS, |row| format!("a text that is longer than a word, {row:08}"))
}

#[test]
fn dropped_tables_leave_whole_spans() -> Result<(), Error> {
    let db = Builder::new().memory(64 << 20).build()?;
    for def in [NOTES, NOTES.named("more notes")] {
        fill(&db, db.table(def)?, |row| row, &[1; 200])?;
        let before = db.memory().free;
        db.drop_table(def.name())?;
        assert!(db.memory().free - before >= ROWS * 220, "{:?}", db.memory());
    }
    // After a snapshot that was open, a later commit frees them.
    let notes = db.table(NOTES)?;
    fill(&db, notes, |row| row, &[1; 200])?;
    let snapshot = db.snapshot()?;
    db.drop_table("notes")?;
    drop(snapshot);
    let (other, before) = (db.table(SORTED)?, db.memory().free);
    (0..200).try_for_each(|key| db.transact(|tx| tx.put(other, key, b"")))?;
    db.compact()?;
    assert!(db.memory().free - before >= ROWS * 220, "{:?}", db.memory());
    Ok(())
}

#[test]
fn indexes_are_cleared_with_their_table() -> Result<(), Error> {
    let db = Builder::new().memory(64 << 20).build()?;
    let scores = db.table(SCORES)?;
    let by_half = db.index(scores, BY_HALF)?;
    for round in 0..3 {
        db.transact(|tx| (0..500).try_for_each(|key| tx.insert(scores, key, &(key + round))))?;
        assert_eq!(db.read(|tx| tx.range(by_half, 100..=100)?.count())?, 2);
        db.clear_table(scores)?;
        assert_eq!(db.read(|tx| Ok((tx.len(scores)?, tx.range(by_half, ..)?.count()?)))?, (0, 0));
    }
    assert_eq!(db.tables()?, [("scores", 0), ("scores by half", 0)]);
    Ok(())
}

/// A snapshot keeps its rows, and a transaction that has used the table conflicts.
#[test]
fn what_is_open_sees_the_rows_or_conflicts() -> Result<(), Error> {
    let db = Builder::new().memory(64 << 20).build()?;
    let (notes, sorted) = (db.table(NOTES)?, db.table(SORTED)?);
    db.transact(|tx| (0..100).try_for_each(|key| tx.put(notes, key, b"note")))?;
    let snapshot = db.snapshot()?;
    db.clear_table(notes)?;
    assert_eq!((snapshot.len(notes)?, db.read(|tx| tx.len(notes))?), (100, 0));
    drop(snapshot);

    db.transact(|tx| (0..100).try_for_each(|key| tx.put(notes, key, b"note")))?;
    let mut running = db.begin()?;
    assert!(running.get(notes, 7)?.is_some());
    running.put(sorted, 1, b"there is a note 7")?;
    db.clear_table(notes)?;
    assert!(running.commit().is_err_and(|error| error.is_conflict()));
    assert_eq!(db.read(|tx| Ok((tx.len(notes)?, tx.len(sorted)?)))?, (0, 0));

    let nested = db.transact(|_| db.clear_table(notes));
    assert!(matches!(nested, Err(Error::Nested)));
    db.drop_table("notes")?;
    assert!(matches!(db.clear_table(notes), Err(Error::Dropped { table: "notes" })));
    db.close()?;
    assert!(matches!(db.clear_table(sorted), Err(Error::Closed)));
    Ok(())
}

/// Each writer adds the next number to a table, in which all numbers from zero on are, and counts
/// it in another table; a clearing that is seen by halves leaves a gap.
fn numbers_stay_whole<O: Kind>(def: TableDef<u64, Raw, O>) -> Result<(), Error> {
    let db = Builder::new().memory(64 << 20).build()?;
    let (numbers, counts) = (db.table(def)?, db.table(SCORES)?);
    db.transact(|tx| tx.put(counts, 0, &0))?;
    let (is_over, added) = (AtomicBool::new(false), AtomicU64::new(0));
    let check = || {
        let mut all = Vec::new();
        db.read(|tx| {
            all.clear();
            tx.walk(numbers, |number, _| {
                all.push(number);
            })
        })?;
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..all.len() as u64), "{all:?}");
        Ok::<(), Error>(())
    };
    thread::scope(|scope| {
        let others: Vec<_> = (0..3)
            .map(|thread| {
                let (db, is_over, added, check) = (&db, &is_over, &added, &check);
                scope.spawn(move || {
                    while !is_over.load(Relaxed) {
                        db.transact(|tx| {
                            let next = tx.len(numbers)?;
                            tx.insert(numbers, next, &[thread; 100])?;
                            tx.update(counts, 0, |count| *count += 1).map(drop)
                        })?;
                        added.fetch_add(1, Relaxed);
                        check()?;
                    }
                    Ok::<(), Error>(())
                })
            })
            .collect();
        let cleared = (0..100).try_for_each(|round| {
            while added.load(Relaxed) < 5 * round && !others.iter().any(thread::ScopedJoinHandle::is_finished) {
                thread::yield_now();
            }
            db.clear_table(numbers)?;
            check()
        });
        is_over.store(true, Relaxed);
        others.into_iter().try_for_each(|other| other.join().expect("numbers are whole"))?;
        cleared
    })?;
    assert_eq!(db.read(|tx| tx.get(counts, 0))?, Some(added.into_inner()));
    db.clear_table(numbers)?;
    assert_eq!(db.read(|tx| tx.len(numbers))?, 0);
    Ok(())
}

#[test]
fn writers_and_readers_see_a_table_before_it_is_cleared_or_after() -> Result<(), Error> {
    numbers_stay_whole::<Hash>(NOTES)?;
    numbers_stay_whole::<Ordered>(SORTED)
}

#[derive(Debug, Default)]
struct Counts(AtomicU64);

impl Sink for Counts {
    fn commit(&self, commit: &drtm_txn::Commit<'_>) -> Result<(), SinkError> {
        self.0.fetch_add(commit.rows().count() as u64, Relaxed);
        Ok(())
    }
}

#[test]
fn a_sink_is_told_of_each_row() -> Result<(), Error> {
    let counts = std::sync::Arc::new(Counts::default());
    let db = Builder::new().memory(64 << 20).sink(counts.clone()).build()?;
    let notes = db.table(NOTES)?;
    db.transact(|tx| (0..100).try_for_each(|key| tx.put(notes, key, b"note")))?;
    db.clear_table(notes)?;
    assert_eq!((counts.0.load(Relaxed), db.read(|tx| tx.len(notes))?), (200, 0));
    Ok(())
}
