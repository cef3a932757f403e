//! Model checking of the log's epochs: a transaction publishes the epoch in which it may commit,
//! while another thread closes epochs, and takes and writes the logged records.
//!
//! One thread always leads, so that no thread waits for a lock: words are loom's, the log's locks
//! are not.

use std::sync::Arc;

use drtm_htm::NoHtm;
use drtm_testing::long;
use drtm_txn::{Builder, CommitToken, Db, Durability, Mutation, Pod, Table, TableDef, durability::storage::Image};

use crate::{
    explore::explore,
    model::{Fault, Model, Sound, faults},
};

faults! {
    Unpublished: Some(Mutation::EpochNotPublished),
    ClearedEarly: Some(Mutation::EpochClearedEarly)
}

const ROWS: TableDef<u64, Pod<u64>> = TableDef::hash("rows");

/// The existing row, and the row that one thread writes.
const BEFORE: u64 = 1;
const BESIDE: u64 = 2;

fn open<F: Fault>(disk: &Image) -> Db<Model<F>> {
    let storage = Arc::new(disk.clone());
    let builder = Builder::new().memory(3 << 10).storage(storage, 1 << 10).durability(Durability::Sync);
    builder.build_with(NoHtm).expect("the disk is sound")
}

struct World<F: Fault> {
    db: Db<Model<F>>,
    rows: Table<u64, Pod<u64>>,
    disk: Image,
    /// The token of the existing row, which is not durable yet.
    before: CommitToken,
}

impl<F: Fault> Clone for World<F> {
    fn clone(&self) -> Self {
        Self { db: self.db.clone(), rows: self.rows, disk: self.disk.clone(), before: self.before.clone() }
    }
}

impl<F: Fault> World<F> {
    fn new() -> Self {
        let disk = Image::default();
        let db = open(&disk);
        let rows = db.table(ROWS).expect("memory");
        let ((), before) = db.submit(|tx| tx.put(rows, BEFORE, &7)).expect("no other thread runs");
        Self { db, rows, disk, before }
    }

    fn write(&self) -> CommitToken {
        self.db.submit(|tx| tx.put(self.rows, BESIDE, &7)).expect("it is run until it commits").1
    }

    /// Returns both rows after a power cut that loses everything unsynced.
    fn after_power_cut(&self) -> [Option<u64>; 2] {
        let db = open::<Sound>(&self.disk.after_crash(&mut |most| most - 1));
        let rows = db.table(ROWS).expect("it is there");
        [BEFORE, BESIDE].map(|key| db.read(|tx| tx.get(rows, key)).expect("no other thread runs"))
    }
}

/// One thread commits while the other makes the existing row durable. An epoch that is reported as
/// durable must be.
fn wait_beside_a_commit<F: Fault>(preemptions: usize) {
    explore(
        preemptions,
        World::<F>::new,
        |world| Some(world.write()),
        |world| {
            world.before.wait().expect("the disk is sound");
            None
        },
        |world, token, _| {
            let is_durable = token.is_some_and(|token| token.is_durable());
            let [before, beside] = world.after_power_cut();
            assert_eq!(before, Some(7), "what was waited for is lost");
            assert!(!is_durable || beside == Some(7), "what is said to be durable is lost");
        },
    );
}

/// One thread commits while the other makes a checkpoint, which replaces the log before it.
fn checkpoint_beside_a_commit<F: Fault>() {
    explore(
        1,
        World::<F>::new,
        |world| Some(world.write()),
        |world| {
            world.db.checkpoint().expect("the disk is sound");
            None
        },
        |world, token, _| {
            token.expect("it was written").wait().expect("the disk is sound");
            assert_eq!(world.after_power_cut(), [Some(7); 2], "a row is neither in the checkpoint nor in the log");
        },
    );
}

#[test]
fn an_epoch_is_closed_when_no_transaction_may_commit_in_it() {
    wait_beside_a_commit::<Sound>(long(2, 1));
}

#[test]
#[should_panic(expected = "what is said to be durable is lost")]
fn where_epochs_are_not_published_they_are_closed_too_early() {
    wait_beside_a_commit::<Unpublished>(2);
}

#[test]
fn a_closed_epoch_is_in_the_rows_that_a_checkpoint_reads() {
    checkpoint_beside_a_commit::<Sound>();
}

#[test]
#[should_panic(expected = "a row is neither in the checkpoint nor in the log")]
fn where_epochs_are_cleared_before_rows_are_written_a_checkpoint_misses_them() {
    checkpoint_beside_a_commit::<ClearedEarly>();
}
