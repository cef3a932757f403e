//! What a piece can read: tables, columns and indexes.

use crate::{Codec, Index, IndexKeys, Key, Pairs, Rows, Stored, Uniqueness, schema::table::Kind};

/// A source of rows that a piece can read: a table, a column, or an index with its keys.
///
/// # Example
///
/// See [`PieceTx`](super::PieceTx).
pub trait Source: Rows {
    /// Whether it is an index.
    #[doc(hidden)]
    const IS_INDEX: bool;

    /// Whether it has the columns of rows.
    #[doc(hidden)]
    const HAS_ROWS: bool;

    /// Returns the number of the table.
    #[doc(hidden)]
    fn base(&self) -> u16;
}

impl<R: Stored> Source for R {
    const IS_INDEX: bool = false;
    const HAS_ROWS: bool = true;

    #[inline]
    fn base(&self) -> u16 {
        self.table().number
    }
}

macro_rules! of_index {
    ($($type:ty, [$($more:tt)*], $has_rows:literal, |$source:ident| $table:expr;)+) => {$(
        impl<K: Key, C: Codec, I: Key, $($more)* O: Kind> Source for $type
        where
            $type: Rows,
        {
            const IS_INDEX: bool = true;
            const HAS_ROWS: bool = $has_rows;

            #[inline]
            fn base(&self) -> u16 {
                let $source = self;
                $table.number
            }
        }
    )+};
}

of_index! {
    Index<K, C, I, U, O>, [U: Uniqueness,], true, |index| index.table;
    IndexKeys<K, C, I, U, O>, [U: Uniqueness,], false, |keys| keys.index.table;
    Pairs<Index<K, C, I, U, O>>, [U: Uniqueness,], true, |pairs| pairs.of.table;
    Pairs<IndexKeys<K, C, I, U, O>>, [U: Uniqueness,], false, |pairs| pairs.of.index.table;
}
