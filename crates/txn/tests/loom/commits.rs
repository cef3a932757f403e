//! Model checking of commits: every interleaving, and every value that weak memory lets a load
//! return, of two small transactions.
//!
//! The code is the production code; only the words are loom's, in a small box. Databases with a
//! deliberate fault must make the same checks fail; those tests expect a panic.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use drtm_htm::NoHtm;
use drtm_testing::long;
use drtm_txn::{Builder, Commit, Db, Error, Mutation, Ordered, Pod, Sink, SinkError, Table, TableDef, Tx};
use loom::{sync::atomic::AtomicU64, thread};

use crate::{
    explore,
    model::{Fault, Model, Sound, faults},
};

faults! {
    Unvalidated: Some(Mutation::CommitWithoutValidation),
    Haunted: Some(Mutation::CommitDespitePhantoms),
    Hasty: Some(Mutation::ValidateBeforeLocks),
    Open: Some(Mutation::UnlockBeforeVersions),
    Ajar: Some(Mutation::CommitDespiteClosing),
    Uncounted: Some(Mutation::CommitsNotCounted)
}

const ROWS: TableDef<u64, Pod<u64>> = TableDef::hash("rows");
const SORTED: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("sorted");

/// The tables of a case: only those that it needs, because each execution creates them anew.
#[derive(Clone, Copy)]
enum Kind {
    Hash,
    Tree,
}

struct World<F: Fault> {
    db: Db<Model<F>>,
    table: Rows,
}

#[derive(Clone, Copy)]
enum Rows {
    Hash(Table<u64, Pod<u64>>),
    Tree(Table<u64, Pod<u64>, Ordered>),
}

impl<F: Fault> Clone for World<F> {
    fn clone(&self) -> Self {
        Self { db: self.db.clone(), table: self.table }
    }
}

/// Runs an operation on the table of any kind.
macro_rules! on {
    ($rows:expr, |$table:ident| $body:expr) => {
        match $rows {
            Rows::Hash($table) => $body,
            Rows::Tree($table) => $body,
        }
    };
}

impl Rows {
    fn get<F: Fault>(self, tx: &mut Tx<'_, Model<F>>, key: u64) -> Result<u64, Error> {
        Ok(on!(self, |table| tx.get(table, key))?.unwrap_or(0))
    }

    fn put<F: Fault>(self, tx: &mut Tx<'_, Model<F>>, key: u64, value: u64) -> Result<(), Error> {
        on!(self, |table| tx.put(table, key, &value))
    }

    fn remove<F: Fault>(self, tx: &mut Tx<'_, Model<F>>, key: u64) -> Result<bool, Error> {
        on!(self, |table| tx.remove(table, key).map(|row| row.is_some()))
    }

    fn count<F: Fault>(self, tx: &mut Tx<'_, Model<F>>) -> Result<u64, Error> {
        match self {
            Rows::Hash(_) => unreachable!("it has no ranges"),
            Rows::Tree(table) => tx.range(table, ..)?.count(),
        }
    }
}

impl<F: Fault> World<F> {
    /// Creates a table with these keys, each with a value of one.
    fn new(kind: Kind, keys: &[u64]) -> Self {
        let db = Builder::new().memory(2 << 10).build_with(NoHtm).expect("memory");
        let table = match kind {
            Kind::Hash => Rows::Hash(db.table(ROWS).expect("memory")),
            Kind::Tree => Rows::Tree(db.table(SORTED).expect("memory")),
        };
        let world = Self { db, table };
        let filled = world.run(|tx, table| keys.iter().try_for_each(|key| table.put(tx, *key, 1)));
        assert!(filled.is_some(), "no other thread runs");
        world
    }

    /// Runs a transaction once. Returns `None` on a conflict with the other.
    fn run<T>(&self, body: impl FnOnce(&mut Tx<'_, Model<F>>, Rows) -> Result<T, Error>) -> Option<T> {
        let mut tx = self.db.begin().expect("a transaction");
        match body(&mut tx, self.table).and_then(|value| tx.commit().map(|()| value)) {
            Ok(value) => Some(value),
            Err(Error::Conflict(_)) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Runs a closure once, without retries: its reads are validated only when it ends. To the
    /// database, all threads of a model are the same, so if one case uses closures, all its
    /// transactions must.
    fn run_closure<T>(&self, body: impl FnOnce(&mut Tx<'_, Model<F>>, Rows) -> Result<T, Error>) -> Option<T> {
        let mut body = Some(body);
        let ended = self.db.transact(|tx| match body.take() {
            Some(body) => body(tx, self.table),
            None => Err(Error::aborted("once is enough")),
        });
        match ended {
            Ok(value) => Some(value),
            Err(Error::Aborted { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn values<const N: usize>(&self, keys: [u64; N]) -> [u64; N] {
        let values = self.run(|tx, table| {
            let values: Result<Vec<u64>, Error> = keys.iter().map(|key| table.get(tx, *key)).collect();
            values
        });
        values.and_then(|values| values.try_into().ok()).expect("no other thread runs")
    }
}

/// Explores all interleavings of `first` and `second` with this many preemptions, then runs
/// `check`.
fn explore<F: Fault, T: Send + 'static>(
    preemptions: usize,
    (kind, keys): (Kind, &'static [u64]),
    first: impl Fn(&World<F>) -> T + Copy + Send + Sync + 'static,
    second: impl Fn(&World<F>) -> T + Copy + Send + Sync + 'static,
    check: impl Fn(&World<F>, T, T) + Send + Sync + 'static,
) {
    explore::explore(preemptions, move || World::new(kind, keys), first, second, check);
}

/// Like [`explore`], for two that differ only in the names of keys.
fn mirrored<F: Fault, T: Send + 'static>(
    preemptions: usize,
    (kind, keys): (Kind, &'static [u64]),
    first: impl Fn(&World<F>) -> T + Copy + Send + Sync + 'static,
    second: impl Fn(&World<F>) -> T + Copy + Send + Sync + 'static,
    check: impl Fn(&World<F>, T, T) + Send + Sync + 'static,
) {
    explore::mirrored(preemptions, move || World::new(kind, keys), first, second, check);
}

/// Both increment the same row.
fn count<F: Fault>(preemptions: usize, kind: Kind) {
    fn increment<F: Fault>(world: &World<F>) -> Option<()> {
        world.run(|tx, table| {
            let value = table.get(tx, 1)?;
            table.put(tx, 1, value + 1)
        })
    }
    mirrored::<F, _>(preemptions, (kind, &[1]), increment, increment, |world, one, two| {
        let counted = one.iter().chain(&two).count() as u64;
        assert_eq!(world.values([1]), [1 + counted], "an update is lost");
    });
}

#[test]
fn no_update_is_lost() {
    count::<Sound>(2, Kind::Hash);
}

#[test]
fn no_update_of_a_tree_is_lost() {
    count::<Sound>(long(2, 1), Kind::Tree);
}

#[test]
#[should_panic(expected = "an update is lost")]
fn without_validation_updates_are_lost() {
    count::<Unvalidated>(2, Kind::Hash);
}

#[test]
#[should_panic(expected = "an update is lost")]
fn where_locks_end_too_early_updates_are_lost() {
    count::<Open>(2, Kind::Hash);
}

/// Each writes the row that the other reads. The second to commit must have read the first one's
/// write.
fn cross<F: Fault>(preemptions: usize, kind: Kind) {
    fn copy<F: Fault>(world: &World<F>, from: u64, to: u64) -> Option<()> {
        world.run(|tx, table| {
            let value = table.get(tx, from)?;
            table.put(tx, to, value + 1)
        })
    }
    mirrored::<F, _>(
        preemptions,
        (kind, &[1, 2]),
        |world| copy(world, 1, 2),
        |world| copy(world, 2, 1),
        |world, one, two| {
            let expected: &[[u64; 2]] = match (one, two) {
                (Some(()), Some(())) => &[[3, 2], [2, 3]],
                (Some(()), None) => &[[1, 2]],
                (None, Some(())) => &[[2, 1]],
                (None, None) => &[[1, 1]],
            };
            let left = world.values([1, 2]);
            assert!(expected.contains(&left), "writes are skewed: {left:?}");
        },
    );
}

#[test]
fn writes_are_not_skewed() {
    cross::<Sound>(2, Kind::Hash);
}

#[test]
fn writes_of_a_tree_are_not_skewed() {
    cross::<Sound>(long(2, 1), Kind::Tree);
}

#[test]
#[should_panic(expected = "writes are skewed")]
fn without_validation_writes_are_skewed() {
    cross::<Unvalidated>(2, Kind::Hash);
}

#[test]
#[should_panic(expected = "writes are skewed")]
fn who_looks_before_locking_skews_writes() {
    cross::<Hasty>(2, Kind::Hash);
}

/// A running transaction reads a consistent state, even if it is not going to commit.
fn stays_opaque<F: Fault>(preemptions: usize, kind: Kind) {
    explore::<F, _>(
        preemptions,
        (kind, &[1, 2]),
        |world| {
            world.run(|tx, table| {
                table.put(tx, 1, 2)?;
                table.put(tx, 2, 2)
            })
        },
        |world| {
            let mut tx = world.db.begin().expect("a transaction");
            let seen = [1, 2].map(|key| world.table.get(&mut tx, key));
            if let [Ok(one), Ok(two)] = seen {
                assert_eq!(one, two, "rows of different moments");
            }
            None
        },
        |_, _, _| (),
    );
}

#[test]
fn a_running_transaction_sees_one_moment() {
    stays_opaque::<Sound>(long(2, 1), Kind::Hash);
}

#[test]
fn a_running_transaction_sees_one_moment_of_a_tree() {
    stays_opaque::<Sound>(1, Kind::Tree);
}

#[test]
#[should_panic(expected = "rows of different moments")]
fn where_commits_are_not_counted_it_sees_several() {
    stays_opaque::<Uncounted>(2, Kind::Hash);
}

/// Each inserts a row if the other's is absent.
fn insert_unless<F: Fault>(preemptions: usize, kind: Kind) {
    fn insert<F: Fault>(world: &World<F>, unless: u64, key: u64) -> Option<bool> {
        world.run(|tx, table| {
            let is_free = table.get(tx, unless)? == 0;
            if is_free {
                table.put(tx, key, 1)?;
            }
            Ok(is_free)
        })
    }
    mirrored::<F, _>(
        preemptions,
        (kind, &[]),
        |world| insert(world, 1, 2),
        |world| insert(world, 2, 1),
        |world, one, two| {
            let left = world.values([2, 1]);
            assert_eq!(left, [one, two].map(|inserted| u64::from(inserted == Some(true))));
            assert_ne!(left, [1, 1], "a phantom");
        },
    );
}

#[test]
fn what_is_absent_stays_so() {
    insert_unless::<Sound>(1, Kind::Hash);
}

#[test]
fn what_is_absent_from_a_tree_stays_so() {
    insert_unless::<Sound>(1, Kind::Tree);
}

#[test]
#[should_panic(expected = "a phantom")]
fn despite_phantoms_what_is_absent_comes() {
    insert_unless::<Haunted>(1, Kind::Hash);
}

/// A row moves from one key to another. A reader of both keys, or of all rows, finds exactly one.
fn sees_one<F: Fault>(
    preemptions: usize,
    kind: Kind,
    change: impl Fn(&World<F>) -> Option<u64> + Copy + Send + Sync + 'static,
    look: impl Fn(&World<F>) -> Option<u64> + Copy + Send + Sync + 'static,
) {
    explore::<F, _>(preemptions, (kind, &[1]), change, look, |_, _, seen| {
        assert!(seen.is_none_or(|seen| seen == 1), "saw {seen:?} rows")
    });
}

fn moved<F: Fault>(tx: &mut Tx<'_, Model<F>>, table: Rows) -> Result<u64, Error> {
    table.put(tx, 2, 1)?;
    Ok(u64::from(table.remove(tx, 1)?))
}

fn both<F: Fault>(tx: &mut Tx<'_, Model<F>>, table: Rows) -> Result<u64, Error> {
    Ok(table.get(tx, 1)? + table.get(tx, 2)?)
}

fn all<F: Fault>(tx: &mut Tx<'_, Model<F>>, table: Rows) -> Result<u64, Error> {
    table.count(tx)
}

#[test]
fn a_reader_sees_a_transaction_whole_or_not_at_all() {
    sees_one::<Sound>(1, Kind::Hash, |world| world.run(moved), |world| world.run(both));
}

#[test]
#[ignore = "long: scripts/test --all runs it"]
fn a_reader_of_a_tree_sees_a_transaction_whole_or_not_at_all() {
    sees_one::<Sound>(1, Kind::Tree, |world| world.run(moved), |world| world.run(both));
}

#[test]
#[ignore = "long: scripts/test --all runs it"]
fn a_range_shows_a_transaction_whole_or_not_at_all() {
    sees_one::<Sound>(1, Kind::Tree, |world| world.run(moved), |world| world.run(all));
}

/// Also if all rows are removed before the scan reaches them: then only their leaf is left.
#[test]
fn a_range_is_of_one_moment_whatever_goes_meanwhile() {
    sees_one::<Sound>(1, Kind::Tree, |world| world.run_closure(moved), |world| world.run_closure(all));
}

#[test]
#[should_panic(expected = "saw Some(0) rows")]
fn despite_phantoms_a_range_is_of_several_moments() {
    sees_one::<Haunted>(1, Kind::Tree, |world| world.run_closure(moved), |world| world.run_closure(all));
}

#[test]
#[should_panic(expected = "rows")]
fn without_validation_a_reader_sees_a_transaction_in_part() {
    sees_one::<Unvalidated>(2, Kind::Hash, |world| world.run(moved), |world| world.run(both));
}

/// Counts commits in a word that orders nothing. It is read only when it is final by other means.
#[derive(Debug)]
struct Told(AtomicU64);

impl Sink for Told {
    fn commit(&self, _commit: &Commit<'_>) -> Result<(), SinkError> {
        self.0.fetch_add(1, Relaxed);
        Ok(())
    }
}

/// One thread writes, the other closes the database.
fn close_beside_a_writer<F: Fault>() {
    for closer_leads in [false, true] {
        explore::model(2).check(move || {
            let counted = Arc::new(Told(AtomicU64::new(0)));
            let db: Db<Model<F>> =
                Builder::new().memory(2 << 10).sink(counted.clone()).build_with(NoHtm).expect("memory");
            let rows = db.table(ROWS).expect("memory");
            // State that the threads of a model share, because they are one thread to the system,
            // is created before they start.
            drop(db.begin().expect("a transaction"));
            let write = move |db: &Db<Model<F>>| {
                let written = db.begin().and_then(|mut tx| tx.put(rows, 1, &1).and_then(|()| tx.commit()));
                match written {
                    Ok(()) => 1,
                    Err(Error::Closed) => 0,
                    Err(error) => panic!("{error}"),
                }
            };
            let close = |db: &Db<Model<F>>, counted: &Told| {
                db.close().expect("no transaction is this thread's");
                counted.0.load(Relaxed)
            };
            let other = db.clone();
            let (written, told) = if closer_leads {
                let writer = thread::spawn(move || write(&other));
                let told = close(&db, &counted);
                (writer.join().expect("no panic"), told)
            } else {
                let closer = thread::spawn(move || close(&other, &counted));
                let written = write(&db);
                (written, closer.join().expect("no panic"))
            };
            assert_eq!(written, told, "a commit after the end");
        });
    }
}

#[test]
fn nothing_commits_after_the_end() {
    close_beside_a_writer::<Sound>();
}

#[test]
#[should_panic(expected = "a commit after the end")]
fn who_does_not_look_again_commits_after_the_end() {
    close_beside_a_writer::<Ajar>();
}
