//! Changing parts of rows.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Exclusive, Found, read::Row};
use crate::{
    AsKey, Config, Error, Flat, Key, Part, Table,
    commit::write_set::{WriteOp, WriteTarget},
    memory::{
        arena::{Arena, ArenaRange},
        storage::KeyRef,
    },
    schema::{catalog::Opened, table::Kind},
    tx::{
        projection::{ByteRange, Projection},
        state::TxState,
    },
};

impl<S: Config> Exclusive<'_, S> {
    /// Changes a part of a row: the rest of it is not copied, neither now nor at the commit. If the
    /// table has indexes, the value is written as a whole.
    #[inline(always)]
    pub(crate) fn update_part<K: Key, C: Flat, O: Kind, T: FromBytes + IntoBytes + Immutable + KnownLayout, X>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
        part: Part<C::Value, T>,
        change: impl FnOnce(&mut T) -> X,
    ) -> Result<Option<X>, Error> {
        let (opened, span) = (self.opened(table)?, part.span());
        self.with_key(key, |tx, key| {
            let Some(Changing { start, record, whole }) = tx.begin::<C, O>(opened, key, span)? else {
                return Ok(None);
            };
            // This is one call for all branches, so that it is inlined.
            let TxState { reads, arena: Arena { values, .. }, .. } = tx.state();
            let pending = reads.pending(if whole.is_none() { record } else { WriteTarget::Past });
            let changed = part.change(values.last(start), change);
            let (bytes, result) = values.keep(start, Self::codec_error(opened, changed))?;
            pending.done();
            match whole {
                None => {
                    let op = WriteOp::Patch { bytes, skipped: span.skipped };
                    tx.write_found(opened, key, record, op, true)?;
                }
                Some(whole) => tx.end_slow(opened, key, record, whole, bytes.range().end)?,
            }
            Ok(Some(result))
        })
    }

    /// Begins to change a part of a row. Returns `None` if there is no such row.
    #[inline(always)]
    fn begin<C: Flat, O: Kind>(
        &mut self,
        opened: &Opened<S::Engine>,
        key: KeyRef<'_>,
        span: ByteRange,
    ) -> Result<Option<Changing>, Error> {
        if opened.indexes.are_none() {
            match self.row::<C, O>(opened, key, &Projection::part_to_change(span))? {
                Row { found: Some(Found::Own { start, .. }), record: Some(record @ WriteTarget::Seen(_)) } => {
                    return Ok(Some(Changing { start, record, whole: None }));
                }
                // What the transaction has already written of the row is more than this part, or
                // less.
                Row { record: Some(WriteTarget::Written(_)), .. } => {}
                _ => return Ok(None),
            }
        }
        self.begin_slow::<C, O>(opened, key, span)
    }

    /// Begins to change a value that is written as a whole: keeps its old bytes, and a copy to
    /// change.
    #[cold]
    #[inline(never)]
    fn begin_slow<C: Flat, O: Kind>(
        &mut self,
        opened: &Opened<S::Engine>,
        key: KeyRef<'_>,
        span: ByteRange,
    ) -> Result<Option<Changing>, Error> {
        let row = self.row::<C, O>(opened, key, &Projection::TO_CHANGE)?;
        let Row { found: Some(Found::Own { start: old, length }), record: Some(record) } = row else {
            return Ok(None);
        };
        let TxState { arena: Arena { values, .. }, reads, .. } = self.state();
        // Index maintenance may fail before the row is written.
        if let WriteTarget::Seen(seen) = record {
            reads.records.push(seen);
        }
        let start = values.len();
        values.repeat(old..old + length);
        Ok(Some(Changing {
            start: start + length.min(8 * span.skipped as usize),
            record,
            whole: Some(Whole { old, start }),
        }))
    }

    /// Writes a value that has been changed as a whole.
    #[cold]
    #[inline(never)]
    fn end_slow(
        &mut self,
        opened: &Opened<S::Engine>,
        key: KeyRef<'_>,
        record: WriteTarget,
        Whole { old, start }: Whole,
        end: usize,
    ) -> Result<(), Error> {
        let op = WriteOp::Put(ArenaRange::between(start, end)?);
        let old = Found::Own { start: old, length: start - old };
        self.with_entries(opened, key, Some(old), op, |tx| tx.write_at(opened, key, record, op))
    }
}

/// A part of a row while it is being changed.
struct Changing {
    /// The offset of its words, at the end of the transaction's values.
    start: usize,
    record: WriteTarget,
    /// The value around the part, if it is written as a whole.
    whole: Option<Whole>,
}

/// The offsets of a value that is written as a whole: its old bytes, and behind them its new ones.
struct Whole {
    old: usize,
    start: usize,
}
