//! Reading rows by secondary indexes: the index's entry gives the row's key, and the table has the
//! row.

use std::sync::atomic::Ordering::Relaxed;

use super::{Exclusive, Found, Mode};
use crate::{
    AsKey, Codec, Config, Error, Index, IndexKeys, Key, KeyRange, KeyedRow, Multi, Ordered, Pairs, Point, Rows, Sorted,
    Table, Unique, Uniqueness,
    db::name::Name,
    schema::{
        key::{ByRef, PairEnd, pairs_of},
        table::Kind,
    },
    tx::{
        nodes::{Nodes, Reach},
        position::{Ends, Position},
        rows::decode,
    },
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

    async fn points<T: Nodes>(
        self,
        tx: &mut T,
        by: impl IntoIterator<Item = impl AsKey<I>>,
    ) -> Result<Vec<Option<(K, C::Value)>>, Error> {
        let keys = self.keys().points(tx, by).await?;
        let mut rows = rows_of_entries(self, tx, keys.iter().flatten()).await?.into_iter();
        Ok(keys.into_iter().map(|key| key.and_then(|key| Some((key, rows.next()?)))).collect())
    }

    async fn point<T: Nodes>(self, tx: &mut T, by: impl AsKey<I>) -> Result<Option<(K, C::Value)>, Error> {
        let Some(key) = self.keys().point(tx, by).await? else { return Ok(None) };
        let row = rows_of_entries(self, tx, [&key]).await?.pop();
        Ok(row.map(|row| (key, row)))
    }

    async fn has_point<T: Nodes>(self, tx: &mut T, by: impl AsKey<I>) -> Result<bool, Error> {
        self.keys().has_point(tx, by).await
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

    fn scanned(self) -> (u32, u16) {
        self.keys().scanned()
    }

    fn reach(range: impl KeyRange<I>) -> Reach {
        IndexKeys::<K, C, I, U, O>::reach(range)
    }

    async fn found<T: Nodes>(self, tx: &mut T, entries: Vec<u32>) -> Result<Vec<KeyedRow<Self>>, Error> {
        let entries = self.keys().found(tx, entries).await?;
        let rows = rows_of_entries(self, tx, entries.iter().map(|(_, key)| key)).await?;
        Ok(entries.into_iter().zip(rows).map(|((by, key), row)| (by, (key, row))).collect())
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

    async fn points<T: Nodes>(
        self,
        tx: &mut T,
        by: impl IntoIterator<Item = impl AsKey<I>>,
    ) -> Result<Vec<Option<K>>, Error> {
        self.index.entries().points(tx, by).await
    }

    async fn point<T: Nodes>(self, tx: &mut T, by: impl AsKey<I>) -> Result<Option<K>, Error> {
        self.index.entries().point(tx, by).await
    }

    async fn has_point<T: Nodes>(self, tx: &mut T, by: impl AsKey<I>) -> Result<bool, Error> {
        self.index.entries().has_point(tx, by).await
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

    fn scanned(self) -> (u32, u16) {
        let entries = self.index.entries();
        (entries.database, entries.number)
    }

    fn reach(range: impl KeyRange<I>) -> Reach {
        let (start, end) = range.ends();
        // All entries that are found by one key are at one owner.
        let by = Ends::new::<I>((start.as_ref().map(ByRef), end.as_ref().map(ByRef)));
        Reach { ends: Ends::of_entries::<K, I, U>((start, end)), by: Some(by) }
    }

    async fn found<T: Nodes>(self, tx: &mut T, entries: Vec<u32>) -> Result<Vec<(I, K)>, Error> {
        entries.into_iter().map(|row| entry::<K, I, U>(tx, self.index.entries(), row)).collect()
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

    fn scanned(self) -> (u32, u16) {
        self.of.scanned()
    }

    fn reach(range: impl KeyRange<(I, K)>) -> Reach {
        reach_of_pairs::<I, K>(range)
    }

    async fn found<T: Nodes>(self, tx: &mut T, entries: Vec<u32>) -> Result<Vec<((I, K), C::Value)>, Error> {
        let rows = self.of.found(tx, entries).await?;
        Ok(rows.into_iter().map(|(by, (key, row))| ((by, key), row)).collect())
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

    fn scanned(self) -> (u32, u16) {
        self.of.scanned()
    }

    fn reach(range: impl KeyRange<(I, K)>) -> Reach {
        reach_of_pairs::<I, K>(range)
    }

    async fn found<T: Nodes>(self, tx: &mut T, entries: Vec<u32>) -> Result<Vec<((I, K), ())>, Error> {
        Ok(self.of.found(tx, entries).await?.into_iter().map(|pair| (pair, ())).collect())
    }
}

/// Reads the rows that an index's entries lead to.
async fn rows_of_entries<'k, K, C, I, U, O>(
    index: Index<K, C, I, U, O>,
    tx: &mut impl Nodes,
    keys: impl IntoIterator<Item = &'k K>,
) -> Result<Vec<C::Value>, Error>
where
    K: Key + 'k,
    C: Codec,
    I: Key,
    U: Uniqueness,
    O: Kind,
{
    let rows: Option<Vec<_>> = index.table.points(tx, keys).await?.into_iter().collect();
    match rows {
        Some(rows) => Ok(rows),
        None => Err(tx.disagreement(index.entries().number, index.table.number).await),
    }
}

/// Decodes an entry of an index: the index's key, and the row's.
fn entry<K: Key, I: Key, U: Uniqueness>(
    tx: &impl Nodes,
    entries: Table<U::Key<K, I>, U::Codec<K>, Ordered>,
    row: u32,
) -> Result<(I, K), Error> {
    match (tx.key::<U::Key<K, I>>(row), decode(entries, tx, row)?) {
        (Some(key), Some(value)) => Ok(U::entry(key, value)),
        _ => Err(tx.no_key(entries.number)),
    }
}

/// Returns where a range of pairs is. Pairs are divided by the first of both, so that a range of
/// several is asked for everywhere.
fn reach_of_pairs<I: Key, K: Key>(range: impl KeyRange<(I, K)>) -> Reach {
    let ends = Ends::new(range);
    let only = ends.only().and_then(|pair| pair.decode::<(I, K)>());
    let by = only.map_or_else(|| Ends::new::<I>(..), |(first, _)| Ends::new::<I>(&first..=&first));
    Reach { ends, by: Some(by) }
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
