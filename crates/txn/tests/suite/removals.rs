//! Ranges over rows that the transaction itself has removed, compared with a sorted map. Such rows
//! are skipped together, and come back by insertion and by savepoints.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Debug,
    ops::Range,
};

use drtm_htm::NoHtm;
use drtm_txn::{Builder, Db, Error, Key, Ordered, Pod, Savepoint, Table, TableDef, Tx};
use proptest::prelude::*;

use crate::On;

#[derive(Clone, Copy, Debug)]
enum Step {
    PopFirst(u16),
    PopLast(u16),
    Remove(u16),
    Put(u16),
    /// Removes some rows of a range in turn.
    RemoveNext(u16, usize),
    Count(u16, u16),
    /// Adds to each row of a range.
    UpdateEach(u16, u16),
    ViewEach(u16, u16),
    /// Reads a range from its front where a bit is set, and from its back otherwise; then may
    /// remove the next row.
    BothEnds(u16, u16, u64, bool),
    Drain(u16, u16),
    Savepoint,
    ReturnTo(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..60_u16;
    let step = prop_oneof![
        6 => key().prop_map(Step::PopFirst),
        4 => key().prop_map(Step::PopLast),
        4 => key().prop_map(Step::Remove),
        4 => key().prop_map(Step::Put),
        3 => (key(), 0..6_usize).prop_map(|(from, rows)| Step::RemoveNext(from, rows)),
        2 => (key(), key()).prop_map(|(from, to)| Step::Count(from, to)),
        1 => (key(), key()).prop_map(|(from, to)| Step::UpdateEach(from, to)),
        2 => (key(), key()).prop_map(|(from, to)| Step::ViewEach(from, to)),
        3 => (key(), key(), any::<u64>(), any::<bool>()).prop_map(|(from, to, ends, r)| Step::BothEnds(from, to, ends, r)),
        1 => (key(), 0..10_u16).prop_map(|(from, length)| Step::Drain(from, from + length)),
        1 => Just(Step::Savepoint),
        1 => (0..3_usize).prop_map(Step::ReturnTo),
    ];
    prop::collection::vec(step, 0..80)
}

type Model = BTreeMap<u16, u64>;

fn range(from: u16, to: u16) -> std::ops::Range<u16> {
    from.min(to)..to.max(from)
}

/// Borrows the bounds of a range.
fn by_ref<K>(range: &Range<K>) -> Range<&K> {
    &range.start..&range.end
}

fn run<K: Key + Ord + Debug>(
    tx: &mut Tx<'_, On<NoHtm>>,
    rows: Table<K, Pod<u64>, Ordered>,
    name: impl Fn(u16) -> K,
    steps: &[Step],
    model: &mut Model,
) -> Result<(), Error> {
    let mut savepoints: Vec<(Savepoint, Model)> = Vec::new();
    let between = |from, to| {
        let range = range(from, to);
        name(range.start)..name(range.end)
    };
    for (step, number) in steps.iter().zip(0_u64..) {
        match *step {
            Step::PopFirst(from) => {
                let expected = model.range(from..).next().map(|(key, value)| (*key, *value));
                let popped = tx.range_mut(rows, &name(from)..)?.pop_first()?;
                assert_eq!(
                    popped.map(|(key, value)| (key == name(expected.unwrap_or_default().0), value)),
                    expected.map(|(_, value)| (true, value))
                );
                expected.map(|(key, _)| model.remove(&key));
            }
            Step::PopLast(to) => {
                let expected = model.range(..to).next_back().map(|(key, value)| (*key, *value));
                let popped = tx.range_mut(rows, ..&name(to))?.pop_last()?;
                assert_eq!(
                    popped.map(|(key, value)| (key == name(expected.unwrap_or_default().0), value)),
                    expected.map(|(_, value)| (true, value))
                );
                expected.map(|(key, _)| model.remove(&key));
            }
            Step::Remove(key) => assert_eq!(tx.remove(rows, &name(key))?, model.remove(&key)),
            Step::Put(key) => {
                tx.put(rows, &name(key), &number)?;
                model.insert(key, number);
            }
            Step::RemoveNext(from, count) => {
                let keys: Vec<u16> = model.range(from..).take(count).map(|(key, _)| *key).collect();
                let mut range = tx.range_mut(rows, &name(from)..)?;
                for key in keys {
                    let removed = range.remove_next()?.expect("there is a row");
                    assert!(removed == (name(key), model[&key]));
                    model.remove(&key);
                }
            }
            Step::Count(from, to) => {
                assert_eq!(
                    tx.range(rows, by_ref(&between(from, to)))?.count()?,
                    model.range(range(from, to)).count() as u64
                );
            }
            Step::UpdateEach(from, to) => {
                tx.range_mut(rows, by_ref(&between(from, to)))?.update_each(|_, value| {
                    *value += 1_000;
                })?;
                model.range_mut(range(from, to)).for_each(|(_, value)| *value += 1_000);
            }
            Step::ViewEach(from, to) => {
                let mut seen = Vec::new();
                tx.range(rows, by_ref(&between(from, to)))?.view_each(|key, value| {
                    seen.push((key, value));
                })?;
                let expected: Vec<_> = model.range(range(from, to)).map(|(key, value)| (name(*key), *value)).collect();
                assert!(seen == expected, "{} rows instead of {}", seen.len(), expected.len());
            }
            Step::BothEnds(from, to, mut ends, removes) => {
                let mut left: VecDeque<_> = model.range(range(from, to)).map(|(key, value)| (*key, *value)).collect();
                let most = if removes { left.len() / 2 } else { left.len() + 1 };
                let mut range = tx.range_mut(rows, by_ref(&between(from, to)))?;
                for _ in 0..most {
                    ends = ends.rotate_left(1);
                    let (row, expected) = if ends & 1 == 0 {
                        (range.next()?, left.pop_front())
                    } else {
                        (range.next_back()?, left.pop_back())
                    };
                    assert!(row == expected.map(|(key, value)| (name(key), value)), "{row:?} is not {expected:?}");
                }
                if removes {
                    let expected = left.pop_front();
                    let removed = range.remove_next()?;
                    assert!(removed == expected.map(|(key, value)| (name(key), value)), "not {expected:?}");
                    expected.map(|(key, _)| model.remove(&key));
                    let rest: Vec<_> = range.rows().rev().collect::<Result<_, _>>()?;
                    assert!(rest == left.iter().rev().map(|(key, value)| (name(*key), *value)).collect::<Vec<_>>());
                }
            }
            Step::Drain(from, to) => {
                let drained = tx.range_mut(rows, by_ref(&between(from, to)))?.drain()?;
                let keys: Vec<_> = model.range(range(from, to)).map(|(key, value)| (*key, *value)).collect();
                assert!(drained == keys.iter().map(|(key, value)| (name(*key), *value)).collect::<Vec<_>>());
                keys.iter().for_each(|(key, _)| assert!(model.remove(key).is_some()));
            }
            Step::Savepoint => savepoints.push((tx.savepoint(), model.clone())),
            Step::ReturnTo(back) => {
                let Some(at) = savepoints.len().checked_sub(back + 1) else { continue };
                savepoints.truncate(at + 1);
                tx.return_to(savepoints[at].0)?;
                *model = savepoints[at].1.clone();
            }
        }
    }
    Ok(())
}

fn agree<K: Key + Ord + Debug>(def: TableDef<K, Pod<u64>, Ordered>, name: impl Fn(u16) -> K, steps: &[Step]) {
    let db: Db<On<NoHtm>> = Builder::new().memory(32 << 20).build_with(NoHtm).expect("memory");
    let rows = db.table(def).expect("memory");
    let before: Model = (0..60).step_by(2).map(|key| (key, u64::from(key))).collect();
    db.transact(|tx| before.iter().try_for_each(|(key, value)| tx.put(rows, &name(*key), value))).expect("memory");
    let mut model = before.clone();
    db.transact(|tx| run(tx, rows, &name, steps, &mut model)).expect("memory");
    let left = db.read(|tx| tx.range(rows, ..)?.rows().collect::<Result<Vec<_>, _>>()).expect("sound");
    assert!(left == model.iter().map(|(key, value)| (name(*key), *value)).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn ranges_pass_what_the_transaction_has_removed(steps in steps()) {
        agree(TableDef::ordered("words"), u64::from, &steps);
        agree(TableDef::ordered("names"), |key| format!("a name of more than a word {key:03}"), &steps);
    }
}

/// Without skipping them together, this would visit 200 million rows.
#[test]
fn twenty_thousand_rows_are_popped_in_one_transaction() {
    const ROWS: u64 = 20_000;
    let db = Db::new().expect("memory");
    let rows = db.table(TableDef::<u64, Pod<u64>, Ordered>::ordered("rows")).expect("memory");
    db.transact(|tx| (0..ROWS).try_for_each(|key| tx.put(rows, key, &key))).expect("memory");
    let popped = db.transact(|tx| {
        let mut popped = 0;
        while let Some((key, _)) = tx.range_mut(rows, ..)?.pop_first()? {
            assert_eq!(key, popped);
            popped += 1;
            if popped % 3 == 0 && popped < ROWS / 2 {
                // It is inserted among removed rows, and popped again.
                tx.put(rows, popped / 2, &0)?;
                assert_eq!(tx.range_mut(rows, ..)?.pop_first()?, Some((popped / 2, 0)));
            }
        }
        Ok(popped)
    });
    assert_eq!(popped.expect("memory"), ROWS);
    assert_eq!(db.read(|tx| tx.range(rows, ..)?.count()).expect("sound"), 0);
}

#[test]
fn a_row_that_comes_between_both_ends_is_a_phantom() {
    let db = Db::new().expect("memory");
    let rows = db.table(TableDef::<u64, Pod<u64>, Ordered>::ordered("rows")).expect("memory");
    db.transact(|tx| (0..1_000).try_for_each(|key| tx.put(rows, 2 * key, &key))).expect("memory");
    for (new, is_seen) in [(11, true), (1_601, true), (1_001, true), (401, false)] {
        let mut runs = 0;
        db.transact(|tx| {
            runs += 1;
            // Scans from 500 to 1,600, and from 1,700 back to the same; and a few rows at the
            // lowest end.
            let mut range = tx.range_mut(rows, 500..=1_700)?;
            for _ in 0..50 {
                range.next_back()?;
            }
            while range.next()?.is_some() {}
            tx.range(rows, ..40)?.rows().rev().try_for_each(|row| row.map(drop))?;
            if runs == 1 {
                std::thread::scope(|scope| scope.spawn(|| db.transact(|tx| tx.insert(rows, new, &0))).join())
                    .expect("no panic")?;
            }
            tx.put(rows, 9_000, &runs)
        })
        .expect("memory");
        assert_eq!(runs, if is_seen { 2 } else { 1 }, "{new}");
    }
}

#[test]
fn owned_rows_meet_in_the_middle() {
    let db = Db::new().expect("memory");
    let rows = db.table(TableDef::<u64, Pod<u64>, Ordered>::ordered("rows")).expect("memory");
    let found = db.transact(|tx| {
        (0..10).try_for_each(|key| tx.put(rows, key, &key))?;
        let mut rows = tx.range(rows, ..)?.rows();
        let ends = [rows.next(), rows.next_back(), rows.next_back(), rows.next()];
        let found: Vec<_> = ends.into_iter().flatten().collect::<Result<_, _>>()?;
        assert_eq!(rows.by_ref().rev().count(), 6);
        assert!(rows.next().is_none() && rows.next_back().is_none());
        Ok(found)
    });
    assert_eq!(found.expect("sound"), [(0, 0), (9, 9), (8, 8), (1, 1)]);
}
