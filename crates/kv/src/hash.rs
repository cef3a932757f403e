//! The cluster-chaining hash table: buckets of eight keys, chained where they overflow, split one at a time as the table grows.
//!
//! # Finding a key
//!
//! A key's hash names its bucket by its lowest bits; how many of them, the bucket itself says (its *depth*). A search starts where the
//! table's size suggests, which may be out of date. If it finds the key, that is that. If not, the bucket says whether
//! it was the right one: absence is never concluded from a bucket that has been split, or that changed during the search. Readers
//! take no locks and wait for nobody.
//!
//! # Growing
//!
//! Linear hashing: bucket `2^d + n` is split off bucket `n`, in the order of numbers, so the table grows by one bucket at a
//! time and its occupancy stays what it was. A split locks the one bucket that it divides. First the new bucket gets the keys
//! that move, and becomes valid; then the old one says that it is one bit deeper; then it drops them. At each moment each key can be found.
//! Only who holds the lock of the bucket whose turn it is moves the turn on, when all is done, so a split that fails for want
//! of memory has changed nothing.
//!
//! # Changing a chain
//!
//! Under the bucket's lock, or, for an insertion where there is transactional memory, in a region that would abort if the lock were
//! held. Locks are taken in the order bucket, record; nobody waits for a bucket while holding a record.

mod bucket;
mod chain;
mod change;
mod grow;
mod peer;
mod search;
mod segments;
mod visit;

pub use peer::HashPeer;

use std::{marker::PhantomData, sync::Arc};

use drtm_htm::{Engine, LINE_WORDS, Word};
use drtm_rdma::{Offset, Region};
use parking_lot::Mutex;

use crate::{
    KvError, Read, Store, Version, Worker, counter, floor,
    keys::{Inline, Keys},
    layout::SLOTS,
    put::update_or_insert,
    record::{Look, Shape},
};
use segments::Segments;

/// How a hash table begins, and whether it grows.
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
    /// Keys that the table has room for at first.
    pub keys: u64,
    /// Keys over slots, at which it has room.
    pub occupancy: f64,
    /// Whether it grows beyond that. One that does not gets longer chains.
    pub grows: bool,
}

impl HashConfig {
    /// Room for so many keys at an occupancy of three quarters, and growing.
    #[must_use]
    pub const fn for_keys(keys: u64) -> Self {
        Self { keys, occupancy: 0.75, grows: true }
    }

    /// The same at another occupancy.
    #[must_use]
    pub const fn with_occupancy(self, occupancy: f64) -> Self {
        Self { occupancy, ..self }
    }

    /// The same without growing.
    #[must_use]
    pub const fn fixed(self) -> Self {
        Self { grows: false, ..self }
    }

    /// Keys in a bucket, on average.
    fn keys_per_bucket(&self) -> f64 {
        SLOTS as f64 * self.occupancy
    }

    fn buckets(&self) -> Result<u64, KvError> {
        if !(0.01..=4.0).contains(&self.occupancy) {
            return Err(KvError::Config {
                what: "the occupancy of a hash table",
                must_be: "from 0.01 to 4",
                is: self.occupancy.to_string(),
            });
        }
        let buckets = (self.keys as f64 / self.keys_per_bucket()).ceil() as u64;
        Ok(buckets.clamp(segments::FIRST, segments::MOST))
    }
}

impl Default for HashConfig {
    /// Small, and growing.
    fn default() -> Self {
        Self::for_keys(0)
    }
}

/// Words of a table's header in its region.
///
/// ```text
/// word 0   kind of table and of keys, and the format of both
///      1   keys per bucket at which it grows, as the bits of an f64; zero for never
///      2   buckets
///      3   floor of versions
///      4   overflow buckets that were ever used
///      5   zero
///      6.. segments of buckets, then segments of overflow buckets
/// then, from a line's boundary, a line for each shard of the number of keys
/// ```
mod header {
    use super::segments;

    pub(super) const KIND: usize = 0;
    pub(super) const GROWS_AT: usize = 1;
    pub(super) const BUCKETS: usize = 2;
    pub(super) const FLOOR: usize = 3;
    pub(super) const OVERFLOWS: usize = 4;
    pub(super) const MAIN: usize = 6;
    pub(super) const OVERFLOW: usize = MAIN + segments::HEADER_WORDS;
    pub(super) const KEYS: usize = (OVERFLOW + segments::HEADER_WORDS).next_multiple_of(super::LINE_WORDS);
    pub(super) const WORDS: usize = KEYS + crate::counter::WORDS;

    /// The first word, with the code of the keys in its last byte.
    pub(super) const HASH_TABLE: u64 = u64::from_be_bytes(*b"drtmh1\0\0");
}

/// A hash table over registered memory. Clones are the same table.
///
/// Values are byte strings of up to [`MAX_VALUE`](crate::MAX_VALUE) bytes. All operations are linearizable.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, Store};
///
/// let store = Store::in_memory(NoHtm, 64 << 20)?;
/// let table = store.hash_table(HashConfig::default())?;
/// let mut worker = store.worker();
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
    store: Store<E>,
    at: Offset,
    main: Segments,
    overflow: Segments,
    free_overflows: Mutex<Vec<u64>>,
    /// Keys per bucket at which a bucket is added.
    grows_at: Option<f64>,
}

impl<E: Engine, K: Keys> HashTable<E, K> {
    pub(crate) fn create(store: &Store<E>, config: HashConfig) -> Result<Self, KvError> {
        let buckets = config.buckets()?;
        let region = store.region();
        let at = region.extend(8 * header::WORDS as u64, 128)?;
        let grows_at = if config.grows { config.keys_per_bucket().to_bits() } else { 0 };
        let table = Table::new(store, at, grows_at);
        let words = region.words(at, header::WORDS)?;
        let engine = region.engine();
        engine.store(&words[header::GROWS_AT], grows_at);
        engine.store(&words[header::FLOOR], floor::LOWEST);
        table.make_buckets(buckets)?;
        engine.store(&words[header::BUCKETS], buckets);
        // Last: with it, this is a table.
        engine.store(&words[header::KIND], header::HASH_TABLE | K::CODE);
        Ok(Self { table: Arc::new(table), keys: PhantomData })
    }

    pub(crate) fn open(store: &Store<E>, at: Offset) -> Result<Self, KvError> {
        let words = store.region().words(at, header::WORDS)?;
        let engine = store.region().engine();
        let (expected, found) = (header::HASH_TABLE | K::CODE, engine.load(&words[header::KIND]));
        if found != expected {
            return Err(KvError::NotThisTable { at, expected, found });
        }
        let table = Table::new(store, at, engine.load(&words[header::GROWS_AT]));
        Ok(Self { table: Arc::new(table), keys: PhantomData })
    }

    /// Where the table is in its region, for [opening](Store::open_hash_table) it again.
    #[must_use]
    pub fn location(&self) -> Offset {
        self.table.at
    }

    /// Keys in the table: exactly, if nobody is inserting or removing.
    ///
    /// # Errors
    ///
    /// [`KvError::Corrupt`] when the table's header cannot be reached.
    pub fn count(&self) -> Result<u64, KvError> {
        self.table.keys()
    }

    /// Buckets, without overflow.
    ///
    /// # Errors
    ///
    /// [`KvError::Corrupt`] when the table's header cannot be reached.
    pub fn buckets(&self) -> Result<u64, KvError> {
        self.table.buckets()
    }

    /// Copies a key's value to `into`, as far as there is room.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    #[inline]
    pub fn get(&self, key: K::Key<'_>, into: &mut [u8]) -> Result<Option<Read>, KvError> {
        self.table.search::<K, _>(key, |record| record.read::<K>(key, into))
    }

    /// Whether there is such a key.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    pub fn contains(&self, key: K::Key<'_>) -> Result<bool, KvError> {
        Ok(self.version(key)?.is_some())
    }

    /// The version of a key's value.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    pub fn version(&self, key: K::Key<'_>) -> Result<Option<Version>, KvError> {
        self.table.search::<K, _>(key, |record| record.check::<K>(key))
    }

    /// Inserts a key that is not there yet. Gives the version that its value has, or `None` if the key is there: then
    /// nothing has changed.
    ///
    /// # Errors
    ///
    /// When key or value are too long, or memory has run out. Nothing has changed then.
    pub fn insert(&self, worker: &mut Worker<E>, key: K::Key<'_>, value: &[u8]) -> Result<Option<Version>, KvError> {
        let inserted = self.table.insert::<K>(worker, key, value)?;
        if inserted.is_some() {
            let counted = self.table.count(worker, 1)?;
            self.table.grow_if_full::<K>(counted)?;
        }
        Ok(inserted)
    }

    /// Gives a key that is there another value. Gives the new version, or `None` if there is no such key.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    #[inline]
    pub fn update(&self, worker: &mut Worker<E>, key: K::Key<'_>, value: &[u8]) -> Result<Option<Version>, KvError> {
        let shape = Shape::of::<K>(key, value.len())?;
        let holder = worker.lock_state();
        let written = self.table.search::<K, _>(key, |record| {
            Ok(match record.lock::<K>(key, holder)? {
                Look::Found(locked) if locked.has_room_for(shape) => Look::Found(Some(locked.write(shape, value)?)),
                // There is no room for it where it is.
                Look::Found(_) => Look::Found(None),
                Look::Other => Look::Other,
                Look::Stale => Look::Stale,
                Look::Busy => Look::Busy,
            })
        })?;
        match written {
            Some(None) => self.table.relocate::<K>(worker, key, shape, value),
            Some(written) => Ok(written),
            None => Ok(None),
        }
    }

    /// Gives a key a value, whether it is there or not. Gives the value's version.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    pub fn put(&self, worker: &mut Worker<E>, key: K::Key<'_>, value: &[u8]) -> Result<Version, KvError> {
        update_or_insert(worker, |worker| self.update(worker, key, value), |worker| self.insert(worker, key, value))
    }

    /// Removes a key. Gives the version that was removed, or `None` if there was no such key.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    pub fn remove(&self, worker: &mut Worker<E>, key: K::Key<'_>) -> Result<Option<Version>, KvError> {
        let removed = self.table.remove::<K>(worker, key)?;
        if removed.is_some() {
            self.table.count(worker, -1)?;
        }
        Ok(removed)
    }

    /// Calls `visit` with every key's slot word, value and version. A key that is there all the while is visited once; one that comes or goes
    /// meanwhile, once or not at all. (The word is the key itself, or a byte string's fingerprint.)
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    pub fn for_each(&self, visit: impl FnMut(u64, &[u8], Version)) -> Result<(), KvError> {
        self.table.for_each::<K>(visit)
    }
}

impl<E: Engine> Table<E> {
    fn new(store: &Store<E>, at: Offset, grows_at: u64) -> Self {
        let region = store.region();
        let segments = |word: usize| Segments::new(region, at + 8 * word as u64);
        Self {
            store: store.clone(),
            at,
            main: segments(header::MAIN),
            overflow: segments(header::OVERFLOW),
            free_overflows: Mutex::default(),
            grows_at: (grows_at != 0).then(|| f64::from_bits(grows_at)),
        }
    }

    #[inline(always)]
    fn region(&self) -> &Region<E> {
        self.store.region()
    }

    #[inline(always)]
    fn engine(&self) -> &E {
        self.region().engine()
    }

    #[inline(always)]
    fn header(&self, word: usize) -> Result<&Word, KvError> {
        Ok(&self.region().array::<{ header::WORDS }>(self.at)?[word])
    }

    /// How many buckets there are. Who learns of a bucket by this finds it filled: its keys would otherwise be looked for before they are
    /// there, and its depth after it is.
    #[inline(always)]
    fn buckets(&self) -> Result<u64, KvError> {
        Ok(self.engine().load(self.header(header::BUCKETS)?))
    }

    fn keys(&self) -> Result<u64, KvError> {
        Ok(counter::sum(self.engine(), self.counter()?))
    }

    fn counter(&self) -> Result<&[Word], KvError> {
        Ok(&self.region().array::<{ header::WORDS }>(self.at)?[header::KEYS..])
    }

    /// Counts a key more or less; gives the shard's count.
    fn count(&self, worker: &Worker<E>, change: i64) -> Result<i64, KvError> {
        Ok(counter::add(self.engine(), self.counter()?, worker.number(), change))
    }
}
