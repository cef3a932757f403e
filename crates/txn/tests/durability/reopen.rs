//! Reopened databases: tables and their types, indexes, versions, and the directory's lock.

use std::sync::{Arc, Mutex};

use drtm_htm::NoHtm;
use drtm_txn::{
    Bincode, Codec, Commit, Db, Durability, Error, IndexDef, Key, Kind, LogError, Multi, Ordered, Pod, PodRef,
    Postcard, Raw, Sink, SinkError, TableDef, durability::storage::Image,
};

use super::{PAIRS, Pair, Sound, TEXTS, Tables, builder, open};

const BY_FIRST: IndexDef<u32, Pod<Pair>, u64, Multi> = IndexDef::multi("pairs by first", |_, pair| Some(pair.first));
const BY_SECOND: IndexDef<u32, Pod<Pair>, u64> = IndexDef::unique("pairs by second", |_, pair| Some(pair.second));

#[test]
fn a_table_is_opened_only_as_what_it_was() -> Result<(), Error> {
    let disk = Image::default();
    let db = open(&disk)?;
    let tables = Tables::of(&db)?;
    db.transact(|tx| tx.put(tables.texts, "a".to_owned(), b"one"))?;
    drop(db);
    let db = open(&disk)?;
    const OTHER: TableDef<u64, Pod<Pair>> = TableDef::hash("pairs");
    match db.table(OTHER) {
        Err(Error::OtherTypes { name: "pairs", is, asked }) => {
            assert!(is.contains("u32") && asked.contains("u64"), "{is} {asked}");
        }
        other => panic!("{other:?}"),
    }
    const ORDERED: TableDef<u32, Pod<Pair>, Ordered> = TableDef::ordered("pairs");
    assert!(matches!(db.table(ORDERED), Err(Error::OtherTypes { .. })));
    let texts = db.table(TEXTS)?;
    assert_eq!(db.read(|tx| tx.get(texts, "a".to_owned()))?.as_deref(), Some(&b"one"[..]));
    db.table(PAIRS)?;
    assert!(matches!(db.table(OTHER), Err(Error::OtherTypes { .. })), "also when it is open");
    // A new table does not get a used identity.
    const NEW: TableDef<u32, Raw> = TableDef::hash("new");
    let new = db.table(NEW)?;
    db.transact(|tx| tx.put(new, 1, b"two"))?;
    drop(db);
    let db = open(&disk)?;
    let (new, texts) = (db.table(NEW)?, db.table(TEXTS)?);
    assert_eq!(db.read(|tx| tx.get(new, 1))?.as_deref(), Some(&b"two"[..]));
    assert_eq!(db.read(|tx| tx.range(texts, ..)?.count())?, 1);
    Ok(())
}

/// Everything declared of a table is remembered. An error shows both sides. Names of types do not
/// matter.
#[test]
fn a_table_is_known_by_its_shapes_and_version() -> Result<(), Error> {
    const BY: TableDef<(String, u32), Pod<[u8; 8]>> = TableDef::hash("stock");
    let disk = Image::default();
    let db = open(&disk)?;
    let stock = db.table(BY.version(2))?;
    db.transact(|tx| tx.put(stock, ("eu", 7), &[1; 8]))?;
    db.rename_table("stock", "goods")?;
    drop(db);

    /// Fields with names.
    #[derive(Clone, Debug, PartialEq, Key)]
    struct Place {
        region: String,
        shelf: u32,
    }
    const PLACES: TableDef<Place, PodRef<[u8; 8]>> = TableDef::hash("goods").version(2);
    fn refused<K: Key, C: Codec, O: Kind>(db: &Db<Sound>, def: TableDef<K, C, O>, is: &str, asked: &str) {
        match db.table(def) {
            Err(Error::OtherTypes { name: "goods", is: found, asked: opened }) => {
                assert!(found.contains(is) && opened.contains(asked), "{found} / {opened}");
            }
            other => panic!("{:?}", other.map(drop)),
        }
    }
    for _ in 0..2 {
        let db = open(&disk)?;
        let key = "(string,u32)";
        refused(&db, TableDef::<Place, PodRef<[u8; 8]>>::hash("goods"), "version 2", "Place{region:string,");
        refused(&db, TableDef::<(String, i32), Pod<u64>>::hash("goods").version(2), key, "(string,i32)");
        refused(&db, TableDef::<Place, Pod<u32>>::hash("goods").version(2), "(8 bytes)", "(4 bytes)");
        refused(&db, TableDef::<Place, Raw>::hash("goods").version(2), "plain", "raw (any number of");
        refused(&db, TableDef::<Place, Postcard<u64>>::hash("goods").version(2), "plain", "postcard1");
        refused(&db, TableDef::<Place, Bincode<u64>>::hash("goods").version(2), "plain", "bincode2");
        let ordered = TableDef::<Place, PodRef<[u8; 8]>, Ordered>::ordered("goods").version(2);
        refused(&db, ordered, "a hash table", "an ordered table");
        let goods = db.table(PLACES)?;
        assert_eq!(db.read(|tx| tx.get(goods, ("eu", 7)))?, Some([1; 8]));
        // In a process all handles have the same types, and the same version.
        refused(&db, PLACES.version(3), "version 2", "version 3");
        refused(&db, TableDef::<(String, u32), Pod<[u8; 8]>>::hash("goods").version(2), "Place", "String");
        // A checkpoint remembers them, too.
        db.checkpoint()?;
    }
    Ok(())
}

#[test]
fn a_recorded_index_is_opened_before_its_table_is_written() -> Result<(), Error> {
    let disk = Image::default();
    let db = open(&disk)?;
    let pairs = db.table(PAIRS)?;
    let (by_first, _) = (db.index(pairs, BY_FIRST)?, db.index(pairs, BY_SECOND)?);
    db.transact(|tx| (0..5).try_for_each(|key| tx.put(pairs, key, &Pair { first: 7, second: key.into() })))?;
    db.transact(|tx| tx.remove(pairs, 2).map(drop))?;
    assert_eq!(db.read(|tx| tx.range(by_first, 7..=7)?.count())?, 4);
    drop(db);
    for _ in 0..2 {
        let db = open(&disk)?;
        let pairs = db.table(PAIRS)?;
        let is_refused = |index: &str| match db.transact(|tx| tx.put(pairs, 9, &Pair::default())) {
            Err(Error::IndexNotOpened { table: "pairs", index: found }) => assert_eq!(found, index),
            other => panic!("{other:?}"),
        };
        is_refused("pairs by first");
        assert!(db.read(|tx| tx.get(pairs, 1))?.is_some(), "reads need no index");
        let by_first = db.index(pairs, BY_FIRST)?;
        is_refused("pairs by second");
        let by_second = db.index(pairs, BY_SECOND)?;
        assert_eq!(db.read(|tx| tx.range(by_first, 7..=7)?.count())?, 4);
        assert_eq!(db.read(|tx| tx.get(by_second.keys(), 3))?, Some(3));
        let twice = db.transact(|tx| tx.put(pairs, 8, &Pair { first: 1, second: 3 }));
        assert!(matches!(twice, Err(Error::Duplicate { .. })));
        db.transact(|tx| tx.put(pairs, 0, &Pair { first: 7, second: 100 }))?;
    }
    Ok(())
}

/// Records the versions of a table's only row.
#[derive(Debug, Default)]
struct Versions(Mutex<Vec<(u64, u64)>>);

impl Sink for Versions {
    fn commit(&self, commit: &Commit<'_>) -> Result<(), SinkError> {
        let versions = commit.rows().map(|row| (row.previous().number(), row.version().number()));
        self.0.lock().expect("no panic").extend(versions);
        Ok(())
    }
}

#[test]
fn versions_are_restored_and_grow_over_restart_and_removal() -> Result<(), Error> {
    let disk = Image::default();
    let versions = Arc::new(Versions::default());
    let mut is_there = false;
    for run in 0..8 {
        // Beside the application's own sink.
        let sink = versions.clone();
        let db = builder(&disk, Durability::Sync).sink(sink).build_with::<Sound>(NoHtm)?;
        let tables = Tables::of(&db)?;
        if run % 3 == 1 {
            db.transact(|tx| tx.remove(tables.pairs, 1).map(drop))?;
            is_there = false;
        } else if run != 5 {
            db.transact(|tx| tx.put(tables.pairs, 1, &Pair { first: run, second: 0 }))?;
            let versions = versions.0.lock().expect("no panic");
            if let (true, [.., (_, before), (previous, _)]) = (is_there, &versions[..]) {
                assert_eq!(before, previous, "run {run}");
            }
            is_there = true;
        }
    }
    let versions = versions.0.lock().expect("no panic");
    assert!(versions.len() >= 5 && versions.is_sorted_by(|one, other| one.1 < other.1), "{versions:?}");
    Ok(())
}

#[test]
fn what_is_closed_or_dropped_is_durable_though_nothing_waited() -> Result<(), Error> {
    for closes in [true, false] {
        let disk = Image::default();
        let slow = std::time::Duration::from_secs(3_600);
        let db = builder(&disk, Durability::Async).flush_within(slow).build_with::<Sound>(NoHtm)?;
        let tables = Tables::of(&db)?;
        db.transact(|tx| tx.put(tables.pairs, 1, &Pair { first: 5, second: 6 }))?;
        let none_is_there = open(&disk.after_crash(&mut |most| most - 1))?;
        assert_eq!(Tables::of(&none_is_there)?.rows()?.pairs[1], None, "nothing has waited for it");
        if closes {
            db.close()?;
            db.close()?;
        } else {
            drop(db);
        }
        let db = open(&disk.after_crash(&mut |most| most - 1))?;
        assert_eq!(Tables::of(&db)?.rows()?.pairs[1], Some(Pair { first: 5, second: 6 }));
    }
    Ok(())
}

#[test]
fn a_directory_is_one_database_at_a_time() -> Result<(), Error> {
    let disk = Image::default();
    let db = open(&disk)?;
    assert!(matches!(open(&disk), Err(Error::Log(LogError::InUse { .. }))));
    db.close()?;
    open(&disk)?;

    let directory = std::env::temp_dir().join(format!("drtm-one-at-a-time-{}", std::process::id()));
    let db = Db::create(&directory)?;
    let holder = format!("process {}", std::process::id());
    match Db::open(&directory) {
        Err(Error::Log(error @ LogError::InUse { .. })) => assert!(error.to_string().contains(&holder), "{error}"),
        other => panic!("{other:?}"),
    }
    drop(db);
    drop(Db::open(&directory)?);
    std::fs::remove_dir_all(&directory).expect("it is there");
    Ok(())
}

#[test]
fn large_transactions_and_many_rows_come_back() -> Result<(), Error> {
    const MANY: TableDef<u64, Raw> = TableDef::hash("many");
    let disk = Image::default();
    let db = builder(&disk, Durability::Sync).memory(256 << 20).build_with::<Sound>(NoHtm)?;
    let many = db.table(MANY)?;
    let value = |key: u64| vec![key as u8; (key % 50) as usize];
    db.transact(|tx| (0..40_000).try_for_each(|key| tx.put(many, key, &value(key))))?;
    db.transact(|tx| tx.put(many, 40_000, &[7; 60_000]))?;
    drop(db);
    let db = builder(&disk, Durability::Sync).memory(256 << 20).build_with::<Sound>(NoHtm)?;
    let many = db.table(MANY)?;
    for key in 0..40_000 {
        assert_eq!(db.read(|tx| tx.get(many, key))?, Some(value(key)), "{key}");
    }
    assert_eq!(db.read(|tx| tx.get(many, 40_000))?, Some(vec![7; 60_000]));
    Ok(())
}
