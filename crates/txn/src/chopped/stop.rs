//! What ends a piece: an error of the database, or the user's decision.

use std::fmt;

use crate::Error;

/// An error that ends a piece. The database makes it; the code of a piece can only pass it on.
///
/// # Example
///
/// See [`PieceTx`](super::PieceTx).
pub struct Stop(pub(crate) Error);

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An error that ends a piece that may abort: a [`Stop`], or the user's decision.
///
/// # Example
///
/// See [`PieceTx`](super::PieceTx).
pub struct Abort(pub(crate) Error);

impl Abort {
    /// Returns the user's decision to abort the transaction, with the reason.
    ///
    /// # Example
    ///
    /// See [`PieceTx`](super::PieceTx).
    #[cold]
    pub fn because(reason: impl Into<String>) -> Self {
        Self(Error::aborted(reason))
    }
}

impl fmt::Debug for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Stop> for Abort {
    fn from(Stop(error): Stop) -> Self {
        Self(error)
    }
}
