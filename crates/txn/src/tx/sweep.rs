//! Writing the rows of ranges in place.

use std::{borrow::Borrow, ops::ControlFlow};

use drtm_kv::ForHolder;

use super::{
    Range, Tx, Update,
    drive::{Present, Stop, drive},
    scan::{RangeState, Scan},
};
use crate::{
    Codec, Config, Error, Flow, Key, Ordered, Table,
    commit::{
        read_set::ReadSet,
        write_set::{Write, WriteOp},
    },
    memory::{
        arena::{Arena, ArenaKey},
        storage::{KeyRef, Storage},
    },
    mutation::Mutation,
    tx::{
        position::Position,
        projection::Projection,
        state::TxState,
        value_sink::{ArenaEnd, CodecSink},
    },
};

impl<'db, K: Key, C: Codec, S: Config> Range<'db, Table<K, C, Ordered>, &mut Tx<'db, S>, S> {
    /// Changes the value of the next row in place, without another lookup. Returns its key and what
    /// `change` returns, or `None` if there are no more rows.
    ///
    /// # Errors
    ///
    /// As for [`Tx::put`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Ordered, Pod, TableDef};
    ///
    /// const LINES: TableDef<(u32, u8), Pod<u64>, Ordered> = TableDef::ordered("order lines");
    /// let db = Db::new()?;
    /// let lines = db.table(LINES)?;
    /// db.transact(|tx| (1..=3).try_for_each(|line| tx.insert(lines, &(7, line), &10)))?;
    /// let raised = db.transact(|tx| {
    ///     let mut rows = tx.range_mut(lines, (7, 2)..=(7, u8::MAX))?;
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
        self.scan()?.update_next(change)
    }

    /// Changes the values of the following rows one by one, until the range ends or `change` breaks
    /// off. The row at which it breaks off is changed too. For many rows this is faster than to
    /// call [`update_next`](Self::update_next) for each.
    ///
    /// # Errors
    ///
    /// As for [`Tx::put`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Ordered, Pod, TableDef};
    ///
    /// const LINES: TableDef<(u32, u8), Pod<u64>, Ordered> = TableDef::ordered("order lines");
    /// let db = Db::new()?;
    /// let lines = db.table(LINES)?;
    /// let before = db.transact(|tx| {
    ///     (1..=3).try_for_each(|line| tx.insert(lines, &(7, line), &10))?;
    ///     let mut before = 0;
    ///     tx.range_mut(lines, (7, 2)..=(7, u8::MAX))?.update_each(|_, amount| {
    ///         before += *amount;
    ///         *amount += 1;
    ///     })?;
    ///     Ok(before)
    /// })?;
    /// assert_eq!(before, 20);
    /// assert_eq!(db.transact(|tx| tx.get_many(lines, &[(7, 1), (7, 3)]))?, [Some(10), Some(11)]);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn update_each<F: Flow>(&mut self, mut change: impl FnMut(&K, &mut C::Value) -> F) -> Result<(), Error>
    where
        C::Value: Borrow<C::Given>,
    {
        self.scan()?.update_each(|key, value| change(key, value).flow())
    }

    /// Removes the next row in place, and returns its key and value. Returns `None` if there are no
    /// more rows.
    ///
    /// # Errors
    ///
    /// As for [`Tx::put`].
    ///
    /// # Example
    ///
    /// See [`pop_first`](Self::pop_first).
    #[inline]
    pub fn remove_next(&mut self) -> Result<Option<(K, C::Value)>, Error> {
        self.scan()?.remove_next()
    }

    /// Removes the first row of the range, and returns its key and value. Returns `None` if the
    /// range is empty.
    ///
    /// # Errors
    ///
    /// As for [`Tx::put`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Ordered, Pod, TableDef};
    ///
    /// const JOBS: TableDef<u64, Pod<u32>, Ordered> = TableDef::ordered("jobs");
    /// let db = Db::new()?;
    /// let jobs = db.table(JOBS)?;
    /// db.transact(|tx| [1, 2, 3].iter().try_for_each(|job| tx.insert(jobs, job, &0)))?;
    /// assert_eq!(db.transact(|tx| tx.range_mut(jobs, 2..)?.pop_first())?, Some((2, 0)));
    /// assert_eq!(db.transact(|tx| tx.range_mut(jobs, ..)?.pop_last())?, Some((3, 0)));
    /// assert_eq!(db.transact(|tx| tx.range_mut(jobs, 2..)?.pop_first())?, None);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn pop_first(self) -> Result<Option<(K, C::Value)>, Error> {
        self.for_one().remove_next()
    }

    /// Removes the last row of the range, and returns its key and value. Returns `None` if the
    /// range is empty.
    ///
    /// # Errors
    ///
    /// As for [`Tx::put`].
    ///
    /// # Example
    ///
    /// See [`pop_first`](Self::pop_first).
    #[inline]
    pub fn pop_last(self) -> Result<Option<(K, C::Value)>, Error> {
        self.rev().for_one().remove_next()
    }

    /// Removes the remaining rows, and returns them in order. All of them are in one transaction's
    /// write set. To remove rows without returning them, see
    /// [`Tx::retain`].
    ///
    /// # Errors
    ///
    /// As for [`Tx::put`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Ordered, Pod, TableDef};
    ///
    /// /// What is due, by its time and a number.
    /// const TIMERS: TableDef<(u64, u32), Pod<u64>, Ordered> = TableDef::ordered("timers");
    /// let db = Db::new()?;
    /// let timers = db.table(TIMERS)?;
    /// db.transact(|tx| [(10, 0), (10, 1), (30, 0)].iter().try_for_each(|timer| tx.put(timers, timer, &7)))?;
    /// let due = db.transact(|tx| tx.range_mut(timers, ..(20, 0))?.drain())?;
    /// assert_eq!(due, [((10, 0), 7), ((10, 1), 7)]);
    /// assert_eq!(db.read(|tx| tx.len(timers))?, 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn drain(mut self) -> Result<Vec<(K, C::Value)>, Error> {
        let mut drained = Vec::new();
        while let Some(row) = self.scan()?.remove_next()? {
            drained.push(row);
        }
        Ok(drained)
    }
}

impl<K: Key, C: Codec, S: Config> Scan<'_, '_, Table<K, C, Ordered>, S, Update> {
    #[inline(always)]
    fn update_next<R>(&mut self, change: impl FnOnce(&K, &mut C::Value) -> R) -> Result<Option<(K, R)>, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        let wanted = self.tx.wanted_for_change(self.at.opened);
        let Some((key, found, record)) = self.advance(wanted)? else { return Ok(None) };
        let Self { tx, at: RangeState { opened, .. }, .. } = self;
        let result = tx.with_key(&key, |tx, encoded| {
            tx.change_found::<C, R>(opened, encoded, wanted, found, record, |value| change(&key, value))
        })?;
        Ok(Some((key, result)))
    }

    #[inline(always)]
    fn update_each(&mut self, mut change: impl FnMut(&K, &mut C::Value) -> ControlFlow<()>) -> Result<(), Error>
    where
        C::Value: Borrow<C::Given>,
    {
        let wanted = &Projection::TO_CHANGE;
        while let Some((stop, end)) = self.run_changing(&mut change)? {
            match stop {
                Stop::Over => return self.tx.passed(),
                Stop::Enough => return Ok(()),
                Stop::Failed(error) => return Err(error),
                Stop::At(word, seen) => {
                    let Some((key, found, record)) = self.row_slow(word, seen, end, wanted)? else { continue };
                    let (name, change) = (KeyRef::Word(word), |value: &mut C::Value| change(&key, value));
                    if self.tx.change_found::<C, _>(self.at.opened, name, wanted, found, record, change)?.is_break() {
                        return Ok(());
                    }
                }
            }
        }
        while let Some((_, flow)) = self.update_next(&mut change)? {
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Changes rows by the fast path. Also returns the end of the values that the transaction
    /// keeps. Returns `None` if the fast path does not apply to the transaction or the table.
    #[inline(never)]
    fn run_changing(
        &mut self,
        change: &mut impl FnMut(&K, &mut C::Value) -> ControlFlow<()>,
    ) -> Result<Option<(Stop, usize)>, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        if !self.tx.is_plain() || !self.at.opened.indexes.are_none() {
            return Ok(None);
        }
        let before = self.tx.state().seen();
        let Self { tx, at: RangeState { opened, cursor, .. }, .. } = self;
        let (Storage::TreeOfWords(tree), Position::Words(cursor)) = (&opened.storage, cursor) else { return Ok(None) };
        let TxState { reads, arena: Arena { values, .. }, writes, holder, .. } = tx.state();
        let ReadSet { leaves, records, next_check, .. } = reads;
        let (view, reader) = (&mut ForHolder(*holder), &mut Present { records, writes, next_check: *next_check });
        let start = values.len();
        let mut end = ArenaEnd { values, start };
        let room = &mut CodecSink::<C, _>::new(&mut end);
        let stop = drive(
            (tree, cursor),
            view,
            leaves,
            reader,
            room,
            |word, reader, CodecSink { room: ArenaEnd { values, start }, .. }| {
                let changed = match K::from_word(word) {
                    Some(key) => values.change::<C, _>(*start, &opened.name, |value| change(&key, value)),
                    None => Err(Error::Key { table: opened.name.get() }),
                };
                // The row has been read, even if changing it fails.
                let (value, flow) = match changed {
                    Ok(changed) => changed,
                    Err(error) => return ControlFlow::Break(Stop::Failed(error)),
                };
                *start = values.len();
                // A row in the write set need not be validated twice.
                if let Some(seen) = reader.records.pop() {
                    let write = Write::found(seen, opened.number, WriteOp::Put(value), ArenaKey::Word(word), true);
                    reader.writes.push(write);
                }
                flow.map_break(|()| Stop::Enough)
            },
        )?;
        // What was copied of an absent row belongs to no row.
        if !matches!(stop, Stop::At(..)) {
            end.values.truncate(end.start);
        }
        let start = end.start;
        self.end_run(before);
        Ok(Some((stop, start)))
    }

    #[inline(always)]
    fn remove_next(&mut self) -> Result<Option<(K, C::Value)>, Error> {
        let Some((key, found, record)) = self.advance(&Projection::TO_READ)? else { return Ok(None) };
        let value = self.tx.decode::<C>(self.at.opened, found)?;
        let Self { tx, at: RangeState { opened, .. }, .. } = self;
        tx.with_key(&key, |tx, key| {
            if S::has(Mutation::EntriesLeftByRanges) {
                return tx.write_at(opened, key, record, WriteOp::Remove);
            }
            tx.remove_found(opened, key, found, record)
        })?;
        Ok(Some((key, value)))
    }
}
