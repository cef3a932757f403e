//! The layout of a record behind its header.

use std::ops::Range;

use drtm_rdma::words_for;

use super::{HEADER_WORDS, MAX_VALUE};
use crate::{
    KvError,
    record::keys::{Bytes, Inline, Keys, MAX_KEY},
    store::{
        heap::{ALIGNED, Class},
        layout::Head,
    },
};

/// The layout of a record behind its header, for some lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The key's length, if the record stores the key.
    pub(crate) key: Option<usize>,
    pub(crate) value: usize,
    /// Whether a checksum follows the value.
    pub(super) checked: bool,
}

/// Returns how many bytes of memory a record takes: header, stored key and value, rounded up to its
/// size class. The entry in the table's index is not included.
///
/// # Example
///
/// ```
/// use drtm_kv::record_bytes;
///
/// assert_eq!(record_bytes(None, 100), 136);
/// assert_eq!(record_bytes(Some(20), 100), 168);
/// ```
#[must_use]
pub fn record_bytes(key: Option<usize>, value: usize) -> u64 {
    let words = Shape { key, value, checked: false }.words();
    8 * Class::of(words).map_or(words as u64, Class::words)
}

impl Shape {
    pub(super) const EMPTY: Self = Self { key: None, value: 0, checked: false };

    #[inline(always)]
    pub(crate) fn of<K: Keys>(key: K::Key<'_>, value: usize, checked: bool) -> Result<Self, KvError> {
        if value > MAX_VALUE {
            return Err(KvError::ValueTooLong { length: value, longest: MAX_VALUE });
        }
        Ok(Self { key: K::kept(key)?, value, checked })
    }

    /// Returns the shape that a head says. Loads the word of lengths where the head does not have
    /// them.
    #[inline(always)]
    pub(crate) fn told<K: Keys, Why>(head: Head, lengths: impl FnOnce() -> Result<u64, Why>) -> Result<Self, Why> {
        let checked = head.is_checked();
        match head.short_length() {
            Some(value) if K::FITS => Ok(Self { key: None, value: usize::from(value), checked }),
            _ => {
                let lengths = lengths()?;
                let key = (!K::FITS).then_some((lengths >> 32) as usize);
                Ok(Self { key, value: lengths as u32 as usize, checked })
            }
        }
    }

    /// Returns the shape that a head says, whichever kind of keys the table has. A record with
    /// lengths and no key gets a key of no bytes, which takes the same memory.
    #[inline(always)]
    pub(super) fn of_any<Why>(head: Head, lengths: impl FnOnce() -> Result<u64, Why>) -> Result<Self, Why> {
        match head.short_length() {
            Some(_) => Self::told::<Inline, _>(head, lengths),
            None => Self::told::<Bytes, _>(head, lengths),
        }
    }

    /// Returns the shape for a value of another length.
    #[inline(always)]
    pub(super) fn with_value(self, value: usize) -> Self {
        Self { value, ..self }
    }

    /// Returns whether these bytes of the value end at the end of the value or of one of its words.
    #[inline(always)]
    pub(super) fn has_part(self, begin: usize, length: usize) -> bool {
        let end = begin + length;
        end == self.value || (end < self.value && length.is_multiple_of(8))
    }

    /// Returns whether such a record can exist. Arbitrary words may say anything.
    pub(crate) fn is_possible(self) -> bool {
        self.value <= MAX_VALUE && self.key.is_none_or(|key| key <= MAX_KEY)
    }

    /// Returns the words of the value, counted from the record's beginning.
    pub(crate) fn value_words(self) -> Range<usize> {
        let begin = HEADER_WORDS + self.before_value();
        begin..begin + words_for(self.value)
    }

    #[inline(always)]
    pub(crate) fn has_lengths(self) -> bool {
        self.key.is_some() || self.value > Head::MAX_SHORT
    }

    #[inline(always)]
    pub(super) fn key_words(self) -> usize {
        words_for(self.key.unwrap_or(0))
    }

    /// Returns the number of words between header and value.
    #[inline(always)]
    pub(super) fn before_value(self) -> usize {
        if self.has_lengths() { 1 + self.key_words() } else { 0 }
    }

    #[inline(always)]
    pub(super) fn body_words(self) -> usize {
        self.before_value() + self.sealed_words()
    }

    /// Returns the number of words of the value and its checksum.
    #[inline(always)]
    pub(super) fn sealed_words(self) -> usize {
        words_for(self.value) + usize::from(self.checked)
    }

    /// Returns the number of words of the whole record.
    #[inline(always)]
    pub(crate) fn words(self) -> usize {
        HEADER_WORDS + self.body_words()
    }

    /// Returns the size class. There always is one, since lengths have been checked. Objects of a
    /// record with a checksum begin at multiples of [`ALIGNED`] words, since their sizes are such.
    #[inline(always)]
    pub(crate) fn class(self) -> Class {
        let words = if self.checked { self.words().next_multiple_of(ALIGNED) } else { self.words() };
        Class::of(words).unwrap_or_else(|| unreachable!("lengths are bounded"))
    }

    #[inline(always)]
    pub(super) fn head(self, incarnation: u16) -> Head {
        let head = Head::new(incarnation, if self.has_lengths() { None } else { Some(self.value as u8) });
        if self.checked { head.checked() } else { head }
    }

    /// Returns the word of lengths, or zero if the head has the value's length.
    pub(crate) fn lengths_if_any(self) -> u64 {
        if self.has_lengths() { self.lengths() } else { 0 }
    }

    /// Returns the word of lengths.
    pub(crate) fn lengths(self) -> u64 {
        (self.key.unwrap_or(0) as u64) << 32 | self.value as u64
    }
}
