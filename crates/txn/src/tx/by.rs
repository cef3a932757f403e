//! Finding rows by indexes: an entry of the index says which row it is, and the table has it.

use std::{
    ops::{Bound, RangeBounds},
    sync::atomic::Ordering::Relaxed,
};

use super::{
    Mode, Tx, Update,
    range::{Position, Range, Way, map, until_an_error},
};
use crate::{Codec, Embedded, Error, Hash, Index, Key, Ordered, Setting, Table, Unique, Uniqueness, table::Kind};

/// The rows of a range of an index, one after the other, in the index's order; rows under one key in the order of their own.
///
/// As with [`Range`], what it has passed is part of what the transaction has read.
///
/// # Example
///
/// ```
/// use drtm_txn::{Db, Error, IndexDef, Multi, Pod, TableDef};
///
/// const SCORES: TableDef<u64, Pod<u32>> = TableDef::hash("scores");
/// const BY_SCORE: IndexDef<u64, Pod<u32>, u32, Multi> = IndexDef::multi("players by score", |_, score| Some(score));
///
/// let db = Db::new()?;
/// let scores = db.table(SCORES)?;
/// let by_score = db.index(scores, BY_SCORE)?;
/// db.transact(|tx| {
///     for (player, score) in [(1, 500), (2, 900), (3, 500), (4, 100)] {
///         tx.insert(scores, &player, &score)?;
///     }
///     let mut ranked = tx.range_back_by(by_score, 200..)?;
///     assert_eq!(ranked.next()?, Some((900, 2, 900)));
///     assert_eq!(ranked.next_key()?, Some((500, 3)));
///     assert_eq!(ranked.next_key()?, Some((500, 1)));
///     assert_eq!(ranked.next_key()?, None);
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct RangeBy<
    't,
    'db,
    K: Key,
    C: Codec,
    I: Key,
    U: Uniqueness = Unique,
    O: Kind = Hash,
    S: Setting = Embedded,
    M: Mode = Update,
> {
    entries: Range<'t, 'db, U::Key<K, I>, U::Codec<K>, S, M>,
    index: Index<K, C, I, U, O>,
}

impl<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind, S: Setting, M: Mode> RangeBy<'_, '_, K, C, I, U, O, S, M> {
    /// The next row, or `None` if there are no more: what it is found by, its key, its value.
    ///
    /// # Errors
    ///
    /// As for [`Tx::get_by`].
    #[expect(clippy::should_implement_trait, reason = "an iterator's items cannot be told to stop at an error")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<(I, K, C::Value)>, Error> {
        let Some((by, key)) = self.next_key()? else { return Ok(None) };
        let value = self.entries.tx.row_of_entry(self.index, &key)?;
        Ok(Some((by, key, value)))
    }

    /// The key of the next row, with what it is found by. The row itself is not looked at.
    ///
    /// # Errors
    ///
    /// As for [`Tx::get`].
    #[inline]
    pub fn next_key(&mut self) -> Result<Option<(I, K)>, Error> {
        Ok(self.entries.next()?.map(|(key, value)| U::entry(key, value)))
    }

    /// The rows that are left, as an iterator, which ends with the first error.
    pub fn rows(mut self) -> impl Iterator<Item = Result<(I, K, C::Value), Error>> {
        until_an_error(move || self.next())
    }
}

impl Position {
    /// Entries by a range of what comes first in their keys.
    fn of_entries<K: Key, I: Key, U: Uniqueness>(range: impl RangeBounds<I>, way: Way) -> Self {
        let (start, end) = (range.start_bound(), range.end_bound());
        if U::IS_UNIQUE {
            return Self::new::<I>((start, end), way);
        }
        if <(I, K)>::FITS {
            // All keys that begin with a part are from `low` to `high`. (A part that is nothing is shifted out.)
            let bits = 8 * K::SIZE.unwrap_or(0) as u32;
            let low = |part: &I| part.word().checked_shl(bits).unwrap_or(0);
            let high = |part: &I| low(part) | !u64::MAX.checked_shl(bits).unwrap_or(0);
            let start = match start {
                Bound::Excluded(part) => Bound::Excluded(high(part)),
                start => map(start, low),
            };
            let end = match end {
                Bound::Included(part) => Bound::Included(high(part)),
                end => map(end, low),
            };
            return Self::of_words((start, end), way);
        }
        let low = |part: &I| {
            let mut bytes = Vec::new();
            part.write(&mut bytes, false);
            bytes
        };
        let end = match end {
            Bound::Included(part) => beyond(low(part)).map_or(Bound::Unbounded, Bound::Excluded),
            end => map(end, low),
        };
        let bounds = match start {
            Bound::Excluded(part) => match beyond(low(part)) {
                Some(start) => (Bound::Included(start), end),
                // Nothing comes after it.
                None => (Bound::Included(low(part)), Bound::Excluded(low(part))),
            },
            start => (map(start, low), end),
        };
        Self::of_bytes(bounds, way)
    }
}

/// The least string after all that begin with this one.
fn beyond(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = bytes.pop() {
        if let Some(next) = last.checked_add(1) {
            bytes.push(next);
            return Some(bytes);
        }
    }
    None
}

#[expect(clippy::type_complexity, reason = "a parameter for each type that the rows tell")]
impl<'db, S: Setting, M: Mode> Tx<'db, S, M> {
    /// The row that a unique index has under a key: its own key, and its value.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`]; [`Error::IndexTooNew`] in a snapshot that is older than the index; or when the key is too long, or the value is none of the codec's.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, IndexDef, Serde, TableDef};
    ///
    /// const CAPITALS: TableDef<String, Serde<String>> = TableDef::hash("capitals");
    /// const COUNTRIES: IndexDef<String, Serde<String>, String> =
    ///     IndexDef::unique("countries by capital", |_, capital| Some(capital));
    ///
    /// let db = Db::new()?;
    /// let capitals = db.table(CAPITALS)?;
    /// let countries = db.index(capitals, COUNTRIES)?;
    /// let found = db.transact(|tx| {
    ///     tx.put(capitals, &"France".to_owned(), &"Paris".to_owned())?;
    ///     tx.get_by(countries, &"Paris".to_owned())
    /// })?;
    /// assert_eq!(found, Some(("France".to_owned(), "Paris".to_owned())));
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn get_by<K: Key, C: Codec, I: Key, O: Kind>(
        &mut self,
        index: Index<K, C, I, Unique, O>,
        by: &I,
    ) -> Result<Option<(K, C::Value)>, Error> {
        let Some(key) = self.key_by(index, by)? else { return Ok(None) };
        let value = self.row_of_entry(index, &key)?;
        Ok(Some((key, value)))
    }

    /// The key of the row that a unique index has under a key. The row itself is not looked at.
    ///
    /// # Errors
    ///
    /// As for [`get_by`](Self::get_by).
    ///
    /// # Example
    ///
    /// See [`IndexDef`](crate::IndexDef).
    #[inline]
    pub fn key_by<K: Key, C: Codec, I: Key, O: Kind>(
        &mut self,
        index: Index<K, C, I, Unique, O>,
        by: &I,
    ) -> Result<Option<K>, Error> {
        let entries = self.entries(index)?;
        self.get(entries, by)
    }

    /// The rows under one key of an index.
    ///
    /// # Errors
    ///
    /// As for [`range`](Self::range), and [`Error::IndexTooNew`] in a snapshot that is older than the index.
    ///
    /// # Example
    ///
    /// See [`IndexDef::multi_each`](crate::IndexDef::multi_each).
    #[inline]
    pub fn all_by<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind>(
        &mut self,
        index: Index<K, C, I, U, O>,
        by: &I,
    ) -> Result<RangeBy<'_, 'db, K, C, I, U, O, S, M>, Error> {
        self.range_by(index, (Bound::Included(by), Bound::Included(by)))
    }

    /// The rows of a range of an index, in its order.
    ///
    /// # Errors
    ///
    /// As for [`range`](Self::range), and [`Error::IndexTooNew`] in a snapshot that is older than the index.
    ///
    /// # Example
    ///
    /// See [`RangeBy`].
    #[inline]
    pub fn range_by<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind>(
        &mut self,
        index: Index<K, C, I, U, O>,
        range: impl RangeBounds<I>,
    ) -> Result<RangeBy<'_, 'db, K, C, I, U, O, S, M>, Error> {
        let position = Position::of_entries::<K, I, U>(range, Way::Up);
        let entries = self.entries(index)?;
        Ok(RangeBy { entries: self.range_from(entries, position)?, index })
    }

    /// The rows of a range of an index, in the opposite order.
    ///
    /// # Errors
    ///
    /// As for [`range`](Self::range), and [`Error::IndexTooNew`] in a snapshot that is older than the index.
    ///
    /// # Example
    ///
    /// See [`RangeBy`].
    #[inline]
    pub fn range_back_by<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind>(
        &mut self,
        index: Index<K, C, I, U, O>,
        range: impl RangeBounds<I>,
    ) -> Result<RangeBy<'_, 'db, K, C, I, U, O, S, M>, Error> {
        let position = Position::of_entries::<K, I, U>(range, Way::Down);
        let entries = self.entries(index)?;
        Ok(RangeBy { entries: self.range_from(entries, position)?, index })
    }

    /// The first row of a range of an index.
    ///
    /// # Errors
    ///
    /// As for [`get_by`](Self::get_by).
    ///
    /// # Example
    ///
    /// See [`Db::index`](crate::Db::index).
    #[inline]
    pub fn first_by<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind>(
        &mut self,
        index: Index<K, C, I, U, O>,
        range: impl RangeBounds<I>,
    ) -> Result<Option<(I, K, C::Value)>, Error> {
        self.range_by(index, range)?.next()
    }

    /// The last row of a range of an index.
    ///
    /// # Errors
    ///
    /// As for [`get_by`](Self::get_by).
    ///
    /// # Example
    ///
    /// See [`Db::index`](crate::Db::index).
    #[inline]
    pub fn last_by<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind>(
        &mut self,
        index: Index<K, C, I, U, O>,
        range: impl RangeBounds<I>,
    ) -> Result<Option<(I, K, C::Value)>, Error> {
        self.range_back_by(index, range)?.next()
    }

    /// How many rows there are in a range of an index: it goes through all of them.
    ///
    /// # Errors
    ///
    /// As for [`get_by`](Self::get_by).
    ///
    /// # Example
    ///
    /// See [`IndexDef`](crate::IndexDef).
    pub fn count_by<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind>(
        &mut self,
        index: Index<K, C, I, U, O>,
        range: impl RangeBounds<I>,
    ) -> Result<u64, Error> {
        let position = Position::of_entries::<K, I, U>(range, Way::Up);
        let entries = self.entries(index)?;
        self.range_from(entries, position)?.count()
    }

    /// The table of an index's entries, if it has those of every row at the moment that is read.
    #[inline(always)]
    fn entries<K: Key, C, I: Key, U: Uniqueness, O>(
        &self,
        index: Index<K, C, I, U, O>,
    ) -> Result<Table<U::Key<K, I>, U::Codec<K>, Ordered>, Error> {
        let entries = index.entries();
        if let Some(before) = self.past() {
            let opened = self.opened(entries)?;
            if before.number() < opened.whole_since.load(Relaxed) {
                return Err(Error::IndexTooNew { index: opened.name });
            }
        }
        Ok(entries)
    }

    /// The value of the row that an entry has.
    #[inline]
    fn row_of_entry<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind>(
        &mut self,
        index: Index<K, C, I, U, O>,
        key: &K,
    ) -> Result<C::Value, Error> {
        match self.get(index.table, key)? {
            Some(value) => Ok(value),
            None => {
                let table = self.opened(index.table)?.name;
                Err(self.disagreement(index.entries().number, table))
            }
        }
    }

    /// An index and its table do not say the same: because what was read of them is not true any more, or because something is wrong.
    #[cold]
    pub(super) fn disagreement(&mut self, index: u16, table: &'static str) -> Error {
        match self.validation_error() {
            Some(conflict) => self.doom(conflict),
            None => match self.db.catalog.get(index) {
                Some(index) => Error::Index { index: index.name, table },
                None => Error::OtherDatabase,
            },
        }
    }
}
