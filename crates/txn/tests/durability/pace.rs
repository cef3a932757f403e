//! How much commits that do not wait may have pending, for which those that do would have to wait.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_txn::{Db, Durability, Error, Pod, Table, TableDef, durability::storage::Image};

use super::{Sound, builder};

const ROWS: TableDef<u32, Pod<[u8; 64]>> = TableDef::hash("rows");
type Rows = Table<u32, Pod<[u8; 64]>>;

const NEVER: Duration = Duration::from_secs(3_600);

/// More than the bytes that may be pending while a thread waits, and less than otherwise.
const MANY: u32 = 3_000;

fn database(disk: &Image) -> Result<(Db<Sound>, Rows), Error> {
    let db = builder(disk, Durability::Sync).flush_within(NEVER).build_with(NoHtm)?;
    let rows = db.table(ROWS)?;
    Ok((db, rows))
}

fn put(db: &Db<Sound>, rows: Rows, key: u32, durability: Durability) -> Result<(), Error> {
    db.transact(|tx| {
        tx.set_durability(durability)?;
        tx.put(rows, key, &[key as u8; 64])
    })
}

/// Returns the number of rows after a crash that loses everything unsynced.
fn durable(disk: &Image) -> u32 {
    let (db, rows) = database(&disk.after_crash(&mut |most| most - 1)).expect("it opens");
    db.read(|tx| tx.len(rows)).expect("memory") as u32
}

#[test]
fn little_is_pending_while_a_thread_waits() -> Result<(), Error> {
    let disk = Image::default();
    let (db, rows) = database(&disk)?;
    // Making the table was waited for. A second without such has this many flushes.
    for _ in 0..100 {
        db.checkpoint()?;
    }
    let before = durable(&disk);
    (0..MANY).try_for_each(|key| put(&db, rows, key, Durability::Async))?;
    assert_eq!(durable(&disk), before, "large frames use the disk better");
    put(&db, rows, MANY, Durability::Sync)?;
    assert_eq!(durable(&disk), MANY + 1);
    (MANY + 1..2 * MANY).try_for_each(|key| put(&db, rows, key, Durability::Async))?;
    let pending = 2 * MANY - durable(&disk);
    assert!((1..1_000).contains(&pending), "{pending} transactions are pending, for which a commit would wait");
    Ok(())
}

#[test]
fn several_writers_share_what_may_be_pending() -> Result<(), Error> {
    const WRITERS: u32 = 8;
    let disk = Image::default();
    let (db, rows) = database(&disk)?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (db, is_over) = (&db, &is_over);
                scope.spawn(move || {
                    let mut count = 0;
                    while !is_over.load(Relaxed) {
                        put(db, rows, writer * 1_000_000 + count, Durability::Async)?;
                        count += 1;
                    }
                    Ok::<_, Error>(count)
                })
            })
            .collect();
        (0..50).try_for_each(|_| put(&db, rows, u32::MAX, Durability::Sync))?;
        is_over.store(true, Relaxed);
        let count: u32 = writers.into_iter().map(|writer| writer.join().expect("no panic")).sum::<Result<_, _>>()?;
        let pending = count + 1 - durable(&disk);
        // Each had an equal share, and may have begun another transaction.
        assert!(pending < 1_500, "{pending} of {count} transactions are pending");
        Ok(())
    })
}
