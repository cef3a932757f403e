//! Bodies of transactions that run in each way: optimistic, also with one row read after the other,
//! or on rows that are fetched first.

use std::{
    borrow::Borrow,
    future::Future,
    ops::Deref,
    pin::pin,
    task::{Context, Poll, Waker},
};

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    AsKey, Codec, Config, Error, Key, KeyRange, Kind, Ordered,
    cluster::{ClusterTable, ClusterTx, Rows, Sets, Worker},
};

/// The operations of a transaction's body: those of [`ClusterTx`], some of which [`Rows`] has, too.
/// On rows that were fetched, none of them waits.
pub trait Access {
    /// Returns the row of a key; `None` if there is none.
    async fn get<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<Option<C::Value>, Error>;

    /// Returns the rows of several keys, in their order.
    async fn get_many<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        keys: impl IntoIterator<Item = impl AsKey<K>>,
    ) -> Result<Vec<Option<C::Value>>, Error>;

    /// Returns whether there is a row of this key.
    async fn contains<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<bool, Error>;

    /// Fetches rows that are read or written later.
    async fn prefetch<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        keys: impl IntoIterator<Item = impl AsKey<K>>,
    ) -> Result<(), Error>;

    /// Inserts a row, or replaces it.
    async fn put<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
        value: impl Borrow<C::Given>,
    ) -> Result<(), Error>;

    /// Inserts a row that must not be there yet.
    async fn insert<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
        value: impl Borrow<C::Given>,
    ) -> Result<(), Error>;

    /// Changes a row, and returns the result of `change`; `None` if there is no such row.
    async fn update<K: Key, C: Codec, O: Kind, R>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
        change: impl FnOnce(&mut C::Value) -> R,
    ) -> Result<Option<R>, Error>
    where
        C::Value: Borrow<C::Given>;

    /// Removes a row, and returns it; `None` if there is none.
    async fn remove<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<Option<C::Value>, Error>;

    /// Returns the rows of a range of keys, in their order.
    async fn range<K: Key, C: Codec>(
        &mut self,
        table: ClusterTable<K, C, Ordered>,
        range: impl KeyRange<K>,
    ) -> Result<Vec<(K, C::Value)>, Error>;

    /// Returns the first rows of a range of keys, as many as `limit` at most.
    async fn range_limit<K: Key, C: Codec>(
        &mut self,
        table: ClusterTable<K, C, Ordered>,
        range: impl KeyRange<K>,
        limit: usize,
    ) -> Result<Vec<(K, C::Value)>, Error>;

    /// Returns the last row of a range of keys; `None` if the range is empty.
    async fn last<K: Key, C: Codec>(
        &mut self,
        table: ClusterTable<K, C, Ordered>,
        range: impl KeyRange<K>,
    ) -> Result<Option<(K, C::Value)>, Error>;
}

/// A transaction that reads one row after the other, as systems do that do not know the rows of a
/// transaction in advance.
#[derive(Debug)]
pub struct InTurn<'t, 'e, F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(pub &'t mut ClusterTx<'e, F, S>);

/// Implements the trait by methods of the same names, with what comes after each call. Says whether
/// several rows are read in turn.
macro_rules! accesses {
    ($type:ty, |$this:ident| $tx:expr, $in_turn:literal $(, $awaits:tt)?) => {
        impl<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>> Access for $type {
            async fn get<K: Key, C: Codec, O: Kind>(
                &mut self,
                table: ClusterTable<K, C, O>,
                key: impl AsKey<K>,
            ) -> Result<Option<C::Value>, Error> {
                let $this = self;
                $tx.get(table, key)$(.$awaits)?
            }

            async fn get_many<K: Key, C: Codec, O: Kind>(
                &mut self,
                table: ClusterTable<K, C, O>,
                keys: impl IntoIterator<Item = impl AsKey<K>>,
            ) -> Result<Vec<Option<C::Value>>, Error> {
                let $this = self;
                if !$in_turn {
                    return $tx.get_many(table, keys)$(.$awaits)?;
                }
                let mut rows = Vec::new();
                for key in keys {
                    rows.push($tx.get(table, key)$(.$awaits)??);
                }
                Ok(rows)
            }

            async fn contains<K: Key, C: Codec, O: Kind>(
                &mut self,
                table: ClusterTable<K, C, O>,
                key: impl AsKey<K>,
            ) -> Result<bool, Error> {
                let $this = self;
                $tx.contains(table, key)$(.$awaits)?
            }

            async fn prefetch<K: Key, C: Codec, O: Kind>(
                &mut self,
                table: ClusterTable<K, C, O>,
                keys: impl IntoIterator<Item = impl AsKey<K>>,
            ) -> Result<(), Error> {
                let $this = self;
                if !$in_turn {
                    return $tx.prefetch(table, keys)$(.$awaits)?;
                }
                for key in keys {
                    $tx.prefetch(table, [key])$(.$awaits)??;
                }
                Ok(())
            }

            async fn put<K: Key, C: Codec, O: Kind>(
                &mut self,
                table: ClusterTable<K, C, O>,
                key: impl AsKey<K>,
                value: impl Borrow<C::Given>,
            ) -> Result<(), Error> {
                let $this = self;
                $tx.put(table, key, value)$(.$awaits)?
            }

            async fn insert<K: Key, C: Codec, O: Kind>(
                &mut self,
                table: ClusterTable<K, C, O>,
                key: impl AsKey<K>,
                value: impl Borrow<C::Given>,
            ) -> Result<(), Error> {
                let $this = self;
                $tx.insert(table, key, value)$(.$awaits)?
            }

            async fn update<K: Key, C: Codec, O: Kind, R>(
                &mut self,
                table: ClusterTable<K, C, O>,
                key: impl AsKey<K>,
                change: impl FnOnce(&mut C::Value) -> R,
            ) -> Result<Option<R>, Error>
            where
                C::Value: Borrow<C::Given>,
            {
                let $this = self;
                $tx.update(table, key, change)$(.$awaits)?
            }

            async fn remove<K: Key, C: Codec, O: Kind>(
                &mut self,
                table: ClusterTable<K, C, O>,
                key: impl AsKey<K>,
            ) -> Result<Option<C::Value>, Error> {
                let $this = self;
                $tx.remove(table, key)$(.$awaits)?
            }

            async fn range<K: Key, C: Codec>(
                &mut self,
                table: ClusterTable<K, C, Ordered>,
                range: impl KeyRange<K>,
            ) -> Result<Vec<(K, C::Value)>, Error> {
                let $this = self;
                $tx.range(table, range)$(.$awaits)?
            }

            async fn range_limit<K: Key, C: Codec>(
                &mut self,
                table: ClusterTable<K, C, Ordered>,
                range: impl KeyRange<K>,
                limit: usize,
            ) -> Result<Vec<(K, C::Value)>, Error> {
                let $this = self;
                $tx.range_limit(table, range, limit)$(.$awaits)?
            }

            async fn last<K: Key, C: Codec>(
                &mut self,
                table: ClusterTable<K, C, Ordered>,
                range: impl KeyRange<K>,
            ) -> Result<Option<(K, C::Value)>, Error> {
                let $this = self;
                $tx.last(table, range)$(.$awaits)?
            }
        }
    };
}

accesses!(ClusterTx<'_, F, S>, |tx| tx, false, await);
accesses!(InTurn<'_, '_, F, S>, |turn| turn.0, true, await);
accesses!(Rows<'_, '_, F, S>, |rows| rows, false);

/// A worker as a workload uses it.
#[derive(Debug)]
pub struct Runner<'w, 'e, F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>> {
    worker: &'w Worker<'e, F, S>,
    /// Whether transactions read rows [in turn](InTurn).
    pub in_turn: bool,
}

impl<'w, 'e, F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>> Runner<'w, 'e, F, S> {
    /// Creates the runner of transactions that read rows in turn, or all at once.
    pub fn new(worker: &'w Worker<'e, F, S>, in_turn: bool) -> Self {
        Self { worker, in_turn }
    }
}

impl<'e, F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>> Deref for Runner<'_, 'e, F, S> {
    type Target = Worker<'e, F, S>;

    fn deref(&self) -> &Self::Target {
        self.worker
    }
}

/// The body of a transaction, in either way.
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
    async fn run(&self, tx: &mut impl Access) -> Result<Self::Output, Error>;
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
        worker.transact_on(|sets| body.declare(sets), |rows| at_once(body.run(rows))).await
    } else if worker.in_turn {
        worker.transact(async |tx| body.run(&mut InTurn(tx)).await).await
    } else {
        worker.transact(async |tx| body.run(tx).await).await
    }
}

/// Returns the output of a future that waits for nothing.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the operations on fetched rows are ready at once"),
    }
}
