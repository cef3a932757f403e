//! Reading single rows.

use std::{borrow::Borrow, hint::cold_path};

use drtm_htm::Engine;
use drtm_kv::{ForHolder, Handle, Lines, Past, ReadEntry};

use super::{Found, Mode, Tx, encode};
use crate::{
    Codec, Conflict, Error, Key, Setting, Table,
    arena::Arena,
    catalog::Opened,
    part::Wanted,
    room::Taken,
    state::TxState,
    table::{Kind, Reach},
    write_set::{Write, WriteOp, WriteTarget},
};

/// A row as it was found: where its value is, and which record it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) found: Option<Found>,
    pub(super) record: Option<WriteTarget>,
}

/// Bytes of a value that are asked for ahead if nobody knows how many it has.
const PREFETCHED: usize = 160;

/// Bytes of a value that are asked for ahead.
pub(super) const fn expected_bytes<C: Codec>() -> usize {
    match C::SIZE {
        Some(size) => size,
        None => PREFETCHED,
    }
}

/// Rows whose memory is asked for at once.
const ASKED_FOR: usize = 16;

/// The words of keys whose rows are asked for together.
pub(super) struct Group {
    words: [u64; ASKED_FOR],
    pub(super) count: usize,
}

impl Group {
    /// The next keys, as many as there are.
    #[inline(always)]
    pub(super) fn of(keys: &mut impl Iterator<Item = u64>) -> Self {
        let mut group = Self { words: [0; ASKED_FOR], count: 0 };
        for (to, word) in group.words.iter_mut().zip(keys) {
            *to = word;
            group.count += 1;
        }
        group
    }

    #[inline(always)]
    pub(super) fn words(&self) -> &[u64] {
        &self.words[..self.count]
    }
}

/// Where the value is that a row had.
#[inline]
pub(super) fn was_found<E: Engine>(opened: &Opened<E>, past: Past) -> Result<Option<Found>, Error> {
    match past {
        Past::Present(_) => Ok(Some(Found::Read)),
        Past::Absent => Ok(None),
        Past::Forgotten => Err(Error::Forgotten { table: opened.name }),
    }
}

impl<S: Setting, M: Mode> Tx<'_, S, M> {
    /// A row's value, if there is such a row.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`]; or when the key is too long, or the value is none of the codec's.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, Serde, TableDef};
    ///
    /// const CAPITALS: TableDef<String, Serde<String>> = TableDef::hash("capitals");
    /// let db = Db::new()?;
    /// let capitals = db.table(CAPITALS)?;
    /// let found = db.transact(|tx| {
    ///     tx.put(capitals, &"France".to_owned(), &"Paris".to_owned())?;
    ///     tx.get(capitals, &"France".to_owned())
    /// })?;
    /// assert_eq!(found.as_deref(), Some("Paris"));
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn get<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: &K,
    ) -> Result<Option<C::Value>, Error> {
        let opened = self.opened(table)?;
        match self.row::<K, C, O>(opened, key, &Wanted::TO_READ)?.found {
            Some(found) => self.decode::<C>(opened, found).map(Some),
            None => Ok(None),
        }
    }

    /// Shows a row's value without keeping it: with a codec that can be looked at in place, nothing is allocated.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let db = Db::new()?;
    /// let notes = db.table(NOTES)?;
    /// let length = db.transact(|tx| {
    ///     tx.put(notes, &1, b"seven")?;
    ///     tx.view(notes, &1, |note| note.len())
    /// })?;
    /// assert_eq!(length, Some(5));
    /// # Ok::<(), Error>(())
    /// ```
    #[inline(always)]
    pub fn view<K: Key, C: Codec, O: Kind, R>(
        &mut self,
        table: Table<K, C, O>,
        key: &K,
        see: impl FnOnce(C::View<'_>) -> R,
    ) -> Result<Option<R>, Error> {
        let opened = self.opened(table)?;
        let Some(found) = self.row::<K, C, O>(opened, key, &Wanted::TO_READ)?.found else { return Ok(None) };
        self.show::<C, _>(opened, found, see).map(Some)
    }

    /// Asks for the memory of rows that are going to be read or updated, all at once, where one after the other would wait for it. A hint, for keys that pack into eight
    /// bytes; for others nothing happens. Of hash tables, where the rows are is remembered, to be used in the order of the keys, or nearly so; of ordered ones it is asked
    /// for the leaves where keys are, or are going to be.
    ///
    /// # Errors
    ///
    /// [`Error::OtherDatabase`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, Pod, TableDef};
    ///
    /// const STOCK: TableDef<u64, Pod<u64>> = TableDef::hash("stock");
    /// let db = Db::new()?;
    /// let stock = db.table(STOCK)?;
    /// let order = [7, 3, 9];
    /// db.transact(|tx| {
    ///     tx.prefetch(stock, order.iter())?;
    ///     order.iter().try_for_each(|item| tx.update(stock, item, |left| *left -= 1).map(drop))
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn prefetch<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        keys: impl Iterator<Item = impl Borrow<K>>,
    ) -> Result<(), Error> {
        self.ask_for(table, keys, Self::lines_of::<C>())
    }

    #[inline(always)]
    pub(super) fn ask_for<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        keys: impl Iterator<Item = impl Borrow<K>>,
        lines: &'static Lines,
    ) -> Result<(), Error> {
        let opened = self.opened(table)?;
        if K::FITS {
            let mut keys = keys.map(|key| key.borrow().word());
            loop {
                let group = Group::of(&mut keys);
                if group.count > 0 {
                    self.ask_for_words::<O>(opened, group.words(), lines);
                }
                if group.count < ASKED_FOR {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The same, once for all types of keys.
    #[inline(never)]
    pub(super) fn ask_for_words<O: Reach>(&mut self, opened: &Opened<S::Engine>, words: &[u64], lines: &'static Lines) {
        let db = self.db;
        let TxState { worker, located, .. } = self.state();
        opened.ask_for::<O>(worker, located, words, lines, |located| db.catalog.go_on(located, false));
    }

    /// Whether there is such a row.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn contains<K: Key, C: Codec, O: Kind>(&mut self, table: Table<K, C, O>, key: &K) -> Result<bool, Error> {
        let opened = self.opened(table)?;
        Ok(self.row::<K, C, O>(opened, key, &Wanted::NOTHING)?.found.is_some())
    }

    /// Finds a row, and copies its value if that is wanted. What was found is part of what the transaction has read.
    #[inline(always)]
    pub(super) fn row<K: Key, C: Codec, O: Reach>(
        &mut self,
        opened: &Opened<S::Engine>,
        key: &K,
        wanted: &Wanted,
    ) -> Result<Row, Error> {
        if !K::FITS {
            return self.row_of_key::<K, O>(opened, key, None, wanted);
        }
        let word = key.word();
        let near = self.located::<O>(opened, word);
        if let Some(at) = near
            && self.past().is_none()
            && !self.has_ticket()
        {
            let TxState { arena: Arena { value, values, .. }, holder, .. } = self.state();
            let start = values.len();
            let room = &mut Taken::new(value, values, wanted, C::SIZE);
            if let Some(seen) = opened.storage.read_at::<O, _>(at, word, ForHolder(*holder), room) {
                return self.row_of(seen, wanted, start);
            }
            cold_path();
        }
        self.row_of_key::<u64, O>(opened, &word, near, wanted)
    }

    /// Where a row is, if it was asked for. A step of the transaction.
    #[inline(always)]
    pub(super) fn located<O: Reach>(&mut self, opened: &Opened<S::Engine>, word: u64) -> Option<Handle> {
        let db = self.db;
        let located = &mut self.state().located;
        db.catalog.located::<O>(located, opened.number, word)
    }

    /// Finds a row wherever it is. Once for all tables: what is done once in a transaction takes longer to be fetched than to be carried out.
    #[inline(never)]
    pub(super) fn row_of_key<K: Key, O: Reach>(
        &mut self,
        opened: &Opened<S::Engine>,
        key: &K,
        near: Option<Handle>,
        wanted: &Wanted,
    ) -> Result<Row, Error> {
        loop {
            if let Some(row) = self.try_row::<K, O>(opened, key, near, wanted)? {
                return Ok(row);
            }
        }
    }

    /// The same, unless the row must be looked for again.
    #[inline(always)]
    fn try_row<K: Key, O: Reach>(
        &mut self,
        opened: &Opened<S::Engine>,
        key: &K,
        near: Option<Handle>,
        wanted: &Wanted,
    ) -> Result<Option<Row>, Error> {
        let past = self.past();
        let state = self.state();
        let TxState { arena: Arena { key: buffer, value, values, .. }, holder, .. } = &mut *state;
        let start = values.len();
        let encoded = encode(key, buffer);
        let room = &mut Taken::new(value, values, wanted, opened.value_size);
        if let Some(before) = past {
            let found = opened.read_past::<O>(near, encoded, before, room)?;
            return Ok(Some(Row { found: was_found(opened, found)?, record: None }));
        }
        let seen = match opened.storage.read::<O, _>(encoded, ForHolder(*holder), room)? {
            Ok(seen) => seen,
            Err(absence) => {
                cold_path();
                state.arena.values.truncate(start);
                self.track_absent(absence)?;
                return Ok(Some(Row { found: None, record: None }));
            }
        };
        if self.has_ticket() {
            cold_path();
            if self.state().writes.position(seen.at).is_none() && !self.lock_for_read(seen)? {
                self.state().arena.values.truncate(start);
                return Ok(None);
            }
        }
        self.row_of(seen, wanted, start).map(Some)
    }

    /// The row of a record that was found, and whose value was copied; if it was to be changed, to the end of the values, which was here before.
    #[inline(always)]
    pub(super) fn row_of(&mut self, seen: ReadEntry, wanted: &Wanted, start: usize) -> Result<Row, Error> {
        if self.state().writes.may_have(seen.at) {
            cold_path();
            if let Some(row) = self.row_written(seen, wanted, start)? {
                return Ok(row);
            }
        }
        let state = self.state();
        if wanted.is_to_change {
            if seen.is_present() {
                let found = Found::Own { start, length: state.arena.values.len() - start };
                self.track_read_to_change(seen)?;
                return Ok(Row { found: Some(found), record: Some(WriteTarget::Seen(seen)) });
            }
            cold_path();
            state.arena.values.truncate(start);
        }
        let found = seen.is_present().then_some(Found::Read);
        self.track_read(seen)?;
        Ok(Row { found, record: Some(WriteTarget::Seen(seen)) })
    }

    /// The same for a record that the transaction has written, if it has: by itself, as most reads are of others.
    #[inline(never)]
    fn row_written(&mut self, seen: ReadEntry, wanted: &Wanted, start: usize) -> Result<Option<Row>, Error> {
        let TxState { writes, arena, .. } = self.state();
        let Some(write) = writes.position(seen.at) else { return Ok(None) };
        let Write { op, seen: read, .. } = *writes.get(write);
        let mut found = Found::of(op);
        if let WriteOp::Patch { bytes, skipped } = op {
            if read != seen.version {
                return Err(self.doom(Conflict::Validation));
            }
            let at = 8 * skipped as usize;
            match (wanted.is_whole(), wanted.is_to_change) {
                (true, false) => arena.value.overwrite(at, bytes.of(arena.values.bytes())),
                (true, true) => {
                    arena.values.copy_within(bytes.range(), start + at);
                    found = Some(Found::Own { start, length: arena.values.len() - start });
                }
                (false, true) => arena.values.truncate(start),
                (false, false) => {}
            }
        } else if wanted.is_to_change {
            arena.values.truncate(start);
            if let Some(Found::Own { start: own, length }) = found {
                arena.values.repeat(own..own + length);
                found = Some(Found::Own { start, length });
            }
        }
        Ok(Some(Row { found, record: Some(WriteTarget::Written(write)) }))
    }
}
