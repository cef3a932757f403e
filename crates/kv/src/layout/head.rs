//! The head word: which life of its memory a record is in, how long its value is, and where its
//! older version is.
//!
//! ```text
//!  63           50 49       42 41   40 39                                     0
//! +---------------+-----------+---+---+----------------------------------------+
//! | incarnation   | length    | 0 | C | older version's place, in words; 0: none|
//! | (14)          | (8)       |(1)|(1)| (40)                                   |
//! +---------------+-----------+-------+----------------------------------------+
//! ```
//!
//! The incarnation changes whenever the memory gets another use, so that whoever remembers a place,
//! with the incarnation it had, notices. Lengths up to 254 bytes are here; for longer values, and
//! for records with long keys, the field is all ones and the lengths are in the word that follows
//! (see [`crate::record`]). C says that a checksum follows the value.

use super::{Cycle, Field, INCARNATION_BITS, PLACE_BITS};
use crate::bounds::INCARNATION_USED;

const OLDER: Field = Field::new(0, PLACE_BITS);
const CHECKED: Field = OLDER.then(1);
const UNUSED: Field = CHECKED.then(1);
const LENGTH: Field = UNUSED.then(8);
const INCARNATION: Field = LENGTH.then(INCARNATION_BITS);

const _: () = assert!(INCARNATION.ends_word());

/// How incarnations go round.
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

    /// A head without older versions. Of the incarnation the 14 lowest bits are kept; `None` is for
    /// lengths that are elsewhere.
    #[must_use]
    pub const fn new(incarnation: u16, short_length: Option<u8>) -> Self {
        let length = match short_length {
            Some(length) => length as u64,
            None => LENGTH.max(),
        };
        Self(INCARNATION.set(LENGTH.set(0, length), incarnation as u64))
    }

    /// Which use of its memory the record is.
    #[must_use]
    #[inline(always)]
    pub const fn incarnation(self) -> u16 {
        INCARNATION.get(self.0) as u16
    }

    /// The value's length, if it is here.
    #[must_use]
    #[inline(always)]
    pub const fn short_length(self) -> Option<u8> {
        let length = LENGTH.get(self.0);
        if length == LENGTH.max() { None } else { Some(length as u8) }
    }

    /// Whether nothing but words of the value is to be written where another value of so many bytes
    /// takes the place of the record's: its length is the same, and is here, there is no checksum,
    /// and nobody asks for what it was.
    #[must_use]
    #[inline(always)]
    pub const fn is_plain(self, length: usize) -> bool {
        length <= Self::MAX_SHORT && INCARNATION.set(self.0, 0) == Self::new(0, Some(length as u8)).0
    }

    /// Whether a checksum follows the value.
    #[must_use]
    #[inline(always)]
    pub const fn is_checked(self) -> bool {
        CHECKED.get(self.0) != 0
    }

    /// The same with a checksum.
    #[must_use]
    pub const fn checked(self) -> Self {
        Self(CHECKED.set(self.0, 1))
    }

    /// Whether there is an older version, or was one that could not be kept.
    #[must_use]
    #[inline(always)]
    pub const fn has_older(self) -> bool {
        self.older() != 0
    }

    /// In place of an older version's: there was one, and it could not be kept.
    pub(crate) const FORGOTTEN: u64 = OLDER.max();

    /// The older version's place, in words.
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

    /// The same record in the next use of its memory.
    #[must_use]
    #[inline(always)]
    pub(crate) const fn reborn(self) -> Self {
        Self(INCARNATION.set(0, INCARNATIONS.next(INCARNATION.get(self.0))))
    }

    /// Whether its incarnation is the first of a quarter of all that there are.
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
