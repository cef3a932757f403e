//! A node's cache of other nodes' hash tables: buckets that it has fetched, within a budget of
//! bytes.
//!
//! The owner never invalidates a cached entry, and does not know of it. An entry is a hint: the
//! memory that it leads to is validated, and a missing key in an entry says nothing. All threads of
//! a node share one cache, for all tables on all nodes.
//!
//! # Sets
//!
//! An entry can only be in one *set*, which its place's hash names, in one of its seven ways. A
//! set's *stamp* has its version and its lock. A reader loads the stamp, finds the entry, copies
//! it, and loads the stamp again: the copy is consistent only if the version is unchanged. A writer
//! locks the stamp by a CAS. No thread ever waits. A reader that finds the set locked misses, and a
//! writer that finds it locked stores nothing.
//!
//! # Replacement
//!
//! A set counts each entry's hits, up to three, in its stamp. A new entry replaces one without
//! hits. If all entries have hits, the new one is not stored, and each loses one hit. This is the
//! sketch of Misra and Gries, for each set: an entry that is used more than a seventh of the time
//! stays. So a stream of places that are seen once does not evict entries that are used. Entries
//! that are no longer used are evicted. Hits of the most frequent entries are not even counted, so
//! threads share them without a write.

mod set;

use drtm_htm::NoHtm;
use drtm_rdma::{Offset, Region, Remote};

use crate::{
    KvError,
    store::{bounds::CACHE_BESIDES, layout::BUCKET_WORDS},
};
use set::{Set, set_words};

/// A cache of buckets of hash tables on other nodes, each with a turn from before it was fetched.
/// See [`HashPeer::with_cache`](crate::HashPeer::with_cache).
///
/// # Example
///
/// See [`Cache`].
pub type BucketCache = Cache<{ BUCKET_WORDS + 1 }>;

/// A cache of what was fetched from other nodes, in entries of `WORDS` words. Threads share it
/// without waiting.
///
/// Entries of a region are valid as long as the region is the same memory. When a node restarts
/// with other memory under the same identifier, use another cache.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use drtm_htm::NoHtm;
/// use drtm_kv::{BucketCache, HashConfig, HashPeer, Inline, KvTable, Store};
/// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, Remote, block_on};
///
/// // Node 1 has a table.
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let table = store.hash_table(HashConfig::default())?;
/// table.insert(&mut store.worker()?, 7, b"seven")?;
/// let fabric = LocalFabric::new(2, LocalConfig::perfect());
/// let region = fabric.register(NodeId(1), Arc::clone(store.region()))?;
///
/// // Node 0 caches a megabyte of what it fetches, of this table or others.
/// let cache = Arc::new(BucketCache::new(1 << 20)?);
/// let endpoint = fabric.endpoint(NodeId(0))?;
/// let verbs = endpoint.during(Phase::Lookup);
/// let at = Remote { node: NodeId(1), region, offset: table.location() };
/// let peer = block_on(&endpoint, HashPeer::<Inline>::open(verbs, at))?.with_cache(Arc::clone(&cache));
/// let first = block_on(&endpoint, peer.find(verbs, 7))?;
/// let before = endpoint.counters().total().reads;
/// assert_eq!(block_on(&endpoint, peer.find(verbs, 7))?, first);
/// assert_eq!(endpoint.counters().total().reads, before, "nothing was fetched");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Cache<const WORDS: usize> {
    memory: Region<NoHtm>,
    first: Offset,
    sets: u64,
}

impl<const WORDS: usize> Cache<WORDS> {
    /// Makes a cache of at most this many bytes, including its own data except for a page. Memory
    /// is used only as the cache fills. A cache that is too small for a single set (a kilobyte for
    /// buckets) stores nothing.
    ///
    /// # Errors
    ///
    /// When the system does not provide the memory.
    pub fn new(bytes: u64) -> Result<Self, KvError> {
        let sets = bytes / Self::SET_BYTES;
        let memory = Region::anonymous(NoHtm, bytes.saturating_add(CACHE_BESIDES))?;
        let first = memory.extend(sets * Self::SET_BYTES, 64)?;
        Ok(Self { memory, first, sets })
    }

    const SET_BYTES: u64 = 8 * set_words(WORDS) as u64;

    /// Returns the number of entries that there is room for.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.sets * set::WAYS as u64
    }

    /// Returns the entry of a place. `None`: it is not cached.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn get(&self, at: Remote) -> Option<[u64; WORDS]> {
        let key = key(at)?;
        self.set(key)?.get(key)
    }

    /// Stores the words fetched from a place. They replace the place's old entry, or else take a
    /// free way, or else replace an entry without hits.
    #[doc(hidden)]
    pub fn put(&self, at: Remote, words: &[u64; WORDS]) {
        if let Some(key) = key(at)
            && let Some(set) = self.set(key)
        {
            set.put(key, words);
        }
    }

    #[inline(always)]
    fn set(&self, key: u64) -> Option<Set<'_, WORDS>> {
        // The upper half of the product spreads hashes over any number of sets.
        let mixed = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let number = ((u128::from(mixed ^ mixed >> 32) * u128::from(self.sets)) >> 64) as u64;
        let at = Offset::new(self.first.bytes() + number * Self::SET_BYTES);
        // This fails only if there are no sets at all.
        self.memory.words(at, set_words(WORDS)).ok().map(Set::new)
    }
}

const NODE_BITS: u32 = 16;
const REGION_BITS: u32 = 11;
const LINE_BITS: u32 = 37;

const _: () = assert!(NODE_BITS + REGION_BITS + LINE_BITS == 64);

/// Returns the word that names a place, never zero. `None`: the place does not fit, and is not
/// cached. Such places are of the 2048th region of a node or a later one, or beyond 8 TiB, where no
/// table is. They may also be within a line, where no bucket or node begins.
#[inline(always)]
fn key(at: Remote) -> Option<u64> {
    let (node, region) = (u64::from(at.node.0), u64::from(at.region.0));
    let line = at.offset.bytes() / 64;
    let fits = at.offset.bytes().is_multiple_of(64) && line >> LINE_BITS == 0 && region >> REGION_BITS == 0;
    let key = (node << REGION_BITS | region) << LINE_BITS | line;
    (fits && key != 0).then_some(key)
}
