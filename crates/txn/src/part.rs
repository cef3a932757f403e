//! Parts of rows: some columns of a row of plain data, which can be read and changed without the others.
//!
//! A row is copied when it is read, and again when it is written. Of a long one of which a few columns are wanted, only the words where they are need to be.

use std::{borrow::Borrow, marker::PhantomData, ops::Range};

use drtm_kv::Lines;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    Codec, CodecError, Error, Key, Pod, Rows, Setting, Stored, Table, Tx, copied::copied, rows::sealed::Sealed,
    table::Kind,
};

/// A codec that writes a value as its memory is, so that the bytes of a field are where the field is.
///
/// # Example
///
/// See [`Table::column`].
pub trait Flat: Codec<Value: FromBytes + IntoBytes + Immutable + Borrow<Self::Given>> {}

impl<T: FromBytes + IntoBytes + Immutable + 'static> Flat for Pod<T> {}

/// A field of a row, or of a field of it.
///
/// # Example
///
/// ```
/// use drtm_txn::{Part, part};
///
/// #[repr(C)]
/// struct Stock {
///     quantity: u64,
///     sold: [u64; 10],
/// }
///
/// const SOLD: Part<Stock, [u64; 10]> = part!(Stock, sold);
/// assert_eq!(SOLD.bytes(), 8..88);
/// assert_eq!(SOLD.item(9).map(|last| last.bytes()), Some(80..88));
/// assert!(SOLD.item(10).is_none());
/// ```
pub struct Part<R, T> {
    begin: usize,
    lines: &'static Lines,
    types: PhantomData<fn(&R) -> &T>,
}

/// A field of a row, for [`Table::column`].
///
/// # Example
///
/// See [`Part`].
#[macro_export]
macro_rules! part {
    ($row:ty, $($field:tt)+) => {
        $crate::Part::<$row, _>::of_field(
            ::core::mem::offset_of!($row, $($field)+),
            |row| &row.$($field)+,
            const {
                &$crate::Lines::of(&[$crate::Part::<$row, _>::bytes_of(
                    ::core::mem::offset_of!($row, $($field)+),
                    |row| &row.$($field)+,
                )])
            },
        )
    };
}

impl<R, T> Part<R, T> {
    /// The field that begins at so many bytes. Which one it is decides about its type.
    #[doc(hidden)]
    #[must_use]
    pub const fn of_field(begin: usize, _field: fn(&R) -> &T, lines: &'static Lines) -> Self {
        Self { begin, lines, types: PhantomData }
    }

    #[doc(hidden)]
    #[must_use]
    pub const fn bytes_of(begin: usize, _field: fn(&R) -> &T) -> Range<usize> {
        begin..begin + size_of::<T>()
    }

    /// Which bytes of a row it is.
    #[must_use]
    #[inline(always)]
    pub const fn bytes(self) -> Range<usize> {
        self.begin..self.begin + size_of::<T>()
    }

    /// The words of a row that it is in.
    #[inline(always)]
    pub(crate) const fn span(self) -> Span {
        let (skipped, end) = (self.begin / WORD, (self.begin + size_of::<T>()).next_multiple_of(WORD));
        Span { skipped: skipped as u32, length: (end - WORD * skipped) as u32 }
    }
}

impl<R, T, const N: usize> Part<R, [T; N]> {
    /// One of several.
    #[must_use]
    #[inline(always)]
    pub const fn item(self, index: usize) -> Option<Part<R, T>> {
        if index >= N {
            return None;
        }
        Some(Part { begin: self.begin + index * size_of::<T>(), lines: self.lines, types: PhantomData })
    }
}

impl<R, T: FromBytes + IntoBytes + Immutable + KnownLayout> Part<R, T> {
    /// Its value, of the bytes of its [span](Self::span).
    #[inline(always)]
    pub(crate) fn read(self, span: &[u8]) -> Result<T, CodecError> {
        match span.get(self.begin % WORD..).map(T::read_from_prefix) {
            Some(Ok((value, _))) => Ok(value),
            _ => Err(self.too_short(span.len())),
        }
    }

    /// Changes its value, in the bytes of its [span](Self::span).
    #[inline(always)]
    pub(crate) fn change<X>(self, span: &mut [u8], change: impl FnOnce(&mut T) -> X) -> Result<X, CodecError> {
        let length = span.len();
        let Some(bytes) = span.get_mut(self.begin % WORD..) else { return Err(self.too_short(length)) };
        // Where it is, if it may be there: a copy would be of bytes that were written just before, in other pieces.
        let may_be_there = bytes.as_ptr().addr().is_multiple_of(align_of::<T>());
        let mut copy = None;
        let value = match may_be_there {
            true => T::mut_from_prefix(bytes).ok().map(|(value, _)| value),
            false => T::read_from_prefix(bytes).ok().map(|(value, _)| copy.insert(value)),
        };
        let Some(value) = value else { return Err(self.too_short(length)) };
        let result = change(value);
        match copy {
            Some(copy) if copy.write_to_prefix(bytes).is_err() => Err(self.too_short(length)),
            _ => Ok(result),
        }
    }

    #[cold]
    fn too_short(self, found: usize) -> CodecError {
        CodecError::Size { found: self.begin / WORD * WORD + found, expected: size_of::<R>() }
    }
}

/// A column of a table: a part of every row, as a source of rows.
///
/// # Example
///
/// See [`Table::column`].
pub struct Column<K, C: Codec, O, T> {
    table: Table<K, C, O>,
    part: Part<C::Value, T>,
    wanted: Wanted,
}

impl<K: Key, C: Flat, O: Kind> Table<K, C, O> {
    /// A part of every row of the table, as a source of rows.
    ///
    /// Of a row that is read, only the part is copied. Of a row that is [updated](Tx::update), only the part is
    /// copied, both when it is read and when the transaction commits, unless the table has indexes.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, Lines, Part, Pod, TableDef, part};
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
    /// const WANTED: Lines = Lines::of(&[BALANCE.bytes(), NAME.bytes()]);
    ///
    /// let db = Db::new()?;
    /// let customers = db.table(CUSTOMERS)?;
    /// let (balances, names) = (customers.column(BALANCE), customers.column(NAME));
    /// db.transact(|tx| tx.insert(customers, &7, &Customer { balance: 10, name: [b'x'; 24], notes: [0; 496] }))?;
    /// let (balance, name) = db.transact(|tx| {
    ///     tx.prefetch_lines(customers, [7].iter(), &WANTED)?;
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
        Column { table: self, part, wanted: Wanted::part_to_read(part.span()) }
    }
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
    fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    #[inline(always)]
    fn part<'b>(&self, whole: &'b [u8]) -> &'b [u8] {
        whole.get(WORD * self.wanted.span.skipped as usize..).unwrap_or(&[])
    }

    #[inline(always)]
    fn lines(self) -> &'static Lines {
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

    #[inline(always)]
    fn update<S: Setting, X>(
        self,
        tx: &mut Tx<'_, S>,
        key: &K,
        change: impl FnOnce(&mut T) -> X,
    ) -> Result<Option<X>, Error> {
        tx.update_part(self.table, key, self.part, change)
    }
}

copied! {
    <R, T> Part<R, T> as "Part" { begin };
    <K, C: Codec, O, T> Column<K, C, O, T> as "Column" { table, part };
}

const WORD: usize = size_of::<u64>();

/// Some words of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Words before it.
    pub(crate) skipped: u32,
    /// Its bytes, at most: the value may end within them.
    pub(crate) length: u32,
}

impl Span {
    pub(crate) const NOTHING: Self = Self { skipped: 0, length: 0 };
    pub(crate) const WHOLE: Self = Self { skipped: 0, length: u32::MAX };

    /// Its bytes, if there are so many.
    #[inline(always)]
    pub(crate) fn at_most(self, length: usize) -> usize {
        length.min(self.length as usize)
    }
}

/// Which words of a row's value are wanted, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub(crate) span: Span,
    /// Whether they go to the end of the values that the transaction keeps, so that they can be changed there. Otherwise they are read, before anything else is.
    pub(crate) is_to_change: bool,
}

impl Wanted {
    pub(crate) const NOTHING: Self = Self { span: Span::NOTHING, is_to_change: false };
    pub(crate) const TO_READ: Self = Self::part_to_read(Span::WHOLE);
    pub(crate) const TO_CHANGE: Self = Self::part_to_change(Span::WHOLE);

    /// Of a row that the transaction writes, nothing.
    #[inline(always)]
    pub(crate) const fn part_to_read(span: Span) -> Self {
        Self { span, is_to_change: false }
    }

    /// Of a row that the transaction writes, nothing.
    #[inline(always)]
    pub(crate) const fn part_to_change(span: Span) -> Self {
        Self { span, is_to_change: true }
    }

    pub(crate) fn is_whole(self) -> bool {
        self.span == Span::WHOLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(FromBytes, IntoBytes, Immutable)]
    struct Row {
        first: [u8; 3],
        second: [u8; 7],
        third: [[u8; 5]; 2],
    }

    const SECOND: Part<Row, [u8; 7]> = part!(Row, second);

    #[test]
    fn a_part_is_read_and_changed_within_its_words() {
        let row: [u8; 20] = std::array::from_fn(|at| at as u8);
        assert_eq!((SECOND.bytes(), SECOND.span()), (3..10, Span { skipped: 0, length: 16 }));
        assert_eq!(SECOND.read(&row[..16]), Ok([3, 4, 5, 6, 7, 8, 9]));
        let last = part!(Row, third).item(1).expect("there are two");
        assert_eq!((last.bytes(), last.span()), (15..20, Span { skipped: 1, length: 16 }));
        let mut span = row;
        assert_eq!(last.change(&mut span[8..], std::mem::take), Ok([15, 16, 17, 18, 19]));
        assert_eq!((&span[..15], &span[15..]), (&row[..15], &[0; 5][..]));
        assert_eq!(last.read(&row[8..19]), Err(CodecError::Size { found: 19, expected: 20 }));
    }
}
