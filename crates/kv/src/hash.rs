//! The cluster-chaining hash table: buckets of eight keys, chained where they overflow, split one at a time as the table grows.
//!
//! # Finding a key
//!
//! A key's hash names its bucket, according to how often that has been split (see `numbering`), which the bucket itself says: its *depth*. A search starts where the
//! table's size suggests, which may be out of date. If it finds the key, that is that. If not, the bucket says whether
//! it was the right one: absence is never concluded from a bucket that has been split, or that changed during the search. Readers
//! take no locks and wait for nobody.
//!
//! # Growing
//!
//! Linear hashing: buckets are split in the order of their numbers, so the table grows by one bucket at a
//! time and its occupancy stays what it was. A split locks the one bucket that it divides. First the new bucket gets the keys
//! that move, and becomes valid; then the old one says that it is one bit deeper; then it drops them. At each moment each key can be found.
//! Only who holds the lock of the bucket whose turn it is moves the turn on, when all is done, so a split that fails for want
//! of memory has changed nothing.
//!
//! # Changing a chain
//!
//! Under the bucket's lock, or, for an insertion or a removal where there is transactional memory, in a region that would abort if the lock were
//! held. Locks are taken in the order bucket, record; nobody waits for a bucket while holding a record.

mod bucket;
mod chain;
mod change;
mod grow;
mod held;
mod hint;
mod numbering;
mod peer;
mod search;
mod segments;
mod visit;

use held::BucketChange;
pub use held::{BucketHint, BucketVersion, Whereabouts};
pub use peer::HashPeer;
pub use visit::Sweep;

use std::{marker::PhantomData, sync::Arc};

use drtm_htm::{Engine, LINE_WORDS, Word};
use drtm_rdma::{Offset, Region};
use parking_lot::Mutex;

use crate::{
    KvError, Store, Turn, Version, Worker, checksum, counter, floor,
    keys::{Inline, Keys},
    layout::SLOTS,
    patience::Patience,
};
use hint::Hint;
use numbering::Numbering;
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
    /// Whether peers read its records by one-sided READs, so that records have checksums.
    pub for_peers: bool,
}

impl HashConfig {
    /// Room for so many keys at an occupancy of three quarters, and growing.
    #[must_use]
    pub const fn for_keys(keys: u64) -> Self {
        Self { keys, occupancy: 0.75, grows: true, for_peers: false }
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

    /// The same for a table whose records are [read by peers](crate::RecordPeer). Each needs eight bytes more, and a checksum when it is written.
    #[must_use]
    pub const fn for_peers(self) -> Self {
        Self { for_peers: true, ..self }
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
///      5   flags: 1 where records have checksums
///      6   buckets at the beginning
///      7.. segments of buckets, then segments of overflow buckets
/// then, from a line's boundary, a line for each shard of the number of keys
/// ```
mod header {
    use super::segments;
    use crate::checksum;

    pub(super) const KIND: usize = 0;
    pub(super) const GROWS_AT: usize = 1;
    pub(super) const BUCKETS: usize = 2;
    pub(super) const FLOOR: usize = 3;
    pub(super) const OVERFLOWS: usize = 4;
    pub(super) const FLAGS: usize = checksum::FLAGS;
    pub(super) const BASE: usize = 6;
    pub(super) const MAIN: usize = 7;
    pub(super) const OVERFLOW: usize = MAIN + segments::HEADER_WORDS;
    pub(super) const KEYS: usize = (OVERFLOW + segments::HEADER_WORDS).next_multiple_of(super::LINE_WORDS);
    pub(super) const WORDS: usize = KEYS + crate::counter::WORDS;

    /// The first word, with the code of the keys in its last byte.
    pub(super) const HASH_TABLE: u64 = u64::from_be_bytes(*b"drtmh1\0\0");
}

/// The first word of the header of a table with these keys.
pub(crate) const fn kind<K: Keys>() -> u64 {
    header::HASH_TABLE | K::CODE
}

/// A hash table over registered memory. Clones are the same table.
///
/// Values are byte strings of up to [`MAX_VALUE`](crate::MAX_VALUE) bytes. All operations are linearizable.
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
    store: Store<E>,
    /// The store's, a step closer.
    region: Arc<Region<E>>,
    at: Offset,
    numbering: Numbering,
    /// How many buckets there were when this handle last looked.
    hint: Hint,
    main: Segments,
    overflow: Segments,
    free_overflows: Mutex<Vec<u64>>,
    /// Keys per bucket at which a bucket is added.
    grows_at: Option<f64>,
    /// Whether records have checksums.
    checked: bool,
    patience: Patience,
}

impl<E: Engine, K: Keys> HashTable<E, K> {
    pub(crate) fn create(store: &Store<E>, config: HashConfig) -> Result<Self, KvError> {
        let buckets = config.buckets()?;
        let region = store.region();
        let at = region.extend(8 * header::WORDS as u64, 128)?;
        let grows_at = if config.grows { config.keys_per_bucket().to_bits() } else { 0 };
        let words = region.words(at, header::WORDS)?;
        let engine = region.engine();
        engine.store(&words[header::BASE], buckets);
        engine.store(&words[header::GROWS_AT], grows_at);
        engine.store(&words[header::FLOOR], floor::LOWEST);
        engine.store(&words[header::FLAGS], checksum::to_flags(config.for_peers));
        let table = Table::at(store, at)?;
        table.make_buckets(buckets)?;
        engine.store(&words[header::BUCKETS], buckets);
        // Last: with it, this is a table.
        engine.store(&words[header::KIND], kind::<K>());
        Ok(Self { table: Arc::new(table), keys: PhantomData })
    }

    pub(crate) fn open(store: &Store<E>, at: Offset) -> Result<Self, KvError> {
        let words = store.region().words(at, header::WORDS)?;
        let engine = store.region().engine();
        let (expected, found) = (kind::<K>(), engine.load(&words[header::KIND]));
        if found != expected {
            return Err(KvError::NotThisTable { at, expected, found });
        }
        Ok(Self { table: Arc::new(Table::at(store, at)?), keys: PhantomData })
    }

    /// Buckets, without overflow.
    ///
    /// # Errors
    ///
    /// [`KvError::Corrupt`] when the table's header cannot be reached.
    pub fn buckets(&self) -> Result<u64, KvError> {
        self.table.buckets()
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
    /// The table whose header is at this place.
    fn at(store: &Store<E>, at: Offset) -> Result<Self, KvError> {
        let region = store.region();
        let words = region.words(at, header::WORDS)?;
        let word = |word: usize| region.engine().load(&words[word]);
        let numbering = Numbering::new(word(header::BASE)).ok_or(KvError::NoBucket { bucket: 0 })?;
        let grows_at = (word(header::GROWS_AT) != 0).then(|| f64::from_bits(word(header::GROWS_AT)));
        Ok(Self::new(store, at, numbering, grows_at, checksum::are_checked(word(header::FLAGS))))
    }

    fn new(store: &Store<E>, at: Offset, numbering: Numbering, grows_at: Option<f64>, checked: bool) -> Self {
        let region = store.region();
        let segments = |word: usize| Segments::new(region, at + 8 * word as u64);
        Self {
            store: store.clone(),
            region: Arc::clone(region),
            at,
            numbering,
            hint: Hint::new(numbering),
            main: segments(header::MAIN),
            overflow: segments(header::OVERFLOW),
            free_overflows: Mutex::default(),
            grows_at,
            checked,
            patience: Patience::Endless,
        }
    }

    #[inline(always)]
    fn region(&self) -> &Region<E> {
        &self.region
    }

    #[inline(always)]
    fn engine(&self) -> &E {
        self.region().engine()
    }

    #[inline(always)]
    fn turn(&self) -> Turn {
        Turn::of(self.region())
    }

    /// Whether nothing that was looked at since this turn can have come round.
    #[inline(always)]
    fn is_within(&self, since: Turn) -> bool {
        since.holds_in(self.region())
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
