//! The rows that a transaction fetches before it runs: what it declares, and what its body uses.

mod range;

use std::fmt;

use drtm_rdma::Fabric;

use super::{ClusterTx, state::Intent};
use crate::{AsKey, Codec, Config, Conflict, DefaultConfig, Error, Key, Table, schema::table::Kind};

/// The rows that a transaction is going to use: see
/// [`Worker::transact_on`](super::Worker::transact_on).
pub struct Sets<'t, 'e, F: Fabric, S: Config<Engine = F::Engine> = DefaultConfig> {
    pub(super) tx: &'t mut ClusterTx<'e, F, S>,
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Sets<'_, 'e, F, S> {
    /// Declares a row that is going to be read.
    ///
    /// # Errors
    ///
    /// When no node owns a row with this key, or it is too long.
    pub fn read<K: Key, C: Codec, O: Kind>(&mut self, table: Table<K, C, O>, key: impl AsKey<K>) -> Result<(), Error> {
        self.tx.declare(table, key, Intent::Read)
    }

    /// Declares a row that is going to be written, and perhaps read.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Indexed`](super::ClusterError::Indexed); [`Error::Replicated`]; otherwise as
    /// for [`read`](Self::read).
    pub fn write<K: Key, C: Codec, O: Kind>(&mut self, table: Table<K, C, O>, key: impl AsKey<K>) -> Result<(), Error> {
        self.tx.declare(table, key, Intent::Write)
    }
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'e, F, S> {
    fn declare<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
        intent: Intent,
    ) -> Result<(), Error> {
        if intent == Intent::Write {
            self.check_writable(table.number)?;
        }
        let row = self.row(table, key)?;
        let intent = self.as_far_as_leased(intent);
        let row = &mut self.state().rows[row as usize];
        row.intent = row.intent.max(intent);
        Ok(())
    }

    /// Returns the intent, or [`Intent::Write`] where there are no leases: what is read is locked.
    fn as_far_as_leased(&self, intent: Intent) -> Intent {
        if self.worker.protocol().leases { intent } else { Intent::Write }
    }

    /// Notes that the body uses a row with this intent.
    pub(super) fn use_fetched(&mut self, number: u32, intent: Intent) -> Result<(), Error> {
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

    /// Notes rows that the body is about to use. A run that only finds out rows looks all of them
    /// up at once; any other run does nothing here.
    pub(super) fn expect_fetched(&mut self, rows: &[u32]) -> Result<(), Error> {
        let state = self.state();
        if !state.is_scout || rows.iter().all(|row| state.rows[*row as usize].is_known()) {
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
