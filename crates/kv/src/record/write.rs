//! Writing records: creating, locking, updating and freeing them.

use drtm_htm::{Access, Engine, Word, fence_release};
use drtm_rdma::{OutOfBounds, Region, words_for, write_bytes};

use super::{HEAD, HEADER_WORDS, KEY, Record, STATE, Shape, VERSION};
use crate::{
    Acquire, Holder, Leases, Lend, acquire, lend,
    mutation::{self, Mutation},
    record::{checksum::checksum, keys::Keys},
    store::{
        heap::Class,
        layout::{Head, Place, State, Version},
    },
};

impl<'r, E: Engine> Record<'r, E> {
    /// Takes the record's lock, whichever key the record has. `Err` says what prevents it.
    ///
    /// Most records are free, so the CAS comes first, without a load.
    #[inline(always)]
    pub(crate) fn acquire(&self, holder: Holder, leases: Leases) -> Result<(), Acquire> {
        match self.region.compare_swap(&self.header[STATE], State::FREE.0, holder.word()) {
            Ok(_) => Ok(()),
            Err(found) => self.acquire_slow(State(found), holder, leases),
        }
    }

    #[cold]
    fn acquire_slow(&self, mut seen: State, holder: Holder, leases: Leases) -> Result<(), Acquire> {
        let leases = self.clocked(leases);
        loop {
            match acquire(seen, holder, leases) {
                Acquire::Swap(from) => match self.region.compare_swap(&self.header[STATE], from.0, holder.word()) {
                    Ok(_) => return Ok(()),
                    Err(found) => seen = State(found),
                },
                in_the_way => return Err(in_the_way),
            }
        }
    }

    /// Returns the lease clock that the caller gave, or otherwise the region's.
    fn clocked(&self, leases: Leases) -> Leases {
        match leases {
            Leases::None => Leases::At(self.engine().load(self.region.time())),
            known => known,
        }
    }

    /// Leases the record until a time, or shares a lease that runs. Returns when the lease ends.
    /// `Err` has the transaction that holds the lock.
    pub(crate) fn lease(&self, until: u64, leases: Leases) -> Result<u64, Holder> {
        let (state, leases) = (&self.header[STATE], self.clocked(leases));
        let mut seen = State(self.engine().load(state));
        loop {
            match lend(seen, leases) {
                Lend::Swap(from) => match self.region.compare_swap(state, from.0, State::leased_until(until).0) {
                    Ok(_) => return Ok(until),
                    Err(found) => seen = State(found),
                },
                Lend::Shared(end) => return Ok(end),
                Lend::Locked(holder) => return Err(holder),
            }
        }
    }

    /// [Takes](Self::acquire) the record's lock in an htm transaction.
    #[inline(always)]
    pub(crate) fn acquire_in<A: Access<'r>>(
        &self,
        tx: &mut A,
        holder: Holder,
    ) -> Result<Result<(), Acquire>, A::Abort> {
        let state = &self.header[STATE];
        let seen = State(tx.load(state)?);
        let decided = match acquire(seen, holder, Leases::None) {
            // The time is read only here: an htm transaction that has read it aborts when the time
            // is next published.
            Acquire::Leased(_) => acquire(seen, holder, Leases::At(tx.load(self.region.time())?)),
            decided => decided,
        };
        match decided {
            Acquire::Swap(_) => tx.store(state, holder.word()).map(Ok),
            in_the_way => Ok(Err(in_the_way)),
        }
    }

    /// Locks the record if it is free, whichever key it has. `None`: it is not free.
    #[inline(always)]
    pub(crate) fn try_lock<K: Keys>(&self, holder: Holder) -> Result<Option<Locked<'_, 'r, E>>, OutOfBounds> {
        if self.acquire(holder, Leases::None).is_err() {
            return Ok(None);
        }
        let mut locked = Locked { record: self, version: self.version(), shape: Shape::EMPTY };
        locked.shape = self.shape::<K>(self.head())?;
        Ok(Some(locked))
    }

    /// Returns the record's place.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Releases a lock of this holder. `Err` has the record's state, unchanged, if the holder has
    /// not locked it.
    pub(crate) fn release(&self, holder: Holder) -> Result<(), State> {
        if self.head().incarnation() != self.place.incarnation {
            return Err(State(self.engine().load(&self.header[STATE])));
        }
        // If this holder has locked it, neither the lock nor the incarnation can change.
        match self.engine().compare_exchange(&self.header[STATE], holder.word(), State::FREE.0) {
            Ok(_) => Ok(()),
            Err(found) => Err(State(found)),
        }
    }

    /// Fills memory that no table leads to, and makes a record of it.
    ///
    /// The creator [unlocks](Self::unlock) the record just before a table leads to it, when nothing
    /// can fail any more. Until then, reused memory stays locked, and fresh memory has no handle by
    /// which it could be locked. So a thread with a handle of the memory's last use never gets the
    /// lock, and the creator never waits for it.
    // Not inlined: the copy loops need more registers than the callers can spare.
    #[inline(never)]
    pub(crate) fn create<K: Keys>(
        region: &'r Region<E>,
        word: u64,
        shape: Shape,
        key: K::Key<'_>,
        value: &[u8],
        version: Version,
    ) -> Result<Place, OutOfBounds> {
        let mut record = Self::at(region, Place { word, incarnation: 0 })?;
        record.place.incarnation = record.head().incarnation();
        let engine = region.engine();
        engine.store_relaxed(&record.header[VERSION], version.writing().0);
        fence_release();
        engine.store_relaxed(&record.header[KEY], K::word(key));
        engine.store_relaxed(&record.header[HEAD], shape.head(record.place.incarnation).0);
        if shape.has_lengths() {
            engine.store_relaxed(&record.body(0, 1)?[0], shape.lengths());
            K::write(engine, record.body(1, shape.key_words())?, key);
        }
        let body = record.body(shape.before_value(), shape.sealed_words())?;
        write_bytes(engine, body, value);
        if shape.checked {
            seal(engine, record.header, body, shape, version, value);
        }
        engine.store(&record.header[VERSION], version.0);
        Ok(record.place)
    }

    /// Writes a value that fits into the record, which the caller has locked. Gets the versions and
    /// shapes before and after.
    #[inline(always)]
    pub(super) fn put(
        &self,
        (before, was): (Version, Shape),
        (version, shape): (Version, Shape),
        value: &[u8],
    ) -> Result<(), OutOfBounds> {
        let engine = self.engine();
        let body = self.body(shape.before_value(), shape.sealed_words())?;
        let lengths = if shape != was && shape.has_lengths() { Some(&self.body(0, 1)?[0]) } else { None };
        self.begin_writing(before);
        if shape != was {
            self.reshape(shape, lengths);
        }
        write_bytes(engine, body, value);
        if shape.checked {
            seal(engine, self.header, body, shape, version, value);
        }
        self.end_writing(version);
        Ok(())
    }

    /// Marks the record as being written, for readers.
    #[inline(always)]
    pub(super) fn begin_writing(&self, before: Version) {
        self.engine().store_relaxed(&self.header[VERSION], before.writing().0);
        if !mutation::includes(Mutation::WriteWithoutFence) {
            fence_release();
        }
    }

    /// Stores the new version, which ends the writing.
    #[inline(always)]
    pub(super) fn end_writing(&self, version: Version) {
        self.engine().store(&self.header[VERSION], version.0);
    }

    /// Writes another shape, and the word of lengths if it has one.
    #[cold]
    fn reshape(&self, shape: Shape, lengths: Option<&Word>) {
        let (head, engine) = (self.head(), self.engine());
        engine.store_relaxed(&self.header[HEAD], shape.head(head.incarnation()).with_older(head.older()).0);
        if let Some(lengths) = lengths {
            // The key stays in place: its length is unchanged, and a record that stores its key
            // always has a lengths word.
            engine.store_relaxed(lengths, shape.lengths());
        }
    }

    /// Turns a record that no table leads to, and that was never [unlocked](Self::unlock), back
    /// into free memory. The memory stays locked by this holder.
    pub(crate) fn discard(&self, holder: Holder) {
        let engine = self.engine();
        engine.store(&self.header[STATE], holder.word());
        engine.store(&self.header[VERSION], self.version().removed().writing().0);
        engine.store(&self.header[HEAD], self.head().reborn().0);
    }
}

/// Writes the checksum behind the value, for the version that is about to be stored.
#[cold]
fn seal<E: Engine>(
    engine: &E,
    header: &[Word; HEADER_WORDS],
    body: &[Word],
    shape: Shape,
    version: Version,
    value: &[u8],
) {
    let head = shape.head(Head(engine.load_relaxed(&header[HEAD])).incarnation());
    let sum = checksum(engine.load_relaxed(&header[KEY]), version, head, shape.lengths_if_any(), value);
    engine.store_relaxed(&body[words_for(value.len())], sum);
}

/// A record whose lock is held. Dropping it unlocks the record.
#[derive(Debug)]
pub struct Locked<'l, 'r, E: Engine> {
    pub(super) record: &'l Record<'r, E>,
    pub(super) version: Version,
    pub(super) shape: Shape,
}

impl<E: Engine> Locked<'_, '_, E> {
    /// Returns whether the record has this key, and its value has this shape.
    #[inline(always)]
    pub(crate) fn is_like<K: Keys>(&self, shape: Shape, key: K::Key<'_>) -> bool {
        self.shape == shape && self.record.has_key::<K>(self.record.head(), key).unwrap_or(false)
    }

    pub(crate) fn class(&self) -> Class {
        self.shape.class()
    }

    /// Returns whether a value of this shape fits into the record's memory. Most values have the
    /// previous one's shape.
    #[inline(always)]
    pub(crate) fn has_room_for(&self, shape: Shape) -> bool {
        shape == self.shape || shape.class() == self.shape.class()
    }

    /// Writes a value that fits into the record, as the next version.
    #[inline(always)]
    pub(crate) fn write(self, shape: Shape, value: &[u8]) -> Result<Version, OutOfBounds> {
        let version = self.version.next();
        self.write_as(version, shape, value)?;
        Ok(version)
    }

    /// Writes a value that fits into the record, as this version.
    #[inline(always)]
    fn write_as(self, version: Version, shape: Shape, value: &[u8]) -> Result<(), OutOfBounds> {
        debug_assert!(self.has_room_for(shape));
        self.record.put((self.version, self.shape), (version, shape), value)
    }

    /// Frees the memory. It stays locked and marked as being written until its next use.
    pub(crate) fn retire(self) {
        let (record, engine) = (self.record, self.record.engine());
        engine.store_relaxed(&record.header[VERSION], self.version.next().removed().writing().0);
        fence_release();
        let is_same_again = [Mutation::RetireWithoutIncarnation, Mutation::HintWithoutLeaf].map(mutation::includes);
        if is_same_again == [false; 2] {
            engine.store(&record.header[HEAD], record.head().reborn().0);
        }
        std::mem::forget(self);
    }
}

impl<E: Engine> Drop for Locked<'_, '_, E> {
    #[inline(always)]
    fn drop(&mut self) {
        self.record.unlock();
    }
}
