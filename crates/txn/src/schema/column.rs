//! Columns: parts of a table's rows, as sources of rows.

use std::ops::Range;

use drtm_kv::PrefetchMask;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    AsKey, Codec, CodecError, Config, Error, Flat, Key, Part, Prefetched, Rows, Stored, Table,
    schema::{copied::copied, part::WORD, table::Kind},
    tx::{Exclusive, projection::Projection, rows::sealed::Sealed},
};

/// A column of a table: a part of every row, as a source of rows.
///
/// # Example
///
/// See [`Table::column`].
pub struct Column<K, C: Codec, O, T> {
    table: Table<K, C, O>,
    part: Part<C::Value, T>,
    wanted: Projection,
}

impl<K: Key, C: Flat, O: Kind> Table<K, C, O> {
    /// Returns a part of every row of the table, as a source of rows.
    ///
    /// A read copies only the part. An [update](crate::Tx::update) copies only the part too, both
    /// when it reads and at the commit, unless the table has indexes. Between nodes, whole rows
    /// travel; there, a column saves decoding.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, PrefetchMask, Part, Pod, TableDef, part};
    /// use zerocopy::{FromBytes, Immutable, IntoBytes};
    ///
    /// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
    /// #[repr(C)]
    /// struct Customer {
    ///     balance: i64,
    ///     name: [u8; 24],
    ///     notes: [u8; 496],
    /// }
    ///
    /// const CUSTOMERS: TableDef<u64, Pod<Customer>> = TableDef::hash("customers");
    /// const BALANCE: Part<Customer, i64> = part!(Customer, balance);
    /// const NAME: Part<Customer, [u8; 24]> = part!(Customer, name);
    /// const WANTED: PrefetchMask = PrefetchMask::of(&[BALANCE.bytes(), NAME.bytes()]);
    ///
    /// let db = Db::new()?;
    /// let customers = db.table(CUSTOMERS)?;
    /// let (balances, names) = (customers.column(BALANCE), customers.column(NAME));
    /// db.transact(|tx| tx.insert(customers, &7, &Customer { balance: 10, name: [b'x'; 24], notes: [0; 496] }))?;
    /// let (balance, name) = db.transact(|tx| {
    ///     tx.prefetch(customers.columns(&WANTED), [7])?;
    ///     let name = tx.get(names, &7)?;
    ///     let balance = tx.update(balances, &7, |balance| {
    ///         *balance -= 3;
    ///         *balance
    ///     })?;
    ///     Ok((balance, name))
    /// })?;
    /// assert_eq!((balance, name), (Some(7), Some([b'x'; 24])));
    /// assert_eq!(db.read(|tx| tx.get(balances, &7))?, Some(7));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    #[inline(always)]
    pub const fn column<T>(self, part: Part<C::Value, T>) -> Column<K, C, O, T>
    where
        T: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        Column { table: self, part, wanted: Projection::part_to_read(part.span()) }
    }
}

impl<K: Key, C: Codec, O: Kind> Table<K, C, O> {
    /// Returns some cache lines of every row of the table, to be [prefetched](crate::Tx::prefetch):
    /// those of several columns.
    ///
    /// # Example
    ///
    /// See [`Table::column`].
    #[must_use]
    #[inline(always)]
    pub const fn columns(self, lines: &'static PrefetchMask) -> Columns<K, C, O> {
        Columns { table: self, lines }
    }
}

/// Several columns of a table, to be prefetched: see [`Table::columns`].
///
/// # Example
///
/// See [`Table::column`].
pub struct Columns<K, C, O> {
    table: Table<K, C, O>,
    lines: &'static PrefetchMask,
}

impl<K, C, O> Sealed for Columns<K, C, O> {}

impl<K: Key, C: Codec, O: Kind> Prefetched for Columns<K, C, O> {
    type Key = K;
    type Codec = C;
    type Kind = O;

    #[inline(always)]
    fn prefetched_table(&self) -> Table<K, C, O> {
        self.table
    }

    #[inline(always)]
    fn prefetched_lines(&self) -> &'static PrefetchMask {
        self.lines
    }
}

copied! {
    <K, C, O> Columns<K, C, O> as "Columns" { table, lines };
}

impl<K, C: Codec, O, T> Sealed for Column<K, C, O, T> {}

impl<K: Key, C: Flat, O: Kind, T: FromBytes + IntoBytes + Immutable + KnownLayout> Rows for Column<K, C, O, T> {
    type Key = K;
    type Row = T;
}

impl<K: Key, C: Flat, O: Kind, T: FromBytes + IntoBytes + Immutable + KnownLayout> Stored for Column<K, C, O, T> {
    type Given = T;
    type View<'b> = T;
    type Codec = C;
    type Kind = O;

    #[inline(always)]
    fn table(self) -> Table<K, C, O> {
        self.table
    }

    #[inline(always)]
    fn wanted(&self) -> &Projection {
        &self.wanted
    }

    #[inline(always)]
    fn part<'b>(&self, whole: &'b [u8]) -> &'b [u8] {
        whole.get(WORD * self.wanted.span.skipped as usize..).unwrap_or(&[])
    }

    #[inline(always)]
    fn lines(self) -> &'static PrefetchMask {
        self.part.lines
    }

    #[inline(always)]
    fn decode(self, part: &[u8]) -> Result<T, CodecError> {
        self.part.read(part)
    }

    #[inline(always)]
    fn show(self, part: &[u8]) -> Result<T, CodecError> {
        self.part.read(part)
    }

    fn encode(self, given: &T, was: Range<usize>, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        let start = bytes.len();
        bytes.extend_from_within(was);
        let skipped = start + WORD * self.wanted.span.skipped as usize;
        self.part.write(bytes.get_mut(skipped..).unwrap_or(&mut []), given)
    }

    #[inline(always)]
    fn update<S: Config, X>(
        self,
        tx: &mut Exclusive<'_, S>,
        key: impl AsKey<K>,
        change: impl FnOnce(&mut T) -> X,
    ) -> Result<Option<X>, Error> {
        tx.update_part(self.table, key, self.part, change)
    }
}

copied! {
    <K, C: Codec, O, T> Column<K, C, O, T> as "Column" { table, part };
}
