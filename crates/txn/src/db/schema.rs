//! Dropping and renaming tables, and dropping indexes.

use super::Db;
use crate::{Config, Error, catalog::Opened, durability::format::CatalogChange, reclaim, trace::event};

impl<S: Config> Db<S> {
    /// Drops a table with all of its rows and indexes. A table that is created later under the same
    /// name is another table, without rows.
    ///
    /// Every use of an old handle then fails with [`Error::Dropped`], in snapshots too. A running
    /// transaction that has written to the table fails with it at its commit. Other running
    /// transactions are retried; one that was [begun](Self::begin) fails with
    /// [`Conflict::Validation`](crate::Conflict::Validation). An open range may continue to the end
    /// of its transaction with the rows that there were.
    ///
    /// If no transaction or snapshot is open, the memory of the rows is reused at once, which takes
    /// some time for each row. Otherwise it is freed after those that were open before have ended,
    /// a part of it with every few commits. Buckets and nodes are then reused by another table of
    /// the same kind, with keys like its own. The table's number, of which there are [so
    /// many](Error::TooManyTables), is kept until the database is closed.
    ///
    /// With a [log](crate::Builder::path), the drop is durable when a commit would be durable.
    /// After a crash before that, the table and all of its rows are there; after a later one,
    /// neither is.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTable`]. [`Error::Dropped`] if another thread drops the table at the same
    /// time. [`Error::OfCluster`]. [`Error::Nested`] within the closure of a transaction.
    /// [`Error::Closed`]. [`Error::Poisoned`]; the table then stays. [`Error::OutcomeUnknown`] if
    /// the log fails meanwhile.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let db = Db::new()?;
    /// let notes = db.table(NOTES)?;
    /// db.transact(|tx| tx.put(notes, &1, b"one"))?;
    /// db.drop_table(NOTES.name())?;
    /// assert!(matches!(db.transact(|tx| tx.put(notes, &1, b"two")), Err(Error::Dropped { table: "notes" })));
    ///
    /// let notes = db.table(NOTES)?;
    /// assert_eq!(db.read(|tx| tx.get(notes, &1))?, None, "it is another table");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn drop_table(&self, name: &str) -> Result<(), Error> {
        let db = &*self.inner;
        db.lifecycle.admit(db.engine(), false)?;
        if self.is_in_closure() {
            return Err(Error::Nested);
        }
        let Some(table) = db.catalog.named(name) else { return Err(Error::NoSuchTable { name: name.to_owned() }) };
        // A thread that builds an index of the table finishes first.
        let turn = table.indexes.turn();
        table.indexes.check_own(&table.name)?;
        let id = db.catalog.id(table.number).unwrap_or_default();
        self.drop_from_catalog(table, || db.announce(&CatalogChange::TableDropped(id)))?;
        drop(turn);
        event!(info, table = name, "a table has been dropped");
        db.after_announcement()
    }

    /// Renames a table. Its handles stay valid, and transactions are not affected. The definition
    /// that the table is opened with next must have the new name.
    ///
    /// The bytes of a name are allocated once and kept until the process ends.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTable`]. [`Error::NameTaken`] if a table or an index has the new name, or it
    /// is the table's own name. [`Error::TooLarge`] if the new name is longer than 64 KiB, and
    /// there is a log. [`Error::Closed`]. [`Error::Poisoned`]; the table then keeps its name.
    /// [`Error::OutcomeUnknown`] if the log fails meanwhile.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Raw, TableDef};
    ///
    /// const DRAFTS: TableDef<u64, Raw> = TableDef::hash("drafts");
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let db = Db::new()?;
    /// let drafts = db.table(DRAFTS)?;
    /// db.transact(|tx| tx.put(drafts, &1, b"one"))?;
    /// db.rename_table("drafts", "notes")?;
    ///
    /// let notes = db.table(NOTES)?;
    /// db.transact(|tx| tx.put(drafts, &2, b"by the old handle"))?;
    /// assert_eq!(db.read(|tx| tx.get_many(notes, &[1, 2]))?.into_iter().flatten().count(), 2);
    /// assert!(matches!(db.rename_table("drafts", "texts"), Err(Error::NoSuchTable { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn rename_table(&self, old: &str, new: &str) -> Result<(), Error> {
        let db = &*self.inner;
        db.lifecycle.admit(db.engine(), false)?;
        db.catalog.rename_table(old, new, |id| db.announce(&CatalogChange::TableRenamed(id, new.to_owned())))?;
        event!(info, table = old, name = new, "a table has been renamed");
        db.after_announcement()
    }

    /// Drops an index, whether it is open or only recorded in the log. Its table stays.
    ///
    /// Every use of an old handle of the index then fails with [`Error::Dropped`]. Running
    /// transactions are retried; one that was [begun](Self::begin) fails with a
    /// [`Conflict`](crate::Conflict).
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchIndex`]. [`Error::OfCluster`]. [`Error::Nested`] within the closure of a
    /// transaction. [`Error::Closed`]. [`Error::Poisoned`]; the index then stays.
    /// [`Error::OutcomeUnknown`] if the log fails meanwhile.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, IndexDef, Pod, TableDef};
    ///
    /// const SCORES: TableDef<u64, Pod<u32>> = TableDef::hash("scores");
    /// const BY_SCORE: IndexDef<u64, Pod<u32>, u32> = IndexDef::unique("players by score", |_, score| Some(score));
    ///
    /// let db = Db::new()?;
    /// let scores = db.table(SCORES)?;
    /// db.index(scores, BY_SCORE)?;
    /// db.transact(|tx| tx.put(scores, &1, &700))?;
    /// assert!(matches!(db.transact(|tx| tx.put(scores, &2, &700)), Err(Error::Duplicate { .. })));
    /// db.drop_index(BY_SCORE.name())?;
    /// db.transact(|tx| tx.put(scores, &2, &700))?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn drop_index(&self, name: &str) -> Result<(), Error> {
        let db = &*self.inner;
        db.lifecycle.admit(db.engine(), false)?;
        if self.is_in_closure() {
            return Err(Error::Nested);
        }
        let missing = || Error::NoSuchIndex { name: name.to_owned() };
        let table = db.catalog.all().map(|(_, table)| table).find(|table| table.indexes.know(name));
        let table = table.ok_or_else(missing)?;
        let turn = table.indexes.turn();
        if table.check_open().is_err() || !table.indexes.know(name) {
            return Err(missing());
        }
        table.indexes.check_own(&table.name)?;
        let id = db.catalog.id(table.number).unwrap_or_default();
        table.indexes.unrecord(name, || db.announce(&CatalogChange::IndexDropped(id, name.to_owned())))?;
        // Writers learn first that the index is gone. A writer that still reaches its entries is
        // retried.
        table.indexes.remove(name, || db.lifecycle.advance_count(db.engine()));
        if let Some(entries) = db.catalog.entries_of(table.number, name) {
            self.drop_from_catalog(entries, || Ok(()))?;
        }
        drop(turn);
        event!(info, index = name, "an index has been dropped");
        db.after_announcement()
    }

    /// Removes a table from the catalog, and reclaims its memory as soon as nothing uses it.
    fn drop_from_catalog(
        &self,
        table: &Opened<S::Engine>,
        announce: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let db = &*self.inner;
        let tell = || db.lifecycle.advance_count(db.engine());
        reclaim::empty_dropped(db, db.catalog.drop_table(table, tell, announce)?)
    }
}
