//! Random programs on one thread, compared with ordered maps: all operations of a transaction, on
//! tables of every shape.

use std::{
    borrow::Borrow,
    collections::BTreeMap,
    fmt::Debug,
    ops::{Bound, RangeBounds},
};

use drtm_txn::{Codec, Db, DefaultConfig, Error, Hash, Key, Kind, Ordered, Raw, Savepoint, Serde, Table, TableDef, Tx};
use proptest::{collection::vec, prelude::*};

type Value = Vec<u8>;
type Bounds<K> = (Bound<K>, Bound<K>);

/// A table of one shape.
trait Shape: 'static {
    type Key: Key + Ord + Debug;
    type Codec: Codec<Value = Value>;
    type Kind: Kind;
    const TABLE: TableDef<Self::Key, Self::Codec, Self::Kind>;

    fn key() -> BoxedStrategy<Self::Key>;

    /// Returns at most this many rows of a range; `None` if the table is unordered.
    fn range(
        tx: &mut Tx<'_>,
        table: Table<Self::Key, Self::Codec, Self::Kind>,
        range: Bounds<Self::Key>,
        is_up: bool,
        most: usize,
    ) -> Result<Option<Rows<Self::Key>>, Error>;

    /// Returns a range's number of rows, its first and its last.
    fn ends(
        tx: &mut Tx<'_>,
        table: Table<Self::Key, Self::Codec, Self::Kind>,
        range: Bounds<Self::Key>,
    ) -> Result<Option<Ends<Self::Key>>, Error>;

    /// Writes this value to the rows of a range, at most this many, or removes them. Returns the
    /// old rows.
    fn sweep(
        tx: &mut Tx<'_>,
        table: Table<Self::Key, Self::Codec, Self::Kind>,
        range: Bounds<Self::Key>,
        is_up: bool,
        most: usize,
        value: Option<&Value>,
    ) -> Result<Option<Rows<Self::Key>>, Error>;
}

type Rows<K> = Vec<(K, Value)>;
type Ends<K> = (u64, Option<(K, Value)>, Option<(K, Value)>);

macro_rules! unordered {
    () => {
        fn range(
            _: &mut Tx<'_>,
            _: Table<Self::Key, Self::Codec, Self::Kind>,
            _: Bounds<Self::Key>,
            _: bool,
            _: usize,
        ) -> Result<Option<Rows<Self::Key>>, Error> {
            Ok(None)
        }

        fn ends(
            _: &mut Tx<'_>,
            _: Table<Self::Key, Self::Codec, Self::Kind>,
            _: Bounds<Self::Key>,
        ) -> Result<Option<Ends<Self::Key>>, Error> {
            Ok(None)
        }

        fn sweep(
            _: &mut Tx<'_>,
            _: Table<Self::Key, Self::Codec, Self::Kind>,
            _: Bounds<Self::Key>,
            _: bool,
            _: usize,
            _: Option<&Value>,
        ) -> Result<Option<Rows<Self::Key>>, Error> {
            Ok(None)
        }
    };
}

macro_rules! ordered {
    () => {
        fn range(
            tx: &mut Tx<'_>,
            table: Table<Self::Key, Self::Codec, Self::Kind>,
            range: Bounds<Self::Key>,
            is_up: bool,
            most: usize,
        ) -> Result<Option<Rows<Self::Key>>, Error> {
            let rows = if is_up { tx.range(table, range)? } else { tx.range(table, range)?.rev() };
            rows.rows().take(most).collect::<Result<_, _>>().map(Some)
        }

        fn ends(
            tx: &mut Tx<'_>,
            table: Table<Self::Key, Self::Codec, Self::Kind>,
            range: Bounds<Self::Key>,
        ) -> Result<Option<Ends<Self::Key>>, Error> {
            Ok(Some((
                tx.range(table, range.clone())?.count()?,
                tx.range(table, range.clone())?.first()?,
                tx.range(table, range)?.last()?,
            )))
        }

        fn sweep(
            tx: &mut Tx<'_>,
            table: Table<Self::Key, Self::Codec, Self::Kind>,
            range: Bounds<Self::Key>,
            is_up: bool,
            most: usize,
            value: Option<&Value>,
        ) -> Result<Option<Rows<Self::Key>>, Error> {
            let mut rows = if is_up { tx.range_mut(table, range)? } else { tx.range_mut(table, range)?.rev() };
            let mut were = Vec::new();
            while were.len() < most {
                let row = match value {
                    Some(value) => rows.update_next(|_, row| std::mem::replace(row, value.clone()))?,
                    None => rows.remove_next()?,
                };
                match row {
                    Some(row) => were.push(row),
                    None => break,
                }
            }
            Ok(Some(were))
        }
    };
}

/// A few numbers, including the lowest and the highest.
fn words() -> BoxedStrategy<u64> {
    prop_oneof![4 => 0..40_u64, 1 => (u64::MAX - 3)..=u64::MAX].boxed()
}

/// Strings of few different bytes, including the lowest and the highest, so that many share
/// prefixes.
fn names() -> BoxedStrategy<Vec<u8>> {
    let short = vec(prop::sample::select(vec![0, 1, 255]), 0..4);
    let long = vec(prop::sample::select(vec![0, 1, 255]), 0..3)
        .prop_map(|end| [b"all of these begin alike", &end[..]].concat());
    prop_oneof![short, long].boxed()
}

struct HashOfWords;
struct HashOfNames;
struct TreeOfWords;
struct TreeOfNames;

impl Shape for HashOfWords {
    type Key = u64;
    type Codec = Raw;
    type Kind = Hash;
    const TABLE: TableDef<u64, Raw> = TableDef::hash("words");
    fn key() -> BoxedStrategy<u64> {
        words()
    }
    unordered!();
}

impl Shape for HashOfNames {
    type Key = Vec<u8>;
    type Codec = Serde<Value>;
    type Kind = Hash;
    const TABLE: TableDef<Vec<u8>, Serde<Value>> = TableDef::hash("names");
    fn key() -> BoxedStrategy<Vec<u8>> {
        names()
    }
    unordered!();
}

impl Shape for TreeOfWords {
    type Key = u64;
    type Codec = Serde<Value>;
    type Kind = Ordered;
    const TABLE: TableDef<u64, Serde<Value>, Ordered> = TableDef::ordered("words");
    fn key() -> BoxedStrategy<u64> {
        words()
    }
    ordered!();
}

impl Shape for TreeOfNames {
    type Key = Vec<u8>;
    type Codec = Raw;
    type Kind = Ordered;
    const TABLE: TableDef<Vec<u8>, Raw, Ordered> = TableDef::ordered("names");
    fn key() -> BoxedStrategy<Vec<u8>> {
        names()
    }
    ordered!();
}

/// One step of a transaction.
#[derive(Clone, Debug)]
enum Step<K> {
    Get(K),
    GetMany(Vec<K>),
    Put(K, Value),
    Insert(K, Value),
    /// Inserts several rows, up to the first that exists.
    InsertMany(Vec<(K, Value)>),
    Update(K, Value),
    Remove(K),
    Range {
        bounds: Bounds<K>,
        is_up: bool,
        most: usize,
    },
    Ends(Bounds<K>),
    Sweep {
        bounds: Bounds<K>,
        is_up: bool,
        most: usize,
        value: Option<Value>,
    },
    /// Prefetches rows, which changes nothing.
    Prefetch(Vec<K>),
    Savepoint,
    Return(prop::sample::Index),
}

/// The steps of transactions, and whether they commit: by a closure, or explicitly.
type Program<K> = Vec<(Vec<Step<K>>, End)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Commit,
    Drop,
    CommitClosure,
    FailClosure,
}

/// Small values, and large ones of several size classes.
fn value() -> impl Strategy<Value = Value> {
    (any::<u8>(), prop_oneof![0..20_usize, 0..600_usize]).prop_map(|(byte, length)| vec![byte; length])
}

fn bounds<S: Shape>() -> impl Strategy<Value = Bounds<S::Key>> {
    let bound =
        || prop_oneof![S::key().prop_map(Bound::Included), S::key().prop_map(Bound::Excluded), Just(Bound::Unbounded)];
    (bound(), bound())
}

fn program<S: Shape>() -> impl Strategy<Value = Program<S::Key>> {
    let step = prop_oneof![
        3 => S::key().prop_map(Step::Get),
        1 => vec(S::key(), 0..4).prop_map(Step::GetMany),
        4 => (S::key(), value()).prop_map(|(key, value)| Step::Put(key, value)),
        4 => (S::key(), value()).prop_map(|(key, value)| Step::Insert(key, value)),
        2 => (vec((S::key(), value()), 0..20), any::<bool>()).prop_map(|(mut rows, ascend)| {
            if ascend {
                rows.sort_by(|(one, _), (other, _)| one.cmp(other));
            }
            Step::InsertMany(rows)
        }),
        3 => (S::key(), value()).prop_map(|(key, value)| Step::Update(key, value)),
        5 => S::key().prop_map(Step::Remove),
        2 => (bounds::<S>(), any::<bool>(), 0..50_usize)
            .prop_map(|(bounds, is_up, most)| Step::Range { bounds, is_up, most }),
        1 => bounds::<S>().prop_map(Step::Ends),
        1 => (bounds::<S>(), any::<bool>(), 0..10_usize, prop::option::of(value()))
            .prop_map(|(bounds, is_up, most, value)| Step::Sweep { bounds, is_up, most, value }),
        2 => vec(S::key(), 0..20).prop_map(Step::Prefetch),
        1 => Just(Step::Savepoint),
        1 => any::<prop::sample::Index>().prop_map(Step::Return),
    ];
    let end = prop_oneof![
        3 => Just(End::Commit),
        1 => Just(End::Drop),
        3 => Just(End::CommitClosure),
        1 => Just(End::FailClosure)
    ];
    vec((vec(step, 0..25), end), 1..12)
}

/// The expected rows.
type Model<K> = BTreeMap<K, Value>;

/// A table with its expected contents.
struct World<S: Shape> {
    db: Db,
    table: Table<S::Key, S::Codec, S::Kind>,
    rows: Model<S::Key>,
}

impl<S: Shape> World<S>
where
    Value: Borrow<<S::Codec as Codec>::Given>,
{
    fn run(program: &Program<S::Key>) -> Result<(), TestCaseError> {
        let db = Db::builder().memory(64 << 20).build().expect("memory");
        let table = db.table(S::TABLE).expect("memory");
        let mut world = Self { db, table, rows: Model::new() };
        for (steps, end) in program {
            world.transact(steps, *end)?;
            world.check()?;
        }
        Ok(())
    }

    fn transact(&mut self, steps: &[Step<S::Key>], end: End) -> Result<(), TestCaseError> {
        let (table, mut rows) = (self.table, self.rows.clone());
        match end {
            End::Commit | End::Drop => {
                let mut tx = self.db.begin().expect("a transaction");
                Self::steps(&mut tx, table, steps, &mut rows)?;
                if end == End::Commit {
                    tx.commit().expect("nothing is in its way");
                    self.rows = rows;
                }
            }
            End::CommitClosure | End::FailClosure => {
                let mut failed = Ok(());
                let ended = self.db.transact(|tx| {
                    rows.clone_from(&self.rows);
                    failed = Self::steps(tx, table, steps, &mut rows);
                    if end == End::FailClosure { Err(Error::aborted("on purpose")) } else { Ok(()) }
                });
                failed?;
                prop_assert_eq!(ended.is_ok(), end == End::CommitClosure);
                if ended.is_ok() {
                    self.rows = rows;
                }
            }
        }
        Ok(())
    }

    fn steps(
        tx: &mut Tx<'_>,
        table: Table<S::Key, S::Codec, S::Kind>,
        steps: &[Step<S::Key>],
        rows: &mut Model<S::Key>,
    ) -> Result<(), TestCaseError> {
        let mut points = Vec::new();
        steps.iter().try_for_each(|step| match Self::step(tx, table, step, rows, &mut points) {
            Ok(checked) => checked,
            Err(error) => Err(TestCaseError::fail(format!("{step:?}: {error}"))),
        })
    }

    fn step(
        tx: &mut Tx<'_, DefaultConfig>,
        table: Table<S::Key, S::Codec, S::Kind>,
        step: &Step<S::Key>,
        rows: &mut Model<S::Key>,
        points: &mut Vec<(Savepoint, Model<S::Key>)>,
    ) -> Result<Result<(), TestCaseError>, Error> {
        Ok(match step {
            Step::Get(key) => {
                let length = tx.view(table, key, |_| ())?;
                let is_there = tx.contains(table, key)?;
                same(&(tx.get(table, key)?, length.is_some(), is_there), &{
                    let row = rows.get(key).cloned();
                    (row.clone(), row.is_some(), row.is_some())
                })
            }
            Step::GetMany(keys) => {
                let expected: Vec<_> = keys.iter().map(|key| rows.get(key).cloned()).collect();
                same(&tx.get_many(table, keys)?, &expected)
            }
            Step::Put(key, value) => {
                rows.insert(key.clone(), value.clone());
                tx.put(table, key, value.borrow())?;
                Ok(())
            }
            Step::Insert(key, value) => {
                let is_new = match tx.insert(table, key, value.borrow()) {
                    Ok(()) => true,
                    Err(Error::Exists { .. }) => false,
                    Err(error) => return Err(error),
                };
                let was_there = rows.contains_key(key);
                rows.entry(key.clone()).or_insert_with(|| value.clone());
                same(&is_new, &!was_there)
            }
            Step::InsertMany(new) => {
                let given = new.iter().map(|(key, value)| (key.clone(), value.borrow()));
                let are_new = match tx.insert_many(table, given) {
                    Ok(()) => true,
                    Err(Error::Exists { .. }) => false,
                    Err(error) => return Err(error),
                };
                let mut were_there = false;
                for (key, value) in new {
                    were_there = were_there || rows.contains_key(key);
                    if !were_there {
                        rows.insert(key.clone(), value.clone());
                    }
                }
                same(&are_new, &!were_there)
            }
            Step::Update(key, value) => {
                let updated = tx.update(table, key, |row| std::mem::replace(row, value.clone()))?;
                same(&updated, &rows.get_mut(key).map(|row| std::mem::replace(row, value.clone())))
            }
            Step::Remove(key) => same(&tx.remove(table, key)?, &rows.remove(key)),
            Step::Range { bounds, is_up, most } => match S::range(tx, table, bounds.clone(), *is_up, *most)? {
                Some(found) => {
                    let mut expected = within(rows, bounds);
                    if !is_up {
                        expected.reverse();
                    }
                    expected.truncate(*most);
                    same(&found, &expected)
                }
                None => Ok(()),
            },
            Step::Ends(bounds) => match S::ends(tx, table, bounds.clone())? {
                Some(found) => {
                    let expected = within(rows, bounds);
                    same(&found, &(expected.len() as u64, expected.first().cloned(), expected.last().cloned()))
                }
                None => Ok(()),
            },
            Step::Sweep { bounds, is_up, most, value } => {
                let swept = S::sweep(tx, table, bounds.clone(), *is_up, *most, value.as_ref())?;
                let Some(swept) = swept else { return Ok(Ok(())) };
                let mut expected = within(rows, bounds);
                if !is_up {
                    expected.reverse();
                }
                expected.truncate(*most);
                for (key, _) in &expected {
                    match value {
                        Some(value) => rows.insert(key.clone(), value.clone()),
                        None => rows.remove(key),
                    };
                }
                same(&swept, &expected)
            }
            Step::Prefetch(keys) => {
                tx.prefetch(table, keys.iter())?;
                Ok(())
            }
            Step::Savepoint => {
                points.push((tx.savepoint(), rows.clone()));
                Ok(())
            }
            Step::Return(_) if points.is_empty() => Ok(()),
            Step::Return(which) => {
                let which = which.index(points.len());
                let undone = points.split_off(which + 1);
                let (point, then) = &points[which];
                tx.return_to(*point)?;
                rows.clone_from(then);
                let refused =
                    undone.iter().all(|(point, _)| matches!(tx.return_to(*point), Err(Error::OtherSavepoint)));
                same(&refused, &true)
            }
        })
    }

    /// Checks that other transactions see the expected rows, and that absent keys leave no records.
    fn check(&self) -> Result<(), TestCaseError> {
        let mut tx = self.db.begin().expect("a transaction");
        for (key, value) in &self.rows {
            let found = tx.get(self.table, key).expect("sound");
            prop_assert_eq!(found.as_ref(), Some(value));
        }
        let all = (Bound::Unbounded, Bound::Unbounded);
        if let Some(found) = S::range(&mut tx, self.table, all.clone(), true, usize::MAX).expect("sound") {
            prop_assert_eq!(found, within(&self.rows, &all));
        }
        prop_assert_eq!(self.db.tables().expect("sound"), [(S::TABLE.name(), self.rows.len() as u64)]);
        Ok(())
    }
}

/// Returns the rows in a range, which may be inverted.
fn within<K: Ord + Clone>(rows: &Model<K>, bounds: &Bounds<K>) -> Vec<(K, Value)> {
    rows.iter().filter(|(key, _)| bounds.contains(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn same<T: PartialEq + Debug>(found: &T, expected: &T) -> Result<(), TestCaseError> {
    prop_assert_eq!(found, expected);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_hash_table_of_words(program in program::<HashOfWords>()) {
        World::<HashOfWords>::run(&program)?;
    }

    #[test]
    fn a_hash_table_of_names(program in program::<HashOfNames>()) {
        World::<HashOfNames>::run(&program)?;
    }

    #[test]
    fn a_tree_of_words(program in program::<TreeOfWords>()) {
        World::<TreeOfWords>::run(&program)?;
    }

    #[test]
    fn a_tree_of_names(program in program::<TreeOfNames>()) {
        World::<TreeOfNames>::run(&program)?;
    }
}
