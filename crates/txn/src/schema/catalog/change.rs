//! Dropping and renaming tables, concurrently with transactions that use them.
//!
//! A dropped table loses its database, which every use of a handle compares with the handle's own.
//! So later uses of the handle are refused, also when another table has got its number (see
//! `numbers`).
//!
//! A transaction that has used the table before is refused by its commit. The thread that drops the
//! table first removes the database from it, and then advances the database's count of changes (see
//! `lifecycle`). A transaction that has validated and finds the count of its admission comes before
//! the drop. Any other is retried. One that has written to the table fails: its retry would be
//! refused.
//!
//! With a log, the drop is announced last. So a commit that comes before it has read a lower
//! snapshot number: no row of the table has a later epoch than the drop. If the drop cannot be
//! announced, the table is restored. Transactions that have met it meanwhile wait for that, or are
//! retried.

use std::sync::atomic::Ordering::SeqCst;

use drtm_htm::Engine;
use drtm_kv::KvError;

use super::{Catalog, DROPPED, NO_DATABASE, OPEN, Opened};
use crate::{
    Conflict, Error,
    db::{lifecycle::Admission, name},
    schema::table::Types,
};

/// A change that has not finished: it is later than all that have.
const UNDER_WAY: u64 = u64::MAX;

/// Tables whose rows are unused once the transactions that were admitted before this change have
/// ended.
#[derive(Debug)]
pub(crate) struct Dropped {
    pub(crate) tables: Vec<u16>,
    pub(crate) at: u64,
}

impl<E: Engine> Catalog<E> {
    /// Returns the error for a handle without a table, unless the table is there after all.
    #[cold]
    #[inline(never)]
    pub(super) fn not_there(&self, database: u32, number: u16, admitted: Admission) -> Result<&Opened<E>, Error> {
        let Some(opened) = self.get(number) else { return Err(Error::OtherDatabase) };
        // The thread that clears the table waits for this transaction, which is to be retried.
        if admitted.count() < opened.cleared_at.load(SeqCst) {
            return Err(Conflict::Validation.into());
        }
        // The dropping thread may not have advanced the count yet, or may have to restore the
        // table. Nothing may depend on a drop before that.
        let count = self.count.lock();
        if opened.database.load(SeqCst) == database {
            return Ok(opened);
        }
        if opened.used_as() == database {
            return Err(opened.dropped());
        }
        Err(count.former(number, database).map_or(Error::OtherDatabase, |table| Error::Dropped { table }))
    }

    /// Returns the open table of this name that is not an index's.
    pub(crate) fn named(&self, name: &str) -> Option<&Opened<E>> {
        self.all().map(|(_, table)| table).find(|table| table.name.get() == name && !table.is_index())
    }

    /// Returns the open table that holds the entries of an index of the table with this number.
    pub(crate) fn entries_of(&self, table: u16, index: &str) -> Option<&Opened<E>> {
        self.indexes_of(table).find(|entries| entries.name.get() == index)
    }

    fn indexes_of(&self, table: u16) -> impl Iterator<Item = &Opened<E>> {
        let is_of = move |types: &Types| types.of() == Some(table);
        self.all().map(|(_, entries)| entries).filter(move |entries| entries.types().as_ref().is_some_and(is_of))
    }

    /// Checks that no table was dropped since a transaction was admitted at this count: it may have
    /// read from one.
    pub(crate) fn check_drops(&self, admitted: u64) -> Result<(), Conflict> {
        if self.dropped_at.load(SeqCst) > admitted { Err(Conflict::Validation) } else { Ok(()) }
    }

    /// Drops a table with its indexes, or the table of an index. `publish` advances the database's
    /// count of changes, and returns it. `announce` logs the drop. The caller holds the turn of the
    /// table's indexes.
    ///
    /// # Errors
    ///
    /// [`Error::Dropped`] if it was dropped before. The errors of `announce`; the table then stays.
    pub(crate) fn drop_table(
        &self,
        (table, name): (&Opened<E>, &str),
        publish: impl FnOnce() -> u64,
        announce: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Dropped, Error> {
        let _count = self.count.lock();
        table.check_open()?;
        if table.name.get() != name {
            // It was dropped meanwhile, and another table has got its number.
            return Err(Error::Dropped { table: name::kept(name) });
        }
        let all = || std::iter::once(table).chain(self.indexes_of(table.number));
        all().for_each(|table| table.database.store(NO_DATABASE, SeqCst));
        self.dropped_at.store(UNDER_WAY, SeqCst);
        let at = publish();
        self.dropped_at.store(at, SeqCst);
        if let Err(error) = announce() {
            all().for_each(|table| table.database.store(table.used_as(), SeqCst));
            return Err(error);
        }
        let tables: Vec<_> = all().map(|table| table.number).collect();
        tables.iter().filter_map(|number| self.get(*number)).for_each(|table| table.standing.store(DROPPED, SeqCst));
        Ok(Dropped { tables, at })
    }

    /// Lets `clear` remove all rows of a table, and the entries of its indexes, while no
    /// transaction uses them. `publish` advances the database's count of changes, and returns it.
    /// `clear` gets the count and the tables; it returns `false` if it has done nothing.
    ///
    /// Transactions that were admitted before the change are retried, as for a
    /// [drop](Self::drop_table). Later ones wait until `clear` has returned.
    ///
    /// # Errors
    ///
    /// [`Error::Dropped`]. The errors of `clear`.
    pub(crate) fn clear_table(
        &self,
        (table, used_as): (&Opened<E>, u32),
        publish: impl FnOnce() -> u64,
        clear: impl FnOnce(u64, &[&Opened<E>]) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        let _count = self.count.lock();
        table.check_open_as(used_as)?;
        let all: Vec<_> = std::iter::once(table).chain(self.indexes_of(table.number)).collect();
        for table in &all {
            // Later than all real admissions: until the count is known, all are retried.
            table.cleared_at.store(Admission::LATEST.count(), SeqCst);
            table.database.store(NO_DATABASE, SeqCst);
        }
        self.dropped_at.store(UNDER_WAY, SeqCst);
        let at = publish();
        self.dropped_at.store(at, SeqCst);
        all.iter().for_each(|table| table.cleared_at.store(at, SeqCst));
        let cleared = clear(at, &all);
        for table in &all {
            table.database.store(table.used_as(), SeqCst);
            table.cleared_at.store(0, SeqCst);
        }
        cleared
    }

    /// Makes the number and the storage of a dropped table, which no transaction uses any more,
    /// available to another table, if the storage is empty. Returns whether it is.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    pub(crate) fn reuse_storage(&self, dropped: &Opened<E>) -> Result<bool, KvError> {
        let is_empty = dropped.storage.records()? == 0;
        if is_empty {
            dropped.storage.forget_hints();
            let mut count = self.count.lock();
            if count.for_peers {
                // Nodes of a cluster know tables by their numbers alone.
                count.unused.push(dropped.storage.clone());
            } else {
                count.spare.push(dropped.number);
            }
        }
        Ok(is_empty)
    }

    /// Renames a table. `announce` logs that, given the table's identity.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTable`] and [`Error::NameTaken`]. The errors of `announce`; the table then
    /// keeps its name.
    pub(crate) fn rename_table(
        &self,
        old: &str,
        new: &str,
        announce: impl FnOnce(u16) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let _count = self.count.lock();
        let Some(table) = self.named(old) else { return Err(Error::NoSuchTable { name: old.to_owned() }) };
        if self.all().any(|(_, table)| table.name.get() == new) {
            return Err(Error::NameTaken { name: new.to_owned() });
        }
        announce(self.id(table.number).unwrap_or_default())?;
        table.name.set(name::kept(new));
        Ok(())
    }
}

impl<E: Engine> Opened<E> {
    /// Checks that the table was not dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Dropped`].
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.stands(OPEN) { Ok(()) } else { Err(self.dropped()) }
    }

    /// Checks that the table was not dropped since its number had this use.
    ///
    /// # Errors
    ///
    /// [`Error::Dropped`].
    pub(crate) fn check_open_as(&self, used_as: u32) -> Result<(), Error> {
        if self.used_as() == used_as { self.check_open() } else { Err(self.dropped()) }
    }

    /// Returns whether the table was dropped, or is being dropped.
    pub(crate) fn is_dropped(&self) -> bool {
        // A table that is being cleared has none for a moment. It gets it back before the mark
        // goes, so a second look tells the two apart.
        let has_none = || self.database.load(SeqCst) == NO_DATABASE;
        has_none() && self.cleared_at.load(SeqCst) == 0 && has_none()
    }

    pub(crate) fn is_index(&self) -> bool {
        self.identity.lock().types.as_ref().is_some_and(Types::is_index)
    }

    #[cold]
    pub(crate) fn dropped(&self) -> Error {
        Error::Dropped { table: self.name.get() }
    }
}
