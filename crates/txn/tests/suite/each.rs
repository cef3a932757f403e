//! Rows of a range that are visited or changed in turn: compared with a model, with the
//! transaction's own writes among them, and with conflicts that make it retry.

use std::{
    cell::Cell,
    collections::BTreeMap,
    ops::{ControlFlow, RangeInclusive},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use drtm_htm::{Emulated, NoHtm};
use drtm_txn::{
    Builder, Codec, Config, Db, DefaultConfig, Error, Key, Mode, Ordered, Part, Pod, Table, TableDef, Tx, part,
};
use proptest::{collection::vec, prelude::*};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::On;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Row {
    first: u64,
    second: u64,
}

const SECOND: Part<Row, u64> = part!(Row, second);

const BY_NUMBER: TableDef<u64, Pod<Row>, Ordered> = TableDef::ordered("by number");
const BY_NAME: TableDef<String, Pod<Row>, Ordered> = TableDef::ordered("by name");

/// More rows than a transaction reads before its first validation.
const KEYS: u64 = 300;

#[derive(Clone, Debug)]
enum Step {
    Put(u64, u64),
    Change(u64, u64),
    Remove(u64),
    /// Visits the rows of a range, this many at once.
    See(RangeInclusive<u64>, bool, usize),
    /// Raises this many rows of a range.
    Raise(RangeInclusive<u64>, bool, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..KEYS;
    let step = prop_oneof![
        2 => (key(), any::<u64>()).prop_map(|(key, value)| Step::Put(key, value)),
        2 => (key(), any::<u64>()).prop_map(|(key, value)| Step::Change(key, value)),
        1 => key().prop_map(Step::Remove),
        3 => (key(), key(), any::<bool>(), 1..400_usize)
            .prop_map(|(low, high, is_up, most)| Step::See(low..=high, is_up, most)),
        2 => (key(), key(), any::<bool>(), 1..400_usize)
            .prop_map(|(low, high, is_up, most)| Step::Raise(low..=high, is_up, most)),
    ];
    vec(step, 1..30)
}

/// Returns all rows of a range, read in batches, with single rows in between.
fn rows<S: Config, M: Mode, K: Key, C: Codec>(
    tx: &Tx<'_, S, M>,
    table: Table<K, C, Ordered>,
    range: RangeInclusive<K>,
    is_up: bool,
    most: usize,
    row: impl Fn(C::View<'_>) -> Row,
) -> Result<Vec<(K, Row)>, Error> {
    let range = range.start()..=range.end();
    let mut rows = if is_up { tx.range(table, range)? } else { tx.range(table, range)?.rev() };
    let mut found = Vec::new();
    loop {
        let before = found.len();
        rows.view_each(|key, view| {
            found.push((key, row(view)));
            if found.len() < before + most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        match rows.view_next(&row)? {
            Some(row) => found.push(row),
            None => return Ok(found),
        }
    }
}

/// Raises this many rows of a range. Returns how many there were.
fn raise<S: Config, K: Key>(
    tx: &mut Tx<'_, S>,
    table: Table<K, Pod<Row>, Ordered>,
    range: RangeInclusive<K>,
    is_up: bool,
    most: usize,
) -> Result<usize, Error> {
    let range = range.start()..=range.end();
    let mut rows = if is_up { tx.range_mut(table, range)? } else { tx.range_mut(table, range)?.rev() };
    let mut raised = 0;
    rows.update_each(|_, row| {
        row.second = row.second.wrapping_add(1);
        raised += 1;
        if raised < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(raised)
}

fn name(number: u64) -> String {
    format!("{:03}", number)
}

/// Runs steps in one transaction, and again in read-only ones.
fn agree<S: Config>(db: &Db<S>, steps: &[Step]) {
    let (numbers, names) = (db.table(BY_NUMBER).expect("a table"), db.table(BY_NAME).expect("another"));
    let mut model: BTreeMap<u64, Row> = BTreeMap::new();
    let put = |tx: &mut Tx<'_, S>, key: u64, row: Row| {
        tx.put(numbers, key, &row).and_then(|()| tx.put(names, name(key), &row))
    };
    let all = (0..KEYS).step_by(2).map(|key| (key, Row { first: key, second: 0 }));
    model.extend(all.clone());
    db.transact(|tx| all.clone().try_for_each(|(key, row)| put(tx, key, row))).expect("room");
    let before = model.clone();
    let see = |tx: &mut Tx<'_, S>, model: &BTreeMap<u64, Row>, range: &RangeInclusive<u64>, is_up: bool, most| {
        let mut expected: Vec<_> =
            model.iter().filter(|(key, _)| range.contains::<u64>(key)).map(|(key, row)| (*key, *row)).collect();
        if !is_up {
            expected.reverse();
        }
        assert_eq!(rows(tx, numbers, range.clone(), is_up, most, |row| row)?, expected);
        let named = rows(tx, names, name(*range.start())..=name(*range.end()), is_up, most, |row| row)?;
        assert!(named.into_iter().eq(expected.into_iter().map(|(key, row)| (name(key), row))));
        Ok::<_, Error>(())
    };
    db.transact(|tx| {
        model.clone_from(&before);
        for step in steps {
            match step {
                Step::Put(key, value) => {
                    let row = Row { first: *key, second: *value };
                    put(tx, *key, row)?;
                    model.insert(*key, row);
                }
                Step::Change(key, value) => {
                    let changed = tx.update(numbers.column(SECOND), key, |second| *second = *value)?;
                    tx.update(names.column(SECOND), name(*key), |second| *second = *value)?;
                    assert_eq!(changed.is_some(), model.contains_key(key));
                    model.entry(*key).and_modify(|row| row.second = *value);
                }
                Step::Remove(key) => {
                    tx.remove(numbers, key)?;
                    tx.remove(names, name(*key))?;
                    model.remove(key);
                }
                Step::See(range, is_up, most) => see(tx, &model, range, *is_up, *most)?,
                Step::Raise(range, is_up, most) => {
                    let mut expected: Vec<_> = model.iter_mut().filter(|(key, _)| range.contains::<u64>(key)).collect();
                    if !is_up {
                        expected.reverse();
                    }
                    expected.truncate(*most);
                    assert_eq!(raise(tx, numbers, range.clone(), *is_up, *most)?, expected.len());
                    let named = raise(tx, names, name(*range.start())..=name(*range.end()), *is_up, *most)?;
                    assert_eq!(named, expected.len());
                    expected.into_iter().for_each(|(_, row)| row.second = row.second.wrapping_add(1));
                }
            }
        }
        Ok(())
    })
    .expect("alone");
    let expected: Vec<_> = model.into_iter().collect();
    let found = db.read(|tx| rows(tx, numbers, 0..=KEYS, true, 7, |row| row)).expect("alone");
    assert_eq!(found, expected);
    let tx = db.begin().expect("open");
    assert_eq!(rows(&tx, numbers, 0..=KEYS, true, 200, |row| row).expect("alone"), expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn rows_are_shown_as_a_model_has_them(steps in steps()) {
        agree(&Builder::new().memory(64 << 20).build_with::<On<NoHtm>>(NoHtm).expect("a database"), &steps);
        let engine = Emulated::default();
        agree(&Builder::new().memory(64 << 20).build_with::<On<Emulated>>(engine).expect("a database"), &steps);
    }
}

fn filled(rows: u64) -> (Db<DefaultConfig>, Table<u64, Pod<Row>, Ordered>) {
    let db = Builder::new().memory(64 << 20).build().expect("a database");
    let table = db.table(BY_NUMBER).expect("a table");
    let row = |key| Row { first: key, second: 0 };
    db.transact(|tx| (0..rows).try_for_each(|key| tx.insert(table, key, &row(key)))).expect("room");
    (db, table)
}

/// A long read continues in a snapshot, and reads one moment: here, the one before a row is changed
/// concurrently.
#[test]
fn a_long_read_goes_on_in_a_snapshot() {
    const ROWS: u64 = 5_000;
    let (db, table) = filled(ROWS);
    let sum = db.read(|tx| {
        let (mut sum, mut is_changed) = (0, false);
        tx.range(table, ..)?.view_each(|key, row| {
            sum += row.first + row.second;
            if key == 3_000 && !is_changed {
                is_changed = true;
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        db.transact(|tx| tx.update(table, 4_999, |row| row.second = 1)).expect("no conflict")
                    });
                });
            }
        })?;
        Ok(sum)
    });
    assert_eq!(sum.expect("a snapshot is never refused"), ROWS * (ROWS - 1) / 2);
    assert_eq!(db.read(|tx| tx.get(table, 4_999)).expect("alone").map(|row| row.second), Some(1));
}

/// A stale read is detected during the scan, after twice as many rows at the latest.
#[test]
fn a_transaction_that_cannot_commit_does_not_go_on_for_long() {
    let (db, table) = filled(1_000);
    let (tries, shown) = (Cell::new(0), Cell::new(0));
    db.transact(|tx| {
        tries.set(tries.get() + 1);
        shown.set(0);
        tx.range(table, ..)?.view_each(|_, _| {
            shown.set(shown.get() + 1);
            if tries.get() == 1 && shown.get() == 10 {
                std::thread::scope(|scope| {
                    scope.spawn(|| db.transact(|tx| tx.update(table, 3, |row| row.second += 1)).expect("no conflict"));
                });
            }
            assert!(tries.get() > 1 || shown.get() < 100, "it goes on");
        })
    })
    .expect("the second time");
    assert_eq!((tries.get(), shown.get()), (2, 1_000));
}

/// Threads raise rows of overlapping ranges, while another removes rows and puts them back
/// unchanged. No raise is lost.
#[test]
fn no_change_of_many_rows_is_lost() {
    const ROWS: u64 = 200;
    const TURNS: u64 = 150;
    let (db, table) = filled(ROWS);
    let raised: u64 = std::thread::scope(|scope| {
        let raisers = [1, 2].map(|thread| {
            let db = &db;
            scope.spawn(move || {
                let turn = |turn: u64| {
                    let low = (turn * 7 * thread) % ROWS;
                    let (range, is_up) = (low..=low + 90, !turn.is_multiple_of(3));
                    db.transact(|tx| raise(tx, table, range.clone(), is_up, 80)).expect("room") as u64
                };
                (0..TURNS).map(turn).sum::<u64>()
            })
        });
        scope.spawn(|| {
            for turn in 0..TURNS {
                let key = (turn * 13) % ROWS;
                let row = db.transact(|tx| tx.remove(table, key)).expect("room").expect("no other takes any");
                db.transact(|tx| tx.insert(table, key, &row)).expect("room");
            }
        });
        raisers.into_iter().map(|raiser| raiser.join().expect("no panic")).sum()
    });
    let rows = db.read(|tx| rows(tx, table, 0..=ROWS, true, 1_000, |row| row)).expect("alone");
    assert_eq!(rows.len() as u64, ROWS);
    assert_eq!(rows.iter().map(|(_, row)| row.second).sum::<u64>(), raised);
}

/// A row whose change failed has been read, and the transaction continues without the change, for
/// every way of changing it.
#[test]
fn a_row_that_could_not_be_changed_has_been_read() {
    type Way = fn(&mut Tx<'_, DefaultConfig>, Table<u64, Pod<Row>, Ordered>) -> Result<(), Error>;
    fn fail(number: &mut u64) {
        *number = 77;
        resume_unwind(Box::new("not this one"));
    }
    let ways: [Way; 4] = [
        |tx, table| tx.update(table, 3, |row| fail(&mut row.second)).map(drop),
        |tx, table| tx.update(table.column(SECOND), 3, fail).map(drop),
        |tx, table| tx.range_mut(table, 3..)?.update_next(|_, row| fail(&mut row.second)).map(drop),
        |tx, table| {
            tx.range_mut(table, 3..)?.update_each(|_, row| {
                fail(&mut row.second);
                ControlFlow::Break(())
            })
        },
    ];
    let (db, table) = filled(10);
    for (way, number) in ways.into_iter().zip(1..) {
        let mut tries = 0;
        db.transact(|tx| {
            tries += 1;
            assert!(catch_unwind(AssertUnwindSafe(|| way(tx, table))).is_err());
            if tries == 1 {
                std::thread::scope(|scope| {
                    scope.spawn(|| db.transact(|tx| tx.update(table, 3, |row| row.second = number)).expect("alone"));
                });
            }
            tx.put(table, 100 + number, &Row { first: number, second: tries })
        })
        .expect("the second time");
        assert_eq!(tries, 2, "way {number}");
        let (changed, other) = db.read(|tx| Ok((tx.get(table, 3)?, tx.get(table, 100 + number)?))).expect("alone");
        assert_eq!(other, Some(Row { first: number, second: 2 }));
        assert_eq!(changed.map(|row| row.second), Some(number), "by the other thread alone");
    }
}
