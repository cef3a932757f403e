//! Indexes that are created when rows exist: they include all rows, or creation fails.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use drtm_htm::{Emulated, Engine, NoHtm};
use drtm_testing::rounds;
use drtm_txn::{
    Builder, Config, Conflict, Db, Error, IndexDef, Key, Kind, Multi, Ordered, Pod, Serde, Table, TableDef, Uniqueness,
};
use proptest::prelude::*;

use super::stress::generator;
use crate::On;

/// A row: its keys in the two indexes.
type Row = (Option<String>, u32);

/// A row found by an index: its index key, its key, and the row.
type Found<I, K> = Vec<(I, (K, Row))>;

/// Returns what an index finds for all rows of a table.
fn found<S: Config, I: Key, U: Uniqueness, K: Key, O: Kind>(
    db: &Db<S>,
    table: Table<K, Serde<Row>, O>,
    def: IndexDef<K, Serde<Row>, I, U>,
) -> Result<Found<I, K>, Error> {
    let index = db.index(table, def)?;
    let found = db.transact(|tx| tx.range(index, ..)?.rows().collect())?;
    let again: Vec<_> = db.read(|tx| tx.range(index, ..)?.rows().collect())?;
    assert_eq!(again.len(), Vec::len(&found));
    Ok(found)
}

/// Builds each shape of index over rows, and compares it with its expected entries.
fn build<K: Key + Ord + std::fmt::Debug, O: Kind>(
    def: TableDef<K, Serde<Row>, O>,
    rows: &BTreeMap<u16, Row>,
    key: fn(u16) -> K,
) -> Result<(), Error> {
    let db: Db<On<NoHtm>> = Builder::new().memory(16 << 20).build_with(NoHtm)?;
    let table = db.table(def)?;
    for (row, value) in rows {
        db.transact(|tx| tx.insert(table, &key(*row), value))?;
        // Some removed rows leave records behind, some do not.
        db.transact(|tx| tx.insert(table, &key(row + 500), value))?;
        db.transact(|tx| tx.remove(table, &key(row + 500)))?;
    }
    let expected = |by: &dyn Fn(&Row) -> Option<String>| {
        let mut all: Vec<_> =
            rows.iter().filter_map(|(row, value)| Some((by(value)?, (key(*row), value.clone())))).collect();
        all.sort();
        all
    };
    let by_name = found(&db, table, IndexDef::<_, _, _, Multi>::multi("all by name", |_, row| row.0))?;
    assert_eq!(by_name, expected(&|row| row.0.clone()));
    let by_class = found(&db, table, IndexDef::<_, _, _, Multi>::multi("all by class", |_, row| Some(row.1)))?;
    let by_class: Vec<_> = by_class.into_iter().map(|(class, row)| (format!("{class:09}"), row)).collect();
    assert_eq!(by_class, expected(&|row| Some(format!("{:09}", row.1))));

    let is_unique = |all: &[(String, (K, Row))]| all.windows(2).all(|pair| pair[0].0 != pair[1].0);
    for _ in 0..2 {
        let tables = db.tables()?;
        match found(&db, table, IndexDef::unique("by name", |_, row| row.0)) {
            Ok(found) => assert!(is_unique(&by_name) && found == by_name),
            Err(Error::NotUnique { index: "by name", table, key }) => {
                assert_eq!(table, def.name());
                let name = String::from_bytes(&key).expect("its encoding");
                assert!(by_name.iter().filter(|row| row.0 == name).count() > 1, "{name}");
                assert_eq!(db.tables()?, tables, "there is nothing left of it");
            }
            Err(other) => panic!("{other}"),
        }
        match found(&db, table, IndexDef::unique("by class", |_, row| Some(row.1))) {
            Ok(found) => assert!(is_unique(&by_class) && found.len() == by_class.len()),
            Err(Error::NotUnique { index: "by class", key, .. }) => {
                let class = format!("{:09}", u32::from_bytes(&key).expect("its encoding"));
                assert!(by_class.iter().filter(|row| row.0 == class).count() > 1, "{class}");
            }
            Err(other) => panic!("{other}"),
        }
    }
    // The index is maintained from now on.
    db.transact(|tx| {
        rows.keys().try_for_each(|row| tx.remove(table, &key(*row)).map(drop))?;
        tx.insert(table, &key(9), &(Some("nine".to_owned()), 9))
    })?;
    let by_name = db.index(table, IndexDef::<_, _, _, Multi>::multi("all by name", |_, row| row.0))?;
    let left: Vec<_> = db.read(|tx| tx.range(by_name, ..)?.rows().collect())?;
    assert_eq!(left, [("nine".to_owned(), (key(9), (Some("nine".to_owned()), 9)))]);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn an_index_of_rows_that_are_there_has_all_of_them(
        rows in prop::collection::btree_map(
            0_u16..400, (prop::option::weighted(0.8, "[a-c]{0,3}"), 0_u32..2_000), 0..150
        ),
    ) {
        let word = |row: u16| row;
        let bytes = |row: u16| format!("row {row}");
        build(TableDef::hash("hashed words"), &rows, word).expect("memory");
        build(TableDef::ordered("sorted words"), &rows, word).expect("memory");
        build(TableDef::hash("hashed bytes"), &rows, bytes).expect("memory");
        build(TableDef::ordered("sorted bytes"), &rows, bytes).expect("memory");
    }
}

type Seat = [u64; 2];

const SEATS: TableDef<u64, Pod<Seat>> = TableDef::hash("seats");
const IN_ORDER: TableDef<u64, Pod<Seat>, Ordered> = TableDef::ordered("seats in order");

/// Writers write continuously, and insert so much that tables grow; indexes are created meanwhile.
fn many_write<E: Engine, O: Kind>(engine: E, def: TableDef<u64, Pod<Seat>, O>, keys: u64, writes: u64) {
    let by_holder = IndexDef::<u64, Pod<Seat>, u64>::unique("seats by holder", |_, [holder, _]| Some(holder));
    let by_price = IndexDef::<u64, Pod<Seat>, u64, Multi>::multi("seats by price", |_, [_, price]| Some(price));
    let db: Db<On<E>> = Builder::new().memory(128 << 20).build_with(engine).expect("memory");
    let seats = db.table(def).expect("memory");
    // Holders are unique: each seat has a different one throughout.
    db.transact(|tx| (0..keys).try_for_each(|key| tx.insert(seats, key, &[key, key % 7]))).expect("memory");
    let is_over = AtomicBool::new(false);
    /// Stops the writers, however the reader ends.
    struct Over<'o>(&'o AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    thread::scope(|scope| {
        let over = Over(&is_over);
        let writers: Vec<_> = (1..=2_u64)
            .map(|writer| {
                let (db, is_over) = (&db, &is_over);
                scope.spawn(move || {
                    let mut random = generator(writer * 0x9E37_79B9);
                    let mut written = 0;
                    while written < writes || !is_over.load(Relaxed) {
                        let (one, two, what) = (random(keys), random(keys), random(5));
                        let done = db.transact(|tx| match what {
                            0 => tx.update(seats, &one, |seat| seat[1] = (seat[1] + 1) % 7).map(drop),
                            // Two holders swap seats, so that one reaches an entry that the other
                            // has not left yet.
                            1 => {
                                let (a, b) = (tx.remove(seats, one)?, tx.remove(seats, two)?);
                                let (a, b) = if one == two { (None, a) } else { (a, b) };
                                a.map_or(Ok(()), |a| tx.put(seats, two, &a))?;
                                b.map_or(Ok(()), |b| tx.put(seats, one, &b))
                            }
                            2 => tx.remove(seats, one).map(drop),
                            // Holders without a seat come back, with changing others.
                            3 => match tx.contains(seats, &one)? {
                                true => Ok(()),
                                false => tx.insert(seats, one, &[(writer << 40) + written, 3]),
                            },
                            _ => tx.put(
                                seats,
                                keys + writer * writes + written % writes,
                                &[u64::MAX - 2 * written - writer % 2, 5],
                            ),
                        });
                        match done {
                            Ok(()) => {}
                            Err(Error::Duplicate { index: "seats by holder" }) => {}
                            Err(error) => panic!("{error}"),
                        }
                        written += 1;
                    }
                })
            })
            .collect();
        let holders = db.index(seats, by_holder);
        let prices = db.index(seats, by_price).expect("memory");
        for _ in 0..20 {
            let (rows, entries) = db
                .read(|tx| {
                    let entries: Vec<_> = tx.range(prices, ..)?.rows().collect::<Result<_, _>>()?;
                    for (price, (key, seat)) in &entries {
                        assert_eq!((seat[1], tx.get(seats, key)?), (*price, Some(*seat)));
                    }
                    let mut rows = 0;
                    for key in 0..keys + 3 * writes {
                        rows += usize::from(tx.contains(seats, &key)?);
                    }
                    Ok((rows, entries.len()))
                })
                .expect("memory");
            assert_eq!(rows, entries);
        }
        drop(over);
        writers.into_iter().for_each(|writer| writer.join().expect("nothing else is refused"));
        let holders = match holders {
            Ok(holders) => holders,
            Err(error) => panic!("no holder has two seats: {error}"),
        };
        db.transact(|tx| {
            let rows: Vec<_> = tx.range(prices, ..)?.rows().collect::<Result<_, _>>()?;
            let mut by_holder: Vec<_> = rows.iter().map(|(_, (key, seat))| (seat[0], (*key, *seat))).collect();
            by_holder.sort_unstable();
            assert_eq!(tx.range(holders, ..)?.rows().collect::<Result<Vec<_>, _>>()?, by_holder);
            Ok(())
        })
        .expect("memory");
    });
}

#[test]
fn an_index_of_a_hash_table_that_others_write_has_all_rows() {
    (0..rounds(2)).for_each(|_| many_write(NoHtm, SEATS, 500, 300));
}

#[test]
fn an_index_of_an_ordered_table_that_others_write_has_all_rows() {
    (0..rounds(2)).for_each(|_| many_write(NoHtm, IN_ORDER, 500, 300));
}

#[test]
fn an_index_of_a_table_that_others_write_in_regions_has_all_rows() {
    (0..rounds(1)).for_each(|_| many_write(Emulated::default(), SEATS, 300, 200));
}

/// An index is created while another transaction writes a row for the first time: the index
/// includes the row, whichever is first.
#[test]
fn an_index_that_is_opened_while_somebody_writes_has_what_he_writes() -> Result<(), Error> {
    const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
    const BY_COUNT: IndexDef<u64, Pod<u64>, u64> = IndexDef::unique("counters by count", |_, count| Some(count));
    for _ in 0..rounds(100) {
        let db = Builder::new().memory(4 << 20).build()?;
        let counters = db.table(COUNTERS)?;
        db.transact(|tx| tx.put(counters, 2, &8))?;
        let start = Barrier::new(2);
        let index = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                start.wait();
                db.transact(|tx| tx.put(counters, 1, &7).and_then(|()| tx.put(counters, 2, &9)))
            });
            start.wait();
            let index = db.index(counters, BY_COUNT);
            writer.join().expect("it does not panic").and(index)
        })?;
        let entries: Vec<_> = db.transact(|tx| tx.range(index, ..)?.rows().collect())?;
        assert_eq!(entries, [(7, (1, 7)), (9, (2, 9))]);
    }
    Ok(())
}

const ITEMS: TableDef<u16, Serde<Row>> = TableDef::hash("items");
const BY_NAME: IndexDef<u16, Serde<Row>, String> = IndexDef::unique("items by name", |_, row| row.0);

fn item(name: &str) -> Row {
    (Some(name.to_owned()), 1)
}

#[test]
fn who_has_written_without_an_index_is_told_so() -> Result<(), Error> {
    let db = Db::new()?;
    let items = db.table(ITEMS)?;
    let (mut before, reader, mut elsewhere) = (db.begin()?, db.begin()?, db.begin()?);
    before.insert(items, 1, &item("a"))?;
    assert!(!reader.contains(items, 5)?, "reading is not writing");
    let others = db.table(TableDef::<u16, Serde<Row>>::hash("other items"))?;
    elsewhere.insert(others, 1, &item("a"))?;
    let by_name = db.index(items, BY_NAME)?;
    assert!(matches!(before.insert(items, 2, &item("b")), Err(Error::Conflict(Conflict::Indexed))));
    assert!(matches!(before.commit(), Err(Error::Conflict(Conflict::Indexed))));
    reader.commit()?;
    elsewhere.commit()?;
    db.transact(|tx| tx.insert(items, 1, &item("a")))?;
    assert_eq!(db.read(|tx| tx.get(by_name.keys(), "a".to_owned()))?, Some(1));

    // A closure cannot create an index, but can open an existing one.
    const BY_CLASS: IndexDef<u16, Serde<Row>, u32, Multi> = IndexDef::multi("items by class", |_, row| Some(row.1));
    db.transact(|_| {
        assert!(matches!(db.index(items, BY_CLASS), Err(Error::Nested)));
        db.index(items, BY_NAME).map(drop)
    })?;
    assert!(db.stats().conflicts(Conflict::Indexed) > 0);
    Ok(())
}

#[test]
fn a_snapshot_that_is_older_than_an_index_says_so() -> Result<(), Error> {
    let db = Db::new()?;
    let items = db.table(ITEMS)?;
    db.transact(|tx| tx.insert(items, 1, &item("a")))?;
    let before = db.snapshot()?;
    let by_name = db.index(items, BY_NAME)?;
    let refused = [
        before.get(by_name.keys(), "a".to_owned()).map(drop),
        before.range(by_name.keys(), ..).map(drop),
        before.range(by_name, ..).map(drop),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Error::IndexTooNew { index: "items by name" })), "{refused:?}");
    }
    assert_eq!(before.get(items, 1)?, Some(item("a")));
    assert_eq!(db.snapshot()?.get(by_name.keys(), "a".to_owned())?, Some(1));
    Ok(())
}

#[test]
fn an_index_that_cannot_be_made_leaves_nothing() -> Result<(), Error> {
    use std::sync::atomic::AtomicU32;
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let panicking = IndexDef::<u16, Serde<Row>, u32, Multi>::multi("items by luck", |_, _| {
        assert!(CALLS.fetch_add(1, Relaxed) < 150, "out of luck");
        Some(7)
    });
    let db = Db::new()?;
    let items = db.table(ITEMS)?;
    db.transact(|tx| (0..200).try_for_each(|key| tx.insert(items, key, &item(&format!("item {key}")))))?;
    let tables = db.tables()?;
    assert!(catch_unwind(AssertUnwindSafe(|| db.index(items, panicking))).is_err());
    assert_eq!(db.tables()?, tables);
    // Its name is free, even for another kind of object. Its function is not called any more.
    let table = db.table(TableDef::<u64, Pod<u64>>::hash("items by luck"))?;
    db.transact(|tx| tx.put(table, 1, &1).and_then(|()| tx.put(items, 1, &item("other"))))?;

    db.transact(|tx| tx.put(items, 199, &item("other")))?;
    for _ in 0..3 {
        let refused = db.index(items, BY_NAME);
        assert!(
            matches!(&refused, Err(Error::NotUnique { index: "items by name", table: "items", key }) if key == b"other")
        );
        let message = refused.expect_err("as above").to_string();
        assert!(message.contains("`items by name`") && message.contains("\"other\""), "{message}");
    }
    db.transact(|tx| tx.remove(items, 1))?;
    let by_name = db.index(items, BY_NAME)?;
    assert_eq!(db.read(|tx| tx.range(by_name, ..)?.count())?, 199);
    assert_eq!(db.read(|tx| tx.get(by_name.keys(), "other".to_owned()))?, Some(199));
    Ok(())
}

#[test]
fn an_index_for_which_there_is_no_memory_leaves_nothing() -> Result<(), Error> {
    const BLOBS: TableDef<u64, Pod<[u64; 2]>> = TableDef::hash("blobs");
    const LONG: IndexDef<u64, Pod<[u64; 2]>, String, Multi> =
        IndexDef::multi("blobs at length", |key, _| Some(format!("{key:0>3000}")));
    let db = Builder::new().memory(4 << 20).build()?;
    let blobs = db.table(BLOBS)?;
    db.transact(|tx| (0..3_000).try_for_each(|key| tx.insert(blobs, key, &[key; 2])))?;
    let tables = db.tables()?;
    for _ in 0..3 {
        let refused = db.index(blobs, LONG);
        assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
        assert_eq!(db.tables()?, tables);
    }
    assert_eq!(db.read(|tx| tx.get(blobs, 2_999))?, Some([2_999; 2]));
    db.transact(|tx| tx.update(blobs, 1, |blob| blob[0] = 0)).map(drop)
}
