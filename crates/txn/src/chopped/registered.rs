//! A registered program: its chopping, publications, and transactions that have halted.

use std::{fmt, sync::Arc};

use drtm_chopping::Chopping;

use super::{
    call::{Resume, damaged},
    remainder::Remainder,
    room::Shared,
};
use crate::{ChoppedError, Config, DefaultConfig, Error};

/// A program that is registered at a database.
///
/// # Example
///
/// See [`Sum`](super::Sum).
pub struct Registered<S: Config = DefaultConfig> {
    shared: Arc<Shared<S>>,
    /// What finishes each transaction. `None` for those that only read.
    code: Vec<Option<Arc<dyn Resume<S>>>>,
}

impl<S: Config> fmt::Debug for Registered<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered").field("program", &self.shared.program).finish_non_exhaustive()
    }
}

impl<S: Config> Registered<S> {
    pub(super) fn of(shared: Arc<Shared<S>>, code: Vec<Option<Arc<dyn Resume<S>>>>) -> Self {
        Self { shared, code }
    }

    /// Returns how the transactions are chopped, and why.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, chopped::Procedures};
    ///
    /// let empty = Procedures::new(&Db::new()?, "empty").register()?;
    /// assert!(empty.chopping().transactions().is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn chopping(&self) -> &Chopping {
        &self.shared.chopping
    }

    /// Publishes what was deferred, without waiting for the end of the epoch.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] if a row does not exist that was added to;
    /// [`ChoppedError::HaltedOthers`]; otherwise as for [`Db::transact`](crate::Db::transact).
    ///
    /// # Example
    ///
    /// See [`Sum`](super::Sum).
    pub fn publish(&self) -> Result<(), Error> {
        let shared = &*self.shared;
        if shared.db.is_in_closure() {
            return Err(Error::Nested);
        }
        shared.publish_and(&[], || Ok(()))
    }

    /// Runs what is left of transactions that have [halted](ChoppedError::Halted). Returns how many
    /// have ended.
    ///
    /// # Errors
    ///
    /// The first error. Transactions that have halted again, and those not tried yet, stay halted.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     ChoppedError, Db, Error, Pod, TableDef,
    ///     chopped::Procedures,
    ///     chopping::{Piece, Table, Transaction},
    /// };
    ///
    /// const NOTE: Table = Table::new("note", &[]);
    /// const SUM: Table = Table::new("sum", &[]);
    /// const NOTE_AND_COUNT: Transaction = Transaction::new("note and count", &[
    ///     Piece::new("note", &[NOTE.append()]),
    ///     Piece::new("count", &[SUM.add("*")]),
    /// ]);
    /// const NOTES: TableDef<u64, Pod<u64>> = TableDef::hash("note");
    /// const SUMS: TableDef<u64, Pod<u64>> = TableDef::hash("sum");
    ///
    /// let db = Db::new()?;
    /// let (notes, sums) = (db.table(NOTES)?, db.table(SUMS)?);
    /// let mut book = Procedures::new(&db, "book");
    /// let sum = book.sum(SUM.add("*"), sums)?;
    /// let note = book
    ///     .procedure::<u64>(NOTE_AND_COUNT)
    ///     .piece("note", move |tx, key| tx.insert(notes, *key, &1))
    ///     .piece("count", move |tx, _| tx.add(sum, 1, 1));
    /// let note = book.add(note);
    /// let book = book.register()?;
    ///
    /// // There is no sum yet.
    /// let Err(Error::Chopped(halted)) = note.run(7) else { panic!("it halts") };
    /// assert!(matches!(*halted, ChoppedError::Halted { piece: 2, .. }));
    /// db.transact(|tx| tx.put(sums, 1, &0))?;
    /// assert_eq!(book.resume()?, 1);
    /// assert_eq!(db.read(|tx| Ok((tx.get(notes, 7)?, tx.get(sums, 1)?)))?, (Some(1), Some(1)));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn resume(&self) -> Result<usize, Error> {
        let shared = &*self.shared;
        let mut ended = 0;
        loop {
            let next = shared.halted.lock().pop();
            let Some((row, rest)) = next else { return Ok(ended) };
            let _resuming = Resuming(shared);
            self.resume_one(row, &rest)?;
            ended += 1;
        }
    }

    fn resume_one(&self, row: Option<u64>, rest: &Remainder) -> Result<(), Error> {
        let shared = &*self.shared;
        let other =
            || ChoppedError::OtherPieces { program: shared.program.clone(), transaction: rest.transaction.clone() };
        let mut all = shared.chopping.transactions().iter();
        let number = all.position(|chopped| chopped.name() == rest.transaction).ok_or_else(other)?;
        let code = self.code[number].as_ref().ok_or_else(other)?;
        if shared.plans[number].fingerprint != rest.fingerprint {
            return Err(other().into());
        }
        code.resume(shared, number, row, rest)
    }

    /// Finishes what a crash has left.
    pub(super) fn finish(&self) -> Result<(), Error> {
        let shared = &*self.shared;
        let mut left = Vec::new();
        shared.db.transact(|tx| {
            left.clear();
            tx.walk(shared.remainders, |key, bytes| left.push((key, Remainder::decode(bytes))))
        })?;
        for (row, rest) in left {
            shared.halt(Some(row), rest.ok_or_else(|| damaged(shared))?);
        }
        self.resume()?;
        self.publish()
    }
}

/// A transaction that is being resumed: until this is dropped, it counts as halted.
struct Resuming<'s, S: Config>(&'s Shared<S>);

impl<S: Config> Drop for Resuming<'_, S> {
    fn drop(&mut self) {
        self.0.has_resumed();
    }
}
