//! What transactions do with the table: find records, make records for keys that are to be inserted, write records that they hold, and take out those
//! of keys that are gone.

use drtm_htm::{Access, Engine, LINE_BYTES};
use drtm_rdma::{Offset, Region};

use super::{
    HashTable, Table,
    bucket::{Change, version_meta},
    chain::{Match, plainly},
    header,
    segments::Bucket,
};
use crate::{
    Fetched, Handle, Holder, KvError, Placed, Reaped, Reserved, Sighting, Version, Witness, Worker, floor,
    keys::Keys,
    layout::{BUCKET_BYTES, BUCKET_VERSIONS, Bits},
    record::{Lines, Look, Past, PastView, Record},
    room::{Nowhere, Room},
};

/// A bucket as it was when a key was not found there.
///
/// # Example
///
/// See [`HashTable::fetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketVersion {
    pub(super) at: Offset,
    pub(super) version: u32,
}

/// Where a key's bucket most probably is, and in which of its lines. A hint: it may be another's, or none, by the time that it is followed.
///
/// # Example
///
/// See [`HashTable::ask_for`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketHint(pub(super) Offset);

impl BucketHint {
    /// A line of a bucket.
    #[inline(always)]
    pub(super) fn of(bucket: Offset, line: usize) -> Self {
        Self(bucket + (line * LINE_BYTES) as u64)
    }

    /// Buckets begin at multiples of their size.
    pub(super) fn bucket(self) -> Offset {
        Offset::new(self.0.bytes() / BUCKET_BYTES * BUCKET_BYTES)
    }
}

/// Where a key's record most probably is. Hints all: whoever comes to a record looks whether it is the key's.
///
/// # Example
///
/// See [`HashTable::ask_for`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// In this bucket, which has been asked for.
    Bucket(BucketHint),
    /// The record, which has been asked for.
    Record(Handle),
    /// It has to be looked for; if it is there at all.
    Unknown,
}

impl Witness for BucketVersion {
    #[inline]
    fn holds_in<'m, E: Engine, A: Access<'m>>(&self, tx: &mut A, region: &'m Region<E>) -> Result<bool, A::Abort> {
        let Ok(bucket) = region.array(self.at) else { return Ok(false) };
        let now = tx.load(version_meta(bucket))?;
        // Not while it is locked: a slot may be found before the change that fills it is done.
        Ok(Bits::version(now) == self.version && !Bits::is_locked(now))
    }
}

impl BucketVersion {
    /// The bucket after the next change.
    pub(super) fn next(self) -> Self {
        Self { version: self.version.wrapping_add(1) & BUCKET_VERSIONS, ..self }
    }
}

/// What a change has done to a bucket: some of its keys may belong to another now.
///
/// # Example
///
/// See [`HashTable::fetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketChange {
    /// The bucket as it was: exactly so, up to the change.
    pub(super) before: BucketVersion,
    /// The one that was split off it.
    pub(super) split_off: Option<BucketVersion>,
}

impl BucketChange {
    /// Lets buckets that were seen follow a change of one's own: as long as nobody else changes them, they are unchanged.
    pub fn carry(&self, seen: &mut Vec<BucketVersion>) {
        let mut is_there = false;
        for bucket in seen.iter_mut().filter(|bucket| **bucket == self.before) {
            *bucket = self.before.next();
            is_there = true;
        }
        if is_there {
            seen.extend(self.split_off);
        }
    }
}

impl<E: Engine, K: Keys> HashTable<E, K> {
    /// Copies a key's value for a transaction of this holder, waiting while others have its record locked. If there is no record, gives the bucket
    /// in which it was looked for.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Fetched, HashConfig, Placed, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// let me = worker.holder();
    /// let Fetched::Nothing(bucket) = table.fetch(7, me, &mut Vec::new())? else { panic!("the table is empty") };
    /// assert!(store.records().is_unchanged(&bucket), "7 is still not there");
    ///
    /// // One's own insertion can be told from those of others.
    /// let mut seen = vec![bucket];
    /// table.place(&mut worker, 7, b"seven", |change| change.carry(&mut seen))?;
    /// assert!(!store.records().is_unchanged(&bucket) && store.records().is_unchanged(&seen[0]));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[inline(always)]
    pub fn fetch(
        &self,
        key: K::Key<'_>,
        holder: Holder,
        into: &mut impl Room,
    ) -> Result<Fetched<BucketVersion>, KvError> {
        if let Some((sight, record)) = self.table.sight::<K>(key)
            && let Some(sighting) = record.peek_sighting::<K>(key, holder, into)
            && sight.holds(self.table.engine())
        {
            return Ok(Fetched::Record(sighting));
        }
        let found = self.table.search_for::<K, _>(key, |record| record.observe::<K>(key, holder, into))?;
        Ok(found.map_or_else(Fetched::Nothing, Fetched::Record))
    }

    /// Asks for the memory of the buckets where keys' records most probably are found, as they are come to: the first step to where the records are, and
    /// [`locate`](Self::locate) the next. Between them there should be some time.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{HashConfig, Lines, Store, Version, Whereabouts};
    ///
    /// const WANTED: Lines = Lines::of(&[0..100]);
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// table.insert(&mut worker, 7, b"seven")?;
    /// table.insert(&mut worker, 8, b"eight")?;
    ///
    /// let (me, mut value) = (worker.holder(), Vec::new());
    /// let buckets: Vec<_> = table.ask_for([7, 8, 9].into_iter()).collect();
    /// for (key, bucket) in buckets {
    ///     match table.locate(key, bucket, &WANTED) {
    ///         Whereabouts::Record(at) => {
    ///             assert!(table.fetch_at(at, key, me, &mut value).is_some_and(|seen| seen.at == at));
    ///             assert_eq!(value.len(), 5);
    ///             assert!(table.fetch_at(at, key + 10, me, &mut value).is_none(), "it is another key's");
    ///             assert!(table.fetch_past_at(at, key, Version::new(1 << 40), &mut value).is_some());
    ///         }
    ///         // Further on in a chain, of which there is none here; or not there.
    ///         Whereabouts::Bucket(_) | Whereabouts::Unknown => assert_eq!(key, 9),
    ///     }
    /// }
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[inline(always)]
    pub fn ask_for<'k>(
        &self,
        keys: impl ExactSizeIterator<Item = K::Key<'k>>,
    ) -> impl ExactSizeIterator<Item = (K::Key<'k>, BucketHint)> {
        self.table.ask_for_buckets::<K>(keys)
    }

    /// Finds where a key's record most probably is, in a bucket that was [asked for](Self::ask_for), and asks for its memory, as far as it is wanted; or for the next
    /// bucket of the chain.
    ///
    /// # Example
    ///
    /// See [`ask_for`](Self::ask_for).
    #[inline(always)]
    pub fn locate(&self, key: K::Key<'_>, bucket: BucketHint, lines: &Lines) -> Whereabouts {
        self.table.ask_for_record::<K>(key, bucket, lines)
    }

    /// Copies a key's value for a transaction of this holder, from a record that was [located](Self::locate) before. `None` when the key is to be
    /// [looked for](Self::fetch): the record may be another's by now, or locked.
    ///
    /// # Example
    ///
    /// See [`locate`](Self::locate).
    #[inline(always)]
    pub fn fetch_at(&self, at: Handle, key: K::Key<'_>, holder: Holder, into: &mut impl Room) -> Option<Sighting> {
        let record = Record::at(self.table.region(), at.place()).ok()?;
        if K::FITS {
            return record.glance_for::<K>(K::word(key), holder, into);
        }
        match record.observe::<K>(key, holder, into) {
            Ok(Look::Found(sighting)) => Some(sighting),
            _ => None,
        }
    }

    /// The same for who only sees [what was before a version](Self::fetch_past).
    ///
    /// # Example
    ///
    /// See [`locate`](Self::locate).
    #[inline(always)]
    pub fn fetch_past_at(&self, at: Handle, key: K::Key<'_>, before: Version, into: &mut impl Room) -> Option<Past> {
        let record = Record::at(self.table.region(), at.place()).ok()?;
        let mut view = PastView::new(before);
        if K::FITS
            && let Some(past) = record.glance_past::<K>(K::word(key), &view, into)
        {
            return Some(past);
        }
        match record.observe_past::<K>(key, &mut view, into) {
            Ok(Look::Found(past)) => Some(past),
            _ => None,
        }
    }

    /// Copies the value that a key had before a version: for who knows that all earlier ones have been written, or are being written under the record's lock, and
    /// that what he asks for has been [kept](crate::Records::keep).
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Fetched, HashConfig, Kept, Past, Store, Version};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// let first = table.insert(&mut worker, 7, b"seven")?.expect("it is new");
    ///
    /// // Who writes the row keeps what it was.
    /// let (me, records, mut value) = (worker.holder(), store.records(), Vec::new());
    /// let Fetched::Record(seen) = table.fetch(7, me, &mut value)? else { panic!("it is there") };
    /// records.lock(seen.at, me)?;
    /// assert!(matches!(records.keep(&mut worker, seen.at, true)?, Kept::Copy { .. }));
    /// table.write_held(seen.at, Version::new(1_000), b"SEVEN")?;
    ///
    /// assert_eq!(table.fetch_past(7, Version::new(1_000), &mut value)?, Past::Present(first));
    /// assert_eq!(value, b"seven");
    /// assert_eq!(table.fetch_past(7, Version::new(1_001), &mut value)?, Past::Present(Version::new(1_000)));
    /// assert_eq!(table.fetch_past(7, first, &mut value)?, Past::Absent);
    ///
    /// // And forgets it when nobody asks for it any longer.
    /// records.lock(seen.at, me)?;
    /// assert!(records.forget(&mut worker, seen.at, |_, _| false)? > 0);
    /// records.unlock(seen.at);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    pub fn fetch_past(&self, key: K::Key<'_>, before: Version, into: &mut impl Room) -> Result<Past, KvError> {
        if let Some((sight, record)) = self.table.sight::<K>(key)
            && let Some(past) = record.peek_past::<K>(key, before, into)
            && sight.holds(self.table.engine())
        {
            return Ok(past);
        }
        let mut view = PastView::new(before);
        let found = self.table.search::<K, _>(key, |record| record.observe_past::<K>(key, &mut view, into))?;
        Ok(found.unwrap_or(Past::Absent))
    }

    /// Finds a key's record, without its value, where that is quick: for who expects the key to be there. `None` tells nothing.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{HashConfig, Placed, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// table.insert(&mut worker, 7, b"seven")?;
    /// let me = worker.holder();
    /// let seen = table.find(7, me).expect("it is alone in its bucket");
    /// assert_eq!(table.place(&mut worker, 7, b"", |_| ())?, Placed::Found(seen));
    /// assert_eq!(table.find(8, me), None);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn find(&self, key: K::Key<'_>, holder: Holder) -> Option<Sighting> {
        let (sight, record) = self.table.sight::<K>(key)?;
        let sighting = record.peek_sighting::<K>(key, holder, &mut Nowhere)?;
        sight.holds(self.table.engine()).then_some(sighting)
    }

    /// Finds a key's record, or makes one, which says that the key is not there, and has this value already for when it will be. Tells what that has done to
    /// buckets.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    ///
    /// # Example
    ///
    /// See [`Records`](crate::Records).
    pub fn place(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
        mut note: impl FnMut(BucketChange),
    ) -> Result<Placed, KvError> {
        let holder = worker.holder();
        loop {
            // Not by the straight way: whoever expects the key to be there looks for it so before.
            let missed =
                match self.table.search_for::<K, _>(key, |record| record.observe::<K>(key, holder, &mut Nowhere))? {
                    Ok(found) => return Ok(Placed::Found(found)),
                    Err(missed) => missed,
                };
            let removed = |number| Version::new(number).removed();
            let new = self.table.put_new::<K>(worker, key, value, Some(missed), removed)?;
            if let Some(new) = new {
                note(BucketChange { before: new.before, split_off: None });
                let counted = self.table.count(worker, 1)?;
                self.table.grow_if_full::<K>(counted, note)?;
                return Ok(Placed::Made(Sighting { at: Handle::of(new.place), version: new.version }));
            }
        }
    }

    /// Whether a key's record is this one, which the caller has locked, so that it stays so. Waits for nobody's lock.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{HashConfig, Placed, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// let Placed::Made(seen) = table.place(&mut worker, 7, b"seven", |_| ())? else { panic!("it is new") };
    /// store.records().lock(seen.at, worker.holder())?;
    /// assert!(table.leads_to(7, seen.at)? && !table.leads_to(8, seen.at)?);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    pub fn leads_to(&self, key: K::Key<'_>, at: Handle) -> Result<bool, KvError> {
        let found = self
            .table
            .search::<K, _>(key, |record| Ok(record.identify::<K>(key)?.map(|()| Handle::of(record.place()))))?;
        Ok(found == Some(at))
    }

    /// Takes memory for a value of this length, for a record that the caller has locked: none if it has room where it is.
    ///
    /// # Errors
    ///
    /// As for [`update`](Self::update).
    pub fn reserve(&self, worker: &mut Worker<E>, at: Handle, length: usize) -> Result<Option<Reserved>, KvError> {
        Record::at(self.table.region(), at.place())?.reserve::<K>(worker, length)
    }

    /// Writes a record that the caller has locked, in a version of its own choice, and unlocks it. It must have room for the value.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// See [`Records`](crate::Records).
    #[inline]
    pub fn write_held(&self, at: Handle, version: Version, value: &[u8]) -> Result<(), KvError> {
        Record::at(self.table.region(), at.place())?.write_held::<K>(version, value)
    }

    /// The same in [other memory](Self::reserve). Gives the record's handle there.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    pub fn move_held(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        at: Handle,
        to: Reserved,
        version: Version,
        value: &[u8],
    ) -> Result<Handle, KvError> {
        let table = &*self.table;
        let record = Record::at(table.region(), at.place())?;
        let (_, main) = table.lock_chain(K::hash(K::word(key)))?;
        let moved = table.slot_at::<K>(main, key, at).and_then(|found| {
            let found = found.ok_or_else(|| lost(at))?;
            let locked = record.held::<K>()?;
            let (class, place) = (locked.class(), locked.copy_to::<K>(to, key, version, value)?);
            plainly(table.engine(), |tx| Change(found.bucket).point(tx, found.slot, place));
            locked.retire();
            Ok((class, place))
        });
        table.unlock_chain(main, Vec::new());
        let (class, place) = moved?;
        worker.free(class, at.place().word);
        Ok(Handle::of(place))
    }

    /// Takes out the record of a key that is gone, if it is still as it was seen and nobody has it locked.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{HashConfig, Placed, Reaped, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// let Placed::Made(seen) = table.place(&mut worker, 7, b"seven", |_| ())? else { panic!("it is new") };
    /// assert_eq!(table.reap(&mut worker, 7, seen)?, Reaped::Out);
    /// assert_eq!(table.reap(&mut worker, 7, seen)?, Reaped::Gone, "it is out already");
    /// assert_eq!(table.count()?, 0);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    pub fn reap(&self, worker: &mut Worker<E>, key: K::Key<'_>, seen: Sighting) -> Result<Reaped, KvError> {
        let table = &*self.table;
        let (_, main) = table.lock_chain(K::hash(K::word(key)))?;
        let mut emptied = Vec::new();
        let taken = table.slot_at::<K>(main, key, seen.at).and_then(|found| {
            let Some(found) = found else { return Ok(Err(Reaped::Gone)) };
            let record = Record::at(table.region(), found.place)?;
            let locked = match record.lock_seen::<K>(seen, worker.holder())? {
                Ok(locked) => locked,
                Err(reaped) => return Ok(Err(reaped)),
            };
            let class = locked.class();
            floor::raise(table.engine(), table.header(header::FLOOR)?, seen.version);
            plainly(table.engine(), |tx| Change(found.bucket).clear(tx, found.slot));
            locked.retire();
            if !std::ptr::eq(found.bucket, main) {
                emptied = table.unlink_empty(main)?;
            }
            Ok(Ok(class))
        });
        table.unlock_chain(main, emptied);
        let class = match taken? {
            Ok(class) => class,
            Err(reaped) => return Ok(reaped),
        };
        worker.free(class, seen.at.place().word);
        table.count(worker, -1)?;
        Ok(Reaped::Out)
    }
}

/// A record that was locked, and yet is not where it must be.
fn lost(at: Handle) -> KvError {
    KvError::Inconsistent { at: Offset::new(8 * at.place().word), what: "a record is not in its key's chain" }
}

impl<E: Engine> Table<E> {
    /// The slot in a locked chain that leads to a record.
    fn slot_at<'t, K: Keys>(
        &'t self,
        main: &'t Bucket,
        key: K::Key<'_>,
        at: Handle,
    ) -> Result<Option<Match<'t>>, KvError> {
        let mut slot = None;
        self.survey::<K>(main, K::word(key), |found| {
            if found.place == at.place() {
                slot = Some(found);
            }
        })?;
        Ok(slot)
    }
}
