//! What a database has in physical memory, as the system counts it. A process of its own: other
//! tests would count, too.

use std::fs;

use drtm_txn::{Builder, Db, Error, Pod, Raw, TableDef};

const EMPTY: TableDef<u64, Pod<u64>> = TableDef::hash("empty");
const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");

/// The process's memory, in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a system with /proc");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it is told");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
}

#[test]
fn memory_is_taken_by_rows_and_told() -> Result<(), Error> {
    let before = resident();
    let db = Db::new()?;
    for number in 0..500 {
        db.table(EMPTY.named(&format!("empty {number}")))?;
    }
    let tables = resident() - before;
    assert!(tables <= 20 << 20, "500 empty tables take {} KiB", tables >> 10);
    drop(db);

    // Half of it is filled, then all of it, whatever the pages are.
    let before = resident();
    let db = Builder::new().memory(256 << 20).build()?;
    let notes = db.table(NOTES)?;
    for (rows, part) in [(0..100_000, 1), (100_000..200_000, 2)] {
        rows.into_iter().try_for_each(|key| db.transact(|tx| tx.insert(notes, key, &[7; 1_000])))?;
        let memory = db.memory();
        let (told, found) = (memory.resident.expect("it is told"), resident() - before);
        assert!(found > part * (100 << 20), "{found}");
        // What threads and handles keep counts elsewhere, and is little.
        assert!(told.abs_diff(found) <= found / 10, "part {part}: told {told}, found {found}, {memory:?}");
        assert!(told >= memory.tables, "{memory:?}");
    }
    // What goes back to the system is not counted any more.
    (0..200_000).try_for_each(|key| db.transact(|tx| tx.remove(notes, key).map(drop)))?;
    let compacted = db.compact()?;
    let (told, found) = (db.memory().resident.expect("it is told"), resident() - before);
    assert!(compacted.discarded > 190 << 20 && told < 64 << 20, "{compacted:?} {told}");
    assert!(told.abs_diff(found) <= 12 << 20, "told {told}, found {found}");
    Ok(())
}
