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
    pub(crate) described: Transaction<'static>,
    pub(crate) code: L,
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
pub trait Code<S: Config, St>: Pieces {
    /// Runs the piece at this place of the description.
    #[doc(hidden)]
    fn run(&self, place: usize, tx: &mut PieceTx<'_, '_, S>, state: &mut St) -> Result<(), Error>;
}

/// The names of the pieces that have code, on one node or in a cluster.
///
/// # Example
///
/// See [`chopped`](super).
pub trait Pieces: Send + Sync + 'static {
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
    may_abort: bool,
    run: F,
}

impl<L, F> Then<L, F> {
    /// Adds the code of one more piece of this description.
    pub(crate) fn new(
        before: L,
        described: &Transaction<'static>,
        (name, may_abort): (&'static str, bool),
        run: F,
    ) -> Self {
        Self { before, name, place: described.place(name), may_abort, run }
    }

    /// Returns the code of the piece at this place. `Err` has the code of the others.
    #[inline]
    pub(crate) fn at(&self, place: usize) -> Result<&F, &L> {
        if self.place == Some(place) { Ok(&self.run) } else { Err(&self.before) }
    }
}

/// Code that may abort.
///
/// # Example
///
/// See [`chopped`](super).
#[derive(Clone, Copy)]
pub struct MayAbort<F>(pub(crate) F);

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
    pub(crate) fn of(described: Transaction<'static>) -> Self {
        Self { described, code: Nothing, types: PhantomData }
    }
}

impl<S: Config, St, L> Procedure<S, St, L> {
    fn then<F>(self, name: (&'static str, bool), run: F) -> Procedure<S, St, Then<L, F>> {
        let Self { described, code, .. } = self;
        let code = Then::new(code, &described, name, run);
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
        self.then((name, false), run)
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
        self.then((name, true), MayAbort(run))
    }
}

impl Pieces for Nothing {
    fn visit(&self, _: &mut dyn FnMut(&'static str, bool)) {}
}

impl<L: Pieces, F: Send + Sync + 'static> Pieces for Then<L, F> {
    fn visit(&self, visit: &mut dyn FnMut(&'static str, bool)) {
        self.before.visit(visit);
        visit(self.name, self.may_abort);
    }
}

impl<S: Config, St> Code<S, St> for Nothing {
    fn run(&self, place: usize, _: &mut PieceTx<'_, '_, S>, _: &mut St) -> Result<(), Error> {
        unreachable!("piece {place} has no code: this was checked at the registration")
    }
}

impl<S: Config, St, L, F> Code<S, St> for Then<L, F>
where
    L: Code<S, St>,
    F: Fn(&mut PieceTx<'_, '_, S>, &mut St) -> Result<(), Stop> + Send + Sync + 'static,
{
    #[inline]
    fn run(&self, place: usize, tx: &mut PieceTx<'_, '_, S>, state: &mut St) -> Result<(), Error> {
        match self.at(place) {
            Ok(run) => run(tx, state).map_err(|Stop(error)| error),
            Err(before) => before.run(place, tx, state),
        }
    }
}

impl<S: Config, St, L, F> Code<S, St> for Then<L, MayAbort<F>>
where
    L: Code<S, St>,
    F: Fn(&mut PieceTx<'_, '_, S>, &mut St) -> Result<(), Abort> + Send + Sync + 'static,
{
    #[inline]
    fn run(&self, place: usize, tx: &mut PieceTx<'_, '_, S>, state: &mut St) -> Result<(), Error> {
        match self.at(place) {
            Ok(MayAbort(run)) => run(tx, state).map_err(|Abort(error)| error),
            Err(before) => before.run(place, tx, state),
        }
    }
}
