//! Reading ranges of rows.

use super::{
    Exclusive, Lend, Mode, Tx,
    scan::{RangeState, Scan},
};
use crate::{Config, DefaultConfig, Error, KeyRange, KeyedRow, Sorted};

/// The rows of a range, in order, with the transaction's own writes among them.
///
/// It can be read from both ends: [`next`](Self::next) and [`next_back`](Self::next_back) meet in
/// the middle. All that it has passed, absent rows included, is part of the transaction's read set.
/// If another transaction inserts a row there, this transaction cannot commit.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Ordered, Pod, TableDef};
///
/// const LINES: TableDef<(u32, u8), Pod<u64>, Ordered> = TableDef::ordered("order lines");
/// let db = Db::new()?;
/// let lines = db.table(LINES)?;
/// let total = db.transact(|tx| {
///     for line in 1..=3 {
///         tx.insert(lines, &(7, line), &(10 * u64::from(line)))?;
///     }
///     tx.insert(lines, &(8, 1), &1_000)?;
///     let mut rows = tx.range(lines, (7, 0)..=(7, u8::MAX))?;
///     let mut total = 0;
///     while let Some((_, amount)) = rows.next()? {
///         total += amount;
///     }
///     Ok(total)
/// })?;
/// assert_eq!(total, 60);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Range<'db, R: Sorted, L: Lend<'db, S>, S: Config = DefaultConfig> {
    pub(super) lender: L,
    pub(super) at: RangeState<'db, R, S>,
}

impl<'db, R: Sorted, L: Lend<'db, S>, S: Config> Range<'db, R, L, S> {
    #[inline(always)]
    pub(super) fn new(lender: L, at: RangeState<'db, R, S>) -> Self {
        Self { lender, at }
    }

    /// Calls `read` with the range, which faces its front, and the transaction that it reads with.
    #[inline(always)]
    pub(super) fn with<T>(
        &mut self,
        read: impl FnOnce(Scan<'_, 'db, R, S, L::Mode>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Self { lender, at } = self;
        lender.lend(|tx| read(Scan::at_front(tx, at)?))
    }

    /// Returns the next row, or `None` if there are no more.
    ///
    /// # Errors
    ///
    /// As for [`Tx::get`].
    ///
    /// # Example
    ///
    /// See [`Range`].
    // Not `Iterator::next`: it can fail, and the transaction is borrowed meanwhile.
    #[expect(clippy::should_implement_trait, reason = "an iterator's items cannot be told to stop at an error")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<KeyedRow<R>>, Error> {
        self.with(|mut scan| scan.next())
    }

    /// Returns the last of the remaining rows, or `None` if there are no more.
    ///
    /// Switching the end looks up the next row again. So reading from both ends in turns costs a
    /// lookup for each row.
    ///
    /// # Errors
    ///
    /// As for [`next`](Self::next).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Ordered, Pod, TableDef};
    ///
    /// const BIDS: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("bids");
    /// let db = Db::new()?;
    /// let bids = db.table(BIDS)?;
    /// db.transact(|tx| {
    ///     (1..=3).try_for_each(|price| tx.put(bids, price, &(100 * price)))?;
    ///     let mut rows = tx.range(bids, ..)?;
    ///     assert_eq!(rows.next_back()?, Some((3, 300)));
    ///     assert_eq!(rows.next()?, Some((1, 100)));
    ///     assert_eq!(rows.next_back()?, Some((2, 200)));
    ///     assert_eq!((rows.next()?, rows.next_back()?), (None, None));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn next_back(&mut self) -> Result<Option<KeyedRow<R>>, Error> {
        let Self { lender, at } = self;
        lender.lend(|tx| Scan::at_back(tx, at)?.next())
    }

    /// Returns the first row of the range, or `None` if the range is empty. Unlike
    /// [`next`](Self::next) it does not prefetch the rows behind.
    ///
    /// # Errors
    ///
    /// As for [`next`](Self::next).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Ordered, Pod, TableDef};
    ///
    /// const QUEUE: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("queue");
    /// let db = Db::new()?;
    /// let queue = db.table(QUEUE)?;
    /// db.transact(|tx| {
    ///     tx.put(queue, &5, &50)?;
    ///     tx.put(queue, &6, &60)?;
    ///     assert_eq!(tx.range(queue, ..)?.first()?, Some((5, 50)));
    ///     assert_eq!(tx.range(queue, ..)?.last()?, Some((6, 60)));
    ///     assert_eq!(tx.range(queue, 7..)?.first()?, None);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn first(self) -> Result<Option<KeyedRow<R>>, Error> {
        self.for_one().next()
    }

    /// Returns the last row of the range, or `None` if the range is empty. Unlike
    /// [`next_back`](Self::next_back) it does not prefetch the rows before.
    ///
    /// # Errors
    ///
    /// As for [`next`](Self::next).
    ///
    /// # Example
    ///
    /// See [`first`](Self::first).
    #[inline]
    pub fn last(self) -> Result<Option<KeyedRow<R>>, Error> {
        self.for_one().next_back()
    }

    /// Prepares the range to read a single row.
    #[inline(always)]
    pub(super) fn for_one(self) -> Self {
        Self { at: self.at.for_one(), ..self }
    }

    /// Returns the remaining rows as a double-ended iterator. It ends after the first error.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Ordered, Pod, TableDef};
    ///
    /// const COUNTERS: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("counters");
    /// let db = Db::new()?;
    /// let counters = db.table(COUNTERS)?;
    /// let rows: Vec<(u64, u64)> = db.transact(|tx| {
    ///     tx.put(counters, &1, &10)?;
    ///     tx.put(counters, &2, &20)?;
    ///     tx.range(counters, ..)?.rows().rev().collect()
    /// })?;
    /// assert_eq!(rows, [(2, 20), (1, 10)]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn rows(self) -> impl DoubleEndedIterator<Item = Result<KeyedRow<R>, Error>> {
        OwnedRows { range: self, has_failed: false }
    }

    /// Turns the range around: [`next`](Self::next) returns its rows in descending order.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Ordered, Pod, TableDef};
    ///
    /// const COUNTERS: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("counters");
    /// let db = Db::new()?;
    /// let counters = db.table(COUNTERS)?;
    /// db.transact(|tx| {
    ///     (1..=9).try_for_each(|key| tx.put(counters, key, &(10 * key)))?;
    ///     let mut rows = tx.range(counters, ..4)?.rev();
    ///     assert_eq!((rows.next()?, rows.next()?), (Some((3, 30)), Some((2, 20))));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn rev(mut self) -> Self {
        self.at.turn_around();
        self
    }

    /// Counts the remaining rows, by reading all of them.
    ///
    /// # Errors
    ///
    /// As for [`next`](Self::next).
    ///
    /// # Example
    ///
    /// See [`Tx`].
    pub fn count(mut self) -> Result<u64, Error> {
        self.with(|mut scan| scan.count())
    }
}

impl<'db, R: Sorted, S: Config, M: Mode> Range<'db, R, &mut Tx<'db, S, M>, S> {
    #[inline(always)]
    pub(super) fn scan(&mut self) -> Result<Scan<'_, 'db, R, S, M>, Error> {
        Scan::at_front(self.lender.exclusive(), &mut self.at)
    }

    /// Lends the transaction between two rows, for writes to any table, and for reads. (Where rows
    /// are only read, [`range`](Tx::range) leaves the transaction to be read itself.)
    ///
    /// The range continues where it was. It returns rows that the transaction writes ahead of it,
    /// and no rows that it removes there.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Ordered, Pod, Serde, TableDef};
    ///
    /// const ORDERS: TableDef<(u32, u32), Pod<u64>, Ordered> = TableDef::ordered("orders");
    /// const ITEMS: TableDef<u64, Serde<String>> = TableDef::hash("items");
    /// let db = Db::new()?;
    /// let (orders, items) = (db.table(ORDERS)?, db.table(ITEMS)?);
    /// db.transact(|tx| {
    ///     tx.insert(items, 17, &"nails".to_owned())?;
    ///     tx.insert(items, 18, &"nuts".to_owned())?;
    ///     tx.insert(orders, (7, 1), &18)?;
    ///     tx.insert(orders, (7, 2), &17)
    /// })?;
    /// let ordered = db.transact(|tx| {
    ///     let (mut rows, mut names) = (tx.range_mut(orders, (7, 0)..=(7, u32::MAX))?, Vec::new());
    ///     while let Some((_, item)) = rows.next()? {
    ///         names.extend(rows.tx().get(items, item)?);
    ///     }
    ///     Ok(names)
    /// })?;
    /// assert_eq!(ordered, ["nuts", "nails"]);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn tx(&mut self) -> &mut Tx<'db, S, M> {
        self.at.lend(self.lender.exclusive().state().writes.ever());
        self.lender
    }
}

/// The rows of a range, as an iterator.
struct OwnedRows<'db, R: Sorted, L: Lend<'db, S>, S: Config> {
    range: Range<'db, R, L, S>,
    has_failed: bool,
}

impl<'db, R: Sorted, L: Lend<'db, S>, S: Config> OwnedRows<'db, R, L, S> {
    fn unless_failed(
        &mut self,
        next: impl FnOnce(&mut Range<'db, R, L, S>) -> Result<Option<KeyedRow<R>>, Error>,
    ) -> Option<Result<KeyedRow<R>, Error>> {
        if self.has_failed {
            return None;
        }
        let item = next(&mut self.range).transpose();
        self.has_failed = matches!(item, Some(Err(_)));
        item
    }
}

impl<'db, R: Sorted, L: Lend<'db, S>, S: Config> Iterator for OwnedRows<'db, R, L, S> {
    type Item = Result<KeyedRow<R>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.unless_failed(Range::next)
    }
}

impl<'db, R: Sorted, L: Lend<'db, S>, S: Config> DoubleEndedIterator for OwnedRows<'db, R, L, S> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.unless_failed(Range::next_back)
    }
}

impl<'db, S: Config, M: Mode> Exclusive<'db, S, M> {
    #[inline]
    pub(super) fn range_in<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
    ) -> Result<RangeState<'db, R, S>, Error> {
        let opened = self.opened(rows.entries(self)?)?;
        Ok(RangeState::new(rows, opened, R::position(range)))
    }
}
