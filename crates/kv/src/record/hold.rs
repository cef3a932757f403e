//! Operations on a record whose lock a transaction holds.

use std::ops::Range;

use drtm_htm::{Access, Engine, Word};
use drtm_rdma::{OutOfBounds, Region, words_for, write_bytes};

use super::{HEAD, Record, STATE, Shape, VERSION, write::Locked};
use crate::{
    Acquire, Holder, KvError, Leases, Locking, MAX_VALUE, ReadEntry, Reaped, Version, Worker,
    record::keys::Keys,
    store::{
        heap::Class,
        layout::{Head, Place, State},
    },
};

/// Memory for a record that has to move, for a value of one length.
///
/// # Example
///
/// See [`KvTable::reserve`](crate::KvTable::reserve).
#[derive(Debug)]
#[must_use = "memory that is not given back is lost"]
pub struct Reserved {
    pub(crate) word: u64,
    pub(crate) class: Class,
    pub(crate) shape: Shape,
}

impl<'r, E: Engine> Record<'r, E> {
    /// Returns the record as one that the caller has locked.
    #[inline(always)]
    pub(crate) fn held<K: Keys>(&self) -> Result<Locked<'_, 'r, E>, OutOfBounds> {
        // The shape is read before `Locked` exists, since dropping that unlocks the record.
        let shape = self.shape::<K>(self.head())?;
        Ok(Locked { record: self, version: self.version(), shape })
    }

    /// Writes a value that fits into the record, which the caller has locked. Unlocks it.
    #[inline(always)]
    pub(crate) fn write_held<K: Keys>(&self, version: Version, value: &[u8]) -> Result<(), KvError> {
        let (now, was) = (self.version(), self.shape::<K>(self.head())?);
        let written = self.put((now, was), (version, was.with_value(value.len())), value);
        self.unlock();
        Ok(written?)
    }

    /// Locks the record for a holder if it is free, and its place still has this incarnation.
    #[inline(always)]
    pub(crate) fn lock_as_it_is(&self, holder: Holder, leases: Leases) -> Locking {
        let is_it = |head: Head| head.incarnation() == self.place.incarnation;
        if let Err(in_the_way) = self.acquire(holder, leases) {
            return match self.head() {
                head if !is_it(head) => Locking::Gone,
                // Free memory is locked in the name of the holder that has freed it.
                _ if in_the_way == Acquire::Mine && self.version().is_writing() => Locking::Gone,
                head if in_the_way == Acquire::Mine => Locking::Mine { version: self.version(), head },
                _ => Locking::Held(in_the_way),
            };
        }
        let (version, head) = (self.version(), self.head());
        if !is_it(head) || version.is_writing() {
            self.unlock();
            return Locking::Gone;
        }
        Locking::Taken { version, head }
    }

    /// [Locks](Self::lock_as_it_is) the record in an htm transaction.
    #[inline(always)]
    pub(crate) fn lock_in<A: Access<'r>>(&self, tx: &mut A, holder: Holder) -> Result<Locking, A::Abort> {
        let head = Head(tx.load(&self.header[HEAD])?);
        let version = Version(tx.load(&self.header[VERSION])?);
        if head.incarnation() != self.place.incarnation || version.is_writing() {
            return Ok(Locking::Gone);
        }
        Ok(match self.acquire_in(tx, holder)? {
            Ok(()) => Locking::Taken { version, head },
            Err(Acquire::Mine) => Locking::Mine { version, head },
            Err(in_the_way) => Locking::Held(in_the_way),
        })
    }

    /// Writes whole words of a value, behind the first `skipped` ones, in a record that the caller
    /// has locked. Unlocks it.
    #[inline(always)]
    pub(crate) fn write_part_held(&self, version: Version, skipped: usize, part: &[u8]) -> Result<(), KvError> {
        let (now, head) = (self.version(), self.head());
        // Usually the part is the whole value.
        let words = match skipped {
            0 if head.is_plain(part.len()) => self.body(0, words_for(part.len())).ok(),
            _ => self.words_of_part(head, skipped, part.len()),
        };
        let Some(words) = words else {
            return Self::write_part_slow(self.region, self.place, version, skipped, part);
        };
        self.begin_writing(now);
        write_bytes(self.engine(), words, part);
        self.end_writing(version);
        self.unlock();
        Ok(())
    }

    /// Returns the words of a part of a value. `None`: the value has no such part, or a checksum.
    #[inline(always)]
    fn words_of_part(&self, head: Head, skipped: usize, length: usize) -> Option<&'r [Word]> {
        let shape = self.shape_of(head).ok()?;
        if !shape.has_part(8 * skipped, length) || shape.checked {
            return None;
        }
        self.body(shape.before_value() + skipped, words_for(length)).ok()
    }

    /// Returns which bytes of a part of the value, behind the first `skipped` words, differ from
    /// those that the record has, rounded to whole words. `None`: the value has no such part.
    pub(crate) fn changed_bytes(&self, skipped: usize, part: &[u8]) -> Option<Range<usize>> {
        let shape = self.shape_of(self.head()).ok()?;
        if !shape.has_part(8 * skipped, part.len()) {
            return None;
        }
        let words = self.body(shape.before_value() + skipped, words_for(part.len())).ok()?;
        let is_changed = |(word, bytes): (&Word, &[u8])| {
            let now = self.engine().load_relaxed(word);
            match <[u8; 8]>::try_from(bytes) {
                Ok(whole) => now != u64::from_le_bytes(whole),
                // The value ends within the word.
                Err(_) => now.to_le_bytes()[..bytes.len()] != *bytes,
            }
        };
        let mut pairs = words.iter().zip(part.chunks(8));
        let Some(first) = pairs.position(is_changed) else { return Some(0..0) };
        let last = pairs.rposition(is_changed).map_or(first, |more| first + 1 + more);
        Some(8 * first..part.len().min(8 * (last + 1)))
    }

    /// Writes a part of a value that has a checksum, which covers the whole value, so the whole
    /// value is written. Also reports the error if the value has no such part.
    // It makes the `Record` again: one passed by reference would have to be in memory on the fast
    // path, too.
    #[cold]
    #[inline(never)]
    fn write_part_slow(
        region: &'r Region<E>,
        place: Place,
        version: Version,
        skipped: usize,
        part: &[u8],
    ) -> Result<(), KvError> {
        let record = Self::at(region, place)?;
        let written = record.rewrite(version, 8 * skipped, part);
        record.unlock();
        written
    }

    fn rewrite(&self, version: Version, begin: usize, part: &[u8]) -> Result<(), KvError> {
        let (now, shape) = (self.version(), self.shape_of(self.head())?);
        let end = begin + part.len();
        if !shape.has_part(begin, part.len()) {
            return Err(KvError::NotThisPart { length: shape.value, begin, end });
        }
        let mut value = Vec::new();
        self.copy_wanted(shape, &mut value)?;
        value[begin..end].copy_from_slice(part);
        Ok(self.put((now, shape), (version, shape), &value)?)
    }

    /// Releases the lock, which the caller has.
    #[inline(always)]
    pub(crate) fn unlock(&self) {
        self.engine().store(&self.header[STATE], State::FREE.0);
    }

    /// Allocates memory for a value of another length. `None`: the value fits into the record,
    /// which the caller has locked.
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

    /// Memory for a record like this one, which the caller has locked, and its value.
    pub(crate) fn copy_out<K: Keys>(&self, worker: &mut Worker<E>) -> Result<(Reserved, Vec<u8>), KvError> {
        let (shape, mut value) = (self.shape::<K>(self.head())?, Vec::new());
        self.copy_wanted(shape, &mut value)?;
        let class = shape.class();
        Ok((Reserved { word: worker.allocate(class)?, class, shape }, value))
    }

    /// Locks a record of an absent key, if it is unchanged since it was seen.
    pub(crate) fn lock_seen<K: Keys>(
        &self,
        seen: ReadEntry,
        holder: Holder,
    ) -> Result<Result<Locked<'_, 'r, E>, Reaped>, OutOfBounds> {
        let Some(locked) = self.try_lock::<K>(holder)? else {
            let is_it = self.head().incarnation() == seen.at.place().incarnation;
            return Ok(Err(if is_it { Reaped::Busy } else { Reaped::Gone }));
        };
        let is_it = self.head().incarnation() == seen.at.place().incarnation && locked.version == seen.version;
        // Otherwise it is dropped here, and so unlocked.
        Ok(if is_it { Ok(locked) } else { Err(Reaped::Gone) })
    }
}

impl<E: Engine> Worker<E> {
    /// Gives back memory that was not used.
    pub fn give_back(&mut self, unused: Reserved) {
        self.give_back_object(unused.class, unused.word);
    }
}

impl<E: Engine> Locked<'_, '_, E> {
    /// Creates a copy of the record in other memory, with another value.
    pub(crate) fn copy_to<K: Keys>(
        &self,
        to: &Reserved,
        key: K::Key<'_>,
        version: Version,
        value: &[u8],
    ) -> Result<Place, OutOfBounds> {
        let place = Record::create::<K>(self.record.region, to.word, to.shape, key, value, version)?;
        let record = Record::at(self.record.region, place)?;
        // The copy takes over the older versions.
        if self.record.has_past() {
            record.take_over(self.record);
        }
        record.unlock();
        Ok(place)
    }
}
