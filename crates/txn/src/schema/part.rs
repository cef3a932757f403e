//! Parts of rows: columns of plain data that can be read and changed without the rest of the row.
//!
//! A row is copied when it is read, and again when it is written. If only a few columns of a long
//! row are needed, only the words that contain them are copied.

use std::{borrow::Borrow, marker::PhantomData, ops::Range};

use drtm_kv::PrefetchMask;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Codec, CodecError, PlainRow, Pod, PodRef, schema::copied::copied, tx::projection::ByteRange};

/// A codec whose encoding is the value's memory, so that a field's bytes are at the field's offset.
///
/// # Example
///
/// See [`Table::column`](crate::Table::column).
pub trait Flat: Codec<Value: FromBytes + IntoBytes + Immutable + Borrow<Self::Given>> {}

impl<T: FromBytes + IntoBytes + Immutable + 'static> Flat for Pod<T> {}

impl<T: PlainRow> Flat for PodRef<T> {}

/// A field of a row, possibly nested.
///
/// # Example
///
/// ```
/// use drtm::{Part, part};
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
    pub(crate) lines: &'static PrefetchMask,
    types: PhantomData<fn(&R) -> &T>,
}

/// Returns a field of a row, for [`Table::column`](crate::Table::column).
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
                &$crate::PrefetchMask::of(&[$crate::Part::<$row, _>::bytes_of(
                    ::core::mem::offset_of!($row, $($field)+),
                    |row| &row.$($field)+,
                )])
            },
        )
    };
}

impl<R, T> Part<R, T> {
    /// Returns the field at this offset. The function that accesses it determines its type.
    #[doc(hidden)]
    #[must_use]
    pub const fn of_field(begin: usize, _field: fn(&R) -> &T, lines: &'static PrefetchMask) -> Self {
        Self { begin, lines, types: PhantomData }
    }

    #[doc(hidden)]
    #[must_use]
    pub const fn bytes_of(begin: usize, _field: fn(&R) -> &T) -> Range<usize> {
        begin..begin + size_of::<T>()
    }

    /// Returns which bytes of a row it occupies.
    ///
    /// # Example
    ///
    /// See [`Part`].
    #[must_use]
    #[inline(always)]
    pub const fn bytes(self) -> Range<usize> {
        self.begin..self.begin + size_of::<T>()
    }

    /// Returns which words of a row contain it.
    #[inline(always)]
    pub(crate) const fn span(self) -> ByteRange {
        let (skipped, end) = (self.begin / WORD, (self.begin + size_of::<T>()).next_multiple_of(WORD));
        ByteRange { skipped: skipped as u32, length: (end - WORD * skipped) as u32 }
    }
}

impl<R, T, const N: usize> Part<R, [T; N]> {
    /// Returns one item of an array. `None` if the index is out of bounds.
    ///
    /// # Example
    ///
    /// See [`Part`].
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
    /// Reads its value from the bytes of its [span](Self::span).
    #[inline(always)]
    pub(crate) fn read(self, span: &[u8]) -> Result<T, CodecError> {
        match span.get(self.begin % WORD..).map(T::read_from_prefix) {
            Some(Ok((value, _))) => Ok(value),
            _ => Err(self.too_short(span.len())),
        }
    }

    /// Changes its value in the bytes of its [span](Self::span).
    #[inline(always)]
    pub(crate) fn change<X>(self, span: &mut [u8], change: impl FnOnce(&mut T) -> X) -> Result<X, CodecError> {
        let length = span.len();
        let Some(bytes) = span.get_mut(self.begin % WORD..) else { return Err(self.too_short(length)) };
        // It is changed in place if it is aligned: a copy would load bytes that were just stored in
        // other pieces.
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

    /// Writes its value to the bytes of its [span](Self::span).
    pub(crate) fn write(self, span: &mut [u8], value: &T) -> Result<(), CodecError> {
        let length = span.len();
        match span.get_mut(self.begin % WORD..).map(|bytes| value.write_to_prefix(bytes)) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.too_short(length)),
        }
    }

    #[cold]
    fn too_short(self, found: usize) -> CodecError {
        CodecError::Size { found: self.begin / WORD * WORD + found, expected: size_of::<R>() }
    }
}

copied! {
    <R, T> Part<R, T> as "Part" { begin };
}

/// The bytes of a word.
pub(crate) const WORD: usize = size_of::<u64>();

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
        assert_eq!((SECOND.bytes(), SECOND.span()), (3..10, ByteRange { skipped: 0, length: 16 }));
        assert_eq!(SECOND.read(&row[..16]), Ok([3, 4, 5, 6, 7, 8, 9]));
        let last = part!(Row, third).item(1).expect("there are two");
        assert_eq!((last.bytes(), last.span()), (15..20, ByteRange { skipped: 1, length: 16 }));
        let mut span = row;
        assert_eq!(last.change(&mut span[8..], std::mem::take), Ok([15, 16, 17, 18, 19]));
        assert_eq!((&span[..15], &span[15..]), (&row[..15], &[0; 5][..]));
        assert_eq!(last.read(&row[8..19]), Err(CodecError::Size { found: 19, expected: 20 }));
    }
}
