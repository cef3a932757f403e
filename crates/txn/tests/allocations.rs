//! A transaction over plain data does not allocate after its thread's first few, and a large one
//! keeps no large memory.

use drtm_txn::{Builder, Db, Error, Ordered, Pod, Raw, Table, TableDef};

const COUNTERS: TableDef<u64, Pod<[u8; 100]>> = TableDef::hash("counters");
const LINES: TableDef<(u32, u32), Pod<u64>, Ordered> = TableDef::ordered("lines");

type Counters = Table<u64, Pod<[u8; 100]>>;
type PrefetchMask = Table<(u32, u32), Pod<u64>, Ordered>;

fn reads_and_writes(db: &Db, counters: Counters, lines: PrefetchMask, round: u32) -> Result<u64, Error> {
    db.transact(|tx| {
        let mut sum = 0;
        tx.prefetch(counters, (0..20).map(|key| key + u64::from(round % 3)))?;
        for key in 0..20 {
            tx.update(counters, key + u64::from(round % 3), |row| row[0] = row[0].wrapping_add(1))?;
            sum += u64::from(tx.get(counters, 90 - key)?.map_or(0, |row| row[1]));
        }
        let mut rows = tx.range(lines, (1, 0)..(2, 0))?;
        while let Some((_, amount)) = rows.next()? {
            sum += amount;
        }
        // Is inserted and removed.
        tx.insert(counters, 1_000, &[1; 100])?;
        tx.insert(lines, (1, 100 + round % 3), &7)?;
        tx.insert_many(lines, (0..30).map(|line| ((3, line), &7)))?;
        Ok(sum)
    })?;
    db.transact(|tx| {
        (0..30).try_for_each(|line| tx.remove(lines, (3, line)).map(drop))?;
        Ok(tx.remove(counters, 1_000)?.is_some() && tx.remove(lines, (1, 100 + round % 3))?.is_some())
    })?;
    db.read(|tx| {
        tx.get(counters, 5)?;
        tx.range(lines, ..)?.first()?;
        Ok(0)
    })
}

#[test]
fn plain_data_needs_no_allocation() {
    let db = Db::new().expect("a database");
    let (counters, lines) = (db.table(COUNTERS).expect("a table"), db.table(LINES).expect("a table"));
    let filled = db.transact(|tx| {
        (0..100).try_for_each(|key| tx.insert(counters, key, &[0; 100]))?;
        (0..50).try_for_each(|line| tx.insert(lines, (1, line), &1))
    });
    filled.expect("room");
    let run =
        |rounds: u32| (0..rounds).for_each(|round| assert!(reads_and_writes(&db, counters, lines, round).is_ok()));
    run(100);
    let allocations = allocation_counter::measure(|| run(100));
    assert_eq!(allocations.count_total, 0, "{allocations:?}");
    // The counter works.
    assert!(allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1)))).count_total > 0);
}

/// A thread frees what a large transaction has allocated, however it ends.
#[test]
fn a_large_transaction_leaves_no_large_memory() {
    const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    let db = Builder::new().memory(256 << 20).build().expect("a database");
    let notes = db.table(NOTES).expect("a table");
    let value = vec![1; 60_000];
    db.transact(|tx| (0..10).try_for_each(|key| tx.put(notes, key, &value))).expect("room");
    let large = |tx: &mut drtm_txn::Tx<'_>| (0..1_000).try_for_each(|count| tx.put(notes, count % 10, &value));
    let small = || db.transact(|tx| tx.put(notes, 1, &value)).expect("room");
    let reads = |tx: &mut drtm_txn::Tx<'_>| (0..100_000).try_for_each(|key| tx.contains(notes, key % 10).map(drop));
    let ways: [&dyn Fn(); 4] = [
        &|| db.transact(large).expect("room"),
        &|| assert!(db.transact(|tx| large(tx).and(Err::<(), _>(Error::aborted("no")))).is_err()),
        &|| drop(db.begin().and_then(|mut tx| large(&mut tx).map(|()| tx))),
        &|| db.transact(|tx| reads(tx).and_then(|()| tx.put(notes, 1, &value))).expect("room"),
    ];
    for way in ways {
        small();
        let left = allocation_counter::measure(|| {
            way();
            small();
        });
        assert!(left.bytes_max > 1 << 20, "{left:?}");
        assert!(left.bytes_current < 1 << 20, "{left:?}");
    }
}
