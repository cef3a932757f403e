//! Inserting keys, and changing a key's entry: changes of one leaf, which is the only node that is
//! locked.

use drtm_htm::{Engine, Waiter};

use super::{
    LeafChange, NodeVersion, Table,
    insert_point::{InsertPoint, Put},
    kind::Kind,
    node::Seen,
};
use crate::{
    Current, Handle, KvError, Placing, ReadEntry, Reaped, Version, Worker,
    record::{Record, Shape},
    store::{heap::Class, lasts::Last, layout::Place},
    table::EntryChange,
};

impl<E: Engine> Table<E> {
    /// Creates a record, which is not in the tree yet.
    #[inline(always)]
    pub(super) fn make<K: Kind>(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
        version: Version,
    ) -> Result<(Shape, Place), KvError> {
        let shape = Shape::of::<K::InRecord>(key, value.len(), self.base.checked)?;
        let memory = worker.allocate(shape.class())?;
        let place = Record::create::<K::InRecord>(self.region(), memory, shape, key, value, version)?;
        Ok((shape, place))
    }

    /// Turns a record that was created, and that no thread has found, back into free memory.
    #[cold]
    pub(super) fn unmake(&self, worker: &mut Worker<E>, shape: Shape, place: Place) -> Result<(), KvError> {
        Record::at(self.region(), place)?.discard(worker.holder());
        worker.free(shape.class(), place.word);
        Ok(())
    }

    /// Puts a new record into the leaf in which the key was missed, or where this worker has
    /// inserted last. `None`: the key does not belong there, there is no room, or the leaf has
    /// changed. Nothing has been done then, and the caller must descend.
    #[inline(never)]
    pub(super) fn put_near<K: Kind, P: Placing>(
        &self,
        worker: &mut Worker<E>,
        missed: Option<NodeVersion>,
        key: K::Key<'_>,
        value: &[u8],
        note: &mut impl FnMut(LeafChange),
    ) -> Result<Option<ReadEntry>, KvError> {
        // For byte strings, a leaf's range does not say which layer it is in.
        if !K::FITS {
            return Ok(None);
        }
        let (at, word) = (self.base.at, K::slice(key, 0));
        let near = missed.map(|leaf| leaf.at.word()).or_else(|| worker.lasts.of(at, word).map(|last| last.leaf));
        let Some((leaf, slot)) = near.and_then(|near| self.gap_at(near, word)) else { return Ok(None) };
        let version = P::first(self.base.floor()?);
        let (shape, place) = self.make::<K>(worker, key, value, version)?;
        match self.put_into((leaf, slot), word, place, version)? {
            Ok(change) => {
                worker.lasts.set(at, Last { leaf: leaf.node.place, word });
                note(change);
                Ok(Some(ReadEntry { at: Handle::of(place), version }))
            }
            Err(_) => {
                self.unmake(worker, shape, place)?;
                Ok(None)
            }
        }
    }

    /// Creates a record and puts it at its insert point. `None`: the key has a record by now.
    pub(super) fn put_new<'t, K: Kind, P: Placing>(
        &'t self,
        worker: &mut Worker<E>,
        mut point: InsertPoint<'t, E>,
        key: K::Key<'_>,
        value: &[u8],
        note: &mut impl FnMut(LeafChange),
    ) -> Result<Option<ReadEntry>, KvError> {
        let before = worker.lasts.of(self.base.at, point.word).map(|last| last.word);
        let mut version = P::first(self.base.floor()?);
        let (shape, place) = self.make::<K>(worker, key, value, version)?;
        let waiter = Waiter::new();
        let done = loop {
            match self.put::<K>(&point, before, key, (place, version), note) {
                Ok(Put::Done(leaf)) => {
                    worker.lasts.set(self.base.at, Last { leaf, word: point.word });
                    return Ok(Some(ReadEntry { at: Handle::of(place), version }));
                }
                Ok(Put::Below(floor)) => {
                    version = P::first(floor);
                    Record::create::<K::InRecord>(self.region(), place.word, shape, key, value, version)?;
                    continue;
                }
                Ok(Put::Retry) => waiter.pause(),
                Err(error) => break Err(error),
            }
            match self.read_to_put::<K, _>(key, Current) {
                Ok(Err(vacancy)) => point = vacancy,
                taken => break taken.map(|_| None),
            }
        };
        self.unmake(worker, shape, place)?;
        done
    }

    fn put<K: Kind>(
        &self,
        point: &InsertPoint<'_, E>,
        before: Option<u64>,
        key: K::Key<'_>,
        (place, version): (Place, Version),
        note: &mut impl FnMut(LeafChange),
    ) -> Result<Put, KvError> {
        if point.link.is_some() {
            return K::part(self, point, key, place.to_link(), version, note);
        }
        if point.leaf.stamp.is_full() {
            return self.put_dividing(point, before, (place, version), note);
        }
        Ok(match self.put_into((point.leaf, point.slot), point.word, place, version)? {
            Ok(change) => {
                note(change);
                Put::Done(point.leaf.node.place)
            }
            Err(put) => put,
        })
    }

    /// Puts a record into a leaf with room, at this slot. Returns the change of the leaf, or what
    /// prevents it.
    #[inline(always)]
    fn put_into(
        &self,
        (leaf, slot): (Seen<'_, E>, usize),
        word: u64,
        place: Place,
        version: Version,
    ) -> Result<Result<LeafChange, Put>, KvError> {
        let record = Record::at(self.region(), place)?;
        let Some(leaf) = leaf.try_lock() else { return Ok(Err(Put::Retry)) };
        if let Some(floor) = self.base.floor_above(version)? {
            return Ok(Err(Put::Below(floor)));
        }
        let count = leaf.count();
        record.unlock();
        leaf.node.insert(count, slot, word, place.to_link());
        Ok(Ok(leaf.release(count + 1)))
    }

    /// Changes the entry that leads to a record, under the leaf's lock, by `change`, which locks
    /// the record.
    pub(super) fn change_entry<K: Kind>(
        &self,
        key: K::Key<'_>,
        at: Handle,
        change: impl for<'l, 'r> FnOnce(&'l Record<'r, E>) -> EntryChange<'l, 'r, E>,
    ) -> Result<Result<Class, Reaped>, KvError> {
        let (waiter, link) = (Waiter::new(), at.place().to_link());
        loop {
            let point = K::insert_point(self, key)?;
            if point.link != Some(link) {
                return Ok(Err(Reaped::Gone));
            }
            let Some(leaf) = point.leaf.try_lock() else {
                waiter.pause();
                continue;
            };
            // The record may have moved since the leaf was read.
            if leaf.node.link(point.slot) != link {
                return Ok(Err(Reaped::Gone));
            }
            let record = Record::at(self.region(), at.place())?;
            let (locked, to) = match change(&record)? {
                Ok(changed) => changed,
                Err(in_the_way) => return Ok(Err(in_the_way)),
            };
            let (class, count) = (locked.class(), leaf.count());
            if let Some(place) = to {
                leaf.node.point(point.slot, place.to_link());
                locked.retire();
                return Ok(Ok(class));
            }
            leaf.node.remove(count, point.slot);
            locked.retire();
            leaf.release(count - 1);
            if count == 1 {
                K::reclaim(self, key)?;
            }
            return Ok(Ok(class));
        }
    }
}
