//! A client: a thread that runs random transactions, and records its requests and their results.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use drtm_txn::{Db, Error as DbError, Setting, Tx};

use super::{
    draw::Draw,
    record::{Observed, Operation},
    store::Store,
};
use crate::{
    Error,
    history::{Clock, Outcome},
};

/// One transaction in so many is given up by its client.
const GIVEN_UP: u8 = 20;

/// The reason of a client that gives a transaction up.
const ON_PURPOSE: &str = "given up on purpose";

/// A client of a database.
pub(super) struct Client<'db, S: Setting> {
    pub(super) db: &'db Db<S>,
    pub(super) store: Store,
    pub(super) draw: Draw,
    pub(super) clock: Clock,
    pub(super) process: usize,
    /// Transactions that all clients have begun.
    pub(super) begun: &'db AtomicU64,
    pub(super) record: Vec<Observed>,
}

/// A transaction that is under way.
struct Open {
    invoked: u64,
    operations: Vec<Operation>,
    /// When its closure returned, and a later moment, at which the next attempt begins: the
    /// database may begin that attempt before it runs the closure again.
    returned: Option<(u64, u64)>,
}

impl<S: Setting> Client<'_, S> {
    /// Runs `transactions`. One that is run again after a conflict counts anew.
    pub(super) fn run(&mut self, transactions: u64) -> Result<(), Error> {
        let mut left = transactions;
        while left > 0 {
            let operations = self.draw.transaction(self.begun.load(Relaxed));
            let writes = operations.iter().any(Operation::writes);
            let open = self.open(operations, &mut left);
            match self.draw.random.u8(0..3) {
                0 => self.by_hand(open)?,
                1 if !writes => self.reading(open, &mut left)?,
                _ => self.until_it_commits(open, &mut left)?,
            }
        }
        Ok(())
    }

    /// Reads what is left in the end.
    pub(super) fn read_last(&mut self, operations: Vec<Operation>) -> Result<(), Error> {
        // It may take several attempts.
        let mut left = u64::MAX;
        let open = self.open(operations, &mut left);
        self.reading(open, &mut left)
    }

    /// Runs a transaction by `begin` and `commit`, once.
    fn by_hand(&mut self, mut open: Open) -> Result<(), Error> {
        let mut tx = self.db.begin()?;
        let ended = match self.steps(&mut tx, &mut open.operations) {
            Ok(()) => tx.commit(),
            Err(error) => {
                tx.rollback();
                Err(error)
            }
        };
        self.complete(open, ended)
    }

    /// Runs a transaction by a closure, which the database runs again on conflict.
    fn until_it_commits(&mut self, mut open: Open, left: &mut u64) -> Result<(), Error> {
        let db = self.db;
        let ended = db.transact(|tx| {
            self.retry(&mut open, left)?;
            let ended = self.steps(tx, &mut open.operations);
            open.returned = Some((self.clock.moment(), self.clock.moment()));
            ended
        });
        self.complete(open, ended)
    }

    /// Likewise for one that only reads, perhaps in a snapshot.
    fn reading(&mut self, mut open: Open, left: &mut u64) -> Result<(), Error> {
        let db = self.db;
        let ended = db.read(|tx| {
            self.retry(&mut open, left)?;
            let ended = open.operations.iter_mut().try_for_each(|operation| self.store.read(tx, operation));
            open.returned = Some((self.clock.moment(), self.clock.moment()));
            ended
        });
        self.complete(open, ended)
    }

    fn steps(&mut self, tx: &mut Tx<'_, S>, operations: &mut [Operation]) -> Result<(), DbError> {
        let Self { store, draw, clock, .. } = self;
        let mut done = 0;
        while done < operations.len() {
            // On few processors, transactions would seldom overlap.
            if draw.random.u8(0..8) == 0 {
                thread::yield_now();
            }
            done += store.perform(tx, &mut operations[done..], &mut draw.random, clock)?;
        }
        if draw.random.u8(0..GIVEN_UP) == 0 { Err(DbError::aborted(ON_PURPOSE)) } else { Ok(()) }
    }

    fn open(&mut self, operations: Vec<Operation>, left: &mut u64) -> Open {
        *left -= 1;
        self.begun.fetch_add(1, Relaxed);
        Open { invoked: self.clock.moment(), operations, returned: None }
    }

    /// Records that an attempt aborted, if its closure is run again, and begins the next. When no
    /// transaction is left, the client gives up.
    fn retry(&mut self, open: &mut Open, left: &mut u64) -> Result<(), DbError> {
        let Some((returned, invoked)) = open.returned.take() else { return Ok(()) };
        if *left == 0 {
            return Err(DbError::aborted(ON_PURPOSE));
        }
        let operations = self.draw.again(&open.operations);
        let next = Open { invoked, ..self.open(operations, left) };
        let failed = std::mem::replace(open, next);
        self.note(failed, returned, Outcome::Aborted);
        Ok(())
    }

    /// Records how a transaction ended, unless the database failed.
    fn complete(&mut self, open: Open, ended: Result<(), DbError>) -> Result<(), Error> {
        let outcome = match ended {
            Ok(()) => Outcome::Committed,
            Err(DbError::Conflict(_)) => Outcome::Aborted,
            Err(DbError::Aborted { reason }) if reason == ON_PURPOSE => Outcome::Aborted,
            Err(error) => return Err(error.into()),
        };
        let completed = self.clock.moment();
        self.note(open, completed, outcome);
        Ok(())
    }

    fn note(&mut self, open: Open, completed: u64, outcome: Outcome) {
        let Open { invoked, operations, .. } = open;
        self.record.push(Observed { process: self.process, invoked, completed, outcome, operations });
    }
}
