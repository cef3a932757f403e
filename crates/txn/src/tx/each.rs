//! Rows of a range that are shown one after the other, without a way back to whoever asked for them in between.

use std::ops::ControlFlow;

use drtm_htm::Engine;
use drtm_kv::{Sighting, Version};

use super::{
    Found, Mode, Range,
    range::Position,
    read::{Row, was_found},
};
use crate::{
    Codec, Error, Key, Setting, arena::Arena, catalog::Opened, index::Index, part::Wanted, read_set::ReadSet, room::Of,
    state::TxState, write_set::WriteTarget,
};

/// Why no more rows are shown.
pub(super) enum Stop {
    /// There are none.
    Over,
    /// Whoever sees them has seen enough.
    Enough,
    /// The transaction may have written this one, or has read so much that it has to look at all of it again. Where the values end that it keeps.
    At(u64, Sighting, usize),
    /// It is none of the table's.
    Failed(Error),
}

impl<K: Key, C: Codec, S: Setting, M: Mode> Range<'_, '_, K, C, S, M> {
    /// Shows the rows that follow, one after the other, until there are no more or `see` breaks off. For many rows quicker than to ask for
    /// [each](Self::view_next).
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
    /// use drtm_txn::{Db, Pod, TableDef};
    ///
    /// const PRICES: TableDef<u64, Pod<u64>, drtm_txn::Ordered> = TableDef::ordered("prices");
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
    /// # Ok::<(), drtm_txn::Error>(())
    /// ```
    #[inline]
    pub fn view_each(&mut self, mut see: impl FnMut(K, C::View<'_>) -> ControlFlow<()>) -> Result<(), Error> {
        while let Some(stop) = self.run(&mut see)? {
            match stop {
                Stop::Over => return self.tx.passed(),
                Stop::Enough => return Ok(()),
                Stop::Failed(error) => return Err(error),
                Stop::At(word, seen, end) => {
                    if let Some((key, found, _)) = self.row_apart(word, seen, end, &Wanted::TO_READ)?
                        && self.tx.show::<C, _>(self.opened, found, |view| see(key, view))?.is_break()
                    {
                        return Ok(());
                    }
                }
            }
        }
        while let Some((key, found, _)) = self.advance(&Wanted::TO_READ)? {
            if self.tx.show::<C, _>(self.opened, found, |view| see(key, view))?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Shows rows as long as there is nothing special about them. `None` if there is about the transaction, or about the keys.
    #[inline(always)]
    fn run(&mut self, see: &mut impl FnMut(K, C::View<'_>) -> ControlFlow<()>) -> Result<Option<Stop>, Error> {
        match self.tx.past() {
            Some(before) => self.run_in_past(before, see),
            None if self.tx.is_plain() => self.run_in_present(see),
            None => Ok(None),
        }
    }

    #[inline(never)]
    fn run_in_present(
        &mut self,
        see: &mut impl FnMut(K, C::View<'_>) -> ControlFlow<()>,
    ) -> Result<Option<Stop>, Error> {
        let Self { tx, opened, cursor, .. } = self;
        let (Index::TreeOfWords(tree), Position::Words(cursor)) = (&opened.index, cursor) else { return Ok(None) };
        let TxState {
            reads: ReadSet { leaves, records: reads, next_check, .. },
            arena: Arena { value, values, .. },
            writes,
            holder,
            ..
        } = tx.state();
        let mut stop = Stop::Over;
        let room = &mut Of::<C, _>::new(value);
        tree.advance_each(cursor, *holder, leaves, room, |word, seen, Of { room: value, .. }| {
            let is_time_to_check = reads.len() + writes.len() + 1 >= *next_check;
            if is_time_to_check || writes.may_have(seen.at) {
                stop = Stop::At(word, seen, values.len());
                return ControlFlow::Break(());
            }
            reads.push(seen);
            if !seen.is_present() {
                return ControlFlow::Continue(());
            }
            shown::<K, C, _>(opened, word, value.bytes(), see).map_break(|why| stop = why)
        })?;
        Ok(Some(stop))
    }

    #[inline(never)]
    fn run_in_past(
        &mut self,
        before: Version,
        see: &mut impl FnMut(K, C::View<'_>) -> ControlFlow<()>,
    ) -> Result<Option<Stop>, Error> {
        let Self { tx, opened, cursor, .. } = self;
        let (Index::TreeOfWords(tree), Position::Words(cursor)) = (&opened.index, cursor) else { return Ok(None) };
        let mut stop = Stop::Over;
        let room = &mut Of::<C, _>::new(&mut tx.state().arena.value);
        tree.advance_past_each(cursor, before, room, |word, past, Of { room: value, .. }| {
            let flow = match was_found(opened, past) {
                Ok(Some(_)) => shown::<K, C, _>(opened, word, value.bytes(), see),
                Ok(None) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(Stop::Failed(error)),
            };
            flow.map_break(|why| stop = why)
        })?;
        Ok(Some(stop))
    }

    /// A row of which there is more to be said than what its record has; if its value was to be changed, it was copied behind those that are kept. `None`: there is none.
    #[cold]
    #[inline(never)]
    pub(super) fn row_apart(
        &mut self,
        word: u64,
        seen: Sighting,
        end: usize,
        wanted: &Wanted,
    ) -> Result<Option<(K, Found, WriteTarget)>, Error> {
        let Some(key) = K::from_word(word) else { return Err(Error::Key { table: self.opened.name }) };
        let Row { found: Some(found), record: Some(record) } = self.tx.row_of(seen, wanted, end)? else {
            return Ok(None);
        };
        if let WriteTarget::Written(_) = record {
            self.tx.passed()?;
        }
        Ok(Some((key, found, record)))
    }
}

/// Shows a row.
#[inline(always)]
fn shown<K: Key, C: Codec, E: Engine>(
    opened: &Opened<E>,
    word: u64,
    bytes: &[u8],
    see: &mut impl FnMut(K, C::View<'_>) -> ControlFlow<()>,
) -> ControlFlow<Stop> {
    let Some(key) = K::from_word(word) else {
        return ControlFlow::Break(Stop::Failed(Error::Key { table: opened.name }));
    };
    match C::view(bytes) {
        Ok(view) => see(key, view).map_break(|()| Stop::Enough),
        Err(source) => ControlFlow::Break(Stop::Failed(Error::Codec { table: opened.name, source })),
    }
}
