//! Inserting several rows together.

use super::Exclusive;
use crate::{
    Codec, Config, Error, Key, Table,
    commit::write_set::{Write, WriteOp},
    memory::{
        arena::{ArenaKey, ArenaRange},
        storage::{Expected, KeyRef},
    },
    schema::{catalog::Opened, table::Kind},
    tx::state::TxState,
};

/// The number of rows that are inserted into a table together.
const RUN: usize = 16;

/// A row to insert: its key, and the range of its value among the transaction's values.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    word: u64,
    value: ArenaRange,
}

impl<S: Config> Exclusive<'_, S> {
    pub(crate) fn insert_many<'v, K: Key, C: Codec<Given: 'v>, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        rows: impl IntoIterator<Item = (K, &'v C::Given)>,
    ) -> Result<(), Error> {
        let opened = self.opened(table)?;
        let mut rows = rows.into_iter();
        if !O::ORDERED || !K::FITS || !opened.indexes.are_none() {
            return rows.try_for_each(|(key, value)| self.place(table, &key, value, false));
        }
        loop {
            let mut run = [Row::default(); RUN];
            let mut count = 0;
            for (row, (key, value)) in run.iter_mut().zip(&mut rows) {
                *row = Row { word: key.word(), value: self.keep_value::<C>(opened, value)? };
                count += 1;
            }
            self.insert_run::<O>(opened, &run[..count])?;
            if count < RUN {
                return Ok(());
            }
        }
    }

    /// Inserts these rows, whose values the transaction already keeps.
    #[inline(never)]
    fn insert_run<O: Kind>(&mut self, opened: &Opened<S::Engine>, mut rows: &[Row]) -> Result<(), Error> {
        while let Some((first, behind)) = rows.split_first() {
            match self.insert_together(opened, rows)? {
                0 => {
                    self.place_at::<O>(opened, KeyRef::Word(first.word), first.value, &Expected::Nothing)?;
                    rows = behind;
                }
                made => rows = &rows[made..],
            }
        }
        Ok(())
    }

    /// Inserts the first of these rows, as many as go into one leaf. Returns how many.
    #[inline(always)]
    fn insert_together(&mut self, opened: &Opened<S::Engine>, rows: &[Row]) -> Result<usize, Error> {
        if self.db.ticket.is_taken()
            && let Some(first) = rows.first()
        {
            // The other rows go into the same leaf.
            self.yield_to_ticket(opened, KeyRef::Word(first.word))?;
        }
        let TxState { worker, arena, reads, writes, removed, .. } = self.state();
        let named = rows.iter().map(|row| (row.word, row.value.of(arena.values.bytes())));
        let mut made = rows.iter();
        let count = opened.storage.place_run(
            worker,
            named,
            |seen| {
                if let Some(Row { word, value }) = made.next() {
                    writes.push(Write::made(seen, opened.number, WriteOp::Insert(*value), ArenaKey::Word(*word)));
                    removed.cut(opened.number, KeyRef::Word(*word));
                }
            },
            |shift| reads.follow::<S>(shift),
        )?;
        if count > 0 {
            self.passed()?;
        }
        Ok(count)
    }
}
