//! Model checking of the starvation ticket: every interleaving, and every value that weak memory
//! lets a load return. Transactions are retried until they commit, and request the ticket after one
//! failure.
//!
//! The code is the production code; only the words and the ticket are loom's. A transaction that
//! waits forever is detected as a deadlock, or as an execution without an end.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use drtm_htm::NoHtm;
use drtm_txn::{Builder, Config, Db, Error, Ordered, Pod, Table, TableDef, Tx};

use crate::explore::{explore, mirrored};

#[derive(Debug)]
struct Model;

impl Config for Model {
    type Engine = NoHtm;
}

const ROWS: TableDef<u64, Pod<u64>> = TableDef::hash("rows");
const SORTED: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("sorted");

#[derive(Clone)]
struct World<T> {
    db: Db<Model>,
    table: T,
}

impl<T> World<T> {
    fn of(table: impl FnOnce(&Db<Model>) -> T) -> Self {
        let db = Builder::new().memory(2 << 10).build_with(NoHtm).expect("memory");
        let table = table(&db);
        // State that threads share here, and have each for itself otherwise, is created before the
        // threads.
        db.transact(|_| Ok(())).expect("no other thread runs");
        Self { db, table }
    }
}

type Rows = Table<u64, Pod<u64>>;

impl World<Rows> {
    /// Creates these keys, each with a value of zero.
    fn new(keys: &[u64]) -> Self {
        let world = Self::of(|db| db.table(ROWS).expect("memory"));
        keys.iter().for_each(|key| world.db.transact(|tx| tx.put(world.table, key, &0)).expect("room"));
        world
    }

    /// Increments these rows, with as many retries as necessary.
    fn count(&self, keys: &[u64]) {
        let counted = self.db.transact(|tx| keys.iter().try_for_each(|key| self.increment(tx, *key)));
        counted.expect("everybody comes through");
    }

    fn increment(&self, tx: &mut Tx<'_, Model>, key: u64) -> Result<(), Error> {
        let value = tx.get(self.table, key)?.unwrap_or(0);
        tx.put(self.table, key, &(value + 1))
    }

    fn value(&self, key: u64) -> u64 {
        self.db.transact(|tx| tx.get(self.table, key)).expect("no other thread runs").unwrap_or(0)
    }
}

#[test]
fn all_come_through() {
    mirrored(
        2,
        || World::new(&[1]),
        |world| world.count(&[1]),
        |world| world.count(&[1]),
        |world, (), ()| assert_eq!(world.value(1), 2, "an update is lost"),
    );
}

/// In opposite orders, so that two transactions that lock what they read would deadlock.
#[test]
fn of_those_who_have_failed_one_after_the_other_goes_on() {
    mirrored(
        1,
        || World::new(&[1, 2]),
        |world| world.count(&[1, 2]),
        |world| world.count(&[2, 1]),
        |world, (), ()| assert_eq!([1, 2].map(|key| world.value(key)), [2, 2], "an update is lost"),
    );
}

/// The holder of the ticket fails or panics: then the next can take it, and nothing is locked.
#[test]
fn the_ticket_is_given_back_by_who_fails() {
    let fail = |world: &World<Rows>| {
        let failed = world.db.transact(|tx| -> Result<(), Error> {
            world.increment(tx, 1)?;
            Err(Error::Missing { table: "rows" })
        });
        assert!(matches!(failed, Err(Error::Missing { .. })));
    };
    let panic = |world: &World<Rows>| {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            world.db.transact(|tx| -> Result<(), Error> {
                world.increment(tx, 1)?;
                // Without a panic message.
                resume_unwind(Box::new("gone"))
            })
        }));
        assert_eq!(panicked.err().and_then(|panic| panic.downcast::<&str>().ok()).as_deref(), Some(&"gone"));
    };
    let check = |world: &World<Rows>, (), ()| {
        assert_eq!(world.value(1), 1, "what has failed has happened");
        world.count(&[1]);
    };
    explore(2, || World::new(&[1]), fail, |world| world.count(&[1]), check);
    explore(2, || World::new(&[1]), panic, |world| world.count(&[1]), check);
}

/// Each inserts a row if the other's is absent. The holder of the ticket must not read the other's
/// row too late.
#[test]
fn no_key_comes_into_what_the_holder_has_read() {
    fn insert_unless(world: &World<Table<u64, Pod<u64>, Ordered>>, key: u64) -> bool {
        let inserted = world.db.transact(|tx| {
            let is_empty = tx.range(world.table, ..)?.count()? == 0;
            if is_empty {
                tx.insert(world.table, key, &1)?;
            }
            Ok(is_empty)
        });
        inserted.expect("everybody comes through")
    }
    mirrored(
        1,
        || World::of(|db| db.table(SORTED).expect("memory")),
        |world| insert_unless(world, 1),
        |world| insert_unless(world, 2),
        |world, one, two| {
            assert!(one != two, "a phantom, or no holder: {one} {two}");
            let rows = world.db.transact(|tx| tx.range(world.table, ..)?.count()).expect("no other thread runs");
            assert_eq!(rows, 1);
        },
    );
}
