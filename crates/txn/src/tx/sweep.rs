//! Writing the rows of ranges, where they are found.

use std::{borrow::Borrow, ops::RangeBounds};

use super::{Range, Tx, read::Wanted};
use crate::{Codec, Error, Key, Ordered, Setting, Table};

impl<K: Key, C: Codec, S: Setting> Range<'_, '_, K, C, S> {
    /// Changes the value of the next row, where it is found: without looking for it again. Gives its key and what `change` gives, or `None` if there are no
    /// more rows.
    ///
    /// # Errors
    ///
    /// As for [`Tx::put`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, Ordered, Pod, TableDef};
    ///
    /// const LINES: TableDef<(u32, u8), Pod<u64>, Ordered> = TableDef::ordered("order lines");
    /// let db = Db::new()?;
    /// let lines = db.table(LINES)?;
    /// db.transact(|tx| (1..=3).try_for_each(|line| tx.insert(lines, &(7, line), &10)))?;
    /// let raised = db.transact(|tx| {
    ///     let mut rows = tx.range(lines, (7, 2)..=(7, u8::MAX))?;
    ///     let mut count = 0;
    ///     while rows.update_next(|_, amount| *amount += 1)?.is_some() {
    ///         count += 1;
    ///     }
    ///     Ok(count)
    /// })?;
    /// assert_eq!(raised, 2);
    /// assert_eq!(db.transact(|tx| tx.get_many(lines, &[(7, 1), (7, 3)]))?, [Some(10), Some(11)]);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn update_next<R>(&mut self, change: impl FnOnce(&K, &mut C::Value) -> R) -> Result<Option<(K, R)>, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        let wanted = self.tx.wanted_for_change(self.opened);
        let Some((key, found, record)) = self.advance(wanted)? else { return Ok(None) };
        let result =
            self.tx.change_found::<K, C, R>(self.opened, &key, wanted, found, record, |value| change(&key, value))?;
        Ok(Some((key, result)))
    }

    /// Removes the next row, where it is found, and gives what it was; `None` if there are no more rows.
    ///
    /// # Errors
    ///
    /// As for [`Tx::put`].
    ///
    /// # Example
    ///
    /// See [`Tx::pop_first`].
    #[inline]
    pub fn remove_next(&mut self) -> Result<Option<(K, C::Value)>, Error> {
        let Some((key, found, record)) = self.advance(Wanted::ToRead)? else { return Ok(None) };
        let value = self.tx.decode::<C>(self.opened, found)?;
        self.tx.remove_found(self.opened, &key, found, record)?;
        Ok(Some((key, value)))
    }
}

impl<S: Setting> Tx<'_, S> {
    /// Removes the first row of a range, and gives what it was.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, Ordered, Pod, TableDef};
    ///
    /// const JOBS: TableDef<u64, Pod<u32>, Ordered> = TableDef::ordered("jobs");
    /// let db = Db::new()?;
    /// let jobs = db.table(JOBS)?;
    /// db.transact(|tx| [1, 2, 3].iter().try_for_each(|job| tx.insert(jobs, job, &0)))?;
    /// assert_eq!(db.transact(|tx| tx.pop_first(jobs, 2..))?, Some((2, 0)));
    /// assert_eq!(db.transact(|tx| tx.pop_last(jobs, ..))?, Some((3, 0)));
    /// assert_eq!(db.transact(|tx| tx.pop_first(jobs, 2..))?, None);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn pop_first<K: Key, C: Codec>(
        &mut self,
        table: Table<K, C, Ordered>,
        range: impl RangeBounds<K>,
    ) -> Result<Option<(K, C::Value)>, Error> {
        self.range(table, range)?.for_one().remove_next()
    }

    /// Removes the last row of a range, and gives what it was.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    ///
    /// # Example
    ///
    /// See [`pop_first`](Self::pop_first).
    #[inline]
    pub fn pop_last<K: Key, C: Codec>(
        &mut self,
        table: Table<K, C, Ordered>,
        range: impl RangeBounds<K>,
    ) -> Result<Option<(K, C::Value)>, Error> {
        self.range_back(table, range)?.for_one().remove_next()
    }
}
