//! Several ranges open at once, and reads within closures that are shown a row, in transactions of
//! each kind: compared with a model, and while other threads write.

use std::{
    cell::Cell,
    collections::BTreeMap,
    ops::ControlFlow::{Break, Continue},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use drtm_htm::{Emulated, EmulatedConfig, NoHtm};
use drtm_testing::rounds;
use drtm_txn::{Builder, Config, Db, Error, Mode, Ordered, Pod, Range, Table, TableDef, Tx};
use proptest::{collection::vec, prelude::*};

use crate::On;

const SORTED: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("sorted");
const NAMED: TableDef<String, Pod<u64>, Ordered> = TableDef::ordered("named");
const HASHED: TableDef<u64, Pod<u64>> = TableDef::hash("hashed");

/// More than a read-only transaction reads before it continues in a snapshot.
const MANY: u64 = 3_000;

#[derive(Clone, Copy, Debug)]
struct Tables {
    sorted: Table<u64, Pod<u64>, Ordered>,
    named: Table<String, Pod<u64>, Ordered>,
    hashed: Table<u64, Pod<u64>>,
}

impl Tables {
    fn of<S: Config>(db: &Db<S>) -> Self {
        let (sorted, named) = (db.table(SORTED).expect("room"), db.table(NAMED).expect("room"));
        Self { sorted, named, hashed: db.table(HASHED).expect("room") }
    }

    /// Gives all three tables this row.
    fn set<S: Config>(self, db: &Db<S>, key: u64, value: u64) -> Result<(), Error> {
        db.transact(|tx| self.put(tx, key, value))
    }

    fn put<S: Config>(self, tx: &mut Tx<'_, S>, key: u64, value: u64) -> Result<(), Error> {
        tx.put(self.sorted, key, &value)?;
        tx.put(self.named, name(key), &value)?;
        tx.put(self.hashed, key, &value)
    }

    fn remove<S: Config>(self, tx: &mut Tx<'_, S>, key: u64) -> Result<(), Error> {
        tx.remove(self.sorted, key)?;
        tx.remove(self.named, name(key))?;
        tx.remove(self.hashed, key).map(drop)
    }
}

fn name(key: u64) -> String {
    format!("{key:08} of a name that does not fit into a word")
}

fn database() -> Db {
    Builder::new().memory(64 << 20).build().expect("memory")
}

/// A way to read the row of one key while the row of another is shown. Both are returned.
const WAYS: usize = 6;

fn pair<S: Config, M: Mode>(
    tx: &Tx<'_, S, M>,
    tables: Tables,
    way: usize,
    (outer, inner): (u64, u64),
) -> Result<(Option<u64>, Option<u64>), Error> {
    let mut seen = (None, Ok(None));
    match way {
        0 => {
            tx.view(tables.hashed, outer, |row| seen = (Some(row), tx.get(tables.sorted, inner)))?;
        }
        1 => {
            tx.view(tables.named, name(outer), |row| {
                seen = (Some(row), tx.view(tables.hashed, inner, |row| row));
            })?;
        }
        2 => tx.range(tables.sorted, outer..=outer)?.view_each(|_, row| {
            seen = (Some(row), tx.get(tables.named, name(inner)));
        })?,
        3 => {
            let shown = tx
                .range(tables.named, name(outer)..)?
                .view_next(|row| (row, tx.range(tables.sorted, inner..).and_then(Range::first)));
            if let Some((found, (row, first))) = shown?
                && found == name(outer)
            {
                seen = (Some(row), first.map(|first| first.filter(|(key, _)| *key == inner).map(|(_, row)| row)));
            }
        }
        4 => tx.view_many(tables.hashed, [outer], |row| {
            // Nested twice.
            let nested = row.map(|_| tx.view(tables.sorted, outer, |_| tx.get(tables.hashed, inner)));
            seen = (row, nested.map_or(Ok(None), |nested| nested.and_then(|inner| inner.unwrap_or(Ok(None)))));
        })?,
        _ => tx.walk(tables.hashed, |key, row| {
            if key != outer {
                return Continue(());
            }
            seen = (Some(row), tx.get_many(tables.sorted, [inner]).map(|rows| rows[0]));
            Break(())
        })?,
    }
    Ok((seen.0, seen.1?))
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(u64, u64, bool),
    Next(usize),
    Back(usize),
    Pair(usize, u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..40_u64;
    let step = prop_oneof![
        2 => (key(), key(), any::<bool>()).prop_map(|(low, high, is_up)| Step::Open(low, high, is_up)),
        6 => (0..4_usize).prop_map(Step::Next),
        3 => (0..4_usize).prop_map(Step::Back),
        4 => (0..WAYS, key(), key()).prop_map(|(way, outer, inner)| Step::Pair(way, outer, inner)),
    ];
    vec(step, 1..60)
}

/// Reads with up to four ranges open, and compares with the rows that there must be.
fn follow<S: Config, M: Mode>(
    tx: &Tx<'_, S, M>,
    tables: Tables,
    model: &BTreeMap<u64, u64>,
    steps: &[Step],
) -> Result<(), Error> {
    let mut ranges = Vec::new();
    for step in steps {
        match *step {
            Step::Open(low, high, is_up) => {
                if ranges.len() == 4 {
                    ranges.remove(0);
                }
                let left: Vec<(u64, u64)> = match low <= high {
                    true => model.range(low..=high).map(|(key, row)| (*key, *row)).collect(),
                    false => Vec::new(),
                };
                let (words, names) =
                    (tx.range(tables.sorted, low..=high)?, tx.range(tables.named, name(low)..=name(high))?);
                match is_up {
                    true => ranges.push((words, names, left)),
                    false => ranges.push((words.rev(), names.rev(), left.into_iter().rev().collect())),
                }
            }
            Step::Next(which) => {
                let Some((words, names, left)) = ranges.get_mut(which) else { continue };
                let expected = (!left.is_empty()).then(|| left.remove(0));
                assert_eq!(words.next()?, expected);
                assert_eq!(names.next()?, expected.map(|(key, row)| (name(key), row)));
            }
            Step::Back(which) => {
                let Some((words, names, left)) = ranges.get_mut(which) else { continue };
                let expected = left.pop();
                assert_eq!(words.next_back()?, expected);
                assert_eq!(names.next_back()?, expected.map(|(key, row)| (name(key), row)));
            }
            Step::Pair(way, outer, inner) => {
                let outer_row = model.get(&outer).copied();
                let inner_row = outer_row.and_then(|_| model.get(&inner).copied());
                assert_eq!(pair(tx, tables, way, (outer, inner))?, (outer_row, inner_row), "by way {way}");
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn ranges_and_nested_reads_agree_with_a_model(
        rows in prop::collection::btree_map(0..40_u64, any::<u64>(), 0..30),
        later in vec((0..40_u64, any::<u64>()), 0..20),
        own in vec((0..40_u64, any::<Option<u64>>()), 1..20),
        steps in steps(),
    ) {
        let db = Builder::new().memory(16 << 20).build().expect("memory");
        let tables = Tables::of(&db);
        rows.iter().try_for_each(|(key, row)| tables.set(&db, *key, *row)).expect("room");
        db.read(|tx| follow(tx, tables, &rows, &steps)).expect("alone");
        let snapshot = db.snapshot().expect("a slot");
        later.iter().try_for_each(|(key, row)| tables.set(&db, *key, *row)).expect("room");
        follow(&snapshot, tables, &rows, &steps).expect("it never conflicts");
        snapshot.commit().expect("it never conflicts");
        let mut rows = rows;
        rows.extend(later);
        db.read(|tx| follow(tx, tables, &rows, &steps)).expect("alone");
        // Transactions that write: before they do, and after that. Opaque ones validate each read.
        for is_opaque in [false, true] {
            let mut now = rows.clone();
            // It may run again: a bucket is split by its own insertions.
            let mut run = |tx: &mut Tx<'_>| {
                now.clone_from(&rows);
                follow(tx, tables, &now, &steps)?;
                for (key, row) in &own {
                    match row {
                        Some(row) => tables.put(tx, *key, *row)?,
                        None => tables.remove(tx, *key)?,
                    }
                    match row {
                        Some(row) => now.insert(*key, *row),
                        None => now.remove(key),
                    };
                }
                follow(tx, tables, &now, &steps)
            };
            if is_opaque {
                let mut tx = db.begin().expect("memory");
                run(&mut tx).expect("alone");
                drop(tx);
            } else {
                db.transact(run).expect("alone");
                db.read(|tx| follow(tx, tables, &now, &steps)).expect("alone");
                rows = now;
            }
        }
    }
}

/// Between the outer read and the nested one, another thread writes both rows: the nested read is
/// part of the read set, so the transaction runs again.
#[test]
fn a_nested_read_is_validated() {
    let db = database();
    let tables = Tables::of(&db);
    type Seen = Result<Option<(u64, Option<u64>)>, Error>;
    let runs_again = |way, what, run: &dyn Fn(&mut u32) -> Seen| {
        [1, 2].iter().try_for_each(|key| tables.set(&db, *key, 0)).expect("room");
        let mut runs = 0;
        let (outer, _) = run(&mut runs).expect("it is retried").expect("there is such a row");
        assert_eq!((runs, outer), (2, 0), "by way {way}, in a transaction that {what}");
    };
    for way in 0..WAYS {
        runs_again(way, "may write", &|runs| {
            db.transact(|tx| {
                *runs += 1;
                nested_beside_a_write(&db, tx, tables, way, *runs == 1)
            })
        });
        runs_again(way, "has written", &|runs| {
            db.transact(|tx| {
                *runs += 1;
                tx.put(tables.hashed, 3, &1)?;
                nested_beside_a_write(&db, tx, tables, way, *runs == 1)
            })
        });
        runs_again(way, "only reads", &|runs| {
            db.read(|tx| {
                *runs += 1;
                nested_beside_a_write(&db, tx, tables, way, *runs == 1)
            })
        });
    }
}

/// Reads a row while another one is shown, and writes both by another thread in between.
fn nested_beside_a_write<M: Mode>(
    db: &Db,
    tx: &Tx<'_, drtm_txn::DefaultConfig, M>,
    tables: Tables,
    way: usize,
    writes: bool,
) -> Result<Option<(u64, Option<u64>)>, Error> {
    let mut seen = None;
    // The outer row is not read again, and the nested read alone shows what changed.
    tx.view(tables.named, "absent", |_| ())?;
    tx.view(tables.hashed, 1, |outer| {
        seen = Some(pair(tx, tables, way, (2, 1)).map(|(_, inner)| (outer, inner)));
        if writes {
            thread::scope(|scope| {
                scope.spawn(|| {
                    db.transact(|tx| {
                        tx.put(tables.sorted, 1, &7)?;
                        tx.put(tables.named, name(1), &7)?;
                        tx.put(tables.sorted, 2, &7)?;
                        tx.put(tables.named, name(2), &7)
                    })
                    .expect("room");
                });
            });
        }
    })?;
    seen.transpose()
}

/// An iterator over keys that reads the transaction does not miss what it has written.
#[test]
fn keys_are_not_read_past_writes() {
    let db = database();
    let tables = Tables::of(&db);
    (0..3).try_for_each(|key| tables.set(&db, key, key)).expect("room");
    db.transact(|tx| {
        let key_of = |tx: &Tx<'_>, key| tx.get(tables.sorted, key).map(|row| row.unwrap_or(9));
        let read = |tx: &Tx<'_>| {
            let mut failed = Ok(());
            let keys = (0..3).map_while(|key| match key_of(tx, key) {
                Ok(key) => Some(key),
                Err(error) => {
                    failed = Err(error);
                    None
                }
            });
            let rows = tx.get_many(tables.hashed, keys)?;
            failed.map(|()| rows)
        };
        assert_eq!(read(tx)?, [Some(0), Some(1), Some(2)]);
        tx.put(tables.sorted, 1, &0)?;
        assert!(matches!(read(tx), Err(Error::Nested)));
        Ok(())
    })
    .expect("alone");
}

/// Two tables have the same rows at every moment. So do an outer read and a nested one.
fn pairs_are_equal<S: Config>(db: &Db<S>) {
    const KEYS: u64 = 4;
    let tables = Tables::of(db);
    (0..KEYS).try_for_each(|key| tables.set(db, key, 0)).expect("room");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1.. {
                if is_over.load(Relaxed) {
                    break;
                }
                tables.set(db, turn % KEYS, turn).expect("room");
            }
        });
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                scope.spawn(move || {
                    for turn in 0..rounds(1_500) {
                        let (key, way) = ((turn + reader) % KEYS, turn as usize % WAYS);
                        let (outer, inner) = db.read(|tx| pair(tx, tables, way, (key, key))).expect("it is retried");
                        assert_eq!(outer, inner, "by way {way}");
                        let seen = db.transact(|tx| {
                            if turn % 2 == 0 {
                                tx.put(tables.hashed, KEYS + reader, &turn)?;
                            }
                            pair(tx, tables, way, (key, key))
                        });
                        let (outer, inner) = seen.expect("it is retried");
                        assert_eq!(outer, inner, "by way {way}, in a transaction that writes");
                        let snapshot = db.snapshot().expect("room");
                        let (outer, inner) = pair(&snapshot, tables, way, (key, key)).expect("it is kept");
                        assert_eq!(outer, inner, "by way {way}, in a snapshot");
                    }
                })
            })
            .collect();
        let read: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        is_over.store(true, Relaxed);
        read.into_iter().for_each(|read| read.expect("the rows are equal"));
    });
}

#[test]
fn outer_and_nested_reads_are_of_one_moment() {
    pairs_are_equal(&Builder::new().memory(64 << 20).build_with::<On<NoHtm>>(NoHtm).expect("memory"));
    let emulated = Emulated::new(EmulatedConfig::default()).expect("a sound configuration");
    pairs_are_equal(&Builder::new().memory(64 << 20).build_with::<On<Emulated>>(emulated).expect("memory"));
}

/// A join by nested reads of more rows than are validated runs again in a snapshot. The first run
/// ends soon.
#[test]
fn a_long_join_continues_in_a_snapshot() {
    let db = database();
    let tables = Tables::of(&db);
    (0..MANY).try_for_each(|key| tables.set(&db, key, 2 * key)).expect("room");
    let (runs, nested) = (Cell::new(0), Cell::new(0));
    let sum = db
        .read(|tx| {
            runs.set(runs.get() + 1);
            let (mut sum, mut failed) = (0, Ok(()));
            tx.range(tables.sorted, ..)?.view_each(|key, row| match tx.get(tables.hashed, key) {
                Ok(other) => {
                    nested.set(nested.get() + 1);
                    sum += row + other.unwrap_or(0);
                    Continue(())
                }
                Err(error) => {
                    failed = Err(error);
                    Break(())
                }
            })?;
            failed.map(|()| sum)
        })
        .expect("nothing is in the way");
    assert_eq!(sum, 2 * MANY * (MANY - 1));
    assert_eq!(runs.get(), 2);
    assert!(nested.get() < MANY + 1_100, "the first run ends soon, and there were {} nested reads", nested.get());
}

/// Once the outer read has turned to a snapshot, a nested read is of another moment.
#[test]
fn a_nested_read_within_a_long_one_is_of_the_same_moment() {
    let db = database();
    let tables = Tables::of(&db);
    (0..MANY).try_for_each(|key| tables.set(&db, key, 1)).expect("room");
    let mut runs = 0;
    let (sum, last) = db
        .read(|tx| {
            runs += 1;
            let (mut sum, mut last) = (0, Ok(None));
            tx.range(tables.sorted, ..)?.view_each(|key, row| {
                sum += row;
                if key == MANY - 1 {
                    thread::scope(|scope| {
                        scope.spawn(|| tables.set(&db, 7, 1 + runs).expect("room"));
                    });
                    last = tx.get(tables.hashed, 7);
                }
            })?;
            Ok((sum, last?))
        })
        .expect("nothing is in the way");
    assert_eq!(runs, 2, "the first run has seen two moments");
    assert_eq!(sum, MANY + 1, "the first run's write, and not the second's");
    assert_eq!(last, Some(2), "as the outer read");
}

#[test]
fn a_range_that_turns_to_a_snapshot_needs_no_other_run() {
    let db = database();
    let tables = Tables::of(&db);
    (0..MANY).try_for_each(|key| tables.set(&db, key, key)).expect("room");
    let mut runs = 0;
    let equal = db
        .read(|tx| {
            runs += 1;
            let (mut left, mut right, mut equal) = (tx.range(tables.sorted, ..)?, tx.range(tables.named, ..)?, 0);
            while let (Some((key, row)), Some((named, other))) = (left.next()?, right.next()?) {
                equal += u64::from(named == name(key) && row == other && tx.get(tables.hashed, key)? == Some(row));
            }
            Ok(equal)
        })
        .expect("nothing is in the way");
    assert_eq!((equal, runs), (MANY, 1));
}

#[test]
fn a_panic_in_a_closure_leaves_the_snapshot_readable() {
    let db = database();
    let tables = Tables::of(&db);
    (0..3).try_for_each(|key| tables.set(&db, key, key)).expect("room");
    let snapshot = db.snapshot().expect("a slot");
    for way in 0..WAYS {
        let outer = catch_unwind(AssertUnwindSafe(|| {
            snapshot.view(tables.hashed, 1, |_| {
                assert_eq!(pair(&snapshot, tables, way, (1, 2)).expect("kept"), (Some(1), Some(2)));
                snapshot.view(tables.sorted, 2, |_| panic!("on purpose"))
            })
        }));
        assert!(outer.is_err());
        assert_eq!(pair(&snapshot, tables, way, (2, 1)).expect("kept"), (Some(2), Some(1)));
    }
}

#[test]
fn nested_reads_see_the_snapshot_that_is_there() {
    let db = database();
    let tables = Tables::of(&db);
    tables.set(&db, 1, 1).expect("room");
    let mut old = db.snapshot().expect("a slot");
    tables.set(&db, 1, 2).expect("room");
    let mut new = db.snapshot().expect("a slot");
    for way in 0..WAYS {
        assert_eq!(pair(&old, tables, way, (1, 1)).expect("kept"), (Some(1), Some(1)));
        assert_eq!(pair(&new, tables, way, (1, 1)).expect("kept"), (Some(2), Some(2)));
        std::mem::swap(&mut old, &mut new);
        assert_eq!(pair(&old, tables, way, (1, 1)).expect("kept"), (Some(2), Some(2)));
        std::mem::swap(&mut old, &mut new);
    }
}

/// What nested reads need is kept for others: it does not grow with the number of transactions.
#[test]
fn nested_reads_give_back_what_they_take() {
    let db = database();
    let tables = Tables::of(&db);
    (0..2).try_for_each(|key| tables.set(&db, key, key)).expect("room");
    let run = || {
        for way in 0..WAYS {
            db.read(|tx| pair(tx, tables, way, (0, 1))).expect("alone");
            pair(&db.snapshot().expect("a slot"), tables, way, (0, 1)).expect("kept");
        }
    };
    run();
    let before = db.memory().threads;
    (0..50).for_each(|_| run());
    let after = db.memory().threads;
    assert!(after < 2 * before, "{after} bytes, after {before}");
}
