//! The code of a transaction's pieces, as a list of types: calling a piece is a comparison, and no
//! call through a pointer.

use std::{fmt, marker::PhantomData};

use drtm_chopping::Transaction;

use super::{
    access::PieceTx,
    stop::{Abort, Stop},
};
use crate::{Config, Error};

/// The code of a chopped transaction, piece by piece, over its description. `St` is the state that
/// pieces hand over: it begins as the input of a call, and ends as its result.
///
/// # Example
///
/// See [`chopped`](super).
pub struct Procedure<S: Config, St, L = Nothing> {
    pub(super) described: Transaction<'static>,
    pub(super) code: L,
    types: PhantomData<fn(S, St)>,
}

impl<S: Config, St, L: Code<S, St>> fmt::Debug for Procedure<S, St, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Procedure").field("transaction", &self.described.name()).finish_non_exhaustive()
    }
}

/// The code of some pieces of a transaction.
///
/// # Example
///
/// See [`chopped`](super).
pub trait Code<S: Config, St>: Send + Sync + 'static {
    /// Runs the piece at this place of the description.
    #[doc(hidden)]
    fn run(&self, place: usize, tx: &mut PieceTx<'_, '_, S>, state: &mut St) -> Result<(), Error>;

    /// Calls `visit` with the name of each piece, and whether it may abort.
    #[doc(hidden)]
    fn visit(&self, visit: &mut dyn FnMut(&'static str, bool));
}

/// The code of no piece.
///
/// # Example
///
/// See [`chopped`](super).
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

/// The code of some pieces, and of one more.
///
/// # Example
///
/// See [`chopped`](super).
#[derive(Clone, Copy)]
pub struct Then<L, F> {
    before: L,
    name: &'static str,
    /// The place in the description. `None` if it has no such piece.
    place: Option<usize>,
    run: F,
}

/// Code that may abort.
///
/// # Example
///
/// See [`chopped`](super).
#[derive(Clone, Copy)]
pub struct MayAbort<F>(F);

impl<L, F> fmt::Debug for Then<L, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Then").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for MayAbort<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MayAbort")
    }
}

impl<S: Config, St> Procedure<S, St> {
    pub(super) fn of(described: Transaction<'static>) -> Self {
        Self { described, code: Nothing, types: PhantomData }
    }
}

impl<S: Config, St, L> Procedure<S, St, L> {
    fn then<F>(self, name: &'static str, run: F) -> Procedure<S, St, Then<L, F>> {
        let Self { described, code, .. } = self;
        let code = Then { before: code, name, place: described.place(name), run };
        Procedure { described, code, types: PhantomData }
    }

    /// Adds the code of a piece.
    ///
    /// It may run several times, so it must do its work through the transaction and the state. A
    /// run that is repeated begins with the state as it was.
    ///
    /// # Example
    ///
    /// See [`chopped`](super).
    #[must_use]
    pub fn piece<F>(self, name: &'static str, run: F) -> Procedure<S, St, Then<L, F>>
    where
        F: Fn(&mut PieceTx<'_, '_, S>, &mut St) -> Result<(), Stop> + Send + Sync + 'static,
    {
        self.then(name, run)
    }

    /// Adds the code of a piece in which the transaction can be aborted. The description must say
    /// so, too.
    ///
    /// # Example
    ///
    /// See [`chopped`](super).
    #[must_use]
    pub fn may_abort<F>(self, name: &'static str, run: F) -> Procedure<S, St, Then<L, MayAbort<F>>>
    where
        F: Fn(&mut PieceTx<'_, '_, S>, &mut St) -> Result<(), Abort> + Send + Sync + 'static,
    {
        self.then(name, MayAbort(run))
    }
}

impl<S: Config, St> Code<S, St> for Nothing {
    fn run(&self, place: usize, _: &mut PieceTx<'_, '_, S>, _: &mut St) -> Result<(), Error> {
        unreachable!("piece {place} has no code: this was checked at the registration")
    }

    fn visit(&self, _: &mut dyn FnMut(&'static str, bool)) {}
}

impl<S: Config, St, L, F> Code<S, St> for Then<L, F>
where
    L: Code<S, St>,
    F: Fn(&mut PieceTx<'_, '_, S>, &mut St) -> Result<(), Stop> + Send + Sync + 'static,
{
    #[inline]
    fn run(&self, place: usize, tx: &mut PieceTx<'_, '_, S>, state: &mut St) -> Result<(), Error> {
        if self.place == Some(place) {
            return (self.run)(tx, state).map_err(|Stop(error)| error);
        }
        self.before.run(place, tx, state)
    }

    fn visit(&self, visit: &mut dyn FnMut(&'static str, bool)) {
        self.before.visit(visit);
        visit(self.name, false);
    }
}

impl<S: Config, St, L, F> Code<S, St> for Then<L, MayAbort<F>>
where
    L: Code<S, St>,
    F: Fn(&mut PieceTx<'_, '_, S>, &mut St) -> Result<(), Abort> + Send + Sync + 'static,
{
    #[inline]
    fn run(&self, place: usize, tx: &mut PieceTx<'_, '_, S>, state: &mut St) -> Result<(), Error> {
        if self.place == Some(place) {
            return (self.run.0)(tx, state).map_err(|Abort(error)| error);
        }
        self.before.run(place, tx, state)
    }

    fn visit(&self, visit: &mut dyn FnMut(&'static str, bool)) {
        self.before.visit(visit);
        visit(self.name, true);
    }
}
