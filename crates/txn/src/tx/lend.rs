//! What a range reads through.

use super::{Mode, Tx};
use crate::{Config, Error};

mod sealed {
    pub trait Lender {}
}

pub(super) use sealed::Lender;

/// What lends a range the transaction to read with, for one step: a transaction that the range has
/// for itself, or a [`Snapshot`](crate::Snapshot) that others read too.
///
/// # Example
///
/// See [`Range`](crate::Range).
pub trait Lend<'db, S: Config>: Lender {
    #[doc(hidden)]
    type Mode: Mode;

    #[doc(hidden)]
    fn lend<T>(&mut self, read: impl FnOnce(&mut Tx<'db, S, Self::Mode>) -> Result<T, Error>) -> Result<T, Error>;
}

impl<S: Config, M: Mode> Lender for &mut Tx<'_, S, M> {}

impl<'db, S: Config, M: Mode> Lend<'db, S> for &mut Tx<'db, S, M> {
    type Mode = M;

    #[inline(always)]
    fn lend<T>(&mut self, read: impl FnOnce(&mut Tx<'db, S, M>) -> Result<T, Error>) -> Result<T, Error> {
        read(self)
    }
}
