//! The tables' numbers of rows and bytes, compared with what was inserted.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use drtm_txn::{Db, Error, IndexDef, Key, Multi, Ordered, Raw, Table, TableDef};
use proptest::prelude::*;

const WORDS: TableDef<u32, Raw> = TableDef::hash("words");
const NAMES: TableDef<String, Raw, Ordered> = TableDef::ordered("names");
const BY_LENGTH: IndexDef<u32, Raw, u32, Multi> =
    IndexDef::multi("words by length", |_, value| Some(value.len() as u32));

fn put<K: Key, O: drtm_txn::Kind>(
    db: &Db,
    table: Table<K, Raw, O>,
    rows: &[(u32, usize)],
    key: impl Fn(u32) -> K,
) -> Result<(), Error> {
    db.transact(|tx| rows.iter().try_for_each(|(number, length)| tx.put(table, &key(*number), &vec![7; *length])))?;
    // Removed rows do not count, whether their transaction commits or not.
    db.transact(|tx| {
        tx.put(table, &key(9_999), b"gone")?;
        tx.remove(table, &key(9_999)).map(drop)
    })?;
    let given_up = db.transact(|tx| {
        tx.clear(table)?;
        Err::<(), _>(Error::aborted("on purpose"))
    });
    assert!(given_up.is_err());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn rows_and_bytes_are_those_that_there_are(
        rows in prop::collection::btree_map(0..500_u32, prop_oneof![0..300_usize, 60_000..65_000_usize], 0..60),
    ) {
        let rows: Vec<(u32, usize)> = rows.into_iter().collect();
        let db = Db::new().expect("memory");
        let (words, names) = (db.table(WORDS).expect("memory"), db.table(NAMES).expect("memory"));
        db.index(words, BY_LENGTH).expect("memory");
        let name = |number: u32| format!("{number:>width$}", width = 3 + number as usize % 20);
        put(&db, words, &rows, |number| number).expect("memory");
        put(&db, names, &rows, name).expect("memory");
        let (of_words, of_names) = (db.table_stats("words").expect("sound"), db.table_stats("names").expect("sound"));
        let (count, bytes) = (rows.len() as u64, rows.iter().map(|(_, length)| *length as u64).sum::<u64>());
        prop_assert_eq!((of_words.rows, of_words.key_bytes, of_words.value_bytes), (count, 4 * count, bytes));
        let keys: usize = rows.iter().map(|(number, _)| name(*number).len()).sum();
        prop_assert_eq!((of_names.rows, of_names.key_bytes, of_names.value_bytes), (count, keys as u64, bytes));
        // At least headers and whole words; at most an eighth of the rest is rounding.
        for (stats, kept) in [(of_words, 0), (of_names, of_names.key_bytes)] {
            let least = 32 * count + kept + bytes;
            prop_assert!(stats.record_bytes >= least && stats.record_bytes <= (least + 24 * count) * 9 / 8 + count);
        }
        let entries = db.table_stats("words by length").expect("sound");
        prop_assert_eq!((entries.rows, entries.value_bytes), (count, 0));
        let is_missing = matches!(db.table_stats("others"), Err(Error::NoSuchTable { .. }));
        prop_assert!(is_missing);
    }
}

/// Rows move between two tables: each count is that of some moment.
#[test]
fn rows_are_counted_beside_writers() {
    let db = Db::new().expect("memory");
    let words = db.table(WORDS).expect("memory");
    db.transact(|tx| (0..1_000).try_for_each(|key| tx.put(words, key, &[7; 10]))).expect("memory");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(1);
            while !is_over.load(Relaxed) {
                // Those below 500 only change their length; the others come and go.
                let (key, length) = (random.u32(..1_500), random.usize(..100));
                let removes = key >= 500 && random.bool();
                db.transact(|tx| match removes {
                    true => tx.remove(words, key).map(drop),
                    false => tx.put(words, key, &vec![7; length]),
                })
                .expect("memory");
            }
        });
        for _ in 0..50 {
            let stats = db.table_stats("words").expect("sound");
            assert!((500..=1_500).contains(&stats.rows), "{stats:?}");
            assert!(stats.key_bytes == 4 * stats.rows && stats.value_bytes <= 100 * stats.rows, "{stats:?}");
        }
        is_over.store(true, Relaxed);
    });
    db.drop_table("words").expect("it is there");
    assert!(matches!(db.table_stats("words"), Err(Error::NoSuchTable { .. })));
}
