//! Transactions as closures get them.

use super::{Mode, ReadOnly, Snapshot, Tx, Update};
use crate::{Config, Error};

/// A mode, and what the closure of a transaction in this mode gets.
pub(crate) trait Handled: Mode {
    type Handle<'db, S: Config>: Handle<'db, S, Self>;
}

impl Handled for Update {
    type Handle<'db, S: Config> = Tx<'db, S>;
}

impl Handled for ReadOnly {
    type Handle<'db, S: Config> = Snapshot<'db, S>;
}

/// A transaction as a closure gets it.
pub(crate) trait Handle<'db, S: Config, M: Mode> {
    fn of(tx: Tx<'db, S, M>) -> Self;

    /// Continues in a snapshot of now, which has read nothing yet.
    fn turn_to_snapshot(&mut self) -> Result<(), Error>;

    /// Returns the transaction with all that it has read, to be ended.
    fn whole(&mut self) -> &mut Tx<'db, S, M>;
}

impl<'db, S: Config> Handle<'db, S, Update> for Tx<'db, S> {
    #[inline(always)]
    fn of(tx: Self) -> Self {
        tx
    }

    fn turn_to_snapshot(&mut self) -> Result<(), Error> {
        self.turn_to_snapshot()
    }

    #[inline(always)]
    fn whole(&mut self) -> &mut Self {
        self
    }
}

impl<'db, S: Config> Handle<'db, S, ReadOnly> for Snapshot<'db, S> {
    #[inline(always)]
    fn of(tx: Tx<'db, S, ReadOnly>) -> Self {
        Self::new(tx)
    }

    fn turn_to_snapshot(&mut self) -> Result<(), Error> {
        self.turn_to_snapshot()
    }

    #[inline(always)]
    fn whole(&mut self) -> &mut Tx<'db, S, ReadOnly> {
        self.whole()
    }
}
