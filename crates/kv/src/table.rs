//! What every table does, whatever its kind and its keys: implemented by hash tables and trees.

use std::{fmt::Debug, ops::Bound};

use drtm_htm::{Engine, Waiter};
use drtm_rdma::{Offset, Region};

use crate::{
    Current, ForHolder, GuardChange, Handle, KvError, Leases, Locking, PhantomGuard, Placed, Read, ReadEntry, Reaped,
    Reserved, Store, Turn, Version, Visibility, Worker,
    base::Base,
    heap::Class,
    keys::Keys,
    layout::Place,
    record::{KeyWord, Locked, Look, Record, Shape, WholeKey},
    value_sink::{Buffer, Memory, NoValue, ValueSink},
};

/// What becomes of the entry that leads to a record: the record, locked, and where it moves, if it
/// does not leave the table; or what is in the way.
pub(crate) type EntryChange<'l, 'r, E> = Result<Result<(Locked<'l, 'r, E>, Option<Place>), Reaped>, KvError>;

/// What every table does: [`HashTable`](crate::HashTable) and [`Tree`](crate::Tree).
///
/// Values are byte strings of up to [`MAX_VALUE`](crate::MAX_VALUE) bytes. Operations on a key are
/// linearizable. All of them fail with [`KvError::Corrupt`] when a link leads out of memory, and
/// with [`KvError::KeyTooLong`] when a key is too long.
///
/// The first group of methods does one thing at a time. The second is for transactions: it finds
/// records, makes records for keys that are going to be inserted, writes records that the caller
/// has [locked](crate::Records::lock), and takes out those of keys that are gone.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, Inline, KvError, KvTable, Store};
///
/// /// Counts up, in a table of any kind.
/// fn count(table: &impl KvTable<NoHtm, Inline>, store: &Store<NoHtm>, key: u64) -> Result<u64, KvError> {
///     let mut bytes = [0; 8];
///     table.get(key, &mut bytes)?;
///     let next = u64::from_le_bytes(bytes) + 1;
///     table.put(&mut store.worker()?, key, &next.to_le_bytes())?;
///     Ok(next)
/// }
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let (table, tree) = (store.hash_table(HashConfig::default())?, store.tree()?);
/// assert_eq!((count(&table, &store, 7)?, count(&table, &store, 7)?, count(&tree, &store, 7)?), (1, 2, 1));
/// # Ok::<(), KvError>(())
/// ```
pub trait KvTable<E: Engine, K: Keys>: sealed::Sealed + Clone + Debug + Send + Sync + 'static {
    /// Where a key was not found.
    type Guard: PhantomGuard;

    /// The keys, as the table's records keep them.
    #[doc(hidden)]
    type Kept: for<'k> Keys<Key<'k> = K::Key<'k>>;

    #[doc(hidden)]
    fn base(&self) -> &Base<E>;

    #[doc(hidden)]
    #[inline(always)]
    fn store(&self) -> &Store<E> {
        &self.base().store
    }

    /// The region of the table's store.
    #[doc(hidden)]
    #[inline(always)]
    fn region(&self) -> &Region<E> {
        &self.base().region
    }

    /// The [turn](Store::turn) of the table's store.
    #[must_use]
    #[inline(always)]
    fn turn(&self) -> Turn {
        Turn::of(self.region())
    }

    /// Whether what a reader has found unchanged [is so](Store::is_within).
    #[must_use]
    #[inline(always)]
    fn is_within(&self, since: Turn) -> bool {
        since.holds_in(self.region())
    }

    /// Reads, and reads again if something may have come round meanwhile.
    #[doc(hidden)]
    #[inline(always)]
    fn undisturbed<T>(&self, mut read: impl FnMut(Turn) -> Result<T, KvError>) -> Result<T, KvError> {
        loop {
            let since = self.turn();
            let found = read(since)?;
            if self.is_within(since) {
                return Ok(found);
            }
        }
    }

    /// A key's record, if the key is there, and a turn from before it was looked for.
    #[doc(hidden)]
    #[inline(always)]
    fn find(&self, key: K::Key<'_>) -> Result<Option<(ReadEntry, Turn)>, KvError> {
        let (read, since) = self.undisturbed(|since| Ok((self.read(key, Current, &mut NoValue)?, since)))?;
        Ok(read.ok().filter(ReadEntry::is_present).map(|seen| (seen, since)))
    }

    /// Where the table is in its region, for opening it again.
    #[must_use]
    fn location(&self) -> Offset {
        self.base().at
    }

    /// A handle whose operations do not wait for a record that another has locked or is writing:
    /// they fail with [`KvError::Busy`] after a moment. For threads that others may be waiting for,
    /// as those that answer messages.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{HashConfig, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let table = store.hash_table(HashConfig::default())?;
    /// let impatient = table.impatient();
    /// impatient.insert(&mut store.worker()?, 7, b"seven")?;
    /// assert!(table.contains(7)?, "it is the same table");
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[must_use]
    fn impatient(&self) -> Self;

    /// Keys in the table: exactly, if no other is inserting or removing.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    fn count(&self) -> Result<u64, KvError> {
        self.base().keys()
    }

    /// Copies a key's value to `into`, as far as there is room. Quickest where it fills that.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    #[inline]
    fn get<B: Memory + ?Sized>(&self, key: K::Key<'_>, into: &mut B) -> Result<Option<Read>, KvError> {
        let mut buffer = Buffer::new(into);
        let read = self.undisturbed(|_| self.read(key, Current, &mut buffer))?;
        Ok(read.ok().filter(ReadEntry::is_present).map(|found| buffer.read(found.version)))
    }

    /// Whether there is such a key.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    fn contains(&self, key: K::Key<'_>) -> Result<bool, KvError> {
        Ok(self.version(key)?.is_some())
    }

    /// The version of a key's value.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    fn version(&self, key: K::Key<'_>) -> Result<Option<Version>, KvError> {
        Ok(self.find(key)?.map(|(found, _)| found.version))
    }

    /// Inserts a key that is not there yet. Gives the version that its value has, or `None` if the
    /// key is there: then nothing has changed.
    ///
    /// # Errors
    ///
    /// When key or value are too long, or memory has run out. Nothing has changed then.
    fn insert(&self, worker: &mut Worker<E>, key: K::Key<'_>, value: &[u8]) -> Result<Option<Version>, KvError> {
        loop {
            let since = self.turn();
            let placed = match self.try_read(key, &Current, &mut NoValue) {
                Some(Ok(found)) => Placed::Found(found),
                missed => {
                    let missed = missed.and_then(Result::err).map(|missed| (missed, since));
                    self.place_as(worker, key, value, missed, (Current, Version::new), |_| ())?
                }
            };
            match placed {
                Placed::Made(made) => return Ok(Some(made.version)),
                Placed::Found(_) if self.is_within(since) => return Ok(None),
                // Another table's record, perhaps.
                Placed::Found(_) => {}
            }
        }
    }

    /// Gives a key that is there another value. Gives the new version, or `None` if there is no
    /// such key.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    #[inline]
    fn update(&self, worker: &mut Worker<E>, key: K::Key<'_>, value: &[u8]) -> Result<Option<Version>, KvError> {
        self.update_slow(worker, key, value)
    }

    #[doc(hidden)]
    fn update_slow(&self, worker: &mut Worker<E>, key: K::Key<'_>, value: &[u8]) -> Result<Option<Version>, KvError> {
        // Also where there is no such key.
        Shape::of::<Self::Kept>(key, value.len(), false)?;
        let waiting = self.base().patience.begin();
        while let Some((ReadEntry { at, .. }, since)) = self.find(key)? {
            let record = Record::at(self.region(), at.place())?;
            let Locking::Taken { version, .. } = record.lock_as_it_is(worker.holder(), Leases::None) else {
                waiting.pause()?;
                continue;
            };
            if !self.is_within(since) {
                // What is locked may be another table's record.
                record.unlock();
                continue;
            }
            if version.is_removed() {
                record.unlock();
                break;
            }
            let written = match self.reserve(worker, at, value.len()) {
                // It is unlocked, whatever comes of it.
                Ok(None) => return self.write_held(at, version.next(), value).map(|()| Some(version.next())),
                Ok(Some(to)) => self.move_held(worker, key, at, to, version.next(), value).map(drop),
                Err(error) => Err(error),
            };
            if written.is_err() {
                // If that has found the store corrupt, it may have been unlocked before.
                let _ = record.release(worker.holder());
            }
            return written.map(|()| Some(version.next()));
        }
        Ok(None)
    }

    /// Gives a key a value, whether it is there or not. Gives the value's version.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    fn put(&self, worker: &mut Worker<E>, key: K::Key<'_>, value: &[u8]) -> Result<Version, KvError> {
        let waiter = Waiter::new();
        loop {
            if let Some(version) = self.update(worker, key, value)? {
                return Ok(version);
            }
            if let Some(version) = self.insert(worker, key, value)? {
                return Ok(version);
            }
            // Inserted and removed by others in between.
            waiter.pause();
        }
    }

    /// Removes a key. Gives the version that was removed, or `None` if there was no such key.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    fn remove(&self, worker: &mut Worker<E>, key: K::Key<'_>) -> Result<Option<Version>, KvError> {
        Self::Kept::kept(key)?;
        let waiting = self.base().patience.begin();
        while let Some((seen, since)) = self.find(key)? {
            if self.take_out(worker, key, seen, Some(since), || ())? == Reaped::Out {
                return Ok(Some(seen.version));
            }
            waiting.pause()?;
        }
        Ok(None)
    }

    /// Reads what a key is to a reader of this visibility, and copies its value. `Err`: the key has
    /// no record as long as this guard is unchanged.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    ///
    /// # Example
    ///
    /// A transaction sees the record of a key that is locked by itself only.
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{ForHolder, KvTable, Placed, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// let (me, mut value) = (ForHolder(worker.holder()), Vec::new());
    /// let turn = store.turn();
    /// let Err(leaf) = tree.read(7, me, &mut value)? else { panic!("the tree is empty") };
    /// assert!(store.records().is_unchanged(&leaf), "7 is still not there");
    /// let Placed::Made(made) = tree.place(&mut worker, 7, b"seven", Some((leaf, turn)), |_| ())? else { panic!("it is new") };
    /// assert!(!store.records().is_unchanged(&leaf));
    /// assert_eq!(tree.read(7, me, &mut value)?, Ok(made));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    ///
    /// A snapshot sees what a key was.
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{AsOf, ForHolder, HashConfig, RetainOutcome, KvTable, Past, Store, Version};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// let first = table.insert(&mut worker, 7, b"seven")?.expect("it is new");
    ///
    /// // A transaction that writes the row keeps what it was.
    /// let (me, records, mut value) = (worker.holder(), store.records(), Vec::new());
    /// let Ok(seen) = table.read(7, ForHolder(me), &mut value)? else { panic!("it is there") };
    /// records.lock(seen.at, me)?;
    /// assert!(matches!(records.keep(&mut worker, seen.at, true)?, RetainOutcome::Copied { .. }));
    /// table.write_held(seen.at, Version::new(1_000), b"SEVEN")?;
    ///
    /// let mut before = |version| table.read(7, AsOf::new(version), &mut value).map(|read| read.ok());
    /// assert_eq!(before(Version::new(1_000))?, Some(Past::Present(first)));
    /// assert_eq!(before(Version::new(1_001))?, Some(Past::Present(Version::new(1_000))));
    /// assert_eq!(before(first)?, Some(Past::Absent));
    ///
    /// // And forgets it when no snapshot needs it any longer.
    /// records.lock(seen.at, me)?;
    /// assert!(records.forget(&mut worker, seen.at, |_, _| false)? > 0);
    /// records.unlock(seen.at);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    fn read<V: Visibility>(
        &self,
        key: K::Key<'_>,
        view: V,
        into: &mut impl ValueSink,
    ) -> Result<Result<V::Found, Self::Guard>, KvError>;

    /// [Reads](Self::read) a key by the fast path, where there is one. `None` tells nothing.
    #[inline(always)]
    fn try_read<V: Visibility>(
        &self,
        _key: K::Key<'_>,
        _view: &V,
        _into: &mut impl ValueSink,
    ) -> Option<Result<V::Found, Self::Guard>> {
        None
    }

    /// Reads what a key is from a record where it was before. `None`: [read](Self::read) the key.
    /// The record may be another's by now, or locked, or the reader sees an older version.
    ///
    /// # Example
    ///
    /// See [`HashTable::locate`](crate::HashTable::locate).
    #[inline(always)]
    fn read_at<V: Visibility>(
        &self,
        at: Handle,
        key: K::Key<'_>,
        mut view: V,
        into: &mut impl ValueSink,
    ) -> Option<V::Found> {
        let record = Record::at(self.region(), at.place()).ok()?;
        if K::FITS {
            return record.try_read::<Self::Kept, V>(KeyWord(Self::Kept::word(key)), &view, into);
        }
        match record.read::<Self::Kept, V>(WholeKey::<Self::Kept>(key), &mut view, into) {
            Ok(Look::Found(found)) => Some(found),
            _ => None,
        }
    }

    /// Whether a key's record is this one, which the caller has locked, so that it stays so. Waits
    /// for no lock.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{HashConfig, KvTable, Placed, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// let Placed::Made(seen) = table.place(&mut worker, 7, b"seven", None, |_| ())? else { panic!("it is new") };
    /// store.records().lock(seen.at, worker.holder())?;
    /// assert!(table.leads_to(7, seen.at)? && !table.leads_to(8, seen.at)?);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    fn leads_to(&self, key: K::Key<'_>, at: Handle) -> Result<bool, KvError> {
        Ok(self.read(key, Current, &mut NoValue)?.is_ok_and(|found| found.at == at))
    }

    /// Finds a key's record, or makes one, which says that the key is not there, and has this value
    /// already for when it will be. Tells what that has done to guards. A caller that has missed
    /// the key gives the guard that it was given, and the turn before that: then the key need not
    /// be searched again.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{ForHolder, HashConfig, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// let turn = store.turn();
    /// let Err(bucket) = table.read(7, ForHolder(worker.holder()), &mut Vec::new())? else { panic!("it is empty") };
    ///
    /// // A transaction tells its own insertions from those of others.
    /// let mut seen = vec![bucket];
    /// table.place(&mut worker, 7, b"seven", Some((bucket, turn)), |change| {
    ///     seen.iter_mut().filter(|guard| **guard == change.before).for_each(|guard| *guard = change.after);
    /// })?;
    /// let records = store.records();
    /// assert!(!records.is_unchanged(&bucket) && records.is_unchanged(&seen[0]));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    fn place(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
        missed: Option<(Self::Guard, Turn)>,
        note: impl FnMut(GuardChange<Self::Guard>),
    ) -> Result<Placed, KvError> {
        let removed = |number| Version::new(number).removed();
        self.place_as(worker, key, value, missed, (ForHolder(worker.holder()), removed), note)
    }

    /// Finds a key's record, as a reader of this visibility does, or makes one. It has the version
    /// that is made of the lowest number that it can have.
    #[doc(hidden)]
    fn place_as<V: Visibility<Found = ReadEntry> + Copy>(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
        missed: Option<(Self::Guard, Turn)>,
        view_and_first: (V, impl Fn(u64) -> Version),
        note: impl FnMut(GuardChange<Self::Guard>),
    ) -> Result<Placed, KvError>;

    /// Takes memory for a value of this length, for a record that the caller has locked: none if it
    /// has room where it is.
    ///
    /// # Errors
    ///
    /// As for [`update`](Self::update).
    fn reserve(&self, worker: &mut Worker<E>, at: Handle, length: usize) -> Result<Option<Reserved>, KvError> {
        Record::at(self.region(), at.place())?.reserve::<Self::Kept>(worker, length)
    }

    /// Writes a record that the caller has locked, in a version of its own choice, and unlocks it.
    /// It must have room for the value.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// See [`Records`](crate::Records).
    #[inline]
    fn write_held(&self, at: Handle, version: Version, value: &[u8]) -> Result<(), KvError> {
        Record::at(self.region(), at.place())?.write_held::<Self::Kept>(version, value)
    }

    /// [Writes](Self::write_held) a record in [other memory](Self::reserve). Gives its handle
    /// there.
    ///
    /// # Errors
    ///
    /// When the store is corrupt; [`KvError::Busy`], and then the record stays locked as it is, and
    /// the memory has been given back.
    fn move_held(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        at: Handle,
        to: Reserved,
        version: Version,
        value: &[u8],
    ) -> Result<Handle, KvError> {
        let mut place = at.place();
        let changed = self.change_entry(key, at, |record| {
            let locked = record.held::<Self::Kept>()?;
            place = locked.copy_to::<Self::Kept>(&to, key, version, value)?;
            Ok(Ok((locked, Some(place))))
        });
        if let Ok(Ok(class)) = changed {
            worker.free(class, at.place().word);
            return Ok(Handle::of(place));
        }
        worker.give_back(to);
        let lost = Offset::new(8 * at.place().word);
        Err(changed.err().unwrap_or(KvError::Inconsistent { at: lost, what: "a record is not where its key leads" }))
    }

    /// Takes out the record of a key that is gone, if it is still as it was seen and not locked.
    /// Calls `going` once the record is locked for it, before its key leads to it no more.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{HashConfig, KvTable, Placed, Reaped, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// let Placed::Made(seen) = table.place(&mut worker, 7, b"seven", None, |_| ())? else { panic!("it is new") };
    /// assert_eq!(table.reap(&mut worker, 7, seen, || ())?, Reaped::Out);
    /// assert_eq!(table.reap(&mut worker, 7, seen, || ())?, Reaped::Gone, "it is out already");
    /// assert_eq!(table.count()?, 0);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    fn reap(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        seen: ReadEntry,
        going: impl FnOnce(),
    ) -> Result<Reaped, KvError> {
        self.take_out(worker, key, seen, None, going)
    }

    /// Takes a record out of the table, if it is still as it was seen and not locked. If its key
    /// was there, seen since some turn, its older versions are forgotten. Otherwise it must have
    /// none; any record that says so of its key may go, so that nothing depends on the turn.
    #[doc(hidden)]
    fn take_out(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        seen: ReadEntry,
        present_since: Option<Turn>,
        going: impl FnOnce(),
    ) -> Result<Reaped, KvError> {
        let changed = self.change_entry(key, seen.at, |record| {
            let locked = match record.lock_seen::<Self::Kept>(seen, worker.holder())? {
                Ok(locked) => locked,
                Err(in_the_way) => return Ok(Err(in_the_way)),
            };
            // Another key's, perhaps, which begins like this one.
            if present_since.is_some_and(|since| !self.is_within(since)) {
                return Ok(Err(Reaped::Busy));
            }
            if record.has_past() {
                if present_since.is_none() {
                    // Whoever looks for what it was must find it.
                    return Ok(Err(Reaped::Busy));
                }
                record.forget(worker, seen.version, |_, _| false)?;
            }
            self.base().raise_floor(seen.version)?;
            going();
            Ok(Ok((locked, None)))
        });
        let class = match changed? {
            Ok(class) => class,
            Err(in_the_way) => return Ok(in_the_way),
        };
        worker.free(class, seen.at.place().word);
        self.base().count(worker, -1)?;
        Ok(Reaped::Out)
    }

    /// Changes the entry that leads to a record as `change` says, which locks the record. The
    /// memory of the record is free then. [`Gone`](Reaped::Gone): the entry leads elsewhere.
    #[doc(hidden)]
    fn change_entry(
        &self,
        key: K::Key<'_>,
        at: Handle,
        change: impl for<'l, 'r> FnOnce(&'l Record<'r, E>) -> EntryChange<'l, 'r, E>,
    ) -> Result<Result<Class, Reaped>, KvError>;

    /// Calls `visit` with the rows of a range in their order, until it says that it has enough;
    /// whether it has said so. `None` where there is no order.
    #[doc(hidden)]
    fn visit<'k>(
        &self,
        _range: (Bound<K::Key<'k>>, Bound<K::Key<'k>>),
        _visit: impl FnMut(&[u8], &[u8], Version) -> bool,
    ) -> Result<Option<bool>, KvError> {
        Ok(None)
    }
}

pub(crate) mod sealed {
    pub trait Sealed {}
}
