//! The head word: the incarnation of the record's memory, the length of its value, and the place of
//! its older version.
//!
//! ```text
//!  63           50 49       42 41   40 39                                     0
//! +---------------+-----------+---+---+----------------------------------------+
//! | incarnation   | length    | 0 | C | older version's place, in words; 0: none|
//! | (14)          | (8)       |(1)|(1)| (40)                                   |
//! +---------------+-----------+-------+----------------------------------------+
//! ```
//!
//! The incarnation changes whenever the memory is reused, so that a reader with an old place and
//! incarnation detects it. Lengths up to 254 bytes are in the head. For longer values, and for
//! records with long keys, the field is all ones and the lengths are in the following word (see
//! [`crate::record`]). C means that a checksum follows the value.

use super::{Cycle, Field, INCARNATION_BITS, PLACE_BITS};
use crate::store::bounds::INCARNATION_USED;

const OLDER: Field = Field::new(0, PLACE_BITS);
const CHECKED: Field = OLDER.then(1);
const UNUSED: Field = CHECKED.then(1);
const LENGTH: Field = UNUSED.then(8);
const INCARNATION: Field = LENGTH.then(INCARNATION_BITS);

const _: () = assert!(INCARNATION.ends_word());

/// The cycle of incarnations.
const INCARNATIONS: Cycle = Cycle::of(INCARNATION, INCARNATION_USED);

/// A record's incarnation, value length and link to its older version, in one word.
///
/// # Example
///
/// ```
/// use drtm_kv::Head;
///
/// let head = Head::new(5, Some(100));
/// assert_eq!((head.incarnation(), head.short_length()), (5, Some(100)));
/// assert!(head.is_plain(100) && !head.checked().is_plain(100));
/// assert_eq!(Head::new(5, None).short_length(), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Head(pub(crate) u64);

impl Head {
    /// The longest value whose length is in the head.
    pub const MAX_SHORT: usize = LENGTH.max() as usize - 1;

    /// Makes a head without older versions. Keeps the 14 lowest bits of the incarnation. `None`
    /// means that the lengths are in the following word.
    ///
    /// # Example
    ///
    /// See [`Head`].
    #[must_use]
    pub const fn new(incarnation: u16, short_length: Option<u8>) -> Self {
        let length = match short_length {
            Some(length) => length as u64,
            None => LENGTH.max(),
        };
        Self(INCARNATION.set(LENGTH.set(0, length), incarnation as u64))
    }

    /// Returns the incarnation: a counter of the uses of the record's memory.
    ///
    /// # Example
    ///
    /// See [`Head`].
    #[must_use]
    #[inline(always)]
    pub const fn incarnation(self) -> u16 {
        INCARNATION.get(self.0) as u16
    }

    /// Returns the value's length. `None`: it is in the following word.
    ///
    /// # Example
    ///
    /// See [`Head`].
    #[must_use]
    #[inline(always)]
    pub const fn short_length(self) -> Option<u8> {
        let length = LENGTH.get(self.0);
        if length == LENGTH.max() { None } else { Some(length as u8) }
    }

    /// Returns whether a value of this length can be replaced by writing only words of the value.
    /// The length must be the same and in the head, with neither a checksum nor older versions.
    ///
    /// # Example
    ///
    /// See [`Head`].
    #[must_use]
    #[inline(always)]
    pub const fn is_plain(self, length: usize) -> bool {
        length <= Self::MAX_SHORT && INCARNATION.set(self.0, 0) == Self::new(0, Some(length as u8)).0
    }

    /// Returns whether a checksum follows the value.
    #[must_use]
    #[inline(always)]
    pub const fn is_checked(self) -> bool {
        CHECKED.get(self.0) != 0
    }

    /// Returns the head of a record with a checksum.
    ///
    /// # Example
    ///
    /// See [`Head`].
    #[must_use]
    pub const fn checked(self) -> Self {
        Self(CHECKED.set(self.0, 1))
    }

    /// Returns whether there is an older version, or was one that could not be kept.
    #[must_use]
    #[inline(always)]
    pub const fn has_older(self) -> bool {
        self.older() != 0
    }

    /// Instead of an older version's place: there was one, which could not be kept.
    pub(crate) const FORGOTTEN: u64 = OLDER.max();

    /// Returns the older version's place, in words. Zero means none.
    #[must_use]
    #[inline(always)]
    pub(crate) const fn older(self) -> u64 {
        OLDER.get(self.0)
    }

    #[must_use]
    pub(crate) const fn with_older(self, word: u64) -> Self {
        Self(OLDER.set(self.0, word))
    }

    #[must_use]
    pub(crate) const fn without_older(self) -> Self {
        Self(OLDER.set(self.0, 0))
    }

    /// Returns the head for the next use of the memory.
    #[must_use]
    #[inline(always)]
    pub(crate) const fn reborn(self) -> Self {
        Self(INCARNATION.set(0, INCARNATIONS.next(INCARNATION.get(self.0))))
    }

    /// Returns whether the incarnation is the first of a quarter of all incarnations.
    #[must_use]
    #[inline(always)]
    pub(crate) const fn begins_quarter(self) -> bool {
        INCARNATIONS.begins_quarter(INCARNATION.get(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incarnations_wrap_within_their_bits() {
        let last = Head::new((1 << INCARNATION_USED) - 1, Some(3));
        assert_eq!(last.incarnation(), (1 << INCARNATION_USED) - 1);
        assert_eq!(last.reborn(), Head::default());
        let mut head = Head::default();
        let rounds = (0..2 << INCARNATION_USED).filter(|_| {
            head = head.reborn();
            head.begins_quarter()
        });
        assert_eq!(rounds.count(), 8, "four in each round");
    }

    #[test]
    fn a_checksum_is_of_one_use_only() {
        let head = Head::new(7, Some(9)).checked();
        assert!(head.is_checked() && !Head::new(7, Some(9)).is_checked());
        assert_eq!((head.incarnation(), head.short_length()), (7, Some(9)));
        assert!(!head.reborn().is_checked());
        assert_eq!(Head(head.0 | 0x1234).without_older(), head);
    }

    #[test]
    fn a_plain_head_says_nothing_but_the_length() {
        let head = Head::new(9, Some(100));
        assert!(head.is_plain(100) && !head.is_plain(101) && !head.is_plain(100 + 256));
        assert!(!head.checked().is_plain(100) && !head.with_older(8).is_plain(100));
        assert!(!Head::new(9, None).is_plain(Head::MAX_SHORT + 1), "a long value's length is not in its head");
    }

    #[test]
    fn the_longest_short_length_is_not_taken_for_a_long_one() {
        assert_eq!(Head::new(0, Some(Head::MAX_SHORT as u8)).short_length(), Some(254));
        assert_eq!(Head::new(0, Some(0)).short_length(), Some(0));
    }
}
