//! Reading rows by secondary indexes: the index's entry gives the row's key, and the table has the
//! row.

use std::{ops::Bound, sync::atomic::Ordering::Relaxed};

use super::{Exclusive, Found, Mode};
use crate::{
    AsKey, Codec, Config, Error, Index, IndexKeys, Key, KeyRange, Ordered, Point, Rows, Sorted, Table, Unique,
    Uniqueness,
    name::Name,
    position::{Ends, Position, bytes},
    table::Kind,
};

impl<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind> Rows for Index<K, C, I, U, O> {
    type Key = I;
    type Row = (K, C::Value);
}

impl<K: Key, C: Codec, I: Key, O: Kind> Point for Index<K, C, I, Unique, O> {
    #[inline]
    fn get<S: Config, M: Mode>(
        self,
        tx: &mut Exclusive<'_, S, M>,
        by: impl AsKey<I>,
    ) -> Result<Option<(K, C::Value)>, Error> {
        let Some(key) = self.keys().get(tx, by)? else { return Ok(None) };
        let row = self.of_entry(tx, &key)?;
        Ok(Some((key, row)))
    }

    #[inline]
    fn contains<S: Config, M: Mode>(self, tx: &mut Exclusive<'_, S, M>, by: impl AsKey<I>) -> Result<bool, Error> {
        self.keys().contains(tx, by)
    }
}

impl<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind> Sorted for Index<K, C, I, U, O> {
    type Entry = U::Key<K, I>;
    type Codec = U::Codec<K>;

    #[inline]
    fn entries<S: Config, M: Mode>(self, tx: &Exclusive<'_, S, M>) -> Result<EntryTable<K, I, U>, Error> {
        self.keys().entries(tx)
    }

    #[inline]
    fn position(bounds: impl KeyRange<I>) -> Position {
        Position::at(Ends::of_entries::<K, I, U>(bounds))
    }

    #[inline]
    fn row<S: Config, M: Mode>(
        self,
        tx: &mut Exclusive<'_, S, M>,
        index: &Name,
        entry: U::Key<K, I>,
        found: Found,
    ) -> Result<(I, (K, C::Value)), Error> {
        let (by, key) = self.keys().row(tx, index, entry, found)?;
        let row = self.of_entry(tx, &key)?;
        Ok((by, (key, row)))
    }
}

/// The table that holds an index's entries.
type EntryTable<K, I, U> = Table<<U as Uniqueness>::Key<K, I>, <U as Uniqueness>::Codec<K>, Ordered>;

impl<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind> Index<K, C, I, U, O> {
    /// Reads the row that an entry points to.
    #[inline]
    fn of_entry<S: Config, M: Mode>(self, tx: &mut Exclusive<'_, S, M>, key: impl AsKey<K>) -> Result<C::Value, Error> {
        match self.table.get(tx, key)? {
            Some(row) => Ok(row),
            None => {
                let table = tx.opened(self.table)?.name.get();
                Err(tx.disagreement(self.entries().number, table))
            }
        }
    }
}

impl<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind> Rows for IndexKeys<K, C, I, U, O> {
    type Key = I;
    type Row = K;
}

impl<K: Key, C: Codec, I: Key, O: Kind> Point for IndexKeys<K, C, I, Unique, O> {
    #[inline]
    fn get<S: Config, M: Mode>(self, tx: &mut Exclusive<'_, S, M>, by: impl AsKey<I>) -> Result<Option<K>, Error> {
        self.entries(tx)?.get(tx, by)
    }

    #[inline]
    fn contains<S: Config, M: Mode>(self, tx: &mut Exclusive<'_, S, M>, by: impl AsKey<I>) -> Result<bool, Error> {
        self.entries(tx)?.contains(tx, by)
    }
}

impl<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind> Sorted for IndexKeys<K, C, I, U, O> {
    type Entry = U::Key<K, I>;
    type Codec = U::Codec<K>;

    /// Returns the table of the index's entries. Refuses a snapshot that is older than the complete
    /// index.
    #[inline]
    fn entries<S: Config, M: Mode>(self, tx: &Exclusive<'_, S, M>) -> Result<EntryTable<K, I, U>, Error> {
        let entries = self.index.entries();
        if let Some(before) = tx.past() {
            let opened = tx.opened(entries)?;
            if before.number() < opened.whole_since.load(Relaxed) {
                return Err(Error::IndexTooNew { index: opened.name.get() });
            }
        }
        Ok(entries)
    }

    #[inline]
    fn position(bounds: impl KeyRange<I>) -> Position {
        Position::at(Ends::of_entries::<K, I, U>(bounds))
    }

    #[inline]
    fn row<S: Config, M: Mode>(
        self,
        tx: &mut Exclusive<'_, S, M>,
        index: &Name,
        entry: U::Key<K, I>,
        found: Found,
    ) -> Result<(I, K), Error> {
        Ok(U::entry(entry, tx.read_found(index, found, U::Codec::<K>::decode)?))
    }
}

impl Ends {
    /// Returns a position over an index's entries, for a range of the first part of their keys.
    #[inline]
    pub(crate) fn of_entries<K: Key, I: Key, U: Uniqueness>(range: impl KeyRange<I>) -> Self {
        let (start, end) = range.ends();
        if U::IS_UNIQUE && I::FITS {
            return Self::Words(start.map(|key| key.packed()), end.map(|key| key.packed()));
        }
        if U::IS_UNIQUE {
            return Self::Bytes(start.map(|key| bytes(key, true)), end.map(|key| bytes(key, true)));
        }
        if <(I, K)>::FITS {
            // All keys that begin with a part are from `low` to `high`. (An empty part is shifted
            // out.)
            let bits = 8 * K::SIZE.unwrap_or(0) as u32;
            let low = |part: u64| part.checked_shl(bits).unwrap_or(0);
            let high = |part: u64| low(part) | !u64::MAX.checked_shl(bits).unwrap_or(0);
            let start = match start.map(|key| key.packed()) {
                Bound::Excluded(part) => Bound::Excluded(high(part)),
                start => start.map(low),
            };
            let end = match end.map(|key| key.packed()) {
                Bound::Included(part) => Bound::Included(high(part)),
                end => end.map(low),
            };
            return Self::Words(start, end);
        }
        let end = match end.map(|part| bytes(part, false)) {
            Bound::Included(part) => beyond(part).map_or(Bound::Unbounded, Bound::Excluded),
            end => end,
        };
        match start.map(|part| bytes(part, false)) {
            Bound::Excluded(part) => match beyond(part.clone()) {
                Some(start) => Self::Bytes(Bound::Included(start), end),
                // No string comes after all that begin with this one.
                None => Self::Bytes(Bound::Included(part.clone()), Bound::Excluded(part)),
            },
            start => Self::Bytes(start, end),
        }
    }
}

/// Returns the least string after all that begin with this one. `None` if there is none.
fn beyond(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = bytes.pop() {
        if let Some(next) = last.checked_add(1) {
            bytes.push(next);
            return Some(bytes);
        }
    }
    None
}

impl<S: Config, M: Mode> Exclusive<'_, S, M> {
    /// Returns the error for an index that disagrees with its table. Either what was read of them
    /// no longer holds, or the index is corrupt.
    #[cold]
    pub(super) fn disagreement(&mut self, index: u16, table: &'static str) -> Error {
        match self.validation_error() {
            Some(conflict) => self.doom(conflict),
            None => match self.db.catalog.get(index) {
                Some(index) => Error::Index { index: index.name.get(), table },
                None => Error::OtherDatabase,
            },
        }
    }
}
