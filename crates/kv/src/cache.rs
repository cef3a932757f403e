//! What a node remembers of the tables of others: buckets and inner nodes that it has fetched,
//! within a budget.
//!
//! Nothing that is remembered is ever invalidated by its owner, who does not know of it. It is a
//! hint: what it leads to says itself whether it is what was looked for, and nothing is concluded
//! from what it lacks. All threads of a node share one cache, for all tables on all nodes: what one
//! has fetched the others need not.
//!
//! # Sets
//!
//! What is at a place can be kept in one *set* only, which the place's hash names, as one of its
//! seven entries. A set's *stamp* has its version and its lock. A reader loads the stamp, finds the
//! entry, copies it, and loads the stamp again: only if the version is the same was it one entry. A
//! writer exchanges the stamp for a locked one. Nobody ever waits: a reader that meets a writer
//! remembers nothing, and a writer that meets another leaves it at that.
//!
//! # What is kept
//!
//! A set counts each entry's hits, up to three, in its stamp. An entry that comes new takes the
//! place of one that has no hits left; if all have some, it is not kept, and each loses one. (The
//! sketch of Misra and Gries, for each set: who comes more often than a seventh of the time stays.)
//! So a stream of places that are seen once does not push out what is used, what is no longer used
//! goes when others are, and hits of what is used most are not even counted, so that threads can
//! share it without a write.

mod set;

use drtm_htm::NoHtm;
use drtm_rdma::{Offset, Region, Remote};

use crate::{
    KvError,
    bounds::CACHE_BESIDES,
    layout::{BUCKET_WORDS, NODE_WORDS},
};
use set::{Set, set_words};

/// Remembered buckets of hash tables on other nodes, each with a turn from before it was fetched:
/// see [`HashPeer::with_cache`](crate::HashPeer::with_cache).
///
/// # Example
///
/// See [`Cache`].
pub type BucketCache = Cache<{ BUCKET_WORDS + 1 }>;

/// Remembered inner nodes of trees on other nodes: see
/// [`TreePeer::with_cache`](crate::TreePeer::with_cache).
///
/// # Example
///
/// See [`Cache`].
pub type NodeCache = Cache<NODE_WORDS>;

/// A cache of what was fetched from other nodes, in entries of so many words. Shared by threads,
/// without locks.
///
/// What it remembers of a region is good for as long as that is the same memory. When a node has
/// come back with other memory under the same identifier, begin with another cache.
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
/// // Node 0 remembers a megabyte of what it has seen, of this table or others.
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
    /// A cache of at most so many bytes, its own administration included but for a page. Memory is
    /// used only as it is filled. One that is too small for a single set (a kilobyte for buckets,
    /// four for nodes) remembers nothing.
    ///
    /// # Errors
    ///
    /// When so much memory cannot be had.
    pub fn new(bytes: u64) -> Result<Self, KvError> {
        let sets = bytes / Self::SET_BYTES;
        let memory = Region::anonymous(NoHtm, bytes.saturating_add(CACHE_BESIDES))?;
        let first = memory.extend(sets * Self::SET_BYTES, 64)?;
        Ok(Self { memory, first, sets })
    }

    const SET_BYTES: u64 = 8 * set_words(WORDS) as u64;

    /// How many entries there is room for.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.sets * set::WAYS as u64
    }

    /// What is remembered of a place.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn get(&self, at: Remote) -> Option<[u64; WORDS]> {
        let key = key(at)?;
        self.set(key)?.get(key)
    }

    /// Remembers what was fetched from a place, in place of what was remembered of it, or if there
    /// are fewer hits for something else.
    #[doc(hidden)]
    pub fn put(&self, at: Remote, words: &[u64; WORDS]) {
        if let Some(key) = key(at)
            && let Some(set) = self.set(key)
        {
            set.put(key, words);
        }
    }

    /// Forgets a place.
    #[doc(hidden)]
    pub fn forget(&self, at: Remote) {
        if let Some(key) = key(at)
            && let Some(set) = self.set(key)
        {
            set.forget(key);
        }
    }

    #[inline(always)]
    fn set(&self, key: u64) -> Option<Set<'_, WORDS>> {
        // The upper half of the product spreads hashes over any number of sets.
        let mixed = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let number = ((u128::from(mixed ^ mixed >> 32) * u128::from(self.sets)) >> 64) as u64;
        let at = Offset::new(self.first.bytes() + number * Self::SET_BYTES);
        // There is none only if there are no sets at all.
        self.memory.words(at, set_words(WORDS)).ok().map(Set::new)
    }
}

const NODE_BITS: u32 = 16;
const REGION_BITS: u32 = 11;
const LINE_BITS: u32 = 37;

const _: () = assert!(NODE_BITS + REGION_BITS + LINE_BITS == 64);

/// The word that names a place, never zero. Places that do not fit are not remembered: of the
/// 2048th region of a node or a later one, beyond 8 TiB, where no table is, or within a line, where
/// no bucket or node begins.
#[inline(always)]
fn key(at: Remote) -> Option<u64> {
    let (node, region) = (u64::from(at.node.0), u64::from(at.region.0));
    let line = at.offset.bytes() / 64;
    let fits = at.offset.bytes().is_multiple_of(64) && line >> LINE_BITS == 0 && region >> REGION_BITS == 0;
    let key = (node << REGION_BITS | region) << LINE_BITS | line;
    (fits && key != 0).then_some(key)
}
