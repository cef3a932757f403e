//! Dropping and renaming tables, and dropping indexes.

use super::Db;
use crate::{
    Codec, Config, Error, Key, Kind, Table, db::lifecycle::Admission, durability::format::CatalogChange,
    memory::reclaim, schema::catalog::Opened, trace::event,
};

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
    /// If the transactions and snapshots that are open end soon, the memory of the rows is freed at
    /// once. Otherwise a later commit frees it, after they have ended. This takes time for each of
    /// the table's buckets or nodes, and for each span of memory; rows are visited only where they
    /// are in memory together with another table's. Buckets and nodes are then reused by another
    /// table of the same kind, with keys like its own; and so is the table's number, of which there
    /// are [so many](Error::TooManyTables).
    ///
    /// With a [log](crate::Builder::path), the drop is durable when a commit would be durable.
    /// After a crash before that, the table and all of its rows are there; after a later one,
    /// neither is.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTable`]. [`Error::Dropped`] if another thread drops the table at the same
    /// time. [`Error::OfCluster`]. [`Error::Nested`] within the closure of a transaction.
    /// [`Error::Closed`]. [`Error::Poisoned`], [`Error::ReadOnly`], [`Error::DiskFull`]; the table
    /// then stays. [`Error::OutcomeUnknown`] if the log fails meanwhile.
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
        self.drop_from_catalog((table, name), || db.announce(&CatalogChange::TableDropped(id)))?;
        drop(turn);
        event!(info, table = name, "a table has been dropped");
        db.after_announcement()
    }

    /// Removes all rows of a table at once, in a transaction of its own.
    ///
    /// Like [`Tx::clear`](crate::Tx::clear), but does not look at each row: it visits the table's
    /// index, and frees memory in whole spans. That needs a moment in which nothing uses the table.
    /// Transactions that run are retried, as for [`drop_table`](Self::drop_table); later ones that
    /// use the table wait. Where there is no such moment soon, since a snapshot or a transaction
    /// stays open, this removes the rows one by one, as `Tx::clear` does. So it does for a database
    /// with a [sink](crate::Builder::sink), which is told of each row.
    ///
    /// A row that is in memory together with another table's rows is freed by itself.
    ///
    /// # Errors
    ///
    /// [`Error::Dropped`]. [`Error::IndexNotOpened`]. [`Error::OfCluster`]. [`Error::Nested`]
    /// within the closure of a transaction. [`Error::Closed`]. [`Error::Poisoned`],
    /// [`Error::ReadOnly`], [`Error::DiskFull`]; the rows then stay. [`Error::OutcomeUnknown`] if
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
    /// db.transact(|tx| (0..1_000).try_for_each(|key| tx.put(notes, key, b"note")))?;
    /// db.clear_table(notes)?;
    /// assert_eq!(db.read(|tx| tx.len(notes))?, 0);
    /// db.transact(|tx| tx.insert(notes, 7, b"new"))?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn clear_table<K: Key, C: Codec, O: Kind>(&self, table: Table<K, C, O>) -> Result<(), Error> {
        let db = &*self.inner;
        db.lifecycle.admit(db.engine(), false)?;
        if self.is_in_closure() {
            return Err(Error::Nested);
        }
        let opened = db.catalog.opened(table.database, table.number, || Admission::LATEST)?;
        let turn = opened.indexes.turn();
        opened.indexes.check_own(&opened.name)?;
        opened.indexes.check_opened(&opened.name)?;
        let cleared = self.clear_whole(opened, table.database)?;
        drop(turn);
        if !cleared {
            return self.transact(|tx| tx.clear(table).map(drop));
        }
        event!(info, table = opened.name.get(), "a table has been cleared");
        db.after_announcement()
    }

    /// Removes all rows of a table and its indexes while nothing uses them. Returns whether there
    /// was such a moment.
    fn clear_whole(&self, table: &Opened<S::Engine>, used_as: u32) -> Result<bool, Error> {
        let db = &*self.inner;
        if db.sink.is_some() || self.snapshot_count()? > 0 {
            return Ok(false);
        }
        let thread = db.thread();
        let mut state = db.take(thread)?;
        let tell = || db.lifecycle.advance_count(db.engine());
        let cleared = db.catalog.clear_table((table, used_as), tell, |at, tables| {
            if !reclaim::await_end(db, &mut state, at)? {
                return Ok(false);
            }
            // Rows of earlier epochs are removed, and no other commits meanwhile.
            db.announce(&CatalogChange::TableCleared(db.catalog.id(table.number).unwrap_or_default()))?;
            tables.iter().try_for_each(|table| reclaim::empty_all(db, &mut state, table))?;
            Ok(true)
        });
        db.give_back(thread, state);
        let is_cleared = cleared?;
        if is_cleared {
            reclaim::await_spans(db);
        }
        Ok(is_cleared)
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
    /// there is a log. [`Error::Closed`]. [`Error::Poisoned`], [`Error::ReadOnly`],
    /// [`Error::DiskFull`]; the table then keeps its name. [`Error::OutcomeUnknown`] if the log
    /// fails meanwhile.
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
    /// transaction. [`Error::Closed`]. [`Error::Poisoned`], [`Error::ReadOnly`],
    /// [`Error::DiskFull`]; the index then stays. [`Error::OutcomeUnknown`] if the log fails
    /// meanwhile.
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
            self.drop_from_catalog((entries, name), || Ok(()))?;
        }
        drop(turn);
        event!(info, index = name, "an index has been dropped");
        db.after_announcement()
    }

    /// Removes a table from the catalog, and reclaims its memory as soon as nothing uses it.
    fn drop_from_catalog(
        &self,
        table: (&Opened<S::Engine>, &str),
        announce: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let db = &*self.inner;
        let tell = || db.lifecycle.advance_count(db.engine());
        reclaim::empty_dropped(db, db.catalog.drop_table(table, tell, announce)?)
    }
}
