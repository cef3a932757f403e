//! Litmus tests: small cases with known outcomes.
//!
//! The first are deterministic: one transaction runs in the middle of another. The others are the
//! shapes in which published systems failed: two threads begin together, repeatedly.

use std::{
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Barrier,
    thread,
};

use drtm_htm::{Emulated, Native, NoHtm};
use drtm_testing::rounds;
use drtm_txn::{Config, Conflict, Error, Tx};

use crate::{
    settings::{On, Sound, Tested, database},
    world::{FIRST_SORTED, Place, TABLES, World, value},
};

type Plain = World<On<NoHtm>>;

fn plain() -> Plain {
    World::new(database::<NoHtm, Sound>(&NoHtm))
}

/// Returns a row of each table.
fn places() -> [Place; TABLES as usize] {
    [0, 1, 2, 3].map(|table| Place { table, key: 7 })
}

/// Returns a write with a short value, or with a long one that makes the row move.
fn write_of(is_long: bool) -> u64 {
    (1..).find(|write| (value(*write).len() > 100) == is_long).expect("there are such")
}

/// Commits a transaction in between.
fn meanwhile<S: Config>(world: &World<S>, body: impl FnOnce(&mut Tx<'_, S>) -> Result<(), Error>) {
    let mut tx = world.db.begin().expect("a transaction");
    body(&mut tx).and_then(|()| tx.commit()).expect("nothing is in its way");
}

#[test]
fn a_transaction_knows_its_own_write_though_the_row_has_moved() {
    for place in places() {
        let (world, runs) = (plain(), std::cell::Cell::new(0));
        let (short, long) = (write_of(false), write_of(true));
        meanwhile(&world, |tx| world.put(tx, place, short));
        let committed = world.db.transact(|tx| {
            runs.set(runs.get() + 1);
            world.put(tx, place, short + 1000)?;
            if runs.get() == 1 {
                // On a thread of its own, because closures cannot nest transactions.
                thread::scope(|scope| _ = scope.spawn(|| meanwhile(&world, |tx| world.put(tx, place, long))));
            }
            // An application may rely on this. If it does not hold, neither the run nor its panic
            // may count.
            assert_eq!(world.get(tx, place)?, Some(short + 1000));
            Ok(())
        });
        assert!(committed.is_ok() && runs.get() == 2);
    }
}

#[test]
fn a_transaction_knows_its_own_write_though_the_row_has_gone() {
    for place in places() {
        let world = plain();
        meanwhile(&world, |tx| world.put(tx, place, 1));
        let mut tx = world.db.begin().expect("a transaction");
        world.put(&mut tx, place, 2).expect("it is there");
        meanwhile(&world, |tx| world.remove(tx, place).map(|was_there| assert!(was_there)));
        // Opacity: a conflict rather than a wrong result.
        assert!(matches!(world.get(&mut tx, place), Err(Error::Conflict(Conflict::Moved))));
        assert!(tx.commit().is_err());
    }
}

#[test]
fn a_write_finds_its_row_and_no_other_in_the_same_memory() {
    // The number of reuses after which memory has the same incarnation.
    const USES: u64 = 1 << 14;
    for place in places() {
        let (world, other) = (plain(), Place { key: 8, ..place });
        meanwhile(&world, |tx| world.put(tx, place, 6));
        let mut tx = world.db.begin().expect("a transaction");
        world.put(&mut tx, place, 12).expect("it is there");
        meanwhile(&world, |tx| world.remove(tx, place).map(|was_there| assert!(was_there)));
        for _ in 0..USES - 1 {
            meanwhile(&world, |tx| world.put(tx, other, 18));
            meanwhile(&world, |tx| world.remove(tx, other).map(|was_there| assert!(was_there)));
        }
        meanwhile(&world, |tx| world.put(tx, other, 18));
        let ended = tx.commit();
        assert!(matches!(ended, Err(Error::Conflict(Conflict::Moved))), "{place:?}: {ended:?}");
        meanwhile(&world, |tx| {
            assert_eq!((world.get(tx, place)?, world.get(tx, other)?), (None, Some(18)));
            Ok(())
        });
    }
}

#[test]
fn an_empty_range_is_true_together_with_what_was_read_before() {
    const ALL: (Bound<u64>, Bound<u64>) = (Bound::Unbounded, Bound::Unbounded);
    for table in FIRST_SORTED..TABLES {
        let (world, place) = (plain(), Place { table: 0, key: 1 });
        let row = Place { table, key: 5 };
        meanwhile(&world, |tx| world.put(tx, place, 1).and_then(|()| world.put(tx, row, 2)));
        let mut tx = world.db.begin().expect("a transaction");
        assert_eq!(world.get(&mut tx, place).expect("it is there"), Some(1));
        meanwhile(&world, |tx| world.put(tx, place, 3).and_then(|()| world.remove(tx, row)).map(|_| ()));
        let nothing = world.end_of(&mut tx, table, ALL, true);
        assert!(matches!(nothing, Err(Error::Conflict(Conflict::Validation))), "{nothing:?}");
    }
}

#[test]
fn keys_that_begin_alike_are_inserted_at_once() {
    // Each transaction finds the other's record in a tree of byte strings. That record marks its
    // key as absent.
    let (world, keys) = (plain(), [7, 8]);
    let [mut one, mut two] = [0, 1].map(|_| world.db.begin().expect("a transaction"));
    assert!(world.insert(&mut one, Place { table: 3, key: keys[0] }, 1).expect("memory"));
    assert!(world.insert(&mut two, Place { table: 3, key: keys[1] }, 2).expect("memory"));
    one.commit().expect("nothing is in its way");
    two.commit().expect("only the leaf has changed, in which it has seen nothing");
    meanwhile(&world, |tx| {
        let found = keys.map(|key| world.get(tx, Place { table: 3, key }));
        found.into_iter().zip([1, 2]).try_for_each(|(found, write)| found.map(|found| assert_eq!(found, Some(write))))
    });
}

#[test]
fn a_savepoint_is_of_one_transaction_and_of_what_was_not_undone() {
    let (world, [first, second, third, _]) = (plain(), places());
    let [mut one, mut two] = [0, 1].map(|_| world.db.begin().expect("a transaction"));
    let (begin, others) = (one.savepoint(), two.savepoint());
    assert!(matches!(one.return_to(others), Err(Error::OtherSavepoint)));
    world.put(&mut one, first, 1).expect("memory");
    let undone = one.savepoint();
    one.return_to(begin).expect("it is known");
    world.put(&mut one, second, 2).expect("memory");
    world.put(&mut one, third, 3).expect("memory");
    assert!(matches!(one.return_to(undone), Err(Error::OtherSavepoint)));
    let later = one.savepoint();
    assert!(matches!(one.return_to(undone), Err(Error::OtherSavepoint)), "nor is it the later one");
    one.return_to(later).and_then(|()| one.commit()).expect("nothing is in its way");
    meanwhile(&world, |tx| {
        let found = [first, second, third].map(|place| world.get(tx, place).expect("sound"));
        assert_eq!(found, [None, Some(2), Some(3)]);
        Ok(())
    });
}

#[test]
fn a_panic_undoes_everything_and_the_thread_goes_on() {
    let world = plain();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        world.db.transact::<()>(|tx| {
            places().into_iter().try_for_each(|place| world.put(tx, place, 1))?;
            resume_unwind(Box::new("on purpose"))
        })
    }));
    assert_eq!(ended.expect_err("it panics").downcast_ref(), Some(&"on purpose"));
    meanwhile(&world, |tx| {
        let found = places().map(|place| world.get(tx, place).expect("sound"));
        assert_eq!(found, [None; TABLES as usize]);
        Ok(())
    });
    assert!(world.db.tables().expect("sound").iter().all(|(_, records)| *records == 0), "records are left");
}

/// The number of concurrent runs.
const MEETINGS: u64 = 400;

/// Runs two transactions concurrently, [`MEETINGS`] times, and a third after each run, on every
/// engine of a type.
fn meet<E: Tested>(
    prepare: impl Fn(&World<On<E>>, &mut Tx<'_, On<E>>) -> Result<(), Error>,
    one: impl Fn(&World<On<E>>, &mut Tx<'_, On<E>>) -> Result<(), Error> + Sync,
    two: impl Fn(&World<On<E>>, &mut Tx<'_, On<E>>) -> Result<(), Error> + Sync,
    check: impl Fn(&World<On<E>>, &mut Tx<'_, On<E>>) -> Result<(), Error>,
) {
    for (_, engine) in E::all() {
        let world = World::new(database::<E, Sound>(&engine));
        let done = |ended: Result<(), Error>| ended.expect("nothing but conflicts");
        for _ in 0..rounds(MEETINGS) {
            done(world.db.transact(|tx| prepare(&world, tx)));
            let barrier = Barrier::new(2);
            thread::scope(|scope| {
                scope.spawn(|| {
                    barrier.wait();
                    done(world.db.transact(|tx| one(&world, tx)));
                });
                barrier.wait();
                done(until_committed(&world, &two));
            });
            done(world.db.transact(|tx| check(&world, tx)));
        }
    }
}

/// Retries an explicit transaction until it commits. Its reads are consistent throughout.
fn until_committed<S: Config>(
    world: &World<S>,
    body: impl Fn(&World<S>, &mut Tx<'_, S>) -> Result<(), Error>,
) -> Result<(), Error> {
    loop {
        let mut tx = world.db.begin()?;
        match body(world, &mut tx).and_then(|()| tx.commit()) {
            Err(Error::Conflict(_)) => {}
            ended => return ended,
        }
    }
}

const X: u64 = 1;
const Y: u64 = 2;

/// Returns the two rows of a shape in each table.
fn tables() -> impl Iterator<Item = [Place; 2]> {
    (0..TABLES).map(|table| [X, Y].map(|key| Place { table, key }))
}

/// Returns the number of a row's write; the value's length is irrelevant.
fn number<S: Config>(world: &World<S>, tx: &mut Tx<'_, S>, place: Place) -> Result<u64, Error> {
    Ok(world.get(tx, place)?.unwrap_or(0))
}

macro_rules! on_every_engine {
    ($(#[$doc:meta])* $name:ident, |$world:ident, $tx:ident, $places:ident| $prepare:expr, $one:expr, $two:expr, $check:expr) => {
        mod $name {
            use super::*;

            fn run<E: Tested>() {
                meet::<E>(
                    |$world, $tx| tables().try_for_each(|$places| $prepare),
                    |$world, $tx| tables().try_for_each(|$places| $one),
                    |$world, $tx| tables().try_for_each(|$places| $two),
                    |$world, $tx| tables().try_for_each(|$places| $check),
                );
            }

            $(#[$doc])*
            #[test]
            fn without_regions() {
                run::<NoHtm>();
            }

            #[test]
            fn in_emulated_regions() {
                run::<Emulated>();
            }

            #[test]
            fn with_what_the_machine_has() {
                run::<Native>();
            }
        }
    };
}

on_every_engine!(
    /// {x = 1, y = 1} beside {x = 2, y = 2}: both rows are equal afterwards.
    direct_writes,
    |world, tx, places| places.into_iter().try_for_each(|place| world.put(tx, place, 100)),
    places.into_iter().try_for_each(|place| world.put(tx, place, 1)),
    places.into_iter().rev().try_for_each(|place| world.put(tx, place, 2)),
    {
        let [x, y] = places.map(|place| number(world, tx, place));
        let (x, y) = (x?, y?);
        assert!(x == y && [1, 2].contains(&x), "{x} {y}");
        Ok(())
    }
);

on_every_engine!(
    /// {y = x + 1} beside {x = y + 1}: one reads the other's write.
    crossed_writes,
    |world, tx, places| places.into_iter().try_for_each(|place| world.put(tx, place, 100)),
    {
        let x = number(world, tx, places[0])?;
        world.put(tx, places[1], x + 1)
    },
    {
        let y = number(world, tx, places[1])?;
        world.put(tx, places[0], y + 1)
    },
    {
        let [x, y] = places.map(|place| number(world, tx, place));
        let (x, y) = (x?, y?);
        assert!([(102, 101), (101, 102)].contains(&(x, y)), "{x} {y}");
        Ok(())
    }
);

on_every_engine!(
    /// A row moves from x to y beside a reader. The reader finds exactly one row, in every way of
    /// reading.
    moving,
    |world, tx, places| {
        world.put(tx, places[0], 100)?;
        world.remove(tx, places[1]).map(|_| ())
    },
    {
        let was = world.take(tx, places[0])?;
        assert!(was.is_some() && world.insert(tx, places[1], 101)?);
        Ok(())
    },
    {
        let [x, y] = places.map(|place| world.get(tx, place));
        assert!(x?.is_some() != y?.is_some(), "a reader must not see this, not even if it is to be run again");
        if places[0].table >= FIRST_SORTED {
            let mut rows = 0;
            let all = (Bound::Included(X), Bound::Included(Y));
            let is_up = places[0].table == FIRST_SORTED;
            world.range(tx, places[0].table, all, is_up, |_, _| {
                rows += 1;
                true
            })?;
            assert_eq!(rows, 1, "a range must not show this");
        }
        Ok(())
    },
    {
        let [x, y] = places.map(|place| world.get(tx, place));
        assert_eq!((x?, y?), (None, Some(101)));
        Ok(())
    }
);

on_every_engine!(
    /// Each inserts a row unless the other's exists, checked by a lookup or by a range.
    inserting,
    |world, tx, places| places.into_iter().try_for_each(|place| world.remove(tx, place).map(|_| ())),
    insert_unless(world, tx, places[0], places[1]),
    insert_unless(world, tx, places[1], places[0]),
    {
        let [x, y] = places.map(|place| world.get(tx, place));
        assert!(x?.is_some() != y?.is_some(), "a phantom");
        Ok(())
    }
);

fn insert_unless<S: Config>(world: &World<S>, tx: &mut Tx<'_, S>, place: Place, other: Place) -> Result<(), Error> {
    let is_there = if other.table >= FIRST_SORTED {
        let range = (Bound::Included(other.key), Bound::Included(other.key));
        world.end_of(tx, other.table, range, place.key == X)?.is_some()
    } else {
        world.contains(tx, other)?
    };
    if !is_there {
        world.put(tx, place, 5)?;
    }
    Ok(())
}

on_every_engine!(
    /// Both increment the same row. Each value is longer than the previous one, so that the row
    /// moves.
    counting,
    |world, tx, places| world.put(tx, places[0], 3),
    count(world, tx, places[0]),
    count(world, tx, places[0]),
    {
        assert_eq!(number(world, tx, places[0])?, 5, "an update is lost");
        Ok(())
    }
);

fn count<S: Config>(world: &World<S>, tx: &mut Tx<'_, S>, place: Place) -> Result<(), Error> {
    let value = number(world, tx, place)?;
    let was = world.update(tx, place, value + 1)?;
    assert_eq!(was, Some(value), "a transaction reads the same twice");
    Ok(())
}
