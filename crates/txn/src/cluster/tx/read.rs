//! Rows of a transaction, looked up where they are.

use drtm_rdma::{Fabric, Phase};
use smallvec::SmallVec;

use super::{ClusterTx, PATIENCE};
use crate::{
    AsKey, Codec, CodecError, Config, Error, Key, Stored, Table,
    cluster::{
        ask::{Ask, Asks},
        state::{Intent, Row},
    },
    schema::{catalog::OF_CLUSTER, table::Kind},
    tx::{encode, nodes::Nodes},
};

impl<F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'_, F, S> {
    /// Returns the number of a cluster's table.
    ///
    /// # Errors
    ///
    /// [`Error::OtherDatabase`] if it is a handle of a node's own database.
    pub(in crate::cluster) fn number_of(database: u32, number: u16) -> Result<u16, Error> {
        if database == OF_CLUSTER { Ok(number) } else { Err(Error::OtherDatabase) }
    }

    /// Returns the number of the row with a key, which is added if it is new.
    pub(in crate::cluster) fn row<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<u32, Error> {
        let number = Self::number_of(table.database, table.number)?;
        let mut buffer = std::mem::take(&mut self.state().arena.key);
        let key = encode(key, &mut buffer);
        let shard = self.worker.shard_of(number, key);
        let row = shard.and_then(|shard| self.state().row(number, key, shard));
        self.state().arena.key = buffer;
        let row = row?;
        if self.worker.served(number)?.is_replicated {
            self.state().rows[row as usize].is_final = true;
        }
        Ok(row)
    }

    /// Returns the numbers of rows with these keys.
    pub(in crate::cluster) fn rows_of<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        keys: impl IntoIterator<Item = impl AsKey<K>>,
    ) -> Result<SmallVec<[u32; 16]>, Error> {
        keys.into_iter().map(|key| self.row(table, key)).collect()
    }

    /// Looks rows up for the body.
    ///
    /// # Errors
    ///
    /// In a run on fetched rows, [`Conflict::Unfetched`](crate::Conflict::Unfetched) for rows that
    /// were not fetched.
    pub(in crate::cluster) async fn look_up(&mut self, rows: &[u32]) -> Result<(), Error> {
        if !self.is_on_fetched {
            return self.fetch(rows).await;
        }
        let mut outcome = Ok(());
        // Those after the first that was not fetched, too, so that the next run has all of them.
        for row in rows {
            outcome = outcome.and(self.use_fetched(*row, Intent::Read));
        }
        outcome
    }

    /// Fetches rows that are not known yet, all at once.
    pub(in crate::cluster) async fn fetch(&mut self, rows: &[u32]) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            let state = self.state();
            let is_wanted =
                |row: &Row| !row.is_written() && (!row.is_known() || row.was_there() && row.value.is_none());
            let wanted = rows.iter().copied().filter(|row| is_wanted(&state.rows[*row as usize]));
            let mut wanted: SmallVec<[u32; 16]> = wanted.collect();
            if wanted.is_empty() {
                return Ok(());
            }
            if wanted.len() > 1 {
                wanted.sort_unstable();
                wanted.dedup();
            }
            let asks: Asks = wanted.iter().copied().map(Ask::Read).collect();
            let outcome = self.round(Phase::Execute, &asks).await;
            if !self.pause_before_retry(&outcome, &mut tries, PATIENCE).await {
                outcome?;
                #[cfg(feature = "hades")]
                self.charge_reads(&wanted);
                return self.check_if_opaque(true).await;
            }
        }
    }

    /// Returns the value that a row has for the transaction. `None` if there is no such row.
    pub(in crate::cluster) fn value(&self, row: u32) -> Option<&[u8]> {
        self.state.as_ref()?.value(row)
    }

    /// Returns the key of a row. `None` if it is not of this type.
    pub(in crate::cluster) fn key<K: Key>(&self, row: u32) -> Option<K> {
        let state = self.state.as_ref()?;
        state.rows.get(row as usize)?.key.in_bytes(&state.arena.keys).decode()
    }

    /// Returns whether a row that was looked up is there for the transaction.
    pub(in crate::cluster) fn is_there(&self, row: u32) -> bool {
        self.state.as_ref().is_some_and(|state| state.rows[row as usize].is_there())
    }

    /// Decodes a row that was looked up. Returns `None` if there is no such row.
    pub(in crate::cluster) fn decode<R: Stored>(&self, rows: R, row: u32) -> Result<Option<R::Row>, Error> {
        self.see(rows.table().number, row, |whole| rows.decode(rows.part(whole)))
    }

    /// Looks up where rows of other nodes are, and reads none of them. Where the protocol
    /// [remembers](crate::cluster::Protocol::caches) places, reading such a row later takes one
    /// round trip.
    ///
    /// # Errors
    ///
    /// When an owner cannot be asked.
    pub async fn locate<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        keys: impl IntoIterator<Item = impl AsKey<K>>,
    ) -> Result<(), Error> {
        let rows = self.rows_of(table, keys)?;
        match &mut self.state {
            Some(state) => self.worker.locate(state, &rows).await,
            None => Ok(()),
        }
    }

    /// Validates all that was read, if each read of the transaction is to see one moment.
    pub(super) async fn check_if_opaque(&mut self, has_read: bool) -> Result<(), Error> {
        if has_read && self.is_opaque { self.check(|_| true).await } else { Ok(()) }
    }

    /// Returns the error for an index that disagrees with its table: what was read of them no
    /// longer holds, or the index is corrupt. A run on fetched rows is validated by its end.
    pub(in crate::cluster) async fn disagreement(&mut self, index: u16, table: u16) -> Error {
        let (index, table) = (self.worker.table_name(index), self.worker.table_name(table));
        if self.is_on_fetched {
            return Error::Index { index, table };
        }
        match self.check(|_| true).await {
            Ok(()) => Error::Index { index, table },
            Err(error) => error,
        }
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Nodes for ClusterTx<'_, F, S> {
    fn row<K: Key, C: Codec, O: Kind>(&mut self, table: Table<K, C, O>, key: impl AsKey<K>) -> Result<u32, Error> {
        Self::row(self, table, key)
    }

    async fn look_up(&mut self, rows: &[u32]) -> Result<(), Error> {
        Self::look_up(self, rows).await
    }

    fn is_there(&self, row: u32) -> bool {
        Self::is_there(self, row)
    }

    fn key<K: Key>(&self, row: u32) -> Option<K> {
        Self::key(self, row)
    }

    fn see<X>(
        &self,
        table: u16,
        row: u32,
        see: impl FnOnce(&[u8]) -> Result<X, CodecError>,
    ) -> Result<Option<X>, Error> {
        let seen = self.value(row).map(see).transpose();
        seen.map_err(|source| Error::Codec { table: self.worker.table_name(table), source })
    }

    fn no_key(&self, table: u16) -> Error {
        Error::Key { table: self.worker.table_name(table) }
    }

    async fn disagreement(&mut self, index: u16, table: u16) -> Error {
        Self::disagreement(self, index, table).await
    }
}
