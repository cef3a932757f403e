//! The entries of a row in the indexes of its table. They are listed before and after a change, so
//! that only those that differ are written.

use crate::{
    Error, Key,
    memory::{arena::ArenaKey, heap_size::vec_bytes, storage::KeyRef},
};

/// The entries of a row that is being written. A thread keeps it, so that nothing is allocated once
/// it has grown to its size.
#[derive(Debug, Default)]
pub(crate) struct RowEntries {
    old: Entries,
    new: Entries,
    /// The row's key, which is the value of entries in unique indexes.
    pub(crate) row: Vec<u8>,
}

impl RowEntries {
    /// Returns its size on the heap, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let of = |entries: &Entries| vec_bytes(&entries.list) + entries.bytes.capacity();
        of(&self.old) + of(&self.new) + self.row.capacity()
    }

    /// Lists the entries of a row with its old value, and those with its new one. `list` adds the
    /// entries of a key and a value.
    pub(crate) fn list(
        &mut self,
        list: impl Fn(KeyRef<'_>, &[u8], &mut Entries) -> Result<(), Error>,
        (row, size): (KeyRef<'_>, usize),
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<(), Error> {
        self.row.clear();
        row.write(size, &mut self.row);
        for (value, entries) in [(old, &mut self.old), (new, &mut self.new)] {
            entries.clear();
            value.map_or(Ok(()), |value| list(row, value, entries))?;
            entries.put_in_order();
        }
        Ok(())
    }

    /// Returns the entries to remove.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = Entry<'_>> {
        self.old.without(&self.new)
    }

    /// Returns the entries to add.
    pub(crate) fn coming(&self) -> impl Iterator<Item = Entry<'_>> {
        self.new.without(&self.old)
    }
}

/// An entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'e> {
    /// The number of the index's table.
    pub(crate) index: u16,
    pub(crate) is_unique: bool,
    /// Whether the index may lack entries of some rows.
    pub(crate) is_partial: bool,
    pub(crate) key: KeyRef<'e>,
}

/// The entries of a row with one value.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    /// After [`put_in_order`](Self::put_in_order), it is sorted by indexes and keys, without
    /// duplicates.
    list: Vec<Listed>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Listed {
    index: u16,
    is_unique: bool,
    is_partial: bool,
    key: ArenaKey,
}

impl Entries {
    fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
    }

    /// Adds an entry of an index, given the index's number, whether it is unique, and whether it is
    /// partial.
    pub(super) fn add<K: Key>(
        &mut self,
        (index, is_unique, is_partial): (u16, bool, bool),
        key: &K,
    ) -> Result<(), Error> {
        let key = ArenaKey::keep(&mut self.bytes, key)?;
        self.list.push(Listed { index, is_unique, is_partial, key });
        Ok(())
    }

    fn put_in_order(&mut self) {
        let Self { list, bytes } = self;
        let name = |entry: &Listed| (entry.index, entry.key.in_bytes(bytes));
        list.sort_unstable_by(|a, b| name(a).cmp(&name(b)));
        list.dedup_by(|a, b| name(a) == name(b));
    }

    /// Returns the entries that are not among others.
    fn without<'e>(&'e self, others: &'e Self) -> impl Iterator<Item = Entry<'e>> {
        let all = self.list.iter().map(|entry| entry.spelled(&self.bytes));
        all.filter(|entry| !others.has(entry))
    }

    fn has(&self, entry: &Entry<'_>) -> bool {
        let place = |other: &Listed| (other.index, other.key.in_bytes(&self.bytes)).cmp(&(entry.index, entry.key));
        self.list.binary_search_by(place).is_ok()
    }
}

impl Listed {
    fn spelled<'e>(&self, bytes: &'e [u8]) -> Entry<'e> {
        let Self { index, is_unique, is_partial, key } = *self;
        Entry { index, is_unique, is_partial, key: key.in_bytes(bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(keys: &[(u16, &str)]) -> Entries {
        let mut entries = Entries::default();
        for (index, key) in keys {
            entries.add((*index, true, false), &(*key).to_owned()).expect("there is room");
        }
        entries.put_in_order();
        entries
    }

    #[test]
    fn what_differs_is_told_once_and_nothing_else() {
        let (old, new) = (listed(&[(2, "b"), (1, "a"), (2, "c")]), listed(&[(2, "c"), (1, "b"), (1, "b"), (3, "c")]));
        let gone: Vec<_> = old.without(&new).map(|entry| (entry.index, entry.key)).collect();
        assert_eq!(gone, [(1, KeyRef::Bytes(b"a")), (2, KeyRef::Bytes(b"b"))]);
        let come: Vec<_> = new.without(&old).map(|entry| (entry.index, entry.key)).collect();
        assert_eq!(come, [(1, KeyRef::Bytes(b"b")), (3, KeyRef::Bytes(b"c"))]);
        assert_eq!(old.without(&old).count(), 0);
    }
}
