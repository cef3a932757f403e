//! Writing rows: kept here until the commit, and then sent to their owners.

use drtm_rdma::Fabric;

use super::ClusterTx;
use crate::{
    AsKey, Codec, Config, Error, Key, Stored, Table,
    cluster::{
        ClusterError,
        state::{Intent, Op},
    },
    memory::arena::ArenaRange,
    schema::table::Kind,
};

impl<F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'_, F, S> {
    /// Returns the number of a row that is to be written.
    ///
    /// # Errors
    ///
    /// [`Error::Replicated`]; in a run on fetched rows also [`ClusterError::Indexed`], and
    /// [`Conflict::Unfetched`](crate::Conflict::Unfetched) for a row that was not fetched to be
    /// written.
    pub(super) fn row_to_write<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<u32, Error> {
        self.check_writable(table.number)?;
        let row = self.row(table, key)?;
        if self.is_on_fetched {
            self.use_fetched(row, Intent::Write)?;
        }
        Ok(row)
    }

    /// Refuses to write a table that is only read. Entries of indexes are not known before a body
    /// runs, so they are not written on fetched rows either.
    pub(in crate::cluster) fn check_writable(&self, table: u16) -> Result<(), Error> {
        let served = self.worker.served(table)?;
        if served.is_replicated {
            return Err(Error::Replicated { table: self.worker.table_name(table) });
        }
        if self.is_on_fetched && !served.indexes.is_empty() {
            return Err(ClusterError::Indexed { table: self.worker.table_name(table) }.into());
        }
        Ok(())
    }

    /// Sets a row's value.
    pub(super) async fn give<R: Stored>(&mut self, rows: R, row: u32, value: &R::Given) -> Result<(), Error> {
        let worker = std::rc::Rc::clone(&self.worker);
        let table = rows.table().number;
        let state = self.state();
        let was = state.range_of(row).map(ArenaRange::range).unwrap_or_default();
        let failed = |source| Error::Codec { table: worker.table_name(table), source };
        let kept = state.arena.keep_value(|bytes| rows.encode(value, was, bytes).map_err(failed))?;
        self.write(row, Op::Put(kept)).await
    }

    /// Writes a row, and its entries in indexes.
    pub(super) async fn write(&mut self, number: u32, op: Op) -> Result<(), Error> {
        self.change_entries(number, op).await?;
        self.state().note(number, op);
        #[cfg(feature = "hades")]
        {
            self.charge_write(number);
            self.note_written(number)?;
        }
        Ok(())
    }

    /// Sets the value of a row that was looked up and must not exist.
    pub(super) async fn give_new<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        row: u32,
        value: &C::Given,
    ) -> Result<(), Error> {
        if self.is_there(row) {
            return Err(Error::Exists { table: self.worker.table_name(table.number) });
        }
        self.give(table, row, value).await
    }
}
