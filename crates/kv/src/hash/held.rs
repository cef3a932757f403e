//! What a hash table does as [a table](KvTable), and where its keys most probably are.

use std::{marker::PhantomData, sync::Arc};

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
    Current, ForHolder, GuardChange, Handle, KvError, PhantomGuard, Placed, ReadEntry, Reaped, Reserved, Store, Turn,
    Version, Visibility, Worker, floor,
    keys::Keys,
    layout::{BUCKET_BYTES, Bits},
    patience::Patience,
    record::{Lines, Record, Shape, WholeKey},
    room::{Nowhere, Room},
    table::{KvTable, sealed::Sealed},
};

/// A bucket as it was when a key was not found there.
///
/// # Example
///
/// See [`KvTable::read`].
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

impl PhantomGuard for BucketVersion {
    #[inline(always)]
    fn place(&self) -> Offset {
        self.at
    }

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
        Self { version: Bits::next_version(self.version), ..self }
    }
}

/// What a change has done to a bucket.
pub(super) type BucketChange = GuardChange<BucketVersion>;

impl<E: Engine, K: Keys> HashTable<E, K> {
    /// Asks for the memory of the buckets where keys' records most probably are found, as they are come to: the first step to where the records are, and
    /// [`locate`](Self::locate) the next. Between them there should be some time.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{AsOf, ForHolder, HashConfig, KvTable, Lines, Store, Version, Whereabouts};
    ///
    /// const WANTED: Lines = Lines::of(&[0..100]);
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// table.insert(&mut worker, 7, b"seven")?;
    /// table.insert(&mut worker, 8, b"eight")?;
    ///
    /// let (me, mut value) = (ForHolder(worker.holder()), Vec::new());
    /// let buckets: Vec<_> = table.ask_for([7, 8, 9].into_iter()).collect();
    /// for (key, bucket) in buckets {
    ///     match table.locate(key, bucket, &WANTED) {
    ///         Whereabouts::Record(at) => {
    ///             assert!(table.read_at(at, key, me, &mut value).is_some_and(|seen| seen.at == at));
    ///             assert_eq!(value.len(), 5);
    ///             assert!(table.read_at(at, key + 10, me, &mut value).is_none(), "it is another key's");
    ///             assert!(table.read_at(at, key, AsOf::new(Version::new(1 << 40)), &mut value).is_some());
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
}

impl<E: Engine, K: Keys> Sealed for HashTable<E, K> {}

impl<E: Engine, K: Keys> KvTable<E, K> for HashTable<E, K> {
    type Guard = BucketVersion;
    type Kept = K;

    #[inline(always)]
    fn store(&self) -> &Store<E> {
        &self.table.store
    }

    fn patience(&self) -> Patience {
        self.table.patience
    }

    #[inline(always)]
    fn region(&self) -> &Region<E> {
        self.table.region()
    }

    fn location(&self) -> Offset {
        self.table.at
    }

    fn impatient(&self) -> Self {
        let Table { store, at, numbering, grows_at, checked, .. } = &*self.table;
        let table = Table { patience: Patience::Short, ..Table::new(store, *at, *numbering, *grows_at, *checked) };
        Self { table: Arc::new(table), keys: PhantomData }
    }

    fn count(&self) -> Result<u64, KvError> {
        self.table.keys()
    }

    #[inline(always)]
    fn read<V: Visibility>(
        &self,
        key: K::Key<'_>,
        view: V,
        into: &mut impl Room,
    ) -> Result<Result<V::Found, BucketVersion>, KvError> {
        self.table.read::<K, V>(key, view, into)
    }

    #[inline(always)]
    fn try_read<V: Visibility>(
        &self,
        key: K::Key<'_>,
        view: &V,
        into: &mut impl Room,
    ) -> Option<Result<V::Found, BucketVersion>> {
        self.table.try_read::<K, V>(key, view, into)
    }

    fn insert(&self, worker: &mut Worker<E>, key: K::Key<'_>, value: &[u8]) -> Result<Option<Version>, KvError> {
        let read = |since| Ok((self.read(key, Current, &mut Nowhere)?, since));
        let (Err(missed), since) = self.undisturbed(read)? else { return Ok(None) };
        // An htm transaction needs no lock.
        let missed = (!self.table.engine().has_regions()).then_some((missed, since));
        let new = self.table.put_new::<K>(worker, key, value, missed, Version::new, |_| ())?;
        Ok(new.map(|new| new.version))
    }

    #[inline]
    fn update(&self, worker: &mut Worker<E>, key: K::Key<'_>, value: &[u8]) -> Result<Option<Version>, KvError> {
        let shape = Shape::of::<K>(key, value.len(), self.table.checked)?;
        match self.table.replace::<K>(key, worker.holder(), shape, value) {
            Some(written) => Ok(Some(written)),
            None => self.update_slow(worker, key, value),
        }
    }

    fn remove(&self, worker: &mut Worker<E>, key: K::Key<'_>) -> Result<Option<Version>, KvError> {
        let removed = self.table.remove::<K>(worker, key)?;
        if removed.is_some() {
            self.table.count(worker, -1)?;
        }
        Ok(removed)
    }

    fn place(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
        mut missed: Option<(BucketVersion, Turn)>,
        mut note: impl FnMut(BucketChange),
    ) -> Result<Placed, KvError> {
        let mut view = ForHolder(worker.holder());
        loop {
            // Not by the fast path: a caller that expects the key to be there has tried that.
            let since = self.turn();
            let read = match missed.take() {
                Some(missed) => Err(missed),
                None => self
                    .table
                    .search::<K, _>(key, |record| record.read(WholeKey::<K>(key), &mut view, &mut Nowhere))?
                    .map_err(|missed| (missed, since)),
            };
            let missed = match read {
                Ok(found) => return Ok(Placed::Found(found)),
                Err(missed) => missed,
            };
            let removed = |number| Version::new(number).removed();
            if let Some(new) = self.table.put_new::<K>(worker, key, value, Some(missed), removed, &mut note)? {
                return Ok(Placed::Made(new));
            }
        }
    }

    fn move_held(
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
        let (_, main) = match table.lock_chain(K::hash(K::word(key))) {
            Ok(locked) => locked,
            Err(error) => {
                worker.give_back(to);
                return Err(error);
            }
        };
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

    fn reap(&self, worker: &mut Worker<E>, key: K::Key<'_>, seen: ReadEntry) -> Result<Reaped, KvError> {
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
