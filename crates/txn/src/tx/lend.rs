//! What a range reads through.

use super::{Mode, Snapshot, Tx};
use crate::{Config, Error};

mod sealed {
    pub trait Sealed {}
}

/// What lends a range the transaction to read with, for one step: a transaction that the range has
/// for itself, or a [`Snapshot`] that others read too.
///
/// # Example
///
/// See [`Range`](crate::Range).
pub trait Lend<'db, S: Config>: sealed::Sealed {
    #[doc(hidden)]
    type Mode: Mode;

    #[doc(hidden)]
    fn lend<T>(&mut self, read: impl FnOnce(&mut Tx<'db, S, Self::Mode>) -> Result<T, Error>) -> Result<T, Error>;
}

impl<S: Config, M: Mode> sealed::Sealed for &mut Tx<'_, S, M> {}

impl<'db, S: Config, M: Mode> Lend<'db, S> for &mut Tx<'db, S, M> {
    type Mode = M;

    #[inline(always)]
    fn lend<T>(&mut self, read: impl FnOnce(&mut Tx<'db, S, M>) -> Result<T, Error>) -> Result<T, Error> {
        read(self)
    }
}

impl<S: Config> sealed::Sealed for &Snapshot<'_, S> {}

impl<'db, S: Config> Lend<'db, S> for &Snapshot<'db, S> {
    type Mode = super::ReadOnly;

    #[inline(always)]
    fn lend<T>(&mut self, read: impl FnOnce(&mut Tx<'db, S, super::ReadOnly>) -> Result<T, Error>) -> Result<T, Error> {
        self.with(read)
    }
}
