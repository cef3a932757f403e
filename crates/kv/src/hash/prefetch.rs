//! Prefetching of buckets and records, in steps.

use drtm_htm::{Engine, LINE_BYTES};
use drtm_rdma::Offset;

use super::HashTable;
use crate::{
    Handle,
    record::{PrefetchMask, keys::Keys},
    store::layout::BUCKET_BYTES,
};

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
