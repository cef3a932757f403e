//! Reading rows by secondary indexes: the index's entry gives the row's key, and the table has the
//! row.

use std::sync::atomic::Ordering::Relaxed;

use super::{Exclusive, Found, Mode};
use crate::{
    AsKey, Codec, Config, Error, Index, IndexKeys, Key, KeyRange, Multi, Ordered, Pairs, Point, Rows, Sorted, Table,
    Unique, Uniqueness,
    db::name::Name,
    schema::{
        key::{PairEnd, pairs_of},
        table::Kind,
    },
    tx::position::{Ends, Position},
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

impl<K: Key, C: Codec, I: Key, O: Kind> Rows for Pairs<Index<K, C, I, Multi, O>> {
    type Key = (I, K);
    type Row = C::Value;
}

impl<K: Key, C: Codec, I: Key, O: Kind> Sorted for Pairs<Index<K, C, I, Multi, O>> {
    type Entry = (I, K);
    type Codec = <Multi as Uniqueness>::Codec<K>;

    #[inline]
    fn entries<S: Config, M: Mode>(self, tx: &Exclusive<'_, S, M>) -> Result<EntryTable<K, I, Multi>, Error> {
        self.of.keys().entries(tx)
    }

    #[inline]
    fn position(bounds: impl KeyRange<(I, K)>) -> Position {
        Position::new(bounds)
    }

    #[inline]
    fn row<S: Config, M: Mode>(
        self,
        tx: &mut Exclusive<'_, S, M>,
        _index: &Name,
        entry: (I, K),
        _found: Found,
    ) -> Result<((I, K), C::Value), Error> {
        let row = self.of.of_entry(tx, &entry.1)?;
        Ok((entry, row))
    }
}

impl<K: Key, C: Codec, I: Key, O: Kind> Rows for Pairs<IndexKeys<K, C, I, Multi, O>> {
    type Key = (I, K);
    type Row = ();
}

impl<K: Key, C: Codec, I: Key, O: Kind> Sorted for Pairs<IndexKeys<K, C, I, Multi, O>> {
    type Entry = (I, K);
    type Codec = <Multi as Uniqueness>::Codec<K>;

    #[inline]
    fn entries<S: Config, M: Mode>(self, tx: &Exclusive<'_, S, M>) -> Result<EntryTable<K, I, Multi>, Error> {
        self.of.entries(tx)
    }

    #[inline]
    fn position(bounds: impl KeyRange<(I, K)>) -> Position {
        Position::new(bounds)
    }

    #[inline]
    fn row<S: Config, M: Mode>(
        self,
        _tx: &mut Exclusive<'_, S, M>,
        _index: &Name,
        entry: (I, K),
        _found: Found,
    ) -> Result<((I, K), ()), Error> {
        Ok((entry, ()))
    }
}

impl Ends {
    /// Returns the ends of a range of an index's entries, from a range of its keys.
    #[inline]
    pub(crate) fn of_entries<K: Key, I: Key, U: Uniqueness>(range: impl KeyRange<I>) -> Self {
        if U::IS_UNIQUE {
            return Self::new(range);
        }
        let (start, end) = pairs_of::<I, K>(range);
        if <(I, K)>::FITS {
            return Self::Words(start.map(PairEnd::word), end.map(PairEnd::word));
        }
        Self::Bytes(start.map(PairEnd::bytes), end.map(PairEnd::bytes))
    }
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
