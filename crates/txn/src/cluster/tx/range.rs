//! Reading ranges of rows, of all owners that have some.
//!
//! Each owner is asked for a page of its part of the range at a time, in the range's order, and all
//! are asked at once. Rows are merged here, with those that the transaction writes itself. Where
//! only so many rows are wanted, an owner is asked again only if it may have one before the last of
//! these.

use std::ops::Bound;

use drtm_rdma::{Fabric, Phase};

use super::{ClusterTx, PATIENCE};
use crate::{
    AsKey, Codec, Config, Error, Key, KeyRange, KeyedRow, Ordered,
    cluster::{ClusterTable, Sorted, state::Op},
    schema::key::ByRef,
    tx::position::Way,
};

impl<F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'_, F, S> {
    /// The rows of a range, of all owners, in the order of their keys. As long as the transaction
    /// has not ended, no other can bring a row into the range, or take one out.
    ///
    /// All rows are read at once, where a database gives a cursor: over a network, each step of a
    /// cursor would be a round trip. [`range_limit`](Self::range_limit) reads the first ones only.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn range<R: Sorted>(&mut self, rows: R, range: impl KeyRange<R::Key>) -> Result<Vec<KeyedRow<R>>, Error> {
        self.range_limit(rows, range, usize::MAX).await
    }

    /// The rows of a range, in the opposite order. Otherwise like [`range`](Self::range).
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn range_back<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
    ) -> Result<Vec<KeyedRow<R>>, Error> {
        self.range_back_limit(rows, range, usize::MAX).await
    }

    /// The first rows of a range: `limit` of them, or all if there are fewer. What is behind them
    /// may change meanwhile.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{LocalConfig, LocalFabric, NodeId};
    /// use drtm_txn::{Builder, Error, Ordered, Pod, Config, TableDef, cluster::{Cluster, Node, Partition}};
    ///
    /// #[derive(Debug)]
    /// struct Plain;
    ///
    /// impl Config for Plain {
    ///     type Engine = NoHtm;
    /// }
    ///
    /// const QUEUE: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("queue");
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    /// let builder = Builder::new().memory(16 << 20);
    /// let mut node = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), builder)?.owners([NodeId(0)])?;
    /// let queue = node.table(QUEUE, Partition::hash())?;
    /// let cluster = Cluster::start(node.start()?, 1)?;
    /// let ends = cluster.transact(async move |tx| {
    ///     for number in 1..=9 {
    ///         tx.put(queue, number, &(10 * number)).await?;
    ///     }
    ///     let first = tx.range_limit(queue, 3.., 2).await?;
    ///     let last = tx.range_back_limit(queue, ..=7, 2).await?;
    ///     Ok((first, last, tx.last(queue, ..).await?))
    /// });
    /// assert_eq!(ends.wait()?, (vec![(3, 30), (4, 40)], vec![(7, 70), (6, 60)], Some((9, 90))));
    /// # Ok::<(), Error>(())
    /// ```
    pub async fn range_limit<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
        limit: usize,
    ) -> Result<Vec<KeyedRow<R>>, Error> {
        let found = self.scan(rows, range, Way::Up, limit).await?;
        rows.rows(self, found).await
    }

    /// The last rows of a range, the very last one first. Otherwise like
    /// [`range_limit`](Self::range_limit).
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`range_limit`](Self::range_limit).
    pub async fn range_back_limit<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
        limit: usize,
    ) -> Result<Vec<KeyedRow<R>>, Error> {
        let found = self.scan(rows, range, Way::Down, limit).await?;
        rows.rows(self, found).await
    }

    /// The first row of a range.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn first<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
    ) -> Result<Option<KeyedRow<R>>, Error> {
        Ok(self.range_limit(rows, range, 1).await?.pop())
    }

    /// The last row of a range.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`range_limit`](Self::range_limit).
    pub async fn last<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
    ) -> Result<Option<KeyedRow<R>>, Error> {
        Ok(self.range_back_limit(rows, range, 1).await?.pop())
    }

    /// The rows that have this key, in the order of what else they are sorted by: of an index that
    /// is not unique, all rows under a key. One node is asked, and not all.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn all<R: Sorted>(&mut self, rows: R, key: impl AsKey<R::Key>) -> Result<Vec<KeyedRow<R>>, Error> {
        self.range(rows, (Bound::Included(ByRef(&key)), Bound::Included(ByRef(&key)))).await
    }

    /// How many rows there are in a range: it reads all of them.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn count<R: Sorted>(&mut self, rows: R, range: impl KeyRange<R::Key>) -> Result<u64, Error> {
        Ok(self.scan(rows, range, Way::Up, usize::MAX).await?.len() as u64)
    }

    /// Removes the first row of a range, and gives it.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn pop_first<K: Key, C: Codec>(
        &mut self,
        table: ClusterTable<K, C, Ordered>,
        range: impl KeyRange<K>,
    ) -> Result<Option<(K, C::Value)>, Error> {
        let first = self.first(table, range).await?;
        self.pop(table, first).await
    }

    /// Removes the last row of a range, and gives it.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn pop_last<K: Key, C: Codec>(
        &mut self,
        table: ClusterTable<K, C, Ordered>,
        range: impl KeyRange<K>,
    ) -> Result<Option<(K, C::Value)>, Error> {
        let last = self.last(table, range).await?;
        self.pop(table, last).await
    }

    async fn pop<K: Key, C: Codec>(
        &mut self,
        table: ClusterTable<K, C, Ordered>,
        row: Option<(K, C::Value)>,
    ) -> Result<Option<(K, C::Value)>, Error> {
        if let Some((key, _)) = &row {
            let row = self.row_to_write(table, key)?;
            self.fetch(&[row]).await?;
            self.write(row, Op::Remove, table.name).await?;
        }
        Ok(row)
    }

    /// Reads the first rows of a range, one way or the other, and gives their numbers.
    async fn scan<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
        way: Way,
        limit: usize,
    ) -> Result<Vec<u32>, Error> {
        let (table, _) = rows.entries();
        let (ends, nodes) = rows.reach(range, self.worker.owners(), self.worker.id())?;
        let state = self.state();
        let bounds = state.keep_ends(&ends)?;
        let spans = state.add_spans(table, bounds, way, &nodes, (limit, rows.are_everywhere()));
        let (mut tries, mut has_read) = (0, false);
        loop {
            let (found, asks) = self.state().first_rows(table, bounds, way, spans.clone(), limit);
            if asks.is_empty() {
                self.check_if_opaque(has_read).await?;
                return Ok(found);
            }
            let outcome = self.round(Phase::Execute, &asks).await;
            if outcome.is_err() && !self.pause_before_retry(&outcome, &mut tries, PATIENCE).await {
                outcome?;
            }
            has_read = true;
        }
    }
}
