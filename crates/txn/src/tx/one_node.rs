//! A database's transaction as one of which a body does not know what it runs on.

use std::{
    borrow::Borrow,
    future::{self, Future},
    pin::pin,
    task::{Context, Poll, Waker},
};

use super::{Savepoint, Tx};
use crate::{
    AsKey, Codec, Config, DefaultConfig, Error, Flow, Key, KeyRange, KeyedRow, Ordered, Point, Prefetched, Sorted,
    Stored, Table, Transaction, schema::table::Kind, tx::rows::sealed::Sealed,
};

/// Returns the output of a transaction's body that is written with [`Transaction`], in a
/// transaction whose operations are ready at once: in [`Db::transact`](crate::Db::transact).
///
/// # Errors
///
/// The body's; [`Error::NotReady`] if it waits for something else. The transaction is then given
/// up.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, ready};
///
/// let db = Db::new()?;
/// let waiting = db.transact(|_| ready(std::future::pending::<Result<(), Error>>()));
/// assert!(matches!(waiting, Err(Error::NotReady)));
/// # Ok::<(), Error>(())
/// ```
#[inline(always)]
pub fn ready<T, E: From<Error>>(body: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    match pin!(body).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => Err(Error::NotReady.into()),
    }
}

/// A [`Tx`] as a [`Transaction`], to run a body that is generic over what it runs on.
///
/// `Tx` itself is none, so that its own methods are called by their names wherever the trait is
/// imported.
///
/// # Example
///
/// See [`Transaction`].
#[derive(Debug)]
pub struct OneNode<'t, 'db, S: Config = DefaultConfig>(pub &'t mut Tx<'db, S>);

impl<S: Config> Sealed for OneNode<'_, '_, S> {}

// Each method is done when it is called: a coroutine for it would only cost.
impl<S: Config> Transaction for OneNode<'_, '_, S> {
    #[inline(always)]
    fn get<R: Point>(
        &mut self,
        rows: R,
        key: impl AsKey<R::Key>,
    ) -> impl Future<Output = Result<Option<R::Row>, Error>> {
        future::ready(self.0.get(rows, key))
    }

    #[inline(always)]
    fn view<R: Stored, X>(
        &mut self,
        rows: R,
        key: impl AsKey<R::Key>,
        see: impl FnOnce(R::View<'_>) -> X,
    ) -> impl Future<Output = Result<Option<X>, Error>> {
        future::ready(self.0.view(rows, key, see))
    }

    #[inline(always)]
    fn get_many<R: Point>(
        &mut self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> impl Future<Output = Result<Vec<Option<R::Row>>, Error>> {
        future::ready(self.0.get_many(rows, keys))
    }

    #[inline(always)]
    fn contains<R: Point>(&mut self, rows: R, key: impl AsKey<R::Key>) -> impl Future<Output = Result<bool, Error>> {
        future::ready(self.0.contains(rows, key))
    }

    #[inline(always)]
    fn prefetch<R: Prefetched>(
        &mut self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> impl Future<Output = Result<(), Error>> {
        future::ready(self.0.prefetch(rows, keys))
    }

    #[inline(always)]
    fn put<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
        value: impl Borrow<C::Given>,
    ) -> impl Future<Output = Result<(), Error>> {
        future::ready(self.0.put(table, key, value.borrow()))
    }

    #[inline(always)]
    fn insert<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
        value: impl Borrow<C::Given>,
    ) -> impl Future<Output = Result<(), Error>> {
        future::ready(self.0.insert(table, key, value.borrow()))
    }

    #[inline(always)]
    fn insert_many<'v, K: Key, C: Codec<Given: 'v>, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        rows: impl IntoIterator<Item = (K, &'v C::Given)>,
    ) -> impl Future<Output = Result<(), Error>> {
        future::ready(self.0.insert_many(table, rows))
    }

    #[inline(always)]
    fn update<R: Stored, X>(
        &mut self,
        rows: R,
        key: impl AsKey<R::Key>,
        change: impl FnOnce(&mut R::Row) -> X,
    ) -> impl Future<Output = Result<Option<X>, Error>>
    where
        R::Row: Borrow<R::Given>,
    {
        future::ready(self.0.update(rows, key, change))
    }

    #[inline(always)]
    fn remove<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
    ) -> impl Future<Output = Result<Option<C::Value>, Error>> {
        future::ready(self.0.remove(table, key))
    }

    #[inline(always)]
    fn range_limit<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<KeyedRow<R>>, Error>> {
        future::ready(self.0.range(rows, range).and_then(|range| range.rows().take(limit).collect()))
    }

    #[inline(always)]
    fn range_back_limit<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<KeyedRow<R>>, Error>> {
        future::ready(self.0.range(rows, range).and_then(|range| range.rev().rows().take(limit).collect()))
    }

    #[inline(always)]
    fn first<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
    ) -> impl Future<Output = Result<Option<KeyedRow<R>>, Error>> {
        future::ready(self.0.range(rows, range).and_then(|range| range.first()))
    }

    #[inline(always)]
    fn last<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
    ) -> impl Future<Output = Result<Option<KeyedRow<R>>, Error>> {
        future::ready(self.0.range(rows, range).and_then(|range| range.last()))
    }

    #[inline(always)]
    fn count<R: Sorted>(&mut self, rows: R, range: impl KeyRange<R::Key>) -> impl Future<Output = Result<u64, Error>> {
        future::ready(self.0.range(rows, range).and_then(|range| range.count()))
    }

    #[inline(always)]
    fn view_each<R: Stored<Kind = Ordered>, F: Flow>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
        limit: usize,
        mut visit: impl FnMut(R::Key, R::View<'_>) -> F,
    ) -> impl Future<Output = Result<(), Error>> {
        let mut left = limit;
        let mut visit = |key: R::Key, row: R::View<'_>| {
            left -= 1;
            let flow = visit(key, row).flow();
            if left == 0 { std::ops::ControlFlow::Break(()) } else { flow }
        };
        future::ready(match limit {
            0 => Ok(()),
            _ => self.0.range(rows, range).and_then(|mut range| range.view_each(&mut visit)),
        })
    }

    #[inline(always)]
    fn pop_first<K: Key, C: Codec>(
        &mut self,
        table: Table<K, C, Ordered>,
        range: impl KeyRange<K>,
    ) -> impl Future<Output = Result<Option<(K, C::Value)>, Error>> {
        future::ready(self.0.range_mut(table, range).and_then(|range| range.pop_first()))
    }

    #[inline(always)]
    fn pop_last<K: Key, C: Codec>(
        &mut self,
        table: Table<K, C, Ordered>,
        range: impl KeyRange<K>,
    ) -> impl Future<Output = Result<Option<(K, C::Value)>, Error>> {
        future::ready(self.0.range_mut(table, range).and_then(|range| range.pop_last()))
    }

    #[inline(always)]
    fn walk<K: Key, C: Codec, O: Kind, F: Flow>(
        &mut self,
        table: Table<K, C, O>,
        visit: impl FnMut(K, C::View<'_>) -> F,
    ) -> impl Future<Output = Result<(), Error>> {
        future::ready(self.0.walk(table, visit))
    }

    #[inline(always)]
    fn len<K: Key, C: Codec, O: Kind>(&mut self, table: Table<K, C, O>) -> impl Future<Output = Result<u64, Error>> {
        future::ready(self.0.len(table))
    }

    #[inline(always)]
    fn retain<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        keep: impl FnMut(&K, C::View<'_>) -> bool,
    ) -> impl Future<Output = Result<u64, Error>> {
        future::ready(self.0.retain(table, keep))
    }

    #[inline(always)]
    fn clear<K: Key, C: Codec, O: Kind>(&mut self, table: Table<K, C, O>) -> impl Future<Output = Result<u64, Error>> {
        future::ready(self.0.clear(table))
    }

    #[inline(always)]
    fn savepoint(&mut self) -> Savepoint {
        self.0.savepoint()
    }

    #[inline(always)]
    fn return_to(&mut self, savepoint: Savepoint) -> Result<(), Error> {
        self.0.return_to(savepoint)
    }
}
