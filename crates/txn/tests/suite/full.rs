//! Behaviour when memory runs out, or a key exceeds the maximum length.

use drtm_txn::{Builder, Db, Error, Options, Ordered, Pod, Raw, TableDef};

const ROWS: TableDef<u64, Pod<[u8; 100]>> = TableDef::hash("rows");
const OTHERS: TableDef<u64, Pod<[u8; 100]>> = TableDef::hash("others");
const ROOMY: TableDef<u64, Pod<u64>> = TableDef::hash("roomy").with_room_for(u64::MAX);
const HASHED: TableDef<Vec<u8>, Raw> = TableDef::hash("hashed");
const SORTED: TableDef<Vec<u8>, Raw, Ordered> = TableDef::ordered("sorted");

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Full { .. })
}

/// Returns a database whose memory was filled with rows of another table, which were then removed.
/// There is room for records, and for nothing else.
fn filled() -> Result<Db, Error> {
    let db = Builder::new().memory(4 << 20).build()?;
    db.table(ROWS)?;
    let others = db.table(OTHERS)?;
    let rows = (0_u64..).find(|row| db.transact(|tx| tx.insert(others, row, &[0; 100])).is_err()).expect("it is full");
    (0..rows).try_for_each(|row| db.transact(|tx| tx.remove(others, row).map(drop)))?;
    Ok(db)
}

#[test]
fn a_row_that_was_missed_is_refused_where_there_is_no_bucket_for_it() -> Result<(), Error> {
    let db = filled()?;
    let rows = db.table(ROWS)?;
    let put = |key: u64| {
        db.transact_with(Options::default().attempts(100), |tx| match tx.get(rows, key)? {
            Some(_) => Ok(()),
            None => tx.insert(rows, key, &[0; 100]),
        })
    };
    let refused: Vec<Error> = (0..40_000).filter_map(|key| put(key).err()).collect();
    assert!(!refused.is_empty() && refused.iter().all(is_full), "{:?}", refused.iter().find(|error| !is_full(error)));
    Ok(())
}

#[test]
fn rows_that_were_refused_leave_nothing_behind() -> Result<(), Error> {
    let db = filled()?;
    let rows = db.table(ROWS)?;
    let there: Vec<u64> = (0..40_000).filter(|key| db.transact(|tx| tx.insert(rows, key, &[0; 100])).is_ok()).collect();
    assert_eq!(db.read(|tx| tx.len(rows))?, there.len() as u64);
    there.iter().try_for_each(|key| db.transact(|tx| tx.remove(rows, key).map(drop)))?;
    assert!(db.tables()?.contains(&("rows", 0)), "{:?}", db.tables());
    Ok(())
}

#[test]
fn a_table_for_which_there_is_no_room_takes_none() -> Result<(), Error> {
    let db = Builder::new().memory(64 << 20).build()?;
    let before = db.memory().tables;
    for _ in 0..3 {
        assert!(is_full(&db.table(ROOMY).expect_err("too much")));
        assert_eq!(db.memory().tables, before);
    }
    let rows = db.table(ROWS)?;
    db.transact(|tx| (0..1_000).try_for_each(|row| tx.insert(rows, row, &[0; 100])))
}

/// No row has such a key: it is not found, and cannot be inserted. It is valid as a range's bound.
#[test]
fn a_key_that_is_too_long_is_no_row_s() -> Result<(), Error> {
    let db = Db::new()?;
    let (hashed, sorted) = (db.table(HASHED)?, db.table(SORTED)?);
    let long = vec![7_u8; 70_000];
    let is_too_long = |done: Result<(), Error>| matches!(done, Err(Error::TooLong { what: "key", length: 70_000, .. }));
    db.transact(|tx| [&b"a"[..], &[8]].iter().try_for_each(|key| tx.put(sorted, *key, b"")))?;
    macro_rules! look {
        ($table:expr) => {
            |tx| Ok((tx.get($table, &long)?, tx.contains($table, &long)?))
        };
    }
    assert_eq!(db.read(look!(hashed))?, (None, false));
    assert_eq!(db.read(look!(sorted))?, (None, false));
    assert_eq!(db.transact(look!(hashed))?, (None, false));
    assert_eq!(db.transact(look!(sorted))?, (None, false));
    macro_rules! change {
        ($table:expr) => {
            assert!(db.transact(|tx| tx.remove($table, &long))?.is_none());
            assert_eq!(db.transact(|tx| tx.update($table, &long, Vec::clear))?, None);
            assert!(is_too_long(db.transact(|tx| tx.put($table, &long, b""))));
            assert!(is_too_long(db.transact(|tx| tx.insert($table, &long, b""))));
            assert!(is_too_long(db.transact(|tx| tx.entry($table, &long)?.put(b""))));
        };
    }
    change!(hashed);
    change!(sorted);
    db.transact(|tx| {
        assert_eq!(tx.range(sorted, &long..)?.count()?, 2);
        assert_eq!(tx.range(sorted, ..=&long)?.first()?, None);
        Ok(())
    })
}

/// The error for a limit that no database can have names the setting, and what it can be.
#[test]
fn a_limit_out_of_range_is_refused_by_name() {
    for bytes in [0, 1 << 20, (8 << 40) + 1, 1 << 50, u64::MAX] {
        let said = Builder::new().memory(bytes).build().expect_err("it is out of range").to_string();
        assert!(said.contains("`Builder::memory`") && said.contains("8 TiB"), "{said}");
    }
}

/// In a process with limited address space, the default takes half of it, and an error suggests a
/// size.
#[test]
fn the_default_fits_the_process_s_limits() {
    const LIMITED: &str = "DRTM_TEST_LIMITED";
    if std::env::var_os(LIMITED).is_some() {
        let db = Db::new().expect("it fits");
        let capacity = db.memory().most;
        assert!((256 << 20..=2 << 30).contains(&capacity), "{capacity}");
        let rows = db.table(ROWS).expect("room");
        db.transact(|tx| tx.insert(rows, 1, &[0; 100])).expect("room");
        let error = Builder::new().memory(64 << 30).build().expect_err("too much");
        assert!(matches!(error, Error::NoMemory { .. }) && error.to_string().contains("Builder::memory"), "{error}");
        return;
    }
    let limited = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 4194304 && exec \"$0\" --exact full::the_default_fits_the_process_s_limits"])
        .arg(std::env::current_exe().expect("a path"))
        .env(LIMITED, "1")
        .output()
        .expect("a shell");
    assert!(limited.status.success(), "{}", String::from_utf8_lossy(&limited.stdout));
}
