//! Inserting, removing, and moving records.

use std::hint::cold_path;

use drtm_htm::{Access, Engine, Outcome, Policy};

use super::{
    BucketChange, BucketVersion, Table,
    bucket::{self, Change},
    chain::{Match, Room, plainly},
    header,
    segments::Bucket,
};
use crate::{
    Current, GuardChange, Handle, KvError, ReadEntry, Turn, Version, Worker, floor,
    heap::Class,
    keys::Keys,
    layout::Place,
    record::{Look, Record, Shape, WholeKey},
    room::Nowhere,
};

/// What became of an attempt to put a record into a chain.
enum Put {
    /// It is there: the bucket was like this before.
    Done(BucketVersion),
    /// The key is there.
    Exists,
    /// Another key has the same word, perhaps: its record must be looked at, under the lock.
    LookAlike,
    /// There is no free slot.
    Full,
    /// The chain goes on in a bucket that this handle has not come to before, or that is not there; or a turn is to be counted.
    Unknown,
    /// A key was removed meanwhile that had a higher version: start from this one.
    Below(u64),
    /// The chain is not the key's any more, or somebody is changing it.
    Retry,
    Failed(KvError),
}

impl<E: Engine> Table<E> {
    /// Locks the main bucket of a hash. Gives its number too.
    pub(super) fn lock_chain(&self, hash: u64) -> Result<(u64, &Bucket), KvError> {
        let engine = self.engine();
        let waiting = self.patience.begin();
        let mut number = self.first_guess(hash)?;
        let mut since = self.turn();
        loop {
            let Some(main) = self.main.get(self.region(), number)? else {
                number = self.split_off(number)?;
                continue;
            };
            // If it is still the right one when the lock is had, it will stay so.
            let seen = bucket::seen(engine, main);
            match self.elsewhere(main, number, hash)? {
                Some(elsewhere) => number = elsewhere,
                None if bucket::try_lock(engine, main, seen) => {
                    if self.is_within(since) {
                        return Ok((number, main));
                    }
                    // Its version may have come round in between.
                    cold_path();
                    self.release(main);
                    since = self.turn();
                }
                None => waiting.pause()?,
            }
        }
    }

    /// Unlocks a chain, and gives back what it does not need any more.
    pub(super) fn unlock_chain(&self, main: &Bucket, emptied: Vec<u64>) {
        self.release(main);
        self.free_overflows(emptied);
    }

    /// Unlocks a main bucket, which is one version on then.
    #[inline(always)]
    pub(super) fn release(&self, main: &Bucket) {
        let turn_over = || {
            self.store.turn_over();
        };
        plainly(self.engine(), |tx| Change(main).release(tx, turn_over));
    }

    fn floor(&self) -> Result<u64, KvError> {
        Ok(floor::floor(self.engine(), self.header(header::FLOOR)?))
    }

    /// Puts a new record into its chain, unless the key has one: none if its bucket is still what it was when it was `missed`. It has the version that `first` makes of
    /// the lowest number that it can have. Tells what that has done to buckets.
    pub(super) fn put_new<K: Keys>(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
        mut missed: Option<(BucketVersion, Turn)>,
        first: impl Fn(u64) -> Version,
        mut note: impl FnMut(BucketChange),
    ) -> Result<Option<ReadEntry>, KvError> {
        let shape = Shape::of::<K>(key, value.len(), self.checked)?;
        let memory = worker.allocate(shape.class())?;
        let mut version = first(self.floor()?);
        let mut place = Record::create::<K>(self.region(), memory, shape, key, value, version)?;
        let waiting = self.patience.begin();
        let mut in_region = true;
        let done = loop {
            let tried = match missed.take() {
                Some(missed) => self.put_where_missed::<K>(key, missed, place, version),
                None => Ok(None),
            };
            let tried = match tried {
                Ok(None) if in_region => self.put_in_htm::<K>(worker, key, place, version),
                tried => tried,
            };
            let put = tried.and_then(|put| put.map_or_else(|| self.put_under_lock::<K>(key, place, version), Ok));
            match put.unwrap_or_else(Put::Failed) {
                Put::Done(before) => {
                    note(GuardChange { before, after: before.next(), split_off: None });
                    let counted = self.count(worker, 1)?;
                    self.grow_if_full::<K>(counted, note)?;
                    return Ok(Some(ReadEntry { at: Handle::of(place), version }));
                }
                Put::Exists => break Ok(None),
                Put::Failed(error) => break Err(error),
                Put::Below(floor) => {
                    cold_path();
                    version = first(floor);
                    place = Record::create::<K>(self.region(), memory, shape, key, value, version)?;
                }
                // What an htm transaction cannot do, the lock's holder can.
                Put::LookAlike | Put::Full | Put::Unknown => in_region = false,
                Put::Retry => {
                    if let Err(error) = waiting.pause() {
                        break Err(error);
                    }
                }
            }
        };
        cold_path();
        Record::at(self.region(), place)?.discard(worker.holder());
        worker.free(shape.class(), memory);
        done
    }

    /// Puts a record into its chain in a hardware region. `None` where there is none, or it gave up.
    #[inline(always)]
    fn put_in_htm<K: Keys>(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        place: Place,
        version: Version,
    ) -> Result<Option<Put>, KvError> {
        if !self.engine().has_regions() {
            return Ok(None);
        }
        let word = K::word(key);
        let hash = K::hash(word);
        let number = self.first_guess(hash)?;
        let (main, floor) = (self.main_bucket(number)?, self.header(header::FLOOR)?);
        let record = Record::at(self.region(), place)?;
        let outcome = worker.htm.attempt(Policy::DBX, |tx| {
            if Change(main).is_locked(tx)? {
                return Ok(Put::Retry);
            }
            match Change(main).depth(tx)? {
                Some(depth) if self.numbering.bucket(hash, depth) == number => {}
                _ => return Ok(Put::Retry),
            }
            if Change(main).ends_quarter(tx)? {
                return Ok(Put::Unknown);
            }
            let floor = tx.load(floor)?;
            if floor > version.number() {
                return Ok(Put::Below(floor));
            }
            let mut matches = 0;
            let put = match self.survey_in_region::<K, _>(tx, main, word, |_| matches += 1)? {
                Err(_) => Put::Unknown,
                Ok(_) if matches > 0 && K::FITS => Put::Exists,
                Ok(_) if matches > 0 => Put::LookAlike,
                Ok(Room::Behind(_)) => Put::Full,
                Ok(Room::Slot(bucket, slot)) => {
                    record.unlock_in(tx)?;
                    Change(bucket).fill(tx, slot, word, place)?;
                    let version = Change(main).version(tx)?;
                    Change(main).release(tx, || ())?;
                    Put::Done(BucketVersion { at: self.main.place(number), version })
                }
            };
            Ok(put)
        });
        Ok(match outcome {
            Outcome::Committed(put) => Some(put),
            Outcome::Fallback(_) => None,
        })
    }

    /// Puts a record into the bucket in which its key was missed, if that is still as it was, and has room: then nobody need look again whether the key is there. `None`
    /// otherwise.
    #[inline(always)]
    fn put_where_missed<K: Keys>(
        &self,
        key: K::Key<'_>,
        (missed, since): (BucketVersion, Turn),
        place: Place,
        version: Version,
    ) -> Result<Option<Put>, KvError> {
        let (engine, main) = (self.engine(), self.region().array(missed.at)?);
        let seen = bucket::seen(engine, main);
        let empty = plainly(engine, |tx| Change(main).empty(tx));
        let record = Record::at(self.region(), place)?;
        // With the lock, it is what it was seen to be: whoever has changed it has left another version.
        if empty == 0 || seen.version() != missed.version || !bucket::try_lock(engine, main, seen) {
            return Ok(None);
        }
        // Unless that version has come round.
        if !self.is_within(since) {
            cold_path();
            self.release(main);
            return Ok(None);
        }
        let put = self.floor().map(|floor| {
            if floor > version.number() {
                return Put::Below(floor);
            }
            record.unlock();
            let word = K::word(key);
            let slot = bucket::first_of(empty, self.line_of::<K>(word));
            plainly(engine, |tx| Change(main).fill(tx, slot, word, place));
            Put::Done(missed)
        });
        self.release(main);
        put.map(Some)
    }

    /// Puts a record into its chain under the chain's lock.
    fn put_under_lock<K: Keys>(&self, key: K::Key<'_>, place: Place, version: Version) -> Result<Put, KvError> {
        let word = K::word(key);
        let (number, main) = self.lock_chain(K::hash(word))?;
        let before = self.bucket_version(number, bucket::seen(self.engine(), main));
        let put = self.put_locked::<K>(main, before, word, key, place, version);
        self.unlock_chain(main, Vec::new());
        put
    }

    fn put_locked<K: Keys>(
        &self,
        main: &Bucket,
        before: BucketVersion,
        word: u64,
        key: K::Key<'_>,
        place: Place,
        version: Version,
    ) -> Result<Put, KvError> {
        let floor = self.floor()?;
        if floor > version.number() {
            return Ok(Put::Below(floor));
        }
        let engine = self.engine();
        let mut alike = Vec::new();
        let room = self.survey::<K>(main, word, |found| alike.push(found))?;
        for found in alike {
            if self.is_key::<K>(found, key)? {
                return Ok(Put::Exists);
            }
        }
        let record = Record::at(self.region(), place)?;
        match room {
            Room::Slot(bucket, slot) => {
                record.unlock();
                plainly(engine, |tx| Change(bucket).fill(tx, slot, word, place));
            }
            Room::Behind(last) => {
                let link = self.new_overflow()?;
                let bucket = self.overflow(link)?;
                let slot = bucket::first_slot(self.line_of::<K>(word));
                record.unlock();
                plainly(engine, |tx| Change(bucket).fill(tx, slot, word, place));
                plainly(engine, |tx| Change(last).set_link(tx, link));
            }
        }
        Ok(Put::Done(before))
    }

    /// Whether a slot of a locked chain is the key's. Its record can be written meanwhile, but neither removed nor moved.
    fn is_key<K: Keys>(&self, found: Match<'_>, key: K::Key<'_>) -> Result<bool, KvError> {
        let record = Record::at(self.region(), found.place)?;
        let waiting = self.patience.begin();
        loop {
            match record.read::<K, _>(WholeKey::<K>(key), &mut Current, &mut Nowhere)? {
                Look::Found(_) => return Ok(true),
                Look::Other => return Ok(false),
                Look::Busy | Look::Stale | Look::Absent => waiting.pause()?,
            }
        }
    }

    /// The key's slot in a chain that is locked.
    fn slot_of<'t, K: Keys>(&'t self, main: &'t Bucket, key: K::Key<'_>) -> Result<Option<Match<'t>>, KvError> {
        let mut alike = Vec::new();
        self.survey::<K>(main, K::word(key), |found| alike.push(found))?;
        for found in alike {
            if self.is_key::<K>(found, key)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    pub(super) fn remove<K: Keys>(&self, worker: &mut Worker<E>, key: K::Key<'_>) -> Result<Option<Version>, KvError> {
        K::kept(key)?;
        let hash = K::hash(K::word(key));
        let waiting = self.patience.begin();
        loop {
            let since = self.turn();
            let is_there = self.read::<K, _>(key, Current, &mut Nowhere)?.is_ok_and(|found| found.is_present());
            if !is_there {
                if self.is_within(since) {
                    return Ok(None);
                }
                continue;
            }
            if let Some((version, class, place)) = self.take_out_in_htm::<K>(worker, key)? {
                worker.free(class, place.word);
                return Ok(Some(version));
            }
            let (_, main) = self.lock_chain(hash)?;
            match self.take_out::<K>(worker, main, key) {
                Ok(Some(removed)) => return Ok(removed),
                // The record is locked. Not to be waited for here: its holder may want the chain.
                Ok(None) => waiting.pause()?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes a key in a hardware region. Gives its version and the memory that is free then; `None` where there are no regions, or this is not for one.
    #[inline(always)]
    fn take_out_in_htm<K: Keys>(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
    ) -> Result<Option<(Version, Class, Place)>, KvError> {
        // Which of several look-alikes is the key's, only their records tell.
        if !self.engine().has_regions() || !K::FITS {
            return Ok(None);
        }
        let word = K::word(key);
        let hash = K::hash(word);
        let number = self.first_guess(hash)?;
        let (main, floor) = (self.main_bucket(number)?, self.header(header::FLOOR)?);
        let holder = worker.holder();
        let outcome = worker.htm.attempt(Policy::DBX, |tx| {
            let is_here =
                matches!(Change(main).depth(tx)?, Some(depth) if self.numbering.bucket(hash, depth) == number);
            if !is_here || Change(main).is_locked(tx)? || Change(main).ends_quarter(tx)? {
                return Ok(None);
            }
            let mut here = None;
            let surveyed = self.survey_in_region::<K, _>(tx, main, word, |found| here = Some(found))?;
            // From an overflow bucket only under the lock: an empty one has to leave the chain.
            let Some(found) = here.filter(|found| surveyed.is_ok() && std::ptr::eq(found.bucket, main)) else {
                return Ok(None);
            };
            let Ok(record) = Record::at(self.region(), found.place) else { return Ok(None) };
            let Some((version, class)) = record.retire_in(tx, holder)? else { return Ok(None) };
            if tx.load(floor)? <= version.number() {
                tx.store(floor, version.number() + 1)?;
            }
            Change(main).clear(tx, found.slot)?;
            Change(main).release(tx, || ())?;
            Ok(Some((version, class, found.place)))
        });
        Ok(match outcome {
            Outcome::Committed(removed) => removed,
            Outcome::Fallback(_) => None,
        })
    }

    /// Removes a key from a chain that is locked, and unlocks it. `None`: the record is locked.
    fn take_out<K: Keys>(
        &self,
        worker: &mut Worker<E>,
        main: &Bucket,
        key: K::Key<'_>,
    ) -> Result<Option<Option<Version>>, KvError> {
        let mut emptied = Vec::new();
        let taken = self.slot_of::<K>(main, key).and_then(|found| {
            let Some(found) = found else { return Ok(Some(None)) };
            let record = Record::at(self.region(), found.place)?;
            let Look::Found(locked) = record.lock::<K>(key, worker.holder())? else { return Ok(None) };
            let (version, class) = (locked.version(), locked.class());
            floor::raise(self.engine(), self.header(header::FLOOR)?, version);
            plainly(self.engine(), |tx| Change(found.bucket).clear(tx, found.slot));
            locked.retire();
            if !std::ptr::eq(found.bucket, main) {
                emptied = self.unlink_empty(main)?;
            }
            Ok(Some(Some((version, class, found.place))))
        });
        self.unlock_chain(main, emptied);
        Ok(taken?.map(|removed| {
            removed.map(|(version, class, place)| {
                worker.free(class, place.word);
                version
            })
        }))
    }
}
