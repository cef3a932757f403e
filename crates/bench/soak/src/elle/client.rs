//! A client: a thread that runs random transactions, and records its requests and their results.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use drtm_txn::{Config, Db, Error as DbError, OneNode, Tx, ready};

use super::{
    draw::Draw,
    journal::{GIVEN_UP, Journal, ON_PURPOSE, Open},
    record::Operation,
    store::Store,
};
use drtm_drive::Error;

/// A client of a database.
pub(super) struct Client<'db, S: Config> {
    pub(super) db: &'db Db<S>,
    pub(super) store: Store,
    pub(super) draw: Draw,
    pub(super) journal: Journal,
    /// The number of transactions that all clients have begun.
    pub(super) begun: &'db AtomicU64,
}

impl<S: Config> Client<'_, S> {
    /// Runs `transactions`. Each retry after a conflict counts as one.
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

    /// Reads the final state.
    pub(super) fn read_last(&mut self, operations: Vec<Operation>) -> Result<(), Error> {
        // The read may be retried.
        let mut left = u64::MAX;
        let open = self.open(operations, &mut left);
        self.reading(open, &mut left)
    }

    /// Runs a transaction once, by `begin` and `commit`.
    fn by_hand(&mut self, mut open: Open) -> Result<(), Error> {
        let mut tx = self.db.begin()?;
        let ended = match self.steps(&mut tx, &mut open.operations) {
            Ok(()) => tx.commit(),
            Err(error) => {
                drop(tx);
                Err(error)
            }
        };
        self.complete(open, ended)
    }

    /// Runs a transaction as a closure, which the database retries on conflict.
    fn until_it_commits(&mut self, mut open: Open, left: &mut u64) -> Result<(), Error> {
        let db = self.db;
        let ended = db.transact(|tx| {
            self.retry(&mut open, left)?;
            let ended = self.steps(tx, &mut open.operations);
            self.journal.returns(&mut open);
            ended
        });
        self.complete(open, ended)
    }

    /// Runs a read-only transaction as a closure, possibly in a snapshot.
    fn reading(&mut self, mut open: Open, left: &mut u64) -> Result<(), Error> {
        let db = self.db;
        let ended = db.read(|tx| {
            self.retry(&mut open, left)?;
            let operations = &mut open.operations;
            let ended = operations.iter_mut().try_for_each(|operation| self.store.read(tx, operation));
            self.journal.returns(&mut open);
            ended
        });
        self.complete(open, ended)
    }

    fn steps(&mut self, tx: &mut Tx<'_, S>, operations: &mut [Operation]) -> Result<(), DbError> {
        let Self { store, draw, journal, .. } = self;
        let mut done = 0;
        while done < operations.len() {
            // Without yields, transactions would seldom overlap on few processors.
            if draw.random.u8(0..8) == 0 {
                thread::yield_now();
            }
            done +=
                ready(store.perform(&mut OneNode(tx), &mut operations[done..], &mut draw.random, &mut journal.clock))?;
        }
        if draw.random.u8(0..GIVEN_UP) == 0 { Err(DbError::aborted(ON_PURPOSE)) } else { Ok(()) }
    }

    fn open(&mut self, operations: Vec<Operation>, left: &mut u64) -> Open {
        self.begin(left);
        self.journal.open(operations)
    }

    /// Counts an attempt.
    fn begin(&self, left: &mut u64) {
        *left -= 1;
        self.begun.fetch_add(1, Relaxed);
    }

    /// Begins the next attempt if the closure is retried. Aborts when no attempt is left.
    fn retry(&mut self, open: &mut Open, left: &mut u64) -> Result<(), DbError> {
        if !open.is_run_again() {
            return Ok(());
        }
        if *left == 0 {
            return Err(DbError::aborted(ON_PURPOSE));
        }
        self.begin(left);
        self.journal.retry(open, |operations| self.draw.again(operations));
        Ok(())
    }

    fn complete(&mut self, open: Open, ended: Result<(), DbError>) -> Result<(), Error> {
        self.journal.complete(open, ended).map(drop)
    }
}
