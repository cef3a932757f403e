//! Writing rows: of which others hear at the commit.

use std::borrow::Borrow;

use drtm_rdma::Fabric;

use super::ClusterTx;
use crate::{
    AsKey, Codec, Config, Error, Key,
    cluster::{ClusterTable, Stored, state::Op},
    memory::arena::ArenaRange,
    schema::table::Kind,
};

impl<F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'_, F, S> {
    /// The number of a row that is to be written.
    pub(super) fn row_to_write<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<u32, Error> {
        table.check_writable()?;
        self.row(table, key)
    }

    /// Gives a row a value.
    pub(super) async fn give<R: Stored>(&mut self, rows: R, row: u32, value: &R::Given) -> Result<(), Error> {
        let state = self.state();
        let was = state.range_of(row).map(ArenaRange::range).unwrap_or_default();
        let failed = |source| Error::Codec { table: rows.table().name, source };
        let kept = state.arena.keep_value(|bytes| rows.encode(value, was, bytes).map_err(failed))?;
        self.write(row, Op::Put(kept), rows.table().name).await
    }

    /// Writes a row, and its entries in indexes.
    pub(super) async fn write(&mut self, number: u32, op: Op, table: &'static str) -> Result<(), Error> {
        self.change_entries(number, op, table).await?;
        self.state().note(number, op);
        Ok(())
    }

    /// Gives a row a value, whether it is there or not. No other node is asked before the commit,
    /// unless the table has indexes.
    ///
    /// # Errors
    ///
    /// [`Error::Replicated`]; [`Error::Duplicate`]; when the value cannot be encoded; and, if the
    /// table has indexes, as for [`get`](Self::get).
    pub async fn put<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
        value: impl Borrow<C::Given>,
    ) -> Result<(), Error> {
        let row = self.row_to_write(table, key)?;
        self.give(table, row, value.borrow()).await
    }

    /// Inserts a row that is not there.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`]; [`Error::Duplicate`]; [`Error::Replicated`]; otherwise as for
    /// [`get`](Self::get).
    pub async fn insert<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
        value: impl Borrow<C::Given>,
    ) -> Result<(), Error> {
        let row = self.row_to_write(table, key)?;
        self.fetch(&[row]).await?;
        if self.is_there(row) {
            return Err(Error::Exists { table: table.name });
        }
        self.give(table, row, value.borrow()).await
    }

    /// Changes a row's value, if there is such a row. Gives what the change gives.
    ///
    /// # Errors
    ///
    /// [`Error::Duplicate`]; [`Error::Replicated`]; otherwise as for [`get`](Self::get).
    pub async fn update<R: Stored, X>(
        &mut self,
        rows: R,
        key: impl AsKey<R::Key>,
        change: impl FnOnce(&mut R::Row) -> X,
    ) -> Result<Option<X>, Error>
    where
        R::Row: Borrow<R::Given>,
    {
        let row = self.row_to_write(rows.table(), key)?;
        self.fetch(&[row]).await?;
        let Some(mut value) = self.decode(rows, row)? else { return Ok(None) };
        let result = change(&mut value);
        self.give(rows, row, value.borrow()).await?;
        Ok(Some(result))
    }

    /// Removes a row, and returns its value. Returns `None` if there is no such row.
    ///
    /// # Errors
    ///
    /// [`Error::Replicated`]; otherwise as for [`get`](Self::get).
    #[doc(alias = "take")]
    pub async fn remove<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<Option<C::Value>, Error> {
        let row = self.row_to_write(table, key)?;
        self.fetch(&[row]).await?;
        let value = self.decode(table, row)?;
        if value.is_some() {
            self.write(row, Op::Remove, table.name).await?;
        }
        Ok(value)
    }
}
