//! The version word: the number of the key's value, and whether the record is being written.
//!
//! ```text
//!  63                                             2     1         0
//! +------------------------------------------------+---------+---------+
//! | number (62)                                    | removed | writing |
//! +------------------------------------------------+---------+---------+
//! ```
//!
//! A key's number only ever grows, also over removal and re-insertion (see [`crate::table::base`]).
//! At one increment per nanosecond it would last 146 years. `writing` is set while the record is
//! being written. A reader that finds it set, or finds that the word has changed during its copy,
//! discards what it read.

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
    /// Makes the version with this number, of a present key.
    ///
    /// # Example
    ///
    /// See [`Version`].
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(NUMBER.set(0, number))
    }

    /// Returns the number of the key's value.
    ///
    /// # Example
    ///
    /// See [`Version`].
    #[must_use]
    #[inline(always)]
    pub const fn number(self) -> u64 {
        NUMBER.get(self.0)
    }

    /// Returns the next version.
    #[must_use]
    #[inline(always)]
    pub const fn next(self) -> Self {
        Self::new(self.number() + 1)
    }

    /// Returns the version as a word, with its flags, for a message.
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

    /// Makes the version from its [word](Self::to_word).
    ///
    /// # Example
    ///
    /// See [`to_word`](Self::to_word).
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Returns whether the removed flag is set: the key is absent, or the record was removed from
    /// its table.
    ///
    /// # Example
    ///
    /// See [`Version`].
    #[must_use]
    #[inline(always)]
    pub const fn is_removed(self) -> bool {
        REMOVED.get(self.0) != 0
    }

    /// Returns whether the record is being written.
    #[must_use]
    #[inline(always)]
    pub const fn is_writing(self) -> bool {
        WRITING.get(self.0) != 0
    }

    #[must_use]
    pub(crate) const fn writing(self) -> Self {
        Self(WRITING.set(self.0, 1))
    }

    /// Returns the version with the removed flag, for a record that says that its key is absent.
    ///
    /// # Example
    ///
    /// See [`to_word`](Self::to_word).
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
