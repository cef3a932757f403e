//! The code of a transaction's pieces in a cluster, as a list of types.

use std::{fmt, future::Future, marker::PhantomData};

use drtm_chopping::Transaction;
use drtm_rdma::Fabric;

use super::{super::ClusterTx, access::PieceTx};
use crate::{
    Config, Error,
    chopped::{Abort, MayAbort, Nothing, Pieces, Stop, Then},
};

/// The code of a chopped transaction of a cluster, piece by piece, over its description. `St` is
/// the state that pieces hand over: it begins as the input of a call, and ends as its result.
///
/// # Example
///
/// See [`chopped`](super).
pub struct Procedure<F: Fabric, S: Config, St, L = Nothing> {
    pub(super) described: Transaction<'static>,
    pub(super) code: L,
    types: PhantomData<fn(F, S, St)>,
}

impl<F: Fabric, S: Config, St, L> fmt::Debug for Procedure<F, S, St, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Procedure").field("transaction", &self.described.name()).finish_non_exhaustive()
    }
}

/// The code of some pieces of a transaction of a cluster.
///
/// # Example
///
/// See [`chopped`](super).
pub trait Code<F: Fabric, S: Config<Engine = F::Engine>, St>: Pieces {
    /// Runs the piece at this place of the description.
    #[doc(hidden)]
    fn run(
        &self,
        place: usize,
        tx: &mut PieceTx<'_, ClusterTx<'_, F, S>>,
        state: &mut St,
    ) -> impl Future<Output = Result<(), Error>>;
}

impl<F: Fabric, S: Config<Engine = F::Engine>, St> Procedure<F, S, St> {
    pub(super) fn of(described: Transaction<'static>) -> Self {
        Self { described, code: Nothing, types: PhantomData }
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>, St, L> Procedure<F, S, St, L> {
    fn then<C>(self, name: (&'static str, bool), run: C) -> Procedure<F, S, St, Then<L, C>> {
        let Self { described, code, .. } = self;
        Procedure { code: Then::new(code, &described, name, run), described, types: PhantomData }
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
    pub fn piece<C>(self, name: &'static str, run: C) -> Procedure<F, S, St, Then<L, C>>
    where
        C: for<'t, 'e> AsyncFn(&mut PieceTx<'t, ClusterTx<'e, F, S>>, &mut St) -> Result<(), Stop>
            + Send
            + Sync
            + 'static,
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
    pub fn may_abort<C>(self, name: &'static str, run: C) -> Procedure<F, S, St, Then<L, MayAbort<C>>>
    where
        C: for<'t, 'e> AsyncFn(&mut PieceTx<'t, ClusterTx<'e, F, S>>, &mut St) -> Result<(), Abort>
            + Send
            + Sync
            + 'static,
    {
        self.then((name, true), MayAbort(run))
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>, St> Code<F, S, St> for Nothing {
    async fn run(&self, place: usize, _: &mut PieceTx<'_, ClusterTx<'_, F, S>>, _: &mut St) -> Result<(), Error> {
        unreachable!("piece {place} has no code: this was checked at the registration")
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>, St, L, C> Code<F, S, St> for Then<L, C>
where
    L: Code<F, S, St>,
    C: for<'t, 'e> AsyncFn(&mut PieceTx<'t, ClusterTx<'e, F, S>>, &mut St) -> Result<(), Stop> + Send + Sync + 'static,
{
    async fn run(&self, place: usize, tx: &mut PieceTx<'_, ClusterTx<'_, F, S>>, state: &mut St) -> Result<(), Error> {
        match self.at(place) {
            Ok(run) => run(tx, state).await.map_err(|Stop(error)| error),
            Err(before) => before.run(place, tx, state).await,
        }
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>, St, L, C> Code<F, S, St> for Then<L, MayAbort<C>>
where
    L: Code<F, S, St>,
    C: for<'t, 'e> AsyncFn(&mut PieceTx<'t, ClusterTx<'e, F, S>>, &mut St) -> Result<(), Abort> + Send + Sync + 'static,
{
    async fn run(&self, place: usize, tx: &mut PieceTx<'_, ClusterTx<'_, F, S>>, state: &mut St) -> Result<(), Error> {
        match self.at(place) {
            Ok(MayAbort(run)) => run(tx, state).await.map_err(|Abort(error)| error),
            Err(before) => before.run(place, tx, state).await,
        }
    }
}
