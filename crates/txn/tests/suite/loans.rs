//! Ranges that lend their transaction between two rows.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt::Debug,
    ops::Bound::{self, Excluded, Included},
};

use drtm_txn::{AsKey, Db, Error, Key, Ordered, Pod, Range, Table, TableDef, Tx};
use proptest::{collection::vec, prelude::*, sample::select};

const WORDS: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("words");
const NAMES: TableDef<String, Pod<u64>, Ordered> = TableDef::ordered("names");

#[derive(Clone, Copy, Debug)]
enum Step {
    Next,
    Back,
    Update,
    RemoveNext,
    Get(u8),
    Put(u8),
    Insert(u8),
    Remove(u8),
}

fn steps() -> impl Strategy<Value = Step> {
    let key = 0..60_u8;
    prop_oneof![
        4 => Just(Step::Next),
        2 => Just(Step::Back),
        1 => Just(Step::Update),
        2 => Just(Step::RemoveNext),
        1 => key.clone().prop_map(Step::Get),
        2 => key.clone().prop_map(Step::Put),
        2 => key.clone().prop_map(Step::Insert),
        3 => key.prop_map(Step::Remove),
    ]
}

/// What a range does last.
#[derive(Clone, Copy, Debug)]
enum End {
    Count,
    CountBack,
    Rows,
    RowsBack,
    First,
    Last,
    ViewNext,
    ViewEach,
    UpdateEach,
    PopFirst,
    PopLast,
    Drain,
}

const ENDS: [End; 12] = [
    End::Count,
    End::CountBack,
    End::Rows,
    End::RowsBack,
    End::First,
    End::Last,
    End::ViewNext,
    End::ViewEach,
    End::UpdateEach,
    End::PopFirst,
    End::PopLast,
    End::Drain,
];

type Words<'t, 'db, K> = Range<'db, Table<K, Pod<u64>, Ordered>, &'t mut Tx<'db>>;

impl End {
    /// Ends a range, and returns what it has shown.
    fn of<K: Key>(self, mut range: Words<'_, '_, K>) -> Result<Shown<K>, Error> {
        let mut rows = Vec::new();
        match self {
            Self::Count => return range.count().map(Shown::Count),
            Self::CountBack => return range.rev().count().map(Shown::Count),
            Self::Rows => rows = range.rows().collect::<Result<_, _>>()?,
            Self::RowsBack => rows = range.rows().rev().collect::<Result<_, _>>()?,
            Self::First => rows.extend(range.first()?),
            Self::Last => rows.extend(range.last()?),
            Self::ViewNext => rows.extend(range.view_next(|value| value)?),
            Self::ViewEach => range.view_each(|key, value| rows.push((key, value)))?,
            Self::UpdateEach => {
                range.update_each(|key, value| rows.push((key.clone(), std::mem::replace(value, CHANGED))))?;
            }
            Self::PopFirst => rows.extend(range.pop_first()?),
            Self::PopLast => rows.extend(range.pop_last()?),
            Self::Drain => rows = range.drain()?,
        }
        Ok(Shown::Rows(rows))
    }
}

/// What a range has shown at its end.
#[derive(Debug, PartialEq)]
enum Shown<K> {
    Count(u64),
    Rows(Vec<(K, u64)>),
}

/// The value that [`End::UpdateEach`] writes.
const CHANGED: u64 = 99;

/// The rest of a range, of the rows as the transaction sees them.
struct Model<K> {
    rows: BTreeMap<K, u64>,
    left: (Bound<K>, Bound<K>),
}

impl<K: Ord + Clone> Model<K> {
    fn next(&mut self) -> Option<(K, u64)> {
        let row = self.rows.range(self.left.clone()).next().map(|(key, value)| (key.clone(), *value));
        if let Some((key, _)) = &row {
            self.left.0 = Excluded(key.clone());
        }
        row
    }

    fn back(&mut self) -> Option<(K, u64)> {
        let row = self.rows.range(self.left.clone()).next_back().map(|(key, value)| (key.clone(), *value));
        if let Some((key, _)) = &row {
            self.left.1 = Excluded(key.clone());
        }
        row
    }

    fn end(&mut self, how: End) -> Shown<K> {
        let rows: Vec<(K, u64)> = match how {
            End::First | End::ViewNext | End::PopFirst => self.next().into_iter().collect(),
            End::Last | End::PopLast => self.back().into_iter().collect(),
            End::RowsBack => std::iter::from_fn(|| self.back()).collect(),
            _ => std::iter::from_fn(|| self.next()).collect(),
        };
        for (key, _) in &rows {
            match how {
                End::UpdateEach => _ = self.rows.insert(key.clone(), CHANGED),
                End::PopFirst | End::PopLast | End::Drain => _ = self.rows.remove(key),
                _ => {}
            }
        }
        match how {
            End::Count | End::CountBack => Shown::Count(rows.len() as u64),
            _ => Shown::Rows(rows),
        }
    }
}

/// Compares a range, and the operations through its loans, with the model.
fn is_as_modelled<K>(
    def: TableDef<K, Pod<u64>, Ordered>,
    key: impl Fn(u8) -> K,
    rows: &[u8],
    steps: &[Step],
    end: End,
) -> Result<(), Error>
where
    K: Key + Ord + Clone + Debug,
    for<'k> &'k K: AsKey<K>,
{
    let db = Db::new()?;
    let table = db.table(def)?;
    let before: BTreeMap<K, u64> = rows.iter().map(|row| (key(*row), u64::from(*row))).collect();
    db.transact(|tx| before.iter().try_for_each(|(key, value)| tx.put(table, key, value)))?;
    let (first, last) = (key(10), key(50));
    let after = db.transact(|tx| {
        let left = (Included(first.clone()), Included(last.clone()));
        let mut model = Model { rows: before.clone(), left };
        let mut range = tx.range_mut(table, (Included(&first), Included(&last)))?;
        for (number, step) in (1_000..).zip(steps) {
            let expected;
            let found = match *step {
                Step::Next => {
                    expected = model.next();
                    range.next()?
                }
                Step::Back => {
                    expected = model.back();
                    range.next_back()?
                }
                Step::Update => {
                    expected = model.next();
                    expected.iter().for_each(|(key, _)| {
                        model.rows.insert(key.clone(), number);
                    });
                    range.update_next(|_, value| std::mem::replace(value, number))?
                }
                Step::RemoveNext => {
                    expected = model.next();
                    expected.iter().for_each(|(key, _)| {
                        model.rows.remove(key);
                    });
                    range.remove_next()?
                }
                Step::Get(row) => {
                    assert_eq!(range.tx().get(table, &key(row))?, model.rows.get(&key(row)).copied());
                    continue;
                }
                Step::Put(row) => {
                    range.tx().put(table, &key(row), &number)?;
                    model.rows.insert(key(row), number);
                    continue;
                }
                Step::Insert(row) => {
                    if let Entry::Vacant(vacant) = model.rows.entry(key(row)) {
                        range.tx().insert(table, vacant.key(), &number)?;
                        vacant.insert(number);
                    }
                    continue;
                }
                Step::Remove(row) => {
                    assert_eq!(range.tx().remove(table, &key(row))?, model.rows.remove(&key(row)));
                    continue;
                }
            };
            assert_eq!(found, expected, "{number}");
            if found.is_none() {
                break;
            }
        }
        assert_eq!(end.of(range)?, model.end(end), "{end:?}");
        Ok(model.rows)
    })?;
    let found: BTreeMap<K, u64> = db.read(|tx| tx.range(table, ..)?.rows().collect())?;
    assert_eq!(found, after);
    Ok(())
}

/// The rest of a range begins behind the last row at each of its ends, and not behind the leaf that
/// has no more rows.
#[test]
fn rows_are_inserted_behind_an_end_that_has_been_left() -> Result<(), Error> {
    // A leaf is full, and the first step divides it: elsewhere with each number of rows below the
    // range.
    for below in 0..10 {
        let rows: Vec<u8> = (1..=below).chain((10..=50).step_by(2)).chain(51..60 - below).collect();
        for seen in 1..19_u8 {
            let end = ENDS[usize::from(below + seen) % ENDS.len()];
            let put = Step::Put(9 + 2 * seen);
            let forth = [vec![Step::Next; seen.into()], vec![Step::Back, put, Step::Next, Step::Next]];
            let put = Step::Put(51 - 2 * seen);
            let back = [vec![Step::Back; seen.into()], vec![Step::Next, put, Step::Back, Step::Back]];
            for [seen, then] in [forth, back] {
                let steps = [vec![Step::Put(0)], seen, then].concat();
                is_as_modelled(WORDS, u64::from, &rows, &steps, end)?;
                is_as_modelled(NAMES, |row| format!("a common prefix {row:03}"), &rows, &steps, end)?;
            }
        }
    }
    Ok(())
}

/// A loan writes rows ahead of each end of a range, and removes one.
#[test]
fn every_operation_on_a_range_sees_what_a_loan_has_changed() -> Result<(), Error> {
    let rows: Vec<u8> = (10..=50).step_by(10).collect();
    for end in ENDS {
        for seen in [Step::Next, Step::Back] {
            for steps in [[Step::Insert(25), Step::Insert(45)], [Step::Remove(30), Step::Insert(31)]] {
                let steps = [vec![seen], steps.to_vec()].concat();
                is_as_modelled(WORDS, u64::from, &rows, &steps, end)?;
                is_as_modelled(NAMES, |row| format!("a common prefix {row:03}"), &rows, &steps, end)?;
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_range_is_as_if_nothing_had_been_lent(
        rows in vec(0..60_u8, 0..60),
        steps in vec(steps(), 0..80),
        end in select(&ENDS[..]),
    ) {
        is_as_modelled(WORDS, u64::from, &rows, &steps, end).expect("sound");
    }

    #[test]
    fn so_is_one_of_long_keys(
        rows in vec(0..60_u8, 0..60),
        steps in vec(steps(), 0..80),
        end in select(&ENDS[..]),
    ) {
        is_as_modelled(NAMES, |row| format!("a common prefix {row:03}"), &rows, &steps, end).expect("sound");
    }
}

#[test]
fn a_transaction_of_another_database_is_refused() -> Result<(), Error> {
    let (one, other) = (Db::new()?, Db::new()?);
    let (here, there) = (one.table(WORDS)?, other.table(WORDS)?);
    one.transact(|tx| tx.put(here, 1, &1))?;
    other.transact(|tx| tx.put(there, 1, &2))?;
    let (mut of_one, mut of_other) = (one.begin()?, other.begin()?);
    for end in ENDS {
        let mut rows = of_one.range_mut(here, ..)?;
        std::mem::swap(rows.tx(), &mut of_other);
        assert!(matches!(end.of(rows), Err(Error::OtherDatabase)), "{end:?}");
        std::mem::swap(&mut of_one, &mut of_other);
    }
    let mut rows = of_one.range_mut(here, ..)?;
    std::mem::swap(rows.tx(), &mut of_other);
    assert!(matches!(rows.next(), Err(Error::OtherDatabase)));
    assert!(matches!(rows.next_back(), Err(Error::OtherDatabase)));
    std::mem::swap(rows.tx(), &mut of_other);
    assert_eq!(rows.next()?, Some((1, 1)));
    Ok(())
}
