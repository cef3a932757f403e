//! What a range reads through.

use super::{Exclusive, Mode, Tx};
use crate::{Config, Error};

mod sealed {
    pub trait Lender {}
}

use sealed::Lender;

/// What lends a range the transaction to read with, for one step: a transaction that others read
/// too, or one that the range has for itself.
///
/// # Example
///
/// See [`Range`](crate::Range).
pub trait Lend<'db, S: Config>: Lender {
    #[doc(hidden)]
    type Mode: Mode;

    #[doc(hidden)]
    fn lend<T>(
        &mut self,
        read: impl FnOnce(&mut Exclusive<'db, S, Self::Mode>) -> Result<T, Error>,
    ) -> Result<T, Error>;

    /// Returns whether a row is copied before a closure is shown it.
    #[doc(hidden)]
    fn copies(&self) -> bool;
}

impl<S: Config, M: Mode> Lender for &mut Tx<'_, S, M> {}

impl<'db, S: Config, M: Mode> Lend<'db, S> for &mut Tx<'db, S, M> {
    type Mode = M;

    #[inline(always)]
    fn lend<T>(&mut self, read: impl FnOnce(&mut Exclusive<'db, S, M>) -> Result<T, Error>) -> Result<T, Error> {
        read(self.exclusive())
    }

    #[inline(always)]
    fn copies(&self) -> bool {
        false
    }
}

impl<S: Config, M: Mode> Lender for &Tx<'_, S, M> {}

impl<'db, S: Config, M: Mode> Lend<'db, S> for &Tx<'db, S, M> {
    type Mode = M;

    #[inline(always)]
    fn lend<T>(&mut self, read: impl FnOnce(&mut Exclusive<'db, S, M>) -> Result<T, Error>) -> Result<T, Error> {
        self.with(read)
    }

    #[inline(always)]
    fn copies(&self) -> bool {
        self.copies
    }
}
