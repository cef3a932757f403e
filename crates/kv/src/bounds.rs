//! Sizes and limits that differ under model checking, where every interleaving is run: there tables
//! are so small that few operations reach each of their edges, and waiting is short. And the widths
//! of counters, which tests make so narrow that they wrap after a few steps.

/// Whether this build is for a model checker (the feature `model`).
pub(crate) const MODEL: bool = cfg!(feature = "model");

/// One of two figures: the product's, or the model checker's.
const fn either<T: Copy>(product: T, model: T) -> T {
    if MODEL { model } else { product }
}

/// Bits that incarnations of records use, of the fourteen that there are.
pub(crate) const INCARNATION_USED: u32 = if NARROW { 3 } else { 14 };

/// Bits that versions of buckets use, of the twenty-three that there are.
pub(crate) const BUCKET_VERSION_USED: u32 = if NARROW { 3 } else { 23 };

/// How many objects leave quarantine at once, unless memory is wanted before.
pub(crate) const DETAINED: usize = if NARROW { 1 } else { 64 };

/// Whether counters are narrow (the feature `narrow`).
const NARROW: bool = cfg!(feature = "narrow");

/// Words of a counter of keys, each in a line of its own.
pub(crate) const SHARDS: usize = either(16, 1);

/// Words of a page of the heap, which is larger only for an object that is. Under model checking
/// each page is one object.
pub(crate) const PAGE_WORDS: u64 = either(8 << 10, 0);

/// Buckets in a hash table's first segment.
pub(crate) const FIRST: u64 = either(16, 1);

/// Segments that double a hash table's array.
pub(crate) const DOUBLING: usize = either(9, 3);

/// A worker checks whether a hash table should grow each time its shard has counted so many more
/// keys.
pub(crate) const TURN: i64 = either(32, 1);

/// Entries in a node of the tree.
pub(crate) const FANOUT: usize = either(30, 3);

/// Nodes that are cut from the region at once.
pub(crate) const PAGE_NODES: u64 = either(64, 1);

/// The most records of a run that are made at once, before the leaf is locked.
pub(crate) const RUN: usize = either(16, 2);

/// The first generation of a tree's hints has at most so many bits of the hash for its sets.
pub(crate) const FIRST_BITS: u32 = either(8, 0);

/// Bytes of a region of hints besides its sets: the superblock, and what alignment to a line skips.
pub(crate) const HINTS_BESIDES: u64 = either(4096, 512);

/// Entries in a set of a cache.
pub(crate) const WAYS: usize = either(7, 2);

/// Bytes of a cache's region besides its sets, as for hints.
pub(crate) const CACHE_BESIDES: u64 = either(4096, 320);

/// Tries before an operation on another node's record gives up.
pub(crate) const TRIES: u32 = either(100, 2);

/// The most turns of the other coroutines between two such tries.
pub(crate) const LONGEST: u32 = either(64, 1);
