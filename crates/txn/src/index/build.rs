//! Opening an index of a table that may have rows, concurrently with its writers.
//!
//! First the index is published to the table's writers: every commit from then on maintains its
//! entries, as far as they exist. Then every existing row gets the entries that it lacks, in
//! transactions of a few rows each, which conflict with writers like any other. A row that is
//! inserted later gets its entries from its writer. So when all keys have been visited, the index
//! is whole.
//!
//! If that fails, the index is given up: writers stop maintaining it, and its entries are removed.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::Ordering::SeqCst,
};

use drtm_htm::Engine;

use super::{Index, IndexDef, Listed, Uniqueness, upkeep};
use crate::{
    Codec, Config, Db, Error, Key, Ordered, Raw, Table,
    commit::epoch::first_after,
    db::lifecycle::Admission,
    durability::format::CatalogChange,
    memory::storage::OwnedKey,
    schema::{catalog::Opened, table::Kind},
    trace::{event, within},
};

/// The number of rows that get their entries in one transaction: enough to amortise a transaction's
/// own cost, and few enough to conflict rarely.
const BATCH: usize = 64;

impl<S: Config> Db<S> {
    /// Opens an index of a table, and creates it if no index has that name. The table may have
    /// rows, and may be written meanwhile: this returns when the index has all of them, and writers
    /// do not wait for it.
    ///
    /// Transactions that are running when the index is created, and have written to the table, are
    /// retried; one that was [begun](Self::begin) fails with
    /// [`Conflict::Indexed`](crate::Conflict::Indexed). A unique index refuses duplicates as soon
    /// as its creation has begun.
    ///
    /// If it cannot be created, there is no such index, and the table is unchanged.
    ///
    /// For an index that is already open only the name and the types are compared, not the
    /// function.
    ///
    /// # Errors
    ///
    /// [`Error::NotUnique`] if two rows have the same key in a unique index. [`Error::OtherTypes`]
    /// if another table or index has this name. [`Error::Nested`] within the closure of a
    /// transaction, if the index is not open yet. [`Error::OtherDatabase`].
    /// [`Error::TooManyTables`]. [`Error::OfCluster`]. [`Error::Closed`]. Also when a row's value
    /// cannot be decoded, or memory has run out.
    ///
    /// # Panics
    ///
    /// Panics if the index's function panics. The index is then not created.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, IndexDef, Key, Multi, Pod, TableDef};
    ///
    /// const SCORES: TableDef<u64, Pod<u32>> = TableDef::hash("scores");
    /// const BY_SCORE: IndexDef<u64, Pod<u32>, u32, Multi> = IndexDef::multi("players by score", |_, score| Some(score));
    /// const BY_DIGIT: IndexDef<u64, Pod<u32>, u32> = IndexDef::unique("players by digit", |_, score| Some(score % 10));
    ///
    /// let db = Db::new()?;
    /// let scores = db.table(SCORES)?;
    /// db.transact(|tx| {
    ///     tx.put(scores, &1, &700)?;
    ///     tx.put(scores, &2, &900)
    /// })?;
    ///
    /// let by_score = db.index(scores, BY_SCORE)?;
    /// assert_eq!(db.read(|tx| tx.range(by_score, ..)?.last())?, Some((900, (2, 900))));
    ///
    /// match db.index(scores, BY_DIGIT) {
    ///     Err(Error::NotUnique { index: "players by digit", key, .. }) => assert_eq!(u32::from_bytes(&key), Some(0)),
    ///     other => panic!("{other:?}"),
    /// }
    /// db.transact(|tx| tx.put(scores, &1, &701))?;
    /// db.index(scores, BY_DIGIT)?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn index<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind>(
        &self,
        table: Table<K, C, O>,
        def: IndexDef<K, C, I, U>,
    ) -> Result<Index<K, C, I, U, O>, Error> {
        let db = &*self.inner;
        db.lifecycle.admit_opening(db.engine())?;
        let opened = db.catalog.opened(table.database, table.number, || Admission::LATEST)?;
        let (entries, types) = (def.entries(), def.entries().types(Some((opened.number, opened.name.clone()))));
        let entries = if opened.indexes.have(def.name)
            && let Some(entries) = db.catalog.find(entries, &types)?
        {
            entries
        } else if self.is_in_closure() {
            return Err(Error::Nested);
        } else {
            // Another thread that creates an index of this table may be creating this one.
            let _turn = opened.indexes.turn();
            opened.check_open_as(table.database)?;
            opened.indexes.check_own(&opened.name)?;
            let entries = db.catalog.open(&db.store, (entries, types), |_, _| Ok(()))?;
            if !opened.indexes.have(def.name) {
                let _admitted = db.lifecycle.admit_building(db.engine())?;
                within!(
                    "index",
                    [index = def.name, table = opened.name.get()],
                    self.build(opened, def, entries.number)
                )?;
                self.record_index(opened, def.name)?;
            }
            entries
        };
        Ok(Index::new(table, entries))
    }

    /// Records an index in the log, unless it was recovered from there.
    fn record_index(&self, opened: &Opened<S::Engine>, name: &str) -> Result<(), Error> {
        let db = &*self.inner;
        let (Some(log), Some(id)) = (&db.log, db.catalog.id(opened.number)) else { return Ok(()) };
        opened.indexes.record(name, || log.announce(&CatalogChange::Index(id, name.to_owned())))?;
        log.after_announcement()
    }

    /// Builds an index whose table exists and is empty.
    fn build<K: Key, C: Codec, I: Key, U: Uniqueness>(
        &self,
        opened: &Opened<S::Engine>,
        def: IndexDef<K, C, I, U>,
        number: u16,
    ) -> Result<(), Error> {
        let db = &*self.inner;
        let Some(entries) = db.catalog.get(number) else { return Err(Error::OtherDatabase) };
        let publish = || db.lifecycle.advance_count(db.engine());
        let index = Box::new(upkeep::Opened { def, table: opened.name.clone() });
        let listed = opened.indexes.add(index, number, publish);
        let filled = catch_unwind(AssertUnwindSafe(|| {
            self.fill(opened, listed)?;
            Ok(db.engine().load(db.snapshot_number()?))
        }));
        let failed = match filled {
            Ok(Ok(now)) => {
                entries.whole_since.store(first_after(now).number(), SeqCst);
                listed.mark_whole();
                event!(info, index = def.name, table = opened.name.get(), "an index has been made");
                return Ok(());
            }
            Ok(Err(error)) => Ok(error),
            Err(panic) => Err(panic),
        };
        opened.indexes.give_up(listed, publish);
        let is_empty = if <U::Key<K, I>>::FITS { self.empty::<u64>(number) } else { self.empty::<Vec<u8>>(number) };
        entries.retire(is_empty.is_ok());
        event!(
            warn,
            index = def.name,
            table = opened.name.get(),
            error = failed.as_ref().ok().map(tracing::field::display),
            "an index has been given up"
        );
        match failed {
            Ok(error) => Err(error),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Adds the missing entries of every existing row.
    fn fill(&self, opened: &Opened<S::Engine>, index: &Listed) -> Result<(), Error> {
        let mut tour = opened.storage.tour()?;
        let mut keys: Vec<OwnedKey> = Vec::new();
        loop {
            let has_more = opened.storage.visit_some(&mut tour, |key| keys.push(key.into()))?;
            if keys.len() >= BATCH || !has_more {
                for some in keys.chunks(BATCH) {
                    self.transact(|tx| {
                        some.iter().try_for_each(|key| tx.exclusive().complete(opened, key.as_ref(), index))
                    })?;
                }
                keys.clear();
            }
            if !has_more {
                return Ok(());
            }
        }
    }

    /// Removes the entries of an index that no writer maintains any more.
    fn empty<K: Key>(&self, number: u16) -> Result<(), Error> {
        let used_as = self.inner.catalog.get(number).ok_or(Error::OtherDatabase)?.used_as();
        let entries: Table<K, Raw, Ordered> = Table::new(used_as, number);
        loop {
            let removed = self.transact(|tx| {
                let mut some = Vec::new();
                let mut rows = tx.range(entries, ..)?;
                while some.len() < BATCH
                    && let Some((key, ())) = rows.view_next(|_| ())?
                {
                    some.push(key);
                }
                some.iter().try_for_each(|key| tx.remove(entries, key).map(drop))?;
                Ok(some.len())
            })?;
            if removed < BATCH {
                return Ok(());
            }
        }
    }
}
