//! Statistics and memory use of a database.

use drtm_htm::Engine;
use drtm_kv::record_bytes;
use drtm_rdma::Region;

use super::Db;
use crate::{
    Config, Error, MemoryUse, Stats, TableStats,
    db::inner::Inner,
    memory::{garbage::Garbage, storage::KeyRef},
};

impl<S: Config> Db<S> {
    /// Returns the counts of transactions by outcome.
    ///
    /// # Example
    ///
    /// See [`Stats`].
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.registry.sum(self.inner.engine())
    }

    /// Returns the counts of htm transactions by outcome, where the machine has such.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error};
    ///
    /// let db = Db::new()?;
    /// db.transact(|_| Ok(()))?;
    /// println!("{} htm transactions committed", db.htm_stats().commits);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn htm_stats(&self) -> drtm_htm::Stats {
        self.inner.store.htm_stats()
    }

    /// Returns the bytes of memory that hold older versions of rows for snapshots. Versions that no
    /// snapshot needs count until they are reclaimed.
    ///
    /// # Example
    ///
    /// See [`Builder::older_versions`](crate::Builder::older_versions).
    #[must_use]
    pub fn older_versions(&self) -> u64 {
        self.inner.past.used()
    }

    /// Returns how many snapshots are open, including those that read-only transactions have turned
    /// to.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error};
    ///
    /// let db = Db::new()?;
    /// let snapshot = db.snapshot()?;
    /// assert_eq!(db.snapshot_count()?, 1);
    /// drop(snapshot);
    /// assert_eq!(db.snapshot_count()?, 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn snapshot_count(&self) -> Result<u64, Error> {
        Ok(self.inner.snapshots.count(&self.inner.store)?)
    }

    /// Checks that the database can be written at present. A database in memory always can.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`] if it was opened for reading only; the reason is an error if it is on a
    /// read-only disk. [`Error::DiskFull`] if there was no room for the log when it was tried last.
    /// [`Error::Poisoned`] if the log has failed.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error};
    ///
    /// Db::new()?.check_writable()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn check_writable(&self) -> Result<(), Error> {
        self.inner.log.as_ref().map_or(Ok(()), |log| log.check())
    }

    /// Returns how much memory the database uses, by kind.
    ///
    /// This asks the system which pages are in memory, which takes about two milliseconds for each
    /// GiB that tables have taken.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Builder, Error};
    ///
    /// let memory = Builder::new().memory(64 << 20).build()?.memory();
    /// assert!(0 < memory.tables && memory.total() < memory.most && memory.most == 64 << 20);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn memory(&self) -> MemoryUse {
        let Inner { store, past, garbage, registry, .. } = &*self.inner;
        let free = store.free_spans();
        MemoryUse {
            most: store.region().capacity(),
            tables: store.region().allocated() - free,
            resident: resident(store.region()),
            free,
            older_versions: past.used(),
            hints: store.beside(),
            threads: registry.kept(),
            garbage: (garbage.len() * size_of::<Garbage>()) as u64,
        }
    }

    /// Returns the names of the open tables, indexes included, and how many records each has. A
    /// record of a row that is just being inserted or removed counts too.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Raw, TableDef};
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

    /// Counts the rows of a table, or of an index, and their bytes.
    ///
    /// Reads every row once, because writes keep no counts of bytes. It does not disturb
    /// transactions. So it takes about as long as a checkpoint of the table without its file.
    ///
    /// Rows that are written meanwhile are counted as they were before or after. For an exact
    /// number, use [`Tx::len`](crate::Tx::len). [`tables`](Self::tables) is cheap, and counts
    /// records.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTable`]; [`Error::Dropped`] if the table is dropped meanwhile; or when the
    /// store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let db = Db::new()?;
    /// let notes = db.table(NOTES)?;
    /// db.transact(|tx| (0..100).try_for_each(|note| tx.insert(notes, note, &[7; 40])))?;
    /// let stats = db.table_stats("notes")?;
    /// assert_eq!((stats.rows, stats.key_bytes, stats.value_bytes), (100, 800, 4_000));
    /// assert_eq!(stats.record_bytes, 100 * (32 + 40));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn table_stats(&self, name: &str) -> Result<TableStats, Error> {
        let Some((_, table)) = self.inner.catalog.all().find(|(_, table)| table.name.get() == name) else {
            return Err(Error::NoSuchTable { name: name.to_owned() });
        };
        let used_as = table.used_as();
        let (mut tour, mut stats) = (table.storage.tour()?, TableStats::default());
        let mut has_more = true;
        while has_more {
            has_more = table.storage.rows(&mut tour, |key, value, _| {
                let (key, kept) = match key {
                    KeyRef::Word(_) => (table.key_size(), None),
                    KeyRef::Bytes(key) => (key.len(), Some(key.len())),
                };
                stats.rows += 1;
                stats.key_bytes += key as u64;
                stats.value_bytes += value.len() as u64;
                stats.record_bytes += record_bytes(kept, value.len());
            })?;
            table.check_open_as(used_as)?;
        }
        Ok(stats)
    }
}

/// Returns how many bytes of a region are in physical memory, if the system tells.
#[cfg(not(feature = "model"))]
fn resident<E: Engine>(region: &Region<E>) -> Option<u64> {
    region.resident().ok()
}

/// Returns `None`: the model checker's region is no mapping.
#[cfg(feature = "model")]
fn resident<E: Engine>(_region: &Region<E>) -> Option<u64> {
    None
}
