//! Reading the next row of a range: the position of a range, and a transaction to read it with.

use std::ptr;

use drtm_htm::Engine;
use drtm_kv::{AsOf, ForHolder, KvError, NoValue, Passed, Past, ReadEntry, ValueSink, Visibility};

use super::{
    Exclusive, Found, Mode, encode,
    read::{Row, was_found},
};
use crate::{
    Config, Error, Key, KeyedRow, Sorted,
    commit::{read_set::ReadSet, write_set::WriteTarget},
    memory::{arena::Arena, storage::Storage},
    schema::{catalog::Opened, codec::expected_bytes},
    tx::{position::Position, projection::Projection, removed, state::TxState, value_sink::ArenaEnd},
};

/// Where a range is.
#[derive(Debug)]
pub(super) struct RangeState<'db, R: Sorted, S: Config> {
    pub(super) rows: R,
    pub(super) opened: &'db Opened<S::Engine>,
    pub(super) cursor: Position,
    /// The last passed row, if the transaction itself has removed it.
    pub(super) removed: Option<removed::Bytes>,
    /// Whether the cursor is at the range's back.
    is_reversed: bool,
    /// How much the transaction had written when [`tx`](super::Range::tx) lent it, if it did so
    /// since the last row.
    lent_at: Option<usize>,
}

impl<'db, R: Sorted, S: Config> RangeState<'db, R, S> {
    #[inline]
    pub(super) fn new(rows: R, opened: &'db Opened<S::Engine>, cursor: Position) -> Self {
        let cursor = cursor.expecting(usize::MAX, expected_bytes::<R::Codec>());
        Self { rows, opened, cursor, removed: None, is_reversed: false, lent_at: None }
    }

    /// Prepares the cursor to read a single row.
    #[inline]
    pub(super) fn for_one(self) -> Self {
        Self { cursor: self.cursor.expecting(1, expected_bytes::<R::Codec>()), ..self }
    }

    /// Makes the range's back its front.
    #[cold]
    #[inline(never)]
    pub(super) fn reverse(&mut self) {
        self.cursor.reverse();
        self.removed = None;
    }

    /// Exchanges the range's front and back.
    pub(super) fn turn_around(&mut self) {
        if self.is_reversed { self.is_reversed = false } else { self.reverse() }
    }

    /// Notes that the transaction, which has written this much, is lent.
    #[inline]
    pub(super) fn lend(&mut self, written: usize) {
        self.lent_at.get_or_insert(written);
    }
}

/// A range that faces one of its ends, and the transaction that reads it now.
///
/// Every operation on a range needs one. [`at_front`](Self::at_front) and
/// [`at_back`](Self::at_back) alone create it, so no operation can miss what a loan of the
/// transaction has changed.
#[derive(Debug)]
pub(super) struct Scan<'r, 'db, R: Sorted, S: Config, M: Mode> {
    pub(super) tx: &'r mut Exclusive<'db, S, M>,
    pub(super) at: &'r mut RangeState<'db, R, S>,
    _checked: Checked,
}

/// Proof that a range was checked: only this file can create it.
#[derive(Debug)]
struct Checked;

impl<'r, 'db, R: Sorted, S: Config, M: Mode> Scan<'r, 'db, R, S, M> {
    /// Turns a range to its front.
    ///
    /// # Errors
    ///
    /// [`Error::OtherDatabase`] if the range was lent a transaction of another database.
    #[inline(always)]
    pub(super) fn at_front(tx: &'r mut Exclusive<'db, S, M>, at: &'r mut RangeState<'db, R, S>) -> Result<Self, Error> {
        Self::facing(tx, at, false)
    }

    /// Turns a range to its back.
    ///
    /// # Errors
    ///
    /// As for [`at_front`](Self::at_front).
    #[inline(always)]
    pub(super) fn at_back(tx: &'r mut Exclusive<'db, S, M>, at: &'r mut RangeState<'db, R, S>) -> Result<Self, Error> {
        Self::facing(tx, at, true)
    }

    #[inline(always)]
    fn facing(
        tx: &'r mut Exclusive<'db, S, M>,
        at: &'r mut RangeState<'db, R, S>,
        is_back: bool,
    ) -> Result<Self, Error> {
        let mut scan = Self { tx, at, _checked: Checked };
        if let Some(before) = scan.at.lent_at {
            scan.check_loan(before)?;
        }
        if scan.at.is_reversed != is_back {
            scan.reverse();
        }
        Ok(scan)
    }

    /// Returns the row at the end that the range faces, and passes it.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Result<Option<KeyedRow<R>>, Error> {
        let Some((entry, found, _)) = self.advance(&Projection::TO_READ)? else { return Ok(None) };
        self.at.rows.row(self.tx, &self.at.opened.name, entry, found).map(Some)
    }

    /// Checks what a loan of the transaction has changed.
    #[cold]
    #[inline(never)]
    fn check_loan(&mut self, before: usize) -> Result<(), Error> {
        let opened = self.tx.opened(self.at.rows.entries(self.tx)?)?;
        if !ptr::eq(opened, self.at.opened) {
            return Err(Error::OtherDatabase);
        }
        if self.tx.state().writes.ever() != before {
            // There may be new rows in a leaf that the cursor has read: let it look its place up.
            self.at.cursor.renew();
            self.at.removed = None;
        }
        self.at.lent_at = None;
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn reverse(&mut self) {
        self.at.reverse();
        self.at.is_reversed = !self.at.is_reversed;
    }

    /// Counts the remaining rows.
    pub(super) fn count(&mut self) -> Result<u64, Error> {
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
            let (storage, cursor, view) = (&self.at.opened.storage, &mut self.at.cursor, &mut ForHolder(*holder));
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
            let Some(key) = key else { return Err(Error::Key { table: self.at.opened.name.get() }) };
            let row = match seen {
                Seen::Past(past) => Row { found: was_found(self.at.opened, past)?, record: Some(WriteTarget::Past) },
                Seen::Now(seen) => self.tx.row_of(seen, wanted, start)?,
            };
            let Row { found: Some(found), record: Some(record) } = row else {
                self.pass_absent(&key, row);
                continue;
            };
            self.at.removed = None;
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
        removed.add(self.at.opened.number, self.at.removed.take().unwrap_or_else(|| here.clone()), here.clone());
        if let Some((start, end)) = removed.around(self.at.opened.number, &here) {
            self.at.cursor.skip(start, end);
        }
        self.at.removed = Some(here);
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
        (Storage::TreeOfWords(tree), Position::Words(cursor)) if K::FITS => {
            tree.advance(cursor, view, passed, into)?.map(|(word, found)| (K::from_word(word), found))
        }
        (Storage::TreeOfBytes(tree), Position::Bytes(cursor)) if !K::FITS => {
            tree.advance(cursor, view, passed, into)?.map(|(bytes, found)| (K::from_bytes(bytes), found))
        }
        // The table's type says that it is ordered, and which keys it has.
        _ => unreachable!("a range of a table of another kind"),
    })
}
