//! Writing rows.

use std::borrow::Borrow;

use drtm_kv::Placed;

use super::{Exclusive, Found, read::Row};
use crate::{
    AsKey, Codec, Config, Error, Key, Stored, Table,
    commit::write_set::{Write, WriteOp, WriteTarget},
    memory::{
        arena::{Arena, ArenaRange},
        storage::{Absence, Expected, KeyRef},
    },
    schema::{
        catalog::Opened,
        table::{Kind, Reach},
    },
    tx::{projection::Projection, state::TxState},
};

impl<S: Config> Exclusive<'_, S> {
    #[inline(always)]
    pub(crate) fn update<R: Stored, X>(
        &mut self,
        rows: R,
        key: impl AsKey<R::Key>,
        change: impl FnOnce(&mut R::Row) -> X,
    ) -> Result<Option<X>, Error>
    where
        R::Row: Borrow<R::Given>,
    {
        rows.update(self, key, change)
    }

    #[inline(always)]
    pub(crate) fn update_whole<K: Key, C: Codec, O: Kind, X>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
        change: impl FnOnce(&mut C::Value) -> X,
    ) -> Result<Option<X>, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        let opened = self.opened(table)?;
        let wanted = self.wanted_for_change(opened);
        self.with_key(key, |tx, key| {
            let Row { found: Some(found), record: Some(record) } = tx.row::<C, O>(opened, key, wanted)? else {
                return Ok(None);
            };
            tx.change_found::<C, X>(opened, key, wanted, found, record, change).map(Some)
        })
    }

    /// Returns where to copy the value of a row that is going to be changed. With indexes, the old
    /// value is needed after the change too.
    #[inline(always)]
    pub(super) fn wanted_for_change(&self, opened: &Opened<S::Engine>) -> &'static Projection {
        if opened.indexes.are_none() { &Projection::TO_CHANGE } else { &Projection::TO_READ }
    }

    /// Changes the value of a row that was found and copied as `wanted` says. It does not check for
    /// indexes again: they may be added and dropped meanwhile, and a transaction that has written
    /// without a new index fails at its commit.
    #[inline(always)]
    pub(super) fn change_found<C: Codec, R>(
        &mut self,
        opened: &Opened<S::Engine>,
        key: KeyRef<'_>,
        wanted: &Projection,
        found: Found,
        record: WriteTarget,
        change: impl FnOnce(&mut C::Value) -> R,
    ) -> Result<R, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        if wanted.is_to_change
            && let Found::Own { start, .. } = found
        {
            let TxState { reads, arena, .. } = self.state();
            let pending = reads.pending(record);
            let (value, result) = arena.values.change::<C, R>(start, &opened.name, change)?;
            pending.done();
            self.write_found(opened, key, record, WriteOp::Put(value), true)?;
            return Ok(result);
        }
        let mut value = self.decode::<C>(opened, found)?;
        let result = change(&mut value);
        let op = WriteOp::Put(self.keep_value::<C>(opened, value.borrow())?);
        self.with_entries(opened, key, Some(found), op, |tx| tx.write_at(opened, key, record, op))?;
        Ok(result)
    }

    #[inline]
    pub(crate) fn remove<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<Option<C::Value>, Error> {
        let opened = self.opened(table)?;
        self.with_key(key, |tx, key| {
            let row = tx.row::<C, O>(opened, key, &Projection::TO_READ)?;
            let Row { found: Some(found), record: Some(record) } = row else { return Ok(None) };
            let value = tx.decode::<C>(opened, found)?;
            tx.remove_found(opened, key, found, record)?;
            Ok(Some(value))
        })
    }

    /// Removes a row without reading its value, unless the table has indexes. Returns whether there
    /// was one.
    pub(crate) fn discard<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<bool, Error> {
        let opened = self.opened(table)?;
        self.with_key(key, |tx, key| {
            if opened.indexes.are_none() {
                return tx.remove_key::<C, O>(opened, key);
            }
            // The value is needed to know the row's index entries.
            let row = tx.row::<C, O>(opened, key, &Projection::TO_READ)?;
            let Row { found: Some(found), record: Some(record) } = row else { return Ok(false) };
            tx.remove_found(opened, key, found, record)?;
            Ok(true)
        })
    }

    /// Removes a row of a table without indexes. Returns whether there was one.
    #[inline(always)]
    pub(super) fn remove_key<C: Codec, O: Reach>(
        &mut self,
        opened: &Opened<S::Engine>,
        key: KeyRef<'_>,
    ) -> Result<bool, Error> {
        let row = self.row::<C, O>(opened, key, &Projection::NOTHING)?;
        let Row { found: Some(_), record: Some(record) } = row else { return Ok(false) };
        self.write_at(opened, key, record, WriteOp::Remove)?;
        Ok(true)
    }

    /// Removes a row that was found.
    #[inline(always)]
    pub(super) fn remove_found(
        &mut self,
        opened: &Opened<S::Engine>,
        key: KeyRef<'_>,
        found: Found,
        record: WriteTarget,
    ) -> Result<(), Error> {
        let op = WriteOp::Remove;
        self.with_entries(opened, key, Some(found), op, |tx| tx.write_at(opened, key, record, op))
    }

    #[inline(always)]
    pub(super) fn keep_value<C: Codec>(
        &mut self,
        opened: &Opened<S::Engine>,
        value: &C::Given,
    ) -> Result<ArenaRange, Error> {
        self.state().arena.keep_value(|bytes| Self::codec_error(opened, C::encode(value, bytes)))
    }

    /// Adds the write of a record that was found to the write set.
    #[inline(always)]
    pub(super) fn write_at(
        &mut self,
        opened: &Opened<S::Engine>,
        key: KeyRef<'_>,
        record: WriteTarget,
        op: WriteOp,
    ) -> Result<(), Error> {
        let is_read = match record {
            // A row in the write set need not be validated twice.
            WriteTarget::Seen(seen) => self.state().reads.untrack(seen),
            WriteTarget::Written(_) | WriteTarget::Past | WriteTarget::Missed(_) => false,
        };
        self.write_found(opened, key, record, op, is_read)
    }

    /// Like [`write_at`](Self::write_at), where the caller knows whether a record that is new to
    /// the write set was read. The record is not in the read set.
    #[inline(always)]
    pub(super) fn write_found(
        &mut self,
        opened: &Opened<S::Engine>,
        key: KeyRef<'_>,
        record: WriteTarget,
        op: WriteOp,
        is_read: bool,
    ) -> Result<(), Error> {
        let state = self.state();
        match record {
            WriteTarget::Written(write) => {
                state.writes.change(write, op);
                state.uncover(write);
            }
            WriteTarget::Seen(seen) => {
                let kept = match state.arena.keep_key(key) {
                    Ok(kept) => kept,
                    Err(error) => {
                        state.reads.records.extend(is_read.then_some(seen));
                        return Err(error);
                    }
                };
                state.writes.push(Write::found(seen, opened.number, op, kept, is_read));
                state.uncover(state.writes.len() - 1);
            }
            // Only a read-only transaction reads the past, and a missed key is placed.
            WriteTarget::Past | WriteTarget::Missed(_) => return Ok(()),
        }
        Ok(())
    }

    /// Sets the value of a row that may be there, or of one that must not.
    #[inline(always)]
    pub(super) fn place<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
        value: &C::Given,
        overwrites: bool,
    ) -> Result<(), Error> {
        let opened = self.opened(table)?;
        let value = self.keep_value::<C>(opened, value)?;
        // A closure shared by both branches would not be inlined.
        if K::FITS {
            return self.place_key::<C, O>(opened, KeyRef::Word(key.packed()), value, overwrites);
        }
        self.with_key(key, |tx, key| tx.place_key::<C, O>(opened, key, value, overwrites))
    }

    #[inline(always)]
    fn place_key<C: Codec, O: Kind>(
        &mut self,
        opened: &Opened<S::Engine>,
        key: KeyRef<'_>,
        value: ArenaRange,
        overwrites: bool,
    ) -> Result<(), Error> {
        if opened.indexes.are_none() {
            let expected = if overwrites { &Expected::Anything } else { &Expected::Nothing };
            return self.place_at::<O>(opened, key, value, expected);
        }
        let row = self.row::<C, O>(opened, key, &Projection::TO_READ)?;
        if row.found.is_some() && !overwrites {
            return Err(Error::Exists { table: opened.name.get() });
        }
        self.put_row::<O>(opened, key, row, value)
    }

    /// Sets the value of a row, whether it was found or missed, and updates its index entries.
    #[inline(always)]
    pub(super) fn put_row<O: Reach>(
        &mut self,
        opened: &Opened<S::Engine>,
        key: KeyRef<'_>,
        row: Row,
        value: ArenaRange,
    ) -> Result<(), Error> {
        let op = WriteOp::Put(value);
        self.with_entries(opened, key, row.found, op, |tx| match row.record {
            Some(WriteTarget::Missed(absence)) => {
                let expected = tx.still_missed(absence);
                tx.place_at::<O>(opened, key, value, &expected)
            }
            Some(record) => tx.write_at(opened, key, record, op),
            None => tx.place_at::<O>(opened, key, value, &Expected::Nothing),
        })
    }

    /// Returns what a placement may rely on where a row was missed. It is what was seen there,
    /// unless its counters may have begun to wrap since the transaction was admitted.
    ///
    /// The store reports each turn to the database before it counts the turn itself. So if the
    /// database has recorded none, the store has counted at most one of the turns that wrap a
    /// bucket's counter. Three more are still needed, and will be seen.
    #[inline(always)]
    fn still_missed(&mut self, absence: Absence) -> Expected {
        let (db, admitted) = (self.db, self.state().session.admission);
        let since = db.store.turn();
        if db.lifecycle.is_unchanged(db.engine(), admitted) {
            Expected::Missed(absence, since)
        } else {
            Expected::Nothing
        }
    }

    /// Sets a row's value with a full lookup, if the row is as expected.
    #[inline(never)]
    pub(super) fn place_at<O: Reach>(
        &mut self,
        opened: &Opened<S::Engine>,
        key: KeyRef<'_>,
        value: ArenaRange,
        expected: &Expected,
    ) -> Result<(), Error> {
        if self.db.ticket.is_taken() {
            self.yield_to_ticket(opened, key)?;
        }
        let TxState { worker, arena: Arena { values, .. }, reads, .. } = self.state();
        let placed = opened
            .storage
            .place::<O>(worker, key, value.of(values.bytes()), expected, |shift| reads.follow::<S>(shift))?;
        match placed {
            Placed::Made(seen) => {
                let state = self.state();
                let kept = state.arena.keep_key(key)?;
                // It is pushed to the write set first, so that it is undone if the transaction
                // cannot continue.
                state.writes.push(Write::made(seen, opened.number, WriteOp::Insert(value), kept));
                state.uncover(state.writes.len() - 1);
                self.passed()
            }
            Placed::Found(seen) => {
                let state = self.state();
                let record = state.writes.position(seen.at).map_or(WriteTarget::Seen(seen), WriteTarget::Written);
                let is_there = match record {
                    WriteTarget::Written(write) => state.writes.get(write).op != WriteOp::Remove,
                    WriteTarget::Seen(seen) => seen.is_present(),
                    WriteTarget::Past | WriteTarget::Missed(_) => false,
                };
                if !matches!(expected, Expected::Anything) {
                    if let WriteTarget::Seen(seen) = record {
                        self.track_read(seen)?;
                    }
                    if is_there {
                        return Err(Error::Exists { table: opened.name.get() });
                    }
                }
                self.write_at(opened, key, record, WriteOp::Put(value))
            }
        }
    }
}
