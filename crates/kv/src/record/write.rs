//! Writing records: making them, locking them, giving them another value, freeing their memory.

use drtm_htm::{Access, Engine, Word, fence_release};
use drtm_rdma::{OutOfBounds, Region, words_for, write_bytes};

use super::{HEAD, HEADER_WORDS, KEY, Record, STATE, Shape, VERSION};
use crate::{
    Acquire, Holder, Leases, Lend, acquire,
    checksum::checksum,
    heap::Class,
    keys::Keys,
    layout::{Head, Place, State, Version},
    lend,
    mutation::{self, Mutation},
};

impl<'r, E: Engine> Record<'r, E> {
    /// Takes the record's lock, whichever key the record has. `Err`: what is in the way.
    ///
    /// Most records are free, so that the swap comes first, without a look at the word before.
    #[inline(always)]
    pub(crate) fn acquire(&self, holder: Holder, leases: Leases) -> Result<(), Acquire> {
        match self.engine().compare_exchange(&self.header[STATE], State::FREE.0, holder.word()) {
            Ok(_) => Ok(()),
            Err(found) => self.acquire_slow(State(found), holder, leases),
        }
    }

    #[cold]
    fn acquire_slow(&self, mut seen: State, holder: Holder, leases: Leases) -> Result<(), Acquire> {
        let leases = self.clocked(leases);
        loop {
            match acquire(seen, holder, leases) {
                Acquire::Swap(from) => {
                    match self.engine().compare_exchange(&self.header[STATE], from.0, holder.word()) {
                        Ok(_) => return Ok(()),
                        Err(found) => seen = State(found),
                    }
                }
                in_the_way => return Err(in_the_way),
            }
        }
    }

    /// What a caller knows about leases, or else what the region says.
    fn clocked(&self, leases: Leases) -> Leases {
        match leases {
            Leases::None => Leases::At(self.engine().load(self.region.time())),
            known => known,
        }
    }

    /// Leases the record until a time, or shares a lease that runs. Gives when it ends. `Err`: the
    /// transaction that has the record locked.
    pub(crate) fn lease(&self, until: u64, leases: Leases) -> Result<u64, Holder> {
        let (state, leases) = (&self.header[STATE], self.clocked(leases));
        let mut seen = State(self.engine().load(state));
        loop {
            match lend(seen, leases) {
                Lend::Swap(from) => match self.engine().compare_exchange(state, from.0, State::leased_until(until).0) {
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
            // Read only here, since a region that has read the time ends when it is published.
            Acquire::Leased(_) => acquire(seen, holder, Leases::At(tx.load(self.region.time())?)),
            decided => decided,
        };
        match decided {
            Acquire::Swap(_) => tx.store(state, holder.word()).map(Ok),
            in_the_way => Ok(Err(in_the_way)),
        }
    }

    /// Locks the record if it is free, whosever it is.
    #[inline(always)]
    pub(crate) fn try_lock<K: Keys>(&self, holder: Holder) -> Result<Option<Locked<'_, 'r, E>>, OutOfBounds> {
        if self.acquire(holder, Leases::None).is_err() {
            return Ok(None);
        }
        let mut locked = Locked { record: self, version: self.version(), shape: Shape::EMPTY };
        locked.shape = self.shape::<K>(self.head())?;
        Ok(Some(locked))
    }

    /// Where the record is.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Gives up a lock that this holder has [kept](Locked::keep). Otherwise tells the record's
    /// state, which is as it was.
    pub(crate) fn release(&self, holder: Holder) -> Result<(), State> {
        if self.head().incarnation() != self.place.incarnation {
            return Err(State(self.engine().load(&self.header[STATE])));
        }
        // If it is the holder's, it stays so, and so does the incarnation.
        match self.engine().compare_exchange(&self.header[STATE], holder.word(), State::FREE.0) {
            Ok(_) => Ok(()),
            Err(found) => Err(State(found)),
        }
    }

    /// Fills memory that no table leads to, and makes a record of it. Its maker
    /// [unlocks](Self::unlock) it just before a table leads to it, when nothing can fail any more:
    /// used memory stays locked until then, and fresh memory has no handle by which it could be
    /// locked. So a late caller with a handle of the memory's last use never gets the lock, and
    /// the maker never has to wait for it.
    // By itself: the ways to copy a value need more registers than what is around them can spare.
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

    /// Writes a value for which the record, which the caller has locked, has room: instead of one
    /// of some version and shape.
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

    /// From here on, whoever looks at the record knows that it is being written.
    #[inline(always)]
    pub(super) fn begin_writing(&self, before: Version) {
        self.engine().store_relaxed(&self.header[VERSION], before.writing().0);
        if !mutation::includes(Mutation::WriteWithoutFence) {
            fence_release();
        }
    }

    /// It has been written.
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
            // The key stays where it is: its length has not changed, and it had a lengths word if
            // it is kept.
            engine.store_relaxed(lengths, shape.lengths());
        }
    }

    /// Turns a record that no table leads to, and that was never [unlocked](Self::unlock), back
    /// into free memory. That stays locked, in this holder's name.
    pub(crate) fn discard(&self, holder: Holder) {
        let engine = self.engine();
        engine.store(&self.header[STATE], holder.word());
        engine.store(&self.header[VERSION], self.version().removed().writing().0);
        engine.store(&self.header[HEAD], self.head().reborn().0);
    }
}

/// Writes the checksum behind the value, for the version that is about to be announced.
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

/// A record whose lock is held. Dropped, it is unlocked as it was.
#[derive(Debug)]
pub struct Locked<'l, 'r, E: Engine> {
    pub(super) record: &'l Record<'r, E>,
    pub(super) version: Version,
    pub(super) shape: Shape,
}

impl<E: Engine> Locked<'_, '_, E> {
    /// Whether it is this key's, and its value has this shape.
    #[inline(always)]
    pub(crate) fn is_like<K: Keys>(&self, shape: Shape, key: K::Key<'_>) -> bool {
        self.shape == shape && self.record.has_key::<K>(self.record.head(), key).unwrap_or(false)
    }

    pub(crate) fn class(&self) -> Class {
        self.shape.class()
    }

    /// Whether a value of this shape has room where the record is. Most have the shape of the one
    /// before.
    #[inline(always)]
    pub(crate) fn has_room_for(&self, shape: Shape) -> bool {
        shape == self.shape || shape.class() == self.shape.class()
    }

    /// Writes a value for which the record has room, as the next version.
    #[inline(always)]
    pub(crate) fn write(self, shape: Shape, value: &[u8]) -> Result<Version, OutOfBounds> {
        let version = self.version.next();
        self.write_as(version, shape, value)?;
        Ok(version)
    }

    /// Writes a value for which the record has room, as this version.
    #[inline(always)]
    fn write_as(self, version: Version, shape: Shape, value: &[u8]) -> Result<(), OutOfBounds> {
        debug_assert!(self.has_room_for(shape));
        self.record.put((self.version, self.shape), (version, shape), value)
    }

    /// Makes the memory free. It stays locked, and marked as being written, until its next use.
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
