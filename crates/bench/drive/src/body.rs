//! Bodies of transactions, each written once for all clusters and protocols.

use std::ops::Deref;

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    AsKey, Config, Error, Point, Prefetched, Transaction,
    cluster::{Sets, Worker},
};

/// How a body reads several rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// From all owners, in one round trip.
    AtOnce,
    /// One row after the other, as systems do that do not know the rows of a transaction in
    /// advance.
    InTurn,
}

impl Reads {
    /// Looks up rows that are read or written later.
    #[inline(always)]
    pub async fn prefetch<R: Prefetched + Copy>(
        self,
        tx: &mut impl Transaction,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<(), Error> {
        if self != Self::InTurn {
            return tx.prefetch(rows, keys).await;
        }
        for key in keys {
            tx.prefetch(rows, [key]).await?;
        }
        Ok(())
    }

    /// Returns the rows of several keys, in the order of the keys.
    pub async fn get_many<R: Point>(
        self,
        tx: &mut impl Transaction,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<Vec<Option<R::Row>>, Error> {
        if self != Self::InTurn {
            return tx.get_many(rows, keys).await;
        }
        let mut found = Vec::new();
        for key in keys {
            found.push(tx.get(rows, key).await?);
        }
        Ok(found)
    }
}

/// The body of a transaction.
pub trait Body {
    /// What a run returns.
    type Output;

    /// Names the rows that are known before the body runs: all of them, or none. If there are none,
    /// they are found out by a run of the body that locks nothing.
    fn declare<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        _sets: &mut Sets<'_, '_, F, S>,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Runs it once.
    async fn run(&self, tx: &mut impl Transaction, reads: Reads) -> Result<Self::Output, Error>;
}

/// A worker as a workload uses it.
#[derive(Debug)]
pub struct Runner<'w, 'e, F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>> {
    worker: &'w Worker<'e, F, S>,
    /// How its transactions read several rows.
    pub reads: Reads,
}

impl<'w, 'e, F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>> Runner<'w, 'e, F, S> {
    /// Creates the runner of transactions that read rows in turn, or all at once.
    pub fn new(worker: &'w Worker<'e, F, S>, in_turn: bool) -> Self {
        Self { worker, reads: if in_turn { Reads::InTurn } else { Reads::AtOnce } }
    }
}

impl<'e, F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>> Deref for Runner<'_, 'e, F, S> {
    type Target = Worker<'e, F, S>;

    fn deref(&self) -> &Self::Target {
        self.worker
    }
}

/// Runs a transaction until it commits: on rows that are fetched first, if the protocol has leases.
pub async fn transact<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>, B: Body>(
    worker: &Runner<'_, '_, F, S>,
    body: &B,
) -> Result<B::Output, Error> {
    transact_if(worker.protocol().leases, worker, body).await
}

/// Runs a transaction until it commits: on rows that are fetched first, if it `fetches`.
pub async fn transact_if<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>, B: Body>(
    fetches: bool,
    worker: &Runner<'_, '_, F, S>,
    body: &B,
) -> Result<B::Output, Error> {
    if fetches {
        worker.transact_on(|sets| body.declare(sets), async |tx| body.run(tx, Reads::AtOnce).await).await
    } else {
        worker.transact(async |tx| body.run(tx, worker.reads).await).await
    }
}
