//! What a body does with rows of any node.

use std::borrow::Borrow;

use drtm_rdma::Fabric;

use super::ClusterTx;
use crate::{
    AsKey, Codec, Config, Error, Flow, Key, KeyRange, KeyedRow, Ordered, Point, Prefetched, Savepoint, Sorted, Stored,
    Table, Transaction,
    cluster::state::Op,
    mutation::Mutation,
    schema::table::Kind,
    tx::{nodes::Nodes as _, position::Way, rows::sealed::Sealed},
};

impl<F: Fabric, S: Config<Engine = F::Engine>> Sealed for ClusterTx<'_, F, S> {}

impl<F: Fabric, S: Config<Engine = F::Engine>> Transaction for ClusterTx<'_, F, S> {
    async fn get<R: Point>(&mut self, rows: R, key: impl AsKey<R::Key>) -> Result<Option<R::Row>, Error> {
        rows.point(self, key).await
    }

    async fn view<R: Stored, X>(
        &mut self,
        rows: R,
        key: impl AsKey<R::Key>,
        see: impl FnOnce(R::View<'_>) -> X,
    ) -> Result<Option<X>, Error> {
        let row = self.row(rows.table(), key)?;
        self.look_up(&[row]).await?;
        self.see(rows.table().number, row, |whole| rows.show(rows.part(whole)).map(see))
    }

    async fn get_many<R: Point>(
        &mut self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<Vec<Option<R::Row>>, Error> {
        rows.points(self, keys).await
    }

    async fn contains<R: Point>(&mut self, rows: R, key: impl AsKey<R::Key>) -> Result<bool, Error> {
        rows.has_point(self, key).await
    }

    async fn prefetch<R: Prefetched>(
        &mut self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<(), Error> {
        let rows = self.rows_of(rows.prefetched_table(), keys)?;
        if self.is_on_fetched { self.expect_fetched(&rows) } else { self.fetch(&rows).await }
    }

    async fn put<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
        value: impl Borrow<C::Given>,
    ) -> Result<(), Error> {
        let row = self.row_to_write(table, key)?;
        self.give(table, row, value.borrow()).await
    }

    async fn insert<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
        value: impl Borrow<C::Given>,
    ) -> Result<(), Error> {
        let row = self.row_to_write(table, key)?;
        self.look_up(&[row]).await?;
        self.give_new(table, row, value.borrow()).await
    }

    async fn insert_many<'v, K: Key, C: Codec<Given: 'v>, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        rows: impl IntoIterator<Item = (K, &'v C::Given)>,
    ) -> Result<(), Error> {
        let mut numbered = Vec::new();
        for (key, value) in rows {
            numbered.push((self.row_to_write(table, &key)?, value));
        }
        let numbers: Vec<u32> = numbered.iter().map(|(row, _)| *row).collect();
        self.look_up(&numbers).await?;
        for (row, value) in numbered {
            self.give_new(table, row, value).await?;
        }
        Ok(())
    }

    async fn update<R: Stored, X>(
        &mut self,
        rows: R,
        key: impl AsKey<R::Key>,
        change: impl FnOnce(&mut R::Row) -> X,
    ) -> Result<Option<X>, Error>
    where
        R::Row: Borrow<R::Given>,
    {
        let row = self.row_to_write(rows.table(), key)?;
        self.look_up(&[row]).await?;
        let Some(mut value) = self.decode(rows, row)? else { return Ok(None) };
        let result = change(&mut value);
        self.give(rows, row, value.borrow()).await?;
        Ok(Some(result))
    }

    async fn remove<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<Option<C::Value>, Error> {
        let row = self.row_to_write(table, key)?;
        self.look_up(&[row]).await?;
        let value = self.decode(table, row)?;
        if value.is_some() {
            self.write(row, Op::Remove).await?;
        }
        Ok(value)
    }

    async fn range_limit<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
        limit: usize,
    ) -> Result<Vec<KeyedRow<R>>, Error> {
        let found = self.scan(rows, range, Way::Up, limit).await?;
        rows.found(self, found).await
    }

    async fn range_back_limit<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
        limit: usize,
    ) -> Result<Vec<KeyedRow<R>>, Error> {
        let found = self.scan(rows, range, Way::Down, limit).await?;
        rows.found(self, found).await
    }

    async fn first<R: Sorted>(&mut self, rows: R, range: impl KeyRange<R::Key>) -> Result<Option<KeyedRow<R>>, Error> {
        Ok(self.range_limit(rows, range, 1).await?.pop())
    }

    async fn last<R: Sorted>(&mut self, rows: R, range: impl KeyRange<R::Key>) -> Result<Option<KeyedRow<R>>, Error> {
        Ok(self.range_back_limit(rows, range, 1).await?.pop())
    }

    async fn count<R: Sorted>(&mut self, rows: R, range: impl KeyRange<R::Key>) -> Result<u64, Error> {
        Ok(self.scan(rows, range, Way::Up, usize::MAX).await?.len() as u64)
    }

    async fn view_each<R: Stored<Kind = Ordered>, V: Flow>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
        limit: usize,
        visit: impl FnMut(R::Key, R::View<'_>) -> V,
    ) -> Result<(), Error> {
        let found = self.scan(rows, range, Way::Up, limit).await?;
        self.show_each(rows, &found, visit)
    }

    async fn pop_first<K: Key, C: Codec>(
        &mut self,
        table: Table<K, C, Ordered>,
        range: impl KeyRange<K>,
    ) -> Result<Option<(K, C::Value)>, Error> {
        let first = self.first(table, range).await?;
        self.pop(table, first).await
    }

    async fn pop_last<K: Key, C: Codec>(
        &mut self,
        table: Table<K, C, Ordered>,
        range: impl KeyRange<K>,
    ) -> Result<Option<(K, C::Value)>, Error> {
        let last = self.last(table, range).await?;
        self.pop(table, last).await
    }

    async fn walk<K: Key, C: Codec, O: Kind, V: Flow>(
        &mut self,
        table: Table<K, C, O>,
        visit: impl FnMut(K, C::View<'_>) -> V,
    ) -> Result<(), Error> {
        let found = self.scan_table(table).await?;
        self.show_each(table, &found, visit)
    }

    async fn len<K: Key, C: Codec, O: Kind>(&mut self, table: Table<K, C, O>) -> Result<u64, Error> {
        Ok(self.scan_table(table).await?.len() as u64)
    }

    async fn retain<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        mut keep: impl FnMut(&K, C::View<'_>) -> bool,
    ) -> Result<u64, Error> {
        let found = self.scan_table(table).await?;
        let mut kept = Vec::with_capacity(found.len());
        self.show_each(table, &found, |key, row| kept.push(keep(&key, row)))?;
        let gone: Vec<u32> = found.into_iter().zip(kept).filter(|(_, kept)| !kept).map(|(row, _)| row).collect();
        self.remove_each(table.number, &gone).await
    }

    async fn clear<K: Key, C: Codec, O: Kind>(&mut self, table: Table<K, C, O>) -> Result<u64, Error> {
        let found = self.scan_table(table).await?;
        self.remove_each(table.number, &found).await
    }

    fn savepoint(&mut self) -> Savepoint {
        let state = self.state();
        Savepoint::of_cluster(state.undo.savepoint(), state.holder)
    }

    fn return_to(&mut self, savepoint: Savepoint) -> Result<(), Error> {
        let state = self.state();
        let mark = savepoint.in_cluster(state.holder)?;
        let (mut undo, keeps) = (std::mem::take(&mut state.undo), S::has(Mutation::UndoneWritesKept));
        let outcome = undo.return_to(mark, |row, op| {
            if !keeps {
                state.set(row, op);
            }
        });
        state.undo = undo;
        outcome
    }
}
