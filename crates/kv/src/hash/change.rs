//! The [table operations](KvTable) of a hash table: inserting keys, and changing a key's entry.

use std::{hint::cold_path, marker::PhantomData, sync::Arc};

use drtm_htm::Engine;

use super::{
    BucketChange, BucketVersion, HashTable, Table, bucket,
    chain::{Match, Vacancy},
    segments::Bucket,
};
use crate::{
    Current, GuardChange, Handle, KvError, Placed, Placing, ReadEntry, Reaped, Turn, Version, Visibility, Worker,
    record::{
        Look, Record, Shape, WholeKey,
        keys::Keys,
        value_sink::{NoValue, ValueSink},
    },
    store::{heap::Class, layout::Place},
    table::{EntryChange, KvTable, base::Base, sealed::Sealed},
};

/// The outcome of an attempt to put a record into a chain.
enum Put {
    /// The record is in the chain. This was the bucket's version before.
    Done(BucketVersion),
    /// The key has a record already.
    Exists,
    /// A key with a higher version was removed meanwhile: start from this number.
    Below(u64),
}

impl<E: Engine, K: Keys> Sealed for HashTable<E, K> {}

impl<E: Engine, K: Keys> KvTable<E, K> for HashTable<E, K> {
    type Guard = BucketVersion;
    type InRecord = K;

    #[inline(always)]
    fn base(&self) -> &Base<E> {
        &self.table.base
    }

    fn impatient(&self) -> Self {
        Self { table: Arc::new(self.table.impatient()), keys: PhantomData }
    }

    #[inline(always)]
    fn read<V: Visibility>(
        &self,
        key: K::Key<'_>,
        view: V,
        into: &mut impl ValueSink,
    ) -> Result<Result<V::Found, BucketVersion>, KvError> {
        self.table.read::<K, V>(key, view, into)
    }

    #[inline(always)]
    fn try_read<V: Visibility>(
        &self,
        key: K::Key<'_>,
        view: &V,
        into: &mut impl ValueSink,
    ) -> Option<Result<V::Found, BucketVersion>> {
        self.table.try_read::<K, V>(key, view, into)
    }

    #[inline]
    fn update(&self, worker: &mut Worker<E>, key: K::Key<'_>, value: &[u8]) -> Result<Option<Version>, KvError> {
        let shape = Shape::of::<K>(key, value.len(), self.table.base.checked)?;
        match self.table.replace::<K>(key, worker.holder(), shape, value) {
            Some(written) => Ok(Some(written)),
            None => self.update_slow(worker, key, value),
        }
    }

    #[inline(never)]
    fn place<P: Placing>(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
        mut missed: Option<(BucketVersion, Turn)>,
        mut note: impl FnMut(BucketChange),
    ) -> Result<Placed, KvError> {
        let mut view = P::of(worker.holder());
        loop {
            // The fast path is skipped: a caller that expects the key to be present has tried it.
            let since = self.turn();
            let read = match missed.take() {
                Some(missed) => Err(missed),
                None => self
                    .table
                    .search::<K, _>(key, |record| record.read(WholeKey::<K>(key), &mut view, &mut NoValue))?
                    .map_err(|missed| (missed, since)),
            };
            let missed = match read {
                Ok(found) => return Ok(Placed::Found(found)),
                Err(missed) => missed,
            };
            if let Some(new) = self.table.put_new::<K, P>(worker, key, value, missed, &mut note)? {
                return Ok(Placed::Made(new));
            }
        }
    }

    fn change_entry(
        &self,
        key: K::Key<'_>,
        at: Handle,
        change: impl for<'l, 'r> FnOnce(&'l Record<'r, E>) -> EntryChange<'l, 'r, E>,
    ) -> Result<Result<Class, Reaped>, KvError> {
        self.table.change_entry::<K>(key, at, change)
    }
}

impl<E: Engine> Table<E> {
    /// Locks the main bucket of a hash. Returns its number and the bucket.
    pub(super) fn lock_chain(&self, hash: u64) -> Result<(u64, &Bucket), KvError> {
        let engine = self.engine();
        let waiting = self.base.patience.begin();
        let mut number = self.first_guess(hash)?;
        let mut since = self.turn();
        loop {
            let Some(main) = self.main.get(self.region(), number)? else {
                number = self.split_off(number)?;
                continue;
            };
            // If it is the right bucket and the lock is taken at the same version, it stays the
            // right one.
            let seen = bucket::seen(engine, main);
            match self.elsewhere(main, number, hash)? {
                Some(elsewhere) => number = elsewhere,
                None if bucket::try_lock(engine, main, seen) => {
                    if self.is_within(since) {
                        return Ok((number, main));
                    }
                    // The version may have wrapped around in between.
                    cold_path();
                    self.release(main);
                    since = self.turn();
                }
                None => waiting.pause()?,
            }
        }
    }

    /// Unlocks a main bucket, and increments its version.
    #[inline(always)]
    pub(super) fn release(&self, main: &Bucket) {
        bucket::release(self.engine(), main, || {
            self.base.store.turn_over();
        });
    }

    /// Creates a record and puts it into its chain. `None`: the key has a record already.
    ///
    /// The search of the chain is skipped if the bucket is unchanged since the key was `missed`
    /// there. Calls `note` with each change of a bucket.
    pub(super) fn put_new<K: Keys, P: Placing>(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
        missed: (BucketVersion, Turn),
        mut note: impl FnMut(BucketChange),
    ) -> Result<Option<ReadEntry>, KvError> {
        let shape = Shape::of::<K>(key, value.len(), self.base.checked)?;
        let memory = worker.allocate(shape.class())?;
        let mut version = P::first(self.base.floor()?);
        let mut place = Record::create::<K>(self.region(), memory, shape, key, value, version)?;
        let mut put = self.put_where_missed::<K>(key, missed, place, version);
        let done = loop {
            match put.and_then(|put| put.map_or_else(|| self.put_under_lock::<K>(key, place, version), Ok)) {
                Ok(Put::Done(before)) => {
                    note(GuardChange { before, after: before.next(), split_off: None });
                    let counted = self.base.count(worker, 1)?;
                    self.grow_if_full::<K>(counted, note)?;
                    return Ok(Some(ReadEntry { at: Handle::of(place), version }));
                }
                Ok(Put::Below(floor)) => {
                    cold_path();
                    version = P::first(floor);
                    place = Record::create::<K>(self.region(), memory, shape, key, value, version)?;
                    put = Ok(None);
                }
                Ok(Put::Exists) => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        cold_path();
        Record::at(self.region(), place)?.discard(worker.holder());
        worker.free(shape.class(), memory);
        done
    }

    /// Puts a record into the bucket in which its key was missed, if the bucket is unchanged and
    /// has room. The key need not be searched again then. `None` otherwise.
    #[inline(always)]
    fn put_where_missed<K: Keys>(
        &self,
        key: K::Key<'_>,
        (missed, since): (BucketVersion, Turn),
        place: Place,
        version: Version,
    ) -> Result<Option<Put>, KvError> {
        let (engine, main) = (self.engine(), self.region().array(missed.at)?);
        let (seen, empty) = (bucket::seen(engine, main), bucket::empty(engine, main));
        let record = Record::at(self.region(), place)?;
        // With the lock, the bucket is what was seen: any change would have left another version.
        if empty == 0 || seen.version() != missed.version || !bucket::try_lock(engine, main, seen) {
            return Ok(None);
        }
        // The version may have wrapped around.
        if !self.is_within(since) {
            cold_path();
            self.release(main);
            return Ok(None);
        }
        let put = self.base.floor_above(version).map(|floor| {
            if let Some(floor) = floor {
                return Put::Below(floor);
            }
            record.unlock();
            let word = K::word(key);
            bucket::fill(engine, main, bucket::first_of(empty, self.line_of::<K>(word)), word, place);
            Put::Done(missed)
        });
        self.release(main);
        put.map(Some)
    }

    /// Puts a record into its chain under the chain's lock.
    fn put_under_lock<K: Keys>(&self, key: K::Key<'_>, place: Place, version: Version) -> Result<Put, KvError> {
        let (number, main) = self.lock_chain(K::hash(K::word(key)))?;
        let before = self.bucket_version(number, bucket::seen(self.engine(), main));
        let put = self.put_locked::<K>(main, key, place, version);
        match put {
            Ok(None) => self.release(main),
            // Guards of this bucket stay valid, also those of a transaction that fails here.
            Ok(Some(_)) | Err(_) => bucket::release_unchanged(self.engine(), main),
        }
        Ok(put?.unwrap_or(Put::Done(before)))
    }

    /// Puts a record into a locked chain. Otherwise returns what prevents it.
    fn put_locked<K: Keys>(
        &self,
        main: &Bucket,
        key: K::Key<'_>,
        place: Place,
        version: Version,
    ) -> Result<Option<Put>, KvError> {
        if let Some(floor) = self.base.floor_above(version)? {
            return Ok(Some(Put::Below(floor)));
        }
        let (engine, word) = (self.engine(), K::word(key));
        let mut alike = Vec::new();
        let vacancy = self.survey::<K>(main, word, |found| alike.push(found))?;
        for found in alike {
            if self.is_key::<K>(found, key)? {
                return Ok(Some(Put::Exists));
            }
        }
        let record = Record::at(self.region(), place)?;
        match vacancy {
            Vacancy::Slot(bucket, slot) => {
                record.unlock();
                bucket::fill(engine, bucket, slot, word, place);
            }
            Vacancy::Behind(last) => {
                let link = self.new_overflow()?;
                let bucket = self.overflow(link)?;
                record.unlock();
                bucket::fill(engine, bucket, bucket::first_slot(self.line_of::<K>(word)), word, place);
                bucket::set_link(engine, last, link);
            }
        }
        Ok(None)
    }

    /// Returns whether a slot of a locked chain leads to this key. The record may be written
    /// meanwhile, but neither removed nor moved.
    fn is_key<K: Keys>(&self, found: Match<'_>, key: K::Key<'_>) -> Result<bool, KvError> {
        let record = Record::at(self.region(), found.place)?;
        let waiting = self.base.patience.begin();
        loop {
            match record.read::<K, _>(WholeKey::<K>(key), &mut Current, &mut NoValue)? {
                Look::Found(_) => return Ok(true),
                Look::Other => return Ok(false),
                Look::Busy | Look::Stale | Look::Absent => waiting.pause()?,
            }
        }
    }

    /// Changes the entry that leads to a record, under the chain's lock, by `change`, which locks
    /// the record.
    pub(super) fn change_entry<K: Keys>(
        &self,
        key: K::Key<'_>,
        at: Handle,
        change: impl for<'l, 'r> FnOnce(&'l Record<'r, E>) -> EntryChange<'l, 'r, E>,
    ) -> Result<Result<Class, Reaped>, KvError> {
        let (engine, word) = (self.engine(), K::word(key));
        let (_, main) = self.lock_chain(K::hash(word))?;
        let (mut entry, mut emptied) = (None, Vec::new());
        let surveyed = self.survey::<K>(main, word, |found| {
            entry = entry.or(Some(found).filter(|found| found.place == at.place()));
        });
        let changed = surveyed.and_then(|_| {
            let Some(Match { bucket, slot, place }) = entry else { return Ok(Err(Reaped::Gone)) };
            let record = Record::at(self.region(), place)?;
            let (locked, to) = match change(&record)? {
                Ok(changed) => changed,
                Err(in_the_way) => return Ok(Err(in_the_way)),
            };
            let class = locked.class();
            match to {
                Some(place) => bucket::point(engine, bucket, slot, place),
                None => bucket::clear(engine, bucket, slot),
            }
            locked.retire();
            if to.is_none() && !std::ptr::eq(bucket, main) {
                emptied = self.unlink_empty(main)?;
            }
            Ok(Ok(class))
        });
        self.release(main);
        self.free_overflows(emptied);
        changed
    }
}
