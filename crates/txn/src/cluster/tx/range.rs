//! Reading ranges of rows, of all owners that have some.
//!
//! Each owner is asked for a page of its part of the range at a time, in the range's order, and all
//! are asked at once. Rows are merged here, with those that the transaction writes itself. Where
//! only so many rows are wanted, an owner is asked again only if it may have one before the last of
//! these.

use std::{ops::Bound, rc::Rc};

use drtm_rdma::{Fabric, Phase};

use super::{ClusterTx, PATIENCE};
use crate::{
    Codec, Config, Error, Flow, Key, KeyRange, Ordered, Sorted, Stored, Table,
    cluster::{
        ranges::FetchedRange,
        shard::Reach,
        state::{Intent, Op, Row},
    },
    memory::arena::ArenaKey,
    schema::table::Kind,
    tx::{
        nodes::{Nodes as _, Reach as Ranged},
        position::Way,
    },
};

impl<F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'_, F, S> {
    /// Removes a row that was found, and returns it.
    pub(super) async fn pop<K: Key, C: Codec>(
        &mut self,
        table: Table<K, C, Ordered>,
        found: Option<(K, C::Value)>,
    ) -> Result<Option<(K, C::Value)>, Error> {
        if let Some((key, _)) = &found {
            let row = self.row_to_write(table, key)?;
            self.look_up(&[row]).await?;
            self.write(row, Op::Remove).await?;
        }
        Ok(found)
    }

    /// Reads the first rows of a range, one way or the other. Returns their numbers.
    pub(super) async fn scan<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
        way: Way,
        limit: usize,
    ) -> Result<Vec<u32>, Error> {
        if self.is_on_fetched {
            let number = self.range_to_fetch(rows, range, way)?;
            return self.state().rows_of_range(number, limit);
        }
        let (table, reach, bounds) = self.bounds_of(rows, range)?;
        self.scan_within(table, reach, bounds, (way, limit)).await
    }

    /// Reads the first rows between bounds, or the keys of a hash table. Returns the numbers of the
    /// rows that are known to be there.
    async fn scan_within(
        &mut self,
        table: u16,
        reach: Reach,
        bounds: [Bound<ArenaKey>; 2],
        (way, limit): (Way, usize),
    ) -> Result<Vec<u32>, Error> {
        let is_final = self.worker.served(table)?.is_replicated;
        let spans = self.state().add_spans(table, bounds, way, reach, (limit, is_final));
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

    /// Looks up all rows of a table. Returns the numbers of those that are there, in no order where
    /// the table has none.
    pub(super) async fn scan_table<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
    ) -> Result<Vec<u32>, Error> {
        if O::ORDERED {
            return self.scan(table.as_ordered(), .., Way::Up, usize::MAX).await;
        }
        let number = Self::number_of(table.database, table.number)?;
        let (reach, everything) = (self.worker.reach_of(number, None)?, [Bound::Unbounded; 2]);
        if self.is_on_fetched {
            let range = self.bounds_to_fetch(number, reach, everything, (Way::Up, usize::MAX))?;
            self.state().rows_of_range(range, usize::MAX)?;
        } else {
            self.scan_within(number, reach, everything, (Way::Up, usize::MAX)).await?;
        }
        let rows = self.state().rows.iter().zip(0..).filter(|(row, _)| row.table == number);
        let rows: Vec<u32> = rows.map(|(_, row)| row).collect();
        self.look_up(&rows).await?;
        Ok(rows.into_iter().filter(|row| self.is_there(*row)).collect())
    }

    /// Removes rows that were found.
    pub(super) async fn remove_each(&mut self, table: u16, rows: &[u32]) -> Result<u64, Error> {
        self.check_writable(table)?;
        for row in rows {
            if self.is_on_fetched {
                self.use_fetched(*row, Intent::Write)?;
            }
            self.name_shard(*row)?;
            self.write(*row, Op::Remove).await?;
        }
        Ok(rows.len() as u64)
    }

    /// Finds out the shard of a row that was found in a range.
    fn name_shard(&mut self, row: u32) -> Result<(), Error> {
        let worker = Rc::clone(&self.worker);
        let state = self.state();
        let Row { table, key, .. } = state.rows[row as usize];
        state.rows[row as usize].shard = worker.shard_of(table, key.in_bytes(&state.arena.keys))?;
        Ok(())
    }

    /// Shows rows of a range that were found.
    pub(super) fn show_each<R: Stored, V: Flow>(
        &self,
        rows: R,
        found: &[u32],
        mut visit: impl FnMut(R::Key, R::View<'_>) -> V,
    ) -> Result<(), Error> {
        for row in found {
            let key = self.key::<R::Key>(*row);
            let key = key.ok_or_else(|| Error::Key { table: self.worker.table_name(rows.table().number) })?;
            let flow = self.see(rows.table().number, *row, |whole| {
                rows.show(rows.part(whole)).map(|view| visit(key, view).flow())
            })?;
            if flow.is_some_and(|flow| flow.is_break()) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the table that a range goes through, the shards that have rows of it, and its ends.
    fn bounds_of<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
    ) -> Result<(u16, Reach, [Bound<ArenaKey>; 2]), Error> {
        let (database, number) = rows.scanned();
        let table = Self::number_of(database, number)?;
        let Ranged { ends, by } = R::reach(range);
        let reach = self.worker.reach_of(table, by.as_ref().unwrap_or(&ends).only())?;
        Ok((table, reach, self.state().keep_ends(&ends)?))
    }

    /// Returns the number of a range that is fetched before the body runs, which is added if it is
    /// new.
    pub(in crate::cluster) fn range_to_fetch<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
        way: Way,
    ) -> Result<usize, Error> {
        let (table, reach, bounds) = self.bounds_of(rows, range)?;
        self.bounds_to_fetch(table, reach, bounds, (way, 1))
    }

    /// Returns the number of a range between bounds that is fetched before the body runs, which is
    /// added if it is new: `most` rows of it, unless more are wanted.
    fn bounds_to_fetch(
        &mut self,
        table: u16,
        reach: Reach,
        bounds: [Bound<ArenaKey>; 2],
        (way, most): (Way, usize),
    ) -> Result<usize, Error> {
        let is_final = self.worker.served(table)?.is_replicated;
        let state = self.state();
        let is_it = |known: &FetchedRange| known.is(table, bounds, way, &state.arena.keys);
        if let Some(known) = state.ranges.iter().position(is_it) {
            state.ranges[known].is_used = true;
            return Ok(known);
        }
        state.add_owners(reach);
        state.ranges.push(FetchedRange { table, bounds, way, reach, most, is_final, spans: 0..0, is_used: true });
        Ok(state.ranges.len() - 1)
    }
}
