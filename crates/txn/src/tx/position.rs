//! Positions of ranges in tables.

use std::ops::Bound;

use drtm_kv::{Bytes, Cursor, Inline};

use crate::memory::storage::KeyRef;
pub(crate) use crate::tx::way::Way;
use crate::{AsKey, Key, KeyRange, schema::key::bytes, tx::removed};

/// The position of a range, for either kind of keys.
#[derive(Debug)]
pub enum Position {
    Words(Cursor<Inline>),
    Bytes(Cursor<Bytes>),
}

/// The ends of a range, for either kind of keys.
#[derive(Debug)]
pub(crate) enum Ends {
    Words(Bound<u64>, Bound<u64>),
    Bytes(Bound<Vec<u8>>, Bound<Vec<u8>>),
}

impl Ends {
    #[inline]
    pub(crate) fn new<K: Key>(range: impl KeyRange<K>) -> Self {
        let (start, end) = range.ends();
        if K::FITS {
            return Self::Words(start.map(|key| key.packed()), end.map(|key| key.packed()));
        }
        Self::Bytes(start.map(|key| bytes(key, true)), end.map(|key| bytes(key, true)))
    }

    /// Returns both ends, without copying their keys.
    pub(crate) fn bounds(&self) -> [Bound<KeyRef<'_>>; 2] {
        match self {
            Self::Words(start, end) => [start.map(KeyRef::Word), end.map(KeyRef::Word)],
            Self::Bytes(start, end) => [start, end].map(|bound| bound.as_ref().map(|key| KeyRef::Bytes(key))),
        }
    }

    /// Returns the only key that the range can have, if its ends are equal.
    pub(crate) fn only(&self) -> Option<KeyRef<'_>> {
        match self {
            Self::Words(Bound::Included(start), Bound::Included(end)) if start == end => Some(KeyRef::Word(*start)),
            Self::Bytes(Bound::Included(start), Bound::Included(end)) if start == end => Some(KeyRef::Bytes(start)),
            _ => None,
        }
    }
}

impl Position {
    /// Returns the position at the start of a range.
    #[inline]
    pub(crate) fn at(ends: Ends) -> Self {
        match ends {
            Ends::Words(start, end) => Self::Words(Cursor::up((start, end))),
            Ends::Bytes(start, end) => {
                Self::Bytes(Cursor::up((start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice))))
            }
        }
    }

    pub(crate) fn new<K: Key>(range: impl KeyRange<K>) -> Self {
        Self::at(Ends::new(range))
    }

    /// Skips the keys from one to before another, all in encoded form, including the current one.
    pub(crate) fn skip(&mut self, start: &removed::Bytes, end: &removed::Bytes) {
        match self {
            Self::Words(cursor) => {
                // A string that is longer than a word comes right after the word.
                let (to, is_reached) = if cursor.is_upward() { (end, true) } else { (start, false) };
                let Some(word) = to.first_chunk().map(|word| u64::from_be_bytes(*word)) else { return };
                let is_included = (to.len() == size_of::<u64>()) == is_reached;
                cursor.skip_to(if is_included { Bound::Included(word) } else { Bound::Excluded(word) });
            }
            Self::Bytes(cursor) if cursor.is_upward() => cursor.skip_to(Bound::Included(end)),
            Self::Bytes(cursor) => cursor.skip_to(Bound::Excluded(start)),
        }
    }

    /// Continues from the other end of the remaining range.
    pub(crate) fn reverse(&mut self) {
        match self {
            Self::Words(cursor) => cursor.reverse(),
            Self::Bytes(cursor) => cursor.reverse(),
        }
    }

    /// Looks up the next row from the root.
    pub(crate) fn renew(&mut self) {
        match self {
            Self::Words(cursor) => cursor.renew(),
            Self::Bytes(cursor) => cursor.renew(),
        }
    }

    /// Sets how many rows will probably be read, and how many bytes a value has.
    pub(crate) fn expecting(self, rows: usize, bytes: usize) -> Self {
        match self {
            Self::Words(cursor) => Self::Words(cursor.expecting(rows, bytes)),
            Self::Bytes(cursor) => Self::Bytes(cursor.expecting(rows, bytes)),
        }
    }
}
