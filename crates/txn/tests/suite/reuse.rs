//! Memory that is reused through all values of an incarnation while a transaction is open, with
//! counters of full width. Tests with narrow counters (`tests/narrow`) cover each path.

use drtm_txn::{Db, Error, Ordered, Pod, Table, TableDef};

const A: TableDef<u64, Pod<u64>> = TableDef::hash("a");
const B: TableDef<u64, Pod<u64>> = TableDef::hash("b");
const CHURN: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("churn");

/// One less than the number of incarnations.
const USES: u64 = (1 << 14) - 1;

fn use_memory(db: &Db, churn: Table<u64, Pod<u64>, Ordered>) {
    for key in 0..USES {
        db.transact(|tx| tx.insert(churn, key, &0)).expect("room");
        assert!(db.transact(|tx| tx.remove(churn, key)).expect("sound").is_some());
    }
}

#[test]
fn what_was_seen_is_told_from_a_later_row_in_its_memory() {
    let db = Db::new().expect("memory");
    let (a, b, churn) = (db.table(A), db.table(B), db.table(CHURN));
    let (a, b, churn) = (a.expect("memory"), b.expect("memory"), churn.expect("memory"));
    db.transact(|tx| (1..=3).try_for_each(|key| tx.insert(a, key, &(100 + key)))).expect("room");
    let mut reader = db.begin().expect("a transaction");
    assert_eq!(reader.get(a, 1).expect("alone"), Some(101));
    reader.put(churn, u64::MAX, &1).expect("room");
    let mut writer = db.begin().expect("a transaction");
    writer.update(a, 1, |value| *value = 999).expect("alone");
    let asking = db.begin().expect("a transaction");
    asking.prefetch(a, [1_u64, 2, 3].iter()).expect("its own table");
    assert_eq!(asking.get(a, 3).expect("alone"), Some(103));
    assert!(db.transact(|tx| tx.remove(a, 1)).expect("sound").is_some());
    use_memory(&db, churn);
    db.transact(|tx| tx.insert(b, 1, &7)).expect("room");
    assert!(matches!(reader.commit(), Err(Error::Conflict(_))), "a stale read commits");
    assert!(matches!(writer.commit(), Err(Error::Conflict(_))), "a write to what is gone commits");
    assert_ne!(asking.get(a, 1).ok(), Some(Some(7)), "another table's row");
    assert_eq!(db.read(|tx| tx.get(b, 1)).expect("sound"), Some(7), "another table's row was written");
}
