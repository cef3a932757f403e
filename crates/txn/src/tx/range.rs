//! Reading ranges of rows.

use std::{ops::Bound, ptr};

use drtm_htm::Engine;
use drtm_kv::{AsOf, ForHolder, KvError, NoValue, Passed, Past, ReadEntry, ValueSink, Visibility};

use super::{
    Found, Mode, Tx, Update, encode,
    read::{Row, was_found},
};
use crate::{
    AsKey, Config, DefaultConfig, Error, Key, KeyRange, KeyedRow, Sorted,
    arena::Arena,
    catalog::Opened,
    codec::expected_bytes,
    key::ByRef,
    position::{Position, Way},
    projection::Projection,
    read_set::ReadSet,
    removed,
    state::TxState,
    storage::Storage,
    value_sink::ArenaEnd,
    write_set::WriteTarget,
};

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
pub struct Range<'t, 'db, R: Sorted, S: Config = DefaultConfig, M: Mode = Update> {
    pub(super) tx: &'t mut Tx<'db, S, M>,
    pub(super) rows: R,
    pub(super) opened: &'db Opened<S::Engine>,
    pub(super) cursor: Position,
    /// The last passed row, if the transaction itself has removed it.
    pub(super) removed: Option<removed::Bytes>,
    /// Whether the cursor is at the range's back.
    pub(super) is_reversed: bool,
    /// How much the transaction had written when [`tx`](Self::tx) lent it, if it did so since the
    /// last row.
    lent_at: Option<usize>,
}

impl<'db, R: Sorted, S: Config, M: Mode> Range<'_, 'db, R, S, M> {
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
        self.face_front()?;
        let Some((entry, found, _)) = self.advance(&Projection::TO_READ)? else { return Ok(None) };
        self.rows.row(self.tx, &self.opened.name, entry, found).map(Some)
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
        self.check_after_loan()?;
        if !self.is_reversed {
            self.reverse();
        }
        let Some((entry, found, _)) = self.advance(&Projection::TO_READ)? else { return Ok(None) };
        self.rows.row(self.tx, &self.opened.name, entry, found).map(Some)
    }

    /// Lends the transaction between two rows, for reads and writes of any table: joins need no
    /// buffer.
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
    /// let ordered = db.read(|tx| {
    ///     let (mut rows, mut names) = (tx.range(orders, (7, 0)..=(7, u32::MAX))?, Vec::new());
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
        if self.lent_at.is_none() {
            self.lent_at = Some(self.tx.state().writes.ever());
        }
        self.tx
    }

    /// Turns the cursor to the range's front.
    ///
    /// # Errors
    ///
    /// As for [`check_after_loan`](Self::check_after_loan).
    #[inline(always)]
    pub(super) fn face_front(&mut self) -> Result<(), Error> {
        self.check_after_loan()?;
        if self.is_reversed {
            self.reverse();
        }
        Ok(())
    }

    /// Looks at what a loan of the transaction may have changed.
    ///
    /// # Errors
    ///
    /// [`Error::OtherDatabase`] if the range is now given a transaction of another database.
    #[inline(always)]
    fn check_after_loan(&mut self) -> Result<(), Error> {
        match self.lent_at {
            Some(before) => self.check_loan(before),
            None => Ok(()),
        }
    }

    #[cold]
    #[inline(never)]
    fn check_loan(&mut self, before: usize) -> Result<(), Error> {
        let opened = self.tx.opened(self.rows.entries(self.tx)?)?;
        if !ptr::eq(opened, self.opened) {
            return Err(Error::OtherDatabase);
        }
        if self.tx.state().writes.ever() != before {
            // There may be new rows in a leaf that the cursor has read: let it look its place up.
            self.cursor.renew();
            self.removed = None;
        }
        self.lent_at = None;
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn reverse(&mut self) {
        self.cursor.reverse();
        self.is_reversed = !self.is_reversed;
        self.removed = None;
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

    /// Prepares the cursor to read a single row.
    #[inline]
    pub(super) fn for_one(self) -> Self {
        Self { cursor: self.cursor.expecting(1, expected_bytes::<R::Codec>()), ..self }
    }

    /// Counts the remaining rows.
    pub(super) fn count(mut self) -> Result<u64, Error> {
        let mut count = 0;
        while self.advance(&Projection::NOTHING)?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// Moves to the next row that exists, in the present or in the snapshot.
    #[inline(always)]
    pub(super) fn advance(&mut self, wanted: &Projection) -> Result<Option<(R::Entry, Found, WriteTarget)>, Error> {
        let past = self.tx.past();
        loop {
            let TxState { reads: ReadSet { leaves, .. }, arena: Arena { value, values, .. }, holder, .. } =
                self.tx.state();
            let start = values.len();
            let (storage, cursor, view) = (&self.opened.storage, &mut self.cursor, &mut ForHolder(*holder));
            let row = match (past, *wanted) {
                (Some(before), _) => {
                    let row = next_row(storage, cursor, &mut AsOf::new(before), &mut (), value)?;
                    row.map(|(key, past)| (key, Seen::Past(past)))
                }
                (None, Projection::NOTHING) => now(next_row(storage, cursor, view, leaves, &mut NoValue)?),
                // A range copies whole rows, even where only a part is requested: the rest is
                // adjacent in memory.
                (None, Projection { is_to_change: false, .. }) => now(next_row(storage, cursor, view, leaves, value)?),
                (None, _) => now(next_row(storage, cursor, view, leaves, &mut ArenaEnd { values, start })?),
            };
            let Some((key, seen)) = row else {
                if past.is_none() {
                    self.tx.passed()?;
                }
                return Ok(None);
            };
            let Some(key) = key else { return Err(Error::Key { table: self.opened.name.get() }) };
            let row = match seen {
                Seen::Past(past) => Row { found: was_found(self.opened, past)?, record: Some(WriteTarget::Past) },
                Seen::Now(seen) => self.tx.row_of(seen, wanted, start)?,
            };
            let Row { found: Some(found), record: Some(record) } = row else {
                self.pass_absent(&key, row);
                continue;
            };
            self.removed = None;
            if let WriteTarget::Written(_) = record {
                self.tx.passed()?;
            }
            return Ok(Some((key, found, record)));
        }
    }

    /// Records that the range has passed an absent row. If the transaction itself has removed the
    /// row, the cursor skips all that it has removed around it.
    #[cold]
    pub(super) fn pass_absent(&mut self, key: &R::Entry, row: Row) {
        let Some(WriteTarget::Written(_)) = row.record else { return };
        let TxState { removed, arena, .. } = self.tx.state();
        let here = removed::bytes_of(encode(key, &mut arena.key));
        removed.add(self.opened.number, self.removed.take().unwrap_or_else(|| here.clone()), here.clone());
        if let Some((start, end)) = removed.around(self.opened.number, &here) {
            self.cursor.skip(start, end);
        }
        self.removed = Some(here);
    }
}

/// The rows of a range, as an iterator.
struct OwnedRows<'t, 'db, R: Sorted, S: Config, M: Mode> {
    range: Range<'t, 'db, R, S, M>,
    has_failed: bool,
}

impl<'t, 'db, R: Sorted, S: Config, M: Mode> OwnedRows<'t, 'db, R, S, M> {
    fn unless_failed(
        &mut self,
        next: impl FnOnce(&mut Range<'t, 'db, R, S, M>) -> Result<Option<KeyedRow<R>>, Error>,
    ) -> Option<Result<KeyedRow<R>, Error>> {
        if self.has_failed {
            return None;
        }
        let item = next(&mut self.range).transpose();
        self.has_failed = matches!(item, Some(Err(_)));
        item
    }
}

impl<R: Sorted, S: Config, M: Mode> Iterator for OwnedRows<'_, '_, R, S, M> {
    type Item = Result<KeyedRow<R>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.unless_failed(Range::next)
    }
}

impl<R: Sorted, S: Config, M: Mode> DoubleEndedIterator for OwnedRows<'_, '_, R, S, M> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.unless_failed(Range::next_back)
    }
}

/// What was read of the next record of a range.
enum Seen {
    Now(ReadEntry),
    Past(Past),
}

#[inline(always)]
fn now<K>(row: Option<FoundRow<K, ReadEntry>>) -> Option<(Option<K>, Seen)> {
    row.map(|(key, seen)| (key, Seen::Now(seen)))
}

/// A key, if its encoding is valid in the table, and what was read of its record.
type FoundRow<K, F> = (Option<K>, F);

/// Moves a cursor to the next record of a table, and reads it.
#[inline(always)]
fn next_row<E: Engine, K: Key, V: Visibility>(
    storage: &Storage<E>,
    cursor: &mut Position,
    view: &mut V,
    passed: &mut impl Passed,
    into: &mut impl ValueSink,
) -> Result<Option<FoundRow<K, V::Found>>, KvError> {
    Ok(match (storage, cursor) {
        (Storage::TreeOfWords(tree), Position::Words(cursor)) => {
            tree.advance(cursor, view, passed, into)?.map(|(word, found)| (K::from_word(word), found))
        }
        (Storage::TreeOfBytes(tree), Position::Bytes(cursor)) => {
            tree.advance(cursor, view, passed, into)?.map(|(bytes, found)| (K::from_bytes(bytes), found))
        }
        // The table's type says that it is ordered, and which keys it has.
        _ => unreachable!("a range of a table of another kind"),
    })
}

impl<'db, S: Config, M: Mode> Tx<'db, S, M> {
    #[inline]
    fn range_in<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
        way: Way,
    ) -> Result<Range<'_, 'db, R, S, M>, Error> {
        let opened = self.opened(rows.entries(self)?)?;
        let cursor = R::position(range, way).expecting(usize::MAX, expected_bytes::<R::Codec>());
        Ok(Range { tx: self, rows, opened, cursor, removed: None, is_reversed: false, lent_at: None })
    }

    /// Returns the rows of a range, in the order of their keys.
    ///
    /// # Errors
    ///
    /// [`Error::OtherDatabase`]. Other errors are returned when the rows are read.
    ///
    /// # Example
    ///
    /// See [`Range`].
    #[inline]
    pub fn range<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
    ) -> Result<Range<'_, 'db, R, S, M>, Error> {
        self.range_in(rows, range, Way::Up)
    }

    /// Returns the rows of a range, in descending order.
    ///
    /// # Errors
    ///
    /// As for [`range`](Self::range).
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
    ///     assert_eq!(tx.range_back(counters, ..4)?.next()?, Some((3, 30)));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn range_back<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
    ) -> Result<Range<'_, 'db, R, S, M>, Error> {
        self.range_in(rows, range, Way::Down)
    }

    /// Returns the first row of a range, or `None` if the range is empty.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
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
    ///     assert_eq!(tx.first(queue, ..)?, Some((5, 50)));
    ///     assert_eq!(tx.last(queue, ..)?, Some((6, 60)));
    ///     assert_eq!(tx.first(queue, 7..)?, None);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn first<R: Sorted>(&mut self, rows: R, range: impl KeyRange<R::Key>) -> Result<Option<KeyedRow<R>>, Error> {
        self.range(rows, range)?.for_one().next()
    }

    /// Returns the last row of a range, or `None` if the range is empty.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`first`](Self::first).
    #[inline]
    pub fn last<R: Sorted>(&mut self, rows: R, range: impl KeyRange<R::Key>) -> Result<Option<KeyedRow<R>>, Error> {
        self.range_back(rows, range)?.for_one().next()
    }

    /// Returns the rows that have this key. In a non-unique index these are all rows under the key,
    /// in the order of their own keys.
    ///
    /// # Errors
    ///
    /// As for [`range`](Self::range).
    ///
    /// # Example
    ///
    /// See [`IndexDef::multi_each`](crate::IndexDef::multi_each).
    #[inline]
    pub fn all<R: Sorted>(&mut self, rows: R, key: impl AsKey<R::Key>) -> Result<Range<'_, 'db, R, S, M>, Error> {
        self.range(rows, (Bound::Included(ByRef(&key)), Bound::Included(ByRef(&key))))
    }

    /// Counts the rows of a range, by reading all of them.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`Tx`].
    pub fn count<R: Sorted>(&mut self, rows: R, range: impl KeyRange<R::Key>) -> Result<u64, Error> {
        self.range(rows, range)?.count()
    }
}
