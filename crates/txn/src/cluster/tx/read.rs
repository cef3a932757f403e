//! Reading rows.

use drtm_rdma::{Fabric, Phase};
use smallvec::SmallVec;

use super::{ClusterTx, PATIENCE};
use crate::{
    AsKey, Codec, Config, Error, Key,
    cluster::{
        ClusterTable, Point, Stored,
        ask::{Ask, Asks},
        state::Row,
        table::owner_of,
    },
    schema::table::Kind,
    tx::encode,
};

impl<F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'_, F, S> {
    /// The number of the row with a key, which is added if it is new.
    pub(in crate::cluster) fn row<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<u32, Error> {
        let mut buffer = std::mem::take(&mut self.state().arena.key);
        let key = encode(key, &mut buffer);
        let owner = owner_of((table.name, &table.partition), key, self.worker.owners(), self.worker.id());
        let row = owner.and_then(|owner| self.state().row(table.number, key, owner));
        self.state().arena.key = buffer;
        if table.is_replicated()
            && let Ok(row) = row
        {
            self.state().rows[row as usize].is_final = true;
        }
        row
    }

    /// The numbers of rows with these keys.
    pub(in crate::cluster) fn rows_of<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        keys: impl IntoIterator<Item = impl AsKey<K>>,
    ) -> Result<SmallVec<[u32; 16]>, Error> {
        keys.into_iter().map(|key| self.row(table, key)).collect()
    }

    /// Looks rows up that are not known yet, all at once.
    pub(in crate::cluster) async fn fetch(&mut self, rows: &[u32]) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            let state = self.state();
            let is_wanted =
                |row: &Row| !row.is_written() && (!row.is_known() || row.was_there() && row.value.is_none());
            let wanted = rows.iter().copied().filter(|row| is_wanted(&state.rows[*row as usize]));
            let mut wanted: SmallVec<[u32; 16]> = wanted.collect();
            wanted.sort_unstable();
            wanted.dedup();
            let asks: Asks = wanted.into_iter().map(Ask::Read).collect();
            let outcome = self.round(Phase::Execute, &asks).await;
            if !self.pause_before_retry(&outcome, &mut tries, PATIENCE).await {
                outcome?;
                return self.check_if_opaque(!asks.is_empty()).await;
            }
        }
    }

    /// The value that a row has for the transaction.
    pub(in crate::cluster) fn value(&self, row: u32) -> Option<&[u8]> {
        self.state.as_ref()?.value(row)
    }

    /// The key of a row, if it is one of this type.
    pub(in crate::cluster) fn key<K: Key>(&self, row: u32) -> Option<K> {
        let state = self.state.as_ref()?;
        state.rows.get(row as usize)?.key.in_bytes(&state.arena.keys).decode()
    }

    /// Whether a row that was looked up is there for the transaction.
    pub(in crate::cluster) fn is_there(&self, row: u32) -> bool {
        self.state.as_ref().is_some_and(|state| state.rows[row as usize].is_there())
    }

    pub(in crate::cluster) fn decode<R: Stored>(&self, rows: R, row: u32) -> Result<Option<R::Row>, Error> {
        let value = self.value(row).map(|whole| rows.decode(whole)).transpose();
        value.map_err(|source| Error::Codec { table: rows.table().name, source })
    }

    /// A row's value, if there is such a row.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`]; when the owner cannot be asked; or when the value is none of the
    /// codec's.
    pub async fn get<R: Point>(&mut self, rows: R, key: impl AsKey<R::Key>) -> Result<Option<R::Row>, Error> {
        rows.get(self, key).await
    }

    /// Shows a row's value without keeping it, as [`Tx::view`](crate::Tx::view) does.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn view<R: Stored, X>(
        &mut self,
        rows: R,
        key: impl AsKey<R::Key>,
        see: impl FnOnce(R::View<'_>) -> X,
    ) -> Result<Option<X>, Error> {
        let row = self.row(rows.table(), key)?;
        self.fetch(&[row]).await?;
        let seen = self.value(row).map(|whole| rows.show(whole).map(see)).transpose();
        seen.map_err(|source| Error::Codec { table: rows.table().name, source })
    }

    /// The values of several rows, in one round trip to all of their owners.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn get_many<R: Point>(
        &mut self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<Vec<Option<R::Row>>, Error> {
        rows.get_many(self, keys).await
    }

    /// Looks rows up that are going to be read or updated, in one round trip to all of their
    /// owners.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn prefetch<R: Stored>(
        &mut self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<(), Error> {
        let rows = self.rows_of(rows.table(), keys)?;
        self.fetch(&rows).await
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
        table: ClusterTable<K, C, O>,
        keys: impl IntoIterator<Item = impl AsKey<K>>,
    ) -> Result<(), Error> {
        let rows = self.rows_of(table, keys)?;
        match &self.state {
            Some(state) => self.worker.locate(state, &rows).await,
            None => Ok(()),
        }
    }

    /// Whether there is such a row.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn contains<R: Point>(&mut self, rows: R, key: impl AsKey<R::Key>) -> Result<bool, Error> {
        rows.contains(self, key).await
    }

    /// Makes sure that all that was read was true at one moment, if that was asked for.
    pub(super) async fn check_if_opaque(&mut self, has_read: bool) -> Result<(), Error> {
        if has_read && self.is_opaque { self.check(|_| true).await } else { Ok(()) }
    }

    /// What an entry of an index that leads to no row means: that what was read of them is not true
    /// any more, or that something is wrong.
    pub(in crate::cluster) async fn disagreement(&mut self, index: &'static str, table: &'static str) -> Error {
        match self.check(|_| true).await {
            Ok(()) => Error::Index { index, table },
            Err(error) => error,
        }
    }
}
