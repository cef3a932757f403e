//! Inserting several ascending keys: into the leaf where the same worker has inserted last, behind
//! all its keys, under one lock.

use drtm_htm::Engine;

use super::{LeafChange, Table, Tree, node::Seen};
use crate::{
    Handle, KvError, ReadEntry, Version, Worker,
    record::{Record, keys::Inline},
    store::{
        bounds::RUN,
        lasts::Last,
        layout::{FANOUT, Place},
    },
};

/// A record that was created for a run, and that no thread has found.
type Made = (u64, Place);

const NOTHING: Made = (0, Place { word: 0, incarnation: 0 });

impl<E: Engine> Tree<E> {
    /// Creates records, like [`place`](crate::KvTable::place), for the first of some ascending
    /// keys. These keys belong to the leaf where this worker has inserted last in this tree, behind
    /// all its keys. Returns how many records were created, or zero if this is not possible at
    /// once. Calls `made` with each.
    ///
    /// # Errors
    ///
    /// Like [`insert`](crate::KvTable::insert). None of the keys has a record then.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{ForHolder, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// let rows = [(2, &b"two"[..]), (3, b"three"), (4, b"four")];
    /// assert_eq!(tree.place_run(&mut worker, rows, |_| (), |_| ())?, 0, "it has inserted nothing yet");
    /// tree.place::<ForHolder>(&mut worker, 1, b"one", None, |_| ())?;
    /// let mut made = Vec::new();
    /// assert_eq!(tree.place_run(&mut worker, rows, |seen| made.push(seen), |_| ())?, 3);
    /// assert!(made.len() == 3 && !made[0].is_present(), "as long as they are not published");
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[inline]
    pub fn place_run<'v>(
        &self,
        worker: &mut Worker<E>,
        rows: impl IntoIterator<Item = (u64, &'v [u8])>,
        made: impl FnMut(ReadEntry),
        note: impl FnOnce(LeafChange),
    ) -> Result<usize, KvError> {
        let removed = |number| Version::new(number).removed();
        let count = self.table.put_run(worker, rows.into_iter(), removed, made, note)?;
        if count > 0 {
            self.table.base.count(worker, count as i64)?;
        }
        Ok(count)
    }
}

impl<E: Engine> Table<E> {
    #[inline(always)]
    fn put_run<'v>(
        &self,
        worker: &mut Worker<E>,
        rows: impl Iterator<Item = (u64, &'v [u8])>,
        first: impl Fn(u64) -> Version,
        mut made: impl FnMut(ReadEntry),
        note: impl FnOnce(LeafChange),
    ) -> Result<usize, KvError> {
        let mut rows = rows.peekable();
        let Some((key, _)) = rows.peek() else { return Ok(0) };
        let Some(last) = worker.lasts.of(self.base.at, *key) else { return Ok(0) };
        let Some((leaf, high, mut before)) = self.end_at(last.leaf, *key) else { return Ok(0) };
        let room = FANOUT.saturating_sub(leaf.stamp.count());
        // One version for all, since no reader can have seen any of them.
        let version = first(self.base.floor()?);
        let mut run = [NOTHING; RUN];
        let mut count = 0;
        for (slot, (key, value)) in run.iter_mut().take(room).zip(rows) {
            if key > high || key <= before {
                break;
            }
            match self.make::<Inline>(worker, key, value, version) {
                Ok((_, place)) => *slot = (key, place),
                Err(error) => {
                    self.unmake_run(worker, &run[..count])?;
                    return Err(error);
                }
            }
            (count, before) = (count + 1, key);
        }
        let run = &run[..count];
        if count == 0 {
            return Ok(0);
        }
        let Some(locked) = leaf.try_lock() else { return self.unmake_run(worker, run).map(|()| 0) };
        if self.base.floor_above(version)?.is_some() {
            drop(locked);
            return self.unmake_run(worker, run).map(|()| 0);
        }
        let end = locked.count();
        for ((key, place), slot) in run.iter().zip(end..) {
            Record::at(self.region(), *place)?.unlock();
            locked.node.set(slot, *key, place.to_link());
            made(ReadEntry { at: Handle::of(*place), version });
        }
        note(locked.release(end + count));
        worker.lasts.set(self.base.at, Last { leaf: leaf.node.place, word: before });
        Ok(count)
    }

    /// Returns the leaf at this place, the highest key that belongs to it, and its last key.
    /// `None`: this key does not belong behind the leaf's last key, or the leaf is full.
    #[inline(always)]
    fn end_at(&self, place: u64, key: u64) -> Option<(Seen<'_, E>, u64, u64)> {
        let leaf = self.leaf_at(place, key).ok()??;
        let (node, count) = (leaf.node, leaf.stamp.count());
        let last = node.key(count.checked_sub(1)?.min(FANOUT - 1));
        let high = node.high();
        (last < key && !leaf.stamp.is_full() && node.still(leaf.stamp)).then_some((leaf, high, last))
    }

    /// Turns records that were created, and that no thread has found, back into free memory.
    #[cold]
    fn unmake_run(&self, worker: &mut Worker<E>, run: &[Made]) -> Result<(), KvError> {
        run.iter().try_for_each(|(_, place)| {
            let record = Record::at(self.region(), *place)?;
            let shape = record.shape::<Inline>(record.head())?;
            self.unmake(worker, shape, *place)
        })
    }
}
