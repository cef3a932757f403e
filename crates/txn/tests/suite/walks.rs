//! Walks through whole tables.

use std::{collections::BTreeMap, fmt::Debug, thread};

use drtm_testing::rounds;
use drtm_txn::{Codec, CodecError, Db, Error, Key, Kind, Ordered, Pod, Table, TableDef, Tx};
use proptest::{collection::vec, prelude::*};

const WORDS: TableDef<u64, Pod<u64>> = TableDef::hash("words");
const NAMES: TableDef<String, Pod<u64>> = TableDef::hash("names");
const SORTED: TableDef<String, Pod<u64>, Ordered> = TableDef::ordered("sorted");

fn all<K: Key + Ord, O: Kind>(tx: &mut Tx<'_>, table: Table<K, Pod<u64>, O>) -> Result<BTreeMap<K, u64>, Error> {
    let (mut rows, mut count) = (BTreeMap::new(), 0);
    tx.walk(table, |key, value| {
        rows.insert(key, value);
        count += 1;
    })?;
    assert_eq!(rows.len(), count, "a row twice");
    assert_eq!(tx.len(table)?, count as u64);
    Ok(rows)
}

/// Values that cannot be decoded.
#[derive(Debug)]
struct Blind;

impl Codec for Blind {
    type Value = u64;
    type Given = u64;
    type View<'b> = u64;
    const FAMILY: &'static str = "blind";

    fn encode(value: &u64, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        bytes.extend(value.to_le_bytes());
        Ok(())
    }

    fn decode(_bytes: &[u8]) -> Result<u64, CodecError> {
        Err(CodecError::Decode { reason: "nothing is to be read".to_owned() })
    }

    fn view(bytes: &[u8]) -> Result<u64, CodecError> {
        Self::decode(bytes)
    }
}

#[test]
fn a_table_is_cleared_without_a_look_at_its_values() -> Result<(), Error> {
    const HASHED: TableDef<u64, Blind> = TableDef::hash("hashed");
    const IN_ORDER: TableDef<String, Blind, Ordered> = TableDef::ordered("in order");
    let db = Db::new()?;
    let (hashed, in_order) = (db.table(HASHED)?, db.table(IN_ORDER)?);
    db.transact(|tx| {
        (0..1_000).try_for_each(|key| {
            tx.put(hashed, key, &key)?;
            tx.put(in_order, key.to_string(), &key)
        })
    })?;
    let cleared = db.transact(|tx| {
        assert!(matches!(tx.remove(in_order, "7"), Err(Error::Codec { table: "in order", .. })));
        assert!(tx.contains(in_order, "7")?);
        tx.put(hashed, 5_000, &1)?;
        Ok((tx.clear(hashed)?, tx.clear(in_order)?, tx.clear(hashed)?))
    })?;
    assert_eq!(cleared, (1_001, 1_000, 0));
    assert_eq!(db.read(|tx| Ok((tx.len(hashed)?, tx.len(in_order)?)))?, (0, 0));
    assert!(db.read(|tx| tx.get(hashed, 1)).is_ok());
    Ok(())
}

#[derive(Clone, Debug)]
enum Step {
    /// Puts this many rows, starting at a key.
    Put(u64, u64),
    Remove(u64, u64),
    Retain(u64),
    Commit,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..500_u64, 1..60_u64).prop_map(|(from, count)| Step::Put(from, count)),
        2 => (0..500_u64, 1..30_u64).prop_map(|(from, count)| Step::Remove(from, count)),
        1 => (2..5_u64).prop_map(Step::Retain),
        2 => Just(Step::Commit),
    ];
    vec(step, 1..20)
}

fn check<K: Key + Ord + Debug, O: Kind>(
    definition: TableDef<K, Pod<u64>, O>,
    name: impl Fn(u64) -> K,
    steps: &[Step],
) -> Result<(), Error> {
    let db = Db::builder().memory(16 << 20).build()?;
    let table = db.table(definition)?;
    let (mut model, mut number) = (BTreeMap::new(), 0);
    for steps in steps.split_inclusive(|step| matches!(step, Step::Commit)) {
        let mut tx = db.begin()?;
        for step in steps {
            match *step {
                Step::Put(from, count) => {
                    for key in from..from + count {
                        number += 1;
                        tx.put(table, &name(key), &number)?;
                        model.insert(name(key), number);
                    }
                }
                Step::Remove(from, count) => {
                    for key in (from..from + count).map(&name) {
                        assert_eq!(tx.remove(table, &key)?, model.remove(&key));
                    }
                }
                Step::Retain(part) => {
                    let before = model.len();
                    model.retain(|_, value| !value.is_multiple_of(part));
                    let gone = tx.retain(table, |_, value| !value.is_multiple_of(part))?;
                    assert_eq!(gone as usize, before - model.len());
                }
                Step::Commit => {}
            }
            assert_eq!(all(&mut tx, table)?, model);
        }
        tx.commit()?;
    }
    assert_eq!(db.transact(|tx| tx.clear(table))? as usize, model.len());
    assert_eq!(db.read(|tx| tx.len(table))?, 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_walk_shows_what_a_map_has(steps in steps()) {
        check(WORDS, |key| key, &steps).expect("no conflict");
        check(NAMES, |key| format!("a long name, number {key:04}"), &steps).expect("no conflict");
        check(SORTED, |key| format!("{key:04}"), &steps).expect("no conflict");
    }
}

#[test]
fn a_row_that_comes_after_the_walk_is_a_conflict() -> Result<(), Error> {
    let db = Db::new()?;
    let (words, names) = (db.table(WORDS)?, db.table(NAMES)?);
    for key in 0..1_000 {
        let mut tx = db.begin()?;
        assert_eq!((tx.len(words)?, tx.len(names)?), (key, key));
        tx.put(words, u64::MAX - key, &0)?;
        let other = || {
            db.transact(|tx| {
                tx.insert(words, key, &1)?;
                tx.insert(names, key.to_string(), &1)
            })
        };
        thread::scope(|scope| scope.spawn(other).join().expect("no panic"))?;
        assert!(matches!(tx.commit(), Err(Error::Conflict(_))), "{key}");
    }
    Ok(())
}

/// A writer inserts and removes rows in pairs, while the table grows under the walks.
#[test]
fn walks_see_one_moment_while_the_table_grows() -> Result<(), Error> {
    let db = Db::new()?;
    let (words, names) = (db.table(WORDS)?, db.table(NAMES)?);
    let pairs = 400 * rounds(1);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            (0..pairs).try_for_each(|pair| {
                db.transact(|tx| {
                    tx.insert(words, 2 * pair, &1)?;
                    tx.insert(names, format!("pair {pair}"), &1)?;
                    tx.insert(words, 2 * pair + 1, &1)?;
                    if pair % 3 == 2 {
                        tx.remove(words, pair - 1)?;
                        tx.put(words, pair - 1, &2)?;
                    }
                    Ok(())
                })
            })
        });
        let mut walks = 0;
        while !writer.is_finished() || walks == 0 {
            let look = |tx: &mut Tx<'_>| Ok((all(tx, words)?.len(), all(tx, names)?.len()));
            let (two, one) = if walks % 2 == 0 {
                db.read(|tx| Ok((tx.len(words)? as usize, tx.len(names)? as usize)))?
            } else {
                db.transact(look)?
            };
            assert_eq!(two, 2 * one);
            walks += 1;
        }
        writer.join().expect("no panic")
    })
}
