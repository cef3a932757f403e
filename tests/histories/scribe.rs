//! Records what transactions write: the database's sink reports the version of each written row.

use std::cell::RefCell;

use drtm_txn::{Commit, RowChange, Sink, SinkError};

use crate::world::{Place, value_of};

/// A row after a transaction: its write, or `None` if it was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) place: Place,
    pub(crate) version: u64,
    pub(crate) write: Option<u64>,
}

thread_local!(static TOLD: RefCell<Vec<Left>> = const { RefCell::new(Vec::new()) });

/// Records for each thread what its commits change.
#[derive(Debug)]
pub(crate) struct Scribe;

impl Scribe {
    /// Returns this thread's changes since the last call.
    pub(crate) fn told() -> Vec<Left> {
        TOLD.take()
    }
}

impl Sink for Scribe {
    fn commit(&self, commit: &Commit<'_>) -> Result<(), SinkError> {
        for row in commit.rows() {
            let write = match row.change() {
                RowChange::Put(value) => Some(value_of(value)),
                RowChange::Remove => None,
                other => return Err(format!("no transaction does this here: {other:?}").into()),
            };
            let left = Left { place: Place::of(row.table(), row.key()), version: row.version().number(), write };
            TOLD.with_borrow_mut(|told| told.push(left));
            // All written rows are locked now: a good moment for other threads to read.
            std::thread::yield_now();
        }
        Ok(())
    }
}
