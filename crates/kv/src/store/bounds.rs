//! Sizes and limits that differ under model checking, which runs every interleaving. Tables are so
//! small there that few operations reach each of their edges, and waiting is short. Also the widths
//! of counters, which tests make so narrow that they wrap around after a few steps.

/// Whether this build is for a model checker (the feature `model`).
pub(crate) const MODEL: bool = cfg!(feature = "model");

/// Returns the product's value, or the model checker's.
const fn either<T: Copy>(product: T, model: T) -> T {
    if MODEL { model } else { product }
}

/// The bits that incarnations of records use, of fourteen.
pub(crate) const INCARNATION_USED: u32 = if NARROW { 3 } else { 14 };

/// The bits that versions of buckets use, of twenty-three.
pub(crate) const BUCKET_VERSION_USED: u32 = if NARROW { 3 } else { 23 };

/// Bits that generations of spans use, of the twenty-four that there are.
pub(crate) const GENERATION_USED: u32 = if NARROW { 3 } else { 24 };

/// How many objects leave quarantine at once, unless memory is needed before.
pub(crate) const DETAINED: usize = if NARROW { 1 } else { 64 };

/// Whether counters are narrow (the feature `narrow`).
const NARROW: bool = cfg!(feature = "narrow");

/// The number of words of a counter of keys, each in a line of its own.
pub(crate) const SHARDS: usize = either(16, 1);

/// The number of words of a page of the heap. A page is larger only for a larger object. Under
/// model checking each page is one object.
pub(crate) const PAGE_WORDS: u64 = either(8 << 10, 0);

/// The number of buckets in a hash table's first segment.
pub(crate) const FIRST: u64 = either(16, 1);

/// The number of segments that double a hash table's array.
pub(crate) const DOUBLING: usize = either(9, 3);

/// A worker checks whether a hash table should grow each time its shard has counted this many more
/// keys.
pub(crate) const TURN: i64 = either(32, 1);

/// The number of entries in a node of the tree.
pub(crate) const FANOUT: usize = either(30, 3);

/// The number of nodes that are cut from the region at once.
pub(crate) const PAGE_NODES: u64 = either(64, 1);

/// The most records of a run that are created at once, before the leaf is locked.
pub(crate) const RUN: usize = either(16, 2);

/// The most bits of the hash for the sets of the first generation of a tree's hints.
pub(crate) const FIRST_BITS: u32 = either(8, 0);

/// The bytes of a region of hints besides its sets: the superblock, and what alignment to a line
/// skips.
pub(crate) const HINTS_BESIDES: u64 = either(4096, 512);

/// The number of entries in a set of a cache.
pub(crate) const WAYS: usize = either(7, 2);

/// The bytes of a cache's region besides its sets, as for hints.
pub(crate) const CACHE_BESIDES: u64 = either(4096, 320);

/// The number of attempts before an operation on another node's record gives up.
pub(crate) const TRIES: u32 = either(100, 2);

/// The most turns of the other coroutines between two such attempts.
pub(crate) const LONGEST: u32 = either(64, 1);
