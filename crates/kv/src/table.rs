//! The operations that every table has, whatever its kind and its keys. Hash tables and trees
//! implement them.

pub(crate) mod base;
mod patience;

use std::{fmt::Debug, ops::Bound};

use drtm_htm::{Engine, Waiter};
use drtm_rdma::{Offset, Region};

use crate::{
    Current, GuardChange, Handle, KvError, Leases, Locking, PhantomGuard, Placed, Placing, Read, ReadEntry, Reaped,
    Relocated, Reserved, Store, Turn, Version, Visibility, Worker,
    record::{
        KeyWord, Locked, Look, Record, Shape, WholeKey,
        keys::Keys,
        value_sink::{Buffer, Memory, NoValue, ValueSink},
    },
    store::{heap::Class, layout::Place},
    table::base::Base,
};

/// The outcome of changing the entry that leads to a record. `Ok(Ok(_))` has the locked record, and
/// its new place unless it leaves the table. `Ok(Err(_))` says what prevented the change.
pub(crate) type EntryChange<'l, 'r, E> = Result<Result<(Locked<'l, 'r, E>, Option<Place>), Reaped>, KvError>;

/// The operations of every table: [`HashTable`](crate::HashTable) and [`Tree`](crate::Tree).
///
/// Values are byte strings of up to [`MAX_VALUE`](crate::MAX_VALUE) bytes. Operations on a key are
/// linearizable. Each fails with [`KvError::Corrupt`] when a link leads out of memory, and with
/// [`KvError::KeyTooLong`] when a key is too long.
///
/// The first group of methods are operations on single keys. The second group is for transactions.
/// It finds records, creates records for keys to insert, writes records that the caller has
/// [locked](crate::Records::lock), and removes records of absent keys.
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
    /// The phantom guard of a key that was not found.
    type Guard: PhantomGuard;

    /// The key type as the table's records store it.
    #[doc(hidden)]
    type InRecord: for<'k> Keys<Key<'k> = K::Key<'k>>;

    #[doc(hidden)]
    fn base(&self) -> &Base<E>;

    #[doc(hidden)]
    #[inline(always)]
    fn store(&self) -> &Store<E> {
        &self.base().store
    }

    /// Returns the region of the table's store.
    #[doc(hidden)]
    #[inline(always)]
    fn region(&self) -> &Region<E> {
        &self.base().region
    }

    /// Returns the current [turn](Store::turn) of the table's store.
    #[must_use]
    #[inline(always)]
    fn turn(&self) -> Turn {
        Turn::of(self.region())
    }

    /// Returns whether a value that was found unchanged [was never changed](Store::is_within) since
    /// a turn.
    #[must_use]
    #[inline(always)]
    fn is_within(&self, since: Turn) -> bool {
        since.holds_in(self.region())
    }

    /// Calls `read`, and again if a counter may have wrapped around meanwhile.
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

    /// Returns a present key's record, and a turn from before the lookup. `None`: the key is
    /// absent.
    #[doc(hidden)]
    #[inline(always)]
    fn find(&self, key: K::Key<'_>) -> Result<Option<(ReadEntry, Turn)>, KvError> {
        let (read, since) = self.undisturbed(|since| Ok((self.read(key, Current, &mut NoValue)?, since)))?;
        Ok(read.ok().filter(ReadEntry::is_present).map(|seen| (seen, since)))
    }

    /// Returns the table's place in its region, for opening it again.
    #[must_use]
    fn location(&self) -> Offset {
        self.base().at
    }

    /// Returns a handle whose operations do not wait long for a locked record: they soon fail with
    /// [`KvError::Busy`]. It is for threads that others may be waiting for, such as message
    /// handlers.
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

    /// Returns the number of keys. It is exact if no other thread inserts or removes keys.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    fn count(&self) -> Result<u64, KvError> {
        self.base().keys()
    }

    /// Copies a key's value into `into`, truncated if it is longer. `None`: the key is absent.
    ///
    /// It is fastest when the value exactly fills `into`.
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

    /// Returns whether the key is present.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    fn contains(&self, key: K::Key<'_>) -> Result<bool, KvError> {
        Ok(self.version(key)?.is_some())
    }

    /// Returns the version of a key's value. `None`: the key is absent.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    fn version(&self, key: K::Key<'_>) -> Result<Option<Version>, KvError> {
        Ok(self.find(key)?.map(|(found, _)| found.version))
    }

    /// Inserts a key, and returns the version of its value. `None`: the key is present already, and
    /// nothing has changed.
    ///
    /// # Errors
    ///
    /// When key or value are too long, or when memory has run out. Nothing has changed then.
    fn insert(&self, worker: &mut Worker<E>, key: K::Key<'_>, value: &[u8]) -> Result<Option<Version>, KvError> {
        loop {
            let since = self.turn();
            let placed = match self.try_read(key, &Current, &mut NoValue) {
                Some(Ok(found)) => Placed::Found(found),
                missed => {
                    let missed = missed.and_then(Result::err).map(|missed| (missed, since));
                    self.place::<Current>(worker, key, value, missed, |_| ())?
                }
            };
            match placed {
                Placed::Made(made) => return Ok(Some(made.version)),
                Placed::Found(_) if self.is_within(since) => return Ok(None),
                // The record found may belong to another table by now.
                Placed::Found(_) => {}
            }
        }
    }

    /// Replaces the value of a present key, and returns the new version. `None`: the key is absent.
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
        // An absent key gets the same errors.
        Shape::of::<Self::InRecord>(key, value.len(), false)?;
        let waiting = self.base().patience.begin();
        while let Some((ReadEntry { at, .. }, since)) = self.find(key)? {
            let record = Record::at(self.region(), at.place())?;
            let Locking::Taken { version, .. } = record.lock_as_it_is(worker.holder(), Leases::None) else {
                waiting.pause()?;
                continue;
            };
            if !self.is_within(since) {
                // The locked record may belong to another table by now.
                record.unlock();
                continue;
            }
            if version.is_removed() {
                record.unlock();
                break;
            }
            let written = match self.reserve(worker, at, value.len()) {
                // `write_held` unlocks the record, also when it fails.
                Ok(None) => return self.write_held(at, version.next(), value).map(|()| Some(version.next())),
                Ok(Some(to)) => self.move_held(worker, key, at, to, version.next(), value).map(drop),
                Err(error) => Err(error),
            };
            if written.is_err() {
                // It may be unlocked already, if the error is that the store is corrupt.
                let _ = record.release(worker.holder());
            }
            return written.map(|()| Some(version.next()));
        }
        Ok(None)
    }

    /// Inserts or updates a key. Returns the version of its value.
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
            // Other threads inserted and removed the key in between.
            waiter.pause();
        }
    }

    /// Removes a key, and returns the version that was removed. `None`: the key was absent.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    fn remove(&self, worker: &mut Worker<E>, key: K::Key<'_>) -> Result<Option<Version>, KvError> {
        Self::InRecord::kept(key)?;
        let waiting = self.base().patience.begin();
        while let Some((seen, since)) = self.find(key)? {
            if self.take_out(worker, key, seen, Some(since), || ())? == Reaped::Out {
                return Ok(Some(seen.version));
            }
            waiting.pause()?;
        }
        Ok(None)
    }

    /// Reads a key's record under this visibility, and copies its value. `Err` has a phantom guard:
    /// the key has no record for as long as the guard is unchanged.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    ///
    /// # Example
    ///
    /// A record that is locked can be read by the transaction that holds the lock, and by no other.
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
    /// let Placed::Made(made) = tree.place::<ForHolder>(&mut worker, 7, b"seven", Some((leaf, turn)), |_| ())? else { panic!("it is new") };
    /// assert!(!store.records().is_unchanged(&leaf));
    /// assert_eq!(tree.read(7, me, &mut value)?, Ok(made));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    ///
    /// A snapshot reads an older version of a key.
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

    /// [Reads](Self::read) a key by the fast path, if the table has one. `None` says nothing about
    /// the key.
    #[inline(always)]
    fn try_read<V: Visibility>(
        &self,
        _key: K::Key<'_>,
        _view: &V,
        _into: &mut impl ValueSink,
    ) -> Option<Result<V::Found, Self::Guard>> {
        None
    }

    /// Reads a key at the place where its record was found before. `None`: the caller must
    /// [read](Self::read) the key by a lookup. The record may be another key's by now, or locked,
    /// or the reader sees an older version.
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
            return record.try_read::<Self::InRecord, V>(KeyWord(Self::InRecord::word(key)), &view, into);
        }
        match record.read::<Self::InRecord, V>(WholeKey::<Self::InRecord>(key), &mut view, into) {
            Ok(Look::Found(found)) => Some(found),
            _ => None,
        }
    }

    /// Returns whether a key's record is this one. The caller has it locked, so that the answer
    /// stays true. Never waits for a lock.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{ForHolder, HashConfig, KvTable, Placed, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// let Placed::Made(seen) = table.place::<ForHolder>(&mut worker, 7, b"seven", None, |_| ())? else { panic!("it is new") };
    /// store.records().lock(seen.at, worker.holder())?;
    /// assert!(table.leads_to(7, seen.at)? && !table.leads_to(8, seen.at)?);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    fn leads_to(&self, key: K::Key<'_>, at: Handle) -> Result<bool, KvError> {
        Ok(self.read(key, Current, &mut NoValue)?.is_ok_and(|found| found.at == at))
    }

    /// Finds a key's record, or creates one, [as this caller](Placing) does. A transaction's new
    /// record says that the key is absent, and already holds the value for when it becomes present.
    ///
    /// Calls `note` with each change that this makes to phantom guards. A caller that has read the
    /// key as absent passes the guard that it got, and a turn from before. The lookup is skipped
    /// then.
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
    /// table.place::<ForHolder>(&mut worker, 7, b"seven", Some((bucket, turn)), |change| {
    ///     seen.iter_mut().filter(|guard| **guard == change.before).for_each(|guard| *guard = change.after);
    /// })?;
    /// let records = store.records();
    /// assert!(!records.is_unchanged(&bucket) && records.is_unchanged(&seen[0]));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    fn place<P: Placing>(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
        missed: Option<(Self::Guard, Turn)>,
        note: impl FnMut(GuardChange<Self::Guard>),
    ) -> Result<Placed, KvError>;

    /// Allocates memory for a value of this length, for a record that the caller has locked.
    /// `None`: the value fits into the record's own memory.
    ///
    /// # Errors
    ///
    /// As for [`update`](Self::update).
    fn reserve(&self, worker: &mut Worker<E>, at: Handle, length: usize) -> Result<Option<Reserved>, KvError> {
        Record::at(self.region(), at.place())?.reserve::<Self::InRecord>(worker, length)
    }

    /// Writes a record that the caller has locked, with the version that the caller chose, and
    /// unlocks it. The record must have room for the value.
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
        Record::at(self.region(), at.place())?.write_held::<Self::InRecord>(version, value)
    }

    /// [Writes](Self::write_held) a record to [other memory](Self::reserve). Returns its new
    /// handle.
    ///
    /// # Errors
    ///
    /// When the store is corrupt. [`KvError::Busy`] leaves the record locked and unchanged; the
    /// reserved memory has been given back.
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
            let locked = record.held::<Self::InRecord>()?;
            place = locked.copy_to::<Self::InRecord>(&to, key, version, value)?;
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

    /// Moves a key's record out of a span that is [being emptied](Store::compaction), with its
    /// value and version. A transaction that has read it is in conflict.
    ///
    /// # Errors
    ///
    /// When memory has run out, or the store is corrupt.
    ///
    /// # Example
    ///
    /// See [`Compaction`](crate::Compaction).
    fn relocate(&self, worker: &mut Worker<E>, key: K::Key<'_>) -> Result<Relocated, KvError> {
        let store = self.store().clone();
        let Ok(found) = self.undisturbed(|_| self.read(key, Current, &mut NoValue))? else {
            return Ok(Relocated::Nothing);
        };
        if !store.is_sparse(found.at) {
            return Ok(Relocated::Nothing);
        }
        let records = store.records();
        let Locking::Taken { version, .. } = records.lock(found.at, worker.holder())? else {
            return Ok(Relocated::Busy);
        };
        let mut move_it = || {
            let record = Record::at(self.region(), found.at.place())?;
            // The key leads here as long as it is locked; if it did when it was.
            if version.is_removed() || record.has_past() || !self.leads_to(key, found.at)? {
                return Ok(Relocated::Busy);
            }
            let (to, value) = record.copy_out::<Self::InRecord>(worker)?;
            self.move_held(worker, key, found.at, to, version, &value).map(|_| Relocated::Moved)
        };
        let moved = move_it();
        match moved {
            Ok(Relocated::Moved) => {}
            // The directory is locked: it stays where it is.
            Err(KvError::Busy) => {
                records.unlock(found.at);
                return Ok(Relocated::Busy);
            }
            _ => records.unlock(found.at),
        }
        moved
    }

    /// Removes the record of an absent key from the table, if it is unlocked and unchanged since it
    /// was seen. Calls `going` while the record is locked, before its key stops leading to it.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{ForHolder, HashConfig, KvTable, Placed, Reaped, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// let Placed::Made(seen) = table.place::<ForHolder>(&mut worker, 7, b"seven", None, |_| ())? else { panic!("it is new") };
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

    /// Removes a record from the table, if it is unlocked and unchanged since it was seen.
    ///
    /// If its key is present, `present_since` is a turn from before it was seen, and the record's
    /// older versions are freed. Otherwise it must have no older versions. Any record that says
    /// that its key is absent may go, so nothing depends on the turn then.
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
            let locked = match record.lock_seen::<Self::InRecord>(seen, worker.holder())? {
                Ok(locked) => locked,
                Err(in_the_way) => return Ok(Err(in_the_way)),
            };
            // It may be the record of another key by now, with the same key word.
            if present_since.is_some_and(|since| !self.is_within(since)) {
                return Ok(Err(Reaped::Busy));
            }
            if record.has_past() {
                if present_since.is_none() {
                    // A snapshot may still need the older versions.
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

    /// Changes the entry that leads to a record by `change`, which locks the record. The caller may
    /// free the record's memory afterwards. [`Gone`](Reaped::Gone): the entry leads to another
    /// record.
    #[doc(hidden)]
    fn change_entry(
        &self,
        key: K::Key<'_>,
        at: Handle,
        change: impl for<'l, 'r> FnOnce(&'l Record<'r, E>) -> EntryChange<'l, 'r, E>,
    ) -> Result<Result<Class, Reaped>, KvError>;

    /// Calls `visit` with the rows of a range in ascending order, until it returns false. Returns
    /// whether it did. `None`: the table is not ordered.
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
