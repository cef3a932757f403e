//! The version word: which of a key's values this is, and whether it is whole.
//!
//! ```text
//!  63                                             2     1         0
//! +------------------------------------------------+---------+---------+
//! | number (62)                                    | removed | writing |
//! +------------------------------------------------+---------+---------+
//! ```
//!
//! A key's number only ever grows, over removal and re-insertion too (see [`crate::floor`]). At one
//! a nanosecond it would last 146 years. `writing` is set while the record is being written: a
//! reader that sees it, or that sees the word change while it copies, has not read a value.

use super::Field;

const WRITING: Field = Field::new(0, 1);
const REMOVED: Field = WRITING.then(1);
const NUMBER: Field = REMOVED.then(62);

const _: () = assert!(NUMBER.ends_word());

/// A record's version, in one word.
///
/// # Example
///
/// ```
/// use drtm_kv::Version;
///
/// let first = Version::new(7);
/// assert!(first.next() > first);
/// assert_eq!(first.next().number(), 8);
/// assert!(!first.is_removed());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Version(pub(crate) u64);

impl Version {
    /// The version with this number, of a record that is there.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(NUMBER.set(0, number))
    }

    /// Which of the key's values it is.
    #[must_use]
    #[inline(always)]
    pub const fn number(self) -> u64 {
        NUMBER.get(self.0)
    }

    /// The version after this one.
    #[must_use]
    #[inline(always)]
    pub const fn next(self) -> Self {
        Self::new(self.number() + 1)
    }

    /// The word, marks included, for a message.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_kv::Version;
    ///
    /// let removed = Version::new(7).as_removed();
    /// assert_eq!(Version::from_word(removed.to_word()), removed);
    /// ```
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// The version of a [word](Self::to_word).
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Whether the record has been removed from its table.
    #[must_use]
    #[inline(always)]
    pub const fn is_removed(self) -> bool {
        REMOVED.get(self.0) != 0
    }

    /// Whether the record is being written.
    #[must_use]
    #[inline(always)]
    pub const fn is_writing(self) -> bool {
        WRITING.get(self.0) != 0
    }

    #[must_use]
    pub(crate) const fn writing(self) -> Self {
        Self(WRITING.set(self.0, 1))
    }

    /// The same of a record that says that its key is not there.
    #[must_use]
    #[inline(always)]
    pub const fn as_removed(self) -> Self {
        self.removed()
    }

    #[must_use]
    pub(crate) const fn removed(self) -> Self {
        Self(REMOVED.set(self.0, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_do_not_disturb_the_number() {
        let version = Version::new((1 << 62) - 2);
        for marked in [version.writing(), version.removed(), version.writing().removed()] {
            assert_eq!(marked.number(), version.number());
            assert_eq!(marked.next(), version.next());
        }
        assert!(version.writing().is_writing() && !version.writing().is_removed());
        assert!(version.removed().is_removed() && !version.removed().is_writing());
    }
}
