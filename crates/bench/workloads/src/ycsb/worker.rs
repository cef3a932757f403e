//! Runs operations, each in a transaction of its own or several in one.

use std::{hint::black_box, iter};

use drtm_drive::{Body, Client, Done, Error, Reads};
use drtm_txn::{Config, Db, Error as DbError, OneNode, ready};

use super::{
    Inputs, Operation, Transactions,
    bodies::{Accesses, Insert, Scan},
    key,
    layout::{Layout, Records},
};

/// The task of a worker.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a thread has one")]
pub(super) enum Task {
    Core(Inputs),
    Transactions(Transactions),
}

/// A thread with its task.
#[derive(Debug)]
#[repr(align(128))]
pub struct Worker<'db, S: Config, O, const FIELDS: usize> {
    db: &'db Db<S>,
    records: Records<O, FIELDS>,
    task: Task,
    /// The number of fields written.
    written: u64,
    /// The numbers of records inserted.
    inserted: Vec<u64>,
}

impl<'db, S: Config, O: Layout, const FIELDS: usize> Worker<'db, S, O, FIELDS> {
    pub(super) fn new(db: &'db Db<S>, records: Records<O, FIELDS>, task: Task) -> Self {
        Self { db, records, task, written: 0, inserted: Vec::new() }
    }

    /// Returns the number of field writes.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Returns the numbers of the records that it inserted.
    pub(super) fn inserted(&self) -> impl Iterator<Item = u64> {
        self.inserted.iter().copied()
    }

    fn operate(&mut self, operation: Operation) -> Result<(), DbError> {
        let (db, records) = (self.db, self.records);
        match operation {
            Operation::Read { number } => access(db, records, number, None)?,
            Operation::Update { number, field } | Operation::ReadModifyWrite { number, field } => {
                access(db, records, number, Some(field))?;
                self.written += 1;
            }
            Operation::Insert { number } => {
                db.transact(|tx| ready(Insert { records, number }.run(&mut OneNode(tx), Reads::Here)))?;
                self.inserted.push(number);
            }
            Operation::Scan { number, length } => {
                let scan = Scan { records, from: key(number), length };
                black_box(db.transact(|tx| ready(scan.run(&mut OneNode(tx), Reads::Here)))?);
            }
        }
        Ok(())
    }
}

/// Reads a record, or writes a field.
#[inline(always)]
fn access<S: Config, O: Layout, const FIELDS: usize>(
    db: &Db<S>,
    records: Records<O, FIELDS>,
    number: u64,
    writes: Option<u8>,
) -> Result<(), DbError> {
    let accesses = Accesses { records, accesses: iter::once((number, writes)) };
    db.transact(|tx| ready(accesses.run(&mut OneNode(tx), Reads::Here)))
}

/// The operations' names, indexed by [`Kind`](super::Kind), and the name of a transaction of
/// several.
pub(super) const KINDS: &[&str] = &["read", "update", "insert", "scan", "read-modify-write", "transaction"];

/// The index of a transaction of several operations.
pub(super) const SEVERAL: usize = 5;

impl<S: Config, O: Layout, const FIELDS: usize> Client for Worker<'_, S, O, FIELDS> {
    fn kinds() -> &'static [&'static str] {
        KINDS
    }

    fn run_next(&mut self, _date: u64) -> Result<Done, Error> {
        let kind = match &mut self.task {
            Task::Core(inputs) => {
                let operation = inputs.draw();
                self.operate(operation)?;
                if let (Operation::Insert { .. }, Task::Core(inputs)) = (operation, &mut self.task) {
                    inputs.inserted();
                }
                operation.kind() as usize
            }
            Task::Transactions(transactions) => {
                let transaction = transactions.draw();
                let accesses = transaction.accesses().iter().map(|of| (of.number, of.writes.then_some(0)));
                let accesses = Accesses { records: self.records, accesses };
                self.db.transact(|tx| ready(accesses.run(&mut OneNode(tx), Reads::Here)))?;
                self.written += transaction.writes() as u64;
                SEVERAL
            }
        };
        Ok(Done { kind, is_committed: true })
    }
}
