//! Records whose lock a transaction holds.

use std::ops::Range;

use drtm_htm::Engine;
use drtm_rdma::{OutOfBounds, words_for, write_bytes};

use super::{Record, STATE, Shape, write::Locked};
use crate::{
    KvError, MAX_VALUE, Reaped, Reserved, Sighting, Version, Worker,
    keys::Keys,
    layout::{Place, State},
};

impl<'r, E: Engine> Record<'r, E> {
    /// The record as one that the caller has locked.
    #[inline(always)]
    pub(crate) fn held<K: Keys>(&self) -> Result<Locked<'_, 'r, E>, OutOfBounds> {
        // From its shape on, since dropping it unlocks.
        let shape = self.shape::<K>(self.head())?;
        Ok(Locked { record: self, version: self.version(), shape })
    }

    /// Writes a value of a length for which the record, which the caller has locked, has room. Unlocks it.
    #[inline(always)]
    pub(crate) fn write_held<K: Keys>(&self, version: Version, value: &[u8]) -> Result<(), KvError> {
        let (now, was) = (self.version(), self.shape::<K>(self.head())?);
        let written = self.put((now, was), (version, was.with_value(value.len())), value);
        self.engine().store(&self.header[STATE], State::FREE.0);
        Ok(written?)
    }

    /// Writes whole words of a value, from the one behind the first `skipped` on, in a record that the caller has locked. Unlocks it.
    #[inline(always)]
    pub(crate) fn write_part_held(&self, version: Version, skipped: usize, part: &[u8]) -> Result<(), KvError> {
        let written = self.write_part(version, skipped, part);
        self.engine().store(&self.header[STATE], State::FREE.0);
        written
    }

    #[inline(always)]
    fn write_part(&self, version: Version, skipped: usize, part: &[u8]) -> Result<(), KvError> {
        let (now, shape) = (self.version(), self.shape_of(self.head())?);
        let end = 8 * skipped + part.len();
        // Behind the part there must be nothing, or another word.
        if end > shape.value || (end != shape.value && !part.len().is_multiple_of(8)) {
            return Err(KvError::NotThisPart { length: shape.value, begin: 8 * skipped, end });
        }
        if shape.checked {
            return self.write_part_whole((now, shape), version, 8 * skipped..end, part);
        }
        let words = self.body(shape.before_value() + skipped, words_for(part.len()))?;
        self.write_body(now, version, || write_bytes(self.engine(), words, part));
        Ok(())
    }

    /// Where a checksum has to be made of all of it, all of it is written.
    #[cold]
    fn write_part_whole(
        &self,
        (now, shape): (Version, Shape),
        version: Version,
        range: Range<usize>,
        part: &[u8],
    ) -> Result<(), KvError> {
        let mut value = Vec::new();
        self.copy_wanted(shape, &mut value)?;
        value[range].copy_from_slice(part);
        Ok(self.put((now, shape), (version, shape), &value)?)
    }

    /// Memory for a value of another length, if this record, which the caller has locked, has no room for it.
    pub(crate) fn reserve<K: Keys>(&self, worker: &mut Worker<E>, length: usize) -> Result<Option<Reserved>, KvError> {
        if length > MAX_VALUE {
            return Err(KvError::ValueTooLong { length, longest: MAX_VALUE });
        }
        let now = self.shape::<K>(self.head())?;
        let shape = now.with_value(length);
        if shape == now {
            return Ok(None);
        }
        let class = shape.class();
        if class == now.class() {
            return Ok(None);
        }
        Ok(Some(Reserved { word: worker.allocate(class)?, class, shape }))
    }

    /// Locks a record of a key that is not there, if it is as it was seen.
    pub(crate) fn lock_seen<K: Keys>(
        &self,
        seen: Sighting,
        holder: State,
    ) -> Result<Result<Locked<'_, 'r, E>, Reaped>, OutOfBounds> {
        let Some(locked) = self.try_lock::<K>(holder)? else {
            let is_it = self.head().incarnation() == seen.at.place().incarnation;
            return Ok(Err(if is_it { Reaped::Busy } else { Reaped::Gone }));
        };
        let is_it = self.head().incarnation() == seen.at.place().incarnation && locked.version == seen.version;
        // If not, dropped here, and so unlocked.
        Ok(match is_it {
            // Whoever looks for what it was must find it.
            true if self.has_past() => Err(Reaped::Busy),
            true => Ok(locked),
            false => Err(Reaped::Gone),
        })
    }
}

impl<E: Engine> Locked<'_, '_, E> {
    /// Makes a record in other memory, with another value.
    pub(crate) fn copy_to<K: Keys>(
        &self,
        to: Reserved,
        key: K::Key<'_>,
        version: Version,
        value: &[u8],
    ) -> Result<Place, OutOfBounds> {
        let place = Record::create::<K>(self.record.region, to.word, to.shape, key, value, version)?;
        // What it was is the other record's past from now on.
        if self.record.has_past() {
            Record::at(self.record.region, place)?.take_over(self.record);
        }
        Ok(place)
    }
}
