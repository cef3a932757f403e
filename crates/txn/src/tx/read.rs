//! Reading single rows.

use std::hint::cold_path;

use drtm_htm::Engine;
use drtm_kv::{ForHolder, Handle, MAX_KEY, Past, PrefetchMask, ReadEntry};

use super::{Exclusive, Found, Mode};
use crate::{
    AsKey, Codec, CodecError, Config, Conflict, Error, Key, Point, Prefetched, Stored, Table,
    commit::write_set::{Write, WriteOp, WriteTarget},
    db::name::Name,
    memory::{arena::Arena, storage::KeyRef},
    schema::{
        catalog::Opened,
        table::{Kind, Reach},
    },
    tx::{projection::Projection, state::TxState, value_sink::ProjectedSink},
};

/// A row as it was found: where its value is, and which record it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) found: Option<Found>,
    pub(super) record: Option<WriteTarget>,
}

/// The number of rows that are prefetched together.
const ASKED_FOR: usize = 16;

/// The words of keys whose rows are prefetched together.
pub(super) struct Group {
    words: [u64; ASKED_FOR],
    pub(super) count: usize,
}

impl Group {
    /// Takes the next keys, as many as fit.
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

/// Returns where the value is that a row had in a snapshot. `None` if it did not exist.
#[inline]
pub(super) fn was_found<E: Engine>(opened: &Opened<E>, past: Past) -> Result<Option<Found>, Error> {
    match past {
        Past::Present(_) => Ok(Some(Found::Read)),
        Past::Absent => Ok(None),
        Past::TooOld => Err(Error::SnapshotTooOld { table: opened.name.get() }),
    }
}

impl<S: Config, M: Mode> Exclusive<'_, S, M> {
    #[inline]
    pub(crate) fn get<R: Point>(&mut self, rows: R, key: impl AsKey<R::Key>) -> Result<Option<R::Row>, Error> {
        rows.get(self, key)
    }

    #[inline(always)]
    pub(crate) fn view<R: Stored, X>(
        &mut self,
        rows: R,
        key: impl AsKey<R::Key>,
        visit: impl FnOnce(R::View<'_>) -> X,
    ) -> Result<Option<X>, Error> {
        self.find(rows, key, |part| rows.show(part).map(visit))
    }

    #[inline]
    pub(crate) fn prefetch<R: Prefetched>(
        &mut self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<(), Error> {
        let (table, lines) = (rows.prefetched_table(), rows.prefetched_lines());
        let opened = self.opened(table)?;
        if R::Key::FITS {
            let mut keys = keys.into_iter().map(|key| key.packed());
            loop {
                let group = Group::of(&mut keys);
                if group.count > 0 {
                    self.prefetch_words::<R::Kind>(opened, group.words(), lines);
                }
                if group.count < ASKED_FOR {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Prefetches rows by packed keys: the part of [`prefetch`](Self::prefetch) that is compiled
    /// once for all types of keys.
    #[inline(never)]
    pub(super) fn prefetch_words<O: Reach>(
        &mut self,
        opened: &Opened<S::Engine>,
        words: &[u64],
        lines: &'static PrefetchMask,
    ) {
        let db = self.db;
        let TxState { worker, located, .. } = self.state();
        opened.prefetch::<O>(worker, located, words, lines, |located| db.catalog.advance_prefetches(located, false));
    }

    pub(crate) fn contains<R: Point>(&mut self, rows: R, key: impl AsKey<R::Key>) -> Result<bool, Error> {
        rows.contains(self, key)
    }

    #[inline(always)]
    pub(crate) fn is_there<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<bool, Error> {
        let opened = self.opened(table)?;
        self.with_key(key, |tx, key| Ok(tx.row::<C, O>(opened, key, &Projection::NOTHING)?.found.is_some()))
    }

    /// Finds a row, and calls `make` with the part that its source projects. Returns `None` if
    /// there is no such row.
    #[inline(always)]
    pub(crate) fn find<R: Stored, X>(
        &mut self,
        rows: R,
        key: impl AsKey<R::Key>,
        make: impl FnOnce(&[u8]) -> Result<X, CodecError>,
    ) -> Result<Option<X>, Error> {
        let (opened, wanted) = (self.opened(rows.table())?, rows.wanted());
        self.with_key(key, |tx, key| {
            let row = tx.row::<R::Codec, R::Kind>(opened, key, wanted)?;
            if !wanted.is_whole()
                && let Some(WriteTarget::Written(_)) = row.record
            {
                // The write set has only the whole value.
                let found = tx.row::<R::Codec, R::Kind>(opened, key, &Projection::TO_READ)?.found;
                let make = |found| tx.read_found(&opened.name, found, |whole| make(rows.part(whole)));
                return found.map(make).transpose();
            }
            row.found.map(|found| tx.read_found(&opened.name, found, make)).transpose()
        })
    }

    /// Calls `make` with a value that was found.
    #[inline(always)]
    pub(crate) fn read_found<X>(
        &mut self,
        table: &Name,
        found: Found,
        make: impl FnOnce(&[u8]) -> Result<X, CodecError>,
    ) -> Result<X, Error> {
        make(Self::bytes(self.state(), found)).map_err(|source| Error::Codec { table: table.get(), source })
    }

    /// Finds a row, and copies its value if the projection asks for it. The read becomes part of
    /// the read set.
    #[inline(always)]
    pub(super) fn row<C: Codec, O: Reach>(
        &mut self,
        opened: &Opened<S::Engine>,
        key: KeyRef<'_>,
        wanted: &Projection,
    ) -> Result<Row, Error> {
        let word = match key {
            KeyRef::Word(word) => word,
            // No row has such a key, and none can be inserted.
            KeyRef::Bytes(bytes) if bytes.len() > MAX_KEY => return Ok(Row { found: None, record: None }),
            KeyRef::Bytes(bytes) => return self.row_of_key::<_, O>(opened, bytes, None, wanted),
        };
        let near = self.located::<O>(opened, word);
        if let Some(at) = near
            && self.past().is_none()
        {
            let TxState { arena: Arena { value, values, .. }, holder, .. } = self.state();
            let start = values.len();
            let room = &mut ProjectedSink::new(value, values, wanted, C::SIZE);
            if let Some(seen) = opened.storage.read_at::<O, _>(at, word, ForHolder(*holder), room) {
                return self.row_of(seen, wanted, start);
            }
            cold_path();
        }
        self.row_of_key::<_, O>(opened, word, near, wanted)
    }

    /// Returns where a row is, if it was prefetched. Also advances the pending prefetches by one
    /// step.
    #[inline(always)]
    pub(super) fn located<O: Reach>(&mut self, opened: &Opened<S::Engine>, word: u64) -> Option<Handle> {
        let db = self.db;
        let located = &mut self.state().located;
        db.catalog.located::<O>(located, opened.number, word)
    }

    /// Finds a row by a full lookup. It is compiled once for words and once for bytes, for all
    /// tables: code that runs once in a transaction takes longer to fetch than to execute.
    #[inline(never)]
    pub(super) fn row_of_key<'k, N: Into<KeyRef<'k>> + Copy, O: Reach>(
        &mut self,
        opened: &Opened<S::Engine>,
        key: N,
        near: Option<Handle>,
        wanted: &Projection,
    ) -> Result<Row, Error> {
        let key = key.into();
        let past = self.past();
        let state = self.state();
        let TxState { arena: Arena { value, values, .. }, holder, .. } = &mut *state;
        let start = values.len();
        let room = &mut ProjectedSink::new(value, values, wanted, opened.value_size());
        if let Some(before) = past {
            let found = opened.read_past::<O>(near, key, before, room)?;
            return Ok(Row { found: was_found(opened, found)?, record: None });
        }
        let seen = match opened.storage.read::<O, _>(key, ForHolder(*holder), room)? {
            Ok(seen) => seen,
            Err(absence) => {
                cold_path();
                state.arena.values.truncate(start);
                self.track_absent(absence)?;
                return Ok(Row { found: None, record: Some(WriteTarget::Missed(absence)) });
            }
        };
        self.row_of(seen, wanted, start)
    }

    /// Returns the row of a record that was read. If the value is to be changed, it was copied to
    /// the end of the values, which was at `start` before.
    #[inline(always)]
    pub(super) fn row_of(&mut self, seen: ReadEntry, wanted: &Projection, start: usize) -> Result<Row, Error> {
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

    /// Like [`row_of`](Self::row_of), but only for a record in the write set. Returns `None` for
    /// others. It is a function of its own because most reads are of records that are not written.
    #[inline(never)]
    fn row_written(&mut self, seen: ReadEntry, wanted: &Projection, start: usize) -> Result<Option<Row>, Error> {
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
