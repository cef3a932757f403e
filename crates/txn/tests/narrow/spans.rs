//! Memory that is cut anew for rows of another size, all zeros, while a transaction has a place in
//! it.

use drtm_txn::{Builder, Db, Error, Raw, Table, TableDef, Tx};

const ROWS: TableDef<u64, Raw> = TableDef::hash("rows");

/// Inserts rows of so many bytes from this key on, until there is no memory. Returns the key behind
/// the last one.
fn fill(db: &Db, rows: Table<u64, Raw>, bytes: usize, first: u64) -> u64 {
    let full = (first..).find(|key| db.transact(|tx| tx.insert(rows, key, &vec![0; bytes])).is_err());
    full.expect("memory has an end")
}

/// Late transactions do something with a row each, which is gone by the time that they commit.
fn late(write: impl Fn(&mut Tx<'_>, Table<u64, Raw>, u64)) {
    let db = Builder::new().memory(4 << 20).build().expect("memory");
    let rows = db.table(ROWS).expect("memory");
    let end = fill(&db, rows, 1_000, 0);
    let late: Vec<_> = (0..100)
        .map(|key| {
            let mut tx = db.begin().expect("a transaction");
            write(&mut tx, rows, key);
            tx
        })
        .collect();
    for key in 0..end {
        assert!(db.transact(|tx| tx.remove(rows, key)).expect("sound").is_some());
    }
    let zeros = 1_000_000;
    let behind = fill(&db, rows, 3_000, zeros);
    let committed: Vec<_> = late.into_iter().map(Tx::commit).collect();
    for key in zeros..behind {
        let value = db.read(|tx| tx.get(rows, key)).expect("sound").expect("it is there");
        assert!(value.len() == 3_000 && value.iter().all(|byte| *byte == 0), "wrong: {key} is {value:?}");
    }
    let are_refused = committed.iter().all(|committed| matches!(committed, Err(Error::Conflict(_))));
    assert!(are_refused, "wrong: one commits");
    // Now that it has ended, the memory serves others.
    assert!(fill(&db, rows, 3_000, behind) > zeros + end / 4);
}

fn put_blindly() {
    late(|tx, rows, key| tx.put(rows, key, &[7; 1_000]).expect("room"));
}

fn update() {
    late(|tx, rows, key| {
        tx.update(rows, key, |value| value.fill(7)).expect("sound");
    });
}

#[test]
fn a_late_write_does_not_land_in_another_row() {
    put_blindly();
}

#[test]
fn a_late_update_does_not_land_in_another_row() {
    update();
}
