//! The largest logged write set of a transaction.

use drtm_htm::NoHtm;
use drtm_txn::{Db, Durability, Error, durability::storage::Image};

use super::{Sound, TEXTS, Tables, builder, open};

const MOST: usize = 1_000;

#[test]
fn a_transaction_that_is_too_large_is_refused_before_it_locks() -> Result<(), Error> {
    let disk = Image::default();
    let db: Db<Sound> = builder(&disk, Durability::Sync).most_logged(MOST).build_with(NoHtm)?;
    let tables = Tables::of(&db)?;
    let (a, b) = ("a".to_owned(), "b".to_owned());
    db.transact(|tx| tx.put(tables.texts, &a, b"small"))?;
    let calls = disk.calls();
    let is_too_large = |done: Result<(), Error>| match done {
        Err(Error::TooLarge { bytes, most: MOST }) => assert!(bytes > MOST, "{bytes}"),
        other => panic!("{other:?}"),
    };
    let mut attempts = 0;
    is_too_large(db.transact(|tx| {
        attempts += 1;
        tx.put(tables.texts, &a, &[1; 600])?;
        tx.put(tables.texts, &b, &[2; 600])
    }));
    assert_eq!(attempts, 1, "another attempt would be as large");
    // Its read set has changed: if it had locked and validated, that would be the error.
    let mut large = db.begin()?;
    assert_eq!(large.get(tables.texts, &a)?.as_deref(), Some(&b"small"[..]));
    large.put(tables.texts, &b, &[2; 1_200])?;
    assert_eq!(disk.calls(), calls, "nothing was written");
    db.transact(|tx| tx.put(tables.texts, &a, b"newer"))?;
    is_too_large(large.commit());
    // Rows that count by their number, with empty values.
    is_too_large(db.transact(|tx| (0..30).try_for_each(|key| tx.put(tables.texts, format!("row {key}"), &[]))));
    let whole = vec![("a".to_owned(), b"newer".to_vec())];
    assert_eq!(tables.rows()?.texts, whole, "nothing of them has happened");
    // No row is left locked, and none of them is in the log.
    db.transact(|tx| {
        tx.put(tables.texts, &a, &[3; 300])?;
        tx.put(tables.texts, &b, &[4; 300])
    })?;
    drop(db);
    let db = open(&disk)?;
    let texts = db.table(TEXTS)?;
    let rows = db.read(|tx| tx.range(texts, ..)?.rows().collect::<Result<Vec<_>, _>>())?;
    assert_eq!(rows, [(a, vec![3; 300]), (b, vec![4; 300])]);
    Ok(())
}
