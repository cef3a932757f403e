//! Inserting, removing, and moving records: changes of one leaf, which is all that is locked.

use drtm_htm::{Engine, Waiter};

use super::{LeafChange, Table, header, node::Locked, search::Spot};
use crate::{
    KvError, Version, Worker, floor,
    heap::Class,
    keys::Inline,
    layout::Place,
    record::{Look, Record, Shape},
};

/// What became of an attempt to put a record into its leaf.
#[derive(Debug)]
pub(super) enum Put {
    Done(LeafChange),
    /// A key was removed meanwhile that had a higher version: start from this one.
    Below(u64),
    /// The leaf has changed, or somebody is changing it.
    Retry,
}

/// What became of an attempt to change the record of a key that is there.
enum Taken {
    Done(Version, Class, Place),
    /// The leaf has changed, or the record is locked. Not to be waited for under the leaf's lock: its holder may want the leaf.
    Retry,
}

impl<E: Engine> Table<E> {
    fn floor(&self) -> Result<u64, KvError> {
        Ok(floor::floor(self.engine(), self.header(header::FLOOR)?))
    }

    /// The floor, if it is above this version.
    pub(super) fn floor_above(&self, version: Version) -> Result<Option<u64>, KvError> {
        Ok(Some(self.floor()?).filter(|floor| *floor > version.number()))
    }

    /// The version with which a record begins.
    pub(super) fn first_version(&self) -> Result<Version, KvError> {
        Ok(Version::new(self.floor()?))
    }

    pub(super) fn insert(
        &self,
        worker: &mut Worker<E>,
        key: u64,
        value: &[u8],
        mut note: impl FnMut(LeafChange),
    ) -> Result<Option<Version>, KvError> {
        let shape = Shape::of::<Inline>(key, value.len())?;
        let mut spot = self.spot(key)?;
        if spot.record.is_some() {
            return Ok(None);
        }
        let memory = worker.allocate(shape.class())?;
        let mut version = self.first_version()?;
        let mut place = Record::create::<Inline>(self.region(), memory, shape, key, value, version)?;
        let waiter = Waiter::new();
        let done = loop {
            match self.put(&spot, key, place, version) {
                Ok(Put::Done(change)) => {
                    note(change);
                    return Ok(Some(version));
                }
                Ok(Put::Below(floor)) => {
                    version = Version::new(floor);
                    place = Record::create::<Inline>(self.region(), memory, shape, key, value, version)?;
                    continue;
                }
                Ok(Put::Retry) => waiter.pause(),
                Err(error) => break Err(error),
            }
            match self.spot(key) {
                Ok(found) if found.record.is_none() => spot = found,
                found => break found.map(|_| None),
            }
        };
        Record::at(self.region(), place)?.discard(worker.lock_state());
        worker.free(shape.class(), memory);
        done
    }

    fn put(&self, spot: &Spot<'_, E>, key: u64, place: Place, version: Version) -> Result<Put, KvError> {
        if spot.leaf.stamp.is_full() {
            return self.put_dividing(key, place, version);
        }
        let Some(leaf) = spot.leaf.try_lock() else { return Ok(Put::Retry) };
        if let Some(floor) = self.floor_above(version)? {
            return Ok(Put::Below(floor));
        }
        let count = leaf.count();
        leaf.node.insert(count, spot.slot, key, place.to_link());
        Ok(Put::Done(leaf.release(count + 1)))
    }

    pub(super) fn remove(
        &self,
        worker: &mut Worker<E>,
        key: u64,
        mut note: impl FnMut(LeafChange),
    ) -> Result<Option<Version>, KvError> {
        let waiter = Waiter::new();
        loop {
            let spot = self.spot(key)?;
            if spot.record.is_none() {
                return Ok(None);
            }
            match self.take_out(worker, &spot, key, &mut note)? {
                Taken::Retry => waiter.pause(),
                Taken::Done(version, class, place) => {
                    worker.free(class, place.word);
                    if spot.leaf.stamp.count() == 1 {
                        self.reclaim(key, &mut note)?;
                    }
                    return Ok(Some(version));
                }
            }
        }
    }

    fn take_out(
        &self,
        worker: &Worker<E>,
        spot: &Spot<'_, E>,
        key: u64,
        note: &mut impl FnMut(LeafChange),
    ) -> Result<Taken, KvError> {
        let Some(leaf) = spot.leaf.try_lock() else { return Ok(Taken::Retry) };
        let (record, place) = self.record_in(&leaf, spot.slot)?;
        let Look::Found(locked) = record.lock::<Inline>(key, worker.lock_state())? else { return Ok(Taken::Retry) };
        let (version, class, count) = (locked.version(), locked.class(), leaf.count());
        floor::raise(self.engine(), self.header(header::FLOOR)?, version);
        leaf.node.remove(count, spot.slot);
        locked.retire();
        note(leaf.release(count - 1));
        Ok(Taken::Done(version, class, place))
    }

    /// The record in a locked leaf's slot, which may have moved since the leaf was looked at.
    fn record_in(&self, leaf: &Locked<'_, E>, slot: usize) -> Result<(Record<'_, E>, Place), KvError> {
        let place = Place::from_link(leaf.node.link(slot));
        Ok((Record::at(self.region(), place)?, place))
    }

    /// Gives a key a value that does not fit where its record is: writes it elsewhere, and lets the leaf point there. The leaf has the same
    /// keys as before, and so the same stamp.
    #[cold]
    pub(super) fn relocate(
        &self,
        worker: &mut Worker<E>,
        key: u64,
        shape: Shape,
        value: &[u8],
    ) -> Result<Option<Version>, KvError> {
        let memory = worker.allocate(shape.class())?;
        let waiter = Waiter::new();
        let moved = loop {
            let spot = match self.spot(key) {
                Ok(spot) if spot.record.is_some() => spot,
                gone => break gone.map(|_| None),
            };
            match self.move_record(worker, &spot, key, memory, shape, value) {
                Ok(Taken::Retry) => waiter.pause(),
                Ok(Taken::Done(version, class, place)) => {
                    worker.free(class, place.word);
                    return Ok(Some(version));
                }
                Err(error) => break Err(error),
            }
        };
        // Memory that was used before is still as it was freed, and fresh memory is still fresh.
        worker.free(shape.class(), memory);
        moved
    }

    fn move_record(
        &self,
        worker: &Worker<E>,
        spot: &Spot<'_, E>,
        key: u64,
        memory: u64,
        shape: Shape,
        value: &[u8],
    ) -> Result<Taken, KvError> {
        let Some(leaf) = spot.leaf.try_lock() else { return Ok(Taken::Retry) };
        let (record, place) = self.record_in(&leaf, spot.slot)?;
        let Look::Found(locked) = record.lock::<Inline>(key, worker.lock_state())? else { return Ok(Taken::Retry) };
        let (version, class) = (locked.version().next(), locked.class());
        let moved = Record::create::<Inline>(self.region(), memory, shape, key, value, version)?;
        leaf.node.point(spot.slot, moved.to_link());
        locked.retire();
        // Dropping the lock leaves the stamp as it was.
        Ok(Taken::Done(version, class, place))
    }
}
