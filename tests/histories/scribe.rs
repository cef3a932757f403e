//! Who notes what transactions write: told by the database itself, in which version each row is left.

use std::cell::RefCell;

use drtm_txn::{Change, Hook};

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

impl Hook for Scribe {
    fn changed(&self, change: Change<'_>) {
        let left = Left {
            place: Place::of(change.table, change.key),
            version: change.version.number(),
            write: change.value.map(value_of),
        };
        TOLD.with_borrow_mut(|told| told.push(left));
        // All that is written is locked now: a good moment for others to have a look.
        std::thread::yield_now();
    }
}
