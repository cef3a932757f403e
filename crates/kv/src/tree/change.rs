//! Inserting, removing, and moving records: changes of one leaf, which is all that is locked.

use drtm_htm::{Engine, Waiter, Word};

use super::{
    LeafChange, NodeVersion, Table, header,
    kind::Kind,
    lasts::Last,
    node::{Locked, Seen},
    search::Spot,
};
use crate::{
    Handle, KvError, ReadEntry, Version, Worker, floor,
    heap::Class,
    layout::Place,
    record::{Look, Record, Shape},
};

/// What became of an attempt to put a record into its leaf.
#[derive(Debug)]
pub enum Put {
    /// It is in the leaf at this place.
    Done(u64),
    /// A key was removed meanwhile that had a higher version: start from this one.
    Below(u64),
    /// The leaf has changed, or somebody is changing it.
    Retry,
}

/// What became of an attempt to change the record of a key that is there.
enum Taken {
    Done(Version, Class, Place),
    /// It is another key's record, and there is no such key.
    Absent,
    /// The leaf has changed, or the record is locked. Not to be waited for under the leaf's lock: its holder may want the leaf.
    Retry,
}

impl<E: Engine> Table<E> {
    /// The floor, if it is above this version.
    #[inline(always)]
    pub(super) fn floor_above(&self, version: Version) -> Result<Option<u64>, KvError> {
        Ok(floor::above(self.engine(), self.header(header::FLOOR)?, version))
    }

    /// The version with which a record begins.
    pub(super) fn first_version(&self) -> Result<Version, KvError> {
        Ok(Version::new(floor::floor(self.engine(), self.header(header::FLOOR)?)))
    }

    pub(super) fn insert<K: Kind>(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
    ) -> Result<Option<Version>, KvError> {
        let mut new = self.put_near::<K>(worker, None, key, value, Version::new, &mut |_| ())?;
        if new.is_none() {
            let Some(spot) = self.vacancy::<K>(key)? else { return Ok(None) };
            new = self.put_new::<K>(worker, spot, key, value, Version::new, &mut |_| ())?;
        }
        Ok(new.map(|new| new.version))
    }

    /// Makes a record that is to be put somewhere. It has the version that `first` makes of the lowest number that it can have.
    #[inline(always)]
    fn make<K: Kind>(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
        first: impl Fn(u64) -> Version,
        floor: &Word,
    ) -> Result<(Shape, Place, Version), KvError> {
        let version = first(floor::floor(self.engine(), floor));
        let (shape, place) = self.make_as::<K>(worker, key, value, version)?;
        Ok((shape, place, version))
    }

    /// The same with this version.
    #[inline(always)]
    pub(super) fn make_as<K: Kind>(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
        version: Version,
    ) -> Result<(Shape, Place), KvError> {
        let shape = Shape::of::<K::Kept>(key, value.len(), self.checked)?;
        let memory = worker.allocate(shape.class())?;
        let place = Record::create::<K::Kept>(self.region(), memory, shape, key, value, version)?;
        Ok((shape, place))
    }

    /// Turns a record that was made, and that nobody has learned of, back into free memory.
    #[cold]
    pub(super) fn unmake(&self, worker: &mut Worker<E>, shape: Shape, place: Place) -> Result<(), KvError> {
        Record::at(self.region(), place)?.discard(worker.holder());
        worker.free(shape.class(), place.word);
        Ok(())
    }

    /// Puts a new record into the leaf in which the key was missed, or where this worker has put one last, if its key belongs there, and there is room. `None`: it is
    /// for others to find out what to do, and nothing has been done.
    #[inline(never)]
    pub(super) fn put_near<K: Kind>(
        &self,
        worker: &mut Worker<E>,
        missed: Option<NodeVersion>,
        key: K::Key<'_>,
        value: &[u8],
        first: impl Fn(u64) -> Version,
        note: &mut impl FnMut(LeafChange),
    ) -> Result<Option<ReadEntry>, KvError> {
        let word = K::slice(key, 0);
        let near = missed.map(|leaf| leaf.at.word()).or_else(|| worker.lasts.of(self.at, word).map(|last| last.leaf));
        let Some((leaf, slot)) = near.and_then(|near| K::gap_at(self, near, key)) else { return Ok(None) };
        let floor = self.header(header::FLOOR)?;
        let (shape, place, version) = self.make::<K>(worker, key, value, first, floor)?;
        match self.put_into((leaf, slot), word, &Record::at(self.region(), place)?, version, floor) {
            Ok(change) => {
                worker.lasts.set(self.at, Last { leaf: leaf.node.place, word });
                note(change);
                Ok(Some(ReadEntry { at: Handle::of(place), version }))
            }
            Err(_) => {
                self.unmake(worker, shape, place)?;
                Ok(None)
            }
        }
    }

    /// Puts a new record where its key would be, unless the key has one by now. It has the version that `first` makes of the lowest number that it can have.
    pub(super) fn put_new<'t, K: Kind>(
        &'t self,
        worker: &mut Worker<E>,
        mut spot: Spot<'t, E>,
        key: K::Key<'_>,
        value: &[u8],
        first: impl Fn(u64) -> Version,
        note: &mut impl FnMut(LeafChange),
    ) -> Result<Option<ReadEntry>, KvError> {
        let before = worker.lasts.of(self.at, spot.word).map(|last| last.word);
        let floor = self.header(header::FLOOR)?;
        let (shape, place, mut version) = self.make::<K>(worker, key, value, &first, floor)?;
        let waiter = Waiter::new();
        let done = loop {
            match self.put::<K>(&spot, before, key, (place, version), floor, note) {
                Ok(Put::Done(leaf)) => {
                    worker.lasts.set(self.at, Last { leaf, word: spot.word });
                    return Ok(Some(ReadEntry { at: Handle::of(place), version }));
                }
                Ok(Put::Below(floor)) => {
                    version = first(floor);
                    Record::create::<K::Kept>(self.region(), place.word, shape, key, value, version)?;
                    continue;
                }
                Ok(Put::Retry) => waiter.pause(),
                Err(error) => break Err(error),
            }
            match self.vacancy::<K>(key) {
                Ok(Some(vacancy)) => spot = vacancy,
                taken => break taken.map(|_| None),
            }
        };
        self.unmake(worker, shape, place)?;
        done
    }

    fn put<K: Kind>(
        &self,
        spot: &Spot<'_, E>,
        before: Option<u64>,
        key: K::Key<'_>,
        (place, version): (Place, Version),
        floor: &Word,
        note: &mut impl FnMut(LeafChange),
    ) -> Result<Put, KvError> {
        if spot.link.is_some() {
            return K::part(self, spot, key, place.to_link(), version, note);
        }
        if spot.leaf.stamp.is_full() {
            return self.put_dividing(spot, before, (place, version), note);
        }
        let record = Record::at(self.region(), place)?;
        Ok(match self.put_into((spot.leaf, spot.slot), spot.word, &record, version, floor) {
            Ok(change) => {
                note(change);
                Put::Done(spot.leaf.node.place)
            }
            Err(put) => put,
        })
    }

    /// Puts a record into a leaf with room, at the slot where its key would be. Tells what that has done, or what is in the way.
    #[inline(always)]
    fn put_into(
        &self,
        (leaf, slot): (Seen<'_, E>, usize),
        word: u64,
        record: &Record<'_, E>,
        version: Version,
        floor: &Word,
    ) -> Result<LeafChange, Put> {
        let Some(leaf) = leaf.try_lock() else { return Err(Put::Retry) };
        if let Some(floor) = floor::above(self.engine(), floor, version) {
            return Err(Put::Below(floor));
        }
        let count = leaf.count();
        record.unlock();
        leaf.node.insert(count, slot, word, record.place().to_link());
        Ok(leaf.release(count + 1))
    }

    pub(super) fn remove<K: Kind>(&self, worker: &mut Worker<E>, key: K::Key<'_>) -> Result<Option<Version>, KvError> {
        let waiting = self.patience.begin();
        loop {
            let spot = K::spot(self, key)?;
            if spot.link.is_none() {
                return Ok(None);
            }
            match self.take_out::<K>(worker, &spot, key)? {
                Taken::Retry => waiting.pause()?,
                Taken::Absent => return Ok(None),
                Taken::Done(version, class, place) => {
                    worker.free(class, place.word);
                    if spot.leaf.stamp.count() == 1 {
                        K::reclaim(self, key)?;
                    }
                    return Ok(Some(version));
                }
            }
        }
    }

    fn take_out<K: Kind>(&self, worker: &Worker<E>, spot: &Spot<'_, E>, key: K::Key<'_>) -> Result<Taken, KvError> {
        let Some(leaf) = spot.leaf.try_lock() else { return Ok(Taken::Retry) };
        let (record, place) = self.record_in(&leaf, spot.slot)?;
        let locked = match record.lock::<K::Kept>(key, worker.holder())? {
            Look::Found(locked) => locked,
            Look::Other if !K::FITS => return Ok(Taken::Absent),
            _ => return Ok(Taken::Retry),
        };
        let (version, class, count) = (locked.version(), locked.class(), leaf.count());
        floor::raise(self.engine(), self.header(header::FLOOR)?, version);
        leaf.node.remove(count, spot.slot);
        locked.retire();
        leaf.release(count - 1);
        Ok(Taken::Done(version, class, place))
    }

    /// The record in a locked leaf's slot, which may have moved since the leaf was looked at.
    fn record_in(&self, leaf: &Locked<'_, E>, slot: usize) -> Result<(Record<'_, E>, Place), KvError> {
        let place = Place::from_link(leaf.node.link(slot));
        Ok((Record::at(self.region(), place)?, place))
    }
}
