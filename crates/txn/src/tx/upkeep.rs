//! Writing rows of tables with indexes: the row and its entries, all or nothing.

use std::mem;

use super::{Exclusive, Found};
use crate::{
    Config, Conflict, Error, Ordered, Raw, Table,
    commit::write_set::WriteOp,
    index::{Entries, Entry, Listed, RowEntries},
    memory::storage::{Expected, KeyRef},
    schema::{catalog::Opened, table::Any},
    tx::projection::Projection,
};

impl<'db, S: Config> Exclusive<'db, S> {
    /// Writes a row by calling `write`, and updates its index entries from those of the old value
    /// to those of the new one.
    #[inline(always)]
    pub(super) fn with_entries(
        &mut self,
        opened: &Opened<S::Engine>,
        key: KeyRef<'_>,
        old: Option<Found>,
        op: WriteOp,
        write: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if opened.indexes.are_none() { write(self) } else { self.write_indexed(opened, key, old, op, write) }
    }

    #[inline(never)]
    fn write_indexed(
        &mut self,
        opened: &Opened<S::Engine>,
        key: KeyRef<'_>,
        old: Option<Found>,
        op: WriteOp,
        write: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        opened.indexes.check_writer(&opened.name)?;
        if let Some(index) = opened.indexes.not_opened() {
            return Err(Error::IndexNotOpened { table: opened.name.get(), index });
        }
        let state = self.state();
        if opened.indexes.changed_at() > state.session.admission.count() {
            // Its earlier writes may lack entries of the new index.
            return Err(self.doom(Conflict::Indexed));
        }
        let mut entries = mem::take(&mut state.entries);
        let (old, new) = (old.map(|old| Self::bytes(state, old)), Found::of(op).map(|new| Self::bytes(state, new)));
        let listed =
            entries.list(|row, value, into| opened.indexes.list(row, value, into), (key, opened.key_size()), old, new);
        let before = self.savepoint();
        let written = listed.and_then(|()| write(self)).and_then(|()| self.change_entries(opened, &entries));
        self.state().entries = entries;
        match written {
            // An index was dropped that the row was to have entries in.
            Err(Error::Dropped { .. }) => Err(self.doom(Conflict::Indexed)),
            // The application may continue after the error, so the attempt leaves no trace.
            written => written.or_else(|error| self.return_to(before).and(Err(error))),
        }
    }

    /// Removes and adds the entries that differ.
    fn change_entries(&mut self, opened: &Opened<S::Engine>, entries: &RowEntries) -> Result<(), Error> {
        for entry in entries.leaving() {
            if !self.remove_entry(entry, &entries.row)? {
                return Err(self.disagreement(entry.index, opened.name.get()));
            }
        }
        for entry in entries.coming() {
            match self.add_entry(entry, &entries.row) {
                Err(Error::Exists { table }) => return Err(Error::Duplicate { index: table }),
                added => added?,
            }
        }
        Ok(())
    }

    /// Returns the table of an entry's index, with bytes as keys and values.
    fn index_of(&self, entry: Entry<'_>) -> Result<&'db Opened<S::Engine>, Error> {
        // While this transaction is active, the number has one use.
        let used_as = self.db.catalog.get(entry.index).map_or(self.db.number, Opened::used_as);
        self.opened(Table::<u64, Raw, Ordered>::new(used_as, entry.index))
    }

    /// Removes an entry. Returns whether it was there, or may rightly have been missing.
    fn remove_entry(&mut self, entry: Entry<'_>, row: &[u8]) -> Result<bool, Error> {
        // While an index is partial, another row may have got the entry that this row lacks.
        if entry.is_partial && entry.is_unique && self.owner(entry)?.is_some_and(|owner| owner != row) {
            return Ok(true);
        }
        let was_there = self.remove_key::<Raw, Ordered>(self.index_of(entry)?, entry.key)?;
        Ok(was_there || entry.is_partial)
    }

    /// Returns the key of the row that has an entry of a unique index. `None` if no row has it.
    fn owner(&mut self, entry: Entry<'_>) -> Result<Option<&[u8]>, Error> {
        let found = self.row::<Raw, Ordered>(self.index_of(entry)?, entry.key, &Projection::TO_READ)?.found;
        Ok(found.map(|found| Self::bytes(self.state(), found)))
    }

    fn add_entry(&mut self, entry: Entry<'_>, row: &[u8]) -> Result<(), Error> {
        // An entry of a non-unique index contains the row's key, so no other row can have it.
        let (value, expected) =
            if entry.is_unique { (row, &Expected::Nothing) } else { (&[][..], &Expected::Anything) };
        let index = self.index_of(entry)?;
        let value = self.keep_value::<Raw>(index, value)?;
        self.place_at::<Ordered>(index, entry.key, value, expected)
    }

    /// Adds the entries that a row lacks in an index, if the row exists.
    pub(crate) fn complete(
        &mut self,
        opened: &Opened<S::Engine>,
        key: KeyRef<'_>,
        index: &Listed,
    ) -> Result<(), Error> {
        let Some(found) = self.row::<Raw, Any>(opened, key, &Projection::TO_READ)?.found else { return Ok(()) };
        let state = self.state();
        let mut entries = mem::take(&mut state.entries);
        // It has none of them yet.
        let list = |row: KeyRef<'_>, value: &[u8], into: &mut Entries| index.list(row, value, into);
        let listed = entries.list(list, (key, opened.key_size()), None, Some(Self::bytes(state, found)));
        let added = listed.and_then(|()| self.add_lacking(opened, &entries));
        self.state().entries = entries;
        added
    }

    fn add_lacking(&mut self, opened: &Opened<S::Engine>, entries: &RowEntries) -> Result<(), Error> {
        for entry in entries.coming() {
            match self.add_entry(entry, &entries.row) {
                Err(Error::Exists { table }) => {
                    if self.owner(entry)?.is_some_and(|owner| owner != entries.row) {
                        let (index, table, mut key) = (table, opened.name.get(), Vec::new());
                        entry.key.write(self.index_of(entry)?.key_size(), &mut key);
                        return Err(Error::NotUnique { index, table, key });
                    }
                }
                added => added?,
            }
        }
        Ok(())
    }
}
