//! All memory is counted by kind, bounded, and freed when it is not needed any more.

use std::{sync::Barrier, thread};

use drtm_txn::{Builder, Db, Error, Ordered, Pod, Raw, Table, TableDef};

const HASHED: TableDef<u64, Pod<u64>> = TableDef::hash("hashed");
const SORTED: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("sorted");
const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");

const ROWS: u64 = 50_000;

fn fill(db: &Db, sorted: Table<u64, Pod<u64>, Ordered>) -> Result<(), Error> {
    (0..ROWS / 500).try_for_each(|part| {
        db.transact(|tx| (part * 500..(part + 1) * 500).try_for_each(|key| tx.put(sorted, key, &1)))
    })
}

fn find(db: &Db, sorted: Table<u64, Pod<u64>, Ordered>) -> Result<(), Error> {
    (0..2 * ROWS).try_for_each(|key| db.read(|tx| tx.get(sorted, key % ROWS)).map(drop))
}

/// Commits until garbage has been retried.
fn settle(db: &Db) -> Result<(), Error> {
    let notes = db.table(NOTES)?;
    (0..10_000).try_for_each(|_| db.transact(|tx| tx.put(notes, 1, b"")))
}

#[test]
fn hints_are_counted_and_come_back_with_their_keys() -> Result<(), Error> {
    let db = Builder::new().memory(64 << 20).build()?;
    let sorted = db.table(SORTED)?;
    assert_eq!(db.memory().hints, 0);
    fill(&db, sorted)?;
    find(&db, sorted)?;
    let hints = db.memory().hints;
    assert!((8 * ROWS..40 * ROWS).contains(&hints), "{:?}", db.memory());
    db.transact(|tx| tx.clear(sorted).map(drop))?;
    settle(&db)?;
    assert!(db.memory().hints <= hints / 8, "{:?}", db.memory());

    fill(&db, sorted)?;
    find(&db, sorted)?;
    assert_eq!(db.memory().hints, hints);
    db.drop_table("sorted")?;
    settle(&db)?;
    assert_eq!(db.memory().hints, 0, "the table was dropped");

    let without = Builder::new().memory(64 << 20).hints(false).build()?;
    let sorted = without.table(SORTED)?;
    fill(&without, sorted)?;
    find(&without, sorted)?;
    assert_eq!(without.memory().hints, 0);
    Ok(())
}

#[test]
fn hints_leave_room_for_rows() -> Result<(), Error> {
    let db = Builder::new().memory(16 << 20).build()?;
    let (sorted, notes) = (db.table(SORTED)?, db.table(NOTES)?);
    fill(&db, sorted)?;
    find(&db, sorted)?;
    assert!(db.memory().hints > 0, "{:?}", db.memory());
    let refused = (0..).find_map(|key| db.transact(|tx| tx.put(notes, key, &[1; 1_000])).err());
    assert!(matches!(refused, Some(Error::Full { .. })), "{refused:?}");
    let memory = db.memory();
    assert!(memory.tables + memory.hints <= memory.most && memory.tables > memory.most - (1 << 20), "{memory:?}");
    find(&db, sorted)?;
    let memory = db.memory();
    assert!(memory.tables + memory.hints <= memory.most, "{memory:?}");
    Ok(())
}

#[test]
fn what_rows_were_is_counted_until_its_snapshot_is_closed() -> Result<(), Error> {
    let db = Builder::new().memory(64 << 20).build()?;
    let hashed = db.table(HASHED)?;
    let write = |value| {
        (0..100).try_for_each(|part| {
            db.transact(|tx| (0..100).try_for_each(|key| tx.put(hashed, 100 * part + key, &value)))
        })
    };
    write(1)?;
    write(2)?;
    settle(&db)?;
    let before = db.memory();
    assert_eq!((before.older_versions, before.garbage), (0, 0));
    let snapshot = db.snapshot()?;
    write(3)?;
    let during = db.memory();
    assert!(during.older_versions >= 10_000 * 8 && during.garbage > 10_000 / 14, "{during:?}");
    assert!(during.older_versions <= during.tables);
    drop(snapshot);
    settle(&db)?;
    let after = db.memory();
    assert_eq!((after.older_versions, after.garbage), (0, 0), "{after:?}");
    // Their memory is reused.
    let snapshot = db.snapshot()?;
    write(4)?;
    assert!(db.memory().tables <= during.tables + (64 << 10), "{during:?} {:?}", db.memory());
    drop(snapshot);
    Ok(())
}

#[test]
fn threads_that_do_little_hold_little() -> Result<(), Error> {
    const THREADS: u64 = 200;
    let db = Builder::new().memory(64 << 20).build()?;
    let hashed = db.table(HASHED)?;
    db.transact(|tx| (0..THREADS).try_for_each(|key| tx.insert(hashed, key, &0)))?;
    let before = db.memory();
    let (done, looked) = (Barrier::new(THREADS as usize + 1), Barrier::new(THREADS as usize + 1));
    let during = thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, done, looked) = (&db, &done, &looked);
            scope.spawn(move || {
                let inserted = db.transact(|tx| tx.insert(hashed, 1_000 + thread, &1));
                done.wait();
                looked.wait();
                inserted.expect("room");
            });
        }
        done.wait();
        let during = db.memory();
        looked.wait();
        during
    });
    // A page of the table's memory for their insertions, and their states.
    let each = (during.tables - before.tables) / THREADS;
    assert!(each <= 4 << 10, "{before:?} {during:?}");
    let each = (during.threads - before.threads) / THREADS;
    assert!((1..=24 << 10).contains(&each), "{before:?} {during:?}");
    Ok(())
}

#[test]
fn what_a_thread_keeps_is_counted_and_bounded() -> Result<(), Error> {
    let db = Builder::new().memory(64 << 20).build()?;
    let notes = db.table(NOTES)?;
    let put = |rows: u64| db.transact(|tx| (0..rows).try_for_each(|key| tx.put(notes, key, &[1; 10_000])));
    settle(&db)?;
    let before = db.memory().threads;
    put(50)?;
    settle(&db)?;
    let kept = db.memory().threads;
    assert!(kept - before >= 500_000, "{before} {kept}");
    // It frees what a large transaction has allocated.
    put(2_000)?;
    assert!(db.memory().threads <= before + (64 << 10), "{before} {:?}", db.memory());
    Ok(())
}
