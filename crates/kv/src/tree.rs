//! The B+ tree: an ordered table, with optimistic readers, and locks on the nodes that change.
//!
//! # Finding a key
//!
//! A reader descends from the root, which never moves, to a leaf. Each node has a *stamp*, which
//! changes whenever the node does. A reader loads the stamp before and after it reads the node, and
//! takes no locks. It validates a parent's stamp once more after loading the child's. A node that
//! is split or leaves the tree changes its parent. So a reader that followed a stale link detects
//! it at the parent, and starts again (see `search`). A read of one leaf is consistent, and a
//! reader needs no more.
//!
//! Each node also has the range of its keys, and a link to the next node on its level. A scan uses
//! them to continue to the right without another descent.
//!
//! A *hint* is kept for a key that was found before. It leads directly to the key's leaf and record
//! (see `hints`).
//!
//! Byte strings are sequences of words. Their tree has a layer for each word of a prefix that
//! several keys share: see `layers`.
//!
//! # Changing a leaf
//!
//! A leaf is changed under its lock, which is in its stamp. A CAS from the stamp that was seen to a
//! locked one takes it, so it is only taken while the leaf is unchanged. An update of a value
//! writes to the record without touching the leaf. A value of another size class moves its record
//! and changes the leaf's link, but not the leaf's stamp. So a stamp validates which keys there
//! are, and no more.
//!
//! # Changing the tree
//!
//! A full node is split (see `split`), an empty one leaves the tree (see `reclaim`). Either all
//! affected nodes are locked as they were seen, or none. A thread never waits for one node while it
//! has locked another, so the order of locks does not matter. While all locks are held, links and
//! fences are consistent. A reader may see them inconsistent, and validates stamps.
//!
//! Nodes that have left are reused at once, as nodes of the same tree. Stamps keep growing over all
//! uses of a node's memory, so a reader with an old place detects the reuse. No thread waits for
//! readers to leave.

/// Repeats an attempt until it returns `Some`. This is a macro, since a closure would not be
/// inlined into the search.
macro_rules! until {
    ($attempt:expr) => {{
        let waiter = drtm_htm::Waiter::new();
        loop {
            if let Some(done) = $attempt {
                break done;
            }
            waiter.pause();
        }
    }};
}

mod change;
mod empty;
mod held;
mod hints;
mod insert_point;
mod keys;
mod kind;
mod layers;
mod leaves;
mod node;
mod pool;
mod prune;
mod reclaim;
mod rows;
mod run;
mod scan;
mod search;
mod slices;
mod split;
mod walk;

pub use held::Cursor;
pub use kind::TreeKeys;
pub use rows::Passed;
pub use scan::{Row, Scan};

use std::{marker::PhantomData, sync::Arc};

use drtm_htm::{Access, Engine};
use drtm_rdma::{Offset, Region};
use smallvec::SmallVec;

use crate::{
    GuardChange, KvError, PhantomGuard, Store,
    record::keys::{Inline, Keys},
    store::{
        beside::Holds,
        layout::{NODE_WORDS, Stamp},
    },
    table::base::Base,
};
use hints::Hints;
use node::Seen;
use pool::Pool;

/// The words of a tree's header in its region, behind those of [every table](crate::table::base).
///
/// ```text
/// word 8   a line for each shard of the number of keys
/// then, from a line's boundary, the root
/// ```
mod header {
    use drtm_htm::LINE_WORDS;

    use crate::{
        store::layout::NODE_WORDS,
        table::base::{COUNTER_WORDS, Header},
    };

    pub(super) const ROOT: usize = LINE_WORDS + COUNTER_WORDS;
    pub(super) const HEADER: Header = Header { words: ROOT + NODE_WORDS, align: 64, counter: LINE_WORDS };

    /// The first word, with the size of nodes, and without the code of the keys in its last byte.
    pub(super) const TREE: u64 = u64::from_be_bytes(*b"drtmt1\0\0") | (NODE_WORDS as u64) << 8;

    const _: () = assert!(NODE_WORDS < 256);
}

/// Returns the first word of the header of a tree with these keys.
pub(crate) const fn kind<K: Keys>() -> u64 {
    header::TREE | K::CODE
}

/// The version of a leaf as a reader has seen it: a phantom guard.
///
/// # Example
///
/// See [`Scan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct NodeVersion {
    /// The leaf's place in its region.
    pub at: Offset,
    /// The leaf's version. No two contents of the leaf's memory have the same one.
    pub version: u64,
}

impl NodeVersion {
    /// Makes the guard of a leaf from its fields, as they are sent in a message. Arbitrary words
    /// make a guard that holds for no leaf, or for a leaf that has that version.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_kv::NodeVersion;
    ///
    /// let guard = NodeVersion::from_words(4096, 7);
    /// assert_eq!((guard.at.bytes(), guard.version), (4096, 7));
    /// ```
    #[must_use]
    pub const fn from_words(at: u64, version: u64) -> Self {
        Self { at: Offset::new(at), version }
    }

    fn new(place: u64, stamp: Stamp) -> Self {
        Self { at: Offset::new(8 * place), version: stamp.0 }
    }

    fn of<E: Engine>(leaf: &Seen<'_, E>) -> Self {
        Self::new(leaf.node.place, leaf.stamp)
    }
}

/// The change of a leaf by an insertion or a split.
type LeafChange = GuardChange<NodeVersion>;

impl PhantomGuard for NodeVersion {
    #[inline(always)]
    fn place(&self) -> Offset {
        self.at
    }

    #[inline]
    fn holds_in<'m, E: Engine, A: Access<'m>>(&self, tx: &mut A, region: &'m Region<E>) -> Result<bool, A::Abort> {
        // A place outside the region is no leaf. A leaf that is being changed has a stamp that no
        // reader has seen.
        let Ok(words) = region.array::<NODE_WORDS>(self.at) else { return Ok(false) };
        Ok(Stamp(tx.load(&words[0])?).unlocked().0 == self.version)
    }
}

/// An ordered table in registered memory: a B+ tree. Clones are handles of the same tree.
///
/// Its operations are those of every [table](crate::KvTable), and scans.
///
/// Keys are integers, or with [`Bytes`](crate::Bytes) byte strings of up to
/// [`MAX_KEY`](crate::MAX_KEY) bytes. Values are byte strings of up to
/// [`MAX_VALUE`](crate::MAX_VALUE) bytes. Operations on a key are linearizable. See [`Scan`] for
/// the consistency of scans.
///
/// For a tree with more than a thousand keys, each process keeps hints in its own memory. They take
/// 17 to 34 bytes per key, for the largest number of keys that the tree had. A handle that was
/// [opened](Store::open_tree) has its own hints, which its clones share.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{KvTable, Store};
///
/// let store = Store::in_memory(NoHtm, 64 << 20)?;
/// let tree = store.tree()?;
/// let mut worker = store.worker()?;
/// for key in (0..1_000).rev() {
///     assert!(tree.insert(&mut worker, key, &key.to_le_bytes())?.is_some());
/// }
/// assert!(tree.insert(&mut worker, 3, b"again")?.is_none(), "it is there");
/// assert!(tree.update(&mut worker, 3, b"changed")?.is_some());
/// assert!(tree.remove(&mut worker, 4)?.is_some());
/// assert_eq!((tree.contains(3)?, tree.contains(4)?, tree.count()?), (true, false, 999));
///
/// let mut scan = tree.range_back(..=5);
/// assert_eq!(scan.next()?.map(|row| row.key), Some(5));
/// assert_eq!(scan.next()?.map(|row| row.key), Some(3));
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
///
/// With byte strings:
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{Bytes, KvTable, Store};
///
/// let store = Store::in_memory(NoHtm, 64 << 20)?;
/// let tree = store.tree_of::<Bytes>()?;
/// let mut worker = store.worker()?;
/// for key in ["user:bob", "user:alice", "group:staff", "user:"] {
///     tree.insert(&mut worker, key.as_bytes(), b"")?;
/// }
/// let mut users = Vec::new();
/// let mut scan = tree.range(&b"user:"[..]..&b"user;"[..]);
/// while let Some(row) = scan.next()? {
///     users.push(row.key.to_vec());
/// }
/// assert_eq!(users, [&b"user:"[..], b"user:alice", b"user:bob"]);
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tree<E: Engine, K: Keys = Inline> {
    table: Arc<Table<E>>,
    keys: PhantomData<K>,
}

/// Data for a node on each level, or layer, of a descent. Needs no allocation for trees of usual
/// height.
type PerLevel<T> = SmallVec<[T; 8]>;

#[derive(Debug)]
pub struct Table<E: Engine> {
    base: Base<E>,
    /// The root's place, in words.
    root: u64,
    pool: Pool,
    hints: Arc<Hints>,
}

impl<E: Engine> Store<E> {
    /// Creates an ordered table with keys of eight bytes.
    ///
    /// # Errors
    ///
    /// When memory cannot be allocated.
    pub fn tree(&self) -> Result<Tree<E>, KvError> {
        self.tree_of()
    }

    /// Creates an ordered table with keys of this kind.
    ///
    /// # Errors
    ///
    /// When memory cannot be allocated.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Bytes, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree_of::<Bytes>()?, store.worker()?);
    /// tree.insert(&mut worker, b"user:alice", b"1")?;
    /// assert!(tree.contains(b"user:alice")?);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    pub fn tree_of<K: TreeKeys>(&self) -> Result<Tree<E, K>, KvError> {
        Tree::create(self)
    }

    /// Opens an ordered table that was [created](Self::tree_of) in this region, by this handle or
    /// another.
    ///
    /// # Errors
    ///
    /// When there is no tree at that place, or one with other keys.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Inline, KvError, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let made = store.tree()?;
    /// made.insert(&mut store.worker()?, 1, b"one")?;
    /// let opened = store.open_tree::<Inline>(made.location())?;
    /// assert!(opened.contains(1)?);
    /// let refused = store.open_hash_table::<Inline>(made.location());
    /// assert!(matches!(refused, Err(KvError::NotThisTable { .. })));
    /// # Ok::<(), KvError>(())
    /// ```
    pub fn open_tree<K: TreeKeys>(&self, at: Offset) -> Result<Tree<E, K>, KvError> {
        Base::open(self, at, header::HEADER, kind::<K>()).map(Tree::over)
    }
}

impl<E: Engine, K: TreeKeys> Tree<E, K> {
    #[inline(never)]
    fn create(store: &Store<E>) -> Result<Self, KvError> {
        let tree = Self::over(Base::create(store, header::HEADER, false)?);
        let root = tree.table.root()?;
        root.set_end(u64::MAX, 0);
        root.publish(Stamp::new(0, 0));
        tree.table.base.publish(kind::<K>())?;
        Ok(tree)
    }

    #[inline(never)]
    fn over(base: Base<E>) -> Self {
        let hints = Hints::new(base.region.capacity(), base.store.memory_beside(), base.store.hints_at_once());
        Self { table: Arc::new(Table::new(base, hints)), keys: PhantomData }
    }

    /// Frees the memory of the tree's hints, for a tree that will not be used for a while.
    pub fn forget_hints(&self) {
        self.table.hints.give_all_back();
    }

    /// Corrupts the tree's [hints](Store::hinting_at_once) at random, for tests: results must not
    /// depend on hints.
    #[doc(hidden)]
    pub fn scribble_hints(&self, seed: u64) {
        self.table.hints.scribble(seed);
    }
}

impl<E: Engine> Table<E> {
    fn new(base: Base<E>, hints: Arc<Hints>) -> Self {
        let root = base.at.word() + header::ROOT as u64;
        Self { base, root, pool: Pool::default(), hints }
    }

    #[inline(always)]
    fn region(&self) -> &Region<E> {
        &self.base.region
    }

    #[inline(always)]
    fn engine(&self) -> &E {
        self.base.engine()
    }
}
