//! Model checking of snapshots: every interleaving, and every value that weak memory lets a load
//! return, of a snapshot that is opened, read and closed while a transaction commits.
//!
//! The code is the production code; only the words are loom's, in a small box, and there is room
//! for two snapshots.
//!
//! Faults that were tried by hand, and found by
//! `a_snapshot_sees_a_transaction_whole_or_not_at_all`:
//!
//! - a commit reads the snapshot number before it has locked its write set;
//! - a commit ignores what open snapshots need;
//! - a snapshot does not order its reads after its number.

use std::sync::Arc;

use drtm_htm::NoHtm;
use drtm_txn::{Builder, Config, Db, Ordered, Pod, Range, Snapshot, Table, TableDef};
use loom::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use crate::explore::{explore, mirrored};

#[derive(Debug)]
struct Model;

impl Config for Model {
    type Engine = NoHtm;
}

const ROWS: TableDef<u64, Pod<u64>> = TableDef::hash("rows");
const SORTED: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("sorted");

/// A database with one table, created anew for each execution.
#[derive(Clone)]
struct World<T> {
    db: Db<Model>,
    table: T,
    /// Whether a commit has returned.
    is_acknowledged: Arc<AtomicBool>,
}

type Rows = Table<u64, Pod<u64>>;

impl<T> World<T> {
    fn of(table: impl FnOnce(&Db<Model>) -> T) -> Self {
        let db = Builder::new().memory(2 << 10).build_with(NoHtm).expect("memory");
        let table = table(&db);
        Self { db, table, is_acknowledged: Arc::new(AtomicBool::new(false)) }
    }

    fn snapshot(&self) -> Snapshot<'_, Model> {
        self.db.snapshot().expect("a slot")
    }
}

impl World<Rows> {
    /// Creates these keys, each with a value of one.
    fn new(keys: &[u64]) -> Self {
        let world = Self::of(|db| db.table(ROWS).expect("memory"));
        keys.iter().for_each(|key| world.set(&[*key], 1));
        world
    }

    /// Writes a value to these keys atomically.
    fn set(&self, keys: &[u64], value: u64) {
        let mut tx = self.db.begin().expect("a transaction");
        keys.iter().try_for_each(|key| tx.put(self.table, key, &value)).expect("no other thread writes");
        tx.commit().expect("no other thread writes");
    }

    fn seen(&self, snapshot: &Snapshot<'_, Model>, key: u64) -> u64 {
        snapshot.get(self.table, key).expect("it is kept").unwrap_or(0)
    }
}

impl World<Table<u64, Pod<u64>, Ordered>> {
    fn count_in_snapshot(&self) -> u64 {
        let snapshot = self.snapshot();
        snapshot.range(self.table, ..).and_then(Range::count).expect("it is kept")
    }
}

#[test]
fn a_snapshot_sees_a_transaction_whole_or_not_at_all() {
    explore(
        1,
        || World::new(&[1, 2]),
        |world| world.set(&[1, 2], 2),
        |world| {
            let snapshot = world.snapshot();
            let one = world.seen(&snapshot, 1);
            let two = world.seen(&snapshot, 2);
            assert_eq!((one, two), (two, world.seen(&snapshot, 1)), "a transaction in part");
        },
        |world, (), ()| assert_eq!(world.seen(&world.snapshot(), 1), 2),
    );
}

#[test]
fn a_snapshot_sees_what_was_acknowledged_before_it_was_opened() {
    explore(
        2,
        || World::new(&[1]),
        |world| {
            world.set(&[1], 2);
            world.is_acknowledged.store(true, Release);
        },
        |world| {
            let is_acknowledged = world.is_acknowledged.load(Acquire);
            let snapshot = world.snapshot();
            let seen = world.seen(&snapshot, 1);
            assert!(seen == 2 || seen == 1 && !is_acknowledged, "what was acknowledged is not there");
            assert_eq!(world.seen(&snapshot, 1), seen, "it has changed");
        },
        |_, (), ()| (),
    );
}

#[test]
fn a_later_snapshot_sees_no_less() {
    explore(
        1,
        || World::new(&[1]),
        |world| world.set(&[1], 2),
        |world| {
            let (first, second) = (world.snapshot(), world.snapshot());
            let then = world.seen(&second, 1);
            let before = world.seen(&first, 1);
            assert!(before <= then, "time has gone back from {before} to {then}");
            assert_eq!((world.seen(&first, 1), world.seen(&second, 1)), (before, then), "they have changed");
        },
        |_, (), ()| (),
    );
}

#[test]
fn nothing_is_kept_for_a_snapshot_that_is_closed() {
    explore(
        2,
        || World::new(&[1]),
        |world| world.set(&[1], 2),
        |world| drop(world.snapshot()),
        |world, (), ()| {
            world.set(&[1], 3);
            assert_eq!(world.db.older_versions(), 0, "an older version is left");
        },
    );
}

#[test]
fn a_snapshot_sees_a_row_that_moves_to_another_key_once() {
    explore(
        1,
        || World::new(&[1]),
        |world| {
            let mut tx = world.db.begin().expect("a transaction");
            tx.put(world.table, 2, &1).expect("no other thread writes");
            assert!(tx.remove(world.table, 1).expect("no other thread writes").is_some());
            tx.commit().expect("no other thread writes");
        },
        |world| {
            let snapshot = world.snapshot();
            let rows = world.seen(&snapshot, 1) + world.seen(&snapshot, 2);
            assert_eq!(rows, 1, "a transaction in part");
        },
        |world, (), ()| assert_eq!([1, 2].map(|key| world.seen(&world.snapshot(), key)), [0, 1]),
    );
}

#[test]
fn a_range_in_a_snapshot_has_a_row_that_moves_to_another_key_once() {
    explore(
        1,
        || {
            let world = World::of(|db| db.table(SORTED).expect("memory"));
            let mut tx = world.db.begin().expect("a transaction");
            tx.insert(world.table, 1, &1).expect("room");
            tx.commit().expect("no other thread runs");
            world
        },
        |world| {
            let mut tx = world.db.begin().expect("a transaction");
            tx.put(world.table, 2, &1).expect("no other thread writes");
            assert!(tx.remove(world.table, 1).expect("no other thread writes").is_some());
            tx.commit().expect("no other thread writes");
        },
        |world| assert_eq!(world.count_in_snapshot(), 1, "a transaction in part"),
        |_, (), ()| (),
    );
}

/// With both slots taken, the third snapshot joins the crowd. (With one preemption, by
/// `LOOM_MAX_PREEMPTIONS=1`, this takes longer than all other tests together.)
#[test]
fn a_member_of_the_crowd_sees_a_transaction_whole_or_not_at_all() {
    explore(
        0,
        || World::new(&[1, 2]),
        |world| world.set(&[1, 2], 2),
        |world| {
            let slots = [world.snapshot(), world.snapshot()];
            let member = world.snapshot();
            drop(slots);
            let one = world.seen(&member, 1);
            let two = world.seen(&member, 2);
            assert_eq!((one, two), (two, world.seen(&member, 1)), "a transaction in part");
        },
        |world, (), ()| assert_eq!(world.seen(&world.snapshot(), 1), 2),
    );
}

/// A member that shares a number sees everything acknowledged before it joined.
#[test]
fn members_of_the_crowd_share_only_numbers_that_were_taken_since_they_began() {
    let write_and_look = |world: &World<Rows>, key: u64| {
        let slot = world.snapshot();
        world.set(&[key], 2);
        let member = world.snapshot();
        assert_eq!(world.seen(&member, key), 2, "what was acknowledged is not there");
        drop((slot, member));
    };
    mirrored(
        1,
        || World::new(&[1, 2]),
        move |world| write_and_look(world, 1),
        move |world| write_and_look(world, 2),
        |world, (), ()| {
            world.set(&[1, 2], 3);
            assert_eq!(world.db.older_versions(), 0, "an older version is left");
        },
    );
}
