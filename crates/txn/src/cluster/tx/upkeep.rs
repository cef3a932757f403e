//! Writing rows of tables that have indexes: the row and its entries, all or nothing.
//!
//! An entry is a row of the index's table, at whichever node has it. Those that go are removed, and
//! those that come are put, in the same transaction. The key of a unique entry that comes must be
//! missing: the guard of that is validated at the commit, so that of two transactions that bring
//! the same entry one fails.

use std::mem;

use drtm_rdma::Fabric;
use smallvec::SmallVec;

use super::ClusterTx;
use crate::{
    Config, Error,
    cluster::state::Op,
    index::{Entries, Entry, RowEntries},
    memory::storage::KeyRef,
    mutation::Mutation,
};

/// Entries of a row, by the numbers of their own rows: mostly one or two.
type Numbers = SmallVec<[u32; 4]>;

impl<F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'_, F, S> {
    /// Changes the entries that a row has in indexes from those of its value to those that it has
    /// after `op`. It is looked up for that, if it has not been.
    pub(super) async fn change_entries(&mut self, row: u32, op: Op) -> Result<(), Error> {
        let number = self.state().rows[row as usize].table;
        if self.worker.indexes_of(number).is_empty() {
            return Ok(());
        }
        self.fetch(&[row]).await?;
        let mut entries = mem::take(&mut self.state().entries);
        let known = self.list_entries(row, op, &mut entries);
        let changed = match known {
            Ok((leaving, coming)) => self.swap_entries(leaving, coming, &entries, number).await,
            Err(error) => Err(error),
        };
        self.state().entries = entries;
        changed
    }

    /// Lists the entries of a row that go, and those that come, as rows of their tables.
    fn list_entries(&mut self, row: u32, op: Op, entries: &mut RowEntries) -> Result<(Numbers, Numbers), Error> {
        let worker = std::rc::Rc::clone(&self.worker);
        let state = self.state();
        let (number, key) = (state.rows[row as usize].table, state.rows[row as usize].key);
        let indexes = worker.indexes_of(number);
        let new = match op {
            Op::Put(value) | Op::Publish(value) => Some(value.of(state.arena.values.bytes())),
            Op::Nothing | Op::Remove => None,
        };
        let key = (key.in_bytes(&state.arena.keys), worker.key_size(number));
        let list = |row: KeyRef<'_>, value: &[u8], into: &mut Entries| {
            indexes.iter().try_for_each(|index| index.list(row, value, into))
        };
        entries.list(list, key, state.value(row), new)?;
        let mut rows_of = |all: &mut dyn Iterator<Item = Entry<'_>>| -> Result<Numbers, Error> {
            let row_of = |entry: Entry<'_>| {
                let mut by = Vec::new();
                let index = worker.index(entry.index).ok_or(Error::OtherDatabase)?;
                let shard = worker.shard_of(entry.index, index.by(entry.key, &mut by)?)?;
                state.row(entry.index, entry.key, shard)
            };
            all.map(row_of).collect()
        };
        Ok((rows_of(&mut entries.leaving())?, rows_of(&mut entries.coming())?))
    }

    /// Removes entries that go, and puts those that come, once it is known that they can.
    async fn swap_entries(
        &mut self,
        leaving: Numbers,
        coming: Numbers,
        entries: &RowEntries,
        table: u16,
    ) -> Result<(), Error> {
        let are_unique: SmallVec<[bool; 4]> = entries.coming().map(|entry| entry.is_unique).collect();
        let mut looked_up = leaving.clone();
        looked_up.extend(coming.iter().zip(&are_unique).filter(|(_, is_unique)| **is_unique).map(|(row, _)| *row));
        self.fetch(&looked_up).await?;
        if let Some(lost) = leaving.iter().find(|row| !self.is_there(**row)) {
            let index = self.state().rows[*lost as usize].table;
            return Err(self.disagreement(index, table).await);
        }
        for (row, is_unique) in coming.iter().zip(&are_unique) {
            if *is_unique && self.is_there(*row) {
                let index = self.state().rows[*row as usize].table;
                return Err(Error::Duplicate { index: self.worker.table_name(index) });
            }
        }
        let state = self.state();
        let mut ops: SmallVec<[(u32, Op); 8]> = SmallVec::new();
        for (row, is_unique) in coming.iter().zip(&are_unique) {
            let value: &[u8] = if *is_unique { &entries.row } else { &[] };
            let kept = state.arena.keep_value(|bytes| {
                bytes.extend_from_slice(value);
                Ok(())
            })?;
            ops.push((*row, Op::Put(kept)));
        }
        if !S::has(Mutation::EntriesLeftByClusters) {
            ops.extend(leaving.iter().map(|row| (*row, Op::Remove)));
        }
        ops.into_iter().for_each(|(row, op)| state.note(row, op));
        Ok(())
    }
}
