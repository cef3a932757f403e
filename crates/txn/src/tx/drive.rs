//! The fast path over many rows: one driver for ranges that are shown or changed, and one for
//! lookups of many keys, both generic over visibility.

use std::ops::{Bound, ControlFlow};

use drtm_htm::Engine;
use drtm_kv::{AsOf, Cursor, ForHolder, Inline, Passed, Past, ReadEntry, Tree, ValueSink, Visibility};

use crate::{Error, commit::write_set::WriteSet, db::name::Name};

/// Records what a transaction reads on the fast path.
pub(super) trait Reader<V: Visibility> {
    /// Records the read of a row, and returns whether the row is there.
    ///
    /// # Errors
    ///
    /// The reason why the fast path ends at this row.
    fn take(&mut self, found: V::Found) -> Result<bool, Special>;
}

/// Why a row needs the slow path.
pub(super) enum Special {
    /// The transaction may have written the row, or it is time to validate the read set.
    Own(ReadEntry),
    /// The row cannot be read.
    Failed(Error),
}

/// A transaction that reads the present: rows become part of its read set.
pub(super) struct Present<'t> {
    pub(super) records: &'t mut Vec<ReadEntry>,
    pub(super) writes: &'t mut WriteSet,
    pub(super) next_check: usize,
}

impl Reader<ForHolder> for Present<'_> {
    #[inline(always)]
    fn take(&mut self, seen: ReadEntry) -> Result<bool, Special> {
        let is_time_to_check = self.records.len() + self.writes.len() + 1 >= self.next_check;
        // Rows that the transaction has written or removed leave the fast path here, and only here.
        if is_time_to_check || self.writes.may_have(seen.at) {
            return Err(Special::Own(seen));
        }
        self.records.push(seen);
        Ok(seen.is_present())
    }
}

/// A snapshot of the table with this name: it has no read set.
pub(super) struct Snapshot<'n> {
    pub(super) table: &'n Name,
}

impl Reader<AsOf> for Snapshot<'_> {
    #[inline(always)]
    fn take(&mut self, past: Past) -> Result<bool, Special> {
        match past {
            Past::Present(_) => Ok(true),
            Past::Absent => Ok(false),
            Past::TooOld => Err(Special::Failed(Error::SnapshotTooOld { table: self.table.get() })),
        }
    }
}

/// Why the driver stopped.
pub(super) enum Stop {
    /// There are no more rows.
    Over,
    /// The caller has seen enough.
    Enough,
    /// The row of this word needs the slow path.
    At(u64, ReadEntry),
    /// The row failed to be read or shown.
    Failed(Error),
}

/// Shows the rows of a range, until it ends, a row needs the slow path, or `show` breaks off.
#[inline(always)]
pub(super) fn drive<E: Engine, V: Visibility, T: Reader<V>, R: ValueSink>(
    (tree, cursor): (&Tree<E>, &mut Cursor<Inline>),
    view: &mut V,
    passed: &mut impl Passed,
    reader: &mut T,
    room: &mut R,
    mut show: impl FnMut(u64, &mut T, &mut R) -> ControlFlow<Stop>,
) -> Result<Stop, Error> {
    let mut stop = Stop::Over;
    let mut unwinding = Unwinding { cursor, shown: None };
    tree.advance_each(&mut *unwinding.cursor, view, passed, room, |word, found, room| {
        let flow = match reader.take(found) {
            Ok(true) => {
                unwinding.shown = Some(word);
                show(word, reader, room)
            }
            Ok(false) => ControlFlow::Continue(()),
            Err(Special::Own(seen)) => ControlFlow::Break(Stop::At(word, seen)),
            Err(Special::Failed(error)) => ControlFlow::Break(Stop::Failed(error)),
        };
        flow.map_break(|why| stop = why)
    })?;
    std::mem::forget(unwinding);
    Ok(stop)
}

/// Moves a cursor behind the last row that was shown, if showing it panicked. So a caller that
/// catches the panic, and continues the range, is not shown any row twice.
struct Unwinding<'c> {
    cursor: &'c mut Cursor<Inline>,
    shown: Option<u64>,
}

impl Drop for Unwinding<'_> {
    #[cold]
    fn drop(&mut self) {
        if let Some(word) = self.shown {
            self.cursor.skip_to(Bound::Excluded(word));
        }
    }
}
