//! Ranges of rows that a transaction fetches before it runs. Their owners send the rows, whatever
//! the protocol. Rows that were found so have no lease: the commit looks at them again.

use drtm_rdma::{Fabric, Phase, Port};

use super::{Rows, Sets};
use crate::{
    Codec, Config, Conflict, Error, Key, KeyRange, Ordered,
    cluster::{ClusterTable, ClusterTx, Sorted as _, ask::Asks, ranges::FetchedRange, state::State},
    tx::position::Way,
};

impl<F: Fabric, S: Config<Engine = F::Engine>> Sets<'_, '_, F, S> {
    /// Declares a range of rows that is going to be read.
    ///
    /// # Errors
    ///
    /// When no node owns such rows, or a key is too long.
    pub fn range<K: Key, C: Codec>(
        &mut self,
        table: ClusterTable<K, C, Ordered>,
        range: impl KeyRange<K>,
    ) -> Result<(), Error> {
        let number = self.tx.range_to_fetch(table, range, Way::Up)?;
        self.tx.state().ranges[number].most = usize::MAX;
        Ok(())
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Rows<'_, '_, F, S> {
    /// Returns the rows of a range, in the order of their keys. If the transaction commits, no
    /// other has brought a row into the range meanwhile, or taken one out.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Executor, LocalConfig, LocalFabric, NodeId};
    /// use drtm_txn::{
    ///     Builder, Config, Error, Ordered, Pod, TableDef,
    ///     cluster::{Node, Partition, Protocol},
    /// };
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
    /// let mut node = Node::<_, Plain>::builder_for(NoHtm, &fabric, NodeId(0), builder, Protocol::DRTM)?
    ///     .owners([NodeId(0)])?;
    /// let queue = node.table(QUEUE, Partition::hash())?;
    /// let node = node.start()?;
    /// let endpoint = node.endpoint()?;
    /// let worker = node.worker(&endpoint)?;
    /// let mut executor = Executor::new(&endpoint);
    /// worker.serve(&executor.spawner());
    /// executor.spawn(async move {
    ///     let filled = worker.transact_on(|_| Ok(()), |rows| (1..=9).try_for_each(|key| rows.put(queue, key, &(10 * key))));
    ///     filled.await.expect("there is room");
    ///     // Nothing is declared: which row is the first is found out before.
    ///     let taken = worker.transact_on(
    ///         |_| Ok(()),
    ///         |rows| {
    ///             let first = rows.first(queue, ..)?.map(|(key, _)| key);
    ///             rows.remove(queue, first.unwrap_or(0))?;
    ///             Ok((first, rows.range(queue, 1..4)?, rows.last(queue, ..)?))
    ///         },
    ///     );
    ///     assert_eq!(taken.await.expect("it is its own node"), (Some(1), vec![(2, 20), (3, 30)], Some((9, 90))));
    /// });
    /// executor.run();
    /// # Ok::<(), Error>(())
    /// ```
    pub fn range<K: Key, C: Codec>(
        &mut self,
        table: ClusterTable<K, C, Ordered>,
        range: impl KeyRange<K>,
    ) -> Result<Vec<(K, C::Value)>, Error> {
        self.ranged(table, range, Way::Up, usize::MAX)
    }

    /// Returns the first rows of a range: `limit` of them, or all if there are fewer.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`range`](Self::range).
    pub fn range_limit<K: Key, C: Codec>(
        &mut self,
        table: ClusterTable<K, C, Ordered>,
        range: impl KeyRange<K>,
        limit: usize,
    ) -> Result<Vec<(K, C::Value)>, Error> {
        self.ranged(table, range, Way::Up, limit)
    }

    /// Returns the first row of a range.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`range`](Self::range).
    pub fn first<K: Key, C: Codec>(
        &mut self,
        table: ClusterTable<K, C, Ordered>,
        range: impl KeyRange<K>,
    ) -> Result<Option<(K, C::Value)>, Error> {
        Ok(self.ranged(table, range, Way::Up, 1)?.pop())
    }

    /// Returns the last row of a range.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`range`](Self::range).
    pub fn last<K: Key, C: Codec>(
        &mut self,
        table: ClusterTable<K, C, Ordered>,
        range: impl KeyRange<K>,
    ) -> Result<Option<(K, C::Value)>, Error> {
        Ok(self.ranged(table, range, Way::Down, 1)?.pop())
    }

    /// Returns the first rows of a range, one way or the other.
    fn ranged<K: Key, C: Codec>(
        &mut self,
        table: ClusterTable<K, C, Ordered>,
        range: impl KeyRange<K>,
        way: Way,
        limit: usize,
    ) -> Result<Vec<(K, C::Value)>, Error> {
        let number = self.tx.range_to_fetch(table, range, way)?;
        let found = self.tx.state().rows_of_range(number, limit)?;
        let of_row = |row| match (self.tx.key::<K>(row), self.tx.decode(table, row)?) {
            (Some(key), Some(value)) => Ok((key, value)),
            _ => Err(Error::Key { table: table.name }),
        };
        found.into_iter().map(of_row).collect()
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'_, F, S> {
    /// Returns the number of a range, which is added if it is new.
    fn range_to_fetch<K: Key, C: Codec>(
        &mut self,
        table: ClusterTable<K, C, Ordered>,
        range: impl KeyRange<K>,
        way: Way,
    ) -> Result<usize, Error> {
        let (ends, nodes) = table.reach(range, self.worker.owners(), self.worker.id())?;
        let state = self.state();
        let is_it = |known: &FetchedRange| known.is(table.number, &ends, way, &state.arena.keys);
        if let Some(known) = state.ranges.iter().position(is_it) {
            state.ranges[known].is_used = true;
            return Ok(known);
        }
        for node in nodes.iter().copied() {
            state.owner(node);
        }
        let (table, bounds, is_final) = (table.number, state.keep_ends(&ends)?, table.is_replicated());
        state.ranges.push(FetchedRange { table, bounds, way, nodes, most: 1, is_final, spans: 0..0, is_used: true });
        Ok(state.ranges.len() - 1)
    }

    /// Reads ranges, all at the same time, as far as they are wanted. Rows that are locked are
    /// waited for, so often.
    pub(in crate::cluster) async fn fetch_ranges(&mut self, patience: u32) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            let asks = self.state().scans();
            let outcome = self.round(Phase::Execute, &asks).await;
            if asks.is_empty() || outcome.is_err() && !self.pause_before_retry(&outcome, &mut tries, patience).await {
                return outcome;
            }
        }
    }
}

impl<P: Port> State<'_, P> {
    /// Returns requests for rows of all ranges, as far as they are wanted and not known.
    pub(in crate::cluster) fn scans(&mut self) -> Asks {
        let mut asks = Asks::new();
        for number in 0..self.ranges.len() {
            let FetchedRange { table, bounds, way, ref nodes, most, is_final, ref spans, .. } = self.ranges[number];
            if spans.is_empty() {
                let nodes = nodes.clone();
                self.ranges[number].spans = self.add_spans(table, bounds, way, &nodes, (most, is_final));
            }
            asks.extend(self.first_of(number, most).1);
        }
        asks
    }

    /// Returns the first rows of a range that are known, and requests for those that are missing.
    fn first_of(&mut self, number: usize, limit: usize) -> (Vec<u32>, Asks) {
        let FetchedRange { table, bounds, way, ref spans, .. } = self.ranges[number];
        self.first_rows(table, bounds, way, spans.clone(), limit)
    }

    /// Returns the first rows of a range for the body. What was not fetched of them will be in the
    /// next run.
    fn rows_of_range(&mut self, number: usize, limit: usize) -> Result<Vec<u32>, Error> {
        let is_read = !self.ranges[number].spans.is_empty();
        let (found, rest) = self.first_of(number, limit);
        if is_read && rest.is_empty() {
            return Ok(found);
        }
        let most = &mut self.ranges[number].most;
        // If as many were fetched, the body itself has removed some.
        *most = if is_read && *most >= limit { most.saturating_add(limit) } else { limit.max(*most) };
        self.is_outside = true;
        Err(Conflict::Unfetched.into())
    }
}
