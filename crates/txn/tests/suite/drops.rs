//! Tables that are dropped and renamed, and indexes that are dropped, beside everything that still
//! has a handle.

use std::{
    sync::atomic::{
        AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
};

use drtm_htm::NoHtm;
use drtm_testing::rounds;
use drtm_txn::{
    Builder, Conflict, Db, Error, Hash, IndexDef, Key, Kind, MemoryUse, Multi, Mutation, Ordered, Pod, Raw, Table,
    TableDef,
};
use parking_lot::RwLock;
use proptest::prelude::*;

use crate::{On, waits::ends, with_fault};

const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
const SORTED: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("sorted");
const TEXTS: TableDef<String, Raw, Ordered> = TableDef::ordered("texts");
const OTHER: TableDef<u64, Pod<u64>> = TableDef::hash("other");
const BY_VALUE: IndexDef<u64, Pod<u64>, u64> = IndexDef::unique("sorted by value", |_, value| Some(value));
const BY_HALF: IndexDef<u64, Pod<u64>, u64, Multi> = IndexDef::multi("sorted by half", |_, value| Some(value / 2));

/// Asserts that an operation was refused because this table was dropped.
#[track_caller]
fn is_dropped<T: std::fmt::Debug>(result: Result<T, Error>, name: &str) {
    match result {
        Err(Error::Dropped { table }) => assert_eq!(table, name),
        other => panic!("{other:?}"),
    }
}

/// Every use of a stale handle is refused, also beside a new table of the same name.
fn every_use_is_refused<K: Key, O: Kind>(key: K, def: TableDef<K, Raw, O>) -> Result<(), Error> {
    let db = Db::new()?;
    let stale = db.table(def)?;
    db.transact(|tx| tx.put(stale, &key, b"old"))?;
    let (running, snapshot) = (db.begin()?, db.snapshot()?);
    assert!(snapshot.get(stale, &key)?.is_some());
    db.drop_table(def.name())?;
    is_dropped(running.get(stale, &key), def.name());
    is_dropped(snapshot.get(stale, &key), def.name());
    drop((running, snapshot));
    for round in 0..2 {
        is_dropped(db.transact(|tx| tx.get(stale, &key)), def.name());
        is_dropped(db.transact(|tx| tx.put(stale, &key, b"new")), def.name());
        is_dropped(db.transact(|tx| tx.insert(stale, &key, b"new")), def.name());
        is_dropped(db.transact(|tx| tx.remove(stale, &key)), def.name());
        is_dropped(db.transact(|tx| tx.entry(stale, &key).map(drop)), def.name());
        is_dropped(db.read(|tx| tx.get_many(stale, [&key])), def.name());
        is_dropped(db.read(|tx| tx.contains(stale, &key)), def.name());
        is_dropped(db.snapshot()?.get(stale, &key), def.name());
        is_dropped(db.transact(|tx| tx.prefetch(stale, [&key])), def.name());
        is_dropped(db.index(stale, IndexDef::unique("an index", |_, _: &[u8]| Some(1_u64))).map(drop), def.name());
        // Then beside another table of its name, which has other rows.
        let new = db.table(def)?;
        assert_eq!(db.read(|tx| tx.get(new, &key))?.is_some(), round == 1);
        db.transact(|tx| tx.put(new, &key, b"new"))?;
    }
    assert_eq!(db.tables()?, [(def.name(), 1)]);
    Ok(())
}

#[test]
fn every_use_of_a_handle_of_a_dropped_table_is_refused() -> Result<(), Error> {
    every_use_is_refused(7, NOTES)?;
    every_use_is_refused("seven".to_owned(), TEXTS)?;
    every_use_is_refused("seven".to_owned(), TableDef::<String, Raw>::hash("names"))?;
    every_use_is_refused((7_u16, 9_u16), TableDef::<(u16, u16), Raw, Ordered>::ordered("pairs"))
}

/// Returns the results of commits after a drop, of transactions that used the table before: one
/// that wrote to it, one that read it and wrote elsewhere, and one that only read it.
fn commits_after_a_drop() -> Result<[Result<(), Error>; 3], Error> {
    let db = Builder::new().memory(16 << 20).build_with::<On<NoHtm>>(NoHtm)?;
    let (notes, other) = (db.table(NOTES)?, db.table(OTHER)?);
    db.transact(|tx| (1..4).try_for_each(|key| tx.put(notes, key, b"old")))?;
    let (mut writes, mut uses, reads) = (db.begin()?, db.begin()?, db.begin()?);
    writes.put(notes, 1, b"new")?;
    writes.put(other, 1, &1)?;
    uses.get(notes, 2)?;
    uses.put(other, 2, &2)?;
    reads.get(notes, 2)?;
    reads.get(notes, 3)?;
    db.drop_table("notes")?;
    let commits = [writes.commit(), uses.commit(), reads.commit()];
    let done = commits.iter().take(2).filter(|commit| commit.is_ok()).count();
    assert_eq!(db.read(|tx| tx.get_many(other, [1, 2]))?.into_iter().flatten().count(), done);
    Ok(commits)
}

#[test]
fn a_transaction_that_has_used_a_table_does_not_commit_after_its_drop() -> Result<(), Error> {
    match commits_after_a_drop()? {
        [
            Err(Error::Dropped { table: "notes" }),
            Err(Error::Conflict(Conflict::Validation)),
            Err(Error::Conflict(Conflict::Validation)),
        ] => {}
        other => panic!("{other:?}"),
    }
    // A closure that runs at the drop is retried, and refused.
    let db = Db::new()?;
    let (notes, other) = (db.table(NOTES)?, db.table(OTHER)?);
    let mut runs = 0;
    let refused = db.transact(|tx| {
        runs += 1;
        tx.put(other, 1, &1)?;
        tx.get(notes, 1)?;
        if runs == 1 {
            let db = db.clone();
            thread::spawn(move || db.drop_table("notes")).join().expect("no panic")?;
        }
        Ok(())
    });
    is_dropped(refused, "notes");
    assert_eq!((runs, db.read(|tx| tx.get(other, 1))?), (2, None));
    Ok(())
}

#[test]
fn commits_that_do_not_look_are_noticed() -> Result<(), Error> {
    let commits = with_fault(Mutation::DropsNotChecked, commits_after_a_drop)?;
    assert!(commits.iter().all(Result::is_ok), "the fault is that nothing looks");
    Ok(())
}

#[test]
fn a_range_that_is_open_sees_its_rows_to_the_end_and_no_others() -> Result<(), Error> {
    let db = Builder::new().memory(16 << 20).build()?;
    let sorted = db.table(SORTED)?;
    let fill = |table, value: u64| db.transact(|tx| (0..500).try_for_each(|key| tx.put(table, key, &value)));
    fill(sorted, 1)?;
    let snapshot = db.snapshot()?;
    let mut rows = snapshot.range(sorted, ..)?;
    assert_eq!(rows.next()?, Some((0, 1)));
    db.drop_table("sorted")?;
    let other = db.table(SORTED)?;
    // Freed memory would be reused.
    (2..9).try_for_each(|value| {
        fill(other, value)?;
        db.transact(|tx| (0..500).try_for_each(|key| tx.remove(other, key).map(drop)))
    })?;
    let mut seen = 1;
    while let Some((key, value)) = rows.next()? {
        assert_eq!((key, value), (seen, 1));
        seen += 1;
    }
    assert_eq!(seen, 500);
    drop(rows);
    is_dropped(snapshot.get(sorted, 1), "sorted");
    Ok(())
}

/// Rows of dropped tables make room for others, at once or when earlier transactions have ended.
#[test]
fn the_memory_of_rows_is_used_again() -> Result<(), Error> {
    const KEYS: u64 = 4_000;
    let db = Builder::new().memory(16 << 20).build()?;
    let round = || {
        let (notes, texts, sorted) = (db.table(NOTES)?, db.table(TEXTS)?, db.table(SORTED)?);
        db.index(sorted, BY_HALF)?;
        for keys in (0..KEYS).collect::<Vec<_>>().chunks(50) {
            db.transact(|tx| {
                keys.iter().try_for_each(|key| {
                    tx.put(notes, key, &[7; 200])?;
                    tx.put(sorted, key, key)?;
                    tx.put(texts, format!("a text with a long key, number {key}"), &[7; 100])
                })
            })?;
        }
        // Creates older versions, too.
        let snapshot = db.snapshot()?;
        db.transact(|tx| (0..100).try_for_each(|key| tx.put(notes, key, &[8; 200])))?;
        drop(snapshot);
        Ok::<_, Error>((notes, texts, sorted))
    };
    let drop_all = || ["notes", "texts", "sorted"].into_iter().try_for_each(|name| db.drop_table(name));
    // A table gets the nodes of any table of its kind, so all of a kind become as large as the
    // largest.
    for _ in 0..2 {
        round()?;
        drop_all()?;
    }
    // A few rounds would not fit.
    let MemoryUse { tables: first, most, .. } = db.memory();
    for _ in 0..20 {
        round()?;
        drop_all()?;
    }
    let now = db.memory().tables;
    assert!(now < first * 3 / 2 && now < most, "{first} bytes at first, {now} now");
    // With an open snapshot, nothing is freed, and nothing leaks; later commits free it bit by bit.
    let (notes, ..) = round()?;
    let snapshot = db.snapshot()?;
    drop_all()?;
    is_dropped(snapshot.get(notes, 1), "notes");
    drop(snapshot);
    let other = db.table(OTHER)?;
    (0..5_000).try_for_each(|key| db.transact(|tx| tx.put(other, key % 10, &key)))?;
    assert_eq!(db.older_versions(), 0);
    for _ in 0..3 {
        round()?;
        drop_all()?;
    }
    assert!(db.memory().tables < first * 3 / 2, "{first} bytes at first, {:?} now", db.memory());
    Ok(())
}

#[test]
fn what_cannot_be_dropped_or_renamed_is_refused() -> Result<(), Error> {
    let db = Db::new()?;
    let sorted = db.table(SORTED)?;
    db.table(NOTES)?;
    db.index(sorted, BY_VALUE)?;
    let no_table = |result| assert!(matches!(result, Err(Error::NoSuchTable { .. })), "{result:?}");
    no_table(db.drop_table("nothing"));
    no_table(db.drop_table("sorted by value"));
    no_table(db.rename_table("nothing", "something"));
    no_table(db.rename_table("sorted by value", "something"));
    for taken in ["notes", "sorted", "sorted by value"] {
        assert!(matches!(db.rename_table("sorted", taken), Err(Error::NameTaken { name }) if name == taken));
    }
    for name in ["notes", "nothing"] {
        assert!(matches!(db.drop_index(name), Err(Error::NoSuchIndex { name: found }) if found == name));
    }
    let nested = db.transact(|_| {
        assert!(matches!(db.drop_index("sorted by value"), Err(Error::Nested)));
        db.drop_table("sorted")
    });
    assert!(matches!(nested, Err(Error::Nested)));
    db.close()?;
    for refused in [db.drop_table("notes"), db.rename_table("notes", "n"), db.drop_index("sorted by value")] {
        assert!(matches!(refused, Err(Error::Closed)));
    }
    Ok(())
}

#[test]
fn numbers_of_dropped_tables_are_used_again() -> Result<(), Error> {
    let db = Builder::new().memory(64 << 20).build()?;
    let sorted = db.table(SORTED)?;
    let by_value = db.index(sorted, BY_VALUE)?;
    db.transact(|tx| tx.put(sorted, 1, &10))?;
    // Other types, sizes and names, each after the other, with an index and without.
    let mut handles = Vec::new();
    for round in 0..3_000_u64 {
        let name = format!("round {}", round % 7);
        if round % 2 == 0 {
            let notes = db.table(NOTES.named(&name))?;
            assert_eq!(db.read(|tx| tx.get(notes, 1))?, None);
            db.transact(|tx| tx.put(notes, 1, &round.to_le_bytes()))?;
            handles.push((notes, name.clone()));
        } else {
            let other = db.table(OTHER.named(&name))?;
            assert_eq!(db.read(|tx| tx.len(other))?, 0);
            db.transact(|tx| (0..3).try_for_each(|key| tx.put(other, key, &round)))?;
            if round % 3 == 0 {
                let by = IndexDef::<u64, Pod<u64>, u64, Multi>::multi("by half", |_, value| Some(value / 2));
                let by = db.index(other, by)?;
                assert_eq!(db.read(|tx| tx.range(by, ..)?.count())?, 3);
            }
        }
        db.drop_table(&name)?;
    }
    for (stale, name) in handles.iter().rev().take(1_000) {
        is_dropped(db.read(|tx| tx.get(*stale, 1)), name);
        is_dropped(db.transact(|tx| tx.put(*stale, 1, b"stale")), name);
        is_dropped(db.clear_table(*stale), name);
        is_dropped(db.index(*stale, IndexDef::unique("an index", |_, _: &[u8]| Some(1_u64))).map(drop), name);
    }
    assert_eq!(db.read(|tx| tx.get(by_value, 10))?, Some((1, 10)));
    assert_eq!(db.tables()?, [("sorted", 1), ("sorted by value", 1)]);
    // As many as there can be at the same time: one number is that of an index's tree.
    let all: Vec<_> =
        (0..1_021).map(|table| db.table(NOTES.named(&format!("table {table}")))).collect::<Result<_, _>>()?;
    assert!(matches!(db.table(NOTES), Err(Error::TooManyTables { most: 1024 })));
    db.drop_table("table 500")?;
    let notes = db.table(NOTES)?;
    db.transact(|tx| tx.put(notes, 1, b"new"))?;
    is_dropped(db.read(|tx| tx.get(all[500], 1)), "table 500");
    Ok(())
}

/// A handle of a number's earlier use is refused, however the number is used by then.
#[test]
fn a_transaction_that_meets_a_number_again_does_not_write_to_another_table() -> Result<(), Error> {
    let db = Builder::new().memory(16 << 20).build()?;
    for round in 0..10 {
        let notes = db.table(NOTES)?;
        let mut running = db.begin()?;
        running.put(notes, 1, b"old")?;
        let snapshot = db.snapshot()?;
        db.drop_table("notes")?;
        // Not yet: it is still in use.
        let other = db.table(OTHER)?;
        db.transact(|tx| tx.put(other, 1, &round))?;
        is_dropped(running.commit(), "notes");
        is_dropped(snapshot.get(notes, 1), "notes");
        drop(snapshot);
        assert_eq!(db.read(|tx| tx.get(other, 1))?, Some(round));
        db.drop_table("other")?;
    }
    Ok(())
}

#[test]
fn a_renamed_table_goes_on_under_its_handles_and_is_opened_by_its_new_name() -> Result<(), Error> {
    const RENAMED: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("renamed");
    let db = Db::new()?;
    let sorted = db.table(SORTED)?;
    let by_value = db.index(sorted, BY_VALUE)?;
    let mut running = db.begin()?;
    running.insert(sorted, 1, &10)?;
    db.rename_table("sorted", "renamed")?;
    running.commit()?;
    assert_eq!(db.read(|tx| tx.get(db.table(RENAMED)?, 1))?, Some(10));
    let exists = db.transact(|tx| tx.insert(sorted, 1, &11));
    assert!(matches!(exists, Err(Error::Exists { table: "renamed" })));
    // It still has its indexes.
    db.index(db.table(RENAMED)?, BY_VALUE)?;
    assert_eq!(db.read(|tx| tx.get(by_value, 10))?, Some((1, 10)));
    // The name is free.
    let new = db.table(SORTED)?;
    assert_eq!(db.read(|tx| tx.get(new, 1))?, None);
    assert!(matches!(db.index(new, BY_VALUE), Err(Error::OtherTypes { .. })), "it is another's index");
    db.drop_table("renamed")?;
    is_dropped(db.read(|tx| tx.get(sorted, 1)), "renamed");
    is_dropped(db.read(|tx| tx.get(by_value, 10)), "sorted by value");
    db.index(new, BY_VALUE)?;
    Ok(())
}

#[test]
fn a_dropped_index_is_not_kept_any_more_and_can_be_made_again() -> Result<(), Error> {
    let db = Db::new()?;
    let sorted = db.table(SORTED)?;
    let (by_value, by_half) = (db.index(sorted, BY_VALUE)?, db.index(sorted, BY_HALF)?);
    db.transact(|tx| (0..10).try_for_each(|key| tx.put(sorted, key, &key)))?;
    let twice = |key: u64| db.transact(|tx| tx.put(sorted, key, &5));
    assert!(matches!(twice(7), Err(Error::Duplicate { .. })));
    // A running transaction that has written entries is retried.
    let mut running = db.begin()?;
    running.put(sorted, 3, &33)?;
    let snapshot = db.snapshot()?;
    assert!(snapshot.get(by_value, 3)?.is_some());
    db.drop_index("sorted by value")?;
    is_dropped(snapshot.get(by_value, 3), "sorted by value");
    assert!(matches!(running.put(sorted, 4, &44), Err(Error::Conflict(Conflict::Indexed))));
    assert!(matches!(running.commit(), Err(Error::Conflict(Conflict::Indexed))));
    drop(snapshot);
    twice(7)?;
    assert_eq!(db.read(|tx| tx.range(by_half, 2..=2)?.count())?, 3, "the other index is kept");
    is_dropped(db.read(|tx| tx.get(by_value, 5)), "sorted by value");
    match db.index(sorted, BY_VALUE) {
        Err(Error::NotUnique { .. }) => {}
        other => panic!("{other:?}"),
    }
    db.transact(|tx| tx.remove(sorted, 7))?;
    let again = db.index(sorted, BY_VALUE)?;
    assert_eq!(db.read(|tx| tx.get(again, 5))?, Some((5, 5)));
    is_dropped(db.read(|tx| tx.get(by_value, 5)), "sorted by value");
    assert!(matches!(twice(8), Err(Error::Duplicate { .. })));
    db.drop_index("sorted by value")?;
    db.drop_index("sorted by half")?;
    twice(8)
}

/// Threads write to a table and count the writes elsewhere in the same transaction, while another
/// drops and recreates the table, with and without an index. The last table's count must match its
/// rows, and handles of dropped tables are refused.
#[test]
fn writers_beside_drops_write_to_their_table_or_not_at_all() {
    ends(|| {
        let db = Builder::new().memory(64 << 20).build().expect("memory");
        let counts = db.table(OTHER).expect("memory");
        let open = |generation| (db.table(SORTED).expect("memory"), generation);
        let (current, over) = (RwLock::new(open(0_u64)), AtomicU64::new(0));
        let (is_over, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for number in 0..3 {
                let (db, current, over, is_over, refused) = (&db, &current, &over, &is_over, &refused);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(number);
                    let mut next = number << 32;
                    while is_over.load(Relaxed) == 0 {
                        let (table, generation) = *current.read();
                        next += 1;
                        if random.bool() {
                            thread::yield_now();
                        }
                        let was_dropped = over.load(SeqCst) > generation;
                        let written = db.transact(|tx| {
                            let count = tx.get(counts, generation)?.unwrap_or(0);
                            tx.put(counts, generation, &(count + 1))?;
                            tx.insert(table, next, &next)
                        });
                        match written {
                            Ok(()) => assert!(!was_dropped, "a handle of a table that was dropped before"),
                            Err(Error::Dropped { table: "sorted" }) => drop(refused.fetch_add(1, Relaxed)),
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            let mut held = None;
            for generation in 1.. {
                // On a busy machine, writers seldom run while a table is dropped.
                if generation > rounds(150) && refused.load(Relaxed) > 0 {
                    break;
                }
                if generation.is_multiple_of(5) {
                    held = Some(db.snapshot().expect("it is open"));
                }
                if generation.is_multiple_of(3) {
                    db.index(current.read().0, BY_VALUE).expect("memory");
                }
                if generation.is_multiple_of(9) {
                    db.drop_index("sorted by value").expect("it is there");
                }
                if generation.is_multiple_of(4) {
                    thread::yield_now();
                }
                db.drop_table("sorted").expect("it is there");
                over.store(generation, SeqCst);
                if generation.is_multiple_of(7) {
                    held = None;
                }
                *current.write() = open(generation);
            }
            drop(held);
            thread::sleep(std::time::Duration::from_millis(20));
            is_over.store(1, Relaxed);
        });
        let (table, generation) = *current.read();
        let (rows, count) = db
            .read(|tx| Ok((tx.range(table, ..)?.count()?, tx.get(counts, generation)?.unwrap_or(0))))
            .expect("it is open");
        assert_eq!(rows, count);
    });
}

/// Writers of a table whose indexes come and go see nothing but retries.
#[test]
fn writers_do_not_notice_that_an_index_is_dropped() {
    ends(|| {
        let db = Builder::new().memory(64 << 20).build().expect("memory");
        let sorted = db.table(SORTED).expect("memory");
        let is_over = AtomicU64::new(0);
        thread::scope(|scope| {
            for number in 0..2_u64 {
                let (db, is_over) = (&db, &is_over);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(number);
                    while is_over.load(Relaxed) == 0 {
                        let key = 2 * random.u64(..20) + number;
                        let value = 40 * random.u64(..5) + key;
                        let written = db.transact(|tx| {
                            if value.is_multiple_of(3) {
                                tx.remove(sorted, key).map(drop)
                            } else {
                                tx.put(sorted, key, &value)
                            }
                        });
                        written.expect("it is a table with an index, or without");
                    }
                });
            }
            for _ in 0..rounds(100) {
                let (by_value, by_half) = (db.index(sorted, BY_VALUE), db.index(sorted, BY_HALF));
                let (by_value, by_half) = (by_value.expect("memory"), by_half.expect("memory"));
                let (rows, entries, halves) = db
                    .read(|tx| {
                        Ok((
                            tx.range(sorted, ..)?.count()?,
                            tx.range(by_value, ..)?.count()?,
                            tx.range(by_half, ..)?.count()?,
                        ))
                    })
                    .expect("it is open");
                assert_eq!((rows, rows), (entries, halves));
                db.drop_index("sorted by half").expect("it is there");
                db.drop_index("sorted by value").expect("it is there");
            }
            is_over.store(1, Relaxed);
        });
    });
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(usize),
    Drop(usize),
    Rename(usize, usize),
    Index(usize),
    DropIndex,
    Put(usize, u64),
    Get(usize, u64),
    /// Holds a snapshot, in place of the one held.
    Hold,
    GetHeld(usize, u64),
}

const NAMES: [TableDef<u64, Pod<u64>>; 3] = [TableDef::hash("one"), TableDef::hash("two"), TableDef::hash("three")];
const INDEX: IndexDef<u64, Pod<u64>, u64, Multi> = IndexDef::multi("an index", |_, value| Some(value));

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..3_usize).prop_map(Step::Open),
        2 => (0..3_usize).prop_map(Step::Drop),
        2 => (0..3_usize, 0..3_usize).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => any::<usize>().prop_map(Step::Index),
        1 => Just(Step::DropIndex),
        6 => (any::<usize>(), 0..4_u64).prop_map(|(table, key)| Step::Put(table, key)),
        6 => (any::<usize>(), 0..4_u64).prop_map(|(table, key)| Step::Get(table, key)),
        1 => Just(Step::Hold),
        3 => (any::<usize>(), 0..4_u64).prop_map(|(table, key)| Step::GetHeld(table, key)),
    ];
    prop::collection::vec(step, 0..80)
}

/// A table of the model: a handle is its index in the list.
#[derive(Clone, Debug, Default)]
struct Modelled {
    /// `None` if it was dropped.
    name: Option<usize>,
    rows: [Option<u64>; 4],
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn tables_that_come_and_go_are_as_in_a_model(steps in steps()) {
        let db = Builder::new().memory(16 << 20).build_with::<On<NoHtm>>(NoHtm).expect("memory");
        let mut handles: Vec<Table<u64, Pod<u64>, Hash>> = Vec::new();
        let (mut model, mut held) = (Vec::<Modelled>::new(), None);
        // The table that has the index.
        let (mut indexed, mut next) = (None::<usize>, 0);
        let named = |model: &[Modelled], name: usize| model.iter().position(|table| table.name == Some(name));
        for step in steps {
            match step {
                Step::Open(name) => {
                    let handle = db.table(NAMES[name]).expect("there are few");
                    if named(&model, name).is_none() {
                        handles.push(handle);
                        model.push(Modelled { name: Some(name), ..Modelled::default() });
                    }
                }
                Step::Drop(name) => match (db.drop_table(NAMES[name].name()), named(&model, name)) {
                    (Ok(()), Some(at)) => {
                        model[at].name = None;
                        indexed = indexed.filter(|indexed| *indexed != at);
                    }
                    (Err(Error::NoSuchTable { .. }), None) => {}
                    other => prop_assert!(false, "{other:?}"),
                },
                Step::Rename(from, to) => {
                    let renamed = db.rename_table(NAMES[from].name(), NAMES[to].name());
                    match (renamed, named(&model, from), named(&model, to)) {
                        (Ok(()), Some(at), None) => model[at].name = Some(to),
                        (Err(Error::NoSuchTable { .. }), None, _) | (Err(Error::NameTaken { .. }), Some(_), Some(_)) => {}
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
                Step::Index(which) if !handles.is_empty() => {
                    let at = which % handles.len();
                    match (db.index(handles[at], INDEX), model[at].name, indexed) {
                        (Ok(index), Some(_), None) => {
                            let rows = db.read(|tx| tx.range(index, ..)?.count()).expect("it is new");
                            prop_assert_eq!(rows as usize, model[at].rows.iter().flatten().count());
                            indexed = Some(at);
                        }
                        (Ok(_), Some(_), Some(indexed)) => prop_assert_eq!(at, indexed),
                        (Err(Error::Dropped { .. }), None, _) => {}
                        (Err(Error::OtherTypes { .. }), Some(_), Some(indexed)) => prop_assert_ne!(at, indexed),
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
                Step::DropIndex => match (db.drop_index("an index"), indexed.take()) {
                    (Ok(()), Some(_)) | (Err(Error::NoSuchIndex { .. }), None) => {}
                    other => prop_assert!(false, "{other:?}"),
                },
                Step::Put(which, key) if !handles.is_empty() => {
                    let at = which % handles.len();
                    next += 1;
                    match (db.transact(|tx| tx.put(handles[at], key, &next)), model[at].name) {
                        (Ok(()), Some(_)) => model[at].rows[key as usize] = Some(next),
                        (Err(Error::Dropped { .. }), None) => {}
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
                Step::Get(which, key) if !handles.is_empty() => {
                    let at = which % handles.len();
                    match (db.read(|tx| tx.get(handles[at], key)), model[at].name) {
                        (Ok(found), Some(_)) => prop_assert_eq!(found, model[at].rows[key as usize]),
                        (Err(Error::Dropped { .. }), None) => {}
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
                Step::Hold => held = Some((db.snapshot().expect("it is open"), model.clone())),
                Step::GetHeld(which, key) if !handles.is_empty() => {
                    let at = which % handles.len();
                    let Some((snapshot, then)) = &mut held else { continue };
                    match (snapshot.get(handles[at], key), model[at].name) {
                        (Ok(found), Some(_)) => {
                            prop_assert_eq!(found, then.get(at).and_then(|table| table.rows[key as usize]));
                        }
                        (Err(Error::Dropped { .. }), None) => {}
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
                _ => {}
            }
        }
    }
}
