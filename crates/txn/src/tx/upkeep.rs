//! Writing rows of tables that have indexes: the row and its entries, all or nothing.

use std::mem;

use super::{Found, Tx};
use crate::{
    Conflict, Error, Key, Ordered, Raw, Setting, Table,
    catalog::Opened,
    part::Wanted,
    secondary::{Entry, Listed, RowEntries},
    storage::KeyRef,
    table::Any,
    write_set::WriteOp,
};

impl<S: Setting> Tx<'_, S> {
    /// Writes a row by `write`, and the entries that it has with its old value and is to have with the new one.
    #[inline(always)]
    pub(super) fn with_entries<K: Key>(
        &mut self,
        opened: &Opened<S::Engine>,
        key: &K,
        old: Option<Found>,
        op: WriteOp,
        write: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if opened.indexes.are_none() { write(self) } else { self.write_indexed(opened, key, old, op, write) }
    }

    #[inline(never)]
    fn write_indexed<K: Key>(
        &mut self,
        opened: &Opened<S::Engine>,
        key: &K,
        old: Option<Found>,
        op: WriteOp,
        write: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if let Some(index) = opened.indexes.not_opened() {
            return Err(Error::IndexNotOpened { table: opened.name, index });
        }
        let state = self.state();
        if opened.indexes.changed_at() > state.session.admission.count() {
            // What it has written before, it may have written without them.
            return Err(self.doom(Conflict::Indexed));
        }
        let mut entries = mem::take(&mut state.entries);
        let (old, new) = (old.map(|old| Self::bytes(state, old)), Found::of(op).map(|new| Self::bytes(state, new)));
        let listed = entries.list(&opened.indexes, key, old, new);
        let before = self.savepoint();
        let written = listed.and_then(|()| write(self)).and_then(|()| self.change_entries(opened, &mut entries));
        self.state().entries = entries;
        // The application may go on after a refusal, as if it had not tried.
        written.or_else(|error| self.return_to(before).and(Err(error)))
    }

    /// Changes the entries that differ.
    fn change_entries(&mut self, opened: &Opened<S::Engine>, entries: &mut RowEntries) -> Result<(), Error> {
        let mut key = mem::take(&mut entries.key);
        for entry in entries.leaving() {
            if !self.remove_entry(entry, &mut key, &entries.row)? {
                return Err(self.disagreement(entry.index, opened.name));
            }
        }
        for entry in entries.coming() {
            match self.add_entry(entry, &mut key, &entries.row) {
                Err(Error::Exists { table }) => return Err(Error::Duplicate { index: table }),
                added => added?,
            }
        }
        entries.key = key;
        Ok(())
    }

    /// The table of an index, as bytes. A word is its own key, and so is a string of bytes.
    fn bare<K: Key>(&self, index: u16) -> Table<K, Raw, Ordered> {
        Table::new(self.db.number, index)
    }

    /// Removes an entry. Whether it was there, or need not have been.
    fn remove_entry(&mut self, entry: Entry<'_>, key: &mut Vec<u8>, row: &[u8]) -> Result<bool, Error> {
        // As long as rows lack their entries, another may have come to the one that this lacks.
        if entry.is_partial && entry.is_unique && self.owner(entry, key)?.is_some_and(|owner| owner != row) {
            return Ok(true);
        }
        let was_there = match entry.key {
            KeyRef::Word(word) => self.remove(self.bare::<u64>(entry.index), &word)?,
            KeyRef::Bytes(bytes) => {
                bytes.clone_into(key);
                self.remove(self.bare::<Vec<u8>>(entry.index), key)?
            }
        };
        Ok(was_there || entry.is_partial)
    }

    /// The key of the row that has an entry of a unique index.
    fn owner(&mut self, entry: Entry<'_>, key: &mut Vec<u8>) -> Result<Option<Vec<u8>>, Error> {
        match entry.key {
            KeyRef::Word(word) => self.get(self.bare::<u64>(entry.index), &word),
            KeyRef::Bytes(bytes) => {
                bytes.clone_into(key);
                self.get(self.bare::<Vec<u8>>(entry.index), key)
            }
        }
    }

    fn add_entry(&mut self, entry: Entry<'_>, key: &mut Vec<u8>, row: &[u8]) -> Result<(), Error> {
        // An entry of another kind has the row's key within its own, so that it can be nobody else's.
        let (value, overwrites) = if entry.is_unique { (row, false) } else { (&[][..], true) };
        match entry.key {
            KeyRef::Word(word) => self.place(self.bare::<u64>(entry.index), &word, value, overwrites),
            KeyRef::Bytes(bytes) => {
                bytes.clone_into(key);
                self.place(self.bare::<Vec<u8>>(entry.index), key, value, overwrites)
            }
        }
    }

    /// Adds the entries that a row lacks in an index, if there is such a row.
    pub(crate) fn complete<K: Key>(
        &mut self,
        opened: &Opened<S::Engine>,
        key: &K,
        index: &Listed,
    ) -> Result<(), Error> {
        let Some(found) = self.row::<K, Raw, Any>(opened, key, &Wanted::TO_READ)?.found else { return Ok(()) };
        let state = self.state();
        let mut entries = mem::take(&mut state.entries);
        let listed = entries.list_in(index, key, Self::bytes(state, found));
        let added = listed.and_then(|()| self.add_lacking(opened, &mut entries));
        self.state().entries = entries;
        added
    }

    fn add_lacking(&mut self, opened: &Opened<S::Engine>, entries: &mut RowEntries) -> Result<(), Error> {
        let mut key = mem::take(&mut entries.key);
        for entry in entries.coming() {
            match self.add_entry(entry, &mut key, &entries.row) {
                Err(Error::Exists { table }) => {
                    if self.owner(entry, &mut key)?.is_some_and(|owner| owner != entries.row) {
                        let (index, table, key) = (table, opened.name, self.spelled(entry));
                        return Err(Error::NotUnique { index, table, key });
                    }
                }
                added => added?,
            }
        }
        entries.key = key;
        Ok(())
    }

    /// An entry's key as bytes.
    fn spelled(&self, entry: Entry<'_>) -> Vec<u8> {
        match entry.key {
            KeyRef::Bytes(bytes) => bytes.to_vec(),
            KeyRef::Word(word) => {
                let bytes = word.to_be_bytes();
                let size = self.db.catalog.get(entry.index).map_or(0, |index| index.key_size);
                bytes[bytes.len() - size.min(bytes.len())..].to_vec()
            }
        }
    }
}
