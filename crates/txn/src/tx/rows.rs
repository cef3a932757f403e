//! Sources of rows: what a transaction reads, by key or in order.
//!
//! A table is a source of its rows. A [column](Table::column) is a source of parts of them, and an
//! index of the rows in another order. An index's [keys](crate::Index::keys) are a source of the
//! rows' keys. The methods of [`Tx`](crate::Tx) take any source that supports them. A range of a
//! hash table, or an update through an index, does not compile.

use std::{borrow::Borrow, fmt, future::Future, ops::Range};

use drtm_kv::PrefetchMask;

use crate::{
    AsKey, Codec, CodecError, Config, Error, Key, KeyRange, Mode, Ordered, Table,
    db::name::Name,
    schema::{
        codec::expected_bytes,
        table::{HasOrder, Kind},
    },
    tx::{
        Exclusive, Found,
        nodes::{Nodes, Reach},
        position::{Ends, Position},
        projection::Projection,
    },
};

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// A source of rows: a table, a column of one, an index, or the keys of an index.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, IndexDef, Pod, Sorted, Table, TableDef, Tx, Unique};
///
/// const SCORES: TableDef<u64, Pod<u32>> = TableDef::hash("scores");
/// const BY_SCORE: IndexDef<u64, Pod<u32>, u32> = IndexDef::unique("by score", |_, score| Some(score));
///
/// /// The best row of anything that has an order.
/// fn best<R: Sorted>(tx: &Tx<'_>, rows: R) -> Result<Option<R::Row>, Error> {
///     Ok(tx.range(rows, ..)?.last()?.map(|(_, row)| row))
/// }
///
/// let db = Db::new()?;
/// let scores = db.table(SCORES)?;
/// let by_score = db.index(scores, BY_SCORE)?;
/// db.transact(|tx| {
///     tx.insert(scores, &1, &500)?;
///     tx.insert(scores, &2, &900)?;
///     assert_eq!(best(tx, by_score)?, Some((2, 900)));
///     assert_eq!(best(tx, by_score.keys())?, Some(2));
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
///
/// The compiler refuses a range of a hash table:
///
/// ```compile_fail
/// use drtm::{Db, Error, Pod, TableDef};
///
/// const SCORES: TableDef<u64, Pod<u32>> = TableDef::hash("scores");
/// let db = Db::new()?;
/// let scores = db.table(SCORES)?;
/// db.read(|tx| tx.range(scores, ..)?.count())?;
/// # Ok::<(), Error>(())
/// ```
///
/// And an insertion into a column:
///
/// ```compile_fail
/// use drtm::{Db, Error, Pod, TableDef, part};
///
/// #[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)]
/// #[repr(C)]
/// struct Score {
///     points: u64,
/// }
///
/// const SCORES: TableDef<u64, Pod<Score>> = TableDef::hash("scores");
/// let db = Db::new()?;
/// let scores = db.table(SCORES)?;
/// db.transact(|tx| tx.put(scores.column(part!(Score, points)), 1, &7))?;
/// # Ok::<(), Error>(())
/// ```
pub trait Rows: Copy + fmt::Debug + sealed::Sealed {
    /// The type of the keys.
    type Key: Key;
    /// The type of a row, without its key.
    type Row;
}

/// A row with its key, as a range returns it.
///
/// # Example
///
/// See [`Rows`].
pub type KeyedRow<R> = (<R as Rows>::Key, <R as Rows>::Row);

/// A source with lookups by key: [`Tx::get`](crate::Tx::get).
///
/// # Example
///
/// See [`Rows`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no lookup of one row by its key",
    note = "tables, columns, unique indexes and their keys have; rows of an index that is not unique are a range"
)]
pub trait Point: Rows {
    #[doc(hidden)]
    fn get<S: Config, M: Mode>(
        self,
        tx: &mut Exclusive<'_, S, M>,
        key: impl AsKey<Self::Key>,
    ) -> Result<Option<Self::Row>, Error>;
    #[doc(hidden)]
    fn contains<S: Config, M: Mode>(
        self,
        tx: &mut Exclusive<'_, S, M>,
        key: impl AsKey<Self::Key>,
    ) -> Result<bool, Error>;
    #[doc(hidden)]
    #[inline]
    fn get_many<S: Config, M: Mode>(
        self,
        tx: &mut Exclusive<'_, S, M>,
        keys: impl IntoIterator<Item = impl AsKey<Self::Key>>,
    ) -> Result<Vec<Option<Self::Row>>, Error> {
        keys.into_iter().map(|key| self.get(tx, key)).collect()
    }
    /// Like [`get_many`](Self::get_many), over several nodes. The next two are alike.
    #[doc(hidden)]
    fn points<T: Nodes>(
        self,
        tx: &mut T,
        keys: impl IntoIterator<Item = impl AsKey<Self::Key>>,
    ) -> impl Future<Output = Result<Vec<Option<Self::Row>>, Error>>;
    #[doc(hidden)]
    fn point<T: Nodes>(
        self,
        tx: &mut T,
        key: impl AsKey<Self::Key>,
    ) -> impl Future<Output = Result<Option<Self::Row>, Error>>;
    #[doc(hidden)]
    fn has_point<T: Nodes>(self, tx: &mut T, key: impl AsKey<Self::Key>) -> impl Future<Output = Result<bool, Error>>;
}

/// A source that is ordered by keys: [`Tx::range`](crate::Tx::range).
///
/// # Example
///
/// See [`Rows`].
pub trait Sorted: Rows {
    /// The keys that a range iterates over: of rows, or of an index's entries.
    #[doc(hidden)]
    type Entry: Key;
    #[doc(hidden)]
    type Codec: Codec;
    #[doc(hidden)]
    fn entries<S: Config, M: Mode>(
        self,
        tx: &Exclusive<'_, S, M>,
    ) -> Result<Table<Self::Entry, Self::Codec, Ordered>, Error>;
    #[doc(hidden)]
    fn position(bounds: impl KeyRange<Self::Key>) -> Position;
    #[doc(hidden)]
    fn row<S: Config, M: Mode>(
        self,
        tx: &mut Exclusive<'_, S, M>,
        table: &Name,
        entry: Self::Entry,
        found: Found,
    ) -> Result<(Self::Key, Self::Row), Error>;
    /// Returns the database and the number of the table that a range goes through: of rows, or of
    /// an index's entries.
    #[doc(hidden)]
    fn scanned(self) -> (u32, u16);
    /// Returns where a range is, over several nodes.
    #[doc(hidden)]
    fn reach(range: impl KeyRange<Self::Key>) -> Reach;
    /// Returns the rows of entries that were found over several nodes.
    #[doc(hidden)]
    fn found<T: Nodes>(self, tx: &mut T, entries: Vec<u32>)
    -> impl Future<Output = Result<Vec<KeyedRow<Self>>, Error>>;
}

/// A source of rows that a table stores, whole or in part: a table or a column. Its rows can be
/// updated, prefetched, and read in batches.
///
/// # Example
///
/// See [`Table::column`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` stores no rows",
    note = "tables and columns do; an index is read only, and its rows are changed through their table"
)]
pub trait Stored: Rows {
    /// The type of a row to write: [`Codec::Given`].
    type Given: ?Sized;
    /// The type of a row's view, in place where the codec can: [`Codec::View`].
    type View<'b>;
    #[doc(hidden)]
    type Codec: Codec;
    #[doc(hidden)]
    type Kind: Kind;
    #[doc(hidden)]
    fn table(self) -> Table<Self::Key, Self::Codec, Self::Kind>;
    /// Returns which words of a row are copied.
    #[doc(hidden)]
    fn wanted(&self) -> &Projection;
    /// Returns the copied part of a whole row's bytes.
    #[doc(hidden)]
    fn part<'b>(&self, whole: &'b [u8]) -> &'b [u8];
    #[doc(hidden)]
    fn lines(self) -> &'static PrefetchMask;
    #[doc(hidden)]
    fn decode(self, part: &[u8]) -> Result<Self::Row, CodecError>;
    #[doc(hidden)]
    fn show(self, part: &[u8]) -> Result<Self::View<'_>, CodecError>;
    /// Appends the whole row to bytes of which `was` is the row as it was.
    #[doc(hidden)]
    fn encode(self, given: &Self::Given, was: Range<usize>, bytes: &mut Vec<u8>) -> Result<(), CodecError>;
    #[doc(hidden)]
    fn update<S: Config, X>(
        self,
        tx: &mut Exclusive<'_, S>,
        key: impl AsKey<Self::Key>,
        change: impl FnOnce(&mut Self::Row) -> X,
    ) -> Result<Option<X>, Error>
    where
        Self::Row: Borrow<Self::Given>;
}

/// A source whose rows can be prefetched, whole or in part: [`Tx::prefetch`](crate::Tx::prefetch).
/// These are tables, columns, and [several columns](Table::columns) at once.
///
/// # Example
///
/// See [`Table::column`].
pub trait Prefetched: sealed::Sealed {
    /// The type of the keys.
    type Key: Key;
    #[doc(hidden)]
    type Codec: Codec;
    #[doc(hidden)]
    type Kind: Kind;
    #[doc(hidden)]
    fn prefetched_table(&self) -> Table<Self::Key, Self::Codec, Self::Kind>;
    /// Returns which cache lines of a row to prefetch.
    #[doc(hidden)]
    fn prefetched_lines(&self) -> &'static PrefetchMask;
}

impl<R: Stored> Prefetched for R {
    type Key = R::Key;
    type Codec = <R as Stored>::Codec;
    type Kind = <R as Stored>::Kind;

    #[inline(always)]
    fn prefetched_table(&self) -> Table<Self::Key, Self::Codec, Self::Kind> {
        self.table()
    }

    #[inline(always)]
    fn prefetched_lines(&self) -> &'static PrefetchMask {
        self.lines()
    }
}

impl<K, C, O> sealed::Sealed for Table<K, C, O> {}

impl<K: Key, C: Codec, O: Kind> Rows for Table<K, C, O> {
    type Key = K;
    type Row = C::Value;
}

impl<K: Key, C: Codec, O: Kind> Stored for Table<K, C, O> {
    type Given = C::Given;
    type View<'b> = C::View<'b>;
    type Codec = C;
    type Kind = O;

    #[inline(always)]
    fn table(self) -> Self {
        self
    }

    #[inline(always)]
    fn wanted(&self) -> &Projection {
        &Projection::TO_READ
    }

    #[inline(always)]
    fn part<'b>(&self, whole: &'b [u8]) -> &'b [u8] {
        whole
    }

    #[inline(always)]
    fn lines(self) -> &'static PrefetchMask {
        const { &PrefetchMask::of(std::slice::from_ref(&(0..expected_bytes::<C>()))) }
    }

    #[inline(always)]
    fn decode(self, part: &[u8]) -> Result<C::Value, CodecError> {
        C::decode(part)
    }

    #[inline(always)]
    fn show(self, part: &[u8]) -> Result<C::View<'_>, CodecError> {
        C::view(part)
    }

    fn encode(self, given: &C::Given, _was: Range<usize>, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        C::encode(given, bytes)
    }

    #[inline(always)]
    fn update<S: Config, X>(
        self,
        tx: &mut Exclusive<'_, S>,
        key: impl AsKey<K>,
        change: impl FnOnce(&mut C::Value) -> X,
    ) -> Result<Option<X>, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        tx.update_whole(self, key, change)
    }
}

impl<R: Stored> Point for R {
    #[inline(always)]
    fn get<S: Config, M: Mode>(
        self,
        tx: &mut Exclusive<'_, S, M>,
        key: impl AsKey<R::Key>,
    ) -> Result<Option<R::Row>, Error> {
        tx.find(self, key, |part| self.decode(part))
    }

    #[inline(always)]
    fn contains<S: Config, M: Mode>(
        self,
        tx: &mut Exclusive<'_, S, M>,
        key: impl AsKey<R::Key>,
    ) -> Result<bool, Error> {
        tx.is_there(self.table(), key)
    }

    #[inline]
    fn get_many<S: Config, M: Mode>(
        self,
        tx: &mut Exclusive<'_, S, M>,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<Vec<Option<R::Row>>, Error> {
        tx.get_many(self, keys)
    }

    async fn points<T: Nodes>(
        self,
        tx: &mut T,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<Vec<Option<R::Row>>, Error> {
        let rows: Vec<u32> = keys.into_iter().map(|key| tx.row(self.table(), key)).collect::<Result<_, _>>()?;
        tx.look_up(&rows).await?;
        rows.into_iter().map(|row| decode(self, tx, row)).collect()
    }

    async fn point<T: Nodes>(self, tx: &mut T, key: impl AsKey<R::Key>) -> Result<Option<R::Row>, Error> {
        let row = tx.row(self.table(), key)?;
        tx.look_up(&[row]).await?;
        decode(self, tx, row)
    }

    async fn has_point<T: Nodes>(self, tx: &mut T, key: impl AsKey<R::Key>) -> Result<bool, Error> {
        let row = tx.row(self.table(), key)?;
        tx.look_up(&[row]).await?;
        Ok(tx.is_there(row))
    }
}

/// Decodes a row that was looked up over several nodes. Returns `None` if there is no such row.
pub(super) fn decode<R: Stored>(rows: R, tx: &impl Nodes, row: u32) -> Result<Option<R::Row>, Error> {
    tx.see(rows.table().number, row, |whole| rows.decode(rows.part(whole)))
}

// The bound is a trait, and not `Kind = Ordered`, for the sake of the compiler's message.
impl<R: Stored<Kind: HasOrder>> Sorted for R {
    type Entry = R::Key;
    type Codec = <R as Stored>::Codec;

    #[inline(always)]
    fn entries<S: Config, M: Mode>(
        self,
        _tx: &Exclusive<'_, S, M>,
    ) -> Result<Table<R::Key, <R as Stored>::Codec, Ordered>, Error> {
        Ok(self.table().as_ordered())
    }

    #[inline]
    fn position(bounds: impl KeyRange<R::Key>) -> Position {
        Position::new(bounds)
    }

    #[inline(always)]
    fn row<S: Config, M: Mode>(
        self,
        tx: &mut Exclusive<'_, S, M>,
        table: &Name,
        key: R::Key,
        found: Found,
    ) -> Result<(R::Key, R::Row), Error> {
        let row = tx.read_found(table, found, |whole| self.decode(self.part(whole)))?;
        Ok((key, row))
    }

    fn scanned(self) -> (u32, u16) {
        let table = self.table();
        (table.database, table.number)
    }

    fn reach(range: impl KeyRange<R::Key>) -> Reach {
        Reach { ends: Ends::new(range), by: None }
    }

    async fn found<T: Nodes>(self, tx: &mut T, entries: Vec<u32>) -> Result<Vec<KeyedRow<Self>>, Error> {
        let of_row = |row| match (tx.key::<R::Key>(row), decode(self, tx, row)?) {
            (Some(key), Some(value)) => Ok((key, value)),
            _ => Err(tx.no_key(self.table().number)),
        };
        entries.into_iter().map(of_row).collect()
    }
}
