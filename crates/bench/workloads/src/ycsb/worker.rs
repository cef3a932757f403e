//! Runs operations on one node, each in a transaction of its own or several in one. As
//! [bodies](super::bodies), which run on one node, too, they would execute 7 % more instructions.

use std::hint::black_box;

use drtm_drive::{Client, Done, Error, expect_row};
use drtm_txn::{Config, Db, Error as DbError, Tx};

use super::{
    Inputs, Operation, Transactions,
    bodies::see,
    key,
    layout::{Layout, RECORD, Records},
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
        let Self { db, records, written, inserted, .. } = self;
        match operation {
            Operation::Read { number } => db.transact(|tx| read(tx, *records, number))?,
            Operation::Update { number, field } | Operation::ReadModifyWrite { number, field } => {
                db.transact(|tx| write(tx, *records, number, field))?;
                *written += 1;
            }
            Operation::Insert { number } => {
                db.transact(|tx| tx.insert(*records, key(number), &super::Row::inserted(number)))?;
                inserted.push(number);
            }
            Operation::Scan { number, length } => {
                let scanned = db.transact(|tx| O::scan(tx, *records, key(number), length))?;
                black_box(scanned);
            }
        }
        Ok(())
    }
}

#[inline(always)]
fn read<S: Config, O: Layout, const FIELDS: usize>(
    tx: &mut Tx<'_, S>,
    records: Records<O, FIELDS>,
    number: u64,
) -> Result<(), DbError> {
    let key = key(number);
    expect_row(tx.view(records, &key, |row| see(key, row))?, RECORD)
}

#[inline(always)]
fn write<S: Config, O: Layout, const FIELDS: usize>(
    tx: &mut Tx<'_, S>,
    records: Records<O, FIELDS>,
    number: u64,
    field: u8,
) -> Result<(), DbError> {
    expect_row(tx.update(records, &key(number), |row| row.write(number, field))?, RECORD)
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
                let records = self.records;
                self.db.transact(|tx| {
                    tx.prefetch(records, transaction.accesses().iter().map(|access| key(access.number)))?;
                    transaction.accesses().iter().try_for_each(|access| match access.writes {
                        true => write(tx, records, access.number, 0),
                        false => read(tx, records, access.number),
                    })
                })?;
                self.written += transaction.writes() as u64;
                SEVERAL
            }
        };
        Ok(Done { kind, is_committed: true })
    }
}
