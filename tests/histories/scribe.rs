//! Who notes what transactions write: told by the database itself, in which version each row is
//! left.

use std::cell::RefCell;

use drtm_txn::{Commit, RowChange, Sink, SinkError};

use crate::world::{Place, value_of};

/// A row as a transaction has left it: by which write, or `None` if it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) place: Place,
    pub(crate) version: u64,
    pub(crate) write: Option<u64>,
}

thread_local!(static TOLD: RefCell<Vec<Left>> = const { RefCell::new(Vec::new()) });

/// Notes for each thread what its commits change.
#[derive(Debug)]
pub(crate) struct Scribe;

impl Scribe {
    /// What this thread's transactions have changed since this was last asked.
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
            // All that is written is locked now: a good moment for others to have a look.
            std::thread::yield_now();
        }
        Ok(())
    }
}
