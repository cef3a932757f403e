//! Deliberate faults that random histories do not show: each is detected by its effect.

use drtm_htm::NoHtm;
use drtm_txn::{Builder, Db, Error, IndexDef, Mutation, Options, Ordered, Pod, Raw, Table, TableDef, Tx, Unique};

use crate::{On, with_fault};

fn database(bytes: u64) -> Db<On<NoHtm>> {
    Builder::new().memory(bytes).build_with(NoHtm).expect("memory")
}

const SORTED: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("sorted");
const BY_VALUE: IndexDef<u64, Pod<u64>, u64> = IndexDef::unique("sorted by value", |_, value| Some(value));

/// Returns whether rows that ranges remove leave entries in an index.
fn leaves_entries() -> bool {
    let db = database(16 << 20);
    let sorted = db.table(SORTED).expect("memory");
    let by_value = db.index(sorted, BY_VALUE).expect("memory");
    db.transact(|tx| (0..10).try_for_each(|key| tx.insert(sorted, key, &(100 + key)))).expect("memory");
    let removed = db.transact(|tx| {
        let mut rows = tx.range_mut(sorted, 3..6)?;
        while rows.remove_next()?.is_some() {}
        tx.range_mut(sorted, ..)?.pop_last()
    });
    assert_eq!(removed.expect("sound"), Some((9, 109)));
    let left = |value: u64| db.read(|tx| tx.get(by_value.keys(), value));
    (100..110).any(|value| {
        !matches!((left(value), [103, 104, 105, 109].contains(&value)), (Ok(None), true) | (Ok(Some(_)), false))
    })
}

#[test]
fn rows_that_ranges_remove_leave_no_entries() {
    assert!(!leaves_entries());
    assert!(with_fault(Mutation::EntriesLeftByRanges, leaves_entries), "the fault is not noticed");
}

const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");

/// Returns whether rows stay locked when a commit runs out of memory for their values.
fn keeps_locks() -> bool {
    let db = database(4 << 20);
    let notes: Table<u64, Raw> = db.table(NOTES).expect("memory");
    db.transact(|tx| (0..3).try_for_each(|key| tx.put(notes, key, &[1; 8]))).expect("memory");
    let mut rows = 10;
    while db.transact(|tx| tx.insert(notes, rows, &[2; 1_000])).is_ok() {
        rows += 1;
    }
    let full = db.transact(|tx| {
        tx.put(notes, 0, &[3; 8])?;
        tx.put(notes, 1, &[3; 60_000])?;
        tx.put(notes, 2, &[3; 8])
    });
    assert!(matches!(full, Err(Error::Full { .. })), "{full:?}");
    let values = db.read(|tx| tx.get_many(notes, [0, 1, 2]));
    if !matches!(&values, Ok(values) if values.iter().all(|value| value.as_deref() == Some(&[1; 8]))) {
        return true;
    }
    let again =
        db.transact_with(Options::new().attempts(3), |tx| (0..3).try_for_each(|key| tx.put(notes, key, &[4; 8])));
    again.is_err()
}

#[test]
fn no_lock_is_kept_when_memory_is_full() {
    assert!(!keeps_locks());
    assert!(with_fault(Mutation::LocksKeptWhenFull, keeps_locks), "the fault is not noticed");
}

const ROWS: TableDef<u64, Pod<u64>> = TableDef::hash("rows");
const ROWS_BY_VALUE: IndexDef<u64, Pod<u64>, u64> = IndexDef::unique("rows by value", |_, value| Some(value));

/// Returns whether a row commits without its entry in an index that was created meanwhile.
fn overlooks_an_index() -> bool {
    let db = database(16 << 20);
    let rows = db.table(ROWS).expect("memory");
    let mut tx = db.begin().expect("memory");
    tx.put(rows, 1, &10).expect("memory");
    let by_value: drtm_txn::Index<u64, Pod<u64>, u64, Unique> = db.index(rows, ROWS_BY_VALUE).expect("memory");
    let is_committed = tx.commit().is_ok();
    let (row, entry) = db.read(|tx| Ok((tx.get(rows, 1)?, tx.get(by_value.keys(), 10)?))).expect("sound");
    assert_eq!(row.is_some(), is_committed);
    row.is_some() != entry.is_some()
}

#[test]
fn a_row_that_is_written_while_its_index_is_made_is_in_it() {
    assert!(!overlooks_an_index());
    assert!(with_fault(Mutation::IndexedNotChecked, overlooks_an_index), "the fault is not noticed");
}

/// Returns the number of missed phantoms after a transaction's own insertions have split what it
/// has read.
fn overlooked_phantoms(is_ordered: bool) -> usize {
    let overlooked = |missing: u64| {
        let db = database(8 << 20);
        let (rows, sorted) = (db.table(ROWS).expect("memory"), db.table(SORTED).expect("memory"));
        let mut tx = db.begin().expect("memory");
        let looked = if is_ordered { tx.get(sorted, missing) } else { tx.get(rows, missing) };
        assert_eq!(looked.expect("nothing is in the way"), None);
        // Around the missing key.
        for key in (0..600).filter(|key| *key != missing) {
            let inserted = if is_ordered { tx.insert(sorted, key, &1) } else { tx.insert(rows, key, &1) };
            inserted.expect("nothing is in the way");
        }
        let other = db.begin().and_then(|mut other| {
            if is_ordered { other.insert(sorted, missing, &2) } else { other.insert(rows, missing, &2) }?;
            other.commit()
        });
        other.expect("nothing is in the way");
        tx.commit().is_ok()
    };
    (0..600).step_by(23).filter(|missing| overlooked(*missing)).count()
}

#[test]
fn what_splits_of_ones_own_make_is_guarded() {
    for is_ordered in [false, true] {
        assert_eq!(overlooked_phantoms(is_ordered), 0);
        let overlooked = with_fault(Mutation::SplitsNotGuarded, || overlooked_phantoms(is_ordered));
        assert!(overlooked > 0, "the fault is not noticed");
    }
}

/// A value in which each fourth word is this one, from the one behind so many on, and the others
/// are zero: as if there were records of rows without values, which are not locked.
fn like_records(version: u64, skipped: usize) -> Vec<u8> {
    let words = (0..375).map(|word| if (word + skipped).is_multiple_of(4) { version } else { 0 });
    words.flat_map(u64::to_le_bytes).collect()
}

/// Whether late transactions write into values of other rows: theirs are gone, and the memory has
/// been cut anew.
fn late_writes_land() -> bool {
    const OTHERS: u64 = 1 << 40;
    let db = database(4 << 20);
    let notes = db.table(NOTES).expect("memory");
    // Rows of the first epoch have one of these versions.
    let value = |key: u64| like_records(((1 << 16) + key / 4 % 2) << 2, key as usize % 4);
    let fill = |first: u64, value: &dyn Fn(u64) -> Vec<u8>| {
        let full = (first..).find(|key| db.transact(|tx| tx.insert(notes, key, &value(*key))).is_err());
        full.expect("memory has an end")
    };
    let end = fill(0, &|_| Vec::new());
    let late: Vec<_> = (0..end)
        .step_by(50)
        .map(|key| {
            let mut tx = db.begin().expect("it is open");
            tx.put(notes, key, b"").expect("it is there");
            tx
        })
        .collect();
    for key in 0..end {
        assert!(db.transact(|tx| tx.remove(notes, key)).expect("sound").is_some());
    }
    let behind = fill(OTHERS, &value);
    let committed: Vec<_> = late.into_iter().map(Tx::commit).collect();
    let are_refused = committed.iter().all(|committed| matches!(committed, Err(Error::Conflict(_))));
    let are_whole = (OTHERS..behind).all(|key| {
        let found = db.read(|tx| tx.get(notes, key)).expect("sound").expect("it is there");
        found == value(key)
    });
    if are_refused && are_whole {
        assert!(fill(behind, &value) > OTHERS + 300, "now the memory serves others");
    }
    !are_refused || !are_whole
}

#[test]
fn memory_is_cut_anew_only_when_nothing_knows_it() {
    assert!(!late_writes_land());
    assert!(with_fault(Mutation::MemoryCutEarly, late_writes_land), "the fault is not noticed");
}
