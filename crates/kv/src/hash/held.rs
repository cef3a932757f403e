//! The [table operations](KvTable) of a hash table, and prefetching of its buckets and records.

use std::{marker::PhantomData, sync::Arc};

use drtm_htm::{Access, Engine, LINE_BYTES};
use drtm_rdma::{Offset, Region};

use super::{HashTable, bucket::version_meta};
use crate::{
    GuardChange, Handle, KvError, PhantomGuard, Placed, Placing, Reaped, Turn, Version, Visibility, Worker,
    record::{
        PrefetchMask, Record, Shape, WholeKey,
        keys::Keys,
        value_sink::{NoValue, ValueSink},
    },
    store::{
        heap::Class,
        layout::{BUCKET_BYTES, Bits},
    },
    table::{EntryChange, KvTable, base::Base, sealed::Sealed},
};

/// A bucket's version when a key was not found in it: a phantom guard.
///
/// # Example
///
/// See [`KvTable::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketVersion {
    pub(super) at: Offset,
    pub(super) version: u32,
}

impl BucketVersion {
    /// Returns the bucket's place and version as words, for a message.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_kv::BucketVersion;
    ///
    /// assert_eq!(BucketVersion::from_words(4096, 7).to_words(), (4096, 7));
    /// ```
    #[must_use]
    pub const fn to_words(self) -> (u64, u64) {
        (self.at.bytes(), self.version as u64)
    }

    /// Makes the guard from its [words](Self::to_words). Arbitrary words make a guard that holds
    /// for no bucket, or for a bucket that has that version.
    ///
    /// # Example
    ///
    /// See [`to_words`](Self::to_words).
    #[must_use]
    pub const fn from_words(at: u64, version: u64) -> Self {
        Self { at: Offset::new(at), version: version as u32 }
    }
}

/// The probable place of a key's bucket, and the line in it. It is only a hint: the key may be
/// elsewhere, or absent, when the hint is followed.
///
/// # Example
///
/// See [`HashTable::prefetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketHint(pub(super) Offset);

impl BucketHint {
    /// Makes the hint of a line of a bucket.
    #[inline(always)]
    pub(super) fn of(bucket: Offset, line: usize) -> Self {
        Self(bucket + (line * LINE_BYTES) as u64)
    }

    /// Returns the bucket's place. Buckets begin at multiples of their size.
    pub(super) fn bucket(self) -> Offset {
        Offset::new(self.0.bytes() / BUCKET_BYTES * BUCKET_BYTES)
    }
}

/// The probable place of a key's record. It is only a hint: a reader of the record checks its key.
///
/// # Example
///
/// See [`HashTable::prefetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// The key may be in this bucket, which has been prefetched.
    Bucket(BucketHint),
    /// The record, which has been prefetched.
    Record(Handle),
    /// The key must be looked up. It may be absent.
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
        // A locked bucket does not hold: a slot may be found before the change that fills it
        // completes.
        Ok(Bits::version(now) == self.version && !Bits::is_locked(now))
    }
}

impl BucketVersion {
    /// Returns the bucket's version after the next change.
    pub(super) fn next(self) -> Self {
        Self { version: Bits::next_version(self.version), ..self }
    }
}

/// The change of a bucket by an insertion or a split.
pub(super) type BucketChange = GuardChange<BucketVersion>;

impl<E: Engine, K: Keys> HashTable<E, K> {
    /// Prefetches the buckets where keys' records probably are, as the iterator advances. This is
    /// the first step of a prefetch, and [`locate`](Self::locate) the next. Some time should pass
    /// between them.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{AsOf, ForHolder, HashConfig, KvTable, PrefetchMask, Store, Version, Whereabouts};
    ///
    /// const WANTED: PrefetchMask = PrefetchMask::of(&[0..100]);
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// table.insert(&mut worker, 7, b"seven")?;
    /// table.insert(&mut worker, 8, b"eight")?;
    ///
    /// let (me, mut value) = (ForHolder(worker.holder()), Vec::new());
    /// let buckets: Vec<_> = table.prefetch([7, 8, 9].into_iter()).collect();
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
    pub fn prefetch<'k>(
        &self,
        keys: impl ExactSizeIterator<Item = K::Key<'k>>,
    ) -> impl ExactSizeIterator<Item = (K::Key<'k>, BucketHint)> {
        self.table.prefetch_buckets::<K>(keys)
    }

    /// Finds the probable place of a key's record in a [prefetched](Self::prefetch) bucket.
    /// Prefetches these lines of the record, or the next bucket of the chain.
    ///
    /// # Example
    ///
    /// See [`prefetch`](Self::prefetch).
    #[inline(always)]
    pub fn locate(&self, key: K::Key<'_>, bucket: BucketHint, lines: &PrefetchMask) -> Whereabouts {
        self.table.prefetch_record::<K>(key, bucket, lines)
    }
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
