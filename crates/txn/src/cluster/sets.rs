//! The rows that a transaction fetches before it runs: what it declares, and what its body does.

mod range;

use std::{borrow::Borrow, fmt};

use drtm_rdma::Fabric;

use super::{
    ClusterError, ClusterTable, ClusterTx,
    state::{Intent, Op},
};
use crate::{AsKey, Codec, Config, Conflict, DefaultConfig, Error, Key, schema::table::Kind};

/// The rows that a transaction is going to use: see
/// [`Worker::transact_on`](super::Worker::transact_on).
pub struct Sets<'t, 'e, F: Fabric, S: Config<Engine = F::Engine> = DefaultConfig> {
    pub(super) tx: &'t mut ClusterTx<'e, F, S>,
}

/// The rows that a transaction has fetched: see
/// [`Worker::transact_on`](super::Worker::transact_on).
pub struct Rows<'t, 'e, F: Fabric, S: Config<Engine = F::Engine> = DefaultConfig> {
    pub(super) tx: &'t mut ClusterTx<'e, F, S>,
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Sets<'_, 'e, F, S> {
    /// Declares a row that is going to be read.
    ///
    /// # Errors
    ///
    /// When no node owns a row with this key, or it is too long.
    pub fn read<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<(), Error> {
        self.tx.declare(table, key, Intent::Read)
    }

    /// Declares a row that is going to be written, and perhaps read.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Indexed`]; [`Error::Replicated`]; otherwise as for [`read`](Self::read).
    pub fn write<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<(), Error> {
        self.tx.declare(table, key, Intent::Write)
    }
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Rows<'_, 'e, F, S> {
    /// A row's value, if there is such a row.
    ///
    /// # Errors
    ///
    /// [`Conflict::Unfetched`], with which the body returns; or when the value is none of the
    /// codec's.
    pub fn get<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<Option<C::Value>, Error> {
        let row = self.tx.fetched(table, key, Intent::Read)?;
        self.tx.decode(table, row)
    }

    /// The values of several rows. A run that only finds out rows looks all of them up at once.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn get_many<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        keys: impl IntoIterator<Item = impl AsKey<K>>,
    ) -> Result<Vec<Option<C::Value>>, Error> {
        let rows = self.tx.rows_of(table, keys)?;
        let mut outcome = Ok(());
        // Those after the first that was not fetched, too.
        for row in &rows {
            outcome = outcome.and(self.tx.use_fetched(*row, Intent::Read));
        }
        outcome?;
        rows.into_iter().map(|row| self.tx.decode(table, row)).collect()
    }

    /// Tells of rows that the body is about to use. A run that only finds out rows looks all of
    /// them up at once; any other run does nothing here.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn prefetch<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        keys: impl IntoIterator<Item = impl AsKey<K>>,
    ) -> Result<(), Error> {
        if !self.tx.state().is_scout {
            return Ok(());
        }
        let rows = self.tx.rows_of(table, keys)?;
        let state = self.tx.state();
        if rows.iter().all(|row| state.rows[*row as usize].is_known()) {
            return Ok(());
        }
        state.is_outside = true;
        Err(Conflict::Unfetched.into())
    }

    /// Whether there is such a row.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn contains<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<bool, Error> {
        let row = self.tx.fetched(table, key, Intent::Read)?;
        Ok(self.tx.is_there(row))
    }

    /// Gives a row a value, whether it is there or not.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Indexed`]; [`Error::Replicated`]; when the value cannot be encoded;
    /// otherwise as for [`get`](Self::get).
    pub fn put<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
        value: impl Borrow<C::Given>,
    ) -> Result<(), Error> {
        let row = self.tx.fetched(table, key, Intent::Write)?;
        self.tx.give_fetched(table, row, value.borrow())
    }

    /// Inserts a row that is not there.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`]; otherwise as for [`put`](Self::put).
    pub fn insert<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
        value: impl Borrow<C::Given>,
    ) -> Result<(), Error> {
        let row = self.tx.fetched(table, key, Intent::Write)?;
        if self.tx.is_there(row) {
            return Err(Error::Exists { table: table.name });
        }
        self.tx.give_fetched(table, row, value.borrow())
    }

    /// Changes a row's value, if there is such a row. Returns what the change returns.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn update<K: Key, C: Codec, O: Kind, R>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
        change: impl FnOnce(&mut C::Value) -> R,
    ) -> Result<Option<R>, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        let row = self.tx.fetched(table, key, Intent::Write)?;
        let Some(mut value) = self.tx.decode(table, row)? else { return Ok(None) };
        let result = change(&mut value);
        self.tx.give_fetched(table, row, value.borrow())?;
        Ok(Some(result))
    }

    /// Removes a row, and returns its value. Returns `None` if there is no such row.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn remove<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<Option<C::Value>, Error> {
        let row = self.tx.fetched(table, key, Intent::Write)?;
        let value = self.tx.decode(table, row)?;
        if value.is_some() {
            self.tx.state().note(row, Op::Remove);
        }
        Ok(value)
    }
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'e, F, S> {
    pub(super) fn declare<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
        intent: Intent,
    ) -> Result<(), Error> {
        self.check_fetchable(table, intent)?;
        let row = self.row(table, key)?;
        let intent = self.as_far_as_leased(intent);
        let row = &mut self.state().rows[row as usize];
        row.intent = row.intent.max(intent);
        Ok(())
    }

    /// Whether rows of a table can be fetched for this. Entries of indexes are not known before the
    /// body runs.
    fn check_fetchable<K: Key, C: Codec, O: Kind>(
        &self,
        table: ClusterTable<K, C, O>,
        intent: Intent,
    ) -> Result<(), Error> {
        if intent != Intent::Write {
            return Ok(());
        }
        table.check_writable()?;
        match self.worker.indexes_of(table.number) {
            [] => Ok(()),
            _ => Err(ClusterError::Indexed { table: table.name }.into()),
        }
    }

    /// Gives a row that was fetched a value.
    fn give_fetched<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        row: u32,
        value: &C::Given,
    ) -> Result<(), Error> {
        let failed = |source| Error::Codec { table: table.name, source };
        let kept = self.state().arena.keep_value(|bytes| C::encode(value, bytes).map_err(failed))?;
        self.state().note(row, Op::Put(kept));
        Ok(())
    }

    /// Where there are no leases, what is read is locked.
    fn as_far_as_leased(&self, intent: Intent) -> Intent {
        if self.worker.protocol().leases { intent } else { Intent::Write }
    }

    /// The number of a row that was fetched with this intent.
    fn fetched<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
        intent: Intent,
    ) -> Result<u32, Error> {
        self.check_fetchable(table, intent)?;
        let number = self.row(table, key)?;
        self.use_fetched(number, intent)?;
        Ok(number)
    }

    /// Notes that the body uses a row with this intent.
    fn use_fetched(&mut self, number: u32, intent: Intent) -> Result<(), Error> {
        let intent = self.as_far_as_leased(intent);
        let state = self.state();
        let row = &mut state.rows[number as usize];
        let had = row.intent;
        row.intent = had.max(intent);
        if row.is_known() && (had >= intent || state.is_scout || row.may_be_locked()) {
            return Ok(());
        }
        state.is_outside = true;
        Err(Conflict::Unfetched.into())
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> fmt::Debug for Sets<'_, '_, F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sets").field(&self.tx).finish()
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> fmt::Debug for Rows<'_, '_, F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rows").field(&self.tx).finish()
    }
}
