//! Model checking of a table's drop beside a transaction that uses the table.

use drtm_htm::NoHtm;
use drtm_txn::{Builder, Db, Error, Mutation, Pod, Table, TableDef, Tx};

use crate::{
    explore::explore,
    model::{Fault, Model, Sound, faults},
};

faults! {
    Unchecked: Some(Mutation::DropsNotChecked)
}

const ROWS: TableDef<u64, Pod<u64>> = TableDef::hash("rows");
const OTHER: TableDef<u64, Pod<u64>> = TableDef::hash("other");

struct World<F: Fault> {
    db: Db<Model<F>>,
    rows: Table<u64, Pod<u64>>,
    other: Table<u64, Pod<u64>>,
}

impl<F: Fault> Clone for World<F> {
    fn clone(&self) -> Self {
        Self { db: self.db.clone(), ..*self }
    }
}

impl<F: Fault> World<F> {
    fn new() -> Self {
        let db = Builder::new().memory(3 << 10).build_with(NoHtm).expect("memory");
        let (rows, other) = (db.table(ROWS).expect("memory"), db.table(OTHER).expect("memory"));
        let world = Self { db, rows, other };
        world.run(|tx, world| tx.put(world.rows, 1, &1)).expect("no other thread runs");
        world
    }

    /// Runs a transaction once. Returns `None` if it conflicts with the drop.
    fn run<T>(&self, body: impl FnOnce(&mut Tx<'_, Model<F>>, &Self) -> Result<T, Error>) -> Option<T> {
        let mut tx = self.db.begin().expect("a transaction");
        match body(&mut tx, self).and_then(|value| tx.commit().map(|()| value)) {
            Ok(value) => Some(value),
            Err(Error::Conflict(_) | Error::Dropped { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A transaction's use of a table that is dropped concurrently.
type Use<F> = fn(&mut Tx<'_, Model<F>>, &World<F>) -> Result<(), Error>;

/// One transaction uses a table and writes to another. A second thread drops the table and reads
/// the other. Returns whether each committed, and what the second has read.
fn drop_beside<F: Fault>(preemptions: usize, uses: Use<F>) {
    explore(
        preemptions,
        World::<F>::new,
        move |world: &World<F>| {
            let committed = world.run(|tx, world| uses(tx, world).and_then(|()| tx.put(world.other, 1, &7)));
            (committed.is_some(), None)
        },
        |world| {
            world.db.drop_table("rows").expect("it is there");
            let found = world.run(|tx, world| tx.get(world.other, 1));
            (found.is_some(), found.flatten())
        },
        |world, (has_used, _), (has_read, found)| {
            assert!(!has_used || !has_read || found == Some(7), "a commit after the drop");
            assert!(world.run(|tx, world| tx.get(world.rows, 1)).is_none(), "it was dropped");
        },
    );
}

fn reads<F: Fault>(tx: &mut Tx<'_, Model<F>>, world: &World<F>) -> Result<(), Error> {
    // Only the row is ever visible, until its table or the transaction is refused.
    tx.get(world.rows, 1).map(|row| assert_eq!(row, Some(1)))
}

fn writes<F: Fault>(tx: &mut Tx<'_, Model<F>>, world: &World<F>) -> Result<(), Error> {
    tx.put(world.rows, 1, &2)
}

#[test]
fn a_transaction_that_reads_a_table_comes_before_its_drop() {
    drop_beside::<Sound>(1, reads);
}

#[test]
fn a_transaction_that_writes_a_table_comes_before_its_drop() {
    drop_beside::<Sound>(1, writes);
}

#[test]
#[should_panic(expected = "a commit after the drop")]
fn where_commits_do_not_look_one_that_reads_comes_after_it() {
    drop_beside::<Unchecked>(1, reads);
}

#[test]
#[should_panic(expected = "a commit after the drop")]
fn where_commits_do_not_look_one_that_writes_comes_after_it() {
    drop_beside::<Unchecked>(1, writes);
}
