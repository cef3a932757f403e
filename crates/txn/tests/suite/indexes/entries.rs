//! Entries, compared with a map's.

use std::collections::BTreeMap;

use drtm_htm::NoHtm;
use drtm_txn::{Builder, Config, Db, Entry, Error, IndexDef, Multi, Pod, TableDef};
use proptest::prelude::*;

use crate::On;

const COUNTERS: TableDef<u8, Pod<u32>> = TableDef::hash("counters");
const BY_COUNT: IndexDef<u8, Pod<u32>, u32, Multi> = IndexDef::multi("counters by count", |_, count| Some(count));

/// An operation on an entry.
#[derive(Clone, Debug)]
enum Step {
    Put(u32),
    OrInsert(u32),
    /// This many changes in turn, then an insertion if the entry is vacant.
    Modify(usize, u32),
    Update(u32),
    Get,
    Remove,
}

fn step() -> impl Strategy<Value = Step> {
    let value = 0_u32..4;
    prop_oneof![
        value.clone().prop_map(Step::Put),
        value.clone().prop_map(Step::OrInsert),
        (0_usize..3, value.clone()).prop_map(|(times, value)| Step::Modify(times, value)),
        value.prop_map(Step::Update),
        Just(Step::Get),
        Just(Step::Remove),
    ]
}

/// Applies the same steps to a table and to a map; each transaction has `length` steps.
fn run<S: Config<Engine = NoHtm>>(steps: &[(u8, Step)], length: usize, is_indexed: bool) -> Result<(), Error> {
    let db: Db<S> = Builder::new().memory(16 << 20).build_with(NoHtm)?;
    let counters = db.table(COUNTERS)?;
    let by_count = if is_indexed { Some(db.index(counters, BY_COUNT)?) } else { None };
    let mut model = BTreeMap::new();
    for steps in steps.chunks(length) {
        let mut tx = db.begin()?;
        for (key, step) in steps {
            let there = model.get(key).copied();
            let entry = tx.entry(counters, key)?;
            assert_eq!(*entry.key(), key);
            match (entry, step) {
                (entry, Step::Put(value)) => {
                    entry.put(value)?;
                    model.insert(*key, *value);
                }
                (entry, Step::OrInsert(value)) => {
                    assert_eq!(entry.or_insert(*value)?, *model.entry(*key).or_insert(*value));
                }
                (mut entry, Step::Modify(times, value)) => {
                    let mut own = model.entry(*key);
                    for _ in 0..*times {
                        entry = entry.and_modify(|count| *count += 1)?;
                        own = own.and_modify(|count| *count += 1);
                    }
                    assert_eq!(entry.or_insert_with(|| *value)?, *own.or_insert_with(|| *value));
                }
                (Entry::Vacant(entry), Step::Update(_) | Step::Get | Step::Remove) => {
                    assert_eq!((*entry.key(), there), (key, None));
                }
                (Entry::Occupied(entry), Step::Update(value)) => {
                    assert_eq!(
                        Some(entry.update(|count| std::mem::replace(count, *value))?),
                        model.insert(*key, *value)
                    );
                }
                (Entry::Occupied(mut entry), Step::Get) => {
                    assert_eq!((Some(*entry.get()?), Some(*entry.get()?)), (there, there));
                    assert_eq!(Some(entry.into_value()?), there);
                }
                (Entry::Occupied(entry), Step::Remove) => assert_eq!(Some(entry.remove()?), model.remove(key)),
            }
            assert_eq!(tx.get(counters, key)?, model.get(key).copied());
        }
        tx.commit()?;
        let tx = db.begin()?;
        for key in 0..4 {
            assert_eq!(tx.get(counters, key)?, model.get(&key).copied());
        }
        if let Some(by_count) = by_count {
            let mut expected: Vec<_> = model.iter().map(|(key, count)| (*count, (*key, *count))).collect();
            expected.sort_unstable();
            assert_eq!(tx.range(by_count, ..)?.rows().collect::<Result<Vec<_>, _>>()?, expected);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn entries_are_as_a_maps(steps in prop::collection::vec((0_u8..4, step()), 1..40), length in 1_usize..6) {
        for is_indexed in [false, true] {
            run::<On<NoHtm>>(&steps, length, is_indexed).expect("nothing else is wrong");
        }
    }
}
