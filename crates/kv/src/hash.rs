//! The cluster-chaining hash table: buckets of eight keys, chained where they overflow, split one
//! at a time as the table grows.
//!
//! # Finding a key
//!
//! A key's hash names its bucket, according to how often that bucket has been split (see
//! `numbering`). The bucket itself stores this count: its *depth*. A search starts at the bucket
//! that a possibly outdated table size suggests. If it finds the key, it is done. If not, the
//! bucket's depth says whether it was the right bucket. A search never concludes that a key is
//! absent from a bucket that was split, or that changed during the search. Readers take no locks
//! and never wait.
//!
//! # Growing
//!
//! The table grows by linear hashing. Buckets are split in the order of their numbers, so the table
//! grows by one bucket at a time at a constant occupancy. A split locks the one bucket that it
//! divides. First the new bucket gets the keys that move, and becomes valid. Then the old bucket
//! increments its depth. Then it drops the moved keys. So each key can be found at each moment.
//! Only the thread that holds the lock of the next bucket to split increments the number of
//! buckets, after the split is complete. So a split that fails for want of memory has changed
//! nothing.
//!
//! # Changing a chain
//!
//! A chain is changed under its bucket's lock. Locks are taken in the order bucket, record: a
//! thread that holds a record's lock never waits for a bucket.

mod bucket;
mod chain;
mod change;
mod empty;
mod grow;
mod guard;
mod hint;
mod numbering;
#[cfg(feature = "cluster")]
mod peer;
mod prefetch;
mod search;
mod segments;
mod visit;

use guard::BucketChange;
pub use guard::BucketVersion;
#[cfg(feature = "cluster")]
pub use peer::HashPeer;
pub use prefetch::{BucketHint, Whereabouts};
pub use visit::Sweep;

use std::{marker::PhantomData, sync::Arc};

use drtm_htm::Engine;
use drtm_rdma::{Offset, Region};
use parking_lot::Mutex;

use crate::{
    KvError, Store, Turn,
    record::keys::{Inline, Keys},
    store::layout::{BUCKET_BYTES, SLOTS},
    table::base::Base,
};
use hint::Hint;
use numbering::Numbering;
use segments::Segments;

/// The initial size of a hash table, and whether it grows.
///
/// # Example
///
/// ```
/// use drtm_kv::HashConfig;
///
/// let config = HashConfig::for_keys(1_000_000).with_occupancy(0.9);
/// assert_eq!(config.keys, 1_000_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct HashConfig {
    /// The number of keys that the table has room for at first.
    pub keys: u64,
    /// The ratio of keys to slots at which the table is sized and grows.
    pub occupancy: f64,
    /// Whether it grows beyond that. A table that does not grow gets longer chains.
    pub grows: bool,
    /// Whether peers read its records by one-sided READs. Its records have checksums then.
    pub for_peers: bool,
}

impl HashConfig {
    /// Makes a configuration for this many keys, at an occupancy of three quarters, that grows.
    ///
    /// # Example
    ///
    /// See [`HashConfig`].
    #[must_use]
    pub const fn for_keys(keys: u64) -> Self {
        Self { keys, occupancy: 0.75, grows: true, for_peers: false }
    }

    /// Sets the occupancy.
    ///
    /// # Example
    ///
    /// See [`HashConfig`].
    #[must_use]
    pub const fn with_occupancy(self, occupancy: f64) -> Self {
        Self { occupancy, ..self }
    }

    /// Disables growing.
    #[must_use]
    pub const fn fixed(self) -> Self {
        Self { grows: false, ..self }
    }

    /// Lets [peers read](crate::RecordPeer) the table's records. Each record takes eight more
    /// bytes, and a checksum is computed at each write.
    #[must_use]
    pub const fn for_peers(self) -> Self {
        Self { for_peers: true, ..self }
    }

    /// Returns the average number of keys in a bucket.
    fn keys_per_bucket(&self) -> f64 {
        SLOTS as f64 * self.occupancy
    }

    fn buckets(&self) -> Result<u64, KvError> {
        if !(0.01..=4.0).contains(&self.occupancy) {
            return Err(KvError::config("the occupancy of a hash table", "from 0.01 to 4", self.occupancy));
        }
        let buckets = (self.keys as f64 / self.keys_per_bucket()).ceil() as u64;
        Ok(buckets.clamp(segments::FIRST, segments::MOST))
    }
}

impl Default for HashConfig {
    /// Makes a configuration for a small table that grows.
    fn default() -> Self {
        Self::for_keys(0)
    }
}

/// The words of a table's header in its region, behind those of [every table](crate::table::base).
///
/// ```text
/// word 1   keys per bucket at which it grows, as the bits of an f64; zero for never
///      2   buckets
///      4   overflow buckets that were ever used
///      6   buckets at the beginning
///      7.. segments of buckets, then segments of overflow buckets
/// then, from a line's boundary, a line for each shard of the number of keys
/// ```
mod header {
    use drtm_htm::LINE_WORDS;

    use super::segments;
    use crate::table::base::{COUNTER_WORDS, Header};

    pub(super) const GROWS_AT: usize = 1;
    pub(super) const BUCKETS: usize = 2;
    pub(super) const OVERFLOWS: usize = 4;
    pub(super) const BASE: usize = 6;
    pub(super) const MAIN: usize = 7;
    pub(super) const OVERFLOW: usize = MAIN + segments::HEADER_WORDS;
    pub(super) const KEYS: usize = (OVERFLOW + segments::HEADER_WORDS).next_multiple_of(LINE_WORDS);
    pub(super) const HEADER: Header = Header { words: KEYS + COUNTER_WORDS, align: 128, counter: KEYS };

    /// The first word. Its last byte has the code of the keys.
    pub(super) const HASH_TABLE: u64 = u64::from_be_bytes(*b"drtmh1\0\0");
}

/// Returns the first word of the header of a table with these keys.
pub(crate) const fn kind<K: Keys>() -> u64 {
    header::HASH_TABLE | K::CODE
}

/// A hash table in registered memory. Clones are handles of the same table.
///
/// Values are byte strings of up to [`MAX_VALUE`](crate::MAX_VALUE) bytes. All operations are
/// linearizable.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, KvTable, Store};
///
/// let store = Store::in_memory(NoHtm, 64 << 20)?;
/// let table = store.hash_table(HashConfig::default())?;
/// let mut worker = store.worker()?;
/// for key in 0..1_000 {
///     assert!(table.insert(&mut worker, key, &key.to_le_bytes())?.is_some());
/// }
/// assert!(table.insert(&mut worker, 3, b"again")?.is_none(), "it is there");
/// assert!(table.update(&mut worker, 3, b"changed")?.is_some());
/// assert!(table.remove(&mut worker, 4)?.is_some());
/// assert_eq!((table.contains(3)?, table.contains(4)?, table.count()?), (true, false, 999));
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
#[derive(Clone, Debug)]
pub struct HashTable<E: Engine, K: Keys = Inline> {
    table: Arc<Table<E>>,
    keys: PhantomData<K>,
}

#[derive(Debug)]
struct Table<E: Engine> {
    base: Base<E>,
    numbering: Numbering,
    /// The number of buckets when this handle last looked.
    hint: Hint,
    main: Segments,
    overflow: Segments,
    free_overflows: Mutex<Vec<u64>>,
    /// The number of keys per bucket at which a bucket is added. `None`: the table does not grow.
    grows_at: Option<f64>,
}

impl<E: Engine> Store<E> {
    /// Creates a hash table with keys of eight bytes.
    ///
    /// # Errors
    ///
    /// When the configuration is invalid, or memory cannot be allocated.
    pub fn hash_table(&self, config: HashConfig) -> Result<HashTable<E, Inline>, KvError> {
        self.hash_table_of(config)
    }

    /// Creates a hash table with keys of this kind.
    ///
    /// # Errors
    ///
    /// When the configuration is invalid, or memory cannot be allocated.
    #[inline(never)]
    pub fn hash_table_of<K: Keys>(&self, config: HashConfig) -> Result<HashTable<E, K>, KvError> {
        let buckets = config.buckets()?;
        // Checked before any memory is taken: a table that fails to be created would leak it.
        let (asked, region) = (buckets.saturating_mul(BUCKET_BYTES), self.region());
        if asked > region.capacity() - region.allocated() {
            return Err(segments::full(self, asked));
        }
        let base = Base::create(self, header::HEADER, config.for_peers)?;
        base.set(header::BASE, buckets)?;
        base.set(header::GROWS_AT, if config.grows { config.keys_per_bucket().to_bits() } else { 0 })?;
        let table = Table::over(base)?;
        table.make_buckets(buckets)?;
        table.base.set(header::BUCKETS, buckets)?;
        table.base.publish(kind::<K>())?;
        Ok(HashTable { table: Arc::new(table), keys: PhantomData })
    }

    /// Opens a hash table that was [created](Self::hash_table_of) in this region, by this handle or
    /// another.
    ///
    /// # Errors
    ///
    /// When there is no hash table at that place, or one with other keys.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Bytes, HashConfig, Inline, KvError, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let made = store.hash_table(HashConfig::default())?;
    /// made.insert(&mut store.worker()?, 1, b"one")?;
    /// let opened = store.open_hash_table::<Inline>(made.location())?;
    /// assert!(opened.contains(1)?);
    /// assert!(matches!(store.open_hash_table::<Bytes>(made.location()), Err(KvError::NotThisTable { .. })));
    /// # Ok::<(), KvError>(())
    /// ```
    pub fn open_hash_table<K: Keys>(&self, at: Offset) -> Result<HashTable<E, K>, KvError> {
        let base = Base::open(self, at, header::HEADER, kind::<K>())?;
        Ok(HashTable { table: Arc::new(Table::over(base)?), keys: PhantomData })
    }
}

impl<E: Engine, K: Keys> HashTable<E, K> {
    /// Returns the number of main buckets, without overflow buckets.
    ///
    /// # Errors
    ///
    /// [`KvError::Corrupt`] when the table's header is out of bounds.
    pub fn buckets(&self) -> Result<u64, KvError> {
        self.table.buckets()
    }
}

impl<E: Engine> Table<E> {
    /// Makes the handle of a table from its header.
    #[inline(never)]
    fn over(base: Base<E>) -> Result<Self, KvError> {
        let numbering = Numbering::new(base.get(header::BASE)?).ok_or(KvError::NoBucket { bucket: 0 })?;
        let grows_at = Some(base.get(header::GROWS_AT)?).filter(|bits| *bits != 0).map(f64::from_bits);
        Ok(Self::new(base, numbering, grows_at))
    }

    fn new(base: Base<E>, numbering: Numbering, grows_at: Option<f64>) -> Self {
        let [main, overflow] =
            [header::MAIN, header::OVERFLOW].map(|word| Segments::new(&base.region, base.at + 8 * word as u64));
        let hint = Hint::new(numbering);
        Self { base, numbering, hint, main, overflow, free_overflows: Mutex::default(), grows_at }
    }

    fn impatient(&self) -> Self {
        Self::new(self.base.impatient(), self.numbering, self.grows_at)
    }

    #[inline(always)]
    fn region(&self) -> &Region<E> {
        &self.base.region
    }

    #[inline(always)]
    fn engine(&self) -> &E {
        self.base.engine()
    }

    #[inline(always)]
    fn turn(&self) -> Turn {
        Turn::of(self.region())
    }

    /// Returns whether no counter that was read since this turn can have wrapped around.
    #[inline(always)]
    fn is_within(&self, since: Turn) -> bool {
        since.holds_in(self.region())
    }

    /// Returns the number of buckets. A reader that learns of a bucket from this number finds it
    /// filled. Otherwise it could look for the bucket's keys before they are there, although its
    /// depth is set.
    #[inline(always)]
    fn buckets(&self) -> Result<u64, KvError> {
        self.base.get(header::BUCKETS)
    }
}
