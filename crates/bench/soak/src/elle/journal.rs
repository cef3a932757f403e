//! The journal of one client's transactions, on any number of nodes.

use drtm_history::{Clock, Outcome};
use drtm_txn::Error as DbError;

use super::record::{Observed, Operation};
use drtm_drive::Error;

/// One transaction in this many is aborted by its client.
pub(super) const GIVEN_UP: u8 = 20;

/// The reason of a deliberate abort.
pub(super) const ON_PURPOSE: &str = "given up on purpose";

/// The times and outcomes of a client's transactions.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) clock: Clock,
    process: usize,
    pub(super) record: Vec<Observed>,
}

/// A transaction in progress.
pub(super) struct Open {
    invoked: u64,
    pub(super) operations: Vec<Operation>,
    /// When its closure returned, and a later moment at which the next attempt begins: the database
    /// may begin that attempt before it calls the closure again.
    returned: Option<(u64, u64)>,
}

impl Open {
    /// Returns whether its closure has returned before, and is retried.
    pub(super) fn is_run_again(&self) -> bool {
        self.returned.is_some()
    }
}

impl Journal {
    pub(super) fn new(clock: Clock, process: usize) -> Self {
        Self { clock, process, record: Vec::new() }
    }

    pub(super) fn open(&mut self, operations: Vec<Operation>) -> Open {
        Open { invoked: self.clock.moment(), operations, returned: None }
    }

    /// Records that a closure has returned.
    pub(super) fn returns(&mut self, open: &mut Open) {
        open.returned = Some((self.clock.moment(), self.clock.moment()));
    }

    /// If the closure is retried, records that the last attempt aborted, and begins the next.
    pub(super) fn retry(&mut self, open: &mut Open, again: impl FnOnce(&[Operation]) -> Vec<Operation>) {
        let Some((returned, invoked)) = open.returned.take() else { return };
        let operations = again(&open.operations);
        let failed = std::mem::replace(open, Open { invoked, operations, returned: None });
        self.note(failed, returned, Outcome::Aborted);
    }

    /// Records a transaction's outcome. Returns an error if the database failed.
    pub(super) fn complete(&mut self, open: Open, ended: Result<(), DbError>) -> Result<Outcome, Error> {
        let outcome = match ended {
            Ok(()) => Outcome::Committed,
            Err(DbError::Conflict(_) | DbError::Contended { .. }) => Outcome::Aborted,
            Err(DbError::Aborted { reason }) if reason == ON_PURPOSE => Outcome::Aborted,
            Err(error) => return Err(error.into()),
        };
        let completed = self.clock.moment();
        self.note(open, completed, outcome);
        Ok(outcome)
    }

    fn note(&mut self, open: Open, completed: u64, outcome: Outcome) {
        let Open { invoked, operations, .. } = open;
        self.record.push(Observed { process: self.process, invoked, completed, outcome, operations });
    }
}
