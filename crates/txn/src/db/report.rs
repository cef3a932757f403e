//! What a database tells of itself.

use super::Db;
use crate::{Error, Setting, Stats};

impl<S: Setting> Db<S> {
    /// What has become of transactions so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.registry.sum(self.inner.engine())
    }

    /// What became of hardware regions so far, where there are such.
    #[must_use]
    pub fn regions(&self) -> drtm_htm::Stats {
        self.inner.store.regions()
    }

    /// Bytes of memory that hold what rows were, for open snapshots, or until somebody notices that none needs them any longer.
    #[must_use]
    pub fn older_versions(&self) -> u64 {
        self.inner.past.used()
    }

    /// How many snapshots are open, those among them in which read-only transactions go on.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error};
    ///
    /// let db = Db::new()?;
    /// let snapshot = db.snapshot()?;
    /// assert_eq!(db.open_snapshots()?, 1);
    /// drop(snapshot);
    /// assert_eq!(db.open_snapshots()?, 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn open_snapshots(&self) -> Result<u64, Error> {
        Ok(self.inner.snapshots.count(&self.inner.store)?)
    }

    /// Bytes of memory that are taken, whatever for, and how many there can be. What rows no longer need is used for others, and not given back.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Builder, Error};
    ///
    /// let (taken, most) = Builder::new().memory(64 << 20).build()?.memory();
    /// assert!(0 < taken && taken < most && most == 64 << 20);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn memory(&self) -> (u64, u64) {
        let region = self.inner.store.region();
        (region.allocated(), region.capacity())
    }

    /// The tables that are open, indexes included: their names, and how many records each has. A record of a row that is just being inserted or removed counts too.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let db = Db::new()?;
    /// let notes = db.table(NOTES)?;
    /// db.transact(|tx| tx.insert(notes, &1, b"one"))?;
    /// assert_eq!(db.tables()?, [("notes", 1)]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn tables(&self) -> Result<Vec<(&'static str, u64)>, Error> {
        self.inner.catalog.all().map(|(_, table)| Ok((table.name.get(), table.storage.records()?))).collect()
    }
}
