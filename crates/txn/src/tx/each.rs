//! Showing the rows of a range in a loop, without returning to the caller between them.

use std::ops::ControlFlow;

use drtm_kv::{AsOf, ForHolder, ReadEntry, Version};

use super::{
    Found, Lend, Mode, Range,
    drive::{Present, Snapshot, Stop, drive},
    read::Row,
    scan::{RangeState, Scan},
};
use crate::{
    Config, Error, Flow, Key, Ordered, Sorted, Stored,
    commit::{read_set::ReadSet, write_set::WriteTarget},
    db::name::Name,
    memory::{arena::Arena, storage::Storage},
    tx::{position::Position, projection::Projection, state::TxState, value_sink::CodecSink},
};

impl<'db, R: Stored<Kind = Ordered>, L: Lend<'db, S>, S: Config> Range<'db, R, L, S> {
    /// Shows the next row to `visit` without copying it. Returns its key and what `visit` returns.
    ///
    /// # Errors
    ///
    /// As for [`Tx::get`](crate::Tx::get).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Ordered, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw, Ordered> = TableDef::ordered("notes");
    /// let db = Db::new()?;
    /// let notes = db.table(NOTES)?;
    /// db.transact(|tx| {
    ///     tx.put(notes, &1, b"seven")?;
    ///     let mut rows = tx.range(notes, ..)?;
    ///     assert_eq!(rows.view_next(|note| note.len())?, Some((1, 5)));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn view_next<X>(&mut self, visit: impl FnOnce(R::View<'_>) -> X) -> Result<Option<(R::Key, X)>, Error> {
        if self.lender.copies() {
            self.view_next_copy(|key, row| (key, visit(row)))
        } else {
            self.with(|mut scan| scan.view_next(visit))
        }
    }

    /// Shows the following rows one by one, until the range ends or `visit` breaks off. For many
    /// rows this is faster than to call [`view_next`](Self::view_next) for each.
    ///
    /// # Errors
    ///
    /// As for [`next`](Self::next).
    ///
    /// # Example
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// use drtm::{Db, Pod, TableDef};
    ///
    /// const PRICES: TableDef<u64, Pod<u64>, drtm::Ordered> = TableDef::ordered("prices");
    ///
    /// let db = Db::new()?;
    /// let prices = db.table(PRICES)?;
    /// let dear = db.transact(|tx| {
    ///     (0..100).try_for_each(|item| tx.insert(prices, &item, &(10 * item)))?;
    ///     let mut dear = Vec::new();
    ///     tx.range(prices, 50..)?.view_each(|item, price| {
    ///         if price > 900 {
    ///             dear.push(item);
    ///         }
    ///         if dear.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    ///     })?;
    ///     Ok(dear)
    /// })?;
    /// assert_eq!(dear, [91, 92, 93]);
    /// # Ok::<(), drtm::Error>(())
    /// ```
    #[inline]
    pub fn view_each<F: Flow>(&mut self, mut visit: impl FnMut(R::Key, R::View<'_>) -> F) -> Result<(), Error> {
        if self.lender.copies() {
            while self.view_next_copy(|key, row| visit(key, row).flow())?.is_some_and(|flow| flow.is_continue()) {}
            return Ok(());
        }
        self.with(|mut scan| scan.view_each(|key, row| visit(key, row).flow()))
    }
}

impl<R: Sorted, S: Config, M: Mode> Scan<'_, '_, R, S, M> {
    /// Forgets the removed row that a range has passed, if the run has read any row after it.
    /// `before` is the number of reads before the run.
    pub(super) fn end_run(&mut self, before: usize) {
        if self.tx.state().seen() != before {
            self.at.removed = None;
        }
    }

    /// Reads a row that needs the slow path. If its value was to be changed, it was copied behind
    /// the values that are kept. Returns `None` if there is no such row.
    #[cold]
    #[inline(never)]
    pub(super) fn row_slow(
        &mut self,
        word: u64,
        seen: ReadEntry,
        end: usize,
        wanted: &Projection,
    ) -> Result<Option<(R::Entry, Found, WriteTarget)>, Error> {
        let Some(key) = R::Entry::from_word(word) else { return Err(Error::Key { table: self.at.opened.name.get() }) };
        let row = self.tx.row_of(seen, wanted, end)?;
        let Row { found: Some(found), record: Some(record) } = row else {
            self.pass_absent(&key, row);
            return Ok(None);
        };
        self.at.removed = None;
        if let WriteTarget::Written(_) = record {
            self.tx.passed()?;
        }
        Ok(Some((key, found, record)))
    }
}

impl<R: Stored<Kind = Ordered>, S: Config, M: Mode> Scan<'_, '_, R, S, M> {
    #[inline(always)]
    fn view_next<X>(&mut self, visit: impl FnOnce(R::View<'_>) -> X) -> Result<Option<(R::Key, X)>, Error> {
        let Some((entry, found, _)) = self.advance(&Projection::TO_READ)? else { return Ok(None) };
        self.show(entry, found, |key, view| (key, visit(view))).map(Some)
    }

    #[inline(always)]
    pub(super) fn view_each(
        &mut self,
        mut visit: impl FnMut(R::Key, R::View<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        while let Some(stop) = self.run_in_place(&mut visit)? {
            match stop {
                Stop::Over => return self.tx.passed(),
                Stop::Enough => return Ok(()),
                Stop::Failed(error) => return Err(error),
                Stop::At(word, seen) => {
                    let end = self.tx.state().arena.values.len();
                    if let Some((entry, found, _)) = self.row_slow(word, seen, end, &Projection::TO_READ)?
                        && self.show(entry, found, &mut visit)?.is_break()
                    {
                        return Ok(());
                    }
                }
            }
        }
        while let Some((entry, found, _)) = self.advance(&Projection::TO_READ)? {
            if self.show(entry, found, &mut visit)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Shows a found row.
    #[inline(always)]
    fn show<X>(&mut self, key: R::Key, found: Found, visit: impl FnOnce(R::Key, R::View<'_>) -> X) -> Result<X, Error> {
        let rows = self.at.rows;
        self.tx.read_found(&self.at.opened.name, found, |whole| Ok(visit(key, rows.show(rows.part(whole))?)))
    }

    /// Shows rows by the fast path. Returns `None` if it does not apply to the transaction or the
    /// table.
    #[inline(always)]
    fn run_in_place(
        &mut self,
        visit: &mut impl FnMut(R::Key, R::View<'_>) -> ControlFlow<()>,
    ) -> Result<Option<Stop>, Error> {
        match self.tx.past() {
            Some(before) => self.run_in_past(before, visit),
            None if self.tx.is_plain() => self.run_in_present(visit),
            None => Ok(None),
        }
    }

    #[inline(never)]
    fn run_in_present(
        &mut self,
        visit: &mut impl FnMut(R::Key, R::View<'_>) -> ControlFlow<()>,
    ) -> Result<Option<Stop>, Error> {
        let before = self.tx.state().seen();
        let Self { tx, at: RangeState { opened, cursor, rows, .. }, .. } = self;
        let (Storage::TreeOfWords(tree), Position::Words(cursor)) = (&opened.storage, cursor) else { return Ok(None) };
        let TxState { reads, arena: Arena { value, .. }, writes, holder, .. } = tx.state();
        let ReadSet { leaves, records, next_check, .. } = reads;
        let (view, reader) = (&mut ForHolder(*holder), &mut Present { records, writes, next_check: *next_check });
        let room = &mut CodecSink::<R::Codec, _>::new(value);
        let stop = drive((tree, cursor), view, leaves, reader, room, |word, _, room| {
            shown(*rows, &opened.name, word, room.room.bytes(), visit)
        })?;
        self.end_run(before);
        Ok(Some(stop))
    }

    #[inline(never)]
    fn run_in_past(
        &mut self,
        before: Version,
        visit: &mut impl FnMut(R::Key, R::View<'_>) -> ControlFlow<()>,
    ) -> Result<Option<Stop>, Error> {
        let Self { tx, at: RangeState { opened, cursor, rows, .. }, .. } = self;
        let (Storage::TreeOfWords(tree), Position::Words(cursor)) = (&opened.storage, cursor) else { return Ok(None) };
        let (view, reader) = (&mut AsOf::new(before), &mut Snapshot { table: &opened.name });
        let room = &mut CodecSink::<R::Codec, _>::new(&mut tx.state().arena.value);
        drive((tree, cursor), view, &mut (), reader, room, |word, _, room| {
            shown(*rows, &opened.name, word, room.room.bytes(), visit)
        })
        .map(Some)
    }
}

/// Shows a row.
#[inline(always)]
fn shown<R: Stored>(
    rows: R,
    table: &Name,
    word: u64,
    bytes: &[u8],
    visit: &mut impl FnMut(R::Key, R::View<'_>) -> ControlFlow<()>,
) -> ControlFlow<Stop> {
    let Some(key) = R::Key::from_word(word) else {
        return ControlFlow::Break(Stop::Failed(Error::Key { table: table.get() }));
    };
    match rows.show(rows.part(bytes)) {
        Ok(view) => visit(key, view).map_break(|()| Stop::Enough),
        Err(source) => ControlFlow::Break(Stop::Failed(Error::Codec { table: table.get(), source })),
    }
}
